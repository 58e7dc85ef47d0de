"""`load`: a network from an ONNX file, every dim a number, constants folded, known patterns put together.

>>> from onnx import TensorProto, helper
>>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
>>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
>>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
>>> network = load(model.SerializeToString(), batch=4)
>>> network.tensors["y"].dims, [node.operator for node in network.nodes]
((4, 3), ['Relu'])

A dim that a model leaves open has a name there, such as `batch` or `height`, or none. Either way it can be named by the
input and the axis, `x[2]`. The batch is axis 0 of every input where that is open.

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
from inlay.graph.onnx.initializers import Proto, element_type
from inlay.graph.onnx.parsing import Opened, opened
from inlay.graph.onnx.walking import Walk
from inlay.graph.passes import simplified
from inlay.graph.passes.rewriting import without_dead
from inlay.layout import Dims

Source: TypeAlias = str | os.PathLike[str] | bytes


@dataclass(frozen=True, slots=True)
class Again:
    """Reads an opened model for inputs of other dims."""

    model: Opened
    """What was opened."""

    def __call__(self, dims: Mapping[str, Dims]) -> Network:
        """The network for these dims, by the name of the input.

        Raises:
            InvalidArguments: the model fixes one of them at another number, or as `load`.
            Unimplemented: as `load`.
        """
        return _loaded(self.model, rebound_inputs(self.model.model.graph, dims))


def load(source: Source, *, dims: Mapping[str, int] | None = None, batch: int | None = None) -> Network:
    """The network of an ONNX file, opsets 1 to 28, ready to be planned.

    `source` is a path, or the bytes of such a file. `dims` binds dims that the model leaves open by name, or by input
    and axis as `"x[2]"`; `batch` binds axis 0 of every input that leaves it open.

    `network.again({"x": dims})` is the same model for inputs of other dims, where it leaves these open.

    In the network every tensor has fixed dims; constants are read-only arrays; nothing that is left follows from
    constants alone, and each node is needed for an output; each output is written by a node. Patterns of nodes that
    exports take for one operation are that operation, as `simplified` says.

    Raises:
        FileError: the file cannot be read, is no ONNX model or cut short, breaks a rule of ONNX, or names a file of
            weights outside its folder.
        InvalidArguments: a dim is left open or bound to what cannot be; dims or types do not fit an operator; `source`
            is no path and no bytes.
        MissingExtra: the package onnx is not installed.
        Unimplemented: it holds an opset, an operator or a type that is not read; the text says which node and what is
            supported.
    """
    model = _opened(source)
    return _loaded(model, bound_inputs(model.model.graph, dims, batch))


def load_for(source: Source, extents: Mapping[str | None, Dims], *, batch: int | None = None) -> Network:
    """The network of an ONNX file for inputs of these dims, by name; None stands for the only input.

    `batch`, where it is given, must be axis 0 of them all.

    Raises:
        FileError, MissingExtra, Unimplemented: as `load`.
        InvalidArguments: an input is missing or unknown, or cannot have these dims.
    """
    model = _opened(source)
    names = [str(value.name) for value in model.model.graph.input]
    if None in extents and len(names) != 1:
        raise InvalidArguments(
            f"the model has {len(names)} inputs, {', '.join(map(printable, names))}: name the one that is meant"
        )
    dims = {name or names[0]: its for name, its in extents.items()}
    for name in (*dims, *names):
        if name not in names:
            raise InvalidArguments(f"the model has no input {name!r}: it takes {', '.join(map(printable, names))}")
        if name not in dims:
            raise InvalidArguments(f"input {name!r} is missing: the model takes {', '.join(map(printable, names))}")
    return _loaded(model, rebound_inputs(model.model.graph, dims, batch))


def _opened(source: Source) -> Opened:
    if not isinstance(source, (str, os.PathLike, bytes)):
        given = type(source).__name__
        remedy = (
            "give its bytes: model.SerializeToString()" if given == "ModelProto" else "give a path, or a file's bytes"
        )
        raise InvalidArguments(
            f"a network is read from a path or from the bytes of a file, not from a {given}: {remedy}"
        )
    return opened(source if isinstance(source, bytes) else Path(source))


def _loaded(model: Opened, inputs: list[Tensor]) -> Network:
    """The network for inputs of these dims; it can be had again for others."""
    return replace(simplified(walked(model, inputs)), again=Again(model))


def walked(model: Opened, inputs: list[Tensor]) -> Network:
    """The network with what follows from constants alone folded, and without what no output needs."""
    walk = Walk(model, inputs)
    graph = model.model.graph
    walk.read(graph, {}, "")
    names, outputs = tuple(tensor.name for tensor in inputs), tuple(value.name for value in graph.output)
    for name in dict.fromkeys(outputs):
        walk.answer(name, set(names))
    nodes = tuple(walk.nodes)
    return without_dead(Network(graph.name, model.opset, names, outputs, nodes, walk.tensors, walk.values))


# Open dims


def bound_inputs(graph: Proto, dims: Mapping[str, int] | None, batch: int | None) -> list[Tensor]:
    """The inputs of a graph with every dim a number.

    Raises:
        InvalidArguments: a dim is left open, a name is of no dim, or a number is below 1.
        Unimplemented: an input is no tensor of numbers, or its rank is unknown.
    """
    if dims is not None and not isinstance(dims, Mapping):
        raise InvalidArguments(f"dims are a {type(dims).__name__}: give a mapping of names to numbers")
    wanted = {name: _extent(f"dims[{name!r}]", value) for name, value in (dims or {}).items()}
    first = None if batch is None else _extent("batch", batch)
    used: set[str] = set()
    inputs = [_bound(value, wanted, first, used) for value in graph.input]
    unused = [name for name in wanted if name not in used]
    if unused:
        raise InvalidArguments(
            f"dims names {unused[0]!r}, and the model leaves open {_open_dims(graph)}: name one of them"
        )
    return inputs


def rebound_inputs(graph: Proto, dims: Mapping[str, Dims], batch: int | None = None) -> list[Tensor]:
    """The inputs of a graph with these dims, by name; axis 0 is `batch`, where that is given.

    Raises:
        InvalidArguments: an input is missing or unknown, or its dims are not what the model and `batch` say.
    """
    first = None if batch is None else _extent("batch", batch)
    names = [value.name for value in graph.input]
    if set(names) != set(dims):
        given = ", ".join(sorted(dims)) or "no input"
        raise InvalidArguments(
            f"dims are given for {given}, and the inputs are {', '.join(map(printable, names))}: give each its dims"
        )
    for value in graph.input:
        said = tuple(_fixed(dim) for dim in value.type.tensor_type.shape.dim)
        new = dims[value.name]
        if len(said) != len(new) or any(n is not None and n != m for n, m in zip(said, new, strict=True)):
            shown = ", ".join("open" if n is None else str(n) for n in said)
            raise InvalidArguments(
                f"input {value.name!r} cannot have dims {tuple(new)}, in the model they are ({shown}): "
                "export the model with the axes left open that vary"
            )
    named = ((f"{name}[{axis}]", n) for name, extents in dims.items() for axis, n in enumerate(extents))
    wanted = {name: _extent(f"dims[{name!r}]", n) for name, n in named}
    inputs = [_bound(value, wanted, first, set()) for value in graph.input]
    for tensor in inputs:
        if first is not None and tensor.dims and tensor.dims[0] != first:
            raise InvalidArguments(
                f"batch={batch}: input {tensor.name!r} is given dims {tensor.dims}; give arrays with {batch} on "
                "axis 0, or leave the batch out"
            )
    return inputs


def _extent(what: str, value: int) -> int:
    number = integer_or_none(value)
    if number is None or number < 1:
        raise InvalidArguments(f"{what} is {value!r}: the extent of a dim is a whole number from 1 on")
    return number


def _bound(value: Proto, wanted: Mapping[str, int], batch: int | None, used: set[str]) -> Tensor:
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
    extents = tuple(_one(value.name, axis, dim, wanted, batch, used) for axis, dim in enumerate(kind.shape.dim))
    return Tensor(value.name, extents, dtype)


def _one(name: str, axis: int, dim: Proto, wanted: Mapping[str, int], batch: int | None, used: set[str]) -> int:
    """The extent of one axis of an input."""
    fixed = _fixed(dim)
    if fixed is not None:
        if axis == 0 and batch not in (None, fixed):
            raise InvalidArguments(
                f"batch={batch}: input {name!r} has the fixed extent {fixed} on axis 0; export the model with that "
                "axis left open"
            )
        return fixed
    for key in (f"{name}[{axis}]", str(dim.dim_param)):
        if key in wanted:
            used.add(key)
            return wanted[key]
    if axis == 0 and batch is not None:
        return batch
    key = str(dim.dim_param) or f"{name}[{axis}]"
    also = " or batch=1" if axis == 0 else ""
    called = f", {dim.dim_param!r}," if dim.dim_param else ""
    raise InvalidArguments(
        f"input {name!r} leaves axis {axis}{called} open: say how large it is, as dims={{{key!r}: 1}}{also}"
    )


def _fixed(dim: Proto) -> int | None:
    """The extent that the model says; exporters write 0 or -1 for one that they leave open."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else None


def _open_dims(graph: Proto) -> str:
    return ", ".join(dict.fromkeys(_open_names(graph))) or "no dim"


def _open_names(graph: Proto) -> Iterator[str]:
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if _fixed(dim) is None:
                yield repr(str(dim.dim_param) or f"{value.name}[{axis}]")
