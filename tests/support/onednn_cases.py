"""One small problem for each primitive, and the backward problems that follow from a forward one.

forward("pooling")                      an operation, sources in plain formats, what may be `any` is
backward(implementation, direction)     the operation that goes back through a forward implementation
"""

from collections.abc import Mapping

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.primitives.engine import Engine, Implementation, Operation, Parameter
from inlay.primitives.rules import SIGNATURES, Direction, PropKind

FORWARD: tuple[PropKind, ...] = ("forward_training", "forward_inference")
"""What forward operations are run for."""

WINDOW: Mapping[str, Parameter] = {
    "algorithm": "direct",
    "strides": (2, 1),
    "dilations": (0, 1),
    "padding_l": (1, 1),
    "padding_r": (1, 1),
}
_T, _N, _C, _L, _D = 4, 3, 5, 2, 1
_SEQUENCE: Mapping[str, tuple[int, ...]] = {"src_layer": (_T, _N, _C), "src_iter": (_L, _D, _N, _C)}


def _gates(gates: int, bias_gates: int | None = None) -> Mapping[str, tuple[int, ...]]:
    return {
        "weights_layer": (_L, _D, _C, gates, _C),
        "weights_iter": (_L, _D, _C, gates, _C),
        "bias": (_L, _D, bias_gates or gates, _C),
        "dst_layer": (_T, _N, _C),
        "dst_iter": (_L, _D, _N, _C),
    }


def _one_layer(dims: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    return {name: (1, *shape[1:]) if shape[0] == _L else shape for name, shape in dims.items()}


_RECURRENT: Mapping[str, Parameter] = {"direction": "left2right", "flags": frozenset({"diff_weights_overwrite"})}
_CELLS = {"src_iter_c": (_L, _D, _N, _C), "dst_iter_c": (_L, _D, _N, _C)}
_ATTENTION = {"attention": (_T, _N, 1)}
_IMAGE = {"src": (2, 18, 8, 7), "dst": (2, 18, 8, 7)}
_NORMALIZED: Mapping[str, Parameter] = {"epsilon": 1e-5, "flags": frozenset({"use_scale", "use_shift"})}
_PER_CHANNEL = dict.fromkeys(("scale", "shift"), (18,))

DIMS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "convolution": {"src": (2, 17, 8, 7), "weights": (19, 17, 3, 3), "bias": (19,), "dst": (2, 19, 4, 5)},
    "deconvolution": {"src": (2, 19, 4, 5), "weights": (17, 19, 3, 3), "bias": (17,), "dst": (2, 17, 7, 7)},
    "inner_product": {"src": (2, 17, 4, 5), "weights": (19, 17, 4, 5), "bias": (19,), "dst": (2, 19)},
    "matmul": {"src": (3, 5, 17), "weights": (1, 17, 9), "bias": (1, 1, 9), "dst": (3, 5, 9)},
    "vanilla_rnn": {**_SEQUENCE, **_gates(1)},
    "lstm": {**_SEQUENCE, **_CELLS, **_gates(4)},
    "gru": {**_SEQUENCE, **_gates(3)},
    "lbr_gru": {**_SEQUENCE, **_gates(3, 4)},
    "augru": _one_layer({**_SEQUENCE, **_ATTENTION, **_gates(3)}),
    "lbr_augru": _one_layer({**_SEQUENCE, **_ATTENTION, **_gates(3, 4)}),
    "pooling": {"src": (2, 18, 8, 7), "dst": (2, 18, 4, 5)},
    "batch_normalization": {**_IMAGE, **_PER_CHANNEL, "mean": (18,), "variance": (18,)},
    "layer_normalization": {
        "src": (3, 5, 18),
        "dst": (3, 5, 18),
        **_PER_CHANNEL,
        "mean": (3, 5),
        "variance": (3, 5),
    },
    "group_normalization": {**_IMAGE, **_PER_CHANNEL, "mean": (2, 3), "variance": (2, 3)},
    "lrn": _IMAGE,
    "eltwise": _IMAGE,
    "shuffle": _IMAGE,
    "softmax": _IMAGE,
    "prelu": {**_IMAGE, "weights": (1, 18, 1, 1)},
    "resampling": {"src": (2, 18, 4, 5), "dst": (2, 18, 8, 15)},
    "reduction": {"src": (2, 18, 8, 7), "dst": (2, 18, 1, 1)},
    "reorder": {"src": (2, 18, 8, 7), "dst": (2, 18, 8, 7)},
    "concat": {"src_0": (2, 18, 8, 7), "src_1": (2, 3, 8, 7), "dst": (2, 21, 8, 7)},
    "sum": {"src_0": (2, 18, 8, 7), "src_1": (2, 18, 8, 7), "dst": (2, 18, 8, 7)},
    "binary": {"src_0": (2, 18, 8, 7), "src_1": (1, 18, 1, 7), "dst": (2, 18, 8, 7)},
}
"""By kind: the dims of each argument."""

