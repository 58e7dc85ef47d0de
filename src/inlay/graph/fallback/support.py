"""Nodes that ONNX Runtime does not compute as Inlay promises: `find_exclusion` returns the reason.

ONNX Runtime is asked about all other nodes, by the creation of a session. The tables here name what that cannot show:
results that differ from ONNX's specification, or from run to run. `tests/graph/fallback/test_results.py` compares.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from inlay.graph.network import Node
from inlay.graph.numpy_operators.call import is_float
from inlay.graph.numpy_operators.evaluation import ONNX_DOMAINS
from inlay.graph.numpy_operators.random_numbers import RANDOM_OPERATORS

LOSES_NAN = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "GlobalMaxPool",
        "Hardmax",
        "LRN",
        "LogSoftmax",
        "MaxPool",
        "MaxRoiPool",
        "PRelu",
        "ReduceMax",
        "ReduceMin",
        "Sign",
    }
)
"""Operators whose kernels in ONNX Runtime 1.32 lose NaN or infinities of floating-point inputs, for some type."""

DIFFERENT: Mapping[str, str] = MappingProxyType(
    {
        "Attention": "its third result differs",
        "DFT": "its rounding errors are those of sums, not of a fast transform",
        "MaxUnpool": "its output_shape has another meaning",
        "RoiAlign": "its mode max differs",
        "STFT": "its rounding errors are those of sums, not of a fast transform",
    }
)
"""Operators that ONNX Runtime computes otherwise than ONNX specifies, with the difference."""

_DIFFERENT_NODES: Mapping[str, tuple[Callable[[Node], bool], str]] = MappingProxyType(
    {
        "ConvInteger": (lambda node: len(node.inputs) > 3, "it needs one zero point for all weights"),
        "Resize": (
            lambda node: node.attributes.get("coordinate_transformation_mode") == "align_corners",
            "its last corner is that of the scaled extent before rounding",
        ),
    }
)
"""Operators of which ONNX Runtime computes some nodes otherwise: whether a node is one of them, and the difference."""


def find_difference(node: Node) -> str:
    """Return what ONNX Runtime computes otherwise than ONNX specifies for a node, as a clause; else an empty text."""
    is_different, difference = _DIFFERENT_NODES.get(node.operator, (None, ""))
    if is_different is not None and is_different(node):
        return difference
    return DIFFERENT.get(node.operator, "")


_TYPES = frozenset(
    {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64"),
    }
)
"""Names of the types that ONNX Runtime is used for: it stores types of 4 bits in other bytes than NumPy, and saturates
infinities to floats of 8 bits where ONNX does not."""


def find_exclusion(node: Node, opset: int, dtypes: Iterable[np.dtype[Any]]) -> str:
    """Return why ONNX Runtime is not asked to compute a node, as a clause; an empty text if it is.

    `dtypes` are the types of all tensors that the node reads and writes.
    """
    from inlay.graph.onnx_package import defs  # plans of graphs that are assigned already need no onnx

    operator, types = node.operator, tuple(dtypes)
    if node.domain not in ONNX_DOMAINS or not defs.has(operator, opset, ""):
        return f"opset {opset} has no {operator}"
    if operator in RANDOM_OPERATORS:
        return "it draws random numbers"
    if difference := find_difference(node):
        return difference
    wrong = next((dtype for dtype in types if dtype.name not in _TYPES), None)
    if wrong is not None:
        return f"it is not used for {wrong}"
    if operator in LOSES_NAN and any(map(is_float, types)):
        return f"its {operator} loses NaN or infinities"
    return ""
