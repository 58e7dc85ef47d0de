"""The text of C: comments, definitions of functions, nested loops, and numbers."""

from collections.abc import Iterable, Sequence
from math import isfinite, isnan

INDENT = "    "
"""Indentation of one block."""


def comment(text: str) -> str:
    """Return a comment; what would begin or end one inside it is spaced.

    >>> comment("a /* b */ c")
    '/* a / * b * / c */'
    """
    return f"/* {text.replace('*/', '* /').replace('/*', '/ *')} */"


def indented(lines: Iterable[str], depth: int = 1) -> str:
    """Return lines in a block of this depth."""
    return "".join(f"{INDENT * depth}{line}\n" for line in lines)


def function_text(prototype: str, body: str) -> str:
    """Return the definition of a function, whose body is indented.

    >>> print(function_text("int two(void)", indented(["return 2;"])), end="")
    int two(void)
    {
        return 2;
    }
    """
    return f"{prototype}\n{{\n{body}}}\n"


def nested_loops(loops: Sequence[tuple[str, int]], lines: Iterable[str]) -> str:
    """Return loops inside a function around these lines, for variables from 0 up to numbers of iterations.

    >>> print(nested_loops([("a", 2), ("b", 3)], ["dst[a * 3 + b] = 0;"]), end="")
        for (int64_t a = 0; a < 2; a++) {
            for (int64_t b = 0; b < 3; b++) {
                dst[a * 3 + b] = 0;
            }
        }
    """
    parts = [
        f"{INDENT * depth}for (int64_t {variable} = 0; {variable} < {extent}; {variable}++) {{\n"
        for depth, (variable, extent) in enumerate(loops, 1)
    ]
    parts.append(indented(lines, len(loops) + 1))
    parts += [f"{INDENT * depth}}}\n" for depth in range(len(loops), 0, -1)]
    return "".join(parts)


def float_literal(value: float, suffix: str = "f") -> str:
    """Return a number of f32 as a literal of C99, in decimal if that is short; <math.h> has infinity and NaN.

    >>> [float_literal(value) for value in (-1.5, 2.0**-40, float("-inf"))]
    ['-1.5f', '0x1.0000000000000p-40f', '-INFINITY']
    """
    if not isfinite(value):
        return "NAN" if isnan(value) else f"{'-' if value < 0 else ''}INFINITY"
    return f"{value!r}{suffix}" if value == round(value * 16) / 16 and abs(value) < 1e6 else f"{value.hex()}{suffix}"
