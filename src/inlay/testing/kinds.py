"""Functions that draw descriptors of every kind, extras of int8 weights, and attributes of reorders.

Tests of serialization use them, since serialization must support every kind, and tests of reorders with attributes.

>>> from inlay.testing.choices import Seeded
>>> choose = Seeded(3)
>>> sorted({draw_any_descriptor(choose).kind for _ in range(300)})
['any', 'blocked', 'digits', 'host_scalar', 'opaque', 'sparse', 'undef']
>>> src, dst = MemoryDesc((4, 6), "f32"), MemoryDesc((4, 6), "s8", "ba")
>>> all(draw_attributes(choose, src, dst).src_zero_points is None for _ in range(100))
True
"""

import json
from typing import Any

from inlay.arguments import as_integer
from inlay.descriptor import Extras, MemoryDesc
from inlay.descriptor.extras import ASYMMETRIC_SRC, GPU, GPU_BACKWARD, GPU_SWAPPED, RNN_U8S8, S8S8, SCALE_ADJUST
from inlay.errors import InlayError
from inlay.layout import RUNTIME, Dims
from inlay.reordering.attributes import QUANTIZATION_TYPES, Attributes, Groups, QuantizationAttribute, ZeroPoints
from inlay.reordering.requirements import require_extras
from inlay.testing.cases import Scope, draw_any_kind
from inlay.testing.choices import Choices, check_arguments
from inlay.testing.drawing import draw_data_type, draw_descriptor, draw_shape, draw_tag, draw_tile_shape

_SCALES = (0.5, 0.25, 0.75, 1.0, 2.0**-20)
_SOURCES = ("kind", "kind", "layout", "layout", "layout", "flagged", "opaque", "view")


@check_arguments()
def draw_extras(choose: Choices, ndims: int, *, gpu: bool = False) -> Extras:
    """Draw extras of int8 weights: flags, masks of one or more of `ndims` axes, scale; GPU flags too if `gpu`."""
    as_integer("ndims", ndims, 1)
    flags = choose.integer(1, GPU - 1)
    if gpu:
        gpu_flags = (GPU, GPU | GPU_BACKWARD, GPU | GPU_BACKWARD | GPU_SWAPPED)
        flags = choose.pick((flags, flags, flags | GPU, *gpu_flags))
    return extras_of(choose, flags, ndims)


def extras_of(choose: Choices, flags: int, ndims: int) -> Extras:
    """Draw extras with these flags, and with the masks, scale and sizes that the flags require."""
    geometry = choose.pick(((), tuple(range(12)))) if flags & GPU else ()
    return Extras(
        flags,
        compensation_mask=choose.integer(1, 2**ndims - 1) if flags & (S8S8 | RNN_U8S8) else 0,
        scale_adjust=choose.pick(_SCALES) if flags & SCALE_ADJUST else 1.0,
        asymmetric_mask=choose.integer(1, 2**ndims - 1) if flags & ASYMMETRIC_SRC else 0,
        gpu_geometry=geometry,
        gpu_nbytes=4 * choose.integer(0, 99) if flags & GPU else 0,
    )


@check_arguments()
def draw_flagged(choose: Choices, *, gpu: bool = False) -> MemoryDesc:
    """Draw a descriptor with a layout and extras."""
    desc = draw_descriptor(choose)
    layout, data_type = desc.require_layout("extras")
    extras = draw_extras(choose, desc.ndims, gpu=gpu)
    # Some views of 4-bit elements have strides that no constructor accepts: from_layout then gives the zero descriptor,
    # and the view is returned without extras.
    flagged = MemoryDesc.from_layout(
        layout, data_type, dims=desc.dims, offset0=desc.offset0, extras=extras, allow_empty=True
    )
    return desc if flagged.is_zero else flagged


@check_arguments()
def draw_any_descriptor(choose: Choices) -> MemoryDesc:
    """Draw a descriptor of any kind: any layout, with extras, with RUNTIME dims and strides, opaque, and views."""
    match choose.pick(_SOURCES):
        case "kind":
            return draw_any_kind(choose, Scope(huge=False))
        case "layout":
            return draw_descriptor(choose, broadcast=True)
        case "flagged":
            return draw_flagged(choose, gpu=True)
        case "opaque":
            opaque = {"name": choose.pick(("wino", "rnn_packed")), "nbytes": choose.integer(0, 2**40)}
            header = {"inlay": "memory_desc", "version": 1, "kind": "opaque", "data_type": draw_data_type(choose).name}
            return MemoryDesc.from_json(json.dumps({**header, "dims": draw_shape(choose), **opaque}))
        case _:
            return _draw_view(choose, draw_descriptor(choose, broadcast=True))


