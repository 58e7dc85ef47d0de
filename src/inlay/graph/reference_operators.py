"""The operators for which `onnx.reference` is used: those whose results were compared with a second source.

`onnx.reference` documents ONNX; it is not tested as a runtime is, and some of its operators are wrong for dims, types
or attributes that no example has. So it computes only what is listed here. Each version of an operator, up to the
newest that is listed, was compared in `tests/test_fallback_operators.py` with ONNX Runtime, or with the results that
ONNX's cases write out where the runtime lacks the operator: in one of its types at least, not in each, since neither
has all of them. Of random operators types and dims alone were compared. What `numpy_operators` computes is not listed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.errors import MissingExtra, Unimplemented
from inlay.graph.network import Node
from inlay.graph.onnx_package import defs, helper, numpy_helper
from inlay.graph.op import Array

OPSETS = (9, 28)
"""The first and the last version of ONNX's operators that were compared."""

F32 = frozenset({"float32"})
WIDE = frozenset({"float32", "float64"})
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
INTS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
BYTES = frozenset({"int8", "uint8"})
INDICES = frozenset({"int32", "int64"})
BOOL = frozenset({"bool"})
NUMBERS = FLOATS | INTS
ALL = NUMBERS | BOOL


@dataclass(frozen=True, slots=True)
class ComparedOperator:
    """What was compared of one operator."""

    types: frozenset[str] | None
    """Names of the element types of its inputs: one at least was compared, and NumPy computes all by the same code.
    None where elements are only moved, so that any type will do."""
    newest: int
    """The newest version of the operator, as the opset that brought it."""
    outputs: int = 99
    """How many of its results, from the first one on."""
    inputs: int = 1 << 31
    """How many of its inputs, from the first one on."""


_MOVING = {
    name: ComparedOperator(None, newest)
    for name, newest in {
        "CenterCropPad": 18,
        "Compress": 28,
        "Concat": 13,
        "ConstantOfShape": 25,
        "DepthToSpace": 28,
        "Expand": 13,
        "EyeLike": 22,
        "Flatten": 25,
        "Identity": 25,
        "Reshape": 25,
        "ReverseSequence": 28,
        "Shape": 25,
        "Size": 25,
        "SpaceToDepth": 28,
        "Split": 18,
        "Squeeze": 25,
        "TensorScatter": 24,
        "Tile": 13,
        "Transpose": 25,
        "Trilu": 14,
        "Where": 16,
    }.items()
}

_FUNCTIONS = {
    name: ComparedOperator(FLOATS, newest)
    for name, newest in {
        "Acos": 22,
        "Acosh": 22,
        "Asin": 22,
        "Asinh": 22,
        "Atan": 22,
        "Atanh": 22,
        "Ceil": 13,
        "Celu": 28,
        "Cos": 22,
        "Cosh": 22,
        "Elu": 22,
        "Erf": 13,
        "Exp": 13,
        "Floor": 13,
        "Gelu": 20,
        "HardSigmoid": 22,
        "HardSwish": 22,
        "IsInf": 20,
        "IsNaN": 20,
        "LeakyRelu": 16,
        "Log": 13,
        "Mish": 22,
        "Reciprocal": 13,
        "Round": 22,
        "Selu": 22,
        "Sigmoid": 13,
        "Sin": 22,
        "Sinh": 22,
        "Softplus": 22,
        "Softsign": 22,
        "Sqrt": 13,
        "Swish": 24,
        "Tan": 22,
        "Tanh": 13,
        "ThresholdedRelu": 22,
    }.items()
}

