"""The exact minimum of a sum of costs: one variable after the other is minimized out, along the graph.

To eliminate a variable, add all factors that it is in, and keep for each states of the others the best of its own: the
variable is gone, and its neighbors have one factor more. The work is the product of states of the largest such table,
so the order matters: next is the variable whose neighbors lack the fewest edges among each other (min-fill). Networks
are nearly chains; their width, the most neighbors met, is 2 or 3.

    Factor((0,), [1, 0]), Factor((0, 1), [[0, inf], [5, 2]])    ->    states (0, 0), cost 1, bound 1

Variables of which only one state can be chosen are left out first, and are no neighbors. Where a table would grow over
a limit, a solver takes over, see `milp`.

Source: Bertele and Brioschi, "Nonserial Dynamic Programming" (1972); Dechter, "Bucket elimination" (1999).
"""

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.factors import Factor, Reduced, Solution, total
from inlay.graph.milp import solved

MOST_STATES = 1 << 22
"""Entries of the largest table that elimination may make."""
MOST_SECONDS = 10.0
"""Seconds that one minimum may take: of elimination, or of the solver where elimination would not end."""


def minimum(
    problem: Reduced, factors: Sequence[Factor], *, most_states: int = MOST_STATES, seconds: float = MOST_SECONDS
) -> Solution:
    """The states that cost least, with the proof.

    The impossible states of `problem` are ruled out already; `factors` are those of the original. Where tables of at
    most `most_states` entries do, the minimum is exact; else a solver searches for at most `seconds` and gives the
    bound that it proved.

    Post-condition: `bound <= cost`, and no assignment costs less than `bound`; they are equal after elimination.

    Raises:
        InvalidArguments: every assignment costs infinity.
        MissingExtra: the solver is needed, and SciPy is not installed.
        Unimplemented: `seconds` were too few, or the problem is too large for the solver.

    >>> from inlay.graph.factors import reduced
    >>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
    >>> minimum(reduced((2, 2), factors), factors)
    Solution(assignment=(0, 0), cost=1.0, bound=1.0, width=1, method='elimination')
    """
    deadline = time.monotonic() + seconds
    sizes = problem.sizes
    scopes = [f.variables for f in problem.factors]
    order, width, largest = elimination_order(sizes, scopes, max(most_states, MOST_STATES))
    if largest > most_states:
        chosen, bound = solved(sizes, problem.factors, seconds=seconds)
        assignment, method = problem.assignment(chosen), "milp"
    else:
        buckets = eliminate(sizes, problem.factors, order, deadline)
        assignment, bound, method = problem.assignment(_best_states(sizes, buckets)), None, "elimination"
    cost = total(factors, assignment)
    return Solution(assignment, cost, cost if bound is None else min(bound + problem.constant, cost), width, method)


def elimination_order(
    sizes: Sequence[int], scopes: Sequence[tuple[int, ...]], most_states: int = MOST_STATES
) -> tuple[list[int], int, int]:
    """Variables in the order of least fill, the width of that order, and the entries of its largest table.

    Ties go to the smaller table, then to the lower number. A variable whose table would have more than `most_states`
    entries waits until its neighbors are eliminated; where all that are left are such, the order ends, its largest
    table counts as one entry more than that, and its width as that of the least of what it would go on with.
    """
    neighbors: list[set[int]] = [set() for _ in sizes]
    for scope in scopes:
        for v in scope:
            neighbors[v].update(scope)
            neighbors[v].discard(v)
    prices: list[tuple[int, int] | None] = [_price(v, neighbors, sizes, most_states) for v in range(len(sizes))]
    waiting = [(*price, v) for v, price in enumerate(prices) if price is not None]
    heapq.heapify(waiting)
    order, width, largest = [], 0, 1
    while waiting:
        fill, entries, v = heapq.heappop(waiting)
        if prices[v] != (fill, entries):
            continue
        order.append(v)
        width, largest, prices[v] = max(width, len(neighbors[v])), max(largest, entries), None
        for u in _connect(v, neighbors):
            price = _price(u, neighbors, sizes, most_states)
            if price is not None and price != prices[u]:
                heapq.heappush(waiting, (*price, u))
            prices[u] = price
    if len(order) < len(sizes):
        left = set(range(len(sizes))).difference(order)
        return order, max(width, min(len(neighbors[v]) for v in left)), most_states + 1
    return order, width, largest


