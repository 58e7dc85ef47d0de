"""A worker that reads, plans, compiles and runs mutants of models, and a parent that watches its time and memory.

    python -m tests.support.fuzz_models 17 20        mutants 17 to 36: a line for each with what became of it

A worker may take GIGABYTES more than it has after its imports: what wants more is refused by the operating system.
"""

import os
import resource
import selectors
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

GIGABYTES = 2
SECONDS = 20
"""Seconds of a processor that a mutant may take; three times as many on the clock."""


def outcomes(first: int, count: int) -> Iterator[tuple[int, str]]:
    """What became of mutants `first` to `first + count`: ran, refused, or a fault in words."""
    at, end = first, first + count
    while at < end:
        for seed, text in _watched(at, end - at):
            yield seed, text
            at = seed + 1


def _watched(first: int, count: int) -> Iterator[tuple[int, str]]:
    """What a worker says, until it is done, dies or hangs."""
    command = [sys.executable, "-m", "tests.support.fuzz_models", str(first), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        os.set_blocking(worker.stderr.fileno(), False)
        selector = selectors.DefaultSelector()
        selector.register(worker.stdout, selectors.EVENT_READ)
        current, began, used, rest = first, time.monotonic(), 0.0, b""
        while True:
            if selector.select(1.0):
                content = os.read(worker.stdout.fileno(), 1 << 16)
                if not content:
                    break
                *lines, rest = (rest + content).split(b"\n")
                for line in lines:
                    word, _, text = line.decode().partition(" ")
                    if word.isdecimal():
                        yield int(word), text
                        current = int(word) + 1
                began, used = time.monotonic(), _cpu_seconds(worker.pid)
            elif _cpu_seconds(worker.pid) - used > SECONDS or time.monotonic() - began > 3 * SECONDS:
                worker.kill()
                yield current, f"hang: over {SECONDS} s"
                return
        if worker.wait() and current < first + count:
            text = " ".join((worker.stderr.read() or b"").decode(errors="replace").split())[-500:]
            yield current, f"crash: exit status {worker.returncode} {text}"


def _cpu_seconds(pid: int) -> float:
    """Seconds of a processor that a process has taken."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def work(first: int, count: int) -> None:
    """Do all mutants, and print a line for each."""
    from tests.support.mutated_models import mutant, seeds

    warnings.simplefilter("ignore")
    seeds()
    _do(b"")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + (GIGABYTES << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    for seed in range(first, first + count):
        sys.stdout.write(f"{seed} {_do(mutant(seed))}\n")
        sys.stdout.flush()


def _do(content: bytes) -> str:
    """What becomes of a model; whatever is no error of Inlay ends the process, and the parent tells its text."""
    import numpy as np

    import inlay
    from inlay.graph.onnx.reading import load_bound

    stage = "load"
    try:
        network = load_bound(content)
        stage = "plan"
        plan = inlay.plan(network, costs="probed")
        stage = "compile"
        session = plan.compile()
        stage = "run"
        given = (network.tensors[name] for name in network.inputs)
        session.run({tensor.name: np.ones(tensor.dims, tensor.dtype) for tensor in given})
    except inlay.InlayError as error:
        return f"refused at {stage}" if len(str(error)) > 20 else f"fault: {stage}: no sentence: {error!r}"
    except MemoryError:
        if stage != "run" or _is_ours():
            raise
        return "refused: the test has no room for its inputs"
    return "ran"


def _is_ours() -> bool:
    """Whether the error that is handled was raised in Inlay, not where the test makes its arrays."""
    error = sys.exc_info()[1]
    assert error is not None
    return any("src/inlay" in at.filename for at in traceback.extract_tb(error.__traceback__))


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]))
