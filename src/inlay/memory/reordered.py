"""Moves into memory: `pack` from a logical array, `reorder` from another memory, and `Reorder`, made for many calls.

A move is compiled for a pair of descriptors and attributes and then works on two addresses. `pack`, `unpack` and
`reorder` keep what they compiled, so the second call with equal descriptors finds it; a `Reorder` holds it in the
caller's hands. Sparse memory has several buffers and is converted, to and from dense memory too (see `entries`).

A reorder is tuned by timing its candidates on memory of our own, as large as the two descriptors reach, and given back
afterwards.
"""

from functools import lru_cache
from itertools import pairwise
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout import Dims
from inlay.memory.buffers import address_of, allocate, array_of, decoded, encoded
from inlay.memory.entries import Entries, converted, entries_of_codes, recode, retyped, write_stored
from inlay.memory.memory import Format, Memory, require_memory
from inlay.memory.moves import AnyReorder, described, find_reorder, reach
from inlay.notation.format_tag import FormatTag
from inlay.reordering.attributes import (
    PLAIN,
    QUANTIZATION_TYPES,
    Attributes,
    AttributeValues,
    infer_attributes,
    operands,
    require_seed,
)
from inlay.reordering.choice import Decision
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.tuning import SECONDS, tune

# From logical arrays


def pack(array: object, format: Format, data_type: DataTypeLike | None = None) -> Memory:
    """The elements of a logical array in new memory of this format, converted to `data_type` if that is given.

    `array` is a NumPy or ml_dtypes array with any strides, or whatever `Memory` can wrap. `format` is a tag, an alias,
    or a whole descriptor of the array's dims. A sparse one says how many elements are stored; `to_csr` counts them.

    Post-condition: pack(array, format).unpack() equals `array`, bit for bit where the type is kept.

    Raises:
        InvalidArguments: `array` is no array or has no axes, its type cannot be stored, `format` is of another kind or
            has other dims, `data_type` is given beside a descriptor of another type, or a sparse format has another
            `nnz` than the array has elements with a bit set (packed: a smaller one), or indices too narrow for them.
        FormatTagError: `format` cannot be read.
        OutOfMemory: there is no room for the result.

    >>> pack(np.ones((2, 3, 4, 4), np.float32), "nhwc", "bf16").desc
    MemoryDesc((2, 3, 4, 4), 'bf16', 'nhwc')
    """
    logical = _as_array(array)
    src_type = as_data_type(logical.dtype)
    memory = Memory(_packed_destination(logical.shape, src_type, format, data_type))
    dst, dst_type = memory.desc, memory.desc.data_type
    if dst.kind == "sparse" and dst_type is not None:
        write_stored(converted(stored_in(logical), dst_type), dst, memory.buffers)
        return memory
    if src_type.is_sub_byte:
        numbers, src_type = decoded(encoded(logical, src_type), src_type), src_type.widened
        logical = numbers.astype(src_type.dtype)
    src, logical = _source(logical, src_type)
    find_reorder(src, dst).run(address_of(logical), memory.address)
    return memory


def stored_in(array: object) -> Entries:
    """The elements of a logical array that have a bit set: what is stored of it in sparse memory.

    Raises:
        InvalidArguments: `array` is no array or has no axes, or its type cannot be stored.

    >>> stored_in(np.array([[0, 7], [9, 0]], np.int8)).places.tolist()
    [1, 2]
    """
    logical = _as_array(array)
    data_type = as_data_type(logical.dtype)
    if not data_type.is_number:
        raise InvalidArguments(f"sparse tensors hold numbers: {data_type} only moves; convert the array with astype")
    return entries_of_codes(logical.shape, data_type, encoded(logical, data_type))


def _as_array(array: object) -> npt.NDArray[Any]:
    """What NumPy sees, with at least one axis."""
    if isinstance(array, (list, tuple, str, int, float)):
        raise InvalidArguments(
            f"array is of type {type(array).__name__}, which says no data type: give an array, "
            "as np.asarray(values, np.float32) is"
        )
    logical = np.asarray(array) if isinstance(array, np.generic) else array_of(array)
    if not logical.ndim:
        raise InvalidArguments("array is a scalar, which has no axes to place: give it one with reshape(1)")
    return logical


