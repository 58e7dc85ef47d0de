"""Scales and zero points of operations: in plans, in runs and in saved plans."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import Session
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments
from inlay.graph.costs import analytic
from inlay.graph.costs.machine import is_weights
from inlay.graph.op_graph import Array, Op, OpGraph, operation_of
from inlay.graph.passes.range_guards import GUARDED, place_guards
from inlay.graph.passes.value_ranges import ANY, bounded, infer_range, range_of_array, result_range
from inlay.graph.plan import plan_graph
from inlay.graph.planner.adaptation import has_same_operations
from inlay.graph.planner.groups import group_operations
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.saved_plans.plan_file import read_plan
from inlay.graph.states import TensorState
from inlay.primitives.attributes import EltwisePostOp, PrimitiveAttributes
from inlay.reordering.attributes import Scales, ZeroPoints
from tests.graph.test_saved_plans import edit
from tests.support.graph_programs import drawn, graph_of, plain_plan, relu

RNG = np.random.default_rng(5)
WEIGHTS = RNG.integers(-128, 128, (64, 32)).astype(np.int8)
WEIGHTS_SCALES = RNG.uniform(0.01, 0.1, 32).astype(np.float32)
ATTRIBUTES = PrimitiveAttributes(scales={"src": Scales(), "weights": Scales(mask=2)}, zero_points={"src": ZeroPoints()})
QUANTIZE = Op("quantize", "dynamic_quantization", {"src": "x"}, {"dst": "q", "scale": "s", "zero_point": "z"})
PRODUCT = Op(
    "product",
    "matmul",
    {"src": "q", "src_scales": "s", "src_zero_points": "z"},
    {"dst": "y"},
    {"weights": WEIGHTS, "weights_scales": WEIGHTS_SCALES},
    attributes=ATTRIBUTES,
)
DESCS = {"src": MemoryDesc((4, 64), "u8", "ab"), "dst": MemoryDesc((4, 32), "f32", "ab")}
VALUE_DESCS = {"src_scales": MemoryDesc((1,), "f32"), "src_zero_points": MemoryDesc((1,), "s32")}


def quantized_graph() -> OpGraph:
    """A product of dynamically quantized elements, and a ReLU."""
    dims = {"x": (4, 64), "q": (4, 64), "s": (1,), "z": (1,), "y": (4, 32), "r": (4, 32)}
    return graph_of([QUANTIZE, PRODUCT, relu("relu", "y", "r")], dims, "x", "r", q=np.uint8, z=np.int32)


def expected(x: Array) -> Array:
    """The ReLU of the product by NumPy, in f64 from the integers on."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / np.float32(255))
    zero_point = np.rint(-low / scale)
    integers = np.clip(np.rint(x / scale) + zero_point, 0, 255)
    product = (integers.astype(np.float64) - zero_point) @ WEIGHTS.astype(np.float64)
    return np.asarray(np.maximum(product * float(scale) * WEIGHTS_SCALES, 0))


def test_scales_of_weights_are_weights() -> None:
    product = operation_of(PRODUCT, DESCS | VALUE_DESCS)
    names = ("weights", "weights_scales", "src_scales", "src")
    assert [is_weights(name, product) for name in names] == [True, True, False, False]
    descs = {"src": MemoryDesc((4, 64), "f32"), "dst": DESCS["src"], "scale": MemoryDesc((1,), "f32")}
    quantize = operation_of(QUANTIZE, descs | {"zero_point": MemoryDesc((1,), "s32")})
    assert not is_weights("scale", quantize)


@pytest.mark.parametrize("engine", ["reference", None])
@pytest.mark.parametrize("planned", [plain_plan, lambda graph: plan_graph(graph, analytic("avx512_core"))])
def test_a_plan_computes_with_scales_of_the_network(planned: Callable[[OpGraph], Any], engine: str | None) -> None:
    graph, x = quantized_graph(), drawn(4, 64)
    found = planned(graph)
    with ProgramSession(found.program, graph, engine=engine) as session:
        np.testing.assert_allclose(session.run({"x": x})["r"], expected(x), rtol=1e-5, atol=1e-4)


