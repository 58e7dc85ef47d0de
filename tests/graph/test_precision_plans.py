"""Plans in narrow types from the request to the run: errors beside f64 and torch, reports, tolerances, other dims."""

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.errors import InvalidArguments
from inlay.graph.costs import analytic
from inlay.graph.costs.estimates import KernelEstimate
from inlay.graph.op_graph import Array
from inlay.graph.plan import Plan, plan_graph
from inlay.graph.precision_search import is_narrow
from inlay.primitives.engine import Operation, get_engine
from tests.support.lowered_models import normal
from tests.support.narrow_graphs import NarrowPays, types_chosen
from tests.support.networks import exported, seeded, torch_or_skip
from tests.support.refusals import raises_exactly
from tests.support.written_models import written_model

DIMS = (2, 16, 8, 8)
CONSTANTS: dict[str, Any] = {
    "w0": normal(1, (16, 16, 3, 3)) / 12,
    "w1": normal(2, (16, 16, 1, 1)) / 4,
    "up": np.full(1, 1000, np.float32),
}
TEXT = "a = Conv <pads = [1, 1, 1, 1]> (x, w0) b = Relu(a) c = Add(b, up) d = Sub(c, up) y = Conv(d, w1)"


@pytest.fixture(autouse=True)
def typed() -> Iterator[None]:
    with types_chosen():
        yield


def model_bytes(dims: tuple[int | str, ...] = DIMS) -> bytes:
    content: bytes = written_model(TEXT, dims, "y c", **CONSTANTS).SerializeToString()
    return content


def plan(precision: Any, isa: str = "AVX512_CORE_BF16", **options: Any) -> Plan:
    costs = NarrowPays(analytic(isa, 1))
    return inlay.plan(inlay.load(model_bytes()), costs=costs, engine="reference", precision=precision, **options)


