"""Role letters: tags over role orders, compared with oneDNN's aliases, and the letters that descriptors keep."""

import copy
import itertools
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay import FormatTag, FormatTagError, InvalidArguments, MemoryDesc
from tests.support.paths import DATA

ALIASES: dict[str, str] = json.loads((DATA / "onednn_tags.json").read_text())["aliases"]
ROLES = {"ncdhw": "", "goidhw": "", "tnc": "", "ldigo": "", "mkn": ""}

READ = [
    ("IOhw8i8o", "BAcd8b8a", "oihw"),
    ("IgOhw8i8o", "CaBde8c8b", "goihw"),
    ("CWnh16w16c", "BDac16d16b", "nchw"),
    ("nChw64c", "aBcd64b", "nchw"),
    ("OhwI16o64i", "AcdB16a64b", "oihw"),
    ("OHWI16o64i", "AcdB16a64b", "oihw"),
    ("NHWC", "acdb", "nchw"),
    ("Nk16n", "Ba16b", "kn"),
    ("Tnc4t", "Abc4a", "tnc"),
    ("ldGOi32g4o", "abDEc32d4e", "ldigo"),
    ("nChw1c", "abcd", "nchw"),
]


@pytest.mark.parametrize(("text", "tag", "letters"), READ)
def test_role_letters_are_read(text: str, tag: str, letters: str) -> None:
    read = FormatTag.parse(text)
    assert (str(read), read.letters, read.spelling) == (tag, letters, text)
    assert read == FormatTag.parse(tag)
    assert hash(read) == hash(FormatTag.parse(tag))


def by_roles(text: str) -> str | None:
    """The tag of an alias by the definition: one role order that has all of its letters, in lower case."""
    outer = "".join(itertools.takewhile(str.isalpha, text))
    orders = [order for order in ROLES if set(outer.lower()) <= set(order)]
    if not orders:
        return None
    used = [letter for letter in orders[0] if letter in outer.lower()]
    names = {letter: "abcdefghijkl"[i] for i, letter in enumerate(used)}
    names |= {letter.upper(): name.upper() for letter, name in names.items()}
    return "".join(names.get(character, character) for character in text)


def test_the_grammar_means_what_onednn_s_aliases_mean() -> None:
    differ = {alias for alias, tag in ALIASES.items() if by_roles(alias) not in (tag, None)}
    # oneDNN misnames a block in four, and swaps o and i in two; these keep its meaning.
    odd = {"OhwI24o", "OhwI32o", "gOhwI24o", "gOhwI32o", "gIOhw2i8o16i2o", "gIOdhw2i8o16i2o"}
    assert differ == odd
    assert {alias: str(FormatTag.parse(alias)) for alias in ALIASES} == ALIASES


@given(st.data())
def test_every_order_and_block_of_a_role_order_is_read(data: st.DataObject) -> None:
    order = data.draw(st.sampled_from(["nchw", "ncdhw", "oihw", "goidhw", "tnc", "ldigo", "mkn", "kn", "ldnc"]))
    axes = data.draw(st.permutations(range(len(order))))
    sizes = data.draw(st.lists(st.tuples(st.sampled_from(range(len(order))), st.integers(2, 64)), max_size=4))
    blocked = {axis for axis, _ in sizes}
    capitals = blocked | data.draw(st.sets(st.sampled_from(range(len(order)))))
    text = "".join(order[axis].upper() if axis in capitals else order[axis] for axis in axes)
    text += "".join(f"{size}{order[axis]}" for axis, size in sizes)
    if text not in ALIASES:
        assert FormatTag.parse(text) == FormatTag(tuple(axes), tuple(sizes))


def test_letters_stay_as_they_were_typed() -> None:
    desc = MemoryDesc((64, 128, 3, 3), "s8", "OHWI16o64i")
    same = MemoryDesc((64, 128, 3, 3), "s8", "AcdB16a64b")
    assert repr(desc) == "MemoryDesc((64, 128, 3, 3), 's8', 'OHWI16o64i')"
    assert (desc.spelling, desc.tag, same.spelling) == ("OHWI16o64i", "AcdB16a64b", "AcdB16a64b")
    assert desc == same
    assert hash(desc) == hash(same)
    assert desc.to_blob() == same.to_blob()
    copies = [MemoryDesc.from_json(desc.to_json()), pickle.loads(pickle.dumps(desc)), copy.deepcopy(desc)]
    assert [repr(one) for one in copies] == [repr(desc)] * 3
    assert repr(MemoryDesc((64, 128, 3, 3), "s8", FormatTag.parse("OHWI16o64i"))) == repr(desc)
    picture = str(inlay.show(desc, width=80, color=False))
    assert picture.startswith("OHWI16o64i (AcdB16a64b), 64 x 128 x 3 x 3 of s8\n")
    assert "offset  18432*(o//16) + 6144*h + 2048*w + 1024*(i//64) + 64*(o%16) + i%64" in picture.replace(
        "\n      ", ""
    )
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc((64, 18), "s8", "OI16i").reshape((64, 2, 9))
    assert str(caught.value).startswith("axis 1 (i) cannot be split into 2 x 9")


def test_a_picture_of_weights_names_the_axes_of_weights() -> None:
    assert inlay.show(MemoryDesc((4, 3, 2, 2), "f32", "oihw")).names == ("o", "i", "h", "w")
    assert inlay.show(MemoryDesc((4, 3, 2, 2), "f32", "abcd")).names == ("n", "c", "h", "w")
    assert inlay.show(MemoryDesc((4, 3), "f32", "kn")).names == ("k", "n")


def test_views_forget_the_letters() -> None:
    desc = MemoryDesc((2, 16, 5, 4), "f32", "nChw8c")
    assert desc.submemory((1, 8, 5, 4), (0, 8, 0, 0)).spelling is None
    assert desc.permute_axes((1, 0, 2, 3)).spelling is None


def json_of(**values: Any) -> str:
    return json.dumps({**json.loads(MemoryDesc((2, 17), "f32", "nC8c").to_json()), **values})


def test_json_of_version_1_is_read() -> None:
    old = (
        '{"inlay":"memory_desc","version":1,"kind":"blocked","dims":[2,17],"data_type":"f32","padded_dims":[2,24],'
        '"strides":[24,8],"inner_digits":[[],[[8,1]]],"offset0":0}'
    )
    assert MemoryDesc.from_json(old) == MemoryDesc.from_json(json_of()) == MemoryDesc((2, 17), "f32", "aB8b")
    assert MemoryDesc.from_json(old).to_json() == old


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (json_of(format="aB4b"), "format 'aB4b' gives dims (2, 24) another layout"),
        (json_of(format="nC8c", offset0=3), "format 'nC8c' gives dims (2, 24) another layout"),
        (json_of(format="nChw8c"), "format tag nChw8c places 4 axes, dims (2, 24) have 2"),
        (json_of(format=3), "this is no JSON of a descriptor: format is 3: give a text"),
        (
            json_of(version=1),
            "this is no JSON of a descriptor: key 'format' is unknown: kind 'blocked' has dims, data_type, "
            "padded_dims, strides, inner_digits, offset0",
        ),
    ],
)
def test_a_format_in_json_must_be_that_of_the_layout(text: str, problem: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc.from_json(text)
    assert str(caught.value) == problem


def test_a_format_in_json_must_be_a_tag() -> None:
    with pytest.raises(FormatTagError, match=r"^'any' lets a primitive choose"):
        MemoryDesc.from_json(json_of(format="any"))
