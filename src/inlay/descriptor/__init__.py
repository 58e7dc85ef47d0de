"""Memory descriptors: dims, data type and layout of a tensor as one value, with the semantics of oneDNN's.

`MemoryDesc` is the class. Its queries, views and conversions are functions of the modules below, which the class has as
properties and methods. In the order of data flow:

    kinds            the kinds of descriptors without a layout: any, opaque, sparse, host scalar, undefined
    extras           `Extras`: flags of int8 weights whose compensation is stored behind the elements
    fields           the fields of a descriptor, and the queries that follow directly from them
    validation       checks of dims, padding and strides, in oneDNN's order
    creation         from the arguments of constructors to the fields
    outer_strides    outer strides of a format, and tiles padded to an alignment
    sparsity         sparse encodings: their arguments, and number, types and sizes of their buffers
    queries          sizes, offsets, cache keys, tags and texts
    viewing          views (reshape, permuted axes, submemory), and repairs for views that do not exist
    serialization    encoding and parsing of JSON, and the validation of untrusted descriptors
    blob             encoding and parsing of blobs: canonical JSON behind a header
    onednn_import    reading descriptors of a loaded oneDNN through its C API
    portable         conversions that `MemoryDesc` offers; loads the three modules above at first use
    kind_constructors  constructors of `MemoryDesc` for kinds without a layout
    inversion        the inverse of `offset`: coordinates of offsets
    query_attributes the queries and conversions of `MemoryDesc`, as attributes of its base class
    memory_desc      `MemoryDesc`
    compound_format  formats of several streams in one buffer: fields of bits, and how a value follows from them
    compound_table   the table of these formats, such as ggml's
    compound_desc    a compound format with dims
    arrays           descriptors of NumPy arrays
    comparison       the first coordinate whose offsets differ in two descriptors

Glossary (oneDNN: `dnnl_types.h`, `memory_desc_t`):

    padded dims      dims in memory: logical dims and zero padding behind them (`padded_dims`)
    inner blocks     size and axis of each block, outermost first (`inner_blks`, `inner_idxs`)
    format kind      blocked, any, opaque, sparse, host_scalar or undef (`dnnl_format_kind_t`); Inlay adds `digits`
                     and `swizzled`
    digits           kind of a layout that oneDNN cannot represent: its inner digits are not dense blocks, or its
                     strides do not nest
    nesting strides  sorted by size, each stride is at least the extent of all axes inside it
                     (`memory_desc_strides_check`)
    zero descriptor  the descriptor without dims (`zero_md`)
    offset0          offset of the origin in the buffer, in elements
    extras           flags, masks and scale of `memory_extra_desc_t`
    blob             a descriptor as bytes, in Inlay's own form; oneDNN's blobs differ
"""

from inlay.descriptor.extras import Extras
from inlay.descriptor.kinds import COO, CSR, HostScalar, Opaque, Packed, Placement, Undefined
from inlay.descriptor.memory_desc import MemoryDesc

__all__ = ["COO", "CSR", "Extras", "HostScalar", "MemoryDesc", "Opaque", "Packed", "Placement", "Undefined"]
