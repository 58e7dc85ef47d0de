"""Nodes that give what they take: Identity, Dropout when a network runs, casts and reshapes to the same."""

from collections.abc import Mapping
from dataclasses import replace

from inlay.graph.network import Network, Node
from inlay.graph.patterns.rewriting import Draft, without_dead

_SAME_IF_DIMS = frozenset({"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"})
"""Operators that keep elements and their order, so that equal dims and types say all."""

_SAME_IF_ALONE = frozenset({"Concat", "Sum", "Max", "Min", "Mean"})
"""Operators of many inputs that give the only one as it is."""


def without_noops(network: Network) -> Network:
    """The network without the nodes that give what they take; one that answers an input or a constant stays.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> nodes = (Node("a", "Identity", ("x",), ("t",)), Node("b", "Relu", ("t",), ("y",)))
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xty"}
    >>> [node.inputs for node in without_noops(Network("", 17, ("x",), ("y",), nodes, tensors)).nodes]
    [('x',)]
    """
    draft = Draft(network)
    same: dict[str, str] = {}
    nodes = []
    for node in network.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        if _is_noop(draft, node) and node.outputs[0] not in network.outputs:
            same[node.outputs[0]] = node.inputs[0]
        else:
            nodes.append(node)
    return _answered(without_dead(replace(network, nodes=tuple(nodes))))


def _is_noop(draft: Draft, node: Node) -> bool:
    """Whether the first result is the first input, and the others are not asked for."""
    if not node.inputs or any(draft.is_read(name) for name in node.outputs[1:]):
        return False
    src, dst = draft.tensors[node.inputs[0]], draft.tensors[node.outputs[0]]
    if (src.dims, src.dtype) != (dst.dims, dst.dtype):
        return False
    if node.operator == "Transpose":
        perm = node.attributes.get("perm", tuple(reversed(range(len(src.dims)))))
        return tuple(perm) == tuple(range(len(src.dims)))
    if node.operator == "Dropout":
        return not _is_training(draft, node)
    return node.operator in _SAME_IF_DIMS or (node.operator in _SAME_IF_ALONE and len(node.inputs) == 1)


def _is_training(draft: Draft, node: Node) -> bool:
    """Whether a Dropout drops: only where its third input may be true."""
    if len(node.inputs) < 3 or not node.inputs[2]:
        return False
    mode = draft.constants.get(node.inputs[2])
    return mode is None or bool(mode.reshape(-1)[0])


def _answered(network: Network) -> Network:
    """Each output that a no-op gives is written by who writes what it takes, where that is a node and no output."""
    draft = Draft(network)
    renamed: dict[str, str] = {}
    for node in network.nodes:
        if node.outputs[0] in network.outputs and _is_noop(draft, node):
            source = node.inputs[0]
            if draft.producer(source) is not None and source not in network.outputs and source not in renamed:
                renamed[source] = node.outputs[0]
    dropped = set(renamed.items())
    kept = [node for node in network.nodes if not node.inputs or (node.inputs[0], node.outputs[0]) not in dropped]
    return without_dead(replace(network, nodes=tuple(_with_names(node, renamed) for node in kept)))


def _with_names(node: Node, names: Mapping[str, str]) -> Node:
    inputs, outputs = (tuple(names.get(name, name) for name in side) for side in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)
