"""Sparse encodings: checks of their arguments, and number, data types and sizes of their buffers.

A sparse tensor stores `nnz` of its elements; all others are zero. Buffer 0 holds the values, and the other buffers hold
their positions. A matrix of 3 rows and 4 columns with two elements, in compressed rows (CSR) and as coordinates (COO):

    . . 5 .     CSR   values 5 7   indices 2 0   pointers 0 1 1 2
    . . . .     COO   values 5 7   rows 0 2      columns 2 0
    7 . . .

The packed encoding stores the nonzero elements in the order of a format tag, padding included. Buffer 1 holds, for each
block of the tag, the number of values before it. Buffer 2 has one bit for each element, from the least significant bit
of each byte: 1 if the element is stored. The primitive that the descriptor is passed to chooses the tag.

oneDNN does not check `nnz` and the types of indices. Inlay does, because it could not read the memory of an invalid
descriptor: `nnz` is between 0 and the volume, and indices and pointers are integers of whole bytes.

Source: oneDNN, `memory_desc_init_by_csr_encoding` and its siblings; `memory_desc_wrapper::size`; of the
packed encoding, `sparse_desc_t::packed_desc`.
"""

import re
from math import prod
from typing import assert_never

from inlay.arguments import integer_or_none
from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import kinds
from inlay.descriptor.fields import DescriptorFields, kind
from inlay.descriptor.validation import LARGEST, require_dims
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout import RUNTIME, Dims, Layout
from inlay.notation.format_tag import FormatTag

RUNTIME_SIZE = 2**63
"""The size of a descriptor with RUNTIME dims or strides (oneDNN's `DNNL_RUNTIME_SIZE_VAL`)."""

INDEX_TYPES = tuple(t for t in DATA_TYPES.values() if t.kind != "float" and not t.is_sub_byte)
"""Data types that indices and pointers can have."""

_OPAQUE_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")

MAX_CSR_NDIMS = 2
"""The largest number of dims of compressed rows."""

PACKED_BLOCK = 64
"""Divisor of the number of elements in the inner blocks of a packed encoding: one 64-bit word of the bitmask."""


def require_csr_ndims(dims: Dims) -> None:
    """Check that compressed rows can have these dims; as in oneDNN, this check comes first.

    Raises:
        Unimplemented: there are more than 2.
    """
    if len(dims) > MAX_CSR_NDIMS:
        raise Unimplemented(
            f"dims {dims} are {len(dims)}: CSR has rows and columns only; MemoryDesc.coo takes any number"
        )


def validate_nnz(dims: Dims, nnz: object) -> int:
    """Return the number of stored elements as a Python integer.

    Raises:
        InvalidArguments: `dims` are invalid (`require_dims`), or `nnz` is not an integer, negative, RUNTIME, or larger
            than the volume of `dims`.
    """
    require_dims(dims)
    count = integer_or_none(nnz)
    if count is None:
        raise InvalidArguments(f"nnz is {shown(nnz)}: give the number of stored elements as an integer")
    if count < 0:
        count_text = "RUNTIME" if count == RUNTIME else shown(count)
        raise InvalidArguments(f"nnz is {count_text}: a sparse tensor stores a known number of elements, 0 or more")
    if RUNTIME not in dims and count > prod(dims):
        raise InvalidArguments(
            f"nnz is {shown(count)}: dims {dims} have {prod(dims)} elements, and each is stored once at most"
        )
    return count


def validate_index_type(what: str, value: DataTypeLike) -> DataType:
    """Return the data type of indices or pointers; `what` names the argument in the error.

    Raises:
        InvalidArguments: `value` is not a data type of integers of whole bytes that oneDNN has.
    """
    data_type = as_data_type(value)
    if data_type not in INDEX_TYPES:
        known = ", ".join(t.name for t in INDEX_TYPES)
        raise InvalidArguments(f"{what} is {data_type}: positions are integers of whole bytes, one of {known}")
    return data_type


def validate_packed_tag(dims: Dims, tag: object) -> str:
    """Return the format tag of a packed encoding in abstract letters; empty for an empty `tag`.

    Raises:
        FormatTagError: `tag` cannot be parsed.
        InvalidArguments: the tag has other axes than `dims`, or the number of elements in its inner blocks is not a
            multiple of 64.
    """
    if isinstance(tag, str) and not tag:
        return ""
    parsed = tag if isinstance(tag, FormatTag) else FormatTag.parse(tag)  # type: ignore[arg-type]
    parsed.layout(dims)
    size = packed_block(parsed)
    if size % PACKED_BLOCK:
        raise InvalidArguments(
            f"the inner blocks of tag {str(parsed)!r} hold {size} element{'s' * (size != 1)}: those of the packed "
            f"encoding hold a multiple of {PACKED_BLOCK}, as in 'aB64b'"
        )
    return str(parsed)


