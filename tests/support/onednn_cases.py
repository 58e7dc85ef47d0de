"""One small problem for each primitive, and the backward problems that follow from a forward one.

forward("pooling")                      an operation, sources in plain formats, what may be `any` is
backward(implementation, direction)     the operation that goes back through a forward implementation
"""

from collections.abc import Mapping
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.primitives.engine import Engine, Implementation, Operation, Parameter
from inlay.primitives.rules import SIGNATURES, Direction, PropKind

FORWARD: tuple[PropKind, ...] = ("forward_training", "forward_inference")
"""What forward operations are run for."""

_WINDOW: Mapping[str, Parameter] = {
    "algorithm": "direct",
    "strides": (2, 1),
    "dilations": (0, 1),
    **dict.fromkeys(("padding_l", "padding_r"), (1, 1)),
}
_SEQUENCE: Mapping[str, tuple[int, ...]] = {"src_layer": (4, 3, 5), "dst_layer": (4, 3, 5)}


def _cells(gates: int, *, layers: int = 2, bias_gates: int | None = None) -> Mapping[str, tuple[int, ...]]:
    """Sequences, states, weights and biases; layers of one direction, and 5 channels everywhere."""
    weights = dict.fromkeys(("weights_layer", "weights_iter"), (layers, 1, 5, gates, 5))
    states = dict.fromkeys(("src_iter", "dst_iter"), (layers, 1, 3, 5))
    return {**_SEQUENCE, **states, **weights, "bias": (layers, 1, bias_gates or gates, 5)}


_RECURRENT: Mapping[str, Parameter] = {"direction": "left2right", "flags": frozenset({"diff_weights_overwrite"})}
_IMAGE = {"src": (2, 18, 8, 7), "dst": (2, 18, 8, 7)}
_NORMALIZED: Mapping[str, Parameter] = {"epsilon": 1e-5, "flags": frozenset({"use_scale", "use_shift"})}
_PER_CHANNEL = dict.fromkeys(("scale", "shift"), (18,))

DIMS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "convolution": {"src": (2, 17, 8, 7), "weights": (19, 17, 3, 3), "bias": (19,), "dst": (2, 19, 4, 5)},
    "deconvolution": {"src": (2, 19, 4, 5), "weights": (17, 19, 3, 3), "bias": (17,), "dst": (2, 17, 7, 7)},
    "inner_product": {"src": (2, 17, 4, 5), "weights": (19, 17, 4, 5), "bias": (19,), "dst": (2, 19)},
    "matmul": {"src": (3, 5, 17), "weights": (1, 17, 9), "bias": (1, 1, 9), "dst": (3, 5, 9)},
    "vanilla_rnn": _cells(1),
    "lstm": {**_cells(4), **dict.fromkeys(("src_iter_c", "dst_iter_c"), (2, 1, 3, 5))},
    "gru": _cells(3),
    "lbr_gru": _cells(3, bias_gates=4),
    "augru": {**_cells(3, layers=1), "attention": (4, 3, 1)},
    "lbr_augru": {**_cells(3, layers=1, bias_gates=4), "attention": (4, 3, 1)},
    "pooling": {"src": (2, 18, 8, 7), "dst": (2, 18, 4, 5)},
    "batch_normalization": {**_IMAGE, **_PER_CHANNEL, "mean": (18,), "variance": (18,)},
    "layer_normalization": {
        **dict.fromkeys(("src", "dst"), (3, 5, 18)),
        **_PER_CHANNEL,
        "mean": (3, 5),
        "variance": (3, 5),
    },
    "group_normalization": {**_IMAGE, **_PER_CHANNEL, "mean": (2, 3), "variance": (2, 3)},
    **dict.fromkeys(("lrn", "eltwise", "shuffle", "softmax", "reorder"), _IMAGE),
    "prelu": {**_IMAGE, "weights": (1, 18, 1, 1)},
    "resampling": {"src": (2, 18, 4, 5), "dst": (2, 18, 8, 15)},
    "reduction": {"src": (2, 18, 8, 7), "dst": (2, 18, 1, 1)},
    "concat": {"src_0": (2, 18, 8, 7), "src_1": (2, 3, 8, 7), "dst": (2, 21, 8, 7)},
    "sum": dict.fromkeys(("src_0", "src_1", "dst"), (2, 18, 8, 7)),
    "binary": {"src_0": (2, 18, 8, 7), "src_1": (1, 18, 1, 7), "dst": (2, 18, 8, 7)},
}
"""By kind: the dims of each argument."""

PARAMETERS: Mapping[str, Mapping[str, Parameter]] = {
    **dict.fromkeys(("convolution", "deconvolution"), _WINDOW),
    **{kind: {} for kind in ("inner_product", "matmul", "prelu", "reorder")},
    "vanilla_rnn": {"activation": "tanh", **_RECURRENT, "alpha": 0.0, "beta": 0.0},
    **dict.fromkeys(("lstm", "gru", "lbr_gru", "augru", "lbr_augru"), _RECURRENT),
    "pooling": {**_WINDOW, "algorithm": "max", "kernel": (3, 3)},
    **dict.fromkeys(("batch_normalization", "layer_normalization"), _NORMALIZED),
    "group_normalization": {"groups": 3, **_NORMALIZED},
    "lrn": {"algorithm": "across_channels", "local_size": 5, "alpha": 1e-2, "beta": 0.75, "k": 1.0},
    "eltwise": {"algorithm": "elu", "alpha": 0.5, "beta": 0.0},
    "shuffle": {"axis": 1, "group_size": 3},
    "softmax": {"algorithm": "accurate", "axis": 1},
    "resampling": {"algorithm": "linear", "factors": (2.0, 3.0)},
    "reduction": {"algorithm": "mean", "p": 0.0, "eps": 0.0},
    "concat": {"axis": 1},
    "sum": {"scales": (0.5, 2.0)},
    "binary": {"algorithm": "mul"},
}
"""By kind: all its parameters."""


def forward(kind: str, prop_kind: PropKind = "forward_training") -> Operation:
    """The operation of a kind; sources of what only maps lie as channels last."""
    free = SIGNATURES[kind, "forward"].free
    unread = ("mean", "variance") if prop_kind == "forward_inference" else ()
    descs = {
        name: MemoryDesc(dims, "f32", "any" if name in free else _plain(len(dims)))
        for name, dims in DIMS[kind].items()
        if name not in unread
    }
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
    prop_kind: Any = direction
    return Operation(kind, prop_kind, descs, hint.operation.parameters, hint=hint)


def directions(kind: str) -> tuple[Direction, ...]:
    """The ways back that a kind has."""
    return tuple(direction for name, direction in SIGNATURES if name == kind and direction != "forward")


def computes(engine: Engine, data_type: str) -> bool:
    """Whether a library computes in a type on this processor at all: it does not in bf16 before AVX-512."""
    desc = MemoryDesc((2, 16), data_type)
    relu: Mapping[str, Parameter] = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
    try:
        engine.create(Operation("eltwise", "forward_inference", {"src": desc, "dst": desc}, relu))
    except Unimplemented:
        return False
    return True
