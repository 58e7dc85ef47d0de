"""Axis orders: NHWC, HWIO, TNC and their like, read, and related to oneDNN's logical order.

A framework names the axes of an array in the order of its shape; oneDNN gives the same axes a logical order of its own,
NCHW for images and OIHW for the weights of a convolution, and says with a format tag how they lie in memory. So an
order is no format: it is a permutation of the letters of a logical order, and its letters tell of which.

    letters    logical order                     array of shape (2, 3, 4, 5)    logical dims    format tag
    NHWC       NCHW                              N=2 H=3 W=4 C=5                (2, 5, 3, 4)    acdb (nhwc)
    HWIO       OIHW                              H=2 W=3 I=4 O=5                (5, 4, 2, 3)    cdba (hwio)

    >>> hwio = AxisOrder.parse("HWIO")
    >>> hwio.logical, str(hwio.tag), to_logical((2, 3, 4, 5), hwio)
    ('OIHW', 'cdba', (5, 4, 2, 3))

The letters are oneDNN's: N batch, C channels, D H W depth, height and width; O and I output and input channels, G
groups of weights, or gates of an RNN; T time, L layers, D directions of an RNN. Letters of your own need their logical
order beside them: `AxisOrder.parse("BSHD", logical="BHSD")`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, overload

from inlay.descriptor.validation import as_integers
from inlay.errors import InvalidArguments, NotationError, shown
from inlay.format_tag import FormatTag
from inlay.layout import Dims
from inlay.views import inverse, permuted

SPATIAL = "DHW"
"""Depth, height and width; two dimensions have the last two, one has the last."""

_IMAGES = tuple("NC" + SPATIAL[3 - n :] for n in range(4))
_WEIGHTS = tuple(groups + "OI" + SPATIAL[3 - n :] for groups in ("", "G") for n in range(4))

LOGICAL_ORDERS = (*_IMAGES, *_WEIGHTS, "TN", "TNC", "LDNC", "LDIGO", "LDIO", "LDGO", "X")
"""oneDNN's logical orders: activations, weights, and tensors of RNNs. No two have the same letters."""

_BY_LETTERS = {frozenset(order): order for order in LOGICAL_ORDERS}

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class AxisOrder:
    """The axes of an array, in the order of its shape.

    Post-condition: AxisOrder.parse(str(order), order.logical) == order.
    """

    letters: str
    """One upper-case letter per axis of the array, first axis first."""
    logical: str
    """The same letters in logical order."""

    def __post_init__(self) -> None:
        """Refuse what is no permutation.

        Raises:
            InvalidArguments: one is no text, a letter appears twice, or the two have different letters.
        """
        values: tuple[Any, ...] = (self.letters, self.logical)
        if not all(isinstance(text, str) for text in values):
            raise InvalidArguments(
                f"axis order {shown(values[0])} of {shown(values[1])} is no text: write both as 'NHWC'"
            )
        if sorted(self.letters) != sorted(self.logical) or len(set(self.letters)) != len(self.letters):
            raise InvalidArguments(f"axis order {shown(self.letters)} is no permutation of {shown(self.logical)}")

    @classmethod
    def parse(cls, text: str, logical: str | None = None) -> "AxisOrder":
        """The order that `text` spells, in upper or lower case; `logical` is found by its letters if not given.

        Raises:
            NotationError: a character is no letter, a letter appears twice, or the letters are those of no logical
                order, or not those of `logical`.

        >>> AxisOrder.parse("nhwc").permutation
        (0, 2, 3, 1)
        >>> AxisOrder.parse("NHWK")
        Traceback (most recent call last):
            ...
        inlay.errors.NotationError: oneDNN has no axis K: give the logical order beside your own letters, as logical=...
            NHWK
            ~~~^
        """
        if not isinstance(text, str):
            raise InvalidArguments(f"axis order {shown(text)} is no text: write one such as 'NHWC'")
        if logical is not None and not isinstance(logical, str):
            raise InvalidArguments(f"logical is {shown(logical)}: write the logical order, such as 'NCHW'")
        letters = text.upper()
        for i, letter in enumerate(letters):
            if not letter.isalpha() or not letter.isascii():
                problem = f"an axis order is letters only, one per axis, and {text[i]!r} is none"
                raise NotationError(f"{problem}; blocks are part of a format tag", text, i, i + 1)
            if letter in letters[:i]:
                raise NotationError(f"axis {letter} appears twice", text, i, i + 1)
        return cls(letters, _logical_order(text) if logical is None else _given_order(text, logical.upper()))

    @classmethod
    def from_axes(cls, axes: Sequence[int], logical: str) -> "AxisOrder":
        """The order in which logical axis j is axis `axes[j]` of the array, as JAX's `ConvDimensionNumbers` say it.

        Raises:
            InvalidArguments: `axes` is not each axis of `logical` once.

        >>> str(AxisOrder.from_axes((0, 3, 1, 2), "NCHW"))
        'NHWC'
        """
        places = as_integers("axes", axes)
        if sorted(places) != list(range(len(logical))):
            raise InvalidArguments(f"axes {places} must say for each of {logical} which axis of the array it is")
        return cls("".join(permuted(logical, places)), logical)

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self.letters)

    @property
    def permutation(self) -> tuple[int, ...]:
        """The logical axis that each axis of the array is: what `MemoryDesc.permute_axes` takes."""
        return tuple(self.logical.index(letter) for letter in self.letters)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axis of the array that each logical axis is: what NumPy's `transpose` takes."""
        return inverse(self.permutation)

    @property
    def tag(self) -> FormatTag:
        """The format of a row-major array in this order, over its logical dims.

        >>> AxisOrder.parse("HWIO").tag == FormatTag.parse("hwio")
        True
        """
        return FormatTag(self.permutation)

    def permutation_to(self, other: "AxisOrder") -> tuple[int, ...]:
        """The permutation that relabels a descriptor in this logical order, of an array read in the order `other`.

        Post-condition: MemoryDesc(to_logical(shape, self), t, self.tag).permute_axes(self.permutation_to(other)) equals
        MemoryDesc(to_logical(shape, other), t, other.tag).

        Raises:
            InvalidArguments: the numbers of axes differ.

        TensorFlow's activations taken for weights, the table of the RFC (a -> c, b -> a, c -> d, d -> b):

        >>> AxisOrder.parse("NHWC").permutation_to(AxisOrder.parse("HWIO"))
        (2, 0, 3, 1)
        """
        if self.ndims != other.ndims:
            raise InvalidArguments(f"{self} has {self.ndims} axes and {other} has {other.ndims}: one array has both")
        return tuple(other.permutation[axis] for axis in self.axes)

    def __str__(self) -> str:
        """The letters."""
        return self.letters


