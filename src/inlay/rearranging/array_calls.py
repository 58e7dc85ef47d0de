"""Planned calls of a rearrangement: a function of an array and a destination, for one form of both.

    elementary axes, forms, options  ->  view, move into a new array, move into `out`, or steps of the framework

A plan depends on shapes, strides, types and options alone. What differs from call to call is checked by the call: that
`out` may be written and shares no bytes with the array, and that both begin at a multiple of their elements.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, DataTypeLike, as_data_type
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Dims
from inlay.measure.interleaved import seconds_per_call
from inlay.memory.buffers import Bytes, address_of, allocate, bytes_at
from inlay.rearranging.array_kinds import AnyArray, ArrayKind, AxisSteps, StridedForm
from inlay.rearranging.axis_moves import (
    AxisMove,
    MovedAxis,
    destination_strides,
    find_move,
    joined_strides,
    merge_axes,
    ordered_strides,
    row_major_strides,
    source_strides,
)
from inlay.rearranging.einops_notation import ResolvedAxes
from inlay.reordering import CompiledReorder
from inlay.reordering.attributes import PLAIN, Operands, as_real_array, operands

ArrayCall: TypeAlias = Callable[[AnyArray, AnyArray], AnyArray]
"""A function of an array and a destination, which is None or ignored if the form of the call has none."""

MOST_TIMED = 4 << 20
"""Size of the largest result for which two ways to make it are timed, in bytes."""
_TIMED_CALLS = 4  # calls in a row, and how often these are timed
_MOST_WORK = 100_000  # candidates in the search for a byte that two arrays share
_CLEARLY = 0.9  # share of our own time that the framework's call may take to be chosen


@dataclass(frozen=True, slots=True)
class RearrangeOptions:
    """The options of a call besides the pattern."""

    out: AnyArray = None
    """Destination; None for a view or a new array."""
    dtype: Any = None
    """Data type of the result; None for that of the array, or of `out`."""
    scale: Any = None
    """Factor of the elements; None for none."""
    copy: bool | None = None
    """True: never a view; False: never a copy; None: a view where strides suffice."""
    order: tuple[int, ...] | None = None
    """Axes of a new result as they are stored, outermost first; None for row-major. With it, `copy` is True."""

    @property
    def of_copy(self) -> "RearrangeOptions":
        """The options of a copy in the same order that computes nothing."""
        return RearrangeOptions(copy=True, order=self.order)

    @property
    def computes(self) -> bool:
        """True if elements may be computed."""
        return self.dtype is not None or self.scale is not None


@dataclass(frozen=True, slots=True)
class _Side:
    """A destination: its kind, strides and type."""

    kind: ArrayKind
    strides: Dims
    dtype: Any
    data_type: DataType


def plan_call(
    kind: ArrayKind,
    x: AnyArray,
    resolved: ResolvedAxes,
    options: RearrangeOptions,
    out_kind: ArrayKind | None,
    *,
    is_repeated: bool,
) -> ArrayCall:
    """Return the call that rearranges arrays of the form of `x`, into ones of the form of `options.out` if it is one.

    If the call will be repeated, a small new result is made in the faster one of two ways, which are timed.

    Raises:
        InvalidArguments: `out` has another shape or type, elements of `out` overlap, `copy` is False and strides do not
            suffice, types are not converted, or the scale does not fit the result.
        Unimplemented: elements are to be computed of an array that no reorder can move.
        OutOfMemory: no more machine code can be loaded.
    """
    form = kind.describe(x)
    out_form = None if options.out is None or out_kind is None else out_kind.describe(options.out)
    if options.out is not None:
        _require_shape(options.out, resolved.shape)
    view_strides = _view_strides(kind, x, resolved)
    can_view = view_strides is not None
    if form is None or (options.out is not None and out_form is None):
        return _framework_call(kind, resolved, options, can_view)
    src_type, dst_type, is_converted = _types(form, out_form, options)
    if options.out is None and view_strides is not None and not is_converted and not options.copy:
        view = kind.viewer(AxisSteps.of(resolved), resolved.shape, view_strides)
        return lambda x, out: view(x)
    if options.copy is False:
        _refuse_copy("convert elements" if is_converted else "move them", options)
    if out_form is None:
        dtype = kind.dtype_of(dst_type) if dst_type != src_type else form.dtype
        destination = _Side(kind, ordered_strides(resolved.shape, options.order), dtype, dst_type)
    else:
        assert out_kind is not None
        destination = _Side(out_kind, out_form.strides, out_form.dtype, dst_type)
    counts, scales = _scale_counts(resolved, options.scale)
    move = _find_move(form, destination, resolved, src_type, counts, scales is not None)
    if move is None:
        return _framework_call(kind, resolved, options, can_view)
    values = None if scales is None else _scale_values(move, scales)
    if options.out is None:
        own = _new_result_call(kind, destination, move, resolved, values)
        if is_converted or not is_repeated or prod(resolved.shape) * dst_type.itemsize > MOST_TIMED:
            return own
        return _faster_call(own, _framework_call(kind, resolved, options.of_copy, can_view), x)
    return _out_call(kind, form, destination, move, resolved.shape, values)


def _faster_call(own: ArrayCall, framework: ArrayCall, x: AnyArray) -> ArrayCall:
    """Return the call of the framework if it is clearly the faster one, else our own.

    Machine code is called through ctypes, which takes longer than all of a tiny copy, and its vectors fit short odd
    axes badly. Only calls can show which one is faster on this machine.
    """
    times = [
        min(seconds_per_call(partial(call, x, None), _TIMED_CALLS) for _ in range(_TIMED_CALLS))
        for call in (own, framework)
    ]
    return framework if times[1] < _CLEARLY * times[0] else own


# Checks


def _view_strides(kind: ArrayKind, x: AnyArray, resolved: ResolvedAxes) -> Dims | None:
    """Return the strides of a view that is the result, in the unit of the array's own, or None if there is none."""
    if 0 in resolved.shape:
        return row_major_strides(resolved.shape)
    return joined_strides(resolved.groups, source_strides(resolved, tuple(kind.form(x)[1])))


