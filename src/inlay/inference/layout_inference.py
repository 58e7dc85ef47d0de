"""`infer`: the memory layout or compound format behind a table, a packer, or a pair of buffers."""

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from inlay.arguments import as_integer
from inlay.data_type import DataType, DataTypeLike, as_data_type
from inlay.descriptor.validation import as_integers
from inlay.errors import InvalidArguments, shown
from inlay.inference.compound_inference import InferredCompound, infer_compound
from inlay.inference.diagnosis import explain_observation, separate_padding
from inlay.inference.observation import Observation
from inlay.inference.packers import PackerCall, c_call, observe_packer, python_call, run_packer
from inlay.inference.results import Diagnosis, InferredLayout
from inlay.inference.tables import TableKind, observe_pair, observe_table
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.memory.compound import CompoundMemory

Source: TypeAlias = "npt.NDArray[Any] | Sequence[int] | bytes | Memory | CompoundMemory | Callable[..., Any]"
"""A table of indices, a packed buffer, or a packer."""

StreamSpecs: TypeAlias = Mapping[str, tuple[str, Sequence[int]]]
"""Type and dims of the array of each stream, by name."""

_MOST_ELEMENTS = 1 << 28
_FUNCTION_POINTER: type = ctypes._CFuncPtr  # type: ignore[attr-defined]


@overload
def infer(
    source: Source,
    dims: Iterable[int],
    data_type: DataTypeLike | None = None,
    *,
    table: TableKind | None = None,
    marker: int = -1,
    logical: npt.NDArray[Any] | None = None,
    length: int | None = None,
    signature: Sequence[object] | None = None,
    streams: None = None,
) -> InferredLayout | Diagnosis: ...


@overload
def infer(
    source: Callable[..., Any] | Sequence[object],
    dims: Iterable[int],
    *,
    logical: Sequence[Mapping[str, npt.NDArray[Any]]] | None = None,
    length: int | None = None,
    streams: StreamSpecs,
) -> InferredCompound | Diagnosis: ...


def infer(
    source: Any,
    dims: Iterable[int],
    data_type: DataTypeLike | None = None,
    *,
    table: TableKind | None = None,
    marker: int = -1,
    logical: Any = None,
    length: int | None = None,
    signature: Sequence[object] | None = None,
    streams: StreamSpecs | None = None,
) -> InferredLayout | InferredCompound | Diagnosis:
    """Return the memory layout that a table, a packer or a pair of buffers shows, or the diagnosis why there is none.

    `source` is one of:

    - a table of integers. `table` is "physical" (the row-major index of the element in each place, `marker` where there
      is none) or "logical" (the place of each element, in elements). By default, a table of shape `dims` with several
      axes or with places beyond the elements is "logical", any other "physical".
    - a packer: `packer(array)` returns the packed array. With `length` (elements), `packer(array, buffer)` fills a
      buffer instead, and what it does not write is known. It is called a few times with different indices.
    - a C function of ctypes, or its address as an integer, with `length`; it fills the buffer. `signature` are its
      arguments, "src" and "dst" for the addresses; by default ("src", "dst").
    - a packed buffer of the array `logical`, whose values are all different.

    `data_type` is that of `logical` by default, or else f32. Packed arrays are row-major, and packers leave their input
    as it is.

    Packers of 4-bit types get one element in a byte (of `ml_dtypes`) and return or fill bytes of two, the even element
    in the low half; C functions read two in a byte.

    With `streams`, the result is the compound format of quants, scales and minima in one buffer. `streams` are the
    types and dims of the arrays, with a number for each element first: {"quants": ("u4", (2, 64)), "scale": ("f16",
    (2, 2))}; integers of fewer than 8 bits are arrays of u8 or s8. `source` is a packer, called with a dict of arrays
    of any bits, which returns the buffer, or with `length` (bytes) fills its second argument; or a list of buffers, and
    `logical` a list of dicts. `data_type`, `table`, `marker` and `signature` do not matter.

    Post-condition: for an `InferredLayout`, result.desc.offset(x) is the observed place of every coordinate x; for an
        `InferredCompound`, result.desc.locate(stream, x) are the observed bits.

    Raises:
        InvalidArguments: `source` is none of these, an index is out of range, the packer fails, changes its input or
            writes outside of its buffer, values of `logical` are equal, `streams` are no types and dims, or an argument
            is of a wrong type.
        Unimplemented: elements of packers and pairs have 128 bits.

    >>> print(infer([0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11], (3, 4), "u8"))
    ba: dims 3x4 of u8
        a table of as many places as elements is read as physical -> logical; table='logical' reads the inverse
    >>> def pack(x):
    ...     padded = np.pad(x, [(0, 0), (0, 7), (0, 0)])
    ...     return padded.reshape(2, 3, 8, 5).swapaxes(2, 3).copy()
    >>> infer(pack, (2, 17, 5), "f16").tag
    'aBc8b'
    >>> print(infer([0, 1, 2, 3, 4, 6, 5, 7], (2, 4), table="logical"))
    elements 5 at (1, 1) and 6 at (1, 2) are exchanged
        nearest layout: ab: dims 2x4 of f32
    >>> def pack_q8(arrays):
    ...     scale = arrays["d"][..., None].view(np.uint8)
    ...     return np.concatenate([scale, arrays["q"].reshape(2, 2, 32).view(np.uint8)], axis=2)
    >>> print(infer(pack_q8, (2, 64), streams={"q": ("s8", (2, 64)), "d": ("f16", (2, 2))}))
    ggml:Q8_0 2x64: blocks of 32 elements in 34 bytes
        q of quants: 2x64 of 8 bits, as s8
        d of scale: 2x2 of 16 bits, as f16
    """
    sizes = as_dims(dims)
    length = as_length(length)
    if streams is not None:
        return infer_compound(source, sizes, streams, logical, length)
    element = type_of_elements(data_type, logical)
    return explain_observation(observe(source, sizes, element, table, marker, logical, length, signature))


