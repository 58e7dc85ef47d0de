"""The table of the zoo: rows that are kept, the text between the markers of its page."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.zoo import ZOO_NETWORKS
from tests.zoo import table
from tests.zoo.architectures import SCALES, ZOO

FIGURES: dict[str, Any] = {"steps": 7, "numpy": [0, 0.0], "fallback": [2, 0.015], "planning": 0.25, "ms": 1.5}
FIGURES |= {"times_predicted": 1.2, "ratio": 1.25}


def test_the_text_between_the_markers_is_replaced() -> None:
    page = table.with_table(f"before\n{table.BEGIN}\nold\n{table.END}\nafter", "new")
    assert page == f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter"
    assert table.with_table(page, "new") == page


def test_the_page_has_the_markers_and_whole_rows() -> None:
    page = table.PAGE.read_text()
    inside = page.split(table.BEGIN)[1].split(table.END)[0]
    rows = [line for line in inside.splitlines() if line.startswith("|")]
    assert all(row.count("|") == len(table.COLUMNS) + 1 for row in rows)
    assert {row.split("|")[1].strip() for row in rows[2:]} <= set(ZOO)


def test_what_runs_and_is_near_is_counted() -> None:
    far = {**FIGURES, "times_predicted": 1.21, "numpy": [1, 0.005]}
    text = table.table_text({"vit": [FIGURES, FIGURES], "ssd": [{"refused": ""}] * 2, "bert": [far, far]})
    assert text.splitlines()[2:] == [
        "| ssd | detectors | refused | | | | | | | |",
        "| bert | language | 7 | 2 (2 %) | 1 (0 %) | 0.25 | 0.25 | 1.50 | 1.21 | 1.25 |",
        "| vit | vision_transformers | 7 | 2 (2 %) | 0 | 0.25 | 0.25 | 1.50 | 1.20 | 1.25 |",
        "",
        "Of 3 architectures 2 run; in 1 the kernels of ONNX Runtime and NumPy take under 2 % of the time,",
        "and in 1 a run is within 20 % of the prediction.",
    ]


def test_rows_with_the_same_options_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure_twice(name: str, options: list[str]) -> list[dict[str, Any]]:
        measured.append(name)
        return [FIGURES, FIGURES]

    monkeypatch.setattr(table, "measure_twice", measure_twice)
    file = tmp_path / "build" / "rows.json"
    for names, options in ((["vit"], ["--a"]), (["vit", "bert"], ["--a"]), (["bert"], ["--b"])):
        assert list(table.measure_rows(names, options, file)) == names
    assert measured == ["vit", "bert", "bert"]


def test_each_architecture_has_a_real_size_of_known_axes() -> None:
    assert list(SCALES["real"]) == list(ZOO)
    for name, architecture in SCALES["real"].items():
        axes = {dim for sample in architecture.samples for dim in sample.dims if isinstance(dim, str)}
        assert architecture.sizes.keys() <= axes, name


def test_every_second_architecture_is_compared() -> None:
    assert tuple(ZOO)[1::2] == ZOO_NETWORKS
