"""`rearrange`, `repeat`, `transpose`, `ascontiguous`: the axes of any array in another order, at the speed of reorders.

The functions return the kind of array that they are given. Where strides can express the result, it is a view; else the
elements are moved by a compiled reorder, which also converts and scales them on the way:

    pattern and shape -> elementary axes -> view, or move -> call

The last step is a function of an array and a destination. It is kept in a dictionary whose key is the form of a call:
pattern, shape, strides, types, options and lengths. A call of a form that was seen before does nothing but look it up.

An array that no reorder can move is rearranged by the functions of its framework: on another device, under automatic
differentiation or tracing, of objects, with more than 12 axes that cannot be joined.

>>> import numpy as np
>>> patches = rearrange(np.arange(48).reshape(2, 4, 6), "b (h p) (w q) -> (b h w) (p q)", p=2, q=3)
>>> patches.shape, patches[1].tolist()
((8, 6), [3, 4, 5, 9, 10, 11])

Source: the notation is that of einops (see `einops_notation`).
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from inlay.arguments import as_entries, as_flag, as_integer
from inlay.errors import InvalidArguments, OutOfMemory, Unimplemented, shown
from inlay.memory import Memory
from inlay.memory.buffers import view_as_array
from inlay.notation.format_tag import FormatTag
from inlay.rearranging.array_calls import ArrayCall, RearrangeOptions, plan_call
from inlay.rearranging.array_kinds import (
    AnyArray,
    ArrayKind,
    NumpyArrays,
    StridedForm,
    TorchTensors,
    from_numpy_like,
    jax_of_numpy,
    jax_steps,
)
from inlay.rearranging.axis_moves import row_major_strides
from inlay.rearranging.einops_notation import Operation, ResolvedAxes, parse_rearrangement, resolve_axes

MOST_CALLS = 4096
"""Number of forms of calls that are remembered."""

_MOST_ELEMENTS = 1 << 62
_NUMBERS = (int, float, np.generic, type(None))
_NUMPY = NumpyArrays()
_calls: dict[tuple[Any, ...], ArrayCall] = {}
_kinds: dict[type, ArrayKind] = {np.ndarray: _NUMPY}
_forms: dict[type, Callable[[AnyArray], tuple[Any, ...]]] = {np.ndarray: _NUMPY.form}


def rearrange(
    x: AnyArray,
    /,
    pattern: str,
    *,
    out: AnyArray = None,
    dtype: Any = None,
    scale: Any = None,
    copy: Any = None,
    **lengths: Any,
) -> AnyArray:
    """Return `x` with its axes split, permuted and joined as the pattern says.

    Args:
        x: an array of NumPy, PyTorch or JAX, any object with DLPack, `__array_interface__` or the buffer protocol, or a
            list of arrays of equal shape, which are stacked along a new first axis.
        pattern: the axes of `x`, an arrow, and the axes of the result (see `einops_notation`).
        out: array of the shape of the result, which is written and returned; it may have any strides.
        dtype: data type of the result; values are rounded to nearest even and saturate, as in `reorder`.
        scale: number, or array that is broadcast to the result, by which elements are multiplied in f32 (f64 elements
            in f64) before they are converted.
        copy: True returns new memory always, False raises an error where a view does not suffice.
        lengths: lengths of axes by name. An axis that is named `out`, `dtype`, `scale` or `copy` takes its length from
            the argument of that name, which then is no option.

    Post-conditions:
        result.shape has the product of each group of the right side.
        The element of the result at the coordinates of the right side is that of `x` at those of the left side.
        Without `out`, `dtype` and `scale`, the result is a view if strides can express it and `copy` is not True; else
        it is row-major.

    Raises:
        PatternError: `pattern` is no pattern, or does not fit the shape of `x`; the place is marked.
        InvalidArguments: `x` or `out` is no array, the arrays of a list differ in shape, a length is no whole number or
            names no axis, `out` has another shape or type, is read-only or shares bytes with `x`, `dtype` is no data
            type or one of the types is never converted, `scale` does not fit the result, or `copy` is False and strides
            do not suffice.
        Unimplemented: `dtype` or `scale` is given for an array that no reorder can move.
        OutOfMemory: the operating system cannot provide the bytes of the result.

    >>> import numpy as np
    >>> x = np.arange(12, dtype=np.float32).reshape(3, 4)
    >>> rearrange(x, "a (b c) -> b (c a)", b=2, dtype="s8", scale=0.5).tolist()
    [[0, 2, 4, 0, 2, 4], [1, 3, 5, 2, 4, 6]]
    >>> np.shares_memory(rearrange(x, "a b -> b a"), x)
    True
    """
    rest = (pattern, dtype, scale, copy, *lengths.items())
    call = _find_call("rearrange", x, out, rest)
    if call is None:
        return _rearrange_new_form(("rearrange", rest), x, pattern, RearrangeOptions(out, dtype, scale, copy), lengths)
    return call(x, out)


def repeat(
    x: AnyArray,
    /,
    pattern: str,
    *,
    out: AnyArray = None,
    dtype: Any = None,
    scale: Any = None,
    copy: Any = None,
    **lengths: Any,
) -> AnyArray:
    """Return `x` with its axes rearranged, and repeated along the axes that only the right side of the pattern has.

    Arguments are those of `rearrange`. The length of a new axis is written in the pattern or passed by name. A result
    that strides can express is a view, in which several coordinates share an element; NumPy's is read-only.

    Post-condition: the element of the result at the coordinates of the right side is that of `x` at those of the left.

    Raises:
        PatternError, InvalidArguments, Unimplemented, OutOfMemory: as `rearrange`; or the length of a new axis is
            unknown.

    >>> import numpy as np
    >>> repeat(np.arange(3), "w -> 2 (w copies)", copies=2).tolist()
    [[0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]]
    """
    rest = (pattern, dtype, scale, copy, *lengths.items())
    call = _find_call("repeat", x, out, rest)
    if call is None:
        return _rearrange_new_form(("repeat", rest), x, pattern, RearrangeOptions(out, dtype, scale, copy), lengths)
    return call(x, out)


def transpose(x: AnyArray, axes: Sequence[int] | None = None, *, out: AnyArray = None) -> AnyArray:
    """Return a row-major copy of `x` with its axes permuted, or write it to `out`; axes are reversed if None.

    Post-condition: result.shape[i] == x.shape[axes[i]], and the elements are those of NumPy's `transpose`.

    Raises:
        InvalidArguments: `axes` are not each axis of `x` once, `x` is no array, or `out` does not fit.
        OutOfMemory: the operating system cannot provide the bytes of the result.

    >>> import numpy as np
    >>> transpose(np.arange(6).reshape(2, 3)).flags.c_contiguous
    True
    """
    call = _find_call("transpose", x, out, axes)
    if call is not None:
        return call(x, out)
    x = _as_array(x)
    order = tuple(range(x.ndim))[::-1] if axes is None else _as_permutation(axes, x.ndim)
    return _run(("transpose", axes), x, _permutation_of_axes(x, order), RearrangeOptions(out, copy=True))


def ascontiguous(x: AnyArray, order: str | Sequence[int] = "C") -> AnyArray:
    """Return an array of the shape of `x` whose elements are dense in memory, in this order of the axes.

    `order` is "C" for row-major, "F" for column-major, the axes from the outermost in memory to the innermost, or a
    format tag without blocks such as "nhwc" in oneDNN's order of logical axes. `x` itself is returned if its elements
    are in this order.

    Post-condition: the result equals `x`, and permuted to `order` it is row-major.

    Raises:
        InvalidArguments: `order` is none of these, is a tag with blocks or of other axes, or `x` is no array.
        FormatTagError: `order` is text that is no tag.
        OutOfMemory: the operating system cannot provide the bytes of the result.

    >>> import numpy as np
    >>> ascontiguous(np.zeros((2, 3, 4, 5), np.int8), "nhwc").strides
    (60, 1, 15, 3)
    """
    call = _find_call("ascontiguous", x, None, order)
    if call is not None:
        return call(x, None)
    x = _as_array(x)
    axes = _memory_order(order, x.ndim)
    kind = _kind_of(x)
    if kind is None:
        raise Unimplemented(f"a {type(x).__name__} has no order of its axes in memory: use inlay.transpose")
    form = kind.describe(kind.permute(x, axes))
    if form is not None and _is_row_major(form):
        call = _same_array
    else:
        same_axes = _permutation_of_axes(x, range(len(axes)))
        call = plan_call(kind, x, same_axes, RearrangeOptions(copy=True, order=tuple(axes)), None, is_repeated=True)
    _remember(("ascontiguous", order), x, None, call)
    return call(x, None)


def _same_array(x: AnyArray, out: AnyArray) -> AnyArray:
    """Return the array itself."""
    return x


# Calls by the form of their arguments


def _find_call(function: str, x: AnyArray, out: AnyArray, rest: object) -> ArrayCall | None:
    """Return the remembered call of a function with arrays of these forms and the rest of its arguments, or None."""
    try:
        form = None if out is None else _forms[type(out)](out)
        return _calls[function, _forms[type(x)](x), form, rest]
    except (AttributeError, KeyError, RuntimeError, TypeError):
        return None  # a new form, an array without strides, or a rest that has no hash


def _remember(key: tuple[str, object], x: AnyArray, out: AnyArray, call: ArrayCall) -> None:
    """Store a call under the key by which `_find_call` looks it up, if it can be hashed."""
    if type(x) not in _forms or (out is not None and type(out) not in _forms):
        return
    form = None if out is None else _forms[type(out)](out)
    if len(_calls) >= MOST_CALLS:
        _calls.clear()
    with suppress(TypeError):  # the scale is an array, or the axes are a list
        _calls[key[0], _forms[type(x)](x), form, key[1]] = call


# Forms of calls that are new


def _rearrange_new_form(
    key: tuple[Operation, object], x: AnyArray, pattern: str, options: RearrangeOptions, lengths: dict[str, Any]
) -> AnyArray:
    """Parse the pattern, run the call, and remember it."""
    parsed = parse_rearrangement(pattern, key[0])
    for name in ("out", "dtype", "scale", "copy"):
        value = getattr(options, name)
        if name in parsed.names and value is not None:
            lengths = {**lengths, name: value}
            options = replace(options, **{name: None})
    if isinstance(x, (list, tuple)):
        if options.copy is False:
            raise InvalidArguments("copy is False, but a list of arrays is stacked, which copies: leave copy out")
        x = _stack(x)
    array = _as_array(x)
    resolved = resolve_axes(parsed, tuple(array.shape), lengths)
    # Other objects with a hash, such as tensors, may hold another number at the next call. 0.0 and -0.0 are one key.
    is_zero = isinstance(options.scale, (int, float, np.number)) and options.scale == 0
    is_fixed = not is_zero and all(isinstance(value, _NUMBERS) for value in (options.scale, *lengths.values()))
    return _run(key if is_fixed else None, array, resolved, options)


def _run(key: tuple[str, object] | None, x: AnyArray, resolved: ResolvedAxes, options: RearrangeOptions) -> AnyArray:
    """Run a rearrangement; remember the call by `key` and the forms of the arrays, unless `key` is None."""
    if prod(resolved.shape) > _MOST_ELEMENTS:
        raise OutOfMemory(f"the result of shape {resolved.shape} has more than 2**62 elements")
    copy = None if options.copy is None else as_flag("copy", options.copy)
    options = replace(options, copy=copy)
    kind = _kind_of(x)
    if kind is None:
        return _rearrange_foreign(x, resolved, options)
    out_kind = None if options.out is None else _destination_kind(options.out)
    call = plan_call(kind, x, resolved, options, out_kind, is_repeated=key is not None)
    if key is not None:
        _remember(key, x, options.out, call)
    return call(x, options.out)


# Kinds


def _as_array(x: AnyArray) -> AnyArray:
    """Return an array of NumPy, PyTorch or JAX, or of another library that exports its memory, as it is."""
    if type(x) is np.ndarray:
        return x
    if isinstance(x, Memory):
        return x.numpy()
    if _torch_of(x) is not None or _jax_of(x) is not None:
        return x
    values = view_as_array(x, "x")
    return x if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray) else np.asarray(values)


def _kind_of(x: AnyArray) -> ArrayKind | None:
    """Return the kind of an array of NumPy or PyTorch; None for an array that is read through NumPy."""
    kind = _kinds.get(type(x))
    if kind is not None:
        return kind
    torch = _torch_of(x)
    if torch is None:
        return None
    tensors = TorchTensors(torch)
    for ordinary in (torch.Tensor, torch.nn.Parameter):
        _kinds[ordinary], _forms[ordinary] = tensors, tensors.form
    return _kinds.get(type(x), tensors)


def _destination_kind(out: AnyArray) -> ArrayKind:
    """Return the kind of a destination, which is an array of NumPy or PyTorch."""
    kind = _NUMPY if isinstance(out, np.ndarray) and not hasattr(out, "mask") else _kind_of(out)
    if kind is None:
        raise InvalidArguments(
            f"out is a {type(out).__name__}, which cannot be written in place: give an array of NumPy or PyTorch"
        )
    return kind


def _torch_of(x: AnyArray) -> Any:
    """Return the module of PyTorch if `x` is a tensor of it, else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(x, torch.Tensor) else None


