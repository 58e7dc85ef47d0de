"""The signatures of primitives, and the argument checks that all kinds share.

`SIGNATURES` has one row for each (kind, direction): the arguments that are read, those that are written, and the
parameters, all by the names of the specification. Code that treats all primitives alike is driven by this table: the
argument checks, the calls of oneDNN, the reference engine and the tests.

>>> SIGNATURES["convolution", "backward_weights"].reads
('src', 'diff_dst')
>>> SIGNATURES["convolution", "backward_weights"].writes
('diff_weights', 'diff_bias')

The checks run before an engine is called, so an error has the same text whichever engine computes. It names the
primitive, the argument, the mistake and the remedy:

    Convolution: axis 1 of weights (32, 3, 3, 3) has 3 input channels, src (8, 4, 32, 32) has 4 in 1 group: ...

Source: oneAPI specification, "Primitives" and "Memory format propagation"; `dnnl.h`, the functions
`dnnl_*_primitive_desc_create`.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from inlay.arguments import integer_or_none
from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout import Dims, Layout
from inlay.memory import Memory

Direction: TypeAlias = Literal["forward", "backward", "backward_data", "backward_weights"]
PropKind: TypeAlias = Literal[
    "forward_inference", "forward_training", "backward", "backward_data", "backward_weights", "backward_bias"
]
"""The purpose of a primitive (`dnnl_prop_kind_t`)."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments and parameters of one kind of primitive in one direction."""

    reads: tuple[str, ...]
    """Names of the arguments that the primitive reads, in the order of oneDNN's creation function."""
    writes: tuple[str, ...]
    """Names of the arguments that the primitive writes."""
    parameters: tuple[str, ...] = ()
    """Names of the parameters other than descriptors, in the order of oneDNN's creation function."""
    optional: frozenset[str] = frozenset()
    """Names of the arguments that the caller may leave out."""
    free: frozenset[str] = frozenset()
    """Names of the arguments whose format may be `any`, by the specification's table of format propagation."""
    sparse: frozenset[str] = frozenset()
    """Names of the arguments that may be sparse."""


WEIGHTED = ("convolution", "deconvolution", "inner_product", "matmul")
"""Kinds of primitives that multiply by weights."""
RECURRENT = ("vanilla_rnn", "lstm", "gru", "lbr_gru", "augru", "lbr_augru")
"""Kinds of recurrent networks."""


def _signature(reads: str, writes: str, parameters: str = "", free: str = "") -> Signature:
    """Return a row of the table from lists of names separated by spaces; `?` marks an optional argument."""
    optional = frozenset(name[:-1] for name in f"{reads} {writes}".split() if name.endswith("?"))
    names = [tuple(name.rstrip("?") for name in text.split()) for text in (reads, writes, parameters, free)]
    return Signature(names[0], names[1], names[2], optional, frozenset(names[3]))


def _weighted(parameters: str) -> dict[Direction, Signature]:
    """Return the three directions of a kind that multiplies by weights; every format may be `any`."""
    return {
        "forward": _signature("src weights bias?", "dst", parameters, "src weights bias dst"),
        "backward_data": _signature("diff_dst weights", "diff_src", parameters, "diff_dst weights diff_src"),
        "backward_weights": _signature(
            "src diff_dst", "diff_weights diff_bias?", parameters, "src diff_dst diff_weights diff_bias"
        ),
    }


def _product() -> Signature:
    """Return the forward row of a matrix product, whose src or weights may be sparse."""
    row = _signature("src weights bias?", "dst", "", "src weights bias dst")
    return replace(row, sparse=frozenset(("src", "weights")))


def _unary(parameters: str, forward_data: str = "", workspace: str = "") -> dict[Direction, Signature]:
    """Return both directions of a kind with one source and one destination.

    `forward_data` names the arguments of the forward primitive that the backward one reads.
    """
    return {
        "forward": _signature("src", f"dst {workspace}", parameters, "dst"),
        "backward": _signature(f"{forward_data} diff_dst {workspace}", "diff_src", parameters, "diff_dst diff_src"),
    }


