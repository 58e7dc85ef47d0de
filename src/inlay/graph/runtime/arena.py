"""Memory planning: the allocation that holds each buffer, and the offset of each allocation in one shared arena.

A buffer that has memory of its own is an allocation. A buffer whose base is another buffer is stored in the bytes of
its base; the base may be stored in a third buffer. `locate_buffers` follows the bases to the allocation.

    BufferLocation("concat", 3136, 12544)    stored in the bytes of `concat`, from byte 3136 to byte 15680

An allocation is live from the first step that writes one of its buffers to the last step that reads one. Allocations
that are live at the same step get separate bytes; others may share them. Offsets are assigned one allocation after the
other, each in the smallest sufficient gap between the allocations that are live at the same time. Three orders are
tried - by size, by size times length of the interval, by time - and the smallest arena wins. Where very many intervals
overlap, only the order by time is tried.

    >>> intervals = {"a": LiveInterval(0, 1, 100), "b": LiveInterval(1, 2, 50), "c": LiveInterval(2, 3, 100)}
    >>> arena = assign_offsets(intervals)
    >>> dict(arena.offsets), arena.nbytes, arena.unshared
    ({'a': 0, 'c': 0, 'b': 128}, 178, 250)

The bytes that a buffer occupies in its allocation are runs of equal length: a dense buffer is one run, a slice of the
channels of an nhwc image is one run for each pixel.

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
from inlay.graph.background import yield_to_runs
from inlay.graph.network import Tensor
from inlay.graph.precision import NARROW_TYPES
from inlay.graph.program import Buffer, Program
from inlay.layout import Layout
from inlay.measure.memory import usable_memory
from inlay.memory.buffers import LINE
from inlay.memory.reorder_cache import byte_extent

Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BufferLocation:
    """The bytes of a buffer within an allocation."""

    allocation: str
    """Name of the buffer whose memory holds the bytes; the buffer's own name if it has memory of its own."""
    offset: int
    """Offset of the buffer in the allocation, in bytes."""
    nbytes: int
    """Bytes from the beginning of the buffer to the end of its last element or padding."""

    @property
    def end(self) -> int:
        """Offset of the end of the buffer in the allocation, in bytes."""
        return self.offset + self.nbytes


def locate_buffers(program: Program, tensors: Mapping[str, Tensor]) -> dict[str, BufferLocation]:
    """Return the location of each buffer of `program`.

    Post-condition: each buffer is within its allocation.

    Raises:
        InvalidArguments: a buffer's tensor is unknown, or has other dims or another type; its base is unknown, too
            small, or the buffer itself by a cycle; or a buffer has no layout.
        Unimplemented: a dim or stride is RUNTIME.
    """
    sizes = {name: _nbytes(program, buffer, tensors) for name, buffer in program.buffers.items()}
    locations = {}
    for name, buffer in program.buffers.items():
        yield_to_runs()
        allocation, offset = _find_allocation(program, buffer)
        locations[name] = location = BufferLocation(allocation, offset, sizes[name])
        size = max(sizes[allocation], _own_size(program.buffers[allocation]))
        if offset < 0 or location.end > size:
            raise InvalidArguments(
                f"{_describe(program)}: buffer {name} occupies bytes {offset} to {location.end} of buffer "
                f"{allocation}, which has {size}: give it a larger base, or memory of its own"
            )
    return locations


def _describe(program: Program) -> str:
    return f"program of {len(program.steps)} steps"


def _find_allocation(program: Program, buffer: Buffer) -> tuple[str, int]:
    """Follow the bases of a buffer, and return its allocation and its offset there."""
    seen, offset = {buffer.name}, 0
    while buffer.base != buffer.name:
        offset += buffer.offset
        if buffer.base not in program.buffers:
            raise InvalidArguments(
                f"{_describe(program)}: the base of buffer {buffer.name} is {buffer.base!r}, which is no buffer: "
                "add one"
            )
        buffer = program.buffers[buffer.base]
        if buffer.name in seen:
            raise InvalidArguments(
                f"{_describe(program)}: the bases of buffer {buffer.name} form a cycle: give it memory of its own"
            )
        seen.add(buffer.name)
    if buffer.offset:
        raise InvalidArguments(
            f"{_describe(program)}: buffer {buffer.name} has memory of its own and offset {buffer.offset}: make it 0"
        )
    return buffer.name, offset


