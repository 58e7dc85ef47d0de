"""Axis orders: NHWC, HWIO, TNC and their like, related to oneDNN's logical order, and which framework uses which.

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

The shape of a tensor does not say what its axes are. TensorFlow's (2, 3, 4, 5) is a batch of 2 images of 5 channels if
it is an activation, and the weights from 4 to 5 channels if it is a filter. The role decides:

    >>> framework_desc("tensorflow", "activations", (2, 3, 4, 5), "f32")
    MemoryDesc((2, 5, 3, 4), 'f32', 'acdb')
    >>> framework_desc("tensorflow", "weights", (2, 3, 4, 5), "f32")
    MemoryDesc((5, 4, 2, 3), 'f32', 'cdba')

Both describe the framework's own buffer, so nothing is copied. The table `CONVENTIONS` writes the axes with oneDNN's
letters, `*` for up to three spatial axes, `(GO)` for one axis of the framework that is two of oneDNN's, groups outside,
and a small letter for an axis of 1 that the framework leaves out. So TensorFlow's filters are `*I(GO)`: for 2 groups,
the array of shape (H, W, I, 2 * O) has the logical dims (2, O, I, H, W) and the format hwigo.

In weights of a deconvolution, O and I are oneDNN's: output and input channels of the deconvolution itself. Frameworks
that name them after the convolution whose gradient it is have them the other way round.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, overload

from inlay.arguments import as_flag, as_integer
from inlay.data_type import DataTypeLike
from inlay.descriptor import MemoryDesc
from inlay.descriptor.validation import as_integers
from inlay.errors import InvalidArguments, NotationError, shown
from inlay.layout import Dims
from inlay.layout.permutation import inverse, permute
from inlay.notation.format_tag import FormatTag

SPATIAL = "DHW"
"""Depth, height and width; two dimensions have the last two, one has the last."""

_IMAGES = tuple("NC" + SPATIAL[3 - n :] for n in range(4))

_WEIGHTS = tuple(groups + "OI" + SPATIAL[3 - n :] for groups in ("", "G") for n in range(4))

LOGICAL_ORDERS = (*_IMAGES, *_WEIGHTS, "TN", "TNC", "LDNC", "LDIGO", "LDIO", "LDGO", "X")
"""oneDNN's logical orders: activations, weights, and tensors of RNNs. No two have the same letters."""

_BY_LETTERS = {frozenset(order): order for order in LOGICAL_ORDERS}


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
        return cls("".join(permute(logical, places)), logical)

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


A = TypeVar("A")


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
        raise InvalidArguments(f"value is a {type(value).__name__}: give a shape such as (2, 3, 4, 5), or an array")
    _require_axes("array", len(value.shape), order)
    return move(axes)


def _require_axes(what: str, count: int, order: AxisOrder) -> None:
    if count != order.ndims:
        raise InvalidArguments(f"the order {order} has {order.ndims} axes, the {what} has {count}")


# Conventions of frameworks


Role: TypeAlias = Literal[
    "activations",
    "weights",
    "depthwise_weights",
    "deconvolution_weights",
    "linear_weights",
    "rnn_activations",
    "rnn_weights",
]
"""What a tensor is used for. `weights` are those of a convolution, grouped or not; where a framework gives depthwise
weights axes of their own, that is another role."""

_CHANNELS_LAST = {
    "activations": "N*C",
    "weights": "*I(GO)",
    "depthwise_weights": "*iGO",
    "deconvolution_weights": "*OI",
    "linear_weights": "IO",
    "rnn_activations": "NTC",
    "rnn_weights": "ldI(GO)",
}

_CHANNELS_FIRST = {
    "activations": "NC*",
    "weights": "(GO)I*",
    "deconvolution_weights": "(GI)O*",
    "linear_weights": "OI",
    "rnn_activations": "TNC",
    "rnn_weights": "ld(GO)I",
}

CONVENTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "tensorflow": MappingProxyType(_CHANNELS_LAST),
        "keras": MappingProxyType(_CHANNELS_LAST),
        "pytorch": MappingProxyType(_CHANNELS_FIRST),
        "caffe2": MappingProxyType(_CHANNELS_FIRST),
        # Gemm's B with transB=1, which PyTorch exports, is "OI".
        "onnx": MappingProxyType({**_CHANNELS_FIRST, "linear_weights": "IO", "rnn_weights": "lD(GO)I"}),
        # lax.conv, and lax.conv_transpose with transpose_kernel=True: without it the kernel is flipped in space, too.
        "jax": MappingProxyType(
            {
                "activations": "NC*",
                "weights": "(GO)I*",
                "deconvolution_weights": "*OI",
                "linear_weights": "IO",
            }
        ),
    }
)
"""Per framework and role, the axes of its tensors where the user chose no other order."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of a convention."""

    letters: str
    """Of oneDNN; two for a fused axis, none for the spatial axes."""
    unit: bool
    """Whether the framework leaves it out."""


