"""The number of threads: the limit is observed, never exceeds the processors, and 1 starts no workers."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.errors import InvalidArguments
from inlay.machine import MemoryModel
from inlay.memory import Memory
from inlay.reordering import planning, threads
from inlay.reordering.threads import choose_thread_count
from tests.support.cached_reorders import forget_memory
from tests.support.processes import run_python
from tests.support.refusals import raises_exactly
from tests.support.reorders import pair

PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
LARGE = 1 << 30


@pytest.fixture(autouse=True)
def no_limit() -> Iterator[None]:
    inlay.set_num_threads(None)
    yield
    inlay.set_num_threads(None)


def test_a_limit_holds_until_it_is_taken_away() -> None:
    assert inlay.get_num_threads() == PROCESSORS == choose_thread_count(LARGE)
    inlay.set_num_threads(1)
    assert (inlay.get_num_threads(), choose_thread_count(LARGE)) == (1, 1)
    inlay.set_num_threads(None)
    assert choose_thread_count(LARGE) == PROCESSORS


@pytest.mark.parametrize(("limit", "threads"), [(10_000, PROCESSORS), (np.int64(1), 1)])
def test_more_than_there_are_processors_is_as_many_as_there_are(limit: Any, threads: int) -> None:
    inlay.set_num_threads(limit)
    assert inlay.get_num_threads() == threads


def test_a_limit_does_not_make_small_moves_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_threads", lambda: 16)
    inlay.set_num_threads(8)
    assert [choose_thread_count(size) for size in (1 << 19, 1 << 20, 3 << 20, LARGE)] == [1, 2, 6, 8]


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
    text = f"the number of threads is {wrong!r}: give a whole number from 1 on, or None for every processor"
    with raises_exactly(InvalidArguments, text):
        inlay.set_num_threads(wrong)
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
    assert run_python("-c", COUNT_THREADS.format(limit=limit), timeout=60).stdout == f"{living}\n"


@pytest.mark.parametrize("part_bytes", [1 << 40, 1 << 10], ids=["alone", "with workers"])
def test_eight_threads_share_one_reorder_for_ten_thousand_calls_each(
    part_bytes: int, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is compiled yet, and stores are streaming ones."""
    forget_memory(monkeypatch)
    monkeypatch.setattr(planning, "memory_model", lambda: MemoryModel(0, 0, 0))
    monkeypatch.setattr(threads, "_PART_BYTES", part_bytes)
    monkeypatch.setattr(threads, "available_threads", lambda: 3)
    src, dst = pair((32, 48))
    calls, callers = 10_000, 8
    x = np.arange(32 * 48, dtype=np.float32).reshape(src.dims)
    source, wanted = Memory(src, x), x.T.tobytes()
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
