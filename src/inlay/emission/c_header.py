"""C headers for emitted code: declarations, sizes of the buffers, and comments with both sides of each reorder."""

from collections.abc import Sequence

from inlay.descriptor import MemoryDesc
from inlay.emission.functions import EmittedFunction


def c_header(name: str, functions: Sequence[EmittedFunction], prototypes: Sequence[str], note: str = "") -> str:
    """Return the header of the functions, for C and C++.

    Args:
        name: the name from which that of the include guard is made.
        functions: the functions that move tensors.
        prototypes: the declarations of all functions, without semicolons; those of `functions` come last.
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
    for function in functions:
        for side, desc in (("SRC", function.src), ("DST", function.dst)):
            lines.append(f"#define {function.name.upper()}_{side}_BYTES INT64_C({buffer_bytes(desc)})")
    lines += ["", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    before = len(prototypes) - len(functions)
    for prototype in prototypes[:before]:
        lines += [f"/* Offset of an element from the start of the buffer, in elements. */\n{prototype};", ""]
    for function, prototype in zip(functions, prototypes[before:], strict=True):
        lines += [f"{function.comment}\n{prototype};", ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""])


def buffer_bytes(desc: MemoryDesc) -> int:
    """Return the number of bytes that a buffer needs: up to the end of the last stored element.

    >>> buffer_bytes(MemoryDesc((2, 17), "f32", "aB8b"))
    192
    """
    layout, data_type = desc.require_layout("an emitted function")
    low, high = layout.span
    return -(-(high + desc.offset0) * data_type.bits // 8) if low < high else 0
