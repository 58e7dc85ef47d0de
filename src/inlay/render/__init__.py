"""Pictures of layouts: the logical tensor, and below it its memory in address order.

`show` makes a `Picture` (`picture`), or a `ComparisonPicture` of two layouts (`comparison`). The modules in the order
in which data flows:

    colors              fills, letters and shades
    blocks              the blocks of a layout, with their colors, letters and walls
    address_search      the coordinates that are stored in a stretch of memory
    scene               pictures as plain values
    selection           coordinates that the caller chose
    values              values of elements, read when a picture is drawn
    heat_map            addresses of a large tensor as shades
    compose             from a descriptor to the scene of the cells that fit
    legend              the words
    text, svg, png      drawing of both
    saving              files of pictures and pages
    picture, comparison, compound    pictures as values that users have
    statements          calls whose picture would be lost
    network             pictures of plans
    bars                pictures of measurements

A *block* is a set of elements that the layout keeps together, drawn in one color (oneDNN, "Understanding Memory
Formats"); the *strip* shows memory in address order; a *wall* stands where a digit of the layout changes; an *elision*
stands for cells that do not fit.

>>> show(MemoryDesc((3, 4), "f32", "Ab2a"), width=80, color=False)
Ab2a, 3 x 4 of f32
text    f32:p:blocked:Ab2a::f0 3x4
digits  a, 3 padded to 4, (2,8) (2,1); b (4,2); each (extent,stride)
offset  8*(a//2) + 2*b + a%2
size    64 bytes; 4 of 16 elements are padding (25.0%)
blocks  one for each (a//2, b): 2 elements side by side in memory
<BLANKLINE>
Tensor: a runs down, b across
     b=0   1   2   3
a=0   A0  B1  C2  D3
  1   A4  B5  C6  D7
  2   E8  F9 G10 H11
  3  E╱╱ F╱╱ G╱╱ H╱╱
<BLANKLINE>
Memory: offsets 0 to 15; rows begin with offset: a,b
 0: 0,0 ┃ A0  A4┃ B1  B5┃ C2  C6┃ D3  D7┃ E8 E╱╱┃ F9 F╱╱┃G10 G╱╱┃H11 H╱╱
<BLANKLINE>
  A0  element, the letter of its block, its index in row-major order
 E╱╱  padding, kept zero
   ┃  next block: 2 elements
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, get_args, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.descriptor.arrays import describe_array
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import CompoundFormat
from inlay.descriptor.compound_table import find_compound
from inlay.descriptor.kinds import SwizzledLayout
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims, Layout
from inlay.notation import parse_notation
from inlay.notation.pattern import Pattern, read_axes
from inlay.notation.recognition import Notation, SwizzledNotation
from inlay.notation.shape_stride import ShapeStride
from inlay.render.comparison import ComparisonPicture, Side, compare_sides
from inlay.render.compound import CompoundPicture, picture_compound
from inlay.render.legend import checked_names, names_of
from inlay.render.picture import Picture, PictureFormat
from inlay.render.selection import AxisChoice, select_part
from inlay.render.statements import display, is_result_dropped
from inlay.render.text import NARROWEST, WIDEST
from inlay.render.values import ArrayValues, ElementValues, MemoryValues

__all__ = ["ComparisonPicture", "CompoundPicture", "Picture", "show"]


@runtime_checkable
class DescribedMemory(Protocol):
    """A `Memory`, by what a picture needs: drawing a tag must not import the compiler of reorders."""

    @property
    def desc(self) -> MemoryDesc:
        """Descriptor of the bytes."""

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """The bytes."""

    def unpack(self) -> npt.NDArray[Any]:
        """Return the elements as a row-major array."""


@runtime_checkable
class DescribedReorder(Protocol):
    """A `Reorder`, by what a picture needs."""

    @property
    def src(self) -> MemoryDesc:
        """Descriptor of the source."""

    @property
    def dst(self) -> MemoryDesc:
        """Descriptor of the destination."""


class DescribedCompound(Protocol):
    """A `CompoundMemory`, by what a picture needs."""

    @property
    def desc(self) -> CompoundDesc:
        """Descriptor of the bytes."""


Drawable: TypeAlias = MemoryDesc | Layout | DescribedMemory | npt.NDArray[Any] | Notation | str
"""What has one layout."""


@overload
def show(
    desc: CompoundFormat | CompoundDesc | DescribedCompound, *, format: PictureFormat = ...
) -> CompoundPicture: ...
@overload
def show(
    desc: Drawable,
    dst: None = ...,
    *,
    offsets: bool = ...,
    format: PictureFormat = ...,
    width: int | None = ...,
    color: bool | None = ...,
    names: str | Sequence[str] | None = ...,
    at: Mapping[str, AxisChoice] | None = ...,
    heat_map: bool | None = ...,
) -> Picture: ...
@overload
def show(
    desc: Drawable,
    dst: Drawable,
    *,
    offsets: bool = ...,
    format: PictureFormat = ...,
    width: int | None = ...,
    color: bool | None = ...,
    names: str | Sequence[str] | None = ...,
    at: Mapping[str, AxisChoice] | None = ...,
    heat_map: bool | None = ...,
) -> ComparisonPicture: ...
@overload
def show(
    desc: DescribedReorder,
    *,
    offsets: bool = ...,
    format: PictureFormat = ...,
    width: int | None = ...,
    color: bool | None = ...,
    names: str | Sequence[str] | None = ...,
    at: Mapping[str, AxisChoice] | None = ...,
    heat_map: bool | None = ...,
) -> ComparisonPicture: ...
def show(
    desc: Drawable | DescribedReorder | CompoundFormat | CompoundDesc | DescribedCompound,
    dst: Drawable | None = None,
    *,
    offsets: bool = False,
    format: PictureFormat = "text",
    width: int | None = None,
    color: bool | None = None,
    names: str | Sequence[str] | None = None,
    at: Mapping[str, AxisChoice] | None = None,
    heat_map: bool | None = None,
) -> Picture | ComparisonPicture | CompoundPicture:
    """The picture of `desc`: the logical grid, and below it the memory strip in address order.

    An element has one number and one color in both: its row-major index, or with `offsets` its offset in elements, and
    the color of its block. Padding is hatched; memory that belongs to no element is dotted. Where blocks repeat colors,
    they have letters too. Walls stand between blocks, and thinner ones between the parts of a block. Large tensors are
    shown in part, and say so. A descriptor without a layout or without elements is shown in words.

    With `dst`, or for a `Reorder`, both memories are shown beside one another, and the color of an element is that of
    its block in the source. Where one of both is text, it has the dims and the data type of the other.

    An array is shown as it is stored, with any strides, and a `Memory` in its layout. Cells have the values, rounded to
    4 digits, unless `offsets` is True; padding has its value if that is not zero. Values are read when the picture is
    drawn. A text of `parse_notation` (tag, pattern, vendor's name) is shown with small dims: 2, and one element more
    than a block along a blocked axis. A `Layout` has elements and no data type; its lowest element is the first of the
    strip. Where strides overlap, an offset of the strip shows the first coordinate stored there.

    Of a compound format, its name or a `CompoundMemory`, the bytes of one block are shown, with the stream of every
    bit; only `format` applies.

    `format` is what `str` of the picture gives. `width`, in characters, is that of the terminal where it is None;
    `color` is used where the terminal has it. `names` calls the axes something else, such as "oihw", "row,column" or
    ("row", "column"). `at` chooses coordinates by the name of their axis: one, a slice, or a list. An axis with one
    coordinate is no longer drawn, so that at={"n": 0, "h": 2} shows the plane of c and w. `heat_map` adds the addresses
    of the whole tensor as shades, or False leaves them out; None adds them where more than 4,096 elements are shown in
    part.

    A prompt and a notebook show the picture that they get. Where the call is a statement whose result is dropped, as in
    a script, the picture is printed, or displayed in the notebook.

    Raises:
        FormatTagError, PatternError, NotationError: `desc` is text that names no layout.
        InvalidArguments: `desc` is no descriptor, layout, memory, reorder, text or array that has one, `dst` has other
            dims or no layout, `format` is none of text, svg and html, `width` is not in 20..400, `offsets`, `color` or
            `heat_map` is no truth value, `names` are not one different identifier for each axis, or `at` names no axis
            or a coordinate outside (see `select_part`).

    >>> from inlay import MemoryDesc
    >>> show(MemoryDesc((2, 3), "f32", "any"), width=80, color=False)
    any, 2 x 3 of f32
    text    f32::any:any::f0 2x3
    The layout is not chosen yet: the primitive that takes this descriptor chooses it.
    """
    _require_options(format, width, {"offsets": offsets, "color": color, "heat_map": heat_map})
    compound = _compound_of(desc)
    if compound is not None:
        if dst is not None:
            raise InvalidArguments("dst is given beside a compound format, which is drawn bit by bit: leave it out")
        drawn: Picture | ComparisonPicture | CompoundPicture = picture_compound(compound, format)
    else:
        options = {"offsets": offsets, "format": format, "width": width, "color": color, "heat_map": heat_map}
        drawn = _picture_of(desc, dst, names, at, options)
    if is_result_dropped(sys._getframe(1)):
        display(drawn)
    return drawn


def _compound_of(desc: object) -> CompoundFormat | CompoundDesc | None:
    """Return the compound format or descriptor that is to be shown; None if `desc` is none."""
    source = find_compound(desc) if isinstance(desc, str) else getattr(desc, "desc", desc)
    return source if isinstance(source, (CompoundFormat, CompoundDesc)) else None


def _picture_of(
    desc: object,
    dst: object,
    names: str | Sequence[str] | None,
    at: Mapping[str, AxisChoice] | None,
    options: Mapping[str, Any],
) -> Picture | ComparisonPicture:
    """Return the picture of one layout, or of two."""
    if isinstance(desc, DescribedReorder) and dst is None:
        sides = _sides_of(desc.src, desc.dst)
    else:
        sides = _sides_of(desc, dst)
    first = sides[0].desc
    # Names of the side that the caller spelled with names: a tag or a pattern.
    own = next((side.desc for side in sides if side.desc.spelling is not None), first)
    found = names_of(own) if names is None else checked_names(names, first.ndims)
    selection = None if at is None else select_part(first, found, at, has_padding=len(sides) == 1)
    if len(sides) > 1:
        return compare_sides(sides[0], sides[1], found, selection=selection, **options)
    return Picture(first, found, has_type=sides[0].has_type, values=sides[0].values, selection=selection, **options)


def _sides_of(desc: object, dst: object) -> list[Side]:
    """Return what is to be shown: one side, or two of one tensor."""
    sources = [parse_notation(source) if isinstance(source, str) else source for source in (desc, dst)]
    if dst is None:
        return [_side_of(sources[0])]
    known = {name: source for name, source in zip(_NAMES, sources, strict=True) if not isinstance(source, Notation)}
    examples = [_example_of(source) for source in sources if isinstance(source, Notation)]
    if known:
        name, source = next(iter(known.items()))
        side = _side_of(source, name)
        dims, data_type, has_type = side.desc.dims, side.desc.data_type, side.has_type
    else:
        dims, data_type, has_type = _common_dims(examples), examples[0].data_type, True
    if data_type is None:
        raise InvalidArguments("the zero descriptor has no layout to compare with")
    return [
        Side(MemoryDesc(dims, data_type.name, source), has_type=has_type)
        if isinstance(source, Notation)
        else _side_of(source, name)
        for name, source in zip(_NAMES, sources, strict=True)
    ]


_NAMES = ("desc", "dst")
"""Arguments of `show` that have a layout."""


def _common_dims(examples: Sequence[MemoryDesc]) -> Dims:
    """Return the dims of two tensors of the same number of axes, each the larger one.

    Raises:
        InvalidArguments: the numbers of axes differ.
    """
    first, second = (example.dims for example in examples)
    if len(first) != len(second):
        raise InvalidArguments(f"one layout has {len(first)} axes and the other {len(second)}: give two of one tensor")
    return tuple(map(max, first, second))


def _side_of(source: object, name: str = "desc") -> Side:
    """Return the descriptor of the argument `name`, with its values if it has them."""
    desc = _described(source, name)
    values: ElementValues | None = None
    if isinstance(desc.layout, Layout | SwizzledLayout) and not desc.has_runtime and 0 not in desc.dims:
        if isinstance(source, np.ndarray):
            values = ArrayValues(source)
        elif isinstance(source, DescribedMemory):
            values = MemoryValues(source)
    return Side(desc, values, has_type=not isinstance(source, Layout))


def _require_options(format: object, width: object, flags: Mapping[str, object]) -> None:
    """Check the options of `show`.

    Raises:
        InvalidArguments: `format` is no format, `width` is outside its limits, or a flag is no truth value.
    """
    if not isinstance(format, str) or format not in get_args(PictureFormat):
        raise InvalidArguments(f"format of a picture is text, svg or html, not {shown(format)}")
    if width is not None and (type(width) is not int or not NARROWEST <= width <= WIDEST):
        raise InvalidArguments(f"width is {shown(width)}: a picture is {NARROWEST} to {WIDEST} characters wide")
    for what, flag in flags.items():
        if not isinstance(flag, bool) and not (flag is None and what != "offsets"):
            raise InvalidArguments(f"{what} is {shown(flag)}: give True or False")


def _described(desc: object, name: str) -> MemoryDesc:
    """The descriptor of the argument `name`, which is to be shown; elements of a layout stand as bytes.

    Raises:
        InvalidArguments: there is none.
    """
    if isinstance(desc, MemoryDesc):
        return desc
    if isinstance(desc, np.ndarray):
        return describe_array(desc)
    if isinstance(desc, DescribedMemory) and isinstance(desc.desc, MemoryDesc):
        return desc.desc
    if isinstance(desc, str):
        return _example_of(parse_notation(desc))
    if isinstance(desc, Notation):
        return _example_of(desc)
    if isinstance(desc, Layout):
        start = 0 if desc.has_runtime else -desc.span[0]
        return MemoryDesc.from_layout(desc, "u8", offset0=start)
    raise InvalidArguments(
        f"{name} is of type {type(desc).__name__}: give a MemoryDesc, such as MemoryDesc((2, 3), 'f32', 'ab'), a "
        "Memory, a Layout, an array, or a format tag"
    )


def _example_of(notation: Notation) -> MemoryDesc:
    """Return the descriptor of a small tensor in this layout, whose blocked axes are padded where they may be."""
    inner = notation.notation if isinstance(notation, SwizzledNotation) else notation
    if isinstance(inner, ShapeStride):
        return MemoryDesc(inner.dims, "f32", notation)
    blocks = inner.layout((1,) * inner.ndims).dims
    fixed = (
        [axis.is_fixed for axis in read_axes(inner.spelling)] if isinstance(inner, Pattern) else [False] * len(blocks)
    )
    dims = [n if is_fixed else max(2, n + 1) for n, is_fixed in zip(blocks, fixed, strict=True)]
    return MemoryDesc(dims, "f32", notation)
