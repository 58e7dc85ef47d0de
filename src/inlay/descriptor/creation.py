"""Creation of descriptor fields from the arguments of constructors: format, strides, pattern, layout, padded dims.

    "nChw8c"  (2, 17, 5, 4)     ->  c padded to 24, digits (3, 160) (8, 1)
    strides (8, 1)  (4, 6)      ->  rows 8 apart, with a gap of two elements after each
    none of them    (4, 6)      ->  dense rows: strides (6, 1)

All functions apply the same checks (`validation`), so equal layouts are accepted or rejected alike.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TypeAlias

from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import kinds
from inlay.descriptor.extras import NO_EXTRAS, Extras, require_extras
from inlay.descriptor.fields import DescriptorFields, FieldValues, InnerBlocks, require_layout
from inlay.descriptor.outer_strides import align_tiles, is_spelled, require_aligned, with_outer_strides
from inlay.descriptor.validation import (
    LARGEST,
    as_integers,
    dense_strides,
    is_nested,
    require_64_bits,
    require_bound,
    require_dims,
    require_nested,
    require_offset0,
    require_padding,
    require_placed,
)
from inlay.errors import InvalidArguments, NotationError, shown
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout, Swizzle
from inlay.layout.axis import LETTERS
from inlay.layout.views import axis_name
from inlay.notation import Notation, is_notation, parse_notation
from inlay.notation.format_tag import FormatTag
from inlay.notation.pattern import Pattern
from inlay.notation.recognition import SwizzledNotation

FormatLike: TypeAlias = Notation | str
"""A format tag, alias, pattern or layout of CuTe, as text or parsed, or `any`."""

ZERO: FieldValues = ((), None, kinds.Undefined(), 0, None, NO_EXTRAS, None)
"""The fields of the zero descriptor."""


# Constructors


def create_fields(
    dims: Iterable[int],
    data_type: DataTypeLike | None,
    format: FormatLike | Sequence[int] | None,
    strides: Iterable[int] | None = None,
    padded_dims: Iterable[int] | None = None,
    pattern: str | None = None,
    extras: Extras = NO_EXTRAS,
    offset0: int = 0,
    alignment: int | None = None,
    swizzle: Swizzle | None = None,
) -> FieldValues:
    """Create the fields of `MemoryDesc(...)` from its arguments.

    Raises:
        InvalidArguments, FormatTagError, PatternError, NotationError: see `MemoryDesc`.
    """
    wanted = as_integers("dims", dims)
    if not wanted or (type(format) is str and format == "undef"):
        return ZERO
    format, strides = separate_strides(format, strides)
    if data_type is None:
        raise InvalidArguments("data_type is missing: give one such as 'f32'")
    element = as_data_type(data_type)
    require_dims(wanted)
    notation = as_notation(format, pattern, wanted)
    layout, blocks = resolve_placement(wanted, element, notation, strides, padded_dims, alignment)
    if type(offset0) is not int or offset0 != 0:
        require_offset0(offset0)
        if not isinstance(layout, Layout) and offset0:
            raise InvalidArguments("format any has no offset0: the primitive chooses where elements are")
    if swizzle is not None or isinstance(notation, SwizzledNotation):
        if extras:
            raise InvalidArguments("extras follow the elements of oneDNN's formats, of which none is swizzled")
        layout, blocks = add_swizzle(layout, resolve_swizzle(notation, swizzle), element, offset0, blocks)
    if extras is not NO_EXTRAS:
        require_extras(extras, isinstance(layout, Layout), len(wanted))
    spelling = None if notation is None or isinstance(notation, kinds.Any) else notation.spelling
    return wanted, element, layout, int(offset0), blocks, extras, spelling


def _parse_text(text: str) -> Notation:
    """Parse a text that names a layout; the error for the name of a compound format says what it is."""
    try:
        return parse_notation(text)
    except NotationError:
        from inlay.descriptor.compound_table import find_compound  # only this message needs it

        if find_compound(text) is None:
            raise
        raise InvalidArguments(
            f"{text} is a compound format, whose buffer has several streams: use "
            f"CompoundDesc(compound({text!r}), dims), or pack_compound; or `inlay show`, `verify` and `emit`"
        ) from None


def as_notation(format: FormatLike | None, pattern: str | None, dims: Dims) -> Notation | kinds.Any | None:
    """Return the notation that `format` or `pattern` names, the kind `any`, or None if both are None.

    Raises:
        InvalidArguments: both are passed, or `format` is neither text nor a notation.
        FormatTagError, PatternError, NotationError: the text cannot be parsed.
    """
    if format is None:
        return None if pattern is None else Pattern.parse(pattern)
    if pattern is not None:
        raise InvalidArguments("format and pattern each specify the whole layout: give one of them")
    if isinstance(format, str):
        return kinds.Any() if format == "any" else _parse_text(format)
    if not is_notation(format):
        raise InvalidArguments(
            f"format is {shown(format)}: give a format tag as text, such as {LETTERS[: len(dims)]!r}, or a FormatTag"
        )
    return format


def resolve_swizzle(notation: Notation | kinds.Any | None, swizzle: object) -> Swizzle:
    """Return the swizzle of a notation, or the one that is passed.

    Raises:
        InvalidArguments: both are there, or `swizzle` is no `Swizzle`.
    """
    if isinstance(notation, SwizzledNotation):
        if swizzle is not None:
            raise InvalidArguments(f"format {notation.spelling} has a swizzle: leave out swizzle={shown(swizzle)}")
        return notation.swizzle
    if not isinstance(swizzle, Swizzle):
        raise InvalidArguments(f"swizzle is {shown(swizzle)}: give one such as inlay.Swizzle(3, 3, 3)")
    return swizzle


def add_swizzle(
    layout: kinds.Placement, swizzle: Swizzle, data_type: DataType, offset0: int, blocks: InnerBlocks | None
) -> tuple[kinds.Placement, InnerBlocks | None]:
    """Return a swizzled layout and no blocks, or `layout` and `blocks` if the swizzle is the identity.

    Raises:
        InvalidArguments: there is no layout; something is RUNTIME; an offset is negative; or two elements share a byte,
            and the swizzle or `offset0` would part them.
    """
    if not isinstance(layout, Layout):
        raise InvalidArguments("format any has no swizzle: the primitive chooses the layout")
    if layout.has_runtime:
        raise InvalidArguments("a swizzle needs known dims and strides: bind RUNTIME ones before")
    if not swizzle.bits:
        return layout, blocks
    require_64_bits(layout)
    if layout.span[0] < 0:
        raise InvalidArguments(f"the layout begins at offset {layout.span[0]}: a swizzle needs offsets of 0 or more")
    if data_type.is_sub_byte and (offset0 % 2 or not swizzle.base):
        what = f"offset0 {offset0} is odd" if offset0 % 2 else f"{swizzle} changes bit 0 of offsets"
        raise InvalidArguments(f"{what}, but two elements of {data_type} share a byte: give an even offset0, base >= 1")
    return kinds.SwizzledLayout(layout, swizzle), None


def separate_strides(
    format: FormatLike | Sequence[int] | None, strides: Iterable[int] | None
) -> tuple[FormatLike | None, Iterable[int] | None]:
    """Return format and strides, where a tuple or list of integers passed as `format` becomes the strides.

    Raises:
        InvalidArguments: `strides` are passed, too.
    """
    if not isinstance(format, (tuple, list)) or any(isinstance(entry, str) for entry in format):
        return format, strides  # type: ignore[return-value]
    if strides is not None:
        raise InvalidArguments("strides are passed twice, as format and as strides: pass them once")
    return None, as_integers("strides", format)


def resolve_placement(
    dims: Dims,
    data_type: DataType,
    notation: Notation | kinds.Any | None,
    strides: Iterable[int] | None = None,
    padded_dims: Iterable[int] | None = None,
    alignment: int | None = None,
) -> tuple[kinds.Placement, InnerBlocks | None]:
    """Return the layout or kind of a tensor with at least one dim, and its inner blocks if oneDNN can represent it.

    With a notation, `strides` are those of its leading digits; `alignment` pads its tiles, see `outer_strides`.

    Raises:
        InvalidArguments: a check of `validation` fails, or arguments contradict each other.
        PatternError: the groups of a pattern do not fit the dims.
    """
    padded = None
    if padded_dims is not None:
        padded = as_integers("padded_dims", padded_dims)
        require_padding(dims, padded)
    if isinstance(notation, kinds.Any):
        _require_nothing_else(dims, padded, strides, alignment)
        return notation, None
    if notation is None:
        if alignment is not None:
            raise InvalidArguments(
                "alignment pads tiles, which the inner digits of a format make: give a format, or strides alone"
            )
        return _place_by_strides(padded or dims, data_type, strides), ()
    return _place_by_notation(dims, data_type, notation, padded, strides, alignment)


def _require_nothing_else(
    dims: Dims, padded: Dims | None, strides: Iterable[int] | None, alignment: int | None
) -> None:
    """Check that nothing but known dims is passed with the format `any`."""
    if RUNTIME in dims:
        raise InvalidArguments("format any needs known dims: a primitive cannot choose a layout for RUNTIME ones")
    if padded not in (None, dims):
        raise InvalidArguments("format any has no padded_dims: the primitive chooses them with the layout")
    for what, value in (("strides", strides), ("alignment", alignment)):
        if value is not None:
            raise InvalidArguments(f"format any has no {what}: the primitive chooses the layout")


def _place_by_notation(
    dims: Dims,
    data_type: DataType,
    notation: Notation,
    padded: Dims | None,
    strides: Iterable[int] | None,
    alignment: int | None,
) -> tuple[Layout, InnerBlocks | None]:
    """Return the layout of a notation, with these outer strides and aligned tiles, and the inner blocks."""
    if isinstance(notation, FormatTag) and len(notation.order) != len(dims):
        _refuse_ndims(dims, notation)
    layout = notation.layout(padded or dims)
    if padded is not None:
        what = "pattern" if isinstance(notation, Pattern) else "format"
        _require_whole_blocks(
            f"{what} {notation.spelling!r}" if what == "pattern" else f"format {notation}", padded, layout
        )
    if isinstance(notation, FormatTag) and strides is None and alignment is None:
        _require_tag_range(layout, notation, data_type)
        return layout, notation.inner_blocks
    if strides is not None:
        layout = with_outer_strides(layout, as_integers("strides", strides), notation.spelling)
        if alignment is not None:
            require_aligned(layout, alignment, data_type)
    elif alignment is not None:
        layout = align_tiles(layout, alignment, data_type)
    if strides is not None or alignment is not None:
        _require_distinct_elements(layout, data_type)
    return layout, validate_layout(layout, data_type)


def _require_distinct_elements(layout: Layout, data_type: DataType) -> None:
    """Check that the outer strides of a caller let no two elements share memory.

    Raises:
        InvalidArguments: they do, or a number does not fit 64 bits.
    """
    require_64_bits(layout)
    if layout.has_runtime:
        return
    if dense_inner_blocks(layout) is not None:
        require_nested(layout, data_type)
    elif not layout.is_non_overlapping and layout.overlaps:
        raise InvalidArguments(
            f"strides {tuple(axis.stride for axis in layout.axes)} are too small: the digits inside reach beyond them, "
            "so elements would share memory"
        )


def _refuse_ndims(dims: Dims, tag: FormatTag) -> None:
    """Raise the error for a tag whose number of axes is not that of `dims`."""
    spelled = tag.spelling if tag.spelling == str(tag) else f"{tag.spelling} ({tag})"
    raise InvalidArguments(
        f"format {spelled} places {tag.ndims} axes, but dims {dims} are {len(dims)}: give {tag.ndims} dims, or a "
        f"format of {len(dims)} letters such as {LETTERS[: len(dims)]}"
    )


def _require_tag_range(layout: Layout, tag: FormatTag, data_type: DataType) -> None:
    """Check the size and the 4-bit strides of the layout of a tag; its strides nest by construction.

    Raises:
        InvalidArguments: as `require_nested`, or oneDNN's bound on tags is exceeded.
    """
    outermost = tag.order[0]
    count = layout.dims[outermost] // layout.axes[outermost].block
    # An upper bound of all numbers that the checks below compare, so most calls return here.
    bound = layout.axes[outermost].stride * count**2 * data_type.itemsize * prod([size for _, size in tag.inner_blocks])
    if 0 < bound <= LARGEST and not data_type.is_sub_byte:
        return
    _require_tag_bound(layout, tag, data_type)
    require_nested(layout, data_type)


def _require_tag_bound(layout: Layout, tag: FormatTag, data_type: DataType) -> None:
    """Check oneDNN's bound on tags: the volume up to the outermost known axis, times the number of its blocks.

    This factor makes the bound stricter than the size of memory: dims 2**31 x 3 of f32 exceed it with the tag `ab`, but
    not with the same strides.

    Raises:
        InvalidArguments: the bound exceeds 2**64 - 1 bytes.
    """
    first = layout.dims[0] // layout.axes[0].block
    widest, count = 1, 1 if layout.dims[0] == RUNTIME else first
    for i in reversed(tag.order):
        axis = layout.axes[i]
        if RUNTIME in (axis.stride, layout.dims[i]):
            break
        steps = layout.dims[i] // axis.block
        if axis.stride * (steps or 1) >= widest:
            widest, count = axis.stride * (steps or 1), steps
    count = 1 if count == widest else count
    if count * widest * data_type.itemsize >= 2**64:
        plain = tuple(axis.stride for axis in layout.axes)
        remedy = "use smaller dims" if tag.inner_blocks else f"give strides={plain} instead of the tag"
        raise InvalidArguments(
            f"format {tag.spelling} of dims {layout.dims} exceeds oneDNN's bound on tags: {count} * {widest} elements "
            f"of {data_type.itemsize} bytes are more than 2**64 - 1; {remedy}"
        )


def _place_by_strides(padded: Dims, data_type: DataType, strides: Iterable[int] | None) -> Layout:
    """Return the plain layout of `padded` dims with these strides, dense row-major if they are None."""
    steps = dense_strides(padded) if strides is None else as_integers("strides", strides)
    if len(steps) != len(padded):
        raise InvalidArguments(f"{len(padded)} dims need as many strides, not {len(steps)}: {steps}")
    layout = Layout(padded, tuple(map(Axis, steps)))
    require_nested(layout, data_type)
    return layout


def _require_whole_blocks(what: str, padded: Dims, layout: Layout) -> None:
    """Check that the caller's padded dims are whole blocks of the format or pattern `what`."""
    if layout.dims != padded:
        raise InvalidArguments(
            f"{what} pads to {layout.dims}, not to padded_dims {padded}: give multiples of its blocks, or none"
        )


