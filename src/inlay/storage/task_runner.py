"""Execution of single tasks in one process: the source and the target are open, and the journal, if it is here.

A task that fails is tried again. If it fails again, its failure is a value, so that other tasks go on:

    read error, no memory           the other tasks go on, the conversion fails at its end
    full disk, vanished file        the conversion stops; boxes that are written stay written
    changed source, wrong request   the conversion stops; what was written is worthless
"""

import errno
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from types import TracebackType

from inlay.errors import FileError, InlayError, printable
from inlay.measure.interleaved import clock
from inlay.storage.conversion_plan import ConversionPlan, ConversionTask
from inlay.storage.journal import JournalWriter, boot_id
from inlay.storage.operation import BoxCounts, InputOperation, ScanResult
from inlay.storage.store import StoreReader
from inlay.storage.target import TargetWriter

PAUSES = (0.1, 1.0)
"""Pauses before a failed task is tried again, in seconds."""
SYNC_NBYTES = 256 << 20
"""Bytes that a process writes before it waits in the background until they are on disk."""
SYNC_SECONDS = 5.0
"""Time after which a process does so, though it wrote less."""
_SYNC_TASKS = 10_000
"""Number of tasks after which a process does so; their numbers are one line of the journal."""

_NO_COUNTS = BoxCounts()
_COMMON = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENOENT, errno.ESTALE)
"""Errors of the operating system that other tasks would meet too: a full disk, a file that vanished."""


@dataclass(frozen=True, slots=True)
class ConversionJob:
    """A plan that is being executed."""

    plan: ConversionPlan
    """The plan."""
    token: str
    """Token of the target."""
    journal: Path | None
    """Path of the journal, to which each process appends; None if the calling process does that for all."""


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One task to execute, or its box to scan."""

    task: ConversionTask
    """The task."""
    is_scan: bool = False
    """True if the box is only scanned (`BoxOperation.scan`)."""
    greatest: ScanResult | None = None
    """Greatest result of the scans of the tensor; None if its operation needs no scan."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The failure of a task."""

    error: Exception
    """The last exception."""
    stops: bool
    """True if the conversion stops, False if other tasks go on."""
    is_resumable: bool = True
    """True if the boxes that are written keep their value."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a work item."""

    item: WorkItem
    """The work item."""
    counts: BoxCounts = _NO_COUNTS
    """Counts of the box, unless it was scanned."""
    scanned: ScanResult = 0.0
    """Result of the scan, if it was scanned."""
    failure: TaskFailure | None = None
    """Failure; None if the task is finished."""
    boot: str = ""
    """`boot_id` of the machine that wrote the box."""
    synced: tuple[int, ...] = ()
    """Numbers of tasks whose boxes reached the disk, if the process that receives this result writes the journal."""

    def __str__(self) -> str:
        """Return the tensor, the box and the reason of the failure."""
        reason = "" if self.failure is None else f": {self.failure.error}"
        return f"{self.item.task.box}{reason}"


def run_task(plan: ConversionPlan, reader: StoreReader, writer: TargetWriter, item: WorkItem) -> BoxCounts:
    """Read, convert and write one box, and return what was counted.

    Raises:
        FileError: the source cannot be read or has changed, or the target cannot be written.
        OutOfMemory: the operating system cannot provide the bytes of the box.
    """
    each, task = plan.tensors[item.task.tensor], item.task
    operation = each.operation if item.greatest is None else each.operation.with_scan(item.greatest)
    if isinstance(operation, InputOperation):
        operation = operation.with_inputs(reader, task.box)
    counts = operation.apply(reader.read_box(each.tensor, each.src, task.box), task.box, writer)
    reader.require_unchanged()
    return counts


def scan_box(plan: ConversionPlan, reader: StoreReader, task: ConversionTask) -> ScanResult:
    """Read one box, and return what its operation needs of it.

    Raises:
        FileError: the source cannot be read or has changed.
        OutOfMemory: the operating system cannot provide the bytes of the box.
    """
    each = plan.tensors[task.tensor]
    scanned = each.operation.scan(reader.read_box(each.tensor, each.src, task.box))
    reader.require_unchanged()
    return scanned


