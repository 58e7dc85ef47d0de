"""Python programs that tests run in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path


def run_python(*arguments: str, timeout: float = 600.0, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with these arguments and additional environment variables; a failure of the program fails the test."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def peak_memory() -> int:
    """Return the greatest resident memory of this process since its program started, in bytes; Linux only.

    `ru_maxrss` counts that of the process from which it was forked too.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
