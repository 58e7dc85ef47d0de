"""`load`: read an ONNX file as a network with its constants folded and its patterns fused, or as one with open dims.

>>> from onnx import TensorProto, helper
>>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
>>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
>>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
>>> network = load(model.SerializeToString(), batch=4)
>>> network.tensors["y"].dims, [node.operator for node in network.nodes]
((4, 3), ['Relu'])

A model may leave a dim open and give it a name, such as `batch` or `height`, or no name. The caller binds an open dim
by that name, or by input and axis, as in `x[2]`. The batch is axis 0 of every input that leaves axis 0 open. Without
`dims` and `batch`, nothing is bound, and the result is an `OpenNetwork`:

>>> load(model.SerializeToString())
<OpenNetwork tiny: x (n, 3) -> y (n, 3); opset 17>

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification".
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, overload

from inlay.arguments import integer_or_none
from inlay.errors import InvalidArguments, Unimplemented, printable
from inlay.graph.network import Network, Tensor
from inlay.graph.onnx.cache_updates import find_cache_updates
from inlay.graph.onnx.compound_weights import replace_weights
from inlay.graph.onnx.importer import GraphImporter
from inlay.graph.onnx.initializers import Proto, element_type
from inlay.graph.onnx.parsing import ParsedModel, parse_model
from inlay.graph.onnx.regions import merge_regions
from inlay.graph.onnx.symbolic_inference import infer_open_tensors
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenNetwork, OpenTensor, describe_open
from inlay.graph.passes import simplify_network
from inlay.graph.passes.rewriting import remove_dead_nodes
from inlay.graph.states import CacheUpdates
from inlay.layout import Dims
from inlay.memory.compound.memory import CompoundMemory

Source: TypeAlias = str | os.PathLike[str] | bytes
CompoundWeights: TypeAlias = Mapping[str, CompoundMemory]
"""Memory in compound formats that replaces constants of a model, by their names."""
_NO_WEIGHTS: CompoundWeights = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ModelReloader:
    """Builds the networks of one parsed model, for inputs of any dims that it can have."""

    model: ParsedModel
    """The parsed model."""
    inferred: dict[tuple[OpenTensor, ...], Mapping[str, OpenTensor]] = field(default_factory=dict, repr=False)
    """Results of `infer` by the inputs."""
    weights: Mapping[str, CompoundMemory] = field(default_factory=dict, repr=False)
    """Constants in compound formats that replace those of the model, by name."""

    def __call__(self, dims: Mapping[str, Dims]) -> Network:
        """Return the network for these dims, by name of the input.

        Raises:
            InvalidArguments: the model fixes one of these dims at another number; or a reason of `load`.
            Unimplemented: a reason of `load`.
        """
        return self.build(open_inputs(self.model.model.graph), dims)

    def build(self, inputs: Sequence[OpenTensor], dims: Mapping[str, Dims]) -> Network:
        """Return the network for these dims, by name of the input, which are those of `inputs` where these are fixed.

        Raises:
            InvalidArguments, Unimplemented: as `__call__`.
        """
        return _build_network(self.model, rebind_inputs(inputs, dims), self.weights)

    def bind(
        self, inputs: Sequence[OpenTensor], dims: Mapping[str, int] | None, batch: int | None
    ) -> tuple[OpenTensor, ...]:
        """Return inputs with these numbers in place of open dims; see `bind_some`."""
        return bind_some(inputs, dims, batch)

    def infer(self, inputs: Sequence[OpenTensor]) -> Mapping[str, OpenTensor]:
        """Return the tensors whose number of axes is known, by name; see `infer_open_tensors`."""
        key = tuple(inputs)
        if key not in self.inferred:
            self.inferred[key] = MappingProxyType(infer_open_tensors(self.model, key))
        return self.inferred[key]

    def find_updates(self) -> CacheUpdates:
        """Return the nodes that update a cache; see `find_cache_updates`."""
        return find_cache_updates(self.model)


@overload
def load(
    source: Source, *, dims: Mapping[str, int], batch: int | None = None, weights: CompoundWeights | None = None
) -> Network: ...
@overload
def load(source: Source, *, dims: None = None, batch: int, weights: CompoundWeights | None = None) -> Network: ...
@overload
def load(
    source: Source,
    *,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    weights: CompoundWeights | None = None,
) -> Network | OpenNetwork: ...
def load(
    source: Source,
    *,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    weights: CompoundWeights | None = None,
) -> Network | OpenNetwork:
    """Return the network of an ONNX file of opset 1 to 28.

    `source` is a path, or the bytes of a file. `dims` binds open dims by name, or by input and axis, as in `"x[2]"`.
    `batch` binds axis 0 of every input that leaves it open. If a dim is open and neither is given, an `OpenNetwork` is
    returned, which `OpenNetwork.bind` or `inlay.compile` takes further; `OpenNetwork.bind_some` binds some dims only.

    `weights` replaces constants of the model, by name, such as the matrices of a GGUF file: products with ggml's Q4_0
    and Q8_0 read these integers, and other formats are unpacked. A matrix that is not square may be the transpose of
    the model's.

    `network.again({"x": dims})` builds the same model for inputs of other dims, if the model leaves these dims open.

    In a `Network` every tensor has fixed dims, and constants are read-only arrays. No node has only constant
    inputs, except random operators and those that NumPy cannot compute. Every node is needed for an output, and every
    output is written by a node. Patterns of nodes that exporters write for one operation are fused into that operation;
    `graph.passes` lists them.

    Raises:
        FileError: the file cannot be read, is no ONNX model, is cut short, breaks a rule of ONNX, or names a file of
            weights outside its folder.
        InvalidArguments: only some of the open dims are bound, or to an impossible number; dims or types do not fit an
            operator; `source` is no path and no bytes; `weights` do not fit the constants of the model.
        MissingExtra: the package onnx is not installed.
        Unimplemented: an opset, an operator or a type is not supported; the text names the node and what is supported.
    """
    model, given = _parse_source(source), weights or {}
    if dims is None and batch is None:
        return _build_unbound(model, given)
    return _build_network(model, bind_inputs(open_inputs(model.model.graph), dims, batch), given)


def load_exported(source: bytes, weights: Mapping[str, Array]) -> Network | OpenNetwork:
    """Return the network of an ONNX file whose weights are passed beside it, by name, as read-only arrays; see `load`.

    Raises:
        FileError, InvalidArguments, MissingExtra, Unimplemented: as `load`.
    """
    return _build_unbound(parse_model(source, weights))


def load_bound(source: Source, *, dims: Mapping[str, int] | None = None, batch: int | None = None) -> Network:
    """Return the network of an ONNX file as `load`, but with all dims bound.

    Raises:
        InvalidArguments: dims are left open; or as `load`.
        FileError, MissingExtra, Unimplemented: as `load`.
    """
    model = _parse_source(source)
    return _build_network(model, bind_inputs(open_inputs(model.model.graph), dims, batch))


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
    return _build_network(model, rebind_inputs(open_inputs(model.model.graph), dims, batch))


def _parse_source(source: Source) -> ParsedModel:
    """Parse the model at a path or in bytes; raise InvalidArguments for any other type of `source`."""
    if not isinstance(source, (str, os.PathLike, bytes)):
        raise InvalidArguments(
            f"a network is read from a path or from the bytes of a file, not from a {type(source).__name__}: "
            f"{_remedy_for(source)}"
        )
    return parse_model(source if isinstance(source, bytes) else Path(source))


def _remedy_for(source: object) -> str:
    """Return what to do with an object that is no source of a network, for an error."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        return "inlay.from_torch(module, example_inputs) exports, plans and runs it"
    return (
        "give its bytes: model.SerializeToString()"
        if type(source).__name__ == "ModelProto"
        else "give a path, or a file's bytes"
    )


