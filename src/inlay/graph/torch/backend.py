"""The backend of `torch.compile`: `torch.compile(model, backend="inlay")`, or `backend=inlay.torch_backend`.

PyTorch passes each graph that it finds between two graph breaks. Each is compiled at its first call, when no trace of
PyTorch is going on; PyTorch calls it for inputs that satisfy the graph's guards only.

Source: PyTorch, "Custom Backends" of `torch.compile`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from inlay.arguments import integer_or_none
from inlay.errors import InvalidArguments
from inlay.graph.planning import PlanOptions
from inlay.graph.torch.compiled_graph import CompiledGraph, GraphOptions
from inlay.graph.torch.constants import find_gradients
from inlay.graph.torch.dynamo_graph import DynamoGraph
from inlay.graph.torch.torch_package import require_exporter, require_torch
from inlay.graph.torch.torch_report import TorchReport

OPTIONS = ("costs", "seconds", "convolutions", "engine", "fallback", "most_shapes")
"""Names in the `options` of `torch.compile`; their meaning is that of the arguments of `inlay.compile`."""

_graphs: "WeakValueDictionary[int, CompiledGraph]" = WeakValueDictionary()
_numbers = count()


def torch_backend(
    graph_module: Any,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return a function that runs a graph of `torch.compile` in Inlay; it is the backend of the name `inlay`.

    The function raises InvalidArguments for training: while gradients are on and an input or a parameter requires them,
    and for operators in training mode, such as dropout.

    Args:
        graph_module: the graph, a `torch.fx.GraphModule`.
        example_inputs: its inputs.
        mode: modes are those of PyTorch's own backend, so only None is accepted.
        options: `costs`, `seconds`, `convolutions`, `engine`, `fallback` and `most_shapes` of `inlay.compile`.

    Raises:
        InvalidArguments: a mode is given, or an option is unknown or not valid.
        MissingExtra: PyTorch, onnx or onnxscript is not installed.
    """
    if mode is not None:
        raise InvalidArguments(f"mode is {mode!r}: the backend inlay has no modes, leave it out")
    graph = compile_dynamo_graph(graph_module, example_inputs, parse_options(options or {}))
    _graphs[next(_numbers)] = graph.compiled
    return graph.run


def torch_report() -> TorchReport:
    """Return the graphs that `torch.compile(..., backend="inlay")` has compiled, and what runs each part of them.

    Graphs that PyTorch does not hold any longer are not among them.
    """
    return TorchReport(tuple(_graphs[key].report() for key in sorted(_graphs)), tuple(describe_graph_breaks()))


def parse_options(options: Mapping[str, Any]) -> GraphOptions:
    """Return options as values, after checking them.

    Raises:
        InvalidArguments: one is unknown or not valid.
    """
    if unknown := [name for name in options if name not in OPTIONS]:
        raise InvalidArguments(f"there is no option {unknown[0]!r}: give some of {', '.join(OPTIONS)}")
    if (integer_or_none(options.get("most_shapes", 1)) or 0) < 1:
        raise InvalidArguments(f"most_shapes is {options['most_shapes']!r}: give a whole number from 1 on")
    planning = PlanOptions(**{name: value for name, value in options.items() if name != "most_shapes"})
    planning.require_valid()
    return GraphOptions(planning, **{name: value for name, value in options.items() if name == "most_shapes"})


class DynamoCall:
    """The function that `torch.compile` calls in place of a graph."""

    def __init__(self, source: DynamoGraph, options: GraphOptions) -> None:
        """Compile nothing yet."""
        self.compiled = CompiledGraph(source, options)
        """The graph."""
        self._module, self._held = source.module, list(source.held)
        self._static, self._tensors = source.static, source.tensors
        self._is_grad_enabled = require_torch().is_grad_enabled

    def run(self, *arguments: Any) -> Any:
        """Return the results of the graph.

        Raises:
            InvalidArguments: the graph is one of training.
        """
        constants = [arguments[i] for i in self._static] + self._held
        tensors = [arguments[i] for i in self._tensors]
        if self._is_grad_enabled():
            require_no_gradients((*constants, *tensors))
        results = self.compiled.run(tensors, constants)
        return self._module(*arguments) if results is None else results


def require_no_gradients(tensors: Sequence[Any]) -> None:
    """Check that no tensor requires gradients, while they are on.

    Raises:
        InvalidArguments: one does.
    """
    wanted = find_gradients(tensors)
    if wanted:
        raise InvalidArguments(
            f"{wanted}: Inlay runs inference; call the module under torch.inference_mode() or torch.no_grad()"
        )


def compile_dynamo_graph(graph_module: Any, examples: Sequence[Any], options: GraphOptions) -> DynamoCall:
    """Return the function for a graph of `torch.compile`.

    Raises:
        MissingExtra: PyTorch, onnx or onnxscript is not installed.
    """
    require_exporter()
    return DynamoCall(DynamoGraph(graph_module, examples, _describe_graph(graph_module)), options)


_PLACE = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')


def _describe_graph(graph_module: Any) -> str:
    """Return the function and the line that a graph begins with."""
    for node in graph_module.graph.nodes:
        places = _PLACE.findall(node.stack_trace or "") if node.op.startswith("call") else ()
        if places:
            path, line, function = places[-1]
            return f"{function}, {path.rpartition('/')[2]}:{line}"
    return "graph"


def describe_graph_breaks() -> Iterator[str]:
    """Yield a line for each reason for which PyTorch has broken graphs in this process, as it states it."""
    counters = getattr(getattr(require_torch()._dynamo, "utils", None), "counters", {})
    for reason, times in dict(counters.get("graph_break", {})).items():
        text = str(reason).strip().splitlines()
        yield f"graph break ({times} times): {text[0] if text else ''}"
