"""`Program`: what a session executes, a flat list of steps with every format settled, and the buffers they use.

A buffer is one tensor in one format. A tensor that is kept in two formats has two buffers, with a reorder between. A
buffer that is a part or another description of another one, its home, lies in the home's bytes: the source of a
concatenation without a copy, a transpose that costs nothing, a sum in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from inlay.descriptor import MemoryDesc
from inlay.graph.costs.kernel import Source
from inlay.graph.equality import Compared
from inlay.graph.network import Node
from inlay.graph.op import Array
from inlay.primitives.operation import Operation


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
    without: float | None = None
    """Of a reorder: by how many milliseconds the best plan without it is slower."""


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
