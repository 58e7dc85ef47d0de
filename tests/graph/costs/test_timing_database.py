"""Timing records: saved for other processes, damaged, bounded, and what happens where they cannot be saved."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from inlay import cache
from inlay.graph.costs import timing_records
from inlay.graph.costs.timing_records import KernelTiming, RelativeTime, TimingRecords
from inlay.measure import timing_database
from inlay.measure.timing_database import read_table

ENTRY = KernelTiming("jit:test", RelativeTime(1.5), 64, (("dst", "{}"),))


@pytest.fixture(autouse=True)
def own_directory(directory: Path) -> Path:
    return directory


def read() -> TimingRecords:
    """The records as another process reads them."""
    return TimingRecords("test", "1")


def written_records() -> TimingRecords:
    records = read()
    records.write_kernel("a", ENTRY)
    return records


def require_saved(records: TimingRecords) -> None:
    records.save()
    assert (records.unsaved, read().kernel("a")) == ("", ENTRY)


def lock_file(directory: Path) -> Path:
    return directory / f"{cache.object_key(timing_records.KIND, timing_records._VERSION, 'test', '1')}.lock"


@pytest.mark.parametrize("data", [None, b"", b"[]", b"{", b"null", b"[" * 100_000, b"\xff"])
def test_a_file_that_is_no_table_is_empty(data: bytes | None) -> None:
    assert read_table(data) == {}


@pytest.mark.parametrize("value", ["null", "[]", "{}", "-1.0", "NaN", "1", '["jit", 1.0, 0]', '["jit", 1.0, 0, []]'])
def test_an_entry_that_makes_no_sense_is_as_good_as_none(value: str) -> None:
    data = f'{{"yardstick": {value}, "kernel a": {value}, "reorder a": {value}}}'
    records = read()
    cache.write_object(records.name, data.encode(), timing_records.KIND)
    assert (records.yardstick, records.kernel("a"), records.reorder("a")) == (None, None, None)
    records.write_yardstick(2e-5)
    records.write_kernel("a", ENTRY)
    require_saved(records)
    assert read().yardstick == 2e-5


def test_a_table_is_bounded_and_what_was_written_first_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_database, "MOST", 5)
    for i in range(8):
        records = read()
        records.write_reorder(str(i), RelativeTime(1.0 + i))
        records.write_reorder("often", RelativeTime(0.5))
        records.save()
    found = read()
    assert [i for i in range(8) if found.reorder(str(i)) is not None] == [4, 5, 6, 7]
    assert found.reorder("often") == RelativeTime(0.5)


def test_what_is_saved_is_read_by_another_process_and_no_other_user(directory: Path) -> None:
    require_saved(written_records())
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert lock_file(directory).exists()


def test_two_processes_that_save_keep_what_both_found() -> None:
    one, other = written_records(), read()
    other.write_kernel("b", KernelTiming("jit", RelativeTime(2.0), 0, ()))
    other.write_yardstick(2e-5)
    one.write_yardstick(1e-5)
    assert one.yardstick is None
    one.save()
    other.save()
    third = read()
    assert third.kernel("a") == other.kernel("a") == ENTRY
    assert third.kernel("b") == other.kernel("b") == KernelTiming("jit", RelativeTime(2.0), 0, ())
    assert third.yardstick == 1e-5


WRITER = """
import sys
from inlay.graph.costs.timing_records import TimingRecords, KernelTiming, RelativeTime
for i in range(40):
    records = TimingRecords("test", "1")
    records.write_kernel(f"{sys.argv[1]} {i}", KernelTiming("jit", RelativeTime(1.0 + i), 0, ()))
    records.write_reorder(f"{sys.argv[1]} {i}", RelativeTime(0.5))
    records.save()
"""


def test_two_processes_that_write_often_lose_nothing_of_each_other() -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in "xy"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    records = read()
    for name in "xy":
        for i in range(40):
            assert records.kernel(f"{name} {i}") == KernelTiming("jit", RelativeTime(1.0 + i), 0, ())
            assert records.reorder(f"{name} {i}") == RelativeTime(0.5)


def test_records_are_written_to_no_directory_but_that_of_its_beginning(
    monkeypatch: pytest.MonkeyPatch, directory: Path, tmp_path: Path
) -> None:
    late, other = written_records(), tmp_path / "other"
    monkeypatch.setenv("INLAY_CACHE_DIR", str(other))
    late.save()
    assert late.unsaved == f"the cache directory is no longer {directory}: set it before anything is measured"
    assert read().kernel("a") is None
    assert not list(other.glob("*.costs"))
    monkeypatch.setenv("INLAY_CACHE_DIR", str(directory))
    require_saved(late)


# Where nothing can be saved


def make_lock_a_directory(directory: Path) -> None:
    lock_file(directory).mkdir()


def open_to_others(directory: Path) -> None:
    directory.chmod(0o777)


def make_a_file(directory: Path) -> None:
    directory.rmdir()
    directory.touch()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (make_lock_a_directory, "cannot write to the cache directory {0}: it is a directory; name a file"),
        (make_a_file, "cannot create the cache directory {0}: File exists"),
        pytest.param(
            open_to_others,
            "other users may write to the cache directory {0}: chmod go-w {0}",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="permission bits are Unix's"),
        ),
    ],
)
def test_a_directory_that_cannot_be_used_is_named(directory: Path, spoil: Callable[[Path], None], why: str) -> None:
    spoil(directory)
    records = written_records()
    records.save()
    assert (records.unsaved, records.kernel("a")) == (why.format(directory), ENTRY)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (28, "the disk is full; free space or write elsewhere"),
        (30, "the file system is read-only; write elsewhere"),
        (13, "permission denied; check who may use it"),
    ],
)
def test_a_disk_that_takes_no_file_loses_nothing_for_good(
    directory: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "refused")

    records = written_records()
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", refuse)
        records.save()
    assert records.unsaved == f"cannot write to the cache directory {directory}: {reason}"
    assert records.kernel("a") == ENTRY
    require_saved(records)


def test_a_lock_that_another_process_holds_is_not_awaited_for_ever(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl", reason="the system locks files in another way")
    monkeypatch.setattr(timing_database, "_LOCK_TIMEOUT", 0.05)
    records = written_records()
    with lock_file(directory).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for _ in range(3):
            records.save()
            assert records.unsaved == f"another process holds the lock {lock_file(directory)}"
    assert list(directory.glob("*.costs")) == []
    require_saved(records)


WITHOUT_PERMISSION = """
import os, filelock
from inlay.graph.costs.timing_records import TimingRecords, KernelTiming, RelativeTime
if os.geteuid() == 0:  # root may write everywhere
    os.chown(os.environ["INLAY_CACHE_DIR"], 65534, 65534)
    os.setuid(65534)
records = TimingRecords("test", "1")
print(records.kernel("a"))
records.write_kernel("a", KernelTiming("jit:test", RelativeTime(1.5), 0, ()))
records.save()
print(records.unsaved)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permission bits are Unix's")
def test_a_directory_without_permission_to_write_is_named() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o500)
        environment = {"INLAY_CACHE_DIR": made, "PYTHONPATH": os.environ["PYTHONPATH"]}
        command = [sys.executable, "-c", WITHOUT_PERMISSION]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        folder.chmod(0o700)
    why = f"cannot write to the cache directory {folder}: permission denied; check who may use it"
    assert (done.stderr, done.stdout) == ("", f"None\n{why}\n")
