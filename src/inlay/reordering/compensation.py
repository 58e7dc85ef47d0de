"""Compensation of int8 weights: sums over the weights of each channel, stored behind the elements for convolutions.

First, compiled code moves the elements; the factor of flag 2 is one more step of the formula. Then the stored weights
are summed. For each channel, that is for each index of the axes in the mask, including padding,

    flag 1: -128 times the sum of its weights        flag 8: minus that sum

as s32 with wrap-around; 0 for channels of padding.

The digits of the layout belong to kept axes, which number the channels, or to summed axes. Contiguous digits of both
kinds fill the lanes of a register. Compiled code (`emit_sums`) adds such registers over the remaining summed digits, on
several threads. NumPy adds those lanes of the few results that belong to summed digits, and orders the channels.

    16 o of 4 i contiguous, then 4 more i, then h, w and I:   a register of 64 bytes, 4 neighbors to a number,
                                                              steps over 4 i, h, w and I, a sum for each block of 16 o

An axis that ends inside a block is processed as two axes: its whole blocks, and the rest.

Source: oneDNN, `memory_extra_desc_t`.
"""

import ctypes
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import ASYMMETRIC_SRC, S8S8, Extras
from inlay.layout import Dims, Layout
from inlay.layout.axis import split_range
from inlay.reordering.emit_sums import SumKernel
from inlay.reordering.kernel import Words
from inlay.reordering.machine_code import machine_code
from inlay.reordering.target import TargetMachine, host_target
from inlay.reordering.threads import Task, choose_thread_count, run_parts


