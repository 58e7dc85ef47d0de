"""Arrays that are views of a memory: its elements with strides, or all its digits as they are stored.

A layout with one stride for each axis is a strided array, of NumPy or PyTorch, in the logical order of the axes. A
blocked layout is one too, but of its digits in the order of memory, outermost first, padding included:

    (2, 17, 5, 4) nhwc      logical (2, 17, 5, 4)       stored (2, 5, 4, 17)
    (2, 17, 5, 4) nChw8c    no strides                  stored (2, 3, 5, 4, 8)

The functions take a descriptor and the bytes of its buffer, and copy nothing.
"""

import importlib
from math import prod
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import InvalidArguments, MissingExtra
from inlay.layout import Dims, Layout
from inlay.memory.buffers import Bytes
from inlay.notation.format_tag import FormatTag


def plain_strides(desc: MemoryDesc) -> Dims | None:
    """Return the stride of each axis, in elements, or None if an axis has blocks or the elements have 4 bits.

    This is the rule of views: an array can be a view of the elements exactly if there are strides. `to_numpy` and
    `to_torch` leave padding out of their views; the views of a `Memory` refuse it (`require_strides`).
    """
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None or data_type.is_sub_byte:
        return None
    # An axis of dim 1 may have blocks: its only coordinate is 0, and so are all its digits.
    if any(axis.inner for axis, dim in zip(layout.axes, desc.dims, strict=True) if dim > 1):
        return None
    # The stride of an axis of dim 1 is never used; PyTorch refuses negative ones.
    return tuple(
        axis.stride if dim > 1 else max(0, axis.stride) for axis, dim in zip(layout.axes, desc.dims, strict=True)
    )


def first_element(desc: MemoryDesc) -> int:
    """Return the offset of the first element, in elements; 0 if there are none, since it may be outside the buffer."""
    return 0 if 0 in desc.dims else desc.offset0


def strided_array(desc: MemoryDesc, buffer: Bytes, strides: Dims) -> npt.NDArray[Any]:
    """Return the elements as an array of shape `desc.dims` with these strides, which are in elements: a view.

    The array is read-only if the buffer is, or if one write could change several elements.

    Raises:
        InvalidArguments: `desc` has no layout.
    """
    layout, data_type = desc.require_layout("a view")
    width = data_type.itemsize
    steps = [stride * width for stride in strides]
    view: npt.NDArray[Any] = np.ndarray(desc.dims, data_type.dtype, buffer.data, first_element(desc) * width, steps)
    if not layout.is_non_overlapping:
        view.flags.writeable = False
    return view


def require_strides(desc: MemoryDesc, purpose: str) -> Dims:
    """Return the strides of `desc`, after checking that its elements have strides and no padding.

    Raises:
        InvalidArguments: they do not; the text starts with `purpose`.
    """
    strides = plain_strides(desc)
    if strides is None or desc.padded_dims != desc.dims:
        refuse_view(desc, purpose)
    return strides


def refuse_view(desc: MemoryDesc, purpose: str) -> NoReturn:
    """Raise the error for memory that no strided array can be a view of.

    Raises:
        InvalidArguments: always.
    """
    if desc.kind == "sparse":
        remedy = "m.buffers are its arrays, and m.unpack() copies the elements into a dense one"
    elif desc.kind == "host_scalar":
        remedy = "read m.value"
    elif desc.kind == "opaque":
        remedy = "m.physical() are its bytes, and only its engine knows the elements"
    else:
        remedy = "m.physical() is the array as stored, and m.unpack() copies the elements in logical order"
    raise InvalidArguments(f"{purpose} is a view, and {desc!r} {_reason(desc)}: {remedy}")


def _reason(desc: MemoryDesc) -> str:
    """Return the reason why the elements of `desc` have no strides."""
    if not isinstance(desc.layout, Layout):
        return f"is of kind {desc.kind}"
    if desc.data_type is not None and desc.data_type.is_sub_byte:
        return "has two elements in a byte"
    return "is padded" if plain_strides(desc) is not None else "is blocked"


# PyTorch


