"""Patterns: a notation that can express every dense layout, digit by digit. Parser and printer.

The syntax resembles einops. Left of the arrow is each logical axis as the group of its digits, most significant first.
Right of the arrow are the same digits in memory order, outermost first. A name that ends in a number has that extent.
One name of each group may have no number: its extent follows from the dim. The letters of names are free.

    n (c c16) h w -> n c h w c16                           oneDNN's nChw16c
    (o o16) (i ix4 iy4) h w -> o i h w ix4 o16 iy4         OIhw4i16o4i
    (m m4 m32) (k k4) -> m k m32 m4 k4                     the 128x4 scales of NVFP4, for which there is no tag

    >>> layout = parse_pattern("(m m4 m32) (k k4) -> m k m32 m4 k4", (256, 8))
    >>> [[(d.extent, d.stride) for d in digits] for digits in layout.digits]
    [[(2, 1024), (4, 4), (32, 16)], [(2, 512), (4, 1)]]
    >>> pattern_of(layout)
    '(a a4 a32) (b b4) -> a b a32 a4 b4'

An axis is padded to the product of its digits' extents: 17 channels in `(c c16)` become 32.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, product, repeat, takewhile
from math import prod
from typing import TypeAlias

from inlay.errors import InvalidArguments, PatternError, shown
from inlay.layout import RUNTIME, Axis, Digit, Layout
from inlay.notation.token_reader import TokenReader

_LARGEST = 2**63 - 1
_DEFAULT_NAMES = "abcdefghijklmnopqrstuvwxyz"

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<arrow>->)|(?P<sign>[()])|(?P<end>$)|(?P<foreign>.))")
_EXTENT = re.compile(r"(?<![0-9])[0-9]+$")


@dataclass(frozen=True, slots=True)
class _DigitName:
    """The name of a digit in a pattern."""

    text: str
    """The name with its number, such as `c16`."""
    start: int
    """Index of its first character in the pattern."""
    extent: int | None
    """The number at its end; None for the digit whose extent follows from the dim."""


DigitGroup: TypeAlias = tuple[_DigitName, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern, valid for any dims: the digits of each axis, and their order in memory.

    >>> Pattern.parse("(row row16) col -> row col row16").names
    ('row', 'col')
    """

    spelling: str
    """The text that it was parsed from, on one line."""
    groups: tuple[DigitGroup, ...]
    """Digits of each axis, most significant first."""
    order: DigitGroup
    """All digits in memory order, outermost first."""

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Parse a pattern.

        Raises:
            PatternError: `text` is not a pattern.
            InvalidArguments: `text` is not a `str`.
        """
        if not isinstance(text, str):
            raise InvalidArguments(f"a pattern is text such as 'n (c c16) h w -> n c h w c16', not {shown(text)}")
        return _parse(text)

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self.groups)

    @property
    def names(self) -> tuple[str, ...]:
        """One different name per axis: the caller's, without the numbers of extents where that is unambiguous."""
        names = tuple(_axis_name_of(group) for group in self.groups)
        return names if len(set(names)) == len(names) else tuple(group[0].text for group in self.groups)

    def layout(self, dims: Sequence[int]) -> Layout:
        """Return the layout of a tensor of `dims`; axes are padded to the product of their digits.

        A dim of 0 counts as 1 in the strides, as it does for tags.

        Raises:
            PatternError: the groups do not fit `dims`.
            InvalidArguments: a dim is negative, or the padded tensor has more than 2**63 - 1 elements.

        >>> Pattern.parse("n (c c16) -> n c c16").layout((2, 17)).dims
        (2, 32)
        """
        groups = self.groups
        if len(groups) != len(dims):
            end = groups[-1][-1]
            problem = f"the pattern has {len(groups)} axes left of the arrow, dims {tuple(dims)} have {len(dims)}"
            raise PatternError(problem, self.spelling, groups[0][0].start, end.start + len(end.text))
        extents: dict[str, int] = {}
        for axis, (group, dim) in enumerate(zip(groups, dims, strict=True)):
            extents.update(_infer_extents(self.spelling, axis, group, dim))
        strides = _compute_strides(self, extents)
        axes = []
        for lead, *inner in groups:
            digits = tuple(Digit(extents[name.text], strides[name.text]) for name in inner)
            axes.append(Axis(strides[lead.text], digits))
        return Layout(
            tuple(_padded_dim(group, dim, extents) for group, dim in zip(groups, dims, strict=True)), tuple(axes)
        )


