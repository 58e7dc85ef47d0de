"""From what a caller may say about a layout - a format, strides, a pattern, padded dims - to the layout.

    "nChw8c"  (2, 17, 5, 4)     ->  c padded to 24, digits (3, 160) (8, 1)
    strides (8, 1)  (4, 6)      ->  rows 8 apart, two elements of gap after each
    none of them    (4, 6)      ->  dense rows: strides (6, 1)

Each way ends in the same rules (`validation`), so a layout is accepted or refused for what it is, however it was said.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TypeAlias

from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import kinds
from inlay.descriptor.described import Described, Fields, InnerBlocks, require_layout
from inlay.descriptor.extras import NO_EXTRAS, Extras, require_extras
from inlay.descriptor.validation import (
    LARGEST,
    as_integers,
    dense_strides,
    is_nested,
    require_64_bits,
    require_bound,
    require_dims,
    require_nested,
    require_padding,
    require_placed,
)
from inlay.errors import InvalidArguments, shown
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout
from inlay.layout.axis import LETTERS
from inlay.layout.views import axis_name
from inlay.notation.format_tag import FormatTag
from inlay.notation.pattern import parse_pattern

FormatLike: TypeAlias = FormatTag | str
"""A format tag, its text, an alias, or `any`."""

ZERO: Fields = ((), None, kinds.Undefined(), 0, None, NO_EXTRAS, None)
"""The zero descriptor."""


# What constructors say


def created(
    dims: Iterable[int],
    data_type: DataTypeLike | None,
    format: FormatLike | Sequence[int] | None,
    strides: Iterable[int] | None = None,
    padded_dims: Iterable[int] | None = None,
    pattern: str | None = None,
    extras: Extras = NO_EXTRAS,
) -> Fields:
    """The fields of `MemoryDesc(...)`.

    Raises:
        InvalidArguments, FormatTagError, PatternError: as there.
    """
    wanted = as_integers("dims", dims)
    if not wanted or (type(format) is str and format == "undef"):
        return ZERO
    format, strides = strides_apart(format, strides)
    if data_type is None:
        raise InvalidArguments("data_type is missing: give one such as 'f32'")
    element = as_data_type(data_type)
    require_dims(wanted)
    layout, blocks = place(wanted, element, format, strides, padded_dims, pattern)
    has_layout = isinstance(layout, Layout)
    if extras is not NO_EXTRAS:
        require_extras(extras, has_layout, len(wanted))
    spelling = None
    if has_layout and format is not None:
        spelling = format.spelling if isinstance(format, FormatTag) else str(format)
    return wanted, element, layout, 0, blocks, extras, spelling


def strides_apart(
    format: FormatLike | Sequence[int] | None, strides: Iterable[int] | None
) -> tuple[FormatLike | None, Iterable[int] | None]:
    """The format and the strides that a caller means: integers in the place of a format are strides.

    Raises:
        InvalidArguments: both are strides.
    """
    if not isinstance(format, (tuple, list)) or any(isinstance(entry, str) for entry in format):
        return format, strides  # type: ignore[return-value]
    if strides is not None:
        raise InvalidArguments("strides are given twice, in the place of the format too: give them once")
    return None, as_integers("strides", format)


def place(
    dims: Dims,
    data_type: DataType,
    format: FormatLike | None,
    strides: Iterable[int] | None,
    padded_dims: Iterable[int] | None,
    pattern: str | None,
) -> tuple[kinds.Placement, InnerBlocks | None]:
    """The place of a tensor with at least one dim, and its inner blocks where oneDNN can say them.

    Raises:
        InvalidArguments: more than one of format, strides and pattern is given, or the rules of `validation` refuse.
        FormatTagError, PatternError: the text cannot be read.
    """
    if (format is not None) + (strides is not None) + (pattern is not None) > 1:
        raise InvalidArguments("format, strides and pattern each say the whole layout: give one of them")
    padded = None
    if padded_dims is not None:
        padded = as_integers("padded_dims", padded_dims)
        require_padding(dims, padded)
    if format is not None:
        return _by_format(dims, data_type, format, padded)
    if pattern is not None:
        layout = parse_pattern(pattern, padded or dims)
        if padded is not None:
            _require_whole_blocks(f"pattern {pattern!r}", padded, layout)
        return layout, accepted(layout, data_type)
    return _by_strides(padded or dims, data_type, strides), ()


def _by_format(
    dims: Dims, data_type: DataType, format: FormatLike, padded: Dims | None
) -> tuple[kinds.Placement, InnerBlocks | None]:
    if not isinstance(format, (FormatTag, str)):
        raise InvalidArguments(
            f"format is {shown(format)}: give a format tag as text, such as {LETTERS[: len(dims)]!r}, or a FormatTag"
        )
    if format == "any":
        if RUNTIME in dims:
            raise InvalidArguments("format any needs known dims: a primitive cannot choose a layout for RUNTIME ones")
        if padded not in (None, dims):
            raise InvalidArguments("format any takes no padded_dims: the primitive chooses them with the layout")
        return kinds.Any(), None
    tag = format if isinstance(format, FormatTag) else FormatTag.parse(format)
    if len(tag.order) != len(dims):
        _refuse_ndims(dims, format, tag)
    layout = tag.layout(padded or dims)
    if padded is not None:
        _require_whole_blocks(f"format {format}", padded, layout)
    _require_tag_range(layout, tag, data_type)
    return layout, tag.inner_blocks


def _refuse_ndims(dims: Dims, format: FormatLike, tag: FormatTag) -> None:
    spelled = tag.spelling if tag.spelling == str(tag) else f"{tag.spelling} ({tag})"
    raise InvalidArguments(
        f"format {spelled} places {tag.ndims} axes, but dims {dims} are {len(dims)}: give {tag.ndims} dims, or a "
        f"format of {len(dims)} letters such as {LETTERS[: len(dims)]}"
    )


def _require_tag_range(layout: Layout, tag: FormatTag, data_type: DataType) -> None:
    """oneDNN's rules for a layout that a tag made: it nests, so only its reach and 4-bit strides can be refused.

    Raises:
        InvalidArguments: as `require_nested`, or oneDNN's bound on tags is exceeded.
    """
    outermost = tag.order[0]
    count = layout.dims[outermost] // layout.axes[outermost].block
    # More than any rule below computes, so the common case passes at once.
    bound = layout.axes[outermost].stride * count**2 * data_type.itemsize * prod([size for _, size in tag.inner_blocks])
    if 0 < bound <= LARGEST and not data_type.is_sub_byte:
        return
    _require_tag_bound(layout, tag, data_type)
    require_nested(layout, data_type)


def _require_tag_bound(layout: Layout, tag: FormatTag, data_type: DataType) -> None:
    """oneDNN's bound on tags: the elements inside and including the widest known axis, times that axis once more.

    The second factor makes it stricter than memory needs: 2**31 x 3 of f32 by `ab` exceed it, the same strides do not.

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


