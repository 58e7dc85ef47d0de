"""What a reorder computes on the way, as functions of `Choices`: attributes, and int8 weights with compensation.

>>> from inlay.testing.choices import Seeded
>>> src, dst = MemoryDesc((4, 6), "f32"), MemoryDesc((4, 6), "s8", "ba")
>>> choose = Seeded(1)
>>> all(draw_attributes(choose, src, dst).src_zero_points is None for _ in range(100))
True
"""

from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.layout import Dims
from inlay.reordering.attributes import ENTRIES, Attributes, Entry, Groups, ZeroPoints
from inlay.reordering.compensated import require_extras
from inlay.testing.checked import checked
from inlay.testing.choices import Choices
from inlay.testing.drawing import draw_descriptor, draw_shape, draw_tile_shape
from inlay.testing.kinds import extras_of

_EITHER = (False, True)
_FLAGS = (1, 8, 9, 2, 3, 10, 11)


@checked()
def draw_attributes(choose: Choices, src: MemoryDesc, dst: MemoryDesc) -> Attributes:
    """Any attributes that a reorder between these descriptors can have, none of them included: see `attributes`."""
    found: dict[str, Any] = {}
    for name, kind in ENTRIES.items():
        _, data_type = (src if name.startswith("src") else dst).require_layout(name)
        if (kind is not ZeroPoints or data_type.kind != "float") and choose.pick(_EITHER):
            least_mask = int(name == "src_scales" and data_type.name in ("s4", "u4"))
            found[name] = _entry(choose, name, kind, src.dims, least_mask)
    if choose.pick((False, False, True)):
        found["sum"] = choose.pick((1.0, 0.5, -3.0))
    return Attributes(**found, rounding_mode=choose.pick(("nearest", "nearest", "nearest", "stochastic")))


def _entry(choose: Choices, name: str, kind: type[Entry], dims: Dims, least_mask: int) -> Entry:
    """Scales or zero points: those of the source in groups too, and zero points of the destination s32."""
    mask = choose.integer(least_mask, 2 ** len(dims) - 1)
    groups: Groups = ()
    if name.startswith("src") and len(dims) > 1 and choose.pick(_EITHER):
        mask |= 3 << len(dims) - 2
        groups = (_divisor(choose, dims[-2]), _divisor(choose, dims[-1]))
    if name == "dst_zero_points":
        return kind(mask)
    # The last two types need a mask.
    return kind(mask, groups, choose.pick(kind.TYPES if mask else kind.TYPES[:-2]))


def _divisor(choose: Choices, n: int) -> int:
    return choose.pick([size for size in range(1, max(n, 2) + 1) if n % size == 0])


@checked()
def draw_weight_problem(choose: Choices, *, large: bool = False) -> tuple[MemoryDesc, MemoryDesc]:
    """A source, and int8 weights of equal dims with extras that a reorder computes: see `weight_problems`."""
    dims = draw_tile_shape(choose) if large else draw_shape(choose)
    src = draw_descriptor(choose, dims, broadcast=True)
    extras = extras_of(choose, choose.pick(_FLAGS), len(dims))
    layout, data_type = draw_descriptor(choose, dims, "s8").require_layout("weights")
    try:
        weights = MemoryDesc.from_layout(layout, data_type, dims=dims, extras=extras)
        require_extras(src, weights)
    except InlayError:
        # A part of a block, or gaps: elements would lie where their sums are kept.
        return src, MemoryDesc(dims, "s8", extras=extras)
    return src, weights
