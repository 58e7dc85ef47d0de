"""The journal of a conversion: which tasks count after a kill, a power failure, or damage."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from inlay.errors import FileError
from inlay.files import try_lock
from inlay.storage import journal as journals
from inlay.storage.journal import Journal, JournalEntries, JournalWriter, journal_path, read_entries
from inlay.storage.operation import BoxCounts
from tests.support.refusals import raises_exactly

BEGUN = JournalEntries("cafe0123", "plan", "source", {}, {})


def counts_of(number: int) -> BoxCounts:
    return BoxCounts(nonzero=number, squared_error=number / 3)


@dataclass(frozen=True)
class Line:
    """A line of the journal as the model knows it; `end` is that of its text, before the line feed."""

    end: int
    kind: str
    numbers: tuple[int, ...] = ()
    boot: str = ""


class JournalMachine(RuleBasedStateMachine):
    """Processes append, the machine loses power, and conversions go on."""

    def __init__(self) -> None:
        super().__init__()
        self.target, self.boot = f"{os.getpid()}-{id(self)}.safetensors", "boot"
        with Journal(self.target) as journal:
            journal.begin(BEGUN)
            self.path = journal.path
        self.lines = [Line(self.size - 1, "begin")]

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def append(self, kind: str, numbers: tuple[int, ...], write: Callable[[JournalWriter], None]) -> None:
        with JournalWriter(self.path, "beef4567" if kind == "other" else BEGUN.token) as writer:
            write(writer)
        self.lines.append(Line(self.size - 1, kind, numbers, self.boot))

    @rule(number=st.integers(0, 9))
    def finish(self, number: int) -> None:
        self.append("task", (number,), lambda writer: writer.add_task(number, counts_of(number), self.boot))

    @rule(numbers=st.sets(st.integers(0, 9), max_size=4))
    def sync(self, numbers: set[int]) -> None:
        finished = tuple(
            line.numbers[0] for line in self.current() if line.kind == "task" and line.numbers[0] in numbers
        )
        self.append("synced", finished, lambda writer: writer.add_synced(finished))

    @rule()
    def a_process_of_an_earlier_conversion_still_writes(self) -> None:
        self.append("other", (), lambda writer: writer.add_task(5, BoxCounts(), self.boot))

    @rule(share=st.floats(0, 1))
    def lose_power(self, share: float) -> None:
        """Only a part of the journal reached the disk."""
        self.cut(self.lines[0].end + int((self.size - self.lines[0].end) * share))
        self.boot += "'"

    @rule(count=st.integers(1, 90))
    def a_process_is_killed_in_a_write(self, count: int) -> None:
        """The line that it appends last is cut, by any number of bytes up to all of it."""
        if self.lines[-1].kind in ("task", "synced"):
            before = self.lines[-2].end
            self.cut(max(before, self.size - count))

    @rule(zeros=st.integers(1, 100))
    def a_page_does_not_reach_the_disk(self, zeros: int) -> None:
        if self.lines[-1].end == self.size and len(self.lines) > 1:  # its line feed is lost
            self.lines.pop()
        elif self.lines[-1].end == self.size:
            return
        with self.path.open("ab") as file:
            file.write(b"\0" * zeros)
        self.lines.append(Line(self.size, "damage"))
        self.boot += "'"

    def cut(self, size: int) -> None:
        os.truncate(self.path, size)
        self.lines = [line for line in self.lines if line.end <= size]
        if self.lines[-1].end < size:
            self.lines.append(Line(size, "damage"))

    def current(self) -> list[Line]:
        """The lines after the last beginning."""
        begin = max(i for i, line in enumerate(self.lines) if line.kind == "begin")
        return self.lines[begin:]

    def read(self) -> JournalEntries:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journals, "boot_id", lambda: self.boot)
            entries = read_entries(self.path)
        assert entries is not None
        return entries

    @invariant()
    def only_written_boxes_count(self) -> None:
        lines = self.current()
        synced = {n for line in lines if line.kind == "synced" for n in line.numbers}
        boots = {line.numbers[0]: line.boot for line in lines if line.kind == "task"}
        expected = {n for n, boot in boots.items() if n in synced or boot == self.boot}
        entries = self.read()
        assert dict(entries.tasks) == {n: counts_of(n) for n in expected}
        assert (entries.token, entries.plan, entries.source) == ("cafe0123", "plan", "source")

    def teardown(self) -> None:
        self.path.unlink()


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(deadline=None, max_examples=60, stateful_step_count=25)


@pytest.mark.parametrize("place", range(9))
def test_a_line_with_a_changed_byte_does_not_count(place: int) -> None:
    with Journal("a.npy") as journal:
        journal.begin(BEGUN)
        with JournalWriter(journal.path, BEGUN.token) as writer:
            for number in (1, 2, 3):
                writer.add_task(number, counts_of(number), journals.boot_id())
        lines = journal.path.read_bytes().splitlines(keepends=True)
        assert b'"task": 2' in lines[5]  # each line begins and ends with a line feed
        at = place * (len(lines[5]) - 1) // 9
        lines[5] = lines[5][:at] + bytes([lines[5][at] ^ 1]) + lines[5][at + 1 :]
        journal.path.write_bytes(b"".join(lines))
        entries = journal.read()
    assert entries is not None
    assert set(entries.tasks) == {1, 3}


def test_a_write_that_is_cut_short_is_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal("a.npy") as journal:
        journal.begin(BEGUN)
        with JournalWriter(journal.path, BEGUN.token) as writer:
            monkeypatch.setattr(os, "write", lambda *_: 5)
            text = f"cannot write {journal.path}: the disk is full; free space or write elsewhere"
            with raises_exactly(FileError, text):
                writer.add_task(1, BoxCounts(), "boot")


def test_no_file_of_other_content_is_a_journal() -> None:
    path = journal_path("a.npy")
    for content in (b"", b"\0" * 100, b"text\n", b'00000000 {"begin": "x"}\n'):
        path.write_bytes(content)
        with Journal("a.npy") as journal:
            assert journal.read() is None


@pytest.mark.parametrize("text", [b'{"of": "cafe0123", "task": []}', b'{"of": "cafe0123"}', b'{"begin": 1}', b"[1]"])
def test_lines_of_another_format_are_no_conversion(text: bytes) -> None:
    with Journal("a.npy") as journal:
        if b"begin" not in text:
            journal.begin(BEGUN)
        with journal.path.open("ab") as file:
            file.write(b"\n%08x %s\n" % (crc32(text), text))
        entries = journal.read()
    assert entries is None or (text == b"[1]" and entries == BEGUN)


def test_the_name_of_a_journal_is_that_of_the_final_path(directory: Path) -> None:
    (directory / "link.npy").symlink_to("folder/a.npy")
    (directory / "folder").mkdir()
    path = journal_path("link.npy")
    assert path == journal_path(str(directory / "folder" / "a.npy")) == journal_path("folder/../folder/a.npy")
    assert (path.parent, path.name[:7], path.name[-14:]) == (directory / "folder", ".a.npy.", ".inlay.journal")
    assert path != journal_path("a.npy")
    assert len(journal_path("x" * 250).name.encode()) < 100
    url = journal_path("memory://bucket/a.npy")
    assert url.name.startswith(".a.npy.")
    assert url.parent == Path(os.environ["INLAY_CACHE_DIR"])


def test_a_directory_that_appears_later_does_not_move_the_journal(directory: Path) -> None:
    with Journal("out/a.npy") as journal:
        journal.begin(BEGUN)
    (directory / "out").mkdir()
    assert journal_path("out/a.npy").parent == directory
    journal_path("out/a.npy").unlink()
    assert journal_path("out/a.npy").parent == directory / "out"


def test_two_conversions_do_not_hold_one_journal() -> None:
    code = "import sys; from inlay.storage.journal import Journal; Journal(sys.argv[1])"
    text = "cannot write a.npy: another process is writing it; wait for its end, or choose another name"
    with Journal("a.npy"):
        with raises_exactly(FileError, text):
            Journal("a.npy")
        done = subprocess.run([sys.executable, "-c", code, "a.npy"], capture_output=True, text=True, check=False)
        assert done.stderr.splitlines()[-1] == f"inlay.errors.FileError: {text}"
    Journal("a.npy").close()


def test_a_journal_that_its_owner_removes_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another conversion ends between the opening of the journal and the lock."""
    first = Journal("a.npy")

    def end_first(file: BinaryIO) -> bool | None:
        if first.path.exists() and not removed:
            first.remove()
            first.close()
            removed.append(True)
        return try_lock(file)

    removed: list[bool] = []
    monkeypatch.setattr(journals, "try_lock", end_first)
    with Journal("a.npy") as second:
        assert os.path.samestat(second.path.stat(), os.fstat(second._file.fileno()))


@pytest.mark.parametrize("is_going_on", [True, False])
def test_all_boxes_count_when_they_were_on_disk_before_a_commit(is_going_on: bool, directory: Path) -> None:
    """Also after the machine was started again, and if the commit failed, as an upload does."""
    with Journal("w.safetensors") as journal:
        journal.begin(BEGUN)
        with JournalWriter(journal.path, BEGUN.token) as writer:
            writer.add_task(0, BoxCounts(), "another boot")
        for state in (True, is_going_on):
            journal.note_commit(BEGUN.token, is_going_on=state)
        entries = read_entries(journal.path)
        assert entries is not None
        assert (set(entries.tasks), entries.is_committing) == ({0}, is_going_on)
