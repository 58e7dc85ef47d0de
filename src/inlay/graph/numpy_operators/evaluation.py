"""Evaluation of nodes by functions in NumPy.

It computes the nodes that no primitive computes, and the results that networks are compared with:

>>> node = Node("twice", "Add", inputs=("x", "x"), outputs=("y",))
>>> compute_node(node, 17, {"x": np.array([1.5, 2.0], np.float32)})["y"].tolist()
[3.0, 4.0]
>>> FUNCTIONS["Pad"].__name__
'pad'

An exception of NumPy becomes an error of Inlay that names the node.

Source: ONNX, "Operators".
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from inlay.errors import InlayError, OutOfMemory, Unimplemented
from inlay.graph.network import Node
from inlay.graph.numpy_operators.activations import ACTIVATIONS
from inlay.graph.numpy_operators.attention import ATTENTION
from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.convolution import CONVOLUTION
from inlay.graph.numpy_operators.data_movement import DATA_MOVEMENT
from inlay.graph.numpy_operators.elementwise import ELEMENTWISE
from inlay.graph.numpy_operators.losses import LOSSES
from inlay.graph.numpy_operators.normalization import NORMALIZATION
from inlay.graph.numpy_operators.pooling import POOLING
from inlay.graph.numpy_operators.products import PRODUCTS
from inlay.graph.numpy_operators.quantized import QUANTIZED
from inlay.graph.numpy_operators.random_numbers import RANDOM_NUMBERS
from inlay.graph.numpy_operators.recurrent import RECURRENT
from inlay.graph.numpy_operators.sampling import SAMPLING
from inlay.graph.numpy_operators.selection import SELECTION
from inlay.graph.numpy_operators.shapes import SHAPES
from inlay.graph.numpy_operators.signals import SIGNALS
from inlay.graph.op_graph import Array

Function: TypeAlias = Callable[[OperatorCall], Array | tuple[Array, ...]]
"""Function that computes one operator, with one or several results."""

Computation: TypeAlias = Callable[[Mapping[str, Array], Mapping[str, Array]], dict[str, Array]]
"""Function from the inputs of a node to its results, both by name; results that the node leaves out are missing.

The second argument has arrays by the names of results. Some functions write the first result to its array, and return
that array; then no copy is needed. Others return new arrays, or views of inputs."""

ONNX_DOMAINS = ("", "ai.onnx")
"""Names of the domain of ONNX's own operators."""

OPSETS = (9, 28)
"""Oldest and newest version of ONNX's operators that the functions were compared with."""

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **ACTIVATIONS,
        **ATTENTION,
        **CONVOLUTION,
        **DATA_MOVEMENT,
        **ELEMENTWISE,
        **LOSSES,
        **NORMALIZATION,
        **POOLING,
        **PRODUCTS,
        **QUANTIZED,
        **RANDOM_NUMBERS,
        **RECURRENT,
        **SAMPLING,
        **SELECTION,
        **SHAPES,
        **SIGNALS,
    }
)
"""Function of this package for each operator that has one; it supports every opset that Inlay does."""


_SHOWN = 200  # characters of another package's text
_FAILURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions that NumPy raises for unexpected elements and attributes."""


def compute_node(node: Node, opset: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the results of a node by name, without those that the node leaves out.

    `arrays` has the node's inputs by name.

    Raises:
        InvalidArguments: the operator does not allow these inputs.
        OutOfMemory: there is not enough memory for the results.
        Unimplemented: NumPy cannot compute the operator for these types.
    """
    return build_computation(node, opset)(arrays, {})


def build_computation(node: Node, opset: int) -> Computation:
    """Return a function that computes a node any number of times.

    Several threads may call the function at once. A call raises InvalidArguments, OutOfMemory or Unimplemented for the
    reasons of `compute_node`.

    Raises:
        Unimplemented: no function computes the operator.
    """
    require_computable(node, opset)
    function = FUNCTIONS[node.operator]
    writes = tuple(name for name in node.outputs if name)

    def run(arrays: Mapping[str, Array], memory: Mapping[str, Array]) -> dict[str, Array]:
        inputs = tuple(arrays[name] if name else None for name in node.inputs)
        try:
            # Overflow and division by zero follow IEEE 754, without warnings.
            with np.errstate(all="ignore"):
                returned = function(OperatorCall(node, opset, inputs, memory.get(node.outputs[0])))
        except InlayError:
            raise
        except MemoryError as error:
            raise OutOfMemory(
                f"{_describe(node)}: there is not enough memory for its results: use smaller dims"
            ) from error
        except _FAILURES as error:
            raise _error_for(node, [array for array in inputs if array is not None], error) from error
        results = returned if isinstance(returned, tuple) else (returned,)
        named = [np.asarray(result) for name, result in zip(node.outputs, results, strict=False) if name]
        return dict(zip(writes, named, strict=True))

    return run


def require_computable(node: Node, opset: int) -> None:
    """Require that a function computes a node.

    Raises:
        Unimplemented: no function computes the operator.
    """
    if node.domain in ONNX_DOMAINS and node.operator in FUNCTIONS:
        return
    raise Unimplemented(
        f"{_describe(node)}, opset {opset}, is computed by no primitive and by no function of Inlay: replace it by "
        "operators of ONNX, or leave it out of the file"
    )


def _describe(node: Node) -> str:
    """Return the name and operator of a node, for errors."""
    return f"node {node.name!r}: {node.operator}" + (f" of {node.domain}" if node.domain else "")


def _error_for(node: Node, arrays: list[Array], error: Exception) -> Unimplemented:
    """Return the error of Inlay for an exception of NumPy."""
    inputs = " and ".join(f"{array.dtype} {array.shape}" for array in arrays) or "nothing"
    text = " ".join(str(error).split())[:_SHOWN] or type(error).__name__
    return Unimplemented(
        f"{_describe(node)} of {inputs} is not computed by NumPy: {text}; correct the node where ONNX does not allow "
        "this, else write it with other operators"
    )
