"""Background work: pauses that runs cause, on a clock of the test's own."""

import threading
from dataclasses import dataclass, field

import pytest

from inlay.graph import background
from inlay.graph.background import RUNS, SHARE, SLICE, in_background, yield_to_runs


@dataclass
class Time:
    """Time that only the test and sleeps move."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(background, "time", found)
    monkeypatch.setattr(RUNS, "ended", float("-inf"))
    return found


def work(time: Time, seconds: float) -> None:
    time.now += seconds
    yield_to_runs()


def test_only_background_threads_pause(time: Time) -> None:
    with RUNS:
        work(time, 1.0)
    assert not time.slept


def test_background_work_without_runs_does_not_pause(time: Time) -> None:
    with in_background():
        for _ in range(10):
            work(time, SLICE)
    assert not time.slept


@pytest.mark.parametrize("step", [SLICE / 4, SLICE, 3.7 * SLICE])
def test_beside_a_run_background_work_computes_for_its_share_of_the_time(time: Time, step: float) -> None:
    with in_background(), RUNS:
        for _ in range(400):
            work(time, step)
    assert 400 * step / time.now == pytest.approx(SHARE, rel=0.02)


def test_between_runs_it_lets_others_have_the_lock(time: Time) -> None:
    with RUNS:
        pass
    with in_background():
        work(time, 0.4 * SLICE)
        work(time, SLICE)
        time.now += 10.0
        work(time, SLICE)
    assert len(time.slept) == 1
    assert time.slept[0] < SLICE


def test_the_state_is_that_of_one_thread_and_nests(time: Time) -> None:
    def elsewhere() -> None:
        work(time, 1.0)

    with in_background(), RUNS:
        with in_background():
            pass
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert not time.slept
        yield_to_runs()
        assert len(time.slept) == 1
    with RUNS:
        work(time, 1.0)
    assert len(time.slept) == 1


def test_an_error_ends_a_run() -> None:
    def run() -> None:
        with RUNS:
            assert RUNS.is_any
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert not RUNS.is_any
