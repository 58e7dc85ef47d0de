"""The command line: parse, call, print.

    inlay show nChw8c 2x17x5x4 --offsets
    inlay offset nChw8c 2x17x5x4 1,16,4,3
    inlay convert weights.safetensors -o packed.safetensors --to 'conv*.weight=OIhw16i16o'
    inlay convert packed.safetensors -o weights.safetensors --to plain
    inlay bench nchw nChw16c 8x64x56x56

The exit code is 0 when all went well, 2 with one message on the error stream when it did not, and 130 after Ctrl-C; it
is 1, without a message, where the reader of the output, such as `head`, stops early. With INLAY_DEBUG set in the
environment an error keeps its traceback.
"""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from inlay import __version__
from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments
from inlay.files import Progress, file_error, replacing
from inlay.format_tag import ALIASES, ENUMERATED, FormatTag
from inlay.layout import Dims
from inlay.render import show as picture
from inlay.render.explain import explain_offset

if TYPE_CHECKING:
    from inlay.chunked import ConversionPlan

app = typer.Typer(
    help="Memory layout of tensors: draw it, explain it, convert files between layouts.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_DIMS_HELP = "Dims of the tensor, logical order: 2x17x5x4 or 2,17,5,4."
_TAG_HELP = "Format tag or alias: nChw8c, aBcd8b, OIhw16i16o, ..."
_TYPE_HELP = "Data type: f32, bf16, f16, s8, u8, ... (`inlay names --types`)."

TagArgument = Annotated[str, typer.Argument(metavar="TAG", help=_TAG_HELP)]
DimsArgument = Annotated[str, typer.Argument(metavar="DIMS", help=_DIMS_HELP)]
TypeOption = Annotated[str, typer.Option("--dtype", metavar="TYPE", help=_TYPE_HELP)]


def parse_dims(text: str) -> Dims:
    """Whole numbers joined by `x` or by commas.

    Raises:
        InvalidArguments: a part of `text` is not a whole number.

    >>> parse_dims("2x17x5x4")
    (2, 17, 5, 4)
    """
    return _whole_numbers(text, "x" if "x" in text else ",", "dims are whole numbers joined by x, such as 2x17x5x4")


def parse_coordinate(text: str) -> Dims:
    """Whole numbers joined by commas.

    Raises:
        InvalidArguments: a part of `text` is not a whole number.

    >>> parse_coordinate("1,16,4,3")
    (1, 16, 4, 3)
    """
    return _whole_numbers(text, ",", "a coordinate is whole numbers joined by commas, such as 1,16,4,3")


def _whole_numbers(text: str, separator: str, rule: str) -> Dims:
    parts = [part.strip() for part in text.split(separator)]
    for part in parts:
        if not re.fullmatch(r"-?[0-9]{1,40}", part):
            raise InvalidArguments(f"{rule}: {part!r} in {text!r} is not one")
    return tuple(int(part) for part in parts)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"inlay {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that come before a command."""


@app.command(short_help="Draw a layout.")
def show(
    tag: TagArgument,
    dims: DimsArgument,
    data_type: TypeOption = "f32",
    offsets: Annotated[bool, typer.Option("--offsets", help="Write the element offset into every cell.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write an SVG picture instead.")] = None,
) -> None:
    """Draw a layout: the logical grid, and below it the memory in address order.

    Example: inlay show nChw8c 2x17x5x4 --offsets
    """
    desc = MemoryDesc(parse_dims(dims), data_type, tag)
    if svg is None:
        typer.echo(str(picture(desc, offsets=offsets)))
        return
    with replacing(svg) as file:
        file.write(str(picture(desc, offsets=offsets, format="svg")).encode())
    typer.echo(f"wrote {svg}")


@app.command(short_help="Explain where one element lies.", context_settings={"ignore_unknown_options": True})
def offset(
    tag: TagArgument,
    dims: DimsArgument,
    coordinate: Annotated[str, typer.Argument(metavar="COORD", help="A coordinate, logical order: 1,16,4,3.")],
    data_type: TypeOption = "f32",
) -> None:
    """Explain where one element lies: the digits of its coordinate, its element and its byte offset.

    Example: inlay offset nChw8c 2x17x5x4 1,16,4,3
    """
    desc = MemoryDesc(parse_dims(dims), data_type, tag)
    typer.echo(explain_offset(desc, parse_coordinate(coordinate)))


@app.command(short_help="Convert the tensors of a file to another format.")
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A .npy or .safetensors file.")],
    target: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="The file to write.")],
    to: Annotated[list[str], typer.Option("--to", metavar="[PATTERN=]TAG", help="New format; `plain` is row-major.")],
    from_: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="[PATTERN=]TAG", help="Format of memory that the file does not describe."),
    ] = None,
    data_type: Annotated[str | None, typer.Option("--dtype", metavar="TYPE", help=_TYPE_HELP)] = None,
    dims: Annotated[
        str | None, typer.Option("--dims", metavar="DIMS", help="With --from: the dims, where the shape is not enough.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, one line per tensor.")] = False,
) -> None:
    """Convert the tensors of a file to another format; padding is added and removed as the format asks.

    PATTERN is a shell pattern for tensor names; tensors that no --to matches are copied as they are, and the first
    --to that matches holds. A packed result is a .safetensors file that keeps its descriptors, so that --to plain
    gives the original back bit for bit.

    For example:

      inlay convert image.npy -o image.safetensors --to nChw16c

      inlay convert w.safetensors -o p.safetensors --to 'conv*=OIhw16i16o'

      inlay convert p.safetensors -o w.safetensors --to plain

      inlay convert nhwc.npy -o nchw.npy --from nhwc --to nchw
    """
    # Moving data loads LLVM, and the other commands answer in half the time without it.
    from inlay.chunked import convert as carry_out
    from inlay.chunked import plan_conversion

    logical = None if dims is None else parse_dims(dims)
    plan = plan_conversion(source, target, to, from_ or (), data_type, logical)
    if dry_run:
        typer.echo(str(plan))
        return
    from rich.filesize import decimal

    started = time.perf_counter()
    with _progress_bar(plan) as progress:
        carry_out(plan, progress)
    seconds = time.perf_counter() - started
    count = f"{plan.converted} of {len(plan.steps)} tensor{'s' * (len(plan.steps) != 1)}"
    typer.echo(f"wrote {target}: {count} converted, {decimal(plan.nbytes)} in {seconds:.2f} s")