def _connect(v: int, neighbors: Sequence[set[int]]) -> set[int]:
    """Take `v` out, and connect its neighbors with each other: the variables whose price that changes."""
    around = neighbors[v]
    changed = set(around)
    for u in around:
        neighbors[u].discard(v)
    for u in around:
        for w in around - neighbors[u] - {u}:
            neighbors[u].add(w)
            neighbors[w].add(u)
            changed |= neighbors[u] & neighbors[w]  # they lack one edge less
    return changed


def _price(v: int, neighbors: Sequence[set[int]], sizes: Sequence[int], most_states: int) -> tuple[int, int] | None:
    """Edges that eliminating `v` would add, and the entries of the table it would take; None where these are too many.

    So the work is bounded by the states, however many neighbors there are.
    """
    around, entries = neighbors[v], sizes[v]
    for u in around:
        entries *= sizes[u]
        if entries > most_states:
            return None
    lacking = sum(len(around) - 1 - len(neighbors[u] & around) for u in around)
    return lacking // 2, entries


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """What is left of one variable that was eliminated."""

    variable: int
    """The variable."""
    scope: tuple[int, ...]
    """Its neighbors at that time."""
    best: NDArray[np.unsignedinteger]
    """Its best state, by states of `scope`."""
    remainder: NDArray[np.float64]
    """What that costs: the least of the sum of its factors and of the remainders in `sources`."""
    sources: tuple[int, ...]
    """Places in the order of the buckets whose remainder is a part of the sum."""


def eliminate(
    sizes: Sequence[int], factors: Sequence[Factor], order: Sequence[int], deadline: float = float("inf")
) -> list[Bucket]:
    """The buckets of all variables, in this order.

    Raises:
        InvalidArguments: every assignment costs infinity.
        Unimplemented: the clock shows `deadline` (of `time.monotonic`) before the end.
    """
    rank = {v: i for i, v in enumerate(order)}
    waiting: list[list[tuple[Factor, int | None]]] = [[] for _ in sizes]
    for factor in factors:
        if factor.variables:
            waiting[min(factor.variables, key=rank.__getitem__)].append((factor, None))
    found: list[Bucket] = []
    for place, v in enumerate(order):
        if time.monotonic() > deadline:
            raise Unimplemented("elimination did not end in time: give it more seconds")
        parts, waiting[v] = waiting[v], []
        bucket = _bucket(v, sizes, parts)
        found.append(bucket)
        if not np.isfinite(bucket.remainder).any():
            raise InvalidArguments("every assignment costs infinity: no states of the variables are allowed together")
        if bucket.scope:
            rest = Factor(bucket.scope, bucket.remainder)
            waiting[min(bucket.scope, key=rank.__getitem__)].append((rest, place))
    return found


def _bucket(v: int, sizes: Sequence[int], parts: Sequence[tuple[Factor, int | None]]) -> Bucket:
    """Eliminate one variable; a part that is a remainder comes with the place of its bucket."""
    scope = tuple(sorted({u for factor, _ in parts for u in factor.variables} - {v}))
    table = summed([factor for factor, _ in parts], (v, *scope), sizes)
    best = np.argmin(table, axis=0).astype(np.min_scalar_type(sizes[v]))
    return Bucket(v, scope, best, table.min(axis=0), tuple(source for _, source in parts if source is not None))


def _best_states(sizes: Sequence[int], buckets: Sequence[Bucket]) -> list[int]:
    """The best state of each variable, from the last that was eliminated to the first."""
    chosen = [0] * len(sizes)
    for bucket in reversed(buckets):
        chosen[bucket.variable] = int(bucket.best[tuple(chosen[u] for u in bucket.scope)])
    return chosen


def summed(factors: Sequence[Factor], scope: tuple[int, ...], sizes: Sequence[int]) -> NDArray[np.float64]:
    """The sum of factors as one table with an axis for each variable of `scope`."""
    table = np.zeros([sizes[u] for u in scope])
    for factor in factors:
        table += spread(factor, scope)
    return table


def spread(factor: Factor, scope: tuple[int, ...]) -> NDArray[np.float64]:
    """The factor's table with an axis for each variable of `scope`, of extent 1 where it does not depend on it."""
    axes = sorted(range(len(factor.variables)), key=lambda i: scope.index(factor.variables[i]))
    held = factor.table.transpose(axes)
    present = {factor.variables[i]: held.shape[place] for place, i in enumerate(axes)}
    return held.reshape([present.get(u, 1) for u in scope])