PARAMETERS: Mapping[str, Mapping[str, Parameter]] = {
    "convolution": WINDOW,
    "deconvolution": WINDOW,
    "inner_product": {},
    "matmul": {},
    "vanilla_rnn": {"activation": "tanh", **_RECURRENT, "alpha": 0.0, "beta": 0.0},
    **dict.fromkeys(("lstm", "gru", "lbr_gru", "augru", "lbr_augru"), _RECURRENT),
    "pooling": {**WINDOW, "algorithm": "max", "kernel": (3, 3)},
    "batch_normalization": _NORMALIZED,
    "layer_normalization": _NORMALIZED,
    "group_normalization": {"groups": 3, **_NORMALIZED},
    "lrn": {"algorithm": "across_channels", "local_size": 5, "alpha": 1e-2, "beta": 0.75, "k": 1.0},
    "eltwise": {"algorithm": "elu", "alpha": 0.5, "beta": 0.0},
    "shuffle": {"axis": 1, "group_size": 3},
    "softmax": {"algorithm": "accurate", "axis": 1},
    "prelu": {},
    "resampling": {"algorithm": "linear", "factors": (2.0, 3.0)},
    "reduction": {"algorithm": "mean", "p": 0.0, "eps": 0.0},
    "reorder": {},
    "concat": {"axis": 1},
    "sum": {"scales": (0.5, 2.0)},
    "binary": {"algorithm": "mul"},
}
"""By kind: all its parameters."""


def forward(kind: str, prop_kind: PropKind = "forward_training") -> Operation:
    """The operation of a kind; sources of what only maps lie as channels last."""
    free = SIGNATURES[kind, "forward"].free
    descs = {}
    for name, dims in DIMS[kind].items():
        if name in ("mean", "variance") and prop_kind == "forward_inference":
            continue
        descs[name] = MemoryDesc(dims, "f32", "any") if name in free else MemoryDesc(dims, "f32", _plain(len(dims)))
    return Operation(kind, prop_kind, descs, PARAMETERS[kind])


def _plain(ndims: int) -> str:
    return "acdb" if ndims == 4 else "abcdefghijkl"[:ndims]


def backward(hint: Implementation, direction: Direction) -> Operation:
    """The way back: gradients may be `any`, forward arguments lie as they did."""
    kind = hint.operation.kind
    row = SIGNATURES[kind, direction]
    descs = {}
    for name in (*row.reads, *row.writes):
        desc = hint.descs.get(name.removeprefix("diff_"))
        if desc is None or name == "workspace":
            continue
        descs[name] = MemoryDesc(desc.dims, str(desc.data_type), "any") if name in row.free else desc
    if kind == "eltwise":
        del descs["dst"]
    return Operation(kind, _BACKWARD[direction], descs, hint.operation.parameters, hint=hint)


_BACKWARD: Mapping[Direction, PropKind] = {
    "backward": "backward",
    "backward_data": "backward_data",
    "backward_weights": "backward_weights",
}


def directions(kind: str) -> tuple[Direction, ...]:
    """The ways back that a kind has."""
    return tuple(direction for name, direction in SIGNATURES if name == kind and direction != "forward")


def computes(engine: Engine, data_type: str) -> bool:
    """Whether a library computes in a type on this processor at all: it does not in bf16 before AVX-512."""
    desc = MemoryDesc((2, 16), data_type)
    relu: dict[str, Parameter] = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
    try:
        engine.create(Operation("eltwise", "forward_inference", {"src": desc, "dst": desc}, relu))
    except Unimplemented:
        return False
    return True
