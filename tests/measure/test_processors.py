"""Processors: quotas of control groups from files of the tests, and shares from simulated clocks."""

import itertools
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inlay.measure.processors import (
    Processors,
    average_processors,
    compute_shares,
    cpu_quota,
    measure_processors,
    recent_processors,
)
from inlay.reordering.threads import ThreadLimit, apply_thread_limit, get_num_threads, set_num_threads

V2 = "0::/user.slice/job\n"
V1 = "4:memory:/job\n3:cpu,cpuacct:/user/job\n2:cpuset:/\n"


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        (V2, {}, None),
        (V2, {"user.slice/job/cpu.max": "max 100000\n"}, None),
        (V2, {"user.slice/job/cpu.max": "150000 100000\n"}, 1.5),
        (V2, {"user.slice/job/cpu.max": "max 100000\n", "user.slice/cpu.max": "50000 50000\n"}, 1.0),
        (V2, {"user.slice/job/cpu.max": "200000 100000\n", "user.slice/cpu.max": "50000 100000\n"}, 0.5),
        (V2, {"user.slice/cpu.max": "10000 1000\n"}, 10.0),
        ("0::/../outside\n", {"cpu.max": "100000 100000\n"}, None),
        ("0::/named/from/outside\n", {"cpu.max": "100000 100000\n"}, 1.0),
        (V2, {"user.slice/job/cpu.max": "nonsense\n"}, None),
        (V2, {"user.slice/job/cpu.max": "100000 0\n"}, None),
        (V2, {"user.slice/job/cpu.max": "\n"}, None),
        (V2, {"unified/user.slice/job/cpu.max": "70000 100000\n"}, 0.7),
        (V1, {"cpu,cpuacct/user/job/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/user/job/cpu.cfs_period_us": "9\n"}, None),
        (V1, {"cpu/user/job/cpu.cfs_quota_us": "25000\n", "cpu/user/job/cpu.cfs_period_us": "10000\n"}, 2.5),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "25000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 0.25),
        (V1, {"cpu/user/job/cpu.cfs_quota_us": "25000\n"}, None),
        (V1, {"memory/job/cpu.cfs_quota_us": "1\n", "memory/job/cpu.cfs_period_us": "1\n"}, None),
        ("\nno line of groups\n1:cpu\n", {"cpu/job/cpu.cfs_quota_us": "1\n"}, None),
    ],
)
def test_the_least_quota_on_the_path_of_groups_counts(
    membership: str, files: Mapping[str, str], quota: float | None, tmp_path: Path
) -> None:
    """The lines of /proc/self/cgroup, and all files of the control groups."""
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "membership").write_text(membership)
    assert cpu_quota(tmp_path / "membership", tmp_path / "cgroup") == quota


def test_a_system_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "none", tmp_path) is None


@pytest.mark.parametrize(
    ("shares", "quota", "threads", "is_busy"),
    [
        ((1.0,), None, 1, False),
        ((0.97, 0.94), None, 2, False),
        ((0.5, 0.5), None, 1, True),
        ((1.0, 0.5), None, 1, True),
        ((0.98, 0.95), 1.0, 1, False),
        ((0.98, 0.95), 1.4, 1, False),
        ((0.98, 0.95), 1.6, 2, False),
        ((0.98, 0.95), 0.2, 1, False),
        ((1.0,) * 15 + (0.5,), None, 15, True),
        ((0.98,) * 16, None, 16, False),
        ((1.0,) * 4 + (0.5,) * 4, None, 4, True),
        ((), None, 1, False),
    ],
)
def test_a_team_is_as_large_as_computes_fastest_if_all_wait_for_each_other(
    shares: tuple[float, ...], quota: float | None, threads: int, is_busy: bool
) -> None:
    processors = Processors(shares, quota)
    assert (processors.threads, processors.is_busy) == (threads, is_busy)


