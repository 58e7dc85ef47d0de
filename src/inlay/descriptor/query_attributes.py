"""`DescriptorQueries`: the queries and conversions of a descriptor, as properties and methods.

Each is a function of another module of this package, which has the docstring: `desc.order` is `queries.order(desc)`.
"""

from inlay.descriptor import fields, inversion, portable, queries, sparsity
from inlay.descriptor.fields import Query


class DescriptorQueries:
    """The base class of `MemoryDesc` without fields of its own: its queries and conversions.

    >>> from inlay.descriptor import MemoryDesc
    >>> desc = MemoryDesc((2, 17), "bf16", "aB8b")
    >>> desc.shape, desc.dtype, desc.nbytes
    ((2, 17), dtype(bfloat16), 96)
    """

    __slots__ = ()

    ndims = Query(fields.ndims)
    shape = Query(fields.shape)
    dtype = Query(fields.dtype)
    is_zero = Query(fields.is_zero)
    kind = Query(fields.kind)
    padded_dims = Query(fields.padded_dims)
    padded_offsets = Query(fields.padded_offsets)
    has_runtime = Query(fields.has_runtime)
    strides = Query(fields.strides)
    inner_blocks = Query(fields.inner_blocks)
    inner_nblks = Query(fields.inner_nblks)
    inner_blks = Query(fields.inner_blks)
    inner_idxs = Query(fields.inner_idxs)
    digits = Query(fields.digits)
    swizzle = Query(fields.swizzle)
    require_layout = fields.require_layout

    size = Query(queries.size)
    sizes = Query(queries.sizes)
    nbytes = Query(queries.size)
    offset = queries.offset
    byte_offset = queries.byte_offset
    coordinate = inversion.coordinate
    is_padding = inversion.is_padding
    exact_key = Query(queries.exact_key)

    tag = Query(queries.tag)
    has_tag = queries.has_tag
    pattern = Query(queries.pattern)
    shape_stride = Query(queries.shape_stride)
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
