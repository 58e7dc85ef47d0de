"""Reorders with attributes, ready to be called: each call brings the values.

Compiled code finds values through words that lie before its table. A call makes one block of memory of its own,

    addresses of values | table | values of one step | values of the next ...

so calls from several threads do not meet. Values are in the working type, and as many as the tiles reach: what a tile
computes beyond the tensor is thrown away, but it must be readable.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.reordering.attributes import Attributes
from inlay.reordering.compiled import CompiledReorder, Plan, compile_reorder
from inlay.reordering.kernel import Words
from inlay.reordering.operands import Operands
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.value_lanes import reaches

_SPARE = 64
"""Values after the last: a register of them is loaded whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What calls copy."""

    words: Words
    """The block, with 1 for every value that is not set."""
    table: int
    """The word at which the table begins: so many addresses lie before it."""
    places: tuple[tuple[str, int], ...]
    """For each step with values, its name and the word at which they begin."""
    number: type[np.floating]
    """The working type."""
    is_seeded: bool
    """Whether the first word is the seed."""
    after: Words
    """For each address, bytes from the start of the block to what is there."""

    def fill(self, words: Words, base: int, values: Operands, seed: int) -> None:
        """Set what a call brings in a copy of the block that lies, for the code that reads it, at address `base`."""
        words[: self.table] = self.after + base
        if self.is_seeded:
            words[0] = seed
        numbers = words.view(self.number)
        per_word = 8 // numbers.itemsize
        for step, at in self.places:
            given = values.get(step)
            if given is not None:
                numbers[at * per_word : at * per_word + given.size] = given.ravel()


@dataclass(frozen=True, slots=True)
class ComputedReorder:
    """A reorder with attributes, as often as wanted and from several threads at once."""

    compiled: CompiledReorder
    """The code, which lacks its values."""
    block: Block | None
    """What it is given with each call; None where it computes nothing."""

    @property
    def problem(self) -> ReorderProblem:
        """What is moved and computed."""
        return self.compiled.problem

    def run(self, src_address: int, dst_address: int, values: Operands, seed: int = 0) -> None:
        """Compute the tensor from the buffer at one address to the one at the other, as `CompiledReorder.run` does.

        `values` are those of each attribute, as `operands` gives them; `seed` is that of stochastic rounding.
        """
        block = self.block
        if block is None:
            self.compiled.run(src_address, dst_address)
            return
        words = block.words.copy()
        base: int = words.__array_interface__["data"][0]
        block.fill(words, base, values, seed)
        self.compiled.run(src_address, dst_address, table_address=base + 8 * block.table)

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


def compute_reorder(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes, factor: float = 1.0) -> ComputedReorder:
    """The reorder with attributes from memory described by `src` to memory described by `dst`.

    Raises:
        InvalidArguments: as `compile_reorder`.
        Unimplemented: as `compile_reorder`; or groups cut through blocks.
    """
    return with_values(compile_reorder(src, dst, attributes, factor))


def with_values(compiled: CompiledReorder) -> ComputedReorder:
    """The reorder with a place for the values that it is given with each call."""
    return ComputedReorder(compiled, None if compiled.plan is None else block_of(compiled.problem, compiled.plan))


def block_of(problem: ReorderProblem, plan: Plan) -> Block | None:
    """What calls copy, with the factors that are the same for all in their places; None where nothing is computed."""
    computation = plan.kernel.computation
    if computation is None:
        return None
    number = np.float64 if computation.working == "f64" else np.float32
    furthest = reaches(problem, plan.schedule)
    count = len(computation.values)
    at, places, parts = count + plan.table.words.size, [], [np.zeros(count, np.int64), plan.table.words]
    for value in computation.values:
        if value.step == "chance":
            continue
        size = _SPARE + (0 if value.count is None else furthest[value.count]) + 1
        numbers: npt.NDArray[np.floating] = np.ones(size + size % 2, number)
        if value.step in ("sum", "factor"):
            numbers[0] = problem.attributes.sum if value.step == "sum" else problem.factor
        places.append((value.step, at))
        parts.append(numbers.view(np.int64))
        at += parts[-1].size
    is_seeded = len(places) < count
    # Value number k is k + 1 words before the table; chance is the last and has the seed for an address.
    after = np.array([0] * is_seeded + [8 * place for _, place in reversed(places)], np.int64)
    return Block(np.concatenate(parts), count, tuple(places), number, is_seeded, after)
