"""`StepTiming`: the measured time of a step, its prediction, a short label, and its formats in familiar tags.

step                              formats
convolution of an image           nchw -> nChw16c
inner product                     ab
NumPy, of an array without a tag  array -> ab
"""

import re
from dataclasses import dataclass
from typing import Any

from inlay.graph.axis_roles import familiar_tag, find_axis_roles
from inlay.graph.op_graph import OpGraph
from inlay.graph.program import Program, Step
from inlay.measure.statistics import Spread

_PART_NUMBER = re.compile(r":\d+$")


@dataclass(frozen=True, slots=True, repr=False)
class StepTiming:
    """The measured time of a step beside its prediction."""

    step: Step
    """The step."""
    label: str
    """Short name: that of the first operation, and what the others do, such as `conv1 +relu`."""
    impl: str
    """Name of the implementation that ran."""
    formats: str
    """Formats of the tensors that it reads and writes, such as `nchw -> nChw16c`; one if all are equal."""
    time: Spread
    """Measured time in milliseconds: median and quartiles of the runs."""
    share: float
    """Share of the sum of the medians of all steps, from 0 to 1."""

    @property
    def ms(self) -> float:
        """Median of the measured times in milliseconds."""
        return self.time.median

    @property
    def predicted(self) -> float | None:
        """Predicted time in milliseconds; None for a step of a program that was not planned by costs."""
        return self.step.ms or None

    def as_json(self) -> dict[str, Any]:
        """Return the figures of the step, by name; times are in milliseconds."""
        return {
            "name": self.step.name,
            "label": self.label,
            "kind": self.step.kind,
            "ops": list(self.step.ops),
            "formats": self.formats,
            "impl": self.impl,
            "ms": self.ms,
            "low": self.time.low,
            "high": self.time.high,
            "predicted": self.predicted,
            "source": self.step.source,
            "share": self.share,
            "nbytes": self.step.nbytes,
        }

    def __repr__(self) -> str:
        """Return name, kind, formats, and both times."""
        predicted = "" if self.predicted is None else f", predicted {self.predicted:.3f} ms"
        return f"<{self.label}: {self.step.kind}, {self.formats}, {self.impl}; {self.ms:.3f} ms{predicted}>"


class StepTexts:
    """Short texts on the steps of a program: labels, and formats in the letters of the axes' roles."""

    def __init__(self, program: Program, graph: OpGraph) -> None:
        """Find the roles of the axes of all tensors."""
        self._program, self._graph, self._roles = program, graph, find_axis_roles(graph)
        self._ops = {op.name: op for op in graph.ops}

    def label(self, step: Step) -> str:
        """Return the name of a step's first operation, and what the others do; a reorder has that of its tensor."""
        if step.ops:
            # The first of the operations that a node became has its name, with a number.
            return " +".join((_PART_NUMBER.sub("", step.ops[0]), *map(self._describe_op, step.ops[1:])))
        is_reorder = step.kind == "reorder"
        return f"reorder of {self._program.buffers[step.reads['src']].tensor}" if is_reorder else step.name

    def _describe_op(self, name: str) -> str:
        """Return the algorithm or the kind of an operation; its name if the graph does not have it."""
        op = self._ops.get(name)
        return name if op is None else str(op.parameters.get("algorithm", op.kind)).removesuffix("_erf")

    def formats(self, step: Step) -> str:
        """Return the formats that a step reads and writes, each once; only one if all are equal."""
        reads, writes = (tuple(dict.fromkeys(map(self._tag, names.values()))) for names in (step.reads, step.writes))
        if reads == writes and len(reads) == 1:
            return reads[0]
        return f"{', '.join(reads) or 'nothing'} -> {', '.join(writes)}"

    def _tag(self, name: str) -> str:
        """Return the familiar tag of a buffer; `array` where no descriptor says how a run stores it."""
        buffer = self._program.buffers[name]
        if buffer.desc is None or self._graph.tensors[buffer.tensor].is_dynamic:
            return "array"
        return familiar_tag(buffer.desc.tag, self._roles.get(buffer.tensor)) if buffer.desc.tag else "strided"
