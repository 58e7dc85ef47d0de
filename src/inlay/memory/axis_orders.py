"""Axis orders such as NHWC, HWIO and TNC: their relation to oneDNN's logical order, and the orders of each framework.

A framework names the axes of an array in the order of its shape. oneDNN gives the same axes a fixed logical order, NCHW
for images and OIHW for the weights of a convolution, and a format tag for their order in memory. So an axis order is
not a memory format: it is a permutation of the letters of a logical order. The set of its letters identifies the
logical order:

    letters    logical order                     array of shape (2, 3, 4, 5)    logical dims    format tag
    NHWC       NCHW                              N=2 H=3 W=4 C=5                (2, 5, 3, 4)    acdb (nhwc)
    HWIO       OIHW                              H=2 W=3 I=4 O=5                (5, 4, 2, 3)    cdba (hwio)

    >>> hwio = AxisOrder.parse("HWIO")
    >>> hwio.logical, str(hwio.tag), to_logical((2, 3, 4, 5), hwio)
    ('OIHW', 'cdba', (5, 4, 2, 3))

The letters are oneDNN's: N batch, C channels, D H W depth, height and width; O and I output and input channels, G
groups of weights, or gates of an RNN; T time, L layers, D directions of an RNN. An order with other letters needs its
logical order as an argument: `AxisOrder.parse("BSHD", logical="BHSD")`.

The meaning of the axes does not follow from the shape of a tensor. TensorFlow's (2, 3, 4, 5) is a batch of 2 images
with 5 channels if it is an activation, and weights from 4 to 5 channels if it is a filter. So the role is an argument:

    >>> framework_desc("tensorflow", "activations", (2, 3, 4, 5), "f32")
    MemoryDesc((2, 5, 3, 4), 'f32', 'acdb')
    >>> framework_desc("tensorflow", "weights", (2, 3, 4, 5), "f32")
    MemoryDesc((5, 4, 2, 3), 'f32', 'cdba')

Both descriptors describe the framework's buffer, so nothing is copied. The table `CONVENTIONS` has the axes in oneDNN's
letters, with three more symbols: `*` stands for up to three spatial axes; `(GO)` for one axis of the framework that is
two axes of oneDNN, the groups outermost; a lower-case letter for an axis of oneDNN with dim 1 that the framework leaves
out. For example, TensorFlow's filters are `*I(GO)`: with 2 groups, an array of shape (H, W, I, 2 * O) has the logical
dims (2, O, I, H, W) and the format hwigo.

In weights of a deconvolution, O and I have oneDNN's meaning: output and input channels of the deconvolution itself.
Frameworks that define a deconvolution as the gradient of a convolution swap them.
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
"""Spatial axes: depth, height and width. 2-D tensors have the last two of them, 1-D tensors the last."""

_IMAGES = tuple("NC" + SPATIAL[3 - n :] for n in range(4))

_WEIGHTS = tuple(groups + "OI" + SPATIAL[3 - n :] for groups in ("", "G") for n in range(4))

LOGICAL_ORDERS = (*_IMAGES, *_WEIGHTS, "TN", "TNC", "LDNC", "LDIGO", "LDIO", "LDGO", "X")
"""oneDNN's logical orders of activations, weights and tensors of RNNs; their letter sets are distinct."""

_BY_LETTERS = {frozenset(order): order for order in LOGICAL_ORDERS}


