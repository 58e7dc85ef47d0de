"""Axis orders are permutations of letters, and descriptors of framework tensors read the framework's buffer.

The expected logical arrays are computed by NumPy's reshape and transpose, written for each framework and role.
"""

import re
from collections.abc import Callable
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments, NotationError
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

    @pytest.mark.parametrize(
        ("text", "logical", "permutation"),
        [
            ("NCHW", "NCHW", (0, 1, 2, 3)),
            ("NHWC", "NCHW", (0, 2, 3, 1)),
            ("CHWN", "NCHW", (1, 2, 3, 0)),
            ("HWIO", "OIHW", (2, 3, 1, 0)),
            ("OHWI", "OIHW", (0, 2, 3, 1)),
            ("HWOI", "OIHW", (2, 3, 0, 1)),
            ("NDHWC", "NCDHW", (0, 2, 3, 4, 1)),
            ("DHWIO", "OIDHW", (2, 3, 4, 1, 0)),
            ("HWIGO", "GOIHW", (3, 4, 2, 0, 1)),
            ("NWC", "NCW", (0, 2, 1)),
            ("NTC", "TNC", (1, 0, 2)),
            ("LDGOI", "LDIGO", (0, 1, 3, 4, 2)),
            ("CN", "NC", (1, 0)),
            ("io", "OI", (1, 0)),
        ],
    )
    def test_an_order_is_a_permutation_of_its_logical_order(
        self, text: str, logical: str, permutation: tuple[int, ...]
    ) -> None:
        order = AxisOrder.parse(text)
        assert (order.logical, order.permutation) == (logical, permutation)

    def test_no_two_logical_orders_have_the_same_letters(self) -> None:
        assert len({frozenset(order) for order in LOGICAL_ORDERS}) == len(LOGICAL_ORDERS)

    @given(ORDERS)
    def test_parse_undoes_str(self, order: AxisOrder) -> None:
        assert AxisOrder.parse(str(order)) == order
        assert AxisOrder.parse(str(order).lower(), order.logical.lower()) == order

    @given(ORDERS)
    def test_axes_undo_the_permutation(self, order: AxisOrder) -> None:
        assert [order.permutation[axis] for axis in order.axes] == list(range(order.ndims))
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

    def test_the_buffer_of_the_rfc_s_example_is_described_twice(self) -> None:
        assert framework_dims("tensorflow", "activations", (2, 3, 4, 5)) == (2, 5, 3, 4)
        assert framework_dims("tensorflow", "weights", (2, 3, 4, 5)) == (5, 4, 2, 3)


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
    def test_a_descriptor_sees_the_framework_s_own_buffer(self, case: Case) -> None:
        framework, role, shape, groups, tag, expected = case
        array = numbered(shape)
        desc = framework_desc(framework, role, shape, "s32", groups=groups)
        logical = Memory(desc, array).unpack()
        assert np.array_equal(logical, expected(array))
        assert desc.equivalent(MemoryDesc(logical.shape, "s32", tag))
        assert desc.dims == framework_dims(framework, role, shape, groups=groups)

    @pytest.mark.parametrize("case", CASES, ids=case_name)
    def test_the_shape_comes_back_from_the_dims(self, case: Case) -> None:
        framework, role, shape, groups, _, _ = case
        dims = framework_dims(framework, role, shape, groups=groups)
        assert framework_shape(framework, role, dims, grouped=groups is not None) == shape

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

    @pytest.mark.parametrize("framework", CONVENTIONS)
    def test_every_entry_of_the_table_can_be_read(self, framework: str) -> None:
        for role, text in CONVENTIONS[framework].items():
            spatial = 2 * ("*" in text)
            ndims = spatial + len(text.replace("(GO)", "O").replace("(GI)", "I").replace("*", ""))
            ndims -= sum(letter.islower() for letter in text)
            desc = framework_desc(framework, role, (4,) * ndims, "f32", groups=2 if "rnn_w" in role else None)  # type: ignore[arg-type]
            assert desc.layout.is_dense  # type: ignore[union-attr]

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

    def test_all_permutations_of_three_axes(self) -> None:
        values = numbered((2, 3, 4))
        for permutation in permutations(range(3)):
            moved = permute_with_reorder(pack(values, "acb"), permutation).unpack()
            for x in np.ndindex(2, 3, 4):
                y = [0, 0, 0]
                for i, axis in enumerate(permutation):
                    y[axis] = x[i]
                assert moved[tuple(y)] == values[x]

    def test_a_format_that_only_a_pattern_says_is_kept(self) -> None:
        pattern = "(m m2 m4) (k k4) -> m k m4 k4 m2"
        values = numbered((16, 8))
        result = permute_with_reorder(pack(values, MemoryDesc((16, 8), "s32", pattern=pattern)), (1, 0))
        assert result.desc == MemoryDesc((8, 16), "s32", pattern=pattern)
        assert np.array_equal(result.unpack(), values.T)


