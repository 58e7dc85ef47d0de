"""The loop nest of a reorder: second stage of the compiler.

For each axis, both layouts are refined to the digits that they share. Each shared digit becomes a loop with an extent
and, for each side, a stride or a table of offsets. The loops may run in any order.

The product of the extents may exceed the number of coordinates. Guards restrict the loops: a guard is a weighted sum of
loop indices, elements are read where it is below one bound and written where it is below another. A guard without
bounds is a value index: the sum selects the value of an attribute. Value indices are the first of the guards.

Two loops that form one longer loop on both sides are fused, also across axes: h and w of a move from nchw to nChw16c
become one loop.
"""

from dataclasses import dataclass
from math import prod
from typing import NoReturn

from inlay.errors import Unimplemented
from inlay.layout import Axis, CommonDigit, Digit, DigitMap, refine
from inlay.reordering.problem import ProblemAxis, ReorderProblem


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of the nest: an affine access on each side, or a table of offsets."""

    extent: int
    """Number of iterations."""
    src: DigitMap
    """Offsets of the iterations in the source, in elements: a stride, or a tuple with one offset for each iteration."""
    dst: DigitMap
    """Offsets of the iterations in the destination, in elements: a stride, or a tuple with one offset for each
    iteration."""
    guard_weights: tuple[tuple[int, int], ...] = ()
    """Pairs (number of a guard, weight): one iteration adds the weight to the sum of that guard."""

    @property
    def maps(self) -> tuple[DigitMap, DigitMap]:
        """The offsets of the iterations on both sides: (src, dst)."""
        return self.src, self.dst

    def weight(self, guard: int) -> int:
        """Return what one iteration adds to the sum of a guard."""
        return dict(self.guard_weights).get(guard, 0)

    @property
    def is_affine(self) -> bool:
        """Return whether both sides have strides, not tables."""
        return isinstance(self.src, int) and isinstance(self.dst, int)


@dataclass(frozen=True, slots=True)
class Guard:
    """The two bounds on a weighted sum of loop indices."""

    data: int
    """Elements are read where the sum is below this bound."""
    stored: int
    """Elements are written where the sum is below this bound: data below `data`, zeros from there on."""

    @property
    def is_bound(self) -> bool:
        """Return whether the guard excludes anything; false for a value index."""
        return self != UNBOUNDED


UNBOUNDED = Guard(1 << 62, 1 << 62)
"""The guard of a value index: its bounds exclude nothing."""


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A set of loops and the guards on sums of their indices."""

    loops: tuple[Loop, ...]
    """The loops in no particular order, each with an extent of at least 2."""
    guards: tuple[Guard, ...]
    """The guards: first those of value indices, then those with bounds."""

    def find_loop(self, side: str, stride: int) -> int | None:
        """Return the number of the first loop whose stride on `side` is `stride`, or None."""
        return next((i for i, loop in enumerate(self.loops) if getattr(loop, side) == stride), None)

    def has_bound(self, loop: Loop) -> bool:
        """Return whether a guard with bounds depends on `loop`."""
        return any(self.guards[guard].is_bound for guard, _ in loop.guard_weights)

    def __str__(self) -> str:
        """Return one line for each loop, then one for each guard."""
        lines = []
        for i, loop in enumerate(self.loops):
            counts = "".join(f", {weight} of guard {guard}" for guard, weight in loop.guard_weights)
            lines.append(f"  loop {i}: {loop.extent} times, src {_show(loop.src)}, dst {_show(loop.dst)}{counts}")
        for i, guard in enumerate(self.guards):
            bounds = f"read below {guard.data}, write below {guard.stored}" if guard.is_bound else "counts values"
            lines.append(f"  guard {i}: {bounds}")
        return "\n".join(lines)


def _show(where: DigitMap) -> str:
    """Return the offsets of a loop on one side as text."""
    return f"stride {where}" if isinstance(where, int) else f"table of {len(where)}"


