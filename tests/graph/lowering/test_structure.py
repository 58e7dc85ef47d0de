"""Lowering of products, normalizations and reductions: results equal those of `onnx.reference`."""

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.support import lowered_models as lm
from tests.support.lowered_models import SEEDS, SHAPES, normal

pytestmark = pytest.mark.filterwarnings("ignore")


# Products


@given(
    data=st.data(),
    seed=SEEDS,
    sizes=st.tuples(*(st.integers(1, 5),) * 3),
    transposed=st.tuples(st.booleans(), st.booleans()),
    factors=st.tuples(*(st.sampled_from([0.0, 0.5, 1.0]),) * 2),
)
def test_gemm(
    data: Any, seed: int, sizes: tuple[int, int, int], transposed: tuple[bool, bool], factors: tuple[float, float]
) -> None:
    m, n, k = sizes
    shapes = [(k, m) if transposed[0] else (m, k), (n, k) if transposed[1] else (k, n)]
    added = data.draw(st.sampled_from([None, (n,), (1, n), (m, n), (m, 1), (1,)]), "C")
    shapes += [] if added is None else [added]
    arrays = {name: normal(seed + i, shape) for i, (name, shape) in enumerate(zip("abc", shapes, strict=False))}
    constants = data.draw(st.lists(st.sampled_from(sorted(arrays)), unique=True, max_size=len(arrays) - 1), "constants")
    attributes: dict[str, Any] = {
        "transA": int(transposed[0]),
        "transB": int(transposed[1]),
        "alpha": factors[0],
        "beta": factors[1],
    }
    opset = data.draw(st.sampled_from([9, 11, 13]), "opset")
    graph = lm.lower_operator("Gemm", arrays, opset=opset, constants=constants, **attributes)
    if "b" in constants and "a" not in constants:
        assert lm.kinds_of(graph)[0] == "inner_product"


def flattened_gemm(shape: tuple[int, ...], outputs: int) -> tuple[lm.Array, Any]:
    """Flatten and Gemm, as classifiers end."""
    x, weights, bias = normal(0, shape), normal(1, (outputs, prod(shape[1:]))), normal(2, (outputs,))
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("Gemm", ["f", "w", "b"], ["y"], transB=1)]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    return x, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 2, 2, 3, 4)])
def test_a_layer_behind_flatten_reads_the_image(shape: tuple[int, ...]) -> None:
    x, model = flattened_gemm(shape, 7)
    (op,) = lm.lower_and_compare(model, {"x": x}).ops
    assert (op.kind, dict(op.reads)) == ("inner_product", {"src": "x"})
    assert op.constants["weights"].shape == (7, *shape[1:])


@given(data=st.data(), seed=SEEDS, batch=st.lists(st.integers(1, 3), max_size=3), k=st.integers(1, 4))
def test_matmul(data: Any, seed: int, batch: list[int], k: int) -> None:
    m, n = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    kept = data.draw(st.integers(0, len(batch)), "kept")
    small = [data.draw(st.sampled_from([1, size])) for size in batch[len(batch) - kept :]]
    left = data.draw(st.sampled_from([(*batch, m, k), (*small, m, k), (k,)]), "left")
    right = data.draw(st.sampled_from([(*batch, k, n), (*small, k, n), (k, n), (k,)]), "right")
    arrays = {"a": normal(seed, left), "b": normal(seed + 1, right)}
    constants = data.draw(st.sampled_from([[], ["a"], ["b"]]), "constants")
    graph = lm.lower_operator("MatMul", arrays, opset=13, constants=constants)
    assert lm.kinds_of(graph) == (["reference"] if len(left) == len(right) == 1 else ["matmul"])


def test_all_but_the_last_axis_are_rows_where_one_matrix_is_constant() -> None:
    arrays = {"a": normal(0, (2, 3, 4)), "b": normal(1, (4, 5))}
    ops = lm.lower_operator("MatMul", arrays, opset=13, constants=["b"]).ops
    assert [op.kind for op in ops] == ["view", "matmul", "view"]
    assert ops[1].constants["weights"].shape == (4, 5)


# Normalizations


def channels(seed: int, count: int) -> list[lm.Array]:
    """Scale, shift, mean and variance."""
    rng = np.random.default_rng(seed)
    return [
        *(rng.standard_normal(count).astype(np.float32) for _ in range(3)),
        rng.uniform(0.5, 2, count).astype(np.float32),
    ]


