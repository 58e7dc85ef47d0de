"""Pictures of layouts: the logical tensor, and below it its memory in address order.

`show` makes a `Picture` (`picture`). The modules in the order in which data flows: `compose` computes blocks and
elements and puts the cells that fit into a scene (`scene`), `legend` writes the words, and `text` or `svg` draws both.
`network` draws plans, `bars` draws measurements.

A *block* is a set of elements that the layout keeps together, drawn in one color (oneDNN, "Understanding Memory
Formats"); the *strip* shows memory in address order; an *elision* stands for cells that do not fit.

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
  2   E8  F9 G10 A11
  3  E╱╱ F╱╱ G╱╱ A╱╱
<BLANKLINE>
Memory: offsets 0 to 15; rows begin with offset: a,b
 0: 0,0 │ A0  A4│ B1  B5│ C2  C6│ D3  D7│ E8 E╱╱│ F9 F╱╱│G10 G╱╱│A11 A╱╱
<BLANKLINE>
  A0  element, the letter of its block, its index in row-major order
 E╱╱  padding, kept zero
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Protocol, get_args, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.descriptor.arrays import describe_array
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import CompoundFormat
from inlay.descriptor.compound_table import find_compound
from inlay.descriptor.kinds import SwizzledLayout
from inlay.errors import InvalidArguments, shown
from inlay.layout import Layout
from inlay.notation import parse_notation
from inlay.notation.pattern import Pattern, read_axes
from inlay.notation.recognition import Notation, SwizzledNotation
from inlay.notation.shape_stride import ShapeStride
from inlay.render.compound import CompoundPicture, picture_compound
from inlay.render.legend import checked_names, names_of
from inlay.render.picture import Picture, PictureFormat
from inlay.render.text import NARROWEST, WIDEST

__all__ = ["CompoundPicture", "Picture", "show"]


@runtime_checkable
class DescribedMemory(Protocol):
    """A `Memory`, by what a picture needs: drawing a tag must not import the compiler of reorders."""

    @property
    def desc(self) -> MemoryDesc:
        """Descriptor of the bytes."""

    def unpack(self) -> npt.NDArray[Any]:
        """Return the elements as a row-major array."""


class DescribedCompound(Protocol):
    """A `CompoundMemory`, by what a picture needs."""

    @property
    def desc(self) -> CompoundDesc:
        """Descriptor of the bytes."""


@overload
def show(
    desc: CompoundFormat | CompoundDesc | DescribedCompound, *, format: PictureFormat = ...
) -> CompoundPicture: ...
@overload
def show(
    desc: MemoryDesc | Layout | DescribedMemory | npt.NDArray[Any] | Notation | str,
    *,
    offsets: bool = ...,
    format: PictureFormat = ...,
    width: int | None = ...,
    color: bool | None = ...,
    names: str | Sequence[str] | None = ...,
) -> Picture: ...
def show(
    desc: (
        MemoryDesc
        | Layout
        | DescribedMemory
        | npt.NDArray[Any]
        | Notation
        | str
        | CompoundFormat
        | CompoundDesc
        | DescribedCompound
    ),
    *,
    offsets: bool = False,
    format: PictureFormat = "text",
    width: int | None = None,
    color: bool | None = None,
    names: str | Sequence[str] | None = None,
) -> Picture | CompoundPicture:
    """The picture of `desc`: the logical grid, and below it the memory strip in address order.

    An element has one number and one color in both: its row-major index, or with `offsets` its offset in elements, and
    the color of its block. Padding is hatched; memory that belongs to no element is dotted. Large tensors are shown in
    part, and say so. A descriptor without a layout or without elements is shown in words.

    An array is shown as it is stored, with any strides, and a `Memory` in its layout. If they have at most 256 elements
    and `offsets` is False, the cells have the values, rounded to 4 digits. A text of `parse_notation` (tag, pattern,
    vendor's name) is shown with small dims: 2, and one element more than a block along a blocked axis.
    A `Layout` has elements and no data type; its lowest element is the first of the strip. Where strides overlap, an
    offset of the strip shows the first coordinate stored there.

    Of a compound format, its name or a `CompoundMemory`, the bytes of one block are shown, with the stream of every
    bit; only `format` applies.

    `format` is what `str` of the picture gives. `width`, in characters, is that of the terminal where it is None;
    `color` is used where the terminal has it. `names` calls the axes something else, such as "oihw".

    Raises:
        FormatTagError, PatternError, NotationError: `desc` is text that names no layout.
        InvalidArguments: `desc` is no descriptor, layout, memory, text or array that has one, `format` is none of text,
            svg and html, `width` is not in 20..400, `offsets` or `color` is no truth value, or `names` are not one
            different identifier for each axis.

    >>> from inlay import MemoryDesc
    >>> show(MemoryDesc((2, 3), "f32", "any"), width=80, color=False)
    any, 2 x 3 of f32
    text    f32::any:any::f0 2x3
    The layout is not chosen yet: the primitive that takes this descriptor chooses it.
    """
    source: object = desc.desc if isinstance(desc, DescribedMemory) else desc
    if isinstance(source, str):
        source = find_compound(source) or source
    if isinstance(source, (CompoundFormat, CompoundDesc)):
        return picture_compound(source, format)
    has_type = not isinstance(desc, Layout)
    described = _described(desc)
    _require_options(format, width, {"offsets": offsets, "color": color})
    ndims = described.ndims
    found = names_of(described) if names is None else checked_names(names, ndims)
    return Picture(described, found, offsets, format, width, color, has_type, _values_of(desc, described))


def _require_options(format: object, width: object, flags: Mapping[str, object]) -> None:
    if not isinstance(format, str) or format not in get_args(PictureFormat):
        raise InvalidArguments(f"format of a picture is text, svg or html, not {shown(format)}")
    if width is not None and (type(width) is not int or not NARROWEST <= width <= WIDEST):
        raise InvalidArguments(f"width is {shown(width)}: a picture is {NARROWEST} to {WIDEST} characters wide")
    for what, flag in flags.items():
        if not isinstance(flag, bool) and not (flag is None and what == "color"):
            raise InvalidArguments(f"{what} is {shown(flag)}: give True or False")


def _described(desc: object) -> MemoryDesc:
    """The descriptor of what is to be shown; elements of a layout stand as bytes.

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
        f"desc is of type {type(desc).__name__}: give a MemoryDesc, such as MemoryDesc((2, 3), 'f32', 'ab'), a Memory, "
        "a Layout, an array, or a format tag"
    )


_MOST_VALUES = 256
"""Number of elements up to which a picture of an array shows values."""


def _values_of(source: object, desc: MemoryDesc) -> tuple[str, ...] | None:
    """Return the texts of the elements of a small array or memory in row-major order; None for all else."""
    if not isinstance(source, (np.ndarray, DescribedMemory)) or not isinstance(desc.layout, Layout | SwizzledLayout):
        return None
    if not 0 < prod(desc.dims) <= _MOST_VALUES:
        return None
    array = np.asarray(source if isinstance(source, np.ndarray) else source.unpack())
    is_whole = array.dtype.kind in "iub" or "int" in array.dtype.name
    number = int if is_whole else complex if array.dtype.kind == "c" else float
    return tuple(str(number(x)) if is_whole else f"{number(x):.4g}" for x in array.reshape(-1))


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
