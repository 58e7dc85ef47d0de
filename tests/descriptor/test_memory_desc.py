"""`MemoryDesc`: fields, queries and equality; its errors are in golden/mistakes/descriptors.txt."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import inlay
from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import HostScalar, MemoryDesc, Undefined, kinds
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Digit, Dims, Layout
from inlay.testing import any_descriptors, data_types, descriptors, format_tags, shapes
from tests.support.view_coordinates import coordinates

SCALES = "(m m4 m32) (k k4) -> m k m32 m4 k4"
"""NVFP4's scale factors: a digit order that no tag can say."""


# Creation


@given(shapes(), data_types(sub_byte=False), st.data())
def test_a_tag_an_alias_and_a_value_give_the_layout_of_the_tag(
    dims: Dims, data_type: DataType, data: st.DataObject
) -> None:
    tag = data.draw(format_tags(len(dims)))
    desc = MemoryDesc(dims, data_type, tag)
    assert desc == MemoryDesc(dims, data_type.name, str(tag))
    assert desc.layout == tag.layout(dims)
    assert desc.tag is not None
    assert (desc.kind, desc.inner_blocks, desc.offset0) == ("blocked", tag.inner_blocks, 0)
    assert (desc.inner_nblks, desc.inner_blks, desc.inner_idxs) == (
        len(tag.inner_blocks),
        tuple(size for _, size in tag.inner_blocks),
        tuple(axis for axis, _ in tag.inner_blocks),
    )


def test_an_alias_and_a_type_of_numpy_are_taken() -> None:
    assert MemoryDesc((2, 17, 5, 4), "u8", "nChw8c") == MemoryDesc([2, 17, 5, 4], np.uint8, "aBcd8b")


@given(descriptors())
def test_strides_and_inner_blocks_say_the_whole_layout(desc: MemoryDesc) -> None:
    """Blocked kinds: the offset from strides and dense inner blocks alone, as oneDNN documents it."""
    assume(desc.kind == "blocked" and 0 not in desc.dims)
    x = coordinates(desc.padded_dims).copy()
    total = np.full(len(x), desc.offset0)
    stride = 1
    for axis, size in reversed(desc.inner_blocks):
        total += x[:, axis] % size * stride
        x[:, axis] //= size
        stride *= size
    total += x @ np.array(desc.strides)
    assert desc.offset(coordinates(desc.padded_dims)).tolist() == total.tolist()


def test_no_layout_said_is_dense_row_major() -> None:
    assert MemoryDesc((2, 3, 4), "f32") == MemoryDesc((2, 3, 4), "f32", "abc")
    assert MemoryDesc((2, 0, 4), "f32").strides == (0, 4, 1)
    assert MemoryDesc((2, 0, 4), "f32", "abc").strides == (4, 4, 1)


def test_default_strides_at_and_left_of_a_runtime_dim_are_runtime() -> None:
    assert MemoryDesc((2, RUNTIME, 3), "f32").strides == (RUNTIME, RUNTIME, 1)
    assert MemoryDesc((RUNTIME, 3), "f32").strides == (RUNTIME, 1)
    assert MemoryDesc((2, RUNTIME, 3), "f32", "abc").strides == (RUNTIME, 3, 1)


def test_padding_may_be_said() -> None:
    desc = MemoryDesc((6, 2), "f32", strides=(4, 1), padded_dims=(6, 4))
    assert (desc.padded_dims, desc.padded_offsets, desc.size) == ((6, 4), (0, 0), 96)
    assert MemoryDesc((6, 2), "f32", padded_dims=(6, 4)) == desc
    assert MemoryDesc((2, 17), "f32", "aB8b", padded_dims=(2, 32)).strides == (32, 8)
    assert MemoryDesc((200, 8), "u8", pattern=SCALES, padded_dims=(384, 8)).padded_dims == (384, 8)


def test_numpy_integers_are_integers() -> None:
    desc = MemoryDesc(np.array([2, 3]), "f32", strides=np.array([4, 1], np.int32))
    assert desc == MemoryDesc([2, 3], "f32", strides=[4, 1])
    assert [type(entry) for entry in (*desc.dims, *desc.strides)] == [int] * 4


