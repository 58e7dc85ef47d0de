"""Conversions between data types in emitted C: a function of one element, with the results of Inlay's own reorders.

    integer -> integer     clamped to the range of the destination
    integer -> float       rounded to nearest, ties to even; s64 -> f32 through f64
    float   -> integer     rounded to nearest, ties to even, and clamped; a NaN becomes 0
    f32    <-> f64         a cast
    bf16                   widened to f32 by a shift; rounded from f32 to nearest, ties to even

Decision 0007 explains the working types. The functions use no library, so they round by comparing remainders; they must
not be compiled with `-ffast-math`. The other conversions (f16, f8, f4, e8m0, and 64-bit numbers to bf16) need long
algorithms; the `object` form has them.
"""

import numpy as np

from inlay.data_type import DataType
from inlay.emission.c_names import element_type
from inlay.errors import Unimplemented

_FLOATS = ("f32", "f64", "bf16")


def require_conversion(src: DataType, dst: DataType) -> None:
    """Check that the C form converts from `src` to `dst`.

    Raises:
        Unimplemented: it does not.
    """
    if src == dst:
        return
    for data_type in (src, dst):
        if data_type.kind in ("float", "bits") and data_type.name not in _FLOATS:
            raise Unimplemented(_refusal(src, dst, f"{data_type} needs"))
    if dst == "bf16" and src.bits == 64:
        raise Unimplemented(_refusal(src, dst, f"{src} rounded once to bf16 needs"))


def _refusal(src: DataType, dst: DataType, reason: str) -> str:
    """Return the text of the error about a conversion."""
    return (
        f"the c form does not convert {src} to {dst}: {reason} a long algorithm on its bits; it converts between "
        "integers, f32, f64 and bf16. Use form='object', which converts every pair, or equal types"
    )


def conversion_function(name: str, src: DataType, dst: DataType) -> str:
    """Return the C function `name` that converts one element from `src` to `dst`.

    Precondition: `require_conversion` accepts the pair, and the types differ.
    """
    working = _working_type(src, dst)
    lines = _decode(src, working) + (_to_integer(src, dst, working) if dst.kind != "float" else _to_float(dst))
    body = "\n".join(f"    {line}" for line in lines)
    return f"static {element_type(dst)} {name}({element_type(src)} element)\n{{\n{body}\n}}\n"


def _working_type(src: DataType, dst: DataType) -> str:
    """Return the C type of the number between decoding and encoding."""
    if src.kind != "float" and dst.kind != "float":
        return "int64_t"
    return "double" if 64 in (src.bits, dst.bits) else "float"


def _decode(src: DataType, working: str) -> list[str]:
    """Return statements that define `value`, the number that `element` encodes."""
    if src == "bf16":
        return [
            "const uint32_t bits = (uint32_t)element << 16;",
            f"{working} value;",
            "float widened;",
            "memcpy(&widened, &bits, sizeof widened);",
            "value = widened;",
        ]
    if src == "s4":
        return [f"{working} value = ({working})((element ^ 8) - 8);"]
    return [f"{working} value = ({working})element;"]


def _to_float(dst: DataType) -> list[str]:
    """Return statements that return `value`, a number of the working type, as a float."""
    if dst == "bf16":
        return [
            "uint32_t code;",
            "memcpy(&code, &value, sizeof code);",
            "if ((code & 0x7FFFFFFFu) > 0x7F800000u) {",
            "    return (uint16_t)(code >> 16 | 0x40u); /* a quiet NaN */",
            "}",
            "code += 0x7FFFu + (code >> 16 & 1u); /* to nearest, ties to even */",
            "return (uint16_t)(code >> 16);",
        ]
    return [f"return ({element_type(dst)})value;"]


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