@contextmanager
def _progress_bar(plan: "ConversionPlan") -> Iterator[Progress | None]:
    """A progress bar over the bytes of `plan` when a person watches and it takes long enough to see."""
    if not sys.stderr.isatty() or plan.nbytes < 1 << 24:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(TextColumn("{task.description}"), *columns, console=console, transient=True) as bar:
        task = bar.add_task(plan.target.name, total=plan.nbytes)
        yield lambda n: bar.advance(task, n)


@app.command(short_help="Time a reorder against a copy.")
def bench(
    src: Annotated[str, typer.Argument(metavar="SRC", help="Format of the source: nchw, nChw8c, ...")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="Format of the destination.")],
    dims: DimsArgument,
    data_type: TypeOption = "f32",
    to_type: Annotated[
        str | None, typer.Option("--to-dtype", metavar="TYPE", help="Data type of the destination, if another.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", help="How often everybody takes a turn.")] = 9,
    tune: Annotated[bool, typer.Option("--tune", help="Try other ways first; the best is remembered.")] = False,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="S", help="With --tune: how long to try, 1 by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the time of every round.")] = False,
) -> None:
    """Time a reorder, a copy of as many bytes, and oneDNN, NumPy and PyTorch where they are installed.

    Everybody takes turns. Printed are medians, the percent of the speed of the copy, with the range of the middle half
    of the rounds, and how many times as fast Inlay is.

    Examples: inlay bench nchw nhwc 8x64x56x56    inlay bench ab ba 4096x4096 --dtype u8 --tune
    """
    from inlay.bench import bench as carry_out

    if seconds is not None and not tune:
        raise InvalidArguments("--seconds says how long --tune may take: give both, or --tune alone")
    if seconds is not None and not 0 < seconds < inf:
        raise InvalidArguments(f"--seconds is {seconds:g}: give a number greater than 0")
    extent = parse_dims(dims)
    descs = MemoryDesc(extent, data_type, src), MemoryDesc(extent, to_type or data_type, dst)
    report = carry_out(*descs, rounds=rounds, tune=(seconds or 1.0) if tune else None)
    if as_json:
        import json

        typer.echo(json.dumps(report.as_json(), indent=2))
        return
    typer.echo(f"{src} -> {dst}, {report}")


