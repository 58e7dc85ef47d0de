"""The options `--profile`, `--all`, `--trace` and `--html` of `inlay run`: a table of steps, a Chrome trace, a page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay.cli.application import clear_abandoned
from inlay.cli.output import echo
from inlay.cli.plan_page_options import require_page_target, save_page
from inlay.errors import InvalidArguments, printable
from inlay.files import require_unused
from inlay.measure.interleaved import time_call

if TYPE_CHECKING:
    from inlay.graph.planned_program import PlannedProgram
    from inlay.graph.profiling import Profile
    from inlay.graph.runtime.program_session import ProgramSession

ProfileOption = Annotated[
    bool, typer.Option("--profile", help="Print the steps by their measured time, beside the predicted one.")
]
AllRowsOption = Annotated[bool, typer.Option("--all", help="With --profile: print all rows, not the first ten.")]
TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write a Chrome trace of the steps, as .json for Perfetto."),
]

_MOST_RUNS, _SECONDS = 20, 10.0
"""Number of runs of a profile: as many as take about this time, at most so many."""


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """The choices of the command line on a profile."""

    is_printed: bool
    """True if the table is printed."""
    has_all_rows: bool
    """True if the table has all rows."""
    trace: Path | None
    """File of the Chrome trace; None without one."""
    page: Path | None
    """File of the page of the plan; None without one."""

    def require_valid(self, sources: Iterable[Path], output: Path | None) -> None:
        """Check the choices.

        Raises:
            InvalidArguments, FileError: as `request_profile`.
        """
        if self.has_all_rows and not self.is_printed:
            raise InvalidArguments("--all is for the table of --profile: give both, or leave it out")
        files = list(sources)
        require_page_target(self.page, files, [("--trace", self.trace), ("--output", output)])
        if self.trace is not None:
            require_unused(self.trace, *files)
            if output is not None and self.trace.resolve() == output.resolve():
                raise InvalidArguments(
                    f"--trace and --output are both {self.trace}: choose another name for one of them"
                )

    def measure(self, session: "ProgramSession", inputs: Mapping[str, Any]) -> "Profile | None":
        """Return the profile of a session on these inputs; None if nothing is requested."""
        if not self.is_printed and self.trace is None and self.page is None:
            return None
        seconds, _ = time_call(lambda: session.run(inputs))
        runs = int(_SECONDS / max(2 * seconds, _SECONDS / _MOST_RUNS))  # each is a whole run, and one step by step
        return session.profile(inputs, runs=max(1, runs))

    def report(self, profile: "Profile | None", plan: "PlannedProgram", *, as_json: bool = False) -> None:
        """Print the table, and write the trace and the page of the plan, as requested; for JSON, write files only.

        Raises:
            FileError: a file cannot be written.
        """
        if profile is None:
            return
        if self.is_printed and not as_json:
            echo(f"\n{profile.table(top=None) if self.has_all_rows else profile}")
        if self.trace is not None:
            profile.save_trace(self.trace)
            echo(f"wrote {printable(str(self.trace))}: a trace of {len(profile)} steps", err=as_json)
        if self.page is not None:
            save_page(plan, self.page, profile, as_json=as_json)


def request_profile(
    is_printed: bool,
    has_all_rows: bool,
    trace: Path | None,
    sources: Iterable[Path],
    output: Path | None,
    remove_abandoned: bool,
    page: Path | None = None,
) -> ProfileRequest:
    """Return the choices of the command line, checked before work begins.

    Temporary files that killed processes left beside the trace or the page are reported, or removed.

    Args:
        is_printed, has_all_rows, trace: the options `--profile`, `--all` and `--trace`.
        sources: the files that the command reads.
        output: the file of its outputs, or None.
        remove_abandoned: whether to remove temporary files of killed processes.
        page: the file of the option `--html`, or None.

    Raises:
        InvalidArguments: all rows are requested of no table, two of the files have the same name, or the page does not
            end in .html.
        FileError: a file would replace one of `sources`, or a temporary file cannot be removed.
    """
    request = ProfileRequest(is_printed, has_all_rows, trace, page)
    request.require_valid(sources, output)
    for target in filter(None, (trace, page)):
        clear_abandoned(target, remove_abandoned)
    return request
