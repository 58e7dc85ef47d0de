"""Cache writes of the engine inlay beside the reference engine: types, axes, formats, and positions at the run."""

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int32, c_int64, c_void_p

import numpy as np
import pytest

from inlay import MemoryDesc, pack
from inlay.engines.inlay.engine import InlayEngine
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import Memory
from inlay.primitives.cache_write import CacheWrite
from inlay.primitives.engine import MachineCall, Operation, get_engine
from tests.support.refusals import raises_exactly

POSITION = MemoryDesc((1,), "s64")
DIMS = (3, 5, 4, 2)


@pytest.mark.parametrize("data_type", ["f32", "bf16", "s8"])
@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("src_tag", "dst_tag"), [("abcd", "abcd"), ("abcd", "cabd"), ("bdac", "abcd"), ("dcba", "bcad")]
)
def test_rows_are_written_as_the_reference_engine_does(
    data_type: str, axis: int, count: int, src_tag: str, dst_tag: str
) -> None:
    rng = np.random.default_rng(axis)
    dtype = MemoryDesc((1,), data_type).data_type.dtype  # type: ignore[union-attr]
    rows = rng.integers(-9, 9, [count if i == axis else n for i, n in enumerate(DIMS)]).astype(dtype)
    cache = rng.integers(-9, 9, DIMS).astype(dtype)
    src, position = pack(rows, src_tag), pack(np.zeros(1, np.int64), "a")
    engines = get_engine("inlay"), get_engine("reference")
    found = [pack(cache, dst_tag) for _ in engines]
    writes = [
        CacheWrite(src.desc, POSITION, dst.desc, axis=axis, engine=engine)
        for engine, dst in zip(engines, found, strict=True)
    ]
    assert writes[0].impl == "compiled"
    run_in_batch = _checked_write(writes[0], src, position, copied := pack(cache, dst_tag))
    for at in range(DIMS[axis] - count, -1, -1):
        position.buffer.view(np.int64)[0] = at
        for write, dst in zip(writes, found, strict=True):
            write(src=src, position=position, dst=dst)
        np.testing.assert_array_equal(found[0].unpack(), found[1].unpack())
        if run_in_batch is not None:
            assert run_in_batch() == 0
            np.testing.assert_array_equal(copied.unpack(), found[1].unpack())


def _checked_write(write: CacheWrite, src: Memory, position: Memory, dst: Memory) -> Callable[[], int] | None:
    """Return a call of the function that batches execute; None if the rows are not runs at equal distances."""
    call = get_engine("inlay").create(write.operation).bind({"src": src, "position": position, "dst": dst})
    if not isinstance(call, MachineCall):
        return None
    function = CFUNCTYPE(c_int32, c_void_p, c_int64)(call.function)
    return lambda: int(function(call.address, call.number))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("features", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("is_sliced", [False, True])
def test_rows_of_decoding_are_copied_in_batches(count: int, features: int, is_sliced: bool) -> None:
    """Rows of a batch of 2, which may be parts of longer ones, as keys beside queries and values are."""
    rng = np.random.default_rng(features)
    whole = rng.standard_normal((count, 2, 3 * features)).astype(np.float32)
    cache = rng.standard_normal((9, 2, features)).astype(np.float32)
    dims = (count, 2, features)
    part = pack(whole, "abc").desc.submemory(dims, (0, 0, features))
    src = Memory(part, pack(whole, "abc").buffer) if is_sliced else pack(whole[:, :, :features], "abc")
    position, dst = pack(np.array([4]), "a"), pack(cache, "abc")
    write = CacheWrite(src.desc, POSITION, dst.desc, axis=0, engine="inlay")
    run = _checked_write(write, src, position, dst)
    assert run is not None
    assert run() == 0
    cache[4 : 4 + count] = whole[:, :, features : 2 * features] if is_sliced else whole[:, :, :features]
    np.testing.assert_array_equal(dst.unpack(), cache)
    for outside in (-1, 10 - count, 1 << 40):
        position.buffer.view(np.int64)[0] = outside
        assert run() == 1
    np.testing.assert_array_equal(dst.unpack(), cache)


def test_a_write_keeps_the_bytes_beside_a_part_of_memory() -> None:
    whole = pack(np.arange(60, dtype=np.float32).reshape(3, 5, 4), "abc")
    part = Memory(whole.desc.submemory((2, 5, 3), (1, 0, 1)), whole.buffer)
    src, position = pack(np.full((2, 1, 3), -1, np.float32), "abc"), pack(np.array([3]), "a")
    CacheWrite(src.desc, POSITION, part.desc, axis=1, engine="inlay")(src=src, position=position, dst=part)
    expected = np.arange(60, dtype=np.float32).reshape(3, 5, 4)
    expected[1:, 3, 1:] = -1
    np.testing.assert_array_equal(whole.unpack(), expected)


@pytest.mark.parametrize("at", [-1, 4, 1 << 40])
def test_a_position_outside_is_refused_and_writes_nothing(at: int) -> None:
    dst, src = pack(np.zeros((5, 4), np.float32), "ab"), pack(np.ones((2, 4), np.float32), "ab")
    write = CacheWrite(src.desc, POSITION, dst.desc, axis=0, engine="inlay")
    with raises_exactly(
        InvalidArguments,
        f"CacheWrite: position is {at}: it is from 0 to 3, since dst has 5 elements along axis 0 and src 2",
    ):
        write(src=src, position=pack(np.array([at]), "a"), dst=dst)
    assert not dst.unpack().any()


@pytest.mark.parametrize(("tag", "data_type"), [("aB4b", "f32"), ("ab", "s4")])
def test_blocks_and_parts_of_bytes_are_left_to_the_reference_engine(tag: str, data_type: str) -> None:
    descs = {
        "src": MemoryDesc((2, 8), data_type, "ab"),
        "position": POSITION,
        "dst": MemoryDesc((8, 8), data_type, tag),
    }
    operation = Operation("cache_write", "forward_inference", descs, {"axis": 0})
    engine = InlayEngine()
    assert not engine.supports(operation)
    with pytest.raises(Unimplemented):
        engine.create(operation)
