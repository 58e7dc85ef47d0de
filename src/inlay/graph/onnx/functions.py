"""`inline_functions`: a model in which each call of one of its functions is replaced by the nodes of that function.

A function may call others, so a file of a few hundred bytes can describe any number of nodes: 40 functions, each of
which calls the one before it twice, are 10^12. So nodes and bytes are counted first, each function once.

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification", Functions; `onnx.inliner`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from inlay.errors import FileError, Unimplemented
from inlay.graph.numpy_operators.evaluation import ONNX_DOMAINS
from inlay.graph.onnx.initializers import Proto, nodes_of
from inlay.graph.onnx_package import DecodeError, checker, inliner, onnx, shape_inference, version_converter

MOST_DEPTH = 50
"""Limit on functions that call each other; exporters write two or three."""

_Key: TypeAlias = tuple[str, str, str]
_ERRORS = (
    *(DecodeError, RuntimeError, TypeError, ValueError),
    *(checker.ValidationError, shape_inference.InferenceError, version_converter.ConvertError),
)


def inline_functions(model: Proto, name: str, most_nodes: int, most_bytes: int) -> Proto:
    """Return the model without functions; `name` names the model in errors.

    The result has at most `most_nodes` nodes, and nodes of at most `most_bytes` bytes.

    Raises:
        FileError: a function calls itself, or does not fit its call.
        Unimplemented: there are more nodes or bytes, or more than `MOST_DEPTH` functions call each other.
    """
    if not model.functions:
        return model
    count = _InlinedSize({_key_of(function): function for function in model.functions}, name)
    nodes, nbytes = count.of_graph(model.graph, ())
    for size, most, unit in ((nodes, most_nodes, "nodes"), (nbytes, most_bytes, "bytes of nodes")):
        if size > most:
            raise Unimplemented(
                f"{name} has {size} {unit} with its functions inlined: {most} at most are read; cut it in parts"
            )
    try:
        return inliner.inline_local_functions(model, convert_version=True)
    except _ERRORS as error:
        problem = (str(error).strip().splitlines() or [type(error).__name__])[0].split("failed: ")[-1].rstrip(".")
        raise FileError(f"cannot read {name}: its functions cannot be inlined: {problem}; export it again") from error


def _key_of(proto: Proto) -> _Key:
    """Return domain, name and overload of a function, or of the function that a node calls."""
    domain = "" if proto.domain in ONNX_DOMAINS else proto.domain
    return domain, proto.name if isinstance(proto, onnx.FunctionProto) else proto.op_type, proto.overload


@dataclass(frozen=True, slots=True)
class _InlinedSize:
    """The number of nodes, and their bytes, that functions become."""

    functions: Mapping[_Key, Proto]
    """All functions of the model."""
    name: str
    """Name of the model in errors."""
    known: dict[_Key, tuple[int, int]] = field(default_factory=dict)
    """Nodes and bytes of the functions that were counted."""

    def of_graph(self, graph: Proto, callers: tuple[_Key, ...]) -> tuple[int, int]:
        """Return nodes and bytes of a graph or function; `callers` are the functions that lead to it."""
        nodes = nbytes = 0
        for node in nodes_of(graph):
            key = _key_of(node)
            own, size = self._of_function(key, callers) if key in self.functions else (1, 0)
            nodes, nbytes = nodes + own, nbytes + size
        return nodes, nbytes + sum(node.ByteSize() for node in graph.node)

    def _of_function(self, key: _Key, callers: tuple[_Key, ...]) -> tuple[int, int]:
        """Return nodes and bytes of one call of a function."""
        if key in callers:
            raise FileError(f"cannot read {self.name}: its function {key[1]!r} calls itself; export it again")
        if len(callers) >= MOST_DEPTH:
            raise Unimplemented(
                f"{self.name} has more than {MOST_DEPTH} functions that call each other: inline some of them"
            )
        if key not in self.known:
            self.known[key] = self.of_graph(self.functions[key], (*callers, key))
        return self.known[key]
