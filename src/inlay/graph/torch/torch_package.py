"""Import of PyTorch and of its exporter to ONNX, at first use: they take seconds, and may be absent."""

from functools import cache
from typing import Any

from inlay.errors import MissingExtra

TorchTensor = Any
"""A tensor of PyTorch, which has no static types here."""


@cache
def require_torch() -> Any:
    """Return the module torch.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch is not installed: pip install 'inlay[torch]'") from None
    return torch


@cache
def require_exporter() -> Any:
    """Return the module onnx_ir, which the exporter of PyTorch to ONNX brings along.

    Raises:
        MissingExtra: PyTorch, onnx or onnxscript is not installed.
    """
    require_torch()
    try:
        import onnx  # noqa: F401
        import onnx_ir
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            f"{error.name} is not installed, which PyTorch needs to export: pip install 'inlay[torch]'"
        ) from None
    return onnx_ir
