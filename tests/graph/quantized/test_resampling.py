"""Images of integers that become larger or smaller, beside NumPy: drawn scales, zero points, types and extents."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from inlay.graph.lowering.translation import lower_network
from inlay.graph.op_graph import Array
from inlay.primitives.attributes import EltwisePostOp
from tests.graph.quantized.test_integers import (
    Quantization,
    assert_is_quantized,
    integers_of,
    network_of,
    node,
    quantizations,
    run,
)


def interpolate(image: Array, out: tuple[int, int]) -> Array:
    """A linear interpolation between the middles of pixels, along both axes of each image."""
    for axis, count in zip((2, 3), out, strict=True):
        n = image.shape[axis]
        at = np.clip((np.arange(count) + 0.5) * n / count - 0.5, 0, n - 1)
        below = np.floor(at).astype(int)
        share = (at - below).reshape([-1 if i == axis else 1 for i in range(4)])
        above = np.minimum(below + 1, n - 1)
        image = image.take(below, axis) * (1 - share) + image.take(above, axis) * share
    return image


def resize(out: tuple[int, int], dims: tuple[int, ...], **attributes: Any) -> tuple[list[Any], list[Any]]:
    """A Resize of `x_f` to `r`, and its constant."""
    made = node("Resize", "x_f", "r", **attributes)
    made.input.extend(["", "", "sizes"])
    return [made], [numpy_helper.from_array(np.array([*dims[:2], *out]), "sizes")]


@pytest.mark.parametrize("engine", ["reference", pytest.param(None, id="planned")])
@settings(max_examples=30)
@given(data=st.data())
def test_an_interpolation_is_that_of_integers(engine: str | None, data: st.DataObject) -> None:
    draw = data.draw
    src = draw(quantizations())
    dst = draw(st.just(src) | quantizations(src.data_type) | quantizations())
    dims = (2, draw(st.sampled_from([3, 16])), draw(st.integers(2, 7)), draw(st.integers(2, 7)))
    out = draw(st.integers(2, 15)), draw(st.integers(2, 15))
    nodes, constants = resize(out, dims, mode="linear")
    x = integers_of(src, *dims, seed=draw(st.integers(0, 9)))
    real = interpolate(src.real(x), out)
    found = run(nodes, constants, {"x": (x, src)}, dst, real.shape, engine)
    assert_is_quantized(found, real, dst)


@pytest.mark.parametrize("engine", ["reference", None])
@pytest.mark.parametrize("data_type", ["u8", "s8"])
def test_the_nearest_elements_are_moved(data_type: str, engine: str | None) -> None:
    src = Quantization(data_type, 0.1, 5)
    x = integers_of(src, 2, 16, 5, 4, seed=1)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes, constants = resize((10, 12), x.shape, **attributes)
    found = run(nodes, constants, {"x": (x, src)}, src, (2, 16, 10, 12), engine)
    np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(3, 3))


@pytest.mark.parametrize("is_by_scales", [False, True])
def test_an_interpolation_is_one_operation(is_by_scales: bool) -> None:
    src, dst = Quantization("u8", 0.1, 5), Quantization("u8", 0.09, 0)
    nodes, constants = resize((8, 8), (1, 16, 4, 4), mode="linear")
    if is_by_scales:
        nodes[0].input[:] = ["x_f", "", "scales"]
        constants = [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")]
    network = network_of(nodes, constants, {"x": (integers_of(src, 1, 16, 4, 4, seed=0), src)}, dst, (1, 16, 8, 8))
    (op,) = lower_network(network).ops
    (function,) = op.attributes.post_ops
    assert isinstance(function, EltwisePostOp)
    assert (op.kind, function.algorithm) == ("resampling", "linear")
    assert (function.alpha, function.beta) == pytest.approx((0.1 / 0.09, -0.5 / 0.09))


def test_scales_that_are_not_the_ratio_of_the_extents_are_computed_in_f32() -> None:
    src = Quantization("u8", 0.1, 5)
    nodes, _ = resize((7, 8), (1, 16, 4, 4), mode="linear")
    nodes[0].input[:] = ["x_f", "", "scales"]
    constants = [numpy_helper.from_array(np.array([1, 1, 1.9, 2], np.float32), "scales")]
    network = network_of(nodes, constants, {"x": (integers_of(src, 1, 16, 4, 4, seed=0), src)}, src, (1, 16, 7, 8))
    assert [one.operator for one in network.nodes] == ["DequantizeLinear", "Resize", "QuantizeLinear"]


@pytest.mark.parametrize("mode", ["align_corners", "asymmetric"])
def test_other_coordinates_are_computed_in_f32(mode: str) -> None:
    src = Quantization("u8", 0.1, 5)
    nodes, constants = resize((8, 8), (1, 16, 4, 4), mode="linear", coordinate_transformation_mode=mode)
    network = network_of(nodes, constants, {"x": (integers_of(src, 1, 16, 4, 4, seed=0), src)}, src, (1, 16, 8, 8))
    kinds = [op.kind for op in lower_network(network).ops if op.kind != "view"]
    assert kinds == ["reorder", "matmul", "matmul", "reorder"]
