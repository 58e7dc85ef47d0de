"""The parts of a docstring in Inlay's style: blocks of text, arguments, exceptions.

A docstring begins with one sentence. Paragraphs, indented blocks, tables and examples follow; `Args:` and `Raises:`
begin sections whose entries are indented. A parameter is described in one of four places, which `describe_parameter`
reads in this order: its entry under `Args:`, its row in a table or an indented list, or the sentences that name it.

>>> parsed = parse_docstring(describe_parameter.__doc__)
>>> parsed.summary
'Return the description of a parameter as text of a docstring; empty if there is none.'
"""

import inspect
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

_SECTION = re.compile(r"(Args|Raises|Returns|Yields):$")
_ENTRY = re.compile(r"    (?! )(?P<names>[^:]+?): +(?P<text>.*)")
_ROW = re.compile(r" {4,}(?P<names>`?\w+`?(?:, ?`?\w+`?)*)(?: {2,}| +- +)(?P<text>\S.*)")
_CELL = re.compile(r"(?<!\\)\|")
_LABELLED = re.compile(r"(Post|Pre)-conditions?\b|Source:")
_ABBREVIATION = re.compile(r"(?:e\.g|i\.e|et al|vs)\.$")


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines of a docstring of one kind."""

    kind: str
    """`text`, `code` (indented), `example` (a doctest), `table` or `list`."""
    lines: tuple[str, ...]
    """The lines, without common indentation."""


@dataclass(frozen=True, slots=True)
class Docstring:
    """A parsed docstring."""

    summary: str
    """First paragraph, on one line."""
    blocks: tuple[Block, ...]
    """All that follows, without the sections."""
    args: dict[str, str]
    """Text of each entry under `Args:`, by name."""
    raises: tuple[tuple[str, str], ...]
    """Names of exceptions, and when they are raised."""
    returns: str
    """Text under `Returns:` or `Yields:`; empty if there is none."""


def parse_docstring(text: str | None) -> Docstring:
    """Split a docstring into its parts; one that is None has empty parts."""
    paragraphs, sections = _split_sections(inspect.cleandoc(text or "").split("\n"))
    blocks = _split_blocks(paragraphs)
    summary, rest = "", blocks
    if blocks and blocks[0].kind == "text":
        summary, rest = join_lines(blocks[0].lines), blocks[1:]
    args = {name: entry for names, entry in _entries(sections.get("Args", [])) for name in _split_names(names)}
    returns = [*sections.get("Returns", []), *sections.get("Yields", [])]
    raises = tuple(_entries(sections.get("Raises", [])))
    return Docstring(summary, tuple(rest), args, raises, join_lines(line.strip() for line in returns))


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as one line, with single spaces."""
    return re.sub(r"\s+", " ", " ".join(lines)).strip()


