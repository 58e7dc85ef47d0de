"""The Zarr codec `inlay`: zarr-python reads what it wrote, chunks have the bytes of the format, bad files fail."""

import asyncio
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.errors import FormatTagError, InlayError, InvalidArguments
from inlay.memory import pack
from inlay.storage.chunk_format import ChunkFormat, chunk_nbytes
from inlay.storage.zarr_codec import locate_part
from tests.support.refusals import raises_exactly
from tests.support.storage_peers import zarr_or_skip
from tests.support.tensor_files import numbered

FORMATS: list[dict[str, Any]] = [
    {"tag": "abc"},
    {"tag": "cab"},
    {"tag": "aBc16b"},
    {"tag": "ABc4a8b2a"},
    {"pattern": "(a a4) b c -> c b a a4"},
    {"digits": [[[4, 2], [4, 272]], [[17, 8]], [[2, 1], [2, 136]]]},
]


def codec(**configuration: Any) -> Any:
    zarr_or_skip()
    from inlay.storage.zarr_codec import InlayCodec

    return InlayCodec(**configuration)


def tag_of(configuration: dict[str, Any]) -> str:
    return str(next(iter(configuration.values())))


@pytest.mark.parametrize("shards", [None, (32, 34, 6)], ids=["chunks", "shards"])
@pytest.mark.parametrize("compressors", [None, "auto"], ids=["plain", "zstd"])
@pytest.mark.parametrize("configuration", FORMATS, ids=tag_of)
def test_zarr_reads_and_writes_chunks_in_any_format(configuration: Any, compressors: Any, shards: Any) -> None:
    zarr, values = zarr_or_skip(), numbered((33, 35, 7))
    arguments: dict[str, Any] = {"shape": values.shape, "dtype": values.dtype, "compressors": compressors}
    array = zarr.create_array(
        "a.zarr", chunks=(16, 17, 3), shards=shards, serializer=codec(**configuration), **arguments
    )
    array[:] = values
    found = zarr.open_array("a.zarr")
    assert found[:].tobytes() == values.tobytes()
    assert found[17:19, 2, 1:].tobytes() == values[17:19, 2, 1:].tobytes()
    assert found[3, ::2, 1:].tobytes() == values[3, ::2, 1:].tobytes()
    assert found.vindex[[0, 32], [5, 6], [1, 2]].tobytes() == values[[0, 32], [5, 6], [1, 2]].tobytes()
    found[15:30, 3] = values[:15, 5]
    values[15:30, 3] = values[:15, 5].copy()
    assert zarr.open_array("a.zarr")[:].tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float64", "complex64", ">f4"])
def test_types_of_zarr_are_stored(dtype: str) -> None:
    zarr, values = zarr_or_skip(), numbered((9, 20), np.dtype(dtype).newbyteorder("=")).astype(dtype)
    array = zarr.create_array("a.zarr", shape=(9, 20), chunks=(4, 20), dtype=dtype, serializer=codec(tag="aB8b"))
    array[:] = values
    assert np.asarray(zarr.open_array("a.zarr")[:]).astype(dtype).tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("fill", [0.0, 2.0, float("nan"), float("inf")])
def test_types_of_ml_dtypes_are_stored(dtype: Any, fill: float) -> None:
    zarr, values = zarr_or_skip(), (np.arange(180) - 90).reshape(9, 20).astype(dtype)
    array = zarr.create_array(
        "a.zarr", shape=(9, 20), chunks=(4, 20), dtype=np.dtype(dtype), serializer=codec(tag="aB8b"), fill_value=fill
    )
    array[:4] = values[:4]
    found = zarr.open_array("a.zarr")
    assert found.dtype == dtype
    assert found[:4].tobytes() == values[:4].tobytes()
    assert found[4:].tobytes() == np.full((5, 20), fill, dtype).tobytes()


def test_the_bytes_of_a_chunk_are_those_of_the_format() -> None:
    zarr, values = zarr_or_skip(), numbered((8, 20))
    array = zarr.create_array(
        "a.zarr", shape=(8, 20), chunks=(4, 20), dtype="float32", serializer=codec(tag="aB8b"), compressors=None
    )
    array[:] = values
    assert Path("a.zarr/c/1/0").read_bytes() == pack(values[4:], "aB8b").buffer.tobytes()
    entry = {"name": "inlay", "configuration": {"tag": "aB8b"}}
    assert json.loads(Path("a.zarr/zarr.json").read_text())["codecs"] == [entry]


