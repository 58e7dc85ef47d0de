"""Boxes reach the disk while others are written, and a box that does not is found before the target gets its name."""

import threading
from pathlib import Path

import numpy as np
import pytest

from inlay.errors import FileError
from inlay.storage import convert, plan, task_runner
from inlay.storage.file_target import FileWriter
from inlay.storage.task_runner import BackgroundSync
from tests.support.refusals import raises_exactly


class Writer:
    """A writer whose `sync` waits until a test lets it end."""

    def __init__(self) -> None:
        self.may_end, self.threads = threading.Event(), list[int]()

    def sync(self) -> None:
        self.threads.append(threading.get_ident())
        self.may_end.wait(60)


class ParallelWriter(Writer):
    syncs_while_writing = True


def test_a_writer_that_can_syncs_beside_the_next_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "SYNC_NBYTES", 100)
    writer, synced = ParallelWriter(), list[int]()
    disk = BackgroundSync(writer, synced.extend)  # type: ignore[arg-type]
    for number in range(5):
        disk.add(number, 60)  # the first two are on their way, the others wait for the next time
    assert synced == []
    writer.may_end.set()
    disk.wait()
    assert synced == [0, 1]
    disk.add(5, 60)
    disk.wait()
    assert synced == [0, 1, 2, 3, 4, 5]
    assert threading.get_ident() not in writer.threads


def test_another_writer_syncs_between_two_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "SYNC_NBYTES", 100)
    writer, synced = Writer(), list[int]()
    writer.may_end.set()
    disk = BackgroundSync(writer, synced.extend)  # type: ignore[arg-type]
    for number in range(5):
        disk.add(number, 60)
    assert synced == [0, 1, 2, 3]
    assert set(writer.threads) == {threading.get_ident()}


@pytest.mark.parametrize(("name", "value"), [("SYNC_SECONDS", 0.0), ("_SYNC_TASKS", 1)])
def test_time_and_number_of_tasks_are_limits_too(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    monkeypatch.setattr(task_runner, name, value)
    writer, synced = Writer(), list[int]()
    writer.may_end.set()
    disk = BackgroundSync(writer, synced.extend)  # type: ignore[arg-type]
    disk.add(7, 1)
    assert synced == [7]


def test_a_write_error_that_another_process_saw_is_found_at_the_end(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux reports it once to each descriptor that was open then, so that of the commit comes too late."""
    opened: list[FileWriter] = []
    real_sync, real_init = FileWriter.sync, FileWriter.__init__

    def init(self: FileWriter, *arguments: object) -> None:
        opened.append(self)
        real_init(self, *arguments)  # type: ignore[arg-type]

    def sync(self: FileWriter) -> None:
        if self is opened[0]:  # open since before the first box
            raise FileError("cannot write p.npy: Input/output error")
        real_sync(self)

    monkeypatch.setattr(FileWriter, "__init__", init)
    monkeypatch.setattr(FileWriter, "sync", sync)
    np.save("a.npy", np.zeros((4, 4), np.float32))
    with raises_exactly(FileError, "cannot write p.npy: Input/output error"):
        convert(plan("a.npy", "p.npy", ["plain"], data_type="f64"))
    assert [path.name for path in directory.iterdir()] == ["a.npy"]
    assert len(opened) == 2
