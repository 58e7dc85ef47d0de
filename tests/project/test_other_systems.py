"""All functions that need no engine return the same results without modules, functions and files of Linux."""

import os
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = "tests.support.other_systems"


def printed(folder: Path, *options: str) -> tuple[str, str]:
    """Return the text of the program on both streams, without the seconds that conversions take."""
    folder.mkdir()
    command = [sys.executable, "-m", PROGRAM, str(folder), *options]
    environment = os.environ | {"INLAY_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return re.sub(r"[0-9.]+ (s|ms|GB/s)\b", "...", done.stdout), done.stderr


def test_without_what_only_linux_has_results_and_pictures_are_the_same(tmp_path: Path) -> None:
    here, elsewhere = printed(tmp_path / "here"), printed(tmp_path / "elsewhere", "--bare")
    assert here == elsewhere
    assert "back.npy --to plain 0\nshow nChw8c 2x17x5 2\nTrue\n" in here[0]
