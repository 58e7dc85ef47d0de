r"""Text of docstrings as Markdown: escaped characters, links to documented names, fenced blocks.

>>> to_inline("16*(n//8) of `desc`", lambda name: None)
'16\\*(n//8) of `desc`'
"""

import re
from collections.abc import Callable, Iterable, Sequence

from inlay_docs.docstrings import Block, join_lines

Resolver = Callable[[str], str | None]
"""Returns the full name of a documented object for a name in backquotes, such as `inlay.pack` for `pack`; else None."""

_SPECIAL = re.compile(r"([\\*_<>\[\]{}#~^$])")
_URL = re.compile(r"(https?://[^\s),;]+)")
_LABEL = re.compile(r"(Post-conditions?|Source|Sources|Pre-conditions?|Note|Hazard):(?=\s|$)")


def to_inline(text: str, resolve: Resolver) -> str:
    """Return one line of Markdown: what is in backquotes stays code, and is a link where it names something."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text)
    return "".join(_span(part, resolve) if i % 2 else _prose(part) for i, part in enumerate(parts))


def _span(span: str, resolve: Resolver) -> str:
    name = span.strip("`")
    full = resolve(name.removeprefix("inlay.").removesuffix("()")) if re.fullmatch(r"[\w.]+(\(\))?", name) else None
    return f"{{py:obj}}`{name} <{full}>`" if full else span


def _prose(text: str) -> str:
    """Escape what Markdown would take for markup; addresses become links."""
    parts = _URL.split(text)
    return "".join(f"<{part}>" if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def to_cell(text: str, resolve: Resolver) -> str:
    """Return the content of a cell of a table."""
    return re.sub(r"(?<!\\)\|", r"\\|", to_inline(text, resolve)) or " "


def code_cell(text: str) -> str:
    """Return code as the content of a cell; nothing for no code."""
    return f"`{text}`".replace("|", r"\|") if text else " "


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def stack_cells(rows: str) -> str:
    """Return a table whose cells are below each other on a narrow screen: one with a long text in each row."""
    return f":::{{container}} stacked\n\n{rows}\n:::"


def fence(language: str, text: str) -> str:
    """Return a fenced block of code."""
    marks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{marks}{language}\n{text}\n{marks}"


def to_markdown(blocks: Sequence[Block], resolve: Resolver) -> str:
    """Return blocks of a docstring as Markdown."""
    parts: list[str] = []
    for before, block in zip([None, *blocks], blocks, strict=False):
        is_labelled = block.kind == "code" and before is not None and bool(_LABEL.fullmatch(before.lines[-1]))
        parts.append(_paragraph(block.lines, resolve) if is_labelled else _BLOCKS[block.kind](block, resolve))
    return "\n\n".join(parts)


def _paragraph(lines: Iterable[str], resolve: Resolver) -> str:
    text = join_lines(lines)
    label = _LABEL.match(text)
    start = f"**{label[1]}:**" if label else ""
    return start + to_inline(text[label.end() :] if label else text, resolve)


def _text(block: Block, resolve: Resolver) -> str:
    return _paragraph(block.lines, resolve)


def _code(block: Block, resolve: Resolver) -> str:
    return fence("text", "\n".join(block.lines))


def _example(block: Block, resolve: Resolver) -> str:
    """Return a doctest without its options, which are for the test."""
    lines = [re.sub(r"\s+# doctest: .*$", "", line) for line in block.lines]
    return fence("pycon", "\n".join(line if line != "<BLANKLINE>" else "" for line in lines))


def _table(block: Block, resolve: Resolver) -> str:
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in block.lines]
    return table([to_cell(cell, resolve) for cell in rows[0]], [[to_cell(c, resolve) for c in row] for row in rows[2:]])


def _list(block: Block, resolve: Resolver) -> str:
    def line_of(line: str) -> str:
        mark = re.match(r"\s*(?:[-*]|\d+\.)\s+|\s*", line)
        start = mark[0] if mark else ""
        return start + to_inline(line[len(start) :], resolve)

    return "\n".join(map(line_of, block.lines))


_BLOCKS: dict[str, Callable[[Block, Resolver], str]] = {
    "text": _text,
    "code": _code,
    "example": _example,
    "table": _table,
    "list": _list,
}