def _require_shape(out: AnyArray, shape: Dims) -> None:
    """Check the shape of `out`."""
    if tuple(out.shape) != shape:
        raise InvalidArguments(f"out has shape {tuple(out.shape)}, but the result has {shape}: give an array of that")


def _types(
    form: StridedForm, out_form: StridedForm | None, options: RearrangeOptions
) -> tuple[DataType, DataType, bool]:
    """Return the types of both sides, and True if elements are computed on the way."""
    wanted = None if options.dtype is None else as_data_type(_plain_dtype(options.dtype))
    dst_type = wanted or form.data_type
    if out_form is not None:
        if wanted is not None and not (out_form.is_described and wanted == out_form.data_type):
            raise InvalidArguments(f"dtype is {wanted}, but out holds {out_form.dtype}: leave dtype out")
        dst_type = out_form.data_type
    if wanted is None:
        is_same = out_form is None or form.has_type_of(out_form)
    else:
        is_same = form.is_described and wanted == form.data_type
    if is_same and options.scale is None:
        return form.data_type, dst_type, False
    is_computable = dst_type.is_number and not dst_type.is_sub_byte and (out_form is None or out_form.is_number)
    if form.is_number and is_computable:
        return form.data_type, dst_type, True
    problem = "have no scale" if is_same else f"are never converted to {wanted or (out_form or form).dtype}"
    raise InvalidArguments(f"elements of {form.dtype} {problem}: convert the array first")


def _plain_dtype(dtype: Any) -> DataTypeLike:
    """Return the name of a type of PyTorch, and any other type itself."""
    return str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype


