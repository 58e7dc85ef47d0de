"""The primitives of the oneAPI specification: created for descriptors, `any` answered by an engine, called on memory.

Rooms in the order that data flows: `signatures`, the table of arguments; `attributes` and `algorithms`, what else can
be said; `operation`, what an engine is asked and answers; `engines`, which one; `rules` and `values`, what is refused;
`created` and `calls`, how an engine is asked and a call is checked; `primitive`, what all classes share; then the
classes by kind.
"""

from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.eltwise import Eltwise, EltwiseBackward
from inlay.primitives.engines import get_engine, set_engine
from inlay.primitives.gated import (
    AUGRU,
    GRU,
    LBRAUGRU,
    LBRGRU,
    AUGRUBackward,
    GRUBackward,
    LBRAUGRUBackward,
    LBRGRUBackward,
)
from inlay.primitives.primitive import Primitive
from inlay.primitives.recurrent import LSTM, LSTMBackward, VanillaRNN, VanillaRNNBackward

__all__ = [
    "AUGRU",
    "GRU",
    "LBRAUGRU",
    "LBRGRU",
    "LSTM",
    "AUGRUBackward",
    "Eltwise",
    "EltwiseBackward",
    "GRUBackward",
    "LBRAUGRUBackward",
    "LBRGRUBackward",
    "LSTMBackward",
    "Primitive",
    "PrimitiveAttributes",
    "VanillaRNN",
    "VanillaRNNBackward",
    "get_engine",
    "set_engine",
]
