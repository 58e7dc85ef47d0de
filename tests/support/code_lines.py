"""Lines of code of a tree: without docstrings, comments and blank lines.

python -m tests.support.code_lines src/inlay         a line for each folder, then modules and lines in all
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

_EMPTY = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@cache
def code_lines(source: str) -> set[int]:
    """The lines that hold code: no blank lines, comments or docstrings."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _EMPTY:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstrings


def main(root: Path) -> None:
    """Count the modules below `root`."""
    modules, lines = Counter[str](), Counter[str]()
    for path in sorted(root.rglob("*.py")):
        folder = str(path.parent.relative_to(root))
        modules[folder] += 1
        lines[folder] += len(code_lines(path.read_text()))
    for folder in modules:
        sys.stdout.write(f"{folder:28} {modules[folder]:4} {lines[folder]:7,}\n")
    sys.stdout.write(f"{'in all':28} {modules.total():4} {lines.total():7,}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
