"""`CostCache`: the costs of one problem by operation and formats, each requested once.

A network has many layers that are equal except for names, and building the operation of a request takes longer than a
look-up here. Where several algorithms can compute an operation, the cheapest one counts (see `algorithms`).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.algorithms import Convolutions, algorithm_variants
from inlay.graph.background import yield_to_runs
from inlay.graph.costs import reorder_source
from inlay.graph.costs.estimates import Costs
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, operation_of
from inlay.graph.planner.formats import Format, Formats
from inlay.graph.planner.groups import KernelCall
from inlay.primitives.attributes import PLAIN, PostOp, PrimitiveAttributes
from inlay.primitives.engine import Operation

NO_ALGORITHMS: Mapping[str, str] = MappingProxyType({})
_NEVER_MS = 1e9
"""Cost of a reorder to a format whose elements share bytes, which none can write; finite, so that sums stay exact."""


class CostCache:
    """The costs of kernels and reorders, by the numbers of formats."""

    def __init__(
        self,
        costs: Costs,
        formats: Formats,
        convolutions: Convolutions = "auto",
        algorithms: Mapping[str, str] = NO_ALGORITHMS,
    ) -> None:
        """Begin with an empty cache of `costs`; `convolutions` names the algorithms that these may use.

        `algorithms` has the algorithm of each convolution, by name, that may use only one.
        """
        self.source, self.formats, self.convolutions, self.algorithms = costs, formats, convolutions, algorithms
        self._shapes: dict[int, tuple[Op, Hashable]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._calls: dict[Hashable, KernelCall | None] = {}
        self._variants: dict[Hashable, tuple[Operation, ...]] = {}
        self._collected: list[Operation] | None = None
        self._preferred: dict[Hashable, dict[str, Format]] = {}
        self.reorder: Callable[[Format, Format], float] = cache(
            lambda src, dst: _NEVER_MS if formats.repeats(dst) else costs.reorder(formats[src], formats[dst])
        )
        """The milliseconds of a reorder from one format to another."""

    def shape_key(self, op: Op) -> Hashable:
        """Return a key that is equal for operations that differ in names and in the elements of constants only."""
        known = self._shapes.get(id(op))
        if known is None:
            constants = tuple((name, array.shape, array.dtype) for name, array in sorted(op.constants.items()))
            parameters = tuple(sorted(op.parameters.items(), key=lambda item: item[0]))
            attributes = () if op.attributes is PLAIN else _attributes_key(op.attributes)
            key = (op.kind, constants, parameters, tuple(op.reads), tuple(op.writes), attributes)
            known = self._shapes[id(op)] = (op, self._numbers.setdefault(key, len(self._numbers)))
        return known[1]

    def kernel(self, op: Op, formats: Mapping[str, Format], post_ops: Sequence[PostOp] = ()) -> KernelCall | None:
        """Return the call that computes `op` in these formats; None where no engine supports them.

        No kernel but a reorder gets a tensor whose elements share bytes: engines do not promise to read it right.
        """
        yield_to_runs()
        if op.kind == "reorder":
            return self._conversion(op, formats)
        if any(map(self.formats.repeats, filter(None, formats.values()))):
            return None
        key = (self.shape_key(op), tuple(formats.items()), tuple(post_ops))
        if key not in self._calls:
            if key not in self._variants:
                descs = {name: self.formats[number] for name, number in formats.items()}
                self._variants[key] = self._operations(op, descs, post_ops)
            self._calls[key] = self._call(self._variants[key])
        return self._calls[key]

    def _conversion(self, op: Op, formats: Mapping[str, Format]) -> KernelCall:
        """Return the call of Inlay's own reorder, which converts to another type."""
        src, dst = formats["src"], formats["dst"]
        descs = {"src": self.formats[src], "dst": self.formats[dst]}
        nbytes = self.formats.size(src) + self.formats.size(dst)
        source = reorder_source(self.source, **descs)
        return KernelCall(operation_of(op, descs), "inlay", self.reorder(src, dst), nbytes, source=source)

    def _operations(self, op: Op, descs: Mapping[str, MemoryDesc], post_ops: Sequence[PostOp]) -> tuple[Operation, ...]:
        """Return the engine's operation by each algorithm that may compute it; none where oneDNN lacks a type."""
        try:
            variants = algorithm_variants(operation_of(op, descs, post_ops), self.convolutions)
        except InvalidArguments:  # a constant of a type that oneDNN lacks
            return ()
        algorithm = self.algorithms.get(op.name)
        return tuple(one for one in variants if one.parameters.get("algorithm") == algorithm) or variants

    def _call(self, variants: Sequence[Operation]) -> KernelCall | None:
        """Return the cheapest call of an operation by one of its algorithms; None where no engine supports any."""
        if not variants:
            return None
        if self._collected is not None:
            self._collected.extend(variants)
            return KernelCall(variants[0], "", 1.0)
        kernels = [(one, kernel) for one in variants if (kernel := self.source.kernel(one)) is not None]
        if not kernels:
            return None
        selected, kernel = min(kernels, key=lambda pair: pair[1].ms)
        facts = kernel.impl, kernel.ms, kernel.nbytes, kernel.roofline, kernel.is_cliff, kernel.source
        return KernelCall(selected, *facts)

    @contextmanager
    def collect_operations(self) -> Iterator[list[Operation]]:
        """Provide a list, and add to it each operation whose cost is requested within this context.

        No cost is computed there: every operation counts as supported.
        """
        known, self._calls = self._calls, {}
        wanted: list[Operation] = []
        self._collected = wanted
        try:
            yield wanted
        finally:
            self._collected, self._calls = None, known

    def preferred_formats(
        self, op: Op, tensors: Mapping[str, Tensor], types: Mapping[str, str] | None = None
    ) -> Mapping[str, Format]:
        """Return the formats that the engine chooses for the tensors of `op` if all are `any`.

        Tensors have the data types `types`, by argument; None for their own. The result is empty if the engine does not
        support that.
        """
        arguments = {name: tensors[tensor] for name, tensor in (*op.reads.items(), *op.writes.items())}
        if not all(map(self.formats.plain, arguments.values())):
            return {}
        types = types or {name: as_data_type(tensor.dtype).name for name, tensor in arguments.items()}
        key = (self.shape_key(op), tuple((name, tensor.dims, types[name]) for name, tensor in arguments.items()))
        if key not in self._preferred:
            free = {name: MemoryDesc(tensor.dims, types[name], "any") for name, tensor in arguments.items()}
            self._preferred[key] = self._query_preferred(op, free)
        return self._preferred[key]

    def _query_preferred(self, op: Op, free: Mapping[str, MemoryDesc]) -> dict[str, Format]:
        """Return the formats of the engine's kernel for `op` with `any` for every tensor."""
        try:
            kernel = self.source.kernel(operation_of(op, free))
        except InvalidArguments:  # a constant of a type that oneDNN lacks
            kernel = None
        descs = {} if kernel is None else kernel.operation.descs
        known = {name: descs[name] for name in free if name in descs}  # values of attributes have none
        return {name: self.formats.add(desc) for name, desc in known.items() if desc.kind == "blocked"}


def _attributes_key(attributes: PrimitiveAttributes) -> Hashable:
    """Return a key that is equal for equal attributes of an operation of a graph."""
    entries = (*attributes.scales.items(), *attributes.zero_points.items())
    arithmetic = attributes.fpmath_mode, attributes.fpmath_integers, attributes.rounds_source
    return arithmetic, attributes.post_ops, len(attributes.scales), entries