def framework_desc(
    framework: str,
    role: Role,
    shape: Iterable[int],
    data_type: DataTypeLike,
    *,
    groups: int | None = None,
    order: AxisOrder | str | None = None,
) -> MemoryDesc:
    """The descriptor, in oneDNN's logical order, of a framework's own row-major buffer.

    `shape` is the framework's. `groups` says how many a convolution has, or how many gates an RNN; without it weights
    have no axis G. `order` takes the place of the table's, in its notation: "NCHW" for TensorFlow on GPUs, or one of
    `conv_orders`.

    Post-conditions:
        result.dims are those of `framework_dims`.
        The elements lie row by row: result.layout.is_dense, and Memory(result, array) sees those of a contiguous array.

    Raises:
        InvalidArguments: the table has no such framework or role, `shape` has the wrong number of axes, `groups` does
            not divide its axis, or is given or missing where it must not be.
        NotationError: `order` cannot be read.

    >>> framework_desc("pytorch", "weights", (64, 16, 3, 3), "f32", groups=4)
    MemoryDesc((4, 16, 16, 3, 3), 'f32', 'abcde')
    >>> framework_desc("keras", "rnn_weights", (32, 256), "f32", groups=4).tag
    'abcde'
    """
    sizes = as_integers("shape", shape)
    axes = _axes_of(framework, role, order, groups)
    letters, array = _expanded(axes, sizes, groups)
    logical = AxisOrder.parse(letters)
    return MemoryDesc(tuple(array[axis] for axis in logical.axes), data_type, logical.tag)


def framework_dims(
    framework: str,
    role: Role,
    shape: Iterable[int],
    *,
    groups: int | None = None,
    order: AxisOrder | str | None = None,
) -> Dims:
    """oneDNN's logical dims of a framework's tensor of this shape, whatever its type.

    Raises:
        InvalidArguments, NotationError: as `framework_desc`.

    >>> framework_dims("pytorch", "deconvolution_weights", (16, 64, 3, 3))
    (64, 16, 3, 3)
    """
    return framework_desc(framework, role, shape, "u8", groups=groups, order=order).dims


def framework_shape(
    framework: str, role: Role, dims: Iterable[int], *, grouped: bool = False, order: AxisOrder | str | None = None
) -> Dims:
    """The framework's shape of a tensor of these logical dims; `grouped` says that G is among them.

    Post-condition: framework_dims(framework, role, result, groups=...) == dims, where groups is the dim of G.

    Raises:
        InvalidArguments, NotationError: as `framework_desc`; or an axis that the framework leaves out is not 1.

    >>> framework_shape("tensorflow", "weights", (2, 8, 4, 3, 3), grouped=True)
    (3, 3, 4, 16)
    """
    sizes = as_integers("dims", dims)
    grouped = as_flag("grouped", grouped) or role == "rnn_weights"
    groups = 1 if grouped else None
    axes = _axes_of(framework, role, order, groups)
    # Axes left out, and two letters in one axis, make the array shorter than the dims.
    ndims = len(sizes) - sum(axis.unit for axis in axes) - grouped
    letters, _ = _expanded(axes, (1,) * ndims, groups)
    logical = AxisOrder.parse(letters)
    if len(logical.logical) != len(sizes):
        raise InvalidArguments(
            f"dims {sizes} are {len(sizes)}, and {role} of {framework} have {len(logical.logical)}: {logical.logical}"
        )
    named = dict(zip(logical.logical, sizes, strict=True))
    for axis in axes:
        if axis.unit and named[axis.letters] != 1:
            raise InvalidArguments(
                f"axis {axis.letters} of {logical.logical} {sizes} is {named[axis.letters]}: "
                f"{framework} leaves it out of {role}, so it must be 1"
            )
    return tuple(prod(named[letter] for letter in group) for group in _groups(axes, ndims, grouped))


def conv_orders(dimension_numbers: Any, ndims: int = 4) -> tuple[AxisOrder, AxisOrder, AxisOrder]:
    """The orders of activations, weights and output that JAX's `dimension_numbers` give a convolution.

    They are three texts such as ("NHWC", "HWIO", "NHWC"), where letters other than N, C, O and I are spatial and are
    paired by name; a `ConvDimensionNumbers`; or None, which is JAX's default, NCHW and OIHW.

    Raises:
        InvalidArguments: `dimension_numbers` are none of these, or of another number of axes than `ndims` where None.

    >>> [str(order) for order in conv_orders(("N01C", "01IO", "N01C"))]
    ['NHWC', 'HWIO', 'NHWC']
    """
    specs: Sequence[Sequence[int]]
    if dimension_numbers is None:
        spatial = SPATIAL[5 - ndims :] if 2 <= ndims <= 5 else _refuse_numbers(dimension_numbers)
        return AxisOrder.parse(f"NC{spatial}"), AxisOrder.parse(f"OI{spatial}"), AxisOrder.parse(f"NC{spatial}")
    if hasattr(dimension_numbers, "lhs_spec"):
        specs = (dimension_numbers.lhs_spec, dimension_numbers.rhs_spec, dimension_numbers.out_spec)
        if not all(isinstance(spec, (tuple, list)) for spec in specs):
            _refuse_numbers(dimension_numbers)
    elif isinstance(dimension_numbers, (tuple, list)) and [type(text) for text in dimension_numbers] == [str] * 3:
        specs = _specs(dimension_numbers)
    else:
        _refuse_numbers(dimension_numbers)
    spatial = SPATIAL[5 - len(specs[0]) :]
    lhs, rhs, out = (AxisOrder.from_axes(s, c + spatial) for s, c in zip(specs, ("NC", "OI", "NC"), strict=True))
    return lhs, rhs, out


