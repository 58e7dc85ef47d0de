"""Format tags: oneDNN's notation for layouts. Parsing, printing, and conversion from and to layouts.

A tag names the axes of a tensor a, b, c, ... and lists them in memory order, outermost first. The inner blocks follow,
again outermost first, each with its size and its axis. An axis with inner blocks is written in upper case. So `aBcd8b`
is: images, blocks of 8 channels, rows, columns, and innermost the 8 channels of a block.

    >>> tag = FormatTag.parse("nChw8c")
    >>> str(tag), tag.order, tag.inner_blocks
    ('aBcd8b', (0, 1, 2, 3), ((1, 8),))
    >>> tag.layout((2, 17, 5, 4)).dims
    (2, 24, 5, 4)

A tag is valid for any dims; `FormatTag.layout` gives the layout for particular dims. oneDNN enumerates 873 tags. The
parser accepts every tag of the grammar below; `ENUMERATED` maps the tags that oneDNN has to their codes.

    tag   = outer , { block } ;
    outer = letter , { letter } ;      each axis once, outermost first
    block = size , letter ;            outermost first

Letters name axes in one of two ways. Abstract letters are a, b, c, ... in the order of the axes. Role letters denote
the purpose of an axis. A **role order** lists the letters of a kind of tensor in the order of its axes, and a tag uses
some of them:

    ncdhw     activations: images, channels, depth, height, width
    goidhw    weights: groups, output and input channels, depth, height, width
    tnc       sequences: time, batch, channels
    ldnc      states of recurrent networks: layers, directions, batch, channels
    ldigo     weights of recurrent networks: layers, directions, input channels, gates, output channels
    mkn       products of matrices: rows, the axis summed over, columns

The letters of `OhwI16o64i` are those of o, i, h, w in goidhw, so o is axis 0 and the tag is `AcdB16a64b`. oneDNN has
aliases for 798 such texts; each of them has oneDNN's meaning. Role letters in upper case without a block are read as
lower case. Letters that two role orders place differently, such as those of `dnc`, are an error unless oneDNN has an
alias of the same letters.

Source: oneDNN, `dnnl_format_tag_t`, for the tags, the aliases and the order of axes behind them;
`memory_desc_init_by_tag`, for the layouts.
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

from inlay.errors import FileError, FormatTagError, InvalidArguments, shown
from inlay.layout import RUNTIME, Axis, Digit, Layout
from inlay.layout.address import as_numbers
from inlay.layout.axis import LETTERS

ROLE_ORDERS = ("ncdhw", "goidhw", "tnc", "ldnc", "ldigo", "mkn")
"""The role orders: letters of the axes by purpose, in the order of the axes."""


def _read_table() -> Any:
    """Read the table of oneDNN's tags and aliases that is a part of the package."""
    content = pkgutil.get_data("inlay", "data/format_tags.json")
    if content is None:
        raise FileError(
            "the table inlay/data/format_tags.json is not readable where inlay is installed: reinstall inlay"
        )
    return json.loads(content)


_TABLE = _read_table()

ALIASES: Mapping[str, str] = MappingProxyType(_TABLE["aliases"])
"""The tag of each alias, in abstract letters."""

ENUMERATED: Mapping[str, int] = MappingProxyType({t: i for i, t in enumerate(_TABLE["tags"], _TABLE["first_code"])})
"""oneDNN's code, `dnnl_format_tag_t`, of each tag that has one, by the tag in abstract letters."""

_LARGEST = 2**63 - 1

_NO_AXIS = Axis(0)


