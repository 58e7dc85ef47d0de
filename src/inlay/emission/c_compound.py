"""Readable C99 for a compound format: a function that unpacks a tensor to floats, and one that assembles its streams.

For ggml's Q4_0 of (3, 64), a number is read from its bit fields, and its value is computed in f32:

    static float q_read_quants(const uint8_t *src, int64_t a, int64_t b)
    {
        uint32_t bits = q_load_bits(src, 16 + a * 288 + b / 32 * 144 + b / 16 % 2 * 4 + b % 16 * 8, 4);
        return (float)((int32_t)bits - 8);
    }

    float value = q_read_quants(src, a, b);
    value *= q_read_scale(src, a, b / 32);
    dst[a * 64 + b] = value;

Every operation rounds to f32, so values are those of `CompoundMemory.unpack`. The code uses <stdint.h> and <string.h>,
and <math.h> for a codebook with infinities or NaNs: floats of 16 and 8 bits are decoded from their bits (`c_floats`).
It must not be compiled with `-ffast-math`, nor with fused multiply-adds (gcc: `-std=c99` or `-ffp-contract=off`).
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod

import numpy as np

from inlay.data_type import DATA_TYPES
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import Stream
from inlay.emission.c_floats import float_decoder
from inlay.emission.c_header import header_text
from inlay.emission.c_names import identifiers, letters
from inlay.emission.c_text import comment, float_literal, function_text, indented, nested_loops
from inlay.emission.loops import layout_terms, offset_expression
from inlay.layout import Dims, Layout

_TYPES = {
    "u8": "uint8_t",
    "s8": "int8_t",
    "s32": "int32_t",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
    "f8_e4m3": "uint8_t",
}
"""C types of the numbers of streams, by data type; f16, bf16 and f8 as their bits."""


_EXACT_BITS = 24
"""Integers of up to this number of bits are exact in f32."""


def compound_source(name: str, desc: CompoundDesc) -> str:
    """Return a C source file with the functions `NAME_unpack` and `NAME_assemble` of a tensor in a compound format.

    Post-conditions: NAME_unpack writes what `CompoundMemory.unpack` returns; NAME_assemble writes the buffer that
    `assemble` returns.
    """
    streams = [one for one in desc.format.streams if one.name in _used_names(desc)]
    texts = [_LOAD_BITS.replace("NAME", name), _STORE_BITS.replace("NAME", name)]
    floats = dict.fromkeys(stream.data_type for stream in streams if _is_float(stream))
    texts += [float_decoder(f"{name}_decode_{data_type}", DATA_TYPES[data_type]) for data_type in floats]
    for stream in streams:
        texts += _reader(name, desc, stream)
    texts += [_unpack_function(name, desc), _assemble_function(name, desc)]
    declarations = "".join(f"{prototype};\n" for _, prototype in _declarations(name, desc))
    math = "" if np.isfinite([value for one in streams for value in one.codebook]).all() else "#include <math.h>\n"
    return f"{math}#include <stdint.h>\n#include <string.h>\n\n{declarations}\n" + "\n".join(texts)


def compound_header(name: str, desc: CompoundDesc, note: Sequence[str] = (), *, only_unpack: bool = False) -> str:
    """Return the header of `NAME_unpack` and, unless `only_unpack`, of `NAME_assemble`."""
    sizes = [(f"{name.upper()}_BYTES", desc.size), (f"{name.upper()}_VALUES_BYTES", 4 * prod(desc.dims))]
    declarations = _declarations(name, desc)
    return header_text(name, sizes, declarations[:1] if only_unpack else declarations, note)


def _declarations(name: str, desc: CompoundDesc) -> list[tuple[str, str]]:
    """Return the comments and prototypes of the functions, without semicolons."""
    dims = "x".join(map(str, desc.dims))
    arrays = ", ".join(
        f"{stream.name} {'x'.join(map(str, desc.stream_dims(stream.name)))}"
        + (f" ({stream.data_type} bits)" if _is_float(stream) else "")
        + (" or a null pointer for zeros" if stream.is_optional else "")
        for stream in desc.format.streams
    )
    parameters = [
        f"const {_TYPES[stream.data_type]} *{parameter}"
        for stream, parameter in zip(desc.format.streams, _parameters(name, desc), strict=True)
    ]
    return [
        (
            comment(f"{desc}, {desc.size} bytes -> values as f32, {dims} in row-major order"),
            f"void {name}_unpack(const uint8_t *src, float *dst)",
        ),
        (
            comment(f"row-major arrays {arrays}\n   -> {desc}, {desc.size} bytes"),
            f"void {name}_assemble({', '.join(parameters)}, uint8_t *dst)",
        ),
    ]


def _is_float(stream: Stream) -> bool:
    """Return whether the numbers of a stream are floats, of which the code handles the bits."""
    return stream.limits is None


def _used_names(desc: CompoundDesc) -> tuple[str, ...]:
    """Return the names of the streams of which values are computed."""
    return (desc.format.values.name, *desc.format.scales, *desc.format.minima)


def _parameters(name: str, desc: CompoundDesc) -> tuple[str, ...]:
    """Return an identifier for each stream that is no name of an axis, a local variable or a called function."""
    taken = (*letters(len(desc.dims)), "value", "bits", "number", "scale_product", "minimum_product")
    names = [stream.name for stream in desc.format.streams]
    return identifiers(names, (*taken, *(f"{name}_{function}" for function in ("load_bits", "store_bits"))))


def _identifier(name: str, desc: CompoundDesc, stream: str) -> str:
    """Return the identifier of the stream called `stream`."""
    names = [one.name for one in desc.format.streams]
    return _parameters(name, desc)[names.index(stream)]


_LOAD_BITS = """static uint32_t NAME_load_bits(const uint8_t *src, int64_t at, int width)
{
    const int shift = (int)(at % 8);
    uint64_t bits = 0;
    for (int i = 0; i * 8 < shift + width; i++) {
        bits |= (uint64_t)src[at / 8 + i] << (i * 8);
    }
    return (uint32_t)((bits >> shift) & ((UINT64_C(1) << width) - 1));
}
"""
_STORE_BITS = """static void NAME_store_bits(uint8_t *dst, int64_t at, int width, uint32_t number)
{
    const int shift = (int)(at % 8);
    const uint64_t bits = ((uint64_t)number & ((UINT64_C(1) << width) - 1)) << shift;
    for (int i = 0; i * 8 < shift + width; i++) {
        dst[at / 8 + i] = (uint8_t)(dst[at / 8 + i] | ((bits >> (i * 8)) & 255));
    }
}
"""


def _reader(name: str, desc: CompoundDesc, stream: Stream) -> Iterator[str]:
    """Yield the codebook of a stream, if any, and the function that returns the value of its number at a coordinate."""
    axes, text = letters(len(desc.dims)), _identifier(name, desc, stream.name)
    if stream.codebook:
        yield _codebook(f"{name}_codebook_{text}", stream)
    parameters = "".join(f", int64_t {axis}" for axis in axes)
    loads, expressions = [], []
    for field in desc.fields(stream.name):
        terms = layout_terms(field.layout, axes)
        expressions += terms
        load = f"{name}_load_bits(src, {offset_expression(field.offset, terms)}, {field.width})"
        loads.append(f"{load} << {field.shift}" if field.shift else load)
    unused = [axis for axis in axes if not any(term.split(" ")[0] == axis for term in expressions)]
    lines = [f"uint32_t bits = {loads[0]};", *(f"bits |= {load};" for load in loads[1:])]
    lines += [f"(void){axis};" for axis in unused]
    lines.append(f"return {_decoded(name, text, stream)};")
    yield function_text(f"static float {name}_read_{text}(const uint8_t *src{parameters})", indented(lines))


def _codebook(name: str, stream: Stream) -> str:
    """Return the definition of the values of codes."""
    values = [float(np.float32(value)) for value in stream.codebook]
    texts = [float_literal(value) for value in values]
    lines = indented(f"{', '.join(texts[i : i + 4])}," for i in range(0, len(texts), 4))
    return f"static const float {name}[{len(values)}] = {{\n{lines}}};\n"


def _decoded(name: str, text: str, stream: Stream) -> str:
    """Return the expression of the value that the bits of a number stand for."""
    if stream.codebook:
        return f"{name}_codebook_{text}[bits]"
    if _is_float(stream):
        return f"{name}_decode_{stream.data_type}(bits)"
    number = "(int32_t)bits"
    if stream.data_type[0] == "s" and stream.bits < 32:
        sign = 1 << stream.bits - 1
        number = f"((int32_t)(bits ^ {sign}) - {sign})"
    if stream.zero and max(stream.bits, abs(stream.zero).bit_length()) > _EXACT_BITS:
        return f"(float){number} - {np.float32(stream.zero)}f"
    return f"(float)({number} - {stream.zero})" if stream.zero else f"(float){number}"


def _loops(dims: Dims, lines: Iterable[str]) -> str:
    """Return loops over all coordinates around these lines."""
    return nested_loops(list(zip(letters(len(dims)), dims, strict=True)), lines)


def _unpack_function(name: str, desc: CompoundDesc) -> str:
    """Return the definition of the function that computes the values."""
    fmt, axes = desc.format, letters(len(desc.dims))
    lines = [f"float value = {_call(name, desc, fmt.values.name)};"]
    for product, streams, operator in (
        ("scale_product", fmt.scales, "*="),
        ("minimum_product", fmt.minima, "+=" if fmt.adds_minimum else "-="),
    ):
        calls = [_call(name, desc, stream) for stream in streams]
        if len(calls) > 1:
            lines += [f"float {product} = {calls[0]};", *(f"{product} *= {call};" for call in calls[1:])]
        if calls:
            lines.append(f"value {operator} {calls[0] if len(calls) == 1 else product};")
    lines.append(f"dst[{offset_expression(0, layout_terms(Layout.row_major(desc.dims), axes))}] = value;")
    remark, prototype = _declarations(name, desc)[0]
    return f"{remark}\n{function_text(prototype, _loops(desc.dims, lines))}"


def _call(name: str, desc: CompoundDesc, stream: str) -> str:
    """Return the call that reads the number of a stream for the element at the loops' indices."""
    groups = zip(letters(len(desc.dims)), desc.group(stream), strict=True)
    coordinates = [f"{axis} / {group}" if group > 1 else axis for axis, group in groups]
    return f"{name}_read_{_identifier(name, desc, stream)}({', '.join(['src', *coordinates])})"


