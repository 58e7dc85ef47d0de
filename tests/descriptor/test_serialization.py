"""JSON and blobs: round trips of all kinds, and errors for everything that is not a valid descriptor."""

import copy
import json
import pickle
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.descriptor import Extras, MemoryDesc
from inlay.descriptor.blob import MAGIC, encode_blob
from inlay.descriptor.serialization import MAX_CHARACTERS, DescriptorParts
from inlay.errors import FormatTagError, InlayError, InvalidArguments
from inlay.layout import RUNTIME, Axis, Digit, Layout
from inlay.testing import any_descriptors, draw_any_descriptor
from inlay.testing.choices import Seeded
from tests.support.refusals import raises_exactly

BLOCKED = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
SCALES = MemoryDesc((200, 8), "f8_e4m3", pattern="(m m4 m32) (k k4) -> m k m32 m4 k4")
SAMPLES = [
    MemoryDesc(),
    MemoryDesc((4, 6), "bf16", "any"),
    BLOCKED,
    BLOCKED.submemory((1, 9, 5, 4), (1, 8, 0, 0)),
    MemoryDesc((RUNTIME, 6), "s4", strides=(RUNTIME, 1)),
    SCALES,
    MemoryDesc((32, 16), "s8", extras=Extras(3, compensation_mask=1, scale_adjust=0.5)),
    MemoryDesc.csr((3, 4), "f32", 2, "s32", "s64"),
    MemoryDesc.coo((3, 4, 5), "f32", 2),
    MemoryDesc.packed((64, 64), "s8", 100),
    MemoryDesc.host_scalar("f64"),
    MemoryDesc.packed((64, 60), "s8", 100, "BA16a64b4a"),
]


def same_spelling(one: MemoryDesc, two: MemoryDesc) -> bool:
    mine, its = ((d.dims, d.data_type, d.layout, d.offset0, d.extras, d.kind) for d in (one, two))
    return mine == its and one == two


# Round trips


@given(any_descriptors())
def test_json_pickle_and_copy_keep_the_spelling(desc: MemoryDesc) -> None:
    text = desc.to_json()
    copies = (MemoryDesc.from_json(text), pickle.loads(pickle.dumps(desc)), copy.copy(desc), copy.deepcopy(desc))
    for back in copies:
        assert same_spelling(back, desc)
        assert back.to_json() == text
        assert hash(back) == hash(desc)


@given(any_descriptors())
def test_a_blob_comes_back_equal(desc: MemoryDesc) -> None:
    blob = desc.to_blob()
    back = MemoryDesc.from_blob(blob)
    assert back == desc
    assert back.to_blob() == blob
    assert MemoryDesc.from_blob(bytearray(blob)) == MemoryDesc.from_blob(memoryview(blob)) == desc


def _near(choose: Seeded, desc: MemoryDesc) -> MemoryDesc:
    """Another spelling of the descriptor, or one that differs in little."""
    if not isinstance(desc.layout, Layout):
        return MemoryDesc.from_json(desc.to_json())
    axes = list(desc.layout.axes)
    i = choose.integer(0, len(axes) - 1)
    match choose.pick(("stride", "unit digit", "same")):
        case "stride":
            axes[i] = Axis(axes[i].stride + choose.integer(0, 4), axes[i].inner)
        case "unit digit":
            axes[i] = Axis(axes[i].stride, (*axes[i].inner, Digit(1, 7)))
    layout = Layout(desc.layout.dims, tuple(axes))
    assert desc.data_type is not None
    near = MemoryDesc.from_layout(
        layout, desc.data_type, dims=desc.dims, offset0=desc.offset0, extras=desc.extras, allow_empty=True
    )
    return desc if near.is_zero else near


def test_descriptors_are_equal_exactly_when_their_blobs_are() -> None:
    choose = Seeded(11)
    equal = 0
    descs = [draw_any_descriptor(choose) for _ in range(1500)]
    pairs = [*pairwise(descs), *[(desc, _near(choose, desc)) for desc in descs]]
    for one, two in pairs:
        assert (one == two) == (one.to_blob() == two.to_blob()), (one, two)
        equal += one == two and one.layout != two.layout
    assert equal > 50


