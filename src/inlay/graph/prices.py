"""`Prices`: costs, asked once for each problem: what differs in names alone has one price.

A network has many equal layers, and making an operation to ask for takes longer than finding it here. Where an
operation can be computed by several algorithms, the price is that of the cheapest (see `algorithms`).
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from inlay.data_type import as_number_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.algorithms import Convolutions, algorithms
from inlay.graph.costs.kernel import Costs, Kernel
from inlay.graph.formats import Formats
from inlay.graph.network import Tensor
from inlay.graph.op import Op
from inlay.graph.operations import operation_of
from inlay.primitives.attributes import PostOp
from inlay.primitives.operation import Operation

_UNKNOWN = Kernel(Operation("reorder", "forward_inference", {}), "", 1.0, 1.0, 0, 0)


@dataclass(frozen=True, slots=True)
class Priced:
    """What was asked, and what it costs."""

    operation: Operation
    """With formats for activations; those of weights may be any."""
    kernel: Kernel
    """The answer."""


class Prices:
    """Remembers what costs say."""

    def __init__(self, costs: Costs, formats: Formats, convolutions: Convolutions = "auto") -> None:
        """Nothing has been asked yet; `convolutions` says which algorithms they may be computed by."""
        self.costs, self.formats, self.convolutions = costs, formats, convolutions
        self._shapes: dict[int, tuple[Op, Hashable]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._kernels: dict[Hashable, Priced | None] = {}
        self._wanted: list[Operation] | None = None
        self._naturals: dict[Hashable, dict[str, MemoryDesc]] = {}
        self._reorders: dict[tuple[int, int], float] = {}

    def shape(self, op: Op) -> Hashable:
        """Equal for operations that differ in names and in the elements of constants alone."""
        known = self._shapes.get(id(op))
        if known is None:
            constants = tuple((name, array.shape, array.dtype) for name, array in sorted(op.constants.items()))
            told = tuple(sorted(op.parameters.items(), key=lambda item: item[0]))
            key = (op.kind, constants, told, tuple(op.reads), tuple(op.writes))
            known = self._shapes[id(op)] = (op, self._numbers.setdefault(key, len(self._numbers)))
        return known[1]

    def kernel(self, op: Op, descs: Mapping[str, MemoryDesc], post_ops: Sequence[PostOp] = ()) -> Priced | None:
        """What `op` costs in these formats; None where the engine does not compute it."""
        key = (self.shape(op), tuple((name, id(desc)) for name, desc in descs.items()), tuple(post_ops))
        if key not in self._kernels:
            self._kernels[key] = self._price(op, descs, post_ops, self.convolutions)
        return self._kernels[key]

    def _price(
        self, op: Op, descs: Mapping[str, MemoryDesc], post_ops: Sequence[PostOp], convolutions: Convolutions
    ) -> Priced | None:
        try:
            operation = operation_of(op, descs, post_ops)
        except InvalidArguments:  # a constant of a type that oneDNN lacks
            return None
        ways = algorithms(operation, convolutions)
        if self._wanted is not None:
            self._wanted.extend(ways)
            return Priced(operation, _UNKNOWN)
        priced = [Priced(one, kernel) for one in ways if (kernel := self.costs.kernel(one)) is not None]
        return min(priced, key=lambda one: one.kernel.ms, default=None)

    @contextmanager
    def listing(self) -> Iterator[list[Operation]]:
        """While it lasts nothing is priced: operations that would be are listed, once each, as if all were computed."""
        known, self._kernels = self._kernels, {}
        wanted: list[Operation] = []
        self._wanted = wanted
        try:
            yield wanted
        finally:
            self._wanted, self._kernels = None, known

    def natural(self, op: Op, tensors: Mapping[str, Tensor]) -> Mapping[str, MemoryDesc]:
        """The formats of the tensors of `op` that the engine answers to `any`; empty where it declines."""
        arguments = {**op.reads, **op.writes}
        kinds = tuple((name, tensors[tensor].dims, tensors[tensor].dtype) for name, tensor in arguments.items())
        key = (self.shape(op), kinds)
        if key not in self._naturals:
            self._naturals[key] = self._answer(op, {name: tensors[tensor] for name, tensor in arguments.items()})
        return self._naturals[key]

    def _answer(self, op: Op, arguments: Mapping[str, Tensor]) -> dict[str, MemoryDesc]:
        if any(self.formats.plain(tensor) is None for tensor in arguments.values()):
            return {}
        free = {name: MemoryDesc(t.dims, as_number_type(t.dtype), "any") for name, t in arguments.items()}
        asked = self._price(op, free, (), "direct")
        if asked is None:
            return {}
        found = {name: asked.kernel.operation.descs[name] for name in arguments}
        return {name: self.formats.one(desc) for name, desc in found.items() if desc.kind == "blocked"}

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Milliseconds from one format to another."""
        key = (id(src), id(dst))
        if key not in self._reorders:
            self._reorders[key] = self.costs.reorder(src, dst)
        return self._reorders[key]
