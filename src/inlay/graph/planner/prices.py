"""`Prices`: costs, asked once for each problem: what differs in names alone has one price.

A network has many equal layers, and making an operation to ask for takes longer than finding it here. Where an
operation can be computed by several algorithms, the price is that of the cheapest (see `algorithms`).
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

from inlay.data_type import as_number_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.algorithms import Convolutions, algorithms
from inlay.graph.costs.kernel import Costs, Kernel
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, operation_of
from inlay.graph.planner.formats import Format, Formats
from inlay.graph.planner.groups import KernelCall
from inlay.primitives.attributes import PostOp
from inlay.primitives.engine import Operation


class Prices:
    """Remembers what costs say, by the numbers of formats."""

    def __init__(self, costs: Costs, formats: Formats, convolutions: Convolutions = "auto") -> None:
        """Nothing has been asked yet; `convolutions` says which algorithms they may be computed by."""
        self.costs, self.formats, self.convolutions = costs, formats, convolutions
        self._shapes: dict[int, tuple[Op, Hashable]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._calls: dict[Hashable, KernelCall | None] = {}
        self._wanted: list[Operation] | None = None
        self._naturals: dict[Hashable, dict[str, Format]] = {}
        self._reorder = cache(lambda src, dst: costs.reorder(formats[src], formats[dst]))

    def shape(self, op: Op) -> Hashable:
        """Equal for operations that differ in names and in the elements of constants alone."""
        known = self._shapes.get(id(op))
        if known is None:
            constants = tuple((name, array.shape, array.dtype) for name, array in sorted(op.constants.items()))
            told = tuple(sorted(op.parameters.items(), key=lambda item: item[0]))
            key = (op.kind, constants, told, tuple(op.reads), tuple(op.writes))
            known = self._shapes[id(op)] = (op, self._numbers.setdefault(key, len(self._numbers)))
        return known[1]

    def kernel(self, op: Op, formats: Mapping[str, Format], post_ops: Sequence[PostOp] = ()) -> KernelCall | None:
        """The call that computes `op` in these formats; None where the engine does not."""
        key = (self.shape(op), tuple(formats.items()), tuple(post_ops))
        if key not in self._calls:
            descs = {name: self.formats[number] for name, number in formats.items()}
            self._calls[key] = self._call(op, descs, post_ops)
        return self._calls[key]

    def _call(self, op: Op, descs: Mapping[str, MemoryDesc], post_ops: Sequence[PostOp]) -> KernelCall | None:
        try:
            operation = operation_of(op, descs, post_ops)
        except InvalidArguments:  # a constant of a type that oneDNN lacks
            return None
        ways = algorithms(operation, self.convolutions)
        if self._wanted is not None:
            self._wanted.extend(ways)
            return KernelCall(operation, "", 1.0)
        priced = [(one, kernel) for one in ways if (kernel := self.costs.kernel(one)) is not None]
        if not priced:
            return None
        asked, kernel = min(priced, key=lambda pair: pair[1].ms)
        return KernelCall(asked, kernel.impl, kernel.ms, kernel.nbytes, kernel.roofline, kernel.is_cliff, kernel.source)

    @contextmanager
    def listing(self) -> Iterator[list[Operation]]:
        """While it lasts nothing is priced: operations that would be are listed, once each, as if all were computed."""
        known, self._calls = self._calls, {}
        wanted: list[Operation] = []
        self._wanted = wanted
        try:
            yield wanted
        finally:
            self._wanted, self._calls = None, known

    def natural(self, op: Op, tensors: Mapping[str, Tensor]) -> Mapping[str, Format]:
        """The formats of the tensors of `op` that the engine answers to `any`; empty where it declines."""
        arguments = {name: tensors[tensor] for name, tensor in (*op.reads.items(), *op.writes.items())}
        key = (self.shape(op), tuple((name, tensor.dims, tensor.dtype) for name, tensor in arguments.items()))
        if key not in self._naturals:
            self._naturals[key] = self._answer(op, arguments)
        return self._naturals[key]

    def _answer(self, op: Op, arguments: Mapping[str, Tensor]) -> dict[str, Format]:
        kernel = self._free_kernel(op, arguments) if all(map(self.formats.plain, arguments.values())) else None
        descs = {} if kernel is None else {name: kernel.operation.descs[name] for name in arguments}
        return {name: self.formats.add(desc) for name, desc in descs.items() if desc.kind == "blocked"}

    def _free_kernel(self, op: Op, arguments: Mapping[str, Tensor]) -> Kernel | None:
        """What the engine has for `op` where every format is its own choice."""
        free = {name: MemoryDesc(t.dims, as_number_type(t.dtype), "any") for name, t in arguments.items()}
        try:
            return self.costs.kernel(operation_of(op, free))
        except InvalidArguments:  # a constant of a type that oneDNN lacks
            return None

    def reorder(self, src: Format, dst: Format) -> float:
        """Milliseconds from one format to another."""
        return self._reorder(src, dst)
