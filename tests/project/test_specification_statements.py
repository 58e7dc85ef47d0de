"""Statements of the documents that specify memory descriptors: corrected errors, and decisions adopted from oneDNN.

A test is named after its statement; the documents are A, the specification of memory formats, B, the RFC of reshape and
permute_axes, C, MegEngine's tensor layout, D, Understanding memory formats, and E, memory::desc.
"""

import ctypes
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

import inlay
from inlay import DataType, FormatTag, FormatTagError, InvalidArguments, MemoryDesc, Unimplemented
from inlay.layout import RUNTIME
from inlay.testing import draw_any_descriptor
from inlay.testing.choices import Seeded
from tests.support.refusals import raises_exactly

DESC = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: MemoryDesc((2,), "f32", "any").order,
            "order needs a layout: MemoryDesc((2,), 'f32', 'any') is of kind any",
        ),
        (
            lambda: MemoryDesc((4, 5), "f32", (5, 1), strides=(5, 1)),
            "strides are passed twice, as format and as strides: pass them once",
        ),
        (lambda: MemoryDesc((4, 5), "f32", (5,)), "2 dims need as many strides, not 1: (5,)"),
        (
            lambda: MemoryDesc((RUNTIME, 2, 3), "f32", "bac").byte_strides,
            "byte_strides needs every stride: MemoryDesc((RUNTIME, 2, 3), 'f32', 'bac') has RUNTIME ones, "
            "bind them first",
        ),
        (
            lambda: MemoryDesc((2,), "f32", "any").byte_strides,
            "strides belong to blocked layouts: MemoryDesc((2,), 'f32', 'any') is of kind any",
        ),
        (
            lambda: MemoryDesc.from_blob(np.zeros(3, np.int32)),
            "these bytes are no descriptor: it is a ndarray of elements of format i: give its bytes",
        ),
        (
            lambda: MemoryDesc.from_blob([1, 256]),
            "these bytes are no descriptor: it is a sequence with entries other than the integers 0 to 255",
        ),
        (lambda: DESC.has_tag(3), "a format tag is text such as 'nChw16c', not 3"),  # type: ignore[arg-type]
    ],
)
def test_a_mistake_raises_an_error_that_names_it(call: Callable[[], object], text: str) -> None:
    with raises_exactly((InvalidArguments, Unimplemented), text):
        call()


# Mended


@pytest.mark.parametrize(
    ("desc", "is_plain", "is_dense"),
    [
        (MemoryDesc((2, 3, 4, 5), "f32", "nhwc"), True, True),
        (MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), False, True),
        (MemoryDesc((4, 6), "f32", strides=(8, 1)), True, False),
        (MemoryDesc((4, 6), "f32", strides=(0, 1)), True, False),
        (MemoryDesc((4, 6), "f32", "any"), False, False),
        (MemoryDesc((RUNTIME, 6), "f32", "ab"), True, False),
        (MemoryDesc(), False, False),
        (MemoryDesc.csr((4, 6), "f32", 3), False, False),
        (MemoryDesc((4, 1), "f32", "aB1b"), True, True),
        (MemoryDesc((256, 8), "u8", pattern="(m m4 m32) (k k4) -> m k m32 m4 k4"), False, True),
    ],
    ids=repr,
)
def test_plain_is_a_notion_of_its_own(desc: MemoryDesc, is_plain: bool, is_dense: bool) -> None:
    assert (desc.is_plain, desc.is_dense) == (is_plain, is_dense)


def test_the_order_is_the_permutation_that_sorts_strides() -> None:
    assert MemoryDesc((3, 5), "f32", strides=(1, 8)).order == (1, 0)
    assert MemoryDesc((3, 5), "f32", strides=(1, 8)).tag is None
    assert MemoryDesc((), None).order == ()
    for order in permutations(range(5)):
        assert MemoryDesc((2, 3, 4, 5, 6), "f32", FormatTag(order)).order == order


