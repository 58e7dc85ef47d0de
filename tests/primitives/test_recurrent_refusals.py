"""What recurrent networks refuse, with the whole text of each error."""

from collections.abc import Callable

import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME
from inlay.primitives import AUGRU, GRU, LBRAUGRU, LBRGRU, LSTM, Eltwise, LSTMBackward, VanillaRNN
from inlay.primitives.attributes import PrimitiveAttributes, RecurrentScales, Sum

E = "reference"


def d(*dims: int, t: str = "f32") -> MemoryDesc:
    """A descriptor whose format may be chosen."""
    return MemoryDesc(dims, t, "any")


def g(gates: int, layers: int = 1, directions: int = 1, inputs: int = 5) -> tuple[MemoryDesc, MemoryDesc]:
    """Weights with six channels out."""
    return d(layers, directions, inputs, gates, 6), d(layers, directions, 6, gates, 6)


def i(gates: int, t: str = "s8") -> tuple[MemoryDesc, MemoryDesc]:
    """Weights of integers."""
    return d(1, 1, 5, gates, 6, t=t), d(1, 1, 6, gates, 6, t=t)


def scaled(*scales: object) -> PrimitiveAttributes:
    return PrimitiveAttributes(recurrent=RecurrentScales(*scales))  # type: ignore[arg-type]


