"""Error texts of views that do not exist, in full: the axes, the rule with its numbers, and the remedies.

`test_repairs` checks that the remedies work.
"""

from typing import Any

import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Dims, Refusal

REFUSED_RESHAPES = [
    (
        MemoryDesc((2, 18, 5, 4), "f32", "nChw8c"),
        (2, 2, 9, 5, 4),
        "axis 1 (c) cannot be split into 2 x 9: its 18 elements are padded to 24 in blocks of 8\n"
        "    nChw8c (2, 18, 5, 4) -> (2, 1, 18, 5, 4) works; to split c, reorder to nchw first (5.8 kB moved)",
    ),
    (
        MemoryDesc((2, 16, 5, 4), "f32", "aBcd8b"),
        (32, 20),
        "axis 0 (a) to axis 1 (b) cannot become 32: the 16 elements of axis 1 (b) are in blocks of 8\n"
        "    aBcd8b (2, 16, 5, 4) -> (2, 16, 20) works; digits=True gives the view in free digits; to join a to b, "
        "reorder to abcd first (5.1 kB moved)",
    ),
    (
        MemoryDesc((32, 16, 3, 3), "bf16", "OIhw4i16o4i"),
        (8, 4, 16, 3, 3),
        "axis 0 (o) cannot be split into 8 x 4: its 32 elements are in blocks of 16\n"
        "    OIhw4i16o4i (32, 16, 3, 3) -> (1, 32, 16, 3, 3) works; digits=True gives the view in free digits; to "
        "split o, reorder to oIhw16i first (18.4 kB moved)",
    ),
    (
        MemoryDesc((6,), "f32", padded_dims=(12,)),
        (2, 3),
        "axis 0 (a) cannot be split into 2 x 3: its 6 elements are padded to 12\n"
        "    (6,) -> (1, 6) works; digits=True gives the view in free digits; to split a, reorder to a first (48 bytes "
        "moved)",
    ),
    (
        MemoryDesc((6, 2, 2), "f32", padded_dims=(6, 3, 2)),
        (6, 4),
        "axis 1 (b) to axis 2 (c) cannot become 4: the 2 elements of axis 1 (b) are padded to 3\n"
        "    digits=True gives the view in free digits; to join b to c, reorder to abc first (192 bytes moved)",
    ),
    (
        MemoryDesc((6, 1, 2), "f32", padded_dims=(6, 2, 2)),
        (3, 2, 2),
        "axis 1 (b) cannot be dropped: its 1 element is padded to 2; keep a dim of 1 in its place\n"
        "    (6, 1, 2) -> (3, 2, 1, 2) works; to drop b, reorder to abc first (96 bytes moved)",
    ),
    (
        MemoryDesc((9, 3), "f32", "aB8b").submemory((9, 1), (0, 0)),
        (9,),
        "axis 1 (b) cannot be dropped: it is in blocks of 8\n"
        "    digits=True gives the view in free digits; to drop b, reorder to ab first (72 bytes moved)",
    ),
    (
        MemoryDesc((2, 1, 3), "f32", "aBc8b"),
        (6,),
        "axis 0 (a) to axis 2 (c) cannot become 6: the 1 element of axis 1 (b) is padded to 8 in blocks of 8\n"
        "    to join a to c, reorder to abc first (48 bytes moved)",
    ),
    (
        MemoryDesc((2, 3, 3), "f32", "aBc8b").submemory((2, 1, 3), (0, 0, 0)),
        (6,),
        "axis 0 (a) to axis 2 (c) cannot become 6: the 1 element of axis 1 (b) is in blocks of 8\n"
        "    digits=True gives the view in free digits; to join a to c, reorder to abc first (48 bytes moved)",
    ),
    (
        MemoryDesc((6, 2), "s8", "ba"),
        (12,),
        "axis 0 (a) to axis 1 (b) cannot become 12: axis 0 (a) has stride 1, but 12 would follow axis 1 (b) of 2 "
        "elements with stride 6\n"
        "    digits=True gives the view in free digits; to join a to b, reorder to ab first (24 bytes moved)",
    ),
    (
        MemoryDesc((2, 3, 4, 5), "f32", "nhwc"),
        (2, 12, 5),
        "axis 1 (c) to axis 2 (h) cannot become 12: axis 1 (c) has stride 1, but 60 would follow axis 2 (h) of 4 "
        "elements with stride 15\n"
        "    digits=True gives the view in free digits; to join c to h, reorder to nchw first (960 bytes moved)",
    ),
    (
        MemoryDesc((4, 3), "s4", strides=(4, 1)),
        (12,),
        "axis 0 (a) to axis 1 (b) cannot become 12: axis 0 (a) has stride 4, but 3 would follow axis 1 (b) of 3 "
        "elements with stride 1\n    digits=True gives the view in free digits",
    ),
    (
        MemoryDesc((2, 0, 2), "f32"),
        (0, 4),
        "dims (2, 0, 2) cannot be reshaped to (0, 4): a dim of 0 is kept, neither joined with its neighbors nor split\n"
        "    no element would move: describe a tensor of (0, 4) instead",
    ),
    (
        MemoryDesc((2, 3), "f32"),
        (7,),
        "dims (2, 3) hold 6 elements, (7,) 7: a reshape keeps their number, where a dim of 0 counts as 1\n"
        "    (6,) works",
    ),
    (
        MemoryDesc((2, 17, 20), "f32", "aBc8b"),
        (2, 18, 20),
        "dims (2, 17, 20) hold 680 elements, (2, 18, 20) 720: a reshape keeps their number, where a dim of 0 counts "
        "as 1\n    (2, 17, 20) works",
    ),
    (
        MemoryDesc((2, 3), "f32"),
        (4, 7),
        "dims (2, 3) hold 6 elements, (4, 7) 28: a reshape keeps their number, where a dim of 0 counts as 1",
    ),
    (
        MemoryDesc((2, 3), "f32"),
        (RUNTIME, 3),
        "reshape to (RUNTIME, 3) needs numbers: RUNTIME dims have no volume to keep",
    ),
    (
        MemoryDesc((RUNTIME, 3), "f32"),
        (6,),
        "reshape needs known dims and strides: MemoryDesc((RUNTIME, 3), 'f32', strides=(RUNTIME, 1)) has RUNTIME ones, "
        "bind them first",
    ),
    (
        MemoryDesc.host_scalar("f32"),
        (1,),
        "reshape needs a layout or the format any: MemoryDesc.host_scalar('f32') is of kind host_scalar",
    ),
    (MemoryDesc(), (1,), "reshape needs a layout or the format any: MemoryDesc() is of kind undef"),
]


