"""From an operation to a primitive descriptor: what the library's creators would crash on is refused before they run.

    eltwise forward: prop algorithm src dst alpha beta      the row of `onednn_abi.CREATORS`
    c_int(96) c_int(32) md md c_float(0) c_float(0)         what it is called with

The library divides by strides and groups that it was told, and follows a hint that is NULL; so both are looked at here.
Everything else it checks itself, and its status becomes our error.
"""

from collections.abc import Callable, Mapping
from ctypes import byref, c_char_p, c_float, c_void_p
from functools import lru_cache
from typing import Any, NoReturn, Protocol, TypeAlias

from inlay import onednn_abi as abi
from inlay.descriptor import MemoryDesc
from inlay.engine.onednn.attributes import algorithm_code
from inlay.engine.onednn.capabilities import row_of
from inlay.engine.onednn.descs import Descriptors
from inlay.engine.onednn.handles import Handle
from inlay.engine.onednn.library import Library
from inlay.errors import InvalidArguments
from inlay.primitives.operation import Operation
from inlay.primitives.signatures import RECURRENT, SIGNATURES

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
_DIRECTION = "direction"
_POSITIVE = {"strides", "kernel"}
_COUNTS = ("axis", "group_size", "local_size", "groups")


class Problem(Protocol):
    """What a primitive descriptor is made with."""

    library: Library
    """Of which it is asked."""
    descriptors: Descriptors
    """Of that library."""
    engine: Handle
    """The library's."""


Given: TypeAlias = Callable[[Problem, Operation, Handle | None], Any]
"""What gives a creator one of its arguments."""


def primitive_desc(problem: Problem, operation: Operation, attributes: Handle, hint: Handle | None) -> Handle:
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
        name, gives, window, at = _ROWS[row_of(operation)]
        arguments = [engine, *[give(problem, operation, hint) for give in gives]]
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


def _joined(problem: Problem, operation: Operation) -> list[Any]:
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


def _gives(row: tuple[str, str, str], word: str) -> Given:
    """What gives the argument that a word of a row names."""
    if word not in abi.NOT_DESCRIPTORS:
        return _gives_desc(row, word)
    if word in _GIVES:
        return _GIVES[word]
    if word in _COUNTS:
        return lambda problem, operation, hint: _count(operation, word)
    if word == "algorithm":
        table = abi.ALGORITHMS[row[0]]
        return lambda problem, operation, hint: algorithm_code(table, row[0], _told(operation, word))
    return lambda problem, operation, hint: _number(operation, word)


def _gives_desc(row: tuple[str, str, str], word: str) -> Given:
    if word == "data":
        return lambda problem, operation, hint: _pointer(problem, operation, _kept_of(operation))
    if word == "statistics":
        return lambda problem, operation, hint: _pointer_or_none(problem, operation, "mean")
    signature = SIGNATURES[row[0], row[1] or "forward"]  # type: ignore[index]
    if word in signature.optional:
        return lambda problem, operation, hint: _pointer_or_none(problem, operation, word)
    return lambda problem, operation, hint: _pointer(problem, operation, word)


def _pointer(problem: Problem, operation: Operation, name: str) -> int:
    desc = operation.descs.get(name)
    if desc is None or not desc.dims:
        desc = _described(operation, name)
    return problem.descriptors.given(desc).pointer


def _pointer_or_none(problem: Problem, operation: Operation, name: str) -> int | None:
    return _pointer(problem, operation, name) if name in operation.descs else None


def _kept_of(operation: Operation) -> str:
    """What an elementwise function goes back by."""
    algorithm = operation.parameters.get("algorithm")
    return "dst" if isinstance(algorithm, str) and algorithm.endswith("use_dst_for_bwd") else "src"


_GIVES: Mapping[str, Given] = {
    "hint": lambda problem, operation, hint: None if hint is None else hint.value,
    "prop": lambda problem, operation, hint: abi.PROP_KINDS[operation.prop_kind],
    "activation": lambda problem, operation, hint: algorithm_code(
        abi.ELTWISE, "eltwise", _told(operation, "activation")
    ),
    "direction": lambda problem, operation, hint: algorithm_code(
        abi.DIRECTIONS, "direction", _told(operation, "direction")
    ),
    "flags": lambda problem, operation, hint: _flags(operation),
    "factors": lambda problem, operation, hint: _floats(operation, "factors", _spatial(operation)),
    "scale_type": lambda problem, operation, hint: _scale_type(operation, ("scale", "shift")),
    "diff_scale_type": lambda problem, operation, hint: _scale_type(operation, ("diff_scale", "diff_shift")),
}


def _told(operation: Operation, word: str) -> object:
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
    told = tuple([_told(operation, word) for word in words])
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
    value = _told(operation, word)
    least, most = 1, _LARGEST
    if word == "axis":
        least, most = 0, next(iter(operation.descs.values())).ndims - 1
    if type(value) is not int or not least <= value <= most:
        _refuse(word, operation.kind, value, f"give a whole number from {least} to {most}")
    return value


def _number(operation: Operation, word: str) -> float:
    value = _told(operation, word)
    if type(value) is float or type(value) is int:
        return value
    _refuse(word, operation.kind, value, "give a number")


def _floats(operation: Operation, word: str, count: int) -> Any:
    values = _told(operation, word)
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


def _plan(row: tuple[str, str, str]) -> tuple[str, tuple[Given, ...], tuple[str, ...], int]:
    words = abi.CREATORS[row]
    window = tuple(word for word in words if word in abi.DIMS_WORDS)
    gives = tuple(_gives(row, word) for word in words if word not in abi.DIMS_WORDS)
    # Those of a window stand together, after the engine and what comes before them.
    at = 1 + words.index(window[0]) if window else 0
    return abi.creator_name(*row).removeprefix("dnnl_"), gives, window, at


_ROWS = {row: _plan(row) for row in abi.CREATORS}
"""By row of `CREATORS`: the function, what gives its arguments, the words of a window among them and their place."""
