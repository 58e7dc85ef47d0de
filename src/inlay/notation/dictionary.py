"""The dictionary: layouts by the names that vendors give them, such as `tensorrt:CHW32` and `xla:{1,0:T(8,128)}`.

A name is a vendor, a colon, and the vendor's own name of the layout. `find_named` looks up the row of a name, which has
the layout as a pattern, the purpose of its axes, the data types that it is made for, and the source of all this:

    >>> row = find_named("tensorrt:CHW32")
    >>> row.pattern, row.source
    ('n (c c32) h w -> n c h w c32', 'NvInferRuntimeBase.h, nvinfer1::TensorFormat: kCHW32')
    >>> row.layout((2, 33, 5, 4)).dims
    (2, 64, 5, 4)

oneDNN's tags have names too, with the vendor `onednn`: `onednn:nChw16c`. They are those of `FormatTag`, not rows of a
table. `list_equivalent` finds all names of one layout, from a name, a tag or a pattern:

    >>> names = list_equivalent("nChw16c")
    >>> names.tag, names.pattern
    ('aBcd16b', 'n (c c16) h w -> n c h w c16')
    >>> [row.name for row in names.rows][:3]
    ['onednn:nChw16c', 'onednn:gOiw16o', 'tensorrt:CHW16']

Two names mean one layout if their patterns differ only in names: for any dims they pad alike and give every coordinate
the same offset. Dims are in the order of the logical tensor, whatever order the vendor writes: n c d h w for
activations, g o i d h w for weights, rows before columns for matrices. Axis i of one name is axis i of the other.

The table is the file `data/named_layouts.toml`. Its form is described at its head.
"""

import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, TypeAlias

from inlay.errors import FileError, FormatTagError, InvalidArguments, NotationError, shown
from inlay.layout import Layout
from inlay.layout.address import as_numbers
from inlay.notation.format_tag import ALIASES, ENUMERATED, FormatTag, tag_of
from inlay.notation.pattern import PatternAxis, parse_pattern, pattern_of, read_axes

ONEDNN = "onednn"
"""The vendor whose names are oneDNN's format tags and aliases."""

_ONEDNN_TITLE = "oneDNN format tags"
_ONEDNN_SOURCE = "oneDNN, dnnl_format_tag_t"
_VENDOR_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_.+-]*):")
_FACTORS = ((3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41), (41, 37, 31, 29, 23, 19, 17, 13, 11, 7, 5, 3))
"""Numbers of blocks of the axes with which layouts are compared: two layouts of equal offsets for both are one."""

_LayoutKey: TypeAlias = tuple[Layout, ...]
"""Normal forms of a layout for the dims of `_FACTORS`: equal for equal layouts."""


