"""Loss of a conversion between data types: the shares of elements that become zero or saturate.

Rounding is what a conversion is asked for; weights of +-0.06 that all round to the whole number 0 are a file of zeros.
Elements are counted piece by piece in the source, so nothing is held beside a piece: those of float32 in one pass of
machine code (see `loss_scan`), an ordinary piece of another type in three passes in the cache.

    >>> import numpy as np
    >>> from inlay.data_type import DATA_TYPES
    >>> weights = Memory(MemoryDesc((4,), "f32", "a"), np.array([0.06, -0.06, 3.0, 200.0], np.float32))
    >>> print(count_loss("w", weights, DATA_TYPES["s8"]))
    w: 50 % of 4 non-zero elements become 0 and 25 % saturate in s8
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import inf, prod
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlay.chunked.loss_scan import LossScan, greatest_below
from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.memory import Memory
from inlay.printable import printable

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


def count_loss(name: str, memory: Memory, dst: DataType) -> ConversionLoss:
    """Count what the elements of `memory`, padding left out, lose when they are converted to `dst`."""
    counter = LossCounter(name, memory.desc.require_layout(f"tensor {name}")[1], dst)
    counter.add(memory)
    return counter.loss


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
