"""`OpenNetwork`: an ONNX model some of whose inputs have dims that are open, each with a name.

    network = inlay.load("model.onnx")            an OpenNetwork if the model leaves a dim open
    network.open_dims                             ("batch", "seq")
    network.tensors["y"].dims                     ("batch", 1000), by ONNX's shape inference
    network.bind({"batch": 8, "seq": 128})        the Network with these dims
    network.bind_some({"seq": 128})               an OpenNetwork whose batch is still open
    inlay.compile(network)                        a session that plans each shape at its first call

The same name stands for the same number wherever it occurs.

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification", static tensor shapes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from inlay.errors import InvalidArguments, printable
from inlay.graph.network import Network
from inlay.graph.states import CacheUpdates
from inlay.layout import Dims

OpenDims: TypeAlias = tuple[int | str, ...]
"""Extents of axes: a number, or the name of an open dim."""
UNKNOWN = "?"
"""Extent of an axis that depends on open dims, but is none of them."""


@dataclass(frozen=True, slots=True)
class OpenTensor:
    """The dims and type of a tensor of which some dims may be open."""

    name: str
    """Name, unique in the network."""
    dims: OpenDims
    """Extents of the axes; an open dim is its name, or input and axis, as in `x[2]`, if it has none."""
    dtype: np.dtype[np.generic]
    """Type of the elements."""

    @property
    def is_open(self) -> bool:
        """Return whether a dim is open."""
        return not all(isinstance(n, int) for n in self.dims)

    @property
    def fixed_dims(self) -> Dims:
        """The dims that are numbers: all dims if none is open."""
        return tuple(n for n in self.dims if isinstance(n, int))

    @property
    def extents(self) -> str:
        """The dims as text, as in `(batch, 3)`."""
        return f"({', '.join(map(str, self.dims))}{',' * (len(self.dims) == 1)})"


@runtime_checkable
class OpenModel(Protocol):
    """A parsed model whose inputs have open dims: the origin of an `OpenNetwork`."""

    def build(self, inputs: Sequence[OpenTensor], dims: Mapping[str, Dims]) -> Network:
        """Return the network for these dims of all inputs, by name; see `OpenNetwork.again`."""

    def bind(
        self, inputs: Sequence[OpenTensor], dims: Mapping[str, int] | None, batch: int | None
    ) -> tuple[OpenTensor, ...]:
        """Return the inputs with these numbers in place of open dims; see `OpenNetwork.bind_some`."""

    def infer(self, inputs: Sequence[OpenTensor]) -> Mapping[str, OpenTensor]:
        """Return the tensors whose number of axes is known, by name; see `OpenNetwork.tensors`."""

    def find_updates(self) -> CacheUpdates:
        """Return the nodes that update a cache, an input whose updated form is an output."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OpenNetwork:
    """A parsed model with open dims; `bind` makes a network of it."""

    name: str
    """Name of the graph in the model."""
    opset: int
    """Version of ONNX's operator set."""
    inputs: tuple[OpenTensor, ...]
    """The tensors that the caller passes to a run."""
    outputs: tuple[str, ...]
    """Names of the tensors that a run returns."""
    model: OpenModel
    """The parsed model."""

    @property
    def open_dims(self) -> tuple[str, ...]:
        """Names of the open dims, each once, in the order of the inputs and their axes."""
        return tuple(dict.fromkeys(n for tensor in self.inputs for n in tensor.dims if isinstance(n, str)))

    @property
    def tensors(self) -> Mapping[str, OpenTensor]:
        """Dims and types of the tensors of the model, by name, as far as ONNX infers them with these open dims.

        An extent is a number, the name of an open dim, or `?` where it is another function of open dims. A tensor whose
        number of axes is unknown is left out.
        """
        return self.model.infer(self.inputs)

    def again(self, dims: Mapping[str, Dims]) -> Network:
        """Return the network for inputs of these dims, by name.

        Raises:
            InvalidArguments: an input is missing, unknown, or cannot have these dims; or as `load`.
            Unimplemented: as `load`.
        """
        return self.model.build(self.inputs, dims)

    def bind(self, dims: Mapping[str, int] | None = None, *, batch: int | None = None) -> Network:
        """Return the network with these numbers in place of all open dims.

        `dims` binds them by name, or by input and axis, as in `"x[2]"`; `batch` binds axis 0 of every input that leaves
        it open.

        Raises:
            InvalidArguments, Unimplemented: as `load`; a dim is still open.
        """
        bound = self.bind_some(dims, batch=batch)
        if bound.open_dims:
            raise InvalidArguments(describe_open(bound.inputs))
        return bound.again({tensor.name: tensor.fixed_dims for tensor in bound.inputs})

    def bind_some(self, dims: Mapping[str, int] | None = None, *, batch: int | None = None) -> "OpenNetwork":
        """Return the model with these numbers in place of some open dims; the others stay open.

        A session of the result accepts only inputs with these numbers.

        Raises:
            InvalidArguments: a name is of no open dim, or a number is below 0.
        """
        return replace(self, inputs=self.model.bind(self.inputs, dims, batch))

    def __repr__(self) -> str:
        """Return the name, the inputs and the outputs with their dims, and the opset."""
        tensors = self.tensors
        inputs = ", ".join(f"{tensor.name} {tensor.extents}" for tensor in self.inputs)
        outputs = ", ".join(f"{name} {tensors[name].extents}" if name in tensors else name for name in self.outputs)
        return f"<OpenNetwork {self.name}: {inputs} -> {outputs}; opset {self.opset}>"


def describe_open(inputs: tuple[OpenTensor, ...], remedy: str = "") -> str:
    """Return the text of an error that names all open dims of these inputs, and says where each occurs.

    `remedy` says what to do; if it is empty, to bind the dims by name.
    """
    places: dict[str, list[str]] = {}
    for tensor in inputs:
        for axis, n in enumerate(tensor.dims):
            if isinstance(n, str):
                places.setdefault(n, []).append(f"axis {axis} of {printable(tensor.name)}")
    named = "; ".join(f"{name!r}, {' and '.join(where)}" for name, where in places.items())
    if remedy:
        return f"the model leaves dims open: {named}: {remedy}"
    example = ", ".join(f"{name!r}: 1" for name in places)
    batch = all(any(place.startswith("axis 0 ") for place in where) for where in places.values())
    return (
        f"the model leaves dims open: {named}: say how large they are, as dims={{{example}}}"
        f"{' or batch=1' if batch else ''}"
    )
