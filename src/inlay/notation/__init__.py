"""Text notations of layouts: format tags, patterns, and the names that vendors give to layouts.

`parse_notation` parses a caller's text, whatever its notation; texts are created from a layout again for printing:

    token_reader  tokens of a text with one of lookahead, for the parsers below
    format_tag    `FormatTag`: oneDNN's tags, in abstract letters (`aBcd8b`) and in role letters (`nChw8c`)
    pattern       patterns, which can express every dense layout digit by digit: `n (c c8) h w -> n c h w c8`
    shape_stride  CuTe's texts, `(2,(8,3)):(24,(1,8))`, and the prefix of a swizzle, `Swizzle<3,4,3> o ...`
    dictionary    the dictionary of layouts by vendor and name: `tensorrt:CHW32`; all names of one layout
    recognition   `parse_notation`: which notation a text is in

Glossary:

    format tag          oneDNN's name of a layout, `dnnl_format_tag_t`: the axes from the outermost to the innermost,
                        then the inner blocks
    abstract letters    a, b, c, ... for the axes 0, 1, 2, ...
    role letters        letters for the purpose of an axis, such as n for images and c for channels
    alias               a tag in role letters for which oneDNN has an enumerator
    pattern             a text like those of einops (Rogozhnikov, ICLR 2022): axes as groups of digits, an arrow, and
                        the digits in memory order
    shape:stride        CuTe's notation (NVIDIA CUTLASS): extents and strides, digits of an axis least significant first
"""

from inlay.notation.recognition import Notation, is_notation, parse_notation

__all__ = ["Notation", "is_notation", "parse_notation"]
