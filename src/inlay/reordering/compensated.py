"""Reorders to int8 weights with extras: the elements as ever, and behind them the sums that convolutions want.

Elements are moved by compiled code into the layout alone; the factor of flag 2 is one more step of the formula. Then
the stored weights are summed where they lie (`sums`). For each channel, an entry of the padded dims of the mask,

    flag 1: -128 times the sum of its weights        flag 8: minus that sum

as s32, which wraps beyond its range; 0 for channels of padding.

Source: oneDNN, `memory_extra_desc_t`.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import ASYMMETRIC_SRC, S8S8, SCALE_ADJUST
from inlay.errors import Unimplemented
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.computed import ComputedReorder, compute_reorder
from inlay.reordering.operands import Operands
from inlay.reordering.problem import ReorderProblem, require_factor
from inlay.reordering.sums import ChannelSums, channel_sums
from inlay.reordering.target import host_target

_FACTORS = {S8S8: -128, ASYMMETRIC_SRC: -1}


@dataclass(frozen=True, slots=True)
class CompensatedReorder:
    """A reorder to weights with extras, as often as wanted and from several threads at once."""

    dst: MemoryDesc
    """The destination."""
    elements: ComputedReorder
    """What moves and computes its elements."""
    sums: tuple[tuple[int, int, ChannelSums], ...]
    """What is written behind them: for each flag, at which byte, what sums are multiplied by, how they are made."""

    @property
    def problem(self) -> ReorderProblem:
        """What is moved and computed, the sums left out."""
        return self.elements.problem

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Move the weights into the buffer at `dst_address` and write their sums behind them."""
        self.elements.run(src_address, dst_address, values or {}, seed)
        made: dict[ChannelSums, npt.NDArray[np.int32]] = {}
        for behind, factor, sums in self.sums:
            if sums not in made:
                made[sums] = sums.added(dst_address)
            numbers = np.multiply(made[sums], factor, dtype=np.int32, order="C")
            ctypes.memmove(dst_address + behind, numbers.__array_interface__["data"][0], numbers.nbytes)

    def explain(self, target: str | None = None) -> str:
        """Every stage in words, and what bounds it, on this machine or on the one that is called `target`.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        behind = f"\nbehind the elements\n  {self.dst.extras!r}" if self.sums else ""
        return self.elements.explain(target) + behind

    def assembly(self, target: str | None = None) -> str:
        """The assembly of the kernel that moves the elements, on this machine or on the one called `target`.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        return self.elements.assembly(target)


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
    return CompensatedReorder(dst, elements, tuple(_sums_of(dst)) if prod(dst.dims) > 0 else ())


def _sums_of(dst: MemoryDesc) -> Iterator[tuple[int, int, ChannelSums]]:
    """What a reorder to `dst` writes behind its elements, in order."""
    layout, _ = dst.require_layout("reorder")
    masks = {S8S8: dst.extras.compensation_mask, ASYMMETRIC_SRC: dst.extras.asymmetric_mask}
    made = {mask: channel_sums(layout, dst.offset0, mask, host_target()) for mask in set(masks.values()) - {0}}
    sizes = dst.extras.buffer_sizes(dst.padded_dims)
    behind = dst.size - sum(sizes.values())
    for flag, nbytes in sizes.items():
        yield behind, _FACTORS[flag], made[masks[flag]]
        behind += nbytes


def _without_extras(desc: MemoryDesc) -> MemoryDesc:
    layout, data_type = desc.require_layout("reorder")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=desc.offset0)
