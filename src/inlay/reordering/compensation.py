"""Extras of int8 weights: behind the elements, the sums that convolutions want.

Elements are moved by compiled code into the layout alone; the factor of flag 2 is one more step of the formula. Then
the stored weights are summed where they lie. For each channel, an entry of the padded dims of the mask,

    flag 1: -128 times the sum of its weights        flag 8: minus that sum

as s32, which wraps beyond its range; 0 for channels of padding.

The digits of the layout are of two kinds: those of the axes that the mask keeps say which channel, the others are
summed over. What lies in a row fills the lanes of a register, whatever kind it is of; compiled code (`emit_sums`) adds
such registers up over the summed digits that are left, on several threads, and NumPy adds the summed lanes of the few
results and puts the channels in order.

    16 o of 4 i in a row, then 4 more i, then h, w and I:   a register of 64 bytes, 4 neighbors to a number,
                                                            steps over 4 i, h, w and I, a sum for each block of 16 o

An axis that ends inside a block is two axes, one behind the other: its whole blocks, and the rest.

Source: oneDNN, `memory_extra_desc_t`.
"""

import ctypes
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import ASYMMETRIC_SRC, S8S8, SCALE_ADJUST, Extras
from inlay.errors import Unimplemented
from inlay.layout import Dims, Layout
from inlay.layout.axis import split_range
from inlay.reordering.emit_sums import SumKernel
from inlay.reordering.kernel import Words
from inlay.reordering.machine_code import machine_code
from inlay.reordering.problem import require_factor
from inlay.reordering.target import Target, host_target
from inlay.reordering.threads import Task, parts_for, run_parts


def require_extras(src: MemoryDesc, dst: MemoryDesc) -> None:
    """Refuse extras that a reorder does not compute or undo.

    Raises:
        Unimplemented: the destination has extras of an RNN or a GPU, compensation for other weights than s8 or without
            room of its own, or the weights of the source were multiplied by another factor.
    """
    extras = dst.extras
    require_factor(src, extras.scale_adjust)
    if extras.flags & ~(S8S8 | SCALE_ADJUST | ASYMMETRIC_SRC):
        raise Unimplemented(
            f"the destination has extras of an RNN or a GPU ({extras!r}), which a reorder does not compute: give it "
            "flags 1, 2 and 8 only"
        )
    if not extras.flags & (S8S8 | ASYMMETRIC_SRC):
        return
    layout, data_type = dst.require_layout("reorder")
    if data_type.name != "s8":
        raise Unimplemented(f"compensation is a sum of s8 weights, and the destination is {data_type}: make it s8")
    end = dst.offset0 + layout.span[1]
    behind = dst.size - sum(extras.buffer_sizes(dst.padded_dims).values())
    if layout.size and end > behind:
        raise Unimplemented(
            f"elements of the destination reach byte {end}, and its compensation starts at byte {behind}: reorder to "
            "the whole tensor, not to a part of it"
        )


def without_extras(desc: MemoryDesc) -> MemoryDesc:
    """The descriptor of the elements alone."""
    layout, data_type = desc.require_layout("reorder")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=desc.offset0)


_FACTORS = {S8S8: -128, ASYMMETRIC_SRC: -1}


@dataclass(frozen=True, slots=True)
class Compensation:
    """What is written behind the elements of weights."""

    extras: Extras
    """Those of the weights."""
    parts: "tuple[tuple[int, int, ChannelSums], ...]"
    """For each flag, at which byte, what sums are multiplied by, how they are made; flags of one mask share sums."""

    def write(self, address: int) -> None:
        """Write the sums of the weights in the buffer at `address` behind them."""
        made = {sums: sums.added(address) for _, _, sums in self.parts}
        for behind, factor, sums in self.parts:
            numbers = np.multiply(made[sums], factor, dtype=np.int32, order="C")
            ctypes.memmove(address + behind, numbers.__array_interface__["data"][0], numbers.nbytes)

    def __str__(self) -> str:
        """The extras."""
        return repr(self.extras)


def compensation_of(dst: MemoryDesc) -> Compensation | None:
    """What a reorder to `dst`, which `require_extras` lets pass, writes behind its elements; None for nothing."""
    sizes = dst.extras.buffer_sizes(dst.padded_dims)
    if not sizes or not prod(dst.dims):
        return None
    layout, _ = dst.require_layout("reorder")
    masks = {S8S8: dst.extras.compensation_mask, ASYMMETRIC_SRC: dst.extras.asymmetric_mask}
    made = {mask: channel_sums(layout, dst.offset0, mask, host_target()) for mask in set(masks.values()) - {0}}
    behind, parts = dst.size - sum(sizes.values()), []
    for flag, nbytes in sizes.items():
        parts.append((behind, _FACTORS[flag], made[masks[flag]]))
        behind += nbytes
    return Compensation(dst.extras, tuple(parts))


# Sums of weights per channel


_SUMMED = -1
"""The axis of digits that are summed over."""


