"""Exact minimization of a sum of cost tables, by eliminating one variable after the other.

    minimize over one state for each variable    the sum over factors of table[states of its variables]

States that are not allowed, alone or together, cost `inf`. This module knows nothing of formats.

>>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
>>> total(factors, (0, 0)), total(factors, (0, 1))
(1.0, inf)

`reduce_problem` first removes states that cannot occur, and variables with one remaining state. To eliminate a
variable, add all factors that contain it, and store, for all states of the other variables, its best state and the
least sum. The sums are a new factor of the neighbors. The work is the size of the largest such table, so the order
matters: the next variable is the one whose neighbors lack the fewest edges among each other (min-fill). Networks are
nearly chains, and their width, the most neighbors of an eliminated variable, is 2 or 3.

Where a table would exceed a limit, an integer program over the local polytope is solved instead (`solve_milp`). It has
a variable x of 0 or 1 for each state, of which one is 1, and a weight y for each allowed combination of a factor, which
sums to x along each axis. HiGHS solves it by branch and bound, and returns the bound that it proved.

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
from inlay.graph.background import yield_to_runs


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A table of costs by the states of some variables."""

    variables: tuple[int, ...]
    """Numbers of the variables, one for each axis of the table, each once."""
    table: NDArray[np.float64]
    """Cost by the states of `variables`; `inf` where these are not allowed together."""


@dataclass(frozen=True, slots=True)
class Solution:
    """One state for each variable, and the proven bound."""

    assignment: tuple[int, ...]
    """State of each variable."""
    cost: float
    """Sum of all factors at the assignment."""
    bound: float
    """Lower bound of the cost of any assignment; equal to `cost` if that is proven minimal."""
    width: int
    """Most neighbors of a variable when it was eliminated, or would have been."""
    method: str
    """Method of the search: `elimination` or `milp`."""


def total(factors: Sequence[Factor], assignment: Sequence[int]) -> float:
    """Return the sum of all factors at `assignment`, rounded once."""
    return math.fsum(float(f.table[tuple(assignment[v] for v in f.variables)]) for f in factors)


def check_factors(sizes: Sequence[int], factors: Sequence[Factor]) -> None:
    """Check that the factors fit the variables.

    Raises:
        InvalidArguments: a variable has no state, a factor names a variable twice or an unknown one, its table has
            other extents than its variables have states, or holds a cost that is not a number or minus infinity.
    """
    for variable, size in enumerate(sizes):
        if size < 1:
            raise InvalidArguments(f"variable {variable} has {size} states: each needs at least one")
    for number, factor in enumerate(factors):
        _check_factor(number, factor, sizes)


def _check_factor(number: int, factor: Factor, sizes: Sequence[int]) -> None:
    """Raise InvalidArguments unless a factor fits its variables and has costs."""
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


def enforce_arc_consistency(sizes: Sequence[int], factors: Sequence[Factor]) -> list[NDArray[np.intp]]:
    """Return the states of each variable that remain after arc consistency: those that no single factor rules out.

    A state is removed if some factor has no finite entry for it among the remaining states of the factor's other
    variables. This is repeated until no state is removed.

    Post-condition: every assignment of finite cost consists of these states.

    Raises:
        InvalidArguments: a variable has no state left, or a factor of no variables is `inf`, so every assignment costs
            infinity.
    """
    if any(not f.variables and math.isinf(float(f.table)) for f in factors):
        raise InvalidArguments("every assignment costs infinity: a factor of no variables does")
    alive = [bytes([1]) * size for size in sizes]
    finite = _finite_entries(factors)
    touching: list[list[Factor]] = [[] for _ in sizes]
    for factor in factors:
        if finite[id(factor.table)] is not None:  # one without infinities rules nothing out
            for v in factor.variables:
                touching[v].append(factor)
    waiting = [factor for factor in factors if finite[id(factor.table)] is not None]
    known: dict[object, tuple[bytes, ...]] = {}  # factors of equal groups have equal tables
    while waiting:
        yield_to_runs()
        factor = waiting.pop()
        before = tuple([alive[v] for v in factor.variables])
        key = id(factor.table), before
        if key not in known:
            known[key] = _supported_states(finite[id(factor.table)], before)
        for v, left in zip(factor.variables, known[key], strict=True):
            if left != alive[v]:
                alive[v] = left
                waiting.extend(touching[v])
    for v, left in enumerate(alive):
        if 1 not in left:
            raise InvalidArguments(f"every assignment costs infinity: the factors leave variable {v} no state")
    return [np.flatnonzero(np.frombuffer(left, bool)) for left in alive]


