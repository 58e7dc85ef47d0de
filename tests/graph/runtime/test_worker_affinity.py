"""Workers of a full team run on other processors than their caller: the affinities that the system reports."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import CFUNCTYPE, c_int, c_uint, c_void_p
from typing import Any, TypeAlias

import pytest

from inlay.engines.onednn.library import load_library
from inlay.graph.runtime import worker_affinity
from inlay.graph.runtime.worker_affinity import keep_workers_apart
from inlay.primitives import get_engine
from inlay.primitives.engine import ThreadTeam

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")

Processors: TypeAlias = set[int]


@pytest.fixture
def team() -> ThreadTeam:
    """Return the threads of the engine."""
    found = get_engine("onednn").thread_team
    if found is None:
        pytest.skip("this oneDNN does not run on GNU OpenMP")
    return found


@pytest.fixture
def allowed() -> Processors:
    """Return the processors of this thread, of which a team of two can fill all."""
    processors = os.sched_getaffinity(0)
    if len(processors) < 2:
        pytest.skip("one processor")
    return processors


def in_new_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a thread of its own, which has its own pool of workers."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def affinities(team: ThreadTeam, threads: int) -> dict[int, Processors]:
    """Return the processors that each thread of the team may run on, by its number."""
    found: dict[int, Processors] = {}
    number = CFUNCTYPE(c_int)(team.thread_num)

    def look(_: object) -> None:
        found[number()] = os.sched_getaffinity(0)

    function = CFUNCTYPE(None, c_void_p)(look)
    CFUNCTYPE(None, type(function), c_void_p, c_uint, c_uint)(team.parallel)(function, None, threads, 0)
    return found


def require_apart(found: dict[int, Processors], allowed: Processors, processor: int) -> None:
    """Check that the caller is free and each worker has a processor of its own that is not `processor`."""
    workers = [found[number] for number in range(1, len(allowed))]
    assert found[0] == allowed
    assert sorted(map(sorted, workers)) == [[each] for each in sorted(allowed - {processor})]


@pytest.fixture
def on_processor(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the processor on which the caller seems to run."""
    return lambda processor: monkeypatch.setattr(worker_affinity, "_current_processor", lambda: processor)


def test_workers_of_a_full_team_leave_the_callers_processor(
    team: ThreadTeam, allowed: Processors, on_processor: Callable[[int], None]
) -> None:
    def check() -> None:
        for processor in (*sorted(allowed), *sorted(allowed, reverse=True)):
            on_processor(processor)
            for _ in range(2):
                keep_workers_apart(team, len(allowed))
                require_apart(affinities(team, len(allowed)), allowed, processor)

    in_new_thread(check)


def test_a_smaller_team_runs_on_all_processors(
    team: ThreadTeam, allowed: Processors, on_processor: Callable[[int], None]
) -> None:
    def check() -> None:
        on_processor(min(allowed))
        keep_workers_apart(team, len(allowed))
        bound = affinities(team, len(allowed))
        keep_workers_apart(team, len(allowed) - 1)
        assert bound != affinities(team, len(allowed)) == dict.fromkeys(range(len(allowed)), allowed)

    in_new_thread(check)


def test_workers_are_released_when_the_caller_may_run_on_fewer_processors(
    team: ThreadTeam, allowed: Processors, on_processor: Callable[[int], None]
) -> None:
    def check() -> None:
        first, second = sorted(allowed)[:2]
        on_processor(first)
        keep_workers_apart(team, len(allowed))
        os.sched_setaffinity(0, {second})
        on_processor(second)
        keep_workers_apart(team, len(allowed))
        assert set(map(frozenset, affinities(team, len(allowed)).values())) == {frozenset({second})}

    in_new_thread(check)


@pytest.mark.parametrize("threads", [1, 2, 3, 65])
def test_threads_of_a_team_that_does_not_fill_the_processors_are_not_bound(
    team: ThreadTeam, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_affinity, "allowed_processors", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("bound"))
    in_new_thread(lambda: keep_workers_apart(team, threads))


def test_workers_that_are_bound_by_others_stay(team: ThreadTeam, allowed: Processors) -> None:
    chosen = {max(allowed)}

    def check() -> None:
        os.sched_setaffinity(0, chosen)
        affinities(team, len(allowed))  # the workers inherit the affinity of their caller
        os.sched_setaffinity(0, allowed)
        keep_workers_apart(team, len(allowed))
        found = affinities(team, len(allowed))
        assert found == {number: chosen if number else allowed for number in range(len(allowed))}

    in_new_thread(check)


def test_each_calling_thread_has_workers_of_its_own(
    team: ThreadTeam, allowed: Processors, on_processor: Callable[[int], None]
) -> None:
    barrier = threading.Barrier(2)

    def check() -> None:
        keep_workers_apart(team, len(allowed))
        barrier.wait()
        require_apart(affinities(team, len(allowed)), allowed, min(allowed))
        barrier.wait()

    on_processor(min(allowed))
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(check) for _ in range(2)]:
            future.result()


def test_new_workers_are_bound_when_the_caller_moves(
    team: ThreadTeam, allowed: Processors, on_processor: Callable[[int], None]
) -> None:
    library = load_library().cdll
    if not hasattr(library, "omp_pause_resource"):
        pytest.skip("this OpenMP does not end threads")

    def check() -> None:
        first, second = sorted(allowed)[:2]
        on_processor(first)
        keep_workers_apart(team, len(allowed))
        assert library.omp_pause_resource(1, library.omp_get_initial_device()) == 0
        on_processor(second)
        keep_workers_apart(team, len(allowed))
        require_apart(affinities(team, len(allowed)), allowed, second)

    in_new_thread(check)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_forgets_the_workers(team: ThreadTeam, allowed: Processors) -> None:
    keep_workers_apart(team, len(allowed))
    assert team in worker_affinity._of_thread.bindings
    child = os.fork()
    if not child:
        os._exit(len(worker_affinity._of_thread.bindings))
    assert os.waitpid(child, 0)[1] == 0
    assert team not in worker_affinity._of_thread.bindings


def test_nothing_is_done_without_team_or_affinity(team: ThreadTeam, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("bound"))
    keep_workers_apart(None, 2)
    monkeypatch.setattr(worker_affinity, "_current_processor", None)
    in_new_thread(lambda: keep_workers_apart(team, os.cpu_count() or 1))
