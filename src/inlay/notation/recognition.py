"""Texts that name layouts, in any notation: `parse_notation` finds out which it is and parses it.

    text                                        notation                   parsed to
    nChw8c, aBcd8b                              format tag or alias        `FormatTag`
    n (c c8) h w -> n c h w c8                  pattern: has an arrow, a   `Pattern`
                                                group, or several words
    (2,(8,3),5,4):(480,(1,160),32,8)            CuTe: starts with a        `ShapeStride`
                                                number
    tensorrt:CHW32, onednn:nChw8c               name of the dictionary:    `Pattern`, or `FormatTag`
                                                a word and a colon         for oneDNN
    Swizzle<3,4,3> o (8,64):(64,1)              any of them, swizzled      `SwizzledNotation`

Each has `ndims`, `names` (one per axis), `spelling` (the text) and `layout(dims)`, so callers need not tell them apart.

>>> for text in ("nhwc", "n (row r8) -> n row r8", "(2,3):(1,2)"):
...     notation = parse_notation(text)
...     print(type(notation).__name__, notation.names)
FormatTag ('n', 'c', 'h', 'w')
Pattern ('n', 'row')
ShapeStride ('a', 'b')
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from inlay.errors import InvalidArguments, shown
from inlay.layout import Layout, Swizzle
from inlay.notation.dictionary import ONEDNN, find_named, has_vendor
from inlay.notation.format_tag import FormatTag
from inlay.notation.pattern import Pattern
from inlay.notation.shape_stride import ShapeStride, split_swizzle

_NUMBER_FIRST = re.compile(r"[\s(]*(?:[_0-9]|-[0-9])")
"""The beginning of a layout of CuTe: an extent, which may be inside parentheses."""
_ARROW = re.compile(r"->|→")
"""The part that only a pattern has."""
_PATTERN_PART = re.compile(r"->|→|[()]|\S\s+\S")
"""The parts that a pattern has and no tag: an arrow, a group, several words."""


@dataclass(frozen=True, slots=True)
class SwizzledNotation:
    """A layout in another notation whose offsets are swizzled."""

    spelling: str
    """The whole text."""
    swizzle: Swizzle
    """The swizzle before the layout."""
    notation: FormatTag | Pattern | ShapeStride
    """The layout without the swizzle."""

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return self.notation.ndims

    @property
    def names(self) -> tuple[str, ...]:
        """One name per axis."""
        return self.notation.names

    def layout(self, dims: Sequence[int]) -> Layout:
        """Return the layout of a tensor of `dims`, whose offsets are to be swizzled by `swizzle`.

        Raises:
            InvalidArguments, PatternError: as the `layout` of the notation.
        """
        return self.notation.layout(dims)


Notation: TypeAlias = FormatTag | Pattern | ShapeStride | SwizzledNotation
"""A parsed text that names a layout."""


def parse_notation(text: str) -> Notation:
    """Parse a text that names a layout: a tag, a pattern, CuTe's `shape:stride`, a vendor's name, each with a swizzle.

    White space at both ends is left out, and line breaks are spaces, so that `spelling` is one line.

    Post-condition: parse_notation(result.spelling) == result.

    Raises:
        FormatTagError, PatternError, NotationError: `text` is not of the notation that it looks like, or the dictionary
            has no such name.
        InvalidArguments: `text` is not a `str`, or the numbers of a swizzle are invalid.

    >>> parse_notation("nChw8c").layout((2, 17, 5, 4)).dims
    (2, 24, 5, 4)
    >>> parse_notation("tensorrt:CHW32").spelling
    'n (c c32) h w -> n c h w c32'
    >>> parse_notation("Swizzle<3,4,3> o (8,64):(64,1)").swizzle
    Swizzle(bits=3, base=4, shift=3)
    """
    if not isinstance(text, str):
        raise InvalidArguments(f"a format tag is text such as 'nChw16c', not {shown(text)}")
    if text.isalnum():
        return FormatTag.parse(text)
    text = " ".join(text.split())
    swizzle, rest = split_swizzle(text)
    notation = _parse_unswizzled(rest)
    return notation if swizzle is None else SwizzledNotation(text, swizzle, notation)


def _parse_unswizzled(text: str) -> FormatTag | Pattern | ShapeStride:
    """Parse a text without a swizzle."""
    if has_vendor(text):
        row = find_named(text)
        return FormatTag.parse(row.name.partition(":")[2]) if row.vendor == ONEDNN else Pattern.parse(row.pattern)
    if _NUMBER_FIRST.match(text) and not _ARROW.search(text):
        return ShapeStride.parse(text)
    return Pattern.parse(text) if _PATTERN_PART.search(text) else FormatTag.parse(text)


def is_notation(value: object) -> bool:
    """Return True if `value` is a parsed text that names a layout.

    >>> is_notation(FormatTag.parse("ab")), is_notation("ab")
    (True, False)
    """
    return isinstance(value, (FormatTag, Pattern, ShapeStride, SwizzledNotation))
