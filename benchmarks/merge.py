"""`python -m benchmarks.merge`: the tables and the picture of runs that were written before, without measuring.

    python -m benchmarks.merge one.json two.json three.json --svg three.svg

Each figure is then the median of the runs, with the lowest and the highest in brackets. One file alone is shown as it
was measured.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.output import show
from benchmarks.record import Unreadable, as_json, loaded, merged
from benchmarks.runs import rows_of

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `python -m benchmarks --json` wrote.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all runs to FILE.")]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the bar chart.")]


def run(files: Files, json_file: Json = None, svg_file: Svg = None) -> None:
    """Print each figure from all runs of the files."""
    try:
        record = merged([loaded(path) for path in files])
    except (OSError, Unreadable) as error:
        raise typer.BadParameter(str(error)) from error
    if not record.results:
        raise typer.BadParameter("the files hold no case yet")
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(record)) + "\n")
    if not show(record, rows_of(record.results), svg_file):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(run)
