"""Emission of a plan as a `Program`: its buffers, the positions of its reorders, and its steps in order.

A tensor has a buffer in each of its formats. Some buffers are stored in the bytes of another:

    source of a concatenation            in the result, at the offset of its slice
    view                                 in the source of the view
    operand that the result overwrites   in the result
    tensor between calls of a group      in the result of the group
    the same bytes in another format     in the format produced

A reorder can run right before its first reader, or right after the last reader of its source. Until it runs, the source
occupies memory, afterwards the destination. So it runs early if the destination is smaller and nothing else needs the
source, and late otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from inlay.errors import Unimplemented
from inlay.graph.background import yield_to_runs
from inlay.graph.costs import reorder_source
from inlay.graph.op_graph import Array
from inlay.graph.planner.formats import Format, Formats
from inlay.graph.planner.groups import Candidate, Group, KernelCall
from inlay.graph.planner.plan_search import ConcatCopy, FormatAssignment
from inlay.graph.planner.problem import Problem
from inlay.graph.program import Alternative, Buffer, Program, Step
from inlay.graph.states import TensorState
from inlay.primitives.attributes import SumPostOp
from inlay.primitives.engine import Operation


@dataclass(slots=True)
class BufferTable:
    """The buffers of a program while it is built."""

    formats: Formats
    """The table of formats."""
    names: dict[tuple[str, Format], str] = field(default_factory=dict)
    """Name of the buffer of each tensor and format."""
    first: dict[str, Format] = field(default_factory=dict)
    """Format of the first buffer of each tensor."""
    made: dict[str, tuple[str, Format]] = field(default_factory=dict)
    """Tensor and format of each buffer."""
    bases: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Base of each buffer that is stored in another one, and the offset there in bytes."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of buffers that were requested with each name."""

    def add(self, tensor: str, fmt: Format, name: str) -> str:
        """Add a buffer, and return its name: `name`, with a suffix if that is taken."""
        unique = name
        while unique in self.made:
            self.counts[name] = count = self.counts.get(name, 1) + 1
            unique = f"{name}:{count}"
        self.made[unique] = (tensor, fmt)
        return unique

    def of(self, tensor: str, fmt: Format) -> str:
        """Return the buffer of a tensor in a format, adding it at the first call.

        The first buffer of a tensor has the tensor's name.
        """
        key = (tensor, fmt)
        if key not in self.names:
            first = self.first.setdefault(tensor, fmt)
            name = tensor if first == fmt else f"{tensor}:{self._label(fmt, first)}"
            self.names[key] = self.add(tensor, fmt, name)
        return self.names[key]

    def _label(self, fmt: Format, first: Format) -> str:
        """Return the tag of a format, after its data type if the first buffer of the tensor has another."""
        tag, data_type = self.formats.tag(fmt) or "strided", self.formats.data_type(fmt)
        return tag if data_type == self.formats.data_type(first) else f"{data_type} {tag}"

    def alias(self, name: str, base: str, offset: int = 0) -> None:
        """Store a buffer, with all that are stored in it, in another one."""
        root, _ = self.root(name)
        if root != self.root(base)[0]:
            self.bases[root] = (base, offset)

    def root(self, name: str) -> tuple[str, int]:
        """Return the buffer that has the memory of a buffer, and the offset there in bytes.

        The chain of bases is shortened for later calls.
        """
        way = [name]
        while way[-1] in self.bases:
            way.append(self.bases[way[-1]][0])
        base, offset = way.pop(), 0
        for one in reversed(way):
            offset += self.bases[one][1]
            self.bases[one] = (base, offset)
        return base, offset

    def build(self) -> dict[str, Buffer]:
        """Return all buffers; the base of each has memory of its own."""
        return {
            name: Buffer(name, tensor, self.formats.desc(fmt), *self.root(name))
            for name, (tensor, fmt) in self.made.items()
        }