def test_unit_axes_have_one_blob() -> None:
    one, two = (MemoryDesc((4, 1, 3), "f32", strides=(3, s, 1)) for s in (3, 99))
    assert one == two
    assert one.to_blob() == two.to_blob()
    assert one.to_json() != two.to_json()
    # Where a unit axis' RUNTIME stride exempts the others from the rules, it is kept.
    odd = MemoryDesc((1, 4, 4), "f32", strides=(RUNTIME, 3, 1))
    assert MemoryDesc.from_blob(odd.to_blob()) == odd


def test_a_descriptor_that_only_views_make_comes_back() -> None:
    odd = MemoryDesc((4, 6), "s4").reshape((8, 3))
    assert odd.strides == (3, 1)
    assert same_spelling(MemoryDesc.from_json(odd.to_json()), odd)
    assert MemoryDesc.from_blob(odd.to_blob()) == odd


# The forms are what the docs say, so files of today are read tomorrow


def test_the_form_of_json_is_stable() -> None:
    assert BLOCKED.to_json() == (
        '{"inlay":"memory_desc","version":2,"kind":"blocked","dims":[2,17,5,4],"data_type":"f32",'
        '"padded_dims":[2,24,5,4],"strides":[480,160,32,8],"inner_digits":[[],[[8,1]],[],[]],"offset0":0,'
        '"format":"nChw8c"}'
    )
    assert MemoryDesc((2, 17, 5, 4), "f32", "aBcd8b").to_json() == (
        '{"inlay":"memory_desc","version":1,"kind":"blocked","dims":[2,17,5,4],"data_type":"f32",'
        '"padded_dims":[2,24,5,4],"strides":[480,160,32,8],"inner_digits":[[],[[8,1]],[],[]],"offset0":0}'
    )
    assert MemoryDesc.from_json(MemoryDesc((2, 17, 5, 4), "f32", "aBcd8b").to_json()) == BLOCKED
    assert json.loads(SAMPLES[4].to_json())["dims"] == ["RUNTIME", 6]
    assert json.loads(SAMPLES[6].to_json())["extras"] == {"flags": 3, "compensation_mask": 1, "scale_adjust": 0.5}
    texts = [desc.to_json() for desc in SAMPLES]
    assert [json.loads(text)["kind"] for text in texts] == [desc.kind for desc in SAMPLES]
    assert texts[0] == '{"inlay":"memory_desc","version":1,"kind":"undef"}'
    assert texts[7] == (
        '{"inlay":"memory_desc","version":1,"kind":"sparse","dims":[3,4],"data_type":"f32","encoding":"csr","nnz":2,'
        '"index_type":"s32","pointer_type":"s64"}'
    )
    assert texts[10] == '{"inlay":"memory_desc","version":1,"kind":"host_scalar","data_type":"f64"}'
    assert texts[11] == (
        '{"inlay":"memory_desc","version":1,"kind":"sparse","dims":[64,60],"data_type":"s8","encoding":"packed",'
        '"nnz":100,"tag":"BA16a64b4a"}'
    )


def test_the_form_of_blobs_is_stable() -> None:
    blob = MemoryDesc((2, 3), "f32").to_blob()
    body = (
        b'{"inlay":"memory_desc","version":1,"kind":"blocked","dims":[2,3],"data_type":"f32","padded_dims":[2,3],'
        b'"strides":[3,1],"inner_digits":[[],[]],"offset0":0}'
    )
    assert blob[:14] == b"\x89INLAY\r\n" + struct.pack("<HI", 1, len(body))
    assert blob[14:30].hex() == "e4ed759591180f068baf058f890a4870"
    assert blob[30:] == body


def test_keys_may_stand_in_any_order_and_with_spaces() -> None:
    value = json.loads(BLOCKED.to_json())
    text = json.dumps(dict(reversed(value.items())), indent=4)
    assert same_spelling(MemoryDesc.from_json(text), BLOCKED)


# Invalid texts


def patch(desc: MemoryDesc = BLOCKED, **values: Any) -> str:
    """Return the JSON of a descriptor with some values replaced."""
    return json.dumps({**json.loads(desc.to_json()), **values})


