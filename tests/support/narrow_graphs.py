"""Graphs with operations in a narrow type, by explicit conversions: a stand-in for types that the planner chooses."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from inlay.data_type import as_data_type
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, OpGraph


def is_narrow(op: Op, names: Collection[str] | None) -> bool:
    """Whether an operation is to be in the narrow type."""
    return op.kind not in ("view", "reference") and (names is None or op.name in names)


def narrow_graph(graph: OpGraph, data_type: str, names: Collection[str] | None = None) -> OpGraph:
    """The graph with the primitives of these names, or all, on tensors of a narrow type, between conversions."""
    dtype = as_data_type(data_type).dtype
    tensors, ops = dict(graph.tensors), []
    wide_ops = [op for op in graph.ops if not is_narrow(op, names)]
    wide_reads = {*graph.outputs, *(name for op in wide_ops for name in op.reads.values())}

    def narrowed(name: str) -> str:
        own = f"{name}:{data_type}"
        tensors[own] = Tensor(own, graph.tensors[name].dims, dtype)
        return own

    for op in graph.ops:
        if not is_narrow(op, names):
            ops.append(op)
            continue
        wide = dict.fromkeys(name for name in op.reads.values() if tensors[name].dtype == np.float32)
        for name in wide:
            if f"{name}:{data_type}" not in tensors:
                ops.append(Op(f"to:{name}", "reorder", {"src": name}, {"dst": narrowed(name)}))
        reads = {a: f"{name}:{data_type}" if name in wide else name for a, name in op.reads.items()}
        ops.append(replace(op, reads=reads, writes={a: narrowed(name) for a, name in op.writes.items()}))
        for name in wide_reads.intersection(op.writes.values()):
            ops.append(Op(f"from:{name}", "reorder", {"src": f"{name}:{data_type}"}, {"dst": name}))
    return replace(graph, ops=tuple(ops), tensors=tensors)