def _packed_destination(
    dims: tuple[int, ...], src_type: DataType, format: Format, data_type: DataTypeLike | None
) -> MemoryDesc:
    wanted = None if data_type is None else as_data_type(data_type)
    if isinstance(format, (str, FormatTag)):
        return described(dims, wanted or src_type, format)
    if not isinstance(format, MemoryDesc):
        raise InvalidArguments(f"format is {shown(format)}: give a format tag such as 'nChw16c', or a MemoryDesc")
    if format.dims != dims:
        raise InvalidArguments(f"array has dims {dims}, but format {format!r} has {format.dims}: give equal dims")
    if wanted not in (None, format.data_type):
        raise InvalidArguments(f"data_type is {wanted}, but format {format!r} is {format.data_type}: leave one out")
    return format


def _source(array: npt.NDArray[Any], data_type: DataType) -> tuple[MemoryDesc, npt.NDArray[Any]]:
    """A descriptor of an array, and the array, copied where descriptors cannot say its strides."""
    width = array.itemsize
    if address_of(array) % width == 0 and all(stride % width == 0 for stride in array.strides):
        desc = _by_strides(array.shape, tuple(stride // width for stride in array.strides), data_type)
        if not desc.is_zero:
            return desc, array
    return described(array.shape, data_type, None), np.ascontiguousarray(array)


@lru_cache(maxsize=512)
def _by_strides(dims: Dims, strides: Dims, data_type: DataType) -> MemoryDesc:
    """The descriptor of these strides, or the zero descriptor where there is none."""
    return MemoryDesc(dims, data_type, strides=strides, allow_empty=True)


# From memory to memory


def reorder(
    src: Memory,
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
    """The elements of `src` in memory described by `dst`: `out` if given, else new memory.

    A tag as `dst` keeps the data type; `any` takes the format of `src`. The compiled move is remembered. Either side
    may be sparse: the `nnz` of a sparse `dst` must be the number of elements that the source stores; that of a packed
    one may be larger.

    Values of scales and zero points come with `attributes`, or make them: a number for the whole tensor, an array that
    spreads over its dims as NumPy broadcasts, or with one entry for each of equal groups (see `infer_attributes`).

    Post-condition: result.unpack() equals src.unpack(), computed on by the attributes and converted to the type of
    `dst`.

    Raises:
        InvalidArguments: the dims differ, `dst` has no layout or its elements overlap, or `out` has another
            descriptor, is read-only, or lies on the memory of `src`; attributes or their values do not fit, or there is
            a sum without `out`; or a sparse side is refused (see `entries.recode`).
        FormatTagError: `dst` cannot be read.
        Unimplemented: `dst` is packed and has no tag, attributes are given for sparse memory, or the destination has
            extras that no reorder computes.
        OutOfMemory: there is no room for the result, or the process has so many memory mappings that no more machine
            code is loaded.

    >>> import numpy as np
    >>> rows = Memory(MemoryDesc((2, 3), "f32", "ab"), np.arange(6, dtype=np.float32))
    >>> reorder(rows, "ba").buffer.view(np.float32).tolist()
    [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    >>> reorder(rows, MemoryDesc((2, 3), "s8", "ab"), src_scales=[[10], [-10]]).unpack()
    array([[  0,  10,  20],
           [-30, -40, -50]], dtype=int8)
    """
    require_memory(src, "src")
    desc = _resolved(src.desc, dst)
    is_dense = src.desc.kind != "sparse" != desc.kind
    if is_dense and (attributes is src_scales is dst_scales is src_zero_points is dst_zero_points is seed is None):
        return _moved(src, desc, out)
    given: AttributeValues = dict(
        zip(QUANTIZATION_TYPES, (src_scales, dst_scales, src_zero_points, dst_zero_points), strict=True)
    )
    if attributes is None:
        wanted, given = infer_attributes(desc.dims, given)
    else:
        wanted = _checked_attributes(attributes)
    if not is_dense:
        if wanted != PLAIN or seed is not None:
            raise Unimplemented("attributes are for dense memory: convert with inlay.to_dense first, or after")
        result = _destination(src, desc, out)
        recode(src.desc, src.buffers, desc, result.buffers)
        return result
    if wanted.sum is not None and out is None:
        raise InvalidArguments("a sum adds to the elements of a destination: give it as out")
    values, chosen = operands(wanted, desc.dims, given), require_seed(wanted, seed)
    if wanted == PLAIN:
        return _moved(src, desc, out)
    compiled = find_reorder(src.desc, desc, wanted)
    result = _destination(src, desc, out)
    compiled.run(src.address, result.address, values, chosen)
    return result


def _resolved(src: MemoryDesc, dst: Format) -> MemoryDesc:
    """The descriptor that `dst` means for elements of `src`."""
    if not isinstance(dst, (MemoryDesc, str, FormatTag)):
        raise InvalidArguments(f"dst is {shown(dst)}: give a format tag such as 'nChw16c', or a MemoryDesc")
    assert src.data_type is not None  # Memory has one.
    wanted = dst if isinstance(dst, MemoryDesc) else described(src.dims, src.data_type, dst)
    if wanted.kind != "any" or wanted.dims != src.dims or wanted.data_type is None:
        return wanted
    if src.kind == "sparse":
        return retyped(src, wanted.data_type)
    layout, _ = src.require_layout("reorder")
    if layout.overlaps:
        return MemoryDesc(src.dims, wanted.data_type)
    return MemoryDesc.from_layout(layout, wanted.data_type, dims=src.dims)


def _moved(src: Memory, desc: MemoryDesc, out: Memory | None) -> Memory:
    """The elements of dense memory in dense memory, nothing computed on the way."""
    compiled = find_reorder(src.desc, desc)
    result = _destination(src, desc, out)
    compiled.run(src.address, result.address)
    return result


def _destination(src: Memory, desc: MemoryDesc, out: Memory | None) -> Memory:
    """`out`, if it can take the elements of `src`, else new memory."""
    if out is None:
        return Memory(desc)
    require_memory(out, "out")
    if out.desc != desc:
        raise InvalidArguments(f"out is {out.desc!r}, but the destination is {desc!r}: give both the same descriptor")
    _require_apart(src, out)
    return out


class Reorder:
    """A move from one descriptor to another, compiled once and called many times, from any number of threads.

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
        """Compile the move, with what is computed on the way.

        With `tune`, some ways to do it are timed for about a second, or for as many seconds as the number says, on
        memory of the same size. The best is remembered on disk, for this machine and number of threads: every Reorder
        that is made of equal descriptors later uses it, with `tune` or without, and with `tune` nothing is timed again
        unless for longer. No byte of the result depends on it; `explain` says what was decided.

        Raises:
            InvalidArguments: `src` or `dst` is no descriptor, the dims differ, a side has no layout, elements of the
                destination overlap, the attributes do not fit the descriptors (see `require_attributes`), or `tune` is
                no truth value and no positive number.
            Unimplemented: a dim or stride is RUNTIME, or the destination has extras that no reorder computes.
            OutOfMemory: there is no room to tune in, or the process has so many memory mappings that no more machine
                code is loaded.
        """
        for name, desc in (("src", src), ("dst", dst)):
            if not isinstance(desc, MemoryDesc):
                raise InvalidArguments(
                    f"{name} is {shown(desc)}: a Reorder is made from two MemoryDescs; "
                    "inlay.reorder(memory, 'nhwc') takes a tag"
                )
        self._src = src
        self._dst = dst
        self._attributes = _checked_attributes(attributes)
        seconds = seconds_of(tune)
        self._reorder = self._found()
        if seconds is not None and self._reorder.problem is not None:
            tuned(src, dst, self._reorder.problem, seconds)
            self._reorder = self._found()

    def _found(self) -> AnyReorder:
        is_plain = self._attributes is PLAIN
        return find_reorder(self._src, self._dst) if is_plain else find_reorder(self._src, self._dst, self._attributes)

    @property
    def src(self) -> MemoryDesc:
        """What sources look like."""
        return self._src

    @property
    def dst(self) -> MemoryDesc:
        """What destinations look like."""
        return self._dst

    @property
    def attributes(self) -> Attributes:
        """What is computed on the way."""
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
        """Write the elements of `src` into `dst`; its padding becomes zero, and nothing else in it changes.

        Each attribute that has values is given them: a number, or an array of the shape that `Scales.shape` or
        `ZeroPoints.shape` says. Stochastic rounding is given its seed.

        Raises:
            InvalidArguments: an argument is no Memory or has another descriptor than was compiled for, the two lie on
                one another, `dst` is read-only, or values are missing, not wanted, or wrong (see `operands`).
        """
        require_memory(src, "src")
        require_memory(dst, "dst")
        if not (src._desc is self._src or src._desc == self._src):
            _refuse_other("source", src._desc, self._src)
        if not (dst._desc is self._dst or dst._desc == self._dst):
            _refuse_other("destination", dst._desc, self._dst)
        _require_apart(src, dst)
        if self._attributes is PLAIN and (
            src_scales is dst_scales is src_zero_points is dst_zero_points is seed is None
        ):
            self._reorder.run(src.address, dst.address)
            return
        given = dict(zip(QUANTIZATION_TYPES, (src_scales, dst_scales, src_zero_points, dst_zero_points), strict=True))
        values, chosen = operands(self._attributes, dst._desc.dims, given), require_seed(self._attributes, seed)
        self._reorder.run(src.address, dst.address, values, chosen)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by descriptors and attributes: code is compiled, or found, where it is to run."""
        return type(self), (self._src, self._dst, self._attributes)

    def __repr__(self) -> str:
        """The descriptors, and the attributes if there are any."""
        computing = "" if self._attributes == PLAIN else f", {self._attributes!r}"
        return f"<Reorder of {self._src!r} to {self._dst!r}{computing}>"

    def explain(self, target: str | None = None) -> str:
        """What was compiled and why, as text: for this machine, or for the one that is called `target`.

        It ends in what bounds the reorder: how long the call, the bytes through caches or memory and the instructions
        should take.

        Raises:
            InvalidArguments: there is no target of that name (see `assembly`).
        """
        return self._reorder.explain(target)

    def assembly(self, target: str | None = None) -> str:
        """The machine code as text: for this machine, or for the one that is called `target`.

        Targets are `x86-64-v2` (SSE), `x86-64-v3` (AVX2), `x86-64-v4` (AVX-512), `aarch64` (NEON), `aarch64-sve256` and
        `aarch64-sve512` (SVE with registers of 32 and 64 bytes). Each can be read on any machine.

        Raises:
            InvalidArguments: there is no target of that name.
            Unimplemented: no machine code is made.
        """
        return self._reorder.assembly(target)


def _checked_attributes(attributes: Any) -> Attributes:
    if attributes is None:
        return PLAIN
    if not isinstance(attributes, Attributes):
        raise InvalidArguments(
            f"attributes are {shown(attributes)}: give inlay.Attributes, as in Attributes(src_scales=Scales(mask=0b10))"
        )
    return PLAIN if attributes == PLAIN else attributes


def _refuse_other(side: str, given: MemoryDesc, compiled: MemoryDesc) -> NoReturn:
    raise InvalidArguments(f"the {side} is {given!r}, but this reorder was compiled for {compiled!r}: make one for it")


def _require_apart(src: Memory, dst: Memory) -> None:
    if not dst._buffer.flags.writeable or (dst._others and not dst.is_writable):
        raise InvalidArguments("the destination is read-only: give a writable buffer, or none to have one allocated")
    if src.begin < dst.end and dst.begin < src.end:
        _refuse_shared(min(src.end, dst.end) - max(src.begin, dst.begin))
    if src._others or dst._others:
        for low, high in src.extents:
            for begin, end in dst.extents:
                if low < end and begin < high:
                    _refuse_shared(min(high, end) - max(low, begin))
        written = sorted(dst.extents)
        for (_, end), (begin, _) in pairwise(written):
            if begin < end:
                raise InvalidArguments(
                    f"two buffers of the destination share {end - begin} bytes of memory: give each its own"
                )


def _refuse_shared(nbytes: int) -> NoReturn:
    raise InvalidArguments(
        f"source and destination share {nbytes} bytes of memory: a reorder is not done in place, give another buffer"
    )


# Tuning


def seconds_of(wanted: Any) -> float | None:
    """How long a `tune` argument lets tuning take; None where it asks for none.

    Raises:
        InvalidArguments: it is neither a truth value nor a positive number.

    >>> seconds_of(True), seconds_of(False), seconds_of(2.5)
    (1.0, None, 2.5)
    """
    if isinstance(wanted, bool):
        return SECONDS if wanted else None
    if not isinstance(wanted, (int, float)) or not 0 < wanted < 2**63:
        raise InvalidArguments(
            f"tune is {shown(wanted)}: give True to tune for {SECONDS:g} s, or the seconds that it may take, more than "
            "0"
        )
    return float(wanted)


_EASY = 0x3F
"""Bytes of numbers that no processor finds hard in any type: 0.75 as f32, 1.8 as f16, 63 as u8."""


def tuned(
    src: MemoryDesc, dst: MemoryDesc, problem: ReorderProblem, seconds: float, *, again: bool = False
) -> Decision:
    """Time the candidates for `problem`, which is made of the two descriptors, and remember the best: see `tune`.

    Post-condition: reorders of `problem` that are made from now on are done as the result says.

    Raises:
        OutOfMemory: there is no room for a second source and destination.
    """
    source, destination = (allocate(reach(desc)[1]) for desc in (src, dst))
    for buffer in (source, destination):
        buffer.fill(_EASY)  # which also brings in its pages
    decision = tune(problem, address_of(source), address_of(destination), seconds, again=again)
    find_reorder.cache_clear()
    return decision
