"""ONNX's operator Attention with keys and values before the others: in one run, and step by step."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import inlay
from inlay.errors import InvalidArguments
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenNetwork
from inlay.graph.states import StateOptions
from tests.support.refusals import raises_exactly

HEADS, SIZE, WIDTH = 4, 64, 8
STATES = [f"past_key_values.0.{part}" for part in ("key", "value")]
PRESENTS = [f"present.0.{part}" for part in ("key", "value")]


def attention_model(groups: int, opset: int, is_flat: bool = False, scores: bool = False, **attributes: Any) -> Any:
    """One Attention with a cache of `groups` heads of keys and values."""

    def new(name: str, heads: int, size: int) -> Any:
        dims: Any = ["batch", "new", heads * size] if is_flat else ["batch", heads, "new", size]
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    def cached(name: str, length: str, size: int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", groups, length, size])

    if is_flat:
        attributes |= {"q_num_heads": HEADS, "kv_num_heads": groups}
    inputs = [new("q", HEADS, SIZE), new("k", groups, SIZE), new("v", groups, WIDTH)]
    inputs += [cached(name, "past", size) for name, size in zip(STATES, (SIZE, WIDTH), strict=True)]
    outputs = [new("y", HEADS, WIDTH)]
    outputs += [cached(name, "total", size) for name, size in zip(PRESENTS, (SIZE, WIDTH), strict=True)]
    node = helper.make_node("Attention", ["q", "k", "v", "", *STATES], ["y", *PRESENTS], **attributes)
    nodes = [node]
    if scores:  # something else reads the cache
        nodes.append(helper.make_node("ReduceMax", [PRESENTS[0]], ["most"], name="most", keepdims=0))
        outputs.append(helper.make_tensor_value_info("most", TensorProto.FLOAT, []))
    graph = helper.make_graph(nodes, "attention", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def arrays(batch: int, groups: int, past: int, new: int, is_flat: bool = False) -> dict[str, Array]:
    rng = np.random.default_rng(past + new)
    found = {}
    for name, heads, size in (("q", HEADS, SIZE), ("k", groups, SIZE), ("v", groups, WIDTH)):
        dims = (batch, new, heads * size) if is_flat else (batch, heads, new, size)
        found[name] = rng.standard_normal(dims, np.float32)
    for name, size in zip(STATES, (SIZE, WIDTH), strict=True):
        found[name] = rng.standard_normal((batch, groups, past, size), np.float32)
    return found


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize(("past", "new", "is_flat"), [(5, 3, False), (0, 4, False), (7, 1, True), (63, 1, False)])
def test_attention_with_a_cache_equals_onnx(
    opset: int, groups: int, is_causal: int, past: int, new: int, is_flat: bool
) -> None:
    model = attention_model(groups, opset, is_flat, is_causal=is_causal, scale=0.2)
    inputs = arrays(2, groups, past, new, is_flat)
    loaded = inlay.load(model.SerializeToString())
    assert isinstance(loaded, OpenNetwork)
    network = loaded.bind({"batch": 2, "past": past, "new": new})
    assert "Attention" not in {node.operator for node in network.nodes}
    found = inlay.plan(network, costs="probed").compile().run(inputs)
    names = ["y", *PRESENTS]
    for name, expected in zip(names, ReferenceEvaluator(model).run(names, inputs), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("groups", [4, 2])
def test_steps_equal_the_whole_sequence(groups: int) -> None:
    model = attention_model(groups, 23, is_causal=1)
    whole = arrays(2, groups, 0, 150)
    results: Any = ReferenceEvaluator(model).run(["y"], whole)
    expected = results[0]
    session = inlay.compile(inlay.load(model.SerializeToString()), costs="probed", state=StateOptions(maximum=200))
    state = session.new_state(batch=2)
    for first, last in ((0, 20), *((at, at + 1) for at in range(20, 148)), (148, 150)):
        found = session.step({name: whole[name][:, :, first:last] for name in "qkv"}, state=state)
        assert found.keys() == {"y"}
        np.testing.assert_allclose(found["y"], expected[:, :, first:last], rtol=0, atol=1e-5)


def test_another_reader_of_a_state_without_mask_is_refused() -> None:
    network = inlay.load(attention_model(4, 23, scores=True).SerializeToString())
    with raises_exactly(
        InvalidArguments,
        "ReduceMax 'most' reads past_key_values.0.key, and the model has no input attention_mask, which excludes "
        "positions that are not written yet: export it with one",
    ):
        inlay.compile(network, costs="probed", state=StateOptions())
