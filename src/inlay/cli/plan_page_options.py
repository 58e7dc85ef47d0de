"""The option `--html` of `inlay plan` and `inlay run`: the page of a plan, with measured times after a run."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.output import echo
from inlay.errors import InvalidArguments, printable
from inlay.files import is_same_file, require_unused

if TYPE_CHECKING:
    from inlay.graph.planned_program import PlannedProgram
    from inlay.graph.profiling import Profile

PlanPageOption = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write a page of the plan: its graph, times, reorders and compared plans."
    ),
]
RunPageOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page of the plan with the measured times.")
]


def require_page_target(page: Path | None, sources: Iterable[Path], others: Iterable[tuple[str, Path | None]]) -> None:
    """Check, before work begins, that a page can be written to a file; None means that none is written.

    Args:
        page: the file of the page.
        sources: the files that are read.
        others: the other files that are written, each after the name of its option; None for one that is not.

    Raises:
        InvalidArguments: `page` does not end in .html, or is one of `others`.
        FileError: `page` is one of `sources`.
    """
    if page is None:
        return
    from inlay.render.plan_page.page import require_page_name

    require_page_name(page)
    require_unused(page, *sources)
    for option, other in others:
        if other is not None and (other.resolve() == page.resolve() or is_same_file(other, page)):
            raise InvalidArguments(f"{option} and --html are both {page}: choose another name for one of them")


def save_page(plan: "PlannedProgram", page: Path, profile: "Profile | None" = None, *, as_json: bool = False) -> None:
    """Write the page of a plan, and print the name of the file; on the error stream if the output is JSON.

    Exact kernels are other steps than those of the plan: after a profile of them, the page has predicted times alone.

    Raises:
        FileError: the file cannot be written.
    """
    from inlay.render.plan_page import PlanPage

    is_other = profile is not None and profile.is_exact
    PlanPage(plan, None if is_other else profile).save(page)
    echo(f"{'' if as_json or profile else chr(10)}wrote {printable(str(page))}", err=as_json)
    if is_other:
        echo(
            "its times are predicted: exact kernels ran, and these are other steps than those of the plan", err=as_json
        )
