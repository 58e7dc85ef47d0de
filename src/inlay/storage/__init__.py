"""Tensors in files and other stores: plans of conversions as values, their execution, memory by map.

A conversion is a plan of independent tasks: each reads a box of a tensor, reorders it and writes it where no other task
writes. A tensor in any memory format is stored in a safetensors file as bytes of type `U8`, with its descriptor as JSON
in the metadata. So every safetensors reader opens the file, and Inlay opens the tensor as `Memory` without a copy.

Data flows through the modules in this order:

    sizes               numbers of bytes as texts with a unit
    box, box_bytes      boxes of tensors, and the bytes that hold them
    cutting             sizes of boxes: long runs on both sides under a memory limit
    locations           paths of this machine and URLs, which fsspec reads
    options             what raw bytes hold; sizes of shards, and staging
    array_properties    compression, fill value and attributes of a chunked array
    store, target       what is read and what is written: values that any process opens
    positioned_io       reads and writes of open files at given offsets
    source_files        the files of a store, a few of them open at a time
    file_store, file_target
                        both, where a tensor is one range of bytes of a file
    npy, npz            .npy files: one array; .npz files: named arrays
    raw_file            files of raw bytes, whose dims and type the caller states
    safetensors_file    headers of .safetensors files: named tensors and metadata
    packed              tensors with their descriptors in safetensors files
    torch_file          tensors in files of PyTorch
    onnx_file           initializers of ONNX models
    sharded             checkpoints of several files with an index
    quantization_text   the text on quantized tensors in the metadata
    gguf_metadata       typed metadata of GGUF files, as texts
    gguf_file           .gguf files: named tensors, some of them blocks of ggml, and typed metadata
    upload              targets at URLs: written here, then uploaded
    chunk_format        layouts of the chunks of Zarr arrays, checked
    chunk_files         chunks in files of their own: parts are read, whole chunks are written
    zarr_package        zarr and Dask, imported at first use
    zarr_codec, zarr_types
                        the Zarr codec `inlay`, and types of ml_dtypes in Zarr arrays
    zarr_store, zarr_target
                        stores and targets of Zarr arrays
    formats             the table of file formats, by suffix
    memories            `Memory` from files, and files from memories
    loss                the shares of elements that become zero or saturate in another data type
    operation           what is done with the elements of a box
    rules               formats for tensors by name
    quantization        quantization by greatest magnitudes: schemes, element formats, scales
    quantization_error  the error of a quantization
    quantize_operation  quants with scales, and compound blocks, from the floats of a box
    dequantize_operation    floats from both
    tensor_draft        what becomes of one tensor, before its place in the target is known
    quantization_drafts     the same for tensors that are quantized or dequantized
    quantization_plan   the drafts of all tensors of a store
    rechunking          boxes of chunked arrays, in one pass or in two
    staged_store        stores with intermediate arrays
    chunked_plan        chunks of new arrays, and the first of two passes
    traffic             the bytes that a conversion reads and writes
    used_files          the files that a conversion reads and writes: none is both
    conversion_plan     the plan of a conversion, and its tasks, as values
    planning            plans from rules and options
    finished_tasks      the tasks that are finished, and the counts of each tensor
    fingerprint         a digest of what determines the bytes of a target
    journal             which boxes are written, in a file beside the target
    task_runner         the execution of single tasks in one process, and their failures
    executors           this process, several processes, or workers of Dask
    conversion_run      one run of a plan: what is left of it, losses, failures, the final name
    first_pass          intermediate arrays: written before the second pass, and removed after it
    report              formats, bytes, losses and errors of an executed plan
    conversion          the execution of a plan
    dask_graph          the execution of a plan as a graph of Dask
    dask_arrays         reorders of Dask arrays
    element_reading     elements by the coordinate map of their layout
    verification        a target compared with its source
    contents            names, dims, formats and padding of the tensors of a store
    comparison          two stores, by elements and by format

Terms:

    store           named tensors to read: a file, a folder of files, arrays
    target          named tensors to write, which get their final names when all of them are written
    journal         the file that lists the boxes which a conversion has written
    executor        executes the tasks of a plan in one process or several
    scan            a first pass over the boxes of a tensor, for an operation that needs a number of all of them
    box             a range of coordinates along every axis of a tensor
    chunk           a box that an array is stored by: a file of its own, often compressed (Zarr core specification 3)
    run             consecutive bytes of a box
    packed tensor   a tensor whose descriptor is in the metadata, because type and shape in the file do not define its
                    layout (not the packed encoding of sparse memory)
    shard           one of the files of a checkpoint; an index states the shard of each tensor
    staging         the folder of this machine in which a target at a URL is written before it is uploaded
    metadata        the texts that a safetensors file has beside its tensors, under the key `__metadata__` of its header
                    (https://huggingface.co/docs/safetensors, "Format")
    .npy            NumPy's format of one array (NEP 1)
    quant, scale    the number that is stored for an element, and the factor that a group of elements shares
    blocks          bytes that hold elements with their scales, in a compound format (`inlay.memory.compound`)
    saturation      conversion of a number beyond the range of a type to its greatest or least value
"""

from inlay.storage.comparison import StoreComparison, TensorComparison, compare_stores
from inlay.storage.contents import StoreContents, TensorSummary, list_contents
from inlay.storage.conversion import convert
from inlay.storage.conversion_plan import ConversionPlan, ConversionTask, TensorConversion
from inlay.storage.dask_arrays import reorder_dask
from inlay.storage.formats import open_store
from inlay.storage.loss import ConversionLoss
from inlay.storage.memories import open_memories, save_memories
from inlay.storage.options import OpenOptions, WriteOptions
from inlay.storage.planning import plan
from inlay.storage.report import ConversionReport
from inlay.storage.rules import FormatRule, parse_rule
from inlay.storage.store import Store, StoredTensor
from inlay.storage.target import Target, TargetTensor
from inlay.storage.traffic import ConversionTraffic
from inlay.storage.verification import verify

__all__ = [
    "ConversionLoss",
    "ConversionPlan",
    "ConversionReport",
    "ConversionTask",
    "ConversionTraffic",
    "FormatRule",
    "OpenOptions",
    "Store",
    "StoreComparison",
    "StoreContents",
    "StoredTensor",
    "Target",
    "TargetTensor",
    "TensorComparison",
    "TensorConversion",
    "TensorSummary",
    "WriteOptions",
    "compare_stores",
    "convert",
    "list_contents",
    "open_memories",
    "open_store",
    "parse_rule",
    "plan",
    "reorder_dask",
    "save_memories",
    "verify",
]
