"""Tensors without elements: an empty batch, sequence or image through each operator, light models and encoders."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper, parser, shape_inference

import inlay
from examples.random_networks import LIGHT, open_bert, open_light
from inlay.errors import InvalidArguments
from inlay.graph.fallback.assignment import Fallback
from inlay.graph.op_graph import Array
from tests.support.refusals import raises_exactly

_RNG = np.random.default_rng(0)


def _floats(*dims: int) -> Array:
    return _RNG.standard_normal(dims).astype(np.float32)


CONSTANTS: Mapping[str, Array] = {
    "k33": _floats(8, 4, 3, 3),
    "kd": _floats(4, 8, 2, 2),
    "kg": _floats(4, 1, 3, 3),
    "m": _floats(4, 5),
    "g": _floats(5, 4),
    "b5": _floats(5),
    "s4": np.abs(_floats(4)) + 1,
    "b4": _floats(4),
    **{f"{kind}{part}": _floats(1, gates * 3, n) for kind, gates in zip("lur", (4, 3, 1), strict=True)
       for part, n in (("w", 4), ("r", 3))},
    "table": _floats(7, 3),
    "row": _floats(1, 4),
    "half": np.array(0.5, np.float32),
    "zero": np.array(0.0, np.float32),
    "mask": np.array([[True, False, True, False]]),
    "scales": np.array([1, 1, 2, 2], np.float32),
    "values": np.array([0, 1], np.float32),
    "depth": np.array(3),
    "axis": np.array(1),
    **{
        name: np.array(numbers)
        for name, numbers in {
            "i0": [0],
            "i1": [1],
            "i2": [2],
            "i02": [0, 2],
            "i23": [2, 3],
            "copy": [0, -1],
            "parts": [0, 2, 2],
            "wider": [2, 1, 4],
            "pads": [0, 1, 0, 1],
            "image_pads": [0, 0, 1, 1, 0, 0, 1, 1],
        }.items()
    },
}  # fmt: skip

AXES: Mapping[str, tuple[str, ...]] = {
    "rows": ("n", "4"),
    "images": ("n", "4", "h", "w"),
    "sequences": ("n", "s", "4"),
    "steps": ("s", "n", "4"),
    "numbers": ("n",),
}
"""Axes of the input by kind; the numbers are fixed."""
EMPTY: Mapping[str, tuple[Mapping[str, int], ...]] = {
    "rows": ({"n": 0},),
    "images": ({"n": 0, "h": 6, "w": 6},),
    "sequences": ({"n": 0, "s": 5}, {"n": 2, "s": 0}, {"n": 0, "s": 0}),
    "steps": ({"s": 5, "n": 0},),
    "numbers": ({"n": 0},),
}

NODES: Mapping[str, tuple[str, ...]] = {
    "images": (
        "Conv <pads = [1, 1, 1, 1]> (x, k33)",
        "Conv <group = 4> (x, kg)",
        "ConvTranspose <strides = [2, 2]> (x, kd)",
        "MaxPool <kernel_shape = [2, 2]> (x)",
        "AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (x)",
        "LpPool <kernel_shape = [2, 2]> (x)",
        "GlobalAveragePool (x)",
        "GlobalMaxPool (x)",
        "BatchNormalization (x, s4, b4, b4, s4)",
        "InstanceNormalization (x, s4, b4)",
        "GroupNormalization <num_groups = 2> (x, s4, b4)",
        "LRN <size = 3> (x)",
        "ReduceMean (x, i23)",
        "ReduceMax (x, i23)",
        "Concat <axis = 1> (x, x)",
        "Flatten (x)",
        "Transpose <perm = [0, 2, 3, 1]> (x)",
        "Pad (x, image_pads)",
        'Pad <mode = "reflect"> (x, image_pads)',
        "DepthToSpace <blocksize = 2> (x)",
        "SpaceToDepth <blocksize = 2> (x)",
        'Resize <mode = "nearest"> (x, , scales)',
        'Resize <mode = "linear"> (x, , scales)',
        'Resize <mode = "cubic"> (x, , scales)',
    ),
    "rows": (
        "MatMul (x, m)",
        "Gemm <transB = 1> (x, g, b5)",
        "Softmax <axis = 0> (x)",
        "Softmax (x)",
        "LogSoftmax (x)",
        "Hardmax (x)",
        "Relu (x)",
        "Erf (x)",
        "Clip (x, zero, half)",
        "PRelu (x, s4)",
        "Cast <to = 10> (x)",
        "Cast <to = 7> (x)",
        "Add (x, b4)",
        "Add (x, x)",
        "Pow (x, half)",
        "Max (x, b4)",
        "Mean (x, x)",
        "Sum (x, x, x)",
        "Greater (x, b4)",
        "Where (mask, x, b4)",
        "ReduceSum (x, i1)",
        "ReduceMean (x, i1)",
        "ReduceMax (x, i1)",
        "ReduceL2 (x, i1)",
        "ArgMax <axis = 1> (x)",
        "Concat <axis = 0> (x, x)",
        "Reshape (x, parts)",
        "Flatten <axis = 0> (x)",
        "Transpose <perm = [1, 0]> (x)",
        "Unsqueeze (x, i1)",
        "Slice (x, i0, i2)",
        "Slice (x, i0, i2, i1)",
        "Gather <axis = 1> (x, i02)",
        "Expand (x, wider)",
        "Tile (x, i1)",
        "Pad (x, pads)",
        'Einsum <equation = "ij,jk->ik"> (x, m)',
        'Einsum <equation = "ij,ij->i"> (x, x)',
        "CumSum (x, axis)",
        "Identity (x)",
        "Dropout (x)",
    ),
    "sequences": (
        "MatMul (x, m)",
        "LayerNormalization (x, s4, b4)",
        "RMSNormalization (x, s4)",
        "Softmax <axis = 1> (x)",
        "Gelu (x)",
        "Mul (x, half)",
        "Trilu (x)",
        "Transpose <perm = [0, 2, 1]> (x)",
        "ReduceSum (x, i2)",
    ),
    "steps": (
        "LSTM <hidden_size = 3> (x, lw, lr)",
        'LSTM <hidden_size = 3, activations = ["Relu", "Tanh", "Tanh"]> (x, lw, lr)',
        "GRU <hidden_size = 3> (x, uw, ur)",
        "RNN <hidden_size = 3> (x, rw, rr)",
    ),
    "numbers": ("Gather (table, x)", "OneHot (x, depth, values)"),
}
"""Nodes by the kind of their input."""


def model_of(text: str, kind: str) -> ModelProto:
    """The model of one node with open dims."""
    operands = text.replace("Tile (x, i1)", "Tile (x, i02)")
    dtype = "int64" if kind == "numbers" else "float"
    graph = f"g ({dtype}[{', '.join(AXES[kind])}] x) => (float y) {{ y = {operands} }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 23]> {graph}')
    used = {name for name in model.graph.node[0].input if name in CONSTANTS}
    model.graph.initializer.extend(numpy_helper.from_array(CONSTANTS[name], name) for name in sorted(used))
    if not text.startswith("GroupNormalization"):  # onnx infers no type for it
        model.graph.output[0].ClearField("type")
    return shape_inference.infer_shapes(model)


def input_of(kind: str, extents: Mapping[str, int]) -> Array:
    """An input of these extents."""
    dims = tuple(int(name) if name.isdecimal() else extents[name] for name in AXES[kind])
    return np.zeros(dims, np.int64) if kind == "numbers" else np.ones(dims, np.float32)


def inferred(model: ModelProto, x: Array) -> tuple[tuple[int, ...], Any]:
    """Dims and type of the result that ONNX infers for an input."""
    bound = ModelProto()
    bound.CopyFrom(model)
    for dim, n in zip(bound.graph.input[0].type.tensor_type.shape.dim, x.shape, strict=True):
        dim.dim_value = n
    bound.graph.output[0].type.tensor_type.ClearField("shape")
    if bound.graph.node[0].op_type == "GroupNormalization":
        return x.shape, None
    kind = shape_inference.infer_shapes(bound, data_prop=True).graph.output[0].type.tensor_type
    return tuple(dim.dim_value for dim in kind.shape.dim), kind.elem_type


CASES = [pytest.param(text, kind, id=text) for kind, texts in NODES.items() for text in texts]


@pytest.mark.parametrize("fallback", ["auto", False])
@pytest.mark.parametrize(("text", "kind"), CASES)
def test_an_operator_of_no_elements_has_the_dims_that_onnx_defines(text: str, kind: str, fallback: Fallback) -> None:
    model = model_of(text, kind)
    network = inlay.load(model.SerializeToString())
    session = inlay.compile(network, costs="probed", fallback=fallback)
    session.run({"x": input_of(kind, {"n": 3, "s": 5, "h": 6, "w": 6})})
    for extents in EMPTY[kind]:
        x = input_of(kind, extents)
        dims, _ = inferred(model, x)
        assert 0 in dims
        assert session.run({"x": x})["y"].shape == dims
        bound = inlay.load(model.SerializeToString(), dims=extents)
        assert bound.tensors["y"].dims == dims
        found = inlay.plan(bound, costs="probed", fallback=fallback).compile().run({"x": x})["y"]
        assert (found.shape, found.dtype) == (dims, bound.tensors["y"].dtype)


@pytest.mark.parametrize("fallback", ["auto", False])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ReduceSum (x, i0)", 0.0),
        ("ReduceMean (x, i0)", 0.0),
        ("ReduceMax (x, i0)", -np.inf),
        ("ReduceMin (x, i0)", np.inf),
        ("ReduceProd (x, i0)", 1.0),
        ("ReduceL2 (x, i0)", 0.0),
        ("ReduceLogSumExp (x, i0)", -np.inf),
    ],
)
def test_a_reduction_over_no_elements_is_that_of_onnx_runtime(text: str, value: float, fallback: Fallback) -> None:
    session = inlay.compile(inlay.load(model_of(text, "rows").SerializeToString()), costs="probed", fallback=fallback)
    found = session.run({"x": np.zeros((0, 4), np.float32)})["y"]
    assert found.tolist() == [[value] * 4]


@pytest.mark.parametrize(
    ("text", "kind", "error"),
    [
        ("ArgMax <axis = 0> (x)", "rows", "node 'y': ArgMax: axis 0 of dims (0, 4) has no elements"),
    ],
)
def test_what_has_no_result_is_refused(text: str, kind: str, error: str) -> None:
    session = inlay.compile(inlay.load(model_of(text, kind).SerializeToString()), costs="probed")
    with raises_exactly(InvalidArguments, error):
        session.run({"x": input_of(kind, EMPTY[kind][0])})


@pytest.mark.parametrize(
    ("shape", "dims", "expected"),
    [
        ([0, -1], (0, 5, 4), (0, 20)),
        ([0, -1, 4], (0, 5, 4), (0, 5, 4)),
        ([0, 0, -1], (2, 0, 4), (2, 0, 4)),
        ([0, -1], (0, 0, 4), (0, 0)),
        ([-1, 4], (0, 5, 4), (0, 4)),
    ],
)
def test_a_reshape_infers_an_extent_beside_a_copied_one_of_0(
    shape: list[int], dims: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, s, 4] x) => (float y) { r = Reshape (x, t) y = Relu (r) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(shape), "t"))
    session = inlay.compile(inlay.load(model.SerializeToString()), costs="probed")
    for given in (dims, (2, 5, 4), dims):
        assert session.run({"x": np.ones(given, np.float32)})["y"].size == np.prod(given)
    assert session.run({"x": np.ones(dims, np.float32)})["y"].shape == expected


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_model_runs_an_empty_batch(name: str) -> None:
    model = open_light(name).SerializeToString()
    session = inlay.compile(inlay.load(model), costs="probed")
    (x,) = inlay.load(model, batch=0).inputs
    found = session.run({x: np.zeros((0, 3, 224, 224), np.float32)})
    assert all(array.shape[:2] == (0, 1000) for array in found.values())


def test_an_encoder_runs_an_empty_batch_and_an_empty_sequence() -> None:
    session = inlay.compile(inlay.load(open_bert(1, 8, 2).SerializeToString()), costs="probed")
    for dims in ((0, 5, 8), (2, 0, 8), (0, 0, 8), (2, 5, 8), (0, 7, 8)):
        (found,) = session.run({"embeddings": np.ones(dims, np.float32)}).values()
        assert found.shape == dims
