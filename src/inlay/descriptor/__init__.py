"""Descriptors: a tensor's dims, data type and place in memory, as one value with oneDNN's contract.

`MemoryDesc` is the value: one class, with functions beside it. The modules in the order that data flows: `kinds`, what
can be said of a place; `extras`, what lies behind int8 weights; `described`, the fields and what they say at once;
`validation`, what is refused; `creation`, from a format, strides or pattern to fields; `sparsity`, what a sparse
encoding holds in which buffer; `queries`, `ordering` and `textual`, what is told of a descriptor; `viewing` and
`repairs`, views and what to do instead; `parts`, `json_form`, `blob_form`, `imported` and `portable`, to and from other
forms; `memory_desc`, the class.
"""

from inlay.descriptor.extras import Extras
from inlay.descriptor.kinds import COO, CSR, HostScalar, Opaque, Packed, Placement, Undefined
from inlay.descriptor.memory_desc import MemoryDesc

__all__ = ["COO", "CSR", "Extras", "HostScalar", "MemoryDesc", "Opaque", "Packed", "Placement", "Undefined"]
