"""The table of primitives: which arguments each takes and writes, and by which parameters it is told what to do.

One row for each (kind, direction), in the names of oneDNN's specification. What treats primitives alike reads
it: the checks before an engine is asked, the engine's call of its library, the reference, the documentation.

>>> SIGNATURES["convolution", "backward_weights"].reads
('src', 'diff_dst')
>>> SIGNATURES["convolution", "backward_weights"].writes
('diff_weights', 'diff_bias')

Source: oneAPI specification, "Primitives"; `dnnl.h`, the functions `dnnl_*_primitive_desc_create`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["forward", "backward", "backward_data", "backward_weights"]
PropKind: TypeAlias = Literal[
    "forward_inference", "forward_training", "backward", "backward_data", "backward_weights", "backward_bias"
]


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments and parameters of one primitive in one direction."""

    reads: tuple[str, ...]
    """Arguments that the primitive reads, in the order of oneDNN's creator."""
    writes: tuple[str, ...]
    """Arguments that it writes."""
    parameters: tuple[str, ...] = ()
    """Names of what it is told besides descriptors, in the order of oneDNN's creator."""
    optional: frozenset[str] = frozenset()
    """Arguments that may be left out."""
    free: frozenset[str] = frozenset()
    """Arguments whose format may be `any`: the specification's table of propagation."""
    sparse: frozenset[str] = frozenset()
    """Arguments that may be sparse."""


WEIGHTED = ("convolution", "deconvolution", "inner_product", "matmul")
"""Kinds that multiply by weights."""
RECURRENT = ("vanilla_rnn", "lstm", "gru", "lbr_gru", "augru", "lbr_augru")
"""Kinds of recurrent networks."""


def _signature(reads: str, writes: str, parameters: str = "", free: str = "") -> Signature:
    """A row; `?` marks an argument that may be left out."""
    optional = frozenset(name[:-1] for name in f"{reads} {writes}".split() if name.endswith("?"))
    names = [tuple(name.rstrip("?") for name in text.split()) for text in (reads, writes, parameters, free)]
    return Signature(names[0], names[1], names[2], optional, frozenset(names[3]))


def _weighted(parameters: str) -> dict[Direction, Signature]:
    """The three directions of what multiplies by weights: compute-intensive, so every format may be free."""
    return {
        "forward": _signature("src weights bias?", "dst", parameters, "src weights bias dst"),
        "backward_data": _signature("diff_dst weights", "diff_src", parameters, "diff_dst weights diff_src"),
        "backward_weights": _signature(
            "src diff_dst", "diff_weights diff_bias?", parameters, "src diff_dst diff_weights diff_bias"
        ),
    }


def _product() -> Signature:
    """A product of matrices, one of which may be sparse."""
    row = _signature("src weights bias?", "dst", "", "src weights bias dst")
    return replace(row, sparse=frozenset(("src", "weights")))


def _mapped(parameters: str, kept: str = "", workspace: str = "") -> dict[Direction, Signature]:
    """Forward and backward of what maps one tensor to one; `kept` is what backward reads besides diff_dst."""
    return {
        "forward": _signature("src", f"dst {workspace}", parameters, "dst"),
        "backward": _signature(f"{kept} diff_dst {workspace}", "diff_src", parameters, "diff_dst diff_src"),
    }


def _normalization(parameters: str) -> dict[Direction, Signature]:
    """Forward and backward of what is brought to mean 0 and variance 1.

    Statistics are read with the flag `use_global_stats`, else written in training and neither in inference.
    """
    return {
        "forward": _signature("src mean? variance? scale? shift?", "dst mean? variance? workspace?", parameters, "dst"),
        "backward": _signature(
            "src mean variance scale? diff_dst workspace?",
            "diff_src diff_scale? diff_shift?",
            parameters,
            "diff_dst diff_src diff_src_1",
        ),
    }


