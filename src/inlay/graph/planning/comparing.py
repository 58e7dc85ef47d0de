"""What other ways to choose would take, from the same candidates at the same prices.

plain            everything dense and row-major
greedy           the specification's propagation: the engine's answer to any where it may choose, else what arrives
channels last    one format wherever tensors may have it; what a run is given may be read as it is
blocked by 16    likewise
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from inlay.graph.formats import Format, blocked, channels_last
from inlay.graph.groups import Candidate, Group
from inlay.graph.planning.choosing import Choosing
from inlay.graph.planning.greedy import greedy_choices
from inlay.graph.planning.problem import Problem
from inlay.graph.planning.settled import Settled, settle

UNIFORM: Mapping[str, Callable[[int], str | None]] = {
    "channels last": channels_last,
    **{f"blocked by {block}": partial(blocked, block=block) for block in (4, 8, 16)},
}
"""Formats by name, each as a tag by number of axes."""


def compared(choosing: Choosing) -> dict[str, Settled]:
    """The other plans by name; a uniform one only where tensors may have its format."""
    problem = choosing.problem
    plain = choosing.among(_allowed(problem, {}))
    found = {} if plain is None else {"plain": plain}
    found["greedy"] = settle(problem, greedy_choices(problem))
    for name, tag in UNIFORM.items():
        wanted = _uniform(problem, tag)
        settled = choosing.among(_allowed(problem, wanted)) if wanted else None
        if settled is not None:
            found[name] = settled
    return found


def _uniform(problem: Problem, tag: Callable[[int], str | None]) -> dict[str, Format]:
    """The tensors that may have a format other than plain by this tag, and that format."""
    found: dict[str, Format] = {}
    for name, domain in problem.domains.items():
        for number in domain[1:]:
            if problem.formats.tag(number) == tag(problem.formats[number].ndims):
                found[name] = number
    return found


def _allowed(problem: Problem, wanted: Mapping[str, Format]) -> dict[int, Sequence[int]]:
    """The candidates of each group that have the formats of `wanted`, and plain ones elsewhere.

    Where there is none, those that read so; where there is none of them either, all.
    """
    found: dict[int, Sequence[int]] = {}
    for i, group in enumerate(problem.groups):
        candidates = group.candidates
        reading = [c for c, one in enumerate(candidates) if _reads_so(problem, group, one, wanted)]
        both = [c for c in reading if group.kind == "view" or _writes_so(problem, group, candidates[c], wanted)]
        found[i] = both or reading or range(len(candidates))
    return found


def _reads_so(problem: Problem, group: Group, one: Candidate, wanted: Mapping[str, Format]) -> bool:
    return all(
        read == wanted.get(name, problem.domains[name][0]) or (bool(wanted) and name in problem.graph.inputs)
        for name, read in zip(group.reads, one.reads, strict=True)
    )


def _writes_so(problem: Problem, group: Group, one: Candidate, wanted: Mapping[str, Format]) -> bool:
    return all(
        written == wanted.get(name, problem.domains[name][0])
        for name, written in zip(group.writes, one.writes, strict=True)
    )
