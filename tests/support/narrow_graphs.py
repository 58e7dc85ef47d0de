"""Graphs with operations in a narrow type, by explicit conversions: a stand-in for types that the planner chooses."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np

from inlay.data_type import as_data_type
from inlay.graph import planning
from inlay.graph.algorithms import Convolutions
from inlay.graph.costs.estimates import Costs
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, OpGraph
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.planner.cost_cache import NO_PENALTIES, Penalties
from inlay.graph.planner.types import CHOOSES_TYPES


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


_plan_program = planning.plan_program
SAVED_SHARE = 0.01  # of the time of a plan: what an operation saves in a narrow type, for the stand-in
KINDS = (
    *("batch_normalization", "binary", "convolution", "deconvolution", "eltwise", "inner_product"),
    *("layer_normalization", "matmul", "pooling", "resampling", "softmax"),
)


def plan_narrow(
    graph: OpGraph, costs: Costs, convolutions: Convolutions = "auto", penalties: Penalties = NO_PENALTIES
) -> PlannedProgram:
    """Plan each operation in a narrow type whose tensors may all have it, and whose penalty is low."""
    plain = replace(graph, storage_types={})
    wide = _plan_program(plain, costs, convolutions)
    types = {name: types[0] for name, types in graph.storage_types.items()}
    if not types:
        return wide
    (data_type,) = set(types.values())
    names = [
        op.name
        for op in graph.ops
        if op.kind in KINDS
        and all(name in types for name in (*op.reads.values(), *op.writes.values()))
        and penalties.get((op.name, data_type), 0.0) < SAVED_SHARE * wide.ms
    ]
    typed = narrow_graph(plain, data_type, names)
    planned = _plan_program(typed, costs, convolutions)
    share = 1 - SAVED_SHARE * len(names)
    return replace(planned, graph=replace(graph, tensors=typed.tensors), ms=wide.ms * share, bound=wide.ms * share)


@contextmanager
def types_chosen(isa: str = "AVX512_CORE_BF16") -> Iterator[None]:
    """Plan for a processor with an instruction set; by the stand-in, unless the planner chooses types itself."""
    with mock.patch.object(planning, "allowed_isa", return_value=isa):
        if CHOOSES_TYPES:
            yield
            return
        with (
            mock.patch.object(planning, "CHOOSES_TYPES", True),
            mock.patch.object(planning, "plan_program", plan_narrow),
        ):
            yield
