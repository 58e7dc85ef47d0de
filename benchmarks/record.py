"""The record of a run: machine, versions and the times of every round, written to a JSON file case by case.

The file is replaced as a whole after each case. A run that names the file of an unfinished run of the same machine,
versions and rounds continues it; a finished file is replaced. Times are written to the last bit, so that a file gives
the same tables and the same picture.
"""

import json
import os
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import llvmlite
import ml_dtypes
from llvmlite.binding import llvm_version_info

from benchmarks.cases import Case, Size, pair_of
from benchmarks.rounds import Result, Rounds
from inlay.bench.measurement import INLAY, Measurement
from inlay.files import atomic_write
from inlay.machine import reported_caches
from inlay.measure.processors import allowed_processors
from inlay.measure.statistics import Spread
from inlay.reordering.compiled import CompiledCopies
from inlay.reordering.memory_levels import measure_all, memory_model

_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class Unreadable(ValueError):
    """A file has other content than expected, or belongs to another run."""


def read_pieces(file: Path, names: Collection[str], what: str) -> dict[str, Any]:
    """Return the measured pieces of a network or model, by name; none if there is no file.

    Raises:
        Unreadable: the file holds something else than a result of `what`, with pieces of these names.
    """
    try:
        pieces = json.loads(file.read_text()) if file.exists() else {}
    except ValueError as error:
        raise Unreadable(f"{file} holds no result: {error}; remove it, and measure again") from error
    if not isinstance(pieces, dict) or not pieces.keys() <= set(names):
        raise Unreadable(f"{file} holds no result of a {what}; remove it, and measure again")
    return pieces


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a run: all that its figures depend on."""

    lines: tuple[str, ...]  # processor, caches, memory and system in words
    processors: tuple[int, ...]  # those that this process may run on: as many threads each contender gets
    l2: int  # measured bytes of one processor's L2
    l3: int  # measured bytes of the last cache level

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The three sizes of cases on this machine."""
        return Size("L2", self.l2 // 2), Size("L3", self.l3 // 2), Size("beyond", 4 * self.l3, warm=False)


def this_machine() -> Machine:
    """Return the machine of this process; its caches are measured now if they never were."""
    model = memory_model()
    model = measure_all(CompiledCopies()) if model.source == "assumed" else model
    processors, capacity = allowed_processors(), {2: model.l2, 3: model.last_level}
    caches = [
        f"L{cache.level} {capacity.get(cache.level, cache.nbytes) >> 10} KiB shared by {len(cache.shared_by)}"
        for cache in reported_caches()
        if cache.holds_data
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    pages = _PAGES.read_text().strip() if _PAGES.exists() else "none"
    lines = (
        f"{_processor_name()}, {len(processors)} threads for everybody",
        f"caches, effective: {', '.join(caches) or 'not reported'}",
        f"{memory / 2**30:.0f} GiB of memory, transparent huge pages: {pages}",
        f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}",
    )
    return Machine(lines, processors, model.l2, model.last_level)


def _processor_name() -> str:
    info, facts = Path("/proc/cpuinfo"), dict[str, str]()
    for line in info.read_text().splitlines() if info.exists() else ():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name") or platform.processor() or platform.machine()
    numbers = ", ".join(f"{key} {facts[key]}" for key in ("cpu family", "model", "stepping") if key in facts)
    return f"{name} ({numbers})" if numbers else name


def library_versions() -> str:
    """Return the versions of the libraries that Inlay is built on."""
    llvm = ".".join(map(str, llvm_version_info))
    return f"llvmlite {llvmlite.__version__} with LLVM {llvm}, ml_dtypes {ml_dtypes.__version__}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A time beside its aim."""

    name: str
    seconds: Spread
    aim: float | None  # seconds to stay below

    @property
    def is_met(self) -> bool:
        """True if the time is below its aim."""
        return self.aim is None or self.seconds.median < self.aim


@dataclass(frozen=True, slots=True)
class Row:
    """The results of one case in one run or several; with several a figure is the median, lowest and highest run."""

    case: Case
    results: tuple[Result, ...]  # run by run, at least one

    @property
    def peers(self) -> list[str]:
        """The contenders that were timed in every run, Inlay among them."""
        first, *others = (result.measured.seconds for result in self.results)
        return [name for name in first if all(name in other for other in others)]

    @property
    def copy(self) -> tuple[str, float]:
        """The copy that was 100 % in the first run, and the median of its seconds."""
        measured = [result.measured for result in self.results]
        return measured[0].best_copy, median(m.time(m.best_copy) for m in measured)

    @property
    def absent(self) -> dict[str, str]:
        """Contenders that were not timed in some run, each with the reason."""
        return {name: reason for result in self.results for name, reason in result.measured.absent.items()}

    def percent_of_copy(self, peer: str = INLAY) -> Spread:
        """Return the speed of a contender, where that of the best copy is 100."""
        return over_runs([result.measured.percent_of_copy(peer) for result in self.results])

    def times_faster_than(self, peer: str) -> Spread:
        """Return how many times as fast as `peer` Inlay is."""
        return over_runs([result.measured.times_faster_than(peer) for result in self.results])


def over_runs(figures: Sequence[Spread]) -> Spread:
    """Return the only figure; or the median of several, with the lowest and the highest of them.

    >>> over_runs([Spread(87.0, 80.0, 90.0), Spread(85.0, 84.0, 86.0), Spread(88.0, 87.0, 89.0)])
    Spread(median=87.0, low=85.0, high=88.0)
    """
    medians = [figure.median for figure in figures]
    return figures[0] if len(figures) == 1 else Spread(median(medians), min(medians), max(medians))


def rows_of(results: Iterable[Result]) -> list[Row]:
    """Return a row for each case, in the order in which the cases come first."""
    groups: dict[tuple[str, tuple[int, ...]], list[Result]] = {}
    for result in results:
        groups.setdefault((result.case.label, result.case.dims), []).append(result)
    return [Row(group[0].case, tuple(group)) for group in groups.values()]


@dataclass(frozen=True, slots=True)
class Setup:
    """The conditions that all results of one record share."""

    machine: Machine
    rounds: Rounds
    versions: Mapping[str, str]  # of the contenders that were measured
    missing: Mapping[str, str]  # contenders that are not installed, each with the reason


@dataclass(slots=True)
class Record:
    """A run so far, and its file."""

    setup: Setup
    path: Path | None = None  # None keeps everything in memory
    results: list[Result] = field(default_factory=list)
    startup: list[Figure] = field(default_factory=list)  # times of importing, compiling and calling
    is_complete: bool = False  # the run came to its end

    @property
    def runs(self) -> list[int]:
        """The numbers of the runs that have results."""
        return sorted({result.run for result in self.results})

    def result(self, case: Case, run: int) -> Result | None:
        """Return the result of a case in a run; None if it was not measured."""
        return next((r for r in self.results if r.run == run and r.case == case), None)

    def unmeasured(self, cases: Sequence[Case], runs: int) -> list[tuple[Case, int]]:
        """Return the cases, each with a run, that have no result yet, and then those that were disturbed."""
        known = {(case, run): self.result(case, run) for run in range(runs) for case in cases}
        disturbed = [piece for piece, result in known.items() if result is not None and result.is_loud]
        return [piece for piece, result in known.items() if result is None] + disturbed

    def add(self, result: Result) -> None:
        """Store a result in place of an earlier one of the same case and run, and write the file."""
        earlier = self.result(result.case, result.run)
        at = len(self.results) if earlier is None else self.results.index(earlier)
        self.results[at : at + 1] = [result]
        self.write()

    def write(self) -> None:
        """Replace the file."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.path) as file:
                file.write((json.dumps(as_json(self)) + "\n").encode())


def open_record(path: Path | None, setup: Setup) -> Record:
    """Return the unfinished run in the file, or a new one; raise `Unreadable` for one with another setup."""
    if path is None or not path.exists():
        return Record(setup, path)
    found = load_record(path)
    if found.is_complete:
        return Record(setup, path)
    for name in ("machine", "rounds", "versions"):
        known, wanted = getattr(found.setup, name), getattr(setup, name)
        if known != wanted:
            raise Unreadable(
                f"{path} holds an unfinished run of other {name}: {known}, not {wanted}; name another file or delete it"
            )
    return found


def load_record(path: Path) -> Record:
    """Return the run that a file holds; raise `Unreadable` if it is no record."""
    try:
        read = json.loads(path.read_text())
        its = read["machine"]
        machine = Machine(tuple(its["lines"]), tuple(its["processors"]), its["l2"], its["l3"])
        setup = Setup(machine, Rounds(**read["rounds"]), read["versions"], read["missing"])
        results = [_result(entry) for entry in read["results"]]
        startup = [Figure(f["name"], Spread(**f["seconds"]), f["aim"]) for f in read["startup"]]
        return Record(setup, path, results, startup, read["is_complete"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{path} is no file that `python -m benchmarks --json` wrote: {error!r}") from error


def merge_records(records: Sequence[Record]) -> Record:
    """Return all results as runs of one record, with the first startup figures; raise `Unreadable` for two machines."""
    first = records[0]
    for other in records[1:]:
        if other.setup.machine != first.setup.machine:
            raise Unreadable(
                f"{other.path} comes from another machine than {first.path}: "
                f"{other.setup.machine.lines[0]}, not {first.setup.machine.lines[0]}"
            )
    runs = [[r for r in record.results if r.run == run] for record in records for run in record.runs]
    results = [replace(result, run=number) for number, run in enumerate(runs) for result in run]
    startup = next((record.startup for record in records if record.startup), [])
    return Record(first.setup, None, results, startup, all(record.is_complete for record in records))


def as_json(record: Record) -> dict[str, Any]:
    """Return the whole run as JSON holds it: every time of every round, and the figures formed from them."""
    return {
        "is_complete": record.is_complete,
        **asdict(record.setup),
        "results": [_result_json(result) for result in record.results],
        "startup": [asdict(figure) | {"is_met": figure.is_met} for figure in record.startup],
    }


def _result_json(result: Result) -> dict[str, Any]:
    case, measured = asdict(replace(result.case, pair=replace(result.case.pair, fit=None))), result.measured
    del case["pair"]["fit"]
    return {
        **case,
        "label": result.case.label,
        "nbytes": result.case.nbytes,
        "run": result.run,
        "share_of_others": result.share_of_others,
        "measured": {name: measured.figures(name) for name in measured.seconds},
        "copies": dict(measured.copies),
        "absent": dict(measured.absent),
    }


def _result(entry: Mapping[str, Any]) -> Result:
    case = Case(pair_of(entry["pair"]), Size(**entry["size"]), tuple(entry["dims"]))
    seconds = {name: figures["seconds"] for name, figures in entry["measured"].items()}
    measured = Measurement(seconds, entry["copies"], entry["absent"])
    return Result(case, measured, entry["run"], entry["share_of_others"])
