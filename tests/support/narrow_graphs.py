"""Graphs with operations in a narrow type, by explicit conversions: a stand-in for types that the planner chooses."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from inlay.data_type import as_data_type
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, OpGraph


def narrow_graph(graph: OpGraph, data_type: str, names: Collection[str] | None = None) -> OpGraph:
    """The graph with the primitives of these names, or all, on tensors of a narrow type, between conversions."""
    dtype = as_data_type(data_type).dtype
    tensors, ops = dict(graph.tensors), []

    def narrowed(name: str) -> str:
        own = f"{name}:{data_type}"
        tensors[own] = Tensor(own, graph.tensors[name].dims, dtype)
        return own

    for op in graph.ops:
        if op.kind in ("view", "reference") or (names is not None and op.name not in names):
            ops.append(op)
            continue
        wide = dict.fromkeys(name for name in op.reads.values() if tensors[name].dtype == np.float32)
        for name in wide:
            if f"{name}:{data_type}" not in tensors:
                ops.append(Op(f"to:{name}", "reorder", {"src": name}, {"dst": narrowed(name)}))
        reads = {a: f"{name}:{data_type}" if name in wide else name for a, name in op.reads.items()}
        ops.append(replace(op, reads=reads, writes={a: narrowed(name) for a, name in op.writes.items()}))
        ops += [Op(f"from:{n}", "reorder", {"src": f"{n}:{data_type}"}, {"dst": n}) for n in op.writes.values()]
    return replace(graph, ops=tuple(ops), tensors=tensors)
