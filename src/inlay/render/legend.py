"""The words of a picture: its axes, which layout it is, its formula, its size, what the colors mean.

A descriptor has no names, only axes. Role letters name them: those of the tag that a descriptor was made of. Where it
was made of abstract letters, strides or another descriptor, a picture takes the names of the first alias that oneDNN
has for the layout, `nChw8c` for `aBcd8b`, unless its reader says better; else the letters of the tag.

>>> axis_names(4, FormatTag.parse("OIhw16i16o"))
('o', 'i', 'h', 'w')
>>> axis_names(2, None)
('a', 'b')

The offset formula is written as one would write it in code, outermost term first, in the form oneDNN's documentation
uses for its formats:

>>> offset_formula(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), "nchw")
'480*n + 160*(c//8) + 32*h + 8*w + c%8'

`explain_offset` says where one element lies: the coordinate is split into the digits of each axis, and each digit times
its stride adds up.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import assert_never

from inlay.arguments import as_entries
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.fields import addressed_layout
from inlay.descriptor.queries import bytes_text
from inlay.errors import FormatTagError, InvalidArguments, shown
from inlay.layout import RUNTIME, Digit, Dims, Layout, Swizzle
from inlay.layout.axis import LETTERS
from inlay.notation import Notation, parse_notation
from inlay.notation.format_tag import ALIASES, FormatTag
from inlay.notation.pattern import Pattern, pattern_of
from inlay.notation.recognition import SwizzledNotation
from inlay.render.blocks import blocks_of, digit_in_words, places, shares_elements

_USUAL = {3: "ncw", 4: "nchw", 5: "ncdhw"}
"""oneDNN's names of the axes of activations, for strided layouts that no tag says."""


def alias_of(tag: FormatTag) -> str | None:
    """The first alias of `tag` in oneDNN's list, activations before weights; None where it has none.

    >>> alias_of(FormatTag.parse("acdb"))
    'nhwc'
    """
    text = str(tag)
    return next((alias for alias, meant in ALIASES.items() if meant == text), None)


def has_roles(tag: FormatTag) -> bool:
    """True if the letters of the tag tell the meaning of the axes.

    >>> has_roles(FormatTag.parse("Ohwi16o")), has_roles(FormatTag.parse("Acdb16a"))
    (True, False)
    """
    return tag.letters != LETTERS[: tag.ndims]


def axis_names(ndims: int, tag: FormatTag | None) -> tuple[str, ...]:
    """One name per axis, for a descriptor of `ndims` axes and, where it has one, this `tag`."""
    if tag is not None and has_roles(tag):
        return tuple(tag.letters)
    alias = alias_of(tag) if tag is not None and ndims > 2 else None
    if tag is not None and alias is not None:
        return tuple(letter.lower() for _, letter in sorted(zip(tag.order, alias, strict=False)))
    return tuple(_USUAL.get(ndims, LETTERS[:ndims]))


def names_of(desc: MemoryDesc) -> tuple[str, ...]:
    """One name per axis: those of the pattern that `desc` was created from, else those of its tag.

    >>> names_of(MemoryDesc((4, 8), "u8", "(row row2) col -> row col row2"))
    ('row', 'col')
    """
    spelled = None if desc.spelling is None else parse_notation(desc.spelling)
    if isinstance(spelled, SwizzledNotation):
        spelled = spelled.notation
    if isinstance(spelled, Pattern):
        return spelled.names
    return axis_names(desc.ndims, spelled if isinstance(spelled, FormatTag) else nearest_tag(desc))


def checked_names(names: object, ndims: int) -> tuple[str, ...]:
    """`names`, one for each of `ndims` axes; in a text they are letters, or separated by commas.

    Raises:
        InvalidArguments: the number differs from `ndims`, a name is no identifier, or two are the same.
    """
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")] if "," in names else list(names)
    values: tuple[object, ...] = as_entries("names", names)
    given = [value for value in values if isinstance(value, str)]
    if len(given) < len(values):
        raise InvalidArguments(f"names are {shown(names)}: give one text for each axis, such as 'oihw'")
    if len(given) != ndims:
        raise InvalidArguments(f"{ndims} axes need {ndims} names, not {len(given)}: {shown(', '.join(given))[1:-1]}")
    wrong = [name for name in given if not name.isidentifier() or not name.isascii()]
    if wrong:
        raise InvalidArguments(f"an axis is named by ASCII letters and digits, like c or row, not {shown(wrong[0])}")
    if len(set(given)) < ndims:
        raise InvalidArguments(f"axes need different names: {', '.join(given)}")
    return tuple(given)


