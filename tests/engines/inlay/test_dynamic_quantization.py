"""Dynamic quantization in machine code beside NumPy, with guard pages; formats, threads, and refusals."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import MemoryDesc
from inlay.engines.inlay.dynamic_quantization import create_dynamic_quantization
from inlay.errors import Unimplemented
from inlay.memory import Memory, pack
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.dynamic_quantization import DynamicQuantization
from inlay.primitives.engine import Operation, ThreadTeam, get_engine
from inlay.reordering.target import TARGETS, TargetMachine, host_target
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.refusals import raises_exactly
from tests.support.thread_teams import require_team

Array = np.ndarray[Any, np.dtype[Any]]
VALUES = {"scale": MemoryDesc((1,), "f32"), "zero_point": MemoryDesc((1,), "s32")}


def operation(src: MemoryDesc, dst: MemoryDesc | None = None, **attributes: Any) -> Operation:
    descs = {"src": src, "dst": dst or MemoryDesc(src.dims, "u8", "any"), **VALUES}
    return Operation("dynamic_quantization", "forward_inference", descs, {}, PrimitiveAttributes(**attributes))


def expected(x: Array) -> dict[str, Array]:
    """ONNX's formulas, in f32."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32(1) if low == high else np.float32(high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return {"dst": np.clip(np.rint(x / scale) + zero, 0, 255), "scale": scale, "zero_point": zero}


def guarded(desc: MemoryDesc) -> tuple[Memory, GuardedBuffer]:
    buffer = GuardedBuffer(desc.size, align=4 if desc.size % 4 == 0 else 1)
    return Memory(desc, buffer.bytes), buffer


def quantize(x: Array, tag: str, threads: int = 2, target: TargetMachine | None = None) -> dict[str, Array]:
    """Results of the machine code in guarded memory."""
    made = create_dynamic_quantization(operation(MemoryDesc(x.shape, "f32", tag)), require_team(), threads, target)
    pairs = {name: guarded(desc) for name, desc in made.descs.items()}
    memories = {name: memory for name, (memory, _) in pairs.items()}
    memories["src"].buffer[:] = pack(x, tag).buffer[: memories["src"].buffer.size]
    made.bind(memories)()
    assert all(buffer.gap_is_untouched for _, buffer in pairs.values())
    return {name: memories[name].unpack() for name in ("dst", "scale", "zero_point")}


def assert_equal(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    for name, array in found.items():
        np.testing.assert_array_equal(array, np.broadcast_to(wanted[name], array.shape), err_msg=name)


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 5), st.integers(1, 30)),
    st.sampled_from(["abcd", "acdb", "cdba"]),
    st.integers(0, 2**32 - 1),
    st.integers(-6, 6),
    st.sampled_from([-3.0, -0.5, 0.0, 0.7, 4.0]),
)
def test_results_are_those_of_numpy(
    dims: tuple[int, int, int, int], tag: str, seed: int, decades: int, center: float
) -> None:
    x = (np.random.default_rng(seed).standard_normal(dims) + center) * 10.0**decades
    assert_equal(quantize(x.astype(np.float32), tag), expected(x.astype(np.float32)))


@pytest.mark.parametrize("elements", [1, 63, 64, 65, 32_768, 32_769, 200_003])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parts_of_threads_are_whole(elements: int, threads: int) -> None:
    """The lowest and the highest element are in any part."""
    rng = np.random.default_rng(elements)
    for place in (0, elements // 2, elements - 1):
        x = rng.standard_normal(elements).astype(np.float32)
        x[place] = 50.0 if place else -50.0
        assert_equal(quantize(x, "a", threads), expected(x))


@pytest.mark.parametrize("value", [0.0, -0.0, 3.0, -3.0, 1e-38, 3e38])
def test_equal_elements_have_a_scale(value: float) -> None:
    x = np.full(100, value, np.float32)
    assert_equal(quantize(x, "a"), expected(x))


def test_blocked_formats_without_padding_keep_their_format() -> None:
    x = np.random.default_rng(1).standard_normal((2, 32, 3, 3)).astype(np.float32)
    assert_equal(quantize(x, "nChw16c"), expected(x))
    made = create_dynamic_quantization(operation(MemoryDesc(x.shape, "f32", "nChw16c")), require_team(), 1)
    assert made.descs["dst"] == MemoryDesc(x.shape, "u8", "nChw16c")


def test_halves_are_rounded_to_even() -> None:
    x = np.array([0, 0.5, 1.5, 2.5, 254.5, 255], np.float32)
    assert quantize(x, "a")["dst"].tolist() == [0, 0, 2, 2, 254, 255]


def test_nan_does_not_count_and_becomes_0() -> None:
    x = np.array([-1, np.nan, 0, 4.1] * 20, np.float32)
    found = quantize(x, "a")
    assert_equal({name: found[name] for name in VALUES}, expected(x[~np.isnan(x)]))
    assert found["dst"][1] == 0


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_other_targets(name: str) -> None:
    target, own = TARGETS.get(name), host_target()
    if target is None or target.vector_bytes > own.vector_bytes or not own.triple.startswith("x86_64"):
        pytest.skip(f"this processor has no {name}")
    x = np.random.default_rng(3).standard_normal((5, 97)).astype(np.float32)
    assert_equal(quantize(x, "ab", 2, target), expected(x))


def test_several_threads_may_call_at_once() -> None:
    made = create_dynamic_quantization(operation(MemoryDesc((70_001,), "f32", "a")), require_team(), 2)

    def run(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(70_001).astype(np.float32) * (seed + 1)
        memories = {name: Memory(desc) for name, desc in made.descs.items()} | {"src": pack(x, "a")}
        made.bind(memories)()
        assert_equal({name: memories[name].unpack() for name in ("dst", *VALUES)}, expected(x))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(16)))


def test_the_primitive_takes_the_machine_code() -> None:
    require_team()
    engine = get_engine("inlay").with_threads_of(get_engine("onednn"))
    src = pack(np.array([[-1, 0, 0.5, 1.55]], np.float32), "ab")
    found = DynamicQuantization(src.desc, engine=engine)
    assert found.impl == "range:f32_u8"
    assert found(src=src)["dst"].unpack().tolist() == [[0, 100, 150, 255]]


REFUSED: dict[str, tuple[Operation, str]] = {
    "padding": (
        operation(MemoryDesc((1, 17), "f32", "aB8b")),
        "f32:p:blocked:aB8b::f0: its elements follow one another, without padding",
    ),
    "gaps": (
        operation(MemoryDesc((4, 6), "f32", strides=(8, 1))),
        "f32::blocked:ab:8x1:f0: its elements follow one another, without padding",
    ),
    "another format": (
        operation(MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((4, 6), "u8", "ba")),
        "f32::blocked:ab::f0 to u8::blocked:ba::f0: both have one layout",
    ),
    "attributes": (
        operation(MemoryDesc((4,), "f32", "a"), fpmath_integers=True),
        "with attributes but a scratchpad mode",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_does_not_support_is_refused(name: str) -> None:
    refused, why = REFUSED[name]
    with raises_exactly(Unimplemented, f"machine code does not quantize {why}"):
        create_dynamic_quantization(refused, ThreadTeam(0, 0, 0), 1)
