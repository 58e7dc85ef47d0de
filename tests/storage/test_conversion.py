"""Conversion of files: results are complete and equal the source, and no partial file is written."""

import json
import struct
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from inlay.descriptor import MemoryDesc
from inlay.files import atomic_write
from inlay.memory import Memory, pack
from inlay.safetensors_header import TensorEntry
from inlay.storage import convert, open_memories, parse_rule, plan, save_memories
from inlay.storage.safetensors_file import write_safetensors
from tests.support.bit_patterns import same_bits
from tests.support.tensor_files import Array, numbered, run

TYPES = ["float32", "float64", "float16", "int8", "uint8", "int32", "int64"]
ML_TYPES = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


def read_parts(path: str) -> tuple[dict[str, Any], bytes]:
    """Return the header of a file and the bytes that follow it."""
    content = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def stored(path: str) -> dict[str, tuple[str, list[int], bytes]]:
    """Type, shape and bytes of every tensor: the library checks the file, the bytes are taken by its header."""
    header, data = read_parts(path)
    with safe_open(path, framework="numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    ends = {name: slice(*header[name]["data_offsets"]) for name in slices}
    return {name: (s.get_dtype(), s.get_shape(), data[ends[name]]) for name, s in slices.items()}


ROUND_TRIPS = [
    ((2, 17, 5, 4), "nChw16c"),
    ((2, 17, 5, 4), "nChw8c"),
    ((2, 17, 5, 4), "nhwc"),
    ((33, 17, 3, 3), "OIhw16i16o"),
    ((33, 17, 3, 3), "OIhw4i16o4i"),
    ((5, 7), "ba"),
    ((19,), "A16a"),
    ((0, 17, 5, 4), "nChw16c"),
    ((0, 3), "ba"),
    ((1, 1, 1, 1), "nChw16c"),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("dims", "tag"), ROUND_TRIPS)
def test_packed_and_back_is_the_same_npy_file(dims: tuple[int, ...], tag: str, dtype: str) -> None:
    np.save("a.npy", numbered(dims, dtype))
    run("a.npy", "p.safetensors", tag)
    run("p.safetensors", "b.npy", "plain")
    assert Path("b.npy").read_bytes() == Path("a.npy").read_bytes()


@pytest.mark.parametrize("dtype", [*TYPES, *ML_TYPES])
def test_packed_and_back_is_the_same_safetensors_tensor(dtype: Any) -> None:
    original, packed, back = (f"{name}.safetensors" for name in "apb")
    save_file({"w": numbered((33, 17, 3, 3), dtype), "b": numbered((7,), dtype)}, original)
    run(original, packed, "w=OIhw16i16o")
    run(packed, back, "plain")
    assert stored(back) == stored(original)
    assert stored(packed)["w"][0] == "U8"
    assert stored(packed)["b"] == stored(original)["b"]


def test_column_major_arrays_are_read_as_they_lie() -> None:
    array = np.asfortranarray(numbered((3, 5, 7)))
    np.save("f.npy", array)
    run("f.npy", "p.safetensors", "aBc4b")
    run("p.safetensors", "c.npy", "plain")
    assert same_bits(np.load("c.npy"), np.ascontiguousarray(array))


def test_packed_bytes_are_numpys_pad_reshape_transpose() -> None:
    weights = numbered((33, 17, 3, 3))
    save_file({"conv.weight": weights}, "w.safetensors")
    run("w.safetensors", "p.safetensors", "conv*=OIhw16i16o")
    padded = np.pad(weights, ((0, 15), (0, 15), (0, 0), (0, 0))).reshape(3, 16, 2, 16, 3, 3)
    expected = padded.transpose(0, 2, 4, 5, 3, 1).tobytes()
    assert stored("p.safetensors")["conv.weight"] == ("U8", [len(expected)], expected)


def test_an_order_of_axes_keeps_its_type_and_the_shape_as_it_lies() -> None:
    array = numbered((2, 3, 5, 4))
    np.save("a.npy", array)
    run("a.npy", "p.safetensors", "nhwc")
    expected = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    assert stored("p.safetensors")["a"] == ("F32", [2, 5, 4, 3], expected.tobytes())
    assert open_memories("p.safetensors")["a"].desc == MemoryDesc((2, 3, 5, 4), "f32", "nhwc")


def test_elements_are_converted_to_the_type_asked_for() -> None:
    array = np.linspace(-3, 3, 2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    save_file({"a": array, "b": array}, "a.safetensors")
    run("a.safetensors", "p.safetensors", "a=plain", data_type="bf16")
    assert stored("p.safetensors") == {
        "a": ("BF16", [2, 5, 3], array.astype(ml_dtypes.bfloat16).tobytes()),
        "b": ("F32", [2, 5, 3], array.tobytes()),
    }


def test_tensors_that_no_rule_matches_and_other_texts_are_kept() -> None:
    tensors = {
        "mask": np.array([True, False, True]),
        "ids": np.arange(5, dtype=np.uint16),
        "scalar": np.array(3.5, np.float32),
        "empty": np.zeros((0, 4), np.int32),
        "w": numbered((3, 17, 2, 2)),
    }
    texts = {"format": "pt", "note": 'ünïcode\n"quoted"'}
    save_file(tensors, "a.safetensors", texts)
    run("a.safetensors", "p.safetensors", "w=nChw16c")
    run("p.safetensors", "b.safetensors", "plain")
    packed, original = stored("p.safetensors"), stored("a.safetensors")
    assert {n: t for n, t in packed.items() if n != "w"} == {n: t for n, t in original.items() if n != "w"}
    assert stored("b.safetensors") == original
    with safe_open("p.safetensors", framework="numpy") as file:
        assert file.metadata().keys() == {"format", "note", "inlay"}
        assert json.loads(file.metadata()["inlay"]) == {
            "version": 2,
            "tensors": {"w": json.loads(MemoryDesc((3, 17, 2, 2), "f32", "nChw16c").to_json())},
        }
    with safe_open("b.safetensors", framework="numpy") as file:
        assert file.metadata() == texts


def test_a_packed_tensor_that_no_rule_matches_keeps_its_descriptor() -> None:
    save_file({"a": numbered((3, 17, 2, 2)), "b": numbered((3, 17, 2, 2))}, "a.safetensors")
    run("a.safetensors", "p.safetensors", "nChw16c")
    run("p.safetensors", "q.safetensors", "b=nhwc")
    descs = {name: m.desc.tag for name, m in open_memories("q.safetensors").items()}
    assert descs == {"a": "aBcd16b", "b": "acdb"}
    assert stored("q.safetensors")["a"] == stored("p.safetensors")["a"]


def test_the_first_rule_that_matches_holds() -> None:
    save_file({"a": numbered((3, 17, 2, 2)), "b": numbered((3, 17, 2, 2))}, "a.safetensors")
    run("a.safetensors", "p.safetensors", "a=nhwc", "nChw8c", "b=nChw16c")
    assert {n: m.desc.tag for n, m in open_memories("p.safetensors").items()} == {"a": "acdb", "b": "aBcd8b"}


def test_packed_tensors_lie_on_64_byte_boundaries() -> None:
    tensors = {f"t{i}": numbered((i + 1, 17, 3), "uint8") for i in range(5)}
    tensors |= {f"x{i}": numbered((2 * i + 1,), "float16") for i in range(3)}
    save_file(tensors, "a.safetensors")
    run("a.safetensors", "p.safetensors", "t*=aBc8b")
    header, data = read_parts("p.safetensors")
    start = Path("p.safetensors").stat().st_size - len(data)
    begins = {name: start + header[name]["data_offsets"][0] for name in tensors}
    assert all(begin % (64 if name[0] == "t" else 2) == 0 for name, begin in begins.items())


def test_equal_inputs_give_equal_files() -> None:
    tensors = {name: numbered((3, 17, 2, 2), "uint8") for name in ("b", "a", "c")}
    save_file(tensors, "a.safetensors", {"k": "v"})
    for target in ("p", "q"):
        run("a.safetensors", f"{target}.safetensors", "nChw16c")
    assert Path("p.safetensors").read_bytes() == Path("q.safetensors").read_bytes()


def test_opened_memories_are_mapped_and_read_only() -> None:
    np.save("a.npy", numbered((2, 17, 5, 4)))
    run("a.npy", "p.safetensors", "nChw16c")
    buffer = np.asarray(open_memories("p.safetensors")["a"].buffer)
    owner: Any = buffer
    while not isinstance(owner, np.memmap) and owner.base is not None:
        owner = owner.base
    assert isinstance(owner, np.memmap)
    assert not buffer.flags.writeable
    assert buffer.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "desc",
    [
        MemoryDesc((2, 17, 5, 4), "f32", "nChw16c"),
        MemoryDesc((4, 6), "bf16", strides=(8, 1)),
        MemoryDesc((4, 6), "s8", padded_dims=(4, 8)),
        MemoryDesc((4, 8), "s4", "ab"),
        MemoryDesc((256, 8), "f8_e4m3", pattern="(m m4 m32) (k k4) -> m k m32 m4 k4"),
        MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").submemory((1, 8, 5, 4), (1, 8, 0, 0)),
        MemoryDesc((4, 6), "f32", strides=(0, 1)),
    ],
    ids=str,
)
def test_saved_memories_open_with_equal_descriptors_and_bytes(desc: MemoryDesc) -> None:
    assert desc.data_type is not None
    layout, data_type = desc.require_layout("test")
    nbytes = max(desc.size, -(-(desc.offset0 + layout.span[1]) * data_type.bits // 8))
    buffer = numbered((nbytes,), "uint8")
    save_memories("m.safetensors", {"m": Memory(desc, buffer)}, {"note": "kept"})
    opened = open_memories("m.safetensors")["m"]
    assert opened.desc == desc
    assert np.asarray(opened.buffer).reshape(-1).view(np.uint8)[:nbytes].tobytes() == buffer.tobytes()
    with safe_open("m.safetensors", framework="numpy") as file:
        assert file.metadata()["note"] == "kept"


MEMORY_FORMATS = [
    ((2, 5, 4, 17), "nhwc", None, (2, 17, 5, 4)),
    ((2, 2, 5, 4, 16), "nChw16c", None, (2, 32, 5, 4)),
    ((2, 2, 5, 4, 16), "nChw16c", (2, 17, 5, 4), (2, 17, 5, 4)),
    ((1280,), "nChw16c", (2, 17, 5, 4), (2, 17, 5, 4)),
]


@pytest.mark.parametrize(("shape", "tag", "dims", "logical"), MEMORY_FORMATS)
def test_memory_that_the_file_does_not_describe_is_read_by_from(
    shape: tuple[int, ...], tag: str, dims: tuple[int, ...] | None, logical: tuple[int, ...]
) -> None:
    memory = numbered(shape)
    np.save("m.npy", memory)
    run("m.npy", "a.npy", "plain", from_=[tag], dims=dims)
    blocks = memory.reshape(2, -1, 5, 4, 17 if tag == "nhwc" else 16)
    expected = blocks.transpose(0, 1, 4, 2, 3).reshape(2, -1, 5, 4)[:, : logical[1]]
    assert same_bits(np.load("a.npy"), np.ascontiguousarray(expected))


def test_a_plan_is_made_from_headers_and_prints_one_line_per_tensor() -> None:
    save_file({"w": numbered((3, 17, 2, 2)), "b": numbered((3,))}, "a.safetensors")
    planned = plan("a.safetensors", "p.safetensors", ["w=nChw16c"])
    assert str(planned).splitlines() == [
        "b: F32 3, copied, 12 bytes",
        "w: 3x17x2x2, f32::blocked:abcd::f0 -> f32:p:blocked:aBcd16b::f0, 816 -> 1536 bytes",
        "reads 828 bytes and writes 1.5 kB in 2 tasks of up to 2.4 kB",
    ]
    assert (planned.converted, planned.nbytes) == (1, 1548)
    assert not Path("p.safetensors").exists()


def test_progress_hears_of_every_byte() -> None:
    save_file({"w": numbered((300, 17, 64, 8)), "b": numbered((3,))}, "a.safetensors")
    planned = plan("a.safetensors", "p.safetensors", ["w=nhwc"])
    heard: list[int] = []
    convert(planned, heard.append)
    assert sum(heard) == planned.nbytes
    assert len(heard) > 2


def test_the_writer_holds_one_piece_at_a_time() -> None:
    held: list[weakref.ref[Array]] = []

    def data(entry: TensorEntry) -> Iterator[Array]:
        for _ in range(2):
            assert not any(reference() is not None for reference in held)
            array = np.zeros(entry.nbytes // 2, np.uint8)
            held.append(weakref.ref(array))
            yield array
            del array

    entries = [TensorEntry(f"t{i}", "U8", (1 << 24,), 1 << 24) for i in range(3)]
    write_safetensors(Path("a.safetensors"), entries, {}, data)
    assert len(held) == 6


def test_an_interrupt_leaves_nothing_behind() -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    np.save("a.npy", numbered((2, 17, 5, 4)))
    Path("p.safetensors").write_text("the old content")
    planned = plan("a.npy", "p.safetensors", ["nChw16c"])
    with pytest.raises(KeyboardInterrupt):
        convert(planned, interrupt, overwrite=True)
    assert sorted(p.name for p in Path().iterdir()) == ["a.npy", "p.safetensors"]
    assert Path("p.safetensors").read_text() == "the old content"


def test_a_replaced_file_keeps_its_permissions_and_its_links() -> None:
    target, link = Path("target"), Path("link")
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with atomic_write(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_tensor_on_an_odd_byte_is_read() -> None:
    array = numbered((5, 3))
    header = (
        b'{"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"F32","shape":[5,3],"data_offsets":[1,61]}}'
    )
    Path("odd.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\7" + array.tobytes())
    assert same_bits(load_file("odd.safetensors")["w"], array)
    run("odd.safetensors", "p.safetensors", "w=ba")
    assert stored("p.safetensors")["w"] == ("F32", [3, 5], array.T.tobytes())


@pytest.mark.parametrize("text", ["nChw16c", "*=plain", "a=b=nchw", "[ab]*.weight=OIhw16i16o"])
def test_a_rule_is_read_at_its_last_equals_sign(text: str) -> None:
    rule = parse_rule(text)
    pattern, _, tag = text.rpartition("=")
    assert rule.pattern == (pattern or None)
    assert (rule.tag is None) == (tag == "plain")


def test_types_of_4_bits_are_kept_as_bytes_with_their_descriptor() -> None:
    values = (np.arange(9 * 6) % 16 - 8).reshape(9, 6).astype(ml_dtypes.int4)
    save_memories("a.safetensors", {"q": pack(values, "Ab8a")})
    run("a.safetensors", "p.safetensors", "plain")
    codes = (values.astype(np.int8).view(np.uint8) & 15).reshape(-1)
    expected = (codes[0::2] | codes[1::2] << 4).tobytes()
    assert stored("p.safetensors")["q"] == ("U8", [64], expected.ljust(64, b"\0"))
    assert open_memories("p.safetensors")["q"].desc == MemoryDesc((9, 6), "s4", "ab")
