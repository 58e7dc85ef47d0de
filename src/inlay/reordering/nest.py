"""The loop nest of a reorder: the second stage of the compiler.

Both layouts of each axis are refined to the digits they share, so the move becomes a nest of loops in any order:
each loop has an extent and, for each side, where its values lie. What the extents cover beyond the data is cut off
by guards: a guard is a sum of loop indices times weights that must stay below one bound for elements to be read
and below another for them to be written. Sums that bound nothing say which of the values of an attribute an element
takes; they are the first of the guards.

Loops that are one loop on both sides are fused, across axes too: h and w of an nchw -> nChw16c move are one loop.
"""

from dataclasses import dataclass
from math import prod
from typing import NoReturn

from inlay.errors import Unimplemented
from inlay.layout import Axis, CommonDigit, Digit, DigitMap, refine
from inlay.reordering.problem import ProblemAxis, ReorderProblem


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of the nest."""

    extent: int
    """How often it runs."""
    src: DigitMap
    """Where its values lie in the source, in elements."""
    dst: DigitMap
    """Where its values lie in the destination, in elements."""
    counts: tuple[tuple[int, int], ...] = ()
    """(guard, weight): what one step adds to the coordinate of each guard it counts for."""

    @property
    def maps(self) -> tuple[DigitMap, DigitMap]:
        """Where its values lie on both sides."""
        return self.src, self.dst

    def weight(self, guard: int) -> int:
        """What one step adds to the coordinate of a guard."""
        return dict(self.counts).get(guard, 0)

    @property
    def is_affine(self) -> bool:
        """Whether both sides are strides."""
        return isinstance(self.src, int) and isinstance(self.dst, int)


@dataclass(frozen=True, slots=True)
class Guard:
    """The bounds of one coordinate."""

    data: int
    """Below it, elements are read."""
    stored: int
    """Below it, elements are written; from `data` on as zeros."""

    @property
    def is_bound(self) -> bool:
        """Whether it keeps anything out."""
        return self != COUNT


COUNT = Guard(1 << 62, 1 << 62)
"""A sum that bounds nothing: it counts values of an attribute."""


@dataclass(frozen=True, slots=True)
class LoopNest:
    """Loops in no particular order, and the guards they count for."""

    loops: tuple[Loop, ...]
    """Every loop has an extent of at least 2."""
    guards: tuple[Guard, ...]
    """The coordinates with bounds, after those that count values."""

    def at(self, side: str, stride: int) -> int | None:
        """Return the number of the first loop that has this stride on a side."""
        return next((i for i, loop in enumerate(self.loops) if getattr(loop, side) == stride), None)

    def is_cut(self, loop: Loop) -> bool:
        """Whether a bound keeps some of the values of `loop` out."""
        return any(self.guards[guard].is_bound for guard, _ in loop.counts)

    def __str__(self) -> str:
        """One line for each loop, then one for each guard."""
        lines = []
        for i, loop in enumerate(self.loops):
            counts = "".join(f", {weight} of guard {guard}" for guard, weight in loop.counts)
            lines.append(f"  loop {i}: {loop.extent} times, src {_show(loop.src)}, dst {_show(loop.dst)}{counts}")
        for i, guard in enumerate(self.guards):
            bounds = f"read below {guard.data}, write below {guard.stored}" if guard.is_bound else "counts values"
            lines.append(f"  guard {i}: {bounds}")
        return "\n".join(lines)


def _show(where: DigitMap) -> str:
    return f"stride {where}" if isinstance(where, int) else f"table of {len(where)}"


def loop_nest(problem: ReorderProblem) -> LoopNest:
    """The loops of `problem`, fused as far as both sides allow.

    Post-condition: the loops visit every stored coordinate exactly once within their guards, at the offsets that
    the two layouts give it.
    """
    loops: list[Loop] = []
    places = problem.places
    guards: list[Guard] = [COUNT] * len(places)
    for i, axis in enumerate(problem.axes):
        loops += _axis_loops(axis, guards, [(place.strides[i], place.groups[i]) for place in places])
    return LoopNest(tuple(_fused(loops)), tuple(guards))


def _axis_loops(axis: ProblemAxis, guards: list[Guard], values: list[tuple[int, int]]) -> list[Loop]:
    """The loops of one axis; `values` are, for each count, values from one group to the next and the group's size."""
    src = axis.src
    for stride, group in values:
        src = _cut(src, group) if stride else src
    digits = refine(src, axis.dst, axis.stored)
    is_guarded = prod(d.extent for d in digits) > axis.data
    if is_guarded:
        guards.append(Guard(axis.data, axis.stored))
    bound = ((len(guards) - 1, 1),) if is_guarded else ()
    return [
        Loop(d.extent, d.first, d.second, (*_counts(d, values), *((guard, d.weight) for guard, _ in bound)))
        for d in digits
        if d.extent > 1
    ]


