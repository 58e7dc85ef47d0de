"""From a program to calls that only lack memory: engines are asked, formats compared, constants laid out.

    prepared = prepare(program, ...)        once: a step each
    call = prepared[0].bound(room)          once for each piece of memory that it runs in; a call without arguments

A `Room` answers the memory, or the array, of each buffer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.algorithms import direct
from inlay.graph.checking import OLD
from inlay.graph.movers import select_reorder_engine
from inlay.graph.nodes import Computation, computation
from inlay.graph.op import Array, OpGraph
from inlay.graph.program import Buffer, Program, Step
from inlay.graph.range_guards import propagates
from inlay.graph.weights import Weights
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.primitives.calls import Expected, expected, zeroing
from inlay.primitives.engines import create_beside, engines_beside, get_engine
from inlay.primitives.operation import Engine, Implementation, Operation

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
        return self.implementation.replaced

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


def prepare(
    program: Program, graph: OpGraph, engine: Engine, weights: Weights, *, is_exact: bool = False
) -> tuple[Prepared, ...]:
    """All steps of `program`, in order.

    What `engine` declines the reference engine computes, and if `is_exact` all that may lose NaN or infinities.

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
            found.append(_computed(step, step.operation, program, engine, weights, is_exact))
    return tuple(found)


def _computed(
    step: Step, operation: Operation, program: Program, engine: Engine, weights: Weights, is_exact: bool
) -> Computed:
    chosen, implementation, bring = _answer(operation, engine, is_exact)
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
    is_joined = implementation.is_batched and not (bring.is_empty or bring.vanishes)
    is_declined = chosen is not engine and chosen is get_engine("reference")
    return Computed(step, implementation, bring, constants, chosen.is_asynchronous, is_joined, is_declined)


def _answer(operation: Operation, engine: Engine, is_exact: bool) -> tuple[Engine, Implementation, Expected]:
    """Who computes an operation: `engine` or one beside it, and the reference what all of them decline.

    A convolution by another algorithm that is declined, as by another engine than the plan was made for, becomes a
    direct one: it computes the same. Code is generated here, so an engine that cannot declines here too.
    """
    try:
        if is_exact and not propagates(operation.kind, operation.parameters.get("algorithm")):
            raise Unimplemented(f"{operation.kind} may lose NaN or infinities in {engine.name}")
        if operation.kind == "reorder":
            chosen, found = select_reorder_engine(operation, engines_beside(engine))
        else:
            chosen, found = create_beside(engine, operation)
        bring = expected(operation, found)
        if not (bring.is_empty or bring.vanishes):
            found.create_primitive()
        return chosen, found, bring
    except Unimplemented:
        if (plain := direct(operation)) is not None:
            return _answer(plain, engine, is_exact)
        inlay = get_engine("inlay")
        other = inlay if inlay.supports(operation) else get_engine("reference")
        if engine is other:
            raise
        found = other.create(operation)
        return other, found, expected(operation, found)


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
