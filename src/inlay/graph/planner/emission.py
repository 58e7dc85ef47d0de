"""From what was chosen to a `Program`: buffers, the time of each reorder, then steps in order.

A tensor has a buffer in each of its formats, some of them in the bytes of another:

    source of a concatenation          in the result, where its slice begins
    view                               in what it is a view of
    what a result takes the place of   in the result
    between calls of a group           in the result of the group
    the same bytes, other format       in the format produced

A reorder runs right before its first reader, or as soon as nobody else needs what it reads. Until then the source takes
memory, afterwards the destination. So it is late if the source is the smaller of both or is needed anyway, and early if
the destination is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from inlay.graph.costs import reorder_source
from inlay.graph.op_graph import Array
from inlay.graph.planner.choosing import Copy, Settled
from inlay.graph.planner.formats import Format, Formats
from inlay.graph.planner.groups import Candidate, Group, KernelCall
from inlay.graph.planner.problem import Problem
from inlay.graph.program import Alternative, Buffer, Program, Step
from inlay.primitives.attributes import SumPostOp
from inlay.primitives.engine import Operation


@dataclass(slots=True)
class Buffers:
    """Buffers while they are laid out."""

    formats: Formats
    """Of their descriptors."""
    names: dict[tuple[str, Format], str] = field(default_factory=dict)
    """By tensor and format."""
    tensors: set[str] = field(default_factory=set)
    """Those that have a buffer in some format."""
    made: dict[str, tuple[str, Format]] = field(default_factory=dict)
    """By name: tensor and format."""
    homes: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By name: what it lies in, and from which byte."""
    counts: dict[str, int] = field(default_factory=dict)
    """By beginning of a name, how many buffers were wanted with it."""

    def add(self, tensor: str, number: Format, name: str) -> str:
        """A new buffer, with a name that begins with `name`."""
        wanted = name
        while wanted in self.made:
            self.counts[name] = count = self.counts.get(name, 1) + 1
            wanted = f"{name}:{count}"
        self.made[wanted] = (tensor, number)
        return wanted

    def of(self, tensor: str, number: Format) -> str:
        """The buffer of a tensor in a format, made at the first call: that of the format produced has its name."""
        key = (tensor, number)
        if key not in self.names:
            name = f"{tensor}:{self.formats.tag(number) or 'strided'}" if tensor in self.tensors else tensor
            self.names[key] = self.add(tensor, number, name)
            self.tensors.add(tensor)
        return self.names[key]

    def put(self, name: str, home: str, offset: int = 0) -> None:
        """Let a buffer, with all that lies in it, lie in another one."""
        root, _ = self.root(name)
        if root != self.root(home)[0]:
            self.homes[root] = (home, offset)

    def root(self, name: str) -> tuple[str, int]:
        """What has the bytes of a buffer, and from which byte; the way there is shortened for the next call."""
        way = [name]
        while way[-1] in self.homes:
            way.append(self.homes[way[-1]][0])
        home, offset = way.pop(), 0
        for one in reversed(way):
            offset += self.homes[one][1]
            self.homes[one] = (home, offset)
        return home, offset

    def finished(self) -> dict[str, Buffer]:
        """All buffers, each with the home that has bytes of its own."""
        return {
            name: Buffer(name, tensor, self.formats.desc(number), *self.root(name))
            for name, (tensor, number) in self.made.items()
        }


def laid_out(problem: Problem, settled: Settled) -> Buffers:
    """The buffers of a plan, apart from copies and of what lies between the calls of a group."""
    buffers = Buffers(problem.formats)
    for name, number in settled.produced.items():
        first = buffers.of(name, number)
        for other in settled.kept[name]:
            second = buffers.of(name, other)
            if problem.is_alias(name, number, other):
                buffers.put(second, first)
    for i, (group, candidate) in enumerate(zip(problem.groups, settled.candidates, strict=True)):
        if group.kind == "view":
            _put_view(problem, buffers, group, candidate)
        elif candidate.parts is not None:
            _put_sources(problem, settled, buffers, i, candidate)
        elif candidate.takes is not None:
            (dst,) = group.writes
            old = group.ops[candidate.takes].reads["src_1"]
            number = candidate.reads[group.reads.index(old)]
            buffers.put(buffers.of(old, number), buffers.of(dst, candidate.writes[0]))
    return buffers


