"""Evaluation of nodes by NumPy: by functions of this package, or by `onnx.reference` for operators that were compared.

It computes the nodes that no primitive computes, and the results that networks are compared with:

>>> node = Node("twice", "Add", inputs=("x", "x"), outputs=("y",))
>>> compute_node(node, 17, {"x": np.array([1.5, 2.0], np.float32)})["y"].tolist()
[3.0, 4.0]
>>> FUNCTIONS["Pad"].__name__
'pad'

An exception of NumPy becomes an error of Inlay that names the node.

`onnx.reference` documents ONNX but is not tested as a runtime is. Some of its operators are wrong for dims, types or
attributes that no example has. So it computes only the operators in `COMPARED`. For each of them, every version up to
the newest one listed was compared in `tests/graph/test_numpy_operator_peers.py` with ONNX Runtime, or with ONNX's own
test data if the runtime lacks the operator. At least one type of each operator was compared, not all, since neither
source has all of them. For random operators only types and dims were compared.

Source: ONNX, "Operators"; the package onnx, `onnx.reference`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import InlayError, MissingExtra, OutOfMemory, Unimplemented
from inlay.graph.network import Node
from inlay.graph.numpy_operators.attention import ATTENTION
from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.convolution import CONVOLUTION
from inlay.graph.numpy_operators.data_movement import DATA_MOVEMENT
from inlay.graph.numpy_operators.losses import LOSSES
from inlay.graph.numpy_operators.normalization import NORMALIZATION
from inlay.graph.numpy_operators.pooling import POOLING
from inlay.graph.numpy_operators.products import PRODUCTS
from inlay.graph.numpy_operators.quantized import QUANTIZED
from inlay.graph.numpy_operators.recurrent import RECURRENT
from inlay.graph.numpy_operators.sampling import SAMPLING
from inlay.graph.numpy_operators.signals import SIGNALS
from inlay.graph.onnx_package import defs, helper, numpy_helper
from inlay.graph.op_graph import Array

Function: TypeAlias = Callable[[OperatorCall], Array | tuple[Array, ...]]
"""Function that computes one operator, with one or several results."""

Computation: TypeAlias = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Function from the inputs of a node to its results, both by name; results that the node leaves out are missing."""
Evaluation: TypeAlias = Callable[[Mapping[str, Array]], list[Array]]
"""Function from the inputs of a node by name to its results in order; results that the node leaves out are missing."""

ONNX_DOMAINS = ("", "ai.onnx")
"""Names of the domain of ONNX's own operators."""

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **ATTENTION,
        **CONVOLUTION,
        **DATA_MOVEMENT,
        **LOSSES,
        **NORMALIZATION,
        **POOLING,
        **PRODUCTS,
        **QUANTIZED,
        **RECURRENT,
        **SAMPLING,
        **SIGNALS,
    }
)
"""Function of this package for each operator that has one; it supports every opset that Inlay does."""


_SHOWN = 200  # characters of another package's text
_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions that NumPy and `onnx.reference` raise for unexpected elements and attributes."""


def compute_node(node: Node, opset: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the results of a node by name, without those that the node leaves out.

    `arrays` has the node's inputs by name.

    Raises:
        InvalidArguments: the operator does not allow these inputs.
        MissingExtra: the package onnx is not installed.
        OutOfMemory: there is not enough memory for the results.
        Unimplemented: NumPy cannot compute the operator for these types.
    """
    return build_computation(node, opset, {name: array.dtype for name, array in arrays.items()})(arrays)


