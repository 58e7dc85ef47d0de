"""Descriptors: a tensor's dims, data type and place in memory, as one value with oneDNN's contract.

`MemoryDesc` is the value. Its rooms in the order that data flows: `kinds`, what can be said of a place; `validation`,
what is refused; `creation`, from a format, strides or pattern to a layout; `textual`, oneDNN's notation;
`memory_desc`, the class.
"""

from inlay.descriptor.kinds import HostScalar, Opaque, Placement, Undefined
from inlay.descriptor.memory_desc import MemoryDesc

__all__ = ["HostScalar", "MemoryDesc", "Opaque", "Placement", "Undefined"]