def _draw_view(choose: Choices, desc: MemoryDesc) -> MemoryDesc:
    """Draw a view of `desc`: halve some axes, permute the axes and insert axes of dim 1, as far as possible."""
    half = tuple(dim // 2 if dim > 1 and choose.pick((True, False)) else dim for dim in desc.dims)
    try:
        desc = desc.submemory(half, (0,) * desc.ndims)
        desc = desc.permute_axes(choose.shuffled(range(desc.ndims)))
        return desc.reshape((1, *desc.dims, 1))
    except InlayError:
        return desc


@check_arguments()
def draw_unbound(choose: Choices) -> tuple[MemoryDesc, MemoryDesc, str]:
    """Draw a descriptor with RUNTIME dims, the descriptor with these dims bound, and the tag of both."""
    while True:
        known = draw_shape(choose)
        tag = draw_tag(choose, len(known))
        dims = tuple(RUNTIME if choose.pick((True, False)) else dim for dim in known)
        data_type = draw_data_type(choose)
        bound = MemoryDesc(known, data_type, tag, allow_empty=True)
        # Tags with odd strides have no descriptor of a 4-bit type, because two elements share a byte.
        if not bound.is_zero:
            return MemoryDesc(dims, data_type, tag), bound, str(tag)


_EITHER = (False, True)
_BOTH = S8S8 | ASYMMETRIC_SRC
_WEIGHT_FLAGS = (
    *(S8S8, ASYMMETRIC_SRC, _BOTH),
    *(SCALE_ADJUST, S8S8 | SCALE_ADJUST, ASYMMETRIC_SRC | SCALE_ADJUST, _BOTH | SCALE_ADJUST),
)


@check_arguments()
def draw_attributes(choose: Choices, src: MemoryDesc, dst: MemoryDesc) -> Attributes:
    """Draw attributes, possibly none, that a reorder between these descriptors accepts (`inlay.testing.attributes`)."""
    fields: dict[str, Any] = {}
    for name, kind in QUANTIZATION_TYPES.items():
        _, data_type = (src if name.startswith("src") else dst).require_layout(name)
        if (kind is not ZeroPoints or data_type.kind != "float") and choose.pick(_EITHER):
            least_mask = int(name == "src_scales" and data_type.name in ("s4", "u4"))
            fields[name] = _draw_entry(choose, name, kind, src.dims, least_mask)
    if choose.pick((False, False, True)):
        fields["sum"] = choose.pick((1.0, 0.5, -3.0))
    return Attributes(**fields, rounding_mode=choose.pick(("nearest", "nearest", "nearest", "stochastic")))


def _draw_entry(
    choose: Choices, name: str, kind: type[QuantizationAttribute], dims: Dims, least_mask: int
) -> QuantizationAttribute:
    """Draw scales or zero points; those of the source may have groups, zero points of the destination are s32."""
    mask = choose.integer(least_mask, 2 ** len(dims) - 1)
    groups: Groups = ()
    if name.startswith("src") and len(dims) > 1 and choose.pick(_EITHER):
        mask |= 3 << len(dims) - 2
        groups = (_draw_divisor(choose, dims[-2]), _draw_divisor(choose, dims[-1]))
    if name == "dst_zero_points":
        return kind(mask)
    # The last two of TYPES, s4 and u4, require a mask other than 0.
    return kind(mask, groups, choose.pick(kind.TYPES if mask else kind.TYPES[:-2]))


def _draw_divisor(choose: Choices, n: int) -> int:
    """Draw a divisor of `n`; of 0, draw 1 or 2."""
    return choose.pick([size for size in range(1, max(n, 2) + 1) if n % size == 0])


@check_arguments()
def draw_weight_problem(choose: Choices, *, large: bool = False) -> tuple[MemoryDesc, MemoryDesc]:
    """Draw a source, and int8 weights of the same dims with compensation: see `inlay.testing.weight_problems`."""
    dims = draw_tile_shape(choose) if large else draw_shape(choose)
    src = draw_descriptor(choose, dims, broadcast=True)
    extras = extras_of(choose, choose.pick(_WEIGHT_FLAGS), len(dims))
    layout, data_type = draw_descriptor(choose, dims, "s8").require_layout("weights")
    try:
        weights = MemoryDesc.from_layout(layout, data_type, dims=dims, extras=extras)
        require_extras(src, weights)
    except InlayError:
        # A layout with a partial block or gaps has no place for the compensation behind it: use dense weights instead.
        return src, MemoryDesc(dims, "s8", extras=extras)
    return src, weights
