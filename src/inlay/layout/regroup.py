"""The rules of reshape: which old axes become which new axes, their digits, and the refusal of impossible views.

A reshape keeps the row-major order of elements. So old and new dims are matched from the right: the shortest runs of
old and new axes with equal volume form an `AxisMatch`. Within a match, the digits of the old axes are concatenated to
those of one number. The new axes take digits off its end, from the last axis to the first, and a digit is split if the
new dim divides it:

    (2, 16) of nChw8c's n, c     digits   n (2, 320)   c (2, 160) (8, 1)
    -> (4, 2, 4)                 from the right   4 of (8, 1);  the 2 left of it, (2, 4);  (2, 320) (2, 160) = (4, 160)

If a new dim would end inside a digit, as 9 would in digits of 3 and 8, no layout gives the same elements, and the
result is a `ViewFault`.

A `Refusal` is a fault with repairs, from the cheapest on: the nearest dims for which a view exists, a view with digits
that no format has (`digits=True`), and the layout to reorder to, after which the view exists:

    axis 1 (c) cannot be split into 2 x 9: its 18 elements are padded to 24 in blocks of 8
        nChw8c (2, 18, 5, 4) -> (2, 1, 18, 5, 4) works; to split c, reorder to nchw first (5.8 kB moved)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod
from typing import Generic, Literal, TypeAlias, TypeVar

from inlay.layout.axis import Axis, Digit, Dims, normal_axis

# Matching old and new axes


AxisMatch: TypeAlias = tuple[int, int, int, int]
"""A run of old axes and the run of new axes that replaces it: old start, old end, new start, new end (ends exclusive).
"""


def match_axes(dims: Dims, padded: Dims, new_dims: Dims) -> Iterator[AxisMatch]:
    """Return the matches of old and new axes in a reshape, from the last axis to the first.

    A unit axis without padding is dropped, and a new unit axis is inserted, each as a match with an empty side. A
    padded unit axis is matched with a new unit axis if there is one. All other axes are matched as the shortest runs of
    equal volume. A dim of 0 is matched with a dim of 0 only; if that is impossible, the last match is all remaining
    axes.

    >>> list(match_axes((2, 12, 1), (2, 12, 1), (2, 3, 4)))
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
    """Return the starts of the shortest runs of equal volume that end at `old_end` and `new_end`; (0, 0) if none."""
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


def has_equal_volume(dims: Dims, new_dims: Dims, match: AxisMatch) -> bool:
    """Return True if both sides of `match` have the same volume, and it is not a remainder that contains a dim of 0.

    >>> has_equal_volume((2, 0, 2), (0, 4), (0, 3, 0, 2))
    False
    """
    old, old_end, new, new_end = match
    have, want = dims[old:old_end], new_dims[new:new_end]
    return have == want or (prod(have) == prod(want) and 0 not in have)


# Digits of the new axes


def regroup_digits(axes: Sequence[Axis], dims: Dims, new_dims: Dims) -> list[Axis] | str:
    """Return axes of `new_dims` with the elements of `axes` in the same row-major order, or a text why there are none.

    `dims` and `new_dims` have the same volume, which is positive. The first of `dims` may include padding.

    Post-condition: coordinates x and y of the same row-major index have the same offset in the old and the new axes.

    >>> regroup_digits([Axis(160, (Digit(8, 1),))], (16,), (4, 4))
    [Axis(stride=160, inner=(Digit(extent=2, stride=4),)), Axis(stride=1, inner=())]
    >>> regroup_digits([Axis(160, (Digit(8, 1),))], (24,), (2, 12))
    '12 elements do not end where a digit of (3, 160) (8, 1) does'
    """
    digits = _concatenate_digits(axes, dims)
    if isinstance(digits, str):
        return digits
    old_text = digits_text(digits)
    result = []
    for dim in reversed(new_dims[1:]):
        axis = _split_off_axis(digits, dim)
        if axis is None:
            return f"{dim} elements do not end where a digit of {old_text} does"
        result.append(axis)
    result.append(Axis(digits[0].stride, tuple(digits[1:])))
    return result[::-1]


def digits_text(digits: Sequence[Digit]) -> str:
    """Return the text of digits in messages.

    >>> digits_text((Digit(3, 160), Digit(8, 1)))
    '(3, 160) (8, 1)'
    """
    return " ".join(f"({d.extent}, {d.stride})" for d in digits)


def _concatenate_digits(axes: Sequence[Axis], dims: Dims) -> list[Digit] | str:
    """Return the digits of all axes as those of one number in normal form, or a text why that is impossible.

    Only the first axis may have a partial block: behind another axis, the row-major index would skip offsets.
    """
    row: list[Digit] = []
    for i, (axis, n) in enumerate(zip(axes, dims, strict=True)):
        if n == 1:
            continue
        own = normal_axis(axis, n).digits(n)
        if row and prod(d.extent for d in own) != n:
            return f"the {n} elements of the {_ordinal(i)} axis joined end inside a block of {axis.block}"
        row += own
    if not row:
        return [Digit(1, 1)]
    return list(normal_axis(Axis(row[0].stride, tuple(row[1:])), prod(dims)).digits(prod(dims)))


