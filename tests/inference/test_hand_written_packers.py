"""Packers as people write them, with their typical faults: results, diagnoses and errors name what is wrong."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay import Diagnosis, InferredLayout, MemoryDesc, assemble, infer, pack, pack_compound, verify
from inlay.errors import InvalidArguments
from inlay.notation.format_tag import FormatTag

Array = npt.NDArray[Any]


def blocked(array: Array) -> Array:
    """Columns in blocks of 8, padded with zeros: Ba8b."""
    rows, columns = array.shape
    padded = np.pad(array, [(0, 0), (0, -columns % 8)])
    return np.ascontiguousarray(padded.reshape(rows, -1, 8).swapaxes(0, 1))


# Results


def marlin(array: Array) -> Array:
    """The interleave of `marlin/__init__.py`, with its loops."""
    k, n = array.shape
    order = []
    for i in range(32):
        rows = [2 * (i % 4), 2 * (i % 4) + 1, 2 * (i % 4 + 4), 2 * (i % 4 + 4) + 1]
        own = [16 * row + i // 4 + 8 * block for block in (0, 1) for row in rows]
        order += [p + 256 * j for j in range(4) for p in own]
    permutation = np.array(order).reshape(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(-1)
    tiles = array.reshape(k // 16, 16, n // 16, 16).transpose(0, 2, 1, 3).reshape(-1, len(permutation))
    return np.ascontiguousarray(tiles[:, permutation])


@pytest.mark.parametrize("data_type", ["u8", "bf16", "f32"])
def test_an_interleave_of_matrix_instructions_is_a_pattern(data_type: str) -> None:
    found = infer(marlin, (64, 128), data_type)
    assert isinstance(found, InferredLayout)
    assert found.format == "(a ax2 ay4 az2) (b b4 b2 b8) -> a b b8 ay4 b4 az2 b2 ax2"


@pytest.mark.parametrize(
    ("dims", "order", "tag"),
    [
        ((2, 1, 5, 4), (0, 1, 2, 3), "abcd"),
        ((2, 1, 5, 4), (0, 2, 3, 1), "abcd"),
        ((2, 3, 1, 4), (0, 2, 3, 1), "acdb"),
        ((1, 3, 5, 4), (0, 2, 3, 1), "acdb"),
        ((1, 1, 1, 1), (3, 2, 1, 0), "abcd"),
    ],
)
def test_axes_of_one_element_are_where_tags_usually_have_them(
    dims: tuple[int, ...], order: tuple[int, ...], tag: str
) -> None:
    found = infer(lambda x: x.transpose(order).copy(), dims)
    assert isinstance(found, InferredLayout)
    assert (found.tag, found.desc.tag) == (tag, tag)
    assert found.desc.equivalent(MemoryDesc(dims, "f32", FormatTag(order, ())))


def test_blocks_of_images_of_one_pixel_are_the_smallest() -> None:
    found = infer(lambda x: np.pad(x, [(0, 0), (0, 12), (0, 0), (0, 0)]), (1, 20, 1, 1), "u8")
    assert isinstance(found, InferredLayout)
    assert found.tag == "aBcd16b"


def test_a_reversed_axis_has_no_header() -> None:
    found = infer(lambda x: x[::-1].copy(), (4, 6), "u8")
    assert str(found) == "digits (4,-6), (6,1): dims 4x6 of u8, element 0 in place 18"
    header = infer(lambda x: np.append(np.zeros(1, x.dtype), x[::-1]), (4, 6), "u8")
    assert str(header) == ("digits (4,-6), (6,1): dims 4x6 of u8, header of 1 element, element 0 in place 19")


def test_a_long_padding_is_found_soon() -> None:
    found = infer(lambda x: np.append(x, np.zeros(1 << 20, x.dtype)), (1000,), "u8")
    assert isinstance(found, InferredLayout)
    assert found.desc.padded_dims == (1000 + (1 << 20),)


def test_a_tensor_of_another_library_is_a_buffer() -> None:
    torch = pytest.importorskip("torch")
    found = infer(lambda x: torch.from_numpy(x).T.contiguous(), (6, 5))
    assert isinstance(found, InferredLayout)
    assert found.tag == "ba"


# Faults


def without_last_column(array: Array) -> Array:
    changed = array.copy()
    changed[:, -1] = 0
    return blocked(changed)


def with_repeated_edge(array: Array) -> Array:
    result = blocked(array)
    result[-1, :, 1:] = result[-1, :, :1]
    return result


def with_short_rows(array: Array) -> Array:
    """Rows whose distance is one element too small: each overwrites the end of the one before."""
    rows, columns = array.shape
    result = np.zeros(array.size, array.dtype)
    for i in range(rows):
        result[i * (columns - 1) : i * (columns - 1) + columns] = array[i]
    return result


@pytest.mark.parametrize(
    ("packer", "text", "tag"),
    [
        (without_last_column, "4 elements have no place (all with b = 16), the first is 16 at (0, 16)", "Ba8b"),
        (
            with_repeated_edge,
            "4 elements have more than one place: element 16 at (0, 16) is in places 64 and 65",
            "Ba8b",
        ),
        (
            with_short_rows,
            "3 elements have no place, the first is 16 at (0, 16): element 17 at (1, 0) is written to the same place "
            "16",
            None,
        ),
        (
            lambda x: x.reshape(-1)[:34].copy(),
            "34 elements have no place (all with a = 2..3), the first is 34 at (2, 0)",
            "ab",
        ),
    ],
)
def test_faults_at_edges_are_named(packer: Callable[[Array], Array], text: str, tag: str | None) -> None:
    found = infer(packer, (4, 17))
    assert isinstance(found, Diagnosis)
    assert found.problem == text
    assert found.nearest is None if tag is None else found.nearest and found.nearest.tag == tag


def test_the_rule_of_a_lost_element_depends_on_the_buffer_alone() -> None:
    """An element that was overwritten cannot be told from one that was not written."""

    def overwritten(x: Array, buffer: Array) -> None:
        buffer[:] = x.reshape(-1)
        buffer[5] = x[0, 2]

    found = infer(overwritten, (4, 6), length=24)
    assert isinstance(found, Diagnosis)
    assert found.rule == "twice"
    assert str(found).splitlines()[0].endswith("1 element has no place, the first is 5 at (0, 5)")
    unwritten = infer(lambda x, buffer: buffer.__setitem__(slice(1, None), x.reshape(-1)[1:]), (4, 6), length=24)
    assert isinstance(unwritten, Diagnosis)
    assert unwritten.rule == "lost"


@pytest.mark.parametrize("error", [AssertionError, OSError, KeyError, NameError, ZeroDivisionError])
@pytest.mark.parametrize("call", [infer, verify])
def test_any_built_in_error_of_a_packer_is_named(call: Any, error: type[Exception]) -> None:
    def packer(x: Array, *buffer: Array) -> Array:
        raise error("no")

    first: Any = () if call is infer else (MemoryDesc((4, 6), "f32", "ab"),)
    dims: Any = ((4, 6),) if call is infer else ()
    with pytest.raises(InvalidArguments) as caught:
        call(*first, packer, *dims)
    assert str(caught.value).startswith(f"packer raised {error.__name__} for an array of shape (4, 6): ")
    assert "with length=, it is called as packer(array, buffer)" in str(caught.value)
    with pytest.raises(InvalidArguments) as caught:
        call(*first, packer, *dims, length=24)
    assert "with length=" not in str(caught.value)


def zeroing(x: Array) -> Array:
    result = x.T.copy()
    x[1, 2] = 0
    return result


def test_a_packer_that_changes_its_input_is_refused() -> None:
    text = r"^packer changes element 8 at \(1, 2\) of its input: let it read a copy$"
    for call in (lambda: infer(zeroing, (4, 6)), lambda: verify(MemoryDesc((4, 6), "f32", "ba"), zeroing)):
        with pytest.raises(InvalidArguments, match=text):
            call()

    def streams(arrays: dict[str, Array]) -> bytes:
        arrays["q"] += 1
        return arrays["q"].tobytes()

    with pytest.raises(InvalidArguments, match="packer changes the array q of its input"):
        infer(streams, (2, 8), streams={"q": ("u8", (2, 8))})


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: np.pad(x, [(0, 0), (0, 3)])[:, :6]])
def test_a_view_whose_order_is_ambiguous_is_refused(view: Callable[[Array], Array]) -> None:
    """Its indices are in one order and its memory in another."""
    with pytest.raises(InvalidArguments, match=r"is not row-major: give np\.ascontiguousarray\(array\) for the order"):
        infer(view, (4, 6))
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    with pytest.raises(InvalidArguments, match="is not row-major"):
        infer(view(x), (4, 6), logical=x)


EDGE = """
void edge(const float *s, float *d, int n, int c) {
    int blocks = (c + 7) / 8;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < blocks * 8; j++)
            d[(i * blocks + j / 8) * 8 + j % 8] = j < c || i + 1 < n ? s[i * c + j] : 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_loop_over_whole_blocks_spoils_padding_and_not_the_elements_that_it_repeats(tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(EDGE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "p.so", tmp_path / "p.c"], check=True)
    function = ctypes.CDLL(str(tmp_path / "p.so")).edge
    signature = ("src", "dst", np.int64(4), 17)
    result = verify(MemoryDesc((4, 17), "f32", "aB8b"), function, length=96, signature=signature)
    assert result.problem == "padding (0, 17) in place 17 holds a wrong value (byte 70)"
    address = ctypes.cast(function, ctypes.c_void_p).value
    found = infer(address, (4, 17), length=96, signature=signature)  # type: ignore[call-overload]
    assert isinstance(found, Diagnosis)
    assert found.rule == "twice"