def _by_strides(placed: Dims, data_type: DataType, strides: Iterable[int] | None) -> Layout:
    steps = dense_strides(placed) if strides is None else as_integers("strides", strides)
    if len(steps) != len(placed):
        raise InvalidArguments(f"{len(placed)} dims need as many strides, not {len(steps)}: {steps}")
    layout = Layout(placed, tuple(map(Axis, steps)))
    require_nested(layout, data_type)
    return layout


def _require_whole_blocks(what: str, padded: Dims, layout: Layout) -> None:
    if layout.dims != padded:
        raise InvalidArguments(
            f"{what} pads to {layout.dims}, not to padded_dims {padded}: give multiples of its blocks, or none"
        )


def placed_by(
    layout: Layout, data_type: DataTypeLike, dims: Iterable[int] | None, offset0: int, extras: Extras
) -> Fields:
    """The fields of `MemoryDesc.from_layout`.

    Raises:
        InvalidArguments: as there.
    """
    if not isinstance(layout, Layout):
        raise InvalidArguments(f"layout is {shown(layout)}: give a Layout, such as Layout.from_strides((2, 3), (3, 1))")
    wanted = layout.dims if dims is None else as_integers("dims", dims)
    require_placed(wanted, layout, offset0)
    element = as_data_type(data_type)
    require_extras(extras, True, len(wanted))
    return (wanted, element, layout, int(offset0), accepted(layout, element), extras, None) if wanted else ZERO


