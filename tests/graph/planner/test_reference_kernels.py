"""Plans contain no reference kernel of oneDNN where another form of the node has a faster one, and results are right.

Which kernels exist depends on the processor and the release. So each operator has its easiest form: row-major, few
axes, channels in full blocks. Where the plan of that form has a reference kernel too, the engine of this processor has
no other, and the case is skipped.
"""

from typing import Any

import numpy as np
import onnx
import pytest

import inlay
from inlay.graph.plan import Plan
from tests.support import lowered_models as lm

IMAGE = (2, 32, 14, 12)
WAYS = ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
REDUCED = ((0,), (1,), (0, 2), (1, 2), (1, 3), (0, 3), (0, 1, 2))
SLOPES = ((1,), (32, 1, 1), (12,), (32, 14, 12), (14, 1), (2, 32, 1, 12))

CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    *(("Softmax", (4, 40, 60), {"axis": axis}) for axis in range(3)),
    *(("Softmax", IMAGE, {"axis": axis}) for axis in range(4)),
    ("LogSoftmax", (1, 3, 30, 20, 10), {"axis": 2}),
    ("Softmax", (2, 3, 4, 5, 6, 7), {"axis": 3}),
    ("Softmax", (64, 1, 32), {"axis": 1}),
    *(("LRN", dims, {"size": 5}) for dims in ((4, 32, 50), (1, 16, 4, 4, 4), (2, 16, 4, 8))),
    *((f"Reduce{way}", IMAGE, {"axes": axes, "keepdims": len(axes) % 2}) for way in WAYS for axes in REDUCED),
    ("ReduceMean", (1, 8, 8, 7, 7, 96), {"axes": (1, 3)}),
    ("ReduceMax", (256, 384), {"axes": (0,)}),
    *(("PRelu", IMAGE, {"slope": slope, "constants": names}) for slope in SLOPES for names in ((), ("slope",))),
    ("PRelu", (128,), {"slope": (1,)}),
    ("PRelu", (2, 2, 3, 4, 5, 6), {"slope": (4, 1, 1)}),
]

EASIEST: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "Softmax": ((64, 64), {"axis": 1}),
    "LogSoftmax": ((64, 64), {"axis": 1}),
    "LRN": ((2, 16, 8, 8), {"size": 5}),
    "PRelu": ((2, 16, 8, 8), {"slope": (16, 1, 1)}),
    **dict.fromkeys((f"Reduce{way}" for way in WAYS), ((64, 64), {"axes": (1,)})),
}
"""Dims and attributes of each operator's easiest form."""


def make_node(
    operator: str, dims: tuple[int, ...], attributes: dict[str, Any]
) -> tuple[onnx.ModelProto, dict[str, lm.Array]]:
    """Return a model of one node, and its inputs; the attribute `slope` is the dims of a second input."""
    rest = dict(attributes)
    arrays = {"x": lm.normal(1, dims)}
    if "slope" in rest:
        arrays["slope"] = lm.normal(2, rest.pop("slope"))
    model, given = lm.model_of(operator, arrays, opset=13 if operator.endswith("Softmax") else 11, **rest)
    return onnx.shape_inference.infer_shapes(model), given


def plan_node(model: onnx.ModelProto) -> Plan:
    """Return the plan of a model at costs by the implementations of engines."""
    return inlay.plan(inlay.load(model.SerializeToString()), costs="probed", fallback=False)


def reference_kernels(plan: Plan) -> list[str]:
    """Return the steps that reference kernels or NumPy compute."""
    return [f"{step.kind} {step.impl}" for step in plan.program.steps if str(step.impl).startswith(("ref", "numpy"))]


@pytest.mark.parametrize(("operator", "dims", "attributes"), CASES)
def test_a_node_has_no_reference_kernel(operator: str, dims: tuple[int, ...], attributes: dict[str, Any]) -> None:
    plan = plan_node(make_node(operator, dims, attributes)[0])
    if reference_kernels(plan_node(make_node(operator, *EASIEST[operator])[0])):
        pytest.skip("the engine of this processor has a reference kernel only, even for the easiest form")
    assert reference_kernels(plan) == []


@pytest.mark.parametrize(("operator", "dims", "attributes"), CASES)
def test_its_results_are_those_of_onnx(operator: str, dims: tuple[int, ...], attributes: dict[str, Any]) -> None:
    model, given = make_node(operator, dims, attributes)
    expected = lrn(given["x"], 5) if operator == "LRN" else lm.run_reference(model, given)["y0"]
    found = plan_node(model).compile().run(given)["y0"]
    np.testing.assert_allclose(found, expected, rtol=5e-5, atol=5e-5)


def lrn(x: lm.Array, size: int) -> lm.Array:
    """Return LRN with ONNX's default parameters; onnx.reference leaves out the last channel of each window."""
    half = size // 2
    windows = [(x[:, max(0, at - half) : at + half + 1] ** 2).sum(axis=1) for at in range(x.shape[1])]
    return x / (1 + 1e-4 / size * np.stack(windows, 1)) ** 0.75