def _jax_of(x: AnyArray) -> Any:
    """Return the module of JAX if `x` is an array or a tracer of it, else None."""
    jax = sys.modules.get("jax")
    return jax if jax is not None and isinstance(x, jax.Array) else None


def _stack(arrays: Sequence[AnyArray]) -> AnyArray:
    """Return arrays of one kind and shape as one array, with a new first axis."""
    if not arrays:
        raise InvalidArguments("the list of arrays is empty: give at least one array")
    members = [_as_array(array) for array in arrays]
    first = members[0]
    for i, member in enumerate(members):
        if type(member) is not type(first) or tuple(member.shape) != tuple(first.shape):
            raise InvalidArguments(
                f"array {i} of the list is a {type(member).__name__} of shape {tuple(member.shape)}, the first a "
                f"{type(first).__name__} of {tuple(first.shape)}: give arrays of one kind and shape"
            )
    kind, jax = _kind_of(first), _jax_of(first)
    if kind is not None:
        return kind.stack(members)
    if jax is not None:
        return jax.numpy.stack(members)
    return from_numpy_like(first)(np.stack([view_as_array(member) for member in members]))


# Arrays that are read through NumPy


def _rearrange_foreign(x: AnyArray, resolved: ResolvedAxes, options: RearrangeOptions) -> AnyArray:
    """Rearrange an array of JAX or of another library with DLPack."""
    jax = _jax_of(x)
    if jax is None:
        result = _run(None, np.asarray(view_as_array(x, "x")), resolved, options)
        return result if options.out is not None else _export(x, result)
    is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended)
    is_concrete = not (is_key or isinstance(x, jax.core.Tracer)) and [d.platform for d in x.devices()] == ["cpu"]
    if not is_concrete and (options.computes or options.out is not None):
        raise Unimplemented("dtype, scale and out need a JAX array of numbers on the CPU, not one that is traced")
    keeps_order = list(resolved.order) == list(range(len(resolved.split)))
    if not is_concrete or (keeps_order and not options.computes and options.out is None and not options.copy):
        return jax_steps(jax, x, resolved)
    if options.copy is False:
        raise InvalidArguments("copy is False, but JAX arrays have no views in another order: leave copy out")
    values = np.asarray(x)
    if options.out is not None:
        return _run(None, values, resolved, options)
    return jax_of_numpy(jax, _run(None, values, resolved, replace(options, copy=True)))