Fact = tuple[str, str]
"""A line of the legend: its heading and its text."""


def list_notations(desc: MemoryDesc, names: Sequence[str]) -> Iterator[Fact]:
    """Yield the name of each notation that can say a layout, and its text; the pattern has these `names` of axes.

    A name of an axis that ends in a number would be an extent there, so such axes are called a, b, c, ...

    >>> dict(list_notations(MemoryDesc((17, 4), "f32", "Ab8a"), "nc"))
    {'tag': 'Ab8a', 'pattern': '(n n8) c -> n c n8', 'shape:stride': '((8,3),4):((1,32),8)'}
    """
    if desc.tag is not None:
        yield "tag", desc.tag
    if isinstance(desc.layout, Layout):
        letters = None if any(name[-1].isdigit() for name in names) else names
        with suppress(InvalidArguments):
            yield "pattern", pattern_of(desc.layout, letters)
        with suppress(InvalidArguments):
            yield "shape:stride", desc.shape_stride


_SPARSE_NOTES = {
    "csr": "Row after row: pointers say where each row starts among the values, indices which column each belongs to.",
    "coo": "Value after value, each with its coordinate along every axis.",
    "packed": "Block after block in the order of a tag, zeros left out: offsets say where each block starts among the "
    "values, bits which elements are stored.",
}
"""For each sparse encoding, how its buffers tell where elements belong."""


@dataclass(frozen=True, slots=True)
class Legend:
    """The words of a picture."""

    title: str
    """The layout, the dims and the data type."""
    facts: tuple[Fact, ...]
    """From the textual form to the meaning of the colors."""
    note: str
    """Why there is no picture; empty where there is one."""


def legend(desc: MemoryDesc, names: Sequence[str], *, has_type: bool = True) -> Legend:
    """The words about `desc`, whatever its kind; without `has_type`, those about its layout alone."""
    words = _legend_of(desc, names)
    if has_type:
        return words
    title = f"{layout_name(desc)}, {crossed(desc.dims)}" if desc.dims else "a layout of no axes"
    return Legend(title, tuple(fact for fact in words.facts if fact[0] not in ("text", "size")), words.note)


def _legend_of(desc: MemoryDesc, names: Sequence[str]) -> Legend:
    """Return the legend of a descriptor of any kind, with its data type and size."""
    title = f"{layout_name(desc)}, {crossed(desc.dims)} of {desc.data_type}" if desc.dims else "zero descriptor"
    text = ("text", f"{desc} {crossed(desc.dims, 'x')}".rstrip())
    size = ("size", size_in_words(desc))
    match desc.layout:
        case Layout() if desc.has_runtime:
            note = "Some dims or strides are known only when data arrives: bind them to see where elements lie."
            return Legend(title, (text, ("digits", digits_in_words(desc, names))), note)
        case Layout() if 0 in desc.padded_dims:
            empty = ", ".join(name for name, n in zip(names, desc.padded_dims, strict=True) if n == 0)
            return Legend(title, (text, size), f"There are no elements to draw: {empty} has no coordinates.")
        case Layout():
            digits = ("digits", digits_in_words(desc, names))
            offset = ("offset", offset_formula(desc, names))
            return Legend(title, (text, digits, offset, size, ("blocks", blocks_in_words(desc.layout, names))), "")
        case kinds.SwizzledLayout():
            return _swizzled_legend(title, (text, size), desc, desc.layout, names)
        case kinds.Undefined():
            return Legend(title, (text,), "It has no dims, no data type and no bytes: it stands for an absent tensor.")
        case kinds.Any():
            note = "The layout is not chosen yet: the primitive that takes this descriptor chooses it."
            return Legend(title, (text,), note)
        case kinds.Opaque():
            return Legend(title, (text, size), "The order of the elements is known to one engine only.")
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            return _sparse_legend(title, text, desc, names)
        case kinds.HostScalar():
            return Legend(title, (text, size), "One value that the host passes with each execution; it has no layout.")
    assert_never(desc.layout)


def _swizzled_legend(
    title: str, about: tuple[Fact, Fact], desc: MemoryDesc, placement: kinds.SwizzledLayout, names: Sequence[str]
) -> Legend:
    """Return the legend of a swizzled descriptor: the formula before the swizzle, then the swizzle."""
    text, size = about
    if 0 in desc.dims:
        return Legend(title, about, "There are no elements to draw.")
    linear = MemoryDesc.from_layout(placement.layout, str(desc.data_type), dims=desc.dims)
    digits = ("digits", digits_in_words(linear, names))
    before = ("s", offset_formula(linear, names))
    offset = ("offset", swizzle_formula(placement.swizzle, desc.offset0))
    return Legend(title, (text, digits, before, offset, size, ("blocks", blocks_in_words(placement.layout, names))), "")


