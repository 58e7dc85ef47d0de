"""Where one element lies, in words: the digits of its coordinate and what each adds to the offset.

Every line is one axis; the coordinate is split into the digits of the axis, and each digit times its stride adds up.
"""

from inlay.descriptor import MemoryDesc
from inlay.format_tag import FormatTag
from inlay.layout import Digit, Dims
from inlay.render.names import axis_names


def explain_offset(desc: MemoryDesc, coordinate: Dims) -> str:
    """How the offset of `coordinate` comes about, one line per axis; offsets count elements unless they say bytes.

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
    tag = desc.spelling or desc.tag
    names = axis_names(desc.ndims, None if tag is None else FormatTag.parse(tag))
    rows = [_axis_row(name, x, digits) for name, x, digits in zip(names, coordinate, desc.digits, strict=True)]
    number, sums, part = (max(len(row[i]) for row in rows) for i in (2, 3, 4))
    width = max(len(row[1]) for row in rows)
    lines = [_title(desc)]
    for name, x, spelled, terms, total in rows:
        lines.append(f"  {name} = {x:>{width}}{spelled:<{number}}    {terms:<{sums}}    {total:>{part}}")
    if desc.offset0:
        lines.append(f"  offset0 {desc.offset0}")
    return "\n".join([*lines, f"element offset {element}, byte offset {byte}"])


def _title(desc: MemoryDesc) -> str:
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
