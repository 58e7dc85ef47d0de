"""Functions of operators that compute each element from the elements at the same place, with NumPy's broadcasting.

- **Arithmetic** of integers wraps; Div truncates toward 0, and a quotient by the integer 0 is 0. - **Max and Min**
return NaN where an input is NaN. - **Elementary functions, Mod, Sum and Mean** of float16 and bfloat16 are computed in
float32 and rounded once. - **Dropout** returns its input, or leaves elements out if an input enables training.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import numpy as np

from inlay.graph.numpy_operators.blockwise import compute_widened, map_blocks
from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype, is_float, number_limits
from inlay.graph.op_graph import Array

_Operator: TypeAlias = Callable[[OperatorCall], Array | tuple[Array, ...]]

# One ufunc


def _apply_ufunc(ufunc: np.ufunc, call: OperatorCall) -> Array:
    """Return a ufunc of the node's inputs, whose result NumPy and ml_dtypes round correctly in each type."""
    return _write(ufunc, call, *(call.input(index) for index in range(ufunc.nin)))


def _write(ufunc: np.ufunc, call: OperatorCall, *inputs: Array) -> Array:
    """Return a ufunc of inputs of one type, written to the call's memory where it has the dims and type of the result.

    A result is of the type of the inputs, or boolean.
    """
    dims, memory = np.broadcast_shapes(*(array.shape for array in inputs)), call.memory
    kinds = {array.dtype for array in inputs}
    is_fit = (
        memory is not None and memory.shape == dims and len(kinds) == 1 and memory.dtype in (*kinds, np.dtype(bool))
    )
    return np.asarray(ufunc(*inputs, out=memory if is_fit else None))


def _apply_elementary(ufunc: np.ufunc, call: OperatorCall) -> Array:
    """Return an elementary function of a float input, computed in float32 at least."""
    src = call.input(0)
    is_wide = accumulation_dtype(src.dtype) == src.dtype
    return _write(ufunc, call, src) if is_wide else map_blocks(ufunc, src)