@dataclass(frozen=True, slots=True)
class AxisOrder:
    """The order of the axes of an array, relative to a logical order.

    Post-condition: AxisOrder.parse(str(order), order.logical) == order.
    """

    letters: str
    """One upper-case letter per axis of the array, first axis first."""
    logical: str
    """The same letters in logical order."""

    def __post_init__(self) -> None:
        """Check that `letters` is a permutation of `logical`.

        Raises:
            InvalidArguments: one of them is no text, a letter appears twice, or they have different letters.
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
        """Parse letters in upper or lower case; if `logical` is None, use the logical order with these letters.

        Raises:
            NotationError: a character is no letter, a letter appears twice, no logical order has these letters, or
                `logical` has others.

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
        return cls(letters, _logical_order(text) if logical is None else _require_same_letters(text, logical.upper()))

    @classmethod
    def from_axes(cls, axes: Sequence[int], logical: str) -> "AxisOrder":
        """Return the order in which logical axis j is axis `axes[j]` of the array, as in JAX's `ConvDimensionNumbers`.

        Raises:
            InvalidArguments: `axes` does not contain each axis of `logical` once.

        >>> str(AxisOrder.from_axes((0, 3, 1, 2), "NCHW"))
        'NHWC'
        """
        numbers = as_integers("axes", axes)
        if sorted(numbers) != list(range(len(logical))):
            raise InvalidArguments(f"axes {numbers} must say for each of {logical} which axis of the array it is")
        return cls("".join(permute(logical, numbers)), logical)

    @property
    def ndims(self) -> int:
        """Number of axes."""
        return len(self.letters)

    @property
    def permutation(self) -> tuple[int, ...]:
        """Logical axis of each axis of the array: the argument of `MemoryDesc.permute_axes`."""
        return tuple(self.logical.index(letter) for letter in self.letters)

    @property
    def axes(self) -> tuple[int, ...]:
        """Axis of the array for each logical axis: the argument of NumPy's `transpose`."""
        return inverse(self.permutation)

    @property
    def tag(self) -> FormatTag:
        """Format tag, over the logical dims, of a row-major array in this order.

        >>> AxisOrder.parse("HWIO").tag == FormatTag.parse("hwio")
        True
        """
        return FormatTag(self.permutation)

    def permutation_to(self, other: "AxisOrder") -> tuple[int, ...]:
        """Return the permutation of axes that turns a descriptor of an array in this order into one in order `other`.

        Post-condition: MemoryDesc(to_logical(shape, self), t, self.tag).permute_axes(self.permutation_to(other)) equals
        MemoryDesc(to_logical(shape, other), t, other.tag).

        Raises:
            InvalidArguments: the numbers of axes differ.

        For example, an array described as TensorFlow's activations, described as weights instead. This is the table of
        the oneDNN RFC on memory descriptor operations (a -> c, b -> a, c -> d, d -> b):

        >>> AxisOrder.parse("NHWC").permutation_to(AxisOrder.parse("HWIO"))
        (2, 0, 3, 1)
        """
        if self.ndims != other.ndims:
            raise InvalidArguments(f"{self} has {self.ndims} axes and {other} has {other.ndims}: one array has both")
        return tuple(other.permutation[axis] for axis in self.axes)

    def __str__(self) -> str:
        """Return the letters."""
        return self.letters


def _logical_order(text: str) -> str:
    """Return the logical order with the letters of `text`.

    Raises:
        NotationError: there is none.
    """
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


def _require_same_letters(text: str, logical: str) -> str:
    """Return `logical` after checking that it has the letters of `text`.

    Raises:
        NotationError: a letter of one is missing in the other.
        InvalidArguments: `logical` has a letter twice.
    """
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
    """Permute a shape, or the axes of an array, from this order to the logical order; an array is not copied.

    `value` is a shape, an array of NumPy, JAX or PyTorch, or any object with a `transpose` of all axes.

    Post-condition: from_logical(to_logical(value, order), order) has the shape and elements of `value`.

    Raises:
        InvalidArguments: `value` has another number of axes than `order`, or is neither shape nor array.
        NotationError: `order` is text that is no axis order.

    >>> import numpy as np
    >>> to_logical(np.zeros((2, 3, 4, 5)), "NHWC").shape
    (2, 5, 3, 4)
    """
    parsed = order if isinstance(order, AxisOrder) else AxisOrder.parse(order)
    return _permute(value, parsed, parsed.axes)


@overload
def from_logical(value: tuple[int, ...] | list[int], order: AxisOrder | str) -> Dims: ...
@overload
def from_logical(value: A, order: AxisOrder | str) -> A: ...
def from_logical(value: Any, order: AxisOrder | str) -> Any:
    """Permute logical dims, or the axes of a logical array, to this order; an array is not copied.

    Raises:
        InvalidArguments, NotationError: as `to_logical`.

    >>> from_logical((2, 5, 3, 4), "NHWC")
    (2, 3, 4, 5)
    """
    parsed = order if isinstance(order, AxisOrder) else AxisOrder.parse(order)
    return _permute(value, parsed, parsed.permutation)


