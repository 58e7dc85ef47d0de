"""Scales, repeated heads and rotary positions of attention: fewer nodes, and the same numbers as plain NumPy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.graph.network import Network
from inlay.graph.op_graph import Array
from tests.graph.passes.test_attention_masks import load_nodes

SPECIAL = (np.nan, np.inf, -np.inf)
Q, K, MASK = (2, 4, 3, 6), (2, 2, 5, 6), (2, 1, 3, 5)
SHAPES = {"wide": (2, 2, 2, 5, 6), "heads": (2, 4, 5, 6), "flat": (8, 5, 6), "again": (2, 4, 6, 5)}


def load(nodes: list[Any], inputs: Mapping[str, tuple[int, ...]], output: tuple[int, ...], constants: Any) -> Network:
    """Return the network of nodes on inputs of float32 that writes `y`."""
    return load_nodes(
        nodes, [(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()], ("y", output), constants
    )


def draw(dims: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return random arrays."""
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(extents, np.float32) for name, extents in dims.items()}


def operators(network: Network) -> list[str]:
    """Return the operators of a network in order."""
    return [node.operator for node in network.nodes]


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize(("left", "right"), [("Mul", "Mul"), ("Div", "Mul"), ("Mul", ""), ("", "Div")])
def test_scales_of_operands_scale_the_product(engine: Any, left: str, right: str) -> None:
    numbers = {"a": np.full(1, 0.5, np.float32), "b": np.full((), 0.7, np.float32)}
    nodes, sources, factor = [], [], 1.0
    for name, number, operator in (("q", "a", left), ("k", "b", right)):
        sources.append(f"{name}_scaled" if operator else name)
        nodes += [helper.make_node(operator, [name, number], [sources[-1]])] if operator else []
        factor *= float(numbers[number].max()) ** {"": 0, "Mul": 1, "Div": -1}[operator]
    nodes.append(helper.make_node("MatMul", sources, ["y"]))
    dims: dict[str, tuple[int, ...]] = {"q": (2, 3, 4), "k": (2, 4, 5)}
    network = load(nodes, dims, (2, 3, 5), numbers)
    assert operators(network) == ["MatMul", "Mul"]
    session, inputs = inlay.plan(network, costs="analytic", isa="AVX2", threads=1).compile(engine=engine), draw(dims)
    for value in (0.5, *SPECIAL):
        inputs["q"][1, 2, 3] = value
        with np.errstate(all="ignore"):
            wanted = inputs["q"].astype(np.float64) @ inputs["k"] * factor
        np.testing.assert_allclose(session.run(inputs)["y"], wanted, rtol=1e-5, atol=1e-5)


def test_scales_that_are_no_numbers_or_of_constants_stay() -> None:
    inputs = {"q": (2, 3, 4), "k": (2, 4, 5)}
    nodes = [helper.make_node("Mul", ["q", "a"], ["t"]), helper.make_node("MatMul", ["t", "k"], ["y"])]
    for number in (np.ones(4, np.float32), np.zeros(1, np.float32), np.full(1, np.inf, np.float32)):
        assert operators(load(nodes, inputs, (2, 3, 5), {"a": number})) == ["Mul", "MatMul"]
    weights = {"a": np.full(1, 2, np.float32), "k": np.ones((4, 5), np.float32)}
    assert operators(load(nodes, {"q": (2, 3, 4)}, (2, 3, 5), weights)) == ["Mul", "MatMul"]


