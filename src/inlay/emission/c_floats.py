r"""Narrow floats in emitted C: functions that decode the bits of an element, and that round a number to one.

    >>> from inlay.data_type import DATA_TYPES
    >>> print(float_decoder("decode_f8_e4m3", DATA_TYPES["f8_e4m3"]))
    static float decode_f8_e4m3(uint32_t bits)
    {
        const uint32_t magnitude = bits & 0x7Fu;
        uint32_t code = (magnitude << 20) + 0x3C000000u; /* the fields of an f32 */
        float value;
        if (magnitude < 0x8u) {
            value = (float)magnitude * 0x1p-9f; /* zero or subnormal */
            memcpy(&code, &value, sizeof code);
        }
        if (magnitude > 0x7Eu) {
            code = 0x7FC00000u; /* NaN */
        }
        code |= (bits & 0x80u) << 24;
        memcpy(&value, &code, sizeof value);
        return value;
    }
    <BLANKLINE>

Both work on the fields of the formats in `FLOAT_FORMATS` and use no library but memcpy. Their integers need no rounding
mode, nor a subnormal number of f32 on the way, which some programs flush to zero.
"""

from inlay.data_type import FLOAT_FORMATS, DataType, FloatFormat
from inlay.emission.c_text import INDENT, function_text, indented

_F32 = FLOAT_FORMATS["f32"]


def float_decoder(name: str, data_type: DataType) -> str:
    """Return the C function `name`, which returns the number of the bits of a float as an f32.

    Precondition: every number of the type is one of f32: it is e8m0, or a type of `FLOAT_FORMATS` but f64.

    Post-condition: the result is exact. A NaN keeps its sign and payload and is made quiet; a NaN of bf16 or f32 keeps
    every bit.
    """
    if data_type.is_exponent:
        lines = [
            "uint32_t code = bits << 23;",
            "float value;",
            "if (bits == 0) {",
            f"{INDENT}code = 0x400000u; /* 2**-127, a subnormal number */",
            "}",
            "if (bits == 0xFFu) {",
            f"{INDENT}code = 0x7FC00000u; /* NaN */",
            "}",
        ]
    else:
        lines = _fields_of_f32(FLOAT_FORMATS[data_type.name])
    lines += ["memcpy(&value, &code, sizeof value);", "return value;"]
    return function_text(f"static float {name}(uint32_t bits)", indented(lines))


def _fields_of_f32(form: FloatFormat) -> list[str]:
    """Return statements that define `code`, the bits of the f32 that equals the element with these `bits`."""
    if form.bias == _F32.bias:
        shift = f" << {32 - form.bits}" if form.bits < 32 else ""
        return [f"const uint32_t code = bits{shift};", "float value;"]
    widening = _F32.mantissa_bits - form.mantissa_bits
    lines = [
        f"const uint32_t magnitude = bits & {_hex((1 << form.bits - 1) - 1)};",
        f"uint32_t code = (magnitude << {widening}) + {_hex(_F32.bias - form.bias << _F32.mantissa_bits)};"
        " /* the fields of an f32 */",
        "float value;",
        f"if (magnitude < {_hex(1 << form.mantissa_bits)}) {{",
        f"{INDENT}value = (float)magnitude * 0x1p{form.lowest_exponent - form.mantissa_bits}f; /* zero or subnormal */",
        f"{INDENT}memcpy(&code, &value, sizeof code);",
        "}",
    ]
    if form.overflow == "infinity":
        lines += [
            f"if (magnitude >= {_hex(form.exponent_mask)}) {{",
            f"{INDENT}code = 0x7F800000u | magnitude << {widening}; /* infinity or NaN */",
            "}",
            f"if (magnitude > {_hex(form.exponent_mask)}) {{",
            f"{INDENT}code |= {_hex(_F32.quiet_bit)};",
            "}",
        ]
    if form.overflow == "nan":
        lines += [f"if (magnitude > {_hex(form.greatest_code)}) {{", f"{INDENT}code = 0x7FC00000u; /* NaN */", "}"]
    return [*lines, f"code |= (bits & {_hex(1 << form.bits - 1)}) << {32 - form.bits};"]


