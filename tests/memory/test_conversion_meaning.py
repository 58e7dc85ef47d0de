"""`CONVENTIONS` against the frameworks: a convolution over logical axes computes what the framework computes.

A convolution, a deconvolution and a layer of gates are implemented over oneDNN's logical axes. Their weights are arrays
of a framework, read through the descriptor from `CONVENTIONS`, so a wrong letter causes a wrong result.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay.memory import Memory
from inlay.memory.axis_orders import AxisOrder, Role, conv_orders, framework_desc, from_logical, to_logical
from inlay.memory.frameworks import from_jax

Array = npt.NDArray[Any]
GROUPS = pytest.mark.parametrize("groups", [None, 1, 2, 3])


def random(*shape: int) -> Array:
    """Small whole numbers: sums are exact."""
    return np.random.default_rng(7).integers(-4, 5, shape).astype(np.float32)


def logical(
    framework: str, role: Role, array: Array, groups: int | None = None, order: AxisOrder | str | None = None
) -> Array:
    desc = framework_desc(framework, role, array.shape, "f32", groups=groups, order=order)
    return Memory(desc, np.ascontiguousarray(array)).unpack()


def in_groups(src: Array, groups: int | None) -> Array:
    return src.reshape(src.shape[0], groups or 1, -1, *src.shape[2:])


def convolution(src: Array, weights: Array, groups: int | None) -> Array:
    """Convolve src (N, GI, H, W) with weights (G, O, I, KH, KW), no G if groups is None; return (N, GO, H', W')."""
    weights = weights if groups else weights[None]
    windows = np.lib.stride_tricks.sliding_window_view(in_groups(src, groups), weights.shape[3:], (3, 4))
    dst: Array = np.einsum("ngihwyx,goiyx->ngohw", windows, weights)
    return dst.reshape(dst.shape[0], -1, *dst.shape[3:])


def deconvolution(src: Array, weights: Array, groups: int | None) -> Array:
    """Convolve the padded src with the flipped kernel: each element of src spreads over the kernel."""
    pads = [(size - 1, size - 1) for size in weights.shape[-2:]]
    return convolution(np.pad(src, [(0, 0), (0, 0), *pads]), weights[..., ::-1, ::-1], groups)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def onnx_run(operation: str, inputs: dict[str, Array], outputs: int = 1, **attributes: Any) -> list[Array]:
    """Return the results of ONNX's reference evaluator."""
    helper = pytest.importorskip("onnx.helper", reason="onnx is not installed")
    evaluator = pytest.importorskip("onnx.reference", reason="onnx is not installed")
    node = helper.make_node(operation, list(inputs), [f"y{i}" for i in range(outputs)], **attributes)
    result: list[Array] = evaluator.ReferenceEvaluator(node).run(None, inputs)
    return result


