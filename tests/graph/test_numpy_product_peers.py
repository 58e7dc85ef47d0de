"""Products, convolutions, attention, signals and losses in types and cases that ONNX Runtime does not compute."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from inlay.errors import InvalidArguments
from inlay.graph.network import Node
from inlay.graph.numpy_operators.evaluation import compute_node
from tests.graph.test_numpy_operator_peers import compare
from tests.support.operator_cases import Array, Case, by_runtime, model_of, node_of
from tests.support.operator_generators import Generator, Made, make_case
from tests.support.product_generators import PRODUCT_GENERATORS, attention_scores, col2im, product_case

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore")

BY_REFERENCE: Mapping[str, tuple[Callable[[Generator], Made], int]] = {
    "Attention": (attention_scores, 4),  # ONNX Runtime has no windows, and writes the least float for -inf
    "Col2Im": (lambda rng: col2im(rng, 3), 1),  # ONNX Runtime's sums of images with three axes differ
}
"""Generators of nodes that ONNX's own evaluator computes rightly, and their numbers of outputs."""


@pytest.mark.parametrize("operator", BY_REFERENCE)
def test_random_nodes_give_what_onnx_evaluator_gives(operator: str) -> None:
    for seed in range(40):
        case = make_case(operator, seed, *BY_REFERENCE[operator])
        wanted = [np.asarray(one) for one in ReferenceEvaluator(model_of(case)).run(None, case.arrays)]
        assert compare(case, wanted) == "", case.node