def drop(key: str, desc: MemoryDesc = BLOCKED) -> str:
    """Return the JSON of a descriptor without one key."""
    return json.dumps({k: v for k, v in json.loads(desc.to_json()).items() if k != key})


LAYOUT_KEYS = "dims, data_type, padded_dims, strides, inner_digits, offset0"
OPAQUE = '{"inlay":"memory_desc","version":1,"kind":"opaque","dims":[8],"data_type":"f32","name":"wino","nbytes":64}'
TYPES = (
    "f16, bf16, f32, s32, s8, u8, f64, f8_e5m2, f8_e4m3, s4, u4, e8m0, f4_e2m1, s64, bool, s16, u16, u32, u64, "
    "complex64, complex128"
)
KINDS = "undef, any, blocked, digits, swizzled, opaque, sparse, host_scalar"
REFUSED: list[tuple[Any, str]] = [
    (b"{}", "it is a bytes: give the text that to_json wrote"),
    ("", "Expecting value: line 1 column 1 (char 0)"),
    ('{"inlay":', "Expecting value: line 1 column 10 (char 9)"),
    ("[" * 100_000, "it is nested too deeply"),
    (" " * (MAX_CHARACTERS + 1), "it has 1048577 characters: at most 1048576 are read"),
    ("[]", "it is a list of 0: give an object"),
    ("3", "it is 3: give an object"),
    ("{}", "key 'inlay' is missing"),
    ('{"inlay": "memory_desc", "version": 1, "version": 1}', "key 'version' is there twice"),
    ('{"inlay": NaN}', "NaN is no number"),
    ('{"inlay": -Infinity}', "-Infinity is no number"),
    (patch(inlay="tensor"), "inlay is 'tensor': give 'memory_desc'"),
    (patch(version=3), "version is 3: this Inlay reads 1 and 2; use the Inlay that wrote it"),
    (patch(version=True), "version is True: this Inlay reads 1 and 2; use the Inlay that wrote it"),
    (patch(version=1.0), "version is 1.0: this Inlay reads 1 and 2; use the Inlay that wrote it"),
    (patch(kind="plain"), f"kind is 'plain': give one of {KINDS}"),
    (patch(kind=["any"]), "kind is a list of 1: give a text"),
    (patch(kind="digits"), "kind is 'digits': its digits are those of kind 'blocked'"),
    (patch(SCALES, kind="blocked"), "kind is 'blocked': its digits are those of kind 'digits'"),
    (drop("strides"), f"key 'strides' is missing: kind 'blocked' has {LAYOUT_KEYS}"),
    (patch(colour="red"), f"key 'colour' is unknown: kind 'blocked' has {LAYOUT_KEYS}"),
    (patch(MemoryDesc(), dims=[]), "key 'dims' is unknown: kind 'undef' has no others"),
    (patch(dims=[]), "dims has no entries: only kind 'undef' has no dims"),
    (patch(dims={"0": 1}), "dims is a JSON object of 1: give a list"),
    (patch(dims=[2, 17, 5, 4.0]), "dims[3] is 4.0: give an integer of 64 bits"),
    (patch(dims=[2, 17, 5, True]), "dims[3] is True: give an integer of 64 bits"),
    (patch(dims=[2, 17, 5, None]), "dims[3] is None: give an integer of 64 bits"),
    (patch(dims=[2, 17, 5, "runtime"]), "dims[3] is 'runtime': give an integer of 64 bits"),
    (patch(dims=[2, 17, 5, 2**63]), "dims[3] is 9223372036854775808: give an integer of 64 bits"),
    (patch(dims=[2, 17, 5, RUNTIME]), "dims[3] is -9223372036854775808: give an integer of 64 bits"),
    (patch(dims=[1] * 13), "dims has 13 entries: a descriptor has at most 12 dims"),
    (patch(data_type="f33"), f"data_type is 'f33': give one of {TYPES}"),
    (patch(data_type="float32"), f"data_type is 'float32': give one of {TYPES}"),
    (patch(strides=[1, 2]), "strides has 2 entries: padded_dims has 4"),
    (patch(inner_digits=[[]]), "inner_digits has 1 entries: padded_dims has 4"),
    (patch(inner_digits=[[], [8, 1], [], []]), "inner_digits[1][0] is 8: give a list"),
    (patch(inner_digits=[[], [[8]], [], []]), "inner_digits[1][0] has 1 entries: a digit has an extent and a stride"),
    (patch(inner_digits=[[], [[8, "x"]], [], []]), "inner_digits[1][0][1] is 'x': give an integer of 64 bits"),
    (patch(extras={}), "extras has no flags: leave it out"),
    (patch(extras={"flags": 1, "mask": 1}), "key 'mask' of extras is unknown: it has flags, compensation_mask, "
     "scale_adjust, asymmetric_mask, gpu_geometry, gpu_nbytes"),
    (patch(extras=1), "extras is 1: give an object"),
    (OPAQUE.replace('"wino"', "5"), "name is 5: give a text"),
    (OPAQUE.replace(":64", ":1.5"), "nbytes is 1.5: give an integer of 64 bits"),
    (patch(SAMPLES[7], encoding="bsr"), "encoding is 'bsr': give one of csr, coo, packed"),
    (drop("pointer_type", SAMPLES[7]), "key 'pointer_type' is missing: kind 'sparse' has dims, data_type, encoding, "
     "nnz, index_type, pointer_type"),
    (patch(SAMPLES[8], pointer_type="s32"), "key 'pointer_type' is unknown: kind 'sparse' has dims, data_type, "
     "encoding, nnz, index_type"),
    (patch(SAMPLES[8], tag="aB64b"), "key 'tag' is unknown: kind 'sparse' has dims, data_type, encoding, nnz, "
     "index_type"),
    (patch(SAMPLES[11], tag=""), "tag is empty: leave it out"),
    (patch(SAMPLES[11], tag=5), "tag is 5: give a text"),
    (patch(padded_dims=[2, 17, 5, "x"]), "padded_dims[3] is 'x': give an integer of 64 bits"),
    (patch(strides=[480, 160, 32, "x"]), "strides[3] is 'x': give an integer of 64 bits"),
    (patch(SAMPLES[7], nnz="2"), "nnz is '2': give an integer of 64 bits"),
    (patch(extras={"flags": 32, "gpu_geometry": 5}), "extras.gpu_geometry is 5: give a list"),
    (patch(format=3), "format is 3: give a text"),
    (patch(version=1), f"key 'format' is unknown: kind 'blocked' has {LAYOUT_KEYS}"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), REFUSED, ids=range(len(REFUSED)))
