"""What other ways to choose would take, from the same candidates at the same prices.

plain            everything dense and row-major
greedy           the specification's propagation: the engine's answer to any where it may choose, else what arrives
channels last    one format wherever tensors may have it; what a run is given may be read as it is
blocked by 16    likewise
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from inlay.graph.formats import Format, blocked, channels_last
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
        given = problem.graph.inputs if wanted else ()
        reading = [c for c, one in enumerate(candidates) if _agrees(problem, group.reads, one.reads, wanted, given)]
        is_view = group.kind == "view"
        both = [c for c in reading if is_view or _agrees(problem, group.writes, candidates[c].writes, wanted)]
        found[i] = both or reading or range(len(candidates))
    return found


def _agrees(
    problem: Problem,
    names: Sequence[str],
    formats: Sequence[Format],
    wanted: Mapping[str, Format],
    free: Sequence[str] = (),
) -> bool:
    """Whether tensors have the formats of `wanted`, or the plain one; those of `free` may have any."""
    pairs = zip(names, formats, strict=True)
    return all(number == wanted.get(name, problem.domains[name][0]) or name in free for name, number in pairs)
