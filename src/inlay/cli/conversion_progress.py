"""Progress of `inlay convert`: a bar with rate and time left, and notes on runs that go on or can go on."""

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from inlay.cli.application import clear_abandoned
from inlay.cli.output import echo
from inlay.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress

    from inlay.storage import ConversionPlan

_LEAST_NBYTES = 1 << 24
"""Size of a conversion from which a bar is drawn."""


class ConversionProgress:
    """A progress bar over the bytes of a plan, if the error stream is a terminal; a context manager that removes it."""

    def __init__(self, plan: "ConversionPlan", total: int) -> None:
        """Start at 0 of `total` bytes."""
        self._plan, self._total, self._nbytes = plan, total, 0
        self._bar: Progress | None = None
        self._task: Any = None

    def advance(self, nbytes: int) -> None:
        """Add written bytes."""
        self._nbytes += nbytes
        if self._bar is not None:
            self._bar.advance(self._task, nbytes)

    def note_resume(self, done: int, total: int) -> None:
        """Print how much an earlier run finished, and take its bytes out of the rate."""
        echo(f"going on with an interrupted run: {done} of {total} boxes are written", err=True)
        if self._bar is not None:
            self._bar.reset(self._task, completed=self._nbytes)

    def __enter__(self) -> "ConversionProgress":
        """Draw the bar."""
        if sys.stderr.isatty() and self._total >= _LEAST_NBYTES:
            self._bar, self._task = _new_bar(self._plan, self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar, and print the notes of an exception, such as that the same command goes on."""
        if self._bar is not None:
            self._bar.stop()
        for note in getattr(value, "__notes__", ()):
            echo(note, err=True)


def _new_bar(plan: "ConversionPlan", total: int) -> "tuple[Progress, Any]":
    """Start a bar on the error stream, and return it with its task."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    bar = Progress(TextColumn("{task.description}", markup=False), *columns, console=console, transient=True)
    bar.start()
    return bar, bar.add_task(printable(plan.target.location), total=total)


def clear_unfinished(plan: "ConversionPlan", remove: bool) -> None:
    """Print which temporary files killed processes left beside the target.

    If `remove`, remove them, and what an interrupted conversion left.

    Raises:
        FileError: a file cannot be removed, or another process is writing the target.
    """
    from inlay.storage.conversion import discard_unfinished

    if "://" not in plan.target.location:
        clear_abandoned(Path(plan.target.location), remove)
    if remove and discard_unfinished(plan):
        echo(f"removed what an interrupted run left beside {printable(plan.target.location)}", err=True)