@dataclass(frozen=True, slots=True)
class FormatTag:
    """A format tag: the order of the axes in memory, and the inner blocks.

    Tags are equal if they have the same order and blocks; the letters of the text do not count.

    Post-conditions: `FormatTag.parse(str(tag)) == tag == FormatTag.parse(tag.spelling)`.
    """

    order: tuple[int, ...]
    """Axes in memory order, outermost first."""
    inner_blocks: tuple[tuple[int, int], ...] = ()
    """Axis and size of each inner block, outermost first; sizes are 2 or more."""
    _inner: tuple[tuple[Digit, ...], ...] = field(init=False, repr=False, compare=False)
    """Digits of the inner blocks of each axis; they do not depend on dims."""
    _blocks: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Product of the inner blocks of each axis, in elements."""
    _source_text: str = field(init=False, repr=False, compare=False)
    """Text that the tag was parsed from; empty if it was created from numbers."""
    _letters: str = field(init=False, repr=False, compare=False)
    """Letters of the axes in `_source_text`, in the order of the axes."""

    def __post_init__(self) -> None:
        """Check the order and the blocks, and compute the digits of the blocks.

        Raises:
            InvalidArguments: `order` does not use each of 0..n-1 once with n from 1 to 12, or an inner block has an
                axis outside them or a size below 2.
        """
        order, blocks = _as_order(self.order), _as_blocks(self.inner_blocks)
        n = len(order)
        if not 1 <= n <= len(LETTERS) or sorted(order) != list(range(n)):
            raise InvalidArguments(
                f"the order of a format tag uses each of 0..n-1 once, n from 1 to 12: {shown(self.order)}"
            )
        inner: list[list[Digit]] = [[] for _ in order]
        stride = 1
        for axis, size in reversed(blocks):
            if not 0 <= axis < n or size < 2:
                raise InvalidArguments(
                    f"inner block ({shown(axis)}, {shown(size)}) needs an axis of 0..{n - 1} and a size of 2 or more"
                )
            inner[axis].append(Digit(size, stride))
            stride *= size
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "inner_blocks", blocks)
        object.__setattr__(self, "_inner", tuple(tuple(reversed(digits)) for digits in inner))
        object.__setattr__(self, "_blocks", tuple(prod(digit.extent for digit in digits) for digits in inner))
        object.__setattr__(self, "_source_text", "")
        object.__setattr__(self, "_letters", LETTERS[:n])

    @classmethod
    def parse(cls, text: str) -> "FormatTag":
        """Parse a tag in abstract or in role letters; blocks of one element are dropped.

        Raises:
            FormatTagError: `text` is not a tag, is ambiguous, or is `any` or `undef`, which have no layout.
            InvalidArguments: `text` is not a `str`.

        >>> FormatTag.parse("OIhw4i16o4i") == FormatTag.parse("ABcd4b16a4b")
        True
        >>> tag = FormatTag.parse("OhwI16o64i")
        >>> tag.order, tag.inner_blocks, tag.letters
        ((0, 2, 3, 1), ((0, 16), (1, 64)), 'oihw')
        >>> FormatTag.parse("NHWC").order
        (0, 2, 3, 1)
        >>> str(FormatTag.parse("aB1b"))
        'ab'
        """
        if not isinstance(text, str):
            raise InvalidArguments(f"a format tag is text such as 'nChw16c', not {shown(text)}")
        return _parse(text)

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self.order)

    def blocks(self, axis: int) -> int:
        """Return the product of the inner blocks of `axis`, 1 if it has none; its dim is padded to a multiple of it.

        Raises:
            InvalidArguments: `axis` is not an integer of 0..ndims-1.

        >>> FormatTag.parse("ABcd4b16a4b").blocks(1)
        16
        """
        if type(axis) is not int or not 0 <= axis < self.ndims:
            raise InvalidArguments(f"axis is {shown(axis)}: the axes of {self.spelling} are 0..{self.ndims - 1}")
        return self._blocks[axis]

    @property
    def spelling(self) -> str:
        """The text that the tag was parsed from, with its letters; `str(tag)` if it was created from numbers.

        >>> tag = FormatTag.parse("OhwI16o64i")
        >>> tag.spelling, str(tag)
        ('OhwI16o64i', 'AcdB16a64b')
        """
        return self._source_text or str(self)

    @property
    def letters(self) -> str:
        """The letters of the axes in `spelling`, in lower case and in the order of the axes.

        >>> FormatTag.parse("nhwc").letters, FormatTag.parse("acdb").letters
        ('nchw', 'abcd')
        """
        return self._letters

    @property
    def names(self) -> tuple[str, ...]:
        """One name per axis: its letter in `letters`."""
        return tuple(self._letters)

    def __str__(self) -> str:
        """Return the tag in abstract letters."""
        blocked = {axis for axis, _ in self.inner_blocks}
        outer = (LETTERS[axis].upper() if axis in blocked else LETTERS[axis] for axis in self.order)
        return "".join(outer) + "".join(f"{size}{LETTERS[axis]}" for axis, size in self.inner_blocks)

    def layout(self, dims: Sequence[int]) -> Layout:
        """Return the dense layout of a tensor of `dims`, padded to whole blocks.

        A dim of 0 counts as 1 in the strides. If a dim is RUNTIME, so are the strides of all axes outside that axis.

        Raises:
            InvalidArguments: `dims` differ in number from the axes of the tag, one is negative, or the padded tensor
                has more than 2**63 - 1 elements.

        >>> [axis.stride for axis in FormatTag.parse("nChw8c").layout((2, 17, 5, 4)).axes]
        [480, 160, 32, 8]
        """
        n = len(self.order)
        if not _is_int_tuple(dims):
            dims = as_numbers("dim", dims)
        if len(dims) != n:
            raise InvalidArguments(f"format tag {self.spelling} places {n} axes, dims {shown(dims)} have {len(dims)}")
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
                # The product is at least as large as each padded dim so far, so it alone needs the check below.
                stride *= dim or 1
                reach = stride
            if reach > _LARGEST:
                self._refuse_size(tuple(dims), axis)
        return Layout(tuple(padded), tuple(axes))

    def _refuse_size(self, dims: tuple[int, ...], axis: int) -> NoReturn:
        """Raise the error for a padded tensor of more than 2**63 - 1 elements."""
        raise InvalidArguments(
            f"format tag {self.spelling} of dims {dims} needs more than 2**63 - 1 elements"
            f" once axis {axis} ({self.letters[axis]}) is counted: use smaller dims or blocks"
        )


def _is_int_tuple(dims: object) -> bool:
    """Return whether `dims` is a tuple of ints; a loop, because `all` with a generator would take thrice the time."""
    if type(dims) is not tuple:
        return False
    for dim in dims:  # noqa: SIM110
        if type(dim) is not int:
            return False
    return True


def _as_order(order: object) -> tuple[int, ...]:
    """Return the order of a tag as a tuple of integers.

    Raises:
        InvalidArguments: `order` is not a sequence of integers.
    """
    if not isinstance(order, (tuple, list)) or not all(type(axis) is int for axis in order):
        raise InvalidArguments(f"the order of a format tag is a tuple of axes such as (0, 2, 1), not {shown(order)}")
    return tuple(order)


def _as_blocks(blocks: object) -> tuple[tuple[int, int], ...]:
    """Return the inner blocks of a tag as pairs of integers.

    Raises:
        InvalidArguments: `blocks` is not a sequence of pairs of integers.
    """
    if isinstance(blocks, (tuple, list)) and all(_is_pair(block) for block in blocks):
        return tuple((axis, size) for axis, size in blocks)
    raise InvalidArguments(f"inner_blocks are pairs of axis and size such as ((1, 8),), not {shown(blocks)}")


def _is_pair(block: object) -> bool:
    """Return True if `block` is a sequence of two integers."""
    return isinstance(block, (tuple, list)) and len(block) == 2 and all(type(number) is int for number in block)


# From layouts to tags


def tag_of(layout: Layout) -> FormatTag | None:
    """Return the tag whose layout for the same dims is `layout`, or None; strides of unit axes are ignored.

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
    by_stride = FormatTag(order_by_stride(layout), blocks)
    if tag_matches(by_stride, layout, every_stride=True):
        return by_stride
    moved = FormatTag(_place_unit_axes(by_stride.order, layout.dims), blocks)
    return moved if tag_matches(moved, layout, every_stride=False) else None


