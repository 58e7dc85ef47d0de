"""Views do not move elements: each post-condition of `views`, checked by offsets."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Dims, Layout, views
from inlay.testing import descriptors
from tests.support.refusals import raises_exactly
from tests.support.view_coordinates import Offsets, coordinates, regroupings


def element_offsets(desc: MemoryDesc) -> Offsets:
    """The offset of every element, padding left out, in row-major order of the coordinates."""
    return np.asarray(desc.offset(coordinates(desc.dims)))


@given(descriptors(broadcast=True), st.data())
def test_permute_axes_and_rename_axes_are_numpys_transpose(desc: MemoryDesc, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(desc.ndims)))
    renamed = desc.rename_axes(order)
    grid = desc.offset(coordinates(desc.padded_dims)).reshape(desc.padded_dims)
    assert renamed.dims == tuple(desc.dims[i] for i in order)
    assert renamed.padded_dims == grid.transpose(order).shape
    assert renamed.offset(coordinates(renamed.padded_dims)).tolist() == grid.transpose(order).ravel().tolist()
    assert renamed.permute_axes(order) == desc
    assert desc.permute_axes(views.inverse(order)) == renamed


@st.composite
def boxes(draw: st.DrawFn, desc: MemoryDesc) -> tuple[Dims, Dims]:
    """A box that a submemory can be: whole blocks, part of one, or all up to the border."""
    layout, _ = desc.require_layout("a box")
    dims, offsets = [], []
    for dim, axis in zip(desc.dims, layout.axes, strict=True):
        start = axis.block * draw(st.integers(0, dim // axis.block))
        rest = dim - start
        sizes = [rest, *range(0, rest, axis.block), *range(min(rest, axis.block))]
        dims.append(draw(st.sampled_from(sizes)))
        offsets.append(start)
    return tuple(dims), tuple(offsets)


@given(descriptors(broadcast=True), st.data())
def test_submemory_keeps_every_offset_and_padding_at_the_border_only(desc: MemoryDesc, data: st.DataObject) -> None:
    dims, offsets = data.draw(boxes(desc))
    result = desc.submemory(dims, offsets)
    assert result.dims == dims
    for i in range(desc.ndims):
        at_border = offsets[i] + dims[i] == desc.dims[i]
        assert result.padded_dims[i] == (desc.padded_dims[i] - offsets[i] if at_border else dims[i])
    x = coordinates(result.padded_dims)
    assert result.offset(x).tolist() == desc.offset(x + np.array(offsets, np.int64)).tolist()


@given(descriptors(), st.data())
def test_submemory_of_a_submemory_is_one_submemory(desc: MemoryDesc, data: st.DataObject) -> None:
    first_dims, first = data.draw(boxes(desc))
    part = desc.submemory(first_dims, first)
    second_dims, second = data.draw(boxes(part))
    whole = desc.submemory(second_dims, np.add(first, second), allow_empty=True)
    assume(not whole.is_zero)
    assert part.submemory(second_dims, second).offset0 == whole.offset0


@given(descriptors(broadcast=True), st.data())
def test_reshape_there_and_back_keeps_every_offset(desc: MemoryDesc, data: st.DataObject) -> None:
    """Padding may come back on another unit axis: a padded one is kept at the rightmost unit axis."""
    dims = data.draw(regroupings(desc.dims))
    result = desc.reshape(dims, allow_empty=True)
    assume(not result.is_zero)
    assert result.dims == dims
    assert element_offsets(result).tolist() == element_offsets(desc).tolist()
    assert result.layout.span == desc.layout.span  # type: ignore[union-attr]
    back = result.reshape(desc.dims, allow_empty=True)
    assert element_offsets(back).tolist() == element_offsets(desc).tolist()


@given(descriptors(), st.data())
def test_reshape_of_a_dense_descriptor_always_works(desc: MemoryDesc, data: st.DataObject) -> None:
    assume(0 not in desc.dims)
    dims = data.draw(regroupings(desc.dims))
    assert MemoryDesc(desc.dims, "u8").reshape(dims) == MemoryDesc(dims, "u8")


def test_views_of_free_digits_keep_the_digits() -> None:
    """NVFP4's scale layout, which no tag can say: blocked axes move whole, plain ones are cut as ever."""
    scales = MemoryDesc((3, 256, 8), "f8_e4m3", pattern="n (m m4 m32) (k k4) -> n m k m32 m4 k4")
    turned = scales.permute_axes((2, 0, 1))
    assert turned.kind == "digits"
    assert turned.pattern == "(a a4 a32) (b b4) c -> c a b a32 a4 b4"
    assert scales.reshape((3, 1, 256, 8)).digits == (*scales.digits[:1], (Digit(1, 2048),), *scales.digits[1:])
    assert scales.submemory((1, 128, 8), (2, 128, 0)).offset0 == scales.offset((2, 128, 0))


