"""Repeated blocks of a plan, drawn once: segments of the program, and a graph in which a node stands for equal steps.

Steps are equal here if they differ in nothing but names, numbers of channels, and implementations: layers of DenseNet
read more channels from one to the next, and are blocks of one kind all the same. `inlay.graph.step_groups` finds the
blocks. A segment is a repeated block, or the steps between two of them; a segment without steps separates blocks that
follow each other. Where a sequence allows several beginnings of its occurrences, as ABABA does, the one is taken where
the fewest tensors pass from an occurrence to the next: blocks with a residual connection begin after their addition.

Marks without a step belong to the segment of the step that needs them. A tensor that an occurrence passes to the next
one becomes a loop of the folded graph.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inlay.graph.axis_roles import find_axis_roles
from inlay.graph.network import Subgraph
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.program import Step
from inlay.graph.step_groups import StepGroup, group_steps
from inlay.render.network.flow import Flow, format_name

_OF_STEP = ("step", "reference", "reorder")
"""Shapes of the marks that are steps."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that follow each other."""

    first: int
    """Index of the first step."""
    length: int
    """Number of steps of the block; of all steps if it is not repeated."""
    count: int
    """Number of occurrences of the block; 1 if it is not repeated."""

    @property
    def stop(self) -> int:
        """Index after the last step."""
        return self.first + self.length * self.count

    @property
    def is_block(self) -> bool:
        """True for a repeated block."""
        return self.count > 1


@dataclass(frozen=True, slots=True, order=True)
class MarkPosition:
    """The segment of a mark, and its position there."""

    segment: int
    """Index of the segment."""
    occurrence: int = 0
    """Number of the occurrence, from 0 on."""
    order: tuple[int, int] = (0, 0)
    """In a block: index of the step within the occurrence; number among the views before it, and then the step."""


@dataclass(frozen=True, slots=True)
class FoldedNode:
    """A node of the folded graph."""

    segment: int
    """Index of its segment."""
    marks: tuple[int, ...]
    """The marks that it stands for, one in each occurrence that has it: indices of `Flow.marks`."""


@dataclass(frozen=True, slots=True)
class FoldedWire:
    """A wire of the folded graph."""

    source: int
    """Node at which it begins."""
    targets: tuple[int, ...]
    """Nodes at which it ends, each greater than `source`."""
    wires: tuple[int, ...]
    """The wires that it stands for: indices of `Flow.wires`."""
    format: str
    """Format of all of them."""


@dataclass(frozen=True, slots=True)
class FoldedLoop:
    """A tensor that each occurrence of a block passes to a later one."""

    source: int
    """Node that writes it."""
    targets: tuple[int, ...]
    """Nodes that read it, in a later occurrence."""
    wires: tuple[int, ...]
    """The wires that it stands for: indices of `Flow.wires`."""
    format: str
    """Format of all of them."""


@dataclass(frozen=True, slots=True)
class FoldedFlow:
    """A flow with its segments, and the graph in which all blocks are folded."""

    flow: Flow
    """The flow with all marks."""
    segments: tuple[Segment, ...]
    """The segments in the order of the program."""
    positions: tuple[MarkPosition, ...]
    """The position of each mark."""
    nodes: tuple[FoldedNode, ...]
    """The nodes, those of a segment together, each after those that lead to it."""
    node_of: tuple[int, ...]
    """The node that stands for each mark."""
    wires: tuple[FoldedWire, ...]
    """The wires between nodes."""
    loops: tuple[FoldedLoop, ...]
    """The loops of folded blocks."""


def fold_flow(plan: PlannedProgram, flow: Flow) -> FoldedFlow:
    """Return the segments of a plan and its folded graph.

    Post-condition: each mark belongs to one node, and wires lead to later nodes.
    """
    segments = tuple(find_segments(fold_keys(plan), _count_live_wires(flow, len(plan.program.steps))))
    positions = _locate_marks(flow, segments)
    found: dict[Hashable, list[int]] = {}
    for mark, position in enumerate(positions):
        found.setdefault(_node_key(flow, segments, mark, position), []).append(mark)
    order = sorted(found.values(), key=lambda marks: _sort_key(segments, positions, marks))
    node_of = {mark: node for node, marks in enumerate(order) for mark in marks}
    nodes = tuple(FoldedNode(positions[marks[0]].segment, tuple(marks)) for marks in order)
    wires, loops = _fold_wires(flow, positions, node_of)
    return FoldedFlow(flow, segments, positions, nodes, tuple(node_of[i] for i in range(len(flow.marks))), wires, loops)


