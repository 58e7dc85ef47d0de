"""What a sparse descriptor promises: how many buffers, and the data type and size of each.

A sparse tensor stores `nnz` of its elements; every other one is zero. Buffer 0 holds the values, the others say where
they belong. A matrix of 3 rows and 4 columns with two elements, and the same as coordinates:

    . . 5 .     CSR   values 5 7   indices 2 0   pointers 0 1 1 2
    . . . .     COO   values 5 7   rows 0 2      columns 2 0
    7 . . .

The packed encoding stores the elements in the order of a format tag, padding included, and leaves the zeros out. Buffer
1 says, for each block of the tag, how many values come before it, and buffer 2 has one bit for each element, from the
least significant of each byte: 1 where it is stored. Which tag is chosen by the primitive that takes the descriptor.

oneDNN takes whatever `nnz` and metadata types are given. Here they are checked, since no memory of such a descriptor
could be read: `nnz` lies between 0 and the volume, and indices and pointers are integers of whole bytes.

Source: oneDNN, `memory_desc_init_by_csr_encoding` and its siblings; `memory_desc_wrapper::size`; of the
packed encoding, `sparse_desc_t::packed_desc`.
"""

import re
from math import prod
from typing import assert_never

from inlay.arguments import integer_or_none
from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import kinds
from inlay.descriptor.described import Described, kind
from inlay.descriptor.validation import LARGEST, require_dims
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout import RUNTIME, Dims, Layout
from inlay.notation.format_tag import FormatTag

RUNTIME_SIZE = 2**63
"""The size of a descriptor with RUNTIME dims or strides (oneDNN's `DNNL_RUNTIME_SIZE_VAL`)."""

INDEX_TYPES = tuple(t for t in DATA_TYPES.values() if t.kind != "float" and not t.is_sub_byte)
"""The types that indices and pointers can have."""

_OPAQUE_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")

MAX_CSR_NDIMS = 2
"""The most dims that compressed rows can have."""

PACKED_BLOCK = 64
"""The inner blocks of a packed encoding hold a multiple of so many elements: their bits are whole words."""


def require_csr_ndims(dims: Dims) -> None:
    """Refuse dims that are no rows and columns; asked before anything else, as oneDNN does.

    Raises:
        Unimplemented: there are more than 2.
    """
    if len(dims) > MAX_CSR_NDIMS:
        raise Unimplemented(
            f"dims {dims} are {len(dims)}: CSR has rows and columns only; MemoryDesc.coo takes any number"
        )


def checked_nnz(dims: Dims, nnz: object) -> int:
    """The number of stored elements as a Python integer.

    Raises:
        InvalidArguments: `dims` are no shape, or `nnz` is no integer, negative, RUNTIME, or larger than their volume.
    """
    require_dims(dims)
    count = integer_or_none(nnz)
    if count is None:
        raise InvalidArguments(f"nnz is {shown(nnz)}: give the number of stored elements as an integer")
    if count < 0:
        said = "RUNTIME" if count == RUNTIME else shown(count)
        raise InvalidArguments(f"nnz is {said}: a sparse tensor stores a known number of elements, 0 or more")
    if RUNTIME not in dims and count > prod(dims):
        raise InvalidArguments(
            f"nnz is {shown(count)}: dims {dims} have {prod(dims)} elements, and each is stored once at most"
        )
    return count


def checked_index_type(what: str, value: DataTypeLike) -> DataType:
    """The data type of indices or pointers; `what` names the argument.

    Raises:
        InvalidArguments: `value` is no data type, or one of floats or of 4 bits.
    """
    data_type = as_data_type(value)
    if data_type not in INDEX_TYPES:
        known = ", ".join(t.name for t in INDEX_TYPES)
        raise InvalidArguments(f"{what} is {data_type}: positions are integers of whole bytes, one of {known}")
    return data_type


def checked_packed_tag(dims: Dims, tag: object) -> str:
    """The format tag of a packed encoding in oneDNN's letters; empty for none.

    Raises:
        FormatTagError: `tag` cannot be read.
        InvalidArguments: it has other axes than `dims`, or inner blocks of another number of elements than a multiple
            of 64.
    """
    if isinstance(tag, str) and not tag:
        return ""
    found = tag if isinstance(tag, FormatTag) else FormatTag.parse(tag)  # type: ignore[arg-type]
    found.layout(dims)
    size = packed_block(found)
    if size % PACKED_BLOCK:
        raise InvalidArguments(
            f"the inner blocks of tag {str(found)!r} hold {size} element{'s' * (size != 1)}: those of the packed "
            f"encoding hold a multiple of {PACKED_BLOCK}, as in 'aB64b'"
        )
    return str(found)


def packed_block(tag: FormatTag) -> int:
    """How many elements one block of a tag has.

    >>> packed_block(FormatTag.parse("BA16a64b4a"))
    4096
    """
    return prod(size for _, size in tag.inner_blocks)


def packed_layout(dims: Dims, placement: kinds.Packed) -> Layout:
    """Where each element would lie if zeros were stored too; `placement` has a tag."""
    return FormatTag.parse(placement.tag).layout(dims)


