"""`lower_network`: translate a network of ONNX's operators into an `OpGraph`, whose operations have formats to choose.

Nodes are translated one by one, each by the rule of its operator in `TABLE`. If the operator has no rule, or the rule
raises `UnsupportedNode`, the node becomes a reference operation with that reason. NumPy computes it; see
`graph.numpy_operators`. Operations without consumers are dropped at the end. An example is the view of a Flatten when
the layer after it reads the image itself.

>>> import numpy as np
>>> from inlay.graph.network import Tensor
>>> x, y = (Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xy")
>>> network = Network("tiny", 13, ("x",), ("y",), (Node("n", "Relu", ("x",), ("y",)),), {"x": x, "y": y})
>>> [(op.name, op.kind, op.parameters["algorithm"]) for op in lower_network(network).ops]
[('n', 'eltwise', 'relu')]
>>> TABLE["Conv"].__name__
'convolution'
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from inlay.errors import InvalidArguments
from inlay.graph.background import yield_to_runs
from inlay.graph.lowering.block_quantized import BLOCK_RULES
from inlay.graph.lowering.context import LoweringContext, LoweringRule, Operand, UnsupportedNode
from inlay.graph.lowering.data_movement import DATA_MOVEMENT
from inlay.graph.lowering.dynamic_quantization import DYNAMIC_RULES
from inlay.graph.lowering.einsum import EINSUM
from inlay.graph.lowering.elementwise import ELEMENTWISE
from inlay.graph.lowering.kept_states import STATE_RULES
from inlay.graph.lowering.normalizations import NORMALIZATIONS
from inlay.graph.lowering.products import PRODUCTS
from inlay.graph.lowering.quantized import QUANTIZED_RULES
from inlay.graph.lowering.selection import SELECTION
from inlay.graph.lowering.spatial import SPATIAL
from inlay.graph.network import Network, Node, Subgraph, Tensor
from inlay.graph.op_graph import Op, OpGraph

TABLE: Mapping[str, LoweringRule] = MappingProxyType(
    {
        **ELEMENTWISE,
        **DATA_MOVEMENT,
        **NORMALIZATIONS,
        **PRODUCTS,
        **EINSUM,
        **SELECTION,
        **SPATIAL,
        **QUANTIZED_RULES,
        **DYNAMIC_RULES,
        **BLOCK_RULES,
        **STATE_RULES,
    }
)
"""Rule of each operator that has one: by name, or by `domain:name` where the domain is not ONNX's own.

