"""What to show of a row that is too long: its ends, its borders, and an honest mark for the rest.

Planes, rows, columns and the lines of the memory strip are all sequences of items of which only some fit. The items
that teach most are the first ones, the last, and both sides of a border: the end of a block, the first padding.
Everything between is left out as an `Elision` that knows how much it stands for.

>>> pick(24, [0, 23, 16, 17, 1], room=7)
(0, 1, Elision(first=2, count=14), 16, 17, Elision(first=18, count=5), 23)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise


@dataclass(frozen=True, slots=True)
class Elision:
    """Items left out between two that are shown."""

    first: int
    """The number of the first item left out."""
    count: int
    """How many are left out."""

    @property
    def last(self) -> int:
        """The number of the last item left out."""
        return self.first + self.count - 1


Picks = tuple[int | Elision, ...]
"""Numbers of the items shown, ascending, with an elision wherever some are left out."""


def pick(count: int, wanted: Iterable[int], room: int, cost: int = 1, gap_cost: int = 1, *, fill: bool = True) -> Picks:
    """Which of the items 0 to `count` - 1 to show: as many of `wanted`, best first, then of the first items, as fit.

    An item takes `cost` of the `room`, an elision `gap_cost`. The first item wanted is shown even if it does not fit.
    Without `fill` items that nobody wants are left out even where there is room.

    Post-conditions: the numbers and elisions, read in order, tell each of 0..count-1 exactly once; they cost at most
    `room`, unless one item and its elisions alone cost more.
    """
    if count * cost <= room:
        return tuple(range(count))
    chosen: list[int] = []
    for item in chain(wanted, range(min(count, room // cost) if fill else 0)):
        if not 0 <= item < count or item in chosen:
            continue
        trial = sorted([*chosen, item])
        if not chosen or _cost(trial, count, cost, gap_cost) <= room:
            chosen = trial
    singles = [e.first for e in _with_elisions(chosen, count) if isinstance(e, Elision) and e.count == 1]
    if cost <= gap_cost:
        chosen = sorted([*chosen, *singles])
    return _with_elisions(chosen, count)


def _cost(chosen: Sequence[int], count: int, cost: int, gap_cost: int) -> int:
    gaps = sum(isinstance(item, Elision) for item in _with_elisions(chosen, count))
    return len(chosen) * cost + gaps * gap_cost


def _with_elisions(chosen: Sequence[int], count: int) -> Picks:
    picks: list[int | Elision] = []
    for before, item in pairwise((-1, *chosen, count)):
        if item - before > 1:
            picks.append(Elision(before + 1, item - before - 1))
        if item < count:
            picks.append(item)
    return tuple(picks)


def borders(count: int, data: int, weights: Iterable[int]) -> list[int]:
    """The items of an axis worth seeing, best first: ends of its data, first padding, borders of its blocks.

    `count` counts data and padding, `data` the data alone; `weights` are the sizes of its blocks.

    >>> borders(24, 17, [8])
    [0, 16, 17, 8, 7, 23, 1]
    """
    inside = [x for weight in sorted(set(weights)) if weight > 1 for x in (weight, weight - 1)]
    return [0, data - 1, data, *inside, count - 1, 1]