def test_json_that_is_refused_says_where(text: Any, problem: str) -> None:
    with raises_exactly(InvalidArguments, f"this is no JSON of a descriptor: {problem}"):
        MemoryDesc.from_json(text)


@pytest.mark.parametrize("count", [57, 58, 59, 5000])
def test_a_long_value_is_shown_cut(count: int) -> None:
    shown = repr("x" * count) if count <= 58 else f"'{'x' * 56}..."
    with raises_exactly(InvalidArguments, f"this is no JSON of a descriptor: kind is {shown}: give one of {KINDS}"):
        MemoryDesc.from_json(patch(kind="x" * count))


RULES: list[tuple[str, str]] = [
    (patch(padded_dims=[2, 16, 5, 4]), "padded_dims[1] is 16: axis 1 (b) needs 17 or more, as its dim is"),
    (patch(dims=[2, 17, 5]), "3 dims need as many padded_dims, not 4: (2, 24, 5, 4)"),
    (patch(strides=[480, 160, 32, 4]), "stride 4 of axis 3 (d) is too small: its inner blocks hold 8 elements, so 8 "
     "is the least"),
    (patch(offset0=-1), "offset0 is -1: the first element is 0 or more elements into the buffer"),
    (patch(dims=[2, -1, 5, 4]), "dim 1 (b) is -1: dims are 0 or more, or RUNTIME"),
    (patch(extras={"flags": 1, "compensation_mask": 16}), "compensation_mask 0b10000 selects axis 4: 4 dims have "
     "axes 0..3"),
    (patch(extras={"flags": 1, "compensation_mask": 1.5}), "compensation_mask is 1.5: give an integer from 0 to "
     "4095"),
    (patch(inner_digits=[[], [[0, 1]], [], []]), "axis 1 has an inner digit of extent 0: extents are 1 or more"),
    (patch(MemoryDesc((4,), "f32", "any"), dims=["RUNTIME"]), "format any needs known dims: a primitive cannot "
     "choose a layout for RUNTIME ones"),
    (patch(SAMPLES[7], nnz=13), "nnz is 13: dims (3, 4) have 12 elements, and each is stored once at most"),
    (patch(SAMPLES[7], index_type="f32"), "index_type is f32: positions are integers of whole bytes, one of s32, s8, "
     "u8, s64"),
    (OPAQUE.replace("wino", "../x"), "name of an opaque format is '../x': give 1 to 64 letters, digits and _-."),
    (OPAQUE.replace(":64", ":-1"), "nbytes of an opaque format is -1: give 0 to 2**63 - 1"),
    (patch(format="aBcd4b"), "format 'aBcd4b' gives dims (2, 24, 5, 4) another layout"),
    (patch(format="nC8c"), "format tag nC8c places 2 axes, dims (2, 24, 5, 4) have 4"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "problem"), RULES, ids=range(len(RULES)))