def _permute(value: Any, order: AxisOrder, axes: tuple[int, ...]) -> Any:
    """Return a shape or array whose axis i is axis `axes[i]` of `value`."""
    if isinstance(value, (tuple, list)):
        entries = as_integers("shape", value)
        _require_axes("shape", len(entries), order)
        return tuple(entries[axis] for axis in axes)
    # torch.Tensor.transpose exchanges two axes; torch.Tensor.permute permutes all.
    transpose = getattr(value, "permute", None) or getattr(value, "transpose", None)
    if transpose is None or not isinstance(getattr(value, "shape", None), tuple):
        raise InvalidArguments(f"value is a {type(value).__name__}: give a shape such as (2, 3, 4, 5), or an array")
    _require_axes("array", len(value.shape), order)
    return transpose(axes)


def _require_axes(what: str, count: int, order: AxisOrder) -> None:
    """Check that a shape or array has as many axes as the order."""
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
"""Use of a tensor. `weights` are weights of a convolution, grouped or not. `depthwise_weights` is a role of its own,
because some frameworks give these weights other axes."""

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
"""Default axes of tensors, by framework and role."""


@dataclass(frozen=True, slots=True)
class _ConventionAxis:
    """One symbol of an entry of `CONVENTIONS`."""

    letters: str
    """oneDNN's letters: one, two for a fused axis such as `(GO)`, none for the spatial axes `*`."""
    unit: bool
    """True if the axis has dim 1 and the framework leaves it out."""


def framework_desc(
    framework: str,
    role: Role,
    shape: Iterable[int],
    data_type: DataTypeLike,
    *,
    groups: int | None = None,
    order: AxisOrder | str | None = None,
) -> MemoryDesc:
    """Return the descriptor, in oneDNN's logical order, of a framework's row-major buffer.

    `shape` is the framework's shape. `groups` is the number of groups of a convolution, or of gates of an RNN; if it is
    None, weights have no axis G. `order` replaces the entry of `CONVENTIONS`, in the same notation: "NCHW" for
    TensorFlow on GPUs, or a result of `conv_orders`.

    Post-conditions:
        result.dims == framework_dims(...) with the same arguments.
        result.layout.is_dense, and Memory(result, array) has the elements of a contiguous `array` of this shape.

    Raises:
        InvalidArguments: `CONVENTIONS` has no such framework or role; `shape` has the wrong number of axes; `groups`
            does not divide its axis; or `groups` is missing for weights of an RNN, or passed for tensors without G.
        NotationError: `order` is text that is no axis order.

    >>> framework_desc("pytorch", "weights", (64, 16, 3, 3), "f32", groups=4)
    MemoryDesc((4, 16, 16, 3, 3), 'f32', 'abcde')
    >>> framework_desc("keras", "rnn_weights", (32, 256), "f32", groups=4).tag
    'abcde'
    """
    sizes = as_integers("shape", shape)
    axes = _find_convention(framework, role, order, groups)
    letters, array = _expand_axes(axes, sizes, groups)
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
    """Return oneDNN's logical dims of a framework's tensor of this shape.

    Raises:
        InvalidArguments, NotationError: as `framework_desc`.

    >>> framework_dims("pytorch", "deconvolution_weights", (16, 64, 3, 3))
    (64, 16, 3, 3)
    """
    return framework_desc(framework, role, shape, "u8", groups=groups, order=order).dims


