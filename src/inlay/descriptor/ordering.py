"""What a descriptor says about the order of its elements: its tag and pattern, its strides sorted or in bytes.

>>> from inlay.descriptor import MemoryDesc
>>> rows = MemoryDesc((3, 5), "f32", strides=(8, 1))
>>> rows.tag, rows.order, rows.byte_strides, rows.is_plain, rows.is_dense
(None, (0, 1), (32, 4), True, False)
"""

from inlay.descriptor import kinds
from inlay.descriptor.described import Described, has_runtime, require_layout, strides
from inlay.errors import Unimplemented
from inlay.format_tag import LETTERS, FormatTag, creates, order_by_stride, tag_of
from inlay.layout import RUNTIME, Dims, Layout
from inlay.pattern import pattern_of


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
