"""docs/architecture.md names every package, and only names that exist."""

import ast
import importlib
import pkgutil
import re
from contextlib import suppress

import pytest

import inlay
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
TEXT = re.sub(r"^>>>.*$", "", PAGE, flags=re.MULTILINE)
WITHIN = ("inlay", "inlay.graph", "inlay.reordering")
"""Prefixes that the page leaves out of names."""


def found(name: str) -> bool:
    """Return True if a dotted name is that of a module, a class or a function."""
    for package in WITHIN:
        with suppress(ImportError, AttributeError):
            return pkgutil.resolve_name(f"{package}.{name}") is not None
    return False


def test_every_name_with_dots_exists() -> None:
    names = sorted(set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", TEXT)))
    assert len(names) > 30
    assert [name for name in names if not found(name)] == []


def test_a_name_that_does_not_exist_is_found() -> None:
    assert found("planning.plan_reorder")
    assert not found("planning.plan_everything")
    assert not found("nowhere.plan_reorder")


def test_every_package_and_root_module_is_named() -> None:
    words = set(re.findall(r"`([a-z_.]+)/?`", TEXT))
    named = {".".join(word.split(".")[:count]) for word in words for count in range(1, 4)}
    expected = {module.name for module in pkgutil.iter_modules(inlay.__path__)} - {"__main__"}
    graph = importlib.import_module("inlay.graph")
    expected |= {f"graph.{module.name}" for module in pkgutil.iter_modules(graph.__path__)} - {"graph.onnx_package"}
    assert expected - named == set()


PACKAGES = {str(path.parent.relative_to(ROOT / "src")): path for path in (ROOT / "src").rglob("inlay/**/__init__.py")}


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_package_that_lists_its_modules_lists_all(name: str) -> None:
    """The list is in the docstring of the package; `graph` describes its modules in sentences."""
    path = PACKAGES[name]
    modules = {file.stem for file in path.parent.glob("*.py")} - {"__init__", "__main__"}
    listed = set(re.findall(r"\w+", ast.get_docstring(ast.parse(path.read_text())) or ""))
    assert name == "inlay/graph" or 2 * len(modules & listed) < len(modules) or modules <= listed, modules - listed


@pytest.mark.parametrize("page", ["docs/recipes.md", "CONTRIBUTING.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    named = set(re.findall(r"`((?:src|tests|docs|changes)/[\w/.]+)`", (ROOT / page).read_text()))
    assert len(named) > 2
    assert {name for name in named if not (ROOT / name).exists()} <= {"src/inlay/engines/blas/__init__.py"}