def build_buffers(problem: Problem, assignment: FormatAssignment) -> BufferTable:
    """Return the buffers of a plan, without those of copies and of tensors between the calls of a group."""
    buffers = BufferTable(problem.formats)
    for name, fmt in assignment.produced.items():
        first = buffers.of(name, fmt)
        for other in assignment.extra_formats[name]:
            second = buffers.of(name, other)
            if problem.formats.equivalent(fmt, other):
                buffers.alias(second, first)
    for i, (group, candidate) in enumerate(zip(problem.groups, assignment.candidates, strict=True)):
        if group.kind == "view":
            _put_view(problem, buffers, group, candidate)
        elif candidate.concat_offsets is not None:
            _put_sources(problem, assignment, buffers, i, candidate)
        elif (old := group.find_overwritten(candidate)) is not None:
            (dst,) = group.writes
            fmt = candidate.reads[group.reads.index(old)]
            buffers.alias(buffers.of(old, fmt), buffers.of(dst, candidate.writes[0]))
    return buffers


def _put_state(problem: Problem, buffers: BufferTable, state: TensorState) -> None:
    """Store the tensor that a state is after its write in the memory of the state.

    Raises:
        Unimplemented: it is a part of another tensor.
    """
    if state.output is None:
        return
    before, after = (buffers.of(name, problem.domains[name][0]) for name in (state.input, state.output))
    if buffers.root(after)[0] != after:
        raise Unimplemented(f"state {state.input} is read as a part of another tensor, and has memory of its own")
    buffers.alias(after, before)


def _put_view(problem: Problem, buffers: BufferTable, group: Group, candidate: Candidate) -> None:
    """Store the result of a view in its source."""
    (src,), (dst,) = group.reads, group.writes
    (read,), (written,) = candidate.reads, candidate.writes
    seen = problem.formats.view(read, group.head.transforms)
    buffers.alias(buffers.of(dst, written), buffers.of(src, read), seen[1] if seen else 0)


def _put_sources(
    problem: Problem, assignment: FormatAssignment, buffers: BufferTable, i: int, candidate: Candidate
) -> None:
    """Store sources of a concatenation in its result."""
    group, parts = problem.groups[i], candidate.concat_offsets or ()
    whole = buffers.of(group.writes[0], candidate.writes[0])
    for source, (name, read, at) in enumerate(zip(group.reads, candidate.reads, parts, strict=True)):
        if problem.is_in_concat_result(i, source, read, assignment.produced[name]):
            buffers.alias(buffers.of(name, read), whole, at)


def schedule_reorders(problem: Problem, assignment: FormatAssignment) -> dict[int, list[tuple[str, Format]]]:
    """Return the tensors and formats to reorder before each group; the key after the last group stands for the end.

    Post-condition: each reorder follows the group that produces its tensor and precedes all groups that read its
    result.
    """
    reads = _find_readers(problem, assignment)
    found: dict[int, list[tuple[str, Format]]] = {}
    for name, formats in assignment.extra_formats.items():
        src = assignment.produced[name]
        for dst in formats:
            late = min(reads[name, dst])
            early = max([problem.producers[name], *reads.get((name, src), ())]) + 1
            is_early = early < late and len(formats) == 1 and _saves_memory(problem, name, src, dst)
            found.setdefault(early if is_early else late, []).append((name, dst))
    return found


def _find_readers(problem: Problem, assignment: FormatAssignment) -> Mapping[tuple[str, Format], list[int]]:
    """Return the groups that read a tensor in a format; the number of groups stands for the caller of a run."""
    found: dict[tuple[str, Format], list[int]] = {}
    copies = {(copy.group, copy.source) for copy in assignment.copies}
    for i, (group, candidate) in enumerate(zip(problem.groups, assignment.candidates, strict=True)):
        for source, (name, fmt) in enumerate(zip(group.reads, candidate.reads, strict=True)):
            read = assignment.produced[name] if (i, source) in copies else fmt
            found.setdefault((name, read), []).append(i)
    for name in problem.graph.outputs:
        found.setdefault((name, problem.domains[name][0]), []).append(len(problem.groups))
    return found


