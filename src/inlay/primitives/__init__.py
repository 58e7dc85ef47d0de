"""The primitives of the oneAPI specification: created for descriptors, `any` answered by an engine, called on memory.

Rooms in the order that data flows: `signatures`, the table of arguments; `attributes` and `algorithms`, what else can
be said; `operation`, what an engine is asked and answers; `engines`, which one; `rules` and `values`, what is refused;
`created` and `calls`, how an engine is asked and a call is checked; `primitive`, what all classes share; then the
classes by kind.
"""

from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.eltwise import Eltwise, EltwiseBackward
from inlay.primitives.engines import get_engine, set_engine
from inlay.primitives.primitive import Primitive

__all__ = [
    "Eltwise",
    "EltwiseBackward",
    "Primitive",
    "PrimitiveAttributes",
    "get_engine",
    "set_engine",
]
