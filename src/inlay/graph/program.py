"""`Program`: what a session executes, a flat list of steps with every format chosen, and the buffers they use.

A buffer is one tensor in one format. A tensor that is kept in two formats has two buffers, with a reorder between. A
buffer that is a part or another description of another one, its home, lies in the home's bytes: the source of a
concatenation without a copy, a transpose that costs nothing, a sum in place.

`NumpyShare` says how many steps NumPy computes, for want of a kernel.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from inlay.descriptor import MemoryDesc
from inlay.graph.costs.kernel import Source
from inlay.graph.network import Compared, Node
from inlay.graph.op_graph import Array
from inlay.primitives.engine import Operation


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor in one format."""

    name: str
    """Unique in the program: the tensor's name where the tensor has one buffer."""
    tensor: str
    """Whose elements it holds."""
    desc: MemoryDesc | None
    """How they lie; None for an array of a type that oneDNN lacks, dense in row-major order, which only NumPy reads."""
    home: str
    """The buffer whose bytes it lies in: its own name if it has its own."""
    offset: int = 0
    """Bytes from the beginning of its home."""


class Alternative:
    """What the best plan without a step takes more, computed when it is first read."""

    __slots__ = ("_compute", "_ms")

    def __init__(self, compute: Callable[[], float | None]) -> None:
        """Call `compute` once, when `ms` is read."""
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
        """One that takes so much more.

        >>> Alternative.known(0.25).ms
        0.25
        """
        return cls(lambda: ms)

    def __reduce__(self) -> tuple[Callable[[float | None], "Alternative"], tuple[float | None]]:
        """Pickle the milliseconds: what computes them belongs to one process."""
        return Alternative.known, (self.ms,)


@dataclass(frozen=True, slots=True, eq=False)
class Step(Compared):
    """One call: a primitive, a reorder by Inlay, or a node that NumPy computes."""

    name: str
    """Unique in the program: the operation's, with a suffix where that became several."""
    kind: str
    """A kind of primitive, reorder, or reference."""
    reads: Mapping[str, str]
    """Argument to buffer. A post-operation that adds the old destination reads it as `sum`, a buffer with the same home
    and bytes as `dst`."""
    writes: Mapping[str, str]
    """Argument to buffer."""
    operation: Operation | None = None
    """What the engine is asked, no format of an activation `any`; None for a reference. A reorder's has src and dst."""
    constants: Mapping[str, Array] = field(default_factory=dict)
    """Argument to array, laid out once as the implementation needs it; a reference's by the names of its inputs."""
    node: Node | None = None
    """Of a reference: what NumPy computes."""
    ops: tuple[str, ...] = ()
    """Names of the operations that it stands for: several where post-operations are fused, none for a reorder."""
    impl: str = ""
    """How the engine computes it, as the plan was told; empty if no engine was asked."""
    ms: float = 0.0
    """What it was predicted to take, in milliseconds."""
    nbytes: int = 0
    """Bytes it must read and write, weights included."""
    why: str = ""
    """Of a reorder: who needs it. Of a reference: what has no primitive."""
    source: Source = "modelled"
    """How `ms` is known: measured, now or earlier; or estimated: scaled, probed, modelled (see `Kernel.source`)."""
    alternative: Alternative | None = field(default=None, repr=False, compare=False)
    """Of a reorder in a plan that is known to be the least: what the best plan without it takes more."""

    @property
    def without(self) -> float | None:
        """Of a reorder: by how many milliseconds the best plan without it is slower, computed at the first call.

        None where every plan has it, or where `alternative` is None: of a copy into a concatenation, and in a plan that
        was not found by elimination.
        """
        return None if self.alternative is None else self.alternative.ms


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in the order in which they run."""

    steps: tuple[Step, ...]
    """What is executed."""
    buffers: Mapping[str, Buffer]
    """Every buffer, by name."""
    inputs: Mapping[str, str]
    """Tensor that a run is given to the buffer it is copied into or read from, in a plain dense format."""
    outputs: Mapping[str, str]
    """Tensor that a run answers to its buffer, in a plain dense format."""


@dataclass(frozen=True, slots=True)
class NumpyShare:
    """Steps that NumPy computes, among all.

    >>> print(NumpyShare(2, 61, 0.07, "predicted"))
    NumPy computes 2 of 61 steps, 7 % of the predicted time
    """

    count: int
    """Steps that NumPy computes."""
    steps: int
    """All steps."""
    share: float
    """Of the time of all steps, from 0 to 1."""
    how: str
    """How the time is known: predicted or measured."""

    def __str__(self) -> str:
        """In a clause."""
        percent = f"{self.share:.0%}".replace("%", " %")
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        return f"NumPy computes {self.count} of {steps}, {percent} of the {self.how} time"


def numpy_share(steps: Iterable[tuple[Step, str, float]], how: str) -> NumpyShare:
    """The share of NumPy in these steps, each with its implementation and its milliseconds."""
    known = [(step.kind == "reference" or impl in ("numpy", "reference"), ms) for step, impl, ms in steps]
    total = sum(ms for _, ms in known)
    spent = sum(ms for is_numpy, ms in known if is_numpy)
    return NumpyShare(sum(is_numpy for is_numpy, _ in known), len(known), spent / total if total else 0.0, how)
