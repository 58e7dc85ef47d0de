"""`write_plan`: compiles a plan, and writes it to a file with its constants as the kernels read them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from inlay.graph.fallback.sessions import describe_interface, serialize_subgraph
from inlay.graph.network import Node, Subgraph
from inlay.graph.op_graph import Array, Op, OpGraph
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.precision import NARROW_TYPES, convert_weights, round_to
from inlay.graph.program import Step
from inlay.graph.runtime.prepared_steps import PreparedStep
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.saved_plans.checked_file import write_sections
from inlay.graph.saved_plans.plan_file import KEYS, RECORDS, PlanOrigin
from inlay.graph.saved_plans.record_codec import encode_record
from inlay.graph.saved_plans.value_tables import TableWriter
from inlay.primitives.engine import EngineLike
from inlay.primitives.operation_checks import require_operation


def write_plan(plan: PlannedProgram, target: Path, engine: EngineLike = None) -> None:
    """Compile a plan, and write it with its constants in the formats and types of the kernels.

    Weights that are used in bf16 or f16 alone become constants of that type: their elements are rounded.

    Raises:
        InvalidArguments: the plan has a value that cannot be saved, or as `ProgramSession`.
        FileError: the file cannot be written.
        Unimplemented, MissingExtra, OutOfMemory: as `ProgramSession`.
    """
    plan = store_narrow_weights(plan)
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
        text = json.dumps(dict(zip(KEYS, values, strict=True)), separators=(",", ":"), allow_nan=False)
        sections[RECORDS] = np.frombuffer(_padded(text.encode()), np.uint8)
        write_sections(target, sections)


def store_narrow_weights(plan: PlannedProgram) -> PlannedProgram:
    """Return the plan with weights as constants of the narrow type in which its steps use them, if all use one."""
    used = [(step, name) for step in plan.program.steps if (name := _weights_type(step)) is not None]
    if not any(name in NARROW_TYPES for _, name in used):
        return plan
    types: dict[int, set[str]] = {}
    for step, name in used:
        types.setdefault(id(step.constants["weights"]), set()).add(name)
    rounded: dict[int, Array] = {}

    def convert(array: Array) -> Array:
        names = types.get(id(array), set())
        if len(names) != 1 or not names <= NARROW_TYPES:
            return array
        return rounded.setdefault(id(array), round_to(array, *names))

    graph = convert_weights(plan.graph, convert)
    steps = tuple(_with_converted(step, rounded) for step in plan.program.steps)
    return replace(plan, graph=graph, program=replace(plan.program, steps=steps))


def _weights_type(step: Step) -> str | None:
    """Return the data type in which a step uses constant weights; None without them."""
    if step.operation is None or "weights" not in step.constants:
        return None
    data_type = step.operation.descs["weights"].data_type
    return None if data_type is None else data_type.name


def _with_converted(step: Step, rounded: Mapping[int, Array]) -> Step:
    """Return a step with its converted weights."""
    array = rounded.get(id(step.constants.get("weights")))
    return step if array is None else replace(step, constants={**step.constants, "weights": array})


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
