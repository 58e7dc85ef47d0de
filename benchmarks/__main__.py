"""`python -m benchmarks`: the benchmark of the reorders, and of what is paid beside them."""

import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.cases import Case, Size, cases_of, matching, sizes_of
from benchmarks.copies import ThreadedMemcpy
from benchmarks.drawn import TABLE, drawn_pairs
from benchmarks.families import TABLES, all_cases
from benchmarks.machine import Machine, this_machine
from benchmarks.measure import measured_in_quiet
from benchmarks.output import built_on, console, rows_among, show
from benchmarks.peers import Missing, Peer, find_peers, sources_of_inlay
from benchmarks.record import Record, Setup, Unreadable, opened
from benchmarks.startup import PROCESSES, measured_startup
from benchmarks.timing import DEFAULT_ROUNDS, QUICK, Rounds

UNFINISHED = 3
"""The exit code of a run that has stopped before its end."""

Json = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Write every time to FILE, case by case; go on with an unfinished one."
    ),
]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the bar chart.")]
Quick = Annotated[
    bool,
    typer.Option("--quick", help="Three short rounds, and without --table the families beyond the L3 only: a look."),
]
Only = Annotated[
    str, typer.Option("--only", metavar="PATTERN", help="Cases whose label contains PATTERN; * and ? work.")
]
Sizes = Annotated[str, typer.Option("--sizes", metavar="LIST", help="Of L2, L3 and beyond, separated by commas.")]
Tables = Annotated[
    str,
    typer.Option(
        "--table", metavar="LIST", help=f"issue, the promised pairs; families, the rest; or of {', '.join(TABLES)}."
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--drawn", metavar="SEED", help="In place of tables: pairs that once were weak, at random sizes."),
]
Count = Annotated[int, typer.Option("--rounds", min=1, help="How often everybody takes a turn in each case.")]
Runs = Annotated[int, typer.Option("--runs", min=1, help="Measure everything so many times, one run after another.")]
Minutes = Annotated[
    float | None,
    typer.Option("--minutes", min=0, help="Stop after so many and exit with 3; the same command goes on, with --json."),
]
Startup = Annotated[bool, typer.Option(help="Measure import, compile and call as well.")]


def run(
    json_file: Json = None,
    svg_file: Svg = None,
    quick: Quick = False,
    only: Only = "",
    sizes: Sizes = "L2,L3,beyond",
    tables: Tables = "",
    seed: Seed = None,
    count: Count = DEFAULT_ROUNDS,
    runs: Runs = 1,
    startup: Startup = True,
    minutes: Minutes = None,
) -> None:
    """Measure reorders against a copy of the same bytes and against oneDNN, NumPy and PyTorch."""
    end = inf if minutes is None else time.monotonic() + 60 * minutes
    machine = this_machine()
    rounds = replace(QUICK, count=min(count, QUICK.count)) if quick else Rounds(count)
    cases = matching(_cases(chosen_sizes(machine, sizes), tables, seed), only)
    if quick and not tables and seed is None:
        cases = [case for case in cases if case.table == "issue" or not case.size.warm]
    if not cases:
        raise typer.BadParameter(f"no case of the sizes {sizes} has a label like *{only}*, such as nchw -> nhwc f32 L3")
    peers, missing = find_peers(machine.threads)
    record = record_for(json_file, machine, rounds, peers, missing)
    if startup and not record.startup:
        record.startup = measured_startup(2 if quick else PROCESSES)
        record.write()
    still = measure_all(record, cases, peers, runs, end)
    if still:
        console().print(f"{still} cases are still to be measured: the same command goes on", markup=False)
        raise typer.Exit(UNFINISHED)
    record.is_complete = True
    record.write()
    if not show(record, rows_among(record, {case.label for case in cases}), svg_file):
        raise typer.Exit(1)


def _cases(sizes: list[Size], tables: str, seed: int | None) -> list[Case]:
    if seed is None:
        return all_cases(sizes, chosen_tables(tables))
    return cases_of(drawn_pairs(seed), sizes, TABLE)


def record_for(
    json_file: Path | None, machine: Machine, rounds: Rounds, peers: list[Peer], missing: list[Missing]
) -> Record:
    """The record that a run with these peers writes to: the unfinished one in the file, or a new one.

    Raises:
        typer.BadParameter: the file holds something else, or another run.
    """
    versions = {peer.name: peer.version for peer in peers}
    versions["Inlay"] = f"{versions['Inlay']} (sources {sources_of_inlay()}; {built_on()})"
    try:
        return opened(json_file, Setup(machine, rounds, versions, {peer.name: peer.reason for peer in missing}))
    except Unreadable as error:
        raise typer.BadParameter(str(error)) from error


def chosen_sizes(machine: Machine, names: str) -> list[Size]:
    """The sizes that a list of names names.

    Raises:
        typer.BadParameter: a name is none of L2, L3 and beyond.
    """
    known = {size.name.lower(): size for size in sizes_of(machine)}
    wanted = [name.strip().lower() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise typer.BadParameter(f"no size is called {name!r}: --sizes takes some of L2, L3, beyond")
    return [size for name, size in known.items() if name in wanted]


def chosen_tables(names: str) -> list[str]:
    """The tables that a list of names names, in our order; all for no names.

    Raises:
        typer.BadParameter: a name is none of ours.
    """
    groups = {"": list(TABLES), "families": [name for name in TABLES if name != "issue"]}
    wanted: set[str] = set()
    for name in (name.strip().lower() for name in names.split(",")):
        if name not in groups and name not in TABLES:
            raise typer.BadParameter(
                f"no table is called {name!r}: --table takes some of {', '.join(['families', *TABLES])}"
            )
        wanted.update(groups.get(name, [name]))
    return [name for name in TABLES if name in wanted]


def measure_all(record: Record, cases: list[Case], peers: list[Peer], runs: int, end: float) -> int:
    """Measure what the record does not hold yet, run by run, case by case, and keep each result at once.

    What others disturbed in an earlier piece of the run is measured anew at the end. No case is begun after `end` on
    the monotonic clock. The progress bar is drawn between cases only, never while a clock runs.

    Post-condition: the number of cases that are still missing.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    memcpy = ThreadedMemcpy(record.setup.machine.processors)
    wanted = [(case, number) for number in range(runs) for case in cases]
    missing = [one for one in wanted if not record.holds(*one)] + [one for one in wanted if record.is_loud(*one)]
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", total=len(missing))
        for done, (case, number) in enumerate(missing):
            if time.monotonic() >= end:
                return len(missing) - done
            progress.update(task, description=case.label, refresh=True)
            record.add(measured_in_quiet(case, peers, memcpy, record.setup.rounds, number))
            progress.advance(task)
    return 0


if __name__ == "__main__":
    typer.run(run)
