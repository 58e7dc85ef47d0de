"""Types, scales, zero points and post-operations of the reference engine, against formulas written out in NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.engines import onednn, reference
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME
from inlay.memory import Memory, pack
from inlay.primitives.attributes import (
    PLAIN,
    BinaryPostOp,
    DepthwiseConvolution,
    EltwisePostOp,
    PostOp,
    PReLUPostOp,
    PrimitiveAttributes,
    SumPostOp,
)
from inlay.primitives.engine import Engine, Operation
from inlay.reordering.attributes import Scales, ZeroPoints
from tests.oracles import onednn as oracle
from tests.support.refusals import raises_exactly

RANDOM = np.random.default_rng(0)
NO_WINDOW: dict[str, Any] = {"strides": (1,), "dilations": (0,), "padding_l": (0,), "padding_r": (0,)}


def floats(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def positive_floats(*shape: int) -> Any:
    return RANDOM.uniform(0.5, 2, shape).astype(np.float32)


def integers(low: int, high: int, *shape: int) -> Any:
    dtype = np.int8 if low < 0 else np.uint8
    return RANDOM.integers(low, high, shape).astype(dtype)


def computed(
    kind: str,
    arrays: dict[str, Any],
    dst: tuple[tuple[int, ...], str],
    parameters: dict[str, Any],
    attributes: PrimitiveAttributes = PLAIN,
    values: dict[str, Any] | None = None,
    old: Any = None,
    engine: Engine | None = None,
) -> Any:
    """The destination of a primitive in inference."""
    descs = {name: MemoryDesc(array.shape, array.dtype) for name, array in arrays.items()}
    descs["dst"] = MemoryDesc(*dst)
    operation = Operation(kind, "forward_inference", descs, parameters, attributes)
    implementation = (engine or reference.make_engine()).create(operation)
    memories = {name: Memory(desc) for name, desc in implementation.descs.items()}
    for name, array in {**arrays, **(values or {}), **({} if old is None else {"dst": old})}.items():
        desc = implementation.descs[name]
        memories[name] = pack(
            np.asarray(array, desc.data_type.dtype if desc.data_type else None).reshape(desc.dims), desc
        )
    implementation.bind(memories)()
    return memories["dst"].unpack()


def linear(x: Any, data_type: str, attributes: PrimitiveAttributes = PLAIN, **more: Any) -> Any:
    """The source times 1, in another type."""
    one = {"algorithm": "linear", "alpha": 1.0, "beta": 0.0}
    return computed("eltwise", {"src": x}, (x.shape, data_type), one, attributes, **more)


def test_integers_are_saturated_and_halves_go_to_even() -> None:
    x = np.array([-300.0, -128.5, -2.5, -1.5, 0.5, 1.5, 127.5, 300.0, np.nan, np.inf], np.float32)
    assert linear(x, "s8").tolist() == [-128, -128, -2, -2, 0, 2, 127, 127, 0, 127]
    assert linear(x, "u8").tolist() == [0, 0, 0, 0, 0, 2, 128, 255, 0, 255]
    assert linear(np.array([3e9, -3e9]), "s32").tolist() == [2**31 - 1, -(2**31)]


def test_large_integers_are_exact() -> None:
    x = np.array([2**24 + 1, -(2**31), 2**31 - 1], np.int32)
    assert linear(x, "s32").tolist() == x.tolist()


def test_a_result_is_rounded_once() -> None:
    # Just above the middle of two bf16 numbers: rounded to f32 first, it would be the middle, and go down to even.
    x = np.array([1 + 2.0**-8 + 2.0**-40])
    assert linear(x, "bf16").astype(float).tolist() == [1 + 2.0**-7]
    assert x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(float).tolist() == [1.0]


def test_scales_and_zero_points_are_undone_and_applied() -> None:
    arrays = {"src": integers(0, 256, 2, 4, 6), "weights": integers(-128, 128, 2, 3, 2, 3), "bias": floats(6)}
    per_channel = positive_floats(6)
    scales = {"src": Scales(), "weights": Scales(mask=0b11), "dst": Scales()}
    attributes = PrimitiveAttributes(scales=scales, zero_points={"src": ZeroPoints(), "dst": ZeroPoints()})
    values = {"src_scales": 0.125, "weights_scales": per_channel, "dst_scales": 40.0}
    values |= {"src_zero_points": 100, "dst_zero_points": 7}
    window = {**NO_WINDOW, "padding_l": (1,), "padding_r": (1,), "algorithm": "direct"}
    result = computed("convolution", arrays, ((2, 6, 6), "u8"), window, attributes, values)
    padded = np.pad(arrays["src"].astype(int) - 100, ((0, 0), (0, 0), (1, 1))).reshape(2, 2, 2, 8)
    taps = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=3)
    total = np.einsum("ngcxk,gock->ngox", taps, arrays["weights"].astype(int)).reshape(2, 6, 6)
    wanted = (total * 0.125 * per_channel[:, None].astype(float) + arrays["bias"][:, None]) / 40.0 + 7
    assert np.array_equal(result, np.clip(np.rint(wanted), 0, 255))
    assert result.min() + result.max() > 0


@pytest.mark.parametrize(("inner", "size"), [(4, 2), (7, 3)], ids=["whole", "with a smaller last group"])
def test_scales_in_groups_are_shared_along_the_last_axes(inner: int, size: int) -> None:
    src, weights, groups = positive_floats(3, inner), integers(-9, 9, inner, 6), positive_floats(-(-inner // size), 6)
    attributes = PrimitiveAttributes(scales={"weights": Scales(mask=0b11, groups=(size, 1))})
    arrays = {"src": src, "weights": weights}
    result = computed("matmul", arrays, ((3, 6), "f64"), {}, attributes, {"weights_scales": groups})
    wanted = src.astype(float) @ (weights * np.repeat(groups, size, axis=0)[:inner].astype(float))
    np.testing.assert_allclose(result, wanted, rtol=1e-13)


def test_weights_of_four_bits_are_numbers() -> None:
    weights = np.arange(-8, 8).reshape(4, 4).astype(ml_dtypes.int4)
    result = computed("matmul", {"src": np.eye(4, dtype=np.float32), "weights": weights}, ((4, 4), "f32"), {})
    assert result.ravel().tolist() == list(range(-8, 8))


X, OLD, OTHER = floats(2, 3, 4), floats(2, 3, 4), floats(1, 3, 1)
D = X.astype(float)
DOUBLED = EltwisePostOp("linear", 2.0, 1.0)
CHAINS: list[tuple[tuple[PostOp, ...], dict[str, Any], Any]] = [
    ((SumPostOp(),), {}, D + OLD),
    ((SumPostOp(scale=0.5), EltwisePostOp("relu", 0.25)), {}, np.where(D + 0.5 * OLD > 0, 1, 0.25) * (D + 0.5 * OLD)),
    ((EltwisePostOp("relu"), SumPostOp()), {}, np.maximum(D, 0) + OLD),
    ((BinaryPostOp("mul", MemoryDesc((1, 3, 1), "f32")), DOUBLED), {"post_op_0_src_1": OTHER}, 2 * D * OTHER + 1),
    (
        (DOUBLED, BinaryPostOp("max", MemoryDesc((1, 3, 1), "f32", "any"))),
        {"post_op_1_src_1": OTHER},
        np.maximum(2 * D + 1, OTHER),
    ),
    ((PReLUPostOp(mask=0b010),), {"post_op_0_weights": OTHER}, np.where(D >= 0, D, D * OTHER)),
    ((PReLUPostOp(mask=0b101),), {"post_op_0_weights": OLD[:, :1]}, np.where(D >= 0, D, D * OLD[:, :1])),
]


@pytest.mark.parametrize(("post_ops", "values", "wanted"), CHAINS)
def test_post_operations_follow_in_order(post_ops: tuple[PostOp, ...], values: Any, wanted: Any) -> None:
    result = linear(X, "f32", PrimitiveAttributes(post_ops=post_ops), values=values, old=OLD)
    np.testing.assert_allclose(result, wanted, rtol=2**-23)


def test_post_operations_come_before_the_scale_of_the_destination() -> None:
    chain = (EltwisePostOp("relu"), SumPostOp())
    attributes = PrimitiveAttributes(scales={"dst": Scales()}, zero_points={"dst": ZeroPoints()}, post_ops=chain)
    x, values = np.array([-4.0, 4.0], np.float32), {"dst_scales": 0.5, "dst_zero_points": -3}
    assert linear(x, "s8", attributes, values=values, old=[10, 20]).tolist() == [10 / 0.5 - 3, (4 + 20) / 0.5 - 3]


def test_a_sum_reads_the_old_bytes_as_another_type() -> None:
    attributes = PrimitiveAttributes(post_ops=(SumPostOp(scale=2.0, zero_point=5, data_type="s8"),))
    x = np.array([100.0, 100.0], np.float32)
    assert linear(x, "u8", attributes, old=[255, 3]).tolist() == [100 - 12, 100 - 4]


def test_a_depthwise_convolution_follows_what_would_have_been_written() -> None:
    arrays = {"src": integers(0, 5, 1, 2, 5, 4), "weights": integers(-3, 4, 3, 2, 1, 1)}
    depthwise, bias = integers(-3, 4, 3, 1, 1, 3, 3), np.array([0.5, -0.5, 0.25], np.float32)
    following = DepthwiseConvolution("s8", "f32", "f32", kernel=3, stride=2, padding=1)
    attributes = PrimitiveAttributes(post_ops=(EltwisePostOp("relu"), following, EltwisePostOp("linear", 2.0, 0.0)))
    values = {"post_op_1_weights": depthwise, "post_op_1_bias": bias}
    window = {name: pair * 2 for name, pair in NO_WINDOW.items()} | {"algorithm": "direct"}
    between = np.einsum("ncxy,oc->noxy", arrays["src"].astype(int), arrays["weights"][..., 0, 0].astype(int))
    padded = np.pad(between.clip(0, 127), ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    wanted = 2 * (np.einsum("ncxykl,ckl->ncxy", taps, depthwise[:, 0, 0].astype(int)) + bias[:, None, None])
    result = computed("convolution", arrays, ((1, 3, 5, 4), "s8"), window, attributes, values)
    assert result.dtype == np.float32
    assert np.array_equal(result, wanted)


def test_a_reorder_is_inlays_own_with_its_attributes() -> None:
    src = np.array([[10.0, -10.0], [3.0, 4.0]], np.float32)
    attributes = PrimitiveAttributes(
        scales={"src": Scales(mask=0b01)}, zero_points={"dst": ZeroPoints()}, post_ops=(SumPostOp(scale=2.0),)
    )
    values = {"src_scales": [1.0, 10.0], "dst_zero_points": 1}
    result = computed("reorder", {"src": src}, ((2, 2), "s8"), {}, attributes, values, [[1, 2], [3, 4]])
    assert result.tolist() == [[13, -5], [37, 49]]


def f32(*dims: int) -> MemoryDesc:
    return MemoryDesc(dims, "f32")


RELU = PrimitiveAttributes(post_ops=(EltwisePostOp("relu"),))
REFUSED: list[tuple[Operation, type[Exception], str]] = [
    (
        Operation("reorder", "forward_inference", {"src": f32(2), "dst": f32(2)}, attributes=RELU),
        Unimplemented,
        "a reorder is followed by one sum without a zero point or a type: (EltwisePostOp(algorithm='relu', alpha=0.0, "
        "beta=0.0),) are other post-operations, run them as primitives of their own",
    ),
    (
        Operation(
            "eltwise",
            "forward_inference",
            {"src": MemoryDesc((RUNTIME, 3), "f32", "ab"), "dst": f32(2, 3)},
            {"algorithm": "relu", "alpha": 0.0, "beta": 0.0},
        ),
        Unimplemented,
        "the reference engine computes on tensors with known dims and a layout: src is MemoryDesc((RUNTIME, 3), 'f32', "
        "'ab')",
    ),
    (
        Operation(
            "pooling",
            "backward",
            {"diff_src": f32(1, 1, 4), "diff_dst": f32(1, 1, 2)},
            {**NO_WINDOW, "kernel": (3,), "algorithm": "max"},
        ),
        InvalidArguments,
        "pooling backward reads the workspace of its forward primitive, and the hint has none: create that with "
        "forward_training and give it as hint",
    ),
    (
        Operation("matmul", "backward", {}),
        Unimplemented,
        "the reference engine does not compute matmul backward",
    ),
]


@pytest.mark.parametrize(("operation", "error", "text"), REFUSED)
def test_an_operation_that_it_does_not_compute_is_refused(
    operation: Operation, error: type[Exception], text: str
) -> None:
    with raises_exactly(error, text):
        reference.make_engine().create(operation)


@pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))
@pytest.mark.parametrize("src_type", ["u8", "s8"])
@pytest.mark.parametrize("dst_type", ["u8", "s8", "s32", "f32"])
def test_quantized_results_are_those_of_onednn(src_type: str, dst_type: str) -> None:
    random = np.random.default_rng([DATA_TYPES[src_type].code, DATA_TYPES[dst_type].code])
    src = random.integers(0, 127, (2, 17, 6, 5)).astype(DATA_TYPES[src_type].dtype)
    weights = random.integers(-60, 60, (19, 17, 3, 2)).astype(np.int8)
    arrays = {"src": src, "weights": weights, "bias": random.normal(size=19).astype(np.float32)}
    operand = MemoryDesc((1, 19, 1, 1), "f32")
    quantized = ("src", "dst") if dst_type != "f32" else ("src",)
    attributes = PrimitiveAttributes(
        scales={"src": Scales(), "weights": Scales(mask=1), "dst": Scales()},
        zero_points=dict.fromkeys(quantized, ZeroPoints()),
        post_ops=(EltwisePostOp("linear", 0.5, 1.0), BinaryPostOp("add", operand), SumPostOp(scale=0.25)),
    )
    values = {"src_scales": 0.03, "weights_scales": random.uniform(0.01, 0.1, 19), "dst_scales": 0.7}
    values |= {"post_op_1_src_1": random.normal(size=19)}
    values |= {f"{name}_zero_points": {"src": 11, "dst": 5}[name] for name in quantized}
    window = {"algorithm": "direct", "strides": (1, 2), "dilations": (0, 0), "padding_l": (1, 0), "padding_r": (1, 0)}
    old = random.integers(0, 100, (2, 19, 6, 2))
    found, wanted = (
        computed("convolution", arrays, (old.shape, dst_type), window, attributes, values, old, engine).astype(float)
        for engine in (onednn.make_engine(), reference.make_engine())
    )
    # A number near the middle of two integers may be rounded to either.
    assert np.abs(found - wanted).max() <= (1 if dst_type != "f32" else 1e-4)
    assert (found != wanted).mean() < 0.01 or dst_type == "f32"
    assert len(np.unique(wanted)) > 50
