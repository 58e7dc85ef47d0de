"""What is refused is called by its name: the argument, the key, the axis, the rule; and small answers at the edges."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from inlay import views
from inlay.data_type import DATA_TYPES
from inlay.descriptor import Extras, MemoryDesc, kinds
from inlay.descriptor.sparsity import sparse_counts
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout, Refusal, refine
from inlay.layout.permutation import nearest_permutation

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


def test_views_of_layouts_raise_what_their_faults_say() -> None:
    """A box outside the dims is invalid; one that cuts a block is possible, but not here."""
    layout, dims = BLOCKED.require_layout("a view")[0], BLOCKED.dims
    with pytest.raises(InvalidArguments, match=r"^axis 0 \(a\) to axis 1 \(b\) cannot become 32: .* in blocks of 8$"):
        views.reshape(dims, layout, (32, 5, 4))
    assert views.reshape(dims, layout, (32, 5, 4), digits=True).dims == (32, 5, 4)
    with pytest.raises(InvalidArguments, match=r"^axis 0 \(a\) of the submemory takes 1 from 2, outside its 2"):
        views.submemory(dims, layout, (1, 3, 5, 4), (2, 0, 0, 0))
    with pytest.raises(Unimplemented, match=r"^axis 1 \(b\) of the submemory takes 3 from 4, which cuts a block of 8"):
        views.submemory(dims, layout, (1, 3, 5, 4), (0, 4, 0, 0))


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
