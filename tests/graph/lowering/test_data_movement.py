"""Lowering of operators that move elements: views, concatenations, splits, shuffles; and dead operations."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from inlay.errors import InvalidArguments
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network, Node, Tensor
from inlay.graph.op_graph import OpGraph, PermuteView, ReshapeView, SubmemoryView
from tests.support import lowered_models as lm
from tests.support.interpreter import interpret
from tests.support.lowered_models import SEEDS, SHAPES, normal
from tests.support.refusals import raises_exactly

pytestmark = pytest.mark.filterwarnings("ignore")

F32, S64 = np.dtype(np.float32), np.dtype(np.int64)


def chain(
    x: lm.Array, *nodes: tuple[str, dict[str, Any], list[lm.Array]], opset: int = 13, outputs: tuple[int, ...] = ()
) -> OpGraph:
    """Lower a chain of nodes that each read the previous result and constants, and compare it with `onnx.reference`."""
    made, constants = [], []
    for index, (operator, attributes, arrays) in enumerate(nodes):
        names = [f"c{index}_{i}" for i in range(len(arrays))]
        constants += [numpy_helper.from_array(array, name) for array, name in zip(arrays, names, strict=True)]
        made.append(helper.make_node(operator, [f"t{index}", *names], [f"t{index + 1}"], f"n{index}", **attributes))
    answers = [helper.make_empty_tensor_value_info(f"t{index}") for index in (*outputs, len(nodes))]
    graph = helper.make_graph(made, "chain", [helper.make_tensor_value_info("t0", 1, x.shape)], answers, constants)
    return lm.lower_and_compare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), {"t0": x})


@given(data=st.data(), seed=SEEDS, dims=SHAPES)
def test_transpose_is_one_permutation(data: Any, seed: int, dims: tuple[int, ...]) -> None:
    perm = data.draw(st.none() | st.permutations(range(len(dims))), "perm")
    attributes = {} if perm is None else {"perm": perm}
    graph = chain(normal(seed, dims), ("Transpose", attributes, []))
    order = tuple(reversed(range(len(dims)))) if perm is None else tuple(perm)
    moves = () if order == tuple(range(len(dims))) else (PermuteView(order),)
    assert [op.transforms for op in graph.ops] == [moves]


@pytest.mark.parametrize(
    ("operator", "opset", "attributes", "arrays", "dims"),
    [
        ("Flatten", 13, {"axis": 2}, [], (6, 20)),
        ("Reshape", 13, {}, [np.array([0, -1])], (2, 60)),
        ("Unsqueeze", 11, {"axes": [0, 3]}, [], (1, 2, 3, 1, 4, 5)),
        ("Unsqueeze", 13, {}, [np.array([-1])], (2, 3, 4, 5, 1)),
    ],
)
def test_reshapes(
    operator: str, opset: int, attributes: dict[str, Any], arrays: list[lm.Array], dims: tuple[int, ...]
) -> None:
    (op,) = chain(normal(0, (2, 3, 4, 5)), (operator, attributes, arrays), opset=opset).ops
    assert (op.kind, op.transforms) == ("view", (ReshapeView(dims),))


@pytest.mark.parametrize(("opset", "told"), [(11, ({"axes": [1]}, [])), (13, ({}, [np.array([1])]))])
def test_squeeze(opset: int, told: tuple[dict[str, Any], list[lm.Array]]) -> None:
    (op,) = chain(normal(0, (2, 1, 4)), ("Squeeze", *told), opset=opset).ops
    assert op.transforms == (ReshapeView((2, 4)),)


@pytest.mark.parametrize(
    "node",
    [
        ("Identity", {}, []),
        ("Dropout", {}, []),
        ("Cast", {"to": 1}, []),
        ("Expand", {}, [np.array([2, 3])]),
        ("Tile", {}, [np.array([1, 1])]),
        ("Pad", {}, [np.array([0, 0, 0, 0])]),
    ],
    ids=lambda node: node[0],
)
def test_what_changes_nothing_is_a_view(node: tuple[str, dict[str, Any], list[lm.Array]]) -> None:
    (op,) = chain(normal(0, (2, 3)), node).ops
    assert (op.kind, op.transforms) == ("view", ())


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (("Cast", {"to": 11}, []), "it converts to another type"),
        (("Expand", {}, [np.array([4, 2, 3])]), "it repeats elements"),
        (("Pad", {}, [np.array([0, 1, 0, 0])]), "no primitive adds padding"),
        (("Erf", {}, []), "there is no primitive for Erf"),
        (("Slice", {}, [np.array([2]), np.array([-9]), np.array([1]), np.array([-2])]), "its steps are (-2,)"),
        (("Gather", {"axis": 1}, [np.array([2, 0])]), "its indices are not consecutive"),
        (("ReduceSum", {"keepdims": 0}, []), "a result has 0 axes, a descriptor has 1 to 12"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_has_no_primitive_says_why(node: tuple[str, dict[str, Any], list[lm.Array]], why: str) -> None:
    (op,) = chain(normal(0, (2, 3)), node).ops
    assert (op.kind, op.why) == ("reference", why)


@given(data=st.data(), seed=SEEDS, dims=SHAPES)
def test_slices_with_unit_steps_are_parts(data: Any, seed: int, dims: tuple[int, ...]) -> None:
    axes = data.draw(st.lists(st.integers(0, len(dims) - 1), unique=True, min_size=1), "axes")
    starts = [data.draw(st.integers(0, dims[axis] - 1), "start") for axis in axes]
    ends = [data.draw(st.integers(start + 1, dims[a] + 2), "end") for start, a in zip(starts, axes, strict=True)]
    negative = data.draw(st.booleans(), "negative")
    said = [start - dims[a] if negative else start for start, a in zip(starts, axes, strict=True)]
    opset = data.draw(st.sampled_from([9, 13]), "opset")
    if opset == 9:
        node: Any = ("Slice", {"starts": said, "ends": ends, "axes": axes}, [])
    else:
        node = ("Slice", {}, [np.array(one) for one in (said, ends, axes)])
    (op,) = chain(normal(seed, dims), node, opset=opset).ops
    assert op.kind == "view"
    assert all(isinstance(move, SubmemoryView) for move in op.transforms)


@pytest.mark.parametrize(("indices", "dims"), [(np.array(1), (2, 4)), (np.array([1, 2]), (2, 2, 4)), (-1, (2, 4))])
def test_gathers_of_a_row_are_parts(indices: Any, dims: tuple[int, ...]) -> None:
    graph = chain(normal(0, (2, 3, 4)), ("Gather", {"axis": 1}, [np.asarray(indices)]))
    assert {op.kind for op in graph.ops} == {"view"}
    assert graph.tensors["t1"].dims == dims


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_splits_are_parts(opset: int) -> None:
    x, sizes = normal(0, (2, 7, 3)), np.array([1, 4, 2])
    arrays = {"x": x, "sizes": sizes} if opset >= 13 else {"x": x}
    attributes = {"axis": 1} if opset >= 13 else {"axis": 1, "split": sizes.tolist()}
    graph = lm.lower_operator("Split", arrays, 3, opset=opset, constants=list(arrays)[1:], **attributes)
    assert [op.transforms for op in graph.ops] == [
        (SubmemoryView((0, 0, 0), (2, 1, 3)),),
        (SubmemoryView((0, 1, 0), (2, 4, 3)),),
        (SubmemoryView((0, 5, 0), (2, 2, 3)),),
    ]


@given(data=st.data(), seed=SEEDS, dims=SHAPES, count=st.integers(1, 4))
def test_concatenations(data: Any, seed: int, dims: tuple[int, ...], count: int) -> None:
    axis = data.draw(st.integers(-len(dims), len(dims) - 1), "axis")
    along = [data.draw(st.integers(0 if i else 1, 3)) for i in range(count)]
    shapes = [tuple(n if i == axis % len(dims) else m for i, m in enumerate(dims)) for n in along]
    arrays = {f"x{i}": normal(seed + i, shape) for i, shape in enumerate(shapes)}
    constants = data.draw(st.lists(st.sampled_from(sorted(arrays)[1:]), unique=True) if count > 1 else st.just([]))
    graph = lm.lower_operator("Concat", arrays, opset=13, constants=constants, axis=axis)
    assert lm.kinds_of(graph) == (["concat"] if sum(map(bool, along)) > 1 else [])


@pytest.mark.parametrize(
    ("operator", "dims", "attributes"),
    [
        ("DepthToSpace", (2, 8, 3, 2), {"mode": "DCR"}),
        ("DepthToSpace", (2, 8, 3, 2), {"mode": "CRD"}),
        ("SpaceToDepth", (2, 3, 4, 6), {}),
    ],
)
def test_blocks_of_space_are_views(operator: str, dims: tuple[int, ...], attributes: dict[str, str]) -> None:
    graph = chain(normal(0, dims), (operator, {"blocksize": 2, **attributes}, []))
    assert [type(op.transforms[0]) for op in graph.ops] == [ReshapeView, PermuteView, ReshapeView]


# Shuffles


def shuffling(axis: int, split: list[int], perm: list[int], merged: list[int]) -> list[Any]:
    return [("Reshape", {}, [np.array(split)]), ("Transpose", {"perm": perm}, []), ("Reshape", {}, [np.array(merged)])]


@given(seed=SEEDS, groups=st.integers(2, 4), each=st.integers(2, 4), axis=st.integers(0, 2))
def test_two_factors_of_an_axis_exchanged_are_a_shuffle(seed: int, groups: int, each: int, axis: int) -> None:
    dims = [2, 3, 4]
    dims[axis] = groups * each
    split = [*dims[:axis], groups, each, *dims[axis + 1 :]]
    perm = [*range(axis), axis + 1, axis, *range(axis + 2, 4)]
    (op,) = chain(normal(seed, tuple(dims)), *shuffling(axis, split, perm, dims)).ops
    assert (op.kind, dict(op.parameters)) == ("shuffle", {"axis": axis, "group_size": each})


def test_a_shuffle_leaves_views_that_others_read() -> None:
    graph = chain(normal(0, (2, 6, 5)), *shuffling(1, [2, 2, 3, 5], [0, 2, 1, 3], [2, 6, 5]), outputs=(2,))
    assert [op.kind for op in graph.ops] == ["view", "view", "shuffle"]


@pytest.mark.parametrize(
    ("split", "perm", "merged"),
    [
        ([2, 2, 3, 5], [0, 2, 1, 3], [2, 30]),
        ([2, 2, 3, 5], [0, 3, 2, 1], [2, 6, 5]),
        ([2, 6, 5, 1], [0, 2, 1, 3], [2, 6, 5]),
    ],
)
def test_other_exchanges_are_views(split: list[int], perm: list[int], merged: list[int]) -> None:
    graph = chain(normal(0, (2, 6, 5)), *shuffling(1, split, perm, merged))
    assert {op.kind for op in graph.ops} == {"view"}


# The graph


def tiny(*nodes: Node, opset: int = 13, constants: Any = None, **tensors: tuple[int, ...]) -> Network:
    described = {name: Tensor(name, dims, F32) for name, dims in tensors.items()}
    return Network("tiny", opset, ("x",), (list(tensors)[-1],), nodes, described, constants or {})


def test_a_constant_output_is_answered() -> None:
    network = tiny(constants={"c": normal(0, (2,))}, x=(2, 3), c=(2,))
    found = interpret(lower_network(network), {"x": normal(1, (2, 3))})
    np.testing.assert_array_equal(found["c"], network.constants["c"])


def test_one_result_may_have_two_names() -> None:
    x = normal(0, (2, 3))
    graph = chain(x, ("Relu", {}, []), ("Identity", {}, []), ("Identity", {}, []), outputs=(1, 2))
    assert [op.kind for op in graph.ops] == ["eltwise", "view", "view"]


def test_nodes_that_nobody_reads_are_dropped() -> None:
    dead = Node("dead", "Relu", ("x",), ("unread",))
    network = tiny(Node("n", "Relu", ("x",), ("y",)), dead, x=(2, 3), unread=(2, 3), y=(2, 3))
    assert [op.name for op in lower_network(network).ops] == ["n"]


def test_tensors_of_other_types_are_for_numpy() -> None:
    graph = lm.lower_operator("Transpose", {"x": np.arange(6).reshape(2, 3)}, opset=13)
    assert [(op.kind, op.why) for op in graph.ops] == [("reference", "x is int64, which oneDNN has no descriptors of")]


def test_dims_that_contradict_the_operator_are_refused() -> None:
    with raises_exactly(
        InvalidArguments,
        "node 'n': Relu writes y with dims (2, 3), and the network states (3, 2): infer its shapes again",
    ):
        lower_network(tiny(Node("n", "Relu", ("x",), ("y",)), x=(2, 3), y=(3, 2)))


def test_an_opset_before_7_is_refused() -> None:
    with raises_exactly(
        InvalidArguments, "network 'tiny' is of opset 6: convert it to opset 7 or newer, with onnx.version_converter"
    ):
        lower_network(tiny(Node("n", "Relu", ("x",), ("y",)), opset=6, x=(2, 3), y=(2, 3)))


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "graph 'tiny' is given nothing: it takes x"),
        ({"x": normal(0, (2, 3)), "z": normal(0, (1,))}, "graph 'tiny' is given x, z: it takes x"),
        ({"x": normal(0, (3, 2))}, "input x is float32 (3, 2): graph 'tiny' takes float32 (2, 3)"),
        ({"x": np.zeros((2, 3))}, "input x is float64 (2, 3): graph 'tiny' takes float32 (2, 3)"),
    ],
)
def test_wrong_inputs_are_named(inputs: dict[str, lm.Array], text: str) -> None:
    graph = lower_network(tiny(Node("n", "Relu", ("x",), ("y",)), x=(2, 3), y=(2, 3)))
    with raises_exactly(InvalidArguments, text):
        interpret(graph, inputs)
