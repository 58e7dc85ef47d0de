"""Digits regrouped: under other dims, as a reshape needs them, and as two layouts share them; and why a view cannot be.

A reshape keeps row-major order, so both lists of dims are paired from the right into the shortest runs of equal volume.
Within a pair everything follows from digits. The old axes, read as one number, are their digits in a row; the new axes
take digits off its end, and a digit may be split where the new dim divides it:

    (2, 16) of nChw8c's n, c     digits   n (2, 320)   c (2, 160) (8, 1)
    -> (4, 2, 4)                 from the right   4 of (8, 1);  the 2 left of it, (2, 4);  (2, 320) (2, 160) = (4, 160)

Where a new dim would end inside a digit - 9 in digits of 3 and 8 - no layout gives the same elements, and the pair is
a `Fault`.

A view that cannot be is a `Refusal`: which axes, which rule, and the cheapest way to go on. Most have a repair: other
dims close by may be a view, free digits may say what a format cannot, and after one reorder everything is a view again:

    axis 1 (c) cannot be split into 2 x 9: its 18 elements are padded to 24 in blocks of 8
        nChw8c (2, 18, 5, 4) -> (2, 1, 18, 5, 4) works; to split c, reorder to nchw first (5.8 kB moved)

A permutation says where each axis goes: entry i of what is permuted becomes entry `permutation[i]`. Its inverse says
where each axis comes from, which is how NumPy's `transpose` and MegEngine's `dimshuffle` read their argument.

>>> permuted("nchw", (0, 3, 1, 2)), inverse((0, 3, 1, 2))
(('n', 'h', 'w', 'c'), (0, 2, 3, 1))

`refine` reads one axis of two layouts in digits that both share, which turns a reorder into a permutation of digits. An
axis that one side blocks by 8 and the other by 16 is read in digits of 8 and 2 on both sides; where blocks do not
divide one another (8 and 12), one digit runs over their common multiple (24) and each side keeps a table of offsets.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, lcm, prod
from typing import Generic, Literal, TypeAlias, TypeVar

from inlay.errors import InvalidArguments
from inlay.layout.axis import Axis, Digit, Dims, normal_axis

# Runs of axes that change places


Run: TypeAlias = tuple[int, int, int, int]
"""Start and end among the old axes, start and end among the new ones that take their place."""


def runs(dims: Dims, padded: Dims, new_dims: Dims) -> Iterator[Run]:
    """The runs of axes that a reshape exchanges, from the right.

    A unit axis without padding is dropped and a new unit axis inserted, each on its own; a padded one takes the place
    of a new unit axis if there is one. All others pair up as the shortest runs of equal volume. A dim of 0 pairs with
    a dim of 0 only; where it cannot, the last run is all that is left.

    >>> list(runs((2, 12, 1), (2, 12, 1), (2, 3, 4)))
    [(2, 3, 3, 3), (1, 2, 1, 3), (0, 1, 0, 1)]
    """
    old_end, new_end = len(dims), len(new_dims)
    while old_end or new_end:
        old, new = old_end, new_end
        if old_end and dims[old_end - 1] == 1:
            old -= 1
            if padded[old] != 1 and new_end and new_dims[new_end - 1] == 1:
                new -= 1
        elif new_end and new_dims[new_end - 1] == 1:
            new -= 1
        elif old_end and new_end and dims[old_end - 1] == new_dims[new_end - 1]:
            old -= 1
            new -= 1
        else:
            old, new = _equal_volumes(dims, old_end, new_dims, new_end)
        yield old, old_end, new, new_end
        old_end, new_end = old, new


def _equal_volumes(dims: Dims, old_end: int, new_dims: Dims, new_end: int) -> tuple[int, int]:
    """Where the shortest runs of equal volume start that end before `old_end` and `new_end`; (0, 0) if none do."""
    if not (old_end and new_end):
        return 0, 0
    old, new = old_end - 1, new_end - 1
    have, want = dims[old], new_dims[new]
    while have != want and have and want:
        if have < want:
            old -= 1
            have *= dims[old] if old >= 0 else 0
        else:
            new -= 1
            want *= new_dims[new] if new >= 0 else 0
    return (old, new) if have == want else (0, 0)


def pairs_up(dims: Dims, new_dims: Dims, run: Run) -> bool:
    """Whether `run` is a pair of equal volume, and not what was left because a dim of 0 pairs with none.

    >>> pairs_up((2, 0, 2), (0, 4), (0, 3, 0, 2))
    False
    """
    old, old_end, new, new_end = run
    have, want = dims[old:old_end], new_dims[new:new_end]
    return have == want or (prod(have) == prod(want) and 0 not in have)


# Digits under other dims


def regroup(axes: Sequence[Axis], dims: Dims, new_dims: Dims) -> list[Axis] | str:
    """The axes of `new_dims` that read `axes` of `dims` as one number, volumes equal and positive; why not, if none do.

    `dims` may count one coordinate more along the first axis than data has: padding there is the end of the number.

    Post-condition: the new axes place y where the old ones place x, where x and y have the same row-major index.

    >>> regroup([Axis(160, (Digit(8, 1),))], (16,), (4, 4))
    [Axis(stride=160, inner=(Digit(extent=2, stride=4),)), Axis(stride=1, inner=())]
    >>> regroup([Axis(160, (Digit(8, 1),))], (24,), (2, 12))
    '12 elements do not end where a digit of (3, 160) (8, 1) does'
    """
    digits = _in_a_row(axes, dims)
    if isinstance(digits, str):
        return digits
    said = digits_text(digits)
    result = []
    for want in reversed(new_dims[1:]):
        axis = _taken(digits, want)
        if axis is None:
            return f"{want} elements do not end where a digit of {said} does"
        result.append(axis)
    result.append(Axis(digits[0].stride, tuple(digits[1:])))
    return result[::-1]


def digits_text(digits: Sequence[Digit]) -> str:
    """Digits as messages write them.

    >>> digits_text((Digit(3, 160), Digit(8, 1)))
    '(3, 160) (8, 1)'
    """
    return " ".join(f"({d.extent}, {d.stride})" for d in digits)


def _in_a_row(axes: Sequence[Axis], dims: Dims) -> list[Digit] | str:
    """The digits of all axes as those of one number, the leading one with the extent its dim needs."""
    row: list[Digit] = []
    for i, (axis, n) in enumerate(zip(axes, dims, strict=True)):
        if n == 1:
            continue
        mine = normal_axis(axis, n).digits(n)
        if row and prod(d.extent for d in mine) != n:
            return f"the {n} elements of the {_ordinal(i)} axis joined end inside a block of {axis.block}"
        row += mine
    if not row:
        return [Digit(1, 1)]
    return list(normal_axis(Axis(row[0].stride, tuple(row[1:])), prod(dims)).digits(prod(dims)))


def _ordinal(i: int) -> str:
    """What messages call an axis that others stand before."""
    return {1: "second", 2: "third"}.get(i) or f"{i + 1}th"


def _taken(digits: list[Digit], want: int) -> Axis | None:
    """The axis of `want` coordinates that the last of `digits` make, taken off them; None where it ends inside one."""
    taken: list[Digit] = []
    while want > 1:
        last = digits[-1]
        part = gcd(last.extent, want)
        if part not in (last.extent, want):
            return None
        taken.append(Digit(part, last.stride))
        want //= part
        digits[-1] = Digit(last.extent // part, last.stride * part)
        if digits[-1].extent == 1 and len(digits) > 1:
            digits.pop()
    if not taken:
        return Axis(digits[-1].stride)
    return Axis(taken[-1].stride, tuple(reversed(taken[:-1])))


def collapsed(dims: Dims, axes: Sequence[Axis]) -> list[tuple[int, Axis]]:
    """Dims and axes without unit axes, and with neighbors joined where the left one goes on where the right one ends.

    >>> collapsed((2, 3, 1, 4), [Axis(24), Axis(8), Axis(5), Axis(2)])
    [(24, Axis(stride=2, inner=()))]
    """
    result: list[tuple[int, Axis]] = []
    for n, axis in zip(reversed(dims), reversed(axes), strict=True):
        left = normal_axis(axis, n)
        if n == 1:
            continue
        if result:
            m, right = result[-1]
            digits = right.digits(m)
            step = left.inner[-1].stride if left.inner else left.stride
            if step == digits[0].extent * digits[0].stride and m == prod(d.extent for d in digits):
                joined = Axis(left.stride, left.inner + digits)
                result[-1] = (n * m, normal_axis(joined, n * m))
                continue
        result.append((n, left))
    return result[::-1]


# Reshape


Rule: TypeAlias = Literal["volume", "zero", "padding", "blocks", "stride", "region", "runtime", "kind"]
"""What stands in the way.

