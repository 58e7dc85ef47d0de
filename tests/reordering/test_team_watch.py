"""Shared calls that wait for workers without a processor: they run alone for a while, then are shared again."""

from itertools import pairwise

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compile_reorder, threads
from inlay.reordering.threads import BACKOFF_NS, SLACK_NS, TRIAL_CALLS, TeamWatch

MS = 1_000_000


class Calls:
    """A reorder whose successive calls have durations that the test sets."""

    def __init__(self) -> None:
        self.watch = TeamWatch()
        self.now = 0
        self.shared = self.alone = 1 * MS
        self.waited = 0

    def call(self) -> bool:
        """One call, as `run_parts` does it; answers whether it was shared."""
        watch, begin = self.watch, self.now
        is_shared = watch.limit > 0 or watch.should_share(begin)
        duration = self.shared if is_shared else self.alone
        self.now += duration
        if not watch.limit:
            watch.record_trial(is_shared, begin, duration)
        elif self.waited or not watch.usual <= duration <= watch.limit:
            watch.record(begin, duration, self.waited)
        return is_shared

    def until(self, nanoseconds: int) -> list[bool]:
        """The calls of so many nanoseconds: which were shared."""
        end, found = self.now + nanoseconds, []
        while self.now < end:
            found.append(self.call())
        return found


def disturbed() -> Calls:
    """Return calls of 1 ms on a team and 2 ms alone, of which each shared one now takes 9 ms."""
    calls = Calls()
    calls.alone = 2 * MS
    assert all(calls.until(20 * MS))
    calls.shared = 9 * MS
    return calls


def test_calls_that_take_what_they_took_stay_shared() -> None:
    calls = Calls()
    for duration in (1 * MS, 2 * MS, 2 * MS + SLACK_NS):
        calls.shared = duration
        assert all(calls.until(50 * MS))


def test_slow_calls_become_the_caller_s_alone_after_two_and_are_shared_again_once_they_are_fast() -> None:
    calls = disturbed()
    assert calls.until(200 * MS)[:8] == [True, True] + [False] * 6
    calls.shared = 1 * MS
    later = calls.until(500 * MS)
    back = later.index(True)
    assert not any(later[:back])
    assert all(later[back:])


def test_a_team_that_goes_on_to_be_slow_is_tried_once_each_time_and_less_and_less_often() -> None:
    calls = disturbed()
    calls.until(100 * MS)
    tried = []
    for _ in range(20_000):
        now = calls.now
        if calls.call():
            tried.append(now)
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == sorted(gaps)
    assert BACKOFF_NS[1] <= gaps[-1] < BACKOFF_NS[1] + 20 * MS


def test_calls_that_are_as_slow_alone_stay_shared_and_are_not_tried_again() -> None:
    calls = disturbed()
    calls.alone = 9 * MS
    found = calls.until(1000 * MS)
    assert found.count(False) == TRIAL_CALLS
    assert all(found[2 + TRIAL_CALLS :])


def test_a_team_that_is_slow_from_the_first_call_on_is_noticed_by_what_the_caller_waited_for() -> None:
    calls = Calls()
    calls.shared, calls.waited, calls.alone = 5 * MS, 4 * MS, 2 * MS
    assert calls.until(200 * MS)[:4] == [True, True, False, False]


def test_a_single_call_that_lost_much_suffices() -> None:
    calls = Calls()
    calls.shared, calls.waited, calls.alone = 900 * MS, 880 * MS, 30 * MS
    assert [calls.call() for _ in range(6)] == [True] + [False] * 5


def test_slow_calls_that_lost_little_of_the_time_do_not_count() -> None:
    calls = Calls()
    for _ in range(20):
        calls.shared = 5 * MS
        assert calls.call()
        calls.shared = 1 * MS
        assert all(calls.call() for _ in range(20))


def test_a_reorder_in_doubt_is_carried_out_by_its_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_threads", lambda: 3)
    find_reorder.cache_clear()
    try:
        reorder = compile_reorder(MemoryDesc((1024, 1024), "f32", "ab"), MemoryDesc((1024, 1024), "f32", "ba"))
        x = np.arange(1024 * 1024, dtype=np.float32).reshape(1024, 1024)
        y = np.zeros_like(x)
        reorder.run(x.ctypes.data, y.ctypes.data)
        assert (y == x.T).all()
        assert reorder.task is not None
        watch = reorder.task.watch
        for _ in range(2):
            watch.record(0, 10**10, 10**10 - 1)
        assert not watch.limit
        monkeypatch.setattr(threads.Team, "run", lambda *_: pytest.fail("shared"))
        y.fill(0)
        reorder.run(x.ctypes.data, y.ctypes.data)
        assert (y == x.T).all()
    finally:
        find_reorder.cache_clear()
