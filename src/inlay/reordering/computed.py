"""What a call of a reorder with attributes brings: its values, in a block of memory that the code reads.

Compiled code finds values through words that lie before its table. A call makes one block of memory of its own,

    addresses of values | table | values of one step | values of the next ...

so calls from several threads do not meet. Values are in the working type, and as many as the tiles reach: what a tile
computes beyond the tensor is thrown away, but it must be readable.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.data_type import DATA_TYPES
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
    number: np.dtype[Any]
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


def block_of(problem: ReorderProblem, plan: Plan) -> Block | None:
    """What calls make, with the factors that are the same for all in their places; None where nothing is computed."""
    computation = plan.kernel.computation
    if computation is None:
        return None
    number = DATA_TYPES[computation.working].dtype
    furthest = reaches(problem, plan.schedule)
    presets = {"sum": problem.attributes.sum or 0.0, "factor": problem.factor}
    count = len(computation.values)
    at, slots = count + plan.table.words.size, []
    for value in computation.values:
        if value.step != "chance":
            size = _SPARE + (0 if value.count is None else furthest[value.count]) + 1
            slots.append(Slot(value.step, at, size + size % 2, presets.get(value.step, 1.0)))
            at += slots[-1].size * number.itemsize // 8
    is_seeded = len(slots) < count
    # Value number k is k + 1 words before the table; chance is the last and has the seed for an address.
    after = np.array([0] * is_seeded + [8 * slot.at for slot in reversed(slots)], np.int64)
    return Block(at, count, plan.table.words, tuple(slots), number, is_seeded, after)
