"""Winograd convolutions against direct ones, with guard pages around all memory; matrices, schedules and errors."""

from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import MemoryDesc
from inlay.engines.inlay import (
    WinogradConvolution,
    create_weights_transform,
    create_winograd_convolution,
    is_winograd_weights,
)
from inlay.engines.inlay.winograd_convolution import WinogradSchedule, WinogradSizes, registers_of, select_schedule
from inlay.engines.inlay.winograd_tables import A_PAIRED, TILE, A, B, G, transform_weights
from inlay.errors import Unimplemented
from inlay.memory import Memory, pack
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PrimitiveAttributes, SumPostOp
from inlay.primitives.engine import Operation, PlainImplementation, ThreadTeam, get_engine
from inlay.reordering.target import TARGETS, Target, host_target
from tests.oracles import onednn as oracle
from tests.support.guarded_buffers import GuardedBuffer

Floats = npt.NDArray[np.float32]
RELU = (EltwisePostOp("relu", 0.0, 0.0),)
LANES = registers_of(host_target()).lanes


def team() -> ThreadTeam:
    """Return the OpenMP threads of oneDNN."""
    found = None if oracle.why_unavailable() else get_engine("onednn").thread_team
    if found is None:
        pytest.skip("there is no library on GNU OpenMP")
    return found


def operation(
    src: MemoryDesc, dst: MemoryDesc, padding: tuple[int, int] = (1, 1), relu: bool = False, bias: bool = True
) -> Operation:
    """Return a convolution; the padding below and on the right follows from the dims."""
    oc, ic = dst.dims[1], src.dims[1]
    descs = {"src": src, "weights": MemoryDesc((oc, ic, 3, 3), "f32", "any"), "dst": dst}
    if bias:
        descs["bias"] = MemoryDesc((oc,), "f32", "any")
    end = tuple(d - s + 2 - p for d, s, p in zip(dst.dims[2:], src.dims[2:], padding, strict=True))
    windows = {"strides": (1, 1), "dilations": (0, 0), "padding_l": padding, "padding_r": end}
    attributes = PrimitiveAttributes(post_ops=RELU if relu else (), scratchpad_mode="user")
    return Operation("convolution", "forward_inference", descs, {"algorithm": "winograd", **windows}, attributes)


def direct_convolution(src: Floats, weights: Floats, bias: Floats, problem: Operation) -> npt.NDArray[np.float64]:
    """Return the direct convolution in f64."""
    padding, (height, width) = problem.parameters["padding_l"], problem.descs["dst"].dims[2:]
    assert isinstance(padding, tuple)
    top, left = map(int, padding)
    wide = np.zeros((*src.shape[:2], height + 2, width + 2))
    rows, columns = min(src.shape[2], height + 2 - top), min(src.shape[3], width + 2 - left)
    wide[:, :, top : top + rows, left : left + columns] = src[:, :, :rows, :columns]
    found = np.zeros(problem.descs["dst"].dims) + bias[:, None, None]
    for y, x in product(range(3), range(3)):
        window = wide[:, :, y : y + height, x : x + width]
        found += np.einsum("nihw,oi->nohw", window, weights[:, :, y, x].astype(np.float64))
    return np.maximum(found, 0) if problem.attributes.post_ops else found


def weights_memory(weights: Floats, desc: MemoryDesc) -> Memory:
    plain, memory = pack(weights, MemoryDesc(weights.shape, "f32", "oihw")), Memory(desc)
    reorder = Operation("reorder", "forward_inference", {"src": plain.desc, "dst": desc})
    create_weights_transform(reorder).bind({"src": plain, "dst": memory})()
    return memory


def guarded(desc: MemoryDesc, values: Floats | None = None) -> tuple[Memory, GuardedBuffer]:
    """Return memory that ends at a guard page; without values, it is filled with NaN."""
    buffer = GuardedBuffer(desc.size, align=4)
    memory = Memory(desc, buffer.bytes)
    memory.buffer.view(np.float32)[:] = np.nan
    if values is not None:
        memory.buffer[:] = pack(values, desc).buffer[: memory.buffer.size]
    return memory, buffer