class TestOnnx:
    @GROUPS
    def test_convolution(self, groups: int | None) -> None:
        src, weights = random(2, 6, 5, 4), random(12, 6 // (groups or 1), 3, 2)
        (expected,) = onnx_run("Conv", {"x": src, "w": weights}, group=groups or 1)
        assert np.array_equal(convolution(src, logical("onnx", "weights", weights, groups), groups), expected)

    @pytest.mark.parametrize("groups", [None, 1])  # the reference evaluator of onnx 1.23 fails on more
    def test_deconvolution(self, groups: int | None) -> None:
        src, weights = random(2, 6, 3, 4), random(6, 4, 3, 2)
        (expected,) = onnx_run("ConvTranspose", {"x": src, "w": weights})
        dims = logical("onnx", "deconvolution_weights", weights, groups)
        assert np.array_equal(deconvolution(src, dims, groups), expected)

    def test_linear(self) -> None:
        src, weights = random(2, 3), random(3, 5)
        (expected,) = onnx_run("Gemm", {"x": src, "w": weights})
        assert np.array_equal(np.einsum("ni,oi->no", src, logical("onnx", "linear_weights", weights)), expected)

    def test_the_gates_of_an_lstm(self) -> None:
        """With zero state, h = o * tanh(i * c): the gates i, o, f, c of ONNX are axis G of oneDNN's weights."""
        src, weights = random(1, 2, 3) / 8, random(1, 4 * 5, 3) / 8
        inputs: dict[str, Array] = {"x": src, "w": weights, "r": np.zeros((1, 20, 5), np.float32)}
        expected = onnx_run("LSTM", inputs, 2, hidden_size=5)[1]
        dims = logical("onnx", "rnn_weights", weights, groups=4)
        assert dims.shape == (1, 1, 3, 4, 5)
        gates = np.einsum("tni,ldigo->dngo", logical("onnx", "rnn_activations", src), dims)
        i, o, _, c = np.moveaxis(gates, 2, 0)
        assert np.allclose(np.tanh(np.tanh(c) * sigmoid(i)) * sigmoid(o), expected, atol=1e-6)


@pytest.mark.heavy
class TestTorch:
    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="torch is not installed: make test-all brings it")

    @GROUPS
    def test_convolution(self, torch: Any, groups: int | None) -> None:
        src, weights = random(2, 6, 5, 4), random(12, 6 // (groups or 1), 3, 2)
        expected = torch.nn.functional.conv2d(torch.tensor(src), torch.tensor(weights), groups=groups or 1)
        dims = logical("pytorch", "weights", weights, groups)
        assert np.array_equal(convolution(src, dims, groups), expected.numpy())

    @GROUPS
    def test_deconvolution(self, torch: Any, groups: int | None) -> None:
        src, weights = random(2, 6, 3, 4), random(6, 4, 3, 2)
        expected = torch.nn.functional.conv_transpose2d(torch.tensor(src), torch.tensor(weights), groups=groups or 1)
        dims = logical("pytorch", "deconvolution_weights", weights, groups)
        assert np.array_equal(deconvolution(src, dims, groups), expected.numpy())

    def test_linear(self, torch: Any) -> None:
        src, weights = random(2, 3), random(5, 3)
        expected = torch.nn.functional.linear(torch.tensor(src), torch.tensor(weights)).numpy()
        assert np.array_equal(np.einsum("ni,oi->no", src, logical("pytorch", "linear_weights", weights)), expected)

    def test_the_gates_of_an_lstm(self, torch: Any) -> None:
        """With zero state, h = o * tanh(i * g): the gates i, f, g, o of PyTorch are axis G of oneDNN's weights."""
        layer = torch.nn.LSTM(3, 5, bias=False)
        src = random(1, 2, 3)
        dims = logical("pytorch", "rnn_weights", layer.weight_ih_l0.detach().numpy(), groups=4)
        gates = np.einsum("tni,ldigo->tngo", logical("pytorch", "rnn_activations", src), dims)
        i, _, g, o = np.moveaxis(gates, 2, 0)
        expected = layer(torch.tensor(src))[0].detach().numpy()
        assert np.allclose(np.tanh(np.tanh(g) * sigmoid(i)) * sigmoid(o), expected, atol=1e-6)


@pytest.mark.heavy
class TestJax:
    """JAX says TensorFlow's orders too, so they are proven here without TensorFlow."""

    @pytest.fixture
    def jax(self) -> Any:
        return pytest.importorskip("jax", reason="jax is not installed: make test-all brings it")

    @pytest.mark.parametrize("numbers", [None, ("NHWC", "HWIO", "NHWC"), ("NWCH", "OWHI", "CNWH")])
    @pytest.mark.parametrize("groups", [None, 2])
    def test_convolution(self, jax: Any, numbers: tuple[str, str, str] | None, groups: int | None) -> None:
        lhs, rhs, out = conv_orders(numbers)
        src, weights = from_logical(random(2, 6, 5, 4), lhs), from_logical(random(4, 6 // (groups or 1), 3, 2), rhs)
        expected = jax.lax.conv_general_dilated(
            src, weights, (1, 1), "VALID", dimension_numbers=numbers, feature_group_count=groups or 1
        )
        dims = logical("jax", "weights", weights, groups, str(rhs).replace("O", "(GO)"))
        result = convolution(logical("jax", "activations", src, order=lhs), dims, groups)
        assert np.array_equal(result, to_logical(from_jax(expected).unpack(), out))

    @pytest.mark.parametrize("groups", [None, 2])
    def test_the_weights_of_tensorflow(self, jax: Any, groups: int | None) -> None:
        src, weights = random(2, 5, 4, 6), random(3, 2, 6 // (groups or 1), 4)
        expected = jax.lax.conv_general_dilated(
            src, weights, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups or 1
        )
        dims = logical("tensorflow", "weights", weights, groups)
        result = convolution(logical("tensorflow", "activations", src), dims, groups)
        assert np.array_equal(from_logical(result, "NHWC"), np.asarray(expected))

    @pytest.mark.parametrize("framework", ["tensorflow", "jax"])
    def test_deconvolution(self, jax: Any, framework: str) -> None:
        src, weights = random(2, 3, 4, 6), random(3, 2, 5, 6)
        expected = jax.lax.conv_transpose(src, weights, (1, 1), "VALID", transpose_kernel=True)
        dims = logical(framework, "deconvolution_weights", weights)
        result = deconvolution(logical("tensorflow", "activations", src), dims, None)
        assert np.array_equal(from_logical(result, "NHWC"), np.asarray(expected))

    @pytest.mark.parametrize("numbers", [None, ("NHWC", "HWIO", "NHWC"), ("N01C", "10IO", "NC10")])
    def test_orders_are_those_of_conv_dimension_numbers(self, jax: Any, numbers: tuple[str, str, str] | None) -> None:
        assert conv_orders(jax.lax.conv_dimension_numbers((2, 3, 4, 5), (2, 3, 4, 5), numbers)) == conv_orders(numbers)
