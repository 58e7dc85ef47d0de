"""What the tensors of a recurrent network must be: one set of sizes gives the dims of each, one type those of all.

    T times, N batch, L layers, D directions, G gates; channels: X of src_layer, S of the states that come in, O of the
    gates, P of the states that go out, which are O unless they are projected

    src_layer (T, N, X)           src_iter (L, D, N, S)      src_iter_c (L, D, N, O)     attention (T, N, 1)
    weights_layer (L, D, X, G, O) weights_iter (L, D, S, G, O)  bias (L, D, G, O)
    weights_peephole (L, D, 3, O) weights_projection (L, D, O, P)
    dst_layer (T, N, P)           dst_iter (L, D, N, P)      dst_iter_c (L, D, N, O)

With `concat` dst_layer has 2 P channels, and the bias of LBR GRU has one gate more.

Source: oneAPI specification, "RNN".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.primitives.attributes import PrimitiveAttributes, RecurrentScales
from inlay.primitives.rules import choice, desc_of, number, require_dims, require_ndims, type_of

DIRECTIONS = ("left2right", "right2left", "concat", "sum")
"""In which order time is run through, and how two orders are joined."""
FLAGS = ("diff_weights_overwrite",)
"""What may be said of the gradients of weights: without it they are added to what is there."""
GATES: Mapping[str, tuple[str, ...]] = {
    "vanilla_rnn": ("h",),
    "lstm": ("i", "f", "c~", "o"),
    "gru": ("u", "r", "o"),
    "lbr_gru": ("u", "r", "o"),
    "augru": ("u", "r", "o"),
    "lbr_augru": ("u", "r", "o"),
}
"""The gates of each kind, in their order."""

_AXES = {
    "src_layer": "(times, batch, channels)",
    "attention": "(times, batch, 1)",
    "weights_layer": "(layers, directions, channels in, gates, channels out)",
    "weights_iter": "(layers, directions, state channels in, gates, channels out)",
    "weights_projection": "(layers, directions, channels in, state channels out)",
}
_EXAMPLES = {
    "src_layer": "(5, 2, 6)",
    "attention": "(5, 2, 1)",
    "weights_layer": "(1, 1, 6, {gates}, 6)",
    "weights_iter": "(1, 1, 6, {gates}, 6)",
}
_ATTENTIVE = ("augru", "lbr_augru")
_HALVES = ("bf16", "f16")
_INTEGERS = ("u8", "s8")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The extents that the tensors of a network are made of."""

    times: int
    """T"""
    batch: int
    """N"""
    layers: int
    """L"""
    directions: int
    """D: 2 for `concat` and `sum`."""
    gates: int
    """G"""
    inputs: int
    """X: channels of src_layer."""
    states: int
    """S: channels of src_iter."""
    channels: int
    """O: channels of the gates."""
    outputs: int
    """P: channels of dst_iter."""
    joined: int
    """Channels of dst_layer."""
    biases: int
    """G, or one more."""

    @property
    def dims(self) -> dict[str, Dims]:
        """The dims of each argument of forward."""
        both = (self.layers, self.directions)
        return {
            "src_layer": (self.times, self.batch, self.inputs),
            "src_iter": (*both, self.batch, self.states),
            "src_iter_c": (*both, self.batch, self.channels),
            "attention": (self.times, self.batch, 1),
            "weights_layer": (*both, self.inputs, self.gates, self.channels),
            "weights_iter": (*both, self.states, self.gates, self.channels),
            "weights_peephole": (*both, 3, self.channels),
            "weights_projection": (*both, self.channels, self.outputs),
            "bias": (*both, self.biases, self.channels),
            "dst_layer": (self.times, self.batch, self.joined),
            "dst_iter": (*both, self.batch, self.outputs),
            "dst_iter_c": (*both, self.batch, self.channels),
        }


def sizes_of(place: str, kind: str, direction: str, descs: Mapping[str, MemoryDesc]) -> Sizes:
    """The sizes that src_layer and the weights say together.

    Raises:
        InvalidArguments: one of them is missing, or they contradict one another, the kind or the direction.
    """
    for name in ("src_layer", "weights_layer", "weights_iter", *(("attention",) if kind in _ATTENTIVE else ())):
        if name not in descs:
            dims = _EXAMPLES[name].format(gates=len(GATES[kind]))
            raise InvalidArguments(
                f"{place}: {name} is None: give a MemoryDesc of {_AXES[name]}, such as MemoryDesc({dims}, 'f32', 'any')"
            )
    for name, axes in _AXES.items():
        if name in descs:
            count = axes.count(",") + 1
            require_ndims(place, name, descs[name], count, count, axes)
    src, layer, state = (descs[name].dims for name in ("src_layer", "weights_layer", "weights_iter"))
    outputs = descs["weights_projection"].dims[3] if "weights_projection" in descs else layer[4]
    sizes = Sizes(
        times=src[0],
        batch=src[1],
        layers=layer[0],
        directions=2 if direction in ("concat", "sum") else 1,
        gates=len(GATES[kind]),
        inputs=src[2],
        states=state[2],
        channels=layer[4],
        outputs=outputs,
        joined=2 * outputs if direction == "concat" else outputs,
        biases=len(GATES[kind]) + kind.startswith("lbr_"),
    )
    _require_weights(place, kind, direction, sizes, layer)
    _require_channels(place, kind, sizes, state)
    return sizes


