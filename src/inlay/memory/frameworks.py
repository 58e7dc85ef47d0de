"""Arrays of NumPy, PyTorch and JAX as `Memory`, and back; and the names that frameworks have for axes.

Inside Inlay there is one dialect, oneDNN's: images are N, C, H, W and weights O, I, H, W, whatever the order in memory.
What other frameworks call them is in `axis_orders`, whose names are offered here too:

    >>> from inlay.memory.frameworks import AxisOrder, framework_desc
    >>> AxisOrder.parse("HWIO").tag == AxisOrder.parse("hwio").tag
    True
    >>> framework_desc("tensorflow", "weights", (3, 3, 64, 128), "f32").dims
    (128, 64, 3, 3)

An array is dims, a type, strides and an address, and so is a memory with a plain layout: nothing is copied where both
sides can say the same. Strides keep their meaning: a PyTorch tensor in `channels_last` is a memory in nhwc.

    >>> import numpy as np
    >>> image = np.zeros((2, 5, 4, 17), np.float32).transpose(0, 3, 1, 2)
    >>> from_array(image).desc
    MemoryDesc((2, 17, 5, 4), 'f32', 'acdb')

What has no plain layout - blocks, CSR, elements of 4 bits - is copied on the way out. PyTorch's bf16 and floats of 8
bits, which NumPy has through ml_dtypes only, cross as bytes. PyTorch and JAX are imported when one of their functions
is called. `from_array` and `Memory` take DLPack; DLPack out is NumPy's, `to_numpy(memory).__dlpack__()`.

`MemoryDesc.permute_axes` relabels axes and moves nothing, so the format becomes another: `aBc8b` becomes `aCb8c`. Where
the next operation wants the format that it had, data has to move, which `permute_with_reorder` does:

    ({a, b, c}, fmt=aBc8b)  -->  ({a, c, b}, fmt=aBc8b)

Source: the oneDNN RFC on memory descriptor operations, section 4.2.
"""

import importlib
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from inlay.arguments import as_flag
from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.arrays import place_lowest_first
from inlay.errors import InvalidArguments, MissingExtra
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
from inlay.memory.buffers import Bytes, array_of
from inlay.memory.memory import require_memory
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
    """A memory over the elements of an array, without a copy; its descriptor has the array's dims, type and strides.

    Strides may be negative, 0 or overlapping: memory whose elements share bytes can be read and not written.

    `array` is a NumPy or ml_dtypes array, or anything with `__array_interface__`, DLPack or the buffer protocol.

    Post-condition: result.unpack() equals `array`, and what is written into one is seen in the other.

    Raises:
        InvalidArguments: `array` is none of these, has no axes, strides that are no multiple of its elements, a type
            that cannot be stored or has 4 bits: `inlay.pack` moves the elements of all but the first.

    >>> from_array(np.zeros((3, 4), np.int8).T).desc
    MemoryDesc((4, 3), 's8', 'ba')
    """
    return Memory(np.asarray(array_of(array)))


def to_numpy(memory: Memory, *, copy: bool | None = None) -> npt.NDArray[Any]:
    """The elements as a NumPy or ml_dtypes array of shape `memory.desc.dims`, without padding.

    With `copy=None` it is a view where the layout is plain, and a copy otherwise; False refuses to copy, True always
    does.

    Raises:
        InvalidArguments: `memory` is no Memory, or `copy` is False and the layout is not plain or has 4-bit elements.

    >>> memory = from_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    >>> to_numpy(memory)[1, 0] = 9
    >>> memory.unpack()[1].tolist()
    [9.0, 4.0, 5.0]
    """
    strides = _plain_strides(memory)
    copy = None if copy is None else as_flag("copy", copy)
    if copy or strides is None:
        if copy is False:
            _refuse_view(memory)
        return memory.unpack()
    desc = memory.desc
    layout, data_type = desc.require_layout("to_numpy")
    width = data_type.itemsize
    steps = [stride * width for stride in strides]
    view = np.ndarray(desc.dims, data_type.dtype, memory.buffer.data, _start(desc) * width, steps)
    if not layout.is_non_overlapping:
        # One write would change several elements.
        view.flags.writeable = False
    return view


