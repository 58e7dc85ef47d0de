"""Precisions in which a network is timed: what each runtime is asked for, and the run in f64 for comparison.

    "f32"     arithmetic of f32 in every runtime
    "bf16"    bf16 wherever a runtime has it, also "f16"; f32 inputs and outputs
    "int8"    a quantized model, as its file says
    "auto"    what each runtime chooses: Inlay within its tolerance, OpenVINO by default, PyTorch by autocast

ONNX Runtime computes in the types of the file in all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import numpy as np

from inlay.errors import InvalidArguments, shown
from inlay.graph.network import Network
from inlay.graph.op_graph import Array, Op, OpGraph, exact_graph
from inlay.graph.passes.quantization import INTERNAL_DOMAIN
from inlay.graph.planner.formats import Formats
from inlay.graph.precision import PrecisionName
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession

BenchPrecision: TypeAlias = Literal["f32", "bf16", "f16", "int8", "auto"]
"""The precision in which every runtime is timed."""
_INTEGERS = frozenset(
    ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "MatMulNBits")
)
"""Operators on quantized tensors that files have; QLinearConv and others with its prefix are more of them."""
_F64 = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class RequestedTypes:
    """The types that each runtime is asked for in one precision."""

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
    return any(
        node.domain == INTERNAL_DOMAIN or node.operator in _INTEGERS or node.operator.startswith(("QLinear", "QGemm"))
        for node in network.nodes
    )


def run_in_f64(graph: OpGraph, inputs: Mapping[str, Array], compared: Sequence[str] = ()) -> dict[str, Array]:
    """Return the outputs of a graph whose primitives compute in f64, by the reference engine.

    Integers of a quantized network are rounded as in the graph. Nodes without a primitive and dynamic quantization
    compute in f32: what they read is rounded to it.

    Args:
        graph: the graph of operations.
        inputs: an array for each input.
        compared: further tensors that are returned where the graph has them.
    """
    wide = _WideGraph(exact_graph(graph))
    names = {name: wide.result(name) for name in dict.fromkeys((*graph.outputs, *compared)) if wide.has(name)}
    made = wide.graph(tuple(dict.fromkeys(names.values())))
    with ProgramSession(plain_program(made), made, engine="reference") as session:
        found = session.run(inputs)
    return {name: found[its] for name, its in names.items()}


class _WideGraph:
    """The operations of a graph with f64 in place of f32, and conversions where others read or write f32."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph, self._formats = graph, Formats()
        self._tensors = dict(graph.tensors)
        self._ops: list[Op] = []
        self._known = dict.fromkeys(graph.inputs)  # names of tensors, f32 ones and those in f64
        for op in graph.ops:
            self._add(op)

    def graph(self, outputs: tuple[str, ...]) -> OpGraph:
        """Return the graph with these outputs."""
        return replace(
            self._graph, ops=tuple(self._ops), tensors=self._tensors, outputs=outputs, storage_types={}, states=()
        )

    def has(self, name: str) -> bool:
        """Return whether a tensor of this name is computed."""
        return name in self._known or _wide(name) in self._known

    def result(self, name: str) -> str:
        """Return the name of the widest form of a computed tensor."""
        return _wide(name) if _wide(name) in self._known else name

    def _add(self, op: Op) -> None:
        """Add an operation, on f64 if it is a primitive or a view."""
        values = set(op.attributes.value_names)
        used = {**{arg: name for arg, name in op.reads.items() if arg not in values}, **op.writes}
        is_wide = op.kind not in ("reference", "dynamic_quantization") and all(map(self._can_widen, used.values()))
        reads = {arg: self._form(name, is_wide and arg not in values) for arg, name in op.reads.items()}
        writes = {arg: self._widened(name) if is_wide else name for arg, name in op.writes.items()}
        self._known |= dict.fromkeys(writes.values())
        self._ops.append(replace(op, reads=reads, writes=writes))

    def _can_widen(self, name: str) -> bool:
        """Return whether a tensor is not of f32, or one that a reorder can convert."""
        tensor = self._graph.tensors[name]
        is_described = not tensor.is_dynamic and self._formats.desc(self._formats.plain(tensor)) is not None
        return tensor.dtype != np.float32 or is_described

    def _widened(self, name: str) -> str:
        """Return the name of a tensor in f64, or its own if it is not of f32."""
        tensor = self._graph.tensors[name]
        if tensor.dtype != np.float32:
            return name
        self._tensors[_wide(name)] = replace(tensor, name=_wide(name), dtype=_F64)
        return _wide(name)

    def _form(self, name: str, is_wide: bool) -> str:
        """Return the name of a computed tensor in f64 or as it is, after a conversion if there is none of this type."""
        wanted = self._widened(name) if is_wide else name
        if wanted not in self._known:
            other = name if is_wide else _wide(name)
            self._ops.append(Op(f"{wanted}:conversion", "reorder", {"src": other}, {"dst": wanted}))
            self._known[wanted] = None
        return wanted


def _wide(name: str) -> str:
    """Return the name of a tensor in f64."""
    return f"{name}:f64"
