"""`OperatorCall`: one evaluation of a node, with the arrays that it reads; and what its functions ask of element types.

>>> node = Node("n", "Gather", ("x", "k"), ("y",), {"axis": 1})
>>> call = OperatorCall(node, 13, (np.eye(2), np.array([0])))
>>> call.attribute("axis", 0), call.input(1).tolist(), call.optional(2)
(1, [0], None)
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.network import Node
from inlay.graph.onnx_package import helper
from inlay.graph.op_graph import Array


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A node of ONNX and its inputs as arrays."""

    node: Node
    """The node: operator, attributes, names for errors."""
    opset: int
    """Version of ONNX's operators."""
    inputs: tuple[Array | None, ...]
    """One entry for each input of the node; None where it is left out."""

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute of the node, or `default`."""
        return self.node.attributes.get(name, default)

    def input(self, index: int) -> Array:
        """Input `index`, which must be there.

        Raises:
            InvalidArguments: it is left out.
        """
        array = self.optional(index)
        if array is None:
            raise self.invalid(f"input {index} is left out")
        return array

    def optional(self, index: int) -> Array | None:
        """Input `index`, or None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def integers(self, name: str, index: int, input_since: int) -> list[int] | None:
        """Integers that are attribute `name` before that opset and then input `index`; None where they are left out."""
        found = self.attribute(name) if self.opset < input_since else self.optional(index)
        return None if found is None else [int(n) for n in np.asarray(found).reshape(-1)]

    def has_output(self, index: int) -> bool:
        """Whether output `index` is read."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    def axis(self, axis: int, count: int) -> int:
        """An axis from 0 on, of `count`.

        Raises:
            InvalidArguments: there is no such axis.
        """
        if not -count <= axis < count:
            raise self.invalid(f"axis {axis} is not one of {count}")
        return axis % count

    def invalid(self, reason: str) -> InvalidArguments:
        """The error for inputs or attributes that the operator does not allow."""
        return InvalidArguments(f"node {self.node.name!r}: {self.node.operator}: {reason}")

    def unsupported(self, reason: str) -> Unimplemented:
        """The error for what ONNX allows and no code here computes."""
        return Unimplemented(f"node {self.node.name!r}: {self.node.operator}: {reason} is not supported")

    def require_indices(self, index: int, extent: int, axis: int, indices: Array | None = None) -> Array:
        """The indices of input `index`, or `indices` of it, as numbers from 0 on.

        Raises:
            InvalidArguments: one is outside [-extent, extent - 1]; the text names the tensor, the index and the axis.
        """
        found = self.input(index) if indices is None else indices
        if found.size and (int(found.min()) < -extent or int(found.max()) >= extent):
            wrong = found[(found < -extent) | (found >= extent)].reshape(-1)[0]
            raise self.invalid(
                f"{self.node.inputs[index]!r} holds index {int(wrong)}, and axis {axis} of "
                f"{self.node.inputs[0]!r} has {extent} elements: give indices from {-extent} to {extent - 1}"
            )
        return np.where(found < 0, found + extent, found).astype(np.intp)


# Element types, those of ml_dtypes included


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


def accumulation_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which sums and quotients of elements are computed: float64 for float64, else float32."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)
