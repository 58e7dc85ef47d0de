"""`pack` copies a logical array into memory, `reorder` copies memory into another format, `Reorder` is reused.

A reorder is compiled for a pair of descriptors and attributes, and then runs on two addresses. `pack`, `unpack` and
`reorder` use the cache of `reorder_cache`, so a second call with equal descriptors compiles nothing; a `Reorder` holds
its compiled reorder itself. Sparse memory has several buffers and is converted by `sparse_entries`.
"""

from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.forks import import_lock
from inlay.layout import Dims
from inlay.memory.buffers import address_of, decode_elements, encode_elements, view_as_array
from inlay.memory.memory import Format, Memory, new_result, require_memory
from inlay.memory.padding_contents import ZERO
from inlay.memory.reorder_cache import AnyReorder, cached_desc, find_reorder
from inlay.memory.sparse_entries import (
    Entries,
    convert_entries,
    convert_sparse,
    nonzero_entries,
    with_data_type,
    write_sparse,
)
from inlay.notation import is_notation
from inlay.reordering.attributes import (
    PLAIN,
    QUANTIZATION_TYPES,
    Attributes,
    AttributeValues,
    infer_attributes,
    operands,
    require_seed,
)

# From logical arrays


def pack(array: object, format: Format, data_type: DataTypeLike | None = None) -> Memory:
    """Copy a logical array into new memory of this format, and convert the elements to `data_type` if it is not None.

    `array` is a NumPy or ml_dtypes array with any strides, any buffer that `Memory` can wrap, or nested lists of
    numbers, which become an array of the type that NumPy infers and are converted as such an array is; integers of a
    type that no reorder converts to (u16, bool) must be exact. `format` is any text of `parse_notation` (tag, alias,
    pattern, layout of CuTe, vendor's name), or a whole descriptor with the dims of the array. A sparse descriptor
    states the number of stored elements; `to_csr` and `to_coo` count them instead.

    Post-condition: pack(array, format).unpack() equals `array`, bit for bit if the type does not change.

    Raises:
        InvalidArguments: `array` is no array or has no axes; lists differ in length; no descriptor has its type;
            `format` is no format or has other dims; `data_type` differs from the type of the descriptor `format`; or
            `nnz` of a sparse `format` is not the number of elements with a bit set (bitmask encoding: is smaller than
            the number of nonzero elements), or its index types are too narrow.
        FormatTagError, PatternError, NotationError: `format` is text that cannot be parsed or does not fit the array.
        OutOfMemory: the operating system cannot provide the bytes of the result.

    >>> pack(np.ones((2, 3, 4, 4), np.float32), "nhwc", "bf16").desc
    MemoryDesc((2, 3, 4, 4), 'bf16', 'nhwc')
    >>> pack([[1, 2], [3, 4]], "ba", "f32").buffer.view(np.float32).tolist()
    [1.0, 3.0, 2.0, 4.0]
    """
    if type(array) is np.ndarray:
        logical = array
    else:
        wanted = format.data_type if data_type is None and isinstance(format, MemoryDesc) else data_type
        logical = _as_array(array, wanted)
    try:
        src, dst, mask = _packed_forms[logical.shape, logical.strides, logical.dtype, format, data_type]
    except (KeyError, TypeError):  # a new form, or a format without a hash
        return _pack_new_form(logical, format, data_type)
    address = address_of(logical)
    if address & mask:
        return _pack_new_form(logical, format, data_type)
    # Descriptors that are equal may be spelled differently: the memory has the one of this call.
    memory = new_result(format if isinstance(format, MemoryDesc) else dst)
    find_reorder(src, dst).run(address, memory.address)
    return memory


_MOST_FORMS = 1024
_packed_forms: dict[tuple[object, ...], tuple[MemoryDesc, MemoryDesc, int]] = {}
"""For shape, strides, type, format and data type of calls of `pack`: the descriptors of source and destination, and the
bits of the address that are 0 if the array is aligned to its elements. At most `_MOST_FORMS`."""


