"""From a program to calls that only lack memory: engines are asked, formats compared, constants laid out.

    prepared = prepare(program, ...)        once: a step each
    call = prepared[0].bound(room)          once for each piece of memory that it runs in; a call without arguments

`Weights` are the constants in the formats that implementations chose, each kept once: sessions of one network for
several batch sizes share them, and so do steps whose constants have equal elements. A `Room` answers the memory, or the
array, of each buffer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.forks import ForkResetLock
from inlay.graph.algorithms import direct
from inlay.graph.network import has_equal_bits
from inlay.graph.numpy_operators.evaluation import Computation, build_computation
from inlay.graph.op_graph import Array, OpGraph, constant_desc
from inlay.graph.passes.range_guards import propagates
from inlay.graph.program import Buffer, Program, Step
from inlay.graph.runtime.checking import OLD
from inlay.layout import Layout
from inlay.memory import Memory, pack
from inlay.primitives import Reorder
from inlay.primitives.calls import CallSignature, infer_call_signature, make_zero_fill
from inlay.primitives.engine import (
    Engine,
    Implementation,
    Operation,
    companion_engines,
    create_with_companions,
    get_engine,
    select_reorder_engine,
)

_Key: TypeAlias = tuple[tuple[int, ...], str, bytes]


class Weights:
    """Constants by content and format.

    >>> import numpy as np
    >>> weights, ones = Weights(), np.ones((8, 8), np.float32)
    >>> desc = MemoryDesc((8, 8), "f32", "ba")
    >>> weights.laid_out(ones, desc) is weights.laid_out(np.ones((8, 8), np.float32), desc)
    True
    """

    def __init__(self) -> None:
        """Have none."""
        self._lock = ForkResetLock()
        self._known: dict[_Key, list[tuple[Array, dict[MemoryDesc, Memory]]]] = {}

    def laid_out(self, array: Array, desc: MemoryDesc, engine: Engine | None = None) -> Memory:
        """The elements of `array` in memory of `desc`: the same memory wherever both are equal.

        `engine` is asked for a format that only it knows. The array must not change afterwards.

        Raises:
            InvalidArguments: `desc` has other dims.
            Unimplemented: no reorder leads to `desc`.
            OutOfMemory: there is no room.
        """
        with self._lock:
            formats = self._formats(array)
            if desc not in formats:
                formats[desc] = _moved(array, desc, engine)
            return formats[desc]

    def _formats(self, array: Array) -> dict[MemoryDesc, Memory]:
        """What there is of an array of these elements."""
        alike = self._known.setdefault(_key(array), [])
        for known, formats in alike:
            if known is array or has_equal_bits(known, array):
                return formats
        alike.append((array, {}))
        return alike[-1][1]

    @property
    def nbytes(self) -> int:
        """Bytes of all memories."""
        with self._lock:
            return sum(
                memory.buffer.size for alike in self._known.values() for _, all_ in alike for memory in all_.values()
            )


_SAMPLES = 64


def _key(array: Array) -> _Key:
    """What arrays of equal elements have in common, found in a few of them."""
    samples = array[tuple(slice(None, None, max(1, n // 3)) for n in array.shape)]
    return array.shape, array.dtype.name, samples.tobytes()[: _SAMPLES * array.itemsize]


def _moved(array: Array, desc: MemoryDesc, engine: Engine | None) -> Memory:
    if desc.kind != "opaque":
        return pack(array, desc)
    plain = pack(array, constant_desc(array))
    memory: Memory = Reorder(plain.desc, desc, engine=engine)(src=plain)
    return memory


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


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step that lacks only memory: the last form of a node."""

    step: Step
    """What it does."""
    bound: Callable[[Room], Call | None]
    """From memory for all buffers to the call that does it once there; None where there is nothing to do."""
    implementation: Implementation | None = None
    """The engine's answer; None where NumPy computes."""
    scratch: int = 0
    """Bytes of scratchpad that it must be given."""
    is_submitted: bool = False
    """Whether its call returns before it is done, so that the engine must be waited for."""
    is_joined: bool = False
    """Whether the engine can execute its call together with others."""
    is_declined: bool = False
    """Whether the engine declined it, so that the reference engine computes it."""

    @property
    def impl(self) -> str:
        """How it is computed: the engine's name for it, or numpy."""
        return "numpy" if self.implementation is None else self.implementation.impl

    @property
    def replaced(self) -> str:
        """The name of the implementation that the engine prefers and cannot generate code for; empty where it can."""
        return "" if self.implementation is None else self.implementation.replaced


