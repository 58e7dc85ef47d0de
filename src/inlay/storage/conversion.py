"""Execution of a plan: task by task in this process.

    losses = convert(plan("w.safetensors", "packed.safetensors", ["conv*=OIhw16i16o"]))

Each task reads a box, converts it and writes it (`run_task`). After the last task the target gets its name.
"""

import os

from inlay.files import Progress
from inlay.storage.conversion_plan import ConversionPlan, ConversionTask
from inlay.storage.first_pass import written_first_pass
from inlay.storage.loss import ConversionLoss, require_little_loss
from inlay.storage.operation import BoxCounts
from inlay.storage.store import StoreReader
from inlay.storage.target import TargetWriter


def run_task(plan: ConversionPlan, reader: StoreReader, writer: TargetWriter, task: ConversionTask) -> BoxCounts:
    """Read, convert and write one box, and return what was counted.

    Raises:
        FileError: the source cannot be read or has changed, or the target cannot be written.
        OutOfMemory: the operating system cannot provide the bytes of the box.
    """
    each = plan.tensors[task.tensor]
    memory = reader.read_box(each.tensor, each.src, task.box)
    counts = each.operation.apply(memory, task.box, writer)
    reader.require_unchanged()
    return counts


def convert(
    plan: ConversionPlan, progress: Progress | None = None, *, allow_loss: bool = False
) -> tuple[ConversionLoss, ...]:
    """Execute `plan`, and return the loss of each tensor in which elements became zero or saturated.

    `progress` is called with the number of bytes after each box. Losses are in the order of the tensors.

    Post-conditions:
        The target contains every tensor of the plan. If an exception is raised, the target is unchanged and no new file
        is in its directory. Memory use is at most `plan.memory`.

    Raises:
        InvalidArguments: over 0.1 % of the nonzero elements of a tensor would become zero or saturate, and `allow_loss`
            is False.
        FileError: the source became shorter or was modified during the conversion, or the target cannot be written.
        OutOfMemory: the operating system cannot provide the bytes of a box.
    """
    with written_first_pass(plan, lambda first: convert(first, progress)):
        return _execute(plan, progress, allow_loss)


def _execute(plan: ConversionPlan, progress: Progress | None, allow_loss: bool) -> tuple[ConversionLoss, ...]:
    """Execute the last pass of a plan."""
    token, counts = os.urandom(4).hex(), [BoxCounts()] * len(plan.tensors)
    is_done = False
    try:
        plan.target.create(token)
        with plan.source.open() as reader, plan.target.open(token) as writer:
            for task in plan.tasks():
                counts[task.tensor] += run_task(plan, reader, writer, task)
                if progress is not None:
                    progress(task.box.size * plan.tensors[task.tensor].new.nbytes // plan.tensors[task.tensor].size)
        losses = _losses(plan, counts, allow_loss)
        plan.target.commit(token)
        is_done = True
    finally:
        if not is_done:
            plan.target.discard(token)
    return losses


def _losses(plan: ConversionPlan, counts: list[BoxCounts], allow_loss: bool) -> tuple[ConversionLoss, ...]:
    """Check the losses of all tensors, and return those that are not 0."""
    losses = []
    for each, counted in zip(plan.tensors, counts, strict=True):
        loss = counted.loss(each.new.name, each.new.bytes_desc.require_layout(each.new.name)[1])
        if not allow_loss:
            require_little_loss(loss)
        if loss.share:
            losses.append(loss)
    return tuple(losses)
