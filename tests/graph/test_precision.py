"""Requests of precision, and the types that the file of a model declares."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import inlay
from inlay.errors import InvalidArguments
from inlay.graph.network import Network, Node, Tensor
from inlay.graph.passes.precision import widen_narrow_floats
from inlay.graph.planner.types import list_type_combinations
from tests.support.graph_programs import drawn, graph_of, relu
from tests.support.refusals import raises_exactly

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("precision", ["model", "f32"])
def test_a_plan_of_f32_stores_f32(precision: Any) -> None:
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 8)), "x", "y")
    found = inlay.plan(graph, costs="analytic", precision=precision)
    assert found.precision == precision
    assert found.graph.storage_types == {}
    x = drawn(2, 8)
    np.testing.assert_array_equal(found.compile("reference").run({"x": x})["y"], np.maximum(x, 0))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"precision": "half"}, "precision is 'half': give one of f32, bf16, f16, auto, model"),
        ({"precision": 16}, "precision is 16: give one of f32, bf16, f16, auto, model"),
        (
            {"precision": "auto", "tolerance": 0},
            "tolerance is 0: give a positive number, such as 0.01",
        ),
        ({"precision": "auto", "tolerance": True}, "tolerance is True: give a positive number, such as 0.01"),
        (
            {"tolerance": 0.1},
            "tolerance is 0.1, and precision model chooses no types by their error: leave it out, or give "
            "precision='auto'",
        ),
    ],
)
@pytest.mark.parametrize("call", [inlay.plan, inlay.compile])
def test_requests_that_are_not_valid_are_refused(call: Any, options: dict[str, Any], error: str) -> None:
    x, y = (Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xy")
    network = Network("tiny", 13, ("x",), ("y",), (Node("n", "Relu", ("x",), ("y",)),), {"x": x, "y": y})
    with raises_exactly(InvalidArguments, error):
        call(network, costs="analytic", **options)


def test_the_types_of_the_model_are_kept_beside_the_widened_network() -> None:
    pytest.importorskip("onnx")
    types = {"x": BF16, "w": BF16, "h": BF16, "y": BF16, "n": np.dtype(np.float32), "m": np.dtype(np.float32)}
    tensors = {name: Tensor(name, (2, 2), dtype) for name, dtype in types.items()}
    nodes = (
        Node("a", "MatMul", ("x", "w"), ("h",)),
        Node("b", "Relu", ("h",), ("y",)),
        Node("c", "Relu", ("n",), ("m",)),
    )
    constants = {"w": np.ones((2, 2), BF16)}
    found = widen_narrow_floats(Network("narrow", 17, ("x", "n"), ("y", "m"), nodes, tensors, constants))
    assert found.declared_types == dict.fromkeys(("w", "h", "x:f32", "y:f32"), "bf16")
    assert {found.tensors[name].dtype.name for name in found.declared_types} == {"float32"}


def test_the_types_of_an_operation_are_those_of_its_tensors() -> None:
    op = relu("relu", "x", "y")
    graph = graph_of([op], dict.fromkeys("xy", (2, 8)), "x", "y")
    assert list_type_combinations(op, graph) == ({"src": "f32", "dst": "f32"},)
