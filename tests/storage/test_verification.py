"""Verification: a conversion passes, and every byte that holds an element or padding is compared."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError
from inlay.memory import Memory, pack
from inlay.storage import convert, cutting, open_memories, open_store, plan, save_memories, verify
from inlay.storage.box import Box
from inlay.storage.conversion_plan import ConversionPlan
from inlay.storage.element_reading import read_codes
from inlay.storage.operation import BoxCounts, ScanResult
from inlay.storage.target import TargetTensor, TargetWriter
from tests.support.refusals import raises_exactly
from tests.support.tensor_files import numbered

SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e38, 448, 65504, 0.5, 1.5, 127.5], np.float32)


def converted(source: str, target: str, *to: str, **options: Any) -> ConversionPlan:
    planned = plan(source, target, to, **options)
    convert(planned, allow_loss=True)
    return planned


@pytest.mark.parametrize("src", [t for t in DATA_TYPES if t not in ("s64", "f64")])
@pytest.mark.parametrize("dst", ["f32", "bf16", "f16", "s8", "u8", "f8_e4m3", "f8_e5m2", "f4_e2m1", "s4", "f64"])
def test_conversions_between_all_types_pass(src: str, dst: str) -> None:
    values = np.concatenate([SPECIAL, np.linspace(-300, 300, 50, dtype=np.float32)]).reshape(7, 9)
    with np.errstate(all="ignore"):
        save_memories("a.safetensors", {"t": pack(values, "aB4b", src)})
    verify(converted("a.safetensors", "b.safetensors", "Ab16a", data_type=dst))


LAYOUTS = ["ab", "ba", "aB16b", "AB4b2a", "(a a4 a3) (b b4) -> a b a3 b4 a4"]


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.sampled_from(LAYOUTS),
    st.sampled_from(LAYOUTS),
    st.sampled_from([np.uint8, np.float16, np.float32, ml_dtypes.int4]),
    st.sampled_from(["400 B", "3 kB", "1 GB"]),
)
def test_any_conversion_passes(
    tmp_path_factory: Any, dims: tuple[int, int], src: str, dst: str, dtype: Any, memory: str
) -> None:
    folder = tmp_path_factory.mktemp("verified")
    dims = (2 * dims[0], 2 * dims[1])  # so that strides of elements of 4 bits are whole bytes
    values = numbered(dims, np.uint8).astype(np.int8) >> 4 if dtype is ml_dtypes.int4 else numbered(dims, dtype)
    save_memories(folder / "a.safetensors", {"t": pack(values.astype(dtype), src)})
    planned = plan(folder / "a.safetensors", folder / "b.safetensors", [dst], memory=memory)
    convert(planned)
    heard: list[int] = []
    verify(planned, heard.append)
    assert len(heard) == planned.count


def test_every_byte_of_elements_and_padding_is_compared() -> None:
    desc = MemoryDesc((3, 5), "f16", "aB4b")
    save_file({"t": numbered((3, 5), np.float16), "u": numbered((7,), np.uint8)}, "a.safetensors")
    planned = converted("a.safetensors", "b.safetensors", "t=aB4b")
    content = Path("b.safetensors").read_bytes()
    tensor = planned.target.tensors["t"]
    copied = planned.target.tensors["u"]
    compared = {*range(tensor.begin, tensor.begin + desc.size), *range(copied.begin, copied.begin + 7)}
    for place in range(min(compared), len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        Path("b.safetensors").write_bytes(damaged)
        if place not in compared:  # bytes up to the next multiple of 64
            verify(planned)
            continue
        with pytest.raises(FileError, match=r"^b\.safetensors differs from its source a\.safetensors: tensor "):
            verify(planned)


@dataclass(frozen=True, slots=True)
class DivideByGreatest:
    """An operation that needs a scan: it divides by the greatest magnitude of the tensor."""

    target: TargetTensor
    greatest: float | None = None
    needs_scan: bool = True
    units: None = None

    @property
    def targets(self) -> tuple[TargetTensor, ...]:
        return (self.target,)

    def scan(self, memory: Memory) -> float:
        return float(np.abs(memory.unpack()).max())

    def with_scan(self, greatest: ScanResult) -> "DivideByGreatest":
        return replace(self, greatest=float(greatest))

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        assert self.greatest is not None
        values = memory.unpack() / np.float32(self.greatest)
        writer.write_box(self.target, box, pack(values, writer.box_desc(self.target, box)))
        return BoxCounts()


def test_other_operations_are_done_again_and_compared() -> None:
    values = np.random.default_rng(0).standard_normal((50, 33)).astype(np.float32)
    save_file({"t": values}, "a.safetensors")
    planned = plan("a.safetensors", "b.safetensors", ["aB16b"], memory="4 kB")
    operation = DivideByGreatest(planned.target.tensors["t"])
    (each,) = planned.tensors
    scanned = replace(planned, tensors=(replace(each, operation=operation.with_scan(np.abs(values).max())),))
    convert(scanned)
    again = replace(planned, tensors=(replace(each, operation=operation),))
    verify(again)
    assert np.array_equal(open_memories("b.safetensors")["t"].unpack(), values / np.abs(values).max())
    damage(planned, "t", 7, 4)
    with pytest.raises(FileError, match=" tensor t, 1 element differs, the first at 0,7: "):
        verify(again)


def damage(planned: ConversionPlan, name: str, element: int, width: int) -> None:
    """Flip the lowest bit of an element."""
    with Path("b.safetensors").open("r+b") as file:
        place = planned.target.tensors[name].begin + element * width
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def test_differences_are_named() -> None:
    save_file({"t": np.arange(15, dtype=np.float32).reshape(3, 5)}, "a.safetensors")
    planned = converted("a.safetensors", "b.safetensors", "aB4b")
    damage(planned, "t", 8 + 1, 4)
    damage(planned, "t", 16 + 4, 4)
    text = (
        "b.safetensors differs from its source a.safetensors: tensor t, 2 elements differ, the first at 1,1: "
        "0x40c00001 in place of 0x40c00000; convert it again"
    )
    with raises_exactly(FileError, text):
        verify(planned)


def test_dirty_padding_is_named() -> None:
    save_file({"t": np.arange(15, dtype=np.float32).reshape(3, 5)}, "a.safetensors")
    planned = converted("a.safetensors", "b.safetensors", "aB4b")
    damage(planned, "t", 5, 4)
    text = (
        "b.safetensors differs from its source a.safetensors: tensor t, padding is not 0 in 1 of its elements; "
        "convert it again"
    )
    with raises_exactly(FileError, text):
        verify(planned)


def test_another_target_is_named() -> None:
    save_file({"t": numbered((3, 5)), "u": numbered((2,))}, "a.safetensors")
    planned = converted("a.safetensors", "b.safetensors", "t=aB4b")
    convert(plan("a.safetensors", "b.safetensors", ["t=ba"]), overwrite=True)
    text = (
        "b.safetensors is not the result of this conversion: tensor t is f32::blocked:ba::f0 and not "
        "f32:p:blocked:aB4b::f0"
    )
    with raises_exactly(FileError, text):
        verify(planned)
    save_file({"u": numbered((2,)), "v": numbered((2,))}, "b.safetensors")
    with raises_exactly(FileError, "b.safetensors is not the result of this conversion: tensor t is missing"):
        verify(planned)


def test_a_source_that_changed_is_refused() -> None:
    np.save("a.npy", numbered((3, 5)))
    planned = converted("a.npy", "b.npy", "plain")
    os.utime("a.npy", ns=(1, 1))
    with raises_exactly(FileError, "cannot read a.npy: it changed while it was being read; try again"):
        verify(planned)


def test_it_shares_no_code_with_the_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong map of boxes to bytes moves reads and writes alike, so only a second way to read finds it."""
    from inlay.storage import box_bytes, file_store, file_target

    np.save("a.npy", numbered((64, 64)))
    place = box_bytes.require_place

    def shifted(desc: MemoryDesc, box: Box) -> box_bytes.BoxBytes:
        found = place(desc, box)
        begin = (found.begin + 256) % (64 * 256)
        return box_bytes.BoxBytes(found.desc, begin, found.loops, found.run_nbytes)

    for module in (file_store, file_target):
        monkeypatch.setattr(module, "require_place", shifted)
    monkeypatch.setattr(cutting, "BOX_NBYTES", 256)
    cutting.cut_extents.cache_clear()
    with pytest.raises(FileError, match=" elements differ, the first at "):
        verify(converted("a.npy", "b.safetensors", "ba"))
    cutting.cut_extents.cache_clear()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_codes_of_boxes_are_those_of_numpy(tmp_path_factory: Any, data: st.DataObject) -> None:
    dims = tuple(data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    tag = data.draw(
        st.sampled_from(["a", "A4a"] if len(dims) == 1 else LAYOUTS if len(dims) == 2 else ["cab", "aBC4b2c"])
    )
    dtype = data.draw(st.sampled_from([np.uint8, np.int16, np.float32, np.complex128]))
    values = (np.arange(np.prod(dims)) * 7 % 251).reshape(dims).astype(dtype)
    path = tmp_path_factory.mktemp("codes") / "a.safetensors"
    save_memories(path, {"t": pack(values, tag)})
    begin = [data.draw(st.integers(0, n)) for n in dims]
    end = [data.draw(st.integers(b, n)) for b, n in zip(begin, dims, strict=True)]
    box = Box(tuple(begin), tuple(end))
    store = open_store(path)
    (tensor,) = store.tensors
    assert tensor.desc is not None
    with store.open() as reader:
        codes = read_codes(reader, tensor, tensor.desc, box)
    assert codes.tobytes() == np.ascontiguousarray(values[box.slices]).tobytes()