`volume`: the number of elements differs. `zero`: a dim of 0 would have to be joined or split. `padding`: padding would
come to lie between elements, or be lost. `blocks`: an element run would end inside a block. `stride`: axes to be joined
do not follow one another in memory. `region`: a box does not lie within the dims. `runtime`: a dim or stride is not
known. `kind`: there is no layout, or more than elements, to view.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A run of axes that no layout gives under the new dims, and the rule it breaks."""

    run: Run
    """Which axes."""
    rule: Rule
    """The kind of rule."""
    problem: str
    """The rule with its numbers, a phrase."""


def reshaped(dims: Dims, axes: Sequence[Axis], new_dims: Dims, digits: bool) -> list[Axis] | Fault:
    """The axes of `new_dims` that place the elements of `axes` in the same row-major order, or why there are none.

    Axes that are split or joined get several digits only if `digits` allows it.

    >>> reshaped((4, 6), [Axis(1), Axis(4)], (2, 2, 6), digits=False)
    [Axis(stride=2, inner=()), Axis(stride=1, inner=()), Axis(stride=4, inner=())]
    """
    if prod(dims) != prod(new_dims):
        return Fault(
            (0, len(dims), 0, len(new_dims)),
            "volume",
            f"dims {dims} hold {prod(dims)} elements, {new_dims} {prod(new_dims)}: a reshape keeps their number",
        )
    result: list[Axis] = []
    if 0 in dims:
        return [Axis(0)] * len(new_dims)
    for run in runs(dims, dims, new_dims):
        if run[0] == run[1]:
            new_end = run[3]
            lead = result[-1].digits(new_dims[new_end])[0] if result else Digit(1, 1)
            result.append(Axis(lead.extent * lead.stride))
            continue
        part = regrouped(dims, axes, new_dims, run, digits)
        if isinstance(part, Fault):
            return part
        result += part[::-1]
    return result[::-1]


def regrouped(dims: Dims, axes: Sequence[Axis], new_dims: Dims, run: Run, digits: bool) -> list[Axis] | Fault:
    """The new axes of one of the `runs`, as `reshaped` wants them; none for one that is dropped or inserted."""
    old, old_end, new, new_end = run
    if old == old_end or new == new_end:
        return []
    mine, wanted = axes[old:old_end], new_dims[new:new_end]
    if dims[old:old_end] == wanted:
        return list(mine)
    attempt = attempt_text(run, new_dims, "axis {}".format)
    plain = not any(axis.inner for axis in mine)
    gap = first_gap(range(old, old_end), dims, axes) if plain and not digits else None
    if gap is not None:
        return Fault(run, "stride", f"{attempt}: {stride_problem(*gap, dims, axes, 'axis {}'.format)}")
    part = regroup(mine, dims[old:old_end], wanted)
    if isinstance(part, str):
        return Fault(run, "blocks", f"{attempt}: {part}")
    uneven = [(axis, n) for axis, n in zip(part, wanted, strict=True) if axis.inner]
    if uneven and not digits:
        axis, n = uneven[0]
        problem = f"no one stride leads along its {n} elements, only digits {digits_text(axis.digits(n))}"
        return Fault(run, "blocks", f"{attempt}: {problem}")
    return part


def first_gap(places: range, dims: Dims, axes: Sequence[Axis]) -> tuple[int, int, int] | None:
    """The first two plain axes that do not follow one another, axes of one apart, and the stride the left one needs."""
    for left, right in pairwise([i for i in places if dims[i] != 1]):
        need = dims[right] * axes[right].stride
        if axes[left].stride != need:
            return left, right, need
    return None


Name: TypeAlias = Callable[[int], str]
"""What messages call an axis."""


def stride_problem(left: int, right: int, need: int, dims: Dims, axes: Sequence[Axis], name: Name) -> str:
    """That axis `left` does not go on where axis `right` ends."""
    return (
        f"{name(left)} has stride {axes[left].stride}, but {need} would follow {name(right)} of {dims[right]} elements "
        f"with stride {axes[right].stride}"
    )


def attempt_text(run: Run, new_dims: Dims, name: Name) -> str:
    """What a reshape would do to a run of axes, and cannot."""
    old, old_end, new, new_end = run
    into = " x ".join(map(str, new_dims[new:new_end]))
    if new == new_end:
        return f"{name(old)} cannot be dropped"
    if old_end - old == 1:
        return f"{name(old)} cannot be split into {into}"
    return f"{name(old)} to {name(old_end - 1)} cannot become {into}"


# Refusals and their repairs


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refusal(Generic[T]):
    """Why there is no such view of a layout or descriptor `T`, and what to do instead, in words and as values."""

    rule: Rule
    """What stands in the way."""
    axes: tuple[int, ...]
    """The axes, of what was to be viewed, that it concerns; empty where it concerns all."""
    problem: str
    """The rule with its numbers."""
    remedy: str = ""
    """The repairs below, in words; empty where there are none."""
    nearest: Dims | None = None
    """Dims close to those asked for that are a view."""
    free: T | None = None
    """The view itself in free digits, where only the format cannot say it: what `digits=True` returns."""
    target: T | None = None
    """What to reorder to: of this, the view is one. Of all candidates the one that moves least."""
    moved: int | None = None
    """What that reorder moves, read and written: bytes for a descriptor, elements for a layout."""

    def __str__(self) -> str:
        """The text of the error: the problem, and below it the remedy."""
        return f"{self.problem}\n    {self.remedy}" if self.remedy else self.problem


def remedy_of(nearest: str, free: bool, reorder: str) -> str:
    """The repairs that there are, in words and in the order of their price.

    >>> remedy_of("(2, 18) -> (1, 2, 18) works", True, "")
    '(2, 18) -> (1, 2, 18) works; digits=True gives the view in free digits'
    """
    free_digits = "digits=True gives the view in free digits" if free else ""
    return "; ".join(part for part in (nearest, free_digits, reorder) if part)


def deed(run: Run, name: Name) -> str:
    """What a reshape does to a run of axes: to split b, to join a to c, to drop d.

    >>> deed((0, 2, 0, 1), "ab".__getitem__)
    'join a to b'
    """
    old, old_end, new, new_end = run
    if old_end - old == 1:
        return f"{'drop' if new == new_end else 'split'} {name(old)}"
    return f"{'join' if new_end - new == 1 else 'regroup'} {name(old)} to {name(old_end - 1)}"


def nearest_dims(dims: Dims, padded: Dims, new_dims: Dims, works: Callable[[Run], bool]) -> Dims | None:
    """`new_dims` with the old dims in place of every run that does not work, led by 1s where those are fewer.

    None where that is `dims` again, which is no news.

    >>> nearest_dims((2, 18, 5, 4), (2, 24, 5, 4), (2, 2, 9, 5, 4), lambda run: run[:2] != (1, 2))
    (2, 1, 18, 5, 4)
    """
    result: Dims = ()
    for run in runs(dims, padded, new_dims):
        old, old_end, new, new_end = run
        if works(run):
            result = new_dims[new:new_end] + result
        else:
            result = (1,) * ((new_end - new) - (old_end - old)) + dims[old:old_end] + result
    return result if result != dims else None


def nearest_volumes(volume: int, new_dims: Dims) -> list[Dims]:
    """`new_dims` with one dim changed so that they hold `volume` > 0 elements, the least change by ratio first.

    >>> nearest_volumes(6, (2, 4))
    [(2, 3)]
    """
    from fractions import Fraction  # slow to import, and only refusals compare ratios

    found = []
    for i, dim in enumerate(new_dims):
        rest = prod(new_dims[:i] + new_dims[i + 1 :])
        if rest > 0 and dim > 0 and volume and volume % rest == 0:
            wanted = volume // rest
            found.append(
                (max(Fraction(dim, wanted), Fraction(wanted, dim)), (*new_dims[:i], wanted, *new_dims[i + 1 :]))
            )
    return [shape for _, shape in sorted(found)]


# Permutations


def permuted(values: Sequence[T], permutation: Sequence[int]) -> tuple[T, ...]:
    """`values` with entry i moved to place `permutation[i]`.

    >>> permuted("nchw", (0, 3, 1, 2))
    ('n', 'h', 'w', 'c')
    """
    result = list(values)
    for value, place in zip(values, permutation, strict=True):
        result[place] = value
    return tuple(result)


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `permutation`.

    >>> inverse((0, 3, 1, 2))
    (0, 2, 3, 1)
    """
    return permuted(range(len(permutation)), permutation)


