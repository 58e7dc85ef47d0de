"""Comparison and contents of files: by logical elements and by format."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from inlay.descriptor import MemoryDesc
from inlay.memory import Memory, pack
from inlay.storage import StoreComparison, compare_stores, list_contents, open_store, save_memories
from tests.support.tensor_files import numbered


def compared(first: str = "a.safetensors", second: str = "b.safetensors") -> StoreComparison:
    return compare_stores(open_store(first), open_store(second))


def test_layouts_do_not_matter_and_are_named() -> None:
    values = numbered((20, 33))
    save_memories("a.safetensors", {"w": pack(values, "ab"), "b": pack(values[0], "a")})
    save_memories("b.safetensors", {"w": pack(values, "aB16b"), "b": pack(values[0], "a")})
    found = compared()
    assert sorted(str(found).splitlines()) == [
        "1 tensor of equal elements and format",
        "w: equal elements, f32 row-major and f32 aB16b",
    ]
    assert (found.has_equal_elements, found.has_equal_formats) == (True, False)


def test_padding_is_not_compared() -> None:
    desc = MemoryDesc((3, 5), "f32", "aB4b")
    memory = pack(numbered((3, 5)), desc)
    dirty = Memory(desc, memory.buffer.copy())
    dirty.buffer[5 * 4 : 8 * 4] = 7
    save_memories("a.safetensors", {"w": memory})
    save_memories("b.safetensors", {"w": dirty})
    found = compared()
    assert found.has_equal_elements
    assert found.has_equal_formats


@settings(max_examples=80, deadline=None)
@given(
    st.tuples(st.integers(1, 20), st.integers(1, 20)),
    st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19), st.floats(-5, 5, width=32)), max_size=6),
    st.sampled_from(["ab", "ba", "aB4b"]),
)
def test_differences_are_those_of_numpy(
    tmp_path_factory: Any, dims: tuple[int, int], changes: list[tuple[int, int, float]], tag: str
) -> None:
    folder = tmp_path_factory.mktemp("compared")
    values = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    other = values.copy()
    for i, j, value in changes:
        other[i % dims[0], j % dims[1]] = value
    save_memories(folder / "a.safetensors", {"t": pack(values, "ab")})
    save_memories(folder / "b.safetensors", {"t": pack(other, tag)})
    (found,) = compare_stores(open_store(folder / "a.safetensors"), open_store(folder / "b.safetensors")).tensors
    differs = values.view(np.uint32) != other.view(np.uint32)
    assert found.different == np.count_nonzero(differs)
    assert found.first == (tuple(np.argwhere(differs)[0].tolist()) if differs.any() else None)
    assert found.greatest == np.abs(values - other).max()
    assert found.count == values.size


def test_values_of_two_types_are_compared_as_numbers() -> None:
    values = np.array([[1.0, 0.1, np.nan], [-0.0, 3.0, 1e10]], np.float32)
    save_memories("a.safetensors", {"t": pack(values, "ab")})
    save_memories("b.safetensors", {"t": pack(values.astype(ml_dtypes.bfloat16), "ba")})
    (found,) = compared().tensors
    assert found.first == (0, 1)
    assert str(found) == "t: 2 of 6 elements differ by up to 779264, the first at 0,1; f32 row-major and bf16 ba"
    save_memories("a.safetensors", {"t": pack(np.array([1, -8], ml_dtypes.int4), "a")})
    save_memories("b.safetensors", {"t": pack(np.array([1, -8], np.int64), "a")})
    assert compared().has_equal_elements


def test_what_cannot_be_compared_is_named() -> None:
    f6 = {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}
    header = json.dumps({"f6": f6}).encode()
    with open("f6.safetensors", "wb") as file:  # noqa: PTH123
        file.write(len(header).to_bytes(8, "little") + header + bytes(3))
    save_file({"s": np.array(1, np.float32), "w": numbered((2, 3)), "mask": np.ones(3, bool)}, "a.safetensors")
    save_file(
        {"s": np.array(1, np.float32), "w": numbered((3, 2)), "mask": np.ones(3, np.uint8), "x": np.ones(1)},
        "b.safetensors",
    )
    found = compared()
    assert sorted(str(found).splitlines()) == [
        "1 tensor of equal elements and format",
        "mask: types bool and u8, which cannot be compared",
        "w: dims 2x3 and 3x2",
        "x: only in the second",
    ]
    assert not found.has_equal_elements
    assert compared("b.safetensors", "a.safetensors").only_first == ("x",)
    save_file({"f6": np.ones(4, np.float32)}, "c.safetensors")
    assert str(compared("f6.safetensors", "c.safetensors")) == (
        "f6: types F6_E2M3 and f32, of which one has no numbers that Inlay reads"
    )
    assert compared("f6.safetensors", "f6.safetensors").has_equal_elements


def test_files_of_one_tensor_are_compared_whatever_its_name_is() -> None:
    np.save("a.npy", numbered((2, 3)))
    save_file({"w": numbered((2, 3))}, "w.safetensors")
    assert str(compared("a.npy", "w.safetensors")) == "1 tensor of equal elements and format"
    save_file({"w": numbered((2, 3), np.uint16)}, "u.safetensors")
    assert str(compared("a.npy", "u.safetensors")) == "a: types f32 and u16, which cannot be compared"


def test_a_comparison_is_json() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    save_file({"w": values, "x": values}, "a.safetensors")
    save_file({"w": values + np.eye(2, 3, dtype=np.float32)}, "b.safetensors")
    assert json.loads(json.dumps(compared().to_json())) == {
        "equal_elements": False,
        "equal_formats": True,
        "only_first": ["x"],
        "only_second": [],
        "tensors": [
            {
                "name": "w",
                "formats": ["f32 row-major", "f32 row-major"],
                "equal_elements": False,
                "equal_formats": True,
                "obstacle": None,
                "elements": 6,
                "different": 2,
                "first": [0, 0],
                "greatest_difference": 1.0,
            }
        ],
    }


@pytest.mark.parametrize("dims", [(0, 3), (3, 0)])
def test_tensors_without_elements_are_equal(dims: tuple[int, int]) -> None:
    save_file({"w": np.zeros(dims, np.float32)}, "a.safetensors")
    assert compared("a.safetensors", "a.safetensors").has_equal_elements


def test_contents_of_a_file() -> None:
    save_memories(
        "a.safetensors",
        {"w": pack(numbered((33, 17)), "AB16b4a"), "q": pack(np.ones(5, ml_dtypes.int4), "a")},
        {"k": "v"},
    )
    contents = list_contents(open_store("a.safetensors"))
    assert {tensor.name: (tensor.dims, tensor.data_type, tensor.format) for tensor in contents.tensors} == {
        "w": ((33, 17), "f32", "AB16b4a"),
        "q": ((5,), "s4", "a"),
    }
    sizes = {tensor.name: (tensor.nbytes, tensor.data_nbytes) for tensor in contents.tensors}
    assert sizes == {"w": (36 * 32 * 4, 33 * 17 * 4), "q": (64, 3)}
    described = json.loads(json.dumps(contents.to_json()))
    assert described["padding_share"] == 1 - (33 * 17 * 4 + 3) / (36 * 32 * 4 + 64)
    assert (described["metadata"], described["bytes"], len(described["tensors"])) == ({"k": "v"}, 36 * 32 * 4 + 64, 2)


def test_scalars_are_compared_by_their_numbers() -> None:
    save_file({"s": np.array(3, np.int32), "t": np.array(0.5, np.float32)}, "a.safetensors")
    np.savez("b.npz", s=np.array(3, np.int32), t=np.array(0.25, np.float32))
    np.savez("c.npz", s=np.array(3, np.float32), t=np.array(0.5, np.float64))
    lines = str(compare_stores(open_store("a.safetensors"), open_store("b.npz"))).splitlines()
    assert lines == [
        "t: 1 of 1 elements differ by up to 0.25, the first at 0; f32",
        "1 tensor of equal elements and format",
    ]
    found = compare_stores(open_store("a.safetensors"), open_store("c.npz"))
    assert (found.has_equal_elements, found.has_equal_formats) == (True, False)
