"""`remove_expansions`: let operators that broadcast their inputs do so, in place of an Expand before them.

    Expand (1, 64, 1, 1 to 1, 64, 14, 14) -> Mul      Mul reads (1, 64, 1, 1)

An Expand stays before arithmetic of float32 that oneDNN would then compute by its reference code. By generated code it
broadcasts the second operand only, along leading axes, or along all but batch and channels. One reorder, which repeats
elements, is faster than reference code.

Source: ONNX, "Broadcasting in ONNX".
"""

from dataclasses import replace

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.passes.rewriting import NetworkRewriter, rewrite_nodes
from inlay.layout import Dims

_BINARY = frozenset(
    (
        *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less"),
        *("LessOrEqual", "Mod", "Mul", "Or", "Pow", "Sub", "Where", "Xor"),
    )
)
"""Operators that broadcast all of their inputs, from opset 7 on; Where is newer."""


_ARITHMETIC = frozenset(("Add", "Div", "Mul", "Sub"))
"""Operators that become primitives for float32."""


def remove_expansions(network: Network) -> Network:
    """Return the network with the source of each Expand read in its place, where the reader broadcasts it.

    >>> from inlay.graph.network import Tensor
    >>> nodes = Node("e", "Expand", ("g", "d"), ("t",)), Node("m", "Mul", ("x", "t"), ("y",))
    >>> dims = {"g": (2, 8, 1, 1), "x": (2, 8, 3, 3), "t": (2, 8, 3, 3), "y": (2, 8, 3, 3), "d": (4,)}
    >>> tensors = {name: Tensor(name, extents, np.dtype(np.float32)) for name, extents in dims.items()}
    >>> network = Network("", 17, ("g", "x"), ("y",), nodes, tensors, {"d": np.array([2, 8, 3, 3])})
    >>> [node.inputs for node in remove_expansions(network).nodes]
    [('x', 'g')]
    """
    return rewrite_nodes(network, _remove)


def _remove(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a node that reads the sources of Expands where that has the same result; None if there is none."""
    if node.operator not in _BINARY and node.operator != "MatMul":
        return None
    inputs = list(node.inputs)
    for i, name in enumerate(inputs):
        expand = rewriter.producer_of_kind(name, "Expand")
        if expand is not None:
            tried = [*inputs[:i], expand.inputs[0], *inputs[i + 1 :]]
            inputs = tried if _has_same_result(rewriter, node, tried, i) else inputs
    return replace(node, inputs=tuple(inputs)) if tuple(inputs) != node.inputs else None


def _has_same_result(rewriter: NetworkRewriter, node: Node, inputs: list[str], i: int) -> bool:
    """Return whether a node has the same result, and a kernel as fast, with other inputs; input `i` is no Expand's."""
    result, shapes = rewriter.dims(node.outputs[0]), [rewriter.dims(one) for one in inputs]
    expanded, own = rewriter.dims(node.inputs[i]), shapes[i]
    if node.operator == "MatMul":
        is_matrix = len(own) >= 2 and own[-2:] == expanded[-2:] and all(len(shape) >= 2 for shape in shapes)
        return is_matrix and np.broadcast_shapes(*(shape[:-2] for shape in shapes)) == result[:-2]
    is_primitive = node.operator in _ARITHMETIC and rewriter.tensors[inputs[i]].dtype == np.float32
    is_second = shapes[1 - i] == result and (i == 1 or node.operator in ("Add", "Mul")) if is_primitive else True
    is_fast = not is_primitive or _is_broadcast_fast((1,) * (len(result) - len(own)) + own, result)
    return is_second and is_fast and np.broadcast_shapes(*shapes) == result


def _is_broadcast_fast(own: Dims, result: Dims) -> bool:
    """Return whether oneDNN broadcasts an operand by generated code: along leading axes, or one number per channel."""
    repeated = [n != extent for n, extent in zip(own, result, strict=True)]
    is_leading = repeated == sorted(repeated, reverse=True)
    return is_leading or (len(result) > 2 and not repeated[1] and all(repeated[2:]))
