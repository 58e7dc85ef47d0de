"""The team of threads: every tile is executed once, from any calling thread, and no worker is left busy."""

import ctypes
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from inlay.reordering import compile_reorder, threads
from inlay.reordering.target import host_target
from inlay.reordering.threads import (
    Task,
    Team,
    cap_thread_count,
    choose_small_thread_count,
    choose_thread_count,
    run_parts,
)
from tests.support.processes import run_python
from tests.support.reorders import pair


def counted(count: int) -> tuple[Task, npt.NDArray[np.int64]]:
    """Return a task whose entry, in Python, counts the executions of each of `count` tiles."""
    seen = np.zeros(count, np.int64)

    def entry(src: int, dst: int, table: int, begin: int, end: int) -> None:
        seen[begin:end] += 1

    code = ctypes.CFUNCTYPE(None, *3 * [ctypes.c_void_p], *2 * [ctypes.c_int64])(entry)
    address = ctypes.cast(code, ctypes.c_void_p).value
    assert address is not None
    return Task(code, address, count), seen


def is_taken(team: Team) -> bool:
    """Return whether a call owns the workers."""
    return bool(team._head[0])


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("tiles", [1, 2, 7, 100])
def test_every_tile_is_done_once(parts: int, tiles: int) -> None:
    task, seen = counted(tiles)
    run_parts(task, 8, 8, 8, parts)
    assert (seen == 1).all()


def test_workers_that_sleep_are_woken() -> None:
    task, seen = counted(50)
    for _ in range(5):
        run_parts(task, 8, 8, 8, 3)
        time.sleep(0.02)
    assert (seen == 5).all()


def test_call_while_the_team_is_taken_runs_alone() -> None:
    team = threads._team_of(2, host_target())
    task, seen = counted(10)
    team._head[0] = -1
    try:
        run_parts(task, 8, 8, 8, 3)
        assert (seen == 1).all()
        assert is_taken(team), "it is another's"
    finally:
        team._leave(team._base, -1)
    assert not is_taken(team)


def test_callers_in_many_threads_all_get_their_result() -> None:
    r = compile_reorder(*pair((256, 192)))
    assert r.plan is not None
    assert r.task is not None
    table = r.plan.table
    task = Task(r.task.entry, r.task.code, table.tiles)
    x = np.arange(256 * 192, dtype=np.float32).reshape(256, 192)
    barrier = threading.Barrier(6)

    def work(_: int) -> bool:
        y = np.empty((192, 256), np.float32)
        barrier.wait()
        good = True
        for _ in range(100):
            y[:] = -1
            run_parts(task, x.ctypes.data, y.ctypes.data, table.address, 2)
            good &= bool((y == x.T).all())
        return good

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_interrupt_leaves_no_worker_busy() -> None:
    team = Team(2, host_target())
    task, seen = counted(3)

    def interrupted(src: int, dst: int, table: int, begin: int, end: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        team.run(Task(interrupted, task.code, 3), 8, 8, 8, 3)
    assert seen.tolist() == [0, 1, 1]
    assert not team._still_busy(2)
    assert not is_taken(team)


def test_interrupt_before_the_answer_leaves_the_team_to_whom_it_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    team = Team(2, host_target())
    task, seen = counted(3)
    share = team._share

    def stopped(*arguments: int) -> int:
        share(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(team, "_share", stopped)
    with pytest.raises(KeyboardInterrupt):  # the workers were asleep: all is posted, nothing was answered
        team.run(task, 8, 8, 8, 3)
    assert seen.tolist() == [0, 1, 1]
    assert not is_taken(team)
    team._head[0] = -1
    with pytest.raises(KeyboardInterrupt):  # another call has the workers
        team.run(task, 8, 8, 8, 3)
    assert seen.tolist() == [1, 2, 2]
    assert is_taken(team), "it is another's"
    team._leave(team._base, -2)
    assert is_taken(team), "who does not have it cannot leave it"
    team._leave(team._base, -1)
    assert not is_taken(team)


def test_a_call_says_whether_it_woke_a_worker() -> None:
    team = Team(1, host_target())
    task, seen = counted(2)
    time.sleep(0.01)
    assert team.run(task, 8, 8, 8, 2)
    answers = [team.run(task, 8, 8, 8, 2) for _ in range(200)]
    assert not all(answers), "who comes at once finds it awake"
    assert seen.tolist() == [201, 201]


SHARED = """
import os
from inlay.reordering import compile_reorder, threads
from tests.support.reorders import pair, transposes
threads._PART_BYTES, threads.available_threads = 1, lambda: 3
r = compile_reorder(*pair((256, 192)))
assert transposes(r, (256, 192))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child_makes_threads_of_its_own() -> None:
    code = f"""{SHARED}
child = os.fork()
if child == 0:
    os._exit(not transposes(r, (256, 192)))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert transposes(r, (256, 192))
"""
    run_python("-W", "ignore", "-c", code, timeout=60)


def test_process_ends_while_workers_are_awake() -> None:
    assert run_python("-c", SHARED, timeout=60).stderr == ""


def test_small_moves_stay_on_one_thread() -> None:
    sizes = [(1 << 19, 8), (1 << 20, 8), (1 << 30, 8), (1 << 30, 1)]
    assert [choose_thread_count(*size) for size in sizes] == [1, 2, 8, 1]


def test_moves_of_one_core_s_cache_may_be_shared() -> None:
    sizes = ((1 << 17) - 1, 1 << 17, 3 << 17, (1 << 20) - 1, 1 << 20)
    assert [choose_small_thread_count(size) for size in sizes] == [1, 2, 6, 15, 1]


def test_processors_are_asked_for_once_in_a_millisecond_by_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [10**9], []

    def available() -> int:
        asked.append(now[0])
        return 2

    monkeypatch.setattr(threads, "available_threads", available)
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    assert [cap_thread_count(1), cap_thread_count(2), cap_thread_count(5)] == [1, 2, 2]
    assert len(asked) == 1
    now[0] += 10**6
    assert (cap_thread_count(5), len(asked)) == (2, 2)
    other = threading.Thread(target=lambda: cap_thread_count(5))
    other.start()
    other.join()
    assert len(asked) == 3
    monkeypatch.setattr(threads, "apply_thread_limit", lambda count: 1)
    assert cap_thread_count(5) == 1, "the limit of the process holds at once"


def test_interrupt_from_the_keyboard_arrives_after_the_move() -> None:
    code = """
import os, signal, threading
import numpy as np
from inlay.reordering import compile_reorder
from tests.support.reorders import pair
r = compile_reorder(*pair((4096, 4096)))
x, y = np.ones((4096, 4096), np.float32), np.zeros((4096, 4096), np.float32)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores interrupts
try:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    while True:
        r.run(x.ctypes.data, y.ctypes.data)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = run_python("-c", code, timeout=60)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
