"""The rules that every kind shares: what a descriptor must be, how many axes, which dims fit, which formats may be any.

Rules stand here once, before any engine is asked, so a mistake has the same text whichever engine computes. Each error
says the primitive, the argument, what is wrong with it and what to give:

    Convolution: axis 1 of weights (32, 3, 3, 3) has 3 input channels, src (8, 4, 32, 32) has 4 in 1 group: ...

Source: oneAPI specification, "Primitives" and "Memory format propagation".
"""

from collections.abc import Callable, Iterable, Mapping, Set
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from inlay.arguments import index_of
from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout import RUNTIME, Dims, Layout
from inlay.memory import Memory

FORMATS = ("blocked", "digits", "any", "opaque")
"""The kinds of descriptors that primitives take."""

_OTHER_KINDS = {
    "undef": "is the zero descriptor: leave it out, or describe its tensor",
    "sparse": "is sparse, as only src and weights of MatMul and InnerProduct and both sides of Reorder may be: "
    "describe the result of inlay.to_dense",
    "host_scalar": "is a host scalar: primitives take tensors, describe it with dims and a format",
}


def desc_of(place: str, name: str, value: Any, *, sparse: bool = False) -> MemoryDesc:
    """`value`, which must be the descriptor of a dense tensor with known dims; `place` begins the message.

    With `sparse` it may be a sparse one, too.

    Raises:
        InvalidArguments: it is no descriptor, a host scalar, the zero descriptor, sparse where it may not be, or of a
            type that only moves.
        Unimplemented: a dim or stride is RUNTIME.
    """
    if not isinstance(value, MemoryDesc):
        if isinstance(value, Memory):
            raise InvalidArguments(f"{place}: {name} is memory: give its descriptor, its `desc`")
        raise InvalidArguments(
            f"{place}: {name} is {shown(value)}: give a MemoryDesc, such as MemoryDesc((2, 16, 8, 8), 'f32', 'any')"
        )
    if value.kind not in FORMATS and not (sparse and value.kind == "sparse"):
        raise InvalidArguments(f"{place}: {name} {_OTHER_KINDS[value.kind]}")
    if not type_of(value).is_number:
        raise InvalidArguments(
            f"{place}: {name} is {value.data_type}, which only moves: primitives compute with numbers; inlay.reorder "
            "moves it"
        )
    if value.has_runtime:
        raise Unimplemented(f"{place}: {name} is {value!r}: bind what is RUNTIME, {_BIND}")
    return value


_BIND = "as in desc.bind((2, 16, 8, 8))"


def type_of(desc: MemoryDesc) -> DataType:
    """The data type of a descriptor that `desc_of` has passed."""
    assert desc.data_type is not None
    return desc.data_type


def require_free(place: str, descs: Mapping[str, MemoryDesc], free: frozenset[str]) -> None:
    """Refuse `any` for arguments that the specification gives a format.

    Raises:
        InvalidArguments: a descriptor of another argument is `any`.
    """
    for name, desc in descs.items():
        if desc.kind == "any" and name not in free:
            may = ", ".join(sorted(free & descs.keys())) or "none"
            raise InvalidArguments(
                f"{place}: {name} has the format any, which here may have: {may}. Give {name} the format in which it "
                "arrives, as the dst_desc of the primitive before"
            )


def require_distinct(place: str, name: str, desc: MemoryDesc) -> None:
    """Refuse what is written with two elements in one place.

    Raises:
        InvalidArguments: elements overlap.
        Unimplemented: strides interleave, so that it cannot be told.
    """
    if _overlaps(desc):
        raise InvalidArguments(
            f"{place}: {name} {desc!r} is written, and elements of it overlap: give every element a place of its own"
        )


@lru_cache(maxsize=4096)
def _overlaps(desc: MemoryDesc) -> bool:
    """Whether two elements have one place; remembered, since the same destinations come again and again."""
    layout = desc.layout
    return isinstance(layout, Layout) and not layout.is_non_overlapping and layout.overlaps


def require_ndims(place: str, name: str, desc: MemoryDesc, least: int, most: int, axes: str) -> None:
    """Refuse a descriptor with too few or too many axes.

    Raises:
        InvalidArguments: so it is; `axes` says what they are.
    """
    if not least <= desc.ndims <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise InvalidArguments(f"{place}: {name} {desc.dims} has {axes_of(desc.ndims)}, it takes {count}: {axes}")


def axes_of(count: int) -> str:
    """A number of axes in words."""
    return f"{count} axis" if count == 1 else f"{count} axes"


def require_one_sparse(place: str, src: MemoryDesc, weights: MemoryDesc) -> None:
    """Refuse a product of two sparse tensors.

    Raises:
        Unimplemented: both are sparse.
    """
    if src.kind == weights.kind == "sparse":
        raise Unimplemented(
            f"{place}: src and weights are sparse, and products have one sparse factor: describe the result of "
            "inlay.to_dense for the other"
        )


def require_dims(place: str, name: str, desc: MemoryDesc, dims: Dims, why: str) -> None:
    """Refuse other dims than those that follow from the other arguments.

    Raises:
        InvalidArguments: so it is; `why` says from what they follow.
    """
    if desc.dims != dims:
        raise InvalidArguments(f"{place}: {name} has dims {desc.dims}, {why} give {dims}: describe it with these")


