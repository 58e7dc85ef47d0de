"""Element types by ONNX's numbers, and the range of each, those of ml_dtypes included."""

from typing import Any

import ml_dtypes
import numpy as np

from inlay.graph.onnx_package import helper


def onnx_dtype(code: int) -> np.dtype[Any]:
    """The NumPy type of ONNX's TensorProto.DataType `code`."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(code))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether elements are floating-point numbers, of ml_dtypes too.

    >>> is_float(np.dtype(ml_dtypes.float8_e5m2)), is_float(np.dtype(ml_dtypes.int4))
    (True, False)
    """
    if dtype.kind in "iub":
        return False
    return dtype.kind in "fc" or "float" in dtype.name


def number_limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The least and the greatest finite number of a type.

    >>> number_limits(np.dtype(ml_dtypes.int4)), number_limits(np.dtype(ml_dtypes.float8_e4m3fn))
    ((-8.0, 7.0), (-448.0, 448.0))
    """
    if is_float(dtype):
        info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    else:
        info = ml_dtypes.iinfo(dtype) if dtype.kind == "V" else np.iinfo(dtype)  # type: ignore[no-untyped-call]
    return float(info.min), float(info.max)
