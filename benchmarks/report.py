"""What a run says: the table of reorders, its means, the table of start-up, and all of it as JSON.

Every figure stands with its spread, the quartiles over the rounds, in brackets: `87 [85-88]`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.machine import Machine
from benchmarks.measure import Result
from benchmarks.peers import Missing, Peer
from benchmarks.startup import Figure
from benchmarks.timing import Rounds, Spread, mean_ratio


def reorder_table(results: Sequence[Result], others: Sequence[str]) -> Table:
    """One row per case: bytes, the copy, Inlay's percent of it, and how many times faster Inlay is than the others."""
    table = Table(
        box=box.SIMPLE_HEAD, title="Reorders, in percent of the best copy and beside the peers", title_justify="left"
    )
    for heading in ("reorder", "type", "size", "dims"):
        table.add_column(heading, no_wrap=True)
    for heading in ("MB moved", "copy", "Inlay % of copy", *(f"x {name}" for name in others)):
        table.add_column(heading, justify="right", no_wrap=True)
    previous = None
    for result in results:
        case = result.case
        if previous is not None and previous != case.size:
            table.add_section()
        previous = case.size
        cells = (case.name, case.data_type, case.size.name, "x".join(map(str, case.dims)), f"{case.nbytes / 1e6:.2f}")
        copy = f"{time_text(result.copy_time)} {result.best_copy}"
        table.add_row(*cells, copy, percent_text(result.percent_of_copy("Inlay")), *_ratio_cells(result, others))
    return table


def _ratio_cells(result: Result, others: Iterable[str]) -> list[str]:
    return [ratio_text(result.times_faster_than(name)) if name in result.seconds else "-" for name in others]


def means_table(results: Sequence[Result], others: Sequence[str]) -> Table:
    """Geometric means over the cases of each size and over all, and in how many of them Inlay is slower."""
    title = "Geometric means: percent of the best copy; times faster than each peer, and in how many cases slower"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("size")
    for heading in ("cases", "Inlay %", *(f"{name} %" for name in others), *(f"x {name}" for name in others)):
        table.add_column(heading, justify="right", no_wrap=True)
    sizes = list(dict.fromkeys(result.case.size.name for result in results))
    groups = {size: [r for r in results if r.case.size.name == size] for size in sizes}
    if len(sizes) > 1:
        groups["all"] = list(results)
    for size, group in groups.items():
        means = [_mean_percent(group, name) for name in ("Inlay", *others)]
        table.add_row(size, str(len(group)), *means, *(_mean_ratio_cell(group, name) for name in others))
    return table


def _mean_percent(results: Iterable[Result], peer: str) -> str:
    found = [r.percent_of_copy(peer).median for r in results if peer in r.seconds]
    return f"{mean_ratio(found):.0f}" if found else "-"


def _mean_ratio_cell(results: Iterable[Result], peer: str) -> str:
    found = [r.times_faster_than(peer).median for r in results if peer in r.seconds]
    if not found:
        return "-"
    slower = sum(ratio < 1 for ratio in found)
    return f"{mean_ratio(found):.2f} ({slower} slower)"


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


def notes(results: Iterable[Result], missing: Iterable[Missing]) -> list[str]:
    """Who is not in the tables, and why."""
    lines = [f"missing: {peer.name} ({peer.reason})" for peer in missing]
    for result in results:
        lines += [f"left out: {name} in {result.case.label}: {reason}" for name, reason in result.absent.items()]
    return lines


def percent_text(figure: Spread) -> str:
    """A percentage and its spread.

    >>> percent_text(Spread(87.2, 84.9, 88.1))
    '87 [85-88]'
    """
    return f"{figure.median:.0f} [{figure.low:.0f}-{figure.high:.0f}]"


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


def as_json(
    machine: Machine,
    rounds: Rounds,
    peers: Sequence[Peer],
    missing: Sequence[Missing],
    results: Sequence[Result],
    figures: Sequence[Figure],
    bystanders: float | None,
) -> dict[str, Any]:
    """The whole run as plain values: every time of every round, and the figures of the tables."""
    return {
        "machine": asdict(machine),
        "share_of_others": bystanders,
        "rounds": asdict(rounds),
        "versions": {peer.name: peer.version for peer in peers},
        "missing": {peer.name: peer.reason for peer in missing},
        "results": [_result_json(result) for result in results],
        "startup": [asdict(figure) | {"is_met": figure.is_met} for figure in figures],
    }


def _result_json(result: Result) -> dict[str, Any]:
    others = [name for name in result.seconds if name != "Inlay"]
    return {
        **asdict(result.case),
        "nbytes": result.case.nbytes,
        "seconds": result.seconds,
        "copy_seconds": result.copy_seconds,
        "best_copy": result.best_copy,
        "percent_of_copy": {name: asdict(result.percent_of_copy(name)) for name in result.seconds},
        "times_faster_than": {name: asdict(result.times_faster_than(name)) for name in others},
        "absent": result.absent,
    }
