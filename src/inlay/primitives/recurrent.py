"""Recurrent networks: `VanillaRNN` and `LSTM`; those with update gates are in `gated`.

A network is L layers, each run over time in one direction or in two. Layers and directions are axes of the weights, so
one primitive computes them all:

    lstm = LSTM(src_layer, weights_layer, weights_iter, bias, direction="concat", prop_kind="forward_training")
    out = lstm(src_layer=x, weights_layer=w, weights_iter=u, bias=b)      # dst_layer, workspace
    backward = LSTMBackward(hint_forward=lstm)
    gradients = backward(src_layer=x, ..., workspace=out["workspace"], diff_dst_layer=g)

Two directions are stacks of their own: layer l from right to left reads layer l - 1 from right to left, and only the
last layers are joined, side by side or summed. The sizes T, N, L, D, G, X, S, O, P of the tables are those of
`recurrent_rules`.

`Recurrent` is the base of the forward primitives of all kinds, `RecurrentBackward` that of their gradients.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.memory import Memory, reorder
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.calls import CallArguments, zeroing
from inlay.primitives.engine import Avoid, EngineLike, Parameter
from inlay.primitives.primitive import Primitive, forward_kind, forward_of
from inlay.primitives.recurrent_rules import (
    DIRECTIONS,
    FLAGS,
    checked_descs,
    require_all_dims,
    require_all_types,
    require_pairs,
    require_scales,
    sizes_of,
)
from inlay.primitives.rules import choice, flags_of, number, require_dims, type_of

_SUMS = ("diff_weights", "diff_bias")

State: TypeAlias = MemoryDesc | Literal["any"] | None
"""How the state at the end is described: not written, written in a format that the engine chooses, or as given."""


class Recurrent(Primitive):
    """What the forward primitives of all kinds share: the rules, and what is derived from the weights."""

    __slots__ = ()

    def _forward(
        self,
        prop_kind: str,
        direction: str,
        given: Mapping[str, MemoryDesc | None],
        states: Mapping[str, State],
        attributes: PrimitiveAttributes | None,
        engine: EngineLike,
        avoid: Avoid,
        parameters: Mapping[str, Parameter] = MappingProxyType({}),
    ) -> None:
        """Check what is given, derive what is left out, and create."""
        place, kind = type(self).__name__, self.kind
        purpose = forward_kind(place, prop_kind)
        way = choice(place, "direction", direction, DIRECTIONS)
        descs = checked_descs(place, given)
        sizes = sizes_of(place, kind, way, descs)
        source = type_of(descs["src_layer"])
        descs.setdefault("dst_layer", MemoryDesc(sizes.dims["dst_layer"], source, "any"))
        for name, state in states.items():
            if isinstance(state, str) and state == "any":
                taken = descs.get(name.replace("dst", "src"))
                data_type = source if taken is None else type_of(taken)
                fresh = "f32" if name == "dst_iter_c" and taken is None else data_type
                descs[name] = MemoryDesc(sizes.dims[name], fresh, "any")
            elif state is not None:
                descs |= checked_descs(place, {name: state})
        if kind == "lstm":
            require_pairs(place, descs)
        require_all_dims(place, sizes, descs)
        require_all_types(place, kind, purpose, descs)
        if attributes is not None:
            require_scales(place, sizes, descs, attributes)
        told = {**parameters, "direction": way, "flags": frozenset[str]()}
        self._create(purpose, descs, told, attributes, engine, avoid)

    def _bound(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        if _is_still(self):
            return _carrying(memories, {"dst_iter": "src_iter", "dst_iter_c": "src_iter_c"}, [])
        return super()._bound(memories)


class RecurrentBackward(Primitive):
    """What the backward primitives of all kinds share.

    They read all that forward reads and writes, its workspace, and a gradient of each thing that forward writes; they
    write a gradient of each thing that forward reads. Gradients are f32. Gradients of weights are added to what their
    memory holds, so that steps may be summed, unless the flag `diff_weights_overwrite` is set; memory that a call makes
    starts at zero. After backward the workspace may hold anything.
    """

    __slots__ = ()
    forward: ClassVar[type[Recurrent]]
    """The forward primitive that it belongs to."""

    def __init__(
        self,
        diff_dst_layer: MemoryDesc | None = None,
        *,
        hint_forward: Recurrent | None = None,
        descs: Mapping[str, MemoryDesc] = MappingProxyType({}),
        flags: Any = (),
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for the gradient of `hint_forward`, of the same arguments.

        `descs` says formats of other arguments by name. What it leaves out is `any` for weights and gradients, so that
        the engine may choose other formats of weights than forward has, and that of forward for all else. `flags` are
        names of `recurrent_rules.FLAGS`.

        Raises:
            InvalidArguments: the hint is missing, descs name what is no argument, an argument has other dims or types
                than those of hint_forward, there is no such flag, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = type(self).__name__
        hint = forward_of(place, hint_forward, self.forward)
        if not isinstance(descs, Mapping):
            raise InvalidArguments(f"{place}: descs are {shown(descs)}: give a mapping from names to MemoryDescs")
        gradient = descs.get("diff_dst_layer") if diff_dst_layer is None else diff_dst_layer
        said = checked_descs(place, {**descs, "diff_dst_layer": gradient})
        taken = _backward_descs(hint)
        for name, desc in said.items():
            _require_as_hint(place, name, desc, taken)
        parameters = {**hint.operation.parameters, "flags": flags_of(place, flags, FLAGS)}
        self._create("backward", {**taken, **said}, parameters, attributes, engine, avoid, hint)

    def _bound(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        if _is_still(self):
            flags = self.operation.parameters["flags"]
            is_new = isinstance(flags, frozenset) and "diff_weights_overwrite" in flags
            sums = [name for name in memories if name.startswith(_SUMS)] if is_new else []
            return _carrying(memories, {"diff_src_iter": "diff_dst_iter", "diff_src_iter_c": "diff_dst_iter_c"}, sums)
        return super()._bound(memories)

    def _checked(self, memories: Mapping[str, object]) -> CallArguments:
        """As `Primitive` does; new memory that is added to starts at zero, whatever new memory holds."""
        given = super()._checked(memories)
        for name in given.fresh:
            if name.startswith(_SUMS):
                given.memories[name].buffer[:] = 0
        return given


def _is_still(primitive: Primitive) -> bool:
    """Whether there is no step or no sequence, so that states stay and nothing is added to gradients of weights."""
    return 0 in primitive.src_desc.dims[:2]


def _carrying(memories: Mapping[str, Memory], states: Mapping[str, str], zeros: list[str]) -> Callable[[], None]:
    """What writes to each state of `states` the one that it is, 0 if that was left out, and 0 to `zeros`."""
    moves = []
    for name, source in states.items():
        if name in memories and 0 not in memories[name].desc.dims:
            if source in memories:
                moves.append((memories[source], memories[name]))
            else:
                zeros = [*zeros, name]
    zero = zeroing([memories[name] for name in zeros])

    def run() -> None:
        zero()
        for src, dst in moves:
            reorder(src, dst.desc, out=dst)

    return run


def _backward_descs(hint: Primitive) -> dict[str, MemoryDesc]:
    """The descriptor of each argument of the gradient of `hint`, where nobody says another."""
    found: dict[str, MemoryDesc] = {}
    for name in hint.operation.descs:
        chosen = hint.desc(name)
        anew = MemoryDesc(chosen.dims, type_of(chosen), "any")
        found[name] = anew if name.startswith("weights") else chosen
        found[f"diff_{name}"] = MemoryDesc(chosen.dims, "f32", "any")
    return found


def _require_as_hint(place: str, name: str, desc: MemoryDesc, taken: Mapping[str, MemoryDesc]) -> None:
    if name not in taken:
        raise InvalidArguments(f"{place}: descs name {shown(name)}: the arguments are {', '.join(taken)}")
    require_dims(place, name, desc, taken[name].dims, "those of hint_forward")
    if type_of(desc) != type_of(taken[name]):
        why = "gradients are" if name.startswith("diff_") else "that of hint_forward is"
        raise InvalidArguments(f"{place}: {name} is {type_of(desc)}: {why} {type_of(taken[name])}")


ACTIVATIONS = ("relu", "tanh", "logistic")
"""What `VanillaRNN` applies."""


class VanillaRNN(Recurrent):
    """A network of one gate: `h_t = activation(W x_t + U h_(t-1) + b)`.

    | argument | dims | meaning |
    |---|---|---|
    | src_layer | (T, N, X) | x |
    | src_iter | (L, D, N, S), may be left out | h before the first step, else 0 |
    | weights_layer | (L, D, X, 1, O) | W |
    | weights_iter | (L, D, S, 1, O) | U |
    | bias | (L, D, 1, O), may be left out | b, else 0 |
    | dst_layer | (T, N, O); (T, N, 2 O) with `concat` | h of the last layer |
    | dst_iter | (L, D, N, O), may be left out | h after the last step |

    Every format may be any. `activation` is relu (with slope `alpha` below zero), tanh or logistic.

    Source: oneAPI specification, "RNN"; Elman, "Finding structure in time", 1990.

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> x, one = MemoryDesc((3, 1, 1), "f32"), MemoryDesc((1, 1, 1, 1, 1), "f32")
    >>> rnn = VanillaRNN(x, one, one, activation="relu", engine="reference")
    >>> unit = pack(np.ones((1, 1, 1, 1, 1), np.float32), "abcde")
    >>> steps = pack(np.array([[[1.0]], [[2.0]], [[-9.0]]], np.float32), "tnc")
    >>> rnn(src_layer=steps, weights_layer=unit, weights_iter=unit).unpack().ravel()
    array([1., 3., 0.], dtype=float32)
    """

    __slots__ = ()
    kind: ClassVar[str] = "vanilla_rnn"

    def __init__(
        self,
        src_layer: MemoryDesc,
        weights_layer: MemoryDesc,
        weights_iter: MemoryDesc,
        bias: MemoryDesc | None = None,
        dst_layer: MemoryDesc | None = None,
        *,
        activation: str,
        alpha: float = 0.0,
        beta: float = 0.0,
        direction: str = "left2right",
        src_iter: MemoryDesc | None = None,
        dst_iter: State = None,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it; dst_layer, if left out, is `any`; dst_iter is written where it is a descriptor or "any".

        Raises:
            InvalidArguments: dims or types do not fit one another, there is no such activation or direction, or what
                `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "VanillaRNN"
        given = {"src_layer": src_layer, "src_iter": src_iter, "weights_layer": weights_layer}
        given |= {"weights_iter": weights_iter, "bias": bias, "dst_layer": dst_layer}
        told: dict[str, Parameter] = {"activation": choice(place, "activation", activation, ACTIVATIONS)}
        told |= {"alpha": number(place, "alpha", alpha), "beta": number(place, "beta", beta)}
        self._forward(prop_kind, direction, given, {"dst_iter": dst_iter}, attributes, engine, avoid, told)


class VanillaRNNBackward(RecurrentBackward):
    """The gradients of `VanillaRNN`, by propagation back through time.

    | argument | dims | meaning |
    |---|---|---|
    | all arguments of forward, workspace | as forward | what it read, wrote and kept |
    | diff_dst_layer, diff_dst_iter | those of dst_layer, dst_iter | gradients that arrive |
    | diff_src_layer, diff_src_iter, diff_weights_layer, diff_weights_iter, diff_bias | as without diff | results |

    With a = W x_t + U h_(t-1) + b and da = dh activation'(a): dx_t = W^T da, dh_(t-1) = U^T da, and dW, dU, db are the
    sums over time of da x_t^T, da h_(t-1)^T, da. Every format may be any; `RecurrentBackward` says how sums go on.

    Source: oneAPI specification, "RNN"; Werbos, "Backpropagation through time", 1990.

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> x, one = MemoryDesc((1, 1, 1), "f32"), MemoryDesc((1, 1, 1, 1, 1), "f32")
    >>> rnn = VanillaRNN(x, one, one, activation="relu", prop_kind="forward_training", engine="reference")
    >>> two, unit = pack(np.full((1, 1, 1), 2.0, np.float32), "tnc"), pack(np.ones((1,) * 5, np.float32), "abcde")
    >>> read = {"src_layer": two, "weights_layer": unit, "weights_iter": unit}
    >>> found = VanillaRNNBackward(hint_forward=rnn)(**read, **rnn(**read), diff_dst_layer=two)
    >>> float(found["diff_weights_layer"].unpack().item())
    4.0
    """

    __slots__ = ()
    kind: ClassVar[str] = "vanilla_rnn"
    forward = VanillaRNN


class LSTM(Recurrent):
    """Long short-term memory: gates i, f, o that take in, keep and let out a cell state c.

        i = logistic(W_i x_t + U_i h_(t-1) + P_i c_(t-1) + b_i)
        f = logistic(W_f x_t + U_f h_(t-1) + P_f c_(t-1) + b_f)
        c~ = tanh(W_c x_t + U_c h_(t-1) + b_c)
        c_t = f c_(t-1) + i c~
        o = logistic(W_o x_t + U_o h_(t-1) + P_o c_t + b_o)
        h_t = R (o tanh(c_t))

    Without weights_peephole P is 0, without weights_projection R leaves its argument alone and P = O. Gates stand in
    the order i f c~ o, peepholes in the order i f o.

    | argument | dims | meaning |
    |---|---|---|
    | src_layer | (T, N, X) | x |
    | src_iter, src_iter_c | (L, D, N, S), (L, D, N, O), may be left out | h, c before the first step, else 0 |
    | weights_layer, weights_iter | (L, D, X, 4, O), (L, D, S, 4, O) | W, U |
    | weights_peephole | (L, D, 3, O), may be left out | P |
    | weights_projection | (L, D, O, P), may be left out | R |
    | bias | (L, D, 4, O), may be left out | b, else 0 |
    | dst_layer | (T, N, P); (T, N, 2 P) with `concat` | h of the last layer |
    | dst_iter, dst_iter_c | (L, D, N, P), (L, D, N, O), may be left out | h, c after the last step |

    Every format may be any. c is f32 (or of src_layer's type) where the rest is bf16, f16, u8 or s8. In 8 bits,
    forward_inference only, weights are s8 and `PrimitiveAttributes(recurrent=RecurrentScales(...))` says what the
    integers mean.

    Source: oneAPI specification, "RNN"; Hochreiter, Schmidhuber, "Long short-term memory", 1997; forget gate and
    peepholes: Gers, Schmidhuber, "Recurrent nets that time and count", 2000; projection: Sak et al., 2014.

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rng = np.random.default_rng(0)
    >>> shapes = {"src_layer": (5, 2, 3), "weights_layer": (1, 1, 3, 4, 6), "weights_iter": (1, 1, 6, 4, 6)}
    >>> descs = {name: MemoryDesc(dims, "f32", "any") for name, dims in shapes.items()}
    >>> lstm = LSTM(**descs, dst_iter="any", dst_iter_c="any", engine="reference")
    >>> arrays = {name: rng.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}
    >>> found = lstm(**{name: pack(array, lstm.desc(name)) for name, array in arrays.items()})
    >>> sorted(found), found["dst_layer"].desc.dims
    (['dst_iter', 'dst_iter_c', 'dst_layer'], (5, 2, 6))
    >>> np.array_equal(found["dst_layer"].unpack()[-1], found["dst_iter"].unpack()[0, 0])
    True
    """

    __slots__ = ()
    kind: ClassVar[str] = "lstm"

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
        src_iter_c: MemoryDesc | None = None,
        weights_peephole: MemoryDesc | None = None,
        weights_projection: MemoryDesc | None = None,
        dst_iter: State = None,
        dst_iter_c: State = None,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it; dst_layer, if left out, is `any`; the states at the end are written where described, or "any".

        Raises:
            InvalidArguments: dims or types do not fit one another, a state h is given without its c, there is no such
                direction, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        given = {"src_layer": src_layer, "src_iter": src_iter, "src_iter_c": src_iter_c}
        given |= {"weights_layer": weights_layer, "weights_iter": weights_iter, "weights_peephole": weights_peephole}
        given |= {"weights_projection": weights_projection, "bias": bias, "dst_layer": dst_layer}
        states = {"dst_iter": dst_iter, "dst_iter_c": dst_iter_c}
        self._forward(prop_kind, direction, given, states, attributes, engine, avoid)


class LSTMBackward(RecurrentBackward):
    """The gradients of `LSTM`, by propagation back through time.

    | argument | dims | meaning |
    |---|---|---|
    | all arguments of forward, workspace | as forward | what it read, wrote and kept |
    | diff_dst_layer, diff_dst_iter, diff_dst_iter_c | as without diff | gradients that arrive |
    | diff_src_layer, diff_src_iter, diff_src_iter_c | as without diff | results |
    | diff_weights_layer and the other weights, diff_bias | as without diff | results |

    With m = o tanh(c_t) and dm = R^T dh: do = dm tanh(c_t) o (1 - o); dc = dc_t + dm o (1 - tanh(c_t)^2) + P_o do;
    di = dc c~ i (1 - i); df = dc c_(t-1) f (1 - f); dc~ = dc i (1 - c~^2); dc_(t-1) = dc f + P_i di + P_f df. These are
    the gradients before each gate's function, from which those of x, h and the weights follow as in
    `VanillaRNNBackward`. Every format may be any; `RecurrentBackward` says how sums go on.

    Source: oneAPI specification, "RNN"; Werbos, "Backpropagation through time", 1990.

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> x, weights = MemoryDesc((4, 2, 3), "f32"), MemoryDesc((1, 1, 3, 4, 3), "f32", "any")
    >>> lstm = LSTM(x, weights, weights, prop_kind="forward_training", engine="reference")
    >>> backward = LSTMBackward(hint_forward=lstm)
    >>> [name for name in backward.arguments if name.startswith("diff")]
    ['diff_dst_layer', 'diff_src_layer', 'diff_weights_layer', 'diff_weights_iter']
    """

    __slots__ = ()
    kind: ClassVar[str] = "lstm"
    forward = LSTM
