"""`load`: read an ONNX file as a network in which every dim is a number, constants are folded and patterns are fused.

>>> from onnx import TensorProto, helper
>>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
>>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
>>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
>>> network = load(model.SerializeToString(), batch=4)
>>> network.tensors["y"].dims, [node.operator for node in network.nodes]
((4, 3), ['Relu'])

A model may leave a dim open and give it a name, such as `batch` or `height`, or no name. The caller binds an open dim
by that name, or by input and axis, as in `x[2]`. The batch is axis 0 of every input that leaves axis 0 open.

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification".
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from inlay.arguments import integer_or_none
from inlay.errors import InvalidArguments, Unimplemented, printable
from inlay.graph.network import Network, Tensor
from inlay.graph.onnx.importer import GraphImporter
from inlay.graph.onnx.initializers import Proto, element_type
from inlay.graph.onnx.parsing import ParsedModel, parse_model
from inlay.graph.onnx.regions import merge_regions
from inlay.graph.passes import simplify_network
from inlay.graph.passes.rewriting import remove_dead_nodes
from inlay.layout import Dims

Source: TypeAlias = str | os.PathLike[str] | bytes


@dataclass(frozen=True, slots=True)
class ModelReloader:
    """Function that builds the network of a parsed model again, for inputs of other dims."""

    model: ParsedModel
    """The parsed model."""

    def __call__(self, dims: Mapping[str, Dims]) -> Network:
        """Return the network for these dims, by name of the input.

        Raises:
            InvalidArguments: the model fixes one of these dims at another number; or a reason of `load`.
            Unimplemented: a reason of `load`.
        """
        return _build_network(self.model, rebind_inputs(self.model.model.graph, dims))


def load(source: Source, *, dims: Mapping[str, int] | None = None, batch: int | None = None) -> Network:
    """Return the network of an ONNX file of opset 1 to 28, ready to be planned.

    `source` is a path, or the bytes of a file. `dims` binds open dims by name, or by input and axis, as in `"x[2]"`.
    `batch` binds axis 0 of every input that leaves it open.

    `network.again({"x": dims})` builds the same model for inputs of other dims, if the model leaves these dims open.

    In the returned network every tensor has fixed dims, and constants are read-only arrays. No node has only constant
    inputs, except random operators and those that NumPy cannot compute. Every node is needed for an output, and every
    output is written by a node. Patterns of nodes that exporters write for one operation are fused into that operation;
    `graph.passes` lists them.

    Raises:
        FileError: the file cannot be read, is no ONNX model, is cut short, breaks a rule of ONNX, or names a file of
            weights outside its folder.
        InvalidArguments: a dim is left open or bound to an impossible number; dims or types do not fit an operator;
            `source` is no path and no bytes.
        MissingExtra: the package onnx is not installed.
        Unimplemented: an opset, an operator or a type is not supported; the text names the node and what is supported.
    """
    model = _parse_source(source)
    return _build_network(model, bind_inputs(model.model.graph, dims, batch))


def load_for(source: Source, extents: Mapping[str | None, Dims], *, batch: int | None = None) -> Network:
    """Return the network of an ONNX file for inputs of these dims, by name; the key None stands for the only input.

    `batch`, if given, must equal axis 0 of every input.

    Raises:
        FileError, MissingExtra, Unimplemented: as `load`.
        InvalidArguments: an input is missing or unknown, or cannot have these dims.
    """
    model = _parse_source(source)
    names = [str(value.name) for value in model.model.graph.input]
    if None in extents and len(names) != 1:
        raise InvalidArguments(
            f"the model has {len(names)} inputs, {', '.join(map(printable, names))}: name the one that is meant"
        )
    dims = {name or names[0]: input_dims for name, input_dims in extents.items()}
    for name in (*dims, *names):
        if name not in names:
            raise InvalidArguments(
                f"the model has no input {name!r}: its inputs are {', '.join(map(printable, names))}"
            )
        if name not in dims:
            raise InvalidArguments(
                f"input {name!r} is missing: the model's inputs are {', '.join(map(printable, names))}"
            )
    return _build_network(model, rebind_inputs(model.model.graph, dims, batch))


def _parse_source(source: Source) -> ParsedModel:
    """Parse the model at a path or in bytes; raise InvalidArguments for any other type of `source`."""
    if not isinstance(source, (str, os.PathLike, bytes)):
        kind = type(source).__name__
        remedy = (
            "give its bytes: model.SerializeToString()" if kind == "ModelProto" else "give a path, or a file's bytes"
        )
        raise InvalidArguments(
            f"a network is read from a path or from the bytes of a file, not from a {kind}: {remedy}"
        )
    return parse_model(source if isinstance(source, bytes) else Path(source))


def _build_network(model: ParsedModel, inputs: list[Tensor]) -> Network:
    """Import and simplify a model for these inputs; the result's `again` builds it for other dims."""
    return replace(simplify_network(import_network(model, inputs)), again=ModelReloader(model))


def import_network(model: ParsedModel, inputs: list[Tensor]) -> Network:
    """Return the network of a model before simplification: constants folded, unneeded nodes removed."""
    importer = GraphImporter(model, inputs)
    graph = model.model.graph
    importer.import_graph(graph, {}, "")
    names, outputs = tuple(tensor.name for tensor in inputs), tuple(value.name for value in graph.output)
    for name in dict.fromkeys(outputs):
        importer.add_output(name, set(names))
    fields = graph.name, model.opset, names, outputs
    network = remove_dead_nodes(Network(*fields, tuple(importer.nodes), importer.tensors, importer.values))
    known = network.tensors.keys() - importer.open_types.keys()
    return remove_dead_nodes(replace(network, nodes=merge_regions(network.nodes, known, outputs)))


