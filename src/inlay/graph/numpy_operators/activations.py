"""Functions of activations: one float for each float, with parameters of the node.

All are computed in float32, or in float64 for float64, and rounded once to the type of the input. They neither
overflow nor cancel where their result is a normal number. Parameters are float32, as ONNX stores them.

Relu, PRelu and Shrink take integers too.
"""

from collections.abc import Callable, Mapping
from math import ceil, floor, pi, sqrt

import numpy as np

from inlay.graph.numpy_operators.blockwise import compute_widened, map_blocks
from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype, is_float
from inlay.graph.numpy_operators.error_function import erf, erfc
from inlay.graph.op_graph import Array
from inlay.layout import Dims

_F64 = np.dtype(np.float64)


def _parameter(call: OperatorCall, name: str, default: float) -> float:
    """Return a parameter of the node, or its default, as a float32 number."""
    return float(np.float32(call.attribute(name, default)))


# Piecewise linear


def relu(call: OperatorCall) -> Array:
    """Compute Relu: max(x, 0)."""
    src = call.input(0)
    return np.asarray(np.maximum(src, src.dtype.type(0)))


def leaky_relu(call: OperatorCall) -> Array:
    """Compute LeakyRelu: alpha * x below 0."""
    alpha = _parameter(call, "alpha", 0.01)
    return map_blocks(lambda x: np.where(x < 0, alpha * x, x), call.input(0))


def prelu(call: OperatorCall) -> Array:
    """Compute PRelu: slope * x below 0, where the slope is broadcast to the dims of x.

    A slope for each channel may have one axis only, as before opset 7: older converters write it so.
    """
    src = call.input(0)
    slope = _align_slope(call, call.input(1), src.shape)
    return compute_widened(lambda x, factor: np.where(x < 0, factor * x, x), src, slope)


def _align_slope(call: OperatorCall, slope: Array, dims: Dims) -> Array:
    """Return a slope that NumPy broadcasts to `dims`."""
    pairs = zip(reversed(slope.shape), reversed(dims), strict=False)
    if slope.ndim <= len(dims) and all(n in (1, extent) for n, extent in pairs):
        return slope
    if slope.ndim == 1 and slope.shape == dims[1:2]:
        return slope.reshape(-1, *(1,) * (len(dims) - 2))
    raise call.invalid(f"a slope of dims {slope.shape} cannot be broadcast to {dims}")


def thresholded_relu(call: OperatorCall) -> Array:
    """Compute ThresholdedRelu: x above alpha, else 0."""
    alpha = _parameter(call, "alpha", 1.0)
    return map_blocks(lambda x: np.where(x > alpha, x, 0), call.input(0))


def hard_sigmoid(call: OperatorCall) -> Array:
    """Compute HardSigmoid: alpha * x + beta, limited to [0, 1]."""
    alpha, beta = _parameter(call, "alpha", 0.2), _parameter(call, "beta", 0.5)
    return map_blocks(lambda x: _limit(alpha * x + beta, 1), call.input(0))


def hard_swish(call: OperatorCall) -> Array:
    """Compute HardSwish: x times x / 6 + 0.5, which is limited to [0, 1]."""
    return map_blocks(lambda x: x * (_limit(x + 3, 6) / 6), call.input(0))


def _limit(x: Array, most: float) -> Array:
    """Limit numbers to [0, most] in place."""
    np.maximum(x, 0, out=x)
    return np.asarray(np.minimum(x, most, out=x))


def shrink(call: OperatorCall) -> Array:
    """Compute Shrink: x moved towards 0 by `bias`, and 0 from -lambd to lambd.

    Integers are truncated after a bias that is no integer.
    """
    limit, bias = _parameter(call, "lambd", 0.5), _parameter(call, "bias", 0.0)
    src = call.input(0)
    if is_float(src.dtype):
        return map_blocks(
            lambda x: np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0)),
            src,
        )
    low, high = src < ceil(-limit), src > floor(limit)
    if bias.is_integer():
        step = np.asarray(int(bias)).astype(src.dtype)
        below, above = src + step, src - step
    else:
        below, above = ((src + shift).astype(src.dtype) for shift in (bias, -bias))
    return np.asarray(np.where(low, below, np.where(high, above, src.dtype.type(0))))


# Exponential


def sigmoid(call: OperatorCall) -> Array:
    """Compute Sigmoid: 1 / (1 + exp(-x))."""
    return map_blocks(_sigmoid, call.input(0))


