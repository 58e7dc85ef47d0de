"""Shared parts of all commands: the application, argument types, clean-up of temporary files, progress of measurements.

`MeasurementProgress` draws a progress bar while kernels are measured, on the error stream and only if that is a
terminal. Afterwards it reports the number of measurements and their run time.
"""

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay import __version__
from inlay.cli.output import echo
from inlay.cli.overview import overview
from inlay.cli.suggestions import CommandGroup
from inlay.errors import InvalidArguments, printable
from inlay.files import find_abandoned, remove_abandoned
from inlay.layout import Dims
from inlay.measure.interleaved import clock

if TYPE_CHECKING:
    from rich.progress import Progress

    from inlay.graph.costs import CostSources

app = typer.Typer(
    cls=CommandGroup,
    invoke_without_command=True,
    add_completion=False,  # `inlay completion` writes scripts that start no Python
    help="Memory layout of tensors: draw it, explain it, convert files, plan and run networks.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_DIMS_HELP = "Dims of the tensor, logical order: 2x17x5x4, 2,17,5,4 or 2 17 5 4."
TAG_HELP = "Format: a tag (nChw8c), a pattern ('n (c c8) -> n c c8'), or shape:stride of CuTe ('(4,6):(6,1)')."
TYPE_HELP = "Data type: f32, bf16, f16, s8, u8, ... (`inlay names --types`)."

TagArgument = Annotated[str, typer.Argument(metavar="TAG", help=TAG_HELP)]
DimsArgument = Annotated[list[str], typer.Argument(metavar="DIMS", help=_DIMS_HELP)]
OptionalDimsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[DIMS]", help=f"{_DIMS_HELP} Not for files.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CleanOption = Annotated[bool, typer.Option("--clean", help="Remove what runs that were killed left beside the output.")]
TypeOption = Annotated[str, typer.Option("--dtype", metavar="TYPE", help=TYPE_HELP)]


def parse_dims(dims: str | Sequence[str]) -> Dims:
    """Parse dims: whole numbers joined by `x` or by commas, or a word for each; brackets around them are ignored.

    Raises:
        InvalidArguments: a part of `dims` is not a whole number.

    >>> parse_dims("2x17x5x4"), parse_dims(["1", "17", "3", "3"]), parse_dims("(2, 17, 5, 4)")
    ((2, 17, 5, 4), (1, 17, 3, 3), (2, 17, 5, 4))
    """
    text = _unbracket(dims if isinstance(dims, str) else " ".join(dims))
    rule = "dims are whole numbers joined by x, such as 2x17x5x4"
    if text[:1].isalpha() and "," not in text:  # it may be a format
        rule = f"{rule}, and they follow the format"
    return _whole_numbers(text, r"\s*[xX*×]\s*" if re.search("[xX*×]", text) else r"\s*,\s*|\s+", rule)


def parse_dims_and_coordinate(words: Sequence[str]) -> tuple[Dims, Dims]:
    """Parse dims and a coordinate: one word each, or a word for each number.

    Where all are single numbers, the first half are the dims.

    Raises:
        InvalidArguments: a part is not a whole number, or the number of words is odd.

    >>> parse_dims_and_coordinate(["2x3", "1,2"]), parse_dims_and_coordinate(["2", "3", "1", "2"])
    (((2, 3), (1, 2)), ((2, 3), (1, 2)))
    """
    joined = re.compile(r"[xX*×,\s]")
    if joined.search(words[0]):
        return parse_dims(words[0]), parse_coordinate(words[1:])
    if joined.search(words[-1]):
        return parse_dims(words[:-1]), parse_coordinate(words[-1])
    half = len(words) // 2
    if len(words) % 2:
        raise InvalidArguments(
            f"{' '.join(words)!r} are {len(words)} numbers: give dims and a coordinate of as many, such as "
            "2x17x5x4 1,16,4,3"
        )
    return parse_dims(words[:half]), parse_coordinate(words[half:])


def parse_coordinate(text: str | Sequence[str]) -> Dims:
    """Parse a coordinate: integers joined by commas, or a word for each; brackets around them are ignored.

    Raises:
        InvalidArguments: a part of `text` is not a whole number.

    >>> parse_coordinate("1,16,4,3")
    (1, 16, 4, 3)
    """
    text = _unbracket(text if isinstance(text, str) else " ".join(text))
    return _whole_numbers(text, r"\s*,\s*|\s+", "a coordinate is whole numbers joined by commas, such as 1,16,4,3")


def _unbracket(text: str) -> str:
    """Return a text without the brackets of a tuple, a list or a shape of NumPy or PyTorch around it."""
    inside = re.fullmatch(r"\s*(?:torch\.Size)?\s*[(\[]+(.*?),?\s*[)\]]+\s*", text)
    return inside[1].strip() if inside else text


def _whole_numbers(text: str, separator: str, rule: str) -> Dims:
    """Parse integers separated by a match of `separator`; error messages begin with `rule`."""
    parts = [part.strip() for part in re.split(separator, text)]
    for part in parts:
        if not re.fullmatch(r"-?[0-9]{1,40}", part):
            raise InvalidArguments(f"{rule}: {part!r} in {text!r} is not one")
    return tuple(int(part) for part in parts)


def clear_abandoned(target: Path, remove: bool) -> None:
    """Print on the error stream which temporary files killed processes left beside `target`; if `remove`, remove them.

    Raises:
        FileError: a file cannot be removed.
    """
    from rich.filesize import decimal

    if remove:
        for path in remove_abandoned(target):
            echo(f"removed {printable(str(path))}", err=True)
        return
    for path in find_abandoned(target):
        with suppress(OSError):
            echo(
                f"note: {printable(str(path))} ({decimal(path.stat().st_size)}) is left from a run that was killed: "
                "--clean removes it",
                err=True,
            )


def _print_version(is_requested: bool) -> None:
    if is_requested:
        echo(f"inlay {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Accept the options before a command; without a command, print what the commands do."""
    if context.invoked_subcommand is None:
        echo(overview(getattr(context.command, "commands", ())))


class MeasurementProgress:
    """Progress of the measurement of kernels: a context manager that draws a progress bar and reports at the end."""

    def __init__(self) -> None:
        """Start at 0."""
        self.count = 0
        """Number of kernels and reorders that were measured."""
        self.seconds = 0.0
        """Time from the start of the block to the last measurement, in seconds."""
        self._started = clock()
        self._bar: Progress | None = None
        self._task: Any = None

    def update(self, done: int, total: int) -> None:
        """Record and draw that `done` of `total` kernels and reorders are measured."""
        self.count, self.seconds = done, clock() - self._started
        if self._bar is None and sys.stderr.isatty():
            self._bar, self._task = _new_bar()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    def report(self, sources: "CostSources | None") -> None:
        """Print on the error stream the number of kernels that were measured, estimated, or could not be stored."""
        if sources is None:
            return
        of = f" of {sources.total}" if sources.measured < sources.total else ""
        if sources.measured:
            saved = f"not remembered: {sources.unsaved}" if sources.unsaved else "remembered"
            echo(
                f"measured {sources.measured}{of} kernels and reorders in {self.seconds:.1f} s; they are {saved}",
                err=True,
            )
        if sources.estimated and sources.is_out_of_time:
            echo(
                f"estimated {sources.estimated} of {sources.total} kernels and reorders by a model: "
                "no time was left to measure them (--seconds)",
                err=True,
            )

    def __enter__(self) -> "MeasurementProgress":
        """Start the clock."""
        self._started = clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.stop()


def _new_bar() -> "tuple[Progress, Any]":
    """Start a progress bar on the error stream, and return it with its task."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task("measuring kernels", total=None)