def _pack_new_form(array: npt.NDArray[Any], format: Format, data_type: DataTypeLike | None) -> Memory:
    """Pack an array, and remember the descriptors of the call if a reorder reads arrays of this form as they are."""
    logical = _as_array(array)
    src_type = as_data_type(logical.dtype)
    memory = new_result(_pack_destination(logical.shape, src_type, format, data_type))
    dst, dst_type = memory.desc, memory.desc.data_type
    if dst.kind == "sparse" and dst_type is not None:
        write_sparse(convert_entries(array_entries(logical), dst_type), dst, memory.buffers)
        return memory
    if src_type.is_sub_byte:
        # Two 4-bit elements share a byte in memory, but not in the array: the reorder reads a wider type.
        numbers, src_type = decode_elements(encode_elements(logical, src_type), src_type), src_type.widened
        logical = numbers.astype(src_type.dtype)
    src, source = _describe_source(logical, src_type)
    find_reorder(src, dst).run(address_of(source), memory.address)
    if source is array:
        if len(_packed_forms) >= _MOST_FORMS:
            _packed_forms.clear()
        with suppress(TypeError):  # a format without a hash
            key = (array.shape, array.strides, array.dtype, format, data_type)
            _packed_forms[key] = (src, dst, array.itemsize - 1)
    return memory


def _with_zero_padding(memory: Memory) -> Memory:
    """Return `memory` with the statement that its padding is zero, which every reorder writes."""
    if memory._padding is not ZERO:
        memory.note_padding(ZERO)
    return memory


def array_entries(array: object) -> Entries:
    """Return the elements of a logical array that CSR and COO memory stores: those whose bits are not all 0.

    A negative zero is thus stored.

    Raises:
        InvalidArguments: `array` is no array or has no axes, or no sparse memory has its type.

    >>> array_entries(np.array([[0, 7], [9, 0]], np.int8)).flat_indices.tolist()
    [1, 2]
    """
    logical = _as_array(array)
    data_type = as_data_type(logical.dtype)
    if not data_type.is_number:
        raise InvalidArguments(
            f"sparse tensors hold numbers, and {data_type} can only be copied: convert the array with astype"
        )
    return nonzero_entries(logical.shape, data_type, encode_elements(logical, data_type))


def _as_array(array: object, data_type: DataTypeLike | None = None) -> npt.NDArray[Any]:
    """Return `array` as a NumPy array with at least one axis; lists become an array of `data_type` if it is not None.

    Raises:
        InvalidArguments: `array` is no array or has no axes, or lists differ in length or hold no numbers.
    """
    if isinstance(array, (str, int, float)):
        raise InvalidArguments(
            f"array is of type {type(array).__name__}, which has no data type: give an array, "
            "as np.asarray(values, np.float32) is"
        )
    if isinstance(array, (list, tuple)):
        array = _array_of_lists(array, None if data_type is None else as_data_type(data_type))
    logical = np.asarray(array) if isinstance(array, np.generic) else view_as_array(array)
    if not logical.ndim:
        raise InvalidArguments("array is a scalar, which has no axes to place: give it one with reshape(1)")
    return logical


def _array_of_lists(values: list[Any] | tuple[Any, ...], data_type: DataType | None) -> npt.NDArray[Any]:
    """Return nested lists of numbers as an array of the type that NumPy infers; of `data_type` if no reorder converts.

    Raises:
        InvalidArguments: lists differ in length or hold no numbers, or `data_type` cannot hold one of them.
    """
    numbers: npt.NDArray[Any] = np.empty(0, object)
    with suppress(ValueError, TypeError, OverflowError):
        numbers = np.asarray(values)
    if numbers.dtype.kind in "OUSmMV":
        raise InvalidArguments(f"array is {shown(values)}: give lists of numbers, all of one length along each axis")
    if data_type is None or (data_type.is_number and as_data_type(numbers.dtype).is_number):
        return numbers
    kind = data_type.dtype.kind
    with np.errstate(all="ignore"):
        converted = (numbers if kind == "c" else numbers.real).astype(data_type.dtype)
    is_kept = converted == numbers if kind in "iub" else np.isreal(numbers) | (kind == "c")
    if not is_kept.all():
        raise InvalidArguments(f"array holds {numbers[~is_kept][0]}, which {data_type} cannot hold: give other numbers")
    return converted


