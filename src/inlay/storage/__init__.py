"""Tensors in files and other stores: plans of conversions as values, their execution, memory by map.

A conversion is a plan of independent tasks: each reads a box of a tensor, reorders it and writes it where no other task
writes. A tensor in any memory format is stored in a safetensors file as bytes of type `U8`, with its descriptor as JSON
in the metadata. So every safetensors reader opens the file, and Inlay opens the tensor as `Memory` without a copy.

Data flows through the modules in this order:

    box, box_bytes      boxes of tensors, and the bytes that hold them
    cutting             sizes of boxes: long runs on both sides under a memory limit
    array_properties    compression, fill value and attributes of a chunked array
    store, target       what is read and what is written: values that any process opens
    file_store, file_target
                        both, where a tensor is one range of bytes of a file
    npy                 .npy files: one array
    safetensors_file    headers of .safetensors files: named tensors and metadata
    packed              tensors with their descriptors in safetensors files
    chunk_format        layouts of the chunks of Zarr arrays, checked
    chunk_files         chunks in files of their own: parts are read, whole chunks are written
    zarr_codec, zarr_types
                        the Zarr codec `inlay`, and types of ml_dtypes in Zarr arrays
    zarr_package        zarr and Dask, imported at first use
    zarr_store, zarr_target
                        stores and targets of Zarr arrays
    formats             the table of file formats, by suffix
    memories            `Memory` from files, and files from memories
    loss                the shares of elements that become zero or saturate in another data type
    operation           what is done with the elements of a box
    rules               formats for tensors by name
    rechunking          boxes of chunked arrays, in one pass or in two
    staged_store        stores with intermediate arrays
    chunked_plan        chunks of new arrays, and the first of two passes
    conversion_plan     the plan of a conversion, and its tasks
    first_pass          intermediate arrays: written before the second pass, and removed after it
    conversion          the execution of a plan
    dask_arrays         reorders of Dask arrays

Terms:

    store           named tensors to read: a file, a folder of files, arrays
    target          named tensors to write, which get their final names when all of them are written
    box             a range of coordinates along every axis of a tensor
    chunk           a box that an array is stored by: a file of its own, often compressed (Zarr core specification 3)
    run             consecutive bytes of a box
    packed tensor   a tensor whose descriptor is in the metadata, because type and shape in the file do not define its
                    layout (not the packed encoding of sparse memory)
    metadata        the texts that a safetensors file has beside its tensors, under the key `__metadata__` of its header
                    (https://huggingface.co/docs/safetensors, "Format")
    .npy            NumPy's format of one array (NEP 1)
    saturation      conversion of a number beyond the range of a type to its greatest or least value
"""

from inlay.storage.conversion import convert
from inlay.storage.conversion_plan import ConversionPlan, ConversionTask, TensorConversion, plan
from inlay.storage.dask_arrays import reorder_dask
from inlay.storage.formats import open_store
from inlay.storage.loss import ConversionLoss
from inlay.storage.memories import open_memories, save_memories
from inlay.storage.rules import FormatRule, parse_rule
from inlay.storage.store import Store, StoredTensor
from inlay.storage.target import Target, TargetTensor

__all__ = [
    "ConversionLoss",
    "ConversionPlan",
    "ConversionTask",
    "FormatRule",
    "Store",
    "StoredTensor",
    "Target",
    "TargetTensor",
    "TensorConversion",
    "convert",
    "open_memories",
    "open_store",
    "parse_rule",
    "plan",
    "reorder_dask",
    "save_memories",
]
