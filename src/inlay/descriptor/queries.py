"""Queries of a descriptor: size in bytes, offsets of coordinates, cache keys, order of the elements, and texts.

The size is defined as in oneDNN: the largest extent of an axis in memory, inner blocks included:

    (4, 6) strides (8, 1), f32    extent of axis 0: 4 * 8 = 32 elements, 128 bytes, the last gap included
    (2, 17, 5, 4) nChw8c, f32     extent of axis 0: 2 * 480 elements, 3840 bytes, padding included

This is the size to allocate for a new tensor. It is not the range of memory of a view: `offset0` is not included, and
for strides that are all zero, or a box inside one block, the size is at most one block. `Layout.span` is the exact
range of offsets.

Offsets of a layout start at its origin. Those of a descriptor include `offset0`, and byte offsets are multiplied by the
element size. Offsets of many coordinates are 64-bit integers; an overflow is an error, unlike in NumPy.

Queries for the order of the elements are the tag, the pattern, the axes sorted by stride, and strides in bytes:

>>> from inlay.descriptor import MemoryDesc
>>> rows = MemoryDesc((3, 5), "f32", strides=(8, 1))
>>> rows.tag, rows.order, rows.byte_strides, rows.is_plain, rows.is_dense
(None, (0, 1), (32, 4), True, False)

There are two texts: the call in Python that creates the descriptor, and the notation of oneDNN's verbose log,

    f32:p:blocked:aBcd8b::f0
    |   | |       |      |+-- extra flags and their fields: f9:s8m1:zpm1
    |   | |       |      +--- strides, if the layout has gaps: 8x1
    |   | |       +---------- axes outermost first by stride, upper case if blocked, then the inner blocks; * if RUNTIME
    |   | +------------------ kind
    |   +-------------------- a: a primitive chose the layout; p: some axis is padded; 0: offset0 is not 0
    +------------------------ data type

which sorts axes by stride alone. So its letters are not always a tag that creates the descriptor: nhwc with all dims 1
prints `abcd`. A layout of kind `digits` prints the digits of each axis, `(2,512)(4,4)(32,16)`.

Source: oneDNN, `memory_desc_wrapper::size` and `md2fmt_str`.
"""

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from inlay.arguments import as_flag
from inlay.data_type import DataType
from inlay.descriptor import kinds
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.descriptor.fields import (
    DescriptorFields,
    InnerBlocks,
    addressed_layout,
    has_runtime,
    require_layout,
    strides,
    swizzle,
)
from inlay.descriptor.outer_strides import is_spelled
from inlay.descriptor.sparsity import RUNTIME_SIZE, sparse_sizes
from inlay.descriptor.validation import LARGEST
from inlay.errors import InlayError, Unimplemented
from inlay.layout import RUNTIME, Dims, Layout
from inlay.layout.axis import LETTERS
from inlay.notation import parse_notation
from inlay.notation.format_tag import FormatTag, order_by_stride, tag_matches, tag_of
from inlay.notation.pattern import Pattern, parse_pattern, pattern_of
from inlay.notation.recognition import SwizzledNotation
from inlay.notation.shape_stride import shape_stride_of

# Size in bytes


def bytes_of(elements: int, data_type: DataType) -> int:
    """Return the number of whole bytes that hold `elements` elements.

    >>> from inlay.data_type import as_data_type
    >>> bytes_of(5, as_data_type("s4")), bytes_of(5, as_data_type("bf16"))
    (3, 10)
    """
    return -(-elements * data_type.bits // 8)


def bytes_text(count: int) -> str:
    """Return the text of a number of bytes, with a unit of a power of 1000 bytes.

    >>> bytes_text(640), bytes_text(5760)
    ('640 bytes', '5.8 kB')
    """
    if count < 1000:
        return "1 byte" if count == 1 else f"{count} bytes"
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB", "PB", "EB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}"


def size(desc: DescriptorFields) -> int:
    """The size of buffer 0 in bytes, as in oneDNN: with gaps and extras, without `offset0`; 2**63 if RUNTIME.

    The size is 0 for the zero descriptor, for `any`, and if a dim is 0. `layout.span` is the exact range of offsets.
    """
    match desc.layout:
        case Layout():
            return layout_size(desc, desc.layout, desc.extras)
        case kinds.SwizzledLayout(layout=layout, swizzle=permutation):
            assert desc.data_type is not None
            return bytes_of(permutation.round_up(layout.span[1]), desc.data_type)
        case kinds.Opaque(nbytes=nbytes):
            return nbytes
        case kinds.HostScalar():
            assert desc.data_type is not None
            return desc.data_type.itemsize
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            return sizes(desc)[0]
        case kinds.Undefined() | kinds.Any():
            return 0


