"""`merge_common_subexpressions`: of nodes that compute the same from the same inputs, all but the first are removed.

Exporters repeat such nodes for each layer of a transformer, as for the mask of attention. The pass runs after the
fusions, since these need tensors with one reader.

Source: Cocke, "Global Common Subexpression Elimination", 1970.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.numpy_operators.random_numbers import RANDOM_OPERATORS
from inlay.graph.passes.rewriting import remove_dead_nodes

_MOST_COMPARED = 1024
"""Limit on the elements of constants that are compared by value; larger ones are equal if they are the same tensor."""


def merge_common_subexpressions(network: Network) -> Network:
    """Return the network with one node in place of equal ones; nodes that write an output of the network stay.

    >>> from inlay.graph.network import Tensor
    >>> nodes = [Node(name, "Neg", ("x",), (name,)) for name in "ab"] + [Node("y", "Add", ("a", "b"), ("y",))]
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xaby"}
    >>> network = Network("", 17, ("x",), ("y",), tuple(nodes), tensors)
    >>> [node.inputs for node in merge_common_subexpressions(network).nodes]
    [('x',), ('a', 'a')]
    """
    first: dict[Hashable, Node] = {}
    same: dict[str, str] = {}
    keys = {name: _value_key(array) for name, array in network.constants.items() if array.size <= _MOST_COMPARED}
    nodes = []
    for node in network.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        earlier = first.setdefault(_node_key(node, keys), node) if _is_comparable(node) else node
        if earlier is node or set(network.outputs).intersection(node.outputs):
            nodes.append(node)
        else:
            same.update(zip(node.outputs, earlier.outputs, strict=True))
    return remove_dead_nodes(replace(network, nodes=tuple(nodes)))


def _is_comparable(node: Node) -> bool:
    """Return whether equal nodes have equal results: one operator without a random one."""
    return type(node) is Node and node.operator not in RANDOM_OPERATORS


def _node_key(node: Node, constants: Mapping[str, Hashable]) -> Hashable:
    """Return a key that equal nodes share: operator, attributes, inputs, and which outputs are left out."""
    attributes = tuple(sorted((name, _value_key(value)) for name, value in node.attributes.items()))
    inputs = tuple(constants.get(name, name) for name in node.inputs)
    return node.domain, node.operator, str(attributes), inputs, tuple(map(bool, node.outputs))


def _value_key(value: Any) -> tuple[str, ...]:
    """Return texts that two values share only if they are equal bit by bit and of the same type."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), str(value.shape), value.tobytes().hex()
    if isinstance(value, tuple):
        return "tuple", *(str(_value_key(item)) for item in value)
    return type(value).__name__, repr(value)
