"""One sentence in words about a layout or a reorder: for a comment, a commit message or a mail.

>>> print(layout_sentence(MemoryDesc((2, 17), "f32", "aB8b")))
f32 tensor of a = 2, b = 17; b is padded to 24 with zeros; slowest to fastest in memory: a, b / 8, b % 8; 192 bytes.
"""

from inlay.descriptor import MemoryDesc
from inlay.emission.c_names import axis_variables
from inlay.layout import Layout


def layout_sentence(desc: MemoryDesc) -> str:
    """Return the sentence about a layout: data type, dims, padding, the digits in memory order, size.

    Raises:
        InvalidArguments: `desc` has no layout.
    """
    layout, data_type = desc.require_layout("a sentence about memory")
    names = axis_variables(desc)
    dims = ", ".join(f"{name} = {dim}" for name, dim in zip(names, desc.dims, strict=True))
    padded = [
        f"{name} is padded to {n} with zeros"
        for name, dim, n in zip(names, desc.dims, layout.dims, strict=True)
        if n != dim
    ]
    order = ", ".join(_digits_in_order(layout, names))
    parts = [
        f"{data_type} tensor of {dims}" if dims else f"{data_type} scalar",
        *padded,
        *([f"slowest to fastest in memory: {order}"] if order else []),
        *([f"begins at element {desc.offset0}"] if desc.offset0 else []),
        *(["elements overlap"] if layout.overlaps else ["has gaps"] if _has_gaps(layout) else []),
        f"{desc.size} bytes",
    ]
    return f"{'; '.join(parts)}."


def reorder_sentence(src: MemoryDesc, dst: MemoryDesc) -> str:
    """Return the sentence about a reorder: that of the source, then that of the destination.

    Raises:
        InvalidArguments: a side has no layout.
    """
    return f"From: {layout_sentence(src)} To: {layout_sentence(dst)}"


def _digits_in_order(layout: Layout, names: tuple[str, ...]) -> list[str]:
    """Return each digit with more than one value as an expression, greatest stride first."""
    terms = []
    for name, axis, n in zip(names, layout.axes, layout.dims, strict=True):
        weight = 1
        for digit in reversed(axis.digits(n)):
            end = weight * digit.extent
            quotient = f"{name} / {weight}" if weight > 1 else name
            if digit.extent > 1:
                terms.append((-abs(digit.stride), quotient if end >= n else f"{quotient} % {end // weight}"))
            weight = end
    return [term for _, term in sorted(terms, key=lambda term: term[0])]


def _has_gaps(layout: Layout) -> bool:
    """Return whether memory between the first and the last element holds no element."""
    low, high = layout.span
    return high - low > layout.size
