"""Small networks in which tensors meet themselves: read twice, answered and read, viewed and added to, joined twice.

Each is computed by the package onnx, and by sessions of the best and of random plans.
"""

import pickle
import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from inlay.errors import InvalidArguments, MissingExtra
from inlay.graph.costs import Costs, probed
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load, load_bound
from inlay.graph.op_graph import Array
from inlay.graph.passes.elementwise_motion import hoist_elementwise
from inlay.graph.plan import plan, plan_graph
from inlay.graph.planner.emission import emit_program
from inlay.graph.planner.plan_search import assign_formats
from inlay.graph.planner.problem import make_problem
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.session import Session
from inlay.primitives import get_engine
from tests.support.network_runs import model_of, node, relative_error, run_model
from tests.support.networks import Model

try:
    get_engine("onednn")
except MissingExtra:
    pytest.skip("no oneDNN", allow_module_level=True)

RANDOM_PLANS = 6
DIMS = (2, 16, 4, 4)
RNG = np.random.default_rng(5)
WEIGHTS: dict[str, Array] = {
    **{name: RNG.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12 for name in ("w", "v")},
    "halves": RNG.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8,
    "rows": np.array([2, -1]),
    "six": np.array([2, 4, 4, 2, 2, 4]),
    "channels": RNG.standard_normal((1, 16, 1, 1)).astype(np.float32),
}


def conv(src: str, dst: str, weights: str = "w") -> Any:
    return node("Conv", f"{src} {weights}", dst, pads=[1] * 4, kernel_shape=[3, 3])


def add(one: str, other: str, dst: str) -> Any:
    return node("Add", f"{one} {other}", dst)


def joined(sources: str, dst: str, axis: int = 1) -> Any:
    return node("Concat", sources, dst, axis=axis)


def turned(src: str, dst: str) -> Any:
    return node("Transpose", src, dst, perm=[0, 1, 3, 2])


A = conv("x", "a")
B = conv("x", "b", "v")
NETWORKS: dict[str, tuple[str, list[Any]]] = {
    "a sum of one tensor twice": ("y", [A, add("a", "a", "b"), node("Relu", "b", "y")]),
    "a product of a tensor with itself": (
        "y z",
        [turned("x", "t"), node("MatMul", "x t", "z"), node("MatMul", "x x", "y")],
    ),
    "a join of one tensor twice": ("y", [A, joined("a a", "y")]),
    "a join of an input twice": ("y", [joined("x x", "c"), node("Relu", "c", "y")]),
    "a tensor in two joins": ("y", [A, B, joined("a b", "p"), joined("b a", "q"), add("p", "q", "y")]),
    "a join in a join, both read": (
        "y z",
        [A, B, joined("a b", "p"), joined("p a", "q"), node("Relu", "p", "z"), node("Relu", "q", "y")],
    ),
    "a join along images": ("y", [A, B, joined("a b", "p", 0), conv("p", "y")]),
    "a join whose parts are answered": ("a b y", [A, B, joined("a b", "y")]),
    "a join of the halves of a tensor": (
        "y z",
        [A, node("Split", "a", "p q", axis=1), joined("q p", "b"), conv("b", "y"), node("Relu", "q", "z")],
    ),
    "a shortcut that is in a join": (
        "y z",
        [A, joined("a x", "c"), conv("a", "b", "v"), add("b", "a", "y"), node("Relu", "c", "z")],
    ),
    "a shortcut that is answered": ("a y", [A, conv("a", "b", "v"), add("b", "a", "y")]),
    "a shortcut whose view is answered": (
        "y z",
        [A, node("Reshape", "a rows", "z"), conv("a", "b", "v"), add("b", "a", "y")],
    ),
    "a shortcut that is read as a view later": (
        "y z",
        [A, node("Reshape", "a rows", "t"), conv("a", "b", "v"), add("b", "a", "y"), node("Relu", "t", "z")],
    ),
    "a shortcut that is a part": (
        "y z",
        [A, node("Split", "a", "p q", axis=1), conv("p", "b", "halves"), add("b", "q", "y"), node("Relu", "p", "z")],
    ),
    "a shortcut that is a transpose": ("y", [A, turned("a", "t"), conv("t", "b", "v"), add("b", "t", "y")]),
    "a shortcut from the input": ("y", [A, add("a", "x", "b"), conv("b", "c", "v"), add("c", "x", "y")]),
    "a tensor and its transpose": ("y", [A, turned("a", "t"), add("a", "t", "y")]),
    "a sum after a function of two branches": (
        "y",
        [node("Softmax", "x", "s", axis=1), node("Tanh", "x", "t"), add("t", "channels", "u"), add("s", "u", "y")],
    ),
    "an output that is read": ("a b y", [A, node("Relu", "a", "b"), conv("b", "y", "v")]),
    "an output that is a view of an input": ("y z", [node("Reshape", "x rows", "y"), turned("x", "z")]),
    "outputs in the same bytes": ("a y z", [node("Relu", "x", "a"), node("Reshape", "a rows", "y"), turned("a", "z")]),
    "the same output by two names": (
        "a y z",
        [node("Relu", "x", "a"), node("Identity", "a", "y"), node("Identity", "y", "z")],
    ),
    "a chain of identities of an input": ("y", [node("Identity", "x", "a"), node("Identity", "a", "y")]),
    "six axes": (
        "y",
        [
            node("Reshape", "x six", "t"),
            node("Transpose", "t", "u", perm=[5, 4, 3, 2, 1, 0]),
            node("Relu", "u", "v_"),
            add("v_", "u", "y"),
        ],
    ),
}
"""The outputs and the nodes of each network."""


