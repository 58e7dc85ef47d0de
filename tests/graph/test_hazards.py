"""Small networks in which tensors meet themselves: read twice, answered and read, viewed and added to, joined twice.

Each is computed by the package onnx, and by sessions of the best and of random plans.
"""

import pickle
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import helper

from inlay.errors import InvalidArguments, MissingExtra
from inlay.graph.costs import Costs, probed
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load
from inlay.graph.op_graph import Array
from inlay.graph.passes.elementwise_motion import hoist_elementwise
from inlay.graph.plan import plan, plan_graph
from inlay.graph.planner.emission import emit_program
from inlay.graph.planner.plan_search import assign_formats
from inlay.graph.planner.problem import make_problem
from inlay.graph.runtime.session import Session
from inlay.primitives import get_engine
from tests.support.network_runs import model_of, relative_error, run_model
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
    "channels": RNG.standard_normal((1, 16, 1, 1)).astype(np.float32),
}


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), outputs.split(), outputs.split()[0], **attributes)


def conv(src: str, dst: str, weights: str = "w") -> Any:
    return node("Conv", f"{src} {weights}", dst, pads=[1] * 4, kernel_shape=[3, 3])


def add(one: str, other: str, dst: str) -> Any:
    return node("Add", f"{one} {other}", dst)


def joined(sources: str, dst: str, axis: int = 1) -> Any:
    return node("Concat", sources, dst, axis=axis)


def turned(src: str, dst: str) -> Any:
    return node("Transpose", src, dst, perm=[0, 1, 3, 2])


A = conv("x", "a")
NETWORKS: dict[str, tuple[list[Any], list[str]]] = {
    "a sum of one tensor twice": ([A, add("a", "a", "b"), node("Relu", "b", "y")], ["y"]),
    "a product of a tensor with itself": (
        [turned("x", "t"), node("MatMul", "x t", "z"), node("MatMul", "x x", "y")],
        ["y", "z"],
    ),
    "a join of one tensor twice": ([A, joined("a a", "y")], ["y"]),
    "a join of an input twice": ([joined("x x", "c"), node("Relu", "c", "y")], ["y"]),
    "a tensor in two joins": (
        [A, conv("x", "b", "v"), joined("a b", "p"), joined("b a", "q"), add("p", "q", "y")],
        ["y"],
    ),
    "a join in a join, both read": (
        [
            A,
            conv("x", "b", "v"),
            joined("a b", "p"),
            joined("p a", "q"),
            node("Relu", "p", "z"),
            node("Relu", "q", "y"),
        ],
        ["y", "z"],
    ),
    "a join along images": ([A, conv("x", "b", "v"), joined("a b", "p", 0), conv("p", "y")], ["y"]),
    "a join whose parts are answered": ([A, conv("x", "b", "v"), joined("a b", "y")], ["a", "b", "y"]),
    "a join of the halves of a tensor": (
        [A, node("Split", "a", "p q", axis=1), joined("q p", "b"), conv("b", "y"), node("Relu", "q", "z")],
        ["y", "z"],
    ),
    "a shortcut that is in a join": (
        [A, joined("a x", "c"), conv("a", "b", "v"), add("b", "a", "y"), node("Relu", "c", "z")],
        ["y", "z"],
    ),
    "a shortcut that is answered": ([A, conv("a", "b", "v"), add("b", "a", "y")], ["a", "y"]),
    "a shortcut whose view is answered": (
        [A, node("Reshape", "a rows", "z"), conv("a", "b", "v"), add("b", "a", "y")],
        ["y", "z"],
    ),
    "a shortcut that is read as a view later": (
        [A, node("Reshape", "a rows", "t"), conv("a", "b", "v"), add("b", "a", "y"), node("Relu", "t", "z")],
        ["y", "z"],
    ),
    "a shortcut that is a part": (
        [A, node("Split", "a", "p q", axis=1), conv("p", "b", "halves"), add("b", "q", "y"), node("Relu", "p", "z")],
        ["y", "z"],
    ),
    "a shortcut that is a transpose": ([A, turned("a", "t"), conv("t", "b", "v"), add("b", "t", "y")], ["y"]),
    "a shortcut from the input": ([A, add("a", "x", "b"), conv("b", "c", "v"), add("c", "x", "y")], ["y"]),
    "a tensor and its transpose": ([A, turned("a", "t"), add("a", "t", "y")], ["y"]),
    "a sum after a function of two branches": (
        [node("Softmax", "x", "s", axis=1), node("Tanh", "x", "t"), add("t", "channels", "u"), add("s", "u", "y")],
        ["y"],
    ),
    "an output that is read": ([A, node("Relu", "a", "b"), conv("b", "y", "v")], ["a", "b", "y"]),
    "an output that is a view of an input": ([node("Reshape", "x rows", "y"), turned("x", "z")], ["y", "z"]),
    "outputs in the same bytes": (
        [node("Relu", "x", "a"), node("Reshape", "a rows", "y"), turned("a", "z")],
        ["a", "y", "z"],
    ),
    "the same output by two names": (
        [node("Relu", "x", "a"), node("Identity", "a", "y"), node("Identity", "y", "z")],
        ["a", "y", "z"],
    ),
    "a chain of identities of an input": ([node("Identity", "x", "a"), node("Identity", "a", "y")], ["y"]),
    "six axes": (
        [
            node("Reshape", "x six", "t"),
            node("Transpose", "t", "u", perm=[5, 4, 3, 2, 1, 0]),
            node("Relu", "u", "v_"),
            add("v_", "u", "y"),
        ],
        ["y"],
    ),
}