def _split_sections(lines: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the lines outside of sections, and the lines of each section."""
    outside: list[str] = []
    sections: dict[str, list[str]] = {}
    section: list[str] | None = None
    for line in lines:
        if match := _SECTION.match(line):
            section = sections.setdefault(match[1], [])
        elif section is not None and (not line or line.startswith("    ")):
            section.append(line)
        else:
            section = None
            outside.append(line)
    return outside, sections


def _entries(lines: list[str]) -> list[tuple[str, str]]:
    """Return the entries of a section: the text before the colon of each, and the text after it."""
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if match := _ENTRY.match(line):
            found.append((match["names"], [match["text"]]))
        elif line.strip() and found:
            found[-1][1].append(line.strip())
    return [(names, join_lines(texts)) for names, texts in found]


def _split_names(names: str) -> list[str]:
    """Return the names of an entry such as `*src, dst`, without stars and backquotes."""
    return [name.strip(" `*") for name in re.split(r",| and ", names)]


def _split_blocks(lines: list[str]) -> list[Block]:
    """Return the blocks of lines that have no sections."""
    blocks: list[Block] = []
    part: list[str] = []
    for line in [*lines, ""]:
        starts_other = bool(part) and _kind_of(line) != _kind_of(part[0]) and not _continues(part, line)
        if part and (not line.strip() or starts_other):
            _append_block(blocks, part)
            part = []
        if line.strip():
            part.append(line)
    return blocks


def _continues(part: list[str], line: str) -> bool:
    """Return True if a line of another kind belongs to the block: output of an example, or a continued list."""
    kind = _kind_of(part[0])
    return kind == "example" or (kind == "list" and line.startswith(" "))


def _kind_of(line: str) -> str:
    stripped = line.lstrip()
    if stripped.startswith(">>>"):
        return "example"
    if line.startswith("    "):
        return "code"
    if stripped.startswith("|"):
        return "table"
    return "list" if re.match(r"([-*] |\d+\. )", stripped) else "text"


def _append_block(blocks: list[Block], lines: list[str]) -> None:
    """Append a block; code and examples that only an empty line separates become one block."""
    kind = _kind_of(lines[0])
    dedented = tuple(inspect.cleandoc("\n" + "\n".join(lines)).split("\n"))
    if kind in ("code", "example") and blocks and blocks[-1].kind == kind:
        blocks[-1] = Block(kind, (*blocks[-1].lines, "", *dedented))
    else:
        blocks.append(Block(kind, dedented))


def describe_parameter(parsed: Docstring, name: str) -> str:
    """Return the description of a parameter as text of a docstring; empty if there is none.

    `name` is the name of the parameter, without stars.
    """
    if name in parsed.args:
        return parsed.args[name]
    for block in parsed.blocks:
        row = _find_row(block, name) if block.kind in ("code", "table", "list") else ""
        if row:
            return row
    texts = [parsed.summary, *(join_lines(block.lines) for block in parsed.blocks if block.kind in ("text", "list"))]
    mention = re.compile(rf"`\*{{0,2}}{re.escape(name)}(?:=[^`]*)?`")
    found = [sentence for text in texts for sentence in split_sentences(text) if mention.search(sentence)]
    about = [sentence for sentence in found if not _LABELLED.match(sentence)]
    return _without_subject(" ".join(dict.fromkeys(about or found)), name)


def _without_subject(text: str, name: str) -> str:
    """Return a description without its first words, if they are the name and `is`."""
    rest = text.removeprefix(f"`{name}` is ")
    return text if rest == text else rest[:1].upper() + rest[1:]


def without_descriptions(blocks: Sequence[Block], names: Collection[str]) -> tuple[Block, ...]:
    r"""Return blocks without those that say nothing but what parameters of these names are.

    A colon in front of such a block becomes a full stop.

    >>> blocks = parse_docstring("Add.\n\nThe terms:\n\n    a  first\n    b  second").blocks
    >>> without_descriptions(blocks, ["a", "b"])
    (Block(kind='text', lines=('The terms.',)),)
    """
    rest: list[Block] = []
    for block in blocks:
        if not describes_only(block, names):
            rest.append(block)
        elif rest and rest[-1].lines[-1].endswith(":"):
            *lines, last = rest[-1].lines
            rest[-1] = replace(rest[-1], lines=(*lines, f"{last[:-1]}."))
    return tuple(rest)


def describes_only(block: Block, names: Collection[str]) -> bool:
    """Return True if a block says nothing but what parameters of these names are."""
    if block.kind == "text":
        starts = [re.match(r"`(\w+)`", sentence) for sentence in split_sentences(join_lines(block.lines))]
        return all(start and start[1] in names for start in starts)
    rows = [_ROW.match("    " + line) for line in block.lines if not line.startswith(" ")]
    return block.kind == "code" and all(row and set(_split_names(row["names"])) <= {*names} for row in rows)


def _find_row(block: Block, name: str) -> str:
    """Return the text beside a name in a table, or in an indented list with two columns."""
    if block.kind == "table":
        rows = [[cell.strip() for cell in _CELL.split(line.strip("|"))] for line in block.lines]
        head, found = rows[0], [row for row in rows[2:] if name in _split_names(row[0])]
        return "; ".join(
            f"{what}: {cell}" for row in found for what, cell in zip(head[1:], row[1:], strict=False) if cell
        )
    texts: list[str] = []
    for line in block.lines:
        match = (
            _ROW.match("    " + line) if block.kind == "code" else re.match(r"- (?P<names>`\w+`): (?P<text>.*)", line)
        )
        if match:
            if texts:
                break
            texts = [match["text"]] if name in _split_names(match["names"]) else []
        elif texts:
            texts.append(line.strip())
    return join_lines(texts)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text.

    >>> split_sentences("`a` is the first, e.g. 1. The second is `b`.")
    ['`a` is the first, e.g. 1.', 'The second is `b`.']
    """
    sentences: list[str] = []
    for part in re.split(r"(?<=\.)\s+(?=[A-Z`(])", text):
        if sentences and (_ABBREVIATION.search(sentences[-1]) or sentences[-1].count("`") % 2):
            sentences[-1] += f" {part}"
        else:
            sentences.append(part)
    return sentences
