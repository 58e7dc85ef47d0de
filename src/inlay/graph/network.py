"""`Network`: nodes of ONNX in an order that can be run, every dim a number.

>>> relu = Node("relu", "Relu", inputs=("x",), outputs=("y",))
>>> x, y = (Tensor(name, (1, 3), np.dtype(np.float32)) for name in "xy")
>>> network = Network("tiny", 13, ("x",), ("y",), (relu,), {"x": x, "y": y})
>>> network.tensors["y"].dims
(1, 3)

Networks hold arrays, which compare element by element and so have no truth value; `Compared` gives such dataclasses an
equality of their own.

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification".
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

import numpy as np

from inlay.layout import Dims


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """A dataclass whose values are equal if their fields are; arrays, if type, dims and bytes are.

    So elements that are no number equal themselves, and 0 is not -0. Such values have no hash: most hold a dict.

    >>> @dataclass(frozen=True, slots=True, eq=False)
    ... class Weights(Compared):
    ...     arrays: Mapping[str, Any]
    >>> Weights({"w": np.zeros(2)}) == Weights({"w": np.zeros(2)})
    True
    >>> Weights({"w": np.zeros(2)}) == Weights({"w": np.zeros(2, np.float32)})
    False
    """

    def __eq__(self, other: object) -> bool:
        """Whether `other` is of the same class and equal in each field that is compared."""
        if type(self) is not type(other):
            return NotImplemented
        names = (field.name for field in fields(self) if field.compare)
        return self is other or all(_same(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        is_alike = type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
        return is_alike and has_equal_bits(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def has_equal_bits(one: Any, other: Any) -> bool:
    """Whether arrays of one type and shape are equal bit by bit: a NaN is equal to itself, and 0.0 is not -0.0."""
    bits = f"u{one.itemsize}" if one.itemsize in (1, 2, 4, 8) else np.uint8
    first, second = (np.ascontiguousarray(array).reshape(-1).view(bits) for array in (one, other))
    return np.array_equal(first, second)


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a name of the network stands for."""

    name: str
    """Its name, unique in the network."""
    dims: Dims
    """Extents, all known."""
    dtype: np.dtype[np.generic]
    """Type of the elements, as NumPy's or ml_dtypes' name for it."""

    @property
    def nbytes(self) -> int:
        """Bytes of an array of it."""
        return prod(self.dims) * self.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Node(Compared):
    """One operator of ONNX, with what it reads and writes."""

    name: str
    """Its name, unique in the network."""
    operator: str
    """ONNX's operator, such as `Conv`."""
    inputs: tuple[str, ...]
    """Names of tensors that are read, in ONNX's order; empty where an optional one is left out."""
    outputs: tuple[str, ...]
    """Names of tensors that are written; empty where an optional one is left out."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """By name: numbers, texts, arrays, tuples of them."""
    domain: str = ""
    """The operator set it belongs to; empty for ONNX's own."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Network(Compared):
    """Nodes, each after those whose results it reads.

    Networks are equal if they compute the same by the same nodes with the same names and constants.
    """

    name: str
    """As the file calls it."""
    opset: int
    """Version of ONNX's operators."""
    inputs: tuple[str, ...]
    """Tensors that a run is given."""
    outputs: tuple[str, ...]
    """Tensors that a run answers."""
    nodes: tuple[Node, ...]
    """What is computed."""
    tensors: Mapping[str, Tensor]
    """Every name that is read or written."""
    constants: Mapping[str, np.ndarray[Any, np.dtype[Any]]] = field(default_factory=dict)
    """Tensors whose elements are known, read-only; no node writes them."""
    again: Callable[[Mapping[str, Dims]], "Network"] | None = field(default=None, compare=False, repr=False)
    """The same model with inputs of other dims, by name; None for a network that was read from no model."""

    def __repr__(self) -> str:
        """Its name, its inputs and outputs, and how many nodes."""
        sides = (
            ", ".join(f"{name} {self.tensors[name].dims}" for name in names) for names in (self.inputs, self.outputs)
        )
        return f"<Network {self.name}: {' -> '.join(sides)}; {len(self.nodes)} nodes, opset {self.opset}>"


def read_only(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """The same array, no longer writeable, as the constants of a network are."""
    array.flags.writeable = False
    return array


def unused_name(name: str, *taken: Container[str]) -> str:
    """The name, with as many primes as it needs to be none of those taken."""
    while any(name in names for names in taken):
        name += "'"
    return name
