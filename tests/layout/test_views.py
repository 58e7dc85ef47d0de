"""The views and queries of MegEngine's TensorLayout on `Layout`, as properties, with NumPy as the oracle.

`offset_array(layout)` is a NumPy view whose values are the offsets of its elements, made by `as_strided` from the
strides alone. A view of this array by NumPy has the offsets that the layout's own view must have.
"""

from ast import literal_eval
from functools import reduce
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inlay.errors import InvalidArguments
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout, Refusal
from inlay.memory import as_strided
from inlay.testing import layouts, shapes
from tests.support.refusals import raises_exactly
from tests.support.view_coordinates import Offsets, axis_offsets, coordinates, expected_offsets, offsets, regroupings

ITEMSIZES = st.sampled_from((1, 2, 3, 4, 8, 16))


@st.composite
def plain_layouts(draw: st.DrawFn, *, zero: bool = True) -> Layout:
    """Strides of any sign: half of them nested, as slices and transposes of a dense array make them."""
    dims = draw(shapes(draw(st.integers(0, 4)), max_size=200, zero=zero))
    if draw(st.integers(0, 3)) == 0:
        return Layout.from_strides(dims, [draw(st.integers(-12, 12)) for _ in dims])
    strides, step = [0] * len(dims), 1
    by_rows = list(range(len(dims)))[::-1]
    for i in draw(st.one_of(st.just(by_rows), st.permutations(by_rows))):
        strides[i] = draw(st.sampled_from((step, step, step, step, step, -step, step + 2, 0)))
        step = max(1, abs(strides[i]) * dims[i])
    return Layout.from_strides(dims, strides)


def offset_array(layout: Layout) -> Offsets:
    """A NumPy view by the layout's strides of a buffer that holds at each place its offset."""
    every = expected_offsets(layout)
    low, high = every.min(initial=0), every.max(initial=0)
    strides = [8 * axis.stride for axis in layout.axes]
    return np.lib.stride_tricks.as_strided(np.arange(low, high + 1)[-low:], layout.dims, strides)


class TestBytes:
    @given(layouts(), ITEMSIZES)
    def test_byte_offset_is_offset_times_itemsize(self, layout: Layout, itemsize: int) -> None:
        x = coordinates(layout.dims)
        assert np.array_equal(layout.byte_offset(x, itemsize), layout.offset(x) * itemsize)

    @given(layouts(), ITEMSIZES)
    def test_byte_span_holds_the_first_and_the_last_byte(self, layout: Layout, itemsize: int) -> None:
        first = expected_offsets(layout) * itemsize
        assert layout.byte_span(itemsize) == ((first.min(), first.max() + itemsize) if first.size else (0, 0))


class TestStrides:
    @given(plain_layouts())
    def test_strides_of_an_array_go_in_and_out(self, layout: Layout) -> None:
        view = offset_array(layout)
        assert Layout.from_array(view).strides == layout.strides
        assert Layout.from_array(view).byte_strides(view.itemsize) == view.strides

    @given(layouts(), ITEMSIZES)
    def test_byte_strides_give_an_equivalent_layout_or_are_refused(self, layout: Layout, itemsize: int) -> None:
        try:
            strides = layout.byte_strides(itemsize)
        except InvalidArguments:
            assert any(np.unique(np.diff(line)).size > 1 for line in map(axis_offsets, layout.axes, layout.dims))
            return
        assert Layout.from_strides(layout.dims, strides, itemsize).equivalent(layout)

    @given(shapes(max_size=300))
    def test_row_major_and_column_major_are_numpys_orders(self, dims: Dims) -> None:
        for order, layout in (("C", Layout.row_major(dims)), ("F", Layout.column_major(dims))):
            array: Offsets = np.zeros(dims, np.int64, order)  # type: ignore[call-overload]
            assert layout.dims == dims
            assert layout.byte_strides(8) == array.strides or 0 in dims

    def test_zero_and_runtime_dims(self) -> None:
        assert Layout.row_major((2, 0, 4)).strides == (4, 4, 1)
        assert Layout.column_major((2, 0, 4)).strides == (1, 2, 2)
        assert Layout.row_major((2, RUNTIME, 4)).strides == (RUNTIME, 4, 1)
        assert Layout.row_major(()) == Layout((), ())

    @given(plain_layouts())
    def test_as_strided_lends_the_elements_at_the_offsets(self, layout: Layout) -> None:
        low, high = layout.span
        elements = np.arange(low, high + 1, dtype=np.int32)
        view = as_strided(elements, layout, -low)
        assert view.tolist() == offset_array(layout).tolist()
        assert Layout.from_array(view).equivalent(layout)
        assert np.shares_memory(view, elements) or view.size == 0
        assert view.flags.writeable == layout.is_non_overlapping

    def test_as_strided_never_writes_what_it_may_not(self) -> None:
        elements = np.arange(6)
        elements.flags.writeable = False
        assert not as_strided(elements, Layout.row_major((6,))).flags.writeable
        assert as_strided(elements, Layout.row_major((0, 3)), 9).shape == (0, 3)


