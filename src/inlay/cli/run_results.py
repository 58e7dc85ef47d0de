"""The results of `inlay run`: run times, and outputs as lines of text or as a JSON document."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from inlay.errors import printable

if TYPE_CHECKING:
    from inlay.graph.planned_program import PlannedProgram
    from inlay.graph.profiling import Profile

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The run times of a session on the same arrays."""

    first_ms: float
    """Time of the first run, which starts threads, in ms."""
    second_ms: float | None
    """Time of the second run, in ms; None if there was none, because the first one was long."""

    def text(self, engine: str) -> str:
        """Return the times as text.

        >>> RunTimes(3.0, 1.5).text("onednn")
        'ran in 1.500 ms with onednn, the first time in 3.000 ms'
        """
        if self.second_ms is None:
            return f"ran in {self.first_ms:.3f} ms with {engine}"
        return f"ran in {self.second_ms:.3f} ms with {engine}, the first time in {self.first_ms:.3f} ms"


def run_document(
    network_plan: "PlannedProgram",
    results: Mapping[str, Array],
    times: RunTimes,
    *,
    notes: Sequence[str],
    file: Path | None,
    profile: "Profile | None",
) -> dict[str, Any]:
    """Return a run as a JSON object: outputs, times, notes, the file of the outputs, and the profile."""
    return {
        "outputs": [output_document(name, array) for name, array in results.items()],
        "file": None if file is None else str(file),
        "ms": times.first_ms if times.second_ms is None else times.second_ms,
        "first_ms": times.first_ms,
        "predicted_ms": network_plan.ms,
        "costs": network_plan.costs,
        "engine": network_plan.engine,
        "threads": network_plan.threads,
        "notes": [*([network_plan.load] if network_plan.load else []), *notes],
        "profile": None if profile is None else profile.figures(),
    }


def output_document(name: str, array: Array) -> dict[str, Any]:
    """Return an output as a JSON object: dims, type, range and mean of the finite values, and greatest scores.

    >>> output_document("y", np.array([[0.25, 0.75]], np.float32))["maximum"]
    0.75
    """
    numbers = array.astype(np.float64).ravel()
    finite = numbers[np.isfinite(numbers)]
    has_numbers = bool(finite.size)
    return {
        "name": name,
        "dims": list(array.shape),
        "data_type": str(array.dtype),
        "minimum": float(finite.min()) if has_numbers else None,
        "maximum": float(finite.max()) if has_numbers else None,
        "mean": float(finite.mean()) if has_numbers else None,
        "nonfinite": numbers.size - finite.size,
        "scores": [
            [{"index": int(index), "score": float(row[index])} for index in top] for row, top in _rows_of_scores(array)
        ],
    }


def _rows_of_scores(array: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the first rows of an output of scores, each with the indices of its greatest entries."""
    width = _width_of_scores(array)
    for row in array.reshape(-1, width)[:_MAX_ROWS] if width else ():
        yield row, np.argsort(-row, kind="stable")[:_TOP_SCORES]


def _width_of_scores(array: Array) -> int:
    """Return the length of the rows of an output of scores; 0 for other outputs."""
    width = int(array.shape[1]) if array.ndim > 1 and array.shape[1] >= _MIN_SCORES else 0
    return width if array.dtype.kind == "f" and array.size == array.shape[0] * width else 0


_MAX_ROWS = 8
"""Maximum number of rows of scores that are printed."""
_TOP_SCORES = 5
"""Number of greatest entries that are printed for a row of scores."""
_MIN_SCORES = 10
"""Minimum number of entries of a row that is treated as scores."""


def summarize_output(name: str, array: Array) -> Iterator[str]:
    """Yield lines on an output: dims, range and mean; then the greatest entries of rows of scores, with indices.

    >>> list(summarize_output("y", np.array([[0.25, 0.75]], np.float32)))
    ['y (1, 2) float32: 0.25, 0.75']
    """
    yield f"{printable(name)} {array.shape} {array.dtype}: {_summarize_values(array)}"
    for number, (row, top) in enumerate(_rows_of_scores(array)):
        yield f"  row {number}: " + ", ".join(f"[{i}] {float(row[i]):.4g}" for i in top)
    if _width_of_scores(array) and len(array) > _MAX_ROWS:
        yield f"  {len(array) - _MAX_ROWS} more rows: -o FILE.npz writes all"


def _summarize_values(array: Array) -> str:
    """Return up to 4 values, or range and mean of the finite values; for truth values, the number that is true."""
    if array.size == 0:
        return "no elements"
    if array.dtype.kind == "b":
        return f"{int(array.sum())} of {array.size} are true"
    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    nonfinite = f", {values.size - finite.size} not finite" if finite.size < values.size else ""
    if not finite.size:
        return nonfinite.removeprefix(", ")
    if values.size <= 4:
        return ", ".join(f"{value:.6g}" for value in values)
    return f"from {finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}{nonfinite}"
