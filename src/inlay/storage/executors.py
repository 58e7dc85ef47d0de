"""Executors of conversions: this process, processes of this machine, or workers of Dask.

    executor = choose_executor(workers=4, dask=None)
    with executor(job) as execute:
        for result in execute(items):
            ...

An executor opens the source and the target once in each worker. `execute` takes work items from an iterator as workers
become free, and yields results in the order in which they are ready. All executors write the same bytes.
"""

import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import connection, get_context, parent_process
from os import _exit
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from inlay.arguments import integer_or_none
from inlay.errors import FileError, InlayError, InvalidArguments, MissingExtra, printable, shown
from inlay.reordering.threads import ThreadLimit, available_threads, set_num_threads
from inlay.storage.journal import JournalEntries, read_entries
from inlay.storage.task_runner import ConversionJob, TaskFailure, TaskResult, TaskRunner, WorkItem

if TYPE_CHECKING:
    from distributed import Client

Execute: TypeAlias = Callable[[Iterable[WorkItem]], Generator[TaskResult, None, None]]
"""Executes work items, and yields their results."""


@dataclass(frozen=True, slots=True)
class Executor:
    """A way to execute the work items of a job."""

    open: Callable[[ConversionJob], AbstractContextManager[Execute]]
    """Opens a job in the workers."""
    keeps_journal: bool
    """True if the workers append to the journal, because they run on this machine."""


LOCAL = "local"
"""Address that stands for a new cluster of Dask on this machine."""
MOST_LOSSES = 3
"""Number of worker processes that may end at one box before it has failed."""
_MOST_LOSSES_IN_A_ROW = 2 * MOST_LOSSES
"""Number of times that workers may end without a result in between."""
_ITEMS_PER_WORKER = 2
"""Number of work items in flight for each worker: one that it executes, and one that waits for it."""


def choose_executor(workers: int | None, dask: str | None) -> Executor:
    """Return the executor for these options of `convert`.

    Raises:
        InvalidArguments: `workers` is no whole number above 0, or is set for a cluster that exists.
        MissingExtra: Dask is not installed.
    """
    count = 1 if workers is None else integer_or_none(workers)
    if count is None or count < 1:
        raise InvalidArguments(f"the number of workers is {shown(workers)}: give a whole number from 1 on")
    if dask is None:
        return Executor(run_here if count == 1 else partial(run_in_processes, workers=count), keeps_journal=True)
    if dask != LOCAL and workers is not None:
        raise InvalidArguments(f"the cluster at {dask} has workers of its own: leave out their number")
    _require_dask()
    return Executor(partial(run_on_dask, address=dask, workers=workers), keeps_journal=False)


@contextmanager
def run_here(job: ConversionJob) -> Iterator[Execute]:
    """Execute in this process, one item after another."""
    with TaskRunner(job) as runner:
        yield partial(_execute_here, runner)


def _execute_here(runner: TaskRunner, items: Iterable[WorkItem]) -> Generator[TaskResult, None, None]:
    for item in items:
        yield runner.run(item)


# Processes


@contextmanager
def run_in_processes(job: ConversionJob, workers: int) -> Iterator[Execute]:
    """Execute in this many processes; processes that end early are replaced."""
    pools = _ProcessPools(job, workers)
    try:
        yield pools.execute
    finally:
        pools.close()


