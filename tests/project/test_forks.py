"""A forked child computes, or raises an error at once, whatever other threads of its parent did at the fork."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from inlay.forks import ForkResetLock, hold_across_forks, import_lock
from tests.oracles import onednn as oracle

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

PROGRAM = "tests.support.forking_program"
ROUNDS = (5, pytest.param(200, marks=pytest.mark.heavy))


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


@pytest.mark.parametrize("rounds", ROUNDS)
def test_children_compile_while_threads_of_the_parent_compile(rounds: int) -> None:
    assert forked("compiling", rounds) == {"right": rounds}


@needs_onednn
@pytest.mark.parametrize("kind", ["primitives", "creating", "sessions"])
@pytest.mark.parametrize("rounds", ROUNDS)
def test_children_use_onednn_after_the_parent_did(kind: str, rounds: int) -> None:
    assert forked(kind, rounds) == expected(rounds)


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


@contextmanager
def held_elsewhere(lock: AbstractContextManager[object], order: list[str]) -> Iterator[threading.Event]:
    """Another thread holds the lock until the event is set, at the latest at the end; `order` says when it let go."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()
            order.append("released")

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield done
    finally:
        done.set()
        thread.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_renewed_lock_is_free_in_a_child_although_a_thread_of_the_parent_holds_it() -> None:
    lock = ForkResetLock()
    with held_elsewhere(lock, []):
        assert status_of_child(lock) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("lock", [threading.RLock(), import_lock], ids=["registered", "imports"])
def test_a_fork_waits_for_a_lock_that_is_held_across_forks(lock: "threading.RLock") -> None:
    order = list[str]()
    if lock is not import_lock:  # which is held across forks from the start
        hold_across_forks(lock)
    with held_elsewhere(lock, order) as done:
        threading.Timer(0.2, done.set).start()
        status = status_of_child(lock)
        order.append("forked")
    assert status == 0
    assert order == ["released", "forked"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_waits_for_a_lock_that_is_registered_while_it_waits() -> None:
    first, second, order = threading.RLock(), threading.RLock(), list[str]()
    hold_across_forks(first)
    with held_elsewhere(first, []) as done, held_elsewhere(second, order) as second_done:

        def import_a_module() -> None:
            hold_across_forks(second)
            done.set()
            threading.Timer(0.2, second_done.set).start()

        threading.Timer(0.2, import_a_module).start()
        status = status_of_child(second)
        order.append("forked")
    assert status == 0
    assert order == ["released", "forked"]
