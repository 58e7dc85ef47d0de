"""Arguments and results of `session(x)`: arrays in the order of the inputs, and results of the kind of these arrays.

>>> import numpy as np
>>> from inlay.graph.network import Tensor
>>> x = Tensor("x", (2,), np.dtype(np.float32))
>>> name_inputs((np.zeros(2, np.float32),), (x,))
{'x': array([0., 0.], dtype=float32)}
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from inlay.errors import InvalidArguments, printable
from inlay.forks import import_lock
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenTensor


def name_inputs(arrays: Sequence[Any], inputs: Sequence[Tensor | OpenTensor]) -> Mapping[str, Any]:
    """Return the arguments of a call by the names of the inputs: one mapping, or an array for each input in order.

    Raises:
        InvalidArguments: there are more or fewer arrays than inputs.
    """
    if len(arrays) == 1 and isinstance(arrays[0], Mapping):
        return arrays[0]
    if len(arrays) != len(inputs):
        described = ", ".join(f"{printable(tensor.name)} {tensor.extents}" for tensor in inputs) or "none"
        raise InvalidArguments(
            f"{len(arrays)} arrays are given, and the inputs are {described}: give an array for each of them, in this "
            "order, or one mapping of names to arrays"
        )
    return {tensor.name: array for tensor, array in zip(inputs, arrays, strict=True)}


def view_tensors(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return inputs with arrays in place of PyTorch tensors, whose memory they share.

    Tensors that no array can share, such as those on other devices, stay as they are: the checks of a run name them.
    """
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(value, torch.Tensor) for value in inputs.values()):
        return inputs
    return {name: _view_tensor(torch, value) for name, value in inputs.items()}


def _view_tensor(torch: Any, value: Any) -> Any:
    """Return the array that shares the memory of a value, if it is a tensor and there is one; else the value."""
    if not isinstance(value, torch.Tensor):
        return value
    with import_lock:
        from inlay.rearranging.array_kinds import numpy_of_torch

    with suppress(RuntimeError, TypeError):
        return numpy_of_torch(torch, value)
    return value


def return_like(inputs: Mapping[str, Any], outputs: Mapping[str, Array]) -> Any:
    """Return outputs as arrays of the kind of the inputs: one alone, or a tuple in the order of the outputs.

    The kind is that of the first input that is no array of NumPy. PyTorch tensors share the memory of the outputs, and
    JAX arrays where JAX can share it. Objects of other libraries, and memory of Inlay, are answered by NumPy arrays
    unless their library reads DLPack.
    """
    example = next((value for value in inputs.values() if type(value) is not np.ndarray), None)
    if example is None:
        results = tuple(outputs.values())
    else:
        results = tuple(map(_converter(example), outputs.values()))
    return results[0] if len(results) == 1 else results


def _converter(example: Any) -> Callable[[Array], Any]:
    """Return the function that makes an array of the kind of `example` from one of NumPy."""
    # Imported here, since a session of NumPy's arrays needs no other kinds of arrays.
    with import_lock:
        from inlay.rearranging.array_kinds import from_numpy_like, jax_of_numpy, torch_of_numpy

    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(example, torch.Tensor):
        return partial(torch_of_numpy, torch)
    if jax is not None and isinstance(example, jax.Array):
        return partial(jax_of_numpy, jax)
    return from_numpy_like(example)
