"""The tutorial, the guides and the explanations: every example prints what the page says, as text and as a notebook."""

import importlib.util
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from tests.support.guide_pages import NOTEBOOKS, check_outputs, run_page
from tests.support.paths import ROOT

PAGES = [path.relative_to(ROOT / "docs").as_posix() for path in NOTEBOOKS.list_pages()]
PEERS = {"guides/pytorch.md": "torch", "guides/quantized.md": "onnxruntime"}
"""Pages that need a package which the normal tests lack."""


def require_peer(page: str) -> None:
    """Skip the test if the package that the page needs is absent."""
    peer = PEERS.get(page)
    if peer is not None and importlib.util.find_spec(peer) is None:
        pytest.skip(f"{peer} is not installed")


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.heavy] * (page in PEERS)) for page in PAGES])
def test_every_example_of_a_page_prints_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require_peer(page)
    monkeypatch.chdir(tmp_path)
    run_page((ROOT / "docs" / page).read_text(), page, capsys)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_examples_and_says_what_one_can_do_afterwards(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    kinds = [cell.kind for cell in NOTEBOOKS.read_cells(text)]
    assert kinds[0] == "markdown"
    assert "python" in kinds
    assert "After this page you" in text.split("\n\n")[1]
    # A block of Python without prompts would not be executed.
    assert re.findall(r"^```python\n(?!>>> )", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", [*PAGES, "comparison.md"])
def test_links_lead_to_files_and_headings(page: str) -> None:
    path = ROOT / "docs" / page
    for link in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not heading or heading in headings(target), link


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts and MyST form them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_a_notebook_has_every_cell_of_its_page(page: str) -> None:
    pytest.importorskip("jupytext", reason="jupytext is not installed")
    path = ROOT / "docs" / page
    cells = [cell for cell in NOTEBOOKS.read_cells(path.read_text()) if cell.kind != "markdown"]
    code = [cell for cell in NOTEBOOKS.make_notebook(path).cells if cell.cell_type == "code"]
    assert [cell.source.removeprefix("!") for cell in code] == [cell.source.strip() for cell in cells]


@pytest.mark.heavy
@pytest.mark.parametrize("page", PAGES)
def test_a_notebook_computes_what_its_page_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    for package in ("jupytext", "ipykernel"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    require_peer(page)
    monkeypatch.setenv("PATH", f"{make_command(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    path = ROOT / "docs" / page
    notebook = NOTEBOOKS.make_notebook(path)
    client.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in NOTEBOOKS.read_cells(path.read_text()) if cell.kind != "markdown"]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, run in zip(cells, code, strict=True):
        check_outputs(cell, run.outputs)


def make_command(folder: Path) -> Path:
    """Write the command `inlay` of this interpreter, and return its folder."""
    command = folder / "bin" / "inlay"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m inlay "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return command.parent