def test_rows_up_to_the_last_address_are_accepted() -> None:
    assert MemoryDesc((2, 3), "f32", strides=(2**61 - 1, 1)).strides == (2**61 - 1, 1)
    assert MemoryDesc((2, 3), "f16", strides=(2**61, 1)).strides == (2**61, 1)


@pytest.mark.parametrize(
    ("dims", "strides"),
    [((4, 4), (0, 1)), ((4, 4), (0, 0)), ((4, 4), (8, 2)), ((1, 4), (-4, 1)), ((0, 4), (1, 1)), ((4, 4), (1, 4))],
)
def test_broadcast_unit_and_empty_axes_take_any_stride(dims: Dims, strides: Dims) -> None:
    assert MemoryDesc(dims, "f32", strides=strides).strides == strides


@pytest.mark.parametrize(
    "make",
    [
        lambda: MemoryDesc(),
        lambda: MemoryDesc(()),
        lambda: MemoryDesc((), "f32", "nonsense"),
        lambda: MemoryDesc((2, -3), "nonsense", "undef"),
        lambda: MemoryDesc((2,), "f32", "undef"),
        lambda: MemoryDesc((1, 1), "f32").reshape(()),
        lambda: MemoryDesc((2, -3), "f32", allow_empty=True),
        lambda: MemoryDesc((2, 3), "f32", "abc", allow_empty=True),
        lambda: MemoryDesc((2, 3), "f32", "a?", allow_empty=True),
        lambda: MemoryDesc((2, 3), "boolean", allow_empty=True),
        lambda: MemoryDesc((2, 3), "f32", pattern="a -> a", allow_empty=True),
        lambda: MemoryDesc((3, 4), "f32").bind((3, 5), allow_empty=True),
        lambda: MemoryDesc.host_scalar("none", allow_empty=True),
        lambda: MemoryDesc.host_scalar("boolean", allow_empty=True),
        lambda: MemoryDesc.from_layout(Layout.from_strides((4, 4), (2**63, 1)), "f32", allow_empty=True),
    ],
)
def test_the_zero_descriptor(make: Callable[[], MemoryDesc]) -> None:
    desc = make()
    assert desc == MemoryDesc()
    assert (desc.is_zero, desc.kind, desc.layout, desc.data_type) == (True, "undef", Undefined(), None)
    assert (desc.dims, desc.padded_dims, desc.strides, desc.inner_blocks, desc.digits) == ((), (), (), (), ())
    assert (desc.size, desc.offset0, desc.tag, str(desc), repr(desc)) == (0, 0, None, "undef::undef:::", "MemoryDesc()")


def test_any_has_no_layout() -> None:
    desc = MemoryDesc((2, 3), "bf16", "any")
    assert (desc.kind, desc.layout, desc.padded_dims, desc.size) == ("any", kinds.Any(), (2, 3), 0)
    assert (desc.tag, str(desc), repr(desc)) == ("any", "bf16::any:any::f0", "MemoryDesc((2, 3), 'bf16', 'any')")
    assert desc == MemoryDesc((2, 3), "bf16", "any") != MemoryDesc((2, 3), "f16", "any")
    assert desc != MemoryDesc((2, 3), "bf16")


@pytest.mark.parametrize("data_type", DATA_TYPES.values(), ids=str)
def test_a_host_scalar_is_one_value(data_type: DataType) -> None:
    desc = MemoryDesc.host_scalar(data_type)
    assert (desc.kind, desc.layout, desc.dims, desc.padded_dims) == ("host_scalar", HostScalar(), (1,), (0,))
    assert (desc.size, str(desc)) == (data_type.itemsize, f"{data_type}:p:host_scalar:::f0")
    assert desc == MemoryDesc.host_scalar(data_type) != MemoryDesc((1,), data_type)


