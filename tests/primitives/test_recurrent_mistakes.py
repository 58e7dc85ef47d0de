"""Errors of recurrent networks: golden/mistakes/recurrent.txt has calls and the whole text of their errors."""

import pytest

from inlay.descriptor import MemoryDesc
from inlay.layout import RUNTIME
from inlay.primitives import AUGRU, GRU, LBRAUGRU, LBRGRU, LSTM, Eltwise, LSTMBackward, VanillaRNN
from inlay.primitives.attributes import PrimitiveAttributes, RecurrentScales, SumPostOp
from tests.support.golden_mistakes import assert_mistake, read_mistakes

E = "reference"


def d(*dims: int, t: str = "f32") -> MemoryDesc:
    """A descriptor of any format."""
    return MemoryDesc(dims, t, "any")


def g(gates: int, layers: int = 1, directions: int = 1, inputs: int = 5) -> tuple[MemoryDesc, MemoryDesc]:
    """weights_layer and weights_iter with six output channels."""
    return d(layers, directions, inputs, gates, 6), d(layers, directions, 6, gates, 6)


def i(gates: int, t: str = "s8") -> tuple[MemoryDesc, MemoryDesc]:
    """The same weights, of integers."""
    return d(1, 1, 5, gates, 6, t=t), d(1, 1, 6, gates, 6, t=t)


def scaled(*scales: object) -> PrimitiveAttributes:
    """Attributes with scales of 8 bits."""
    return PrimitiveAttributes(recurrent=RecurrentScales(*scales))  # type: ignore[arg-type]


x, w, u = d(3, 2, 5), d(1, 1, 5, 4, 6), d(1, 1, 6, 4, 6)
NAMES = {
    **{kind.__name__: kind for kind in (AUGRU, GRU, LBRAUGRU, LBRGRU, LSTM, Eltwise, LSTMBackward, VanillaRNN)},
    **{kind.__name__: kind for kind in (MemoryDesc, PrimitiveAttributes, SumPostOp)},
    "E": E,
    "RUNTIME": RUNTIME,
    "d": d,
    "g": g,
    "i": i,
    "scaled": scaled,
    "x": x,
    "w": w,
    "u": u,
    "lstm": LSTM(x, w, u, prop_kind="forward_training", engine=E),
}


@pytest.mark.parametrize(("call", "error"), read_mistakes("recurrent"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, NAMES)
