"""Lowering of products, normalizations and reductions: what the random nodes leave out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import lowered_models as lm
from tests.support.lowered_models import SEEDS, SHAPES, normal

pytestmark = pytest.mark.filterwarnings("ignore")


# Products


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 2, 2, 3, 4)])
def test_a_layer_behind_flatten_reads_the_image(shape: tuple[int, ...]) -> None:
    x, count = normal(0, shape), int(np.prod(shape[1:]))
    text = "f = Flatten(x) y = Gemm <transB = 1> (f, w, b)"
    (op,) = lm.lower_text(text, x, w=normal(1, (7, count)), b=normal(2, (7,))).ops
    assert (op.kind, dict(op.reads)) == ("inner_product", {"src": "x"})
    assert op.constants["weights"].shape == (7, *shape[1:])


def test_all_but_the_last_axis_are_rows_where_one_matrix_is_constant() -> None:
    ops = lm.lower_text("y = MatMul(x, b)", normal(0, (2, 3, 4)), b=normal(1, (4, 5))).ops
    assert [op.kind for op in ops] == ["view", "matmul", "view"]
    assert ops[1].constants["weights"].shape == (4, 5)


# Normalizations


@given(seed=SEEDS, dims=SHAPES)
def test_rms_normalization(seed: int, dims: tuple[int, ...]) -> None:
    scale = normal(seed + 1, dims[-1:])
    graph = lm.lower_text("y = RMSNormalization <epsilon = 1e-3> (x, s)", normal(seed, dims), opset=23, s=scale)
    assert lm.kinds_of(graph) == ["layer_normalization"]


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
    """Return an image, and `count` scales and shifts, which may be all 1 and all 0."""
    scale = np.ones(count, np.float32) if data.draw(st.booleans(), "no scale") else normal(seed + 1, (count,))
    shift = np.zeros(count, np.float32) if data.draw(st.booleans(), "no shift") else normal(seed + 2, (count,))
    return {"x": normal(seed, dims), "s": scale, "b": shift}


def normalized_kinds(arrays: lm.Arrays, constants: list[str]) -> list[str]:
    """Return the primitives: a layer normalization; product and sum, where they are not known to do nothing."""
    does = [name not in constants or (arrays[name] != nothing).any() for name, nothing in (("s", 1), ("b", 0))]
    return ["layer_normalization"] + ["binary"] * sum(does)


# Reductions


@pytest.mark.parametrize(("operator", "algorithm"), [("ReduceMean", "avg_include_padding"), ("ReduceMax", "max")])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_over_space_are_poolings(operator: str, algorithm: str, keepdims: int) -> None:
    text = f"y = {operator} <axes = [2, 3], keepdims = {keepdims}> (x)"
    ops = lm.lower_text(text, normal(0, (2, 3, 4, 5)), opset=13).ops
    assert [op.kind for op in ops] == ["pooling", "view"][: 2 - keepdims]
    assert ops[0].parameters["algorithm"] == algorithm


def test_no_axes_may_mean_none() -> None:
    graph = lm.lower_text("y = ReduceSum <noop_with_empty_axes = 1> (x)", normal(0, (2, 3)), opset=13)
    assert lm.kinds_of(graph) == []