def _build_unbound(model: ParsedModel, weights: CompoundWeights = _NO_WEIGHTS) -> Network | OpenNetwork:
    """Return the network of a model; an `OpenNetwork` if it leaves a dim open."""
    graph = model.model.graph
    inputs = open_inputs(graph)
    if not any(tensor.is_open for tensor in inputs):
        return _build_network(model, bind_inputs(inputs, None, None), weights)
    names = tuple(str(value.name) for value in graph.output)
    return OpenNetwork(graph.name, model.opset, tuple(inputs), names, ModelReloader(model, weights=dict(weights)))


def _build_network(model: ParsedModel, inputs: list[Tensor], weights: CompoundWeights = _NO_WEIGHTS) -> Network:
    """Import and simplify a model for these inputs; the result's `again` builds it for other dims."""
    network = import_network(model, inputs)
    if weights:
        network = replace_weights(network, weights)
    return replace(simplify_network(network), again=ModelReloader(model, weights=dict(weights)))


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


def open_inputs(graph: Proto) -> list[OpenTensor]:
    """Return the inputs of a graph, with a number or a name for each of their dims.

    Raises:
        Unimplemented: an input is no tensor of numbers, or its rank is unknown.
    """
    return [_open_input(value) for value in graph.input]


def bind_inputs(inputs: Sequence[OpenTensor], dims: Mapping[str, int] | None, batch: int | None) -> list[Tensor]:
    """Return inputs with every dim a number.

    Raises:
        InvalidArguments: dims are left open; or as `bind_some`.
    """
    bound = bind_some(inputs, dims, batch)
    if any(tensor.is_open for tensor in bound):
        raise InvalidArguments(describe_open(bound))
    return [Tensor(tensor.name, tensor.fixed_dims, tensor.dtype) for tensor in bound]


