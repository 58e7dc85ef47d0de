"""A conversion that a test kills: `python -m tests.support.killed_conversion SOURCE TARGET LOG WORKERS SECONDS`.

LOG gets a line for each box that begins, and each box takes at least SECONDS.
"""

import sys
from pathlib import Path

from inlay.storage import convert, plan
from tests.support.conversion_operations import CountedOperation, with_operation

RULES = ["?=BA16a16b"]
MEMORY = 1 << 14


def main(source: str, target: str, log: str, workers: str, seconds: str) -> None:
    """Do the conversion, or go on with it."""
    planned = plan(source, target, RULES, memory=MEMORY)
    convert(with_operation(planned, CountedOperation, Path(log), float(seconds)), workers=int(workers))


if __name__ == "__main__":
    main(*sys.argv[1:])
