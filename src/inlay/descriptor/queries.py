"""What a descriptor answers: its size, the offsets of coordinates, its keys, its order of elements, and its texts.

Size is oneDNN's, the bytes up to the end of the axis that reaches farthest, inner blocks included:

    (4, 6) strides (8, 1), f32    axis 0 reaches 4 * 8 = 32 elements: 128 bytes, the last gap included
    (2, 17, 5, 4) nChw8c, f32     axis 0 reaches 2 * 480: 3840 bytes, padding included

It says what to allocate for a fresh tensor, not what a view touches: `offset0` is left out, all-zero strides give 0 or
one block, and so does a box inside one block. What offsets really reach is `Layout.span`.

A layout counts elements from its own origin; a descriptor adds `offset0`, and bytes are elements times their width.
Where many coordinates are asked at once the answers are 64-bit integers, which wrap silently in NumPy and do not here.

The order of the elements is told by tag and pattern, by the axes sorted by stride, and by strides in bytes:

>>> from inlay.descriptor import MemoryDesc
>>> rows = MemoryDesc((3, 5), "f32", strides=(8, 1))
>>> rows.tag, rows.order, rows.byte_strides, rows.is_plain, rows.is_dense
(None, (0, 1), (32, 4), True, False)

There are two texts: the call in Python that creates the descriptor, and oneDNN's notation of its verbose log,

    f32:p:blocked:aBcd8b::f0
    |   | |       |      |+-- extra flags and what they need: f9:s8m1:zpm1
    |   | |       |      +--- strides, where the layout has gaps: 8x1
    |   | |       +---------- axes outermost first by stride, upper case if blocked, then the inner blocks; * if RUNTIME
    |   | +------------------ kind
    |   +-------------------- a: any had been said; p: some axis is padded; 0: the first element is not at offset 0
    +------------------------ data type

in which axes are placed by stride alone, so the letters are not always a tag that creates the descriptor: nhwc with all
dims 1 prints `abcd`. A layout in a digit order that no tag can say prints its digits per axis, `(2,512)(4,4)(32,16)`.

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
from inlay.descriptor.described import Described, InnerBlocks, has_runtime, require_layout, strides
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.descriptor.sparsity import RUNTIME_SIZE, sparse_sizes
from inlay.descriptor.validation import LARGEST
from inlay.errors import InlayError, Unimplemented
from inlay.layout import RUNTIME, Dims, Layout
from inlay.layout.axis import LETTERS
from inlay.notation.format_tag import FormatTag, creates, order_by_stride, tag_of
from inlay.notation.pattern import parse_pattern, pattern_of

# Size in bytes


def bytes_of(elements: int, data_type: DataType) -> int:
    """Whole bytes that hold this many elements.

    >>> from inlay.data_type import as_data_type
    >>> bytes_of(5, as_data_type("s4")), bytes_of(5, as_data_type("bf16"))
    (3, 10)
    """
    return -(-elements * data_type.bits // 8)


def bytes_text(count: int) -> str:
    """A number of bytes as a reader takes it in, in powers of 1000.

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


def size(desc: Described) -> int:
    """Bytes of a fresh buffer, oneDNN's measure: gaps and extras counted, `offset0` not; 2**63 if it is RUNTIME.

    The zero descriptor, `any`, and tensors with a dim of 0 have none. What the offsets reach is `layout.span`.
    """
    match desc.layout:
        case Layout():
            return layout_size(desc, desc.layout, desc.extras)
        case kinds.Opaque(nbytes=nbytes):
            return nbytes
        case kinds.HostScalar():
            assert desc.data_type is not None
            return desc.data_type.itemsize
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            return sizes(desc)[0]
        case kinds.Undefined() | kinds.Any():
            return 0


