"""Properties of `Layout`: every post-condition of the package, checked by independent arithmetic."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Axis, CommonDigit, Digit, Layout, refine
from inlay.testing import layouts


def oracle(layout: Layout, coordinate: tuple[int, ...]) -> int:
    """The offset of a coordinate by counting: each axis is an odometer of its digits, advanced step by step."""
    total = 0
    for axis, x in zip(layout.axes, coordinate, strict=True):
        wheels = [0] * len(axis.inner)
        lead = 0
        for _ in range(x):
            i = len(wheels) - 1
            while i >= 0 and wheels[i] == axis.inner[i].extent - 1:
                wheels[i] = 0
                i -= 1
            if i < 0:
                lead += 1
            else:
                wheels[i] += 1
        total += lead * axis.stride + sum(w * d.stride for w, d in zip(wheels, axis.inner, strict=True))
    return total


def all_offsets(layout: Layout) -> list[int]:
    """The offset of every coordinate, in row-major order, by the oracle."""
    per_axis = [
        [oracle(Layout((n,), (axis,)), (x,)) for x in range(n)]
        for axis, n in zip(layout.axes, layout.dims, strict=True)
    ]
    return [sum(parts) for parts in product(*per_axis)]


def axes() -> st.SearchStrategy[Axis]:
    digits = st.builds(Digit, st.sampled_from([1, 2, 3, 4, 5, 8, 12]), st.integers(-20, 20))
    return st.builds(Axis, st.integers(-20, 20), st.lists(digits, max_size=3).map(tuple))


NCHW8C = Layout((2, 24, 5, 4), (Axis(480), Axis(160, (Digit(8, 1),)), Axis(32), Axis(8)))


class TestOffset:
    @given(layouts())
    def test_offset_is_the_sum_of_digit_times_stride(self, layout: Layout) -> None:
        points = np.indices(layout.dims).reshape(layout.ndims, layout.size).T
        assert layout.offset(points).tolist() == all_offsets(layout)

    @given(layouts(), st.data())
    def test_offset_of_one_coordinate_equals_offset_of_an_array(self, layout: Layout, data: st.DataObject) -> None:
        if layout.size == 0:
            return
        point = tuple(data.draw(st.integers(0, n - 1)) for n in layout.dims)
        one = layout.offset(point)
        assert type(one) is int
        assert one == oracle(layout, point)
        assert one == int(layout.offset(np.array([point], np.int64).reshape(1, layout.ndims))[0])

    def test_offset_keeps_the_shape_of_the_coordinates(self) -> None:
        points = np.zeros((3, 2, 4), np.uint8)
        points[2, 1] = (1, 23, 4, 3)
        offsets = NCHW8C.offset(points)
        assert offsets.shape == (3, 2)
        assert offsets.dtype == np.int64
        assert offsets[2, 1] == 480 + 2 * 160 + 7 + 4 * 32 + 3 * 8
        assert NCHW8C.offset(np.zeros((0, 4))).shape == (0,)

    def test_offset_leaves_the_coordinates_alone(self) -> None:
        points = np.array([[1, 23, 4, 3]])
        NCHW8C.offset(points)
        assert points.tolist() == [[1, 23, 4, 3]]

    def test_one_coordinate_never_wraps(self) -> None:
        layout = Layout.from_strides((3, 2), (2**62, 1))
        assert layout.offset((2, 1)) == 2**63 + 1

    def test_a_layout_without_axes_has_one_coordinate(self) -> None:
        layout = Layout((), ())
        assert (layout.offset(()), layout.size, layout.span) == (0, 1, (0, 1))
        assert layout.offset(np.zeros((2, 0), np.int64)).tolist() == [0, 0]


class TestSpan:
    @given(layouts())
    def test_span_is_the_range_of_all_offsets(self, layout: Layout) -> None:
        offsets = all_offsets(layout)
        assert layout.span == ((min(offsets), max(offsets) + 1) if offsets else (0, 0))

    @given(axes(), st.integers(1, 60))
    def test_axis_bounds_are_the_least_and_the_greatest_offset(self, axis: Axis, n: int) -> None:
        offsets = all_offsets(Layout((n,), (axis,)))
        assert axis.bounds(n) == (min(offsets), max(offsets))

    def test_a_block_cut_short_does_not_reach_its_end(self) -> None:
        assert Layout((3,), (Axis(100, (Digit(8, 1),)),)).span == (0, 3)


class TestOverlap:
    @given(layouts())
    def test_overlaps_says_whether_two_coordinates_share_an_offset(self, layout: Layout) -> None:
        offsets = all_offsets(layout)
        assert layout.overlaps == (len(set(offsets)) < len(offsets))

    @given(layouts())
    def test_is_dense_says_whether_offsets_fill_their_span(self, layout: Layout) -> None:
        offsets = sorted(all_offsets(layout))
        low = offsets[0] if offsets else 0
        assert layout.is_dense == (offsets == list(range(low, low + len(offsets))))

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

    def test_only_the_coordinates_that_exist_overlap(self) -> None:
        axis = Axis(2, (Digit(3, 1),))
        assert not Layout((2,), (axis,)).overlaps
        assert Layout((5,), (axis,)).overlaps

    def test_a_box_that_overlaps_where_no_coordinate_is_does_not_count(self) -> None:
        # Digits 2 x 3 with strides 2 and 1: 0, 1, 2 then 2; the first four coordinates already collide, and with a
        # stride of -1 the box collides only at its missing end.
        axis = Axis(-1, (Digit(3, 1),))
        assert [oracle(Layout((6,), (axis,)), (x,)) for x in range(6)] == [0, 1, 2, -1, 0, 1]
        assert not Layout((4,), (axis,)).overlaps
        assert Layout((5,), (axis,)).overlaps


class TestNormalForm:
    @given(layouts())
    def test_normal_form_is_the_same_map(self, layout: Layout) -> None:
        assert all_offsets(layout.normal_form) == all_offsets(layout)

    @given(layouts())
    def test_normal_form_is_its_own_normal_form(self, layout: Layout) -> None:
        assert layout.normal_form.normal_form == layout.normal_form

    @given(st.integers(0, 30), axes(), axes())
    def test_normal_forms_agree_exactly_when_maps_agree(self, n: int, first: Axis, second: Axis) -> None:
        one, two = Layout((n,), (first,)), Layout((n,), (second,))
        same = all_offsets(one) == all_offsets(two)
        assert (one.normal_form == two.normal_form) == same
        assert one.equivalent(two) == same

    @given(layouts(), st.data())
    def test_a_respelled_layout_is_equivalent(self, layout: Layout, data: st.DataObject) -> None:
        respelled = Layout(layout.dims, tuple(respell(axis, data) for axis in layout.axes))
        assert all_offsets(respelled) == all_offsets(layout)
        assert respelled.equivalent(layout)
        assert hash(respelled.normal_form) == hash(layout.normal_form)

    def test_equivalent_needs_equal_dims(self) -> None:
        assert not Layout.from_strides((2, 3), (3, 1)).equivalent(Layout.from_strides((2, 2), (3, 1)))

    def test_empty_layouts_of_equal_dims_are_equivalent(self) -> None:
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
        for i, (axis, side) in enumerate(((first, "first"), (second, "second"))):
            expected = all_offsets(Layout((n,), (axis,)))
            found = [sum(value_at(d, getattr(d, side), x, d is digits[0]) for d in digits) for x in range(n)]
            assert found == expected, (i, digits)

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

    def test_a_multiple_that_no_coordinate_reaches_makes_no_table(self) -> None:
        digits = refine(Axis(5000, (Digit(1000, 1),)), Axis(7007, (Digit(1001, 1),)), 3)
        assert digits == (CommonDigit(3, 1, 1, 1),)


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
        points = np.indices(view.shape).reshape(3, -1).T
        assert base.ravel()[start + layout.offset(points)].tolist() == view.ravel().tolist()

    def test_numpy_integers_become_python_integers(self) -> None:
        layout = Layout.from_strides(np.array([2, 3]), np.array([3, 1]))  # type: ignore[arg-type]
        assert all(type(v) is int for v in (*layout.dims, layout.axes[0].stride))


RUNTIME_LAYOUT = Layout((RUNTIME, 3), (Axis(3), Axis(1)))
BEYOND = Layout.from_strides((3, 2), (2**62, 1))
# Square roots of primes have no small relation, and telling so takes the whole search.
INTERLEAVED = Layout.from_strides((9,) * 10, [math.isqrt(p * 10**32) for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)])

MISTAKES = [
    (
        lambda: Layout((2, 3), (Axis(1),)),
        InvalidArguments,
        "a layout of 2 dims needs as many axes, not 1",
    ),
    (
        lambda: Layout((2, -3), (Axis(1), Axis(2))),
        InvalidArguments,
        "dim 1 is -3: dims are 0 or more",
    ),
    (
        lambda: Layout((8,), (Axis(8, (Digit(0, 1),)),)),
        InvalidArguments,
        "axis 0 has an inner digit of extent 0: extents are 1 or more",
    ),
    (
        lambda: Layout.from_strides((2, 3), (3,)),
        InvalidArguments,
        "2 dims need as many strides, not 1: (3,)",
    ),
    (
        lambda: Layout.from_strides((2, 3), (12, 3), 4),
        InvalidArguments,
        "stride 1 is 3 bytes, no multiple of the 4-byte element",
    ),
    (
        lambda: Layout.from_strides((2, 3), (12, 4), 0),
        InvalidArguments,
        "itemsize is 0: an element has a whole number of bytes, 1 or more",
    ),
    (
        lambda: Layout.from_strides((2, 3), (12, 4), 4.0),  # type: ignore[arg-type]
        InvalidArguments,
        "itemsize is 4.0: an element has a whole number of bytes, 1 or more",
    ),
    (
        lambda: Layout.from_strides(2, (1,)),  # type: ignore[arg-type]
        InvalidArguments,
        "dims are 2: give a sequence of integers",
    ),
    (
        lambda: Layout.from_strides((2, 3), (3, 1.0)),  # type: ignore[arg-type]
        InvalidArguments,
        "stride 1 is 1.0: strides are integers",
    ),
    (
        lambda: Layout.from_strides((2, "3"), (3, 1)),  # type: ignore[arg-type]
        InvalidArguments,
        "dim 1 is '3': dims are integers",
    ),
    (
        lambda: NCHW8C.offset((1, 2, 3)),
        InvalidArguments,
        "a coordinate of this layout has 4 entries, got shape (3,)",
    ),
    (
        lambda: NCHW8C.offset(5),
        InvalidArguments,
        "a coordinate of this layout has 4 entries, got shape ()",
    ),
    (
        lambda: NCHW8C.offset((1.0, 2.0, 3.0, 0.0)),
        InvalidArguments,
        "coordinates are integers of at most 64 bits, got float64",
    ),
    (
        lambda: NCHW8C.offset((0, 2**70, 0, 0)),
        InvalidArguments,
        "coordinates are integers of at most 64 bits, got object",
    ),
    (
        lambda: NCHW8C.offset([(0, 0, 0, 0), (1, 2)]),
        InvalidArguments,
        "coordinates have rows of different lengths: each needs one entry per axis",
    ),
    (
        lambda: NCHW8C.offset((0, 24, 0, 0)),
        InvalidArguments,
        "coordinate 24 of axis 1 is outside 0..23",
    ),
    (
        lambda: NCHW8C.offset([(0, 0, 0, 0), (0, 0, -1, 0)]),
        InvalidArguments,
        "coordinate -1 of axis 2 is outside 0..4",
    ),
    (
        lambda: NCHW8C.offset(np.array([0, 2**63, 0, 0], np.uint64)),
        InvalidArguments,
        "coordinate 9223372036854775808 of axis 1 is outside 0..23",
    ),
    (
        lambda: Layout.from_strides((0,), (1,)).offset((0,)),
        InvalidArguments,
        "coordinate 0 of axis 0 is outside this axis, which has none",
    ),
    (
        lambda: BEYOND.offset([(2, 1)]),
        Unimplemented,
        "offsets 0..9223372036854775809 of this layout exceed 64 bits: pass one coordinate at a time",
    ),
    (
        lambda: INTERLEAVED.overlaps,
        Unimplemented,
        "the search for overlapping elements of this layout was given up: its strides interleave. "
        "The search is short for strides that are multiples of the extent they step over",
    ),
    (
        lambda: RUNTIME_LAYOUT.size,
        Unimplemented,
        "size needs every dim and stride: this layout has RUNTIME ones, bind them first",
    ),
    (
        lambda: RUNTIME_LAYOUT.span,
        Unimplemented,
        "size needs every dim and stride: this layout has RUNTIME ones, bind them first",
    ),
    (
        lambda: RUNTIME_LAYOUT.overlaps,
        Unimplemented,
        "size needs every dim and stride: this layout has RUNTIME ones, bind them first",
    ),
    (
        lambda: RUNTIME_LAYOUT.is_dense,
        Unimplemented,
        "size needs every dim and stride: this layout has RUNTIME ones, bind them first",
    ),
    (
        lambda: RUNTIME_LAYOUT.normal_form,
        Unimplemented,
        "normal_form needs every dim and stride: this layout has RUNTIME ones, bind them first",
    ),
    (
        lambda: RUNTIME_LAYOUT.offset((0, 0)),
        Unimplemented,
        "offset needs every dim and stride: this layout has RUNTIME ones, bind them first",
    ),
]


@pytest.mark.parametrize(("mistake", "error", "text"), MISTAKES, ids=[text[:40] for _, _, text in MISTAKES])
def test_a_mistake_is_told_whole(mistake: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        mistake()  # type: ignore[operator]
    assert str(caught.value) == text
    assert type(caught.value) is error


def test_runtime_digits_have_a_runtime_leading_extent() -> None:
    assert RUNTIME_LAYOUT.has_runtime
    assert RUNTIME_LAYOUT.digits[0] == (Digit(RUNTIME, 3),)


def test_a_layout_is_a_value() -> None:
    twin = Layout((2, 24, 5, 4), (Axis(480), Axis(160, (Digit(8, 1),)), Axis(32), Axis(8)))
    assert (twin, hash(twin)) == (NCHW8C, hash(NCHW8C))
    with pytest.raises(AttributeError):
        twin.dims = ()  # type: ignore[misc]


def test_offsets_of_many_coordinates_are_those_of_each_and_leave_the_coordinates_alone() -> None:
    layout = Layout((24, 7, 40), (Axis(2240, (Digit(4, 1),)), Axis(320), Axis(64, (Digit(5, 4),))))
    count = 40_000
    points = np.random.default_rng(0).integers(0, layout.dims, (count, 3))
    for asked in (points, np.asfortranarray(points), points.astype(np.int16), points[::-1]):
        before = asked.copy()
        n, c, w = asked.astype(np.int64).T
        expected = n // 4 * 2240 + n % 4 + c * 320 + w // 5 * 64 + w % 5 * 4
        assert np.array_equal(layout.offset(asked), expected)
        assert np.array_equal(asked, before)


def test_of_many_coordinates_the_first_axis_at_fault_is_named_wherever_it_stands() -> None:
    points = np.zeros((40_000, 2), np.int64)
    points[1, 1], points[-1, 0] = 6, 4
    with pytest.raises(InvalidArguments) as error:
        Layout.from_strides((4, 6), (6, 1)).offset(points)
    assert str(error.value) == "coordinate 4 of axis 0 is outside 0..3"
