r"""Emission: code for others from one layout, reorder or compound format, which runs without Inlay.

    >>> from inlay.descriptor import MemoryDesc
    >>> code = emit(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), name="act")
    >>> print(str(code).split("\n\n")[2])
    int64_t act_offset(int64_t n, int64_t c, int64_t h, int64_t w)
    {
        return n * 480 + c / 8 * 160 + c % 8 + h * 32 + w * 8;
    }

The modules, each of which uses those before it:

    c_text         the text of C: comments, functions, nested loops, numbers
    c_names        C types of elements, names of axes, the check of callers' names
    loops          the loops over the digits that both layouts share, and offsets as expressions in C
    c_floats       functions in C that decode narrow floats, and that round numbers to them
    c_conversions  functions in C that convert one element to another type
    functions      the functions to emit: of a layout to pack and unpack, or of a reorder
    c_source       C99 source code
    c_header       headers for C and C++
    c_compound     C99 source code and headers of compound formats
    object_code    object files, by the code generator of `inlay.reordering`
    numpy_lines    NumPy expressions
    onednn_call    calls of oneDNN's C++ interface
    sentence       one sentence in words
    emitting       `emit`, and its result

Terms: a *form* is a kind of emitted code; a *function* is one that moves a tensor between two layouts, in C or machine
code; *object file* and *symbol* are those of linkers (System V ABI).
"""

from inlay.emission.emitting import FORMS, EmittedCode, emit

__all__ = ["FORMS", "EmittedCode", "emit"]