def grouped(is_old: bool, is_constant: bool, mask: tuple[int, ...]) -> Network:
    """Return masked products of queries and keys that groups of them share, as either exporter writes them."""
    constants: dict[str, Any] = {f"{name}_dims": np.array(dims, np.int64) for name, dims in SHAPES.items()}
    constants |= {"axis": np.array([2]), "half": np.full(1, 0.5, np.float32), "keys_dims": constants["heads_dims"]}
    nodes = [
        helper.make_node("Unsqueeze", ["k", "axis"], ["k1"]),
        helper.make_node("Expand", ["k1", "wide_dims"], ["k2"]),
    ]
    steps = [("Reshape", "heads_dims", None), ("Transpose", "", [0, 1, 3, 2])]
    if not is_old:
        steps = [("Reshape", "flat_dims", None), ("Transpose", "", [0, 2, 1]), ("Reshape", "again_dims", None)]
    last = "k2"
    for index, (operator, shape, perm) in enumerate(steps):
        attributes: dict[str, Any] = {} if perm is None else {"perm": perm}
        nodes.append(helper.make_node(operator, [last, shape] if shape else [last], [f"t{index}"], **attributes))
        last = f"t{index}"
    nodes += [
        helper.make_node("Mul", ["q", "half"], ["q1"]),
        helper.make_node("MatMul", ["q1", last], ["s"]),
        helper.make_node("Add", ["s", "m"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"]),
        helper.make_node("Reshape", ["k2", "heads_dims"], ["v"]),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    inputs: dict[str, tuple[int, ...]] = {"q": Q, "k": K}
    constants |= {"m": np.random.default_rng(4).standard_normal(mask, np.float32)} if is_constant else {}
    return load(nodes, inputs if is_constant else {**inputs, "m": mask}, Q, constants)


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("mask", [MASK, (3, 5), (2, 1, 1, 5), (1, 4, 3, 5), (1,)])
def test_grouped_queries_copy_neither_keys_nor_values(
    engine: Any, is_old: bool, is_constant: bool, mask: tuple[int, ...]
) -> None:
    network = grouped(is_old, is_constant, mask)
    plan = inlay.plan(network, costs="analytic", isa="AVX2", threads=1)
    assert not any(
        network.tensors[node.inputs[0]].dims[-1:] == (6,) for node in network.nodes if node.operator == "Expand"
    )
    session, inputs = plan.compile(engine=engine), draw({"q": Q, "k": K, "m": mask})
    numbers = network.constants.get("m", inputs["m"])
    numbers = np.random.default_rng(4).standard_normal(mask, np.float32) if is_constant else numbers
    for value in (0.5, *SPECIAL):
        inputs["q"][1, 3, 2] = value
        k = np.repeat(inputs["k"], 2, 1).astype(np.float64)
        with np.errstate(all="ignore"):
            scores = inputs["q"] @ k.swapaxes(2, 3) * 0.5 + numbers
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            wanted = powers / powers.sum(-1, keepdims=True) @ k
        found = session.run({name: inputs[name] for name in network.inputs})["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_constant", [True, False])
def test_rotary_positions_negate_sines_and_not_features(is_constant: bool) -> None:
    tables = draw({"cos": (1, 1, 3, 6), "sin": (1, 1, 3, 6)})
    bounds = {name: np.array([n]) for name, n in (("zero", 0), ("half", 3), ("end", 6), ("last", 3))}
    nodes = [
        helper.make_node("Slice", ["q", "zero", "half", "last"], ["first"]),
        helper.make_node("Slice", ["q", "half", "end", "last"], ["second"]),
        helper.make_node("Neg", ["second"], ["negative"]),
        helper.make_node("Concat", ["negative", "first"], ["turned"], axis=-1),
        helper.make_node("Mul", ["turned", "sin"], ["b"]),
        helper.make_node("Mul", ["q", "cos"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    inputs = {"q": Q, **({} if is_constant else {name: table.shape for name, table in tables.items()})}
    network = load(nodes, inputs, Q, {**bounds, **(tables if is_constant else {})})
    assert "Neg" not in operators(network)
    session, arrays = (
        inlay.plan(network, costs="analytic", isa="AVX2", threads=1).compile(),
        {**draw({"q": Q}), **tables},
    )
    for value in (0.5, *SPECIAL):
        arrays["q"][1, 3, 2, 4] = value
        turned = np.concatenate([-arrays["q"][..., 3:], arrays["q"][..., :3]], -1)
        with np.errstate(all="ignore"):
            wanted = arrays["q"] * tables["cos"] + turned * tables["sin"]
        found = session.run({name: arrays[name] for name in network.inputs})["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_a_cube_by_products_is_part_of_gelu() -> None:
    constants = {
        name: np.float32(n).reshape(()) for name, n in (("c", 0.044715), ("r", 0.79788456), ("h", 0.5), ("i", 1))
    }
    chain = [("xx", "x", "x"), ("xxx", "x", "xx"), ("cube", "c", "xxx"), ("sum", "x", "cube"), ("inner", "r", "sum")]
    nodes = [helper.make_node("Add" if name == "sum" else "Mul", [a, b], [name]) for name, a, b in chain]
    nodes.append(helper.make_node("Tanh", ["inner"], ["t"]))
    nodes += [
        helper.make_node(operator, pair, [name])
        for operator, pair, name in (("Add", ["i", "t"], "u"), ("Mul", ["x", "u"], "v"), ("Mul", ["h", "v"], "y"))
    ]
    network = load(nodes, {"x": (2, 3)}, (2, 3), constants)
    assert [(node.operator, node.attributes) for node in network.nodes] == [("Gelu", {"approximate": "tanh"})]
