"""The first of two passes: intermediate arrays beside the target, which exist while the second pass reads them.

Their name depends on the version of the source and on all boxes (`chunked_plan.make_stage`). They get it when all of
them are written, so an interrupted conversion finds them or writes them anew.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from inlay.storage.chunked_plan import STAGE_DIGEST_CHARACTERS, STAGE_SUFFIX, stage_prefix
from inlay.storage.conversion_plan import ConversionPlan
from inlay.storage.staged_store import exists
from inlay.storage.zarr_store import file_system, is_url


@contextmanager
def written_first_pass(
    plan: ConversionPlan, execute: Callable[[ConversionPlan], object], *, keeps: bool = False
) -> Iterator[None]:
    """Write the intermediate arrays of `plan` by `execute`, unless they exist, and remove them at the end.

    If the body of the `with` statement fails and `keeps` is True, they remain for the next call.
    """
    first, is_done = plan.first_pass, False
    if first is None:
        yield
        return
    try:
        if not exists(first.target.location):
            execute(first)
        yield
        is_done = True
    finally:
        if is_done or not keeps:
            _remove(first.target.location)


def remove_intermediate_arrays(target: str) -> bool:
    """Remove the intermediate arrays of conversions to a local target that did not end; return True if there were some.

    Those of a URL remain.
    """
    if is_url(target):
        return False
    # The digest has its length, since the name of another target may begin with that of this one.
    digest = STAGE_DIGEST_CHARACTERS * "[0-9a-f]"
    found = list(Path(target).parent.glob(f"{escape(stage_prefix(target))}{digest}{STAGE_SUFFIX}"))
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return bool(found)


def remove_first_pass(plan: ConversionPlan) -> None:
    """Remove the intermediate arrays of `plan`, if it has some."""
    if plan.first_pass is not None:
        _remove(plan.first_pass.target.location)


def _remove(location: str) -> None:
    """Remove the Zarr group at a path or URL, if there is one."""
    if not is_url(location):
        shutil.rmtree(location, ignore_errors=True)
        return
    fs, root = file_system(location)
    with suppress(OSError):
        fs.rm(root, recursive=True)
