"""Threads: every tile is moved once, whoever calls, and nobody is left behind."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.reordering import compile_reorder, threads
from inlay.reordering.target import host_target
from inlay.reordering.threads import Call, Team, parts_for, run_parts

SRC, DST = (MemoryDesc((256, 192), "f32", tag) for tag in ("ab", "ba"))


def calls(count: int) -> tuple[Call, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """A call whose entry, in Python, counts how often each of `count` tiles is done."""
    import ctypes

    seen = np.zeros(count, np.int64)

    def entry(src: int, dst: int, table: int, begin: int, end: int) -> None:
        seen[begin:end] += 1

    code = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        entry
    )
    address = ctypes.cast(code, ctypes.c_void_p).value
    assert address is not None
    return Call(code, address, 8, 8, 8, count), seen


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("tiles", [1, 2, 7, 100])
def test_every_tile_is_done_once(parts: int, tiles: int) -> None:
    call, seen = calls(tiles)
    run_parts(call, parts, host_target())
    assert (seen == 1).all()


def test_workers_that_sleep_are_woken() -> None:
    call, seen = calls(50)
    for _ in range(5):
        run_parts(call, 3, host_target())
        time.sleep(0.02)
    assert (seen == 5).all()


def test_call_while_the_team_is_taken_runs_alone() -> None:
    team = threads._team_of(2, host_target())
    call, seen = calls(10)
    with team.free:
        run_parts(call, 3, host_target())
    assert (seen == 1).all()
    assert not team.free.locked()


def test_callers_in_many_threads_all_get_their_result() -> None:
    r = compile_reorder(SRC, DST)
    x = np.arange(256 * 192, dtype=np.float32).reshape(256, 192)
    barrier = threading.Barrier(6)

    def work(_: int) -> bool:
        y = np.empty((192, 256), np.float32)
        barrier.wait()
        good = True
        for _ in range(100):
            y[:] = -1
            assert r.plan is not None
            assert r.code is not None
            table = r.plan.table
            call = Call(r.code.entry, r.code.address, x.ctypes.data, y.ctypes.data, table.address, table.tiles)
            run_parts(call, 2, host_target())
            good &= bool((y == x.T).all())
        return good

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_interrupt_leaves_no_worker_busy() -> None:
    team = Team(2, host_target())
    call, seen = calls(3)

    def interrupted(src: int, dst: int, table: int, begin: int, end: int) -> None:
        raise KeyboardInterrupt

    with team.free, pytest.raises(KeyboardInterrupt):
        team.run(Call(interrupted, call.code, 8, 8, 8, 3), 3)
    assert seen.tolist() == [0, 1, 1]
    assert not team._still_busy(2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child_makes_threads_of_its_own() -> None:
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from inlay.descriptor import MemoryDesc
from inlay.reordering import compile_reorder, threads
threads._PART_BYTES, threads.available_threads = 1, lambda: 3
r = compile_reorder(*(MemoryDesc((256, 192), "f32", tag) for tag in ("ab", "ba")))
x = np.arange(256 * 192, dtype=np.float32).reshape(256, 192)
def right():
    y = np.empty((192, 256), np.float32)
    r.run(x.ctypes.data, y.ctypes.data)
    return (y == x.T).all()
assert right()
child = os.fork()
if child == 0:
    os._exit(0 if right() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or (0 if right() else 2))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_process_ends_while_workers_are_awake() -> None:
    code = """
import numpy as np
from inlay.descriptor import MemoryDesc
from inlay.reordering import compile_reorder, threads
threads._PART_BYTES, threads.available_threads = 1, lambda: 3
r = compile_reorder(*(MemoryDesc((256, 192), "f32", tag) for tag in ("ab", "ba")))
x, y = np.zeros((256, 192), np.float32), np.empty((192, 256), np.float32)
r.run(x.ctypes.data, y.ctypes.data)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_small_moves_stay_on_one_thread() -> None:
    assert parts_for(1 << 19, 8) == 1
    assert parts_for(1 << 20, 8) == 2
    assert parts_for(1 << 30, 8) == 8
    assert parts_for(1 << 30, 1) == 1


def test_interrupt_from_the_keyboard_arrives_after_the_move() -> None:
    code = """
import os, signal, threading, time
import numpy as np
from inlay.descriptor import MemoryDesc
from inlay.reordering import compile_reorder
r = compile_reorder(*(MemoryDesc((4096, 4096), "f32", tag) for tag in ("ab", "ba")))
x, y = np.ones((4096, 4096), np.float32), np.zeros((4096, 4096), np.float32)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores interrupts
try:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    while True:
        r.run(x.ctypes.data, y.ctypes.data)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