class TestQuestions:
    @given(st.one_of(layouts(), plain_layouts()))
    def test_is_contiguous_exactly_when_offsets_are_row_major_indices(self, layout: Layout) -> None:
        assert layout.is_contiguous == (offsets(layout).ravel().tolist() == list(range(layout.size)))

    @given(st.one_of(layouts(), plain_layouts()))
    def test_is_contiguous_allow_broadcast_exactly_when_new_offsets_count_up(self, layout: Layout) -> None:
        met = list(dict.fromkeys(offsets(layout).ravel().tolist()))
        if layout.is_contiguous_allow_broadcast:
            assert met == list(range(len(met)))
        elif not layout.overlaps:
            assert met != list(range(len(met)))

    @given(plain_layouts())
    def test_is_contiguous_allow_broadcast_is_contiguity_without_repeated_axes(self, layout: Layout) -> None:
        once = tuple(1 if s == 0 and n else n for n, s in zip(layout.dims, layout.strides, strict=True))
        assert layout.is_contiguous_allow_broadcast == offset_array(Layout(once, layout.axes)).flags.c_contiguous

    @given(st.one_of(layouts(max_size=200), plain_layouts()))
    def test_is_non_overlapping_is_a_proof(self, layout: Layout) -> None:
        places = offsets(layout).ravel().tolist()
        assert not layout.is_non_overlapping or len(set(places)) == len(places)

    @given(st.permutations(range(3)), st.tuples(*[st.integers(1, 4)] * 3), st.tuples(*[st.integers(0, 3)] * 3))
    def test_is_non_overlapping_where_strides_nest(self, order: list[int], dims: Dims, gaps: Dims) -> None:
        strides, reach = [0, 0, 0], 0
        for i in order:
            strides[i] = reach + 1 + gaps[i]
            reach += strides[i] * (dims[i] - 1)
        assert Layout.from_strides(dims, strides).is_non_overlapping

    def test_is_non_overlapping_weighs_both_signs_together(self) -> None:
        """MegEngine's test answers yes here, though (2, 1) and (0, 0) share an offset."""
        assert not Layout.from_strides((4, 3), (1, -2)).is_non_overlapping

    def test_is_non_overlapping_is_sufficient_only(self) -> None:
        interleaved = Layout.from_strides((3, 2), (2, 3))
        assert (interleaved.is_non_overlapping, interleaved.overlaps) == (False, False)

    def test_a_layout_of_no_elements_has_nothing_out_of_place(self) -> None:
        empty = Layout.from_strides((3, 0), (7, 7))
        assert (empty.is_contiguous, empty.is_contiguous_allow_broadcast, empty.is_non_overlapping) == (True,) * 3


