"""Pictures in a real notebook: one form of markup for each cell, in an element in which it scrolls."""

import warnings
from typing import Any
from xml.etree import ElementTree

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytestmark = pytest.mark.heavy

SVG = "{http://www.w3.org/2000/svg}svg"
CELLS = {
    "desc": "import numpy as np, inlay\nd = inlay.MemoryDesc((2, 17, 5, 4), 'f32', 'nChw8c')\nd",
    "comparison": "inlay.show('nchw', 'nChw8c')",
    "memory": "inlay.pack(np.arange(6, dtype=np.float32).reshape(2, 3) / 4, 'ba')",
    "reorder": "inlay.Reorder(d, inlay.MemoryDesc(d.dims, 'f32', 'nhwc'))",
    "compound": "inlay.show('ggml:Q4_0')",
    "plan": "from tests.support.planner_graphs import HashedCosts, drawn_graph\n"
    "from inlay.graph.plan import plan_graph\nplan_graph(drawn_graph(11, 30, 2), HashedCosts(11))",
}


def run_cells(sources: list[str]) -> list[list[Any]]:
    """Run the cells of a notebook, and return the outputs of each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_cell_stores_one_drawing_that_scrolls() -> None:
    for name, outputs in zip(CELLS, run_cells(list(CELLS.values())), strict=True):
        assert [set(output.data) for output in outputs] == [{"text/plain", "text/html"}], name
        assert len(outputs[0].data["text/html"]) < 130_000, name
        root = ElementTree.fromstring(outputs[0].data["text/html"])
        assert "overflow" in root.get("style", ""), name
        assert [child.tag for child in root] == [SVG], name


def test_a_picture_is_displayed_wherever_it_is_in_the_cell() -> None:
    loop = "for tag in ('ba', 'abcd'):\n    inlay.show(tag)"
    source = f"import inlay\ninlay.show('ab')\n{loop}\nx = inlay.show('nhwc')\nprint(7)"
    outputs = run_cells([source, "inlay.show('ab');"])
    shown = [output.data["text/html"] for output in outputs[0] if output.output_type == "display_data"]
    assert [ElementTree.fromstring(html)[0][0].text for html in shown] == [
        "ab, 2 x 2 of f32",
        "ba, 2 x 2 of f32",
        "nchw (abcd), 2 x 2 x 2 x 2 of f32",
    ]
    assert [output.text for output in outputs[0] if output.output_type == "stream"] == ["7\n"]
    assert outputs[1] == []
