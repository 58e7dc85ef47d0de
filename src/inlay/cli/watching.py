"""`Watch`: a progress bar over what is measured, and afterwards how much was, and how long that took.

The bar is drawn on the error stream, and only where a person watches it.
"""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from inlay.cli.output import echo
from inlay.measure.interleaved import clock

if TYPE_CHECKING:
    from rich.progress import Progress

    from inlay.graph.costs import CostSources


class Watch:
    """Somebody to be told how far measuring is."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.count = 0
        """How many things were measured."""
        self.seconds = 0.0
        """How long that took, from the beginning of the block to the last of them."""
        self._started = clock()
        self._bar: Progress | None = None
        self._task: Any = None

    def tell(self, done: int, total: int) -> None:
        """Take note that `done` of `total` things are measured."""
        self.count, self.seconds = done, clock() - self._started
        if self._bar is None and sys.stderr.isatty():
            self._bar, self._task = _new_bar()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    def report(self, sources: "CostSources | None") -> None:
        """Print on the error stream how many kernels were measured, and why others were not or will be again."""
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

    def __enter__(self) -> "Watch":
        """Begin to watch."""
        self._started = clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


def _new_bar() -> "tuple[Progress, Any]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task("measuring kernels", total=None)
