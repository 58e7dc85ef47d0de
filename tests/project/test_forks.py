"""A forked child computes, or raises an error at once, whatever other threads of its parent did at the fork."""

import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import AbstractContextManager

import pytest

from inlay.forks import ForkResetLock, hold_across_forks
from tests.oracles import onednn as oracle

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

PROGRAM = "tests.support.forking_program"
MANY, FEW = 200, 5
WITHOUT_ONEDNN = ("compiling",)
WITH_ONEDNN = ("primitives", "creating", "sessions")


def forked(kind: str, rounds: int) -> Counter[str]:
    """Return the number of children of the program for each output."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "INLAY_CACHE_DIR": os.devnull}
    command = [sys.executable, "-m", PROGRAM, kind, str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Counter(done.stdout.splitlines())


def expected(rounds: int) -> Counter[str]:
    """Return the expected output of children of a process that used oneDNN: an error for runtimes other than OpenMP."""
    from inlay.engines.onednn import load_library

    library = load_library()
    if library.runtime in ("omp", "sequential"):
        return Counter({"right": rounds})
    text = (
        f"InlayError: {library.name} runs on {library.runtime} and was used before this process was forked, which left "
        "its threads behind: start processes by spawn, as multiprocessing.get_context('spawn') does"
    )
    return Counter({text: rounds})


@pytest.mark.parametrize("kind", WITHOUT_ONEDNN)
def test_children_compile_while_threads_of_the_parent_compile(kind: str) -> None:
    assert forked(kind, FEW) == {"right": FEW}


@needs_onednn
@pytest.mark.parametrize("kind", WITH_ONEDNN)
def test_children_use_onednn_after_the_parent_did(kind: str) -> None:
    assert forked(kind, FEW) == expected(FEW)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", WITHOUT_ONEDNN)
def test_200_children_compile_while_threads_of_the_parent_compile(kind: str) -> None:
    assert forked(kind, MANY) == {"right": MANY}


@needs_onednn
@pytest.mark.heavy
@pytest.mark.parametrize("kind", WITH_ONEDNN)
def test_200_children_use_onednn_after_the_parent_did(kind: str) -> None:
    assert forked(kind, MANY) == expected(MANY)


def status_of_child(work: AbstractContextManager[object]) -> int:
    """0 if a child can acquire a lock that another thread of its parent may hold."""
    child = os.fork()
    if child == 0:
        acquired = threading.Event()

        def acquire() -> None:
            with work:
                acquired.set()

        thread = threading.Thread(target=acquire, daemon=True)
        thread.start()
        os._exit(0 if acquired.wait(20) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_renewed_lock_is_free_in_a_child_although_a_thread_of_the_parent_holds_it() -> None:
    lock, held, done = ForkResetLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert status_of_child(lock) == 0
    finally:
        done.set()
        thread.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_waits_for_a_lock_that_is_held_across_forks() -> None:
    lock, held, done = threading.RLock(), threading.Event(), threading.Event()
    hold_across_forks(lock)
    order = []

    def hold() -> None:
        with lock:
            held.set()
            done.wait()
            order.append("released")

    thread, timer = threading.Thread(target=hold), threading.Timer(0.2, done.set)
    thread.start()
    held.wait()
    timer.start()
    status = status_of_child(lock)
    order.append("forked")
    thread.join()
    assert status == 0
    assert order == ["released", "forked"]
