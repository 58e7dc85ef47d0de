"""`compute_node`: every form of attribute, omitted inputs and outputs, and errors for unsupported nodes."""

import sys

import numpy as np
import pytest

from inlay.errors import MissingExtra, Unimplemented
from inlay.graph.network import Node
from inlay.graph.numpy_operators.evaluation import build_computation, compute_node
from tests.support.refusals import raises_exactly

pytest.importorskip("onnx")

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("node", "opset", "expected"),
    [
        (Node("n", "ReduceSum", ("x",), ("y",), {"axes": (1,), "keepdims": 0}), 11, X.sum(1)),
        (Node("n", "ReduceSum", ("x",), ("y",), {"axes": (), "keepdims": 0}), 11, X.sum()),
        (Node("n", "LeakyRelu", ("x",), ("y",), {"alpha": 0.5}), 16, X),
        (Node("n", "Gelu", ("x",), ("y",), {"approximate": "tanh"}), 20, None),
        (Node("n", "Clip", ("x", "", "high"), ("y",)), 13, np.minimum(X, 2)),
        (Node("n", "Softmax", ("x",), ("y",)), 11, None),
    ],
    ids=lambda value: value.operator if isinstance(value, Node) else "",
)
def test_a_node_gives_what_its_operator_says(node: Node, opset: int, expected: np.ndarray | None) -> None:
    found = compute_node(node, opset, {"x": X, "high": np.array(2, np.float32)})
    assert list(found) == ["y"]
    if expected is None:
        assert found["y"].shape == X.shape
    else:
        np.testing.assert_array_equal(found["y"], expected)


def test_arrays_are_attributes() -> None:
    node = Node("n", "ConstantOfShape", ("dims",), ("y",), {"value": np.array([3], np.int32)})
    found = compute_node(node, 13, {"dims": np.array([2, 1])})["y"]
    assert found.dtype == np.int32
    assert found.tolist() == [[3], [3]]


def test_outputs_that_are_left_out_are_not_answered() -> None:
    node = Node("n", "LayerNormalization", ("x", "scale"), ("y", "", "inverse"))
    found = compute_node(node, 17, {"x": X, "scale": np.ones(3, np.float32)})
    assert sorted(found) == ["inverse", "y"]


def test_a_computation_runs_again_with_other_arrays() -> None:
    run = build_computation(Node("n", "Where", ("c", "x", "x"), ("y",)), 16, {"c": np.dtype(bool), "x": X.dtype})
    condition = X > 2
    assert [run({"c": condition, "x": array})["y"][0, 0] for array in (X, X + 1)] == [0.0, 1.0]


@pytest.mark.parametrize(("domain", "said"), [("", "Whirl"), ("com.example", "Whirl of com.example")])
def test_an_operator_that_nobody_computes_is_named(domain: str, said: str) -> None:
    with raises_exactly(
        Unimplemented,
        f"node 'twist': {said}, opset 17, is computed by no primitive and by no function of Inlay: replace it by "
        "operators of ONNX, or leave it out of the file",
    ):
        compute_node(Node("twist", "Whirl", ("x",), ("y",), domain=domain), 17, {"x": X})


def test_without_onnx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx.reference", None)
    with raises_exactly(MissingExtra, "onnx is not installed: pip install 'inlay[onnx]'"):
        compute_node(Node("n", "Relu", ("x",), ("y",)), 17, {"x": X})
