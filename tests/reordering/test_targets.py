"""Reorders on every register width, with streaming stores, and on several threads.

Only large tensors use streaming stores and several threads; here both are forced on small ones, which the reference can
check. Narrow registers are those of processors without AVX-512, whose code runs on this one too.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from inlay.descriptor import MemoryDesc
from inlay.machine import MemoryModel
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compile_reorder, compiled, planning, threads
from inlay.reordering.target import TARGETS, Target, host_target
from inlay.testing import reorder_problems
from tests.reordering.test_reorder import check

FIXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
X86 = {16: "x86-64-v2", 32: "x86-64-v3"}
"""The target with registers of so many bytes."""

CASES = [
    ((2, 48, 17, 9), "nchw", "nChw16c"),
    ((2, 48, 17, 9), "nChw16c", "nchw"),
    ((1, 64, 16, 16), "nchw", "nhwc"),
    ((1, 70, 9, 9), "nhwc", "nchw"),
    ((32, 48, 3, 3), "oihw", "OIhw16i16o"),
    ((32, 48, 3, 3), "OIhw16i16o", "oihw"),
    ((32, 64, 1, 1), "oihw", "OIhw4i16o4i"),
    ((128, 96), "ab", "BA16a64b4a"),
    ((96, 128), "ba", "BA16a64b4a"),
    ((130, 70), "ab", "ba"),
    ((128, 128), "ab", "ba"),
    ((3, 50, 5, 5), "aBcd8b", "aBcd12b"),
    ((2, 3, 40, 40), "nhwc", "nchw"),
]
TYPES = [("u8", "u8"), ("bf16", "bf16"), ("f32", "f32"), ("f64", "f64"), ("f32", "s8"), ("u8", "f32"), ("f32", "bf16")]


@pytest.fixture
def always_streaming(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Treat every tensor as larger than the caches, and two bytes as enough for a thread."""
    monkeypatch.setattr(planning, "memory_model", lambda: MemoryModel(0, 0, 0))
    monkeypatch.setattr(threads, "_PART_BYTES", 1)
    monkeypatch.setattr(threads, "available_threads", lambda: 5)
    find_reorder.cache_clear()
    yield
    find_reorder.cache_clear()


def narrow_target(width: int) -> Target:
    host = host_target()
    if not host.triple.startswith("x86_64") or host.vector_bytes < width:
        pytest.skip(f"no x86-64 processor with registers of {width} bytes")
    return TARGETS[X86[width]]


@pytest.fixture(params=[16, 32])
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """Provide a processor with narrower registers than this one."""
    target = narrow_target(request.param)
    monkeypatch.setattr(compiled, "host_target", lambda: target)
    find_reorder.cache_clear()
    yield target
    find_reorder.cache_clear()


@pytest.mark.parametrize(("src_type", "dst_type"), TYPES)
@pytest.mark.parametrize(("dims", "src", "dst"), CASES, ids=lambda value: str(value).replace(" ", ""))
class TestCases:
    def test_on_this_processor(self, dims: tuple[int, ...], src: str, dst: str, src_type: str, dst_type: str) -> None:
        check(MemoryDesc(dims, src_type, src), MemoryDesc(dims, dst_type, dst))

    @pytest.mark.usefixtures("always_streaming")
    def test_streaming_on_threads(
        self, dims: tuple[int, ...], src: str, dst: str, src_type: str, dst_type: str
    ) -> None:
        check(MemoryDesc(dims, src_type, src), MemoryDesc(dims, dst_type, dst))

    @pytest.mark.usefixtures("narrow")
    def test_narrow_registers(self, dims: tuple[int, ...], src: str, dst: str, src_type: str, dst_type: str) -> None:
        check(MemoryDesc(dims, src_type, src), MemoryDesc(dims, dst_type, dst))


@pytest.mark.usefixtures("always_streaming")
class TestStreaming:
    @FIXED
    @given(reorder_problems(large=True))
    def test_same_type(self, pair: tuple[MemoryDesc, MemoryDesc]) -> None:
        check(*pair)

    @FIXED
    @given(reorder_problems(convert=True, large=True))
    def test_conversion(self, pair: tuple[MemoryDesc, MemoryDesc]) -> None:
        check(*pair)

    def test_destination_off_the_line_is_stored_without_streaming(self) -> None:
        src, dst = (MemoryDesc((64, 64), "f32", tag) for tag in ("ab", "ba"))
        r = compile_reorder(src, dst)
        assert r.plan is not None
        assert r.plan.kernel.stores == "streamed"
        x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
        room = np.zeros(64 * 64 + 64, np.float32)
        for shift in range(16):
            y = room[shift : shift + 64 * 64]
            r.run(x.ctypes.data, y.ctypes.data)
            assert (y.reshape(64, 64) == x.T).all()

    def test_parts_of_lines_are_staged(self) -> None:
        # Enough blocks to use up a stack that grows with each of them.
        src, dst = MemoryDesc((512, 640, 3, 3), "bf16", "oihw"), MemoryDesc((512, 640, 3, 3), "bf16", "OIhw16i16o")
        plan = compile_reorder(src, dst).plan
        assert plan is not None
        assert plan.kernel.stores == "staged"
        check(src, dst)

    def test_rows_that_are_no_whole_lines_do_not_stream(self) -> None:
        src, dst = (MemoryDesc((60, 64), "f32", tag) for tag in ("ab", "ba"))
        plan = compile_reorder(src, dst).plan
        assert plan is not None
        assert plan.kernel.stores == "cached"


class TestNarrow:
    @FIXED
    @given(reorder_problems())
    def test_same_type(self, narrow: Target, pair: tuple[MemoryDesc, MemoryDesc]) -> None:
        check(*pair)
