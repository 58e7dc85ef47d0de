"""`tabulate_functions`: functions of one tensor of 8-bit integers become tables of 256 entries.

    q -> DequantizeLinear -> Sigmoid -> QuantizeLinear -> r                  TableLookup(q, table) -> r
    q -> DequantizeLinear -> Div(sqrt 2) -> Erf -> QuantizeLinear ->         likewise, even if the parts of a GELU
         DequantizeLinear -> Add(1) -> ... Mul(the first) ... -> r           are quantized one by one

An element of such a result depends on one element of `q` alone. So the operators are computed once, on each of the 256
integers, by NumPy; quantizations in between are entries of the table too. A result is a function of `q` if its
operator is element-wise, has the dims of `q`, and reads functions of `q` and constants of one element.

A pair of DequantizeLinear and QuantizeLinear without an operator between them changes a scale: that is a table too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.errors import InlayError
from inlay.graph.network import Network, Node
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.op_graph import Array
from inlay.graph.passes.rewriting import NetworkRewriter, is_describable, rewrite_nodes

ELEMENTWISE = frozenset(
    {
        *("Abs", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish"),
        *("LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin"),
        *("Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu"),
        *("Add", "Div", "Max", "Min", "Mul", "Pow", "PRelu", "Sub"),
    }
)
"""Operators of which each element of the result depends on one element of each input."""

_CHANGES = ("DequantizeLinear", "QuantizeLinear")


@dataclass(frozen=True, slots=True)
class _Function:
    """A tensor whose elements are a function of those of a tensor of 8-bit integers."""

    source: str
    """Name of the tensor of integers."""
    values: Array
    """Result for each integer, in the order of the bits of the integers."""


def tabulate_functions(network: Network, is_usual: Callable[[NetworkRewriter, Node], bool]) -> Network:
    """Return the network with a TableLookup for each QuantizeLinear whose result is a function of other integers.

    Args:
        network: the network.
        is_usual: returns whether a DequantizeLinear or QuantizeLinear has one constant scale and 8-bit integers.
    """
    functions: dict[str, _Function] = {}

    def tabulate(rewriter: NetworkRewriter, node: Node) -> Node | None:
        found = _find_function(rewriter, node, functions, is_usual)
        if found is None:
            return None
        functions[node.outputs[0]] = found
        if node.operator != "QuantizeLinear" or not is_describable(rewriter.dims(node.outputs[0])):
            return None
        if found.values.tobytes() == bytes(range(256)) and found.values.dtype == rewriter.tensors[found.source].dtype:
            return Node(node.name, "Identity", (found.source,), node.outputs)
        table = rewriter.add_constant(f"{node.outputs[0]}:table", found.values)
        return Node(node.name, "TableLookup", (found.source, table), node.outputs, {}, "inlay")

    return rewrite_nodes(network, tabulate)


def _find_function(
    rewriter: NetworkRewriter,
    node: Node,
    functions: dict[str, _Function],
    is_usual: Callable[[NetworkRewriter, Node], bool],
) -> _Function | None:
    """Return the result of a node as a function of integers; None if it is none, or NumPy cannot compute it."""
    if node.domain or len(node.outputs) != 1 or not node.inputs:
        return None
    read = {name: functions[name] for name in node.inputs if name in functions}
    if node.operator == "DequantizeLinear" and node.inputs[0] not in rewriter.constants:
        name = node.inputs[0]
        read = {name: functions.get(name) or _identity(name, rewriter.tensors[name].dtype)}
    if node.operator in _CHANGES:
        return _apply(rewriter, node, read) if is_usual(rewriter, node) else None
    return _apply(rewriter, node, read) if node.operator in ELEMENTWISE else None


def _identity(name: str, dtype: np.dtype[Any]) -> _Function:
    """Return 8-bit integers as a function of themselves."""
    return _Function(name, np.arange(256, dtype=np.uint8).view(np.int8 if dtype == np.int8 else np.uint8))


def _apply(rewriter: NetworkRewriter, node: Node, read: dict[str, _Function]) -> _Function | None:
    """Return the function that a node computes of functions of one source; None if its result is no such function."""
    sources = {one.source for one in read.values()}
    scalars = {name: array for name in node.inputs if (array := rewriter.constants.get(name)) is not None}
    dims = {rewriter.dims(name) for name in (*sources, *node.outputs)}
    if len(sources) != 1 or len(dims) != 1 or any(array.size != 1 for array in scalars.values()):
        return None
    if any(name not in read and name not in scalars for name in node.inputs if name):
        return None
    arrays = {name: one.values for name, one in read.items()} | {n: array.reshape(()) for n, array in scalars.items()}
    try:
        (result,) = compute_node(node, rewriter.network.opset, arrays).values()
    except InlayError:
        return None
    if result.shape != (256,) or result.dtype != rewriter.tensors[node.outputs[0]].dtype:
        return None
    return _Function(sources.pop(), result)
