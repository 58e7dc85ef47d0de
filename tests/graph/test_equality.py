"""Networks, graphs and plans are equal if what they say is, arrays by their bytes."""

import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from inlay import load, plan
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network, Node, Tensor
from tests.support.network_runs import model_of

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4, 1, 1)


def made() -> Network:
    """A network with constants and with a node that has an array as an attribute, of arrays of its own."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Erf", ["c"], ["y"])]
    network = load(model_of(nodes, {"x": (1, 4, 2, 2)}, ["y"], {"w": WEIGHTS}).SerializeToString())
    extra = Node("e", "Extra", ("y",), ("z",), {"value": np.array([1, np.nan]), "axes": (0, 1)})
    tensors = {**network.tensors, "z": Tensor("z", (2,), np.dtype(np.float64))}
    return replace(network, nodes=(*network.nodes, extra), tensors=tensors)


def with_constant(array: np.ndarray) -> Network:
    """`made`, with another array for its weights."""
    network = made()
    (name,) = network.constants
    return replace(network, constants={name: array})


def test_networks_of_distinct_equal_arrays_are_equal() -> None:
    one, other = made(), made()
    assert next(iter(one.constants.values())) is not next(iter(other.constants.values()))
    assert one == other
    assert one == pickle.loads(pickle.dumps(one))


OTHERS: dict[str, Callable[[], object]] = {
    "an element": lambda: with_constant(np.where(WEIGHTS == 3, np.float32(7), WEIGHTS)),
    "the sign of zero": lambda: with_constant(np.where(WEIGHTS == 0, np.float32(-0.0), WEIGHTS)),
    "a type": lambda: with_constant(WEIGHTS.astype(np.int32)),
    "dims": lambda: with_constant(WEIGHTS.reshape(4, 3, 1, 1)),
    "no array": lambda: with_constant("weights"),  # type: ignore[arg-type]
    "no constant": lambda: replace(made(), constants={}),
    "an attribute": lambda: replace(made(), nodes=(*made().nodes[:-1], replace(made().nodes[-1], attributes={}))),
    "a node": lambda: replace(made(), nodes=made().nodes[1:]),
    "a name": lambda: replace(made(), name="other"),
    "no network": lambda: "a network",
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_difference_makes_networks_unequal(name: str) -> None:
    assert made() != OTHERS[name]()
    assert OTHERS[name]() != made()


def test_how_a_network_is_read_again_is_not_compared() -> None:
    assert made() == replace(made(), again=None)


def test_graphs_and_plans_of_equal_networks_are_equal() -> None:
    first, second = (replace(made(), nodes=made().nodes[:-1]) for _ in range(2))
    assert lower_network(first) == lower_network(second)
    plans = [plan(network, costs="analytic", isa="avx2", threads=1) for network in (first, second)]
    assert plans[0] == plans[1]
    other = plan(first, costs="analytic", isa="sse41", threads=1)
    assert plans[0] != other


def test_what_holds_arrays_has_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(made())
