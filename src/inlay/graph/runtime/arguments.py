"""Checks of the inputs of a run, and of the arrays that its results are written to.

Inputs are NumPy arrays, PyTorch tensors or any objects with DLPack, and are checked against the inputs of the network.
Each becomes a row-major array, or memory whose descriptor has its strides; it is copied only where no descriptor can
have them.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from inlay.arguments import integer_or_none
from inlay.errors import InvalidArguments, printable
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenTensor
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.memory.buffers import view_as_array
from inlay.memory.frameworks import from_array, from_torch

InputValue: TypeAlias = Array | Memory
"""An input that is checked: a row-major array, or memory."""


def check_inputs(inputs: object, tensors: Iterable[Tensor | OpenTensor]) -> dict[str, InputValue]:
    """Check the names and types of a run's inputs, and return them as arrays or memory; the caller checks the dims.

    Raises:
        InvalidArguments: `inputs` is no mapping, or one is missing, unknown, no array, or of another type.
    """
    wanted = {tensor.name: tensor for tensor in tensors}
    if not isinstance(inputs, Mapping):
        raise InvalidArguments(
            f"inputs are a {type(inputs).__name__}: give a mapping of names to arrays, of {_describe(wanted)}"
        )
    if unknown := [name for name in inputs if name not in wanted]:
        raise InvalidArguments(f"the network has no input {unknown[0]!r}: it takes {_describe(wanted)}")
    if missing := [name for name in wanted if name not in inputs]:
        raise InvalidArguments(f"input {missing[0]} is missing: the network takes {_describe(wanted)}")
    return {name: _check_input(tensor, inputs[name]) for name, tensor in wanted.items()}


def require_runs(runs: object) -> int:
    """Return the number of runs of a profile.

    Raises:
        InvalidArguments: it is not a whole number from 1 on.
    """
    count = integer_or_none(runs) or 0
    if count < 1:
        raise InvalidArguments(f"runs is {runs!r}: give 1 or more")
    return count


def draw_input(tensor: Tensor) -> Array:
    """Return an array for an input: seeded normal numbers, or 0 and 1 for integers, which are indices of any table.

    >>> draw_input(Tensor("ids", (4,), np.dtype(np.int64))).tolist()
    [0, 1, 1, 1]
    """
    rng = np.random.default_rng(1)
    if np.issubdtype(tensor.dtype, np.integer) or tensor.dtype == np.bool_:
        return rng.integers(0, 2, tensor.dims).astype(tensor.dtype)
    return rng.standard_normal(tensor.dims, np.float32).astype(tensor.dtype)


def match_arrays(inputs: object, tensors: Sequence[Tensor]) -> dict[str, InputValue] | None:
    """Return inputs that need neither conversion nor an error; None if `check_inputs` has to look at them.

    They are a dict with a row-major array of NumPy for each tensor, of its dims and type, and nothing else.
    """
    if type(inputs) is not dict or len(inputs) != len(tensors):
        return None
    for tensor in tensors:
        array = inputs.get(tensor.name)
        if type(array) is not np.ndarray or array.shape != tensor.dims or array.dtype != tensor.dtype:
            return None
        if not array.flags.c_contiguous:
            return None
    return inputs


def dims_of(value: InputValue) -> Dims:
    """Return the dims of an input."""
    return value.desc.dims if isinstance(value, Memory) else value.shape


def as_arrays(values: Mapping[str, InputValue]) -> dict[str, Array]:
    """Return inputs as arrays, in the order of their axes; those in memory of another format are unpacked."""
    return {name: value.unpack() if isinstance(value, Memory) else value for name, value in values.items()}


def require_dims(tensors: Iterable[Tensor | OpenTensor], dims: Mapping[str, Dims]) -> None:
    """Check that inputs have the dims that a session is for.

    Raises:
        InvalidArguments: one has others.
    """
    for tensor in tensors:
        if dims[tensor.name] != tensor.dims:
            raise InvalidArguments(
                f"input {tensor.name} has dims {dims[tensor.name]}, the session is for {tensor.extents}: give such an "
                "array, or plan the network for these dims"
            )


def check_outputs(out: object, tensors: Iterable[Tensor]) -> dict[str, Array]:
    """Check the arrays that results are to be written to, and return them by name; None means none.

    Raises:
        InvalidArguments: `out` is no mapping, a name is no output, or an array is not one of NumPy's, has other dims or
            another type, is read-only, or not row-major.
    """
    wanted = {tensor.name: tensor for tensor in tensors}
    if out is None:
        return {}
    if not isinstance(out, Mapping):
        raise InvalidArguments(f"out is a {type(out).__name__}: give a mapping of outputs to arrays")
    for name, array in out.items():
        if name not in wanted:
            raise InvalidArguments(f"the network has no output {name!r}: it gives {_describe(wanted)}")
        _check_output(wanted[name], array)
    return dict(out)


def _check_output(tensor: Tensor, array: Any) -> None:
    """Check that an array is writable, row-major and of the tensor's dims and type."""
    if tensor.is_dynamic:
        raise InvalidArguments(
            f"out of {tensor.name} is given, and its dims depend on the data of a run: leave it out, each run returns "
            "a new array"
        )
    is_suitable = isinstance(array, np.ndarray) and array.shape == tensor.dims and array.dtype == tensor.dtype
    if not is_suitable or not (array.flags.writeable and array.flags.c_contiguous):
        given = f"{array.dtype} of dims {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise InvalidArguments(
            f"out of {tensor.name} is {given}: give a writable, row-major array of {tensor.dtype} and dims "
            f"{tensor.dims}"
        )


def _describe(tensors: Mapping[str, Tensor | OpenTensor]) -> str:
    """Return the names, dims and types of tensors for an error message."""
    return (
        ", ".join(f"{printable(tensor.name)} {tensor.extents} {tensor.dtype}" for tensor in tensors.values()) or "none"
    )


def _check_input(tensor: Tensor | OpenTensor, value: Any) -> InputValue:
    """Check the type of one input, and return it as an array or memory."""
    torch = sys.modules.get("torch")
    is_torch = torch is not None and isinstance(value, torch.Tensor)
    if isinstance(value, Memory):
        checked: InputValue = value
    elif is_torch and value.ndim and value.dtype != torch.bool:  # type: ignore[union-attr]
        checked = from_torch(value)
    else:
        checked = _convert_array(tensor, value.detach().cpu() if is_torch else value)
    dtype = getattr(checked, "dtype", None)
    if isinstance(checked, Memory) and checked.desc.data_type:
        dtype = checked.desc.data_type.dtype
    if dtype != tensor.dtype:
        raise InvalidArguments(
            f"input {tensor.name} is {dtype}, the network takes {tensor.dtype}: convert it, as with "
            f"astype({str(tensor.dtype)!r})"
        )
    return checked


def _convert_array(tensor: Tensor | OpenTensor, value: object) -> InputValue:
    """Return an input as a row-major array, or as memory with its strides.

    It is copied only where no descriptor can have its strides.
    """
    if isinstance(value, (list, tuple, str, int, float)):
        raise InvalidArguments(
            f"input {tensor.name} is a {type(value).__name__}: give an array of {tensor.dtype} and dims "
            f"{tensor.extents}"
        )
    array = np.asarray(value) if isinstance(value, np.generic) else view_as_array(value, f"input {tensor.name}")
    if array.flags.c_contiguous:
        return array
    try:
        return from_array(array)
    except InvalidArguments:
        return np.ascontiguousarray(array)
