"""What is refused before a program is compiled: names that do not exist, bytes that are read too early or too late.

The steps are gone through once, and for every byte it is known which buffer was written there last. A step may read a
buffer if all of its bytes hold what belongs to it: written as that buffer, as one of the same tensor in the same place
and format, or as one of a tensor that it is a view or a concatenation of.

    step 3 reads `b`:  home `b` [ ######## a1 ########|..........]     bytes without a writer: refused
    step 4 reads `x`:  home `x` [ ######## sum ####### ]               x was overwritten by a sum in place: refused
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inlay import primitives
from inlay.errors import InvalidArguments
from inlay.graph.op_graph import OpGraph
from inlay.graph.program import Buffer, Program, Step
from inlay.graph.runtime.arena import Place, Segments, places_of
from inlay.primitives.attributes import SumPostOp
from inlay.primitives.primitive import Primitive

OLD = "sum"
"""The argument by which a post-operation that adds the old destination reads it."""

_NOBODY = -1


def _kinds() -> dict[str, frozenset[tuple[str, str]]]:
    classes = [vars(primitives)[name] for name in primitives.__all__]
    forward = [one for one in classes if isinstance(one, type) and issubclass(one, Primitive) and hasattr(one, "kind")]
    return {one.kind: one.in_place for one in forward if not one.__name__.endswith("Backward")}


IN_PLACE: Mapping[str, frozenset[tuple[str, str]]] = _kinds()
"""By kind, which argument that is read may lie exactly on which one that is written."""


def require_sound(program: Program, graph: OpGraph) -> None:
    """Refuse a program whose steps would read what is not there, or write over what is still needed.

    Raises:
        InvalidArguments: so it is, or a name is of no buffer, or as `places_of`.
        Unimplemented: as `places_of`.
    """
    require_names(program)
    places = places_of(program, graph.tensors)
    state = Written(program, graph, places)
    for step in program.steps:
        _require_apart(step, program, state)
        for argument, name in step.reads.items():
            state.require(name, f"step {step.name} reads {argument}")
        for name in step.writes.values():
            state.write(name)
    for tensor, name in program.outputs.items():
        state.require(name, f"output {tensor} is read")


def require_names(program: Program) -> None:
    """Refuse a program with a name that two steps have, or that is of no buffer.

    Raises:
        InvalidArguments: so it is.
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
    if adds != (OLD in step.reads):
        problem = (
            "adds the old destination, and does not read it"
            if adds
            else "reads an old destination to add, and adds none"
        )
        raise InvalidArguments(f"step {step.name} {problem}: a post-operation Sum and the read `sum` come together")


def _require_apart(step: Step, program: Program, state: "Written") -> None:
    """Refuse a step that writes where it reads, unless it works in place."""
    allowed = IN_PLACE.get(step.kind, frozenset())
    if OLD in step.reads and not state.is_same(step.reads[OLD], step.writes.get("dst", step.reads[OLD])):
        raise InvalidArguments(
            f"step {step.name} adds to {step.reads[OLD]}, and writes {step.writes.get('dst')} elsewhere or in another "
            "format: a sum is done in place"
        )
    written = list(step.writes.items())
    for k, (argument, name) in enumerate(written):
        for other, source in (*step.reads.items(), *written[:k]):
            is_fine = other == OLD or ((other, argument) in allowed and state.is_same(source, name))
            if not is_fine and state.share(source, name):
                raise InvalidArguments(
                    f"step {step.name}, a {step.kind}: {argument} {name} shares bytes with {other} {source}: "
                    "give it another home"
                )


@dataclass(frozen=True, slots=True)
class _Home:
    """The state of one home."""

    segments: Segments
    """Its bytes, cut."""
    owners: np.ndarray[tuple[int], np.dtype[np.int64]]
    """By segment, the number of the buffer that was written there last."""


class Written:
    """Which buffer was written last, for every byte of every home."""

    def __init__(self, program: Program, graph: OpGraph, places: Mapping[str, Place]) -> None:
        """Begin where a run begins: only inputs are written."""
        self._buffers, self._places = program.buffers, places
        self._names = tuple(program.buffers)
        self._numbers = {name: i for i, name in enumerate(self._names)}
        self._origins = origins_of(graph)
        members: dict[str, dict[str, Buffer]] = {}
        for name, place in places.items():
            members.setdefault(place.home, {})[name] = program.buffers[name]
        self._homes: dict[str, _Home] = {}
        for home, buffers in members.items():
            segments = Segments(buffers, places)
            self._homes[home] = _Home(segments, np.full(segments.count, _NOBODY))
        for name in program.inputs.values():
            self.write(name)

    def write(self, name: str) -> None:
        """Buffer `name` is written."""
        home = self._homes[self._places[name].home]
        home.owners[home.segments.of[name]] = self._numbers[name]

    def strangers(self, name: str) -> str | None:
        """Why buffer `name` does not hold its tensor now; None where it does."""
        home = self._homes[self._places[name].home]
        for number in np.unique(home.owners[home.segments.of[name]]).tolist():
            if number == _NOBODY:
                return "nothing was written to all of its bytes"
            owner = self._buffers[self._names[number]]
            tensor = self._buffers[name].tensor
            if owner.tensor == tensor and not self.is_same(owner.name, name):
                return f"they hold {owner.name}, the same tensor in another place or format"
            if owner.tensor not in self._origins.get(tensor, frozenset((tensor,))):
                return f"{owner.name} was written there since"
        return None

    def require(self, name: str, what: str) -> None:
        """Refuse to read a buffer that does not hold its tensor.

        Raises:
            InvalidArguments: so it is; `what` begins the message.
        """
        problem = self.strangers(name)
        if problem is not None:
            raise InvalidArguments(
                f"{what} from buffer {name}, but {problem}: write it before, or give what is written there another home"
            )

    def share(self, one: str, other: str) -> bool:
        """Whether two buffers have a byte in common."""
        at = self._places[one].home
        if at != self._places[other].home:
            return False
        of = self._homes[at].segments.of
        return np.intersect1d(of[one], of[other], assume_unique=True).size > 0

    def is_same(self, one: str, other: str) -> bool:
        """Whether two buffers are the same elements in the same bytes; an array without a descriptor has any format."""
        first, second = self._places[one], self._places[other]
        if (first.home, first.offset) != (second.home, second.offset):
            return False
        descs = (self._buffers[one].desc, self._buffers[other].desc)
        return descs[0] is None or descs[1] is None or descs[0].equivalent(descs[1])


def origins_of(graph: OpGraph) -> dict[str, frozenset[str]]:
    """By tensor, the tensors whose elements it may have without a step: through views and concatenations."""
    found: dict[str, frozenset[str]] = {}
    for op in graph.ops:
        if op.kind in ("view", "concat"):
            sources = [found.get(name, frozenset((name,))) for name in op.reads.values()]
            for tensor in op.writes.values():
                found[tensor] = frozenset((tensor,)).union(*sources)
    return found
