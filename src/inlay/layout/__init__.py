"""A layout is digits: the one idea of Inlay.

A coordinate along a logical axis is read as a mixed-radix number. A layout gives each axis a list of digits
`(extent, stride)`, most significant first, and an element lies at the sum, over all axes and digits, of digit times
stride, counted in elements. Plain strides are one digit per axis; every block is one more. For 17 channels padded
to 24 in blocks of 8, as in oneDNN's nChw8c with 2 x 24 x 5 x 4:

    axis   digits               coordinate 19 of c
    n      (2, 480)
    c      (3, 160) (8, 1)      19 = 2 * 8 + 3   ->   2 * 160 + 3 * 1
    h      (5, 32)
    w      (4, 8)

A layout is stored as it was spelled. The extent of the leading digit is not stored: it is what the dim needs,
`ceil(dim / product of the inner extents)`, so zero dims and partial blocks are no special case. Two spellings of
one map (`aB4b4b` and `aB16b`) differ under `==` and agree in `normal_form`, the form that decides equivalence.

Strides may be any integers: negative (NumPy's `a[::-1]`), zero (broadcast) and overlapping ones are layouts too.
This package knows no tags and no data types.

The modules, each built on those before it:

    axis       one axis: its digits, their normal form, and its runs
    address    the address formula: offsets, spans, and whether elements overlap
    regroup    digits under other dims, digits that two layouts share, and views that are refused
    map        `Layout`: how it is made, compared, and viewed as NumPy views arrays
    views      the views of oneDNN's descriptors, which know padding and blocks
"""

from inlay.layout.axis import RUNTIME, Axis, Digit, Dims
from inlay.layout.map import Layout
from inlay.layout.regroup import CommonDigit, Map, Refusal, refine

__all__ = ["RUNTIME", "Axis", "CommonDigit", "Digit", "Dims", "Layout", "Map", "Refusal", "refine"]
