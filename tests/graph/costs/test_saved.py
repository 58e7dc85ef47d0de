"""What becomes of measured costs where they cannot be saved, and what costs tell of where they come from."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from inlay import cache
from inlay.graph.costs import CostSources, MeasuredCosts, measured, probed, reorder_source, timing_records
from inlay.graph.costs.timing import Bench
from inlay.graph.costs.timing_records import KernelTiming, RelativeTime, TimingRecords, operation_key
from inlay.machine import MemoryModel
from inlay.measure import timing_database
from inlay.primitives.engine import companion_engines, get_engine
from tests.graph.costs.test_measured import CASES, MACHINE, costs_of, engine_of, ms_and_source
from tests.support import cost_cases as cases

MOVE = cases.image("nchw"), cases.image("nhwc")
ENTRY = KernelTiming("jit:test", RelativeTime(1.5), 0, ())


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(0o700)
    monkeypatch.setenv("INLAY_CACHE_DIR", str(folder))
    return folder


def written_records() -> TimingRecords:
    records = TimingRecords("test", "1")
    records.write_kernel("a", ENTRY)
    return records


def lock_file(directory: Path) -> Path:
    return directory / f"{cache.object_key(timing_records.KIND, timing_records._VERSION, 'test', '1')}.lock"


# Saving


def test_what_is_saved_is_read_by_another_process_and_no_other_user(directory: Path) -> None:
    records = written_records()
    records.save()
    assert records.unsaved == ""
    assert TimingRecords("test", "1").kernel("a") == ENTRY
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert lock_file(directory).exists()


def test_two_processes_that_save_keep_what_both_found() -> None:
    one, other = written_records(), TimingRecords("test", "1")
    other.write_kernel("b", ENTRY)
    one.save()
    other.save()
    assert [TimingRecords("test", "1").kernel(name) for name in "ab"] == [ENTRY, ENTRY]


def _make_lock_a_directory(directory: Path) -> None:
    lock_file(directory).mkdir()


def _open_to_others(directory: Path) -> None:
    directory.chmod(0o777)


def _make_a_file(directory: Path) -> None:
    directory.rmdir()
    directory.touch()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_make_lock_a_directory, "cannot write to the cache directory {0}: it is a directory; name a file"),
        (_make_a_file, "cannot create the cache directory {0}: File exists"),
        pytest.param(
            _open_to_others,
            "other users may write to the cache directory {0}: chmod go-w {0}",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="permission bits are Unix's"),
        ),
    ],
)
def test_a_directory_that_cannot_be_used_is_named(directory: Path, spoil: Callable[[Path], None], why: str) -> None:
    spoil(directory)
    records = written_records()
    records.save()
    assert records.unsaved == why.format(directory)
    assert records.kernel("a") == ENTRY


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
    records.save()
    assert records.unsaved == ""
    assert TimingRecords("test", "1").kernel("a") == ENTRY


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
    records.save()
    assert records.unsaved == ""
    assert TimingRecords("test", "1").kernel("a") == ENTRY


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
        environment = {"INLAY_CACHE_DIR": str(folder), "PYTHONPATH": os.environ["PYTHONPATH"]}
        command = [sys.executable, "-c", WITHOUT_PERMISSION]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        folder.chmod(0o700)
    assert done.stderr == ""
    assert (
        done.stdout == f"None\ncannot write to the cache directory {folder}: permission denied; check who may use it\n"
    )


# Where costs come from


def test_sources_count_what_was_measured_now_and_earlier_and_what_was_estimated() -> None:
    first = costs_of(engine_of())
    assert first.sources == CostSources()
    first.prepare(CASES[:2])
    assert first.sources == CostSources(measured=2)
    more = engine_of()
    more.refused.add(operation_key(CASES[5]))
    second = costs_of(more, seconds=0.015)
    second.prepare([CASES[2]])
    second.prepare(CASES)
    assert [ms_and_source(second, case)[1] for case in CASES[:5]] == ["measured"] * 3 + ["scaled"] * 2
    assert second.sources == CostSources(measured=1, remembered=2, scaled=2, is_out_of_time=True)


def test_without_time_nothing_is_measured_and_nothing_says_so() -> None:
    costs = costs_of(engine_of(), seconds=0)
    costs.prepare(CASES, [MOVE])
    assert costs.sources == CostSources(modelled=len(CASES) + 1, is_out_of_time=True)
    assert costs.reorder_source(*MOVE) == "modelled"
    costs.save()
    assert costs.sources.unsaved == ""


def test_sources_say_why_nothing_could_be_saved(directory: Path) -> None:
    _make_a_file(directory)
    costs = costs_of(engine_of())
    costs.prepare(CASES)
    why = f"cannot create the cache directory {directory}: File exists"
    assert costs.sources == CostSources(measured=len(CASES), unsaved=why)


def test_a_reorder_is_counted_once_for_tensors_of_about_its_size() -> None:
    costs = reordering_costs()
    costs.reorder(*MOVE)
    costs.reorder(*(cases.image(tag, (1, 96, 28, 28)) for tag in ("nchw", "nhwc")))
    empty = cases.image("nchw", (0, 64, 28, 28))
    assert costs.reorder(empty, empty) == 0.0
    assert costs.sources == CostSources(measured=1)
    assert (costs.reorder_source(*MOVE), reorder_source(costs, *MOVE)) == ("measured", "measured")
    costs.save()
    again = reordering_costs()
    again.reorder(*MOVE)
    assert again.sources == CostSources(remembered=1)
    assert again.reorder_source(*MOVE) == "measured"
    assert reorder_source(probed("reference"), *MOVE) == "modelled"


def test_a_copy_has_a_price() -> None:
    costs = reordering_costs(seconds=0.0)
    assert costs.reorder(MOVE[0], MOVE[0]) == costs.reorder(*MOVE) > 0


def reordering_costs(seconds: float = 60.0) -> MeasuredCosts:
    engine = get_engine("reference")
    bench = Bench(engine, 1 << 20, partial(next, count(step=1e-4)), lambda: 0.0)
    return MeasuredCosts(companion_engines(engine), MACHINE, bench, TimingRecords("reorders"), seconds)


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (CostSources(), "no kernels and no reorders"),
        (CostSources(measured=7, unsaved="why"), "7 kernels and reorders: 7 measured now"),
        (
            CostSources(remembered=2, scaled=1, modelled=3),
            "6 kernels and reorders: 2 measured earlier, 4 estimated by a model",
        ),
    ],
)
def test_sources_in_words(sources: CostSources, text: str) -> None:
    assert str(sources) == text


def test_prices_are_remembered_whatever_the_caches_were_measured_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured capacity differs from one start of a machine to the next; what a price follows from does not."""
    found = []
    for last_level in (20 << 20, 50 << 20):
        model = MemoryModel(1 << 20, last_level, last_level)
        monkeypatch.setattr("inlay.graph.costs.measuring.memory_model", partial(replace, model))
        found.append([measured("reference", weights=weights)._records.name for weights in (None, 1 << 30, 1)])
    assert found[0] == found[1]
    assert found[0][0] == found[0][1] != found[0][2]