def layout_size(desc: Described, layout: Layout, extras: Extras) -> int:
    """The size in bytes of a tensor that `layout`, that of `desc`, places with `extras` behind it.

    A layout that oneDNN cannot say takes the bytes up to its last element, from its first if that lies below 0.
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
        nbytes = bytes_of(_reach(layout, desc._blocks), desc.data_type)
    return extras.size_with(nbytes, layout.dims) if extras else nbytes


def _reach(layout: Layout, blocks: InnerBlocks) -> int:
    reach = 0
    for dim, axis in zip(layout.dims, layout.axes, strict=True):
        count = dim // axis.block
        reach = max(reach, count * axis.stride if count != 1 else 1)
    return prod([size for _, size in blocks]) if reach == 1 else reach


def sizes(desc: Described) -> tuple[int, ...]:
    """Bytes of each buffer: one for every kind but sparse, whose buffers are listed in `kinds`.

    A sparse tensor with a dim of 0 has only empty buffers, and values of 4 bits take a byte each. The sizes of the
    packed encoding are 0 until a primitive has chosen its tag.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc.csr((3, 4), "f32", 2).sizes, MemoryDesc((3, 4), "f32").sizes
    ((8, 8, 16), (48,))
    """
    return sparse_sizes(desc, desc.layout) if isinstance(desc.layout, kinds.Sparse) else (size(desc),)


# Offsets


def offset(desc: Described, coordinates: npt.ArrayLike) -> Any:
    """Elements from the start of the buffer to each coordinate, `offset0` included; padding has coordinates too.

    `coordinates` has shape (..., ndims): one coordinate gives an int, an array of them an int64 array.

    Raises:
        InvalidArguments: there is no layout, or a coordinate has the wrong length or lies outside `padded_dims`.
        Unimplemented: a dim or stride is RUNTIME, or an array was given and offsets exceed 64 bits.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((2, 16, 5, 4), "f32", "nhwc").offset((1, 2, 3, 1))
    530
    """
    return scaled(require_layout(desc, "offset")[0].offset(coordinates), desc.offset0, 1)


def byte_offset(desc: Described, coordinates: npt.ArrayLike) -> Any:
    """The byte of the buffer in which each element starts; 4-bit elements of even offset are in its low half.

    Raises:
        InvalidArguments, Unimplemented: as `offset`.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((4, 6), "s4", "ab").byte_offset([(0, 0), (0, 1), (1, 1)])
    array([0, 0, 3])
    """
    layout, data_type = require_layout(desc, "byte_offset")
    nbytes = scaled(layout.offset(coordinates), desc.offset0, data_type.itemsize)
    return nbytes // 2 if data_type.is_sub_byte else nbytes


def scaled(offsets: Any, start: int, step: int) -> Any:
    """`start + offsets` times `step`: of an int exactly, of an int64 array where the results fit.

    Raises:
        Unimplemented: `offsets` is an array and a result exceeds 64 bits.

    >>> scaled(2, 1, 4), scaled(np.array([0, 2]), 1, 4)
    (12, array([ 4, 12]))
    """
    if isinstance(offsets, np.ndarray) and offsets.size:
        low, high = ((start + int(end)) * step for end in (offsets.min(), offsets.max()))
        if low < -LARGEST or high > LARGEST:
            raise Unimplemented(f"offsets {low}..{high} exceed 64 bits: ask one coordinate at a time")
    moved = offsets + start if start else offsets
    return moved if step == 1 else moved * step


# Keys


def equality_key(desc: Described) -> tuple[object, ...]:
    """What two descriptors must share to be equal: all of the spelling, except strides of unpadded unit axes."""
    if not desc.dims or desc.data_type is None:
        return ()
    placement, code = desc.layout, desc.data_type.code or desc.data_type.name
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


def exact_key(desc: Described) -> Hashable:
    """A key for caches of what depends on all strides: those of unpadded unit axes too, which equality ignores.

    Post-condition: descriptors with equal keys are equal and have the same strides.

    >>> from inlay.descriptor import MemoryDesc
    >>> first, last = (MemoryDesc((2, 1, 4, 4), "f32", tag) for tag in ("nchw", "nhwc"))
    >>> first == last, first.exact_key == last.exact_key
    (True, False)
    """
    return (desc, strides(desc)) if 1 in desc.dims and desc._blocks is not None else desc


# Order of elements


def tag(desc: Described) -> str | None:
    """The format tag that creates this descriptor, or None where none does; `any` for that kind.

    Post-condition: MemoryDesc(self.dims, self.data_type, self.tag) == self, unless None.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((2, 3, 4, 5), "u8", strides=(60, 1, 15, 3)).tag
    'acdb'
    >>> desc = MemoryDesc((64, 16, 3, 3), "f32", "OhwI16o64i")
    >>> desc.spelling, desc.tag
    ('OhwI16o64i', 'AcdB16a64b')
    """
    return None if desc.extras else tag_without_extras(desc)


def tag_without_extras(desc: Described) -> str | None:
    """The tag, extras left out of account."""
    if isinstance(desc.layout, kinds.Any):
        return "any"
    if not isinstance(desc.layout, Layout) or desc._blocks is None or desc.offset0:
        return None
    found = tag_of(desc.layout)
    return str(found) if found is not None and found.layout(desc.dims).dims == desc.layout.dims else None


def has_tag(desc: Described, tag: str | FormatTag) -> bool:
    """Whether `tag`, in any letters, creates this descriptor; `any` is true of that kind alone.

    Post-condition: the result is whether MemoryDesc(self.dims, self.data_type, tag) == self.

    Raises:
        FormatTagError: `tag` cannot be read.
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
    return not desc.extras and tag_without_extras(desc) is not None and creates(wanted, desc.layout, every_stride=False)


