"""Recurrent networks with update gates: `GRU`, `LBRGRU`, and with attention `AUGRU`, `LBRAUGRU`.

The gates have the order u r o: the update gate u is the share of the old state in the next state, the reset gate r
weighs the old state in the formula of the candidate state o. The sizes T, N, L, D, X, O in the tables are those of
`recurrent_rules`; the state has O channels too.

    gru = GRU(src_layer, weights_layer, weights_iter, bias, prop_kind="forward_training")
    out = gru(src_layer=x, weights_layer=w, weights_iter=u, bias=b)      # dst_layer, workspace
"""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Avoid, EngineLike
from inlay.primitives.recurrent import FinalState, Recurrent, RecurrentBackward


class _Gated(Recurrent):
    """Base class of GRU and LBR GRU, which have the same arguments."""

    __slots__ = ()

    def __init__(
        self,
        src_layer: MemoryDesc,
        weights_layer: MemoryDesc,
        weights_iter: MemoryDesc,
        bias: MemoryDesc | None = None,
        dst_layer: MemoryDesc | None = None,
        *,
        direction: str = "left2right",
        src_iter: MemoryDesc | None = None,
        dst_iter: FinalState = None,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive.

        `dst_layer`, if left out, has any format. The final state dst_iter is written unless it is None.

        Raises:
            InvalidArguments: dims or types are inconsistent, there is no such direction, or an argument is rejected by
                `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        inputs = {"src_layer": src_layer, "src_iter": src_iter, "weights_layer": weights_layer}
        inputs |= {"weights_iter": weights_iter, "bias": bias, "dst_layer": dst_layer}
        self._forward(prop_kind, direction, inputs, {"dst_iter": dst_iter}, attributes, engine, avoid)


class _AttentionGated(Recurrent):
    """Base class of AUGRU and LBR AUGRU, which have the same arguments: one layer, from left to right."""

    __slots__ = ()

    def __init__(
        self,
        src_layer: MemoryDesc,
        attention: MemoryDesc,
        weights_layer: MemoryDesc,
        weights_iter: MemoryDesc,
        bias: MemoryDesc | None = None,
        dst_layer: MemoryDesc | None = None,
        *,
        direction: str = "left2right",
        src_iter: MemoryDesc | None = None,
        dst_iter: FinalState = None,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive.

        `dst_layer`, if left out, has any format. The final state dst_iter is written unless it is None.

        Raises:
            InvalidArguments: dims or types are inconsistent, there are several layers, the direction is another
                than "left2right", or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        inputs = {"src_layer": src_layer, "src_iter": src_iter, "attention": attention, "bias": bias}
        inputs |= {"weights_layer": weights_layer, "weights_iter": weights_iter, "dst_layer": dst_layer}
        self._forward(prop_kind, direction, inputs, {"dst_iter": dst_iter}, attributes, engine, avoid)


class GRU(_Gated):
    """A gated recurrent unit.

        u = logistic(W_u x_t + U_u h_(t-1) + b_u)
        r = logistic(W_r x_t + U_r h_(t-1) + b_r)
        o = tanh(W_o x_t + U_o (r h_(t-1)) + b_o)
        h_t = u h_(t-1) + (1 - u) o

    | argument | dims | meaning |
    |---|---|---|
    | src_layer | (T, N, X) | x |
    | src_iter | (L, D, N, O), may be left out | h before the first step, else 0 |
    | weights_layer, weights_iter | (L, D, X, 3, O), (L, D, O, 3, O) | W, U |
    | bias | (L, D, 3, O), may be left out | b, else 0 |
    | dst_layer | (T, N, O); (T, N, 2 O) with `concat` | h of the last layer |
    | dst_iter | (L, D, N, O), may be left out | h after the last step |

    All formats may be any. For weights of a framework that defines u as 1 - u, negate W_u, U_u and b_u. The GRU of
    PyTorch and cuDNN is `LBRGRU`. In 8 bits (u8), forward_inference only, weights are s8, and
    `PrimitiveAttributes(recurrent=RecurrentScales(...))` defines the quantization.

    Source: oneAPI specification, "RNN"; Cho et al., "Learning phrase representations using RNN encoder-decoder for
    statistical machine translation", 2014.

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((2, 1, 6, 3, 6), "f32", "any")
    >>> gru = GRU(src, weights, weights, dst_iter="any", engine="reference")
    >>> gru.desc("dst_iter").dims
    (2, 1, 2, 6)
    >>> ones = {name: pack(np.ones(gru.desc(name).dims, np.float32), gru.desc(name)) for name in gru.arguments[:3]}
    >>> found = gru(**ones)
    >>> np.array_equal(found["dst_layer"].unpack()[-1], found["dst_iter"].unpack()[1, 0])
    True
    """

    __slots__ = ()
    kind: ClassVar[str] = "gru"


class LBRGRU(_Gated):
    """A gated recurrent unit, linear before reset: r multiplies the product with h, not h itself, as in PyTorch.

        u = logistic(W_u x_t + U_u h_(t-1) + b_u)
        r = logistic(W_r x_t + U_r h_(t-1) + b_r)
        o = tanh(W_o x_t + r (U_o h_(t-1) + b_u') + b_o)
        h_t = u h_(t-1) + (1 - u) o

    | argument | dims | meaning |
    |---|---|---|
    | src_layer | (T, N, X) | x |
    | src_iter | (L, D, N, O), may be left out | h before the first step, else 0 |
    | weights_layer, weights_iter | (L, D, X, 3, O), (L, D, O, 3, O) | W, U |
    | bias | (L, D, 4, O), may be left out | b_u, b_r, b_o, b_u', else 0 |
    | dst_layer | (T, N, O); (T, N, 2 O) with `concat` | h of the last layer |
    | dst_iter | (L, D, N, O), may be left out | h after the last step |

    All formats may be any. PyTorch has the gates in the order r u o, and a bias for each of the two products: b_u and
    b_r are the sums of its two biases.

    Source: oneAPI specification, "RNN"; Cho et al., 2014, in the first version of the preprint (arXiv 1406.1078v1).

    >>> src, weights = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((1, 1, 6, 3, 6), "f32", "any")
    >>> LBRGRU(src, weights, weights, MemoryDesc((1, 1, 4, 6), "f32"), engine="reference").dst_desc.dims
    (5, 2, 6)
    """

    __slots__ = ()
    kind: ClassVar[str] = "lbr_gru"


class AUGRU(_AttentionGated):
    """A gated recurrent unit with attention: `GRU` with the update gate (1 - a_t) u instead of u in h_t.

        h_t = (1 - a_t) u h_(t-1) + (1 - (1 - a_t) u) o

    The arguments are those of `GRU`, with L = D = 1, and

    | argument | dims | meaning |
    |---|---|---|
    | attention | (T, N, 1) | a, one number for each time and sequence |

    All formats may be any.

    Source: oneAPI specification, "RNN"; Zhou et al., "Deep interest evolution network for click-through rate
    prediction", 2019.

    >>> src, weights = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((1, 1, 6, 3, 6), "f32", "any")
    >>> AUGRU(src, MemoryDesc((5, 2, 1), "f32"), weights, weights, engine="reference").dst_desc.dims
    (5, 2, 6)
    """

    __slots__ = ()
    kind: ClassVar[str] = "augru"


class LBRAUGRU(_AttentionGated):
    """A gated recurrent unit with attention, linear before reset: `AUGRU` with the candidate state o of `LBRGRU`.

        o = tanh(W_o x_t + r (U_o h_(t-1) + b_u') + b_o)
        h_t = (1 - a_t) u h_(t-1) + (1 - (1 - a_t) u) o

    The arguments are those of `LBRGRU`, with L = D = 1, and attention (T, N, 1). All formats may be any.

    Source: oneAPI specification, "RNN"; Zhou et al., 2019.

    >>> src, weights = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((1, 1, 6, 3, 6), "f32", "any")
    >>> LBRAUGRU(src, MemoryDesc((5, 2, 1), "f32"), weights, weights, engine="reference").dst_desc.dims
    (5, 2, 6)
    """

    __slots__ = ()
    kind: ClassVar[str] = "lbr_augru"


class GRUBackward(RecurrentBackward):
    """The gradients of `GRU`, by propagation back through time.

    | argument | dims | meaning |
    |---|---|---|
    | all arguments of forward, workspace | as forward | as in the forward call |
    | diff_dst_layer, diff_dst_iter | those of dst_layer, dst_iter | inputs |
    | diff_src_layer, diff_src_iter, diff_weights_layer, diff_weights_iter, diff_bias | as without diff | results |

    With dh, the gradient of h_t: do = dh (1 - u) (1 - o^2); du = dh (h_(t-1) - o) u (1 - u); dm = U_o^T do;
    dr = dm h_(t-1) r (1 - r); dh_(t-1) = dh u + dm r + U_u^T du + U_r^T dr. The gradients of x and the weights follow
    as in `VanillaRNNBackward`, where the input of U_o is r h_(t-1). All formats may be any. `RecurrentBackward`
    describes the accumulation of weight gradients.

    Source: oneAPI specification, "RNN"; Werbos, "Backpropagation through time", 1990.

    >>> src, weights = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((1, 1, 6, 3, 6), "f32", "any")
    >>> gru = GRU(src, weights, weights, prop_kind="forward_training", engine="reference")
    >>> GRUBackward(hint_forward=gru).desc("diff_weights_iter").dims
    (1, 1, 6, 3, 6)
    """

    __slots__ = ()
    kind: ClassVar[str] = "gru"
    forward = GRU


class LBRGRUBackward(RecurrentBackward):
    """The gradients of `LBRGRU`, by propagation back through time.

    The arguments are those of `GRUBackward`. With dh, the gradient of h_t: do = dh (1 - u) (1 - o^2);
    du = dh (h_(t-1) - o) u (1 - u); dr = do (U_o h_(t-1) + b_u') r (1 - r); db_u' = do r;
    dh_(t-1) = dh u + U_u^T du + U_r^T dr + U_o^T (do r). All formats may be any. `RecurrentBackward` describes the
    accumulation of weight gradients.

    Source: oneAPI specification, "RNN"; Werbos, "Backpropagation through time", 1990.

    >>> src, weights = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((1, 1, 6, 3, 6), "f32", "any")
    >>> gru = LBRGRU(src, weights, weights, prop_kind="forward_training", engine="reference")
    >>> LBRGRUBackward(hint_forward=gru).desc("diff_src_layer").dims
    (5, 2, 6)
    """

    __slots__ = ()
    kind: ClassVar[str] = "lbr_gru"
    forward = LBRGRU


class AUGRUBackward(RecurrentBackward):
    """The gradients of `AUGRU`, by propagation back through time.

    The arguments are those of `GRUBackward` and attention, whose gradient diff_attention (T, N, 1) is the sum over
    channels of -dh (h_(t-1) - o) u. In the formulas, u becomes (1 - a) u where it weighs h_(t-1) and o, and du has the
    factor 1 - a. All formats may be any. `RecurrentBackward` describes the accumulation of weight gradients.

    Source: oneAPI specification, "RNN"; Werbos, "Backpropagation through time", 1990.

    >>> src, weights = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((1, 1, 6, 3, 6), "f32", "any")
    >>> attention = MemoryDesc((5, 2, 1), "f32")
    >>> augru = AUGRU(src, attention, weights, weights, prop_kind="forward_training", engine="reference")
    >>> AUGRUBackward(hint_forward=augru).desc("diff_attention").dims
    (5, 2, 1)
    """

    __slots__ = ()
    kind: ClassVar[str] = "augru"
    forward = AUGRU


class LBRAUGRUBackward(RecurrentBackward):
    """The gradients of `LBRAUGRU`, by propagation back through time.

    The arguments are those of `AUGRUBackward`, the formulas those of `LBRGRUBackward` with the changes of
    `AUGRUBackward`. All formats may be any. `RecurrentBackward` describes the accumulation of weight gradients.

    Source: oneAPI specification, "RNN"; Werbos, "Backpropagation through time", 1990.

    >>> src, weights = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((1, 1, 6, 3, 6), "f32", "any")
    >>> attention = MemoryDesc((5, 2, 1), "f32")
    >>> augru = LBRAUGRU(src, attention, weights, weights, prop_kind="forward_training", engine="reference")
    >>> LBRAUGRUBackward(hint_forward=augru).desc("diff_attention").dims
    (5, 2, 1)
    """

    __slots__ = ()
    kind: ClassVar[str] = "lbr_augru"
    forward = LBRAUGRU
