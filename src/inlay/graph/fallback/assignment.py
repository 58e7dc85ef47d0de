"""`assign_fallback`: the pass that chooses ONNX Runtime or NumPy for each node that no primitive computes.

Adjacent nodes that ONNX Runtime supports become one operation, whose node is a `Subgraph`. Whether it supports them is
found by the creation of sessions: first for a whole group, then for each of its nodes if that fails. So the choice
depends on the network and the installed packages alone. The graph keeps the sessions for its compilation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.fallback.grouping import find_groups, sort_operations
from inlay.graph.fallback.library import INSTALL, find_onnxruntime
from inlay.graph.fallback.sessions import FallbackSession, SubgraphInterface, describe_interface
from inlay.graph.fallback.support import find_exclusion
from inlay.graph.network import Node, Subgraph
from inlay.graph.numpy_operators.evaluation import require_computable
from inlay.graph.op_graph import Op, OpGraph, ProcessObjects, readers_of
from inlay.reordering.threads import get_num_threads

Fallback: TypeAlias = Literal["auto", False] | None
"""The kernels of nodes without a primitive: `auto` for ONNX Runtime where it can, else NumPy; False for NumPy; None for
nothing."""

_MOST_NAMED = 4  # nodes and reasons in a text


def require_fallback(fallback: object) -> None:
    """Require that a value is one of `Fallback`.

    Raises:
        InvalidArguments: it is none.
    """
    if fallback is not None and fallback is not False and not (isinstance(fallback, str) and fallback == "auto"):
        raise InvalidArguments(
            f"fallback is {fallback!r}: give 'auto', False for NumPy without ONNX Runtime, or None for neither"
        )


def assign_fallback(graph: OpGraph, fallback: Fallback) -> OpGraph:
    """Return the graph with the references that ONNX Runtime computes as operations on subgraphs.

    Operations on subgraphs that an earlier call made stay as they are.

    Raises:
        Unimplemented: there is a reference that `fallback` allows nothing to compute.
        MissingExtra: the package onnx is not installed.
    """
    references = [op for op in graph.ops if op.kind == "reference" and not _is_assigned(op)]
    if fallback is None:
        references = [op for op in references if not _is_constant_output(op)]
    if not references:
        return graph
    if fallback is None:
        raise Unimplemented(_describe_forbidden(graph, references))
    choice = _Choice(graph)
    if fallback == "auto" and find_onnxruntime() is not None:
        choice.choose(references)
    for op in references:
        if op.name not in choice.supported:
            _require_numpy(op, graph, choice.reasons.get(op.name, _why_not_tried(fallback)))
    return choice.build()


def _is_assigned(op: Op) -> bool:
    """Return whether an earlier call made the operation; subgraphs of the model state why they need ONNX Runtime."""
    return isinstance(op.node, Subgraph) and not op.node.why


def _is_constant_output(op: Op) -> bool:
    """Return whether an operation copies a constant to an output, which nothing needs to compute."""
    return not op.reads and op.node is not None and op.node.operator == "Identity"


def _describe_forbidden(graph: OpGraph, references: Sequence[Op]) -> str:
    """Return the error for references of which nothing may be computed."""
    named = ", ".join(f"{op.name!r} ({op.why})" for op in references[:_MOST_NAMED])
    more = f" and {len(references) - _MOST_NAMED} more" if len(references) > _MOST_NAMED else ""
    install = "" if find_onnxruntime() is not None else f", which {INSTALL} installs"
    return (
        f"fallback=None (--fallback none) allows primitives alone, and {len(references)} of {len(graph.ops)} "
        f"operations have none: {named}{more}: give fallback=False (--fallback numpy) for NumPy, or 'auto' for ONNX "
        f"Runtime too{install}"
    )


def _why_not_tried(fallback: Fallback) -> str:
    """Return why ONNX Runtime computes no reference."""
    return "fallback=False (--fallback numpy) forbids it" if fallback is False else f"it is not installed: {INSTALL}"


def _require_numpy(op: Op, graph: OpGraph, reason: str) -> None:
    """Require that NumPy can compute a reference; `reason` states why ONNX Runtime does not."""
    assert op.node is not None
    if isinstance(op.node, Subgraph):
        raise Unimplemented(f"node {op.name!r}: {op.why}: only ONNX Runtime computes it, and {reason}")
    try:
        require_computable(op.node, graph.opset)
    except Unimplemented as error:
        raise Unimplemented(f"{error}; ONNX Runtime does not compute it: {reason}") from error


@dataclass(slots=True)
class _Choice:
    """The references that ONNX Runtime supports, and its reasons for the others."""

    graph: OpGraph
    supported: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    is_separate: bool = False
    """True if each node has a session of its own, since ONNX Runtime supports nodes, but not their groups."""
    trials: dict[tuple[str, ...], "FallbackSession | str"] = field(default_factory=dict)
    """Session of each group that was tried, by the names of its operations, or why ONNX Runtime cannot compute it."""
    readers: dict[str, list[int]] = field(init=False)
    """Indices of the operations that read each tensor."""

    def __post_init__(self) -> None:
        """Find the readers of all tensors."""
        self.readers = readers_of(self.graph)

    def choose(self, references: Sequence[Op]) -> None:
        """Find the references that ONNX Runtime supports."""
        for op in references:
            reason = self._find_exclusion(op)
            if reason:
                self.reasons[op.name] = reason
            else:
                self.supported.add(op.name)
        failed = [ops for ops in self._groups() if len(ops) > 1 and self._find_failure(ops)]
        alone = [ops[0] for ops in self._groups() if len(ops) == 1] + [op for ops in failed for op in ops]
        for op in alone:
            if reason := self._find_failure([op]):
                self.reasons[op.name] = reason
                self.supported.discard(op.name)
        self.is_separate = bool(failed) and any(self._find_failure(ops) for ops in self._groups() if len(ops) > 1)

    def build(self) -> OpGraph:
        """Return the graph in which each group is one operation, and the reasons are added to the other references."""
        groups = self._groups()
        merged = {ops[-1].name: self._merge(ops) for ops in groups}
        sessions = {merged[ops[-1].name].name: self.trials[_names_of(ops)] for ops in groups}
        ops = [
            merged.get(op.name) or self._explain(op)
            for op in self.graph.ops
            if op.name not in self.supported or op.name in merged
        ]
        names = {*self.graph.inputs, *self.graph.outputs}
        names.update(name for op in ops for name in (*op.reads.values(), *op.writes.values()))
        tensors = {name: tensor for name, tensor in self.graph.tensors.items() if name in names}
        ordered = sort_operations(ops) if merged else tuple(ops)
        return replace(self.graph, ops=ordered, tensors=tensors, sessions=ProcessObjects(sessions))

    def _explain(self, op: Op) -> Op:
        """Return an operation with ONNX Runtime's reason, if it has one."""
        reason = self.reasons.get(op.name)
        return replace(op, why=f"{op.why}; ONNX Runtime does not compute it: {reason}") if reason else op

    def _groups(self) -> list[list[Op]]:
        """Return the groups of supported references."""
        single = {op.name for op in self.graph.ops if self.is_separate or _is_renamed(op)} & self.supported
        groups = [[self.graph.ops[i] for i in group] for group in find_groups(self.graph.ops, self.supported - single)]
        return groups + [[op] for op in self.graph.ops if op.name in single]

    def _find_exclusion(self, op: Op) -> str:
        """Return why ONNX Runtime is not asked about a reference; an empty text if it is."""
        assert op.node is not None
        if isinstance(op.node, Subgraph):
            return ""
        tensors = [self.graph.tensors[name] for name in (*op.reads.values(), *op.writes.values())]
        is_empty = any(0 in tensor.dims and not tensor.is_dynamic for tensor in tensors)
        if is_empty and _is_computable(op.node, self.graph):
            return "a tensor has no elements"  # which ends the process in some of its kernels
        dtypes = [tensor.dtype for tensor in tensors]
        return find_exclusion(op.node, self.graph.opset, [*dtypes, *(a.dtype for a in op.constants.values())])

    def _find_failure(self, ops: Sequence[Op]) -> str:
        """Return why ONNX Runtime cannot compute these operations in one session; an empty text if it can."""
        names = _names_of(ops)
        if names not in self.trials:
            try:
                self.trials[names] = FallbackSession(_interface_of(self._merge(ops), self.graph), get_num_threads())
            except Unimplemented as error:
                self.trials[names] = str(error).removeprefix("ONNX Runtime: ")
        trial = self.trials[names]
        return trial if isinstance(trial, str) else ""

    def _merge(self, ops: Sequence[Op]) -> Op:
        """Return the operation that computes these operations."""
        if len(ops) == 1 and isinstance(ops[0].node, Subgraph):
            return ops[0]
        members = {op.name for op in ops}
        inner = {name for op in ops for name in op.writes.values()}
        reads = dict.fromkeys(name for op in ops for name in op.reads.values() if name not in inner)
        writes = [name for op in ops for name in op.writes.values() if self._is_read_outside(name, members)]
        constants = {name: array for op in ops for name, array in op.constants.items()}
        nodes = tuple(node for op in ops for node in _nodes_of(op))
        name = ops[0].name
        return Op(
            name,
            "reference",
            {f"src_{i}": read for i, read in enumerate(reads)},
            {f"dst_{i}": written for i, written in enumerate(writes)},
            constants,
            node=Subgraph(name, "Subgraph", (*reads, *constants), tuple(writes), nodes=nodes),
            nodes=tuple(node for op in ops for node in op.nodes),
            why=_join_reasons(ops),
        )

    def _is_read_outside(self, tensor: str, members: set[str]) -> bool:
        """Return whether a tensor is an output, or an operation that is not in `members` reads it."""
        readers = (self.graph.ops[i].name for i in self.readers[tensor])
        return tensor in self.graph.outputs or any(name not in members for name in readers)


