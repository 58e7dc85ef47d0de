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
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from inlay.arguments import as_flag
from inlay.data_type import ALL_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import kinds, viewing
from inlay.descriptor.creation import (
    FormatLike,
    InnerBlocks,
    accepted,
    blocks_of,
    bound_layout,
    inner_blocks_of,
    place,
    spelling_of,
    strides_apart,
)
from inlay.descriptor.extras import NO_EXTRAS, Extras, require_extras
from inlay.descriptor.portable import Portable
from inlay.descriptor.validation import as_integers, require_64_bits, require_dims, require_nested, require_placed
from inlay.errors import InlayError, InvalidArguments, Unimplemented, shown
from inlay.format_tag import FormatTag
from inlay.layout import Dims, Layout, Refusal
from inlay.layout.regroup import Fault


@final
@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class MemoryDesc(Portable):
    """Dims, data type and place of a tensor in memory."""

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
        its place is `strides`. Those count elements. `padded_dims` makes axes
        longer in memory than `dims`. `extras` say what lies behind the elements of int8 weights. No dims at all, or the
        format `undef`, give the zero descriptor whatever else is said. With `allow_empty` the zero descriptor takes the
        place of every error.

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
            wanted = as_integers("dims", dims)
            if not wanted or (type(format) is str and format == "undef"):
                self._fill((), None, kinds.Undefined(), 0, None)
                return
            format, strides = strides_apart(format, strides)
            if data_type is None:
                raise InvalidArguments("data_type is missing: give one such as 'f32'")
            element = as_data_type(data_type)
            require_dims(wanted)
            layout, blocks = place(wanted, element, format, strides, padded_dims, pattern)
            if extras is not NO_EXTRAS:
                require_extras(extras, isinstance(layout, Layout), len(wanted))
        except InlayError:
            if not as_flag("allow_empty", allow_empty):
                raise
            self._fill((), None, kinds.Undefined(), 0, None)
            return
        self._fill(wanted, element, layout, 0, blocks, extras, spelling_of(format, layout))

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
        elements share memory, is taken as it is: `offset0` is then what keeps it within its buffer. With `allow_empty`
        the zero descriptor takes the place of every error.

        Post-condition: for every coordinate x, result.offset(x) == offset0 + layout.offset(x).

        Raises:
            InvalidArguments: `layout` is none, `dims` exceed those of it, `offset0` is negative, something does not fit
                64 bits, or oneDNN can say the layout and refuses its reach.

        >>> MemoryDesc.from_layout(Layout.from_strides((4, 6), (8, 1)), "f32")
        MemoryDesc((4, 6), 'f32', strides=(8, 1))
        >>> MemoryDesc.from_layout(Layout.from_strides((4, 6), (-6, 1)), "f32", offset0=18).kind
        'digits'
        """

        def make() -> MemoryDesc:
            if not isinstance(layout, Layout):
                raise InvalidArguments(
                    f"layout is {shown(layout)}: give a Layout, such as Layout.from_strides((2, 3), (3, 1))"
                )
            wanted = layout.dims if dims is None else as_integers("dims", dims)
            require_placed(wanted, layout, offset0)
            element = as_data_type(data_type)
            require_extras(extras, isinstance(layout, Layout), len(wanted))
            return (
                _placed(wanted, element, layout, int(offset0), accepted(layout, element), extras) if wanted else cls()
            )

        return cls._or_empty(allow_empty, make)

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
                axes is not known, or the constructor would refuse the result. With `allow_empty`, the zero descriptor
                instead.

        >>> from inlay.layout import RUNTIME
        >>> MemoryDesc((RUNTIME, 17, 5, 4), "f32", "nChw8c").bind((2, 17, 5, 4))
        MemoryDesc((2, 17, 5, 4), 'f32', 'nChw8c')
        """

        def make() -> MemoryDesc:
            layout, data_type = self.require_layout("bind")
            wanted = as_integers("dims", dims)
            bound = bound_layout(self.dims, layout, wanted, strides, format)
            if strides is not None:
                require_nested(bound, data_type)
            checked = MemoryDesc.from_layout(bound, data_type, dims=wanted, offset0=self.offset0, extras=self.extras)
            if self._spelling is None or FormatTag.parse(self._spelling).layout(bound.dims) != bound:
                return checked
            return _placed(wanted, data_type, bound, 0, checked._blocks, self.extras, self._spelling)

        return self._or_empty(allow_empty, make)

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
                give the same elements under `dims` (see `views.try_reshape`); the text says what to do instead. With
                `allow_empty`, the zero descriptor instead.

        Source: oneDNN, `dnnl_memory_desc_reshape`.

        >>> MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").reshape((2, 17, 20))
        MemoryDesc((2, 17, 20), 'f32', 'aBc8b')
        >>> MemoryDesc((2, 16, 20), "f32", "aBc8b").reshape((32, 20), digits=True).pattern
        '(a a8) b -> a b a8'
        """
        try:
            wanted = as_integers("dims", dims)
            result = self._reshaped(wanted, digits)
        except InlayError:
            if not as_flag("allow_empty", allow_empty):
                raise
            return MemoryDesc()
        if not isinstance(result, Fault):
            return result
        if as_flag("allow_empty", allow_empty):
            return MemoryDesc()
        raise InvalidArguments(str(self._refusal(wanted, result, digits)))

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
        result = self._reshaped(wanted, digits)
        return self._refusal(wanted, result, digits) if isinstance(result, Fault) else result

    def _reshaped(self, dims: Dims, digits: bool) -> "MemoryDesc | Fault":
        place = viewing.reshaped(self, dims, as_flag("digits", digits))
        if isinstance(place, Fault):
            return place
        return self._viewed(dims, place, self.offset0)

    def _refusal(self, dims: Dims, fault: Fault, digits: bool) -> "Refusal[MemoryDesc]":
        from inlay.descriptor import repairs  # only refusals need it

        repair = repairs.reshape_repair(self, dims, fault, digits)
        return Refusal(
            fault.rule,
            tuple(range(*fault.run[:2])),
            fault.problem,
            repair.remedy,
            repair.nearest,
            None if repair.free is None else self._viewed(dims, repair.free, self.offset0),
            None if repair.tag is None else MemoryDesc(self.dims, self.data_type, repair.tag),
            repair.moved,
        )

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
        return self._or_empty(allow_empty, lambda: self._permuted("order", as_integers("order", order)))

    def _permuted(self, what: str, axes: Dims) -> "MemoryDesc":
        dims, place = viewing.permuted(self, what, axes)
        return self._viewed(dims, place, self.offset0)

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
        box = viewing.boxed(self, dims, offsets)
        if isinstance(box, Fault):
            from inlay.descriptor import repairs  # only refusals need it

            error = InvalidArguments if box.rule == "region" else Unimplemented
            raise error(repairs.box_text(self, dims, offsets, box))
        return self._viewed(dims, box[0], self.offset0 + box[1])

    @staticmethod
    def _or_empty(allow_empty: bool, make: Callable[[], "MemoryDesc"]) -> "MemoryDesc":
        try:
            return make()
        except InlayError:
            if not as_flag("allow_empty", allow_empty):
                raise
            return MemoryDesc()

    def _viewed(self, dims: Dims, place: kinds.Placement, offset0: int) -> "MemoryDesc":
        blocks = None
        if isinstance(place, Layout):
            # A view of what nests does.
            blocks = inner_blocks_of(place) if self._blocks is not None else blocks_of(place)
            if blocks is None or 0 in dims:
                # No rule bounds the strides there.
                require_64_bits(place)
        return _placed(dims, self.data_type, place, offset0, blocks, self.extras) if dims else MemoryDesc()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the spelling; the hash is another in each process."""
        name = None if self.data_type is None else self.data_type.name
        return _restored, (self.dims, name, self.layout, self.offset0, self.extras, self._spelling)

    def _repr_svg_(self) -> str:
        from inlay.render import show

        return show(self).svg()

    def _repr_html_(self) -> str:
        from inlay.render import show

        return show(self).html()


def _placed(
    dims: Dims,
    data_type: DataType | None,
    layout: kinds.Placement,
    offset0: int = 0,
    blocks: InnerBlocks | None = None,
    extras: Extras = NO_EXTRAS,
    spelling: str | None = None,
) -> MemoryDesc:
    """A descriptor of parts that are known to fit."""
    desc = MemoryDesc.__new__(MemoryDesc)
    desc._fill(dims, data_type, layout, offset0, blocks, extras, spelling)
    return desc


def _restored(
    dims: Dims,
    name: str | None,
    layout: kinds.Placement,
    offset0: int,
    extras: Extras = NO_EXTRAS,
    spelling: str | None = None,
) -> MemoryDesc:
    blocks = blocks_of(layout) if isinstance(layout, Layout) else None
    return _placed(dims, None if name is None else ALL_TYPES[name], layout, offset0, blocks, extras, spelling)