def _start(desc: MemoryDesc) -> int:
    """Where a view of `desc` starts, in elements: one without elements may start beyond its buffer."""
    return 0 if 0 in desc.dims else desc.offset0


def _plain_strides(memory: Memory) -> tuple[int, ...] | None:
    """Elements from one coordinate to the next on each axis; None where an axis has blocks, or bytes hold two."""
    require_memory(memory)
    layout, data_type = memory.desc.layout, memory.desc.data_type
    if not isinstance(layout, Layout) or data_type is None or data_type.is_sub_byte:
        return None
    # An axis of one coordinate may be blocked: only its first digit is ever 0.
    if any(axis.inner for axis, dim in zip(layout.axes, memory.desc.dims, strict=True) if dim > 1):
        return None
    # What steps nowhere needs no stride, and PyTorch wants none that is negative.
    return tuple(
        axis.stride if dim > 1 else max(0, axis.stride) for axis, dim in zip(layout.axes, memory.desc.dims, strict=True)
    )


def _refuse_view(memory: Memory) -> NoReturn:
    raise InvalidArguments(
        f"{memory.desc!r} has no plain strides, so no array can be a view of it: "
        "allow a copy, or reorder it to a plain format first"
    )


# PyTorch and JAX


def from_torch(tensor: Any) -> Memory:
    """A memory over the elements of a PyTorch tensor on the CPU, without a copy.

    Its format is what the strides say: nhwc for a tensor in `channels_last`. Sparse tensors become CSR or COO.
    Gradients are left behind.

    Post-condition: what is written into one is seen in the other.

    Raises:
        MissingExtra: PyTorch is not installed.
        InvalidArguments: `tensor` is none, is a scalar, or lies on another device; its type cannot be stored; or it is
            sparse, and `sparse.from_torch` refuses it.
        Unimplemented: it is sparse, and `sparse.from_torch` cannot read it.
    """
    torch = _required("torch", "from_torch")
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArguments(f"tensor is a {type(tensor).__name__}: give a torch.Tensor, or use from_array")
    if tensor.device.type != "cpu":
        raise InvalidArguments(f"tensor lies on {tensor.device}: bring it to the CPU with tensor.cpu()")
    if tensor.layout != torch.strided:
        return sparse.from_torch(tensor)
    if tensor.is_neg():
        raise InvalidArguments("tensor is the negative of what its memory holds: make it plain with resolve_neg()")
    if not tensor.ndim:
        raise InvalidArguments("tensor is a scalar, which has no axes to place: give it one with reshape(1)")
    data_type = as_data_type(str(tensor.dtype).removeprefix("torch."))
    layout = Layout.from_strides(tensor.shape, tensor.stride())
    # NumPy has no bf16 of PyTorch's, and no gaps in bytes: the storage crosses as bytes, all of it.
    storage: Bytes = torch.empty(0, dtype=torch.uint8).set_(tensor.detach().untyped_storage()).numpy()
    return Memory(place_lowest_first(layout, data_type), storage[tensor.storage_offset() * data_type.itemsize :])


