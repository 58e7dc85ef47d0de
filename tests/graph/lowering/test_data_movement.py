"""Lowering of operators that move elements: views, concatenations, splits, shuffles; and dead operations."""

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.graph.lowering.translation import lower_network
from inlay.graph.op_graph import OpGraph, PermuteView, ReshapeView, SubmemoryView
from inlay.memory import pack
from inlay.primitives import Reorder
from tests.support import lowered_models as lm
from tests.support.interpreter import interpret
from tests.support.lowered_models import SEEDS, SHAPES, normal
from tests.support.written_models import written_model

pytestmark = pytest.mark.filterwarnings("ignore")


@given(data=st.data(), seed=SEEDS, dims=SHAPES)
def test_transpose_is_one_permutation_or_a_reshape(data: Any, seed: int, dims: tuple[int, ...]) -> None:
    perm = data.draw(st.none() | st.permutations(range(len(dims))), "perm")
    graph = lm.lower_text(f"y = Transpose {'' if perm is None else f'<perm = {perm}>'} (x)", normal(seed, dims))
    order = tuple(reversed(range(len(dims)))) if perm is None else tuple(perm)
    longer, result = [axis for axis in order if dims[axis] > 1], tuple(dims[axis] for axis in order)
    is_reshape = longer == sorted(longer)
    moves = PermuteView(order) if not is_reshape else ReshapeView(result)
    assert [op.transforms for op in graph.ops] == [() if is_reshape and result == dims else (moves,)]


@pytest.mark.parametrize(
    ("opset", "src", "node", "dims", "dst"),
    [
        (13, (2, 3, 4, 5), "Flatten <axis = 2> (x)", None, (6, 20)),
        (13, (2, 3, 4, 5), "Reshape(x, d)", [0, -1], (2, 60)),
        (11, (2, 3, 4, 5), "Unsqueeze <axes = [0, 3]> (x)", None, (1, 2, 3, 1, 4, 5)),
        (13, (2, 3, 4, 5), "Unsqueeze(x, d)", [-1], (2, 3, 4, 5, 1)),
        (11, (2, 1, 4), "Squeeze <axes = [1]> (x)", None, (2, 4)),
        (13, (2, 1, 4), "Squeeze(x, d)", [1], (2, 4)),
    ],
)
def test_other_dims_of_the_same_elements_are_a_reshape(opset: int, src: Any, node: str, dims: Any, dst: Any) -> None:
    constants: dict[str, Any] = {} if dims is None else {"d": np.array(dims)}
    (op,) = lm.lower_text(f"y = {node}", normal(0, src), opset=opset, **constants).ops
    assert (op.kind, op.transforms) == ("view", (ReshapeView(dst),))


@pytest.mark.parametrize(
    ("node", "constant"),
    [
        ("Identity(x)", None),
        ("Dropout(x)", None),
        ("Cast <to = 1> (x)", None),
        ("Expand(x, c)", [2, 3]),
        ("Tile(x, c)", [1, 1]),
        ("Pad(x, c)", [0, 0, 0, 0]),
        ("Where(c, x, x)", [True]),
    ],
)
def test_a_node_that_changes_nothing_is_a_view(node: str, constant: list[int] | None) -> None:
    constants: dict[str, Any] = {} if constant is None else {"c": np.array(constant)}
    (op,) = lm.lower_text(f"y = {node}", normal(0, (2, 3)), **constants).ops
    assert (op.kind, op.transforms) == ("view", ())


@pytest.mark.parametrize(
    ("node", "constant", "why"),
    [
        ("Cast <to = 7> (x)", None, "no reorder converts float32 to int64 as ONNX does"),
        ("Cast <to = 17> (x)", None, "no reorder converts float32 to float8_e4m3fn as ONNX does"),
        ("Where(c, x, x)", [True, False, True], "it selects elements of both inputs"),
        ("Expand(x, c)", [0, 20, 3], "its result has no elements"),
        ("Slice(x, c, e, a, s)", [19], "its steps are (-1,)"),
        ('Pad <mode = "edge"> (x, c)', [0, 9, 0, 9], "it adds 18 elements to axis 1"),
        ("Pad(x, c)", [0, 1, 0, 0], "no primitive adds padding"),
        ("Erf(x)", None, "there is no primitive for Erf"),
        ("Gather <axis = 0> (x, c)", [3, 1, 0] * 9, "its indices are of more than 16 parts at equal distances"),
        ("ReduceSum <keepdims = 0> (x)", None, "a result has 0 axes, a descriptor has 1 to 12"),
    ],
)
def test_a_node_without_a_primitive_is_a_reference_with_the_reason(node: str, constant: Any, why: str) -> None:
    constants: dict[str, Any] = {} if constant is None else {"c": np.array(constant)}
    if "Slice" in node:
        constants |= {name: np.array([number]) for name, number in (("e", -99), ("a", 0), ("s", -1))}
    (op,) = lm.lower_text(f"y = {node}", normal(0, (20, 3)), opset=13, **constants).ops
    assert (op.kind, op.why) == ("reference", why)