def without_extras(desc: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of the elements alone."""
    layout, data_type = desc.require_layout("reorder")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=desc.offset0)


_FACTORS = {S8S8: -128, ASYMMETRIC_SRC: -1}


@dataclass(frozen=True, slots=True)
class Compensation:
    """The sums to write behind the elements of weights."""

    extras: Extras
    """The extras of the weights."""
    parts: "tuple[tuple[int, int, ChannelSums], ...]"
    """For each flag: the offset in bytes at which its sums are written, their factor, and the sums themselves. Flags
    with the same mask share the sums."""

    def write(self, address: int) -> None:
        """Compute the sums of the weights in the buffer at `address`, and write them to it."""
        results = {sums: sums.compute(address) for _, _, sums in self.parts}
        for offset, factor, sums in self.parts:
            numbers = np.multiply(results[sums], factor, dtype=np.int32, order="C")
            ctypes.memmove(address + offset, numbers.__array_interface__["data"][0], numbers.nbytes)

    def __str__(self) -> str:
        """Return the extras in words."""
        return repr(self.extras)


def build_compensation(dst: MemoryDesc) -> Compensation | None:
    """Build the compensation of a reorder to `dst`, which `require_extras` accepts; None if it has none."""
    sizes = dst.extras.buffer_sizes(dst.padded_dims)
    if not sizes or not prod(dst.dims):
        return None
    layout, _ = dst.require_layout("reorder")
    masks = {S8S8: dst.extras.compensation_mask, ASYMMETRIC_SRC: dst.extras.asymmetric_mask}
    sums = {mask: build_channel_sums(layout, dst.offset0, mask, host_target()) for mask in set(masks.values()) - {0}}
    offset, parts = dst.size - sum(sizes.values()), []
    for flag, nbytes in sizes.items():
        parts.append((offset, _FACTORS[flag], sums[masks[flag]]))
        offset += nbytes
    return Compensation(dst.extras, tuple(parts))


# Sums of weights per channel


_SUMMED = -1
"""The axis number of digits that are summed."""


@dataclass(frozen=True, slots=True)
class _SumDigit:
    """One digit of the layout of the weights: a loop over them."""

    extent: int
    stride: int
    axis: int
    """Number of the kept axis that the digit belongs to, or `_SUMMED`."""
    weight: int
    """Increment of the coordinate of that axis for one step."""

    def split(self, extent: int) -> tuple["_SumDigit", "_SumDigit"]:
        """Split the digit into its low part, of `extent` values, and the rest."""
        above = _SumDigit(self.extent // extent, self.stride * extent, self.axis, self.weight * extent)
        return replace(self, extent=extent), above


_ONCE = _SumDigit(1, 0, _SUMMED, 1)


@dataclass(frozen=True, slots=True, eq=False)
class _ChannelSumPart:
    """The sums over a box of weights in which every axis has whole digits."""

    channels: tuple[slice, ...]
    """The coordinates of the box along the kept axes."""
    start: int
    """Offset of the first weight in elements."""
    task: Task
    """The kernel that computes the sums."""
    table: Words
    """The words that the kernel reads."""
    address: int
    """Address of these words."""
    extents: Dims
    """Shape of the kernel's result: the digits that number it, outermost first."""
    summed: tuple[int, ...]
    """Axes of that shape that NumPy sums."""
    order: tuple[int, ...]
    """Permutation of the remaining axes to the order of the channels."""
    moved: int
    """Number of bytes that are read."""

    def compute(self, weights: int) -> npt.NDArray[np.int32]:
        """Return the sum of each channel of the weights at this address, in 32-bit integers with wrap-around."""
        numbers = np.empty(self.extents, np.int32)
        dst: int = numbers.__array_interface__["data"][0]
        task, src = self.task, weights + self.start
        parts = min(choose_thread_count(self.moved), task.tiles)
        if parts > 1:
            run_parts(task, src, dst, self.address, parts)
        else:
            task.entry(src, dst, self.address, 0, task.tiles)
        sums_by_channel: npt.NDArray[np.int32] = numbers.sum(self.summed, np.int32) if self.summed else numbers
        return sums_by_channel.transpose(self.order)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelSums:
    """The computation of the channel sums of some weights; it may be repeated, also from several threads at once."""

    shape: Dims
    """The padded dims of the kept axes."""
    parts: tuple[_ChannelSumPart, ...]
    """Boxes that together contain each weight once."""

    def compute(self, address: int) -> npt.NDArray[np.int32]:
        """Return the sums of the weights in the buffer at `address`; 0 for channels of padding, which holds zeros."""
        if len(self.parts) == 1:
            return self.parts[0].compute(address).reshape(self.shape)
        sums = np.zeros(self.shape, np.int32)
        for part in self.parts:
            channels = sums[part.channels]
            channels += part.compute(address).reshape(channels.shape)
        return sums


def build_channel_sums(layout: Layout, offset: int, mask: int, target: TargetMachine) -> ChannelSums:
    """Build the computation that sums int8 weights over all axes except those of `mask`.

    Args:
        layout: layout of the weights, with at least one element; its padding holds zeros.
        offset: offset of the coordinate of all zeros in the buffer, in elements.
        mask: has bit i set if axis i is kept.
        target: this machine, or a target whose code runs on it.
    """
    axes = layout.normal_form.axes
    kept = [i for i in range(len(axes)) if mask >> i & 1]
    parts = []
    for box in product(*(tuple(split_range(axis, 0, n)) for axis, n in zip(axes, layout.dims, strict=True))):
        digits = [
            _SumDigit(step.extent, step.stride, kept.index(i) if i in kept else _SUMMED, step.weight)
            for i, run in enumerate(box)
            for step in reversed(run.digits)
        ]
        channels = tuple(slice(box[i].start, box[i].start + box[i].count) for i in kept)
        start = offset + sum(run.offset for run in box)
        parts.append(_build_part(channels, start, digits, target))
    return ChannelSums(tuple(layout.dims[i] for i in kept), tuple(parts))


_NEIGHBORS = 4  # maximum number of consecutive weights that are added to one number


def _build_part(
    channels: tuple[slice, ...], start: int, digits: list[_SumDigit], target: TargetMachine
) -> _ChannelSumPart:
    """Build the code and the table for a box of weights with these digits."""
    lanes, loops = _split_lanes(_join_rows([digit for digit in digits if digit.extent > 1]), target.vector_bytes)
    kernel = SumKernel(prod(d.extent for d in lanes), 1)
    if lanes and lanes[0].axis == _SUMMED:
        kernel = replace(kernel, neighbors=min(_NEIGHBORS, lanes[0].extent))
        lanes[:1] = [above for above in lanes[0].split(kernel.neighbors)[1:] if above.extent > 1]
    outer = [d for d in loops if d.axis != _SUMMED]  # number the sums; summed digits are added for each
    steps, *around = sorted((d for d in loops if d.axis == _SUMMED), key=lambda d: abs(d.stride)) or [_ONCE]
    words = [len(outer), len(around), steps.extent, steps.stride, prod(d.extent for d in around)]
    words += [word for d in (*outer, *around) for word in (d.extent, d.stride)]
    table = np.array(words, np.int64)
    code = machine_code(kernel, target)
    # The result of the kernel is an array with an axis for each of these digits.
    axes = (*reversed(outer), *reversed(lanes))
    kept = [d for d in axes if d.axis != _SUMMED]
    return _ChannelSumPart(
        channels=channels,
        start=start,
        task=Task(code.entry, code.address, prod(d.extent for d in outer), keeps_alive=code),
        table=table,
        address=int(table.ctypes.data),
        extents=tuple(d.extent for d in axes),
        summed=tuple(i for i, d in enumerate(axes) if d.axis == _SUMMED),
        order=tuple(sorted(range(len(kept)), key=lambda i: (kept[i].axis, -kept[i].weight))),
        moved=prod(d.extent for d in digits),
    )


def _split_lanes(loops: list[_SumDigit], width: int) -> tuple[list[_SumDigit], list[_SumDigit]]:
    """Split the digits into those that fill a register with up to `width` contiguous weights, and the rest."""
    lanes: list[_SumDigit] = []
    filled = 1
    while filled < width:
        low = next((d for d in loops if d.stride == filled), None)
        count = 1 if low is None else min(width // filled, low.extent & -low.extent)
        if low is None or count == 1:
            break
        loops.remove(low)
        lane, above = low.split(count)
        lanes.append(lane)
        loops += [above] if above.extent > 1 else []
        filled *= count
    return lanes, loops


def _join_rows(digits: list[_SumDigit]) -> list[_SumDigit]:
    """Join summed digits that are contiguous; return all digits."""
    joined = [digit for digit in digits if digit.axis != _SUMMED]
    for digit in sorted((d for d in digits if d.axis == _SUMMED), key=lambda d: d.stride):
        last = joined[-1] if joined else None
        if last is not None and last.axis == _SUMMED and digit.stride == last.stride * last.extent:
            joined[-1] = replace(last, extent=last.extent * digit.extent)
        else:
            joined.append(digit)
    return joined
