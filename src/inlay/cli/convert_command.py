"""The command that converts the memory formats of tensors in files: `inlay convert`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay.cli.application import TYPE_HELP, CleanOption, app, clear_abandoned, parse_dims
from inlay.cli.output import echo
from inlay.errors import printable
from inlay.files import Progress
from inlay.measure.interleaved import time_call

if TYPE_CHECKING:
    from inlay.storage import ConversionPlan


MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Most bytes of a box and its result, as 256MB.")
]
ChunksOption = Annotated[
    list[str] | None,
    typer.Option("--chunks", metavar="[PATTERN=]N,N...", help="Chunks of a Zarr target; -1 is a whole axis."),
]


@app.command(short_help="Convert the tensors of a file to another format.")
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A .npy or .safetensors file, or a Zarr directory.")],
    target: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="The file to write.")],
    to: Annotated[
        list[str],
        typer.Option(
            "--to", metavar="[PATTERN=]TAG", help="New format: tag, pattern or shape:stride; `plain` is row-major."
        ),
    ],
    from_: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="[PATTERN=]TAG", help="Format of memory that the file does not describe."),
    ] = None,
    data_type: Annotated[str | None, typer.Option("--dtype", metavar="TYPE", help=TYPE_HELP)] = None,
    dims: Annotated[
        str | None, typer.Option("--dims", metavar="DIMS", help="With --from: the dims, where the shape is not enough.")
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="With --dtype: convert though elements become 0 or saturate.")
    ] = False,
    clean: CleanOption = False,
    memory: MemoryOption = None,
    chunks: ChunksOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, one line per tensor.")] = False,
) -> None:
    """Convert the tensors of a file to another format; padding is added and removed as the format requires.

    PATTERN is a shell pattern for tensor names. The first --to that matches a tensor applies; tensors that no --to
    matches are copied unchanged. Descriptors of packed tensors are stored in the .safetensors file, so --to plain
    restores the original bit for bit.

    If over 0.1 % of the non-zero elements of a tensor would become 0 or saturate in the type of --dtype, nothing is
    written, unless --allow-loss is given.

    For example:

      inlay convert image.npy -o image.safetensors --to nChw16c

      inlay convert w.safetensors -o p.safetensors --to 'conv*=OIhw16i16o'

      inlay convert p.safetensors -o w.safetensors --to plain

      inlay convert w.safetensors -o p.safetensors --to 'fc*=(o o16) i -> o i o16'

      inlay convert nhwc.npy -o nchw.npy --from nhwc --to nchw

      inlay convert a.zarr -o b.zarr --to ba --chunks -1,256 --memory 256MB
    """
    # Imported here because it loads LLVM, which doubles the start-up time of other commands.
    from inlay.storage import convert as carry_out
    from inlay.storage import plan as make_plan

    logical, sizes = None if dims is None else parse_dims(dims), _sizes(memory, chunks)
    plan = make_plan(source, target, to, from_=from_ or (), data_type=data_type, dims=logical, **sizes)
    if dry_run:
        echo(str(plan))
        return
    from rich.filesize import decimal

    clear_abandoned(target, clean)
    with _progress_bar(plan) as progress:
        seconds, losses = time_call(lambda: carry_out(plan, progress, allow_loss=allow_loss))
    count = f"{plan.converted} of {len(plan.tensors)} tensor{'s' * (len(plan.tensors) != 1)}"
    echo(f"wrote {printable(str(target))}: {count} converted, {decimal(plan.nbytes)} in {seconds:.2f} s")
    for loss in losses:
        echo(str(loss))


def _sizes(memory: str | None, chunks: list[str] | None) -> dict[str, Any]:
    """Return the arguments of `plan` for the options that are given."""
    return {name: value for name, value in (("memory", memory), ("chunks", chunks)) if value is not None}


@contextmanager
def _progress_bar(plan: "ConversionPlan") -> Iterator[Progress | None]:
    """Draw a progress bar over the bytes of `plan`, if the error stream is a terminal and there are at least 16 MiB."""
    if not sys.stderr.isatty() or plan.nbytes < 1 << 24:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(TextColumn("{task.description}", markup=False), *columns, console=console, transient=True) as bar:
        task = bar.add_task(printable(plan.target.location), total=plan.nbytes_of_passes)
        yield lambda n: bar.advance(task, n)
