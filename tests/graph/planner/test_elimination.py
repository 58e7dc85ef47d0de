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


@pytest.mark.parametrize("first", range(0, 500, 50))
def test_elimination_finds_the_least_of_all_assignments(first: int) -> None:
    for seed in range(first, first + 50):
        sizes, factors = drawn(seed)
        least = tried(sizes, factors)
        if least == INF:
            with pytest.raises(InvalidArguments, match="every assignment costs infinity"):
                minimize(sizes, factors)
            continue
        found = minimize(sizes, factors)
        assert found.method == "elimination"
        assert found.cost == pytest.approx(least, rel=1e-12)
        assert found.cost == found.bound == total(factors, found.assignment)


def test_some_of_the_drawn_problems_have_no_solution_and_most_have() -> None:
    impossible = sum(tried(*drawn(seed)) == INF for seed in range(500))
    assert 20 < impossible < 250


def test_the_solver_agrees_with_elimination() -> None:
    for seed in range(60):
        sizes, factors = drawn(seed)
        if tried(sizes, factors) == INF:
            with pytest.raises(InvalidArguments, match="every assignment costs infinity"):
                minimize(sizes, factors, most_states=0)
            continue
        found, exact = minimize(sizes, factors, most_states=0), minimize(sizes, factors)
        assert found.method == "milp"
        assert found.cost == pytest.approx(exact.cost, rel=1e-9)
        assert exact.cost * (1 - 1e-6) <= found.bound <= found.cost
        assert found.width == exact.width


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
    ring = [(i, (i + 1) % 9) for i in range(9)]
    clique = list(itertools.combinations(range(5), 2))
    star = [(0, i) for i in range(1, 9)]
    grid = [(4 * y + x, 4 * y + x + 1) for y in range(4) for x in range(3)]
    grid += [(4 * y + x, 4 * y + x + 4) for y in range(3) for x in range(4)]
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
    with pytest.raises(Unimplemented) as caught:
        minimize([6] * 25, factors, seconds=1e-9)
    assert str(caught.value).startswith("no assignment was found in 1e-09 s (")
    assert str(caught.value).endswith("): give the solver more seconds")


def test_states_that_are_ruled_out_make_no_table_larger() -> None:
    one = np.full((1000, 1000), INF)
    one[3, 5] = one[7, 5] = 0.0
    factors = [Factor((0, 1), one), Factor((1, 2), one.T), Factor((0, 2), one.T + one)]
    states = enforce_arc_consistency([1000] * 3, factors[:2])
    assert [kept.tolist() for kept in states] == [[3, 7], [5], [3, 7]]
    assert minimize([1000] * 3, factors[:2], most_states=8).cost == 0.0
    with pytest.raises(InvalidArguments) as caught:
        minimize([1000] * 3, factors)
    assert str(caught.value) == "every assignment costs infinity: the factors leave variable 0 no state"


def test_a_problem_that_only_pairs_rule_out_is_refused() -> None:
    unequal = np.where(np.eye(2) > 0, INF, 0.0)
    factors = [Factor((0, 1), unequal), Factor((1, 2), unequal), Factor((0, 2), unequal)]
    for most_states in (0, 1 << 20):
        with pytest.raises(InvalidArguments) as caught:
            minimize((2, 2, 2), factors, most_states=most_states)
        assert str(caught.value) == ("every assignment costs infinity: no states of the variables are allowed together")


@pytest.mark.parametrize(
    ("sizes", "factor", "text"),
    [
        ((2, 0), Factor((0,), np.zeros(2)), "variable 1 has 0 states: each needs at least one"),
        ((2, 2), Factor((0, 0), np.zeros((2, 2))), "factor 0 has variables (0, 0): name each once, from 0 to 1"),
        ((2, 2), Factor((0, 2), np.zeros((2, 2))), "factor 0 has variables (0, 2): name each once, from 0 to 1"),
        ((2, 3), Factor((1, 0), np.zeros((2, 3))), "factor 0 has a table of (2, 3), its variables have (3, 2) states"),
        (
            (2,),
            Factor((0,), np.array([0.0, math.nan])),
            "factor 0 holds a cost that is not a number or minus infinity: give numbers or inf",
        ),
        (
            (2,),
            Factor((0,), np.array([0.0, -INF])),
            "factor 0 holds a cost that is not a number or minus infinity: give numbers or inf",
        ),
    ],
)
def test_wrong_problems_are_refused(sizes: tuple[int, ...], factor: Factor, text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        minimize(sizes, [factor])
    assert str(caught.value) == text


def test_without_scipy_only_narrow_graphs_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    factors = [Factor((0, 1), np.eye(2))]
    assert minimize((2, 2), factors).cost == 0.0
    with pytest.raises(MissingExtra) as caught:
        minimize((2, 2), factors, most_states=0)
    assert str(caught.value) == (
        "the graph is too wide for elimination, and SciPy's solver is not installed: pip install 'inlay[sparse]'"
    )