def checked_csr(dims: Dims, nnz: object, index_type: DataTypeLike, pointer_type: DataTypeLike) -> kinds.CSR:
    """The place of the elements of a matrix in compressed rows.

    Raises:
        Unimplemented, InvalidArguments: see `MemoryDesc.csr`.
    """
    require_csr_ndims(dims)
    indices, pointers = checked_index_type("index_type", index_type), checked_index_type("pointer_type", pointer_type)
    return kinds.CSR(checked_nnz(dims, nnz), indices, pointers)


def checked_coo(dims: Dims, nnz: object, index_type: DataTypeLike) -> kinds.COO:
    """The place of the elements of a tensor with their coordinates.

    Raises:
        InvalidArguments: see `MemoryDesc.coo`.
    """
    return kinds.COO(checked_nnz(dims, nnz), checked_index_type("index_type", index_type))


def checked_packed(dims: Dims, nnz: object, tag: object) -> kinds.Packed:
    """The place of the elements of a tensor without its zeros.

    Raises:
        FormatTagError, InvalidArguments: see `MemoryDesc.packed`.
    """
    return kinds.Packed(checked_nnz(dims, nnz), checked_packed_tag(dims, tag))


def checked_opaque(dims: Dims, name: object, nbytes: object) -> kinds.Opaque:
    """The place of elements that one engine knows.

    Raises:
        InvalidArguments: `dims` are no shape, `name` is none that an engine gives, or `nbytes` is no number of bytes.
    """
    require_dims(dims)
    if not isinstance(name, str) or not _OPAQUE_NAME.fullmatch(name):
        raise InvalidArguments(
            f"name of an opaque format is {shown(name, 82)}: 1 to 64 letters, digits and _-. name one"
        )
    if type(nbytes) is not int or not 0 <= nbytes <= LARGEST:
        raise InvalidArguments(f"nbytes of an opaque format is {shown(nbytes)}: give 0 to 2**63 - 1")
    return kinds.Opaque(name, nbytes)


def data_types(desc: Described) -> tuple[DataType | None, ...]:
    """The type of what each buffer holds (oneDNN's `get_data_type(index)`); None where no primitive has chosen yet.

    A CSR descriptor of one dim has no rows to point to: as oneDNN's, it counts two buffers.

    >>> from inlay.descriptor import MemoryDesc
    >>> [str(t) for t in MemoryDesc.csr((3, 4), "f32", 2, pointer_type="s64").data_types]
    ['f32', 's32', 's64']
    """
    match desc.layout:
        case kinds.CSR(index_type=index_type, pointer_type=pointer_type):
            return (desc.data_type, index_type, pointer_type)[: len(desc.dims) + 1]
        case kinds.COO(index_type=index_type):
            return (desc.data_type,) + (index_type,) * len(desc.dims)
        case kinds.Packed(tag=""):
            return (desc.data_type, None, None)
        case kinds.Packed():
            return (desc.data_type, DATA_TYPES["s64"], DATA_TYPES["u8"])
    return (desc.data_type,)


def num_handles(desc: Described) -> int:
    """The number of buffers: 1 for every kind but sparse."""
    return len(data_types(desc))


def nnz(desc: Described) -> int:
    """How many elements a sparse tensor stores.

    Raises:
        InvalidArguments: the kind is not sparse.
    """
    return _require_sparse(desc, "nnz").nnz


def sparse_encoding(desc: Described) -> kinds.SparseEncoding:
    """How a sparse tensor says where its elements belong: `csr`, `coo` or `packed`.

    Raises:
        InvalidArguments: the kind is not sparse.
    """
    return _require_sparse(desc, "sparse_encoding").encoding


def _require_sparse(desc: Described, what: str) -> kinds.Sparse:
    if isinstance(desc.layout, kinds.Sparse):
        return desc.layout
    raise InvalidArguments(f"{what} belongs to sparse descriptors: {desc!r} is of kind {kind(desc)}")


def sparse_counts(dims: Dims, placement: kinds.Sparse) -> tuple[int, ...]:
    """How many elements each buffer holds; `dims` have no RUNTIME. All are 0 where there are no elements or no tag yet.

    >>> from inlay.data_type import DATA_TYPES
    >>> sparse_counts((3, 4), kinds.CSR(2, DATA_TYPES["s32"], DATA_TYPES["s32"]))
    (2, 2, 4)
    """
    match placement:
        case kinds.CSR():
            counts = (placement.nnz, placement.nnz, dims[0] + 1)[: len(dims) + 1]
        case kinds.COO():
            counts = (placement.nnz,) * (len(dims) + 1)
        case kinds.Packed(tag=""):
            counts = (0, 0, 0)
        case kinds.Packed():
            elements = prod(packed_layout(dims, placement).dims)
            counts = (placement.nnz, elements // packed_block(FormatTag.parse(placement.tag)), elements // 8)
        case _:
            assert_never(placement)
    return (0,) * len(counts) if 0 in dims else counts


def sparse_sizes(desc: Described, placement: kinds.Sparse) -> tuple[int, ...]:
    """Bytes of each buffer, 2**63 where a dim is RUNTIME; elements of 4 bits take a byte each, as in oneDNN."""
    types = data_types(desc)
    # As oneDNN: a dim of 0 is looked for first.
    if RUNTIME in desc.dims and 0 not in desc.dims:
        return (RUNTIME_SIZE,) * len(types)
    counts = (0,) * len(types) if 0 in desc.dims else sparse_counts(desc.dims, placement)
    return tuple(n * (t.itemsize if t else 0) for n, t in zip(counts, types, strict=True))