def _nbytes(program: Program, buffer: Buffer, tensors: Mapping[str, Tensor]) -> int:
    """Return the bytes from the beginning of a buffer to the end of its last element."""
    tensor = tensors.get(buffer.tensor)
    if tensor is None:
        raise InvalidArguments(
            f"{_describe(program)}: buffer {buffer.name} is of tensor {buffer.tensor!r}, which the graph does not have"
        )
    desc = buffer.desc
    if desc is None:
        return tensor.nbytes
    _, high, data_type = byte_extent(desc)
    is_narrow = tensor.dtype == np.float32 and data_type.name in NARROW_TYPES
    if desc.dims != tensor.dims or not (is_narrow or data_type.bits == 8 * tensor.dtype.itemsize):
        raise InvalidArguments(
            f"{_describe(program)}: buffer {buffer.name} is {desc!r}, but tensor {buffer.tensor} has dims "
            f"{tensor.dims} of {tensor.dtype}: describe it so"
        )
    return high


def _own_size(buffer: Buffer) -> int:
    """Return the bytes that a buffer needs if it has memory of its own, padding included."""
    return 0 if buffer.desc is None else buffer.desc.size


def allocation_sizes(program: Program, locations: Mapping[str, BufferLocation]) -> dict[str, int]:
    """Return the size of each allocation in bytes."""
    sizes: dict[str, int] = {}
    for name, location in locations.items():
        own = _own_size(program.buffers[name]) if location.allocation == name else 0
        sizes[location.allocation] = max(sizes.get(location.allocation, 0), own, location.end)
    return sizes


@dataclass(frozen=True, slots=True)
class LiveInterval:
    """The live interval of an allocation, and its size."""

    first: int
    """Number of the first step that uses the allocation; -1 for an input of the program."""
    last: int
    """Number of the last step that uses it; the number of steps for an output of the program."""
    nbytes: int
    """Size of the allocation in bytes."""

    @property
    def length(self) -> int:
        """Number of steps in the interval."""
        return self.last - self.first + 1

    def overlaps(self, other: "LiveInterval") -> bool:
        """Return whether both allocations are live at some step."""
        return self.first <= other.last and other.first <= self.last


def find_live_intervals(
    program: Program, locations: Mapping[str, BufferLocation], sizes: Mapping[str, int]
) -> dict[str, LiveInterval]:
    """Return the live interval of each allocation that a step, an input or an output uses."""
    used: dict[str, list[int]] = {name: [] for name in sizes}
    for i, step in enumerate(program.steps):
        for name in (*step.reads.values(), *step.writes.values()):
            used[locations[name].allocation].append(i)
    for name in program.inputs.values():
        used[locations[name].allocation].append(-1)
    for name in program.outputs.values():
        used[locations[name].allocation].append(len(program.steps))
    return {name: LiveInterval(min(steps), max(steps), sizes[name]) for name, steps in used.items() if steps}


@dataclass(frozen=True, slots=True)
class Arena:
    """One piece of memory that allocations share over time."""

    offsets: Mapping[str, int]
    """Offset of each allocation in bytes; multiples of 64."""
    nbytes: int
    """Size of the arena in bytes."""
    unshared: int
    """Sum of the sizes of all allocations, in bytes."""
    needed: int
    """Most bytes that are live at one step; no arena can be smaller."""

    def __str__(self) -> str:
        """Return the sizes in one line."""
        return (
            f"arena {self.nbytes / 1e6:.2f} MB, {self.unshared / 1e6:.2f} MB without reuse, "
            f"at least {self.needed / 1e6:.2f} MB at one step"
        )


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The location of every buffer of a program."""

    locations: Mapping[str, BufferLocation]
    """Allocation and offset of each buffer."""
    sizes: Mapping[str, int]
    """Size of each allocation in bytes."""
    external: frozenset[str]
    """Allocations of states, and of inputs that no step writes to. They are not in the arena: steps use the caller's
    arrays."""
    arena: Arena
    """The arena of all other allocations."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arena and of the allocations outside of it."""
        return self.arena.nbytes + sum(self.sizes[name] for name in self.external)


def plan_memory(program: Program, tensors: Mapping[str, Tensor]) -> MemoryPlan:
    """Plan the memory of `program`.

    Raises:
        InvalidArguments, Unimplemented: as `locate_buffers`.
    """
    locations = locate_buffers(program, tensors)
    sizes = allocation_sizes(program, locations)
    written = {locations[name].allocation for step in program.steps for name in step.writes.values()}
    inputs = Counter(locations[name].allocation for name in program.inputs.values())
    states = {locations[name].allocation for name in program.states.values()}
    external = frozenset(
        name for name, count in inputs.items() if count == 1 and sizes[name] and (name in states or name not in written)
    )
    intervals = find_live_intervals(program, locations, sizes)
    arena = assign_offsets({name: interval for name, interval in intervals.items() if name not in external})
    return MemoryPlan(locations, sizes, external, arena)