def axis_letters(desc: Described) -> str:
    """One letter per axis: those of the format tag that the descriptor was made of, else those of abstract tags.

    >>> from inlay.descriptor import MemoryDesc
    >>> axis_letters(MemoryDesc((2, 3, 4, 5), "f32", "nhwc")), axis_letters(MemoryDesc((2, 3), "f32"))
    ('nchw', 'ab')
    """
    return LETTERS[: len(desc.dims)] if desc.spelling is None else FormatTag.parse(desc.spelling).letters


def pattern(desc: Described) -> str:
    """The layout in pattern notation.

    Raises:
        InvalidArguments: there is no layout, or no pattern can say it.
    """
    return pattern_of(require_layout(desc, "pattern")[0])


def is_plain(desc: Described) -> bool:
    """Whether there is a layout and no axis has inner blocks: one stride per axis says where elements lie.

    Blocks of one element are none, and so are digits that one stride says as well.

    >>> from inlay.descriptor import MemoryDesc
    >>> [MemoryDesc((2, 16, 5, 4), "f32", tag).is_plain for tag in ("nhwc", "nChw8c", "any")]
    [True, False, False]
    """
    return isinstance(desc.layout, Layout) and all(axis.block == 1 for axis in desc.layout.axes)


def is_dense(desc: Described) -> bool:
    """Whether elements and padding fill the buffer from `offset0` on without gap and without overlap.

    False where there is no layout or something is RUNTIME.

    Raises:
        Unimplemented: the strides interleave so that only a long search could tell.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((2, 17), "f32", "aB8b").is_dense, MemoryDesc((4, 6), "f32", strides=(8, 1)).is_dense
    (True, False)
    """
    return isinstance(desc.layout, Layout) and not has_runtime(desc) and desc.layout.is_dense


def byte_strides(desc: Described) -> Dims:
    """`strides` in bytes, as NumPy's arrays have them; in bits for types of 4 bits, whose elements share bytes.

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


def order(desc: Described) -> Dims:
    """The axes sorted by falling stride of their leading digit: the first is outermost in memory.

    Of equal strides, the axis of more steps comes first, then the one of lower number; a RUNTIME stride is
    outermost. Where `tag` is a tag that leaves no unit axis to choice, this is its order.

    Raises:
        InvalidArguments: the kind has no layout.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((3, 5), "f32", strides=(1, 8)).order, MemoryDesc((2, 3, 4, 5), "u8", "nhwc").order
    ((1, 0), (0, 2, 3, 1))
    """
    return order_by_stride(require_layout(desc, "order")[0]) if desc.dims else ()


# Texts


def text(desc: Described, *, was_any: bool = False) -> str:
    """oneDNN's textual form; `was_any` says that the layout is what a primitive chose for the format any.

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
            said = f"digits:{_digits(placement)}:" if desc._blocks is None else _blocked(desc, placement, desc._blocks)
            return f"{data_type}:{flags}:{said}:{desc.extras}"
        case kinds.Opaque():
            return f"{data_type}:{chosen}:{placement.name}:::f0"
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            return f"{data_type}:{chosen}:sparse:{placement.encoding}::f0"
        case kinds.HostScalar():
            # The padded dims of a host scalar are 0, unlike its dims.
            return f"{data_type}:{chosen}p:host_scalar:::f0"
    assert_never(placement)