# Open dims


def bind_inputs(graph: Proto, dims: Mapping[str, int] | None, batch: int | None) -> list[Tensor]:
    """Return the inputs of a graph with every dim a number.

    Raises:
        InvalidArguments: a dim is left open, a name is of no dim, or a number is below 0; or `batch` is below 1.
        Unimplemented: an input is no tensor of numbers, or its rank is unknown.
    """
    if dims is not None and not isinstance(dims, Mapping):
        raise InvalidArguments(f"dims are a {type(dims).__name__}: give a mapping of names to numbers")
    bindings = {name: _extent(f"dims[{name!r}]", value) for name, value in (dims or {}).items()}
    first = None if batch is None else _extent("batch", batch, 1)
    used: set[str] = set()
    inputs = [_bind_input(value, bindings, first, used) for value in graph.input]
    unused = [name for name in bindings if name not in used]
    if unused:
        raise InvalidArguments(
            f"dims names {unused[0]!r}, and the model leaves open {_open_dims(graph)}: name one of them"
        )
    return inputs


def rebind_inputs(graph: Proto, dims: Mapping[str, Dims], batch: int | None = None) -> list[Tensor]:
    """Return the inputs of a graph with these dims, by name; axis 0 must be `batch`, if that is given.

    Raises:
        InvalidArguments: an input is missing or unknown, or its dims contradict the model or `batch`.
    """
    first = None if batch is None else _extent("batch", batch, 1)
    names = [value.name for value in graph.input]
    if set(names) != set(dims):
        passed = ", ".join(sorted(dims)) or "no input"
        raise InvalidArguments(
            f"dims are given for {passed}, and the inputs are {', '.join(map(printable, names))}: give each its dims"
        )
    for value in graph.input:
        fixed = tuple(_fixed_extent(dim) for dim in value.type.tensor_type.shape.dim)
        new = dims[value.name]
        if len(fixed) != len(new) or any(n is not None and n != m for n, m in zip(fixed, new, strict=True)):
            shown = ", ".join("open" if n is None else str(n) for n in fixed)
            raise InvalidArguments(
                f"input {value.name!r} cannot have dims {tuple(new)}, in the model they are ({shown}): "
                "export the model with the axes left open that vary"
            )
    named = ((f"{name}[{axis}]", n) for name, extents in dims.items() for axis, n in enumerate(extents))
    bindings = {name: _extent(f"dims[{name!r}]", n) for name, n in named}
    inputs = [_bind_input(value, bindings, first, set()) for value in graph.input]
    for tensor in inputs:
        if first is not None and tensor.dims and tensor.dims[0] != first:
            raise InvalidArguments(
                f"batch={batch}: input {tensor.name!r} is given dims {tensor.dims}; give arrays with {batch} on "
                "axis 0, or leave the batch out"
            )
    return inputs


def _extent(what: str, value: int, least: int = 0) -> int:
    """Return an extent as an int; raise InvalidArguments unless it is a whole number from `least` on."""
    number = integer_or_none(value)
    if number is None or number < least:
        raise InvalidArguments(f"{what} is {value!r}: the extent of a dim is a whole number from {least} on")
    return number


def _bind_input(value: Proto, bindings: Mapping[str, int], batch: int | None, used: set[str]) -> Tensor:
    """Return an input with its dims bound; add the names of `bindings` that were used to `used`."""
    if not value.type.HasField("tensor_type"):
        raise Unimplemented(
            f"input {value.name!r} is no tensor: only tensors of numbers and booleans are supported; export the model "
            "with a tensor in its place"
        )
    kind = value.type.tensor_type
    dtype = element_type(kind.elem_type, f"input {value.name!r}")
    if not kind.HasField("shape"):
        raise Unimplemented(
            f"input {value.name!r} has no dims, not even their number: export the model with an example input"
        )
    extents = tuple(_bind_axis(value.name, axis, dim, bindings, batch, used) for axis, dim in enumerate(kind.shape.dim))
    return Tensor(value.name, extents, dtype)


def _bind_axis(name: str, axis: int, dim: Proto, bindings: Mapping[str, int], batch: int | None, used: set[str]) -> int:
    """Return the extent of one axis of an input; add the name of `bindings` that was used to `used`."""
    fixed = _fixed_extent(dim)
    if fixed is not None:
        if axis == 0 and batch not in (None, fixed):
            raise InvalidArguments(
                f"batch={batch}: input {name!r} has the fixed extent {fixed} on axis 0; export the model with that "
                "axis left open"
            )
        return fixed
    for key in (f"{name}[{axis}]", str(dim.dim_param)):
        if key in bindings:
            used.add(key)
            return bindings[key]
    if axis == 0 and batch is not None:
        return batch
    key = str(dim.dim_param) or f"{name}[{axis}]"
    also = " or batch=1" if axis == 0 else ""
    called = f", {dim.dim_param!r}," if dim.dim_param else ""
    raise InvalidArguments(
        f"input {name!r} leaves axis {axis}{called} open: say how large it is, as dims={{{key!r}: 1}}{also}"
    )


def _fixed_extent(dim: Proto) -> int | None:
    """Return the extent that the model fixes, or None for an open dim, which some exporters write as 0 or -1."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else None


def _open_dims(graph: Proto) -> str:
    """Return the names of the open dims as a list in text."""
    return ", ".join(dict.fromkeys(_open_names(graph))) or "no dim"


def _open_names(graph: Proto) -> Iterator[str]:
    """Yield the name of each open dim, or input and axis if it has none."""
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if _fixed_extent(dim) is None:
                yield repr(str(dim.dim_param) or f"{value.name}[{axis}]")