def _refuse_copy(purpose: str, options: RearrangeOptions) -> NoReturn:
    """Raise the error of a call that may not copy."""
    target = "write to out" if options.out is not None else purpose
    raise InvalidArguments(
        f"copy is False, but no view of the array is the result, which must {target}: leave copy out"
    )


# Moves


def _find_move(
    form: StridedForm, dst: _Side, resolved: ResolvedAxes, src_type: DataType, counts: list[int], is_scaled: bool
) -> AxisMove | None:
    """Return the move between both sides, or None if it has too many axes."""
    extents = [n for lengths in resolved.groups for n in lengths]
    src_strides = source_strides(resolved, form.strides)
    dst_strides = destination_strides(resolved.groups, dst.strides)
    axes = [MovedAxis(*axis) for axis in zip(extents, src_strides, dst_strides, counts, strict=True)]
    return find_move(merge_axes(axes), src_type, dst.data_type, is_scaled)


def _scale_counts(resolved: ResolvedAxes, scale: Any) -> tuple[list[int], npt.NDArray[Any] | None]:
    """Return the number of scales along each elementary axis of the result, and the scales as an array."""
    extents = [n for lengths in resolved.groups for n in lengths]
    if scale is None:
        return [1] * len(extents), None
    scales = as_real_array("values of scale", scale)
    shape = resolved.shape
    whole = (1,) * (len(shape) - scales.ndim) + scales.shape
    if len(whole) != len(shape) or any(count not in (1, n) for count, n in zip(whole, shape, strict=True)):
        raise InvalidArguments(f"scale has shape {scales.shape}, which is not broadcast to the result's shape {shape}")
    counts = [n if count > 1 else 1 for lengths, count in zip(resolved.groups, whole, strict=True) for n in lengths]
    return counts, scales


def _scale_values(move: AxisMove, scales: npt.NDArray[Any]) -> Operands:
    """Return the values of the attributes of a move."""
    given = float(scales.reshape(-1)[0]) if scales.size == 1 else scales.reshape(move.scale_shape)
    return operands(move.attributes, move.dims, {"src_scales": given})


def _runner(move: AxisMove, values: Operands | None) -> Callable[[int, int], Any]:
    """Return the function that moves between the addresses of both first elements, for destinations at their lowest."""
    reorder = move.reorder
    if move.attributes is PLAIN:
        return reorder.direct_move() if isinstance(reorder, CompiledReorder) else reorder.run
    return lambda src, dst: reorder.run(src, dst, values)


def _alignment_mask(itemsize: int) -> int:
    """Return the bits of an address that are 0 where elements of this size may begin."""
    return min(itemsize, 8) - 1


def _new_result_call(
    kind: ArrayKind, dst: _Side, move: AxisMove, resolved: ResolvedAxes, values: Operands | None
) -> ArrayCall:
    """Return the call that moves into a new array."""
    address, low, allocate = kind.address, move.src_range[0], kind.allocator(resolved.shape, dst.strides, dst.dtype)
    run, mask = _runner(move, values), _alignment_mask(move.src_itemsize)

    def call(x: AnyArray, out: AnyArray) -> AnyArray:
        src = address(x)
        if src & mask:
            aligned = _aligned_bytes(src, move.src_range)
            src = address_of(aligned) - low
        result = allocate()
        run(src + low, address(result))
        return result

    return call


def _aligned_bytes(address: int, extent: tuple[int, int]) -> Bytes:
    """Return a copy of the bytes of a range, given from this address on, that begins at a multiple of 64."""
    low, high = extent
    copied = allocate(high - low)
    copied[:] = bytes_at(address + low, high - low)
    return copied


