"""`NetworkRewriter`: a `Network` while its nodes are replaced.

A rule looks at one node and back at what its inputs come from, and answers the node to stand in its place. Nodes that
nothing needs any more go at the end, so a rule that reads past a node need not care who else reads it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from inlay.graph.network import Network, Node, Tensor, read_only, unused_name
from inlay.graph.op_graph import Array

Rule: TypeAlias = Callable[["NetworkRewriter", Node], Node | None]
"""What stands in the place of a node, or None to leave it."""


class NetworkRewriter:
    """The nodes of a network by their results, and who reads what."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.tensors: dict[str, Tensor] = dict(network.tensors)
        self.constants: dict[str, Array] = dict(network.constants)
        self.nodes: dict[str, Node] = {node.name: node for node in network.nodes}
        self._producers = {name: node.name for node in network.nodes for name in node.outputs if name}
        self._readers = Counter(name for node in network.nodes for name in node.inputs)
        self._readers.update(network.outputs)

    def producer(self, name: str) -> Node | None:
        """The node that writes a tensor; None for an input or a constant."""
        return self.nodes.get(self._producers.get(name, ""))

    def producer_of_kind(self, name: str, operator: str) -> Node | None:
        """The node that writes a tensor, if it is of that operator."""
        node = self.producer(name)
        return node if node is not None and node.operator == operator else None

    def is_read_once(self, name: str) -> bool:
        """Whether one node reads a tensor, once, and no one asks for it."""
        return self._readers[name] == 1 and name not in self.network.outputs

    def is_read(self, name: str) -> bool:
        """Whether a node reads a tensor, or it is asked for."""
        return bool(name) and self._readers[name] > 0

    def scalar(self, name: str) -> float | None:
        """The value of a constant of one element."""
        array = self.constants.get(name)
        return float(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "fiu" else None

    def dims(self, name: str) -> tuple[int, ...]:
        """Extents of a tensor."""
        return self.tensors[name].dims

    def add_constant(self, name: str, array: Array) -> str:
        """Add a constant under that name, or one like it that is free; its name."""
        name = unused_name(name, self.tensors)
        self.constants[name] = read_only(np.ascontiguousarray(array).reshape(array.shape))
        self.tensors[name] = Tensor(name, array.shape, array.dtype)
        return name

    def replace_node(self, old: Node, new: Node) -> None:
        """Put a node in the place of another; it may have the name of a third, which has to be dead from then on."""
        self.nodes[old.name] = new
        self._readers.subtract(old.inputs)
        self._readers.update(new.inputs)
        self._producers.update({name: old.name for name in new.outputs if name})

    def build(self) -> Network:
        """The network as it has become."""
        nodes = tuple(self.nodes.values())
        return remove_dead_nodes(replace(self.network, nodes=nodes, tensors=self.tensors, constants=self.constants))


def rewrite_nodes(network: Network, rule: Rule) -> Network:
    """The network with each node, in order, replaced by what the rule says."""
    rewriter = NetworkRewriter(network)
    for name in tuple(rewriter.nodes):
        node = rewriter.nodes[name]
        with np.errstate(all="ignore"):  # a weight may overflow, as the network would have done
            new = rule(rewriter, node)
        if new is not None:
            rewriter.replace_node(node, new)
    return rewriter.build()


def remove_dead_nodes(network: Network) -> Network:
    """The network without nodes, constants and tensors that no output needs."""
    needed = set(network.outputs)
    kept: list[Node] = []
    for node in reversed(network.nodes):
        if needed.intersection(node.outputs) - {""}:
            kept.append(node)
            needed.update(node.inputs)
    needed.update(network.inputs, *(node.outputs for node in kept))
    return replace(
        network,
        nodes=tuple(reversed(kept)),
        tensors=_restrict(network.tensors, needed),
        constants=_restrict(network.constants, needed),
    )


def _restrict(table: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name in names}
