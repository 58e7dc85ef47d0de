"""Where a record goes: tables on the terminal, a picture in a file. Everything says which machine it is about."""

from collections.abc import Sequence
from pathlib import Path

import llvmlite
import ml_dtypes
from llvmlite.binding import llvm_version_info
from rich.console import Console

from benchmarks.aims import promised
from benchmarks.chart import draw_chart
from benchmarks.measure import DIFFERS, FAR
from benchmarks.misses import known_reasons, missed_aims, stale
from benchmarks.peers import Missing
from benchmarks.record import Record
from benchmarks.report import (
    aims_table,
    bystanders_lines,
    means_table,
    misses_table,
    notes,
    reorder_tables,
    startup_table,
)
from benchmarks.runs import Row, rows_of
from benchmarks.timing import Rounds

_WIDTH = 220


def console() -> Console:
    """Wide enough for every figure: a narrower terminal wraps the lines, `| less -S` does not."""
    return Console(highlight=False, width=_WIDTH)


def show(record: Record, rows: Sequence[Row], svg_file: Path | None) -> bool:
    """Print the tables of these rows, and draw the picture if it is wanted.

    Post-condition: whether everybody who was measured left the same bytes as Inlay.
    """
    to = console()
    for line in head_lines(record, rows):
        to.print(line, markup=False)
    print_record(record, rows, to)
    if svg_file is not None:
        write_chart(record, rows, svg_file)
    return not somebody_differs(rows)


def head_lines(record: Record, rows: Sequence[Row]) -> list[str]:
    """What a reader must know beside the figures: machine, versions, sizes, how often was measured."""
    setup = record.setup
    versions = ", ".join(f"{name} {version}" for name, version in setup.versions.items())
    sizes = {row.case.size: None for row in rows}
    bounds = (f"{size.name} {'<=' if size.warm else '>='} {size.footprint / 2**20:g} MiB" for size in sizes)
    return [
        *setup.machine.lines(),
        versions,
        f"source plus destination: {', '.join(bounds)}",
        rounds_line(setup.rounds, len({result.run for result in record.results})),
    ]


def built_on() -> str:
    """What Inlay stands on."""
    llvm = ".".join(map(str, llvm_version_info))
    return f"llvmlite {llvmlite.__version__} with LLVM {llvm}, ml_dtypes {ml_dtypes.__version__}"


def rounds_line(rounds: Rounds, runs: int) -> str:
    """How the figures were taken."""
    blocks = f"blocks of {rounds.block_seconds * 1e3:g} ms or one call, each after every thread has gone to rest"
    few = f"{rounds.first} of whoever takes {FAR} times as long as Inlay in each of these"
    if runs > 1:
        spread = f"medians of {runs} runs of {rounds.count} interleaved rounds, lowest and highest in brackets"
    else:
        spread = f"medians of {rounds.count} interleaved rounds, quartiles in brackets"
    return f"{spread} ({few}); {blocks}"


def print_record(record: Record, rows: Sequence[Row], to: Console) -> None:
    """Every table, and who is not in them."""
    others = [name for name in record.setup.versions if name != "Inlay"]
    reasons = known_reasons()
    missed = missed_aims(rows, reasons)
    to.print(*reorder_tables(rows, others), means_table(rows, others), aims_table(promised(rows)))
    if missed:
        to.print(misses_table(missed))
    for reason in stale(reasons, rows, missed):
        to.print(f"misses.toml explains what is not missed: {reason.case} {reason.misses}", markup=False)
    if record.startup:
        to.print(startup_table(record.startup))
    missing = [Missing(name, reason) for name, reason in record.setup.missing.items()]
    for line in (*notes(rows, missing), *bystanders_lines(rows)):
        to.print(line, markup=False)


def write_chart(record: Record, rows: Sequence[Row], path: Path) -> None:
    """The picture, as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw_chart(rows, head_lines(record, rows)))


def somebody_differs(rows: Sequence[Row]) -> bool:
    """Whether the bytes of some peer were others than Inlay's."""
    return any(reason.startswith(DIFFERS) for row in rows for reason in row.absent.values())


def rows_among(record: Record, labels: set[str]) -> list[Row]:
    """The rows of these cases, in the order in which they were measured."""
    return [row for row in rows_of(record.results) if row.case.label in labels]