@app.command(short_help="List tags, aliases and data types.")
def names(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="A shell pattern, such as 'nchw*'.")] = "*",
    types: Annotated[bool, typer.Option("--types", help="List the data types instead.")] = False,
) -> None:
    """List the names Inlay knows: tags with their aliases, or data types.

    Examples: inlay names '*16c'    inlay names --types
    """
    lines = list(_type_lines(pattern) if types else _tag_lines(pattern))
    if not lines:
        raise InvalidArguments(f"no name matches {pattern!r}: `inlay names` lists all")
    typer.echo("\n".join(lines))


def _type_lines(pattern: str) -> Iterator[str]:
    for t in DATA_TYPES.values():
        if fnmatchcase(t.name, pattern):
            yield f"{t.name:<8} {t.bits:>2} bits  {t.kind:<8}  {t.numpy.name}"


def _tag_lines(pattern: str) -> Iterator[str]:
    """Each canonical tag of which the tag or an alias matches, with its aliases."""
    aliases: dict[str, list[str]] = {tag: [] for tag in ENUMERATED}
    for alias, tag in ALIASES.items():
        aliases.setdefault(str(FormatTag.parse(tag)), []).append(alias)
    for tag, others in aliases.items():
        if any(fnmatchcase(name, pattern) for name in (tag, *others)):
            yield f"{tag:<20} {' '.join(others)}".rstrip()


def _stop(signum: int, _: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def _report_defect(kind: type[BaseException], value: BaseException, _: TracebackType | None) -> None:
    print(
        f"internal error: {kind.__name__}: {value}\nthis is a defect of Inlay, please report it; "
        "INLAY_DEBUG=1 shows where it happened",
        file=sys.stderr,
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args` (those of the process by default) and return its exit code.

    Every error that Inlay raises on purpose, and every misuse of an option, is one message on the error stream.
    """
    debug = bool(os.environ.get("INLAY_DEBUG"))
    if args is None and not debug:
        sys.excepthook = _report_defect
    if args is None:
        # A polite request to end runs the same clean-up as Ctrl-C.
        signal.signal(signal.SIGTERM, _stop)
    try:
        command = typer.main.get_command(app)
        result = command.main(args=None if args is None else list(args), prog_name="inlay", standalone_mode=False)
    except (typer.TyperException, InlayError, OSError, MemoryError) as error:
        if debug:
            raise
        print(f"error: {_message(error)}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return result if isinstance(result, int) else 0


def _message(error: typer.TyperException | InlayError | OSError | MemoryError) -> str:
    """What is wrong and what helps."""
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        remedy = f"\nsee `{context.command_path} --help`" if context else ""
        return f"{error.format_message()}{remedy}"
    if isinstance(error, InlayError):
        return str(error)
    if isinstance(error, OSError):
        return str(file_error("write", Path("the output"), error))
    return "the memory of this machine does not suffice; convert fewer tensors at once"


if __name__ == "__main__":
    sys.exit(main())
