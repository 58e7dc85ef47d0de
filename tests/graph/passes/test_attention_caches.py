"""Attention of opset 23 and 24 with keys and values of earlier positions, as nodes that have primitives.

The oracle computes each query by itself in float64, from the definition of ONNX.
"""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.errors import InvalidArguments
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from tests.support.refusals import raises_exactly

BATCH, HEADS, SIZE, WIDTH = 2, 4, 6, 3
NAMES = ("q", "k", "v", "m", "pk", "pv", "n")
WINDOWS_SINCE = 25
"""Opset since which Attention has windows."""
RESULTS = ("y", "present_key", "present_value")


def load_attention(
    arrays: dict[str, Array], attributes: dict[str, Any], results: tuple[str, ...] = RESULTS, opset: int = 24
) -> Network:
    """Return the network of one Attention, with inputs of the names and dims of `arrays`."""
    is_empty = any(0 in array.shape for array in arrays.values())
    return load_bound(attention_model(arrays, attributes, results, opset), dims={"past": 0} if is_empty else {})


def attention_model(
    arrays: dict[str, Array], attributes: dict[str, Any], results: tuple[str, ...] = RESULTS, opset: int = 24
) -> bytes:
    """Return the model of one Attention; an extent of 0 is the open dim `past`."""
    inputs = []
    for name, array in arrays.items():
        dims = [n or "past" for n in array.shape]  # 0 in a file is an extent that is not known
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    names = [name if name in arrays else "" for name in NAMES]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        "Attention", names, [name if name in results else "" for name in RESULTS], "node", **attributes
    )
    graph = helper.make_graph([node], "attention", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    serialized: bytes = model.SerializeToString()
    return serialized


def draw(is_flat: bool, groups: int, queries: int, past: int | None, keys: int | None = None) -> dict[str, Array]:
    """Return random queries, keys, values and caches; those of a cache have four axes always."""
    rng, arrays = np.random.default_rng(3), {}
    for name, heads, length, size in (
        ("q", HEADS, queries, SIZE),
        ("k", groups, keys or queries, SIZE),
        ("v", groups, keys or queries, WIDTH),
    ):
        dims = (BATCH, length, heads * size) if is_flat else (BATCH, heads, length, size)
        arrays[name] = rng.standard_normal(dims, np.float32)
    if past is not None:
        arrays |= {
            name: rng.standard_normal((BATCH, groups, past, size), np.float32)
            for name, size in (("pk", SIZE), ("pv", WIDTH))
        }
    return arrays


def with_heads(array: Array, heads: int) -> Array:
    """Return an array with the axes batch, heads, sequence, features, in float64."""
    if array.ndim == 3:
        array = array.reshape(*array.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    return array.astype(np.float64)


def expected(
    arrays: dict[str, Array], groups: int, is_causal: bool, before: int = 99, after: int = 99
) -> dict[str, Array]:
    """Return the results of Attention, query by query; 0 where all keys are masked.

    A query sees so many keys before and after its own position.
    """
    q, k, v = (with_heads(arrays[name], heads) for name, heads in (("q", HEADS), ("k", groups), ("v", groups)))
    past = 0
    if "pk" in arrays:
        past = arrays["pk"].shape[2]
        k, v = np.concatenate([arrays["pk"], k], 2), np.concatenate([arrays["pv"], v], 2)
    queries, keys = q.shape[2], k.shape[2]
    mask = arrays.get("m", np.zeros(1, np.float32))
    numbers = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
    bias, y = np.broadcast_to(numbers, (BATCH, HEADS, queries, keys)), np.zeros((BATCH, HEADS, queries, WIDTH))
    for b, h, i in np.ndindex(BATCH, HEADS, queries):
        valid = int(arrays["n"][b]) if "n" in arrays else keys
        own = i + (valid - queries if "n" in arrays else past)
        window = range(max(own - before, 0), min(own + (0 if is_causal else after), valid - 1) + 1)
        seen = [j for j in window if not np.isneginf(bias[b, h, i, j])]
        if seen:
            head = h // (HEADS // groups)
            powers = np.exp(k[b, head, seen] @ q[b, h, i] * SIZE**-0.5 + bias[b, h, i, seen])
            y[b, h, i] = powers @ v[b, head, seen] / powers.sum()
    is_flat = arrays["q"].ndim == 3
    return {
        "y": y.transpose(0, 2, 1, 3).reshape(BATCH, queries, -1) if is_flat else y,
        "present_key": k,
        "present_value": v,
    }


def attributes_of(is_flat: bool, groups: int, is_causal: int) -> dict[str, int]:
    """Return the attributes of an Attention."""
    return {"is_causal": is_causal} | ({"q_num_heads": HEADS, "kv_num_heads": groups} if is_flat else {})


def require_results(network: Network, arrays: dict[str, Array], wanted: dict[str, Array], references: int = 0) -> None:
    """Check all results on both engines, and that NumPy computes no more than so many steps."""
    assert "Attention" not in {node.operator for node in network.nodes}
    plan = inlay.plan(network, costs="analytic", isa="AVX2", threads=1)
    assert len([step for step in plan.program.steps if step.kind == "reference"]) <= references
    for engine in (None, "reference"):
        found = plan.compile(engine=engine).run({name: arrays[name] for name in network.inputs})
        for name in network.outputs:
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize(("queries", "past"), [(1, 5), (3, 4), (3, 0), (1, 0), (3, None)])
@pytest.mark.parametrize(("is_flat", "groups", "is_causal"), [(True, 4, 1), (False, 2, 1), (True, 1, 0)])
def test_a_cache_precedes_new_keys(
    is_flat: bool, groups: int, is_causal: int, queries: int, past: int | None, mask: str
) -> None:
    arrays = draw(is_flat, groups, queries, past)
    keys = (past or 0) + queries
    if mask == "bool":
        arrays["m"] = np.arange(keys) >= np.array([0, keys // 2])[:, None, None, None]
    elif mask == "float":
        arrays["m"] = np.random.default_rng(4).standard_normal((HEADS, queries, keys), np.float32)
    network = load_attention(arrays, attributes_of(is_flat, groups, is_causal), opset=23)
    require_results(network, arrays, expected(arrays, groups, bool(is_causal)), 2 if mask != "none" else 0)


@pytest.mark.parametrize("past", [3, None])
@pytest.mark.parametrize("results", [("y",), ("y", "present_key"), ("y", "present_value")])
def test_keys_and_values_are_results_where_they_are_read(results: tuple[str, ...], past: int | None) -> None:
    arrays = draw(True, 2, 2, past)
    network = load_attention(arrays, attributes_of(True, 2, 1), results)
    assert network.outputs == results
    require_results(network, arrays, expected(arrays, 2, True))


@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize(("is_flat", "groups", "is_causal"), [(True, 4, 1), (False, 2, 0), (False, 1, 1)])
def test_keys_after_the_valid_ones_are_not_seen(
    is_flat: bool, groups: int, is_causal: int, queries: int, mask: str
) -> None:
    arrays = draw(is_flat, groups, queries, None, keys=8)
    arrays["n"] = np.array([8, 2])  # 3 queries, the last of which is the second valid key: the first one sees none
    if mask == "bool":
        arrays["m"] = np.random.default_rng(5).random((BATCH, 1, queries, 8)) < 0.7
    elif mask == "float":
        arrays["m"] = np.random.default_rng(6).standard_normal((HEADS, queries, 8), np.float32)
    network = load_attention(arrays, attributes_of(is_flat, groups, is_causal), ("y",))
    require_results(network, arrays, expected(arrays, groups, bool(is_causal)), 5)


def test_heads_that_share_keys_are_not_repeated() -> None:
    arrays = draw(False, 1, 1, 31)
    network = load_attention(arrays, attributes_of(False, 1, 1))
    assert "Expand" not in {node.operator for node in network.nodes}
    plan = inlay.plan(network, costs="analytic", isa="AVX2", threads=1)
    sizes = [
        np.prod(network.tensors[buffer.tensor].dims)
        for buffer in plan.program.buffers.values()
        if buffer.tensor in network.tensors
    ]
    assert max(sizes) == BATCH * 32 * SIZE


@pytest.mark.parametrize(("before", "after"), [(2, -1), (-1, 1), (0, 0), (3, 1)])
@pytest.mark.parametrize(("is_causal", "queries", "past"), [(0, 4, 3), (1, 4, 3), (1, 1, 6), (0, 5, 0)])
def test_windows_are_constant_masks(is_causal: int, queries: int, past: int, before: int, after: int) -> None:
    arrays = draw(False, 2, queries, past)
    windows = {"left_window_size": before, "right_window_size": after}
    network = load_attention(arrays, {**attributes_of(False, 2, is_causal), **windows}, opset=WINDOWS_SINCE)
    limits = [n if n >= 0 else 99 for n in (before, after)]
    require_results(network, arrays, expected(arrays, 2, bool(is_causal), *limits))


UNFITTING: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, int], str]] = {
    "heads that do not divide features": ({}, {"q_num_heads": 64}, "64 heads do not fit dims (2, 3, 24)"),
    "heads that are not shared equally": (
        {"k": (2, 3, 18), "v": (2, 3, 9)},
        {"kv_num_heads": 3},
        "queries, keys and values of dims (2, 4, 3, 6) and (2, 3, 3, 6) and (2, 3, 3, 3) do not fit",
    ),
    "fewer values than keys": (
        {"v": (2, 2, 12)},
        {},
        "queries, keys and values of dims (2, 4, 3, 6) and (2, 4, 3, 6) and (2, 4, 2, 3) do not fit",
    ),
    "a cache of other features": (
        {"pk": (2, 4, 5, 7), "pv": (2, 4, 5, 3)},
        {},
        "a cache of dims (2, 4, 5, 7) does not fit keys or values of dims (2, 4, 3, 6)",
    ),
    "a mask of five axes": ({"m": (1, 1, 1, 3, 3)}, {}, "a mask of dims (1, 1, 1, 3, 3) does not fit 3 keys"),
    "counts of another batch": ({"n": (3,)}, {}, "nonpad_kv_seqlen of dims (3,) does not fit dims (2, 4, 3, 6)"),
}


@pytest.mark.parametrize("name", UNFITTING)
def test_inputs_that_do_not_fit_are_refused_by_name(name: str) -> None:
    dims, attributes, text = UNFITTING[name]
    arrays = draw(True, HEADS, 3, None)
    arrays |= {one: np.zeros(n, np.int64 if one == "n" else np.float32) for one, n in dims.items()}
    results = RESULTS if "pk" in dims else RESULTS[:1]
    network = load_attention(arrays, attributes_of(True, HEADS, 0) | attributes, results)
    with raises_exactly(InvalidArguments, f"node 'node': Attention: {text}"):
        inlay.compile(network, engine="reference", costs="analytic").run(arrays)


def test_a_scale_of_0_gives_all_keys_equal_shares() -> None:
    arrays = draw(False, HEADS, 3, None)
    network = load_attention(arrays, {"scale": 0.0}, RESULTS[:1])
    mean = np.broadcast_to(arrays["v"].mean(2, keepdims=True), arrays["v"].shape)
    require_results(network, arrays, {"y": mean})


@pytest.mark.parametrize("dims", [(0, 3), (2, 0)])
def test_no_queries_have_no_results(dims: tuple[int, int]) -> None:
    arrays = {name: np.zeros((*dims, HEADS * SIZE), np.float32) for name in ("q", "k", "v")}
    network = inlay.load(attention_model(arrays, attributes_of(True, HEADS, 0), RESULTS[:1]))
    result = inlay.compile(network, engine="reference", costs="analytic").run(arrays)["y"]
    assert result.shape == (*dims, HEADS * SIZE)