def layout_size(desc: DescriptorFields, layout: Layout, extras: Extras) -> int:
    """Return the size in bytes of a tensor with `layout`, that of `desc`, and `extras` behind the elements.

    For the kind `digits`, it is the size of the range from the lower of offset 0 and the lowest offset, up to the
    highest offset.
    """
    assert desc.data_type is not None
    if 0 in desc.dims:
        return 0
    if layout.has_runtime:
        return RUNTIME_SIZE
    if desc._blocks is None:
        low, high = layout.span
        nbytes = bytes_of(high - min(low, 0), desc.data_type)
    else:
        nbytes = bytes_of(_reached_elements(layout, desc._blocks), desc.data_type)
    return extras.size_with(nbytes, layout.dims) if extras else nbytes


def _reached_elements(layout: Layout, blocks: InnerBlocks) -> int:
    """Return the largest extent of an axis in memory, in elements; the volume of the inner blocks if that is 1."""
    largest = 0
    for dim, axis in zip(layout.dims, layout.axes, strict=True):
        count = dim // axis.block
        largest = max(largest, count * axis.stride if count != 1 else 1)
    return prod([size for _, size in blocks]) if largest == 1 else largest


def sizes(desc: DescriptorFields) -> tuple[int, ...]:
    """The size of each buffer in bytes; all kinds but sparse have one buffer.

    `kinds` lists the buffers of sparse tensors. All of them are empty if a dim is 0, or if the encoding is packed and
    has no tag yet. Sparse values of 4 bits occupy a byte each.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc.csr((3, 4), "f32", 2).sizes, MemoryDesc((3, 4), "f32").sizes
    ((8, 8, 16), (48,))
    """
    return sparse_sizes(desc, desc.layout) if isinstance(desc.layout, kinds.Sparse) else (size(desc),)


# Offsets


def offset(desc: DescriptorFields, coordinates: npt.ArrayLike) -> Any:
    """Return the offset of each coordinate from the start of the buffer, in elements, `offset0` included.

    `coordinates` has shape (..., ndims). One coordinate gives an int; an array of coordinates gives an int64 array of
    the shape before the last axis. Coordinates of padding are valid.

    Raises:
        InvalidArguments: there is no layout, or a coordinate has the wrong length or is outside `padded_dims`.
        Unimplemented: a dim or stride is RUNTIME, or offsets of an array exceed 64 bits.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((2, 16, 5, 4), "f32", "nhwc").offset((1, 2, 3, 1))
    530
    """
    return shift_and_scale(_offsets_from_origin(desc, coordinates, "offset")[0], desc.offset0, 1)


def byte_offset(desc: DescriptorFields, coordinates: npt.ArrayLike) -> Any:
    """Return the offset of each element's first byte in the buffer; a 4-bit element of even offset is its low half.

    Raises:
        InvalidArguments, Unimplemented: as `offset`.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((4, 6), "s4", "ab").byte_offset([(0, 0), (0, 1), (1, 1)])
    array([0, 0, 3])
    """
    offsets, data_type = _offsets_from_origin(desc, coordinates, "byte_offset")
    nbytes = shift_and_scale(offsets, desc.offset0, data_type.itemsize)
    return nbytes // 2 if data_type.is_sub_byte else nbytes


def _offsets_from_origin(desc: DescriptorFields, coordinates: npt.ArrayLike, purpose: str) -> tuple[Any, DataType]:
    """Return the offsets of coordinates from the origin in elements, swizzled if the layout is, and the data type."""
    if not isinstance(desc.layout, kinds.SwizzledLayout):
        layout, data_type = require_layout(desc, purpose)
        return layout.offset(coordinates), data_type
    layout, data_type = addressed_layout(desc, purpose)
    return desc.layout.swizzle.apply(layout.offset(coordinates)), data_type


