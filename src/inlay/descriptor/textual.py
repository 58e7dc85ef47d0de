"""Descriptors as text: oneDNN's notation of its verbose log.

    f32:p:blocked:aBcd8b::f0
    |   | |       |      |+-- extra flags and what they need: f9:s8m1:zpm1
    |   | |       |      +--- strides, where the layout has gaps: 8x1
    |   | |       +---------- axes outermost first by stride, upper case if blocked, then the inner blocks; * if RUNTIME
    |   | +------------------ kind
    |   +-------------------- a: any had been said; p: some axis is padded; 0: the first element is not at offset 0
    +------------------------ data type

Axes are placed by stride alone, so the letters are not always a tag that creates the descriptor: nhwc with all dims
1 prints `abcd`. A layout in a digit order that no tag can say prints its digits per axis, `(2,512)(4,4)(32,16)`.

Source: oneDNN, `md2fmt_str`.
"""

from collections.abc import Sequence
from math import prod
from typing import assert_never

from inlay.data_type import DataType
from inlay.descriptor import kinds
from inlay.descriptor.extras import Extras
from inlay.descriptor.queries import layout_size
from inlay.format_tag import LETTERS
from inlay.layout import RUNTIME, Dims, Layout

Blocks = tuple[tuple[int, int], ...]

ZERO = "undef::undef:::"
"""The zero descriptor."""


def descriptor_text(
    dims: Dims,
    data_type: DataType,
    placement: kinds.Placement,
    offset0: int,
    blocks: Blocks | None,
    extras: Extras,
    *,
    was_any: bool = False,
) -> str:
    """The text of a descriptor with at least one dim; `blocks` is None for free digit orders."""
    chosen = "a" if was_any else ""
    match placement:
        case kinds.Undefined():
            return ZERO
        case kinds.Any():
            return f"{data_type}:{chosen}:any:any::f0"
        case Layout():
            flags = chosen + ("p" if placement.dims != dims else "") + ("0" if offset0 else "")
            kind = "digits" if blocks is None else "blocked"
            letters = _digits(placement) if blocks is None else _letters(placement, blocks)
            strides = _strides(dims, placement, data_type, blocks, extras)
            return f"{data_type}:{flags}:{kind}:{letters}:{strides}:{extras}"
        case kinds.Opaque():
            return f"{data_type}:{chosen}:{placement.name}:::f0"
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            return f"{data_type}:{chosen}:sparse:{placement.encoding}::f0"
        case kinds.HostScalar():
            # The padded dims of a host scalar are 0, unlike its dims.
            return f"{data_type}:{chosen}p:host_scalar:::f0"
    assert_never(placement)


def number(value: int) -> str:
    """A dim or stride, `*` for RUNTIME."""
    return "*" if value == RUNTIME else str(value)


def crossed(values: Sequence[int]) -> str:
    """Dims as oneDNN prints them.

    >>> crossed((2, 17, RUNTIME))
    '2x17x*'
    """
    return "x".join(map(number, values))


def _letters(layout: Layout, blocks: Blocks) -> str:
    if any(axis.stride == RUNTIME for axis in layout.axes):
        return "*"

    def place(i: int) -> tuple[int, int, int]:
        axis, dim = layout.axes[i], layout.dims[i]
        # As oneDNN: unsigned, so that stride 0 sorts outermost.
        return (-((axis.stride - 1) % 2**64), -(dim // axis.block), i)

    letters = ""
    for i in sorted(range(layout.ndims), key=place):
        letters += LETTERS[i].upper() if layout.axes[i].block > 1 else LETTERS[i]
    return letters + "".join(f"{size}{LETTERS[i]}" for i, size in blocks)


def _digits(layout: Layout) -> str:
    return "x".join("".join(f"({number(d.extent)},{number(d.stride)})" for d in digits) for digits in layout.digits)


def _strides(dims: Dims, layout: Layout, data_type: DataType, blocks: Blocks | None, extras: Extras) -> str:
    if blocks is None or layout.has_runtime:
        return ""
    strides = [axis.stride for axis in layout.axes]
    # As oneDNN: without the buffers behind the elements, but with the bytes that align them.
    nbytes = extras.start(layout_size(dims, layout, data_type, blocks))
    # Integer halving, so an odd number of 4-bit elements counts as not dense.
    dense = prod(layout.dims) * data_type.itemsize // (2 if data_type.is_sub_byte else 1) == nbytes
    return "" if dense and 0 not in strides else crossed(strides)