def find_segments(keys: Sequence[Hashable], live: Sequence[int]) -> Iterator[Segment]:
    """Yield the segments of steps with these keys: one that is no block before, between and after all blocks.

    `live` has for each step the number of tensors that earlier steps pass to it or to later ones.

    >>> list(find_segments("xababy", [0, 1, 1, 1, 1, 1]))
    [Segment(first=0, length=1, count=1), Segment(first=1, length=2, count=2), Segment(first=5, length=1, count=1)]
    >>> [(one.first, one.count) for one in find_segments("ababa", [0, 1, 2, 1, 2]) if one.is_block]
    [(1, 2)]
    """
    begin = 0
    for group in group_steps(keys):
        if group.is_block:
            first = group.first + _best_shift(keys, live, group)
            yield Segment(begin, first - begin, 1)
            yield Segment(first, group.length, group.count)
            begin = first + len(group.steps)
    yield Segment(begin, len(keys) - begin, 1)


def _best_shift(keys: Sequence[Hashable], live: Sequence[int], group: StepGroup) -> int:
    """Return by how many steps a block begins later, so that the fewest tensors pass between its occurrences."""
    shifts, stop = [0], group.steps.stop
    while len(shifts) < group.length and stop < len(keys) and keys[stop] == keys[group.first + len(shifts) - 1]:
        shifts.append(len(shifts))
        stop += 1
    return min(shifts, key=lambda shift: live[group.first + group.length + shift])


def _count_live_wires(flow: Flow, steps: int) -> list[int]:
    """Return for each step the number of wires that lead from marks before it to itself or to later marks."""
    of_mark, step = [], 0
    for mark in flow.marks:
        of_mark.append(step)
        step += mark.shape in _OF_STEP
    found = [0] * (steps + 1)
    for wire in flow.wires:
        first, last = of_mark[wire.source], max(of_mark[target] for target in wire.targets)
        for i in range(first + 1, last + 1):
            found[i] += 1
    return found[:steps]


def fold_keys(plan: PlannedProgram) -> list[Hashable]:
    """Return a key for each step, equal for steps that differ in names, channels and implementations alone."""
    roles = find_axis_roles(plan.graph)
    kinds = {op.name: (op.kind, op.parameters.get("algorithm")) for op in plan.graph.ops}
    return [_fold_key(plan, step, roles, kinds) for step in plan.program.steps]


def _fold_key(plan: PlannedProgram, step: Step, roles: Mapping[str, str], kinds: Mapping[str, Hashable]) -> Hashable:
    """Return the key of a step."""
    arguments = []
    for argument, name in (*step.reads.items(), *step.writes.items()):
        buffer = plan.program.buffers[name]
        axes = roles.get(buffer.tensor, "")
        dims = (n for i, n in enumerate(plan.graph.tensors[buffer.tensor].dims) if axes[i : i + 1] != "c")
        arguments.append((argument, format_name(buffer.desc), *dims))
    parameters = () if step.operation is None else tuple(sorted(step.operation.parameters.items(), key=lambda p: p[0]))
    nodes = step.node.nodes if isinstance(step.node, Subgraph) else () if step.node is None else (step.node,)
    operators = tuple((node.domain, node.operator) for node in nodes)
    return step.kind, tuple(kinds.get(name) for name in step.ops), tuple(arguments), repr(parameters), operators