def _is_computable(node: Node, graph: OpGraph) -> bool:
    """Return whether NumPy can compute a node."""
    try:
        require_computable(node, graph.opset)
    except Unimplemented:
        return False
    return True


def _names_of(ops: Sequence[Op]) -> tuple[str, ...]:
    """Return the names of operations."""
    return tuple(op.name for op in ops)


def _is_renamed(op: Op) -> bool:
    """Return whether the nodes of a subgraph of the model know an input by another name than the network."""
    return isinstance(op.node, Subgraph) and op.node.inner_names != op.node.inputs


def _nodes_of(op: Op) -> tuple[Node, ...]:
    """Return the nodes that a reference computes."""
    if isinstance(op.node, Subgraph):
        return op.node.nodes
    return () if op.node is None else (op.node,)


def _join_reasons(ops: Sequence[Op]) -> str:
    """Return the reasons of operations, each once, at most `_MOST_NAMED` of them."""
    reasons = list(dict.fromkeys(op.why for op in ops))
    more = [f"and {len(reasons) - _MOST_NAMED} more reasons"] if len(reasons) > _MOST_NAMED else []
    return "; ".join([*reasons[:_MOST_NAMED], *more])


def _interface_of(op: Op, graph: OpGraph) -> SubgraphInterface:
    """Return the tensors of an operation on a subgraph.

    Pre-condition: its node is a `Subgraph`.
    """
    assert isinstance(op.node, Subgraph)
    return describe_interface(op.node, graph.opset, graph.tensors, op.writes.values(), op.constants)
