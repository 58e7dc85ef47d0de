"""The notation of einops for rearrangements: `b (h p) w -> (b h) p w`. Parser, checks and sizes of axes.

Left of the arrow are the axes of an array, right of it those of the result. A group in parentheses is one axis that is
the product of its names, the most significant first. In the grammar, `word` has no space, parenthesis or arrow:

    pattern = side "->" side
    side    = { item | "(" { item } ")" }
    item    = word

    name        a Python identifier that neither begins nor ends with an underscore
    number      an anonymous axis; 1 and () are axes of length one; others are allowed right of the arrow of a repeat
    ...         any number of axes, the same on both sides; right of the arrow they may be in a group

Each name occurs once on a side. `rearrange` has the same names on both sides, `repeat` may add some on the right. The
length of at most one name in each group follows from the array:

    >>> shape = resolve_axes(parse_rearrangement("b (h p) -> (b h) p", "rearrange"), (2, 6), {"p": 3})
    >>> shape.split, shape.order, shape.groups
    ((2, 2, 3), (0, 1, 2), ((2, 2), (3,)))

Source: einops, https://einops.rocks/api/rearrange; A. Rogozhnikov, "Einops: Clear and Reliable Tensor Manipulations
with Einstein-like Notation", ICLR 2022.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal, NoReturn, TypeAlias

from inlay.arguments import as_integer
from inlay.errors import InvalidArguments, PatternError, shown
from inlay.layout import Dims

Operation: TypeAlias = Literal["rearrange", "repeat"]
"""Name of the function whose pattern is parsed: `rearrange` may not add axes."""

_TOKEN = re.compile(r"[^ ()]+|[()]")
_ARROW = "->"
_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class NamedAxis:
    """An axis with a name."""

    name: str
    """The name."""
    start: int
    """Index of its first character in the pattern."""

    @property
    def end(self) -> int:
        """Index after its last character in the pattern."""
        return self.start + len(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class AnonymousAxis:
    """An axis that is written as its length, 2 or more; no two of them are equal."""

    length: int
    """The length."""
    start: int
    """Index of its first character in the pattern."""
    end: int
    """Index after its last character in the pattern."""


@dataclass(frozen=True, slots=True)
class AnyAxes:
    """The ellipsis: any number of axes."""

    start: int
    """Index of its first character in the pattern."""

    @property
    def end(self) -> int:
        """Index after its last character in the pattern."""
        return self.start + len(_ELLIPSIS)


Item: TypeAlias = NamedAxis | AnonymousAxis | AnyAxes


@dataclass(frozen=True, slots=True)
class AxisGroup:
    """One axis of an array: the product of its items. An axis of length one has no items."""

    items: tuple[Item, ...]
    """The items, the most significant first."""
    start: int
    """Index of its first character in the pattern."""
    end: int
    """Index after its last character in the pattern."""
    is_parenthesized: bool
    """True if it is in parentheses."""


@dataclass(frozen=True, slots=True)
class ParsedPattern:
    """A pattern that was read and checked for an operation."""

    text: str
    """The pattern."""
    left: tuple[AxisGroup, ...]
    """The axes of the array."""
    right: tuple[AxisGroup, ...]
    """The axes of the result."""
    names: frozenset[str]
    """Names of both sides."""


@dataclass(frozen=True, slots=True)
class ResolvedAxes:
    """A rearrangement of an array of known shape, in elementary axes: one for each item of a pattern."""

    left: tuple[Dims, ...]
    """For each axis of the array, the lengths of its elementary axes."""
    order: tuple[int, ...]
    """For each elementary axis of the result: the index of the axis in `split`, or -1 for a new axis."""
    groups: tuple[Dims, ...]
    """For each axis of the result, the lengths of its elementary axes."""

    @property
    def split(self) -> Dims:
        """Lengths of the elementary axes of the array, in its order."""
        return tuple(n for lengths in self.left for n in lengths)

    @property
    def shape(self) -> Dims:
        """The shape of the result."""
        return tuple(map(prod, self.groups))


# Parsing


def parse_rearrangement(pattern: str, operation: Operation) -> ParsedPattern:
    """Read a pattern and check that it is one of `rearrange` or of `repeat`.

    Raises:
        PatternError: `pattern` is no pattern of the operation.
        InvalidArguments: `pattern` is not a `str`.

    >>> [len(group.items) for group in parse_rearrangement("b 1 (h w) -> b h w ()", "rearrange").left]
    [1, 0, 2]
    """
    if not isinstance(pattern, str):
        raise InvalidArguments(f"pattern is {shown(pattern)}: give text such as 'b h w -> b (h w)'")
    return _parse_pattern(pattern, operation)


@lru_cache(maxsize=1024)
def _parse_pattern(pattern: str, operation: Operation) -> ParsedPattern:
    """Read and check a pattern, with a cache."""
    arrow = pattern.find(_ARROW)
    if arrow < 0:
        raise PatternError("the pattern has no arrow: write 'axes -> axes'", pattern, len(pattern), len(pattern) + 1)
    second = pattern.find(_ARROW, arrow + 2)
    if second >= 0:
        raise PatternError("the pattern has a second arrow", pattern, second, second + 2)
    left, right = parse_side(pattern, 0, arrow), parse_side(pattern, arrow + 2, len(pattern))
    for item in items_of(left):
        if isinstance(item, AnyAxes) and any(item in group.items for group in left if group.is_parenthesized):
            _fail(pattern, item, "'...' is in a group left of the arrow, where its lengths are unknown")
    _require_agreement(pattern, left, right, operation)
    names = frozenset(item.name for item in items_of(left + right) if isinstance(item, NamedAxis))
    return ParsedPattern(pattern, left, right, names)


def parse_side(pattern: str, start: int = 0, end: int | None = None) -> tuple[AxisGroup, ...]:
    """Read the axes between two characters of a pattern: one side of the arrow.

    Raises:
        PatternError: a word is no item, parentheses are not balanced or nested, or an item occurs twice.

    >>> [group.is_parenthesized for group in parse_side("a (b c) ...")]
    [False, True, False]
    """
    groups: list[AxisGroup] = []
    opened: int | None = None
    members: list[Item] = []
    stop = len(pattern) if end is None else end
    for token in _TOKEN.finditer(pattern, start, stop):
        at, word = token.start(), token.group()
        if word == "(":
            if opened is not None:
                raise PatternError("a group is inside another: groups have one level", pattern, at, at + 1)
            opened, members = at, []
        elif word == ")":
            if opened is None:
                raise PatternError("')' closes no group", pattern, at, at + 1)
            groups.append(AxisGroup(tuple(members), opened, at + 1, True))
            opened = None
        else:
            items = _read_word(pattern, at, word)
            members.extend(items)
            if opened is None:
                groups.append(AxisGroup(items, at, at + len(word), False))
    if opened is not None:
        raise PatternError("'(' is never closed", pattern, opened, opened + 1)
    _require_single_items(pattern, groups)
    return tuple(groups)


def items_of(groups: tuple[AxisGroup, ...]) -> Iterator[Item]:
    """Return the items of all groups in order."""
    return (item for group in groups for item in group.items)


def is_axis_name(text: str) -> bool:
    """Return True if `text` can name an axis: an identifier that neither begins nor ends with an underscore.

    >>> [is_axis_name(text) for text in ("h1", "under_score", "_h", "1h")]
    [True, True, False, False]
    """
    return text.isidentifier() and not text.startswith("_") and not text.endswith("_")


def _read_word(pattern: str, at: int, word: str) -> tuple[Item, ...]:
    """Return the item that a word is; an axis of length one has none."""
    if word == _ELLIPSIS:
        return (AnyAxes(at),)
    if word.isdecimal():
        if int(word) == 0:
            raise PatternError("an anonymous axis has length 0: give 1 or more", pattern, at, at + len(word))
        return () if int(word) == 1 else (AnonymousAxis(int(word), at, at + len(word)),)
    if not is_axis_name(word):
        rule = "a name is letters, digits and inner underscores and begins with a letter; or write a length or '...'"
        raise PatternError(f"{word!r} names no axis: {rule}", pattern, at, at + len(word))
    return (NamedAxis(word, at),)


def _require_single_items(pattern: str, groups: list[AxisGroup]) -> None:
    """Check that no name and no ellipsis occurs twice."""
    seen: set[str] = set()
    for item in items_of(tuple(groups)):
        if isinstance(item, AnonymousAxis):
            continue
        text = str(_key(item))
        if text in seen:
            _fail(pattern, item, f"{text!r} occurs twice on one side")
        seen.add(text)


def _require_agreement(
    pattern: str, left: tuple[AxisGroup, ...], right: tuple[AxisGroup, ...], operation: Operation
) -> None:
    """Check that the same axes are on both sides; `repeat` may add some on the right."""
    lefts, rights = ({_key(item) for item in items_of(side)} for side in (left, right))
    for item in items_of(left):
        if _key(item) not in rights:
            is_named = not isinstance(item, AnonymousAxis)
            remedy = "write it on the right too" if is_named else "give it a name, and write that on the right too"
            _fail(pattern, item, f"an axis of the left is not on the right, and {operation} drops none: {remedy}")
    for item in items_of(right):
        if _key(item) in lefts:
            continue
        if isinstance(item, AnyAxes):
            _fail(pattern, item, "'...' is on the right only: write it on the left too")
        if operation == "rearrange":
            _fail(pattern, item, "an axis of the right is not on the left: inlay.repeat adds axes, rearrange does not")


def _key(item: Item) -> object:
    """Return the identity of an item on both sides: a name, the ellipsis, or an object for an anonymous axis."""
    if isinstance(item, AnonymousAxis):
        return item
    return item.name if isinstance(item, NamedAxis) else _ELLIPSIS


def _fail(pattern: str, item: Item | AxisGroup, problem: str) -> NoReturn:
    raise PatternError(problem, pattern, item.start, item.end)


# Sizes


def resolve_axes(parsed: ParsedPattern, shape: Dims, lengths: Mapping[str, object]) -> ResolvedAxes:
    """Return the elementary axes of a pattern for an array of `shape`, with the lengths that a caller passed by name.

    Post-condition: prod(result.split) == prod(shape).

    Raises:
        PatternError: the pattern does not fit `shape`, or a length neither is given nor follows from `shape`.
        InvalidArguments: a length is no whole number of 0 or more, or names no axis of the pattern.
    """
    known = {name: _length_of(parsed, name, length) for name, length in lengths.items()}
    left, lengths_of = _match_shape(parsed, shape, known)
    positions: dict[object, range] = {}
    count = 0
    for key, dims in lengths_of.items():
        positions[key] = range(count, count + len(dims))
        count += len(dims)
    order: list[int] = []
    groups: list[Dims] = []
    for group in parsed.right:
        lengths_in_group: list[int] = []
        for item in group.items:
            key = _key(item)
            order.extend(positions.get(key, (-1,)))
            lengths_in_group.extend(lengths_of[key] if key in lengths_of else (_added_length(parsed, item, known),))
        groups.extend([(n,) for n in lengths_in_group] if _is_ellipsis(group) else [tuple(lengths_in_group)])
    return ResolvedAxes(tuple(left), tuple(order), tuple(groups))


def _length_of(parsed: ParsedPattern, name: str, length: object) -> int:
    """Check the length that a caller passed for a name."""
    if name not in parsed.names:
        raise InvalidArguments(f"the length of {shown(name)} was passed, but {parsed.text!r} has no such axis")
    return as_integer(f"the length of {name!r}", length, 0)


def _is_ellipsis(group: AxisGroup) -> bool:
    """Return True for an ellipsis outside parentheses, which is any number of axes."""
    return not group.is_parenthesized and any(isinstance(item, AnyAxes) for item in group.items)


def _match_shape(parsed: ParsedPattern, shape: Dims, known: Mapping[str, int]) -> tuple[list[Dims], dict[object, Dims]]:
    """Return the lengths of the elementary axes of each axis of the array, and those of each item of the left side."""
    spread = len(shape) - len(parsed.left) + 1
    if spread < 0 or (spread != 1 and not any(map(_is_ellipsis, parsed.left))):
        _refuse_rank(parsed, shape)
    left: list[Dims] = []
    lengths_of: dict[object, Dims] = {}
    for group in parsed.left:
        axis = len(left)
        if _is_ellipsis(group):
            lengths_of[_ELLIPSIS] = shape[axis : axis + spread]
            left.extend((n,) for n in lengths_of[_ELLIPSIS])
        else:
            sizes = _split_axis(parsed, group, axis, shape[axis], known)
            lengths_of.update(sizes)
            left.append(tuple(n for dims in sizes.values() for n in dims))
    return left, lengths_of


def _refuse_rank(parsed: ParsedPattern, shape: Dims) -> NoReturn:
    """Raise the error of a pattern for arrays with another number of axes."""
    count = sum(not _is_ellipsis(group) for group in parsed.left)
    least = "" if count == len(parsed.left) else "at least "
    problem = f"the left side has {least}{count} axes, and the array has {len(shape)}: its shape is {shape}"
    raise PatternError(problem, parsed.text, 0, len(parsed.text[: parsed.text.find(_ARROW)].rstrip()))


def _split_axis(
    parsed: ParsedPattern, group: AxisGroup, axis: int, length: int, known: Mapping[str, int]
) -> dict[object, Dims]:
    """Return the length of each item of a group, the axis number `axis` of an array, which has `length` entries."""
    sizes = {_key(item): _known_length(item, known) for item in group.items}
    unknown = [item for item in group.items if sizes[_key(item)] is None]
    product = prod(size for size in sizes.values() if size is not None)
    if len(unknown) > 1:
        _fail(parsed.text, unknown[1], "a second length of this group is unknown: give all but one by name")
    if not unknown and product != length:
        _fail(parsed.text, group, f"axis {axis} of the array has length {length}, and this group has {product}")
    if unknown and (not product or length % product):
        _fail(parsed.text, group, f"axis {axis} of the array has length {length}, which {product} does not divide")
    return {key: (length // product if size is None else size,) for key, size in sizes.items()}


def _known_length(item: Item, known: Mapping[str, int]) -> int | None:
    """Return the length of an item that is written or was passed, or None."""
    return item.length if isinstance(item, AnonymousAxis) else known.get(str(_key(item)))


def _added_length(parsed: ParsedPattern, item: Item, known: Mapping[str, int]) -> int:
    """Return the length of an axis that only the result has."""
    length = _known_length(item, known)
    if length is None:
        _fail(parsed.text, item, f"the length of a new axis is unknown: give it as {_key(item)}=...")
    return length