def shift_and_scale(offsets: Any, start: int, step: int) -> Any:
    """Return `(start + offsets) * step` for an int, or for an int64 array if no result overflows.

    Raises:
        Unimplemented: `offsets` is an array and a result exceeds 64 bits.

    >>> shift_and_scale(2, 1, 4), shift_and_scale(np.array([0, 2]), 1, 4)
    (12, array([ 4, 12]))
    """
    if isinstance(offsets, np.ndarray) and offsets.size:
        low, high = ((start + int(end)) * step for end in (offsets.min(), offsets.max()))
        if low < -LARGEST or high > LARGEST:
            raise Unimplemented(f"offsets {low}..{high} exceed 64 bits: pass one coordinate at a time")
    shifted = offsets + start if start else offsets
    return shifted if step == 1 else shifted * step


# Keys


def equality_key(desc: DescriptorFields) -> tuple[object, ...]:
    """Return the key that equal descriptors share: all fields but `spelling` and the strides of unpadded unit axes."""
    if not desc.dims or desc.data_type is None:
        return ()
    placement, code = desc.layout, desc.data_type.code or desc.data_type.name
    if isinstance(placement, kinds.SwizzledLayout):
        return (desc.dims, code, placement, desc.offset0)
    if not isinstance(placement, Layout):
        return (desc.dims, code, placement)
    strides = tuple(
        [
            None if dim == padded == 1 else axis.stride
            for dim, padded, axis in zip(desc.dims, placement.dims, placement.axes, strict=True)
        ]
    )
    digits = None if desc._blocks is not None else tuple(axis.inner for axis in placement.axes)
    key = (desc.dims, code, placement.dims, desc.offset0, desc._blocks, strides, digits)
    return (*key, desc.extras) if desc.extras else key


def is_equivalent(desc: DescriptorFields, other: DescriptorFields) -> bool:
    """Return True if both have a layout, and dims, padding, type, extras and the offset of every coordinate are equal.

    Swizzled layouts are equivalent if their swizzles are equal and their layouts equivalent; sufficient, as swizzles
    that differ could agree on the offsets of a small layout.

    Raises:
        Unimplemented: a dim or stride is RUNTIME.
    """
    layouts = [
        one.layout.layout if isinstance(one.layout, kinds.SwizzledLayout) else one.layout for one in (desc, other)
    ]
    first, second = layouts
    if not isinstance(first, Layout) or not isinstance(second, Layout):
        return False
    keys = [(one.dims, one.data_type, one.offset0, one.extras, swizzle(one)) for one in (desc, other)]
    return keys[0] == keys[1] and first.equivalent(second)


def exact_key(desc: DescriptorFields) -> Hashable:
    """A cache key that includes all strides: also those of unpadded unit axes, which `==` ignores.

    Post-condition: descriptors with equal keys are equal and have the same strides.

    >>> from inlay.descriptor import MemoryDesc
    >>> first, last = (MemoryDesc((2, 1, 4, 4), "f32", tag) for tag in ("nchw", "nhwc"))
    >>> first == last, first.exact_key == last.exact_key
    (True, False)
    """
    return (desc, strides(desc)) if 1 in desc.dims and desc._blocks is not None else desc


# Order of elements


def tag(desc: DescriptorFields) -> str | None:
    """The format tag that creates this descriptor, in abstract letters; None if there is none, `any` for that kind.

    Post-condition: MemoryDesc(self.dims, self.data_type, self.tag) == self, unless None.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((2, 3, 4, 5), "u8", strides=(60, 1, 15, 3)).tag
    'acdb'
    >>> desc = MemoryDesc((64, 16, 3, 3), "f32", "OhwI16o64i")
    >>> desc.spelling, desc.tag
    ('OhwI16o64i', 'AcdB16a64b')
    """
    return None if desc.extras else tag_without_extras(desc)


def tag_without_extras(desc: DescriptorFields) -> str | None:
    """Return the format tag that creates this descriptor if its extras are ignored, or None."""
    if isinstance(desc.layout, kinds.Any):
        return "any"
    if not isinstance(desc.layout, Layout) or desc._blocks is None or desc.offset0:
        return None
    candidate = tag_of(desc.layout)
    return str(candidate) if candidate is not None and candidate.layout(desc.dims).dims == desc.layout.dims else None


