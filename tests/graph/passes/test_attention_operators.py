"""Attention and RotaryEmbedding as nodes that have primitives: results and steps, beside Inlay's functions in NumPy."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array

BATCH, HEADS, GROUPS, QUERIES, KEYS, SIZE, WIDTH = 2, 4, 2, 5, 7, 6, 3
SPECIAL = (np.nan, np.inf, -np.inf)
RNG = np.random.default_rng(5)
MASKS: dict[str, Array | None] = {
    "none": None,
    "bool": np.tril(np.ones((QUERIES, KEYS), bool), 1),
    "float": RNG.standard_normal((BATCH, 1, QUERIES, KEYS), np.float32),
    "heads": RNG.standard_normal((HEADS, QUERIES, KEYS), np.float32),
    "empty rows": np.arange(QUERIES)[:, None] > np.array([1] * KEYS),
    "padding": np.arange(KEYS) >= np.array([3, 6])[:, None, None, None],
}


def load_node(operator: str, arrays: dict[str, Array], constants: set[str], attributes: dict[str, Any]) -> Network:
    """Return the network of one node of opset 23, with inputs of the names and dims of `arrays`."""
    names = list(arrays)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
        if name not in constants
    ]
    weights = [
        helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array)
        for name, array in arrays.items()
        if name in constants
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node(operator, names, ["y"], **attributes)]
    graph = helper.make_graph(nodes, operator, inputs, [output], weights)
    return load_bound(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]).SerializeToString())


def run(network: Network, inputs: dict[str, Array], engine: Any = None) -> Array:
    """Return the result of a network."""
    plan = inlay.plan(network, costs="analytic", isa="AVX2", threads=1)
    return plan.compile(engine=engine).run({name: inputs[name] for name in network.inputs})["y"]


def attention_arrays(is_flat: bool, heads: int, mask: Array | None) -> dict[str, Array]:
    """Return random queries, keys and values, of three axes if `is_flat`, and the mask."""
    rng, arrays = np.random.default_rng(1), {}
    for name, count, length, size in (("q", HEADS, QUERIES, SIZE), ("k", heads, KEYS, SIZE), ("v", heads, KEYS, WIDTH)):
        dims = (BATCH, length, count * size) if is_flat else (BATCH, count, length, size)
        arrays[name] = rng.standard_normal(dims, np.float32)
    return arrays if mask is None else {**arrays, "m": mask}


def heads_of(array: Array, count: int) -> Array:
    """Return an array with axes batch, heads, sequence, features, where each head is there for each query's head."""
    if array.ndim == 3:
        array = array.reshape(*array.shape[:2], count, -1).transpose(0, 2, 1, 3)
    return np.asarray(np.repeat(array, HEADS // count, 1), np.float64)


def expected_attention(arrays: dict[str, Array], heads: int, causal: int, scale: float, softcap: float) -> Array:
    """Return the result of Attention, row by row; 0 where all keys are masked."""
    q, (k, v) = heads_of(arrays["q"], HEADS), (heads_of(arrays[name], heads) for name in "kv")
    mask = arrays.get("m", np.zeros(1, np.float32))
    numbers = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
    bias, result = np.broadcast_to(numbers, (BATCH, HEADS, QUERIES, KEYS)), np.zeros((BATCH, HEADS, QUERIES, WIDTH))
    for at in np.ndindex(BATCH, HEADS, QUERIES):
        row = np.where(np.arange(KEYS) > at[2], -np.inf, bias[at]) if causal else bias[at]
        with np.errstate(all="ignore"):
            scores = k[at[:2]] @ q[at] * scale
            scores = (np.tanh(scores / softcap) * softcap if softcap else scores) + row
            powers = np.exp(scores - scores.max())
            shares = np.zeros(KEYS) if np.isneginf(row).all() else powers / powers.sum()
            result[at] = shares @ v[at[:2]]
    is_flat = arrays["q"].ndim == 3
    return result.transpose(0, 2, 1, 3).reshape(BATCH, QUERIES, -1) if is_flat else result


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("is_flat", "heads", "causal", "scale", "softcap"),
    [(True, HEADS, 0, None, 0.0), (False, GROUPS, 1, 0.3, 0.0), (True, 1, 1, None, 1.5), (False, HEADS, 1, None, 0.0)],
)
def test_attention_has_no_reference_but_for_its_mask(
    engine: Any, is_constant: bool, mask: str, is_flat: bool, heads: int, causal: int, scale: Any, softcap: float
) -> None:
    arrays = attention_arrays(is_flat, heads, MASKS[mask])
    attributes = {"is_causal": causal, "softcap": softcap} | ({} if scale is None else {"scale": scale})
    attributes |= {"q_num_heads": HEADS, "kv_num_heads": heads} if is_flat else {}
    network = load_node("Attention", arrays, {"m"} if is_constant else set(), attributes)
    assert "Attention" not in {node.operator for node in network.nodes}
    plan = inlay.plan(network, costs="analytic", isa="AVX2", threads=1)
    references = [step for step in plan.program.steps if step.kind == "reference"]
    assert len(references) <= (0 if is_constant or "m" not in arrays else 2)
    session = plan.compile(engine=engine)
    for name, value in (("q", 0.5), *(("q", one) for one in SPECIAL), ("k", np.nan), ("v", np.inf)):
        inputs = {key: array.copy() for key, array in arrays.items()}
        inputs[name][-1, -1, 1] = value
        wanted = expected_attention(inputs, heads, causal, scale or SIZE**-0.5, softcap)
        found = session.run({key: inputs[key] for key in network.inputs})["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize("is_interleaved", [0, 1])
@pytest.mark.parametrize("constants", [set(), {"c", "s"}, {"c", "s", "p"}])
@pytest.mark.parametrize(("is_flat", "part", "has_positions"), [(True, 4, True), (False, 0, False), (True, 0, True)])
def test_rotary_embedding_turns_pairs(
    engine: Any, is_interleaved: int, constants: set[str], is_flat: bool, part: int, has_positions: bool
) -> None:
    rng, size, turned = np.random.default_rng(2), 8, part or 8
    dims = (BATCH, QUERIES, HEADS * size) if is_flat else (BATCH, HEADS, QUERIES, size)
    table = (9, turned // 2) if has_positions else (BATCH, QUERIES, turned // 2)
    arrays: dict[str, Array] = {
        name: rng.standard_normal(d, np.float32) for name, d in (("x", dims), ("c", table), ("s", table))
    }
    arrays |= {"p": rng.integers(0, 9, (BATCH, QUERIES))} if has_positions else {}
    attributes = {"interleaved": is_interleaved, "rotary_embedding_dim": part} | (
        {"num_heads": HEADS} if is_flat else {}
    )
    network = load_node("RotaryEmbedding", arrays, constants, attributes)
    assert "RotaryEmbedding" not in {node.operator for node in network.nodes}
    for value in (0.5, *SPECIAL):
        arrays["x"][-1, -1, 1] = value
        x = heads_of(arrays["x"], HEADS)
        cosines, sines = (arrays[n][arrays["p"]] if has_positions else arrays[n] for n in "cs")
        wanted = x.copy()
        with np.errstate(all="ignore"):
            for k in range(turned // 2):
                i, j = (2 * k, 2 * k + 1) if is_interleaved else (k, k + turned // 2)
                c, s = cosines[:, None, :, k], sines[:, None, :, k]
                wanted[..., i], wanted[..., j] = c * x[..., i] - s * x[..., j], s * x[..., i] + c * x[..., j]
        wanted = wanted.transpose(0, 2, 1, 3).reshape(dims) if is_flat else wanted
        np.testing.assert_allclose(run(network, arrays, engine), wanted, rtol=1e-4, atol=1e-5)
