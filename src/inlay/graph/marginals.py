"""Min-marginals: for each state of each variable, the least cost of all assignments in which the variable has it.

Elimination sends what each bucket leaves to a later one (see `elimination`). Going back from the last bucket to the
first, each is told the least of all that lies outside it; with its own factors that makes the least of the whole, by
its states. So all min-marginals take about as long as two minima.

Source: Shenoy and Shafer, "Axioms for probability and belief-function propagation" (1990), with min and plus.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from inlay.errors import Unimplemented
from inlay.graph.elimination import MOST_STATES, Bucket, eliminate, elimination_order, summed
from inlay.graph.factors import Factor, Reduced, reduced


def min_marginals(sizes: Sequence[int], factors: Sequence[Factor]) -> list[NDArray[np.float64]]:
    """By variable and state, the least cost; `inf` for a state that no assignment of finite cost has.

    Raises:
        InvalidArguments: every assignment costs infinity.
        Unimplemented: elimination would need a table of over `elimination.MOST_STATES` entries.

    >>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
    >>> [found.tolist() for found in min_marginals((2, 2), factors)]
    [[1.0, 2.0], [1.0, 2.0]]
    """
    problem = reduced(sizes, factors)
    left, least = _of_reduced(problem)
    found = [np.full(size, np.inf) for size in sizes]
    for v, states in enumerate(problem.states):
        found[v][states] = least
    for v, costs in zip(problem.variables, left, strict=True):
        found[v][problem.states[v]] = costs
    return found


def _of_reduced(problem: Reduced) -> tuple[list[NDArray[np.float64]], float]:
    """The min-marginals of the variables that are left, and the least cost."""
    sizes = problem.sizes
    order, _, largest = elimination_order(sizes, [factor.variables for factor in problem.factors])
    if largest > MOST_STATES:
        raise Unimplemented("the graph is too wide for elimination: compare whole plans instead")
    buckets = eliminate(sizes, problem.factors, order)
    own = _own_factors(problem.factors, order)
    roots = {place: float(bucket.remainder) for place, bucket in enumerate(buckets) if not bucket.scope}
    least = problem.constant + sum(roots.values())
    outside = {place: np.asarray(least - root) for place, root in roots.items()}
    found = [np.zeros(0)] * len(sizes)
    for place in reversed(range(len(buckets))):
        bucket = buckets[place]
        scope = (bucket.variable, *bucket.scope)
        inner = [Factor(buckets[source].scope, buckets[source].remainder) for source in bucket.sources]
        whole = summed([*own[place], *inner, Factor(bucket.scope, outside.pop(place))], scope, sizes)
        found[bucket.variable] = whole.min(axis=tuple(range(1, whole.ndim)))
        for source in bucket.sources:
            outside[source] = _without(buckets[source], scope, whole)
    return found, least


def _own_factors(factors: Sequence[Factor], order: Sequence[int]) -> list[list[Factor]]:
    """By place in the order, the factors whose first variable in the order that is."""
    rank = {v: place for place, v in enumerate(order)}
    found: list[list[Factor]] = [[] for _ in order]
    for factor in factors:
        found[min(rank[v] for v in factor.variables)].append(factor)
    return found


def _without(source: Bucket, scope: tuple[int, ...], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least of a sum over `scope` by states of the scope of `source`, less what `source` contributed to it.

    Where that is infinite nothing finite can be said, nor need be: the bucket itself is infinite there.
    """
    least = whole.min(axis=tuple(axis for axis, v in enumerate(scope) if v not in source.scope))
    kept = [v for v in scope if v in source.scope]
    least = least.transpose([kept.index(v) for v in source.scope])
    is_finite = np.isfinite(source.remainder)
    found: NDArray[np.float64] = np.subtract(least, source.remainder, out=np.zeros_like(least), where=is_finite)
    return found