def framework_shape(
    framework: str, role: Role, dims: Iterable[int], *, grouped: bool = False, order: AxisOrder | str | None = None
) -> Dims:
    """Return the framework's shape of a tensor of these logical dims; `grouped` states that axis G is among them.

    Post-condition: framework_dims(framework, role, result, groups=...) == dims, where groups is the dim of G.

    Raises:
        InvalidArguments, NotationError: as `framework_desc`; or an axis that the framework leaves out has a dim other
            than 1.

    >>> framework_shape("tensorflow", "weights", (2, 8, 4, 3, 3), grouped=True)
    (3, 3, 4, 16)
    """
    sizes = as_integers("dims", dims)
    grouped = as_flag("grouped", grouped) or role == "rnn_weights"
    groups = 1 if grouped else None
    axes = _find_convention(framework, role, order, groups)
    # The array has fewer axes than the tensor has dims: unit axes are left out, and G is fused with another axis.
    ndims = len(sizes) - sum(axis.unit for axis in axes) - grouped
    letters, _ = _expand_axes(axes, (1,) * ndims, groups)
    logical = AxisOrder.parse(letters)
    if len(logical.logical) != len(sizes):
        raise InvalidArguments(
            f"dims {sizes} are {len(sizes)}, and {role} of {framework} have {len(logical.logical)}: {logical.logical}"
        )
    dim_of = dict(zip(logical.logical, sizes, strict=True))
    for axis in axes:
        if axis.unit and dim_of[axis.letters] != 1:
            raise InvalidArguments(
                f"axis {axis.letters} of {logical.logical} {sizes} is {dim_of[axis.letters]}: "
                f"{framework} leaves it out of {role}, so it must be 1"
            )
    return tuple(prod(dim_of[letter] for letter in fused) for fused in _letters_of_axes(axes, ndims, grouped))


def conv_orders(dimension_numbers: Any, ndims: int = 4) -> tuple[AxisOrder, AxisOrder, AxisOrder]:
    """Return the axis orders of activations, weights and output for JAX's `dimension_numbers` of a convolution.

    These are three texts such as ("NHWC", "HWIO", "NHWC"), in which all letters except N, C, O and I are spatial axes
    and equal letters are the same axis; or a `ConvDimensionNumbers`; or None for JAX's default, NCHW and OIHW with
    `ndims` axes.

    Raises:
        InvalidArguments: `dimension_numbers` are none of these, or are None and `ndims` is not 2 to 5.

    >>> [str(order) for order in conv_orders(("N01C", "01IO", "N01C"))]
    ['NHWC', 'HWIO', 'NHWC']
    """
    specs: Sequence[Sequence[int]]
    if dimension_numbers is None:
        spatial = SPATIAL[5 - ndims :] if 2 <= ndims <= 5 else _refuse_dimension_numbers(dimension_numbers)
        return AxisOrder.parse(f"NC{spatial}"), AxisOrder.parse(f"OI{spatial}"), AxisOrder.parse(f"NC{spatial}")
    if hasattr(dimension_numbers, "lhs_spec"):
        specs = (dimension_numbers.lhs_spec, dimension_numbers.rhs_spec, dimension_numbers.out_spec)
        if not all(isinstance(spec, (tuple, list)) for spec in specs):
            _refuse_dimension_numbers(dimension_numbers)
    elif isinstance(dimension_numbers, (tuple, list)) and [type(text) for text in dimension_numbers] == [str] * 3:
        specs = _parse_dimension_numbers(dimension_numbers)
    else:
        _refuse_dimension_numbers(dimension_numbers)
    spatial = SPATIAL[5 - len(specs[0]) :]
    lhs, rhs, out = (AxisOrder.from_axes(s, c + spatial) for s, c in zip(specs, ("NC", "OI", "NC"), strict=True))
    return lhs, rhs, out


