"""Small models of f32, their quantized forms by ONNX Runtime's quantizer, and models with one operator by hand."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from inlay.graph.op_graph import Array

RNG_SEED = 11


def _weights(rng: np.random.Generator, **dims: tuple[int, ...]) -> list[Any]:
    draw = {name: (rng.standard_normal(each) * 0.2).astype(np.float32) for name, each in dims.items()}
    return [numpy_helper.from_array(array, name) for name, array in draw.items()]


def _node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), [output], name=f"{output}_{operator}", **attributes)


def _model(nodes: list[Any], weights: list[Any], dims: list[int], result: list[int]) -> Any:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in (("x", dims), ("y", result))]
    graph = helper.make_graph(nodes, "quantized", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def residual_network() -> Any:
    """Convolutions with a sum, a pooling, a concatenation and an activation."""
    rng = np.random.default_rng(RNG_SEED)
    weights = _weights(
        rng, w1=(16, 3, 3, 3), b1=(16,), w2=(16, 16, 3, 3), b2=(16,), w3=(16, 1, 3, 3), b3=(16,), fw=(32, 10), fb=(10,)
    )
    weights += [numpy_helper.from_array(np.asarray(n, np.float32), name) for name, n in (("low", 0), ("high", 6))]
    nodes = [
        _node("Conv", "x w1 b1", "c1", pads=[1] * 4),
        _node("Relu", "c1", "r1"),
        _node("MaxPool", "r1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
        _node("Conv", "p1 w2 b2", "c2", pads=[1] * 4),
        _node("Add", "c2 p1", "a"),
        _node("Relu", "a", "r2"),
        _node("Conv", "r2 w3 b3", "c3", pads=[1] * 4, group=16),
        _node("Clip", "c3 low high", "k"),
        _node("Concat", "r2 k", "cc", axis=1),
        _node("Sigmoid", "cc", "sg"),
        _node("Mul", "cc sg", "sw"),
        _node("GlobalAveragePool", "sw", "g"),
        _node("Flatten", "g", "f"),
        _node("Gemm", "f fw fb", "s"),
        _node("Softmax", "s", "y"),
    ]
    return _model(nodes, weights, [1, 3, 16, 16], [1, 10])


def transformer_block() -> Any:
    """Attention of two heads and a feed-forward layer."""
    rng = np.random.default_rng(RNG_SEED)
    square = dict.fromkeys(("wq", "wk", "wv"), (64, 64))
    weights = _weights(rng, **square, bq=(64,), f1=(64, 256), fb1=(256,), f2=(256, 64), lg=(64,), lb=(64,))
    weights.append(numpy_helper.from_array(np.array([1, 8, 2, 32]), "heads"))
    weights.append(numpy_helper.from_array(np.array([1, 8, 64]), "rows"))
    nodes = [_node("MatMul", "x wq", "q0"), _node("Add", "q0 bq", "q"), _node("MatMul", "x wk", "k")]
    nodes += [_node("MatMul", "x wv", "v"), *(_node("Reshape", f"{n} heads", f"{n}h") for n in "qkv")]
    nodes += [_node("Transpose", f"{n}h", f"{n}t", perm=perm) for n, perm in zip("qkv", _PERMS, strict=True)]
    nodes += [
        _node("MatMul", "qt kt", "s"),
        _node("Softmax", "s", "p", axis=-1),
        _node("MatMul", "p vt", "o"),
        _node("Transpose", "o", "ot", perm=[0, 2, 1, 3]),
        _node("Reshape", "ot rows", "or"),
        _node("Add", "or x", "r"),
        _node("LayerNormalization", "r lg lb", "n"),
        _node("MatMul", "n f1", "h0"),
        _node("Add", "h0 fb1", "h1"),
        _node("Gelu", "h1", "h2"),
        _node("MatMul", "h2 f2", "y"),
    ]
    return _model(nodes, weights, [1, 8, 64], [1, 8, 64])


_PERMS = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])


def dense_network() -> Any:
    """Convolutions that read all earlier results, poolings of means, a stride and a dilation."""
    rng = np.random.default_rng(RNG_SEED)
    weights = _weights(rng, w1=(8, 4, 3, 3), w2=(8, 12, 3, 3), w3=(8, 20, 1, 1), w4=(12, 7, 2, 2), b4=(12,))
    nodes = [
        _node("Conv", "x w1", "c1", pads=[2] * 4, dilations=[2, 2]),
        _node("LeakyRelu", "c1", "l1", alpha=0.1),
        _node("Concat", "x l1", "j1", axis=1),
        _node("Conv", "j1 w2", "c2", pads=[1] * 4),
        _node("Relu", "c2", "l2"),
        _node("Concat", "j1 l2", "j2", axis=1),
        _node("Conv", "j2 w3", "c3"),
        _node("AveragePool", "c3", "a3", kernel_shape=[2, 2], strides=[2, 2]),
        _node("Slice", "a3 begin end axis", "p3"),
        _node("Conv", "p3 w4 b4", "y", strides=[2, 2]),
    ]
    weights += [numpy_helper.from_array(np.array([n]), name) for name, n in (("begin", 1), ("end", 8), ("axis", 1))]
    return _model(nodes, weights, [2, 4, 14, 14], [2, 12, 3, 3])


def upsampling_network() -> Any:
    """Transposed convolutions, a resize to the nearest elements, and concatenations of images with several scales."""
    rng = np.random.default_rng(RNG_SEED)
    weights = _weights(
        rng,
        w1=(16, 3, 3, 3),
        b1=(16,),
        w2=(24, 16, 3, 3),
        t1=(24, 16, 2, 2),
        t2=(16, 16, 3, 3),
        tb=(16,),
        w3=(16, 32, 3, 3),
        w4=(8, 48, 3, 3),
    )
    weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "twice"))
    nodes = [
        _node("Conv", "x w1 b1", "c1", pads=[1] * 4),
        _node("Relu", "c1", "r1"),
        _node("Conv", "r1 w2", "c2", pads=[1] * 4, strides=[2, 2]),
        _node("ConvTranspose", "c2 t1 tb", "u1", strides=[2, 2]),
        _node("Concat", "r1 u1", "j1", axis=1),
        _node("Conv", "j1 w3", "c3", pads=[1] * 4),
        _node("ConvTranspose", "c3 t2", "u2", strides=[2, 2], pads=[1] * 4, output_padding=[1, 1]),
        helper.make_node(
            "Resize",
            ["j1", "", "twice"],
            ["u3"],
            name="u3_Resize",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        _node("Concat", "u2 u3", "j2", axis=1),
        _node("Conv", "j2 w4", "y"),
    ]
    return _model(nodes, weights, [1, 3, 12, 12], [1, 8, 22, 22])


NETWORKS: Mapping[str, Callable[[], Any]] = {
    "residual network": residual_network,
    "transformer block": transformer_block,
    "dense network": dense_network,
    "upsampling network": upsampling_network,
}
"""Writer of each f32 model."""

FORMS = ("QDQ u8 s8 per channel", "QDQ s8 s8", "QDQ u8 u8", "QOperator u8 s8 per channel", "QOperator s8 s8")
"""Names of the forms in which a model is quantized: format, types of activations and of weights."""


@cache
def quantized(network: str, form: str) -> bytes:
    """The model in one of `FORMS`, as bytes."""
    model = NETWORKS[network]()
    return quantize(model, [{"x": sample(model, seed)} for seed in range(4)], form)


def quantize(model: Any, samples: Sequence[Mapping[str, Array]], form: str, *, excluded: Sequence[str] = ()) -> bytes:
    """A model in one of `FORMS`, with the ranges of these samples; excluded nodes, by name, stay in f32."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    types = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.samples = iter(samples)

        def get_next(self) -> Any:
            return next(self.samples, None)

    kind, activations, weights, *rest = form.split()
    logging.getLogger().setLevel(logging.ERROR)  # the quantizer advises to preprocess models
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "f32.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        quantize_static(
            source,
            target,
            Reader(),
            quant_format=QuantFormat.QDQ if kind == "QDQ" else QuantFormat.QOperator,
            activation_type=types[activations],
            weight_type=types[weights],
            per_channel=bool(rest),
            nodes_to_exclude=list(excluded),
        )
        return target.read_bytes()