def swizzle_formula(swizzle: Swizzle, offset0: int = 0) -> str:
    """Return the offset in elements as an expression of `s`, the offset before the swizzle, which Python can evaluate.

    >>> swizzle_formula(Swizzle(3, 4, 3)), swizzle_formula(Swizzle(1, 0, -2), 8)
    ('s ^ (s & 896) >> 3', '8 + (s ^ (s & 1) << 2)')
    """
    arrow = ">>" if swizzle.shift >= 0 else "<<"
    formula = f"s ^ (s & {swizzle.source_mask}) {arrow} {abs(swizzle.shift)}"
    return f"{offset0} + ({formula})" if offset0 else formula


def layout_name(desc: MemoryDesc) -> str:
    """Return the common name of this layout: an alias if there is one, else the tag, the pattern, or the strides.

    >>> layout_name(MemoryDesc((2, 16, 5, 4), "f32", "acdb")), layout_name(MemoryDesc((4, 6), "f32", strides=(8, 1)))
    ('nhwc (acdb)', 'strides 8 x 1')
    """
    if isinstance(desc.layout, kinds.Opaque):
        return desc.layout.name
    tag = desc.tag
    if tag is None or tag == "any":
        return _untagged_name(desc)
    spelled = None if desc.spelling is None else parse_notation(desc.spelling)
    if spelled is None or isinstance(spelled, FormatTag):
        return _tag_name(spelled or FormatTag.parse(tag))
    return f"{spelled.spelling} ({tag})"


def _untagged_name(desc: MemoryDesc) -> str:
    """Return the name of a layout without a tag, such as its strides."""
    spelled = None if desc.spelling is None else parse_notation(desc.spelling)
    if desc.kind == "swizzled":
        text = desc.spelling or "free digits"
        return text if isinstance(spelled, SwizzledNotation) else f"{desc.swizzle} o {text}"
    if spelled is not None and not isinstance(spelled, FormatTag):
        return _spelled_name(desc, spelled)
    if desc.kind == "digits" and spelled is None:
        return f"strides {crossed(desc.strides)}" if desc.is_plain else "free digits"
    if desc.kind == "sparse":
        return f"sparse {desc.sparse_encoding}"
    if desc.kind != "blocked":
        return desc.kind.replace("_", " ")
    strides = f"strides {crossed(desc.strides)}"
    tag = nearest_tag(desc) if desc.inner_blocks else None
    return strides if tag is None else f"{_tag_name(tag)} with {strides}"


def _spelled_name(desc: MemoryDesc, notation: Notation) -> str:
    """Return the caller's text of a layout, with the strides of leading digits if they differ."""
    layout, _ = desc.require_layout("a picture")
    if notation.layout(layout.dims) == layout:
        return notation.spelling
    return f"{notation.spelling} with strides {crossed([axis.stride for axis in layout.axes])}"


def _tag_name(tag: FormatTag) -> str:
    """Return a tag with its alias, or as it was spelled with its abstract letters."""
    if has_roles(tag):
        return f"{tag.spelling} ({tag})"
    alias = alias_of(tag) if tag.ndims > 2 else None
    return str(tag) if alias is None else f"{alias} ({tag})"


def nearest_tag(desc: MemoryDesc) -> FormatTag | None:
    """The tag of the layout with its gaps and its offset left out; None where its digits are in no order of a tag.

    It has the letters that were typed, if one was.
    """
    spelled = None if desc.spelling is None else parse_notation(desc.spelling)
    if isinstance(spelled, FormatTag):
        return spelled
    if desc.kind != "blocked":
        return None
    try:
        return FormatTag.parse(desc.tag or str(desc).split(":")[3])
    except FormatTagError:
        # A RUNTIME stride has no place in the order, and the text of the descriptor says `*`.
        return None


def digits_in_words(desc: MemoryDesc, names: Sequence[str]) -> str:
    """Per axis its padding and its digits, most significant first.

    >>> digits_in_words(MemoryDesc((17, 5), "f32", "Ab8a"), "cx")
    'c, 17 padded to 24, (3,40) (8,1); x (5,8); each (extent,stride)'
    """
    words = []
    for name, dim, padded, digits in zip(names, desc.dims, desc.padded_dims, desc.digits, strict=True):
        padding = f", {dim} padded to {padded}," if padded != dim else ""
        pairs = " ".join(f"({_number(d.extent)},{_number(d.stride)})" for d in digits)
        words.append(f"{name}{padding} {pairs}")
    return "; ".join([*words, "each (extent,stride)"])


