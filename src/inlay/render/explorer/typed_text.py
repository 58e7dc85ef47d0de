"""Texts of the explorer's fields: numbers, axes and data types as people type them, and mistakes with their column.

A mistake is an `InvalidField`: the field, the characters that are wrong, and texts that would be right. The page puts
carets under these characters while the text is typed, and offers the texts:

>>> parse_numbers("2x17xx4", DIMS)
Traceback (most recent call last):
    ...
inlay.render.explorer.typed_text.InvalidField: dims are whole numbers joined by x, such as 2x17x5x4: a number is missing
    2x17xx4
    ~~~~~^
    did you mean 2x17x4?
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from inlay.data_type import DATA_TYPES, MOVED_TYPES, DataType, as_data_type
from inlay.descriptor.validation import LARGEST
from inlay.errors import InlayError, InvalidArguments, NotationError, printable, shown
from inlay.layout import Dims
from inlay.layout.axis import LETTERS

MOST_CHARACTERS = 2_000
"""Length limit of the text of a field, in characters."""


@dataclass(frozen=True, slots=True)
class FieldFault:
    """A mistake in a field of the page, with its repairs."""

    field: str
    """Key of the request: layout, dims, data_type, names, offset0 or views; "request" if it is malformed."""
    problem: str
    """The rule and the value that breaks it."""
    text: str = ""
    """Text of the field."""
    column: int | None = None
    """Index of the first wrong character in `text`; None if the whole text is meant."""
    length: int = 0
    """Number of wrong characters; 0 if the whole text is meant."""
    view: int | None = None
    """Index of the view; None for fields that are not of a view."""
    part: str | None = None
    """Key of the view whose text is wrong, such as "dims"; None if the whole view is meant."""
    side: str | None = None
    """Layout of a reorder whose field is meant, "src" or "dst"; None if there is one layout only."""
    suggestions: tuple[str, ...] = ()
    """Texts that the field can hold, the nearest first."""
    repair: str | None = None
    """The remedy in words."""
    repairs: tuple[Mapping[str, Any], ...] = ()
    """Whole requests that work, as `request`, each with its `text` in words."""

    def to_json(self) -> dict[str, Any]:
        """Return the fault as the server sends it; see `docs/explorer.md`."""
        return {
            "field": self.field,
            "view": self.view,
            "part": self.part,
            "side": self.side,
            "message": self.problem,
            "column": self.column,
            "length": self.length,
            "suggestions": list(self.suggestions),
            "repair": self.repair,
            "repairs": list(self.repairs),
        }


class InvalidField(InvalidArguments):
    """A text that a field of the explorer cannot hold; `fault` says where it is wrong, and what would be right."""

    def __init__(self, fault: FieldFault) -> None:
        """Create the error; its text has carets under the wrong characters."""
        self.fault = fault
        marked = ""
        if fault.column is not None:
            marked = f"\n    {fault.text}\n    {'~' * fault.column}{'^' * max(1, fault.length)}"
        super().__init__(f"{fault.problem}{marked}{_remedy_of(fault)}")

    def __reduce__(self) -> tuple[type["InvalidField"], tuple[FieldFault]]:
        """Pickle by the fault; exceptions are otherwise pickled by their text only."""
        return type(self), (self.fault,)


def _remedy_of(fault: FieldFault) -> str:
    """Return the last line of the text of an error: the remedy, or texts that may be meant; empty if there are none."""
    if fault.repair:
        return f"\n    {fault.repair}"
    if fault.suggestions and "did you mean" not in fault.problem:
        return f"\n    did you mean {' or '.join(fault.suggestions)}?"
    return ""


@dataclass(frozen=True, slots=True)
class FieldText:
    """A text field of the page: where it is, and what it holds."""

    field: str
    """Key of the request."""
    rule: str
    """Meaning of the field, with an example: the beginning of its errors."""
    view: int | None = None
    """Index of the view; None for fields that are not of a view."""
    part: str | None = None
    """Key of the view; None for fields that are not of a view."""
    has_negative: bool = False
    """True if numbers may be negative."""
    most: int = len(LETTERS)
    """Number of entries that the field can hold."""

    def fail(
        self,
        problem: str,
        text: str,
        column: int | None = None,
        length: int = 0,
        suggestions: Sequence[str] = (),
    ) -> NoReturn:
        """Raise the error of this field."""
        fault = FieldFault(self.field, problem, text, column, length, self.view, self.part)
        raise InvalidField(replace(fault, suggestions=tuple(suggestions)))


DIMS = FieldText("dims", "dims are whole numbers joined by x, such as 2x17x5x4")
"""The field of dims."""
STRIDES = FieldText("layout", "strides are whole numbers joined by commas, such as 320,20,4,1", has_negative=True)
"""The field of the layout, if it holds strides."""

_OPENING = re.compile(r"\s*[(\[]?\s*")
_CLOSING = re.compile(r"\s*,?\s*[)\]]?\s*")
_SEPARATOR = re.compile(r"\s*[x×*,;]\s*|\s+")
_NUMBER = re.compile(r"[-−]?[0-9]+")
_PART = re.compile(r"[^\sx×*,;()\[\]]+")


def parse_numbers(text: str, field: FieldText) -> Dims:
    """Parse integers joined by x, commas or spaces, alone or in brackets.

    Raises:
        InvalidField: a part of `text` is no integer, is negative or exceeds 64 bits, or there are too many.

    >>> parse_numbers("2x17x5x4", DIMS), parse_numbers("(480, 160)", STRIDES), parse_numbers("-4 1", STRIDES)
    ((2, 17, 5, 4), (480, 160), (-4, 1))
    """
    position = _end(_OPENING, text, 0)
    closing = re.compile(_CLOSING.pattern + r"\Z")
    numbers: list[int] = []
    while True:
        match = _NUMBER.match(text, position)
        if match is None:
            _refuse_part(text, position, field)
        numbers.append(_checked_number(match, text, field, len(numbers)))
        position = match.end()
        if closing.match(text, position):
            return tuple(numbers)
        separator = _SEPARATOR.match(text, position)
        if separator is None:
            _refuse_part(text, position, field)
        position = separator.end()


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    """Return the end of `pattern`, which matches the empty text too, in `text` at `position`."""
    match = pattern.match(text, position)
    assert match is not None
    return match.end()


def _checked_number(match: re.Match[str], text: str, field: FieldText, count: int) -> int:
    """Return the integer of a match, after `count` others."""
    where = (text, match.start(), len(match[0]))
    if count >= field.most:
        field.fail(f"{field.rule}: give at most {field.most}", *where)
    number = int(match[0].replace("−", "-")) if len(match[0]) <= 20 else LARGEST + 1
    if number < 0 and not field.has_negative:
        field.fail(f"{field.rule}: {match[0]} is negative", *where, suggestions=[_cleaned(text, field)])
    if abs(number) > LARGEST:
        field.fail(f"{field.rule}: {shown(match[0], most=40)[1:-1]} is more than 2**63 - 1", *where)
    return number


def _refuse_part(text: str, position: int, field: FieldText) -> NoReturn:
    """Raise the error for what is in the place of a number or a separator."""
    part = _PART.match(text, position)
    cleaned = _cleaned(text, field)
    suggestions = [cleaned] if cleaned and cleaned != text else []
    if part is None:
        field.fail(f"{field.rule}: a number is missing", text, position, 1, suggestions=suggestions)
    problem = f"{field.rule}: {shown(part[0], most=40)} is no number"
    field.fail(problem, text, position, len(part[0]), suggestions=suggestions)


def _cleaned(text: str, field: FieldText) -> str:
    """Return the numbers of a text, joined as the field has them; empty if there are none."""
    numbers = re.findall(r"-?[0-9]+" if field.has_negative else r"[0-9]+", text)[: field.most]
    return ("," if field.has_negative else "x").join(numbers)


def parse_data_type(text: str) -> DataType:
    """Parse the name of a data type: that of oneDNN, of NumPy or of ml_dtypes.

    Raises:
        InvalidField: there is no such type; its suggestions are similar names.

    >>> parse_data_type("bf16").bits, parse_data_type("float32").name
    (16, 'f32')
    """
    name = text.strip()
    try:
        return as_data_type(name)
    except InlayError as error:
        column = len(text) - len(text.lstrip())
        length = max(1, len(name))
        fault = FieldFault("data_type", str(error), text, column, length, suggestions=tuple(similar_types(name)))
        raise InvalidField(fault) from None


def similar_types(name: str) -> list[str]:
    """Return up to three names of data types that resemble `name`, the nearest first.

    >>> similar_types("F32"), similar_types("fp16")
    (['f32'], ['f16', 'bf16'])
    """
    import difflib  # slow to import, and only mistakes need it

    names = [*DATA_TYPES, *MOVED_TYPES]
    lower = name.lower()
    same = [known for known in names if known == lower]
    return same or difflib.get_close_matches(lower, names, n=3, cutoff=0.6)


def locate(error: NotationError, text: str) -> tuple[int, int]:
    """Return the column of the characters that `error` marks, and their number, in the `text` that was typed.

    The parser removes white space and a swizzle before it reads the rest. If it read another text, such as the pattern
    of a vendor's name, the result is the whole text.

    >>> from inlay.notation import parse_notation
    >>> text = "  n (c c8)   h -> n c h c9"
    >>> try:
    ...     parse_notation(text)
    ... except NotationError as error:
    ...     print(locate(error, text))
    (24, 2)
    """
    positions = [i for i, _ in _single_spaced(text)]
    normal = "".join(character for _, character in _single_spaced(text))
    if not error.text or not normal.endswith(error.text):
        return 0, len(text)
    before = len(normal) - len(error.text)
    positions.append(len(text.rstrip()))
    first, last = before + error.start, before + error.end
    if first >= len(normal):
        return positions[-1], 1
    column = positions[first]
    return column, max(1, positions[min(last, len(normal)) - 1] + 1 - column)


def _single_spaced(text: str) -> list[tuple[int, str]]:
    """Return the characters of `" ".join(text.split())` with their positions in `text`."""
    words = list(re.finditer(r"\S+", text))
    characters: list[tuple[int, str]] = []
    for word in words:
        if characters:
            characters.append((word.start() - 1, " "))
        characters.extend(zip(range(*word.span()), word[0], strict=True))
    return characters


def require_text(field: str, value: object) -> str:
    """Return the text of a field of a request.

    Raises:
        InvalidField: `value` is no text, is longer than 2,000 characters, or has characters that cannot be printed.
    """
    if not isinstance(value, str):
        raise InvalidField(FieldFault("request", f"{field} is {shown(value)}: give text"))
    if len(value) > MOST_CHARACTERS:
        raise InvalidField(FieldFault(field, f"{field} has {len(value)} characters: give at most {MOST_CHARACTERS:,}"))
    foreign = next((i for i, c in enumerate(value) if not c.isprintable() and not c.isspace()), None)
    if foreign is not None:
        problem = f"{printable(value[foreign])!r} has no place in {field}"
        raise InvalidField(FieldFault(field, problem, printable(value), foreign, 1))
    return value
