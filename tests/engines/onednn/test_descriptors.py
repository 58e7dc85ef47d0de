"""Conversion of descriptors to oneDNN and back: they are unchanged, or refused if oneDNN cannot represent them."""

from collections import Counter

import pytest

from inlay.descriptor import Extras, MemoryDesc, Opaque
from inlay.engines.onednn import load_library
from inlay.engines.onednn.descs import DescriptorTable
from inlay.errors import Unimplemented
from inlay.layout import RUNTIME
from inlay.notation.format_tag import ENUMERATED, FormatTag
from inlay.primitives import Sum
from inlay.testing import draw_any_descriptor, draw_flagged
from inlay.testing.choices import Seeded
from tests.oracles import extras as poked
from tests.oracles import onednn as oracle
from tests.support.refusals import raises_exactly

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))


@pytest.fixture(scope="module")
def descriptors() -> DescriptorTable:
    return DescriptorTable(load_library())


def round_trip(descriptors: DescriptorTable, desc: MemoryDesc) -> MemoryDesc:
    handle = descriptors.handle(desc)  # it lives as long as this name
    return descriptors.read(handle.value)


def test_every_tag_comes_back_and_equals_what_the_library_creates(descriptors: DescriptorTable) -> None:
    equal = load_library().functions["memory_desc_equal"]
    for text in ENUMERATED:
        dims = (17, 3, 5, 2, 2, 3, 2, 2, 2, 2, 2, 2)[: FormatTag.parse(text).ndims]
        desc = MemoryDesc(dims, "f32", text)
        back = round_trip(descriptors, desc)
        assert (back, back.layout) == (desc, desc.layout)
        assert equal(descriptors.handle(desc).value, oracle.by_string_tag(dims, 3, text).handle)


def refusal(descriptors: DescriptorTable, desc: MemoryDesc) -> str | None:
    """Return the beginning of the error for a descriptor that the library cannot represent; None if it can."""
    name = load_library().name
    if desc.data_type is not None and desc.data_type.name not in descriptors.data_types:
        return f"{name} has no data type {desc.data_type}: "
    if desc.kind == "digits":
        return f"oneDNN cannot represent the digit order of {desc!r}: reorder to a format with a tag first"
    if isinstance(desc.layout, Opaque):
        return (
            f"the opaque format {desc.layout.name} of dims {desc.dims} was not created by this {name}: only the engine "
            "that created it can read it, in the same process"
        )
    if desc.extras.flags & 32:
        return f"{name} has no descriptors with {desc.extras!r} that other code can create"
    came_later = desc.kind == "host_scalar" or (desc.kind == "sparse" and desc.sparse_encoding != "csr")
    if came_later and oracle.version() < (3, 13):
        return f"{name} has no descriptors such as {desc!r}: a later release has"
    return None


def test_random_descriptors_are_unchanged_or_refused(descriptors: DescriptorTable) -> None:
    choose, seen = Seeded(41), Counter[str]()
    for _ in range(3000):
        desc = draw_any_descriptor(choose)
        expected = refusal(descriptors, desc)
        if expected is not None:
            with pytest.raises(Unimplemented) as caught:
                descriptors.handle(desc)
            assert str(caught.value).startswith(expected)
            seen["refused"] += 1
        elif desc.kind != "sparse" or desc.sparse_encoding != "csr" or desc.ndims == 2:
            # The type of pointers to no rows cannot be asked.
            back = round_trip(descriptors, desc)
            assert (back, back.layout, back.offset0) == (desc, desc.layout, desc.offset0)
            assert str(back) == str(desc)
            seen[desc.kind] += 1
            seen["padded part"] += bool(desc.offset0 and desc.padded_dims != desc.dims)
    assert {"undef", "any", "blocked", "sparse"} <= set(seen)
    assert seen["padded part"] > 50
    assert seen["blocked"] > 700


