"""The plan that costs least, the proof of it, and what it would cost without one of its reorders.

The minimum is exact (`elimination`). Among plans within `NEAR` of it one with fewer reorders is taken: prices are
measured, and what differs by less than they do is decided by what is simpler. Such plans are found by charging more and
more for each reorder.

All searches for one plan together take at most `MOST_SECONDS`. Where half of that finds no plan, the greedy plan is
taken, and the bound is one that is always known: the sum of the least entries of all tables.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.graph.elimination import minimum
from inlay.graph.factors import Factor, Reduced, Solution, check, reduced
from inlay.graph.formats import Format
from inlay.graph.marginals import min_marginals
from inlay.graph.planning.greedy import greedy_choices
from inlay.graph.planning.problem import Problem
from inlay.graph.planning.settled import Settled, settle
from inlay.graph.planning.tables import Tables

NEAR = 0.02
"""What fewer reorders may cost, of the whole."""
MOST_TRIALS = 5
"""Charges that are tried, each twice the one before."""
MOST_SECONDS = 10.0
"""Seconds that all searches for one plan may take together."""
ELIMINATION, GREEDY = "elimination", "greedy"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plan, and what is proven about it."""

    settled: Settled
    """The plan."""
    bound: float
    """No plan takes less, in ms. After elimination, `settled.ms` exceeds it only by what fewer reorders may cost."""
    width: int
    """Of the elimination; 0 where no search ended in time."""
    method: str
    """`elimination`; `milp` where the solver found the plan; `greedy` where neither found a better one in time."""


class Choosing:
    """Solves one problem as often as is asked, in a limited time."""

    def __init__(self, problem: Problem, seconds: float = MOST_SECONDS) -> None:
        """Make the tables of `problem`; all searches together take `seconds`.

        Raises:
            InvalidArguments: every plan has a price of infinity.
        """
        self.problem, self.tables = problem, Tables(problem)
        self._sizes, self._factors = self.tables.factors()
        check(self._sizes, self._factors)
        self._reduced = reduced(self._sizes, self._factors)
        self._left = seconds

    def best(self) -> Chosen:
        """The cheapest plan; near-ties go to fewer reorders. Where the time is too short for it, the greedy plan.

        Raises:
            InvalidArguments: every plan has a price of infinity.
        """
        solution = self._search(self._reduced, self._factors, self._left / 2)
        chosen = self._chosen(solution)
        if chosen.method == GREEDY:
            return chosen
        found = least = chosen.settled
        charge = NEAR * least.ms / max(least.reorders, 1)
        for _ in range(MOST_TRIALS if least.reorders else 0):
            fewer = self._charged(charge)
            if fewer is None or fewer.ms > least.ms * (1 + NEAR):
                break
            found = min(found, fewer, key=lambda one: (one.reorders, one.ms))
            charge *= 2
        return replace(chosen, settled=found, bound=min(chosen.bound, found.ms))

    def _chosen(self, solution: Solution | None) -> Chosen:
        """What a search found; unless that is the least, the greedy plan if it takes less."""
        if solution is not None and solution.method == ELIMINATION:
            return Chosen(self._settled(solution), solution.bound, solution.width, solution.method)
        greedy = settle(self.problem, greedy_choices(self.problem))
        if solution is None:
            return Chosen(greedy, min(self._reduced.lower_bound, greedy.ms), 0, GREEDY)
        found = self._settled(solution)
        if found.ms <= greedy.ms:
            return Chosen(found, solution.bound, solution.width, solution.method)
        return Chosen(greedy, min(solution.bound, greedy.ms), solution.width, GREEDY)

    def _settled(self, solution: Solution) -> Settled:
        return settle(self.problem, self.tables.choices(solution.assignment))

    def _search(self, problem: Reduced, factors: Sequence[Factor], seconds: float) -> Solution | None:
        """The least of a problem; None where it was not found in `seconds`, which count.

        Raises:
            InvalidArguments: every assignment costs infinity.
        """
        if seconds <= 0:
            return None
        started = time.monotonic()
        try:
            return minimum(problem, factors, seconds=seconds)
        except (MissingExtra, Unimplemented):
            return None
        finally:
            self._left -= time.monotonic() - started

    def _charged(self, charge: float) -> Settled | None:
        """The cheapest plan if each reorder took `charge` more; None where it was not found in time."""
        costs = {i: np.asarray(states.moves * charge, dtype=np.float64) for i, states in enumerate(self.tables.states)}
        extra = [Factor((i,), table) for i, table in costs.items()]
        solution = self._search(self._reduced.with_costs(costs), [*self._factors, *extra], self._left)
        return None if solution is None else self._settled(solution)

    def among(self, allowed: Mapping[int, Sequence[int]]) -> Settled | None:
        """The cheapest plan of these candidates, where groups are named; None where there is none.

        Where it is not found in time, the greedy one of them.
        """
        sizes, factors = self.tables.factors(allowed)
        try:
            solution = self._search(reduced(sizes, factors), factors, self._left)
        except InvalidArguments:  # nothing is allowed
            return None
        if solution is None:
            return settle(self.problem, greedy_choices(self.problem, allowed))
        return settle(self.problem, self.tables.choices(solution.assignment, allowed))

    def without(self, name: str, src: Format, dst: Format) -> float | None:
        """What the cheapest plan takes that does not reorder a tensor from `src` to `dst`; None where there is none.

        The first call takes about as long as two searches, the others no time.

        Raises:
            Unimplemented: the plan was not found by elimination.
        """
        number = self.tables.numbers[name]
        states, domain = self.tables.states[number], self.problem.domains[name]
        barred = (states.produced == domain.index(src)) & (states.kept >> domain.index(dst) & 1).astype(bool)
        least = float(np.min(self._marginals[number], where=~barred, initial=np.inf))
        return least if np.isfinite(least) else None

    @cached_property
    def _marginals(self) -> list[NDArray[np.float64]]:
        return min_marginals(self._sizes, self._factors)
