"""Creation of primitive descriptors: the stride variant of an operation, and the call of the library's create function.

**Stride variants.** oneDNN treats some equal descriptors differently: those that differ in the strides of unit axes. A
unit axis has one element and no padding, so its stride changes no offset.

    (1, 1, 28, 28) as nchw    strides (784, 784, 28, 1)
    (1, 1, 28, 28) as nhwc    strides (784, 1, 28, 1)       same offsets: the descriptors are equal

When the library chooses a kernel, it compares the strides of unit axes with those of a tag: the same convolution takes
6 us or 3.5 ms. When it looks up a primitive in its cache, it ignores them, so an earlier call would decide for a later
one. The engine therefore passes one of two variants, which depend only on what the descriptors are equal to:

    row-major        unit axes have the strides that they have in abcd: the first choice
    channels-last    unit axes have the strides that they have in acdb: used if it makes a faster kernel available

`kernel_rank` orders kernels: those for an instruction set are preferred, then others, then reference kernels.

**Create functions.** A row of `onednn_abi.CREATORS` lists the parameters of a create function as words; each word has a
getter of the argument:

    eltwise forward: prop algorithm src dst alpha beta      the row
    c_int(96) c_int(32) md md c_float(0) c_float(0)         the arguments of the call

The library divides by strides and groups without a check, and follows a null pointer where a hint is missing. These
arguments are checked here. The library checks all others, and its status becomes an exception.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_float, c_void_p
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from inlay import onednn_abi as abi
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn.arguments import algorithm_code
from inlay.engines.onednn.defects import creator_row
from inlay.engines.onednn.descs import LibraryEngine
from inlay.engines.onednn.library import Library, LibraryHandle
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Layout
from inlay.primitives.attributes import PLAIN, BinaryPostOp, PrimitiveAttributes
from inlay.primitives.engine import KernelKind, Operation
from inlay.primitives.rules import RECURRENT, SIGNATURES

_LARGEST_STRIDE: Final = 2**63 - 1
_IMAGES: Final = (3, 4, 5)
"""Numbers of axes of tensors with channels and one to three spatial axes."""
_MATRICES: Final = frozenset((*RECURRENT, "matmul", "layer_normalization", "reorder"))
"""Kinds without channels-last kernels."""
_REFERENCE: Final = re.compile(r"(^|[:_+])ref([:_]|$)")
_OF_ISA: Final = re.compile(r":(sse|avx|uni|asimd|sve|acl|vsx|rv)")


def classify_kernel(name: str) -> KernelKind:
    """Return the kind of code of an implementation by its name.

    A deconvolution has the name of the convolution that it calls after its own.

    >>> names = ("ref:any", "ref_int8:any", "conv:any+ref:any", "jit:avx2", "x64:gemm:jit", "brgconv:avx512_core")
    >>> [classify_kernel(name) for name in names]
    ['reference', 'reference', 'reference', 'jit', 'gemm', 'other']
    """
    if _REFERENCE.search(name) is not None:
        return "reference"
    return "gemm" if "gemm" in name else "jit" if name.startswith("jit") else "other"


def kernel_rank(name: str) -> int:
    """Return the rank of an implementation by its name; 0 is preferred to 1, and 1 to 2.

    >>> [kernel_rank(name) for name in ("brgconv:avx512_core", "jit:uni", "x64:gemm:jit", "simple:any", "ref:any")]
    [0, 0, 1, 1, 2]
    """
    if classify_kernel(name) == "reference":
        return 2
    return 0 if _OF_ISA.search(name) else 1


def stride_variants(operation: Operation) -> tuple[Operation, ...]:
    """Return the one or two stride variants of an operation, the first choice first.

    Post-condition: the descriptors of each variant, operands of post-operations included, are equal to those of
    `operation`. Equal operations have the same variants.
    """
    descs, attributes = operation.descs, operation.attributes
    pairs = {name: pair for name, desc in descs.items() if 1 in desc.dims and (pair := canonical_descs(desc))}
    if not pairs and attributes is PLAIN:
        return (operation,)
    if attributes is not PLAIN:
        attributes = _with_canonical_operands(attributes)
    row_major = {**descs, **{name: pair[0] for name, pair in pairs.items()}}
    first = replace(operation, descs=row_major, attributes=attributes)
    if operation.kind in _MATRICES or all(pair[0] is pair[1] for pair in pairs.values()):
        return (first,)
    channels_last = {**descs, **{name: pair[1] for name, pair in pairs.items()}}
    return first, replace(first, descs=channels_last)


def _with_canonical_operands(attributes: PrimitiveAttributes) -> PrimitiveAttributes:
    """Return the attributes with the row-major variant of each operand of a binary post-operation."""
    if not any(isinstance(post_op, BinaryPostOp) for post_op in attributes.post_ops):
        return attributes
    post_ops = tuple(
        replace(post_op, src_1=(canonical_descs(post_op.src_1) or (post_op.src_1,))[0])
        if isinstance(post_op, BinaryPostOp)
        else post_op
        for post_op in attributes.post_ops
    )
    return replace(attributes, post_ops=post_ops)


@lru_cache(maxsize=4096)
def canonical_descs(desc: MemoryDesc) -> tuple[MemoryDesc, MemoryDesc] | None:
    """Return a descriptor with the strides of its unit axes as in row-major, and as in channels-last formats.

    Both place the elements as `desc` does; the same object is returned twice if the strides are equal.
    The result is None for a descriptor without unit axes, without elements, or with RUNTIME dims: it has one variant.
    Equal descriptors share a cache entry, so the result does not depend on the strides of their unit axes.

    >>> image = MemoryDesc((1, 1, 28, 28), "f32", "nhwc")
    >>> [desc.strides for desc in canonical_descs(image)]
    [(784, 784, 28, 1), (784, 1, 28, 1)]
    """
    if desc.kind != "blocked" or 0 in desc.dims or desc.has_runtime or 1 not in desc.padded_dims:
        return None
    row_major = _with_unit_strides(desc, range(desc.ndims))
    channels_last = row_major
    if desc.ndims in _IMAGES:
        channels_last = _with_unit_strides(desc, (0, *range(2, desc.ndims), 1))
    return row_major, row_major if channels_last.strides == row_major.strides else channels_last


def _with_unit_strides(desc: MemoryDesc, preferred: Sequence[int]) -> MemoryDesc:
    """Return the descriptor with its unit axes at their places in the order of axes `preferred`, outermost first."""
    layout, data_type = desc.require_layout("a stride variant")
    axes = tuple(
        Axis(stride, axis.inner) for stride, axis in zip(_strides(layout, preferred), layout.axes, strict=True)
    )
    return MemoryDesc.from_layout(
        Layout(layout.dims, axes), data_type, dims=desc.dims, offset0=desc.offset0, extras=desc.extras
    )


def _strides(layout: Layout, preferred: Sequence[int]) -> list[int]:
    """Return the strides of all axes; those of unit axes follow from the order `preferred`, outermost axis first."""
    strides = [axis.stride for axis in layout.axes]
    rank = {axis: i for i, axis in enumerate(preferred)}
    order = sorted(
        (axis for axis in preferred if layout.dims[axis] != 1), key=lambda axis: (-strides[axis], rank[axis])
    )
    # Insert each unit axis before the outermost axis that follows it in the preferred order.
    for unit in reversed([axis for axis in preferred if layout.dims[axis] == 1]):
        inside = [i for i, axis in enumerate(order) if rank[axis] > rank[unit]]
        order.insert(inside[0] if inside else len(order), unit)
    # A unit axis gets the extent of all axes inside it as its stride, like an axis of a dense tensor.
    below = prod(digit.extent for axis in layout.axes for digit in axis.inner)
    for axis in reversed(order):
        if layout.dims[axis] == 1:
            strides[axis] = min(below, _LARGEST_STRIDE)
        below = strides[axis] * (layout.dims[axis] // layout.axes[axis].block)
    return strides


_SAME_DIMS = frozenset(
    (
        "eltwise",
        "softmax",
        "lrn",
        "shuffle",
        "prelu",
        "batch_normalization",
        "layer_normalization",
        "group_normalization",
        "reorder",
    )
)
"""Kinds whose destination has the dims of the source."""
_LARGEST = 2**31 - 1
_POSITIVE = {"strides", "kernel"}
"""Window parameters by which the library divides."""
_COUNTS = ("axis", "group_size", "local_size", "groups")
"""Parameters that are one integer."""


ArgumentGetter: TypeAlias = Callable[[LibraryEngine, Operation, LibraryHandle | None], Any]
"""A function that returns one argument of a create function; its last parameter is the hint."""


def create_primitive_desc(
    engine: LibraryEngine, operation: Operation, attributes: LibraryHandle, hint: LibraryHandle | None
) -> LibraryHandle:
    """Create the primitive descriptor of an operation.

    Args:
        engine: the engine that creates it.
        operation: the operation, in the stride variant that the library gets.
        attributes: the attributes of the operation as a `dnnl_primitive_attr_t`.
        hint: the primitive descriptor of the forward operation; None for a forward operation.

    Raises:
        InvalidArguments: an argument or parameter is missing or wrong, or the library refuses them.
        Unimplemented: the library has no implementation, or cannot represent a descriptor.
        OutOfMemory: the library has no memory for it.
    """
    kind, native_engine = operation.kind, engine.engine.value
    if kind in _SAME_DIMS:
        _require_same_dims(operation)
    if kind == "reorder":
        src, dst = (engine.descriptors.convert(_require_desc(operation, name)).pointer for name in ("src", "dst"))
        name, arguments = "reorder_primitive_desc_create", [src, native_engine, dst, native_engine]
    elif kind in ("concat", "sum"):
        name, arguments = f"{kind}_primitive_desc_create", [native_engine, *_multi_source_arguments(engine, operation)]
    else:
        function = _CREATE_FUNCTIONS[creator_row(operation)]
        name, position = function.name, function.window_position
        arguments = [native_engine, *[get(engine, operation, hint) for get in function.getters]]
        arguments[position:position] = _window(operation, function.window) if function.window else ()
    out = c_void_p()
    status = engine.library.functions[name](byref(out), *arguments, attributes.value)
    if status or not out.value:
        raise engine.library.error(status, describe_operation(operation))
    return LibraryHandle(engine.library.functions["primitive_desc_destroy"], out.value)


def implementation_name(library: Library, descriptor: LibraryHandle) -> str:
    """Return the implementation name of a primitive descriptor, such as `brgconv:avx512_core`.

    Raises:
        InlayError: the library fails.
    """
    text = c_char_p()
    status = library.functions["primitive_desc_query"](descriptor.value, abi.QUERY_IMPL, 0, byref(text))
    library.require(status, lambda: "the name of an implementation")
    return (text.value or b"").decode()


def advance_implementation(library: Library, descriptor: LibraryHandle) -> bool:
    """Change `descriptor` to the next implementation of its operation; return whether there was one.

    Raises:
        InlayError: the library fails.
    """
    status: int = library.functions["primitive_desc_next_impl"](descriptor.value)
    if status != abi.LAST_IMPL_REACHED:
        library.require(status, lambda: "the next implementation of a primitive")
    return status != abi.LAST_IMPL_REACHED


def _require_same_dims(operation: Operation) -> None:
    """Raise an error if src and dst have different dims: the library would divide by a dim of 0."""
    src, dst = (operation.descs.get(name) for name in ("src", "dst"))
    if src is not None and dst is not None and src.dims != dst.dims:
        raise InvalidArguments(f"dst of {operation.kind} has dims {dst.dims}, src {src.dims}: give both the same")


def describe_operation(operation: Operation) -> str:
    """Return an operation as one line of text, for messages.

    >>> descs = {"src": MemoryDesc((2, 3), "f32"), "dst": MemoryDesc((2, 3), "f32", "any")}
    >>> describe_operation(Operation("softmax", "forward_inference", descs, {"algorithm": "log", "axis": 1}))
    "softmax forward_inference, src f32::blocked:ab::f0 2x3, dst f32::any:any::f0 2x3, algorithm='log', axis=1"
    """
    shapes = [f"{name} {desc} {'x'.join(map(str, desc.dims))}" for name, desc in operation.descs.items()]
    parameters = [f"{name}={_show_parameter(value)}" for name, value in operation.parameters.items()]
    return ", ".join([f"{operation.kind} {operation.prop_kind}", *shapes, *parameters])


def _show_parameter(value: object) -> str:
    """Return a parameter as text; flags are joined by `|`."""
    return " | ".join(sorted(value)) or "none" if isinstance(value, frozenset) else repr(value)


def _multi_source_arguments(engine: LibraryEngine, operation: Operation) -> list[Any]:
    """Return the arguments of the create functions of concat and sum, which have any number of sources."""
    count = max(1, sum(name.startswith("src_") for name in operation.descs))
    sources = [_require_desc(operation, f"src_{i}") for i in range(count)]
    pointers = (c_void_p * count)(*(engine.descriptors.convert(desc).pointer for desc in sources))
    dst = engine.descriptors.convert(_require_desc(operation, "dst")).pointer
    if operation.kind == "concat":
        return [dst, count, _integer(operation, "axis"), pointers]
    return [dst, count, _floats(operation, "scales", count), pointers]


def _require_desc(operation: Operation, name: str) -> MemoryDesc:
    """Return the descriptor of a required argument.

    Raises:
        InvalidArguments: it is missing, or the zero descriptor.
    """
    desc = operation.descs.get(name)
    if desc is None:
        raise InvalidArguments(f"{operation.kind} {operation.prop_kind} lacks {name}: describe it, by a format or any")
    if desc.is_zero:
        raise InvalidArguments(f"{name} of {operation.kind} is the zero descriptor: describe it, or leave it out")
    return desc


def _getter(row: tuple[str, str, str], word: str) -> ArgumentGetter:
    """Return the getter of the argument that `word` names."""
    if word not in abi.NOT_DESCRIPTORS:
        return _desc_getter(row, word)
    if word in _GETTERS:
        return _GETTERS[word]
    if word in _COUNTS:
        return lambda engine, operation, hint: _integer(operation, word)
    if word == "algorithm":
        table = abi.ALGORITHMS[row[0]]
        return lambda engine, operation, hint: algorithm_code(table, row[0], _parameter(operation, word))
    return lambda engine, operation, hint: _number(operation, word)


def _desc_getter(row: tuple[str, str, str], word: str) -> ArgumentGetter:
    """Return the getter of a descriptor; the argument is NULL if it is optional and missing."""
    if word == "data":
        return lambda engine, operation, hint: _pointer(engine, operation, _gradient_source(operation))
    if word == "statistics":
        return lambda engine, operation, hint: _pointer_or_none(engine, operation, "mean")
    signature = SIGNATURES[row[0], row[1] or "forward"]  # type: ignore[index]
    if word in signature.optional:
        return lambda engine, operation, hint: _pointer_or_none(engine, operation, word)
    return lambda engine, operation, hint: _pointer(engine, operation, word)


def _pointer(engine: LibraryEngine, operation: Operation, name: str) -> int:
    """Return the native descriptor of a required argument."""
    desc = operation.descs.get(name)
    if desc is None or not desc.dims:
        desc = _require_desc(operation, name)
    return engine.descriptors.convert(desc).pointer


def _pointer_or_none(engine: LibraryEngine, operation: Operation, name: str) -> int | None:
    """Return the native descriptor of an optional argument; None, which ctypes passes as NULL, if it is missing."""
    return _pointer(engine, operation, name) if name in operation.descs else None


def _gradient_source(operation: Operation) -> str:
    """Return the argument from which an elementwise function computes its gradient: src or dst."""
    algorithm = operation.parameters.get("algorithm")
    return "dst" if isinstance(algorithm, str) and algorithm.endswith("use_dst_for_bwd") else "src"


_GETTERS: Mapping[str, ArgumentGetter] = {
    "hint": lambda engine, operation, hint: None if hint is None else hint.value,
    "prop": lambda engine, operation, hint: abi.PROP_KINDS[operation.prop_kind],
    "activation": lambda engine, operation, hint: algorithm_code(
        abi.ELTWISE, "eltwise", _parameter(operation, "activation")
    ),
    "direction": lambda engine, operation, hint: algorithm_code(
        abi.DIRECTIONS, "direction", _parameter(operation, "direction")
    ),
    "flags": lambda engine, operation, hint: _flags(operation),
    "factors": lambda engine, operation, hint: _floats(operation, "factors", _spatial(operation)),
    "scale_type": lambda engine, operation, hint: _scale_type(operation, ("scale", "shift")),
    "diff_scale_type": lambda engine, operation, hint: _scale_type(operation, ("diff_scale", "diff_shift")),
}


def _parameter(operation: Operation, word: str) -> object:
    """Return the value of a parameter.

    Raises:
        InvalidArguments: the operation does not have it.
    """
    if word not in operation.parameters:
        names = ", ".join(operation.signature.parameters)
        raise InvalidArguments(f"{operation.kind} lacks the parameter {word}: its parameters are {names}")
    return operation.parameters[word]


def _refuse(word: str, kind: str, value: object, rule: str) -> NoReturn:
    """Raise the error for an invalid value of the parameter `word`; `rule` says which values are valid."""
    raise InvalidArguments(f"{word} of {kind} is {value!r}: {rule}")


def _spatial(operation: Operation) -> int:
    """Return the number of spatial axes."""
    image = operation.descs.get("src") or operation.descs.get("diff_src")
    return 0 if image is None else len(image.dims) - 2


def _window(operation: Operation, words: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the arrays of the parameters that have an entry for each spatial axis."""
    values = tuple([_parameter(operation, word) for word in words])
    for word, value in zip(words, values, strict=True):
        if not isinstance(value, tuple):
            _refuse(word, operation.kind, value, "give a tuple of numbers, one for each spatial axis")
    return _dims_arrays(values, words, operation.kind, _spatial(operation))


