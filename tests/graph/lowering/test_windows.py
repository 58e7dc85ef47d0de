"""Lowering of convolutions, poolings and resizes: padding, strides, groups and rounding in each opset.

ONNX Runtime is the oracle of poolings and transposed convolutions, since `onnx.reference` pads some windows wrongly.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import lowered_models as lm
from tests.support.lowered_models import SEEDS, normal

pytestmark = pytest.mark.filterwarnings("ignore")

AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def window(data: Any, count: int, *, is_dilated: bool = True) -> dict[str, Any]:
    """Draw attributes of a window over `count` spatial axes; some are left out."""
    each = {"kernel_shape": st.integers(1, 3), "strides": st.integers(1, 3)}
    if is_dilated:
        each["dilations"] = st.integers(1, 2)
    found = {name: data.draw(st.lists(one, min_size=count, max_size=count), name) for name, one in each.items()}
    mode = data.draw(st.sampled_from(AUTO_PAD), "auto_pad")
    if mode == "NOTSET":
        pads = [data.draw(st.integers(0, k - 1)) for _ in range(2) for k in found["kernel_shape"]]
        return {**found, "pads": pads}
    if mode != "VALID":  # runtimes pad no windows that leave elements out
        found["strides"] = [min(pair) for pair in zip(found["strides"], found["kernel_shape"], strict=True)]
    if "dilations" in found and mode != "VALID":
        found["dilations"] = [1] * count  # onnx.reference pads dilated windows otherwise
    return {**found, "auto_pad": mode}


def image(data: Any, count: int) -> tuple[int, ...]:
    return tuple(data.draw(st.integers(5, 8), "extent") for _ in range(count))


@pytest.mark.parametrize("count", [1, 2, 3])
@given(
    data=st.data(), seed=SEEDS, groups=st.sampled_from([1, 1, 2, 3]), inner=st.integers(1, 2), outer=st.integers(1, 2)
)
def test_convolutions(count: int, data: Any, seed: int, groups: int, inner: int, outer: int) -> None:
    attributes = window(data, count)
    weights = normal(seed, (groups * outer, inner, *attributes["kernel_shape"]))
    arrays = {"x": normal(seed + 1, (2, groups * inner, *image(data, count))), "w": weights}
    if data.draw(st.booleans(), "bias"):
        arrays["b"] = normal(seed + 2, (groups * outer,))
    constants = list(arrays)[1:] if data.draw(st.booleans(), "constant") else []
    opset = data.draw(st.sampled_from([9, 11, 22]))
    graph = lm.lower_operator("Conv", arrays, opset=opset, constants=constants, group=groups, **attributes)
    assert lm.kinds_of(graph) == ["convolution"]


def test_depthwise_weights_have_an_axis_for_groups() -> None:
    arrays = {"x": normal(0, (1, 8, 6, 6)), "w": normal(1, (8, 1, 3, 3))}
    (op,) = lm.lower_operator("Conv", arrays, opset=13, constants=["w"], group=8, pads=[1, 1, 1, 1]).ops
    assert op.constants["weights"].shape == (8, 1, 1, 3, 3)


@pytest.mark.heavy
@pytest.mark.parametrize("count", [1, 2])
@given(data=st.data(), seed=SEEDS, groups=st.sampled_from([1, 1, 2]), inner=st.integers(1, 2), outer=st.integers(1, 2))
def test_transposed_convolutions(count: int, data: Any, seed: int, groups: int, inner: int, outer: int) -> None:
    attributes = {name: value for name, value in window(data, count).items() if name != "auto_pad"}
    more = [data.draw(st.integers(0, s - 1), "output_padding") for s in attributes["strides"]]
    if data.draw(st.booleans(), "more"):
        attributes["output_padding"] = more
    arrays = {
        "x": normal(seed, (2, groups * inner, *(data.draw(st.integers(3, 5)) for _ in range(count)))),
        "w": normal(seed + 1, (groups * inner, outer, *attributes["kernel_shape"])),
    }
    if data.draw(st.booleans(), "bias"):
        arrays["b"] = normal(seed + 2, (groups * outer,))
    constants = list(arrays)[1:] if data.draw(st.booleans(), "constant") else []
    opset = data.draw(st.sampled_from([9, 11, 22]))
    model, arrays = lm.model_of("ConvTranspose", arrays, opset=opset, constants=constants, group=groups, **attributes)
    graph = lm.lower_and_compare(model, arrays, values=lm.run_onnxruntime(model, arrays))
    assert lm.kinds_of(graph) == ["deconvolution"]


@pytest.mark.heavy
@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize("count", [1, 2, 3])
@given(data=st.data(), seed=SEEDS)
def test_poolings(operator: str, count: int, data: Any, seed: int) -> None:
    opset = data.draw(st.sampled_from([9, 11, 19, 22]))
    is_dilated = opset >= (10 if operator == "MaxPool" else 19)
    attributes = window(data, count, is_dilated=is_dilated)
    if opset >= 10 and "pads" in attributes:
        attributes["ceil_mode"] = int(data.draw(st.booleans(), "ceil_mode"))
    if operator == "AveragePool":
        attributes["count_include_pad"] = int(data.draw(st.booleans(), "count_include_pad"))
    arrays = {"x": normal(seed, (2, 3, *image(data, count)))}
    model, arrays = lm.model_of(operator, arrays, opset=opset, **attributes)
    graph = lm.lower_model(model, arrays, lm.run_onnxruntime(model, arrays))
    (op,) = graph.ops
    if op.kind == "pooling":
        lm.assert_same_results(graph, arrays, lm.run_onnxruntime(model, arrays))
    else:
        assert op.why in ("a window covers only padding", "its mean counts padding that ceil_mode leaves out")
        assert attributes["ceil_mode"]


@pytest.mark.heavy
@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
@given(seed=SEEDS, spatial=st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_poolings_of_whole_images(operator: str, seed: int, spatial: list[int]) -> None:
    model, arrays = lm.model_of(operator, {"x": normal(seed, (2, 3, *spatial))}, opset=9)
    graph = lm.lower_and_compare(model, arrays, values=lm.run_onnxruntime(model, arrays))
    assert lm.kinds_of(graph) == ["pooling"]


def test_a_mean_that_counts_what_ceil_mode_leaves_out_is_a_reference() -> None:
    attributes: dict[str, Any] = {
        "kernel_shape": [3],
        "strides": [2],
        "pads": [1, 1],
        "ceil_mode": 1,
        "count_include_pad": 1,
    }
    model, arrays = lm.model_of("AveragePool", {"x": normal(0, (1, 1, 6))}, opset=22, **attributes)
    (op,) = lm.lower_model(model, arrays, {"y0": np.zeros((1, 1, 4), np.float32)}).ops
    assert (op.kind, op.why) == ("reference", "its mean counts padding that ceil_mode leaves out")


WAYS = ("asymmetric", "align_corners", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
_OUTSIDE = "it excludes elements outside the image"
CORNERS: dict[str, Any] = {"coordinate_transformation_mode": "align_corners"}
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("way", WAYS)
@given(data=st.data(), seed=SEEDS, spatial=st.lists(st.integers(1, 4), min_size=1, max_size=2))
def test_resizes(mode: str, way: str, data: Any, seed: int, spatial: list[int]) -> None:
    sizes = [data.draw(st.integers(1, 8), "size") for _ in spatial]
    rounding = data.draw(st.sampled_from(ROUNDINGS), "rounding")
    arrays = {"x": normal(seed, (1, 2, *spatial)), "sizes": np.array([1, 2, *sizes])}
    attributes = {"mode": mode, "coordinate_transformation_mode": way, "nearest_mode": rounding}
    opset = data.draw(st.sampled_from([13, 19] if way != "half_pixel_symmetric" else [19]))
    lm.lower_operator("Resize", arrays, opset=opset, constants=["sizes"], inputs=["x", "", "", "sizes"], **attributes)


@pytest.mark.parametrize(
    ("operator", "opset", "mode"), [("Upsample", 9, "nearest"), ("Resize", 11, "nearest"), ("Resize", 13, "linear")]
)
@given(seed=SEEDS, spatial=st.lists(st.integers(1, 4), min_size=1, max_size=3), factor=st.integers(1, 3))
def test_whole_factors_are_resamplings(
    operator: str, opset: int, mode: str, seed: int, spatial: list[int], factor: int
) -> None:
    scales = np.array([1, 1, *(factor for _ in spatial)], np.float32)
    arrays = {"x": normal(seed, (1, 2, *spatial)), "scales": scales}
    inputs = ["x", "scales"] if opset < 11 else ["x", "", "scales"]
    if opset == 11:
        inputs, arrays["roi"] = ["x", "roi", "scales"], np.zeros(0, np.float32)
    constants = [name for name in arrays if name != "x"]
    ways: dict[str, Any] = (
        {}
        if opset < 11 or mode == "linear"
        else {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    )
    graph = lm.lower_operator(operator, arrays, opset=opset, constants=constants, inputs=inputs, mode=mode, **ways)
    assert lm.kinds_of(graph) == ([] if factor == 1 else ["resampling"])


@pytest.mark.parametrize(
    ("attributes", "sizes", "why"),
    [
        ({"mode": "cubic", "antialias": 1}, np.array([1, 2, 2]), "it shrinks an axis with antialias"),
        ({"mode": "linear", "exclude_outside": 1, **CORNERS}, np.array([1, 2, 8]), _OUTSIDE),
        (
            {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"},
            np.array([1, 2, 2]),
            "half_pixel and round_prefer_floor from 4 to 2 elements uses other elements than the primitive",
        ),
        (
            {"mode": "linear", **CORNERS},
            np.array([1, 1, 0.6], np.float32),
            "its scale leads to 2.4 elements, and its result has 2",
        ),
    ],
)
def test_other_resizes_are_references(attributes: dict[str, Any], sizes: lm.Array, why: str) -> None:
    inputs = ["x", "", "sizes"] if sizes.dtype == np.float32 else ["x", "", "", "sizes"]
    arrays = {"x": normal(0, (1, 2, 4)), "sizes": sizes}
    (op,) = lm.lower_operator("Resize", arrays, opset=18, constants=["sizes"], inputs=inputs, **attributes).ops
    assert (op.kind, op.why) == ("reference", why)


@pytest.mark.parametrize("is_inside", [0, 1])
@pytest.mark.parametrize("way", WAYS[:3])
@given(data=st.data(), seed=SEEDS, spatial=st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_cubic_resizes_are_products(is_inside: int, way: str, data: Any, seed: int, spatial: list[int]) -> None:
    sizes = [data.draw(st.integers(1, 8), "size") for _ in spatial]
    arrays = {"x": normal(seed, (1, 2, *spatial)), "sizes": np.array([1, 2, *sizes])}
    attributes: dict[str, Any] = {"mode": "cubic", "coordinate_transformation_mode": way, "exclude_outside": is_inside}
    inputs = ["x", "", "", "sizes"]
    graph = lm.lower_operator("Resize", arrays, opset=18, constants=["sizes"], inputs=inputs, **attributes)
    assert set(lm.kinds_of(graph)) <= {"matmul"}


def test_corners_aligned_are_a_product_for_each_axis() -> None:
    arrays = {"x": normal(0, (2, 3, 4, 5)), "sizes": np.array([2, 3, 8, 10])}
    inputs = ["x", "", "", "sizes"]
    graph = lm.lower_operator("Resize", arrays, opset=13, constants=["sizes"], inputs=inputs, mode="linear", **CORNERS)
    assert [op.kind for op in graph.ops] == ["view", "matmul", "view", "matmul", "view"]
