"""What a tensor can be: produced in a format, kept in a set of formats, each reorder between paid once.

    domain {nchw, nhwc}, one reader    (nchw, {nchw}) 0    (nchw, {nchw, nhwc}) reorder    (nhwc, {nhwc}) 0    ...

Sets are bits. A tensor need not be kept in more formats than it has readers, nor in one that no candidate reads; what a
run answers is kept in the plain one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from inlay.graph.planning.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """The states of one tensor."""

    produced: NDArray[np.intp]
    """Of each state, the format produced, as a number of the domain."""
    kept: NDArray[np.intp]
    """Of each state, the formats kept, bit by bit; the one produced among them."""
    moves: NDArray[np.intp]
    """Of each state, how many reorders that takes."""
    costs: NDArray[np.float64]
    """Of each state, what these take."""


def _slots_of(names: Sequence[str]) -> dict[str, list[int]]:
    """By name, the places at which it stands."""
    found: dict[str, list[int]] = {}
    for slot, name in enumerate(names):
        found.setdefault(name, []).append(slot)
    return found


class Spaces:
    """The states of tensors, made once for tensors that are alike."""

    def __init__(self, problem: Problem) -> None:
        """Of the tensors of `problem`."""
        self.problem = problem
        self._known: dict[object, States] = {}
        self._slots = [_slots_of(group.reads) for group in problem.groups]

    def of(self, name: str) -> States:
        """The states of a tensor."""
        problem = self.problem
        domain = problem.domains[name]
        producer = problem.producers[name]
        answered = name in problem.graph.outputs
        if producer < 0:
            written = {0}
        else:
            slot = problem.groups[producer].writes.index(name)
            written = {domain.index(one.writes[slot]) for one in problem.groups[producer].candidates}
        readers = problem.readers[name]
        read = {0} if answered else set()
        for reader in set(readers):
            for one in problem.groups[reader].candidates:
                numbers = (one.reads[slot] for slot in self._slots[reader][name])
                read.update(domain.index(number) for number in numbers if number in domain)
        most = len(readers) + answered
        key = (domain, frozenset(written), frozenset(read), most, answered, name in problem.homes)
        if key not in self._known:
            rows = self._rows(name, sorted(written), read, most)
            produced, kept, moves, prices = zip(*(row for row in rows if row[1] & 1 or not answered), strict=True)
            self._known[key] = States(np.array(produced), np.array(kept), np.array(moves), np.array(prices, float))
        return self._known[key]

    def _rows(
        self, name: str, written: Iterable[int], read: set[int], most: int
    ) -> Iterator[tuple[int, int, int, float]]:
        """Format produced, formats kept, number of reorders, price."""
        domain, problem = self.problem.domains[name], self.problem
        for produced in written:
            others = sorted(read - {produced})
            costs = {other: problem.reorder(name, domain[produced], domain[other]) for other in others}
            free = {other for other in others if problem.is_alias(name, domain[produced], domain[other])}
            for count in range(min(most, len(others)) + 1):
                for extra in combinations(others, count):
                    bits = 1 << produced | sum(1 << other for other in extra)
                    yield produced, bits, len(set(extra) - free), sum(costs[other] for other in extra)
