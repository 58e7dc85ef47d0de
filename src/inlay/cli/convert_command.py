"""The command that converts the memory formats of tensors in files: `inlay convert`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.application import TYPE_HELP, CleanOption, app, clear_abandoned, parse_dims
from inlay.cli.output import echo
from inlay.errors import InvalidArguments, printable
from inlay.files import Progress
from inlay.measure.interleaved import time_call

if TYPE_CHECKING:
    from inlay.storage import ConversionPlan

_SOURCE_HELP = "A file of tensors (.safetensors, .npy, .npz, .pt, .bin, .onnx, .raw), a folder of shards, or a URL."
_TARGET_HELP = "The file, the folder (with a slash at its end) or the URL to write."


@app.command(short_help="Convert the tensors of a file to another format.")
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help=_SOURCE_HELP)],
    target: Annotated[str, typer.Option("-o", "--output", metavar="OUT", help=_TARGET_HELP)],
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to", metavar="[PATTERN=]TAG", help="New format: tag, pattern or shape:stride; `plain` is row-major."
        ),
    ] = None,
    from_: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="[PATTERN=]TAG", help="Format of memory that the file does not describe."),
    ] = None,
    data_type: Annotated[str | None, typer.Option("--dtype", metavar="TYPE", help=TYPE_HELP)] = None,
    dims: Annotated[
        str | None,
        typer.Option(
            "--dims", metavar="DIMS", help="The dims of raw bytes; with --from, where the shape is not enough."
        ),
    ] = None,
    source_type: Annotated[
        str | None,
        typer.Option("--from-dtype", metavar="TYPE", help="Type of the elements of raw bytes; the default is --dtype."),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", metavar="N", help="Offset of the tensor in raw bytes, in bytes.")
    ] = None,
    shard_size: Annotated[
        str | None, typer.Option("--shard-size", metavar="SIZE", help="Most bytes of a shard, such as the default 5GB.")
    ] = None,
    staging: Annotated[
        Path | None, typer.Option("--staging", metavar="DIR", help="Where a target at a URL is written before upload.")
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="With --dtype: convert though elements become 0 or saturate.")
    ] = False,
    clean: CleanOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, one line per tensor.")] = False,
) -> None:
    """Convert the tensors of a file to another format; padding is added and removed as the format requires.

    IN and OUT are files, folders of sharded checkpoints, or URLs. A .bin, .raw or .dat file of raw bytes needs --dims
    and --dtype. Without --to, tensors are copied to a file of another kind.

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

      inlay convert llama/ -o packed/ --to '*proj.weight=BA16a64b2a' --shard-size 5GB

      inlay convert weights.bin -o weights.npy --dims 64x3x7x7 --dtype f32

      inlay convert s3://bucket/model.pt -o s3://bucket/model.safetensors
    """
    # Imported here because it loads LLVM, which doubles the start-up time of other commands.
    from inlay.storage import convert as carry_out
    from inlay.storage import plan as make_plan
    from inlay.storage.conversion_plan import parse_nbytes
    from inlay.storage.formats import is_raw_source
    from inlay.storage.locations import is_url
    from inlay.storage.options import OpenOptions, WriteOptions

    logical = None if dims is None else parse_dims(dims)
    described = OpenOptions(None if from_ else logical, source_type or data_type, offset)
    is_raw = is_raw_source(source, described, has_type=source_type is not None)
    if data_type is not None and not to and not is_raw:
        raise InvalidArguments("--dtype converts the tensors that --to matches: give --to too, such as --to plain")
    plan = make_plan(
        source,
        target,
        to or (),
        from_=from_ or (),
        data_type=data_type,
        dims=None if is_raw and not from_ else logical,
        source_options=described if is_raw else OpenOptions(),
        target_options=WriteOptions(None if shard_size is None else parse_nbytes(shard_size), staging),
    )
    if dry_run:
        echo(str(plan))
        return
    from rich.filesize import decimal

    if not is_url(target):
        clear_abandoned(Path(target), clean)
    with _progress_bar(plan) as progress:
        seconds, losses = time_call(lambda: carry_out(plan, progress, allow_loss=allow_loss))
    count = f"{plan.converted} of {len(plan.tensors)} tensor{'s' * (len(plan.tensors) != 1)}"
    echo(f"wrote {printable(plan.target.location)}: {count} converted, {decimal(plan.nbytes)} in {seconds:.2f} s")
    for loss in losses:
        echo(str(loss))


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
        task = bar.add_task(printable(plan.target.location), total=plan.nbytes)
        yield lambda n: bar.advance(task, n)