def _sigmoid(x: Array) -> Array:
    """Return the logistic function; the exponential is at most 1, so it never overflows."""
    power = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, power, 1) / (1 + power))


def softplus(call: OperatorCall) -> Array:
    """Compute Softplus: log(1 + exp(x))."""
    return map_blocks(_softplus, call.input(0))


def _softplus(x: Array) -> Array:
    """Return log(1 + exp(x)); the exponential is at most 1, so it never overflows."""
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def softsign(call: OperatorCall) -> Array:
    """Compute Softsign: x / (1 + |x|)."""
    return map_blocks(lambda x: x / (1 + np.abs(x)), call.input(0))


def elu(call: OperatorCall) -> Array:
    """Compute Elu: alpha * (exp(x) - 1) below 0."""
    alpha = _parameter(call, "alpha", 1.0)
    return map_blocks(lambda x: np.where(x < 0, alpha * np.expm1(x), x), call.input(0))


def celu(call: OperatorCall) -> Array:
    """Compute Celu: alpha * (exp(x / alpha) - 1) below 0."""
    alpha = _parameter(call, "alpha", 1.0)
    return map_blocks(lambda x: np.where(x < 0, alpha * np.expm1(x / alpha), x), call.input(0))


def selu(call: OperatorCall) -> Array:
    """Compute Selu: gamma * x from 0 on, gamma * alpha * (exp(x) - 1) below."""
    alpha = _parameter(call, "alpha", 1.67326319217681884765625)
    gamma = _parameter(call, "gamma", 1.05070102214813232421875)
    return map_blocks(lambda x: gamma * np.where(x < 0, alpha * np.expm1(x), x), call.input(0))


def mish(call: OperatorCall) -> Array:
    """Compute Mish: x * tanh(log(1 + exp(x)))."""
    return map_blocks(lambda x: x * np.tanh(_softplus(x)), call.input(0))


def swish(call: OperatorCall) -> Array:
    """Compute Swish: x / (1 + exp(-alpha * x))."""
    alpha = _parameter(call, "alpha", 1.0)
    return map_blocks(lambda x: x * _sigmoid(alpha * x), call.input(0))


def swiglu(call: OperatorCall) -> Array:
    """Compute SwiGLU: the Swish of the first input times the second one, which has the same dims."""
    gate, linear = call.input(0), call.input(1)
    if gate.shape != linear.shape:
        raise call.invalid(f"inputs have dims {gate.shape} and {linear.shape}: they must be the same")
    alpha = _parameter(call, "alpha", 1.0)
    return map_blocks(lambda a, b: a * _sigmoid(alpha * a) * b, gate, linear)


# Error function


def error_function(call: OperatorCall) -> Array:
    """Compute Erf: in float64, rounded to float32 for narrower types and integers."""
    src = call.input(0)
    dtype = accumulation_dtype(src.dtype)
    return map_blocks(lambda x: erf(x).astype(dtype, copy=False), src, working=_F64)


def gelu(call: OperatorCall) -> Array:
    """Compute Gelu: x times the normal distribution of x, exactly or by ONNX's approximation with tanh."""
    approximate = call.attribute("approximate", "none")
    if approximate not in _GELU:
        raise call.invalid(f"approximate {approximate!r} is none of {', '.join(_GELU)}")
    return map_blocks(_GELU[approximate], call.input(0), working=_F64)


_GELU: Mapping[str, Callable[[Array], Array]] = {
    "none": lambda x: 0.5 * x * erfc(x * -sqrt(0.5)),
    "tanh": lambda x: x * _sigmoid(sqrt(8 / pi) * (x + 0.044715 * x * x * x)),  # (1 + tanh(z)) / 2 = sigmoid(2 z)
}


ACTIVATIONS: Mapping[str, Callable[[OperatorCall], Array]] = {
    "Celu": celu,
    "Elu": elu,
    "Erf": error_function,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "LeakyRelu": leaky_relu,
    "Mish": mish,
    "PRelu": prelu,
    "Relu": relu,
    "Selu": selu,
    "Shrink": shrink,
    "Sigmoid": sigmoid,
    "Softplus": softplus,
    "Softsign": softsign,
    "SwiGLU": swiglu,
    "Swish": swish,
    "ThresholdedRelu": thresholded_relu,
}
"""Function of each activation."""
