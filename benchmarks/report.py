"""The report of a record: tables on the terminal, and the picture in a file.

Every figure has its spread in brackets, `87.2 [85-88]`: the quartiles of the rounds of one run, or the lowest and the
highest of several runs.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean

from rich.console import Console
from rich.table import Table

from benchmarks import aims
from benchmarks.aims import Aim, Reason, missed_by, reason_cells
from benchmarks.record import Figure, Record, Row
from benchmarks.rounds import FAR, LOUD
from inlay.bench.contenders import DIFFERS
from inlay.bench.measurement import INLAY, percent_text, ratio_text, seconds_text, table, time_text
from inlay.render.bars import Bar, draw_bars

QUIET = 0.03  # share of all processors that the system itself needs
_MANY = 4
_SUFFERS = "threads that wait for each other suffer most from company"


def console() -> Console:
    """Return a console wide enough for every figure: a narrower terminal wraps the lines, `| less -S` does not."""
    return Console(highlight=False, width=220)


def show(record: Record, rows: Sequence[Row], svg_file: Path | None) -> bool:
    """Print the tables of these rows, and draw the picture if a file is named.

    Post-condition: True if all contenders left the same bytes as Inlay.
    """
    to, head = console(), head_lines(record, rows)
    others, reasons = [name for name in record.setup.versions if name != INLAY], aims.known_reasons()
    for line in head:
        to.print(line, markup=False)
    to.print(*reorder_tables(rows, others), means_table(rows, others), aims_table(aims.aims_over(rows)))
    if missed := aims.missed_aims(rows, reasons):
        to.print(misses_table(missed))
    for reason in aims.stale_reasons(reasons, rows):
        to.print(f"misses.toml explains what is not missed: {reason.case} {reason.misses}", markup=False)
    if record.startup:
        to.print(figures_table("Before and beside the move, fresh processes", record.startup))
    for line in (*absence_lines(rows, record), *bystander_lines(rows)):
        to.print(line, markup=False)
    if svg_file is not None:
        svg_file.parent.mkdir(parents=True, exist_ok=True)
        svg_file.write_text(draw_bars([bar_of(row) for row in rows], head))
    return not any(reason.startswith(DIFFERS) for row in rows for reason in row.absent.values())


def head_lines(record: Record, rows: Sequence[Row]) -> list[str]:
    """Return the conditions of all figures: machine, versions, sizes, rounds."""
    setup = record.setup
    rounds, runs = setup.rounds, len(record.runs)
    sizes = {row.case.size: None for row in rows}
    bounds = (f"{size.name} {'<=' if size.warm else '>='} {size.footprint / 2**20:g} MiB" for size in sizes)
    spread = f"medians of {rounds.count} interleaved rounds, quartiles in brackets"
    if runs > 1:
        spread = f"medians of {runs} runs of {rounds.count} interleaved rounds, lowest and highest in brackets"
    return [
        *setup.machine.lines,
        ", ".join(f"{name} {version}" for name, version in setup.versions.items()),
        f"source plus destination: {', '.join(bounds)}",
        f"{spread} ({rounds.first} of whoever takes {FAR} times as long as Inlay in each of these); "
        f"blocks of {rounds.block_seconds * 1e3:g} ms or one call, each after every thread has gone to rest",
    ]


def reorder_tables(rows: Sequence[Row], others: Sequence[str]) -> list[Table]:
    """Return a table for each table of cases: the best copy, percent of it, the aim, ratios to other contenders."""
    tables = []
    for name in dict.fromkeys(row.case.pair.table for row in rows):
        title = f"{name}: percent of the best copy, and how many times faster than each peer; the aim is 1 with oneDNN"
        lines, previous = list[tuple[str, ...]](), None
        for row in (row for row in rows if row.case.pair.table == name):
            lines += [()] if previous not in (None, row.case.size) else []  # a section
            lines.append(_cells(row, others))
            previous = row.case.size
        headings = ("reorder", "type", "size", "dims", "best copy", "Inlay %", "aim", "met", *_times(others))
        tables.append(table(headings, lines, title, left=("type", "size", "dims", "met")))
    return tables


def _cells(row: Row, others: Sequence[str]) -> tuple[str, ...]:
    pair = row.case.pair
    return (
        ", ".join(filter(None, (pair.formats, pair.note))),
        pair.types,
        row.case.size.name,
        "x".join(map(str, row.case.dims)),
        f"{time_text(row.copy[1])} {row.copy[0]}",
        percent_text(row.percent_of_copy()),
        "" if row.case.aim is None else f"{row.case.aim:.0f}",
        met_text(row),
        *(ratio_text(row.times_faster_than(name)) if name in row.peers else "-" for name in others),
    )


def _times(others: Iterable[str]) -> list[str]:
    return [f"x {name}" for name in others]


def met_text(row: Row) -> str:
    """Return whether the case meets its aims, or which it misses."""
    missed = missed_by(row)
    return "-" if missed is None else "NO: " + ", ".join(missed) if missed else "yes"


def means_table(rows: Sequence[Row], others: Sequence[str]) -> Table:
    """Return geometric means over the cases of each table and size and over all, and how often Inlay is slower."""
    tables, sizes = {row.case.pair.table for row in rows}, {row.case.size.name for row in rows}
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row.case.pair.table} {row.case.size.name}", []).append(row)
    for row in rows if len(tables) > 1 else ():
        groups.setdefault(f"all {row.case.size.name}", []).append(row)
    if len(sizes) > 1:
        groups["all"] = list(rows)
    lines = []
    for name, group in groups.items():
        percents = [[r.percent_of_copy(peer).median for r in group if peer in r.peers] for peer in (INLAY, *others)]
        ratios = [[r.times_faster_than(peer).median for r in group if peer in r.peers] for peer in others]
        means = (f"{geometric_mean(found):.0f}" if found else "-" for found in percents)
        slower = (f"{geometric_mean(x):.2f} ({sum(n < 1 for n in x)} slower)" if x else "-" for x in ratios)
        lines.append((name, str(len(group)), *means, *slower))
    title = "Geometric means: percent of the best copy; times faster than each peer, and in how many cases slower"
    return table(("cases", "count", *(f"{name} %" for name in (INLAY, *others)), *_times(others)), lines, title)


def aims_table(found: Iterable[Aim]) -> Table:
    """Return the aims over many cases, each beside the measured figure."""
    lines = [(aim.name, aim.found, aim.wanted, "yes" if aim.is_met else "NO") for aim in found]
    return table(("what", "found", "aim", "met"), lines, "Aims over many cases")


def misses_table(missed: Sequence[tuple[Row, str, Reason | None]]) -> Table:
    """Return every missed aim: the measured figure, the aim, the reason, and what was tried."""
    lines = []
    for row, what, reason in missed:
        found, aim = f"{percent_text(row.percent_of_copy())} % of copy", f"{row.case.aim or 0:.0f} %"
        if what != "copy":
            found, aim = f"{ratio_text(row.times_faster_than(what))} x {what}", "1"
        lines.append((row.case.label, found, aim, *reason_cells(reason)))
    title = f"Missed: {len(missed)}{aims.without_reason([reason for _, _, reason in missed])}"
    return table(
        ("case", "found", "aim", "reason", "tried"), lines, title, left=("found", "aim"), fold=("reason", "tried")
    )


def figures_table(title: str, figures: Iterable[Figure]) -> Table:
    """Return times, each beside its aim."""
    lines = []
    for figure in figures:
        aim = "" if figure.aim is None else f"< {time_text(figure.aim)}"
        met = "" if figure.aim is None else "yes" if figure.is_met else "NO"
        lines.append((figure.name, seconds_text(figure.seconds), aim, met))
    return table(("what", "time", "aim", "met"), lines, title)


def absence_lines(rows: Iterable[Row], record: Record) -> list[str]:
    """Return which contenders are not in the tables and why: a line for each reason."""
    lines = [f"missing: {name} ({reason})" for name, reason in record.setup.missing.items()]
    absent: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for row in rows:
        for name, reason in row.absent.items():
            names, pairs = absent.setdefault(reason, ({}, {}))
            names[name] = pairs[row.case.pair.label] = None
    for reason, (names, pairs) in absent.items():
        where = f"{len(pairs)} pairs" if len(pairs) > _MANY else ", ".join(pairs)
        lines.append(f"left out: {' and '.join(names)} in {where}: {reason}")
    return lines


def bystander_lines(rows: Iterable[Row]) -> list[str]:
    """Return what other processes took of the machine, and what that does to the figures."""
    results = [result for row in rows for result in row.results]
    shares = {i: result.share_of_others for i, result in enumerate(results) if result.share_of_others is not None}
    if not shares:
        return []
    mean = max(0.0, sum(shares.values()) / len(shares))
    verdict = "" if mean < QUIET else f": NOT TO BE QUOTED, {_SUFFERS}"
    lines = [f"other processes took {100 * mean:.0f} % of the processors during the run{verdict}"]
    if loud := dict.fromkeys(result.case.label for result in results if result.is_loud):
        lines.append(f"{100 * LOUD:.0f} % or more in {', '.join(loud)}: not to be quoted, {_SUFFERS}")
    return lines


def bar_of(row: Row) -> Bar:
    """Return the bar of a case."""
    case, missed = row.case, missed_by(row)
    percent = {name: row.percent_of_copy(name) for name in row.peers}
    dims, aim = "x".join(map(str, case.dims)), "" if case.aim is None else f"{case.aim:.0f} % of the copy and "
    name, seconds = row.copy
    lines = [f"{case.label}, {dims}: copy {time_text(seconds)} ({name}); aim {aim}no slower than {aims.RIVAL}"]
    for name, figure in percent.items():
        faster = "" if name == INLAY else f", Inlay is {ratio_text(row.times_faster_than(name))} times as fast"
        lines.append(f"{name}: {percent_text(figure)} % of the copy{faster}")
    state = "free" if missed is None else "missed" if missed else "met"
    return Bar(case.pair.table, case.pair.label, case.size.name, percent, case.aim, state, "\n".join(lines))
