"""Descriptors without a layout: sparse tensors, opaque formats, and scalars of the host.

A sparse tensor is stored with its coordinates, in several buffers.

>>> from inlay.descriptor import MemoryDesc
>>> desc = MemoryDesc.csr((3, 4), "f32", nnz=2)
>>> desc.kind, desc.sparse_encoding, desc.num_handles, str(desc)
('sparse', 'csr', 3, 'f32::sparse:csr::f0')

What the buffers hold is said in `sparsity`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

from inlay.arguments import as_flag
from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import kinds
from inlay.descriptor.creation import FormatLike
from inlay.descriptor.ordering import Ordered
from inlay.descriptor.queries import RUNTIME_SIZE
from inlay.descriptor.sparsity import (
    checked_index_type,
    checked_nnz,
    checked_opaque,
    checked_packed_tag,
    require_csr_ndims,
    sparse_data_types,
    sparse_sizes,
)
from inlay.descriptor.validation import as_integers, require_dims
from inlay.errors import InlayError, InvalidArguments
from inlay.layout import Dims

_NUMBERS = ", ".join(DATA_TYPES)


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Encoded(Ordered):
    """What creates descriptors without a layout, and the queries whose answers count buffers."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each buffer: one for every kind but sparse, whose buffers are listed in `kinds`.

        A sparse tensor with a dim of 0 has only empty buffers, and values of 4 bits take a byte each. The sizes of the
        packed encoding are 0 until a primitive has chosen its tag.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.csr((3, 4), "f32", 2).sizes, MemoryDesc((3, 4), "f32").sizes
        ((8, 8, 16), (48,))
        """
        if not isinstance(self.layout, kinds.Sparse):
            return (self.size,)
        assert self.data_type is not None
        return sparse_sizes(self.dims, self.data_type, self.layout, RUNTIME_SIZE)

    @property
    def data_types(self) -> tuple[DataType | None, ...]:
        """The type of what each buffer holds (oneDNN's `get_data_type(index)`); None where no primitive has chosen yet.

        >>> from inlay.descriptor import MemoryDesc
        >>> [str(t) for t in MemoryDesc.csr((3, 4), "f32", 2, pointer_type="s64").data_types]
        ['f32', 's32', 's64']
        """
        if self.data_type is None or not isinstance(self.layout, kinds.Sparse):
            return (self.data_type,)
        return sparse_data_types(self.dims, self.data_type, self.layout)

    @property
    def num_handles(self) -> int:
        """The number of buffers: 1 for every kind but sparse."""
        return len(self.data_types)

    @property
    def nnz(self) -> int:
        """How many elements a sparse tensor stores.

        Raises:
            InvalidArguments: the kind is not sparse.
        """
        return self._require_sparse("nnz").nnz

    @property
    def sparse_encoding(self) -> kinds.SparseEncoding:
        """How a sparse tensor says where its elements belong: `csr`, `coo` or `packed`.

        Raises:
            InvalidArguments: the kind is not sparse.
        """
        return self._require_sparse("sparse_encoding").encoding

    def _require_sparse(self, what: str) -> kinds.Sparse:
        if isinstance(self.layout, kinds.Sparse):
            return self.layout
        raise InvalidArguments(f"{what} belongs to sparse descriptors: {self!r} is of kind {self.kind}")

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
    ) -> Self:
        """The descriptor of a matrix in compressed sparse rows: buffers of `nnz` values, their columns, and row starts.

        No dims give the zero descriptor. With `allow_empty` it takes the place of every error.

        Raises:
            Unimplemented: there are more than 2 dims.
            InvalidArguments: `dims` are no shape, a type cannot be stored, `nnz` is not in 0..volume, or indices or
                pointers are floats or of 4 bits.

        Source: oneDNN, `dnnl_memory_desc_create_with_csr_encoding`.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.csr((3, 4), "f32", 2).sizes
        (8, 8, 16)
        """

        def place_rows(wanted: Dims) -> kinds.Sparse:
            require_csr_ndims(wanted)
            indices, pointers = (
                checked_index_type("index_type", index_type),
                checked_index_type("pointer_type", pointer_type),
            )
            return kinds.CSR(checked_nnz(wanted, nnz), indices, pointers)

        return cls._encoded(dims, data_type, place_rows, allow_empty, "sparse tensors")

    @classmethod
    def coo(
        cls,
        dims: Iterable[int],
        data_type: DataTypeLike,
        nnz: int,
        index_type: DataTypeLike = "s32",
        *,
        allow_empty: bool = False,
    ) -> Self:
        """The descriptor of a tensor as coordinates: buffers of `nnz` values and of their coordinate along each axis.

        Any number of dims, up to the 12 of every descriptor; oneDNN stops at 2. No dims give the zero descriptor. With
        `allow_empty` it takes the place of every error.

        Raises:
            InvalidArguments: `dims` are no shape, a type cannot be stored, `nnz` is not in 0..volume, or indices are
                floats or of 4 bits.

        Source: oneDNN, `dnnl_memory_desc_create_with_coo_encoding`.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.coo((3, 4, 5), "bf16", 2, "s64").sizes
        (4, 16, 16, 16)
        """

        def place_coordinates(wanted: Dims) -> kinds.Sparse:
            return kinds.COO(checked_nnz(wanted, nnz), checked_index_type("index_type", index_type))

        return cls._encoded(dims, data_type, place_coordinates, allow_empty, "sparse tensors")

    @classmethod
    def packed(
        cls,
        dims: Iterable[int],
        data_type: DataTypeLike,
        nnz: int,
        tag: FormatLike = "",
        *,
        allow_empty: bool = False,
    ) -> Self:
        """The descriptor of a sparse tensor whose order the primitive that takes it chooses, as `any`.

        Without `tag` it describes no memory: create a primitive with it and ask that for its descriptor, which has one.
        The buffers are up to `nnz` values in the order of the tag, the number of values before each of its blocks
        (s64), and one bit for each element, padding included (u8).

        No dims give the zero descriptor. With `allow_empty` it takes the place of every error.

        Raises:
            FormatTagError: `tag` cannot be read.
            InvalidArguments: `dims` are no shape, the type cannot be stored, `nnz` is not in 0..volume, or `tag` has
                other axes or inner blocks that do not hold a multiple of 64 elements.

        Source: oneDNN, `dnnl_memory_desc_create_with_packed_encoding`.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.packed((64, 64), "s8", 1024).sizes, MemoryDesc.packed((64, 64), "s8", 1024, "aB64b").sizes
        ((0, 0, 0), (1024, 512, 512))
        """

        def place_blocks(wanted: Dims) -> kinds.Sparse:
            return kinds.Packed(checked_nnz(wanted, nnz), checked_packed_tag(wanted, tag))

        return cls._encoded(dims, data_type, place_blocks, allow_empty, "sparse tensors")

    @classmethod
    def opaque(
        cls, dims: Iterable[int], data_type: DataTypeLike, name: str, nbytes: int, *, allow_empty: bool = False
    ) -> Self:
        """The descriptor of a tensor in an order that one engine knows, as primitives choose them: `nbytes` bytes.

        `name` is the engine's name of the format, of 1 to 64 letters, digits and `_-.`. No dims give the zero
        descriptor. With `allow_empty` it takes the place of every error.

        Raises:
            InvalidArguments: `dims` are no shape, the type cannot be stored, `name` is none, or `nbytes` is not in
                0..2**63 - 1.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.opaque((8, 8, 3, 3), "f32", "wino", 4096).size
        4096
        """

        def place_bytes(wanted: Dims) -> kinds.Placement:
            require_dims(wanted)
            return checked_opaque(name, nbytes)

        return cls._encoded(dims, data_type, place_bytes, allow_empty)

    @classmethod
    def host_scalar(cls, data_type: DataTypeLike, *, allow_empty: bool = False) -> Self:
        """The descriptor of one value that the host passes with each execution.

        Raises:
            InvalidArguments: `data_type` cannot be stored. With `allow_empty`, the zero descriptor instead.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.host_scalar("f32").size
        4
        """
        return cls._encoded((1,), data_type, lambda _: kinds.HostScalar(), allow_empty, "host scalars")

    @classmethod
    def _encoded(
        cls,
        dims: Iterable[int],
        data_type: DataTypeLike,
        place: Callable[[Dims], kinds.Placement],
        allow_empty: bool,
        numbers: str = "",
    ) -> Self:
        """The descriptor of what `place` makes of the dims: as in oneDNN, it is asked before the type.

        `numbers` says what is made of numbers only.
        """
        desc = cls.__new__(cls)
        desc._fill((), None, kinds.Undefined(), 0, None)
        try:
            wanted = as_integers("dims", dims)
            if wanted:
                placement = place(wanted)
                element = as_data_type(data_type)
                if numbers and not element.is_number:
                    raise InvalidArguments(f"{numbers} hold numbers: {element} only moves, use one of {_NUMBERS}")
                desc._fill(wanted, element, placement, 0, None)
        except InlayError:
            if not as_flag("allow_empty", allow_empty):
                raise
        return desc