def _normalization(parameters: str) -> dict[Direction, Signature]:
    """Return both directions of batch, layer or group normalization.

    Forward, mean and variance are in both lists: they are read with the flag `use_global_stats`; without it they are
    written in training, and absent in inference.
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
    """Return both directions of a recurrent network.

    Backward reads every argument of forward and the gradients of what forward writes; it writes a gradient of each
    argument that forward reads.
    """
    forward = _signature(reads, f"{writes} workspace?", parameters)
    diff_reads, diff_writes = (" ".join(f"diff_{name}" for name in text.split()) for text in (writes, reads))
    backward = _signature(f"{reads} {writes} {diff_reads} workspace", diff_writes, parameters)
    return {
        "forward": replace(forward, free=_all_but_workspace(forward)),
        "backward": replace(backward, free=_all_but_workspace(backward)),
    }


def _all_but_workspace(row: Signature) -> frozenset[str]:
    """Return all arguments of a row except the workspace, whose format the engine defines."""
    return frozenset(row.reads + row.writes) - {"workspace"}


_WINDOW = "algorithm strides dilations padding_l padding_r"
_LAYER = "src_layer src_iter?"
_WEIGHTS = "weights_layer weights_iter"

_TABLE: dict[str, Mapping[Direction, Signature]] = {
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
    "pooling": _unary("algorithm strides kernel dilations padding_l padding_r", workspace="workspace?"),
    "batch_normalization": _normalization("epsilon flags"),
    "layer_normalization": _normalization("epsilon flags"),
    "group_normalization": _normalization("groups epsilon flags"),
    "lrn": _unary("algorithm local_size alpha beta k", forward_data="src", workspace="workspace?"),
    "eltwise": _unary("algorithm alpha beta", forward_data="src? dst?"),
    "shuffle": _unary("axis group_size"),
    "softmax": _unary("algorithm axis", forward_data="dst"),
    "prelu": {
        "forward": _signature("src weights", "dst", "", "weights dst"),
        "backward": _signature(
            "src weights diff_dst", "diff_src diff_weights", "", "weights diff_dst diff_src diff_weights"
        ),
    },
    "resampling": _unary("algorithm factors"),
    "reduction": {"forward": _signature("src", "dst", "algorithm p eps", "dst")},
    "reorder": {"forward": replace(_signature("src", "dst", "", ""), sparse=frozenset(("src", "dst")))},
    "concat": {"forward": _signature("src_0", "dst", "axis", "dst")},
    "sum": {"forward": _signature("src_0", "dst", "scales", "dst")},
    "binary": {"forward": _signature("src_0 src_1 src_2?", "dst", "algorithm", "dst")},
}

_INLAY_TABLE: dict[str, Mapping[Direction, Signature]] = {
    "dynamic_quantization": {"forward": _signature("src", "dst scale zero_point", "", "dst")},
    "cache_write": {"forward": _signature("src position", "dst", "axis")},
    "table_lookup": {"forward": _signature("src table", "dst", "", "dst")},
}

SIGNATURES: Mapping[tuple[str, Direction], Signature] = MappingProxyType(
    {(kind, direction): row for kind, rows in (_TABLE | _INLAY_TABLE).items() for direction, row in rows.items()}
)
"""The signature of each (kind, direction). `src_0` of concat and sum stands for src_0, src_1, and so on."""

KINDS = tuple(_TABLE)
"""The names of the kinds of the specification, as in oneDNN's creation functions."""
INLAY_KINDS = tuple(_INLAY_TABLE)
"""The names of the kinds that the specification lacks, which Inlay's own engines compute."""


_FORMATS = ("blocked", "digits", "any", "opaque")
_OTHER_KINDS = {
    "undef": "is the zero descriptor: leave it out, or describe its tensor",
    "sparse": "is sparse, as only src and weights of MatMul and InnerProduct and both sides of Reorder may be: "
    "describe the result of inlay.to_dense",
    "swizzled": "is swizzled, and no primitive reads swizzled memory: describe the result of a reorder without swizzle",
    "host_scalar": "is a host scalar: primitives take tensors, describe it with dims and a format",
}


