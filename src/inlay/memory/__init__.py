"""Memory objects: a descriptor with the bytes it describes, and the reorders between them.

A `Memory` wraps any buffer without a copy, or allocates one. `pack` copies a logical array into a memory format,
`unpack` copies it back, and `reorder` copies one memory into another format. A `Reorder` is a reorder that is compiled
once and called many times:

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = np.arange(17 * 4, dtype=np.float32).reshape(1, 17, 2, 2)
    >>> packed = pack(image, "nChw8c")
    >>> packed.desc.padded_dims
    (1, 24, 2, 2)
    >>> np.array_equal(packed.unpack(), image)
    True

A buffer is checked when it is wrapped: it must hold every byte that the layout can address. A reorder then checks in
microseconds that both sides have the descriptors it was compiled for and share no bytes. It writes elements and padding
and no other byte.

Data flows through the modules in this order:

    buffers         bytes of callers and bytes that Inlay allocates; 4-bit elements; host scalars; sparse buffers
    result_pool     buffers of freed results, which new results reuse
    reorder_cache   compiled reorders between two addresses, cached by descriptors and attributes
    sparse_entries  the elements that sparse memory stores; conversions between sparse and dense memory
    padding_contents    statements on what padding holds: zero, a value, undefined
    strided_views   arrays that are views of a memory: its elements with strides, or its digits as stored
    indexing        basic indexing: integers and slices
    memory_file     files of one memory
    logical_array   `LogicalArray`, base class of `Memory`: the properties and views of an array
    memory          `Memory`; NumPy views described by a layout
    pack_reorder    `pack`, `reorder`, `Reorder`
    reorder_tuning  measures the alternatives of a reorder on buffers of its own
    padding_code    compiled loops over runs of bytes
    padding_runs    padding lanes as runs of bytes, read and written at the speed of a copy
    padding         padding lanes of a buffer: find nonzero ones, write zeros
    memory_padding  the same for a `Memory`; elementwise functions that leave padding zero
    sparse          CSR and COO memory from and to dense arrays, SciPy and torch
    axis_orders     axis orders of frameworks (NHWC, HWIO, ...) and oneDNN's names for them
    frameworks      arrays of NumPy, PyTorch and JAX from and to `Memory`

Terms:

    memory, memory descriptor   a buffer, and its dims, data type and memory format (oneDNN: `dnnl_memory_t`,
                                `dnnl_memory_desc_t`)
    logical array               a NumPy array in row-major order with the dims of the descriptor and no padding
    reorder                     a copy between two memory formats, with conversion of the data type and, by attributes,
                                scales and zero points (oneDNN: `dnnl_reorder_primitive_desc_create`)
    padding                     the elements between the dims and the padded dims, which blocked formats keep zero
                                (oneDNN developer guide, "Understanding Memory Formats")
    lane                        one element of padding
    code                        the unsigned integer with the bits of an element
    host scalar                 one number that is passed with a call, without a device buffer (oneDNN:
                                `dnnl_memory_desc_create_host_scalar`)
    handle                      the buffer of a memory; sparse memory has several (oneDNN: `dnnl_memory_create_v2`)
    CSR, COO                    sparse encodings: compressed sparse rows, and coordinates (Saad, "Iterative Methods for
                                Sparse Linear Systems", section 3.4; oneDNN: `dnnl_csr`, `dnnl_coo`)
    packed encoding             values of a blocked tensor without the zeros, with a bitmask (oneDNN: `dnnl_packed`)
    poison                      the byte 0xFF in new memory, which makes reads of unwritten bytes visible
"""

from typing import TYPE_CHECKING

from inlay.lazy_names import lazy_names

if TYPE_CHECKING:
    from inlay.memory.memory import Memory, as_strided
    from inlay.memory.memory_padding import check_padding, fill_padding, map_padded, poison_padding, zero_padding
    from inlay.memory.pack_reorder import Reorder, pack, reorder
    from inlay.memory.padding_contents import UNDEFINED, ZERO, Filled, PaddingContents

__all__ = [
    "UNDEFINED",
    "ZERO",
    "Filled",
    "Memory",
    "PaddingContents",
    "Reorder",
    "as_strided",
    "check_padding",
    "fill_padding",
    "map_padded",
    "pack",
    "poison_padding",
    "reorder",
    "zero_padding",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Filled": "inlay.memory.padding_contents",
        "Memory": "inlay.memory.memory",
        "PaddingContents": "inlay.memory.padding_contents",
        "Reorder": "inlay.memory.pack_reorder",
        "UNDEFINED": "inlay.memory.padding_contents",
        "ZERO": "inlay.memory.padding_contents",
        "as_strided": "inlay.memory.memory",
        "check_padding": "inlay.memory.memory_padding",
        "fill_padding": "inlay.memory.memory_padding",
        "map_padded": "inlay.memory.memory_padding",
        "pack": "inlay.memory.pack_reorder",
        "poison_padding": "inlay.memory.memory_padding",
        "reorder": "inlay.memory.pack_reorder",
        "zero_padding": "inlay.memory.memory_padding",
    },
)