def exact(x: Array) -> dict[str, Array]:
    """By NumPy in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    b = np.maximum(np.einsum("nchwij,ocij->nohw", windows, CONSTANTS["w0"].astype(float)), 0)
    return {"y": np.einsum("nchw,oc->nohw", b, CONSTANTS["w1"][:, :, 0, 0].astype(float)), "c": b + 1000}


def error_of(found: Array, wanted: Array) -> float:
    return float(np.abs(found.astype(float) - wanted).max() / np.abs(wanted).max())


def narrow_ops(found: Plan) -> set[str]:
    return {name for step in found.program.steps if is_narrow(step) for name in step.ops}


X = normal(7, DIMS)


def test_a_plan_in_bf16_computes_in_bf16() -> None:
    found = plan("bf16")
    assert found.precision == "bf16"
    assert len(narrow_ops(found)) == 5
    results = found.compile().run({"x": X})
    assert {array.dtype for array in results.values()} == {np.dtype(np.float32)}
    assert 1e-3 < error_of(results["y"], exact(X)["y"]) < 1.0
    assert error_of(results["c"], exact(X)["c"]) < 2.0**-8


def test_a_plan_in_f16_computes_in_f16_where_the_processor_does() -> None:
    """The reference engine computes it; other processors store f32."""
    assert narrow_ops(plan("f16")) == set()
    found = plan("f16", "AVX512_CORE_FP16")
    assert len(narrow_ops(found)) == 5
    results = found.compile().run({"x": X})
    report = found.precision_report({"x": X})
    assert error_of(results["c"], exact(X)["c"]) < 2.0**-11
    assert 1e-4 < error_of(results["y"], exact(X)["y"]) < 0.5
    assert {layer.data_type for layer in report.layers} == {"f16"}


def test_a_plan_in_f32_has_no_layer_in_bf16() -> None:
    for precision in ("f32", "model"):
        found = plan(precision)
        assert narrow_ops(found) == set()
        assert error_of(found.compile().run({"x": X})["y"], exact(X)["y"]) < 1e-3
        assert found.precision_report().layers == ()


@pytest.mark.parametrize("tolerance", [0.9, 0.02, 1e-3, 1e-5])
def test_the_tolerance_holds_on_the_samples(tolerance: float) -> None:
    found = plan("auto", tolerance=tolerance, samples={"x": X})
    wanted = plan("f32").compile().run({"x": X})
    results = found.compile().run({"x": X})
    for name, array in results.items():
        assert error_of(array, wanted[name].astype(float)) <= tolerance
    assert len(narrow_ops(found)) == {0.9: 5, 1e-5: 0}.get(tolerance, len(narrow_ops(found)))


def test_layers_with_small_errors_stay_narrow_under_a_tolerance() -> None:
    narrow = narrow_ops(plan("auto", tolerance=0.02, samples={"x": X}))
    assert narrow
    assert len(narrow) < 5


def test_auto_has_a_tolerance_of_a_hundredth() -> None:
    found = plan("auto")
    report = found.precision_report()
    assert report.tolerance == 0.01
    assert max(report.outputs.values()) <= 0.01


def test_the_report_has_the_errors_of_a_run() -> None:
    found = plan("bf16")
    report = found.precision_report({"x": X})
    wanted = plan("f32").compile().run({"x": X})
    results = found.compile().run({"x": X})
    for name, error in report.outputs.items():
        assert error == pytest.approx(error_of(results[name], wanted[name].astype(float)), rel=1e-2, abs=1e-6)
    assert all(layer.kept and layer.data_type == "bf16" for layer in report.layers)
    assert {layer.op for layer in report.layers} <= narrow_ops(found)
    assert 0 < max(layer.error for layer in report.layers) < 1
    lines = str(report).splitlines()
    assert lines[0].split() == ["layer", "type", "error", "ms", "saved", "used"]
    assert len(lines) == 1 + len(report.layers) + 1 + 2
    assert lines[-3] == f"{len(report.layers)} of {len(report.layers)} layers in a narrow type"
    assert json.loads(json.dumps(report.as_json()))["outputs"] == dict(report.outputs)


def test_a_plan_without_costs_has_no_report() -> None:
    """An unpickled one, one of a graph alone, and one that was read from a file, which is in a session."""
    found = plan("bf16")
    text = (
        "the plan has no costs for the times of layers, since it was read from a file, unpickled, or made of a graph "
        "alone: plan the network again with inlay.plan"
    )
    for lonely in (pickle.loads(pickle.dumps(found)), plan_graph(found.graph, analytic("AVX512_CORE_BF16", 1))):
        with raises_exactly(InvalidArguments, text):
            lonely.precision_report({"x": X})
        assert error_of(lonely.compile("reference").run({"x": X})["c"], exact(X)["c"]) < 2.0**-8


def test_samples_that_do_not_fit_are_refused() -> None:
    text = "the network has no input 'z': it takes x (2, 16, 8, 8) float32"
    with raises_exactly(InvalidArguments, text):
        plan("auto", samples={"z": X})
    text = (
        "input x has dims (1, 16, 8, 8), the session is for (2, 16, 8, 8): give such an array, or plan the network for "
        "these dims"
    )
    with raises_exactly(InvalidArguments, text):
        plan("auto", samples={"x": X[:1]})
    with raises_exactly(InvalidArguments, text):
        plan("bf16").precision_report({"x": X[:1]})


class NarrowPaysBeyond(NarrowPays):
    """Narrow kernels are slow for images of few elements."""

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        found = super().kernel(operation)
        types = {desc.data_type.name for desc in operation.descs.values() if desc.data_type is not None}
        is_slow = operation.descs["dst"].dims[0] < DIMS[0] and "bf16" in types
        return replace(found, ms=1e6 * found.ms) if found is not None and is_slow else found


@pytest.mark.parametrize("measure", [True, False])
@pytest.mark.parametrize("first", [1, 2])
def test_another_shape_has_only_the_narrow_layers_of_the_first(first: int, measure: bool) -> None:
    """Only their errors are known to be within the limit, whatever narrow layers save in a larger batch."""
    costs = NarrowPaysBeyond(analytic("AVX512_CORE_BF16", 1))
    session = inlay.compile(
        inlay.load(model_bytes(("n", *DIMS[1:]))), costs=costs, engine="reference", precision="auto", tolerance=0.02
    )
    batches = (first, 3 * first, 500)
    for batch in batches:
        session.prepare({"x": (batch, *DIMS[1:])}, measure=measure)
    plans = session.plans
    assert [planned.precision for planned in plans] == ["auto"] * 3
    narrow = [{name for step in planned.program.steps if is_narrow(step) for name in step.ops} for planned in plans]
    assert bool(narrow[0]) == (first == 2)
    assert all(names <= narrow[0] for names in narrow)
    x = normal(8, (3 * first, *DIMS[1:]))
    assert error_of(session.run({"x": x})["y"], exact(x)["y"]) <= 0.03
    session.close()


def test_a_plan_by_other_costs_has_only_the_narrow_layers_of_the_first() -> None:
    found = plan("auto", tolerance=0.02)
    assert found.planner is not None
    free = NarrowPays(NarrowPays(analytic("AVX512_CORE_BF16", 1)))
    again = found.planner.plan_again(found.graph, free)
    names = {name for step in again.program.steps if is_narrow(step) for name in step.ops}
    assert names == narrow_ops(found) != narrow_ops(plan("bf16"))
    assert again.graph == found.graph


# torch


def torch_errors(build: Any, dims: tuple[int, ...], data_type: str) -> tuple[bytes, Array, Array, float]:
    """The exported module, an input, its result in f64, and the error of the module in a narrow type."""
    torch = torch_or_skip()
    module = seeded(build).eval()
    x = torch.randn(*dims)
    content = exported(module, (x,)).SerializeToString()
    with torch.no_grad():
        wanted = module.double()(x.double()).numpy()
        dtype = getattr(torch, {"bf16": "bfloat16", "f16": "float16"}[data_type])
        narrow = module.to(dtype)(x.to(dtype)).double().numpy()
    return content, x.numpy(), wanted, error_of(narrow, wanted)


@pytest.mark.heavy
@pytest.mark.parametrize(("data_type", "isa"), [("bf16", "AVX512_CORE_BF16"), ("f16", "AVX512_CORE_FP16")])
@pytest.mark.parametrize(
    ("name", "dims"),
    [("resnet", (2, 3, 32, 32)), ("UNet", (1, 3, 32, 32)), ("encoder", (2, 16, 32)), ("Attention", (2, 16, 32))],
)
def test_errors_are_at_most_twice_those_of_torch(name: str, dims: tuple[int, ...], data_type: Any, isa: str) -> None:
    """In f16 by the reference engine, since oneDNN has kernels on few processors."""
    torch_or_skip()
    costs: Any
    from tests.support import torch_modules

    content, x, wanted, error = torch_errors(getattr(torch_modules, name), dims, data_type)
    engine, costs = get_engine().name.split()[0], "probed"
    if data_type == "f16":
        engine, costs = "reference", NarrowPays(analytic(isa, 1))
    with types_chosen(isa):
        found = inlay.plan(inlay.load(content), costs=costs, engine=engine, precision=data_type)
        assert narrow_ops(found)
        (result,) = found.compile().run({found.graph.inputs[0]: x}).values()
    assert 1e-6 < error_of(result, wanted) <= 2 * error