def parse_pattern(text: str, dims: Sequence[int]) -> Layout:
    """Return the layout of a tensor of `dims` in a pattern; axes are padded to the product of their digits.

    A dim of 0 counts as 1 in the strides, as it does for tags.

    Post-conditions:
        Offsets are those of an array whose axes are the digits right of the arrow, transposed to the order left of
        the arrow and reshaped to the padded dims.

    Raises:
        PatternError: `text` is not a pattern, or its groups do not fit `dims`.
        InvalidArguments: `text` is not a `str`, a dim is negative, or the padded tensor has more than 2**63 - 1
            elements.

    >>> parse_pattern("n (c c16) h w -> n c h w c16", (2, 17, 5, 4)).dims
    (2, 32, 5, 4)
    """
    return Pattern.parse(text).layout(dims)


def pattern_of(layout: Layout, names: Sequence[str] | None = None) -> str:
    """Return the pattern of `layout`, with axes named a, b, c, ... or `names`; inner digits of extent 1 are left out.

    Post-conditions:
        parse_pattern(pattern_of(layout), layout.dims) has the dims of `layout` and is equivalent to it.

    Raises:
        InvalidArguments: `layout` has no pattern, because it is not dense or its last block is partial; or `names` are
            not one different word per axis, without a number at the end.

    >>> pattern_of(parse_pattern("(o o16) i -> o i o16", (32, 3)), "oi")
    '(o o16) i -> o i o16'
    """
    axis_names = _axis_names(layout.ndims, names)
    written = _write_groups(axis_names, layout.axes)
    left = " ".join(group[0] if len(group) == 1 else f"({' '.join(group)})" for group in written)
    for order in _candidate_orders(layout):
        text = f"{left} -> {' '.join(written[axis][digit] for axis, digit in order)}"
        if _pattern_matches(text, layout):
            return text
    raise InvalidArguments(
        "this layout has no pattern: a pattern is dense and made of whole blocks, without gaps, overlaps or negative"
        f" strides; this one has dims {layout.dims} and strides {tuple(axis.stride for axis in layout.axes)}"
    )


@dataclass(frozen=True, slots=True)
class PatternAxis:
    """A logical axis of a pattern: its name, and the numbers of its digits."""

    name: str
    """The name without a number in its group, else the first name of the group without its number; `c` of `(c c16)`."""
    block: int
    """Product of the numbers in its group, in elements; the axis is padded to a multiple of it."""
    is_fixed: bool
    """True if every name of its group has a number, so that the axis has `block` elements at most."""

    def dim(self, blocks: int) -> int:
        """Return the dim of an axis of so many blocks: `block` times `blocks`, or `block` if the axis is fixed."""
        return self.block if self.is_fixed else self.block * blocks


def read_axes(text: str) -> tuple[PatternAxis, ...]:
    """Return the logical axes of a pattern, in the order of the dims.

    Raises:
        PatternError: `text` is not a pattern.
        InvalidArguments: `text` is not a `str`.

    >>> [(axis.name, axis.block, axis.is_fixed) for axis in read_axes("n (c c4 c8) h4 -> n c h4 c4 c8")]
    [('n', 1, False), ('c', 32, False), ('h', 4, True)]
    """
    return tuple(_summarize(group) for group in Pattern.parse(text).groups)


def _summarize(group: DigitGroup) -> PatternAxis:
    """Return the axis of a group of digits."""
    open_names = [name.text for name in group if name.extent is None]
    block = prod(name.extent for name in group if name.extent is not None)
    return PatternAxis(open_names[0] if open_names else _EXTENT.sub("", group[0].text), block, not open_names)


# Printing


def _axis_names(n: int, names: Sequence[str] | None) -> Sequence[str]:
    """Return `names`, checked, or the default names of `n` axes."""
    if names is None and n <= len(_DEFAULT_NAMES):
        return _DEFAULT_NAMES[:n]
    names = tuple(names or ())
    good = all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(?<![0-9])", name) for name in names)
    if len(names) != n or len(set(names)) != n or not good:
        rule = "without a number at the end, which would be an extent"
        raise InvalidArguments(f"names must be {n} different words {rule}, got {names}")
    return names


def _write_groups(names: Sequence[str], axes: Sequence[Axis]) -> list[list[str]]:
    """Return the names of the digits of each axis: `c c16`, or with unique stems if extents repeat, `c cx4 cy4`."""
    taken = set(names)
    groups = []
    for name, axis in zip(names, axes, strict=True):
        extents = [digit.extent for digit in axis.inner if digit.extent > 1]
        stems = repeat(name) if len(set(extents)) == len(extents) else _unique_stems(name, taken)
        groups.append([name, *(f"{stem}{extent}" for extent, stem in zip(extents, stems, strict=False))])
    return groups


