"""Precisions in which a network is timed: what each runtime is asked for, and the run in f64 for comparison.

    "f32"     arithmetic of f32 in every runtime
    "bf16"    bf16 wherever a runtime has it, also "f16"; f32 inputs and outputs
    "int8"    a quantized model, as its file says
    "auto"    what each runtime chooses: Inlay within its tolerance, OpenVINO by default, PyTorch by autocast

ONNX Runtime computes in the types of the file in all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import numpy as np

from inlay.errors import InvalidArguments, shown
from inlay.graph.network import Network, Tensor
from inlay.graph.op_graph import Array, OpGraph, exact_graph
from inlay.graph.precision import PrecisionName
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession

BenchPrecision: TypeAlias = Literal["f32", "bf16", "f16", "int8", "auto"]
"""The precision in which every runtime is timed."""
_INTEGERS = frozenset(
    ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "MatMulNBits")
)
_F64 = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class RequestedTypes:
    """What each runtime is asked for in one precision."""

    inlay: PrecisionName
    """The precision of Inlay's plan."""
    openvino: tuple[str, ...]
    """Values of OpenVINO's hint on the precision, a configuration for each; an empty text for its default."""
    torch: tuple[str, ...]
    """Types of PyTorch, a configuration for each: `bf16` for a module of it, `autocast bf16` for f32 weights."""
    largest_error: float
    """The largest accepted error against f64, as part of the largest element of an output."""


REQUESTS: Mapping[str, RequestedTypes] = MappingProxyType(
    {
        "f32": RequestedTypes("f32", ("f32",), ("f32",), 1e-4),
        "bf16": RequestedTypes("bf16", ("bf16",), ("bf16", "autocast bf16"), 0.25),
        "f16": RequestedTypes("f16", ("f16",), ("f16",), 0.05),
        "int8": RequestedTypes("model", ("f32", "bf16"), ("f32",), 0.5),
        "auto": RequestedTypes("auto", ("",), ("autocast bf16",), 0.25),
    }
)
"""The requests of each precision. Errors up to the largest are a matter of rounding; wrong results have larger ones."""


def require_precision(precision: object, network: Network) -> None:
    """Check that there is such a precision, and that the network is quantized if it is `int8`.

    Raises:
        InvalidArguments: it is not so.
    """
    if not isinstance(precision, str) or precision not in REQUESTS:
        raise InvalidArguments(f"precision is {shown(precision)}: give one of {', '.join(get_args(BenchPrecision))}")
    if precision == "int8" and not is_quantized(network):
        raise InvalidArguments(
            f"precision is int8, and {network.name} has no quantized operators: quantize the model first, for example "
            "with onnxruntime.quantization, or give bf16"
        )


def is_quantized(network: Network) -> bool:
    """Return whether a network has operators on quantized tensors.

    >>> from inlay.graph.network import Node
    >>> is_quantized(Network("small", 17, ("x",), ("y",), (Node("relu", "Relu", ("x",), ("y",), {}),), {}))
    False
    """
    return any(node.operator in _INTEGERS or node.operator.startswith(("QLinear", "QGemm")) for node in network.nodes)


def run_in_f64(graph: OpGraph, inputs: Mapping[str, Array], compared: tuple[str, ...] = ()) -> dict[str, Array]:
    """Return the outputs of a graph, with its f32 tensors in f64: by the reference engine, operation by operation.

    Integers of a quantized network are rounded as in the graph, and scales that a run computes stay in f32.

    Args:
        graph: the graph of operations.
        inputs: an array for each input.
        compared: further tensors that are returned where the graph has them.
    """
    exact = exact_graph(graph)
    scales = {name for op in exact.ops for arg, name in op.reads.items() if arg in op.attributes.value_names}
    scales |= {name for op in exact.ops if op.kind == "dynamic_quantization" for name in op.writes.values()}
    tensors = {name: tensor if name in scales else _widen(tensor) for name, tensor in exact.tensors.items()}
    written = {name for op in exact.ops for name in op.writes.values()}
    outputs = (*exact.outputs, *(name for name in compared if name in written and name not in exact.outputs))
    wide = replace(exact, tensors=tensors, outputs=outputs, storage_types={})
    arrays = {name: inputs[name].astype(tensors[name].dtype) for name in wide.inputs}
    with ProgramSession(plain_program(wide), wide, engine="reference") as session:
        return dict(session.run(arrays))


def _widen(tensor: Tensor) -> Tensor:
    """Return the tensor in f64 if it is of f32."""
    return replace(tensor, dtype=_F64) if tensor.dtype == np.float32 else tensor
