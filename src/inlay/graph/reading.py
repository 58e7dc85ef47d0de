"""`load`: a network from an ONNX file, every dim a number, constants folded, known patterns put together.

>>> from onnx import TensorProto, helper
>>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
>>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
>>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
>>> network = load(model.SerializeToString(), batch=4)
>>> network.tensors["y"].dims, [node.operator for node in network.nodes]
((4, 3), ['Relu'])

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification".
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from inlay.errors import InvalidArguments
from inlay.graph.binding import bound_inputs, rebound_inputs
from inlay.graph.network import Network, Tensor
from inlay.graph.opening import Opened, opened
from inlay.graph.patterns import simplified
from inlay.graph.patterns.rewriting import without_dead
from inlay.graph.walking import Walk
from inlay.layout import Dims
from inlay.printable import printable

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
