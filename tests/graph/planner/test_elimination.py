"""The minimum of a sum of costs: by elimination, by a solver, by trying everything."""

import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.graph.planner import elimination
from inlay.graph.planner.elimination import (
    Factor,
    Solution,
    check_factors,
    elimination_order,
    enforce_arc_consistency,
    reduce_problem,
    total,
)
from tests.support.refusals import raises_exactly

INF = math.inf


def minimize(sizes: Sequence[int], factors: Sequence[Factor], **limits: Any) -> Solution:
    """The minimum of a problem that is checked and reduced before, as the planner does."""
    check_factors(sizes, factors)
    return elimination.minimize(reduce_problem(sizes, factors), factors, **limits)


def drawn(seed: int, forbidden: float = 0.2) -> tuple[list[int], list[Factor]]:
    """A small problem: 2 to 7 variables of 1 to 4 states, factors of 0 to 3 of them, some combinations forbidden."""
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.integers(1, 5, rng.integers(2, 8))]
    factors = []
    for _ in range(rng.integers(1, 11)):
        count = min(int(rng.integers(0, 4)), len(sizes))
        variables = tuple(int(v) for v in rng.permutation(len(sizes))[:count])
        table = rng.choice([0.0, 1.0, 2.5, 7.0, 100.0], size=[sizes[v] for v in variables]) + rng.random()
        factors.append(Factor(variables, np.where(rng.random(table.shape) < forbidden, INF, table)))
    return sizes, factors


def tried(sizes: Sequence[int], factors: Sequence[Factor]) -> float:
    """The least cost of all assignments, each one looked at."""
    return min(
        math.fsum(float(f.table[tuple(states[v] for v in f.variables)]) for f in factors)
        for states in itertools.product(*map(range, sizes))
    )


def test_elimination_and_the_solver_find_the_least_of_all_assignments() -> None:
    impossible = 0
    for seed in range(500):
        sizes, factors = drawn(seed)
        least = tried(sizes, factors)
        limits: list[dict[str, int]] = [{}, {"most_states": 0}] if seed < 60 else [{}]
        if least == INF:
            impossible += 1
            for limit in limits:
                with pytest.raises(InvalidArguments, match="every assignment costs infinity"):
                    minimize(sizes, factors, **limit)
            continue
        assert reduce_problem(sizes, factors).lower_bound <= least * (1 + 1e-12)
        exact, *solved = (minimize(sizes, factors, **limit) for limit in limits)
        assert exact.method == "elimination"
        assert exact.cost == pytest.approx(least, rel=1e-12)
        assert exact.cost == exact.bound == total(factors, exact.assignment)
        for found in solved:
            assert (found.method, found.width) == ("milp", exact.width)
            assert found.cost == pytest.approx(exact.cost, rel=1e-9)
            assert exact.cost * (1 - 1e-6) <= found.bound <= found.cost
    assert 20 < impossible < 250, "some problems have no solution, and most have one"


def test_costs_may_lie_far_apart() -> None:
    sizes = (2, 2, 2)
    factors = [
        Factor((0, 1), np.array([[1e-4, 2500.0], [2e-4, 2e-4]])),
        Factor((1, 2), np.array([[2500.0, 3e-4], [1e-4, 2500.0]])),
    ]
    for most_states in (0, 1 << 20):
        found = minimize(sizes, factors, most_states=most_states)
        assert found.assignment == (1, 1, 0)
        assert found.cost == pytest.approx(3e-4)


def test_a_chain_of_a_thousand_variables_is_solved_along_the_chain() -> None:
    rng = np.random.default_rng(7)
    tables = rng.random((999, 12, 12))
    factors = [Factor((i, i + 1), table) for i, table in enumerate(tables)]
    best = np.zeros(12)
    for table in tables:
        best = (best[:, None] + table).min(axis=0)
    found = minimize([12] * 1000, factors)
    assert found.width == 1
    assert found.cost == pytest.approx(best.min())


def test_the_width_of_known_graphs() -> None:
    ring, star = [(i, (i + 1) % 9) for i in range(9)], [(0, i) for i in range(1, 9)]
    clique = list(itertools.combinations(range(5), 2))
    grid = [(i, i + 1) for i in range(16) if i % 4 < 3] + [(i, i + 4) for i in range(12)]
    widths = [elimination_order([3] * 16, scopes)[1] for scopes in (ring, clique, star, grid)]
    assert widths == [2, 4, 1, 4]


def test_a_wide_graph_goes_to_the_solver_with_its_proof() -> None:
    rng = np.random.default_rng(3)
    count = 12
    factors = [Factor((i, j), rng.random((3, 3))) for i, j in itertools.combinations(range(count), 2)]
    wide = minimize([3] * count, factors, most_states=1000)
    exact = minimize([3] * count, factors)
    assert (wide.method, exact.method) == ("milp", "elimination")
    assert wide.cost == pytest.approx(exact.cost)
    assert wide.bound == pytest.approx(wide.cost, rel=1e-5)


def test_the_solver_says_when_its_time_was_too_short() -> None:
    rng = np.random.default_rng(3)
    factors = [Factor((i, j), rng.random((6, 6))) for i, j in itertools.combinations(range(25), 2)]
    text = r"^no assignment was found in 1e-09 s \(.*\): give the solver more seconds$"
    with pytest.raises(Unimplemented, match=text):
        minimize([6] * 25, factors, seconds=1e-9)


def test_states_that_are_ruled_out_make_no_table_larger() -> None:
    one = np.full((1000, 1000), INF)
    one[3, 5] = one[7, 5] = 0.0
    factors = [Factor((0, 1), one), Factor((1, 2), one.T)]
    states = enforce_arc_consistency([1000] * 3, factors)
    assert [kept.tolist() for kept in states] == [[3, 7], [5], [3, 7]]
    assert minimize([1000] * 3, factors, most_states=8).cost == 0.0


def test_without_scipy_only_narrow_graphs_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    factors = [Factor((0, 1), np.eye(2))]
    assert minimize((2, 2), factors).cost == 0.0
    remedy = "the graph is too wide for elimination, and SciPy's solver is not installed: pip install 'inlay[sparse]'"
    with raises_exactly(MissingExtra, remedy):
        minimize((2, 2), factors, most_states=0)
