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
    assert lines[-9:] == [
        "          b=0        1",
        "a=0     A 1.5 B 0.3333",
        "  1      A -2    B nan",
        "",
        "Memory: offsets 0 to 3; rows begin with offset: a,b",
        "0: 0,0 ┃   A 1.5     A -2┃B 0.3333    B nan",
        "",
        "    A 1.5  element, the letter of its block, its value",
        "        ┃  next block: 2 elements",
    ]


def test_cells_have_the_values_of_a_memory_and_none_in_the_padding() -> None:
    lines = drawn(inlay.pack(np.array([[3, 1, 4], [1, 5, 9], [2, 6, 5]], np.int32), "Ab2a"))
    grid = lines[lines.index("Tensor: a runs down, b across") + 2 :][:4]
    assert grid == ["a=0  A 3 B 1 C 4", "  1  A 1 B 5 C 9", "  2  D 2 E 6 F 5", "  3  D╱╱ E╱╱ F╱╱"]
    assert any("┃A 3 A 1┃B 1 B 5┃C 4 C 9┃" in line for line in lines)


@pytest.mark.parametrize("dtype", [bool, np.uint64, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_every_type_has_a_text(dtype: type) -> None:
    lines = drawn(np.array([[0, 1], [1, 0]]).astype(dtype))
    one = "1+0j" if dtype is np.complex64 else "1"
    assert f"B {one}" in lines[-7]


def test_values_of_packed_and_swizzled_memory() -> None:
    values = np.arange(16, dtype=np.uint8).reshape(4, 4) % 8
    for desc in (
        inlay.MemoryDesc((4, 4), "u4", "ab"),
        inlay.MemoryDesc((4, 4), "u8", "ab", swizzle=Swizzle(1, 0, 2), offset0=2),
    ):
        lines = drawn(inlay.pack(values, desc, desc.data_type))
        assert "a=0  A 0 A 1 A 2 A 3" in lines
        assert "  1  B 4 B 5 B 6 B 7" in lines


def number_of(lines: list[str]) -> str:
    """The meaning of the numbers in the cells."""
    return next(line for line in lines if "  element, " in line).rsplit(", ", 1)[1]


def test_offsets_and_layouts_without_values_are_numbered() -> None:
    assert number_of(drawn(np.zeros((2, 2)), offsets=True)) == "its offset"
    assert number_of(drawn(np.zeros((16, 16)))) == "its value"
    assert number_of(drawn("ab")) == "its index in row-major order"
    assert drawn(np.zeros((0, 2)))[-1] == "There are no elements to draw: a has no coordinates."


def test_a_large_array_shows_the_values_of_the_elements_that_fit() -> None:
    values = np.random.default_rng(0).integers(0, 1000, (300, 1008))
    lines = drawn(inlay.pack(values, "AB16b16a"))
    grid = lines[lines.index("Tensor: a runs down, b across") + 1 :]
    columns = [int(word.removeprefix("b=")) for word in grid[0].split() if word != "⋯"]
    assert columns[-1] == 1007
    for row in (0, 16, 299):
        line = next(line for line in grid if line.split()[0].removeprefix("a=") == str(row))
        numbers = [int(word) for word in line.replace("┃", " ").split()[1:] if word.isdecimal()]
        assert numbers == [values[row, column] for column in columns]


def test_the_width_of_cells_is_that_of_the_widest_value_shown() -> None:
    values = np.ones((3, 40), np.float32)
    values[1, 1] = -1.234e-30
    lines = drawn(values)
    assert any("B -1.234e-30" in line for line in lines)
    values[1, 1] = 2
    assert any("B 2 B 1" in line for line in drawn(values))


def test_padding_that_is_not_zero_has_its_value() -> None:
    desc = inlay.MemoryDesc((3, 2), "s16", "Ab2a")
    memory = inlay.Memory(desc, np.array([1, 3, 2, 4, 5, -7, 6, 0], np.int16))
    lines = drawn(memory)
    assert "  3  C╱-7 D╱╱╱" in lines
    assert "  2   C 5  D 6" in lines
    assert [line.strip() for line in lines[-4:-1]] == [
        "A 1  element, the letter of its block, its value",
        "D╱╱╱  padding, kept zero",
        "C╱-7  padding that is not zero",
    ]
    assert "\x1b[38;5;16;48;5;194m ╱-7" in str(inlay.show(memory, width=80, color=True))


def test_values_are_read_when_the_picture_is_drawn() -> None:
    array = np.zeros((2, 2), np.int8)
    picture = inlay.show(array, width=80, color=False)
    array[0, 1] = 42
    assert "A 42" in str(picture)


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