def _saves_memory(problem: Problem, name: str, src: Format, dst: Format) -> bool:
    """Return whether an early reorder saves memory: its result is smaller, and its source is not needed otherwise."""
    views = any(problem.groups[reader].kind == "view" for reader in problem.readers[name])
    if views or name in problem.concat_targets or not problem.can_relocate(name):
        return False
    return problem.formats.size(dst) < problem.formats.size(src)


Without = Callable[[str, Format, Format], float | None]
"""A function from a tensor and two formats to the cost that the best plan without this reorder would add, in ms."""
_MOST_REASONS = 16


def emit_program(problem: Problem, assignment: FormatAssignment, without: Without | None = None) -> Program:
    """Return the program of a plan; `without` provides the cost of a plan without each of its reorders.

    Post-conditions: steps read what earlier ones have written; the sum of their `ms` is `assignment.ms`.
    """
    emission = _Emission(problem, assignment, build_buffers(problem, assignment), without)
    emission.run()
    graph = problem.graph
    for state in graph.states:
        _put_state(problem, emission.buffers, state)
    inputs = {name: emission.buffers.of(name, problem.domains[name][0]) for name in graph.inputs}
    outputs = {name: emission.buffers.of(name, problem.domains[name][0]) for name in graph.outputs}
    states = {state.input: inputs[state.input] for state in graph.states}
    return Program(tuple(emission.steps), emission.buffers.build(), inputs, outputs, states)


