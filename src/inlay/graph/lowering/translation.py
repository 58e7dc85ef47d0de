"""`lowered`: a network in ONNX's operators becomes operations that have formats.

Nodes are translated one by one, each by the rule of its operator in `TABLE`. A rule that declines, and an operator
without one, leaves a reference, with the reason: NumPy computes it, as `graph.numpy_operators` says. What nobody reads
any more, such as a flatten before a layer that reads the image itself, is dropped.

>>> import numpy as np
>>> from inlay.graph.network import Tensor
>>> x, y = (Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xy")
>>> network = Network("tiny", 13, ("x",), ("y",), (Node("n", "Relu", ("x",), ("y",)),), {"x": x, "y": y})
>>> [(op.name, op.kind, op.parameters["algorithm"]) for op in lowered(network).ops]
[('n', 'eltwise', 'relu')]
>>> TABLE["Conv"].__name__
'convolution'
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from inlay.errors import InvalidArguments
from inlay.graph.lowering.draft import Declined, Draft, Operand, require
from inlay.graph.lowering.elementwise import ELEMENTWISE
from inlay.graph.lowering.moving import MOVING
from inlay.graph.lowering.normalizations import NORMALIZATIONS
from inlay.graph.lowering.products import PRODUCTS
from inlay.graph.lowering.spatial import SPATIAL
from inlay.graph.network import Network, Node, Tensor
from inlay.graph.op_graph import Op, OpGraph

Rule: TypeAlias = Callable[[Draft], Operand | tuple[Operand | None, ...]]

TABLE: Mapping[str, Rule] = MappingProxyType({**ELEMENTWISE, **MOVING, **NORMALIZATIONS, **PRODUCTS, **SPATIAL})
"""Operator of ONNX to rule."""


_OLDEST = 7
"""Before it, Add and its like say by attributes how dims are spread."""


def lowered(network: Network) -> OpGraph:
    """The operations of a network, with the same inputs and outputs; results are those of ONNX.

    Outputs that are constants become references that answer them.

    Raises:
        InvalidArguments: the network is of an opset before 7, or what it says of a result's dims is wrong.
    """
    if network.opset < _OLDEST:
        raise InvalidArguments(
            f"network {network.name!r} is of opset {network.opset}: convert it to opset {_OLDEST} or newer, "
            "with onnx.version_converter"
        )
    graph = _Graph(network, _wanted(network))
    for node in (*network.nodes, *_answers(network)):
        if any(name in graph.wanted for name in node.outputs):
            graph.add(node)
    return graph.finished()


def _wanted(network: Network) -> frozenset[str]:
    """Tensors that a node reads or the network answers."""
    return frozenset(network.outputs).union(*(node.inputs for node in network.nodes)) - {""}


def _answers(network: Network) -> list[Node]:
    """Nodes that answer the outputs that are constants."""
    names = [name for name in dict.fromkeys(network.outputs) if name in network.constants]
    return [Node(name, "Identity", (name,), (name,)) for name in names]


@dataclass(slots=True)
class _Graph:
    """The operations so far."""

    network: Network
    wanted: frozenset[str]
    ops: list[Op] = field(default_factory=list)
    made: dict[str, Tensor] = field(default_factory=dict)
    writers: dict[str, Op] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """Append what a node becomes."""
        draft = Draft(node, self.network, self.made, self.writers, self.wanted)
        try:
            require(node.domain in ("", "ai.onnx") and node.operator in TABLE, _unknown(node))
            _finish(draft, TABLE[node.operator](draft))
        except Declined as why:
            draft.ops = [_reference(self.network, node, self.wanted, str(why))]
            draft.made = {}
        self.ops += draft.ops
        self.made |= draft.made
        self.writers |= {name: op for op in draft.ops for name in op.writes.values()}

    def finished(self) -> OpGraph:
        """The graph without what nobody reads."""
        needed, kept = set(self.network.outputs), list[Op]()
        for op in reversed(self.ops):
            if needed.intersection(op.writes.values()):
                needed.update(op.reads.values())
                kept.insert(0, op)
        names = [*self.network.inputs, *(name for op in kept for name in (*op.reads.values(), *op.writes.values()))]
        tensors = {name: self.made.get(name) or self.network.tensors[name] for name in names}
        network = self.network
        return OpGraph(network.name, network.opset, network.inputs, network.outputs, tuple(kept), tensors)


def _unknown(node: Node) -> str:
    return f"there is no primitive for {node.operator}" + (f" of {node.domain}" if node.domain else "")


def _finish(draft: Draft, found: Operand | tuple[Operand | None, ...]) -> None:
    """Give what a rule answered the names of the node's outputs."""
    answers = found if isinstance(found, tuple) else (found,)
    names: dict[str, str] = {}
    for output, answer in zip(draft.node.outputs, answers, strict=False):
        if output not in draft.wanted or answer is None:
            continue
        if not isinstance(answer, str):
            raise Declined("all that it reads is constant")
        fresh = answer if answer in draft.made and answer not in names else draft.same(answer)
        names[fresh] = output
        _require_dims(draft, output, draft.made[fresh])
    draft.ops = [replace(op, reads=_renamed(op.reads, names), writes=_renamed(op.writes, names)) for op in draft.ops]
    draft.made = {names.get(old, old): replace(made, name=names.get(old, old)) for old, made in draft.made.items()}


def _require_dims(draft: Draft, output: str, made: Tensor) -> None:
    said = draft.network.tensors[output].dims
    if said != made.dims:
        node = draft.node
        raise InvalidArguments(
            f"node {node.name!r}: {node.operator} gives {output} the dims {made.dims}, and the network says {said}: "
            "infer its shapes anew"
        )


def _renamed(names: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    return {argument: renamed.get(name, name) for argument, name in names.items()}


def _reference(network: Network, node: Node, wanted: frozenset[str], why: str) -> Op:
    """The node as NumPy computes it, outputs that nobody reads left out."""
    inputs = [name for name in node.inputs if name]
    outputs = tuple(name if name in wanted else "" for name in node.outputs)
    reads = [name for name in inputs if name not in network.constants]
    return Op(
        node.name,
        "reference",
        {f"src_{index}": name for index, name in enumerate(reads)},
        {f"dst_{index}": name for index, name in enumerate(filter(None, outputs))},
        {name: network.constants[name] for name in inputs if name in network.constants},
        node=replace(node, outputs=outputs),
        nodes=(node.name,),
        why=why,
    )