def bind_some(
    inputs: Sequence[OpenTensor], dims: Mapping[str, int] | None, batch: int | None
) -> tuple[OpenTensor, ...]:
    """Return inputs with these numbers in place of the open dims that are named; `batch` is that of axis 0.

    Raises:
        InvalidArguments: a name is of no open dim, a number is below 0, or an input has another batch.
    """
    if dims is not None and not isinstance(dims, Mapping):
        raise InvalidArguments(f"dims are a {type(dims).__name__}: give a mapping of names to numbers")
    bindings = {name: _extent(f"dims[{name!r}]", value) for name, value in (dims or {}).items()}
    first = None if batch is None else _extent("batch", batch)
    used: set[str] = set()
    bound = tuple(_bind_input(tensor, bindings, first, used) for tensor in inputs)
    unused = [name for name in bindings if name not in used]
    if unused:
        raise InvalidArguments(
            f"dims names {unused[0]!r}, and the model leaves open {_list_open(inputs)}: name one of them"
        )
    return bound


def rebind_inputs(inputs: Sequence[OpenTensor], dims: Mapping[str, Dims], batch: int | None = None) -> list[Tensor]:
    """Return inputs with these dims, by name; axis 0 must be `batch`, if that is given.

    Raises:
        InvalidArguments: an input is missing or unknown, or its dims contradict the model or `batch`.
    """
    first = None if batch is None else _extent("batch", batch)
    bind_some(inputs, None, first)
    names = [tensor.name for tensor in inputs]
    if set(names) != set(dims):
        passed = ", ".join(sorted(dims)) or "no input"
        raise InvalidArguments(
            f"dims are given for {passed}, and the inputs are {', '.join(map(printable, names))}: give each its dims"
        )
    found = [Tensor(tensor.name, _require_fit(tensor, tuple(dims[tensor.name])), tensor.dtype) for tensor in inputs]
    for tensor in found:
        if first is not None and tensor.dims and tensor.dims[0] != first:
            raise InvalidArguments(
                f"batch={batch}: input {tensor.name!r} is given dims {tensor.dims}; give arrays with {batch} on "
                "axis 0, or leave the batch out"
            )
    return found


def _require_fit(tensor: OpenTensor, dims: Dims) -> Dims:
    """Return the dims of an input if its open dims can be these numbers; raise InvalidArguments otherwise."""
    pairs = zip(tensor.dims, dims, strict=False)
    if len(tensor.dims) != len(dims) or any(n != m for n, m in pairs if isinstance(n, int)):
        shown = ", ".join(str(n) if isinstance(n, int) else "open" for n in tensor.dims)
        raise InvalidArguments(
            f"input {tensor.name!r} cannot have dims {dims}, in the model they are ({shown}): "
            "export the model with the axes left open that vary"
        )
    return tuple(_extent(f"dims[{f'{tensor.name}[{axis}]'!r}]", n) for axis, n in enumerate(dims))


def _extent(what: str, value: int) -> int:
    """Return an extent as an int; raise InvalidArguments unless it is a whole number from 0 on."""
    number = integer_or_none(value)
    if number is None or number < 0:
        raise InvalidArguments(f"{what} is {value!r}: the extent of a dim is a whole number from 0 on")
    return number


def _open_input(value: Proto) -> OpenTensor:
    """Return an input with a number, or a name, for each of its dims.

    Raises:
        Unimplemented: it is no tensor of numbers, or its rank is unknown.
    """
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
    extents = (_fixed_extent(dim) for dim in kind.shape.dim)
    names = (str(dim.dim_param) or f"{value.name}[{axis}]" for axis, dim in enumerate(kind.shape.dim))
    return OpenTensor(
        value.name, tuple(name if n is None else n for name, n in zip(names, extents, strict=True)), dtype
    )


def _bind_input(tensor: OpenTensor, bindings: Mapping[str, int], batch: int | None, used: set[str]) -> OpenTensor:
    """Return an input with numbers in place of open dims, and add the names that were used to `used`."""
    extents = tuple(_bind_axis(tensor, axis, bindings, batch, used) for axis in range(len(tensor.dims)))
    return OpenTensor(tensor.name, extents, tensor.dtype)


def _bind_axis(
    tensor: OpenTensor, axis: int, bindings: Mapping[str, int], batch: int | None, used: set[str]
) -> int | str:
    """Return the extent of one axis of an input, or its name if it is still open."""
    extent = tensor.dims[axis]
    if isinstance(extent, int):
        if axis == 0 and batch not in (None, extent):
            raise InvalidArguments(
                f"batch={batch}: input {tensor.name!r} has the fixed extent {extent} on axis 0; export the model with "
                "that axis left open"
            )
        return extent
    for key in (f"{tensor.name}[{axis}]", extent):
        if key in bindings:
            used.add(key)
            return bindings[key]
    return batch if axis == 0 and batch is not None else extent


def _fixed_extent(dim: Proto) -> int | None:
    """Return the extent that the model fixes, or None for an open dim, which some exporters write as 0 or -1."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else None


def _list_open(inputs: Iterable[OpenTensor]) -> str:
    """Return the names of the open dims as a list in text."""
    names = dict.fromkeys(repr(n) for tensor in inputs for n in tensor.dims if isinstance(n, str))
    return ", ".join(names) or "no dim"
