"""Timing records: damaged files, limits of their size, and several processes that write."""

import subprocess
import sys
from pathlib import Path

import pytest

from inlay import cache
from inlay.graph.costs import timing_records
from inlay.graph.costs.timing_records import KernelTiming, RelativeTime, TimingRecords
from inlay.measure import timing_database
from inlay.measure.timing_database import read_table


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("data", [None, b"", b"[]", b"{", b"null", b"[" * 100_000, b"\xff"])
def test_a_file_that_is_no_table_is_empty(data: bytes | None) -> None:
    assert read_table(data) == {}


@pytest.mark.parametrize("value", ["null", "[]", "{}", "-1.0", "NaN", "1", '["jit", 1.0, 0]', '["jit", 1.0, 0, []]'])
def test_an_entry_that_makes_no_sense_is_as_good_as_none(value: str) -> None:
    data = f'{{"yardstick": {value}, "kernel a": {value}, "reorder a": {value}}}'
    records = TimingRecords("spoiled")
    cache.write_object(records.name, data.encode(), timing_records.KIND)
    assert (records.yardstick, records.kernel("a"), records.reorder("a")) == (None, None, None)
    records.write_yardstick(2e-5)
    records.write_kernel("a", KernelTiming("jit", RelativeTime(1.0), 0, ()))
    records.save()
    again = TimingRecords("spoiled")
    assert (again.yardstick, again.kernel("a")) == (2e-5, KernelTiming("jit", RelativeTime(1.0), 0, ()))


def test_a_table_is_bounded_and_what_was_written_first_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_database, "MOST", 5)
    for i in range(8):
        records = TimingRecords("bounded")
        records.write_reorder(str(i), RelativeTime(1.0 + i))
        records.write_reorder("often", RelativeTime(0.5))
        records.save()
    found = TimingRecords("bounded")
    assert [i for i in range(8) if found.reorder(str(i)) is not None] == [4, 5, 6, 7]
    assert found.reorder("often") == RelativeTime(0.5)


def test_two_who_write_at_once_both_succeed() -> None:
    one, other = TimingRecords("shared"), TimingRecords("shared")
    one.write_kernel("a", KernelTiming("jit", RelativeTime(1.0), 0, ()))
    other.write_kernel("b", KernelTiming("jit", RelativeTime(2.0), 64, (("dst", "{}"),)))
    other.write_yardstick(2e-5)
    one.write_yardstick(1e-5)
    assert one.yardstick is None
    one.save()
    other.save()
    third = TimingRecords("shared")
    assert third.kernel("a") == KernelTiming("jit", RelativeTime(1.0), 0, ())
    assert third.kernel("b") == other.kernel("b") == KernelTiming("jit", RelativeTime(2.0), 64, (("dst", "{}"),))
    assert third.yardstick == 1e-5


WRITER = """
import sys
from inlay.graph.costs.timing_records import TimingRecords, KernelTiming, RelativeTime
for i in range(40):
    records = TimingRecords("busy")
    records.write_kernel(f"{sys.argv[1]} {i}", KernelTiming("jit", RelativeTime(1.0 + i), 0, ()))
    records.write_reorder(f"{sys.argv[1]} {i}", RelativeTime(0.5))
    records.save()
"""


def test_two_processes_lose_nothing_of_each_other() -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in "xy"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    records = TimingRecords("busy")
    assert all(
        records.kernel(f"{name} {i}") == KernelTiming("jit", RelativeTime(1.0 + i), 0, ())
        for name in "xy"
        for i in range(40)
    )
    assert all(records.reorder(f"{name} {i}") == RelativeTime(0.5) for name in "xy" for i in range(40))


def test_records_are_written_to_no_directory_but_that_of_its_beginning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    late, other = TimingRecords("late"), tmp_path / "other"
    late.write_kernel("a", KernelTiming("jit", RelativeTime(1.0), 0, ()))
    monkeypatch.setenv("INLAY_CACHE_DIR", str(other))
    late.save()
    assert late.unsaved == f"the cache directory is no longer {tmp_path}: set it before anything is measured"
    assert TimingRecords("late").kernel("a") is None
    assert not list(other.glob("*.costs"))
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path))
    late.save()
    assert (late.unsaved, TimingRecords("late").kernel("a")) == ("", KernelTiming("jit", RelativeTime(1.0), 0, ()))
