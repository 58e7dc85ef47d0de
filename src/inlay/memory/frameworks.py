"""Convert arrays of NumPy, PyTorch and JAX to `Memory` and back, and name the axes of frameworks.

Inlay uses oneDNN's logical axis order: images are N, C, H, W and weights O, I, H, W, in every memory format. The orders
of other frameworks are defined in `axis_orders`, whose names are exported here too:

    >>> from inlay.memory.frameworks import AxisOrder, framework_desc
    >>> AxisOrder.parse("HWIO").tag == AxisOrder.parse("hwio").tag
    True
    >>> framework_desc("tensorflow", "weights", (3, 3, 64, 128), "f32").dims
    (128, 64, 3, 3)

An array has dims, a type, strides and an address, and so has a memory with a plain layout. So nothing is copied if both
sides support the type and the strides. A PyTorch tensor in `channels_last` becomes a memory in format nhwc.

    >>> import numpy as np
    >>> image = np.zeros((2, 5, 4, 17), np.float32).transpose(0, 3, 1, 2)
    >>> from_array(image).desc
    MemoryDesc((2, 17, 5, 4), 'f32', 'acdb')

Memory without a plain layout (blocks, CSR, 4-bit elements) is copied when it is converted to an array. bf16 and 8-bit
floats of PyTorch, which NumPy supports only through ml_dtypes, are passed as bytes. PyTorch and JAX are imported when
one of their functions is called. `from_array` and `Memory` accept DLPack; `to_numpy(memory).__dlpack__()` exports it.

`MemoryDesc.permute_axes` relabels axes and moves no data, so the format changes: `aBc8b` becomes `aCb8c`. If the next
operation needs the original format, data must move, which `permute_with_reorder` does:

    ({a, b, c}, fmt=aBc8b)  -->  ({a, c, b}, fmt=aBc8b)

Source: the oneDNN RFC on memory descriptor operations, section 4.2.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.arguments import as_flag
from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.arrays import place_lowest_first
from inlay.errors import InvalidArguments
from inlay.layout import Dims, Layout
from inlay.memory import Memory, reorder, sparse
from inlay.memory.axis_orders import (
    CONVENTIONS,
    LOGICAL_ORDERS,
    AxisOrder,
    Role,
    conv_orders,
    framework_desc,
    framework_dims,
    framework_shape,
    from_logical,
    to_logical,
)
from inlay.memory.buffers import Bytes, view_as_array
from inlay.memory.memory import require_memory
from inlay.memory.strided_views import (
    import_optional,
    plain_strides,
    refuse_view,
    strided_array,
    torch_refusal,
    torch_type,
    torch_view,
)
from inlay.notation.format_tag import FormatTag

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


# NumPy


def from_array(array: object) -> Memory:
    """Wrap an array as `Memory` without a copy; the descriptor has the dims, type and strides of the array.

    Strides may be negative or 0, and elements may overlap; memory with overlapping elements is read, but no reorder
    writes to it. `array` is a NumPy or ml_dtypes array, or has `__array_interface__`, DLPack or the buffer protocol.

    Post-condition: result.unpack() equals `array`, and a write to one is visible in the other.

    Raises:
        InvalidArguments: `array` supports none of these protocols; it has no axes; a stride is not a multiple of the
            element size; or no descriptor has its type, or the type has 4 bits. `inlay.pack` copies arrays with such
            strides and 4-bit types.

    >>> from_array(np.zeros((3, 4), np.int8).T).desc
    MemoryDesc((4, 3), 's8', 'ba')
    """
    return Memory(np.asarray(view_as_array(array)))


def to_numpy(memory: Memory, *, copy: bool | None = None) -> npt.NDArray[Any]:
    """Return the elements as a NumPy or ml_dtypes array of shape `memory.desc.dims`, without padding.

    If `copy` is None, the result is a view if the layout is plain, and a copy otherwise. True always copies.

    Raises:
        InvalidArguments: `memory` is no Memory, or `copy` is False and the layout is not plain or has 4-bit elements.

    >>> memory = from_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    >>> to_numpy(memory)[1, 0] = 9
    >>> memory.unpack()[1].tolist()
    [9.0, 4.0, 5.0]
    """
    require_memory(memory)
    copy = None if copy is None else as_flag("copy", copy)
    strides = plain_strides(memory.desc)
    if copy is False and strides is None:
        refuse_view(memory.desc, "to_numpy(m, copy=False)")
    return memory.unpack() if copy or strides is None else strided_array(memory.desc, memory.buffer, strides)


# PyTorch and JAX


def from_torch(tensor: Any) -> Memory:
    """Wrap a PyTorch tensor on the CPU as `Memory`, without a copy.

    The format follows from the strides: nhwc for a tensor in `channels_last`. Sparse tensors become CSR or COO.
    Gradients are not part of the memory.

    Post-condition: a write to one is visible in the other.

    Raises:
        MissingExtra: PyTorch is not installed.
        InvalidArguments: `tensor` is no tensor, is a scalar, or is on another device; no descriptor has its type; or it
            is sparse and `sparse.from_torch` refuses it.
        Unimplemented: `tensor` is sparse, and `sparse.from_torch` does not support it.
    """
    torch = import_optional("torch", "from_torch")
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArguments(f"tensor is a {type(tensor).__name__}: give a torch.Tensor, or use from_array")
    if tensor.device.type != "cpu":
        raise InvalidArguments(f"tensor is on {tensor.device}: copy it to the CPU with tensor.cpu()")
    if tensor.layout != torch.strided:
        return sparse.from_torch(tensor)
    if tensor.is_neg():
        raise InvalidArguments(
            "tensor has its negative bit set, so its memory holds negated values: call resolve_neg() first"
        )
    if not tensor.ndim:
        raise InvalidArguments("tensor is a scalar, which has no axes to place: give it one with reshape(1)")
    data_type = as_data_type(str(tensor.dtype).removeprefix("torch."))
    layout = Layout.from_strides(tensor.shape, tensor.stride())
    # Tensor.numpy() does not support bf16, and a view as bytes allows no gaps: pass the whole storage as bytes.
    storage: Bytes = torch.empty(0, dtype=torch.uint8).set_(tensor.detach().untyped_storage()).numpy()
    return Memory(place_lowest_first(layout, data_type), storage[tensor.storage_offset() * data_type.itemsize :])


def to_torch(memory: Memory, *, copy: bool | None = None) -> Any:
    """Return the elements as a PyTorch tensor of shape `memory.desc.dims`, without padding.

    `copy` is as for `to_numpy`. PyTorch has no read-only tensors, so read-only memory is copied. CSR and COO memory
    become sparse tensors by `sparse.to_torch`.

    Raises:
        MissingExtra: PyTorch is not installed.
        InvalidArguments: `memory` is no Memory, PyTorch lacks the data type, or `copy` is False and no view is
            possible.
        Unimplemented: `memory` is sparse, and PyTorch has no sparse tensors of its data type.
    """
    torch = import_optional("torch", "to_torch")
    require_memory(memory)
    copy = None if copy is None else as_flag("copy", copy)
    desc, strides = memory.desc, plain_strides(memory.desc)
    if isinstance(desc.layout, (kinds.CSR, kinds.COO)) and copy is not False:
        return sparse.to_torch(memory).clone() if copy else sparse.to_torch(memory)
    dtype = torch_type(torch, desc)
    if copy is False and strides is None:
        refuse_view(desc, "to_torch(m, copy=False)")
    if strides is not None and not copy and (copy is False or not torch_refusal(strides, memory.buffer)):
        return torch_view(desc, memory.buffer, strides, "to_torch(m, copy=False)")
    flat = memory.unpack().reshape(-1).view(np.uint8)
    return torch.from_numpy(flat).view(dtype).reshape(desc.dims)


def from_jax(array: Any) -> Memory:
    """Wrap a JAX array on the CPU as read-only `Memory`, without a copy if `np.asarray(array)` makes none.

    Raises:
        MissingExtra: JAX is not installed.
        InvalidArguments: `array` is no JAX array, is a scalar, or is on another device or on several; no descriptor has
            its type; or the type has 4 bits.
    """
    jax = import_optional("jax", "from_jax")
    if not isinstance(array, jax.Array):
        raise InvalidArguments(f"array is a {type(array).__name__}: give a jax.Array, or use from_array")
    is_sharded = len(array.devices()) > 1
    devices = sorted(str(device) for device in array.devices() if device.platform != "cpu" or is_sharded)
    if devices:
        raise InvalidArguments(f"array is on {', '.join(devices)}: copy it to the host with jax.device_get(array)")
    return from_array(np.asarray(array))


def to_jax(memory: Memory) -> Any:
    """Return the elements as a JAX array of shape `memory.desc.dims`: always a copy, since JAX arrays are immutable.

    Raises:
        MissingExtra: JAX is not installed.
        InvalidArguments: `memory` is no Memory, or JAX is configured to convert its type to a narrower one.
    """
    jax = import_optional("jax", "to_jax")
    values = to_numpy(memory)
    target = jax.dtypes.canonicalize_dtype(values.dtype)
    if target != values.dtype:
        raise InvalidArguments(
            f"JAX would turn {values.dtype} into {target}: allow 64 bits with jax.config.update('jax_enable_x64', True)"
        )
    return jax.numpy.array(values, copy=True)


# Transposition


def permute_with_reorder(memory: Memory, permutation: Iterable[int], format: FormatTag | str | None = None) -> Memory:
    """Copy `memory` into new memory, in which axis i of `memory` becomes axis `permutation[i]`.

    The result has the format `format`, or the tag or pattern of `memory` if `format` is None. Its padding follows from
    the new dims.

    Post-conditions:
        result.unpack() equals memory.unpack().transpose(inverse of `permutation`).
        result.desc.tag == memory.desc.tag if `format` is None and `memory` has a tag.

    Raises:
        InvalidArguments: `memory` is no Memory, `permutation` is not each axis once, or `format` is None and no tag or
            pattern describes the format of `memory` for the new dims, as with gaps between elements.
        FormatTagError: `format` is text that is no tag.
        OutOfMemory: the operating system cannot provide the bytes of the result.

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> memory = pack(np.arange(2 * 9 * 3, dtype=np.float32).reshape(2, 9, 3), "aBc8b")
    >>> result = permute_with_reorder(memory, (0, 2, 1))
    >>> result.desc, np.array_equal(result.unpack(), memory.unpack().transpose(0, 2, 1))
    (MemoryDesc((2, 3, 9), 'f32', 'aBc8b'), True)
    """
    require_memory(memory)
    relabeled = memory.desc.permute_axes(permutation)
    dims = relabeled.dims
    dst = _same_format(memory.desc, dims) if format is None else MemoryDesc(dims, relabeled.data_type, format)
    return reorder(Memory(relabeled, memory.buffer), dst)


def _same_format(desc: MemoryDesc, dims: Dims) -> MemoryDesc:
    """Return the descriptor with the tag or pattern of `desc` and other dims."""
    if desc.tag is not None:
        return MemoryDesc(dims, desc.data_type, desc.tag)
    try:
        # With other dims, the strides of a pattern may violate oneDNN's rules.
        return MemoryDesc(dims, desc.data_type, pattern=desc.pattern)
    except InvalidArguments:
        raise InvalidArguments(
            f"no tag or pattern gives dims {dims} the format of {desc!r}: pass a format as format=..."
        ) from None