def _parse_dimension_numbers(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return, for each text, the axes of its two channel letters, then of the spatial letters in the weights' order."""
    spatial = [letter for letter in texts[1] if letter not in "OI"]
    specs = []
    for text, channels in zip(texts, ("NC", "OI", "NC"), strict=True):
        letters = [*channels, *spatial]
        if sorted(text) != sorted(letters) or not 2 <= len(text) <= 5:
            _refuse_dimension_numbers(tuple(texts))
        specs.append(tuple(text.index(letter) for letter in letters))
    return tuple(specs)


def _refuse_dimension_numbers(value: object) -> NoReturn:
    raise InvalidArguments(
        f"dimension_numbers are {shown(value)}: give three texts such as ('NHWC', 'HWIO', 'NHWC') that name the same 0 "
        "to 3 spatial axes, a ConvDimensionNumbers, or None for two to five axes"
    )


def _find_convention(framework: Any, role: Any, order: Any, groups: Any) -> tuple[_ConventionAxis, ...]:
    """Return the axes of `order`, or of the entry of `CONVENTIONS` if it is None, after checking the arguments."""
    table = CONVENTIONS.get(framework) if isinstance(framework, str) else None
    if table is None:
        raise InvalidArguments(f"no framework {shown(framework)} in the table: it has {', '.join(CONVENTIONS)}")
    if not isinstance(role, str) or role not in table:
        raise InvalidArguments(f"{framework} has no {shown(role)} in the table: it has {', '.join(table)}")
    if order is not None and not isinstance(order, (AxisOrder, str)):
        raise InvalidArguments(f"order is {shown(order)}: give an AxisOrder, or text such as 'NCHW'")
    if groups is not None:
        groups = as_integer("groups", groups)
    axes = _parse_convention(table[role] if order is None else str(order))
    fused = any(len(axis.letters) > 1 for axis in axes)
    if groups is not None and not fused:
        raise InvalidArguments(f"groups is {groups}, but {role} of {framework} are not split into groups: leave it out")
    if groups is None and role == "rnn_weights" and fused:
        raise InvalidArguments(
            "rnn_weights have all gates in one axis: say how many, groups=4 for an LSTM, 3 for a GRU, 1 for a plain RNN"
        )
    return axes


def _parse_convention(text: str) -> tuple[_ConventionAxis, ...]:
    """Parse an axis order such as NCHW. Grammar: order = { letter | "(" letter letter ")" | "*" }.

    A lower-case letter is an axis of extent 1.
    """
    axes: list[_ConventionAxis] = []
    i = 0
    while i < len(text):
        if text[i] == "(" and text[i + 1 : i + 3].isalpha() and text[i + 3 : i + 4] == ")":
            axes.append(_ConventionAxis(text[i + 1 : i + 3], unit=False))
            i += 4
        elif text[i].isalpha() or text[i] == "*":
            axes.append(_ConventionAxis(text[i].upper().strip("*"), unit=text[i].islower()))
            i += 1
        else:
            problem = "an order is letters, two in parentheses for one axis that holds both, and * for spatial axes"
            raise NotationError(problem, text, i, i + 1)
    return tuple(axes)


def _letters_of_axes(axes: tuple[_ConventionAxis, ...], ndims: int, grouped: bool) -> tuple[str, ...]:
    """Return the letters of each axis of an array of `ndims` axes; a fused axis has G first, if `grouped`."""
    fixed = sum(bool(axis.letters) and not axis.unit for axis in axes)
    has_spatial = any(not axis.letters for axis in axes)
    spatial = ndims - fixed
    if not 0 <= spatial <= 3 * has_spatial:
        required = f"{fixed} to {fixed + 3}" if has_spatial else str(fixed)
        convention = "".join(_format_axis(axis) for axis in axes)
        raise InvalidArguments(f"axes {convention} are those of an array of {required} axes: this one has {ndims}")
    letters: list[str] = []
    for axis in axes:
        if not axis.letters:
            letters += SPATIAL[3 - spatial :]
        elif not axis.unit:
            letters.append(axis.letters if grouped or len(axis.letters) == 1 else axis.letters.replace("G", ""))
    return tuple(letters)


def _format_axis(axis: _ConventionAxis) -> str:
    """Return the axis in the notation of `CONVENTIONS`."""
    if axis.unit:
        return axis.letters.lower()
    return f"({axis.letters})" if len(axis.letters) > 1 else axis.letters or "*"


def _expand_axes(axes: tuple[_ConventionAxis, ...], shape: Dims, groups: int | None) -> tuple[str, Dims]:
    """Return the letters and sizes of the array after fused axes are split and unit axes are added."""
    letters = "".join(axis.letters for axis in axes if axis.unit)
    sizes = [1] * len(letters)
    for size, fused in zip(shape, _letters_of_axes(axes, len(shape), groups is not None), strict=True):
        letters += fused
        if len(fused) == 1:
            sizes.append(size)
            continue
        count = 0 if groups is None else groups
        if count < 1 or size % count:
            raise InvalidArguments(f"groups is {groups}, which does not divide the axis of {size} that holds {fused}")
        sizes += [count, size // count]
    return letters, tuple(sizes)
