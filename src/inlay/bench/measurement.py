"""The record of a comparison: seconds of each contender, round by round, the figures formed from them, and tables.

    measurement.percent_of_copy("Inlay")        the speed, where that of the best copy is 100
    measurement.times_faster_than("NumPy")      how many times as fast as NumPy Inlay is

Ratios are formed within each round, from neighbors in time. A figure is their median; its spread, in brackets, is the
range of the middle half of the rounds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from statistics import median
from typing import TYPE_CHECKING, Any

from inlay.measure.statistics import Spread, paired_ratio

if TYPE_CHECKING:
    from rich.table import Table

INLAY = "Inlay"
"""The name of Inlay's own contender."""
_WIDE = 1 << 12


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times of contenders that took turns, and of the copies that they are compared with."""

    seconds: Mapping[str, Sequence[float]]
    """Seconds per call of each contender, one entry for each round in which it took part; Inlay is one of them."""
    copies: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds per call of each way to copy as many bytes; empty if there is nothing to copy."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Contenders that were not timed, each with the reason."""

    def time(self, name: str) -> float:
        """Return the median of a contender's or copy's seconds."""
        return median(self._times(name))

    def _times(self, name: str) -> Sequence[float]:
        return self.seconds[name] if name in self.seconds else self.copies[name]

    @property
    def best_copy(self) -> str:
        """The fastest copy, which counts as 100 %: the least median of those that took part in the most rounds.

        A copy that left early was not the fastest then; if the machine slowed down later, only the others show it.

        >>> Measurement({}, {"left": [1.1], "stayed": [1.0, 1.5, 1.5], "behind": [1.0, 1.6, 1.6]}).best_copy
        'stayed'
        """
        most = max(map(len, self.copies.values()))
        return min((name for name, times in self.copies.items() if len(times) == most), key=self.time)

    def percent_of_copy(self, name: str) -> Spread:
        """Return the speed of a contender, where that of the fastest copy is 100."""
        return paired_ratio(self.copies[self.best_copy], self._times(name)).times(100)

    def times_faster_than(self, name: str) -> Spread:
        """Return how many times as fast as a contender or copy Inlay is."""
        return paired_ratio(self._times(name), self.seconds[INLAY])

    def figures(self, name: str) -> dict[str, Any]:
        """Return the times and figures of one contender or copy, as JSON holds them."""
        percent = {"percent_of_copy": asdict(self.percent_of_copy(name))} if self.copies else {}
        ratio = asdict(self.times_faster_than(name))
        return {"seconds": list(self._times(name)), **percent, "inlay_is_times_as_fast": ratio}


def table(
    headings: Sequence[str],
    rows: Iterable[Iterable[str]],
    title: str = "",
    *,
    left: Sequence[str] = (),
    fold: Sequence[str] = (),
) -> "Table":
    """Return a table for a terminal: the first column and those named in `left` are aligned left, all others right.

    With a title the table has a line below its headings. Columns named in `fold` break their lines where the terminal
    is too narrow. An empty row ends a section.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    style: Any = {"box": box.SIMPLE_HEAD} if title else {"box": None, "pad_edge": False, "padding": (0, 2, 0, 0)}
    made = Table(title=title or None, title_justify="left", **style)
    for i, heading in enumerate(headings):
        is_left = i == 0 or heading in left or heading in fold
        made.add_column(Text(heading), justify="left" if is_left else "right", no_wrap=heading not in fold)
    for row in map(tuple, rows):
        made.add_row(*map(Text, row)) if row else made.add_section()
    return made


def table_text(headings: Sequence[str], rows: Iterable[Iterable[str]], *, left: Sequence[str] = ()) -> str:
    """Return a table without lines as text, each column as wide as it needs.

    >>> print(table_text(["", "us"], [("copy", "2000.0"), ("Inlay", "4.0")]))
               us
    copy   2000.0
    Inlay     4.0
    """
    from rich.console import Console

    text = StringIO()
    Console(file=text, width=_WIDE, color_system=None, highlight=False).print(table(headings, rows, left=left))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def percent_text(figure: Spread) -> str:
    """Return a percentage and its spread.

    >>> percent_text(Spread(87.2, 84.9, 88.1))
    '87.2 [85-88]'
    """
    return f"{figure.median:.1f} [{figure.low:.0f}-{figure.high:.0f}]"


def ratio_text(figure: Spread) -> str:
    """Return a ratio and its spread.

    >>> [ratio_text(Spread(*figure)) for figure in ((2.313, 2.2, 2.44), (41.3, 39.0, 44.0), (812.6, 7.9, 956.0))]
    ['2.31 [2.20-2.44]', '41.3 [39.0-44.0]', '813 [8-956]']
    """
    digits = 2 if figure.median < 10 else 1 if figure.median < 100 else 0
    return f"{figure.median:.{digits}f} [{figure.low:.{digits}f}-{figure.high:.{digits}f}]"


def seconds_text(figure: Spread) -> str:
    """Return a time and its spread, in the unit that suits the time.

    >>> seconds_text(Spread(0.0123, 0.0119, 0.0131))
    '12.3 [11.9-13.1] ms'
    """
    unit, factor = _unit(figure.median)
    return f"{figure.median * factor:.1f} [{figure.low * factor:.1f}-{figure.high * factor:.1f}] {unit}"


def time_text(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> time_text(0.0123), time_text(3.2e-6)
    ('12.3 ms', '3.2 us')
    """
    unit, factor = _unit(seconds)
    return f"{seconds * factor:.1f} {unit}"


def _unit(seconds: float) -> tuple[str, float]:
    if seconds < 1e-3:
        return "us", 1e6
    return ("ms", 1e3) if seconds < 1 else ("s", 1.0)
