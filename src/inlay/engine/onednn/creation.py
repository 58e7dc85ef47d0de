"""From an operation to a primitive descriptor: what the library's creators would crash on is refused before they run.

    eltwise forward: prop algorithm src dst alpha beta      the row of `declarations.CREATORS`
    c_int(96) c_int(32) md md c_float(0) c_float(0)         what it is called with

The library divides by strides and groups that it was told, and follows a hint that is NULL; so both are looked at here.
Everything else it checks itself, and its status becomes our error.
"""

from collections.abc import Mapping
from ctypes import c_float, c_void_p
from typing import Any, NoReturn, Protocol

from inlay.descriptor import MemoryDesc
from inlay.engine.onednn.attributes import algorithm_code
from inlay.engine.onednn.capabilities import row_of
from inlay.engine.onednn.declarations import (
    ALGORITHMS,
    CREATORS,
    DIMS_WORDS,
    DIRECTIONS,
    ELTWISE,
    FLAGS,
    NOT_DESCRIPTORS,
    PROP_KINDS,
    RECURRENT_FLAGS,
)
from inlay.engine.onednn.descs import DIMS, Descriptors
from inlay.engine.onednn.handles import Handle, created
from inlay.engine.onednn.library import Library
from inlay.errors import InvalidArguments
from inlay.primitives.operation import Operation

_LARGEST = 2**31 - 1
_POSITIVE = {"strides", "kernel"}
_COUNTS = ("axis", "group_size", "local_size", "groups")
_RECURRENT = ("vanilla_rnn", "lstm", "gru", "lbr_gru", "augru", "lbr_augru")


class Problem(Protocol):
    """What a primitive descriptor is made with."""

    library: Library
    """Of which it is asked."""
    descriptors: Descriptors
    """Of that library."""
    engine: Handle
    """The library's."""


def primitive_desc(problem: Problem, operation: Operation, attributes: Handle, hint: Handle | None) -> Handle:
    """The library's primitive descriptor of an operation; `hint` is that of the forward operation.

    Raises:
        InvalidArguments: an argument or parameter is missing or wrong, or the library refuses them.
        Unimplemented: the library has no implementation.
        OutOfMemory: the library says so.
    """
    if operation.kind == "reorder":
        return _reorder(problem, operation, attributes)
    if operation.kind in ("concat", "sum"):
        return _joined(problem, operation, attributes)
    row = row_of(operation)
    arguments = [_argument(problem, operation, word, hint) for word in CREATORS[row]]
    name = "_".join(filter(None, (*row[:2], "primitive_desc_create", row[2])))
    return _created(problem, operation, name, problem.engine.value, *arguments, attributes.value)


def _created(problem: Problem, operation: Operation, name: str, *arguments: Any) -> Handle:
    return created(problem.library, name, "primitive_desc", *arguments, what=lambda: said(operation))


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


def _reorder(problem: Problem, operation: Operation, attributes: Handle) -> Handle:
    src, dst = (_desc(problem, operation, name) for name in ("src", "dst"))
    engine = problem.engine.value
    return _created(problem, operation, "reorder_primitive_desc_create", src, engine, dst, engine, attributes.value)


def _joined(problem: Problem, operation: Operation, attributes: Handle) -> Handle:
    """Concat and sum, which take any number of sources."""
    count = sum(name.startswith("src_") for name in operation.descs)
    sources = (c_void_p * max(1, count))(*(_desc(problem, operation, f"src_{i}") for i in range(max(1, count))))
    dst = _desc(problem, operation, "dst")
    if operation.kind == "concat":
        told: Any = _count(operation, "axis")
        order = (dst, count, told, sources)
    else:
        scales = _floats(operation, "scales", count)
        order = (dst, count, scales, sources)
    name = f"{operation.kind}_primitive_desc_create"
    return _created(problem, operation, name, problem.engine.value, *order, attributes.value)


def _argument(problem: Problem, operation: Operation, word: str, hint: Handle | None) -> Any:
    """What a creator is given for a word of its row."""
    if word not in NOT_DESCRIPTORS:
        return _desc(problem, operation, word)
    if word in DIMS_WORDS:
        return _dims(operation, word)
    if word in _COUNTS:
        return _count(operation, word)
    match word:
        case "hint":
            return None if hint is None else hint.value
        case "prop":
            return PROP_KINDS[operation.prop_kind]
        case "algorithm":
            return algorithm_code(ALGORITHMS[operation.kind], operation.kind, _told(operation, word))
        case "activation":
            return algorithm_code(ELTWISE, "eltwise", _told(operation, word))
        case "direction":
            return algorithm_code(DIRECTIONS, "direction", _told(operation, word))
        case "flags":
            return _flags(operation)
        case "factors":
            src = operation.descs.get("src") or operation.descs["diff_src"]
            return _floats(operation, word, src.ndims - 2)
        case "scale_type" | "diff_scale_type":
            return _scale_type(operation, "diff_" if word.startswith("diff") else "")
        case _:
            return _number(operation, word)