@cache
def prices() -> Costs:
    return probed()


def model_named(name: str) -> Model:
    outputs, nodes = NETWORKS[name]
    read = {given for one in nodes for given in one.input}
    constants = {key: array for key, array in WEIGHTS.items() if key in read}
    return model_of(nodes, {"x": DIMS}, outputs.split(), constants)


def require_right(
    session: ProgramSession | Session, inputs: Mapping[str, Array], expected: Mapping[str, Array], what: str
) -> None:
    for _ in range(2):  # a second run begins with what the first one left
        for name, array in session.run(inputs).items():
            assert relative_error(array, expected[name]) < 1e-5, (what, name)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_meets_itself_is_computed_right_by_every_plan(name: str) -> None:
    model = model_named(name)
    inputs: dict[str, Array] = {"x": np.random.default_rng(8).standard_normal(DIMS).astype(np.float32)}
    expected = run_model(model, inputs)
    graph = hoist_elementwise(lower_network(load_bound(model.SerializeToString())))
    require_right(ProgramSession(plan_graph(graph, prices()).program, graph), inputs, expected, "the best plan")
    problem = make_problem(graph, prices())
    for seed in range(RANDOM_PLANS):
        rng = random.Random(seed)
        settled = assign_formats(problem, [rng.randrange(len(group.candidates)) for group in problem.groups])
        require_right(ProgramSession(emit_program(problem, settled), graph), inputs, expected, f"random plan {seed}")


OPEN = ("n", 16, "height", 4)


def test_a_session_runs_other_dims_as_onnx_does() -> None:
    nodes = [A, node("Relu", "a", "b"), conv("b", "c", "v"), add("c", "b", "d"), joined("d x", "y")]
    model = model_of(nodes, {"x": OPEN}, ["y"], {key: WEIGHTS[key] for key in ("w", "v")})
    network = load(model.SerializeToString(), batch=1, dims={"height": 4})
    session = plan(network, costs="probed").compile()
    kept = []
    for dims in [(1, 16, 4, 4), (2, 16, 4, 4), (1, 16, 7, 4), (3, 16, 5, 4), (2, 16, 4, 4), (1, 16, 4, 4)]:
        inputs: dict[str, Array] = {"x": np.random.default_rng(8).standard_normal(dims).astype(np.float32)}
        require_right(session, inputs, run_model(model, inputs), f"dims {dims}")
        kept.append(session.weights.nbytes)
    assert kept[-3:] == kept[-1:] * 3, "dims that were planned before pack no weights"
    assert session.prepare().input_dims == {"x": (1, 16, 4, 4)}


def test_networks_and_plans_can_be_pickled_and_say_what_they_are() -> None:
    model = model_of([node("Relu", "x", "y")], {"x": OPEN}, ["y"])
    network = load(model.SerializeToString(), batch=1, dims={"height": 2})
    assert repr(network) == "<Network tiny: x (1, 16, 2, 4) -> y (1, 16, 2, 4); 1 nodes, opset 17>"
    chosen = pickle.loads(pickle.dumps(plan(pickle.loads(pickle.dumps(network)), costs="probed")))
    assert repr(chosen).startswith("<Plan of tiny: ")
    ones = np.ones((1, 16, 2, 4), np.float32)
    assert np.array_equal(chosen.compile().run({"x": ones})["y"], ones)
    with pytest.raises(
        InvalidArguments, match=r"for \(1, 16, 2, 4\): give such an array, or plan the network for these dims$"
    ):
        chosen.compile().run({"x": np.ones((2, 16, 2, 4), np.float32)})
