"""Candidates that no cheapest plan needs, because another one of the group is cheaper with all reorders around it.

In any plan, a candidate c may be exchanged for another one, c', if the tensors that c' reads are reordered to its
formats, and those that it writes to the formats that their readers have in that plan:

    cost of c'  +  for each tensor that c' reads in another format     the dearest reorder from a format produced
                +  for each tensor that it writes in another format    for each reader, the dearest increase of the
                                                                       reorder to a format that the reader may read
    <= cost of c

Then c is dominated: the least cost of a plan does not depend on it. If a convolution is twice as fast in bf16, and the
conversions around it take less than it saves, its candidates in f32 are dominated. So domains of several types have
few more states than those of one. Removed candidates make bounds of their neighbors tighter, so this is repeated.

Views and concatenations keep their candidates: they are of no cost, and store tensors in one another.
"""

from dataclasses import replace

from inlay.graph.background import yield_to_runs
from inlay.graph.planner.formats import Format
from inlay.graph.planner.groups import Candidate, Group
from inlay.graph.planner.problem import Problem

_MOST_ROUNDS = 4
_KEPT_KINDS = frozenset(("view", "concat"))


def remove_dominated(problem: Problem) -> Problem:
    """Return the problem without dominated candidates if its tensors may have several types; else the problem itself.

    Post-condition: the least cost of a plan, penalties included, is the same. That of plans with a restriction, such as
    those without one reorder, may be greater.
    """
    if not problem.graph.storage_types:
        return problem
    for _ in range(_MOST_ROUNDS):
        bounds = _ReorderBounds(problem)
        groups = tuple(_reduce(group, i, problem, bounds) for i, group in enumerate(problem.groups))
        if groups == problem.groups:
            break
        problem = replace(problem, groups=groups)
    return problem


def _reduce(group: Group, number: int, problem: Problem, bounds: "_ReorderBounds") -> Group:
    """Return a group without the candidates that are dominated."""
    if group.kind in _KEPT_KINDS or len(group.candidates) == 1:
        return group
    yield_to_runs()
    costs = {id(one): problem.cost(number, one) for one in group.candidates}
    kept: list[Candidate] = []
    # The cheapest first: only a cheaper candidate can dominate, and no comparison with a dominated one is needed.
    for one in sorted(group.candidates, key=lambda one: costs[id(one)]):
        if not any(costs[id(better)] + bounds.exchange(group, one, better) <= costs[id(one)] for better in kept):
            kept.append(one)
    if len(kept) == len(group.candidates):
        return group
    return replace(group, candidates=tuple(one for one in group.candidates if any(one is other for other in kept)))


class _ReorderBounds:
    """Bounds of the cost of reorders around a group, by the formats that its neighbors may have."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.produced: dict[str, frozenset[Format]] = {}
        self.wanted: dict[str, list[tuple[frozenset[Format], bool]]] = {name: [] for name in problem.domains}
        for name in problem.graph.inputs:
            self.produced[name] = frozenset(problem.domains[name][:1])
        for group in problem.groups:
            for slot, name in enumerate(group.writes):
                self.produced[name] = frozenset(one.writes[slot] for one in group.candidates)
            for slot, name in enumerate(group.reads):
                formats = frozenset(one.reads[slot] for one in group.candidates)
                self.wanted[name].append((formats, group.kind == "concat"))
        for name in problem.graph.outputs:
            self.wanted[name].append((frozenset(problem.domains[name][:1]), False))
        self._known: dict[tuple[str, Format, Format], float] = {}

    def exchange(self, group: Group, one: Candidate, other: Candidate) -> float:
        """Return the most that reorders can cost more if `other` replaces `one` in a plan."""
        read = zip(group.reads, one.reads, other.reads, strict=True)
        written = zip(group.writes, one.writes, other.writes, strict=True)
        total = sum(self._of_read(name, new) for name, old, new in read if old != new)
        return total + sum(self._of_written(name, old, new) for name, old, new in written if old != new)

    def _of_read(self, name: str, fmt: Format) -> float:
        """Return the dearest reorder of a tensor to a format."""
        return max(self.problem.reorder(produced, fmt) for produced in self.produced[name])

    def _of_written(self, name: str, old: Format, new: Format) -> float:
        """Return the most that reorders of a tensor to the formats of its readers cost more from another format."""
        key = name, old, new
        if key not in self._known:
            problem = self.problem
            self._known[key] = sum(
                max(
                    # A copy into the result of a concatenation replaces what was written there for nothing.
                    problem.cost_cache.reorder(new, fmt)
                    if is_copied
                    else max(problem.reorder(new, fmt) - problem.reorder(old, fmt), 0.0)
                    for fmt in formats
                )
                for formats, is_copied in self.wanted[name]
            )
        return self._known[key]
