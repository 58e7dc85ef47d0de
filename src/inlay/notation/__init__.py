"""Text notations of layouts: format tags, patterns, and the names that vendors give to layouts.

A caller's text is parsed to a `FormatTag` or directly to a `Layout`; both are created from a layout again for printing:

    format_tag    `FormatTag`: oneDNN's tags, in abstract letters (`aBcd8b`) and in role letters (`nChw8c`)
    pattern       patterns, which can express every dense layout digit by digit: `n (c c8) h w -> n c h w c8`
    dictionary    the dictionary of layouts by vendor and name: `tensorrt:CHW32`; all names of one layout

Glossary:

    format tag          oneDNN's name of a layout, `dnnl_format_tag_t`: the axes from the outermost to the innermost,
                        then the inner blocks
    abstract letters    a, b, c, ... for the axes 0, 1, 2, ...
    role letters        letters for the purpose of an axis, such as n for images and c for channels
    alias               a tag in role letters for which oneDNN has an enumerator
    pattern             a text like those of einops (Rogozhnikov, ICLR 2022): axes as groups of digits, an arrow, and
                        the digits in memory order
"""
