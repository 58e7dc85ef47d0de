"""Attributes of a reorder: scales, zero points, sum and rounding mode, as in oneDNN, and the values of each call.

A reorder with attributes computes, for every element,

    y   = (x - src_zero_point) * src_scale
    y   = y + sum * old                         old: the destination's element, before its scale and zero point
    y   = y / dst_scale + dst_zero_point
    dst = convert(y)                            clamped and rounded once

in f32, or in f64 if a side is f64 or s64; integers with zero points alone are exact. A step without an attribute is
omitted, not executed with a neutral value, so -0.0 stays -0.0. `Attributes` holds what is fixed when a reorder is
created: the axes along which values differ, their types, and their groups.

Bit i of a mask is set if each coordinate of axis i has its own value. Groups reduce the number of values: groups of
(32, 1) mean that 32 coordinates of the last axis but one share a value, as in 4-bit weights:

>>> per_channel = Attributes(src_scales=Scales(mask=0b10))
>>> per_channel.src_scales.shape((8, 64, 28, 28))
(1, 64, 1, 1)
>>> Scales(mask=0b11, groups=(32, 1), data_type="f16").shape((4096, 512))
(128, 512)

The values are passed with each call: a number, a list, or an array of any compatible shape. They are converted to an
operand: an array of the attribute's type and shape, which has one entry along each axis without a mask bit:

>>> attributes, given = infer_attributes((8, 3, 4, 4), {"src_scales": [[[0.5]], [[0.25]], [[2.0]]]})
>>> attributes.src_scales
Scales(mask=2)
>>> operands(attributes, (8, 3, 4, 4), given)["src_scales"].shape
(1, 3, 1, 1)

Source: oneDNN, `dnnl_primitive_attr_set_scales`, `..._set_zero_points`, `dnnl_post_ops_append_sum` and the reorder
primitive. Arguments that oneDNN refuses are refused here with `InvalidArguments`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from math import inf, isfinite, prod
from operator import index
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DATA_TYPES, DataType, as_data_type, number_kind
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.layout.address import as_numbers

RoundingMode: TypeAlias = Literal["nearest", "stochastic"]
"""The rounding of results: to nearest, ties to even, or up or down at random, by the distance of both neighbors."""
Groups: TypeAlias = tuple[()] | tuple[int, int]
"""Extents of a group along the last axis but one and the last; empty for no groups."""


@dataclass(frozen=True, slots=True, repr=False)
class QuantizationAttribute:
    """The type and the axes of the scales or zero points of one side: the common part of `Scales` and `ZeroPoints`."""

    mask: int = 0
    """Bit i is set if each coordinate of axis i has its own value; bits beyond the last axis have no effect."""
    groups: Groups = ()
    """Number of coordinates of the last axis but one, and of the last axis, that share a value; empty for no groups."""
    data_type: str = ""
    """Name of the type of the values, one of `TYPES`."""

    WORD: ClassVar[str]
    """The name of the values in messages."""
    TYPES: ClassVar[tuple[str, ...]]
    """The allowed types of the values, the default first; the last two need a mask."""

    def __post_init__(self) -> None:
        """Check the fields as oneDNN's setters do, and convert them to Python's integers and oneDNN's type names.

        Raises:
            InvalidArguments: the mask is negative or no integer, groups are not two positive integers or have no mask,
                or the type is none of `TYPES`, or needs a mask.
        """
        object.__setattr__(self, "mask", _require_integer(f"mask of {self.WORD}", self.mask, 0))
        groups: Any = self.groups
        if not isinstance(groups, tuple) or len(groups) not in (0, 2):
            raise InvalidArguments(
                f"groups of {self.WORD} are {shown(groups)}: give two sizes, for the last axis but one and for the last"
            )
        object.__setattr__(self, "groups", tuple(_require_integer(f"group of {self.WORD}", size, 1) for size in groups))
        name = as_data_type(self.data_type).name
        object.__setattr__(self, "data_type", name)
        if name not in self.TYPES:
            raise InvalidArguments(f"{self.WORD} cannot be {name}: use one of {', '.join(self.TYPES)}")
        if not self.mask and (groups or name in self.TYPES[-2:]):
            why = "in groups" if groups else f"of type {name}"
            raise InvalidArguments(f"{self.WORD} {why} need a mask: set the bits of the axes along which they differ")

    def __repr__(self) -> str:
        """Return the constructor call, without default values."""
        return _constructor_text(self)

    @property
    def type(self) -> DataType:
        """The type of the values."""
        return DATA_TYPES[self.data_type]

    def shape(self, dims: Dims) -> Dims:
        """Return the number of values along each axis of a tensor of these dims; 1 for axes without a mask bit.

        Raises:
            InvalidArguments: `dims` are no sequence of integers, or fewer than groups need.
        """
        dims = as_numbers("dim", dims)
        if len(dims) < len(self.groups):
            raise InvalidArguments(f"groups of {self.WORD} are along the last two axes: dims {dims} have not two")
        if not self.mask:
            return (1,) * len(dims)
        sizes = [1] * (len(dims) - len(self.groups)) + list(self.groups)
        counts = [-(-n // size) for n, size in zip(dims, sizes, strict=True)]
        return tuple([count if self.mask >> i & 1 else 1 for i, count in enumerate(counts)])


@dataclass(frozen=True, slots=True, repr=False)
class Scales(QuantizationAttribute):
    """The type and the axes of the scales of one side; `Scales()` is one f32 for the whole tensor."""

    data_type: str = "f32"
    """Name of the type of the scales: f32, bf16, f16, e8m0 or f8_e4m3."""

    WORD: ClassVar[str] = "scales"
    TYPES: ClassVar[tuple[str, ...]] = ("f32", "bf16", "f16", "e8m0", "f8_e4m3")


@dataclass(frozen=True, slots=True, repr=False)
class ZeroPoints(QuantizationAttribute):
    """The type and the axes of the zero points of one side; `ZeroPoints()` is one s32 for the whole tensor."""

    data_type: str = "s32"
    """Name of the type of the zero points: s32, s8, u8, s4 or u4."""

    WORD: ClassVar[str] = "zero points"
    TYPES: ClassVar[tuple[str, ...]] = ("s32", "s8", "u8", "s4", "u4")


def _constructor_text(value: "QuantizationAttribute | Attributes") -> str:
    """Return the constructor call of a value, without default values."""
    parts = [f"{f.name}={getattr(value, f.name)!r}" for f in fields(value) if getattr(value, f.name) != f.default]
    return f"{type(value).__name__}({', '.join(parts)})"


def _require_integer(what: str, value: object, least: int) -> int:
    """Return a value as a Python integer; refuse other types, more than 64 bits, and less than `least`."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArguments(f"the {what} is {shown(value)}: give an integer") from None
    if number.bit_length() > 63:
        raise InvalidArguments(f"the {what} is {shown(number)}: it fits in 64 bits")
    if number < least:
        raise InvalidArguments(f"the {what} is {shown(number)}: it is at least {least}")
    return number


