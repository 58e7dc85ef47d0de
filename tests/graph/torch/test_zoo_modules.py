"""Architectures of the zoo by `inlay.from_torch`, with open axes where they have some, and the example script."""

import runpy
from typing import Any

import pytest

import inlay
from inlay.graph.torch.torch_report import INLAY
from tests.support.paths import ROOT

pytestmark = pytest.mark.heavy

SOME = ("mobilenet_v3", "lstm_tagger", "bert", "swin", "t5")
"""Architectures of four families."""


def run_architecture(name: str) -> None:
    """Require that a module agrees with eager PyTorch at the sizes of the example and at others, all of it in Inlay."""
    from tests.support.torch_cases import assert_agrees, torch
    from tests.zoo.architectures import ZOO, draw_inputs
    from tests.zoo.exporting import build_lively
    from tests.zoo.running import OTHER_SIZES

    architecture = ZOO[name]
    example = draw_inputs(architecture, {"batch": 2})
    module = build_lively(architecture, example)
    axes = tuple(
        {axis: dim for axis, dim in enumerate(sample.dims) if dim in architecture.open_axes}
        for sample in architecture.samples
    )
    shapes: Any = {"dynamic_shapes": axes} if architecture.open_axes else {}
    tensors = tuple(map(torch.from_numpy, example.values()))
    fast = inlay.from_torch(module, tensors, costs="probed", **shapes)
    sizes = [{"batch": 2}, *([dict(OTHER_SIZES)] if shapes else [])]
    with torch.inference_mode():
        for one in sizes:
            inputs = tuple(map(torch.from_numpy, draw_inputs(architecture, one).values()))
            assert_agrees(fast(*inputs), module(*inputs), 1e-3)
    assert {part.runs_in for part in fast.report().parts} == {INLAY}


@pytest.mark.parametrize("name", SOME)
def test_an_architecture_agrees_with_eager_pytorch(name: str) -> None:
    run_architecture(name)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed").compiler.reset()
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / "pytorch.py"), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.endswith("All results are equal.\n")
