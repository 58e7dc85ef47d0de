"""`ConstantTensors`: parameters and buffers that a compiled graph has read, and whether they have changed since.

A tensor of PyTorch counts its changes in place (`Tensor._version`), and another tensor or another address shows that it
was replaced. Nothing shows a write through `Tensor.data`, or through an array that shares the memory.

Source: PyTorch, "Autograd mechanics", in-place correctness checks.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter, is_
from typing import Any

from inlay.graph.torch.torch_package import TorchTensor, require_torch

_version: Callable[[Any], int] = attrgetter("_version")


class ConstantTensors:
    """The state of tensors at the time when their elements were read."""

    __slots__ = ("_address", "_addresses", "_versions", "tensors")

    def __init__(self, tensors: Sequence[TorchTensor]) -> None:
        """Note the present state of the tensors, each of which counts its changes."""
        self.tensors = tuple(tensors)
        """The tensors."""
        self._address = require_torch().Tensor.data_ptr
        self._versions = list(map(_version, self.tensors))
        self._addresses = list(map(self._address, self.tensors))

    def match(self, tensors: Sequence[TorchTensor]) -> bool:
        """Return whether these are the same tensors, in the same memory, and unchanged as far as PyTorch knows."""
        return (
            len(tensors) == len(self.tensors)
            and all(map(is_, tensors, self.tensors))
            and list(map(_version, tensors)) == self._versions
            and list(map(self._address, tensors)) == self._addresses
        )


def find_gradients(tensors: Sequence[TorchTensor]) -> str:
    """Return why gradients are wanted: the mode that is on and a tensor that requires them; empty if they are not."""
    torch = require_torch()
    if not torch.is_grad_enabled():
        return ""
    wanted = next((tensor for tensor in tensors if tensor.requires_grad), None)
    if wanted is None:
        return ""
    kind = "a parameter" if isinstance(wanted, torch.nn.Parameter) else "an input"
    return f"gradients are on, and {kind} of shape {tuple(wanted.shape)} requires them"
