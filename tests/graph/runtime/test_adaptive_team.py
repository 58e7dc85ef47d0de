"""Sessions use as many threads as run: decided by times that a test makes up, and what a session does with it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from inlay.errors import OutOfMemory
from inlay.graph.runtime import adaptive_team
from inlay.graph.runtime.adaptive_team import DOUBT, RETRY, AdaptiveTeam
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.measure.processors import Processors
from inlay.primitives import get_engine
from inlay.primitives.engine import Engine, Implementation, Operation
from inlay.reordering.threads import apply_thread_limit, get_num_threads
from tests.support.graph_programs import conv, drawn, graph_of, pointwise


class Runs:
    """Runs of a session whose seconds the test says, by number of threads."""

    def __init__(self, seconds: dict[int, float], most: int = 2, **options: Any) -> None:
        self.seconds, self.now, self.free = seconds, 0.0, most
        self.asked: list[float] = []
        self.team = AdaptiveTeam(most, self._free, clock=lambda: self.now, **options)

    def _free(self, most: int) -> int:
        self.asked.append(self.now)
        return min(most, self.free)

    def run(self, count: int = 1) -> list[int]:
        """The numbers of threads of so many runs."""
        found = []
        for _ in range(count):
            threads = self.team.threads
            found.append(threads)
            self.now += self.seconds[threads]
            self.team.note(threads, self.seconds[threads])
        return found

    def run_for(self, seconds: float) -> list[int]:
        end, found = self.now + seconds, []
        while self.now < end:
            found += self.run()
        return found


@pytest.mark.parametrize(
    ("runs", "threads"),
    [
        (Runs({1: 0.04, 2: 0.03}, expected=0.022), 2),
        (Runs({1: 1.0}, most=0, expected=0.1), 1),
        (Runs({1: 1.0}, most=1, expected=0.1), 1),
    ],
    ids=["as fast as expected", "threads unknown", "one thread"],
)
def test_a_team_that_takes_what_is_expected_or_cannot_shrink_stays(runs: Runs, threads: int) -> None:
    assert set(runs.run_for(100)) == {threads}
    assert runs.asked == []


def test_a_team_that_takes_ten_times_what_is_expected_shrinks_within_ten_runs() -> None:
    """ResNet-50 on two processors that together compute as fast as one."""
    runs = Runs({1: 0.049, 2: 0.450}, expected=0.022)
    first = runs.run(10)
    assert first[-1] == 1
    later = runs.run_for(60)
    assert later.count(2) * 0.45 < 0.2 * 60
    assert set(later[-2:]) == {1}


def test_a_team_is_as_large_as_before_within_five_seconds_after_it_runs_again() -> None:
    for disturbed in (0.5, 3.0, 20.0, 61.3):
        runs = Runs({1: 0.049, 2: 0.450}, expected=0.022)
        runs.run_for(disturbed)
        runs.seconds[2] = 0.025
        runs.run_for(5.0)
        assert set(runs.run_for(30.0)) == {2}


def test_a_quota_shrinks_the_team_at_once_and_holds_it() -> None:
    runs = Runs({1: 0.040, 2: 0.025}, expected=0.022)
    assert set(runs.run_for(5)) == {2}
    runs.free, runs.seconds[2] = 1, 0.080
    assert runs.run(10)[-6:] == [1] * 6
    assert set(runs.run_for(60)) == {1}
    runs.free, runs.seconds[2] = 2, 0.025
    runs.run_for(5)
    assert set(runs.run_for(5)) == {2}


def test_where_all_teams_are_slow_the_largest_stays_and_doubts_become_rare() -> None:
    runs = Runs({1: 0.4, 2: 0.2}, expected=0.022)
    threads = runs.run_for(300)
    assert threads.count(1) < 12
    assert threads[-1] == 2
    assert runs.seconds[2] * threads.count(2) > 290


def test_what_was_expected_too_low_is_forgotten() -> None:
    runs = Runs({1: 0.030, 2: 0.025}, expected=0.001)
    runs.run_for(5)
    asked = len(runs.asked)
    assert set(runs.run_for(200)) == {2}
    assert len(runs.asked) == asked


def test_without_an_expectation_the_first_runs_are_one() -> None:
    runs = Runs({1: 0.04, 2: 0.02})
    assert set(runs.run_for(3)) == {2}
    runs.seconds[2] = 0.2
    later = runs.run_for(5)
    assert later.count(2) < 10 < later.count(1)


def test_short_runs_of_which_a_few_are_very_long_are_noticed() -> None:
    runs = Runs({1: 2e-4, 2: 1e-4}, expected=1e-4)
    for _ in range(10):
        runs.seconds[2] = 1e-4
        runs.run(30)
        runs.seconds[2] = 5e-3
        runs.run()
    assert runs.team.threads == 1


def test_of_many_processors_those_that_run_are_used() -> None:
    runs = Runs({k: 1.6 / k for k in range(1, 17)}, most=16, expected=0.1)
    assert set(runs.run_for(10)) == {16}
    runs.free, runs.seconds[16] = 15, 0.4
    assert runs.run_for(4)[-1] == 15
    runs.free, runs.seconds[16] = 16, 0.1
    assert runs.run_for(6)[-1] == 16


def test_a_plan_for_fewer_threads_begins_with_them() -> None:
    runs = Runs({1: 0.04, 2: 0.2}, start=1, expected=0.04)
    runs.free = 1
    assert set(runs.run_for(10)) == {1}
    runs.free, runs.seconds[2] = 2, 0.025
    assert runs.run_for(5)[-1] == 2


def test_a_team_that_is_kept_stays() -> None:
    runs = Runs({1: 0.04, 2: 0.9}, expected=0.02)
    assert runs.team.fix_threads(2) == 2
    assert set(runs.run(100)) == {2}


def test_runs_of_another_team_do_not_count() -> None:
    runs = Runs({1: 0.04, 2: 0.02}, expected=0.02)
    for _ in range(100):
        runs.team.note(1, 9.0)
    assert runs.team.threads == 2


def test_several_threads_may_note_runs() -> None:
    team = AdaptiveTeam(2, lambda most: most, expected=1e-3)

    def work() -> None:
        for i in range(5000):
            team.note(team.threads, 1e-3 if i % 7 else 9e-3)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work) for _ in range(4)]:
            future.result()
    assert team.threads in (1, 2)


def test_the_waits_are_such_that_five_seconds_suffice() -> None:
    assert RETRY[0] < RETRY[1] <= 4.0
    assert DOUBT[0] < DOUBT[1]


class ThreadedEngine(Engine):
    """The reference engine as one of four threads; says for how many each implementation was created."""

    name = "threaded"

    def __init__(self) -> None:
        self.inner = get_engine("reference")
        self.created: list[int] = []
        self.refuses = False

    @property
    def num_threads(self) -> int:
        return apply_thread_limit(4)

    def create(self, operation: Operation) -> Implementation:
        if self.refuses:
            raise OutOfMemory("no room")
        self.created.append(self.num_threads)
        return self.inner.create(operation)


class OneStep:
    """A session of one convolution on an engine of four threads."""

    def __init__(self, **options: Any) -> None:
        self.weights = drawn(3, 2, 1, 1, seed=7)
        graph = graph_of([conv("conv", "x", "y", self.weights)], {"x": (1, 2, 4, 4), "y": (1, 3, 4, 4)}, "x", "y")
        self.engine = ThreadedEngine()
        self.session = ProgramSession(plain_program(graph), graph, engine=self.engine, **options)

    def run(self, threads: int | None = None) -> None:
        """Run once; with this number of threads where one is given."""
        if threads is not None:
            self.session._team.threads = threads
        x = drawn(1, 2, 4, 4)
        found = self.session.run({"x": x})["y"]
        np.testing.assert_allclose(found, pointwise(x, self.weights), rtol=1e-5, atol=1e-5)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> OneStep:
    monkeypatch.setattr(adaptive_team, "cpu_quota", lambda: None)
    return OneStep()


@pytest.mark.parametrize(
    ("quota", "planned", "threads"), [(None, None, 4), (2.0, None, 2), (0.5, None, 1), (2.0, 1, 1), (None, 3, 3)]
)
def test_a_session_is_compiled_for_all_threads_or_those_that_the_quota_or_the_plan_leaves(
    quota: float | None, planned: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptive_team, "cpu_quota", lambda: quota)
    case = OneStep(threads=planned)
    assert (case.session.threads, set(case.engine.created)) == (threads, {threads})
    case.run()


def test_a_session_for_fewer_threads_never_uses_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive_team, "cpu_quota", lambda: None)
    limited = OneStep(most_threads=2)
    limited.run()
    limited.run(1)
    limited.run(2)
    assert (limited.session.threads, limited.engine.created) == (2, [2, 1])
    assert limited.session._team.most == 2
    assert [limited.session._thread_limit(threads) for threads in (1, 2)] == [1, 2]


def test_a_session_is_compiled_once_for_each_number_of_threads_and_computes_the_same(case: OneStep) -> None:
    outside = get_num_threads()
    for threads in (4, 1, 2, 1, 4, 2):
        case.run(threads)
        assert case.session.trace({"x": drawn(1, 2, 4, 4)}).keys() == {"x", "y"}
    assert case.engine.created == [4, 1, 2]
    assert get_num_threads() == outside
    constants = [memory for pool in case.session._pools.values() for memory in pool.compiled.prepared]
    assert len(constants) == 3
    assert case.session.weights.nbytes < 2 * 3 * 2 * 4 + 64, "laid out once for all"


def test_of_many_numbers_of_threads_the_first_and_the_last_are_kept(case: OneStep) -> None:
    case.session._team.most = 9
    for threads in (4, 1, 2, 3, 5, 6):
        case.run(threads)
    assert list(case.session._pools) == [4, 3, 5, 6]


def test_a_session_that_cannot_be_compiled_for_fewer_threads_stays_as_it_is(case: OneStep) -> None:
    case.engine.refuses = True
    case.run(1)
    assert case.session.threads == 4
    case.run()


def test_what_a_session_measures_goes_to_its_team(case: OneStep, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[int, bool]] = []
    monkeypatch.setattr(case.session._team, "note", lambda threads, seconds: noted.append((threads, seconds > 0)))
    case.run()
    case.run(2)
    assert noted == [(4, True), (2, True)]


@pytest.mark.parametrize(
    ("most", "quota", "shares", "free"),
    [(1, 0.5, (), 1), (2, None, (), 2), (2, 1.2, (), 1), (8, None, (1.0,) * 8, 8), (8, 3.0, (1.0,) * 8, 3)],
)
def test_quotas_decide_for_two_threads_and_processors_are_measured_for_more(
    most: int, quota: float | None, shares: tuple[float, ...], free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptive_team, "cpu_quota", lambda: quota)
    monkeypatch.setattr(adaptive_team, "_SLEEP_SECONDS", 0.0)
    monkeypatch.setattr(adaptive_team, "recent_processors", lambda: Processors(shares))
    assert adaptive_team.free_threads(most) == free
