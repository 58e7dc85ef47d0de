"""Conversions that end early go on, with the same bytes; what cannot be used is refused or removed."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from inlay.errors import FileError, InvalidArguments, OutOfMemory
from inlay.files import file_error
from inlay.memory import Memory
from inlay.storage import ConversionPlan, conversion_run, convert, plan, task_runner
from inlay.storage.conversion import discard_unfinished
from inlay.storage.conversion_run import ConversionRun
from inlay.storage.executors import choose_executor
from inlay.storage.fingerprint import fingerprint
from inlay.storage.journal import Journal, journal_path
from tests.support.conversion_operations import CountedOperation, FailingOperation, ScaledOperation, with_operation
from tests.support.refusals import raises_exactly
from tests.support.tensor_files import numbered

TARGET = "p.safetensors"


@pytest.fixture(autouse=True)
def weights(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three tensors, of which a plan of `make_plan` makes 25 boxes; every conversion is worth to be kept."""
    monkeypatch.setattr(task_runner, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(conversion_run, "KEPT_NBYTES", 0)
    save_weights()
    return directory


def save_weights(factor: float = 1.0) -> None:
    rng = np.random.default_rng(0)
    tensors = {name: factor * rng.standard_normal((48, 64)).astype(np.float32) for name in ("v", "w")}
    save_file(tensors | {"bias": np.arange(7, dtype=np.float32)}, "w.safetensors")


def make_plan(target: str = TARGET, tag: str = "BA16a16b", **options: Any) -> ConversionPlan:
    return plan("w.safetensors", target, [f"?={tag}"], memory=2048, **options)


def expected(**options: Any) -> bytes:
    """The bytes of the same conversion in one go."""
    convert(make_plan("expected.safetensors", **options))
    content = Path("expected.safetensors").read_bytes()
    Path("expected.safetensors").unlink()
    return content


def left() -> list[str]:
    """Hidden files, by what follows the last dots of their names."""
    return sorted(".".join(path.name.split(".")[-2:]) for path in Path().iterdir() if path.name.startswith("."))


def interrupt_at(count: int) -> Callable[[int], None]:
    """Return a progress callback that is interrupted at this call."""
    calls: list[None] = []

    def progress(_: int) -> None:
        calls.append(None)
        if len(calls) == count:
            raise KeyboardInterrupt

    return progress


def interrupted(count: int, **options: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        convert(make_plan(**options), interrupt_at(count))


def records() -> list[dict[str, Any]]:
    """The lines of the journal."""
    return [json.loads(line[9:]) for line in journal_path(TARGET).read_bytes().splitlines() if line]


def change_lines(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change each line of the journal, with right checksums."""
    texts = [json.dumps(change(record)).encode() for record in records()]
    journal_path(TARGET).write_bytes(b"".join(b"\n%08x %s\n" % (crc32(text), text) for text in texts))


def another_boot(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "boot": "another"} if "boot" in record else record


# Going on


@pytest.mark.parametrize("count", [1, 2, 12, 24, 25])
def test_an_interrupted_conversion_goes_on_after_its_boxes(count: int) -> None:
    whole, log = expected(), Path("log")
    resumed: list[tuple[int, ...]] = []
    interrupted(count)
    assert not Path(TARGET).exists()
    assert left() == ["inlay.journal", "inlay.partial"]
    heard: list[int] = []
    planned = make_plan()
    with_log = with_operation(planned, CountedOperation, log)
    same = fingerprint(planned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion_run, "fingerprint", lambda _: same)
        convert(with_log, heard.append, on_resume=lambda *numbers: resumed.append(numbers))
    assert Path(TARGET).read_bytes() == whole
    assert left() == []
    assert resumed == [(count, 25)]
    assert len(log.read_text().splitlines() if log.exists() else []) == 25 - count
    assert sum(heard) == planned.nbytes


def test_a_conversion_goes_on_with_other_workers_and_from_another_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = expected()
    interrupted(10)
    (directory / "sub").mkdir()
    monkeypatch.chdir(directory / "sub")
    resumed: list[tuple[int, ...]] = []
    moved = plan("../w.safetensors", f"../{TARGET}", ["?=BA16a16b"], memory=2048)
    convert(moved, workers=2, on_resume=lambda *numbers: resumed.append(numbers))
    assert resumed == [(10, 25)]
    assert Path(f"../{TARGET}").read_bytes() == whole


def test_many_interrupts_lose_nothing() -> None:
    whole = expected()
    for count in range(1, 26):  # boxes of earlier runs are reported too
        interrupted(count)
    convert(make_plan())
    assert Path(TARGET).read_bytes() == whole


def test_small_conversions_leave_nothing_after_an_interrupt_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_run, "KEPT_NBYTES", make_plan().nbytes + 1)
    interrupted(10)
    assert left() == []
    with pytest.raises(FileError, match="2 of 25 boxes failed"):
        convert(failing(READ_ERROR, 6))
    assert left() == []


def test_restart_starts_anew() -> None:
    whole = expected()
    resumed: list[tuple[int, ...]] = []
    interrupted(10)
    convert(make_plan(), restart=True, on_resume=lambda *numbers: resumed.append(numbers))
    assert (Path(TARGET).read_bytes(), left(), resumed) == (whole, [], [])


def test_what_an_unfinished_conversion_left_is_removed_on_request() -> None:
    assert not discard_unfinished(make_plan())
    interrupted(10)
    assert discard_unfinished(make_plan())
    assert left() == []


# Refusals


def test_a_source_that_changed_between_two_runs_is_refused() -> None:
    interrupted(10)
    save_weights(2.0)
    os.utime("w.safetensors", ns=(1, 1))
    text = (
        f"cannot go on with {TARGET}: w.safetensors changed since the conversion was interrupted; start anew "
        "(--restart, in Python restart=True)"
    )
    for _ in range(2):
        with raises_exactly(FileError, text):
            convert(make_plan())
    convert(make_plan(), restart=True)
    assert (Path(TARGET).read_bytes(), left()) == (expected(), [])


@pytest.mark.parametrize("options", [{"tag": "BA16b16a"}, {"tag": "BA8a8b"}, {"data_type": "f64"}])
def test_another_plan_for_the_same_target_is_refused(options: dict[str, str]) -> None:
    interrupted(10)
    text = (
        f"cannot write {TARGET}: an unfinished conversion of another plan is beside it; repeat that command, which "
        "goes on, or start anew (--restart, in Python restart=True)"
    )
    for _ in range(2):
        with raises_exactly(FileError, text):
            convert(make_plan(**options))
    convert(make_plan(**options), restart=True)
    assert (Path(TARGET).read_bytes(), left()) == (expected(**options), [])


def test_another_plan_is_not_refused_if_nothing_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(10)
    change_lines(another_boot)
    convert(make_plan(tag="ba"))
    assert (Path(TARGET).read_bytes(), left()) == (expected(tag="ba"), [])


def test_too_great_a_loss_removes_everything() -> None:
    save_weights(0.01)
    with pytest.raises(InvalidArguments, match=r"tensor v: .* of 3072 non-zero elements become 0"):
        convert(make_plan(data_type="s8"))
    assert left() == []
    with pytest.raises(KeyboardInterrupt):
        convert(make_plan(data_type="s8"), interrupt_at(13), allow_loss=True)
    with pytest.raises(InvalidArguments, match="tensor v: "):
        convert(make_plan(data_type="s8"))
    assert (Path(TARGET).exists(), left()) == (False, [])


def test_a_source_that_changes_during_a_run_spoils_it() -> None:
    def touch(_: int) -> None:
        os.utime("w.safetensors", ns=(1, 1))

    with raises_exactly(FileError, "cannot read w.safetensors: it changed while it was being read; try again"):
        convert(make_plan(), touch)
    assert left() == []


def test_a_source_that_vanished_is_an_error() -> None:
    planned = make_plan()
    Path("w.safetensors").unlink()
    for workers in (1, 2):
        with raises_exactly(FileError, "cannot read w.safetensors: there is no such file; check the name"):
            convert(planned, workers=workers)
    assert left() == []


# Failed tasks


def failing(error: Exception, times: int, planned: ConversionPlan | None = None) -> ConversionPlan:
    """A plan whose box [16:20, 0:64] of each tensor fails."""
    return with_operation(planned or make_plan(), FailingOperation, (16, 0), times, Path("failures"), error)


READ_ERROR = FileError("cannot read w.safetensors: Input/output error")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("error", [READ_ERROR, OutOfMemory("no memory")])
def test_a_task_that_fails_twice_is_done_at_the_third_try(error: Exception, workers: int) -> None:
    convert(failing(error, 2), workers=workers)
    assert Path("failures").read_text() == "xxxx"
    assert Path(TARGET).read_bytes() == expected()


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_that_fail_are_named_and_the_rest_is_done(workers: int) -> None:
    whole = expected()
    resumed: list[tuple[int, ...]] = []
    reason = "cannot read w.safetensors: Input/output error"
    text = (
        f"cannot write {TARGET}: 2 of 25 boxes failed: v [16:20, 0:64]: {reason}; w [16:20, 0:64]: {reason}; "
        "remove the cause, and run the same command again"
    )
    with raises_exactly(FileError, text):
        convert(failing(READ_ERROR, 6), workers=workers)
    assert not Path(TARGET).exists()
    convert(failing(READ_ERROR, 6), workers=workers, on_resume=lambda *numbers: resumed.append(numbers))
    assert (Path(TARGET).read_bytes(), resumed, left()) == (whole, [(23, 25)], [])


def test_a_conversion_ends_when_many_tasks_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_run, "_MOST_FAILURES", 1)
    with pytest.raises(FileError, match=r"1 of 25 boxes failed: v \[16:20, 0:64\]"):
        convert(failing(READ_ERROR, 3))
    assert Path("failures").read_text() == "xxx"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_stops_at_once_and_the_same_command_goes_on(workers: int) -> None:
    whole = expected()
    error: OSError = OSError(errno.ENOSPC, "No space left on device")
    if workers == 1:  # exceptions lose their causes on the way to another process
        error, error.__cause__ = file_error("write", Path(TARGET), error), error
    planned = failing(error, 1)
    with raises_exactly(type(error), str(error)):
        convert(planned, workers=workers)
    assert left() == ["inlay.journal", "inlay.partial"]
    assert Path("failures").read_text() == "x"
    convert(planned, workers=workers)
    assert (Path(TARGET).read_bytes(), left()) == (whole, [])


# Power failures


def test_boxes_that_were_not_on_disk_are_written_again_after_a_power_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "SYNC_NBYTES", 8000)
    whole = expected()
    interrupted(20)
    synced = {number for record in records() for number in record.get("synced", ())}
    assert 0 < len(synced) < 20
    lose_boxes(synced)
    change_lines(another_boot)
    resumed: list[tuple[int, ...]] = []
    convert(make_plan(), on_resume=lambda *numbers: resumed.append(numbers))
    assert (Path(TARGET).read_bytes(), resumed, left()) == (whole, [(len(synced), 25)], [])


def lose_boxes(kept: set[int]) -> None:
    """Overwrite all boxes in the unfinished file, except those of tasks that are kept."""
    planned = make_plan()
    (partial,) = Path().glob(".*.inlay.partial")
    token = partial.name.split(".")[-3]
    with planned.target.open(token) as writer:
        for task in planned.tasks():
            if task.number not in kept:
                each = planned.tensors[task.tensor]
                target = each.operation.targets[0]
                desc = writer.box_desc(target, task.box)
                writer.write_box(target, task.box, Memory(desc, np.full(desc.size, 0xA5, np.uint8)))


@pytest.mark.parametrize("damage", [b"", b"\0" * 40])
def test_a_damaged_line_of_the_journal_does_not_count(damage: bytes) -> None:
    """Neither does its box, which may be missing."""
    whole = expected()
    interrupted(20)
    content = journal_path(TARGET).read_bytes()
    journal_path(TARGET).write_bytes(content[:-40] + damage)
    lose_boxes(set(range(19)))
    interrupted(20)  # 19 of earlier runs, and one more
    resumed: list[tuple[int, ...]] = []
    convert(make_plan(), on_resume=lambda *numbers: resumed.append(numbers))
    assert (Path(TARGET).read_bytes(), resumed, left()) == (whole, [(20, 25)], [])


@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 1000), Path.unlink])
def test_a_file_that_is_not_whole_is_made_anew(change: Callable[[Path], None]) -> None:
    whole = expected()
    resumed: list[tuple[int, ...]] = []
    interrupted(10)
    change(next(Path().glob(".*.inlay.partial")))
    convert(make_plan(), on_resume=lambda *numbers: resumed.append(numbers))
    assert (Path(TARGET).read_bytes(), resumed, left()) == (whole, [], [])


def test_a_box_that_does_not_reach_the_disk_spoils_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(task_runner, "SYNC_NBYTES", 8000)
    monkeypatch.setattr(os, "fdatasync", refuse)
    with raises_exactly(FileError, f"cannot write {TARGET}: Input/output error"):
        convert(make_plan())
    assert left() == []


# Scans


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("group", [1, 1 << 30])
def test_operations_that_need_the_whole_tensor_first_get_it(
    monkeypatch: pytest.MonkeyPatch, workers: int, group: int
) -> None:
    monkeypatch.setattr(conversion_run, "_SCANNED_NBYTES", group)
    tensors = {name: numbered((48, 64), np.int8).astype(np.float32) * (1 + i) for i, name in enumerate("vw")}
    tensors["bias"] = np.array([1, -8, 2], np.float32)
    save_file(tensors, "w.safetensors")
    planned = plan("w.safetensors", TARGET, ["*=plain"], data_type="f64", memory=4096)
    convert(with_operation(planned, ScaledOperation), workers=workers)
    written = load_file(TARGET)
    for name, tensor in tensors.items():
        assert np.array_equal(written[name], (tensor / np.abs(tensor).max()).astype(np.float64))


def test_results_of_scans_are_dropped_after_use() -> None:
    """They are one number for each coordinate of an axis and each box, so those of all tensors may be large."""
    save_file({"w": numbered((48, 64), np.int8).astype(np.float32)}, "w.safetensors")
    planned = with_operation(make_plan(tag="ba"), ScaledOperation)
    with Journal(TARGET) as journal, ConversionRun(planned, journal, None, allow_loss=True) as run:
        run.resume(restart=False, overwrite=False)
        run.execute(choose_executor(None, None))
        assert run._scans == {}
        run.commit()


def test_scans_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled() -> ConversionPlan:
        return with_operation(make_plan(), ScaledOperation)

    save_file({name: numbered((48, 64), np.int8).astype(np.float32) for name in "vw"}, "w.safetensors")
    convert(scaled())
    whole = Path(TARGET).read_bytes()
    Path(TARGET).unlink()
    with pytest.raises(KeyboardInterrupt):
        convert(scaled(), interrupt_at(1))
    monkeypatch.setattr(ScaledOperation, "scan", lambda *_: pytest.fail("a box is scanned again"))
    convert(scaled())
    assert Path(TARGET).read_bytes() == whole