def test_another_process_reads_by_the_entry_point() -> None:
    zarr, values = zarr_or_skip(), numbered((8, 20))
    if not _is_installed():
        pytest.skip("Inlay is not installed, so zarr finds no entry points of it")
    zarr.create_array("a.zarr", shape=(8, 20), chunks=(8, 20), dtype="float32", serializer=codec(tag="aB8b"))[:] = (
        values
    )
    program = "import zarr, sys; sys.stdout.buffer.write(zarr.open_array('a.zarr')[:].tobytes())"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == values.tobytes()


def _is_installed() -> bool:
    from importlib.metadata import entry_points

    return any(entry.name == "inlay" for entry in entry_points(group="zarr.codecs"))


def test_codecs_are_values() -> None:
    made = codec(tag="aB8b")
    assert pickle.loads(pickle.dumps(made)) == made
    assert made != codec(tag="aB16b")
    assert type(made).from_dict(made.to_dict()) == made
    digits = codec(digits=[[[2, 64], [16, 1]], [[4, 16]]])
    assert type(digits).from_dict(json.loads(json.dumps(digits.to_dict()))) == digits


HOSTILE: list[tuple[Any, str]] = [
    (
        None,
        "the configuration of the codec inlay is None: give one entry, tag, pattern or digits, as in "
        '{"tag": "aBcd16b"}',
    ),
    (
        {"tag": "ab", "pattern": "a b -> b a"},
        "the configuration of the codec inlay is {'tag': 'ab', 'pattern': 'a b -> b a'}: give one entry, tag, pattern "
        'or digits, as in {"tag": "aBcd16b"}',
    ),
    ({"tag": 3}, "tag of the codec inlay is 3: give a text of at most 1000 characters"),
    (
        {"digits": [[[4, -1]], [[4, 4]]]},
        "digits of the codec inlay are [[[4, -1]], [[4, 4]]]: give for each axis a list of pairs, extent from 1 and "
        "stride from 0, at most 64 in all, as in [[[2, 64], [16, 1]], [[4, 16]]]",
    ),
    ({"tag": "abc"}, "the codec inlay has tag 'abc' for 3 axes, and chunks (4, 8) have 2"),
    ({"digits": [[[4, 1]], [[2, 4]]]}, "the codec inlay has digits for (4, 2) elements, and chunks are (4, 8)"),
    (
        {"digits": [[[4, 0]], [[8, 1]]]},
        "the codec inlay cannot store chunks (4, 8) as (((4, 0),), ((8, 1),)): elements overlap, or lie before the "
        "start of the chunk; give each element a place of its own",
    ),
    (
        {"tag": "aB100000b"},
        "the codec inlay takes 1600000 bytes for a chunk (4, 8) of f32 as 'aB100000b', and 131072 are allowed: choose "
        "smaller blocks or larger chunks",
    ),
    (
        {"digits": [[[4, 1 << 40]], [[8, 1]]]},
        "the codec inlay takes 13194139533344 bytes for a chunk (4, 8) of f32 as (((4, 1099511627776),), ((8, 1),)), "
        "and 131072 are allowed: choose smaller blocks or larger chunks",
    ),
]


@pytest.mark.parametrize(("configuration", "text"), HOSTILE, ids=lambda value: str(value)[:30])
def test_hostile_configurations_are_refused(configuration: Any, text: str) -> None:
    with raises_exactly(InvalidArguments, text):
        ChunkFormat.from_configuration(configuration).chunk_desc((4, 8), "f32")


def test_a_wrong_tag_is_marked() -> None:
    with pytest.raises(FormatTagError, match="is no axis letter"):
        ChunkFormat.from_configuration({"tag": "z" * 3})


@given(st.recursive(st.none() | st.integers() | st.text(max_size=4), lambda x: st.lists(x, max_size=3), max_leaves=9))
def test_any_json_is_a_format_or_refused(value: object) -> None:
    for key in ("tag", "pattern", "digits"):
        try:
            desc = ChunkFormat.from_configuration({key: value}).chunk_desc((2, 3), "u8")
        except InlayError:
            continue
        assert chunk_nbytes(desc) <= 1 << 16


