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

Two relations hold between descriptors. `==` is oneDNN's: the same dims, padding, type, offset and spelling, where
strides of unit axes do not count. `equivalent` asks for the same offsets, however they are spelled.

The zero descriptor, `MemoryDesc()`, has no dims: no dims give it whatever else is said. Constructors and views take
`allow_empty`: where it is true the zero descriptor takes the place of every error.

One class holds the fields, makes descriptors and compares them. What is told of a descriptor is a function of the
module that knows the subject, and stands in the class by its name: `desc.order` is `queries.order(desc)`.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from inlay.arguments import as_flag
from inlay.data_type import ALL_TYPES, DataType, DataTypeLike
from inlay.descriptor import creation, described, kinds, portable, queries, sparsity, viewing
from inlay.descriptor.creation import FormatLike
from inlay.descriptor.described import Fields, InnerBlocks, Query
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.descriptor.validation import as_integers
from inlay.errors import InlayError, InvalidArguments, shown
from inlay.layout import Dims, Layout, Refusal
from inlay.layout.regroup import Fault

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
    extras: Extras
    """What lies behind the elements of int8 weights; nothing in most descriptors."""
    spelling: str | None
    """The text of the format tag that this descriptor was made of, as it was typed; None where it was made of none.

    It is kept by JSON, pickle and copy, not by views, and is no part of equality; `tag` is the tag in oneDNN's letters.
    """
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
        format: FormatLike | Sequence[int] | None = None,
        *,
        strides: Iterable[int] | None = None,
        padded_dims: Iterable[int] | None = None,
        pattern: str | None = None,
        extras: Extras = NO_EXTRAS,
        allow_empty: bool = False,
    ) -> None:
        """Describe a tensor by at most one of format, strides and pattern; by none of them, in dense row-major order.

        `format` is a format tag in abstract or role letters, a `FormatTag`, or `any`; a tuple or list of integers in
        its place is `strides`. Those count elements. `padded_dims` makes axes longer in memory than `dims`. `extras`
        say what lies behind the elements of int8 weights. The format `undef` gives the zero descriptor, as no dims do.

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
        >>> MemoryDesc((4, 6), "bf16", (8, 1)) == MemoryDesc((4, 6), "bf16", strides=(8, 1))
        True
        """
        try:
            fields = creation.created(dims, data_type, format, strides, padded_dims, pattern, extras)
        except InlayError:
            if not as_flag("allow_empty", allow_empty):
                raise
            fields = creation.ZERO
        self._fill(fields)

    def _fill(self, fields: Fields) -> None:
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
        extras: Extras = NO_EXTRAS,
        allow_empty: bool = False,
    ) -> "MemoryDesc":
        """The descriptor that places its padded dims by `layout`; `dims` are the logical ones, `layout.dims` if None.

        oneDNN's rules apply where it can say the layout; one with free digits, or with strides that are negative or let
        elements share memory, is taken as it is: `offset0` is then what keeps it within its buffer.

        Post-condition: for every coordinate x, result.offset(x) == offset0 + layout.offset(x).

        Raises:
            InvalidArguments: `layout` is none, `dims` exceed those of it, `offset0` is negative, something does not fit
                64 bits, or oneDNN can say the layout and refuses its reach.

        >>> MemoryDesc.from_layout(Layout.from_strides((4, 6), (8, 1)), "f32")
        MemoryDesc((4, 6), 'f32', strides=(8, 1))
        >>> MemoryDesc.from_layout(Layout.from_strides((4, 6), (-6, 1)), "f32", offset0=18).kind
        'digits'
        """
        return _made(allow_empty, lambda: creation.placed_by(layout, data_type, dims, offset0, extras))

    @classmethod
    def csr(
        cls,
        dims: Iterable[int],
        data_type: DataTypeLike,
        nnz: int,
        index_type: DataTypeLike = "s32",
        pointer_type: DataTypeLike = "s32",
        *,
        allow_empty: bool = False,
    ) -> "MemoryDesc":
        """The descriptor of a matrix in compressed sparse rows: buffers of `nnz` values, their columns, and row starts.

        Raises:
            Unimplemented: there are more than 2 dims.
            InvalidArguments: `dims` are no shape, a type cannot be stored, `nnz` is not in 0..volume, or indices or
                pointers are floats or of 4 bits.

        Source: oneDNN, `dnnl_memory_desc_create_with_csr_encoding`.

        >>> MemoryDesc.csr((3, 4), "f32", 2).sizes
        (8, 8, 16)
        """
        return _encoded(
            allow_empty, dims, data_type, lambda wanted: sparsity.checked_csr(wanted, nnz, index_type, pointer_type)
        )

    @classmethod
    def coo(
        cls,
        dims: Iterable[int],
        data_type: DataTypeLike,
        nnz: int,
        index_type: DataTypeLike = "s32",
        *,
        allow_empty: bool = False,
    ) -> "MemoryDesc":
        """The descriptor of a tensor as coordinates: buffers of `nnz` values and of their coordinate along each axis.

        Any number of dims, up to the 12 of every descriptor; oneDNN stops at 2.

        Raises:
            InvalidArguments: `dims` are no shape, a type cannot be stored, `nnz` is not in 0..volume, or indices are
                floats or of 4 bits.

        Source: oneDNN, `dnnl_memory_desc_create_with_coo_encoding`.

        >>> MemoryDesc.coo((3, 4, 5), "bf16", 2, "s64").sizes
        (4, 16, 16, 16)
        """
        return _encoded(allow_empty, dims, data_type, lambda wanted: sparsity.checked_coo(wanted, nnz, index_type))

    @classmethod
    def packed(
        cls,
        dims: Iterable[int],
        data_type: DataTypeLike,
        nnz: int,
        tag: FormatLike = "",
        *,
        allow_empty: bool = False,
    ) -> "MemoryDesc":
        """The descriptor of a sparse tensor whose order the primitive that takes it chooses, as `any`.

        Without `tag` it describes no memory: create a primitive with it and ask that for its descriptor, which has one.
        The buffers are up to `nnz` values in the order of the tag, the number of values before each of its blocks
        (s64), and one bit for each element, padding included (u8).

        Raises:
            FormatTagError: `tag` cannot be read.
            InvalidArguments: `dims` are no shape, the type cannot be stored, `nnz` is not in 0..volume, or `tag` has
                other axes or inner blocks that do not hold a multiple of 64 elements.

        Source: oneDNN, `dnnl_memory_desc_create_with_packed_encoding`.

        >>> MemoryDesc.packed((64, 64), "s8", 1024).sizes, MemoryDesc.packed((64, 64), "s8", 1024, "aB64b").sizes
        ((0, 0, 0), (1024, 512, 512))
        """
        return _encoded(allow_empty, dims, data_type, lambda wanted: sparsity.checked_packed(wanted, nnz, tag))

    @classmethod
    def opaque(
        cls, dims: Iterable[int], data_type: DataTypeLike, name: str, nbytes: int, *, allow_empty: bool = False
    ) -> "MemoryDesc":
        """The descriptor of a tensor in an order that one engine knows, as primitives choose them: `nbytes` bytes.

        `name` is the engine's name of the format, of 1 to 64 letters, digits and `_-.`.

        Raises:
            InvalidArguments: `dims` are no shape, the type cannot be stored, `name` is none, or `nbytes` is not in
                0..2**63 - 1.

        >>> MemoryDesc.opaque((8, 8, 3, 3), "f32", "wino", 4096).size
        4096
        """
        return _encoded(allow_empty, dims, data_type, lambda wanted: sparsity.checked_opaque(wanted, name, nbytes))

    @classmethod
    def host_scalar(cls, data_type: DataTypeLike, *, allow_empty: bool = False) -> "MemoryDesc":
        """The descriptor of one value that the host passes with each execution.

        Raises:
            InvalidArguments: `data_type` cannot be stored.

        >>> MemoryDesc.host_scalar("f32").size
        4
        """
        return _encoded(allow_empty, (1,), data_type, lambda _: kinds.HostScalar())

    @classmethod
    def from_json(cls, text: str) -> "MemoryDesc":
        """The descriptor that `to_json` wrote.

        Raises:
            InvalidArguments: `text` has another form or version, a key is missing, unknown or there twice, a value has
                the wrong type or range, or what it says is no descriptor.
            Unimplemented: it says compressed sparse rows of more than 2 dims.
        """
        return _described(portable.from_json(text))

    @classmethod
    def from_blob(cls, blob: "bytes | bytearray | memoryview | Sequence[int] | npt.NDArray[np.uint8]") -> "MemoryDesc":
        """The descriptor that `to_blob` wrote; strides of unit axes are 1.

        `blob` is bytes, anything with the buffer protocol whose elements are bytes, such as an array of uint8, or a
        sequence of integers from 0 to 255.

        Post-condition: from_blob(blob).to_blob() == blob.

        Raises:
            InvalidArguments: `blob` is truncated, changed, of another library or version, or says no descriptor.
            Unimplemented: as `from_json`.
        """
        return _described(portable.from_blob(blob))

    @classmethod
    def from_onednn(
        cls,
        source: ctypes.c_void_p | int | bytes,
        library: ctypes.CDLL,
        *,
        extras: Extras = NO_EXTRAS,
        name: str = "opaque",
    ) -> "MemoryDesc":
        """The descriptor of a loaded oneDNN 3: `source` is a `dnnl_memory_desc_t` (handle or address), or a blob of it.

        The handle stays the caller's. It must be one of `library`, which nothing can check; NULL is refused. A blob is
        read by the library that wrote it. Its queries do not tell extra flags, only that there are some: whoever asked
        for them gives them as `extras`. An opaque format, which they only call so, gets `name`.

        Post-condition: the result has the dims, type, padding, strides, blocks, offset and size that the library tells.

        Raises:
            InvalidArguments: `source` is NULL or neither a handle nor a blob of this library, `library` is no oneDNN 3,
                or `extras` are not those of the descriptor.
            Unimplemented: oneDNN says what no descriptor here can: another data type, padding before the data, extras
                that were not given, a packed encoding that is filled; or the library is too old for blobs.
        """
        return portable.from_onednn(source, library, extras, name, _described)

    # What is told of a descriptor: functions of the modules that know it, where their texts are, by the same names.

    ndims = Query(described.ndims)
    is_zero = Query(described.is_zero)
    kind = Query(described.kind)
    padded_dims = Query(described.padded_dims)
    padded_offsets = Query(described.padded_offsets)
    has_runtime = Query(described.has_runtime)
    strides = Query(described.strides)
    inner_blocks = Query(described.inner_blocks)
    inner_nblks = Query(described.inner_nblks)
    inner_blks = Query(described.inner_blks)
    inner_idxs = Query(described.inner_idxs)
    digits = Query(described.digits)
    require_layout = described.require_layout

    size = Query(queries.size)
    sizes = Query(queries.sizes)
    offset = queries.offset
    byte_offset = queries.byte_offset
    exact_key = Query(queries.exact_key)

    tag = Query(queries.tag)
    has_tag = queries.has_tag
    pattern = Query(queries.pattern)
    is_plain = Query(queries.is_plain)
    is_dense = Query(queries.is_dense)
    byte_strides = Query(queries.byte_strides)
    order = Query(queries.order)

    data_types = Query(sparsity.data_types)
    num_handles = Query(sparsity.num_handles)
    nnz = Query(sparsity.nnz)
    sparse_encoding = Query(sparsity.sparse_encoding)

    text = queries.text
    to_json = portable.to_json
    to_blob = portable.to_blob
    to_onednn = portable.to_onednn

    def bind(
        self,
        dims: Iterable[int],
        *,
        strides: Iterable[int] | None = None,
        format: FormatLike | None = None,
        allow_empty: bool = False,
    ) -> "MemoryDesc":
        """The descriptor with numbers in place of RUNTIME: `dims` are all dims, the known ones repeated.

        If one axis has a RUNTIME stride, it lies outside all others without a gap. If several have, their order is not
        known: `strides`, all of them, or the `format` that the descriptor was made of says it.

        Post-conditions: result.dims == dims, and what was known is kept: dims, padding, strides, blocks, `offset0`.

        Raises:
            InvalidArguments: there is no layout, `dims`, `strides` or `format` do not fit what is known, the order of
                axes is not known, or the constructor would refuse the result.

        >>> from inlay.layout import RUNTIME
        >>> MemoryDesc((RUNTIME, 17, 5, 4), "f32", "nChw8c").bind((2, 17, 5, 4))
        MemoryDesc((2, 17, 5, 4), 'f32', 'nChw8c')
        """
        return _made(allow_empty, lambda: creation.bound(self, dims, strides, format))

    def reshape(self, dims: Iterable[int], *, digits: bool = False, allow_empty: bool = False) -> "MemoryDesc":
        """The same elements under other dims of equal volume; nothing moves.

        The rules are oneDNN's: an axis with blocks or padding is kept whole. With `digits`, blocked axes are split and
        joined too, wherever each new axis ends where a digit does; the result is of kind `digits` where oneDNN cannot
        say it.

        Post-conditions:
            result.offset(y) == self.offset(x) wherever x and y have the same row-major index.
            What is padding stays padding.

        Raises:
            InvalidArguments: the volumes differ, something is RUNTIME, the kind has no dims to change, or no strides
                give the same elements under `dims` (see `views.try_reshape`); the text says what to do instead.

        Source: oneDNN, `dnnl_memory_desc_reshape`.

        >>> MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").reshape((2, 17, 20))
        MemoryDesc((2, 17, 20), 'f32', 'aBc8b')
        >>> MemoryDesc((2, 16, 20), "f32", "aBc8b").reshape((32, 20), digits=True).pattern
        '(a a8) b -> a b a8'
        """
        try:  # not by `_made`, whose two calls would be a twentieth of the time of a reshape
            return _described(viewing.reshape(self, dims, digits, explain=allow_empty is not True))
        except InlayError:
            if not as_flag("allow_empty", allow_empty):
                raise
            return MemoryDesc()

    def try_reshape(self, dims: Iterable[int], *, digits: bool = False) -> "MemoryDesc | Refusal[MemoryDesc]":
        """What `reshape` gives, or a value that says why not and what to do instead.

        Post-conditions, of a refusal:
            `nearest` are dims that `reshape` accepts, `free` is what it gives with `digits`.
            `target` has the dims of self and can be reshaped to `dims`; reordering to it moves `moved` bytes, the
            elements read and the destination written, and no other candidate moves less: the present format without
            blocks on the axes concerned; the same with these axes together; row-major order.

        Raises:
            InvalidArguments: `dims` are no shape of a tensor.

        >>> print(MemoryDesc((2, 18, 5, 4), "f32", "nChw8c").try_reshape((2, 2, 9, 5, 4)))
        axis 1 (c) cannot be split into 2 x 9: its 18 elements are padded to 24 in blocks of 8
            nChw8c (2, 18, 5, 4) -> (2, 1, 18, 5, 4) works; to split c, reorder to nchw first (5.8 kB moved)
        """
        wanted = as_integers("dims", dims)
        fields = viewing.try_reshape(self, wanted, digits)
        if not isinstance(fields, Fault):
            return _described(fields)
        return viewing.reshape_refusal(self, wanted, fields, digits, _described)

    def permute_axes(self, permutation: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """Relabel the logical axes: axis i becomes axis `permutation[i]`; nothing moves.

        Post-conditions:
            result.dims[permutation[i]] == self.dims[i] for every axis i.
            result.offset(y) == self.offset(x) for every coordinate x, where y[permutation[i]] == x[i].

        Raises:
            InvalidArguments: `permutation` is not each axis once, something is RUNTIME, or the kind has no axes to
                relabel.

        Source: oneDNN, `dnnl_memory_desc_permute_axes`.

        >>> MemoryDesc((2, 16, 5, 7), "f32", "aBcd8b").permute_axes((0, 3, 1, 2))
        MemoryDesc((2, 5, 7, 16), 'f32', 'aDbc8d')
        """
        return _made(allow_empty, lambda: viewing.permute_axes(self, permutation))

    reinterpret_axes = permute_axes
    """`permute_axes`, by the other name that the RFC of oneDNN proposes."""

    def rename_axes(self, order: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """The axes in another order, as NumPy's `transpose`: axis i of the result is axis `order[i]`; nothing moves.

        Post-condition: self.rename_axes(order).permute_axes(order) == self.

        Raises:
            InvalidArguments: as `permute_axes`.

        >>> MemoryDesc((2, 16, 5, 7), "f32", "nchw").rename_axes((0, 2, 3, 1)).dims
        (2, 5, 7, 16)
        """
        return _made(allow_empty, lambda: viewing.rename_axes(self, order))

    def submemory(self, dims: Iterable[int], offsets: Iterable[int], *, allow_empty: bool = False) -> "MemoryDesc":
        """The box of `dims` elements that starts at coordinate `offsets`; nothing moves.

        An axis that reaches the border of the data keeps its padding, another has none. A box may lie inside one block.

        Post-condition: result.offset(x) == self.offset(x + offsets) for every coordinate x of the box.

        Raises:
            InvalidArguments: the box does not lie within `dims`.
            Unimplemented: something is RUNTIME, there is no layout, or a box cuts a block (see `views.try_submemory`).

        Source: oneDNN, `dnnl_memory_desc_create_submemory`.

        >>> MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").submemory((1, 9, 5, 4), (1, 8, 0, 0)).padded_dims
        (1, 16, 5, 4)
        """
        return _made(allow_empty, lambda: viewing.submemory(self, dims, offsets))

    def equivalent(self, other: "MemoryDesc") -> bool:
        """Whether both have the same dims, padding and type, and place every coordinate at the same offset.

        Raises:
            InvalidArguments: `other` is no descriptor.
            Unimplemented: they differ only in how RUNTIME dims or strides are spelled.

        >>> twice, once = (MemoryDesc((32,), "u8", tag) for tag in ("A4a4a", "A16a"))
        >>> twice == once, twice.equivalent(once)
        (False, True)
        """
        if not isinstance(other, MemoryDesc):
            raise InvalidArguments(f"other is {shown(other)}: give the MemoryDesc to compare with")
        if self == other:
            return True
        if not isinstance(self.layout, Layout) or not isinstance(other.layout, Layout):
            return False
        mine, theirs = ((d.dims, d.data_type, d.offset0, d.extras) for d in (self, other))
        return mine == theirs and self.layout.equivalent(other.layout)

    def _equality_key(self) -> tuple[object, ...]:
        if self._key is None:
            _set_key(self, queries.equality_key(self))
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
            _set_hash(self, hash(self._equality_key()))
        return self._hash  # type: ignore[return-value]

    def __str__(self) -> str:
        """oneDNN's textual form, such as `f32:p:blocked:aBcd8b::f0`; dims are no part of it."""
        return queries.text(self)

    def __repr__(self) -> str:
        """The call that creates this descriptor."""
        return queries.call_text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the spelling; the hash is another in each process."""
        name = None if self.data_type is None else self.data_type.name
        return _restored, (self.dims, name, self.layout, self.offset0, self.extras, self.spelling)

    def _repr_svg_(self) -> str:
        from inlay.render import show

        return show(self).svg()

    def _repr_html_(self) -> str:
        from inlay.render import show

        return show(self).html()


# As for the axes of a layout: writing through the slots takes two thirds of the time of `object.__setattr__`.
_set_dims = vars(MemoryDesc)["dims"].__set__
_set_data_type = vars(MemoryDesc)["data_type"].__set__
_set_layout = vars(MemoryDesc)["layout"].__set__
_set_offset0 = vars(MemoryDesc)["offset0"].__set__
_set_extras = vars(MemoryDesc)["extras"].__set__
_set_spelling = vars(MemoryDesc)["spelling"].__set__
_set_blocks = vars(MemoryDesc)["_blocks"].__set__
_set_key = vars(MemoryDesc)["_key"].__set__
_set_hash = vars(MemoryDesc)["_hash"].__set__


def _described(fields: Fields) -> MemoryDesc:
    """The descriptor of fields that are known to fit."""
    desc = MemoryDesc.__new__(MemoryDesc)
    desc._fill(fields)
    return desc


def _made(allow_empty: bool, make: Callable[[], Fields]) -> MemoryDesc:
    """The descriptor of what `make` gives, or with `allow_empty` the zero descriptor in place of every error."""
    try:
        return _described(make())
    except InlayError:
        if not as_flag("allow_empty", allow_empty):
            raise
        return MemoryDesc()


def _encoded(
    allow_empty: bool, dims: Iterable[int], data_type: DataTypeLike, place: Callable[[Dims], kinds.Placement]
) -> MemoryDesc:
    return _made(allow_empty, lambda: creation.encoded(dims, data_type, place))


def _restored(
    dims: Dims,
    name: str | None,
    layout: kinds.Placement,
    offset0: int,
    extras: Extras = NO_EXTRAS,
    spelling: str | None = None,
) -> MemoryDesc:
    blocks = creation.blocks_of(layout) if isinstance(layout, Layout) else None
    data_type = None if name is None else ALL_TYPES[name]
    return _described((dims, data_type, layout, offset0, blocks, extras, spelling))
