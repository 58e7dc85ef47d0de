"""Output of the demo: lines, comparisons in words, progress on the error stream, and the end where a claim is false."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from inlay.bench.measurement import INLAY, Measurement
from inlay.measure.interleaved import Turn, measure_interleaved

ROUNDS = 7
WAKE_THREADS = Turn(warm=50e-3, block=50e-3)
"""Turns of networks: a run wakes every thread for each of some hundred kernels."""

Jobs = Mapping[str, Callable[[], object]]

console = Console(highlight=False, soft_wrap=True)


def show_title(number: int, title: str, rest: str = "") -> None:
    """Print the title of a part."""
    console.print(f"[bold]{number}  {title}[/]{rest}")


def show_call(code: str) -> None:
    """Print the call that a part makes."""
    console.print(f"   {code}", style="cyan", markup=False)


def show(text: str = "") -> None:
    """Print lines, indented; those of a picture may contain color codes."""
    for line in text.split("\n"):
        console.print(Text.from_ansi(f"   {line}".rstrip()))


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Print on the error stream what the block does, and remove it afterwards; a terminal alone gets it.

    The line stands still: an animation would disturb what is timed.
    """
    if not sys.stderr.isatty():
        yield
        return
    print(f"   {text} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def require(holds: bool, claim: str) -> None:
    """End the demo where a claim that was tested is false."""
    if not holds:
        sys.exit(f"demo: this is false: {claim}")


def time_jobs(jobs: Jobs, copies: Jobs, turn: Turn | None = None) -> Measurement:
    """Time jobs and copies in turns."""
    with progress("timing " + ", ".join(jobs)):
        times = measure_interleaved({**jobs, **copies}, ROUNDS, turn or Turn())
    return Measurement(times, {name: times.pop(name) for name in copies})


def comparison_text(measured: Measurement) -> str:
    """Return how many times faster Inlay is than each contender."""
    names = (name for name in measured.seconds if name != INLAY)
    return ", ".join(ratio_text(measured.times_faster_than(name).median, name) for name in names)


def ratio_text(ratio: float, name: str) -> str:
    """Return a ratio of times in words.

    >>> [ratio_text(ratio, "NumPy") for ratio in (38.4, 1.52, 1.02, 0.8)]
    ['38 times faster than NumPy', '1.5 times faster than NumPy', 'as fast as NumPy', '1.2 times slower than NumPy']
    """
    if 0.95 < ratio < 1.05:
        return f"as fast as {name}"
    number, word = (ratio, "faster") if ratio > 1 else (1 / ratio, "slower")
    return f"{number:.{0 if number >= 10 else 1}f} times {word} than {name}"
