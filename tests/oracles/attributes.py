"""Reorders of the real oneDNN with attributes.

    run(src, src_buffer, dst, dst_buffer, Attributes(src_scales=Scales(mask=2)), {"src_scales": numbers})

oneDNN 3.2 knows scales of f32 and zero points of s32 without groups, 3.13 all that `Attributes` can say.

Source: `dnnl.h` and `dnnl_types.h`.
"""

from collections.abc import Mapping
from ctypes import byref, c_float, c_int, c_int64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.reordering.attributes import Attributes, Scales
from tests.oracles import onednn
from tests.oracles.extras import flagged

_ARG = {"src": 1, "dst": 17}
_SCALES, _ZERO_POINTS = 4096, 8192
_STOCHASTIC = 1


def _set(attr: c_void_p, name: str, entry: Any) -> None:
    lib, arg = onednn.library(), _ARG[name[:3]]
    kind = "scales" if isinstance(entry, Scales) else "zero_points"
    if onednn.version() >= (3, 5):
        sizes = (c_int64 * 2)(*entry.groups)
        call = getattr(lib, f"dnnl_primitive_attr_set_{kind}")
        onednn.check(call(attr, arg, entry.mask, len(entry.groups), sizes, entry.type.code))
        return
    if entry.groups or entry.data_type not in ("f32", "s32"):
        raise onednn.Refused(2)
    onednn.check(getattr(lib, f"dnnl_primitive_attr_set_{kind}_mask")(attr, arg, entry.mask))


def _made(attributes: Attributes) -> c_void_p:
    lib, attr = onednn.library(), c_void_p()
    onednn.check(lib.dnnl_primitive_attr_create(byref(attr)))
    for name in attributes.names:
        _set(attr, name, attributes.entry(name))
    if attributes.sum is not None:
        ops = c_void_p()
        onednn.check(lib.dnnl_post_ops_create(byref(ops)))
        onednn.check(lib.dnnl_post_ops_append_sum(ops, c_float(attributes.sum), c_int(0), c_int(0)))
        onednn.check(lib.dnnl_primitive_attr_set_post_ops(attr, ops))
        lib.dnnl_post_ops_destroy(ops)
    if attributes.rounding_mode == "stochastic":
        if onednn.version() < (3, 6):
            raise onednn.Refused(3)
        onednn.check(lib.dnnl_primitive_attr_set_rounding(attr, _ARG["dst"], _STOCHASTIC))
    return attr


def reorder(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes) -> onednn.Reorder:
    """The compiled reorder; raises `Refused` where oneDNN has none."""
    attr = _made(attributes)
    try:
        return onednn.Reorder(flagged(onednn.mirror(src), src.extras), flagged(onednn.mirror(dst), dst.extras), attr)
    finally:
        onednn.library().dnnl_primitive_attr_destroy(attr)


def run(
    src: MemoryDesc,
    src_buffer: npt.NDArray[np.uint8],
    dst: MemoryDesc,
    dst_buffer: npt.NDArray[np.uint8],
    attributes: Attributes,
    values: Mapping[str, npt.NDArray[Any]],
) -> None:
    """Move the elements by oneDNN; raises `Refused` where it has no implementation."""
    others = []
    kept = []
    for name in attributes.names:
        entry = attributes.entry(name)
        array = np.ascontiguousarray(values[name])
        if entry.type.bits == 4:
            nibbles = np.append(array.ravel(), np.zeros(array.size % 2, np.uint8))
            array = (nibbles[::2] & 15 | nibbles[1::2] << 4).astype(np.uint8)
        count = max(values[name].size, 1)
        kept.append(array)
        code = (_SCALES if isinstance(entry, Scales) else _ZERO_POINTS) | _ARG[name[:3]]
        others.append((code, onednn.by_strides((count,), entry.type.code, None), array.ctypes.data))
    reorder(src, dst, attributes).run(src_buffer.ctypes.data, dst_buffer.ctypes.data, others)
    assert kept is not None


def raw(what: str, attr_call: Any) -> int:
    """The status of one setter on fresh attributes, for what `Attributes` cannot say."""
    attr = c_void_p()
    onednn.check(onednn.library().dnnl_primitive_attr_create(byref(attr)))
    try:
        status: int = attr_call(getattr(onednn.library(), f"dnnl_primitive_attr_{what}"), attr)
        return status
    finally:
        onednn.library().dnnl_primitive_attr_destroy(attr)