def _specs(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Per text, the axes of its two channel letters, then of the spatial ones in the order that the weights have."""
    spatial = [letter for letter in texts[1] if letter not in "OI"]
    specs = []
    for text, channels in zip(texts, ("NC", "OI", "NC"), strict=True):
        letters = [*channels, *spatial]
        if sorted(text) != sorted(letters) or not 2 <= len(text) <= 5:
            _refuse_numbers(tuple(texts))
        specs.append(tuple(text.index(letter) for letter in letters))
    return tuple(specs)


def _refuse_numbers(value: object) -> NoReturn:
    raise InvalidArguments(
        f"dimension_numbers are {shown(value)}: give three texts such as ('NHWC', 'HWIO', 'NHWC') that name the same 0 "
        "to 3 spatial axes, a ConvDimensionNumbers, or None for two to five axes"
    )


def _axes_of(framework: Any, role: Any, order: Any, groups: Any) -> tuple[_Axis, ...]:
    """The axes that the table, or `order` in its place, gives the role."""
    table = CONVENTIONS.get(framework) if isinstance(framework, str) else None
    if table is None:
        raise InvalidArguments(f"no framework {shown(framework)} in the table: it has {', '.join(CONVENTIONS)}")
    if not isinstance(role, str) or role not in table:
        raise InvalidArguments(f"{framework} has no {shown(role)} in the table: it has {', '.join(table)}")
    if order is not None and not isinstance(order, (AxisOrder, str)):
        raise InvalidArguments(f"order is {shown(order)}: give an AxisOrder, or text such as 'NCHW'")
    if groups is not None:
        groups = as_integer("groups", groups)
    axes = _read(table[role] if order is None else str(order))
    fused = any(len(axis.letters) > 1 for axis in axes)
    if groups is not None and not fused:
        raise InvalidArguments(f"groups is {groups}, but {role} of {framework} are not split into groups: leave it out")
    if groups is None and role == "rnn_weights" and fused:
        raise InvalidArguments(
            "rnn_weights have all gates in one axis: say how many, groups=4 for an LSTM, 3 for a GRU, 1 for a plain RNN"
        )
    return axes


def _read(text: str) -> tuple[_Axis, ...]:
    """The axes of a convention: convention = { letter | "(" letter letter ")" | "*" }."""
    axes: list[_Axis] = []
    i = 0
    while i < len(text):
        if text[i] == "(" and text[i + 1 : i + 3].isalpha() and text[i + 3 : i + 4] == ")":
            axes.append(_Axis(text[i + 1 : i + 3], unit=False))
            i += 4
        elif text[i].isalpha() or text[i] == "*":
            axes.append(_Axis(text[i].upper().strip("*"), unit=text[i].islower()))
            i += 1
        else:
            problem = "an order is letters, two in parentheses for one axis that holds both, and * for spatial axes"
            raise NotationError(problem, text, i, i + 1)
    return tuple(axes)


def _groups(axes: tuple[_Axis, ...], ndims: int, grouped: bool) -> tuple[str, ...]:
    """Per axis of an array of `ndims` axes, its letters, groups outside."""
    fixed = sum(bool(axis.letters) and not axis.unit for axis in axes)
    star = any(not axis.letters for axis in axes)
    spatial = ndims - fixed
    if not 0 <= spatial <= 3 * star:
        wanted = f"{fixed} to {fixed + 3}" if star else str(fixed)
        written = "".join(_written(axis) for axis in axes)
        raise InvalidArguments(f"axes {written} are those of an array of {wanted} axes: this one has {ndims}")
    found: list[str] = []
    for axis in axes:
        if not axis.letters:
            found += SPATIAL[3 - spatial :]
        elif not axis.unit:
            found.append(axis.letters if grouped or len(axis.letters) == 1 else axis.letters.replace("G", ""))
    return tuple(found)


def _written(axis: _Axis) -> str:
    if axis.unit:
        return axis.letters.lower()
    return f"({axis.letters})" if len(axis.letters) > 1 else axis.letters or "*"


def _expanded(axes: tuple[_Axis, ...], shape: Dims, groups: int | None) -> tuple[str, Dims]:
    """The letters of the array with every axis split and every unit axis added, and their sizes."""
    letters = "".join(axis.letters for axis in axes if axis.unit)
    sizes = [1] * len(letters)
    for size, group in zip(shape, _groups(axes, len(shape), groups is not None), strict=True):
        letters += group
        if len(group) == 1:
            sizes.append(size)
            continue
        count = 0 if groups is None else groups
        if count < 1 or size % count:
            raise InvalidArguments(f"groups is {groups}, which does not divide the axis of {size} that holds {group}")
        sizes += [count, size // count]
    return letters, tuple(sizes)
