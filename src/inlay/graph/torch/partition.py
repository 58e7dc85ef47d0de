"""A functional graph in parts: Inlay runs those that it supports, and PyTorch runs the operators between them.

    split = split_program(program, refused)     a module whose parts are submodules, `part_0`, `part_1` ...

Which operators are refused is tried: each is exported, loaded and planned alone. Operators that are alike, with equal
attributes and inputs of equal types, are tried once.

Source: PyTorch, `torch.fx.passes.infra.partitioner.CapabilityBasedPartitioner`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter, getitem
from typing import Any

from inlay.graph.torch.exporting import (
    ExportedGraph,
    GraphRefused,
    capture_program,
    decompose_program,
    describe_error,
    export_program,
)
from inlay.graph.torch.shape_rules import expression_of
from inlay.graph.torch.torch_package import TorchTensor, require_torch

PART = "part_"
"""Begin of the name of a part."""


@dataclass(frozen=True, slots=True)
class SplitPart:
    """A part of a graph that is to run in Inlay."""

    name: str
    """Name of the submodule."""
    module: Any
    """The operators as a module of tensors; constants are its attributes."""
    examples: tuple[TorchTensor, ...]
    """Tensors of the shapes that the inputs have in the trace."""
    constants: Mapping[str, str]
    """For each attribute that is a constant of the program, its name there."""
    operators: int
    """Number of operators."""

    def export(self) -> ExportedGraph:
        """Return the ONNX model of the part.

        Raises:
            GraphRefused: PyTorch cannot export it.
        """
        torch = require_torch()
        inputs = (node for node in self.module.graph.nodes if node.op == "placeholder")
        open_axes = tuple(dict.fromkeys(_open_axes(node.meta["val"]), torch.export.Dim.AUTO) for node in inputs)
        shapes = open_axes if any(open_axes) else None
        return export_program(capture_program(self.module, self.examples, None, shapes))


@dataclass(frozen=True, slots=True)
class SplitGraph:
    """A graph whose parts are submodules."""

    module: Any
    """The module, a function of all inputs of the program, which returns a list of all its outputs."""
    parts: tuple[SplitPart, ...]
    """The parts."""
    refused: Mapping[str, tuple[int, str]]
    """Operators that PyTorch runs: number and reason, by name."""


def is_clean(program: Any) -> bool:
    """Return whether a program does nothing but compute distinct tensors from tensors, and without random numbers.

    It may write to tensors.
    """
    signature = program.graph_signature
    inputs = [spec.arg for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    outputs = [spec.arg for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    computed = {node.name for node in program.graph.nodes if node.op == "call_function" and _is_tensor(node)}
    names = {output.name for output in outputs if hasattr(output, "name")}
    is_pure = len(signature.output_specs) == len(outputs) == len(names) and names <= computed
    is_of_tensors = all(type(value).__name__ in ("TensorArgument", "ConstantArgument") for value in inputs)
    return is_pure and is_of_tensors and not any(_is_random(node) for node in program.graph.nodes)


def make_functional(program: Any) -> Any:
    """Return the program without operators that write to tensors; it changes tensors of the caller at its end.

    Raises:
        GraphRefused: PyTorch has no such form of it.
    """
    targets = (node.target for node in program.graph.nodes if node.op == "call_function")
    if not any(getattr(getattr(target, "_schema", None), "is_mutable", False) for target in targets):
        return program
    return decompose_program(program)


def find_refused(program: Any, plan_alone: Callable[[ExportedGraph], None]) -> dict[str, str]:
    """Return the reason for each operator that is refused alone, by the key of `_kind_of`.

    `plan_alone` loads and plans an exported graph, and raises GraphRefused if Inlay does not support it.
    """
    found: dict[str, str] = {}
    tried: set[str] = set()
    for node in _unlifted(program).graph.nodes:
        key = _kind_of(node)
        if node.op != "call_function" or key in tried or _static_refusal(node) or not _is_computed(node):
            continue
        tried.add(key)
        try:
            plan_alone(_export_alone(node))
        except GraphRefused as error:
            found[key] = str(error)
    return found


def split_program(program: Any, refused: Mapping[str, str]) -> SplitGraph:
    """Return the program in parts; operators whose key is in `refused` run in PyTorch.

    Raises:
        GraphRefused: PyTorch cannot split the graph.
    """
    torch = require_torch()
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    outer = _unlifted(program)

    def is_supported(_: Mapping[str, Any], node: Any) -> bool:
        if node.op != "call_function" or not _is_computed(node):
            return False
        return not (_static_refusal(node) or refused.get(_kind_of(node)))

    for node in outer.graph.find_nodes(op="placeholder"):
        if not _is_tensor(node) and not node.users:
            outer.graph.erase_node(node)  # a number or text that was exported as a constant
    outer.graph.eliminate_dead_code()
    try:
        split = CapabilityBasedPartitioner(outer, create_op_support(is_supported)).partition_and_fuse(PART)
    except (AssertionError, RuntimeError) as error:
        raise GraphRefused(f"torch.fx.passes: {describe_error(error)}") from error
    reasons = _count_refused(split.graph, refused)
    mutable = {*program.graph_signature.buffers_to_mutate.values()}
    calls = [node for node in split.graph.nodes if node.op == "call_module" and str(node.target).startswith(PART)]
    parts = tuple(_take_part(split, call, mutable) for call in calls)
    split.graph.set_codegen(torch.fx.graph.CodeGen())
    split.graph.lint()
    split.recompile()
    return SplitGraph(split, parts, reasons)


def _count_refused(graph: Any, refused: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """Return the number of operators outside of all parts, and the reason, by the name of the operator."""
    found: dict[str, tuple[int, str]] = {}
    for node in graph.nodes:
        if node.op != "call_function" or node.target is getitem:
            continue
        if _static_refusal(node) or _is_computed(node):
            reason = _static_refusal(node) or refused.get(_kind_of(node), "it is alone between others")
            name = _name_of(node.target)
            found[name] = (found.get(name, (0, ""))[0] + 1, reason)
    return found


def _unlifted(program: Any) -> Any:
    """Return the module of a program, whose constants are attributes and which writes to what the program changes."""
    module = program.module(check_guards=False)
    return require_torch().fx.GraphModule(module, module.graph)


# Operators


def _static_refusal(node: Any) -> str:
    """Return why an operator runs in PyTorch whatever Inlay supports; empty if nothing forbids Inlay."""
    torch = require_torch()
    if node.op != "call_function" or node.target is getitem:
        return ""
    if not isinstance(node.target, torch._ops.OpOverload):
        return "" if not _is_tensor(node) else "it is no operator of ATen"
    if _is_random(node):
        return "random numbers are those of PyTorch's generator"
    if node.target._schema.is_mutable:
        return "it writes to a tensor of the caller"
    return ""


def _is_random(node: Any) -> bool:
    """Return whether an operator draws random numbers; one with a dropout that drops nothing does not."""
    tags = getattr(node.target, "tags", ()) if node.op == "call_function" else ()
    if require_torch().Tag.nondeterministic_seeded not in tags:
        return False
    arguments = dict(argument_values(node))
    return bool(arguments.get("train", True) and arguments.get("dropout_p", True))


def argument_values(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each argument of an operator of ATen."""
    for i, argument in enumerate(getattr(getattr(node.target, "_schema", None), "arguments", ())):
        given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        yield argument.name, given