def require_desc(primitive_name: str, name: str, value: Any, *, sparse: bool = False) -> MemoryDesc:
    """Check that `value` is a descriptor on which a primitive can compute, and return it.

    Args:
        primitive_name: class of the primitive; begins the error text. Every check of this module has this parameter.
        name: name of the argument.
        value: must be the descriptor of a dense tensor of numbers with known dims.
        sparse: the tensor may also be sparse.

    Raises:
        InvalidArguments: `value` is not a descriptor; or it is a host scalar, the zero descriptor, sparse where that
            is not supported, or of a type without arithmetic.
        Unimplemented: a dim or stride is RUNTIME.
    """
    if not isinstance(value, MemoryDesc):
        if isinstance(value, Memory):
            raise InvalidArguments(f"{primitive_name}: {name} is memory: give its descriptor, its `desc`")
        raise InvalidArguments(
            f"{primitive_name}: {name} is {shown(value)}: give a MemoryDesc, such as MemoryDesc((2, 16, 8, 8), 'f32', "
            "'any')"
        )
    if value.kind not in _FORMATS and not (sparse and value.kind == "sparse"):
        raise InvalidArguments(f"{primitive_name}: {name} {_OTHER_KINDS[value.kind]}")
    if not type_of(value).is_number:
        raise InvalidArguments(
            f"{primitive_name}: {name} is {value.data_type}, a type without arithmetic: only reorders support "
            "it, use inlay.reorder"
        )
    if value.has_runtime:
        raise Unimplemented(
            f"{primitive_name}: {name} is {value!r}: bind what is RUNTIME, as in desc.bind((2, 16, 8, 8))"
        )
    return value


def type_of(desc: MemoryDesc) -> DataType:
    """Return the data type of a descriptor that passed `require_desc`, which is never None."""
    assert desc.data_type is not None
    return desc.data_type


def require_any_allowed(primitive_name: str, descs: Mapping[str, MemoryDesc], free: frozenset[str]) -> None:
    """Check that only arguments in `free` have the format `any`.

    Raises:
        InvalidArguments: another argument has the format `any`.
    """
    for name, desc in descs.items():
        if desc.kind == "any" and name not in free:
            may = ", ".join(sorted(free & descs.keys())) or "none"
            raise InvalidArguments(
                f"{primitive_name}: {name} has the format any, which is allowed for: {may}. Give {name} a "
                "concrete format, such as the dst_desc of the previous primitive"
            )


def require_non_overlapping(primitive_name: str, name: str, desc: MemoryDesc) -> None:
    """Check that a written tensor stores no two elements at the same address.

    Raises:
        InvalidArguments: elements overlap.
        Unimplemented: strides interleave in a way for which overlap cannot be decided.
    """
    if _overlaps(desc):
        raise InvalidArguments(
            f"{primitive_name}: {name} {desc!r} is written, and elements of it overlap: give every element its own "
            "address"
        )


@lru_cache(maxsize=4096)
def _overlaps(desc: MemoryDesc) -> bool:
    """Return whether two elements have the same address; cached, because destinations recur."""
    layout = desc.layout
    return isinstance(layout, Layout) and not layout.is_non_overlapping and layout.overlaps


IMAGE_AXES = "batch, channels and one to three spatial axes"
"""The axes of an image, for `require_ndims`."""


def require_ndims(primitive_name: str, name: str, desc: MemoryDesc, least: int, most: int, axes: str) -> None:
    """Check that a descriptor has `least` to `most` axes; `axes` describes them in the error text.

    Raises:
        InvalidArguments: it has fewer or more.
    """
    if not least <= desc.ndims <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise InvalidArguments(
            f"{primitive_name}: {name} {desc.dims} has {format_axis_count(desc.ndims)} instead of {count}: {axes}"
        )


def require_image_dst(primitive_name: str, dst: MemoryDesc | None, src: MemoryDesc) -> None:
    """Check that a destination that is present is a descriptor with as many axes as the source image.

    Raises:
        InvalidArguments, Unimplemented: as `require_desc` and `require_ndims`.
    """
    if dst is not None:
        desc = require_desc(primitive_name, "dst", dst)
        require_ndims(primitive_name, "dst", desc, src.ndims, src.ndims, IMAGE_AXES)


