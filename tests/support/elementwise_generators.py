"""Nodes of element-wise operators in each type that ONNX allows, with special values; and their results by peers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

from tests.support.operator_cases import Array, Case, by_runtime, model_of, versions
from tests.support.operator_generators import Generator, maybe, pick, picks

Dims: TypeAlias = tuple[int, ...]

OLDEST = 7
"""The oldest opset that is supported."""

UNARY, BINARY, VARIADIC = (
    names.split()
    for names in (
        "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh Dropout Elu Erf Exp Floor Gelu "
        "HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink "
        "Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu",
        "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Mod Mul Or "
        "PRelu Sub SwiGLU Xor",
        "Max Mean Min Sum",
    )
)
OPERATORS = [*UNARY, *BINARY, *VARIADIC, "Where"]

ATTRIBUTES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    **{name: {"alpha": (None, 0.3, 1.5)} for name in ("Celu", "Elu", "LeakyRelu", "ThresholdedRelu")},
    **{name: {"alpha": (None, 0.3, -1.5)} for name in ("Swish", "SwiGLU")},
    "Gelu": {"approximate": ("none", "tanh")},
    "HardSigmoid": {"alpha": (None, 0.3), "beta": (None, 0.4)},
    "IsInf": {"detect_negative": (0, 1), "detect_positive": (0, 1)},
    "Selu": {"alpha": (None, 1.5), "gamma": (None, 2.0)},
    "Shrink": {"lambd": (None, 1.0, 0.75), "bias": (None, 1.0, 0.25)},
}
"""Values of the attributes of operators that are drawn alike."""

_DIMS: tuple[Dims, ...] = ((2, 3, 4), (), (0, 3), (1,), (64,))
_PAIRS: tuple[tuple[Dims, Dims], ...] = (
    ((2, 3, 4), (4,)),
    ((64,), (64,)),
    ((2, 3), ()),
    ((2, 3, 4), (3, 1)),
    ((), ()),
    ((0, 3), (1, 3)),
    ((3, 1), (1, 4)),
    ((3,), (2, 1)),
    ((), (2, 3)),
)
_SPECIAL = (
    0.0,
    -0.0,
    np.nan,
    np.inf,
    -np.inf,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.47,
    4.1,
    -6.5,
    30.0,
    -30.0,
    1e-3,
)


def types_of(operator: str) -> Iterator[tuple[int, np.dtype[Any]]]:
    """Yield each version of an operator with each type of NumPy or ml_dtypes that it allows."""
    for version in versions(operator, OLDEST):
        schema = defs.get_schema(operator, version, "")
        last = schema.inputs[min(len(schema.inputs) - 1, 1 if operator == "Where" else 0)]
        for name in sorted(last.types):
            code = name.removeprefix("tensor(").removesuffix(")").upper()
            code = {"FLOAT": "FLOAT", "DOUBLE": "DOUBLE"}.get(code, code)
            if "(" not in code and code != "STRING":
                yield version, np.dtype(helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(code)))


def is_floating(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or "float" in dtype.name


def numbers(rng: Generator, dtype: np.dtype[Any], dims: Dims) -> Array:
    """Return an array of special and ordinary numbers of a type."""
    if dtype.kind == "b":
        return np.asarray(rng.random(dims) < 0.5)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        small = rng.integers(0 if dtype.kind == "u" else -9, 10, dims).astype(dtype)
        special = rng.choice(np.array([limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1], dtype), dims)
        return np.where(rng.random(dims) < 0.7, small, special)
    special = rng.choice(np.array(_SPECIAL), dims)
    if is_floating(dtype) and dtype.itemsize > 1:
        largest = np.array([float(ml_dtypes.finfo(dtype).max), float(ml_dtypes.finfo(dtype).tiny)])  # type: ignore[no-untyped-call]
        special = np.where(rng.random(dims) < 0.1, rng.choice(np.array([*largest, *-largest]), dims), special)
    return np.where(rng.random(dims) < 0.6, 3 * rng.standard_normal(dims), special).astype(dtype)


def elementwise_case(operator: str, version: int, dtype: np.dtype[Any], seed: int) -> Case:
    """Return a node of an operator in one type; seeds give other dims in turn."""
    rng = np.random.default_rng([seed, version, *operator.encode(), *dtype.name.encode()])
    attributes = picks(rng, **ATTRIBUTES.get(operator, {}))
    arrays: dict[str, Any] = {}
    if operator in UNARY:
        arrays["x"] = numbers(rng, dtype, _DIMS[seed % len(_DIMS)])
    else:
        arrays = _several(rng, operator, version, dtype, seed)
    if operator in _VARIANTS:
        _VARIANTS[operator](rng, version, arrays, attributes)
    names = [name if array is not None else "" for name, array in arrays.items()]
    while not names[-1]:
        names.pop()
    results = ["y", "mask"] if operator == "Dropout" and version >= 12 and rng.random() < 0.5 else ["y"]
    given = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node(operator, names, results, "node", **given)
    name = f"{operator}-{version}-{dtype}-{seed}"
    return Case(name, node, version, {k: array for k, array in arrays.items() if array is not None}, [], False)


def _several(rng: Generator, operator: str, version: int, dtype: np.dtype[Any], seed: int) -> dict[str, Any]:
    """Return inputs that are broadcast, where the operator allows it."""
    pairs = _PAIRS[:6] if operator == "PRelu" else _PAIRS  # a slope is broadcast, x is not
    left, right = pairs[seed % len(pairs)]
    if operator == "SwiGLU" or (operator in VARIADIC and version < 8):
        left = right = _DIMS[seed % len(_DIMS)]
    arrays = {"a": numbers(rng, dtype, left), "b": numbers(rng, dtype, right)}
    if operator in VARIADIC:
        more = {f"c{k}": numbers(rng, dtype, pick(rng, left, right)) for k in range(seed % 3)}
        return {"a": arrays["a"]} if seed % 7 == 6 else arrays | more
    if operator == "Where":
        return {"condition": numbers(rng, np.dtype(bool), pick(rng, left, right, ())), **arrays}
    return arrays


def _clip(rng: Generator, version: int, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    low, high = pick(rng, (1, 5), (2, 3), (5, 1))
    if version < 11:
        attributes |= {"min": float(min(low, high)), "max": float(max(low, high))}
    else:
        bounds = {name: maybe(rng, np.array(n, arrays["x"].dtype)) for name, n in (("low", low), ("high", high))}
        if None in bounds.values() and is_floating(arrays["x"].dtype):  # onnx.reference does not limit infinities
            arrays["x"] = np.where(np.isinf(arrays["x"]), np.zeros((), arrays["x"].dtype), arrays["x"])
        arrays |= bounds


def _dropout(rng: Generator, version: int, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    if version < 12:
        attributes["ratio"] = 0.3
    else:
        arrays |= {"ratio": maybe(rng, np.array(0.3, np.float32)), "training": maybe(rng, np.array(False))}


def _divide(rng: Generator, version: int, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Replace divisors that stop the process of ONNX Runtime: 0 and -1."""
    divisor = arrays["b"]
    if not is_floating(divisor.dtype):
        arrays["b"] = np.where((divisor == 0) | (~divisor == 0), 3, divisor).astype(divisor.dtype)


