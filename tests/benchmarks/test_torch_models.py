"""The benchmark of PyTorch models: results of a folder, ratios, aims, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import torch_models
from benchmarks.__main__ import app
from benchmarks.record import Unreadable
from benchmarks.torch_models import MODELS, TorchResult, absent_packages, load_torch_result, torch_aims
from tests.support.refusals import raises_exactly

RUN = {
    "seconds": {"Inlay": [1.0, 2.0], "eager": [2.0, 4.0], "inductor": [0.5, 1.0]},
    "errors": {"Inlay": 1e-6},
    "eager_parts": 0,
    "others": 0.2,
    "origin": "zoo, in place of timm",
}
PIECES: dict[str, Any] = {
    "first Inlay": {"seconds": 2.0},
    "first inductor": {"seconds": 6.0},
    "run": RUN,
    "memory": {"settled": 100, "last": 110},
}


def test_there_are_twelve_models_of_three_packages() -> None:
    assert len(MODELS) == 12
    assert {model.package for model in MODELS.values()} == {"torchvision", "timm", "transformers"}


def test_ratios_and_aims() -> None:
    result = TorchResult("swin_tiny", 1, PIECES)
    ratio = result.ratio("eager")
    assert ratio is not None
    assert (ratio.median, result.first_ratio, result.growth) == (2.0, 3.0, 1.1)
    aims = {aim.name: (aim.found, aim.is_met) for aim in torch_aims([result])}
    assert aims["all: mean beside eager"] == ("2.000", True)
    assert aims["batch 1: mean beside inductor"] == ("0.500", False)
    assert aims["least x of inductor's first call: swin_tiny b1"] == ("3.00", True)
    assert aims["memory after 1000 calls: swin_tiny b1"] == ("1.100", False)
    assert absent_packages([result]) == [
        "swin_tiny b1: zoo, in place of timm, which is not installed",
        "swin_tiny b1: others took 20 %: not to be quoted",
    ]


def test_a_folder_is_shown_and_missed_aims_are_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "swin_tiny-b1.json").write_text(json.dumps(PIECES))
    done = CliRunner().invoke(app, ["torch", str(tmp_path), "--show", "--only", "swin_tiny*"])
    assert done.exit_code == 1
    assert "swin_tiny b1" in done.output


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bert-b1.json"
    assert load_torch_result(tmp_path, "bert", 1).pieces == {}
    file.write_text('{"walk": 1}')
    with raises_exactly(Unreadable, f"{file} holds no result of a model; remove it, and measure again"):
        load_torch_result(tmp_path, "bert", 1)
    file.write_text("{")
    with pytest.raises(Unreadable, match="holds no result: "):
        load_torch_result(tmp_path, "bert", 1)


@pytest.mark.heavy
def test_memory_of_a_small_model_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(torch_models, "SIZES", 3)
    monkeypatch.setattr(torch_models, "CALLS", 12)
    monkeypatch.setattr(torch_models, "SETTLED", 6)
    with torch.inference_mode():
        found = torch_models._measure_memory(torch.nn.Linear(8, 8).eval(), lambda batch: (torch.randn(batch, 8),))
    assert set(found) == {"settled", "last"}
    assert found["last"] >= 0
