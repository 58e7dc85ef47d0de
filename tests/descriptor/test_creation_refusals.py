"""Error texts of the constructors of descriptors, in full: the rule, the value, the argument and the remedy."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import FormatTagError, InlayError, InvalidArguments, PatternError, Unimplemented
from inlay.layout import RUNTIME, Dims, Layout
from inlay.notation.format_tag import FormatTag

SCALES = "(m m4 m32) (k k4) -> m k m32 m4 k4"
"""NVFP4's scale factors: a digit order that no tag can say."""


def by_tag(*arguments: Any, **said: Any) -> Callable[[], object]:
    return lambda: MemoryDesc(*arguments, **said)


WIDE = "more than the 2**63 - 1 that an offset can count"
BAD_CALLS: list[tuple[Callable[[], object], str]] = [
    (by_tag("23", "f32"), "dims is '23': give a sequence of integers such as (2, 3)"),
    (by_tag(5, "f32"), "dims is 5: give a sequence of integers such as (5,)"),
    (by_tag(True, "f32"), "dims is True: give a sequence of integers such as (2, 3)"),
    (by_tag({2: 3}, "f32"), "dims is {2: 3}: give a sequence of integers such as (2, 3)"),
    (by_tag({2}, "f32"), "dims is {2}: give a sequence of integers such as (2, 3)"),
    (by_tag((2, 3.0), "f32"), "dims[1] is 3.0: entries are integers"),
    (by_tag((2, True), "f32"), "dims[1] is True: entries are integers"),
    (by_tag((np.float32(2), 3), "f32"), "dims[0] is np.float32(2.0): entries are integers"),
    (by_tag((2, "3"), "f32"), "dims[1] is '3': entries are integers"),
    (by_tag((2, None), "f32"), "dims[1] is None: entries are integers"),
    (by_tag((2, 2**63), "f32"), "dims[1] is 9223372036854775808: entries fit in 64 bits"),
    (by_tag((2, -3), "f32"), "dim 1 (b) is -3: dims are 0 or more, or RUNTIME"),
    (by_tag((1,) * 13, "f32"), "13 dims are too many: a descriptor has at most 12"),
    (
        by_tag((2**31, 2**31, 2**31), "f32"),
        f"dims (2147483648, 2147483648, 2147483648) have 9903520314283042199192993792 elements, {WIDE}",
    ),
    (by_tag((2, 3)), "data_type is missing: give one such as 'f32'"),
    (
        by_tag((2, 3), "boolean"),
        "no descriptor can be made of data type boolean: boolean (code 8) is the result type of oneDNN's "
        "comparisons only; bool stores truth values",
    ),
    (
        by_tag((2, 3, 4), "f32", "nchw"),
        "format nchw (abcd) places 4 axes, but dims (2, 3, 4) are 3: give 4 dims, or a format of 3 letters such as abc",
    ),
    (
        by_tag((2, 3), "f32", FormatTag.parse("abc")),
        "format abc places 3 axes, but dims (2, 3) are 2: give 3 dims, or a format of 2 letters such as ab",
    ),
    (by_tag((2, 3), "f32", ["ab"]), "format is ['ab']: give a format tag as text, such as 'ab', or a FormatTag"),
    (
        by_tag((2, 3), "f32", "ab", strides=(3, 1)),
        "format, strides and pattern each specify the whole layout: give one of them",
    ),
    (
        by_tag((2, 3), "f32", strides=(3, 1), pattern="a b -> a b"),
        "format, strides and pattern each specify the whole layout: give one of them",
    ),
    (by_tag((2, 3), "f32", strides=(3,)), "2 dims need as many strides, not 1: (3,)"),
    (by_tag((2, 3), "f32", strides="31"), "strides is '31': give a sequence of integers such as (2, 3)"),
    (by_tag((2, 3), "f32", strides=(3.5, 1)), "strides[0] is 3.5: entries are integers"),
    (
        by_tag((4, 4), "f32", strides=(3, 1)),
        "stride 3 of axis 0 (a) is too small: axis 1 (b) inside it reaches 4, so 4 is the least",
    ),
    (
        by_tag((4, 4), "f32", strides=(1, 3)),
        "stride 3 of axis 1 (b) is too small: axis 0 (a) inside it reaches 4, so 4 is the least",
    ),
    (
        by_tag((2, 2), "f32", strides=(3, 2)),  # disjoint, but not nested
        "stride 3 of axis 0 (a) is too small: axis 1 (b) inside it reaches 4, so 4 is the least",
    ),
    (
        by_tag((4, 4), "f32", strides=(-4, 1)),
        "stride -4 of axis 0 (a) is negative: formats of oneDNN have strides of 0 or more; "
        "MemoryDesc.from_layout takes a Layout with any strides",
    ),
    (
        by_tag((2, 3), "s4", "ab"),
        "stride 3 of axis 0 (a) is odd: s4 has two elements in a byte, so strides other than 1 are even; 4 works",
    ),
    (
        by_tag((2, 3), "f32", strides=(2**62, 1)),
        f"axis 0 (a) reaches 9223372036854775808 elements with stride 4611686018427387904 and 2 steps, {WIDE}",
    ),
    (
        by_tag((2**62,), "f32"),
        "dims (4611686018427387904,) take 18446744073709551616 bytes as f32, more than an address can count",
    ),
    (
        by_tag((2, 3), "f32", strides=(2**61, 1)),
        "dims (2, 3) take 18446744073709551616 bytes as f32, more than an address can count",
    ),
    (
        by_tag((2**31, 3), "f32", "ab"),
        "format ab of dims (2147483648, 3) exceeds oneDNN's bound on tags: 2147483648 * 6442450944 elements of 4 bytes "
        "are more than 2**64 - 1; give strides=(3, 1) instead of the tag",
    ),
    (
        by_tag((2**31, 3), "f32", "aB4b"),
        "format aB4b of dims (2147483648, 4) exceeds oneDNN's bound on tags: 2147483648 * 8589934592 elements of 4 "
        "bytes are more than 2**64 - 1; use smaller dims",
    ),
    (
        by_tag((RUNTIME, 3), "f32", "any"),
        "format any needs known dims: a primitive cannot choose a layout for RUNTIME ones",
    ),
    (
        by_tag((2, 3), "f32", "any", padded_dims=(2, 4)),
        "format any has no padded_dims: the primitive chooses them with the layout",
    ),
    (by_tag((2, 3), "f32", padded_dims=(2, 2)), "padded_dims[1] is 2: axis 1 (b) needs 3 or more, as its dim is"),
    (by_tag((2, 3), "f32", padded_dims=(2,)), "2 dims need as many padded_dims, not 1: (2,)"),
    (
        by_tag((2, RUNTIME), "f32", padded_dims=(2, 4)),
        "padded_dims[1] is 4: axis 1 (b) needs RUNTIME, as its dim is",
    ),
    (
        by_tag((2, 17), "f32", "aB8b", padded_dims=(2, 25)),
        "format aB8b pads to (2, 32), not to padded_dims (2, 25): give multiples of its blocks, or none",
    ),
    (
        by_tag((2, 17), "f32", pattern="a (b b8) -> a b b8", padded_dims=(2, 25)),
        "pattern 'a (b b8) -> a b b8' pads to (2, 32), not to padded_dims (2, 25): give multiples of its blocks, "
        "or none",
    ),
    (
        lambda: MemoryDesc.from_layout(Layout.from_strides((2,), (1,)), "f32", dims=(3,)),
        "padded_dims[0] is 2: axis 0 (a) needs 3 or more, as its dim is",
    ),
    (
        lambda: MemoryDesc.from_layout("ab", "f32"),  # type: ignore[arg-type]
        "layout is 'ab': give a Layout, such as Layout.from_strides((2, 3), (3, 1))",
    ),
    (
        lambda: MemoryDesc.from_layout(Layout.from_strides((2,), (1,)), "f32", offset0=-1),
        "offset0 is -1: the first element is 0 or more elements into the buffer",
    ),
    (
        lambda: MemoryDesc((2, 3), "f32", "any").strides,
        "strides belong to blocked layouts: MemoryDesc((2, 3), 'f32', 'any') is of kind any",
    ),
    (
        lambda: MemoryDesc.host_scalar("f32").inner_nblks,
        "inner blocks belong to blocked layouts: MemoryDesc.host_scalar('f32') is of kind host_scalar",
    ),
    (
        lambda: MemoryDesc((128, 4), "u8", pattern=SCALES).strides,
        "strides of MemoryDesc((128, 4), 'u8', pattern='(a a4 a32) (b b4) -> a b a32 a4 b4') do not exist: this "
        "digit order has no inner blocks in oneDNN's sense; read `digits`",
    ),
    (
        lambda: MemoryDesc((2, 3), "f32", "any").offset((0, 0)),
        "offset needs a layout: MemoryDesc((2, 3), 'f32', 'any') is of kind any",
    ),
]