def _ordinal(i: int) -> str:
    """Return the ordinal of axis `i` >= 1, counted from 0: "second" for 1."""
    return {1: "second", 2: "third"}.get(i) or f"{i + 1}th"


def _split_off_axis(digits: list[Digit], dim: int) -> Axis | None:
    """Remove the last `dim` values from `digits` and return them as an axis; None if they would end inside a digit."""
    taken: list[Digit] = []
    while dim > 1:
        last = digits[-1]
        part = gcd(last.extent, dim)
        if part not in (last.extent, dim):
            return None
        taken.append(Digit(part, last.stride))
        dim //= part
        digits[-1] = Digit(last.extent // part, last.stride * part)
        if digits[-1].extent == 1 and len(digits) > 1:
            digits.pop()
    if not taken:
        return Axis(digits[-1].stride)
    return Axis(taken[-1].stride, tuple(reversed(taken[:-1])))


def collapse_axes(dims: Dims, axes: Sequence[Axis]) -> list[tuple[int, Axis]]:
    """Return dims and axes without unit axes, with every two neighbors joined that are contiguous in memory.

    >>> collapse_axes((2, 3, 1, 4), [Axis(24), Axis(8), Axis(5), Axis(2)])
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


ViewRule: TypeAlias = Literal["volume", "zero", "padding", "blocks", "stride", "region", "runtime", "kind"]
"""The rule that a view would break.

`volume`: the number of elements differs. `zero`: a dim of 0 would have to be joined or split. `padding`: padding would
come between elements, or be lost. `blocks`: a new axis would end inside a block. `stride`: axes to be joined are not
contiguous. `region`: a box is not within the dims. `runtime`: a dim or stride is RUNTIME. `kind`: the descriptor has no
layout, or buffers besides the elements.
"""


@dataclass(frozen=True, slots=True)
class ViewFault:
    """The reason why a view does not exist: the axes concerned and the rule that they break."""

    match: AxisMatch
    """The old axes concerned, and the new axes that would replace them."""
    rule: ViewRule
    """Kind of the rule."""
    problem: str
    """Text of the error: the rule with its numbers."""


def reshape_axes(dims: Dims, axes: Sequence[Axis], new_dims: Dims, digits: bool) -> list[Axis] | ViewFault:
    """Return axes of `new_dims` with the elements of `axes` in the same row-major order, or the fault if none exist.

    Axes that are split or joined get several digits only if `digits` is true.

    >>> reshape_axes((4, 6), [Axis(1), Axis(4)], (2, 2, 6), digits=False)
    [Axis(stride=2, inner=()), Axis(stride=1, inner=()), Axis(stride=4, inner=())]
    """
    if prod(dims) != prod(new_dims):
        return ViewFault(
            (0, len(dims), 0, len(new_dims)),
            "volume",
            f"dims {dims} hold {prod(dims)} elements, {new_dims} {prod(new_dims)}: a reshape keeps their number",
        )
    result: list[Axis] = []
    if 0 in dims:
        return [Axis(0)] * len(new_dims)
    for match in match_axes(dims, dims, new_dims):
        if match[0] == match[1]:
            new_end = match[3]
            lead = result[-1].digits(new_dims[new_end])[0] if result else Digit(1, 1)
            result.append(Axis(lead.extent * lead.stride))
            continue
        part = reshape_match(dims, axes, new_dims, match, digits)
        if isinstance(part, ViewFault):
            return part
        result += part[::-1]
    return result[::-1]


def reshape_match(
    dims: Dims, axes: Sequence[Axis], new_dims: Dims, match: AxisMatch, digits: bool
) -> list[Axis] | ViewFault:
    """Return the new axes of one match, or its fault; an empty list if a unit axis is dropped or inserted.

    `digits` is that of `reshape_axes`.
    """
    old, old_end, new, new_end = match
    if old == old_end or new == new_end:
        return []
    old_axes, wanted = axes[old:old_end], new_dims[new:new_end]
    if dims[old:old_end] == wanted:
        return list(old_axes)
    attempt = failure_text(match, new_dims, "axis {}".format)
    plain = not any(axis.inner for axis in old_axes)
    gap = first_gap(range(old, old_end), dims, axes) if plain and not digits else None
    if gap is not None:
        return ViewFault(match, "stride", f"{attempt}: {stride_problem(*gap, dims, axes, 'axis {}'.format)}")
    part = regroup_digits(old_axes, dims[old:old_end], wanted)
    if isinstance(part, str):
        return ViewFault(match, "blocks", f"{attempt}: {part}")
    uneven = [(axis, n) for axis, n in zip(part, wanted, strict=True) if axis.inner]
    if uneven and not digits:
        axis, n = uneven[0]
        problem = f"no one stride leads along its {n} elements, only digits {digits_text(axis.digits(n))}"
        return ViewFault(match, "blocks", f"{attempt}: {problem}")
    return part


def first_gap(places: range, dims: Dims, axes: Sequence[Axis]) -> tuple[int, int, int] | None:
    """Return the first two neighboring plain axes that are not contiguous, and the stride the left one would need.

    Unit axes are skipped. The result is None if all axes are contiguous.
    """
    for left, right in pairwise([i for i in places if dims[i] != 1]):
        need = dims[right] * axes[right].stride
        if axes[left].stride != need:
            return left, right, need
    return None


AxisNaming: TypeAlias = Callable[[int], str]
"""A function that returns the name of an axis in messages."""


def stride_problem(left: int, right: int, need: int, dims: Dims, axes: Sequence[Axis], name: AxisNaming) -> str:
    """Return the error text for two axes that are not contiguous; `need` is the stride that `left` should have."""
    return (
        f"{name(left)} has stride {axes[left].stride}, but {need} would follow {name(right)} of {dims[right]} elements "
        f"with stride {axes[right].stride}"
    )


def failure_text(match: AxisMatch, new_dims: Dims, name: AxisNaming) -> str:
    """Return the beginning of an error text: which axes cannot be split, joined or dropped."""
    old, old_end, new, new_end = match
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
    """The reason why a view of a layout or descriptor `T` does not exist, and its repairs, in words and as values."""

    rule: ViewRule
    """Kind of the rule that the view would break."""
    axes: tuple[int, ...]
    """Axes of the layout or descriptor that break the rule; empty if the rule concerns no single axis."""
    problem: str
    """Text of the error: the rule with its numbers."""
    remedy: str = ""
    """The repairs below, in words; empty if there are none."""
    nearest: Dims | None = None
    """Dims near the requested ones for which the view exists; None if none were found."""
    free: T | None = None
    """The requested view with digits that no format has, as `digits=True` returns it; None if it does not exist."""
    target: T | None = None
    """The layout or descriptor to reorder to, of which the requested view exists; None if none was found. Of all
    candidates, it is the one that moves the least."""
    moved: int | None = None
    """Amount that the reorder to `target` reads and writes: bytes for a descriptor, elements for a layout."""

    def __str__(self) -> str:
        """Return the error text: the problem, and the remedy on the next line."""
        return f"{self.problem}\n    {self.remedy}" if self.remedy else self.problem


def remedy_text(nearest: str, free: bool, reorder: str) -> str:
    """Return the text of the repairs, the cheapest first; empty arguments and `free` False leave a repair out.

    >>> remedy_text("(2, 18) -> (1, 2, 18) works", True, "")
    '(2, 18) -> (1, 2, 18) works; digits=True gives the view in free digits'
    """
    free_digits = "digits=True gives the view in free digits" if free else ""
    return "; ".join(part for part in (nearest, free_digits, reorder) if part)


def reshape_text(match: AxisMatch, name: AxisNaming) -> str:
    """Return the text of a reshape of one match: "split b", "join a to c", "drop d".

    >>> reshape_text((0, 2, 0, 1), "ab".__getitem__)
    'join a to b'
    """
    old, old_end, new, new_end = match
    if old_end - old == 1:
        return f"{'drop' if new == new_end else 'split'} {name(old)}"
    return f"{'join' if new_end - new == 1 else 'regroup'} {name(old)} to {name(old_end - 1)}"


def nearest_dims(dims: Dims, padded: Dims, new_dims: Dims, works: Callable[[AxisMatch], bool]) -> Dims | None:
    """Return `new_dims` with the old dims in place of every match for which `works` is false.

    The old dims are padded on the left with 1s to the number of the new ones. None if the result is `dims` itself.

    >>> nearest_dims((2, 18, 5, 4), (2, 24, 5, 4), (2, 2, 9, 5, 4), lambda match: match[:2] != (1, 2))
    (2, 1, 18, 5, 4)
    """
    result: Dims = ()
    for match in match_axes(dims, padded, new_dims):
        old, old_end, new, new_end = match
        if works(match):
            result = new_dims[new:new_end] + result
        else:
            result = (1,) * ((new_end - new) - (old_end - old)) + dims[old:old_end] + result
    return result if result != dims else None


def nearest_volumes(volume: int, new_dims: Dims) -> list[Dims]:
    """Return variants of `new_dims` with one dim changed so that the volume is `volume`, the smallest ratio first.

    >>> nearest_volumes(6, (2, 4))
    [(2, 3)]
    """
    from fractions import Fraction  # slow to import, and only refusals compare ratios

    variants = []
    for i, dim in enumerate(new_dims):
        rest = prod(new_dims[:i] + new_dims[i + 1 :])
        if rest > 0 and dim > 0 and volume and volume % rest == 0:
            wanted = volume // rest
            ratio = max(Fraction(dim, wanted), Fraction(wanted, dim))
            variants.append((ratio, (*new_dims[:i], wanted, *new_dims[i + 1 :])))
    return [shape for _, shape in sorted(variants)]
