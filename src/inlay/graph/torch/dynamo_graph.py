"""`DynamoGraph`: a graph that `torch.compile` passes to its backend, as a module of its input tensors alone.

Such a graph also has inputs for the parameters and buffers of the user's modules, and for sizes that change from call
to call. The former become attributes of the module, and the latter are read from a tensor that has them:

    forward(s77, x, weight, bias)    ->    forward(x), with s77 = x.size(0), self.constant_2, self.constant_3

Source: PyTorch, "TorchDynamo deep dive"; `torch.fx`.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from inlay.graph.torch.exporting import GraphRefused, capture_program, example_like
from inlay.graph.torch.shape_rules import expression_of
from inlay.graph.torch.torch_package import TorchTensor, require_torch

PREFIX = "constant_"
"""Begin of the name of an attribute that was an input; its position among the inputs follows."""


class DynamoGraph:
    """A graph with its inputs told apart."""

    def __init__(self, graph_module: Any, examples: Sequence[Any], name: str) -> None:
        """Tell the inputs of a graph apart, by the examples that `torch.compile` passes with it."""
        torch = require_torch()
        self.module = graph_module
        """The graph, which PyTorch can run."""
        self._inputs = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        is_tensor = [isinstance(example, torch.Tensor) for example in examples]
        is_static = [_is_static(node, example) for node, example in zip(self._inputs, examples, strict=True)]
        self.static = tuple(i for i, tensor in enumerate(is_tensor) if tensor and is_static[i])
        """Positions of the inputs that are parameters or buffers of modules."""
        self.tensors = tuple(i for i, tensor in enumerate(is_tensor) if tensor and not is_static[i])
        """Positions of the inputs that are other tensors."""
        own: dict[str, TorchTensor] = dict((*graph_module.named_parameters(), *graph_module.named_buffers()))
        self.held = tuple(own.values())
        """Parameters and buffers that the graph itself holds."""
        self.constants: tuple[str, ...] = (*(f"{PREFIX}{i}" for i in self.static), *own)
        """Names of all parameters and buffers in the exported program: inputs, and those that the graph holds."""
        self.name = name
        """Name of the graph for reports."""

    def capture(self, tensors: Sequence[TorchTensor], constants: Sequence[TorchTensor]) -> Any:
        """Return the `ExportedProgram` of the graph for its tensors; sizes that are symbols stay open.

        Raises:
            GraphRefused: PyTorch cannot export it, or a size is of no tensor.
        """
        torch = require_torch()
        module = self._module_of_tensors(constants)
        examples = tuple(map(example_like, tensors))
        open_axes = tuple(
            {
                axis: torch.export.Dim.AUTO
                for axis, extent in enumerate(_example_value(self._inputs[i]).shape)
                if not isinstance(expression_of(extent), int)
            }
            for i in self.tensors
        )
        return capture_program(module, examples, None, open_axes if any(open_axes) else None)

    def _module_of_tensors(self, constants: Sequence[TorchTensor]) -> Any:
        """Return the graph as a module of its tensors."""
        torch = require_torch()
        graph, copies = torch.fx.Graph(), {}
        for i in self.tensors:
            copies[self._inputs[i]] = graph.placeholder(self._inputs[i].name)
        for i in self.static:
            copies[self._inputs[i]] = graph.get_attr(f"{PREFIX}{i}")
        for node in self._inputs:
            if node not in copies and node.users:
                copies[node] = self._size(graph, copies, node)
        for node in self.module.graph.nodes:
            if node.op != "placeholder":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        attributes = {f"{PREFIX}{i}": tensor for i, tensor in zip(self.static, constants, strict=False)}
        own = {node.target for node in self.module.graph.nodes if node.op in ("get_attr", "call_module")}
        attributes |= {target: attrgetter(target)(self.module) for target in own}
        return torch.fx.GraphModule(attributes, graph)

    def _size(self, graph: Any, copies: dict[Any, Any], node: Any) -> Any:
        """Return the node that reads a size from the tensor that has it.

        Raises:
            GraphRefused: none has it.
        """
        torch = require_torch()
        symbol = _example_value(node)
        expression = expression_of(symbol) if hasattr(symbol, "node") else None
        for i in self.tensors if expression is not None else ():
            for axis, extent in enumerate(_example_value(self._inputs[i]).shape):
                if expression_of(extent) == expression:
                    return graph.call_function(torch.ops.aten.sym_size.int, (copies[self._inputs[i]], axis))
        raise GraphRefused(f"input {node.name} is a number that is the size of no tensor")


def _example_value(node: Any) -> Any:
    """Return the tensor or number that an input is in the trace, with symbols for open sizes."""
    return node.meta["example_value"] if "example_value" in node.meta else node.meta["val"]


def _is_static(node: Any, example: Any) -> bool:
    """Return whether an input is a parameter or a buffer of a module."""
    marked = node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    return marked is not None or isinstance(example, require_torch().nn.Parameter)
