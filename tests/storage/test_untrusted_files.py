"""Untrusted files: all content is validated, and a damaged file raises an error of Inlay."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from inlay.descriptor import Extras, MemoryDesc
from inlay.errors import FileError, InlayError
from inlay.memory import Memory
from inlay.storage import convert, open_memories, plan, save_memories
from inlay.storage.packed import describe, from_description
from inlay.testing import descriptors
from tests.support.refusals import raises_exactly
from tests.support.tensor_files import numbered, run


@given(descriptors())
def test_from_description_undoes_describe(desc: MemoryDesc) -> None:
    assert from_description(json.loads(json.dumps(describe(desc)))) == desc


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
WHOLE = st.integers(-(2**70), 2**70) | st.integers(-2, 40)


LONG = st.lists(WHOLE, max_size=14) | JSON
COMMON = {"dims": LONG, "data_type": st.sampled_from(["f32", "s4", "boolean"]) | JSON}
DIGITS = st.lists(st.lists(st.lists(WHOLE, max_size=3), max_size=3), max_size=4) | JSON


@given(
    st.fixed_dictionaries(COMMON | {"padded_dims": LONG, "digits": DIGITS, "offset0": WHOLE | JSON})
    | st.fixed_dictionaries(COMMON | {"tag": st.text("abcdABCD0123456789", max_size=8) | JSON})
    | JSON
)
def test_any_description_is_a_descriptor_or_an_error_of_ours(described: object) -> None:
    try:
        desc = from_description(described, version=1)
    except InlayError:
        return
    assert from_description(describe(desc)) == desc


def write_packed(text: str) -> None:
    """Write p.safetensors: 5120 bytes as U8 with this text beside them."""
    save_file({"t": np.zeros(5120, np.uint8)}, "p.safetensors", {"inlay": text})


def version_1(description: object) -> str:
    return json.dumps({"version": 1, "tensors": {"t": description}})


GOOD = {"dims": [2, 17, 5, 4], "data_type": "f32", "tag": "aBcd16b"}


@pytest.mark.parametrize("version", [1, 2])
def test_a_descriptor_that_fits_its_bytes_is_read(version: int) -> None:
    expected = MemoryDesc((2, 17, 5, 4), "f32", "aBcd16b")
    write_packed(version_1(GOOD) if version == 1 else f'{{"version": 2, "tensors": {{"t": {expected.to_json()}}}}}')
    assert open_memories("p.safetensors")["t"].desc == expected


def test_extras_are_kept() -> None:
    desc = MemoryDesc((32, 16), "s8", "AB16a4b", extras=Extras(1, compensation_mask=1))
    memory = Memory(desc, np.arange(desc.size).astype(np.uint8))
    save_memories("p.safetensors", {"w": memory})
    back = open_memories("p.safetensors")["w"]
    assert back.desc == desc
    assert np.array_equal(back.buffer[: desc.size], memory.buffer)


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
def test_a_descriptor_in_a_file_is_not_believed(description: object, reason: str) -> None:
    write_packed(version_1(description))
    text = f"its layout text is damaged, tensor t: {reason}; convert the original again"
    with raises_exactly(FileError, f"cannot read p.safetensors: {text}"):
        open_memories("p.safetensors")


DAMAGED = "its layout text is damaged, {}; convert the original again"
OTHER_VERSION = "its layout text has version {}, this Inlay reads 1 to 2; use the Inlay that wrote it"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", DAMAGED.format("it is not JSON")),
        ("[" * 100_000, DAMAGED.format("it is not JSON")),
        ("[]", DAMAGED.format("it does not list tensors")),
        ('{"version": 1}', DAMAGED.format("it does not list tensors")),
        ('{"version": 3, "tensors": {}}', OTHER_VERSION.format(3)),
        ('{"version": true, "tensors": {}}', OTHER_VERSION.format(True)),
        (
            '{"version": 2, "tensors": {"t": {"dims": [4], "data_type": "u8", "tag": "a"}}}',
            DAMAGED.format("tensor t: this is no JSON of a descriptor: key 'inlay' is missing"),
        ),
        (
            f'{{"version": 2, "tensors": {{"t": {MemoryDesc((4, 4), "f32", "any").to_json()}}}}}',
            DAMAGED.format("tensor t: tensor t needs a layout: MemoryDesc((4, 4), 'f32', 'any') is of kind any"),
        ),
        (
            '{"version": 1, "tensors": {"u": {}}}',
            DAMAGED.format("it describes tensor u, which the file does not have"),
        ),
    ],
    ids=lambda text: text[:20],
)
def test_a_layout_text_in_a_file_is_not_believed(text: str, reason: str) -> None:
    write_packed(text)
    with raises_exactly(FileError, f"cannot read p.safetensors: {reason}"):
        open_memories("p.safetensors")


def test_a_file_cut_anywhere_is_an_error_of_ours() -> None:
    np.save("a.npy", numbered((2, 3)))
    run("a.npy", "p.safetensors", "Ab4a")
    for name in ("a.npy", "p.safetensors"):
        content = Path(name).read_bytes()
        cut = Path(f"cut-{name}")
        for length in range(len(content)):
            cut.write_bytes(content[:length])
            with pytest.raises(FileError):
                open_memories(cut)


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A good file of each kind, and where to put damaged ones."""
    directory = tmp_path_factory.mktemp("whole")
    np.save(directory / "a.npy", numbered((2, 3)))
    run(directory / "a.npy", directory / "a.safetensors", "Ab4a")
    return {str(directory / name): (directory / name).read_bytes() for name in ("a.npy", "a.safetensors")}


