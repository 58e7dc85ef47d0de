"""Readable C99 for a reorder or a layout: loops from the digits, and no dependency but <stdint.h> and <string.h>.

For nChw8c of (2, 17, 5, 4), the function that packs is

    for (int64_t n = 0; n < 2; n++) {
        for (int64_t c0 = 0; c0 < 3; c0++) {
            for (int64_t h = 0; h < 5; h++) {
                for (int64_t w = 0; w < 4; w++) {
                    for (int64_t c1 = 0; c1 < 8; c1++) {
                        const int64_t c = c0 * 8 + c1;
                        dst[n * 480 + c0 * 160 + c1 + h * 32 + w * 8] = c < 17 ? src[n * 340 + c * 20 + ...] : 0;

Padding of the destination is set to zero; bytes that belong to no stored coordinate are not written, nor is the other
half of a byte of which 4 bits are written. A swizzle is a term on the offset, `x ^ ((x & 448) >> 3)`. The code is
meant to be read and ported; the `object` form is fast.
"""

from collections.abc import Iterable, Iterator

from inlay.descriptor import MemoryDesc
from inlay.emission.c_conversions import conversion_functions
from inlay.emission.c_names import axis_variables
from inlay.emission.c_text import INDENT, function_text, indented, nested_loops
from inlay.emission.functions import EmittedFunction, without_swizzle
from inlay.emission.loops import (
    CAxis,
    build_axes,
    coordinate_terms,
    offset_expression,
    quotient,
    sorted_loops,
    swizzled,
    times,
)
from inlay.reordering.problem import ValueLayout, value_layout


def c_source(functions: Iterable[EmittedFunction], offset: tuple[str, MemoryDesc] | None = None) -> str:
    """Return a C source file with these functions and, for a name and a descriptor, the function `NAME_offset`.

    Raises:
        InvalidArguments: as `EmittedFunction.problem`.
        Unimplemented: as `EmittedFunction.problem`.
    """
    texts, prototypes = [], c_prototypes(functions, offset)
    if offset is not None:
        texts.append(function_text(prototypes[0], _offset_body(offset[1])))
    for function in functions:
        function.problem()
        texts += _function_texts(function)
    includes = ["stdint.h", *(["string.h"] if any("memcpy(" in text for text in texts) else [])]
    preamble = [*(f"#include <{include}>" for include in includes), "", *(f"{line};" for line in prototypes), ""]
    return "\n".join(["\n".join(preamble), *texts])


def c_prototypes(functions: Iterable[EmittedFunction], offset: tuple[str, MemoryDesc] | None = None) -> list[str]:
    """Return the declarations of the functions of `c_source`, without semicolons; first that of the offset function."""
    prototypes = [function.prototype for function in functions]
    if offset is None:
        return prototypes
    name, desc = offset
    coordinates = ", ".join(f"int64_t {axis}" for axis in axis_variables(desc)) or "void"
    return [f"int64_t {name}_offset({coordinates})", *prototypes]


def _offset_body(desc: MemoryDesc) -> str:
    """Return the body of the offset function of a descriptor."""
    names = axis_variables(desc)
    terms = coordinate_terms(without_swizzle(desc), names)
    unused = [name for name in names if not any(term.split(" ")[0] == name for term in terms)]
    lines = [f"(void){name};" for name in unused]
    if desc.swizzle is None:
        lines.append(f"return {offset_expression(desc.offset0, terms)};")
    else:
        lines.append(f"const int64_t linear = {offset_expression(0, terms)};")
        lines.append(f"return {swizzled(desc.offset0, 'linear', desc.swizzle)};")
    return indented(lines)


def _function_texts(function: EmittedFunction) -> list[str]:
    """Return the definitions of one function: those it calls for single elements, then its own."""
    name, texts = function.name, []
    is_empty, attributes = 0 in function.dst.padded_dims, function.attributes
    if 0 not in function.src.dims:
        if function.src_type.is_sub_byte or (function.dst_type.is_sub_byte and attributes.sum is not None):
            texts.append(_LOAD4.replace("NAME", name))
        if function.converts:
            texts += conversion_functions(name, function.src_type, function.dst_type, attributes)
    if not is_empty and function.dst_type.is_sub_byte:
        texts.append(_STORE4.replace("NAME", name))
    unused = [f"(void){parameter};" for parameter in ("src", "dst", *attributes.names)]
    body = indented(unused) if is_empty else _function_body(function)
    return [*texts, f"{function.comment}\n{function_text(function.prototype, body)}"]


