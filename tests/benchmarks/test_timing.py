"""How the benchmark takes times: turns, rests, who leaves early, and what is formed from the times."""

import time
from collections.abc import Mapping, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rounds import Rounds, decided
from inlay.measure.statistics import Spread, paired_ratio, spread


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12))
def test_the_spread_encloses_the_median_and_lies_within_the_measurements(values: list[float]) -> None:
    figure = spread(values)
    assert min(values) <= figure.low <= figure.median <= figure.high <= max(values)


@given(st.lists(st.floats(1.0, 10.0), min_size=3, max_size=9), st.floats(0.1, 10.0))
def test_a_ratio_does_not_see_what_slows_both_sides_down(drift: list[float], ratio: float) -> None:
    figure = paired_ratio([ratio * slow for slow in drift], drift)
    assert figure.low == pytest.approx(ratio)
    assert figure.high == pytest.approx(ratio)


def test_everybody_takes_one_turn_per_round_and_another_one_begins_each_round() -> None:
    turns: list[str] = []
    runners = {name: partial(turns.append, name) for name in "abc"}
    rounds = Rounds(count=4, block_seconds=0, settle_seconds=0)
    seconds = rounds.measure(runners, warm=False)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 4, "b": 4, "c": 4}
    calibration = "aaabbbccc"
    assert "".join(turns) == calibration + "abc" + "bca" + "cab" + "abc"


def test_whose_first_rounds_say_enough_has_no_others() -> None:
    turns: list[str] = []
    runners = {name: partial(turns.append, name) for name in "abc"}
    rounds = Rounds(count=5, block_seconds=0, settle_seconds=0)
    asked: list[dict[str, int]] = []

    def judge(times: Mapping[str, Sequence[float]]) -> str:
        asked.append({name: len(values) for name, values in times.items()})
        return "a"

    seconds = rounds.measure(runners, warm=False, judge=judge)
    assert asked == [{"a": 3, "b": 3, "c": 3}]
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 5, "c": 5}
    assert "".join(turns[9:]) == "abc" + "bca" + "cab" + "cb" + "bc"


def test_a_call_without_patience_for_it_is_timed_once() -> None:
    rounds = Rounds(count=3, block_seconds=1e-6, settle_seconds=0, once=2e-3)
    seconds = rounds.measure({"slowest": partial(time.sleep, 4e-3), "quick": int}, warm=True)
    assert {name: len(values) for name, values in seconds.items()} == {"slowest": 1, "quick": 3}


def test_copies_behind_the_best_and_peers_far_behind_are_decided_early() -> None:
    times = {
        "Inlay": [2.0, 2.0, 2.0],
        "near": [9.0, 2.9, 9.0],
        "far": [3.1, 3.1, 3.1],
        "ahead": [1.0, 1.0, 1.0],
        "copy best": [1.0, 1.1, 1.2],
        "copy close": [1.0, 1.3, 1.3],
        "copy behind": [1.2, 1.2, 1.2],
    }
    assert decided(times) == {"far", "copy behind"}


class SimulatedClock:
    """Replaces `time` where waits look at it: a thread of the process computes for the first 50 ms."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return min(self.now, 0.05)


def test_nobody_begins_while_a_thread_of_the_process_works(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = SimulatedClock()
    monkeypatch.setattr("inlay.measure.disturbance.time", simulated)
    begun: list[float] = []
    Rounds(count=1, block_seconds=0).measure({"a": lambda: begun.append(simulated.now)}, warm=False)
    assert begun[-1] > 0.05


def test_a_slow_runner_takes_a_turn_in_a_third_of_the_rounds_and_ratios_pair_those() -> None:
    rounds = Rounds(count=7, block_seconds=1e-6, settle_seconds=0, patience=2e-3)
    seconds = rounds.measure({"slow": partial(time.sleep, 4e-3), "quick": int}, warm=True)
    assert {name: len(values) for name, values in seconds.items()} == {"slow": 3, "quick": 7}
    assert paired_ratio([2.0, 4.0, 6.0, 100.0], [1.0, 1.0, 1.0]) == Spread(4.0, 3.0, 5.0)


def test_a_short_call_is_repeated_until_a_block_is_long_enough() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    Rounds(count=1, block_seconds=1e-3, settle_seconds=0).measure({"short": call}, warm=False)
    assert calls > 100