def _assemble_function(name: str, desc: CompoundDesc) -> str:
    """Return the definition of the function that writes all streams."""
    body = indented([f"memset(dst, 0, {desc.size});"])
    for stream, parameter in zip(desc.format.streams, _parameters(name, desc), strict=True):
        body += _loops(desc.fields(stream.name)[0].layout.dims, _stores(name, desc, stream, parameter))
    remark, prototype = _declarations(name, desc)[1]
    return f"{remark}\n{function_text(prototype, body)}"


def _stores(name: str, desc: CompoundDesc, stream: Stream, parameter: str) -> Iterator[str]:
    """Yield the statements that write one number of a stream, or its padding."""
    fields, dims = desc.fields(stream.name), desc.stream_dims(stream.name)
    axes, stored = letters(len(dims)), fields[0].layout.dims
    beyond = [i for i, (dim, padded) in enumerate(zip(dims, stored, strict=True)) if padded > dim]
    coordinates = list(axes)
    conditions = [parameter] if stream.is_optional else []
    for i in beyond:
        if desc.format.repeats_edge:
            coordinates[i] = f"({axes[i]} < {dims[i]} ? {axes[i]} : {dims[i] - 1})"
        else:
            conditions.append(f"{axes[i]} < {dims[i]}")
    value = f"{parameter}[{offset_expression(0, layout_terms(Layout.row_major(dims), tuple(coordinates)))}]"
    condition = " && ".join(conditions)
    if stream.data_type == "f32":
        yield f"const float value = {condition} ? {value} : 0;" if condition else f"const float value = {value};"
        yield "uint32_t bits;"
        yield "memcpy(&bits, &value, sizeof bits);"
    else:
        bits = f"(uint32_t){value}"
        yield f"const uint32_t bits = {condition} ? {bits} : 0;" if condition else f"const uint32_t bits = {bits};"
    for field in fields:
        at = offset_expression(field.offset, layout_terms(field.layout, axes))
        yield f"{name}_store_bits(dst, {at}, {field.width}, {f'bits >> {field.shift}' if field.shift else 'bits'});"
