"""The exact minimum of a sum of costs: one variable after the other is minimized out, along the graph.

    minimize over one state for each variable    the sum over factors of table[states of its variables]

States that are not allowed, alone or together, cost `inf`. Nothing here knows of formats.

>>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
>>> total(factors, (0, 0)), total(factors, (0, 1))
(1.0, inf)

Variables of which only one state can be chosen are left out first (`reduced`). To eliminate another variable, add all
factors that it is in, and keep for each states of the others the best of its own: the variable is gone, and its
neighbors have one factor more. The work is the product of states of the largest such table, so the order matters: next
is the variable whose neighbors lack the fewest edges among each other (min-fill). Networks are nearly chains; their
width, the most neighbors met, is 2 or 3.

Where a table would grow over a limit, an integer program over the local polytope takes over (`solved`): a variable x of
0 or 1 for each state, of which one is 1; a weight y for each allowed combination of a factor, which sums to x along
each axis. HiGHS branches and bounds, and tells the bound it proved.

    minimize  sum c y    with    sum over states of x[v] = 1,    sum of y over combinations with v = s  is  x[v, s]

Sources: Bertele and Brioschi, "Nonserial Dynamic Programming" (1972); Dechter, "Bucket elimination" (1999); Wainwright
and Jordan, "Graphical Models, Exponential Families, and Variational Inference" (2008), section 4, and
`scipy.optimize.milp`.
"""

import heapq
import importlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inlay.errors import InvalidArguments, MissingExtra, Unimplemented


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


MOST_COLUMNS = 1 << 18
"""States and combinations of states of the largest program that is tried: larger ones leave HiGHS no time to search."""
_TOLERANCE = 1e-6
"""Relative: what HiGHS takes for equal."""


def solved(sizes: Sequence[int], factors: Sequence[Factor], *, seconds: float) -> tuple[list[int], float]:
    """A state for each variable, and a cost below which there is no assignment.

    The bound is the cost itself where the solver proved that to a relative 1e-6, which is as exact as it computes.

    Raises:
        InvalidArguments: every assignment costs infinity.
        MissingExtra: SciPy is not installed.
        Unimplemented: no assignment was found in `seconds`, or the program has over `MOST_COLUMNS` columns.
    """
    optimize, sparse = _scipy("scipy.optimize"), _scipy("scipy.sparse")
    program = _Program(sizes)
    for factor in factors:
        program.add(factor)
        if program.width > MOST_COLUMNS:
            raise Unimplemented(
                f"the integer program has over {MOST_COLUMNS} columns: plan a smaller part of the graph"
            )
    if not program.width:
        return [], 0.0
    scale = program.scale()
    rows = sparse.csr_array((program.values, (program.rows, program.columns)), shape=(program.height, program.width))
    found = optimize.milp(
        np.array(program.costs) * scale,
        integrality=np.arange(program.width) < sum(sizes),
        bounds=optimize.Bounds(0, 1),
        constraints=optimize.LinearConstraint(rows, program.sides, program.sides),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if found.status == 2:
        raise InvalidArguments("every assignment costs infinity: no states of the variables are allowed together")
    if found.x is None:
        raise Unimplemented(f"no assignment was found in {seconds:g} s ({found.message}): give the solver more seconds")
    chosen = _read(found.x, sizes)
    cost = total(factors, chosen)
    bound = found.mip_dual_bound / scale + program.constant
    near = bound >= cost - _TOLERANCE * max(1.0 / scale, abs(cost))
    return chosen, cost if near else float(bound)


def _read(x: NDArray[np.float64], sizes: Sequence[int]) -> list[int]:
    ends = np.cumsum(sizes)
    return [int(np.argmax(x[end - size : end])) for end, size in zip(ends, sizes, strict=True)]


@dataclass(slots=True)
class _Program:
    """The integer program as it grows: columns are x of all variables, then y of all factors."""

    sizes: Sequence[int]
    costs: list[float] = field(default_factory=list)
    sides: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    constant: float = 0.0

    def __post_init__(self) -> None:
        for size in self.sizes:
            first = len(self.costs)
            self.firsts.append(first)
            self.costs += [0.0] * size
            self._row(range(first, first + size), (), 1.0)

    @property
    def width(self) -> int:
        return len(self.costs)

    @property
    def height(self) -> int:
        return len(self.sides)

    def _row(self, plus: Sequence[int], minus: Sequence[int], side: float) -> None:
        self.columns += [*plus, *minus]
        self.values += [1.0] * len(plus) + [-1.0] * len(minus)
        self.rows += [len(self.sides)] * (len(plus) + len(minus))
        self.sides.append(side)

    def add(self, factor: Factor) -> None:
        """Take a factor along: its least cost as a constant, the rest on combinations."""
        where = np.argwhere(np.isfinite(factor.table))
        costs = factor.table[np.isfinite(factor.table)]
        least = float(costs.min()) if len(costs) else 0.0
        self.constant += least
        if len(factor.variables) == 1 and len(costs) == factor.table.size:
            first = self.firsts[factor.variables[0]]
            for state, cost in enumerate(costs):
                self.costs[first + state] += float(cost) - least
            return
        begin = self.width
        self.costs += [float(cost) - least for cost in costs]
        for axis, v in enumerate(factor.variables):
            for state in range(self.sizes[v]):
                combinations = (begin + np.flatnonzero(where[:, axis] == state)).tolist()
                self._row(combinations, (self.firsts[v] + state,), 0.0)

    def scale(self) -> float:
        """What to multiply costs by so that the usual one is well above the solver's absolute tolerances."""
        positive = [cost for cost in self.costs if cost > 0.0]
        return 1e3 / math.fsum(positive) * len(positive) if positive else 1.0


def _scipy(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(
            "the graph is too wide for elimination, and SciPy's solver is not installed: pip install 'inlay[sparse]'"
        ) from None
