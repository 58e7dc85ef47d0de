"""Import of the optional package onnxruntime, at the first use: it takes a tenth of a second."""

from functools import cache
from typing import Any

INSTALL = "pip install 'inlay[fallback]'"
"""Command that installs ONNX Runtime."""


@cache
def _import_onnxruntime() -> Any:
    """Return the module onnxruntime, or None."""
    try:
        import onnxruntime
    except ImportError:
        return None
    return onnxruntime


def find_onnxruntime() -> Any:
    """Return the module onnxruntime; None if it is not installed."""
    return _import_onnxruntime()


@cache
def onnxruntime_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of ONNX Runtime, which have no base class of their own.

    Pre-condition: it is installed.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    classes = (value for value in vars(state).values() if isinstance(value, type))
    own = (value for value in classes if issubclass(value, Exception))
    return (RuntimeError, TypeError, ValueError, *own)


_SHOWN = 200  # characters of ONNX Runtime's text


def describe_error(error: Exception) -> str:
    """Return the text of an exception of ONNX Runtime on one line, without its code.

    >>> describe_error(RuntimeError("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : no kernel for Erf"))
    'no kernel for Erf'
    """
    text = " ".join(str(error).split())
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    return text[:_SHOWN].rstrip(" .") or type(error).__name__
