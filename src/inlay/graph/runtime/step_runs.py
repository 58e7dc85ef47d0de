"""Runs of an instance step by step: `trace_instance` returns every tensor, `profile_instance` the time of each step."""

import math
from collections.abc import Iterable, Mapping
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.profiling import Profile, StepTiming
from inlay.graph.runtime.arguments import InputValue
from inlay.graph.runtime.checking import WriteTracker
from inlay.graph.runtime.instance import Instance
from inlay.graph.step_texts import StepTexts
from inlay.measure.statistics import Spread, spread


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


def profile_instance(
    instance: Instance, graph: OpGraph, inputs: Mapping[str, InputValue], *, runs: int, threads: int, is_exact: bool
) -> Profile:
    """Return the times of whole runs and of each step: in each round there is a whole run, then one step by step.

    Args:
        instance: the program, on its present number of threads.
        graph: the graph that the program computes.
        inputs: the checked inputs.
        runs: number of rounds, after an untimed one.
        threads: the number of threads, for the profile.
        is_exact: whether the program consists of exact kernels, for the profile.
    """
    _time_steps(instance, inputs)
    whole, steps = [], []
    for _ in range(runs):
        whole.append(_time_whole_run(instance, inputs))
        steps.append(_time_steps(instance, inputs))
    compiled = instance.compiled
    times = [spread(column) for column in (np.array(steps) / 1e6).T.tolist()]
    return Profile(
        network=graph.name,
        program=compiled.program,
        timings=_make_timings(instance, graph, times),
        run=spread(whole).times(1e-6),
        runs=runs,
        threads=threads,
        engine=compiled.engine.name,
        is_exact=is_exact,
    )


def _make_timings(instance: Instance, graph: OpGraph, times: list[Spread]) -> tuple[StepTiming, ...]:
    """Return the timing of each step, from its milliseconds."""
    texts, total = StepTexts(instance.compiled.program, graph), math.fsum(time.median for time in times)
    return tuple(
        StepTiming(
            prepared.step,
            texts.label(prepared.step),
            prepared.impl,
            texts.formats(prepared.step),
            time,
            time.median / total if total else 0.0,
        )
        for prepared, time in zip(instance.compiled.prepared, times, strict=True)
    )


def _time_whole_run(instance: Instance, inputs: Mapping[str, InputValue]) -> int:
    """Run all steps, and return the nanoseconds; inputs are copied before."""
    instance.feed(inputs)  # the arena may hold other tensors in the bytes of an input that no later step reads
    begin = perf_counter_ns()
    instance.run()
    return perf_counter_ns() - begin


def _time_steps(instance: Instance, inputs: Mapping[str, InputValue]) -> NDArray[np.float64]:
    """Run step by step, wait for each, and return the nanoseconds of each; inputs are copied before."""
    instance.feed(inputs)
    calls = instance.calls()
    times = np.zeros(len(calls))
    for k, (_, call) in enumerate(calls):
        begin = perf_counter_ns()
        if call is not None:
            call()
            instance.finish()
        times[k] = perf_counter_ns() - begin
    return times
