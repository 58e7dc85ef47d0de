"""The repairs of refusals work.

The proposed dims have the view, the proposed target can be reshaped after a reorder to it, and the number of bytes is
that of this reorder.
"""

import re
from ast import literal_eval
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Axis, Dims, Layout, Refusal
from inlay.memory import Memory, pack, reorder
from inlay.notation.format_tag import FormatTag
from inlay.reordering.problem import build_reorder_problem
from inlay.testing import descriptors
from tests.support.refusals import raises_exactly
from tests.support.view_coordinates import coordinates, regroupings


def places(desc: MemoryDesc, dims: Dims | None = None) -> list[int]:
    return list(desc.offset(coordinates(desc.dims if dims is None else dims)).tolist())


class TestRepairsAreTrue:
    @given(descriptors(broadcast=True), st.data())
    def test_try_reshape_gives_what_reshape_gives_or_its_text_and_dims_that_are_a_view(
        self, desc: MemoryDesc, data: st.DataObject
    ) -> None:
        dims, digits = data.draw(regroupings(desc.dims)), data.draw(st.booleans())
        result = desc.try_reshape(dims, digits=digits)
        if isinstance(result, MemoryDesc):
            assert result == desc.reshape(dims, digits=digits)
            return
        with raises_exactly(InvalidArguments, str(result)):
            desc.reshape(dims, digits=digits)
        assert str(result).startswith(result.problem)
        assert set(result.axes) <= set(range(desc.ndims))
        if result.nearest is not None:
            assert result.nearest != desc.dims
            assert desc.reshape(result.nearest, digits=digits).dims == result.nearest
            assert f"{result.nearest} works" in result.remedy

    @given(descriptors(broadcast=True), st.data())
    def test_the_target_can_be_reshaped_the_bytes_are_the_reorders_and_digits_give_what_is_offered(
        self, desc: MemoryDesc, data: st.DataObject
    ) -> None:
        dims = data.draw(regroupings(desc.dims))
        refusal = desc.try_reshape(dims)
        if isinstance(refusal, MemoryDesc) or 0 in desc.dims:
            return
        view = desc.try_reshape(dims, digits=True)
        assert refusal.free == (view if isinstance(view, MemoryDesc) else None)
        assert ("digits=True" in refusal.remedy) == (refusal.free is not None)
        assert desc.data_type is not None
        if refusal.target is None:
            assert desc.data_type.is_sub_byte  # whose strides may not be odd
            return
        assert (refusal.target.dims, refusal.target.data_type) == (desc.dims, desc.data_type)
        assert refusal.target.reshape(dims).dims == dims
        bits = (prod(desc.dims) + prod(refusal.target.padded_dims)) * desc.data_type.bits
        assert refusal.moved is not None
        assert 0 <= refusal.moved - bits / 8 < 2
        if not desc.data_type.is_sub_byte:
            assert refusal.moved == build_reorder_problem(desc, refusal.target).moved_bytes

    @given(descriptors(), st.data())
    def test_no_plain_order_moves_less(self, desc: MemoryDesc, data: st.DataObject) -> None:
        dims = data.draw(regroupings(desc.dims))
        refusal = desc.try_reshape(dims)
        assert desc.data_type is not None
        if isinstance(refusal, MemoryDesc) or refusal.moved is None or desc.data_type.is_sub_byte:
            return  # strides of 4-bit elements must be even, so row-major order may be none of their formats
        for order in permutations(range(desc.ndims)):
            plain = MemoryDesc(desc.dims, desc.data_type, FormatTag(order))
            if isinstance(plain.try_reshape(dims), MemoryDesc):
                assert refusal.moved <= build_reorder_problem(desc, plain).moved_bytes

    @given(descriptors(), st.data())
    def test_a_volume_offered_is_a_view(self, desc: MemoryDesc, data: st.DataObject) -> None:
        dims = list(data.draw(regroupings(desc.dims))) or [1]
        if 0 in dims:
            return
        dims[data.draw(st.integers(0, len(dims) - 1))] += data.draw(st.integers(1, 3))
        refusal = desc.try_reshape(dims)
        if isinstance(refusal, MemoryDesc) or refusal.nearest is None:
            return
        assert refusal.rule == "volume"
        assert desc.reshape(refusal.nearest).dims == refusal.nearest
        assert sum(a != b for a, b in zip(refusal.nearest, dims, strict=True)) == 1

    @given(descriptors(), st.data())
    def test_a_box_offered_works_and_holds_the_one_asked_for(self, desc: MemoryDesc, data: st.DataObject) -> None:
        starts = tuple(data.draw(st.integers(0, dim)) for dim in desc.dims)
        rests = [dim - start + (dim == 3) for dim, start in zip(desc.dims, starts, strict=True)]
        dims = tuple(data.draw(st.integers(0, rest)) for rest in rests)
        try:
            desc.submemory(dims, starts)
            return
        except (InvalidArguments, Unimplemented) as error:
            text, cuts = str(error), isinstance(error, Unimplemented)
        offered = re.search(r"\n    dims (\(.*?\)) at offsets (\(.*?\)) work( and hold that box)?", text)
        assert offered is not None
        held = set(places(desc.submemory(literal_eval(offered[1]), literal_eval(offered[2]))))
        assert cuts == (offered[3] is not None)
        if cuts:
            asked = desc.offset(coordinates(dims) + np.array(starts, np.int64))
            assert set(asked.tolist()) <= held
            _require_true_reorder(desc, dims, starts, text)


