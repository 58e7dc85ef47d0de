"""What oneDNN is told beside two formats: attributes, their values, and sums that stand behind int8 weights.

oneDNN 3.2 knows scales of f32 and zero points of s32 without groups; later versions know all that `Attributes` can say.

No function of oneDNN makes a descriptor with extras: its own drivers, like its convolutions, write them into the
structure. Where they lie differs between versions, and is found by trial: it is where a flag makes the library refuse
a reshape to the same dims.

Source: `dnnl.h` and `dnnl_types.h`; `memory_extra_desc_t` of oneDNN's own headers.
"""

from collections.abc import Callable, Mapping
from ctypes import byref, c_float, c_int, c_int64, c_uint64, c_void_p
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.values import values_of
from inlay import onednn_abi as abi
from inlay.descriptor import Extras
from inlay.errors import InlayError
from inlay.layout import Dims
from inlay.reordering.attributes import Attributes, QuantizationAttribute, Scales

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
"""The functions of a library, by name without `dnnl_`; `primitive_attr_set_scales` and its like are newer than 3.2."""
_FURTHEST = 320


class Refused(InlayError):
    """A peer cannot do this reorder."""


def _check(status: int, what: str) -> None:
    if status:
        raise Refused(f"{what}: {STATUS[status] if status < len(STATUS) else status}")


STATUS = ("success", "out_of_memory", "invalid_arguments", "unimplemented")
"""What a status of oneDNN means."""


def made_attributes(lib: Functions, attributes: Attributes) -> c_void_p:
    """The attributes as oneDNN has them; whoever gets them destroys them.

    Raises:
        Refused: this oneDNN does not know them.
    """
    attr = c_void_p()
    _check(lib["primitive_attr_create"](byref(attr)), "dnnl_primitive_attr_create")
    for name in attributes.names:
        _set(lib, attr, name, attributes.entry(name))
    if attributes.sum is not None:
        ops = c_void_p()
        _check(lib["post_ops_create"](byref(ops)), "dnnl_post_ops_create")
        _check(lib["post_ops_append_sum"](ops, attributes.sum, 0, 0), "dnnl_post_ops_append_sum")
        _check(lib["primitive_attr_set_post_ops"](attr, ops), "dnnl_primitive_attr_set_post_ops")
        lib["post_ops_destroy"](ops)
    return attr


def _set(lib: Functions, attr: c_void_p, name: str, entry: QuantizationAttribute) -> None:
    kind, arg = ("scales" if isinstance(entry, Scales) else "zero_points"), abi.ARGUMENTS[name[:3]]
    name = f"primitive_attr_set_{kind}"
    if name in lib:
        sizes = (c_int64 * 2)(*entry.groups)
        _check(lib[name](attr, arg, entry.mask, len(entry.groups), sizes, entry.type.code), f"dnnl_{name}")
        return
    if entry.groups or entry.data_type not in ("f32", "s32"):
        raise Refused(f"this oneDNN has no {kind.replace('_', ' ')} in groups, or of another type than f32 and s32")
    _check(lib[f"{name}_mask"](attr, arg, entry.mask), f"dnnl_{name}_mask")


def values_for(attributes: Attributes, dims: Dims) -> list[tuple[int, int, int, npt.NDArray[np.uint8]]]:
    """The values as further arguments of the call: code of each, its type's code, how many, and their bytes."""
    found = []
    for name, array in values_of(attributes, dims).items():
        entry = attributes.entry(name)
        flat = np.ascontiguousarray(array).ravel().view(np.uint8)
        if entry.type.is_sub_byte:
            even = np.append(flat, np.zeros(flat.size % 2, np.uint8))
            flat = np.bitwise_or(even[::2] & 15, even[1::2] << 4, dtype=np.uint8)
        code = (abi.ATTR_SCALES if isinstance(entry, Scales) else abi.ATTR_ZERO_POINTS) | abi.ARGUMENTS[name[:3]]
        found.append((code, entry.type.code, array.size, flat))
    return found


def write_extras(lib: Functions, desc: c_void_p, extras: Extras) -> None:
    """Write sums and factor into a descriptor."""
    at = _after_blocks(lib, desc) + _distance(lib)
    c_uint64.from_address(at).value = extras.flags
    c_int.from_address(at + 8).value = extras.compensation_mask
    c_float.from_address(at + 12).value = extras.scale_adjust
    c_int.from_address(at + 16).value = extras.asymmetric_mask


def _after_blocks(lib: Functions, desc: c_void_p) -> int:
    """The address behind the axes of the inner blocks, the last field that a query shows."""
    address = c_void_p()
    _check(lib["memory_desc_query"](desc, abi.QUERY_IDXS, byref(address)), "dnnl_memory_desc_query")
    return (address.value or 0) + 8 * abi.MAX_NDIMS


def _distance(lib: Functions) -> int:
    """Bytes from there to the flags.

    Raises:
        Refused: no flag is noticed.
    """
    dims = abi.DIMS(4, 6)
    for distance in range(0, _FURTHEST, 8):
        desc, reshaped = c_void_p(), c_void_p()
        status = lib["memory_desc_create_with_strides"](byref(desc), 2, dims, abi.S8, None)
        _check(status, "dnnl_memory_desc_create_with_strides")
        c_uint64.from_address(_after_blocks(lib, desc) + distance).value = 1
        is_refused = lib["memory_desc_reshape"](byref(reshaped), desc, 2, dims) != 0
        lib["memory_desc_destroy"](desc)
        if is_refused:
            return distance
        lib["memory_desc_destroy"](reshaped)
    raise Refused("this oneDNN keeps no sums behind weights")
