"""Small networks whose saved plans have all sorts of content, and their plans."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import inlay
from inlay.graph.plan import Plan
from tests.support.network_runs import model_of, node
from tests.support.networks import Model

Array = np.ndarray[Any, np.dtype[Any]]


def _weights(**dims: tuple[int, ...]) -> dict[str, Array]:
    """Seeded numbers of these dims."""
    rng = np.random.default_rng(7)
    return {name: (rng.standard_normal(shape) / 4).astype(np.float32) for name, shape in dims.items()}


def convolutions(batch: int = 1) -> Model:
    """Convolutions with bias, ReLU and a shortcut, and a product: fused steps, packed weights, a view, guards."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2", pads=[1, 1, 1, 1]),
        node("Add", "c2 x", "a"),
        node("Relu", "a", "r2"),
        node("GlobalAveragePool", "r2", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f w3 b3", "s", transB=1),
        node("Softmax", "s", "y"),
    ]
    stored = _weights(w1=(16, 16, 3, 3), b1=(16,), w2=(16, 16, 3, 3), w3=(10, 16), b3=(10,))
    return model_of(nodes, {"x": (batch, 16, 8, 8)}, ["y"], stored)


def recurrent() -> Model:
    """An LSTM, whose packed weights may have a format of the engine."""
    nodes = [node("LSTM", "x w r b", "h", hidden_size=8), node("Squeeze", "h axes", "y")]
    stored = _weights(w=(1, 32, 6), r=(1, 32, 8), b=(1, 64)) | {"axes": np.array([1])}
    return model_of(nodes, {"x": (5, 2, 6)}, ["y"], stored)


def references() -> Model:
    """Nodes without a primitive: integers, indices, a function; and views that need copies."""
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        node("Slice", "t starts ends axes", "p"),
        node("Erf", "p", "e"),
        node("TopK", "e k", "v i", axis=-1),
        node("Concat", "i i", "j", axis=1),
        node("Mul", "v v", "y"),
    ]
    stored = {name: np.array([n]) for name, n in (("starts", 1), ("ends", 3), ("axes", 0), ("k", 3))}
    return model_of(nodes, {"x": (2, 4, 6)}, ["y", "j"], stored)


MODELS: Mapping[str, Callable[[], Model]] = {
    "convolutions": convolutions,
    "recurrent": recurrent,
    "references": references,
}


def plan_of(name: str, engine: str = "reference", fallback: Any = False) -> Plan:
    """The plan of a network for an engine."""
    network = inlay.load(MODELS[name]().SerializeToString())
    return inlay.plan(network, costs="probed", engine=engine, fallback=fallback)


def inputs_for(plan: Any, seed: int = 0) -> dict[str, Array]:
    """Random inputs of a plan."""
    rng = np.random.default_rng(seed)
    return {one.name: rng.standard_normal(one.dims).astype(one.dtype) for one in plan.inputs}