def import_optional(module: str, purpose: str) -> Any:
    """Import a package that is not a dependency of Inlay, for the function `purpose`.

    Raises:
        MissingExtra: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MissingExtra(f"{purpose} needs {module}, which is not installed: pip install {module}") from None


def torch_type(torch: Any, desc: MemoryDesc) -> Any:
    """Return PyTorch's type of the elements of `desc`.

    Raises:
        InvalidArguments: PyTorch has none.
    """
    data_type = desc.data_type
    dtype = None if data_type is None or data_type.is_sub_byte else getattr(torch, data_type.dtype.name, None)
    if dtype is None:
        raise InvalidArguments(f"PyTorch has no tensors of {data_type}: memory.unpack() returns an array")
    return dtype


def torch_refusal(strides: Dims, buffer: Bytes) -> str:
    """Return the reason why PyTorch has no tensor with these strides over a buffer; empty text if it has one."""
    if min(strides, default=0) < 0:
        return "has a negative stride"
    return "" if buffer.flags.writeable else "is read-only"


def torch_view(desc: MemoryDesc, buffer: Bytes, strides: Dims, purpose: str) -> Any:
    """Return the elements as a tensor with these strides, which are in elements: a view.

    Raises:
        MissingExtra: PyTorch is not installed.
        InvalidArguments: the memory is read-only, a stride is negative, or PyTorch lacks the type; the text starts with
            `purpose`.
    """
    torch = import_optional("torch", purpose)
    problem = torch_refusal(strides, buffer)
    if problem:
        raise InvalidArguments(
            f"{purpose} is a view, and {desc!r} {problem}, which PyTorch does not support: torch.tensor(m.unpack()) "
            "is a copy"
        )
    dtype = torch_type(torch, desc)
    whole = buffer[: buffer.size // dtype.itemsize * dtype.itemsize]
    return torch.from_numpy(whole).view(dtype).as_strided(desc.dims, strides, first_element(desc))


# The array as stored


def physical_array(desc: MemoryDesc, buffer: Bytes) -> npt.NDArray[Any]:
    """Return the elements as stored, padding included: one axis for each digit, outermost first in memory.

    Strides are positive, so the first entry is the one at the lowest address. Digits of stride 0 are left out. 4-bit
    elements, opaque formats, swizzles, and layouts whose digits overlap or end in a partial block give one axis: all
    their bytes, or all elements from the lowest to the highest.

    Post-conditions: the result shares the buffer; its strides fall from the first axis to the last; for a tag, its
    shape is the number of blocks along each axis, in the order of the tag, and then the inner blocks.

    Raises:
        InvalidArguments: `desc` is sparse or a host scalar.

    >>> desc = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    >>> physical_array(desc, np.zeros(desc.nbytes, np.uint8)).shape
    (2, 3, 5, 4, 8)
    """
    if isinstance(desc.layout, kinds.Opaque):
        return buffer[: desc.layout.nbytes]
    if isinstance(desc.layout, kinds.SwizzledLayout) and desc.data_type is not None:
        begin = desc.offset0 * desc.data_type.bits // 8
        stored_bytes = buffer[begin : begin + desc.size]
        return stored_bytes if desc.data_type.is_sub_byte else stored_bytes.view(desc.data_type.dtype)
    if not isinstance(desc.layout, Layout) or desc.data_type is None:
        refuse_view(desc, "m.physical()")
    layout, data_type = desc.layout, desc.data_type
    low, high = (desc.offset0 + end if layout.size else 0 for end in layout.span)
    if data_type.is_sub_byte:
        return buffer[low // 2 : -(-high // 2)]
    width = data_type.itemsize
    digits = [(extent, abs(stride)) for extent, stride in _memory_order(desc) if stride or extent != 1]
    stored = [(extent, stride) for extent, stride in digits if stride]
    reach = 1 + sum((extent - 1) * stride for extent, stride in stored)
    if layout.size and (reach != high - low or Layout.from_strides(*_columns(stored)).overlaps):
        stored = [(high - low, 1)]
    shape, strides = _columns(stored)
    view: npt.NDArray[Any] = np.ndarray(shape, data_type.dtype, buffer.data, low * width, [s * width for s in strides])
    return view


def _columns(digits: list[tuple[int, int]]) -> tuple[Dims, Dims]:
    """Return the extents and the strides of pairs of both."""
    return tuple([extent for extent, _ in digits]), tuple([stride for _, stride in digits])


def _memory_order(desc: MemoryDesc) -> list[tuple[int, int]]:
    """Return extent and stride of each digit, outermost first: in the order of the tag, or by falling stride."""
    layout, _ = desc.require_layout("m.physical()")
    leading = [digits[0] for digits in layout.digits]
    tag = FormatTag.parse(desc.tag) if desc.tag is not None else None
    if tag is None:
        every = [digit for digits in layout.digits for digit in digits]
        return sorted([(d.extent, d.stride) for d in every], key=lambda pair: -abs(pair[1]))
    outer = [(leading[i].extent, leading[i].stride) for i in tag.order]
    sizes = [size for _, size in desc.inner_blocks]
    return outer + [(size, prod(sizes[i + 1 :])) for i, size in enumerate(sizes)]
