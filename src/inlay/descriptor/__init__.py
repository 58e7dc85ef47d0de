"""Descriptors: a tensor's dims, data type and place in memory, as one value with oneDNN's contract.

`MemoryDesc` is the value: one class, with functions beside it. The modules in the order that data flows:

    kinds            what can be said of the place of elements where there is no layout
    extras           what lies behind the elements of int8 weights
    described        the fields, and what they say at once
    validation       what is refused, in oneDNN's order
    creation         from a format, strides, a pattern or a layout to the fields
    sparsity         what a sparse encoding holds, and in which buffer
    queries          sizes, offsets, tags and texts of a descriptor
    viewing          views, and what to do instead of one that is refused
    serialization    JSON and bytes, and the check of what comes from outside
    imported         descriptors of a loaded oneDNN
    portable         what `MemoryDesc` offers of these two, which it loads when they are first used
    memory_desc      `MemoryDesc`
    arrays           the descriptor of an array as it lies
"""

from inlay.descriptor.extras import Extras
from inlay.descriptor.kinds import COO, CSR, HostScalar, Opaque, Packed, Placement, Undefined
from inlay.descriptor.memory_desc import MemoryDesc

__all__ = ["COO", "CSR", "Extras", "HostScalar", "MemoryDesc", "Opaque", "Packed", "Placement", "Undefined"]
