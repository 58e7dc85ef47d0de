"""Properties of `Layout`: every post-condition of the package, checked by NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.errors import InvalidArguments
from inlay.layout import RUNTIME, Axis, CommonDigit, Digit, Layout, refine
from inlay.testing import layouts
from tests.support.refusals import raises_exactly
from tests.support.view_coordinates import axis_offsets, coordinates, expected_offsets, offsets


def axes() -> st.SearchStrategy[Axis]:
    digits = st.builds(Digit, st.sampled_from([1, 2, 3, 4, 5, 8, 12]), st.integers(-20, 20))
    return st.builds(Axis, st.integers(-20, 20), st.lists(digits, max_size=3).map(tuple))


NCHW8C = Layout((2, 24, 5, 4), (Axis(480), Axis(160, (Digit(8, 1),)), Axis(32), Axis(8)))


class TestOffset:
    @given(layouts())
    def test_offset_is_the_sum_of_digit_times_stride(self, layout: Layout) -> None:
        assert np.array_equal(offsets(layout), expected_offsets(layout))

    @given(layouts(), st.data())
    def test_offset_of_one_coordinate_equals_offset_of_an_array(self, layout: Layout, data: st.DataObject) -> None:
        if layout.size:
            point = tuple(data.draw(st.integers(0, n - 1)) for n in layout.dims)
            assert type(layout.offset(point)) is int
            assert layout.offset(point) == expected_offsets(layout)[point]

    def test_offset_keeps_the_shape_of_the_coordinates(self) -> None:
        points = np.zeros((3, 2, 4), np.uint8)
        points[2, 1] = (1, 23, 4, 3)
        found = NCHW8C.offset(points)
        assert (found.shape, found.dtype) == ((3, 2), np.int64)
        assert found[2, 1] == 480 + 2 * 160 + 7 + 4 * 32 + 3 * 8
        assert NCHW8C.offset(np.zeros((0, 4))).shape == (0,)

    def test_one_coordinate_never_wraps(self) -> None:
        assert Layout.from_strides((3, 2), (2**62, 1)).offset((2, 1)) == 2**63 + 1

    def test_a_layout_without_axes_has_one_coordinate(self) -> None:
        layout = Layout((), ())
        assert (layout.offset(()), layout.size, layout.span) == (0, 1, (0, 1))
        assert layout.offset(np.zeros((2, 0), np.int64)).tolist() == [0, 0]

    def test_offsets_of_many_coordinates_are_those_of_each_and_leave_the_coordinates_alone(self) -> None:
        layout = Layout((24, 7, 40), (Axis(2240, (Digit(4, 1),)), Axis(320), Axis(64, (Digit(5, 4),))))
        points = np.random.default_rng(0).integers(0, layout.dims, (40_000, 3))
        for asked in (points, np.asfortranarray(points), points.astype(np.int16), points[::-1]):
            before = asked.copy()
            assert np.array_equal(layout.offset(asked), expected_offsets(layout)[tuple(asked.T)])
            assert np.array_equal(asked, before)

    def test_of_many_coordinates_the_first_axis_at_fault_is_named_wherever_it_stands(self) -> None:
        points = np.zeros((40_000, 2), np.int64)
        points[1, 1], points[-1, 0] = 6, 4
        with raises_exactly(InvalidArguments, "coordinate 4 of axis 0 is outside 0..3"):
            Layout.row_major((4, 6)).offset(points)


class TestSpan:
    @given(layouts())
    def test_span_is_the_range_of_all_offsets(self, layout: Layout) -> None:
        every = expected_offsets(layout)
        assert layout.span == ((every.min(), every.max() + 1) if every.size else (0, 0))

    @given(axes(), st.integers(1, 60))
    def test_axis_bounds_are_the_least_and_the_greatest_offset(self, axis: Axis, n: int) -> None:
        assert axis.bounds(n) == (axis_offsets(axis, n).min(), axis_offsets(axis, n).max())

    def test_a_block_cut_short_does_not_reach_its_end(self) -> None:
        assert Layout((3,), (Axis(100, (Digit(8, 1),)),)).span == (0, 3)


class TestOverlap:
    @given(layouts())
    def test_overlaps_says_whether_two_coordinates_share_an_offset(self, layout: Layout) -> None:
        every = expected_offsets(layout)
        assert layout.overlaps == (np.unique(every).size < every.size)

    @given(layouts())
    def test_is_dense_says_whether_offsets_fill_their_span(self, layout: Layout) -> None:
        every = np.sort(expected_offsets(layout), axis=None)
        assert layout.is_dense == bool((np.diff(every) == 1).all())

    @pytest.mark.parametrize(
        ("dims", "strides", "expected"),
        [
            ((4, 4), (4, 1), False),
            ((4, 4), (3, 1), True),
            ((4, 4), (-4, 1), False),
            ((4, 4), (0, 1), True),
            ((1, 4), (0, 1), False),
            ((2, 2), (3, 2), False),
            ((3, 3), (3, 2), False),
            ((3, 4), (3, 2), True),
            ((0, 4), (0, 0), False),
            ((2**40, 2**20), (2**20, 1), False),
            ((2**40, 2**20), (2**20 - 1, 1), True),
        ],
    )
    def test_overlaps(self, dims: tuple[int, ...], strides: tuple[int, ...], expected: bool) -> None:
        assert Layout.from_strides(dims, strides).overlaps is expected

    @pytest.mark.parametrize(("stride", "n"), [(2, 2), (-1, 4)])
    def test_only_the_coordinates_that_exist_overlap(self, stride: int, n: int) -> None:
        axis = Axis(stride, (Digit(3, 1),))
        assert not Layout((n,), (axis,)).overlaps
        assert Layout((5,), (axis,)).overlaps


class TestNormalForm:
    @given(layouts())
    def test_normal_form_is_the_same_map_and_its_own_normal_form(self, layout: Layout) -> None:
        assert np.array_equal(expected_offsets(layout.normal_form), expected_offsets(layout))
        assert layout.normal_form.normal_form == layout.normal_form

    @given(st.integers(0, 30), axes(), axes())
    def test_normal_forms_agree_exactly_when_maps_agree(self, n: int, first: Axis, second: Axis) -> None:
        one, two = Layout((n,), (first,)), Layout((n,), (second,))
        same = np.array_equal(axis_offsets(first, n), axis_offsets(second, n))
        assert (one.normal_form == two.normal_form) == same
        assert one.equivalent(two) == same

    @given(layouts(), st.data())
    def test_a_respelled_layout_is_equivalent(self, layout: Layout, data: st.DataObject) -> None:
        respelled = Layout(layout.dims, tuple(respell(axis, data) for axis in layout.axes))
        assert np.array_equal(expected_offsets(respelled), expected_offsets(layout))
        assert respelled.equivalent(layout)
        assert hash(respelled.normal_form) == hash(layout.normal_form)

    def test_equivalent_needs_equal_dims(self) -> None:
        assert not Layout.from_strides((2, 3), (3, 1)).equivalent(Layout.from_strides((2, 2), (3, 1)))
        assert Layout.from_strides((0, 3), (3, 1)).equivalent(Layout.from_strides((0, 3), (1, 7)))


def respell(axis: Axis, data: st.DataObject) -> Axis:
    """The same map with unit digits inserted and digits split in two where their extent allows."""
    inner: list[Digit] = []
    for digit in axis.inner:
        factor = data.draw(st.sampled_from([f for f in range(1, digit.extent + 1) if digit.extent % f == 0]))
        inner += [Digit(digit.extent // factor, digit.stride * factor), Digit(factor, digit.stride)]
    if data.draw(st.booleans()):
        inner.append(Digit(1, data.draw(st.integers(-5, 5))))
    return Axis(axis.stride, tuple(inner))


class TestRefine:
    @given(axes(), axes(), st.integers(0, 80))
    def test_refined_digits_sum_to_both_offsets(self, first: Axis, second: Axis, n: int) -> None:
        digits = refine(first, second, n)
        for axis, side in ((first, "first"), (second, "second")):
            found = [sum(value_at(d, getattr(d, side), x, d is digits[0]) for d in digits) for x in range(n)]
            assert found == axis_offsets(axis, n).tolist(), (side, digits)

    @given(axes(), axes(), st.integers(0, 80))
    def test_weights_are_the_products_of_the_finer_extents(self, first: Axis, second: Axis, n: int) -> None:
        digits = refine(first, second, n)
        assert [d.weight for d in digits] == [math.prod(e.extent for e in digits[i + 1 :]) for i in range(len(digits))]
        assert math.prod(d.extent for d in digits) >= n

    def test_blocks_that_divide_one_another_have_strides_only(self) -> None:
        digits = refine(Axis(128, (Digit(8, 1),)), Axis(128, (Digit(16, 1),)), 64)
        assert digits == (CommonDigit(4, 16, 256, 128), CommonDigit(2, 8, 128, 8), CommonDigit(8, 1, 1, 1))

    def test_blocks_that_do_not_divide_one_another_share_a_table_over_their_multiple(self) -> None:
        digits = refine(Axis(80, (Digit(8, 1),)), Axis(120, (Digit(12, 1),)), 48)
        assert digits == (
            CommonDigit(2, 24, 240, 240),
            CommonDigit(6, 4, (0, 4, 80, 84, 160, 164), (0, 4, 8, 120, 124, 128)),
            CommonDigit(4, 1, 1, 1),
        )

    def test_dense_digits_of_different_extents_need_no_table(self) -> None:
        digits = refine(Axis(4, (Digit(4, 1),)), Axis(6, (Digit(6, 1),)), 24)
        assert all(isinstance(found, int) for digit in digits for found in (digit.first, digit.second)), digits

    def test_a_multiple_that_no_coordinate_reaches_makes_no_table(self) -> None:
        digits = refine(Axis(5000, (Digit(1000, 1),)), Axis(7007, (Digit(1001, 1),)), 3)
        assert digits == (CommonDigit(3, 1, 1, 1),)

    def test_refined_digits_end_where_coordinates_do(self) -> None:
        assert [digit.weight for digit in refine(Axis(64, (Digit(8, 8), Digit(8, 1))), Axis(1), 6)] == [8, 1]


def value_at(digit: CommonDigit, where: int | tuple[int, ...], x: int, leads: bool) -> int:
    value = x // digit.weight if leads else x // digit.weight % digit.extent
    return value * where if isinstance(where, int) else where[value]


class TestFromStrides:
    @given(st.sampled_from([np.uint8, np.float16, np.float32, np.float64]), st.permutations(range(3)), st.booleans())
    def test_from_strides_addresses_any_numpy_view(self, dtype: type, order: list[int], flipped: bool) -> None:
        base: np.ndarray = np.arange(2 * 3 * 4).astype(dtype).reshape(2, 3, 4)
        view = base.transpose(order)[:, ::-1] if flipped else base.transpose(order)[::2]
        layout = Layout.from_strides(view.shape, view.strides, view.itemsize)
        start = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // view.itemsize
        assert base.ravel()[start + layout.offset(coordinates(view.shape))].tolist() == view.ravel().tolist()

    def test_numpy_integers_become_python_integers(self) -> None:
        layout = Layout.from_strides(np.array([2, 3]), np.array([3, 1]))  # type: ignore[arg-type]
        assert all(type(v) is int for v in (*layout.dims, layout.axes[0].stride))


def test_runtime_digits_have_a_runtime_leading_extent() -> None:
    layout = Layout((RUNTIME, 3), (Axis(3), Axis(1)))
    assert layout.has_runtime
    assert layout.digits[0] == (Digit(RUNTIME, 3),)


def test_an_axis_of_no_elements_steps_nowhere() -> None:
    assert Layout((2, 0), (Axis(8), Axis(8, (Digit(8, 1),)))).strides == (8, 0)


def test_a_layout_is_a_value() -> None:
    twin = Layout((2, 24, 5, 4), (Axis(480), Axis(160, (Digit(8, 1),)), Axis(32), Axis(8)))
    assert (twin, hash(twin)) == (NCHW8C, hash(NCHW8C))
    with pytest.raises(AttributeError):
        twin.dims = ()  # type: ignore[misc]