def require_permutation(what: str, permutation: Sequence[int], ndims: int) -> None:
    """Refuse what is not each of 0..ndims-1 once, and say the nearest permutation; `what` names the argument.

    Raises:
        InvalidArguments: an axis is missing, repeated or out of range.
    """
    if sorted(permutation) == list(range(ndims)):
        return
    remedy = f"\n    {nearest_permutation(permutation, ndims)} works" if ndims else ""
    faults = ", ".join(_faults(permutation, ndims))
    raise InvalidArguments(f"{what} {tuple(permutation)} must use each of 0..{ndims - 1} once: {faults}{remedy}")


def nearest_permutation(wanted: Sequence[int], ndims: int) -> tuple[int, ...]:
    """`wanted` with what is missing, in order, in place of what is repeated or no axis, and as long as needed.

    >>> nearest_permutation((0, 3, 3, 2), 4)
    (0, 3, 1, 2)
    """
    missing = iter([i for i in range(ndims) if i not in wanted])
    result: list[int] = []
    for i in range(ndims):
        entry = wanted[i] if i < len(wanted) else -1
        if 0 <= entry < ndims and entry not in result:
            result.append(entry)
        else:
            result.append(next(missing, -1))
    rest = iter([i for i in range(ndims) if i not in result])
    return tuple(next(rest) if i < 0 else i for i in result)