def build_computation(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> Computation:
    """Return a function that computes a node any number of times, for inputs of the types `dtypes`.

    Several threads may call the function at once. It returns new arrays, or views of its inputs. A call raises
    InvalidArguments, OutOfMemory or Unimplemented for the reasons of `compute_node`.

    Raises:
        MissingExtra: the package onnx is not installed.
        Unimplemented: NumPy cannot compute the operator for these types.
    """
    require_computable(node, opset, dtypes)
    reads = tuple(name for name in dict.fromkeys(node.inputs) if name)
    writes = tuple(name for name in node.outputs if name)
    evaluate = _function_evaluation(node, opset)
    if evaluate is None:
        evaluate = _reference_evaluation(node, opset, {name: dtypes[name] for name in reads})

    def run(arrays: Mapping[str, Array]) -> dict[str, Array]:
        try:
            # Overflow and division by zero follow IEEE 754, without warnings.
            with np.errstate(all="ignore"):
                results = evaluate({name: arrays[name] for name in reads})
        except InlayError:
            raise
        except MemoryError as error:
            raise OutOfMemory(
                f"{_describe(node)}: there is not enough memory for its results: use smaller dims"
            ) from error
        except _FAILURES as error:
            raise _error_for(node, [arrays[name] for name in reads], error) from error
        return dict(zip(writes, results, strict=True))

    return run


def require_computable(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> None:
    """Require that NumPy can compute a node, for inputs of these types by name.

    Raises:
        MissingExtra: the package onnx is not installed.
        Unimplemented: NumPy cannot compute the node.
    """
    if node.domain in ONNX_DOMAINS and node.operator in FUNCTIONS:
        return
    reason = _find_unsupported(node, opset, {name: dtypes[name] for name in node.inputs if name})
    if reason:
        raise Unimplemented(f"{_describe(node)}{reason}: replace it by operators of ONNX, or leave it out of the file")


def _describe(node: Node) -> str:
    """Return the name and operator of a node, for errors."""
    return f"node {node.name!r}: {node.operator}" + (f" of {node.domain}" if node.domain else "")


def _error_for(node: Node, arrays: list[Array], error: Exception) -> Unimplemented:
    """Return the error of Inlay for an exception of NumPy or `onnx.reference`."""
    inputs = " and ".join(f"{array.dtype} {array.shape}" for array in arrays) or "nothing"
    text = " ".join(str(error).split())[:_SHOWN] or type(error).__name__
    return Unimplemented(
        f"{_describe(node)} of {inputs} is not computed by NumPy: {text}; correct the node where ONNX does not allow "
        "this, else write it with other operators"
    )


def _function_evaluation(node: Node, opset: int) -> Evaluation | None:
    """Return the evaluation of a node by a function of this package; None if there is no function."""
    function = FUNCTIONS.get(node.operator) if node.domain in ONNX_DOMAINS else None
    if function is None:
        return None

    def evaluate(arrays: Mapping[str, Array]) -> list[Array]:
        inputs = tuple(arrays[name] if name else None for name in node.inputs)
        returned = function(OperatorCall(node, opset, inputs))
        results = returned if isinstance(returned, tuple) else (returned,)
        return [np.asarray(result) for name, result in zip(node.outputs, results, strict=False) if name]

    return evaluate


# Evaluation by onnx.reference

OPSETS = (9, 28)
"""Oldest and newest version of ONNX's operators that were compared."""

F32 = frozenset({"float32"})
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
INTS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
INDICES = frozenset({"int32", "int64"})
BOOL = frozenset({"bool"})
NUMBERS = FLOATS | INTS
ALL = NUMBERS | BOOL


@dataclass(frozen=True, slots=True)
class ComparedOperator:
    """Extent of an operator's comparison with a peer."""

    types: frozenset[str] | None
    """Names of the input types that are allowed. At least one was compared; NumPy computes all of them by the same
    code. None if the operator only moves elements, so that any type is allowed."""
    newest: int
    """Newest version of the operator that was compared, as the opset that introduced it."""
    outputs: int = 99
    """Number of its results that were compared, from the first one on."""
    inputs: int = 1 << 31
    """Number of its inputs that were compared, from the first one on."""


_NEWEST: Mapping[frozenset[str] | None, Mapping[int, str]] = {
    None: {
        13: "Concat Expand Tile",
        14: "Trilu",
        16: "Where",
        18: "CenterCropPad Split",
        22: "EyeLike",
        24: "TensorScatter",
        25: "ConstantOfShape Flatten Identity Reshape Shape Size Squeeze Transpose",
        28: "Compress DepthToSpace ReverseSequence SpaceToDepth",
    },
    # The elements of random operators cannot be predicted; their types and dims were compared.
    ALL: {
        13: "NonZero",
        19: "Equal",
        22: "Bernoulli Dropout RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
        28: "OneHot",
    },
    NUMBERS: {
        13: "Abs ArgMax ArgMin Clip Greater Less Max Min Neg Sign",
        14: "Add CumSum Div Mul Relu Sub",
        16: "GreaterOrEqual LessOrEqual PRelu",
        24: "TopK",
        26: "BitCast CumProd",
        27: "Range",
        28: "Mod Unique",
    },
    FLOATS: {
        9: "Shrink",
        13: "Ceil Erf Exp Floor Log Mean Reciprocal Sigmoid Sqrt Sum Tanh",
        16: "LeakyRelu",
        20: "Gelu IsInf IsNaN",
        22: "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Elu HardSigmoid HardSwish "
        "Mish Round Selu Sin Sinh Softplus Softsign Tan ThresholdedRelu",
        24: "Swish",
        28: "Celu SwiGLU",
    },
    INTS: {18: "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor", 28: "BitShift"},
    BOOL: {1: "Not", 7: "And Or Xor"},
    F32 | INDICES: {11: "NonMaxSuppression"},
}
"""Operators by the types of their inputs, and by the newest version that was compared."""

COMPARED: Mapping[str, ComparedOperator] = {
    **{
        name: ComparedOperator(types, newest)
        for types, rows in _NEWEST.items()
        for newest, names in rows.items()
        for name in names.split()
    },
}
"""Operators that `onnx.reference` computes, each with the extent of its comparison."""


def _find_unsupported(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> str:
    """Return why `onnx.reference` is not used for a node, as the end of a sentence; an empty text if it is used.

    `dtypes` are the types of the node's inputs, by name.
    """
    row = COMPARED.get(node.operator) if node.domain in ONNX_DOMAINS else None
    if row is None:
        return f", opset {opset}, is computed by no primitive and by no function of Inlay"
    version = _since_version(node, opset)
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


def _opset_for(node: Node, opset: int) -> int:
    """Return the opset of an operator's evaluation: the network's, or the newest one for an operator that it lacks.

    Passes insert operators, such as Gelu, that are newer than the network's opset.
    """
    newest = int(defs.onnx_opset_version())
    return newest if not defs.has(node.operator, opset, "") and defs.has(node.operator, newest, "") else opset


def _since_version(node: Node, opset: int) -> int:
    """Return the opset that introduced the node's version of its operator; 0 for an unknown operator."""
    version = _opset_for(node, opset)
    return int(defs.get_schema(node.operator, version, "").since_version) if defs.has(node.operator, version, "") else 0


def _reference_evaluation(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> Evaluation:
    """Return the evaluation of a node by `onnx.reference`, for inputs of these types.

    Raises:
        MissingExtra: the package onnx is not installed, or without `onnx.reference`.
        Unimplemented: `onnx.reference` rejects the node.
    """
    try:
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        raise MissingExtra("onnx is not installed: pip install 'inlay[onnx]'") from None
    writes = [name for name in node.outputs if name]
    try:
        evaluator = ReferenceEvaluator(_model_of(node, _opset_for(node, opset), dtypes))
    except (LookupError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise Unimplemented(
            f"node {node.name!r}: {node.operator}, opset {opset}, is rejected by onnx.reference: correct the node, "
            "or write it with other operators"
        ) from error

    def evaluate(arrays: Mapping[str, Array]) -> list[Array]:
        return [np.asarray(result) for result in evaluator.run(writes, dict(arrays))]

    return evaluate


def _model_of(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> Any:
    """Return a model that consists of the node."""
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
    """Return an attribute as ONNX stores it.

    Its type is that of the operator's schema, since it cannot be inferred from an empty tuple.
    """
    value = node.attributes[name]
    declared = defs.get_schema(node.operator, opset, "").attributes.get(name)
    kind = None if declared is None else int(declared.type)  # type: ignore[call-overload]
    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    return helper.make_attribute(name, list(value) if isinstance(value, tuple) else value, attr_type=kind)