_ARITHMETIC = {
    name: ComparedOperator(types, newest)
    for name, (types, newest) in {
        "Abs": (NUMBERS, 13),
        "Add": (NUMBERS, 14),
        "And": (BOOL, 7),
        "ArgMax": (NUMBERS, 13),
        "ArgMin": (NUMBERS, 13),
        "BitCast": (NUMBERS, 26),
        "BitShift": (INTS, 28),
        "BitwiseAnd": (INTS, 18),
        "BitwiseNot": (INTS, 18),
        "BitwiseOr": (INTS, 18),
        "BitwiseXor": (INTS, 18),
        "Clip": (NUMBERS, 13),
        "CumProd": (NUMBERS, 26),
        "CumSum": (NUMBERS, 14),
        "Div": (NUMBERS, 14),
        "Dropout": (ALL, 22),
        "Equal": (ALL, 19),
        "Greater": (NUMBERS, 13),
        "GreaterOrEqual": (NUMBERS, 16),
        "Less": (NUMBERS, 13),
        "LessOrEqual": (NUMBERS, 16),
        "Max": (NUMBERS, 13),
        "Mean": (FLOATS, 13),
        "Min": (NUMBERS, 13),
        "Mod": (NUMBERS, 28),
        "Mul": (NUMBERS, 14),
        "Neg": (NUMBERS, 13),
        "NonZero": (ALL, 13),
        "Not": (BOOL, 1),
        "OneHot": (ALL, 28),
        "Or": (BOOL, 7),
        "PRelu": (NUMBERS, 16),
        "Range": (NUMBERS, 27),
        "Relu": (NUMBERS, 14),
        "Shrink": (FLOATS, 9),
        "Sign": (NUMBERS, 13),
        "Sub": (NUMBERS, 14),
        "Sum": (FLOATS, 13),
        "TopK": (NUMBERS, 24),
        "Unique": (NUMBERS, 28),
        "Xor": (BOOL, 7),
    }.items()
}

_PRODUCTS = {
    name: ComparedOperator(types, newest)
    for name, (types, newest) in {
        "Conv": (FLOATS, 22),
        "ConvInteger": (BYTES, 10),
        "Det": (WIDE, 22),
        "DynamicQuantizeLinear": (F32, 11),
        "Einsum": (NUMBERS, 28),
        "Gemm": (FLOATS, 13),
        "MatMul": (NUMBERS, 13),
        "MatMulInteger": (BYTES, 10),
        "QLinearConv": (BYTES | F32, 10),
        "QLinearMatMul": (BYTES | F32, 21),
    }.items()
}

_NORMALIZATIONS = {
    name: ComparedOperator(types, newest)
    for name, (types, newest) in {
        "InstanceNormalization": (FLOATS, 22),
        "MeanVarianceNormalization": (F32, 13),
        "NegativeLogLikelihoodLoss": (WIDE | INDICES, 22),
        "RMSNormalization": (FLOATS, 23),
        "SoftmaxCrossEntropyLoss": (WIDE | INDICES, 13),
    }.items()
}

_ATTENTION = {
    "Attention": ComparedOperator(FLOATS | BOOL | INDICES, 25, outputs=3),
    "CausalConvWithState": ComparedOperator(FLOATS, 27),
    "LinearAttention": ComparedOperator(FLOATS, 27),
    "RotaryEmbedding": ComparedOperator(FLOATS | INDICES, 23),
    "SwiGLU": ComparedOperator(FLOATS, 28),
}

_SIGNALS = {
    name: ComparedOperator(types, newest)
    for name, (types, newest) in {
        "AffineGrid": (F32 | INDICES, 20),
        "BlackmanWindow": (INDICES, 17),
        "Col2Im": (FLOATS | INDICES, 18),
        "DFT": (FLOATS | INDICES, 20),
        "DeformConv": (FLOATS, 22),
        "HammingWindow": (INDICES, 17),
        "HannWindow": (INDICES, 17),
        "MelWeightMatrix": (F32 | INDICES, 17),
        "NonMaxSuppression": (F32 | INDICES, 11),
        "STFT": (WIDE | INDICES, 17),
    }.items()
}

_SIGNALS["MaxUnpool"] = ComparedOperator(FLOATS | INDICES, 22, inputs=2)  # with output_shape, sources disagree

