"""`analytic` and `probed`: costs without a clock.

    analytic()                     this machine, the table of `paces`; no library is needed
    analytic("AVX2", threads=4)    another instruction set
    probed("onednn")               what the engine has for these formats, at the pace that its name for it tells

>>> image = MemoryDesc((8, 64, 56, 56), "f32", "nChw16c")
>>> scale = MemoryDesc((8, 64, 1, 1), "f32", "nchw")
>>> machine = Machine("AVX512_CORE", threads=2, peak=230.0, near=150.0, far=40.0, last=1 << 25)
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
from inlay.graph.costs.book import key
from inlay.graph.costs.kernel import Kernel
from inlay.graph.costs.machine import Machine, nbytes, this_machine, work
from inlay.graph.costs.paces import Pace, answers, milliseconds, pace, ref, type_name
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
from inlay.primitives.rules import RECURRENT


def analytic(isa: str | None = None, threads: int | None = None) -> "AnalyticCosts":
    """Costs by arithmetic, bytes and a table of what is fast, for this machine or one with another instruction set.

    Raises:
        InvalidArguments: there is no such instruction set, or fewer than one thread.
    """
    return AnalyticCosts(this_machine(isa, threads))


def probed(engine: EngineLike = None) -> "ProbedCosts":
    """Costs by what an engine says that it has; nothing is run.

    Raises:
        InvalidArguments, MissingExtra: as `primitives.get_engine`.
    """
    return ProbedCosts(companion_engines(get_engine(engine)), this_machine())


_NODE_MS = 0.02
_NODE_BANDWIDTH = 2.0  # 10^9 bytes in a second, of operators in NumPy


class MachineCosts:
    """What all costs of kernels on a machine have in common."""

    def __init__(self, machine: Machine) -> None:
        """Tell costs of `machine`."""
        self.machine = machine
        """What computes."""

    @property
    def isa(self) -> str:
        """The instruction set."""
        return self.machine.isa

    @property
    def threads(self) -> int:
        """On how many threads."""
        return self.machine.threads

    def reference(self, op: Op, graph: OpGraph) -> float:
        """Milliseconds of an operator that only NumPy computes: its bytes, and the way through Python."""
        tensors = [graph.tensors[name] for name in (*op.reads.values(), *op.writes.values())]
        moved = sum(prod(tensor.dims) * tensor.dtype.itemsize for tensor in tensors)
        return _NODE_MS + moved / _NODE_BANDWIDTH / 1e6


class ModelledCosts(MachineCosts):
    """What costs without a clock have in common."""

    def prepare(self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()) -> None:
        """Do nothing: models and engines answer quickly."""

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Milliseconds of a reorder at the bandwidth of the machine; of a copy between equal descriptors."""
        return reorder_ms(src, dst, self.machine)


class AnalyticCosts(ModelledCosts):
    """Costs by a model of a machine."""

    name = "analytic"
    engine = ""

    def __init__(self, machine: Machine) -> None:
        """Take `machine` for what computes."""
        super().__init__(machine)
        self._known: dict[str, Kernel] = {}

    def kernel(self, operation: Operation) -> Kernel | None:
        """The kernel that an engine would have: but for an algorithm that few have."""
        if algorithm_of(operation) is not None:
            return None
        name = key(operation)
        found = self._known.get(name)
        if found is None:
            settled = answers(operation, self.isa)
            rate = pace(settled, self.isa)
            found = self._known[name] = modelled(settled, rate, rate.impl, self.machine)
        return with_attributes(found, operation)


class ProbedCosts(ModelledCosts):
    """Costs by an engine's answers and a model of the machine."""

    name = "probed"

    def __init__(self, engines: Sequence[Engine], machine: Machine) -> None:
        """Ask `engines`, one after the other, which compute on `machine`."""
        super().__init__(machine)
        self.asked = engines
        """Who is asked."""
        self._known: dict[str, Kernel | None] = {}

    @property
    def engine(self) -> str:
        """Name and version of the first engine."""
        return self.asked[0].name

    def kernel(self, operation: Operation) -> Kernel | None:
        """The kernel that an engine has; None where none has one for these formats."""
        name = key(operation)
        if name not in self._known:
            implementation = asked(self.asked, operation)
            self._known[name] = None if implementation is None else estimated(implementation, self.machine)
        found = self._known[name]
        return None if found is None else with_attributes(found, operation)


def with_attributes(kernel: Kernel, operation: Operation) -> Kernel:
    """A kernel for `operation`, which differs from the one that it was found for in attributes that cost nothing."""
    return replace(kernel, operation=replace(kernel.operation, attributes=operation.attributes))


def asked(engines: Iterable[Engine], operation: Operation) -> Implementation | None:
    """The first engine's implementation, with a scratchpad that it tells the size of; None where no engine has one."""
    wanted = replace(operation, attributes=replace(operation.attributes, scratchpad_mode="user"))
    for engine in engines:
        # An engine refuses formats by either: what no rule forbids may be beyond its library.
        with suppress(Unimplemented, InvalidArguments):
            return engine.create(wanted)
    return None


def estimated(implementation: Implementation, machine: Machine) -> Kernel:
    """A kernel as the engine has it, at the pace of such kernels."""
    settled = settled_by(implementation)
    rate = pace_of_kind(settled, implementation.kernel_kind, machine.isa)
    kernel = modelled(settled, rate, implementation.impl, machine)
    scratchpad = implementation.descs.get("scratchpad")
    return replace(kernel, scratch=0 if scratchpad is None else scratchpad.size, source="probed")


def settled_by(implementation: Implementation) -> Operation:
    """What was asked, with the formats that were answered."""
    operation, descs = implementation.operation, implementation.descs
    return replace(operation, descs={name: descs.get(name, desc) for name, desc in operation.descs.items()})


def pace_of_kind(operation: Operation, kind: KernelKind, isa: str) -> Pace:
    """The pace of a kernel of this kind; the table says what the kind does not."""
    if kind == "numpy":
        return replace(ref(operation), each=max(8.0, ref(operation).each / 4))
    if kind == "reference" and operation.kind not in ("shuffle", *RECURRENT):
        return ref(operation)
    if (algorithm := algorithm_of(operation)) is not None:
        return Pace(algorithm.name, algorithm.efficiency)
    table = pace(operation, isa)
    if table.each:
        return Pace("gemm", 0.6, 4.0) if kind == "gemm" else Pace("jit", 0.8, 2.0)
    return table


def modelled(settled: Operation, rate: Pace, impl: str, machine: Machine) -> Kernel:
    """A kernel in settled formats at a pace."""
    least = work(settled)
    roofline = machine.roofline(least, type_name(settled))
    return Kernel(settled, impl, milliseconds(settled, rate, machine), roofline, 0, least.nbytes)


_REORDER_MS = 0.003
_REORDER_SLOWNESS = 1.4


def reorder_ms(src: MemoryDesc, dst: MemoryDesc, machine: Machine) -> float:
    """What Inlay's reorder takes, a copy where both are equal: bytes at the bandwidth of where they are."""
    moved = nbytes(src) + nbytes(dst)
    if not moved:
        return 0.0
    bandwidth = machine.near if moved <= machine.last // 2 else machine.far
    return _REORDER_MS + _REORDER_SLOWNESS * moved / bandwidth / 1e6
