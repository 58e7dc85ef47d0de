"""Outer strides and aligned tiles: changes of the strides of leading digits, below which all digits stay as they are.

The **tile** of a layout is the run of memory that begins with its outermost inner digit. The leading digits outside it
number the tiles. In the 128x4 scales of NVFP4, `(m m4 m32) (k k4) -> m k m32 m4 k4`, tiles of 512 elements are numbered
by m and k. Two arguments of `MemoryDesc` change where tiles begin:

    strides     stride of the leading digit of each axis, in elements
    alignment   each tile is padded to a multiple of these bytes: from 512 to 4096 bytes, for instance

>>> from inlay.data_type import as_data_type
>>> from inlay.notation.pattern import parse_pattern
>>> layout = parse_pattern("(m m4 m32) (k k4) -> m k m32 m4 k4", (256, 8))
>>> aligned = align_tiles(layout, 4096, as_data_type("u8"))
>>> [axis.stride for axis in layout.axes], [axis.stride for axis in aligned.axes]
([1024, 512], [8192, 4096])
"""

from dataclasses import replace
from math import gcd

from inlay.data_type import DataType
from inlay.errors import InvalidArguments, shown
from inlay.layout import RUNTIME, Dims, Layout
from inlay.layout.views import axis_name
from inlay.notation import Notation


def with_outer_strides(layout: Layout, strides: Dims, spelling: str) -> Layout:
    """Return `layout` with these strides of its leading digits, in elements; `spelling` names its format in errors.

    Post-condition: the inner digits, and the order in memory of axes with several blocks, are those of `layout`.

    Raises:
        InvalidArguments: there is not one stride per axis, one is neither positive nor RUNTIME, or they have another
            order than the format, as strides of nhwc with nchw.
    """
    if len(strides) != layout.ndims:
        raise InvalidArguments(f"{layout.ndims} dims need as many strides, not {len(strides)}: {strides}")
    for i, stride in enumerate(strides):
        if stride < 1 and stride != RUNTIME:
            raise InvalidArguments(f"stride {stride} of {axis_name(i)} contradicts format {spelling}: give 1 or more")
    changed = Layout(layout.dims, tuple(replace(a, stride=s) for a, s in zip(layout.axes, strides, strict=True)))
    pair = _exchanged_axes(layout, changed)
    if pair is not None:
        outer, inner = pair
        raise InvalidArguments(
            f"strides {strides} contradict format {spelling}: {axis_name(outer)} is outside {axis_name(inner)}, so its "
            f"stride is at least {strides[inner]}, not {strides[outer]}; give the strides alone, or another format"
        )
    return changed


def _exchanged_axes(layout: Layout, changed: Layout) -> tuple[int, int] | None:
    """Return two axes, the outer one first, whose leading digits have exchanged their order; None if there are none."""
    long = [
        i for i, (n, axis) in enumerate(zip(layout.dims, layout.axes, strict=True)) if n == RUNTIME or n > axis.block
    ]
    for i in long:
        for j in long:
            old, new = ((one.axes[i].stride, one.axes[j].stride) for one in (layout, changed))
            if RUNTIME not in (*old, *new) and old[0] > old[1] and new[0] < new[1]:
                return i, j
    return None


def is_spelled(layout: Layout, notation: Notation) -> bool:
    """Return True if `notation` gives `layout`, but for the strides of leading digits, which may be farther apart.

    Raises:
        InvalidArguments: `notation` places another number of axes, or does not fit their dims.

    >>> from inlay.notation import parse_notation
    >>> [is_spelled(Layout.from_strides((4, 6), (8, 1)), parse_notation(text)) for text in ("ab", "ba")]
    [True, False]
    """
    spelled = notation.layout(layout.dims)
    if spelled == layout:
        return True
    if any(axis.stride < 1 and axis.stride != RUNTIME for axis in layout.axes):
        return False
    same_inner = [axis.inner for axis in spelled.axes] == [axis.inner for axis in layout.axes]
    return spelled.dims == layout.dims and same_inner and _exchanged_axes(spelled, layout) is None


def align_tiles(layout: Layout, alignment: object, data_type: DataType) -> Layout:
    """Return `layout` with each tile padded to a multiple of `alignment` bytes.

    Post-condition: the strides of the leading digits outside the tile are multiples of `alignment` bytes, and the least
    that are; all other digits are those of `layout`.

    Raises:
        InvalidArguments: as `require_alignment`, or `layout` has no tile: no inner digits, or no digit outside them.
    """
    elements = require_alignment(alignment, data_type)
    tile = tile_size(layout)
    padded = -(-tile // elements) * elements
    axes = []
    for axis in layout.axes:
        is_outer = axis.stride != RUNTIME and axis.stride >= tile
        axes.append(replace(axis, stride=axis.stride // tile * padded) if is_outer else axis)
    return Layout(layout.dims, tuple(axes))


def tile_size(layout: Layout) -> int:
    """Return the number of elements of a tile of a dense layout.

    Raises:
        InvalidArguments: no axis has inner digits, or no leading digit is outside all of them.

    >>> from inlay.notation.format_tag import FormatTag
    >>> tile_size(FormatTag.parse("OIhw4i16o4i").layout((32, 32, 3, 3)))
    256
    """
    inner = [digit for axis in layout.axes for digit in axis.inner if digit.extent > 1]
    if not inner:
        raise InvalidArguments("alignment pads tiles, which the inner digits of a format make: this format has none")
    outermost = max(inner, key=lambda digit: digit.stride)
    tile = outermost.stride * outermost.extent
    if all(axis.stride != RUNTIME and axis.stride < tile for axis in layout.axes):
        raise InvalidArguments(
            "alignment pads tiles, but the inner digits of this format are outermost: it is one tile"
        )
    return tile


def require_alignment(alignment: object, data_type: DataType) -> int:
    """Return the least number of elements that is a multiple of `alignment` bytes.

    Raises:
        InvalidArguments: `alignment` is not an integer from 1 to 2**40.

    >>> from inlay.data_type import as_data_type
    >>> require_alignment(64, as_data_type("f32")), require_alignment(64, as_data_type("s4"))
    (16, 128)
    """
    if type(alignment) is not int or not 1 <= alignment <= 2**40:
        raise InvalidArguments(f"alignment is {shown(alignment)}: give the bytes to align tiles to, from 1 to 2**40")
    return alignment * 8 // gcd(alignment * 8, data_type.bits)


def require_aligned(layout: Layout, alignment: object, data_type: DataType) -> None:
    """Check that the caller's strides of the leading digits outside the tile are multiples of `alignment` bytes.

    Raises:
        InvalidArguments: as `require_alignment`, or one is not.
    """
    elements = require_alignment(alignment, data_type)
    tile = tile_size(layout)
    for i, axis in enumerate(layout.axes):
        if axis.stride != RUNTIME and axis.stride >= tile and axis.stride % elements:
            raise InvalidArguments(
                f"stride {axis.stride} of {axis_name(i)} contradicts alignment {alignment}: it is no multiple of "
                f"{elements} elements; {-(-axis.stride // elements) * elements} is, or leave strides or alignment out"
            )
