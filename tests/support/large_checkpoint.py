"""The plan of a checkpoint of 10 TB that does not exist; `python -m tests.support.large_checkpoint` prints its figures.

The output is JSON: tensors, boxes, and bytes of the plan; calls that computed sizes of boxes; peak memory in bytes.
"""

import json
import sys
from pathlib import Path
from unittest.mock import patch

from inlay.storage import ConversionPlan, planning
from inlay.storage.cutting import cut_extents
from inlay.storage.file_store import FileStore
from inlay.storage.fingerprint import fingerprint
from inlay.storage.finished_tasks import FinishedTasks
from inlay.storage.operation import BoxCounts
from inlay.storage.source_files import FileVersion
from inlay.storage.store import StoredTensor, row_major
from tests.support.processes import peak_memory

SHAPES = ((16384, 8192), (8192, 16384), (28672, 8192), (16384, 8192), (8192,))
"""Shapes of the tensors, in turns."""
COUNT = 40_000


def large_store() -> FileStore:
    """Return a store of one file with 40,000 tensors of bfloat16."""
    tensors, begin, path = list[StoredTensor](), 0, Path("large.safetensors")
    for i in range(COUNT):
        dims = SHAPES[i % len(SHAPES)]
        desc = row_major(dims, "bf16")
        kind = "weight" if len(dims) == 2 else "bias"
        tensors.append(StoredTensor(f"model.layers.{i}.{kind}", "BF16", dims, begin, desc.size, desc))
        begin += desc.size
    return FileStore(path, tuple(tensors), {}, (FileVersion(path, begin, 1),))


def plan_of(store: FileStore, target: str = "packed.safetensors") -> ConversionPlan:
    """Return the plan that packs all weights."""
    with patch.object(planning, "open_store", lambda *_, **__: store):
        return planning.plan(store.path, target, ["*.weight=AB16b64a2b"], memory="256 MB")


def main() -> None:
    """Plan, and do what a conversion does before and after its tasks."""
    store = large_store()
    plan = plan_of(store)
    digest, finished = fingerprint(plan), FinishedTasks(plan)
    tasks = plan.tasks()
    for _ in range(1000):
        finished.add(next(tasks).number, BoxCounts())
    figures = {
        "tensors": len(plan.tensors),
        "boxes": plan.count,
        "nbytes": plan.nbytes,
        "finished": finished.count,
        "computed": cut_extents.cache_info().misses,
        "digest": digest,
        "memory": peak_memory(),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