@dataclass(slots=True)
class _Emission:
    """The steps of a program while it is built."""

    problem: Problem
    assignment: FormatAssignment
    buffers: BufferTable
    without: Without | None
    steps: list[Step] = field(default_factory=list)
    readers: dict[tuple[str, Format], list[int]] = field(default_factory=dict)
    """Groups that read a tensor in a format, in order."""

    def run(self) -> None:
        """Emit all steps."""
        moves = schedule_reorders(self.problem, self.assignment)
        copies: dict[int, list[ConcatCopy]] = {}
        for copy in self.assignment.copies:
            copies.setdefault(copy.group, []).append(copy)
        pairs = list(zip(self.problem.groups, self.assignment.candidates, strict=True))
        for i, (group, candidate) in enumerate(pairs):
            for key in set(zip(group.reads, candidate.reads, strict=True)):
                self.readers.setdefault(key, []).append(i)
        for i, (group, candidate) in enumerate(pairs):
            yield_to_runs()
            self.emit_reorders(moves.get(i, ()))
            for copy in copies.get(i, ()):
                self.emit_copy(copy, candidate)
            self.emit_calls(group, candidate)
        self.emit_reorders(moves.get(len(self.problem.groups), ()))

    def emit_reorders(self, wanted: Sequence[tuple[str, Format]]) -> None:
        """Emit the reorders of tensors to these formats, except those that describe the same bytes."""
        for name, dst in wanted:
            src = self.assignment.produced[name]
            if self.problem.formats.equivalent(src, dst):
                continue
            why = ", ".join(self.reasons(name, dst))
            alternative = None if self.without is None else Alternative(partial(self.without, name, src, dst))
            self.emit_reorder(name, src, dst, self.buffers.of(name, dst), why, alternative)

    def reasons(self, name: str, fmt: Format) -> Iterator[str]:
        """Yield the readers of a tensor in a format, at most `_MOST_REASONS` of them."""
        readers = self.readers.get((name, fmt), ())
        for i in readers[:_MOST_REASONS]:
            yield f"{self.problem.groups[i].names[0][0]} reads {self.format_name(name, fmt)}"
        if len(readers) > _MOST_REASONS:
            yield f"and {len(readers) - _MOST_REASONS} more"
        if name in self.problem.graph.outputs and fmt == self.problem.domains[name][0]:
            yield f"{name} is returned in {self.format_name(name, fmt)}"

    def format_name(self, name: str, fmt: Format) -> str:
        """Return the tag of a format of a tensor, or its description if it has none.

        If the tensor may be stored in several types, the type precedes the tag.
        """
        formats, tag = self.problem.formats, self.problem.formats.tag(fmt)
        if tag is None:
            return str(formats[fmt])
        return f"{formats.data_type(fmt)} {tag}" if name in self.problem.graph.storage_types else tag

    def emit_copy(self, copy: ConcatCopy, candidate: Candidate) -> None:
        """Emit the copy of a source into the result of a concatenation."""
        group = self.problem.groups[copy.group]
        whole = self.buffers.of(group.writes[0], candidate.writes[0])
        name, part = group.reads[copy.source], copy.part
        assert candidate.concat_offsets is not None
        place = self.buffers.add(name, part, f"{name}:in:{group.writes[0]}")
        self.buffers.alias(place, whole, candidate.concat_offsets[copy.source])
        why = f"{group.names[0][0]} stores it as {self.format_name(name, part)} in its result"
        self.emit_reorder(name, self.assignment.produced[name], part, place, why, None)

    def emit_reorder(
        self, name: str, src: Format, dst: Format, writes: str, why: str, alternative: Alternative | None
    ) -> None:
        """Emit the step of a reorder."""
        formats, costs = self.problem.formats, self.problem.cost_cache
        descs = {"src": formats[src], "dst": formats[dst]}
        step = Step(
            f"reorder:{writes}",
            "reorder",
            {"src": self.buffers.of(name, src)},
            {"dst": writes},
            Operation("reorder", "forward_inference", descs),
            impl="inlay",
            ms=costs.reorder(src, dst),
            nbytes=formats.size(src) + formats.size(dst),
            why=why,
            source=reorder_source(costs.source, **descs),
            alternative=alternative,
        )
        self.steps.append(step)

    def emit_calls(self, group: Group, candidate: Candidate) -> None:
        """Emit the calls of a group."""
        between = self.between(group, candidate)
        for call in candidate.calls:
            op = group.ops[call.first]
            reads, constants = self.operands(group, candidate, call, between)
            last = group.ops[call.last]
            writes = {a: between.get(n) or self.written(group, candidate, n) for a, n in last.writes.items()}
            self.steps.append(
                Step(
                    group.names[call.first][0],
                    op.kind,
                    reads,
                    writes,
                    call.operation,
                    constants,
                    op.node,
                    tuple(name for names in group.names[call.first : call.last + 1] for name in names),
                    call.impl,
                    call.ms,
                    call.nbytes,
                    op.why,
                    call.source,
                )
            )

    def between(self, group: Group, candidate: Candidate) -> dict[str, str]:
        """Add buffers for the tensors between the calls of a group, and return them."""
        found = {}
        for call in candidate.calls[:-1]:
            (name,) = group.ops[call.last].writes.values()
            (dst,), (desc,) = group.writes, candidate.writes
            found[name] = self.buffers.add(name, desc, name)
            self.buffers.alias(found[name], self.buffers.of(dst, desc))
        return found

    def written(self, group: Group, candidate: Candidate, name: str) -> str:
        """Return the buffer of a result of a group."""
        return self.buffers.of(name, candidate.writes[group.writes.index(name)])

    def operands(
        self, group: Group, candidate: Candidate, call: KernelCall, intermediates: dict[str, str]
    ) -> tuple[dict[str, str], dict[str, Array]]:
        """Return the buffers and the constants that a call reads, by argument.

        `intermediates` are the buffers of results that earlier calls of the group write.
        """
        op = group.ops[call.first]
        # Reversed, so that the first of several equal names counts.
        descs = dict(zip(reversed(group.reads), reversed(candidate.reads), strict=True))

        def read(name: str) -> str:
            return self.buffers.of(name, descs[name])

        reads = {a: intermediates.get(name) or read(name) for a, name in op.reads.items()}
        values = call.operation.attributes.value_names if call.operation is not None else ()
        unused = set(op.attributes.value_names).difference(values)
        constants = {name: array for name, array in op.constants.items() if name not in unused}
        for i, post_op, follower in group.operands(call):
            if "src_1" in follower.constants:
                constants[f"post_op_{i}_src_1"] = follower.constants["src_1"]
            else:
                argument = "sum" if isinstance(post_op, SumPostOp) else f"post_op_{i}_src_1"
                reads[argument] = read(follower.reads["src_1"])
        return reads, constants
