"""Loss of a conversion between data types: the shares of elements that become zero or saturate.

Rounding is what a conversion is asked for; weights of +-0.06 that all round to the whole number 0 are a file of zeros.
Elements are counted piece by piece in the source, so nothing is held beside a piece: those of float32 in one pass of
machine code, an ordinary piece of another type in three passes in the cache.

    >>> import numpy as np
    >>> from inlay.data_type import DATA_TYPES
    >>> weights = Memory(MemoryDesc((4,), "f32", "a"), np.array([0.06, -0.06, 3.0, 200.0], np.float32))
    >>> print(count_loss("w", weights, DATA_TYPES["s8"]))
    w: 50 % of 4 non-zero elements become 0 and 25 % saturate in s8

The machine code compares elements by their bits. Those without the sign order magnitudes; the *key* of a number, its
bits where it is positive and their complement but for the sign where it is negative, orders all numbers as signed
integers, so that an interval of numbers is an interval of integers. Subnormal numbers count whatever mode the processor
is in, and a signaling NaN raises nothing.

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
from inlay.reordering.target import Target, host_target, load_permanently

MOST_LOSS = 0.001
"""The greatest share of non-zero elements that a conversion may lose without being told that it may."""

_PIECE = 1 << 16
"""Elements that are looked at together: in the second-level cache as f64."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ConversionLoss:
    """How many elements of a tensor another data type cannot hold."""

    name: str
    """The tensor."""
    data_type: DataType
    """The data type that is converted to."""
    nonzero: int
    """Elements of the source that are not zero; NaN is none."""
    zeroed: int
    """Of these, those that become zero; for whole numbers NaN is among them."""
    saturated: int
    """Of these, those beyond the greatest or least value of the type: they become that value, infinity or NaN. The
    least of e8m0 is 2^-127, and negative numbers lose their sign there."""

    @property
    def share(self) -> float:
        """The share of non-zero elements that are lost, from 0 to 1; 0 where all are zero."""
        return (self.zeroed + self.saturated) / self.nonzero if self.nonzero else 0.0

    def __str__(self) -> str:
        """One line: the tensor, and both shares."""
        zeroed, saturated = (f"{100 * n / max(self.nonzero, 1):.3g} %" for n in (self.zeroed, self.saturated))
        return (
            f"{printable(self.name)}: {zeroed} of {self.nonzero} non-zero elements become 0 and {saturated} saturate "
            f"in {self.data_type}"
        )


def require_little_loss(loss: ConversionLoss) -> None:
    """Refuse a conversion that loses more than `MOST_LOSS` of the non-zero elements.

    Raises:
        InvalidArguments: it does.
    """
    if loss.share > MOST_LOSS:
        raise InvalidArguments(
            f"tensor {loss}, and {100 * MOST_LOSS:g} % may be lost: scale its values into the range of the type first, "
            "choose another type, or allow the loss (--allow-loss, in Python allow_loss=True)"
        )


def count_loss(name: str, memory: Memory, dst: DataType) -> ConversionLoss:
    """Count what the elements of `memory`, padding left out, lose when they are converted to `dst`."""
    counter = LossCounter(name, memory.desc.require_layout(f"tensor {name}")[1], dst)
    counter.add(memory)
    return counter.loss


class LossCounter:
    """What the elements of a tensor lose in another type, counted as its parts come by."""

    __slots__ = ("_counts", "_dst", "_is_needed", "_name")

    def __init__(self, name: str, src: DataType, dst: DataType) -> None:
        """Count elements of type `src` of the tensor `name` that `dst` cannot hold."""
        self._name, self._dst, self._is_needed = name, dst, can_lose(src, dst)
        self._counts = np.zeros(3, np.int64)

    def add(self, memory: Memory) -> None:
        """Count the elements of `memory`, padding left out."""
        if self._is_needed:
            with np.errstate(invalid="ignore"):  # a signaling NaN is a NaN
                for piece in _pieces(memory):
                    self._counts += _counted(piece, self._dst)

    @property
    def loss(self) -> ConversionLoss:
        """What was counted so far."""
        return ConversionLoss(self._name, self._dst, *map(int, self._counts))


def can_lose(src: DataType, dst: DataType) -> bool:
    """Whether a number of type `src` may become zero or saturate in `dst`.

    >>> from inlay.data_type import DATA_TYPES
    >>> can_lose(DATA_TYPES["f32"], DATA_TYPES["s8"]), can_lose(DATA_TYPES["bf16"], DATA_TYPES["f32"])
    (True, False)
    """
    if src == dst:
        return False
    is_within = dst.lowest <= src.lowest and src.highest <= dst.highest
    is_as_fine = src.kind != "float" or (dst.kind == "float" and dst.least_positive <= src.least_positive)
    return not (is_within and is_as_fine)


