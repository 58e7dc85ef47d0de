"""The dictionary: each row against the vendor's own formula, look-up, equivalent names; errors in golden/mistakes."""

import subprocess
import sys
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay.descriptor import MemoryDesc
from inlay.errors import FormatTagError, InvalidArguments, NotationError
from inlay.layout import Layout
from inlay.notation.dictionary import (
    NamedLayout,
    find_named,
    has_vendor,
    list_equivalent,
    list_rows,
    list_vendors,
    named,
)
from inlay.notation.format_tag import ALIASES, FormatTag
from inlay.notation.pattern import parse_pattern, read_axes
from tests.oracles.layout_names import GRAMMARS, PERMUTATIONS, expected_offsets, formulas
from tests.support.dictionary_page import table, written
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.paths import ROOT

ROWS = list_rows()
SMALL = (2, 3, 2, 3, 2, 2)
"""Dims of axes without blocks."""


def odd_dims(row: NamedLayout) -> tuple[int, ...]:
    """Dims of two blocks for each axis with blocks, less one element: each digit has its full range."""
    axes = read_axes(row.pattern)
    dims = []
    for axis, small in zip(axes, SMALL, strict=False):
        blocked = axis.block - 1 if axis.is_fixed else 2 * axis.block - 1
        dims.append(small if axis.block == 1 else blocked)
    return tuple(dims)


