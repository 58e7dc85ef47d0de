"""Profiles with times of the test's own, and lines of tables that fit."""

from collections.abc import Sequence

from inlay.graph.op_graph import OpGraph
from inlay.graph.profiling import Profile, StepTiming
from inlay.graph.program import Program
from inlay.graph.step_texts import StepTexts
from inlay.measure.statistics import Spread


def profile_of(
    program: Program,
    graph: OpGraph,
    times: Sequence[float | Spread],
    run: float | None = None,
    *,
    is_exact: bool = False,
) -> Profile:
    """The profile of a program whose steps take these milliseconds; a number is a time without any spread."""
    spreads = [time if isinstance(time, Spread) else Spread(time, time, time) for time in times]
    texts = StepTexts(program, graph)
    total = sum(one.median for one in spreads)
    timings = tuple(
        StepTiming(step, texts.label(step), step.impl, texts.formats(step), time, time.median / total)
        for step, time in zip(program.steps, spreads, strict=True)
    )
    whole = total if run is None else run
    return Profile(graph.name, program, timings, Spread(whole, whole, whole), 5, 2, "engine 1.0", is_exact)


def require_narrow(text: str) -> None:
    """No line is over 80 characters, or ends with a space."""
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 80 or line != line.rstrip()] == []