_LOAD4 = """static uint8_t NAME_load4(const uint8_t *bytes, int64_t i)
{
    return (uint8_t)((bytes[i / 2] >> (i % 2 * 4)) & 15);
}
"""
_STORE4 = """static void NAME_store4(uint8_t *bytes, int64_t i, uint8_t element)
{
    const int shift = (int)(i % 2 * 4);
    bytes[i / 2] = (uint8_t)((bytes[i / 2] & (0xF0 >> shift)) | (element << shift));
}
"""


def _function_body(function: EmittedFunction) -> str:
    """Return the body of a function that writes at least one element."""
    names = axis_variables(function.src, function.dst)
    layouts = {v: value_layout(function.attributes.entry(v), function.src.dims) for v in function.attributes.names}
    used = [name for layout in layouts.values() if layout for name, n in zip(names, layout.strides, strict=True) if n]
    axes = build_axes(without_swizzle(function.src), without_swizzle(function.dst), names, used)
    loops = [(loop.variable, loop.extent) for loop in sorted_loops(axes)]
    values = [f"{v}[{_value_index(layout, names)}]" for v, layout in layouts.items()]
    return nested_loops(loops, _element_lines(function, axes, values))


def _value_index(layout: ValueLayout | None, names: tuple[str, ...]) -> str:
    """Return the index of the value of an attribute that belongs to the coordinate with these names.

    >>> _value_index(ValueLayout((0, 4, 1), (1, 32, 1)), ("a", "b", "c")), _value_index(None, ("a",))
    ('b / 32 * 4 + c', '0')
    """
    if layout is None:
        return "0"
    parts = zip(names, layout.groups, layout.strides, strict=True)
    return offset_expression(0, [times(quotient(name, group), stride) for name, group, stride in parts if stride])


def _element_lines(function: EmittedFunction, axes: tuple[CAxis, ...], values: list[str]) -> Iterator[str]:
    """Yield the statements that move one element, with these values of attributes."""
    has_data = 0 not in function.src.dims
    for axis in axes:
        if axis.coordinate:
            yield f"const int64_t {axis.name} = {axis.coordinate};"
            if not has_data:
                yield f"(void){axis.name};"
    beyond = [f"{axis.name} >= {axis.stored}" for axis in axes if axis.covered > axis.stored]
    if beyond:
        yield f"if ({' || '.join(beyond)}) {{"
        yield f"{INDENT}continue; /* part of a block that is not stored */"
        yield "}"
    offsets = []
    for side, desc in (("src", function.src), ("dst", function.dst)):
        terms = [term for axis in axes for term in (axis.src_terms if side == "src" else axis.dst_terms)]
        if desc.swizzle is None:
            offsets.append(offset_expression(desc.offset0, terms))
            continue
        if side == "dst" or has_data:
            yield f"const int64_t {side}_linear = {offset_expression(0, terms)};"
        offsets.append(swizzled(desc.offset0, f"{side}_linear", desc.swizzle))
    value = _value(function, (offsets[0], offsets[1]), values)
    is_data = " && ".join(f"{axis.name} < {axis.data}" for axis in axes if min(axis.covered, axis.stored) > axis.data)
    if not has_data:
        yield from (f"(void){parameter};" for parameter in ("src", *function.attributes.names))
        value = "0"
    elif is_data:
        value = f"{is_data} ? {value} : 0"
    if function.dst_type.is_sub_byte:
        yield f"{function.name}_store4(dst, {offsets[1]}, (uint8_t)({value}));"
    else:
        yield f"dst[{offsets[1]}] = {value};"


def _value(function: EmittedFunction, offsets: tuple[str, str], values: list[str]) -> str:
    """Return the expression of the element to write, for these offsets in source and destination."""
    src, dst = (
        f"{function.name}_load4({side}, {offset})" if data_type.is_sub_byte else f"{side}[{offset}]"
        for side, offset, data_type in zip(("src", "dst"), offsets, (function.src_type, function.dst_type), strict=True)
    )
    if not function.converts:
        return src
    arguments = [src, *values, *([dst] if function.attributes.sum is not None else [])]
    return f"{function.name}_convert({', '.join(arguments)})"
