"""`from_torch` and `TorchModule`: a module of PyTorch that Inlay runs.

    fast = inlay.from_torch(module, (image,))
    fast(image)                     called as the module is, with tensors of PyTorch
    print(fast.report())            which part runs where, and why

The module is exported as a whole; if PyTorch cannot do that, it is compiled by `torch.compile`, whose graphs end where
Python has to go on.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from inlay.errors import InvalidArguments, shown
from inlay.graph.algorithms import Convolutions
from inlay.graph.costs.estimates import Costs
from inlay.graph.fallback.assignment import Fallback
from inlay.graph.planning import Tier
from inlay.graph.session import MOST_SHAPES, Session
from inlay.graph.torch.backend import (
    compile_dynamo_graph,
    describe_graph_breaks,
    parse_options,
    require_no_gradients,
)
from inlay.graph.torch.compiled_graph import CompiledGraph, GraphOptions, require_inference
from inlay.graph.torch.exporting import GraphRefused, capture_program, describe_error
from inlay.graph.torch.torch_package import TorchTensor, require_exporter, require_torch
from inlay.graph.torch.torch_report import INLAY, TorchReport
from inlay.primitives.engine import EngineLike


def from_torch(
    module: Any,
    example_inputs: Any,
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    costs: Tier | Costs = "measured",
    seconds: float | None = None,
    convolutions: Convolutions = "auto",
    engine: EngineLike = None,
    fallback: Fallback = "auto",
    most_shapes: int = MOST_SHAPES,
) -> "TorchModule":
    """Export a module of PyTorch, plan it, and return a `TorchModule`, which is called as the module is.

    Args:
        module: a `torch.nn.Module` in evaluation mode, with its parameters on the CPU.
        example_inputs: a tensor, or a tuple of the positional arguments of a call.
        example_kwargs: the keyword arguments of a call.
        dynamic_shapes: axes that stay open, as `torch.export.export` takes them: for each argument, `{0: Dim.DYNAMIC}`
            or None. A text may take the place of a `Dim`: `({0: "batch"},)`. Without it, all shapes are fixed.
        costs, seconds, convolutions, engine, fallback: as of `inlay.plan`.
        most_shapes: number of shapes of which the plan is kept.

    The module is planned for the shapes of the examples; other shapes are planned at their first call. What PyTorch
    cannot export, and what Inlay does not support, runs in PyTorch: `TorchModule.report` names it.

    Raises:
        InvalidArguments: `module` is no module, in training mode, or not on the CPU; `dynamic_shapes` do not fit the
            module; or an option is not valid (see `inlay.plan`).
        MissingExtra: PyTorch, onnx or onnxscript is not installed.
        OutOfMemory: the tensors do not fit in memory.
    """
    torch = require_torch()
    if not isinstance(module, torch.nn.Module):
        raise InvalidArguments(f"module is a {type(module).__name__}: give a torch.nn.Module")
    require_exporter()
    options = {"costs": costs, "seconds": seconds, "convolutions": convolutions, "engine": engine, "fallback": fallback}
    result = TorchModule(module, parse_options(options | {"most_shapes": most_shapes}))
    if module.training:
        raise InvalidArguments(_TRAINING)
    args = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    result._export(args, dict(example_kwargs or {}), dynamic_shapes)
    return result


_TRAINING = "the module is in training mode: Inlay runs inference; call eval() on it first"


class TorchModule:
    """A module of PyTorch that Inlay runs, as far as it can; `from_torch` makes it.

    It is called as the module is. Results are tensors of PyTorch without gradients. The weights are those that the
    module has at the call; a call after they have changed packs them again, which takes about as long as `from_torch`
    without its export.
    """

    def __init__(self, module: Any, options: GraphOptions) -> None:
        """Hold a module; nothing is exported."""
        torch = require_torch()
        self._module, self._options = module, options
        self._torch, self._tree = torch, torch.utils._pytree
        self._autocast = torch.is_autocast_enabled("cpu")
        self._signature = inspect.signature(module.forward)
        self._refusal = ""
        self._exported: _ExportedModule | None = None
        self._compiled: Any = None
        self._graphs: list[CompiledGraph] = []

    @property
    def module(self) -> Any:
        """The module of PyTorch, whose weights a call uses."""
        return self._module

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions of the parts that Inlay runs, which `profile` them; empty where there is none yet."""
        return tuple(session for graph in self._graphs for session in graph.sessions)

    def report(self) -> TorchReport:
        """Return which part of the module runs where, and why."""
        notes = (self._refusal, *describe_graph_breaks()) if self._refusal else ()
        return TorchReport(tuple(graph.report() for graph in self._graphs), notes)

    def _export(self, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> None:
        """Export the module for the arguments of an example call, and plan it for their shapes; see `from_torch`.

        Raises:
            InvalidArguments, OutOfMemory: as `from_torch`.
        """
        try:
            program = capture_program(self._module, args, kwargs, _open_named_axes(dynamic_shapes))
        except GraphRefused as refused:
            error = refused.__cause__
            if dynamic_shapes is not None and isinstance(error, self._torch._dynamo.exc.UserError):
                raise InvalidArguments(f"dynamic_shapes do not fit the module: {describe_error(error)}") from error
            self._refusal = f"not one graph: {refused}"
            dynamic = None if dynamic_shapes is None else True
            self._compiled = self._torch.compile(self._module, backend=self._compile_graph, dynamic=dynamic)
            return
        require_inference(program)
        self._exported = exported = _ExportedModule(self._module, program)
        graph = CompiledGraph(exported, self._options)
        self._graphs.append(graph)
        leaves = self._tree.tree_leaves((args, kwargs))
        graph.prepare([leaves[i] for i in exported.tensors], exported.weights())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns for these arguments, as tensors without gradients.

        Raises:
            InvalidArguments: the module is in training mode; gradients are on, and a parameter or an input requires
                them; the arguments differ from the examples in more than the elements and the open axes; a tensor is
                not on the CPU; or autocast is on, and was not when the module was exported.
            OutOfMemory: the tensors do not fit in memory.
        """
        exported = self._exported
        if self._module.training:
            raise InvalidArguments(_TRAINING)
        if exported is None:
            return self._compiled(*args, **kwargs)
        if self._torch.is_autocast_enabled("cpu") != self._autocast:
            raise InvalidArguments(
                f"autocast is {'off' if self._autocast else 'on'}, and was not when the module was exported: call "
                "inlay.from_torch in the mode of the calls"
            )
        tensors = args if not kwargs and exported.is_plain_call(args) else self._match(exported, args, kwargs)
        weights = exported.weights()
        if self._torch.is_grad_enabled():
            require_no_gradients((*weights, *tensors))
        results = self._graphs[0].run(tensors, weights)
        if results is None:
            return self._module(*args, **kwargs)
        return results[0] if exported.is_one else self._tree.tree_unflatten(list(results), exported.out_spec)

    def _match(
        self, exported: "_ExportedModule", args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sequence[TorchTensor]:
        """Return the tensors of a call, in the order of the exported program.

        Raises:
            InvalidArguments: the call differs from that of the example.
        """
        leaves, spec = self._tree.tree_flatten((args, kwargs))
        if spec != exported.in_spec:
            leaves, spec = self._tree.tree_flatten(self._as_in_example(exported, args, kwargs))
        if spec != exported.in_spec or len(leaves) != exported.count:
            raise InvalidArguments(
                "the arguments are not those of the example in number, names or nesting: call the module as in the "
                "example, or export it for these by inlay.from_torch"
            )
        for i, value in exported.fixed.items():
            if type(leaves[i]) is not type(value) or leaves[i] != value:
                raise InvalidArguments(
                    f"an argument is {shown(leaves[i])}, and the module was exported for {shown(value)}: export it for "
                    "this one by inlay.from_torch"
                )
        tensors = [leaves[i] for i in exported.tensors]
        wrong = next((value for value in tensors if not isinstance(value, self._torch.Tensor)), None)
        if wrong is not None:
            raise InvalidArguments(f"an argument is a {type(wrong).__name__}: give a torch.Tensor, as in the example")
        return tensors

    def _as_in_example(
        self, exported: "_ExportedModule", args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments by position and by name as the example has them."""
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(f"the module cannot be called with these arguments: {error}") from None
        names = [name for name in given if name not in exported.keywords]
        return tuple(given[name] for name in names), {name: given[name] for name in exported.keywords if name in given}

    def _compile_graph(self, graph_module: Any, examples: Sequence[Any]) -> Any:
        """Return the function for a graph between two graph breaks."""
        call = compile_dynamo_graph(graph_module, examples, self._options)
        self._graphs.append(call.compiled)
        return call.run

    def __repr__(self) -> str:
        """Return the class of the module, and the number of parts that Inlay and PyTorch run."""
        parts = self.report().parts
        inlay = sum(part.runs_in == INLAY for part in parts)
        kind = type(self._module).__name__
        return f"<TorchModule of {kind}: {inlay} parts in Inlay, {len(parts) - inlay} in PyTorch>"


class _ExportedModule:
    """A module and its exported program."""

    def __init__(self, module: Any, program: Any) -> None:
        """Hold the program until it is compiled, and where the module holds each of its weights."""
        signature = program.graph_signature
        self.name = type(module).__name__
        self.constants: tuple[str, ...] = (*signature.parameters, *signature.buffers)
        self._holders = [_find_holder(module, name) for name in self.constants]
        self._program = program
        self.in_spec, self.out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        self.is_one = self.out_spec.is_leaf()
        kinds = [spec.arg for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
        self.count = len(kinds)
        self.fixed = {i: kind.value for i, kind in enumerate(kinds) if hasattr(kind, "value")}
        self.tensors = [i for i in range(self.count) if i not in self.fixed]
        self.keywords = tuple(self.in_spec.child(1).context) if self.in_spec.num_children == 2 else ()
        first = self.in_spec.child(0)
        is_flat = not self.keywords and not self.fixed and all(child.is_leaf() for child in first.children())
        self._plain = self.count if is_flat else -1
        self._tensor = require_torch().Tensor

    def weights(self) -> list[TorchTensor]:
        """Return the parameters and buffers that the module has now."""
        return [holder[name] for holder, name in self._holders]

    def is_plain_call(self, args: tuple[Any, ...]) -> bool:
        """Return whether positional arguments are tensors, as all arguments of the example were."""
        return len(args) == self._plain and all(type(value) is self._tensor for value in args)

    def capture(self, tensors: Sequence[TorchTensor], constants: Sequence[TorchTensor]) -> Any:
        """Return the exported program, once."""
        program, self._program = self._program, None
        return program


def _find_holder(module: Any, name: str) -> tuple[dict[str, Any], str]:
    """Return the dict that holds a parameter or buffer of a module, and its key there."""
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    return (owner._parameters if last in owner._parameters else owner._buffers), last


def _open_named_axes(shapes: Any) -> Any:
    """Return dynamic shapes with `Dim.DYNAMIC` in place of names."""
    if isinstance(shapes, str):
        return require_torch().export.Dim.DYNAMIC
    if isinstance(shapes, Mapping):
        return {key: _open_named_axes(value) for key, value in shapes.items()}
    return type(shapes)(map(_open_named_axes, shapes)) if isinstance(shapes, (list, tuple)) else shapes
