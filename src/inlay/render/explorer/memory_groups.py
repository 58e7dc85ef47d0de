"""Groups of memory that hardware moves at once: cache lines, pages, and groups of VNNI and SIMD registers.

Lines of 64 bytes and pages of 4096 bytes start with the buffer, whose first byte is aligned to both in memory that
Inlay allocates. Groups of registers start with the first element, and exist only in layouts whose inner blocks make
them:

    nChw16c of f32          16 channels are one register of 512 bits
    OIhw4i16o4i of s8       4 input channels are one lane of a dot product, 16 such lanes one register

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, VPDPBUSD and VDPBF16PS, for groups of VNNI.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.layout import Layout
from inlay.render.blocks import AxisDigit, digit_in_words, places

_LINE, _PAGE = 64, 4096
"""Bytes of a cache line and of a page, of x86-64 and of most AArch64 systems."""
_LANE_BITS = 32
"""Bits of one lane of a dot product."""
_DOT_TYPES = ("s8", "u8", "bf16", "f16")
"""Types of which instructions multiply and add several values in each lane."""
_REGISTERS = {512: "AVX-512", 256: "AVX2", 128: "SSE or NEON"}
"""Width of vector registers in bits, and instruction sets that have them."""


def memory_groups(desc: MemoryDesc, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the groups of memory of a layout: kind, number of elements, offset of the first group, and words.

    >>> for group in memory_groups(MemoryDesc((64, 64, 3, 3), "s8", "OIhw4i16o4i"), "oihw"):
    ...     print(group["kind"], group["elements"], group["label"])
    cache line 64 cache line: 64 bytes
    page 4096 page: 4096 bytes
    vnni 4 VNNI: 4 values of i%4, one lane of 32 bits of a dot product
    simd 64 SIMD: 64 values, one register of 512 bits (AVX-512)
    """
    layout, data_type = addressed_layout(desc, "groups of memory")
    if 0 in layout.dims:
        return []
    groups = [
        _group("cache line", _LINE * 8 // data_type.bits, 0, f"cache line: {_LINE} bytes"),
        _group("page", _PAGE * 8 // data_type.bits, 0, f"page: {_PAGE} bytes"),
    ]
    inner = _dense_inner_digits(layout)
    if desc.swizzle is None:
        groups += _vnni(inner, data_type, names, desc.offset0)
        groups += _simd(inner, data_type, desc.offset0)
    return groups


def _group(kind: str, elements: int, start: int, label: str) -> dict[str, Any]:
    """Return one group."""
    return {"kind": kind, "elements": elements, "start": start, "label": label}


def _dense_inner_digits(layout: Layout) -> list[AxisDigit]:
    """Return the inner digits that fill memory without a gap, the innermost first."""
    run, dense = 1, []
    for place in reversed(places(layout)):
        if not place.is_inner or place.stride != run:
            break
        dense.append(place)
        run *= place.extent
    return dense


def _vnni(
    inner: Sequence[AxisDigit], data_type: DataType, names: Sequence[str], start: int
) -> Iterator[dict[str, Any]]:
    """Yield the group of one lane, if the innermost of several blocks fills it."""
    if len(inner) > 1 and data_type.name in _DOT_TYPES and inner[0].extent * data_type.bits == _LANE_BITS:
        what = f"{inner[0].extent} values of {digit_in_words(inner[0], names)}"
        yield _group("vnni", inner[0].extent, start, f"VNNI: {what}, one lane of {_LANE_BITS} bits of a dot product")


def _simd(inner: Sequence[AxisDigit], data_type: DataType, start: int) -> Iterator[dict[str, Any]]:
    """Yield the group of the widest register that whole inner blocks fill."""
    elements, found = 1, 0
    for place in inner:
        elements *= place.extent
        if elements * data_type.bits in _REGISTERS:
            found = elements
    if found:
        bits = found * data_type.bits
        text = f"SIMD: {found} values, one register of {bits} bits ({_REGISTERS[bits]})"
        yield _group("simd", found, start, text)
