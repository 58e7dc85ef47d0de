"""Reorders with attributes, ready to be called: each call brings the values.

Compiled code finds values through words that lie before its table. A call makes a copy of the table with the addresses
of its own arrays before it, so calls from several threads do not meet. The arrays are in the working type, and as long
as the tiles reach: what a tile computes beyond the tensor is thrown away, but it must be readable.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.reordering.attributes import Attributes
from inlay.reordering.compiled import CompiledReorder, compile_reorder
from inlay.reordering.computation import Computation
from inlay.reordering.operands import Operands
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.schedule import Schedule
from inlay.reordering.value_lanes import reaches

_SPARE = 64
"""Values after the last: a register of them is loaded whole."""


@dataclass(frozen=True, slots=True)
class ComputedReorder:
    """A reorder with attributes, as often as wanted and from several threads at once."""

    compiled: CompiledReorder
    """The code, which lacks its values."""
    sizes: tuple[int, ...]
    """For each step of the formula, how many values its array has to have."""

    def run(self, src_address: int, dst_address: int, values: Operands, seed: int = 0) -> None:
        """Compute the tensor from the buffer at one address to the one at the other, as `CompiledReorder.run` does.

        `values` are those of each attribute, as `operands` gives them; `seed` is that of stochastic rounding.
        """
        table, kernel = self.compiled.table, self.compiled.kernel
        if table is None or kernel is None:
            return
        if kernel.computation is None:
            self.compiled.run(src_address, dst_address)
            return
        arrays = value_arrays(self.compiled.problem, kernel.computation, self.sizes, values)
        # Chance is the last step; in place of an address it has the seed.
        addresses = [array.__array_interface__["data"][0] for array in reversed(arrays)]
        addresses[:0] = [seed] * (len(kernel.computation.values) - len(arrays))
        words = np.concatenate([np.array(addresses, np.int64), table.words])
        start: int = words.__array_interface__["data"][0] + 8 * len(addresses)
        self.compiled.run(src_address, dst_address, table_address=start)

    def explain(self, target: str | None = None) -> str:
        """Every stage in words, and what bounds it, on this machine or on the one that is called `target`.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        return self.compiled.explain(target)

    def assembly(self, target: str | None = None) -> str:
        """The assembly of the kernel on this machine, or on the one that is called `target`.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        return self.compiled.assembly(target)


def value_arrays(
    problem: ReorderProblem, computation: Computation, sizes: tuple[int, ...], values: Operands
) -> list[npt.NDArray[np.floating]]:
    """For each step of the formula but chance, the array of so many values that compiled code reads."""
    number = np.float64 if computation.working == "f64" else np.float32
    given = {**values, "sum": problem.attributes.sum, "factor": problem.factor}
    steps = [value.step for value in computation.values]
    return [_array(given[step], number, size) for step, size in zip(steps, sizes, strict=True) if step != "chance"]


def value_counts(problem: ReorderProblem, plan: Schedule, computation: Computation) -> tuple[int, ...]:
    """For each step of the formula, how many values its array has to have: as many as the tiles of `plan` reach."""
    furthest = reaches(problem, plan)
    return tuple(_SPARE + (0 if value.count is None else furthest[value.count]) + 1 for value in computation.values)


def _array(values: object, number: type[np.floating], size: int) -> npt.NDArray[np.floating]:
    array = np.ones(size, number)
    given = np.asarray(values)
    array[: given.size] = given.astype(number).ravel()
    return array


def compute_reorder(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes, factor: float = 1.0) -> ComputedReorder:
    """The reorder with attributes from memory described by `src` to memory described by `dst`.

    Raises:
        InvalidArguments: as `compile_reorder`.
        Unimplemented: as `compile_reorder`; or groups cut through blocks.
    """
    compiled = compile_reorder(src, dst, attributes, factor)
    if compiled.schedule is None or compiled.kernel is None or compiled.kernel.computation is None:
        return ComputedReorder(compiled, ())
    sizes = value_counts(compiled.problem, compiled.schedule, compiled.kernel.computation)
    return ComputedReorder(compiled, sizes)