def to_torch(memory: Memory, *, copy: bool | None = None) -> Any:
    """The elements as a PyTorch tensor of shape `memory.desc.dims`, without padding.

    `copy` is as for `to_numpy`. PyTorch has no read-only tensors, so read-only memory is copied. CSR and COO memory
    become sparse tensors, which share what `sparse.to_torch` says.

    Raises:
        MissingExtra: PyTorch is not installed.
        InvalidArguments: `memory` is no Memory, PyTorch has no such type, or `copy` is False and no view is possible.
        Unimplemented: `memory` is sparse, and PyTorch has no such sparse type.
    """
    torch = _required("torch", "to_torch")
    strides = _plain_strides(memory)
    desc = memory.desc
    if isinstance(desc.layout, (kinds.CSR, kinds.COO)) and copy is not False:
        return sparse.to_torch(memory).clone() if copy else sparse.to_torch(memory)
    data_type = desc.data_type
    dtype = None if data_type is None or data_type.is_sub_byte else getattr(torch, data_type.dtype.name, None)
    if dtype is None or data_type is None:
        raise InvalidArguments(f"PyTorch has no tensors of {data_type}: memory.unpack() gives an array")
    if copy or strides is None or not memory.is_writable or any(stride < 0 for stride in strides):
        if copy is False:
            _refuse_view(memory)
        flat = memory.unpack().reshape(-1).view(np.uint8)
        return torch.from_numpy(flat).view(dtype).reshape(desc.dims)
    whole = memory.buffer[: memory.buffer.size // data_type.itemsize * data_type.itemsize]
    return torch.from_numpy(whole).view(dtype).as_strided(desc.dims, strides, _start(desc))


def from_jax(array: Any) -> Memory:
    """A read-only memory over the elements of a JAX array on the CPU, without a copy where JAX gives none.

    Raises:
        MissingExtra: JAX is not installed.
        InvalidArguments: `array` is none, is a scalar, lies on another device or on several, or its type cannot be
            stored or has 4 bits.
    """
    jax = _required("jax", "from_jax")
    if not isinstance(array, jax.Array):
        raise InvalidArguments(f"array is a {type(array).__name__}: give a jax.Array, or use from_array")
    places = sorted(str(device) for device in array.devices() if device.platform != "cpu" or len(array.devices()) > 1)
    if places:
        raise InvalidArguments(f"array lies on {', '.join(places)}: bring it to the host with jax.device_get(array)")
    return from_array(np.asarray(array))


def to_jax(memory: Memory) -> Any:
    """The elements as a JAX array of shape `memory.desc.dims`: always a copy, since JAX's arrays never change.

    Raises:
        MissingExtra: JAX is not installed.
        InvalidArguments: `memory` is no Memory, or JAX would make a narrower type of its own.
    """
    jax = _required("jax", "to_jax")
    values = to_numpy(memory)
    held = jax.dtypes.canonicalize_dtype(values.dtype)
    if held != values.dtype:
        raise InvalidArguments(
            f"JAX would turn {values.dtype} into {held}: allow 64 bits with jax.config.update('jax_enable_x64', True)"
        )
    return jax.numpy.array(values, copy=True)


def _required(module: str, purpose: str) -> Any:
    """A package that is no dependency of Inlay.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MissingExtra(f"{purpose} needs {module}, which is not installed: pip install {module}") from None


# A transposition that moves data


def permute_with_reorder(memory: Memory, permutation: Iterable[int], format: FormatTag | str | None = None) -> Memory:
    """New memory in which axis i of `memory` is axis `permutation[i]`, in the format that `memory` has, or in `format`.

    The format is kept as a rule, a tag or a pattern: padding follows from the new dims.

    Post-conditions:
        result.unpack() equals memory.unpack().transpose(inverse of `permutation`).
        result.desc.tag == memory.desc.tag, where neither `format` nor a pattern says otherwise.

    Raises:
        InvalidArguments: `memory` is no Memory, `permutation` is not each axis once, or no tag or pattern gives
            the new dims the format of `memory`, as with gaps between elements, and no `format` is given.
        FormatTagError: `format` cannot be read.
        OutOfMemory: there is no room for the result.

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
    wanted = _preserved(memory.desc, dims) if format is None else MemoryDesc(dims, relabeled.data_type, format)
    return reorder(Memory(relabeled, memory.buffer), wanted)


def _preserved(desc: MemoryDesc, dims: Dims) -> MemoryDesc:
    """The format of `desc` for other dims."""
    if desc.tag is not None:
        return MemoryDesc(dims, desc.data_type, desc.tag)
    try:
        # For other dims, oneDNN's rules may refuse the strides that a pattern gives.
        return MemoryDesc(dims, desc.data_type, pattern=desc.pattern)
    except InvalidArguments:
        raise InvalidArguments(
            f"no tag or pattern gives dims {dims} the format of {desc!r}: say the one you want as format=..."
        ) from None