@pytest.mark.parametrize(("desc", "dims", "text"), REFUSED_RESHAPES)
def test_a_refused_reshape_says_why(desc: MemoryDesc, dims: Dims, text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        desc.reshape(dims)
    assert str(caught.value) == text
    refusal = desc.try_reshape(dims)
    assert isinstance(refusal, Refusal)
    assert str(refusal) == text
    assert desc.reshape(dims, allow_empty=True) == MemoryDesc()


def test_what_free_digits_cannot_say_either_is_refused_by_where_digits_end() -> None:
    refusal = MemoryDesc((8, 3, 4), "u8", "Abc8a").try_reshape((6, 4, 4), digits=True)
    assert isinstance(refusal, Refusal)
    assert str(refusal) == (
        "axis 0 (a) to axis 1 (b) cannot become 6 x 4: 4 elements do not end where a digit of (8, 1) (3, 32) does\n"
        "    to regroup a to b, reorder to abc first (192 bytes moved)"
    )


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ((4,) + (1,) * 12, "13 dims are too many: a descriptor has at most 12"),
        ((-4,), "dim 0 (a) is -4: dims are 0 or more, or RUNTIME"),
        ("4", "dims is '4': give a sequence of integers such as (2, 3)"),
    ],
)
def test_dims_that_are_none_are_an_error_even_where_a_refusal_is_a_value(dims: Any, text: str) -> None:
    for view in (MemoryDesc((4,), "f32").reshape, MemoryDesc((4,), "f32").try_reshape):
        with pytest.raises(InvalidArguments) as caught:
            view(dims)
        assert str(caught.value) == text


