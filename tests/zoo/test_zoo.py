"""Forty architectures, exported when tests run, load, are planned, run, and agree with ONNX Runtime."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import onnx
import pytest
from rich.cells import cell_len

import inlay
from inlay.errors import InlayError
from tests.support.network_runs import run_by_onnxruntime
from tests.support.planner_graphs import require_useful_reorders
from tests.zoo.architectures import ZOO, draw_inputs
from tests.zoo.exporting import export
from tests.zoo.running import CASES, ZooCase, case_sizes, run_case

Record: TypeAlias = Callable[[str, object], None]
LARGEST_ERROR = 1e-3
"""The greatest accepted difference from ONNX Runtime, as a part of the greatest element of an output."""

KNOWN: Mapping[str, str] = MappingProxyType({})
"""Architectures that Inlay refuses, with the text of the error; a test fails as soon as one of them runs."""

SOME = (
    ZooCase("mobilenet_v3", "dynamo", False),
    ZooCase("diffusion_unet", "script", False),
    ZooCase("lstm_tagger", "script", False),
    ZooCase("qwen3", "dynamo", True),
    ZooCase("swin", "script", True),
)
"""Cases of five families that `make test-all` runs; `make test-long` runs all."""


def require_agreement(case: ZooCase, record_property: Record) -> None:
    """Run a case, or require that its error is the known one; record the steps and NumPy's share."""
    if case.name in KNOWN:
        with pytest.raises(InlayError) as raised:
            run_case(case)
        assert str(raised.value) == KNOWN[case.name]
        return
    run = run_case(case)
    record_property("steps", run.numpy.steps)
    record_property("numpy_steps", run.numpy.count)
    record_property("numpy_share", run.numpy.share)
    assert run.error <= LARGEST_ERROR
    require_useful_reorders(run.plan)
    assert max(map(cell_len, run.plan.explain(every_step=True).split("\n"))) <= 80


@pytest.mark.heavy
@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_architecture_runs_and_agrees(case: ZooCase, record_property: Record) -> None:
    require_agreement(case, record_property)


@pytest.mark.heavy
@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in CASES if ZOO[case.name].has_suppression], ids=str)
def test_detectors_agree_in_all_boxes_and_scores(case: ZooCase) -> None:
    assert run_case(case, suppression=False).error <= LARGEST_ERROR


@pytest.mark.heavy
@pytest.mark.parametrize("case", SOME, ids=str)
def test_some_architectures_run_and_agree(case: ZooCase, record_property: Record) -> None:
    require_agreement(case, record_property)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["bert", "swin", "resnet18"])
def test_an_empty_batch_has_the_dims_that_onnx_runtime_gives(name: str) -> None:
    data = export(name, "script", True)
    sizes = case_sizes(ZooCase(name, "script", True))
    inputs = {tensor: array[:0] for tensor, array in draw_inputs(ZOO[name], sizes).items()}
    found = inlay.compile(inlay.load(data), costs="probed").run(inputs)
    expected = run_by_onnxruntime(onnx.load_from_string(data), inputs)
    assert {name: array.shape for name, array in found.items()} == {n: array.shape for n, array in expected.items()}


@pytest.mark.heavy
def test_an_export_is_the_same_each_time() -> None:
    case = ZooCase("dncnn", "script", False)
    assert export(*case) == export(*case)


@pytest.mark.heavy
def test_open_axes_are_open_in_the_file() -> None:
    model = onnx.load_from_string(export("bert", "script", True))
    dims = [[dim.dim_param for dim in value.type.tensor_type.shape.dim] for value in model.graph.input]
    assert dims == [["batch", "length"]] * 2


@pytest.mark.heavy
def test_the_zoo_has_forty_architectures_and_each_family() -> None:
    assert len(ZOO) >= 40
    counts = {family: sum(one.family == family for one in ZOO.values()) for family in {a.family for a in ZOO.values()}}
    assert counts["cnns"] >= 14
    assert counts["detectors"] >= 5
    assert counts["recurrent"] >= 2
    assert KNOWN.keys() <= ZOO.keys()
