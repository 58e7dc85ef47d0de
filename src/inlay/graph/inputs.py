"""What a run is given: arrays of NumPy, tensors of PyTorch, whatever has DLPack, checked against the network's inputs.

Each input becomes an array, row-major, or memory of a descriptor that says its strides; nothing is copied here where a
descriptor can say them.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import InvalidArguments
from inlay.graph.network import Tensor
from inlay.graph.op import Array
from inlay.interop import from_array, from_torch
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.memory.buffers import array_of
from inlay.printable import printable

Fed: TypeAlias = Array | Memory
"""An input as instances take it."""


def taken(inputs: object, tensors: Iterable[Tensor]) -> dict[str, Fed]:
    """The inputs of a run by name, of the types that `tensors` say; dims are for the caller to compare.

    Raises:
        InvalidArguments: `inputs` is no mapping, one is missing or unknown, is no array, or has another type.
    """
    wanted = {tensor.name: tensor for tensor in tensors}
    if not isinstance(inputs, Mapping):
        raise InvalidArguments(
            f"inputs are a {type(inputs).__name__}: give a mapping of names to arrays, of {_listed(wanted.values())}"
        )
    if unknown := [name for name in inputs if name not in wanted]:
        raise InvalidArguments(f"the network has no input {unknown[0]!r}: it takes {_listed(wanted.values())}")
    if missing := [name for name in wanted if name not in inputs]:
        raise InvalidArguments(f"input {missing[0]} is missing: the network takes {_listed(wanted.values())}")
    return {name: _taken(tensor, inputs[name]) for name, tensor in wanted.items()}


def dims_of(value: Fed) -> Dims:
    """The dims of an input."""
    return value.desc.dims if isinstance(value, Memory) else value.shape


def require_dims(tensor: Tensor, dims: Dims, remedy: str) -> None:
    """Refuse an input of other dims than the network was compiled for.

    Raises:
        InvalidArguments: so it is.
    """
    if dims != tensor.dims:
        raise InvalidArguments(f"input {tensor.name} has dims {dims}, the session is for {tensor.dims}: {remedy}")


def out_arrays(out: object, tensors: Iterable[Tensor]) -> dict[str, Array]:
    """The arrays that results shall be written to, by name; those that are left out are new.

    Raises:
        InvalidArguments: `out` is no mapping, a name is no output, or an array is none of NumPy's, has other dims or
            another type, is read-only, or not row-major.
    """
    wanted = {tensor.name: tensor for tensor in tensors}
    if out is None:
        return {}
    if not isinstance(out, Mapping):
        raise InvalidArguments(f"out is a {type(out).__name__}: give a mapping of outputs to arrays")
    for name, array in out.items():
        if name not in wanted:
            raise InvalidArguments(f"the network has no output {name!r}: it gives {_listed(wanted.values())}")
        _require_result(wanted[name], array)
    return dict(out)


def _require_result(tensor: Tensor, array: Any) -> None:
    is_fit = isinstance(array, np.ndarray) and array.shape == tensor.dims and array.dtype == tensor.dtype
    if not is_fit or not (array.flags.writeable and array.flags.c_contiguous):
        given = f"{array.dtype} of dims {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise InvalidArguments(
            f"out of {tensor.name} is {given}: give a writable, row-major array of {tensor.dtype} and dims "
            f"{tensor.dims}"
        )


def _listed(tensors: Iterable[Tensor]) -> str:
    return ", ".join(f"{printable(tensor.name)} {tensor.dims} {tensor.dtype}" for tensor in tensors) or "none"


def _taken(tensor: Tensor, value: Any) -> Fed:
    torch = sys.modules.get("torch")
    is_torch = torch is not None and isinstance(value, torch.Tensor)
    if isinstance(value, Memory):
        fed: Fed = value
    elif is_torch and value.ndim and value.dtype != torch.bool:  # type: ignore[union-attr]
        fed = from_torch(value)
    else:
        fed = _of_array(tensor, value.detach().cpu() if is_torch else value)
    dtype = fed.desc.data_type.dtype if isinstance(fed, Memory) and fed.desc.data_type else getattr(fed, "dtype", None)
    if dtype != tensor.dtype:
        raise InvalidArguments(
            f"input {tensor.name} is {dtype}, the network takes {tensor.dtype}: convert it, as with "
            f"astype({str(tensor.dtype)!r})"
        )
    return fed


def _of_array(tensor: Tensor, value: object) -> Fed:
    """An array as it is if it is row-major, as memory if a descriptor can say its strides, else a copy."""
    if isinstance(value, (list, tuple, str, int, float)):
        raise InvalidArguments(
            f"input {tensor.name} is a {type(value).__name__}: give an array of {tensor.dtype} and dims {tensor.dims}"
        )
    array = np.asarray(value) if isinstance(value, np.generic) else array_of(value, f"input {tensor.name}")
    if array.flags.c_contiguous:
        return array
    try:
        return from_array(array)
    except InvalidArguments:
        return np.ascontiguousarray(array)
