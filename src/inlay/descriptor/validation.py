"""Checks of the arguments of a descriptor, in oneDNN's order.

The first checks concern the arguments themselves: number of dims, data type, range of each dim, volume. The next
concern the strides of layouts that oneDNN can represent. Sorted by size, each stride must be at least the extent in
memory of all axes inside it; then the strides nest and no two elements share an offset. Exempt are strides of 0
(broadcast), strides of unit axes, and all strides if a dim is 0 or anything is RUNTIME. oneDNN cannot represent layouts
whose strides do not nest, such as negative strides and those of sliding windows; their descriptors have the kind
`digits`.

    dims (4, 4)   strides (8, 2)   valid: the extent of b is 8
                  strides (3, 1)   invalid: the extent of b is 4, more than 3
                  strides (0, 1)   valid: a is broadcast

Source: oneDNN, `memory_desc_sanity_check` and `memory_desc_strides_check`.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from math import prod
from typing import NoReturn

from inlay.arguments import as_integer, integer_or_none
from inlay.data_type import DataType
from inlay.errors import InvalidArguments, shown
from inlay.layout import RUNTIME, Axis, Dims, Layout
from inlay.layout.views import axis_name

MAX_NDIMS = 12
"""The largest number of dims of a descriptor (`DNNL_MAX_NDIMS`)."""

LARGEST = 2**63 - 1
"""The largest dim, stride, offset and number of elements."""


def as_integers(what: str, values: Iterable[int]) -> Dims:
    """Return `values`, integers of Python or NumPy, as a tuple of Python integers; `what` names them in errors.

    Raises:
        InvalidArguments: `values` is not a sequence, or an entry is not an integer or does not fit 64 bits.

    >>> as_integers("dims", [2, 3])
    (2, 3)
    """
    if type(values) is not tuple:
        if isinstance(values, (str, bytes, Mapping, AbstractSet)) or not isinstance(values, Iterable):
            _refuse_values(what, values)
        try:
            values = tuple(values)
        except TypeError:
            # NumPy arrays without axes are instances of Iterable.
            _refuse_values(what, values)
    for value in values:
        if type(value) is not int or not RUNTIME <= value <= LARGEST:
            return tuple(_as_integer(what, i, v) for i, v in enumerate(values))
    return values


def _refuse_values(what: str, values: object) -> NoReturn:
    """Raise the error for `values` that are not a sequence of integers."""
    single = isinstance(values, int) and not isinstance(values, bool)
    remedy = f"({shown(values)},)" if single else "(2, 3)"
    raise InvalidArguments(f"{what} is {shown(values)}: give a sequence of integers such as {remedy}")


def _as_integer(what: str, i: int, value: object) -> int:
    """Return entry `i` of the argument `what` as a Python integer."""
    number = integer_or_none(value)
    if number is None:
        raise InvalidArguments(f"{what}[{i}] is {shown(value)}: entries are integers")
    if not RUNTIME <= number <= LARGEST:
        raise InvalidArguments(f"{what}[{i}] is {shown(number)}: entries fit in 64 bits")
    return number


def require_dims(dims: Dims) -> None:
    """Check that `dims` can be those of a tensor.

    Raises:
        InvalidArguments: there are more than 12 dims, a dim is negative and not RUNTIME, or the product of all other
            dims but 0 exceeds 2**63 - 1.
    """
    if len(dims) > MAX_NDIMS:
        raise InvalidArguments(f"{len(dims)} dims are too many: a descriptor has at most {MAX_NDIMS}")
    volume = 1
    for dim in dims:
        if dim > 0:
            volume *= dim
        elif dim < 0 and dim != RUNTIME:
            i = dims.index(dim)
            raise InvalidArguments(f"dim {i} ({axis_name(i)[-2]}) is {dim}: dims are 0 or more, or RUNTIME")
    if volume > LARGEST:
        raise InvalidArguments(f"dims {dims} have {volume} elements, more than the 2**63 - 1 that an offset can count")


def dense_strides(dims: Dims) -> Dims:
    """Return the strides of row-major order, as oneDNN computes them.

    The strides left of a dim of 0 are 0. The strides at and left of a RUNTIME dim are RUNTIME, except the last stride,
    which is always 1.

    >>> dense_strides((2, 3, 4)), dense_strides((2, 0, 4))
    ((12, 4, 1), (0, 4, 1))
    """
    strides = [1] * len(dims)
    unknown = bool(dims) and dims[-1] == RUNTIME
    for i in range(len(dims) - 2, -1, -1):
        unknown = unknown or dims[i] == RUNTIME
        strides[i] = RUNTIME if unknown else strides[i + 1] * dims[i + 1]
    return tuple(strides)


def require_padding(dims: Dims, padded_dims: Dims) -> None:
    """Check that each padded dim is at least the dim.

    Raises:
        InvalidArguments: they differ in number, one is smaller than its dim, only one of the two is RUNTIME, or the
            padded volume exceeds 2**63 - 1.
    """
    if len(padded_dims) != len(dims):
        raise InvalidArguments(f"{len(dims)} dims need as many padded_dims, not {len(padded_dims)}: {padded_dims}")
    for i, (dim, padded) in enumerate(zip(dims, padded_dims, strict=True)):
        if padded < dim or (RUNTIME in (dim, padded) and dim != padded):
            known = "RUNTIME" if dim == RUNTIME else f"{dim} or more"
            raise InvalidArguments(f"padded_dims[{i}] is {padded}: {axis_name(i)} needs {known}, as its dim is")
    require_dims(padded_dims)


def require_placed(dims: Dims, layout: Layout, offset0: int) -> None:
    """Check that logical dims, a layout of the padded dims, and the offset of the origin form a descriptor.

    Raises:
        InvalidArguments: as `require_dims` and `require_padding`; `offset0` is negative, or something does not fit 64
            bits.
    """
    require_dims(dims)
    require_padding(dims, layout.dims)
    require_64_bits(layout)
    require_offset0(offset0)


def require_offset0(offset0: object) -> None:
    """Check the offset of the origin in the buffer, in elements.

    Raises:
        InvalidArguments: `offset0` is not an integer of 64 bits, or is negative.
    """
    start = as_integer("offset0", offset0, most=LARGEST)
    if start < 0:
        raise InvalidArguments(f"offset0 is {start}: the first element is 0 or more elements into the buffer")


def require_64_bits(layout: Layout) -> None:
    """Check that all strides and extents fit 64 bits.

    Raises:
        InvalidArguments: one of them is below -(2**63) or above 2**63 - 1.
    """
    for i, axis in enumerate(layout.axes):
        for value in (axis.stride, *[n for digit in axis.inner for n in (digit.extent, digit.stride)]):
            if not RUNTIME <= value <= LARGEST:
                raise InvalidArguments(f"{axis_name(i)} has a stride or extent of {value}: both fit in 64 bits")


def require_bound(what: str, known: Dims, bound: Dims) -> None:
    """Check that `bound` has the entries of `known` with numbers in place of RUNTIME; `what` names the argument.

    Raises:
        InvalidArguments: the lengths differ, an entry differs from a known one, or an entry is RUNTIME.
    """
    if len(bound) != len(known):
        raise InvalidArguments(f"{what} {bound} to bind has {len(bound)} entries: the descriptor has {len(known)} dims")
    for i, (old, new) in enumerate(zip(known, bound, strict=True)):
        if new == RUNTIME:
            raise InvalidArguments(f"{what}[{i}] to bind is RUNTIME: give its number")
        if old not in (RUNTIME, new):
            raise InvalidArguments(f"{what}[{i}] to bind is {new}, but {axis_name(i)} is known to have {old}")


def require_nested(layout: Layout, data_type: DataType, *, whole_bytes: bool = True) -> None:
    """Check that the strides of a layout nest, do not split bytes, and keep the size within limits.

    The inner digits of `layout` must be dense and in block order, so that oneDNN can represent it. Without
    `whole_bytes` strides may split a byte: oneDNN checks this when a descriptor is created, but not for a view.

    Raises:
        InvalidArguments: a stride is negative or smaller than the extent of the axes inside it, it is odd (but not 1)
            for a type of less than a byte, or offsets exceed 2**63 - 1 elements or 2**64 - 1 bytes.
    """
    if 0 in layout.dims or layout.has_runtime:
        return
    block = prod(axis.block for axis in layout.axes)
    widest, widest_count = 1, layout.dims[0] // layout.axes[0].block if layout.dims else 1
    for i, need, inside in _nested_axes(layout):
        stride, count = layout.axes[i].stride, layout.dims[i] // layout.axes[i].block
        if stride < need:
            _refuse_stride(i, stride, need, inside)
        if whole_bytes and data_type.is_sub_byte and stride > 1 and stride % 2:
            raise InvalidArguments(
                f"stride {stride} of {axis_name(i)} is odd: {data_type} has two elements in a byte, so strides other "
                f"than 1 are even; {stride + 1} works"
            )
        if stride * block * count > LARGEST:
            raise InvalidArguments(
                f"{axis_name(i)} reaches {stride * block * count} elements with stride {stride} and {count} steps, "
                "more than the 2**63 - 1 that an offset can count"
            )
        widest, widest_count = stride, count
    steps = 1 if widest_count == widest else widest_count
    if steps * widest * data_type.itemsize >= 2**64:
        raise InvalidArguments(
            f"dims {layout.dims} take {steps * widest * data_type.itemsize} bytes as {data_type}, more than an address "
            "can count"
        )


def is_nested(layout: Layout) -> bool:
    """Return True if every stride is at least the extent of the axes inside it, as oneDNN requires.

    >>> is_nested(Layout.from_strides((4, 6), (6, 1))), is_nested(Layout.from_strides((4, 6), (-6, 1)))
    (True, False)
    """
    if 0 in layout.dims or layout.has_runtime:
        return True
    return all(layout.axes[i].stride >= need for i, need, _ in _nested_axes(layout))


def _nested_axes(layout: Layout) -> Iterator[tuple[int, int, str]]:
    """Yield the axes whose strides must nest, from the inside out.

    Each comes with the least stride it may have, and the name of the axis inside it that requires this stride; the name
    is empty for the innermost axis, whose stride must be at least the volume of the inner blocks.
    """
    need, inside = prod(axis.block for axis in layout.axes), ""
    for i in sorted(range(layout.ndims), key=lambda i: _nesting_order(i, layout.dims[i], layout.axes[i])):
        stride, count = layout.axes[i].stride, layout.dims[i] // layout.axes[i].block
        if stride == 0 or layout.dims[i] == 1:
            continue
        yield i, need, inside
        need, inside = stride * count, axis_name(i)


def _nesting_order(i: int, dim: int, axis: Axis) -> tuple[int, int, int, int]:
    """Return the sort key of axis `i`, innermost first: by stride; of equal strides, blocked axes, then short ones."""
    if axis.inner:
        return (axis.stride, 0, dim // axis.block, -i)
    return (axis.stride, 1, dim, i)


def _refuse_stride(i: int, stride: int, need: int, inside: str) -> NoReturn:
    """Raise the error for a stride below `need`; `inside` is the name that `_nested_axes` yields."""
    if stride < 0:
        raise InvalidArguments(
            f"stride {stride} of {axis_name(i)} is negative: formats of oneDNN have strides of 0 or more; "
            "MemoryDesc.from_layout takes a Layout with any strides"
        )
    reason = f"{inside} inside it reaches {need}" if inside else f"its inner blocks hold {need} elements"
    raise InvalidArguments(f"stride {stride} of {axis_name(i)} is too small: {reason}, so {need} is the least")