def _mod(rng: Generator, version: int, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    attributes["fmod"] = 1 if version < 28 and is_floating(arrays["a"].dtype) else pick(rng, 0, 1)
    _divide(rng, version, arrays, attributes)


def _shift_bits(rng: Generator, version: int, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Shift by negative numbers and by too many bits only from opset 28 on, which specifies them."""
    amount = arrays["b"]
    if version < 28:
        arrays["b"] = (amount % (8 * amount.itemsize)).astype(amount.dtype)


def _prelu(rng: Generator, version: int, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Give finite slopes: `onnx.reference` multiplies 0 by them."""
    if is_floating(arrays["b"].dtype):
        arrays["b"] = np.where(np.isfinite(arrays["b"]), arrays["b"], np.ones((), arrays["b"].dtype))


def _shrink(rng: Generator, version: int, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Give small integers: peers compute in floats."""
    x = arrays["x"]
    if not is_floating(x.dtype):
        arrays["x"] = (x % np.asarray(100, x.dtype)).astype(x.dtype)


_VARIANTS = {
    "BitShift": _shift_bits,
    "Clip": _clip,
    "Div": _divide,
    "Dropout": _dropout,
    "Mod": _mod,
    "PRelu": _prelu,
    "Shrink": _shrink,
}


# Peers

_WIDER: Mapping[str, str] = {
    **dict.fromkeys(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), "float32"),
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz"), "float32"),
    **dict.fromkeys(("int8", "int16"), "int32"),
    **dict.fromkeys(("uint8", "uint16"), "uint32"),
    "int32": "int64",
    "uint32": "uint64",
}


def by_peers(case: Case) -> list[Array] | None:
    """Return the results of the first peer that computes a node; None if none does.

    Peers are ONNX Runtime, ONNX Runtime in wider types, whose results are rounded once or wrap, and `onnx.reference`.
    """
    first = case.arrays[case.node.input[-1]].dtype
    operator = case.node.op_type
    if (operator, case.opset) != ("BitShift", 28) and (operator, first.name) not in _WRONG_IN_RUNTIME:
        changed: Case | None = case
        while changed is not None:
            results = by_runtime(changed)
            if results is not None:
                return [_narrowed(one, first) if changed is not case else one for one in results]
            changed = _widened(changed)
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(one) for one in ReferenceEvaluator(model_of(case)).run(None, dict(case.arrays))]
    except (TypeError, ValueError):  # Softsign without axes, Mean with broadcasting
        return None


_WRONG_IN_RUNTIME = {
    ("Sign", "float16"),
    *(("Shrink", name) for name in ("float64", "int32", "int64", "uint32", "uint64")),
}
"""NaN becomes 0; numbers become float32."""


def _widened(case: Case) -> Case | None:
    """Return a case in the next wider type; None if there is none."""
    wider = _WIDER.get(case.arrays[case.node.input[-1]].dtype.name)
    if wider is None or case.node.op_type == "Dropout":
        return None
    arrays = {name: array if array.dtype == bool else array.astype(wider) for name, array in case.arrays.items()}
    return replace(case, arrays=arrays)


def _narrowed(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):
        return array if array.dtype == bool else array.astype(dtype)
