"""Boxes of conversions from and to chunked arrays, in one pass or in two.

A chunk is the unit that a compressed array is read by, and that any array is written by. So a box is a range of whole
chunks of the target, and it should cut few chunks of the source:

    source (28000, 28000), chunks (64, 28000)     target chunks (28000, 64), memory 256 MB
    boxes (28000, 1024)                           each cuts all chunks of the source: each is read 28 times

Chunks in local files without compression are read in parts, which helps while the parts have whole pages. Otherwise the
conversion has two passes through an intermediate array. Its chunks are about as long as the boxes of both passes, which
are as long as memory allows:

    pass 1      boxes (1024, 28000)     read once, written to chunks (1024, 1024)
    pass 2      boxes (28000, 1024)     the chunks are read once, target chunks are written once

Source: the algorithm of the package `rechunker` (Abernathey and others), here with parts of chunks and both passes as
ordinary plans.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, lcm, log2, prod

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.notation.format_tag import FormatTag
from inlay.storage.box import Box
from inlay.storage.box_bytes import locate_box
from inlay.storage.chunk_files import PAGE_NBYTES, grid_desc, read_nbytes
from inlay.storage.chunk_format import chunk_nbytes
from inlay.storage.cutting import BOX_NBYTES, candidate_extents
from inlay.storage.store import StoredTensor, plain_order, row_major
from inlay.storage.zarr_store import scratch_nbytes

MOST_READS = 2.0
"""How often one pass may read the bytes of the source; beyond that there are two passes."""
CALL_NBYTES = 512
"""Bytes that are copied in the time of a system call."""
_CHUNKS_OF_BOX = 16
"""Wanted number of compressed chunks in a box and its result."""
_MOST_COMBINATIONS = 4096
"""Number of boxes that are compared."""


@dataclass(frozen=True, slots=True)
class ChunkedSide:
    """The source or the target of a pass: a tensor in chunks, or in one range of bytes of a file."""

    desc: MemoryDesc
    """Descriptor of the elements as a box is read or written."""
    chunks: Dims | None
    """Extents of a chunk along each axis of `desc`; None if the tensor is one range of bytes."""
    chunk: MemoryDesc | None
    """Descriptor of the bytes of a chunk, if parts of chunks are read, or whole chunks written, directly."""

    @property
    def itemsize(self) -> float:
        """Size of an element, in bytes."""
        return self.desc.require_layout("a tensor")[1].bits / 8

    @property
    def unit(self) -> Dims:
        """Extents of a chunk, 1 where there are none."""
        return self.chunks or (1,) * self.desc.ndims

    @property
    def wanted_nbytes(self) -> int:
        """Wanted size of a box, in bytes: several chunks if they are compressed, which takes threads of their own."""
        if self.chunks is None or self.chunk is not None:
            return BOX_NBYTES
        return max(BOX_NBYTES, ceil(_CHUNKS_OF_BOX * prod(self.chunks) * self.itemsize))

    def scratch(self, extents: Sequence[int]) -> int:
        """Return the bytes that chunks take beside a box while they are read or written."""
        if self.chunks is None:
            return 0
        if self.chunk is not None:
            return chunk_nbytes(self.chunk)
        return scratch_nbytes(ceil(prod(self.chunks) * self.itemsize), ceil(prod(extents) * self.itemsize))

    def box_nbytes(self, extents: Sequence[int]) -> int:
        """Return the size of a box of whole chunks in memory, in bytes."""
        if self.chunk is None or self.chunks is None:
            return ceil(prod(extents) * self.itemsize)
        whole = prod(-(-extent // n) for extent, n in zip(extents, self.chunks, strict=True)) * chunk_nbytes(self.chunk)
        has_grid = grid_desc(self.chunk, Box((0,) * len(self.chunks), self.chunks)) is not None
        return whole if has_grid else ceil(prod(extents) * self.itemsize) + chunk_nbytes(self.chunk)

    def cost(self, extents: Dims) -> float:
        """Return how many bytes a pass with these boxes moves for each byte of the tensor, in whole pages and chunks.

        Where the tensor is one range of bytes, a run costs a system call.
        """
        if self.chunks is None:
            place = locate_box(self.desc, Box((0,) * len(extents), tuple(map(min, extents, self.desc.dims))))
            return 1.0 if place is None or place.count == 1 else 1 + CALL_NBYTES / place.run_nbytes
        return self._factor(extents, PAGE_NBYTES)

    def reads(self, extents: Dims) -> float:
        """Return how often a pass with these boxes reads each byte, on average."""
        return 1.0 if self.chunks is None else self._factor(extents, 1)

    def _factor(self, extents: Dims, page: int) -> float:
        """Return the number of bytes that are read for each byte of chunks, for reads of whole pages."""
        assert self.chunks is not None
        factor = prod(count_cuts(n, c, e) for n, c, e in zip(self.desc.dims, self.chunks, extents, strict=True))
        if self.chunk is not None and factor > 1 and self._parts_exist(self.chunk, extents):
            part = Box((0,) * len(extents), tuple(map(min, extents, self.chunks)))
            factor = min(factor, max(1.0, read_nbytes(self.chunk, part, page) / (part.size * self.itemsize)))
        return factor

    def _parts_exist(self, chunk: MemoryDesc, extents: Dims) -> bool:
        """Return True if boxes do not cut blocks of a chunk, so that its parts are runs of bytes."""
        blocks = [axis.block for axis in chunk.require_layout("a chunk")[0].axes]
        return all(
            extent % block == 0 or block % extent == 0 or extent >= n
            for extent, block, n in zip(extents, blocks, self.desc.dims, strict=True)
        )


@dataclass(frozen=True, slots=True)
class PassPlan:
    """The boxes of one pass."""

    extents: Dims
    """Extents of the boxes."""
    reads: float
    """Number of times that each byte of the source is read, on average."""
    cost: float
    """The same in whole pages and chunks."""


@dataclass(frozen=True, slots=True)
class TwoPasses:
    """A conversion in two passes."""

    first: PassPlan
    """The pass from the source to the intermediate array."""
    chunks: Dims
    """Chunks of the intermediate array."""
    second: PassPlan
    """The pass from the intermediate array to the target."""


@lru_cache(4096)
def count_cuts(n: int, chunk: int, extent: int) -> float:
    """Return the number of pairs of a chunk and a box along an axis that meet, for each chunk.

    >>> count_cuts(1000, 10, 100), count_cuts(1000, 100, 10), count_cuts(12, 4, 6)
    (1.0, 10.0, 1.3333333333333333)
    """
    if n == 0:
        return 1.0
    count = min(-(-n // extent), 1 << 16)
    begins = np.arange(count, dtype=np.int64) * extent
    ends = np.minimum(begins + extent, n)
    met = int((-(-ends // chunk) - begins // chunk).sum())
    return met / -(-int(ends[-1]) // chunk)


def source_side(tensor: StoredTensor, src: MemoryDesc) -> ChunkedSide:
    """Return the source of a pass: a tensor that is read as `src`."""
    is_plain = src == tensor.desc and tensor.chunks is not None
    desc = row_major(src.dims, src.require_layout(tensor.label)[1]) if is_plain else src
    chunk = tensor.properties.chunk if is_plain and tensor.properties is not None else None
    return ChunkedSide(desc, logical_chunks(tensor, src), chunk)


def logical_chunks(tensor: StoredTensor, src: MemoryDesc) -> Dims | None:
    """Return the extents of the chunks of an array along the axes of `src`; None if they are not known.

    An array that is read in a format has one axis for each digit.

    >>> tensor = StoredTensor("w", "float32", (6, 5), 0, 120, None, chunks=(2, 5))
    >>> logical_chunks(tensor, MemoryDesc((5, 6), "f32", "ba"))
    (5, 2)
    """
    if tensor.chunks is None or src == tensor.desc:
        return tensor.chunks
    order = plain_order(src)
    if order is not None and len(order) == len(tensor.chunks):
        return tuple(tensor.chunks[order.index(axis)] for axis in range(len(order)))
    if src.tag is None or len(tensor.chunks) < src.ndims:
        return None
    tag = FormatTag.parse(src.tag)
    outer = zip(tag.order, tensor.chunks, strict=False)
    found = {axis: min(count * tag.blocks(axis), src.dims[axis]) for axis, count in outer}
    return tuple(max(found[axis], 1) for axis in range(src.ndims))


@lru_cache(4096)
def plan_passes(source: ChunkedSide, target: ChunkedSide, limit: int, *, is_local: bool) -> PassPlan | TwoPasses:
    """Return the passes of a conversion: one if it reads the source at most twice, or if two read no less.

    `limit` is the memory of a task in bytes, source and result together. Chunks of an intermediate array in local files
    are read in parts.

    Raises:
        InvalidArguments: a chunk does not fit into `limit`.
    """
    single = plan_pass(source, target, limit)
    if source.chunks is None or target.chunks is None or single.cost <= MOST_READS:
        return single
    double = plan_two_passes(source, target, limit, is_local)
    return single if double is None or double.first.cost + double.second.cost >= single.cost else double


def plan_pass(source: ChunkedSide, target: ChunkedSide, limit: int) -> PassPlan:
    """Return the boxes of one pass that read the source least, of about 8 MiB if memory allows.

    Raises:
        InvalidArguments: no box fits into `limit`.
    """
    wanted = max(source.wanted_nbytes, target.wanted_nbytes)

    def nbytes(extents: Dims) -> int:
        scratch = max(source.scratch(extents), target.scratch(extents))
        return ceil(prod(extents) * source.itemsize) + target.box_nbytes(extents) + scratch

    choices = _candidates(source, target)
    fitting = [extents for extents in product(*choices) if nbytes(extents) <= limit]
    if not fitting:
        smallest = tuple(options[0] for options in choices)
        raise InvalidArguments(
            f"a box {smallest} of a tensor {source.desc.dims} takes {nbytes(smallest)} bytes with the chunks that it "
            f"touches, and {limit} are allowed: allow more (--memory), or choose smaller chunks (--chunks)"
        )

    def cost(extents: Dims) -> tuple[bool, int, float]:
        reads, writes = source.cost(extents), 1.0 if target.chunks is not None else target.cost(extents)
        is_read_often = source.chunks is not None and reads > MOST_READS
        return is_read_often, round(8 * log2(reads * writes)), abs(log2(nbytes(extents) / wanted))

    best = min(fitting, key=cost)
    for axis in range(len(best)):
        longer = _lengthen(best, axis, source, target, lambda extents: nbytes(extents) <= limit)
        best = min(best, longer, key=cost)
    return PassPlan(best, source.reads(best), source.cost(best))


def _lengthen(extents: Dims, axis: int, source: ChunkedSide, target: ChunkedSide, fits: Callable[[Dims], bool]) -> Dims:
    """Return the longest box along an axis that fits and exists on both sides, in chunks of the target or of both."""
    unit, n = lcm(target.unit[axis], source.unit[axis]), source.desc.dims[axis]
    if extents[axis] % unit:
        unit = target.unit[axis]
    low, high = extents[axis] // unit, n // unit

    def with_count(count: int) -> Dims:
        return (*extents[:axis], count * unit, *extents[axis + 1 :])

    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(with_count(middle)) else (low, middle - 1)
    longer = with_count(low)
    units = tuple(map(max, longer, extents))
    exists = low * unit > extents[axis] and units[axis] in candidate_extents(source.desc, _free(target), units)[axis]
    return longer if exists else extents


def _candidates(source: ChunkedSide, target: ChunkedSide) -> list[list[int]]:
    """Return possible extents along each axis, ascending: multiples of target chunks, and of chunks of both sides."""
    unit = target.unit
    common = tuple(map(lcm, unit, source.unit))
    either = [candidate_extents(source.desc, _free(target), units) for units in (unit, common)]
    lists = [sorted({*a, *b}) for a, b in zip(*either, strict=True)]
    while prod(map(len, lists)) > _MOST_COMBINATIONS:
        longest = max(lists, key=len)
        # The first and the last extent stay: the smallest box, and the whole axis.
        longest[1:-1] = longest[1:-1][1::2]
    return lists


def _free(side: ChunkedSide) -> MemoryDesc:
    """Return a descriptor that restricts boxes only where the tensor is one range of bytes."""
    if side.chunks is None:
        return side.desc
    return row_major(side.desc.dims, side.desc.require_layout("a tensor")[1])


def plan_two_passes(source: ChunkedSide, target: ChunkedSide, limit: int, is_local: bool) -> TwoPasses | None:
    """Return two passes through an intermediate array; None if its chunks or theirs do not fit into `limit`.

    Chunks at the end of an axis are padded, so boxes that fill the limit may turn out too large: then shorter ones are
    tried.
    """
    plans = [_plan_two_passes(source, target, limit, limit * share // 8, is_local) for share in (8, 6, 4)]
    found = [each for each in plans if each is not None]
    return min(found, key=lambda each: each.first.cost + each.second.cost, default=None)


def _plan_two_passes(
    source: ChunkedSide, target: ChunkedSide, limit: int, wanted: int, is_local: bool
) -> TwoPasses | None:
    """Return two passes whose intermediate chunks are for boxes of `wanted` bytes; None if they do not fit."""
    data_type, dims = source.desc.require_layout("a tensor")[1], source.desc.dims

    def first_nbytes(extents: Dims) -> int:
        return 2 * ceil(prod(extents) * source.itemsize) + source.scratch(extents)

    def second_nbytes(extents: Dims) -> int:
        return ceil(prod(extents) * source.itemsize) + target.box_nbytes(extents) + target.scratch(extents)

    read = _grow(dims, source.unit, target.unit, lambda extents: first_nbytes(extents) <= wanted)
    write = _grow(dims, target.unit, source.unit, lambda extents: second_nbytes(extents) <= wanted)
    if read is None or write is None:
        return None
    chunks = tuple(_divisor(r, w, n) for r, w, n in zip(read, write, dims, strict=True))
    middle = ChunkedSide(row_major(dims, data_type), chunks, row_major(chunks, data_type) if is_local else None)
    try:
        return TwoPasses(plan_pass(source, middle, limit), chunks, plan_pass(middle, target, limit))
    except InvalidArguments:
        return None


def _grow(dims: Dims, unit: Dims, wanted: Dims, fits: Callable[[Dims], bool]) -> Dims | None:
    """Return multiples of `unit` that approach `wanted` evenly as far as they fit; None if `unit` does not fit."""
    extents = tuple(map(min, unit, dims))
    if not fits(extents):
        return None
    open_axes = set(range(len(dims)))
    while open_axes:
        axis = max(open_axes, key=lambda i: min(wanted[i], dims[i]) / extents[i])
        larger = (*extents[:axis], min(2 * extents[axis], dims[axis]), *extents[axis + 1 :])
        if extents[axis] >= min(wanted[axis], dims[axis]) or not fits(larger):
            open_axes.remove(axis)
        else:
            extents = larger
    return extents


def _divisor(read: int, write: int, n: int) -> int:
    """Return the extent of intermediate chunks: it divides the boxes of pass 1, and is about that of pass 2."""
    if read >= n:
        return min(write, n)
    return max(d for d in _divisors(read) if d <= write)


def _divisors(n: int) -> Iterator[int]:
    """Yield all divisors of n."""
    for d in range(1, int(n**0.5) + 1):
        if n % d == 0:
            yield d
            yield n // d