def _pack_destination(
    dims: tuple[int, ...], src_type: DataType, format: Format, data_type: DataTypeLike | None
) -> MemoryDesc:
    """Return the descriptor of the memory that `pack` allocates."""
    dst_type = None if data_type is None else as_data_type(data_type)
    if isinstance(format, str) or is_notation(format):
        return cached_desc(dims, dst_type or src_type, format)
    if not isinstance(format, MemoryDesc):
        raise InvalidArguments(f"format is {shown(format)}: give a format tag such as 'nChw16c', or a MemoryDesc")
    if format.dims != dims:
        raise InvalidArguments(f"array has dims {dims}, but format {format!r} has {format.dims}: give equal dims")
    if dst_type not in (None, format.data_type):
        raise InvalidArguments(f"data_type is {dst_type}, but format {format!r} is {format.data_type}: leave one out")
    return format


def _describe_source(array: npt.NDArray[Any], data_type: DataType) -> tuple[MemoryDesc, npt.NDArray[Any]]:
    """Return the descriptor of an array, and the array, or a row-major copy if no descriptor has its strides."""
    width = array.itemsize
    if address_of(array) % width == 0 and all(stride % width == 0 for stride in array.strides):
        desc = _strided_desc(array.shape, tuple(stride // width for stride in array.strides), data_type)
        if not desc.is_zero:
            return desc, array
    return cached_desc(array.shape, data_type, None), np.ascontiguousarray(array)


@lru_cache(maxsize=512)
def _strided_desc(dims: Dims, strides: Dims, data_type: DataType) -> MemoryDesc:
    """Return the descriptor with these strides, or the zero descriptor if oneDNN's rules refuse the strides."""
    return MemoryDesc(dims, data_type, strides=strides, allow_empty=True)


# From memory to memory


def _as_memory(src: object) -> Memory:
    """Return `src` if it is memory; an array, or nested lists of numbers, as memory with its strides.

    The array is wrapped without a copy, unless no descriptor has its strides or its elements have 4 bits.
    """
    if isinstance(src, Memory):
        return src
    if isinstance(src, (str, int, float)):
        raise InvalidArguments(f"src is a {type(src).__name__}: give a Memory or an array")
    array = _as_array(src)
    data_type = as_data_type(array.dtype)
    width = array.itemsize
    is_aligned = address_of(array) % min(width, 8) == 0 and all(stride % width == 0 for stride in array.strides)
    return (
        Memory(array) if is_aligned and not data_type.is_sub_byte else pack(array, MemoryDesc(array.shape, data_type))
    )


def reorder(
    src: Memory | npt.ArrayLike,
    dst: Format,
    *,
    attributes: Attributes | None = None,
    out: Memory | None = None,
    src_scales: object = None,
    dst_scales: object = None,
    src_zero_points: object = None,
    dst_zero_points: object = None,
    seed: SupportsIndex | None = None,
) -> Memory:
    """Copy the elements of `src` into memory described by `dst`: into `out`, or into new memory if `out` is None.

    `src` is memory, or an array with any strides. If `dst` is text (`parse_notation`), the data type does not change;
    `any` means the format of `src`. The compiled reorder is cached. Either side may be sparse: `nnz` of a sparse `dst`
    must equal the number of elements that the source stores; `nnz` of a `dst` with bitmask encoding
    (`MemoryDesc.packed`) may be larger.

    Scales and zero points are the values that `attributes` requires. If `attributes` is None, they define the
    attributes: a number applies to the whole tensor, an array is broadcast over the dims as in NumPy, or has one entry
    for each of several groups of equal size (see `infer_attributes`). `seed` is that of stochastic rounding.

    Post-condition: result.unpack() equals src.unpack() after the computation of the attributes and the conversion to
    the type of `dst`.

    Raises:
        InvalidArguments: `src` is neither memory nor an array, or an array without axes; the dims differ; `dst` has no
            layout or its elements overlap; `out` has another descriptor, is read-only, or shares bytes with `src`;
            attributes or their values do not fit the descriptors; the attributes have a sum and `out` is None; or a
            sparse side is refused (see `sparse_entries.convert_sparse`).
        FormatTagError, PatternError, NotationError: `dst` is text that cannot be parsed or does not fit the dims.
        Unimplemented: `dst` has bitmask encoding and no tag, attributes are passed for sparse memory, or the
            destination has extras that no reorder computes.
        OutOfMemory: the operating system cannot provide the bytes of the result, or the process has so many memory
            mappings that no more machine code can be loaded.

    >>> import numpy as np
    >>> rows = Memory(MemoryDesc((2, 3), "f32", "ab"), np.arange(6, dtype=np.float32))
    >>> reorder(rows, "ba").buffer.view(np.float32).tolist()
    [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    >>> reorder(np.zeros((1, 17, 2, 2), np.float32), "nChw8c").desc.padded_dims
    (1, 24, 2, 2)
    >>> reorder(rows, MemoryDesc((2, 3), "s8", "ab"), src_scales=[[10], [-10]]).unpack()
    array([[  0,  10,  20],
           [-30, -40, -50]], dtype=int8)
    """
    src = _as_memory(src)
    desc = _resolve_destination(src.desc, dst)
    is_dense = src.desc.kind != "sparse" != desc.kind
    if is_dense and (attributes is src_scales is dst_scales is src_zero_points is dst_zero_points is seed is None):
        return _reorder_dense(src, desc, out)
    arguments: AttributeValues = dict(
        zip(QUANTIZATION_TYPES, (src_scales, dst_scales, src_zero_points, dst_zero_points), strict=True)
    )
    if attributes is None:
        attributes, arguments = infer_attributes(desc.dims, arguments)
    else:
        attributes = _validate_attributes(attributes)
    if not is_dense:
        if attributes != PLAIN or seed is not None:
            raise Unimplemented("attributes are for dense memory: convert with inlay.to_dense first, or after")
        result = _prepare_destination(src, desc, out)
        convert_sparse(src.desc, src.buffers, desc, result.buffers)
        return _with_zero_padding(result)
    if attributes.sum is not None and out is None:
        raise InvalidArguments("a sum adds to the elements of a destination: give it as out")
    values, seed_value = operands(attributes, desc.dims, arguments), require_seed(attributes, seed)
    if attributes == PLAIN:
        return _reorder_dense(src, desc, out)
    compiled = find_reorder(src.desc, desc, attributes)
    result = _prepare_destination(src, desc, out)
    compiled.run(src.address, result.address, values, seed_value)
    return _with_zero_padding(result)


def _resolve_destination(src: MemoryDesc, dst: Format) -> MemoryDesc:
    """Return the destination descriptor for the argument `dst` of `reorder`: a tag gets dims and type of `src`.

    A descriptor of format `any` becomes one with the format of `src`, or row-major if elements of `src` overlap.
    """
    if not isinstance(dst, (MemoryDesc, str)) and not is_notation(dst):
        raise InvalidArguments(f"dst is {shown(dst)}: give a format tag such as 'nChw16c', or a MemoryDesc")
    assert src.data_type is not None  # Memory has one.
    desc = dst if isinstance(dst, MemoryDesc) else cached_desc(src.dims, src.data_type, dst)
    if desc.kind != "any" or desc.dims != src.dims or desc.data_type is None:
        return desc
    if src.kind == "sparse":
        return with_data_type(src, desc.data_type)
    layout, _ = addressed_layout(src, "reorder")
    if layout.overlaps:
        return MemoryDesc(src.dims, desc.data_type)
    return MemoryDesc.from_layout(layout, desc.data_type, dims=src.dims, swizzle=src.swizzle)


def _reorder_dense(src: Memory, desc: MemoryDesc, out: Memory | None) -> Memory:
    """Copy dense memory into dense memory described by `desc`, without attributes."""
    compiled = find_reorder(src.desc, desc)
    result = _prepare_destination(src, desc, out)
    compiled.run(src.address, result.address)
    return _with_zero_padding(result)


def _prepare_destination(src: Memory, desc: MemoryDesc, out: Memory | None) -> Memory:
    """Return `out` after checking that it has this descriptor and shares no bytes with `src`, or new memory if None."""
    if out is None:
        return new_result(desc)
    require_memory(out, "out")
    if out.desc != desc:
        raise InvalidArguments(f"out is {out.desc!r}, but the destination is {desc!r}: give both the same descriptor")
    _require_apart(src, out)
    return out


class Reorder:
    """A reorder between two descriptors, compiled once and called many times, from any number of threads.

    >>> import numpy as np
    >>> src, dst = (MemoryDesc((64, 32), "u8", tag) for tag in ("ab", "ba"))
    >>> transpose = Reorder(src, dst)
    >>> one, two = Memory(src, np.arange(2048).astype(np.uint8)), Memory(dst)
    >>> transpose(one, two)
    >>> np.array_equal(one.unpack(), two.unpack())
    True
    """

    __slots__ = ("_attributes", "_dst", "_reorder", "_src")

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        attributes: Attributes | None = None,
        *,
        tune: bool | float = False,
    ) -> None:
        """Compile the reorder with these attributes.

        `tune` times candidate schedules on buffers of the same sizes, for about a second if it is True, or for `tune`
        seconds if it is a number. The fastest is stored on disk, for this machine and number of threads. Every Reorder
        of equal descriptors that is made later uses it, with `tune` or without; candidates are timed again only if
        `tune` allows more seconds than before. The result of the reorder does not depend on tuning. `explain` reports
        the decision.

        Raises:
            InvalidArguments: `src` or `dst` is no descriptor, the dims differ, a side has no layout, elements of the
                destination overlap, the attributes do not fit the descriptors (see `require_attributes`), or `tune` is
                neither a bool nor a positive number.
            Unimplemented: a dim or stride is RUNTIME, or the destination has extras that no reorder computes.
            OutOfMemory: the operating system cannot provide the buffers for tuning, or the process has so many memory
                mappings that no more machine code can be loaded.
        """
        for name, desc in (("src", src), ("dst", dst)):
            if not isinstance(desc, MemoryDesc):
                raise InvalidArguments(
                    f"{name} is {shown(desc)}: a Reorder is made from two MemoryDescs; "
                    "inlay.reorder(memory, 'nhwc') takes a tag"
                )
        self._src = src
        self._dst = dst
        self._attributes = _validate_attributes(attributes)
        self._reorder = self._find() if tune is False else self._find_tuned(tune)

    def _find(self) -> AnyReorder:
        """Return the compiled reorder from the cache of `find_reorder`."""
        is_plain = self._attributes is PLAIN
        return find_reorder(self._src, self._dst) if is_plain else find_reorder(self._src, self._dst, self._attributes)

    def _find_tuned(self, tune: Any) -> AnyReorder:
        """Return the compiled reorder after tuning it for the time that the argument `tune` allows."""
        with import_lock:
            from inlay.memory.reorder_tuning import tune_reorder, tuning_seconds  # loads the whole compiler

        seconds, reorder = tuning_seconds(tune), self._find()
        if seconds is None or reorder.problem is None:
            return reorder
        tune_reorder(self._src, self._dst, reorder.problem, seconds)
        return self._find()

    @property
    def src(self) -> MemoryDesc:
        """Descriptor of the source."""
        return self._src

    @property
    def dst(self) -> MemoryDesc:
        """Descriptor of the destination."""
        return self._dst

    @property
    def attributes(self) -> Attributes:
        """Attributes: scales, zero points, sum and rounding mode."""
        return self._attributes

    def __call__(
        self,
        src: Memory,
        dst: Memory,
        *,
        src_scales: object = None,
        dst_scales: object = None,
        src_zero_points: object = None,
        dst_zero_points: object = None,
        seed: SupportsIndex | None = None,
    ) -> None:
        """Write the elements of `src` into `dst`, and zeros into the padding of `dst`; no other byte changes.

        Scales and zero points of the attributes are passed as numbers, or as arrays with the shape that `Scales.shape`
        or `ZeroPoints.shape` returns. `seed` is that of stochastic rounding.

        Raises:
            InvalidArguments: an argument is no Memory or has another descriptor than the compiled one, source and
                destination share bytes, `dst` is read-only, or values are missing, superfluous or wrong (see
                `operands`).
        """
        require_memory(src, "src")
        require_memory(dst, "dst")
        if not (src._desc is self._src or src._desc == self._src):
            _refuse_desc("source", src._desc, self._src)
        if not (dst._desc is self._dst or dst._desc == self._dst):
            _refuse_desc("destination", dst._desc, self._dst)
        _require_apart(src, dst)
        if self._attributes is PLAIN and (
            src_scales is dst_scales is src_zero_points is dst_zero_points is seed is None
        ):
            self._reorder.run(src.address, dst.address)
            _with_zero_padding(dst)
            return
        arguments = dict(
            zip(QUANTIZATION_TYPES, (src_scales, dst_scales, src_zero_points, dst_zero_points), strict=True)
        )
        values = operands(self._attributes, dst._desc.dims, arguments)
        self._reorder.run(src.address, dst.address, values, require_seed(self._attributes, seed))
        _with_zero_padding(dst)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the descriptors and attributes; the copy compiles its own code, or gets it from the cache."""
        return type(self), (self._src, self._dst, self._attributes)

    def __repr__(self) -> str:
        """Return the descriptors, and the attributes if there are any, as text."""
        attributes = "" if self._attributes == PLAIN else f", {self._attributes!r}"
        return f"<Reorder of {self._src!r} to {self._dst!r}{attributes}>"

    def _repr_html_(self) -> str:
        """Return the picture that a notebook shows: the source beside the destination."""
        from inlay.render import show

        return show(self).html()

    def explain(self, target: str | None = None) -> str:
        """Return a report on the compiled schedule and the reasons for it, for this machine or for `target`.

        It ends with the bounds on the run time: estimated times of the call, of the memory traffic and of the
        instructions.

        Raises:
            InvalidArguments: `target` is no target (see `assembly`).
        """
        return self._reorder.explain(target)

    def assembly(self, target: str | None = None) -> str:
        """Return the machine code as assembly text, for this machine or for `target`.

        Targets are `x86-64-v2` (SSE), `x86-64-v3` (AVX2), `x86-64-v4` (AVX-512), `aarch64` (NEON), `aarch64-sve256` and
        `aarch64-sve512` (SVE with registers of 32 and 64 bytes). All of them are available on any machine.

        Raises:
            InvalidArguments: `target` is no target.
            Unimplemented: this reorder has no machine code.
        """
        return self._reorder.assembly(target)


def _validate_attributes(attributes: Any) -> Attributes:
    """Check the type of `attributes`, and return them; None and attributes equal to PLAIN become PLAIN itself."""
    if attributes is None:
        return PLAIN
    if not isinstance(attributes, Attributes):
        raise InvalidArguments(
            f"attributes are {shown(attributes)}: give inlay.Attributes, as in Attributes(src_scales=Scales(mask=0b10))"
        )
    return PLAIN if attributes == PLAIN else attributes


def _refuse_desc(side: str, desc: MemoryDesc, compiled: MemoryDesc) -> NoReturn:
    raise InvalidArguments(f"the {side} is {desc!r}, but this reorder was compiled for {compiled!r}: make one for it")


def _require_apart(src: Memory, dst: Memory) -> None:
    """Raise an error if `dst` is read-only, shares bytes with `src`, or two of its buffers share bytes."""
    if not dst._buffer.flags.writeable or (dst._index_buffers and not dst.is_writable):
        raise InvalidArguments("the destination is read-only: give a writable buffer, or none to have one allocated")
    if src.begin < dst.end and dst.begin < src.end:
        _refuse_shared(min(src.end, dst.end) - max(src.begin, dst.begin))
    if src._index_buffers or dst._index_buffers:
        for low, high in src.extents:
            for begin, end in dst.extents:
                if low < end and begin < high:
                    _refuse_shared(min(high, end) - max(low, begin))
        for (_, end), (begin, _) in pairwise(sorted(dst.extents)):
            if begin < end:
                raise InvalidArguments(
                    f"two buffers of the destination share {end - begin} bytes of memory: give each its own"
                )


def _refuse_shared(nbytes: int) -> NoReturn:
    raise InvalidArguments(
        f"source and destination share {nbytes} bytes of memory: a reorder is not done in place, give another buffer"
    )