def fields_of_layout(
    layout: Layout,
    data_type: DataTypeLike,
    dims: Iterable[int] | None,
    offset0: int,
    extras: Extras,
    swizzle: Swizzle | None = None,
) -> FieldValues:
    """Create the fields of `MemoryDesc.from_layout` from its arguments.

    Raises:
        InvalidArguments: see `MemoryDesc.from_layout`.
    """
    if not isinstance(layout, Layout):
        raise InvalidArguments(f"layout is {shown(layout)}: give a Layout, such as Layout.from_strides((2, 3), (3, 1))")
    wanted = layout.dims if dims is None else as_integers("dims", dims)
    require_placed(wanted, layout, offset0)
    element = as_data_type(data_type)
    require_extras(extras, swizzle is None, len(wanted))
    if not wanted:
        return ZERO
    place: tuple[kinds.Placement, InnerBlocks | None] = (layout, validate_layout(layout, element))
    if swizzle is not None:
        place = add_swizzle(layout, resolve_swizzle(None, swizzle), element, int(offset0), place[1])
    return wanted, element, place[0], int(offset0), place[1], extras, None


def fields_without_layout(
    dims: Iterable[int], data_type: DataTypeLike, place: Callable[[Dims], kinds.Placement]
) -> FieldValues:
    """Create the fields of a descriptor without a layout; `place` checks the dims and returns the kind.

    As in oneDNN, the data type is checked last.

    Raises:
        InvalidArguments: `dims` is not a sequence of integers, or descriptors of this kind cannot have the data type.
            Also any error that `place` raises.
    """
    wanted = as_integers("dims", dims)
    if not wanted:
        return ZERO
    placement = place(wanted)
    element = as_data_type(data_type)
    if not (element.is_number or isinstance(placement, kinds.Opaque)):
        what = "host scalars" if isinstance(placement, kinds.HostScalar) else "sparse tensors"
        known = ", ".join(DATA_TYPES)
        raise InvalidArguments(f"{what} hold numbers: {element} can only be copied, use one of {known}")
    return wanted, element, placement, 0, None, NO_EXTRAS, None


