"""Masks of attention and guards against NaN: computed once or not at all, and right for every number."""

import warnings
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array, exact_graph
from inlay.graph.runtime.guards import build_guards
from inlay.graph.runtime.plain import plain_program

Q, K, KEYS = (2, 2, 3, 4), (2, 2, 4, 5), (1, 1, 1, 5)
SCORES = (2, 2, 3, 5)
SPECIAL = (np.nan, np.inf, -np.inf)


def attention(mask: Array | None, *, is_bounded: bool = False) -> Network:
    """Return attention as PyTorch exports it, with a constant mask of scores or one that an input states.

    `is_bounded` tells that the first layer reads the hyperbolic tangents of queries and keys.
    """
    keys = [("keys", TensorProto.INT64, KEYS)] if mask is None else []
    inputs = [("q", TensorProto.FLOAT, Q), ("k", TensorProto.FLOAT, K), ("v", TensorProto.FLOAT, (2, 2, 5, 4)), *keys]
    constants: dict[str, Any] = {
        "zero": np.array([0], np.float32),
        "least": np.array([-np.inf], np.float32),
        "whole": np.array([2, 1, 3, 5], np.int64),
    }
    nodes = [helper.make_node("Tanh", [name], [f"{name}_t"]) for name in "qk" if is_bounded]
    for layer in "ab":
        if mask is None:
            nodes.append(helper.make_node("Cast", ["keys"], [f"{layer}_bool"], to=TensorProto.BOOL))
            nodes.append(helper.make_node("Expand", [f"{layer}_bool", "whole"], [f"{layer}_wide"]))
            nodes.append(helper.make_node("Where", [f"{layer}_wide", "zero", "least"], [f"{layer}_mask"]))
        else:
            constants[f"{layer}_mask"] = np.where(mask, np.float32(0), np.float32(-np.inf))
        src, k = ("q_t", "k_t") if is_bounded else ("q", "k")
        src = "a_y" if layer == "b" else src
        steps = [
            ("MatMul", [src, k], "scores"),
            ("Add", ["scores", "mask"], "sum"),
            ("Softmax", ["sum"], "p"),
            ("IsNaN", ["p"], "isnan"),
            ("Where", ["isnan", "zero", "p"], "safe"),
            ("MatMul", ["safe", "v"], "y"),
        ]
        own = {name for _, _, name in steps} | {"mask"}
        for operator, reads, name in steps:
            names = [f"{layer}_{one}" if one in own else one for one in reads]
            nodes.append(helper.make_node(operator, names, [f"{layer}_{name}"]))
    return load_nodes(nodes, inputs, ("b_y", Q), constants)


def load_nodes(nodes: list[Any], inputs: list[Any], output: tuple[str, Any], constants: dict[str, Any]) -> Network:
    """Return the network of these nodes, simplified."""
    reads = [helper.make_tensor_value_info(*one) for one in inputs]
    writes = [helper.make_tensor_value_info(output[0], TensorProto.FLOAT, output[1])]
    weights = [
        helper.make_tensor(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape, a) for n, a in constants.items()
    ]
    graph = helper.make_graph(nodes, "attention", reads, writes, weights)
    return load_bound(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString())


def expected(inputs: dict[str, Array], mask: Array) -> Array:
    """Return the result of two layers of attention, row by row."""
    k, v, src = (inputs[name].astype(np.float64) for name in "kvq")
    rows = np.broadcast_to(mask, SCORES)
    for _ in range(2):
        result = np.zeros(Q)
        for at in np.ndindex(*Q[:3]):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                scores = src[at] @ k[at[:2]] + np.where(rows[at], 0, -np.inf)
                powers = np.exp(scores - scores.max())
                shares = powers / powers.sum()
                result[at] = np.where(np.isnan(shares), 0, shares) @ v[at[:2]]
        src = result
    return src