@lru_cache(maxsize=1024)
def _dims_arrays(values: tuple[Any, ...], words: tuple[str, ...], kind: str, ndims: int) -> tuple[Any, ...]:
    """Return a cached array for each parameter, as `_dims_array`."""
    return tuple(_dims_array(entries, word, kind, ndims) for word, entries in zip(words, values, strict=True))


def _dims_array(values: tuple[Any, ...], word: str, kind: str, ndims: int) -> Any:
    """Return the array of a parameter with an entry for each spatial axis.

    Raises:
        InvalidArguments: an entry is out of range; the library would divide by a stride or kernel size of 0.
    """
    least = 1 if word in _POSITIVE else 0 if word == "dilations" else -_LARGEST
    if len(values) != ndims:
        _refuse(word, kind, values, f"give {ndims} numbers, one for each spatial axis")
    for value in values:
        if type(value) is not int or not least <= value <= _LARGEST:
            _refuse(word, kind, values, f"give whole numbers from {least} to {_LARGEST}")
    return abi.DIMS(*values)


def _integer(operation: Operation, word: str) -> int:
    """Return a parameter of `_COUNTS`, whose range is checked."""
    value = _parameter(operation, word)
    least, most = 1, _LARGEST
    if word == "axis":
        least, most = 0, next(iter(operation.descs.values())).ndims - 1
    if type(value) is not int or not least <= value <= most:
        _refuse(word, operation.kind, value, f"give a whole number from {least} to {most}")
    return value


