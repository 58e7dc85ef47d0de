"""Spelling of inferred layouts: the descriptor, and the format tag if one has these offsets and this padding.

The normal form of a layout merges digits, so several tags can have it. 17 channels in blocks of 8, with height and
width of 1, are 24 consecutive elements. The tag is then the one that pads exactly like this, with the smallest blocks
among oneDNN's own tags.
"""

from collections.abc import Iterator
from itertools import islice, product

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Dims, Layout, Swizzle
from inlay.notation.format_tag import ENUMERATED, FormatTag, order_by_stride

_MOST_SPELLINGS = 512
"""Number of spellings that are compared."""


def spell_layout(
    layout: Layout, dims: Dims, data_type: DataType, offset0: int, swizzle: Swizzle | None = None
) -> tuple[MemoryDesc, str | None] | InvalidArguments:
    """Return the descriptor of a layout and its tag, without regard to header, pitch and swizzle; or the error.

    Post-condition: the layout of the descriptor is equivalent to `layout`.

    >>> from inlay.data_type import DataType
    >>> spell_layout(Layout((24,), (Axis(1),)), (17,), DataType("f32"), 0)
    (MemoryDesc((17,), 'f32', 'A8a'), 'A8a')
    """
    try:
        plain = MemoryDesc.from_layout(layout, data_type, dims=dims, offset0=offset0, swizzle=swizzle)
    except InvalidArguments as error:
        return error
    best: tuple[tuple[object, ...], MemoryDesc, str] | None = None
    for spelled in islice(_spellings(layout, dims), _MOST_SPELLINGS):
        tag = _nearest_tag(spelled, dims)
        if tag is None:
            continue
        has_pitch = not _is_dense(spelled, tag)
        text = str(tag)
        key = (has_pitch, text not in ENUMERATED, len(tag.inner_blocks), len(text), text)
        if best is None or key < best[0]:
            placed = spelled if has_pitch else tag.layout(dims)
            try:
                desc = MemoryDesc.from_layout(placed, data_type, dims=dims, offset0=offset0, swizzle=swizzle)
            except InvalidArguments:
                continue
            best = key, desc, text
    return (plain, None) if best is None else best[1:]


def _spellings(layout: Layout, dims: Dims) -> Iterator[Layout]:
    """Yield layouts equivalent to `layout`: the leading digit of each padded axis is split into an outer and a block.

    An outer digit of extent 1 has a free stride: each that a dense tag could have is tried.
    """
    ends = sorted(
        {1, *(d.extent * abs(d.stride) for digits in layout.digits for d in digits if d.extent > 1)}, reverse=True
    )
    choices = []
    for dim, padded, axis in zip(dims, layout.dims, layout.axes, strict=True):
        options = [axis]
        lead = padded // axis.block
        for block in range(2, lead + 1):
            if lead % block or padded == dim or -(-dim // (block * axis.block)) * block * axis.block != padded:
                continue
            inner = (Digit(block, axis.stride), *axis.inner)
            steps = ends if block == lead else [axis.stride * block]
            options += [Axis(step, inner) for step in steps]
        choices.append(options)
    for axes in product(*choices):
        yield Layout(layout.dims, axes)


def _nearest_tag(layout: Layout, dims: Dims) -> FormatTag | None:
    """Return the tag with the order of the axes, the blocks and the padding of `layout`, or None."""
    if not 1 <= layout.ndims <= 12:
        return None
    digits = sorted(((d.stride, i, d.extent) for i, axis in enumerate(layout.axes) for d in axis.inner), reverse=True)
    blocks = tuple((i, extent) for _, i, extent in digits)
    long = [i for i in order_by_stride(layout) if layout.dims[i] > 1]
    units = [i for i, n in enumerate(layout.dims) if n == 1]
    # The position of unit axes is free: of all orders, the first in alphabetical order.
    order = [(long if not units or (long and long[0] < units[0]) else units).pop(0) for _ in layout.dims]
    tag = FormatTag(tuple(order), blocks)
    dense = tag.layout(dims)
    if dense.dims != layout.dims or any(a.inner != b.inner for a, b in zip(dense.axes, layout.axes, strict=True)):
        return None
    need = 1
    for _, size in blocks:
        need *= size
    for i in reversed(order):
        count = layout.dims[i] // layout.axes[i].block
        if layout.axes[i].stride < need and count > 1:
            return None
        need = max(need, layout.axes[i].stride * count) if count > 1 else need
    return tag


def _is_dense(layout: Layout, tag: FormatTag) -> bool:
    """Return True if the strides are those of the dense tag, where an axis has more than one block."""
    dense = tag.layout(layout.dims)
    return all(
        a.stride == b.stride or n <= a.block for n, a, b in zip(layout.dims, dense.axes, layout.axes, strict=True)
    )
