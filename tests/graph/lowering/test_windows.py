"""Lowering of convolutions, poolings and resizes: what the random nodes leave out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import lowered_models as lm
from tests.support.lowered_models import SEEDS, normal

pytestmark = pytest.mark.filterwarnings("ignore")

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
    constants = {"scales": np.array([1, 1, *(factor for _ in spatial)], np.float32), "roi": np.zeros(0, np.float32)}
    constants = {name: array for name, array in constants.items() if name in text}
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