_REAL, _SMALL = ("float32", "float16", "bfloat16", "float64"), ("float8_e4m3fn", "float8_e5m2")
_CONVERTED = [
    *product((*_REAL, *_SMALL), _REAL),
    *product(_REAL, _SMALL),
    *product(("int8", "uint8"), (*_REAL, "int32", "int64")),
    *(("int32", "float32"), ("int32", "float64"), ("int32", "int64"), ("int64", "float64")),
]
_NUMBERS = (0.0, -0.0, 1.0, -1.5, 1e-3, 65519.0, 65520.0, -1e6, 3.5e38, np.nan, np.inf, -np.inf, 1 + 2**-11)


@pytest.mark.parametrize(("src", "dst"), [(src, dst) for src, dst in _CONVERTED if src != dst])
def test_conversions_by_reorders_are_those_of_numpy(src: str, dst: str) -> None:
    before, after = (np.dtype(getattr(ml_dtypes, name, None) or name) for name in (src, dst))
    with np.errstate(all="ignore"):
        x = np.array(_NUMBERS if "float" in src else np.arange(128)).astype(before)
        expected = x.astype(after)
    saturate = "saturate = 0, " if dst in _SMALL else ""
    text = f"y = Cast <{saturate}to = {helper.np_dtype_to_tensor_dtype(after)}> (x)"
    (op,) = lm.lower_text(text, x, opset=19).ops
    assert op.kind == "reorder"
    descs = {name: MemoryDesc(x.shape, as_data_type(dtype)) for name, dtype in (("src", before), ("dst", after))}
    got = Reorder(descs["src"], descs["dst"])(src=pack(x, descs["src"])).unpack()
    is_nan = np.isnan(expected.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), is_nan)
    assert got[~is_nan].tobytes() == expected[~is_nan].tobytes()


def test_tensors_without_descriptors_are_for_numpy() -> None:
    x = np.array([["a", "b"]], object)
    graph = lm.lower_model(*lm.model_of("Transpose", {"x": x}, opset=13), {"y0": x.T})
    assert [(op.kind, op.why) for op in graph.ops] == [("reference", "x is object, which has no descriptors")]


@pytest.mark.parametrize("opset", [9, 13])
@given(data=st.data(), seed=SEEDS, dims=SHAPES)
def test_slices_with_positive_steps_are_parts(opset: int, data: Any, seed: int, dims: tuple[int, ...]) -> None:
    axes = data.draw(st.lists(st.integers(0, len(dims) - 1), unique=True, min_size=1), "axes")
    starts = [data.draw(st.integers(0, dims[axis] - 1), "start") for axis in axes]
    ends = [data.draw(st.integers(start + 1, dims[a] + 2), "end") for start, a in zip(starts, axes, strict=True)]
    if data.draw(st.booleans(), "negative"):
        starts = [start - dims[axis] for start, axis in zip(starts, axes, strict=True)]
    if opset == 9:
        (op,) = lm.lower_text(
            f"y = Slice <starts = {starts}, ends = {ends}, axes = {axes}> (x)", normal(seed, dims), opset=9
        ).ops
    else:
        constants: dict[str, Any] = {"s": np.array(starts), "e": np.array(ends), "a": np.array(axes)}
        constants["t"] = np.array([data.draw(st.integers(1, 3), "step") for _ in axes])
        (op,) = lm.lower_text("y = Slice(x, s, e, a, t)", normal(seed, dims), opset=13, **constants).ops
    assert op.kind == "view"
    assert all(isinstance(move, SubmemoryView) for move in op.transforms)


