"""Concatenations."""

from dataclasses import dataclass, field, replace

from inlay.graph.op_graph import Op, OpGraph


@dataclass(slots=True)
class _Prefix:
    """A node of the trie: concatenations whose sources begin alike."""

    after: dict[str, "_Prefix"] = field(default_factory=dict)
    """By the next source."""
    result: str | None = None
    """The tensor that has exactly these sources, if there is one."""


def nest_concatenations(graph: OpGraph) -> OpGraph:
    """The graph with each concatenation reading the longest result that holds its first sources.

    Post-condition: every tensor of both graphs has the same elements.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> widths = {"a": 1, "b": 2, "c": 3, "ab": 3, "abc": 6}
    >>> tensors = {name: Tensor(name, (1, width), np.dtype(np.float32)) for name, width in widths.items()}
    >>> axis = {"axis": 1}
    >>> ops = (
    ...     Op("two", "concat", {"src_0": "a", "src_1": "b"}, {"dst": "ab"}, parameters=axis),
    ...     Op("three", "concat", {"src_0": "a", "src_1": "b", "src_2": "c"}, {"dst": "abc"}, parameters=axis),
    ... )
    >>> nested = nest_concatenations(OpGraph("tiny", 17, ("a", "b", "c"), ("ab", "abc"), ops, tensors))
    >>> [dict(op.reads) for op in nested.ops]
    [{'src_0': 'a', 'src_1': 'b'}, {'src_0': 'ab', 'src_1': 'c'}]
    """
    roots: dict[object, _Prefix] = {}
    ops = []
    for op in graph.ops:
        if op.kind == "concat" and not op.constants and len(op.reads) > 1:
            op = _nested(op, roots.setdefault(op.parameters["axis"], _Prefix()))
        ops.append(op)
    return replace(graph, ops=tuple(ops))


def _nested(op: Op, root: _Prefix) -> Op:
    """A concatenation that reads the longest earlier one that it begins with; its own sources are remembered."""
    sources = [op.reads[f"src_{i}"] for i in range(len(op.reads))]
    node, longest, result = root, 0, ""
    for count, name in enumerate(sources, 1):
        node = node.after.setdefault(name, _Prefix())
        if node.result is not None and count < len(sources):
            longest, result = count, node.result
    if node.result is None:
        (node.result,) = op.writes.values()
    if not longest:
        return op
    return replace(op, reads={f"src_{i}": name for i, name in enumerate((result, *sources[longest:]))})
