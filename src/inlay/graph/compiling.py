"""From a program to calls that only lack memory: engines are asked, formats compared, constants laid out.

    prepared = prepare(program, ...)        once: a step each
    call = prepared[0].bound(room)          once for each piece of memory that it runs in; a call without arguments

A `Room` answers the memory, or the array, of each buffer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.algorithms import direct, is_winograd
from inlay.graph.checking import OLD
from inlay.graph.movers import has_layouts, mover
from inlay.graph.nodes import Computation, computation
from inlay.graph.op import Array, OpGraph
from inlay.graph.program import Buffer, Program, Step
from inlay.graph.weights import Weights
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.primitives.calls import Expected, expected, zeroing
from inlay.primitives.engines import get_engine
from inlay.primitives.operation import Engine, Implementation, Operation
from inlay.primitives.reorder import OWN

Call: TypeAlias = Callable[[], object]
_SCRATCHPAD = "scratchpad"


class Room(Protocol):
    """Memory for every buffer of a program."""

    def memory(self, name: str) -> Memory:
        """The memory of a buffer that has a descriptor."""

    def array(self, name: str) -> Array:
        """The elements of a buffer of a plain format as an array, a view."""

    def scratch(self, desc: MemoryDesc) -> Memory:
        """The scratchpad that steps share, as memory of `desc`."""


class Prepared(Protocol):
    """A step that lacks only memory."""

    @property
    def step(self) -> Step:
        """What it does."""

    @property
    def is_submitted(self) -> bool:
        """Whether its call returns before it is done, so that the engine must be waited for."""

    @property
    def is_joined(self) -> bool:
        """Whether the engine can execute its call together with others."""

    @property
    def scratch(self) -> int:
        """Bytes of scratchpad that it must be given."""

    @property
    def is_declined(self) -> bool:
        """Whether the engine declined it, so that the reference engine computes it."""

    @property
    def replaced(self) -> str:
        """The name of the implementation that the engine prefers and cannot generate code for; empty where it can."""

    @property
    def impl(self) -> str:
        """How it is computed."""

    def bound(self, room: Room) -> Call | None:
        """What does it once with the memory of `room`; None where there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A step that an engine computes."""

    step: Step
    """What it does."""
    implementation: Implementation
    """The engine's answer."""
    expected: Expected
    """What a call brings."""
    constants: Mapping[str, Memory]
    """By argument, in the formats of the implementation."""
    is_submitted: bool
    """Whether its call returns before it is done."""
    is_joined: bool
    """Whether the engine can execute its call together with others."""
    is_declined: bool
    """Whether the engine declined it."""

    @property
    def scratch(self) -> int:
        """Bytes of scratchpad that it must be given."""
        return self.expected.descs[_SCRATCHPAD].size if _SCRATCHPAD in self.expected.writes else 0

    @property
    def impl(self) -> str:
        """The engine's name for how it is computed."""
        return self.implementation.impl

    @property
    def replaced(self) -> str:
        """The implementation that the engine prefers and cannot generate code for; empty where it can."""
        return str(getattr(self.implementation, "replaced", ""))

    def bound(self, room: Room) -> Call | None:
        """What computes it once; None where it writes no element."""
        used = {**self.step.reads, **self.step.writes}
        memories = {argument: room.memory(name) for argument, name in used.items() if argument != OLD}
        if self.expected.is_empty:
            return None
        if self.expected.vanishes:
            return zeroing([memories[name] for name in self.expected.results])
        if self.scratch:
            memories[_SCRATCHPAD] = room.scratch(self.expected.descs[_SCRATCHPAD])
        return self.implementation.bind({**memories, **self.constants})


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A step that NumPy computes."""

    step: Step
    """What it does."""
    compute: Computation
    """The node."""
    reads: Mapping[str, str]
    """By name of the node's input, the buffer."""
    writes: Mapping[str, str]
    """By name of the node's output, the buffer."""

    is_submitted = False
    is_joined = False
    is_declined = False
    scratch = 0
    replaced = ""
    impl = "numpy"

    def bound(self, room: Room) -> Call:
        """What computes it once."""
        sources = {name: room.array(buffer) for name, buffer in self.reads.items()} | dict(self.step.constants)
        results = {name: room.array(buffer) for name, buffer in self.writes.items()}

        def run() -> None:
            found = self.compute(sources)
            for name, result in results.items():
                if found[name].shape != result.shape:
                    raise InvalidArguments(
                        f"step {self.step.name}: {name} has dims {found[name].shape} now, the network says "
                        f"{result.shape}: dims that depend on values cannot be compiled"
                    )
                np.copyto(result, found[name], casting="no")

        return run