@settings(max_examples=400)
@given(st.sampled_from([".npy", ".safetensors"]), st.data())
def test_a_damaged_header_is_an_error_of_ours(whole_files: dict[str, bytes], suffix: str, data: st.DataObject) -> None:
    name = next(n for n in whole_files if n.endswith(suffix))
    content = bytearray(whole_files[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, 250 if suffix == ".safetensors" else 127))
        piece = data.draw(
            st.sampled_from([b"}", b"(", b"b'", b"'O'", b"-1", b"9" * 30, b'"', b"04"]) | st.binary(max_size=3)
        )
        content[at : at + len(piece)] = piece
    damaged = Path(name).with_name(f"damaged{suffix}")
    damaged.write_bytes(content)
    try:
        planned = plan(damaged, damaged.with_name("b.safetensors"), ["plain"])
        convert(planned)
    except InlayError:
        return
    assert open_memories(damaged.with_name("b.safetensors")).keys() <= {t.name for t in planned.source.tensors}


@pytest.mark.parametrize("to", ["ba", "plain"])
def test_a_source_that_is_cut_short_while_it_is_read_is_an_error(to: str) -> None:
    """Mapped, it would end the process."""
    np.save("a.npy", numbered((512, 4096)))
    planned = plan("a.npy", "p.safetensors", [to])
    os.truncate("a.npy", 1 << 16)
    with raises_exactly(FileError, "cannot read a.npy: it became shorter while it was being read; try again"):
        convert(planned)
    assert [path.name for path in Path().iterdir()] == ["a.npy"]


def test_a_source_that_is_rewritten_while_it_is_read_is_an_error() -> None:
    np.save("a.npy", numbered((1024, 4096)))
    planned = plan("a.npy", "p.safetensors", ["plain"])

    def rewrite(_: int) -> None:
        with Path("a.npy").open("r+b") as file:
            file.seek(1 << 20)
            file.write(b"others")
        os.utime("a.npy", ns=(1, 1))

    with raises_exactly(FileError, "cannot read a.npy: it changed while it was being read; try again"):
        convert(planned, rewrite)
    assert [path.name for path in Path().iterdir()] == ["a.npy"]
