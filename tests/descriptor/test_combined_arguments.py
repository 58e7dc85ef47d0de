"""One call with a format, a header, outer strides, aligned tiles and padding; axis names of patterns are kept.

Contradicting arguments are in golden/mistakes/descriptors.txt.
"""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inlay import FormatTag, MemoryDesc, pack, show
from inlay.data_type import DATA_TYPES
from inlay.errors import InvalidArguments
from inlay.render.legend import explain_offset, names_of
from inlay.testing import format_tags

SCALES = "(m m4 m32) (k k4) -> m k m32 m4 k4"


def scale_offset(m: int, k: int, columns: int, tile: int, header: int) -> int:
    """Where a scale of NVFP4's 128x4 tiles is, with tiles of `tile` elements behind a header."""
    return header + (m // 128 * columns + k // 4) * tile + m % 32 * 16 + m % 128 // 32 * 4 + k % 4


@pytest.mark.parametrize(
    ("header", "alignment", "tile"), [(0, None, 512), (64, 4096, 4096), (3, 700, 700), (8, 512, 512)]
)
def test_scales_behind_a_header_in_aligned_tiles(header: int, alignment: int | None, tile: int) -> None:
    desc = MemoryDesc((300, 20), "u8", SCALES, offset0=header, alignment=alignment)
    for m, k in itertools.product(range(0, 300, 7), range(20)):
        assert desc.offset((m, k)) == scale_offset(m, k, 5, tile, header)
    array = np.random.default_rng(1).integers(0, 256, (300, 20), np.uint8)
    packed = pack(array, desc)
    assert np.array_equal(packed.unpack(), array)
    for m, k in ((0, 0), (299, 19), (130, 5)):
        assert packed.buffer[scale_offset(m, k, 5, tile, header)] == array[m, k]


def test_pitches_of_tiles_padding_and_header_in_one_call() -> None:
    desc = MemoryDesc((300, 20), "u8", SCALES, offset0=64, strides=(8192, 1024), alignment=1024, padded_dims=(512, 20))
    assert desc.padded_dims == (512, 20)
    assert desc.offset((400, 9)) == 64 + 3 * 8192 + 2 * 1024 + 16 * 16 + 0 * 4 + 1
    assert eval(repr(desc)) == desc


def test_alignment_counts_bytes_of_every_type() -> None:
    for name, elements in (("s4", 128), ("u8", 64), ("bf16", 32), ("f32", 16), ("f64", 8)):
        desc = MemoryDesc((8, 8), name, "(a a2) (b b2) -> a b a2 b2", alignment=64)
        assert [axis.stride for axis in desc.require_layout("a test")[0].axes] == [4 * elements, elements]


@given(format_tags(min_blocks=1), st.sampled_from(["u8", "bf16", "f32"]), st.data())
def test_tiles_begin_at_multiples_of_the_alignment_and_are_unchanged(
    tag: FormatTag, name: str, data: st.DataObject
) -> None:
    dims = tuple(data.draw(st.integers(1, 2 * tag.blocks(i) + 1)) for i in range(tag.ndims))
    assume(math.prod(dims) < 2000)
    alignment = data.draw(st.sampled_from([1, 3, 4, 64, 100, 4096]))
    header = data.draw(st.integers(0, 9))
    dense = MemoryDesc(dims, name, tag)
    desc = MemoryDesc(dims, name, tag, offset0=header, alignment=alignment)
    tile = math.prod(size for _, size in tag.inner_blocks)
    for x in itertools.islice(itertools.product(*map(range, dims)), 300):
        number, within = divmod(dense.offset(x), tile)
        begin = (desc.offset(x) - header - within) * DATA_TYPES[name].itemsize
        assert begin % alignment == 0
        assert begin // max(1, DATA_TYPES[name].itemsize) >= number * tile
    step = math.lcm(alignment, DATA_TYPES[name].itemsize) // DATA_TYPES[name].itemsize
    padded = -(-tile // step) * step
    expected = [dense.offset(x) // tile * padded + dense.offset(x) % tile + header for x in np.ndindex(*dims)]
    assert [desc.offset(x) for x in np.ndindex(*dims)] == expected
    for again in (pickle.loads(pickle.dumps(desc)), copy.copy(desc)):
        assert (again, again.spelling) == (desc, desc.spelling)
    assert MemoryDesc.from_json(desc.to_json()) == desc
    assert eval(repr(desc)) == desc


@given(st.data())
def test_outer_strides_replace_those_of_leading_digits(data: st.DataObject) -> None:
    inner = data.draw(st.integers(4, 9))
    outer = data.draw(st.integers(5 * inner, 60))
    desc = MemoryDesc((3, 9), "u8", "(a a2) (b b2) -> a b a2 b2", strides=(outer, inner))
    expected = [a // 2 * outer + b // 2 * inner + a % 2 * 2 + b % 2 for a in range(3) for b in range(9)]
    assert [desc.offset(x) for x in np.ndindex(3, 9)] == expected


@pytest.mark.parametrize("seed", range(8))
def test_arguments_in_any_combination_give_a_layout_without_overlap_or_an_error(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(50):
        strides = tuple(int(n) for n in random.integers(1, 60, 2))
        header = int(random.integers(0, 5))
        try:
            desc = MemoryDesc((7, 9), "u8", "(a a2) (b b3) -> b a a2 b3", strides=strides, offset0=header)
        except InvalidArguments:
            continue
        offsets = [desc.offset(x) for x in np.ndindex(8, 9)]
        assert len(set(offsets)) == 72
        assert strides[1] >= strides[0]


# Names of axes


def test_names_of_a_pattern_are_kept_in_pictures_and_texts() -> None:
    desc = MemoryDesc((4, 6), "u8", "(row row2) col -> row col row2", offset0=2)
    assert names_of(desc) == ("row", "col")
    picture = str(show(desc, width=80, color=False))
    assert picture.startswith("(row row2) col -> row col row2 (Ab2a)" if desc.tag else "(row row2) col -> row col row2")
    assert "offset  2 + 12*(row//2) + 2*col + row%2" in picture
    assert explain_offset(desc, (3, 5)) == (
        "u8:0:blocked:Ab2a::f0, 4x6\n"
        "  row = 3 = 1,1    1 * 12 + 1 * 1    13\n"
        "  col = 5          5 * 2             10\n"
        "  offset0 2\n"
        "element offset 25, byte offset 25"
    )


def test_the_explanation_of_an_offset_names_half_bytes_and_padding() -> None:
    desc = MemoryDesc((2, 3), "s4", "aB4b")
    ends = [explain_offset(desc, (1, column)).splitlines()[-1] for column in (2, 3)]
    assert ends == ["element offset 6, byte offset 3, low half", "element offset 7, byte offset 3, high half, padding"]
    swizzled = MemoryDesc((3, 4), "u8", "Swizzle<1,0,2> o (4,4):(4,1)")
    assert explain_offset(swizzled, (3, 0)).endswith("element offset 13, byte offset 13, padding")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("(ix2 iy2) o -> o ix2 iy2", ("i", "o")),
        ("(a2 a4) b -> b a2 a4", ("a", "b")),
        ("(row2 col2) z -> row2 z col2", ("row", "z")),
        ("a4 a8 -> a8 a4", ("a4", "a8")),
    ],
)
def test_an_axis_is_named_by_its_digits(text: str, names: tuple[str, ...]) -> None:
    assert names_of(MemoryDesc((4, 8), "u8", text)) == names
