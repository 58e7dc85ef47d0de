"""Refusals of views as values: their rule, their axes, and the dims that they offer instead."""

import pytest

from inlay.descriptor import Extras, MemoryDesc
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout, Refusal, views
from inlay.layout.permutation import nearest_permutation
from inlay.layout.regroup import ViewFault

ROWS = MemoryDesc((3, 4), "f32")
CSR = MemoryDesc.csr((3, 4), "f32", 2)
BLOCKED = MemoryDesc((2, 16, 5, 4), "f32", "aBcd8b")
BLOCKED_LAYOUT = BLOCKED.require_layout("a view")[0]
FLAGGED = MemoryDesc((2, 4), "s8", extras=Extras(flags=1, compensation_mask=1))


@pytest.mark.parametrize(
    ("refusal", "rule", "axes"),
    [
        (BLOCKED.try_reshape((32, 20)), "blocks", (0, 1)),
        (MemoryDesc((6,), "f32", padded_dims=(12,)).try_reshape((2, 3)), "padding", (0,)),
        (MemoryDesc((2, 1), "f32", padded_dims=(2, 4)).try_reshape((2,)), "padding", (1,)),
        (MemoryDesc((9, 3), "f32", "aB8b").submemory((9, 1), (0, 0)).try_reshape((9,)), "blocks", (1,)),
        (MemoryDesc((4, 18), "f32", "aB8b").try_reshape((72,), digits=True), "padding", (0, 1)),
        (MemoryDesc((6, 2), "f32", "ba").try_reshape((12,)), "stride", (0, 1)),
        (MemoryDesc((2, 0), "f32").try_reshape((0, 2)), "zero", (0, 1)),
        (MemoryDesc((2, 0), "f32").try_reshape((0, 3)), "volume", (0, 1)),
        (MemoryDesc((24, 3), "f32", "Ab8a").try_reshape((2, 12, 3), digits=True), "blocks", (0,)),
        (BLOCKED_LAYOUT.try_reshape((2, 4, 4, 5, 4)), "blocks", (1,)),
        (Layout((24,), (Axis(16, (Digit(8, 1),)),)).try_reshape((2, 12)), "blocks", (0,)),
        (Layout((24,), (Axis(40, (Digit(8, 1),)),)).try_reshape((2, 12), digits=True), "blocks", (0,)),
        (Layout.column_major((6, 2)).try_reshape((12,)), "stride", (0, 1)),
        (Layout.row_major((6, 2)).try_reshape((13,)), "volume", (0, 1)),
        # Of the whole descriptor: all axes
        (CSR.try_reshape((12,)), "kind", (0, 1)),
        (MemoryDesc().try_reshape((1,)), "kind", ()),
        (FLAGGED.try_reshape((8,)), "kind", (0, 1)),
        (MemoryDesc((RUNTIME, 4), "f32").try_reshape((4,)), "runtime", (0, 1)),
        (ROWS.try_reshape((RUNTIME,)), "runtime", (0, 1)),
        (ROWS.try_reshape((13,)), "volume", (0, 1)),
    ],
)
def test_a_refusal_names_its_rule_and_the_axes_it_concerns(refusal: object, rule: str, axes: Dims) -> None:
    assert isinstance(refusal, Refusal)
    assert (refusal.rule, refusal.axes) == (rule, axes)


@pytest.mark.parametrize(
    ("fault", "rule", "problem"),
    [
        (
            views.try_reshape(BLOCKED.dims, BLOCKED_LAYOUT, (32, 5, 4)),
            "blocks",
            "axis 0 (a) to axis 1 (b) cannot become 32: the 16 elements of axis 1 (b) are in blocks of 8",
        ),
        (
            views.try_submemory(BLOCKED.dims, BLOCKED_LAYOUT, (1, 3, 5, 4), (2, 0, 0, 0)),
            "region",
            "axis 0 (a) of the submemory takes 1 from 2, outside its 2",
        ),
        (
            views.try_submemory(BLOCKED.dims, BLOCKED_LAYOUT, (1, 3, 5, 4), (0, 4, 0, 0)),
            "blocks",
            "axis 1 (b) of the submemory takes 3 from 4, which cuts a block of 8",
        ),
        (
            views.region_fault((4, 6), (4, RUNTIME), (0, 0)),
            "runtime",
            "axis 1 (b) of the submemory is RUNTIME: give its dim and offset as numbers",
        ),
    ],
)
def test_a_fault_of_a_view_of_a_layout_names_axes_and_rule(fault: object, rule: str, problem: str) -> None:
    assert isinstance(fault, ViewFault)
    assert fault.rule == rule
    assert fault.problem.startswith(problem)


def test_a_layout_joins_a_blocked_axis_by_free_digits() -> None:
    free = views.try_reshape(BLOCKED.dims, BLOCKED_LAYOUT, (32, 5, 4), digits=True)
    assert isinstance(free, Layout)
    assert free.dims == (32, 5, 4)


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [((2,), (2, 0, 1)), ((0, 0, 0, 1, 2), (0, 1, 2)), ((2, 2, 0), (2, 1, 0)), ((5, -1, 1), (0, 2, 1))],
)
def test_the_nearest_permutation_keeps_what_can_stay(wanted: Dims, nearest: Dims) -> None:
    assert nearest_permutation(wanted, 3) == nearest


@pytest.mark.parametrize(("before", "ordinal"), [(1, "second"), (2, "third"), (3, "4th")])
def test_an_axis_that_ends_inside_a_block_is_counted_from_the_outside(before: int, ordinal: str) -> None:
    dims = (2,) * before + (6, 2)
    letters = "abcdef"[: len(dims)]
    tag = letters.replace(letters[before], letters[before].upper()) + f"4{letters[before]}"
    layout = Layout(dims, MemoryDesc(dims, "f32", tag).require_layout("axes")[0].axes)
    refusal = layout.try_reshape((6 * 2 ** (before + 1),))
    assert f"the 6 elements of the {ordinal} axis joined end inside a block of 4" in str(refusal)


def test_dims_offered_instead_keep_all_that_works() -> None:
    """Two axes are split: one as asked, one not. With digits, an axis of blocks is one that works."""
    plain = Layout((4, 24, 6), (Axis(144), Axis(48, (Digit(8, 1),)), Axis(8))).try_reshape((2, 2, 4, 6, 6))
    blocked = MemoryDesc((16, 18), "f32", "AB8a8b").try_reshape((2, 8, 2, 9), digits=True)
    assert isinstance(plain, Refusal)
    assert isinstance(blocked, Refusal)
    assert (plain.nearest, blocked.nearest) == ((2, 2, 1, 24, 6), (2, 8, 1, 18))