def type_of_elements(data_type: DataTypeLike | None, logical: object) -> DataType:
    """Return the data type that is passed, or else that of a logical array, or else f32.

    Raises:
        InvalidArguments: it is no data type.
    """
    if data_type is None:
        data_type = logical.dtype if isinstance(logical, np.ndarray) else "f32"
    return as_data_type(data_type)


def as_length(length: object) -> int | None:
    """Return the checked length of a buffer.

    Raises:
        InvalidArguments: it is no integer of 1 to 2**32.
    """
    return None if length is None else as_integer("length", length, 1, 1 << 32)


def as_dims(dims: Iterable[int]) -> Dims:
    """Return checked dims of a tensor that inference can observe.

    Raises:
        InvalidArguments: `dims` are no sequence of positive integers, or have more than 2**28 elements.
    """
    sizes = as_integers("dims", dims)
    if not sizes or min(sizes) < 1:
        raise InvalidArguments(f"dims are {sizes}: a layout can be inferred from dims of 1 or more")
    count = prod(sizes)
    if count > _MOST_ELEMENTS:
        raise InvalidArguments(f"dims {sizes} have {count} elements: infer the layout from at most 2**28")
    return sizes


def observe(
    source: Source,
    dims: Dims,
    data_type: DataType,
    table: TableKind | None,
    marker: int,
    logical: npt.NDArray[Any] | None,
    length: int | None,
    signature: Sequence[object] | None,
) -> Observation:
    """Return what a source shows; the arguments are those of `infer`.

    Raises:
        InvalidArguments, Unimplemented: as `infer`.
    """
    if table is not None and (type(table) is not str or table not in ("physical", "logical")):
        raise InvalidArguments(f"table is {shown(table)}: give 'physical', 'logical', or None")
    call = as_call(source, data_type, length, signature)
    if call is not None:
        return observe_packer(run_packer(call, dims, data_type, length), dims, data_type)
    if logical is not None:
        return separate_padding(observe_pair(source, logical, dims, data_type))
    if isinstance(source, (list, tuple)):
        source = _as_table(source)
    if not isinstance(source, np.ndarray) or source.dtype == object:
        raise InvalidArguments(
            f"source is {shown(source)}: give a table of integers, a packer, or a packed buffer with logical="
        )
    return observe_table(source, dims, data_type, table, as_integer("marker", marker, -(2**62), 2**62))


def _as_table(entries: Sequence[Any]) -> npt.NDArray[Any]:
    """Return a sequence of integers as an array.

    Raises:
        InvalidArguments: it has other entries, or is uneven.
    """
    try:
        table = np.array(entries)
    except (ValueError, TypeError, OverflowError, RecursionError):
        table = np.array(None)
    if table.dtype == object:
        raise InvalidArguments(
            f"table is {shown(entries)}: give lists of equal length, of integers, with marker= where no element is"
        )
    return table


def as_call(
    source: object, data_type: DataType, length: int | None, signature: Sequence[object] | None
) -> PackerCall | None:
    """Return the call of a packer, or None if `source` is none.

    Raises:
        InvalidArguments: a C function has no `length`, or `signature` is wrong or has no function.
    """
    is_address = type(source) is int and not (signature is None and length is None)
    if is_address or isinstance(source, _FUNCTION_POINTER):
        if length is None:
            raise InvalidArguments("a C function fills a buffer: give its length= in elements")
        arguments = ("src", "dst") if signature is None else signature
        if not isinstance(arguments, (tuple, list)):
            raise InvalidArguments(f"signature is {shown(signature)}: give a tuple such as ('src', 'dst', 2, 17)")
        return c_call(_at_address(source) if is_address else source, arguments, data_type)
    if signature is not None:
        raise InvalidArguments(f"signature is that of a C function, but source is {shown(source)}: leave it out")
    if callable(source) and not isinstance(source, np.ndarray):
        return python_call(source, data_type, length is not None)
    return None


def _at_address(address: Any) -> Any:
    """Return the C function without a result at an address.

    Raises:
        InvalidArguments: the address is no positive number of 64 bits.
    """
    return ctypes.CFUNCTYPE(None)(as_integer("address", address, 4096, 2**63 - 1))
