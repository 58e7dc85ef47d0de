"""What oneDNN is told beside two formats: attributes, their values, and sums that stand behind int8 weights.

oneDNN 3.2 knows scales of f32 and zero points of s32 without groups; later versions know all that `Attributes` can say.

No function of oneDNN makes a descriptor with extras: its own drivers, like its convolutions, write them into the
structure. Where they lie differs between versions, and is found by trial: it is where a flag makes the library refuse
a reshape to the same dims.

Source: `dnnl.h` and `dnnl_types.h`; `memory_extra_desc_t` of oneDNN's own headers.
"""

import ctypes
from ctypes import POINTER, byref, c_float, c_int, c_int64, c_uint64, c_void_p

import numpy as np
import numpy.typing as npt

from benchmarks.values import values_of
from inlay.descriptor import Extras
from inlay.errors import InlayError
from inlay.layout import Dims
from inlay.reordering.attributes import Attributes, Entry, Scales

SIGNATURES = {
    "dnnl_primitive_attr_create": (POINTER(c_void_p),),
    "dnnl_primitive_attr_destroy": (c_void_p,),
    "dnnl_primitive_attr_set_scales_mask": (c_void_p, c_int, c_int),
    "dnnl_primitive_attr_set_zero_points_mask": (c_void_p, c_int, c_int),
    "dnnl_primitive_attr_set_post_ops": (c_void_p, c_void_p),
    "dnnl_post_ops_create": (POINTER(c_void_p),),
    "dnnl_post_ops_append_sum": (c_void_p, c_float, c_int, c_int),
    "dnnl_post_ops_destroy": (c_void_p,),
    "dnnl_memory_desc_create_with_strides": (POINTER(c_void_p), c_int, POINTER(c_int64), c_int, POINTER(c_int64)),
    "dnnl_memory_desc_reshape": (POINTER(c_void_p), c_void_p, c_int, POINTER(c_int64)),
    "dnnl_memory_desc_query": (c_void_p, c_int, c_void_p),
}
"""Of the functions that are called here; `dnnl_primitive_attr_set_scales` and its like are newer than 3.2."""
_SET = (c_void_p, c_int, c_int, c_int, POINTER(c_int64), c_int)
_ARGS = {"src": 1, "dst": 17}
_SCALES, _ZERO_POINTS = 4096, 8192
_INNER_IDXS, _MAX_NDIMS, _S8, _FURTHEST = 265, 12, 5, 320


class Refused(InlayError):
    """A peer cannot do this reorder."""


def _check(status: int, what: str) -> None:
    if status:
        raise Refused(f"{what}: {STATUS[status] if status < len(STATUS) else status}")


STATUS = ("success", "out_of_memory", "invalid_arguments", "unimplemented")
"""What a status of oneDNN means."""


def made_attributes(lib: ctypes.CDLL, attributes: Attributes) -> c_void_p:
    """The attributes as oneDNN has them; whoever gets them destroys them.

    Raises:
        Refused: this oneDNN does not know them.
    """
    attr = c_void_p()
    _check(lib.dnnl_primitive_attr_create(byref(attr)), "dnnl_primitive_attr_create")
    for name in attributes.names:
        _set(lib, attr, name, attributes.entry(name))
    if attributes.sum is not None:
        ops = c_void_p()
        _check(lib.dnnl_post_ops_create(byref(ops)), "dnnl_post_ops_create")
        _check(lib.dnnl_post_ops_append_sum(ops, attributes.sum, 0, 0), "dnnl_post_ops_append_sum")
        _check(lib.dnnl_primitive_attr_set_post_ops(attr, ops), "dnnl_primitive_attr_set_post_ops")
        lib.dnnl_post_ops_destroy(ops)
    return attr


def _set(lib: ctypes.CDLL, attr: c_void_p, name: str, entry: Entry) -> None:
    kind, arg = ("scales" if isinstance(entry, Scales) else "zero_points"), _ARGS[name[:3]]
    setter = getattr(lib, f"dnnl_primitive_attr_set_{kind}", None)
    if setter is not None:
        setter.argtypes = _SET
        sizes = (c_int64 * 2)(*entry.groups)
        _check(setter(attr, arg, entry.mask, len(entry.groups), sizes, entry.type.code), setter.__name__)
        return
    if entry.groups or entry.data_type not in ("f32", "s32"):
        raise Refused(f"this oneDNN has no {kind.replace('_', ' ')} in groups, or of another type than f32 and s32")
    setter = getattr(lib, f"dnnl_primitive_attr_set_{kind}_mask")
    _check(setter(attr, arg, entry.mask), setter.__name__)


def values_for(attributes: Attributes, dims: Dims) -> list[tuple[int, int, int, npt.NDArray[np.uint8]]]:
    """The values as further arguments of the call: code of each, its type's code, how many, and their bytes."""
    found = []
    for name, array in values_of(attributes, dims).items():
        entry = attributes.entry(name)
        flat = np.ascontiguousarray(array).ravel().view(np.uint8)
        if entry.type.is_sub_byte:
            even = np.append(flat, np.zeros(flat.size % 2, np.uint8))
            flat = np.bitwise_or(even[::2] & 15, even[1::2] << 4, dtype=np.uint8)
        code = (_SCALES if isinstance(entry, Scales) else _ZERO_POINTS) | _ARGS[name[:3]]
        found.append((code, entry.type.code, array.size, flat))
    return found


def write_extras(lib: ctypes.CDLL, desc: c_void_p, extras: Extras) -> None:
    """Write sums and factor into a descriptor."""
    at = _after_blocks(lib, desc) + _distance(lib)
    c_uint64.from_address(at).value = extras.flags
    c_int.from_address(at + 8).value = extras.compensation_mask
    c_float.from_address(at + 12).value = extras.scale_adjust
    c_int.from_address(at + 16).value = extras.asymmetric_mask


def _after_blocks(lib: ctypes.CDLL, desc: c_void_p) -> int:
    """The address behind the axes of the inner blocks, the last field that a query shows."""
    address = c_void_p()
    _check(lib.dnnl_memory_desc_query(desc, _INNER_IDXS, byref(address)), "dnnl_memory_desc_query")
    return (address.value or 0) + 8 * _MAX_NDIMS


def _distance(lib: ctypes.CDLL) -> int:
    """Bytes from there to the flags.

    Raises:
        Refused: no flag is noticed.
    """
    dims = (c_int64 * _MAX_NDIMS)(4, 6)
    for distance in range(0, _FURTHEST, 8):
        desc, reshaped = c_void_p(), c_void_p()
        status = lib.dnnl_memory_desc_create_with_strides(byref(desc), 2, dims, _S8, None)
        _check(status, "dnnl_memory_desc_create_with_strides")
        c_uint64.from_address(_after_blocks(lib, desc) + distance).value = 1
        is_refused = lib.dnnl_memory_desc_reshape(byref(reshaped), desc, 2, dims) != 0
        lib.dnnl_memory_desc_destroy(desc)
        if is_refused:
            return distance
        lib.dnnl_memory_desc_destroy(reshaped)
    raise Refused("this oneDNN keeps no sums behind weights")
