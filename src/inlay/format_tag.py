"""Format tags: oneDNN's notation for layouts, read, printed, and turned into digits.

A tag names the axes of a tensor a, b, c, ... and writes them in the order they lie in memory, outermost first; after
them come the inner blocks, again outermost first, each a size and the axis it takes coordinates from. An axis with
inner blocks is written in upper case. So `aBcd8b` is: images, blocks of 8 channels, rows, columns, and inside all that
the 8 channels of a block. Many tags have an alias that names the axes by their role: `nChw8c` is `aBcd8b`.

    >>> tag = FormatTag.parse("nChw8c")
    >>> str(tag), tag.order, tag.inner_blocks
    ('aBcd8b', (0, 1, 2, 3), ((1, 8),))
    >>> tag.layout((2, 17, 5, 4)).dims
    (2, 24, 5, 4)

A tag is a rule for any dims; a layout is what the rule gives for some. oneDNN enumerates 873 tags; the grammar below
reads every tag that could be spelled, and `ENUMERATED` tells which of them oneDNN has a code for.

Source: oneDNN, `dnnl_format_tag_t` and `memory_desc_init_by_tag`.
"""

import json
import pkgutil
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, NoReturn

from inlay.errors import FileError, FormatTagError, InvalidArguments
from inlay.layout import RUNTIME, Axis, Digit, Layout

LETTERS = "abcdefghijkl"
"""The names of the axes; oneDNN has at most 12."""

_LARGEST = 2**63 - 1


def _read_table() -> Any:
    content = pkgutil.get_data("inlay", "data/format_tags.json")
    if content is None:
        raise FileError(
            "the table inlay/data/format_tags.json is not readable where inlay is installed: reinstall inlay"
        )
    return json.loads(content)


_TABLE = _read_table()

ALIASES: Mapping[str, str] = MappingProxyType(_TABLE["aliases"])
"""The tag that each alias stands for."""

ENUMERATED: Mapping[str, int] = MappingProxyType({t: i for i, t in enumerate(_TABLE["tags"], _TABLE["first_code"])})
"""oneDNN's code, `dnnl_format_tag_t`, of each tag that has one."""


