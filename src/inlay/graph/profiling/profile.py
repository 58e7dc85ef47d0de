"""`Profile`: the time of each step of a program, and of its whole run.

profile = session.profile({"data": image})
print(profile)                    the ten rows of equal steps that take the most time
print(profile.table(top=None))    all of them
profile[0].ms                     the first step's milliseconds
profile.save_trace("run.json")    for chrome://tracing and Perfetto
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, overload

from inlay.arguments import integer_or_none
from inlay.errors import InvalidArguments
from inlay.graph.profiling.table import describe_blocks, draw_table, make_rows
from inlay.graph.profiling.timings import StepTiming
from inlay.graph.profiling.trace_events import write_trace
from inlay.graph.program import Program
from inlay.graph.step_groups import step_keys
from inlay.graph.text_layout import count_text, shorten_middle, wrap_text
from inlay.measure.statistics import Spread

TOP = 10
"""Rows of a table unless another number is given."""
_MOST_NAME = 40  # characters of names in a representation


@dataclass(frozen=True, slots=True, repr=False)
class Profile(Sequence[StepTiming]):
    """The steps of a program in the order in which they run, each with its time; and the time of the whole run.

    In the runs in which steps are timed, each is waited for. So the sum of their times is more than the time of a whole
    run, in which steps follow each other at once. Both are measured in turn, in the same rounds.

    >>> import inlay
    >>> import numpy as np
    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy")
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "relu")], "tiny", [x], [y])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    >>> session = inlay.compile(inlay.load(model.SerializeToString()), engine="reference", costs="analytic")
    >>> profile = session.profile({"x": np.ones((2, 2), np.float32)}, runs=3)
    >>> [(one.label, one.step.kind, one.formats, one.ms > 0) for one in profile]
    [('relu', 'eltwise', 'ab', True)]
    >>> print(profile)
    tiny: a run takes ... ms (... to ...); predicted ... ms
    1 step one by one, each waited for: ... ms
    reference, 1 thread, medians of 3 runs
    <BLANKLINE>
      share     ms  predicted  count  step  formats  kernel
    100.0 %  ...          ...      1  relu  ab       numpy:f64
    """

    network: str
    """Name of the network."""
    program: Program
    """The program that ran."""
    timings: tuple[StepTiming, ...]
    """The steps with their times."""
    run: Spread
    """Time of the whole run in milliseconds, without copies of inputs and outputs: median and quartiles."""
    runs: int
    """Number of rounds; each has one whole run, and one run step by step."""
    threads: int
    """Number of threads of the runs."""
    engine: str
    """Name and version of the engine."""
    is_exact: bool = False
    """True if exact kernels ran, because these inputs lead to NaN, infinities or numbers near the largest."""

    @property
    def steps_ms(self) -> float:
        """Sum of the median times of all steps in milliseconds."""
        return math.fsum(one.ms for one in self.timings)

    @property
    def predicted_ms(self) -> float | None:
        """Sum of the predicted times in milliseconds; None if no step has a prediction."""
        known = [one.predicted for one in self.timings if one.predicted is not None]
        return math.fsum(known) if known else None

    def table(self, *, top: int | None = TOP) -> str:
        """Return the profile as text of at most 80 columns.

        A row has all equal steps: of the same kind, formats, implementation, dims and parameters. The rows are sorted
        by their share of the time of all steps; `count` is the number of steps, and times are sums over these.

        Args:
            top: number of rows; None for all.

        Raises:
            InvalidArguments: `top` is neither None nor a whole number from 1 on.
        """
        if top is not None and (integer_or_none(top) or 0) < 1:
            raise InvalidArguments(f"top is {top!r}: give the number of rows, from 1 on, or None for all rows")
        keys = self._keys()
        heading = "\n".join(line for text in self._heading() for line in wrap_text(text))
        blocks = "\n".join(describe_blocks(self.timings, keys))
        return "\n\n".join(filter(None, (heading, draw_table(make_rows(self.timings, keys), top), blocks)))

    def figures(self) -> dict[str, Any]:
        """Return the profile as lists, dicts, numbers and texts, which `json.dumps` accepts. Times are in ms."""
        return {
            "network": self.network,
            "engine": self.engine,
            "threads": self.threads,
            "runs": self.runs,
            "is_exact": self.is_exact,
            "run": {"ms": self.run.median, "low": self.run.low, "high": self.run.high},
            "steps_ms": self.steps_ms,
            "predicted_ms": self.predicted_ms,
            "steps": [one.as_json() for one in self.timings],
        }

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write the profile as a Chrome trace, a JSON file that chrome://tracing and Perfetto open.

        It has a track with the whole run, one with the steps as they were measured one by one, and one with the steps
        as predicted. The file is written completely or not at all.

        Raises:
            FileError: the file cannot be written.
        """
        facts = {name: value for name, value in self.figures().items() if name != "steps"}
        write_trace(Path(path), self.network, self.timings, self.run, facts)

    @overload
    def __getitem__(self, index: int) -> StepTiming: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StepTiming, ...]: ...
    def __getitem__(self, index: int | slice) -> StepTiming | tuple[StepTiming, ...]:
        """Return the timing of a step, or a tuple of several, by index in the order of the run."""
        return self.timings[index]

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.timings)

    def __str__(self) -> str:
        """Return the table with the first ten rows."""
        return self.table()

    def __repr__(self) -> str:
        """Return one line: the network, the times of a run and of its steps, and the slowest step."""
        predicted = "" if self.predicted_ms is None else f", {self.predicted_ms:.3f} ms predicted"
        run = f"{shorten_middle(self.network, _MOST_NAME)}: a run {self.run.median:.3f} ms{predicted}"
        steps = f"{count_text(len(self), 'step')} one by one {self.steps_ms:.3f} ms"
        slowest = max(self.timings, key=lambda one: one.ms, default=None)
        name = "" if slowest is None else shorten_middle(slowest.label, _MOST_NAME)
        last = "" if slowest is None else f"; slowest {name}, {slowest.ms:.3f} ms"
        return f"<Profile of {run}; {steps}{last}>"

    def _keys(self) -> list[Hashable]:
        """Return a key for each step, equal for equal steps that ran by the same implementation."""
        keys = step_keys(self.program)
        return [(key, one.impl) for key, one in zip(keys, self.timings, strict=True)]

    def _heading(self) -> list[str]:
        """Return the lines above the table: the times of the whole run and of its steps."""
        run = f"{self.run.median:.3f} ms ({self.run.low:.3f} to {self.run.high:.3f})"
        predicted = "" if self.predicted_ms is None else f"; predicted {self.predicted_ms:.3f} ms"
        lines = [
            f"{self.network}: a run takes {run}{predicted}",
            f"{count_text(len(self), 'step')} one by one, each waited for: {self.steps_ms:.3f} ms",
            f"{self.engine}, {count_text(self.threads, 'thread')}, medians of {count_text(self.runs, 'run')}",
        ]
        exact = "exact kernels ran: these inputs lead to NaN, infinities or numbers near the largest"
        return [*lines, exact] if self.is_exact else lines
