"""The exact minimum of a sum of costs: one variable after the other is minimized out, along the graph.

To eliminate a variable, add all factors that it is in, and keep for each states of the others the best of its own: the
variable is gone, and its neighbors have one factor more. The work is the product of states of the largest such table,
so the order matters: next is the variable whose neighbors lack the fewest edges among each other (min-fill). Networks
are nearly chains; their width, the most neighbors met, is 2 or 3.

    minimum((2, 2), [Factor((0,), [1, 0]), Factor((0, 1), [[0, inf], [5, 2]])])   ->  states (0, 0), cost 1, bound 1

Where a table would grow over a limit, a solver takes over, see `milp`.

Source: Bertele and Brioschi, "Nonserial Dynamic Programming" (1972); Dechter, "Bucket elimination" (1999).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from inlay.errors import InvalidArguments
from inlay.graph.factors import Factor, Solution, allowed, check, narrowed, total
from inlay.graph.milp import solved

MOST_STATES = 1 << 22
"""Entries of the largest table that elimination may make."""
MOST_SECONDS = 30.0
"""What the solver may take where elimination would not end."""


def minimum(
    sizes: Sequence[int], factors: Sequence[Factor], *, most_states: int = MOST_STATES, seconds: float = MOST_SECONDS
) -> Solution:
    """The states that cost least, with the proof.

    `sizes` are the numbers of states of the variables. Where tables of at most `most_states` entries do, the minimum is
    exact; else a solver searches for at most `seconds` and gives the bound that it proved.

    Post-condition: `bound <= cost`, and no assignment costs less than `bound`; they are equal after elimination.

    Raises:
        InvalidArguments: the factors do not fit the sizes, or every assignment costs infinity.
        MissingExtra: the solver is needed, and SciPy is not installed.
        Unimplemented: the solver found no assignment in time.

    >>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
    >>> minimum((2, 2), factors)
    Solution(assignment=(0, 0), cost=1.0, bound=1.0, width=1, method='elimination')
    """
    check(sizes, factors)
    states = allowed(sizes, factors)
    small = [len(kept) for kept in states]
    fewer = narrowed(factors, states)
    order, width, largest = elimination_order(small, [f.variables for f in fewer])
    if largest > most_states:
        chosen, bound = solved(small, fewer, seconds=seconds)
        method = "milp"
    else:
        chosen, bound, method = _eliminated(small, fewer, order), None, "elimination"
    assignment = tuple(int(kept[state]) for kept, state in zip(states, chosen, strict=True))
    cost = total(factors, assignment)
    return Solution(assignment, cost, cost if bound is None else min(bound, cost), width, method)


def elimination_order(sizes: Sequence[int], scopes: Sequence[tuple[int, ...]]) -> tuple[list[int], int, int]:
    """Variables in the order of least fill, the width of that order, and the entries of its largest table.

    Ties go to the smaller table, then to the lower number.
    """
    neighbors: list[set[int]] = [set() for _ in sizes]
    for scope in scopes:
        for v in scope:
            neighbors[v].update(scope)
            neighbors[v].discard(v)
    prices = {v: _price(v, neighbors, sizes) for v in range(len(sizes))}
    order, width, largest = [], 0, 1
    while prices:
        v = min(prices, key=lambda u: (prices[u], u))
        order.append(v)
        width, largest = max(width, len(neighbors[v])), max(largest, prices.pop(v)[1])
        around = neighbors[v]
        for u in around:
            neighbors[u] |= around
            neighbors[u] -= {u, v}
        stale = around.union(*(neighbors[u] for u in around)) if around else set()
        for u in stale:
            prices[u] = _price(u, neighbors, sizes)
    return order, width, largest


def _price(v: int, neighbors: Sequence[set[int]], sizes: Sequence[int]) -> tuple[int, int]:
    """Edges that eliminating `v` would add, and the entries of the table it would take."""
    around, entries = neighbors[v], sizes[v]
    lacking = 0
    for u in around:
        entries *= sizes[u]
        lacking += len(around) - 1 - len(neighbors[u] & around)
    return lacking // 2, entries


def _eliminated(sizes: Sequence[int], factors: Sequence[Factor], order: Sequence[int]) -> list[int]:
    """The best state of each variable.

    Raises:
        InvalidArguments: every assignment costs infinity.
    """
    buckets: list[list[Factor]] = [[] for _ in sizes]
    rank = {v: i for i, v in enumerate(order)}
    for factor in factors:
        if factor.variables:
            buckets[min(factor.variables, key=rank.__getitem__)].append(factor)
    answers: list[tuple[tuple[int, ...], NDArray[np.intp]]] = []
    for v in order:
        scope = tuple(sorted({u for f in buckets[v] for u in f.variables} - {v}))
        table = np.zeros([sizes[u] for u in (v, *scope)])
        for factor in buckets[v]:
            table += _spread(factor, (v, *scope))
        answers.append((scope, np.argmin(table, axis=0)))
        rest = Factor(scope, table.min(axis=0))
        if not np.isfinite(rest.table).any():
            raise InvalidArguments("every assignment costs infinity: no states of the variables are allowed together")
        if scope:
            buckets[min(scope, key=rank.__getitem__)].append(rest)
    chosen = [0] * len(sizes)
    for v, (scope, best) in zip(reversed(order), reversed(answers), strict=True):
        chosen[v] = int(best[tuple(chosen[u] for u in scope)])
    return chosen


def _spread(factor: Factor, scope: tuple[int, ...]) -> NDArray[np.float64]:
    """The factor's table with an axis for each variable of `scope`, of extent 1 where it does not depend on it."""
    axes = sorted(range(len(factor.variables)), key=lambda i: scope.index(factor.variables[i]))
    held = factor.table.transpose(axes)
    present = {factor.variables[i]: held.shape[place] for place, i in enumerate(axes)}
    return held.reshape([present.get(u, 1) for u in scope])
