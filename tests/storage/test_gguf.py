"""GGUF files: tensors, blocks and metadata in and out; hostile files."""

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_table import compound
from inlay.errors import FileError, InlayError, InvalidArguments
from inlay.memory.compound import pack_compound
from inlay.storage import convert, open_store, plan
from inlay.storage.gguf_file import GGML_TYPES
from inlay.storage.gguf_metadata import as_texts, encode_entry, from_texts
from tests.support.refusals import raises_exactly

TENSORS: dict[str, npt.NDArray[Any]] = {
    "f32": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "f16": np.arange(7, dtype=np.float16),
    "bf16": np.arange(10, dtype=np.float32).reshape(5, 2).astype(ml_dtypes.bfloat16),
    "f64": np.array(2.5),
    "s8": np.arange(-3, 3, dtype=np.int8).reshape(1, 1, 6, 1),
    "s16": np.arange(3, dtype=np.int16),
    "s32": np.zeros((0, 3), np.int32),
    "s64": np.array([[-(2**62)]]),
}


def packed_text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def info(name: str = "w", dims: tuple[int, ...] = (4,), code: int = 0, offset: int = 0) -> bytes:
    return packed_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, code, offset)


def gguf_bytes(*infos: bytes, values: tuple[bytes, ...] = (), version: int = 3, data: bytes = bytes(64)) -> bytes:
    """The bytes of a file, by the documented format and without Inlay's code."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(values)) + b"".join(values) + b"".join(infos)
    return header + bytes(-len(header) % 32) + data


def entry(key: str, code: int, value: bytes) -> bytes:
    return packed_text(key) + struct.pack("<I", code) + value


def test_tensors_return_as_they_were() -> None:
    save_file(TENSORS, "a.safetensors", {"format": "pt", "note": "ünï"})
    convert(plan("a.safetensors", "b.gguf"), overwrite=True)
    store = open_store("b.gguf")
    assert {t.name: t.shape for t in store.tensors} == {name: array.shape for name, array in TENSORS.items()}
    assert all(tensor.begin % 32 == 0 for tensor in store.tensors)
    convert(plan("b.gguf", "c.safetensors"), overwrite=True)
    back = load_file_of_any_type("c.safetensors")
    assert back == {name: (array.shape, array.tobytes()) for name, array in TENSORS.items()}
    assert open_store("c.safetensors").metadata == {"format": "pt", "note": "ünï"}


def load_file_of_any_type(path: str) -> dict[str, tuple[tuple[int, ...], bytes]]:
    content = Path(path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__", None)
    return {name: (tuple(e["shape"]), data[slice(*e["data_offsets"])]) for name, e in header.items()}


def test_dims_in_the_file_are_reversed() -> None:
    save_file({"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, "a.safetensors")
    convert(plan("a.safetensors", "b.gguf"), overwrite=True)
    expected = gguf_bytes(info("w", (3, 2)), data=np.arange(6, dtype=np.float32).tobytes().ljust(32, b"\0"))
    assert Path("b.gguf").read_bytes() == expected


def test_blocks_are_tensors_of_their_type() -> None:
    w = np.random.default_rng(0).standard_normal((6, 64), np.float32)
    save_file({"w": w, "b": w[0].copy()}, "a.safetensors")
    convert(plan("a.safetensors", "b.gguf", ["ggml:Q5_1"], quantize="absmax"), overwrite=True)
    store = open_store("b.gguf")
    tensors = {tensor.name: tensor for tensor in store.tensors}
    assert tensors["w"].compound == CompoundDesc(compound("ggml:Q5_1"), (6, 64))
    assert tensors["w"].stored_type == "ggml:Q5_1"
    assert store.metadata == {
        "general.quantization_version": "2",
        "inlay_gguf_types": '{"general.quantization_version":"u32"}',
    }
    data = Path("b.gguf").read_bytes()[tensors["w"].begin :][: tensors["w"].nbytes]
    packed = pack_compound(w, "ggml:Q5_1")
    assert data == packed.buffer[: packed.desc.size].tobytes()
    convert(plan("b.gguf", "c.safetensors", dequantize=True, data_type="bf16"), overwrite=True)
    convert(plan("b.gguf", "d.safetensors"), overwrite=True)
    convert(plan("d.safetensors", "e.gguf"), overwrite=True)
    assert Path("e.gguf").read_bytes() == Path("b.gguf").read_bytes()
    rows = np.frombuffer(load_file_of_any_type("c.safetensors")["w"][1], ml_dtypes.bfloat16).reshape(6, 64)
    assert np.array_equal(rows, packed.unpack().astype(ml_dtypes.bfloat16))


def test_blocks_that_inlay_does_not_read_are_copied_between_gguf_files() -> None:
    data = np.random.default_rng(0).integers(0, 256, 132).astype(np.uint8).tobytes()
    Path("a.gguf").write_bytes(gguf_bytes(info("w", (256, 2), 16), data=data.ljust(160, b"\0")))
    convert(plan("a.gguf", "b.gguf"), overwrite=True)
    assert Path("b.gguf").read_bytes() == Path("a.gguf").read_bytes()
    with raises_exactly(
        InvalidArguments,
        "a safetensors file has no type for ggml:IQ2_XXS, which w has: write a .gguf file",
    ):
        plan("a.gguf", "b.safetensors")
    with raises_exactly(
        InvalidArguments,
        "ba does not fit tensor w: Inlay does not read blocks of IQ2_XXS; convert the file with llama.cpp first",
    ):
        plan("a.gguf", "b.safetensors", ["ba"])


def test_floats_are_not_quantized_in_the_same_conversion() -> None:
    save_file({"w": np.ones((2, 32), np.float32)}, "a.safetensors")
    convert(plan("a.safetensors", "b.gguf", ["ggml:Q8_0"], quantize="absmax"), overwrite=True)
    with raises_exactly(
        InvalidArguments,
        "ggml:Q4_0 does not fit tensor w, which becomes floats: quantize them in a second conversion",
    ):
        plan("b.gguf", "c.gguf", ["ggml:Q4_0"], dequantize=True)
    with raises_exactly(
        InvalidArguments,
        "ggml:Q4_0 does not fit tensor w: it is in blocks of ggml:Q8_0; convert it to floats first (--dequantize)",
    ):
        plan("b.gguf", "c.gguf", ["ggml:Q4_0"], quantize="absmax")


def test_the_kind_of_a_file_is_left_out_when_its_tensors_change() -> None:
    entries = (encode_entry("general.file_type", "u32", 1), encode_entry("general.name", "text", "x"))
    Path("a.gguf").write_bytes(gguf_bytes(info("w", (32, 1)), values=entries, data=bytes(128)))
    convert(plan("a.gguf", "b.gguf"), overwrite=True)
    assert "general.file_type" in open_store("b.gguf").metadata
    convert(plan("a.gguf", "c.gguf", ["ggml:Q8_0"], quantize="absmax"), overwrite=True)
    assert "general.file_type" not in open_store("c.gguf").metadata
    assert open_store("c.gguf").metadata["general.name"] == "x"


def test_quants_with_scales_keep_their_text() -> None:
    w = np.random.default_rng(0).standard_normal((6, 64), np.float32)
    save_file({"w": w}, "a.safetensors")
    convert(
        plan("a.safetensors", "q.gguf", ["plain"], quantize="absmax:0", data_type="s8", scales="s.{name}"),
        overwrite=True,
    )
    convert(plan("q.gguf", "d.safetensors", dequantize=True), overwrite=True)
    error = np.abs(load_file("d.safetensors")["w"] - w)
    assert (error <= np.abs(w).max(1, keepdims=True) / 254 * 1.001).all()


# Metadata

VALUES = {
    "general.name": ("text", "tiny"),
    "a.u8": ("u8", 255),
    "a.s8": ("s8", -128),
    "a.u16": ("u16", 65535),
    "a.s16": ("s16", -5),
    "a.u32": ("u32", 2**32 - 1),
    "a.s32": ("s32", -(2**31)),
    "a.f32": ("f32", float(np.float32(0.1))),
    "a.bool": ("bool", True),
    "a.u64": ("u64", 2**64 - 1),
    "a.s64": ("s64", -(2**63)),
    "a.f64": ("f64", 0.1),
    "tokens": ("[text]", ["a", "ünï", ""]),
    "scores": ("[f32]", [1.0, -0.5]),
    "flags": ("[bool]", [True, False]),
    "none": ("[u16]", []),
}


def write_values(path: str, values: dict[str, Any] = VALUES) -> None:
    entries = tuple(encode_entry(key, *value) for key, value in values.items())
    Path(path).write_bytes(gguf_bytes(info(), values=entries))


def test_values_keep_their_types_in_every_direction() -> None:
    write_values("a.gguf")
    assert from_texts(open_store("a.gguf").metadata) == VALUES
    convert(plan("a.gguf", "b.gguf"), overwrite=True)
    assert open_store("b.gguf").metadata == open_store("a.gguf").metadata
    convert(plan("a.gguf", "c.safetensors"), overwrite=True)
    assert open_store("c.safetensors").metadata["a.u64"] == "18446744073709551615"
    assert open_store("c.safetensors").metadata["tokens"] == json.dumps(["a", "ünï", ""])
    convert(plan("c.safetensors", "d.gguf"), overwrite=True)
    assert from_texts(open_store("d.gguf").metadata) == VALUES


def test_tokens_that_are_no_unicode_are_kept() -> None:
    value = entry("t", 9, struct.pack("<IQ", 8, 1) + struct.pack("<Q", 2) + b"\xff\x41")
    Path("a.gguf").write_bytes(gguf_bytes(info(), values=(value,)))
    convert(plan("a.gguf", "b.safetensors"), overwrite=True)
    convert(plan("b.safetensors", "c.gguf"), overwrite=True)
    assert value in Path("c.gguf").read_bytes()


def test_an_alignment_is_kept() -> None:
    write_values("a.gguf", {"general.alignment": ("u32", 128)})
    content = Path("a.gguf").read_bytes()
    Path("a.gguf").write_bytes(content[:-64].ljust(128, b"\0") + bytes(64))
    convert(plan("a.gguf", "b.gguf"), overwrite=True)
    assert open_store("b.gguf").tensors[0].begin == 128
    assert len(Path("b.gguf").read_bytes()) == 256


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"inlay_gguf_types": "{"},
            "metadata['inlay_gguf_types'] is no JSON object of types: leave it out, or convert the GGUF file again",
        ),
        (
            {"a": "1", "inlay_gguf_types": '{"a":"u33"}'},
            "metadata['a'] is of the type 'u33': GGUF has u8, s8, u16, s16, u32, s32, f32, bool, text, array, u64, "
            "s64, f64",
        ),
        ({"a": "x", "inlay_gguf_types": '{"a":"u8"}'}, "metadata['a'] is 'x', which is no JSON: convert it again"),
        ({"a": "256", "inlay_gguf_types": '{"a":"u8"}'}, "metadata['a'] holds 256, which is no u8: convert it again"),
        ({"a": "[1]", "inlay_gguf_types": '{"a":"u8"}'}, "metadata['a'] holds [1], which is no u8: convert it again"),
        ({"a": "1", "inlay_gguf_types": '{"a":"[u8]"}'}, "metadata['a'] holds 1, which is no [u8]: convert it again"),
        (
            {"a": "[1]", "inlay_gguf_types": '{"a":"[text]"}'},
            "metadata['a'] holds [1], which is no [text]: convert it again",
        ),
        (
            {"general.alignment": "3", "inlay_gguf_types": '{"general.alignment":"u32"}'},
            "cannot write b.gguf: its alignment is 3, no power of two; leave out general.alignment",
        ),
    ],
)
def test_texts_that_are_no_values_are_refused(texts: dict[str, str], message: str) -> None:
    save_file({"w": np.ones(3, np.float32)}, "a.safetensors", texts)
    with raises_exactly(InvalidArguments, message):
        plan("a.safetensors", "b.gguf")


@given(st.dictionaries(st.text(max_size=5), st.sampled_from(list(VALUES.values())), max_size=4))
def test_texts_of_values_are_the_values_again(values: dict[str, Any]) -> None:
    values.pop("inlay_gguf_types", None)
    assert from_texts(as_texts(values)) == values


# What GGUF cannot store


@pytest.mark.parametrize(
    ("name", "array", "to", "error", "message"),
    [
        (
            "w",
            np.ones((2, 2), np.uint8),
            [],
            FileError,
            "cannot write b.gguf: GGUF has no type for u8, which w has; it has f32, f16, s8, s16, s32, s64, f64, bf16 "
            "and blocks of ggml",
        ),
        (
            "w",
            np.ones((2, 2), np.float32),
            ["ba"],
            FileError,
            "cannot write b.gguf: GGUF stores row-major tensors, and w is to be f32::blocked:ba::f0; write a "
            ".safetensors file instead",
        ),
        (
            "w",
            np.ones((1,) * 5, np.float32),
            [],
            FileError,
            "cannot write b.gguf: tensor w has 5 dims, and GGUF stores 4",
        ),
        (
            "w" * 64,
            np.ones(2, np.float32),
            [],
            InvalidArguments,
            f"the name of tensor {'w' * 64} has 64 bytes, and readers of GGUF take 63: rename it",
        ),
    ],
)
def test_what_gguf_cannot_store_is_refused(
    name: str, array: npt.NDArray[Any], to: list[str], error: type[Exception], message: str
) -> None:
    save_file({name: array}, "a.safetensors")
    with raises_exactly(error, message):
        plan("a.safetensors", "b.gguf", to)


# Hostile files


BAD_FILES = {
    "magic": (b"GGML" + bytes(40), "it does not begin with GGUF"),
    "empty": (b"", "it ends 4 bytes early"),
    "cut": (gguf_bytes(info())[:30], "it ends 2 bytes early"),
    "version": (gguf_bytes(info(), version=1), "it has version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "it is big-endian"),
    "no data": (
        gguf_bytes(info(), data=bytes(8)),
        "tensor w has 16 bytes from offset 0, where the file has none of it",
    ),
    "offset": (
        gguf_bytes(info(offset=2**63)),
        f"tensor w has 16 bytes from offset {2**63}, where the file has none of it",
    ),
    "odd offset": (gguf_bytes(info(offset=4)), "tensor w has 16 bytes from offset 4, where the file has none of it"),
    "large": (
        gguf_bytes(info(dims=(2**63, 4))),
        f"tensor w has {2**67} bytes from offset 0, where the file has none of it",
    ),
    "dims": (gguf_bytes(info(dims=(1,) * 5)), "tensor w has 5 dims, over 4"),
    "type": (gguf_bytes(info(code=99)), "tensor w has the type 99, which Inlay does not know"),
    "block": (gguf_bytes(info(dims=(33,), code=8)), "tensor w has rows of 33 elements, no whole blocks of Q8_0"),
    "names": (gguf_bytes(info(), info()), "it has two tensors of one name"),
    "keys": (gguf_bytes(values=(entry("a", 4, bytes(4)),) * 2), "it has two values of a"),
    "value type": (gguf_bytes(values=(entry("a", 13, bytes(4)),)), "it has values of the type 13"),
    "nested": (gguf_bytes(values=(entry("a", 9, struct.pack("<IQ", 9, 1)),)), "it has arrays of arrays"),
    "array": (
        gguf_bytes(values=(entry("a", 9, struct.pack("<IQ", 0, 2**60)),)),
        f"it lists {2**60} things and has 79 bytes for them",
    ),
    "text": (gguf_bytes(values=(entry("a", 8, struct.pack("<Q", 2**62)),)), f"it ends {2**62 - 83} bytes early"),
    "alignment": (
        gguf_bytes(values=(entry("general.alignment", 4, struct.pack("<I", 3)),)),
        "its alignment is 3, no power of two",
    ),
    "no Unicode": (gguf_bytes(struct.pack("<Q", 1) + b"\xff" + info()[9:]), "the name of a tensor is no UTF-8"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_hostile_file_is_refused(name: str) -> None:
    content, reason = BAD_FILES[name]
    Path("a.gguf").write_bytes(content)
    with raises_exactly(
        FileError,
        f"cannot read a.gguf: it is truncated or not a GGUF file, {reason}; copy it again from its source",
    ):
        open_store("a.gguf")


def test_a_count_beyond_the_file_ends_at_once() -> None:
    Path("a.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**64 - 1, 0))
    with pytest.raises(FileError, match="bytes early"):
        open_store("a.gguf")


@given(st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 600))
def test_mutated_files_are_read_or_refused_by_an_error_of_ours(changes: list[tuple[int, int]], cut: int) -> None:
    entries = tuple(encode_entry(key, *value) for key, value in VALUES.items())
    content = bytearray(gguf_bytes(info("w", (32, 1), 8), info("b", (3, 2), 1, 64), values=entries, data=bytes(96)))
    for at, byte in changes:
        content[at % len(content)] = byte
    Path("a.gguf").write_bytes(content[: len(content) - cut % 128 if cut > 500 else None])
    try:
        convert(plan("a.gguf", "b.gguf"), overwrite=True)
        convert(plan("a.gguf", "b.safetensors", dequantize=True), overwrite=True)
    except InlayError:
        return
    assert open_store("b.safetensors").tensors


# The gguf package


def test_types_are_those_of_the_package() -> None:
    gguf = pytest.importorskip("gguf")
    known = {kind.name: (int(kind), *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    ours = {kind.name: (kind.code, kind.block, kind.nbytes) for kind in GGML_TYPES}
    assert {name: ours.get(name) for name in known} == known


@pytest.mark.parametrize("format", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_the_package_reads_what_is_written(format: str) -> None:
    gguf = pytest.importorskip("gguf")
    w = np.random.default_rng(0).standard_normal((6, 4, 64), np.float32)
    texts = as_texts({key: value for key, value in VALUES.items() if key != "none"})
    save_file({**TENSORS, "w": w}, "a.safetensors", texts)
    convert(plan("a.safetensors", "b.gguf", [f"w=ggml:{format}"], quantize="absmax"), overwrite=True)
    convert(plan("b.gguf", "c.safetensors", dequantize=True), overwrite=True)
    reader = gguf.GGUFReader("b.gguf")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for name, array in TENSORS.items():
        assert tensors[name].data.tobytes() == array.tobytes()
        assert tuple(reversed(tensors[name].shape.tolist())) == array.shape
    kind = gguf.GGMLQuantizationType[format]
    assert tensors["w"].tensor_type == kind
    assert np.array_equal(tensors["w"].data, gguf.quantize(w, kind))
    values = np.frombuffer(load_file_of_any_type("c.safetensors")["w"][1], np.float32).reshape(w.shape)
    assert np.array_equal(gguf.dequantize(tensors["w"].data, kind), values)
    for key, (_, value) in VALUES.items():
        if key != "none":
            assert reader.fields[key].contents() == value


def test_what_the_package_writes_is_read() -> None:
    gguf = pytest.importorskip("gguf")
    w = np.random.default_rng(0).standard_normal((6, 256), np.float32)
    writer = gguf.GGUFWriter("a.gguf", "llama")
    writer.add_block_count(4)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_float32("llama.rope.freq_base", 1e6)
    kinds = ["Q4_0", "Q8_0", "IQ4_NL", "MXFP4", "Q6_K", "Q4_K", "Q2_K", "Q3_K", "Q5_K", "IQ4_XS"]
    rows = np.random.default_rng(1)
    expected = {"f": w}
    writer.add_tensor("f", w)
    for kind in kinds:
        code = gguf.GGMLQuantizationType[kind]
        block, nbytes = gguf.GGML_QUANT_SIZES[code]
        data = rows.integers(0, 256, (6, 256 // block, nbytes)).astype(np.uint8)
        at = next(s for s in compound(f"ggml:{kind}").streams if s.name == "scale").fields[0].offset // 8
        data[..., at : at + 1 + (kind != "MXFP4")] = 40  # a scale that is finite
        writer.add_tensor(kind, data.reshape(6, -1), raw_dtype=code)
        with np.errstate(all="ignore"):
            expected[kind] = gguf.dequantize(data.reshape(6, -1), code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    store = open_store("a.gguf")
    assert store.metadata["llama.block_count"] == "4"
    assert store.metadata["tokenizer.ggml.tokens"] == '["a", "b"]'
    convert(plan("a.gguf", "c.safetensors", dequantize=True), overwrite=True)
    back = load_file("c.safetensors")
    for name, values in expected.items():
        assert np.array_equal(back[name], values, equal_nan=True), name
