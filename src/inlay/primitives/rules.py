"""The signatures of primitives, and the rules that all kinds share: descriptors, axes, dims, formats that may be any.

`SIGNATURES` has one row for each (kind, direction), in the names of oneDNN's specification: what is read, what is
written, the parameters. What treats primitives alike reads it: the checks before an engine is asked, the engine's call
of its library, the reference engine, the documentation.

>>> SIGNATURES["convolution", "backward_weights"].reads
('src', 'diff_dst')
>>> SIGNATURES["convolution", "backward_weights"].writes
('diff_weights', 'diff_bias')

Rules are applied before an engine is asked, so a mistake has the same text whichever engine computes. Each error names
the primitive, the argument, what is wrong with it and what to give:

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


_FORMATS = ("blocked", "digits", "any", "opaque")
_OTHER_KINDS = {
    "undef": "is the zero descriptor: leave it out, or describe its tensor",
    "sparse": "is sparse, as only src and weights of MatMul and InnerProduct and both sides of Reorder may be: "
    "describe the result of inlay.to_dense",
    "host_scalar": "is a host scalar: primitives take tensors, describe it with dims and a format",
}


def desc_of(place: str, name: str, value: Any, *, sparse: bool = False) -> MemoryDesc:
    """`value`, which must be the descriptor of a dense tensor with known dims; `place` begins the message.

    With `sparse` it may be a sparse one, too.

    Raises:
        InvalidArguments: it is no descriptor, a host scalar, the zero descriptor, sparse where it may not be, or of a
            type that only moves.
        Unimplemented: a dim or stride is RUNTIME.
    """
    if not isinstance(value, MemoryDesc):
        if isinstance(value, Memory):
            raise InvalidArguments(f"{place}: {name} is memory: give its descriptor, its `desc`")
        raise InvalidArguments(
            f"{place}: {name} is {shown(value)}: give a MemoryDesc, such as MemoryDesc((2, 16, 8, 8), 'f32', 'any')"
        )
    if value.kind not in _FORMATS and not (sparse and value.kind == "sparse"):
        raise InvalidArguments(f"{place}: {name} {_OTHER_KINDS[value.kind]}")
    if not type_of(value).is_number:
        raise InvalidArguments(
            f"{place}: {name} is {value.data_type}, which only moves: primitives compute with numbers; inlay.reorder "
            "moves it"
        )
    if value.has_runtime:
        raise Unimplemented(f"{place}: {name} is {value!r}: bind what is RUNTIME, as in desc.bind((2, 16, 8, 8))")
    return value


def type_of(desc: MemoryDesc) -> DataType:
    """The data type of a descriptor that `desc_of` has passed."""
    assert desc.data_type is not None
    return desc.data_type


def require_free(place: str, descs: Mapping[str, MemoryDesc], free: frozenset[str]) -> None:
    """Refuse `any` for arguments that the specification gives a format.

    Raises:
        InvalidArguments: a descriptor of another argument is `any`.
    """
    for name, desc in descs.items():
        if desc.kind == "any" and name not in free:
            may = ", ".join(sorted(free & descs.keys())) or "none"
            raise InvalidArguments(
                f"{place}: {name} has the format any, which here may have: {may}. Give {name} the format in which it "
                "arrives, as the dst_desc of the primitive before"
            )


def require_distinct(place: str, name: str, desc: MemoryDesc) -> None:
    """Refuse what is written with two elements in one place.

    Raises:
        InvalidArguments: elements overlap.
        Unimplemented: strides interleave, so that it cannot be told.
    """
    if _overlaps(desc):
        raise InvalidArguments(
            f"{place}: {name} {desc!r} is written, and elements of it overlap: give every element a place of its own"
        )


@lru_cache(maxsize=4096)
def _overlaps(desc: MemoryDesc) -> bool:
    """Whether two elements have one place; remembered, since the same destinations come again and again."""
    layout = desc.layout
    return isinstance(layout, Layout) and not layout.is_non_overlapping and layout.overlaps


IMAGE_AXES = "batch, channels and one to three spatial axes"
"""The axes of an image, for `require_ndims`."""


def require_ndims(place: str, name: str, desc: MemoryDesc, least: int, most: int, axes: str) -> None:
    """Refuse a descriptor with too few or too many axes.

    Raises:
        InvalidArguments: so it is; `axes` says what they are.
    """
    if not least <= desc.ndims <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise InvalidArguments(f"{place}: {name} {desc.dims} has {axes_of(desc.ndims)}, it takes {count}: {axes}")


def axes_of(count: int) -> str:
    """A number of axes in words."""
    return f"{count} axis" if count == 1 else f"{count} axes"


def require_one_sparse(place: str, src: MemoryDesc, weights: MemoryDesc) -> None:
    """Refuse a product of two sparse tensors.

    Raises:
        Unimplemented: both are sparse.
    """
    if src.kind == weights.kind == "sparse":
        raise Unimplemented(
            f"{place}: src and weights are sparse, and products have one sparse factor: describe the result of "
            "inlay.to_dense for the other"
        )


def require_dims(place: str, name: str, desc: MemoryDesc, dims: Dims, why: str) -> None:
    """Refuse other dims than those that follow from the other arguments.

    Raises:
        InvalidArguments: so it is; `why` says from what they follow.
    """
    if desc.dims != dims:
        raise InvalidArguments(f"{place}: {name} has dims {desc.dims}, {why} give {dims}: describe it with these")


def settled(
    place: str,
    name: str,
    given: MemoryDesc | None,
    dims: Dims,
    data_type: DataType,
    why: str,
    format: str = "any",
    *,
    sparse: bool = False,
) -> MemoryDesc:
    """The descriptor `given`, whose dims must be `dims`, or a new one of that format.

    Raises:
        InvalidArguments, Unimplemented: as `desc_of` and `require_dims`.
    """
    if given is None:
        return MemoryDesc(dims, data_type, format)
    require_dims(place, name, desc_of(place, name, given, sparse=sparse), dims, why)
    return given


def src_and_dst(place: str, src: MemoryDesc, dst: MemoryDesc | None) -> dict[str, MemoryDesc]:
    """The descriptors of a primitive whose destination has the dims of its source, and its type if it is left out.

    Raises:
        InvalidArguments, Unimplemented: as `settled`.
    """
    return {"src": src, "dst": settled(place, "dst", dst, src.dims, type_of(src), f"src {src.dims}")}


def integer(place: str, name: str, value: Any, least: int) -> int:
    """`value`, an integer of at least `least` and of 64 bits; a truth value is none.

    Raises:
        InvalidArguments: it is something else.
    """
    number = integer_or_none(value)
    if number is None:
        raise InvalidArguments(f"{place}: {name} is {shown(value)}: give an integer")
    if number < least:
        raise InvalidArguments(f"{place}: {name} is {shown(number)}: it is at least {least}")
    if number > _LARGEST_INTEGER:
        raise InvalidArguments(f"{place}: {name} is {shown(number)}: it is at most {_LARGEST_INTEGER}")
    return number


def is_sequence(value: object) -> bool:
    """Return whether a value has entries in an order: text, sets and mappings do not count.

    >>> [is_sequence(value) for value in ((1, 2), {1, 2}, "12", 12)]
    [True, False, False, False]
    """
    has_order = isinstance(value, Iterable) and not isinstance(value, (Set, Mapping, str, bytes, bytearray))
    return has_order and getattr(value, "shape", None) != ()


_LARGEST_INTEGER = 2**63 - 1
_NO_NUMBERS = (str, bytes, bytearray, bool, np.bool_, np.ma.MaskedArray)
_GREATEST_F32 = float(np.finfo(np.float32).max)


def _is_no_scalar(value: object) -> bool:
    """Return whether a value is an array with axes, or a complex number, whose imaginary part NumPy would drop."""
    is_complex = isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "c"
    return is_complex or getattr(value, "shape", ()) != ()


def number(place: str, name: str, value: Any, least: float | None = None) -> float:
    """`value`, a finite number that f32 can hold, as a float; text and truth values are none.

    Raises:
        InvalidArguments: it is something else, or less than `least`.
    """
    try:
        found = None if isinstance(value, _NO_NUMBERS) or _is_no_scalar(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None:
        raise InvalidArguments(f"{place}: {name} is {shown(value)}: give a number")
    if not isfinite(found):
        raise InvalidArguments(f"{place}: {name} is {found}: give a finite number")
    if abs(found) > _GREATEST_F32:
        raise InvalidArguments(f"{place}: {name} is {found}: give a number that f32 can hold, up to {_GREATEST_F32:g}")
    if least is not None and found < least:
        raise InvalidArguments(f"{place}: {name} is {found:g}: it is at least {least:g}")
    return found


_Name = TypeVar("_Name", bound=str)


def choice(place: str, name: str, value: Any, choices: Iterable[_Name]) -> _Name:
    """`value`, one of the names in `choices`.

    Raises:
        InvalidArguments: it is something else; the nearest names are said.
    """
    known = tuple(choices)
    if isinstance(value, str) and value in known:
        return known[known.index(value)]
    raise InvalidArguments(f"{place}: {name} is {shown(value)}: give one of {', '.join(known)}")


def axis_of(place: str, name: str, value: Any, ndims: int) -> int:
    """`value`, one of the axes 0 to `ndims` - 1.

    Raises:
        InvalidArguments: it is something else.
    """
    axis = integer(place, name, value, -(2**63))
    if not 0 <= axis < ndims:
        raise InvalidArguments(f"{place}: {name} is {axis}: the tensor has axes 0 to {ndims - 1}")
    return axis


def flags_of(place: str, value: Any, known: tuple[str, ...]) -> frozenset[str]:
    """The names of flags that `value`, a collection of them or one name, holds.

    Raises:
        InvalidArguments: it is no collection, or a name is none of `known`.
    """
    if not isinstance(value, Set) and not isinstance(value, str) and not is_sequence(value):
        raise InvalidArguments(f"{place}: flags are {shown(value)}: give names of {', '.join(known)}")
    return frozenset(choice(place, "flag", name, known) for name in ((value,) if isinstance(value, str) else value))


def broadcast(place: str, names: tuple[str, str], first: Dims, second: Dims) -> Dims:
    """The dims of an operation between two tensors, each of which is repeated along axes where it has 1.

    Raises:
        InvalidArguments: they have not equally many axes, or an axis has two extents neither of which is 1.
    """
    if len(first) != len(second):
        raise InvalidArguments(
            f"{place}: {names[0]} {first} has {axes_of(len(first))}, {names[1]} {second} has {len(second)}: give both "
            "as many, with dims of 1 where one is repeated"
        )
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        if a != b and 1 not in (a, b):
            raise InvalidArguments(
                f"{place}: axis {i} of {names[0]} {first} has {a} coordinates, that of {names[1]} {second} has {b}: "
                "make them equal, or one of them 1"
            )
    return tuple(b if a == 1 else a for a, b in zip(first, second, strict=True))
