"""Rules for the dims and types of the tensors of recurrent networks.

All dims are made of these sizes, which `infer_sizes` reads from src_layer and the weights:

    T time steps, N batch, L layers, D directions, G gates; numbers of channels: X of src_layer, S of the initial
    state, O of the gates, P of the final state (equal to O unless there is a projection)

    src_layer (T, N, X)           src_iter (L, D, N, S)      src_iter_c (L, D, N, O)     attention (T, N, 1)
    weights_layer (L, D, X, G, O) weights_iter (L, D, S, G, O)  bias (L, D, G, O)
    weights_peephole (L, D, 3, O) weights_projection (L, D, O, P)
    dst_layer (T, N, P)           dst_iter (L, D, N, P)      dst_iter_c (L, D, N, O)

With the direction `concat`, dst_layer has 2 P channels. The bias of LBR GRU has G + 1 gates. The type of src_layer
determines which types the other tensors may have.

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
from inlay.primitives.rules import require_choice, require_desc, require_dims, require_ndims, require_number, type_of

DIRECTIONS = ("left2right", "right2left", "concat", "sum")
"""Directions of time; the last two run both, and concatenate or sum their outputs."""
FLAGS = ("diff_weights_overwrite",)
"""Flags of backward primitives. Without `diff_weights_overwrite`, gradients of weights are added to their memory."""
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
class RecurrentSizes:
    """The sizes of a recurrent network, from which the dims of all its tensors follow."""

    times: int
    """T: number of time steps."""
    batch: int
    """N: number of sequences."""
    layers: int
    """L: number of layers."""
    directions: int
    """D: number of directions; 2 for `concat` and `sum`, else 1."""
    gates: int
    """G: number of gates of weights."""
    inputs: int
    """X: number of channels of src_layer."""
    states: int
    """S: number of channels of src_iter."""
    channels: int
    """O: number of channels of the gates."""
    outputs: int
    """P: number of channels of dst_iter."""
    joined: int
    """Number of channels of dst_layer: 2 P for `concat`, else P."""
    biases: int
    """Number of gates of the bias: G + 1 for LBR GRU and LBR AUGRU, else G."""

    @property
    def dims(self) -> dict[str, Dims]:
        """The dims of each argument of the forward primitive, by its name."""
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


def infer_sizes(primitive_name: str, kind: str, direction: str, descs: Mapping[str, MemoryDesc]) -> RecurrentSizes:
    """Determine the sizes of a network from the dims of src_layer and the weights.

    Raises:
        InvalidArguments: one of these is missing, or they are inconsistent with each other, the kind or the direction.
    """
    for name in ("src_layer", "weights_layer", "weights_iter", *(("attention",) if kind in _ATTENTIVE else ())):
        if name not in descs:
            dims = _EXAMPLES[name].format(gates=len(GATES[kind]))
            raise InvalidArguments(
                f"{primitive_name}: {name} is None: give a MemoryDesc of {_AXES[name]}, such as MemoryDesc({dims}, "
                "'f32', 'any')"
            )
    for name, axes in _AXES.items():
        if name in descs:
            count = axes.count(",") + 1
            require_ndims(primitive_name, name, descs[name], count, count, axes)
    src, layer, state = (descs[name].dims for name in ("src_layer", "weights_layer", "weights_iter"))
    outputs = descs["weights_projection"].dims[3] if "weights_projection" in descs else layer[4]
    sizes = RecurrentSizes(
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
    _require_weights(primitive_name, kind, direction, sizes, layer)
    _require_channels(primitive_name, kind, sizes, state)
    return sizes


def _require_weights(primitive_name: str, kind: str, direction: str, sizes: RecurrentSizes, layer: Dims) -> None:
    """Check weights_layer against the kind, the direction and src_layer."""
    if layer[0] < 1 or (kind in _ATTENTIVE and layer[0] != 1):
        count = "one layer" if kind in _ATTENTIVE else "at least one layer"
        raise InvalidArguments(f"{primitive_name}: axis 0 of weights_layer {layer} has {layer[0]} layers: give {count}")
    if kind in _ATTENTIVE and direction != "left2right":
        raise InvalidArguments(
            f"{primitive_name}: direction is {direction!r}: with attention it is 'left2right', reverse src_layer and "
            "attention"
        )
    if layer[1] != sizes.directions:
        raise InvalidArguments(
            f"{primitive_name}: axis 1 of weights_layer {layer} has {layer[1]} directions: {direction!r} has "
            f"{sizes.directions}"
        )
    if layer[2] != sizes.inputs:
        raise InvalidArguments(
            f"{primitive_name}: axis 2 of weights_layer {layer} has {layer[2]} channels in, src_layer has "
            f"{sizes.inputs}: make them equal"
        )
    if layer[3] != sizes.gates:
        gates = f"{sizes.gates} gates ({' '.join(GATES[kind])})" if sizes.gates > 1 else "one gate"
        raise InvalidArguments(f"{primitive_name}: axis 3 of weights_layer {layer} has {layer[3]} gates: give {gates}")


def _require_channels(primitive_name: str, kind: str, sizes: RecurrentSizes, state: Dims) -> None:
    """Check that the output of a time step and of a layer has the channels that the next one reads."""
    if sizes.layers > 1 and sizes.inputs != sizes.outputs:
        raise InvalidArguments(
            f"{primitive_name}: src_layer has {sizes.inputs} channels, the layers above read {sizes.outputs}: make "
            "them equal, or make the first layer a primitive of its own"
        )
    needs = kind not in ("vanilla_rnn", "lstm") or sizes.times != 1
    if needs and sizes.states != sizes.outputs:
        raise InvalidArguments(
            f"{primitive_name}: axis 2 of weights_iter {state} has {sizes.states} state channels in, the final "
            f"state has {sizes.outputs}: make them equal, each step reads the state of the previous one"
        )


def require_all_dims(primitive_name: str, sizes: RecurrentSizes, descs: Mapping[str, MemoryDesc]) -> None:
    """Check that every argument has the dims that follow from the sizes.

    Raises:
        InvalidArguments: the dims of one differ.
    """
    for name, desc in descs.items():
        require_dims(primitive_name, name, desc, sizes.dims[name], "src_layer and the weights")


def require_pairs(primitive_name: str, descs: Mapping[str, MemoryDesc]) -> None:
    """Check that each state of an LSTM comes with its cell state, and vice versa.

    Raises:
        InvalidArguments: one of a pair is missing.
    """
    for name in ("src_iter", "dst_iter"):
        one, other = (name, f"{name}_c") if name in descs else (f"{name}_c", name)
        if one in descs and other not in descs:
            raise InvalidArguments(f"{primitive_name}: {one} is given and {other} is not: give both, or neither")


def require_all_types(primitive_name: str, kind: str, prop_kind: str, descs: Mapping[str, MemoryDesc]) -> None:
    """Check that the types of all arguments can be combined.

    Raises:
        InvalidArguments: src_layer is not f32, bf16, f16, u8 or s8; or another type cannot be combined with it; or
            integers are combined with training, peepholes, or a kind other than LSTM and GRU.
    """
    source = type_of(descs["src_layer"]).name
    require_choice(primitive_name, "the type of src_layer", source, ("f32", *_HALVES, *_INTEGERS))
    if source in _INTEGERS:
        _require_integers(primitive_name, kind, prop_kind, descs, source)
    allowed = _types(source)
    for name, desc in descs.items():
        if type_of(desc).name not in allowed[name]:
            raise InvalidArguments(
                f"{primitive_name}: {name} is {type_of(desc)}: where src_layer is {source} it is "
                f"{' or '.join(allowed[name])}"
            )
    for one, other in (("src_iter", "dst_iter"), ("src_iter_c", "dst_iter_c")):
        if one in descs and other in descs and type_of(descs[one]) != type_of(descs[other]):
            raise InvalidArguments(
                f"{primitive_name}: {one} is {type_of(descs[one])} and {other} is {type_of(descs[other])}: make them "
                "equal, each step reads the state of the previous one"
            )


def _types(source: str) -> dict[str, tuple[str, ...]]:
    """Return the types that each argument may have, for the type of src_layer."""
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


def _require_integers(
    primitive_name: str, kind: str, prop_kind: str, descs: Mapping[str, MemoryDesc], source: str
) -> None:
    """Check that an 8-bit network uses no feature that is defined for floating-point numbers only."""
    if kind not in ("lstm", "gru") or prop_kind != "forward_inference" or "weights_peephole" in descs:
        raise InvalidArguments(
            f"{primitive_name}: src_layer is {source}: integers are for LSTM without peepholes and GRU, "
            "forward_inference only; use f32 or bf16"
        )


def require_scales(
    primitive_name: str, sizes: RecurrentSizes, descs: Mapping[str, MemoryDesc], attributes: Any
) -> None:
    """Check that a recurrent network supports its attributes, and that the scales are valid for its integers.

    Raises:
        InvalidArguments: an attribute is not supported, or a scale has a wrong value or number of entries.
    """
    if not isinstance(attributes, PrimitiveAttributes):
        return  # `Primitive` raises the error
    for name in ("scales", "zero_points", "post_ops"):
        if getattr(attributes, name):
            raise InvalidArguments(
                f"{primitive_name}: attributes have {name}: a recurrent network takes none, integers are scaled by "
                "PrimitiveAttributes(recurrent=RecurrentScales(...))"
            )
    scales = attributes.recurrent
    if scales is None:
        return
    require_recurrent(primitive_name, scales)
    source = type_of(descs["src_layer"]).name
    if source not in _INTEGERS:
        raise InvalidArguments(f"{primitive_name}: attribute recurrent is for u8 and s8: src_layer is {source}")
    if source == "s8" and scales.shift != 0:
        raise InvalidArguments(f"{primitive_name}: shift is {scales.shift}: s8 is not shifted, give 0")
    for name, count in (("weights", sizes.gates * sizes.channels), ("projection", sizes.outputs)):
        _require_factors(primitive_name, name, getattr(scales, name), count)
    _require_factors(primitive_name, "scale", (scales.scale,), 1)


def require_recurrent(primitive_name: str, scales: Any) -> None:
    """Check that `scales` is a `RecurrentScales` whose fields have the right types.

    Raises:
        InvalidArguments: it is not, or a field is not a number or a tuple of numbers.
    """
    if not isinstance(scales, RecurrentScales):
        raise InvalidArguments(f"{primitive_name}: attribute recurrent is {shown(scales)}: give RecurrentScales")
    require_number(primitive_name, "scale of recurrent", scales.scale)
    require_number(primitive_name, "shift of recurrent", scales.shift)
    for name in ("weights", "projection"):
        factors = getattr(scales, name)
        if not isinstance(factors, (tuple, list)):
            raise InvalidArguments(
                f"{primitive_name}: {name} of recurrent is {shown(factors)}: give a tuple of factors, as in (1.0,)"
            )
        for factor in factors:
            require_number(primitive_name, f"{name} of recurrent", factor)


def _require_factors(primitive_name: str, name: str, factors: tuple[float, ...], count: int) -> None:
    """Check that there is one factor or `count`, and that all are finite and not 0."""
    if len(factors) not in (1, count):
        raise InvalidArguments(
            f"{primitive_name}: attribute recurrent has {len(factors)} factors for {name}: give 1 or {count}"
        )
    for factor in factors:
        if not isfinite(factor) or factor == 0:
            raise InvalidArguments(
                f"{primitive_name}: attribute recurrent has the factor {factor} for {name}: give another"
            )


def require_descs(primitive_name: str, descs: Mapping[str, MemoryDesc | None]) -> dict[str, MemoryDesc]:
    """Check that all entries that are not None are descriptors of dense tensors, and return these.

    Raises:
        InvalidArguments, Unimplemented: as `require_desc`.
    """
    return {name: require_desc(primitive_name, name, desc) for name, desc in descs.items() if desc is not None}
