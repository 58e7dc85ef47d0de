"""Reorders with attributes, ready to be called: each call brings the values.

Compiled code finds values through words that lie before its table. A call makes one block of memory of its own,

    addresses of values | table | values of one step | values of the next ...

so calls from several threads do not meet. Values are in the working type, and as many as the tiles reach: what a tile
computes beyond the tensor is thrown away, but it must be readable.
"""

from dataclasses import dataclass

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.reordering.attributes import Attributes
from inlay.reordering.compiled import CompiledReorder, compile_reorder
from inlay.reordering.kernel import Words
from inlay.reordering.operands import Operands
from inlay.reordering.planning import Plan
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.value_lanes import reaches

_SPARE = 64
"""Values after the last: a register of them is loaded whole."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the values of one step lie in the block."""

    step: str
    """The name of the step."""
    at: int
    """The word at which they begin."""
    size: int
    """How many there is room for."""
    preset: float
    """What each of them is that no call sets."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What calls make: a block of memory that the code finds its values and its table in."""

    size: int
    """Its words."""
    table: int
    """The word at which the table begins: so many addresses lie before it."""
    head: Words
    """The table."""
    slots: tuple[Slot, ...]
    """For each step with values, where they are."""
    number: type[np.floating]
    """The working type."""
    is_seeded: bool
    """Whether the first word is the seed."""
    after: Words
    """For each address, bytes from the start of the block to what is there."""

    def filled(self, values: Operands, seed: int) -> Words:
        """A new block with what a call brings, for code that reads it where it lies."""
        words = np.empty(self.size, np.int64)
        return self.placed(words, words.__array_interface__["data"][0], values, seed)

    def placed(self, words: Words, base: int, values: Operands, seed: int) -> Words:
        """The same in `words`, of the block's size, which lie, for the code that reads them, at address `base`."""
        words[: self.table] = self.after + base
        words[self.table : self.table + self.head.size] = self.head
        if self.is_seeded:
            words[0] = seed
        numbers = words.view(self.number)
        per_word = 8 // numbers.itemsize
        for slot in self.slots:
            room = numbers[slot.at * per_word : slot.at * per_word + slot.size]
            given = values.get(slot.step)
            count = 0 if given is None else given.size
            if given is not None:
                room[:count] = given.ravel()
            room[count:] = slot.preset
        return words


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
        words = block.filled(values, seed)
        base: int = words.__array_interface__["data"][0]
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
    """What calls make, with the factors that are the same for all in their places; None where nothing is computed."""
    computation = plan.kernel.computation
    if computation is None:
        return None
    number = np.float64 if computation.working == "f64" else np.float32
    furthest = reaches(problem, plan.schedule)
    presets = {"sum": problem.attributes.sum or 0.0, "factor": problem.factor}
    count = len(computation.values)
    at, slots = count + plan.table.words.size, []
    for value in computation.values:
        if value.step != "chance":
            size = _SPARE + (0 if value.count is None else furthest[value.count]) + 1
            slots.append(Slot(value.step, at, size + size % 2, presets.get(value.step, 1.0)))
            at += slots[-1].size * number().itemsize // 8
    is_seeded = len(slots) < count
    # Value number k is k + 1 words before the table; chance is the last and has the seed for an address.
    after = np.array([0] * is_seeded + [8 * slot.at for slot in reversed(slots)], np.int64)
    return Block(at, count, plan.table.words, tuple(slots), number, is_seeded, after)
