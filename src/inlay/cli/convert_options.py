"""Options of `inlay convert` for types, limits, workers, checks and reports."""

from pathlib import Path
from typing import Annotated

import typer

from inlay.cli.application import TYPE_HELP

NewTypeOption = Annotated[str | None, typer.Option("--dtype", metavar="TYPE", help=TYPE_HELP)]
AllowLossOption = Annotated[
    bool, typer.Option("--allow-loss", help="With --dtype: convert though elements become 0 or saturate.")
]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Most bytes of a box and its result, such as 256MB.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")]
VerifyOption = Annotated[bool, typer.Option("--verify", help="Read OUT back, and compare every element with IN.")]
ReportOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write formats, bytes, losses and rate as JSON.")
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="Convert in N processes; the default is this one.")
]
DaskOption = Annotated[
    str | None, typer.Option("--dask", metavar="ADDRESS|local", help="Convert on a cluster of Dask, or on a new one.")
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Start anew, though an interrupted run would go on.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, one line per tensor.")]
