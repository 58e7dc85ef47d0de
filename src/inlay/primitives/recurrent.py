"""Recurrent networks: `VanillaRNN` and `LSTM`; those with update gates are in `gated`.

A network has L layers, which process a sequence in one direction of time or in both. Layers and directions are axes of
the weights, so one primitive computes all of them:

    lstm = LSTM(src_layer, weights_layer, weights_iter, bias, direction="concat", prop_kind="forward_training")
    out = lstm(src_layer=x, weights_layer=w, weights_iter=u, bias=b)      # dst_layer, workspace
    backward = LSTMBackward(hint_forward=lstm)
    gradients = backward(src_layer=x, ..., workspace=out["workspace"], diff_dst_layer=g)

Two directions are two separate stacks of layers: layer l from right to left reads layer l - 1 from right to left. Only
the outputs of the last layers are combined: concatenated or summed. The sizes T, N, L, D, G, X, S, O, P in the tables
are those of `recurrent_rules`.

`Recurrent` is the base of the forward primitives of all kinds, `RecurrentBackward` that of their gradients.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.memory import Memory, reorder
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.calls import CallArguments, make_zero_fill
from inlay.primitives.engine import Avoid, EngineLike, Parameter
from inlay.primitives.primitive import Primitive, require_forward, require_forward_kind
from inlay.primitives.recurrent_rules import (
    DIRECTIONS,
    FLAGS,
    infer_sizes,
    require_all_dims,
    require_all_types,
    require_descs,
    require_pairs,
    require_scales,
)
from inlay.primitives.rules import require_choice, require_dims, require_flags, require_number, type_of

_SUMS = ("diff_weights", "diff_bias")

FinalState: TypeAlias = MemoryDesc | Literal["any"] | None
"""The descriptor of a final state; "any" for a format that the engine chooses; None if the state is not written."""


class Recurrent(Primitive):
    """Base class of the forward primitives of all recurrent networks."""

    __slots__ = ()

    def _forward(
        self,
        prop_kind: str,
        direction: str,
        inputs: Mapping[str, MemoryDesc | None],
        states: Mapping[str, FinalState],
        attributes: PrimitiveAttributes | None,
        engine: EngineLike,
        avoid: Avoid,
        parameters: Mapping[str, Parameter] = MappingProxyType({}),
    ) -> None:
        """Check the descriptors, derive those of dst_layer and of the final states, and create the primitive.

        `inputs` has the descriptors of the other arguments, `states` those of the final states by name.
        """
        primitive_name, kind = type(self).__name__, self.kind
        purpose = require_forward_kind(primitive_name, prop_kind)
        chosen_direction = require_choice(primitive_name, "direction", direction, DIRECTIONS)
        descs = require_descs(primitive_name, inputs)
        sizes = infer_sizes(primitive_name, kind, chosen_direction, descs)
        source = type_of(descs["src_layer"])
        descs.setdefault("dst_layer", MemoryDesc(sizes.dims["dst_layer"], source, "any"))
        for name, state in states.items():
            if isinstance(state, str) and state == "any":
                initial = descs.get(name.replace("dst", "src"))
                default = "f32" if name == "dst_iter_c" else source
                data_type = default if initial is None else type_of(initial)
                descs[name] = MemoryDesc(sizes.dims[name], data_type, "any")
            elif state is not None:
                descs |= require_descs(primitive_name, {name: state})
        if kind == "lstm":
            require_pairs(primitive_name, descs)
        require_all_dims(primitive_name, sizes, descs)
        require_all_types(primitive_name, kind, purpose, descs)
        if attributes is not None:
            require_scales(primitive_name, sizes, descs, attributes)
        all_parameters = {**parameters, "direction": chosen_direction, "flags": frozenset[str]()}
        self._create(purpose, descs, all_parameters, attributes, engine, avoid)

    def _bind_checked(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """Bind as `Primitive` does; without time steps or sequences, only copy states."""
        if _is_empty_sequence(self):
            return _copy_states(memories, {"dst_iter": "src_iter", "dst_iter_c": "src_iter_c"}, [])
        return super()._bind_checked(memories)


class RecurrentBackward(Primitive):
    """Base class of the backward primitives of all recurrent networks.

    They read every argument of forward, its workspace, and a gradient of each argument that forward writes; they write
    a gradient of each argument that forward reads. Gradients are f32. Gradients of weights and bias are added to the
    content of their memory, so that calls accumulate, unless the flag `diff_weights_overwrite` is set; memory that a
    call allocates starts at 0. Backward may overwrite the workspace.
    """

    __slots__ = ()
    forward: ClassVar[type[Recurrent]]
    """Class of the forward primitive."""

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
        """Create the gradient of `hint_forward`.

        `descs` has descriptors of other arguments by name. An argument that it leaves out has any format if it is a
        weight or a gradient, so that the engine may choose another format of weights than in forward; else it has its
        forward descriptor. `flags` are names of `recurrent_rules.FLAGS`.

        Raises:
            InvalidArguments: the hint is missing, `descs` has an unknown name, the dims or type of an argument differ
                from those of hint_forward, a flag is unknown, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = type(self).__name__
        hint = require_forward(primitive_name, hint_forward, self.forward)
        if not isinstance(descs, Mapping):
            raise InvalidArguments(
                f"{primitive_name}: descs are {shown(descs)}: give a mapping from names to MemoryDescs"
            )
        gradient = descs.get("diff_dst_layer") if diff_dst_layer is None else diff_dst_layer
        explicit = require_descs(primitive_name, {**descs, "diff_dst_layer": gradient})
        defaults = _backward_descs(hint)
        for name, desc in explicit.items():
            _require_as_hint(primitive_name, name, desc, defaults)
        parameters = {**hint.operation.parameters, "flags": require_flags(primitive_name, flags, FLAGS)}
        self._create("backward", {**defaults, **explicit}, parameters, attributes, engine, avoid, hint)

    def _bind_checked(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """Bind as `Primitive` does; without time steps or sequences, only copy states."""
        if _is_empty_sequence(self):
            flags = self.operation.parameters["flags"]
            is_new = isinstance(flags, frozenset) and "diff_weights_overwrite" in flags
            sums = [name for name in memories if name.startswith(_SUMS)] if is_new else []
            return _copy_states(
                memories, {"diff_src_iter": "diff_dst_iter", "diff_src_iter_c": "diff_dst_iter_c"}, sums
            )
        return super()._bind_checked(memories)

    def _check_arguments(self, memories: Mapping[str, object]) -> CallArguments:
        """Check as `Primitive` does, and set new memory of accumulated gradients to 0."""
        call = super()._check_arguments(memories)
        for name in call.allocated:
            if name.startswith(_SUMS):
                call.memories[name].buffer[:] = 0
        return call


def _is_empty_sequence(primitive: Primitive) -> bool:
    """Return whether the input has no time step or no sequence.

    Then final states equal initial states, and gradients of weights do not change.
    """
    return 0 in primitive.src_desc.dims[:2]


def _copy_states(memories: Mapping[str, Memory], states: Mapping[str, str], zeros: list[str]) -> Callable[[], None]:
    """Return a function that copies states and sets memories to 0.

    `states` maps each destination to its source; if the source is not among `memories`, the destination is set to 0,
    as are `zeros`.
    """
    moves = []
    for name, source in states.items():
        if name in memories and 0 not in memories[name].desc.dims:
            if source in memories:
                moves.append((memories[source], memories[name]))
            else:
                zeros = [*zeros, name]
    zero = make_zero_fill([memories[name] for name in zeros])

    def run() -> None:
        zero()
        for src, dst in moves:
            reorder(src, dst.desc, out=dst)

    return run


def _backward_descs(hint: Primitive) -> dict[str, MemoryDesc]:
    """Return the default descriptor of each argument of the gradient of `hint`."""
    descs: dict[str, MemoryDesc] = {}
    for name in hint.operation.descs:
        forward = hint.desc(name)
        any_format = MemoryDesc(forward.dims, type_of(forward), "any")
        descs[name] = any_format if name.startswith("weights") else forward
        descs[f"diff_{name}"] = MemoryDesc(forward.dims, "f32", "any")
    return descs


def _require_as_hint(primitive_name: str, name: str, desc: MemoryDesc, defaults: Mapping[str, MemoryDesc]) -> None:
    """Check that a descriptor is of an argument of the gradient, with the dims and type of the forward primitive."""
    if name not in defaults:
        raise InvalidArguments(f"{primitive_name}: descs name {shown(name)}: the arguments are {', '.join(defaults)}")
    require_dims(primitive_name, name, desc, defaults[name].dims, "those of hint_forward")
    if type_of(desc) != type_of(defaults[name]):
        why = "gradients are" if name.startswith("diff_") else "that of hint_forward is"
        raise InvalidArguments(f"{primitive_name}: {name} is {type_of(desc)}: {why} {type_of(defaults[name])}")


ACTIVATIONS = ("relu", "tanh", "logistic")
"""Activation functions of `VanillaRNN`."""


class VanillaRNN(Recurrent):
    """A recurrent network without gates: `h_t = activation(W x_t + U h_(t-1) + b)`.

    | argument | dims | meaning |
    |---|---|---|
    | src_layer | (T, N, X) | x |
    | src_iter | (L, D, N, S), may be left out | h before the first step, else 0 |
    | weights_layer | (L, D, X, 1, O) | W |
    | weights_iter | (L, D, S, 1, O) | U |
    | bias | (L, D, 1, O), may be left out | b, else 0 |
    | dst_layer | (T, N, O); (T, N, 2 O) with `concat` | h of the last layer |
    | dst_iter | (L, D, N, O), may be left out | h after the last step |

    All formats may be any. `activation` is relu (with slope `alpha` below zero), tanh or logistic.

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
        dst_iter: FinalState = None,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive.

        `dst_layer`, if left out, has any format. The final state dst_iter is written unless it is None.

        Raises:
            InvalidArguments: dims or types are inconsistent, there is no such activation or direction, or an argument
                is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "VanillaRNN"
        inputs = {"src_layer": src_layer, "src_iter": src_iter, "weights_layer": weights_layer}
        inputs |= {"weights_iter": weights_iter, "bias": bias, "dst_layer": dst_layer}
        parameters: dict[str, Parameter] = {
            "activation": require_choice(primitive_name, "activation", activation, ACTIVATIONS)
        }
        parameters |= {
            "alpha": require_number(primitive_name, "alpha", alpha),
            "beta": require_number(primitive_name, "beta", beta),
        }
        self._forward(prop_kind, direction, inputs, {"dst_iter": dst_iter}, attributes, engine, avoid, parameters)


class VanillaRNNBackward(RecurrentBackward):
    """The gradients of `VanillaRNN`, by propagation back through time.

    | argument | dims | meaning |
    |---|---|---|
    | all arguments of forward, workspace | as forward | as in the forward call |
    | diff_dst_layer, diff_dst_iter | those of dst_layer, dst_iter | inputs |
    | diff_src_layer, diff_src_iter, diff_weights_layer, diff_weights_iter, diff_bias | as without diff | results |

    With a = W x_t + U h_(t-1) + b and da = dh activation'(a): dx_t = W^T da, dh_(t-1) = U^T da, and dW, dU, db are the
    sums over time of da x_t^T, da h_(t-1)^T, da. All formats may be any. `RecurrentBackward` describes the accumulation
    of weight gradients.

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
    """Long short-term memory: a cell state c with input gate i, forget gate f and output gate o.

        i = logistic(W_i x_t + U_i h_(t-1) + P_i c_(t-1) + b_i)
        f = logistic(W_f x_t + U_f h_(t-1) + P_f c_(t-1) + b_f)
        c~ = tanh(W_c x_t + U_c h_(t-1) + b_c)
        c_t = f c_(t-1) + i c~
        o = logistic(W_o x_t + U_o h_(t-1) + P_o c_t + b_o)
        h_t = R (o tanh(c_t))

    Without weights_peephole, P_i, P_f and P_o are 0. Without weights_projection, R is the identity and P = O. The gates
    have the order i f c~ o, the peepholes i f o.

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

    All formats may be any. If the other arguments are bf16 or f16, c has their type or f32; if they are u8 or s8, c is
    f32. In 8 bits, forward_inference only, weights are s8, and `PrimitiveAttributes(recurrent=RecurrentScales(...))`
    defines the quantization.

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
        dst_iter: FinalState = None,
        dst_iter_c: FinalState = None,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive.

        `dst_layer`, if left out, has any format. Final states are written unless they are None.

        Raises:
            InvalidArguments: dims or types are inconsistent, a state h is present without its c, there is no such
                direction, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        inputs = {"src_layer": src_layer, "src_iter": src_iter, "src_iter_c": src_iter_c}
        inputs |= {"weights_layer": weights_layer, "weights_iter": weights_iter, "weights_peephole": weights_peephole}
        inputs |= {"weights_projection": weights_projection, "bias": bias, "dst_layer": dst_layer}
        states = {"dst_iter": dst_iter, "dst_iter_c": dst_iter_c}
        self._forward(prop_kind, direction, inputs, states, attributes, engine, avoid)


class LSTMBackward(RecurrentBackward):
    """The gradients of `LSTM`, by propagation back through time.

    | argument | dims | meaning |
    |---|---|---|
    | all arguments of forward, workspace | as forward | as in the forward call |
    | diff_dst_layer, diff_dst_iter, diff_dst_iter_c | as without diff | inputs |
    | diff_src_layer, diff_src_iter, diff_src_iter_c | as without diff | results |
    | diff_weights_layer and the other weights, diff_bias | as without diff | results |

    With m = o tanh(c_t), dh the gradient of h_t, and dm = R^T dh: do = dm tanh(c_t) o (1 - o);
    dc = dc_t + dm o (1 - tanh(c_t)^2) + P_o do; di = dc c~ i (1 - i); df = dc c_(t-1) f (1 - f);
    dc~ = dc i (1 - c~^2); dc_(t-1) = dc f + P_i di + P_f df. These are the gradients before each gate's function, from
    which those of x, h and the weights follow as in `VanillaRNNBackward`. All formats may be any. `RecurrentBackward`
    describes the accumulation of weight gradients.

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
