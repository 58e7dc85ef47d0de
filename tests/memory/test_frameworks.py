"""Axis orders are permutations of letters, and descriptors of framework tensors read the framework's buffer.

The expected logical arrays are computed by NumPy's reshape and transpose, written for each framework and role.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.memory import Memory, check_padding, pack
from inlay.memory.axis_orders import (
    CONVENTIONS,
    LOGICAL_ORDERS,
    AxisOrder,
    Role,
    conv_orders,
    framework_desc,
    framework_dims,
    framework_shape,
    from_logical,
    to_logical,
)
from inlay.memory.frameworks import permute_with_reorder
from inlay.notation.format_tag import ALIASES, FormatTag
from inlay.testing import descriptors
from tests.support.paths import ROOT

ORDERS = st.sampled_from(LOGICAL_ORDERS).flatmap(
    lambda logical: st.permutations(list(logical)).map(lambda letters: AxisOrder("".join(letters), logical))
)
PLAIN_ALIASES = [alias for alias, tag in ALIASES.items() if tag.isalpha() and tag.islower()]


def numbered(shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


class TestAxisOrder:
    @pytest.mark.parametrize("alias", PLAIN_ALIASES)
    def test_the_format_of_a_named_order_is_that_of_onednn_s_alias(self, alias: str) -> None:
        assert AxisOrder.parse(alias).tag == FormatTag.parse(alias)

    def test_onednn_has_more_than_fifty_plain_aliases(self) -> None:
        assert len(PLAIN_ALIASES) > 50

    @given(ORDERS)
    def test_parse_undoes_str(self, order: AxisOrder) -> None:
        assert AxisOrder.parse(str(order)) == order
        assert (
            AxisOrder.parse(str(order).lower()) == AxisOrder.parse(str(order).lower(), order.logical.lower()) == order
        )

    @given(ORDERS)
    def test_permutation_and_axes_say_where_each_letter_is(self, order: AxisOrder) -> None:
        assert order.permutation == tuple(order.logical.index(letter) for letter in order.letters)
        assert order.axes == tuple(order.letters.index(letter) for letter in order.logical)
        assert AxisOrder.from_axes(order.axes, order.logical) == order

    @given(ORDERS)
    def test_an_axis_keeps_its_letter(self, order: AxisOrder) -> None:
        sizes = {letter: 2 + i for i, letter in enumerate(order.logical)}
        shape = tuple(sizes[letter] for letter in order.letters)
        assert to_logical(shape, order) == tuple(sizes[letter] for letter in order.logical)
        assert from_logical(to_logical(list(shape), order), order) == shape

    @given(ORDERS)
    def test_an_array_is_seen_in_logical_order_without_a_copy(self, order: AxisOrder) -> None:
        array = numbered(tuple(range(2, 2 + order.ndims)))
        logical = to_logical(array, str(order))
        assert np.array_equal(logical, np.einsum(f"{order.letters}->{order.logical}", array))
        assert np.shares_memory(logical, array)
        assert np.array_equal(from_logical(logical, order), array)

    @given(ORDERS)
    def test_the_format_sees_the_buffer_in_logical_order(self, order: AxisOrder) -> None:
        array = numbered(tuple(range(2, 2 + order.ndims)))
        desc = MemoryDesc(to_logical(array.shape, order), "s32", order.tag)
        assert np.array_equal(Memory(desc, array).unpack(), to_logical(array, order))
        assert MemoryDesc(array.shape, "s32").permute_axes(order.permutation) == desc

    def test_letters_of_your_own(self) -> None:
        order = AxisOrder.parse("bshd", logical="BHSD")
        assert (order.permutation, str(order.tag)) == ((0, 2, 1, 3), "acbd")


class TestRelabeling:
    def test_the_table_of_the_rfc(self) -> None:
        """Activations a(N) c(H) d(W) b(C) taken as weights c(H) d(W) b(I) a(O): a->c, c->d, d->b, b->a."""
        permutation = AxisOrder.parse("NHWC").permutation_to(AxisOrder.parse("HWIO"))
        letters = {"abcd"[i]: "abcd"[axis] for i, axis in enumerate(permutation)}
        assert letters == {"a": "c", "c": "d", "d": "b", "b": "a"}

    @given(ORDERS, st.data())
    def test_one_buffer_read_in_two_orders(self, one: AxisOrder, data: Any) -> None:
        two = data.draw(ORDERS.filter(lambda order: order.ndims == one.ndims))
        shape = tuple(range(2, 2 + one.ndims))
        first = MemoryDesc(to_logical(shape, one), "f32", one.tag)
        assert first.permute_axes(one.permutation_to(two)) == MemoryDesc(to_logical(shape, two), "f32", two.tag)


def split(array: npt.NDArray[Any], axis: int, groups: int) -> npt.NDArray[Any]:
    """The axis as two, groups outside."""
    shape = array.shape
    return array.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


Case = tuple[str, Role, tuple[int, ...], int | None, str, Callable[[Any], Any]]
CASES: list[Case] = [
    ("tensorflow", "activations", (2, 5), None, "ab", lambda a: a),
    ("tensorflow", "activations", (2, 3, 5), None, "acb", lambda a: a.transpose(0, 2, 1)),
    ("tensorflow", "activations", (2, 3, 4, 5), None, "acdb", lambda a: a.transpose(0, 3, 1, 2)),
    ("keras", "activations", (2, 3, 4, 6, 5), None, "acdeb", lambda a: a.transpose(0, 4, 1, 2, 3)),
    ("tensorflow", "weights", (3, 4, 5), None, "cba", lambda a: a.transpose(2, 1, 0)),
    ("keras", "weights", (2, 3, 4, 5), None, "cdba", lambda a: a.transpose(3, 2, 0, 1)),
    ("tensorflow", "weights", (2, 3, 2, 4, 5), None, "cdeba", lambda a: a.transpose(4, 3, 0, 1, 2)),
    ("tensorflow", "weights", (2, 3, 4, 6), 2, "decab", lambda a: split(a, 3, 2).transpose(3, 4, 2, 0, 1)),
    ("tensorflow", "depthwise_weights", (3, 2, 5, 4), None, "decab", lambda a: a[None].transpose(3, 4, 0, 1, 2)),
    ("tensorflow", "deconvolution_weights", (2, 3, 4, 5), None, "cdab", lambda a: a.transpose(2, 3, 0, 1)),
    ("keras", "linear_weights", (3, 4), None, "ba", lambda a: a.T),
    ("keras", "rnn_activations", (2, 3, 4), None, "bac", lambda a: a.transpose(1, 0, 2)),
    ("keras", "rnn_weights", (3, 8), 4, "abcde", lambda a: a.reshape(1, 1, 3, 4, 2)),
    ("pytorch", "activations", (2, 3, 4, 5), None, "abcd", lambda a: a),
    ("pytorch", "weights", (6, 3, 2, 2), None, "abcd", lambda a: a),
    ("pytorch", "weights", (6, 3, 2, 2), 3, "abcde", lambda a: a.reshape(3, 2, 3, 2, 2)),
    ("caffe2", "weights", (6, 3, 4), 1, "abcd", lambda a: a[None]),
    ("pytorch", "deconvolution_weights", (3, 4, 2, 5), None, "bacd", lambda a: a.transpose(1, 0, 2, 3)),
    ("onnx", "deconvolution_weights", (6, 4, 2, 5), 2, "acbde", lambda a: split(a, 0, 2).transpose(0, 2, 1, 3, 4)),
    ("pytorch", "linear_weights", (3, 4), None, "ab", lambda a: a),
    ("onnx", "linear_weights", (3, 4), None, "ba", lambda a: a.T),
    ("pytorch", "rnn_activations", (3, 2, 4), None, "abc", lambda a: a),
    ("pytorch", "rnn_weights", (8, 3), 4, "abdec", lambda a: a.reshape(1, 1, 4, 2, 3).transpose(0, 1, 4, 2, 3)),
    ("onnx", "rnn_weights", (2, 6, 3), 3, "abdec", lambda a: a.reshape(1, 2, 3, 2, 3).transpose(0, 1, 4, 2, 3)),
    ("jax", "weights", (4, 3, 2, 2), None, "abcd", lambda a: a),
    ("jax", "deconvolution_weights", (2, 3, 4, 5), None, "cdab", lambda a: a.transpose(2, 3, 0, 1)),
]


def case_name(case: Case) -> str:
    return f"{case[0]}-{case[1]}-{len(case[2])}d-{case[3]}"


class TestConventions:
    @pytest.mark.parametrize("case", CASES, ids=case_name)
    def test_a_descriptor_sees_the_framework_s_own_buffer_and_gives_its_shape(self, case: Case) -> None:
        framework, role, shape, groups, tag, expected = case
        array = numbered(shape)
        desc = framework_desc(framework, role, shape, "s32", groups=groups)
        logical = Memory(desc, array).unpack()
        assert np.array_equal(logical, expected(array))
        assert desc.equivalent(MemoryDesc(logical.shape, "s32", tag))
        assert desc.dims == framework_dims(framework, role, shape, groups=groups)
        assert framework_shape(framework, role, desc.dims, grouped=groups is not None) == shape

    def test_every_framework_and_role_of_the_table_is_tried(self) -> None:
        tried = {(case[0], CONVENTIONS[case[0]][case[1]]) for case in CASES}
        texts = {text for _, text in tried}
        assert {text for table in CONVENTIONS.values() for text in table.values()} == texts
        assert {framework for framework, _ in tried} == set(CONVENTIONS)

    def test_the_table_of_the_page_is_that_of_the_code(self) -> None:
        page = (ROOT / "docs" / "frameworks.md").read_text()
        columns = (("tensorflow", "keras"), ("pytorch", "caffe2"), ("onnx",), ("jax",))
        said: dict[str, dict[str, str]] = {framework: {} for framework in CONVENTIONS}
        for role, cells in re.findall(r"^\| `(\w+)` \|(.*)\|$", page, re.MULTILINE):
            for frameworks, cell in zip(columns, cells.split("|"), strict=True):
                for framework in frameworks if cell.strip() else ():
                    said[framework][role] = cell.strip()
        assert said == CONVENTIONS

    def test_another_order_takes_the_place_of_the_table_s(self) -> None:
        assert framework_desc("tensorflow", "activations", (2, 3, 4, 5), "f32", order="NCHW").tag == "abcd"
        assert framework_desc("onnx", "linear_weights", (3, 4), "f32", order="OI").dims == (3, 4)
        hwio = AxisOrder.parse("HWIO")
        assert framework_desc("jax", "weights", (3, 3, 8, 16), "f32", order=hwio).dims == (16, 8, 3, 3)
        grouped = framework_desc("jax", "weights", (3, 3, 4, 16), "f32", order="HWI(GO)", groups=2)
        assert (grouped.dims, grouped.tag) == ((2, 8, 4, 3, 3), "decab")
        assert framework_shape("jax", "weights", grouped.dims, grouped=True, order="HWI(GO)") == (3, 3, 4, 16)


class TestDimensionNumbers:
    @pytest.mark.parametrize("ndims", [2, 3, 4, 5])
    def test_the_default_is_that_of_the_table(self, ndims: int) -> None:
        lhs, rhs, out = conv_orders(None, ndims)
        letters = "DHW"[5 - ndims :]
        assert (str(lhs), str(rhs), str(out)) == (f"NC{letters}", f"OI{letters}", f"NC{letters}")

    def test_indices_and_texts_say_the_same(self) -> None:
        numbers = SimpleNamespace(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
        assert conv_orders(numbers) == conv_orders(("NHWC", "HWIO", "NHWC"))

    def test_spatial_letters_are_paired_by_name(self) -> None:
        lhs, rhs, out = conv_orders(("NabC", "baIO", "NCba"))
        assert (str(lhs), str(rhs), str(out)) == ("NWHC", "HWIO", "NCHW")


class TestPermuteWithReorder:
    def test_the_example_of_the_rfc(self) -> None:
        values = numbered((2, 9, 5)).astype(np.float32)
        result = permute_with_reorder(pack(values, "aBc8b"), (0, 2, 1))
        assert result.desc == MemoryDesc((2, 5, 9), "f32", "aBc8b")
        assert np.array_equal(result.unpack(), values.transpose(0, 2, 1))
        assert check_padding(result).is_clean

    @settings(max_examples=100)
    @given(descriptors(data_type="u8"), st.data())
    def test_axis_i_becomes_axis_permutation_i_and_the_format_stays(self, desc: MemoryDesc, data: Any) -> None:
        permutation = data.draw(st.permutations(range(desc.ndims)))
        values = np.random.default_rng(0).integers(0, 256, desc.dims).astype(np.uint8)
        memory = pack(values, desc)
        format = None if desc.tag is not None else "abcdefghijkl"[: desc.ndims]
        result = permute_with_reorder(memory, permutation, format)
        assert np.array_equal(result.unpack(), values.transpose(np.argsort(permutation)))
        if desc.tag is not None:
            assert result.desc == MemoryDesc(result.desc.dims, "u8", desc.tag)
        assert np.array_equal(memory.unpack(), values)

    def test_a_format_that_only_a_pattern_says_is_kept(self) -> None:
        pattern = "(m m2 m4) (k k4) -> m k m4 k4 m2"
        values = numbered((16, 8))
        result = permute_with_reorder(pack(values, MemoryDesc((16, 8), "s32", pattern=pattern)), (1, 0))
        assert result.desc == MemoryDesc((8, 16), "s32", pattern=pattern)
        assert np.array_equal(result.unpack(), values.T)