def _pieces(memory: Memory) -> Iterator[Array]:
    """The elements in some order, as arrays of one axis and of a type of NumPy's own."""
    desc = memory.desc
    layout, data_type = desc.require_layout("a file")
    working = np.dtype(np.float32) if data_type.bits < 32 and data_type.kind == "float" else data_type.dtype
    count = prod(desc.dims)
    is_dense = desc.padded_dims == desc.dims and desc.offset0 == 0 and layout.span == (0, count)
    if not is_dense or data_type.is_sub_byte:
        for part in _parts(desc):
            yield Memory(part, memory.buffer).unpack().astype(np.float64).ravel()
        return
    elements = memory.buffer.reshape(-1).view(np.uint8)[: count * data_type.itemsize].view(data_type.dtype)
    for begin in range(0, count, _PIECE):
        yield elements[begin : begin + _PIECE].astype(working, copy=False)


def _parts(desc: MemoryDesc) -> Iterator[MemoryDesc]:
    """Submemories that together are `desc`, of about `_PIECE` elements where its longest axis can be cut so finely."""
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


def _counted(piece: Array, dst: DataType) -> tuple[int, int, int]:
    """How many elements are not zero, become zero, and saturate."""
    if piece.dtype == np.float32:
        found = _scan_of(dst).count(piece)
        zeroed, saturated = _with_nan(found.nan, dst)
        return found.nonzero, found.vanishing + zeroed, found.saturated + saturated
    present = int(np.count_nonzero(piece))
    if _is_kept(piece, present, dst):
        return present, 0, 0
    return present, *_lost(piece.astype(np.float64), dst)


# What a data type can hold


@dataclass(frozen=True, slots=True)
class _Range:
    """The numbers that a data type can hold, as thresholds for numbers of f64 before they are rounded."""

    vanishing: float
    """The greatest magnitude that is rounded to zero; -1 where none is."""
    least: float
    """The least number that does not saturate, before rounding for floats, after it for whole numbers."""
    beyond: float
    """The least number that saturates, likewise."""
    has_infinity: bool
    """Whether an infinity stays one."""
    has_nan: bool
    """Whether NaN stays one."""


@lru_cache(maxsize=32)
def _range_of(data_type: DataType) -> _Range:
    if data_type.kind != "float":
        return _Range(0.5, float(data_type.lowest), float(int(data_type.highest) + 1), False, False)
    if not data_type.has_zero:
        return _Range(-1.0, data_type.lowest, 2.0 * data_type.highest, False, True)
    limits = ml_dtypes.finfo(data_type.dtype)  # type: ignore[no-untyped-call]
    step = 2.0 ** (np.frexp(data_type.highest)[1] - 1 - int(limits.nmant))
    with np.errstate(over="ignore"):
        beyond = float(np.float64(data_type.highest) + np.float64(step / 2))
    # A tie goes to the even neighbor: upward, except in f8_e4m3, whose greatest number is even: NaN stands behind it.
    if data_type.has_nan and not data_type.has_infinity:
        beyond = float(np.nextafter(beyond, np.inf))
    least = float(np.nextafter(-beyond, 0))
    return _Range(data_type.least_positive / 2, least, beyond, data_type.has_infinity, data_type.has_nan)


def _is_kept(piece: Array, nonzero: int, dst: DataType) -> bool:
    """Whether nothing in `piece` is lost, seen from its extremes; False where that needs a closer look."""
    # As Python's numbers, which compare exactly: 2147483647 in f32 would be 2147483648.
    if not piece.size or not (piece.min().item() >= dst.lowest and piece.max().item() <= dst.highest):
        return False
    if piece.dtype.kind != "f":
        return True
    # Twice the threshold in the type of the piece: what lies between is looked at closely.
    return bool(np.count_nonzero(np.abs(piece) > 2 * _range_of(dst).vanishing) == nonzero)


def _lost(values: Array, dst: DataType) -> tuple[int, int]:
    """How many of `values` become zero, and how many saturate."""
    limits = _range_of(dst)
    nan = int(np.count_nonzero(np.isnan(values)))
    rounded = values if dst.kind == "float" else np.rint(values)
    beyond = ((rounded >= limits.beyond) | (rounded < limits.least)) & (values != 0)
    if limits.has_infinity:
        beyond &= np.isfinite(values)
    vanishing = (np.abs(values) <= limits.vanishing) & (values != 0) & ~beyond
    zeroed, saturated = _with_nan(nan, dst)
    return int(np.count_nonzero(vanishing)) + zeroed, int(np.count_nonzero(beyond)) + saturated


def _with_nan(count: int, dst: DataType) -> tuple[int, int]:
    """How many of so many NaN become zero, and how many saturate."""
    if _range_of(dst).has_nan:
        return 0, 0
    # Whole numbers have 0 in place of NaN, f4_e2m1 its greatest value.
    return (0, count) if dst.kind == "float" else (count, 0)