def has_tag(desc: DescriptorFields, tag: str | FormatTag) -> bool:
    """Return True if `tag`, in any letters, creates this descriptor; the tag `any` creates the kind `any`.

    Post-condition: the result is MemoryDesc(self.dims, self.data_type, tag) == self.

    Raises:
        FormatTagError: `tag` cannot be parsed.
        InvalidArguments: `tag` is neither text nor a `FormatTag`.

    >>> from inlay.descriptor import MemoryDesc
    >>> desc = MemoryDesc((2, 17, 5, 4), "f32", "aBcd8b")
    >>> desc.has_tag("nChw8c"), desc.has_tag("nhwc")
    (True, False)
    """
    if isinstance(tag, str) and tag == "any":
        return isinstance(desc.layout, kinds.Any)
    wanted = tag if isinstance(tag, FormatTag) else FormatTag.parse(tag)
    if not isinstance(desc.layout, Layout) or wanted.ndims != len(desc.dims):
        return False
    return (
        not desc.extras
        and tag_without_extras(desc) is not None
        and tag_matches(wanted, desc.layout, every_stride=False)
    )


def axis_letters(desc: DescriptorFields) -> str:
    """Return one letter per axis: those of the format that the descriptor was created from, or else abstract letters.

    >>> from inlay.descriptor import MemoryDesc
    >>> axis_letters(MemoryDesc((2, 3, 4, 5), "f32", "nhwc")), axis_letters(MemoryDesc((2, 3), "f32"))
    ('nchw', 'ab')
    """
    names = () if desc.spelling is None else parse_notation(desc.spelling).names
    letters = "".join(names)
    return letters if len(letters) == len(names) == len(desc.dims) and letters.islower() else LETTERS[: len(desc.dims)]


def pattern(desc: DescriptorFields) -> str:
    """The layout in pattern notation.

    Raises:
        InvalidArguments: there is no layout, or it has no pattern (`pattern_of`).
    """
    return pattern_of(require_layout(desc, "pattern")[0])


def shape_stride(desc: DescriptorFields) -> str:
    """The layout in CuTe's notation, strides in elements, with the prefix of a swizzle; without `offset0`.

    Post-condition: MemoryDesc(self.dims, self.data_type, self.shape_stride, offset0=self.offset0) is equivalent.

    Raises:
        InvalidArguments: there is no layout, or CuTe's notation cannot say it (`shape_stride_of`).

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").shape_stride
    '(2,(8,3),5,4):(480,(1,160),32,8)'
    """
    text = shape_stride_of(addressed_layout(desc, "shape_stride")[0])
    return f"{desc.layout.swizzle} o {text}" if isinstance(desc.layout, kinds.SwizzledLayout) else text


def is_plain(desc: DescriptorFields) -> bool:
    """True if there is a layout and no axis has inner blocks of more than one element, so one stride per axis suffices.

    >>> from inlay.descriptor import MemoryDesc
    >>> [MemoryDesc((2, 16, 5, 4), "f32", tag).is_plain for tag in ("nhwc", "nChw8c", "any")]
    [True, False, False]
    """
    return isinstance(desc.layout, Layout) and all(axis.block == 1 for axis in desc.layout.axes)


def is_dense(desc: DescriptorFields) -> bool:
    """True if elements and padding occupy consecutive offsets without gap and overlap.

    False if there is no layout, or a dim or stride is RUNTIME.

    Raises:
        Unimplemented: the strides interleave, and a bounded search does not decide (`AddressMap.overlaps`).

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((2, 17), "f32", "aB8b").is_dense, MemoryDesc((4, 6), "f32", strides=(8, 1)).is_dense
    (True, False)
    """
    return isinstance(desc.layout, Layout) and not has_runtime(desc) and desc.layout.is_dense


def byte_strides(desc: DescriptorFields) -> Dims:
    """The strides in bytes, as in NumPy; in bits for types of 4 bits, whose elements share bytes.

    Raises:
        InvalidArguments: the kind has no strides.
        Unimplemented: a stride is RUNTIME.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((3, 4), "f32").byte_strides, MemoryDesc((3, 4), "s4").byte_strides
    ((16, 4), (16, 4))
    """
    steps = strides(desc)
    if RUNTIME in steps:
        raise Unimplemented(f"byte_strides needs every stride: {desc!r} has RUNTIME ones, bind them first")
    if desc.data_type is None:
        return ()
    unit = desc.data_type.bits if desc.data_type.is_sub_byte else desc.data_type.itemsize
    return tuple([step * unit for step in steps])


def order(desc: DescriptorFields) -> Dims:
    """The axes sorted by falling |stride| of their leading digit: the first is outermost in memory.

    Of axes of equal stride, the one with more blocks along it comes first, then the one of lower number. A RUNTIME
    stride is outermost. If the descriptor has a tag and no unit axes, this is the order of the tag.

    Raises:
        InvalidArguments: the kind has no layout.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((3, 5), "f32", strides=(1, 8)).order, MemoryDesc((2, 3, 4, 5), "u8", "nhwc").order
    ((1, 0), (0, 2, 3, 1))
    """
    return order_by_stride(require_layout(desc, "order")[0]) if desc.dims else ()


