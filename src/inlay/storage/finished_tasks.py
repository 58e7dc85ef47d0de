"""The finished tasks of a conversion, with the counts of each tensor.

Tasks finish in any order. Sums of floating-point numbers depend on their order, so counts are added by ascending number
of the task: the totals are equal, bit for bit, whatever executes the tasks.
"""

from bisect import bisect_right
from itertools import accumulate

from inlay.storage.conversion_plan import ConversionPlan
from inlay.storage.operation import BoxCounts

_NO_COUNTS = BoxCounts()


class FinishedTasks:
    """The tasks of a plan that are finished, and the sums of their counts for each tensor."""

    def __init__(self, plan: ConversionPlan) -> None:
        """Start without finished tasks."""
        self.counts = [_NO_COUNTS] * len(plan.tensors)
        """Counts of each tensor: of all its tasks if they are finished, of the first ones otherwise."""
        self.count = 0
        """Number of finished tasks."""
        self._ends = tuple(accumulate(each.count for each in plan.tensors))
        self._is_finished = bytearray(self._ends[-1] if self._ends else 0)
        self._waiting = dict[int, BoxCounts]()
        self._next = self._tensor = 0

    @property
    def total(self) -> int:
        """Number of all tasks."""
        return len(self._is_finished)

    def numbers(self, tensor: int) -> range:
        """Return the numbers of the tasks of a tensor, given by its index."""
        return range(self._ends[tensor - 1] if tensor else 0, self._ends[tensor])

    def tensor_of(self, number: int) -> int:
        """Return the index of the tensor of a task."""
        return bisect_right(self._ends, number)

    def __contains__(self, number: int) -> bool:
        """Return True if the task with this number is finished."""
        return bool(self._is_finished[number])

    def add(self, number: int, counts: BoxCounts) -> range:
        """Add a task; return the indices of the tensors of which all counts are known only now."""
        if not 0 <= number < self.total or self._is_finished[number]:
            return range(0)
        self._is_finished[number] = 1
        self.count += 1
        if counts != _NO_COUNTS:
            self._waiting[number] = counts
        before = self._tensor
        while self._next < self.total and self._is_finished[self._next]:
            self._add_next()
        return range(before, self._tensor)

    def _add_next(self) -> None:
        """Add the counts of the next task in order to those of its tensor."""
        while self._ends[self._tensor] <= self._next:  # tensors without elements have no task
            self._tensor += 1
        self.counts[self._tensor] += self._waiting.pop(self._next, _NO_COUNTS)
        self._next += 1
        if self._ends[self._tensor] == self._next:
            self._tensor += 1
