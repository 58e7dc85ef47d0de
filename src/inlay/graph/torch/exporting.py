"""Export of a graph of PyTorch to ONNX, with its weights in PyTorch's memory.

    program = capture_program(module, examples, None, None)    an `ExportedProgram`, by `torch.export`
    exported = export_program(program)                         an ONNX model and its weights, by `torch.onnx.export`
    exported.load()                                            a network of Inlay

Whatever the exporters raise is a reason to let PyTorch run the graph, and becomes `GraphRefused`.

Source: PyTorch, `torch.export`; `torch.onnx`, "torch.export-based ONNX Exporter".
"""

import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from inlay.errors import FileError, InvalidArguments, Unimplemented, printable
from inlay.graph.network import Network, read_only
from inlay.graph.onnx.reading import load_exported
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenNetwork
from inlay.graph.torch.shape_rules import ShapeRules
from inlay.graph.torch.torch_package import TorchTensor, require_exporter, require_torch
from inlay.rearranging.array_kinds import numpy_of_torch

OPSET = 20
"""Opset of the exported models."""

_CAPTURE_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What `torch.export` raises for modules that it cannot trace: it executes their code with tensors without elements."""

REFUSALS = (FileError, InvalidArguments, Unimplemented)
"""What Inlay raises for networks that it does not support."""

WEIGHTS = "weights/"
"""Begin of the names of weights in a model: a parameter may have the name of an input."""

WRITES = "it writes to tensors of the caller"
"""Reason for which a whole graph is refused, while its parts may be supported."""

_MOST_SHOWN = 300  # characters of an error of PyTorch


class GraphRefused(Exception):
    """A graph that PyTorch does not export, or that Inlay does not load or plan: PyTorch has to run it."""


@dataclass(frozen=True, slots=True)
class ExportedGraph:
    """An ONNX model of a graph, and its weights."""

    model: bytes
    """The ONNX file, without weights."""
    weights: Mapping[str, TorchTensor]
    """The weights, by their names in the program; in the model `WEIGHTS` is before these."""
    inputs: tuple[str, ...]
    """Names of the inputs, in the order of the graph."""
    outputs: tuple[str, ...]
    """Names of the outputs, in the order of the graph."""
    rules: ShapeRules
    """The shapes for which the model is valid."""

    def with_weights(self, weights: Mapping[str, TorchTensor]) -> "ExportedGraph":
        """Return the graph with these tensors in place of its weights of the same names."""
        return replace(self, weights={name: weights.get(name, tensor) for name, tensor in self.weights.items()})

    def load(self) -> Network | OpenNetwork:
        """Return the network.

        Raises:
            FileError, InvalidArguments, Unimplemented: Inlay does not support it.
        """
        arrays = {WEIGHTS + name: _array_of_weight(name, tensor) for name, tensor in self.weights.items()}
        return load_exported(self.model, arrays)


def capture_program(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any) -> Any:
    """Return the `ExportedProgram` of a module for example arguments, as `torch.export.export` makes it.

    Raises:
        GraphRefused: PyTorch cannot export it.
    """
    torch = require_torch()
    with _plain_modes():
        try:
            return torch.export.export(module, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False)
        except _CAPTURE_ERRORS as error:
            raise GraphRefused(f"torch.export: {describe_error(error)}") from error


def decompose_program(program: Any) -> Any:
    """Return the functional form of a program, in the same operators as far as they have one.

    Raises:
        GraphRefused: PyTorch has none.
    """
    with _plain_modes():
        try:
            return program.run_decompositions({})
        except _CAPTURE_ERRORS as error:
            raise GraphRefused(f"run_decompositions: {describe_error(error)}") from error


def export_program(program: Any) -> ExportedGraph:
    """Return the ONNX model of a program whose inputs and outputs are tensors.

    Raises:
        GraphRefused: the exporter has no translation of an operator, or the program writes to tensors of the caller.
        MissingExtra: onnx or onnxscript is not installed.
    """
    ir, torch = require_exporter(), require_torch()
    with _plain_modes():
        try:
            found = _run_exporter(program)
        except torch.onnx.OnnxExporterError as error:
            raise GraphRefused(f"torch.onnx.export: {describe_error(_root_cause(error))}") from error
    model, signature = found.model, found.exported_program.graph_signature
    if len(signature.output_specs) != len(signature.user_outputs):
        raise GraphRefused(WRITES)
    weights = {
        name: value.const_value.raw
        for name, value in model.graph.initializers.items()
        if isinstance(getattr(value.const_value, "raw", None), torch.Tensor)
    }
    for name in weights:
        model.graph.initializers.pop(name).name = WEIGHTS + name
    inputs, outputs = ([value.name for value in values] for values in (model.graph.inputs, model.graph.outputs))
    data = ir.to_proto(model).SerializeToString()
    return ExportedGraph(data, weights, tuple(inputs), tuple(outputs), ShapeRules.of(program, inputs))


def _run_exporter(program: Any) -> Any:
    """Return the result of PyTorch's exporter to ONNX for a program.

    `torch.onnx.export` builds the table of all translations in each call, which takes a second or two. Where its inner
    function takes a table, the same one serves all calls.
    """
    options = {"opset_version": OPSET, "optimize": False, "verbose": False}
    translations = _find_translations()
    if translations is None:
        return require_torch().onnx.export(program, (), dynamo=True, **options)
    export, registry = translations
    return export(program, (), registry=registry, **options)


@cache
def _find_translations() -> tuple[Callable[..., Any], Any] | None:
    """Return the inner function of the exporter to ONNX, and the table of translations; None where there are none."""
    try:
        from torch.onnx._internal.exporter._core import export
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        registry = ONNXRegistry.from_torchlib(opset_version=OPSET)
    except (ImportError, AttributeError, TypeError):
        return None
    parameters = inspect.signature(export).parameters
    return (export, registry) if parameters.keys() >= {"registry", "opset_version", "optimize"} else None


def example_like(tensor: TorchTensor) -> TorchTensor:
    """Return a tensor without contents, and with the shape, strides and type of another one."""
    torch = require_torch()
    with torch.inference_mode(False):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def describe_error(error: BaseException) -> str:
    """Return the type and the first line of an error of PyTorch."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = printable(lines[0]) if lines else ""
    text = text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _root_cause(error: BaseException) -> BaseException:
    """Return the error that an error of the exporter was raised from, and so on."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def _plain_modes() -> Iterator[None]:
    """Trace without gradients, warnings and messages, and outside of inference mode.

    An extent of 1 is one like any other, as in PyTorch's own exporter to ONNX.
    """
    torch = require_torch()
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # PyTorch warns of packages that the model does not need, and prints the graphs of modules that it refuses.
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)
        stack.enter_context(redirect_stderr(io.StringIO()))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        config: Any = getattr(torch.fx.experimental, "_config", None)
        if hasattr(config, "backed_size_oblivious"):
            stack.enter_context(config.patch(backed_size_oblivious=True))
        yield


def _array_of_weight(name: str, tensor: TorchTensor) -> Array:
    """Return the elements of a tensor as a read-only, row-major array, which shares its memory if it is row-major.

    Raises:
        Unimplemented: arrays have no such elements.
    """
    try:
        array = np.ascontiguousarray(numpy_of_torch(require_torch(), tensor.detach()))
    except (RuntimeError, TypeError) as error:
        raise Unimplemented(f"weight {name} is {tensor.dtype} of {tensor.layout}: {describe_error(error)}") from error
    return read_only(array.view().reshape(tensor.shape))