def _supported_states(finite: NDArray[np.bool_] | None, alive: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the states of each axis of a table that have a finite entry among the states that are alive.

    States are a byte each, 1 if they are alive.
    """
    fits, axes = np.array(finite), range(len(alive))
    for axis, states in enumerate(alive):
        fits &= np.frombuffer(states, bool).reshape([-1 if i == axis else 1 for i in axes])
    return tuple(fits.any(axis=tuple(i for i in axes if i != axis)).tobytes() for axis in axes)


def _finite_entries(factors: Sequence[Factor]) -> dict[int, NDArray[np.bool_] | None]:
    """Return, by identity of a table, which entries are finite; None if all are.

    Factors of equal groups share their table.
    """
    found: dict[int, NDArray[np.bool_] | None] = {}
    for factor in factors:
        if id(factor.table) not in found:
            finite = np.isfinite(factor.table)
            found[id(factor.table)] = None if finite.all() else finite
    return found


@dataclass(frozen=True, slots=True, eq=False)
class ReducedProblem:
    """A problem without the states that cannot occur and without the variables that have one state."""

    variables: tuple[int, ...]
    """The remaining variables, by their numbers in the original problem."""
    states: tuple[NDArray[np.intp], ...]
    """The remaining states of each variable of the original problem."""
    factors: tuple[Factor, ...]
    """Factors of the remaining variables, which are numbered by their index in `variables`."""
    constant: float
    """Sum of the factors without remaining variables."""

    @property
    def sizes(self) -> list[int]:
        """Number of states of each remaining variable."""
        return [len(self.states[v]) for v in self.variables]

    @property
    def lower_bound(self) -> float:
        """Sum of the least entries of all factors, a lower bound of the cost of any assignment."""
        return math.fsum((self.constant, *(float(factor.table.min()) for factor in self.factors)))

    def with_costs(self, costs: Mapping[int, NDArray[np.float64]]) -> "ReducedProblem":
        """Return the same problem with additional finite costs of single variables, by original number and state."""
        factors, constant = list(self.factors), self.constant
        indices = {v: place for place, v in enumerate(self.variables)}
        for v, more in costs.items():
            left = more[self.states[v]]
            if v in indices:
                factors.append(Factor((indices[v],), left))
            else:
                constant += float(left[0])
        return replace(self, factors=tuple(factors), constant=constant)

    def assignment(self, chosen: Sequence[int]) -> tuple[int, ...]:
        """Return the states of all original variables, where the remaining ones have the states `chosen`."""
        found = [int(remaining[0]) for remaining in self.states]
        for v, state in zip(self.variables, chosen, strict=True):
            found[v] = int(self.states[v][state])
        return tuple(found)


def reduce_problem(sizes: Sequence[int], factors: Sequence[Factor]) -> ReducedProblem:
    """Return the problem without impossible states and variables of one state (see `enforce_arc_consistency`).

    Raises:
        InvalidArguments: as `enforce_arc_consistency`.

    >>> factors = [Factor((0,), np.array([np.inf, 3.0])), Factor((0, 1), np.array([[5.0], [2.0]]))]
    >>> problem = reduce_problem((2, 1), factors)
    >>> problem.variables, problem.constant, problem.assignment(())
    ((), 5.0, (1, 0))
    """
    states = enforce_arc_consistency(sizes, factors)
    variables = tuple(v for v, remaining in enumerate(states) if len(remaining) > 1)
    indices = {v: place for place, v in enumerate(variables)}
    left, constants = [], []
    known: dict[object, NDArray[np.float64]] = {}  # factors of equal groups keep a common table
    texts = [remaining.tobytes() for remaining in states]
    for factor in factors:
        scope = tuple([indices[v] for v in factor.variables if v in indices])
        key = id(factor.table), *(texts[v] for v in factor.variables)
        if key not in known:
            table = factor.table[np.ix_(*(states[v] for v in factor.variables))]
            known[key] = table.reshape([len(states[variables[place]]) for place in scope])
        if scope:
            left.append(Factor(scope, known[key]))
        else:
            constants.append(float(known[key]))
    return ReducedProblem(variables, tuple(states), tuple(left), math.fsum(constants))


MOST_STATES = 1 << 22
"""Most entries of a table that elimination may create."""
MOST_SECONDS = 10.0
"""Default time limit of one minimization, in seconds."""


def minimize(
    problem: ReducedProblem, factors: Sequence[Factor], *, most_states: int = MOST_STATES, seconds: float = MOST_SECONDS
) -> Solution:
    """Return the assignment of least cost, with the proven bound.

    `problem` is the reduced problem, `factors` are those of the original one. The minimum is exact if elimination needs
    tables of at most `most_states` entries. Otherwise the solver searches for at most `seconds` and returns its best
    bound.

    Post-condition: `bound <= cost`, and no assignment costs less than `bound`; they are equal after elimination.

    Raises:
        InvalidArguments: every assignment costs infinity.
        MissingExtra: the solver is needed, and SciPy is not installed.
        Unimplemented: `seconds` were too few, or the problem is too large for the solver.

    >>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
    >>> minimize(reduce_problem((2, 2), factors), factors)
    Solution(assignment=(0, 0), cost=1.0, bound=1.0, width=1, method='elimination')
    """
    deadline = time.monotonic() + seconds
    sizes = problem.sizes
    scopes = [f.variables for f in problem.factors]
    order, width, largest = elimination_order(sizes, scopes, max(most_states, MOST_STATES))
    if largest > most_states:
        chosen, bound = solve_milp(sizes, problem.factors, seconds=seconds)
        assignment, method = problem.assignment(chosen), "milp"
    else:
        buckets = eliminate(sizes, problem.factors, order, deadline)
        assignment, bound, method = problem.assignment(_best_states(sizes, buckets)), None, "elimination"
    cost = total(factors, assignment)
    return Solution(assignment, cost, cost if bound is None else min(bound + problem.constant, cost), width, method)


def elimination_order(
    sizes: Sequence[int], scopes: Sequence[tuple[int, ...]], most_states: int = MOST_STATES
) -> tuple[list[int], int, int]:
    """Return the variables in min-fill order, the width of the order, and the entries of its largest table.

    Ties are decided by the smaller table, then by the lower number. A variable whose table would exceed `most_states`
    entries waits until some of its neighbors are eliminated. If only such variables are left, the order ends: its
    largest table then counts as `most_states` + 1 entries, and its width is at least the fewest neighbors of a variable
    that is left.
    """
    neighbors: list[set[int]] = [set() for _ in sizes]
    for scope in scopes:
        for v in scope:
            neighbors[v].update(scope)
            neighbors[v].discard(v)
    costs: list[tuple[int, int] | None] = [
        _elimination_cost(v, neighbors, sizes, most_states) for v in range(len(sizes))
    ]
    waiting = [(*cost, v) for v, cost in enumerate(costs) if cost is not None]
    heapq.heapify(waiting)
    order, width, largest = [], 0, 1
    while waiting:
        yield_to_runs()
        fill, entries, v = heapq.heappop(waiting)
        if costs[v] != (fill, entries):
            continue
        order.append(v)
        width, largest, costs[v] = max(width, len(neighbors[v])), max(largest, entries), None
        for u in _connect(v, neighbors):
            cost = _elimination_cost(u, neighbors, sizes, most_states)
            if cost is not None and cost != costs[u]:
                heapq.heappush(waiting, (*cost, u))
            costs[u] = cost
    if len(order) < len(sizes):
        left = set(range(len(sizes))).difference(order)
        return order, max(width, min(len(neighbors[v]) for v in left)), most_states + 1
    return order, width, largest


def _connect(v: int, neighbors: Sequence[set[int]]) -> set[int]:
    """Remove `v`, connect its neighbors with each other, and return the variables whose elimination cost changed."""
    around = neighbors[v]
    changed = set(around)
    for u in around:
        neighbors[u].discard(v)
    for u in around:
        for w in around - neighbors[u] - {u}:
            neighbors[u].add(w)
            neighbors[w].add(u)
            changed |= neighbors[u] & neighbors[w]  # these lack one edge fewer
    return changed


def _elimination_cost(
    v: int, neighbors: Sequence[set[int]], sizes: Sequence[int], most_states: int
) -> tuple[int, int] | None:
    """Return the edges that eliminating `v` would add, and the entries of its table; None above `most_states` entries.

    The product stops at the limit, so the work is bounded however many neighbors there are.
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
    """The result of eliminating one variable."""

    variable: int
    """The eliminated variable."""
    scope: tuple[int, ...]
    """Its neighbors at that time."""
    best: NDArray[np.unsignedinteger]
    """Its best state by the states of `scope`."""
    remainder: NDArray[np.float64]
    """Least sum by the states of `scope`: of its factors and of the remainders in `sources`."""
    sources: tuple[int, ...]
    """Indices of the buckets whose remainders are part of the sum."""


def eliminate(
    sizes: Sequence[int], factors: Sequence[Factor], order: Sequence[int], deadline: float = float("inf")
) -> list[Bucket]:
    """Eliminate all variables in this order, and return their buckets.

    Raises:
        InvalidArguments: every assignment costs infinity.
        Unimplemented: `time.monotonic` reaches `deadline` before the end.
    """
    rank = {v: i for i, v in enumerate(order)}
    waiting: list[list[tuple[Factor, int | None]]] = [[] for _ in sizes]
    for factor in factors:
        if factor.variables:
            waiting[min(factor.variables, key=rank.__getitem__)].append((factor, None))
    found: list[Bucket] = []
    known: dict[object, Bucket] = {}
    for place, v in enumerate(order):
        yield_to_runs()
        if time.monotonic() > deadline:
            raise Unimplemented("elimination did not end in time: give it more seconds")
        parts, waiting[v] = waiting[v], []
        bucket = _bucket(v, sizes, parts, known)
        found.append(bucket)
        if not np.isfinite(bucket.remainder).any():
            raise InvalidArguments("every assignment costs infinity: no states of the variables are allowed together")
        if bucket.scope:
            rest = Factor(bucket.scope, bucket.remainder)
            waiting[min(bucket.scope, key=rank.__getitem__)].append((rest, place))
    return found


def _bucket(
    v: int, sizes: Sequence[int], parts: Sequence[tuple[Factor, int | None]], known: dict[object, Bucket]
) -> Bucket:
    """Eliminate one variable; a part that is the remainder of a bucket comes with the index of that bucket.

    `known` has the first bucket of each sum of the same tables: equal layers have equal sums.
    """
    scope = tuple(sorted({u for factor, _ in parts for u in factor.variables} - {v}))
    places = {u: place for place, u in enumerate((v, *scope))}
    key = tuple([(id(factor.table), *(places[u] for u in factor.variables)) for factor, _ in parts])
    equal = known.get(key)
    sources = tuple([source for _, source in parts if source is not None])
    if equal is not None:
        return replace(equal, variable=v, scope=scope, sources=sources)
    table = sum_factors([factor for factor, _ in parts], (v, *scope), sizes)
    best = np.argmin(table, axis=0).astype(np.min_scalar_type(sizes[v]))
    known[key] = Bucket(v, scope, best, table.min(axis=0), sources)
    return known[key]


def _best_states(sizes: Sequence[int], buckets: Sequence[Bucket]) -> list[int]:
    """Return the best state of each variable, following the buckets from the last to the first."""
    chosen = [0] * len(sizes)
    for bucket in reversed(buckets):
        chosen[bucket.variable] = int(bucket.best[tuple(chosen[u] for u in bucket.scope)])
    return chosen


def sum_factors(factors: Sequence[Factor], scope: tuple[int, ...], sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return the sum of factors as a table with an axis for each variable of `scope`."""
    table = np.zeros([sizes[u] for u in scope])
    for factor in factors:
        table += broadcast_factor(factor, scope)
    return table


def broadcast_factor(factor: Factor, scope: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the factor's table with an axis for each variable of `scope`.

    An axis has extent 1 where the factor does not depend on its variable.
    """
    axes = sorted(range(len(factor.variables)), key=lambda i: scope.index(factor.variables[i]))
    held = factor.table.transpose(axes)
    present = {factor.variables[i]: held.shape[place] for place, i in enumerate(axes)}
    return held.reshape([present.get(u, 1) for u in scope])


MOST_COLUMNS = 1 << 18
"""Most columns of an integer program: a larger one leaves HiGHS no time to search."""
_TOLERANCE = 1e-6
"""Relative difference below which HiGHS treats numbers as equal."""


def solve_milp(sizes: Sequence[int], factors: Sequence[Factor], *, seconds: float) -> tuple[list[int], float]:
    """Solve the integer program, and return a state for each variable and a lower bound of the cost of any assignment.

    The bound is the cost itself where the solver proved it to a relative 1e-6, the precision of its arithmetic.

    Raises:
        InvalidArguments: every assignment costs infinity.
        MissingExtra: SciPy is not installed.
        Unimplemented: no assignment was found in `seconds`, or the program has over `MOST_COLUMNS` columns.
    """
    optimize, sparse = _scipy("scipy.optimize"), _scipy("scipy.sparse")
    program = _IntegerProgram(sizes)
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
    chosen = _select_states(found.x, sizes)
    cost = total(factors, chosen)
    bound = found.mip_dual_bound / scale + program.constant
    near = bound >= cost - _TOLERANCE * max(1.0 / scale, abs(cost))
    return chosen, cost if near else float(bound)


def _select_states(x: NDArray[np.float64], sizes: Sequence[int]) -> list[int]:
    """Return the state of each variable whose column of the solution is greatest."""
    ends = np.cumsum(sizes)
    return [int(np.argmax(x[end - size : end])) for end, size in zip(ends, sizes, strict=True)]


@dataclass(slots=True)
class _IntegerProgram:
    """An integer program, to which factors are added: columns are x of all variables, then y of all factors."""

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
        """Add the constraint: the sum of columns `plus`, less that of columns `minus`, is `side`."""
        self.columns += [*plus, *minus]
        self.values += [1.0] * len(plus) + [-1.0] * len(minus)
        self.rows += [len(self.sides)] * (len(plus) + len(minus))
        self.sides.append(side)

    def add(self, factor: Factor) -> None:
        """Add a factor: its least cost as a constant, the differences from it as costs of combinations."""
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
        """Return the factor that brings typical costs well above the absolute tolerances of the solver."""
        positive = [cost for cost in self.costs if cost > 0.0]
        return 1e3 / math.fsum(positive) * len(positive) if positive else 1.0


def _scipy(module: str) -> Any:
    """Import a module of SciPy."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(
            "the graph is too wide for elimination, and SciPy's solver is not installed: pip install 'inlay[sparse]'"
        ) from None
