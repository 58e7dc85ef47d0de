"""Nodes that NumPy computes, through `load`, `plan` and `run`: known results, and errors with a reason.

Expected results are written out, or computed by NumPy and PyTorch; `test_numpy_operator_peers.py` compares with ONNX
Runtime.
"""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlay.errors import InlayError, InvalidArguments, OutOfMemory, Unimplemented
from inlay.graph.network import Node
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.onnx.reading import load
from inlay.graph.op_graph import Array
from inlay.graph.plan import plan
from inlay.graph.runtime import arena
from tests.support.network_runs import model_of
from tests.support.refusals import raises_exactly


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def normal(*dims: int) -> Array:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


def model(operator: str, x: Array, opset: int = 17, names: str = "", outs: str = "y", **rest: Any) -> onnx.ModelProto:
    """Return a model of one node on input x; arrays in `rest` are constants in order, other values are attributes."""
    constants = {name: value for name, value in rest.items() if isinstance(value, np.ndarray)}
    inputs = names.split(",") if names else ["x", *constants]
    attributes = {name: value for name, value in rest.items() if name not in constants}
    node = helper.make_node(operator, inputs, outs.split(","), "n", **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    made: onnx.ModelProto = model_of([node], {"x": x.shape}, list(node.output), constants, opset, kind)
    return made


def run(operator: str, x: Array, opset: int = 17, names: str = "", outs: str = "y", **rest: Any) -> Array:
    """Return the first result of a node in a session."""
    network = load(model(operator, x, opset, names, outs, **rest).SerializeToString())
    return plan(network, costs="probed").compile().run({"x": x})[outs.split(",")[-1]]


LSTM: dict[str, Any] = {"W": normal(1, 12, 4), "R": normal(1, 12, 3), "hidden_size": 3}
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)