def _blocked(desc: Described, layout: Layout, blocks: InnerBlocks) -> str:
    """Kind, letters, and strides where there are gaps, of a layout that oneDNN can say."""
    assert desc.data_type is not None
    strides = [axis.stride for axis in layout.axes]
    letters = _letters(layout, strides, blocks)
    if layout.has_runtime:
        return f"blocked:{letters}:"
    # As oneDNN: without the buffers behind the elements, but with the bytes that align them.
    nbytes = desc.extras.start(layout_size(desc, layout, NO_EXTRAS))
    # Integer halving, so an odd number of 4-bit elements counts as not dense.
    dense = prod(layout.dims) * desc.data_type.itemsize // (2 if desc.data_type.is_sub_byte else 1) == nbytes
    return f"blocked:{letters}:{'' if dense and 0 not in strides else crossed(strides)}"


def _letters(layout: Layout, strides: Sequence[int], blocks: InnerBlocks) -> str:
    if RUNTIME in strides:
        return "*"

    def place(i: int) -> tuple[int, int, int]:
        # As oneDNN: unsigned, so that stride 0 sorts outermost.
        return (-((strides[i] - 1) % 2**64), -(layout.dims[i] // layout.axes[i].block), i)

    letters = ""
    for i in sorted(range(layout.ndims), key=place):
        letters += LETTERS[i].upper() if layout.axes[i].block > 1 else LETTERS[i]
    return letters + "".join(f"{size}{LETTERS[i]}" for i, size in blocks)


def _digits(layout: Layout) -> str:
    return "x".join("".join(f"({number(d.extent)},{number(d.stride)})" for d in digits) for digits in layout.digits)


def number(value: int) -> str:
    """A dim or stride, `*` for RUNTIME."""
    return "*" if value == RUNTIME else str(value)


def crossed(values: Sequence[int]) -> str:
    """Dims as oneDNN prints them.

    >>> crossed((2, 17, RUNTIME))
    '2x17x*'
    """
    return "x".join(map(number, values))


def call_text(desc: Described) -> str:
    """The call that creates this descriptor: by its tag where one does, with padded dims where need be."""
    dims, data_type, placement = desc.dims, desc.data_type, desc.layout
    call = f"MemoryDesc({spelled(dims)}, '{data_type}'"
    match placement:
        case kinds.Undefined():
            return "MemoryDesc()"
        case kinds.Any():
            return f"{call}, 'any')"
        case Layout():
            return _layout_call(desc, placement, call)
        case kinds.HostScalar():
            return f"MemoryDesc.host_scalar('{data_type}')"
        case kinds.Opaque(name=name, nbytes=nbytes):
            return f"MemoryDesc.opaque({spelled(dims)}, '{data_type}', {name!r}, {nbytes})"
    types = {name: getattr(placement, name, "") for name in ("index_type", "pointer_type", "tag")}
    said = "".join(f", {name}='{value}'" for name, value in types.items() if value and value != "s32")
    return f"MemoryDesc.{placement.encoding}({spelled(dims)}, '{data_type}', {placement.nnz}{said})"


def _layout_call(desc: Described, layout: Layout, call: str) -> str:
    also = f", extras={desc.extras!r}" if desc.extras else ""
    tag = desc.spelling or tag_without_extras(desc)
    if tag is not None:
        is_padded = FormatTag.parse(tag).layout(desc.dims).dims != layout.dims
        return f"{call}, '{tag}'{f', padded_dims={spelled(layout.dims)}' if is_padded else ''}{also})"
    said = _arguments(desc, layout) if desc.offset0 == 0 else None
    if said is not None:
        return f"{call}, {said}{also})"
    start = f", offset0={desc.offset0}" if desc.offset0 else ""
    logical = f", dims={spelled(desc.dims)}" if desc.dims != layout.dims else ""
    return f"MemoryDesc.from_layout({layout!r}, '{desc.data_type}'{logical}{start}{also})"


def _arguments(desc: Described, layout: Layout) -> str | None:
    """The constructor's arguments that say `layout`, or None where only the layout itself does."""
    if desc._blocks:
        return None
    if desc._blocks == ():
        said, padded = f"strides={spelled(tuple(axis.stride for axis in layout.axes))}", desc.dims
    else:
        try:
            said = f"pattern='{pattern_of(layout)}'"
            padded = parse_pattern(pattern_of(layout), desc.dims).dims
        except InlayError:
            return None
    return said if padded == layout.dims else f"{said}, padded_dims={spelled(layout.dims)}"


def spelled(values: Dims) -> str:
    """A tuple as Python writes it, with RUNTIME by its name.

    >>> spelled((2, RUNTIME)), spelled((3,))
    ('(2, RUNTIME)', '(3,)')
    """
    texts = ["RUNTIME" if value == RUNTIME else str(value) for value in values]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
