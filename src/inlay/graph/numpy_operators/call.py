"""`OperatorCall`: one evaluation of a node, with the arrays that it reads; and properties of element types.

>>> node = Node("n", "Gather", ("x", "k"), ("y",), {"axis": 1})
>>> call = OperatorCall(node, 13, (np.eye(2), np.array([0])))
>>> call.attribute("axis", 0), call.input(1).tolist(), call.optional(2)
(1, [0], None)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.network import Node
from inlay.graph.op_graph import Array


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A node of ONNX with its inputs as arrays."""

    node: Node
    """The node: operator, attributes, names for errors."""
    opset: int
    """Version of ONNX's operators."""
    inputs: tuple[Array | None, ...]
    """Inputs in order; None where an input is left out."""
    memory: Array | None = None
    """Array that the first result may be written to, with its dims and type; its elements overlap no input."""

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node, or `default` if the node does not have it."""
        return self.node.attributes.get(name, default)

    def input(self, index: int) -> Array:
        """Return input `index`, which is required.

        Raises:
            InvalidArguments: the input is left out.
        """
        array = self.optional(index)
        if array is None:
            raise self.invalid(f"input {index} is left out")
        return array

    def optional(self, index: int) -> Array | None:
        """Return input `index`, or None if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def integers(self, name: str, index: int, input_since: int) -> list[int] | None:
        """Return integers that are attribute `name` before opset `input_since`, and input `index` from then on.

        The result is None if they are left out.
        """
        values = self.attribute(name) if self.opset < input_since else self.optional(index)
        return None if values is None else [int(n) for n in np.asarray(values).reshape(-1)]

    def destination(self, dims: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array for a first result of these dims and this type: `memory` if it has them, else a new one."""
        if self.memory is not None and (self.memory.shape, self.memory.dtype) == (dims, dtype):
            return self.memory
        return np.empty(dims, dtype)

    def has_output(self, index: int) -> bool:
        """Return whether the node has an output `index` that is not left out."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    def axis(self, axis: int, count: int) -> int:
        """Return an axis of `count` as a number from 0 on.

        Raises:
            InvalidArguments: there is no such axis.
        """
        if not -count <= axis < count:
            raise self.invalid(f"axis {axis} is not one of {count}")
        return axis % count

    def invalid(self, reason: str) -> InvalidArguments:
        """Return the error for inputs or attributes that the operator does not allow."""
        return InvalidArguments(f"node {self.node.name!r}: {self.node.operator}: {reason}")

    def unsupported(self, reason: str) -> Unimplemented:
        """Return the error for a case that ONNX allows and no function here computes."""
        return Unimplemented(f"node {self.node.name!r}: {self.node.operator}: {reason} is not supported")

    def require_indices(self, index: int, extent: int, axis: int, indices: Array | None = None) -> Array:
        """Return the indices in input `index`, or the part `indices` of it, as numbers from 0 on.

        Raises:
            InvalidArguments: an index is outside [-extent, extent - 1]; the text names the tensor, the index and the
                axis.
        """
        numbers = self.input(index) if indices is None else indices
        if numbers.size and (int(numbers.min()) < -extent or int(numbers.max()) >= extent):
            wrong = numbers[(numbers < -extent) | (numbers >= extent)].reshape(-1)[0]
            raise self.invalid(
                f"{self.node.inputs[index]!r} holds index {int(wrong)}, and axis {axis} of "
                f"{self.node.inputs[0]!r} has {extent} elements: give indices from {-extent} to {extent - 1}"
            )
        return np.where(numbers < 0, numbers + extent, numbers).astype(np.intp)


# Element types, those of ml_dtypes included


_TYPE_NAMES = (
    *("float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "object", "bool", "float16", "float64"),
    *("uint32", "uint64", "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"),
    *("float8_e5m2fnuz", "uint4", "int4", "float4_e2m1fn", "float8_e8m0fnu", "uint2", "int2", "float6_e2m3fn"),
    "float6_e3m2fn",
)
"""Names of the types of ONNX's TensorProto.DataType from 1 on; texts are objects."""
_TYPES: Mapping[int, np.dtype[Any]] = MappingProxyType(
    {
        code: np.dtype(getattr(ml_dtypes, name, None) or name)
        for code, name in enumerate(_TYPE_NAMES, 1)
        if hasattr(ml_dtypes, name) or name in np.sctypeDict
    }
)
_CODES: Mapping[np.dtype[Any], int] = MappingProxyType({dtype: code for code, dtype in _TYPES.items()})


def onnx_dtype(code: int) -> np.dtype[Any]:
    """Return the NumPy type for ONNX's TensorProto.DataType `code`.

    Raises:
        KeyError: there is no such type.
    """
    return _TYPES[code]


def onnx_code(dtype: np.dtype[Any]) -> int:
    """Return ONNX's TensorProto.DataType of a type of NumPy or ml_dtypes.

    >>> onnx_code(np.dtype(np.float32)), onnx_code(np.dtype(ml_dtypes.bfloat16))
    (1, 16)

    Raises:
        KeyError: ONNX has no such type.
    """
    return _CODES[dtype]


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is a floating-point type of NumPy or ml_dtypes.

    >>> is_float(np.dtype(ml_dtypes.float8_e5m2)), is_float(np.dtype(ml_dtypes.int4))
    (True, False)
    """
    if dtype.kind in "iub":
        return False
    return dtype.kind in "fc" or "float" in dtype.name


def number_limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the least and the greatest finite number of a type.

    >>> number_limits(np.dtype(ml_dtypes.int4)), number_limits(np.dtype(ml_dtypes.float8_e4m3fn))
    ((-8.0, 7.0), (-448.0, 448.0))
    """
    if is_float(dtype):
        info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    else:
        info = ml_dtypes.iinfo(dtype) if dtype.kind == "V" else np.iinfo(dtype)  # type: ignore[no-untyped-call]
    return float(info.min), float(info.max)


def accumulation_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which sums and quotients are computed: float64 for float64, float32 for any other type."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)
