"""A plan in a file: `write_plan` saves a planned program with its packed constants, `read_plan` has it again.

    section `plan`     JSON: the origin of the plan, descriptors, constants, the plan, and its guards
    other sections     copies of the constants

The records are those of `record_codec`. The plan has all fields of `PlannedProgram`: the graph, the program, and the
evidence for its choice. The constants are in the formats that kernels chose when the plan was saved; the engine, the
instruction set and the processor of that are the plan's origin.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from inlay import __version__
from inlay.errors import FileError, InlayError, printable
from inlay.graph.costs.machine import allowed_isa
from inlay.graph.fallback.sessions import describe_interface, serialize_subgraph
from inlay.graph.network import Node, Subgraph
from inlay.graph.op_graph import Op, OpGraph
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.runtime.compiling import PreparedStep
from inlay.graph.runtime.guards import RunGuards
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.saved_plans.checked_file import begin_sections, write_sections
from inlay.graph.saved_plans.record_codec import decode_record, encode_record
from inlay.graph.saved_plans.validation import require_valid_plan
from inlay.graph.saved_plans.value_tables import TableReader, TableWriter, parse_json
from inlay.primitives.engine import EngineLike, get_engine
from inlay.primitives.operation_checks import require_operation
from inlay.reordering.target import host_target

_RECORDS = "plan"
"""Name of the section with the records."""
_KEYS = ("origin", "descriptors", "constants", "plan", "guards")


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


# Writing


def write_plan(plan: PlannedProgram, target: Path, engine: EngineLike = None) -> None:
    """Compile a plan, and write it with its constants in the formats of the kernels.

    Raises:
        InvalidArguments: the plan has a value that cannot be saved, or as `ProgramSession`.
        FileError: the file cannot be written.
        Unimplemented, MissingExtra, OutOfMemory: as `ProgramSession`.
    """
    origin = replace(PlanOrigin.of_host(engine), isa=plan.isa)
    with ProgramSession(plan.program, plan.graph, engine=engine, threads=plan.threads) as session:
        compiled = session.compiled
        table = TableWriter()
        stored = _with_models(plan)
        guards = encode_record(compiled.guards, table)
        records = encode_record(stored, table, PlannedProgram)
        for step, prepared in zip(stored.program.steps, compiled.prepared, strict=True):
            if step.operation is not None:
                require_operation(step.operation)
            _add_copies(table, prepared)
        constants, descs, sections = table.build()
        values = encode_record(origin, table), descs, constants, records, guards
        text = json.dumps(dict(zip(_KEYS, values, strict=True)), separators=(",", ":"), allow_nan=False)
        sections[_RECORDS] = np.frombuffer(_padded(text.encode()), np.uint8)
        write_sections(target, sections)


def _padded(text: bytes) -> bytes:
    """Return a JSON text, filled up with spaces to a multiple of 64 bytes."""
    return text + b" " * (-len(text) % 64)


def _add_copies(table: TableWriter, prepared: PreparedStep) -> None:
    """Add the memory of the constants of a step, unless only the engine can tell what it holds."""
    for argument, memory in prepared.constants.items():
        engine = prepared.engine
        is_plain = memory.desc.kind in ("blocked", "digits")
        if is_plain or (engine is not None and engine.accepts_any_contents(memory.desc)):
            table.add_copy(prepared.step.constants[argument], memory)


def _with_models(plan: PlannedProgram) -> PlannedProgram:
    """Return the plan with a serialized model in each subgraph, so that they run without the package onnx."""
    nodes: dict[int, Node] = {}
    graph = _serialize_graph(plan.graph, nodes)
    if not nodes:
        return plan
    steps = tuple(replace(step, node=nodes.get(id(step.node), step.node)) for step in plan.program.steps)
    return replace(plan, graph=graph, program=replace(plan.program, steps=steps))


def _serialize_graph(graph: OpGraph, nodes: dict[int, Node]) -> OpGraph:
    """Return a graph with a model in each subgraph; `nodes` receives these by the `id` of the former ones."""

    def serialized(op: Op) -> Op:
        if op.exact is not None:
            op = replace(op, exact=_serialize_graph(op.exact, nodes))
        if not isinstance(op.node, Subgraph):
            return op
        if not op.node.model:
            interface = describe_interface(op.node, graph.opset, graph.tensors, op.writes.values(), op.constants)
            nodes[id(op.node)] = replace(op.node, model=serialize_subgraph(interface))
        return replace(op, node=nodes.get(id(op.node), op.node))

    return replace(graph, ops=tuple(map(serialized, graph.ops)))


# Reading


def read_plan(path: Path) -> SavedPlan:
    """Return the plan in a file; its constants are read-only and share the pages of the file with other processes.

    Nothing of the file is executed, and nothing is measured.

    Raises:
        FileError: the file cannot be read, is no saved plan, is of another version, was changed, or holds a plan that
            cannot be.
    """
    mapped = begin_sections(path)
    try:
        saved = _decode_plan(dict(mapped.sections))
    except InlayError as error:
        mapped.require_intact()  # of a damaged file, this is the error to raise
        raise FileError(f"{printable(str(path))} holds no valid plan: {error}") from error
    mapped.require_intact()
    return saved


def _decode_plan(sections: dict[str, Any]) -> SavedPlan:
    """Return the plan of these sections."""
    if _RECORDS not in sections:
        raise FileError(f"it has no section {_RECORDS}")
    records = parse_json(sections.pop(_RECORDS).tobytes())
    if not isinstance(records, dict) or tuple(records) != _KEYS:
        raise FileError(f"its records are not {', '.join(_KEYS)}")
    values = TableReader(records["constants"], records["descriptors"], sections)
    origin = decode_record(PlanOrigin, records["origin"], values, "origin")
    plan = decode_record(PlannedProgram, records["plan"], values, "plan")
    guards = decode_record(RunGuards, records["guards"], values, "guards")
    require_valid_plan(plan, guards)
    return SavedPlan(replace(plan, guards=guards), origin)
