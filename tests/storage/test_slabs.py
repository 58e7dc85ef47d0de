"""Conversion slab by slab writes the same bytes as one reorder of the whole tensor."""

from pathlib import Path

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.memory import pack
from inlay.storage import conversion, convert, open_memories, plan_conversion, save_memories
from inlay.storage.loss import LossScan

CASES = [
    ((999, 7), "ab", "ba", "bf16"),
    ((999, 7), "ba", "ab", "f32"),
    ((2, 999, 5), "bca", "aBc16b", "f16"),
    ((77, 33, 4), "ABc16b4a", "bAc8a", "f32"),
    ((50, 33), "aB16b", "aB8b", "f64"),
    ((1, 300, 3), "abc", "abc", "bf16"),
    ((4099,), "a", "A64a", "f16"),
]


@pytest.mark.parametrize(("dims", "src", "dst", "data_type"), CASES)
def test_slabs_are_the_whole(
    dims: tuple[int, ...], src: str, dst: str, data_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(3).standard_normal(dims).astype(np.float32)
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_memories(source, {"t": pack(values, src)})
    monkeypatch.setattr(conversion, "_SLAB", 1000)
    descs = MemoryDesc(dims, "f32", src), MemoryDesc(dims, data_type, dst)
    assert len(conversion.cut_into_slabs(*descs)) > 2
    convert(plan_conversion(source, target, [dst], data_type=data_type))
    expected = pack(values.astype(descs[1].data_type.dtype), dst)  # type: ignore[union-attr]
    result = open_memories(target)["t"]
    assert result.desc == descs[1]
    assert result.buffer[: expected.desc.size].tobytes() == expected.buffer[: expected.desc.size].tobytes()


def test_formats_without_an_outermost_axis_are_one_slab() -> None:
    gaps = MemoryDesc((4096, 4), "f32", strides=(8, 1))
    assert conversion.cut_into_slabs(gaps, MemoryDesc((4096, 4), "f32", "ab")) == []
    assert conversion.cut_into_slabs(MemoryDesc((4096, 4), "s4", "ab"), MemoryDesc((4096, 4), "s8", "ab")) == []
    assert conversion.cut_into_slabs(MemoryDesc((0, 4), "f32", "ab"), MemoryDesc((0, 4), "f32", "ba")) == []


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_counts_are_those_of_numpy(size: int) -> None:
    numbers = np.array([0.0, -0.0, 1e-45, -1e-45, 0.5, -0.5, 3.0, -3.0, 3.5, np.inf, -np.inf, np.nan], np.float32)
    values = np.random.default_rng(size).choice(numbers, size)
    found = LossScan(((3.0, np.inf), (-np.inf, -3.0)), 0.5).count(values)
    exact = values.astype(np.float64)
    assert found.nonzero == np.count_nonzero(exact)
    assert found.vanishing == np.count_nonzero((exact != 0) & (np.abs(exact) <= 0.5))
    assert found.saturated == np.count_nonzero(np.abs(exact) >= 3)
    assert found.nan == np.count_nonzero(np.isnan(exact))