@given(data=st.data(), seed=SEEDS, dims=st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_repeats_are_views(data: Any, seed: int, dims: list[int]) -> None:
    repeats = data.draw(st.lists(st.integers(1, 3), min_size=len(dims), max_size=len(dims)), "repeats")
    wider = [1, *(n if n > 1 else repeat for n, repeat in zip(dims, repeats, strict=True))]
    text = "y = Tile(x, r) z = Expand(x, e)"
    graph = lm.lower_text(text, normal(seed, tuple(dims)), "y z", r=np.array(repeats), e=np.array(wider))
    assert lm.kinds_of(graph) == []


@pytest.mark.parametrize(
    ("indices", "dims"), [(1, (2, 4)), ([1, 2], (2, 2, 4)), (-1, (2, 4)), ([0, 2], (2, 2, 4)), ([1, 1, 1], (2, 3, 4))]
)
def test_gathers_of_rows_at_equal_distances_are_views(indices: Any, dims: tuple[int, ...]) -> None:
    graph = lm.lower_text("y = Gather <axis = 1> (x, k)", normal(0, (2, 3, 4)), k=np.array(indices))
    assert {op.kind for op in graph.ops} == {"view"}
    assert graph.tensors["y"].dims == dims


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_splits_are_parts(opset: int) -> None:
    is_input = opset >= 13
    text = f"a, b, c = Split <axis = 1{'' if is_input else ', split = [1, 4, 2]'}> (x{', sizes' if is_input else ''})"
    constants: dict[str, Any] = {"sizes": np.array([1, 4, 2])} if is_input else {}
    graph = lm.lower_text(text, normal(0, (2, 7, 3)), "a b c", opset=opset, **constants)
    parts = [((0, 0, 0), (2, 1, 3)), ((0, 1, 0), (2, 4, 3)), ((0, 5, 0), (2, 2, 3))]
    assert [op.transforms for op in graph.ops] == [(SubmemoryView(*part),) for part in parts]


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
    ("node", "dims"),
    [
        ('DepthToSpace <blocksize = 2, mode = "DCR">', (2, 8, 3, 2)),
        ('DepthToSpace <blocksize = 2, mode = "CRD">', (2, 8, 3, 2)),
        ("SpaceToDepth <blocksize = 2>", (2, 3, 4, 6)),
    ],
)
def test_blocks_of_space_are_views(node: str, dims: tuple[int, ...]) -> None:
    graph = lm.lower_text(f"y = {node} (x)", normal(0, dims))
    assert [type(op.transforms[0]) for op in graph.ops] == [ReshapeView, PermuteView, ReshapeView]


# Shuffles


def lower_shuffle(x: lm.Array, split: list[int], perm: list[int], merged: list[int], outputs: str = "y") -> OpGraph:
    text = f"a = Reshape(x, s) b = Transpose <perm = {perm}> (a) y = Reshape(b, m)"
    return lm.lower_text(text, x, outputs, s=np.array(split), m=np.array(merged))


@pytest.mark.parametrize(
    "dims", [(2, 16, 3), (1, 48, 2, 3), (1, 32, 2, 1, 3), (16, 3, 4), (2, 3, 16), (2, 24, 3), (2, 16)]
)
@pytest.mark.parametrize("each", [1, 2, 8])
def test_two_factors_of_channels_in_full_blocks_exchanged_are_a_shuffle(dims: tuple[int, ...], each: int) -> None:
    axis = next(i for i, n in enumerate(dims) if n > 8)
    split = [*dims[:axis], dims[axis] // each, each, *dims[axis + 1 :]]
    perm = [*range(axis), axis + 1, axis, *range(axis + 2, len(dims) + 1)]
    ops = lower_shuffle(normal(0, dims), split, perm, list(dims)).ops
    if each == 1 or axis != 1 or dims[axis] % 16 or len(dims) < 3:
        assert {op.kind for op in ops} == {"view"}
    else:
        assert [(op.kind, dict(op.parameters)) for op in ops] == [("shuffle", {"axis": axis, "group_size": each})]


def test_a_shuffle_leaves_views_that_others_read() -> None:
    graph = lower_shuffle(normal(0, (2, 16, 5)), [2, 2, 8, 5], [0, 2, 1, 3], [2, 16, 5], "b y")
    assert [op.kind for op in graph.ops] == ["view", "view", "shuffle"]


@pytest.mark.parametrize(
    ("split", "perm", "merged"),
    [
        ([2, 2, 8, 5], [0, 2, 1, 3], [2, 80]),
        ([2, 2, 8, 5], [0, 3, 2, 1], [2, 16, 5]),
        ([2, 16, 5, 1], [0, 2, 1, 3], [2, 16, 5]),
    ],
)
def test_other_exchanges_are_views(split: list[int], perm: list[int], merged: list[int]) -> None:
    graph = lower_shuffle(normal(0, (2, 16, 5)), split, perm, merged)
    assert {op.kind for op in graph.ops} == {"view"}


# The graph


def test_a_constant_output_is_returned() -> None:
    x = normal(1, (2, 3))
    model = written_model("y = Relu(x)", x.shape, "y c", c=normal(0, (2,)))
    network = lm.network_of(model, {"x": x}, {"y": x})
    np.testing.assert_array_equal(interpret(lower_network(network), {"x": x})["c"], normal(0, (2,)))


def test_one_result_may_have_two_names() -> None:
    graph = lm.lower_text("a = Relu(x) b = Identity(a) c = Identity(b)", normal(0, (2, 3)), "a b c")
    assert [op.kind for op in graph.ops] == ["eltwise", "view", "view"]


def test_nodes_that_nobody_reads_are_dropped() -> None:
    graph = lm.lower_text("y = Relu(x) unread = Relu(x)", normal(0, (2, 3)))
    assert [op.name for op in graph.ops] == ["y"]
