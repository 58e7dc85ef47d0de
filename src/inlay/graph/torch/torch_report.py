"""`TorchReport`: which part of a module runs where, and why.

print(inlay.from_torch(module, (x,)).report())     of one module
print(inlay.torch_report())                        of all graphs of torch.compile(..., backend="inlay")
"""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import fill

from inlay.graph.planned_program import PlannedProgram

INLAY, PYTORCH = "Inlay", "PyTorch"
"""Names of what runs a part."""
_WIDTH = 80  # columns


@dataclass(frozen=True, slots=True)
class TorchPart:
    """A part of a graph, and what runs it."""

    runs_in: str
    """`Inlay` or `PyTorch`."""
    operators: int
    """Number of operators; 0 where PyTorch runs a whole shape or module, whose operators are not counted."""
    reason: str = ""
    """Why PyTorch runs it; empty for Inlay."""
    plans: tuple[PlannedProgram, ...] = ()
    """The plans of Inlay, one for each shape of the inputs that is kept."""

    def __str__(self) -> str:
        """Return one line, or several if the reason is long."""
        count = f"{self.operators} operator{'s' * (self.operators != 1)}" if self.operators else "all"
        text = f"  {self.runs_in:<8} {count}"
        if self.reason:
            text += f": {self.reason}"
        elif self.plans:
            text += f", planned for {'; '.join(map(_describe_plan, self.plans))}"
        return fill(text, _WIDTH, subsequent_indent=" " * 11, break_long_words=False)


@dataclass(frozen=True, slots=True)
class TorchGraph:
    """A graph, and its parts."""

    name: str
    """Name of the module or function that the graph is of."""
    parts: tuple[TorchPart, ...]
    """The parts: first those of Inlay, then what PyTorch runs; empty before the first call."""
    reloads: int = 0
    """Number of times that the weights were read again, because they had changed."""

    def __str__(self) -> str:
        """Return a heading and a line for each part."""
        reloads = f"; weights read again {self.reloads} times" if self.reloads else ""
        heading = f"{self.name}{reloads}" if self.parts else f"{self.name}: not called yet"
        return "\n".join((heading, *map(str, self.parts)))


@dataclass(frozen=True, slots=True)
class TorchReport:
    """The graphs of a module, or of all modules, and what runs each part of them."""

    graphs: tuple[TorchGraph, ...]
    """The graphs, in the order in which they were compiled."""
    notes: tuple[str, ...] = ()
    """Why there are several graphs: what PyTorch says about graph breaks."""

    @property
    def parts(self) -> tuple[TorchPart, ...]:
        """The parts of all graphs."""
        return tuple(part for graph in self.graphs for part in graph.parts)

    @property
    def refusals(self) -> tuple[TorchPart, ...]:
        """The parts that PyTorch runs."""
        return tuple(part for part in self.parts if part.runs_in == PYTORCH)

    def __str__(self) -> str:
        """Return the parts of each graph, in up to 80 columns, and the notes."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        """Yield the parts of the text."""
        count = len(self.graphs)
        yield f"{count} graph{'s' * (count != 1)}"
        yield from map(str, self.graphs)
        for note in self.notes:
            yield fill(note, _WIDTH, subsequent_indent="  ", break_long_words=False)


def _describe_plan(plan: PlannedProgram) -> str:
    """Return the dims and the predicted time of a plan."""
    dims = ", ".join(str(tensor.dims) for tensor in plan.inputs)
    return f"{dims}: {plan.ms:.3g} ms"