def test_the_third_argument_may_be_strides() -> None:
    desc = MemoryDesc((4, 5), "f32", (5, 1))
    assert desc == MemoryDesc((4, 5), "f32", [5, 1]) == MemoryDesc((4, 5), DataType("f32"), strides=(5, 1))
    assert desc == MemoryDesc((4, 5), "f32", "ab")
    assert desc.strides == (5, 1)


def test_tags_types_and_aliases_are_public_lists() -> None:
    assert len(inlay.TAGS) == 873
    assert len(inlay.ALIASES) == 798
    assert (inlay.TAGS["abcd"], inlay.ALIASES["nhwc"]) == (5, "acdb")
    assert [t.name for t in inlay.DATA_TYPES.values()][:3] == ["f16", "bf16", "f32"]
    for alias, tag in inlay.ALIASES.items():
        assert tag in inlay.TAGS
        assert FormatTag.parse(alias) == FormatTag.parse(tag)


def test_the_tags_of_the_rfc_are_read_as_written() -> None:
    written = {"IOhw8i8o": "BAcd8b8a", "IgOhw8i8o": "CaBde8c8b", "CWnh16w16c": "BDac16d16b", "nChw64c": "aBcd64b"}
    for text, tag in written.items():
        dims = (2, 64, 64, 3, 3) if "g" in text else (64, 64, 3, 64)
        assert MemoryDesc(dims, "f32", text) == MemoryDesc(dims, "f32", tag)
        assert MemoryDesc(dims, "f32", text).tag == tag


def test_reinterpret_axes_is_another_name_of_permute_axes() -> None:
    desc = MemoryDesc((2, 16, 5, 7), "f32", "aBcd8b")
    assert desc.reinterpret_axes((0, 3, 1, 2)) == desc.permute_axes((0, 3, 1, 2))


@pytest.mark.parametrize("name", inlay.DATA_TYPES)
def test_strides_are_said_in_bytes_too(name: str) -> None:
    desc = MemoryDesc((4, 6), name, strides=(8, 1))
    unit = {"s4": 4, "u4": 4, "f4_e2m1": 4}.get(name, DataType(name).itemsize)
    assert desc.byte_strides == (8 * unit, unit)
    assert MemoryDesc((), None).byte_strides == ()


def test_a_blob_is_a_vector_of_uint8() -> None:
    blob = DESC.to_blob()
    vector = np.frombuffer(blob, np.uint8)
    spread = np.repeat(vector, 2)[::2]
    for form in (vector, vector.copy(), vector.tolist(), tuple(blob), bytearray(blob), memoryview(blob), spread):
        assert MemoryDesc.from_blob(form) == DESC


def test_a_handle_of_onednn_can_be_had() -> None:
    onednn = pytest.importorskip("inlay.engines.onednn")
    try:
        library = onednn.load_library().cdll
    except inlay.MissingExtra as error:
        pytest.skip(str(error))
    for desc in (
        DESC,
        MemoryDesc((4, 6), "s8", (8, 1)),
        MemoryDesc((4, 6), "f32", "any"),
        DESC.submemory((1, 9, 5, 4), (1, 8, 0, 0)),
    ):
        handle = desc.to_onednn()
        assert library.dnnl_memory_desc_equal(ctypes.c_void_p(handle.value), ctypes.c_void_p(handle.value)) == 1
        assert MemoryDesc.from_onednn(handle.value, library) == desc
    free = MemoryDesc((256, 8), "u8", pattern="(m m4 m32) (k k4) -> m k m32 m4 k4")
    with pytest.raises(Unimplemented, match=r"^oneDNN cannot represent the digit order of"):
        free.to_onednn()


