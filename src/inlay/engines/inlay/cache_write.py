"""Cache write: a copy of rows whose destination begins at a position that is known at the run.

    dst[position : position + rows] = src       along the axis, at the address dst + position * stride

The position is read at each call, so one implementation writes all steps of decoding. A compiled reorder moves the
rows. Rows that are runs of bytes at equal distances on both sides, as in decoding, can also be copied by a function
between two primitives of a batch of another engine: a decoder writes two states per layer, and the batch then goes on.
"""

from collections.abc import Callable, Mapping
from ctypes import c_int64
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.buffers import address_of
from inlay.memory.reorder_cache import find_reorder
from inlay.primitives.engine import MachineCall, Operation, PlainImplementation
from inlay.reordering.target import host_target, load_permanently


def supports_cache_write(operation: Operation) -> bool:
    """Return whether the operation is a write at equal distances along the axis, of elements of whole bytes."""
    return operation.kind == "cache_write" and _find_stride(operation) is not None


def create_cache_write(operation: Operation) -> PlainImplementation:
    """Compile the reorder of the rows, and load the function that copies runs of bytes where it can.

    Raises:
        Unimplemented: positions are not at equal distances in memory, or the rows cannot be reordered.
    """
    stride = _find_stride(operation)
    if stride is None:
        raise Unimplemented("the positions of dst are not at equal distances of whole bytes: describe it with strides")
    descs = operation.descs
    src, dst, axis = descs["src"], descs["dst"], _axis(operation)
    move = find_reorder(src, dst.submemory(src.dims, (0,) * dst.ndims)).run
    count, extent = src.dims[axis], dst.dims[axis]
    runs = _find_runs(src, dst)
    entry = _copy_entry() if runs is not None else None

    def refuse(position: c_int64) -> InvalidArguments:
        return InvalidArguments(
            f"CacheWrite: position is {position.value}: it is from 0 to {extent - count}, since dst has {extent} "
            f"elements along axis {axis} and src {count}"
        )

    def bind_reorder(memories: Mapping[str, Memory]) -> Callable[[], None]:
        rows, place, cache = memories["src"], memories["position"], memories["dst"]
        position = c_int64.from_address(place.address)
        rows_address, cache_address, last = rows.address, cache.address, extent - count

        def run(owners: object = memories) -> None:
            first = position.value
            if not 0 <= first <= last:
                raise refuse(position)
            move(rows_address, cache_address + first * stride)

        return run

    def bind_copy(runs: StridedRuns, entry: int, memories: Mapping[str, Memory]) -> MachineCall:
        rows, place, cache = memories["src"], memories["position"], memories["dst"]
        addresses = rows.address + runs.src_offset, cache.address + runs.dst_offset, place.address
        words = (*addresses, extent - count, stride, runs.count, runs.src_step, runs.dst_step, runs.nbytes)
        table = np.array(words, np.int64)
        failure = partial(refuse, c_int64.from_address(place.address))
        return MachineCall(entry, address_of(table), 0, (table, memories), failure)

    if runs is None or entry is None:
        return PlainImplementation(operation, descs, "compiled", bind_reorder)
    return PlainImplementation(operation, descs, "compiled", partial(bind_copy, runs, entry), is_batched=True)


def _axis(operation: Operation) -> int:
    """Return the axis of the positions."""
    axis = operation.parameters["axis"]
    assert isinstance(axis, int)
    return axis


def _find_stride(operation: Operation) -> int | None:
    """Return the bytes between neighboring positions of the destination; None if they differ."""
    src, dst = operation.descs["src"], operation.descs["dst"]
    if not _is_plain(src) or not _is_plain(dst) or dst.data_type is None:
        return None
    return dst.strides[_axis(operation)] * dst.data_type.itemsize


def _is_plain(desc: MemoryDesc) -> bool:
    """Return whether a descriptor has a stride for each axis, and elements of whole bytes."""
    is_whole = desc.data_type is not None and not desc.data_type.is_sub_byte
    return desc.kind == "blocked" and isinstance(desc.layout, Layout) and not desc.inner_blocks and is_whole


@dataclass(frozen=True, slots=True)
class StridedRuns:
    """Rows as runs of consecutive bytes at equal distances, in the source and in the destination."""

    count: int
    """Number of runs."""
    nbytes: int
    """Bytes of a run."""
    src_offset: int
    """Bytes before the first run of the source."""
    dst_offset: int
    """Bytes before the first run of the destination at position 0."""
    src_step: int
    """Bytes from a run of the source to the next one."""
    dst_step: int
    """Bytes from a run of the destination to the next one."""


