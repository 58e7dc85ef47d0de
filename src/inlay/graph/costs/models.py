"""The tiers `analytic` and `probed`: run times from a model of the machine, without measurement.

    analytic()                     this machine and the table of `kernel_models`; no library is needed
    analytic("AVX2", threads=4)    the same machine, limited to another instruction set and number of threads
    probed("onednn")               the implementation that the engine has, and a model of that sort of code

>>> image = MemoryDesc((8, 64, 56, 56), "f32", "nChw16c")
>>> scale = MemoryDesc((8, 64, 1, 1), "f32", "nchw")
>>> machine = Machine("AVX512_CORE", 2, peak=230.0, cache_bandwidth=150.0, memory_bandwidth=40.0, cache_bytes=1 << 25)
>>> descs = {"src_0": image, "src_1": scale, "dst": image}
>>> excite = AnalyticCosts(machine).kernel(Operation("binary", "forward_inference", descs, {"algorithm": "mul"}))
>>> excite.impl, excite.is_cliff
('ref', True)
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.algorithms import algorithm_of
from inlay.graph.costs.estimates import KernelEstimate
from inlay.graph.costs.kernel_models import (
    KernelModel,
    arithmetic_type,
    predict_ms,
    reference_model,
    resolve_formats,
    select_kernel_model,
)
from inlay.graph.costs.machine import Machine, nbytes, this_machine, workload
from inlay.graph.costs.timing_records import operation_key
from inlay.graph.network import Subgraph
from inlay.graph.op_graph import Op, OpGraph
from inlay.primitives.engine import (
    Engine,
    EngineLike,
    Implementation,
    KernelKind,
    Operation,
    companion_engines,
    get_engine,
)
from inlay.primitives.panel_weights import has_panel_weights
from inlay.primitives.rules import RECURRENT


def analytic(isa: str | None = None, threads: int | None = None) -> "AnalyticCosts":
    """Return costs by arithmetic, bytes and the table of kernel models, for this machine or a smaller instruction set.

    Raises:
        InvalidArguments: there is no such instruction set, or fewer than one thread.
    """
    return AnalyticCosts(this_machine(isa, threads))


def probed(engine: EngineLike = None) -> "ProbedCosts":
    """Return costs by the implementations that an engine has; nothing is executed.

    Raises:
        InvalidArguments, MissingExtra: as `primitives.get_engine`.
    """
    return ProbedCosts(companion_engines(get_engine(engine)), this_machine())


_NUMPY_CALL_MS = 0.02
_FALLBACK_CALL_MS = 0.004  # a session of one to five nodes of 16 elements: 2.7 to 4.1 us, Xeon, ONNX Runtime 1.32
_NUMPY_BANDWIDTH = 2.0  # 10^9 bytes a second


class MachineCosts:
    """The parts that all tiers share: the machine, and the cost of references."""

    def __init__(self, machine: Machine) -> None:
        """Estimate costs for `machine`."""
        self.machine = machine
        """The machine that kernels run on."""

    @property
    def isa(self) -> str:
        """Instruction set of the machine."""
        return self.machine.isa

    @property
    def threads(self) -> int:
        """Number of threads that kernels run on."""
        return self.machine.threads

    def reference(self, op: Op, graph: OpGraph) -> float:
        """Return the milliseconds of a reference: its bytes, and a call of NumPy or ONNX Runtime through Python."""
        tensors = [graph.tensors[name] for name in (*op.reads.values(), *op.writes.values())]
        moved = sum(prod(tensor.dims) * tensor.dtype.itemsize for tensor in tensors)
        call = _FALLBACK_CALL_MS if isinstance(op.node, Subgraph) else _NUMPY_CALL_MS
        return call + moved / _NUMPY_BANDWIDTH / 1e6


class ModelledCosts(MachineCosts):
    """The parts that tiers without measurement share."""

    def prepare(self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()) -> None:
        """Do nothing: models and engines return an estimate at once."""

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Return the milliseconds of a reorder at the bandwidth of the machine; equal descriptors mean a copy."""
        return reorder_ms(src, dst, self.machine)


class AnalyticCosts(ModelledCosts):
    """Costs by the models of `kernel_models` alone."""

    name = "analytic"
    engine = ""

    def __init__(self, machine: Machine) -> None:
        """Estimate costs for `machine`."""
        super().__init__(machine)
        self._known: dict[str, KernelEstimate] = {}

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        """Return the estimate for the kernel that an engine would have.

        None is returned for a convolution by an algorithm other than the direct one, and for weights in panels: few
        engines have these.
        """
        if algorithm_of(operation) is not None or has_panel_weights(operation):
            return None
        name = operation_key(operation)
        found = self._known.get(name)
        if found is None:
            resolved = resolve_formats(operation, self.isa)
            model = select_kernel_model(resolved, self.isa)
            found = self._known[name] = estimate_from_model(resolved, model, model.impl, self.machine)
        return with_attributes(found, operation)


