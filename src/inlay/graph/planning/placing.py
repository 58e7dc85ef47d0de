"""When each reorder runs: right before its first reader, or as soon as nobody else needs what it reads.

Until the reorder the source takes memory, after it the destination. So it is late if the source is the smaller of both
or is needed anyway, and early if the destination is.
"""

from collections.abc import Mapping

from inlay.graph.formats import Format
from inlay.graph.planning.problem import Problem
from inlay.graph.planning.settled import Settled


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
