"""Reorders of Dask arrays: equal to the reorders of NumPy arrays, block by block."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.errors import FormatTagError, InvalidArguments
from inlay.memory import pack
from inlay.storage import reorder_dask
from tests.support.refusals import raises_exactly
from tests.support.storage_peers import dask_array_or_skip, zarr_or_skip
from tests.support.tensor_files import numbered

PATTERNS = [
    "abc",
    "cab",
    "aBc16b",
    "ABc4b8a2b",
    "abC5c",
    "Abc100a",
    "(a a4) b c -> c b a a4",
    "a (b b2 b4) c -> b4 a b c b2",
    "nwc",
]


@pytest.fixture(autouse=True)
def da() -> Any:
    return dask_array_or_skip()


def equal(found: Any, values: Any, pattern: str) -> bool:
    expected = pack(values, pattern).physical()
    computed = found.compute(scheduler="synchronous")
    return bool(found.shape == computed.shape == expected.shape and computed.tobytes() == expected.tobytes())


@pytest.mark.parametrize("chunks", [(30, 10, 5), (100, 37, 5), (7, 7, 2), ((50, 50), (1, 36), (2, 3))], ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_equal_to_numpy(pattern: str, chunks: Any, da: Any) -> None:
    values = numbered((100, 37, 5), np.int16)
    assert equal(reorder_dask(da.from_array(values, chunks=chunks), pattern), values, pattern)


@settings(max_examples=40)
@given(st.data())
def test_any_chunks(data: st.DataObject) -> None:
    da = dask_array_or_skip()
    dims = tuple(data.draw(st.tuples(st.integers(1, 30), st.integers(1, 30))))
    chunks = tuple(data.draw(st.integers(1, n)) for n in dims)
    pattern = data.draw(st.sampled_from(["ab", "ba", "aB4b", "AB3a2b", "BA2a2b2a", "(a a3) b -> a3 b a"]))
    values = numbered(dims, np.uint8)
    assert equal(reorder_dask(da.from_array(values, chunks=chunks), pattern), values, pattern)


def test_blocks_are_rechunked_only_where_they_must_be(da: Any) -> None:
    x = da.zeros((1000, 64), chunks=(300, 64))
    assert reorder_dask(x, "(o o16) i -> o i o16").chunks == ((19, 19, 19, 6), (64,), (16,))
    assert reorder_dask(x, "ba").chunks == ((64,), (300, 300, 300, 100))
    assert len(reorder_dask(x, "ba").__dask_graph__()) == 8


def test_lazy_and_of_the_same_type(da: Any) -> None:
    calls: list[tuple[int, ...]] = []

    def load(block: Any) -> Any:
        calls.append(block.shape)
        return block

    x = da.zeros((32, 32), chunks=(16, 16), dtype="f2").map_blocks(load, dtype="f2", meta=np.empty((0, 0), "f2"))
    found = reorder_dask(x, "aB8b")
    assert not calls
    assert found.dtype == np.float16
    assert found[:16].compute(scheduler="synchronous").shape == (16, 4, 8)
    assert len(calls) == 2


def test_arrays_of_zarr_in_and_out(da: Any) -> None:
    zarr = zarr_or_skip()
    values = numbered((48, 30))
    zarr.create_array("a.zarr", shape=(48, 30), chunks=(10, 30), dtype="f4")[:] = values
    packed = reorder_dask(da.from_zarr("a.zarr"), "Ab16a")
    target = zarr.create_array("b.zarr", shape=packed.shape, chunks=(1, 30, 16), dtype="f4")
    packed.store(target, lock=False, scheduler="synchronous")
    assert zarr.open_array("b.zarr")[:].tobytes() == pack(values, "Ab16a").physical().tobytes()


def test_a_dask_array_is_stored_by_the_codec(da: Any) -> None:
    zarr = zarr_or_skip()
    from inlay.storage.zarr_codec import InlayCodec

    values = numbered((48, 30))
    made = zarr.create_array("a.zarr", shape=(48, 30), chunks=(16, 30), dtype="f4", serializer=InlayCodec(tag="aB8b"))
    da.from_array(values, chunks=(16, 30)).store(made, lock=False, scheduler="synchronous")
    assert da.from_zarr("a.zarr").compute(scheduler="synchronous").tobytes() == values.tobytes()


def test_mistakes(da: Any) -> None:
    with raises_exactly(InvalidArguments, "x is 3: give a Dask array, or use inlay.pack for other arrays"):
        reorder_dask(3, "ab")
    x = da.zeros((6, 8), chunks=(3, 4))
    with raises_exactly(InvalidArguments, "x has chunks of unknown size: call x.compute_chunk_sizes() first"):
        reorder_dask(x[x[:, 0] > 0], "ab")
    with raises_exactly(
        InvalidArguments,
        "(6,8):(16,1) has gaps or overlapping elements, so it is no array of digits: choose a dense format",
    ):
        reorder_dask(x, "(6,8):(16,1)")
    with pytest.raises(FormatTagError):
        reorder_dask(x, "zz")
    with pytest.raises(InvalidArguments):
        reorder_dask(x, "abc")