def test_extras_come_back(descriptors: DescriptorTable) -> None:
    choose, seen = Seeded(42), Counter[int]()
    for _ in range(600):
        desc = draw_flagged(choose)
        if desc.kind != "blocked" or str(desc.data_type) not in descriptors.data_types or desc.extras.flags & 32:
            continue
        assert round_trip(descriptors, desc) == desc
        seen[desc.extras.flags] += 1
    assert set(seen) > {1, 2, 4, 8, 9}


def test_extras_are_where_the_library_looks_for_them(descriptors: DescriptorTable) -> None:
    equal = load_library().functions["memory_desc_equal"]
    for extras in (Extras(1, 0b1), Extras(9, 0b11, asymmetric_mask=0b11), Extras(3, 0b1, 0.5)):
        desc = MemoryDesc((32, 16, 3, 3), "s8", "ABcd4b16a4b", extras=extras)
        its = poked.flagged(oracle.mirror(desc), extras)
        assert equal(descriptors.convert(desc).pointer, its.handle)


def test_an_argument_leaves_its_offset_to_the_address(descriptors: DescriptorTable) -> None:
    whole = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    part = whole.submemory((2, 9, 5, 4), (0, 8, 0, 0))
    given = descriptors.convert(part)
    assert given.shift == 4 * part.offset0
    assert descriptors.read(given.pointer).offset0 == 0
    assert descriptors.convert(part) is given
    assert descriptors.convert(whole).shift == 0


def test_half_a_byte_has_no_address(descriptors: DescriptorTable) -> None:
    if "s4" not in descriptors.data_types:
        pytest.skip("this oneDNN has no 4-bit types")
    part = MemoryDesc((4, 6), "s4").submemory((4, 4), (0, 2))
    given = descriptors.convert(part)
    assert (given.shift, descriptors.read(given.pointer).offset0) == (0, 2)


def test_each_type_of_the_library_comes_back(descriptors: DescriptorTable) -> None:
    assert {"f32", "f16", "bf16", "s32", "s8", "u8", "f64"} <= descriptors.data_types
    assert ("f8_e4m3" in descriptors.data_types) == (oracle.version() >= (3, 13))
    for name in descriptors.data_types:
        assert str(round_trip(descriptors, MemoryDesc((4, 6), name)).data_type) == name


def test_runtime_dims_come_back_and_no_primitive_takes_them(descriptors: DescriptorTable) -> None:
    desc = MemoryDesc((RUNTIME, 6), "f32", strides=(RUNTIME, 1))
    assert round_trip(descriptors, desc) == desc
    with raises_exactly(
        Unimplemented, f"primitives are made for known dims and strides: bind the RUNTIME ones of {desc!r}"
    ):
        descriptors.convert(desc)


def test_what_was_chosen_before_is_the_same_object(descriptors: DescriptorTable) -> None:
    asked = MemoryDesc((2, 17, 5, 4), "f32", "any")
    for tag in ("nChw8c", "nhwc", "nChw8c"):
        handle = descriptors.handle(MemoryDesc(asked.dims, "f32", tag))
        first, second = (descriptors.read(handle.value, asked) for _ in range(2))
        assert first is second
        assert first == MemoryDesc(asked.dims, "f32", tag)


def test_forgotten_descriptors_live_until_the_library_has_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # With room for one descriptor each is forgotten when the next argument is described.
    monkeypatch.setattr("inlay.engines.onednn.descs._MAX_CACHED", 1)
    for width in range(1, 60):
        sources = [MemoryDesc((2, width), "f32", tag) for tag in ("ab", "ba", "ab")]
        assert Sum(sources, engine="onednn").dst_desc.dims == (2, width)


def test_thousands_of_descriptors_are_not_all_kept() -> None:
    descriptors = DescriptorTable(load_library())
    for i in range(1, 10_000):
        descriptors.convert(MemoryDesc((i,), "f32"))
        descriptors.read(descriptors.convert(MemoryDesc((i,), "f32")).pointer, MemoryDesc((i,), "f32", "any"))
    assert len(descriptors._converted) <= 4096
    assert len(descriptors._chosen) <= 4096
