"""The command that converts the memory formats of tensors in files: `inlay convert`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.application import TYPE_HELP, CleanOption, app, clear_abandoned, parse_dims
from inlay.cli.output import echo
from inlay.cli.quantization_options import (
    DequantizeOption,
    QuantizeOption,
    ScalesFormatOption,
    ScalesOption,
    ScalesTypeOption,
    TargetFormatOption,
)
from inlay.errors import InvalidArguments, printable
from inlay.files import Progress
from inlay.measure.interleaved import time_call

if TYPE_CHECKING:
    from inlay.storage import ConversionPlan


@app.command(short_help="Convert the tensors of a file to another format.")
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A .npy or .safetensors file.")],
    target: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="The file to write.")],
    to: TargetFormatOption = None,
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
    quantize: QuantizeOption = None,
    scales: ScalesOption = "{name}_scale",
    scales_to: ScalesFormatOption = None,
    scales_type: ScalesTypeOption = None,
    dequantize: DequantizeOption = False,
    clean: CleanOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, one line per tensor.")] = False,
) -> None:
    """Convert the tensors of a file to another format; padding is added and removed as the format requires.

    PATTERN is a shell pattern for tensor names. The first --to that matches a tensor applies; tensors that no --to
    matches are copied unchanged. Descriptors of packed tensors are stored in the .safetensors file, so --to plain
    restores the original bit for bit.

    If over 0.1 % of the non-zero elements of a tensor would become 0 or saturate in the type of --dtype, nothing is
    written, unless --allow-loss is given.

    With --quantize, the elements of a tensor, of each coordinate of AXIS, or of each group along the last axis share a
    scale, their greatest magnitude divided by that of the type. A --to without PATTERN quantizes tensors of floats with
    two axes or more. The error of each tensor is printed.

    For example:

      inlay convert image.npy -o image.safetensors --to nChw16c

      inlay convert w.safetensors -o p.safetensors --to 'conv*=OIhw16i16o'

      inlay convert p.safetensors -o w.safetensors --to plain

      inlay convert w.safetensors -o p.safetensors --to 'fc*=(o o16) i -> o i o16'

      inlay convert nhwc.npy -o nchw.npy --from nhwc --to nchw

      inlay convert w.safetensors -o q.safetensors --to plain --quantize absmax:group=128 --dtype s4

      inlay convert w.safetensors -o q.gguf --to ggml:Q8_0 --quantize absmax

      inlay convert q.gguf -o w.safetensors --dequantize --dtype bf16
    """
    # Imported here because it loads LLVM, which doubles the start-up time of other commands.
    from inlay.storage import convert as carry_out
    from inlay.storage import plan as make_plan

    logical = None if dims is None else parse_dims(dims)
    options = {"from_": from_ or (), "data_type": data_type, "dims": logical, "dequantize": dequantize}
    quantization = {"quantize": quantize, "scales": scales, "scales_to": scales_to, "scales_type": scales_type}
    plan = make_plan(source, target, _require_formats(to, dequantize), **options, **quantization)  # type: ignore[arg-type]
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


def _require_formats(to: list[str] | None, dequantize: bool) -> list[str]:
    """Return the rules of --to, of which only --dequantize needs none."""
    if not to and not dequantize:
        raise InvalidArguments("the new format is missing: name it (--to), or convert to floats (--dequantize)")
    return to or []


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
