"""Errors name the argument, the key, the axis and the rule; and results in corner cases."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from inlay.data_type import DATA_TYPES
from inlay.descriptor import Extras, MemoryDesc, kinds
from inlay.descriptor.serialization import DescriptorParts, validate_parts
from inlay.descriptor.sparsity import sparse_counts
from inlay.errors import InvalidArguments
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout, Refusal, refine, views
from inlay.layout.permutation import nearest_permutation
from inlay.layout.regroup import ViewFault

ROWS = MemoryDesc((3, 4), "f32")
CSR = MemoryDesc.csr((3, 4), "f32", 2)
BLOCKED = MemoryDesc((2, 16, 5, 4), "f32", "aBcd8b")
FLAGGED = MemoryDesc((2, 4), "s8", extras=Extras(flags=1, compensation_mask=1))
POSITIONS = "positions are integers of whole bytes, one of s32, s8, u8, s64"


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (lambda: MemoryDesc.csr((3, 4), "f32", 2, "f32"), f"index_type is f32: {POSITIONS}"),
        (lambda: MemoryDesc.csr((3, 4), "f32", 2, "s32", "s4"), f"pointer_type is s4: {POSITIONS}"),
        (lambda: MemoryDesc.coo((3, 4), "f32", 2, "f32"), f"index_type is f32: {POSITIONS}"),
        (lambda: ROWS.rename_axes((0.5, 1)), "order[0] is 0.5: entries are integers"),  # type: ignore[arg-type]
        (lambda: ROWS.permute_axes((0.5, 1)), "permutation[0] is 0.5: entries are integers"),  # type: ignore[arg-type]
        (
            lambda: MemoryDesc((RUNTIME, 4), "f32").bind((3, 4), strides=(0.5, 1)),  # type: ignore[arg-type]
            "strides[0] is 0.5: entries are integers",
        ),
        (lambda: Layout.row_major((3, 4)).broadcast((2.5, 3, 4)), "dim 0 is 2.5: dims are integers"),  # type: ignore[arg-type]
        (
            lambda: MemoryDesc((2, 3), "f32", "any").byte_offset((0, 0)),
            "byte_offset needs a layout: MemoryDesc((2, 3), 'f32', 'any') is of kind any",
        ),
    ],
)
def test_an_argument_is_called_by_its_name(refused: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        refused()
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("desc", "key", "value", "text"),
    [
        (ROWS, "padded_dims", [3, "x"], "padded_dims[1] is 'x': give an integer of 64 bits"),
        (ROWS, "strides", [3, "x"], "strides[1] is 'x': give an integer of 64 bits"),
        (CSR, "nnz", "2", "nnz is '2': give an integer of 64 bits"),
        (FLAGGED, "extras", {"flags": 32, "gpu_geometry": 5}, "extras.gpu_geometry is 5: give a list"),
    ],
)
def test_a_key_of_json_is_called_by_its_name(desc: MemoryDesc, key: str, value: Any, text: str) -> None:
    changed = json.loads(desc.to_json()) | {key: value}
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc.from_json(json.dumps(changed))
    assert str(caught.value) == f"this is no JSON of a descriptor: {text}"


@pytest.mark.parametrize(
    ("desc", "dims", "rule"),
    [
        (CSR, (12,), "kind"),
        (MemoryDesc(), (1,), "kind"),
        (FLAGGED, (8,), "kind"),
        (MemoryDesc((RUNTIME, 4), "f32"), (4,), "runtime"),
        (ROWS, (RUNTIME,), "runtime"),
        (ROWS, (13,), "volume"),
    ],
)
def test_a_refusal_of_the_whole_descriptor_names_its_rule_and_all_axes(desc: MemoryDesc, dims: Dims, rule: str) -> None:
    refusal = desc.try_reshape(dims)
    assert isinstance(refusal, Refusal)
    assert (refusal.rule, refusal.axes) == (rule, tuple(range(desc.ndims)))


def test_faults_of_views_of_layouts_name_axes_and_rule() -> None:
    """A box outside the dims is a fault of the region; one that cuts a block is possible, but not here."""
    layout, dims = BLOCKED.require_layout("a view")[0], BLOCKED.dims
    joined = views.try_reshape(dims, layout, (32, 5, 4))
    assert isinstance(joined, ViewFault)
    assert joined.rule == "blocks"
    assert re.search(r"^axis 0 \(a\) to axis 1 \(b\) cannot become 32: .* in blocks of 8$", joined.problem)
    free = views.try_reshape(dims, layout, (32, 5, 4), digits=True)
    assert isinstance(free, Layout)
    assert free.dims == (32, 5, 4)
    outside = views.try_submemory(dims, layout, (1, 3, 5, 4), (2, 0, 0, 0))
    assert isinstance(outside, ViewFault)
    assert outside.rule == "region"
    assert outside.problem.startswith("axis 0 (a) of the submemory takes 1 from 2, outside its 2")
    cut = views.try_submemory(dims, layout, (1, 3, 5, 4), (0, 4, 0, 0))
    assert isinstance(cut, ViewFault)
    assert cut.rule == "blocks"
    assert cut.problem.startswith("axis 1 (b) of the submemory takes 3 from 4, which cuts a block of 8")


@pytest.mark.parametrize(
    ("desc", "text"),
    [
        (MemoryDesc(), "undef::undef:::"),
        (MemoryDesc((1, 4), "f32", "any"), "f32:a:any:any::f0"),
        (MemoryDesc((1, 4), "f32", pattern="a (b b2) -> b2 a b"), "f32:a:digits:(1,2)x(2,1)(2,2)::f0"),
        (CSR, "f32:a:sparse:csr::f0"),
        (MemoryDesc.host_scalar("f32"), "f32:ap:host_scalar:::f0"),
        (MemoryDesc((3,), "s8", "A2a"), "s8:ap:blocked:A2a::f0"),
    ],
)
def test_a_text_says_that_any_was_asked_for(desc: MemoryDesc, text: str) -> None:
    assert desc.text(was_any=True) == text


def test_no_buffer_of_an_empty_sparse_tensor_has_elements() -> None:
    s32 = DATA_TYPES["s32"]
    assert sparse_counts((0, 4), kinds.CSR(0, s32, s32)) == (0, 0, 0)
    assert sparse_counts((3, 0), kinds.COO(0, s32)) == (0, 0, 0)


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
    tag = f"{letters[:before]}{letters[before].upper()}{letters[before + 1 :]}4{letters[before]}"
    layout = Layout(dims, MemoryDesc(dims, "f32", tag).require_layout("axes")[0].axes)
    refusal = layout.try_reshape((6 * 2 ** (before + 1),))
    assert isinstance(refusal, Refusal)
    assert f"the 6 elements of the {ordinal} axis joined end inside a block of 4" in str(refusal)


def test_refined_digits_that_follow_one_another_need_no_table() -> None:
    """24 in digits of 4 and of 6, both dense: each common digit has a stride on both sides."""
    one, other = (Axis(n, (Digit(n, 1),)) for n in (4, 6))
    digits = refine(one, other, 24)
    assert all(isinstance(found, int) for digit in digits for found in (digit.first, digit.second)), digits


@pytest.mark.parametrize(
    ("refused", "rule", "axes"),
    [
        (lambda: BLOCKED.try_reshape((32, 20)), "blocks", (0, 1)),
        (lambda: MemoryDesc((6,), "f32", padded_dims=(12,)).try_reshape((2, 3)), "padding", (0,)),
        (lambda: MemoryDesc((2, 1), "f32", padded_dims=(2, 4)).try_reshape((2,)), "padding", (1,)),
        (lambda: MemoryDesc((9, 3), "f32", "aB8b").submemory((9, 1), (0, 0)).try_reshape((9,)), "blocks", (1,)),
        (lambda: MemoryDesc((6, 2), "f32", "ba").try_reshape((12,)), "stride", (0, 1)),
        (lambda: MemoryDesc((2, 0), "f32").try_reshape((0, 2)), "zero", (0, 1)),
        (lambda: MemoryDesc((2, 0), "f32").try_reshape((0, 3)), "volume", (0, 1)),
        (lambda: MemoryDesc((24, 3), "f32", "Ab8a").try_reshape((2, 12, 3), digits=True), "blocks", (0,)),
        (lambda: BLOCKED.require_layout("a view")[0].try_reshape((2, 4, 4, 5, 4)), "blocks", (1,)),
        (lambda: Layout((24,), (Axis(16, (Digit(8, 1),)),)).try_reshape((2, 12)), "blocks", (0,)),
        (lambda: Layout((24,), (Axis(40, (Digit(8, 1),)),)).try_reshape((2, 12), digits=True), "blocks", (0,)),
        (lambda: Layout.column_major((6, 2)).try_reshape((12,)), "stride", (0, 1)),
        (lambda: Layout.row_major((6, 2)).try_reshape((13,)), "volume", (0, 1)),
    ],
)
def test_a_refusal_names_its_rule_and_the_axes_it_concerns(
    refused: Callable[[], object], rule: str, axes: Dims
) -> None:
    refusal = refused()
    assert isinstance(refusal, Refusal)
    assert (refusal.rule, refusal.axes) == (rule, axes)


def test_refined_digits_end_where_coordinates_do() -> None:
    axis = Axis(64, (Digit(8, 8), Digit(8, 1)))
    assert [digit.weight for digit in refine(axis, Axis(1), 6)] == [8, 1]


def test_a_box_of_unknown_size_is_no_box_outside() -> None:
    fault = views.region_fault((4, 6), (4, RUNTIME), (0, 0))
    assert fault is not None
    assert (fault.rule, fault.problem) == (
        "runtime",
        "axis 1 (b) of the submemory is RUNTIME: give its dim and offset as numbers",
    )


def test_dims_offered_instead_keep_all_that_works() -> None:
    """Two axes are split: one as asked, one not. With digits, an axis of blocks is one that works."""
    plain = Layout((4, 24, 6), (Axis(144), Axis(48, (Digit(8, 1),)), Axis(8))).try_reshape((2, 2, 4, 6, 6))
    assert isinstance(plain, Refusal)
    assert plain.nearest == (2, 2, 1, 24, 6)
    blocked = MemoryDesc((16, 18), "f32", "AB8a8b").try_reshape((2, 8, 2, 9), digits=True)
    assert isinstance(blocked, Refusal)
    assert blocked.nearest == (2, 8, 1, 18)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        *[
            (parts, "only the zero descriptor has no dims and no data type, and it has neither")
            for parts in (
                DescriptorParts((4,), None, kinds.Undefined()),
                DescriptorParts((4,), DATA_TYPES["f32"], kinds.Undefined()),
                DescriptorParts((), DATA_TYPES["f32"], kinds.Any()),
                DescriptorParts((4,), None, kinds.Any()),
            )
        ],
        *[
            (parts, "offset0 and extras belong to a layout: this descriptor has none")
            for parts in (
                DescriptorParts((4,), DATA_TYPES["f32"], kinds.Any(), offset0=3),
                DescriptorParts((4,), DATA_TYPES["s8"], kinds.Any(), extras=Extras(flags=1, compensation_mask=1)),
            )
        ],
        (
            DescriptorParts((2,), DATA_TYPES["f32"], kinds.HostScalar()),
            "a host scalar has dims (1,), not (2,)",
        ),
    ],
)
def test_parts_of_no_descriptor_are_refused(parts: DescriptorParts, text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        validate_parts(parts)
    assert str(caught.value) == text


def test_an_axis_of_no_elements_steps_nowhere() -> None:
    assert Layout((2, 0), (Axis(8), Axis(8, (Digit(8, 1),)))).strides == (8, 0)


def test_part_of_a_block_is_no_dense_text() -> None:
    """oneDNN counts whole blocks, and a part of one is none."""
    assert MemoryDesc((16,), "f32", "A8a").submemory((3,), (0,)).text() == "f32::blocked:A8a:8:f0"


def test_different_descriptors_seldom_share_a_hash() -> None:
    assert len({hash(MemoryDesc((m, n), "f32")) for m in range(1, 20) for n in range(1, 20)}) > 350


@pytest.mark.parametrize(
    "make",
    [
        lambda: MemoryDesc(()),
        lambda: MemoryDesc((2,), "f32", "undef"),
        lambda: MemoryDesc((-1,), "f32", allow_empty=True),
        lambda: MemoryDesc((1,), "f32").reshape(()),
        lambda: ROWS.reshape((13,), allow_empty=True),
        lambda: ROWS.permute_axes((0, 0), allow_empty=True),
        lambda: ROWS.rename_axes((0, 0), allow_empty=True),
        lambda: ROWS.submemory((4, 4), (0, 0), allow_empty=True),
        lambda: ROWS.bind((3, 5), allow_empty=True),
        lambda: MemoryDesc.host_scalar("none", allow_empty=True),
    ],
)
def test_there_is_one_zero_descriptor(make: Callable[[], MemoryDesc]) -> None:
    zero = make()
    assert (zero, zero.kind, zero.layout, zero.data_type) == (MemoryDesc(), "undef", kinds.Undefined(), None)
