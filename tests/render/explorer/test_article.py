"""Jump marks, the padded computation and groups of memory: the statements of "Understanding Memory Formats"."""

import numpy as np
import pytest

from inlay import MemoryDesc
from inlay.render.explorer.jump_marks import jump_marks
from inlay.render.explorer.memory_groups import memory_groups
from inlay.render.explorer.padded_computation import padded_computation
from inlay.testing import Seeded, draw_descriptor

LETTERS = "abcdefghijkl"


@pytest.mark.parametrize(
    ("tag", "order", "labels"),
    [
        ("nchw", "whcn", ["a:0", "a:1", "a:2", "a:3"]),
        ("nhwc", "cwhn", ["b:0", "b:1", "b:2", "b:3"]),
        ("chwn", "nwhc", ["c:0", "c:1", "c:2", "c:3"]),
        ("hwcn", "ncwh", ["d:0", "d:1", "d:2", "d:3"]),
    ],
)
def test_marks_of_plain_layouts_go_from_the_innermost_axis_to_the_outermost(
    tag: str, order: str, labels: list[str]
) -> None:
    marks = jump_marks(MemoryDesc((2, 16, 5, 4), "f32", tag), "nchw")
    assert [mark["label"] for mark in marks] == labels
    assert ["nchw"[mark["axis"]] for mark in marks] == list(order)


def test_a_mark_keeps_the_number_of_its_axis_if_another_axis_has_one_coordinate() -> None:
    one_image = jump_marks(MemoryDesc((1, 16, 5, 4), "f32", "nchw"), "nchw")
    assert [mark["label"] for mark in one_image] == ["a:0", "a:1", "a:2"]
    one_row = jump_marks(MemoryDesc((2, 16, 1, 4), "f32", "nchw"), "nchw")
    assert [mark["label"] for mark in one_row] == ["a:0", "a:2", "a:3"]


def test_blocks_of_8_channels_come_first_then_the_pixels_then_the_next_blocks_then_the_next_image() -> None:
    marks = jump_marks(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), "nchw")
    assert [(mark["label"], mark["note"]) for mark in marks] == [
        ("d:0", "next c%8: 1 element further"),
        ("d:1", "next w: 8 elements further, after 8 of c%8"),
        ("d:2", "next h: 32 elements further, after 4 of w"),
        ("d:3", "next c//8: 160 elements further, after 5 of h"),
        ("d:4", "next n: 480 elements further, after 3 of c//8"),
    ]
    assert [(mark["axis"], mark["digit"]) for mark in marks] == [(1, 1), (3, 0), (2, 0), (1, 0), (0, 0)]


def test_a_mark_is_where_memory_order_first_steps_to_the_next_value_of_a_digit() -> None:
    choose, dense = Seeded(23), 0
    while dense < 30:
        desc = draw_descriptor(choose)
        layout = desc.require_layout("a test")[0]
        marks = jump_marks(desc, LETTERS[: desc.ndims])
        for mark in marks:
            assert mark["offset"] == desc.offset(mark["coordinate"])
            assert mark["from"] == desc.offset(mark["from_coordinate"])
            assert mark["offset"] == desc.offset0 + mark["stride"]
        if not layout.is_contiguous or any(n % axis.block for n, axis in zip(layout.dims, layout.axes, strict=True)):
            continue
        everywhere = np.indices(layout.dims).reshape(layout.ndims, -1).T
        in_memory = everywhere[np.argsort(desc.offset(everywhere))].tolist()
        for mark in marks:
            assert in_memory[in_memory.index(mark["coordinate"]) - 1] == mark["from_coordinate"], (desc, mark)
        dense += 1