@dataclass(frozen=True, slots=True)
class NamedLayout:
    """A row of the dictionary: one layout with its vendor's name.

    `MemoryDesc(dims, data_type, pattern=row.pattern)` is the descriptor of a tensor in this layout.
    """

    name: str
    """Vendor and name, such as `tensorrt:CHW32`."""
    pattern: str
    """The layout as a pattern."""
    roles: tuple[str, ...]
    """Purpose of each logical axis in words, such as `channels`; empty for oneDNN, whose tags serve any purpose."""
    data_types: tuple[str, ...]
    """Names of the data types that the vendor makes the layout for, the most usual first; empty for any."""
    source: str
    """Document, file or enumerator that defines the layout."""
    notes: str = ""
    """Facts about the layout that the pattern does not express; empty for most."""

    @property
    def vendor(self) -> str:
        """The part of the name before the colon."""
        return self.name.partition(":")[0]

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the logical axes in the order of the dims, such as `("n", "c", "h", "w")`."""
        return tuple(axis.name for axis in read_axes(self.pattern))

    def layout(self, dims: Sequence[int]) -> Layout:
        """Return the layout of a tensor of `dims`, padded to whole blocks.

        Post-condition: result == parse_pattern(self.pattern, dims).

        Raises:
            PatternError: `dims` differ in number from the axes, or exceed the extent of an axis of fixed length.
            InvalidArguments: a dim is negative or not an integer, or the padded tensor has more than 2**63 - 1
                elements.

        >>> find_named("cublaslt:COL32").layout((3, 40)).offset((2, 33))
        161
        """
        return parse_pattern(self.pattern, as_numbers("dim", dims))

    def __str__(self) -> str:
        """Return the row as lines: its name, then axes, data types, source and notes, where it has them."""
        roles = self.roles or ("",) * len(self.axes)
        axes = ", ".join(f"{axis} {role}".rstrip() for axis, role in zip(self.axes, roles, strict=True))
        facts = {"axes": axes, "types": " ".join(self.data_types), "source": self.source, "notes": self.notes}
        return "\n".join([self.name, *(f"{label:<9}{text}" for label, text in facts.items() if text)])


@dataclass(frozen=True, slots=True)
class LayoutNames:
    """The notations of one layout; `str` writes one on each line."""

    tag: str | None
    """Format tag in abstract letters; None if no tag expresses the layout."""
    pattern: str
    """The layout as a pattern, with the letters of the text that was passed."""
    rows: tuple[NamedLayout, ...]
    """Rows of the dictionary with this layout: oneDNN's aliases, then the table in its order."""

    def __str__(self) -> str:
        """Return the notations as lines of two columns: the kind of notation, and the text."""
        lines = [f"tag      {self.tag}"] if self.tag is not None else []
        lines.append(f"pattern  {self.pattern}")
        width = max((len(row.name) for row in self.rows), default=0)
        axes = [" ".join(row.axes) for row in self.rows]
        for i, row in enumerate(self.rows):
            text = f"{row.name:<{width}}  {axes[i]:<{max(map(len, axes))}}  {' '.join(row.data_types)}"
            lines.append(f"{'' if i else 'names':<9}{text}".rstrip())
        return "\n".join(lines)


# Looking up


def has_vendor(text: object) -> bool:
    """Return True if `text` begins as a name of the dictionary does: with a word and a colon.

    The shape and stride of CuTe, `(4,8):(8,1)`, has a colon too, but no word before it.

    >>> has_vendor("tensorrt:CHW32"), has_vendor("nChw8c"), has_vendor("(4,8):(8,1)"), has_vendor("8:1")
    (True, False, False, False)
    """
    return isinstance(text, str) and _VENDOR_NAME.match(text) is not None


def named(text: str) -> NamedLayout:
    """Return the row of a name with its vendor, or of a oneDNN tag or alias without one.

    Post-condition: named(f"onednn:{tag}") == named(tag) for every tag.

    Raises:
        NotationError: there is no such vendor or no such name; the text offers the nearest names.
        FormatTagError: `text` has no vendor and is not a format tag.
        InvalidArguments: `text` is not a `str`.

    >>> named("openvino:b_fs_yx_fsv16").pattern == named("nChw16c").pattern
    True
    """
    _require_text(text)
    return find_named(text) if has_vendor(text) else _onednn_row(_parse_tag(text))


def find_named(text: str) -> NamedLayout:
    """Return the row of a name with its vendor.

    Raises:
        NotationError: `text` has no vendor, or there is no such vendor or name; the text offers the nearest names.
        FormatTagError: the vendor is `onednn` and the name is not a format tag.
        InvalidArguments: `text` is not a `str`.

    >>> find_named("marlin:int4").data_types
    ('u4',)
    """
    _require_text(text)
    match = _VENDOR_NAME.match(text)
    if match is None:
        raise NotationError(
            "a name of the dictionary is a vendor, a colon and a name, as 'tensorrt:CHW32' is", text, 0, 1
        )
    if match[1] == ONEDNN:
        return _onednn_row(FormatTag.parse(text[match.end() :]))
    row = _read_rows().get(text)
    if row is None:
        _refuse_name(text, match[1], match.end())
    return row


def list_vendors() -> dict[str, str]:
    """Return the title of each vendor, by the name that stands before the colon.

    >>> list_vendors()["cublaslt"]
    'NVIDIA cuBLASLt'
    """
    return {ONEDNN: _ONEDNN_TITLE, **{vendor: table["title"] for vendor, table in _read_table()["vendors"].items()}}