ANSWERS: dict[str, tuple[Any, Any]] = {
    "a gather of more elements than NumPy's choose takes": (
        lambda: run("GatherElements", np.arange(100.0, dtype=np.float32)[:, None], k=np.zeros((100, 1), np.int64)),
        np.zeros((100, 1)),
    ),
    "a gather along a negative axis": (
        lambda: run("GatherElements", f32([0, 1, 2], [3, 4, 5]), k=np.array([[0, 2], [-1, 0]]), axis=-1),
        [[0, 2], [5, 3]],
    ),
    "Hardmax over all axes": (lambda: run("Hardmax", f32([[1, 2], [4, 3]]), 11), [[[0, 0], [1, 0]]]),
    "Softmax over all axes, in f64": (lambda: run("Softmax", np.zeros((1, 2, 2)), 11), np.full((1, 2, 2), 0.25)),
    "LpNormalization by magnitudes": (lambda: run("LpNormalization", f32(3, -4), p=1), f32(3 / 7, -4 / 7)),
    "LRN of more channels than images": (
        lambda: run("LRN", np.ones((1, 4, 1, 1), np.float32), size=2, alpha=2.0, beta=1.0, bias=0.0),
        np.array([0.5, 0.5, 0.5, 1]).reshape(1, 4, 1, 1),
    ),
    "RoiAlign without half pixels": (
        lambda: run("RoiAlign", IMAGE, 10, b=f32([0, 0, 3, 3]), n=i64(0), sampling_ratio=1),
        [[[[7.5]]]],
    ),
    "indices of MaxPool at a border": (
        lambda: run("MaxPool", IMAGE, outs="y,k", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]),
        [[[[5, 7], [13, 15]]]],
    ),
    "MaxPool of bytes": (lambda: run("MaxPool", IMAGE.astype(np.int8), kernel_shape=[4, 4]), [[[[15]]]]),
    "a window that is mostly padding": (
        lambda: run("MaxPool", IMAGE, kernel_shape=[999, 999], pads=[997, 997, 0, 0]),
        IMAGE[..., 1:, 1:],
    ),
    "Pad that takes away": (lambda: run("Pad", f32([1, 2], [3, 4]), p=i64(0, -1, 1, 0)), [[2], [4], [0]]),
    "Slice from before the beginning, backwards": (
        lambda: run("Slice", f32(1, 2, 3), s=i64(-7), e=i64(-9), a=i64(0), t=i64(-1)),
        [1],
    ),
    "squares of integers": (lambda: run("ReduceSumSquare", np.array([[1, 2, 3]]), axes=[1]), [[14]]),
    "logarithms of integers": (lambda: run("ReduceLogSumExp", np.array([[1, 2, 3]]), axes=[1]), [[3]]),
    "an integer to a negative power": (lambda: run("Pow", np.array([2, 1, -1]), e=np.array(-1)), [0, 1, -1]),
    "quantized weights of opset 13": (
        lambda: run(
            "DequantizeLinear", np.array([-1, 3], np.int8), 13, s=np.array(0.5, np.float32), z=np.array(1, np.int8)
        ),
        [-1, 1],
    ),
    "Unsqueeze with axes in no order": (lambda: run("Unsqueeze", f32(1, 2), 11, axes=[2, 0]), [[[1], [2]]]),
    "Resize of opset 10 by a fraction": (
        lambda: run("Resize", f32([[[1, 2], [3, 4]]]), 10, s=f32(1, 1, 1.5, 1.5)),
        [[[[1, 1, 2], [1, 1, 2], [3, 3, 4]]]],
    ),
    "Upsample by a fraction": (
        lambda: run("Upsample", f32([[[1, 2], [3, 4]]]), 9, s=f32(1, 1, 1.5, 1.5)),
        [[[[1, 1, 2], [1, 1, 2], [3, 3, 4]]]],
    ),
    "a sequence that ends early": (
        lambda: run("LSTM", normal(3, 2, 4), L=np.array([3, 1], np.int32), names="x,W,R,,L", **LSTM)[1:, 0, 1],
        np.zeros((2, 3)),
    ),
    "activations that are not negative": (
        lambda: run("LSTM", normal(3, 2, 4), activations=["Relu"] * 3, **LSTM).min(),
        0,
    ),
    "the sizes of ConvTranspose of TensorFlow": (
        lambda: run("ConvTranspose", np.ones((1, 1, 2), np.float32), w=f32([[1, 2, 4]]), strides=[2], output_shape=[4]),
        [[[2, 5, 2, 4]]],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_numpy_computes_in_a_network_is_right(name: str) -> None:
    compute, wanted = ANSWERS[name]
    got = compute()
    np.testing.assert_allclose(got, np.asarray(wanted).reshape(np.shape(got)), rtol=1e-5)


def test_a_clip_of_gates_is_what_torch_computes_with_the_gates_clipped() -> None:
    x, weights, states = normal(1, 2, 4), LSTM["W"], LSTM["R"]
    gates = np.clip(x[0] @ weights[0].T, -0.1, 0.1)
    i, o, _, c = (gates[:, 3 * k : 3 * k + 3] for k in range(4))
    wanted = np.tanh(np.tanh(c) / (1 + np.exp(-i))) / (1 + np.exp(-o))
    got = run("LSTM", x, W=weights, R=states, hidden_size=3, clip=0.1)
    np.testing.assert_allclose(got[0, 0], wanted, rtol=1e-5)


def test_group_normalization_of_opset_18_has_a_scale_for_each_group() -> None:
    torch = pytest.importorskip("torch")
    x, scale, shift = normal(2, 6, 3), f32(2, 3, 4), f32(-1, 0, 1)
    plain = torch.nn.functional.group_norm(torch.from_numpy(x), 3).numpy().reshape(2, 3, -1)
    node = Node("n", "GroupNormalization", ("x", "a", "b"), ("y",), {"num_groups": 3})
    got = compute_node(node, 18, {"x": x, "a": scale, "b": shift})["y"]
    np.testing.assert_allclose(got, (plain * scale[:, None] + shift[:, None]).reshape(2, 6, 3), rtol=1e-4, atol=1e-5)


def test_cubic_samples_at_a_border_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x, grid = normal(1, 2, 4, 5), 2 * normal(1, 3, 3, 2)
    sample = torch.nn.functional.grid_sample
    wanted = sample(torch.from_numpy(x), torch.from_numpy(grid), "bicubic", "border", False).numpy()
    got = run("GridSample", x, 20, g=grid, mode="cubic", padding_mode="border")
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


# Refusals

REMEDY = "; correct the model, or give its inputs other dims"
REFUSED: dict[str, tuple[Any, str]] = {
    "an index that is not there": (
        lambda: run("Gather", f32(10, 20, 30), k=i64(100), axis=0),
        "Gather does not accept float32 (3,) and int64 (1,): index 100 is outside axis 0, which has 3 elements",
    ),
    "an index that NumPy would count down": (
        lambda: run("GatherElements", f32(10, 20, 30), k=i64(1 << 42), axis=0),
        "GatherElements does not accept float32 (3,) and int64 (1,): index 4398046511104 is outside axis 0, which "
        "has 3 elements",
    ),
    "a bias that is not spread": (
        lambda: run("Gemm", normal(3, 6), b=normal(6, 4), c=normal(3, 3)),
        "Gemm does not accept float32 (3, 6) and float32 (6, 4) and float32 (3, 3): C of dims (3, 3) cannot be "
        "broadcast to (3, 4)",
    ),
    "a bias of other channels": (
        lambda: run("Conv", normal(1, 3, 4, 4), w=normal(2, 3, 3, 3), b=normal(4)),
        "Conv does not accept float32 (1, 3, 4, 4) and float32 (2, 3, 3, 3) and float32 (4,): the bias has dims "
        "(4,), and there are 2 channels",
    ),
    "another kernel than that of the weights": (
        lambda: run("Conv", normal(1, 3, 4, 4), w=normal(2, 3, 3, 3), kernel_shape=[2, 2]),
        "Conv does not accept float32 (1, 3, 4, 4) and float32 (2, 3, 3, 3): kernel_shape is (2, 2), and the "
        "weights have (3, 3)",
    ),
    "a scale of another length": (
        lambda: run("LayerNormalization", normal(2, 5), s=normal(3)),
        "LayerNormalization does not accept float32 (2, 5) and float32 (3,): the scale of dims (3,) cannot be "
        "broadcast to (5,)",
    ),
    "biases of one kind alone": (
        lambda: run("GRU", normal(3, 1, 2), W=normal(1, 9, 2), R=normal(1, 9, 3), B=normal(1, 9), hidden_size=3),
        "GRU does not accept float32 (3, 1, 2) and float32 (1, 9, 2) and float32 (1, 9, 3) and float32 (1, 9): B "
        "has dims (1, 9), and (1, 18) fit X and R",
    ),
    "a slope of another length": (
        lambda: run("PRelu", normal(2, 3), s=normal(4)),
        "PRelu does not accept float32 (2, 3) and float32 (4,): the slope of dims (4,) cannot be broadcast to (2, 3)",
    ),
    "labels of two lengths": (
        lambda: run("Einsum", normal(2, 3), names="x,x", equation="ij,jk->ik"),
        (
            "Einsum does not accept float32 (2, 3) and float32 (2, 3): label 'j' of the equation stands for 3 and 2 "
            "elements"
        ),
    ),
    "a mode of Pad that is none": (
        lambda: run("Pad", normal(2, 2), p=i64(1, 1, 1, 1), mode="mirror"),
        "Pad does not accept float32 (2, 2) and int64 (4,): mode is 'mirror', not one of constant, reflect, edge, wrap",
    ),
    "a mode of Resize that is none": (
        lambda: run("Resize", normal(1, 1, 2, 2), names="x,,s", s=f32(1, 1, 2, 2), nearest_mode="bogus"),
        "Resize does not accept float32 (1, 1, 2, 2) and float32 (4,): nearest_mode is 'bogus', not one of "
        "round_prefer_floor, round_prefer_ceil, floor, ceil",
    ),
    "an axis of two numbers": (
        lambda: run("CumSum", normal(3, 3), a=i64(0, 1)),
        "CumSum does not accept float32 (3, 3) and int64 (2,): its axis is one number, not 2",
    ),
    "more elements than a process has addresses": (
        lambda: run("Pad", normal(1, 1), p=i64(1 << 31, 1 << 31, 0, 0)),
        "Pad: the result 'y' has dims (2147483649, 2147483649) of float32, 18446744090889420804 bytes: no machine "
        "holds more than 140737488355328",
    ),
    "windows that nobody waits for": (
        lambda: run("MaxPool", normal(1, 1, 4), kernel_shape=[1 << 20], pads=[(1 << 20) - 1] * 2),
        "MaxPool does not accept float32 (1, 1, 4): its windows have 1099514773504 taps together, which takes hours",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_when_it_is_read(name: str) -> None:
    compute, text = REFUSED[name]
    with raises_exactly(InvalidArguments, f"node 'n': {text}{REMEDY}"):
        compute()


def test_an_index_of_a_run_names_the_tensor_and_the_axis() -> None:
    nodes = [helper.make_node("Gather", ["table", "token"], ["y"], "embedding")]
    made = model_of(nodes, {"token": (2,)}, ["y"], {"table": normal(4, 3)}, kind=TensorProto.INT64)
    session = plan(load(made.SerializeToString()), costs="probed").compile()
    with raises_exactly(
        InvalidArguments,
        "node 'embedding': Gather: 'token' holds index 4, and axis 0 of 'table' has 4 elements: give indices from -4 "
        "to 3",
    ):
        session.run({"token": i64(1, 4)})
    assert session.run({"token": i64(-1, 3)})["y"].shape == (2, 3)


def test_what_numpy_cannot_compute_is_told_with_the_node_and_its_inputs() -> None:
    node = Node("n", "Det", ("x",), ("y",))
    with raises_exactly(
        Unimplemented,
        "node 'n': Det of float32 (2, 3) is not computed by NumPy: Last 2 dimensions of the array must be square; "
        "correct the node where ONNX does not allow this, else write it with other operators",
    ):
        compute_node(node, 17, {"x": normal(2, 3)})


def test_a_type_that_was_not_compared_is_refused_when_it_is_read() -> None:
    with raises_exactly(
        Unimplemented,
        "node 'n': Det of float16 is computed by no primitive and by no function of Inlay: replace it by operators of "
        "ONNX, or leave it out of the file",
    ):
        load(model("Det", np.zeros((2, 2), np.float16)).SerializeToString())


def test_a_constant_that_cannot_be_folded_is_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise Unimplemented("not here")

    monkeypatch.setattr("inlay.graph.onnx.importer.compute_node", refuse)
    nodes = [helper.make_node("Sin", ["w"], ["t"], "s"), helper.make_node("Add", ["x", "t"], ["y"], "a")]
    network = load(model_of(nodes, {"x": (3,)}, ["y"], {"w": f32(0, 1, 2)}).SerializeToString())
    assert [node.operator for node in network.nodes] == ["Sin", "Add"]
    found = plan(network, costs="probed").compile().run({"x": f32(0, 0, 0)})["y"]
    np.testing.assert_allclose(found, np.sin(f32(0, 1, 2)), rtol=1e-6)


def test_an_output_that_is_a_constant_may_be_read_by_a_node_too() -> None:
    nodes = [helper.make_node("TopK", ["x", "k"], ["y", "i"], "top")]
    made = model_of(nodes, {"x": (4,)}, ["y", "k"], {"k": i64(2)})
    found = plan(load(made.SerializeToString()), costs="probed").compile().run({"x": f32(3, 9, 4, 1)})
    assert found["y"].tolist() == [9, 4]
    assert found["k"].tolist() == [2]


def test_tensors_without_elements_are_planned_by_measured_costs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    made = model("Slice", normal(4, 4, 4), s=i64(9), e=i64(9), a=i64(1))
    session = plan(load(made.SerializeToString()), costs="measured").compile()
    assert session.run({"x": normal(4, 4, 4)})["y"].shape == (4, 0, 4)


# Bounds


def bomb() -> onnx.ModelProto:
    nodes = [helper.make_node("Pad", ["x", "p"], ["t"], "pad"), helper.make_node("Gather", ["t", "k"], ["y"], axis=1)]
    made: onnx.ModelProto = model_of(
        nodes, {"x": (1, 8, 8, 8)}, ["y"], {"p": i64(1 << 35, 0, 1, 1, 0, 0, 1, 1), "k": np.array(3)}
    )
    return made


def test_a_network_that_no_machine_holds_is_refused_before_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "usable_memory", lambda: 1 << 34)
    made = plan(load(bomb().SerializeToString()), costs="probed")
    needed = arena.laid(made.program, made.graph.tensors).arena.nbytes + 4 * 8 * 8 * 8
    with raises_exactly(
        OutOfMemory,
        f"network 'tiny' needs {needed / 1e9:.1f} GB for its tensors at once, and this process can have 17.2 GB: give "
        "its inputs smaller dims, or a smaller batch",
    ):
        made.compile()


def test_a_result_without_room_is_an_error_of_inlay(monkeypatch: pytest.MonkeyPatch) -> None:
    session = plan(load(model("Relu", f32(1, 2)).SerializeToString()), costs="probed").compile()

    def refuse(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("inlay.graph.runtime.instance.np.empty", refuse)
    with raises_exactly(
        OutOfMemory, "'y', float32 of dims (2,), cannot be allocated: give the inputs smaller dims, or a smaller batch"
    ):
        session.run({"x": f32(1, 2)})


@pytest.mark.parametrize(
    "nodes",
    [
        [("ConstantOfShape", "s", "t", {}), ("NonZero", "t", "u", {})],
        [("ConstantOfShape", "r", "t", {}), ("MatMul", "t t", "u", {})],
    ],
    ids=["NonZero", "MatMul"],
)
def test_a_fold_that_takes_gigabytes_or_minutes_is_refused(nodes: list[Any]) -> None:
    made = [helper.make_node(kind, reads.split(), [write], kind, **rest) for kind, reads, write, rest in nodes]
    made.append(helper.make_node("Shape", ["u"], ["y"]))
    constants = {"s": i64(1 << 30), "r": i64(8192, 8192)}
    with pytest.raises(InlayError, match="the constants computed at import would need"):
        load(model_of(made, {"x": (1,)}, ["y"], constants).SerializeToString())


def test_a_resize_to_more_elements_than_its_shares_may_have_is_planned_at_once() -> None:
    made = model("Resize", normal(1, 1, 2, 2), names="x,,,s", s=i64(1, 1, 1 << 31, 1), mode="cubic")
    chosen = plan(load(made.SerializeToString()), costs="probed")
    (step,) = (step for step in chosen.program.steps if step.kind == "reference")
    assert step.why == "an axis of 2147483648 elements is too long to compare coordinates"
