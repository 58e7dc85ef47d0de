"""Candidates and reorders as factors: what states of tensors cost together.

A group that touches few states is one table over its tensors, the cheapest candidate settled in each entry; one with
more, a concatenation of many sources, is a variable over its candidates with a table beside each tensor. Both say the
same, and the sum over all factors is the cost of a plan.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inlay.graph.factors import Factor
from inlay.graph.groups import Candidate
from inlay.graph.planning.problem import Problem
from inlay.graph.planning.states import Spaces, States

MOST_ENTRIES = 1 << 13
"""States of the tensors of a group, multiplied, up to which it is one table."""
FREE, BARRED = 0.0, np.inf


@dataclass(frozen=True, slots=True)
class Sides:
    """A group, seen from its tensors."""

    variables: tuple[int, ...]
    """Its tensors, each once."""
    tables: tuple[NDArray[np.float64], ...]
    """By state of each tensor and candidate: what that costs."""
    costs: NDArray[np.float64]
    """By candidate: what its calls take."""


class Tables:
    """The factors of a problem."""

    def __init__(self, problem: Problem) -> None:
        """Make the states of every tensor and the tables of every group."""
        self.problem = problem
        self.names = tuple(problem.domains)
        self.numbers = {name: i for i, name in enumerate(self.names)}
        spaces = Spaces(problem)
        self.states = tuple(spaces.of(name) for name in self.names)
        self._slots: dict[object, NDArray[np.float64]] = {}
        self._joined: dict[object, NDArray[np.float64]] = {}
        self.sides = tuple(self._sides(i) for i in range(len(problem.groups)))

    def factors(self, allowed: Mapping[int, Sequence[int]] | None = None) -> tuple[list[int], list[Factor]]:
        """The numbers of states and the factors; `allowed` says candidates of groups, all of them where it does not.

        The first variables are the tensors, in the order of `names`.
        """
        allowed = allowed or {}
        sizes = [len(states.costs) for states in self.states]
        factors = [Factor((i,), states.costs) for i, states in enumerate(self.states)]
        for i, side in enumerate(self.sides):
            among = tuple(allowed.get(i, range(len(side.costs))))
            choices = tuple(v for v in side.variables if sizes[v] > 1)
            if math.prod(sizes[v] for v in choices) <= MOST_ENTRIES:
                factors.append(Factor(choices, self._table(side, choices, among)))
                continue
            choice = len(sizes)
            sizes.append(len(among))
            factors.append(Factor((choice,), side.costs[list(among)]))
            for variable, table in zip(side.variables, side.tables, strict=True):
                factors.append(Factor((variable, choice), table[:, among]))
        return sizes, factors

    def choices(self, assignment: Sequence[int], allowed: Mapping[int, Sequence[int]] | None = None) -> tuple[int, ...]:
        """The cheapest candidate of each group where tensors are in these states."""
        found = []
        for i, side in enumerate(self.sides):
            costs = side.costs + sum(t[assignment[v]] for v, t in zip(side.variables, side.tables, strict=True))
            among = (allowed or {}).get(i)
            if among is not None:
                barred = np.full(len(costs), BARRED)
                barred[list(among)] = FREE
                costs = costs + barred
            found.append(int(np.argmin(costs)))
        return tuple(found)

    def _sides(self, number: int) -> Sides:
        """The tables of a group."""
        group = self.problem.groups[number]
        found: dict[int, NDArray[np.float64]] = {}
        for slot, name in enumerate((*group.reads, *group.writes)):
            variable = self.numbers[name]
            table = self._slot(number, slot, name)
            found[variable] = found[variable] + table if variable in found else table
        return Sides(tuple(found), tuple(found.values()), np.array([one.ms for one in group.candidates]))

    def _slot(self, number: int, slot: int, name: str) -> NDArray[np.float64]:
        """By state of a tensor and candidate: whether they fit, or what a copy costs."""
        group, states = self.problem.groups[number], self.states[self.numbers[name]]
        candidates, domain = group.candidates, self.problem.domains[name]
        if any(one.parts is not None for one in candidates) and slot < len(group.reads):
            return self._sources(number, slot, states, candidates)
        writes = slot >= len(group.reads)
        numbers = tuple(domain.index((*one.reads, *one.writes)[slot]) for one in candidates)
        key = (id(states), numbers, writes)
        if key not in self._slots:
            wanted = np.array(numbers)
            if writes:
                fits = states.produced[:, None] == wanted
            else:
                fits = (states.kept[:, None] >> wanted & 1).astype(bool)
            self._slots[key] = np.where(fits, FREE, BARRED)
        return self._slots[key]

    def _sources(self, number: int, slot: int, states: States, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """Of a source of a concatenation: it lies in the result, is copied there, or is read by the primitive."""
        problem, name = self.problem, self.problem.groups[number].reads[slot]
        domain = problem.domains[name]
        movable = (problem.homes.get(name) == (number, slot), problem.may_move(name))
        key = (id(states), tuple((one.reads[slot], one.parts is None) for one in candidates), movable)
        if key in self._slots:
            return self._slots[key]
        table = np.full((len(states.costs), len(candidates)), BARRED)
        for c, one in enumerate(candidates):
            read = one.reads[slot]
            for f in np.unique(states.produced):
                rows = states.produced == f
                if one.parts is not None and not problem.lies(number, slot, read, domain[f]):
                    table[rows, c] = problem.prices.reorder(domain[f], read)
                else:
                    table[rows & (states.kept >> domain.index(read) & 1).astype(bool), c] = FREE
        self._slots[key] = table
        return table

    def _table(self, side: Sides, choices: tuple[int, ...], among: tuple[int, ...]) -> NDArray[np.float64]:
        """The cheapest of these candidates for each states of the tensors in `choices`; the others have one state."""
        key = (tuple(map(id, side.tables)), tuple(side.costs), among)
        if key not in self._joined:
            total: NDArray[np.float64] = side.costs[list(among)]
            for variable, table in zip(side.variables, side.tables, strict=True):
                # Candidates stay the last axis; there are no axes for the many tensors of one state.
                total = (total[..., None, :] if variable in choices else total) + (
                    table[:, among] if variable in choices else table[0, among]
                )
            self._joined[key] = total.min(axis=-1)
        return self._joined[key]
