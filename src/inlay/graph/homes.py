"""Where the buffers of a program lie: the home of each, its place there, and which bytes it has.

A buffer in another one's bytes may itself be a home in the words of a program; here each is brought to the outermost.

    Place("concat", 3136, 12544, ...)     in the bytes of `concat`, from byte 3136 to byte 15680

Bytes are compared by runs: a dense buffer is one run, a slice of channels in nhwc one run for each pixel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.network import Tensor
from inlay.graph.program import Buffer, Program
from inlay.layout import Layout
from inlay.memory.moves import reach

Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies."""

    home: str
    """The outermost buffer in whose bytes it lies; its own name if it has its own."""
    offset: int
    """Bytes from the beginning of the home to that of the buffer."""
    nbytes: int
    """Bytes from the beginning of the buffer to the end of what it reaches."""

    @property
    def end(self) -> int:
        """Bytes from the beginning of the home to the end of what the buffer reaches."""
        return self.offset + self.nbytes


def places_of(program: Program, tensors: Mapping[str, Tensor]) -> dict[str, Place]:
    """The place of each buffer of `program`.

    Post-condition: each buffer lies within its home.

    Raises:
        InvalidArguments: a buffer's tensor is unknown or has other dims or another type, its home is unknown or lies in
            itself, or the home is too small; or a buffer has no layout.
        Unimplemented: a dim or stride is RUNTIME.
    """
    sizes = {name: _nbytes(program, buffer, tensors) for name, buffer in program.buffers.items()}
    found = {}
    for name, buffer in program.buffers.items():
        home, offset = _home_of(program, buffer)
        found[name] = place = Place(home, offset, sizes[name])
        room = max(sizes[home], _fresh(program.buffers[home]))
        if offset < 0 or place.end > room:
            raise InvalidArguments(
                f"{_said(program)}: buffer {name} takes bytes {offset} to {place.end} of {home}, which has {room}: "
                "give it a larger home, or one of its own"
            )
    return found


def _said(program: Program) -> str:
    return f"program of {len(program.steps)} steps"


def _home_of(program: Program, buffer: Buffer) -> tuple[str, int]:
    """The outermost home, and the bytes from there."""
    seen, offset = {buffer.name}, 0
    at = buffer
    while at.home != at.name:
        offset += at.offset
        if at.home not in program.buffers:
            raise InvalidArguments(
                f"{_said(program)}: the home of buffer {at.name} is {at.home!r}, which is no buffer: add one"
            )
        at = program.buffers[at.home]
        if at.name in seen:
            raise InvalidArguments(f"{_said(program)}: buffer {at.name} lies in itself: give it a home of its own")
        seen.add(at.name)
    if at.offset:
        raise InvalidArguments(
            f"{_said(program)}: buffer {at.name} has a home of its own and offset {at.offset}: it begins at 0"
        )
    return at.name, offset


def _nbytes(program: Program, buffer: Buffer, tensors: Mapping[str, Tensor]) -> int:
    tensor = tensors.get(buffer.tensor)
    if tensor is None:
        raise InvalidArguments(
            f"{_said(program)}: buffer {buffer.name} is of tensor {buffer.tensor!r}, which the graph does not have"
        )
    desc = buffer.desc
    if desc is None:
        return tensor.nbytes
    _, high, data_type = reach(desc)
    if desc.dims != tensor.dims or data_type.bits != 8 * tensor.dtype.itemsize:
        raise InvalidArguments(
            f"{_said(program)}: buffer {buffer.name} is {desc!r}, but tensor {buffer.tensor} has dims {tensor.dims} of "
            f"{tensor.dtype}: describe it so"
        )
    return high


def _fresh(buffer: Buffer) -> int:
    """Bytes of new memory for a buffer."""
    return 0 if buffer.desc is None else buffer.desc.size


def home_sizes(program: Program, places: Mapping[str, Place]) -> dict[str, int]:
    """By home, the bytes that it needs."""
    sizes: dict[str, int] = {}
    for name, place in places.items():
        own = _fresh(program.buffers[name]) if place.home == name else 0
        sizes[place.home] = max(sizes.get(place.home, 0), own, place.end)
    return sizes


def runs_of(desc: MemoryDesc) -> tuple[Indices, int]:
    """The bytes that memory of `desc` has, padding too: where each run begins, ascending, and how long all are.

    >>> starts, length = runs_of(MemoryDesc((1, 4, 2, 2), "f32", "nhwc").submemory((1, 2, 2, 2), (0, 2, 0, 0)))
    >>> starts.tolist(), length
    ([8, 24, 40, 56], 8)
    """
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None or data_type.is_sub_byte:
        return np.zeros(1, np.int64), reach(desc)[1]
    if layout.size == 0:
        return np.zeros(0, np.int64), 0
    digits = [digit for axis in layout.digits for digit in axis if digit.extent > 1 and digit.stride]
    length, starts = 1, np.full(1, desc.offset0, np.int64)
    for digit in sorted(digits, key=lambda digit: abs(digit.stride)):
        if digit.stride == length and starts.size == 1:
            length *= digit.extent
        else:
            starts = ((np.arange(digit.extent) * digit.stride)[:, None] + starts).reshape(-1)
    is_ascending = bool(np.all(starts[1:] > starts[:-1]))
    return (starts if is_ascending else np.unique(starts)) * data_type.itemsize, length * data_type.itemsize


class Segments:
    """The bytes of one home, cut wherever a buffer of it begins or ends: each segment belongs to a buffer or does not.

    `of[name]` are the numbers of the segments that buffer `name` has.
    """

    def __init__(self, buffers: Mapping[str, Buffer], places: Mapping[str, Place]) -> None:
        """Cut a home; `buffers` are all that lie in it."""
        runs: dict[str, tuple[Indices, Indices]] = {}
        for name, buffer in buffers.items():
            at, nbytes = places[name].offset, places[name].nbytes
            starts, length = (np.zeros(1, np.int64), nbytes) if buffer.desc is None else runs_of(buffer.desc)
            runs[name] = (starts + at, starts + at + length)
        cuts = np.unique(np.concatenate([edge for both in runs.values() for edge in both]))
        self.count = cuts.size
        self.of: dict[str, Indices] = {name: _between(cuts, *both) for name, both in runs.items()}


def _between(cuts: Indices, starts: Indices, ends: Indices) -> Indices:
    """The numbers of the segments in any of the runs."""
    opened: npt.NDArray[Any] = np.zeros(cuts.size + 1, np.int64)
    np.add.at(opened, np.searchsorted(cuts, starts), 1)
    np.add.at(opened, np.searchsorted(cuts, ends), -1)
    return np.flatnonzero(np.cumsum(opened[:-1]) > 0)
