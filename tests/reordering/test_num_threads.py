"""The number of threads: the limit is observed, never exceeds the processors, and 1 starts no workers."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.errors import InvalidArguments
from inlay.machine import MemoryModel
from inlay.memory import Memory
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import machine_code, planning, threads
from inlay.reordering.threads import choose_thread_count

PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
LARGE = 1 << 30


@pytest.fixture(autouse=True)
def no_limit() -> Iterator[None]:
    inlay.set_num_threads(None)
    yield
    inlay.set_num_threads(None)


def test_without_a_limit_every_processor_counts() -> None:
    assert inlay.get_num_threads() == PROCESSORS == choose_thread_count(LARGE)


def test_a_limit_holds_until_it_is_taken_away() -> None:
    inlay.set_num_threads(1)
    assert (inlay.get_num_threads(), choose_thread_count(LARGE)) == (1, 1)
    inlay.set_num_threads(None)
    assert choose_thread_count(LARGE) == PROCESSORS


def test_more_than_there_are_processors_is_as_many_as_there_are() -> None:
    inlay.set_num_threads(10_000)
    assert inlay.get_num_threads() == PROCESSORS


def test_a_limit_does_not_make_small_moves_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_threads", lambda: 16)
    inlay.set_num_threads(8)
    assert [choose_thread_count(size) for size in (1 << 19, 1 << 20, 3 << 20, LARGE)] == [1, 2, 6, 8]


def test_a_number_of_numpy_is_a_number() -> None:
    inlay.set_num_threads(np.int64(1))
    assert inlay.get_num_threads() == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be bound to processors here")
def test_processors_are_those_of_the_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert (inlay.get_num_threads(), choose_thread_count(LARGE)) == (1, 1)
    finally:
        os.sched_setaffinity(0, allowed)
    assert inlay.get_num_threads() == PROCESSORS


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "4", True, (1,)])
def test_what_is_no_number_of_threads_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArguments) as caught:
        inlay.set_num_threads(wrong)
    assert str(caught.value) == (
        f"the number of threads is {wrong!r}: give a whole number from 1 on, or None for every processor"
    )
    assert inlay.get_num_threads() == PROCESSORS


COUNT_THREADS = """
import threading
import numpy as np
import inlay
from inlay.reordering import threads
threads.available_threads = lambda: 3
inlay.set_num_threads({limit})
x = np.zeros((2048, 1024), np.float32)
inlay.pack(x, "ba")
print(threading.active_count())
"""


@pytest.mark.parametrize(("limit", "living"), [(1, 1), (2, 2), (None, 3)])
def test_no_more_workers_live_than_are_allowed(limit: int | None, living: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT_THREADS.format(limit=limit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"{living}\n"


@pytest.fixture(params=["alone", "with workers"])
def first_call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """Run a process that has no compiled code in memory or on disk, with streaming stores."""
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machine_code, "_codes", {})
    machine_code.machine_code.cache_clear()
    monkeypatch.setattr(planning, "memory_model", lambda: MemoryModel(0, 0, 0))
    monkeypatch.setattr(threads, "_PART_BYTES", 1 << 10 if request.param == "with workers" else 1 << 40)
    monkeypatch.setattr(threads, "available_threads", lambda: 3)
    find_reorder.cache_clear()
    yield
    find_reorder.cache_clear()


@pytest.mark.usefixtures("first_call")
def test_eight_threads_share_one_reorder_for_ten_thousand_calls_each() -> None:
    dims, calls, callers = (32, 48), 10_000, 8
    src, dst = (inlay.MemoryDesc(dims, "f32", tag) for tag in ("ab", "ba"))
    x = np.arange(32 * 48, dtype=np.float32).reshape(dims)
    source, wanted = Memory(src, x), np.ascontiguousarray(x.T).tobytes()
    start = threading.Barrier(callers)
    made: list[inlay.Reorder] = []

    def work(caller: int) -> int:
        # An address off the cache line needs other code, which is compiled by the first call that meets one.
        room = np.zeros(32 * 48 + 16, np.float32)
        y = room[caller % 2 : caller % 2 + 32 * 48]
        destination = Memory(dst, y)
        start.wait()
        made.append(inlay.Reorder(src, dst))
        start.wait()
        shared, right = made[0], 0
        for _ in range(calls):
            y.fill(-1)
            shared(source, destination)
            right += y.tobytes() == wanted
        return right

    with ThreadPoolExecutor(callers) as pool:
        assert list(pool.map(work, range(callers))) == [calls] * callers