def _locate_marks(flow: Flow, segments: Sequence[Segment]) -> tuple[MarkPosition, ...]:
    """Return the position of each mark."""
    found = _locate_steps(flow, segments)
    sources: dict[int, list[int]] = {}
    readers: dict[int, int] = {}
    for wire in flow.wires:
        for target in wire.targets:
            sources.setdefault(target, []).append(wire.source)
        readers[wire.source] = min(readers.get(wire.source, wire.targets[0]), *wire.targets)
    for mark, shape in enumerate(mark.shape for mark in flow.marks):
        if mark not in found and shape != "input":  # an output, or a view of what only outputs read
            last = max((found[i].segment for i in sources.get(mark, ()) if i in found), default=0)
            found[mark] = MarkPosition(last + segments[last].is_block)
    for mark in range(len(flow.marks)):
        if mark not in found:
            first = found[readers[mark]].segment if mark in readers and readers[mark] in found else 0
            found[mark] = MarkPosition(first - segments[first].is_block)
    return tuple(found[i] for i in range(len(flow.marks)))


def _locate_steps(flow: Flow, segments: Sequence[Segment]) -> dict[int, MarkPosition]:
    """Return the positions of the marks that are steps, and of the views before each."""
    of_step = [number for number, segment in enumerate(segments) for _ in range(segment.first, segment.stop)]
    found: dict[int, MarkPosition] = {}
    views: list[int] = []
    step = 0
    for mark, shape in enumerate(mark.shape for mark in flow.marks):
        if shape == "view":
            views.append(mark)
        elif shape in _OF_STEP:
            segment = segments[of_step[step]]
            occurrence, index = divmod(step - segment.first, segment.length) if segment.is_block else (0, 0)
            for number, one in enumerate((*views, mark)):
                found[one] = MarkPosition(of_step[step], occurrence, (index, number))
            views, step = [], step + 1
        else:
            views = []
    return found


def _node_key(flow: Flow, segments: Sequence[Segment], mark: int, position: MarkPosition) -> Hashable:
    """Return a key that is equal for the marks that one node stands for."""
    if not segments[position.segment].is_block:
        return mark
    index, number = position.order
    is_view = flow.marks[mark].shape == "view"
    return position.segment, index, (number, flow.marks[mark].title) if is_view else None


def _sort_key(
    segments: Sequence[Segment], positions: Sequence[MarkPosition], marks: Sequence[int]
) -> tuple[int, tuple[int, int], int]:
    """Return the key by which nodes are sorted: their segment and their order there."""
    position = positions[marks[0]]
    is_block = segments[position.segment].is_block
    order = max(positions[mark].order for mark in marks) if is_block else (0, 0)
    return position.segment, order, marks[0]


@dataclass(slots=True)
class _WireDraft:
    """A wire of the folded graph while it is collected."""

    targets: set[int] = field(default_factory=set)
    """Nodes at which it ends."""
    wires: dict[int, None] = field(default_factory=dict)
    """The wires that it stands for, in order."""


def _fold_wires(
    flow: Flow, positions: Sequence[MarkPosition], node_of: Mapping[int, int]
) -> tuple[tuple[FoldedWire, ...], tuple[FoldedLoop, ...]]:
    """Return the wires and the loops between nodes; the outputs of a mark stay apart, by their number."""
    drafts: dict[tuple[int, int, str, bool], _WireDraft] = {}
    outputs: dict[int, int] = {}
    for number, wire in enumerate(flow.wires):
        output = outputs[wire.source] = outputs.get(wire.source, -1) + 1
        source = positions[wire.source]
        for target in wire.targets:
            end = positions[target]
            is_loop = end.segment == source.segment and end.occurrence > source.occurrence
            draft = drafts.setdefault((node_of[wire.source], output, wire.format, is_loop), _WireDraft())
            draft.targets.add(node_of[target])
            draft.wires[number] = None
    wires, loops = [], []
    for (node, _, form, is_loop), draft in sorted(drafts.items(), key=lambda item: item[0]):
        targets, those = tuple(sorted(draft.targets)), tuple(draft.wires)
        if is_loop:
            loops.append(FoldedLoop(node, targets, those, form))
        else:
            wires.append(FoldedWire(node, targets, those, form))
    return tuple(wires), tuple(loops)
