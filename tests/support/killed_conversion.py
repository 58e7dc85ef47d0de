"""A conversion that a test kills: `python -m tests.support.killed_conversion SOURCE TARGET LOG WORKERS SECONDS`.

LOG gets a line for each box that begins, and each box takes at least SECONDS.
"""

import sys
from pathlib import Path

from inlay.storage import ConversionPlan, WriteOptions, convert, plan
from tests.support.conversion_operations import CountedOperation, with_operation

RULES = ["?=BA16a16b"]
MEMORY = 1 << 14


def make_plan(source: str, target: str) -> ConversionPlan:
    """Return the plan of the conversion: to small shards in a folder, to small chunks in a Zarr store."""
    chunks = ["?=16,48"] if target.endswith(".zarr") else ()
    options = WriteOptions(shard_nbytes=300_000 if target.endswith("/") else None)
    return plan(source, target, RULES, memory=MEMORY, chunks=chunks, target_options=options)


def main(source: str, target: str, log: str, workers: str, seconds: str) -> None:
    """Do the conversion, or go on with it."""
    planned = make_plan(source, target)
    convert(with_operation(planned, CountedOperation, Path(log), float(seconds)), workers=int(workers))


if __name__ == "__main__":
    main(*sys.argv[1:])