def test_a_tag_is_compared_by_any_of_its_names() -> None:
    assert (type(DESC.tag), DESC.tag) == (str, "aBcd8b")
    assert all(DESC.has_tag(tag) for tag in ("nChw8c", "aBcd8b", FormatTag.parse("nChw8c")))
    assert not any(DESC.has_tag(tag) for tag in ("nchw", "any", "ab"))
    assert MemoryDesc((2,), "f32", "any").has_tag("any")
    assert not MemoryDesc((2,), "f32", "any").has_tag("a")
    assert not MemoryDesc().has_tag("a")
    assert MemoryDesc((2, 1, 5, 4), "f32", "nchw").has_tag("nhwc")
    with pytest.raises(FormatTagError):
        DESC.has_tag("nchz")


def test_has_tag_is_equality_with_the_descriptor_of_the_tag() -> None:
    choose = Seeded(5)
    tags = [*list(inlay.ALIASES)[::7], *list(inlay.TAGS)[::9]]
    found = 0
    for _ in range(1500):
        desc = draw_any_descriptor(choose)
        tag = choose.pick(tags)
        if choose.pick((True, False)):
            tag = desc.tag if desc.tag is not None else tag
        same = MemoryDesc(desc.dims, desc.data_type, tag, allow_empty=True) if desc.dims else None
        expected = same is not None and not same.is_zero and same == desc
        assert desc.has_tag(tag) == expected, (desc, tag)
        found += expected
    assert found > 100


def test_the_repr_of_every_descriptor_evaluates_with_public_names() -> None:
    choose = Seeded(17)
    names = {name: getattr(inlay, name) for name in inlay.__all__}
    for _ in range(1500):
        desc = draw_any_descriptor(choose)
        assert eval(repr(desc), names) == desc, desc
    opaque = MemoryDesc.opaque((8, 8), "f32", "wino", 4096)
    padded = MemoryDesc((2, 17), "f32", "nC8c", padded_dims=(2, 32))
    for desc in (opaque, padded, MemoryDesc(), MemoryDesc((2, 3), "bool", (3, 1))):
        assert eval(repr(desc), names) == desc


def test_data_types_are_compared_with_names() -> None:
    desc = MemoryDesc((3,), "f32")
    assert desc.data_type == "f32"
    assert desc.data_type != "f16"
    assert np.zeros(3, desc.data_type).dtype == np.float32
    assert DataType("f32") is desc.data_type


# Kept: the library decides otherwise, or the document only proposed it


def test_of_several_unit_axes_the_stride_is_onednn_s() -> None:
    view = MemoryDesc((2, 1, 1, 3), "f32", strides=(100, 50, 10, 1)).reshape((2, 1, 3))
    assert view.strides == (100, 50, 1)
    assert view == MemoryDesc((2, 1, 3), "f32", strides=(100, 10, 1))


def test_runtime_axes_are_not_permuted() -> None:
    with pytest.raises(InvalidArguments, match="RUNTIME"):
        MemoryDesc((RUNTIME, 3), "f32", "ab").permute_axes((1, 0))


def test_what_the_rfc_only_proposed_is_refused_or_done_in_two_steps() -> None:
    blocked = MemoryDesc((2, 16, 5, 4), "f32", "aBcd8b")
    with pytest.raises(InvalidArguments):
        blocked.reshape((2, 320))
    assert blocked.reshape((2, 320), digits=True).kind == "digits"
    nhwc = MemoryDesc((2, 3, 4, 5), "f32", "nhwc")
    with pytest.raises(InvalidArguments):
        nhwc.reshape((2, 60))
    assert nhwc.rename_axes((0, 2, 3, 1)).reshape((2, 60)).tag == "ab"
    padded = MemoryDesc((2, 17), "f32", "aB8b")
    with pytest.raises(InvalidArguments):
        padded.reshape((34,))
    assert MemoryDesc((2, 3, 4), "f32", "acb").reshape((6, 4), digits=True).kind == "blocked"


def test_formats_are_texts_not_an_enumeration() -> None:
    assert MemoryDesc((2, 3, 4, 5), "f32", "nchw").tag == "abcd"
    assert not hasattr(FormatTag, "nchw")