def list_rows(vendor: str | None = None) -> tuple[NamedLayout, ...]:
    """Return the rows of the table in its order, of one vendor or of all; those of `onednn` are its aliases.

    Without a vendor, oneDNN's aliases are left out.

    Raises:
        NotationError: there is no such vendor; the text offers the nearest ones.
        InvalidArguments: `vendor` is neither a `str` nor None.

    >>> [row.name for row in list_rows("awq")]
    ['awq:qweight', 'awq:qzeros']
    """
    if vendor is None:
        return tuple(_read_rows().values())
    if not isinstance(vendor, str):
        raise InvalidArguments(f"a vendor is text such as 'tensorrt', not {shown(vendor)}")
    if vendor == ONEDNN:
        return tuple(_onednn_row(FormatTag.parse(alias)) for alias in ALIASES)
    if vendor not in _read_table()["vendors"]:
        _refuse_vendor(vendor, vendor)
    return tuple(row for row in _read_rows().values() if row.vendor == vendor)


def list_equivalent(text: str) -> LayoutNames:
    """Return every notation of the layout that a name, a format tag or a pattern of up to 12 axes denotes.

    Post-condition: for every row of the result and any dims of whole blocks, row.layout(dims) is equivalent to the
    layout of `text`.

    Raises:
        NotationError: `text` is none of the three; the text offers the nearest names.
        InvalidArguments: `text` is not a `str`, or the pattern has more than 12 axes or blocks of more than 2**63 - 1
            elements.

    >>> str(list_equivalent("cutlass:ColumnMajorInterleaved<64>")).splitlines()[:2]
    ['tag      Ba64b', 'pattern  r (c c64) -> c r c64']
    """
    _require_text(text)
    pattern = text if "->" in text else named(text).pattern
    axes = read_axes(pattern)
    key = _layout_key(pattern, axes)
    table = tuple(row for row in _read_rows().values() if _row_key(row.pattern) == key)
    return LayoutNames(_tag_of_pattern(pattern, axes), pattern, (*_alias_rows(axes, key), *table))


# Comparison


def _layout_key(pattern: str, axes: Sequence[PatternAxis]) -> _LayoutKey:
    """Return the normal forms of a pattern for two choices of dims, which together identify its layout."""
    if len(axes) > len(_FACTORS[0]):
        raise InvalidArguments(f"the pattern has {len(axes)} axes: layouts of up to {len(_FACTORS[0])} can be compared")
    choices = (tuple(axis.dim(n) for axis, n in zip(axes, factors, strict=False)) for factors in _FACTORS)
    return tuple(parse_pattern(pattern, dims).normal_form for dims in choices)


@cache
def _row_key(pattern: str) -> _LayoutKey:
    """Return the key of a pattern of the table, of which there are few."""
    return _layout_key(pattern, read_axes(pattern))


# oneDNN's tags


def _parse_tag(text: str) -> FormatTag:
    """Parse a tag; the error for a name of the table without its vendor offers the names with it."""
    try:
        return FormatTag.parse(text)
    except FormatTagError:
        if not text.isalnum() and text:
            raise NotationError(
                "a layout is named by a tag, a pattern, or a vendor's name such as 'tensorrt:CHW32'; "
                "`inlay info TEXT DIMS` prints the notations of other texts",
                text,
                0,
                len(text),
            ) from None
        names = [row.name for row in _read_rows().values() if row.name.partition(":")[2] == text]
        if not names and text not in list_vendors():
            raise
        advice = (
            f"a name needs its vendor: did you mean {_alternatives(names)}?"
            if names
            else f"a name is a vendor, a colon and a name: `inlay names '{text}:*'` lists those of {text}"
        )
        raise NotationError(
            f"{shown(text)} is no format tag, and {advice}",
            text,
            0,
            len(text),
        ) from None


def _onednn_row(tag: FormatTag) -> NamedLayout:
    """Return the row of a tag, which is named as the tag is spelled."""
    dims = [tag.blocks(axis) * n for axis, n in zip(range(tag.ndims), _FACTORS[0], strict=False)]
    pattern = pattern_of(tag.layout(dims), tag.letters)
    code = ENUMERATED.get(str(tag))
    source = _ONEDNN_SOURCE if code is None else f"{_ONEDNN_SOURCE}, {code}"
    return NamedLayout(f"{ONEDNN}:{tag.spelling}", pattern, (), (), source)


