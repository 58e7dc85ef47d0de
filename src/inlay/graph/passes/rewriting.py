"""`NetworkRewriter`: a `Network` while its nodes are replaced. `rewrite_nodes` applies a rule to each node.

A rule is called with one node. It inspects the nodes that compute the inputs, and returns the node that replaces the
one node, and may insert nodes before it. Nodes that are not needed any more are removed at the end. So a rule may
bypass a node that has other consumers.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from inlay.descriptor.validation import MAX_NDIMS
from inlay.graph.background import yield_to_runs
from inlay.graph.network import Network, Node, Tensor, read_only, unused_name
from inlay.graph.op_graph import Array

RewriteRule: TypeAlias = Callable[["NetworkRewriter", Node], Node | None]
"""Function that returns the replacement of a node, or None to leave the node as it is."""


class NetworkRewriter:
    """A network while its nodes are replaced: nodes, tensors, constants, producers and number of consumers."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.tensors: dict[str, Tensor] = dict(network.tensors)
        self.constants: dict[str, Array] = dict(network.constants)
        self.nodes: dict[str, Node] = {node.name: node for node in network.nodes}
        self._producers = {name: node.name for node in network.nodes for name in node.outputs if name}
        self._readers = Counter(name for node in network.nodes for name in node.inputs)
        self._readers.update(network.outputs)
        self._inserted: dict[str, list[str]] = {}  # name of a node to the names of new nodes before it

    def producer(self, name: str) -> Node | None:
        """Return the node that writes a tensor; None for an input or a constant."""
        return self.nodes.get(self._producers.get(name, ""))

    def producer_of_kind(self, name: str, operator: str) -> Node | None:
        """Return the node that writes a tensor, if it has that operator; None otherwise."""
        node = self.producer(name)
        return node if node is not None and node.operator == operator else None

    def is_read_once(self, name: str) -> bool:
        """Return whether one node reads a tensor, through one input, and the tensor is not an output."""
        return self._readers[name] == 1 and name not in self.network.outputs

    def is_read(self, name: str) -> bool:
        """Return whether a node reads a tensor, or the tensor is an output."""
        return bool(name) and self._readers[name] > 0

    def scalar(self, name: str) -> float | None:
        """Return the value of a numeric constant with one element; None for any other tensor."""
        array = self.constants.get(name)
        return float(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "fiu" else None

    def dims(self, name: str) -> tuple[int, ...]:
        """Return the dims of a tensor."""
        return self.tensors[name].dims

    def add_constant(self, name: str, array: Array) -> str:
        """Add a constant under `name`, or a similar name if that is in use, and return its name."""
        name = unused_name(name, self.tensors)
        self.constants[name] = read_only(np.ascontiguousarray(array).reshape(array.shape))
        self.tensors[name] = Tensor(name, array.shape, array.dtype)
        return name

    def insert_node(
        self,
        before: Node,
        operator: str,
        inputs: tuple[str, ...],
        dims: tuple[int, ...],
        attributes: Mapping[str, Any] | None = None,
        dtype: np.dtype[Any] | None = None,
        *,
        result: str = "",
    ) -> str:
        """Insert a node with one result of these dims before another node, and return the name of the result.

        The result has the type of the first input, if `dtype` does not state another. It is `result` if that names a
        tensor, which `before` must not write any more after its replacement.
        """
        name = unused_name(f"{before.outputs[0]}:{operator.lower()}", self.tensors, self.nodes)
        result = result or name
        self.tensors[result] = Tensor(result, dims, self.tensors[inputs[0]].dtype if dtype is None else dtype)
        self.nodes[name] = Node(name, operator, inputs, (result,), dict(attributes or {}))
        self._producers[result] = name
        self._readers.update(inputs)
        self._inserted.setdefault(before.name, []).append(name)
        return result

    def insert_reshape(self, before: Node, name: str, dims: tuple[int, ...]) -> str:
        """Insert a Reshape of a tensor before a node, and return the name of its result."""
        shape = self.add_constant(f"{name}:shape", np.array(dims, np.int64))
        return self.insert_node(before, "Reshape", (name, shape), dims)

    def insert_transpose(self, before: Node, name: str, perm: tuple[int, ...]) -> str:
        """Insert a Transpose of a tensor before a node, and return the name of its result."""
        dims = tuple(self.dims(name)[axis] for axis in perm)
        return self.insert_node(before, "Transpose", (name,), dims, {"perm": perm})

    def replace_node(self, old: Node, new: Node) -> None:
        """Replace `old` by `new`; if `new` has the name of a third node, that node must be dead from then on."""
        self.nodes[old.name] = new
        self._readers.subtract(old.inputs)
        self._readers.update(new.inputs)
        self._producers.update({name: old.name for name in new.outputs if name})

    def build(self) -> Network:
        """Return the rewritten network."""
        new = {name for names in self._inserted.values() for name in names}
        order = [one for name in self.nodes if name not in new for one in (*self._inserted.get(name, ()), name)]
        nodes = tuple(self.nodes[name] for name in order)
        return remove_dead_nodes(replace(self.network, nodes=nodes, tensors=self.tensors, constants=self.constants))


def rewrite_nodes(network: Network, rule: RewriteRule) -> Network:
    """Return the network after the rule was applied to each node, in order."""
    rewriter = NetworkRewriter(network)
    for name in tuple(rewriter.nodes):
        yield_to_runs()
        node = rewriter.nodes[name]
        with np.errstate(all="ignore"):  # a weight may overflow, as the network would have done
            new = rule(rewriter, node)
        if new is not None:
            rewriter.replace_node(node, new)
    return rewriter.build()


def is_describable(dims: tuple[int, ...]) -> bool:
    """Return whether a descriptor can have these dims and elements: primitives compute no other tensors."""
    return 0 < len(dims) <= MAX_NDIMS and 0 not in dims


def remove_dead_nodes(network: Network) -> Network:
    """Return the network without nodes, constants and tensors that no output needs."""
    needed = set(network.outputs)
    nodes: list[Node] = []
    for node in reversed(network.nodes):
        if needed.intersection(node.outputs) - {""}:
            nodes.append(node)
            needed.update(node.inputs)
    needed.update(network.inputs, *(node.outputs for node in nodes))
    return replace(
        network,
        nodes=tuple(reversed(nodes)),
        tensors=_restrict(network.tensors, needed),
        constants=_restrict(network.constants, needed),
    )


def _restrict(table: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Return the entries of a table whose names are in `names`."""
    return {name: value for name, value in table.items() if name in names}
