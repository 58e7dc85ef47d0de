"""Execution of a plan, and what happens around it: the journal, losses, the final name.

    losses = convert(plan("w.safetensors", "packed.safetensors", ["conv*=OIhw16i16o"]), workers=4)

Each task reads a box, converts it and writes it (`task_runner.run_task`), in any process (`executors`). After the last
task the target gets its name. If a conversion is interrupted, its journal and the boxes that it wrote stay beside the
target, and the same conversion goes on with them.
"""

from collections.abc import Callable

from inlay.files import Progress
from inlay.measure.interleaved import clock
from inlay.storage.conversion_plan import ConversionPlan
from inlay.storage.conversion_run import ConversionRun, open_journal
from inlay.storage.executors import choose_executor
from inlay.storage.first_pass import remove_intermediate_arrays, written_first_pass
from inlay.storage.loss import ConversionLoss
from inlay.storage.report import ConversionReport
from inlay.storage.target import Target


def convert(
    plan: ConversionPlan,
    progress: Progress | None = None,
    *,
    allow_loss: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    dask: str | None = None,
    restart: bool = False,
    on_resume: Callable[[int, int], None] | None = None,
    report: Callable[[ConversionReport], object] | None = None,
) -> tuple[ConversionLoss, ...]:
    """Execute `plan`; return the loss of each tensor that was quantized, or where elements became zero or saturated.

    `progress` is called with the number of bytes after each box. Losses are in the order of the tensors. A target that
    exists is replaced only if `overwrite` is True. `report` is called at the end with what was counted and the time.

    `workers` processes of this machine execute the plan; with None or 1 it is this process. `dask` is the address of a
    scheduler of Dask, whose workers execute it, or `local` for a new cluster of `workers` processes. All give the same
    bytes, and each worker takes at most `plan.memory`. Programs that use processes need `if __name__ == "__main__":`,
    as `multiprocessing` says.

    If the conversion ends early, as by a signal, a full disk or a failed read, its boxes stay beside the target under
    hidden names, and the same call goes on after them; `on_resume` is then called with the numbers of finished and of
    all boxes. `restart` starts anew. Conversions of less than 256 MiB leave nothing, unless the process is killed.

    Post-conditions:
        The target contains every tensor of the plan. If an exception is raised, the target is unchanged. Memory use of
        each worker is at most `plan.memory`.

    Raises:
        InvalidArguments: over 0.1 % of the nonzero elements of a tensor would become zero or saturate, and `allow_loss`
            is False; or `workers` is no whole number above 0.
        FileError: the source became shorter or was modified, now or since the run that is to be resumed; the target
            exists and `overwrite` is False, or it cannot be written, or another process is writing it, or an unfinished
            run had another plan; or boxes failed three times.
        OutOfMemory: the operating system cannot provide the bytes of a box.
        MissingExtra: `dask` is set, and Dask is not installed.
    """
    executor, started = choose_executor(workers, dask), clock()

    def execute_first(first: ConversionPlan) -> None:
        options = {"workers": workers, "dask": dask, "restart": restart, "on_resume": on_resume}
        convert(first, progress, allow_loss=True, overwrite=True, **options)  # type: ignore[arg-type]

    with (
        open_journal(plan.target) as journal,
        ConversionRun(plan, journal, progress, allow_loss=allow_loss) as run,
    ):
        if run.resume(restart=restart, overwrite=overwrite) and on_resume is not None:
            on_resume(run.finished.count, run.finished.total)
        with written_first_pass(plan, execute_first, keeps=run.is_worth_keeping):
            run.execute(executor)
            losses = run.commit()
    if report is not None:
        report(ConversionReport(plan, tuple(run.finished.counts), clock() - started))
    return losses


def discard_unfinished(plan: ConversionPlan) -> bool:
    """Remove what unfinished conversions left beside the target of `plan`; return True if there was something.

    Raises:
        FileError: another process is writing the target.
    """
    targets = [each.target for each in (plan, plan.first_pass) if each is not None]
    found = [_discard_unfinished(target) for target in targets]
    return remove_intermediate_arrays(plan.target.location) or any(found)


def _discard_unfinished(target: Target) -> bool:
    """Remove what an unfinished conversion left beside `target`; return True if there was something."""
    with open_journal(target) as journal:
        entries = journal.read()
        if entries is not None:
            target.discard(entries.token)
            journal.discard()
        journal.remove()
    return entries is not None
