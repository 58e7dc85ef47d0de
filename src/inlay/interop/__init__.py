"""The boundary to frameworks: their names of axes, their tensors, their arrays.

Inside Inlay there is one dialect, oneDNN's: images are N, C, H, W and weights O, I, H, W, whatever the order in memory.
Here stands what others say, and how to read it:

    >>> from inlay.interop import AxisOrder, framework_desc
    >>> AxisOrder.parse("HWIO").tag == AxisOrder.parse("hwio").tag
    True
    >>> framework_desc("tensorflow", "weights", (3, 3, 64, 128), "f32").dims
    (128, 64, 3, 3)

Its rooms: `axis_order`, names such as NHWC; `conventions`, which framework uses which for what; `permuting`, the
transposition that keeps a format; `arrays`, those of NumPy, PyTorch and JAX.
"""

from inlay.interop.arrays import from_array, from_jax, from_torch, to_jax, to_numpy, to_torch
from inlay.interop.axis_order import LOGICAL_ORDERS, AxisOrder, from_logical, to_logical
from inlay.interop.conventions import (
    CONVENTIONS,
    Role,
    conv_orders,
    framework_desc,
    framework_dims,
    framework_shape,
)
from inlay.interop.permuting import permute_with_reorder

__all__ = [
    "CONVENTIONS",
    "LOGICAL_ORDERS",
    "AxisOrder",
    "Role",
    "conv_orders",
    "framework_desc",
    "framework_dims",
    "framework_shape",
    "from_array",
    "from_jax",
    "from_logical",
    "from_torch",
    "permute_with_reorder",
    "to_jax",
    "to_logical",
    "to_numpy",
    "to_torch",
]