QUANTIZATION_TYPES: Mapping[str, type[QuantizationAttribute]] = MappingProxyType(
    {"src_scales": Scales, "dst_scales": Scales, "src_zero_points": ZeroPoints, "dst_zero_points": ZeroPoints}
)
"""The attributes with values, in oneDNN's order, and the class of each."""


@dataclass(frozen=True, slots=True, repr=False)
class Attributes:
    """The computation of a reorder on each element; a field that is None omits its step.

    >>> Attributes(src_scales=Scales(mask=0b10), dst_zero_points=ZeroPoints()).names
    ('src_scales', 'dst_zero_points')
    """

    src_scales: Scales | None = None
    """Factors of the source elements."""
    dst_scales: Scales | None = None
    """Divisors of the result."""
    src_zero_points: ZeroPoints | None = None
    """Numbers that are subtracted from source elements, which must be integers."""
    dst_zero_points: ZeroPoints | None = None
    """Numbers that are added to the result, which must be an integer."""
    sum: float | None = None
    """Factor (oneDNN's beta) of the old elements of the destination, which are added to the result; an f32. 0 is
    None."""
    rounding_mode: RoundingMode = "nearest"
    """`nearest`: ties to even. `stochastic`: up or down at random, so that the expected value is exact."""

    def __post_init__(self) -> None:
        """Check the fields as oneDNN's setters do.

        Raises:
            InvalidArguments: scales of the destination are in groups, its zero points are in groups or not s32, the
                factor of the sum is no finite f32, or there is no such rounding mode.
        """
        for name, kind in QUANTIZATION_TYPES.items():
            entry = getattr(self, name)
            if entry is not None and not isinstance(entry, kind):
                raise InvalidArguments(
                    f"{name} is {shown(entry)}: give a {kind.__name__}, as in {name}={kind.__name__}()"
                )
        if self.dst_scales is not None and self.dst_scales.groups:
            raise InvalidArguments(
                "scales of the destination have no groups: give their reciprocals as src_scales, which may have them"
            )
        if self.dst_zero_points not in (None, ZeroPoints(getattr(self.dst_zero_points, "mask", 0))):
            raise InvalidArguments("zero points of the destination are s32 and have no groups: convert and repeat them")
        object.__setattr__(self, "sum", _require_sum_factor(self.sum))
        mode: Any = self.rounding_mode
        if not isinstance(mode, str) or mode not in ("nearest", "stochastic"):
            raise InvalidArguments(f"rounding_mode is {shown(self.rounding_mode)}: it is 'nearest' or 'stochastic'")

    def __repr__(self) -> str:
        """Return the constructor call, without default values."""
        return _constructor_text(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes with values; each call must pass these."""
        return tuple([name for name in QUANTIZATION_TYPES if getattr(self, name) is not None])

    @property
    def computes(self) -> bool:
        """Return whether the formula has any step; if so, elements are converted even between equal types."""
        return bool(self.names) or self.sum is not None

    @property
    def scales(self) -> bool:
        """Return whether the formula multiplies; with zero points alone, integers are computed exactly."""
        return self.src_scales is not None or self.dst_scales is not None or self.sum is not None

    def entry(self, name: Any) -> QuantizationAttribute:
        """Return the scales or zero points called `name`, which must be among `names`.

        Raises:
            InvalidArguments: it is not.
        """
        if not isinstance(name, str) or name not in self.names:
            raise InvalidArguments(f"there are no {shown(name)}: {self!r} has {', '.join(self.names) or 'no values'}")
        attribute: QuantizationAttribute = getattr(self, name)
        return attribute


_GREATEST_F32 = float(np.finfo(np.float32).max)


def _require_sum_factor(beta: Any) -> float | None:
    """Return the factor of a sum rounded to f32, None for zero; refuse what is no finite number."""
    if beta is None:
        return None
    if isinstance(beta, bool) or not isinstance(beta, (int, float, np.integer, np.floating)):
        raise InvalidArguments(f"sum is {shown(beta)}: give the factor of the old elements, a number")
    # A Python integer may exceed the range of float.
    number = float(beta) if not isinstance(beta, int) or abs(beta) < 2**128 else inf
    if not isfinite(number) or abs(number) > _GREATEST_F32:
        raise InvalidArguments(f"sum is {number}: the factor of the old elements is a finite f32")
    return float(np.float32(number)) or None


PLAIN = Attributes()
"""Attributes without any step."""


def require_attributes(attributes: Attributes, src: MemoryDesc, dst: MemoryDesc) -> None:
    """Check attributes against the descriptors of a reorder.

    Raises:
        InvalidArguments: a side has a type without arithmetic, a side with zero points is no integer, a source of 4-bit
            integers has one scale for all, or groups do not fit the last two dims or their mask.
    """
    for side, desc in (("src", src), ("dst", dst)):
        if desc.data_type is not None and not desc.data_type.is_number:
            raise InvalidArguments(
                f"attributes compute with numbers: the elements of {side} are {desc.data_type}, which only move"
            )
        if getattr(attributes, f"{side}_zero_points") and desc.data_type is not None and desc.data_type.kind == "float":
            raise InvalidArguments(f"{side}_zero_points are for integers: the elements of {side} are {desc.data_type}")
    is_nibbles = src.data_type is not None and src.data_type.is_sub_byte and src.data_type.kind != "float"
    if is_nibbles and attributes.src_scales is not None and not attributes.src_scales.mask:
        raise InvalidArguments(
            f"src_scales of {src.data_type} elements need a mask: set the bit of an axis, and give each coordinate one"
        )
    for name in attributes.names:
        _require_groups(name, attributes.entry(name), src.dims)


def _require_groups(name: str, entry: QuantizationAttribute, dims: Dims) -> None:
    """Check the groups of an attribute against the dims of the tensor and its mask."""
    if not entry.groups:
        return
    if len(dims) < 2:
        raise InvalidArguments(f"groups of {name} are along the last two axes: a tensor of dims {dims} has not two")
    for i, size in zip((len(dims) - 2, len(dims) - 1), entry.groups, strict=True):
        if not entry.mask >> i & 1:
            raise InvalidArguments(
                f"mask {entry.mask:#b} of {name} lacks axis {i}: groups are along the last two axes, set both bits"
            )
        if dims[i] % size:
            raise InvalidArguments(
                f"groups of {size} of {name} do not divide axis {i}: it has {dims[i]} coordinates, give a divisor"
            )


# The values of a call


AttributeValues: TypeAlias = Mapping[str, Any]
"""The values that a caller passed, by name of the attribute: a number, a list or an array; None for no value."""
Operands: TypeAlias = dict[str, npt.NDArray[Any]]
"""The values of a call, by name of the attribute: an array of the attribute's type and shape."""
_NUMBERS = (float, int)
_NUMBER = np.dtype(float)


def infer_attributes(dims: Dims, given: AttributeValues) -> tuple[Attributes, AttributeValues]:
    """Infer the attributes for values that a caller passed for a tensor of `dims`; return both.

    A number applies to the whole tensor. An array has an axis for each axis of the tensor, or for the last axes only,
    as in NumPy's broadcasting; along each axis it has one entry or as many as the tensor. An array with all axes may
    also have a divisor of the tensor's entries along the last two axes, which makes groups. The type of the attribute
    is that of the array if scales or zero points may have it, else f32 or s32.

    Raises:
        InvalidArguments: an array does not fit the dims, or the attributes are refused.
    """
    values = {
        name: value if type(value) in _NUMBERS else as_real_array(name, value)
        for name, value in given.items()
        if value is not None
    }
    if not values:
        return PLAIN, values
    forms = [((), _NUMBER) if type(value) in _NUMBERS else (value.shape, value.dtype) for value in values.values()]
    return _infer_from_forms(dims, tuple(values), tuple(forms)), values


_Form: TypeAlias = tuple[tuple[int, ...], "np.dtype[Any]"]
"""The shape and type of an array."""


@lru_cache(maxsize=512)
def _infer_from_forms(dims: Dims, names: tuple[str, ...], forms: tuple[_Form, ...]) -> Attributes:
    """Infer the attributes for arrays of these forms."""
    entries: dict[str, Any] = {
        name: _infer_attribute(name, *form, dims) for name, form in zip(names, forms, strict=True)
    }
    return Attributes(**entries)


def _infer_attribute(name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]", dims: Dims) -> QuantizationAttribute:
    """Infer one attribute from the shape of its array, which is broadcast to `dims`.

    Only the last two axes can have groups, and only if the array has an entry for every axis.
    """
    counts = (1,) * (len(dims) - len(shape)) + shape
    if len(counts) > len(dims):
        _refuse_shape(name, shape, dims)
    can_group = len(shape) == len(dims) > 1
    grouped = range(len(dims) - 2, len(dims)) if can_group else range(0)
    mask, sizes = 0, []
    for i, (count, n) in enumerate(zip(counts, dims, strict=True)):
        if count not in (1, n) and (i not in grouped or not count or n % count):
            _refuse_shape(name, shape, dims)
        mask |= (count != 1) << i
        sizes.append(n // count if count else 1)
    groups: Groups = ()
    if any(count not in (1, n) for count, n in zip(counts, dims, strict=True)):
        # An axis with a single value forms one group of all its coordinates.
        mask |= 3 << len(dims) - 2
        groups = (sizes[-2], sizes[-1])
    kind = QUANTIZATION_TYPES[name]
    return kind(mask, groups, next((t for t in kind.TYPES if DATA_TYPES[t].dtype == dtype), kind.TYPES[0]))


def _refuse_shape(name: str, shape: tuple[int, ...], dims: Dims) -> NoReturn:
    """Raise InvalidArguments for an array that does not broadcast to the dims, with a remedy."""
    remedy = "along each axis give 1 value or one for each coordinate, or for each of equal groups along the last two"
    if len(shape) == 1 and shape[0] in dims:
        axis = dims.index(shape[0])
        fitting = (*shape, *(1,) * (len(dims) - 1 - axis))
        remedy = f"give shape {fitting}, one for each coordinate of axis {axis}"
    raise InvalidArguments(f"{name} of shape {shape} cannot be broadcast to dims {dims}: {remedy}")


def operands(attributes: Attributes, dims: Dims, given: AttributeValues) -> Operands:
    """Convert the values of a call to arrays of the attributes' types and shapes.

    Numbers are rounded to the type of scales, but never to zero, infinity or NaN, and to e8m0 not at all. An array may
    have any shape with the right number of entries in the same order: that of `Scales.shape`, the same without axes of
    one, or flat.

    Raises:
        InvalidArguments: values are missing, passed for an attribute that is None, too many or too few, of another
            kind, or outside the range of their type.
    """
    names = attributes.names
    for name, value in given.items():
        if value is not None and name not in names:
            raise InvalidArguments(
                f"{name} were passed, but the attributes have none: create them with "
                f"{name}={QUANTIZATION_TYPES[name].__name__}(), or leave them out"
            )
    return {name: operand(name, attributes.entry(name), dims, given.get(name)) for name in names}


_TINY, _HUGE = 1e-30, 1e30  # limits of the fast path for scales, well within f32
_MANY = 1 << 30  # limit of the fast path for zero points, well within s32


def operand(name: str, entry: QuantizationAttribute, dims: Dims, value: Any) -> npt.NDArray[Any]:
    """Convert the values of one attribute to an array of its type and of shape `entry.shape(dims)`.

    Raises:
        InvalidArguments: as `operands`; the text begins with `name`.
    """
    shape = entry.shape(dims)
    # Fast paths for the most frequent values, which need no checks.
    if type(value) is float and not entry.mask and entry.data_type == "f32" and _TINY < value < _HUGE:
        return np.full(shape, value, np.float32)
    if type(value) is int and not entry.mask and entry.data_type == "s32" and -_MANY < value < _MANY:
        return np.full(shape, value, np.int32)
    if type(value) is np.ndarray and value.shape == shape and value.dtype == entry.type.dtype:
        return np.ascontiguousarray(value)
    if value is None:
        raise InvalidArguments(
            f"the attributes have {name}: give their values, {_count_text(prod(shape), entry.type)} of shape {shape}"
        )
    array = as_real_array(name, value)
    long = [[n for n in lengths if n != 1] for lengths in (array.shape, shape)]
    if array.size != prod(shape) or (array.ndim > 1 and long[0] != long[1]):
        raise InvalidArguments(
            f"{name} of shape {array.shape} do not fit mask {entry.mask:#b} and dims {dims}: give "
            f"{_count_text(prod(shape), entry.type)} of shape {shape}"
        )
    convert = _convert_scales if isinstance(entry, Scales) else _convert_integers
    return np.ascontiguousarray(convert(name, array, entry.type)).reshape(shape)


def _count_text(count: int, data_type: DataType) -> str:
    """Return a number of values of a type as text."""
    return f"{count} {data_type} value{'s' if count != 1 else ''}"


def as_real_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return the numbers that a caller passed as an array.

    Raises:
        InvalidArguments: rows differ in length, an entry is no real number, or entries are masked.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidArguments(f"{name} are a masked array, whose mask would be lost: give filled() or its data")
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidArguments(f"{name} have rows of different lengths: give an array") from None
    if number_kind(array.dtype) is not None:
        return array
    raise InvalidArguments(f"{name} are of type {array.dtype}: give numbers")


def require_exact_numbers(name: str, value: Any, data_type: DataType) -> npt.NDArray[Any]:
    """Return the caller's elements as an array, of the type `data_type` if that is an integer type.

    Raises:
        InvalidArguments: as `as_real_array`; or a number is not a value of the integer type, or exceeds
            the range of the float type.
    """
    array = as_real_array(name, value)
    if data_type.kind != "float":
        return _convert_integers(name, array, data_type, "elements")
    wide = array.astype(np.float64)
    wrong = np.isfinite(wide) & (np.abs(wide) > data_type.highest)
    if wrong.any():
        number = wide[wrong].flat[0]
        raise InvalidArguments(
            f"{name} hold {number:g}, which {data_type} cannot represent: its greatest number is {data_type.highest:g}"
        )
    return array


def _convert_scales(name: str, array: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
    """Convert scales to their type; refuse numbers that would become zero, infinite or, in e8m0, another number."""
    if array.dtype == data_type.dtype:
        return array
    if array.dtype.kind in "iu" and array.itemsize == 1:
        raise InvalidArguments(
            f"{name} of {array.dtype} may be numbers or codes: give floats, or view codes as what they mean, such as "
            "view(ml_dtypes.float8_e8m0fnu)"
        )
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        rounded = wide.astype(data_type.dtype)
    back = rounded.astype(np.float64)
    wrong = (back == 0) & (wide != 0) | np.isfinite(wide) & ~np.isfinite(back)
    if data_type.is_exponent:
        wrong = back != wide
    if wrong.any():
        number = wide[wrong].flat[0]
        remedy = "powers of two" if data_type.is_exponent else f"numbers up to {data_type.highest:g}"
        raise InvalidArguments(f"{name} hold {number:g}, which {data_type} cannot represent: use {remedy}")
    return rounded


def _convert_integers(
    name: str, array: npt.NDArray[Any], data_type: DataType, what: str = "zero points"
) -> npt.NDArray[Any]:
    if array.dtype == data_type.dtype:
        return array
    if number_kind(array.dtype) == "float":
        raise InvalidArguments(f"{name} are of type {array.dtype}: {what} are integers")
    whole = array if array.dtype.kind in "iu" else array.astype(np.int8)
    wrong = (whole < data_type.lowest) | (whole > data_type.highest)
    if wrong.any():
        raise InvalidArguments(
            f"{name} hold {whole[wrong].flat[0]}, which {data_type} cannot represent: its range is "
            f"{data_type.lowest:.0f} to {data_type.highest:.0f}"
        )
    return whole.astype(data_type.dtype)


_MOST_SEED = 2**32 - 1


def require_seed(attributes: Attributes, seed: object) -> int:
    """Check the seed of stochastic rounding and return it; 0 for rounding to nearest.

    Raises:
        InvalidArguments: the seed is missing, not wanted, or no integer of 32 bits.
    """
    if attributes.rounding_mode == "nearest":
        if seed is not None:
            raise InvalidArguments(
                "a seed was passed, but rounding is to nearest: create attributes with rounding_mode='stochastic'"
            )
        return 0
    if seed is None:
        raise InvalidArguments("stochastic rounding needs a seed, so that results are reproducible: pass one")
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed <= _MOST_SEED:
        raise InvalidArguments(f"seed is {seed!r}: give an integer from 0 to {_MOST_SEED}")
    return int(seed)


def view_codes(values: Operands) -> Operands:
    """View operands as codes: unsigned integers of the same width."""
    return {name: array.view(f"u{array.itemsize}") for name, array in values.items()}
