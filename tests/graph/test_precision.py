"""Requests of precision, and the types that the file of a model declares."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import inlay
from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.graph.network import Network, Node, Tensor
from inlay.graph.op_graph import Op, OpGraph, ReshapeView, operation_of
from inlay.graph.passes.precision import widen_narrow_floats
from inlay.graph.planner.types import list_type_combinations
from inlay.graph.precision import (
    PrecisionRequest,
    assign_storage_types,
    infer_declared,
    narrow_constants,
    restrict_types,
    round_to,
    supported_types,
)
from tests.support.graph_programs import conv, drawn, graph_of, relu
from tests.support.refusals import raises_exactly

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("precision", ["model", "f32"])
def test_a_plan_of_f32_stores_f32(precision: Any) -> None:
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 8)), "x", "y")
    found = inlay.plan(graph, costs="analytic", precision=precision)
    assert found.precision == precision
    assert found.graph.storage_types == {}
    x = drawn(2, 8)
    np.testing.assert_array_equal(found.compile("reference").run({"x": x})["y"], np.maximum(x, 0))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"precision": "half"}, "precision is 'half': give one of f32, bf16, f16, auto, model"),
        ({"precision": 16}, "precision is 16: give one of f32, bf16, f16, auto, model"),
        (
            {"precision": "auto", "tolerance": 0},
            "tolerance is 0: give a positive number, such as 0.01",
        ),
        (
            {"precision": "auto", "tolerance": 10**400},
            f"tolerance is {shown(10**400)}: give a positive number, such as 0.01",
        ),
        ({"precision": "auto", "tolerance": True}, "tolerance is True: give a positive number, such as 0.01"),
        (
            {"tolerance": 0.1},
            "tolerance is 0.1, and precision model chooses no types by their error: leave it out, or give "
            "precision='auto'",
        ),
        (
            {"precision": "bf16", "samples": {"x": np.zeros((2, 3), np.float32)}},
            "samples are for errors, and precision bf16 limits none: leave them out, or give tolerance too, such as "
            "precision='bf16', tolerance=0.01",
        ),
    ],
)
@pytest.mark.parametrize("call", [inlay.plan, inlay.compile])
def test_requests_that_are_not_valid_are_refused(call: Any, options: dict[str, Any], error: str) -> None:
    x, y = (Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xy")
    network = Network("tiny", 13, ("x",), ("y",), (Node("n", "Relu", ("x",), ("y",)),), {"x": x, "y": y})
    with raises_exactly(InvalidArguments, error):
        call(network, costs="analytic", **options)


@pytest.mark.parametrize("tolerance", [1, np.float32(0.5), np.int64(1), Fraction(1, 2)])
def test_a_tolerance_is_any_real_number(tolerance: Any) -> None:
    request = PrecisionRequest("auto", tolerance)
    request.require_valid()
    assert type(request.limit) is float
    assert request.limit == tolerance


def test_the_types_of_the_model_are_kept_beside_the_widened_network() -> None:
    pytest.importorskip("onnx")
    types = {"x": BF16, "w": BF16, "h": BF16, "y": BF16, "n": np.dtype(np.float32), "m": np.dtype(np.float32)}
    tensors = {name: Tensor(name, (2, 2), dtype) for name, dtype in types.items()}
    nodes = (
        Node("a", "MatMul", ("x", "w"), ("h",)),
        Node("b", "Relu", ("h",), ("y",)),
        Node("c", "Relu", ("n",), ("m",)),
    )
    constants = {"w": np.ones((2, 2), BF16)}
    found = widen_narrow_floats(Network("narrow", 17, ("x", "n"), ("y", "m"), nodes, tensors, constants))
    assert found.declared_types == dict.fromkeys(("w", "h", "x:f32", "y:f32"), "bf16") | dict.fromkeys("nm", "f32")
    assert {found.tensors[name].dtype.name for name in found.declared_types} == {"float32"}


def test_errors_are_measured_on_this_machine_only() -> None:
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 8)), "x", "y")
    text = (
        "precision auto runs the plan to measure errors, and isa avx2 is of another processor: leave it out, or give "
        "precision='bf16' without a tolerance"
    )
    with raises_exactly(InvalidArguments, text):
        inlay.plan(graph, costs="analytic", isa="avx2", precision="auto")


@pytest.mark.parametrize(
    ("isa", "types"),
    [
        ("AVX2", set()),
        ("AVX2_VNNI_2", {"bf16", "f16"}),
        ("AVX512_CORE_VNNI", set()),
        ("AVX512_CORE_BF16", {"bf16"}),
        ("AVX512_CORE_FP16", {"bf16", "f16"}),
        ("avx512_core_amx", {"bf16", "f16"}),
    ],
)
def test_a_type_is_stored_where_the_processor_computes_in_it(isa: str, types: set[str]) -> None:
    graph = block()
    assert supported_types(isa) == types
    for name in ("bf16", "f16"):
        found = assign_storage_types(graph, {}, PrecisionRequest(name), isa)
        wanted = (name,) if name in types else ()
        assert {found.storage_types.get(tensor, ()) for tensor in "xcsvry"} == {wanted}
        assert "i" not in found.storage_types
    assert assign_storage_types(graph, {}, PrecisionRequest("f32"), isa) is graph


def block() -> OpGraph:
    """A convolution, two views, a ReLU, and a reference of integers."""
    views = [
        Op("flat", "view", {"src": "c"}, {"dst": "s"}, transforms=(ReshapeView((1, 64)),)),
        Op("back", "view", {"src": "s"}, {"dst": "v"}, transforms=(ReshapeView((1, 16, 2, 2)),)),
    ]
    ids = Op("ids", "reference", {"src_0": "i"}, {"dst_0": "j"}, node=Node("ids", "Identity", ("i",), ("j",)))
    ops = [conv("conv", "x", "c", drawn(16, 16, 1, 1)), *views, relu("relu", "v", "r"), relu("end", "r", "y"), ids]
    dims = dict.fromkeys("xcvry", (1, 16, 2, 2)) | {"s": (1, 64), "i": (4,), "j": (4,)}
    return graph_of(ops, dims, "x i", "y j", i=np.int64, j=np.int64)


def test_auto_stores_bf16() -> None:
    found = assign_storage_types(block(), {}, PrecisionRequest("auto"), "AVX512_CORE_BF16")
    assert found.storage_types["c"] == ("bf16",)
    assert (PrecisionRequest("auto").limit, PrecisionRequest("auto", 0.5).limit) == (0.01, 0.5)
    assert (PrecisionRequest("bf16").limit, PrecisionRequest("bf16", 0.5).limit) == (None, 0.5)


def test_operations_that_are_kept_in_f32_have_infinite_penalties() -> None:
    request = PrecisionRequest("bf16", keep_f32=frozenset(("conv",)))
    assert request.penalties == {("conv", "bf16"): np.inf, ("conv", "f16"): np.inf}


def test_the_model_stores_what_it_declares() -> None:
    """`c` is bf16 in the model, `v` and `s` are new tensors after it, `r` is f32."""
    declared = {"x": "bf16", "c": "bf16", "r": "f32", "y": "f32"}
    assert infer_declared(block(), declared) == declared | {"s": "bf16", "v": "bf16"}
    found = assign_storage_types(block(), declared, PrecisionRequest(), "AVX512_CORE_BF16")
    assert found.storage_types == dict.fromkeys("xcsv", ("bf16",))
    assert assign_storage_types(block(), declared, PrecisionRequest(), "AVX2").storage_types == {}
    assert assign_storage_types(block(), {}, PrecisionRequest(), "AVX512_CORE_BF16").storage_types == {}


def test_a_tensor_that_the_model_rounds_for_a_product_may_be_narrow() -> None:
    """A Cast from f32 before a convolution of bf16 is no operation any more: its f32 source is read."""
    declared = {"x": "f32", "c": "bf16", "r": "f32", "y": "f32"}
    found = assign_storage_types(block(), declared, PrecisionRequest(), "AVX512_CORE_BF16")
    assert found.storage_types == dict.fromkeys("xcsv", ("bf16",))


def test_new_tensors_before_a_narrow_one_are_narrow_too() -> None:
    """The model has `v` in bf16: `c` and `s` are parts of its computation. `r` is new, and between tensors of f32."""
    declared = {"x": "f32", "v": "bf16", "y": "f32"}
    graph = block()
    cast = Op("cast", "view", {"src": "v"}, {"dst": "w"}, transforms=(ReshapeView((1, 16, 2, 2)),))
    ops = [*graph.ops[:3], cast, relu("relu", "w", "r"), *graph.ops[4:]]
    tensors = {**graph.tensors, "w": replace(graph.tensors["v"], name="w")}
    found = infer_declared(replace(graph, ops=tuple(ops), tensors=tensors), declared | {"w": "f32"})
    assert found == {"x": "bf16", "c": "bf16", "s": "bf16", "v": "bf16", "w": "f32", "r": "f32", "y": "f32"}


@pytest.mark.parametrize("data_type", ["bf16", "f16"])
def test_weights_of_a_narrow_model_take_two_bytes(data_type: str) -> None:
    exact = round_to(drawn(16, 16, 1, 1), data_type).astype(np.float32)
    inexact, bias = drawn(16, 16, 1, 1, seed=1), round_to(drawn(16), data_type).astype(np.float32)
    ops = [conv("one", "x", "c", exact), conv("two", "c", "d", inexact), conv("three", "d", "y", exact)]
    ops[0] = replace(ops[0], constants={**ops[0].constants, "bias": bias})
    graph = graph_of(ops, dict.fromkeys("xcdy", (1, 16, 2, 2)), "x", "y")
    found = narrow_constants(graph, {"w": data_type})
    one, two, three = (op.constants["weights"] for op in found.ops)
    assert one.dtype == three.dtype == as_data_type(data_type).dtype
    assert one is three
    np.testing.assert_array_equal(one.astype(np.float32), exact)
    assert two is inexact
    assert found.ops[0].constants["bias"] is bias
    assert narrow_constants(graph, {"w": "f32"}) is graph
    assert narrow_constants(graph, {}) is graph


def test_weights_get_the_type_of_their_source() -> None:
    """The array may have another one: it is converted when it is packed."""
    for array in (drawn(16, 16, 1, 1), round_to(drawn(16, 16, 1, 1), "bf16")):
        op = conv("c", "x", "y", array)
        for name in ("f32", "bf16"):
            desc = MemoryDesc((1, 16, 2, 2), name)
            assert operation_of(op, {"src": desc, "dst": desc}).descs["weights"].data_type == as_data_type(name)
            explicit = operation_of(op, {"src": desc, "dst": desc}, weights_type="f16").descs["weights"]
            assert explicit.data_type == as_data_type("f16")


def test_types_of_another_processor_are_left_out() -> None:
    graph = replace(block(), storage_types={"c": ("bf16", "f16"), "x": ("f16",)})
    assert restrict_types(graph, "AVX512_CORE_BF16").storage_types == {"c": ("bf16",)}
    assert restrict_types(graph, "AVX2").storage_types == {}


def test_the_types_of_an_operation_are_those_of_its_tensors() -> None:
    op = relu("relu", "x", "y")
    graph = graph_of([op], dict.fromkeys("xy", (2, 8)), "x", "y")
    assert list_type_combinations(op, graph) == ({"src": "f32", "dst": "f32"},)
