"""`nest_concatenations`: let concatenations of an `OpGraph` read the results of earlier ones.

Exporters write a growing block, as in DenseNet, with flat concatenations: each layer concatenates all earlier tensors
anew. A tensor can be stored within one result without a copy, so each further concatenation copies it. If the
concatenations are nested, each result is the beginning of the next one, and nothing is copied:

    c2 = concat(a, b);  c3 = concat(a, b, c);  c4 = concat(a, b, c, d)      flat: 531 copies in a DenseNet-121
    c2 = concat(a, b);  c3 = concat(c2, c);    c4 = concat(c3, d)           nested: none

Results have the same elements. Earlier concatenations are found in a trie of their sources, one trie for each axis.
"""

from dataclasses import dataclass, field, replace

from inlay.graph.op_graph import Op, OpGraph


@dataclass(slots=True)
class _Prefix:
    """Node of the trie: concatenations with the same first sources."""

    after: dict[str, "_Prefix"] = field(default_factory=dict)
    """Child nodes, by the next source."""
    result: str | None = None
    """Tensor that is the concatenation of exactly these sources; None if there is none."""


def nest_concatenations(graph: OpGraph) -> OpGraph:
    """Return the graph with each concatenation reading the longest earlier result that holds its first sources.

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
    """Return a concatenation that reads the longest earlier one with its first sources; add its sources to the trie."""
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
