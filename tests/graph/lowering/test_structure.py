"""Lowering of products, normalizations, reductions and windows: what the random nodes leave out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.graph.lowering import translation
from inlay.graph.lowering.context import LoweringContext, Operand
from inlay.graph.network import Network, Node, Tensor
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
    assert lm.kinds_of(graph) == ["eltwise", *["reduction"] * (dims[-1] > 1), "layer_normalization"]


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


@given(seed=SEEDS, dims=st.lists(st.integers(1, 6), min_size=3, max_size=5), size=st.sampled_from([1, 3, 5, 7]))
def test_local_response_normalization(seed: int, dims: list[int], size: int) -> None:
    x = normal(seed, tuple(dims)).astype(np.float64)
    half = (size - 1) // 2
    sums = [(x[:, max(0, c - half) : c + half + 1] ** 2).sum(1) for c in range(dims[1])]
    answer = x / (2 + 0.5 / size * np.stack(sums, 1)) ** 0.75
    model = lm.model_of("LRN", {"x": x.astype(np.float32)}, opset=9, size=size, alpha=0.5, beta=0.75, bias=2.0)
    graph = lm.lower_and_compare(*model, values={"y0": answer.astype(np.float32)})
    assert lm.kinds_of(graph) == ["lrn"]


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


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMean"])
@pytest.mark.parametrize(("extent", "kind"), [(1 << 10, "matmul"), (1 << 40, "reduction")])
def test_sums_of_too_many_elements_store_no_row_of_factors(operator: str, extent: int, kind: str) -> None:
    src = Tensor("x", (1, extent, 2), np.dtype(np.float32))
    node = Node("sum", operator, ("x",), ("y",), {"axes": (1,)})
    tensors = {"x": src, "y": Tensor("y", (1, 1, 2), np.dtype(np.float32))}
    graph = translation.lower_network(Network("sums", 12, ("x",), ("y",), (node,), tensors, {}))
    assert lm.kinds_of(graph) == [kind]


def test_a_rule_that_runs_out_of_memory_leaves_its_node_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(context: LoweringContext) -> Operand:
        raise MemoryError

    monkeypatch.setattr(translation, "TABLE", {"Relu": exhausted})
    (op,) = lm.lower_text("y = Relu (x)", normal(0, (2, 3))).ops
    assert (op.kind, op.why) == ("reference", "the constants of its primitives need more memory than there is")


# Windows


def test_depthwise_weights_have_an_axis_for_groups() -> None:
    text = "y = Conv <group = 8, pads = [1, 1, 1, 1]> (x, w)"
    (op,) = lm.lower_text(text, normal(0, (1, 8, 6, 6)), w=normal(1, (8, 1, 3, 3))).ops
    assert op.constants["weights"].shape == (8, 1, 1, 3, 3)


def test_a_mean_that_counts_padding_that_ceil_mode_leaves_out_is_a_reference() -> None:
    attributes: dict[str, Any] = {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}
    attributes |= {"ceil_mode": 1, "count_include_pad": 1}
    model, arrays = lm.model_of("AveragePool", {"x": normal(0, (1, 1, 6))}, opset=22, **attributes)
    (op,) = lm.lower_model(model, arrays, {"y0": np.zeros((1, 1, 4), np.float32)}).ops
    assert (op.kind, op.why) == ("reference", "its mean counts padding that ceil_mode leaves out")


@pytest.mark.parametrize(
    ("opset", "text"),
    [
        (9, 'Upsample <mode = "nearest"> (x, scales)'),
        (11, 'Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, roi, scales)'),
        (13, 'Resize <mode = "linear"> (x, , scales)'),
    ],
)
@given(seed=SEEDS, spatial=st.lists(st.integers(1, 4), min_size=1, max_size=3), factor=st.integers(1, 3))
def test_whole_factors_are_resamplings(opset: int, text: str, seed: int, spatial: list[int], factor: int) -> None:
    constants: dict[str, Any] = {"scales": np.array([1, 1, *(factor for _ in spatial)], np.float32)}
    if "roi" in text:
        constants["roi"] = np.zeros(0, np.float32)
    graph = lm.lower_text(f"y = {text}", normal(seed, (1, 2, *spatial)), opset=opset, **constants)
    assert lm.kinds_of(graph) == ([] if factor == 1 else ["resampling"])


@pytest.mark.parametrize(
    ("attributes", "sizes", "why"),
    [
        ('mode = "cubic", antialias = 1', [1, 2, 2], "it shrinks an axis with antialias"),
        (
            'mode = "linear", exclude_outside = 1, coordinate_transformation_mode = "align_corners"',
            [1, 2, 8],
            "it excludes elements outside the image",
        ),
        (
            'mode = "nearest", coordinate_transformation_mode = "half_pixel"',
            [1, 2, 2],
            "half_pixel and round_prefer_floor from 4 to 2 elements uses other elements than the primitive",
        ),
        (
            'mode = "linear", coordinate_transformation_mode = "align_corners"',
            [1, 1, 0.6],
            "its scale leads to 2.4 elements, and its result has 2",
        ),
    ],
)
def test_other_resizes_are_references(attributes: str, sizes: list[Any], why: str) -> None:
    is_scale = 0.6 in sizes
    inputs = "x, , sizes" if is_scale else "x, , , sizes"
    constant = np.array(sizes, np.float32 if is_scale else np.int64)
    (op,) = lm.lower_text(f"y = Resize <{attributes}> ({inputs})", normal(0, (1, 2, 4)), opset=18, sizes=constant).ops
    assert (op.kind, op.why) == ("reference", why)


@pytest.mark.parametrize("is_inside", [0, 1])
@pytest.mark.parametrize("way", ["asymmetric", "align_corners", "half_pixel"])
@given(data=st.data(), seed=SEEDS, spatial=st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_cubic_resizes_of_any_axes_are_products(
    is_inside: int, way: str, data: Any, seed: int, spatial: list[int]
) -> None:
    sizes = np.array([1, 2, *(data.draw(st.integers(1, 8), "size") for _ in spatial)])
    attributes = f'mode = "cubic", coordinate_transformation_mode = "{way}", exclude_outside = {is_inside}'
    text = f"y = Resize <{attributes}> (x, , , sizes)"
    graph = lm.lower_text(text, normal(seed, (1, 2, *spatial)), opset=18, sizes=sizes)
    assert set(lm.kinds_of(graph)) <= {"matmul"}


def test_corners_aligned_are_a_product_for_each_axis() -> None:
    text = 'y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , , sizes)'
    graph = lm.lower_text(text, normal(0, (2, 3, 4, 5)), opset=13, sizes=np.array([2, 3, 8, 10]))
    assert [op.kind for op in graph.ops] == ["view", "matmul", "view", "matmul", "view"]
