"""The laws of files: nothing is lost, nothing is half-written, and nothing in a file is believed unchecked."""

import json
import struct
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from inlay.chunked import convert, open_memories, parse_rule, plan_conversion, save_memories
from inlay.chunked.files import replacing
from inlay.chunked.packed import describe, from_description
from inlay.chunked.safetensors_file import Entry, write_safetensors
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InlayError, InvalidArguments
from inlay.memory import Memory

Array = npt.NDArray[Any]

TYPES = ["float32", "float64", "float16", "int8", "uint8", "int32", "int64"]
ML_TYPES = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


def numbered(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Every bit pattern in turn, so that no two neighbours are alike."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    words = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    low = words.view(np.uint8).reshape(count, 8)[:, 8 - dtype.itemsize :].copy()
    return np.asarray(low.view(dtype).reshape(shape))


def run(source: Path, target: Path, *to: str, **options: Any) -> None:
    convert(plan_conversion(source, target, to, **options))


def same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def stored(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Type, shape and bytes of every tensor: the library checks the file, the bytes are taken by its header."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    with safe_open(path, framework="numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        ends = {name: header[name]["data_offsets"] for name in slices}
        return {n: (s.get_dtype(), s.get_shape(), data[slice(*ends[n])]) for n, s in slices.items()}


def data_offsets(path: Path) -> dict[str, int]:
    """Where each tensor begins in the file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return {name: 8 + length + item["data_offsets"][0] for name, item in header.items() if name != "__metadata__"}


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
def test_packed_and_back_is_the_same_npy_file(tmp_path: Path, dims: tuple[int, ...], tag: str, dtype: str) -> None:
    original, packed, back = tmp_path / "a.npy", tmp_path / "p.safetensors", tmp_path / "b.npy"
    np.save(original, numbered(dims, dtype))
    run(original, packed, tag)
    run(packed, back, "plain")
    assert back.read_bytes() == original.read_bytes()


@pytest.mark.parametrize("dtype", [*TYPES, *ML_TYPES])
def test_packed_and_back_is_the_same_safetensors_tensor(tmp_path: Path, dtype: Any) -> None:
    original, packed, back = (tmp_path / f"{name}.safetensors" for name in "apb")
    save_file({"w": numbered((33, 17, 3, 3), dtype), "b": numbered((7,), dtype)}, original)
    run(original, packed, "w=OIhw16i16o")
    run(packed, back, "plain")
    assert stored(back) == stored(original)
    assert stored(packed)["w"][0] == "U8"
    assert stored(packed)["b"] == stored(original)["b"]


def test_column_major_arrays_are_read_as_they_lie(tmp_path: Path) -> None:
    array = np.asfortranarray(numbered((3, 5, 7)))
    np.save(tmp_path / "f.npy", array)
    run(tmp_path / "f.npy", tmp_path / "p.safetensors", "aBc4b")
    run(tmp_path / "p.safetensors", tmp_path / "c.npy", "plain")
    assert same_bits(np.load(tmp_path / "c.npy"), np.ascontiguousarray(array))


def test_packed_bytes_are_numpys_pad_reshape_transpose(tmp_path: Path) -> None:
    weights = numbered((33, 17, 3, 3))
    save_file({"conv.weight": weights}, tmp_path / "w.safetensors")
    run(tmp_path / "w.safetensors", tmp_path / "p.safetensors", "conv*=OIhw16i16o")
    padded = np.pad(weights, ((0, 15), (0, 15), (0, 0), (0, 0))).reshape(3, 16, 2, 16, 3, 3)
    expected = padded.transpose(0, 2, 4, 5, 3, 1).tobytes()
    assert stored(tmp_path / "p.safetensors")["conv.weight"] == ("U8", [len(expected)], expected)


def test_an_order_of_axes_keeps_its_type_and_the_shape_as_it_lies(tmp_path: Path) -> None:
    array = numbered((2, 3, 5, 4))
    np.save(tmp_path / "a.npy", array)
    run(tmp_path / "a.npy", tmp_path / "p.safetensors", "nhwc")
    expected = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    assert stored(tmp_path / "p.safetensors")["a"] == ("F32", [2, 5, 4, 3], expected.tobytes())
    assert open_memories(tmp_path / "p.safetensors")["a"].desc == MemoryDesc((2, 3, 5, 4), "f32", "nhwc")


def test_elements_are_converted_to_the_type_asked_for(tmp_path: Path) -> None:
    array = np.linspace(-3, 3, 2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    save_file({"a": array, "b": array}, tmp_path / "a.safetensors")
    run(tmp_path / "a.safetensors", tmp_path / "p.safetensors", "a=plain", data_type="bf16")
    assert stored(tmp_path / "p.safetensors") == {
        "a": ("BF16", [2, 5, 3], array.astype(ml_dtypes.bfloat16).tobytes()),
        "b": ("F32", [2, 5, 3], array.tobytes()),
    }


def test_tensors_that_no_rule_matches_and_other_texts_are_kept(tmp_path: Path) -> None:
    tensors = {
        "mask": np.array([True, False, True]),
        "ids": np.arange(5, dtype=np.uint16),
        "scalar": np.array(3.5, np.float32),
        "empty": np.zeros((0, 4), np.int32),
        "w": numbered((3, 17, 2, 2)),
    }
    texts = {"format": "pt", "note": 'ünïcode\n"quoted"'}
    save_file(tensors, tmp_path / "a.safetensors", texts)
    run(tmp_path / "a.safetensors", tmp_path / "p.safetensors", "w=nChw16c")
    run(tmp_path / "p.safetensors", tmp_path / "b.safetensors", "plain")
    packed, original = stored(tmp_path / "p.safetensors"), stored(tmp_path / "a.safetensors")
    assert {n: t for n, t in packed.items() if n != "w"} == {n: t for n, t in original.items() if n != "w"}
    assert stored(tmp_path / "b.safetensors") == original
    with safe_open(tmp_path / "p.safetensors", framework="numpy") as file:
        assert file.metadata().keys() == {"format", "note", "inlay"}
        assert json.loads(file.metadata()["inlay"]) == {
            "version": 1,
            "tensors": {"w": {"dims": [3, 17, 2, 2], "data_type": "f32", "tag": "aBcd16b"}},
        }
    with safe_open(tmp_path / "b.safetensors", framework="numpy") as file:
        assert file.metadata() == texts


def test_a_packed_tensor_that_no_rule_matches_keeps_its_descriptor(tmp_path: Path) -> None:
    save_file({"a": numbered((3, 17, 2, 2)), "b": numbered((3, 17, 2, 2))}, tmp_path / "a.safetensors")
    run(tmp_path / "a.safetensors", tmp_path / "p.safetensors", "nChw16c")
    run(tmp_path / "p.safetensors", tmp_path / "q.safetensors", "b=nhwc")
    descs = {name: m.desc.tag for name, m in open_memories(tmp_path / "q.safetensors").items()}
    assert descs == {"a": "aBcd16b", "b": "acdb"}
    assert stored(tmp_path / "q.safetensors")["a"] == stored(tmp_path / "p.safetensors")["a"]


def test_the_first_rule_that_matches_holds(tmp_path: Path) -> None:
    save_file({"a": numbered((3, 17, 2, 2)), "b": numbered((3, 17, 2, 2))}, tmp_path / "a.safetensors")
    run(tmp_path / "a.safetensors", tmp_path / "p.safetensors", "a=nhwc", "nChw8c", "b=nChw16c")
    assert {n: m.desc.tag for n, m in open_memories(tmp_path / "p.safetensors").items()} == {"a": "acdb", "b": "aBcd8b"}


def test_packed_tensors_lie_on_64_byte_boundaries(tmp_path: Path) -> None:
    tensors = {f"t{i}": numbered((i + 1, 17, 3), "uint8") for i in range(5)}
    tensors |= {f"x{i}": numbered((2 * i + 1,), "float16") for i in range(3)}
    save_file(tensors, tmp_path / "a.safetensors")
    run(tmp_path / "a.safetensors", tmp_path / "p.safetensors", "t*=aBc8b")
    assert all(begin % 64 == 0 for n, begin in data_offsets(tmp_path / "p.safetensors").items() if n[0] == "t")
    assert all(begin % 2 == 0 for begin in data_offsets(tmp_path / "p.safetensors").values())


def test_equal_inputs_give_equal_files(tmp_path: Path) -> None:
    tensors = {name: numbered((3, 17, 2, 2), "uint8") for name in ("b", "a", "c")}
    save_file(tensors, tmp_path / "a.safetensors", {"k": "v"})
    for target in ("p", "q"):
        run(tmp_path / "a.safetensors", tmp_path / f"{target}.safetensors", "nChw16c")
    assert (tmp_path / "p.safetensors").read_bytes() == (tmp_path / "q.safetensors").read_bytes()


def test_opened_memories_are_mapped_and_read_only(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbered((2, 17, 5, 4)))
    run(tmp_path / "a.npy", tmp_path / "p.safetensors", "nChw16c")
    buffer = np.asarray(open_memories(tmp_path / "p.safetensors")["a"].buffer)
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
def test_saved_memories_open_with_equal_descriptors_and_bytes(tmp_path: Path, desc: MemoryDesc) -> None:
    assert desc.data_type is not None
    layout, data_type = desc.require_layout("test")
    nbytes = max(desc.size, -(-(desc.offset0 + layout.span[1]) * data_type.bits // 8))
    buffer = numbered((nbytes,), "uint8")
    save_memories(tmp_path / "m.safetensors", {"m": Memory(desc, buffer)}, {"note": "kept"})
    opened = open_memories(tmp_path / "m.safetensors")["m"]
    assert opened.desc == desc
    assert np.asarray(opened.buffer).reshape(-1).view(np.uint8)[:nbytes].tobytes() == buffer.tobytes()
    with safe_open(tmp_path / "m.safetensors", framework="numpy") as file:
        assert file.metadata()["note"] == "kept"


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.sampled_from(["f32", "bf16", "u8", "f8_e5m2"]),
    st.data(),
)
def test_describe_and_from_description_are_inverse(dims: list[int], data_type: str, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(dims))))
    letters = "".join("abcd"[i] for i in order)
    block = data.draw(st.sampled_from(["", "4a", "16a2a"]))
    desc = MemoryDesc(tuple(dims), data_type, (letters.replace("a", "A") if block else letters) + block)
    text = json.dumps(describe(desc))
    assert from_description(json.loads(text)) == desc


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
WHOLE = st.integers(-(2**70), 2**70) | st.integers(-2, 40)


@given(
    st.fixed_dictionaries(
        {
            "dims": st.lists(WHOLE, max_size=14) | JSON,
            "data_type": st.sampled_from(["f32", "s4", "boolean"]) | JSON,
            "padded_dims": st.lists(WHOLE, max_size=14) | JSON,
            "digits": st.lists(st.lists(st.lists(WHOLE, max_size=3), max_size=3), max_size=4) | JSON,
            "offset0": WHOLE | JSON,
        }
    )
    | st.fixed_dictionaries(
        {
            "dims": st.lists(WHOLE, max_size=14) | JSON,
            "data_type": st.sampled_from(["f32", "s4", "boolean"]) | JSON,
            "tag": st.text("abcdABCD0123456789", max_size=8) | JSON,
        }
    )
    | JSON
)
def test_any_description_is_a_descriptor_or_an_error_of_ours(described: object) -> None:
    try:
        desc = from_description(described)
    except InlayError:
        return
    assert from_description(describe(desc)) == desc


def packed_file(path: Path, description: object = None, text: str | None = None) -> Path:
    """A file of 5120 bytes as U8 with this description, or this text, beside it."""
    content = text if text is not None else json.dumps({"version": 1, "tensors": {"t": description}})
    save_file({"t": np.zeros(5120, np.uint8)}, path, {"inlay": content})
    return path


GOOD = {"dims": [2, 17, 5, 4], "data_type": "f32", "tag": "aBcd16b"}


def test_a_descriptor_that_fits_its_bytes_is_read(tmp_path: Path) -> None:
    opened = open_memories(packed_file(tmp_path / "p.safetensors", GOOD))
    assert opened["t"].desc == MemoryDesc((2, 17, 5, 4), "f32", "aBcd16b")


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        (7, "a descriptor is a JSON object"),
        ({}, "a descriptor has dims, data_type and tag, or padded_dims, digits and offset0 for tag"),
        (GOOD | {"x": 1}, "a descriptor has dims, data_type and tag, or padded_dims, digits and offset0 for tag"),
        (GOOD | {"dims": "2"}, "dims must be a list, not '2'"),
        (GOOD | {"dims": []}, "a tensor has one dim or more"),
        (GOOD | {"dims": [2.0, 17, 5, 4]}, "dims must be whole numbers of 64 bits, not [2.0, 17, 5, 4]"),
        (GOOD | {"dims": [True, 17, 5, 4]}, "dims must be whole numbers of 64 bits, not [True, 17, 5, 4]"),
        (GOOD | {"dims": [-(2**63), 17, 5, 4]}, f"dims must be whole numbers of 64 bits, not [{-(2**63)}, 17, 5, 4]"),
        (GOOD | {"data_type": 3}, "data_type must be a text, not 3"),
        (GOOD | {"tag": None}, "tag must be a text, not None"),
        (GOOD | {"dims": [2, 33, 5, 4]}, "its descriptor needs U8 (7680,), the file has U8 (5120,)"),
        (GOOD | {"tag": "abcd"}, "its descriptor needs F32 (2, 17, 5, 4), the file has U8 (5120,)"),
        (
            {"dims": [4], "data_type": "u8", "padded_dims": [4], "digits": [[[5, 1]]], "offset0": 0},
            "the leading digits do not fit the padded dims (4,)",
        ),
        (
            {"dims": [4], "data_type": "u8", "padded_dims": [4], "digits": [[]], "offset0": 0},
            "digits are pairs of extent and stride, one pair or more per axis",
        ),
    ],
    ids=str,
)
def test_a_descriptor_in_a_file_is_not_believed(tmp_path: Path, description: object, reason: str) -> None:
    path = packed_file(tmp_path / "p.safetensors", description)
    with pytest.raises(FileError) as caught:
        open_memories(path)
    expected = f"its layout text is damaged, tensor t: {reason}; convert the original again"
    assert str(caught.value) == f"cannot read {path}: {expected}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "its layout text is damaged, it is not JSON; convert the original again"),
        ("[" * 100_000, "its layout text is damaged, it is not JSON; convert the original again"),
        ("[]", "its layout text is damaged, it does not list tensors; convert the original again"),
        ('{"version": 1}', "its layout text is damaged, it does not list tensors; convert the original again"),
        (
            '{"version": 2, "tensors": {}}',
            "its layout text has version 2, this Inlay reads 1; use the Inlay that wrote it",
        ),
        (
            '{"version": 1, "tensors": {"u": {}}}',
            "its layout text is damaged, it describes tensor u, which the file does not have; "
            "convert the original again",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_a_layout_text_in_a_file_is_not_believed(tmp_path: Path, text: str, reason: str) -> None:
    path = packed_file(tmp_path / "p.safetensors", text=text)
    with pytest.raises(FileError) as caught:
        open_memories(path)
    assert str(caught.value) == f"cannot read {path}: {reason}"


def test_a_file_cut_anywhere_is_an_error_of_ours(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbered((2, 3)))
    run(tmp_path / "a.npy", tmp_path / "p.safetensors", "Ab4a")
    for name in ("a.npy", "p.safetensors"):
        content = (tmp_path / name).read_bytes()
        cut = tmp_path / f"cut-{name}"
        for length in range(len(content)):
            cut.write_bytes(content[:length])
            with pytest.raises(FileError):
                open_memories(cut)


MEMORY_FORMATS = [
    ((2, 5, 4, 17), "nhwc", None, (2, 17, 5, 4)),
    ((2, 2, 5, 4, 16), "nChw16c", None, (2, 32, 5, 4)),
    ((2, 2, 5, 4, 16), "nChw16c", (2, 17, 5, 4), (2, 17, 5, 4)),
    ((1280,), "nChw16c", (2, 17, 5, 4), (2, 17, 5, 4)),
]


@pytest.mark.parametrize(("shape", "tag", "dims", "logical"), MEMORY_FORMATS)
def test_memory_that_the_file_does_not_describe_is_read_by_from(
    tmp_path: Path, shape: tuple[int, ...], tag: str, dims: tuple[int, ...] | None, logical: tuple[int, ...]
) -> None:
    memory = numbered(shape)
    np.save(tmp_path / "m.npy", memory)
    run(tmp_path / "m.npy", tmp_path / "a.npy", "plain", from_=[tag], dims=dims)
    if tag == "nhwc":
        expected = memory.transpose(0, 3, 1, 2)
    else:
        expected = memory.reshape(2, 2, 5, 4, 16).transpose(0, 1, 4, 2, 3).reshape(2, 32, 5, 4)[:, : logical[1]]
    assert same_bits(np.load(tmp_path / "a.npy"), np.ascontiguousarray(expected))


def test_a_plan_is_made_from_headers_and_prints_one_line_per_tensor(tmp_path: Path) -> None:
    save_file({"w": numbered((3, 17, 2, 2)), "b": numbered((3,))}, tmp_path / "a.safetensors")
    plan = plan_conversion(tmp_path / "a.safetensors", tmp_path / "p.safetensors", ["w=nChw16c"])
    assert str(plan).splitlines() == [
        "b: F32 3, copied, 12 bytes",
        "w: 3x17x2x2, f32::blocked:abcd::f0 -> f32:p:blocked:aBcd16b::f0, 816 -> 1536 bytes",
    ]
    assert (plan.converted, plan.nbytes) == (1, 1548)
    assert not (tmp_path / "p.safetensors").exists()


def test_progress_hears_of_every_byte(tmp_path: Path) -> None:
    save_file({"w": numbered((300, 17, 64, 8)), "b": numbered((3,))}, tmp_path / "a.safetensors")
    plan = plan_conversion(tmp_path / "a.safetensors", tmp_path / "p.safetensors", ["w=nhwc"])
    heard: list[int] = []
    convert(plan, heard.append)
    assert sum(heard) == plan.nbytes
    assert len(heard) > 2


def test_the_writer_holds_one_tensor_at_a_time(tmp_path: Path) -> None:
    held: list[weakref.ref[Array]] = []

    def data(entry: Entry) -> Array:
        assert not any(reference() is not None for reference in held)
        array = np.zeros(entry.nbytes, np.uint8)
        held.append(weakref.ref(array))
        return array

    entries = [Entry(f"t{i}", "U8", (1 << 24,), 1 << 24) for i in range(3)]
    write_safetensors(tmp_path / "a.safetensors", entries, {}, data)
    assert len(held) == 3


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    np.save(tmp_path / "a.npy", numbered((2, 17, 5, 4)))
    (tmp_path / "p.safetensors").write_text("the old content")
    plan = plan_conversion(tmp_path / "a.npy", tmp_path / "p.safetensors", ["nChw16c"])
    with pytest.raises(KeyboardInterrupt):
        convert(plan, interrupt)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "p.safetensors"]
    assert (tmp_path / "p.safetensors").read_text() == "the old content"


def test_a_replaced_file_keeps_its_permissions_and_its_links(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_tensor_on_an_odd_byte_is_read(tmp_path: Path) -> None:
    array = numbered((5, 3))
    header = json.dumps(
        {
            "u": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            "w": {"dtype": "F32", "shape": [5, 3], "data_offsets": [1, 61]},
        }
    ).encode()
    path = tmp_path / "odd.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\7" + array.tobytes())
    assert same_bits(load_file(path)["w"], array)
    run(path, tmp_path / "p.safetensors", "w=ba")
    assert stored(tmp_path / "p.safetensors")["w"] == ("F32", [3, 5], array.T.tobytes())


@pytest.mark.parametrize("text", ["nChw16c", "*=plain", "a=b=nchw", "[ab]*.weight=OIhw16i16o"])
def test_a_rule_is_read_at_its_last_equals_sign(text: str) -> None:
    rule = parse_rule(text)
    pattern, _, tag = text.rpartition("=")
    assert rule.pattern == (pattern or None)
    assert (rule.tag is None) == (tag == "plain")


def test_an_empty_name_pattern_is_refused() -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_rule("=nchw")
    assert str(caught.value) == (
        "the name pattern before '=' in '=nchw' is empty: write *=nchw for every tensor, or the tag alone"
    )
