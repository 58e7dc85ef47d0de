"""One run of a plan: what an earlier run finished, the tasks that are left, losses, failures and the final name.

A run holds the lock of its journal. It yields work items in stages: an operation that needs a scan of its tensor is
executed after that. Executors execute the items of a stage in any order; the run counts their results.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from hashlib import sha256
from types import TracebackType

from inlay.errors import FileError, InlayError, InvalidArguments, printable
from inlay.files import Progress
from inlay.storage.box import box_at
from inlay.storage.conversion_plan import ConversionPlan, ConversionTask
from inlay.storage.executors import Execute, Executor
from inlay.storage.fingerprint import fingerprint
from inlay.storage.finished_tasks import FinishedTasks
from inlay.storage.journal import Journal, JournalEntries, JournalWriter
from inlay.storage.loss import ConversionLoss, require_little_loss
from inlay.storage.operation import BoxCounts, ScanResult, greatest_scan
from inlay.storage.target import Target
from inlay.storage.task_runner import (
    ConversionJob,
    TaskFailure,
    TaskResult,
    WorkItem,
    describe_failures,
    new_token,
)

KEPT_NBYTES = 256 << 20
"""Size of a target from which a conversion that ends early keeps what it wrote; a smaller one takes seconds."""
KEPT_NOTE = "boxes that are written are kept: the same command goes on after them, and --clean removes them"
"""Note on the exception of a conversion that keeps what it wrote."""
_SCANNED_NBYTES = 1 << 30
"""Bytes that are scanned before their tasks are executed: what was read should still be in memory."""
_MOST_FAILURES = 20
"""Number of failed tasks after which a conversion stops."""


class ConversionRun:
    """One run of a plan, under the lock of its journal; a context manager that removes what has no value."""

    def __init__(self, plan: ConversionPlan, journal: Journal, progress: Progress | None, *, allow_loss: bool) -> None:
        """Start with nothing finished."""
        self.plan = plan
        """The plan."""
        self.finished = FinishedTasks(plan)
        """Tasks that are finished, in this run or before."""
        self.is_resumable = False
        """True if a later run can go on with what is written now."""
        self.entries: JournalEntries | None = None
        """Entries of the journal after `resume` or `take_over`: token, and tasks of earlier runs."""
        self._journal, self._progress, self._allow_loss = journal, progress, allow_loss
        self._scans = dict[int, ScanResult]()
        self._failures = list[TaskResult]()
        self._is_naming = False  # files of the target are getting their final names

    @property
    def is_worth_keeping(self) -> bool:
        """True if what is written took more than seconds, so that a later run should go on with it."""
        return self.plan.nbytes >= KEPT_NBYTES

    def resume(self, *, restart: bool, overwrite: bool) -> bool:
        """Take over what an earlier run finished, and return True; or create the target and return False.

        Raises:
            FileError: the earlier run had another plan or another version of the source, and `restart` is False; the
                target exists, and `overwrite` is False; or it cannot be created.
        """
        plan, digest, version = self.plan, fingerprint(self.plan), _version_of(self.plan)
        entries = self._journal.read()
        if entries is not None and not restart and (entries.tasks or entries.scans):
            self.is_resumable = True
            _require_same(plan, entries, digest, version)
            if self._is_committing(entries) or plan.target.is_whole(entries.token):
                self.take_over(entries)
                return True
        # An earlier run of this plan was allowed to write. If it ended after that, what it wrote exists.
        if not overwrite and (restart or entries is None or entries.plan != digest):
            require_new(plan.target)
        if entries is not None:
            plan.target.discard(entries.token)
            self._journal.discard()
        self.is_resumable, self.entries = False, JournalEntries(new_token(), digest, version, {}, {})
        self._journal.begin(self.entries)
        plan.target.create(self.entries.token)
        return False

    def _is_committing(self, entries: JournalEntries) -> bool:
        """Return True if an earlier run ended while files got their final names."""
        return entries.is_committing and len(entries.tasks) == self.finished.total

    def take_over(self, entries: JournalEntries) -> None:
        """Count the tasks of an earlier run as finished.

        Raises:
            InvalidArguments: a tensor loses too much in its new type.
        """
        self.entries, self.is_resumable = entries, True
        self._scans.update(entries.scans)
        for number in sorted(entries.tasks):
            self._finish(number, entries.tasks[number])

    def execute(self, executor: Executor) -> None:
        """Execute the tasks that are not finished.

        Raises:
            InvalidArguments: a tensor loses too much in its new type, or a box cannot be converted.
            FileError: the source changed, or tasks failed.
            OutOfMemory: the operating system cannot provide the bytes of a box.
        """
        if self.finished.count == self.finished.total:
            return
        job = self.job(executor.keeps_journal)
        # Only descriptors that are open since the beginning report each write error of the system exactly once.
        with (
            self.plan.target.open(job.token) as disk,
            JournalWriter(self._journal.path, job.token) as writer,
            executor.open(job) as execute,
        ):
            for items in self._stages():
                self._collect(execute, items, None if executor.keeps_journal else writer)
            self._sync(disk.sync)
        self.require_success()

    def job(self, keeps_journal: bool) -> ConversionJob:
        """Return what workers need; they append to the journal themselves if `keeps_journal` is True."""
        assert self.entries is not None
        return ConversionJob(self.plan, self.entries.token, self._journal.path if keeps_journal else None)

    def _stages(self) -> Iterator[Iterator[WorkItem]]:
        """Yield work items that may be executed in any order, and need the results of the items before."""
        for tensors in self._groups():
            if any(self.plan.tensors[i].operation.needs_scan for i in tensors):
                yield self._scans_of(tensors)
            yield self._tasks_of(tensors)

    def _groups(self) -> Iterator[range]:
        """Yield ranges of indices of tensors, each with `_SCANNED_NBYTES` bytes to scan, or a little more."""
        begin = nbytes = 0
        for i, each in enumerate(self.plan.tensors):
            nbytes += each.tensor.nbytes if each.operation.needs_scan else 0
            if nbytes >= _SCANNED_NBYTES:
                yield range(begin, i + 1)
                begin, nbytes = i + 1, 0
        yield range(begin, len(self.plan.tensors))

    def _scans_of(self, tensors: range) -> Iterator[WorkItem]:
        for i in tensors:
            each, numbers = self.plan.tensors[i], self.finished.numbers(i)
            if each.operation.needs_scan and not all(number in self.finished for number in numbers):
                for place, number in enumerate(numbers):
                    if number not in self._scans:
                        yield WorkItem(self._task(number, i, place), is_scan=True)

    def _tasks_of(self, tensors: range) -> Iterator[WorkItem]:
        for i in tensors:
            each, numbers, greatest = self.plan.tensors[i], self.finished.numbers(i), None
            if each.operation.needs_scan and numbers:
                if not all(number in self._scans for number in numbers):
                    continue  # a scan failed, or every task is finished
                greatest = greatest_scan(self._scans.pop(number) for number in numbers)
            for place, number in enumerate(numbers):
                if number not in self.finished:
                    yield WorkItem(self._task(number, i, place), greatest=greatest)

    def _task(self, number: int, tensor: int, place: int) -> ConversionTask:
        each = self.plan.tensors[tensor]
        return ConversionTask(number, tensor, box_at(each.src.dims, each.extents, place))

    def _collect(self, execute: Execute, items: Iterator[WorkItem], writer: JournalWriter | None) -> None:
        """Execute work items, and record their results, in the journal too if `writer` is not None."""
        with closing(execute(items)) as results:
            for result in results:
                if writer is not None and result.failure is None:
                    _record(result, writer)
                self.add(result)

    def add(self, result: TaskResult) -> None:
        """Count a task or a scan as finished, or as failed.

        Raises:
            InvalidArguments: a tensor loses too much in its new type, or the box cannot be converted.
            FileError: too many tasks failed, or no other one can be executed.
            OutOfMemory: the operating system cannot provide the bytes of the box, and no other one can be executed.
        """
        number = result.item.task.number
        if result.failure is not None:
            self._add_failure(result, result.failure)
            return
        self.is_resumable = True
        if result.item.is_scan:
            self._scans[number] = result.scanned
        else:
            self._finish(number, result.counts)

    def _finish(self, number: int, counts: BoxCounts) -> None:
        """Count a task as finished, and check the loss of tensors of which it was the last one.

        Raises:
            InvalidArguments: a tensor loses too much in its new type.
        """
        for i in self.finished.add(number, counts):
            try:
                self._loss(i)
            except InvalidArguments:
                self.is_resumable = False
                raise
        if self._progress is not None:
            tensor = self.finished.tensor_of(number)
            numbers, nbytes = self.finished.numbers(tensor), self.plan.tensors[tensor].nbytes
            place, count = number - numbers.start, len(numbers)
            self._progress((place + 1) * nbytes // count - place * nbytes // count)

    def _loss(self, tensor: int) -> ConversionLoss:
        """Return the loss of a tensor.

        Raises:
            InvalidArguments: it is too large, and not allowed.
        """
        new = self.plan.tensors[tensor].new
        loss = self.finished.counts[tensor].loss(new.name, new.bytes_desc.require_layout(new.name)[1])
        if not self._allow_loss:
            require_little_loss(loss)
        return loss

    def _sync(self, sync: Callable[[], None]) -> None:
        """Wait by `sync` until boxes are on disk.

        Raises:
            FileError: boxes were lost on their way to the disk.
        """
        try:
            sync()
        except FileError:
            self.is_resumable = False
            raise

    def _add_failure(self, result: TaskResult, failure: TaskFailure) -> None:
        """Record a failed task.

        Raises:
            Exception: that of the task, if no other one can be executed.
            FileError: too many tasks failed.
        """
        self._failures.append(result)
        if failure.stops:
            self.is_resumable = self.is_resumable and failure.is_resumable
            raise failure.error
        if len(self._failures) >= _MOST_FAILURES:
            self.require_success()

    def require_success(self) -> None:
        """Check that no task failed.

        Raises:
            FileError: tasks failed; the error names them.
            OutOfMemory: the only task of the plan failed, because the operating system cannot provide its bytes.
        """
        if not self._failures:
            return
        first = self._failures[0].failure
        if self.finished.total == 1 and first is not None:
            raise first.error
        raise describe_failures(self.plan, self._failures, self.finished.total)

    def commit(self) -> tuple[ConversionLoss, ...]:
        """Give the target its name, and return the losses that are not 0, in the order of the tensors.

        Raises:
            FileError: the target cannot be written or renamed, or the source changed.
        """
        losses = tuple(map(self._loss, range(len(self.plan.tensors))))
        assert self.entries is not None
        token, is_again = self.entries.token, self._is_committing(self.entries)
        if not is_again:
            self._require_unchanged(self.entries)
            # After the line in the journal, boxes count even if the machine stops.
            self._sync(partial(self.plan.target.sync, token))
        self._journal.note_commit(token, is_going_on=True)
        self._is_naming = True
        try:
            self.plan.target.commit(token, again=is_again)
        except (InlayError, OSError):
            self._is_naming = False
            with suppress(FileError):
                self._journal.note_commit(token, is_going_on=False)
            raise
        self._journal.remove()
        return tuple(loss for loss in losses if loss.share or loss.relative_error is not None)

    def _require_unchanged(self, entries: JournalEntries) -> None:
        """Check that no file of the source changed since the first run, also one that readers do not check.

        Raises:
            FileError: one did.
        """
        if _version_of(self.plan) != entries.source:
            self.is_resumable = False
            source = printable(self.plan.source.location)
            raise FileError(f"cannot read {source}: it changed while it was being read; try again")

    def __enter__(self) -> "ConversionRun":
        """Return the run."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an exception, remove what no later run can use, or what is made again in seconds."""
        if value is None:
            return
        # Half of the files may have their names after Ctrl-C: only the rest of the commit makes that right.
        if not self._is_naming and not (self.is_resumable and self.is_worth_keeping):
            self.discard()
        elif self.entries is not None:
            value.add_note(KEPT_NOTE)

    def discard(self) -> None:
        """Remove what this run and earlier ones left beside the target."""
        if self.entries is not None:
            self.plan.target.discard(self.entries.token)
            self._journal.remove()


