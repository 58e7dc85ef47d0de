"""Loss of a conversion between data types: the shares of elements that become zero or saturate.

Rounding is a normal part of a conversion. But if weights of +-0.06 are all rounded to the integer 0, the result is a
file of zeros. The loss is counted in the source, one piece at a time: pieces of float32 in one pass of machine code,
pieces of other types in three passes of NumPy in the cache, if they lose nothing.

    >>> import numpy as np
    >>> from inlay.data_type import DATA_TYPES
    >>> weights = Memory(MemoryDesc((4,), "f32", "a"), np.array([0.06, -0.06, 3.0, 200.0], np.float32))
    >>> print(count_loss("w", weights, DATA_TYPES["s8"]))
    w: 50 % of 4 non-zero elements become 0 and 25 % saturate in s8

The machine code compares elements by their bits. The bits without the sign are ordered as the magnitudes. The *key* of
a number is its bits if it is positive; if it is negative, all bits except the sign are inverted. Keys, as signed
integers, are ordered as the numbers, so an interval of numbers is an interval of integers. Comparisons of integers also
work when the processor flushes subnormal numbers to zero, and signaling NaNs raise no exception.

    >>> scan = LossScan(saturated=((200.0, inf), (-inf, -200.0)), vanishing=0.5)
    >>> str(scan.count(np.array([0.0, 0.25, -0.5, 1e4, np.nan], np.float32)))
    'ScanCounts(nonzero=4, vanishing=2, saturated=1, nan=1)'
"""

from collections.abc import Iterator
from ctypes import CFUNCTYPE, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf, prod
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented, printable
from inlay.memory import Memory
from inlay.memory.buffers import address_of
from inlay.reordering.target import TargetMachine, host_target, load_permanently

MOST_LOSS = 0.001
"""Maximum share of nonzero elements that a conversion may lose unless the caller allows loss."""

