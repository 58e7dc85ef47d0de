"""Element-wise operators of NumPy, in each type that ONNX allows: results of peers, accuracy, and special values."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from inlay.errors import InvalidArguments
from inlay.graph.network import Node
from inlay.graph.numpy_operators.error_function import erf, erfc
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.op_graph import Array
from tests.support.elementwise_generators import OPERATORS, by_peers, elementwise_case, types_of
from tests.support.operator_cases import attributes_of
from tests.support.refusals import raises_exactly

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("error")


def compute(operator: str, opset: int, *arrays: Any, outputs: int = 1, **attributes: Any) -> list[Array]:
    names = [f"x{k}" if array is not None else "" for k, array in enumerate(arrays)]
    node = Node("node", operator, tuple(names), tuple(f"y{k}" for k in range(outputs)), attributes)
    given = {name: array for name, array in zip(names, arrays, strict=True) if name}
    return list(compute_node(node, opset, given).values())


def difference(got: Array, wanted: Array) -> str:
    """How a result differs from a peer's, which may be 1e-5 off; empty if it does not."""
    if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        return f"{got.dtype} {got.shape}, not {wanted.dtype} {wanted.shape}"
    if got.dtype.kind != "f" and got.dtype.name != "bfloat16":
        return "" if got.tobytes() == wanted.tobytes() else f"{got.reshape(-1)[:9]}, not {wanted.reshape(-1)[:9]}"
    tolerance = {"float16": 2e-3, "bfloat16": 1.6e-2}.get(got.dtype.name, 1e-5)
    a, b = got.astype(np.float64).reshape(-1), wanted.astype(np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        close = np.isclose(a, b, rtol=tolerance, atol=tolerance if got.itemsize == 2 else 1e-6, equal_nan=True)
    return "" if close.all() else f"{a[~close][:6]}, not {b[~close][:6]}"


def failures(operator: str, seeds: range) -> list[str]:
    """Nodes of all versions and types of an operator that differ from a peer; most must be such as one computes."""
    faults, compared, count = [], 0, 0
    for version, dtype in types_of(operator):
        for seed in seeds:
            case = elementwise_case(operator, version, dtype, seed)
            wanted, attributes = by_peers(case), attributes_of(case.node)
            compared, count = compared + (wanted is not None), count + 1
            arrays = [case.arrays.get(name) for name in case.node.input]
            got = compute(operator, version, *arrays, outputs=len(case.node.output), **attributes)
            texts = [difference(one, other) for one, other in zip(got, wanted or got, strict=True)]
            faults += [f"{case.name} {attributes}: {text}" for text in texts if text]
    assert compared >= 0.8 * count, (operator, compared, count)
    return faults


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_type_gives_what_peers_give(operator: str) -> None:
    assert failures(operator, range(2)) == []


@pytest.mark.heavy
@pytest.mark.parametrize("operator", OPERATORS)
def test_many_nodes_of_each_type_give_what_peers_give(operator: str) -> None:
    assert failures(operator, range(2, 36)) == []


# Accuracy

FLOATS = [np.dtype(one) for one in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]

SELU = float(np.float32(1.6732631921768188)), float(np.float32(1.0507010221481323))


def by_torch(operator: str, x: Array) -> Array:
    """What torch computes in float64."""
    torch = pytest.importorskip("torch")
    functions = {
        "Celu": torch.celu,
        "Elu": torch.nn.functional.elu,
        "Erf": torch.erf,
        "Gelu": lambda v: v * torch.erfc(-v * 0.5**0.5) / 2,  # torch's own loses digits of small results
        "HardSwish": torch.nn.functional.hardswish,
        "Mish": lambda v: v * torch.tanh(torch.logaddexp(v, torch.zeros_like(v))),
        "Reciprocal": torch.reciprocal,
        "Round": torch.round,
        "Selu": lambda v: SELU[1] * torch.where(v < 0, SELU[0] * torch.expm1(v), v),  # torch has other digits
        "Sigmoid": torch.sigmoid,
        "Softplus": lambda v: torch.logaddexp(v, torch.zeros_like(v)),
        "Softsign": torch.nn.functional.softsign,
        "Swish": torch.nn.functional.silu,
    }
    function = functions[operator] if operator in functions else getattr(torch, operator.lower())
    return np.asarray(function(torch.from_numpy(x)))


SMOOTH = (
    "Acos Acosh Asin Asinh Atan Atanh Celu Ceil Cos Cosh Elu Erf Exp Floor Gelu HardSwish Log Mish Reciprocal "
    "Round Selu Sigmoid Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh"
)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("operator", SMOOTH.split())
def test_results_are_a_few_units_from_those_of_torch_in_float64(operator: str, dtype: np.dtype[Any]) -> None:
    """More elements than a block has, which are not contiguous."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.uniform(-30, 30, 9000), rng.uniform(-2, 2, 9000), 10 ** rng.uniform(-4, 1.5, 9000)])
    x = values.reshape(3, -1).astype(dtype).T
    (got,) = compute(operator, 22, x)
    wide = by_torch(operator, x.astype(np.float64))
    with np.errstate(all="ignore"):
        wanted = wide.astype(dtype)
        unit = np.abs(np.nextafter(np.abs(wanted), dtype.type(np.inf)).astype(np.float64) - np.abs(wanted))
        off = np.abs(got.astype(np.float64) - wide) / unit
    assert np.array_equal(np.isfinite(got), np.isfinite(wanted))
    units = UNITS.get((operator, dtype.name), 1.01 if dtype.itemsize == 2 else 5)
    assert np.nanmax(np.where(np.isfinite(wanted), off, 0)) <= units


UNITS = {("Gelu", "float64"): 500}  # the rounding of its argument grows with the square of it


def test_error_functions_are_those_of_python() -> None:
    x = np.concatenate([np.linspace(-30, 30, 4001), np.array([0.46875, -0.46875, 4.0, np.nan, np.inf, -np.inf, -0.0])])
    for function, plain in ((erf, math.erf), (erfc, math.erfc)):
        wanted = np.array([plain(one) for one in x])
        with np.errstate(invalid="ignore", under="ignore"):
            units = np.abs(function(x) - wanted) / np.spacing(np.abs(wanted))
        limit = 3 if function is erf else 3 * (1 + np.maximum(x, 0) ** 2)
        assert (np.isnan(x) | (units <= limit)).all()
        assert np.isnan(function(x)[np.isnan(x)]).all()


# Results that peers do not define, or define otherwise

NAN, INF = float("nan"), float("inf")
I8_MIN = -128
X = np.ones(2)


@pytest.mark.parametrize(
    ("operator", "opset", "dtype", "arrays", "attributes", "expected"),
    [
        ("Div", 14, "i1", ([7, -7, 7, -7, I8_MIN, 5, 0], [2, 2, -2, -2, -1, 0, 0]), {}, [3, -3, -3, 3, I8_MIN, 0, 0]),
        ("Div", 14, "i8", ([2**62 + 1, -(2**63)], [1, -1]), {}, [2**62 + 1, -(2**63)]),
        ("Div", 14, "u8", ([2**64 - 1, 5], [2, 0]), {}, [2**63 - 1, 0]),
        ("Div", 14, "f4", ([1, -1, 0], [0, 0, 0]), {}, [INF, -INF, NAN]),
        ("Mod", 13, "i4", ([7, -7, 7, -7, 3], [3, 3, -3, -3, 0]), {}, [1, 2, -2, -1, 0]),
        ("Mod", 13, "i4", ([7, -7, 7, -7, 3], [3, 3, -3, -3, 0]), {"fmod": 1}, [1, -1, 1, -1, 0]),
        ("Mod", 28, "f4", ([7, -7, 7, INF, 5, -5], [3, 3, 0, 2, INF, INF]), {}, [1, 2, NAN, NAN, 5, INF]),
        ("Abs", 13, "i1", ([I8_MIN, -1],), {}, [I8_MIN, 1]),
        ("Neg", 13, "i1", ([I8_MIN, -1],), {}, [I8_MIN, 1]),
        ("Add", 14, "u1", ([255, 250], [1, 10]), {}, [0, 4]),
        ("Max", 13, "f2", ([NAN, 1, -INF], [1, NAN, 2], [3, 3, 3]), {}, [NAN, NAN, 3]),
        ("Sum", 13, "f2", ([60000], [60000], [-60000]), {}, [60000]),
        ("Mean", 13, "f2", ([60000], [60000]), {}, [60000]),
        ("Mean", 13, "f8", ([1], [[2], [3]], 6), {}, [[3], [10 / 3]]),
        ("Clip", 13, "f4", ([NAN, INF, 1], 2, 1), {}, [NAN, 1, 1]),
        ("Clip", 6, "f8", ([-5, INF],), {"min": -1.0}, [-1, np.finfo(np.float64).max]),
        ("Clip", 12, "u8", ([0, 2**64 - 1], 2**63 + 1), {}, [2**63 + 1, 2**64 - 1]),
        ("Sigmoid", 13, "f4", ([-100, 1000, -1000, NAN],), {}, [3.783506e-44, 1, 0, NAN]),
        ("Softplus", 22, "f4", ([-INF, -50, 1000, INF],), {}, [0, 1.928750e-22, 1000, INF]),
        ("Round", 22, "f2", ([0.5, 1.5, 2.5, -0.5, -1.5],), {}, [0, 2, 2, 0, -2]),
        ("Shrink", 9, "i8", ([2**62 + 1, -(2**62) - 1, 1],), {"bias": 1.0, "lambd": 1.5}, [2**62, -(2**62), 0]),
        ("PRelu", 7, "f4", ([[[-1], [-2]]], [3, 4]), {}, [[[-3], [-8]]]),
        ("Sign", 13, "f4", ([NAN, -0.0, -3],), {}, [NAN, 0, -1]),
    ],
)
def test_a_result_is_as_specified(
    operator: str, opset: int, dtype: str, arrays: Any, attributes: dict[str, Any], expected: Any
) -> None:
    (got,) = compute(operator, opset, *(np.array(array, dtype) for array in arrays), **attributes)
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_allclose(got, np.array(expected, dtype), rtol=1e-6 if got.dtype.kind == "f" else 0)


@pytest.mark.parametrize(("opset", "dtype"), [(7, np.float32), (10, np.bool_), (13, np.bool_), (22, np.bool_)])
def test_the_mask_of_dropout_keeps_all_elements(opset: int, dtype: type) -> None:
    result, mask = compute("Dropout", opset, np.ones((2, 3), np.float32), outputs=2)
    assert mask.dtype == dtype
    assert mask.all()
    assert result.all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dropout_in_training_scales_what_it_keeps(dtype: np.dtype[Any]) -> None:
    arrays = np.ones(2000, dtype), np.array(0.75, np.float32), np.array(True)
    result, mask = compute("Dropout", 13, *arrays, outputs=2, seed=3)
    assert np.array_equal(result, np.where(mask, 4, 0).astype(dtype))
    assert result.dtype == dtype
    assert mask.dtype == bool
    assert 400 < mask.sum() < 600


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes", "text"),
    [
        ("BitShift", (X, X), {"direction": "UP"}, "direction 'UP' is none of LEFT, RIGHT"),
        ("Clip", (X, X), {}, "bound 'x1' has 2 elements, and must have one"),
        ("Gelu", (X,), {"approximate": "erf"}, "approximate 'erf' is none of none, tanh"),
        ("PRelu", (X, np.ones((2, 2))), {}, "a slope of dims (2, 2) cannot be broadcast to (2,)"),
        ("SwiGLU", (X, X[:1]), {}, "inputs have dims (2,) and (1,): they must be the same"),
    ],
)
def test_arguments_that_onnx_does_not_allow_are_refused(operator: str, arrays: Any, attributes: Any, text: str) -> None:
    with raises_exactly(InvalidArguments, f"node 'node': {operator}: {text}"):
        compute(operator, 28, *arrays, **attributes)
