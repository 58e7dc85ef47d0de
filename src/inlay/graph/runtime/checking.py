"""Validation of a program before it is compiled: unknown names, bytes that are read too early or overwritten too soon.

`require_sound` executes the steps symbolically: for every byte it tracks which buffer was written there last. A step
may read a buffer if all of its bytes were last written as that buffer, as another buffer of the same tensor at the same
place and in the same format, or as a buffer of a tensor that it is a view or a concatenation of.

    step 3 reads `b`:  allocation `b` [ ######## a1 ########|..........]     bytes that were never written: refused
    step 4 reads `x`:  allocation `x` [ ######## sum ####### ]               an in-place sum overwrote x: refused
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inlay import primitives
from inlay.errors import InvalidArguments
from inlay.graph.background import yield_to_runs
from inlay.graph.op_graph import OpGraph
from inlay.graph.precision import is_conversion_view
from inlay.graph.program import Buffer, Program, Step
from inlay.graph.runtime.arena import BufferLocation, Segments, locate_buffers
from inlay.primitives.attributes import SumPostOp
from inlay.primitives.primitive import Primitive

OLD_DST = "sum"
"""The argument by which a step reads the destination that its post-operation `Sum` adds to."""

_UNWRITTEN = -1


def _in_place_arguments() -> dict[str, frozenset[tuple[str, str]]]:
    """Return the pairs of arguments that each kind of primitive may be given the same memory for."""
    classes = [vars(primitives)[name] for name in primitives.__all__]
    forward = [one for one in classes if isinstance(one, type) and issubclass(one, Primitive) and hasattr(one, "kind")]
    return {one.kind: one.in_place for one in forward if not one.__name__.endswith("Backward")}


IN_PLACE: Mapping[str, frozenset[tuple[str, str]]] = _in_place_arguments()
"""For each kind, the pairs of a read argument and a written argument that may be the same buffer."""


def require_sound(program: Program, graph: OpGraph) -> None:
    """Check that every step reads what was written for it, and overwrites nothing that a later step needs.

    Raises:
        InvalidArguments: a step does not, or a name is of no buffer, or as `locate_buffers`.
        Unimplemented: as `locate_buffers`.
    """
    require_names(program)
    locations = locate_buffers(program, graph.tensors)
    state = WriteTracker(program, graph, locations)
    for step in program.steps:
        yield_to_runs()
        _require_disjoint(step, program, state)
        for argument, name in step.reads.items():
            state.require_valid(name, f"step {step.name} reads {argument}")
        for name in step.writes.values():
            state.write(name)
    for tensor, name in program.outputs.items():
        state.require_valid(name, f"output {tensor} is read")


def require_names(program: Program) -> None:
    """Check that step names are unique, and that steps, inputs and outputs name buffers of the program.

    Raises:
        InvalidArguments: they do not.
    """
    names = [step.name for step in program.steps]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidArguments(f"two steps of the program are called {twice[0]}: give each a name of its own")
    for step in program.steps:
        _require_names(step, program)
    for tensor, name in (*program.inputs.items(), *program.outputs.items()):
        if name not in program.buffers:
            raise InvalidArguments(f"{tensor} is buffer {name!r}, which the program does not have: add it")


def _require_names(step: Step, program: Program) -> None:
    """Check the buffers of a step, and that it has the operation or node that its kind needs."""
    for argument, name in (*step.reads.items(), *step.writes.items()):
        if name not in program.buffers:
            raise InvalidArguments(
                f"step {step.name}: {argument} is buffer {name!r}, which the program does not have: add it"
            )
    if step.operation is None and (step.kind != "reference" or step.node is None):
        raise InvalidArguments(
            f"step {step.name}, a {step.kind}, has neither an operation nor a node: a reference has a node, all "
            "else an operation"
        )
    adds = step.operation is not None and any(
        isinstance(post, SumPostOp) for post in step.operation.attributes.post_ops
    )
    if adds != (OLD_DST in step.reads):
        problem = "adds the old destination, and does not read it"
        if not adds:
            problem = "reads an old destination to add, and adds none"
        raise InvalidArguments(f"step {step.name} {problem}: a post-operation Sum and the read `sum` come together")


def _require_disjoint(step: Step, program: Program, state: "WriteTracker") -> None:
    """Check that a step writes no byte that it reads, except where its kind works in place."""
    allowed = IN_PLACE.get(step.kind, frozenset())
    if OLD_DST in step.reads and not state.is_same(step.reads[OLD_DST], step.writes.get("dst", step.reads[OLD_DST])):
        raise InvalidArguments(
            f"step {step.name} adds to {step.reads[OLD_DST]}, and writes {step.writes.get('dst')} elsewhere or in "
            "another format: a sum is done in place"
        )
    written = list(step.writes.items())
    for k, (argument, name) in enumerate(written):
        for other, source in (*step.reads.items(), *written[:k]):
            is_fine = other == OLD_DST or ((other, argument) in allowed and state.is_same(source, name))
            if not is_fine and state.overlap(source, name):
                raise InvalidArguments(
                    f"step {step.name}, a {step.kind}: {argument} {name} shares bytes with {other} {source}: "
                    "store it elsewhere"
                )


@dataclass(frozen=True, slots=True)
class _AllocationState:
    """The state of one allocation at a step."""

    segments: Segments
    """The bytes of the allocation, cut at the beginnings and ends of its buffers."""
    owners: np.ndarray[tuple[int], np.dtype[np.int64]]
    """For each segment, the number of the buffer that was written there last; -1 for none."""


class WriteTracker:
    """The buffer that was written last, for every byte of every allocation."""

    def __init__(self, program: Program, graph: OpGraph, locations: Mapping[str, BufferLocation]) -> None:
        """Begin in the state before the first step: only inputs are written."""
        self._buffers, self._locations = program.buffers, locations
        self._names = tuple(program.buffers)
        self._numbers = {name: i for i, name in enumerate(self._names)}
        self._origins = find_origins(graph)
        members: dict[str, dict[str, Buffer]] = {}
        for name, location in locations.items():
            members.setdefault(location.allocation, {})[name] = program.buffers[name]
        self._allocations: dict[str, _AllocationState] = {}
        for allocation, buffers in members.items():
            segments = Segments(buffers, locations)
            self._allocations[allocation] = _AllocationState(segments, np.full(segments.count, _UNWRITTEN))
        for name in program.inputs.values():
            self.write(name)

    def write(self, name: str) -> None:
        """Record that buffer `name` is written."""
        allocation = self._allocations[self._locations[name].allocation]
        allocation.owners[allocation.segments.of[name]] = self._numbers[name]

    def find_conflict(self, name: str) -> str | None:
        """Return the reason why buffer `name` does not hold its tensor now; None where it does."""
        allocation = self._allocations[self._locations[name].allocation]
        for number in sorted(set(allocation.owners[allocation.segments.of[name]].tolist())):
            if number == _UNWRITTEN:
                return "nothing was written to all of its bytes"
            owner = self._buffers[self._names[number]]
            tensor = self._buffers[name].tensor
            if owner.tensor == tensor and not self.is_same(owner.name, name):
                return f"they hold {owner.name}, the same tensor in another place or format"
            if owner.tensor not in self._origins.get(tensor, frozenset((tensor,))):
                return f"{owner.name} was written there since"
        return None

    def require_valid(self, name: str, what: str) -> None:
        """Check that a buffer holds its tensor.

        Raises:
            InvalidArguments: it does not; `what` begins the message.
        """
        problem = self.find_conflict(name)
        if problem is not None:
            raise InvalidArguments(
                f"{what} from buffer {name}, but {problem}: write it before, or store what is written there elsewhere"
            )

    def overlap(self, one: str, other: str) -> bool:
        """Return whether two buffers have a byte in common."""
        allocation = self._locations[one].allocation
        if allocation != self._locations[other].allocation:
            return False
        segments = self._allocations[allocation].segments.of
        return np.intersect1d(segments[one], segments[other], assume_unique=True).size > 0

    def is_same(self, one: str, other: str) -> bool:
        """Return whether two buffers have the same elements in the same bytes.

        An array without a descriptor counts as equal in format.
        """
        first, second = self._locations[one], self._locations[other]
        if (first.allocation, first.offset) != (second.allocation, second.offset):
            return False
        descs = (self._buffers[one].desc, self._buffers[other].desc)
        return descs[0] is None or descs[1] is None or descs[0].equivalent(descs[1])


def find_origins(graph: OpGraph) -> dict[str, frozenset[str]]:
    """Return, for each result of a view or concatenation, the tensors whose elements it may hold without a step.

    A conversion is a view where both of its sides are stored in one type.
    """
    origins: dict[str, frozenset[str]] = {}
    for op in graph.ops:
        if op.kind in ("view", "concat") or is_conversion_view(op, graph):
            sources = [origins.get(name, frozenset((name,))) for name in op.reads.values()]
            for tensor in op.writes.values():
                origins[tensor] = frozenset((tensor,)).union(*sources)
    return origins
