"""Drawn problems as operations of an engine: forward and backward, in any formats and types.

operation = operation_of(draw("pooling", seed=0, data_type="f32"))
results = run_operation(operation, lambda desc: MemoryDesc(desc.dims, "f64"), arrays)
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.engines.reference import make_engine
from inlay.memory import Memory, pack
from inlay.primitives.attributes import PLAIN
from inlay.primitives.engine import Implementation, Operation
from inlay.primitives.rules import SIGNATURES, Direction
from tests.support.onednn_cases import directions
from tests.support.primitive_runs import Case

Chooser: TypeAlias = Callable[[MemoryDesc], MemoryDesc]


def operation_of(case: Case) -> Operation:
    """Return the forward operation of a case, without its attributes."""
    return replace(case.create("reference").operation, attributes=PLAIN)


def backward(hint: Implementation, direction: Direction) -> Operation:
    """Return the operation back through a forward implementation: data in its formats, gradients `any`."""
    kind, parameters = hint.operation.kind, hint.operation.parameters
    row = SIGNATURES[kind, direction]
    descs = {}
    for name in (*row.reads, *row.writes):
        desc = hint.descs.get(name.removeprefix("diff_"))
        if desc is not None and name != "workspace":
            descs[name] = MemoryDesc(desc.dims, desc.data_type, "any") if name in row.free else desc
    if kind == "eltwise":
        del descs["src" if str(parameters["algorithm"]).endswith("for_bwd") else "dst"]
    return Operation(kind, direction, descs, parameters, hint=hint)  # type: ignore[arg-type]


def run_operation(operation: Operation, choose: Chooser, arrays: Mapping[str, Any]) -> dict[str, Memory]:
    """Return all results of an operation and its gradients by the reference engine, in the formats that are chosen."""
    engine = make_engine()
    descs = {name: choose(desc) for name, desc in operation.descs.items()}
    forward = engine.create(replace(operation, descs=descs))
    memories = _run(forward, arrays, {})
    results = {name: memories[name] for name in _results(forward)}
    has_gradient = operation.parameters.get("algorithm") != "round"
    for direction in directions(operation.kind) if has_gradient else ():
        implementation = engine.create(backward(forward, direction))
        written = _run(implementation, arrays, memories)
        results |= {name: written[name] for name in _results(implementation)}
    return results


def _run(implementation: Implementation, arrays: Mapping[str, Any], kept: Mapping[str, Memory]) -> dict[str, Memory]:
    memories = {}
    for name, desc in implementation.descs.items():
        is_kept = name in kept and kept[name].desc == desc
        memories[name] = kept[name] if is_kept else Memory(desc)
        if name in arrays and not is_kept:
            assert desc.data_type is not None
            memories[name] = pack(arrays[name].astype(desc.data_type.dtype), desc)
    implementation.bind(memories)()
    return memories


def _results(implementation: Implementation) -> list[str]:
    operation = implementation.operation
    given = {"mean", "variance"} if "use_global_stats" in operation.parameters.get("flags", ()) else set()  # type: ignore[operator]
    return [name for name in operation.signature.writes if name in implementation.descs and name not in given]
