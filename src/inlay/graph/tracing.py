"""One run step by step: every tensor, or the time of each step."""

from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np

from inlay.graph.checking import Written
from inlay.graph.instance import Instance
from inlay.graph.op import Array, OpGraph
from inlay.graph.program import Step


@dataclass(frozen=True, slots=True)
class Timed:
    """A step and how long it took."""

    step: Step
    """What was done."""
    impl: str
    """How it was computed."""
    ms: float
    """Milliseconds, the median of the runs."""


def trace_instance(instance: Instance, graph: OpGraph) -> dict[str, Array]:
    """Run an instance that was fed, and copy every tensor that has memory at some time, by name."""
    compiled, places = instance.compiled, instance.compiled.laid.places
    state = Written(compiled.program, graph, places)
    found: dict[str, Array] = {}
    _keep(found, state, instance, {places[name].home for name in compiled.program.inputs.values()})
    for prepared, call in instance.calls():
        if call is not None:
            call()
            instance.finish()
        for name in prepared.step.writes.values():
            state.write(name)
        _keep(found, state, instance, {places[name].home for name in prepared.step.writes.values()})
    return found


def profile_instance(instance: Instance, runs: int) -> list[Timed]:
    """The median time of each step in `runs` runs of an instance that was fed, each step waited for."""
    calls = instance.calls()
    for _, call in calls:
        if call is not None:
            call()
    instance.finish()
    taken_ns = np.zeros((runs, len(calls)))
    for run in range(runs):
        for k, (_, call) in enumerate(calls):
            begin = perf_counter_ns()
            if call is not None:
                call()
                instance.finish()
            taken_ns[run, k] = perf_counter_ns() - begin
    medians = np.median(taken_ns, axis=0) / 1e6
    return [Timed(one.step, one.impl, float(ms)) for (one, _), ms in zip(calls, medians, strict=True)]


def _keep(found: dict[str, Array], state: Written, instance: Instance, homes: set[str]) -> None:
    """Copy the tensors in these homes that are whole now and are not yet kept."""
    for name, place in instance.compiled.laid.places.items():
        tensor = instance.compiled.program.buffers[name].tensor
        if place.home in homes and tensor not in found and state.strangers(name) is None:
            found[tensor] = instance.copied(name)