def _find_runs(src: MemoryDesc, dst: MemoryDesc) -> StridedRuns | None:
    """Return the rows as runs of bytes; None if there are more than two loops, or padding.

    >>> _find_runs(MemoryDesc((1, 2, 3), "f32", "abc"), MemoryDesc((9, 2, 3), "f32", "abc"))
    StridedRuns(count=1, nbytes=24, src_offset=0, dst_offset=0, src_step=0, dst_step=0)
    """
    if src.padded_dims != src.dims or dst.padded_dims != dst.dims or dst.data_type is None:
        return None
    loops = sorted(
        ((n, *steps) for n, *steps in zip(src.dims, src.strides, dst.strides, strict=True) if n > 1),
        key=lambda loop: loop[2],
    )
    joined: list[tuple[int, int, int]] = []  # innermost first
    for extent, src_step, dst_step in ((1, 1, 1), *loops):
        if joined and (src_step, dst_step) == tuple(joined[-1][0] * step for step in joined[-1][1:]):
            joined[-1] = (extent * joined[-1][0], *joined[-1][1:])
        else:
            joined.append((extent, src_step, dst_step))
    if len(joined) > 2:
        return None
    size = dst.data_type.itemsize
    count, src_step, dst_step = joined[1] if len(joined) == 2 else (1, 0, 0)
    steps = src_step * size, dst_step * size
    return StridedRuns(count, joined[0][0] * size, src.offset0 * size, dst.offset0 * size, *steps)


_SYMBOL = "inlay_write_rows"
_WORDS = ("src", "dst", "position", "last", "stride", "count", "src_step", "dst_step", "nbytes")
_POINTERS = 3  # of the words, which come first
_LOADED = "\n".join(
    f"%{name}_at = getelementptr i64, ptr %table, i64 {i}\n"
    f"%{name} = load {'ptr' if i < _POINTERS else 'i64'}, ptr %{name}_at"
    for i, name in enumerate(_WORDS)
)
_IR = f"""\
define i32 @{_SYMBOL}(ptr %table, i64 %number) {{
entry:
{_LOADED}
%first = load i64, ptr %position
%is_outside = icmp ugt i64 %first, %last
br i1 %is_outside, label %refused, label %begin
begin:
%offset = mul i64 %first, %stride
%start = getelementptr i8, ptr %dst, i64 %offset
%blocks = and i64 %nbytes, -64
%is_long = icmp ne i64 %blocks, 0
%has_rest = icmp ult i64 %blocks, %nbytes
br label %row
row:
%i = phi i64 [0, %begin], [%i_next, %row_end]
%from_at = mul i64 %i, %src_step
%from = getelementptr i8, ptr %src, i64 %from_at
%to_at = mul i64 %i, %dst_step
%to = getelementptr i8, ptr %start, i64 %to_at
br i1 %is_long, label %block, label %rest
block:
%at = phi i64 [0, %row], [%at_next, %block]
%from_block = getelementptr i8, ptr %from, i64 %at
%to_block = getelementptr i8, ptr %to, i64 %at
%moved = load <64 x i8>, ptr %from_block, align 1
store <64 x i8> %moved, ptr %to_block, align 1
%at_next = add i64 %at, 64
%is_more = icmp ult i64 %at_next, %blocks
br i1 %is_more, label %block, label %rest
rest:
br i1 %has_rest, label %byte, label %row_end
byte:
%k = phi i64 [%blocks, %rest], [%k_next, %byte]
%from_byte = getelementptr i8, ptr %from, i64 %k
%to_byte = getelementptr i8, ptr %to, i64 %k
%one = load i8, ptr %from_byte
store i8 %one, ptr %to_byte
%k_next = add i64 %k, 1
%is_left = icmp ult i64 %k_next, %nbytes
br i1 %is_left, label %byte, label %row_end
row_end:
%i_next = add i64 %i, 1
%has_next = icmp ult i64 %i_next, %count
br i1 %has_next, label %row, label %done
done:
ret i32 0
refused:
ret i32 1
}}
"""


@cache
def _copy_entry() -> int | None:
    """Return the address of `int32_t write_rows(int64_t *table, int64_t)`; None where there is no machine code.

    It copies `count` runs of bytes to the position that it reads, and returns 1 without copying if that is outside.
    """
    try:
        target = host_target()
    except Unimplemented:
        return None
    (address,) = load_permanently(_IR, lambda: _IR, target, _SYMBOL)
    return address
