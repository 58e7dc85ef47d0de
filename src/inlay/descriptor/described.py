"""The parts of a descriptor and what they answer: the half of `MemoryDesc` that creates nothing.

Everything here reads: the queries oneDNN has, offsets of coordinates, the two relations between descriptors, and
oneDNN's text. What a descriptor says in tags, patterns and strides is in `ordering`; what makes descriptors out of
arguments or other descriptors is in `memory_desc`.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy.typing as npt

from inlay.arguments import as_flag
from inlay.data_type import DataType
from inlay.descriptor import kinds
from inlay.descriptor.creation import InnerBlocks
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.descriptor.offsets import scaled
from inlay.descriptor.queries import RUNTIME_SIZE, equality_key, layout_size
from inlay.descriptor.sparsity import sparse_sizes
from inlay.descriptor.textual import ZERO, descriptor_text
from inlay.errors import InvalidArguments, shown
from inlay.layout import RUNTIME, Digit, Dims, Layout


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Described:
    """What `MemoryDesc` is made of and answers."""

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
    _blocks: InnerBlocks | None
    """The inner blocks, outermost first; None where there is no layout or oneDNN cannot say its digit order."""
    _spelling: str | None
    """The text of the format tag that it was made of, for texts and JSON; part of no relation between descriptors."""
    _key: tuple[object, ...] | None
    """What equality compares, once asked for."""
    _hash: int | None
    """The hash of `_key`, once asked for."""

    def _fill(
        self,
        dims: Dims,
        data_type: DataType | None,
        layout: kinds.Placement,
        offset0: int,
        blocks: InnerBlocks | None,
        extras: Extras = NO_EXTRAS,
        spelling: str | None = None,
    ) -> None:
        _set_dims(self, dims)
        _set_data_type(self, data_type)
        _set_layout(self, layout)
        _set_offset0(self, offset0)
        _set_extras(self, extras)
        _set_blocks(self, blocks)
        _set_spelling(self, spelling)
        _set_key(self, None)
        _set_hash(self, None)

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
            case kinds.CSR() | kinds.COO() | kinds.Packed():
                return "sparse"
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
        return self.layout.has_runtime if isinstance(self.layout, Layout) else RUNTIME in self.dims

    @property
    def strides(self) -> Dims:
        """Elements from one block of each axis to the next, or from one coordinate to the next where it has no blocks.

        Raises:
            InvalidArguments: there is no layout, or one with digits in an order that oneDNN cannot say.
        """
        if self.is_zero:
            return ()
        if not isinstance(self.layout, Layout) or (self._blocks is None and any(a.inner for a in self.layout.axes)):
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
        raise InvalidArguments(f"{what} belong to blocked layouts: {self!r} is of kind {self.kind}{self._remedy}")

    @property
    def _remedy(self) -> str:
        """How to get what this kind has not, as the end of a message."""
        return {
            "sparse": "; inlay.to_dense(memory) has a layout",
            "opaque": "; a reorder of the engine that chose it has one, as inlay.primitives.Reorder makes",
        }.get(self.kind, "")

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
        raise InvalidArguments(f"{purpose} needs a layout: {self!r} is of kind {self.kind}{self._remedy}")

    @property
    def size(self) -> int:
        """Bytes of a fresh buffer, oneDNN's measure: gaps and extras counted, `offset0` not; 2**63 if it is RUNTIME.

        The zero descriptor, `any`, and tensors with a dim of 0 have none. What the offsets reach is `layout.span`.
        """
        match self.layout:
            case Layout():
                assert self.data_type is not None
                return layout_size(self.dims, self.layout, self.data_type, self._blocks, self.extras)
            case kinds.Opaque(nbytes=nbytes):
                return nbytes
            case kinds.HostScalar():
                assert self.data_type is not None
                return self.data_type.itemsize
            case kinds.CSR() | kinds.COO() | kinds.Packed():
                assert self.data_type is not None
                return sparse_sizes(self.dims, self.data_type, self.layout, RUNTIME_SIZE)[0]
            case kinds.Undefined() | kinds.Any():
                return 0

    def offset(self, coordinates: npt.ArrayLike) -> Any:
        """Elements from the start of the buffer to each coordinate, `offset0` included; padding has coordinates too.

        `coordinates` has shape (..., ndims): one coordinate gives an int, an array of them an int64 array.

        Raises:
            InvalidArguments: there is no layout, or a coordinate has the wrong length or lies outside `padded_dims`.
            Unimplemented: a dim or stride is RUNTIME, or an array was given and offsets exceed 64 bits.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc((2, 16, 5, 4), "f32", "nhwc").offset((1, 2, 3, 1))
        530
        """
        return scaled(self.require_layout("offset")[0].offset(coordinates), self.offset0, 1)

    def byte_offset(self, coordinates: npt.ArrayLike) -> Any:
        """The byte of the buffer in which each element starts; 4-bit elements of even offset are in its low half.

        Raises:
            InvalidArguments, Unimplemented: as `offset`.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc((4, 6), "s4", "ab").byte_offset([(0, 0), (0, 1), (1, 1)])
        array([0, 0, 3])
        """
        layout, data_type = self.require_layout("byte_offset")
        nbytes = scaled(layout.offset(coordinates), self.offset0, data_type.itemsize)
        return nbytes // 2 if data_type.is_sub_byte else nbytes

    def equivalent(self, other: "Described") -> bool:
        """Whether both have the same dims, padding and type, and place every coordinate at the same offset.

        Raises:
            InvalidArguments: `other` is no descriptor.
            Unimplemented: they differ only in how RUNTIME dims or strides are spelled.

        >>> from inlay.descriptor import MemoryDesc
        >>> twice, once = (MemoryDesc((32,), "u8", tag) for tag in ("A4a4a", "A16a"))
        >>> twice == once, twice.equivalent(once)
        (False, True)
        """
        if not isinstance(other, Described):
            raise InvalidArguments(f"other is {shown(other)}: give the MemoryDesc to compare with")
        if self == other:
            return True
        if not isinstance(self.layout, Layout) or not isinstance(other.layout, Layout):
            return False
        mine, theirs = ((d.dims, d.data_type, d.offset0, d.extras) for d in (self, other))
        return mine == theirs and self.layout.equivalent(other.layout)

    def _equality_key(self) -> tuple[object, ...]:
        if self._key is None:
            key = equality_key(self.dims, self.data_type, self.layout, self.offset0, self._blocks)
            _set_key(self, (*key, self.extras) if self.extras else key)
        return self._key  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        """oneDNN's equality: the same spelling, where strides of unpadded unit axes do not count."""
        if self is other:
            return True
        if not isinstance(other, Described):
            return NotImplemented
        return self._equality_key() == other._equality_key()

    def __hash__(self) -> int:
        """Equal descriptors have equal hashes."""
        if self._hash is None:
            _set_hash(self, hash(self._equality_key()))
        return self._hash  # type: ignore[return-value]

    @property
    def exact_key(self) -> Hashable:
        """A key for caches of what depends on all strides: those of unpadded unit axes too, which equality ignores.

        Post-condition: descriptors with equal keys are equal and have the same strides.

        >>> from inlay.descriptor import MemoryDesc
        >>> first, last = (MemoryDesc((2, 1, 4, 4), "f32", tag) for tag in ("nchw", "nhwc"))
        >>> first == last, first.exact_key == last.exact_key
        (True, False)
        """
        return (self, self.strides) if 1 in self.dims and self._blocks is not None else self

    def __str__(self) -> str:
        """oneDNN's textual form, such as `f32:p:blocked:aBcd8b::f0`; dims are no part of it."""
        return self.text()

    def text(self, *, was_any: bool = False) -> str:
        """oneDNN's textual form; `was_any` says that the layout is what a primitive chose for the format any.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc((4, 6), "f32", strides=(8, 1)).text(was_any=True)
        'f32:a:blocked:ab:8x1:f0'
        """
        was_any = as_flag("was_any", was_any)
        if self.is_zero or self.data_type is None:
            return ZERO
        parts = (self.dims, self.data_type, self.layout, self.offset0, self._blocks, self.extras)
        return descriptor_text(*parts, was_any=was_any)


# As for the axes of a layout: writing through the slots takes two thirds of the time of `object.__setattr__`.
_set_dims = vars(Described)["dims"].__set__
_set_data_type = vars(Described)["data_type"].__set__
_set_layout = vars(Described)["layout"].__set__
_set_offset0 = vars(Described)["offset0"].__set__
_set_extras = vars(Described)["extras"].__set__
_set_blocks = vars(Described)["_blocks"].__set__
_set_spelling = vars(Described)["_spelling"].__set__
_set_key = vars(Described)["_key"].__set__
_set_hash = vars(Described)["_hash"].__set__
