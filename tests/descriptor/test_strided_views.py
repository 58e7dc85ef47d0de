"""Negative, zero and overlapping strides (sliding windows): in memory, descriptors and pictures."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import inlay
from inlay import Axis, Digit, InvalidArguments, Layout, Memory, MemoryDesc
from inlay.layout import RUNTIME
from inlay.memory.frameworks import from_array, to_numpy
from tests.support.refusals import raises_exactly

BASE = np.arange(60, dtype=np.float32)
VIEWS: dict[str, npt.NDArray[Any]] = {
    "columns reversed": BASE.reshape(6, 10)[:, ::-1],
    "rows reversed": BASE.reshape(6, 10)[::-1],
    "both, every second": BASE.reshape(6, 10)[::-2, ::-3],
    "transposed and reversed": BASE.reshape(3, 4, 5)[::-1, :, ::-1].transpose(2, 0, 1),
    "broadcast": np.broadcast_to(BASE[:5], (3, 4, 5)),
    "sliding windows": sliding_window_view(BASE[:9], 4),
    "windows of a plane": sliding_window_view(BASE.reshape(6, 10), (3, 3)),
    "windows reversed": sliding_window_view(BASE[:9], 4)[::-1],
    "interleaved": as_strided(BASE, (3, 2), (8, 12)),
    "one row": BASE.reshape(6, 10)[:1, ::-1],
    "empty": BASE.reshape(6, 10)[:0, ::-1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_wrapped_as_it_lies(name: str) -> None:
    view = VIEWS[name]
    for memory in (Memory(view), from_array(view)):
        assert (memory.desc.dims, str(memory.desc.data_type)) == (view.shape, "f32")
        assert np.array_equal(memory.unpack(), view)
        assert np.array_equal(to_numpy(memory, copy=False), view)
        assert view.size == 0 or np.shares_memory(to_numpy(memory, copy=False), view)
        moving = [i for i, n in enumerate(view.shape) if n > 1 and view.size]
        assert [memory.desc.byte_strides[i] for i in moving] == [view.strides[i] for i in moving]


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("format", ["rows", "columns", "blocks"])
def test_a_view_is_reordered_from(name: str, format: str) -> None:
    view = VIEWS[name]
    letters = "abcd"[: view.ndim]
    tag = {"rows": letters, "columns": letters[::-1], "blocks": letters[:-1] + letters[-1].upper() + f"4{letters[-1]}"}
    memory = Memory(view)
    assert np.array_equal(inlay.reorder(memory, tag[format]).unpack(), view)
    half = inlay.reorder(memory, MemoryDesc(view.shape, "bf16", tag[format]))
    assert np.array_equal(half.unpack().astype(np.float32), view)
    assert np.array_equal(inlay.pack(view, tag[format]).unpack(), view)


@pytest.mark.parametrize("name", VIEWS)
def test_the_descriptor_of_a_view_comes_back_from_every_form(name: str) -> None:
    desc = Memory(VIEWS[name]).desc
    assert MemoryDesc.from_json(desc.to_json()) == MemoryDesc.from_blob(desc.to_blob()) == desc
    assert eval(repr(desc), vars(inlay).copy()) == desc
    assert MemoryDesc.from_json(desc.to_json()).kind == desc.kind
    assert desc.tag is None or desc.kind == "blocked"


SHARED = ("broadcast", "sliding windows", "windows of a plane", "windows reversed")


@pytest.mark.parametrize("name", VIEWS)
def test_only_elements_that_share_nothing_are_written(name: str) -> None:
    view = VIEWS[name]
    desc = Memory(view).desc
    source = inlay.pack(view.copy(), "abcd"[: view.ndim])
    if name in SHARED:
        text = "elements of the destination overlap: give every element an offset of its own"
        with raises_exactly(InvalidArguments, text):
            inlay.reorder(source, desc)
        assert not to_numpy(Memory(view), copy=False).flags.writeable
        return
    assert np.array_equal(inlay.reorder(source, desc).unpack(), view)
    turned = np.zeros(60, np.float32)
    inlay.reorder(source, desc, out=Memory(desc, turned))
    touched = set(np.asarray(desc.offset(np.indices(view.shape).reshape(view.ndim, -1).T)).tolist())
    assert all(i in touched for i in np.flatnonzero(turned))


@pytest.mark.parametrize(("dims", "strides"), [((6, 2), (1, 2)), ((3, 1, 2, 2), (2, 0, 1, 2))])
def test_elements_that_share_offsets_move_beside_an_odd_loop(dims: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Two loops have one stride, and only one of them is the odd one that continues the row."""
    layout = Layout.from_strides(dims, strides)
    buffer = np.arange(layout.span[1], dtype=np.float32)
    expected = as_strided(buffer, dims, tuple(4 * stride for stride in strides))
    assert np.array_equal(Memory(layout, buffer).unpack(), expected)