def build_loop_nest(problem: ReorderProblem) -> LoopNest:
    """Build the loop nest of `problem`, with loops fused as far as both sides allow.

    Post-condition: the loops visit every stored coordinate exactly once within their guards, at the offsets that the
    two layouts give it.
    """
    loops: list[Loop] = []
    value_layouts = problem.value_layouts
    guards: list[Guard] = [UNBOUNDED] * len(value_layouts)
    for i, axis in enumerate(problem.axes):
        loops += _axis_loops(axis, guards, [(place.strides[i], place.groups[i]) for place in value_layouts])
    return LoopNest(tuple(_fuse_loops(loops)), tuple(guards))


def _axis_loops(axis: ProblemAxis, guards: list[Guard], values: list[tuple[int, int]]) -> list[Loop]:
    """Return the loops of one axis, and append its guard to `guards` if it has padding or a partial block.

    `values` has an entry for each array of scales or zero points: the stride in that array from one group of
    coordinates to the next (0 if its values do not vary along the axis), and the number of coordinates in a group.
    These arrays have the first numbers of `guards`, so that a loop advances both kinds of counters in the same way.
    """
    src = axis.src
    for stride, group in values:
        src = _split_group(src, group) if stride else src
    digits = refine(src, axis.dst, axis.stored)
    is_guarded = prod(d.extent for d in digits) > axis.data
    if is_guarded:
        guards.append(Guard(axis.data, axis.stored))
    loops = []
    for digit in digits:
        if digit.extent > 1:
            counter_weights = _value_weights(digit, values)
            if is_guarded:
                counter_weights.append((len(guards) - 1, digit.weight))
            loops.append(Loop(digit.extent, digit.first, digit.second, tuple(counter_weights)))
    return loops


