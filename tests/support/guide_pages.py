"""The tutorial, the guides and the explanations, executed from top to bottom: Python, commands and pictures."""

import ast
import doctest
import importlib.util
import shlex
from types import ModuleType
from typing import Any

import pytest

import inlay
from inlay.cli import main
from tests.support.command_line import matches
from tests.support.paths import ROOT

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def load_guide_notebooks() -> ModuleType:
    """Return the module `docs/_ext/guide_notebooks.py`."""
    spec = importlib.util.spec_from_file_location("guide_notebooks", ROOT / "docs" / "_ext" / "guide_notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOTEBOOKS: Any = load_guide_notebooks()


def run_page(text: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Execute all cells of a page in the current directory, and compare their outputs with the page."""
    names: dict[str, Any] = {}
    for number, cell in enumerate(NOTEBOOKS.read_cells(text)):
        if cell.kind == "command":
            assert cell.source.startswith("inlay "), f"{name}: {cell.source} is not a command of Inlay"
            capsys.readouterr()
            code = main(shlex.split(cell.source)[1:])
            out = capsys.readouterr().out
            assert (code, matches(cell.expected, out)) == (0, True), f"{name}: {cell.source}\n{out}"
        elif cell.kind == "python":
            run_python(cell, f"{name}, cell {number}", names)
        elif cell.kind == "picture":
            assert str(eval(cell.source, {"inlay": inlay}))


def run_python(cell: Any, name: str, names: dict[str, Any]) -> None:
    """Execute one cell of Python in the names of its page; its last statement has the expected output."""
    lines = cell.source.splitlines(keepends=True)
    last = ast.parse(cell.source).body[-1].lineno - 1
    exec(compile("".join(lines[:last]), name, "exec"), names)
    error = cell.expected.rpartition("    ...\n")[2] if cell.raises else None
    example = doctest.Example("".join(lines[last:]), cell.expected, error)
    test = doctest.DocTest([example], {}, name, None, 0, None)
    test.globs = names  # not a copy: the next cell sees them too
    messages: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=messages.append, clear_globs=False)
    assert not messages, "".join(messages)


def check_outputs(cell: Any, outputs: list[Any]) -> None:
    """Compare the outputs of a cell that a notebook has executed with those of its page."""
    errors = [f"{output['ename']}: {output['evalue']}" for output in outputs if output["output_type"] == "error"]
    text = "".join(read_text(output) for output in outputs)
    if cell.kind == "picture":
        assert (bool(outputs), errors) == (True, []), cell.source
    elif cell.kind == "command":
        assert matches(cell.expected, text.replace("\r\n", "\n")), f"{cell.source}\n{text}"
    elif cell.raises:
        assert cell.expected.rpartition("    ...\n")[2].strip().endswith(errors[0]), errors
    else:
        assert errors == [], errors
        assert doctest.OutputChecker().check_output(cell.expected, text + "\n" * bool(text), FLAGS), text


def read_text(output: Any) -> str:
    """Return the text of one output of a notebook."""
    if output["output_type"] == "stream":
        return str(output["text"])
    return str(output.get("data", {}).get("text/plain", ""))
