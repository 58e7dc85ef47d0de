"""Observations: the place of each element in a packed buffer, as tables, packers and pairs of buffers show it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.inference.results import Diagnosis, Offsets
from inlay.layout import Dims


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """Places of elements and of padding in a packed buffer."""

    dims: Dims
    """Dims of the logical tensor."""
    data_type: DataType
    """Data type of the elements."""
    places: Offsets
    """Place of each element in the packed buffer, by row-major index, in elements; -1 if it has none."""
    free: npt.NDArray[np.bool_] | None
    """For each place of the buffer, True if it can be padding; None if only the places of elements are known."""
    is_exact: bool
    """True if `free` marks the places that were written as padding; False if they may also be gaps."""
    fault: Diagnosis | None = None
    """A reason that excludes every layout, found while observing; None if there is none."""
    notes: tuple[str, ...] = ()
    """Sentences for the result."""
    elements: Offsets | None = None
    """Row-major index of the element in each place of the buffer, -1 where there is none; None as `free`."""

    @property
    def length(self) -> int | None:
        """The length of the buffer in elements; None if it is not known."""
        return None if self.free is None else len(self.free)

    @property
    def offsets(self) -> Offsets:
        """The places as an array of shape `dims`."""
        return self.places.reshape(self.dims)


def coordinate_of(index: int, dims: Dims) -> Dims:
    """Return the coordinate of an element by its row-major index."""
    return tuple(int(x) for x in np.unravel_index(index, dims))


def coordinate_text(index: int, dims: Dims) -> str:
    """Return the text of an element: its row-major index and its coordinate.

    >>> coordinate_text(5, (2, 3))
    '5 at (1, 2)'
    """
    return f"{index} at {coordinate_of(index, dims)}"


def places_of(elements: Offsets, dims: Dims, count: int) -> tuple[Offsets, Diagnosis | None]:
    """Return the place of each of `count` elements, and the fault if one has two places.

    `elements` is the element in each place of the buffer, -1 where there is none.
    """
    at = np.flatnonzero(elements >= 0)
    places = np.full(count, -1, np.int64)
    places[elements[at][::-1]] = at[::-1]
    repeated = np.flatnonzero(np.bincount(elements[at], minlength=count) > 1)
    if not repeated.size:
        return places, None
    first = int(repeated[0])
    both = np.flatnonzero(elements == first)
    lost = np.flatnonzero(places < 0)
    more = ""
    if lost.size:
        plural = "elements have" if len(lost) > 1 else "element has"
        more = f", and {len(lost)} {plural} no place, the first is {coordinate_text(int(lost[0]), dims)}"
    problem = (
        f"{len(repeated)} element{'s have' if len(repeated) > 1 else ' has'} more than one place: "
        f"element {coordinate_text(first, dims)} is in places {both[0]} and {both[1]}{more}"
    )
    return places, Diagnosis("twice", problem, tuple(int(i) for i in repeated[:16]))