def test_json_of_what_is_no_descriptor_is_refused(text: str, problem: str) -> None:
    with raises_exactly(InvalidArguments, problem):
        MemoryDesc.from_json(text)


def test_a_format_in_json_must_be_a_tag() -> None:
    with pytest.raises(FormatTagError, match=r"^'any' lets a primitive choose"):
        MemoryDesc.from_json(patch(format="any"))


def test_an_opaque_format_is_read() -> None:
    assert MemoryDesc.from_json(OPAQUE).size == 64


def forge(desc: MemoryDesc, edit: Callable[[bytes], bytes]) -> bytes:
    """Return a blob with a changed body, whose length and checksum are right."""
    from inlay.descriptor import blob

    body = edit(desc.to_blob()[30:])
    prefix = struct.pack("<8sHI", MAGIC, 1, len(body))
    return prefix + blob._checksum(prefix, body) + body


BLOB = BLOCKED.to_blob()
FOREIGN = "they do not start as one; a blob of oneDNN is read by MemoryDesc.from_onednn and the library it is of"
BAD_BLOBS: list[tuple[Any, str]] = [
    ("text", "it is a str: give the bytes that to_blob wrote"),
    (None, "it is a NoneType: give the bytes that to_blob wrote"),
    (b"", FOREIGN),
    (bytes(768), FOREIGN),
    (BLOB[1:], FOREIGN),
    (BLOB[:5], "they end after 5 bytes, inside the header of 30"),
    (BLOB[:29], "they end after 29 bytes, inside the header of 30"),
    (BLOB[:30], f"0 bytes follow the header, which says {len(BLOB) - 30}"),
    (BLOB[:-1], f"{len(BLOB) - 31} bytes follow the header, which says {len(BLOB) - 30}"),
    (BLOB + b"\0", f"{len(BLOB) - 29} bytes follow the header, which says {len(BLOB) - 30}"),
    (BLOB[:8] + b"\2\0" + BLOB[10:], "their version is 2: this Inlay reads 1; use the Inlay that wrote them"),
    (BLOB[:-2] + b"9}", "their checksum does not hold: some were changed"),
    (bytes(2**20 + 31), "they are 1048607: at most 1048606 are read"),
    (forge(BLOCKED, lambda b: b.replace(b",", b", ", 1)), "their spelling is not the canonical one: to_blob did not "
     "write them"),
    (forge(MemoryDesc((4, 1), "f32"), lambda b: b.replace(b"[1,1]", b"[1,5]")), "their spelling is not the "
     "canonical one: to_blob did not write them"),
]  # fmt: skip


@pytest.mark.parametrize(("blob", "problem"), BAD_BLOBS, ids=range(len(BAD_BLOBS)))
def test_bytes_that_are_refused_say_why(blob: Any, problem: str) -> None:
    with raises_exactly(InvalidArguments, f"these bytes are no descriptor: {problem}"):
        MemoryDesc.from_blob(blob)