def draw(seed: int = 0) -> dict[str, Array]:
    """Return random queries, keys and values."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(dims, np.float32) for name, dims in (("q", Q), ("k", K), ("v", (2, 2, 5, 4)))}


CAUSAL = np.tril(np.ones((3, 5), bool))
ENGINES = pytest.mark.parametrize("engine", [None, "reference"])
FALLBACKS = pytest.mark.parametrize("fallback", ["auto", False])


@ENGINES
@FALLBACKS
@pytest.mark.parametrize("masked_row", [False, True])
def test_a_constant_mask_leaves_no_guard_and_every_number_is_right(
    engine: Any, fallback: Any, masked_row: bool
) -> None:
    mask = CAUSAL & (np.arange(3) != 1)[:, None] if masked_row else CAUSAL
    plan = inlay.plan(attention(mask), costs="analytic", isa="AVX2", threads=1, fallback=fallback)
    assert not any(step.kind == "reference" for step in plan.program.steps)
    session = plan.compile(engine=engine)
    for name, value in (("q", 0.5), *(("q", special) for special in SPECIAL), ("k", np.nan), ("v", np.nan)):
        inputs = draw()
        inputs[name][1, 0, 2, 1] = value
        np.testing.assert_allclose(session.run(inputs)["b_y"], expected(inputs, mask), rtol=1e-4, atol=1e-6)


@ENGINES
@FALLBACKS
def test_a_mask_of_an_input_is_computed_once(engine: Any, fallback: Any) -> None:
    plan = inlay.plan(attention(None), costs="analytic", isa="AVX2", threads=1, fallback=fallback)
    references = [step for step in plan.program.steps if step.kind == "reference"]
    assert len([step for step in references if "a_p" in step.reads.values()]) == 0
    assert len(references) <= 2  # Cast and Where of both layers
    session = plan.compile(engine=engine)
    for count in (5, 3, 0):
        keys = (np.arange(5) < count).astype(np.int64).reshape(KEYS)
        inputs = {**draw(), "keys": keys}
        np.testing.assert_allclose(session.run(inputs)["b_y"], expected(inputs, keys > 0), rtol=1e-4, atol=1e-6)


def test_a_row_with_a_key_needs_no_check_of_its_softmax() -> None:
    for mask, is_checked in ((CAUSAL, False), (CAUSAL & (np.arange(3) != 1)[:, None], True)):
        graph = lower_network(attention(mask, is_bounded=True))
        program = inlay.plan(graph, costs="analytic", isa="AVX2", threads=1).program
        after = build_guards(program, graph).after
        assert after is not None
        checked = {program.buffers[name].tensor for names in after.values() for name in names}
        assert ("a_p" in checked) == is_checked


def test_the_exact_form_computes_the_nodes_themselves() -> None:
    graph = lower_network(attention(CAUSAL))
    nodes = [op.node.operator for op in exact_graph(graph).ops if op.node is not None]
    assert nodes == ["IsNaN", "Where"] * 2
    assert exact_graph(exact_graph(graph)) == exact_graph(graph)
    plain_program(exact_graph(graph))


@ENGINES
@pytest.mark.parametrize("number", [-np.inf, np.inf, np.finfo(np.float32).min, -1e9, 0.0, 2.5])
@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("shape", [(4, 4), (1, 1, 1, 4), (2, 1, 4, 4), (2, 3, 4, 4)])
def test_a_constant_mask_is_arithmetic(engine: Any, number: float, is_kept: bool, shape: tuple[int, ...]) -> None:
    mask, dims = np.random.default_rng(1).random(shape) < 0.5, (2, 3, 4, 4)
    branches = ["x", "c"] if is_kept else ["c", "x"]
    constants = {"m": mask, "c": np.array([number], np.float32)}
    nodes = [helper.make_node("Where", ["m", *branches], ["y"])]
    network = load_nodes(nodes, [("x", TensorProto.FLOAT, dims)], ("y", dims), constants)
    plan = inlay.plan(network, costs="analytic", isa="AVX2", threads=1)
    assert not any(step.kind == "reference" for step in plan.program.steps)
    session = plan.compile(engine=engine)
    for special in (1.0, -0.0, 1e38, *SPECIAL):
        x = np.random.default_rng(2).standard_normal(dims, np.float32)
        x[1, 2] = special
        wanted = np.where(mask == is_kept, x, np.float32(number))
        np.testing.assert_array_equal(session.run({"x": x})["y"], wanted)
