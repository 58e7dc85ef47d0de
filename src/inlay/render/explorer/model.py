"""The JSON of a layout and of a reorder, as the page gets them. `docs/explorer.md` documents every key.

A layout is its digits, dims, padded dims and origin, from which the page computes offsets, and words about them:

    offset(c) = offset0 + sum over axes, over digits, of digit of (c + padded_offset) * stride, then the swizzle

Numbers above 2**53 - 1 are texts, because numbers of JavaScript are not exact there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from inlay.data_type import DATA_TYPES, MOVED_TYPES
from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.errors import InlayError
from inlay.layout import Layout
from inlay.notation.dictionary import has_vendor, list_equivalent, list_rows
from inlay.notation.format_tag import ALIASES
from inlay.render.blocks import blocks_of, digit_in_words, shares_elements
from inlay.render.explorer.jump_marks import jump_marks
from inlay.render.explorer.memory_groups import memory_groups
from inlay.render.explorer.padded_computation import padded_computation
from inlay.render.explorer.request import ParsedRequest, parse_request
from inlay.render.explorer.view_steps import ViewStep, apply_views, dims_text
from inlay.render.legend import (
    blocks_in_words,
    digits_in_words,
    layout_name,
    list_notations,
    offset_formula,
    size_in_words,
    swizzle_formula,
)

VERSION = 1
"""Version of the JSON of a layout."""
LARGEST_NUMBER = 2**53 - 1
"""Greatest integer up to which all integers are exact numbers of JavaScript."""


@dataclass(frozen=True, slots=True)
class ExploredLayout:
    """A layout that the page shows: a request, and its views, applied."""

    request: ParsedRequest
    """The request, parsed."""
    steps: tuple[ViewStep, ...]
    """Its views, each applied to the result of the one before."""

    @property
    def desc(self) -> MemoryDesc:
        """The descriptor after the views."""
        return self.steps[-1].desc if self.steps else self.request.desc

    @property
    def names(self) -> tuple[str, ...]:
        """One name per axis of `desc`."""
        return self.steps[-1].names if self.steps else self.request.names

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the layout, whose title is in the words of the request if it has no tag."""
        text = self.request.source["layout"].strip()
        layout = describe_layout(self.request.desc, self.request.names, self.steps)
        base = text if has_vendor(text) else _title(self.request.desc)
        if not self.steps:
            layout["title"] = base
        elif layout["tag"] is None:
            layout["title"] = f"view of {base}"
        return layout


def read_layout(request: object) -> ExploredLayout:
    """Parse a request and apply its views.

    Raises:
        InvalidField: the request is malformed, a text of it is wrong, or a view does not exist.
    """
    parsed = parse_request(request)
    return ExploredLayout(parsed, tuple(apply_views(parsed)))


def explore_layout(request: object) -> dict[str, Any]:
    """Return the JSON of the layout that a request describes.

    Args:
        request: a mapping as the page sends it, of texts that a user types: `layout`, `dims`, and, if they are not the
            default, `data_type` ("f32"), `names`, `views` and `offset0`.

    Raises:
        InvalidField: the request is malformed, a text of it is wrong, or a view does not exist.

    >>> layout = explore_layout({"layout": "nChw8c", "dims": "2x17x5x4"})
    >>> layout["title"], layout["padded_dims"], layout["memory_elements"], layout["padding_elements"]
    ('nChw8c', [2, 24, 5, 4], 960, 280)
    """
    return read_layout(request).to_json()


def describe_layout(desc: MemoryDesc, names: Sequence[str], steps: Sequence[ViewStep] = ()) -> dict[str, Any]:
    """Return the JSON of a layout, whose axes have these names, or of the last of these views of it.

    Raises:
        InvalidArguments: `desc` has no layout.
        Unimplemented: something is RUNTIME.

    >>> describe_layout(MemoryDesc((4, 6), "bf16", strides=(8, 1)), "ab")["gap_elements"]
    8
    """
    viewed = (desc, *(step.desc for step in steps))
    if steps:
        desc, names = steps[-1].desc, steps[-1].names
    layout, data_type = addressed_layout(desc, "the explorer")
    values = {
        "version": VERSION,
        "title": _title(desc),
        "text": f"{desc} {dims_text(desc.dims)}",
        "tag": desc.tag,
        "data_type": data_type.name,
        "element_bits": data_type.bits,
        "names": tuple(names),
        "dims": desc.dims,
        "padded_dims": desc.padded_dims,
        "padded_offsets": desc.padded_offsets,
        "digits": [[{"extent": d.extent, "stride": d.stride} for d in digits] for digits in layout.digits],
        "offset0": desc.offset0,
        "swizzle": _swizzle(desc),
        **_memory(viewed, layout),
        **_words(desc, layout, names),
        "marks": jump_marks(desc, names),
        "groups": memory_groups(desc, names),
        "padded_computation": padded_computation(desc, names),
        "views": [_view(step) for step in steps],
    }
    return {key: _as_json(value) for key, value in values.items()}