class TaskRunner:
    """The source and the target of a job, open in one thread; a context manager that closes them."""

    def __init__(self, job: ConversionJob) -> None:
        """Open the source, the target and the journal.

        Raises:
            FileError: one of them cannot be opened.
        """
        self._job, self._synced, self._lock = job, list[int](), Lock()
        with ExitStack() as stack:
            self._reader = stack.enter_context(job.plan.source.open())
            self._writer = stack.enter_context(job.plan.target.open(job.token))
            self._journal = stack.enter_context(JournalWriter(job.journal, job.token)) if job.journal else None
            self._disk = BackgroundSync(self._writer, self._add_synced)
            stack.callback(self._disk.wait)
            self._open = stack.pop_all()

    def run(self, item: WorkItem) -> TaskResult:
        """Execute a work item, again if it fails, and return its result or its failure."""
        pauses = iter(PAUSES)
        while True:
            try:
                return self._execute(item)
            except (InlayError, OSError, MemoryError) as error:
                failure = self._classify(error)
            pause = next(pauses, None)
            if failure.stops or pause is None:
                return TaskResult(item, failure=failure)
            time.sleep(pause)

    def _execute(self, item: WorkItem) -> TaskResult:
        plan, number = self._job.plan, item.task.number
        if item.is_scan:
            scanned = scan_box(plan, self._reader, item.task)
            if self._journal is not None:
                self._journal.add_scan(number, scanned)
            return TaskResult(item, scanned=scanned)
        self._disk.require_success()
        counts = run_task(plan, self._reader, self._writer, item)
        if self._journal is not None:
            self._journal.add_task(number, counts, boot_id())
        each = plan.tensors[item.task.tensor]
        self._disk.add(number, each.nbytes // each.count)
        return TaskResult(item, counts, boot=boot_id(), synced=self._take_synced())

    def _classify(self, error: Exception) -> TaskFailure:
        """Return what follows from an exception."""
        if self._disk.failure is not None:
            return TaskFailure(self._disk.failure, stops=True, is_resumable=False)
        try:
            self._reader.require_unchanged()
        except FileError:
            return TaskFailure(error, stops=True, is_resumable=False)
        cause = error.__cause__ if isinstance(error, FileError) else error
        if isinstance(cause, OSError) and cause.errno in _COMMON:
            return TaskFailure(error, stops=True)
        is_request = not isinstance(error, OSError | MemoryError)
        return TaskFailure(error, stops=is_request, is_resumable=not is_request)

    def _add_synced(self, numbers: list[int]) -> None:
        if self._journal is not None:
            self._journal.add_synced(numbers)
        else:
            with self._lock:
                self._synced += numbers

    def _take_synced(self) -> tuple[int, ...]:
        with self._lock:
            synced, self._synced = tuple(self._synced), []
        return synced

    def close(self) -> None:
        """Wait for a write to disk in the background, and close everything."""
        self._open.close()

    def __enter__(self) -> "TaskRunner":
        """Return the runner."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything."""
        self.close()


class BackgroundSync:
    """Waits from time to time until the boxes of a writer are on disk.

    A writer whose class has a true `syncs_while_writing` can write boxes during `sync`, which then has a thread of its
    own. Other writers wait.
    """

    def __init__(self, writer: TargetWriter, report: Callable[[list[int]], None]) -> None:
        """Start with nothing to wait for; `report` is called with the numbers of tasks whose boxes are on disk."""
        self.failure: FileError | None = None
        """Error of a box that did not reach the disk."""
        self._writer, self._report = writer, report
        self._thread: Thread | None = None
        self._numbers, self._nbytes, self._since = list[int](), 0, clock()

    def add(self, number: int, nbytes: int) -> None:
        """Add a task that wrote `nbytes` bytes, and start to wait if that is due and no other wait is going on."""
        self._numbers.append(number)
        self._nbytes += nbytes
        is_due = self._nbytes >= SYNC_NBYTES or clock() - self._since >= SYNC_SECONDS
        if not is_due and len(self._numbers) < _SYNC_TASKS:
            return
        if self._thread is None or not self._thread.is_alive():
            thread = Thread(target=self._sync, args=(self._numbers,), name="inlay-sync")
            self._numbers, self._nbytes, self._since = [], 0, clock()
            if getattr(self._writer, "syncs_while_writing", False):
                self._thread = thread
                thread.start()
            else:
                thread.run()

    def require_success(self) -> None:
        """Check that no box was lost on its way to the disk.

        Raises:
            FileError: one was.
        """
        if self.failure is not None:
            raise self.failure

    def wait(self) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join()

    def _sync(self, numbers: list[int]) -> None:
        try:
            self._writer.sync()
        except FileError as error:
            self.failure = error
            return
        with suppress(FileError):  # without its line in the journal, a box is only written again after a power failure
            self._report(numbers)


def describe_failures(plan: ConversionPlan, failures: list[TaskResult], total: int) -> FileError:
    """Return the error that names the tasks that failed."""
    shown = "; ".join(f"{printable(plan.tensors[r.item.task.tensor].tensor.name)} {r}" for r in failures[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    return FileError(
        f"cannot write {printable(plan.target.location)}: {len(failures)} of {total} boxes failed: {shown}{more}; "
        "remove the cause, and run the same command again"
    )


def new_token() -> str:
    """Return a new token for a target."""
    return os.urandom(4).hex()