DYNAMIC_FORMS = ("u8", "s8", "s8 per channel")
"""Types of weights, and their scales, in which a model is quantized dynamically."""


@cache
def dynamically_quantized(network: str, form: str) -> bytes:
    """The model in one of `DYNAMIC_FORMS`, as bytes."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    weights, *rest = form.split()
    logging.getLogger().setLevel(logging.ERROR)
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "f32.onnx"), Path(folder, "int8.onnx")
        onnx.save(NETWORKS[network](), source)
        kind = QuantType.QUInt8 if weights == "u8" else QuantType.QInt8
        quantize_dynamic(source, target, weight_type=kind, per_channel=bool(rest))
        return target.read_bytes()


def sample(model: Any, seed: int) -> Array:
    """An input for a model of one input."""
    dims = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng((RNG_SEED, seed)).standard_normal(dims).astype(np.float32)


def run_onnxruntime(model: bytes, inputs: Mapping[str, Array], names: list[str] | None = None) -> dict[str, Array]:
    """Results of ONNX Runtime without optimizations; of all tensors with these names, or of the outputs."""
    import onnxruntime

    proto = onnx.load_from_string(model)
    if names is not None:
        del proto.graph.output[:]
        proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # no warnings on unused constants
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, dict(inputs)), strict=True))