def test_an_operation_has_the_attributes_without_descriptors_of_their_values() -> None:
    found = operation_of(PRODUCT, DESCS | VALUE_DESCS, (EltwisePostOp("relu"),))
    assert found.attributes == replace(ATTRIBUTES, post_ops=(EltwisePostOp("relu"),))
    assert found.descs == DESCS | {"weights": MemoryDesc((64, 32), "s8", "any")}


def test_weights_may_have_another_type_than_their_array() -> None:
    op = Op("product", "matmul", {"src": "x"}, {"dst": "y"}, {"weights": drawn(64, 32), "bias": drawn(1, 32)})
    descs = {name: MemoryDesc(desc.dims, "bf16", "ab") for name, desc in DESCS.items()}
    found = operation_of(op, descs, weights_type="bf16").descs
    assert (str(found["weights"].data_type), str(found["bias"].data_type)) == ("bf16", "f32")


def test_a_value_that_is_missing_is_named() -> None:
    op = replace(PRODUCT, reads={"src": "q", "src_scales": "s"})
    with pytest.raises(InvalidArguments) as caught:
        operation_of(op, DESCS | {"src_scales": VALUE_DESCS["src_scales"]})
    assert str(caught.value) == (
        "product, a matmul: its attributes need src_zero_points: add them to its reads or its constants"
    )


def test_nothing_is_fused_after_scales_of_the_result_nor_with_scales_of_its_own() -> None:
    graph = quantized_graph()
    assert [len(group.epilogue) for group in group_operations(graph)] == [0, 1]
    scaled = {"dst_scales": np.ones(1, np.float32)}
    quantized = replace(
        PRODUCT,
        attributes=PrimitiveAttributes(scales={"dst": Scales()}),
        constants=scaled | {"weights": WEIGHTS},
        reads={"src": "q"},
    )
    last = replace(graph.ops[2], attributes=quantized.attributes, constants=scaled)
    for ops in ((quantized, graph.ops[2]), (PRODUCT, last)):
        groups = group_operations(replace(graph, ops=(QUANTIZE, *ops)))
        assert [len(group.epilogue) for group in groups] == [0, 0, 0]


def test_operations_with_other_attributes_are_not_the_same() -> None:
    graph = quantized_graph()
    other = replace(PRODUCT, attributes=replace(ATTRIBUTES, fpmath_integers=True))
    assert has_same_operations(graph, quantized_graph())
    assert not has_same_operations(graph, replace(graph, ops=(QUANTIZE, other, graph.ops[2])))
    assert replace(graph, ops=(QUANTIZE, other, graph.ops[2])) != graph


def test_the_range_of_a_product_follows_from_that_of_what_was_quantized() -> None:
    """Elements from -1 to 4 have integers that differ from the zero point by 5 at most, times the scale."""
    quantized = infer_range(QUANTIZE, {"src": bounded(-1, 4)}, {"src": (4, 64)})
    assert (quantized.low, quantized.high) == (0, 1)
    scale = result_range(QUANTIZE, "scale", bounded(0, 5 / 255), np.dtype(np.float32))
    zero_point = result_range(QUANTIZE, "zero_point", scale, np.dtype(np.int32))
    assert (zero_point.low, zero_point.high) == (0, 255)
    constants = {"weights": range_of_array(WEIGHTS), "weights_scales": range_of_array(WEIGHTS_SCALES)}
    ranges = constants | {"src": bounded(0, 255), "src_scales": scale, "src_zero_points": zero_point}
    found = infer_range(PRODUCT, ranges, {"src": (4, 64), "weights": (64, 32), "dst": (4, 32)})
    exact = 5 * (np.abs(WEIGHTS.astype(np.int64)).sum(axis=0) * WEIGHTS_SCALES.astype(np.float64)).max()
    assert found.high == -found.low == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("op", [QUANTIZE, PRODUCT])
def test_nothing_is_known_about_results_of_what_may_be_infinite(op: Op) -> None:
    ranges = {"src": bounded(0, 255) if op is PRODUCT else ANY, "src_scales": ANY, "src_zero_points": bounded(0, 255)}
    ranges |= {"weights": range_of_array(WEIGHTS), "weights_scales": range_of_array(WEIGHTS_SCALES)}
    assert infer_range(op, ranges, {"src": (4, 64), "weights": (64, 32), "dst": (4, 32)}) == ANY