def test_an_opaque_format_has_a_name_and_a_size() -> None:
    desc = MemoryDesc.opaque((8, 8), "f32", "wino", 4096)
    assert (desc.kind, desc.size, desc.padded_dims, desc.tag) == ("opaque", 4096, (8, 8), None)
    assert (str(desc), repr(desc)) == ("f32::wino:::f0", "MemoryDesc.opaque((8, 8), 'f32', 'wino', 4096)")
    assert desc != MemoryDesc.opaque((8, 8), "f32", "wino", 8192)


def test_a_free_digit_order_has_digits_and_a_pattern() -> None:
    desc = MemoryDesc((200, 8), "f8_e4m3", pattern=SCALES)
    assert (desc.kind, desc.padded_dims, desc.size) == ("digits", (256, 8), 2048)
    assert desc.digits == ((Digit(2, 1024), Digit(4, 4), Digit(32, 16)), (Digit(2, 512), Digit(4, 1)))
    assert desc.pattern == "(a a4 a32) (b b4) -> a b a32 a4 b4"
    assert (desc.tag, str(desc)) == (None, "f8_e4m3:p:digits:(2,1024)(4,4)(32,16)x(2,512)(4,1)::f0")
    assert desc.offset((33, 5)) == 512 + 16 + 4 + 1


def test_a_pattern_that_a_tag_can_say_is_that_tag() -> None:
    desc = MemoryDesc((2, 17, 5, 4), "f32", pattern="n (c c8) h w -> n c h w c8")
    assert desc == MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    assert desc.pattern == "a (b b8) c d -> a b c d b8"


@given(descriptors())
def test_from_layout_is_the_descriptor_of_that_layout(desc: MemoryDesc) -> None:
    layout, data_type = desc.require_layout("this test")
    if desc.kind == "blocked" and data_type.is_sub_byte:
        return  # A submemory of 4-bit elements may have odd strides, which no constructor takes.
    assert MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=desc.offset0) == desc


# Sizes