def _unique_stems(name: str, taken: set[str]) -> Iterator[str]:
    """Yield `name` followed by x, y, z, xx, ..., without words in `taken`, and add each word to `taken`."""
    for length in count(1):
        for mark in product("xyz", repeat=length):
            stem = name + "".join(mark)
            if stem not in taken:
                taken.add(stem)
                yield stem


def _candidate_orders(layout: Layout) -> Iterator[list[tuple[int, int]]]:
    """Yield the two orders of digits to try, outermost first, as pairs of an axis and an index in its group.

    The first order is by stride. A unit axis may have any stride, so the second order moves each unit axis directly
    inside the axis before it.
    """
    keys = []
    for i, axis in enumerate(layout.axes):
        digits = axis.digits(layout.dims[i])
        named = (digits[0], *(digit for digit in digits[1:] if digit.extent > 1))
        for k, digit in enumerate(named):
            extent = float("inf") if digit.extent == RUNTIME else max(1, digit.extent)
            stride = float("inf") if digit.stride == RUNTIME else digit.stride
            keys.append((-stride, -extent, i, k))
    by_stride = [(i, k) for *_, i, k in sorted(keys)]
    yield by_stride
    units = [(i, 0) for i, axis in enumerate(layout.axes) if axis.digits(layout.dims[i])[0].extent == 1]
    moved = [pair for pair in by_stride if pair not in units]
    for i, k in units:
        moved.insert(moved.index((i - 1, 0)) + 1 if i else 0, (i, k))
    yield moved


def _pattern_matches(text: str, layout: Layout) -> bool:
    """Return True if the pattern `text` gives `layout`, digits of extent 1 ignored."""
    try:
        parsed = parse_pattern(text, layout.dims)
    except InvalidArguments:
        return False
    return parsed.dims == layout.dims and _long_digits(parsed) == _long_digits(layout)


def _long_digits(layout: Layout) -> list[list[Digit]]:
    """Return the digits of each axis, without those of extent 1."""
    return [[digit for digit in digits if digit.extent != 1] for digits in layout.digits]


# From names to extents and strides


def _axis_name_of(group: DigitGroup) -> str:
    """Return the name of an axis: its digit without a number, or else the common start of its digits' names."""
    for name in group:
        if name.extent is None:
            return name.text
    stems = [name.text[: -len(str(name.extent))] for name in group]
    common = len(list(takewhile(lambda letters: len(set(letters)) == 1, zip(*stems, strict=False))))
    return stems[0][:common] or stems[0]