def test_the_padded_computation_of_the_article() -> None:
    n, c, h, w, block = 2, 17, 5, 4, 8
    c_padded = -(-c // block) * block
    padding = padded_computation(MemoryDesc((n, c, h, w), "f32", "nChw8c"), "nchw")
    assert padding is not None
    assert (padding["axis"], padding["name"], padding["dim"], padding["block"]) == (1, "c", 17, 8)
    assert (padding["padded"], padding["useful"], padding["extra"]) == (c_padded, 17, 7)
    assert padding["share"] == 7 / 24
    strides = {"n": c_padded * h * w, "C": h * w * block, "h": w * block, "w": block, "8c": 1}
    facts = padding["facts"]
    assert facts[0] == f"C_padded = div_up({c}, {block}) * {block} = {c_padded}"
    assert facts[1:-1] == [
        f"stride_n = C_padded * H * W = 24 * 5 * 4 = {strides['n']}",
        f"stride_C = H * W * 8 = 5 * 4 * 8 = {strides['C']}",
        f"stride_h = W * 8 = 4 * 8 = {strides['h']}",
        f"stride_w = {strides['w']}",
        f"stride_8c = {strides['8c']}",
    ]
    assert facts[-1] == "3840 bytes, not 4 * N * C * H * W = 2720: the size includes the padding"


def test_a_layout_without_padding_has_no_padded_computation() -> None:
    assert padded_computation(MemoryDesc((2, 16, 5, 4), "f32", "nChw8c"), "nchw") is None
    assert padded_computation(MemoryDesc((2, 0, 5, 4), "f32", "nChw8c"), "nchw") is None


def test_two_padded_axes_are_both_said() -> None:
    padding = padded_computation(MemoryDesc((17, 30, 3, 3), "bf16", "OIhw16i16o"), "oihw")
    assert padding is not None
    assert [axis["text"] for axis in padding["axes"]] == [
        "O_padded = div_up(17, 16) * 16 = 32",
        "I_padded = div_up(30, 16) * 16 = 32",
    ]
    assert padding["facts"][2] == "stride_O = I_padded * H * W * 16 = 32 * 3 * 3 * 16 = 4608"


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        ("s8", "20 bytes, not A = 17: the size includes the padding"),
        ("bf16", "40 bytes, not 2 * A = 34: the size includes the padding"),
        ("u4", "10 bytes, not 4/8 * A = 9: the size includes the padding"),
    ],
)
def test_the_size_is_beside_that_of_the_elements_alone(data_type: str, text: str) -> None:
    padding = padded_computation(MemoryDesc((17,), data_type, "A4a"), "a")
    assert padding is not None
    assert padding["facts"][-1] == text


def test_dims_that_are_padded_without_blocks_are_said_without_rounding() -> None:
    padding = padded_computation(MemoryDesc((3, 5), "f32", "ab", padded_dims=(4, 8)), "ab")
    assert padding is not None
    assert padding["facts"][:2] == ["A_padded = 4", "B_padded = 8"]


@pytest.mark.parametrize(
    ("dims", "data_type", "layout", "groups"),
    [
        ((2, 16, 5, 4), "f32", "nchw", ["cache line 16", "page 1024"]),
        ((2, 16, 5, 4), "f32", "nChw16c", ["cache line 16", "page 1024", "simd 16"]),
        ((2, 16, 5, 4), "f32", "nChw8c", ["cache line 16", "page 1024", "simd 8"]),
        ((2, 16, 5, 4), "f32", "nChw4c", ["cache line 16", "page 1024", "simd 4"]),
        ((64, 64, 3, 3), "s8", "OIhw4i16o4i", ["cache line 64", "page 4096", "vnni 4", "simd 64"]),
        ((64, 64, 3, 3), "bf16", "OIhw8i16o2i", ["cache line 32", "page 2048", "vnni 2", "simd 32"]),
        ((64, 64, 3, 3), "f32", "OIhw4i16o4i", ["cache line 16", "page 1024", "simd 4"]),
        ((64,), "s4", "a", ["cache line 128", "page 8192"]),
    ],
)
def test_groups_are_lines_pages_and_what_inner_blocks_fill(
    dims: tuple[int, ...], data_type: str, layout: str, groups: list[str]
) -> None:
    found = memory_groups(MemoryDesc(dims, data_type, layout), LETTERS[: len(dims)])
    assert [f"{group['kind']} {group['elements']}" for group in found] == groups
    assert [group["start"] for group in found] == [0] * len(found)


def test_groups_of_registers_begin_with_the_first_element() -> None:
    groups = memory_groups(MemoryDesc((2, 16, 5, 4), "f32", "nChw16c", offset0=3), "nchw")
    assert [(group["kind"], group["start"]) for group in groups] == [("cache line", 0), ("page", 0), ("simd", 3)]
    assert groups[-1]["label"] == "SIMD: 16 values, one register of 512 bits (AVX-512)"
