"""The pool of freed results: reuse, ownership, contents, limits, threads and forks."""

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidArguments
from inlay.memory import result_pool
from inlay.memory.result_pool import SMALLEST, ResultPool, block_size, result_pool_of_process


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ResultPool:
    """The pool of the process, empty and with a limit of 8 MiB."""
    fresh = ResultPool(8 << 20)
    monkeypatch.setattr(result_pool, "result_pool_of_process", lambda: fresh)
    monkeypatch.setattr("inlay.memory.array_kinds.result_pool_of_process", lambda: fresh)
    return fresh


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3_000_000)), max_size=30), st.integers(0, 4_000_000))
def test_live_buffers_never_share_bytes_and_the_limit_holds(steps: list[tuple[bool, int]], limit: int) -> None:
    """Whatever is allocated and freed, live buffers keep their values, and the free ones stay below the limit."""
    pool, live = ResultPool(limit), list[tuple[Any, int]]()
    for frees, nbytes in steps:
        if frees and live:
            live.pop(nbytes % len(live))
        else:
            buffer = pool.allocate(nbytes)
            assert buffer.size == nbytes
            assert not buffer.any()
            assert buffer.ctypes.data % 64 == 0
            buffer.fill(len(live) + 1)
            live.append((buffer, len(live) + 1))
        assert 0 <= pool.free_bytes <= limit
        for buffer, value in live:
            assert buffer[0] == buffer[-1] == value
            assert (buffer[:: max(1, buffer.size // 50)] == value).all()


@given(st.integers(SMALLEST, 1 << 34))
def test_a_block_is_at_most_an_eighth_larger(nbytes: int) -> None:
    """Sizes are whole pages, and enough."""
    size = block_size(nbytes)
    assert nbytes <= size <= max(nbytes * 9 / 8, nbytes + 4096)


@pytest.mark.parametrize("keep", ["slice", "view", "memoryview", "base", "mapping", "memory"])
def test_a_buffer_is_not_reused_while_anything_refers_to_it(pool: ResultPool, keep: str) -> None:
    """Views, exports and even the mapping keep a buffer from the pool."""
    x = np.arange(300_000, dtype=np.int32).reshape(600, 500)
    memory = inlay.pack(x, "ba")
    views: dict[str, Callable[[Any], Any]] = {
        "slice": lambda m: m.buffer[100:200],
        "view": lambda m: m.buffer.view(np.int32).reshape(500, 600)[::2, 3:][1:],
        "memoryview": lambda m: memoryview(m.buffer)[8:],
        "base": lambda m: m.buffer.base,
        "mapping": lambda m: np.frombuffer(m.buffer.base.base, np.uint8),
        "memory": lambda m: [m],
    }
    kept = views[keep](memory)
    before = bytes(np.asarray(memory.buffer))
    address = memory.address
    del memory
    assert pool.free_bytes == 0
    again = inlay.pack(x + 1, "ba")
    assert again.address != address
    assert kept is not None
    assert before == x.T.tobytes()
    del again
    assert pool.free_bytes > 0


def test_a_cycle_with_a_finalizer_keeps_its_buffer(pool: ResultPool) -> None:
    """A finalizer in a garbage cycle still reads its own values."""
    seen = []

    class Owner:
        def __init__(self, value: int) -> None:
            self.array = inlay.rearrange(np.full((300, 400), value), "a b -> b a", copy=True)
            self.me = self

        def __del__(self) -> None:
            other = inlay.rearrange(np.full((300, 400), -1), "a b -> b a", copy=True)
            seen.append((int(self.array.min()), int(self.array.max()), int(other.max())))

    for value in range(5):
        Owner(value)
    gc.collect()
    assert sorted(seen) == [(value, value, -1) for value in range(5)]


def test_bytes_that_no_reorder_writes_are_zero(pool: ResultPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps of a strided format in a reused buffer are zero, or poison; padding is zero in both."""
    desc = inlay.MemoryDesc((500, 60), "f32", strides=(64, 1))
    x = np.ones((500, 60), np.float32)
    for poison, gap in (("0", 0), ("1", 0xFF)):
        monkeypatch.setenv("INLAY_POISON", poison)
        dirty = pool.allocate(desc.size)
        dirty.fill(77)
        del dirty
        packed = inlay.pack(x, desc)
        rest = packed.buffer[: 499 * 256].reshape(499, 256)[:, 240:]
        assert (rest == gap).all()
        assert np.array_equal(packed.unpack(), x)
        blocked = inlay.pack(np.ones((2, 17, 50, 50), np.float32), "nChw16c")
        assert inlay.check_padding(blocked).dirty == 0


def test_results_reuse_pages(pool: ResultPool) -> None:
    """pack, reorder, unpack and rearrange return to the address of the freed result."""
    x = np.zeros((256, 512), np.float32)
    memory = inlay.pack(x, "ab")
    for make in (
        lambda: inlay.pack(x, "ba").buffer,
        lambda: inlay.reorder(memory, "ba").buffer,
        memory.unpack,
        lambda: inlay.rearrange(x, "a b -> b a", copy=True),
    ):
        first = make()
        address = first.ctypes.data
        del first
        assert make().ctypes.data == address


def test_threads_share_the_pool() -> None:
    """Threads that allocate and free at once never see each other's values."""
    pool, wrong = ResultPool(4 << 20), []

    def work(value: int) -> None:
        for i in range(300):
            buffer = pool.allocate(70_000 + 1000 * (i % 7), is_overwritten=True)
            buffer.fill(value)
            if not (buffer[::97] == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert 0 <= pool.free_bytes <= 4 << 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore")
def test_a_child_starts_with_an_empty_pool() -> None:
    """A fork while the lock is held leaves a child that allocates and frees."""
    pool = result_pool_of_process()
    pool.allocate(100_000)
    with pool._lock:
        child = os.fork()
        if not child:
            is_empty = pool.free_bytes == 0
            pool.allocate(100_000)
            os._exit(0 if is_empty and pool.free_bytes >= 100_000 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("setting", ["-1", "many"])
def test_a_wrong_limit_is_refused(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text names the variable and the remedy."""
    monkeypatch.setenv("INLAY_POOL", setting)
    with pytest.raises(InvalidArguments) as error:
        result_pool_of_process.__wrapped__()
    text = f"INLAY_POOL is '{setting}': set it to the bytes of free buffers to keep, such as 67108864, or 0"
    assert str(error.value) == text


def test_the_limit_is_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 turns the pool off."""
    monkeypatch.setenv("INLAY_POOL", "0")
    pool = result_pool_of_process.__wrapped__()
    pool.allocate(1 << 20)
    assert pool.limit == pool.free_bytes == 0