def encoded(dims: Iterable[int], data_type: DataTypeLike, place: Callable[[Dims], kinds.Placement]) -> Fields:
    """The fields of a descriptor without a layout: where its elements are is what `place` makes of the dims.

    As in oneDNN, that is checked before the type.

    Raises:
        InvalidArguments: `dims` are no sequence of integers, or the type cannot be stored; or what `place` raises.
    """
    wanted = as_integers("dims", dims)
    if not wanted:
        return ZERO
    placement = place(wanted)
    element = as_data_type(data_type)
    if not (element.is_number or isinstance(placement, kinds.Opaque)):
        what = "host scalars" if isinstance(placement, kinds.HostScalar) else "sparse tensors"
        known = ", ".join(DATA_TYPES)
        raise InvalidArguments(f"{what} hold numbers: {element} only moves, use one of {known}")
    return wanted, element, placement, 0, None, NO_EXTRAS, None


# RUNTIME bound to numbers


def bound(desc: Described, dims: Iterable[int], strides: Iterable[int] | None, format: FormatLike | None) -> Fields:
    """The fields of `MemoryDesc.bind`.

    Raises:
        InvalidArguments, FormatTagError: as there.
    """
    layout, data_type = require_layout(desc, "bind")
    wanted = as_integers("dims", dims)
    known = bound_layout(desc.dims, layout, wanted, strides, format)
    if strides is not None:
        require_nested(known, data_type)
    fields = placed_by(known, data_type, wanted, desc.offset0, desc.extras)
    keeps = desc.spelling is not None and FormatTag.parse(desc.spelling).layout(known.dims) == known
    return (*fields[:-1], desc.spelling) if keeps else fields