_RANDOM = {
    name: ComparedOperator(FLOATS | INTS | BOOL, 22)
    for name in ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
}
"""Nobody can predict their elements: types and dims were compared."""

COMPARED: Mapping[str, ComparedOperator] = {
    **_MOVING,
    **_FUNCTIONS,
    **_ARITHMETIC,
    **_PRODUCTS,
    **_NORMALIZATIONS,
    **_ATTENTION,
    **_SIGNALS,
    **_RANDOM,
}
"""Operator of ONNX to what was compared of it."""


def reason_against(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> str:
    """Why `onnx.reference` is not used for a node, as the end of a sentence; empty if it is.

    `dtypes` are the types of the node's inputs, by name.
    """
    row = COMPARED.get(node.operator) if node.domain in ("", "ai.onnx") else None
    if row is None:
        return f", opset {opset}, is computed by no primitive and by no function of Inlay"
    version = since(node, opset)
    if version > row.newest:
        return f", opset {opset}, is computed as up to opset {row.newest} only"
    wrong = [str(dtype) for dtype in dtypes.values() if row.types is not None and dtype.name not in row.types]
    if wrong:
        return f" of {wrong[0]} is computed by no primitive and by no function of Inlay"
    if any(node.inputs[row.inputs :]):
        return f" is computed without its input {node.inputs[row.inputs :][0]!r} only"
    if any(node.outputs[row.outputs :]):
        return f" is computed without its result {node.outputs[row.outputs :][0]!r} only"
    return ""


def opset_for(node: Node, opset: int) -> int:
    """The opset whose version of an operator is used: a pattern puts newer operators together than the model has."""
    newest = int(defs.onnx_opset_version())
    return newest if not defs.has(node.operator, opset, "") and defs.has(node.operator, newest, "") else opset


def since(node: Node, opset: int) -> int:
    """The opset that brought the version of the operator that a node has."""
    version = opset_for(node, opset)
    return int(defs.get_schema(node.operator, version, "").since_version) if defs.has(node.operator, version, "") else 0


def evaluation(
    node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]
) -> Callable[[Mapping[str, Array]], list[Array]]:
    """From the inputs of a node by name, of these types, to its results in order, by `onnx.reference`.

    Raises:
        MissingExtra: the package onnx is not installed, or without `onnx.reference`.
        Unimplemented: `onnx.reference` does not take the node.
    """
    try:
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        raise MissingExtra("onnx is not installed: pip install 'inlay[onnx]'") from None
    writes = [name for name in node.outputs if name]
    try:
        evaluator = ReferenceEvaluator(_model_of(node, opset_for(node, opset), dtypes))
    except (LookupError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise Unimplemented(
            f"node {node.name!r}: {node.operator}, opset {opset}, is not taken by onnx.reference: correct the node, or "
            "write it with other operators"
        ) from error

    def evaluate(arrays: Mapping[str, Array]) -> list[Array]:
        return [np.asarray(result) for result in evaluator.run(writes, dict(arrays))]

    return evaluate


def _model_of(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> Any:
    """The node as a model of its own."""
    proto = helper.make_node(node.operator, list(node.inputs), list(node.outputs), node.name)
    proto.attribute.extend(_attribute(node, opset, name) for name in node.attributes)
    reads = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), None)
        for name, dtype in dtypes.items()
    ]
    writes = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    graph = helper.make_graph([proto], "node", reads, writes)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def _attribute(node: Node, opset: int, name: str) -> Any:
    """An attribute as ONNX stores it; of the type that the operator's schema says, since () has none."""
    value = node.attributes[name]
    declared = defs.get_schema(node.operator, opset, "").attributes.get(name)
    kind = None if declared is None else int(declared.type)  # type: ignore[call-overload]
    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    return helper.make_attribute(name, list(value) if isinstance(value, tuple) else value, attr_type=kind)