def _cut(axis: Axis, group: int) -> Axis:
    """The same axis with a digit of its own for the coordinates of a group.

    Raises:
        Unimplemented: a block of the axis begins inside one group and ends inside another.
    """
    high, digits = axis.block, list(axis.inner)
    if group >= high:
        if group % high:
            _refuse_group(axis, group)
        return (
            axis if group == high else Axis(axis.stride * (group // high), (Digit(group // high, axis.stride), *digits))
        )
    for i, digit in enumerate(digits):
        low = high // digit.extent
        if low <= group:
            if high % group or group % low:
                _refuse_group(axis, group)
            inside = Digit(group // low, digit.stride)
            outside = Digit(high // group, digit.stride * inside.extent)
            digits[i : i + 1] = [d for d in (outside, inside) if d.extent > 1]
            break
        high = low
    return Axis(axis.stride, tuple(digits))


def _refuse_group(axis: Axis, group: int) -> NoReturn:
    blocks = " x ".join(str(digit.extent) for digit in axis.inner)
    raise Unimplemented(f"groups of {group} do not fit the blocks of {blocks} along their axis")


def _counts(digit: CommonDigit, values: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What one step over a digit adds to each count of values."""
    for stride, group in values:
        if stride and digit.weight < group < digit.weight * digit.extent:
            raise Unimplemented(f"groups of {group} do not fit the blocks of both sides along their axis")
    return [
        (count, digit.weight // group * stride)
        for count, (stride, group) in enumerate(values)
        if stride and digit.weight >= group
    ]


def _fused(loops: list[Loop]) -> list[Loop]:
    """The loops with every pair fused that is one loop on both sides."""
    for i, outer in enumerate(loops):
        for j, inner in enumerate(loops):
            if i != j and _is_one_loop(outer, inner):
                both = Loop(outer.extent * inner.extent, inner.src, inner.dst, inner.counts)
                rest = [loop for k, loop in enumerate(loops) if k not in (i, j)]
                return _fused([*rest, both])
    return loops


def _is_one_loop(outer: Loop, inner: Loop) -> bool:
    if isinstance(inner.src, tuple) or isinstance(inner.dst, tuple):
        return False
    return (
        outer.src == inner.src * inner.extent
        and outer.dst == inner.dst * inner.extent
        and outer.counts == tuple((guard, weight * inner.extent) for guard, weight in inner.counts)
    )


def with_run(nest: LoopNest, side: str, lanes: int) -> LoopNest | None:
    """The nest with the loops that follow one another on `side` joined until `lanes` divides their extent.

    The 3 x 3 of a kernel fills no register, but 16 input channels of it do: 144 elements that lie in a row in an oihw
    source. Joined, they have a stride on one side and a table of offsets on the other.

    None where there is no such run, or a bound cuts it.
    """
    run: list[int] = []
    extent = 1
    while not run or extent % lanes:
        following = nest.at(side, extent)
        if following is None or nest.loops[following].counts:
            return None
        run.append(following)
        extent *= nest.loops[following].extent
        if extent > _LONGEST_RUN:
            return None
    return _joined(nest, run, side) if len(run) > 1 else None


_LONGEST_RUN = 1024
_GREATEST_ODD = 31


def with_odd_digit(nest: LoopNest, side: str, lanes: int) -> tuple[LoopNest, int, int] | None:
    """The nest with an odd loop among those that follow one another on `side` before they number `lanes`.

    A loop over 24 channels becomes 8 and 3. Odd loops that follow it in the row are joined with it: the 3 and the 3 of
    a kernel whose columns and rows go to different places are nine, with a table of offsets there. Result: the nest,
    the loop of odd extent, and the elements in a row below it. None where the elements in a row number a power of two,
    or where a bound or a table cuts them.
    """
    other = "dst" if side == "src" else "src"
    stride = 1
    while stride < lanes:
        i = nest.at(side, stride)
        if i is None or nest.is_cut(nest.loops[i]) or not nest.loops[i].is_affine:
            return None
        loop = nest.loops[i]
        power = loop.extent & -loop.extent
        odd = loop.extent // power
        if odd > 1:
            if odd > _GREATEST_ODD or stride * power >= lanes or getattr(loop, other) == stride:
                return None
            split = (nest, i) if power == 1 else _split(nest, i, power)
            return (*_with_odd_run(*split, side), stride * power)
        stride *= power
    return None


def _with_odd_run(nest: LoopNest, i: int, side: str) -> tuple[LoopNest, int]:
    """The nest with loop `i` and the odd loops that follow it on `side` as one, and the number of that."""
    run = [i]
    start = getattr(nest.loops[i], side)
    extent = nest.loops[i].extent
    while not nest.loops[run[-1]].counts:
        after = nest.at(side, start * extent)
        if after is None or not nest.loops[after].is_affine or nest.loops[after].counts:
            break
        extent *= nest.loops[after].extent
        if extent % 2 == 0 or extent > _GREATEST_ODD:
            break
        run.append(after)
    joined = _joined(nest, run, side) if len(run) > 1 else None
    return (nest, i) if joined is None else (joined, len(joined.loops) - 1)


def _split(nest: LoopNest, i: int, inner: int) -> tuple[LoopNest, int]:
    """The nest with loop `i` split, and the number of the new loop, its outer part."""
    loop = nest.loops[i]
    assert isinstance(loop.src, int)
    assert isinstance(loop.dst, int)
    fast = Loop(inner, loop.src, loop.dst, loop.counts)
    counts = tuple((guard, weight * inner) for guard, weight in loop.counts)
    slow = Loop(loop.extent // inner, loop.src * inner, loop.dst * inner, counts)
    return LoopNest((*nest.loops[:i], fast, *nest.loops[i + 1 :], slow), nest.guards), len(nest.loops)


def _joined(nest: LoopNest, run: list[int], side: str) -> LoopNest | None:
    """The nest with the loops `run`, fastest first, as one loop that is a table on the side other than `side`."""
    other = "dst" if side == "src" else "src"
    stride = getattr(nest.loops[run[0]], side)
    table = (0,)
    for i in run:
        loop = nest.loops[i]
        if not loop.is_affine:
            return None
        step = getattr(loop, other)
        table = tuple(value * step + rest for value in range(loop.extent) for rest in table)
    joined = Loop(len(table), stride, table) if side == "src" else Loop(len(table), table, stride)
    return LoopNest((*(loop for i, loop in enumerate(nest.loops) if i not in run), joined), nest.guards)
