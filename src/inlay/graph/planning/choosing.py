"""The plan that costs least, the proof of it, and what it would cost without one of its reorders.

The minimum is exact (`elimination`). Among plans within `NEAR` of it one with fewer reorders is taken: prices are
measured, and what differs by less than they do is decided by what is simpler. Such plans are found by charging more and
more for each reorder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.elimination import minimum
from inlay.graph.factors import Factor, Solution
from inlay.graph.planning.problem import Problem
from inlay.graph.planning.settled import Settled, settle
from inlay.graph.planning.tables import Tables

NEAR = 0.02
"""What fewer reorders may cost, of the whole."""
MOST_TRIALS = 5
"""Charges that are tried, each twice the one before."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plan, and what is proven about it."""

    settled: Settled
    """The plan."""
    bound: float
    """No plan takes less, in ms; `settled.ms` exceeds it only by what fewer reorders may cost."""
    width: int
    """Of the elimination."""
    method: str
    """`elimination` or `milp`."""


class Choosing:
    """Solves one problem as often as is asked."""

    def __init__(self, problem: Problem) -> None:
        """Make the tables of `problem`."""
        self.problem, self.tables = problem, Tables(problem)
        self._sizes, self._factors = self.tables.factors()

    def best(self) -> Chosen:
        """The cheapest plan; near-ties go to fewer reorders.

        Raises:
            InvalidArguments: every plan has a price of infinity.
        """
        solution = minimum(self._sizes, self._factors)
        found = least = settle(self.problem, self.tables.choices(solution.assignment))
        charge = NEAR * least.ms / max(least.reorders, 1)
        for _ in range(MOST_TRIALS if least.reorders else 0):
            fewer = self._charged(charge)
            if fewer.ms > least.ms * (1 + NEAR):
                break
            found = min(found, fewer, key=lambda one: (one.reorders, one.ms))
            charge *= 2
        return Chosen(found, min(solution.bound, found.ms), solution.width, solution.method)

    def _charged(self, charge: float) -> Settled:
        """The cheapest plan if each reorder took `charge` more."""
        extra = [
            Factor((i,), np.asarray(states.moves * charge, dtype=np.float64))
            for i, states in enumerate(self.tables.states)
        ]
        solution = minimum(self._sizes, [*self._factors, *extra])
        return settle(self.problem, self.tables.choices(solution.assignment))

    def among(self, allowed: Mapping[int, Sequence[int]]) -> Settled | None:
        """The cheapest plan of these candidates, where groups are named; None where there is none."""
        solution = _solved(*self.tables.factors(allowed))
        return None if solution is None else settle(self.problem, self.tables.choices(solution.assignment, allowed))

    def without(self, name: str, src: MemoryDesc, dst: MemoryDesc) -> float | None:
        """What the cheapest plan takes that does not reorder a tensor from `src` to `dst`; None where there is none."""
        number = self.tables.numbers[name]
        states, domain = self.tables.states[number], self.problem.domains[name]
        place = {id(desc): i for i, desc in enumerate(domain)}
        barred = (states.produced == place[id(src)]) & (states.kept >> place[id(dst)] & 1).astype(bool)
        solution = _solved(self._sizes, [*self._factors, Factor((number,), np.where(barred, np.inf, 0.0))])
        return None if solution is None else solution.cost


def _solved(sizes: Sequence[int], factors: Sequence[Factor]) -> Solution | None:
    try:
        return minimum(sizes, factors)
    except InvalidArguments:  # nothing is allowed
        return None
