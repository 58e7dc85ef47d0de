"""What a descriptor says about the order of its elements: its tag and pattern, its strides sorted or in bytes.

>>> from inlay.descriptor import MemoryDesc
>>> rows = MemoryDesc((3, 5), "f32", strides=(8, 1))
>>> rows.tag, rows.order, rows.byte_strides, rows.is_plain, rows.is_dense
(None, (0, 1), (32, 4), True, False)
"""

from dataclasses import dataclass

from inlay.descriptor import kinds
from inlay.descriptor.described import Described
from inlay.descriptor.queries import descriptor_repr
from inlay.errors import Unimplemented
from inlay.format_tag import FormatTag, creates, order_by_stride, tag_of
from inlay.layout import RUNTIME, Dims, Layout
from inlay.pattern import pattern_of


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Ordered(Described):
    """What answers in tags, patterns and strides."""

    @property
    def tag(self) -> str | None:
        """The format tag that creates this descriptor, or None where none does; `any` for that kind.

        Post-condition: MemoryDesc(self.dims, self.data_type, self.tag) == self, unless None.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc((2, 3, 4, 5), "u8", strides=(60, 1, 15, 3)).tag
        'acdb'
        """
        return None if self.extras else self._tag

    @property
    def spelling(self) -> str | None:
        """The text of the format tag that this descriptor was made of, as it was typed; None where it was made of none.

        It is kept by JSON, pickle and copy, not by views, and is no part of equality.

        >>> from inlay.descriptor import MemoryDesc
        >>> desc = MemoryDesc((64, 16, 3, 3), "f32", "OhwI16o64i")
        >>> desc.spelling, desc.tag
        ('OhwI16o64i', 'AcdB16a64b')
        """
        return self._spelling

    def has_tag(self, tag: str | FormatTag) -> bool:
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
            return isinstance(self.layout, kinds.Any)
        wanted = tag if isinstance(tag, FormatTag) else FormatTag.parse(tag)
        if not isinstance(self.layout, Layout) or wanted.ndims != self.ndims or self.tag is None:
            return False
        return creates(wanted, self.layout, every_stride=False)

    @property
    def _tag(self) -> str | None:
        """The tag, extras left out of account."""
        if isinstance(self.layout, kinds.Any):
            return "any"
        if not isinstance(self.layout, Layout) or self._blocks is None or self.offset0:
            return None
        tag = tag_of(self.layout)
        return str(tag) if tag is not None and tag.layout(self.dims).dims == self.layout.dims else None

    @property
    def pattern(self) -> str:
        """The layout in pattern notation.

        Raises:
            InvalidArguments: there is no layout, or no pattern can say it.
        """
        return pattern_of(self.require_layout("pattern")[0])

    @property
    def is_plain(self) -> bool:
        """Whether there is a layout and no axis has inner blocks: one stride per axis says where elements lie.

        Blocks of one element are none, and so are digits that one stride says as well.

        >>> from inlay.descriptor import MemoryDesc
        >>> [MemoryDesc((2, 16, 5, 4), "f32", tag).is_plain for tag in ("nhwc", "nChw8c", "any")]
        [True, False, False]
        """
        return isinstance(self.layout, Layout) and all(axis.block == 1 for axis in self.layout.axes)

    @property
    def is_dense(self) -> bool:
        """Whether elements and padding fill the buffer from `offset0` on without gap and without overlap.

        False where there is no layout or something is RUNTIME.

        Raises:
            Unimplemented: the strides interleave so that only a long search could tell.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc((2, 17), "f32", "aB8b").is_dense, MemoryDesc((4, 6), "f32", strides=(8, 1)).is_dense
        (True, False)
        """
        return isinstance(self.layout, Layout) and not self.has_runtime and self.layout.is_dense

    @property
    def byte_strides(self) -> Dims:
        """`strides` in bytes, as NumPy's arrays have them; in bits for types of 4 bits, whose elements share bytes.

        Raises:
            InvalidArguments: the kind has no strides.
            Unimplemented: a stride is RUNTIME.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc((3, 4), "f32").byte_strides, MemoryDesc((3, 4), "s4").byte_strides
        ((16, 4), (16, 4))
        """
        strides = self.strides
        if RUNTIME in strides:
            raise Unimplemented(f"byte_strides needs every stride: {self!r} has RUNTIME ones, bind them first")
        if self.data_type is None:
            return ()
        unit = self.data_type.bits if self.data_type.is_sub_byte else self.data_type.itemsize
        return tuple([stride * unit for stride in strides])

    @property
    def order(self) -> Dims:
        """The axes sorted by falling stride of their leading digit: the first is outermost in memory.

        Of equal strides, the axis of more steps comes first, then the one of lower number; a RUNTIME stride is
        outermost. Where `tag` is a tag that leaves no unit axis to choice, this is its order.

        Raises:
            InvalidArguments: the kind has no layout.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc((3, 5), "f32", strides=(1, 8)).order, MemoryDesc((2, 3, 4, 5), "u8", "nhwc").order
        ((1, 0), (0, 2, 3, 1))
        """
        return () if self.is_zero else order_by_stride(self.require_layout("order")[0])

    def __repr__(self) -> str:
        """The call that creates this descriptor."""
        parts = (self.dims, self.data_type, self.layout, self.offset0, self._blocks, self.extras)
        return descriptor_repr(*parts, self._spelling or self._tag)
