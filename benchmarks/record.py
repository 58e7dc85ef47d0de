"""The JSON file of a run: every time of every round, written case by case, so that an interrupted run can go on.

Times are written to the last bit: what is read back gives the same tables and the same picture.

A file is replaced whole: what is written gets a temporary name, then its own. A run that is told to write to a file
which holds an unfinished run of the same machine, versions and rounds goes on with it; what was measured there is not
measured again. A finished file is replaced.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases import Case, Size
from benchmarks.machine import Machine
from benchmarks.measure import Result
from benchmarks.startup import Figure
from benchmarks.timing import Rounds
from inlay.descriptor import Extras
from inlay.machine import ReportedCache
from inlay.measure.statistics import Spread
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints


class Unreadable(ValueError):
    """A file is none of ours, or of another run than the one that is to go on."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What results must share to stand in one file."""

    machine: Machine
    """Where they were taken."""
    rounds: Rounds
    """How they were taken."""
    versions: Mapping[str, str]
    """Who was measured, by name."""
    missing: Mapping[str, str]
    """Who was not, and why."""


@dataclass(slots=True)
class Record:
    """A run so far, and the file that holds it."""

    setup: Setup
    """Machine, rounds and peers."""
    path: Path | None = None
    """The file; None keeps everything in memory."""
    results: list[Result] = field(default_factory=list)
    """What was measured, in order."""
    startup: list[Figure] = field(default_factory=list)
    """What is paid before and beside the move."""
    is_complete: bool = False
    """Whether the run came to its end."""

    def holds(self, case: Case, run: int) -> bool:
        """Whether this case was measured in this run."""
        return any(r.run == run and r.case == case for r in self.results)

    def is_loud(self, case: Case, run: int) -> bool:
        """Whether others disturbed this case in this run."""
        return any(r.is_loud for r in self.results if r.run == run and r.case == case)

    def add(self, result: Result) -> None:
        """Keep one more result, in the place of an earlier one of the same case and run, and write the file."""
        same = [i for i, r in enumerate(self.results) if r.run == result.run and r.case == result.case]
        if same:
            self.results[same[0]] = result
        else:
            self.results.append(result)
        self.write()

    def write(self) -> None:
        """Replace the file."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        unfinished.write_text(json.dumps(as_json(self)) + "\n")
        unfinished.replace(self.path)


def opened(path: Path | None, setup: Setup) -> Record:
    """The unfinished run in the file, if there is one, or a new one.

    Raises:
        Unreadable: the file holds something else, or an unfinished run that this one cannot go on with.
    """
    if path is None or not path.exists():
        return Record(setup, path)
    found = loaded(path)
    if found.is_complete:
        return Record(setup, path)
    for what in ("machine", "rounds", "versions"):
        if getattr(found.setup, what) != getattr(setup, what):
            raise Unreadable(
                f"{path} holds an unfinished run of other {what}: "
                f"{getattr(found.setup, what)}, not {getattr(setup, what)}; name another file or delete it"
            )
    return found


def loaded(path: Path) -> Record:
    """The run that a file holds.

    Raises:
        Unreadable: it is no file of ours.
    """
    try:
        read = json.loads(path.read_text())
        setup = Setup(_machine(read["machine"]), Rounds(**read["rounds"]), read["versions"], read["missing"])
        results = [_result(entry) for entry in read["results"]]
        startup = [Figure(f["name"], Spread(**f["seconds"]), f["aim"]) for f in read["startup"]]
        return Record(setup, path, results, startup, read["is_complete"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{path} is no file that `python -m benchmarks --json` wrote: {error!r}") from error


def merged(records: Sequence[Record]) -> Record:
    """All results as runs of one record, numbered in the order of the files.

    The figures of the start are those of the first file that has some.

    Raises:
        Unreadable: the files come from different machines.
    """
    first = records[0]
    for other in records[1:]:
        if other.setup.machine != first.setup.machine:
            raise Unreadable(
                f"{other.path} comes from another machine than {first.path}: "
                f"{other.setup.machine.processor}, not {first.setup.machine.processor}"
            )
    results = [
        Result(r.case, r.seconds, r.copy_seconds, r.absent, number, r.share_of_others)
        for number, (record, run) in enumerate(_runs(records))
        for r in record.results
        if r.run == run
    ]
    startup = next((record.startup for record in records if record.startup), [])
    return Record(first.setup, None, results, startup, all(record.is_complete for record in records))


def _runs(records: Iterable[Record]) -> Iterable[tuple[Record, int]]:
    return [(record, run) for record in records for run in sorted({result.run for result in record.results})]


def as_json(record: Record) -> dict[str, Any]:
    """The whole run as plain values: every time of every round, and the figures of the tables."""
    return {
        "is_complete": record.is_complete,
        "machine": asdict(record.setup.machine),
        "rounds": asdict(record.setup.rounds),
        "versions": dict(record.setup.versions),
        "missing": dict(record.setup.missing),
        "results": [_result_json(result) for result in record.results],
        "startup": [asdict(figure) | {"is_met": figure.is_met} for figure in record.startup],
    }


def _result_json(result: Result) -> dict[str, Any]:
    others = [name for name in result.seconds if name != "Inlay"]
    return {
        **asdict(result.case),
        "label": result.case.label,
        "nbytes": result.case.nbytes,
        "run": result.run,
        "share_of_others": result.share_of_others,
        "seconds": result.seconds,
        "copy_seconds": result.copy_seconds,
        "best_copy": result.best_copy,
        "percent_of_copy": {name: asdict(result.percent_of_copy(name)) for name in result.seconds},
        "times_faster_than": {name: asdict(result.times_faster_than(name)) for name in others},
        "absent": result.absent,
    }


def _result(entry: Mapping[str, Any]) -> Result:
    names = ("src_tag", "dst_tag", "src_type", "dst_type", "note", "table", "aim")
    case = Case(
        **{name: entry[name] for name in names},
        size=Size(**entry["size"]),
        dims=tuple(entry["dims"]),
        attributes=_attributes(entry["attributes"]),
        extras=Extras(**entry["extras"] | {"gpu_geometry": tuple(entry["extras"]["gpu_geometry"])}),
    )
    times, copies, absent = entry["seconds"], entry["copy_seconds"], entry["absent"]
    return Result(case, times, copies, absent, entry["run"], entry["share_of_others"])


def _attributes(entry: Mapping[str, Any]) -> Attributes:
    kinds = {"scales": Scales, "zero_points": ZeroPoints}
    given = {name: value for name, value in entry.items() if value is not None}
    for name, value in given.items():
        if isinstance(value, dict):
            given[name] = kinds[name[4:]](**value | {"groups": tuple(value["groups"])})
    return Attributes(**given)


def _machine(entry: Mapping[str, Any]) -> Machine:
    caches = tuple(ReportedCache(c["level"], c["kind"], c["nbytes"], tuple(c["shared_by"])) for c in entry["caches"])
    return Machine(**{**entry, "processors": tuple(entry["processors"]), "caches": caches})
