"""The padded computation of "Understanding Memory Formats": rounded dims, strides, sizes, and products with zeros.

A kernel that sums over a padded axis may sum over the padding as well: it is zero, so that the result is the same. For
17 channels in blocks of 8, a sum over c has 24 products, of which 7 are 0 * 0.

Source: oneDNN, "Understanding Memory Formats", the section on channels that are no multiple of the block.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.descriptor.queries import bytes_of
from inlay.layout import Layout
from inlay.render.blocks import AxisDigit, places


def padded_computation(desc: MemoryDesc, names: Sequence[str]) -> dict[str, Any] | None:
    r"""Return the sum over the first padded axis, product by product, and facts on all; None if nothing is padded.

    >>> padding = padded_computation(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), "nchw")
    >>> padding["useful"], padding["extra"], padding["block"]
    (17, 7, 8)
    >>> print("\n".join(padding["facts"]))
    C_padded = div_up(17, 8) * 8 = 24
    stride_n = C_padded * H * W = 24 * 5 * 4 = 480
    stride_C = H * W * 8 = 5 * 4 * 8 = 160
    stride_h = W * 8 = 4 * 8 = 32
    stride_w = 8
    stride_8c = 1
    3840 bytes, not 4 * N * C * H * W = 2720: the size includes the padding
    """
    layout, _ = addressed_layout(desc, "the padded computation")
    padded = [i for i, (dim, most) in enumerate(zip(desc.dims, layout.dims, strict=True)) if 0 < dim < most]
    if not padded or 0 in desc.dims:
        return None
    axes = [_padded_axis(desc, layout, i, names[i]) for i in padded]
    first = axes[0]
    name, useful, extra = first["name"], first["dim"], first["padded"] - first["dim"]
    return {
        **first,
        "useful": useful,
        "extra": extra,
        "share": extra / first["padded"],
        "note": f"A sum over {name} that includes the padding has {useful + extra} products: {useful} of elements, and "
        f"{extra} of zeros, which add 0. An operation f on all of the memory is safe only if f(0) = 0.",
        "axes": axes,
        "facts": [*(axis["text"] for axis in axes), *_stride_facts(layout, names, padded), _size_fact(desc, names)],
    }


def _padded_axis(desc: MemoryDesc, layout: Layout, axis: int, name: str) -> dict[str, Any]:
    """Return dim, padded dim and block of one padded axis, and how the dim is rounded in words."""
    dim, padded, block = desc.dims[axis], layout.dims[axis], layout.axes[axis].block
    is_rounded = padded == -(-dim // block) * block and block > 1
    symbol = f"{name.upper()}_padded"
    text = f"{symbol} = div_up({dim}, {block}) * {block} = {padded}" if is_rounded else f"{symbol} = {padded}"
    return {"axis": axis, "name": name, "dim": dim, "padded": padded, "block": block, "text": text}


def _stride_facts(layout: Layout, names: Sequence[str], padded: Sequence[int]) -> Iterator[str]:
    """Yield the stride of each digit as the product of the extents inside it, the outermost digit first.

    Strides that are no such products, as those of rows with gaps, are numbers alone.
    """
    moving = [place for place in places(layout) if place.stride]
    for i, place in enumerate(moving):
        label = f"stride_{_symbol_of(place, layout, names)}"
        factors = list(_factors(layout, moving[i + 1 :], names, padded))
        product = prod(value for _, value in factors)
        texts = [text for text, _ in factors]
        numbers = [str(value) for _, value in factors]
        if product != place.stride or not factors:
            yield f"{label} = {place.stride}"
            continue
        terms = [" * ".join(texts), *([" * ".join(numbers)] if len(numbers) > 1 and texts != numbers else [])]
        total = [str(product)] if [str(product)] != terms[-1:] else []
        yield " = ".join([label, *terms, *total])


def _symbol_of(place: AxisDigit, layout: Layout, names: Sequence[str]) -> str:
    """Return the symbol of a digit: `h` of a plain axis, `C` of the blocks of an axis, `8c` inside them."""
    name = names[place.axis]
    if not layout.axes[place.axis].inner:
        return name
    return f"{place.extent}{name}" if place.is_inner else name.upper()


def _factors(
    layout: Layout, inner: Sequence[AxisDigit], names: Sequence[str], padded: Sequence[int]
) -> Iterator[tuple[str, int]]:
    """Yield symbol and number of the extents of digits; an axis whose digits are all among them is one factor."""
    own = {i: [place for place in places(layout) if place.axis == i and place.stride] for i in range(layout.ndims)}
    done: set[int] = set()
    for place in inner:
        axis = place.axis
        if axis in done:
            continue
        if all(digit in inner for digit in own[axis]):
            done.add(axis)
            yield f"{names[axis].upper()}{'_padded' if axis in padded else ''}", layout.dims[axis]
        else:
            yield str(place.extent), place.extent


def _size_fact(desc: MemoryDesc, names: Sequence[str]) -> str:
    """Return the size in words, beside that of the elements alone."""
    assert desc.data_type is not None
    bits = desc.data_type.bits
    factors = [name.upper() for name in names]
    if bits != 8:
        factors.insert(0, f"{bits // 8}" if bits > 8 else f"{bits}/8")
    elements = bytes_of(prod(desc.dims), desc.data_type)
    return f"{desc.size} bytes, not {' * '.join(factors)} = {elements}: the size includes the padding"
