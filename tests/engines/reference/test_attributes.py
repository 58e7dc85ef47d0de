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

RANDOM = np.random.default_rng(0)
NO_WINDOW: dict[str, Any] = {"strides": (1,), "dilations": (0,), "padding_l": (0,), "padding_r": (0,)}


def computed(
    kind: str,
    arrays: dict[str, Any],
    dst: tuple[tuple[int, ...], str],
    parameters: dict[str, Any],
    attributes: PrimitiveAttributes,
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
    for name, array in {**arrays, **(values or {})}.items():
        memories[name] = pack(array.reshape(implementation.descs[name].dims), implementation.descs[name])
    if old is not None:
        memories["dst"] = pack(old, implementation.descs["dst"])
    implementation.bind(memories)()
    return memories["dst"].unpack()


def linear(x: Any, data_type: str, attributes: PrimitiveAttributes | None = None, **more: Any) -> Any:
    """The source times 1, in another type."""
    one = {"algorithm": "linear", "alpha": 1.0, "beta": 0.0}
    return computed("eltwise", {"src": x}, (x.shape, data_type), one, attributes or PrimitiveAttributes(), **more)


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
    src = RANDOM.integers(0, 256, (2, 4, 6)).astype(np.uint8)
    weights = RANDOM.integers(-128, 128, (2, 3, 2, 3)).astype(np.int8)
    bias = RANDOM.normal(size=6).astype(np.float32)
    per_channel = RANDOM.uniform(0.5, 2, 6).astype(np.float32)
    scales = {"src": Scales(), "weights": Scales(mask=0b11), "dst": Scales()}
    attributes = PrimitiveAttributes(scales=scales, zero_points={"src": ZeroPoints(), "dst": ZeroPoints()})
    values = {
        "src_scales": np.array([0.125], np.float32),
        "weights_scales": per_channel,
        "dst_scales": np.array([40.0], np.float32),
        "src_zero_points": np.array([100], np.int32),
        "dst_zero_points": np.array([7], np.int32),
    }
    arrays = {"src": src, "weights": weights, "bias": bias}
    window = {**NO_WINDOW, "padding_l": (1,), "padding_r": (1,), "algorithm": "direct"}
    result = computed("convolution", arrays, ((2, 6, 6), "u8"), window, attributes, values)
    padded = np.pad(src.astype(int) - 100, ((0, 0), (0, 0), (1, 1)))
    total = np.zeros((2, 6, 6))
    for n, o, x in np.ndindex(total.shape):
        total[n, o, x] = (padded[n, o // 3 * 2 : o // 3 * 2 + 2, x : x + 3] * weights[o // 3, o % 3].astype(int)).sum()
    wanted = (total * 0.125 * per_channel[:, None].astype(float) + bias[:, None]) / 40.0 + 7
    assert np.array_equal(result, np.clip(np.rint(wanted), 0, 255))
    assert result.min() + result.max() > 0


def test_scales_in_groups_are_shared_along_the_last_axes() -> None:
    src = RANDOM.normal(size=(3, 4)).astype(np.float32)
    weights = RANDOM.integers(-8, 8, (4, 6)).astype(np.int8)
    groups = RANDOM.uniform(0.5, 2, (2, 6)).astype(np.float32)
    attributes = PrimitiveAttributes(scales={"weights": Scales(mask=0b11, groups=(2, 1))})
    values = {"weights_scales": groups}
    result = computed("matmul", {"src": src, "weights": weights}, ((3, 6), "f64"), {}, attributes, values)
    wanted = src.astype(float) @ (weights * np.repeat(groups, 2, axis=0).astype(float))
    np.testing.assert_allclose(result, wanted, rtol=1e-14)


def test_the_last_group_has_what_is_left() -> None:
    src, weights = RANDOM.uniform(1, 2, (4, 7)).astype(np.float32), RANDOM.integers(-9, 9, (7, 6)).astype(np.int8)
    groups = RANDOM.uniform(0.5, 2, (3, 6)).astype(np.float32)
    attributes = PrimitiveAttributes(scales={"weights": Scales(mask=0b11, groups=(3, 1))})
    found = computed(
        "matmul", {"src": src, "weights": weights}, ((4, 6), "f32"), {}, attributes, {"weights_scales": groups}
    )
    wanted = src.astype(float) @ (weights * np.repeat(groups, 3, axis=0)[:7].astype(float))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_weights_of_four_bits_are_numbers() -> None:
    weights = np.arange(-8, 8).reshape(4, 4).astype(ml_dtypes.int4)
    src = np.eye(4, dtype=np.float32)
    result = computed("matmul", {"src": src, "weights": weights}, ((4, 4), "f32"), {}, PrimitiveAttributes())
    assert result.ravel().tolist() == list(range(-8, 8))


X = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
OLD = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
OTHER = RANDOM.normal(size=(1, 3, 1)).astype(np.float32)
D = X.astype(float)

CHAINS: list[tuple[tuple[PostOp, ...], dict[str, Any], Any]] = [
    ((SumPostOp(),), {}, D + OLD),
    ((SumPostOp(scale=0.5), EltwisePostOp("relu", 0.25)), {}, np.where(D + 0.5 * OLD > 0, 1, 0.25) * (D + 0.5 * OLD)),
    ((EltwisePostOp("relu"), SumPostOp()), {}, np.maximum(D, 0) + OLD),
    (
        (BinaryPostOp("mul", MemoryDesc((1, 3, 1), "f32")), EltwisePostOp("linear", 2.0, 1.0)),
        {"post_op_0_src_1": OTHER},
        2 * D * OTHER + 1,
    ),
    (
        (EltwisePostOp("linear", 2.0, 1.0), BinaryPostOp("max", MemoryDesc((1, 3, 1), "f32", "any"))),
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
    attributes = PrimitiveAttributes(
        scales={"dst": Scales()}, zero_points={"dst": ZeroPoints()}, post_ops=(EltwisePostOp("relu"), SumPostOp())
    )
    values = {"dst_scales": np.array([0.5], np.float32), "dst_zero_points": np.array([-3], np.int32)}
    x, old = np.array([-4.0, 4.0], np.float32), np.array([10, 20], np.int8)
    assert linear(x, "s8", attributes, values=values, old=old).tolist() == [10 / 0.5 - 3, (4 + 20) / 0.5 - 3]


def test_a_sum_reads_the_old_bytes_as_another_type() -> None:
    attributes = PrimitiveAttributes(post_ops=(SumPostOp(scale=2.0, zero_point=5, data_type="s8"),))
    old = np.array([255, 3], np.uint8)
    assert linear(np.array([100.0, 100.0], np.float32), "u8", attributes, old=old).tolist() == [100 - 12, 100 - 4]


def test_a_depthwise_convolution_follows_what_would_have_been_written() -> None:
    src = RANDOM.integers(0, 5, (1, 2, 5, 4)).astype(np.uint8)
    weights = RANDOM.integers(-3, 4, (3, 2, 1, 1)).astype(np.int8)
    depthwise = RANDOM.integers(-3, 4, (3, 1, 1, 3, 3)).astype(np.int8)
    bias = np.array([0.5, -0.5, 0.25], np.float32)
    following = DepthwiseConvolution("s8", "f32", "f32", kernel=3, stride=2, padding=1)
    attributes = PrimitiveAttributes(post_ops=(EltwisePostOp("relu"), following, EltwisePostOp("linear", 2.0, 0.0)))
    values = {"post_op_1_weights": depthwise, "post_op_1_bias": bias}
    window = {name: pair * 2 for name, pair in NO_WINDOW.items()} | {"algorithm": "direct"}
    between = np.einsum("ncxy,oc->noxy", src.astype(int), weights[..., 0, 0].astype(int))
    between = np.clip(between, 0, 10**6).clip(0, 127)
    padded = np.pad(between, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = np.zeros((1, 3, 3, 2))
    for _, c, x, y in np.ndindex(wanted.shape):
        taps = padded[0, c, 2 * x : 2 * x + 3, 2 * y : 2 * y + 3]
        wanted[0, c, x, y] = 2 * ((taps * depthwise[c, 0, 0].astype(int)).sum() + bias[c])
    arrays = {"src": src, "weights": weights}
    result = computed("convolution", arrays, ((1, 3, 5, 4), "s8"), window, attributes, values)
    assert result.dtype == np.float32
    assert np.array_equal(result, wanted)


def test_a_reorder_is_inlays_own_with_its_attributes() -> None:
    src = np.array([[10.0, -10.0], [3.0, 4.0]], np.float32)
    attributes = PrimitiveAttributes(
        scales={"src": Scales(mask=0b01)}, zero_points={"dst": ZeroPoints()}, post_ops=(SumPostOp(scale=2.0),)
    )
    values = {"src_scales": np.array([1.0, 10.0], np.float32), "dst_zero_points": np.array([1], np.int32)}
    old = np.array([[1, 2], [3, 4]], np.int8)
    result = computed("reorder", {"src": src}, ((2, 2), "s8"), {}, attributes, values, old)
    assert result.tolist() == [[13, -5], [37, 49]]


REFUSED: list[tuple[Operation, type[Exception], str]] = [
    (
        Operation(
            "reorder",
            "forward_inference",
            {"src": MemoryDesc((2,), "f32"), "dst": MemoryDesc((2,), "f32")},
            attributes=PrimitiveAttributes(post_ops=(EltwisePostOp("relu"),)),
        ),
        Unimplemented,
        "a reorder is followed by one sum without a zero point or a type: (EltwisePostOp(algorithm='relu', alpha=0.0, "
        "beta=0.0),) are other post-operations, run them as primitives of their own",
    ),
    (
        Operation(
            "eltwise",
            "forward_inference",
            {"src": MemoryDesc((RUNTIME, 3), "f32", "ab"), "dst": MemoryDesc((2, 3), "f32")},
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
            {"diff_src": MemoryDesc((1, 1, 4), "f32"), "diff_dst": MemoryDesc((1, 1, 2), "f32")},
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
def test_what_is_refused_is_said(operation: Operation, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as refusal:
        reference.make_engine().create(operation)
    assert str(refusal.value) == text


@pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))
@pytest.mark.parametrize("src_type", ["u8", "s8"])
@pytest.mark.parametrize("dst_type", ["u8", "s8", "s32", "f32"])
def test_quantized_results_are_those_of_onednn(src_type: str, dst_type: str) -> None:
    random = np.random.default_rng([DATA_TYPES[src_type].code, DATA_TYPES[dst_type].code])
    src = random.integers(0, 127, (2, 17, 6, 5)).astype(DATA_TYPES[src_type].dtype)
    weights = random.integers(-60, 60, (19, 17, 3, 2)).astype(np.int8)
    arrays = {"src": src, "weights": weights, "bias": random.normal(size=19).astype(np.float32)}
    post_ops = (
        EltwisePostOp("linear", 0.5, 1.0),
        BinaryPostOp("add", MemoryDesc((1, 19, 1, 1), "f32")),
        SumPostOp(scale=0.25),
    )
    attributes = PrimitiveAttributes(
        scales={"src": Scales(), "weights": Scales(mask=1), "dst": Scales()},
        zero_points={"src": ZeroPoints(), "dst": ZeroPoints()},
        post_ops=post_ops,
    )
    values = {
        "src_scales": np.array([0.03], np.float32),
        "weights_scales": random.uniform(0.01, 0.1, 19).astype(np.float32),
        "dst_scales": np.array([0.7], np.float32),
        "src_zero_points": np.array([11], np.int32),
        "dst_zero_points": np.array([5], np.int32),
        "post_op_1_src_1": random.normal(size=19).astype(np.float32),
    }
    if dst_type == "f32":
        attributes = PrimitiveAttributes(attributes.scales, {"src": ZeroPoints()}, post_ops)
        del values["dst_zero_points"]
    window = {"algorithm": "direct", "strides": (1, 2), "dilations": (0, 0), "padding_l": (1, 0), "padding_r": (1, 0)}
    old = random.integers(0, 100, (2, 19, 6, 2)).astype(DATA_TYPES[dst_type].dtype)
    dst = ((2, 19, 6, 2), dst_type)
    found, wanted = (
        computed("convolution", arrays, dst, window, attributes, values, old, engine).astype(float)
        for engine in (onednn.make_engine(), reference.make_engine())
    )
    # A number near the middle of two integers may be rounded to either.
    assert np.abs(found - wanted).max() <= (1 if dst_type != "f32" else 1e-4)
    assert (found != wanted).mean() < 0.01 or dst_type == "f32"
    assert len(np.unique(wanted)) > 50