def require_memory(name: str, plan: MemoryPlan) -> None:
    """Check, before any memory is allocated, that the tensors of network `name` fit in what this process can have.

    Raises:
        OutOfMemory: they do not.
    """
    usable = usable_memory()
    if usable is not None and plan.nbytes > usable:
        raise OutOfMemory(
            f"network {name!r} needs {plan.nbytes / 1e9:.1f} GB for its tensors at once, and this process can have "
            f"{usable / 1e9:.1f} GB: give its inputs smaller dims, or a smaller batch"
        )


MOST_OVERLAPS = 1 << 20
"""Number of overlapping pairs of intervals up to which the orders by size are tried; these visit each such pair."""


def assign_offsets(intervals: Mapping[str, LiveInterval]) -> Arena:
    """Assign an offset to each allocation.

    Post-condition: allocations whose intervals overlap share no byte; each offset is a multiple of 64.
    """
    choices = [_assign_by_time(intervals)]
    if _count_overlaps(intervals.values()) <= MOST_OVERLAPS:

        def rank(name: str, size: int) -> tuple[int, int, str]:
            return -size, intervals[name].first, name

        by_size = sorted(intervals, key=lambda name: rank(name, intervals[name].nbytes))
        by_area = sorted(intervals, key=lambda name: rank(name, intervals[name].nbytes * intervals[name].length))
        choices = [_assign_in_order(intervals, by_size), _assign_in_order(intervals, by_area), *choices]
    sizes = [max((at + intervals[name].nbytes for name, at in offsets.items()), default=0) for offsets in choices]
    least = min(sizes)
    unshared = sum(interval.nbytes for interval in intervals.values())
    return Arena(choices[sizes.index(least)], least, unshared, peak_live_bytes(intervals.values()))


def _count_overlaps(intervals: Iterable[LiveInterval]) -> int:
    """Return the number of pairs of intervals that overlap."""
    changes = sorted(change for one in intervals for change in ((one.first, 0), (one.last, 1)))
    live = pairs = 0
    for _, is_end in changes:
        if not is_end:
            pairs += live
        live += 1 - 2 * is_end
    return pairs


def _assign_in_order(intervals: Mapping[str, LiveInterval], order: Iterable[str]) -> dict[str, int]:
    """Assign offsets in this order, each in the smallest sufficient gap between allocations live at the same time."""
    offsets: dict[str, int] = {}
    index = _IntervalIndex(max((interval.last for interval in intervals.values()), default=0) + 2)
    for name in order:
        yield_to_runs()
        interval = intervals[name]
        taken = [(offsets[other], offsets[other] + intervals[other].nbytes) for other in index.overlapping(interval)]
        offsets[name] = _gap(sorted(taken), interval.nbytes)
        index.add(name, interval)
    return offsets


class _IntervalIndex:
    """A segment tree over the steps, which finds the intervals that overlap a given one.

    Each interval is stored at the nodes that cover it, and in the list of its first step. An interval that overlaps a
    given one either covers the first step of that one, and is at a node above that step, or begins within it. So a
    query takes time proportional to its results and to the length of the given interval.
    """

    def __init__(self, steps: int) -> None:
        """Create an empty index of intervals between steps -1 and `steps` - 2."""
        self._size = 1 << steps.bit_length()
        self._covering: dict[int, list[str]] = {}
        self._starting: dict[int, list[str]] = {}

    def add(self, name: str, interval: LiveInterval) -> None:
        """Add the interval of an allocation."""
        self._starting.setdefault(interval.first, []).append(name)
        low, high = interval.first + 1 + self._size, interval.last + 2 + self._size
        while low < high:
            if low & 1:
                self._covering.setdefault(low, []).append(name)
                low += 1
            if high & 1:
                high -= 1
                self._covering.setdefault(high, []).append(name)
            low, high = low >> 1, high >> 1

    def overlapping(self, interval: LiveInterval) -> Iterator[str]:
        """Yield each allocation whose interval overlaps `interval`, once."""
        node = interval.first + 1 + self._size
        while node:
            yield from self._covering.get(node, ())
            node >>= 1
        for step in range(interval.first + 1, interval.last + 1):
            yield from self._starting.get(step, ())