An operator of another domain, such as the Attention of com.microsoft, may have the name of one of ONNX's.
"""
_ONNX_DOMAINS = ("", "ai.onnx")


_OLDEST = 7
"""Oldest opset that the rules support; before it, attributes of Add and similar operators control broadcasting."""


def lower_network(network: Network) -> OpGraph:
    """Return the operations of a network, with the same inputs and outputs; their results are those of ONNX.

    Outputs that are constants become reference operations that return them.

    Raises:
        InvalidArguments: the network's opset is before 7, or the network states wrong dims for a result.
    """
    if network.opset < _OLDEST:
        raise InvalidArguments(
            f"network {network.name!r} is of opset {network.opset}: convert it to opset {_OLDEST} or newer, "
            "with onnx.version_converter"
        )
    graph = _GraphBuilder(network, _find_used_tensors(network))
    for node in (*network.nodes, *_constant_outputs(network)):
        if any(name in graph.used_tensors for name in node.outputs):
            graph.add(node)
    return graph.build()


def _find_used_tensors(network: Network) -> frozenset[str]:
    """Return the tensors that a node reads or that are outputs of the network."""
    return frozenset(network.outputs).union(*(node.inputs for node in network.nodes)) - {""}


def _constant_outputs(network: Network) -> list[Node]:
    """Return an Identity node for each output that is a constant."""
    names = [name for name in dict.fromkeys(network.outputs) if name in network.constants]
    return [Node(name, "Identity", (name,), (name,)) for name in names]


@dataclass(slots=True)
class _GraphBuilder:
    """Operations, tensors and writers of the graph so far."""

    network: Network
    used_tensors: frozenset[str]
    ops: list[Op] = field(default_factory=list)
    new_tensors: dict[str, Tensor] = field(default_factory=dict)
    writers: dict[str, Op] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """Lower a node and append its operations."""
        yield_to_runs()
        context = LoweringContext(node, self.network, self.new_tensors, self.writers, self.used_tensors)
        try:
            rule = TABLE.get(rule_name(node))
            if rule is None:
                raise UnsupportedNode(_no_rule(node))
            _name_results(context, rule(context))
        except UnsupportedNode as why:
            self._replace_by_reference(context, str(why))
        except MemoryError:
            self._replace_by_reference(context, "the constants of its primitives need more memory than there is")
        self.ops += context.ops
        self.new_tensors |= context.new_tensors
        self.writers |= {name: op for op in context.ops for name in op.writes.values()}

    def _replace_by_reference(self, context: LoweringContext, why: str) -> None:
        """Discard what a rule emitted for a node, and use a reference operation."""
        context.ops = [_build_reference(self.network, context.node, self.used_tensors, why)]
        context.new_tensors = {}

    def build(self) -> OpGraph:
        """Return the graph without operations that no output needs."""
        needed, ops = set(self.network.outputs), list[Op]()
        for op in reversed(self.ops):
            if needed.intersection(op.writes.values()):
                needed.update(op.reads.values())
                ops.insert(0, op)
        names = [*self.network.inputs, *(name for op in ops for name in (*op.reads.values(), *op.writes.values()))]
        tensors = {name: self.new_tensors.get(name) or self.network.tensors[name] for name in names}
        network = self.network
        ends = network.inputs, network.outputs
        return OpGraph(network.name, network.opset, *ends, tuple(ops), tensors, states=network.states)


def rule_name(node: Node) -> str:
    """Return the key of a node's operator in `TABLE`."""
    return node.operator if node.domain in _ONNX_DOMAINS else f"{node.domain}:{node.operator}"


def _no_rule(node: Node) -> str:
    """Return the reason for a node whose operator has no rule."""
    if isinstance(node, Subgraph):
        return node.why
    return f"there is no primitive for {node.operator}" + (f" of {node.domain}" if node.domain else "")


def _name_results(context: LoweringContext, returned: Operand | tuple[Operand | None, ...]) -> None:
    """Rename the operands that a rule returned to the node's outputs.

    An operand that the rule did not emit, or that holds two outputs, gets a view with the output's name.
    """
    results = returned if isinstance(returned, tuple) else (returned,)
    names: dict[str, str] = {}
    for output, result in zip(context.node.outputs, results, strict=False):
        if output not in context.used_tensors or result is None:
            continue
        if not isinstance(result, str):
            raise UnsupportedNode("all of its inputs are constant")
        name = result if result in context.new_tensors and result not in names else context.alias(result)
        names[name] = output
        _require_dims(context, output, context.new_tensors[name])
    context.ops = [
        replace(op, reads=_substitute(op.reads, names), writes=_substitute(op.writes, names)) for op in context.ops
    ]
    context.new_tensors = {
        names.get(old, old): replace(tensor, name=names.get(old, old)) for old, tensor in context.new_tensors.items()
    }


def _require_dims(context: LoweringContext, output: str, result: Tensor) -> None:
    """Raise InvalidArguments if a result has other dims than the network states."""
    dims = context.network.tensors[output].dims
    if dims != result.dims:
        node = context.node
        raise InvalidArguments(
            f"node {node.name!r}: {node.operator} writes {output} with dims {result.dims}, and the network states "
            f"{dims}: infer its shapes again"
        )


def _substitute(names: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the tensors of arguments with some tensors renamed."""
    return {argument: renamed.get(name, name) for argument, name in names.items()}


def _build_reference(network: Network, node: Node, used_tensors: frozenset[str], why: str) -> Op:
    """Return the node as a reference operation; outputs that are not in `used_tensors` are left out."""
    inputs = [name for name in node.inputs if name]
    outputs = tuple(name if name in used_tensors else "" for name in node.outputs)
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
