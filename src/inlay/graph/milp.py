"""The minimum of a sum of costs by a solver of integer programs, where elimination would need too large a table.

The local polytope: a variable x of 0 or 1 for each state, of which one is 1; a weight y for each allowed combination of
a factor, which sums to x along each axis.

    minimize  sum c y    with    sum over states of x[v] = 1,    sum of y over combinations with v = s  is  x[v, s]

HiGHS branches and bounds, and tells the bound it proved.

Source: Wainwright and Jordan, "Graphical Models, Exponential Families, and Variational Inference" (2008), section 4;
`scipy.optimize.milp`.
"""

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.graph.factors import Factor, total

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
