"""Descriptors of oneDNN with extra flags, written into the private structure, as no C function creates them; blobs.

The extra fields follow a union whose size differs between versions, so their place is found by trial: it is where a
flag makes the library refuse a reshape to the same dims.
"""

import ctypes
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import cache

from inlay.descriptor import Extras
from tests.oracles import onednn

_IDXS = 265
_GEOMETRY = 12


def has_blobs() -> bool:
    """Return True if the library has blobs of descriptors."""
    return hasattr(onednn.library(), "dnnl_memory_desc_get_blob")


def blob(desc: onednn.Desc) -> bytes:
    """`dnnl_memory_desc_get_blob`."""
    get, length = onednn.library().dnnl_memory_desc_get_blob, c_size_t(0)
    assert get(None, byref(length), desc.handle) == 0
    data = ctypes.create_string_buffer(length.value)
    assert get(data, byref(length), desc.handle) == 0
    return data.raw


def _end_of_blocks(desc: onednn.Desc) -> int:
    address = c_void_p()
    assert onednn.library().dnnl_memory_desc_query(desc.handle, _IDXS, byref(address)) == 0
    assert address.value is not None
    return address.value + 8 * onednn.MAX_NDIMS


@cache
def _distance() -> int:
    """Bytes from the end of the inner blocks to the extra flags."""
    for distance in range(0, 320, 8):
        desc = onednn.by_strides((4, 6), 5, None)
        c_uint64.from_address(_end_of_blocks(desc) + distance).value = 1
        try:
            desc.reshape((4, 6))
        except onednn.Refused:
            return distance
    raise AssertionError("no place of the extra flags was found")


def flagged(desc: onednn.Desc, extras: Extras) -> onednn.Desc:
    """`desc` with these extras; returned for convenience."""
    at = _end_of_blocks(desc) + _distance()
    c_uint64.from_address(at).value = extras.flags
    c_int.from_address(at + 8).value = extras.compensation_mask
    c_float.from_address(at + 12).value = extras.scale_adjust
    c_int.from_address(at + 16).value = extras.asymmetric_mask
    if not extras.flags & 32:
        # The structure of 3.2 ends before what the GPU needs.
        return desc
    assert onednn.version() >= (3, 13)
    for i, value in enumerate((*(extras.gpu_geometry or (0,) * _GEOMETRY), extras.gpu_nbytes)):
        c_int64.from_address(at + 24 + 8 * i).value = value
    return desc
