"""Functions of operators whose results are random: RandomNormal, RandomUniform, Bernoulli, Multinomial.

A node with the attribute `seed` has the same numbers in each run, and nodes with equal seeds, operators and dims have
equal numbers. They are those of NumPy's generator, so they differ from the numbers of other runtimes. Without a seed,
the numbers differ from run to run.

Source: ONNX, "Operators"; NumPy, `numpy.random.Generator`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, is_float, onnx_dtype
from inlay.graph.op_graph import Array
from inlay.layout import Dims

_FLOAT, _INT32 = 1, 6  # codes of TensorProto.DataType


def random_normal(call: OperatorCall) -> Array:
    """Compute RandomNormal or RandomNormalLike: numbers of a normal distribution."""
    dims, dtype = _dims_and_dtype(call)
    mean, deviation = float(call.attribute("mean", 0.0)), float(call.attribute("scale", 1.0))
    return np.asarray(_generator(call).standard_normal(dims) * deviation + mean).astype(dtype)


def random_uniform(call: OperatorCall) -> Array:
    """Compute RandomUniform or RandomUniformLike: numbers from `low` up to but not including `high`.

    A fraction from 0 to 1 has as many bits as the type of the result, so that it is not rounded to 1.
    """
    dims, dtype = _dims_and_dtype(call)
    low, high = float(call.attribute("low", 0.0)), float(call.attribute("high", 1.0))
    bits = int(ml_dtypes.finfo(dtype).nmant) + 1  # type: ignore[no-untyped-call]
    fractions = np.ldexp(_generator(call).integers(0, 1 << bits, dims).astype(np.float64), -bits)
    return np.asarray(fractions * (high - low) + low).astype(dtype)


def _dims_and_dtype(call: OperatorCall) -> tuple[Dims, np.dtype[Any]]:
    """Return dims and type of the result: those of the attributes, or of the input.

    Raises:
        InvalidArguments: a dim is negative, or the type is none of a float.
    """
    code = int(call.attribute("dtype", 0))
    if call.inputs:
        src = call.input(0)
        dims, dtype = src.shape, onnx_dtype(code) if code else src.dtype
    else:
        dims, dtype = tuple(int(n) for n in call.attribute("shape", ())), onnx_dtype(code or _FLOAT)
    if min(dims, default=0) < 0:
        raise call.invalid(f"dims {dims} are negative")
    if not is_float(dtype) or dtype.kind == "c":
        raise call.invalid(f"dims {dims} of {dtype} are those of no tensor of floats: state another dtype")
    return dims, dtype


def bernoulli(call: OperatorCall) -> Array:
    """Compute Bernoulli: 1 with the probability that the input has for each element, else 0."""
    src, code = call.input(0), int(call.attribute("dtype", 0))
    chances = src.astype(np.float64)
    if not ((chances >= 0) & (chances <= 1)).all():
        raise call.invalid("its input holds numbers that are no probabilities from 0 to 1")
    return np.asarray(_generator(call).random(src.shape) < chances).astype(onnx_dtype(code) if code else src.dtype)


def multinomial(call: OperatorCall) -> Array:
    """Compute Multinomial: classes drawn by the logarithms of their probabilities, a row for each row of the input."""
    src, count = call.input(0), int(call.attribute("sample_size", 1))
    if src.ndim != 2 or not src.shape[1] or count < 0:
        raise call.invalid(f"dims {src.shape} and sample_size {count} are not those of batch, classes and samples")
    weights = src.astype(np.float64)
    weights = np.exp(weights - weights.max(1, keepdims=True))
    sums = np.cumsum(weights, 1)
    if not np.isfinite(sums).all():
        raise call.invalid("a row of its input has NaN, or no class that is possible")
    draws = _generator(call).random((len(sums), count))
    # The last sum is 1 exactly, and each draw is less.
    drawn = [np.searchsorted(row / row[-1], draw, "right") for row, draw in zip(sums, draws, strict=True)]
    return np.array(drawn, onnx_dtype(int(call.attribute("dtype", _INT32)))).reshape(len(sums), count)


def _generator(call: OperatorCall) -> "np.random.Generator":  # importing it takes a while
    """Return a generator of random numbers, which begins with the node's seed if it has one."""
    seed = call.attribute("seed")
    return np.random.default_rng(None if seed is None else int(np.float32(seed).view(np.uint32)))


RANDOM_NUMBERS: Mapping[str, Callable[[OperatorCall], Array]] = {
    "Bernoulli": bernoulli,
    "Multinomial": multinomial,
    "RandomNormal": random_normal,
    "RandomNormalLike": random_normal,
    "RandomUniform": random_uniform,
    "RandomUniformLike": random_uniform,
}
"""Function of each operator whose result is random."""

RANDOM_OPERATORS = frozenset({*RANDOM_NUMBERS, "Dropout"})
"""Operators whose results may differ from run to run: these, and Dropout in training."""
