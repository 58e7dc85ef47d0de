"""Constructors of descriptors without a layout: sparse tensors, opaque formats, host scalars.

>>> from inlay.descriptor import MemoryDesc
>>> MemoryDesc.csr((3, 4), "f32", 2).kind, MemoryDesc.host_scalar("f32").kind
('sparse', 'host_scalar')
"""

from collections.abc import Callable, Iterable
from typing import Self

from inlay.arguments import as_flag
from inlay.data_type import DataTypeLike
from inlay.descriptor import creation, kinds, sparsity
from inlay.descriptor.creation import FormatLike
from inlay.descriptor.fields import FieldValues
from inlay.errors import InlayError
from inlay.layout import Dims


class KindConstructors:
    """Base class of `MemoryDesc` with its constructors for kinds without a layout; it has no fields."""

    __slots__ = ()

    def _fill(self, fields: FieldValues) -> None:
        """Set the fields of a new object."""
        raise NotImplementedError

    @classmethod
    def _from_fields(cls, fields: FieldValues) -> Self:
        """Create a descriptor from validated fields."""
        desc = cls.__new__(cls)
        desc._fill(fields)
        return desc

    @classmethod
    def _create_kind(
        cls,
        allow_empty: bool,
        dims: Iterable[int],
        data_type: DataTypeLike,
        place: Callable[[Dims], kinds.Placement],
    ) -> Self:
        """Create a descriptor without a layout; `place` checks the dims and returns the kind.

        With `allow_empty`, create the zero descriptor if `place` raises an error.
        """
        try:
            fields = creation.fields_without_layout(dims, data_type, place)
        except InlayError:
            if not as_flag("allow_empty", allow_empty):
                raise
            fields = creation.ZERO
        return cls._from_fields(fields)

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
        """Create the descriptor of a matrix in compressed sparse rows: `nnz` values, their columns, and row starts.

        Raises:
            Unimplemented: there are more than 2 dims.
            InvalidArguments: `dims` or a data type are invalid, `nnz` is not in 0..volume, or indices or pointers are
                floats or of 4 bits.

        Source: oneDNN, `dnnl_memory_desc_create_with_csr_encoding`.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.csr((3, 4), "f32", 2).sizes
        (8, 8, 16)
        """
        return cls._create_kind(
            allow_empty, dims, data_type, lambda wanted: sparsity.make_csr(wanted, nnz, index_type, pointer_type)
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
    ) -> Self:
        """Create the descriptor of a tensor in coordinate format: `nnz` values and their coordinates along each axis.

        The number of dims is up to 12; oneDNN supports only 2.

        Raises:
            InvalidArguments: `dims` or a data type are invalid, `nnz` is not in 0..volume, or indices are floats or of
                4 bits.

        Source: oneDNN, `dnnl_memory_desc_create_with_coo_encoding`.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.coo((3, 4, 5), "bf16", 2, "s64").sizes
        (4, 16, 16, 16)
        """
        return cls._create_kind(allow_empty, dims, data_type, lambda wanted: sparsity.make_coo(wanted, nnz, index_type))

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
        """Create the descriptor of a sparse tensor in oneDNN's packed encoding.

        Without `tag` it describes no memory: create a primitive with it, and query the primitive for a descriptor with
        the tag that it chose. The buffers are up to `nnz` values in the order of the tag, the number of values before
        each of its blocks (s64), and one bit for each element, padding included (u8).

        Raises:
            FormatTagError: `tag` cannot be parsed.
            InvalidArguments: `dims` or the data type are invalid, `nnz` is not in 0..volume, or `tag` has other axes or
                inner blocks whose number of elements is not a multiple of 64.

        Source: oneDNN, `dnnl_memory_desc_create_with_packed_encoding`.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.packed((64, 64), "s8", 1024).sizes, MemoryDesc.packed((64, 64), "s8", 1024, "aB64b").sizes
        ((0, 0, 0), (1024, 512, 512))
        """
        return cls._create_kind(allow_empty, dims, data_type, lambda wanted: sparsity.make_packed(wanted, nnz, tag))

    @classmethod
    def opaque(
        cls, dims: Iterable[int], data_type: DataTypeLike, name: str, nbytes: int, *, allow_empty: bool = False
    ) -> Self:
        """Create the descriptor of a tensor of `nbytes` bytes in a format that only one engine knows.

        `name` is the engine's name of the format, of 1 to 64 letters, digits and `_-.`.

        Raises:
            InvalidArguments: `dims`, the data type or `name` are invalid, or `nbytes` is not in 0..2**63 - 1.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.opaque((8, 8, 3, 3), "f32", "wino", 4096).size
        4096
        """
        return cls._create_kind(allow_empty, dims, data_type, lambda wanted: sparsity.make_opaque(wanted, name, nbytes))

    @classmethod
    def host_scalar(cls, data_type: DataTypeLike, *, allow_empty: bool = False) -> Self:
        """Create the descriptor of one value that the host passes with each execution.

        Raises:
            InvalidArguments: `data_type` is not a data type of numbers.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc.host_scalar("f32").size
        4
        """
        return cls._create_kind(allow_empty, (1,), data_type, lambda _: kinds.HostScalar())