def offset_formula(desc: MemoryDesc, names: Sequence[str]) -> str:
    """The offset in elements as an expression of the names, which Python can evaluate.

    Post-condition: with each name bound to its coordinate, its value is `desc.offset` of them.
    """
    layout, _ = desc.require_layout("the formula")
    terms = [str(desc.offset0)] if desc.offset0 else []
    for place in places(layout):
        digit = digit_in_words(place, names)
        factor = f"({digit})" if "//" in digit or ("%" in digit and place.stride != 1) else digit
        if place.stride:
            terms.append(factor if place.stride == 1 else f"{place.stride}*{factor}")
    return " + ".join(terms).replace("+ -", "- ") or "0"


def size_in_words(desc: MemoryDesc) -> str:
    """The size in bytes, and the share of it that is padding or gap.

    >>> size_in_words(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"))
    '3840 bytes; 280 of 960 elements are padding (29.2%)'
    """
    words = [_bytes(desc.size)]
    if not isinstance(desc.layout, Layout) or desc.data_type is None or 0 in desc.padded_dims:
        return words[0]
    padded, data = prod(desc.padded_dims), prod(desc.dims)
    if padded > data:
        words.append(f"{padded - data} of {padded} elements are padding ({_percent(padded - data, padded)})")
    shared = [place for place in places(desc.layout) if place.stride == 0]
    stored = desc.size * 8 // desc.data_type.bits
    if not shared and shares_elements(desc.layout):
        words.append("overlapping strides let several coordinates share an element")
    elif shared:
        words.append("a stride of 0 lets several coordinates share an element")
    elif stored > padded:
        words.append(f"gaps take {stored - padded} of {stored} elements ({_percent(stored - padded, stored)})")
    if desc.data_type.is_sub_byte:
        words.append("two elements in a byte, the one of even offset in the low half")
    return "; ".join(words)


def _sparse_legend(title: str, text: Fact, desc: MemoryDesc, names: Sequence[str]) -> Legend:
    """Return the legend of a sparse descriptor."""
    stored = ("stored", stored_in_words(desc))
    if not isinstance(desc.layout, kinds.Packed):
        facts: tuple[Fact, ...] = (text, stored, ("buffers", buffers_in_words(desc, names)))
        return Legend(title, facts, _SPARSE_NOTES[desc.sparse_encoding])
    if not desc.layout.tag:
        note = "The order is not chosen yet: the primitive that takes this descriptor chooses it."
        return Legend(title, (text, stored), note)
    facts = (text, stored, ("order", desc.layout.tag), ("buffers", buffers_in_words(desc, names)))
    return Legend(title, facts, _SPARSE_NOTES["packed"])


def stored_in_words(desc: MemoryDesc) -> str:
    """Return how many elements a sparse tensor stores, and what the others are.

    >>> stored_in_words(MemoryDesc.coo((3, 4), "f32", 3))
    '3 of 12 elements (25.0%), the others are zero'
    """
    if RUNTIME in desc.dims:
        return f"{desc.nnz} elements, the others are zero"
    volume = prod(desc.dims)
    share = f" ({_percent(desc.nnz, volume)})" if volume else ""
    return f"{desc.nnz} of {volume} elements{share}, the others are zero"


def buffers_in_words(desc: MemoryDesc, names: Sequence[str]) -> str:
    """Return the contents of each buffer of a sparse tensor.

    >>> buffers_in_words(MemoryDesc.csr((3, 4), "f32", 2), "mk")
    'values f32, 8 bytes; indices s32, 8 bytes; pointers s32, 16 bytes'
    """
    held = {"csr": ("indices", "pointers"), "coo": tuple(names), "packed": ("block offsets", "bitmask")}
    words = []
    for name, data_type, size in zip(
        ("values", *held[desc.sparse_encoding]), desc.data_types, desc.sizes, strict=False
    ):
        nbytes = "size unknown" if RUNTIME in desc.dims else _bytes(size)
        words.append(f"{name} {data_type}, {nbytes}" if data_type else name)
    return "; ".join(words)


