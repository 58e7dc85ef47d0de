"""C headers for emitted code: declarations, sizes of the buffers, and comments with both sides of each reorder."""

from collections.abc import Sequence

from inlay.emission.c_text import comment
from inlay.emission.functions import EmittedFunction, buffer_bytes

_BUFFERS = (
    "Buffers are aligned for their elements, and those of one call do not overlap. Several threads may call at once.",
    "Numbers of bytes count from the start of a buffer to the end of its last element.",
)
_PADDING = "Padding of a destination is set to zero; what belongs to no element is not written."
"""Sentences on what a caller guarantees, and on what it may rely."""


def c_header(
    name: str, functions: Sequence[EmittedFunction], prototypes: Sequence[str], note: Sequence[str] = ()
) -> str:
    """Return the header of the functions, for C and C++.

    Args:
        name: the name from which that of the include guard is made.
        functions: the functions that move tensors.
        prototypes: the declarations of all functions, without semicolons; those of `functions` come last.
        note: sentences about the code, one a line.
    """
    sizes = [
        (f"{function.name.upper()}_{side}_BYTES", buffer_bytes(desc))
        for function in functions
        for side, desc in (("SRC", function.src), ("DST", function.dst))
    ]
    offset = comment("Offset of an element from the start of the buffer, in elements.")
    comments = [offset] * (len(prototypes) - len(functions)) + [function.comment for function in functions]
    return header_text(name, sizes, list(zip(comments, prototypes, strict=True)), (*note, _PADDING))


def header_text(
    name: str, sizes: Sequence[tuple[str, int]], declarations: Sequence[tuple[str, str]], note: Sequence[str] = ()
) -> str:
    """Return a header for C and C++.

    Args:
        name: the name from which that of the include guard is made.
        sizes: names of macros with numbers of bytes, and their values.
        declarations: comments, and the declarations of functions without semicolons.
        note: sentences about the code, one a line.
    """
    guard = f"INLAY_{name.upper()}_H"
    lines = [
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        comment("\n   ".join((*_BUFFERS, *note))),
        "",
        "#include <stdint.h>",
    ]
    lines += [f"#define {macro} INT64_C({nbytes})" for macro, nbytes in sizes]
    lines += ["", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    for remark, declaration in declarations:
        lines += [f"{remark}\n{declaration};", ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""])