def open_journal(target: Target) -> Journal:
    """Return the journal of a target, locked.

    Raises:
        FileError: another conversion is writing the target, or the journal cannot be written.
    """
    return Journal(target.location, target.last_name)


def require_new(target: Target) -> None:
    """Check that a conversion to `target` replaces nothing.

    Raises:
        FileError: something has the name of the target.
    """
    existing = target.find_existing()
    if existing is not None:
        raise FileError(
            f"cannot write {printable(existing)}: it exists; choose another name, or allow that it is replaced "
            "(--overwrite, in Python overwrite=True)"
        )


def _record(result: TaskResult, writer: JournalWriter) -> None:
    """Append a result to the journal for a worker that does not do so itself."""
    number = result.item.task.number
    if result.item.is_scan:
        writer.add_scan(number, result.scanned)
        return
    writer.add_task(number, result.counts, result.boot)
    if result.synced:
        writer.add_synced(result.synced)


def _version_of(plan: ConversionPlan) -> str:
    """Return a digest of the version of the source of a plan."""
    return sha256(plan.source.version.encode(errors="surrogatepass")).hexdigest()


def _require_same(plan: ConversionPlan, entries: JournalEntries, digest: str, version: str) -> None:
    """Check that an earlier run had the same plan, and the same version of the source.

    Raises:
        FileError: it had another one.
    """
    remedy = "start anew (--restart, in Python restart=True)"
    if entries.plan != digest:
        raise FileError(
            f"cannot write {printable(plan.target.location)}: an unfinished conversion of another plan is beside it; "
            f"repeat that command, which goes on, or {remedy}"
        )
    if entries.source != version:
        raise FileError(
            f"cannot go on with {printable(plan.target.location)}: {printable(plan.source.location)} changed since the "
            f"conversion was interrupted; {remedy}"
        )