@given(st.data())
def test_any_strides_move_as_numpy_moves_them(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 4))
    dims = tuple(data.draw(st.lists(st.integers(0, 5), min_size=ndim, max_size=ndim)))
    strides = tuple(data.draw(st.lists(st.integers(-12, 12), min_size=ndim, max_size=ndim)))
    dtype = data.draw(st.sampled_from(["float32", "int8", "int64", "bool", "complex128"]))
    layout = Layout.from_strides(dims, strides)
    low, high = layout.span
    buffer = (np.arange(max(1, high - low)) % 100).astype(dtype)
    memory = Memory(layout, buffer)
    steps = tuple(stride * buffer.itemsize for stride in strides)
    expected = as_strided(buffer[-low:], dims, steps)
    assert np.array_equal(memory.unpack(), expected)
    assert np.array_equal(Memory(expected).unpack(), expected)


def test_rows_of_a_bitmap_lie_bottom_up() -> None:
    """Row 145 of the documents: strides (80, 1, -16, 3) of pixels of 3 bytes, rows padded to 16."""
    buffer = np.arange(64, dtype=np.uint8)
    layout = Layout.from_strides((1, 3, 4, 5), (80, 1, -16, 3))
    pixels = buffer.reshape(4, 16)[::-1, :15].reshape(4, 5, 3)
    assert np.array_equal(Memory(layout, buffer).unpack(), pixels.transpose(2, 0, 1)[None])
    picture = str(inlay.show(layout, width=80, color=False))
    assert picture.startswith("strides 80 x 1 x -16 x 3, 1 x 3 x 4 x 5\ndigits  n (1,80); c (3,1); h (4,-16); w (5,3)")
    assert "offset  48 - 16*h + 3*w + c" in picture
    assert "text" not in picture.split("Tensor")[0]


def test_pictures_of_arrays() -> None:
    windows = sliding_window_view(np.arange(6, dtype=np.int8), 3)
    expected = """\
strides 1 x 1, 4 x 3 of s8
text    s8::digits:(4,1)x(3,1)::f0 4x3
digits  a (4,1); b (3,1); each (extent,stride)
offset  a + b
size    6 bytes; overlapping strides let several coordinates share an element
blocks  one for each a: 3 elements side by side in memory

Tensor: a runs down, b across
      b=0    1    2
a=0  A 0+ A 1+ A 2+
  1  B 1+ B 2+ B 3+
  2  C 2+ C 3+ C 4+
  3  D 3+ D 4+ D 5+

Memory: offsets 0 to 5; rows begin with offset: a,b
0: 0,0 ┃A 0+ A 1+ A 2+┃B 3+┃C 4+┃D 5+

 A 0+  element, the letter of its block, its value
    +  several coordinates share the element; memory names the first
    ┃  next block: 3 elements"""
    assert str(inlay.show(windows, width=80, color=False)) == expected
    assert "<svg" in inlay.show(windows).svg()
    for view in VIEWS.values():
        assert inlay.show(view, width=80, color=False).text()
    free = Layout((RUNTIME, 3), Layout.row_major((2, 3)).axes)
    assert "known only when data arrives" in str(inlay.show(free, width=80, color=False))


def test_a_buffer_that_ends_before_its_layout_is_refused() -> None:
    layout = Layout.from_strides((4,), (-1,))
    with pytest.raises(
        InvalidArguments, match=r"^buffer of 3 bytes is too small: MemoryDesc\.from_layout\(Layout\(dims="
    ):
        Memory(layout, np.zeros(3, np.uint8))
    with pytest.raises(
        InvalidArguments, match=r"reaches 3 elements below the start of its buffer: give it a larger offset0$"
    ):
        Memory(MemoryDesc.from_layout(layout, "u8"), np.zeros(4, np.uint8))


def test_views_of_a_turned_descriptor_stay_turned() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    memory = Memory(array[::-1])
    part = memory.desc.submemory((2, 3), (1, 2))
    assert np.array_equal(Memory(part, memory.buffer).unpack(), array[::-1][1:3, 2:5])
    turned = memory.desc.permute_axes((1, 0))
    assert np.array_equal(Memory(turned, memory.buffer).unpack(), array[::-1].T)
    windows = Memory(sliding_window_view(array.ravel(), 5))
    one = windows.desc.submemory((1, 5), (3, 0))
    assert one.kind == "blocked"
    assert np.array_equal(Memory(one, windows.buffer).unpack(), array.ravel()[None, 3:8])


def test_blocks_that_share_elements_are_digits() -> None:
    layout = Layout((16,), (Axis(4, (Digit(8, 1),)),))
    desc = MemoryDesc.from_layout(layout, "u8")
    assert (desc.kind, layout.overlaps) == ("digits", True)
    assert Memory(desc, np.arange(12, dtype=np.uint8)).unpack().tolist() == [*range(8), *range(4, 12)]