def test_an_inserted_unit_axis_has_the_librarys_stride() -> None:
    """It uses logical dims: 17 blocked by 16 gives 17 * 256 // 16, not the 512 that two whole blocks take."""
    blocked = MemoryDesc((2, 17, 4, 4), "f32", "nChw16c")
    assert blocked.reshape((2, 1, 17, 4, 4)).strides == (512, 272, 256, 64, 16)
    assert blocked.reshape((2, 17, 4, 4, 1)).strides == (512, 256, 64, 16, 16)
    assert MemoryDesc((1, 1), "f32", strides=(7, 9)).reshape((1,)).strides == (7,)


def test_equal_descriptors_may_reshape_differently() -> None:
    """The stride of a unit axis counts where that axis lies inside a joined run."""
    odd = MemoryDesc((2, 1, 3), "f32", strides=(3, 50, 1))
    assert odd == MemoryDesc((2, 1, 3), "f32")
    assert MemoryDesc((2, 1, 3), "f32").reshape((6,)).strides == (1,)
    with pytest.raises(InvalidArguments):
        odd.reshape((6,))


@pytest.mark.parametrize(
    ("dims", "new_dims"), [((4, 0), (2, 2, 0)), ((0, 4), (0, 2, 2)), ((2, 0, 2), (2, 0, 1, 2, 1)), ((0, 6), (0, 3, 2))]
)
def test_a_dim_of_0_is_kept(dims: Dims, new_dims: Dims) -> None:
    assert MemoryDesc(dims, "f32").reshape(new_dims).dims == new_dims


@pytest.mark.parametrize(("dims", "new_dims"), [((2, 0, 2), (0, 4)), ((0, 0), (0,)), ((0, 6), (6, 0))])
def test_a_dim_of_0_is_neither_joined_nor_moved(dims: Dims, new_dims: Dims) -> None:
    text = (
        f"dims {dims} cannot be reshaped to {new_dims}: a dim of 0 is kept, neither joined with its neighbors nor split"
        f"\n    no element would move: describe a tensor of {new_dims} instead"
    )
    with raises_exactly(InvalidArguments, text):
        MemoryDesc(dims, "f32").reshape(new_dims)


def test_a_broadcast_run_joins_where_all_of_it_is_broadcast() -> None:
    assert MemoryDesc((4, 6), "f32", strides=(0, 0)).reshape((24,)).strides == (0,)
    with pytest.raises(InvalidArguments):
        MemoryDesc((4, 6), "f32", strides=(0, 1)).reshape((24,))


def test_any_takes_every_view_of_its_dims() -> None:
    desc = MemoryDesc((2, 3, 4), "f32", "any")
    assert desc.reshape((6, 4)) == MemoryDesc((6, 4), "f32", "any")
    assert desc.permute_axes((2, 0, 1)) == MemoryDesc((3, 4, 2), "f32", "any")
    assert MemoryDesc((0, 6), "f32", "any").reshape((6, 0)).dims == (6, 0)


def test_views_of_layouts_need_no_descriptor() -> None:
    """Strides of any sign pass through, as NumPy's own views show."""
    a = np.arange(24).reshape(4, 6)[::-1]
    layout = Layout.from_array(a)
    split = views.try_reshape((4, 6), layout, (4, 2, 3))
    assert isinstance(split, Layout)
    assert [axis.stride * a.itemsize for axis in split.axes] == list(a.reshape(4, 2, 3).strides)
    assert views.permute_axes(layout, (1, 0)) == Layout.from_array(a.T)
    box = views.try_submemory((4, 6), layout, (2, 3), (1, 2))
    assert isinstance(box, tuple)
    part, origin = box
    assert part.offset((1, 1)) + origin == layout.offset((2, 3))


def test_these_tests_can_fail() -> None:
    """A layout that moves one element is told from its original."""
    same, swapped = (Layout((4, 6), (Axis(6), axis)) for axis in (Axis(3, (Digit(3, 1),)), Axis(1, (Digit(3, 2),))))
    assert element_offsets(MemoryDesc.from_layout(same, "f32")).tolist() == list(range(24))
    assert element_offsets(MemoryDesc.from_layout(swapped, "f32")).tolist() != list(range(24))
