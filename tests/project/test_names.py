"""Names and docstrings of the package: no class name twice, docstrings that open with a verb or a noun."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.project.test_architecture import MODULES, parse

PUBLIC_TWICE = {"Reorder"}
"""Class names that are public in two packages: `inlay.Reorder` moves memory, `inlay.primitives.Reorder` is oneDNN's."""
CLAUSE = re.compile(r"(What|How|Whether|Where|Of|Which|Everything)\b")
"""First words of a docstring that hangs on the name instead of standing on its own."""
MOST_CLAUSES = 0.04
"""The share of docstrings that may open with such a word."""


def docstrings(source: str) -> Iterator[str]:
    """Docstrings of the module, its classes and functions, and of fields and constants."""
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        if isinstance(node, ast.Module | ast.ClassDef):
            values = (child.value for child in node.body[1:] if isinstance(child, ast.Expr))
            yield from (value.value for value in values if isinstance(value, ast.Constant) and str is type(value.value))


def test_a_class_name_occurs_once() -> None:
    modules = defaultdict(list)
    for module, source in MODULES.items():
        for node in ast.walk(parse(source)):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(module)
    twice = {name: found for name, found in modules.items() if len(found) > 1}
    assert twice.keys() == PUBLIC_TWICE, twice


def test_docstrings_say_what_a_thing_is() -> None:
    texts = [text for source in MODULES.values() for text in docstrings(source) if text]
    clauses = [text.splitlines()[0] for text in texts if CLAUSE.match(text)]
    assert len(texts) > 4000
    assert len(clauses) <= MOST_CLAUSES * len(texts), clauses


def test_a_docstring_of_a_field_is_found() -> None:
    fields = 'class A:\n    """Class."""\n    x: int\n    """Where it is."""\n'
    source = f'"""Module."""\n{fields}    def f(self):\n        """F."""\n'
    assert sorted(docstrings(source)) == ["Class.", "F.", "Module.", "Where it is."]
    assert CLAUSE.match("Where it is.")
    assert not CLAUSE.match("Offset of the element.")