SIZES = [
    (MemoryDesc((4, 4), "f32", strides=(8, 2)), 128),  # the trailing gap counts
    (MemoryDesc((4, 4), "f32", strides=(0, 1)), 16),  # one row, repeated
    (MemoryDesc((4, 4), "f32", strides=(0, 0)), 0),
    (MemoryDesc((1, 4), "f32", strides=(100, 1)), 16),  # a unit axis never counts
    (MemoryDesc((1, 4), "f32", strides=(-4, 1)), 16),
    (MemoryDesc((1, 1), "f32", strides=(9, 9)), 4),
    (MemoryDesc((1, 4, 1, 1), "f32", "nChw8c"), 32),  # one whole block
    (MemoryDesc((2, 0, 3), "f32"), 0),
    (MemoryDesc((5,), "s4"), 3),
    (MemoryDesc((5, 3), "u4", strides=(4, 1)), 10),
    (MemoryDesc((10, 256), "f4_e2m1"), 1280),
    (MemoryDesc((2**61,), "f32"), 2**63),
    (MemoryDesc((RUNTIME, 3), "f32"), 2**63),
    (MemoryDesc((0, RUNTIME), "f32", strides=(1, 1)), 0),
    (MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").submemory((2, 8, 5, 4), (0, 8, 0, 0)), 3840),  # offset0 left out
    (MemoryDesc((2, 16), "f32", "aB8b").submemory((2, 3), (0, 0)), 128),  # part of a block: its axis drops out
    (MemoryDesc((16,), "f32", "A8a").submemory((3,), (8,)), 0),
]


@pytest.mark.parametrize(("desc", "size"), SIZES)
def test_size_is_oneDNNs(desc: MemoryDesc, size: int) -> None:  # noqa: N802
    assert desc.size == size


@given(shapes(), data_types(), st.data())
def test_a_fresh_dense_buffer_holds_the_padded_elements(dims: Dims, data_type: DataType, data: st.DataObject) -> None:
    desc = MemoryDesc(dims, data_type, data.draw(format_tags(len(dims))), allow_empty=True)
    assume(not desc.is_zero)
    assert desc.size == -(-prod(desc.padded_dims) * data_type.bits // 8) * (0 not in dims)


@given(descriptors())
def test_no_offset_of_a_fresh_tensor_is_beyond_its_size(desc: MemoryDesc) -> None:
    assume(desc.offset0 == 0 and all(p % a.block == 0 for p, a in zip(desc.padded_dims, desc.layout.axes, strict=True)))  # type: ignore[union-attr]
    layout, data_type = desc.require_layout("this test")
    assert layout.span[1] * data_type.bits <= 8 * desc.size or 0 in desc.dims


# Offsets


@given(shapes(max_size=200).flatmap(descriptors))
def test_offset_is_the_layouts_beyond_offset0(desc: MemoryDesc) -> None:
    layout, data_type = desc.require_layout("this test")
    x = coordinates(desc.padded_dims)
    assert desc.offset(x).tolist() == [desc.offset0 + layout.offset(point) for point in x]
    assert desc.byte_offset(x).tolist() == (desc.offset(x) * data_type.bits // 8).tolist()


def test_one_coordinate_gives_an_int() -> None:
    desc = MemoryDesc((2, 17, 5, 4), "bf16", "nChw8c")
    assert (desc.offset((1, 16, 4, 3)), desc.byte_offset((1, 16, 4, 3))) == (952, 1904)
    assert [type(desc.offset((0, 0, 0, 0))), type(desc.byte_offset((0, 0, 0, 0)))] == [int, int]


def test_offsets_near_the_end_of_64_bits_are_exact_or_refused() -> None:
    last = 2**58 - 1
    desc = MemoryDesc((2**58,), "f64")
    assert desc.byte_offset((last,)) == 8 * last
    assert desc.byte_offset([(last,)]).tolist() == [8 * last]
    beyond = MemoryDesc.from_layout(Layout.from_strides((4,), (1,)), "u8", offset0=2**63 - 2)
    assert beyond.offset((3,)) == 2**63 + 1
    assert beyond.offset([(1,)]).tolist() == [2**63 - 1]
    refusal = r"^offsets 9223372036854775806\.\.9223372036854775809 exceed 64 bits: pass one coordinate at a time$"
    with pytest.raises(Unimplemented, match=refusal):
        beyond.offset([(0,), (3,)])


def test_padding_has_offsets() -> None:
    assert MemoryDesc((17,), "f32", "A8a").offset((23,)) == 23


# Tag, text, repr


@given(descriptors())
def test_the_tag_creates_an_equal_descriptor(desc: MemoryDesc) -> None:
    if desc.tag is not None:
        assert MemoryDesc(desc.dims, desc.data_type, desc.tag) == desc


def test_padding_and_offset_that_no_tag_gives_have_no_tag() -> None:
    assert MemoryDesc((6,), "f32", padded_dims=(12,)).tag is None
    assert MemoryDesc((6, 2), "f32").submemory((3, 2), (3, 0)).tag is None
    assert MemoryDesc((6, 2), "f32").submemory((3, 2), (0, 0)).tag == "ab"


@given(any_descriptors())
def test_repr_creates_an_equal_descriptor(desc: MemoryDesc) -> None:
    try:
        again = eval(repr(desc), vars(inlay).copy())
    except InvalidArguments as refused:
        assert "two elements in a byte" in str(refused)  # noqa: PT017  an odd stride that only a view gives
        return
    assert again == desc


REPRS = [
    "MemoryDesc((2, 17, 5, 4), 'f32', 'aBcd8b')",
    "MemoryDesc((4, 6), 'bf16', strides=(8, 1))",
    "MemoryDesc((6, 2), 'f32', strides=(4, 1), padded_dims=(6, 4))",
    "MemoryDesc((RUNTIME, 6), 's8', strides=(8, 1))",
    "MemoryDesc((256, 8), 'u8', pattern='(a a4 a32) (b b4) -> a b a32 a4 b4')",
    "MemoryDesc((200, 8), 'u8', pattern='(a a4 a32) (b b4) -> a b a32 a4 b4', padded_dims=(384, 8))",
    "MemoryDesc.host_scalar('f32')",
    "MemoryDesc.from_layout(Layout(dims=(2, 3), axes=(Axis(stride=6, inner=()), Axis(stride=1, inner=()))), 'f32', "
    "offset0=3)",
    "MemoryDesc.from_layout(Layout(dims=(16,), axes=(Axis(stride=9, inner=(Digit(extent=8, stride=1),)),)), 'f32', "
    "dims=(9,))",
]


@pytest.mark.parametrize("text", REPRS)
def test_repr_is_the_call(text: str) -> None:
    assert repr(eval(text, vars(inlay).copy())) == text


TEXTS = [
    (MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), "f32:p:blocked:aBcd8b::f0"),
    (MemoryDesc((2, 16, 5, 4), "f32", "nhwc"), "f32::blocked:acdb::f0"),
    (MemoryDesc((1, 1, 1, 1), "f32", "nhwc"), "f32::blocked:abcd::f0"),  # unit axes are placed by stride
    (MemoryDesc((4, 6), "f32", strides=(8, 1)), "f32::blocked:ab:8x1:f0"),
    (MemoryDesc((4, 6), "f32", strides=(0, 1)), "f32::blocked:ab:0x1:f0"),
    (MemoryDesc((3,), "s4"), "s4::blocked:a:1:f0"),  # an odd number of halves of a byte counts as not dense
    (MemoryDesc((RUNTIME, 6), "f32", "ab"), "f32::blocked:ab::f0"),
    (MemoryDesc((6, RUNTIME), "f32", "ab"), "f32::blocked:*::f0"),
    (
        MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").submemory((2, 9, 5, 4), (0, 8, 0, 0)),
        "f32:p0:blocked:aBcd8b:480x160x32x8:f0",
    ),
    (MemoryDesc((64, 64), "bf16", "BA16b16a2b"), "bf16::blocked:BA16b16a2b::f0"),
    (MemoryDesc((16,), "f32", "A8a").submemory((3,), (0,)), "f32::blocked:A8a:8:f0"),  # part of a block is not dense
]


@pytest.mark.parametrize(("desc", "text"), TEXTS)
def test_text_is_oneDNNs(desc: MemoryDesc, text: str) -> None:  # noqa: N802
    assert str(desc) == text


@pytest.mark.parametrize(
    ("desc", "text"),
    [
        (MemoryDesc(), "undef::undef:::"),
        (MemoryDesc((1, 4), "f32", "any"), "f32:a:any:any::f0"),
        (MemoryDesc((1, 4), "f32", pattern="a (b b2) -> b2 a b"), "f32:a:digits:(1,2)x(2,1)(2,2)::f0"),
        (MemoryDesc.csr((3, 4), "f32", 2), "f32:a:sparse:csr::f0"),
        (MemoryDesc.host_scalar("f32"), "f32:ap:host_scalar:::f0"),
        (MemoryDesc((3,), "s8", "A2a"), "s8:ap:blocked:A2a::f0"),
    ],
)
def test_a_text_says_that_any_was_asked_for(desc: MemoryDesc, text: str) -> None:
    assert desc.text(was_any=True) == text


# Equality


EQUAL = [
    (MemoryDesc((1, 4), "f32", strides=(4, 1)), MemoryDesc((1, 4), "f32", strides=(-7, 1))),
    (MemoryDesc((2, 3, 1, 1), "f32", "nchw"), MemoryDesc((2, 3, 1, 1), "f32", "nchw").reshape((2, 3, 1, 1))),
    (MemoryDesc((4, 6), "f32", pattern="a (b b3) -> b3 a b"), MemoryDesc((4, 6), "f32", pattern="a (b b3) -> b3 a b")),
    (MemoryDesc(), MemoryDesc((1,), "f32").reshape(())),
]
EQUIVALENT = [
    (MemoryDesc((1, 8, 1, 1), "f32", "nChw8c"), MemoryDesc((1, 8, 1, 1), "f32", "nchw")),
    (MemoryDesc((32, 16), "f32", "aB4b4b"), MemoryDesc((32, 16), "f32", "aB16b")),
    (MemoryDesc((2, 0, 3), "f32", "abc"), MemoryDesc((2, 0, 3), "f32", strides=(9, 9, 9))),
]
DIFFERENT = [
    (MemoryDesc((2, 3), "f32"), MemoryDesc((2, 3), "s32")),
    (MemoryDesc((2, 3), "f32"), MemoryDesc((3, 2), "f32")),
    (MemoryDesc((2, 3), "f32"), MemoryDesc((2, 3), "f32", "ba")),
    (MemoryDesc((2, 3), "f32"), MemoryDesc((2, 3), "f32", strides=(3, 1), padded_dims=(3, 3))),
    (MemoryDesc((2, 3), "f32"), MemoryDesc((4, 3), "f32").submemory((2, 3), (2, 0))),
    (MemoryDesc((2, 3), "f32"), MemoryDesc((2, 3), "f32", "any")),
    (MemoryDesc((2, 3), "f32"), MemoryDesc()),
    (MemoryDesc((1,), "f32"), MemoryDesc.host_scalar("f32")),
    (MemoryDesc((256, 8), "u8", pattern=SCALES), MemoryDesc((256, 8), "u8")),
]


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_equal(first: MemoryDesc, second: MemoryDesc) -> None:
    assert first == second
    assert hash(first) == hash(second)
    assert first.equivalent(second)


@pytest.mark.parametrize(("first", "second"), EQUIVALENT)
def test_equivalent_is_not_equal(first: MemoryDesc, second: MemoryDesc) -> None:
    assert first.equivalent(second)
    assert second.equivalent(first)
    assert first != second


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_different(first: MemoryDesc, second: MemoryDesc) -> None:
    assert first != second
    assert not first.equivalent(second)
    assert not second.equivalent(first)


@given(descriptors((4, 6), "u8"), descriptors((4, 6), "u8"))
def test_equivalent_is_the_same_offsets(first: MemoryDesc, second: MemoryDesc) -> None:
    same = first.padded_dims == second.padded_dims and all(
        first.offset(x) == second.offset(x) for x in coordinates(first.padded_dims)
    )
    assert first.equivalent(second) == same
    assert first != second or same


@given(descriptors())
def test_a_descriptor_equals_nothing_of_another_kind(desc: MemoryDesc) -> None:
    assert desc != repr(desc)
    assert desc != desc.layout


def test_runtime_compares_as_a_value_but_is_no_map() -> None:
    first, second = MemoryDesc((RUNTIME, 3), "f32", "ab"), MemoryDesc((RUNTIME, 3), "f32", strides=(RUNTIME, 1))
    assert first != second
    assert first == MemoryDesc((RUNTIME, 3), "f32", "ab")
    assert first.equivalent(MemoryDesc((RUNTIME, 3), "f32", "ab"))
    with pytest.raises(Unimplemented):
        first.equivalent(second)


# Values


def test_different_descriptors_seldom_share_a_hash() -> None:
    assert len({hash(MemoryDesc((m, n), "f32")) for m in range(1, 20) for n in range(1, 20)}) > 350


def test_a_pickle_is_found_in_a_dict_of_another_process() -> None:
    """The hash of text is another in each process, so it must not travel."""
    desc = MemoryDesc((2, 17), "f32", "aB8b")
    hash(desc)
    script = (
        "import pickle, sys; from inlay.descriptor import MemoryDesc; "
        "print({MemoryDesc((2, 17), 'f32', 'aB8b'): 'found'}[pickle.loads(bytes.fromhex(sys.argv[1]))])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, pickle.dumps(desc).hex()], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "found\n"


def test_a_descriptor_does_not_change() -> None:
    desc = MemoryDesc((2, 3), "f32")
    with pytest.raises(AttributeError):
        desc.dims = (3, 2)  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        desc.color = "red"  # type: ignore[attr-defined]
