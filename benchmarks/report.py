"""What a run says: the tables of reorders, their means, what was aimed at, and the table of start-up.

Every figure stands with its spread in brackets, `87.2 [85-88]`: of one run the quartiles over the rounds, of several
the lowest and the highest run.
"""

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table

from benchmarks.aims import Aim, misses
from benchmarks.measure import LOUD
from benchmarks.misses import UNKNOWN, Miss
from benchmarks.peers import Missing
from benchmarks.runs import Row
from benchmarks.startup import Figure
from benchmarks.timing import mean_ratio
from inlay.measure.statistics import Spread

QUIET = 0.03
"""Of all processors: what the system itself needs."""
_MANY = 4
_SUFFERS = "threads that wait for each other suffer most from company"


def reorder_tables(rows: Sequence[Row], others: Sequence[str]) -> list[Table]:
    """One table per table of cases: the copy, percent of it, the aim, how many times faster than the others."""
    names = list(dict.fromkeys(row.case.table for row in rows))
    return [_reorder_table(name, [row for row in rows if row.case.table == name], others) for name in names]


def _reorder_table(name: str, rows: Sequence[Row], others: Sequence[str]) -> Table:
    title = f"{name}: percent of the best copy, and how many times faster than each peer; the aim is 1 with oneDNN"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in ("reorder", "type", "size", "dims"):
        table.add_column(heading, no_wrap=True)
    for heading in ("best copy", "Inlay %", "aim", "met", *(f"x {other}" for other in others)):
        table.add_column(heading, justify="left" if heading == "met" else "right", no_wrap=True)
    previous = None
    for row in rows:
        case = row.case
        if previous is not None and previous != case.size:
            table.add_section()
        previous = case.size
        what = f"{case.name}, {case.note}" if case.note else case.name
        cells = (what, case.types, case.size.name, "x".join(map(str, case.dims)))
        copy = f"{time_text(row.copy_time)} {row.best_copy}"
        percent = percent_text(row.percent_of_copy("Inlay"))
        aim = "" if case.aim is None else f"{case.aim:.0f}"
        table.add_row(*cells, copy, percent, aim, met_text(row), *_ratio_cells(row, others))
    return table


def met_text(row: Row) -> str:
    """Whether the case meets its aims, or which it misses."""
    missed = misses(row)
    if missed is None:
        return "-"
    return "NO: " + ", ".join(missed) if missed else "yes"


def _ratio_cells(row: Row, others: Iterable[str]) -> list[str]:
    return [ratio_text(row.times_faster_than(name)) if name in row.peers else "-" for name in others]


def means_table(rows: Sequence[Row], others: Sequence[str]) -> Table:
    """Geometric means over the cases of each table and size and over all, and in how many of them Inlay is slower."""
    title = "Geometric means: percent of the best copy; times faster than each peer, and in how many cases slower"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("cases")
    for heading in ("count", "Inlay %", *(f"{name} %" for name in others), *(f"x {name}" for name in others)):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, group in _groups(rows).items():
        means = [_mean_percent(group, name) for name in ("Inlay", *others)]
        table.add_row(name, str(len(group)), *means, *(_mean_ratio_cell(group, other) for other in others))
    return table


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each table and size; of all tables together where there are several."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row.case.table} {row.case.size.name}", []).append(row)
    if len({row.case.table for row in rows}) > 1:
        for row in rows:
            groups.setdefault(f"all {row.case.size.name}", []).append(row)
    if len({row.case.size.name for row in rows}) > 1:
        groups["all"] = list(rows)
    return groups


def _mean_percent(rows: Iterable[Row], peer: str) -> str:
    found = [row.percent_of_copy(peer).median for row in rows if peer in row.peers]
    return f"{mean_ratio(found):.0f}" if found else "-"


def _mean_ratio_cell(rows: Iterable[Row], peer: str) -> str:
    found = [row.times_faster_than(peer).median for row in rows if peer in row.peers]
    if not found:
        return "-"
    slower = sum(ratio < 1 for ratio in found)
    return f"{mean_ratio(found):.2f} ({slower} slower)"


def aims_table(aims: Iterable[Aim]) -> Table:
    """The aims over many cases, each beside what was found."""
    table = Table(box=box.SIMPLE_HEAD, title="What is aimed at", title_justify="left")
    table.add_column("what")
    for heading in ("found", "aim", "met"):
        table.add_column(heading, justify="right")
    for aim in aims:
        table.add_row(aim.name, aim.found, aim.wanted, "yes" if aim.is_met else "NO")
    return table


