"""The problem that planning is: variables with finitely many states, and costs of the states of a few at a time.

    minimize over one state for each variable    the sum over factors of table[states of its variables]

A state or a pair of them that is not allowed costs `inf`. Nothing here knows of formats.

>>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
>>> total(factors, (0, 0)), total(factors, (0, 1))
(1.0, inf)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    touching: list[list[Factor]] = [[] for _ in sizes]
    for factor in factors:
        for v in factor.variables:
            touching[v].append(factor)
    waiting = list(factors)
    while waiting:
        factor = waiting.pop()
        fits = np.isfinite(factor.table)
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


def narrowed(factors: Sequence[Factor], states: Sequence[NDArray[np.intp]]) -> list[Factor]:
    """The factors on these states of each variable only, numbered anew."""
    return [Factor(f.variables, f.table[np.ix_(*(states[v] for v in f.variables))]) for f in factors]
