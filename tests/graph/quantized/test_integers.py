"""Operators on integers beside NumPy, which computes them in 64 bits: drawn scales, zero points, types and dims."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from inlay.graph.costs import analytic, probed
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from inlay.graph.plan import plan_graph
from inlay.graph.planner.dequantization import dequantize_unsupported
from inlay.graph.runtime.program_session import ProgramSession
from tests.support.graph_programs import plain_plan

TYPES = {"u8": np.dtype(np.uint8), "s8": np.dtype(np.int8)}
KINDS = {"u8": TensorProto.UINT8, "s8": TensorProto.INT8}


class Quantization:
    """A type with a scale and a zero point."""

    def __init__(self, data_type: str, scale: float, zero_point: int) -> None:
        self.data_type, self.scale, self.zero_point = data_type, np.float32(scale), zero_point
        self.dtype = TYPES[data_type]
        info = np.iinfo(self.dtype)
        self.low, self.high = int(info.min), int(info.max)

    def real(self, integers: Array) -> Array:
        return (integers.astype(np.float64) - self.zero_point) * np.float64(self.scale)

    def quantize(self, real: Array) -> Array:
        return np.asarray(np.clip(np.rint(real / np.float64(self.scale)) + self.zero_point, self.low, self.high))

    def constants(self, name: str) -> list[Any]:
        zero = np.array(self.zero_point, self.dtype)
        return [
            numpy_helper.from_array(array, f"{name}_{end}")
            for end, array in (("s", np.asarray(self.scale)), ("z", zero))
        ]


@st.composite
def quantizations(draw: st.DrawFn, data_type: str | None = None) -> Quantization:
    kind = data_type or draw(st.sampled_from(sorted(TYPES)))
    info = np.iinfo(TYPES[kind])
    return Quantization(kind, draw(st.floats(0.004, 0.3)), draw(st.integers(int(info.min), int(info.max))))


def integers_of(quantization: Quantization, *dims: int, seed: int) -> Array:
    draw = np.random.default_rng(seed).integers(quantization.low, quantization.high + 1, dims)
    return draw.astype(quantization.dtype)


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), [output], name=output, **attributes)


def network_of(
    nodes: list[Any],
    constants: list[Any],
    inputs: dict[str, tuple[Array, Quantization]],
    dst: Quantization | None,
    dims: tuple[int, ...],
) -> Network:
    """A network that reads integers, dequantizes them, computes `r`, and quantizes it."""
    before = [node("DequantizeLinear", f"{name} {name}_s {name}_z", f"{name}_f") for name in inputs]
    values = [value for name, (_, quantization) in inputs.items() for value in quantization.constants(name)]
    after = [node("QuantizeLinear", "r y_s y_z", "y")] if dst else [node("Identity", "r", "y")]
    values += dst.constants("y") if dst else []
    sources = [
        helper.make_tensor_value_info(name, KINDS[quantization.data_type], array.shape)
        for name, (array, quantization) in inputs.items()
    ]
    result = helper.make_tensor_value_info("y", KINDS[dst.data_type] if dst else TensorProto.FLOAT, dims)
    graph = helper.make_graph([*before, *nodes, *after], "g", sources, [result], [*values, *constants])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return load_bound(model.SerializeToString())


def run(
    nodes: list[Any],
    constants: list[Any],
    inputs: dict[str, tuple[Array, Quantization]],
    dst: Quantization | None,
    dims: tuple[int, ...],
    engine: str | None,
) -> Array:
    """The result of `network_of`, by the reference engine in plain formats or as it is planned.

    Planned, it has no integers for which this processor has no exact kernel.
    """
    lowered = lower_network(network_of(nodes, constants, inputs, dst, dims))
    assert [op.why for op in lowered.ops if op.kind == "reference"] == []
    lowered = lowered if engine else dequantize_unsupported(lowered, probed())
    plan = plain_plan(lowered) if engine else plan_graph(lowered, analytic("avx512_core_vnni"))
    with ProgramSession(plan.program, lowered, engine=engine) as session:
        return session.run({name: array for name, (array, _) in inputs.items()})["y"]


def assert_is_quantized(found: Array, real: Array, dst: Quantization | None) -> None:
    """The result is the real one, quantized: within a quantum, and only where it is nearly halfway."""
    if dst is None:
        np.testing.assert_allclose(found, real, rtol=1e-4, atol=1e-4 * np.abs(real).max(initial=1e-3))
        return
    assert found.dtype == dst.dtype
    differs = found != dst.quantize(real)
    halfway = np.abs(np.abs(real / np.float64(dst.scale)) % 1 - 0.5)
    assert np.abs(found.astype(int) - dst.quantize(real)).max(initial=0) <= 1
    assert (halfway[differs] < 1e-2).all()


def convolve(image: Array, kernel: Array, groups: int, stride: int, pad: int) -> Array:
    """A convolution by sums over windows; padding is 0."""
    padded = np.pad(image, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, 1), np.split(kernel, groups, 0), strict=True)
    return np.concatenate([np.einsum("ncyxij,ocij->noyx", one, other) for one, other in parts], 1)


class ConvolutionCase:
    """A convolution with drawn dims and constants."""

    def __init__(self, draw: Callable[..., Any], src: Quantization) -> None:
        self.src, seed = src, draw(st.integers(0, 9))
        self.groups, each, outputs = draw(st.sampled_from([(1, 3, 8), (1, 16, 16), (4, 4, 2), (16, 1, 1)]))
        size = draw(st.integers(1, 3))
        self.stride, self.pad = draw(st.integers(1, 2)), draw(st.integers(0, 1))
        kind, channels, rng = draw(st.sampled_from(["s8", "u8"])), self.groups * outputs, np.random.default_rng(seed)
        self.kernel = Quantization(kind, 1.0, 0 if kind == "s8" else 128)
        self.weights = integers_of(self.kernel, channels, each, size, size, seed=seed)
        shape = (channels,) if draw(st.booleans()) else ()
        self.scales = rng.uniform(0.001, 0.02, shape).astype(np.float32)
        self.bias, self.bias_scale = rng.integers(-500, 500, channels).astype(np.int32), src.scale * self.scales
        self.x = integers_of(src, 2, self.groups * each, 7, 6, seed=seed)

    def constants(self) -> list[Any]:
        zeros = np.full(self.scales.shape, self.kernel.zero_point, self.kernel.dtype)
        values = {"w": self.weights, "w_s": self.scales, "w_z": zeros, "b": self.bias}
        values |= {"b_s": np.asarray(self.bias_scale, np.float32), "b_z": np.zeros(self.scales.shape, np.int32)}
        return [numpy_helper.from_array(array, name) for name, array in values.items()]

    def nodes(self) -> list[Any]:
        attributes = {"strides": [self.stride] * 2, "pads": [self.pad] * 4, "group": self.groups}
        return [
            node("DequantizeLinear", "w w_s w_z", "w_f", axis=0),
            node("DequantizeLinear", "b b_s b_z", "b_f", axis=0),
            node("Conv", "x_f w_f b_f", "c", **attributes),
        ]

    def real(self) -> Array:
        along = self.scales.astype(np.float64).reshape(-1, 1, 1, 1)
        weights = (self.weights.astype(np.float64) - self.kernel.zero_point) * along
        sums = convolve(self.src.real(self.x), weights, self.groups, self.stride, self.pad)
        return np.asarray(sums + (self.bias * self.bias_scale.astype(np.float64)).reshape(1, -1, 1, 1))


FUNCTIONS = {
    "Identity": lambda real: real,
    "Relu": lambda real: np.maximum(real, 0),
    "LeakyRelu": lambda real: np.where(real < 0, np.float32(0.01) * real, real),
}


@pytest.mark.parametrize("engine", ["reference", pytest.param(None, id="planned")])
@settings(max_examples=40)
@given(data=st.data())
def test_a_convolution_is_that_of_integers(engine: str | None, data: st.DataObject) -> None:
    src, dst = data.draw(quantizations()), data.draw(st.none() | quantizations())
    case, function = ConvolutionCase(data.draw, src), data.draw(st.sampled_from(sorted(FUNCTIONS)))
    real = FUNCTIONS[function](case.real())
    nodes = [*case.nodes(), node(function, "c", "r")]
    found = run(nodes, case.constants(), {"x": (case.x, src)}, dst, real.shape, engine)
    assert_is_quantized(found, real, dst)


def test_the_parts_of_a_split_are_integers() -> None:
    src, dst = Quantization("u8", 0.1, 3), Quantization("u8", 0.2, 40)
    x = integers_of(src, 1, 16, 4, 4, seed=0)
    sizes = [numpy_helper.from_array(np.array([6, 10]), "sizes")]
    nodes = [node("Split", "x_f sizes", "one", axis=1)]
    nodes[0].output.append("r")
    found = run(nodes, sizes, {"x": (x, src)}, dst, (1, 10, 4, 4), None)
    assert_is_quantized(found, src.real(x[:, 6:]), dst)


@pytest.mark.parametrize("engine", ["reference", pytest.param(None, id="planned")])
@settings(max_examples=40)
@given(data=st.data())
def test_a_matrix_product_is_that_of_integers(engine: str | None, data: st.DataObject) -> None:
    draw = data.draw
    src, dst, seed = draw(quantizations()), draw(st.none() | quantizations()), draw(st.integers(0, 9))
    stack = draw(st.sampled_from([(), (3,), (2, 3)]))
    rows, inner, columns = draw(st.integers(1, 5)), draw(st.sampled_from([1, 5, 64])), draw(st.sampled_from([1, 7, 16]))
    x = integers_of(src, *stack, rows, inner, seed=seed)
    is_constant = draw(st.booleans())
    other = draw(quantizations())
    w = integers_of(other, *(() if is_constant else stack), inner, columns, seed=seed + 1)
    inputs, constants = {"x": (x, src)}, list[Any]()
    nodes = [node("MatMul", "x_f w_f", "r")]
    real_weights = other.real(w)
    if not is_constant:
        inputs["w"] = (w, other)
    else:
        scales = np.random.default_rng(seed).uniform(0.01, 0.1, columns).astype(np.float32)
        zeros = np.full(columns, other.zero_point, other.dtype)
        constants = [numpy_helper.from_array(v, n) for n, v in (("w", w), ("w_s", scales), ("w_z", zeros))]
        nodes.insert(0, node("DequantizeLinear", "w w_s w_z", "w_f", axis=-1))
        real_weights = (w.astype(np.float64) - other.zero_point) * scales.astype(np.float64)
    real = src.real(x) @ real_weights
    assert_is_quantized(run(nodes, constants, inputs, dst, real.shape, engine), real, dst)


@pytest.mark.parametrize("engine", ["reference", pytest.param(None, id="planned")])
@settings(max_examples=40)
@given(data=st.data())
def test_a_sum_is_that_of_integers(engine: str | None, data: st.DataObject) -> None:
    draw = data.draw
    src, other, dst, seed = *(draw(quantizations()) for _ in range(3)), draw(st.integers(0, 9))
    dims, other_dims = draw(st.sampled_from([((2, 16, 5, 4), (2, 16, 5, 4)), ((3, 8), (8,)), ((2, 4, 6), (1, 4, 1))]))
    function = draw(st.sampled_from(["Identity", "Relu"]))
    x, w = integers_of(src, *dims, seed=seed), integers_of(other, *other_dims, seed=seed + 1)
    real = src.real(x) + other.real(w)
    real = np.maximum(real, 0) if function == "Relu" else real
    names = draw(st.permutations(["x_f", "w_f"]))
    nodes = [node("Add", " ".join(names), "a"), node(function, "a", "r")]
    inputs = {"x": (x, src)}
    if draw(st.booleans()):
        nodes.insert(0, node("DequantizeLinear", "w w_s w_z", "w_f"))
        constants = [numpy_helper.from_array(w, "w"), *other.constants("w")]
    else:
        inputs["w"], constants = (w, other), []
    assert_is_quantized(run(nodes, constants, inputs, dst, dims, engine), real, dst)


@pytest.mark.parametrize("engine", ["reference", pytest.param(None, id="planned")])
@pytest.mark.parametrize("operator", ["AveragePool", "GlobalAveragePool"])
@settings(max_examples=25)
@given(data=st.data())
def test_a_mean_is_that_of_integers(operator: str, engine: str | None, data: st.DataObject) -> None:
    draw = data.draw
    src, dst, seed = draw(quantizations()), draw(quantizations()), draw(st.integers(0, 9))
    x = integers_of(src, 2, draw(st.sampled_from([3, 16])), 6, 6, seed=seed)
    blocks = src.real(x).reshape(2, -1, 3, 2, 3, 2)
    is_global = operator == "GlobalAveragePool"
    real = blocks.mean((2, 3, 4, 5))[:, :, None, None] if is_global else blocks.mean((3, 5))
    counts_padding = draw(st.integers(0, 1))
    attributes = {} if is_global else {"kernel_shape": [2, 2], "strides": [2, 2], "count_include_pad": counts_padding}
    nodes = [node(operator, "x_f", "r", **attributes)]
    assert_is_quantized(run(nodes, [], {"x": (x, src)}, dst, real.shape, engine), real, dst)


def test_a_relu_that_the_quantizer_deleted_is_the_saturation() -> None:
    src, dst = Quantization("u8", 0.1, 128), Quantization("u8", 0.05, 0)
    x = integers_of(src, 1, 16, 4, 4, seed=0)
    found = run([node("Identity", "x_f", "r")], [], {"x": (x, src)}, dst, x.shape, None)
    assert found.min() == 0
    np.testing.assert_array_equal(found, dst.quantize(np.maximum(src.real(x), 0)))


@pytest.mark.parametrize("engine", ["reference", pytest.param(None, id="planned")])
@settings(max_examples=40)
@given(data=st.data())
def test_a_batch_normalization_is_that_of_integers(engine: str | None, data: st.DataObject) -> None:
    draw = data.draw
    src, dst, seed = draw(quantizations()), draw(quantizations()), draw(st.integers(0, 9))
    channels, function = draw(st.sampled_from([1, 3, 16, 40])), draw(st.sampled_from(sorted(FUNCTIONS)))
    x, rng = integers_of(src, 2, channels, 5, 4, seed=seed), np.random.default_rng(seed)
    values = {"scale": rng.normal(0, 1, channels), "shift": rng.normal(0, 1, channels)}
    values |= {"mean": rng.normal(0, 1, channels), "variance": rng.uniform(0.1, 2, channels)}
    values["scale"][0] = draw(st.sampled_from([0.0, -1.5]))
    values = {name: array.astype(np.float32) for name, array in values.items()}
    constants = [numpy_helper.from_array(array, name) for name, array in values.items()]
    scale, shift, mean, variance = (array.astype(np.float64).reshape(-1, 1, 1) for array in values.values())
    real = FUNCTIONS[function]((src.real(x) - mean) / np.sqrt(variance + 1e-3) * scale + shift)
    inner = node("BatchNormalization", "x_f scale shift mean variance", "n", epsilon=1e-3)
    nodes = [inner, node(function, "n", "r")]
    network = network_of(nodes, constants, {"x": (x, src)}, dst, real.shape)
    assert [one.operator for one in network.nodes] == ["QuantizedConv"]
    assert_is_quantized(run(nodes, constants, {"x": (x, src)}, dst, real.shape, engine), real, dst)


def test_constants_that_are_quantized_in_the_network_are_constants() -> None:
    """A quantizer writes QuantizeLinear of a constant that several nodes share as results of Identity."""
    src, dst = Quantization("u8", 0.1, 3), Quantization("u8", 0.2, 40)
    constants = [
        numpy_helper.from_array(np.ones((8, 16, 1, 1), np.int8), "w"),
        *Quantization("s8", 0.1, 0).constants("w"),
    ]
    nodes = [
        node("DequantizeLinear", "w w_s w_z", "w_f"),
        node("Identity", "w_f", "w_same"),
        node("QuantizeLinear", "w_same w_s w_z", "w_q"),
        node("DequantizeLinear", "w_q w_s w_z", "w_again"),
        node("Conv", "x_f w_again", "r"),
    ]
    x = integers_of(src, 1, 16, 4, 4, seed=0)
    network = network_of(nodes, constants, {"x": (x, src)}, dst, (1, 8, 4, 4))
    assert [one.operator for one in network.nodes] == ["QuantizedConv"]


@pytest.mark.parametrize("zero", [0, 77])
def test_a_pad_between_quantizations_is_padding_of_the_convolution(zero: int) -> None:
    src, dst = Quantization("u8", 0.1, zero), Quantization("u8", 0.2, 40)
    weights = integers_of(Quantization("s8", 1.0, 0), 8, 16, 3, 3, seed=1)
    constants = [numpy_helper.from_array(weights, "w"), *Quantization("s8", 0.01, 0).constants("w")]
    constants += [numpy_helper.from_array(np.array([0, 0, 1, 0, 0, 0, 2, 1]), "sides"), *src.constants("p")]
    nodes = [
        node("DequantizeLinear", "w w_s w_z", "w_f"),
        node("Pad", "x_f sides", "p"),
        node("QuantizeLinear", "p p_s p_z", "p_q"),
        node("DequantizeLinear", "p_q p_s p_z", "p_f"),
        node("Conv", "p_f w_f", "r"),
    ]
    x = integers_of(src, 2, 16, 5, 6, seed=0)
    padded = np.pad(src.real(x), ((0, 0), (0, 0), (1, 2), (0, 1)))
    real = convolve(padded, weights * np.float64(np.float32(0.01)), 1, 1, 0)
    network = network_of(nodes, constants, {"x": (x, src)}, dst, real.shape)
    assert [one.operator for one in network.nodes] == ["QuantizedConv"]
    assert_is_quantized(run(nodes, constants, {"x": (x, src)}, dst, real.shape, None), real, dst)
