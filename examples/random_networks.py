"""Networks with random weights, which the demo, the benchmarks and the tests run.

    light("resnet50", batch=8)      a light model of the `onnx` wheel
    bert(layers=4)                  an encoder as BERT's
    resnet18(), mobilenet_v3()      networks of phones and small servers, batch 1

The light models are real topologies whose large weights are constant fills, so that nearly all results would be
constant too. Here every weight is a seeded random number of a size that suits its role: weights of convolutions and
matrix products are drawn as by He et al., so that activations neither vanish nor explode; scales and variances are
about 1; biases and means are about 0. The files of the light models list weights as inputs too, which keeps runtimes
from folding them: here weights are constants and the version of the format is 8.

>>> light("squeezenet", batch=2).graph.input[0].type.tensor_type.shape.dim[0].dim_value
2
>>> [len(make().graph.node) for make in (resnet18, mobilenet_v3)]
[49, 140]

Source: He et al., "Delving Deep into Rectifiers", 2015; Devlin et al., "BERT", 2018; He et al., "Deep Residual Learning
for Image Recognition", 2016; Howard et al., "Searching for MobileNetV3", 2019.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Floats = npt.NDArray[np.float32]
Model = Any  # onnx.ModelProto, whose package ships no types
Graph = Any
Node = Any

LIGHT = {
    "alexnet": "bvlc_alexnet",
    "densenet121": "densenet121",
    "inception_v1": "inception_v1",
    "inception_v2": "inception_v2",
    "resnet50": "resnet50",
    "shufflenet": "shufflenet",
    "squeezenet": "squeezenet",
    "vgg19": "vgg19",
    "zfnet512": "zfnet512",
}
"""Our name of each light model, and what its file is called."""

IR_VERSION = 8
"""Runtimes take initializers for constants from version 4 on."""


# The light models


def light(name: str, batch: int = 1, seed: int = 0) -> Model:
    """A light model by our name, its weights random: ONNX Runtime and OpenVINO run `.SerializeToString()` of it."""
    model = onnx.load(light_file(name))
    graph = model.graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    fills = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    dims = {node.output[0]: tuple(int(n) for n in values.pop(node.input[0])) for node in fills}
    dims.update({tensor: array.shape for tensor, array in values.items() if array.dtype == np.float32})
    rng = np.random.default_rng(seed)
    roles = _roles(graph)
    drawn = {tensor: _drawn(rng, roles[tensor], shape) for tensor, shape in dims.items() if tensor in roles}
    values = {tensor: array for tensor, array in values.items() if tensor in roles}
    for tensor in _batched_shapes(graph, values):
        values[tensor] = np.concatenate([[batch], values[tensor][1:]]).astype(np.int64)
    _replace(graph, {**values, **drawn}, [node for node in graph.node if node not in fills])
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    model.ir_version = IR_VERSION
    return model


def light_file(name: str) -> Path:
    """Where the `onnx` wheel has the model; its expected output beside it is near-constant, so a smoke test only."""
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{LIGHT[name]}.onnx"


def _roles(graph: Graph) -> dict[str, tuple[str, int]]:
    """To the operator that reads each tensor first, and as which of its inputs; views are looked through."""
    readers = {name: (node, index) for node in reversed(graph.node) for index, name in enumerate(node.input)}

    def role(name: str) -> tuple[str, int]:
        node, index = readers[name]
        through = node.op_type in ("Unsqueeze", "Reshape") and index == 0
        return role(node.output[0]) if through and node.output[0] in readers else (node.op_type, index)

    return {name: role(name) for name in readers}


def _drawn(rng: np.random.Generator, role: tuple[str, int], shape: tuple[int, ...]) -> Floats:
    """Random values of the size that the role asks for."""
    operator, index = role
    if operator in ("Conv", "Gemm") and index == 1:
        return he_normal(rng, shape, math.prod(shape[1:]))
    if operator == "Mul" or (operator == "BatchNormalization" and index in (1, 4)):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return rng.standard_normal(shape, np.float32) * np.float32(0.1)


def he_normal(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> Floats:
    """Normal numbers with variance 2 / `fan_in`."""
    values = rng.standard_normal(shape, np.float32)
    values *= np.float32(math.sqrt(2 / fan_in))
    return values


def _batched_shapes(graph: Graph, values: dict[str, npt.NDArray[Any]]) -> Iterator[str]:
    """Constants that name batch 1 as the first dim of a Reshape."""
    for node in graph.node:
        if node.op_type == "Reshape" and values[node.input[1]][0] == 1:
            yield node.input[1]


def _replace(graph: Graph, values: dict[str, npt.NDArray[Any]], nodes: list[Node]) -> None:
    """These nodes and constants alone are left, and no constant is an input."""
    kept = [value for value in graph.input if value.name not in values and value.name not in _names(graph)]
    tensors = [numpy_helper.from_array(array, name) for name, array in values.items()]
    for field, items in (("node", nodes), ("initializer", tensors), ("input", kept)):
        graph.ClearField(field)
        getattr(graph, field).extend(items)


def _names(graph: Graph) -> set[str]:
    return {tensor.name for tensor in graph.initializer}


# An encoder as BERT's


def bert(
    batch: int = 1, sequence: int = 128, layers: int = 4, hidden: int = 768, heads: int = 12, seed: int = 0
) -> Model:
    """Layers of an encoder as BERT's, from embeddings to the last hidden state, (batch, sequence, hidden), f32.

    Nodes are those of exports: a Gelu of Erf, Reshape and Transpose around the heads, LayerNormalization whole.
    """
    graph = _Encoder(np.random.default_rng(seed), (batch, sequence, hidden), heads)
    name = "embeddings"
    for layer in range(layers):
        name = graph.layer(f"layer{layer}", name)
    value = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, (batch, sequence, hidden)) for n in ("embeddings", name)
    ]
    tensors = [numpy_helper.from_array(array, key) for key, array in graph.constants.items()]
    built = helper.make_graph(graph.nodes, f"bert-{layers}", [value[0]], [value[1]], tensors)
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", 17)], ir_version=IR_VERSION)


class _Encoder:
    """Nodes and constants, as layers are added."""

    def __init__(self, rng: np.random.Generator, dims: tuple[int, int, int], heads: int) -> None:
        self.rng = rng
        self.dims = dims
        self.heads = heads
        self.nodes: list[Node] = []
        self.constants: dict[str, npt.NDArray[Any]] = {
            "sqrt2": np.array(math.sqrt(2), np.float32),
            "one": np.array(1, np.float32),
            "half": np.array(0.5, np.float32),
            "root": np.array(math.sqrt(dims[2] / heads), np.float32),
            "split": np.array([dims[0], dims[1], heads, dims[2] // heads], np.int64),
            "merged": np.array(dims, np.int64),
        }

    def add(self, operator: str, output: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def linear(self, name: str, src: str, rows: int, columns: int) -> str:
        self.constants[f"{name}.weight"] = he_normal(self.rng, (rows, columns), 2 * rows)
        self.constants[f"{name}.bias"] = self.rng.standard_normal(columns, np.float32) * np.float32(0.1)
        product = self.add("MatMul", f"{name}.product", src, f"{name}.weight")
        return self.add("Add", f"{name}.out", product, f"{name}.bias")

    def normalized(self, name: str, src: str, other: str) -> str:
        self.constants[f"{name}.scale"] = self.rng.uniform(0.5, 1.5, self.dims[2]).astype(np.float32)
        self.constants[f"{name}.shift"] = self.rng.standard_normal(self.dims[2], np.float32) * np.float32(0.1)
        added = self.add("Add", f"{name}.sum", src, other)
        inputs = (added, f"{name}.scale", f"{name}.shift")
        return self.add("LayerNormalization", f"{name}.out", *inputs, axis=-1, epsilon=1e-5)

    def head(self, name: str, src: str, perm: tuple[int, ...]) -> str:
        linear = self.linear(name, src, self.dims[2], self.dims[2])
        return self.add("Transpose", f"{name}.heads", self.add("Reshape", f"{name}.split", linear, "split"), perm=perm)

    def attention(self, name: str, src: str) -> str:
        query, value = (self.head(f"{name}.{part}", src, (0, 2, 1, 3)) for part in ("query", "value"))
        key = self.head(f"{name}.key", src, (0, 2, 3, 1))
        scores = self.add("Div", f"{name}.scores", self.add("MatMul", f"{name}.product", query, key), "root")
        weights = self.add("Softmax", f"{name}.weights", scores, axis=-1)
        context = self.add("MatMul", f"{name}.context", weights, value)
        context = self.add("Transpose", f"{name}.turned", context, perm=(0, 2, 1, 3))
        return self.linear(
            f"{name}.dense", self.add("Reshape", f"{name}.merged", context, "merged"), *self.dims[2:] * 2
        )

    def gelu(self, name: str, src: str) -> str:
        erf = self.add("Erf", f"{name}.erf", self.add("Div", f"{name}.scaled", src, "sqrt2"))
        product = self.add("Mul", f"{name}.product", src, self.add("Add", f"{name}.shifted", erf, "one"))
        return self.add("Mul", f"{name}.out", product, "half")

    def layer(self, name: str, src: str) -> str:
        hidden = self.dims[2]
        middle = self.normalized(f"{name}.norm1", self.attention(f"{name}.attention", src), src)
        wide = self.gelu(f"{name}.gelu", self.linear(f"{name}.wide", middle, hidden, 4 * hidden))
        return self.normalized(f"{name}.norm2", self.linear(f"{name}.narrow", wide, 4 * hidden, hidden), middle)


# ResNet-18 and MobileNet-V3 large, as exporters write them: batch normalization folded, hard swish an operator

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


class _ChainWriter:
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
    writer = _ChainWriter(3)
    writer.conv(64, 7, 2, activation="Relu")
    writer.node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for channels in (64, 128, 256, 512):
        for block in range(2):
            _residual(writer, channels, 2 if channels > 64 and block == 0 else 1)
    writer.node("GlobalAveragePool")
    writer.node("Flatten")
    writer.linear(_CLASSES)
    return writer.model("resnet18", size)


def _residual(writer: _ChainWriter, channels: int, stride: int) -> None:
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
    writer = _ChainWriter(3)
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


# Inputs


def open_light(name: str) -> Model:
    """A light model by our name whose batch is open."""
    return _with_open_dims(light(name, batch=0), "batch")  # a 0 in the shape of a Reshape copies the extent


def open_bert(layers: int = 4, hidden: int = 768, heads: int = 12) -> Model:
    """An encoder as BERT's whose batch and sequence are open."""
    return _with_open_dims(bert(0, 0, layers, hidden, heads), "batch", "sequence")


def _with_open_dims(model: Model, *names: str) -> Model:
    """The model with names for the first dims of its inputs, and without dims of its outputs."""
    for value in model.graph.input:
        for dim, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
            dim.dim_param = name
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def inputs_of(model: Model, seed: int = 1) -> dict[str, npt.NDArray[Any]]:
    """A seeded normal array for each input of f32 with static dims."""
    rng = np.random.default_rng(seed)
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in model.graph.input}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