def require_bias(primitive_name: str, bias: MemoryDesc | None, channels: int) -> None:
    """Check that a bias that is present has one axis, with an element for each output channel.

    Raises:
        InvalidArguments, Unimplemented: as `require_desc` and `require_dims`.
    """
    if bias is not None:
        desc = require_desc(primitive_name, "bias", bias)
        require_dims(primitive_name, "bias", desc, (channels,), f"{channels} output channels")


def format_axis_count(count: int) -> str:
    """Return a number of axes as text: "1 axis", "2 axes"."""
    return f"{count} axis" if count == 1 else f"{count} axes"


def require_one_sparse(primitive_name: str, src: MemoryDesc, weights: MemoryDesc) -> None:
    """Check that at most one of the two factors is sparse.

    Raises:
        Unimplemented: both are sparse.
    """
    if src.kind == weights.kind == "sparse":
        raise Unimplemented(
            f"{primitive_name}: src and weights are sparse, and products have one sparse factor: describe the result "
            "of inlay.to_dense for the other"
        )


def require_dims(primitive_name: str, name: str, desc: MemoryDesc, dims: Dims, why: str) -> None:
    """Check that a descriptor has the dims that follow from other arguments.

    `why` names these arguments in the error text.

    Raises:
        InvalidArguments: the dims differ.
    """
    if desc.dims != dims:
        raise InvalidArguments(
            f"{primitive_name}: {name} has dims {desc.dims}, {why} give {dims}: describe it with these"
        )


def resolve_desc(
    primitive_name: str,
    name: str,
    desc: MemoryDesc | None,
    dims: Dims,
    data_type: DataType,
    why: str,
    format: str = "any",
    *,
    sparse: bool = False,
) -> MemoryDesc:
    """Return `desc` after checking that its dims are `dims`; or, if it is None, a new descriptor.

    The new descriptor has these dims, `data_type` and `format`. `why` names the arguments that imply the dims.

    Raises:
        InvalidArguments, Unimplemented: as `require_desc` and `require_dims`.
    """
    if desc is None:
        return MemoryDesc(dims, data_type, format)
    require_dims(primitive_name, name, require_desc(primitive_name, name, desc, sparse=sparse), dims, why)
    return desc


def same_shape_descs(primitive_name: str, src: MemoryDesc, dst: MemoryDesc | None) -> dict[str, MemoryDesc]:
    """Return the descriptors of a primitive whose destination has the dims of its source.

    A `dst` of None becomes a descriptor of the source's dims and type and of any format.

    Raises:
        InvalidArguments, Unimplemented: as `resolve_desc`.
    """
    return {"src": src, "dst": resolve_desc(primitive_name, "dst", dst, src.dims, type_of(src), f"src {src.dims}")}


def require_integer(primitive_name: str, name: str, value: Any, least: int) -> int:
    """Check that `value` is an integer from `least` to 2**63 - 1, and return it; a bool is not an integer here.

    Raises:
        InvalidArguments: it is not.
    """
    number = integer_or_none(value)
    if number is None:
        raise InvalidArguments(f"{primitive_name}: {name} is {shown(value)}: give an integer")
    if number < least:
        raise InvalidArguments(f"{primitive_name}: {name} is {shown(number)}: it is at least {least}")
    if number > _LARGEST_INTEGER:
        raise InvalidArguments(f"{primitive_name}: {name} is {shown(number)}: it is at most {_LARGEST_INTEGER}")
    return number


def is_sequence(value: object) -> bool:
    """Return whether a value is an ordered collection; text, sets, mappings and arrays without axes are not.

    >>> [is_sequence(value) for value in ((1, 2), {1, 2}, "12", 12)]
    [True, False, False, False]
    """
    has_order = isinstance(value, Iterable) and not isinstance(value, (Set, Mapping, str, bytes, bytearray))
    return has_order and getattr(value, "shape", None) != ()


