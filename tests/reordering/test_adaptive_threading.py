"""Adaptive threading of small reorders: trials choose between one thread and several."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from inlay.reordering import CompiledReorder, compile_reorder, compiled, threads
from inlay.reordering.choice import Choice, Decision
from inlay.reordering.compiled import (
    CALLS_AFTER_LOSS,
    CALLS_AFTER_WIN,
    CALLS_BEFORE_TRIAL,
    CALLS_PER_VARIANT,
    MOST_CALLS_AFTER_LOSS,
    PairedTrial,
    compile_problem,
)
from inlay.reordering.threads import TeamWatch
from tests.support.reorders import pair, problem_of, transposes

SMALL = (256, 256)
"""256 KiB on each side: half a second-level cache of today."""


def in_trial() -> PairedTrial:
    never: Any = None  # no call is run
    trial = PairedTrial(never, lambda: never, shares=True)
    trial.calls_until_trial = 0
    return trial


def try_out(trial: PairedTrial, alone: int, shared: int, after_shared: int = 1000) -> tuple[bool, int]:
    """Feed a new trial with calls of given durations, and given times between them, in nanoseconds; what it decides."""
    now, trial.calls_until_trial = 0, 0
    for took, pause in [(alone, 1000)] * CALLS_PER_VARIANT + [(shared, after_shared)] * CALLS_PER_VARIANT:
        trial.note(now, took)
        now += took + pause
    return trial.uses_second, trial.calls_until_trial


WINS, LOSES = (True, CALLS_AFTER_WIN), (False, CALLS_AFTER_LOSS)


@pytest.mark.parametrize(("shared", "wins"), [(3000, True), (5600, True), (5800, False), (6000, False), (12000, False)])
def test_calls_are_shared_if_that_is_faster_by_more_than_a_twentieth(shared: int, wins: bool) -> None:
    assert try_out(in_trial(), 6000, shared) == (WINS if wins else LOSES)


@pytest.mark.parametrize(("after_shared", "wins"), [(500, True), (1900, True), (2100, False), (9000, False)])
def test_half_of_what_the_calls_gain_must_be_left_to_the_program(after_shared: int, wins: bool) -> None:
    assert try_out(in_trial(), 6000, 4000, after_shared) == (WINS if wins else LOSES)


def test_a_trial_is_calls_alone_and_then_shared_ones() -> None:
    trial, shares = in_trial(), list[bool]()
    while not trial.calls_until_trial:
        shares.append(trial.uses_second)
        trial.note(len(shares), 1)
    assert shares == [False] * CALLS_PER_VARIANT + [True] * CALLS_PER_VARIANT


def test_the_first_calls_of_either_kind_and_single_slow_ones_do_not_decide() -> None:
    trial, now = in_trial(), 0
    for took in [9000] * 4 + [6000] * 5 + [10**6] + [50_000] * 4 + [4000] * 5 + [10**6]:
        trial.note(now, took)
        now += took
    assert (trial.uses_second, trial.calls_until_trial) == WINS


def test_what_was_decided_is_tried_anew_after_many_calls() -> None:
    trial = in_trial()
    assert try_out(trial, 6000, 3000) == WINS
    assert try_out(trial, 6000, 12000) == LOSES


def test_what_loses_again_and_again_is_tried_less_and_less_often() -> None:
    trial = in_trial()
    waits = [try_out(trial, 6000, 12000)[1] for _ in range(6)]
    assert waits == [250, 500, 1000, 2000, 4000, 4000]
    assert waits[-1] == MOST_CALLS_AFTER_LOSS
    try_out(trial, 6000, 3000)
    assert try_out(trial, 6000, 12000) == LOSES, "it had won in between"


def test_a_sleeping_worker_begins_a_trial_and_does_not_begin_one_in_a_trial() -> None:
    trial = in_trial()
    try_out(trial, 6000, 3000)
    trial.restart()
    assert (trial.uses_second, trial.calls_until_trial) == (False, 0)
    for i in range(CALLS_PER_VARIANT):
        trial.note(i, 6000)
    trial.restart()
    assert (trial.uses_second, trial.calls_until_trial) == (True, 0)


@pytest.fixture
def transpose(monkeypatch: pytest.MonkeyPatch) -> CompiledReorder:
    """Return a small reorder with a new trial, on a machine with three processors."""
    monkeypatch.setattr(threads, "available_threads", lambda: 3)
    return compile_reorder(*pair(SMALL))


def test_the_first_calls_are_the_caller_s_alone(transpose: CompiledReorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "run_parts", lambda *_: pytest.fail("shared"))
    x, y = np.zeros((2, *SMALL), np.float32)
    for _ in range(CALLS_BEFORE_TRIAL + CALLS_PER_VARIANT):
        transpose.run(x.ctypes.data, y.ctypes.data)
    assert transpose.trial is not None
    assert (transpose.trial.calls_until_trial, transpose.trial.uses_second) == (0, True)


def test_every_call_of_every_trial_moves_everything(transpose: CompiledReorder) -> None:
    assert transposes(transpose, SMALL, CALLS_BEFORE_TRIAL + 2 * CALLS_PER_VARIANT + 50)
    assert transpose.trial is not None
    assert transpose.trial.calls_until_trial <= CALLS_AFTER_WIN
    assert transpose.task is not None
    transpose.task.watch = TeamWatch()  # whatever else the machine did meanwhile
    transpose.trial.uses_second, transpose.trial.calls_until_trial = True, 100
    time.sleep(0.01)
    assert transposes(transpose, SMALL)
    assert transpose.trial.calls_until_trial == 0, "its workers slept"


def test_several_threads_have_one_habit(transpose: CompiledReorder) -> None:
    barrier = threading.Barrier(4)

    def work(_: int) -> bool:
        barrier.wait()
        return transposes(transpose, SMALL, 300)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@pytest.mark.parametrize("most", [1, 2])
def test_where_the_number_of_threads_was_chosen_nothing_is_tried(most: int) -> None:
    reorder = compile_problem(problem_of(SMALL), Decision(Choice(threads=most)))
    assert (reorder.trial, reorder.parts) == (None, 1)


@pytest.mark.parametrize(("rows", "learns"), [(63, False), (64, True), (511, True), (512, False)])
def test_what_is_tried_is_large_enough_to_split_and_fits_one_core(rows: int, learns: bool) -> None:
    assert (compile_reorder(*pair((rows, 256))).trial is not None) == learns
