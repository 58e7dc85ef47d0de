"""`merge_common_subexpressions`: nodes that compute the same from the same tensors become one.

Exporters write the mask of an attention in each layer anew:

    Where(mask, 0, -inf) in 12 layers      one Where, whose result all layers read

Only nodes that read or write other types than floats are merged. A float tensor with several readers could not be
fused into one of them.

Source: Cocke, "Global Common Subexpression Elimination", 1970.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.op_graph import Array
from inlay.graph.passes.rewriting import remove_dead_nodes

_RANDOM = frozenset(("Bernoulli", "Dropout", "Multinomial"))
"""Operators with random results, besides those whose names begin with Random."""
_MOST_COMPARED = 64
"""Most elements of constants that are compared by value; larger ones are equal if their names are."""


def merge_common_subexpressions(network: Network) -> Network:
    """Return the network with one node for each set of nodes that compute the same integers, truth values or masks.

    >>> from inlay.graph.network import Tensor
    >>> nodes = [Node(name, "IsNaN", ("x",), (f"{name}:out",)) for name in "ab"]
    >>> nodes.append(Node("c", "Or", ("a:out", "b:out"), ("y",)))
    >>> names = ("x", "a:out", "b:out", "y")
    >>> tensors = {name: Tensor(name, (2,), np.dtype(np.float32 if name == "x" else bool)) for name in names}
    >>> network = merge_common_subexpressions(Network("", 17, ("x",), ("y",), tuple(nodes), tensors))
    >>> [(node.name, node.inputs) for node in network.nodes]
    [('a', ('x',)), ('c', ('a:out', 'a:out'))]
    """
    same: dict[str, str] = {}
    first: dict[Hashable, Node] = {}
    nodes = []
    for node in network.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        equal = first.setdefault(_key(network, node), node) if _can_merge(network, node) else node
        if equal is node:
            nodes.append(node)
        else:
            same.update(zip(node.outputs, equal.outputs, strict=True))
    return remove_dead_nodes(replace(network, nodes=tuple(nodes)))


def _can_merge(network: Network, node: Node) -> bool:
    """Return whether a node may be replaced by an equal one."""
    if node.operator in _RANDOM or node.operator.startswith("Random") or not node.inputs:
        return False
    names = [name for name in (*node.inputs, *node.outputs) if name and name not in network.constants]
    is_mask = any(network.tensors[name].dtype.kind != "f" for name in names)
    return is_mask and not any(name in network.outputs for name in node.outputs)


def _key(network: Network, node: Node) -> Hashable:
    """Return a value that nodes share if they compute the same."""
    inputs = tuple(_input_key(network.constants, name) for name in node.inputs)
    attributes = tuple((name, _value_key(value)) for name, value in sorted(node.attributes.items()))
    return node.domain, node.operator, inputs, attributes, tuple(bool(name) for name in node.outputs)


def _input_key(constants: Mapping[str, Array], name: str) -> Hashable:
    """Return the elements of a small constant, or the name of any other tensor."""
    array = constants.get(name)
    return name if array is None or array.size > _MOST_COMPARED else _value_key(array)


def _value_key(value: Any) -> Hashable:
    """Return a hashable form of an attribute or array."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.dtype.name, value.shape, repr(value.tolist())
    return type(value).__name__, repr(value)
