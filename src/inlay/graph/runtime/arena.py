"""Where the buffers of a program lie: each in its home, and homes in one arena where they share bytes in turn.

A buffer in another one's bytes may itself be a home in the words of a program; here each is brought to the outermost.

    Place("concat", 3136, 12544)    in the bytes of `concat`, from byte 3136 to byte 15680

A home lives from the first step that writes one of its buffers to the last that reads one. Homes are placed one
by one, each in the smallest gap between those that live while it does. Three orders are tried - by size, by size times
life, by time - and the one that takes the least is chosen; only by time where very many homes live at once.

    >>> lives = {"a": Life(0, 1, 100), "b": Life(1, 2, 50), "c": Life(2, 3, 100)}
    >>> arena = arranged(lives)
    >>> dict(arena.offsets), arena.nbytes, arena.unshared
    ({'a': 0, 'c': 0, 'b': 128}, 178, 250)

Which bytes of its home a buffer has is said by runs: a dense buffer is one run, a slice of channels in nhwc one run for
each pixel.

Source: greedy by size, Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference".
"""

import bisect
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, OutOfMemory
from inlay.graph.network import Tensor
from inlay.graph.program import Buffer, Program
from inlay.layout import Layout
from inlay.measure.memory import usable_memory
from inlay.memory.buffers import LINE
from inlay.memory.reorder_cache import byte_extent

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
    _, high, data_type = byte_extent(desc)
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


@dataclass(frozen=True, slots=True)
class Life:
    """When a home is needed, and how large it is."""

    first: int
    """Number of the step that first writes it; -1 where a run begins with it."""
    last: int
    """Number of the step that last reads it; the number of steps where a run ends with it."""
    nbytes: int
    """Its bytes."""

    @property
    def length(self) -> int:
        """At how many steps it is needed."""
        return self.last - self.first + 1

    def meets(self, other: "Life") -> bool:
        """Whether both are needed at some step."""
        return self.first <= other.last and other.first <= self.last


def lives_of(program: Program, places: Mapping[str, Place], sizes: Mapping[str, int]) -> dict[str, Life]:
    """When each home of `sizes` is needed; a home that no step uses is needed as long as a run takes its tensors."""
    used: dict[str, list[int]] = {home: [] for home in sizes}
    for i, step in enumerate(program.steps):
        for name in (*step.reads.values(), *step.writes.values()):
            used[places[name].home].append(i)
    for name in program.inputs.values():
        used[places[name].home].append(-1)
    for name in program.outputs.values():
        used[places[name].home].append(len(program.steps))
    return {home: Life(min(steps), max(steps), sizes[home]) for home, steps in used.items() if steps}


@dataclass(frozen=True, slots=True)
class Arena:
    """Where each home lies."""

    offsets: Mapping[str, int]
    """By home, bytes from the beginning: multiples of 64."""
    nbytes: int
    """Bytes in all."""
    unshared: int
    """Bytes that the homes would take if none shared them."""
    needed: int
    """The most bytes that are needed at one step: no arena is smaller."""

    def __str__(self) -> str:
        """In one line."""
        return (
            f"arena {self.nbytes / 1e6:.2f} MB, {self.unshared / 1e6:.2f} MB without reuse, "
            f"at least {self.needed / 1e6:.2f} MB at one step"
        )


@dataclass(frozen=True, slots=True)
class Laid:
    """Where everything of a program lies."""

    places: Mapping[str, Place]
    """Of each buffer, in its home."""
    sizes: Mapping[str, int]
    """Bytes of each home."""
    lent: frozenset[str]
    """Homes of inputs that no step writes to: they may be the caller's arrays, and are not in the arena."""
    arena: Arena
    """Where the other homes lie."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors at once: of the arena, and of homes outside of it."""
        return self.arena.nbytes + sum(self.sizes[home] for home in self.lent)