def _require_weights(place: str, kind: str, direction: str, sizes: Sizes, layer: Dims) -> None:
    """Refuse weights_layer that does not fit the kind, the direction or src_layer."""
    if layer[0] < 1 or (kind in _ATTENTIVE and layer[0] != 1):
        count = "one layer" if kind in _ATTENTIVE else "at least one layer"
        raise InvalidArguments(f"{place}: axis 0 of weights_layer {layer} says {layer[0]} as layers: it takes {count}")
    if kind in _ATTENTIVE and direction != "left2right":
        raise InvalidArguments(
            f"{place}: direction is {direction!r}: with attention it is 'left2right', reverse src_layer and attention"
        )
    if layer[1] != sizes.directions:
        raise InvalidArguments(
            f"{place}: axis 1 of weights_layer {layer} says {layer[1]} as directions: {direction!r} has "
            f"{sizes.directions}"
        )
    if layer[2] != sizes.inputs:
        raise InvalidArguments(
            f"{place}: axis 2 of weights_layer {layer} has {layer[2]} channels in, src_layer has {sizes.inputs}: make "
            "them equal"
        )
    if layer[3] != sizes.gates:
        gates = f"{sizes.gates} gates ({' '.join(GATES[kind])})" if sizes.gates > 1 else "one gate"
        raise InvalidArguments(f"{place}: axis 3 of weights_layer {layer} says {layer[3]} as gates: it takes {gates}")


def _require_channels(place: str, kind: str, sizes: Sizes, state: Dims) -> None:
    """Refuse channels that cannot be carried on to the next time or layer."""
    if sizes.layers > 1 and sizes.inputs != sizes.outputs:
        raise InvalidArguments(
            f"{place}: src_layer has {sizes.inputs} channels, the layers above read {sizes.outputs}: make them equal, "
            "or make the first layer a primitive of its own"
        )
    needs = kind not in ("vanilla_rnn", "lstm") or sizes.times != 1
    if needs and sizes.states != sizes.outputs:
        raise InvalidArguments(
            f"{place}: axis 2 of weights_iter {state} has {sizes.states} state channels in, the state that goes out "
            f"has {sizes.outputs}: make them equal, what goes out is what comes in at the next time"
        )


def require_all_dims(place: str, sizes: Sizes, descs: Mapping[str, MemoryDesc]) -> None:
    """Refuse an argument whose dims are not those that the sizes give.

    Raises:
        InvalidArguments: so it is.
    """
    for name, desc in descs.items():
        require_dims(place, name, desc, sizes.dims[name], "src_layer and the weights")


def require_pairs(place: str, descs: Mapping[str, MemoryDesc]) -> None:
    """Refuse the state of an LSTM without its cell state, or the other way round.

    Raises:
        InvalidArguments: so it is.
    """
    for name in ("src_iter", "dst_iter"):
        one, other = (name, f"{name}_c") if name in descs else (f"{name}_c", name)
        if one in descs and other not in descs:
            raise InvalidArguments(f"{place}: {one} is given and {other} is not: give both, or neither")


def require_all_types(place: str, kind: str, prop_kind: str, descs: Mapping[str, MemoryDesc]) -> None:
    """Refuse types that do not go together.

    Raises:
        InvalidArguments: src_layer is none of f32, bf16, f16, u8, s8; or another type does not fit it; or integers are
            asked for training, peepholes or another kind than LSTM and GRU.
    """
    source = type_of(descs["src_layer"]).name
    choice(place, "the type of src_layer", source, ("f32", *_HALVES, *_INTEGERS))
    if source in _INTEGERS:
        _require_integers(place, kind, prop_kind, descs, source)
    allowed = _types(source)
    for name, desc in descs.items():
        if type_of(desc).name not in allowed[name]:
            raise InvalidArguments(
                f"{place}: {name} is {type_of(desc)}: where src_layer is {source} it is {' or '.join(allowed[name])}"
            )
    for one, other in (("src_iter", "dst_iter"), ("src_iter_c", "dst_iter_c")):
        if one in descs and other in descs and type_of(descs[one]) != type_of(descs[other]):
            raise InvalidArguments(
                f"{place}: {one} is {type_of(descs[one])} and {other} is {type_of(descs[other])}: make them equal, "
                "what goes out is what comes in at the next time"
            )