@dataclass(frozen=True, slots=True)
class _Digit:
    """A loop over the weights."""

    extent: int
    stride: int
    axis: int
    """Which of the kept axes it is of, or `_SUMMED`."""
    weight: int
    """What one step adds to the coordinate of that axis."""

    def cut(self, extent: int) -> tuple["_Digit", "_Digit"]:
        """Its low part, of so many values, and the rest."""
        above = _Digit(self.extent // extent, self.stride * extent, self.axis, self.weight * extent)
        return replace(self, extent=extent), above


_ONCE = _Digit(1, 0, _SUMMED, 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Sums over weights that whole digits describe."""

    place: tuple[slice, ...]
    """Their coordinates along the kept axes."""
    start: int
    """Elements to the first weight."""
    task: Task
    """What adds them up."""
    table: Words
    """The numbers that it reads."""
    address: int
    """Where these lie."""
    extents: Dims
    """What the numbers of all sums go over, slowest first."""
    summed: tuple[int, ...]
    """Which of these are to be summed over too."""
    order: tuple[int, ...]
    """Which come first, of the others, where channels are in order."""
    moved: int
    """The bytes that are read."""

    def added(self, weights: int) -> npt.NDArray[np.int32]:
        """The sum of each channel, of weights that begin at this address; it wraps around beyond 32 bits."""
        numbers = np.empty(self.extents, np.int32)
        found: int = numbers.__array_interface__["data"][0]
        task, src = self.task, weights + self.start
        parts = min(parts_for(self.moved), task.tiles)
        if parts > 1:
            run_parts(task, src, found, self.address, parts)
        else:
            task.entry(src, found, self.address, 0, task.tiles)
        kept: npt.NDArray[np.int32] = numbers.sum(self.summed, np.int32) if self.summed else numbers
        return kept.transpose(self.order)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelSums:
    """The sums of some weights per channel, as often as wanted and from several threads at once."""

    shape: Dims
    """The padded dims of the axes that are kept."""
    parts: tuple[_Part, ...]
    """Where each weight is in one of."""

    def added(self, address: int) -> npt.NDArray[np.int32]:
        """The sums of the weights in the buffer at `address`; 0 for channels of padding, which holds zeros."""
        if len(self.parts) == 1:
            return self.parts[0].added(address).reshape(self.shape)
        sums = np.zeros(self.shape, np.int32)
        for part in self.parts:
            room = sums[part.place]
            room += part.added(address).reshape(room.shape)
        return sums


def channel_sums(layout: Layout, offset: int, mask: int, target: Target) -> ChannelSums:
    """How to sum int8 weights over all axes but those of `mask`.

    Args:
        layout: of the weights, with at least one element; its padding holds zeros.
        offset: elements from the start of the buffer to the coordinate of all zeros.
        mask: has bit i set where axis i is kept.
        target: this machine, or one that has no more than this machine.
    """
    axes = layout.normal_form.axes
    kept = [i for i in range(len(axes)) if mask >> i & 1]
    parts = []
    for box in product(*(tuple(split_range(axis, 0, n)) for axis, n in zip(axes, layout.dims, strict=True))):
        digits = [
            _Digit(step.extent, step.stride, kept.index(i) if i in kept else _SUMMED, step.weight)
            for i, run in enumerate(box)
            for step in reversed(run.digits)
        ]
        place = tuple(slice(box[i].start, box[i].start + box[i].count) for i in kept)
        start = offset + sum(run.offset for run in box)
        parts.append(_part(place, start, digits, target))
    return ChannelSums(tuple(layout.dims[i] for i in kept), tuple(parts))


_NEIGHBORS = 4


def _part(place: tuple[slice, ...], start: int, digits: list[_Digit], target: Target) -> _Part:
    """The code and the table for weights that these digits describe."""
    lanes, loops = _in_lanes(_in_rows([digit for digit in digits if digit.extent > 1]), target.vector_bytes)
    kernel = SumKernel(prod(d.extent for d in lanes), 1)
    if lanes and lanes[0].axis == _SUMMED:
        kernel = replace(kernel, neighbors=min(_NEIGHBORS, lanes[0].extent))
        lanes[:1] = [above for above in lanes[0].cut(kernel.neighbors)[1:] if above.extent > 1]
    which = [d for d in loops if d.axis != _SUMMED]
    steps, *around = sorted((d for d in loops if d.axis == _SUMMED), key=lambda d: abs(d.stride)) or [_ONCE]
    words = [len(which), len(around), steps.extent, steps.stride, prod(d.extent for d in around)]
    words += [word for d in (*which, *around) for word in (d.extent, d.stride)]
    table = np.array(words, np.int64)
    code = machine_code(kernel, target)
    numbers = (*reversed(which), *reversed(lanes))
    kept = [d for d in numbers if d.axis != _SUMMED]
    return _Part(
        place=place,
        start=start,
        task=Task(code.entry, code.address, prod(d.extent for d in which), kept=code),
        table=table,
        address=int(table.ctypes.data),
        extents=tuple(d.extent for d in numbers),
        summed=tuple(i for i, d in enumerate(numbers) if d.axis == _SUMMED),
        order=tuple(sorted(range(len(kept)), key=lambda i: (kept[i].axis, -kept[i].weight))),
        moved=prod(d.extent for d in digits),
    )


def _in_lanes(loops: list[_Digit], width: int) -> tuple[list[_Digit], list[_Digit]]:
    """The digits that fill the lanes of a register with up to `width` weights in a row, and those that are left."""
    lanes: list[_Digit] = []
    filled = 1
    while filled < width:
        low = next((d for d in loops if d.stride == filled), None)
        count = 1 if low is None else min(width // filled, low.extent & -low.extent)
        if low is None or count == 1:
            break
        loops.remove(low)
        lane, above = low.cut(count)
        lanes.append(lane)
        loops += [above] if above.extent > 1 else []
        filled *= count
    return lanes, loops


def _in_rows(digits: list[_Digit]) -> list[_Digit]:
    """The digits, with summed ones that follow one another joined."""
    joined = [digit for digit in digits if digit.axis != _SUMMED]
    for digit in sorted((d for d in digits if d.axis == _SUMMED), key=lambda d: d.stride):
        last = joined[-1] if joined else None
        if last is not None and last.axis == _SUMMED and digit.stride == last.stride * last.extent:
            joined[-1] = replace(last, extent=last.extent * digit.extent)
        else:
            joined.append(digit)
    return joined