def settled(
    place: str,
    name: str,
    given: MemoryDesc | None,
    dims: Dims,
    data_type: DataType,
    why: str,
    format: str = "any",
    *,
    sparse: bool = False,
) -> MemoryDesc:
    """The descriptor `given`, whose dims must be `dims`, or a new one of that format.

    Raises:
        InvalidArguments, Unimplemented: as `desc_of` and `require_dims`.
    """
    if given is None:
        return MemoryDesc(dims, data_type, format)
    require_dims(place, name, desc_of(place, name, given, sparse=sparse), dims, why)
    return given


def integer(place: str, name: str, value: Any, least: int) -> int:
    """`value`, an integer of at least `least` and of 64 bits; a truth value is none.

    Raises:
        InvalidArguments: it is something else.
    """
    number = index_of(value)
    if number is None:
        raise InvalidArguments(f"{place}: {name} is {shown(value)}: give an integer")
    if number < least:
        raise InvalidArguments(f"{place}: {name} is {shown(number)}: it is at least {least}")
    if number > _LARGEST_INTEGER:
        raise InvalidArguments(f"{place}: {name} is {shown(number)}: it is at most {_LARGEST_INTEGER}")
    return number


def is_sequence(value: object) -> bool:
    """Return whether a value has entries in an order: text, sets and mappings do not count.

    >>> [is_sequence(value) for value in ((1, 2), {1, 2}, "12", 12)]
    [True, False, False, False]
    """
    has_order = isinstance(value, Iterable) and not isinstance(value, (Set, Mapping, str, bytes, bytearray))
    return has_order and getattr(value, "shape", None) != ()


_LARGEST_INTEGER = 2**63 - 1
_NO_NUMBERS = (str, bytes, bytearray, bool, np.bool_, np.ma.MaskedArray)
_GREATEST_F32 = float(np.finfo(np.float32).max)


def _is_no_scalar(value: object) -> bool:
    """Return whether a value is an array with axes, or a complex number, whose imaginary part NumPy would drop."""
    is_complex = isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "c"
    return is_complex or getattr(value, "shape", ()) != ()


def number(place: str, name: str, value: Any, least: float | None = None) -> float:
    """`value`, a finite number that f32 can hold, as a float; text and truth values are none.

    Raises:
        InvalidArguments: it is something else, or less than `least`.
    """
    try:
        found = None if isinstance(value, _NO_NUMBERS) or _is_no_scalar(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None:
        raise InvalidArguments(f"{place}: {name} is {shown(value)}: give a number")
    if not isfinite(found):
        raise InvalidArguments(f"{place}: {name} is {found}: give a finite number")
    if abs(found) > _GREATEST_F32:
        raise InvalidArguments(f"{place}: {name} is {found}: give a number that f32 can hold, up to {_GREATEST_F32:g}")
    if least is not None and found < least:
        raise InvalidArguments(f"{place}: {name} is {found:g}: it is at least {least:g}")
    return found


def choice(place: str, name: str, value: Any, choices: Iterable[str]) -> str:
    """`value`, one of the names in `choices`.

    Raises:
        InvalidArguments: it is something else; the nearest names are said.
    """
    known = tuple(choices)
    if isinstance(value, str) and value in known:
        return value
    raise InvalidArguments(f"{place}: {name} is {shown(value)}: give one of {', '.join(known)}")


def axis_of(place: str, name: str, value: Any, ndims: int) -> int:
    """`value`, one of the axes 0 to `ndims` - 1.

    Raises:
        InvalidArguments: it is something else.
    """
    axis = integer(place, name, value, -(2**63))
    if not 0 <= axis < ndims:
        raise InvalidArguments(f"{place}: {name} is {axis}: the tensor has axes 0 to {ndims - 1}")
    return axis


def flags_of(place: str, value: Any, known: tuple[str, ...]) -> frozenset[str]:
    """The names of flags that `value`, a collection of them or one name, holds.

    Raises:
        InvalidArguments: it is no collection, or a name is none of `known`.
    """
    if not isinstance(value, Set) and not isinstance(value, str) and not is_sequence(value):
        raise InvalidArguments(f"{place}: flags are {shown(value)}: give names of {', '.join(known)}")
    return frozenset(choice(place, "flag", name, known) for name in ((value,) if isinstance(value, str) else value))


def require_types(place: str, descs: Mapping[str, MemoryDesc], fits: Callable[[str], bool], rule: str) -> None:
    """Refuse data types that do not fit.

    Raises:
        InvalidArguments: `fits` says no to the type of a descriptor; `rule` says which types do.
    """
    for name, desc in descs.items():
        if not fits(type_of(desc).name):
            raise InvalidArguments(f"{place}: {name} is {type_of(desc)}: {rule}")


def broadcast(place: str, names: tuple[str, str], first: Dims, second: Dims) -> Dims:
    """The dims of an operation between two tensors, each of which is repeated along axes where it has 1.

    Raises:
        InvalidArguments: they have not equally many axes, or an axis has two extents neither of which is 1.
    """
    if len(first) != len(second):
        raise InvalidArguments(
            f"{place}: {names[0]} {first} has {axes_of(len(first))}, {names[1]} {second} has {len(second)}: give both "
            "as many, with dims of 1 where one is repeated"
        )
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        if a != b and 1 not in (a, b):
            raise InvalidArguments(
                f"{place}: axis {i} of {names[0]} {first} has {a} coordinates, that of {names[1]} {second} has {b}: "
                "make them equal, or one of them 1"
            )
    return tuple(b if a == 1 else a for a, b in zip(first, second, strict=True))


def is_known(dims: Dims) -> bool:
    """Whether no dim is RUNTIME."""
    return RUNTIME not in dims