def _out_call(
    kind: ArrayKind,
    form: StridedForm,
    dst: _Side,
    move: AxisMove,
    shape: Dims,
    values: Operands | None,
) -> ArrayCall:
    """Return the call that moves an array of this form into `out`, which has this shape."""
    address, out_address, is_writable = kind.address, dst.kind.address, dst.kind.is_writable
    run, mask, out_mask = _runner(move, values), _alignment_mask(move.src_itemsize), _alignment_mask(move.dst_itemsize)
    (src_low, src_high), (dst_low, dst_high) = move.src_range, move.dst_range

    def call(x: AnyArray, out: AnyArray) -> AnyArray:
        src, to = address(x), out_address(out)
        if src + src_low < to + dst_high and to + dst_low < src + src_high:
            read = _bytes_of_elements(src, move.src_range, form.shape, form.strides, move.src_itemsize)
            _require_apart(read, _bytes_of_elements(to, move.dst_range, shape, dst.strides, move.dst_itemsize))
        if not is_writable(out):
            raise InvalidArguments("out is read-only: give a writable array, or none to have one made")
        if to & out_mask:
            raise InvalidArguments(
                f"out begins at an address that is no multiple of the {out_mask + 1} bytes of its elements"
            )
        if src & mask:
            aligned = _aligned_bytes(src, move.src_range)
            src = address_of(aligned) - src_low
        run(src + src_low, to + dst_low)
        return out

    return call


def _bytes_of_elements(address: int, extent: tuple[int, int], shape: Dims, strides: Dims, itemsize: int) -> Bytes:
    """Return a view of the bytes of the elements of an array, with one more axis; strides are in elements."""
    low, high = extent
    steps = (*(stride * itemsize for stride in strides), 1)
    return np.ndarray((*shape, itemsize), np.uint8, bytes_at(address + low, high - low), -low, steps)


def _require_apart(read: Bytes, written: Bytes) -> None:
    """Check that no byte is read and written, by views whose ranges overlap.

    Raises:
        InvalidArguments: a byte is in both views, or the search for one takes too long.
    """
    with suppress(np.exceptions.TooHardError):
        if not np.shares_memory(read, written, max_work=_MOST_WORK):  # type: ignore[arg-type]
            return
    raise InvalidArguments("out shares bytes with the array: a rearrangement is not done in place, give another")


# Arrays that no reorder moves


def _framework_out_call(kind: ArrayKind, steps: AxisSteps) -> ArrayCall:
    """Return the call that writes to `out` by the functions of the framework, whose errors name `out`."""

    def call(x: AnyArray, out: AnyArray) -> AnyArray:
        try:
            kind.assign(out, kind.apply(x, steps))
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArguments(f"out cannot be written by the framework of the array: {error}") from error
        return out

    return call


def _framework_call(kind: ArrayKind, resolved: ResolvedAxes, options: RearrangeOptions, can_view: bool) -> ArrayCall:
    """Return the call that rearranges by the functions of the framework."""
    if options.computes:
        raise Unimplemented(
            "dtype and scale need an array that a reorder moves: on the CPU, without gradients, of a data type of "
            "Inlay; convert and multiply others with their own functions"
        )
    if options.copy is False and (not can_view or options.out is not None):
        _refuse_copy("move elements", options)

    # Where strides do not suffice, the last step has copied already.
    steps, needs_copy = AxisSteps.of(resolved), options.copy and can_view
    if options.out is not None:
        return _framework_out_call(kind, steps)

    def call(x: AnyArray, out: AnyArray) -> AnyArray:
        result = kind.apply(x, steps)
        return kind.copy(result) if needs_copy else result

    if options.order is not None:
        return _ordered_copy_call(kind, steps, options.order)
    return call


def _ordered_copy_call(kind: ArrayKind, steps: AxisSteps, order: tuple[int, ...]) -> ArrayCall:
    """Return the call that makes a copy whose axes are stored in this order, outermost first."""
    back = tuple(order.index(axis) for axis in range(len(order)))

    def call(x: AnyArray, out: AnyArray) -> AnyArray:
        return kind.permute(kind.copy(kind.permute(kind.apply(x, steps), order)), back)

    return call