def divide(call: OperatorCall) -> Array:
    """Compute Div; quotients of integers are truncated toward 0."""
    a, b = call.input(0), call.input(1)
    if a.dtype.kind == "i":
        return np.asarray((a - np.fmod(a, b)) // b)
    return np.asarray(a // b if a.dtype.kind == "u" else a / b)


def modulo(call: OperatorCall) -> Array:
    """Compute Mod: the remainder has the sign of the dividend if `fmod` is 1, else that of the divisor."""
    ufunc = np.fmod if call.attribute("fmod", 0) else np.remainder
    return compute_widened(ufunc, call.input(0), call.input(1))


_SHIFTS: Mapping[str, np.ufunc] = {"LEFT": np.left_shift, "RIGHT": np.right_shift}


def shift_bits(call: OperatorCall) -> Array:
    """Compute BitShift; a shift by a negative number, or by all bits and more, leaves copies of the sign or 0."""
    direction = call.attribute("direction")
    if direction not in _SHIFTS:
        raise call.invalid(f"direction {direction!r} is none of {', '.join(_SHIFTS)}")
    return _apply_ufunc(_SHIFTS[direction], call)


# Several inputs


def _accumulate(ufunc: np.ufunc, arrays: list[Array]) -> Array:
    """Return a ufunc of all arrays from left to right; a result is reused if it has the dims of the next one."""
    result, is_own = arrays[0], False
    for array in arrays[1:]:
        fits = is_own and np.broadcast_shapes(result.shape, array.shape) == result.shape
        result, is_own = np.asarray(ufunc(result, array, out=result if fits else None)), True
    return result


def _combine(ufunc: np.ufunc, call: OperatorCall) -> Array:
    """Return a ufunc of all inputs of the node."""
    return _accumulate(ufunc, [call.input(index) for index in range(len(call.inputs))])


def add_all(call: OperatorCall) -> Array:
    """Compute Sum: the sum of all inputs."""
    return _sum_widened(call).astype(call.input(0).dtype, copy=False)


def average(call: OperatorCall) -> Array:
    """Compute Mean: the sum of all inputs divided by their number."""
    return np.asarray(_sum_widened(call) / len(call.inputs)).astype(call.input(0).dtype, copy=False)


def _sum_widened(call: OperatorCall) -> Array:
    """Return the sum of all inputs in float32, or in float64 for float64."""
    working = accumulation_dtype(call.input(0).dtype)
    arrays = [call.input(index).astype(working, copy=False) for index in range(len(call.inputs))]
    return _accumulate(np.add, arrays)


def select(call: OperatorCall) -> Array:
    """Compute Where: the element of the second input where the first is true, else of the third."""
    condition, one, other = (call.input(index) for index in range(3))
    if one.dtype != other.dtype or condition.dtype != np.bool_:
        return np.where(condition, one, other)
    result = call.destination(np.broadcast_shapes(condition.shape, one.shape, other.shape), one.dtype)
    np.copyto(result, other)
    np.copyto(result, one, where=condition)
    return result


def clip(call: OperatorCall) -> Array:
    """Compute Clip: min(high, max(low, x)). The bounds are attributes before opset 11 and inputs from then on."""
    src = call.input(0)
    limits = number_limits(src.dtype) if is_float(src.dtype) else (None, None)
    low, high = (
        _clip_bound(call, name, index, limit) for name, index, limit in (("min", 1, limits[0]), ("max", 2, limits[1]))
    )
    result = src if low is None else np.asarray(np.maximum(src, low))
    return result if high is None else np.asarray(np.minimum(result, high, out=None if result is src else result))


def _clip_bound(call: OperatorCall, name: str, index: int, default: float | None) -> Array | None:
    """Return a bound of Clip in the type of the input; if it is left out, the default, a limit of this type."""
    given = call.attribute(name) if call.opset < 11 else call.optional(index)
    value = default if given is None else given
    if value is None:
        return None
    bound = np.asarray(value, np.float64 if given is None or call.opset < 11 else None)
    if bound.size != 1:
        raise call.invalid(f"bound {call.node.inputs[index]!r} has {bound.size} elements, and must have one")
    return bound.reshape(()).astype(call.input(0).dtype)


# Special values


def is_nan(call: OperatorCall) -> Array:
    """Compute IsNaN."""
    return np.asarray(np.isnan(call.input(0)))


def is_infinite(call: OperatorCall) -> Array:
    """Compute IsInf, for both infinities or for those that the node names."""
    src = call.input(0)
    result = np.asarray(np.isinf(src))
    for name, is_other_sign in (("detect_negative", np.greater), ("detect_positive", np.less)):
        if not call.attribute(name, 1):
            result &= is_other_sign(src, src.dtype.type(0))
    return result


# Identity and Dropout


def identity(call: OperatorCall) -> Array:
    """Compute Identity: the input itself."""
    return call.input(0)


def dropout(call: OperatorCall) -> tuple[Array, ...]:
    """Compute Dropout: the input, and in training a random part of it, scaled; and which elements are kept.

    Training is enabled by an input from opset 12 on. The mask has the type of the input before opset 10.
    """
    src = call.input(0)
    ratio, training = (call.optional(index) if call.opset >= 12 else None for index in (1, 2))
    share = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    if training is None or not training.any() or share == 0:
        mask_dtype = src.dtype if call.opset < 10 else np.dtype(bool)
        return (src, np.ones(src.shape, mask_dtype)) if call.has_output(1) else (src,)
    # The generator of ONNX's own examples, so that a seed repeats their results.
    mask = np.asarray(np.random.RandomState(call.attribute("seed")).random_sample(src.shape) >= share)
    factor = accumulation_dtype(src.dtype).type(1 / (1 - share))
    return compute_widened(lambda x: np.where(mask, x * factor, 0), src).astype(src.dtype, copy=False), mask


_EXACT: Mapping[str, np.ufunc] = {
    "Abs": np.absolute,
    "Add": np.add,
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseNot": np.invert,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Ceil": np.ceil,
    "Equal": np.equal,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Reciprocal": np.reciprocal,
    "Round": np.rint,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}
_ELEMENTARY: Mapping[str, np.ufunc] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Log": np.log,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
ELEMENTWISE: Mapping[str, _Operator] = {
    **{name: partial(_apply_ufunc, ufunc) for name, ufunc in _EXACT.items()},
    **{name: partial(_apply_elementary, ufunc) for name, ufunc in _ELEMENTARY.items()},
    "BitShift": shift_bits,
    "Clip": clip,
    "Div": divide,
    "Dropout": dropout,
    "Identity": identity,
    "IsInf": is_infinite,
    "IsNaN": is_nan,
    "Max": partial(_combine, np.maximum),
    "Mean": average,
    "Min": partial(_combine, np.minimum),
    "Mod": modulo,
    "Sum": add_all,
    "Where": select,
}
"""Function of each operator on the elements at one place, apart from activations."""
