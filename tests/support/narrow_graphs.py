"""Graphs with operations in a narrow type, by explicit conversions; plans for a processor with such types."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.graph import planning
from inlay.graph.costs.estimates import Costs, KernelEstimate
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, OpGraph
from inlay.graph.precision import NARROW_TYPES
from inlay.primitives.engine import Operation


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


class NarrowPays:
    """Costs of which kernels with narrow tensors, and conversions, take a hundredth: small tensors become narrow."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._costs, name)

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        """The estimate, a hundredth of it with a narrow tensor."""
        found = self._costs.kernel(operation)
        types = {desc.data_type.name for desc in operation.descs.values() if desc.data_type is not None}
        return found if found is None or not types & NARROW_TYPES else replace(found, ms=found.ms / 100)

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """A hundredth of the milliseconds."""
        return self._costs.reorder(src, dst) / 100


@contextmanager
def types_chosen(isa: str = "AVX512_CORE_BF16") -> Iterator[None]:
    """Plan for a processor with an instruction set."""
    with mock.patch.object(planning, "allowed_isa", return_value=isa):
        yield