# Texts


def text(desc: DescriptorFields, *, was_any: bool = False) -> str:
    """Return oneDNN's text of the descriptor; `was_any`: a primitive chose the layout for the format any.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((4, 6), "f32", strides=(8, 1)).text(was_any=True)
    'f32:a:blocked:ab:8x1:f0'
    """
    chosen = "a" if as_flag("was_any", was_any) else ""
    placement, data_type = desc.layout, desc.data_type
    match placement:
        case kinds.Undefined():
            return "undef::undef:::"
        case kinds.Any():
            return f"{data_type}:{chosen}:any:any::f0"
        case Layout():
            flags = chosen + ("p" if placement.dims != desc.dims else "") + ("0" if desc.offset0 else "")
            placement_text = (
                f"digits:{_digits_text(placement)}:"
                if desc._blocks is None
                else _blocked_text(desc, placement, desc._blocks)
            )
            return f"{data_type}:{flags}:{placement_text}:{desc.extras}"
        case kinds.SwizzledLayout(layout=layout, swizzle=permutation):
            flags = ("p" if layout.dims != desc.dims else "") + ("0" if desc.offset0 else "")
            return f"{data_type}:{flags}:swizzled:{_digits_text(layout)}:{permutation}:f0"
        case kinds.Opaque():
            return f"{data_type}:{chosen}:{placement.name}:::f0"
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            return f"{data_type}:{chosen}:sparse:{placement.encoding}::f0"
        case kinds.HostScalar():
            # The padded dims of a host scalar are 0, unlike its dims.
            return f"{data_type}:{chosen}p:host_scalar:::f0"
    assert_never(placement)


def _blocked_text(desc: DescriptorFields, layout: Layout, blocks: InnerBlocks) -> str:
    """Return the text of a blocked layout: kind, letters, and strides if there are gaps."""
    assert desc.data_type is not None
    strides = [axis.stride for axis in layout.axes]
    letters = _onednn_letters(layout, strides, blocks)
    if layout.has_runtime:
        return f"blocked:{letters}:"
    # As in oneDNN: without the buffers behind the elements, but with the bytes that align them.
    nbytes = desc.extras.start(layout_size(desc, layout, NO_EXTRAS))
    # The division rounds down, as in oneDNN, so an odd number of 4-bit elements is not dense.
    dense = prod(layout.dims) * desc.data_type.itemsize // (2 if desc.data_type.is_sub_byte else 1) == nbytes
    return f"blocked:{letters}:{'' if dense and 0 not in strides else onednn_dims_text(strides)}"


