"""Two networks that phones and small servers run, with random weights: ResNet-18 and MobileNet-V3 large.

As exporters write them: batch normalization folded into convolutions, hard swish as an operator.

>>> [len(make().graph.node) for make in (resnet18, mobilenet_v3)]
[49, 140]

Source: He et al., "Deep Residual Learning for Image Recognition", 2016; Howard et al., "Searching for MobileNetV3",
2019.
"""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.networks import IR_VERSION, Floats, Model, he_normal

_OPSET = 17
_CLASSES = 1000

_MOBILE = (
    # kernel, expanded, channels, excites, activation, stride
    (3, 16, 16, False, "Relu", 1),
    (3, 64, 24, False, "Relu", 2),
    (3, 72, 24, False, "Relu", 1),
    (5, 72, 40, True, "Relu", 2),
    (5, 120, 40, True, "Relu", 1),
    (5, 120, 40, True, "Relu", 1),
    (3, 240, 80, False, "HardSwish", 2),
    (3, 200, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 480, 112, True, "HardSwish", 1),
    (3, 672, 112, True, "HardSwish", 1),
    (5, 672, 160, True, "HardSwish", 2),
    (5, 960, 160, True, "HardSwish", 1),
    (5, 960, 160, True, "HardSwish", 1),
)
"""The blocks of MobileNet-V3 large."""


class _Writer:
    """Nodes and weights of a chain, and the tensor that it ends in."""

    def __init__(self, channels: int) -> None:
        """Begin with an image of so many channels."""
        self._rng = np.random.default_rng(0)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self.last, self.channels = "image", channels

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; it reads the last tensor if no input is named, and writes the last one."""
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs or (self.last,), [name], name, **attributes))
        self.last = name
        return name

    def weights(self, values: Floats) -> str:
        """Add a constant."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, channels: int, kernel: int, stride: int = 1, group: int = 1, activation: str = "") -> str:
        """Add a convolution with bias, and what follows it."""
        shape = (channels, self.channels // group, kernel, kernel)
        fan_in = shape[1] * kernel * kernel
        weights = self.weights(he_normal(self._rng, shape, fan_in))
        bias = self.weights(self._rng.standard_normal(channels, np.float32) * np.float32(0.1))
        pads, self.channels = [kernel // 2] * 4, channels
        windows = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
        self.node("Conv", self.last, weights, bias, group=group, **windows)
        return self.node(activation) if activation else self.last

    def linear(self, features: int) -> str:
        """Add a matrix product with bias."""
        weights = self.weights(he_normal(self._rng, (features, self.channels), self.channels))
        bias = self.weights(self._rng.standard_normal(features, np.float32) * np.float32(0.1))
        self.channels = features
        return self.node("Gemm", self.last, weights, bias, transB=1)

    def excite(self, squeezed: int) -> str:
        """Scale each channel by a number that is computed from all of them."""
        source, channels = self.last, self.channels
        self.node("GlobalAveragePool")
        self.conv(squeezed, 1, activation="Relu")
        self.conv(channels, 1)
        gate = self.node("HardSigmoid", alpha=1 / 6, beta=0.5)
        return self.node("Mul", source, gate)

    def model(self, name: str, size: int) -> Model:
        """The model, of an image of `size` x `size`."""
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, size, size))
        scores = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, (1, _CLASSES))
        graph = helper.make_graph(self._nodes, name, [image], [scores], self._weights)
        opset = helper.make_opsetid("", _OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)


def resnet18(size: int = 224) -> Model:
    """ResNet-18, batch 1."""
    writer = _Writer(3)
    writer.conv(64, 7, 2, activation="Relu")
    writer.node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for channels in (64, 128, 256, 512):
        for block in range(2):
            _residual(writer, channels, 2 if channels > 64 and block == 0 else 1)
    writer.node("GlobalAveragePool")
    writer.node("Flatten")
    writer.linear(_CLASSES)
    return writer.model("resnet18", size)


def _residual(writer: _Writer, channels: int, stride: int) -> None:
    source, before = writer.last, writer.channels
    writer.conv(channels, 3, stride, activation="Relu")
    main = writer.conv(channels, 3)
    if stride > 1:
        writer.last, writer.channels = source, before
        source = writer.conv(channels, 1, stride)
    writer.node("Add", main, source)
    writer.node("Relu")


def mobilenet_v3(size: int = 224) -> Model:
    """MobileNet-V3 large, batch 1."""
    writer = _Writer(3)
    writer.conv(16, 3, 2, activation="HardSwish")
    for kernel, expanded, channels, excites, activation, stride in _MOBILE:
        source, before = writer.last, writer.channels
        if expanded != before:
            writer.conv(expanded, 1, activation=activation)
        writer.conv(expanded, kernel, stride, group=expanded, activation=activation)
        if excites:
            writer.excite(max(8, (expanded // 4 + 4) // 8 * 8))
        writer.conv(channels, 1)
        if stride == 1 and channels == before:
            writer.node("Add", writer.last, source)
    writer.conv(960, 1, activation="HardSwish")
    writer.node("GlobalAveragePool")
    writer.node("Flatten")
    writer.linear(1280)
    writer.node("HardSwish")
    writer.linear(_CLASSES)
    return writer.model("mobilenet_v3", size)