def _recurrent(parameters: str, reads: str, writes: str) -> dict[Direction, Signature]:
    """Forward and backward of a recurrent network; backward reads all of forward, writes a gradient of each read."""
    forward = _signature(reads, f"{writes} workspace?", parameters)
    diff_reads, diff_writes = (" ".join(f"diff_{name}" for name in text.split()) for text in (writes, reads))
    backward = _signature(f"{reads} {writes} {diff_reads} workspace", diff_writes, parameters)
    return {
        "forward": replace(forward, free=_all_but_workspace(forward)),
        "backward": replace(backward, free=_all_but_workspace(backward)),
    }


def _all_but_workspace(row: Signature) -> frozenset[str]:
    return frozenset(row.reads + row.writes) - {"workspace"}


_WINDOW = "algorithm strides dilations padding_l padding_r"
_LAYER = "src_layer src_iter?"
_WEIGHTS = "weights_layer weights_iter"

_TABLE: Mapping[str, Mapping[Direction, Signature]] = {
    "convolution": _weighted(_WINDOW),
    "deconvolution": _weighted(_WINDOW),
    "inner_product": {**_weighted(""), "forward": _product()},
    "matmul": {"forward": _product()},
    "vanilla_rnn": _recurrent(
        "activation direction flags alpha beta", f"{_LAYER} {_WEIGHTS} bias?", "dst_layer dst_iter?"
    ),
    "lstm": _recurrent(
        "direction flags",
        f"{_LAYER} src_iter_c? {_WEIGHTS} weights_peephole? weights_projection? bias?",
        "dst_layer dst_iter? dst_iter_c?",
    ),
    "gru": _recurrent("direction flags", f"{_LAYER} {_WEIGHTS} bias?", "dst_layer dst_iter?"),
    "lbr_gru": _recurrent("direction flags", f"{_LAYER} {_WEIGHTS} bias?", "dst_layer dst_iter?"),
    "augru": _recurrent("direction flags", f"{_LAYER} attention {_WEIGHTS} bias?", "dst_layer dst_iter?"),
    "lbr_augru": _recurrent("direction flags", f"{_LAYER} attention {_WEIGHTS} bias?", "dst_layer dst_iter?"),
    "pooling": _mapped("algorithm strides kernel dilations padding_l padding_r", workspace="workspace?"),
    "batch_normalization": _normalization("epsilon flags"),
    "layer_normalization": _normalization("epsilon flags"),
    "group_normalization": _normalization("groups epsilon flags"),
    "lrn": _mapped("algorithm local_size alpha beta k", kept="src", workspace="workspace?"),
    "eltwise": _mapped("algorithm alpha beta", kept="src? dst?"),
    "shuffle": _mapped("axis group_size"),
    "softmax": _mapped("algorithm axis", kept="dst"),
    "prelu": {
        "forward": _signature("src weights", "dst", "", "weights dst"),
        "backward": _signature(
            "src weights diff_dst", "diff_src diff_weights", "", "weights diff_dst diff_src diff_weights"
        ),
    },
    "resampling": _mapped("algorithm factors"),
    "reduction": {"forward": _signature("src", "dst", "algorithm p eps", "dst")},
    "reorder": {"forward": replace(_signature("src", "dst", "", ""), sparse=frozenset(("src", "dst")))},
    "concat": {"forward": _signature("src_0", "dst", "axis", "dst")},
    "sum": {"forward": _signature("src_0", "dst", "scales", "dst")},
    "binary": {"forward": _signature("src_0 src_1 src_2?", "dst", "algorithm", "dst")},
}

SIGNATURES: Mapping[tuple[str, Direction], Signature] = MappingProxyType(
    {(kind, direction): row for kind, rows in _TABLE.items() for direction, row in rows.items()}
)
"""Each primitive in each direction. `src_0` of concat and sum stands for src_0, src_1, and so on."""

KINDS = tuple(_TABLE)
"""The names of the primitives, as in oneDNN's creators."""