# Pairs


@pytest.mark.parametrize(("low", "fill"), [(-34, 0), (-67, 0), (1, 20), (1, 68)])
def test_padding_may_repeat_the_value_of_an_element(low: int, fill: int) -> None:
    x = np.arange(low, low + 68, dtype=np.float32).reshape(4, 17)
    packed = np.pad(x, [(0, 0), (0, 7)], constant_values=fill)
    found = infer(packed, (4, 17), logical=x)
    assert isinstance(found, InferredLayout), found
    assert found.tag == "aB8b"
    element = fill - low
    assert f"the value of element {element} at {divmod(element, 17)} is also that of padding" in found.notes
    packed[2, 3], packed[2, 4] = x[2, 4], x[2, 4]
    lost = infer(packed, (4, 17), logical=x)
    assert isinstance(lost, Diagnosis)


def test_the_data_type_of_a_pair_is_that_of_the_logical_array() -> None:
    x = np.arange(68, dtype=np.uint8).reshape(4, 17)
    found = infer(x.T.copy(), (4, 17), logical=x)
    assert isinstance(found, InferredLayout)
    assert str(found) == "ba: dims 4x17 of u8"
    text = "^logical holds uint8, but the data type is f32: give float32, or the data type of the array$"
    for call in (
        lambda: infer(x.T.copy(), (4, 17), "f32", logical=x),
        lambda: verify(MemoryDesc((4, 17), "f32", "ba"), x.T.copy(), x),
    ):
        with pytest.raises(InvalidArguments, match=text):
            call()


