"""`Network`: the nodes of an ONNX model in an order in which they can run, with static dims.

>>> relu = Node("relu", "Relu", inputs=("x",), outputs=("y",))
>>> x, y = (Tensor(name, (1, 3), np.dtype(np.float32)) for name in "xy")
>>> network = Network("tiny", 13, ("x",), ("y",), (relu,), {"x": x, "y": y})
>>> network.tensors["y"].dims
(1, 3)

Networks hold arrays, whose `==` compares element by element and has no truth value, and whose `repr` prints elements.
`StructuralEquality` gives such dataclasses an equality and a representation of their own.

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification".
"""

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

import numpy as np

from inlay.graph.states import TensorState
from inlay.layout import Dims


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StructuralEquality:
    """A base of dataclasses whose values are equal if their fields are; arrays are if type, dims and bytes are.

    So a NaN equals itself, and 0 does not equal -0. Such values have no hash: most hold a dict. Their `repr` has the
    type and dims of an array in place of its elements, and the number of bytes in place of bytes.

    >>> @dataclass(frozen=True, slots=True, eq=False, repr=False)
    ... class Weights(StructuralEquality):
    ...     arrays: Mapping[str, Any]
    >>> Weights({"w": np.zeros((64, 3))})
    Weights(arrays={'w': <float64 (64, 3)>})
    >>> Weights({"w": np.zeros(2)}) == Weights({"w": np.zeros(2)})
    True
    >>> Weights({"w": np.zeros(2)}) == Weights({"w": np.zeros(2, np.float32)})
    False
    """

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is of the same class and equal in each field that is compared."""
        if type(self) is not type(other):
            return NotImplemented
        names = (field.name for field in fields(self) if field.compare)
        return self is other or all(_is_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the class and its fields, without the elements of arrays."""
        shown = (f"{field.name}={_short_repr(getattr(self, field.name))}" for field in fields(self) if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        is_alike = type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
        return is_alike and has_equal_bits(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other)


def _short_repr(value: Any) -> str:
    """Return the representation of a value, with the type and dims of arrays in place of their elements."""
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {value.shape}>"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_short_repr(item)}' for key, item in value.items())}}}"
    if type(value) is tuple:
        return f"({', '.join(map(_short_repr, value))}{',' * (len(value) == 1)})"
    return repr(value)


def has_equal_bits(one: Any, other: Any) -> bool:
    """Return whether arrays of one type and shape are equal bit by bit: NaN equals NaN, and 0.0 is not -0.0."""
    bits = f"u{one.itemsize}" if one.itemsize in (1, 2, 4, 8) else np.uint8
    first, second = (np.ascontiguousarray(array).reshape(-1).view(bits) for array in (one, other))
    return np.array_equal(first, second)


@dataclass(frozen=True, slots=True)
class Tensor:
    """The dims and type of a tensor of the network."""

    name: str
    """Name, unique in the network."""
    dims: Dims
    """Extents of the axes, all known."""
    dtype: np.dtype[np.generic]
    """Type of the elements, one of NumPy's or ml_dtypes'."""
    is_dynamic: bool = False
    """True if the dims depend on the data of a run, as those of an output of a network may.

    `dims` then has 0 for each axis of unknown extent, and is (0,) if the number of axes is unknown.
    """

    @property
    def extents(self) -> str:
        """The dims as text, as in `(2, 3)`, with `?` for each that depends on the data of a run."""
        return re.sub(r"\b0\b", "?", str(self.dims)) if self.is_dynamic else str(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes of an array of these dims and this type."""
        return prod(self.dims) * self.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TensorQuantization(StructuralEquality):
    """The numbers that the integers of a tensor represent: `(integer - zero_point) * scale`.

    >>> TensorQuantization("s8", np.ones(64, np.float32), axis=0)
    TensorQuantization(data_type='s8', scales=<float32 (64,)>, zero_points=None, axis=0, group=0)
    """

    data_type: str
    """Data type of the integers: s8, u8, s32, s4 or u4."""
    scales: np.ndarray[Any, np.dtype[Any]]
    """Scales as f32: without axes, or one for each coordinate of `axis`.

    With groups they have all axes of the tensor, with one coordinate for each group along `axis`.
    """
    zero_points: np.ndarray[Any, np.dtype[Any]] | None = None
    """Zero points, of the type of the integers and the dims of `scales`; None if all are 0."""
    axis: int | None = None
    """Axis along which scales differ, from 0 on; None if there is one scale."""
    group: int = 0
    """Number of elements along `axis` that share a scale; 0 without groups."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node(StructuralEquality):
    """One operator of ONNX with its inputs and outputs."""

    name: str
    """Name, unique in the network."""
    operator: str
    """Name of the ONNX operator, such as `Conv`."""
    inputs: tuple[str, ...]
    """Names of the tensors that are read, in ONNX's order; empty for an optional input that is left out."""
    outputs: tuple[str, ...]
    """Names of the tensors that are written; empty for an optional output that is left out."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes by name: numbers, texts, arrays, and tuples of them; bytes for a graph or a type, which are those of
    ONNX's AttributeProto."""
    domain: str = ""
    """Operator set of the operator; empty for ONNX's own."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Subgraph(Node):
    """Nodes that the fallback engine computes in one call: to the planner one node, with their inputs and outputs.

    `operator` is `Subgraph`, and there are no attributes. An output is a tensor that something outside reads.
    """

    nodes: tuple[Node, ...] = ()
    """The nodes in the order in which they run; results that nothing reads are left out."""
    parameters: tuple[str, ...] = ()
    """Name in `nodes` of each tensor of `inputs`, for a subgraph of the model; empty if the names are the same."""
    why: str = ""
    """For a subgraph of the model: the reasons why only the fallback engine computes it."""
    model: bytes = b""
    """The nodes and their constants as a serialized model of ONNX; empty if it is to be built from `nodes`."""

    @property
    def inner_names(self) -> tuple[str, ...]:
        """Names of the inputs in `nodes`, in order; a pass may have renamed the inputs themselves."""
        return self.parameters or self.inputs


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Network(StructuralEquality):
    """A list of nodes in which each node follows those whose results it reads.

    Networks are equal if they have the same nodes, names and constants.
    """

    name: str
    """Name of the graph in the model."""
    opset: int
    """Version of ONNX's operator set."""
    inputs: tuple[str, ...]
    """Names of the tensors that the caller passes to a run."""
    outputs: tuple[str, ...]
    """Names of the tensors that a run returns."""
    nodes: tuple[Node, ...]
    """The nodes in the order in which they run."""
    tensors: Mapping[str, Tensor]
    """Dims and types of all tensors that are read or written."""
    constants: Mapping[str, np.ndarray[Any, np.dtype[Any]]] = field(default_factory=dict)
    """Read-only arrays of tensors with known elements; no node writes them."""
    declared_types: Mapping[str, str] = field(default_factory=dict)
    """Data type of the model, `bf16` or `f16`, for each tensor that has become f32, and `f32` for each that was f32;
    constants too. Empty for a model without bf16 and f16."""
    quantized: Mapping[str, TensorQuantization] = field(default_factory=dict)
    """Scales and zero points of constants whose arrays are integers of the model, by name of the constant."""
    states: tuple[TensorState, ...] = ()
    """Inputs that sessions keep between the steps of decoding, with the outputs that replace them."""
    again: Callable[[Mapping[str, Dims]], "Network"] | None = field(default=None, compare=False, repr=False)
    """Function from dims of inputs, by name, to the network of the same model with these dims; None without a model."""

    def __repr__(self) -> str:
        """Return the name, the inputs and outputs, and the number of nodes."""
        sides = (
            ", ".join(f"{name} {self.tensors[name].extents}" for name in names) for names in (self.inputs, self.outputs)
        )
        return f"<Network {self.name}: {' -> '.join(sides)}; {len(self.nodes)} nodes, opset {self.opset}>"


def read_only(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Make an array read-only, as the constants of a network are, and return it."""
    array.flags.writeable = False
    return array


def unused_name(name: str, *taken: Container[str]) -> str:
    """Return the name with as many primes appended as make it different from all names in `taken`."""
    while any(name in names for names in taken):
        name += "'"
    return name