def _as_json(value: Any) -> Any:
    """Return a value whose tuples are lists, and whose integers above 2**53 - 1 are texts."""
    if isinstance(value, dict):
        return {key: _as_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(entry) for entry in value]
    if type(value) is int and abs(value) > LARGEST_NUMBER:
        return str(value)
    return value


def _title(desc: MemoryDesc) -> str:
    """Return the name of a layout, without its tag in abstract letters if it has another name."""
    name = layout_name(desc)
    return name.removesuffix(f" ({desc.tag})")


def _swizzle(desc: MemoryDesc) -> dict[str, Any] | None:
    """Return the numbers of a swizzle, its text, and the offset as an expression of `s`, the offset before it."""
    swizzle = desc.swizzle
    if swizzle is None:
        return None
    numbers = {"bits": swizzle.bits, "base": swizzle.base, "shift": swizzle.shift}
    return {**numbers, "text": str(swizzle), "formula": swizzle_formula(swizzle, desc.offset0)}


# Memory


def _memory(viewed: Sequence[MemoryDesc], layout: Layout) -> dict[str, Any]:
    """Return the extent of memory that the strip shows, and the amounts of padding and gaps in it, in elements.

    `layout` is that of the last of `viewed`, which is a view of the others. The strip shows the memory of all.
    """
    desc = viewed[-1]
    low, _ = _extent(desc)
    start, stop = min(0, low), max(_extent(one)[1] for one in viewed)
    stored = _count_offsets(layout)
    return {
        "memory_start": start,
        "memory_elements": stop - start,
        "lowest_offset": low,
        "size": desc.size,
        "overlaps": 0 not in layout.dims and shares_elements(layout),
        "padding_elements": prod(layout.dims) - prod(desc.dims),
        "gap_elements": None if stored is None else stop - start - stored,
    }


def _extent(desc: MemoryDesc) -> tuple[int, int]:
    """Return the least offset of an element or of padding, and the end of the buffer, in elements."""
    layout, data_type = addressed_layout(desc, "the explorer")
    if 0 in layout.dims:
        return desc.offset0, desc.offset0
    low, high = layout.span
    if desc.swizzle is not None:
        low, high = 0, desc.swizzle.round_up(high)
    size = desc.size * 8 // data_type.bits
    return desc.offset0 + low, desc.offset0 + max(high, min(0, low) + size)


def _count_offsets(layout: Layout) -> int | None:
    """Return the number of offsets that elements or padding have; None if axes other than those of stride 0 overlap."""
    if 0 in layout.dims:
        return 0
    is_broadcast = [not axis.stride and not axis.inner for axis in layout.axes]
    dims = tuple(1 if is_still else dim for is_still, dim in zip(is_broadcast, layout.dims, strict=True))
    return None if shares_elements(Layout(dims, layout.axes)) else prod(dims)


# Words


def _words(desc: MemoryDesc, layout: Layout, names: Sequence[str]) -> dict[str, Any]:
    """Return the texts about a layout."""
    linear = MemoryDesc.from_layout(layout, "u8", dims=desc.dims, offset0=0 if desc.swizzle else desc.offset0)
    blocks = blocks_of(layout)
    return {
        "formula": offset_formula(linear, names),
        "block_axes": [digit_in_words(place, names) for place in blocks.outer],
        "block_text": blocks_in_words(layout, names),
        "digits_text": digits_in_words(linear, names),
        "size_text": size_in_words(desc),
        "notations": _notations(desc, names),
    }


def _notations(desc: MemoryDesc, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the name of each notation that can say a layout, and its text; then the names that vendors give it."""
    notations, also = list(list_notations(desc, names)), _vendor_names(desc)
    return [*notations, ("also", ", ".join(also))] if also else notations


_MOST_NAMES = 8
"""Number of vendors' names of one layout."""


def _vendor_names(desc: MemoryDesc) -> list[str]:
    """Return names that vendors give the layout."""
    try:
        rows = list_equivalent(desc.tag or desc.pattern).rows
    except InlayError:
        return []
    return [row.name for row in rows][:_MOST_NAMES]


def _view(step: ViewStep) -> dict[str, Any]:
    """Return one applied view: its call, and its result in words."""
    text = f"{step.desc} {dims_text(step.desc.dims)}"
    return {"op": step.op, "call": step.call, "text": text, "dims": step.desc.dims, "names": step.names}


# Choices


def list_choices() -> dict[str, list[str]]:
    """Return the data types, oneDNN's aliases of tags, and the names of vendors, which fields may have.

    >>> choices = list_choices()
    >>> choices["data_types"][:3], choices["tags"][:2], "tensorrt:CHW32" in choices["names"]
    (['f16', 'bf16', 'f32'], ['x', 'nc'], True)
    """
    return {
        "data_types": [*DATA_TYPES, *MOVED_TYPES],
        "tags": list(ALIASES),
        "names": [row.name for row in list_rows()],
    }
