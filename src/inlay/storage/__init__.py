"""Tensors in files: open them by memory-map, keep packed ones with their descriptor, convert whole files.

A *packed* tensor is bytes plus a descriptor: a safetensors file keeps the bytes as `U8` and the descriptor as JSON in
its metadata, so every safetensors reader opens the file and Inlay opens it as `Memory`, without a copy. The modules in
the order that data flows:

    store               what a file holds and where the bytes lie, known without reading them
    npy                 the store of one array
    safetensors_file    the store of named tensors
    packed              packed tensors, written and opened
    loss                the shares of elements that become zero or saturate in another data type
    conversion          a plan, a plain value that names every tensor with its source and destination descriptor; and
                        the executor, which takes one tensor at a time and puts the finished file in place in one step
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