@pytest.mark.parametrize(("call", "text"), BAD_CALLS)
def test_a_bad_call_says_what_is_wrong(call: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        call()
    assert str(caught.value) == text
    assert caught.value.status == "invalid_arguments"


@pytest.mark.parametrize(("dims", "tag"), [((1, 2**62), "AB16b16a2b"), ((2**62, 1), "A64a"), ((2**60, 0), "Ab16a16a")])
def test_huge_blocked_dims_give_an_error_and_no_crash(dims: Dims, tag: str) -> None:
    with pytest.raises(InvalidArguments):
        MemoryDesc(dims, "bf16", tag)


def test_texts_that_cannot_be_read_show_where() -> None:
    with pytest.raises(FormatTagError):
        MemoryDesc((2, 3), "f32", "ab16e")
    with pytest.raises(PatternError):
        MemoryDesc((2, 3), "f32", pattern="a b -> a c")


def test_offsets_of_runtime_layouts_wait_for_numbers() -> None:
    desc = MemoryDesc((2, RUNTIME), "f32")
    assert (desc.has_runtime, desc.dims, desc.kind) == (True, (2, RUNTIME), "blocked")
    with pytest.raises(Unimplemented) as caught:
        desc.offset((0, 0))
    assert str(caught.value) == ("offset needs every dim and stride: this layout has RUNTIME ones, bind them first")


ACCEPTED_STRIDES = [
    ((4, 4), (0, 1)),
    ((4, 4), (0, 0)),
    ((4, 4), (8, 2)),
    ((1, 4), (-4, 1)),
    ((0, 4), (1, 1)),
    ((4, 4), (1, 4)),
]


@pytest.mark.parametrize(("dims", "strides"), ACCEPTED_STRIDES)
def test_broadcast_unit_and_empty_axes_take_any_stride(dims: Dims, strides: Dims) -> None:
    assert MemoryDesc(dims, "f32", strides=strides).strides == strides


def test_the_status_of_every_refusal_is_oneDNNs() -> None:  # noqa: N802
    desc = MemoryDesc((4, 4), "f32")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: desc.reshape((5,)), "invalid_arguments"),
        (lambda: desc.submemory((5, 4), (0, 0)), "invalid_arguments"),
        (lambda: MemoryDesc((4, 8), "f32", "aB8b").submemory((4, 4), (0, 2)), "unimplemented"),
    ]
    for call, status in refused:
        with pytest.raises(InlayError) as caught:
            call()
        assert caught.value.status == status


def test_bytes_up_to_the_last_address_are_accepted() -> None:
    assert MemoryDesc((2, 3), "f32", strides=(2**61 - 1, 1)).strides == (2**61 - 1, 1)
    assert MemoryDesc((2, 3), "f16", strides=(2**61, 1)).strides == (2**61, 1)


def test_lists_of_integers_from_json_are_dims() -> None:
    said = json.loads('{"dims": [2, 3], "strides": [4, 1]}')
    assert MemoryDesc(said["dims"], "f32", strides=said["strides"]).size == 32