def _infer_extents(text: str, axis: int, group: DigitGroup, dim: int) -> Iterator[tuple[str, int]]:
    """Yield name and extent of each digit of one axis; the digit without a number is as large as `dim` needs."""
    if dim < 0 and dim != RUNTIME:
        raise InvalidArguments(f"dim {axis} is {dim}: dims are 0 or more")
    known = prod(name.extent for name in group if name.extent is not None)
    open_names = [name for name in group if name.extent is None]
    first, last = group[0], group[-1]
    if dim == RUNTIME and first.extent is not None:
        problem = f"axis {axis} is RUNTIME: the first digit of its group must be the one without a number"
        raise PatternError(problem, text, first.start, first.start + len(first.text))
    if not open_names and dim > known:
        problem = f"axis {axis} has {dim} coordinates, its digits hold {known}: leave out a number, or enlarge it"
        raise PatternError(problem, text, first.start, last.start + len(last.text))
    rest = RUNTIME if dim == RUNTIME else -(-dim // known)
    for name in group:
        # A digit below the leading one cannot have extent 0: an axis without coordinates never reaches it.
        open_extent = rest if name is first or rest == RUNTIME else max(1, rest)
        yield name.text, open_extent if name.extent is None else name.extent


def _padded_dim(group: DigitGroup, dim: int, extents: Mapping[str, int]) -> int:
    """Return the padded dim of an axis: the product of its digits' extents."""
    return dim if dim in (0, RUNTIME) else prod(extents[name.text] for name in group)


def _compute_strides(pattern: Pattern, extents: Mapping[str, int]) -> dict[str, int]:
    """Return the stride of each digit by name: the product of the extents of all digits inside it.

    The strides of digits outside a RUNTIME one are RUNTIME.
    """
    leading = {group[0].text for group in pattern.groups}
    strides: dict[str, int] = {}
    stride = volume = 1
    for name in reversed(pattern.order):
        extent = extents[name.text]
        strides[name.text] = stride
        if stride == RUNTIME and name.text not in leading:
            problem = f"digit '{name.text}' is outside a RUNTIME axis: only the first digit of a group may"
            raise PatternError(problem, pattern.spelling, name.start, name.start + len(name.text))
        volume *= 1 if extent == RUNTIME else max(1, extent)
        stride = RUNTIME if RUNTIME in (stride, extent) else volume
        if volume > _LARGEST:
            raise InvalidArguments(f"the pattern needs more than 2**63 - 1 elements once '{name.text}' is counted")
    return strides


# Parsing. One function per rule of the grammar.


@lru_cache(maxsize=512)
def _parse(text: str) -> Pattern:
    """Parse a pattern; equal texts return a cached pattern. Errors have the text as it is."""
    groups, order = _read_pattern(TokenReader(text, _TOKEN, PatternError))
    line = " ".join(text.split())
    return Pattern(text, tuple(groups), order) if line == text else _parse(line)


def _read_pattern(reader: TokenReader) -> tuple[list[DigitGroup], DigitGroup]:
    """Parse `pattern = axis , { axis } , "->" , name , { name } ;` and return its groups and its memory order."""
    groups: list[DigitGroup] = []
    while reader.kind != "arrow":
        if reader.kind == "end":
            reader.fail("a pattern needs an arrow: axes -> order in memory")
        groups.append(_read_axis(reader))
    if not groups:
        reader.fail("a pattern needs at least one axis left of the arrow")
    reader.take()
    order: list[_DigitName] = []
    while reader.kind != "end":
        order.append(_read_name(reader))
    left = [name for group in groups for name in group]
    _check_unique(reader, left, "left of the arrow")
    _check_unique(reader, order, "right of the arrow")
    _check_same_names(reader, left, order)
    return groups, tuple(order)


def _read_axis(reader: TokenReader) -> DigitGroup:
    """Parse `axis = name | "(" , name , { name } , ")" ;`, where at most one name has no number."""
    if reader.token != "(":
        return (_read_name(reader),)
    start = reader.start
    reader.take()
    group: list[_DigitName] = []
    while reader.token != ")":
        if reader.kind in ("end", "arrow"):
            reader.fail("this group is not closed: a ')' is missing", start)
        group.append(_read_name(reader))
    if not group:
        reader.fail("a group needs at least one name", start, reader.start + 1)
    reader.take()
    open_names = [name for name in group if name.extent is None]
    if len(open_names) > 1:
        second = open_names[1]
        problem = (
            f"'{open_names[0].text}' and '{second.text}' both lack a number: one name of a group can take the rest"
        )
        reader.fail(problem, second.start, second.start + len(second.text))
    return tuple(group)


def _read_name(reader: TokenReader) -> _DigitName:
    """Parse `name = letter , { letter | digit | "_" } ;`. A number at its end, 1 or more, is its extent."""
    if reader.kind != "name":
        reader.fail(f"{reader.token!r} has no place here: a name is expected, such as c or c16")
    start = reader.start
    text = reader.take()
    number = _EXTENT.search(text)
    if number is None:
        return _DigitName(text, start, None)
    digits, at = number[0], start + number.start()
    if digits[0] == "0":
        advice = (
            f"write {text[: number.start()]}{digits.lstrip('0')}" if digits.strip("0") else "an extent is 1 or more"
        )
        reader.fail(f"extent '{digits}' starts with 0: {advice}", at, at + len(digits))
    if len(digits) > 19 or int(digits) > _LARGEST:
        reader.fail("the extent exceeds 2**63 - 1", at, at + len(digits))
    return _DigitName(text, start, int(digits))


def _check_unique(reader: TokenReader, names: Sequence[_DigitName], side: str) -> None:
    """Check that no name occurs twice; `side` names the side of the arrow in the error."""
    seen: set[str] = set()
    for name in names:
        if name.text in seen:
            problem = f"'{name.text}' appears twice {side}: each digit has a name of its own"
            reader.fail(problem, name.start, name.start + len(name.text))
        seen.add(name.text)


def _check_same_names(reader: TokenReader, left: Sequence[_DigitName], right: Sequence[_DigitName]) -> None:
    """Check that both sides of the arrow have the same names."""
    for names, other_names, problem in (
        (right, left, "'{}' is no digit of an axis: it does not appear left of the arrow"),
        (left, right, "'{}' has no place in memory: it does not appear right of the arrow"),
    ):
        known = {name.text for name in other_names}
        for name in names:
            if name.text not in known:
                reader.fail(problem.format(name.text), name.start, name.start + len(name.text))
