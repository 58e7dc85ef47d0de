"""Jump marks: where memory order steps from one value of a digit to the next, as in "Understanding Memory Formats".

The article marks the jumps of a plain layout by a letter and a number, from the innermost axis to the outermost:

    nchw    [a:0] w    [a:1] h    [a:2] c    [a:3] n
    nhwc    [b:0] c    [b:1] w    [b:2] h    [b:3] n
    chwn    [c:0] n    [c:1] w    [c:2] h    [c:3] c

Other layouts get the letter d, with one number for each digit: nChw8c has d:0 for c%8, d:1 for w, d:2 for h, d:3 for
c//8 and d:4 for n.

Source: oneDNN, "Understanding Memory Formats".
"""

from collections.abc import Sequence
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.layout import Layout
from inlay.render.blocks import AxisDigit, digit_in_words, places
from inlay.render.legend import nearest_tag

_ARTICLE = {"ncw": "a", "nchw": "a", "ncdhw": "a", "nwc": "b", "nhwc": "b", "ndhwc": "b", "chwn": "c", "cdhwn": "c"}
"""Letters of the marks of plain layouts, by the names of their axes from the outermost to the innermost."""
_OTHER = "d"


def jump_marks(desc: MemoryDesc, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the marks of a layout with elements, the innermost first.

    Each has the axis and the index of its digit, the stride of the digit, the coordinate and offset of the first
    element after the first jump (`coordinate`, `offset`) and of the element before it (`from_coordinate`, `from`), and
    a note. Offsets count elements from the start of the buffer.

    >>> desc = MemoryDesc((2, 16, 5, 4), "f32", "nchw")
    >>> for mark in jump_marks(desc, "nchw"):
    ...     print(mark["label"], mark["from_coordinate"], mark["coordinate"], mark["offset"], mark["note"])
    a:0 [0, 0, 0, 0] [0, 0, 0, 1] 1 next w: 1 element further
    a:1 [0, 0, 0, 3] [0, 0, 1, 0] 4 next h: 4 elements further, after 4 of w
    a:2 [0, 0, 4, 3] [0, 1, 0, 0] 20 next c: 20 elements further, after 5 of h
    a:3 [0, 15, 4, 3] [1, 0, 0, 0] 320 next n: 320 elements further, after 16 of c
    """
    layout, _ = addressed_layout(desc, "jump marks")
    if 0 in layout.dims:
        return []
    moving = [place for place in reversed(places(layout)) if place.stride]
    letter, numbers = _labels(desc, moving, names)
    before = [0] * layout.ndims
    marks = []
    for i, place in enumerate(moving):
        after = [0] * layout.ndims
        after[place.axis] = place.weight
        marks.append(
            {
                "label": f"{letter}:{numbers[i]}",
                "axis": place.axis,
                "digit": digit_index(layout, place),
                "stride": place.stride,
                "coordinate": after,
                "offset": desc.offset(tuple(after)),
                "from_coordinate": list(before),
                "from": desc.offset(tuple(before)),
                "note": _note(place, moving[i - 1] if i else None, names),
            }
        )
        last = (place.extent - 1) * place.weight
        before[place.axis] = min(before[place.axis] + last, layout.dims[place.axis] - 1)
    return marks


def digit_index(layout: Layout, place: AxisDigit) -> int:
    """Return the index of a digit in `layout.digits[place.axis]`, of those with several values."""
    weight = 1
    digits = layout.digits[place.axis]
    for i in reversed(range(len(digits))):
        if weight == place.weight and digits[i].extent > 1:
            return i
        weight *= digits[i].extent
    return 0


def _labels(desc: MemoryDesc, moving: Sequence[AxisDigit], names: Sequence[str]) -> tuple[str, list[int]]:
    """Return the letter of the marks and the number of each digit, the innermost first.

    In the layouts of the article, the number is the position of the axis, also if other axes have one coordinate only.
    """
    tag = nearest_tag(desc)
    if tag is not None and not tag.inner_blocks:
        letter = _ARTICLE.get("".join(names[axis] for axis in tag.order))
        if letter is not None:
            inward = tag.order[::-1]
            return letter, [inward.index(place.axis) for place in moving]
    return _OTHER, list(range(len(moving)))


def _note(place: AxisDigit, inner: AxisDigit | None, names: Sequence[str]) -> str:
    """Return the words of a mark; `inner` is the digit that has taken all its values before the jump."""
    count = abs(place.stride)
    way = "further" if place.stride > 0 else "back"
    after = f", after {inner.extent} of {digit_in_words(inner, names)}" if inner else ""
    return f"next {digit_in_words(place, names)}: {count} element{'s' if count != 1 else ''} {way}{after}"