x, w, u = d(3, 2, 5), d(1, 1, 5, 4, 6), d(1, 1, 6, 4, 6)
lstm = LSTM(x, w, u, prop_kind="forward_training", engine=E)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: LSTM((3, 2, 5), w, u),  # type: ignore[arg-type]
            "LSTM: src_layer is (3, 2, 5): give a MemoryDesc, such as MemoryDesc((2, 16, 8, 8), 'f32', 'any')",
        ),
        (
            lambda: LSTM(d(3, 2, 5, 1), w, u),
            "LSTM: src_layer (3, 2, 5, 1) has 4 axes, it takes 3: (times, batch, channels)",
        ),
        (
            lambda: LSTM(x, d(1, 5, 4, 6), u),
            "LSTM: weights_layer (1, 5, 4, 6) has 4 axes, it takes 5: (layers, directions, channels in, "
            "gates, channels out)",
        ),
        (
            lambda: LSTM(x, w, d(1, 1, 6, 24)),
            "LSTM: weights_iter (1, 1, 6, 24) has 4 axes, it takes 5: (layers, directions, state channels "
            "in, gates, channels out)",
        ),
        (
            lambda: LSTM(x, w, u, weights_projection=d(6, 6)),
            "LSTM: weights_projection (6, 6) has 2 axes, it takes 4: (layers, directions, channels in, state"
            " channels out)",
        ),
        (
            lambda: LSTM(x, d(1, 1, 5, 3, 6), u),
            "LSTM: axis 3 of weights_layer (1, 1, 5, 3, 6) says 3 as gates: it takes 4 gates (i f c~ o)",
        ),
        (
            lambda: VanillaRNN(x, d(1, 1, 5, 3, 6), u, activation="relu"),
            "VanillaRNN: axis 3 of weights_layer (1, 1, 5, 3, 6) says 3 as gates: it takes one gate",
        ),
        (
            lambda: GRU(x, w, u),
            "GRU: axis 3 of weights_layer (1, 1, 5, 4, 6) says 4 as gates: it takes 3 gates (u r o)",
        ),
        (
            lambda: LSTM(x, w, u, direction="concat"),
            "LSTM: axis 1 of weights_layer (1, 1, 5, 4, 6) says 1 as directions: 'concat' has 2",
        ),
        (
            lambda: LSTM(x, w, u, direction="both"),
            "LSTM: direction is 'both': give one of left2right, right2left, concat, sum",
        ),
        (
            lambda: LSTM(x, d(1, 1, 7, 4, 6), u),
            "LSTM: axis 2 of weights_layer (1, 1, 7, 4, 6) has 7 channels in, src_layer has 5: make them equal",
        ),
        (
            lambda: LSTM(x, w, d(1, 1, 6, 4, 5)),
            "LSTM: weights_iter has dims (1, 1, 6, 4, 5), src_layer and the weights give (1, 1, 6, 4, 6): "
            "describe it with these",
        ),
        (
            lambda: LSTM(x, w, d(1, 1, 8, 4, 6)),
            "LSTM: axis 2 of weights_iter (1, 1, 8, 4, 6) has 8 state channels in, the state that goes out "
            "has 6: make them equal, what goes out is what comes in at the next time",
        ),
        (
            lambda: GRU(d(1, 2, 5), d(1, 1, 5, 3, 6), d(1, 1, 8, 3, 6)),
            "GRU: axis 2 of weights_iter (1, 1, 8, 3, 6) has 8 state channels in, the state that goes out "
            "has 6: make them equal, what goes out is what comes in at the next time",
        ),
        (
            lambda: LSTM(x, d(2, 1, 5, 4, 6), d(2, 1, 6, 4, 6)),
            "LSTM: src_layer has 5 channels, the layers above read 6: make them equal, or make the first "
            "layer a primitive of its own",
        ),
        (
            lambda: LSTM(x, d(0, 1, 5, 4, 6), d(0, 1, 6, 4, 6)),
            "LSTM: axis 0 of weights_layer (0, 1, 5, 4, 6) says 0 as layers: it takes at least one layer",
        ),
        (
            lambda: LSTM(x, w, u, d(1, 1, 4, 5)),
            "LSTM: bias has dims (1, 1, 4, 5), src_layer and the weights give (1, 1, 4, 6): describe it with these",
        ),
        (
            lambda: LBRGRU(x, *g(3), d(1, 1, 3, 6)),
            "LBRGRU: bias has dims (1, 1, 3, 6), src_layer and the weights give (1, 1, 4, 6): describe it with these",
        ),
        (
            lambda: LSTM(x, w, u, None, d(3, 2, 7)),
            "LSTM: dst_layer has dims (3, 2, 7), src_layer and the weights give (3, 2, 6): describe it with these",
        ),
        (
            lambda: LSTM(x, d(1, 2, 5, 4, 6), d(1, 2, 6, 4, 6), None, d(3, 2, 6), direction="concat"),
            "LSTM: dst_layer has dims (3, 2, 6), src_layer and the weights give (3, 2, 12): describe it with these",
        ),
        (
            lambda: LSTM(x, w, u, src_iter=d(1, 1, 2, 6)),
            "LSTM: src_iter is given and src_iter_c is not: give both, or neither",
        ),
        (
            lambda: LSTM(x, w, u, dst_iter_c="any"),
            "LSTM: dst_iter_c is given and dst_iter is not: give both, or neither",
        ),
        (
            lambda: LSTM(x, w, u, src_iter=d(1, 1, 3, 6), src_iter_c=d(1, 1, 3, 6)),
            "LSTM: src_iter has dims (1, 1, 3, 6), src_layer and the weights give (1, 1, 2, 6): describe it with these",
        ),
        (
            lambda: LSTM(x, w, u, weights_peephole=d(1, 1, 4, 6)),
            "LSTM: weights_peephole has dims (1, 1, 4, 6), src_layer and the weights give (1, 1, 3, 6): "
            "describe it with these",
        ),
        (
            lambda: LSTM(x, w, u, weights_projection=d(1, 1, 6, 3)),
            "LSTM: axis 2 of weights_iter (1, 1, 6, 4, 6) has 6 state channels in, the state that goes out "
            "has 3: make them equal, what goes out is what comes in at the next time",
        ),
        (
            lambda: VanillaRNN(x, *g(1), activation="gelu"),
            "VanillaRNN: activation is 'gelu': give one of relu, tanh, logistic",
        ),
        (
            lambda: VanillaRNN(x, *g(1), activation="relu", alpha="x"),  # type: ignore[arg-type]
            "VanillaRNN: alpha is 'x': give a number",
        ),
        (
            lambda: AUGRU(d(3, 2, 6), d(3, 2, 1), *g(3, 2, 1, 6)),
            "AUGRU: axis 0 of weights_layer (2, 1, 6, 3, 6) says 2 as layers: it takes one layer",
        ),
        (
            lambda: AUGRU(x, d(3, 2, 1), *g(3, 1, 2), direction="sum"),
            "AUGRU: direction is 'sum': with attention it is 'left2right', reverse src_layer and attention",
        ),
        (
            lambda: LBRAUGRU(x, d(3, 2, 6), *g(3)),
            "LBRAUGRU: attention has dims (3, 2, 6), src_layer and the weights give (3, 2, 1): describe it with these",
        ),
        (
            lambda: LSTM(x, w, u, prop_kind="backward"),
            "LSTM: prop_kind is 'backward': give one of forward_inference, forward_training",
        ),
        (
            lambda: LSTM(d(3, 2, 5, t="f64"), w, u),
            "LSTM: the type of src_layer is 'f64': give one of f32, bf16, f16, u8, s8",
        ),
        (
            lambda: LSTM(x, d(1, 1, 5, 4, 6, t="bf16"), u),
            "LSTM: weights_layer is bf16: where src_layer is f32 it is f32",
        ),
        (
            lambda: LSTM(d(3, 2, 5, t="bf16"), *i(4, "bf16"), d(1, 1, 4, 6, t="f16")),
            "LSTM: bias is f16: where src_layer is bf16 it is bf16 or f32",
        ),
        (
            lambda: LSTM(
                d(3, 2, 5, t="u8"),
                *i(4),
                src_iter=d(1, 1, 2, 6, t="u8"),
                src_iter_c=d(1, 1, 2, 6),
                dst_iter=d(1, 1, 2, 6),
                dst_iter_c="any",
            ),
            "LSTM: src_iter is u8 and dst_iter is f32: make them equal, what goes out is what comes in at "
            "the next time",
        ),
        (
            lambda: LBRGRU(d(3, 2, 5, t="u8"), *i(3)),
            "LBRGRU: src_layer is u8: integers are for LSTM without peepholes and GRU, forward_inference "
            "only; use f32 or bf16",
        ),
        (
            lambda: LSTM(d(3, 2, 5, t="u8"), *i(4), prop_kind="forward_training"),
            "LSTM: src_layer is u8: integers are for LSTM without peepholes and GRU, forward_inference only;"
            " use f32 or bf16",
        ),
        (
            lambda: LSTM(x, w, u, attributes=PrimitiveAttributes(post_ops=(Sum(),))),
            "LSTM: attributes have post_ops: a recurrent network takes none, integers are scaled by "
            "PrimitiveAttributes(recurrent=RecurrentScales(...))",
        ),
        (
            lambda: LSTM(x, w, u, attributes=scaled(2.0)),
            "LSTM: attribute recurrent is for u8 and s8: src_layer is f32",
        ),
        (
            lambda: LSTM(x, w, u, attributes=PrimitiveAttributes(recurrent=2.0)),  # type: ignore[arg-type]
            "LSTM: attribute recurrent is 2.0: give RecurrentScales",
        ),
        (
            lambda: LBRGRU(x, *g(3), attributes=scaled(2.0)),
            "LBRGRU: attribute recurrent is for u8 and s8: src_layer is f32",
        ),
        (
            lambda: LSTM(d(3, 2, 5, t="s8"), *i(4), attributes=scaled(2.0, 3.0)),
            "LSTM: shift is 3.0: s8 is not shifted, give 0",
        ),
        (
            lambda: LSTM(d(3, 2, 5, t="s8"), *i(4), attributes=scaled(2.0, 0.0, (1.0, 2.0))),
            "LSTM: attribute recurrent has 2 factors for weights: give 1 or 24",
        ),
        (
            lambda: LSTM(d(3, 2, 5, t="s8"), *i(4), attributes=scaled(0.0)),
            "LSTM: attribute recurrent has the factor 0.0 for scale: give another",
        ),
        (
            lambda: Eltwise(MemoryDesc((2, 2), "f32"), algorithm="relu", engine=E, attributes=scaled(2.0)),
            "Eltwise: attribute recurrent is for LSTM, GRU and their weights: leave it out",
        ),
        (
            lambda: LSTMBackward(),
            "LSTMBackward: hint_forward is missing: formats and workspace must fit the forward primitive, "
            "give the LSTM whose gradient this is",
        ),
        (
            lambda: LSTMBackward(hint_forward=GRU(d(3, 2, 5), *g(3), engine=E)),
            "LSTMBackward: hint_forward is a GRU: give the LSTM whose gradient this is",
        ),
        (
            lambda: LSTMBackward(hint_forward=LSTM(d(3, 2, 5), w, u, engine=E)),
            "LSTMBackward: hint_forward is of prop_kind forward_inference: make it for 'forward_training', "
            "which keeps what the gradient needs",
        ),
        (
            lambda: LSTMBackward(d(3, 2, 7), hint_forward=lstm),
            "LSTMBackward: diff_dst_layer has dims (3, 2, 7), those of hint_forward give (3, 2, 6): describe"
            " it with these",
        ),
        (
            lambda: LSTMBackward(d(3, 2, 6, t="bf16"), hint_forward=lstm),
            "LSTMBackward: diff_dst_layer is bf16: gradients are f32",
        ),
        (
            lambda: LSTMBackward(hint_forward=lstm, descs={"weights_iter": d(1, 1, 6, 4, 6, t="bf16")}),
            "LSTMBackward: weights_iter is bf16: that of hint_forward is f32",
        ),
        (
            lambda: LSTMBackward(hint_forward=lstm, descs={"diff_bias": d(1, 1, 4, 6)}),
            "LSTMBackward: descs name 'diff_bias': the arguments are src_layer, diff_src_layer, "
            "weights_layer, diff_weights_layer, weights_iter, diff_weights_iter, dst_layer, diff_dst_layer",
        ),
        (
            lambda: LSTMBackward(hint_forward=lstm, flags="overwrite"),
            "LSTMBackward: flag is 'overwrite': give one of diff_weights_overwrite",
        ),
        (
            lambda: lstm(src_layer=None),
            "LSTM: src_layer is missing: a call brings src_layer, weights_layer, weights_iter",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_rule_value_place_and_remedy(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidArguments) as error:
        make()
    assert str(error.value) == text


def test_dims_that_come_later_are_not_taken() -> None:
    with pytest.raises(Unimplemented) as error:
        LSTM(MemoryDesc((RUNTIME, 2, 5), "f32", "tnc"), w, u)
    assert str(error.value) == (
        "LSTM: src_layer is MemoryDesc((RUNTIME, 2, 5), 'f32', 'tnc'): bind what is RUNTIME, as in "
        "desc.bind((2, 16, 8, 8))"
    )