def test_processors_say_how_many_are_free() -> None:
    assert str(Processors((1.0, 0.5))) == "1.5 of 2 processors are free"
    assert str(Processors((1.0, 0.9), 1.5)) == "1.9 of 2 processors are free, and the quota is 1.5"
    assert Processors((1.0, 0.9), 1.5).effective == 1.5


@pytest.mark.parametrize(
    ("executions", "alone", "shares"),
    [
        ([[1.0] * 4, [1.0] * 4], 1.0, (1.0, 1.0)),
        ([[1.0, 5.0], [1.0] * 4], 1.0, (1.0, 1 / 3)),
        ([[1.4] * 3, [1.4] * 3], 1.0, (1.0, 1.0)),  # all clocks are lower while all compute
        ([[2.0] * 3, [2.0] * 3], 1.0, (0.5, 0.5)),  # two processors that are one
        ([[], [1.0]], 1.0, (1.0, 0.0)),  # a thread that never ran
    ],
)
def test_a_share_is_the_fastest_execution_over_what_they_took(
    executions: list[list[float]], alone: float, shares: tuple[float, ...]
) -> None:
    assert compute_shares(executions, alone) == pytest.approx(shares)


class Machine(threading.local):
    """A clock for each thread, which computing moves: on the second processor each execution takes `slowness` times."""

    def __init__(self, slowness: float, others: "itertools.count[int]") -> None:
        self.now = 0.0
        # Each thread initializes the machine once: the caller, then one for each processor.
        self.step = 1e-4 * (slowness if next(others) == 2 else 1.0)

    def clock(self) -> float:
        return self.now

    def spin(self) -> None:
        self.now += self.step


@pytest.mark.parametrize(("slowness", "shares"), [(1.0, (1.0, 1.0)), (2.0, (1.0, 0.5)), (4.0, (1.0, 0.25))])
def test_each_processor_is_compared_with_the_fastest(slowness: float, shares: tuple[float, ...]) -> None:
    machine = Machine(slowness, itertools.count())
    found = measure_processors(machine.spin, processors=(0, 0), quota=lambda: 1.5, window=0.02, clock=machine.clock)
    assert found.shares == pytest.approx(shares, rel=0.05)
    assert found.quota == 1.5


def test_this_machine_has_as_many_processors_as_its_affinity() -> None:
    found = measure_processors(window=1e-3)
    assert found.count == len(found.shares) >= 1
    assert all(0 <= share <= 1 for share in found.shares)


def test_unclear_processors_are_measured_three_times_and_a_result_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("inlay.measure.processors._last", None)
    monkeypatch.setattr("inlay.measure.processors.allowed_processors", lambda: (0, 1))
    free, busy, unclear = Processors((1.0, 1.0)), Processors((1.0, 0.4)), Processors((0.9, 0.8))

    def recent(max_age: float, *results: Processors) -> Processors:
        return recent_processors(max_age, iter(results).__next__)

    assert recent(1e9, busy, free, free).shares == pytest.approx((1.0, 0.8))
    assert recent(1e9).shares == pytest.approx((1.0, 0.8))
    assert recent(-1.0, free).shares == (1.0, 1.0)
    assert recent(-1.0, unclear, busy, busy).is_busy
    assert average_processors([free]) == free


def test_a_limit_of_a_thread_is_its_own_and_the_lower_one_counts() -> None:
    set_num_threads(3)
    try:
        with ThreadLimit(2):
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(apply_thread_limit, 8).result() == 3
            assert (apply_thread_limit(8), apply_thread_limit(1)) == (2, 1)
            with ThreadLimit(5):
                assert apply_thread_limit(8) == 2
            with ThreadLimit(1), ThreadLimit(None):
                assert get_num_threads() == 1
            assert apply_thread_limit(8) == 2
        assert apply_thread_limit(8) == 3
        with ThreadLimit(4):
            assert apply_thread_limit(8) == 3
    finally:
        set_num_threads(None)