def packed_block(tag: FormatTag) -> int:
    """Return the number of elements in the inner blocks of a tag.

    >>> packed_block(FormatTag.parse("BA16a64b4a"))
    4096
    """
    return prod(size for _, size in tag.inner_blocks)


def packed_layout(dims: Dims, placement: kinds.Packed) -> Layout:
    """Return the layout of the tensor if zeros were stored too; `placement` must have a tag."""
    return FormatTag.parse(placement.tag).layout(dims)


def make_csr(dims: Dims, nnz: object, index_type: DataTypeLike, pointer_type: DataTypeLike) -> kinds.CSR:
    """Create the kind of a matrix in compressed rows from its checked arguments.

    Raises:
        Unimplemented, InvalidArguments: see `MemoryDesc.csr`.
    """
    require_csr_ndims(dims)
    indices, pointers = validate_index_type("index_type", index_type), validate_index_type("pointer_type", pointer_type)
    return kinds.CSR(validate_nnz(dims, nnz), indices, pointers)


def make_coo(dims: Dims, nnz: object, index_type: DataTypeLike) -> kinds.COO:
    """Create the kind of a tensor in coordinate format from its checked arguments.

    Raises:
        InvalidArguments: see `MemoryDesc.coo`.
    """
    return kinds.COO(validate_nnz(dims, nnz), validate_index_type("index_type", index_type))


def make_packed(dims: Dims, nnz: object, tag: object) -> kinds.Packed:
    """Create the kind of a tensor in the packed encoding from its checked arguments.

    Raises:
        FormatTagError, InvalidArguments: see `MemoryDesc.packed`.
    """
    return kinds.Packed(validate_nnz(dims, nnz), validate_packed_tag(dims, tag))


def make_opaque(dims: Dims, name: object, nbytes: object) -> kinds.Opaque:
    """Create the kind of a tensor in an opaque format from its checked arguments.

    Raises:
        InvalidArguments: `dims` are invalid, `name` is not 1 to 64 letters, digits and `_-.`, or `nbytes` is not in
            0..2**63 - 1.
    """
    require_dims(dims)
    if not isinstance(name, str) or not _OPAQUE_NAME.fullmatch(name):
        raise InvalidArguments(f"name of an opaque format is {shown(name, 82)}: give 1 to 64 letters, digits and _-.")
    if type(nbytes) is not int or not 0 <= nbytes <= LARGEST:
        raise InvalidArguments(f"nbytes of an opaque format is {shown(nbytes)}: give 0 to 2**63 - 1")
    return kinds.Opaque(name, nbytes)


def data_types(desc: DescriptorFields) -> tuple[DataType | None, ...]:
    """The data type of each buffer (oneDNN's `get_data_type(index)`); None for a packed buffer without a tag.

    A CSR descriptor of one dim has no row starts. It has two buffers, as in oneDNN.

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


def num_handles(desc: DescriptorFields) -> int:
    """The number of buffers: 1 for all kinds but sparse."""
    return len(data_types(desc))


def nnz(desc: DescriptorFields) -> int:
    """The number of elements that a sparse tensor stores.

    Raises:
        InvalidArguments: the kind is not sparse.
    """
    return _require_sparse(desc, "nnz").nnz


def sparse_encoding(desc: DescriptorFields) -> kinds.SparseEncoding:
    """The name of the encoding of a sparse tensor: `csr`, `coo` or `packed`.

    Raises:
        InvalidArguments: the kind is not sparse.
    """
    return _require_sparse(desc, "sparse_encoding").encoding


def _require_sparse(desc: DescriptorFields, what: str) -> kinds.Sparse:
    """Return the sparse kind of a descriptor; an error for another kind starts with `what`."""
    if isinstance(desc.layout, kinds.Sparse):
        return desc.layout
    raise InvalidArguments(f"{what} belongs to sparse descriptors: {desc!r} is of kind {kind(desc)}")


def sparse_counts(dims: Dims, placement: kinds.Sparse) -> tuple[int, ...]:
    """Return the number of elements of each buffer for `dims` without RUNTIME.

    All numbers are 0 if a dim is 0, or if a packed encoding has no tag yet.

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


def sparse_sizes(desc: DescriptorFields, placement: kinds.Sparse) -> tuple[int, ...]:
    """Return the size of each buffer in bytes, 2**63 if a dim is RUNTIME; 4-bit elements take a byte, as in oneDNN."""
    types = data_types(desc)
    # As in oneDNN, a dim of 0 takes precedence over a RUNTIME dim.
    if RUNTIME in desc.dims and 0 not in desc.dims:
        return (RUNTIME_SIZE,) * len(types)
    counts = (0,) * len(types) if 0 in desc.dims else sparse_counts(desc.dims, placement)
    return tuple(n * (t.itemsize if t else 0) for n, t in zip(counts, types, strict=True))
