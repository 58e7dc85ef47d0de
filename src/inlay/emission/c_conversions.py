"""Conversions between data types in emitted C: a function of one element, with the results of Inlay's own reorders.

    integer -> integer     clamped to the range of the destination
    integer -> float       rounded to nearest, ties to even; s64 -> f32 through f64
    float   -> integer     rounded to nearest, ties to even, and clamped; a NaN becomes 0
    float   -> float       exact, or rounded to nearest, ties to even

Decision 0007 explains the working types. The functions use no library but memcpy, so they round by comparing
remainders; they must not be compiled with `-ffast-math`. Functions of `c_floats` decode and round f16, bf16, f8, f4 and
e8m0.
"""

import numpy as np

from inlay.data_type import DataType
from inlay.emission.c_floats import float_decoder, float_encoder
from inlay.emission.c_names import element_type
from inlay.emission.c_text import function_text, indented

_C_FLOATS = ("f32", "f64")
"""The float types that C has."""


def conversion_functions(name: str, src: DataType, dst: DataType) -> list[str]:
    """Return the C function `NAME_convert`, which converts one element from `src` to `dst`, after those that it calls.

    Precondition: the types differ, and both are numbers.
    """
    texts, working = [], _working_type(src, dst)
    value = "element" if element_type(src) == working else f"({working})element"
    result = "return value;" if element_type(dst) == working else f"return ({element_type(dst)})value;"
    if src == "s4":
        value = f"({working})((element ^ 8) - 8)"
    if src.kind == "float" and src.name not in _C_FLOATS:
        decoder = f"{name}_decode_{src}"
        texts.append(float_decoder(decoder, src))
        value = f"{decoder}(element)" if working == "float" else f"(double){decoder}(element)"
    if dst.kind == "float" and dst.name not in _C_FLOATS:
        encoder = f"{name}_encode_{dst}"
        texts.append(float_encoder(encoder, dst, "f32" if working == "float" else "f64"))
        result = f"return {encoder}(value);"
    lines = [f"{working} value = {value};", *([result] if dst.kind == "float" else _to_integer(src, dst, working))]
    prototype = f"static {element_type(dst)} {name}_convert({element_type(src)} element)"
    return [*texts, function_text(prototype, indented(lines))]


def _working_type(src: DataType, dst: DataType) -> str:
    """Return the C type of the number between decoding and encoding."""
    if src.kind != "float" and dst.kind != "float":
        return "int64_t"
    return "double" if 64 in (src.bits, dst.bits) else "float"


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