def misses_table(misses: Sequence[Miss]) -> Table:
    """Every aim that a case misses: what was found, what was aimed at, why, and what was tried."""
    unknown = sum(miss.reason is None for miss in misses)
    words = f": {unknown} without a reason" if unknown else ""
    table = Table(box=box.SIMPLE_HEAD, title=f"Missed: {len(misses)}{words}", title_justify="left")
    for heading in ("case", "found", "aim"):
        table.add_column(heading, no_wrap=True)
    for heading in ("reason", "tried"):
        table.add_column(heading, overflow="fold")
    for miss in misses:
        row = miss.row
        if miss.missed == "copy":
            found, aim = f"{percent_text(row.percent_of_copy('Inlay'))} % of copy", f"{row.case.aim:.0f} %"
        else:
            found, aim = f"{ratio_text(row.times_faster_than(miss.missed))} x {miss.missed}", "1"
        why = (UNKNOWN, "") if miss.reason is None else (miss.reason.reason, miss.reason.tried)
        table.add_row(row.case.label, found, aim, *why)
    return table


def startup_table(figures: Iterable[Figure]) -> Table:
    """Import, compile and call, with the aim of each."""
    return figures_table("Before and beside the move, fresh processes", figures)


def figures_table(title: str, figures: Iterable[Figure]) -> Table:
    """Times, each beside its aim."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("what")
    for heading in ("time", "aim", "met"):
        table.add_column(heading, justify="right")
    for figure in figures:
        aim = "" if figure.aim is None else f"< {time_text(figure.aim)}"
        met = "" if figure.aim is None else "yes" if figure.is_met else "NO"
        table.add_row(figure.name, seconds_text(figure.seconds), aim, met)
    return table


def notes(rows: Iterable[Row], missing: Iterable[Missing]) -> list[str]:
    """Who is not in the tables, and why; pairs and peers that share a reason stand together."""
    lines = [f"missing: {peer.name} ({peer.reason})" for peer in missing]
    peers: dict[str, dict[str, None]] = {}
    pairs: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, reason in row.absent.items():
            peers.setdefault(reason, {})[name] = None
            pairs.setdefault(reason, {})[row.case.pair] = None
    for reason, names in peers.items():
        count = len(pairs[reason])
        where = f"{count} pairs" if count > _MANY else ", ".join(pairs[reason])
        lines.append(f"left out: {' and '.join(names)} in {where}: {reason}")
    return lines


def bystanders_lines(rows: Iterable[Row]) -> list[str]:
    """What else ran on the machine, and what that does to the figures."""
    shares = [
        (result.share_of_others, row.case.label)
        for row in rows
        for result in row.results
        if result.share_of_others is not None
    ]
    if not shares:
        return []
    mean = max(0.0, sum(share for share, _ in shares) / len(shares))
    verdict = "" if mean < QUIET else f": NOT TO BE QUOTED, {_SUFFERS}"
    lines = [f"other processes took {100 * mean:.0f} % of the processors during the run{verdict}"]
    loud = list(dict.fromkeys(label for share, label in shares if share >= LOUD))
    if loud:
        lines.append(f"{100 * LOUD:.0f} % or more in {', '.join(loud)}: not to be quoted, {_SUFFERS}")
    return lines


def percent_text(figure: Spread) -> str:
    """A percentage and its spread.

    >>> percent_text(Spread(87.2, 84.9, 88.1))
    '87.2 [85-88]'
    """
    return f"{figure.median:.1f} [{figure.low:.0f}-{figure.high:.0f}]"


def ratio_text(figure: Spread) -> str:
    """A ratio and its spread.

    >>> [ratio_text(Spread(*figure)) for figure in ((2.313, 2.2, 2.44), (41.3, 39.0, 44.0), (812.6, 7.9, 956.0))]
    ['2.31 [2.20-2.44]', '41.3 [39.0-44.0]', '813 [8-956]']
    """
    digits = 2 if figure.median < 10 else 1 if figure.median < 100 else 0
    return f"{figure.median:.{digits}f} [{figure.low:.{digits}f}-{figure.high:.{digits}f}]"


def seconds_text(figure: Spread) -> str:
    """A time and its spread, in the unit that suits the time.

    >>> seconds_text(Spread(0.0123, 0.0119, 0.0131))
    '12.3 [11.9-13.1] ms'
    """
    unit, factor = _unit(figure.median)
    return f"{figure.median * factor:.1f} [{figure.low * factor:.1f}-{figure.high * factor:.1f}] {unit}"


def time_text(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> time_text(0.0123), time_text(3.2e-6)
    ('12.3 ms', '3.2 us')
    """
    unit, factor = _unit(seconds)
    return f"{seconds * factor:.1f} {unit}"


def _unit(seconds: float) -> tuple[str, float]:
    if seconds < 1e-3:
        return "us", 1e6
    return ("ms", 1e3) if seconds < 1 else ("s", 1.0)
