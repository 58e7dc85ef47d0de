"""The problem that planning is: variables with finitely many states, and costs of the states of a few at a time.

    minimize over one state for each variable    the sum over factors of table[states of its variables]

A state or a pair of them that is not allowed costs `inf`. Nothing here knows of formats.

>>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
>>> total(factors, (0, 0)), total(factors, (0, 1))
(1.0, inf)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from inlay.errors import InvalidArguments


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """What the states of some variables cost together."""

    variables: tuple[int, ...]
    """Numbers of the variables, each once, one for each axis of the table."""
    table: NDArray[np.float64]
    """The cost by the states of `variables`; `inf` where they are not allowed together."""


@dataclass(frozen=True, slots=True)
class Solution:
    """One state for each variable, and what is proven about it."""

    assignment: tuple[int, ...]
    """The state of each variable."""
    cost: float
    """The sum of all factors there."""
    bound: float
    """No assignment costs less; equal to `cost` where that is the minimum."""
    width: int
    """The most variables that stood beside one that was eliminated, or would have."""
    method: str
    """How it was found: `elimination` or `milp`."""


def total(factors: Sequence[Factor], assignment: Sequence[int]) -> float:
    """The sum of all factors at `assignment`, rounded once."""
    return math.fsum(float(f.table[tuple(assignment[v] for v in f.variables)]) for f in factors)


def check(sizes: Sequence[int], factors: Sequence[Factor]) -> None:
    """See that the factors are of these variables.

    Raises:
        InvalidArguments: a variable has no state, a factor names a variable twice or one that there is not, its table
            has other extents than its variables have states, or holds a cost that is not a number or minus infinity.
    """
    for variable, size in enumerate(sizes):
        if size < 1:
            raise InvalidArguments(f"variable {variable} has {size} states: each needs at least one")
    for number, factor in enumerate(factors):
        _check_factor(number, factor, sizes)


def _check_factor(number: int, factor: Factor, sizes: Sequence[int]) -> None:
    variables = factor.variables
    if len(set(variables)) != len(variables) or not all(0 <= v < len(sizes) for v in variables):
        raise InvalidArguments(f"factor {number} has variables {variables}: name each once, from 0 to {len(sizes) - 1}")
    wanted = tuple(sizes[v] for v in variables)
    if factor.table.shape != wanted:
        raise InvalidArguments(
            f"factor {number} has a table of {factor.table.shape}, its variables have {wanted} states"
        )
    if not np.all(factor.table > -np.inf):  # false for what is not a number, too
        raise InvalidArguments(
            f"factor {number} holds a cost that is not a number or minus infinity: give numbers or inf"
        )


def allowed(sizes: Sequence[int], factors: Sequence[Factor]) -> list[NDArray[np.intp]]:
    """The states of each variable that no single factor rules out, as far as that follows step by step.

    Post-condition: every assignment of finite cost lies within.

    Raises:
        InvalidArguments: a variable is left without a state, or a factor of no variables is `inf`, so every assignment
            costs that.
    """
    if any(not f.variables and math.isinf(float(f.table)) for f in factors):
        raise InvalidArguments("every assignment costs infinity: a factor of no variables does")
    alive = [np.ones(size, dtype=bool) for size in sizes]
    finite = _finite_entries(factors)
    touching: list[list[Factor]] = [[] for _ in sizes]
    for factor in factors:
        if finite[id(factor.table)] is not None:  # one without infinities rules nothing out
            for v in factor.variables:
                touching[v].append(factor)
    waiting = [factor for factor in factors if finite[id(factor.table)] is not None]
    while waiting:
        factor = waiting.pop()
        fits = np.array(finite[id(factor.table)])
        for axis, v in enumerate(factor.variables):
            fits &= alive[v].reshape([-1 if i == axis else 1 for i in range(fits.ndim)])
        for axis, v in enumerate(factor.variables):
            left = alive[v] & fits.any(axis=tuple(i for i in range(fits.ndim) if i != axis))
            if left.sum() < alive[v].sum():
                alive[v] = left
                waiting.extend(touching[v])
    for v, left in enumerate(alive):
        if not left.any():
            raise InvalidArguments(f"every assignment costs infinity: the factors leave variable {v} no state")
    return [np.flatnonzero(left) for left in alive]


def _finite_entries(factors: Sequence[Factor]) -> dict[int, NDArray[np.bool_] | None]:
    """By identity of a table, which of its entries are finite; None where all are. Equal groups share their tables."""
    found: dict[int, NDArray[np.bool_] | None] = {}
    for factor in factors:
        if id(factor.table) not in found:
            finite = np.isfinite(factor.table)
            found[id(factor.table)] = None if finite.all() else finite
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A problem without the states that cannot be chosen and without the variables that have no choice."""

    variables: tuple[int, ...]
    """The variables of several states, by their numbers in the original problem."""
    states: tuple[NDArray[np.intp], ...]
    """The states left of each variable of the original problem."""
    factors: tuple[Factor, ...]
    """Factors of the variables that are left, numbered by their place in `variables`."""
    constant: float
    """The sum of the factors that no choice is left for."""

    @property
    def sizes(self) -> list[int]:
        """The number of states of each variable that is left."""
        return [len(self.states[v]) for v in self.variables]

    @property
    def lower_bound(self) -> float:
        """The sum of the least entries of all factors: no assignment costs less."""
        return math.fsum((self.constant, *(float(factor.table.min()) for factor in self.factors)))

    def with_costs(self, costs: Mapping[int, NDArray[np.float64]]) -> "Reduced":
        """The same problem with more costs of single variables, finite ones, by original number and state."""
        factors, constant = list(self.factors), self.constant
        places = {v: place for place, v in enumerate(self.variables)}
        for v, more in costs.items():
            left = more[self.states[v]]
            if v in places:
                factors.append(Factor((places[v],), left))
            else:
                constant += float(left[0])
        return replace(self, factors=tuple(factors), constant=constant)

    def assignment(self, chosen: Sequence[int]) -> tuple[int, ...]:
        """The states of all variables of the original problem where those that are left have the states `chosen`."""
        found = [int(kept[0]) for kept in self.states]
        for v, state in zip(self.variables, chosen, strict=True):
            found[v] = int(self.states[v][state])
        return tuple(found)


def reduced(sizes: Sequence[int], factors: Sequence[Factor]) -> Reduced:
    """The problem of the choices that are left, see `allowed`.

    Raises:
        InvalidArguments: as `allowed`.

    >>> problem = reduced((2, 1), [Factor((0,), np.array([np.inf, 3.0])), Factor((0, 1), np.array([[5.0], [2.0]]))])
    >>> problem.variables, problem.constant, problem.assignment(())
    ((), 5.0, (1, 0))
    """
    states = allowed(sizes, factors)
    variables = tuple(v for v, kept in enumerate(states) if len(kept) > 1)
    places = {v: place for place, v in enumerate(variables)}
    left, constants = [], []
    for factor in factors:
        if any(len(states[v]) < sizes[v] or v not in places for v in factor.variables):
            table = factor.table[np.ix_(*(states[v] for v in factor.variables))]
        else:
            table = factor.table
        scope = tuple(places[v] for v in factor.variables if v in places)
        if scope:
            left.append(Factor(scope, table.reshape([len(states[variables[place]]) for place in scope])))
        else:
            constants.append(float(table.reshape(-1)[0]))
    return Reduced(variables, tuple(states), tuple(left), math.fsum(constants))
