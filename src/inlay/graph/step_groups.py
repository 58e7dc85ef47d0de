"""Groups of equal steps: repeated blocks of a sequence, and steps that are equal wherever they are.

    group_steps("ABCABCD")         the block A B C twice, then D
    find_equal_steps("ABCABCD")    A twice, B twice, C twice, D

Steps are given by keys, any hashable values: steps with equal keys are equal. `step_keys` returns those of a program,
which are equal for steps of the same kind, formats, implementation, dims and parameters.

**The rule of `group_steps`.** A group is a block of steps that follows itself one or more times. Shown as a table, a
repeated block of several steps is a heading and a row for each of its steps; a step alone, or one that repeats, is one
row. The groups chosen are those with the fewest rows. Of several such choices, the first group covers the most steps,
with the shortest block; then the second group; and so on. The minimum is found exactly, from the end of the sequence to
its beginning (dynamic programming).

>>> for group in group_steps("ABCABCD"):
...     print(group.count, "x", "ABCABCD"[group.first : group.first + group.length])
2 x ABC
1 x D
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inlay.graph.costs.timing_records import operation_text
from inlay.graph.network import Node, Subgraph
from inlay.graph.program import Program, Step

MOST_LENGTH = 256
"""Most steps of a block that is recognized as repeated."""


@dataclass(frozen=True, slots=True)
class StepGroup:
    """A block of steps that follows itself: `count` times the same `length` steps."""

    first: int
    """Index of the first step."""
    length: int
    """Number of steps of the block."""
    count: int
    """Number of times that the block occurs, one after the other."""

    @property
    def steps(self) -> range:
        """Indices of all steps of the group.

        >>> StepGroup(3, length=2, count=2).steps
        range(3, 7)
        """
        return range(self.first, self.first + self.length * self.count)

    @property
    def is_block(self) -> bool:
        """Return whether a block of several steps is repeated."""
        return self.length > 1 and self.count > 1

    @property
    def rows(self) -> int:
        """Number of rows that show the group: one for each step of the block, and a heading if it is repeated."""
        return self.length + self.is_block

    def occurrences(self, position: int) -> range:
        """Return the indices of the equal steps at a position of the block, from 0 to `length - 1`.

        >>> list(StepGroup(3, length=2, count=3).occurrences(1))
        [4, 6, 8]
        """
        return self.steps[position :: self.length]

    def sum_times(self, times: Sequence[float]) -> tuple[float, ...]:
        """Return, for each step of the block, the sum of the times of its occurrences.

        Args:
            times: the time of each step of the whole sequence, by index.

        >>> StepGroup(1, length=2, count=2).sum_times([9.0, 1.0, 2.0, 3.0, 4.0])
        (4.0, 6.0)
        """
        return tuple(math.fsum(times[i] for i in self.occurrences(position)) for position in range(self.length))


def group_steps(keys: Sequence[Hashable]) -> tuple[StepGroup, ...]:
    """Return the groups of a sequence of steps in order, by the rule above; each step is in exactly one group.

    The time grows with the number of steps times `MOST_LENGTH`: 10,000 steps take a few tenths of a second.

    >>> group_steps("AAABCBCBC")
    (StepGroup(first=0, length=1, count=3), StepGroup(first=3, length=2, count=3))
    """
    is_repeated = _find_repetitions(keys)
    rows = _count_rows(is_repeated)
    groups, first = [], 0
    while first < len(keys):
        group = _select_group(first, is_repeated, rows)
        groups.append(group)
        first = group.steps.stop
    return tuple(groups)


def find_equal_steps(keys: Sequence[Hashable]) -> tuple[tuple[int, ...], ...]:
    """Return the indices of equal steps together, wherever they are; in the order of their first occurrence.

    >>> find_equal_steps("ABCAC")
    ((0, 3), (1,), (2, 4))
    """
    found: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        found.setdefault(key, []).append(i)
    return tuple(map(tuple, found.values()))


def step_keys(program: Program) -> tuple[Hashable, ...]:
    """Return a key for each step: kind, implementation, dims and formats of all arguments, parameters, attributes.

    Names, the elements of constants, and times are not part of it.
    """
    return tuple(_step_key(program, step) for step in program.steps)


def _find_repetitions(keys: Sequence[Hashable]) -> NDArray[np.bool_]:
    """Return an array whose entry `[i, length]` is true if the block at step i of this length follows itself.

    The lengths are those from 0 to `MOST_LENGTH`; a block of length 0 never does.
    """
    numbers: dict[Hashable, int] = {}
    sequence = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    found = np.zeros((len(keys), min(MOST_LENGTH, len(keys) // 2) + 1), bool)
    for length in range(1, found.shape[1]):
        differs = np.cumsum(sequence[length:] != sequence[:-length])
        before = np.concatenate(([0], differs[:-length]))  # differences before step i
        found[: len(before), length] = differs[length - 1 :] == before
    return found


def _count_rows(is_repeated: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the least number of rows that show the steps from each index on; the last entry, 0, is the end's.

    `after[i, length]` is the least for the steps after the block at i of this length, or after some of its repetitions.
    """
    steps, lengths = is_repeated.shape
    headings = np.arange(lengths) + (np.arange(lengths) > 1)
    rows = np.zeros(steps + 1, np.int64)
    after = np.zeros((steps + 1, lengths), np.int64)
    for i in reversed(range(steps)):
        most = min(lengths, steps - i + 1)
        after[i, :most] = rows[i : i + most]
        (repeated,) = np.nonzero(is_repeated[i])
        following = after[i + repeated, repeated]
        after[i, repeated] = np.minimum(after[i, repeated], following)
        rows[i] = min([1 + rows[i + 1], *(headings[repeated] + following)])
    return rows


def _select_group(first: int, is_repeated: NDArray[np.bool_], rows: NDArray[np.int64]) -> StepGroup:
    """Return the group that begins at a step: of those with the fewest rows, the one that covers the most steps."""
    selected = StepGroup(first, 1, 1)
    for length in np.nonzero(is_repeated[first])[0].tolist():
        count = 1
        while is_repeated[first + (count - 1) * length, length]:
            count += 1
            group = StepGroup(first, length, count)
            is_least = group.rows + rows[group.steps.stop] == rows[first]
            if is_least and len(group.steps) > len(selected.steps):
                selected = group
    return selected


def _step_key(program: Program, step: Step) -> Hashable:
    """Return the key of a step."""
    constants = tuple((name, array.shape, array.dtype.str) for name, array in sorted(step.constants.items()))
    if step.operation is not None:
        return step.kind, step.impl, operation_text(step.operation), constants
    buffers = tuple(
        (argument, program.buffers[name].desc) for argument, name in (*step.reads.items(), *step.writes.items())
    )
    return step.kind, step.impl, _node_key(step.node), buffers, step.nbytes, constants


def _node_key(node: Node | None) -> Hashable:
    """Return the operators and attributes of a node, or of the nodes of a subgraph, without names."""
    if isinstance(node, Subgraph):
        return tuple(map(_node_key, node.nodes))
    return None if node is None else (node.domain, node.operator, _attribute_key(node.attributes))


def _attribute_key(value: Any) -> Hashable:
    """Return a hashable value that is equal for equal attributes."""
    match value:
        case np.ndarray():
            return value.dtype.str, value.shape, value.tobytes()
        case Mapping():
            return tuple((name, _attribute_key(value[name])) for name in sorted(value))
        case tuple() | list():
            return tuple(map(_attribute_key, value))
    return value if isinstance(value, Hashable) else repr(value)