class TestViews:
    @given(layouts(), st.data())
    def test_dimshuffle_is_numpys_transpose(self, layout: Layout, data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(layout.ndims)))
        result = layout.dimshuffle(order)
        assert result.dims == tuple(layout.dims[i] for i in order)
        assert offsets(result).tolist() == offsets(layout).transpose(order).tolist()

    @given(layouts(max_size=60), st.data())
    def test_broadcast_is_numpys_broadcast_to(self, layout: Layout, data: st.DataObject) -> None:
        grown = [data.draw(st.integers(0, 3)) if n == 1 else n for n in layout.dims]
        dims = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)) + grown)
        result = layout.broadcast(dims)
        assert result.dims == dims
        assert offsets(result).tolist() == np.broadcast_to(offsets(layout), dims).tolist()

    @given(plain_layouts(zero=False), st.lists(st.integers(0, 4), max_size=5).map(tuple))
    def test_broadcast_is_refused_where_numpy_refuses(self, layout: Layout, dims: Dims) -> None:
        try:
            expected = np.broadcast_to(offset_array(layout), dims)
        except ValueError:
            with pytest.raises(InvalidArguments):
                layout.broadcast(dims)
            return
        assert offsets(layout.broadcast(dims)).tolist() == expected.tolist()

    @given(layouts(), st.data())
    def test_add_axis_steps_by_its_stride(self, layout: Layout, data: st.DataObject) -> None:
        i, dim, stride = (data.draw(st.integers(*r)) for r in ((0, layout.ndims), (0, 3), (-9, 9)))
        result = layout.add_axis(i, dim, stride)
        shape = [1] * result.ndims
        shape[i] = dim
        steps = stride * np.arange(dim).reshape(shape)
        assert offsets(result).tolist() == (np.expand_dims(offsets(layout), i) + steps).tolist()
        if dim:
            assert result.remove_axis(i) == layout

    @given(shapes(max_size=100, zero=False), st.data())
    def test_add_axis_of_a_dense_layout_is_dense(self, dims: Dims, data: st.DataObject) -> None:
        i = data.draw(st.integers(0, len(dims)))
        assert Layout.row_major(dims).add_axis(i) == Layout.row_major((*dims[:i], 1, *dims[i:]))

    @given(layouts(), st.data())
    def test_remove_axis_keeps_what_lies_at_0(self, layout: Layout, data: st.DataObject) -> None:
        assume(layout.ndims > 0)
        i = data.draw(st.integers(0, layout.ndims - 1))
        assume(layout.dims[i] > 0)
        assert offsets(layout.remove_axis(i)).tolist() == offsets(layout).take(0, i).tolist()

    @given(st.one_of(layouts(), plain_layouts()))
    def test_collapse_contiguous_keeps_the_order_of_offsets(self, layout: Layout) -> None:
        result = layout.collapse_contiguous()
        assert offsets(result).ravel().tolist() == offsets(layout).ravel().tolist()
        assert result.collapse_contiguous() == result
        assert 1 not in result.dims or result.dims == (1,)

    @given(plain_layouts(zero=False))
    def test_collapse_contiguous_joins_all_that_numpy_can(self, layout: Layout) -> None:
        """As few axes as any list of dims that NumPy reshapes to without a copy."""
        result = layout.collapse_contiguous()
        view = offset_array(layout)
        assert offsets(result).tolist() == view.reshape(result.dims, copy=False).tolist()
        for i in range(result.ndims - 1):
            joined = (*result.dims[:i], result.dims[i] * result.dims[i + 1], *result.dims[i + 2 :])
            with pytest.raises(ValueError, match="copy"):
                view.reshape(joined, copy=False)

    def test_collapse_contiguous_of_one_element_and_of_none(self) -> None:
        assert Layout.from_strides((1, 1), (7, 9)).collapse_contiguous() == Layout.row_major((1,))
        assert Layout((), ()).collapse_contiguous() == Layout.row_major((1,))
        assert Layout.from_strides((3, 0), (7, 9)).collapse_contiguous() == Layout.row_major((0,))