def _put_view(problem: Problem, buffers: Buffers, group: Group, candidate: Candidate) -> None:
    (src,), (dst,) = group.reads, group.writes
    (read,), (written,) = candidate.reads, candidate.writes
    seen = problem.formats.viewed(read, group.head.moves)
    buffers.put(buffers.of(dst, written), buffers.of(src, read), seen[1] if seen else 0)


def _put_sources(problem: Problem, settled: Settled, buffers: Buffers, i: int, candidate: Candidate) -> None:
    group, parts = problem.groups[i], candidate.parts or ()
    whole = buffers.of(group.writes[0], candidate.writes[0])
    for source, (name, read, at) in enumerate(zip(group.reads, candidate.reads, parts, strict=True)):
        if problem.lies(i, source, read, settled.produced[name]):
            buffers.put(buffers.of(name, read), whole, at)


def placed(problem: Problem, settled: Settled) -> dict[int, list[tuple[str, Format]]]:
    """The formats that tensors are brought to before each group; those before the end under the number of groups.

    Post-condition: each stands after the group that produces its tensor and not after one that reads it.
    """
    reads = _reads(problem, settled)
    found: dict[int, list[tuple[str, Format]]] = {}
    for name, formats in settled.kept.items():
        src = settled.produced[name]
        for dst in formats:
            late = min(reads[name, dst])
            early = max([problem.producers[name], *reads.get((name, src), ())]) + 1
            is_early = early < late and len(formats) == 1 and _shrinks(problem, name, src, dst)
            found.setdefault(early if is_early else late, []).append((name, dst))
    return found


def _reads(problem: Problem, settled: Settled) -> Mapping[tuple[str, Format], list[int]]:
    """The groups that read a tensor in a format; the number of groups for what a run answers."""
    found: dict[tuple[str, Format], list[int]] = {}
    copies = {(copy.group, copy.source) for copy in settled.copies}
    for i, (group, candidate) in enumerate(zip(problem.groups, settled.candidates, strict=True)):
        for source, (name, number) in enumerate(zip(group.reads, candidate.reads, strict=True)):
            read = settled.produced[name] if (i, source) in copies else number
            found.setdefault((name, read), []).append(i)
    for name in problem.graph.outputs:
        found.setdefault((name, problem.domains[name][0]), []).append(len(problem.groups))
    return found


def _shrinks(problem: Problem, name: str, src: Format, dst: Format) -> bool:
    """Whether memory is won by an early reorder: the destination is smaller, and the source lies in nothing else."""
    views = any(problem.groups[reader].kind == "view" for reader in problem.readers[name])
    if views or name in problem.homes or not problem.may_move(name):
        return False
    return problem.formats.size(dst) < problem.formats.size(src)


Without = Callable[[str, Format, Format], float | None]
"""By how much the best plan without a reorder of a tensor is slower."""
_MOST_REASONS = 16


def emitted(problem: Problem, settled: Settled, without: Without | None = None) -> Program:
    """The program of a plan; `without` prices each of its reorders.

    Post-conditions: steps write what later ones read; the sum of their `ms` is `settled.ms`.
    """
    emission = _Emission(problem, settled, laid_out(problem, settled), without)
    emission.run()
    graph = problem.graph
    inputs = {name: emission.buffers.of(name, problem.domains[name][0]) for name in graph.inputs}
    outputs = {name: emission.buffers.of(name, problem.domains[name][0]) for name in graph.outputs}
    return Program(tuple(emission.steps), emission.buffers.finished(), inputs, outputs)


