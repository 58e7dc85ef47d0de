"""C headers for emitted code: declarations, sizes of the buffers, and comments with both sides of each reorder."""

from collections.abc import Sequence

from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.emission.functions import EmittedFunction


def c_header(name: str, functions: Sequence[EmittedFunction], prototypes: Sequence[str], note: str = "") -> str:
    """Return the header of the functions, for C and C++.

    Args:
        name: the name from which that of the include guard is made.
        functions: the functions that move tensors.
        prototypes: the declarations of all functions, without semicolons; those of `functions` come last.
        note: a comment about the code; empty for none.
    """
    sizes = [
        (f"{function.name.upper()}_{side}_BYTES", buffer_bytes(desc))
        for function in functions
        for side, desc in (("SRC", function.src), ("DST", function.dst))
    ]
    offset = "/* Offset of an element from the start of the buffer, in elements. */"
    comments = [offset] * (len(prototypes) - len(functions)) + [function.comment for function in functions]
    return header_text(name, sizes, list(zip(comments, prototypes, strict=True)), note)


def header_text(
    name: str, sizes: Sequence[tuple[str, int]], declarations: Sequence[tuple[str, str]], note: str = ""
) -> str:
    """Return a header for C and C++.

    Args:
        name: the name from which that of the include guard is made.
        sizes: names of macros with numbers of bytes, and their values.
        declarations: comments, and the declarations of functions without semicolons.
        note: a comment about the code; empty for none.
    """
    guard = f"INLAY_{name.upper()}_H"
    lines = [
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *([f"/* {note} */", ""] if note else []),
        "#include <stdint.h>",
    ]
    lines += [f"#define {macro} INT64_C({nbytes})" for macro, nbytes in sizes]
    lines += ["", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    for comment, declaration in declarations:
        lines += [f"{comment}\n{declaration};", ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""])


def buffer_bytes(desc: MemoryDesc) -> int:
    """Return the number of bytes that a buffer needs: up to the end of the last stored element.

    >>> buffer_bytes(MemoryDesc((2, 17), "f32", "aB8b"))
    192
    """
    layout, data_type = addressed_layout(desc, "an emitted function")
    low, high = layout.span
    high = high if desc.swizzle is None else desc.swizzle.round_up(high)
    return -(-(high + desc.offset0) * data_type.bits // 8) if low < high else 0
