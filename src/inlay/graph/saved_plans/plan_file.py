"""A plan in a file: `read_plan` returns what `plan_writing.write_plan` saved.

    section `plan`     JSON: the origin of the plan, descriptors, constants, the plan, and its guards
    other sections     copies of the constants

The records are those of `record_codec`. The plan has all fields of `PlannedProgram`: the graph, the program, and the
evidence for its choice. The constants are in the formats that kernels chose when the plan was saved; the engine, the
instruction set and the processor of that are the plan's origin.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inlay import __version__
from inlay.errors import FileError, InlayError, printable
from inlay.graph.costs.instruction_sets import allowed_isa
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.runtime.guards import RunGuards
from inlay.graph.saved_plans.checked_file import MappedSections, begin_sections
from inlay.graph.saved_plans.record_codec import decode_record
from inlay.graph.saved_plans.validation import require_valid_plan
from inlay.graph.saved_plans.value_tables import TableReader, parse_json
from inlay.primitives.engine import EngineLike, get_engine
from inlay.reordering.target import host_target

RECORDS = "plan"
"""Name of the section with the records."""
KEYS = ("origin", "descriptors", "constants", "plan", "guards")
"""Keys of the records, in their order."""


@dataclass(frozen=True, slots=True)
class PlanOrigin:
    """The versions and the processor that a plan was saved with."""

    inlay: str
    """Version of Inlay."""
    engine: str
    """Name and version of the engine that chose the formats of the constants."""
    isa: str
    """Instruction set that the plan is for."""
    cpu: str
    """Name of the processor in LLVM, such as `znver4`."""

    @classmethod
    def of_host(cls, engine: EngineLike) -> "PlanOrigin":
        """Return the origin of plans that are saved here for this engine."""
        return cls(__version__, get_engine(engine).name, allowed_isa(), host_target().cpu)

    def differences(self, other: "PlanOrigin") -> list[str]:
        """Return what differs between this origin and `other`, as clauses."""
        rows = (
            ("Inlay", self.inlay, other.inlay),
            ("engine", self.engine, other.engine),
            ("instruction set", self.isa, other.isa),
            ("processor", self.cpu, other.cpu),
        )
        return [f"{what} {own} and not {found}" for what, own, found in rows if own != found]


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan that was read from a file."""

    plan: PlannedProgram
    """The plan; its constants are in the file."""
    origin: PlanOrigin
    """Versions and processor that it was saved with."""


def read_plan(path: Path) -> SavedPlan:
    """Return the plan in a file; its constants are read-only and share the pages of the file with other processes.

    Nothing of the file is executed, and nothing is measured.

    Raises:
        FileError: the file cannot be read, is no saved plan, is of another version, was changed, or holds a plan that
            cannot be.
    """
    mapped = begin_sections(path)
    saved = decode_plan(path, mapped)
    mapped.require_intact()
    return saved


def decode_plan(path: Path, mapped: MappedSections) -> SavedPlan:
    """Return the plan in the sections of a file, whose bytes other threads may still check.

    Raises:
        FileError: the sections hold a plan that cannot be; or the bytes were changed, if that is the reason.
    """
    try:
        return _decode_plan(dict(mapped.sections))
    except InlayError as error:
        mapped.require_intact()
        raise FileError(f"{printable(str(path))} holds no valid plan: {error}") from error


def _decode_plan(sections: dict[str, Any]) -> SavedPlan:
    """Return the plan of these sections."""
    if RECORDS not in sections:
        raise FileError(f"it has no section {RECORDS}")
    records = parse_json(sections.pop(RECORDS).tobytes())
    if not isinstance(records, dict) or tuple(records) != KEYS:
        raise FileError(f"its records are not {', '.join(KEYS)}")
    values = TableReader(records["constants"], records["descriptors"], sections)
    origin = decode_record(PlanOrigin, records["origin"], values, "origin")
    plan = decode_record(PlannedProgram, records["plan"], values, "plan")
    guards = decode_record(RunGuards, records["guards"], values, "guards")
    require_valid_plan(plan, guards)
    return SavedPlan(replace(plan, guards=guards), origin)
