"""`OpenNetwork`: an ONNX model some of whose inputs have dims that are open, each with a name.

    network = inlay.load("model.onnx")            an OpenNetwork if the model leaves a dim open
    network.open_dims                             ("batch", "seq")
    network.bind({"batch": 8, "seq": 128})        the Network with these dims
    inlay.compile(network)                        a session that plans each shape at its first call

The same name stands for the same number wherever it occurs.

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification", static tensor shapes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from inlay.errors import printable
from inlay.graph.network import Network
from inlay.layout import Dims

OpenDims: TypeAlias = tuple[int | str, ...]
"""Extents of axes: a number, or the name of an open dim."""


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
    def extents(self) -> str:
        """The dims as text, as in `(batch, 3)`."""
        return f"({', '.join(map(str, self.dims))}{',' * (len(self.dims) == 1)})"


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
    again: Callable[[Mapping[str, Dims]], Network]
    """Function from dims of all inputs, by name, to the network with these dims."""
    binder: Callable[[Mapping[str, int] | None, int | None], Network]
    """Function from numbers of open dims, by name, and a batch to the network; see `bind`."""

    @property
    def open_dims(self) -> tuple[str, ...]:
        """Names of the open dims, each once, in the order of the inputs and their axes."""
        return tuple(dict.fromkeys(n for tensor in self.inputs for n in tensor.dims if isinstance(n, str)))

    def bind(self, dims: Mapping[str, int] | None = None, *, batch: int | None = None) -> Network:
        """Return the network with these numbers in place of all open dims.

        `dims` binds them by name, or by input and axis, as in `"x[2]"`; `batch` binds axis 0 of every input that leaves
        it open.

        Raises:
            InvalidArguments, Unimplemented: as `load`; a dim is still open.
        """
        return self.binder(dims, batch)

    def __repr__(self) -> str:
        """Return the name, the inputs, the outputs, and the open dims."""
        inputs = ", ".join(f"{tensor.name} {tensor.extents}" for tensor in self.inputs)
        return f"<OpenNetwork {self.name}: {inputs} -> {', '.join(self.outputs)}; opset {self.opset}>"


def describe_open(inputs: tuple[OpenTensor, ...]) -> str:
    """Return the text of an error that names all open dims of these inputs, and says where each occurs."""
    places: dict[str, list[str]] = {}
    for tensor in inputs:
        for axis, n in enumerate(tensor.dims):
            if isinstance(n, str):
                places.setdefault(n, []).append(f"axis {axis} of {printable(tensor.name)}")
    named = "; ".join(f"{name!r}, {' and '.join(where)}" for name, where in places.items())
    example = ", ".join(f"{name!r}: 1" for name in places)
    batch = all(any(place.startswith("axis 0 ") for place in where) for where in places.values())
    return (
        f"the model leaves dims open: {named}: say how large they are, as dims={{{example}}}"
        f"{' or batch=1' if batch else ''}"
    )
