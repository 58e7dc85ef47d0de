"""Transposed convolutions of integers beside NumPy: drawn scales, zero points, groups, strides and padding."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from inlay.graph.lowering.translation import lower_network
from inlay.graph.op_graph import Array
from inlay.graph.runtime.program_session import ProgramSession
from tests.graph.quantized.test_integers import (
    FUNCTIONS,
    Quantization,
    assert_is_quantized,
    integers_of,
    network_of,
    node,
    quantizations,
    run,
)
from tests.support.graph_programs import plain_plan


def convolve_transposed(image: Array, kernel: Array, groups: int, stride: int, dilation: int, pads: list[int]) -> Array:
    """A transposed convolution that adds each source element times the weights; `pads` of each axis are cut off."""
    batch, _, height, width = image.shape
    inputs, outputs, taps = kernel.shape[0] // groups, kernel.shape[1], kernel.shape[2]
    extent = (taps - 1) * dilation + 1
    full = np.zeros((batch, groups * outputs, (height - 1) * stride + extent, (width - 1) * stride + extent))
    for group in range(groups):
        part = image[:, group * inputs : (group + 1) * inputs]
        weights = kernel[group * inputs : (group + 1) * inputs]
        for i in range(taps):
            for j in range(taps):
                products = np.einsum("ncyx,co->noyx", part, weights[:, :, i, j])
                rows = slice(i * dilation, i * dilation + (height - 1) * stride + 1, stride)
                columns = slice(j * dilation, j * dilation + (width - 1) * stride + 1, stride)
                full[:, group * outputs : (group + 1) * outputs, rows, columns] += products
    before, after = pads
    return full[:, :, before : full.shape[2] - after, before : full.shape[3] - after]


class DeconvolutionCase:
    """A transposed convolution with drawn dims and constants."""

    def __init__(self, draw: Callable[..., Any], src: Quantization) -> None:
        self.src, seed = src, draw(st.integers(0, 9))
        self.groups, each, outputs = draw(st.sampled_from([(1, 3, 8), (1, 16, 16), (1, 32, 3), (4, 4, 2), (16, 1, 1)]))
        size, self.stride, self.dilation = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
        least = (size - 1) * self.dilation
        self.pads = [draw(st.integers(0, least // 2)), draw(st.integers(0, least // 2))]
        kind, channels, rng = draw(st.sampled_from(["s8", "u8"])), self.groups * each, np.random.default_rng(seed)
        self.kernel = Quantization(kind, 1.0, 0 if kind == "s8" else 128)
        self.weights = integers_of(self.kernel, channels, outputs, size, size, seed=seed)
        self.scales = rng.uniform(0.001, 0.02, (outputs,) if draw(st.booleans()) else ()).astype(np.float32)
        self.bias = rng.normal(0, 2, self.groups * outputs).astype(np.float32)
        self.x = integers_of(src, 2, channels, 6, 5, seed=seed)

    def constants(self) -> list[Any]:
        zeros = np.full(self.scales.shape, self.kernel.zero_point, self.kernel.dtype)
        values = {"w": self.weights, "w_s": self.scales, "w_z": zeros, "b": self.bias}
        return [numpy_helper.from_array(array, name) for name, array in values.items()]

    def nodes(self) -> list[Any]:
        pads = [self.pads[0]] * 2 + [self.pads[1]] * 2
        attributes = {"strides": [self.stride] * 2, "dilations": [self.dilation] * 2, "pads": pads}
        return [
            node("DequantizeLinear", "w w_s w_z", "w_f", axis=1),
            node("ConvTranspose", "x_f w_f b", "c", group=self.groups, **attributes),
        ]

    def real(self) -> Array:
        along = self.scales.astype(np.float64).reshape(1, -1, 1, 1)
        weights = (self.weights.astype(np.float64) - self.kernel.zero_point) * along
        window = self.stride, self.dilation, self.pads
        sums = convolve_transposed(self.src.real(self.x), weights, self.groups, *window)
        return np.asarray(sums + self.bias.astype(np.float64).reshape(1, -1, 1, 1))


@pytest.mark.parametrize("engine", ["reference", pytest.param(None, id="planned")])
@settings(max_examples=60)
@given(data=st.data())
def test_a_transposed_convolution_is_that_of_integers(engine: str | None, data: st.DataObject) -> None:
    src, dst = data.draw(quantizations()), data.draw(st.none() | quantizations())
    case, function = DeconvolutionCase(data.draw, src), data.draw(st.sampled_from(sorted(FUNCTIONS)))
    real = FUNCTIONS[function](case.real())
    nodes = [*case.nodes(), node(function, "c", "r")]
    found = run(nodes, case.constants(), {"x": (case.x, src)}, dst, real.shape, engine)
    assert_is_quantized(found, real, dst)


@pytest.mark.parametrize("dst", [Quantization("u8", 0.2, 100), None])
def test_a_transposed_convolution_is_one_operation(dst: Quantization | None) -> None:
    constants = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in (("w", np.ones((16, 8, 2, 2), np.int8)), ("w_s", np.float32(0.1)), ("w_z", np.int8(0)))
    ]
    nodes = [
        node("DequantizeLinear", "w w_s w_z", "w_f"),
        node("ConvTranspose", "x_f w_f", "c", strides=[2, 2]),
        node("Relu", "c", "r"),
    ]
    src = Quantization("u8", 0.1, 7)
    inputs = {"x": (integers_of(src, 1, 16, 4, 4, seed=0), src)}
    ops = lower_network(network_of(nodes, constants, inputs, dst, (1, 8, 8, 8))).ops
    kinds = [op.kind for op in ops if op.kind != "view"]
    assert kinds == (["deconvolution"] if dst else ["deconvolution", "eltwise"])


@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        (4, {"auto_pad": "SAME_UPPER"}),
        (3, {"auto_pad": "SAME_LOWER"}),
        (3, {"output_shape": [8, 10]}),
        (4, {"output_shape": [8, 10]}),
    ],
)
def test_padding_that_follows_from_dims_is_that_of_onnx(size: int, attributes: dict[str, Any]) -> None:
    """An odd number of elements of padding, which a primitive does not have, is cut off by ONNX Runtime or NumPy."""
    src, dst = Quantization("u8", 0.05, 120), Quantization("u8", 0.08, 100)
    weights = np.random.default_rng(0).integers(-60, 61, (4, 3, size, size)).astype(np.int8)
    constants = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in (("w", weights), ("w_s", np.float32(0.01)), ("w_z", np.int8(0)))
    ]
    nodes = [
        node("DequantizeLinear", "w w_s w_z", "w_f"),
        node("ConvTranspose", "x_f w_f", "r", strides=[2, 2], **attributes),
    ]
    x = integers_of(src, 2, 4, 4, 5, seed=0)
    lowered = lower_network(network_of(nodes, constants, {"x": (x, src)}, dst, (2, 3, 8, 10)))
    with ProgramSession(plain_plan(lowered).program, lowered, engine="reference") as session:
        found = session.run({"x": x})["y"]
    half, rest = divmod(size - 2, 2)
    pads = [half + rest, half] if attributes.get("auto_pad") != "SAME_UPPER" else [half, half + rest]
    real = convolve_transposed(src.real(x), weights * np.float64(np.float32(0.01)), 1, 2, 1, pads)
    assert_is_quantized(found, real, dst)