def _desc(problem: Problem, operation: Operation, word: str) -> int | None:
    """The library's descriptor of an argument; None for one that is left out and may be."""
    name = word
    if word == "data":
        algorithm = operation.parameters.get("algorithm")
        name = "dst" if isinstance(algorithm, str) and algorithm.endswith("use_dst_for_bwd") else "src"
    elif word == "statistics":
        name = "mean"
    desc = operation.descs.get(name)
    if desc is None:
        if word == "statistics" or word in operation.signature.optional:
            return None
        raise InvalidArguments(
            f"{operation.kind} {operation.prop_kind} has no {name}: describe it, with any or a format"
        )
    if desc.is_zero:
        raise InvalidArguments(f"{name} of {operation.kind} is the zero descriptor: describe it, or leave it out")
    return problem.descriptors.handle(within(desc)).value


def within(desc: MemoryDesc) -> MemoryDesc:
    """The descriptor without `offset0`, which is added to the address instead: the library has fast code for it then.

    What lies behind elements counts from the start of the buffer, and half a byte has no address: these keep it.
    """
    if not desc.offset0 or desc.extras or desc.data_type is None or desc.data_type.is_sub_byte:
        return desc
    layout, data_type = desc.require_layout("offset0")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims)


def _told(operation: Operation, word: str) -> object:
    if word not in operation.parameters:
        raise InvalidArguments(
            f"{operation.kind} has no {word}: it is told {', '.join(operation.signature.parameters)}"
        )
    return operation.parameters[word]


def _refuse(operation: Operation, word: str, rule: str) -> NoReturn:
    raise InvalidArguments(f"{word} of {operation.kind} is {operation.parameters[word]!r}: {rule}")


def _dims(operation: Operation, word: str) -> Any:
    values = _told(operation, word)
    ndims = next(iter(operation.descs.values())).ndims - 2 if operation.descs else 0
    image = operation.descs.get("src") or operation.descs.get("diff_src")
    ndims = image.ndims - 2 if image is not None else ndims
    if not isinstance(values, tuple) or len(values) != ndims:
        _refuse(operation, word, f"give {ndims} numbers, one for each spatial axis")
    least = 1 if word in _POSITIVE else 0 if word == "dilations" else -_LARGEST
    for value in values:
        if type(value) is not int or not least <= value <= _LARGEST:
            _refuse(operation, word, f"each is a whole number, {least} or more" if least >= 0 else "give whole numbers")
    return DIMS(*values)


def _count(operation: Operation, word: str) -> int:
    value = _told(operation, word)
    least = 0 if word == "axis" else 1
    if type(value) is not int or not least <= value <= _LARGEST:
        _refuse(operation, word, f"give a whole number, {least} or more")
    return value


def _number(operation: Operation, word: str) -> float:
    value = _told(operation, word)
    if type(value) not in (int, float):
        _refuse(operation, word, "give a number")
    return float(value)  # type: ignore[arg-type]


def _floats(operation: Operation, word: str, count: int) -> Any:
    values = _told(operation, word)
    if not isinstance(values, tuple) or len(values) != count:
        _refuse(operation, word, f"give {count} numbers")
    if not all(type(value) in (int, float) for value in values):
        _refuse(operation, word, "give numbers")
    return (c_float * max(1, count))(*values)


def _flags(operation: Operation) -> int:
    table = RECURRENT_FLAGS if operation.kind in _RECURRENT else FLAGS
    flags = operation.parameters.get("flags", frozenset())
    if not isinstance(flags, frozenset) or not flags <= table.keys():
        _refuse(operation, "flags", f"give a frozenset of {', '.join(table)}")
    return _bits(table, flags)


def _bits(table: Mapping[str, int], names: frozenset[Any]) -> int:
    return sum(table[name] for name in names)


def _scale_type(operation: Operation, prefix: str) -> int:
    for name in (f"{prefix}scale", f"{prefix}shift", "scale", "shift"):
        desc = operation.descs.get(name)
        if desc is not None and desc.data_type is not None:
            return desc.data_type.code
    return 3
