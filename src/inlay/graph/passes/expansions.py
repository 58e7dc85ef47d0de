"""`remove_expansions`: let operators that broadcast their inputs do so, in place of an Expand before them.

    Expand (1, 64, 1, 1 to 1, 64, 14, 14) -> Mul      Mul reads (1, 64, 1, 1)

`delay_expansions` exchanges an Expand of a mask with the operators on elements after it, which then compute less:

    Expand -> Where(mask, 0, -inf) -> Add             Where -> Expand -> Add

An Expand stays before arithmetic of float32 that oneDNN would then compute by its reference code (see
`broadcast_patterns`). One reorder, which repeats elements, is faster.

Source: ONNX, "Broadcasting in ONNX".
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from inlay.graph.broadcast_patterns import can_broadcast
from inlay.graph.network import Network, Node, Tensor, unused_name
from inlay.graph.passes.rewriting import NetworkRewriter, remove_dead_nodes, rewrite_nodes

_BINARY = frozenset(
    (
        *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less"),
        *("LessOrEqual", "Mod", "Mul", "Or", "Pow", "Sub", "Where", "Xor"),
    )
)
"""Operators that broadcast all of their inputs, from opset 7 on; Where is newer."""


_ARITHMETIC = frozenset(("Add", "Div", "Mul", "Sub"))
"""Operators that become primitives for float32."""


_ELEMENTWISE = _BINARY | {"Cast", "Neg", "Not"}
"""Operators on elements, which an Expand may follow instead of precede."""


def delay_expansions(network: Network) -> Network:
    """Return the network with each Expand of a type other than float32 after the operator that reads it.

    The operator must read one tensor, besides constants with one element.

    >>> from inlay.graph.network import Tensor
    >>> nodes = Node("e", "Expand", ("m", "d"), ("t",)), Node("w", "Where", ("t", "a", "b"), ("y",))
    >>> dims = {"m": (1, 3), "t": (2, 3), "y": (2, 3), "a": (), "b": (), "d": (2,)}
    >>> dtypes = {"m": bool, "t": bool, "d": np.int64}
    >>> tensors = {name: Tensor(name, dims[name], np.dtype(dtypes.get(name, np.float32))) for name in dims}
    >>> constants = {"d": np.array([2, 3]), "a": np.float32([0])[0:1].reshape(()), "b": np.ones((), np.float32)}
    >>> [node.operator for node in delay_expansions(Network("", 17, ("m",), ("y",), nodes, tensors, constants)).nodes]
    ['Where', 'Expand']
    """
    tensors, nodes = dict(network.tensors), list[Node]()
    expansions = {node.outputs[0]: node for node in network.nodes if node.operator == "Expand"}
    for node in network.nodes:
        delayed = _delay(network, node, tensors, expansions)
        for new in delayed or (node,):
            nodes.append(new)
            if new.operator == "Expand":
                expansions[new.outputs[0]] = new
    return remove_dead_nodes(replace(network, nodes=tuple(nodes), tensors=tensors))


def _delay(
    network: Network, node: Node, tensors: dict[str, Tensor], expansions: Mapping[str, Node]
) -> tuple[Node, Node] | None:
    """Return a node on the source of an Expand, and the Expand of its result; None if the node reads no such Expand.

    The tensor between both is added to `tensors`.
    """
    reads = {name for name in node.inputs if name not in network.constants}
    expand = expansions.get(next(iter(reads))) if len(reads) == 1 else None
    if node.operator not in _ELEMENTWISE or node.domain not in ("", "ai.onnx") or expand is None:
        return None
    (wide,), (result,), narrow = reads, node.outputs, expand.inputs[0]
    others = [network.constants[name] for name in node.inputs if name in network.constants]
    is_mask = tensors[wide].dtype != np.float32 and tensors[wide].dims == tensors[result].dims
    dims = tensors[narrow].dims
    if not is_mask or any(array.size != 1 or array.ndim > len(dims) for array in others):
        return None
    inner = unused_name(f"{result}:narrow", tensors)
    tensors[inner] = Tensor(inner, dims, tensors[result].dtype)
    inputs = tuple(narrow if name == wide else name for name in node.inputs)
    first = replace(node, name=f"{node.name}:narrow", inputs=inputs, outputs=(inner,))
    return first, Node(node.name, "Expand", (inner, expand.inputs[1]), (result,))


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
    is_fast = not is_primitive or can_broadcast(result, (1,) * (len(result) - len(own)) + own)
    return is_second and is_fast and np.broadcast_shapes(*shapes) == result
