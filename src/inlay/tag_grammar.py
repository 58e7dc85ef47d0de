"""The grammar of format tags: from text to an order of axes and inner blocks.

    tag   = outer , { block } ;
    outer = letter , { letter } ;      each axis once, outermost first
    block = size , letter ;            outermost first

Letters name axes in one of two ways. Abstract letters are a, b, c, ... in the order of the axes; an axis with blocks is
written in upper case: `aBcd8b`. Role letters say what an axis is for; a **role order** gives the axes of a tensor
their letters, and a tag uses some of them:

    ncdhw     activations: images, channels, depth, height, width
    goidhw    weights: groups, output and input channels, depth, height, width
    tnc       sequences: time, batch, channels
    ldnc      states of recurrent networks: layers, directions, batch, channels
    ldigo     weights of recurrent networks: layers, directions, input channels, gates, output channels
    mkn       products of matrices: rows, the axis summed over, columns

The letters of `OhwI16o64i` are those of o, i, h, w in goidhw, so o is axis 0 and the tag is `AcdB16a64b`. oneDNN has an
alias for 798 such texts; each means what oneDNN says. Role letters in upper case that have no block are read as lower
case. Letters that two role orders place differently, such as those of `dnc`, are refused unless oneDNN has an alias of
the same letters.

Source: oneDNN, `dnnl_format_tag_t`, for the aliases and the order of axes behind them.
"""

import json
import pkgutil
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

from inlay.errors import FileError, FormatTagError, shown

LETTERS = "abcdefghijkl"
"""The names of the axes; oneDNN has at most 12."""

ROLE_ORDERS = ("ncdhw", "goidhw", "tnc", "ldnc", "ldigo", "mkn")
"""The letters of the axes by role, each in the order of the axes."""

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


def _plain_orders() -> Mapping[frozenset[str], str]:
    """The order of axes of each set of letters that has an alias without blocks."""
    plain = {alias: tag for alias, tag in ALIASES.items() if alias.isalpha() and alias.islower()}
    return {
        frozenset(alias): "".join(c for _, c in sorted(zip(tag, alias, strict=True))) for alias, tag in plain.items()
    }


_PLAIN_ORDERS = _plain_orders()


@dataclass(frozen=True, slots=True)
class TagReading:
    """What the text of a format tag says."""

    order: tuple[int, ...]
    """The axes, outermost first."""
    blocks: tuple[tuple[int, int], ...]
    """Axis and size of each inner block, outermost first; blocks of one element are dropped."""
    letters: str
    """The lower-case letter of each axis, in the order of the axes."""


def read_tag(text: str) -> TagReading:
    """The axes and blocks that `text` spells: an alias, a tag in abstract letters, or one in role letters.

    Raises:
        FormatTagError: `text` is no tag, can be read in two ways, or is `any` or `undef`, which give no layout.

    >>> read_tag("OhwI16o64i")
    TagReading(order=(0, 2, 3, 1), blocks=((0, 16), (1, 64)), letters='oihw')
    >>> read_tag("NHWC").order
    (0, 2, 3, 1)
    """
    if text in ("any", "undef"):
        meaning = "lets a primitive choose the layout" if text == "any" else "is the absence of a format"
        raise FormatTagError(f"'{text}' {meaning}: it is no tag and gives no layout", text, 0, len(text))
    if text not in ALIASES:
        return _read(_Reader(text))
    reading = _read(_Reader(ALIASES[text]))
    letters = "".join(letter.lower() for _, letter in sorted(zip(reading.order, text, strict=False)))
    return TagReading(reading.order, reading.blocks, letters)


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


def _read(reader: _Reader) -> TagReading:
    """tag = outer , { block } ;"""
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
    return TagReading(order, tuple((axis, size) for axis, size in blocks if size > 1), letters)


def _role_letters(reader: _Reader) -> str:
    """The letters of the axes where the outer letters are roles, in the order of the axes; else none.

    Every abstract tag names axis a, which is no role, so no text is both.
    """
    outer = re.match(r"[A-Za-z]*", reader.text)[0].lower()  # type: ignore[index]
    used = frozenset(outer)
    readings = {"".join(c for c in order if c in used): order for order in reversed(ROLE_ORDERS) if used <= set(order)}
    if not used or not readings:
        return ""
    if len(readings) > 1 and used not in _PLAIN_ORDERS:
        _refuse_two_readings(reader, readings)
    return _PLAIN_ORDERS[used] if len(readings) > 1 else next(iter(readings))


def _refuse_two_readings(reader: _Reader, readings: Mapping[str, str]) -> NoReturn:
    text = reader.text
    said = [
        f"{shown(text.translate(_translation(letters)))} by the axes {', '.join(letters)} of {order}"
        for letters, order in sorted(readings.items())
    ]
    reader.fail(
        f"{shown(text)} can be read in two ways, as {' and as '.join(said)}: give the one that is meant", 0, len(text)
    )


def _translation(letters: str) -> dict[int, str]:
    """From the letters of a tag to abstract ones, in both cases."""
    pairs = list(zip(letters, LETTERS, strict=False))
    return str.maketrans({a: b for one, other in pairs for a, b in ((one, other), (one.upper(), other.upper()))})


def _read_outer(reader: _Reader, by_role: str) -> str:
    """outer = letter , { letter } ;   each axis once, upper case for one with inner blocks; `by_role` as letters"""
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


def _read_block(reader: _Reader, letters: str) -> tuple[int, int]:
    """block = size , letter ;   in lower case, one of `letters`, which are those of the axes"""
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
    if letter.lower() not in letters:
        known = f"a..{letters[-1]}" if letters[0] == "a" else ", ".join(letters)
        reader.fail(f"inner block axis '{letter}' is not among the outer axes {known}", end)
    if letter.isupper():
        reader.fail(f"inner block axis '{letter}' is written in lower case: '{letter.lower()}'", end)
    return letters.index(letter), extent


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


def _check_case(reader: _Reader, outer: str, letters: str, blocks: Sequence[tuple[int, int]], is_strict: bool) -> None:
    """Upper case means inner blocks; an axis whose blocks are all of one element may be written either way.

    Unless `is_strict`, upper case without blocks is lower case.
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


def _refuse_letter(reader: _Reader, letter: str, at: int) -> NoReturn:
    """A letter beyond l: a 13th axis, a misspelled alias, or a slip."""
    if at == len(LETTERS):
        reader.fail(f"a format tag has at most 12 axes, a..l: '{letter}' would be the 13th", at)
    import difflib  # slow to import, and only this message needs it

    text = reader.text
    near = [alias for alias in ALIASES if alias.lower() == text.lower()]
    near = near or difflib.get_close_matches(text, ALIASES, n=3, cutoff=0.7)
    if near:
        reader.fail(f"unknown alias {shown(text)}: did you mean {' or '.join(near)}?", 0, len(text))
    reader.fail(f"'{letter}' is no axis letter a..l, and {shown(text)} resembles no alias", at)
