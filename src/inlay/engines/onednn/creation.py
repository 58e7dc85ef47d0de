"""From an operation to a primitive descriptor: the spelling of its descriptors, and the call of the library's creator.

oneDNN computes some equal descriptors differently, those that differ in the strides of axes of one element:

    (1, 1, 28, 28) as nchw    strides (784, 784, 28, 1)
    (1, 1, 28, 28) as nhwc    strides (784, 1, 28, 1)       the same offsets: the descriptors are equal

An axis is a unit axis if it has one element and no padding. The library compares the strides of unit axes with those of
a tag when it chooses a kernel, so a convolution takes 6 microseconds or 3.5 milliseconds for the same tensors. It does
not compare them when it looks up a primitive in its cache, so an earlier call would decide for a later one. Therefore
the library gets one of two spellings, each of which depends on the equality class alone:

    row major        unit axes are placed as in abcd: the first choice
    channels last    unit axes are placed as in acdb: for images, where it makes a faster kernel available

`kernel_rank` says which kernel is preferred: one for an instruction set, then any other, then a reference kernel.

A creator is called by its row of words; what it would crash on is refused before:

    eltwise forward: prop algorithm src dst alpha beta      the row of `onednn_abi.CREATORS`
    c_int(96) c_int(32) md md c_float(0) c_float(0)         what it is called with

The library divides by strides and groups that it was told, and follows a hint that is NULL; so both are looked at here.
Everything else it checks itself, and its status becomes our error.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_float, c_void_p
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, Final, NoReturn, TypeAlias

from inlay import onednn_abi as abi
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn.arguments import algorithm_code
from inlay.engines.onednn.defects import row_of
from inlay.engines.onednn.descs import LibraryEngine
from inlay.engines.onednn.library import Handle, Library
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Layout
from inlay.primitives.attributes import PLAIN, BinaryPostOp, PrimitiveAttributes
from inlay.primitives.engine import KernelKind, Operation
from inlay.primitives.rules import RECURRENT, SIGNATURES

_LARGEST_STRIDE: Final = 2**63 - 1
_IMAGES: Final = (3, 4, 5)
"""Axes of a tensor with channels and one to three spatial axes."""
_MATRICES: Final = frozenset((*RECURRENT, "matmul", "layer_normalization", "reorder"))
"""Kinds that have no channels-last kernels."""
_REFERENCE: Final = re.compile(r"(^|[:_])ref([:_]|$)")
_OF_ISA: Final = re.compile(r":(sse|avx|uni|asimd|sve|acl|vsx|rv)")


def kernel_kind(name: str) -> KernelKind:
    """Return what sort of code an implementation of this name is.

    >>> [kernel_kind(name) for name in ("ref:any", "ref_int8:any", "jit:avx2", "x64:gemm:jit", "brgconv:avx512_core")]
    ['reference', 'reference', 'jit', 'gemm', 'other']
    """
    if _REFERENCE.search(name) is not None:
        return "reference"
    return "gemm" if "gemm" in name else "jit" if name.startswith("jit") else "other"


def kernel_rank(name: str) -> int:
    """Return the preference of an implementation by its name: 0 for the best.

    >>> [kernel_rank(name) for name in ("brgconv:avx512_core", "jit:uni", "x64:gemm:jit", "simple:any", "ref:any")]
    [0, 0, 1, 1, 2]
    """
    if kernel_kind(name) == "reference":
        return 2
    return 0 if _OF_ISA.search(name) else 1


def spellings(operation: Operation) -> tuple[Operation, ...]:
    """Return the operation in each spelling that the library may be given, the first choice first: one or two.

    Post-condition: their descriptors, those of post-operations included, are equal to those of `operation`, and depend
    on nothing else.
    """
    descs, attributes = operation.descs, operation.attributes
    spelled = {name: found for name, desc in descs.items() if 1 in desc.dims and (found := canonical(desc))}
    if not spelled and attributes is PLAIN:
        return (operation,)
    if attributes is not PLAIN:
        attributes = _respell_attributes(attributes)
    rows = {**descs, **{name: both[0] for name, both in spelled.items()}}
    first = replace(operation, descs=rows, attributes=attributes)
    if operation.kind in _MATRICES or all(row is last for row, last in spelled.values()):
        return (first,)
    return first, replace(first, descs={**descs, **{name: both[1] for name, both in spelled.items()}})


def _respell_attributes(attributes: PrimitiveAttributes) -> PrimitiveAttributes:
    """Attributes whose operands are spelled row-major."""
    if not any(isinstance(post_op, BinaryPostOp) for post_op in attributes.post_ops):
        return attributes
    respelled = tuple(
        replace(post_op, src_1=(canonical(post_op.src_1) or (post_op.src_1,))[0])
        if isinstance(post_op, BinaryPostOp)
        else post_op
        for post_op in attributes.post_ops
    )
    return replace(attributes, post_ops=respelled)


@lru_cache(maxsize=4096)
def canonical(desc: MemoryDesc) -> tuple[MemoryDesc, MemoryDesc] | None:
    """Return the equal descriptors spelled row-major and channels-last, one object if both are the same.

    None for a descriptor with one spelling, and where the library is not asked: without elements or with RUNTIME dims.
    Equal descriptors share an entry of this cache: the result is the same for all of them.

    >>> image = MemoryDesc((1, 1, 28, 28), "f32", "nhwc")
    >>> [desc.strides for desc in canonical(image)]
    [(784, 784, 28, 1), (784, 1, 28, 1)]
    """
    if desc.kind != "blocked" or 0 in desc.dims or desc.has_runtime or 1 not in desc.padded_dims:
        return None
    row_major = _respelled(desc, range(desc.ndims))
    channels_last = row_major
    if desc.ndims in _IMAGES:
        channels_last = _respelled(desc, (0, *range(2, desc.ndims), 1))
    return row_major, row_major if channels_last.strides == row_major.strides else channels_last


def _respelled(desc: MemoryDesc, preferred: Sequence[int]) -> MemoryDesc:
    layout, data_type = desc.require_layout("a spelling")
    axes = tuple(
        Axis(stride, axis.inner) for stride, axis in zip(_strides(layout, preferred), layout.axes, strict=True)
    )
    return MemoryDesc.from_layout(
        Layout(layout.dims, axes), data_type, dims=desc.dims, offset0=desc.offset0, extras=desc.extras
    )


def _strides(layout: Layout, preferred: Sequence[int]) -> list[int]:
    """The strides of all axes, where unit axes lie between the others as in the order `preferred`, outermost first."""
    strides = [axis.stride for axis in layout.axes]
    rank = {axis: i for i, axis in enumerate(preferred)}
    order = sorted(
        (axis for axis in preferred if layout.dims[axis] != 1), key=lambda axis: (-strides[axis], rank[axis])
    )
    for unit in reversed([axis for axis in preferred if layout.dims[axis] == 1]):
        inside = [i for i, axis in enumerate(order) if rank[axis] > rank[unit]]
        order.insert(inside[0] if inside else len(order), unit)
    below = prod(digit.extent for axis in layout.axes for digit in axis.inner)
    for axis in reversed(order):
        if layout.dims[axis] == 1:
            strides[axis] = min(below, _LARGEST_STRIDE)
        below = strides[axis] * (layout.dims[axis] // layout.axes[axis].block)
    return strides


_MAPS = frozenset(
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
_COUNTS = ("axis", "group_size", "local_size", "groups")


ArgumentGetter: TypeAlias = Callable[[LibraryEngine, Operation, Handle | None], Any]
"""A function that returns one argument of a creator."""


def primitive_desc(problem: LibraryEngine, operation: Operation, attributes: Handle, hint: Handle | None) -> Handle:
    """The library's primitive descriptor of an operation; `hint` is that of the forward operation.

    Raises:
        InvalidArguments: an argument or parameter is missing or wrong, or the library refuses them.
        Unimplemented: the library has no implementation, or cannot say a descriptor.
        OutOfMemory: the library says so.
    """
    kind, engine = operation.kind, problem.engine.value
    if kind in _MAPS:
        _require_same_dims(operation)
    if kind == "reorder":
        src, dst = (problem.descriptors.given(_described(operation, name)).pointer for name in ("src", "dst"))
        name, arguments = "reorder_primitive_desc_create", [src, engine, dst, engine]
    elif kind in ("concat", "sum"):
        name, arguments = f"{kind}_primitive_desc_create", [engine, *_joined(problem, operation)]
    else:
        name, getters, window, at = _ROWS[row_of(operation)]
        arguments = [engine, *[get(problem, operation, hint) for get in getters]]
        arguments[at:at] = _window(operation, window) if window else ()
    out = c_void_p()
    status = problem.library.functions[name](byref(out), *arguments, attributes.value)
    if status or not out.value:
        raise problem.library.error(status, said(operation))
    return Handle(problem.library.functions["primitive_desc_destroy"], out.value)


def implementation_name(library: Library, descriptor: Handle) -> str:
    """The library's name for how a primitive descriptor computes, such as `brgconv:avx512_core`.

    Raises:
        InlayError: the library fails.
    """
    text = c_char_p()
    status = library.functions["primitive_desc_query"](descriptor.value, abi.QUERY_IMPL, 0, byref(text))
    library.require(status, lambda: "the name of an implementation")
    return (text.value or b"").decode()


def next_implementation(library: Library, descriptor: Handle) -> bool:
    """Make `descriptor` that of the library's next implementation of the same operation, if there is one.

    Raises:
        InlayError: the library fails.
    """
    status: int = library.functions["primitive_desc_next_impl"](descriptor.value)
    if status != abi.LAST_IMPL_REACHED:
        library.require(status, lambda: "the next implementation of a primitive")
    return status != abi.LAST_IMPL_REACHED


def _require_same_dims(operation: Operation) -> None:
    """Refuse a destination of other dims than the source: the library divides by them if one is 0."""
    src, dst = (operation.descs.get(name) for name in ("src", "dst"))
    if src is not None and dst is not None and src.dims != dst.dims:
        raise InvalidArguments(f"dst of {operation.kind} has dims {dst.dims}, src {src.dims}: give both the same")


def said(operation: Operation) -> str:
    """An operation in one line, for messages.

    >>> descs = {"src": MemoryDesc((2, 3), "f32"), "dst": MemoryDesc((2, 3), "f32", "any")}
    >>> said(Operation("softmax", "forward_inference", descs, {"algorithm": "log", "axis": 1}))
    "softmax forward_inference, src f32::blocked:ab::f0 2x3, dst f32::any:any::f0 2x3, algorithm='log', axis=1"
    """
    shapes = [f"{name} {desc} {'x'.join(map(str, desc.dims))}" for name, desc in operation.descs.items()]
    told = [f"{name}={_shown(value)}" for name, value in operation.parameters.items()]
    return ", ".join([f"{operation.kind} {operation.prop_kind}", *shapes, *told])


def _shown(value: object) -> str:
    return " | ".join(sorted(value)) or "none" if isinstance(value, frozenset) else repr(value)


def _joined(problem: LibraryEngine, operation: Operation) -> list[Any]:
    """The arguments of concat and sum, which take any number of sources."""
    count = max(1, sum(name.startswith("src_") for name in operation.descs))
    described = [_described(operation, f"src_{i}") for i in range(count)]
    sources = (c_void_p * count)(*(problem.descriptors.given(desc).pointer for desc in described))
    dst = problem.descriptors.given(_described(operation, "dst")).pointer
    if operation.kind == "concat":
        return [dst, count, _count(operation, "axis"), sources]
    return [dst, count, _floats(operation, "scales", count), sources]


def _described(operation: Operation, name: str) -> MemoryDesc:
    """The descriptor of an argument that must be there."""
    desc = operation.descs.get(name)
    if desc is None:
        raise InvalidArguments(f"{operation.kind} {operation.prop_kind} lacks {name}: describe it, by a format or any")
    if desc.is_zero:
        raise InvalidArguments(f"{name} of {operation.kind} is the zero descriptor: describe it, or leave it out")
    return desc


def _getter(row: tuple[str, str, str], word: str) -> ArgumentGetter:
    """The getter of the argument that a word of a row names."""
    if word not in abi.NOT_DESCRIPTORS:
        return _desc_getter(row, word)
    if word in _GETTERS:
        return _GETTERS[word]
    if word in _COUNTS:
        return lambda problem, operation, hint: _count(operation, word)
    if word == "algorithm":
        table = abi.ALGORITHMS[row[0]]
        return lambda problem, operation, hint: algorithm_code(table, row[0], _parameter(operation, word))
    return lambda problem, operation, hint: _number(operation, word)


def _desc_getter(row: tuple[str, str, str], word: str) -> ArgumentGetter:
    if word == "data":
        return lambda problem, operation, hint: _pointer(problem, operation, _gradient_source(operation))
    if word == "statistics":
        return lambda problem, operation, hint: _pointer_or_none(problem, operation, "mean")
    signature = SIGNATURES[row[0], row[1] or "forward"]  # type: ignore[index]
    if word in signature.optional:
        return lambda problem, operation, hint: _pointer_or_none(problem, operation, word)
    return lambda problem, operation, hint: _pointer(problem, operation, word)


def _pointer(problem: LibraryEngine, operation: Operation, name: str) -> int:
    desc = operation.descs.get(name)
    if desc is None or not desc.dims:
        desc = _described(operation, name)
    return problem.descriptors.given(desc).pointer


def _pointer_or_none(problem: LibraryEngine, operation: Operation, name: str) -> int | None:
    return _pointer(problem, operation, name) if name in operation.descs else None


def _gradient_source(operation: Operation) -> str:
    """What an elementwise function goes back by."""
    algorithm = operation.parameters.get("algorithm")
    return "dst" if isinstance(algorithm, str) and algorithm.endswith("use_dst_for_bwd") else "src"


_GETTERS: Mapping[str, ArgumentGetter] = {
    "hint": lambda problem, operation, hint: None if hint is None else hint.value,
    "prop": lambda problem, operation, hint: abi.PROP_KINDS[operation.prop_kind],
    "activation": lambda problem, operation, hint: algorithm_code(
        abi.ELTWISE, "eltwise", _parameter(operation, "activation")
    ),
    "direction": lambda problem, operation, hint: algorithm_code(
        abi.DIRECTIONS, "direction", _parameter(operation, "direction")
    ),
    "flags": lambda problem, operation, hint: _flags(operation),
    "factors": lambda problem, operation, hint: _floats(operation, "factors", _spatial(operation)),
    "scale_type": lambda problem, operation, hint: _scale_type(operation, ("scale", "shift")),
    "diff_scale_type": lambda problem, operation, hint: _scale_type(operation, ("diff_scale", "diff_shift")),
}


def _parameter(operation: Operation, word: str) -> object:
    if word not in operation.parameters:
        told = ", ".join(operation.signature.parameters)
        raise InvalidArguments(f"{operation.kind} lacks the parameter {word}: it is told {told}")
    return operation.parameters[word]


def _refuse(word: str, kind: str, value: object, rule: str) -> NoReturn:
    raise InvalidArguments(f"{word} of {kind} is {value!r}: {rule}")


def _spatial(operation: Operation) -> int:
    """The number of spatial axes."""
    image = operation.descs.get("src") or operation.descs.get("diff_src")
    return 0 if image is None else len(image.dims) - 2


def _window(operation: Operation, words: tuple[str, ...]) -> tuple[Any, ...]:
    """The arrays of the parameters that have an entry for each spatial axis."""
    told = tuple([_parameter(operation, word) for word in words])
    for word, value in zip(words, told, strict=True):
        if not isinstance(value, tuple):
            _refuse(word, operation.kind, value, "give a tuple of numbers, one for each spatial axis")
    return _arrays(told, words, operation.kind, _spatial(operation))


@lru_cache(maxsize=1024)
def _arrays(told: tuple[Any, ...], words: tuple[str, ...], kind: str, ndims: int) -> tuple[Any, ...]:
    return tuple(_dims_array(values, word, kind, ndims) for word, values in zip(words, told, strict=True))


def _dims_array(values: tuple[Any, ...], word: str, kind: str, ndims: int) -> Any:
    """The array of a parameter with an entry for each spatial axis; the library divides by some of them."""
    least = 1 if word in _POSITIVE else 0 if word == "dilations" else -_LARGEST
    if len(values) != ndims:
        _refuse(word, kind, values, f"give {ndims} numbers, one for each spatial axis")
    for value in values:
        if type(value) is not int or not least <= value <= _LARGEST:
            _refuse(word, kind, values, f"give whole numbers from {least} to {_LARGEST}")
    return abi.DIMS(*values)


def _count(operation: Operation, word: str) -> int:
    value = _parameter(operation, word)
    least, most = 1, _LARGEST
    if word == "axis":
        least, most = 0, next(iter(operation.descs.values())).ndims - 1
    if type(value) is not int or not least <= value <= most:
        _refuse(word, operation.kind, value, f"give a whole number from {least} to {most}")
    return value


def _number(operation: Operation, word: str) -> float:
    value = _parameter(operation, word)
    if type(value) is float or type(value) is int:
        return value
    _refuse(word, operation.kind, value, "give a number")


def _floats(operation: Operation, word: str, count: int) -> Any:
    values = _parameter(operation, word)
    if not isinstance(values, tuple) or len(values) != count:
        _refuse(word, operation.kind, values, f"give {count} numbers")
    if not all(type(value) in (int, float) for value in values):
        _refuse(word, operation.kind, values, "give numbers")
    return (c_float * max(1, count))(*values)


def _flags(operation: Operation) -> int:
    table = abi.RECURRENT_FLAGS if operation.kind in RECURRENT else abi.FLAGS
    flags = operation.parameters.get("flags", frozenset())
    if not isinstance(flags, frozenset) or not flags <= table.keys():
        _refuse("flags", operation.kind, flags, f"give a frozenset of {', '.join(table)}")
    return sum(table[str(name)] for name in flags)


def _scale_type(operation: Operation, names: tuple[str, ...]) -> int:
    found = [operation.descs[name] for name in (*names, "scale", "shift") if name in operation.descs]
    return found[0].data_type.code if found and found[0].data_type is not None else abi.F32


def _plan(row: tuple[str, str, str]) -> tuple[str, tuple[ArgumentGetter, ...], tuple[str, ...], int]:
    words = abi.CREATORS[row]
    window = tuple(word for word in words if word in abi.DIMS_WORDS)
    getters = tuple(_getter(row, word) for word in words if word not in abi.DIMS_WORDS)
    # Those of a window stand together, after the engine and what comes before them.
    at = 1 + words.index(window[0]) if window else 0
    return abi.creator_name(*row).removeprefix("dnnl_"), getters, window, at


_ROWS = {row: _plan(row) for row in abi.CREATORS}
"""By row of `CREATORS`: the function, the getters of its arguments, the words of its window and where these stand."""