# Binding of RUNTIME dims and strides


def bind_fields(
    desc: DescriptorFields, dims: Iterable[int], strides: Iterable[int] | None, format: FormatLike | None
) -> FieldValues:
    """Create the fields of `MemoryDesc.bind` from its arguments.

    Raises:
        InvalidArguments, FormatTagError: see `MemoryDesc.bind`.
    """
    layout, data_type = require_layout(desc, "bind")
    wanted = as_integers("dims", dims)
    known = bind_layout(desc.dims, layout, wanted, strides, format)
    if strides is not None:
        require_nested(known, data_type)
    fields = fields_of_layout(known, data_type, wanted, desc.offset0, desc.extras)
    is_same_format = desc.spelling is not None and is_spelled(known, parse_notation(desc.spelling))
    return (*fields[:-1], desc.spelling) if is_same_format else fields


def bind_layout(
    dims: Dims, layout: Layout, bound: Dims, strides: Iterable[int] | None, format: FormatLike | None
) -> Layout:
    """Return `layout`, of a tensor of logical `dims`, with the numbers of `bound` in place of RUNTIME.

    Raises:
        InvalidArguments: see `MemoryDesc.bind`.

    >>> bind_layout((RUNTIME, 6), Layout((RUNTIME, 6), (Axis(8), Axis(1))), (4, 6), None, None)
    Layout(dims=(4, 6), axes=(Axis(stride=8, inner=()), Axis(stride=1, inner=())))
    """
    require_bound("dims", dims, bound)
    padded = tuple(
        -(-new // axis.block) * axis.block if old == RUNTIME else old
        for old, new, axis in zip(layout.dims, bound, layout.axes, strict=True)
    )
    known = tuple(axis.stride for axis in layout.axes)
    if format is not None:
        if strides is not None:
            raise InvalidArguments("strides and format each specify the order of the axes: give one of them")
        steps = _strides_of(format, padded, layout)
    else:
        steps = _bind_outermost_stride(known, padded, layout) if strides is None else as_integers("strides", strides)
    require_bound("strides", known, steps)
    return Layout(padded, tuple(Axis(step, axis.inner) for step, axis in zip(steps, layout.axes, strict=True)))


def _strides_of(format: FormatLike, padded: Dims, layout: Layout) -> Dims:
    """Return the strides of a format for padded dims; its inner blocks must be those of `layout`."""
    if isinstance(format, str) or not is_notation(format):
        format = parse_notation(format)  # type: ignore[arg-type]  # it refuses what is no text
    tagged = format.layout(padded)
    if [axis.inner for axis in tagged.axes] != [axis.inner for axis in layout.axes]:
        raise InvalidArguments(f"format {format} has other inner blocks than the descriptor: give its own")
    return tuple(axis.stride for axis in tagged.axes)


def _bind_outermost_stride(known: Dims, padded: Dims, layout: Layout) -> Dims:
    """Return `known` strides with the one RUNTIME stride replaced by that of the outermost axis, if there is one."""
    unknown = [i for i, stride in enumerate(known) if stride == RUNTIME]
    if not unknown:
        return known
    if len(unknown) > 1:
        names = ", ".join(axis_name(i) for i in unknown)
        raise InvalidArguments(
            f"the strides of {names} are RUNTIME, and their order is not known: give all strides with strides=, or the "
            "order with format="
        )
    # As for tags, an axis without elements has the extent of one.
    extents = [
        stride * max(1, dim // axis.block)
        for stride, dim, axis in zip(known, padded, layout.axes, strict=True)
        if stride != RUNTIME
    ]
    step = max([prod(axis.block for axis in layout.axes), *extents])
    return tuple(step if stride == RUNTIME else stride for stride in known)


# Views


def view_fields(desc: DescriptorFields, dims: Dims, place: kinds.Placement, start: int = 0) -> FieldValues:
    """Create the fields of a view of `desc` with kind `place`, `start` elements behind the origin of `desc`.

    Raises:
        InvalidArguments: a stride or extent does not fit 64 bits.
    """
    if not dims:
        return ZERO
    blocks = None
    if isinstance(place, Layout):
        # The strides of a view of nesting strides nest, so they are not checked again.
        blocks = dense_inner_blocks(place) if desc._blocks is not None else onednn_blocks(place)
        if blocks is None or 0 in dims:
            # The checks of nesting strides, which bound their size, do not apply here.
            require_64_bits(place)
    return dims, desc.data_type, place, desc.offset0 + start, blocks, desc.extras, None


# Inner blocks: layouts that oneDNN can represent


def validate_layout(layout: Layout, data_type: DataType) -> InnerBlocks | None:
    """Return the inner blocks of `layout` after oneDNN's checks, or None without checks if oneDNN cannot represent it.

    Raises:
        InvalidArguments: oneDNN can represent this layout, but rejects its size or strides that split a byte.
    """
    blocks = onednn_blocks(layout)
    if blocks is not None:
        require_nested(layout, data_type)
    return blocks


def onednn_blocks(layout: Layout) -> InnerBlocks | None:
    """Return the inner blocks of a layout that oneDNN can represent: dense blocks, nesting strides. None for others.

    >>> onednn_blocks(Layout.from_strides((4, 6), (6, 1))), onednn_blocks(Layout.from_strides((4, 6), (-6, 1)))
    ((), None)
    """
    blocks = dense_inner_blocks(layout)
    return blocks if blocks is not None and is_nested(layout) else None


def dense_inner_blocks(layout: Layout) -> InnerBlocks | None:
    """Return the inner blocks of a layout, outermost first, or None if its inner digits are not dense blocks.

    oneDNN's inner blocks are dense: the innermost has stride 1, and the stride of each other block is the product of
    the sizes of all blocks inside it. The blocks of one axis are in the order of their weight.

    >>> dense_inner_blocks(FormatTag.parse("ABcd4b16a4b").layout((32, 32, 3, 3)))
    ((1, 4), (0, 16), (1, 4))
    >>> dense_inner_blocks(Pattern.parse("(m m4 m32) (k k4) -> m k m32 m4 k4").layout((256, 8))) is None
    True
    """
    digits = []
    for i, axis in enumerate(layout.axes):
        outer = 0
        for digit in axis.inner:
            if digit.extent > 1:
                if 0 < outer < digit.stride:
                    return None
                outer = digit.stride
                digits.append((outer, i, digit.extent))
    if not digits:
        return ()
    digits.sort()
    blocks: list[tuple[int, int]] = []
    need = 1
    for stride, i, extent in digits:
        if stride != need:
            return None
        need *= extent
        blocks.append((i, extent))
    return tuple(blocks[::-1])


def inner_digits_of(blocks: InnerBlocks, ndims: int) -> list[tuple[Digit, ...]]:
    """Return the inner digits of each axis for dense inner blocks; the inverse of `dense_inner_blocks`.

    >>> inner_digits_of(((1, 4), (0, 16), (1, 4)), 2)[1]
    (Digit(extent=4, stride=64), Digit(extent=4, stride=1))
    """
    inner: list[tuple[Digit, ...]] = [()] * ndims
    stride = 1
    for axis, size in reversed(blocks):
        inner[axis] = (Digit(size, stride), *inner[axis])
        stride *= size
    return inner
