"""`MemoryDesc`: dims, data type and layout of the memory of a tensor, with the semantics of oneDNN's descriptors.

A descriptor has logical `dims`, a data type, and usually a layout of the `padded_dims`, whose origin is `offset0`
elements into the buffer. For 17 channels in blocks of 8:

    >>> from inlay.descriptor import MemoryDesc
    >>> desc = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    >>> desc.padded_dims, desc.strides, desc.inner_blocks
    ((2, 24, 5, 4), (480, 160, 32, 8), ((1, 8),))
    >>> desc.offset((1, 16, 4, 3)), desc.size
    (952, 3840)
    >>> str(desc)
    'f32:p:blocked:aBcd8b::f0'

Coordinates below `dims` are data. Coordinates from there to `padded_dims` are padding, which is always zero. Other
bytes of the buffer do not belong to the tensor. Strides and offsets count elements, sizes count bytes.

Descriptors can be compared in two ways. `==` is oneDNN's equality: the same dims, padding, type, offset, strides and
inner blocks, where strides of unit axes are ignored. `equivalent` compares the offsets of all coordinates.

The zero descriptor, `MemoryDesc()`, has no dims. A constructor without dims creates it and ignores the other arguments.
With `allow_empty=True`, constructors and views return it instead of raising an error.

The class holds the fields, creates descriptors and compares them. Its queries are those of the base class
`DescriptorQueries`, which are functions of other modules of this package.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from inlay.arguments import as_flag
from inlay.data_type import ALL_TYPES, DataType, DataTypeLike
from inlay.descriptor import creation, kinds, portable, queries, viewing
from inlay.descriptor.creation import FormatLike
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.descriptor.fields import FieldValues, InnerBlocks
from inlay.descriptor.kind_constructors import KindConstructors
from inlay.descriptor.query_attributes import DescriptorQueries
from inlay.errors import InlayError, InvalidArguments, shown
from inlay.layout import Dims, Layout, Refusal, Swizzle
from inlay.layout.regroup import ViewFault

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@final
@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class MemoryDesc(KindConstructors, DescriptorQueries):
    """Dims, data type and layout of a tensor in memory."""

    dims: Dims
    """Number of elements along each logical axis, without padding; an entry may be RUNTIME."""
    data_type: DataType | None
    """Data type of the elements; None for the zero descriptor only."""
    layout: kinds.Placement
    """`Layout` of the padded dims, or the kind of a descriptor without a layout."""
    offset0: int
    """Offset of the origin in the buffer, in elements."""
    extras: Extras
    """Flags and masks of the compensation behind the elements of int8 weights; no flags in most descriptors."""
    spelling: str | None
    """Text of the format that this descriptor was created from, in its letters or names; None if there was none.

    JSON, pickle and copy preserve it, views and equality do not. `tag` is the tag in abstract letters.
    """
    _blocks: InnerBlocks | None
    """Inner blocks, outermost first; None if there is no layout or oneDNN cannot represent it."""
    _key: tuple[object, ...] | None
    """Key that equality compares; None until it is needed."""
    _hash: int | None
    """Hash of `_key`; None until it is needed."""

    def __init__(
        self,
        dims: Iterable[int] = (),
        data_type: DataTypeLike | None = None,
        format: FormatLike | Sequence[int] | None = None,
        *,
        strides: Iterable[int] | None = None,
        padded_dims: Iterable[int] | None = None,
        pattern: str | None = None,
        offset0: int = 0,
        alignment: int | None = None,
        swizzle: Swizzle | None = None,
        extras: Extras = NO_EXTRAS,
        allow_empty: bool = False,
    ) -> None:
        """Create a descriptor of a format, or of strides; by default it is dense and row-major.

        The arguments can be combined:

            format        any text of `parse_notation`: a format tag in abstract or role letters, a pattern, a layout of
                          CuTe, with or without a swizzle; or `any`. A tuple or list of integers is `strides`
            pattern       a format that must be a pattern
            strides       without a format, stride of each axis; with it, stride of each leading digit; in elements
            padded_dims   dims in memory, larger than `dims`; in elements
            offset0       offset of the origin in the buffer, such as a header; in elements
            alignment     each tile, the run below the leading digits, is padded to a multiple of this; in bytes
            swizzle       permutation of the offsets from the origin; in elements
            extras        compensation of int8 weights

        The format `undef` gives the zero descriptor, and so do empty dims.

        Post-conditions:
            `self.padded_dims[i]` is `dims[i]` rounded up to whole blocks, unless `padded_dims` are passed.
            `self.strides` are `strides`, or those that oneDNN gives the tag.

        Raises:
            InvalidArguments: oneDNN would reject the arguments (`invalid_arguments`), one has a wrong type, such as a
                float among the dims, or two contradict each other, such as strides in another order than the format.
            FormatTagError, PatternError, NotationError: the text cannot be parsed, or its groups do not fit `dims`.

        Source: oneDNN, `dnnl_memory_desc_create_with_tag` and `dnnl_memory_desc_create_with_strides`.

        >>> MemoryDesc((4, 6), "bf16", strides=(8, 1)).size
        64
        >>> MemoryDesc((300, 20), "u8", "(m m4 m32) (k k4) -> m k m32 m4 k4", offset0=64, alignment=4096).offset((0, 4))
        4160
        """
        try:
            fields = creation.create_fields(
                dims, data_type, format, strides, padded_dims, pattern, extras, offset0, alignment, swizzle
            )
        except InlayError:
            if not as_flag("allow_empty", allow_empty):
                raise
            fields = creation.ZERO
        self._fill(fields)

    def _fill(self, fields: FieldValues) -> None:
        """Set the fields of a new object."""
        dims, data_type, layout, offset0, blocks, extras, spelling = fields
        _set_dims(self, dims)
        _set_data_type(self, data_type)
        _set_layout(self, layout)
        _set_offset0(self, offset0)
        _set_extras(self, extras)
        _set_spelling(self, spelling)
        _set_blocks(self, blocks)
        _set_key(self, None)
        _set_hash(self, None)

    @classmethod
    def from_layout(
        cls,
        layout: Layout,
        data_type: DataTypeLike,
        *,
        dims: Iterable[int] | None = None,
        offset0: int = 0,
        swizzle: Swizzle | None = None,
        extras: Extras = NO_EXTRAS,
        allow_empty: bool = False,
    ) -> "MemoryDesc":
        """Create the descriptor of a layout, whose dims are the padded ones; `dims` are the logical ones, if smaller.

        If oneDNN can represent the layout, its checks apply. Other layouts are accepted as they are: any digits,
        negative strides, overlapping elements. The caller chooses `offset0` so that all elements are in the buffer.

        Post-condition: for every coordinate x, result.offset(x) == offset0 + swizzle.apply(layout.offset(x)).

        Raises:
            InvalidArguments: `layout` is not a Layout, `dims` exceed its dims, `offset0` is negative, a number does not
                fit 64 bits, or oneDNN can represent the layout but rejects its size.

        >>> MemoryDesc.from_layout(Layout.from_strides((4, 6), (8, 1)), "f32")
        MemoryDesc((4, 6), 'f32', strides=(8, 1))
        >>> MemoryDesc.from_layout(Layout.from_strides((4, 6), (-6, 1)), "f32", offset0=18).kind
        'digits'
        """
        return _create(
            allow_empty, lambda: creation.fields_of_layout(layout, data_type, dims, offset0, extras, swizzle)
        )

    @classmethod
    def from_json(cls, text: str) -> "MemoryDesc":
        """Parse the JSON that `to_json` wrote.

        Raises:
            InvalidArguments: `text` has another form or version, a key is missing, unknown or duplicate, a value has
                the wrong type or range, or the content is not a valid descriptor.
            Unimplemented: the content is compressed sparse rows of more than 2 dims.
        """
        return _from_fields(portable.from_json(text))

    @classmethod
    def from_blob(cls, blob: "bytes | bytearray | memoryview | Sequence[int] | npt.NDArray[np.uint8]") -> "MemoryDesc":
        """Parse the blob that `to_blob` wrote; strides of unit axes are 1.

        `blob` is bytes, an object with the buffer protocol whose elements are bytes, such as an array of uint8, or a
        sequence of integers from 0 to 255.

        Post-condition: from_blob(blob).to_blob() == blob.

        Raises:
            InvalidArguments: `blob` is truncated, changed, of another library or version, or not a valid descriptor.
            Unimplemented: as `from_json`.
        """
        return _from_fields(portable.from_blob(blob))

    @classmethod
    def from_onednn(
        cls,
        source: ctypes.c_void_p | int | bytes,
        library: ctypes.CDLL,
        *,
        extras: Extras = NO_EXTRAS,
        name: str = "opaque",
    ) -> "MemoryDesc":
        """Import a descriptor of a loaded oneDNN 3: a `dnnl_memory_desc_t` (handle or address), or one of its blobs.

        The caller remains the owner of a handle. The handle must belong to `library`, which cannot be checked; NULL is
        an error. `library` must be the one that wrote a blob. oneDNN has no query for extra flags, so the caller passes
        them as `extras`. oneDNN has no name for an opaque format, so it gets `name`.

        Post-condition: the result has the dims, type, padding, strides, blocks, offset and size of oneDNN's queries.

        Raises:
            InvalidArguments: `source` is NULL or neither a handle nor a blob of this library, `library` is not a
                oneDNN 3, or `extras` are not those of the descriptor.
            Unimplemented: Inlay has no such descriptor: another data type, padding before the data, extras that were
                not passed, or a packed encoding with a chosen order; or the library is too old for blobs.
        """
        return portable.from_onednn(source, library, extras, name, _from_fields)

    def bind(
        self,
        dims: Iterable[int],
        *,
        strides: Iterable[int] | None = None,
        format: FormatLike | None = None,
        allow_empty: bool = False,
    ) -> "MemoryDesc":
        """Replace RUNTIME dims and strides by numbers; `dims` are all dims, including the known ones.

        If one axis has a RUNTIME stride, this axis becomes the outermost one, without a gap. If several have, their
        order is not known: pass all `strides`, or the `format` that the descriptor was created from.

        Post-conditions: result.dims == dims, and known dims, padding, strides, blocks and `offset0` are unchanged.

        Raises:
            InvalidArguments: there is no layout, `dims`, `strides` or `format` contradict known numbers, the order of
                axes is not known, or the constructor would reject the result.

        >>> from inlay.layout import RUNTIME
        >>> MemoryDesc((RUNTIME, 17, 5, 4), "f32", "nChw8c").bind((2, 17, 5, 4))
        MemoryDesc((2, 17, 5, 4), 'f32', 'nChw8c')
        """
        return _create(allow_empty, lambda: creation.bind_fields(self, dims, strides, format))

    def reshape(self, dims: int | Iterable[int], *, digits: bool = False, allow_empty: bool = False) -> "MemoryDesc":
        """Return the view of the same elements under other dims of equal volume; no data moves.

        `dims` is one integer or several; one entry may be -1, and is then the quotient of the volume and the others.

        The rules are oneDNN's: an axis with blocks or padding cannot be split or joined. With `digits` it can, if each
        new axis ends where a digit ends; the result has the kind `digits` if oneDNN cannot represent it.

        Post-conditions:
            result.offset(y) == self.offset(x) wherever x and y have the same row-major index.
            The padding of the result is the padding of self.

        Raises:
            InvalidArguments: the volumes differ, something is RUNTIME, the kind has no dims to change, or the view does
                not exist (see `views.try_reshape`); the text names the repairs.

        Source: oneDNN, `dnnl_memory_desc_reshape`.

        >>> MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").reshape((2, 17, 20))
        MemoryDesc((2, 17, 20), 'f32', 'aBc8b')
        >>> MemoryDesc((2, 16, 20), "f32", "aBc8b").reshape((32, 20), digits=True).pattern
        '(a a8) b -> a b a8'
        """
        try:  # `_create` would add two calls, 5 % of the time of a reshape
            return _from_fields(viewing.reshape(self, dims, digits, explain=allow_empty is not True))
        except InlayError:
            if not as_flag("allow_empty", allow_empty):
                raise
            return MemoryDesc()

    def try_reshape(self, dims: int | Iterable[int], *, digits: bool = False) -> "MemoryDesc | Refusal[MemoryDesc]":
        """Return the view that `reshape` returns, or a `Refusal` with the reason and repairs if there is none.

        Post-conditions, of a refusal:
            `nearest` are dims that `reshape` accepts, `free` is the result with `digits`.
            `target` has the dims of self and can be reshaped to `dims`. A reorder to it reads and writes `moved` bytes.
            It is the cheapest of three candidates: the present format without blocks on the axes concerned, the same
            with these axes adjacent, and row-major order.

        Raises:
            InvalidArguments: `dims` are invalid.

        >>> print(MemoryDesc((2, 18, 5, 4), "f32", "nChw8c").try_reshape((2, 2, 9, 5, 4)))
        axis 1 (c) cannot be split into 2 x 9: its 18 elements are padded to 24 in blocks of 8
            nChw8c (2, 18, 5, 4) -> (2, 1, 18, 5, 4) works; to split c, reorder to nchw first (5.8 kB moved)
        """
        wanted = viewing.resolve_dims(self, dims)
        fields = viewing.try_reshape(self, wanted, digits)
        if not isinstance(fields, ViewFault):
            return _from_fields(fields)
        return viewing.reshape_refusal(self, wanted, fields, digits, _from_fields)

    def permute_axes(self, permutation: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """Relabel the logical axes: axis i becomes axis `permutation[i]`; no data moves.

        As in oneDNN, axes are 0 or more; `Memory.permute_axes` takes negative ones too, which count from the last.

        Post-conditions:
            result.dims[permutation[i]] == self.dims[i] for every axis i.
            result.offset(y) == self.offset(x) for every coordinate x, where y[permutation[i]] == x[i].

        Raises:
            InvalidArguments: `permutation` does not contain each axis once, something is RUNTIME, or the kind has no
                axes to relabel.

        Source: oneDNN, `dnnl_memory_desc_permute_axes`.

        >>> MemoryDesc((2, 16, 5, 7), "f32", "aBcd8b").permute_axes((0, 3, 1, 2))
        MemoryDesc((2, 5, 7, 16), 'f32', 'aDbc8d')
        """
        return _create(allow_empty, lambda: viewing.permute_axes(self, permutation))

    reinterpret_axes = permute_axes
    """Alias of `permute_axes`, the name in a proposal (RFC) for oneDNN."""

    def rename_axes(self, order: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """Reorder the axes as NumPy's `transpose`: axis i of the result is axis `order[i]`; no data moves.

        A negative entry counts from the last axis. `permute_axes` refuses negative entries, as oneDNN does.

        Post-condition: self.rename_axes(order).permute_axes(order) == self.

        Raises:
            InvalidArguments: as `permute_axes`.

        >>> MemoryDesc((2, 16, 5, 7), "f32", "nchw").rename_axes((0, 2, 3, 1)).dims
        (2, 5, 7, 16)
        """
        return _create(allow_empty, lambda: viewing.rename_axes(self, order))

    def submemory(self, dims: Iterable[int], offsets: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """Return the view of the box of `dims` elements that starts at coordinate `offsets`; no data moves.

        Along an axis where the box reaches the last element, the view keeps the padding; its other axes have none. A
        box inside one block is allowed.

        Post-condition: result.offset(x) == self.offset(x + offsets) for every coordinate x of the box.

        Raises:
            InvalidArguments: the box is not within the dims.
            Unimplemented: something is RUNTIME, there is no layout, or a box cuts a block (see `views.try_submemory`).

        Source: oneDNN, `dnnl_memory_desc_create_submemory`.

        >>> MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").submemory((1, 9, 5, 4), (1, 8, 0, 0)).padded_dims
        (1, 16, 5, 4)
        """
        return _create(allow_empty, lambda: viewing.submemory(self, dims, offsets))

    def equivalent(self, other: "MemoryDesc") -> bool:
        """Return True if dims, padding, data type, extras, and the offset of every coordinate are the same.

        Raises:
            InvalidArguments: `other` is not a descriptor.
            Unimplemented: the layouts differ and have RUNTIME dims or strides.

        >>> twice, once = (MemoryDesc((32,), "u8", tag) for tag in ("A4a4a", "A16a"))
        >>> twice == once, twice.equivalent(once)
        (False, True)
        """
        if not isinstance(other, MemoryDesc):
            raise InvalidArguments(f"other is {shown(other)}: give the MemoryDesc to compare with")
        if self == other:
            return True
        return queries.is_equivalent(self, other)

    def _equality_key(self) -> tuple[object, ...]:
        """Return the key that `==` compares, computed at the first call."""
        if self._key is None:
            _set_key(self, queries.equality_key(self))
        return self._key  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        """Return True if descriptors are equal as in oneDNN, which ignores the strides of unpadded unit axes."""
        if self is other:
            return True
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        return self._equality_key() == other._equality_key()

    def __hash__(self) -> int:
        """Return a hash; equal descriptors have equal hashes."""
        if self._hash is None:
            _set_hash(self, hash(self._equality_key()))
        return self._hash  # type: ignore[return-value]

    def __str__(self) -> str:
        """Return oneDNN's text, such as `f32:p:blocked:aBcd8b::f0`, which does not contain the dims."""
        return queries.text(self)

    def __repr__(self) -> str:
        """Return the call that creates this descriptor."""
        return queries.call_text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the fields, without the hash, which differs between processes."""
        name = None if self.data_type is None else self.data_type.name
        return _restored, (self.dims, name, self.layout, self.offset0, self.extras, self.spelling)

    def _repr_html_(self) -> str:
        from inlay.render import show

        return show(self).html()


# A frozen dataclass is written through its slots here: two thirds of the time of `object.__setattr__`.
_set_dims = vars(MemoryDesc)["dims"].__set__
_set_data_type = vars(MemoryDesc)["data_type"].__set__
_set_layout = vars(MemoryDesc)["layout"].__set__
_set_offset0 = vars(MemoryDesc)["offset0"].__set__
_set_extras = vars(MemoryDesc)["extras"].__set__
_set_spelling = vars(MemoryDesc)["spelling"].__set__
_set_blocks = vars(MemoryDesc)["_blocks"].__set__
_set_key = vars(MemoryDesc)["_key"].__set__
_set_hash = vars(MemoryDesc)["_hash"].__set__


def _from_fields(fields: FieldValues) -> MemoryDesc:
    """Create a descriptor from validated fields."""
    desc = MemoryDesc.__new__(MemoryDesc)
    desc._fill(fields)
    return desc


def _create(allow_empty: bool, make: Callable[[], FieldValues]) -> MemoryDesc:
    """Create a descriptor from the fields that `make` returns; with `allow_empty`, the zero descriptor if it raises."""
    try:
        return _from_fields(make())
    except InlayError:
        if not as_flag("allow_empty", allow_empty):
            raise
        return MemoryDesc()


def _restored(
    dims: Dims,
    name: str | None,
    layout: kinds.Placement,
    offset0: int,
    extras: Extras = NO_EXTRAS,
    spelling: str | None = None,
) -> MemoryDesc:
    """Recreate a pickled descriptor; pickles contain the name of this function."""
    blocks = creation.onednn_blocks(layout) if isinstance(layout, Layout) else None
    data_type = None if name is None else ALL_TYPES[name]
    return _from_fields((dims, data_type, layout, offset0, blocks, extras, spelling))
