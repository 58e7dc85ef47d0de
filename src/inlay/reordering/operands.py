"""Operands: the values of scales and zero points that a call brings, checked and in one form.

What a caller has - a number, a list, an array of any shape that says the same - becomes an array of the type and shape
that the attributes want, one entry along each axis for every value, 1 along the others:

>>> attributes, given = attributes_of((8, 3, 4, 4), {"src_scales": [[[0.5]], [[0.25]], [[2.0]]]})
>>> attributes.src_scales
Scales(mask=2)
>>> operands(attributes, (8, 3, 4, 4), given)["src_scales"].shape
(1, 3, 1, 1)
"""

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DATA_TYPES, DataType, number_kind
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.reordering.attributes import ENTRIES, PLAIN, Attributes, Entry, Groups, Scales

Given: TypeAlias = Mapping[str, Any]
"""By name of the attribute, what the caller gave; None for nothing."""
Operands: TypeAlias = dict[str, npt.NDArray[Any]]
"""By name of the attribute, an array of its type and shape."""

_MOST_SEED = 2**32 - 1
_TINY, _HUGE = 1e-30, 1e30  # well within f32
_MANY = 1 << 30  # well within s32
_NUMBERS = (float, int)
_NUMBER = np.dtype(float)


def attributes_of(dims: Dims, given: Given) -> tuple[Attributes, Given]:
    """The attributes that values imply for a tensor of `dims`, and the values themselves.

    One number is for the whole tensor. An array has an axis for each axis of the tensor, or fewer, which are the last
    ones, as NumPy broadcasts; along each it has one entry or as many as the tensor. With an axis for each of the
    tensor's it may also have a divisor of them along the last two, which makes groups. Its type is that of the values
    if scales or zero points can have it, else f32 or s32.

    Raises:
        InvalidArguments: an array does not fit the dims, or the attributes are refused.
    """
    brought = {
        name: value if type(value) in _NUMBERS else numbers_of(name, value)
        for name, value in given.items()
        if value is not None
    }
    if not brought:
        return PLAIN, brought
    forms = [((), _NUMBER) if type(value) in _NUMBERS else (value.shape, value.dtype) for value in brought.values()]
    return _implied(dims, tuple(brought), tuple(forms)), brought


_Form: TypeAlias = tuple[tuple[int, ...], "np.dtype[Any]"]
"""Shape and type of an array."""


@lru_cache(maxsize=512)
def _implied(dims: Dims, names: tuple[str, ...], forms: tuple[_Form, ...]) -> Attributes:
    """The attributes whose values are arrays of these forms."""
    entries: dict[str, Any] = {name: _entry(name, *form, dims) for name, form in zip(names, forms, strict=True)}
    return Attributes(**entries)