class _ProcessPools:
    """A pool of processes, and its successor when a process of it is lost.

    It is unknown which of the items in flight ended a process. They are executed again one at a time, so that an item
    that ends every process is found.
    """

    def __init__(self, job: ConversionJob, workers: int) -> None:
        self._job, self._workers = job, workers
        self._running = dict[Future[TaskResult], WorkItem]()
        self._lost = deque[WorkItem]()  # in flight when a process ended
        self._broken = list[WorkItem]()  # in flight in the present pool, which is broken
        self._is_alone = False  # the only item in flight was lost before
        self._losses, self._losses_in_a_row = Counter[int](), 0
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        threads = max(1, available_threads() // self._workers)
        return ProcessPoolExecutor(
            self._workers, get_context("spawn"), initializer=_start_process, initargs=(self._job, threads)
        )

    def execute(self, items: Iterable[WorkItem]) -> Generator[TaskResult, None, None]:
        """Execute work items, and those again that were lost with a process."""
        source = iter(items)
        while True:
            self._submit(source)
            if not self._running and not self._broken:
                return
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in done:
                item = self._running.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool:
                    self._broken.append(item)
                    continue
                self._losses_in_a_row = 0
                yield result
            if self._broken and not self._running:
                yield from self._replace()

    def _submit(self, source: Iterator[WorkItem]) -> None:
        """Give work items to the pool until it has enough: only one if it was lost before."""
        if self._running and (self._lost or self._is_alone):
            return
        self._is_alone = bool(self._lost)
        if self._lost:
            self._give(self._lost.popleft())
            return
        while not self._broken and len(self._running) < _ITEMS_PER_WORKER * self._workers:
            item = next(source, None)
            if item is None:
                return
            self._give(item)

    def _give(self, item: WorkItem) -> None:
        try:
            with _deferred_interrupts():  # `submit` starts processes
                future = self._pool.submit(_run_in_process, item)
        except BrokenProcessPool:
            self._broken.append(item)
        else:
            self._running[future] = item

    def _replace(self) -> Iterator[TaskResult]:
        """Start another pool, and yield the lost items that are finished or have failed.

        Raises:
            FileError: workers ended too often.
        """
        self._pool.shutdown()
        self._losses_in_a_row += 1
        if self._losses_in_a_row > _MOST_LOSSES_IN_A_ROW:
            raise FileError(
                f"cannot write {printable(self._job.plan.target.location)}: worker processes ended "
                f"{self._losses_in_a_row} times in a row, as for too little memory; use fewer of them (--workers) or "
                "less memory for each (--memory)"
            )
        self._pool = self._start()
        if len(self._broken) == 1:
            self._losses[self._broken[0].task.number] += 1
        self._lost.extend(self._broken)
        self._broken.clear()
        entries = None if self._job.journal is None else read_entries(self._job.journal)
        for _ in range(len(self._lost)):
            item = self._lost.popleft()
            result = _result_in_journal(item, entries) or self._failure_of(item)
            if result is None:
                self._lost.append(item)
            else:
                yield result

    def _failure_of(self, item: WorkItem) -> TaskResult | None:
        """Return the failure of an item that ended too many processes, else None."""
        losses = self._losses[item.task.number]
        if losses <= MOST_LOSSES:
            return None
        error = FileError(f"{losses} worker processes ended at it, as for too little memory; use less (--memory)")
        return TaskResult(item, failure=TaskFailure(error, stops=False))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _deferred_interrupts() -> Iterator[None]:
    """Defer Ctrl-C until the end of the block. Processes that start in it never see Ctrl-C: they inherit the mask."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is None:
        yield
        return
    received = list[tuple[int, FrameType | None]]()
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, previous)
        if received and callable(previous):
            previous(*received[0])


def _result_in_journal(item: WorkItem, entries: JournalEntries | None) -> TaskResult | None:
    """Return the result that a worker wrote into the journal before it could return it, None if there is none."""
    number = item.task.number
    if entries is not None and item.is_scan and number in entries.scans:
        return TaskResult(item, scanned=entries.scans[number])
    if entries is not None and not item.is_scan and number in entries.tasks:
        return TaskResult(item, entries.tasks[number])
    return None


_job_of_process: ConversionJob | None = None
_runner_of_process: TaskRunner | None = None


def _start_process(job: ConversionJob, threads: int) -> None:
    """Prepare a worker process: it ignores Ctrl-C, which its parent handles, and ends with its parent."""
    global _job_of_process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_num_threads(threads)
    _job_of_process = job
    threading.Thread(target=_end_with_parent, name="inlay-parent", daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the parent has ended, and end this process: a killed parent does not do so itself."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        _exit(1)


def _run_in_process(item: WorkItem) -> TaskResult:
    """Execute a work item in a worker process, which opens its job first if it has not."""
    global _runner_of_process
    assert _job_of_process is not None
    if _runner_of_process is None:
        try:
            _runner_of_process = TaskRunner(_job_of_process)
        except (InlayError, OSError, MemoryError) as error:
            return TaskResult(item, failure=TaskFailure(error, stops=True))
    return _runner_of_process.run(item)


# Dask


def _require_dask() -> None:
    """Check that Dask is installed.

    Raises:
        MissingExtra: it is not.
    """
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise MissingExtra("Dask's scheduler is not installed: pip install 'inlay[storage]'") from None


@contextmanager
def run_on_dask(job: ConversionJob, address: str, workers: int | None) -> Iterator[Execute]:
    """Execute on the workers of a cluster of Dask, or of a new one on this machine if `address` is `local`.

    Raises:
        FileError: the scheduler cannot be reached.
    """
    from distributed import Client, LocalCluster

    if address == LOCAL:
        options = {"threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster) as client:
            yield partial(_execute_on_dask, client, job)
        return
    try:
        client = Client(address)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot reach Dask's scheduler at {address}: {error}; check the address") from error
    with client:
        yield partial(_execute_on_dask, client, job)


def _execute_on_dask(
    client: "Client", job: ConversionJob, items: Iterable[WorkItem]
) -> Generator[TaskResult, None, None]:
    """Submit work items as workers become free, and yield their results."""
    from distributed import as_completed

    source, running = iter(items), dict[Any, WorkItem]()
    # A task, unlike scattered data, is computed again if all workers that hold the plan are lost.
    shared = client.submit(_same, job, pure=False)
    completed = as_completed()
    try:
        while True:
            most = _ITEMS_PER_WORKER * max(1, sum(client.nthreads().values()))
            for item in islice(source, max(0, most - len(running))):
                future = client.submit(_run_on_dask, shared, item, pure=False)
                running[future] = item
                completed.add(future)
            if not running:
                return
            future = next(completed)
            yield _result_of(future, running.pop(future))
    finally:
        client.cancel(list(running))
        with suppress(OSError, ValueError):
            client.run(_close_runners, job.token)


def _result_of(future: Any, item: WorkItem) -> TaskResult:
    """Return the result of a future of Dask; a task that ended several workers has failed."""
    from distributed import CancelledError, KilledWorker

    try:
        result: TaskResult = future.result()
    except (KilledWorker, CancelledError) as error:
        return TaskResult(item, failure=TaskFailure(error, stops=False))
    return result


def _same(job: ConversionJob) -> ConversionJob:
    return job


_runners = dict[tuple[str, int], TaskRunner]()
"""Open jobs of a worker of Dask, by token and thread."""
_busy_runners, _ended_runners = set[tuple[str, int]](), set[tuple[str, int]]()
"""Those that execute a work item now; those of them that are closed after it, since the conversion ended."""
_runners_lock = threading.Lock()


def _run_on_dask(job: ConversionJob, item: WorkItem) -> TaskResult:
    """Execute a work item in a worker of Dask; each of its threads opens the job once."""
    with _busy_runner(job) as key:
        if key not in _runners:
            try:
                _runners[key] = TaskRunner(job)
            except (InlayError, OSError, MemoryError) as error:
                return TaskResult(item, failure=TaskFailure(error, stops=True))
        with ThreadLimit(1):  # a cluster has a thread for each processor
            return _runners[key].run(item)


@contextmanager
def _busy_runner(job: ConversionJob) -> Iterator[tuple[str, int]]:
    """Keep what this thread opened for a job open in the block; its key in `_runners` is returned.

    A descriptor that is closed while a box is written could be that of another file then.
    """
    key = job.token, threading.get_ident()
    with _runners_lock:
        _busy_runners.add(key)
    try:
        yield key
    finally:
        with _runners_lock:
            _busy_runners.discard(key)
            ended = _runners.pop(key, None) if key in _ended_runners else None
            _ended_runners.discard(key)
        if ended is not None:
            ended.close()


def _close_runners(token: str) -> None:
    """Close what the threads of a worker opened for a job, after the work items that they execute now."""
    with _runners_lock:
        _ended_runners.update(key for key in _busy_runners if key[0] == token)
        idle = [_runners.pop(key) for key in [*_runners] if key[0] == token and key not in _busy_runners]
    for runner in idle:
        runner.close()