def order_by_stride(layout: Layout) -> tuple[int, ...]:
    """Return the axes by falling |stride|: the first is outermost in memory.

    Of axes of equal stride, the one with more blocks along it comes first, then the one of lower number. A RUNTIME
    stride or dim counts as infinite.

    >>> order_by_stride(Layout.from_strides((2, 3, 4), (1, -8, 2)))
    (1, 2, 0)
    """

    def sort_key(i: int) -> tuple[float, float, int]:
        dim, stride = layout.dims[i], layout.axes[i].stride
        count = float("inf") if dim == RUNTIME else max(1, -(-dim // layout.axes[i].block))
        return (-float("inf") if stride == RUNTIME else -abs(stride), -count, i)

    return tuple(sorted(range(layout.ndims), key=sort_key))


def _place_unit_axes(order: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """Move every unit axis i of `order` directly inside axis i - 1; the first axis becomes the outermost."""
    moved = [i for i in order if dims[i] != 1]
    for i in range(len(dims)):
        if dims[i] == 1:
            moved.insert(moved.index(i - 1) + 1 if i else 0, i)
    return tuple(moved)


def tag_matches(tag: FormatTag, layout: Layout, every_stride: bool) -> bool:
    """Return True if `tag` gives the dims, blocks and strides of `layout`.

    Without `every_stride`, the strides of unit axes may differ.

    >>> tag_matches(FormatTag.parse("ba"), Layout.from_strides((3, 4), (1, 3)), every_stride=True)
    True
    """
    try:
        rebuilt = tag.layout(layout.dims)
    except InvalidArguments:
        return False
    if rebuilt.dims != layout.dims:
        return False
    for tag_axis, axis, dim in zip(rebuilt.axes, layout.axes, layout.dims, strict=True):
        if tag_axis.stride != axis.stride and (every_stride or dim != 1):
            return False
        if tag_axis.inner != tuple(digit for digit in axis.inner if digit.extent > 1):
            return False
    return True


# Parsing. One function per rule of the grammar; each advances the reader past the text of its rule.


@lru_cache(maxsize=4096)
def _parse(text: str) -> FormatTag:
    """Parse a tag or an alias, with a cache of the last 4,096 texts."""
    if text in ("any", "undef"):
        meaning = "lets a primitive choose the layout" if text == "any" else "is the absence of a format"
        raise FormatTagError(f"'{text}' {meaning}: it is no tag and gives no layout", text, 0, len(text))
    order, blocks, letters = _read_tag(_TagReader(ALIASES.get(text, text)))
    if text in ALIASES:
        letters = "".join(letter.lower() for _, letter in sorted(zip(order, text, strict=False)))
    tag = FormatTag(order, blocks)
    object.__setattr__(tag, "_source_text", text)
    object.__setattr__(tag, "_letters", letters)
    return tag


_TOKENS = {
    "letter": re.compile(r"[A-Za-z]"),
    "size": re.compile(r"[0-9]+"),
}


@dataclass(slots=True)
class _TagReader:
    """The text of a tag and the position of the parser in it."""

    text: str
    """The whole text."""
    position: int = 0
    """Index of the next character to read."""

    def read(self, kind: str) -> str | None:
        """Consume and return the next token if it is of this kind; otherwise return None."""
        match = _TOKENS[kind].match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[0]

    def fail(self, problem: str, start: int, end: int | None = None) -> NoReturn:
        """Raise an error that marks the characters from `start` to `end`, by default one character."""
        raise FormatTagError(problem, self.text, start, start + 1 if end is None else end)


def _read_tag(reader: _TagReader) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], str]:
    """Parse `tag = outer , { block } ;` and return the order, the inner blocks of 2 or more, and the axes' letters."""
    foreign = re.search(r"[^A-Za-z0-9]", reader.text)
    if foreign:
        problem = f"{foreign[0]!r} has no place in a format tag, which has letters and block sizes"
        reader.fail(problem, foreign.start())
    by_role = _role_letters(reader)
    outer = _read_outer(reader, by_role)
    letters = by_role or LETTERS[: len(outer)]
    blocks: list[tuple[int, int]] = []
    while reader.position < len(reader.text):
        blocks.append(_read_block(reader, letters))
    _check_case(reader, outer, letters, blocks, is_strict=not by_role)
    order = tuple(letters.index(letter) for letter in outer.lower())
    return order, tuple((axis, size) for axis, size in blocks if size > 1), letters


def _plain_orders() -> Mapping[frozenset[str], str]:
    """Return the letters in the order of the axes, for each set of letters that has an alias without blocks."""
    plain = {alias: tag for alias, tag in ALIASES.items() if alias.isalpha() and alias.islower()}
    return {
        frozenset(alias): "".join(c for _, c in sorted(zip(tag, alias, strict=True))) for alias, tag in plain.items()
    }


_PLAIN_ORDERS = _plain_orders()


def _role_letters(reader: _TagReader) -> str:
    """Return the role letters of the tag in the order of the axes, or an empty text if the letters are abstract.

    Every abstract tag contains the letter a, which is not a role letter, so no tag is both.
    """
    outer = re.match(r"[A-Za-z]*", reader.text)[0].lower()  # type: ignore[index]
    used = frozenset(outer)
    readings = {"".join(c for c in order if c in used): order for order in reversed(ROLE_ORDERS) if used <= set(order)}
    if not used or not readings:
        return ""
    if len(readings) > 1 and used not in _PLAIN_ORDERS:
        _refuse_two_readings(reader, readings)
    return _PLAIN_ORDERS[used] if len(readings) > 1 else next(iter(readings))


def _refuse_two_readings(reader: _TagReader, readings: Mapping[str, str]) -> NoReturn:
    """Raise an error for letters that two role orders place differently; `readings` maps letters to role orders."""
    text = reader.text
    alternatives = [
        f"{shown(text.translate(_translation(letters)))} by the axes {', '.join(letters)} of {order}"
        for letters, order in sorted(readings.items())
    ]
    problem = f"{shown(text)} can be read in two ways, as {' and as '.join(alternatives)}: give the one that is meant"
    reader.fail(problem, 0, len(text))


def _translation(letters: str) -> dict[int, int]:
    """Return a translation table from the letters of a tag to abstract letters, in lower and upper case."""
    abstract = LETTERS[: len(letters)]
    return str.maketrans(letters + letters.upper(), abstract + abstract.upper())


def _read_outer(reader: _TagReader, by_role: str) -> str:
    """Parse `outer = letter , { letter } ;` and return its letters; each axis occurs once.

    `by_role` are the role letters of the axes; it is empty for a tag in abstract letters, which must name all axes from
    a to its last letter.
    """
    outer = ""
    while (letter := reader.read("letter")) is not None:
        at = reader.position - 1
        if letter.lower() not in (by_role or LETTERS):
            _refuse_letter(reader, letter, at)
        if letter.lower() in outer.lower():
            reader.fail(f"axis '{letter.lower()}' appears twice among the outer axes", at)
        outer += letter
    if not outer:
        reader.fail("a format tag starts with an axis letter a..l", 0)
    if by_role:
        return outer
    last = max(outer.lower())
    missing = [c for c in LETTERS[: LETTERS.index(last)] if c not in outer.lower()]
    if missing:
        reader.fail(
            f"axis '{missing[0]}' is missing: a tag with axis '{last}' names each of a..{last} once", 0, len(outer)
        )
    return outer


def _read_block(reader: _TagReader, letters: str) -> tuple[int, int]:
    """Parse `block = size , letter ;` and return axis and size; `letters` are the lower-case letters of the axes."""
    start = reader.position
    size = reader.read("size")
    if size is None:
        axis_letter = reader.text[start]
        problem = f"inner block axis '{axis_letter}' needs a size before it, as in 16{axis_letter.lower()}"
        reader.fail(problem, start)
    end = reader.position
    extent = _block_size(reader, size, start)
    letter = reader.read("letter")
    if letter is None:
        reader.fail(f"block size {size} needs an axis letter after it", end)
    if letter.lower() not in letters:
        known = f"a..{letters[-1]}" if letters[0] == "a" else ", ".join(letters)
        reader.fail(f"inner block axis '{letter}' is not among the outer axes {known}", end)
    if letter.isupper():
        reader.fail(f"inner block axis '{letter}' is written in lower case: '{letter.lower()}'", end)
    return letters.index(letter), extent


def _block_size(reader: _TagReader, size: str, start: int) -> int:
    """Return the number of `size = digit , { digit } ;`, 1 to 2**63 - 1; leading zeros are an error."""
    end = start + len(size)
    if not size.strip("0"):
        reader.fail("a block has 1 element or more, not 0", start, end)
    if size[0] == "0":
        reader.fail(f"block size '{size}' has leading zeros: write '{size.lstrip('0')}'", start, end)
    if len(size) > 19 or int(size) > _LARGEST:
        reader.fail("block size exceeds 2**63 - 1", start, end)
    return int(size)


def _check_case(
    reader: _TagReader, outer: str, letters: str, blocks: Sequence[tuple[int, int]], is_strict: bool
) -> None:
    """Check that exactly the axes with inner blocks are in upper case.

    An axis whose blocks all have one element may be in either case. Without `is_strict`, so may an axis without blocks.
    """
    largest: Counter[str] = Counter()
    for axis, size in blocks:
        largest[letters[axis]] = max(size, largest[letters[axis]])
    for at, letter in enumerate(outer):
        axis_name = letter.lower()
        if is_strict and letter.isupper() and not largest[axis_name]:
            reader.fail(f"outer axis '{letter}' is upper case but has no inner blocks: write '{axis_name}'", at)
        if letter.islower() and largest[axis_name] > 1:
            reader.fail(f"outer axis '{letter}' has inner blocks: write '{letter.upper()}'", at)


def _refuse_letter(reader: _TagReader, letter: str, at: int) -> NoReturn:
    """Raise an error for a letter that is not an axis: it names a 13th axis, similar aliases, or the letter."""
    if at == len(LETTERS):
        reader.fail(f"a format tag has at most 12 axes, a..l: '{letter}' would be the 13th", at)
    import difflib  # slow to import, and only this message needs it

    text = reader.text
    near = [alias for alias in ALIASES if alias.lower() == text.lower()]
    near = near or difflib.get_close_matches(text, ALIASES, n=3, cutoff=0.7)
    if near:
        reader.fail(f"unknown alias {shown(text)}: did you mean {' or '.join(near)}?", 0, len(text))
    reader.fail(f"'{letter}' is no axis letter a..l, and {shown(text)} resembles no alias", at)