def bound_layout(
    dims: Dims, layout: Layout, bound: Dims, strides: Iterable[int] | None, format: FormatLike | None
) -> Layout:
    """`layout`, of a tensor of logical `dims`, with the numbers of `bound` in place of RUNTIME.

    Raises:
        InvalidArguments: see `MemoryDesc.bind`.

    >>> bound_layout((RUNTIME, 6), Layout((RUNTIME, 6), (Axis(8), Axis(1))), (4, 6), None, None)
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
            raise InvalidArguments("strides and format each say the order of the axes: give one of them")
        steps = _strides_of(format, padded, layout)
    else:
        steps = _outermost(known, padded, layout) if strides is None else as_integers("strides", strides)
    require_bound("strides", known, steps)
    return Layout(padded, tuple(Axis(step, axis.inner) for step, axis in zip(steps, layout.axes, strict=True)))


def _strides_of(format: FormatLike, padded: Dims, layout: Layout) -> Dims:
    tag = format if isinstance(format, FormatTag) else FormatTag.parse(format)
    said = tag.layout(padded)
    if [axis.inner for axis in said.axes] != [axis.inner for axis in layout.axes]:
        raise InvalidArguments(f"format {format} has other inner blocks than the descriptor: give its own")
    return tuple(axis.stride for axis in said.axes)


def _outermost(known: Dims, padded: Dims, layout: Layout) -> Dims:
    """`known` with the one RUNTIME stride that an axis outside all others has, if there is one."""
    unknown = [i for i, stride in enumerate(known) if stride == RUNTIME]
    if not unknown:
        return known
    if len(unknown) > 1:
        names = ", ".join(axis_name(i) for i in unknown)
        raise InvalidArguments(
            f"the strides of {names} are RUNTIME, and their order is not known: say all strides with strides=, or the "
            "order with format="
        )
    # As tags do, an axis of no element takes the room of one.
    reached = [
        stride * max(1, dim // axis.block)
        for stride, dim, axis in zip(known, padded, layout.axes, strict=True)
        if stride != RUNTIME
    ]
    step = max([prod(axis.block for axis in layout.axes), *reached])
    return tuple(step if stride == RUNTIME else stride for stride in known)


# Views


def view_of(desc: Described, dims: Dims, place: kinds.Placement, start: int = 0) -> Fields:
    """The fields of a view of `desc` that lies at `place`, `start` elements behind the origin of `desc`.

    Raises:
        InvalidArguments: a stride or extent does not fit 64 bits.
    """
    if not dims:
        return ZERO
    blocks = None
    if isinstance(place, Layout):
        # A view of what nests does.
        blocks = inner_blocks_of(place) if desc._blocks is not None else blocks_of(place)
        if blocks is None or 0 in dims:
            # No rule bounds the strides there.
            require_64_bits(place)
    return dims, desc.data_type, place, desc.offset0 + start, blocks, desc.extras, None


# Inner blocks, the digits that oneDNN can say


def accepted(layout: Layout, data_type: DataType) -> InnerBlocks | None:
    """The inner blocks of `layout` once oneDNN's rules have passed it; None, and no rule, where it cannot say it.

    Raises:
        InvalidArguments: oneDNN can say this layout, and refuses its reach or strides that split a byte.
    """
    blocks = blocks_of(layout)
    if blocks is not None:
        require_nested(layout, data_type)
    return blocks


def blocks_of(layout: Layout) -> InnerBlocks | None:
    """The inner blocks of a layout that oneDNN can say and accepts: its strides nest too. None of any other.

    >>> blocks_of(Layout.from_strides((4, 6), (6, 1))), blocks_of(Layout.from_strides((4, 6), (-6, 1)))
    ((), None)
    """
    blocks = inner_blocks_of(layout)
    return blocks if blocks is not None and is_nested(layout) else None


def inner_blocks_of(layout: Layout) -> InnerBlocks | None:
    """The inner blocks of a layout that oneDNN can say, outermost first, or None if it cannot.

    oneDNN's inner blocks are dense: the innermost has stride 1 and each other one starts where the next ends; and the
    blocks of an axis lie in the order of their weight.

    >>> inner_blocks_of(FormatTag.parse("ABcd4b16a4b").layout((32, 32, 3, 3)))
    ((1, 4), (0, 16), (1, 4))
    >>> inner_blocks_of(parse_pattern("(m m4 m32) (k k4) -> m k m32 m4 k4", (256, 8))) is None
    True
    """
    found = []
    for i, axis in enumerate(layout.axes):
        outer = 0
        for digit in axis.inner:
            if digit.extent > 1:
                if 0 < outer < digit.stride:
                    return None
                outer = digit.stride
                found.append((outer, i, digit.extent))
    if not found:
        return ()
    found.sort()
    blocks: list[tuple[int, int]] = []
    need = 1
    for stride, i, extent in found:
        if stride != need:
            return None
        need *= extent
        blocks.append((i, extent))
    return tuple(blocks[::-1])


def digits_of(blocks: InnerBlocks, ndims: int) -> list[tuple[Digit, ...]]:
    """Per axis, the digits of inner blocks, which are dense; `inner_blocks_of` is the way back.

    >>> digits_of(((1, 4), (0, 16), (1, 4)), 2)[1]
    (Digit(extent=4, stride=64), Digit(extent=4, stride=1))
    """
    inner: list[tuple[Digit, ...]] = [()] * ndims
    stride = 1
    for axis, size in reversed(blocks):
        inner[axis] = (Digit(size, stride), *inner[axis])
        stride *= size
    return inner