def laid(program: Program, tensors: Mapping[str, Tensor]) -> Laid:
    """Where everything of `program` lies.

    Raises:
        InvalidArguments, Unimplemented: as `places_of`.
    """
    places = places_of(program, tensors)
    sizes = home_sizes(program, places)
    written = {places[name].home for step in program.steps for name in step.writes.values()}
    inputs = Counter(places[name].home for name in program.inputs.values())
    lent = frozenset(home for home, count in inputs.items() if count == 1 and sizes[home] and home not in written)
    lives = lives_of(program, places, sizes)
    return Laid(places, sizes, lent, arranged({home: life for home, life in lives.items() if home not in lent}))


def require_memory(name: str, where: Laid) -> None:
    """Refuse a network whose tensors take more memory than this process can have in use, before any is allocated.

    Raises:
        OutOfMemory: they do.
    """
    room = usable_memory()
    if room is not None and where.nbytes > room:
        raise OutOfMemory(
            f"network {name!r} needs {where.nbytes / 1e9:.1f} GB for its tensors at once, and this process can have "
            f"{room / 1e9:.1f} GB: give its inputs smaller dims, or a smaller batch"
        )


MOST_MEETINGS = 1 << 20
"""Pairs of homes that are needed at one time, up to which they are placed by size too: that looks at each pair."""


def arranged(lives: Mapping[str, Life]) -> Arena:
    """Place all homes.

    Post-condition: homes whose lives meet share no byte; each begins at a multiple of 64.
    """
    offsets = [_placed_in_time(lives)]
    if _count_meetings(lives.values()) <= MOST_MEETINGS:
        by_size = sorted(lives, key=lambda home: (-lives[home].nbytes, lives[home].first, home))
        by_area = sorted(lives, key=lambda home: (-lives[home].nbytes * lives[home].length, lives[home].first, home))
        offsets = [_placed(lives, by_size), _placed(lives, by_area), *offsets]
    nbytes = [max((at + lives[home].nbytes for home, at in found.items()), default=0) for found in offsets]
    least = min(nbytes)
    unshared = sum(life.nbytes for life in lives.values())
    return Arena(offsets[nbytes.index(least)], least, unshared, needed_bytes(lives.values()))


def _count_meetings(lives: Iterable[Life]) -> int:
    """How many pairs of homes are needed at some step both."""
    changes = sorted(change for life in lives for change in ((life.first, 0), (life.last, 1)))
    alive = pairs = 0
    for _, is_end in changes:
        if not is_end:
            pairs += alive
        alive += 1 - 2 * is_end
    return pairs


def _placed(lives: Mapping[str, Life], order: Iterable[str]) -> dict[str, int]:
    """The offsets of homes that are placed in this order, each in the smallest gap between those it meets."""
    offsets: dict[str, int] = {}
    index = _LifeIndex(max((life.last for life in lives.values()), default=0) + 2)
    for home in order:
        life = lives[home]
        taken = [(offsets[other], offsets[other] + lives[other].nbytes) for other in index.meeting(life)]
        offsets[home] = _gap(sorted(taken), life.nbytes)
        index.add(home, life)
    return offsets


class _LifeIndex:
    """Finds the homes that meet a life, in time proportional to their number and to the length of the life.

    A binary tree over all steps: a home is noted at the nodes that cover its life, and is found again from its first
    step upward by lives that begin within it; lives that begin earlier find it by its first step.
    """

    def __init__(self, steps: int) -> None:
        """Be empty; lives lie between steps -1 and `steps` - 2."""
        self._size = 1 << steps.bit_length()
        self._covering: dict[int, list[str]] = {}
        self._starting: dict[int, list[str]] = {}

    def add(self, home: str, life: Life) -> None:
        """Note a home."""
        self._starting.setdefault(life.first, []).append(home)
        low, high = life.first + 1 + self._size, life.last + 2 + self._size
        while low < high:
            if low & 1:
                self._covering.setdefault(low, []).append(home)
                low += 1
            if high & 1:
                high -= 1
                self._covering.setdefault(high, []).append(home)
            low, high = low >> 1, high >> 1

    def meeting(self, life: Life) -> Iterator[str]:
        """The homes noted that are needed at some step of `life`, each once."""
        node = life.first + 1 + self._size
        while node:
            yield from self._covering.get(node, ())
            node >>= 1
        for step in range(life.first + 1, life.last + 1):
            yield from self._starting.get(step, ())


