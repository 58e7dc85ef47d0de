"""Text that fits a terminal of 80 columns: tables, wrapped lines, long names shortened in the middle.

Columns are those of a terminal: a letter of Chinese takes two, a combining accent none.

>>> rows = [("step", "ms"), ("a very long name that ends in 7", "1.5")]
>>> print(format_table(rows, right=(1,), shrink={0: 15}, columns=20))
step              ms
a...t ends in 7  1.5
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType

from rich.cells import cell_len

from inlay.errors import printable

COLUMNS = 80
"""Columns of a terminal."""
_DOTS = "..."
_GAP = 2  # columns between two columns of a table
_LEAST = 8  # columns to which a column of a table may shrink


def shorten_middle(text: str, columns: int) -> str:
    """Return `text` on one line in at most so many columns; a longer one has dots in place of its middle.

    Most of what remains is its end, by which names of one network mostly differ.

    >>> shorten_middle("/model/encoder/layer.11/attention/MatMul", 24)
    '/m...11/attention/MatMul'
    """
    text = printable(text)
    if cell_len(text) <= columns:
        return text
    if columns <= len(_DOTS):
        return _DOTS[:columns]
    left = (columns - len(_DOTS)) // 8
    end = _take(reversed(text), columns - len(_DOTS) - left)[::-1]
    while end and not cell_len(end[0]):
        end = end[1:]  # an accent belongs to the letter before it
    return _take(text, left) + _DOTS + end


def _take(characters: Iterable[str], columns: int) -> str:
    """Return the first characters that fit in so many columns."""
    found, used = [], 0
    for character in characters:
        used += cell_len(character)
        if used > columns:
            break
        found.append(character)
    return "".join(found)


def wrap_text(text: str, columns: int = COLUMNS, first: str = "", rest: str = "  ") -> list[str]:
    """Return `text` as lines of at most so many columns, broken at spaces; a longer word is shortened in the middle.

    `first` and `rest` are the indents of the first and of the other lines.

    >>> wrap_text("one two three", 9)
    ['one two', '  three']
    """
    lines, line = [], first
    is_empty = True
    for word in printable(text).split(" "):
        if not is_empty and cell_len(line) + 1 + cell_len(word) > columns:
            lines.append(line.rstrip())
            line, is_empty = rest, True
        line += ("" if is_empty else " ") + shorten_middle(word, columns - cell_len(line) - (not is_empty))
        is_empty = False
    return [*lines, line.rstrip()]


def format_table(
    rows: Sequence[Sequence[str]],
    right: Iterable[int] = (),
    shrink: Mapping[int, int] = MappingProxyType({}),
    columns: int = COLUMNS,
) -> str:
    """Return rows as lines with aligned columns.

    Args:
        rows: the cells of each row; the first row is the heading. A column without text is left out.
        right: columns that are right-aligned.
        shrink: width of each column whose cells are shortened until a line fits; the one that exceeds it most is
            narrowed first.
        columns: most columns of a line.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(cells[0]))]
    while sum(widths) + _GAP * (sum(map(bool, widths)) - 1) > columns:
        narrowed = max((i for i in shrink if widths[i] > _LEAST), key=lambda i: widths[i] - shrink[i], default=None)
        if narrowed is None:
            break
        widths[narrowed] -= 1
    ends = frozenset(right)
    return "\n".join(_format_row(row, widths, ends) for row in cells)


def _format_row(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    """Return a row of a table as a line."""
    found = []
    for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
        if not width:
            continue
        text = shorten_middle(cell, width)
        space = " " * (width - cell_len(text))
        found.append(space + text if i in right else text + space)
    return (" " * _GAP).join(found).rstrip()


_MOST_NUMBERS = 3  # numbers that are listed
_NUMBER = re.compile(r"(\d+)")


def merge_names(names: Sequence[str]) -> str:
    """Return one text for several names, with `*` where they differ.

    Names that differ in numbers alone have `*` in place of these, or a few numbers at one place. If not all do, those
    of the most frequent form stand for all, with dots after them. Names of different forms have `*` between their
    common beginning and end; the first one stands for names with little in common.

    >>> merge_names([f"/blocks.{i}/fc1/MatMul" for i in range(12)]), merge_names(["conv_1", "conv_4"])
    ('/blocks.*/fc1/MatMul', 'conv_{1,4}')
    >>> merge_names(["conv", "relu"])
    'conv, ...'
    """
    if len(set(names)) < 2:
        return names[0] if names else ""
    forms: dict[tuple[str, ...], list[list[str]]] = {}
    for name in names:
        parts = _NUMBER.split(name)
        forms.setdefault(tuple(parts[::2]), []).append(parts)
    most = max(forms.values(), key=len)
    merged = _merge_parts(most)
    if len(forms) == 1:
        return merged
    begin = len(_common_prefix(names))
    end = len(_common_prefix([name[begin:][::-1] for name in names]))
    if len(most) == 1 and 2 * (begin + end) >= min(map(len, names)):
        return f"{names[0][:begin]}*{names[0][len(names[0]) - end :]}"
    return f"{merged}, {_DOTS}"


def _merge_parts(names: Sequence[Sequence[str]]) -> str:
    """Return one text for names that differ in numbers alone, each given as its parts."""
    columns = [list(dict.fromkeys(texts)) for texts in zip(*names, strict=True)]
    is_listed = sum(len(texts) > 1 for texts in columns) == 1 and max(map(len, columns)) <= _MOST_NUMBERS
    merged = [texts[0] if len(texts) == 1 else f"{{{','.join(texts)}}}" if is_listed else "*" for texts in columns]
    return "".join(merged)


def _common_prefix(texts: Sequence[str]) -> str:
    """Return the longest beginning that all texts share."""
    return "".join(
        letters[0] for letters in takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    )


def count_text(count: int, word: str) -> str:
    """Return a count with its noun, in the plural if it is not 1.

    >>> count_text(1, "step"), count_text(2, "step")
    ('1 step', '2 steps')
    """
    return f"{count} {word}{'s' * (count != 1)}"


def ms_text(ms: float) -> str:
    """Return a time in milliseconds as text.

    >>> ms_text(1.5)
    '1.500 ms'
    """
    return f"{ms:.3f} ms"


def share_text(share: float) -> str:
    """Return a share, from 0 to 1, in percent.

    >>> share_text(0.125)
    '12.5 %'
    """
    return f"{100 * share:.1f} %"