PERMUTATIONS = [
    ((0, 3, 3, 2), "must use each of 0..3 once: 1 is missing, 3 appears twice\n    (0, 3, 1, 2) works"),
    ((0, 1, 2), "must use each of 0..3 once: 3 is missing\n    (0, 1, 2, 3) works"),
    ((0, 1, 2, -1), "must use each of 0..3 once: 3 is missing, -1 is no axis\n    (0, 1, 2, 3) works"),
    (
        (1, 1, 1, 4),
        "must use each of 0..3 once: 0, 2 and 3 are missing, 1 appears 3 times, 4 is no axis\n    (1, 0, 2, 3) works",
    ),
]


@pytest.mark.parametrize(("axes", "text"), PERMUTATIONS)
def test_a_refused_permutation_says_why(axes: Dims, text: str) -> None:
    desc = MemoryDesc((2, 3, 4, 5), "f32", "nchw")
    for word, view in (("permutation", desc.permute_axes), ("order", desc.rename_axes)):
        with pytest.raises(InvalidArguments) as caught:
            view(axes)
        assert str(caught.value) == f"{word} {axes} {text}"


BLOCKED = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
CUT = (
    "which cuts a block of 8: start at a multiple of 8 and take a multiple of it, less than one block, or all that "
    "follows\n    dims (2, 16, 5, 4) at offsets (0, 0, 0, 0) work and hold that box; to cut c, reorder to nchw first "
    "(5.4 kB moved)"
)
OUTSIDE = "outside its 17 elements: dims and offsets are 0 or more and their sum at most 17"
REFUSED_BOXES = [
    (BLOCKED, (2, 9, 5, 4), (0, 0, 0, 0), Unimplemented, f"axis 1 (c) of the submemory takes 9 from 0, {CUT}"),
    (BLOCKED, (2, 8, 5, 4), (0, 4, 0, 0), Unimplemented, f"axis 1 (c) of the submemory takes 8 from 4, {CUT}"),
    (
        BLOCKED,
        (2, 9, 5, 4),
        (0, 9, 0, 0),
        InvalidArguments,
        f"axis 1 (c) of the submemory takes 9 from 9, {OUTSIDE}\n    dims (2, 9, 5, 4) at offsets (0, 8, 0, 0) work",
    ),
    (
        BLOCKED,
        (2, -1, 5, 4),
        (0, 8, 0, 0),
        InvalidArguments,
        f"axis 1 (c) of the submemory takes -1 from 8, {OUTSIDE}\n    dims (2, 0, 5, 4) at offsets (0, 8, 0, 0) work",
    ),
    (
        BLOCKED,
        (2, 17, 5),
        (0, 0, 0, 0),
        InvalidArguments,
        "dims (2, 17, 5) of the submemory has 3 entries: its parent has 4 dims",
    ),
    (
        BLOCKED,
        (RUNTIME, 17, 5, 4),
        (0, 0, 0, 0),
        Unimplemented,
        "axis 0 (n) of the submemory is RUNTIME: give its dim and offset as numbers",
    ),
    (
        MemoryDesc((4,), "f32", "any"),
        (5,),
        (0,),
        InvalidArguments,
        "axis 0 (a) of the submemory takes 5 from 0, outside its 4 elements: dims and offsets are 0 or more and their "
        "sum at most 4",
    ),
    (
        MemoryDesc((4,), "f32", "any"),
        (2,),
        (0,),
        Unimplemented,
        "submemory needs a layout: MemoryDesc((4,), 'f32', 'any') is of kind any",
    ),
    (
        MemoryDesc((RUNTIME,), "f32"),
        (2,),
        (0,),
        Unimplemented,
        "submemory needs known dims and strides: MemoryDesc((RUNTIME,), 'f32', 'a') has RUNTIME ones, bind them first",
    ),
    (
        MemoryDesc((4, 0, 3), "f32", strides=(2**62, 4, 1)),
        (1, 0, 3),
        (3, 0, 0),
        InvalidArguments,
        "the submemory starts 13835058055282163712 elements in, more than 2**63 - 1",
    ),
]


@pytest.mark.parametrize(("desc", "dims", "offsets", "error", "text"), REFUSED_BOXES)
def test_a_refused_submemory_says_why(
    desc: MemoryDesc, dims: Dims, offsets: Dims, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        desc.submemory(dims, offsets)
    assert (type(caught.value), str(caught.value)) == (error, text)
    assert desc.submemory(dims, offsets, allow_empty=True) == MemoryDesc()
