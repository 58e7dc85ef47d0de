"""Events of a profile in the Trace Event Format, which chrome://tracing and Perfetto open.

Source: "Trace Event Format" of the Chromium project: complete events (`"ph": "X"`) with `ts` and `dur` in microseconds,
metadata events (`"ph": "M"`) with the names of process and threads. A profile has three tracks:

    whole run      one event: the median time of a run
    one by one     the steps, each as long as the median of its own time, one after the other
    predicted      the steps, each as long as its prediction; absent if no step has a prediction
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from inlay.files import atomic_write
from inlay.graph.profiling.timings import StepTiming
from inlay.measure.statistics import Spread

_PROCESS = 1  # the only pid
_WHOLE, _STEPS, _PREDICTED = 1, 2, 3  # tids of the tracks
_NAMES = {_WHOLE: "whole run", _STEPS: "steps one by one", _PREDICTED: "steps as predicted"}
_US = 1000.0  # microseconds of a millisecond


def write_trace(path: Path, network: str, timings: Sequence[StepTiming], run: Spread, facts: dict[str, Any]) -> None:
    """Write the events of a profile to a JSON file, completely or not at all.

    Args:
        path: the file.
        network: name of the network.
        timings: the steps in order.
        run: time of the whole run in milliseconds.
        facts: entries of `otherData`.

    Raises:
        FileError: the file cannot be written.
    """
    events = list(trace_events(network, timings, run))
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts}
    data = json.dumps(content, indent=1, allow_nan=False).encode()
    with atomic_write(path) as file:
        file.write(data)


def trace_events(network: str, timings: Sequence[StepTiming], run: Spread) -> Iterator[dict[str, Any]]:
    """Yield the events of a profile; see `write_trace`."""
    has_predictions = any(one.predicted is not None for one in timings)
    yield _name_event("process_name", 0, f"inlay {network}")
    for track, name in _NAMES.items():
        if track != _PREDICTED or has_predictions:
            yield _name_event("thread_name", track, name)
    spread = {"median_ms": run.median, "first_quartile_ms": run.low, "third_quartile_ms": run.high}
    yield _event(_WHOLE, network, "run", 0.0, run.median, spread)
    yield from _chain(_STEPS, timings, [one.ms for one in timings])
    if has_predictions:
        yield from _chain(_PREDICTED, timings, [one.predicted or 0.0 for one in timings])


def _chain(track: int, timings: Sequence[StepTiming], times: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Yield an event for each step, which begins where the one before ends."""
    begin = 0.0
    for one, ms in zip(timings, times, strict=True):
        yield _event(track, one.label, one.step.kind, begin, ms, one.as_json())
        begin += ms


def _event(track: int, name: str, category: str, begin: float, ms: float, facts: dict[str, Any]) -> dict[str, Any]:
    """Return a complete event; `begin` and `ms` are milliseconds."""
    place = {"pid": _PROCESS, "tid": track, "ts": begin * _US, "dur": ms * _US}
    return {"ph": "X", "name": name, "cat": category, **place, "args": facts}


def _name_event(kind: str, track: int, name: str) -> dict[str, Any]:
    """Return the metadata event that names the process or a track."""
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": track, "ts": 0.0, "args": {"name": name}}
