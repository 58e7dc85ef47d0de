"""Conversions as graphs of Dask, for any of its schedulers.

    begin -> boxes 0 to 99    -> end
          -> boxes 100 to 199 ->

The first node creates the target, or takes over what an earlier run wrote. The last node checks losses and gives the
target its name. The lock of the journal is held in these two nodes only. Nodes append to the journal themselves, so the
file system of the target must be the same in all workers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inlay.errors import FileError, MissingExtra
from inlay.storage.box import box_at
from inlay.storage.conversion_plan import ConversionPlan, ConversionTask
from inlay.storage.conversion_run import ConversionRun, open_journal
from inlay.storage.finished_tasks import FinishedTasks
from inlay.storage.first_pass import remove_first_pass
from inlay.storage.journal import JournalEntries
from inlay.storage.loss import ConversionLoss
from inlay.storage.operation import ScanResult, greatest_scan
from inlay.storage.task_runner import ConversionJob, TaskResult, TaskRunner, WorkItem

if TYPE_CHECKING:
    from dask.delayed import Delayed

_MOST_NODES = 4096
"""Number of nodes of a graph for the boxes, about: Dask takes about a millisecond for each."""


@dataclass(frozen=True, slots=True)
class BegunConversion:
    """A conversion whose target is created."""

    job: ConversionJob
    """The plan with its token."""
    entries: JournalEntries
    """Tasks that earlier runs finished."""


@dataclass(frozen=True, slots=True)
class BoxRange:
    """Consecutive boxes of one tensor, which one node converts."""

    tensor: int
    """Index of the tensor."""
    places: range
    """Numbers of the boxes within the tensor."""
    first: int
    """Number of the first task of the tensor."""


def build_graph(plan: ConversionPlan, allow_loss: bool, overwrite: bool) -> "Delayed":
    """Return the graph of a conversion; its result is that of `convert`.

    Raises:
        MissingExtra: Dask is not installed.
    """
    try:
        from dask import delayed
    except ImportError:
        raise MissingExtra("Dask is not installed: pip install 'inlay[storage]'") from None
    # Intermediate arrays that exist are written anew: nodes cannot know whether they are complete.
    first = None if plan.first_pass is None else build_graph(plan.first_pass, allow_loss=True, overwrite=True)
    begun = delayed(begin_conversion, pure=False)(delayed(plan, traverse=False), overwrite, first)
    results = []
    for tensor, ranges in _ranges(plan):
        needs_scan = plan.tensors[tensor].operation.needs_scan
        scans = [delayed(scan_boxes, pure=False)(begun, each) for each in ranges] if needs_scan else []
        results += [delayed(convert_boxes, pure=False)(begun, each, scans) for each in ranges]
    return delayed(end_conversion, pure=False)(begun, results, allow_loss)


def _ranges(plan: ConversionPlan) -> Iterator[tuple[int, list[BoxRange]]]:
    """Yield the tensors that have boxes, with the ranges of their boxes."""
    finished = FinishedTasks(plan)
    step = -(-finished.total // _MOST_NODES)
    for i in range(len(plan.tensors)):
        numbers = finished.numbers(i)
        if numbers:
            places = range(len(numbers))
            yield i, [BoxRange(i, places[k : k + step], numbers.start) for k in places[::step]]


def begin_conversion(plan: ConversionPlan, overwrite: bool, _first: object) -> BegunConversion:
    """Create the target of a conversion after the first of two passes, or take over what an earlier run wrote.

    Raises:
        FileError: as `convert`.
    """
    with open_journal(plan.target) as journal, ConversionRun(plan, journal, None, allow_loss=True) as run:
        try:
            run.resume(restart=False, overwrite=overwrite)
        except FileError:
            remove_first_pass(plan)
            raise
        assert run.entries is not None
        return BegunConversion(run.job(keeps_journal=True), run.entries)


def scan_boxes(begun: BegunConversion, boxes: BoxRange) -> list[TaskResult]:
    """Scan boxes of a tensor."""
    items = [WorkItem(task, is_scan=True) for task in _tasks(begun, boxes) if task.number not in begun.entries.scans]
    return _run(begun, items)


def convert_boxes(begun: BegunConversion, boxes: BoxRange, scans: Sequence[Sequence[TaskResult]]) -> list[TaskResult]:
    """Convert boxes of a tensor; `scans` are results of `scan_boxes` for all of its boxes, if it needs them."""
    results = [result for part in scans for result in part]
    failed = [result for result in results if result.failure is not None]
    if failed:
        return failed
    greatest = None
    if begun.job.plan.tensors[boxes.tensor].operation.needs_scan:
        greatest = greatest_scan([*(r.scanned for r in results), *_known_scans(begun, boxes)])
    return _run(begun, [WorkItem(task, greatest=greatest) for task in _tasks(begun, boxes)])


def _known_scans(begun: BegunConversion, boxes: BoxRange) -> Iterator[ScanResult]:
    """Yield the results of the scans of a tensor in earlier runs."""
    count = begun.job.plan.tensors[boxes.tensor].count
    for number in range(boxes.first, boxes.first + count):
        if number in begun.entries.scans:
            yield begun.entries.scans[number]


def _tasks(begun: BegunConversion, boxes: BoxRange) -> Iterator[ConversionTask]:
    """Yield the tasks of boxes that are not finished."""
    each = begun.job.plan.tensors[boxes.tensor]
    for place in boxes.places:
        if boxes.first + place not in begun.entries.tasks:
            box = box_at(each.src.dims, each.extents, place)
            yield ConversionTask(boxes.first + place, boxes.tensor, box)


def _run(begun: BegunConversion, items: Sequence[WorkItem]) -> list[TaskResult]:
    """Execute work items until one fails in a way that stops the conversion."""
    results = list[TaskResult]()
    if items:
        with TaskRunner(begun.job) as runner:
            for item in items:
                results.append(runner.run(item))
                if (failure := results[-1].failure) is not None and failure.stops:
                    break
    return results


def end_conversion(
    begun: BegunConversion, results: Sequence[Sequence[TaskResult]], allow_loss: bool
) -> tuple[ConversionLoss, ...]:
    """Give the target its name, and return the losses that are not 0.

    Raises:
        FileError, InvalidArguments, OutOfMemory: as `convert`.
    """
    plan = begun.job.plan
    with open_journal(plan.target) as journal, ConversionRun(plan, journal, None, allow_loss=allow_loss) as run:
        run.take_over(begun.entries)
        for part in results:
            for result in part:
                run.add(result)
        run.require_success()
        losses = run.commit()
    remove_first_pass(plan)
    return losses
