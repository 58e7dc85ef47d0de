"""`python -m benchmarks`: the benchmark of the reorders, and of what is paid beside them."""

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import llvmlite
import ml_dtypes
import typer
from llvmlite.binding import llvm_version_info
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.cases import Case, Size, all_cases, matching, sizes_of
from benchmarks.copies import ThreadedMemcpy
from benchmarks.machine import Bystanders, Machine, this_machine
from benchmarks.measure import DIFFERS, Result, measured
from benchmarks.peers import Peer, find_peers
from benchmarks.report import as_json, means_table, notes, reorder_table, startup_table
from benchmarks.startup import measured_startup
from benchmarks.timing import DEFAULT_ROUNDS, Rounds

_WIDTH = 200  # of a table that is written to a file
_QUIET = 0.03  # of all processors: what the system itself needs

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write every time and figure to FILE.")]
Quick = Annotated[bool, typer.Option("--quick", help="Three rounds and two processes: for a look, not for a claim.")]
Only = Annotated[
    str, typer.Option("--only", metavar="PATTERN", help="Cases whose label contains PATTERN; * and ? work.")
]
Sizes = Annotated[str, typer.Option("--sizes", metavar="LIST", help="Of L2, L3 and beyond, separated by commas.")]
Count = Annotated[int, typer.Option("--rounds", min=1, help="How often everybody takes a turn in each case.")]
Startup = Annotated[bool, typer.Option(help="Measure import, compile and call as well.")]


def run(
    json_file: Json = None,
    quick: Quick = False,
    only: Only = "",
    sizes: Sizes = "L2,L3,beyond",
    count: Count = DEFAULT_ROUNDS,
    startup: Startup = True,
) -> None:
    """Measure reorders against a copy of the same bytes and against oneDNN, NumPy and PyTorch."""
    machine = this_machine()
    rounds = replace(Rounds(), count=min(count, 3) if quick else count)
    chosen = chosen_sizes(machine, sizes)
    cases = matching(all_cases(chosen), only)
    if not cases:
        raise typer.BadParameter(f"no case of the sizes {sizes} has a label like *{only}*, such as nchw -> nhwc f32 L3")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    bystanders = Bystanders()
    figures = measured_startup(2 if quick else 5) if startup else []
    peers, missing = find_peers(machine.threads)
    for line in (*machine.lines(), versions_line(peers), sizes_line(chosen), rounds_line(rounds)):
        console.print(line, markup=False)
    results = measure_all(cases, peers, rounds, ThreadedMemcpy(machine.processors))
    others = [peer.name for peer in peers if peer.name != "Inlay"]
    console.print(reorder_table(results, others), means_table(results, others))
    if figures:
        console.print(startup_table(figures))
    share = bystanders.share()
    for line in (*notes(results, missing), *bystanders_line(share)):
        console.print(line, markup=False)
    if json_file is not None:
        answer = as_json(machine, rounds, peers, missing, results, figures, share)
        json_file.write_text(json.dumps(answer, indent=1) + "\n")
    if any(reason.startswith(DIFFERS) for result in results for reason in result.absent.values()):
        raise typer.Exit(1)


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


def versions_line(peers: list[Peer]) -> str:
    """Who is measured, and what Inlay stands on."""
    llvm = ".".join(map(str, llvm_version_info))
    found = ", ".join(f"{peer.name} {peer.version}" for peer in peers)
    return f"{found}; llvmlite {llvmlite.__version__} with LLVM {llvm}, ml_dtypes {ml_dtypes.__version__}"


def sizes_line(sizes: Iterable[Size]) -> str:
    """How many bytes each size stands for."""
    bounds = (f"{size.name} {'<=' if size.warm else '>='} {size.footprint / 2**20:g} MiB" for size in sizes)
    return f"source plus destination: {', '.join(bounds)}"


def rounds_line(rounds: Rounds) -> str:
    """How the figures were taken."""
    return (
        f"medians of {rounds.count} interleaved rounds, quartiles in brackets; blocks of "
        f"{rounds.block_seconds * 1e3:g} ms or one call, {rounds.settle_seconds * 1e3:g} ms of rest before each"
    )


def bystanders_line(share: float | None) -> list[str]:
    """What else ran on the machine, and what that does to the figures."""
    if share is None:
        return []
    verdict = "" if share < _QUIET else ": NOT TO BE QUOTED, threads that wait for each other suffer most from company"
    return [f"other processes took {100 * share:.0f} % of the processors during the run{verdict}"]


def measure_all(cases: list[Case], peers: list[Peer], rounds: Rounds, memcpy: ThreadedMemcpy) -> list[Result]:
    """Measure case by case. The progress bar is drawn between cases only, never while a clock runs."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = []
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", total=len(cases))
        for case in cases:
            progress.update(task, description=case.label, refresh=True)
            results.append(measured(case, peers, memcpy, rounds))
            progress.advance(task)
    return results


if __name__ == "__main__":
    typer.run(run)