def test_a_guard_of_the_input_proves_what_follows_quantized_elements() -> None:
    """A ReLU of NaN needs exact kernels; the largest number of 8 bits does not."""
    graph = quantized_graph()
    assert place_guards(graph, {"x": 1024}, frozenset()) == {"x": GUARDED}


@given(st.integers(0, 2**32 - 1), st.integers(-128, 127), st.booleans(), st.sampled_from(["matmul", "conv", "groups"]))
def test_results_are_within_their_range(seed: int, zero: int, one_scale: bool, kind: str) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(-128, 128, (12, 6)).astype(np.int8)
    scales = rng.uniform(-2, 2, 1 if one_scale else 6).astype(np.float32)
    src, scale = rng.integers(0, 256, (9, 12)), float(rng.uniform(0, 3))
    values = {"src": bounded(0, 255), "src_scales": bounded(0, scale), "src_zero_points": bounded(0, 255)}
    constants: dict[str, Array] = {"weights": weights, "weights_scales": scales}
    zero_points = {"src": ZeroPoints()}
    dims: dict[str, tuple[int, ...]] = {"src": (9, 12), "weights": (12, 6), "dst": (9, 6)}
    if kind == "matmul":
        constants["weights_zero_points"], zero_points["weights"] = np.array([zero], np.int32), ZeroPoints()
    else:
        zero, shape = 0, (6, 12, 1, 1) if kind == "conv" else (2, 3, 12, 1, 1)
        constants["weights"], dims["weights"], dims["src"] = weights.T.reshape(shape), shape, (9, 12, 1, 1)
    attributes = PrimitiveAttributes(scales={"src": Scales(), "weights": Scales()}, zero_points=zero_points)
    name = "matmul" if kind == "matmul" else "convolution"
    op = Op("op", name, PRODUCT.reads, {"dst": "y"}, constants, attributes=attributes)
    found = infer_range(op, values | {key: range_of_array(array) for key, array in constants.items()}, dims)
    result = (src - int(rng.integers(0, 256))) @ (weights.astype(np.float64) - zero) * scales * scale
    assert found.low <= result.min() <= result.max() <= found.high


# Saved plans


def save(tmp_path: Path) -> tuple[Any, Path]:
    """A plan of the graph, in which `x` may be stored as bf16 and is a state, and its file."""
    graph = replace(
        quantized_graph(), storage_types={"x": ("bf16",)}, states=(TensorState("x", None, axis=0, maximum=4),)
    )
    found, path = plan_graph(graph, analytic()), tmp_path / "plan.inlay"
    found.save(path)
    return found, path


def test_a_saved_plan_has_attributes_types_of_storage_and_states(tmp_path: Path) -> None:
    found, path = save(tmp_path)
    loaded, x = read_plan(path).plan, drawn(4, 64)
    assert loaded.graph == found.graph
    assert loaded.program.states == {"x": "x"}
    with Session.load(path) as session, found.compile() as other:
        assert session.run({"x": x})["r"].tobytes() == other.run({"x": x})["r"].tobytes()


@pytest.mark.parametrize(
    ("keys", "value", "error"),
    [
        (
            ("graph", "ops", 1, "attributes", "scales", "weights", "mask"),
            3,
            "weights_scales of 'product' is MemoryDesc((32,), 'f32', 'a'), and MemoryDesc((2048,), 'f32', 'a') follows",
        ),
        (("graph", "storage_types", "x"), ["s8"], "tensor 'x', float32, has the types of storage ('s8',)"),
        (("graph", "storage_types"), {"q": ["bf16"]}, "tensor 'q', uint8, has the types of storage ('bf16',)"),
        (("graph", "states", 0, "axis"), 2, "state 'x' has axis 2 and maximum 4"),
        (("program", "states"), {}, "the program has other states than the graph"),
    ],
)
def test_a_file_whose_tables_do_not_fit_is_refused(
    tmp_path: Path, keys: tuple[Any, ...], value: Any, error: str
) -> None:
    _, path = save(tmp_path)

    def change(records: dict[str, Any]) -> None:
        part: Any = records["plan"]
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value

    edit(path, change)
    with pytest.raises(FileError) as caught:
        Session.load(path)
    assert str(caught.value) == f"{path} holds no valid plan: {error}"
