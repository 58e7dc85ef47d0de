"""Nodes that NumPy computes, through `load`, `plan` and `run`: results that no second source is asked for, and bounds.

`test_numpy_operator_peers.py` compares all operators with ONNX Runtime; errors are in `onnx/test_mistakes.py`.
"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from inlay.errors import InvalidArguments, OutOfMemory, Unimplemented
from inlay.graph.network import Node
from inlay.graph.numpy_operators.evaluation import build_computation, compute_node
from inlay.graph.onnx.reading import load, load_bound
from inlay.graph.op_graph import Array
from inlay.graph.plan import Plan, plan
from inlay.graph.runtime import arena
from tests.support.lowered_models import normal
from tests.support.refusals import raises_exactly
from tests.support.written_models import written_model


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def planned(text: str, dims: Any, outputs: str = "y", **rest: Any) -> Plan:
    return plan(load(written_model(text, dims, outputs, **rest).SerializeToString()), costs="probed")


IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
ROWS = np.array([[1, 2, 3]])


@pytest.mark.parametrize(
    ("text", "x", "rest", "expected"),
    [
        ("Softmax(x)", np.zeros((1, 2, 2)), {"opset": 11}, np.full((1, 2, 2), 0.25)),
        (
            "LRN <size = 2, alpha = 2.0, beta = 1.0, bias = 0.0> (x)",
            normal(0, (1, 4, 1, 1)) * 0 + 1,
            {},
            [0.5] * 3 + [1],
        ),
        ("MaxPool <kernel_shape = [999, 999], pads = [997, 997, 0, 0]> (x)", IMAGE, {}, IMAGE[..., 1:, 1:]),
        ("Slice(x, s, e, a, t)", f32(1, 2, 3), {"s": i64(-7), "e": i64(-9), "a": i64(0), "t": i64(-1)}, [1]),
        ("ReduceSumSquare <axes = [1]> (x)", ROWS, {}, [[14]]),
        ("ReduceLogSumExp <axes = [1]> (x)", ROWS, {}, [[3]]),
        ("Pow(x, e)", np.array([2, 1, -1]), {"e": np.array(-1)}, [0, 1, -1]),
        (
            'RNN <hidden_size = 2, activations = ["Softsign"]> (x, w, r)',
            f32([[3, -1]]),
            {"w": f32([[1, 0], [0, 1]]), "r": normal(0, (1, 2, 2))},
            [0.75, -0.5],
        ),
        ("Unsqueeze <axes = [2, 0]> (x)", f32(1, 2), {"opset": 11}, [[[1], [2]]]),
        ("Slice(x, s, s, a)", normal(0, (4, 4)), {"s": i64(9), "a": i64(1)}, np.zeros((4, 0))),
    ],
)
def test_a_node_gives_this_result(text: str, x: Array, rest: dict[str, Any], expected: Any) -> None:
    kind = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}[str(x.dtype)]
    found = planned(f"y = {text}", x.shape, kind=kind, **rest).compile().run({"x": x})["y"]
    np.testing.assert_allclose(found, np.asarray(expected).reshape(found.shape), rtol=1e-5)


def test_group_normalization_of_opset_18_has_a_scale_for_each_group() -> None:
    torch = pytest.importorskip("torch")
    x, scale, shift = normal(0, (2, 6, 3)), f32(2, 3, 4), f32(-1, 0, 1)
    plain = torch.nn.functional.group_norm(torch.from_numpy(x), 3).numpy().reshape(2, 3, -1)
    node = Node("n", "GroupNormalization", ("x", "a", "b"), ("y",), {"num_groups": 3})
    got = compute_node(node, 18, {"x": x, "a": scale, "b": shift})["y"]
    np.testing.assert_allclose(got, (plain * scale[:, None] + shift[:, None]).reshape(2, 6, 3), rtol=1e-4, atol=1e-5)


def test_an_array_is_an_attribute() -> None:
    node = Node("n", "ConstantOfShape", ("dims",), ("y",), {"value": np.array([3], np.int32)})
    found = compute_node(node, 13, {"dims": i64(2, 1)})["y"]
    assert found.dtype == np.int32
    assert found.tolist() == [[3], [3]]


def test_outputs_that_are_left_out_are_not_returned() -> None:
    node = Node("n", "LayerNormalization", ("x", "scale"), ("y", "", "inverse"))
    assert sorted(compute_node(node, 17, {"x": IMAGE, "scale": f32(1, 1, 1, 1)})) == ["inverse", "y"]


def test_a_computation_runs_again_with_other_arrays() -> None:
    run = build_computation(Node("n", "Where", ("c", "x", "x"), ("y",)), 16)
    assert [run({"c": IMAGE > 2, "x": array}, {})["y"].flat[0] for array in (IMAGE, IMAGE + 1)] == [0.0, 1.0]


def results_in_place(node: Node, arrays: dict[str, Array], dtype: Any = None) -> tuple[Array, Array]:
    """Return the result of a node as a new array, and as written to an array with other elements and strides."""
    expected = compute_node(node, 18, arrays)["y"]
    memory = np.full((2, *expected.shape[::-1]), 1, dtype or expected.dtype)[1].T
    found = build_computation(node, 18)(arrays, {"y": memory})["y"]
    assert (found is memory) == (dtype is None)
    return found, expected


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_results_are_written_to_the_memory_that_fits(dtype: Any) -> None:
    x, indices = np.arange(24).reshape(4, 6).astype(dtype), i64(-1, 2, 0)
    other = (x[::-1] == 0).astype(dtype)
    arrays = {
        "x": x,
        "k": indices,
        "o": other,
        "c": other == 0,
        "r": x[:3],
        "p": i64(1, 0, 2, 0),
        "t": indices[:, None],
    }
    for operator, inputs, attributes in (
        ("Gather", ("x", "k"), {"axis": 1}),
        ("ScatterND", ("x", "t", "r"), {}),
        ("Where", ("c", "x", "o"), {}),
        ("Equal", ("x", "o"), {}),
        ("Or", ("c", "c"), {}),
        ("Mul", ("x", "o"), {}),
        ("Pad", ("x", "p"), {}),
        ("Cast", ("x",), {"to": TensorProto.DOUBLE}),
    ):
        np.testing.assert_array_equal(*results_in_place(Node("n", operator, inputs, ("y",), attributes), arrays))


def test_results_are_not_written_to_memory_of_another_type() -> None:
    for operator in ("Where", "Mul"):
        inputs = ("c", "x", "x")[-2 if operator == "Mul" else -3 :]
        node = Node("n", operator, inputs, ("y",))
        np.testing.assert_array_equal(*results_in_place(node, {"c": IMAGE > 2, "x": IMAGE}, np.float64))


def test_an_index_of_a_run_names_the_tensor_and_the_axis() -> None:
    text = "[embedding] y = Gather(table, x)"
    session = planned(text, (2,), kind=TensorProto.INT64, table=normal(0, (4, 3))).compile()
    with raises_exactly(
        InvalidArguments,
        "node 'embedding': Gather: 'x' holds index 4, and axis 0 of 'table' has 4 elements: give indices from -4 to 3",
    ):
        session.run({"x": i64(1, 4)})
    assert session.run({"x": i64(-1, 3)})["y"].shape == (2, 3)


def test_a_constant_that_cannot_be_folded_is_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise Unimplemented("not here")

    monkeypatch.setattr("inlay.graph.onnx.constant_folding.compute_node", refuse)
    network = load_bound(written_model("t = Sin(w) y = Add(x, t)", (3,), w=f32(0, 1, 2)).SerializeToString())
    assert [node.operator for node in network.nodes] == ["Sin", "Add"]
    found = plan(network, costs="probed").compile().run({"x": f32(0, 0, 0)})["y"]
    np.testing.assert_allclose(found, np.sin(f32(0, 1, 2)), rtol=1e-6)


def test_an_output_that_is_a_constant_may_be_read_by_a_node_too() -> None:
    found = planned("y, i = TopK(x, k)", (4,), "y k", k=i64(2)).compile().run({"x": f32(3, 9, 4, 1)})
    assert (found["y"].tolist(), found["k"].tolist()) == ([9, 4], [2])


def test_tensors_without_elements_are_planned_by_measured_costs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    model = written_model("y = Slice(x, s, s, a)", (4, 4, 4), s=i64(9), a=i64(1))
    session = plan(load(model.SerializeToString()), costs="measured").compile()
    assert session.run({"x": normal(0, (4, 4, 4))})["y"].shape == (4, 0, 4)


# Bounds


def test_a_network_that_no_machine_holds_is_refused_before_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "usable_memory", lambda: 1 << 34)
    pads = i64(1 << 35, 0, 1, 1, 0, 0, 1, 1)
    made = planned("t = Pad(x, p) y = Gather <axis = 1> (t, k)", (1, 8, 8, 8), p=pads, k=np.array(3))
    needed = arena.plan_memory(made.program, made.graph.tensors).arena.nbytes + 4 * 8 * 8 * 8
    with raises_exactly(
        OutOfMemory,
        f"network 'tiny' needs {needed / 1e9:.1f} GB for its tensors at once, and this process can have 17.2 GB: give "
        "its inputs smaller dims, or a smaller batch",
    ):
        made.compile()


def test_a_result_that_cannot_be_allocated_raises_an_error_of_inlay(monkeypatch: pytest.MonkeyPatch) -> None:
    session = planned("y = Relu(x)", (2,)).compile()

    def refuse(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("inlay.graph.runtime.instance.np.empty", refuse)
    with raises_exactly(
        OutOfMemory, "'y', float32 of dims (2,), cannot be allocated: give the inputs smaller dims, or a smaller batch"
    ):
        session.run({"x": f32(1, 2)})


def test_a_resize_to_more_elements_than_its_shares_may_have_is_planned_at_once() -> None:
    chosen = planned('y = Resize <mode = "cubic"> (x, , , s)', (1, 1, 2, 2), s=i64(1, 1, 1 << 31, 1))
    (step,) = (step for step in chosen.program.steps if step.kind == "reference")
    assert step.why == "an axis of 2147483648 elements is too long to compare coordinates"
