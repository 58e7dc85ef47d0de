"""The greedy plan: formats as oneDNN's specification propagates them, one group after the other."""

from collections.abc import Mapping, Sequence

from inlay.graph.formats import Format
from inlay.graph.groups import Candidate, Group
from inlay.graph.planning.problem import Problem
from inlay.primitives.signatures import RECURRENT, WEIGHTED


def greedy_choices(problem: Problem, allowed: Mapping[int, Sequence[int]] | None = None) -> tuple[int, ...]:
    """The candidates that propagation takes, one group after the other; `allowed` says which, where groups are named.

    The engine's own formats where it may choose, else the format in which the first source arrives; the cheapest of
    these, reorders included.
    """
    produced: dict[str, Format] = {name: problem.domains[name][0] for name in problem.graph.inputs}
    found = []
    for i, group in enumerate(problem.groups):
        candidates = group.candidates
        wanted = _propagated(problem, group, produced)
        among = (allowed or {}).get(i, range(len(candidates)))
        fitting = [c for c in among if _agrees(group, candidates[c], wanted)] or among
        choice = min(fitting, key=lambda c: _price(problem, i, candidates[c], produced))
        found.append(choice)
        produced.update(zip(group.writes, candidates[choice].writes, strict=True))
    return tuple(found)


def _propagated(problem: Problem, group: Group, produced: Mapping[str, Format]) -> Mapping[str, Format]:
    """The formats that propagation asks for, by tensor."""
    if group.kind in WEIGHTED or group.kind in RECURRENT:
        natural = problem.prices.natural(group.head, problem.graph.tensors)
        sources = {name: natural[a] for a, name in group.head.reads.items() if a in natural}
        results = dict(zip(group.writes, (natural[a] for a in group.head.writes if a in natural), strict=False))
        return {**sources, **results}
    return {group.reads[0]: produced[group.reads[0]]} if group.reads else {}


def _agrees(group: Group, one: Candidate, wanted: Mapping[str, Format]) -> bool:
    pairs = (*zip(group.reads, one.reads, strict=True), *zip(group.writes, one.writes, strict=True))
    return all(number == wanted.get(name, number) for name, number in pairs)


def _price(problem: Problem, i: int, one: Candidate, produced: Mapping[str, Format]) -> float:
    """What a candidate takes, with the reorders that it alone would need."""
    total = one.ms
    for source, (name, read) in enumerate(zip(problem.groups[i].reads, one.reads, strict=True)):
        if one.parts is not None and not problem.lies(i, source, read, produced[name]):
            total += problem.prices.reorder(produced[name], read)
        else:
            total += problem.reorder(name, produced[name], read)
    return total