@pytest.mark.parametrize("opset", [7, 9, 14, 15, 22])
@given(data=st.data(), seed=SEEDS, dims=st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_batch_normalization_with_given_statistics(opset: int, data: Any, seed: int, dims: list[int]) -> None:
    arrays = dict(zip("xsbmv", [normal(seed, tuple(dims)), *channels(seed, dims[1])], strict=True))
    constants = ["s", "b", "m", "v"] if data.draw(st.booleans(), "constant") else []
    epsilon = data.draw(st.sampled_from([1e-5, 1e-3]), "epsilon")
    scale, shift, mean, variance = (arrays[n].astype(np.float64).reshape(-1, *(1,) * (len(dims) - 2)) for n in "sbmv")
    answer = (arrays["x"] - mean) / np.sqrt(variance + epsilon) * scale + shift
    model, given = lm.model_of("BatchNormalization", arrays, opset=opset, constants=constants, epsilon=epsilon)
    graph = lm.lower_and_compare(model, given, values={"y0": answer.astype(np.float32)})
    assert lm.kinds_of(graph) == ["batch_normalization"]


@pytest.mark.parametrize("opset", [17, 22])
@given(data=st.data(), seed=SEEDS, dims=SHAPES)
def test_layer_normalization(opset: int, data: Any, seed: int, dims: tuple[int, ...]) -> None:
    axis = data.draw(st.integers(-len(dims), len(dims) - 1), "axis")
    last = dims[axis:] if axis else dims
    arrays = {"x": normal(seed, dims), "s": normal(seed + 1, last), "b": normal(seed + 2, last)}
    if data.draw(st.booleans(), "no shift"):
        del arrays["b"]
    constants = [name for name in arrays if name != "x"] if data.draw(st.booleans(), "constant") else []
    model = lm.model_of("LayerNormalization", arrays, opset=opset, constants=constants, axis=axis, epsilon=1e-3)
    assert lm.kinds_of(lm.lower_and_compare(*model, 1e-4)) == ["layer_normalization"]


@given(seed=SEEDS, dims=SHAPES)
def test_rms_normalization(seed: int, dims: tuple[int, ...]) -> None:
    arrays = {"x": normal(seed, dims), "s": normal(seed + 1, dims[-1:])}
    model = lm.model_of("RMSNormalization", arrays, opset=23, constants=["s"], epsilon=1e-3)
    assert lm.kinds_of(lm.lower_and_compare(*model)) == ["layer_normalization"]


@pytest.mark.parametrize("opset", [18, 21])
@given(
    data=st.data(), seed=SEEDS, groups=st.integers(1, 3), each=st.integers(1, 3), spatial=st.lists(st.integers(1, 4))
)
def test_group_normalization_has_scales_by_group_before_opset_21(
    opset: int, data: Any, seed: int, groups: int, each: int, spatial: list[int]
) -> None:
    arrays = scaled_image(data, seed, (2, groups * each, *spatial[:4]), groups if opset < 21 else groups * each)
    constants = data.draw(st.sampled_from([["s", "b"], ["s"], []]), "constant")
    model = lm.model_of("GroupNormalization", arrays, opset=opset, constants=constants, num_groups=groups, epsilon=1e-2)
    assert lm.kinds_of(lm.lower_and_compare(*model, 1e-4)) == normalized_kinds(arrays, constants)


@given(data=st.data(), seed=SEEDS, dims=st.lists(st.integers(1, 4), min_size=3, max_size=5))
def test_instance_normalization_is_of_rows(data: Any, seed: int, dims: list[int]) -> None:
    arrays = scaled_image(data, seed, tuple(dims), dims[1])
    constants = data.draw(st.sampled_from([["s", "b"], ["b"], []]), "constant")
    model = lm.model_of("InstanceNormalization", arrays, opset=9, constants=constants, epsilon=1e-2)
    assert lm.kinds_of(lm.lower_and_compare(*model, 1e-4)) == normalized_kinds(arrays, constants)


def scaled_image(data: Any, seed: int, dims: tuple[int, ...], count: int) -> lm.Arrays:
    """An image, `count` scales and shifts, of which some do nothing."""
    scale, shift, *_ = channels(seed, count)
    if data.draw(st.booleans(), "no scale"):
        scale = np.ones_like(scale)
    if data.draw(st.booleans(), "no shift"):
        shift = np.zeros_like(shift)
    return {"x": normal(seed, dims), "s": scale, "b": shift}


def normalized_kinds(arrays: lm.Arrays, constants: list[str]) -> list[str]:
    """A layer normalization; product and sum, where they are not known to do nothing."""
    does = [name not in constants or (arrays[name] != nothing).any() for name, nothing in (("s", 1), ("b", 0))]
    return ["layer_normalization"] + ["binary"] * sum(does)


@given(seed=SEEDS, dims=st.lists(st.integers(1, 6), min_size=3, max_size=5), size=st.sampled_from([1, 3, 5, 7]))
def test_local_response_normalization(seed: int, dims: list[int], size: int) -> None:
    x = normal(seed, tuple(dims)).astype(np.float64)
    half = (size - 1) // 2
    sums = [(x[:, max(0, c - half) : c + half + 1] ** 2).sum(1) for c in range(dims[1])]
    answer = x / (2 + 0.5 / size * np.stack(sums, 1)) ** 0.75
    model = lm.model_of("LRN", {"x": x.astype(np.float32)}, opset=9, size=size, alpha=0.5, beta=0.75, bias=2.0)
    graph = lm.lower_and_compare(*model, values={"y0": answer.astype(np.float32)})
    assert lm.kinds_of(graph) == ["lrn"]


@pytest.mark.parametrize("operator", ["LogSoftmax", "Softmax"])
@pytest.mark.parametrize("opset", [9, 11, 13, 22])
@given(data=st.data(), seed=SEEDS, dims=st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_softmax_flattens_before_opset_13(operator: str, opset: int, data: Any, seed: int, dims: list[int]) -> None:
    least = 0 if opset == 9 else -len(dims)
    axis = data.draw(st.none() | st.integers(least, len(dims) - 1), "axis")
    attributes = {} if axis is None else {"axis": axis}
    x = normal(seed, tuple(dims))
    model, arrays = lm.model_of(operator, {"x": x}, opset=opset, **attributes)
    graph = lm.lower_model(model, arrays, {"y0": x})
    along = 1 if axis is None else axis % len(dims)
    flat = x if opset >= 13 else x.reshape(prod(dims[:along]), -1)
    over = -1 if opset < 13 or axis is None else axis
    powers = np.exp(flat.astype(np.float64))
    shares = (powers / powers.sum(over, keepdims=True)).reshape(dims)
    answer = np.log(shares) if operator == "LogSoftmax" else shares
    lm.assert_same_results(graph, arrays, {"y0": answer.astype(np.float32)})
    assert lm.kinds_of(graph) == ["softmax"]


# Reductions

REDUCTIONS = ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("opset", [11, 13, 18])
@given(data=st.data(), seed=SEEDS, dims=SHAPES, keepdims=st.booleans())
def test_reductions(name: str, opset: int, data: Any, seed: int, dims: tuple[int, ...], keepdims: bool) -> None:
    axes = data.draw(st.lists(st.integers(0, len(dims) - 1), unique=True), "axes")
    said = [axis - data.draw(st.sampled_from([0, len(dims)])) for axis in axes]
    arrays = {"x": normal(seed, dims)}
    attributes: dict[str, Any] = {"keepdims": int(keepdims)}
    if axes and opset >= (13 if name == "Sum" else 18):
        arrays["axes"] = np.array(said, np.int64)
    elif axes:
        attributes["axes"] = said
    graph = lm.lower_operator(f"Reduce{name}", arrays, opset=opset, constants=list(arrays)[1:], **attributes)
    is_number = not keepdims and len(axes) in (0, len(dims))
    assert lm.kinds_of(graph) in ([["reference"]] if is_number else [[], ["reduction"], ["pooling"], ["eltwise"]])


@pytest.mark.parametrize(("operator", "algorithm"), [("ReduceMean", "avg_include_padding"), ("ReduceMax", "max")])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_over_space_are_poolings(operator: str, algorithm: str, keepdims: int) -> None:
    arrays = {"x": normal(0, (2, 3, 4, 5))}
    ops = lm.lower_operator(operator, arrays, opset=13, axes=[2, 3], keepdims=keepdims).ops
    assert [op.kind for op in ops] == ["pooling", "view"][: 2 - keepdims]
    assert ops[0].parameters["algorithm"] == algorithm


def test_no_axes_may_mean_none() -> None:
    model = lm.model_of("ReduceSum", {"x": normal(0, (2, 3))}, opset=13, noop_with_empty_axes=1)
    assert lm.kinds_of(lm.lower_and_compare(*model)) == []
