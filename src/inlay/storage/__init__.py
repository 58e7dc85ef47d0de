"""Tensors in files: open them by memory map, save memory with its descriptor, convert all tensors of a file.

A tensor in any memory format is stored in a safetensors file as bytes of type `U8`, with its descriptor as JSON in the
metadata. So every safetensors reader opens the file, and Inlay opens the tensor as `Memory` without a copy.

Data flows through the modules in this order:

    store               the tensors of a file, with type, shape and byte range, known from the header alone
    npy                 reader and writer of .npy files: one array
    safetensors_file    reader and writer of .safetensors files: named tensors and metadata
    packed              tensors with their descriptors in safetensors files
    loss                the shares of elements that become zero or saturate in another data type
    conversion          the plan of a conversion, and its execution tensor by tensor

Terms:

    store           a file of tensors, opened for reading
    packed tensor   a tensor whose descriptor is in the metadata, because type and shape in the file do not define its
                    layout (not the packed encoding of sparse memory)
    metadata        the texts that a safetensors file has beside its tensors, under the key `__metadata__` of its header
                    (https://huggingface.co/docs/safetensors, "Format")
    .npy            NumPy's format of one array (NEP 1)
    slab            a range of the outermost axis of a tensor, which is one range of bytes of the file
    saturation      conversion of a number beyond the range of a type to its greatest or least value
"""

from inlay.storage.conversion import ConversionPlan, ConversionStep, FormatRule, convert, parse_rule, plan_conversion
from inlay.storage.loss import ConversionLoss
from inlay.storage.packed import open_memories, save_memories
from inlay.storage.store import Store, StoredTensor

__all__ = [
    "ConversionLoss",
    "ConversionPlan",
    "ConversionStep",
    "FormatRule",
    "Store",
    "StoredTensor",
    "convert",
    "open_memories",
    "parse_rule",
    "plan_conversion",
    "save_memories",
]