def _is_tensor(node: Any) -> bool:
    """Return whether the value of a node is one tensor."""
    return node is not None and isinstance(node.meta.get("val"), require_torch().Tensor)


def _is_computed(node: Any) -> bool:
    """Return whether a node computes tensors, not sizes."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return bool(values) and all(isinstance(item, require_torch().Tensor) for item in values)


def _name_of(target: Any) -> str:
    """Return the name of an operator, as in `aten.nonzero`."""
    name = str(target) if hasattr(target, "_schema") else getattr(target, "__name__", str(target))
    return name.removesuffix(".default")


def _kind_of(node: Any) -> str:
    """Return a key that operators share if they are alike: target, types of the inputs, and other arguments."""
    torch = require_torch()

    def describe(argument: Any) -> Any:
        value = argument.meta.get("val")
        if isinstance(value, torch.Tensor):
            return f"{value.dtype}:{value.ndim}"
        return type(value).__name__

    arguments = torch.fx.node.map_arg((node.args, node.kwargs), describe)
    return f"{_name_of(node.target)}{arguments}"


def _export_alone(node: Any) -> ExportedGraph:
    """Return the ONNX model of one operator, with the sizes of the trace.

    Raises:
        GraphRefused: PyTorch cannot export it.
    """
    torch = require_torch()
    graph, examples = torch.fx.Graph(), []
    attributes: dict[str, Any] = {}
    copies: dict[Any, Any] = {}

    def copy(argument: Any) -> Any:
        if argument in copies:
            return copies[argument]
        value = argument.meta.get("val")
        if argument.op == "get_attr":
            copies[argument] = graph.get_attr(argument.target)
            attributes[argument.target] = attrgetter(argument.target)(node.graph.owning_module)
        elif isinstance(value, torch.Tensor):
            copies[argument] = graph.placeholder(argument.name)
            examples.append(_example_of(value))
        elif hasattr(value, "node"):
            return int(value.node.hint)
        else:
            raise GraphRefused(f"{_name_of(node.target)} reads the several results of {argument.name}")
        return copies[argument]

    arguments = torch.fx.node.map_arg((node.args, node.kwargs), copy)
    made = graph.call_function(node.target, *arguments)
    results = node.meta["val"]
    several = isinstance(results, (tuple, list))
    graph.output(tuple(graph.call_function(getitem, (made, i)) for i in range(len(results))) if several else (made,))
    module = torch.fx.GraphModule(attributes, graph)
    return export_program(capture_program(module, tuple(examples), None, None))


def _example_of(value: Any) -> TorchTensor:
    """Return a tensor without contents, of the type of a tensor of a trace and of its sizes there."""
    torch = require_torch()
    shape = [n if isinstance(n, int) else int(n.node.hint) for n in value.shape]
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=value.dtype)


def _open_axes(value: Any) -> Iterable[int]:
    """Return the axes whose extents are symbols."""
    return (axis for axis, extent in enumerate(value.shape) if not isinstance(expression_of(extent), int))


# Parts


def _take_part(split: Any, call: Any, mutable: set[str]) -> SplitPart:
    """Make constants and sizes that a part reads its own, so that its call passes other tensors alone.

    Constants in `mutable` are passed by the call, since the program changes them.

    Raises:
        GraphRefused: a size is an input of the program.
    """
    torch = require_torch()
    part = getattr(split, call.target)
    constants = [node for node in call.args if node.op == "get_attr" and node.target not in mutable]
    sizes = [node for node in call.args if not _is_tensor(node)]
    others = (node for node in call.args if node not in constants and node not in sizes)
    tensors = [node for node in dict.fromkeys((*others, *_tensors_of(sizes))) if node not in constants]
    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    for node in tensors:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    names = {f"constant_{i}": node.target for i, node in enumerate(constants)}
    copies |= {node: graph.get_attr(name) for node, name in zip(constants, names, strict=True)}
    inputs = [node for node in part.graph.nodes if node.op == "placeholder"]
    inner = {node: _copy_size(graph, outer, copies) for node, outer in zip(inputs, call.args, strict=True)}
    for node in part.graph.nodes:
        if node.op != "placeholder":
            inner[node] = graph.node_copy(node, inner.__getitem__)
    attributes = {name: attrgetter(target)(split) for name, target in names.items()}
    module = torch.fx.GraphModule(attributes, graph)
    setattr(split, call.target, module)
    call.args = tuple(tensors)
    examples = tuple(_example_of(node.meta["val"]) for node in tensors)
    return SplitPart(call.target, module, examples, names, count_operators(graph))


def _tensors_of(sizes: Iterable[Any]) -> Iterator[Any]:
    """Yield the tensors that sizes are computed from."""
    for size in sizes:
        if size.op == "placeholder":
            raise GraphRefused(f"input {size.name} is a number, which is the size of no tensor")
        for node in size.all_input_nodes:
            yield from (node,) if _is_tensor(node) else _tensors_of((node,))


def _copy_size(graph: Any, node: Any, copies: dict[Any, Any]) -> Any:
    """Return the copy of a node of the outer graph; that of a size is made with all that it is computed from."""
    if node not in copies:
        copies[node] = graph.node_copy(node, lambda argument: _copy_size(graph, argument, copies))
    return copies[node]


def count_operators(graph: Any) -> int:
    """Return the number of operators of a graph."""
    return sum(node.op in ("call_function", "call_method") and node.target is not getitem for node in graph.nodes)


def set_tensor(module: Any, name: str, tensor: TorchTensor) -> None:
    """Set an attribute of a module, which is a parameter or a buffer, to another tensor."""
    torch = require_torch()
    *path, last = name.split(".")
    owner = attrgetter(".".join(path))(module) if path else module
    owner._parameters.pop(last, None)
    owner._buffers.pop(last, None)
    if isinstance(tensor, torch.nn.Parameter):
        owner.register_parameter(last, tensor)
    else:
        owner.register_buffer(last, tensor)