class TestReshape:
    @given(plain_layouts(), st.data())
    def test_try_reshape_is_numpys_reshape_without_copy(self, layout: Layout, data: st.DataObject) -> None:
        dims = data.draw(regroupings(layout.dims))
        result = layout.try_reshape(dims)
        try:
            expected = offset_array(layout).reshape(dims, copy=False)
        except ValueError:
            assert isinstance(result, Refusal)
            return
        assert isinstance(result, Layout)
        assert offsets(result).tolist() == expected.tolist()
        assert not any(axis.inner for axis in result.axes)

    @given(layouts(), st.data())
    def test_try_reshape_keeps_the_order_of_offsets(self, layout: Layout, data: st.DataObject) -> None:
        dims = data.draw(regroupings(layout.dims))
        for digits in (False, True):
            result = layout.try_reshape(dims, digits=digits)
            if isinstance(result, Layout):
                assert result.dims == dims
                assert offsets(result).ravel().tolist() == offsets(layout).ravel().tolist()

    @pytest.mark.parametrize("dims", [(2, 1, 3), (1, 2, 1, 1, 3), (2, 3, 1), (6, 1)])
    def test_unit_axes_between_others_stand_in_no_way(self, dims: tuple[int, ...]) -> None:
        for wanted in ((6,), (3, 2), (3, 1, 2)):
            for digits in (False, True):
                result = Layout.row_major(dims).reshape(wanted, digits=digits)
                assert offsets(result).ravel().tolist() == list(range(6))

    @given(layouts(max_size=300), st.data())
    def test_free_digits_give_every_view_that_is_a_sum_over_axes(self, layout: Layout, data: st.DataObject) -> None:
        """A layout is a sum of one term per axis, each read in digits; no other offsets have a layout."""
        dims = data.draw(regroupings(layout.dims))
        result = layout.try_reshape(dims, digits=True)
        wanted = offsets(layout).reshape(dims)
        assert isinstance(result, Layout) == (is_sum_over_axes(wanted) and all(map(has_digits, lines_of(wanted))))

    @given(layouts(), st.data())
    def test_the_repairs_of_a_refusal_are_true(self, layout: Layout, data: st.DataObject) -> None:
        dims = data.draw(regroupings(layout.dims))
        digits = data.draw(st.booleans())
        refusal = layout.try_reshape(dims, digits=digits)
        if isinstance(refusal, Layout):
            return
        if refusal.nearest is not None:
            assert prod(refusal.nearest) == layout.size
            assert isinstance(layout.try_reshape(refusal.nearest, digits=digits), Layout)
        if refusal.free is not None:
            assert refusal.free == layout.reshape(dims, digits=True)
        assert refusal.target is not None
        assert refusal.target.dims == layout.dims
        assert refusal.target.reshape(dims) == Layout.row_major(dims)
        assert refusal.moved == 2 * layout.size
        with raises_exactly(InvalidArguments, str(refusal)):
            layout.reshape(dims, digits=digits)


def lines_of(values: Offsets) -> list[Offsets]:
    """The values along each axis through the origin."""
    if values.size == 0:
        return []
    return [values[tuple(slice(None) if j == i else 0 for j in range(values.ndim))] for i in range(values.ndim)]


def is_sum_over_axes(values: Offsets) -> bool:
    """Return True if values[y] is the sum of one term per axis: those on the lines through the origin."""
    return values.size == 0 or np.array_equal(reduce(np.add.outer, lines_of(values), np.zeros((), np.int64)), values)


def has_digits(line: Offsets) -> bool:
    """Return True if line[x], 0 at 0, is a sum of digits of x times strides; try all extents of the last digit."""
    n = len(line)
    if n < 3:
        return True
    for extent in range(2, n + 1):
        if line[extent - 1] != line[1] * (extent - 1):
            return False
        lead = line[::extent]
        if np.array_equal(np.repeat(lead, extent)[:n] + line[1] * (np.arange(n) % extent), line) and has_digits(lead):
            return True
    return False


def test_these_tests_can_fail() -> None:
    assert not is_sum_over_axes(np.array([[0, 1], [2, 4]]))
    assert has_digits(np.array([0, 1, 7, 8, 14]))
    assert not has_digits(np.array([0, 1, 3, 5]))
    assert offset_array(Layout.from_strides((2, 3), (-3, 1))).tolist() == [[0, 1, 2], [-3, -2, -1]]
    assert expected_offsets(Layout((3,), (Axis(7, (Digit(2, -1),)),))).tolist() == [0, -1, 7]


def test_every_permutation_that_is_suggested_is_one() -> None:
    for wanted in product(range(-1, 4), repeat=3):
        try:
            Layout.row_major((2, 3, 4)).dimshuffle(wanted)
        except InvalidArguments as error:
            suggested = literal_eval(str(error).splitlines()[1].strip().removesuffix(" works"))
            Layout.row_major((2, 3, 4)).dimshuffle(suggested)
            kept = sum(a == b for a, b in zip(wanted, suggested, strict=True))
            assert kept == len({i for i in wanted if 0 <= i < 3})
        else:
            assert sorted(wanted) == [0, 1, 2]