def _onednn_letters(layout: Layout, strides: Sequence[int], blocks: InnerBlocks) -> str:
    """Return the axes by falling stride and the inner blocks, as in a tag; `*` if a stride is RUNTIME."""
    if RUNTIME in strides:
        return "*"

    def sort_key(i: int) -> tuple[int, int, int]:
        # As in oneDNN, the subtraction is unsigned, so that stride 0 sorts outermost.
        return (-((strides[i] - 1) % 2**64), -(layout.dims[i] // layout.axes[i].block), i)

    letters = ""
    for i in sorted(range(layout.ndims), key=sort_key):
        letters += LETTERS[i].upper() if layout.axes[i].block > 1 else LETTERS[i]
    return letters + "".join(f"{size}{LETTERS[i]}" for i, size in blocks)


def _digits_text(layout: Layout) -> str:
    """Return the digits of each axis as text: `(2,512)(4,4)(32,16)x(2,256)(4,1)`."""
    return "x".join("".join(f"({dim_text(d.extent)},{dim_text(d.stride)})" for d in digits) for digits in layout.digits)


def dim_text(value: int) -> str:
    """Return the text of a dim or stride: `*` for RUNTIME."""
    return "*" if value == RUNTIME else str(value)


def onednn_dims_text(values: Sequence[int]) -> str:
    """Return the text of dims as oneDNN prints them.

    >>> onednn_dims_text((2, 17, RUNTIME))
    '2x17x*'
    """
    return "x".join(map(dim_text, values))


def call_text(desc: DescriptorFields) -> str:
    """Return the call in Python that creates this descriptor: by its tag if it has one, with padded dims if needed."""
    dims, data_type, placement = desc.dims, desc.data_type, desc.layout
    call = f"MemoryDesc({dims_text(dims)}, '{data_type}'"
    match placement:
        case kinds.Undefined():
            return "MemoryDesc()"
        case kinds.Any():
            return f"{call}, 'any')"
        case Layout():
            return _layout_call(desc, placement, call)
        case kinds.SwizzledLayout():
            return _swizzled_call(desc, placement, call)
        case kinds.HostScalar():
            return f"MemoryDesc.host_scalar('{data_type}')"
        case kinds.Opaque(name=name, nbytes=nbytes):
            return f"MemoryDesc.opaque({dims_text(dims)}, '{data_type}', {name!r}, {nbytes})"
    types = {name: getattr(placement, name, "") for name in ("index_type", "pointer_type", "tag")}
    options = "".join(f", {name}='{value}'" for name, value in types.items() if value and value != "s32")
    return f"MemoryDesc.{placement.encoding}({dims_text(dims)}, '{data_type}', {placement.nnz}{options})"


def _layout_call(desc: DescriptorFields, layout: Layout, call: str) -> str:
    """Return the call for a descriptor with a layout; `call` is its beginning, up to the data type."""
    extras = f", extras={desc.extras!r}" if desc.extras else ""
    start = f", offset0={desc.offset0}" if desc.offset0 else ""
    spelled = desc.spelling or tag_without_extras(desc)
    if spelled is not None and is_spelled(layout, parse_notation(spelled)):
        return f"{call}, {_spelled_arguments(desc, layout, spelled)}{start}{extras})"
    arguments = _layout_arguments(desc, layout) if desc.offset0 == 0 else None
    if arguments is not None:
        return f"{call}, {arguments}{extras})"
    logical = f", dims={dims_text(desc.dims)}" if desc.dims != layout.dims else ""
    return f"MemoryDesc.from_layout({layout!r}, '{desc.data_type}'{logical}{start}{extras})"


def _spelled_arguments(desc: DescriptorFields, layout: Layout, spelled: str) -> str:
    """Return the format, and the padded dims and strides that it does not give, as arguments of `MemoryDesc`."""
    notation = parse_notation(spelled)
    padded = "" if notation.layout(desc.dims).dims == layout.dims else f", padded_dims={dims_text(layout.dims)}"
    strides = tuple(axis.stride for axis in layout.axes)
    is_wider = notation.layout(layout.dims) != layout
    keyword = "pattern=" if isinstance(notation, Pattern) else ""
    return f"{keyword}'{spelled}'{padded}{f', strides={dims_text(strides)}' if is_wider else ''}"


def _swizzled_call(desc: DescriptorFields, placement: kinds.SwizzledLayout, call: str) -> str:
    """Return the call for a swizzled descriptor; `call` is its beginning, up to the data type."""
    start = f", offset0={desc.offset0}" if desc.offset0 else ""
    argument = f", swizzle={placement.swizzle!r}"
    if desc.spelling is not None:
        is_in_text = isinstance(parse_notation(desc.spelling), SwizzledNotation)
        arguments = _spelled_arguments(desc, placement.layout, desc.spelling)
        return f"{call}, {arguments}{start}{'' if is_in_text else argument})"
    logical = f", dims={dims_text(desc.dims)}" if desc.dims != placement.layout.dims else ""
    return f"MemoryDesc.from_layout({placement.layout!r}, '{desc.data_type}'{logical}{start}{argument})"


def _layout_arguments(desc: DescriptorFields, layout: Layout) -> str | None:
    """Return the arguments of `MemoryDesc` that create `layout`, or None if only `from_layout` can."""
    if desc._blocks:
        return None
    if desc._blocks == ():
        argument, padded = f"strides={dims_text(tuple(axis.stride for axis in layout.axes))}", desc.dims
    else:
        try:
            argument = f"pattern='{pattern_of(layout)}'"
            padded = parse_pattern(pattern_of(layout), desc.dims).dims
        except InlayError:
            return None
    return argument if padded == layout.dims else f"{argument}, padded_dims={dims_text(layout.dims)}"


def dims_text(values: Dims) -> str:
    """Return the text of a tuple as Python writes it, with RUNTIME by its name.

    >>> dims_text((2, RUNTIME)), dims_text((3,))
    ('(2, RUNTIME)', '(3,)')
    """
    texts = ["RUNTIME" if value == RUNTIME else str(value) for value in values]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
