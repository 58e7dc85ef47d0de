"""What a descriptor refuses, in oneDNN's order.

First the arguments themselves: number of dims, data type, range of each dim, volume. Then, for layouts that oneDNN can
say, the strides: sorted from the inside out, each must clear everything inside it, so they nest and no two elements
share an offset. Three kinds of strides are exempt: 0 (broadcast), those of axes of one element, and all of them when a
dim is 0 or anything is RUNTIME. Layouts whose strides do not nest, such as negative ones and those of sliding windows,
are none that oneDNN can say: a descriptor of kind `digits` holds them.

    dims (4, 4)   strides (8, 2)   fine: b reaches 8, a starts there
                  strides (3, 1)   refused: b reaches 4
                  strides (0, 1)   fine: a is broadcast

Source: oneDNN, `memory_desc_sanity_check` and `memory_desc_strides_check`.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from math import prod
from typing import NoReturn

from inlay.arguments import integer_or_none
from inlay.data_type import DataType
from inlay.errors import InvalidArguments, shown
from inlay.layout import RUNTIME, Axis, Dims, Layout
from inlay.layout.views import axis_name

MAX_NDIMS = 12
"""The most dims a descriptor has (`DNNL_MAX_NDIMS`)."""

LARGEST = 2**63 - 1
"""The largest dim, stride, offset and number of elements."""


def as_integers(what: str, values: Iterable[int]) -> Dims:
    """`values` as a tuple of Python integers; NumPy's are accepted, `what` names the argument in messages.

    Raises:
        InvalidArguments: `values` is no sequence, or an entry is no integer or does not fit 64 bits.

    >>> as_integers("dims", [2, 3])
    (2, 3)
    """
    if type(values) is not tuple:
        if isinstance(values, (str, bytes, Mapping, AbstractSet)) or not isinstance(values, Iterable):
            _refuse_values(what, values)
        try:
            values = tuple(values)
        except TypeError:
            # NumPy's arrays without axes call themselves iterable.
            _refuse_values(what, values)
    for value in values:
        if type(value) is not int or not RUNTIME <= value <= LARGEST:
            return tuple(_as_integer(what, i, v) for i, v in enumerate(values))
    return values


def _refuse_values(what: str, values: object) -> NoReturn:
    single = isinstance(values, int) and not isinstance(values, bool)
    remedy = f"({shown(values)},)" if single else "(2, 3)"
    raise InvalidArguments(f"{what} is {shown(values)}: give a sequence of integers such as {remedy}")


def _as_integer(what: str, i: int, value: object) -> int:
    number = integer_or_none(value)
    if number is None:
        raise InvalidArguments(f"{what}[{i}] is {shown(value)}: entries are integers")
    if not RUNTIME <= number <= LARGEST:
        raise InvalidArguments(f"{what}[{i}] is {shown(number)}: entries fit in 64 bits")
    return number


def require_dims(dims: Dims) -> None:
    """Refuse what is no shape of a tensor.

    Raises:
        InvalidArguments: more than 12 dims, a negative dim, or a volume (dims of 0 and RUNTIME left out) that exceeds
            2**63 - 1.
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
    """The strides of row-major order; 0 left of a dim of 0, RUNTIME at and left of a RUNTIME dim, except the last.

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
    """Refuse padded dims that do not cover the dims.

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
    """Refuse logical dims, a layout of the padded dims, and an origin that are no parts of one descriptor.

    Raises:
        InvalidArguments: as `require_dims` and `require_padding`; `offset0` is negative, or something does not fit 64
            bits.
    """
    require_dims(dims)
    require_padding(dims, layout.dims)
    require_64_bits(layout)
    (start,) = as_integers("offset0", (offset0,))
    if start < 0:
        raise InvalidArguments(f"offset0 is {start}: the first element lies 0 or more elements into the buffer")


def require_64_bits(layout: Layout) -> None:
    """Refuse strides and extents that no offset can count.

    Raises:
        InvalidArguments: one of them is below -(2**63) or above 2**63 - 1.
    """
    for i, axis in enumerate(layout.axes):
        for value in (axis.stride, *[n for digit in axis.inner for n in (digit.extent, digit.stride)]):
            if not RUNTIME <= value <= LARGEST:
                raise InvalidArguments(f"{axis_name(i)} has a stride or extent of {value}: both fit in 64 bits")


def require_bound(what: str, known: Dims, bound: Dims) -> None:
    """Refuse numbers that are not those of `known` where it has numbers; `what` names the argument.

    Raises:
        InvalidArguments: they differ in number or from what is known, or are RUNTIME.
    """
    if len(bound) != len(known):
        raise InvalidArguments(f"{what} {bound} to bind has {len(bound)} entries: the descriptor has {len(known)} dims")
    for i, (old, new) in enumerate(zip(known, bound, strict=True)):
        if new == RUNTIME:
            raise InvalidArguments(f"{what}[{i}] to bind is RUNTIME: give its number")
        if old not in (RUNTIME, new):
            raise InvalidArguments(f"{what}[{i}] to bind is {new}, but {axis_name(i)} is known to have {old}")


def require_nested(layout: Layout, data_type: DataType, *, whole_bytes: bool = True) -> None:
    """Refuse strides whose elements overlap, interleave, split a byte, or reach too far.

    `layout` is one that oneDNN can say: its inner digits are dense and in block order. Without `whole_bytes` strides
    may split a byte: oneDNN checks that when a descriptor is created, and not again when it is viewed.

    Raises:
        InvalidArguments: a stride is smaller than what lies inside it or negative, odd (but not 1) for a type of less
            than a byte, or takes offsets past 2**63 - 1 elements or 2**64 - 1 bytes.
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
    """Whether every stride clears what lies inside it, as oneDNN wants it of all layouts that it can say.

    >>> is_nested(Layout.from_strides((4, 6), (6, 1))), is_nested(Layout.from_strides((4, 6), (-6, 1)))
    (True, False)
    """
    if 0 in layout.dims or layout.has_runtime:
        return True
    return all(layout.axes[i].stride >= need for i, need, _ in _nested_axes(layout))


def _nested_axes(layout: Layout) -> Iterator[tuple[int, int, str]]:
    """The axes that rules hold for, from the inside out: each with the least stride it needs, and what reaches it."""
    need, inside = prod(axis.block for axis in layout.axes), ""
    for i in sorted(range(layout.ndims), key=lambda i: _nesting_order(i, layout.dims[i], layout.axes[i])):
        stride, count = layout.axes[i].stride, layout.dims[i] // layout.axes[i].block
        if stride == 0 or layout.dims[i] == 1:
            continue
        yield i, need, inside
        need, inside = stride * count, axis_name(i)


def _nesting_order(i: int, dim: int, axis: Axis) -> tuple[int, int, int, int]:
    """The sort key, inside first: by stride; of equal ones blocked axes, then short ones."""
    if axis.inner:
        return (axis.stride, 0, dim // axis.block, -i)
    return (axis.stride, 1, dim, i)


def _refuse_stride(i: int, stride: int, need: int, inside: str) -> NoReturn:
    if stride < 0:
        raise InvalidArguments(
            f"stride {stride} of {axis_name(i)} is negative: formats of oneDNN have strides of 0 or more; "
            "MemoryDesc.from_layout takes a Layout with any strides"
        )
    reason = f"{inside} inside it reaches {need}" if inside else f"its inner blocks hold {need} elements"
    raise InvalidArguments(f"stride {stride} of {axis_name(i)} is too small: {reason}, so {need} is the least")
