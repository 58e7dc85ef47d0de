"""Scaling, shifting and summing as somebody does it who has PyTorch: one operator per step, into prepared memory.

    f32 -> s8     torch.mul(x, scales, out=y); y.add_(points).round_().clamp_(-128, 127); q.copy_(y)
    s8 -> f32     torch.mul(q, scales, out=x)

PyTorch's own quantized tensors are left alone: its operators make a new one at each call.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.buffers import Bytes, huge_buffer
from benchmarks.onednn import Refused
from benchmarks.values import values_of
from inlay.descriptor import MemoryDesc
from inlay.reordering.attributes import Attributes

TORCH_NAMES = {
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "s32": "int32",
    "s8": "int8",
    "u8": "uint8",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
}
"""What PyTorch calls the types that it has."""


def eager_reorder(
    torch: Any, src: MemoryDesc, src_buffer: Bytes, dst: MemoryDesc, dst_buffer: Bytes, attributes: Attributes
) -> Callable[[], None]:
    """A reorder with attributes, as operators on tensors of the logical dims.

    Raises:
        Refused: a side is blocked or of 4 bits, values are in groups, or sums stand behind the weights.
    """
    _require_an_expression(src, dst, attributes)
    x, out = _tensor(torch, src, src_buffer), _tensor(torch, dst, dst_buffer)
    values = {
        name: torch.from_numpy(array.astype(np.float32)) for name, array in values_of(attributes, src.dims).items()
    }
    one = torch.ones(())
    src_scales, dst_scales = values.get("src_scales", one), values.get("dst_scales", one)
    src_points, dst_points = values.get("src_zero_points"), values.get("dst_zero_points")
    beta = attributes.sum
    to = dst.data_type
    assert to is not None
    is_float = to.name == "f32"
    room = out if is_float else _tensor(torch, *_floats_like(dst))
    held = _tensor(torch, *_floats_like(dst)) if is_float and beta is not None else room

    def run() -> None:
        if src_points is None:
            torch.mul(x, src_scales, out=held)
        else:
            torch.sub(x, src_points, out=held)
            held.mul_(src_scales)
        if beta is not None:
            held.add_(out, alpha=beta)
        if "dst_scales" in values:
            held.div_(dst_scales)
        if dst_points is not None:
            held.add_(dst_points)
        if not is_float:
            held.round_().clamp_(to.lowest, to.highest)
        if held is not out:
            out.copy_(held)

    return run


def _require_an_expression(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes) -> None:
    if dst.extras:
        raise Refused("PyTorch and NumPy keep no sums behind weights")
    if any(attributes.entry(name).groups for name in attributes.names):
        raise Refused("PyTorch has no operator with values in groups")
    for desc in (src, dst):
        if desc.data_type is None or desc.data_type.name not in ("f32", "s8", "u8", "s32"):
            raise Refused(f"PyTorch has no such steps for {desc.data_type}")
        if desc.inner_blocks:
            raise Refused("PyTorch has no operator that quantizes into blocks or out of them")


def _tensor(torch: Any, desc: MemoryDesc, buffer: Bytes) -> Any:
    """A tensor of the logical dims in the memory of `buffer`."""
    assert desc.data_type is not None
    flat = torch.from_numpy(buffer[: desc.size]).view(getattr(torch, TORCH_NAMES[desc.data_type.name]))
    return flat.as_strided(desc.dims, desc.strides)


def _floats_like(desc: MemoryDesc) -> tuple[MemoryDesc, Bytes]:
    """Room for f32 in the same order of axes."""
    floats = MemoryDesc(desc.dims, "f32", strides=desc.strides)
    return floats, huge_buffer(floats.size)