def _types(source: str) -> dict[str, tuple[str, ...]]:
    """The types that each argument may have."""
    f32 = ("f32",)
    names = ("src_layer", "src_iter", "attention", "weights_layer", "weights_iter", "weights_projection")
    if source in _INTEGERS:
        return {
            **dict.fromkeys(names, ("s8",)),
            **dict.fromkeys(("src_iter", "dst_layer", "dst_iter"), (source, "f32")),
            **dict.fromkeys(("src_iter_c", "dst_iter_c", "bias"), f32),
            "src_layer": (source,),
        }
    either = (source, "f32") if source in _HALVES else f32
    return {
        **dict.fromkeys((*names, "dst_layer", "dst_iter"), (source,)),
        **dict.fromkeys(("src_iter_c", "dst_iter_c", "bias"), either),
        "weights_peephole": f32,
    }


def _require_integers(place: str, kind: str, prop_kind: str, descs: Mapping[str, MemoryDesc], source: str) -> None:
    """Refuse what is defined for floating-point numbers only."""
    if kind not in ("lstm", "gru") or prop_kind != "forward_inference" or "weights_peephole" in descs:
        raise InvalidArguments(
            f"{place}: src_layer is {source}: integers are for LSTM without peepholes and GRU, forward_inference only; "
            "use f32 or bf16"
        )


def require_scales(place: str, sizes: Sizes, descs: Mapping[str, MemoryDesc], attributes: Any) -> None:
    """Refuse attributes that a recurrent network does not take, and scales that do not fit its integers.

    Raises:
        InvalidArguments: so it is.
    """
    if not isinstance(attributes, PrimitiveAttributes):
        return  # `Primitive` refuses it
    for name in ("scales", "zero_points", "post_ops"):
        if getattr(attributes, name):
            raise InvalidArguments(
                f"{place}: attributes have {name}: a recurrent network takes none, integers are scaled by "
                "PrimitiveAttributes(recurrent=RecurrentScales(...))"
            )
    scales = attributes.recurrent
    if scales is None:
        return
    require_recurrent(place, scales)
    source = type_of(descs["src_layer"]).name
    if source not in _INTEGERS:
        raise InvalidArguments(f"{place}: attribute recurrent is for u8 and s8: src_layer is {source}")
    if source == "s8" and scales.shift != 0:
        raise InvalidArguments(f"{place}: shift is {scales.shift}: s8 is not shifted, give 0")
    for name, count in (("weights", sizes.gates * sizes.channels), ("projection", sizes.outputs)):
        _require_factors(place, name, getattr(scales, name), count)
    _require_factors(place, "scale", (scales.scale,), 1)


def require_recurrent(place: str, scales: Any) -> None:
    """Refuse scales of a recurrent network in 8 bits that are none.

    Raises:
        InvalidArguments: it is something else, or a field is no number or no tuple of numbers.
    """
    if not isinstance(scales, RecurrentScales):
        raise InvalidArguments(f"{place}: attribute recurrent is {shown(scales)}: give RecurrentScales")
    number(place, "scale of recurrent", scales.scale)
    number(place, "shift of recurrent", scales.shift)
    for name in ("weights", "projection"):
        factors = getattr(scales, name)
        if not isinstance(factors, (tuple, list)):
            raise InvalidArguments(
                f"{place}: {name} of recurrent is {shown(factors)}: give a tuple of factors, as in (1.0,)"
            )
        for factor in factors:
            number(place, f"{name} of recurrent", factor)


def _require_factors(place: str, name: str, factors: tuple[float, ...], count: int) -> None:
    if len(factors) not in (1, count):
        raise InvalidArguments(f"{place}: attribute recurrent has {len(factors)} factors for {name}: give 1 or {count}")
    for factor in factors:
        if not isfinite(factor) or factor == 0:
            raise InvalidArguments(f"{place}: attribute recurrent has the factor {factor} for {name}: give another")


def checked_descs(place: str, given: Mapping[str, MemoryDesc | None]) -> dict[str, MemoryDesc]:
    """What is given, each a descriptor of a dense tensor.

    Raises:
        InvalidArguments, Unimplemented: as `desc_of`.
    """
    return {name: desc_of(place, name, desc) for name, desc in given.items() if desc is not None}