def _placed_in_time(lives: Mapping[str, Life]) -> dict[str, int]:
    """The offsets of homes as an allocator gives them: in the order of steps, each in the smallest gap of that time."""
    offsets: dict[str, int] = {}
    free = _FreeList()
    alive: list[tuple[int, int, int]] = []  # last step, begin, end
    for home in sorted(lives, key=lambda home: (lives[home].first, -lives[home].nbytes, home)):
        life = lives[home]
        while alive and alive[0][0] < life.first:
            _, begin, end = heapq.heappop(alive)
            free.release(begin, end)
        begin = offsets[home] = free.take(-(-life.nbytes // LINE) * LINE)
        heapq.heappush(alive, (life.last, begin, begin + -(-life.nbytes // LINE) * LINE))
    return offsets


class _FreeList:
    """The gaps between what is allocated, and where that ends."""

    def __init__(self) -> None:
        """Everything is free."""
        self._gaps: list[tuple[int, int]] = []
        self._top = 0

    def take(self, nbytes: int) -> int:
        """Allocate so many bytes in the smallest gap that has room, or after all."""
        fitting = [(end - begin, i) for i, (begin, end) in enumerate(self._gaps) if end - begin >= nbytes]
        if not fitting or not nbytes:
            begin, self._top = self._top, self._top + nbytes
            return begin
        _, i = min(fitting)
        begin, end = self._gaps[i]
        self._gaps[i : i + 1] = [(begin + nbytes, end)] if begin + nbytes < end else []
        return begin

    def release(self, begin: int, end: int) -> None:
        """Free what was allocated, and join it with the gaps beside it."""
        if begin == end:
            return
        i = bisect.bisect_left(self._gaps, (begin, end))
        if i < len(self._gaps) and self._gaps[i][0] == end:
            end = self._gaps.pop(i)[1]
        if i and self._gaps[i - 1][1] == begin:
            i -= 1
            begin = self._gaps.pop(i)[0]
        if end == self._top:
            self._top = begin
        else:
            self._gaps.insert(i, (begin, end))


def _gap(taken: Iterable[tuple[int, int]], nbytes: int) -> int:
    """The beginning of the smallest gap that has room, between what is `taken` in order or after it."""
    best, least, at = -1, 0, 0
    for begin, end in taken:
        room = begin - at
        if room >= nbytes and (best < 0 or room < least):
            best, least = at, room
        at = max(at, -(-end // LINE) * LINE)
    return at if best < 0 else best


def needed_bytes(lives: Iterable[Life]) -> int:
    """The most bytes that are needed at one step."""
    changes = sorted(
        change for life in lives for change in ((life.first, life.nbytes), (life.last + 0.5, -life.nbytes))
    )
    most = now = 0
    for _, nbytes in changes:
        now += nbytes
        most = max(most, now)
    return most


def runs_of(desc: MemoryDesc) -> tuple[Indices, int]:
    """The bytes that memory of `desc` has, padding too: where each run begins, ascending, and how long all are.

    >>> starts, length = runs_of(MemoryDesc((1, 4, 2, 2), "f32", "nhwc").submemory((1, 2, 2, 2), (0, 2, 0, 0)))
    >>> starts.tolist(), length
    ([8, 24, 40, 56], 8)
    """
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None or data_type.is_sub_byte:
        return np.zeros(1, np.int64), byte_extent(desc)[1]
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