def _export(x: AnyArray, result: np.ndarray[Any, Any]) -> AnyArray:
    """Return NumPy's result as an array of the library of `x`."""
    convert = from_numpy_like(x)
    try:
        return convert(result)
    except BufferError:
        return convert(np.array(result))  # a read-only view is not exported


# Orders of axes


def _permutation_of_axes(x: AnyArray, order: Sequence[int]) -> ResolvedAxes:
    """Return the rearrangement that permutes whole axes."""
    shape = tuple(x.shape)
    return ResolvedAxes(tuple((n,) for n in shape), tuple(order), tuple((shape[i],) for i in order))


def _as_permutation(axes: object, count: int, name: str = "axes") -> tuple[int, ...]:
    """Check that the argument `name` is each of `count` axes once; negative ones count from the end."""
    entries = tuple(as_integer("an axis", axis, -count, count - 1) for axis in as_entries(name, axes))
    order = tuple(axis % count for axis in entries)
    if sorted(order) != list(range(count)):
        raise InvalidArguments(f"{name} is {shown(axes)}: give each of the {count} axes of the array once")
    return order


def _memory_order(order: object, count: int) -> list[int]:
    """Return the axes from the outermost in memory to the innermost."""
    if isinstance(order, str) and order in ("C", "F"):
        return list(range(count)) if order == "C" else list(range(count))[::-1]
    if not isinstance(order, (str, FormatTag)):
        return list(_as_permutation(order, count, "order"))
    tag = order if isinstance(order, FormatTag) else FormatTag.parse(order)
    if tag.inner_blocks or tag.ndims != count:
        raise InvalidArguments(
            f"order is {shown(tag.spelling)}, but the array has {count} axes and no blocks: give such a tag, 'C' "
            "or 'F'; inlay.pack makes blocked memory"
        )
    return list(tag.order)


def _is_row_major(form: StridedForm) -> bool:
    """Return True if the elements are dense and in row-major order."""
    expected = row_major_strides(form.shape)
    return all(n <= 1 or a == b for n, a, b in zip(form.shape, form.strides, expected, strict=True))