def _split_group(axis: Axis, group: int) -> Axis:
    """Return the same axis with a digit boundary at multiples of `group`, so that a loop can run over whole groups.

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
    """Raise Unimplemented for groups that cut through blocks."""
    blocks = " x ".join(str(digit.extent) for digit in axis.inner)
    raise Unimplemented(f"groups of {group} do not fit the blocks of {blocks} along their axis")


def _value_weights(digit: CommonDigit, values: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (number of the array, weight) for each array of scales or zero points that varies along a digit.

    Raises:
        Unimplemented: a group boundary falls inside the digit.
    """
    for stride, group in values:
        if stride and digit.weight < group < digit.weight * digit.extent:
            raise Unimplemented(f"groups of {group} do not fit the blocks of both sides along their axis")
    return [
        (count, digit.weight // group * stride)
        for count, (stride, group) in enumerate(values)
        if stride and digit.weight >= group
    ]


def _fuse_loops(loops: list[Loop]) -> list[Loop]:
    """Return the loops with every fusable pair fused, until none is left."""
    for i, outer in enumerate(loops):
        for j, inner in enumerate(loops):
            if i != j and _can_fuse(outer, inner):
                both = Loop(outer.extent * inner.extent, inner.src, inner.dst, inner.guard_weights)
                rest = [loop for k, loop in enumerate(loops) if k not in (i, j)]
                return _fuse_loops([*rest, both])
    return loops


def _can_fuse(outer: Loop, inner: Loop) -> bool:
    """Return whether the outer loop continues the inner one on both sides and for every guard."""
    if isinstance(inner.src, tuple) or isinstance(inner.dst, tuple):
        return False
    return (
        outer.src == inner.src * inner.extent
        and outer.dst == inner.dst * inner.extent
        and outer.guard_weights == tuple((guard, weight * inner.extent) for guard, weight in inner.guard_weights)
    )


def join_contiguous_loops(nest: LoopNest, side: str, lanes: int) -> LoopNest | None:
    """Join the loops that are contiguous on `side`, starting at stride 1, until `lanes` divides their joint extent.

    A kernel of 3 x 3 fills no register, but 16 input channels of it do: 144 contiguous elements of an oihw source. The
    joined loop has a stride on `side` and a table of offsets on the other side.

    Return None if no such sequence exists, if a guard depends on one of the loops, or if only one loop is needed.
    """
    chain: list[int] = []
    extent = 1
    while not chain or extent % lanes:
        following = nest.find_loop(side, extent)
        if following is None or nest.loops[following].guard_weights:
            return None
        chain.append(following)
        extent *= nest.loops[following].extent
        if extent > _LONGEST_CHAIN:
            return None
    return _join_loops(nest, chain, side) if len(chain) > 1 else None


_LONGEST_CHAIN = 1024  # iterations of joined loops
_GREATEST_ODD = 31  # largest odd extent by which registers are deinterleaved


def split_odd_factor(nest: LoopNest, side: str, lanes: int) -> tuple[LoopNest, int, int] | None:
    """Isolate the odd factor of the loops that are contiguous on `side`, if it lies below `lanes` contiguous elements.

    A loop over 24 channels becomes loops of 8 and 3. Further loops of odd extent that continue the contiguous row are
    joined with the one of 3: the 3 columns and 3 rows of a convolution kernel become one loop of 9, with a table of
    offsets on the other side.

    Returns:
        The new nest, the number of its loop of odd extent, and the number of contiguous elements below that loop. None
        if the first `lanes` contiguous elements have no odd factor, or if a guard or a table prevents the split.
    """
    other = "dst" if side == "src" else "src"
    stride = 1
    while stride < lanes:
        i = nest.find_loop(side, stride)
        if i is None or nest.has_bound(nest.loops[i]) or not nest.loops[i].is_affine:
            return None
        loop = nest.loops[i]
        power = loop.extent & -loop.extent
        odd = loop.extent // power
        if odd > 1:
            if odd > _GREATEST_ODD or stride * power >= lanes or getattr(loop, other) == stride:
                return None
            split = (nest, i) if power == 1 else _split_loop(nest, i, power)
            return (*_join_odd_loops(*split, side), stride * power)
        stride *= power
    return None


def _join_odd_loops(nest: LoopNest, i: int, side: str) -> tuple[LoopNest, int]:
    """Join loop `i` with the loops that continue it on `side`, while the joint extent is odd and not too great.

    A loop of guarded coordinates ends the sequence. Return the nest and the joined loop's number.
    """
    chain = [i]
    start = getattr(nest.loops[i], side)
    extent = nest.loops[i].extent
    while not nest.loops[chain[-1]].guard_weights:
        after = nest.find_loop(side, start * extent)
        if after is None or not nest.loops[after].is_affine or nest.loops[after].guard_weights:
            break
        extent *= nest.loops[after].extent
        if extent % 2 == 0 or extent > _GREATEST_ODD:
            break
        chain.append(after)
    joined = _join_loops(nest, chain, side) if len(chain) > 1 else None
    return (nest, i) if joined is None else (joined, len(joined.loops) - 1)


def _split_loop(nest: LoopNest, i: int, inner: int) -> tuple[LoopNest, int]:
    """Split loop `i` into an inner loop of extent `inner` and an outer one; return the nest and the outer's number."""
    loop = nest.loops[i]
    assert isinstance(loop.src, int)
    assert isinstance(loop.dst, int)
    fast = Loop(inner, loop.src, loop.dst, loop.guard_weights)
    counts = tuple((guard, weight * inner) for guard, weight in loop.guard_weights)
    slow = Loop(loop.extent // inner, loop.src * inner, loop.dst * inner, counts)
    return LoopNest((*nest.loops[:i], fast, *nest.loops[i + 1 :], slow), nest.guards), len(nest.loops)


def _join_loops(nest: LoopNest, chain: list[int], side: str) -> LoopNest | None:
    """Replace the loops `chain`, innermost first, by one loop with a table on the side other than `side`.

    Return None if one of the loops has a table already.
    """
    other = "dst" if side == "src" else "src"
    stride = getattr(nest.loops[chain[0]], side)
    table = (0,)
    for i in chain:
        loop = nest.loops[i]
        if not loop.is_affine:
            return None
        step = getattr(loop, other)
        table = tuple(value * step + rest for value in range(loop.extent) for rest in table)
    joined = Loop(len(table), stride, table) if side == "src" else Loop(len(table), table, stride)
    return LoopNest((*(loop for i, loop in enumerate(nest.loops) if i not in chain), joined), nest.guards)