# Tables


def test_a_table_that_counts_from_1_is_noted() -> None:
    found = infer(np.arange(1, 11), (2, 5))
    assert isinstance(found, InferredLayout)
    assert found.notes == (
        "entries beyond the last element are read as places, after a header; subtract 1 from a table that counts from "
        "1",
    )
    with pytest.raises(InvalidArguments, match="of integers, with marker= where no element is"):
        infer([0, 1, None, 2, 3, None], (2, 2))  # type: ignore[list-item]


def test_a_diagnosis_notes_the_direction_in_which_a_table_was_read() -> None:
    columns = np.arange(12).reshape(3, 4).T.reshape(-1)
    assert str(infer(columns + 1, (3, 4))).splitlines()[1:] == [
        "    entries beyond the last element are read as places, after a header; subtract 1 from a table that counts "
        "from 1"
    ]
    skewed = (np.arange(4) - np.arange(4)[:, None]) % 4 + 4 * np.arange(4)[:, None]
    assert str(infer(skewed.reshape(-1), (4, 4))).splitlines()[1:] == [
        "    a table of as many places as elements is read as physical -> logical; table='logical' reads the inverse"
    ]


def test_memory_is_its_bytes() -> None:
    array = np.arange(34, dtype=np.float32).reshape(2, 17)
    memory = pack(array, "aB8b")
    assert verify(memory.desc, memory, array)
    assert verify(memory.desc, lambda x: pack(x, "aB8b"))
    assert infer(lambda x: pack(x, "aB8b"), (2, 17)).tag == "aB8b"  # type: ignore[union-attr]
    weights = pack_compound(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64), "ggml:Q4_0")
    assert verify(weights.desc, weights, weights.streams())
    assert verify(weights.desc, lambda streams: assemble("ggml:Q4_0", streams))


def test_the_header_that_a_packer_writes_is_no_part_of_its_buffer() -> None:
    desc = MemoryDesc((3, 5), "u8", "ba", offset0=4)

    def pack_with_header(array: Array, buffer: Array) -> None:
        buffer[:4] = 0xAA
        buffer[4:] = array.T.reshape(-1)

    assert str(verify(desc, pack_with_header, length=19)) == (
        "place 0 is of no element and no padding, and the packer writes byte 0 there; with logical=, a packed buffer "
        "is compared without its header and gaps"
    )
    array, buffer = np.arange(15, dtype=np.uint8).reshape(3, 5), np.zeros(19, np.uint8)
    pack_with_header(array, buffer)
    assert verify(desc, buffer, array)
