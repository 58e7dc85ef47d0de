"""Runs cases of one operation with Inlay and oneDNN, classifies differing results, and counts.

operation      cases  success  refused   explained
reshape        12000     8254     3731  15: a blocked axis is neither dropped nor joined
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from inlay.testing import Choices, Scope
from tests.parity.differences import counts_overflow, explain
from tests.parity.operations import UNSAID, Answer, Case, Operation, answer

BATCH = 500


@dataclass(slots=True)
class Tally:
    """The counts of one operation."""

    operation: Operation
    """Operation that was compared."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Numbers of equal results, by the two outcomes of the operation."""
    explained: Counter[str] = field(default_factory=Counter)
    """Numbers of different results, by the name of the intended difference."""
    unsaid: int = 0
    """Number of cases for which the library has no visible result."""
    unexplained: list[tuple[Case, Answer, Answer]] = field(default_factory=list)
    """Cases of unintended differences, with the results of Inlay and oneDNN."""

    @property
    def compared(self) -> int:
        """The number of compared cases."""
        return sum(self.outcomes.values()) + sum(self.explained.values()) + len(self.unexplained)

    def compare(self, cases: Sequence[Case]) -> None:
        """Run cases with both libraries, compare the results and count."""
        safe = []
        for case in cases:
            if counts_overflow(case):
                self._judge(case, answer(lambda case=case: self.operation.ours(case)), UNSAID)  # type: ignore[misc]
            else:
                safe.append(case)
        for case, real in zip(safe, self.operation.real_answers(safe), strict=True):
            if real == UNSAID:
                self.unsaid += 1
            else:
                self._judge(case, answer(lambda case=case: self.operation.ours(case)), real)  # type: ignore[misc]

    def _judge(self, case: Case, mine: Answer, real: Answer) -> None:
        if mine == real:
            self.outcomes[self.operation.counted[not self.operation.is_first(real)]] += 1
        elif name := explain(case, mine, real):
            self.explained[name] += 1
        else:
            self.unexplained.append((case, mine, real))

    def fault(self) -> str:
        """Return the text of the first unintended difference; empty if there is none."""
        if not self.unexplained:
            return ""
        case, mine, real = self.unexplained[0]
        return f"{len(self.unexplained)} of {self.compared}, such as\n{case!r}\nInlay  {mine}\noneDNN {real}"

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        first, second = self.operation.counted
        why = "; ".join(f"{n}: {name}" for name, n in sorted(self.explained.items()))
        return (
            self.operation.name,
            str(self.compared),
            f"{self.outcomes[first]} {first}",
            f"{self.outcomes[second]} {second}",
            str(len(self.unexplained)),
            why,
        )


def run(operation: Operation, choose: Choices, scope: Scope, count: int) -> Tally:
    """Compare `count` different cases for which the library has a visible result."""
    tally = Tally(operation)
    seen: set[Case] = set()
    while tally.compared < count:
        batch: list[Case] = []
        while len(batch) < min(BATCH, count - tally.compared):
            case = operation.draw(choose, scope)
            if case not in seen:
                seen.add(case)
                batch.append(case)
        tally.compare(batch)
    return tally


def table(tallies: Iterable[Tally]) -> list[str]:
    """Return the lines of a table with totals."""
    tallies = list(tallies)
    total = str(sum(tally.compared for tally in tallies))
    unexplained = str(sum(len(tally.unexplained) for tally in tallies))
    head = ("operation", "cases", "accepted", "refused", "unexplained", "intended differences")
    rows = [head, *(tally.row() for tally in tallies), ("total", total, "", "", unexplained, "")]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
