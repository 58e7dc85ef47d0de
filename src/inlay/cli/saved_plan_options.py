"""Saved plans on the command line: `inlay plan -o FILE` writes one, `inlay run FILE` reads it.

A file is taken for a saved plan if it begins as one, or if its name ends in .inlay, so that the error for a damaged
file is about plans and not about ONNX models.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.output import echo
from inlay.errors import InvalidArguments, StalePlanWarning, printable
from inlay.files import require_unused

if TYPE_CHECKING:
    from inlay.graph.plan import Plan
    from inlay.graph.session import Session

SUFFIX = ".inlay"
"""Ending of the names of saved plans."""

PlanOutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help=f"Save the plan with packed weights as {SUFFIX}, for `inlay run` and Session.load.",
    ),
]


def is_plan_file(path: Path) -> bool:
    """Return whether a file is to be read as a saved plan."""
    from inlay.graph.saved_plans.checked_file import is_saved_plan

    return path.suffix.lower() == SUFFIX or is_saved_plan(path)


def require_plan_target(target: Path | None, isa: str | None, *others: Path) -> None:
    """Check, before work begins, that a plan can be saved as `target`; None means that none is saved.

    Raises:
        InvalidArguments: `target` does not end in .inlay, or `isa` plans for another processor.
        FileError: `target` is one of `others`, the files that are read or written.
    """
    if target is None:
        return
    require_unused(target, *others)
    if target.suffix.lower() != SUFFIX:
        raise InvalidArguments(
            f"-o is {printable(str(target))!r}: a plan is saved as a file that ends in {SUFFIX}; --picture draws it"
        )
    if isa is not None:
        raise InvalidArguments(
            f"-o saves weights in the formats of kernels of this processor, and --isa {isa} plans for another one: "
            "leave one of them out, and save the plan where it is to run"
        )


def save_plan(plan: "Plan", target: Path, *, as_json: bool) -> None:
    """Save a plan, and print the name and size of the file; on the error stream if the output is JSON."""
    plan.save(target)
    size = f"{target.stat().st_size / 1e6:.1f} MB"
    echo(f"{'' if as_json else chr(10)}saved {printable(str(target))}, {size}", err=as_json)


def refuse_plan_options(path: Path, options: Mapping[str, object]) -> None:
    """Check that no option is given that says how a network is to be planned.

    `options` are values by the name of the option, None for one that is left out.

    Raises:
        InvalidArguments: one is given.
    """
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InvalidArguments(
            f"{printable(str(path))} is a saved plan, for which {given[0]} comes too late: leave it out, or give it to "
            "`inlay plan` with the model and -o"
        )


def load_session(path: Path, engine: str | None) -> "Session":
    """Return a session of the plan in a file; a note on the error stream says if the network is planned again.

    Raises:
        FileError: the file cannot be read, is no saved plan, or was changed.
        Unimplemented, MissingExtra, OutOfMemory: as `Session.load`.
    """
    from inlay.graph.session import Session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StalePlanWarning)
        session = Session.load(path, engine=engine)
    if session.note:
        echo(f"note: {session.note}", err=True)
    return session
