"""Packed memory is what oneDNN writes, and the order that a release chose is found in its descriptor.

Only processors with AMX have kernels for packed weights, so a filled descriptor is made here: the fields of a blocked
one are written where the library keeps those of packed ones.
"""

from ctypes import byref, c_int64, c_void_p, memmove

import numpy as np
import numpy.typing as npt
import pytest

import inlay
from inlay import Memory, MemoryDesc
from inlay.data_type import DATA_TYPES
from inlay.engines.onednn import OnednnEngine, make_engine
from inlay.engines.onednn.descs import is_packed_order_chosen, read_packed_desc
from inlay.engines.onednn.library import LibraryHandle, create_handle
from inlay.errors import Unimplemented
from inlay.onednn_abi import ExecutionArgument
from tests.oracles import onednn as oracle

_CREATE = "dnnl_memory_desc_create_with_packed_encoding"
pytestmark = pytest.mark.skipif(
    oracle.why_unavailable() is not None or not hasattr(oracle.library(), _CREATE),
    reason="needs a oneDNN that has packed descriptors",
)
STRIDES, PADDED, IDXS = 14, 260, 265
SPARSE_FIELDS = 24  # bytes of the encoding, nnz and two types
WHOLE = 96  # bytes of an array of dims


@pytest.fixture(scope="module")
def engine() -> OnednnEngine:
    return make_engine()


def place(engine: OnednnEngine, handle: LibraryHandle, what: int) -> int:
    answer = c_int64()
    assert engine.library.functions["memory_desc_query"](handle.value, what, byref(answer)) == 0
    return answer.value


def filled(engine: OnednnEngine, dims: tuple[int, ...], data_type: str, nnz: int, tag: str) -> LibraryHandle:
    """A packed descriptor as a primitive leaves it."""
    handle = engine.descriptors.handle(MemoryDesc.packed(dims, data_type, nnz))
    blocked = engine.descriptors.handle(MemoryDesc(dims, data_type, tag))
    fields = place(engine, blocked, STRIDES)
    length = place(engine, blocked, IDXS) + WHOLE - fields
    memmove(handle.value + fields - blocked.value + SPARSE_FIELDS, fields, length)
    memmove(place(engine, handle, PADDED), place(engine, blocked, PADDED), WHOLE)
    return handle


def written_by_onednn(engine: OnednnEngine, src: Memory, handle: LibraryHandle, out: Memory) -> None:
    """Move `src` to packed memory by the library's own reorder."""
    library, place_of = engine.library, engine.engine.value
    call = library.functions
    source = engine.descriptors.handle(src.desc)
    descriptor = create_handle(
        library,
        "reorder_primitive_desc_create",
        "primitive_desc",
        source.value,
        place_of,
        handle.value,
        place_of,
        None,
    )
    primitive = create_handle(library, "primitive_create", "primitive", descriptor.value)
    one = create_handle(library, "memory_create", "memory", source.value, place_of, src.address)
    buffers = (c_void_p * 3)(*(buffer.ctypes.data for buffer in out.buffers))
    two = create_handle(library, "memory_create_v2", "memory", handle.value, place_of, 3, buffers)
    given = (ExecutionArgument * 2)(ExecutionArgument(1, one.value), ExecutionArgument(17, two.value))
    assert call["primitive_execute"](primitive.value, engine.thread_contexts.current.stream, 2, given) == 0
    engine.wait()


def some(dims: tuple[int, ...]) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(1)
    return (rng.integers(-9, 10, dims) * (rng.random(dims) < 0.2)).astype(np.float32)


# Dims differ from case to case: the library's cache takes packed descriptors of other orders for equal.
@pytest.mark.parametrize(
    ("dims", "tag"),
    [((100, 130), "BA16a64b4a"), ((33, 70), "BA8a8b"), ((64, 60), "AB16b64a"), ((7, 9, 33), "aCB16b16c4b")],
)
def test_packed_memory_is_what_onednn_writes(engine: OnednnEngine, dims: tuple[int, ...], tag: str) -> None:
    array = some(dims)
    nnz = int(np.count_nonzero(array))
    handle = filled(engine, dims, "s8", nnz, tag)
    assert is_packed_order_chosen(engine.library, handle.value)
    desc = read_packed_desc(engine.library, handle.value, dims, DATA_TYPES["s8"])
    assert desc == MemoryDesc.packed(dims, "s8", nnz, tag)
    src = inlay.pack(array.astype(np.int8), row(dims))
    mine, its = inlay.reorder(src, desc), Memory(desc)
    written_by_onednn(engine, src, handle, its)
    assert all(np.array_equal(a, b) for a, b in zip(mine.buffers, its.buffers, strict=True))
    assert np.array_equal(its.unpack(), array)


def row(dims: tuple[int, ...]) -> str:
    return "abcdefghijkl"[: len(dims)]


def test_a_descriptor_that_no_primitive_filled_is_read_as_one(engine: OnednnEngine) -> None:
    desc = MemoryDesc.packed((33, 70), "s8", 12)
    handle = engine.descriptors.handle(desc)
    assert not is_packed_order_chosen(engine.library, handle.value)
    assert engine.descriptors.read(handle.value, desc) == desc


def test_orders_that_the_library_calls_equal_are_told_apart(engine: OnednnEngine) -> None:
    asked = MemoryDesc.packed((128, 128), "s8", 12)
    one, two = (filled(engine, (128, 128), "s8", 12, tag) for tag in ("BA16a64b4a", "BA16a32b4a"))
    assert engine.library.functions["memory_desc_equal"](one.value, two.value)
    found = [engine.descriptors.read(handle.value, asked) for handle in (one, two)]
    assert [desc.layout.tag for desc in found] == ["BA16a64b4a", "BA16a32b4a"]  # type: ignore[union-attr]


def _count_at(engine: OnednnEngine, handle: LibraryHandle) -> int:
    some_blocked = engine.descriptors.handle(MemoryDesc((4, 4), "s8", "ab"))
    strides = place(engine, some_blocked, STRIDES) - some_blocked.value
    return handle.value + strides + SPARSE_FIELDS + WHOLE


@pytest.mark.parametrize("change", [0, 13, 1])
def test_a_structure_that_is_another_one_is_refused(engine: OnednnEngine, change: int) -> None:
    handle = filled(engine, (128, 64), "s8", 12, "BA16a64b4a")
    c_int64.from_address(_count_at(engine, handle)).value = change
    with pytest.raises(Unimplemented) as refused:
        read_packed_desc(engine.library, handle.value, (128, 64), DATA_TYPES["s8"])
    assert str(refused.value) == (
        f"{engine.library.name} chose a packed order of dims (128, 64) that has no format tag"
    )
