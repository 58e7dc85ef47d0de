"""Descriptors as text: oneDNN's notation of its verbose log, and the call in Python that creates one.

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

from inlay.arguments import as_flag
from inlay.descriptor import kinds
from inlay.descriptor.described import Described, InnerBlocks
from inlay.descriptor.extras import NO_EXTRAS
from inlay.descriptor.ordering import tag_without_extras
from inlay.descriptor.queries import layout_size
from inlay.errors import InlayError
from inlay.format_tag import LETTERS, FormatTag
from inlay.layout import RUNTIME, Dims, Layout
from inlay.pattern import parse_pattern, pattern_of


def text(desc: Described, *, was_any: bool = False) -> str:
    """oneDNN's textual form; `was_any` says that the layout is what a primitive chose for the format any.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((4, 6), "f32", strides=(8, 1)).text(was_any=True)
    'f32:a:blocked:ab:8x1:f0'
    """
    chosen = "a" if as_flag("was_any", was_any) else ""
    placement, data_type = desc.layout, desc.data_type
    match placement:
        case kinds.Undefined():
            return "undef::undef:::"
        case kinds.Any():
            return f"{data_type}:{chosen}:any:any::f0"
        case Layout():
            flags = chosen + ("p" if placement.dims != desc.dims else "") + ("0" if desc.offset0 else "")
            said = f"digits:{_digits(placement)}:" if desc._blocks is None else _blocked(desc, placement, desc._blocks)
            return f"{data_type}:{flags}:{said}:{desc.extras}"
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


def _blocked(desc: Described, layout: Layout, blocks: InnerBlocks) -> str:
    """Kind, letters, and strides where there are gaps, of a layout that oneDNN can say."""
    assert desc.data_type is not None
    strides = [axis.stride for axis in layout.axes]
    letters = _letters(layout, strides, blocks)
    if layout.has_runtime:
        return f"blocked:{letters}:"
    # As oneDNN: without the buffers behind the elements, but with the bytes that align them.
    nbytes = desc.extras.start(layout_size(desc, layout, NO_EXTRAS))
    # Integer halving, so an odd number of 4-bit elements counts as not dense.
    dense = prod(layout.dims) * desc.data_type.itemsize // (2 if desc.data_type.is_sub_byte else 1) == nbytes
    return f"blocked:{letters}:{'' if dense and 0 not in strides else crossed(strides)}"


def _letters(layout: Layout, strides: Sequence[int], blocks: InnerBlocks) -> str:
    if RUNTIME in strides:
        return "*"

    def place(i: int) -> tuple[int, int, int]:
        # As oneDNN: unsigned, so that stride 0 sorts outermost.
        return (-((strides[i] - 1) % 2**64), -(layout.dims[i] // layout.axes[i].block), i)

    letters = ""
    for i in sorted(range(layout.ndims), key=place):
        letters += LETTERS[i].upper() if layout.axes[i].block > 1 else LETTERS[i]
    return letters + "".join(f"{size}{LETTERS[i]}" for i, size in blocks)


def _digits(layout: Layout) -> str:
    return "x".join("".join(f"({number(d.extent)},{number(d.stride)})" for d in digits) for digits in layout.digits)


def spelled(values: Dims) -> str:
    """A tuple as Python writes it, with RUNTIME by its name.

    >>> spelled((2, RUNTIME)), spelled((3,))
    ('(2, RUNTIME)', '(3,)')
    """
    texts = ["RUNTIME" if value == RUNTIME else str(value) for value in values]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def call_text(desc: Described) -> str:
    """The call that creates this descriptor: by its tag where one does, with padded dims where need be."""
    dims, data_type, placement = desc.dims, desc.data_type, desc.layout
    call = f"MemoryDesc({spelled(dims)}, '{data_type}'"
    match placement:
        case kinds.Undefined():
            return "MemoryDesc()"
        case kinds.Any():
            return f"{call}, 'any')"
        case Layout():
            return _layout_call(desc, placement, call)
        case kinds.HostScalar():
            return f"MemoryDesc.host_scalar('{data_type}')"
        case kinds.Opaque(name=name, nbytes=nbytes):
            return f"MemoryDesc.opaque({spelled(dims)}, '{data_type}', {name!r}, {nbytes})"
    types = {name: getattr(placement, name, "") for name in ("index_type", "pointer_type", "tag")}
    said = "".join(f", {name}='{value}'" for name, value in types.items() if value and value != "s32")
    return f"MemoryDesc.{placement.encoding}({spelled(dims)}, '{data_type}', {placement.nnz}{said})"


def _layout_call(desc: Described, layout: Layout, call: str) -> str:
    also = f", extras={desc.extras!r}" if desc.extras else ""
    tag = desc.spelling or tag_without_extras(desc)
    if tag is not None:
        is_padded = FormatTag.parse(tag).layout(desc.dims).dims != layout.dims
        return f"{call}, '{tag}'{f', padded_dims={spelled(layout.dims)}' if is_padded else ''}{also})"
    said = _arguments(desc, layout) if desc.offset0 == 0 else None
    if said is not None:
        return f"{call}, {said}{also})"
    start = f", offset0={desc.offset0}" if desc.offset0 else ""
    logical = f", dims={spelled(desc.dims)}" if desc.dims != layout.dims else ""
    return f"MemoryDesc.from_layout({layout!r}, '{desc.data_type}'{logical}{start}{also})"


def _arguments(desc: Described, layout: Layout) -> str | None:
    """The constructor's arguments that say `layout`, or None where only the layout itself does."""
    if desc._blocks:
        return None
    if desc._blocks == ():
        said, padded = f"strides={spelled(tuple(axis.stride for axis in layout.axes))}", desc.dims
    else:
        try:
            said = f"pattern='{pattern_of(layout)}'"
            padded = parse_pattern(pattern_of(layout), desc.dims).dims
        except InlayError:
            return None
    return said if padded == layout.dims else f"{said}, padded_dims={spelled(layout.dims)}"