def _number(operation: Operation, word: str) -> float:
    """Return a parameter that is a number."""
    value = _parameter(operation, word)
    if type(value) is float or type(value) is int:
        return value
    _refuse(word, operation.kind, value, "give a number")


def _floats(operation: Operation, word: str, count: int) -> Any:
    """Return a parameter of `count` numbers as an array of C floats."""
    values = _parameter(operation, word)
    if not isinstance(values, tuple) or len(values) != count:
        _refuse(word, operation.kind, values, f"give {count} numbers")
    if not all(type(value) in (int, float) for value in values):
        _refuse(word, operation.kind, values, "give numbers")
    return (c_float * max(1, count))(*values)


def _flags(operation: Operation) -> int:
    """Return the bits of the flags of a normalization or a recurrent network."""
    table = abi.RECURRENT_FLAGS if operation.kind in RECURRENT else abi.FLAGS
    flags = operation.parameters.get("flags", frozenset())
    if not isinstance(flags, frozenset) or not flags <= table.keys():
        _refuse("flags", operation.kind, flags, f"give a frozenset of {', '.join(table)}")
    return sum(table[str(name)] for name in flags)


def _scale_type(operation: Operation, names: tuple[str, ...]) -> int:
    """Return the code of the data type of the first of these arguments, scale and shift that the operation has."""
    descs = [operation.descs[name] for name in (*names, "scale", "shift") if name in operation.descs]
    return descs[0].data_type.code if descs and descs[0].data_type is not None else abi.F32


class _CreateFunction(NamedTuple):
    """A create function of the library, and the sources of its arguments."""

    name: str
    """Name of the function without `dnnl_`."""
    getters: tuple[ArgumentGetter, ...]
    """Getters of the arguments, except the engine and the parameters of the window."""
    window: tuple[str, ...]
    """Names of the parameters with an entry for each spatial axis, which are adjacent; empty if there are none."""
    window_position: int
    """Position of the window parameters among the arguments."""


def _create_function(row: tuple[str, str, str]) -> _CreateFunction:
    """Return the create function of a row of `CREATORS`."""
    words = abi.CREATORS[row]
    window = tuple(word for word in words if word in abi.DIMS_WORDS)
    getters = tuple(_getter(row, word) for word in words if word not in abi.DIMS_WORDS)
    # The engine is the first argument of every create function and has no word.
    position = 1 + words.index(window[0]) if window else 0
    return _CreateFunction(abi.creator_name(*row).removeprefix("dnnl_"), getters, window, position)


_CREATE_FUNCTIONS = {row: _create_function(row) for row in abi.CREATORS}
