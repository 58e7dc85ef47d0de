"""Networks, graphs and plans are equal if what they say is, arrays by their bytes."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlay import load, plan
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network, Node, Subgraph, Tensor
from inlay.graph.onnx.reading import load_bound
from tests.support.network_runs import model_of, node

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4, 1, 1)


def plain() -> Network:
    """A network with constants, of arrays of its own."""
    nodes = [node("Conv", "x w", "c"), node("Erf", "c", "y")]
    return load_bound(model_of(nodes, {"x": (1, 4, 2, 2)}, ["y"], {"w": WEIGHTS}).SerializeToString())


def made(**changes: Any) -> Network:
    """`plain`, with a node that has an array as an attribute, and with other fields than these."""
    network = plain()
    extra = Node("e", "Extra", ("y",), ("z",), {"value": np.array([1, np.nan]), "axes": (0, 1)})
    tensors = {**network.tensors, "z": Tensor("z", (2,), np.dtype(np.float64))}
    return replace(replace(network, nodes=(*network.nodes, extra), tensors=tensors), **changes)


def test_networks_of_distinct_equal_arrays_are_equal() -> None:
    one, other = made(), made()
    assert one.constants["w"] is not other.constants["w"]
    assert one == other == replace(other, again=None)  # how a network is read again is not compared
    assert one == pickle.loads(pickle.dumps(one))
    with pytest.raises(TypeError):
        hash(one)


@pytest.mark.parametrize(
    "changes",
    [
        {"constants": {"w": np.where(WEIGHTS == 3, np.float32(7), WEIGHTS)}},
        {"constants": {"w": np.where(WEIGHTS == 0, np.float32(-0.0), WEIGHTS)}},
        {"constants": {"w": WEIGHTS.astype(np.int32)}},
        {"constants": {"w": WEIGHTS.reshape(4, 3, 1, 1)}},
        {"constants": {"w": "weights"}},
        {"constants": {}},
        {"nodes": (*made().nodes[:-1], replace(made().nodes[-1], attributes={}))},
        {"nodes": made().nodes[1:]},
        {"name": "other"},
    ],
    ids=["element", "sign of zero", "type", "dims", "no array", "no constant", "attribute", "node", "name"],
)
def test_a_difference_makes_networks_unequal(changes: dict[str, Any]) -> None:
    assert made() != made(**changes)
    assert made(**changes) != made()


def test_a_network_equals_nothing_else() -> None:
    assert made() != "a network"
    assert made() != plain()


def test_graphs_and_plans_of_equal_networks_are_equal() -> None:
    first, second = plain(), plain()
    assert lower_network(first) == lower_network(second)
    plans = [plan(network, costs="analytic", isa="avx2", threads=1) for network in (first, second)]
    assert plans[0] == plans[1]
    assert plans[0] != plan(first, costs="analytic", isa="sse41", threads=1)


def test_what_holds_arrays_is_shown_by_their_types_and_dims() -> None:
    network = load(
        model_of([node("Conv", "x w", "c")], {"x": (1, 4, 2, 2)}, ["c"], {"w": WEIGHTS + 0.4375}).SerializeToString()
    )
    planned = plan(network, costs="analytic", isa="avx2", threads=1)
    steps = [step for step in planned.program.steps if step.constants]
    assert [*map(repr, steps)] == [repr(replace(step, constants={"weights": WEIGHTS + 1})) for step in steps]
    for value in (planned.program, planned.graph, planned.graph.ops[0], steps[0]):
        assert "'weights': <float32 (3, 4, 1, 1)>" in repr(value)
        assert "4375" not in repr(value)


def test_attributes_are_shown_without_elements_and_bytes() -> None:
    attributes = {"value": np.full((2, 3), 4375), "body": b"graph" * 99, "axes": (1, np.ones(2)), "mode": "a"}
    shown = "{'value': <int64 (2, 3)>, 'body': <495 bytes>, 'axes': (1, <float64 (2,)>), 'mode': 'a'}"
    extra = Node("e", "Extra", ("y",), ("z",), attributes)
    assert repr(extra) == (
        f"Node(name='e', operator='Extra', inputs=('y',), outputs=('z',), attributes={shown}, domain='')"
    )
    assert shown in repr(Subgraph("s", "Subgraph", ("y",), ("z",), nodes=(extra,)))
