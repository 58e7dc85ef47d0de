"""Winograd convolutions against direct ones, with guard pages around all memory; matrices, schedules and errors."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

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
from inlay.primitives.engine import Implementation, Operation
from inlay.reordering.target import TARGETS, TargetMachine, host_target
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.refusals import raises_exactly
from tests.support.thread_teams import require_team

Floats = npt.NDArray[np.float32]
RELU = (EltwisePostOp("relu", 0.0, 0.0),)
LANES = registers_of(host_target()).lanes
IMAGE = MemoryDesc((1, LANES, 8, 8), "f32", "nhwc")
Made = WinogradConvolution | Implementation
Case = tuple[Operation, WinogradSchedule | None, int]


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


def direct_convolution(problem: Operation, src: Floats, weights: Floats, bias: Floats) -> npt.NDArray[np.float64]:
    """Return the direct convolution in f64."""
    padding: Any = problem.parameters["padding_l"]
    (top, left), (height, width) = padding, problem.descs["dst"].dims[2:]
    padded = np.pad(src, [(0, 0), (0, 0), (top, height + 2), (left, width + 2)])[:, :, : height + 2, : width + 2]
    windows = sliding_window_view(padded.astype(np.float64), (3, 3), axis=(2, 3))
    found: npt.NDArray[np.float64] = np.einsum("nihwyx,oiyx->nohw", windows, weights, optimize=True)
    found += bias[:, None, None]
    return np.maximum(found, 0) if problem.attributes.post_ops else found


def random_arrays(problem: Operation, seed: int = 3) -> dict[str, Floats]:
    """Return src, weights for results around 1, and bias, which is 0 for an operation without one."""
    rng, descs = np.random.default_rng(seed), problem.descs
    src, bias = (rng.standard_normal(dims, np.float32) for dims in (descs["src"].dims, descs["dst"].dims[1:2]))
    weights = rng.standard_normal(descs["weights"].dims, np.float32) / np.float32(3 * src.shape[1] ** 0.5)
    return {"src": src, "weights": weights, "bias": bias if "bias" in descs else 0 * bias}


def weights_memory(weights: Floats, desc: MemoryDesc, tag: str = "oihw") -> Memory:
    plain, memory = pack(weights, tag), Memory(desc)
    reorder = Operation("reorder", "forward_inference", {"src": plain.desc, "dst": desc})
    create_weights_transform(reorder).bind({"src": plain, "dst": memory})()
    return memory


def guarded(desc: MemoryDesc, values: Memory | None = None) -> tuple[Memory, GuardedBuffer]:
    """Return memory that ends at a guard page; without values, it is filled with NaN."""
    buffer = GuardedBuffer(desc.size, align=4)
    memory = Memory(desc, buffer.bytes)
    memory.buffer.view(np.float32)[:] = np.nan
    if values is not None:
        memory.buffer[:] = values.buffer[: memory.buffer.size]
    return memory, buffer


def memories_of(made: Made, arrays: Mapping[str, Floats]) -> dict[str, Memory]:
    """Return memory of all arguments; dst and the scratchpad hold zeros."""
    memories = {name: Memory(desc) for name, desc in made.descs.items()}
    memories |= {name: pack(arrays[name], made.descs[name]) for name in ("src", "bias") if name in memories}
    return memories | {"weights": weights_memory(arrays["weights"], made.descs["weights"])}


def relative_error(made: Made, seed: int = 3) -> float:
    """Return the largest difference from a direct convolution, as a share of its largest result.

    The scratchpad and dst are filled with NaN.
    """
    arrays = random_arrays(made.operation, seed)
    inputs = memories_of(made, arrays)
    del inputs["dst"]
    inputs.pop("scratchpad", None)
    memories = {name: guarded(desc, inputs.get(name)) for name, desc in made.descs.items()}
    made.bind({name: memory for name, (memory, _) in memories.items()})()
    expected = direct_convolution(made.operation, **arrays)
    assert all(buffer.gap_is_untouched for _, buffer in memories.values())
    return float(np.abs(memories["dst"][0].unpack() - expected).max() / max(1.0, np.abs(expected).max()))


@st.composite
def cases(draw: st.DrawFn, lanes: int = LANES) -> Case:
    """Draw a convolution of any format and padding, a schedule, and a number of threads."""
    n, h, w = (draw(st.integers(1, most)) for most in (2, 14, 14))
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


def check_convolution(case: Case, seed: int, target: TargetMachine) -> None:
    problem, schedule, threads = case
    registers = registers_of(target)
    panels = -(-problem.descs["dst"].dims[1] // (registers.lanes * registers.panel))
    division = schedule and WinogradSchedule(schedule.blocks, min(schedule.groups, panels))
    assert relative_error(WinogradConvolution(problem, require_team(), threads, division, target), seed) < 1e-5


@given(cases(), st.integers(0, 1000))
def test_results_are_those_of_a_direct_convolution(case: Case, seed: int) -> None:
    check_convolution(case, seed, host_target())


@pytest.mark.skipif(LANES != 16, reason="registers of 32 bytes are the host's own")
@given(cases(8), st.integers(0, 1000))
def test_results_in_registers_of_32_bytes_are_those_of_a_direct_convolution(case: Case, seed: int) -> None:
    check_convolution(case, seed, TARGETS["x86-64-v3"])


def test_not_a_number_and_infinity_stay_in_their_tiles() -> None:
    """A NaN spreads to all results of its tile, also to those that a direct convolution computes without it."""
    made = create_winograd_convolution(operation(IMAGE, IMAGE, bias=False, relu=True), require_team(), 1)
    arrays = {name: np.ones_like(array) for name, array in random_arrays(made.operation).items()}
    arrays["src"][0, 0, 1, 1] = np.nan
    memories = memories_of(made, arrays)
    made.bind(memories)()
    is_nan = np.isnan(memories["dst"].unpack()[0, 0])
    assert is_nan[:3, :3].all()
    assert not is_nan[4:, :].any()
    assert not is_nan[:, 4:].any()


def test_many_threads_may_call_one_convolution_at_once() -> None:
    desc = MemoryDesc((1, 2 * LANES, 10, 10), "f32", "nhwc")
    problem = replace(operation(desc, desc, bias=False), attributes=PrimitiveAttributes())
    made = create_winograd_convolution(problem, require_team(), 2)
    assert "scratchpad" not in made.descs
    arrays = random_arrays(problem)
    memories, results = memories_of(made, arrays), [Memory(desc) for _ in range(8)]
    calls = [made.bind({**memories, "dst": result}) for result in results]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda call: [call() for _ in range(50)], calls))
    expected = direct_convolution(problem, **arrays)
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
    found, g = transform_weights(weights, panel), np.array(G)
    whole = np.einsum("yk,oikl,xl->yxio", g, weights.astype(np.float64), g).reshape(TILE * TILE, 5, oc)
    panels = [numbers[:, first : first + panel].ravel() for numbers in whole for first in range(0, oc, panel)]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.concatenate(panels), rtol=1e-6, atol=1e-6)


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

PADDED = [
    MemoryDesc(IMAGE.dims, "f32", tag, padded_dims=padded)
    for tag, padded in (("nhwc", (1, LANES, 9, 8)), (f"nChw{LANES}c", (1, 2 * LANES, 8, 8)))
]
"""Descriptors with padding, which a destination must set to zero."""
GOOD = operation(IMAGE, IMAGE)
OTHER_FORMATS = ("nchw", f"aBcd{2 * LANES}b")
GIVE = f"give nhwc, or blocks of {LANES} channels, without padding"
CHANNELS = f"both are multiples of {LANES}, and no dim is 0"


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
        *(
            (with_descs(weights=MemoryDesc(dims, "f32", "any")), f"weights of dims {dims}: give one group of 3x3")
            for dims in ((LANES, LANES, 5, 5), (2, LANES // 2, LANES // 2, 3, 3))
        ),
        (with_parameters(strides=(2, 1)), "strides (2, 1): they are (1, 1)"),
        (with_parameters(dilations=(1, 1)), "dilations (1, 1): they are (0, 0)"),
        (with_descs(src=MemoryDesc((1, 3, 8, 8), "f32", "nhwc")), f"3 and {LANES} channels: {CHANNELS}"),
        (operation(IMAGE, MemoryDesc((1, 17, 8, 8), "f32", "nhwc")), f"{LANES} and 17 channels: {CHANNELS}"),
        *((operation(wide(tag), wide("nhwc")), f"src {wide(tag)}: {GIVE}") for tag in OTHER_FORMATS),
        *((operation(wide("nhwc"), wide(tag)), f"dst {wide(tag)}: {GIVE}") for tag in OTHER_FORMATS),
        *((with_descs(dst=padded), f"dst {padded}: {GIVE}") for padded in PADDED),
        (
            with_descs(weights=MemoryDesc((LANES, LANES, 3, 3), "f32", "oihw")),
            "weights f32::blocked:abcd::f0: leave them any",
        ),
        (with_descs(bias=MemoryDesc((LANES,), "f32", strides=(2,))), "bias f32::blocked:a:2:f0: leave it any"),
        *(
            (
                replace(GOOD, attributes=PrimitiveAttributes(post_ops=(post_op,))),
                f"post-operations {(post_op,)}: it ends with a ReLU or with nothing",
            )
            for post_op in (
                EltwisePostOp("tanh", 0.0, 0.0),
                SumPostOp(),
                EltwisePostOp("relu", 0.1, 0.0),
                BinaryPostOp("add", IMAGE),
            )
        ),
        (
            replace(GOOD, attributes=PrimitiveAttributes(fpmath_mode="bf16")),
            "attributes but a scratchpad mode and a ReLU",
        ),
    ],
)
def test_an_unsupported_operation_raises_this_error(problem: Operation, text: str) -> None:
    with raises_exactly(Unimplemented, f"Winograd convolution has no {text}"):
        create_winograd_convolution(problem, require_team(), 2)


def test_weights_are_transformed_from_any_layout_of_f32_without_attributes() -> None:
    desc = create_winograd_convolution(GOOD, require_team(), 1).descs["weights"]
    assert is_winograd_weights(desc)
    assert not is_winograd_weights(IMAGE)
    weights = random_arrays(GOOD)["weights"]
    expected = weights_memory(weights, desc).buffer
    for tag in ("hwio", "cdba", "acdb", "Abcd16a", "OIhw8i8o"):
        np.testing.assert_array_equal(weights_memory(weights, desc, tag).buffer, expected)

    def reorder(data_type: str, **attributes: Any) -> Operation:
        descs = {"src": MemoryDesc(desc.dims, data_type, "oihw"), "dst": desc}
        return Operation("reorder", "forward_inference", descs, {}, PrimitiveAttributes(**attributes))

    assert create_weights_transform(reorder("f32")).impl == "winograd:weights"
    halves = reorder("bf16")
    text = f"are made of f32 in a layout: no reorder from {halves.descs['src']!r}"
    with raises_exactly(Unimplemented, f"weights of a Winograd convolution {text}"):
        create_weights_transform(halves)
    with raises_exactly(Unimplemented, "weights of a Winograd convolution are made without attributes"):
        create_weights_transform(reorder("f32", scratchpad_mode="user"))
