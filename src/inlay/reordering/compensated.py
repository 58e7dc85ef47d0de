"""Extras of int8 weights: behind the elements, the sums that convolutions want.

Elements are moved by compiled code into the layout alone; the factor of flag 2 is one more step of the formula. Then
the stored weights are summed where they lie (`sums`). For each channel, an entry of the padded dims of the mask,

    flag 1: -128 times the sum of its weights        flag 8: minus that sum

as s32, which wraps beyond its range; 0 for channels of padding.

Source: oneDNN, `memory_extra_desc_t`.
"""

import ctypes
from dataclasses import dataclass
from math import prod

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import ASYMMETRIC_SRC, S8S8, SCALE_ADJUST, Extras
from inlay.errors import Unimplemented
from inlay.reordering.problem import require_factor
from inlay.reordering.sums import ChannelSums, channel_sums
from inlay.reordering.target import host_target

_FACTORS = {S8S8: -128, ASYMMETRIC_SRC: -1}


@dataclass(frozen=True, slots=True)
class Compensation:
    """What is written behind the elements of weights."""

    extras: Extras
    """Those of the weights."""
    parts: tuple[tuple[int, int, ChannelSums], ...]
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


def without_extras(desc: MemoryDesc) -> MemoryDesc:
    """The descriptor of the elements alone."""
    layout, data_type = desc.require_layout("reorder")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=desc.offset0)
