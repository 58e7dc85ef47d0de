"""Reorders to int8 weights with extras: the elements as ever, and behind them the sums that convolutions want.

Elements are moved by compiled code into the layout alone; the factor of flag 2 is one more step of the formula. Then
the stored weights are read back row-major, by compiled code too, and summed. For each channel, an entry of the padded
dims of the mask,

    flag 1: -128 times the sum of its weights        flag 8: minus that sum

as s32, which wraps beyond its range; 0 for channels of padding.

Source: oneDNN, `memory_extra_desc_t`.
"""

import ctypes
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import ASYMMETRIC_SRC, S8S8, SCALE_ADJUST
from inlay.errors import Unimplemented
from inlay.layout import Dims
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.compiled import CompiledReorder, compile_reorder
from inlay.reordering.computed import ComputedReorder, compute_reorder
from inlay.reordering.operands import Operands
from inlay.reordering.problem import ReorderProblem, require_factor

_FACTORS = {S8S8: -128, ASYMMETRIC_SRC: -1}


@dataclass(frozen=True, slots=True)
class CompensatedReorder:
    """A reorder to weights with extras, as often as wanted and from several threads at once."""

    dst: MemoryDesc
    """The destination."""
    elements: ComputedReorder
    """What moves and computes its elements."""
    back: CompiledReorder | None
    """What reads them row-major; None where nothing is summed."""

    @property
    def problem(self) -> ReorderProblem:
        """What is moved and computed, the sums left out."""
        return self.elements.problem

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Move the weights into the buffer at `dst_address` and write their sums behind them."""
        self.elements.run(src_address, dst_address, values or {}, seed)
        if self.back is None:
            return
        weights = np.empty(self.dst.dims, np.int8)
        self.back.run(dst_address, weights.__array_interface__["data"][0])
        extras = self.dst.extras
        sizes = extras.buffer_sizes(self.dst.padded_dims)
        masks = {S8S8: extras.compensation_mask, ASYMMETRIC_SRC: extras.asymmetric_mask}
        at = dst_address + self.dst.size - sum(sizes.values())
        for flag, nbytes in sizes.items():
            numbers = _FACTORS[flag] * _sums(weights, masks[flag], self.dst.padded_dims)
            place = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(at))
            place[:] = numbers.astype(np.int32).ravel().view(np.uint8)
            at += nbytes

    def explain(self, target: str | None = None) -> str:
        """Every stage in words, and what bounds it, on this machine or on the one that is called `target`.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        behind = f"\nbehind the elements\n  {self.dst.extras!r}" if self.back is not None else ""
        return self.elements.explain(target) + behind

    def assembly(self, target: str | None = None) -> str:
        """The assembly of the kernel that moves the elements, on this machine or on the one called `target`.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        return self.elements.assembly(target)


def _sums(weights: npt.NDArray[np.int8], mask: int, padded_dims: Dims) -> npt.NDArray[np.int64]:
    """The sum of the weights of each channel; 0 in channels of padding."""
    kept = [axis for axis in range(weights.ndim) if mask >> axis & 1]
    sums = np.zeros([padded_dims[axis] for axis in kept], np.int64)
    others = tuple(axis for axis in range(weights.ndim) if axis not in kept)
    sums[tuple(slice(weights.shape[axis]) for axis in kept)] = weights.sum(others, np.int64)
    return sums


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


def compensated_reorder(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> CompensatedReorder:
    """The reorder from memory described by `src` to weights described by `dst`, which `require_extras` lets pass.

    Raises:
        InvalidArguments: as `compile_reorder`.
        Unimplemented: as `compute_reorder`.
    """
    factor = 1.0 if src.extras.scale_adjust == dst.extras.scale_adjust else dst.extras.scale_adjust
    plain = [_without_extras(desc) for desc in (src, dst)]
    elements = compute_reorder(plain[0], plain[1], attributes, factor)
    is_summed = bool(dst.extras.buffer_sizes(dst.padded_dims)) and prod(dst.dims) > 0
    back = compile_reorder(plain[1], MemoryDesc(dst.dims, "s8")) if is_summed else None
    return CompensatedReorder(dst, elements, back)


def _without_extras(desc: MemoryDesc) -> MemoryDesc:
    layout, data_type = desc.require_layout("reorder")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=desc.offset0)
