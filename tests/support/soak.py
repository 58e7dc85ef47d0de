"""Random reorders until time is up: `make soak`, or `python -m tests.support.soak --minutes 30 --seed 7`.

Cases run in a child process, so that one that dies is a failure like any other. The first failure is made as small as
it can be, and printed together with the command that runs it again.
"""

import faulthandler
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.sharedctypes import RawValue
from random import SystemRandom
from typing import Annotated

import typer

from tests.support.soak_case import Case, drawn_case, run_case, simpler

CHUNK = 1000
"""Cases of one child: a process that has compiled for long holds much memory, and the next one reads the cache."""
_STRIDE = 1_000_003
Act = Callable[[Case], None]


def seed_of(seed: int, number: int) -> int:
    """The number from which case `number` of a soak is drawn."""
    return seed * _STRIDE + number


def in_child(work: Callable[[], None], *, quiet: bool = False) -> int:
    """Carry out `work` in a process of its own: 0 if it returned, else its exit status, negative for a signal."""

    def report() -> None:
        if quiet:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        else:
            faulthandler.enable()
        try:
            work()
        except AssertionError as fault:
            sys.exit(f"{fault}".split("\n")[0])

    child = get_context("fork").Process(target=report)
    with warnings.catch_warnings():
        # Python warns where other threads live: the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    child.join()
    return child.exitcode or 0


def first_failure(seed: int, begin: int, end: int, deadline: float, act: Act = run_case) -> tuple[int, int | None]:
    """Run cases `begin` to `end`, exclusive, or until the deadline: how many were begun, and the one that failed."""
    reached = RawValue("q", begin)

    def work() -> None:
        for number in range(begin, end):
            reached.value = number
            act(drawn_case(seed_of(seed, number)))
            if time.monotonic() > deadline:
                return

    status = in_child(work)
    return reached.value + 1, reached.value if status else None


def shrunk(case: Case, act: Act = run_case, patience: float = 120.0) -> Case:
    """A case that fails too and of which nothing can be taken away, as far as time allows."""
    deadline = time.monotonic() + patience

    def fails(candidate: Case) -> bool:
        return time.monotonic() < deadline and in_child(lambda: act(candidate), quiet=True) != 0

    while (smaller := next(filter(fails, simpler(case)), None)) is not None:
        case = smaller
    return case


def soak(seed: int, minutes: float, act: Act = run_case, begin: int = 0) -> tuple[int, Case | None]:
    """Run cases until time is up or one fails: how many ran, and the failing one, shrunk."""
    start = time.monotonic()
    deadline, number, told = start + 60 * minutes, begin, start
    while time.monotonic() < deadline:
        number, failed = first_failure(seed, number, number + CHUNK, deadline, act)
        if failed is not None:
            print(f"case {failed} of seed {seed} fails: {drawn_case(seed_of(seed, failed))}")
            print(f"again: python -m tests.support.soak --seed {seed} --case {failed}")
            return number - begin, shrunk(drawn_case(seed_of(seed, failed)), act)
        if time.monotonic() > told + 60:
            told = time.monotonic()
            print(f"{number - begin} cases in {(told - start) / 60:.0f} minutes, no failure", flush=True)
    return number - begin, None


def main(
    minutes: Annotated[float, typer.Option(help="how long")] = 30.0,
    seed: Annotated[int | None, typer.Option(help="where it begins; by chance if left out")] = None,
    case: Annotated[int | None, typer.Option(help="run this case alone, in this process")] = None,
) -> None:
    """Compare random reorders with the reference until time is up."""
    chosen = SystemRandom().randrange(1 << 31) if seed is None else seed
    if case is not None:
        only = drawn_case(seed_of(chosen, case))
        print(only, flush=True)
        faulthandler.enable()
        run_case(only)
        return
    print(f"seed {chosen}, {minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["INLAY_CACHE_DIR"] = cache
        count, failure = soak(chosen, minutes)
    if failure is not None:
        print(f"smallest: {failure}")
        print(f'alone: python -c "from tests.support.soak_case import *; run_case({failure})"')
        raise typer.Exit(1)
    print(f"{count} cases, no failure (seed {chosen})")


if __name__ == "__main__":
    typer.run(main)