@dataclass(slots=True)
class _Emission:
    """Steps while they are made."""

    problem: Problem
    settled: Settled
    buffers: Buffers
    without: Without | None
    steps: list[Step] = field(default_factory=list)
    readers: dict[tuple[str, Format], list[int]] = field(default_factory=dict)
    """The groups that read a tensor in a format, in order."""

    def run(self) -> None:
        moves = placed(self.problem, self.settled)
        copies: dict[int, list[Copy]] = {}
        for copy in self.settled.copies:
            copies.setdefault(copy.group, []).append(copy)
        pairs = list(zip(self.problem.groups, self.settled.candidates, strict=True))
        for i, (group, candidate) in enumerate(pairs):
            for key in set(zip(group.reads, candidate.reads, strict=True)):
                self.readers.setdefault(key, []).append(i)
        for i, (group, candidate) in enumerate(pairs):
            self.move(moves.get(i, ()))
            for copy in copies.get(i, ()):
                self.copy(copy, candidate)
            self.call(group, candidate)
        self.move(moves.get(len(self.problem.groups), ()))

    def move(self, wanted: Sequence[tuple[str, Format]]) -> None:
        for name, dst in wanted:
            src = self.settled.produced[name]
            if self.problem.is_alias(name, src, dst):
                continue
            alternative = None if self.without is None else Alternative(partial(self.without, name, src, dst))
            self.reorder(name, src, dst, self.buffers.of(name, dst), ", ".join(self.reasons(name, dst)), alternative)

    def reasons(self, name: str, number: Format) -> Iterator[str]:
        """Who reads a tensor in a format; of many the first ones."""
        readers = self.readers.get((name, number), ())
        for i in readers[:_MOST_REASONS]:
            yield f"{self.problem.groups[i].names[0][0]} reads {self.said(number)}"
        if len(readers) > _MOST_REASONS:
            yield f"and {len(readers) - _MOST_REASONS} more"
        if name in self.problem.graph.outputs and number == self.problem.domains[name][0]:
            yield f"{name} is answered in {self.said(number)}"

    def said(self, number: Format) -> str:
        return self.problem.formats.tag(number) or str(self.problem.formats[number])

    def copy(self, copy: Copy, candidate: Candidate) -> None:
        group = self.problem.groups[copy.group]
        whole = self.buffers.of(group.writes[0], candidate.writes[0])
        name, part = group.reads[copy.source], copy.part
        assert candidate.parts is not None
        place = self.buffers.add(name, part, f"{name}:in:{group.writes[0]}")
        self.buffers.put(place, whole, candidate.parts[copy.source])
        why = f"{group.names[0][0]} takes {self.said(part)} into its result"
        self.reorder(name, self.settled.produced[name], part, place, why, None)

    def reorder(
        self, name: str, src: Format, dst: Format, writes: str, why: str, alternative: Alternative | None
    ) -> None:
        formats, prices = self.problem.formats, self.problem.prices
        descs = {"src": formats[src], "dst": formats[dst]}
        step = Step(
            f"reorder:{writes}",
            "reorder",
            {"src": self.buffers.of(name, src)},
            {"dst": writes},
            Operation("reorder", "forward_inference", descs),
            impl="inlay",
            ms=prices.reorder(src, dst),
            nbytes=formats.size(src) + formats.size(dst),
            why=why,
            source=reorder_source(prices.costs, **descs),
            alternative=alternative,
        )
        self.steps.append(step)

    def call(self, group: Group, candidate: Candidate) -> None:
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
        """Buffers of what lies between the calls of a group."""
        found = {}
        for call in candidate.calls[:-1]:
            (name,) = group.ops[call.last].writes.values()
            (dst,), (desc,) = group.writes, candidate.writes
            found[name] = self.buffers.add(name, desc, name)
            self.buffers.put(found[name], self.buffers.of(dst, desc))
        return found

    def written(self, group: Group, candidate: Candidate, name: str) -> str:
        return self.buffers.of(name, candidate.writes[group.writes.index(name)])

    def operands(
        self, group: Group, candidate: Candidate, call: KernelCall, between: dict[str, str]
    ) -> tuple[dict[str, str], dict[str, Array]]:
        """What a call reads: buffers and constants, by argument."""
        op = group.ops[call.first]
        descs = dict(zip(reversed(group.reads), reversed(candidate.reads), strict=True))  # the first of equal names

        def read(name: str) -> str:
            return self.buffers.of(name, descs[name])

        reads = {a: between.get(name) or read(name) for a, name in op.reads.items()}
        constants = dict(op.constants)
        post_ops = call.operation.attributes.post_ops if call.operation is not None else ()
        for i, post_op in enumerate(post_ops):
            follower = group.ops[call.first + 1 + i]
            if "src_1" in follower.constants:
                constants[f"post_op_{i}_src_1"] = follower.constants["src_1"]
            elif "src_1" in follower.reads:
                argument = "sum" if isinstance(post_op, SumPostOp) else f"post_op_{i}_src_1"
                reads[argument] = read(follower.reads["src_1"])
        return reads, constants
