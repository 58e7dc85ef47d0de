"""Python programs that tests run in a process of their own."""

import os
import subprocess
import sys


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
