"""Guides as notebooks: a page in Markdown is cut into cells, which the tests execute and which become a notebook.

`python docs/_ext/guide_notebooks.py FOLDER` writes a notebook for the tutorial, each guide and each explanation to
FOLDER, without outputs. A page has three kinds of blocks that run:

- Python with prompts and the expected output, as doctest reads it;
- `console` blocks of `inlay` commands and what they print, where `...` stands for any text;
- `{inlay-picture} TAG DIMS`, or with an expression of Python, which draws a layout.

Everything else, `sh` blocks too, is text. A notebook has no `{inlay-explorer}`, which embeds a page.
"""

import doctest
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

DOCS = Path(__file__).resolve().parents[1]
LAYOUT = re.compile(r"(?P<tag>\S+) (?P<dims>\d+(?:x\d+)*)(?: (?P<type>\w+))?")
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
EXPLORER = re.compile(r"^```\{inlay-explorer\}.*?^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>(?![a-z]+://)[^)]+)\)")


@dataclass(frozen=True, slots=True)
class Cell:
    """One part of a page: text, or a block that runs."""

    kind: Literal["markdown", "python", "command", "picture"]
    """Kind of `source`."""
    source: str
    """Markdown, Python, or the command without its prompt; of a picture, the call that draws it."""
    expected: str = ""
    """Expected output; of pictures, the empty text."""

    @property
    def raises(self) -> bool:
        """Return whether the cell is expected to raise an exception."""
        return self.expected.startswith("Traceback")


def list_pages() -> list[Path]:
    """Return the pages that become notebooks."""
    folders = (DOCS / "guides", DOCS / "explanations")
    return [DOCS / "tutorial.md", *(page for folder in folders for page in sorted(folder.glob("*.md")))]


def read_cells(text: str) -> list[Cell]:
    """Return the cells of a page, in order."""
    cells, begin = [], 0
    for fence in FENCE.finditer(text):
        block = list(_read_block(fence["info"].strip(), fence["body"]))
        if block:
            cells += [Cell("markdown", text[begin : fence.start()]), *block]
            begin = fence.end()
    cells.append(Cell("markdown", text[begin:]))
    return [cell for cell in cells if cell.source.strip()]


def _read_block(info: str, body: str) -> Iterator[Cell]:
    """Yield the cells of a fenced block; none if the block does not run."""
    if info == "python":
        yield from _read_python(body)
    elif info == "console":
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            yield Cell("command", command, expected)
    elif info.startswith("{inlay-picture}"):
        yield Cell("picture", _write_picture_call(info.removeprefix("{inlay-picture}").strip()))


def _read_python(body: str) -> Iterator[Cell]:
    """Yield a cell for each output, with the statements before it."""
    statements = ""
    for example in doctest.DocTestParser().get_examples(body):
        statements += example.source
        if example.want:
            yield Cell("python", statements, example.want)
            statements = ""
    if statements:
        yield Cell("python", statements)


def _write_picture_call(argument: str) -> str:
    """Return the call that draws what the directive names: `TAG DIMS`, `TAG DIMS TYPE`, or an expression of Python."""
    layout = LAYOUT.fullmatch(argument)
    if layout is None:
        return f"inlay.show({argument})\n"
    dims = tuple(map(int, layout["dims"].split("x")))
    return f'inlay.show(inlay.MemoryDesc({dims}, "{layout["type"] or "f32"}", "{layout["tag"]}"))\n'


def make_notebook(page: Path) -> Any:
    """Return the notebook of a page (`nbformat.NotebookNode`), without outputs."""
    import jupytext

    text = "\n\n".join(_write_cell(cell, page) for cell in read_cells(page.read_text()))
    notebook = jupytext.reads(text, "md")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


def _write_cell(cell: Cell, page: Path) -> str:
    """Return a cell as jupytext reads it in Markdown."""
    if cell.kind == "markdown":
        text = EXPLORER.sub("", cell.source)
        # jupytext would run these blocks.
        text = re.sub(r"^```(sh|json|ebnf)$", "```text", text, flags=re.MULTILINE)
        return LINK.sub(lambda link: _write_link(link, page), text).strip()
    tags = ' tags=["raises-exception"]' if cell.raises else ""
    return f"```python{tags}\n{'!' * (cell.kind == 'command')}{cell.source.strip()}\n```"


def _write_link(link: re.Match[str], page: Path) -> str:
    """Return the text of a link to another page, and the path of that page in the source."""
    name = link["target"].partition("#")[0]
    if not name:
        return link["text"]
    path = (page.parent / name).resolve()
    return f"{link['text']} (`{path.relative_to(DOCS.parent)}`)"


def main(folder: Path) -> None:
    """Write the notebook of each page below `folder`, in the folders of the pages."""
    import jupytext

    for page in list_pages():
        target = folder / page.relative_to(DOCS).with_suffix(".ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        jupytext.write(make_notebook(page), target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
