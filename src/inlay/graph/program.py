"""`Program`: the flat list of steps that a session executes, in concrete formats, and the buffers that they use.

A buffer is one tensor in one format. A tensor in two formats has two buffers, and a reorder between them. A buffer
whose base is another buffer is stored in the bytes of its base: a source of a concatenation without a copy, a transpose
at no cost, the destination of a sum in place.

`NumpyShare` is the number of steps that NumPy computes for want of a kernel, and their share of the time;
`FallbackShare` is the same for ONNX Runtime.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.graph.costs.estimates import Source
from inlay.graph.network import Node, StructuralEquality, Subgraph
from inlay.graph.op_graph import Array
from inlay.primitives.engine import Operation


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor in one format."""

    name: str
    """Name, unique in the program: the tensor's name for its first buffer."""
    tensor: str
    """Name of the tensor whose elements it holds."""
    desc: MemoryDesc | None
    """Format; None for a dense row-major array of a type that oneDNN lacks, which only NumPy uses."""
    base: str
    """Name of the buffer in whose bytes it is stored; its own name if it has memory of its own."""
    offset: int = 0
    """Offset in the base, in bytes."""


class Alternative:
    """The cost that the best plan without a step would add, computed when it is first read."""

    __slots__ = ("_compute", "_ms")

    def __init__(self, compute: Callable[[], float | None]) -> None:
        """Call `compute` once, when `ms` is first read."""
        self._compute: Callable[[], float | None] | None = compute
        self._ms: float | None = None

    @property
    def ms(self) -> float | None:
        """Milliseconds, at least 0; None where there is no plan without the step."""
        if self._compute is not None:
            self._ms, self._compute = self._compute(), None
        return self._ms

    @classmethod
    def known(cls, ms: float | None) -> "Alternative":
        """Return an alternative whose cost is known.

        >>> Alternative.known(0.25).ms
        0.25
        """
        return cls(lambda: ms)

    def __reduce__(self) -> tuple[Callable[[float | None], "Alternative"], tuple[float | None]]:
        """Pickle the milliseconds, since the function that computes them holds state of one process."""
        return Alternative.known, (self.ms,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Step(StructuralEquality):
    """One call: a primitive, a reorder, or a reference that ONNX Runtime or NumPy computes."""

    name: str
    """Name, unique in the program: that of its operation, with a suffix where an operation became several steps."""
    kind: str
    """A kind of primitive, or `reorder`, or `reference`."""
    reads: Mapping[str, str]
    """Buffer of each argument that is read.

    A step with the post-operation `Sum` reads the old destination as `sum`, a buffer with the same memory as `dst`.
    """
    writes: Mapping[str, str]
    """Buffer of each argument that is written."""
    operation: Operation | None = None
    """The engine's operation, in which no activation is `any`; None for a reference.

    The operation of a reorder has the arguments src and dst.
    """
    constants: Mapping[str, Array] = field(default_factory=dict)
    """Array of each constant argument; for a reference, by the names of the node's inputs.

    A constant is packed once, in the format that the implementation chooses.
    """
    node: Node | None = None
    """For a reference: the node that NumPy computes, or the `Subgraph` that ONNX Runtime computes."""
    ops: tuple[str, ...] = ()
    """Names of the operations that it computes: several with post-operations, none for a reorder between
    formats of one tensor."""
    impl: str = ""
    """Name of the implementation that the plan assumes; empty if no engine was asked."""
    ms: float = 0.0
    """Predicted time in milliseconds."""
    nbytes: int = 0
    """Bytes that it must read and write, weights included."""
    why: str = ""
    """For a reorder: the steps that need it. For a reference: the reasons why no primitive, and perhaps why not ONNX
    Runtime, computes it."""
    source: Source = "modelled"
    """Origin of `ms`: measured, scaled, probed or modelled (see `KernelEstimate.source`)."""
    alternative: Alternative | None = field(default=None, repr=False, compare=False)
    """For a reorder in a plan that is proven optimal: the cost that the best plan without it would add."""

    @property
    def without(self) -> float | None:
        """For a reorder: the milliseconds that the best plan without it would add, computed at the first access.

        None where every plan has the reorder, or elimination of all plans would need too large a table; or where
        `alternative` is None: for a copy into a concatenation, and in a plan that was not found by elimination.
        """
        return None if self.alternative is None else self.alternative.ms


@dataclass(frozen=True, slots=True)
class Program:
    """The steps in the order in which they run, and their buffers."""

    steps: tuple[Step, ...]
    """The steps in order."""
    buffers: Mapping[str, Buffer]
    """All buffers by name."""
    inputs: Mapping[str, str]
    """Buffer of each input, in a plain format; a run copies the input into it or reads the caller's memory instead."""
    outputs: Mapping[str, str]
    """Buffer of each output, in a plain format."""
    states: Mapping[str, str] = field(default_factory=dict)
    """Buffer of each input that is a state of decoding, by name of the input; see `graph.states`."""


@dataclass(frozen=True, slots=True)
class NumpyShare:
    """The steps that NumPy computes, and their share of the time.

    >>> print(NumpyShare(2, 61, 0.07, "predicted"))
    NumPy computes 2 of 61 steps, 7 % of the predicted time
    """

    count: int
    """Number of steps that NumPy computes."""
    steps: int
    """Number of all steps."""
    share: float
    """Share of the time of all steps, from 0 to 1."""
    how: str
    """Origin of the times: `predicted` or `measured`."""
    computer: ClassVar[str] = "NumPy"
    """Name of what computes the steps."""

    def __str__(self) -> str:
        """Return the counts and the share as a clause."""
        percent = f"{self.share:.0%}".replace("%", " %")
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        return f"{self.computer} computes {self.count} of {steps}, {percent} of the {self.how} time"


def numpy_share(steps: Iterable[tuple[Step, str, float]], how: str) -> NumpyShare:
    """Return NumPy's share of these steps, each given with the name of its implementation and its milliseconds."""
    known = [(_is_numpy(step, impl), ms) for step, impl, ms in steps]
    return NumpyShare(*_share_of(known), how)


class FallbackShare(NumpyShare):
    """The steps that ONNX Runtime computes, and their share of the time.

    >>> print(FallbackShare(2, 61, 0.07, "predicted"))
    ONNX Runtime computes 2 of 61 steps, 7 % of the predicted time
    """

    __slots__ = ()
    computer: ClassVar[str] = "ONNX Runtime"


def fallback_share(steps: Iterable[tuple[Step, str, float]], how: str) -> FallbackShare:
    """Return ONNX Runtime's share of these steps; see `numpy_share`."""
    return FallbackShare(*_share_of([(isinstance(step.node, Subgraph), ms) for step, _, ms in steps]), how)


def reference_impl(node: Node | None) -> str:
    """Return the name of the implementation of a reference: `onnxruntime` for a subgraph, `numpy` for a node."""
    return "onnxruntime" if isinstance(node, Subgraph) else "numpy"


def _is_numpy(step: Step, impl: str) -> bool:
    """Return whether NumPy computes a step by this implementation."""
    is_reference = step.kind == "reference" and not isinstance(step.node, Subgraph)
    return is_reference or impl in ("numpy", "reference")


def _share_of(steps: Sequence[tuple[bool, float]]) -> tuple[int, int, float]:
    """Return the number of the chosen steps, of all steps, and the chosen ones' share of the milliseconds."""
    total = sum(ms for _, ms in steps)
    spent = sum(ms for is_chosen, ms in steps if is_chosen)
    return sum(is_chosen for is_chosen, _ in steps), len(steps), spent / total if total else 0.0