def relative_error(made: WinogradConvolution | PlainImplementation, seed: int) -> float:
    """Return the largest difference from a direct convolution, as a share of its largest result.

    The scratchpad and dst are filled with NaN.
    """
    rng = np.random.default_rng(seed)
    problem, descs = made.operation, made.descs
    src, bias = (rng.standard_normal(dims).astype(np.float32) for dims in (descs["src"].dims, descs["dst"].dims[1:2]))
    weights = (rng.standard_normal(descs["weights"].dims) / np.sqrt(9 * src.shape[1])).astype(np.float32)
    memories = {name: guarded(descs[name], value) for name, value in (("src", src), ("dst", None))}
    memories["weights"] = guarded(descs["weights"])
    memories["weights"][0].buffer[:] = weights_memory(weights, descs["weights"]).buffer
    memories["scratchpad"] = guarded(descs["scratchpad"])
    if "bias" in descs:
        memories["bias"] = guarded(descs["bias"], bias)
    made.bind({name: memory for name, (memory, _) in memories.items()})()
    expected = direct_convolution(src, weights, bias if "bias" in descs else 0 * bias, problem)
    assert all(buffer.gap_is_untouched for _, buffer in memories.values())
    return float(np.abs(memories["dst"][0].unpack() - expected).max() / max(1.0, np.abs(expected).max()))


@st.composite
def cases(draw: st.DrawFn, lanes: int = LANES) -> tuple[Operation, WinogradSchedule | None, int]:
    """Draw a convolution of any format and padding, a schedule, and a number of threads."""
    n, h, w = draw(st.integers(1, 2)), draw(st.integers(1, 14)), draw(st.integers(1, 14))
    ic, oc = (lanes * draw(st.integers(1, most)) for most in (3, 9))
    padding = (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    out = tuple(max(1, size - 2 + p + draw(st.integers(0, 2))) for size, p in zip((h, w), padding, strict=True))
    tags = ["nhwc", f"nChw{lanes}c"]
    src, dst = (MemoryDesc(dims, "f32", draw(st.sampled_from(tags))) for dims in ((n, ic, h, w), (n, oc, *out)))
    problem = operation(src, dst, padding, draw(st.booleans()), draw(st.booleans()))
    schedule = draw(
        st.none() | st.builds(WinogradSchedule, st.integers(1, WinogradSizes.of(src, dst).tiles), st.integers(1, 2))
    )
    return problem, schedule, draw(st.integers(1, 3))


def small_enough(schedule: WinogradSchedule | None, oc: int, target: Target) -> WinogradSchedule | None:
    """Limit the groups of a schedule to the number of panels."""
    registers = registers_of(target)
    panels = -(-oc // (registers.lanes * registers.panel))
    return schedule and WinogradSchedule(schedule.blocks, min(schedule.groups, panels))


@given(cases(), st.integers(0, 1000))
def test_it_is_convolution(case: tuple[Operation, WinogradSchedule | None, int], seed: int) -> None:
    problem, schedule, threads = case
    division = small_enough(schedule, problem.descs["dst"].dims[1], host_target())
    assert relative_error(WinogradConvolution(problem, team(), threads, division), seed) < 1e-5


@pytest.mark.skipif(LANES != 16, reason="registers of 32 bytes are the host's own")
@given(cases(8), st.integers(0, 1000))
def test_it_is_convolution_in_registers_of_32_bytes(
    case: tuple[Operation, WinogradSchedule | None, int], seed: int
) -> None:
    problem, schedule, threads = case
    target = TARGETS["x86-64-v3"]
    division = small_enough(schedule, problem.descs["dst"].dims[1], target)
    assert relative_error(WinogradConvolution(problem, team(), threads, division, target), seed) < 1e-5


def test_not_a_number_and_infinity_stay_in_their_tiles() -> None:
    """A NaN spreads to all results of its tile, also to those that a direct convolution computes without it."""
    desc = MemoryDesc((1, LANES, 12, 12), "f32", "nhwc")
    made = create_winograd_convolution(operation(desc, desc, bias=False, relu=True), team(), 1)
    image = np.ones(desc.dims, np.float32)
    image[0, 0, 1, 1] = np.nan
    dst = Memory(desc)
    weights = weights_memory(np.ones((LANES, LANES, 3, 3), np.float32), made.descs["weights"])
    scratch = Memory(made.descs["scratchpad"])
    made.bind({"src": pack(image, desc), "dst": dst, "weights": weights, "scratchpad": scratch})()
    is_nan = np.isnan(dst.unpack()[0, 0])
    assert is_nan[:3, :3].all()
    assert not is_nan[4:, :].any()
    assert not is_nan[:, 4:].any()


def test_many_threads_may_call_one_convolution_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    desc = MemoryDesc((1, 2 * LANES, 10, 10), "f32", "nhwc")
    problem = replace(operation(desc, desc, bias=False), attributes=PrimitiveAttributes())
    made = create_winograd_convolution(problem, team(), 2)
    assert "scratchpad" not in made.descs
    rng = np.random.default_rng(0)
    image = rng.standard_normal(desc.dims).astype(np.float32)
    weights = rng.standard_normal((2 * LANES, 2 * LANES, 3, 3)).astype(np.float32)
    transformed = weights_memory(weights, made.descs["weights"])
    results = [Memory(desc) for _ in range(8)]
    calls = [made.bind({"src": pack(image, desc), "dst": result, "weights": transformed}) for result in results]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda call: [call() for _ in range(50)], calls))
    expected = direct_convolution(image, weights, np.zeros(2 * LANES, np.float32), problem)
    assert np.abs(results[0].unpack() - expected).max() < 1e-5 * np.abs(expected).max()
    assert all(np.array_equal(result.buffer, results[0].buffer) for result in results)


