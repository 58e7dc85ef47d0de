"""The part of a tensor that a picture shows: coordinates that the caller chose for some axes.

>>> from inlay import MemoryDesc
>>> desc = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
>>> select_part(desc, "nchw", {"n": 1, "c": slice(6, 10)}).choices
((1,), (6, 7, 8, 9), None, None)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import RUNTIME, Dims

AxisChoice: TypeAlias = int | slice | Sequence[int]
"""Coordinates of one axis: one of them, a slice, or several."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The coordinates of each axis that a picture shows."""

    choices: tuple[tuple[int, ...] | None, ...]
    """Per axis the coordinates, ascending; None for all."""

    def has(self, coordinate: Sequence[int]) -> bool:
        """True if `coordinate` is in the selection."""
        return all(choice is None or x in choice for x, choice in zip(coordinate, self.choices, strict=True))

    def coordinates(self, dims: Dims) -> tuple[Sequence[int], ...]:
        """The coordinates that are shown of each axis of a tensor of these dims."""
        return tuple(range(n) if choice is None else choice for n, choice in zip(dims, self.choices, strict=True))


def select_part(
    desc: MemoryDesc, names: Sequence[str], at: Mapping[str, AxisChoice], *, has_padding: bool = True
) -> Selection:
    """Return the selection that `at` describes: coordinates by the name of their axis.

    A negative coordinate counts from the end of the axis, and a slice takes coordinates of the data, as in NumPy.
    Coordinates of padding are those from the dim on; without `has_padding` there are none.

    Raises:
        InvalidArguments: `at` is no mapping, a name is none of `names`, or a coordinate is no integer or outside the
            padded dims, or a slice is empty.
    """
    if not isinstance(at, Mapping):
        raise InvalidArguments(f"at is {shown(at)}: give coordinates by axis, such as {{'{names[0]}': 0}}")
    choices: list[tuple[int, ...] | None] = [None] * len(names)
    for name, choice in at.items():
        if name not in names:
            raise InvalidArguments(f"at names axis {shown(name)}, but the axes are {', '.join(names)}")
        axis = list(names).index(name)
        dims = desc.padded_dims if has_padding else desc.dims
        choices[axis] = _coordinates(name, choice, desc.dims[axis], dims[axis])
    return Selection(tuple(choices))


def _coordinates(name: str, choice: object, dim: int, padded: int) -> tuple[int, ...]:
    """Return the coordinates that `choice` takes from an axis.

    Raises:
        InvalidArguments: it takes none, or one is no integer or outside the axis.
    """
    if RUNTIME in (dim, padded):
        raise InvalidArguments(f"at chooses from axis {name}, whose dim is known only when data arrives")
    if isinstance(choice, slice):
        try:
            taken: Sequence[object] = range(dim)[choice]
        except (TypeError, ValueError) as error:
            raise InvalidArguments(f"at[{name!r}] is {choice}, which is no slice: {error}") from None
    else:
        taken = choice if isinstance(choice, Sequence) and not isinstance(choice, str) else (choice,)
    coordinates = sorted({_coordinate(name, x, dim, padded) for x in taken})
    if not coordinates:
        raise InvalidArguments(f"at[{name!r}] is {shown(choice)}, which takes no coordinate of 0 to {dim - 1}")
    return tuple(coordinates)


def _coordinate(name: str, x: object, dim: int, padded: int) -> int:
    """Return a coordinate of an axis as an integer of 0 or more.

    Raises:
        InvalidArguments: it is no integer, or outside the axis.
    """
    try:
        if isinstance(x, bool):
            raise TypeError
        value = index(x)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArguments(
            f"at[{name!r}] has {shown(x)}: give a coordinate, a slice, or a list of coordinates"
        ) from None
    if not -dim <= value < padded:
        padding = f", of which {dim} to {padded - 1} are padding" if padded > dim else ""
        raise InvalidArguments(f"at[{name!r}] has {value}: axis {name} has coordinates 0 to {padded - 1}{padding}")
    return value + dim if value < 0 else value
