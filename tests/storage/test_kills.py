"""Kills at random moments, of the whole conversion and of single workers: no wrong file, at most 2 tasks lost each."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay.storage import convert, plan
from inlay.storage.journal import journal_path, read_entries
from tests.support.killed_conversion import MEMORY, RULES

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")

WORKERS = 2
SECONDS = 0.01
"""Least time of a box, so that kills meet boxes at every stage."""


def processes_below(pid: int) -> list[int]:
    """The processes that a process started, but for Python's own that removes semaphores."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(word) for word in words if b"resource_tracker" not in Path(f"/proc/{word}/cmdline").read_bytes()]
    return []


def started(workers: int) -> "subprocess.Popen[bytes]":
    program = [sys.executable, "-m", "tests.support.killed_conversion", "w.safetensors", "p.safetensors", "log"]
    output = Path("output").open("ab")  # noqa: SIM115
    with output:
        return subprocess.Popen([*program, str(workers), str(SECONDS)], stdout=output, stderr=output)


def executed() -> int:
    """The number of boxes that were begun by any process."""
    log = Path("log")
    return log.read_bytes().count(b"\n") if log.exists() else 0


def journaled() -> int:
    path = journal_path("p.safetensors")
    entries = read_entries(path) if path.exists() else None
    return 0 if entries is None else len(entries.tasks)


def kill_at_random(process: "subprocess.Popen[bytes]", draw: random.Random, workers: int, began: int) -> str | None:
    """Wait until boxes are written, and some time more; kill the conversion or a worker, and return what was killed."""
    end = time.monotonic() + 60
    while executed() == began and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(draw.uniform(0, 0.15))
    below = processes_below(process.pid)
    victim = draw.choice([process.pid, *below[-workers:]]) if workers > 1 else process.pid
    if process.poll() is not None:
        return None
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    return "conversion" if victim == process.pid else "worker"


def count_kills(seed: int, workers: int, most: int) -> int:
    """Convert with kills until the conversion ends; return their number."""
    draw, kills = random.Random(seed), 0
    for path in (Path("p.safetensors"), Path("log"), Path("output"), journal_path("p.safetensors")):
        path.unlink(missing_ok=True)
    process = started(workers)
    while process.poll() is None and kills < most:
        began = executed()
        killed = kill_at_random(process, draw, workers, began)
        kills += killed is not None
        if killed == "conversion":
            ended = process.wait(60)
            wait_for_orphans()
            check_target()
            if Path("p.safetensors").exists():  # the kill came after the last box
                break
            assert ended == -signal.SIGKILL, Path("output").read_text()
            assert executed() - journaled() <= WORKERS * kills
            process = started(workers)
    else:
        assert process.wait(300) == 0, Path("output").read_text()
        assert list(Path().glob(".*")) == []
    check_target()
    assert Path("p.safetensors").exists()
    assert executed() - plan("w.safetensors", "x.safetensors", RULES, memory=MEMORY).count <= WORKERS * kills
    return kills


def wait_for_orphans() -> None:
    """Wait until the workers of a killed conversion have ended, too: the log is complete then."""
    before = -1
    while before != executed():
        before = executed()
        time.sleep(5 * SECONDS)


def check_target() -> None:
    """The target does not exist, or is the right one."""
    path = Path("p.safetensors")
    assert not path.exists() or path.read_bytes() == Path("expected.safetensors").read_bytes()


@pytest.fixture
def weights(directory: Path) -> Path:
    rng = np.random.default_rng(0)
    tensors = {name: rng.standard_normal((256, 192)).astype(np.float32) for name in "uvw"}
    save_file(tensors | {"bias": np.arange(7, dtype=np.float32)}, "w.safetensors")
    convert(plan("w.safetensors", "expected.safetensors", RULES, memory=MEMORY))
    return directory


@pytest.mark.heavy
@pytest.mark.parametrize("workers", [1, WORKERS])
def test_a_killed_conversion_goes_on_with_the_same_bytes(weights: Path, workers: int) -> None:
    kills = 0
    for seed in range(20):
        kills += count_kills(seed, workers, 10 - kills)
        if kills >= 10:
            return
    pytest.fail(f"only {kills} kills met a running conversion")


@pytest.mark.heavy
@pytest.mark.long
def test_two_hundred_kills_lose_nothing(weights: Path) -> None:
    kills = 0
    for seed in range(400):
        kills += count_kills(1000 + seed, 1 + seed % WORKERS, 200 - kills)
        if kills >= 200:
            return
    pytest.fail(f"only {kills} kills met a running conversion")


@pytest.mark.heavy
def test_the_workers_of_a_killed_conversion_end(weights: Path) -> None:
    process = started(WORKERS)
    while executed() < 3 and process.poll() is None:
        time.sleep(0.005)
    below = processes_below(process.pid)
    assert len(below) >= WORKERS
    process.kill()
    process.wait(60)
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < end
        time.sleep(0.01)