# The mathematics


@given(st.integers(0, 1000))
def test_a_tile_is_a_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pixels, kernel = rng.standard_normal((TILE, TILE)), rng.standard_normal((3, 3))
    a, b, g = (np.array(matrix) for matrix in (A, B, G))
    found = a @ ((g @ kernel @ g.T) * (b @ pixels @ b.T)) @ a.T
    expected = [[(pixels[y : y + 3, x : x + 3] * kernel).sum() for x in range(4)] for y in range(4)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_factors_of_pixels_and_results_are_exact_floats() -> None:
    for value in np.array([*B, *A, *A_PAIRED]).ravel():
        assert float(np.float32(value)) == value


def test_pairs_are_sums_and_differences() -> None:
    values = np.random.default_rng(0).standard_normal(6)
    zero, p, minus_p, q, minus_q, infinity = values
    pairs = [zero, p + minus_p, p - minus_p, q + minus_q, q - minus_q, infinity]
    np.testing.assert_allclose(np.array(A_PAIRED) @ pairs, np.array(A) @ values, atol=1e-12)


@pytest.mark.parametrize(("oc", "panel"), [(64, 64), (80, 64), (16, 64), (48, 16)])
def test_transformed_weights_are_stored_in_panels(oc: int, panel: int) -> None:
    weights = np.random.default_rng(0).standard_normal((oc, 5, 3, 3)).astype(np.float32)
    found, g, at = transform_weights(weights, panel), np.array(G), 0
    assert found.dtype == np.float32
    for y, x in product(range(TILE), range(TILE)):
        whole = np.einsum("k,oikl,l->io", g[y], weights.astype(np.float64), g[x]).astype(np.float32)
        for first in range(0, oc, panel):
            part = whole[:, first : first + panel].ravel()
            np.testing.assert_allclose(found[at : at + part.size], part, rtol=1e-6, atol=1e-6)
            at += part.size
    assert at == found.size


# Schedules


@given(
    *(st.integers(1, 64).map(lambda n: 16 * n) for _ in range(2)),
    st.integers(1, 8),
    *(st.integers(1, 60) for _ in range(2)),
    st.integers(1, 32),
)
def test_a_schedule_has_no_empty_parts(ic: int, oc: int, n: int, down: int, across: int, threads: int) -> None:
    sizes, registers = WinogradSizes(ic, oc, n, down, across), registers_of(TARGETS["x86-64-v4"])
    found = select_schedule(sizes, registers, threads)
    assert 1 <= found.blocks <= sizes.tiles
    assert 1 <= found.groups <= -(-oc // 64)
    assert found.blocks * found.groups >= min(threads, sizes.tiles)


# Unsupported operations

IMAGE = MemoryDesc((1, LANES, 8, 8), "f32", "nhwc")
PADDED = [
    MemoryDesc(IMAGE.dims, "f32", tag, padded_dims=padded)
    for tag, padded in (("nhwc", (1, LANES, 9, 8)), (f"nChw{LANES}c", (1, 2 * LANES, 8, 8)))
]
"""Descriptors with padding, which a destination must set to zero."""
GOOD = operation(IMAGE, IMAGE)


def wide(tag: str) -> MemoryDesc:
    return MemoryDesc((1, 2 * LANES, 8, 8), "f32", tag)


def with_parameters(**changes: object) -> Operation:
    return replace(GOOD, parameters={**GOOD.parameters, **changes})  # type: ignore[dict-item]


def with_descs(**changes: MemoryDesc) -> Operation:
    return replace(GOOD, descs={**GOOD.descs, **changes})


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (replace(GOOD, prop_kind="forward_training"), "convolution forward_training: it is for forward inference"),
        (
            Operation("eltwise", "forward_inference", {"src": IMAGE, "dst": IMAGE}),
            "eltwise forward_inference: it is for forward inference",
        ),
        (with_descs(src=MemoryDesc(IMAGE.dims, "bf16", "nhwc")), "types but f32"),
        (
            with_descs(weights=MemoryDesc((LANES, LANES, 5, 5), "f32", "any")),
            f"weights of dims ({LANES}, {LANES}, 5, 5): give one group of 3x3",
        ),
        (with_parameters(strides=(2, 1)), "strides (2, 1): they are (1, 1)"),
        (with_parameters(dilations=(1, 1)), "dilations (1, 1): they are (0, 0)"),
        (
            with_descs(src=MemoryDesc((1, 3, 8, 8), "f32", "nhwc")),
            f"3 and {LANES} channels: both are multiples of {LANES}, and no dim is 0",
        ),
        (
            with_descs(weights=MemoryDesc((2, LANES // 2, LANES // 2, 3, 3), "f32", "any")),
            f"weights of dims (2, {LANES // 2}, {LANES // 2}, 3, 3): give one group of 3x3",
        ),
        (
            operation(IMAGE, MemoryDesc((1, 17, 8, 8), "f32", "nhwc")),
            f"{LANES} and 17 channels: both are multiples of {LANES}, and no dim is 0",
        ),
        *(
            (
                operation(wide(tag if name == "src" else "nhwc"), wide(tag if name == "dst" else "nhwc")),
                f"{name} {wide(tag)}: give nhwc, or blocks of {LANES} channels, without padding",
            )
            for name in ("src", "dst")
            for tag in ("nchw", f"aBcd{2 * LANES}b")
        ),
        *(
            (
                with_descs(dst=padded),
                f"dst {padded}: give nhwc, or blocks of {LANES} channels, without padding",
            )
            for padded in PADDED
        ),
        (
            with_descs(weights=MemoryDesc((LANES, LANES, 3, 3), "f32", "oihw")),
            "weights f32::blocked:abcd::f0: leave them any",
        ),
        (
            with_descs(bias=MemoryDesc((LANES,), "f32", strides=(2,))),
            "bias f32::blocked:a:2:f0: leave it any",
        ),
        (
            replace(GOOD, attributes=PrimitiveAttributes(post_ops=(EltwisePostOp("tanh", 0.0, 0.0),))),
            "post-operations (EltwisePostOp(algorithm='tanh', alpha=0.0, beta=0.0),): it ends with a ReLU or with "
            "nothing",
        ),
        *(
            (
                replace(GOOD, attributes=PrimitiveAttributes(post_ops=post_ops)),
                f"post-operations {post_ops}: it ends with a ReLU or with nothing",
            )
            for post_ops in ((SumPostOp(),), (EltwisePostOp("relu", 0.1, 0.0),), (BinaryPostOp("add", IMAGE),))
        ),
        (
            replace(GOOD, attributes=PrimitiveAttributes(fpmath_mode="bf16")),
            "attributes but a scratchpad mode and a ReLU",
        ),
    ],
)
def test_an_unsupported_operation_raises_this_error(problem: Operation, text: str) -> None:
    with pytest.raises(Unimplemented) as caught:
        create_winograd_convolution(problem, team(), 2)
    assert str(caught.value) == f"Winograd convolution has no {text}"


def test_weights_are_transformed_from_any_layout_of_f32_without_attributes() -> None:
    desc = create_winograd_convolution(GOOD, team(), 1).descs["weights"]
    assert is_winograd_weights(desc)
    assert not is_winograd_weights(IMAGE)
    weights = np.random.default_rng(0).standard_normal(desc.dims).astype(np.float32)
    expected = weights_memory(weights, desc).buffer
    for tag in ("hwio", "cdba", "acdb", "Abcd16a", "OIhw8i8o"):
        plain, memory = pack(weights, MemoryDesc(desc.dims, "f32", tag)), Memory(desc)
        made = create_weights_transform(Operation("reorder", "forward_inference", {"src": plain.desc, "dst": desc}))
        assert made.impl == "winograd:weights"
        made.bind({"src": plain, "dst": memory})()
        np.testing.assert_array_equal(memory.buffer, expected)
    halves = MemoryDesc(desc.dims, "bf16", "oihw")
    with pytest.raises(Unimplemented) as caught:
        create_weights_transform(Operation("reorder", "forward_inference", {"src": halves, "dst": desc}))
    assert str(caught.value) == (
        f"weights of a Winograd convolution are made of f32 in a layout: no reorder from {halves!r}"
    )
    plain_desc = MemoryDesc(desc.dims, "f32", "oihw")
    scaled = PrimitiveAttributes(scratchpad_mode="user")
    with pytest.raises(Unimplemented) as caught:
        create_weights_transform(
            Operation("reorder", "forward_inference", {"src": plain_desc, "dst": desc}, {}, scaled)
        )
    assert str(caught.value) == "weights of a Winograd convolution are made without attributes"