GAPS = Memory(MemoryDesc((2, 3), "f32", strides=(5, 1)))

MISTAKES: list[tuple[str, Callable[[], object], type[InlayError], str]] = [
    (
        "block_in_an_order",
        lambda: AxisOrder.parse("nChw8c"),
        NotationError,
        "an axis order is letters only, one per axis, and '8' is none; blocks are part of a format tag\n"
        "    nChw8c\n"
        "    ~~~~^",
    ),
    ("axis_twice", lambda: AxisOrder.parse("NHHC"), NotationError, "axis H appears twice\n    NHHC\n    ~~^"),
    (
        "axes_of_no_tensor",
        lambda: AxisOrder.parse("NHWO"),
        NotationError,
        "no tensor of oneDNN has just the axes N, H, W, O: logical orders are NCHW, OIHW, GOIW, LDNC, LDIO, LDGO, "
        "or say logical=...\n    NHWO\n    ^^^^",
    ),
    (
        "no_axes",
        lambda: AxisOrder.parse(""),
        NotationError,
        "an axis order has axes: logical orders are NC, NCW, NCHW, NCDHW, or say logical=...\n    \n    ^",
    ),
    ("no_text", lambda: AxisOrder.parse(4), InvalidArguments, "axis order 4 is no text: write one such as 'NHWC'"),  # type: ignore[arg-type]
    (
        "foreign_to_logical",
        lambda: AxisOrder.parse("NHWC", "NCXY"),
        NotationError,
        "axis H is not in the logical order NCXY\n    NHWC\n    ~^",
    ),
    (
        "missing_of_logical",
        lambda: AxisOrder.parse("BSD", "BHSD"),
        NotationError,
        "axis H of the logical order BHSD is missing\n    BSD\n    ~~~^",
    ),
    (
        "logical_twice",
        lambda: AxisOrder.parse("BS", "BSS"),
        InvalidArguments,
        "the logical order 'BSS' names an axis twice",
    ),
    (
        "no_permutation",
        lambda: AxisOrder("NHWC", "NCDHW"),
        InvalidArguments,
        "axis order 'NHWC' is no permutation of 'NCDHW'",
    ),
    (
        "axes_twice",
        lambda: AxisOrder.from_axes((0, 1, 1, 2), "NCHW"),
        InvalidArguments,
        "axes (0, 1, 1, 2) must say for each of NCHW which axis of the array it is",
    ),
    (
        "orders_of_two_arrays",
        lambda: AxisOrder.parse("NHWC").permutation_to(AxisOrder.parse("IO")),
        InvalidArguments,
        "NHWC has 4 axes and IO has 2: one array has both",
    ),
    (
        "short_shape",
        lambda: to_logical((2, 3, 4), "NHWC"),
        InvalidArguments,
        "the order NHWC has 4 axes, the shape has 3",
    ),
    (
        "short_array",
        lambda: from_logical(np.zeros((2, 3)), "NHWC"),
        InvalidArguments,
        "the order NHWC has 4 axes, the array has 2",
    ),
    (
        "no_array",
        lambda: to_logical("2x3x4x5", "NHWC"),
        InvalidArguments,
        "value is a str: give a shape such as (2, 3, 4, 5), or an array",
    ),
    (
        "unknown_framework",
        lambda: framework_dims("mxnet", "weights", (2, 3)),
        InvalidArguments,
        "no framework 'mxnet' in the table: it has tensorflow, keras, pytorch, caffe2, onnx, jax",
    ),
    (
        "unknown_role",
        lambda: framework_dims("jax", "rnn_weights", (2, 3), groups=4),
        InvalidArguments,
        "jax has no 'rnn_weights' in the table: it has activations, weights, deconvolution_weights, linear_weights",
    ),
    (
        "too_many_axes",
        lambda: framework_dims("tensorflow", "activations", (1, 2, 3, 4, 5, 6)),
        InvalidArguments,
        "axes N*C are those of an array of 2 to 5 axes: this one has 6",
    ),
    (
        "linear_of_four_axes",
        lambda: framework_dims("pytorch", "linear_weights", (1, 2, 3, 4)),
        InvalidArguments,
        "axes OI are those of an array of 2 axes: this one has 4",
    ),
    (
        "groups_that_do_not_divide",
        lambda: framework_dims("pytorch", "weights", (7, 2, 3, 3), groups=2),
        InvalidArguments,
        "groups is 2, which does not divide the axis of 7 that holds GO",
    ),
    (
        "no_groups_at_all",
        lambda: framework_dims("pytorch", "weights", (7, 2, 3, 3), groups=0),
        InvalidArguments,
        "groups is 0, which does not divide the axis of 7 that holds GO",
    ),
    (
        "groups_of_activations",
        lambda: framework_dims("pytorch", "activations", (7, 2, 3, 3), groups=2),
        InvalidArguments,
        "groups is 2, but activations of pytorch are not split into groups: leave it out",
    ),
    (
        "gates_not_said",
        lambda: framework_dims("pytorch", "rnn_weights", (8, 3)),
        InvalidArguments,
        "rnn_weights have all gates in one axis: say how many, groups=4 for an LSTM, 3 for a GRU, 1 for a plain RNN",
    ),
    (
        "two_layers_in_one_array",
        lambda: framework_shape("pytorch", "rnn_weights", (2, 1, 3, 4, 5)),
        InvalidArguments,
        "axis L of LDIGO (2, 1, 3, 4, 5) is 2: pytorch leaves it out of rnn_weights, so it must be 1",
    ),
    (
        "foreign_sign_in_an_order",
        lambda: framework_dims("jax", "weights", (3, 3, 2, 2), order="HW-IO"),
        NotationError,
        "an order is letters, two in parentheses for one axis that holds both, and * for spatial axes\n"
        "    HW-IO\n"
        "    ~~^",
    ),
    (
        "numbers_that_do_not_fit",
        lambda: conv_orders(("NHWC", "HWIO", "NHC")),
        InvalidArguments,
        "dimension_numbers are ('NHWC', 'HWIO', 'NHC'): give three texts such as ('NHWC', 'HWIO', 'NHWC') that name "
        "the same 0 to 3 spatial axes, a ConvDimensionNumbers, or None for two to five axes",
    ),
    (
        "permute_an_array",
        lambda: permute_with_reorder(np.zeros((2, 3)), (1, 0)),  # type: ignore[arg-type]
        InvalidArguments,
        "memory is a ndarray: wrap it as Memory(desc, buffer), or use inlay.pack",
    ),
    (
        "permute_with_gaps",
        lambda: permute_with_reorder(GAPS, (1, 0)),
        InvalidArguments,
        "no tag or pattern gives dims (3, 2) the format of MemoryDesc((2, 3), 'f32', strides=(5, 1)): "
        "pass a format as format=...",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_says_rule_value_and_remedy(call: Callable[[], object], kind: type[InlayError], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text


def test_a_wrong_permutation_is_refused_as_by_permute_axes() -> None:
    with pytest.raises(InvalidArguments) as rule:
        GAPS.desc.permute_axes((1, 1))
    with pytest.raises(InvalidArguments) as caught:
        permute_with_reorder(GAPS, (1, 1))
    assert str(caught.value) == str(rule.value)
