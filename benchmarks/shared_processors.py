"""Processors that other programs share, made for a while: busy loops beside this process, or a quota of one processor.

    with busy_loops(2): ...
    with one_processor() as how: ...        "a quota of one processor", or what stands for it

A quota needs a folder of control groups that this process may write. Where there is none, the threads of this process
share one processor with a busy loop on each of the others, of which nothing tells the process.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from inlay.measure.processors import allowed_processors

ROOT = Path("/sys/fs/cgroup")
_NAME = "inlay-benchmark"
_PERIOD = 100_000  # microseconds
_LOOP = "import os, sys\nif sys.argv[1:]: os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@contextmanager
def busy_loops(count: int, *, on: int | None = None) -> Iterator[None]:
    """So many processes that compute all the time, on processor `on` or wherever the system lets them."""
    place = [] if on is None else [str(on)]
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP, *place]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def one_processor() -> Iterator[str]:
    """While this lasts the threads of this process have one processor together; says how that is done."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(_quota())
        except OSError:
            for processor in allowed_processors()[1:]:
                stack.enter_context(busy_loops(3, on=processor))
            yield "three busy loops on each other processor"


@contextmanager
def _quota() -> Iterator[str]:
    """A quota of one processor.

    Raises:
        OSError: there are no control groups, or this process may not write them.
    """
    is_first_version = (ROOT / "cpu" / "cpu.cfs_quota_us").exists()
    above = ROOT / "cpu" if is_first_version else ROOT
    group = above / _NAME
    group.mkdir(exist_ok=True)
    try:
        if is_first_version:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(_PERIOD))
        else:
            (group / "cpu.max").write_text(f"{_PERIOD} {_PERIOD}")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield "a quota of one processor"
        finally:
            (above / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        with suppress(OSError):
            group.rmdir()