def blocks_in_words(layout: Layout, names: Sequence[str]) -> str:
    """Return what elements of one block, drawn in one color, have in common.

    >>> blocks_in_words(FormatTag.parse("nChw8c").layout((2, 17, 5, 4)), "nchw")
    'one for each (n, c//8, h, w): 8 elements side by side in memory'
    """
    blocks = blocks_of(layout)
    if not blocks.outer:
        return "one for all elements"
    common = ", ".join(digit_in_words(place, names) for place in blocks.outer)
    if len(blocks.outer) > 1:
        common = f"({common})"
    apart = "" if blocks.size == 1 else " side by side in memory" if blocks.is_contiguous else ", apart in memory"
    elements = "1 element" if blocks.size == 1 else f"{blocks.size} elements"
    return f"one for each {common}: {elements}{apart}"


def _number(value: int) -> str:
    """Return a dim as text; an asterisk stands for `RUNTIME`."""
    return "*" if value == RUNTIME else str(value)


def crossed(values: Sequence[int], cross: str = " x ") -> str:
    """Return dims as text, joined by a multiplication sign."""
    return cross.join(map(_number, values))


def _percent(part: int, whole: int) -> str:
    """Return a share as text; only all of the whole is 100%."""
    share = 100 * part / whole
    return f"{share if part == whole else min(share, 99.9):.1f}%"


def _bytes(count: int) -> str:
    """Return a number of bytes as text, with units from 10,000 on."""
    exact = f"{count} bytes" if count != 1 else "1 byte"
    return exact if count < 10_000 else f"{exact} ({bytes_text(count)})"


def explain_offset(desc: MemoryDesc, coordinate: Dims) -> str:
    """Return the computation of the offset of `coordinate`, a line per axis; offsets count elements if not bytes.

    The last line says which half of its byte holds a 4-bit element, and if the coordinate is padding.

    Raises:
        InvalidArguments: the coordinate lies outside the padded dims or has another number of entries, or `desc` has
            no layout.
        Unimplemented: a dim or stride is RUNTIME.

    >>> print(explain_offset(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), (1, 16, 4, 3)))
    f32:p:blocked:aBcd8b::f0, 2x17x5x4 padded to 2x24x5x4
      n =  1          1 * 480            480
      c = 16 = 2,0    2 * 160 + 0 * 1    320
      h =  4          4 * 32             128
      w =  3          3 * 8               24
    element offset 952, byte offset 3808
    """
    element, byte = desc.offset(coordinate), desc.byte_offset(coordinate)
    layout, _ = addressed_layout(desc, "offset")
    names = names_of(desc)
    rows = [_axis_row(name, x, digits) for name, x, digits in zip(names, coordinate, layout.digits, strict=True)]
    number, sums, part = (max(len(row[i]) for row in rows) for i in (2, 3, 4))
    width = max(len(row[1]) for row in rows)
    widest = max(map(len, names))
    lines = [_title(desc)]
    for name, x, spelled, terms, total in rows:
        lines.append(f"  {name:<{widest}} = {x:>{width}}{spelled:<{number}}    {terms:<{sums}}    {total:>{part}}")
    if desc.swizzle is not None:
        linear = layout.offset(coordinate)
        lines.append(f"  {desc.swizzle}: s = {linear}, {swizzle_formula(desc.swizzle)} = {desc.swizzle.apply(linear)}")
    if desc.offset0:
        lines.append(f"  offset0 {desc.offset0}")
    is_narrow = desc.data_type is not None and desc.data_type.is_sub_byte
    half = f", {'high' if element % 2 else 'low'} half" if is_narrow else ""
    padding = ", padding" if desc.is_padding(coordinate) else ""
    return "\n".join([*lines, f"element offset {element}, byte offset {byte}{half}{padding}"])


def _title(desc: MemoryDesc) -> str:
    """Return a descriptor with its dims and padded dims."""
    dims, padded = ("x".join(map(str, values)) for values in (desc.dims, desc.padded_dims))
    return f"{desc}, {dims}" + (f" padded to {padded}" if padded != dims else "")


def _axis_row(name: str, x: int, digits: tuple[Digit, ...]) -> tuple[str, str, str, str, str]:
    """The name, the coordinate, its digits where there are several, the terms, and their sum."""
    values, rest = [], x
    for digit in reversed(digits[1:]):
        rest, value = divmod(rest, digit.extent)
        values.append(value)
    values = [rest, *reversed(values)]
    spelled = f" = {','.join(map(str, values))}" if len(values) > 1 else ""
    terms = " + ".join(f"{value} * {digit.stride}" for value, digit in zip(values, digits, strict=True))
    total = sum(value * digit.stride for value, digit in zip(values, digits, strict=True))
    return name, str(x), spelled, terms, str(total)