_PIECE = 1 << 16
"""Elements of one piece, so that a piece of f64 fits in the second-level cache."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ConversionLoss:
    """The number of elements of a tensor that another data type cannot represent."""

    name: str
    """Name of the tensor."""
    data_type: DataType
    """Data type of the result."""
    nonzero: int
    """Number of nonzero elements of the source, including NaN."""
    zeroed: int
    """Number of nonzero elements that become zero; integer types convert NaN to zero."""
    saturated: int
    """Number of nonzero elements beyond the range of the type, which become its greatest or least value, infinity or
    NaN. The least value of e8m0 is 2^-127, and negative numbers lose their sign in it."""
    relative_error: float | None = None
    """Root of the mean squared error of a quantization, divided by that of the squares of the source; None if nothing
    was quantized."""
    greatest_error: float = 0.0
    """Greatest magnitude of the error of an element that was quantized."""

    @property
    def share(self) -> float:
        """Share of nonzero elements that are lost, from 0 to 1; 0 if all elements are zero."""
        return (self.zeroed + self.saturated) / self.nonzero if self.nonzero else 0.0

    def __str__(self) -> str:
        """Return one line of text: the tensor and both shares, or the errors of its quantization."""
        if self.relative_error is not None:
            return (
                f"{printable(self.name)}: quantized with a relative RMS error of {100 * self.relative_error:.3g} %, "
                f"the greatest error is {self.greatest_error:.3g}"
            )
        zeroed, saturated = (f"{100 * n / max(self.nonzero, 1):.3g} %" for n in (self.zeroed, self.saturated))
        return (
            f"{printable(self.name)}: {zeroed} of {self.nonzero} non-zero elements become 0 and {saturated} saturate "
            f"in {self.data_type}"
        )


def require_little_loss(loss: ConversionLoss) -> None:
    """Check that a conversion loses at most `MOST_LOSS` of the nonzero elements.

    Raises:
        InvalidArguments: it loses more.
    """
    if loss.share > MOST_LOSS:
        raise InvalidArguments(
            f"tensor {loss}, and {100 * MOST_LOSS:g} % may be lost: scale its values into the range of the type first, "
            "choose another type, or allow the loss (--allow-loss, in Python allow_loss=True)"
        )


def count_loss(name: str, memory: Memory, dst: DataType) -> ConversionLoss:
    """Count the elements of `memory`, without padding, that become zero or saturate in `dst`."""
    counter = LossCounter(name, memory.desc.require_layout(f"tensor {name}")[1], dst)
    counter.add(memory)
    return counter.loss


class LossCounter:
    """A counter of the elements of a tensor that another data type cannot represent, fed with parts of the tensor."""

    __slots__ = ("_counts", "_dst", "_is_needed", "_name")

    def __init__(self, name: str, src: DataType, dst: DataType) -> None:
        """Start at 0, for a conversion of the tensor `name` from `src` to `dst`."""
        self._name, self._dst, self._is_needed = name, dst, can_lose(src, dst)
        self._counts = np.zeros(3, np.int64)

    def add(self, memory: Memory) -> None:
        """Count the elements of `memory`, a part of the tensor, without its padding."""
        if self._is_needed:
            with np.errstate(invalid="ignore"):  # no warnings about signaling NaNs
                for piece in _iterate_pieces(memory):
                    self._counts += _count_piece(piece, self._dst)

    @property
    def loss(self) -> ConversionLoss:
        """Loss of all parts that were added."""
        return ConversionLoss(self._name, self._dst, *map(int, self._counts))


def can_lose(src: DataType, dst: DataType) -> bool:
    """Return True if some number of type `src` becomes zero or saturates in `dst`.

    >>> from inlay.data_type import DATA_TYPES
    >>> can_lose(DATA_TYPES["f32"], DATA_TYPES["s8"]), can_lose(DATA_TYPES["bf16"], DATA_TYPES["f32"])
    (True, False)
    """
    if src == dst:
        return False
    is_within = dst.lowest <= src.lowest and src.highest <= dst.highest
    is_as_fine = src.kind != "float" or (dst.kind == "float" and dst.least_positive <= src.least_positive)
    return not (is_within and is_as_fine)


def _iterate_pieces(memory: Memory) -> Iterator[Array]:
    """Yield the elements of `memory` in any order, as arrays of one axis and of a type that NumPy has itself."""
    desc = memory.desc
    layout, data_type = desc.require_layout("a file")
    working = np.dtype(np.float32) if data_type.bits < 32 and data_type.kind == "float" else data_type.dtype
    count = prod(desc.dims)
    is_dense = desc.padded_dims == desc.dims and desc.offset0 == 0 and layout.span == (0, count)
    if not is_dense or data_type.is_sub_byte:
        for part in _split_desc(desc):
            yield Memory(part, memory.buffer).unpack().astype(np.float64).ravel()
        return
    elements = memory.buffer.reshape(-1).view(np.uint8)[: count * data_type.itemsize].view(data_type.dtype)
    for begin in range(0, count, _PIECE):
        yield elements[begin : begin + _PIECE].astype(working, copy=False)


def _split_desc(desc: MemoryDesc) -> Iterator[MemoryDesc]:
    """Yield submemories that partition `desc` along its longest axis, of about `_PIECE` elements if possible."""
    if 0 in desc.dims:
        return
    axis = max(range(desc.ndims), key=lambda i: desc.dims[i])
    block = prod(digit.extent for digit in desc.digits[axis][1:])
    length = desc.dims[axis]
    step = max(_PIECE * length // prod(desc.dims) // block, 1) * block
    for begin in range(0, length, step):
        dims, offsets = list(desc.dims), [0] * desc.ndims
        dims[axis], offsets[axis] = min(step, length - begin), begin
        yield desc.submemory(tuple(dims), tuple(offsets))


def _count_piece(piece: Array, dst: DataType) -> tuple[int, int, int]:
    """Return the numbers of elements that are nonzero, that become zero, and that saturate."""
    if piece.dtype == np.float32:
        counts = _scan_for(dst).count(piece)
        zeroed, saturated = _count_lost_nan(counts.nan, dst)
        return counts.nonzero, counts.vanishing + zeroed, counts.saturated + saturated
    nonzero = int(np.count_nonzero(piece))
    if _is_lossless(piece, nonzero, dst):
        return nonzero, 0, 0
    return nonzero, *_count_lost(piece.astype(np.float64), dst)


# Ranges of data types


@dataclass(frozen=True, slots=True)
class _TypeRange:
    """The range of a data type, as thresholds for numbers of f64: before rounding for floats, after it for integers.

    `vanishing` is a threshold before rounding for all types.
    """

    vanishing: float
    """Greatest magnitude that is rounded to zero; -1 if none is."""
    least: float
    """Least number that does not saturate."""
    beyond: float
    """Least positive number that saturates."""
    has_infinity: bool
    """True if the type represents infinity."""
    has_nan: bool
    """True if the type represents NaN."""


@lru_cache(maxsize=32)
def _type_range(data_type: DataType) -> _TypeRange:
    """Return the range of a data type."""
    if data_type.kind != "float":
        return _TypeRange(0.5, float(data_type.lowest), float(int(data_type.highest) + 1), False, False)
    if not data_type.has_zero:
        return _TypeRange(-1.0, data_type.lowest, 2.0 * data_type.highest, False, True)
    limits = ml_dtypes.finfo(data_type.dtype)  # type: ignore[no-untyped-call]
    step = 2.0 ** (np.frexp(data_type.highest)[1] - 1 - int(limits.nmant))
    with np.errstate(over="ignore"):
        beyond = float(np.float64(data_type.highest) + np.float64(step / 2))
    # `beyond` is a tie between the greatest number and the number that would follow it. Ties are rounded to even, which
    # is the number that would follow, except in f8_e4m3: there the next code is NaN, and the greatest number is even.
    if data_type.has_nan and not data_type.has_infinity:
        beyond = float(np.nextafter(beyond, np.inf))
    least = float(np.nextafter(-beyond, 0))
    return _TypeRange(data_type.least_positive / 2, least, beyond, data_type.has_infinity, data_type.has_nan)


def _is_lossless(piece: Array, nonzero: int, dst: DataType) -> bool:
    """Return True if the extremes of `piece` prove that it loses nothing; False if elements must be counted."""
    # `item` returns Python numbers, which compare exactly: as f32, 2147483647 would be 2147483648.
    if not piece.size or not (piece.min().item() >= dst.lowest and piece.max().item() <= dst.highest):
        return False
    if piece.dtype.kind != "f":
        return True
    # Twice the threshold, because the threshold itself may not be exact in the type of the piece.
    return bool(np.count_nonzero(np.abs(piece) > 2 * _type_range(dst).vanishing) == nonzero)


def _count_lost(values: Array, dst: DataType) -> tuple[int, int]:
    """Return the number of `values` that become zero, and the number that saturate."""
    limits = _type_range(dst)
    nan = int(np.count_nonzero(np.isnan(values)))
    rounded = values if dst.kind == "float" else np.rint(values)
    beyond = ((rounded >= limits.beyond) | (rounded < limits.least)) & (values != 0)
    if limits.has_infinity:
        beyond &= np.isfinite(values)
    vanishing = (np.abs(values) <= limits.vanishing) & (values != 0) & ~beyond
    zeroed, saturated = _count_lost_nan(nan, dst)
    return int(np.count_nonzero(vanishing)) + zeroed, int(np.count_nonzero(beyond)) + saturated


def _count_lost_nan(count: int, dst: DataType) -> tuple[int, int]:
    """Return how many of `count` NaNs become zero, and how many saturate."""
    if _type_range(dst).has_nan:
        return 0, 0
    # Integers convert NaN to 0, f4_e2m1 to its greatest value.
    return (0, count) if dst.kind == "float" else (count, 0)


# Elements of float32


Floats = npt.NDArray[np.float32]

Interval = tuple[float, float]
"""Least and greatest number of a closed interval, which is empty if the first is greater."""

_SYMBOL = "inlay_count_loss"
_FUNCTION = CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p)
_LANES = 16
_MAX_ELEMENTS = _LANES << 31  # elements of one call: a lane counts in 32 bits
_SIGN = 0x7FFF_FFFF
_INFINITY = 0x7F80_0000
_COUNTS = ("nonzero", "vanishing", "saturated", "nan")


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """Counts of float32 elements."""

    nonzero: int
    """Number of nonzero elements, including NaN."""
    vanishing: int
    """Number of nonzero elements whose magnitude is at most that of the greatest vanishing number."""
    saturated: int
    """Number of nonzero elements in the two intervals."""
    nan: int
    """Number of NaNs."""


class LossScan:
    """A scan of float32 arrays that counts elements in two intervals, and elements of small magnitude."""

    __slots__ = ("_words",)

    def __init__(self, saturated: tuple[Interval, Interval], vanishing: float) -> None:
        """Prepare a scan with these thresholds.

        Args:
            saturated: two disjoint closed intervals; ends are float32 numbers or infinities.
            vanishing: the greatest vanishing magnitude, a float32 number; negative if none vanishes.
        """
        words: list[int] = []
        for least, greatest in saturated:
            is_empty = least > greatest
            words += [0, 0] if is_empty else [_order_key(least), _order_key(greatest) - _order_key(least) + 1]
        words.append(0 if vanishing < 0 else int(np.float32(vanishing).view(np.int32)))
        self._words = np.array(words, np.int64).astype(np.uint32)

    def count(self, elements: Floats) -> ScanCounts:
        """Count the elements of a dense array of one axis."""
        function = _scan_function()
        counts = np.zeros((len(_COUNTS), _LANES), np.uint32)
        blocks = 0 if function is None or elements.size > _MAX_ELEMENTS else elements.size // _LANES
        if function is not None and blocks:
            function(address_of(elements), blocks, address_of(self._words), address_of(counts))
        totals: list[int] = counts.sum(axis=1, dtype=np.int64).tolist()
        if blocks * _LANES < elements.size:
            rest = self._count_rest(elements[blocks * _LANES :].view(np.uint32))
            totals = [total + n for total, n in zip(totals, rest, strict=True)]
        return ScanCounts(*totals)

    def _count_rest(self, bits: npt.NDArray[np.uint32]) -> tuple[int, ...]:
        """Count the elements with these bits in NumPy; return the fields of `ScanCounts`."""
        magnitudes = bits & np.uint32(_SIGN)
        keys = bits ^ ((bits.view(np.int32) >> 31).view(np.uint32) & np.uint32(_SIGN))
        first, first_length, second, second_length, vanishing = self._words
        nonzero = magnitudes != 0
        saturated = ((keys - first < first_length) | (keys - second < second_length)) & nonzero
        masks = (nonzero, magnitudes - np.uint32(1) < vanishing, saturated, magnitudes > _INFINITY)
        return tuple(int(np.count_nonzero(mask)) for mask in masks)


@lru_cache(maxsize=32)
def _scan_for(dst: DataType) -> LossScan:
    """Return the scan that counts float32 elements that become zero or saturate in `dst`."""
    limits, is_integer = _type_range(dst), dst.kind != "float"
    # Ties are rounded to even. The least integer of a type is even, so a tie below it does not saturate; the greatest
    # integer is odd, so a tie above it does.
    beyond, least = (n - 0.5 * is_integer for n in (limits.beyond, limits.least))
    end = float(np.finfo(np.float32).max) if limits.has_infinity else inf
    above = (-greatest_below(-beyond, is_included=True), end)
    below = (-end, greatest_below(least, is_included=False))
    return LossScan((above, below), greatest_below(limits.vanishing, is_included=True))


def greatest_below(bound: float, *, is_included: bool) -> float:
    """Return the greatest float32 number that is less than `bound`, or equal to it if `is_included`.

    >>> greatest_below(1.0, is_included=True), greatest_below(128.5, is_included=False) < 128.5
    (1.0, True)
    """
    with np.errstate(over="ignore"):
        nearest = np.float32(bound)
    # Compare as Python floats, because NumPy would round `bound` to float32 first.
    if float(nearest) > bound or (float(nearest) == bound and not is_included):
        nearest = np.nextafter(nearest, np.float32(-inf))
    return float(nearest)


def _order_key(number: float) -> int:
    """Return the key of a number: a signed integer that is ordered as the float32 numbers are."""
    bits = int(np.float32(number).view(np.int32))
    return bits if bits >= 0 else bits ^ _SIGN


@cache
def _scan_function() -> Any:
    """Return the compiled scan function, or None if Inlay does not generate code for this processor."""
    try:
        target = host_target()
    except Unimplemented:
        return None
    text = _scan_ir(target)
    (address,) = load_permanently(text, lambda: text, target, _SYMBOL)
    return _FUNCTION(address)


def _scan_ir(target: TargetMachine) -> str:
    """Return LLVM IR of a loop over at least one vector; each vector lane has its own counts."""
    vector, masks = f"<{_LANES} x i32>", f"<{_LANES} x i1>"
    words = ("first", "first_length", "second", "second_length", "most")
    lines = [f"define void @{_SYMBOL}(ptr %data, i64 %blocks, ptr %words, ptr %counts) #0 {{", "entry:"]
    for i, name in enumerate(words):
        lines += [f"%{name}_at = getelementptr i32, ptr %words, i64 {i}", f"%{name}_one = load i32, ptr %{name}_at"]
        lines += [f"%{name}_low = insertelement {vector} poison, i32 %{name}_one, i64 0"]
        lines += [f"%{name} = shufflevector {vector} %{name}_low, {vector} poison, {vector} zeroinitializer"]
    lines += ["br label %block", "block:", "%i = phi i64 [0, %entry], [%next, %block]"]
    lines += [f"%{name}0 = phi {vector} [zeroinitializer, %entry], [%{name}1, %block]" for name in _COUNTS]
    lines += [f"%at = getelementptr {vector}, ptr %data, i64 %i", f"%bits = load {vector}, ptr %at, align 1"]
    lines += [f"%size = and {vector} %bits, splat (i32 {_SIGN})", f"%signs = ashr {vector} %bits, splat (i32 31)"]
    lines += [f"%turned = and {vector} %signs, splat (i32 {_SIGN})", f"%key = xor {vector} %bits, %turned"]
    lines += [f"%less = sub {vector} %size, splat (i32 1)", f"%key1 = sub {vector} %key, %first"]
    lines += [f"%key2 = sub {vector} %key, %second", f"%in1 = icmp ult {vector} %key1, %first_length"]
    lines += [f"%in2 = icmp ult {vector} %key2, %second_length", f"%in = or {masks} %in1, %in2"]
    lines += [f"%is_nonzero = icmp ne {vector} %size, zeroinitializer"]
    lines += [f"%is_vanishing = icmp ult {vector} %less, %most", f"%is_saturated = and {masks} %in, %is_nonzero"]
    lines += [f"%is_nan = icmp ugt {vector} %size, splat (i32 {_INFINITY})"]
    for name in _COUNTS:
        lines += [f"%{name}_minus = sext {masks} %is_{name} to {vector}"]
        lines += [f"%{name}1 = sub {vector} %{name}0, %{name}_minus"]
    lines += ["%next = add i64 %i, 1", "%is_more = icmp ult i64 %next, %blocks"]
    lines += ["br i1 %is_more, label %block, label %done", "done:"]
    for i, name in enumerate(_COUNTS):
        lines += [f"%{name}_to = getelementptr {vector}, ptr %counts, i64 {i}"]
        lines += [f"store {vector} %{name}1, ptr %{name}_to, align 4"]
    return "\n".join([*lines, "ret void", "}", f"attributes #0 = {{ nounwind {target.attributes} }}\n"])