EXACT = ("DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "MelWeightMatrix")
TYPED = [name for name in PRODUCT_GENERATORS if name not in EXACT and not name.endswith("Window")]
TYPES = {np.float16: 1e-2, ml_dtypes.bfloat16: 6e-2, np.float64: 2e-5}
"""Float types, and how far a result may be from that of float32; of bfloat16 some results are rounded twice."""


@pytest.mark.parametrize("operator", TYPED)
@pytest.mark.parametrize("dtype", TYPES)
def test_other_float_types_give_what_onnx_runtime_gives_in_f32(operator: str, dtype: Any) -> None:
    """Inputs are numbers of the type, so that both compute with the same; results have the inputs' type."""
    for seed in range(6):
        case = product_case(operator, seed)
        typed = {n: a.astype(dtype) if a.dtype == np.float32 else a for n, a in case.arrays.items()}
        plain = {n: a.astype(case.arrays[n].dtype) for n, a in typed.items()}
        wanted = by_runtime(Case(case.name, case.node, case.opset, plain, [], False))
        assert wanted is not None
        for name, one in zip(case.node.output, wanted, strict=True):
            got = compute_node(node_of(case), case.opset, typed)[name]
            assert got.dtype == (dtype if one.dtype == np.float32 else one.dtype)
            assert np.allclose(
                got.astype(np.float64), one, rtol=TYPES[dtype], atol=TYPES[dtype] * np.abs(one).max(initial=0)
            )


def wrapped(values: Any, dtype: Any) -> Array:
    """Return Python's integers as they wrap around in a type."""
    bits = np.iinfo(dtype).bits
    return np.asarray([int(n) % 2**bits for n in np.asarray(values).reshape(-1)], f"u{bits // 8}").view(dtype)


INTEGER_NODES: Mapping[str, tuple[dict[str, Any], Callable[..., Any]]] = {
    "MatMul": ({}, lambda a, b, c: a @ b),
    "Gemm": ({"alpha": 3.0, "beta": -2.0}, lambda a, b, c: a @ b * 3 + c * -2),
    "Einsum": ({"equation": "ij,jk,ik->ki"}, lambda a, b, c: (a @ b * c).T),
}
"""Attributes of a node of three matrices, and its result by integers of Python."""


@pytest.mark.parametrize("operator", INTEGER_NODES)
@pytest.mark.parametrize("name", ["i4", "i8", "u4", "u8", "i1", "u2"])
def test_products_of_integers_are_exact_and_wrap_around(operator: str, name: str) -> None:
    dtype, rng = np.dtype(name), np.random.default_rng(5)
    info = np.iinfo(dtype)
    a, b, c = (rng.integers(info.min, info.max, dims, dtype, endpoint=True) for dims in ((3, 4), (4, 2), (3, 2)))
    attributes, by_python = INTEGER_NODES[operator]
    reads = "ab" if operator == "MatMul" else "abc"
    got = compute_node(Node("n", operator, tuple(reads), ("y",), attributes), 13, {"a": a, "b": b, "c": c})["y"]
    assert got.dtype == dtype
    assert np.array_equal(got.reshape(-1), wrapped(by_python(*(x.astype(object) for x in (a, b, c))), dtype))


def run(operator: str, opset: int, arrays: dict[str, Any], **attributes: Any) -> list[Array]:
    """Return the results of a node whose inputs are these arrays; None for those that are left out."""
    names = tuple(name if array is not None else "" for name, array in arrays.items())
    node = Node("n", operator, names, ("y", "z", "u", "v")[: attributes.pop("outputs", 1)], attributes)
    return list(compute_node(node, opset, {n: np.asarray(a) for n, a in arrays.items() if a is not None}).values())


def test_small_floats_are_multiplied_and_saturate() -> None:
    kind = ml_dtypes.float8_e4m3fn
    a, b = np.array([[1.5, -2.0], [448.0, 448.0]], kind), np.array([[2.0, 0.5], [1.0, 416.0]], kind)
    scales, zero = np.array([0.5, 2.0, 0.25], np.float16), np.zeros((), kind)
    arrays = {"a": a, "as": scales[0], "az": zero, "b": b, "bs": scales[1], "bz": zero, "ys": scales[2], "yz": zero}
    (got,) = run("QLinearMatMul", 21, arrays)
    exact = a.astype(np.float64) @ b.astype(np.float64) * 0.5 * 2 / 0.25
    assert got.dtype == kind
    assert np.array_equal(got, np.clip(exact, -448, 448).astype(kind))


def test_zero_points_are_by_row_column_and_channel() -> None:
    rng = np.random.default_rng(1)
    a, b, rows = (rng.integers(0, 256, dims).astype(np.uint8) for dims in ((3, 4), (4, 2), 3))
    exact = (a.astype(int) - rows[:, None]) @ b.astype(int)
    assert np.array_equal(run("MatMulInteger", 10, {"a": a, "b": b, "z": rows})[0], exact)
    stacked = np.stack([a, a])
    arrays = {"a": stacked, "b": b, "z": np.stack([rows, rows])[:, :, None]}
    assert np.array_equal(run("MatMulInteger", 10, arrays)[0], np.stack([exact, exact]))
    x, w, zeros = rng.integers(0, 256, (1, 2, 5)), rng.integers(0, 256, (3, 2, 1)), np.array([1, 2, 3], np.uint8)
    images = {"x": x.astype(np.uint8), "w": w.astype(np.uint8), "xz": None, "wz": zeros}
    wanted = np.einsum("oc,cn->on", w[:, :, 0] - zeros[:, None], x[0])
    assert np.array_equal(run("ConvInteger", 10, images)[0][0], wanted)


def zeros(*dims: int) -> Array:
    return np.zeros(dims, np.float32)


EMPTY: list[tuple[str, int, dict[str, Any], dict[str, Any], list[Any]]] = [
    ("MatMul", 13, {"a": zeros(2, 0), "b": zeros(0, 3)}, {}, [[[0] * 3] * 2]),
    ("MatMul", 13, {"a": zeros(0, 2), "b": zeros(2, 3)}, {}, [zeros(0, 3)]),
    ("Gemm", 13, {"a": zeros(1, 0), "b": zeros(0, 2), "c": [1, 2]}, {}, [[[1, 2]]]),
    ("Einsum", 12, {"a": zeros(2, 0)}, {"equation": "ij->i"}, [[0, 0]]),
    ("Conv", 11, {"x": zeros(0, 1, 3), "w": zeros(2, 1, 1)}, {}, [zeros(0, 2, 3)]),
    ("Conv", 11, {"x": zeros(1, 0, 3), "w": zeros(1, 0, 1), "b": [5]}, {}, [[[[5] * 3]]]),
    (
        "CausalConvWithState",
        27,
        {"x": zeros(1, 2, 0), "w": zeros(2, 1, 2)},
        {"outputs": 2},
        [zeros(1, 2, 0), [[[0]] * 2]],
    ),
    ("Det", 11, {"x": zeros(2, 0, 0)}, {}, [[1, 1]]),
    ("RMSNormalization", 23, {"x": zeros(0, 2), "s": zeros(2)}, {}, [zeros(0, 2)]),
    ("InstanceNormalization", 6, {"x": zeros(0, 1, 2), "s": zeros(1), "b": zeros(1)}, {}, [zeros(0, 1, 2)]),
    ("Attention", 23, {"q": zeros(1, 1, 2, 3), "k": zeros(1, 1, 0, 3), "v": zeros(1, 1, 0, 1)}, {}, [[[[[0]] * 2]]]),
    ("DFT", 20, {"x": zeros(0, 3, 1)}, {"onesided": 1}, [zeros(0, 2, 2)]),
    ("HannWindow", 17, {"n": np.array(0)}, {}, [zeros(0)]),
    ("HannWindow", 17, {"n": np.array(1)}, {"periodic": 0}, [[1]]),
    ("DynamicQuantizeLinear", 11, {"x": zeros(0)}, {"outputs": 3}, [[], 1, 0]),
    ("NegativeLogLikelihoodLoss", 13, {"x": zeros(0, 2), "y": np.zeros(0, int)}, {"reduction": "sum"}, [0]),
    ("AffineGrid", 20, {"t": zeros(1, 2, 3), "n": np.array([1, 1, 0, 2])}, {}, [zeros(1, 0, 2, 2)]),
]


@pytest.mark.parametrize(("operator", "opset", "arrays", "attributes", "wanted"), EMPTY)
def test_tensors_without_elements(operator: str, opset: int, arrays: Any, attributes: Any, wanted: Any) -> None:
    reads = {
        name: np.asarray(array, np.float32) if isinstance(array, list) else array for name, array in arrays.items()
    }
    got = run(operator, opset, reads, **attributes)
    assert [one.tolist() for one in got] == [np.asarray(one).tolist() for one in wanted]
    assert [one.shape for one in got] == [np.shape(one) for one in wanted]


X = zeros(1, 2, 3)
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("MatMul", {"a": zeros(2, 3), "b": zeros(2, 3)}, {}, "dims (2, 3) and (2, 3) have no matrix product"),
    ("Gemm", {"a": X, "b": X}, {}, "dims (1, 2, 3) and (1, 2, 3) are not those of two matrices"),
    (
        "Gemm",
        {"a": zeros(1, 2), "b": zeros(2, 1), "c": zeros(2)},
        {},
        "C of dims (2,) cannot be broadcast to the product's, (1, 1)",
    ),
    ("Einsum", {"a": X}, {"equation": "ij,jk"}, "equation 'ij,jk' has 2 terms for 1 inputs"),
    ("Conv", {"x": X, "w": zeros(2, 1, 1)}, {}, "1 groups of dims (2, 1, 1) do not fit 2 channels"),
    (
        "Conv",
        {"x": X, "w": zeros(2, 2, 1)},
        {"kernel_shape": (2,)},
        "weights of dims (2, 2, 1), kernel (2,), do not fit an image of (1, 2, 3)",
    ),
    ("Det", {"x": X}, {}, "dims (1, 2, 3) end in no square matrix"),
    ("Attention", {"q": X, "k": X, "v": X}, {}, "0 heads do not fit dims (1, 2, 3)"),
    ("RotaryEmbedding", {"x": X[None], "c": X, "s": X}, {}, "3 features are not pairs of its 3"),
    ("DFT", {"x": X}, {}, "the last axis of dims (1, 2, 3) has neither 1 nor 2 parts of a number"),
    (
        "NegativeLogLikelihoodLoss",
        {"x": zeros(1, 2), "y": np.array([2])},
        {},
        "'y' has label 2, and there are 2 classes",
    ),
    ("MaxUnpool", {"x": X, "k": X - 1}, {"kernel_shape": (1,)}, "'k' has indices outside of its result of 6 elements"),
]


@pytest.mark.parametrize(("operator", "arrays", "attributes", "text"), REFUSED)
def test_nodes_that_onnx_does_not_allow_are_refused(operator: str, arrays: Any, attributes: Any, text: str) -> None:
    with pytest.raises(InvalidArguments) as error:
        run(operator, 23, arrays, **attributes)
    assert str(error.value) == f"node 'n': {operator}: {text}"
