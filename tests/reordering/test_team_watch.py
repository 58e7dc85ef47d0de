"""Shared calls that wait for workers without a processor: they run alone for a while, then are shared again."""

from itertools import pairwise

import pytest

from inlay.reordering import compile_reorder, threads
from inlay.reordering.threads import BACKOFF_NS, SLACK_NS, TRIAL_CALLS, TeamWatch
from tests.support.reorders import pair, transposes

MS = 1_000_000


class Calls:
    """A reorder whose successive calls have durations that the test sets, in milliseconds."""

    def __init__(self, shared: float = 1, alone: float = 1, waited: float = 0) -> None:
        self.watch = TeamWatch()
        self.now = 0
        self.shared, self.alone, self.waited = shared, alone, waited

    def call(self) -> bool:
        """One call, as `run_parts` does it; answers whether it was shared."""
        watch, begin = self.watch, self.now
        is_shared = watch.limit > 0 or watch.should_share(begin)
        duration = round(MS * (self.shared if is_shared else self.alone))
        self.now += duration
        if not watch.limit:
            watch.record_trial(is_shared, begin, duration)
        elif self.waited or not watch.usual <= duration <= watch.limit:
            watch.record(begin, duration, round(MS * self.waited))
        return is_shared

    def until(self, milliseconds: int) -> list[bool]:
        """The calls of so much time: which were shared."""
        end, found = self.now + milliseconds * MS, []
        while self.now < end:
            found.append(self.call())
        return found


@pytest.fixture
def disturbed() -> Calls:
    """Return calls of 1 ms on a team and 2 ms alone, of which each shared one now takes 9 ms."""
    calls = Calls(alone=2)
    assert all(calls.until(20))
    calls.shared = 9
    return calls


def test_calls_that_take_what_they_took_stay_shared() -> None:
    calls = Calls()
    for calls.shared in (1, 2, 2 + SLACK_NS / MS):
        assert all(calls.until(50))


def test_slow_calls_become_the_caller_s_alone_after_two_and_are_shared_again_once_they_are_fast(
    disturbed: Calls,
) -> None:
    assert disturbed.until(200)[:8] == [True, True] + [False] * 6
    disturbed.shared = 1
    later = disturbed.until(500)
    back = later.index(True)
    assert not any(later[:back])
    assert all(later[back:])


def test_a_team_that_goes_on_to_be_slow_is_tried_once_each_time_and_less_and_less_often(disturbed: Calls) -> None:
    disturbed.until(100)
    tried = []
    for _ in range(20_000):
        now = disturbed.now
        if disturbed.call():
            tried.append(now)
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == sorted(gaps)
    assert BACKOFF_NS[1] <= gaps[-1] < BACKOFF_NS[1] + 20 * MS


def test_calls_that_are_as_slow_alone_stay_shared_and_are_not_tried_again(disturbed: Calls) -> None:
    disturbed.alone = 9
    found = disturbed.until(1000)
    assert found.count(False) == TRIAL_CALLS
    assert all(found[2 + TRIAL_CALLS :])


def test_a_team_that_is_slow_from_the_first_call_on_is_noticed_by_what_the_caller_waited_for() -> None:
    assert Calls(shared=5, waited=4, alone=2).until(200)[:4] == [True, True, False, False]


def test_a_single_call_that_lost_much_suffices() -> None:
    calls = Calls(shared=900, waited=880, alone=30)
    assert [calls.call() for _ in range(6)] == [True] + [False] * 5


def test_slow_calls_that_lost_little_of_the_time_do_not_count() -> None:
    calls = Calls()
    for calls.shared in 20 * [5, *20 * [1]]:
        assert calls.call()


@pytest.mark.usefixtures("fresh_reorders")
def test_a_reorder_in_doubt_is_carried_out_by_its_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_threads", lambda: 3)
    reorder = compile_reorder(*pair((1024, 1024)))
    assert transposes(reorder, (1024, 1024))
    assert reorder.task is not None
    watch = reorder.task.watch
    for _ in range(2):
        watch.record(0, 10**10, 10**10 - 1)
    assert not watch.limit
    monkeypatch.setattr(threads.Team, "run", lambda *_: pytest.fail("shared"))
    assert transposes(reorder, (1024, 1024))