def _tag_of_pattern(pattern: str, axes: Sequence[PatternAxis]) -> str | None:
    """Return the tag of a pattern in abstract letters, or None; an axis of fixed length is in no tag."""
    if any(axis.is_fixed for axis in axes):
        return None
    dims = tuple(axis.dim(n) for axis, n in zip(axes, _FACTORS[0], strict=False))
    tag = tag_of(parse_pattern(pattern, dims))
    return None if tag is None else str(tag)


def _alias_rows(axes: Sequence[PatternAxis], key: _LayoutKey) -> Iterator[NamedLayout]:
    """Yield the row of each oneDNN alias whose layout has this key."""
    blocks = [axis.block for axis in axes]
    for alias, text in ALIASES.items():
        tag = _read_alias(text)
        if [tag.blocks(axis) for axis in range(tag.ndims)] == blocks:
            row = _onednn_row(FormatTag.parse(alias))
            if _row_key(row.pattern) == key:
                yield row


@cache
def _read_alias(text: str) -> FormatTag:
    """Parse the tag of an alias once."""
    return FormatTag.parse(text)


# The table


@cache
def _read_table() -> Any:
    """Read the table, which is a part of the package."""
    import tomllib  # at first use: of all texts that name layouts, only names of vendors need it

    content = pkgutil.get_data("inlay", "data/named_layouts.toml")
    if content is None:
        raise FileError(
            "the table inlay/data/named_layouts.toml is not readable where inlay is installed: reinstall inlay"
        )
    return tomllib.loads(content.decode("utf-8"))


@cache
def _read_rows() -> dict[str, NamedLayout]:
    """Return the rows of the table by name, in its order."""
    table = _read_table()
    rows = (
        _make_row(vendor, entry, content, table["roles"])
        for vendor, content in table["vendors"].items()
        for entry in content["layouts"]
    )
    return {row.name: row for row in rows}


def _make_row(
    vendor: str, entry: dict[str, str], content: dict[str, Any], roles: dict[str, dict[str, str]]
) -> NamedLayout:
    """Return the row of an entry of the table."""
    letters = roles[entry.get("tensor", content["tensor"])]
    source = ": ".join(part for part in (entry.get("document", content["source"]), entry.get("source", "")) if part)
    return NamedLayout(
        f"{vendor}:{entry['name']}",
        entry["pattern"],
        tuple(letters[axis.name] for axis in read_axes(entry["pattern"])),
        tuple(entry["types"].split()),
        source,
        entry.get("notes", ""),
    )


# Errors


def _require_text(text: object) -> None:
    """Raise the error for the name of a layout that is not text."""
    if not isinstance(text, str):
        raise InvalidArguments(f"the name of a layout is text such as 'tensorrt:CHW32', not {shown(text)}")


def _refuse_name(text: str, vendor: str, start: int) -> NoReturn:
    """Raise the error for a name that is not in the table; its vendor ends before `start`."""
    if vendor not in _read_table()["vendors"]:
        _refuse_vendor(vendor, text)
    near = _nearest(text, [row.name for row in list_rows(vendor)]) if text[start:] else []
    problem = f"{vendor} has no layout {shown(text[start:])}: {_advice(near)}`inlay names '{vendor}:*'` lists them"
    raise NotationError(problem, text, start, len(text))


def _refuse_vendor(vendor: str, text: str) -> NoReturn:
    """Raise the error for an unknown vendor, the first word of `text`."""
    near = _nearest(vendor, list(list_vendors()))
    problem = f"there is no vendor {shown(vendor)}: {_advice(near)}`inlay names '*:*'` lists all names"
    raise NotationError(problem, text, 0, len(vendor))


def _nearest(text: str, names: Sequence[str]) -> list[str]:
    """Return up to three names that resemble `text`, the nearest first; those of other case come before all."""
    import difflib  # slow to import, and only messages need it

    same = [name for name in names if name.lower() == text.lower()]
    return same or difflib.get_close_matches(text, names, n=3, cutoff=0.6)


def _advice(near: Sequence[str]) -> str:
    """Return the question that offers these names, or nothing if there are none."""
    return f"did you mean {_alternatives(near)}? " if near else ""


def _alternatives(names: Sequence[str]) -> str:
    """Return names as the alternatives of a sentence."""
    return " or ".join(names)