@pytest.mark.parametrize(
    "edit",
    [
        lambda body: body.replace(b"480", b"1"),
        lambda body: body.replace(b"f32", b"f3\xff"),
        lambda body: body.replace(b"[2,17,5,4]", b"[2,17,5,NaN]"),
        lambda body: b"[" * 50_000,
        lambda body: b"",
        lambda body: body.replace(b"[480", b"[" + b"9" * 5000),
    ],
)
def test_malice_behind_a_true_checksum_is_refused(edit: Callable[[bytes], bytes]) -> None:
    with pytest.raises(InvalidArguments):
        MemoryDesc.from_blob(forge(BLOCKED, edit))


def test_a_descriptor_of_too_many_digits_is_not_written() -> None:
    axis = Axis(1, (Digit(1, 1),) * 300_000)
    desc = MemoryDesc.from_layout(Layout((4,), (axis,)), "f32")
    with pytest.raises(InvalidArguments, match="characters of JSON: at most 1048576 are read"):
        desc.to_json()
    # The blob leaves blocks of one element out.
    assert MemoryDesc.from_blob(desc.to_blob()) == desc


# Mutations


def _mutated(rng: random.Random, data: bytes) -> bytes:
    """One to three edits: a byte changed, removed, inserted, a part doubled, cut, or taken from elsewhere."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(result) + 1)
        match rng.randrange(6):
            case 0 if at < len(result):
                result[at] ^= 1 << rng.randrange(8)
            case 1:
                del result[at : at + rng.randint(1, 8)]
            case 2:
                result[at:at] = rng.choice((b"0", b"9", b"-", b"1e9", b"[", b"]", b"{", b'"', b",", b"null", b"\xff"))
            case 3:
                result[at:at] = result[at : at + rng.randint(1, 20)]
            case 4:
                del result[at:]
            case _:
                other = rng.randrange(len(result) + 1)
                result[at : at + 4] = result[other : other + 4]
    return bytes(result)


def _read(read: Callable[[Any], MemoryDesc], data: Any) -> MemoryDesc | None:
    try:
        return read(data)
    except InlayError:
        return None


def test_5000_mutated_texts_are_refused_or_descriptors() -> None:
    choose, rng, accepted = Seeded(1), random.Random(1), 0
    texts = [draw_any_descriptor(choose).to_json() for _ in range(200)]
    for _ in range(5000):
        text = _mutated(rng, rng.choice(texts).encode()).decode("latin-1")
        desc = _read(MemoryDesc.from_json, text)
        if desc is not None:
            assert same_spelling(MemoryDesc.from_json(desc.to_json()), desc)
            assert json.loads(text) is not None
            str(desc), repr(desc), desc.size, hash(desc)
            accepted += 1
    assert 20 < accepted < 2500


def test_5000_mutated_blobs_are_refused() -> None:
    choose, rng = Seeded(2), random.Random(2)
    blobs = [draw_any_descriptor(choose).to_blob() for _ in range(200)]
    for _ in range(2500):
        blob = rng.choice(blobs)
        mutated = _mutated(rng, blob)
        assert mutated == blob or _read(MemoryDesc.from_blob, mutated) is None


def test_2500_mutated_blobs_with_true_checksums_are_refused_or_canonical() -> None:
    choose, rng, accepted = Seeded(3), random.Random(3), 0
    descs = [draw_any_descriptor(choose) for _ in range(200)]
    for _ in range(2500):
        blob = forge(rng.choice(descs), lambda body: _mutated(rng, body))
        desc = _read(MemoryDesc.from_blob, blob)
        if desc is not None:
            assert desc.to_blob() == blob
            accepted += 1
    assert accepted > 10


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    for blob in (data, MAGIC + data):
        assert _read(MemoryDesc.from_blob, blob) is None


@given(st.recursive(st.none() | st.integers() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(("inlay", "version", "kind", "dims", "data_type")), x)))  # fmt: skip
def test_any_json_is_refused(value: Any) -> None:
    assert _read(MemoryDesc.from_json, json.dumps(value)) is None


def test_parts_are_what_blobs_are_made_of() -> None:
    parts = DescriptorParts(BLOCKED.dims, BLOCKED.data_type, BLOCKED.layout)
    assert encode_blob(parts) == BLOB
