"""Options of `inlay convert` for its workers and for runs that go on."""

from typing import Annotated

import typer

WorkersOption = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="Convert in N processes; the default is this one.")
]
DaskOption = Annotated[
    str | None, typer.Option("--dask", metavar="ADDRESS|local", help="Convert on a cluster of Dask, or on a new one.")
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Start anew, though an interrupted run would go on.")]
