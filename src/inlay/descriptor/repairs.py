"""What to do instead of a view that is refused: the cheapest repair, in words and as values.

Three kinds of repair, in the order of their price:

    dims close by that are a view        nothing moves
    the view itself in free digits       nothing moves, but no oneDNN primitive takes the result
    a reorder, after which it is a view  moves every element once

A reorder reads the elements and writes the destination with its padding. Three destinations are tried: the present
format without blocks on the axes concerned, the same with these axes together in logical order, and row-major order.
The one that moves least wins; of equal ones the first, so that as much as possible of the format stays.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import prod
from typing import TypeVar

from inlay import views
from inlay.data_type import DataType
from inlay.descriptor.creation import created, place, view_of
from inlay.descriptor.described import Described, Fields, InnerBlocks
from inlay.descriptor.ordering import axis_letters, tag_without_extras
from inlay.descriptor.queries import bytes_of, bytes_text
from inlay.errors import FormatTagError, InlayError
from inlay.format_tag import LETTERS, FormatTag, tag_of
from inlay.layout import Axis, Dims, Layout
from inlay.layout.refusal import Refusal, remedy_of
from inlay.layout.regroup import Fault, Name, Run, deed, nearest_dims, nearest_volumes, runs

T = TypeVar("T")


def reshape_refusal(desc: Described, dims: Dims, fault: Fault, digits: bool, make: Callable[[Fields], T]) -> Refusal[T]:
    """The refusal of a reshape of `desc` to `dims` for `fault`, with its repairs, as `make` makes them of fields."""
    refusal: Refusal[T] = Refusal(fault.rule, tuple(range(*fault.run[:2])), fault.problem)
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None or fault.rule in ("kind", "runtime"):
        return refusal
    if fault.rule == "volume":
        shapes = nearest_volumes(prod(desc.dims), dims)
        nearest = next((s for s in shapes if _gives(desc.dims, layout, s, digits)), None)
        return replace(refusal, remedy=f"{nearest} works" if nearest else "", nearest=nearest)
    if fault.rule == "zero":
        return replace(refusal, remedy=f"no element would move: describe a tensor of {dims} instead")
    faulty = [run for run in runs(desc.dims, layout.dims, dims) if not _run_works(desc.dims, layout, dims, run, digits)]
    near = nearest_dims(desc.dims, layout.dims, dims, lambda run: run not in faulty)
    nearest = near if near is not None and _gives(desc.dims, layout, near, digits) else None
    free = views.try_reshape(desc.dims, layout, dims, digits=True)
    found = _cheapest(desc, data_type, _candidates(layout, faulty), lambda placed: _gives(desc.dims, placed, dims))
    letters = axis_letters(desc)
    return replace(
        refusal,
        remedy=remedy_of(
            f"{_said(desc, letters)}{desc.dims} -> {nearest} works" if nearest else "",
            isinstance(free, Layout),
            "" if found is None else _reorder_text(lambda name: deed(fault.run, name), *found, letters),
        ),
        nearest=nearest,
        free=make(view_of(desc, dims, free)) if isinstance(free, Layout) else None,
        target=make(created(desc.dims, data_type, found[0])) if found else None,
        moved=found[1] if found else None,
    )


def _gives(dims: Dims, layout: Layout, new_dims: Dims, digits: bool = False) -> bool:
    return len(new_dims) <= len(LETTERS) and isinstance(
        views.try_reshape(dims, layout, new_dims, digits=digits), Layout
    )


def _run_works(dims: Dims, layout: Layout, new_dims: Dims, run: Run, digits: bool) -> bool:
    """Whether this run of axes alone can be reshaped."""
    old, old_end, new, new_end = run
    part = Layout(layout.dims[old:old_end], layout.axes[old:old_end])
    return isinstance(views.try_reshape(dims[old:old_end], part, new_dims[new:new_end], digits=digits), Layout)


def _cheapest(
    desc: Described, data_type: DataType, candidates: Iterable[FormatTag], works: Callable[[Layout], bool]
) -> tuple[FormatTag, int] | None:
    """Of the candidates whose layout works, the destination of the reorder that moves least, and its bytes."""
    best: tuple[FormatTag, int] | None = None
    for tag in dict.fromkeys(candidates):
        try:
            placed, _ = place(desc.dims, data_type, tag, None, None, None)
        except InlayError:
            continue  # as for strides that would split a byte
        if isinstance(placed, Layout) and works(placed):
            moved = bytes_of(prod(desc.dims), data_type) + bytes_of(prod(placed.dims), data_type)
            if best is None or moved < best[1]:
                best = tag, moved
    return best


def _candidates(layout: Layout, faulty: list[Run]) -> Iterator[FormatTag]:
    """The destinations tried, the nearest to the present format first."""
    present = tag_of(layout)
    if present is None:
        by_stride = sorted(range(layout.ndims), key=lambda i: -layout.axes[i].stride)
        present = FormatTag(tuple(by_stride))
    concerned = {i for old, old_end, _, _ in faulty for i in range(old, old_end)}
    blocks = _joined_blocks([block for block in present.inner_blocks if block[0] not in concerned])
    yield FormatTag(present.order, blocks)
    order = list(present.order)
    for old, old_end, _, _ in faulty:
        at = min(order.index(i) for i in range(old, old_end))
        rest = [i for i in order if not old <= i < old_end]
        order = rest[:at] + list(range(old, old_end)) + rest[at:]
    yield FormatTag(tuple(order), blocks)
    yield FormatTag(tuple(range(layout.ndims)))


def _joined_blocks(blocks: Iterable[tuple[int, int]]) -> InnerBlocks:
    """The blocks, neighbors on the same axis as one."""
    result: list[tuple[int, int]] = []
    for i, size in blocks:
        if result and result[-1][0] == i:
            size *= result.pop()[1]
        result.append((i, size))
    return tuple(result)


def _said(desc: Described, letters: str) -> str:
    """The format of `desc` before its dims, where it has one."""
    tag = None if desc.extras else tag_without_extras(desc)
    return "" if tag is None else f"{_tag_text(FormatTag.parse(tag), letters) or tag} "


def _tag_text(tag: FormatTag, letters: str) -> str | None:
    """The tag in these letters, if they can be read as the tag."""
    names = str.maketrans(LETTERS[: tag.ndims] + LETTERS[: tag.ndims].upper(), letters + letters.upper())
    text = str(tag).translate(names)
    try:
        return text if FormatTag.parse(text) == tag else None
    except FormatTagError:
        return None


def _reorder_text(wish: Callable[[Name], str], tag: FormatTag, moved: int, letters: str) -> str:
    text = _tag_text(tag, letters)
    # Letters of two notations side by side would mislead.
    name = letters.__getitem__ if text is not None else "axis {}".format
    return f"to {wish(name)}, reorder to {text or tag} first ({bytes_text(moved)} moved)"


def box_text(desc: Described, dims: Dims, offsets: Dims, fault: Fault) -> str:
    """The text of the refusal of a box, with the nearest box that works and the reorder after which this one does."""
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None or fault.rule not in ("region", "blocks"):
        return fault.problem
    box = [nearest_box(*each) for each in zip(desc.dims, layout.axes, dims, offsets, strict=True)]
    region, starts = tuple([size for size, _ in box]), tuple([start for _, start in box])
    remedy = f"dims {region} at offsets {starts} work"
    if fault.rule == "blocks":
        cut = [(i, i + 1, i, i + 1) for i in range(layout.ndims) if (dims[i], offsets[i]) != box[i]]
        found = _cheapest(
            desc,
            data_type,
            _candidates(layout, cut),
            lambda placed: isinstance(views.try_submemory(desc.dims, placed, dims, offsets), tuple),
        )
        reorder = _reorder_text(lambda name: f"cut {name(fault.run[0])}", *found, axis_letters(desc)) if found else ""
        remedy = remedy_of(f"{remedy} and hold that box", False, reorder)
    return f"{fault.problem}\n    {remedy}"


def nearest_box(dim: int, axis: Axis, size: int, start: int) -> tuple[int, int]:
    """Size and start along one axis of the least part that can be viewed and holds what there is of the part asked for.

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
