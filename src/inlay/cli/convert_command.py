"""The command that converts the memory formats of tensors in files: `inlay convert`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.application import TYPE_HELP, CleanOption, app, parse_dims
from inlay.cli.conversion_progress import ConversionProgress, clear_unfinished
from inlay.cli.output import echo
from inlay.cli.worker_options import DaskOption, RestartOption, WorkersOption
from inlay.errors import printable
from inlay.measure.interleaved import time_call

if TYPE_CHECKING:
    from inlay.storage import ConversionLoss, ConversionPlan


@app.command(short_help="Convert the tensors of a file to another format.")
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A .npy or .safetensors file.")],
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
    workers: WorkersOption = None,
    dask: DaskOption = None,
    restart: RestartOption = False,
    clean: CleanOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, one line per tensor.")] = False,
) -> None:
    """Convert the tensors of a file to another format; padding is added and removed as the format requires.

    PATTERN is a shell pattern for tensor names. The first --to that matches a tensor applies; tensors that no --to
    matches are copied unchanged. Descriptors of packed tensors are stored in the .safetensors file, so --to plain
    restores the original bit for bit.

    If over 0.1 % of the non-zero elements of a tensor would become 0 or saturate in the type of --dtype, nothing is
    written, unless --allow-loss is given.

    If a run is interrupted or killed, the same command goes on after the boxes that are written. --restart starts anew.

    For example:

      inlay convert image.npy -o image.safetensors --to nChw16c

      inlay convert w.safetensors -o p.safetensors --to 'conv*=OIhw16i16o'

      inlay convert p.safetensors -o w.safetensors --to plain

      inlay convert w.safetensors -o p.safetensors --to 'fc*=(o o16) i -> o i o16'

      inlay convert nhwc.npy -o nchw.npy --from nhwc --to nchw
    """
    # Imported here because it loads LLVM, which doubles the start-up time of other commands.
    from inlay.storage import convert as carry_out
    from inlay.storage import plan as make_plan

    logical = None if dims is None else parse_dims(dims)
    plan = make_plan(source, target, to, from_=from_ or (), data_type=data_type, dims=logical)
    if dry_run:
        echo(str(plan))
        return
    clear_unfinished(plan, clean)
    with ConversionProgress(plan) as bar:
        resumable = partial(carry_out, plan, bar.advance, restart=restart, on_resume=bar.note_resume)
        seconds, losses = time_call(partial(resumable, allow_loss=allow_loss, workers=workers, dask=dask))
    _print_result(plan, seconds, losses)


def _print_result(plan: "ConversionPlan", seconds: float, losses: "Sequence[ConversionLoss]") -> None:
    """Print what was written, and which tensors lost elements."""
    from rich.filesize import decimal

    count = f"{plan.converted} of {len(plan.tensors)} tensor{'s' * (len(plan.tensors) != 1)}"
    echo(f"wrote {printable(plan.target.location)}: {count} converted, {decimal(plan.nbytes)} in {seconds:.2f} s")
    for loss in losses:
        echo(str(loss))
