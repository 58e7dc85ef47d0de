"""`python -m benchmarks.network_table`: networks beside ONNX Runtime, OpenVINO and torch, and what is aimed at.

    python -m benchmarks.network_table build/networks                      everything: half an hour
    python -m benchmarks.network_table build/networks --minutes 3          a piece; the same command measures the next
    python -m benchmarks.network_table build/networks --only "resnet50*"   one network
    python -m benchmarks.network_table build/networks --show               the tables of what is there

The exit code is 0, 1 where a network is slower than it may be without a reason, and 3 where something is still to be
measured.
"""

import time
from collections.abc import Sequence
from fnmatch import fnmatch
from math import inf
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from benchmarks.aims import Aim
from benchmarks.machine import this_machine
from benchmarks.misses import UNKNOWN
from benchmarks.network_results import (
    AIMS,
    ARENA,
    COLD,
    LEAST,
    NETWORKS,
    PIECES,
    PREDICTED,
    WARM,
    Folder,
    Result,
    Slow,
    known_reasons,
    mean,
    slow,
)
from benchmarks.output import built_on, console
from benchmarks.report import aims_table, ratio_text

UNFINISHED = 3
"""The exit code of a run that has stopped before its end."""

Where = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where results are kept, a JSON file for each network.")]
Batches = Annotated[str, typer.Option("--batches", metavar="LIST", help="Of 1 and 8, separated by commas.")]
Only = Annotated[str, typer.Option("--only", metavar="PATTERN", help="Labels to measure, such as 'resnet50 b*'.")]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="How often everybody takes a turn.")]
Minutes = Annotated[float | None, typer.Option("--minutes", min=0, help="Begin no piece after so many.")]
Again = Annotated[bool, typer.Option("--again", help="Measure runs that are there anew; plans are kept.")]
Show = Annotated[bool, typer.Option("--show", help="Measure nothing.")]


def run(
    where: Where,
    batches: Batches = "1,8",
    only: Only = "*",
    rounds: Rounds = 15,
    minutes: Minutes = None,
    again: Again = False,
    show: Show = False,
) -> None:
    """Measure networks beside other runtimes, and print the tables."""
    folder, end = Folder(where), inf if minutes is None else time.monotonic() + 60 * minutes
    wanted = [(name, int(batch)) for batch in batches.split(",") for name in NETWORKS]
    wanted = [(name, batch) for name, batch in wanted if fnmatch(f"{name} b{batch}", only)]
    still = 0 if show else measure_all(folder, wanted, rounds, end, again)
    results = [result for one in wanted if (result := folder.result(*one)).is_complete]
    found = list(slow(results, known_reasons()))
    to = console()
    for line in (*this_machine().lines(), built_on(), *bystander_lines(results)):
        to.print(line, markup=False)
    for table in (networks_table(results), aims_table(aims(results)), slow_table(found)):
        to.print(table)
    if still:
        to.print(f"{still} pieces are still to be measured: the same command goes on", markup=False)
        raise typer.Exit(UNFINISHED)
    if any(one.is_missed and one.reason is None for one in found):
        raise typer.Exit(1)


def measure_all(folder: Folder, wanted: Sequence[tuple[str, int]], rounds: int, end: float, again: bool) -> int:
    """Measure what is not there; no piece is begun after `end` on the monotonic clock.

    Post-condition: the number of pieces that are still missing.
    """
    missing = [
        (name, batch, piece)
        for name, batch in wanted
        for piece in PIECES
        if piece not in folder.result(name, batch).found or (again and piece == "run")
    ]
    for done, (name, batch, piece) in enumerate(missing):
        if time.monotonic() >= end:
            return len(missing) - done
        console().print(f"{name} b{batch}: {piece}", markup=False)
        folder.measure(name, batch, piece, rounds)
    return 0


def bystander_lines(results: Sequence[Result]) -> list[str]:
    """Networks beside which others computed: threads that wait for each other suffer most from company."""
    loud = [result.label for result in results if (result.found["run"]["share_of_others"] or 0) > 0.1]
    return [f"others took over 10 % of the processors in {', '.join(loud)}: not to be quoted"] if loud else []


def networks_table(results: Sequence[Result]) -> Table:
    """A line for each network."""
    title = "Networks, f32: how many times as fast as others Inlay is, and what else is promised"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("network", no_wrap=True)
    peers = (*AIMS, "torch")
    for heading in ("Inlay ms", *(f"x {peer}" for peer in peers), "predicted", "off", "arena MB", "cold s", "warm s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        ratios = [result.ratio(peer) for peer in peers]
        table.add_row(
            result.label,
            ratio_text(result.ms),
            *("-" if ratio is None else ratio_text(ratio) for ratio in ratios),
            f"{result.predicted:.2f}",
            f"{100 * result.error:+.0f} %",
            f"{result.arena / 1e6:.2f}",
            f"{result.seconds('cold'):.1f}",
            f"{result.seconds('warm'):.2f}",
        )
    return table


def aims(results: Sequence[Result]) -> list[Aim]:
    """What is aimed at over all networks, and of ResNet-50."""
    found = []
    for batch in (*dict.fromkeys(result.batch for result in results), None):
        group = [result for result in results if batch in (None, result.batch)]
        where = "all" if batch is None else f"batch {batch}"
        for peer, aim in AIMS.items():
            whole = mean(group, peer)
            if whole is not None:
                found.append(Aim(f"{where}: mean beside {peer}", f"{whole:.3f}", f"{aim}", whole >= aim))
    for peer in AIMS:
        known = [(ratio.median, result.label) for result in results if (ratio := result.ratio(peer)) is not None]
        if known:
            least, label = min(known)
            found.append(Aim(f"least beside {peer}: {label}", f"{least:.2f}", f"{LEAST}", least >= LEAST))
    return found + [aim for result in results if result.label == "resnet50 b1" for aim in _of_resnet(result)]


def _of_resnet(result: Result) -> list[Aim]:
    cold, warm = result.seconds("cold"), result.seconds("warm")
    return [
        Aim("ResNet-50: plan and compile, cold", f"{cold:.1f} s", f"< {COLD:.0f} s", cold < COLD),
        Aim("ResNet-50: plan and compile, warm", f"{warm:.2f} s", f"< {WARM:.0f} s", warm < WARM),
        Aim("ResNet-50: arena", f"{result.arena / 1e6:.2f} MB", f"<= {ARENA / 1e6:.0f} MB", result.arena <= ARENA),
        Aim(
            "ResNet-50: measured beside predicted",
            f"{100 * result.error:+.0f} %",
            f"within {100 * PREDICTED:.0f} %",
            abs(result.error) <= PREDICTED,
        ),
    ]


def slow_table(found: Sequence[Slow]) -> Table:
    """Networks below the aim of the mean, those that are slower than they may be marked, each with the reason."""
    unknown = sum(one.reason is None for one in found)
    words = f": {unknown} without a reason" if unknown else ""
    table = Table(box=box.SIMPLE_HEAD, title=f"Below the aim of the mean: {len(found)}{words}", title_justify="left")
    for heading in ("network", "beside", "found", ""):
        table.add_column(heading, no_wrap=True)
    for heading in ("reason", "tried"):
        table.add_column(heading, overflow="fold")
    for one in found:
        why = (UNKNOWN, "") if one.reason is None else (one.reason.reason, one.reason.tried)
        table.add_row(one.result.label, one.peer, ratio_text(one.ratio), "MISSED" if one.is_missed else "", *why)
    return table


if __name__ == "__main__":
    typer.run(run)