def float_encoder(name: str, data_type: DataType, working: str) -> str:
    """Return the C function `name`, which returns the bits of the float nearest to a number; ties go to even.

    Args:
        name: name of the function.
        data_type: e8m0, or a type of `FLOAT_FORMATS` with fewer bits than `working`.
        working: type of the number, `f32` or `f64`.

    Post-condition: numbers out of range become infinity, NaN in f8_e4m3, or the greatest number in f4_e2m1. A NaN keeps
    its sign and the first bits of its payload and is made quiet. e8m0 keeps the exponent alone.
    """
    wide = FLOAT_FORMATS[working]
    result = f"uint{max(data_type.bits, 8)}_t"
    lines = [
        f"uint{wide.bits}_t code;",
        "memcpy(&code, &value, sizeof code);",
        *(_encode_exponent(wide) if data_type.is_exponent else _round_fields(FLOAT_FORMATS[data_type.name], wide)),
    ]
    prototype = f"static {result} {name}({'float' if working == 'f32' else 'double'} value)"
    return function_text(prototype, indented(lines))


def _encode_exponent(wide: FloatFormat) -> list[str]:
    """Return statements that return the exponent of the number with the bits `code`, in e8m0."""
    field = f"code >> {wide.mantissa_bits} & {_hex((1 << wide.exponent_bits) - 1)}"
    if wide == _F32:
        return [f"return (uint8_t)({field});"]
    most = wide.bias - _F32.bias
    return [
        f"code = {field};",
        f"if (code < {most}) {{",
        f"{INDENT}return 0;",
        "}",
        f"return (uint8_t)(code > {most + 255} ? 255 : code - {most});",
    ]


def _round_fields(form: FloatFormat, wide: FloatFormat) -> list[str]:
    """Return statements that return the float nearest to the number with the bits `code`."""
    result, number = f"uint{max(form.bits, 8)}_t", f"uint{wide.bits}_t"
    narrowing, infinity = wide.mantissa_bits - form.mantissa_bits, _hex(wide.exponent_mask, wide)
    sign = f"(code >> {wide.bits - form.bits} & {_hex(1 << form.bits - 1, wide)})"
    lines = [
        f"{number} magnitude = code & {_hex((1 << wide.bits - 1) - 1, wide)};",
        f"const {result} sign = ({result}){sign};",
    ]
    shift = str(narrowing)
    is_rebiased = form.bias != wide.bias
    if is_rebiased:
        shift = "shift"
        lines.append(f"int shift = {narrowing}; /* bits of the mantissa to round off */")
    if form.overflow == "infinity":
        payload = f"(magnitude >> {narrowing} & {_hex((1 << form.mantissa_bits) - 1, wide)})"
        lines += [
            f"if (magnitude > {infinity}) {{",
            f"{INDENT}return ({result})(sign | {_hex(form.exponent_mask | form.quiet_bit, wide)} | {payload});"
            " /* NaN */",
            "}",
        ]
    if is_rebiased:
        lines += _align_subnormal(form, wide)
    half = f"(({number})1 << ({shift} - 1)) - 1" if is_rebiased else _hex((1 << narrowing - 1) - 1, wide)
    return [
        *lines,
        "/* to nearest, ties to even */",
        f"magnitude = (magnitude + {half} + (magnitude >> {shift} & 1)) >> {shift};",
        f"if (magnitude > {_hex(form.greatest_code)}) {{",
        f"{INDENT}magnitude = {_hex(form.overflow_code)}; /* out of range */",
        "}",
        f"return ({result})(sign | magnitude);",
    ]


def _align_subnormal(form: FloatFormat, wide: FloatFormat) -> list[str]:
    """Return statements that make of `magnitude` what is rounded to a code of `form` by dropping `shift` bits."""
    first = wide.bias + form.lowest_exponent
    implicit, most = 1 << wide.mantissa_bits, wide.mantissa_bits + 2
    return [
        f"if (magnitude < {_hex(first << wide.mantissa_bits, wide)}) {{",
        f"{INDENT}shift += {first} - (int)(magnitude >> {wide.mantissa_bits}); /* zero or subnormal */",
        f"{INDENT}shift = shift > {most} ? {most} : shift;",
        f"{INDENT}magnitude = (magnitude & {_hex(implicit - 1, wide)}) | {_hex(implicit, wide)};",
        "} else {",
        f"{INDENT}magnitude -= {_hex(first - 1 << wide.mantissa_bits, wide)};",
        "}",
    ]


def _hex(number: int, form: FloatFormat = _F32) -> str:
    """Return an unsigned literal of the width of a format.

    >>> _hex(1023), _hex(1 << 52, FLOAT_FORMATS["f64"])
    ('0x3FFu', 'UINT64_C(0x10000000000000)')
    """
    return f"UINT64_C(0x{number:X})" if form.bits == 64 else f"0x{number:X}u"
