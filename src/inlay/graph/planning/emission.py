"""From what was chosen to a `Program`: steps in order, each with its buffers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from inlay.graph.costs import reorder_source
from inlay.graph.formats import Format
from inlay.graph.groups import Candidate, Group, KernelCall
from inlay.graph.op import Array
from inlay.graph.planning.buffers import Buffers, laid_out
from inlay.graph.planning.placing import placed
from inlay.graph.planning.problem import Problem
from inlay.graph.planning.settled import Copy, Settled
from inlay.graph.program import Alternative, Program, Step
from inlay.primitives.attributes import Sum
from inlay.primitives.operation import Operation

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

    def move(self, wanted: "list[tuple[str, Format]] | tuple[()]") -> None:
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
                argument = "sum" if isinstance(post_op, Sum) else f"post_op_{i}_src_1"
                reads[argument] = read(follower.reads["src_1"])
        return reads, constants