@cache
def prices() -> Costs:
    return probed()


def model_named(name: str) -> Model:
    nodes, outputs = NETWORKS[name]
    constants = {**WEIGHTS, "six": np.array([2, 4, 4, 2, 2, 4])}
    read = {given for one in nodes for given in one.input}
    return model_of(nodes, {"x": DIMS}, outputs, {key: array for key, array in constants.items() if key in read})


def require_right(session: Session, inputs: Mapping[str, Array], expected: Mapping[str, Array], what: str) -> None:
    for _ in range(2):  # a second run begins with what the first one left
        for name, array in session.run(inputs).items():
            assert relative_error(array, expected[name]) < 1e-5, (what, name)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_meets_itself_is_computed_right_by_every_plan(name: str) -> None:
    model = model_named(name)
    inputs: dict[str, Array] = {"x": np.random.default_rng(8).standard_normal(DIMS).astype(np.float32)}
    expected = run_model(model, inputs)
    graph = hoist_elementwise(lower_network(load(model.SerializeToString())))
    require_right(Session(plan_graph(graph, prices()).program, graph), inputs, expected, "the best plan")
    problem = make_problem(graph, prices())
    for seed in range(RANDOM_PLANS):
        rng = random.Random(seed)
        settled = assign_formats(problem, [rng.randrange(len(group.candidates)) for group in problem.groups])
        require_right(Session(emit_program(problem, settled), graph), inputs, expected, f"random plan {seed}")


OPEN = ("n", 16, "height", 4)


def test_a_session_runs_other_dims_as_onnx_does() -> None:
    nodes = [A, node("Relu", "a", "b"), conv("b", "c", "v"), add("c", "b", "d"), joined("d x", "y")]
    model = model_of(nodes, {"x": OPEN}, ["y"], {key: WEIGHTS[key] for key in ("w", "v")})
    network = load(model.SerializeToString(), batch=1, dims={"height": 4})
    session = plan(network, costs="probed").compile()
    kept = session.weights.nbytes
    for dims in [(1, 16, 4, 4), (2, 16, 4, 4), (1, 16, 7, 4), (3, 16, 5, 4), (2, 16, 4, 4), (1, 16, 4, 4)]:
        inputs: dict[str, Array] = {"x": np.random.default_rng(8).standard_normal(dims).astype(np.float32)}
        require_right(session, inputs, run_model(model, inputs), f"dims {dims}")
    assert session.weights.nbytes <= 4 * kept
    assert session.input_dims == {"x": (1, 16, 4, 4)}


def test_networks_and_plans_can_be_pickled_and_say_what_they_are() -> None:
    model = model_of([node("Relu", "x", "y")], {"x": OPEN}, ["y"])
    network = load(model.SerializeToString(), batch=1, dims={"height": 2})
    assert repr(network) == "<Network tiny: x (1, 16, 2, 4) -> y (1, 16, 2, 4); 1 nodes, opset 17>"
    chosen = pickle.loads(pickle.dumps(plan(pickle.loads(pickle.dumps(network)), costs="probed")))
    assert repr(chosen).startswith("<Plan of tiny: ")
    ones = np.ones((1, 16, 2, 4), np.float32)
    assert np.array_equal(chosen.compile().run({"x": ones})["y"], ones)
    with pytest.raises(InvalidArguments) as refused:
        chosen.compile().run({"x": np.ones((2, 16, 2, 4), np.float32)})
    assert str(refused.value) == (
        "input x has dims (2, 16, 2, 4), the session is for (1, 16, 2, 4): give such an array, or plan the network for "
        "these dims"
    )


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a model": (
        lambda: load(model_of([node("Relu", "x", "y")], {"x": (1,)}, ["y"])),
        "a network is read from a path or from the bytes of a file, not from a ModelProto: give its bytes: "
        "model.SerializeToString()",
    ),
    "nothing": (
        lambda: load(None),  # type: ignore[arg-type]
        "a network is read from a path or from the bytes of a file, not from a NoneType: "
        "give a path, or a file's bytes",
    ),
    "dims in words": (
        lambda: load(model_of([], {"x": OPEN}, ["x"]).SerializeToString(), dims="n"),  # type: ignore[arg-type]
        "dims are a str: give a mapping of names to numbers",
    ),
    "a plan of a path": (
        lambda: plan("model.onnx"),  # type: ignore[arg-type]
        "a str is no network: plan what inlay.load reads from a file",
    ),
    "less than no time": (
        lambda: plan(load(model_of([node("Relu", "x", "y")], {"x": (1,)}, ["y"]).SerializeToString()), seconds=-1.0),
        "seconds is -1.0: give 0 or more",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_network_is_refused_in_these_words(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(InvalidArguments) as refused:
        call()
    assert str(refused.value) == text