def every_coordinate(dims: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return np.moveaxis(np.indices(dims, np.int64), 0, -1)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_places_elements_as_its_vendor_says(row: NamedLayout) -> None:
    dims = odd_dims(row)
    layout = row.layout(dims)
    offsets = layout.offset(every_coordinate(dims))
    np.testing.assert_array_equal(offsets, expected_offsets(row.name, row.axes, dims))


@pytest.mark.parametrize("vendor", sorted({row.vendor for row in ROWS}))
def test_packing_puts_each_element_where_the_vendor_says(vendor: str) -> None:
    for row in list_rows(vendor):
        dims = odd_dims(row)
        values = np.arange(1, prod(dims) + 1, dtype=np.uint32).reshape(dims)
        packed = inlay.pack(values.view(np.float32), MemoryDesc(dims, "f32", pattern=row.pattern))
        stored = np.frombuffer(packed.buffer, np.uint32)
        expected = np.zeros_like(stored)
        expected[expected_offsets(row.name, row.axes, dims)] = values
        np.testing.assert_array_equal(stored, expected)


@pytest.mark.parametrize("name", [row.name for row in ROWS if row.data_types[0] in ("u4", "s4")])
def test_four_bit_rows_are_packed_with_the_first_element_in_the_low_bits(name: str) -> None:
    row = find_named(name)
    dims = odd_dims(row)
    values = np.random.default_rng(0).integers(0, 8, dims, np.uint8)
    packed = inlay.pack(values, MemoryDesc(dims, "u4", pattern=row.pattern), "u4").buffer
    offsets = expected_offsets(row.name, row.axes, dims)
    stored = np.frombuffer(packed, np.uint8)[offsets // 2] >> (4 * (offsets % 2)) & 15
    np.testing.assert_array_equal(stored, values)


def test_the_formulas_reject_another_layout() -> None:
    """Of each row, two digits in memory exchanged: nearly every such layout differs from the vendor's."""
    noticed = total = 0
    for row in ROWS:
        left, _, right = row.pattern.partition(" -> ")
        order = right.split()
        order[-2:] = order[:-3:-1]
        dims = odd_dims(row)
        offsets = parse_pattern(f"{left} -> {' '.join(order)}", dims).offset(every_coordinate(dims))
        total += len(order) > 1
        noticed += not np.array_equal(offsets, expected_offsets(row.name, row.axes, dims))
    assert noticed == total > 300


def test_each_row_has_a_formula_and_each_formula_a_row() -> None:
    by_formula = {row.name for row in ROWS if row.vendor not in GRAMMARS} - set(PERMUTATIONS)
    assert by_formula == set(formulas())
    assert {row.name for row in ROWS} >= set(PERMUTATIONS)
    assert len(ROWS) >= 300


def test_each_row_is_complete() -> None:
    for row in ROWS:
        assert row.source
        assert len(row.roles) == len(row.axes) == len(set(row.axes))
        assert row.data_types
        assert set(row.data_types) <= set(inlay.DATA_TYPES)
        assert has_vendor(row.name)
        assert named(row.name) is find_named(row.name) is row
        assert list_vendors()[row.vendor]


def test_each_row_is_found_among_the_names_of_its_layout() -> None:
    for row in ROWS:
        assert row in list_equivalent(row.name).rows


@given(st.sampled_from(ROWS), st.data())
def test_equivalent_rows_have_one_layout_for_any_dims(row: NamedLayout, data: st.DataObject) -> None:
    dims = [data.draw(st.integers(0, axis.block if axis.is_fixed else 40)) for axis in read_axes(row.pattern)]
    names = list_equivalent(row.name)
    for other in names.rows:
        assert other.layout(dims).equivalent(row.layout(dims))
    if names.tag is not None:
        assert FormatTag.parse(names.tag).layout(dims).equivalent(row.layout(dims))


@given(st.sampled_from(ROWS), st.sampled_from(ROWS))
def test_rows_that_are_not_equivalent_differ_for_some_dims(row: NamedLayout, other: NamedLayout) -> None:
    same = other in list_equivalent(row.name).rows
    assert same == (row in list_equivalent(other.name).rows)
    axes, others = read_axes(row.pattern), read_axes(other.pattern)
    if len(axes) == len(others) and not any(axis.is_fixed for axis in (*axes, *others)):
        dims = [a.block * b.block * n for a, b, n in zip(axes, others, (3, 5, 7, 11, 13), strict=False)]
        odd = [dim + 1 for dim in dims]
        pairs = [(row.layout(d), other.layout(d)) for d in (dims, odd)]
        assert same == all(_is_same(a, b) for a, b in pairs)


def _is_same(layout: Layout, other: Layout) -> bool:
    return layout.dims == other.dims and layout.equivalent(other)


def test_each_alias_of_onednn_is_in_the_same_look_up() -> None:
    rows = list_rows("onednn")
    assert [row.name for row in rows] == [f"onednn:{alias}" for alias in ALIASES]
    for row, alias in zip(rows, ALIASES, strict=True):
        tag = FormatTag.parse(alias)
        dims = [tag.blocks(axis) + 1 for axis in range(tag.ndims)]
        assert row.layout(dims) == tag.layout(dims)
        assert row == find_named(row.name) == named(alias)


def test_a_name_is_printed_in_every_notation() -> None:
    names = list_equivalent("tensorrt:CHW16")
    assert (names.tag, names.pattern) == ("aBcd16b", "n (c c16) h w -> n c h w c16")
    assert {"onednn:nChw16c", "openvino:b_fs_yx_fsv16", "tvm:NCHW16c"} <= {row.name for row in names.rows}
    assert [row.name for row in list_equivalent("(a b3) -> b3 a").rows] == []
    assert str(list_equivalent("(x y3) -> y3 x")) == "pattern  (x y3) -> y3 x"


def test_padding_is_a_part_of_the_layout() -> None:
    assert list_equivalent("tensorrt:HWC8").tag == "acdB8b"
    assert find_named("tensorrt:HWC8") not in list_equivalent("nhwc").rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensorrt:CHW32", True),
        ("xla:{1,0:T(8,128)}", True),
        ("no-such.vendor:X", True),
        ("(4,8):(8,1)", False),
        ("4:1", False),
        ("nChw16c", False),
        ("n (c c16) -> n c c16", False),
        ("tensorrt:", True),
        ("", False),
        (None, False),
        (3, False),
    ],
)
def test_a_name_with_a_vendor_is_recognized(text: object, expected: bool) -> None:
    assert has_vendor(text) is expected


@given(st.text(max_size=30))
def test_any_text_is_found_or_refused_with_an_error_of_inlay(text: str) -> None:
    for look_up in (named, find_named, list_equivalent):
        try:
            look_up(text)
        except (NotationError, FormatTagError, InvalidArguments) as error:
            assert str(error)  # noqa: PT017


NAMES = {
    "named": named,
    "find_named": find_named,
    "list_rows": list_rows,
    "list_equivalent": list_equivalent,
}


@pytest.mark.parametrize(("call", "error"), read_mistakes("dictionary"))
def test_a_mistake_names_the_nearest_rows(call: str, error: str) -> None:
    assert_mistake(call, error, NAMES)


# The page and the example


def test_the_page_has_every_row() -> None:
    assert written().strip() == table().strip()


def test_the_example_packs_for_marlin_and_prints_all_names() -> None:
    call = [sys.executable, str(ROOT / "examples" / "vendor_layouts.py")]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{named('marlin:int4')}\n\npacked 32768 weights into 16384 bytes\n")
    assert done.stdout.endswith(f"{list_equivalent('cudnn:NCHW_VECT_C_x32')}\n")
