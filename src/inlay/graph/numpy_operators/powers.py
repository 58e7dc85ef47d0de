"""Pow of integers and floats in any combination."""

from collections.abc import Callable, Mapping

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.types import is_float
from inlay.graph.op import Array


def power(call: OperatorCall) -> Array:
    """x to the power of y, of the type of x; integers to negative powers are cut, as 2 to -1 to 0."""
    base, exponent = call.input(0), call.input(1)
    if is_float(base.dtype) or (not is_float(exponent.dtype) and not (exponent < 0).any()):
        working = np.result_type(base.dtype, np.float32) if base.dtype.kind in "V" else base.dtype
        other = exponent.astype(np.float32) if exponent.dtype.kind == "V" else exponent
        if is_float(base.dtype) and exponent.dtype.kind != "f":
            other = other.astype(working)
        return np.asarray(np.power(base.astype(working), other).astype(base.dtype))
    info = np.iinfo(base.dtype)
    result = np.power(base.astype(np.float64), exponent.astype(np.float64))
    high = np.nextafter(info.max, 0.0) if base.dtype.itemsize == 8 else float(info.max)
    within = np.clip(np.nan_to_num(result, nan=0.0, posinf=high, neginf=float(info.min)), info.min, high)
    return np.asarray(within.astype(base.dtype))


POWERS: Mapping[str, Callable[[OperatorCall], Array]] = {"Pow": power}
"""The function of each operator."""