def _assign_by_time(intervals: Mapping[str, LiveInterval]) -> dict[str, int]:
    """Assign offsets as an allocator would: step by step, each in the smallest gap that is free at that step."""
    offsets: dict[str, int] = {}
    free = _FreeList()
    live: list[tuple[int, int, int]] = []  # last step, begin, end
    for name in sorted(intervals, key=lambda name: (intervals[name].first, -intervals[name].nbytes, name)):
        interval = intervals[name]
        while live and live[0][0] < interval.first:
            _, begin, end = heapq.heappop(live)
            free.release(begin, end)
        begin = offsets[name] = free.take(-(-interval.nbytes // LINE) * LINE)
        heapq.heappush(live, (interval.last, begin, begin + -(-interval.nbytes // LINE) * LINE))
    return offsets


class _FreeList:
    """The free gaps of a growing memory, and its current end."""

    def __init__(self) -> None:
        """Begin with an empty memory."""
        self._gaps: list[tuple[int, int]] = []
        self._top = 0

    def take(self, nbytes: int) -> int:
        """Allocate bytes in the smallest sufficient gap, or at the end, and return their offset."""
        fitting = [(end - begin, i) for i, (begin, end) in enumerate(self._gaps) if end - begin >= nbytes]
        if not fitting or not nbytes:
            begin, self._top = self._top, self._top + nbytes
            return begin
        _, i = min(fitting)
        begin, end = self._gaps[i]
        self._gaps[i : i + 1] = [(begin + nbytes, end)] if begin + nbytes < end else []
        return begin

    def release(self, begin: int, end: int) -> None:
        """Free an allocation, and merge it with the gaps beside it."""
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
    """Return the offset of the smallest sufficient gap between the sorted ranges of `taken`.

    Without such a gap it is the end of the last range, rounded up.
    """
    best, least, at = -1, 0, 0
    for begin, end in taken:
        room = begin - at
        if room >= nbytes and (best < 0 or room < least):
            best, least = at, room
        at = max(at, -(-end // LINE) * LINE)
    return at if best < 0 else best


def peak_live_bytes(intervals: Iterable[LiveInterval]) -> int:
    """Return the most bytes that are live at one step."""
    changes = sorted(
        change
        for interval in intervals
        for change in ((interval.first, interval.nbytes), (interval.last + 0.5, -interval.nbytes))
    )
    most = now = 0
    for _, nbytes in changes:
        now += nbytes
        most = max(most, now)
    return most


def byte_runs(desc: MemoryDesc) -> tuple[Indices, int]:
    """Return the bytes that memory of `desc` occupies, padding included: ascending starts of runs, and their length.

    >>> starts, length = byte_runs(MemoryDesc((1, 4, 2, 2), "f32", "nhwc").submemory((1, 2, 2, 2), (0, 2, 0, 0)))
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
    """The bytes of one allocation, cut at each beginning and end of a buffer's runs.

    Each segment belongs to a buffer completely or not at all. `of[name]` are the numbers of the segments of buffer
    `name`.
    """

    def __init__(self, buffers: Mapping[str, Buffer], locations: Mapping[str, BufferLocation]) -> None:
        """Cut an allocation at the runs of `buffers`, all that are stored in it."""
        runs: dict[str, tuple[Indices, Indices]] = {}
        for name, buffer in buffers.items():
            at, nbytes = locations[name].offset, locations[name].nbytes
            starts, length = (np.zeros(1, np.int64), nbytes) if buffer.desc is None else byte_runs(buffer.desc)
            runs[name] = (starts + at, starts + at + length)
        edges = np.sort(np.concatenate([edge for both in runs.values() for edge in both]))
        cuts = edges[np.diff(edges, prepend=edges[:1] - 1) != 0]  # `np.unique` imports numpy.ma, which takes 10 ms
        self.count = cuts.size
        self.of: dict[str, Indices] = {name: _between(cuts, *both) for name, both in runs.items()}


def _between(cuts: Indices, starts: Indices, ends: Indices) -> Indices:
    """Return the numbers of the segments that are within any of the runs."""
    opened: npt.NDArray[Any] = np.zeros(cuts.size + 1, np.int64)
    np.add.at(opened, np.searchsorted(cuts, starts), 1)
    np.add.at(opened, np.searchsorted(cuts, ends), -1)
    return np.flatnonzero(np.cumsum(opened[:-1]) > 0)
