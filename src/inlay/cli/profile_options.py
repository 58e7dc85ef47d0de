"""The options `--profile`, `--all` and `--trace` of `inlay run`: a table of the steps, and a Chrome trace."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay.cli.application import clear_abandoned
from inlay.cli.output import echo
from inlay.errors import InvalidArguments, printable
from inlay.files import require_unused
from inlay.measure.interleaved import time_call

if TYPE_CHECKING:
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

    def require_valid(self, sources: Iterable[Path], output: Path | None) -> None:
        """Check the choices.

        Raises:
            InvalidArguments, FileError: as `request_profile`.
        """
        if self.has_all_rows and not self.is_printed:
            raise InvalidArguments("--all is for the table of --profile: give both, or leave it out")
        if self.trace is not None:
            require_unused(self.trace, *sources)
            if output is not None and self.trace.resolve() == output.resolve():
                raise InvalidArguments(
                    f"--trace and --output are both {self.trace}: choose another name for one of them"
                )

    def measure(self, session: "ProgramSession", inputs: Mapping[str, Any]) -> "Profile | None":
        """Return the profile of a session on these inputs; None if nothing is requested."""
        if not self.is_printed and self.trace is None:
            return None
        seconds, _ = time_call(lambda: session.run(inputs))
        runs = int(_SECONDS / max(2 * seconds, _SECONDS / _MOST_RUNS))  # each is a whole run, and one step by step
        return session.profile(inputs, runs=max(1, runs))

    def report(self, profile: "Profile | None", *, as_json: bool = False) -> None:
        """Print the table and write the trace, as requested; for JSON, write the trace only.

        Raises:
            FileError: the trace cannot be written.
        """
        if profile is None:
            return
        if self.is_printed and not as_json:
            echo(f"\n{profile.table(top=None) if self.has_all_rows else profile}")
        if self.trace is not None:
            profile.save_trace(self.trace)
            echo(f"wrote {printable(str(self.trace))}: a trace of {len(profile)} steps", err=as_json)


def request_profile(
    is_printed: bool,
    has_all_rows: bool,
    trace: Path | None,
    sources: Iterable[Path],
    output: Path | None,
    remove_abandoned: bool,
) -> ProfileRequest:
    """Return the choices of the command line, checked before work begins.

    Temporary files that killed processes left beside the trace are reported, or removed.

    Args:
        is_printed, has_all_rows, trace: the options `--profile`, `--all` and `--trace`.
        sources: the files that the command reads.
        output: the file of its outputs, or None.
        remove_abandoned: whether to remove temporary files of killed processes.

    Raises:
        InvalidArguments: all rows are requested of no table, or the trace has the name of `output`.
        FileError: the trace would replace one of `sources`, or a temporary file cannot be removed.
    """
    request = ProfileRequest(is_printed, has_all_rows, trace)
    request.require_valid(sources, output)
    if trace is not None:
        clear_abandoned(trace, remove_abandoned)
    return request