_LARGEST_INTEGER = 2**63 - 1
_NO_NUMBERS = (str, bytes, bytearray, bool, np.bool_)
_GREATEST_F32 = float(np.finfo(np.float32).max)


def _is_no_scalar(value: object) -> bool:
    """Return whether a value is an array with axes or a mask, or a complex number of NumPy.

    `float` would convert an array of one element, and drop a mask and the imaginary part of a complex number.
    """
    is_complex = isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "c"
    return is_complex or getattr(value, "shape", ()) != () or hasattr(value, "mask")


def require_number(primitive_name: str, name: str, value: Any, least: float | None = None) -> float:
    """Check that `value` is a finite number in the range of f32, and return it as a float.

    Text and bools are not numbers here.

    Raises:
        InvalidArguments: it is not, or it is less than `least`.
    """
    try:
        real = None if isinstance(value, _NO_NUMBERS) or _is_no_scalar(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        real = None
    if real is None:
        raise InvalidArguments(f"{primitive_name}: {name} is {shown(value)}: give a number")
    if not isfinite(real):
        raise InvalidArguments(f"{primitive_name}: {name} is {real}: give a finite number")
    if abs(real) > _GREATEST_F32:
        raise InvalidArguments(
            f"{primitive_name}: {name} is {real}: give a number that f32 can hold, up to {_GREATEST_F32:g}"
        )
    if least is not None and real < least:
        raise InvalidArguments(f"{primitive_name}: {name} is {real:g}: it is at least {least:g}")
    return real


_Name = TypeVar("_Name", bound=str)


def require_choice(primitive_name: str, name: str, value: Any, choices: Iterable[_Name]) -> _Name:
    """Check that `value` is one of the names in `choices`, and return it.

    Raises:
        InvalidArguments: it is not; the text lists the names.
    """
    known = tuple(choices)
    if isinstance(value, str) and value in known:
        return known[known.index(value)]
    raise InvalidArguments(f"{primitive_name}: {name} is {shown(value)}: give one of {', '.join(known)}")


def require_axis(primitive_name: str, name: str, value: Any, ndims: int) -> int:
    """Check that `value` is an axis from 0 to `ndims` - 1, and return it.

    Raises:
        InvalidArguments: it is not.
    """
    axis = require_integer(primitive_name, name, value, -(2**63))
    if not 0 <= axis < ndims:
        raise InvalidArguments(f"{primitive_name}: {name} is {axis}: the tensor has axes 0 to {ndims - 1}")
    return axis


def require_flags(primitive_name: str, value: Any, known: tuple[str, ...]) -> frozenset[str]:
    """Return the set of flags in `value`, which is one name or a collection of names.

    Raises:
        InvalidArguments: it is neither, or a name is not in `known`.
    """
    if not isinstance(value, Set) and not isinstance(value, str) and not is_sequence(value):
        raise InvalidArguments(f"{primitive_name}: flags are {shown(value)}: give names of {', '.join(known)}")
    return frozenset(
        require_choice(primitive_name, "flag", name, known) for name in ((value,) if isinstance(value, str) else value)
    )


def broadcast_dims(primitive_name: str, names: tuple[str, str], first: Dims, second: Dims) -> Dims:
    """Return the dims of the result of broadcasting two tensors: one with a dim of 1 is repeated along that axis.

    Unlike in NumPy, both must have the same number of axes. `names` are those of the arguments.

    Raises:
        InvalidArguments: the numbers of axes differ, or an axis has two different extents, neither of which is 1.
    """
    if len(first) != len(second):
        raise InvalidArguments(
            f"{primitive_name}: {names[0]} {first} has {format_axis_count(len(first))}, {names[1]} {second} has "
            f"{len(second)}: give both as many, with dims of 1 where one is repeated"
        )
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        if a != b and 1 not in (a, b):
            raise InvalidArguments(
                f"{primitive_name}: axis {i} of {names[0]} {first} has {a} coordinates, that of {names[1]} {second} "
                f"has {b}: make them equal, or one of them 1"
            )
    return tuple(b if a == 1 else a for a, b in zip(first, second, strict=True))