def _logical_order(text: str) -> str:
    """The logical order that has the letters of `text`."""
    letters = text.upper()
    if frozenset(letters) in _BY_LETTERS:
        return _BY_LETTERS[frozenset(letters)]
    known = set("".join(LOGICAL_ORDERS))
    for i, letter in enumerate(letters):
        if letter not in known:
            problem = f"oneDNN has no axis {letter}: give the logical order beside your own letters, as logical=..."
            raise NotationError(problem, text, i, i + 1)
    rule = f"no tensor of oneDNN has just the axes {', '.join(letters)}" if letters else "an axis order has axes"
    close = [order for order in LOGICAL_ORDERS if len(order) == len(letters)] or list(LOGICAL_ORDERS[:4])
    raise NotationError(f"{rule}: logical orders are {', '.join(close)}, or say logical=...", text, 0, len(text))


def _given_order(text: str, logical: str) -> str:
    """`logical`, if its letters are those of `text`."""
    for i, letter in enumerate(text.upper()):
        if letter not in logical:
            raise NotationError(f"axis {letter} is not in the logical order {logical}", text, i, i + 1)
    missing = [letter for letter in logical if letter not in text.upper()]
    if missing:
        problem = f"axis {missing[0]} of the logical order {logical} is missing"
        raise NotationError(problem, text, len(text), len(text) + 1)
    if len(logical) != len(text):
        raise InvalidArguments(f"the logical order {logical!r} names an axis twice")
    return logical


@overload
def to_logical(value: tuple[int, ...] | list[int], order: AxisOrder | str) -> Dims: ...
@overload
def to_logical(value: A, order: AxisOrder | str) -> A: ...
def to_logical(value: Any, order: AxisOrder | str) -> Any:
    """A shape in logical order, or an array with its axes in logical order: a view, without a copy.

    Arrays are those of NumPy, JAX, PyTorch, or any with `transpose` of all axes.

    Post-condition: from_logical(to_logical(value, order), order) has the shape and elements of `value`.

    Raises:
        InvalidArguments: `value` has another number of axes than `order`, or is neither shape nor array.
        NotationError: `order` cannot be read.

    >>> import numpy as np
    >>> to_logical(np.zeros((2, 3, 4, 5)), "NHWC").shape
    (2, 5, 3, 4)
    """
    read = order if isinstance(order, AxisOrder) else AxisOrder.parse(order)
    return _rearranged(value, read, read.axes)


@overload
def from_logical(value: tuple[int, ...] | list[int], order: AxisOrder | str) -> Dims: ...
@overload
def from_logical(value: A, order: AxisOrder | str) -> A: ...
def from_logical(value: Any, order: AxisOrder | str) -> Any:
    """Logical dims as a shape in this order, or a logical array with its axes in this order: a view, without a copy.

    Raises:
        InvalidArguments, NotationError: as `to_logical`.

    >>> from_logical((2, 5, 3, 4), "NHWC")
    (2, 3, 4, 5)
    """
    read = order if isinstance(order, AxisOrder) else AxisOrder.parse(order)
    return _rearranged(value, read, read.permutation)


def _rearranged(value: Any, order: AxisOrder, axes: tuple[int, ...]) -> Any:
    """`value` with axis `axes[i]` at place i."""
    if isinstance(value, (tuple, list)):
        entries = as_integers("shape", value)
        _require_axes("shape", len(entries), order)
        return tuple(entries[axis] for axis in axes)
    # A torch.Tensor's `transpose` takes two axes, its `permute` all of them.
    move = getattr(value, "permute", None) or getattr(value, "transpose", None)
    if move is None or not isinstance(getattr(value, "shape", None), tuple):
        _refuse(value)
    _require_axes("array", len(value.shape), order)
    return move(axes)


def _require_axes(what: str, count: int, order: AxisOrder) -> None:
    if count != order.ndims:
        raise InvalidArguments(f"the order {order} has {order.ndims} axes, the {what} has {count}")


def _refuse(value: object) -> NoReturn:
    raise InvalidArguments(f"value is a {type(value).__name__}: give a shape such as (2, 3, 4, 5), or an array")