def _require_true_reorder(desc: MemoryDesc, dims: Dims, starts: Dims, text: str) -> None:
    reorder_to = re.search(r"reorder to (\w+) first \((.*) moved\)", text)
    assert desc.data_type is not None
    if reorder_to is None:
        assert desc.data_type.is_sub_byte
        return
    target = MemoryDesc(desc.dims, desc.data_type, reorder_to[1])
    assert target.submemory(dims, starts).dims == dims
    number, unit = reorder_to[2].split(" ")
    # Elements of 4 bits end in the middle of a byte, and whole bytes move.
    moved = sum(-(-prod(dims) * desc.data_type.bits // 8) for dims in (desc.dims, target.padded_dims))
    scale = {"byte": 1.0, "bytes": 1.0, "kB": 1e3}[unit]
    assert abs(float(number) * scale - moved) <= max(1.0, 0.05 * scale)


class TestFreeDigits:
    @given(descriptors(broadcast=True), st.data())
    def test_every_element_keeps_its_offset_and_digits_give_all_that_onednn_gives(
        self, desc: MemoryDesc, data: st.DataObject
    ) -> None:
        dims = data.draw(regroupings(desc.dims))
        result, view = desc.try_reshape(dims, digits=True), desc.reshape(dims, allow_empty=True)
        if isinstance(result, Refusal) or result.is_zero:
            assert view.is_zero
            return
        assert result.dims == dims
        assert places(result) == places(desc)
        assert view.is_zero or result.padded_dims == view.padded_dims

    @given(descriptors(), st.data())
    def test_padding_stays_padding(self, desc: MemoryDesc, data: st.DataObject) -> None:
        dims = data.draw(regroupings(desc.dims))
        result = desc.try_reshape(dims, digits=True)
        if isinstance(result, Refusal) or result.is_zero or 0 in dims:
            return
        assert sorted(places(result, result.padded_dims)) == sorted(places(desc, desc.padded_dims))
        if result.kind == "blocked":
            self._require_blocked_in_onednn(result)

    def _require_blocked_in_onednn(self, desc: MemoryDesc) -> None:
        assert isinstance(desc.layout, Layout)
        # As after oneDNN's own reshape, the stride of an axis of one block may be anything, and odd for 4 bits.
        padded = desc.padded_dims
        axes = [Axis(2**40, a.inner) if n <= a.block else a for n, a in zip(padded, desc.layout.axes, strict=True)]
        assert MemoryDesc.from_layout(Layout(padded, tuple(axes)), "u8", dims=desc.dims).kind == "blocked"

    def test_a_blocked_axis_is_split_where_its_blocks_end(self) -> None:
        blocked = MemoryDesc((2, 16, 5, 4), "f32", "nChw8c")
        split = blocked.reshape((2, 2, 8, 5, 4), digits=True)
        assert (split.kind, split.strides) == ("blocked", (320, 160, 1, 32, 8))
        across = blocked.reshape((2, 4, 4, 5, 4), digits=True)
        assert (across.kind, across.pattern) == ("digits", "a (b b2) c d e -> a b d e b2 c")
        assert blocked.reshape((32, 20), digits=True).pattern == "(a a8) b -> a b a8"

    def test_padding_may_end_an_axis_but_not_lie_inside_it(self) -> None:
        padded = MemoryDesc((18, 4), "f32", "Ab8a")
        assert padded.reshape((9, 2, 4), digits=True).padded_dims == (12, 2, 4)
        assert padded.reshape((72,), digits=True).padded_dims == (96,)
        for dims in ((2, 9, 4), (4, 18)):
            assert isinstance(padded.try_reshape(dims, digits=True), Refusal)

    @pytest.mark.parametrize("dims", [(2, 4, 4, 5, 4), (32, 20), (2, 2, 8, 20)])
    def test_elements_read_through_free_digits_are_those_of_numpys_reshape(self, dims: Dims) -> None:
        array = np.arange(2 * 16 * 5 * 4, dtype=np.float32).reshape(2, 16, 5, 4)
        blocked = pack(array, "nChw8c")
        view = Memory(blocked.desc.reshape(dims, digits=True), blocked.buffer)
        assert np.array_equal(view.unpack(), array.reshape(dims))

    def test_after_the_reorder_offered_the_view_reads_as_numpys_reshape(self) -> None:
        array = np.arange(2 * 18 * 5 * 4, dtype=np.float32).reshape(2, 18, 5, 4)
        blocked = pack(array, "nChw8c")
        refusal = blocked.desc.try_reshape((2, 2, 9, 5, 4))
        assert isinstance(refusal, Refusal)
        assert refusal.target is not None
        moved = reorder(blocked, refusal.target)
        view = Memory(moved.desc.reshape((2, 2, 9, 5, 4)), moved.buffer)
        assert np.array_equal(view.unpack(), array.reshape(2, 2, 9, 5, 4))


@pytest.mark.parametrize(
    ("format", "named", "target"),
    [
        ("nChw8c", "axis 1 (c)", "nchw"),
        ("aBcd8b", "axis 1 (b)", "abcd"),
        ("gOiw8o", "axis 1 (o)", "goiw"),
        (FormatTag.parse("nChw8c"), "axis 1 (c)", "nchw"),
        (FormatTag((0, 1, 2, 3), ((1, 8),)), "axis 1 (b)", "abcd"),
    ],
)
def test_axes_and_targets_have_the_letters_of_the_format_as_it_was_said(format: Any, named: str, target: str) -> None:
    refusal = MemoryDesc((2, 18, 5, 4), "f32", format).try_reshape((2, 2, 9, 5, 4))
    assert isinstance(refusal, Refusal)
    assert refusal.problem.startswith(named)
    assert f"reorder to {target} first" in refusal.remedy


@pytest.mark.parametrize(
    ("desc", "dims", "remedy"),
    [
        (
            MemoryDesc((2, 18, 5, 4), "f32", "nChw8c").permute_axes((0, 1, 3, 2)),
            (2, 2, 9, 4, 5),
            "to split b, reorder to abdc first",
        ),
        (
            MemoryDesc((2, 3, 4, 5), "f32", "wigo"),
            (2, 12, 5),
            "to join o to i, reorder to woig first (960 bytes moved)",
        ),
    ],
)
def test_a_target_of_a_view_or_a_strange_order_is_said_in_its_letters(
    desc: MemoryDesc, dims: Dims, remedy: str
) -> None:
    refusal = desc.try_reshape(dims)
    assert isinstance(refusal, Refusal)
    assert remedy in refusal.remedy
