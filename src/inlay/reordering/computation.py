"""What is computed on the way, and where the values for it lie: attributes as the compiler sees them.

The values of one attribute are an array of their own. Which of them an element takes is a sum over the loops of the
nest, as its place in the source is; so each distinct way to spread values is a count of the nest, beside those that
have bounds, and costs what one more stride costs. Groups are one more digit: of 96 rows in groups of 32, the loop over
rows is split in 3 times 32, and only the outer one moves on.

>>> from inlay.reordering.attributes import Scales
>>> place_of(Scales(mask=0b11, groups=(32, 1)), (96, 16))
Place(strides=(16, 1), groups=(32, 1))

In registers, a value is the same for all lanes, or lies in a pattern that is known when the code is made (one for each
lane, or each for several), or is gathered lane by lane. The formula runs where elements are in the working type
anyway: after the load if the destination is narrower, else before the store; a sum always before the store.
"""

from dataclasses import dataclass
from typing import Literal

from inlay.data_type import DataType
from inlay.layout import Dims
from inlay.reordering.attributes import Attributes, Entry, Scales

STEPS = ("src_zero_points", "src_scales", "factor", "sum", "dst_scales", "dst_zero_points", "chance")
"""What takes a value, in the order of the formula; `factor` is the one of `Extras.scale_adjust`, `chance` stochastic
rounding, which takes the row-major index of each element."""


@dataclass(frozen=True, slots=True)
class Place:
    """How the values of an attribute spread over a tensor."""

    strides: tuple[int, ...]
    """For each axis, values from one group of coordinates to the next; 0 where all share one."""
    groups: tuple[int, ...]
    """For each axis, how many coordinates are a group."""


def place_of(entry: Entry, dims: Dims) -> Place | None:
    """How the values of an attribute spread over a tensor of these dims; None where there is but one."""
    shape = entry.shape(dims)
    strides = []
    step = 1
    for count in reversed(shape):
        strides.append(step if count > 1 else 0)
        step *= count
    if not any(strides):
        return None
    groups = tuple(n // count if count > 1 else 1 for n, count in zip(dims, shape, strict=True))
    return Place(tuple(reversed(strides)), groups)


def step_places(attributes: Attributes, factor: float, dims: Dims) -> dict[str, Place | None]:
    """How values spread, for each step of the formula that takes some, in their order."""
    found: dict[str, Place | None] = {name: place_of(attributes.entry(name), dims) for name in attributes.names}
    if attributes.sum is not None:
        found["sum"] = None
    if factor != 1:
        found["factor"] = None
    if attributes.rounding_mode == "stochastic":
        found["chance"] = place_of(Scales((1 << len(dims)) - 1), dims)
    return {step: found[step] for step in STEPS if step in found}


def working_type(src: DataType, dst: DataType, attributes: Attributes, factor: float) -> str:
    """The name of the type in which elements are computed on (decision 0007)."""
    names = {src.name, dst.name}
    is_exact = "s32" in names and src.kind != "float" and dst.kind != "float"
    is_scaled = attributes.scales or factor != 1
    return "f64" if 64 in (src.bits, dst.bits) or (is_exact and not is_scaled) else "f32"


@dataclass(frozen=True, slots=True)
class Value:
    """One step of the formula."""

    step: str
    """Which."""
    count: int | None
    """The count of the nest that says which value an element takes; None where all take the same."""
    lanes: tuple[int, ...] | None
    """For each lane, which value after that of its register; None where the table says it."""


@dataclass(frozen=True, slots=True)
class Computation:
    """What the code of a kernel computes between load and store."""

    working: str
    """Name of the type in which it does."""
    side: Literal["src", "dst"]
    """Where: in the order in which elements are loaded, or in that in which they are stored."""
    values: tuple[Value, ...]
    """The steps, in their order; value number k is at the address that lies k + 1 words before the table."""
    counts: int
    """How many counts of the nest say where values lie: the first ones."""

    @property
    def sums(self) -> bool:
        """Whether the old elements of the destination are read."""
        return any(value.step == "sum" for value in self.values)