def test_hostile_metadata_is_refused_by_zarr() -> None:
    zarr = zarr_or_skip()
    zarr.create_array("a.zarr", shape=(8, 20), chunks=(8, 20), dtype="float32", serializer=codec(tag="aB8b"))[:] = 1
    text = Path("a.zarr/zarr.json").read_text()
    for bad in ('{"tag": "aB"}', '{"tag": "aB8000000b"}', "{}", '{"digits": [[[9, 9]]]}'):
        Path("a.zarr/zarr.json").write_text(json.dumps(json.loads(text) | {"codecs": _codecs(json.loads(bad))}))
        with pytest.raises(InlayError):
            zarr.open_array("a.zarr")[:]


def _codecs(configuration: Any) -> list[Any]:
    return [{"name": "inlay", "configuration": configuration}]


def test_a_truncated_chunk_is_refused() -> None:
    zarr = zarr_or_skip()
    array = zarr.create_array(
        "a.zarr", shape=(64, 20), chunks=(64, 20), dtype="float32", serializer=codec(tag="aB8b"), compressors=None
    )
    array[:] = numbered((64, 20))
    path = Path("a.zarr/c/0/0")
    path.write_bytes(path.read_bytes()[:100])
    with raises_exactly(
        InvalidArguments,
        "a chunk of the codec inlay has 100 bytes, and f32:p:blocked:aB8b::f0 takes 6144: it is damaged, or was "
        "written with another configuration",
    ):
        array[:]
    with raises_exactly(InvalidArguments, "a chunk of the codec inlay ends before byte 480: it is damaged"):
        array[3:5]


class RecordingGetter:
    """A chunk in memory that records which bytes are read, as a `ByteGetter` of zarr."""

    def __init__(self, data: bytes) -> None:
        self.data, self.ranges = data, list[tuple[int, int]]()

    async def get(self, prototype: Any, byte_range: Any = None) -> Any:
        begin, end = (0, len(self.data)) if byte_range is None else (byte_range.start, byte_range.end)
        self.ranges.append((begin, end))
        return prototype.buffer.from_bytes(self.data[begin:end])


def test_a_part_of_a_chunk_reads_few_bytes() -> None:
    zarr, values = zarr_or_skip(), numbered((64, 20))
    from zarr.core.array_spec import ArrayConfig, ArraySpec
    from zarr.core.buffer import default_buffer_prototype

    dtype = zarr.dtype.parse_dtype("float32", zarr_format=3)
    spec = ArraySpec((64, 20), dtype, 0, ArrayConfig.from_dict({}), default_buffer_prototype())
    getter = RecordingGetter(pack(values, "aB8b").buffer.tobytes())
    selection = (slice(3, 5), slice(1, 20))
    found = asyncio.run(codec(tag="aB8b")._decode_partial_single(getter, selection, spec))
    assert found.as_ndarray_like().tobytes() == values[selection].tobytes()
    assert getter.ranges == [(3 * 96, 5 * 96)]


@settings(max_examples=60)
@given(st.data())
def test_parts_hold_their_elements(data: st.DataObject) -> None:
    tag = data.draw(st.sampled_from(["ab", "ba", "aB4b", "AB2a4b", "BA4b2a2b"]))
    dims = tuple(data.draw(st.tuples(st.integers(1, 20), st.integers(1, 20))))
    begin = tuple(data.draw(st.integers(0, n - 1)) for n in dims)
    end = tuple(data.draw(st.integers(b + 1, n)) for b, n in zip(begin, dims, strict=True))
    values = numbered(dims)
    memory = pack(values, tag)
    part = locate_part(memory.desc, begin, end)
    if part is None:
        return
    stored = memory.buffer.reshape(-1).view(np.uint8)[part.begin : part.end].copy()
    from inlay.memory import Memory

    found = Memory(part.desc, stored).unpack()[part.slices]
    assert found.tobytes() == values[tuple(map(slice, begin, end))].tobytes()
    assert 2 * stored.size <= chunk_nbytes(MemoryDesc(dims, "f32", tag))
