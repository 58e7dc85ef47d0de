"""Views of a descriptor (reshape, permute axes, submemory), and repairs for views that do not exist.

The functions return the fields of the result. As in oneDNN, the first check is whether views of the descriptor exist at
all, the second whether dims, permutation or box are valid for it, and the last one is `inlay.layout.views` for its
layout. A view that does not exist is a `ViewFault`. There are three kinds of repair, from the cheapest on:

    the nearest dims that have a view          no data moves
    the same view with `digits=True`           no data moves, but oneDNN's primitives do not support the result
    a reorder to a layout that has the view    moves every element once

A reorder reads the elements and writes the destination with its padding. Three destinations are tried: the present
format without blocks on the axes concerned, the same with these axes adjacent in logical order, and row-major order.
The one that moves the fewest bytes is chosen, the first of equal ones.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import prod
from typing import SupportsIndex, TypeVar

from inlay.arguments import as_flag
from inlay.data_type import DataType
from inlay.descriptor import kinds
from inlay.descriptor.creation import create_fields, resolve_placement, view_fields
from inlay.descriptor.fields import DescriptorFields, FieldValues, InnerBlocks, has_runtime, kind_text
from inlay.descriptor.queries import axis_letters, bytes_of, bytes_text, dims_text, tag_without_extras
from inlay.descriptor.validation import LARGEST, as_integers, require_dims
from inlay.errors import FormatTagError, InlayError, InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Axis, Dims, Layout, views
from inlay.layout.axis import LETTERS
from inlay.layout.regroup import (
    AxisMatch,
    AxisNaming,
    Refusal,
    ViewFault,
    match_axes,
    nearest_dims,
    nearest_volumes,
    remedy_text,
    reshape_text,
)
from inlay.notation.format_tag import FormatTag, tag_of

# Views


def reshape(desc: DescriptorFields, dims: int | Iterable[int], digits: bool, explain: bool) -> FieldValues:
    """Create the fields of `MemoryDesc.reshape`; the text of an error names the repairs if `explain` is true.

    Raises:
        InvalidArguments: see `MemoryDesc.reshape`.
    """
    wanted = resolve_dims(desc, dims)
    fields = try_reshape(desc, wanted, digits)
    if not isinstance(fields, ViewFault):
        return fields
    if not explain:
        raise InvalidArguments(fields.problem)
    raise InvalidArguments(str(reshape_refusal(desc, wanted, fields, digits, lambda result: result)))


def resolve_dims(desc: DescriptorFields, dims: int | Iterable[int]) -> Dims:
    """Return the dims of a reshape as a tuple, in which the number that the others leave replaces an entry -1.

    Raises:
        InvalidArguments: `dims` are neither an integer nor a sequence of integers, -1 occurs twice, or the other
            entries do not divide the volume of `desc`.

    >>> from inlay.descriptor import MemoryDesc
    >>> resolve_dims(MemoryDesc((2, 6), "f32"), (-1, 3)), resolve_dims(MemoryDesc((2, 6), "f32"), -1)
    ((4, 3), (12,))
    """
    is_single = type(dims) is not tuple and isinstance(dims, SupportsIndex) and not isinstance(dims, (bool, Iterable))
    wanted = as_integers("dims", (dims,) if is_single else dims)  # type: ignore[arg-type]
    if -1 not in wanted or has_runtime(desc):
        return wanted
    if wanted.count(-1) > 1:
        raise InvalidArguments(f"dims {wanted} have several entries -1: at most one can follow from the others")
    others, volume = prod([dim for dim in wanted if dim != -1]), prod(desc.dims)
    if others <= 0 or volume % others:
        raise InvalidArguments(
            f"no dim can replace -1 in {wanted}: dims {dims_text(desc.dims)} hold {volume} elements, and the other "
            f"entries {others}"
        )
    return tuple([volume // others if dim == -1 else dim for dim in wanted])


def try_reshape(desc: DescriptorFields, dims: Dims, digits: bool) -> FieldValues | ViewFault:
    """Create the fields of `desc` reshaped to `dims`, or the fault if the view does not exist.

    Raises:
        InvalidArguments: `dims` are invalid, or `digits` is not a bool.
    """
    is_free = as_flag("digits", digits)
    require_dims(dims)
    layout = desc.layout
    if not isinstance(layout, (Layout, kinds.Any)) or desc.extras or has_runtime(desc):
        return view_fault(desc, "reshape")
    if RUNTIME in dims:
        problem = f"reshape to {dims_text(dims)} needs numbers: RUNTIME dims have no volume to keep"
        return ViewFault((0, len(desc.dims), 0, len(dims)), "runtime", problem)
    volume, new_volume = views.volume(desc.dims), views.volume(dims)
    if volume != new_volume:
        problem = (
            f"dims {dims_text(desc.dims)} hold {volume} elements, {dims_text(dims)} {new_volume}: a reshape keeps "
            "their number, where a dim of 0 counts as 1"
        )
        return ViewFault((0, len(desc.dims), 0, len(dims)), "volume", problem)
    if isinstance(layout, Layout):
        place = views.try_reshape(desc.dims, layout, dims, digits=is_free, name=lambda i: _axis_name(desc, i))
        return place if isinstance(place, ViewFault) else view_fields(desc, dims, place)
    return view_fields(desc, dims, layout)


def permute_axes(desc: DescriptorFields, permutation: Iterable[int]) -> FieldValues:
    """Create the fields of `MemoryDesc.permute_axes`.

    Raises:
        InvalidArguments: see `MemoryDesc.permute_axes`.
    """
    positions = as_integers("permutation", permutation)
    _require_axes(desc, "permute_axes", "permutation", positions)
    return _permute_fields(desc, positions)


def rename_axes(desc: DescriptorFields, order: Iterable[int]) -> FieldValues:
    """Create the fields of `MemoryDesc.rename_axes`.

    Raises:
        InvalidArguments: see `MemoryDesc.rename_axes`.
    """
    ndims = len(desc.dims)
    axes = tuple([i + ndims if -ndims <= i < 0 else i for i in as_integers("order", order)])
    _require_axes(desc, "rename_axes", "order", axes)
    return _permute_fields(desc, views.inverse(axes))


def _require_axes(desc: DescriptorFields, view: str, what: str, axes: Dims) -> None:
    """Check that `axes`, the argument `what`, contain each axis once, and that `desc` can be permute."""
    if not isinstance(desc.layout, (Layout, kinds.Any)) or has_runtime(desc) or not desc.extras.may_be_permuted:
        raise InvalidArguments(view_fault(desc, view).problem)
    views.require_permutation(what, axes, len(desc.dims))


def _permute_fields(desc: DescriptorFields, permutation: Dims) -> FieldValues:
    """Create the fields of `desc` with axis i relabeled as axis `permutation[i]`."""
    layout = desc.layout
    place = views.permute_axes(layout, permutation) if isinstance(layout, Layout) else layout
    return view_fields(desc, views.permute(desc.dims, permutation), place)


def submemory(desc: DescriptorFields, dims: Iterable[int], offsets: Iterable[int]) -> FieldValues:
    """Create the fields of `MemoryDesc.submemory`.

    Raises:
        InvalidArguments, Unimplemented: see `MemoryDesc.submemory`.
    """
    size, starts = as_integers("dims", dims), as_integers("offsets", offsets)
    box = _place_box(desc, size, starts)
    if not isinstance(box, ViewFault):
        return view_fields(desc, size, *box)
    raise (InvalidArguments if box.rule == "region" else Unimplemented)(submemory_refusal_text(desc, size, starts, box))


def _place_box(desc: DescriptorFields, dims: Dims, offsets: Dims) -> tuple[Layout, int] | ViewFault:
    """Return the layout of the box of `dims` elements at `offsets` and the offset of its first element, or a fault."""
    for what, values in (("dims", dims), ("offsets", offsets)):
        if len(values) != len(desc.dims):
            raise InvalidArguments(
                f"{what} {values} of the submemory has {len(values)} entries: its parent has {len(desc.dims)} dims"
            )
    if has_runtime(desc):
        raise Unimplemented(f"submemory needs known dims and strides: {desc!r} has RUNTIME ones, bind them first")
    layout = desc.layout
    if not isinstance(layout, Layout):
        fault = views.region_fault(desc.dims, dims, offsets)
        return fault or ViewFault((0, len(desc.dims), 0, 0), "kind", f"submemory needs a layout: {kind_text(desc)}")
    box = views.try_submemory(desc.dims, layout, dims, offsets, lambda i: _axis_name(desc, i))
    if not isinstance(box, ViewFault) and desc.offset0 + box[1] > LARGEST:
        raise InvalidArguments(f"the submemory starts {desc.offset0 + box[1]} elements in, more than 2**63 - 1")
    return box


def view_fault(desc: DescriptorFields, what: str) -> ViewFault:
    """Return the fault of a descriptor of which no views exist; `what` names the view in its text."""
    everything = (0, len(desc.dims), 0, 0)
    if desc.extras and (what == "reshape" or not desc.extras.may_be_permuted):
        problem = (
            f"{what} needs elements alone: {desc!r} has buffers or factors that belong to its axes; "
            "describe the weights without extras, and fill them last"
        )
        return ViewFault(everything, "kind", problem)
    if isinstance(desc.layout, Layout) and desc.layout.has_runtime:
        problem = f"{what} needs known dims and strides: {desc!r} has RUNTIME ones, bind them first"
        return ViewFault(everything, "runtime", problem)
    return ViewFault(everything, "kind", f"{what} needs a layout or the format any: {kind_text(desc)}")


def _axis_name(desc: DescriptorFields, i: int) -> str:
    """Return the name of axis `i` in messages, with its letter in the tag of `desc`."""
    return views.axis_name(i, axis_letters(desc))


# Repairs


T = TypeVar("T")


def reshape_refusal(
    desc: DescriptorFields, dims: Dims, fault: ViewFault, digits: bool, make: Callable[[FieldValues], T]
) -> Refusal[T]:
    """Create the refusal of a reshape of `desc` to `dims` because of `fault`, with its repairs.

    `make` creates a descriptor from the fields of each repair.
    """
    refusal: Refusal[T] = Refusal(fault.rule, tuple(range(*fault.match[:2])), fault.problem)
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None or fault.rule in ("kind", "runtime"):
        return refusal
    if fault.rule == "volume":
        shapes = nearest_volumes(prod(desc.dims), dims)
        nearest = next((s for s in shapes if _can_reshape(desc.dims, layout, s, digits)), None)
        return replace(refusal, remedy=f"{nearest} works" if nearest else "", nearest=nearest)
    if fault.rule == "zero":
        return replace(refusal, remedy=f"no element would move: describe a tensor of {dims} instead")
    faulty = [
        match
        for match in match_axes(desc.dims, layout.dims, dims)
        if not _match_works(desc.dims, layout, dims, match, digits)
    ]
    near = nearest_dims(desc.dims, layout.dims, dims, lambda match: match not in faulty)
    nearest = near if near is not None and _can_reshape(desc.dims, layout, near, digits) else None
    free = views.try_reshape(desc.dims, layout, dims, digits=True)
    reorder = _find_cheapest_reorder(
        desc, data_type, _candidate_formats(layout, faulty), lambda placed: _can_reshape(desc.dims, placed, dims)
    )
    letters = axis_letters(desc)
    return replace(
        refusal,
        remedy=remedy_text(
            f"{_format_text(desc, letters)}{desc.dims} -> {nearest} works" if nearest else "",
            isinstance(free, Layout),
            "" if reorder is None else _reorder_text(lambda name: reshape_text(fault.match, name), *reorder, letters),
        ),
        nearest=nearest,
        free=make(view_fields(desc, dims, free)) if isinstance(free, Layout) else None,
        target=make(create_fields(desc.dims, data_type, reorder[0])) if reorder else None,
        moved=reorder[1] if reorder else None,
    )


def _can_reshape(dims: Dims, layout: Layout, new_dims: Dims, digits: bool = False) -> bool:
    """Return True if the reshape of `layout`, of a tensor of `dims`, to `new_dims` exists."""
    return len(new_dims) <= len(LETTERS) and isinstance(
        views.try_reshape(dims, layout, new_dims, digits=digits), Layout
    )


def _match_works(dims: Dims, layout: Layout, new_dims: Dims, match: AxisMatch, digits: bool) -> bool:
    """Return True if the reshape of this match alone exists."""
    old, old_end, new, new_end = match
    part = Layout(layout.dims[old:old_end], layout.axes[old:old_end])
    return isinstance(views.try_reshape(dims[old:old_end], part, new_dims[new:new_end], digits=digits), Layout)


def submemory_refusal_text(desc: DescriptorFields, dims: Dims, offsets: Dims, fault: ViewFault) -> str:
    """Return the error text for a box without a view: the fault, the nearest box with one, and a reorder that helps."""
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None or fault.rule not in ("region", "blocks"):
        return fault.problem
    box = [nearest_box(*each) for each in zip(desc.dims, layout.axes, dims, offsets, strict=True)]
    region, starts = tuple([size for size, _ in box]), tuple([start for _, start in box])
    remedy = f"dims {region} at offsets {starts} work"
    if fault.rule == "blocks":
        cut = [(i, i + 1, i, i + 1) for i in range(layout.ndims) if (dims[i], offsets[i]) != box[i]]
        reorder = _find_cheapest_reorder(
            desc,
            data_type,
            _candidate_formats(layout, cut),
            lambda placed: isinstance(views.try_submemory(desc.dims, placed, dims, offsets), tuple),
        )
        letters = axis_letters(desc)
        text = _reorder_text(lambda name: f"cut {name(fault.match[0])}", *reorder, letters) if reorder else ""
        remedy = remedy_text(f"{remedy} and hold that box", False, text)
    return f"{fault.problem}\n    {remedy}"


def nearest_box(dim: int, axis: Axis, size: int, start: int) -> tuple[int, int]:
    """Return size and start along one axis of the smallest range that has a view and contains the requested range.

    The part of the requested range outside the axis is ignored.

    >>> from inlay.layout import Digit
    >>> nearest_box(17, Axis(160, (Digit(8, 1),)), 5, 6)
    (16, 0)
    """
    block = axis.block
    low = min(max(start, 0), dim)
    high = min(max(start + size, low), dim)
    low -= low % block
    if high - low > block:
        high = min(dim, -(-high // block) * block)
    return high - low, low


def _find_cheapest_reorder(
    desc: DescriptorFields, data_type: DataType, candidates: Iterable[FormatTag], works: Callable[[Layout], bool]
) -> tuple[FormatTag, int] | None:
    """Return the working candidate whose reorder moves the fewest bytes, and these bytes, or None."""
    best: tuple[FormatTag, int] | None = None
    for tag in dict.fromkeys(candidates):
        try:
            placed, _ = resolve_placement(desc.dims, data_type, tag)
        except InlayError:
            continue  # the format is invalid for this data type: its strides would split a byte
        if isinstance(placed, Layout) and works(placed):
            moved = bytes_of(prod(desc.dims), data_type) + bytes_of(prod(placed.dims), data_type)
            if best is None or moved < best[1]:
                best = tag, moved
    return best


def _candidate_formats(layout: Layout, faulty: list[AxisMatch]) -> Iterator[FormatTag]:
    """Yield the destinations of a reorder to try, the nearest to the present format first."""
    present = tag_of(layout)
    if present is None:
        by_stride = sorted(range(layout.ndims), key=lambda i: -layout.axes[i].stride)
        present = FormatTag(tuple(by_stride))
    concerned = {i for old, old_end, _, _ in faulty for i in range(old, old_end)}
    blocks = _merge_blocks([block for block in present.inner_blocks if block[0] not in concerned])
    yield FormatTag(present.order, blocks)
    order = list(present.order)
    for old, old_end, _, _ in faulty:
        at = min(order.index(i) for i in range(old, old_end))
        rest = [i for i in order if not old <= i < old_end]
        order = rest[:at] + list(range(old, old_end)) + rest[at:]
    yield FormatTag(tuple(order), blocks)
    yield FormatTag(tuple(range(layout.ndims)))


def _merge_blocks(blocks: Iterable[tuple[int, int]]) -> InnerBlocks:
    """Merge neighboring blocks of the same axis."""
    result: list[tuple[int, int]] = []
    for i, size in blocks:
        if result and result[-1][0] == i:
            size *= result.pop()[1]
        result.append((i, size))
    return tuple(result)


def _reorder_text(purpose: Callable[[AxisNaming], str], tag: FormatTag, moved: int, letters: str) -> str:
    """Return the text that proposes a reorder to `tag`; `purpose` returns the view's text for a naming of axes."""
    text = _tag_text(tag, letters)
    # A text must not mix role letters and abstract letters.
    name = letters.__getitem__ if text is not None else "axis {}".format
    return f"to {purpose(name)}, reorder to {text or tag} first ({bytes_text(moved)} moved)"


def _tag_text(tag: FormatTag, letters: str) -> str | None:
    """Return the tag in these letters of the axes, or None if the text would not be parsed as the tag."""
    names = str.maketrans(LETTERS[: tag.ndims] + LETTERS[: tag.ndims].upper(), letters + letters.upper())
    text = str(tag).translate(names)
    try:
        return text if FormatTag.parse(text) == tag else None
    except FormatTagError:
        return None


def _format_text(desc: DescriptorFields, letters: str) -> str:
    """Return the format of `desc` and a space, or an empty text if it has none."""
    tag = None if desc.extras else tag_without_extras(desc)
    return "" if tag is None else f"{_tag_text(FormatTag.parse(tag), letters) or tag} "
