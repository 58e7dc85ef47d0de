"""`python -m benchmarks.costs`: what is paid before and beside the move, without the tables of reorders.

Importing, compiling every pair with an empty cache and from disk, calling again, and calling with 64 kB beside oneDNN;
each figure is the median of fresh processes and stands beside its aim. The exit code is 1 when an aim is missed.

    import inlay    118.0 [117.1-120.4] ms    < 150.0 ms    yes
"""

from typing import Annotated

import typer

from benchmarks.machine import this_machine
from benchmarks.output import built_on, console
from benchmarks.report import startup_table
from benchmarks.startup import PROCESSES, measured_startup

Processes = Annotated[int, typer.Option("--processes", min=1, help="Fresh processes for each figure.")]


def run(processes: Processes = PROCESSES) -> None:
    """Print what is paid before and beside the move, beside the aims."""
    to = console()
    for line in (*this_machine().lines(), built_on()):
        to.print(line, markup=False)
    figures = measured_startup(processes)
    to.print(startup_table(figures))
    if not all(figure.is_met for figure in figures):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(run)