def prepare(
    program: Program, graph: OpGraph, engine: Engine, weights: Weights, *, is_exact: bool = False
) -> tuple[PreparedStep, ...]:
    """All steps of `program`, in order.

    What `engine` declines the reference engine computes, and if `is_exact` all that may lose NaN or infinities.

    Raises:
        InvalidArguments: a step lacks an argument or has one too many, or a buffer has another format than the engine
            takes.
        Unimplemented: no engine computes a step, or a node that NumPy shall compute is unknown.
        MissingExtra: a node is to be computed by NumPy, and the package onnx is not installed.
        OutOfMemory: there is no room for the constants.
    """
    return tuple(
        _interpreted(step, program, graph)
        if step.operation is None
        else _computed(step, step.operation, program, engine, weights, is_exact)
        for step in program.steps
    )


def _computed(
    step: Step, operation: Operation, program: Program, engine: Engine, weights: Weights, is_exact: bool
) -> PreparedStep:
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
    is_joined = implementation.is_batched and not (bring.is_empty or bring.is_all_zero)
    is_declined = chosen is not engine and chosen is get_engine("reference")
    scratch = bring.descs[_SCRATCHPAD].size if _SCRATCHPAD in bring.writes else 0
    bound = partial(_bound, step, implementation, bring, constants)
    return PreparedStep(step, bound, implementation, scratch, chosen.is_asynchronous, is_joined, is_declined)


def _bound(
    step: Step, implementation: Implementation, bring: CallSignature, constants: Mapping[str, Memory], room: Room
) -> Call | None:
    """What computes a step once; None where it writes no element."""
    used = {**step.reads, **step.writes}
    memories = {argument: room.memory(name) for argument, name in used.items() if argument != OLD}
    if bring.is_empty:
        return None
    if bring.is_all_zero:
        return make_zero_fill([memories[name] for name in bring.results])
    if _SCRATCHPAD in bring.writes and bring.descs[_SCRATCHPAD].size:
        memories[_SCRATCHPAD] = room.scratch(bring.descs[_SCRATCHPAD])
    return implementation.bind({**memories, **constants})


def _answer(operation: Operation, engine: Engine, is_exact: bool) -> tuple[Engine, Implementation, CallSignature]:
    """Who computes an operation: `engine` or one beside it, and the reference what all of them decline.

    A convolution by another algorithm that is declined, as by another engine than the plan was made for, becomes a
    direct one: it computes the same. Code is generated here, so an engine that cannot declines here too.
    """
    try:
        if is_exact and not propagates(operation.kind, operation.parameters.get("algorithm")):
            raise Unimplemented(f"{operation.kind} may lose NaN or infinities in {engine.name}")
        if operation.kind == "reorder":
            chosen, found = select_reorder_engine(operation, companion_engines(engine))
        else:
            chosen, found = create_with_companions(engine, operation)
        bring = infer_call_signature(operation, found)
        if not (bring.is_empty or bring.is_all_zero):
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
        return other, found, infer_call_signature(operation, found)


def _require_arguments(step: Step, needed: set[str], given: set[str]) -> None:
    if missing := sorted(needed - given):
        raise InvalidArguments(
            f"step {step.name}, a {step.kind}, lacks {', '.join(missing)}: it is given {', '.join(sorted(given))}"
        )
    if unknown := sorted(given - needed):
        raise InvalidArguments(
            f"step {step.name}, a {step.kind}, has no {', '.join(unknown)}: it takes {', '.join(sorted(needed))}"
        )


def _interpreted(step: Step, program: Program, graph: OpGraph) -> PreparedStep:
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
    return PreparedStep(step, partial(_bound_node, step, build_computation(node, graph.opset, dtypes), reads, writes))


def _bound_node(
    step: Step, compute: Computation, reads: Mapping[str, str], writes: Mapping[str, str], room: Room
) -> Call:
    """What computes a node once by NumPy; `reads` and `writes` are buffers by the names that the node has."""
    sources = {name: room.array(buffer) for name, buffer in reads.items()} | dict(step.constants)
    results = {name: room.array(buffer) for name, buffer in writes.items()}

    def run() -> None:
        found = compute(sources)
        for name, result in results.items():
            if found[name].shape != result.shape:
                raise InvalidArguments(
                    f"step {step.name}: {name} has dims {found[name].shape} now, the network says "
                    f"{result.shape}: dims that depend on values cannot be compiled"
                )
            np.copyto(result, found[name], casting="no")

    return run


def _require_plain(step: Step, buffer: Buffer) -> None:
    layout = None if buffer.desc is None else buffer.desc.layout
    if layout is not None and not (isinstance(layout, Layout) and not any(axis.inner for axis in layout.axes)):
        raise InvalidArguments(
            f"step {step.name} is computed by NumPy, and buffer {buffer.name} is {buffer.desc!r}: give it a format "
            "without blocks"
        )