def _faults(permutation: Sequence[int], ndims: int) -> Iterator[str]:
    missing = [str(i) for i in range(ndims) if i not in permutation]
    if missing:
        yield f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    for i in sorted(set(permutation)):
        if not 0 <= i < ndims:
            yield f"{i} is no axis"
        elif (count := list(permutation).count(i)) > 1:
            yield f"{i} appears {'twice' if count == 2 else f'{count} times'}"


def _listed(words: Sequence[str]) -> str:
    return words[-1] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# Digits that two axes share


Map: TypeAlias = int | tuple[int, ...]
"""Where the values of a digit go: a stride, or one offset for each value. In elements."""


@dataclass(frozen=True, slots=True)
class CommonDigit:
    """A digit that two layouts of one axis share."""

    extent: int
    """How many values it takes."""
    weight: int
    """Coordinates from one value to the next."""
    first: Map
    """Where the first layout puts each value."""
    second: Map
    """Where the second layout puts each value."""


def refine(first: Axis, second: Axis, n: int) -> tuple[CommonDigit, ...]:
    """The digits that both axes share for `n` coordinates, most significant first.

    Where the blocks of the two divide one another every digit has a stride on both sides. Where they do not, as for
    blocks of 8 and of 12, one digit runs over their common multiple and has a table of offsets instead.

    Post-condition: for every x < n, with digit values x // weight % extent (the leading one not reduced), the maps
    of `first` sum to its offset of x, and those of `second` to its own.

    >>> from inlay.layout import Digit
    >>> refine(Axis(160, (Digit(8, 1),)), Axis(160), 24)[-1]
    CommonDigit(extent=8, weight=1, first=1, second=160)
    """
    cuts = _common_cuts(_cuts(first) | _cuts(second), n)
    bounds = [*cuts, max(cuts[-1], cuts[-1] * -(-n // cuts[-1]))]
    digits = []
    for low, high in pairwise(bounds):
        maps = [_map_between(axis, low, high) for axis in (first, second)]
        digits.append(CommonDigit(high // low, low, maps[0], maps[1]))
    return tuple(reversed(digits))


def _cuts(axis: Axis) -> set[int]:
    """The weights of the digits of an axis."""
    cuts = {1}
    for digit in reversed(axis.inner):
        cuts.add(max(cuts) * digit.extent)
    return cuts


def _common_cuts(cuts: set[int], n: int) -> list[int]:
    """The weights at which every digit of both axes can be split, ascending; each divides the next."""
    pairs = {f(a, b) for a in cuts for b in cuts for f in (gcd, lcm)} | {lcm(*cuts)}
    chain: list[int] = []
    for cut in sorted(pairs):
        splits_all = all(cut % c == 0 or c % cut == 0 for c in cuts)
        # A multiple that no axis has and no coordinate reaches would only make a longer table.
        wanted = cut in cuts or cut < n
        if splits_all and wanted and (not chain or (cut % chain[-1] == 0 and chain[-1] < n)):
            chain.append(cut)
    return chain


def _map_between(axis: Axis, low: int, high: int) -> Map:
    """Where `axis` puts the digit of weight `low` and extent `high // low`: a stride if one serves."""
    extent = high // low
    if extent == 1:
        return 0
    if _is_affine(axis, low, high):
        return axis.offset(low)
    offsets = tuple(axis.offset(value * low) for value in range(extent))
    return offsets[1] if all(b - a == offsets[1] for a, b in pairwise(offsets)) else offsets


def _is_affine(axis: Axis, low: int, high: int) -> bool:
    """Whether no digit boundary of `axis` lies strictly between the weights `low` and `high`."""
    return not any(low < cut < high for cut in _cuts(axis))
