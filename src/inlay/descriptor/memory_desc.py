"""`MemoryDesc`: the value that says what a buffer holds, with oneDNN's contract.

A descriptor has logical `dims`, a data type, and a place: usually a layout of the `padded_dims` whose first element is
`offset0` elements into the buffer. For 17 channels in blocks of 8:

    >>> from inlay.descriptor import MemoryDesc
    >>> desc = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    >>> desc.padded_dims, desc.strides, desc.inner_blocks
    ((2, 24, 5, 4), (480, 160, 32, 8), ((1, 8),))
    >>> desc.offset((1, 16, 4, 3)), desc.size
    (952, 3840)
    >>> str(desc)
    'f32:p:blocked:aBcd8b::f0'

Coordinates below `dims` are data, from there to `padded_dims` padding, which is kept zero; nothing else in the buffer
belongs to the tensor. Strides and offsets count elements, sizes count bytes.

Two relations hold between descriptors. `==` is oneDNN's: the same dims, padding, type, offset and spelling, where strides
of unit axes do not count. `equivalent` asks for the same offsets, however they are spelled.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, final

import numpy.typing as npt

from inlay import views
from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import kinds
from inlay.descriptor.creation import FormatLike, InnerBlocks, accepted, inner_blocks_of, place
from inlay.descriptor.queries import descriptor_repr, equality_key, layout_size, spelled
from inlay.descriptor.textual import ZERO, descriptor_text
from inlay.descriptor.validation import as_integers, require_dims, require_padding
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.format_tag import tag_of
from inlay.layout import RUNTIME, Digit, Dims, Layout

_set = object.__setattr__


@final
@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class MemoryDesc:
    """Dims, data type and place of a tensor in memory."""

    dims: Dims
    """Elements along each logical axis, padding not counted; an entry may be RUNTIME."""
    data_type: DataType | None
    """The type of the elements; None for the zero descriptor only."""
    layout: kinds.Placement
    """A `Layout` of the padded dims, or the value that says why there is none."""
    offset0: int
    """Elements from the start of the buffer to the element at the origin."""
    _blocks: InnerBlocks | None
    """The inner blocks, outermost first; None where there is no layout or oneDNN cannot say its digit order."""
    _key: tuple[object, ...] | None
    """What equality compares, once asked for."""
    _hash: int | None
    """The hash of `_key`, once asked for."""

    def __init__(
        self,
        dims: Iterable[int] = (),
        data_type: DataTypeLike | None = None,
        format: FormatLike | None = None,
        *,
        strides: Sequence[int] | None = None,
        padded_dims: Sequence[int] | None = None,
        pattern: str | None = None,
        allow_empty: bool = False,
    ) -> None:
        """Describe a tensor by at most one of format, strides and pattern; by none of them, in dense row-major order.

        `format` is a format tag, an alias, a `FormatTag`, or `any`. `strides` count elements. `padded_dims` makes axes
        longer in memory than `dims`. No dims at all, or the format `undef`, give the zero descriptor whatever else is
        said. With `allow_empty` the zero descriptor takes the place of every error.

        Post-conditions:
            padded_dims[i] is `dims[i]` rounded up to whole blocks, unless given.
            With strides, or a tag, self.strides are these, or those that oneDNN gives the tag.

        Raises:
            InvalidArguments: oneDNN would refuse the arguments (`invalid_arguments`), or one is of no use, such as a
                float among the dims.
            FormatTagError: `format` cannot be read.
            PatternError: `pattern` cannot be read or does not fit `dims`.

        Source: oneDNN, `dnnl_memory_desc_create_with_tag` and `dnnl_memory_desc_create_with_strides`.

        >>> MemoryDesc((4, 6), "bf16", strides=(8, 1)).size
        64
        """
        try:
            wanted = as_integers("dims", dims)
            if not wanted or (type(format) is str and format == "undef"):
                self._fill((), None, kinds.Undefined(), 0, None)
                return
            if data_type is None:
                raise InvalidArguments("data_type is missing: give one such as 'f32'")
            element = as_data_type(data_type)
            require_dims(wanted)
            layout, blocks = place(wanted, element, format, strides, padded_dims, pattern)
        except InlayError:
            if not allow_empty:
                raise
            self._fill((), None, kinds.Undefined(), 0, None)
            return
        self._fill(wanted, element, layout, 0, blocks)

    def _fill(
        self, dims: Dims, data_type: DataType | None, layout: kinds.Placement, offset0: int, blocks: InnerBlocks | None
    ) -> None:
        _set(self, "dims", dims)
        _set(self, "data_type", data_type)
        _set(self, "layout", layout)
        _set(self, "offset0", offset0)
        _set(self, "_blocks", blocks)
        _set(self, "_key", None)
        _set(self, "_hash", None)

    @classmethod
    def from_layout(
        cls, layout: Layout, data_type: DataTypeLike, *, dims: Iterable[int] | None = None, offset0: int = 0
    ) -> "MemoryDesc":
        """The descriptor that places its padded dims by `layout`; `dims` are the logical ones, `layout.dims` if None.

        oneDNN's rules apply where it can say the layout; one with free digits is taken as it is.

        Post-condition: for every coordinate x, result.offset(x) == offset0 + layout.offset(x).

        Raises:
            InvalidArguments: `dims` exceed those of the layout, `offset0` is negative, or oneDNN refuses the strides.

        >>> MemoryDesc.from_layout(Layout.from_strides((4, 6), (8, 1)), "f32")
        MemoryDesc((4, 6), 'f32', strides=(8, 1))
        """
        wanted = layout.dims if dims is None else as_integers("dims", dims)
        require_dims(wanted)
        require_padding(wanted, layout.dims)
        (start,) = as_integers("offset0", (offset0,))
        if start < 0:
            raise InvalidArguments(f"offset0 is {start}: the first element lies 0 or more elements into the buffer")
        element = as_data_type(data_type)
        return _placed(wanted, element, layout, start, accepted(layout, element)) if wanted else cls()

    @classmethod
    def host_scalar(cls, data_type: DataTypeLike) -> "MemoryDesc":
        """The descriptor of one value that the host passes with each execution.

        Raises:
            InvalidArguments: `data_type` cannot be stored.

        >>> MemoryDesc.host_scalar("f32").size
        4
        """
        return _placed((1,), as_data_type(data_type), kinds.HostScalar(), 0, None)

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def is_zero(self) -> bool:
        """Whether this is the zero descriptor, which has no dims."""
        return not self.dims

    @property
    def kind(self) -> kinds.KindName:
        """oneDNN's format kind, or `digits` for a layout whose digit order oneDNN cannot say."""
        match self.layout:
            case Layout():
                return "digits" if self._blocks is None else "blocked"
            case kinds.Any():
                return "any"
            case kinds.Undefined():
                return "undef"
            case kinds.Opaque():
                return "opaque"
            case kinds.HostScalar():
                return "host_scalar"

    @property
    def padded_dims(self) -> Dims:
        """Elements along each axis in memory: data and padding."""
        match self.layout:
            case Layout(dims=padded):
                return padded
            case kinds.HostScalar():
                return (0,)
            case _:
                return self.dims

    @property
    def padded_offsets(self) -> Dims:
        """Always zeros: padding follows the data."""
        return (0,) * len(self.dims)

    @property
    def has_runtime(self) -> bool:
        """Whether a dim or stride is RUNTIME."""
        return isinstance(self.layout, Layout) and self.layout.has_runtime

    @property
    def strides(self) -> Dims:
        """Elements from one block of each axis to the next, or from one coordinate to the next where it has no blocks.

        Raises:
            InvalidArguments: the kind is not blocked.
        """
        if self.is_zero:
            return ()
        if not isinstance(self.layout, Layout) or self._blocks is None:
            self._refuse_query("strides")
        return tuple([axis.stride for axis in self.layout.axes])

    @property
    def inner_blocks(self) -> InnerBlocks:
        """Axis and size of each inner block, outermost first.

        Raises:
            InvalidArguments: the kind is not blocked.
        """
        if self.is_zero:
            return ()
        if self._blocks is None:
            self._refuse_query("inner blocks")
        return self._blocks

    def _refuse_query(self, what: str) -> NoReturn:
        if isinstance(self.layout, Layout):
            remedy = "this digit order has no inner blocks in oneDNN's sense; read `digits`"
            raise InvalidArguments(f"{what} of {self!r} cannot be said: {remedy}")
        raise InvalidArguments(f"{what} belong to blocked layouts: {self!r} is of kind {self.kind}")

    @property
    def inner_nblks(self) -> int:
        """The number of inner blocks."""
        return len(self.inner_blocks)

    @property
    def inner_blks(self) -> Dims:
        """The size of each inner block, outermost first."""
        return tuple(size for _, size in self.inner_blocks)

    @property
    def inner_idxs(self) -> Dims:
        """The axis of each inner block, outermost first."""
        return tuple(axis for axis, _ in self.inner_blocks)

    @property
    def digits(self) -> tuple[tuple[Digit, ...], ...]:
        """Per axis, every digit of its coordinates, most significant first.

        Raises:
            InvalidArguments: the kind has no layout.
        """
        return () if self.is_zero else self.require_layout("digits")[0].digits

    def require_layout(self, purpose: str) -> tuple[Layout, DataType]:
        """The layout and the data type; `purpose` begins the message where there is no layout.

        Raises:
            InvalidArguments: the kind is not blocked or digits.
        """
        if isinstance(self.layout, Layout) and self.data_type is not None:
            return self.layout, self.data_type
        raise InvalidArguments(f"{purpose} needs a layout: {self!r} is of kind {self.kind}")

    @property
    def size(self) -> int:
        """Bytes of a fresh buffer, oneDNN's measure: gaps counted, `offset0` not; 2**63 where something is RUNTIME.

        The zero descriptor, `any`, and tensors with a dim of 0 have none. What the offsets reach is `layout.span`.
        """
        match self.layout:
            case Layout():
                assert self.data_type is not None
                return layout_size(self.dims, self.layout, self.data_type, self._blocks)
            case kinds.Opaque(nbytes=nbytes):
                return nbytes
            case kinds.HostScalar():
                assert self.data_type is not None
                return self.data_type.itemsize
            case kinds.Undefined() | kinds.Any():
                return 0

    @property
    def tag(self) -> str | None:
        """The format tag that creates this descriptor, or None where none does; `any` for that kind.

        Post-condition: MemoryDesc(self.dims, self.data_type, self.tag) == self, unless None.

        >>> MemoryDesc((2, 3, 4, 5), "u8", strides=(60, 1, 15, 3)).tag
        'acdb'
        """
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
        from inlay.pattern import pattern_of
        return pattern_of(self.require_layout("pattern")[0])

    def offset(self, coordinates: npt.ArrayLike) -> Any:
        """Elements from the start of the buffer to each coordinate, `offset0` included; padding has coordinates too.

        `coordinates` has shape (..., ndims): one coordinate gives an int, an array of them an int64 array.

        Raises:
            InvalidArguments: there is no layout, or a coordinate has the wrong length or lies outside `padded_dims`.
            Unimplemented: a dim or stride is RUNTIME.

        >>> MemoryDesc((2, 16, 5, 4), "f32", "nhwc").offset((1, 2, 3, 1))
        530
        """
        return self.offset0 + self.require_layout("offset")[0].offset(coordinates)

    def byte_offset(self, coordinates: npt.ArrayLike) -> Any:
        """The byte of the buffer in which each element starts; 4-bit elements of even offset are in its low half.

        Raises:
            InvalidArguments, Unimplemented: as `offset`.

        >>> MemoryDesc((4, 6), "s4", "ab").byte_offset([(0, 0), (0, 1), (1, 1)])
        array([0, 0, 3])
        """
        return self.offset(coordinates) * self.require_layout("byte_offset")[1].bits // 8

    def reshape(self, dims: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """The same elements under other dims of equal volume; nothing moves.

        Post-condition: result.offset(y) == self.offset(x) wherever x and y have the same row-major index.

        Raises:
            InvalidArguments: the volumes differ, something is RUNTIME, the kind has no dims to change, or no strides
                give the same elements under `dims` (see `views.reshape`). With `allow_empty`, the zero descriptor instead.

        Source: oneDNN, `dnnl_memory_desc_reshape`.

        >>> MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").reshape((2, 17, 20))
        MemoryDesc((2, 17, 20), 'f32', 'aBc8b')
        """
        return self._or_empty(allow_empty, lambda: self._reshaped(as_integers("dims", dims)))

    def _reshaped(self, dims: Dims) -> "MemoryDesc":
        require_dims(dims)
        self._require_view("reshape")
        mine, wanted = views.volume(self.dims), views.volume(dims)
        if mine != wanted or RUNTIME in dims:
            raise InvalidArguments(
                f"dims {spelled(self.dims)} have {mine} elements, {spelled(dims)} {wanted}: a reshape keeps their number"
            )
        if not isinstance(self.layout, Layout):
            return _placed(dims, self.data_type, self.layout)
        return self._viewed(dims, views.reshape(self.dims, self.layout, dims), self.offset0)

    def permute_axes(self, permutation: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """Relabel the logical axes: axis i becomes axis `permutation[i]`; nothing moves.

        Post-conditions:
            result.dims[permutation[i]] == self.dims[i] for every axis i.
            result.offset(y) == self.offset(x) for every coordinate x, where y[permutation[i]] == x[i].

        Raises:
            InvalidArguments: `permutation` is not each axis once, something is RUNTIME, or the kind has no axes to
                relabel. With `allow_empty`, the zero descriptor instead.

        Source: oneDNN, `dnnl_memory_desc_permute_axes`.

        >>> MemoryDesc((2, 16, 5, 7), "f32", "aBcd8b").permute_axes((0, 3, 1, 2))
        MemoryDesc((2, 5, 7, 16), 'f32', 'aDbc8d')
        """
        return self._or_empty(
            allow_empty, lambda: self._permuted("permutation", as_integers("permutation", permutation))
        )

    def rename_axes(self, order: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """The axes in another order, as NumPy's `transpose`: axis i of the result is axis `order[i]`; nothing moves.

        Post-condition: self.rename_axes(order).permute_axes(order) == self.

        Raises:
            InvalidArguments: as `permute_axes`.

        >>> MemoryDesc((2, 16, 5, 7), "f32", "nchw").rename_axes((0, 2, 3, 1)).dims
        (2, 5, 7, 16)
        """
        return self._or_empty(allow_empty, lambda: self._permuted("order", as_integers("order", order)))

    def _permuted(self, what: str, axes: Dims) -> "MemoryDesc":
        self._require_view("permute_axes" if what == "permutation" else "rename_axes")
        views.require_permutation(what, axes, self.ndims)
        permutation = axes if what == "permutation" else views.inverse(axes)
        dims = views.permuted(self.dims, permutation)
        if not isinstance(self.layout, Layout):
            return _placed(dims, self.data_type, self.layout)
        return self._viewed(dims, views.permute_axes(self.layout, permutation), self.offset0)

    def submemory(self, dims: Iterable[int], offsets: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """The box of `dims` elements that starts at coordinate `offsets`; nothing moves.

        An axis that reaches the border of the data keeps its padding, another has none. A box may lie inside one block.

        Post-condition: result.offset(x) == self.offset(x + offsets) for every coordinate x of the box.

        Raises:
            InvalidArguments: the box does not lie within `dims`. With `allow_empty`, the zero descriptor instead, as
                in the next case.
            Unimplemented: something is RUNTIME, there is no layout, or a box cuts a block (see `views.submemory`).

        Source: oneDNN, `dnnl_memory_desc_create_submemory`.

        >>> MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").submemory((1, 9, 5, 4), (1, 8, 0, 0)).padded_dims
        (1, 16, 5, 4)
        """
        return self._or_empty(
            allow_empty, lambda: self._boxed(as_integers("dims", dims), as_integers("offsets", offsets))
        )

    def _boxed(self, dims: Dims, offsets: Dims) -> "MemoryDesc":
        for what, values in (("dims", dims), ("offsets", offsets)):
            if len(values) != self.ndims:
                raise InvalidArguments(
                    f"{what} {values} of the submemory are {len(values)}: its parent has {self.ndims}"
                )
        if self.has_runtime:
            raise Unimplemented(f"submemory needs known dims and strides: {self!r} has RUNTIME ones, bind them first")
        views.require_region(self.dims, dims, offsets)
        if not isinstance(self.layout, Layout):
            raise Unimplemented(f"submemory needs a layout: {self!r} is of kind {self.kind}")
        layout, origin = views.submemory(self.dims, self.layout, dims, offsets)
        return self._viewed(dims, layout, self.offset0 + origin)

    def _require_view(self, what: str) -> None:
        if self.is_zero or not isinstance(self.layout, Layout | kinds.Any):
            raise InvalidArguments(f"{what} needs a layout or the format any: {self!r} is of kind {self.kind}")
        if self.has_runtime:
            raise InvalidArguments(f"{what} needs known dims and strides: {self!r} has RUNTIME ones, bind them first")

    def _or_empty(self, allow_empty: bool, make: Callable[[], "MemoryDesc"]) -> "MemoryDesc":
        try:
            return make()
        except InlayError:
            if not allow_empty:
                raise
            return MemoryDesc()

    def _viewed(self, dims: Dims, layout: Layout, offset0: int) -> "MemoryDesc":
        return _placed(dims, self.data_type, layout, offset0, inner_blocks_of(layout))

    def equivalent(self, other: "MemoryDesc") -> bool:
        """Whether both have the same dims, padding and type, and place every coordinate at the same offset.

        Raises:
            Unimplemented: they differ only in how RUNTIME dims or strides are spelled.

        >>> twice, once = (MemoryDesc((32,), "u8", tag) for tag in ("A4a4a", "A16a"))
        >>> twice == once, twice.equivalent(once)
        (False, True)
        """
        if self == other:
            return True
        if not isinstance(self.layout, Layout) or not isinstance(other.layout, Layout):
            return False
        same = (self.dims, self.data_type, self.offset0) == (other.dims, other.data_type, other.offset0)
        return same and self.layout.equivalent(other.layout)

    def _equality_key(self) -> tuple[object, ...]:
        if self._key is None:
            _set(self, "_key", equality_key(self.dims, self.data_type, self.layout, self.offset0, self._blocks))
        return self._key  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        """oneDNN's equality: the same spelling, where strides of unpadded unit axes do not count."""
        if self is other:
            return True
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        return self._equality_key() == other._equality_key()

    def __hash__(self) -> int:
        """Equal descriptors have equal hashes."""
        if self._hash is None:
            _set(self, "_hash", hash(self._equality_key()))
        return self._hash  # type: ignore[return-value]

    def __str__(self) -> str:
        """oneDNN's textual form, such as `f32:p:blocked:aBcd8b::f0`; dims are no part of it."""
        if self.is_zero or self.data_type is None:
            return ZERO
        return descriptor_text(self.dims, self.data_type, self.layout, self.offset0, self._blocks, self.size)

    def __repr__(self) -> str:
        """The call that creates this descriptor."""
        return descriptor_repr(self.dims, self.data_type, self.layout, self.offset0, self._blocks, self.tag)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the spelling; the hash is another in each process."""
        name = None if self.data_type is None else self.data_type.name
        return _restored, (self.dims, name, self.layout, self.offset0)


def _placed(
    dims: Dims,
    data_type: DataType | None,
    layout: kinds.Placement,
    offset0: int = 0,
    blocks: InnerBlocks | None = None,
) -> MemoryDesc:
    """A descriptor of parts that are known to fit."""
    desc = MemoryDesc.__new__(MemoryDesc)
    desc._fill(dims, data_type, layout, offset0, blocks)
    return desc


def _restored(dims: Dims, name: str | None, layout: kinds.Placement, offset0: int) -> MemoryDesc:
    blocks = inner_blocks_of(layout) if isinstance(layout, Layout) else None
    return _placed(dims, None if name is None else DATA_TYPES[name], layout, offset0, blocks)
