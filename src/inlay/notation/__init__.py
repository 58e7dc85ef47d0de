"""Texts that name layouts, and the way from a text to its layout and back.

`format_tag` holds oneDNN's tags, in abstract letters and in role letters: `aBcd8b`, `nChw8c`. `pattern` holds patterns,
which say every dense layout digit by digit: `n (c c8) h w -> n c h w c8`.
"""
