"""One row per case, from one run or from several.

With one run a figure is the median of its rounds and the spread their quartiles. With several it is the median of the
runs' figures and the spread the lowest and the highest of them: of three runs, `87 [85-88]` names all three.

    >>> over_runs([Spread(87.0, 80.0, 90.0), Spread(85.0, 84.0, 86.0), Spread(88.0, 87.0, 89.0)])
    Spread(median=87.0, low=85.0, high=88.0)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.cases import Case
from benchmarks.measure import Result
from inlay.measure.statistics import Spread


@dataclass(frozen=True, slots=True)
class Row:
    """What several runs say of one case."""

    case: Case
    """The case."""
    results: tuple[Result, ...]
    """What was measured, run by run; at least one."""

    @property
    def peers(self) -> list[str]:
        """Everybody who was timed in every run, Inlay among them."""
        return [name for name in self.results[0].seconds if all(name in result.seconds for result in self.results)]

    @property
    def best_copy(self) -> str:
        """The copy that was 100 % in the first run."""
        return self.results[0].best_copy

    @property
    def copy_time(self) -> float:
        """Seconds of the best copy."""
        return median(result.copy_time for result in self.results)

    @property
    def absent(self) -> dict[str, str]:
        """Whoever was not timed in some run, and why."""
        return {name: reason for result in self.results for name, reason in result.absent.items()}

    def percent_of_copy(self, peer: str) -> Spread:
        """The speed of a peer, where that of the best copy is 100."""
        return over_runs([result.percent_of_copy(peer) for result in self.results])

    def times_faster_than(self, peer: str) -> Spread:
        """How many times faster Inlay is than `peer`."""
        return over_runs([result.times_faster_than(peer) for result in self.results])


def over_runs(figures: Sequence[Spread]) -> Spread:
    """The only figure; or the median of several, with the lowest and the highest of them."""
    if len(figures) == 1:
        return figures[0]
    medians = [figure.median for figure in figures]
    return Spread(median(medians), min(medians), max(medians))


def rows_of(results: Iterable[Result]) -> list[Row]:
    """The results, those of one case together, in the order in which the cases come first."""
    found: dict[tuple[str, tuple[int, ...]], list[Result]] = {}
    for result in results:
        found.setdefault((result.case.label, result.case.dims), []).append(result)
    return [Row(group[0].case, tuple(group)) for group in found.values()]
