"""One sentence in words about a layout or a reorder: for a comment, a commit message or a mail.

>>> print(layout_sentence(MemoryDesc((2, 17), "f32", "aB8b")))
f32 tensor of a = 2, b = 17; b is padded to 24 with zeros; slowest to fastest in memory: a, b / 8, b % 8; 192 bytes.
"""

from collections.abc import Iterator
from math import prod

from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import CompoundFormat, Stream
from inlay.descriptor.fields import addressed_layout, require_start_in_buffer
from inlay.emission.c_names import axis_variables, joined_dims
from inlay.emission.functions import buffer_bytes
from inlay.layout import Digit, Layout, Swizzle


def layout_sentence(desc: MemoryDesc) -> str:
    """Return the sentence about a layout: data type, dims, padding, the digits in memory order, size.

    Raises:
        InvalidArguments: `desc` has no layout, or reaches below its buffer.
    """
    layout, data_type = addressed_layout(desc, "a sentence about memory")
    require_start_in_buffer(desc, layout)
    names = axis_variables(desc)
    dims = ", ".join(f"{name} = {dim}" for name, dim in zip(names, desc.dims, strict=True))
    padded = [
        f"{name} is padded to {n} with zeros"
        for name, dim, n in zip(names, desc.dims, layout.dims, strict=True)
        if n != dim
    ]
    order, repeated = ", ".join(_digits_in_order(layout, names)), _repeated(layout, names)
    needed = buffer_bytes(desc)
    parts = [
        f"{data_type} tensor of {dims}" if dims else f"{data_type} scalar",
        *padded,
        *([f"slowest to fastest in memory: {order}"] if order else []),
        *([_swizzle_text(desc.swizzle)] if desc.swizzle is not None else []),
        *([f"begins at element {desc.offset0}"] if desc.offset0 else []),
        *([repeated] if repeated else ["elements overlap"] if layout.overlaps else []),
        *(["has gaps"] if _has_gaps(layout) and not layout.overlaps else []),
        *([f"with oneDNN's extras {desc.extras}"] if desc.extras else []),
        f"{desc.size} bytes",
        *([f"the buffer has {needed} bytes or more"] if needed > desc.size else []),
    ]
    return f"{'; '.join(parts)}."


def compound_sentence(desc: CompoundDesc) -> str:
    """Return the sentence about a tensor in a compound format: dims, blocks, streams, the formula, size.

    >>> from inlay.descriptor.compound_table import compound
    >>> print(compound_sentence(CompoundDesc(compound("ggml:Q4_0"), (3, 64))))
    ggml:Q4_0 tensor of 3 x 64; blocks of 32 elements in 18 bytes; quants: 4 bits as u8, 8 for zero; scale: f16, one for
    32 elements; value = quants * scale; 108 bytes.
    """
    fmt = desc.format
    sections = [
        f"blocks of {' x '.join(map(str, section.block))} elements in {section.nbytes} bytes"
        + (f", rows of blocks end in {section.footer_nbytes} bytes" if section.footer_nbytes else "")
        for section in fmt.sections
    ]
    parts = [
        f"{fmt.name} tensor of {joined_dims(desc.dims)}",
        " and ".join(sections),
        *(_stream_text(desc, stream) for stream in fmt.streams),
        f"value = {_formula(fmt)}",
        f"{desc.size} bytes",
    ]
    return f"{'; '.join(parts)}."


def _stream_text(desc: CompoundDesc, stream: Stream) -> str:
    """Return the type and the number of elements of a stream in words."""
    is_number = stream.limits is not None
    kind = f"{stream.bits} bits as {stream.data_type}" if is_number else stream.data_type
    code = ", codes" if stream.codebook else f", {stream.zero} for zero" if stream.zero else ""
    count = prod(desc.group(stream.name))
    return f"{stream.name}: {kind}{code}" + (f", one for {count} elements" if count > 1 else "")


def _formula(fmt: CompoundFormat) -> str:
    """Return the formula of the value of an element."""
    value = " * ".join((fmt.values.name, *fmt.scales))
    return f"{value} {'+' if fmt.adds_minimum else '-'} {' * '.join(fmt.minima)}" if fmt.minima else value


def reorder_sentence(src: MemoryDesc, dst: MemoryDesc) -> str:
    """Return the sentence about a reorder: that of the source, then that of the destination.

    Raises:
        InvalidArguments: a side has no layout.
    """
    return f"From: {layout_sentence(src)} To: {layout_sentence(dst)}"


def _digits_in_order(layout: Layout, names: tuple[str, ...]) -> list[str]:
    """Return each digit that moves in memory as an expression, greatest stride first; with a stride that is not dense.

    >>> _digits_in_order(Layout.from_strides((4, 6), (-8, 1)), ("a", "b"))
    ['a (stride -8)', 'b']
    """
    texts, dense = [], 1
    for digit, term in sorted(_terms(layout, names), key=lambda pair: abs(pair[0].stride)):
        texts.append(term if digit.stride == dense else f"{term} (stride {digit.stride})")
        dense = abs(digit.stride) * digit.extent
    return texts[::-1]


def _terms(layout: Layout, names: tuple[str, ...]) -> Iterator[tuple[Digit, str]]:
    """Yield each digit that has several values at a stride other than 0, with its expression."""
    for name, axis, n in zip(names, layout.axes, layout.dims, strict=True):
        weight = 1
        for digit in reversed(axis.digits(n)):
            end = weight * digit.extent
            quotient = f"{name} / {weight}" if weight > 1 else name
            if digit.extent > 1 and digit.stride:
                yield digit, quotient if end >= n else f"{quotient} % {end // weight}"
            weight = end


def _repeated(layout: Layout, names: tuple[str, ...]) -> str:
    """Return the axes with a digit of stride 0 in words; empty text if there are none."""
    repeated = [
        name
        for name, axis, n in zip(names, layout.axes, layout.dims, strict=True)
        if any(digit.extent > 1 and digit.stride == 0 for digit in axis.digits(n))
    ]
    return f"elements are repeated along {' and '.join(repeated)}" if repeated else ""


def _swizzle_text(swizzle: Swizzle) -> str:
    """Return the bits of an offset that a swizzle reads and changes, in words."""
    read, changed = (_bits_text(mask) for mask in (swizzle.source_mask, swizzle.target_mask))
    return f"then {swizzle}: {read} of each element offset XORed into {changed}"


def _bits_text(mask: int) -> str:
    """Return consecutive bits in words, such as `bits 3 to 5`."""
    low, high = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
    return f"bit {low}" if low == high else f"bits {low} to {high}"


def _has_gaps(layout: Layout) -> bool:
    """Return whether memory between the first and the last element holds no element."""
    low, high = layout.span
    return high - low > layout.size
