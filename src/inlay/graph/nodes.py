"""Nodes computed by NumPy: by functions of `numpy_operators`, else by `onnx.reference` as `reference_operators` lists.

What no primitive computes, and what a network is compared with:

>>> node = Node("twice", "Add", inputs=("x", "x"), outputs=("y",))
>>> computed(node, 17, {"x": np.array([1.5, 2.0], np.float32)})["y"].tolist()
[3.0, 4.0]

Whatever NumPy raises becomes an error that names the node.

Source: ONNX, "Operators"; the package onnx, `onnx.reference`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import InlayError, OutOfMemory, Unimplemented
from inlay.graph.network import Node

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Computation: TypeAlias = Callable[[Mapping[str, Array]], dict[str, Array]]

Evaluation: TypeAlias = Callable[[Mapping[str, Array]], list[Array]]
"""From the inputs of a node by name to its results in order, those that it leaves out missing."""

ONNX_DOMAINS = ("", "ai.onnx")
"""Names of the domain of ONNX's own operators."""

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
"""What NumPy and `onnx.reference` raise on elements and attributes that they do not expect."""


def computed(node: Node, opset: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The results of a node by name, those that it leaves out missing; `arrays` has its inputs by name.

    Raises:
        InvalidArguments: the inputs are not such as the operator allows.
        MissingExtra: the package onnx is not installed.
        OutOfMemory: there is no room for the results.
        Unimplemented: nothing here computes the operator, on inputs of these types.
    """
    return computation(node, opset, {name: array.dtype for name, array in arrays.items()})(arrays)


def computation(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> Computation:
    """What computes a node again and again, given its inputs by name, of the types `dtypes`.

    It may be called from several threads at once; what it returns is new, or a view of what it was given. A call
    raises InvalidArguments, OutOfMemory or Unimplemented, as `computed`.

    Raises:
        MissingExtra: the package onnx is not installed.
        Unimplemented: nothing here computes the operator, on inputs of these types.
    """
    require_computable(node, opset, dtypes)
    reads = tuple(name for name in dict.fromkeys(node.inputs) if name)
    writes = tuple(name for name in node.outputs if name)
    evaluate = _function(node, opset)
    if evaluate is None:
        from inlay.graph.reference_operators import evaluation

        evaluate = evaluation(node, opset, {name: dtypes[name] for name in reads})

    def run(arrays: Mapping[str, Array]) -> dict[str, Array]:
        try:
            # What overflows, or divides by zero, does so by the rules of IEEE 754, without a word.
            with np.errstate(all="ignore"):
                results = evaluate({name: arrays[name] for name in reads})
        except InlayError:
            raise
        except MemoryError as error:
            raise OutOfMemory(f"{_called(node)}: there is no room for its results: give smaller dims") from error
        except _FAILURES as error:
            raise _failed(node, [arrays[name] for name in reads], error) from error
        return dict(zip(writes, results, strict=True))

    return run


def require_computable(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> None:
    """There is code here that computes a node, given inputs of these types by name.

    Raises:
        MissingExtra: the package onnx is not installed.
        Unimplemented: there is none.
    """
    from inlay.graph.numpy_operators.table import FUNCTIONS
    from inlay.graph.reference_operators import reason_against

    if node.domain in ONNX_DOMAINS and node.operator in FUNCTIONS:
        return
    reason = reason_against(node, opset, {name: dtypes[name] for name in node.inputs if name})
    if reason:
        raise Unimplemented(f"{_called(node)}{reason}: replace it by operators of ONNX, or leave it out of the file")


def _called(node: Node) -> str:
    return f"node {node.name!r}: {node.operator}" + (f" of {node.domain}" if node.domain else "")


def _failed(node: Node, arrays: list[Array], error: Exception) -> Unimplemented:
    inputs = " and ".join(f"{array.dtype} {array.shape}" for array in arrays) or "nothing"
    text = " ".join(str(error).split())[:_SHOWN] or type(error).__name__
    return Unimplemented(
        f"{_called(node)} of {inputs} is not computed by NumPy: {text}; correct the node where ONNX does not allow "
        "this, else write it with other operators"
    )


def _function(node: Node, opset: int) -> Evaluation | None:
    """The node by a function of this package, if there is one: its results in order, those left out missing."""
    from inlay.graph.numpy_operators.call import OperatorCall
    from inlay.graph.numpy_operators.table import FUNCTIONS

    function = FUNCTIONS.get(node.operator) if node.domain in ONNX_DOMAINS else None
    if function is None:
        return None

    def evaluate(arrays: Mapping[str, Array]) -> list[Array]:
        inputs = tuple(arrays[name] if name else None for name in node.inputs)
        found = function(OperatorCall(node, opset, inputs))
        results = found if isinstance(found, tuple) else (found,)
        named = zip(node.outputs, results, strict=False)
        return [np.asarray(result) for name, result in named if name]

    return evaluate
