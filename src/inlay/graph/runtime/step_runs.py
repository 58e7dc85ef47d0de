"""Runs of an instance step by step: `trace_instance` returns every tensor, `profile_instance` the time of each step."""

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np

from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.program import Step
from inlay.graph.runtime.checking import WriteTracker
from inlay.graph.runtime.instance import Instance


@dataclass(frozen=True, slots=True)
class StepTiming:
    """The measured time of a step."""

    step: Step
    """The step."""
    impl: str
    """Name of its implementation."""
    ms: float
    """Median time of the runs in milliseconds."""


def trace_instance(instance: Instance, graph: OpGraph) -> dict[str, Array]:
    """Run an instance step by step, and return a copy of every tensor that is in memory at some time, by name."""
    program, locations = instance.compiled.program, instance.compiled.memory_plan.locations
    tracker = WriteTracker(program, graph, locations)
    copies: dict[str, Array] = {}
    _copy_valid_tensors(copies, tracker, instance, program.inputs.values())
    for prepared, call in instance.calls():
        if call is not None:
            call()
            instance.finish()
        for name in prepared.step.writes.values():
            tracker.write(name)
        _copy_valid_tensors(copies, tracker, instance, prepared.step.writes.values())
    return copies


def _copy_valid_tensors(
    copies: dict[str, Array], tracker: WriteTracker, instance: Instance, written: Iterable[str]
) -> None:
    """Copy the tensors that became complete when the buffers `written` were written, unless they are copied already."""
    locations = instance.compiled.memory_plan.locations
    allocations = {locations[name].allocation for name in written}
    for name, location in locations.items():
        tensor = instance.compiled.program.buffers[name].tensor
        if location.allocation in allocations and tensor not in copies and tracker.find_conflict(name) is None:
            copies[tensor] = instance.copy_out(name)


def profile_instance(instance: Instance, runs: int) -> list[StepTiming]:
    """Return the median time of each step in `runs` runs; each step is waited for."""
    calls = instance.calls()
    for _, call in calls:
        if call is not None:
            call()
    instance.finish()
    times_ns = np.zeros((runs, len(calls)))
    for run in range(runs):
        for k, (_, call) in enumerate(calls):
            begin = perf_counter_ns()
            if call is not None:
                call()
                instance.finish()
            times_ns[run, k] = perf_counter_ns() - begin
    medians = np.median(times_ns, axis=0) / 1e6
    return [StepTiming(one.step, one.impl, float(ms)) for (one, _), ms in zip(calls, medians, strict=True)]
