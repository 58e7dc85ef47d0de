"""Conversions between data types in emitted C: a function of one element, with the results of Inlay's own reorders.

    integer -> integer     clamped to the range of the destination
    integer -> float       rounded to nearest, ties to even; s64 -> f32 through f64
    float   -> integer     rounded to nearest, ties to even, and clamped; a NaN becomes 0
    float   -> float       exact, or rounded to nearest, ties to even

With attributes, the function computes their formula in f32 or f64, in one statement for each operation.

Decision 0007 explains the working types. The functions use no library but memcpy, so they round by comparing
remainders; they must not be compiled with `-ffast-math`. Functions of `c_floats` decode and round f16, bf16, f8, f4 and
e8m0.
"""

from collections.abc import Iterator

import numpy as np

from inlay.data_type import DataType
from inlay.emission.c_floats import float_decoder, float_encoder
from inlay.emission.c_names import element_type
from inlay.emission.c_text import float_literal, function_text, indented
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.problem import working_type

_WORKING = {"float": "f32", "double": "f64"}
"""The float types that C has, and their data types."""


def conversion_functions(name: str, src: DataType, dst: DataType, attributes: Attributes = PLAIN) -> list[str]:
    """Return the C function `NAME_convert`, which converts one element from `src` to `dst`, after those that it calls.

    Its parameters are the element, the value of each attribute, and the old element of the destination for a sum.

    Precondition: the types differ or attributes compute, both types are numbers, and rounding is to nearest.
    """
    working = _working_type(src, dst, attributes)
    values = {value: attributes.entry(value).type.widened for value in attributes.names}
    texts = {
        kind: float_decoder(f"{name}_decode_{kind}", kind)
        for kind in (src, *values.values(), *((dst,) if attributes.sum is not None else ()))
        if _is_narrow_float(kind)
    }
    lines = [f"{working} value = {_decoded(name, 'element', src, working)};"]
    lines += _formula_steps(name, dst, attributes, working)
    if dst.kind != "float":
        lines += _to_integer(src, dst, working)
    elif _is_narrow_float(dst):
        lines.append(f"return {name}_encode_{dst}(value);")
    else:
        lines.append("return value;" if element_type(dst) == working else f"return ({element_type(dst)})value;")
    encoders = [float_encoder(f"{name}_encode_{dst}", dst, _WORKING[working])] if _is_narrow_float(dst) else []
    parameters = [f"{element_type(src)} element", *(f"{element_type(kind)} {v[:-1]}" for v, kind in values.items())]
    parameters += [f"{element_type(dst)} old"] if attributes.sum is not None else []
    prototype = f"static {element_type(dst)} {name}_convert({', '.join(parameters)})"
    return [*texts.values(), *encoders, function_text(prototype, indented(lines))]


def _is_narrow_float(data_type: DataType) -> bool:
    """Return whether a type is a float that C does not have."""
    return data_type.kind == "float" and data_type.name not in _WORKING.values()


def _working_type(src: DataType, dst: DataType, attributes: Attributes) -> str:
    """Return the C type of the number between decoding and encoding."""
    if src.kind != "float" and dst.kind != "float" and not attributes.computes:
        return "int64_t"
    return "double" if working_type(src, dst, attributes, 1.0) == "f64" else "float"


def _decoded(name: str, element: str, data_type: DataType, working: str) -> str:
    """Return the expression of the number that an element encodes."""
    if _is_narrow_float(data_type):
        number = f"{name}_decode_{data_type}({element})"
        return number if working == "float" else f"({working}){number}"
    if data_type == "s4":
        return f"({working})(({element} ^ 8) - 8)"
    return element if element_type(data_type) == working else f"({working}){element}"


def _formula_steps(name: str, dst: DataType, attributes: Attributes, working: str) -> Iterator[str]:
    """Yield the statements of the formula on `value`, each of which rounds once."""
    numbers = {v: _decoded(name, v[:-1], attributes.entry(v).type.widened, working) for v in attributes.names}
    if attributes.src_zero_points:
        yield f"value -= {numbers['src_zero_points']};"
    if attributes.src_scales:
        yield f"value *= {numbers['src_scales']};"
    if attributes.sum is not None:
        yield f"{working} addend = {_decoded(name, 'old', dst, working)};"
        yield f"addend *= {float_literal(attributes.sum, 'f' if working == 'float' else '')};"
        yield "value += addend;"
    if attributes.dst_scales:
        yield f"value /= {numbers['dst_scales']};"
    if attributes.dst_zero_points:
        yield f"value += {numbers['dst_zero_points']};"


def _to_integer(src: DataType, dst: DataType, working: str) -> list[str]:
    """Return statements that return `value` as an integer, rounded and clamped."""
    if working == "int64_t":
        return [*_clamp(src, dst), _encoded(dst, "value")]
    number = np.float64 if working == "double" else np.float32
    low, high = int(dst.lowest), int(dst.highest)
    greatest = number(high)
    if int(greatest) > high:
        greatest = np.nextafter(greatest, number(0))
    suffix = "" if working == "double" else "f"
    return [
        "int64_t nearest;",
        f"{working} rest;",
        "if (value != value) {",
        "    return 0;",
        "}",
        f"if (value > {int(greatest)}.0{suffix}) {{",
        f"    value = {int(greatest)}.0{suffix};",
        "}",
        f"if (value < {low}.0{suffix}) {{",
        f"    value = {low}.0{suffix};",
        "}",
        "nearest = (int64_t)value; /* toward zero */",
        f"rest = value - ({working})nearest;",
        f"if (rest > 0.5{suffix} || (rest == 0.5{suffix} && nearest % 2 != 0)) {{",
        "    nearest += 1;",
        "}",
        f"if (rest < -0.5{suffix} || (rest == -0.5{suffix} && nearest % 2 != 0)) {{",
        "    nearest -= 1;",
        "}",
        _encoded(dst, "nearest"),
    ]


def _clamp(src: DataType, dst: DataType) -> list[str]:
    """Return statements that clamp the integer `value` to the range of `dst`, where `src` exceeds it."""
    lines = []
    for is_beyond, sign, limit in (
        (src.highest > dst.highest, ">", int(dst.highest)),
        (src.lowest < dst.lowest, "<", int(dst.lowest)),
    ):
        if is_beyond:
            lines += [f"if (value {sign} {limit}) {{", f"    value = {limit};", "}"]
    return lines


def _encoded(dst: DataType, value: str) -> str:
    """Return the statement that returns the integer `value`, which is in the range of `dst`, as an element."""
    return f"return (uint8_t)({value} & 15);" if dst.is_sub_byte else f"return ({element_type(dst)}){value};"