def _entry(name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]", dims: Dims) -> Entry:
    counts = (1,) * (len(dims) - len(shape)) + shape
    if len(counts) > len(dims):
        _refuse_shape(name, shape, dims)
    mask, sizes, grouped = 0, [], range(len(dims) - 2 if len(shape) == len(dims) > 1 else len(dims), len(dims))
    for i, (count, n) in enumerate(zip(counts, dims, strict=True)):
        if count not in (1, n) and (i not in grouped or not count or n % count):
            _refuse_shape(name, shape, dims)
        mask |= (count != 1) << i
        sizes.append(n // count if count else 1)
    groups: Groups = ()
    if any(count not in (1, n) for count, n in zip(counts, dims, strict=True)):
        # One value along the other axis is one group of all its coordinates.
        mask |= 3 << len(dims) - 2
        groups = (sizes[-2], sizes[-1])
    kind = ENTRIES[name]
    return kind(mask, groups, next((t for t in kind.TYPES if DATA_TYPES[t].dtype == dtype), kind.TYPES[0]))


def _refuse_shape(name: str, shape: tuple[int, ...], dims: Dims) -> NoReturn:
    remedy = "along each axis give 1 value or one for each coordinate, or for each of equal groups along the last two"
    if len(shape) == 1 and shape[0] in dims:
        axis = dims.index(shape[0])
        fitting = (*shape, *(1,) * (len(dims) - 1 - axis))
        remedy = f"give shape {fitting}, one for each coordinate of axis {axis}"
    raise InvalidArguments(f"{name} of shape {shape} do not spread over dims {dims}: {remedy}")


def operands(attributes: Attributes, dims: Dims, given: Given) -> Operands:
    """The values of each attribute that has some, as arrays of its type and shape.

    Numbers are rounded to the type of scales, but never to zero, infinity or NaN, and to e8m0 not at all. An array may
    have any shape of as many entries in the same order: that of `Scales.shape`, the same without axes of one, or flat.

    Raises:
        InvalidArguments: values are missing, given for an attribute that is not there, too many or too few, of another
            kind, or not what their type can hold.
    """
    names = attributes.names
    for name, value in given.items():
        if value is not None and name not in names:
            raise InvalidArguments(
                f"{name} are given, but the attributes have none: make them with {name}={ENTRIES[name].__name__}(), "
                "or leave them out"
            )
    return {name: operand(name, attributes.entry(name), dims, given.get(name)) for name in names}


def operand(name: str, entry: Entry, dims: Dims, value: Any) -> npt.NDArray[Any]:
    """The values of one attribute of a tensor of `dims`, as an array of its type and of shape `entry.shape(dims)`.

    Raises:
        InvalidArguments: as `operands`; the text begins with `name`.
    """
    shape = entry.shape(dims)
    # What most calls bring needs no look at the rules.
    if type(value) is float and not entry.mask and entry.data_type == "f32" and _TINY < value < _HUGE:
        return np.full(shape, value, np.float32)
    if type(value) is int and not entry.mask and entry.data_type == "s32" and -_MANY < value < _MANY:
        return np.full(shape, value, np.int32)
    if type(value) is np.ndarray and value.shape == shape and value.dtype == entry.type.dtype:
        return np.ascontiguousarray(value)
    if value is None:
        raise InvalidArguments(
            f"the attributes have {name}: give their values, {_count(prod(shape), entry.type)} of shape {shape}"
        )
    array = numbers_of(name, value)
    long = [[n for n in lengths if n != 1] for lengths in (array.shape, shape)]
    if array.size != prod(shape) or (array.ndim > 1 and long[0] != long[1]):
        raise InvalidArguments(
            f"{name} of shape {array.shape} are not what mask {entry.mask:#b} wants for dims {dims}: give "
            f"{_count(prod(shape), entry.type)} of shape {shape}"
        )
    convert = _scales if isinstance(entry, Scales) else _zero_points
    return np.ascontiguousarray(convert(name, array, entry.type)).reshape(shape)


def _count(count: int, data_type: DataType) -> str:
    return f"{count} {data_type} value{'s' if count != 1 else ''}"


def numbers_of(name: str, value: Any) -> npt.NDArray[Any]:
    """An array of the real numbers that a caller gave.

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


def exact_numbers(name: str, value: Any, data_type: DataType) -> npt.NDArray[Any]:
    """The numbers that a caller gave for elements of a type, in their own type.

    Raises:
        InvalidArguments: as `numbers_of`; or a number is none of an integer type, or too large for a type of floats.
    """
    array = numbers_of(name, value)
    if data_type.kind != "float":
        return _zero_points(name, array, data_type, "elements")
    wide = array.astype(np.float64)
    wrong = np.isfinite(wide) & (np.abs(wide) > data_type.highest)
    if wrong.any():
        number = wide[wrong].flat[0]
        raise InvalidArguments(
            f"{name} hold {number:g}, which {data_type} cannot: it holds numbers up to {data_type.highest:g}"
        )
    return array


def _scales(name: str, array: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
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
        raise InvalidArguments(f"{name} hold {number:g}, which {data_type} cannot: its scales are {remedy}")
    return rounded


def _zero_points(
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
            f"{name} hold {whole[wrong].flat[0]}, which {data_type} cannot: it holds {data_type.lowest:.0f} to "
            f"{data_type.highest:.0f}"
        )
    return whole.astype(data_type.dtype)


def checked_seed(attributes: Attributes, seed: object) -> int:
    """The seed of stochastic rounding, 0 where rounding is to nearest.

    Raises:
        InvalidArguments: the seed is missing, not wanted, or no integer of 32 bits.
    """
    if attributes.rounding_mode == "nearest":
        if seed is not None:
            raise InvalidArguments(
                "a seed is given, but rounding is to nearest: make attributes with rounding_mode='stochastic'"
            )
        return 0
    if seed is None:
        raise InvalidArguments("rounding is stochastic: give a seed, so that the result can be had again")
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed <= _MOST_SEED:
        raise InvalidArguments(f"seed is {seed!r}: give an integer from 0 to {_MOST_SEED}")
    return int(seed)


def codes_of(values: Operands) -> Operands:
    """The codes of operands, unsigned integers of the same width."""
    return {name: array.view(f"u{array.itemsize}") for name, array in values.items()}