def prepare(program: Program, graph: OpGraph, engine: Engine, weights: Weights) -> tuple[Prepared, ...]:
    """All steps of `program`, in order.

    What `engine` declines the reference engine computes.

    Raises:
        InvalidArguments: a step lacks an argument or has one too many, or a buffer has another format than the engine
            takes.
        Unimplemented: no engine computes a step, or a node that NumPy shall compute is unknown.
        MissingExtra: a node is to be computed by NumPy, and the package onnx is not installed.
        OutOfMemory: there is no room for the constants.
    """
    found: list[Prepared] = []
    for step in program.steps:
        if step.operation is None:
            found.append(_interpreted(step, program, graph))
        else:
            found.append(_computed(step, step.operation, program, engine, weights))
    return tuple(found)


def _computed(step: Step, operation: Operation, program: Program, engine: Engine, weights: Weights) -> Computed:
    chosen, implementation, bring = _answer(operation, engine)
    used = {name: buffer for name, buffer in {**step.reads, **step.writes}.items() if name != OLD}
    needed = {*bring.reads, *bring.writes} - {_SCRATCHPAD}
    _require_arguments(step, needed, {*used, *step.constants})
    for argument, name in used.items():
        if program.buffers[name].desc != bring.descs[argument]:
            raise InvalidArguments(
                f"step {step.name}: {argument} is buffer {name}, {program.buffers[name].desc!r}, and "
                f"{chosen.name} takes {bring.descs[argument]!r}: add a reorder, or ask the engine for this format"
            )
    constants = {
        argument: weights.laid_out(array, bring.descs[argument], chosen)
        for argument, array in step.constants.items()
        if argument in needed
    }
    is_joined = chosen is engine and _joins(engine, implementation) and not (bring.is_empty or bring.vanishes)
    is_declined = chosen is not engine and chosen is get_engine("reference")
    return Computed(step, implementation, bring, constants, _is_asynchronous(chosen), is_joined, is_declined)


def _answer(operation: Operation, engine: Engine) -> tuple[Engine, Implementation, Expected]:
    """Who computes an operation: `engine`, and the reference what it declines; reorders, who is the better mover.

    Inlay itself computes reorders between layouts that the engine declines. A Winograd convolution that the engine
    declines, as another one than the plan was made for may, becomes a direct one: it computes the same. Code is
    generated here, so an engine that cannot declines here too.
    """
    try:
        chosen, found = mover(operation, engine) if operation.kind == "reorder" else (engine, engine.create(operation))
        bring = expected(operation, found)
        if not (bring.is_empty or bring.vanishes):
            _create_primitive(found)
        return chosen, found, bring
    except Unimplemented:
        if is_winograd(operation):
            return _answer(direct(operation), engine)
        other = OWN if operation.kind == "reorder" and has_layouts(operation) else get_engine("reference")
        if engine is other:
            raise
        found = other.create(operation)
        return other, found, expected(operation, found)


def _create_primitive(implementation: Any) -> None:
    """Generate the code of an implementation whose engine tells that from binding it.

    Raises:
        Unimplemented: the engine cannot.
    """
    if hasattr(implementation, "create_primitive"):
        implementation.create_primitive()


def _joins(engine: Any, implementation: Implementation) -> bool:
    """Whether the engine executes several calls in one, and those of this implementation."""
    return hasattr(engine, "together") and bool(engine.joins(implementation))


def _is_asynchronous(engine: Engine) -> bool:
    return bool(getattr(getattr(engine, "capabilities", None), "is_asynchronous", False))


def _require_arguments(step: Step, needed: set[str], given: set[str]) -> None:
    if missing := sorted(needed - given):
        raise InvalidArguments(
            f"step {step.name}, a {step.kind}, lacks {', '.join(missing)}: it is given {', '.join(sorted(given))}"
        )
    if unknown := sorted(given - needed):
        raise InvalidArguments(
            f"step {step.name}, a {step.kind}, has no {', '.join(unknown)}: it takes {', '.join(sorted(needed))}"
        )


def _interpreted(step: Step, program: Program, graph: OpGraph) -> Interpreted:
    assert step.node is not None  # checked with the names
    node = step.node
    reads, writes = (
        {program.buffers[name].tensor: name for name in names.values()} for names in (step.reads, step.writes)
    )
    _require_arguments(step, {name for name in node.inputs if name}, {*reads, *step.constants})
    _require_arguments(step, {name for name in node.outputs if name} & {*writes}, {*writes})
    for name in (*reads.values(), *writes.values()):
        _require_plain(step, program.buffers[name])
    dtypes = {name: graph.tensors[name].dtype for name in reads}
    dtypes |= {name: array.dtype for name, array in step.constants.items()}
    return Interpreted(step, computation(node, graph.opset, dtypes), reads, writes)


def _require_plain(step: Step, buffer: Buffer) -> None:
    layout = None if buffer.desc is None else buffer.desc.layout
    if layout is not None and not (isinstance(layout, Layout) and not any(axis.inner for axis in layout.axes)):
        raise InvalidArguments(
            f"step {step.name} is computed by NumPy, and buffer {buffer.name} is {buffer.desc!r}: give it a format "
            "without blocks"
        )
