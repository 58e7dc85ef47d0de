"""Pictures of small arrays and memories have the values of the elements in their cells."""

import ml_dtypes
import numpy as np
import pytest

import inlay
from inlay.layout import Swizzle
from tests.support.refusals import raises_exactly


def drawn(source: object, **options: object) -> list[str]:
    return str(inlay.show(source, width=80, color=False, **options)).splitlines()  # type: ignore[call-overload]


def test_cells_have_the_values_of_an_array() -> None:
    lines = drawn(np.array([[1.5, -2], [1 / 3, np.nan]], np.float32).T)
    assert lines[-8:] == [
        "          b=0        1",
        "a=0     A 1.5 B 0.3333",
        "  1      A -2    B nan",
        "",
        "Memory: offsets 0 to 3; rows begin with offset: a,b",
        "0: 0,0 │   A 1.5     A -2│B 0.3333    B nan",
        "",
        "    A 1.5  element, the letter of its block, its value",
    ]


def test_cells_have_the_values_of_a_memory_and_none_in_the_padding() -> None:
    lines = drawn(inlay.pack(np.array([[3, 1, 4], [1, 5, 9], [2, 6, 5]], np.int32), "Ab2a"))
    grid = lines[lines.index("Tensor: a runs down, b across") + 2 :][:4]
    assert grid == ["a=0  A 3 B 1 C 4", "  1  A 1 B 5 C 9", "  2  D 2 E 6 F 5", "  3  D╱╱ E╱╱ F╱╱"]
    assert any("│A 3 A 1│B 1 B 5│C 4 C 9│" in line for line in lines)


@pytest.mark.parametrize("dtype", [bool, np.uint64, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_every_type_has_a_text(dtype: type) -> None:
    lines = drawn(np.array([[0, 1], [1, 0]]).astype(dtype))
    one = "1+0j" if dtype is np.complex64 else "1"
    assert f"B {one}" in lines[-6]


def test_values_of_packed_and_swizzled_memory() -> None:
    values = np.arange(16, dtype=np.uint8).reshape(4, 4) % 8
    for desc in (
        inlay.MemoryDesc((4, 4), "u4", "ab"),
        inlay.MemoryDesc((4, 4), "u8", "ab", swizzle=Swizzle(1, 0, 2), offset0=2),
    ):
        lines = drawn(inlay.pack(values, desc, desc.data_type))
        assert "a=0  A 0 A 1 A 2 A 3" in lines
        assert "  1  B 4 B 5 B 6 B 7" in lines


def test_offsets_and_large_arrays_are_numbered() -> None:
    assert drawn(np.zeros((2, 2)), offsets=True)[-1].endswith("its offset")
    assert drawn(np.zeros((16, 16)))[-1].endswith("its value")
    assert drawn(np.zeros((16, 17)))[-1].endswith("its index in row-major order")
    assert drawn(np.zeros((0, 2)))[-1] == "There are no elements to draw: a has no coordinates."
    assert drawn("ab")[-1].endswith("its index in row-major order")


def test_the_data_of_a_masked_array_are_shown() -> None:
    masked = np.ma.MaskedArray([[1.5, 2.0]], [[True, False]])
    assert drawn(masked) == drawn(masked.data)


def test_values_are_in_the_markup() -> None:
    svg = inlay.show(np.array([0.25, 7])).svg()
    assert ">0.25</text>" in svg
    assert "its value" in svg


def test_text_is_no_array() -> None:
    with raises_exactly(
        inlay.InvalidArguments,
        "desc is of type list: give a MemoryDesc, such as MemoryDesc((2, 3), "
        "'f32', 'ab'), a Memory, a Layout, an array, or a format tag",
    ):
        drawn([1, 2])
