"""Role letters: tags over role orders, compared with oneDNN's aliases, and the letters that descriptors keep."""

import copy
import itertools
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay import FormatTag, MemoryDesc
from tests.support.paths import DATA

ALIASES: dict[str, str] = json.loads((DATA / "onednn_tags.json").read_text())["aliases"]
ROLES = ("ncdhw", "goidhw", "tnc", "ldigo", "mkn")

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
    letters = "".join(used) + "".join(used).upper()
    return text.translate(str.maketrans(letters, "abcdefghijkl"[: len(used)] + "ABCDEFGHIJKL"[: len(used)]))


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
    assert desc.equivalent(same)
    assert desc.to_blob() == same.to_blob()
    copies = [MemoryDesc.from_json(desc.to_json()), pickle.loads(pickle.dumps(desc)), copy.deepcopy(desc)]
    copies.append(MemoryDesc((64, 128, 3, 3), "s8", FormatTag.parse("OHWI16o64i")))
    assert [repr(one) for one in copies] == [repr(desc)] * 4
    picture = str(inlay.show(desc, width=80, color=False))
    assert picture.startswith("OHWI16o64i (AcdB16a64b), 64 x 128 x 3 x 3 of s8\n")
    assert "offset  18432*(o//16) + 6144*h + 2048*w + 1024*(i//64) + 64*(o%16) + i%64" in picture.replace(
        "\n      ", ""
    )


def test_a_picture_of_weights_names_the_axes_of_weights() -> None:
    assert inlay.show(MemoryDesc((4, 3, 2, 2), "f32", "oihw")).names == ("o", "i", "h", "w")
    assert inlay.show(MemoryDesc((4, 3, 2, 2), "f32", "abcd")).names == ("n", "c", "h", "w")
    assert inlay.show(MemoryDesc((4, 3), "f32", "kn")).names == ("k", "n")


def test_views_forget_the_letters() -> None:
    desc = MemoryDesc((2, 16, 5, 4), "f32", "nChw8c")
    assert desc.submemory((1, 8, 5, 4), (0, 8, 0, 0)).spelling is None
    assert desc.permute_axes((1, 0, 2, 3)).spelling is None