class ProbedCosts(ModelledCosts):
    """Costs by the implementations of engines and a model of the machine."""

    name = "probed"

    def __init__(self, engines: Sequence[Engine], machine: Machine) -> None:
        """Take each kernel from the first of `engines` that supports its operation; all run on `machine`."""
        super().__init__(machine)
        self.engines = engines
        """The engines, in the order of preference."""
        self._known: dict[str, KernelEstimate | None] = {}

    @property
    def engine(self) -> str:
        """Name and version of the first engine."""
        return self.engines[0].name

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        """Return the estimate for the implementation of an engine; None where none supports these formats."""
        name = operation_key(operation)
        if name not in self._known:
            implementation = find_implementation(self.engines, operation)
            self._known[name] = None if implementation is None else estimate_kernel(implementation, self.machine)
        found = self._known[name]
        return None if found is None else with_attributes(found, operation)


def with_attributes(kernel: KernelEstimate, operation: Operation) -> KernelEstimate:
    """Return the kernel for `operation`, which may differ from the kernel's own in attributes that cost no time."""
    return replace(kernel, operation=replace(kernel.operation, attributes=operation.attributes))


def find_implementation(engines: Iterable[Engine], operation: Operation) -> Implementation | None:
    """Return the first engine's implementation of an operation; None where no engine supports it.

    An engine that owns the operation comes first.

    The scratchpad is the caller's, so that the implementation reports its size.
    """
    wanted = replace(operation, attributes=replace(operation.attributes, scratchpad_mode="user"))
    for engine in sorted(engines, key=lambda one: not one.owns(operation)):
        # An engine raises either for formats that it does not support.
        with suppress(Unimplemented, InvalidArguments):
            return engine.create(wanted)
    return None


def estimate_kernel(implementation: Implementation, machine: Machine) -> KernelEstimate:
    """Return the estimate for an implementation, by the model of its sort of code."""
    resolved = resolved_operation(implementation)
    model = model_of_kind(resolved, implementation.kernel_kind, machine.isa, implementation.impl)
    kernel = estimate_from_model(resolved, model, implementation.impl, machine)
    scratchpad = implementation.descs.get("scratchpad")
    return replace(kernel, scratch=0 if scratchpad is None else scratchpad.size, source="probed")


def resolved_operation(implementation: Implementation) -> Operation:
    """Return the operation of an implementation, with the formats that the engine chose for `any`."""
    operation, descs = implementation.operation, implementation.descs
    return replace(operation, descs={name: descs.get(name, desc) for name, desc in operation.descs.items()})


_MATVEC = "matvec:"
"""Beginning of the names of Inlay's own kernels for products of few rows."""


def model_of_kind(operation: Operation, kind: KernelKind, isa: str, impl: str = "") -> KernelModel:
    """Return the model of a kernel whose sort of code and name the engine reports.

    The table decides what these leave open.
    """
    if kind == "numpy":
        scalar = reference_model(operation)
        return replace(scalar, ns_per_element=max(8.0, scalar.ns_per_element / 4))
    if kind == "reference" and operation.kind not in ("shuffle", *RECURRENT):
        return reference_model(operation)
    if (algorithm := algorithm_of(operation)) is not None:
        return KernelModel(algorithm.name, algorithm.efficiency)
    if impl.startswith(_MATVEC):
        return KernelModel("matvec", 0.4, 1.0)
    table = select_kernel_model(operation, isa)
    if table.ns_per_element:
        return KernelModel("gemm", 0.6, 4.0) if kind == "gemm" else KernelModel("jit", 0.8, 2.0)
    return table


def estimate_from_model(operation: Operation, model: KernelModel, impl: str, machine: Machine) -> KernelEstimate:
    """Return the estimate for an operation in concrete formats by a kernel model."""
    least = workload(operation)
    roofline = machine.roofline(least, arithmetic_type(operation))
    return KernelEstimate(operation, impl, predict_ms(operation, model, machine), roofline, 0, least.nbytes)


_REORDER_MS = 0.003
_REORDER_TRAFFIC_FACTOR = 1.4


def reorder_ms(src: MemoryDesc, dst: MemoryDesc, machine: Machine) -> float:
    """Return the milliseconds of Inlay's reorder, or of a copy where both descriptors are equal.

    The model is the bytes read and written, at cache bandwidth if they fit in half of the last-level cache, else at
    memory bandwidth.
    """
    moved = nbytes(src) + nbytes(dst)
    if not moved:
        return 0.0
    bandwidth = machine.cache_bandwidth if moved <= machine.cache_bytes // 2 else machine.memory_bandwidth
    return _REORDER_MS + _REORDER_TRAFFIC_FACTOR * moved / bandwidth / 1e6