# Elements of float32


Floats = npt.NDArray[np.float32]

Interval = tuple[float, float]
"""The least and the greatest number; none where the first is greater."""

_SYMBOL = "inlay_count_loss"
_FUNCTION = CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p)
_LANES = 16
_MOST = _LANES << 31  # elements of one call: a lane counts in 32 bits
_SIGN = 0x7FFF_FFFF
_INFINITY = 0x7F80_0000
_COUNTS = ("nonzero", "vanishing", "saturated", "nan")


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """Numbers of elements."""

    nonzero: int
    """Those that are not zero, NaN among them."""
    vanishing: int
    """Those that are not zero and at most as great as the greatest that vanishes."""
    saturated: int
    """Those in the intervals that saturate, zero left out."""
    nan: int
    """Those that are NaN."""


class LossScan:
    """A count of elements in two intervals and below a magnitude."""

    __slots__ = ("_words",)

    def __init__(self, saturated: tuple[Interval, Interval], vanishing: float) -> None:
        """Count what is in one of two intervals apart from each other, whose ends belong to them, and what vanishes.

        Args:
            saturated: the intervals, of numbers of float32 or infinities.
            vanishing: the greatest magnitude that vanishes, a number of float32; negative where none does.
        """
        words: list[int] = []
        for least, greatest in saturated:
            is_empty = least > greatest
            words += [0, 0] if is_empty else [_key(least), _key(greatest) - _key(least) + 1]
        words.append(0 if vanishing < 0 else int(np.float32(vanishing).view(np.int32)))
        self._words = np.array(words, np.int64).astype(np.uint32)

    def count(self, elements: Floats) -> ScanCounts:
        """Count the elements of a dense array of one axis."""
        function = _scan_function()
        counts = np.zeros((len(_COUNTS), _LANES), np.uint32)
        blocks = 0 if function is None or elements.size > _MOST else elements.size // _LANES
        if function is not None and blocks:
            function(address_of(elements), blocks, address_of(self._words), address_of(counts))
        totals: list[int] = counts.sum(axis=1, dtype=np.int64).tolist()
        if blocks * _LANES < elements.size:
            rest = self._count_rest(elements[blocks * _LANES :].view(np.uint32))
            totals = [total + n for total, n in zip(totals, rest, strict=True)]
        return ScanCounts(*totals)

    def _count_rest(self, bits: npt.NDArray[np.uint32]) -> tuple[int, ...]:
        """The same by NumPy."""
        magnitudes = bits & np.uint32(_SIGN)
        keys = bits ^ ((bits.view(np.int32) >> 31).view(np.uint32) & np.uint32(_SIGN))
        first, first_length, second, second_length, vanishing = self._words
        nonzero = magnitudes != 0
        saturated = ((keys - first < first_length) | (keys - second < second_length)) & nonzero
        found = (nonzero, magnitudes - np.uint32(1) < vanishing, saturated, magnitudes > _INFINITY)
        return tuple(int(np.count_nonzero(mask)) for mask in found)


@lru_cache(maxsize=32)
def _scan_of(dst: DataType) -> LossScan:
    """What counts elements of float32 that `dst` cannot hold."""
    limits, is_whole = _range_of(dst), dst.kind != "float"
    # The least whole number of a type is even and the greatest odd: a tie is kept below, and saturates above.
    beyond, least = (n - 0.5 * is_whole for n in (limits.beyond, limits.least))
    end = float(np.finfo(np.float32).max) if limits.has_infinity else inf
    above = (-greatest_below(-beyond, is_included=True), end)
    below = (-end, greatest_below(least, is_included=False))
    return LossScan((above, below), greatest_below(limits.vanishing, is_included=True))


def greatest_below(bound: float, *, is_included: bool) -> float:
    """The greatest number of float32 below `bound`, or not above it.

    >>> greatest_below(1.0, is_included=True), greatest_below(128.5, is_included=False) < 128.5
    (1.0, True)
    """
    with np.errstate(over="ignore"):
        nearest = np.float32(bound)
    # Compared as Python's numbers: NumPy would round the bound to float32 first.
    if float(nearest) > bound or (float(nearest) == bound and not is_included):
        nearest = np.nextafter(nearest, np.float32(-inf))
    return float(nearest)


def _key(number: float) -> int:
    bits = int(np.float32(number).view(np.int32))
    return bits if bits >= 0 else bits ^ _SIGN


@cache
def _scan_function() -> Any:
    """The machine code; None where there is none for a processor."""
    try:
        target = host_target()
    except Unimplemented:
        return None
    text = _module(target)
    (address,) = load_permanently(text, lambda: text, target, _SYMBOL)
    return _FUNCTION(address)


def _module(target: Target) -> str:
    """A loop over vectors, at least one; each lane counts for itself."""
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