@dataclass(frozen=True, slots=True)
class FormatTag:
    """One format tag.

    Post-condition: `FormatTag.parse(str(tag)) == tag`.
    """

    order: tuple[int, ...]
    """The axes, outermost first."""
    inner_blocks: tuple[tuple[int, int], ...] = ()
    """Axis and size of each inner block, outermost first; sizes are 2 or more."""
    _inner: tuple[tuple[Digit, ...], ...] = field(init=False, repr=False, compare=False)
    """Per axis, the digits of its inner blocks: they depend on no dims."""
    _blocks: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Per axis, the product of its inner blocks."""

    def __post_init__(self) -> None:
        """Refuse what cannot be spelled.

        Raises:
            InvalidArguments: `order` does not use each of 0..n-1 once with n from 1 to 12, or an inner block has an
                axis outside them or a size below 2.
        """
        n = len(self.order)
        if not 1 <= n <= len(LETTERS) or sorted(self.order) != list(range(n)):
            raise InvalidArguments(f"the order of a format tag uses each of 0..n-1 once, n from 1 to 12: {self.order}")
        inner: list[list[Digit]] = [[] for _ in self.order]
        stride = 1
        for axis, size in reversed(self.inner_blocks):
            if not 0 <= axis < n or size < 2:
                raise InvalidArguments(
                    f"inner block ({axis}, {size}) needs an axis of 0..{n - 1} and a size of 2 or more"
                )
            inner[axis].append(Digit(size, stride))
            stride *= size
        object.__setattr__(self, "_inner", tuple(tuple(reversed(digits)) for digits in inner))
        object.__setattr__(self, "_blocks", tuple(prod(digit.extent for digit in digits) for digits in inner))

    @classmethod
    def parse(cls, text: str) -> "FormatTag":
        """The tag that `text` spells, itself or by an alias; blocks of one element are dropped.

        Raises:
            FormatTagError: `text` is neither a tag nor an alias, or is `any` or `undef`, which give no layout.
            InvalidArguments: `text` is no text.

        >>> FormatTag.parse("OIhw4i16o4i") == FormatTag.parse("ABcd4b16a4b")
        True
        >>> str(FormatTag.parse("aB1b"))
        'ab'
        """
        if not isinstance(text, str):
            raise InvalidArguments(f"a format tag is text such as 'nChw16c', not {text!r}")
        return _parse(text)

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self.order)

    def blocks(self, axis: int) -> int:
        """The product of the inner blocks of `axis`, 1 if it has none: its dim is padded to a multiple of this.

        >>> FormatTag.parse("ABcd4b16a4b").blocks(1)
        16
        """
        return self._blocks[axis]

    def __str__(self) -> str:
        """The tag in oneDNN's letters."""
        blocked = {axis for axis, _ in self.inner_blocks}
        outer = (LETTERS[axis].upper() if axis in blocked else LETTERS[axis] for axis in self.order)
        return "".join(outer) + "".join(f"{size}{LETTERS[axis]}" for axis, size in self.inner_blocks)

    def layout(self, dims: Sequence[int]) -> Layout:
        """The layout of a tensor of `dims`, padded to whole blocks and dense; a dim of 0 counts as 1 in the strides.

        Where a dim is RUNTIME, so is the stride of every axis outside it.

        Raises:
            InvalidArguments: `dims` differ in number from the axes of the tag, one is negative, or the padded tensor
                has more than 2**63 - 1 elements.

        >>> [axis.stride for axis in FormatTag.parse("nChw8c").layout((2, 17, 5, 4)).axes]
        [480, 160, 32, 8]
        """
        n = len(self.order)
        if len(dims) != n:
            raise InvalidArguments(f"format tag {self} places {n} axes, dims {tuple(dims)} have {len(dims)}")
        padded = list(dims)
        axes: list[Axis] = [_NO_AXIS] * n
        blocks, inner = self._blocks, self._inner
        stride = prod(blocks)
        for axis in reversed(self.order):
            axes[axis] = Axis(stride, inner[axis])
            dim, block = dims[axis], blocks[axis]
            if dim < 0:
                if dim != RUNTIME:
                    raise InvalidArguments(f"dim {axis} is {dim}: dims are 0 or more")
                stride = RUNTIME
                continue
            if block > 1:
                dim = -(-dim // block)
                padded[axis] = dim * block
            reach = padded[axis]
            if stride > 0:
                # No padded dim so far is larger.
                stride *= dim or 1
                reach = stride
            if reach > _LARGEST:
                self._refuse_size(dims, axis)
        return Layout(tuple(padded), tuple(axes))

    def _refuse_size(self, dims: Sequence[int], axis: int) -> NoReturn:
        raise InvalidArguments(
            f"format tag {self} of dims {tuple(dims)} needs more than 2**63 - 1 elements"
            f" once axis {axis} ({LETTERS[axis]}) is counted: use smaller dims or blocks"
        )


_NO_AXIS = Axis(0)


def tag_of(layout: Layout) -> FormatTag | None:
    """The tag that gives `layout` for its own dims, or None where none does; strides of axes of one do not count.

    Post-condition: a tag that is not None gives the dims and inner digits of `layout`, and its strides wherever the
    dim is not 1.

    >>> str(tag_of(FormatTag.parse("nhwc").layout((2, 3, 4, 5))))
    'acdb'
    >>> tag_of(Layout.from_strides((4, 6), (8, 1))) is None
    True
    """
    if not 1 <= layout.ndims <= len(LETTERS):
        return None
    digits = [(d.stride, i, d.extent) for i, axis in enumerate(layout.axes) for d in axis.inner if d.extent > 1]
    blocks = tuple((i, extent) for _, i, extent in sorted(digits, reverse=True))
    by_stride = FormatTag(_order_by_stride(layout), blocks)
    if _gives(by_stride, layout, every_stride=True):
        return by_stride
    moved = FormatTag(_after_their_predecessors(by_stride.order, layout.dims), blocks)
    return moved if _gives(moved, layout, every_stride=False) else None


def _order_by_stride(layout: Layout) -> tuple[int, ...]:
    """The axes by falling stride; of equal strides, the axis that repeats lies outside the one that does not."""

    def place(i: int) -> tuple[float, float, int]:
        dim, stride = layout.dims[i], layout.axes[i].stride
        count = float("inf") if dim == RUNTIME else max(1, -(-dim // layout.axes[i].block))
        return (-float("inf") if stride == RUNTIME else -stride, -count, i)

    return tuple(sorted(range(layout.ndims), key=place))


def _after_their_predecessors(order: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """`order` with every axis of one moved just inside the axis named before it, where plain orders have it."""
    moved = [i for i in order if dims[i] != 1]
    for i in range(len(dims)):
        if dims[i] == 1:
            moved.insert(moved.index(i - 1) + 1 if i else 0, i)
    return tuple(moved)


def _gives(tag: FormatTag, layout: Layout, every_stride: bool) -> bool:
    """Whether `tag` gives the dims, blocks and strides of `layout`; unless `every_stride`, axes of one are excused."""
    try:
        rebuilt = tag.layout(layout.dims)
    except InvalidArguments:
        return False
    if rebuilt.dims != layout.dims:
        return False
    for mine, theirs, dim in zip(rebuilt.axes, layout.axes, layout.dims, strict=True):
        if mine.stride != theirs.stride and (every_stride or dim != 1):
            return False
        if mine.inner != tuple(digit for digit in theirs.inner if digit.extent > 1):
            return False
    return True


# Reading. One function per rule of the grammar; each takes the reader and leaves it after what it read.

_TOKENS = {
    "letter": re.compile(r"[A-Za-z]"),
    "size": re.compile(r"[0-9]+"),
}


@dataclass(slots=True)
class _Reader:
    """A text and how far it has been read."""

    text: str
    """The whole text."""
    position: int = 0
    """Index of the next character to read."""

    def read(self, kind: str) -> str | None:
        """The next token if it is of this kind, consumed; else None."""
        match = _TOKENS[kind].match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[0]

    def fail(self, problem: str, start: int, end: int | None = None) -> NoReturn:
        """Raise with a caret span from `start` to `end`, one character long unless told."""
        raise FormatTagError(problem, self.text, start, start + 1 if end is None else end)


@lru_cache(maxsize=4096)
def _parse(text: str) -> FormatTag:
    if text in ("any", "undef"):
        meaning = "lets a primitive choose the layout" if text == "any" else "is the absence of a format"
        raise FormatTagError(f"'{text}' {meaning}: it is no tag and gives no layout", text, 0, len(text))
    return _read_tag(_Reader(ALIASES.get(text, text)))


def _read_tag(reader: _Reader) -> FormatTag:
    """tag = outer , { block } ;"""
    foreign = re.search(r"[^A-Za-z0-9]", reader.text)
    if foreign:
        problem = f"{foreign[0]!r} has no place in a format tag, which has letters and block sizes"
        reader.fail(problem, foreign.start())
    outer = _read_outer(reader)
    axes = outer.lower()
    blocks: list[tuple[int, int]] = []
    while reader.position < len(reader.text):
        blocks.append(_read_block(reader, axes))
    _check_case(reader, outer, blocks)
    order = tuple(LETTERS.index(letter) for letter in axes)
    return FormatTag(order, tuple((axis, size) for axis, size in blocks if size > 1))


def _read_outer(reader: _Reader) -> str:
    """outer = letter , { letter } ;   each of the first n letters once, upper case for an axis with inner blocks"""
    outer = ""
    while (letter := reader.read("letter")) is not None:
        at = reader.position - 1
        if letter.lower() not in LETTERS:
            _refuse_letter(reader, letter, at)
        if letter.lower() in outer.lower():
            reader.fail(f"axis '{letter.lower()}' appears twice among the outer axes", at)
        outer += letter
    if not outer:
        reader.fail("a format tag starts with an axis letter a..l", 0)
    last = max(outer.lower())
    missing = [c for c in LETTERS[: LETTERS.index(last)] if c not in outer.lower()]
    if missing:
        reader.fail(
            f"axis '{missing[0]}' is missing: a tag with axis '{last}' names each of a..{last} once", 0, len(outer)
        )
    return outer


def _read_block(reader: _Reader, axes: str) -> tuple[int, int]:
    """block = size , letter ;   in lower case, one of the outer axes"""
    start = reader.position
    size = reader.read("size")
    if size is None:
        found = reader.text[start]
        reader.fail(f"inner block axis '{found}' needs a size before it, as in 16{found.lower()}", start)
    end = reader.position
    extent = _block_size(reader, size, start)
    letter = reader.read("letter")
    if letter is None:
        reader.fail(f"block size {size} needs an axis letter after it", end)
    if letter.lower() not in axes:
        reader.fail(f"inner block axis '{letter}' is not among the outer axes a..{max(axes)}", end)
    if letter.isupper():
        reader.fail(f"inner block axis '{letter}' is written in lower case: '{letter.lower()}'", end)
    return LETTERS.index(letter), extent


def _block_size(reader: _Reader, size: str, start: int) -> int:
    """size = digit , { digit } ;   without leading zeros, 1 to 2**63 - 1"""
    end = start + len(size)
    if not size.strip("0"):
        reader.fail("a block has 1 element or more, not 0", start, end)
    if size[0] == "0":
        reader.fail(f"block size '{size}' has leading zeros: write '{size.lstrip('0')}'", start, end)
    if len(size) > 19 or int(size) > _LARGEST:
        reader.fail("block size exceeds 2**63 - 1", start, end)
    return int(size)


def _check_case(reader: _Reader, outer: str, blocks: Sequence[tuple[int, int]]) -> None:
    """Upper case means inner blocks; an axis whose blocks are all of one element may be written either way."""
    largest: Counter[str] = Counter()
    for axis, size in blocks:
        largest[LETTERS[axis]] = max(size, largest[LETTERS[axis]])
    for at, letter in enumerate(outer):
        axis_name = letter.lower()
        if letter.isupper() and not largest[axis_name]:
            reader.fail(f"outer axis '{letter}' is upper case but has no inner blocks: write '{axis_name}'", at)
        if letter.islower() and largest[axis_name] > 1:
            reader.fail(f"outer axis '{letter}' has inner blocks: write '{letter.upper()}'", at)


def _refuse_letter(reader: _Reader, letter: str, at: int) -> NoReturn:
    """A letter beyond l: a 13th axis, a misspelled alias, or a slip."""
    if at == len(LETTERS):
        reader.fail(f"a format tag has at most 12 axes, a..l: '{letter}' would be the 13th", at)
    import difflib  # slow to import, and only this message needs it

    text = reader.text
    near = [alias for alias in ALIASES if alias.lower() == text.lower()]
    near = near or difflib.get_close_matches(text, ALIASES, n=3, cutoff=0.7)
    if near:
        reader.fail(f"unknown alias '{text}': did you mean {' or '.join(near)}?", 0, len(text))
    reader.fail(f"'{letter}' is no axis letter a..l, and '{text}' resembles no alias", at)
