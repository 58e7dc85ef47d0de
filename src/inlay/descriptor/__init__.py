"""Descriptors: a tensor's dims, data type and place in memory, as one value with oneDNN's contract.

`MemoryDesc` is the value. Its rooms in the order that data flows: `kinds`, what can be said of a place; `validation`,
what is refused; `creation`, from a format, strides or pattern to a layout; `sparsity`, what a sparse encoding holds in
which buffer; `extras`, what lies behind int8 weights; `textual`, oneDNN's notation; `memory_desc`, the class, on
`described`, `ordering` and `encoded`.
"""

from inlay.descriptor.extras import Extras
from inlay.descriptor.kinds import COO, CSR, HostScalar, Opaque, Packed, Placement, Undefined
from inlay.descriptor.memory_desc import MemoryDesc

__all__ = ["COO", "CSR", "Extras", "HostScalar", "MemoryDesc", "Opaque", "Packed", "Placement", "Undefined"]
