"""Memory layouts of tensors: maps from coordinates to element offsets, made of mixed-radix digits.

A layout gives each logical axis a list of digits `(extent, stride)`, most significant first. A coordinate along the
axis is read as a mixed-radix number with these digits. The offset of an element is the sum, over all axes and digits,
of digit value times stride, counted in elements. Plain strides are one digit per axis; every block is one more. For 17
channels padded to 24 in blocks of 8, as in oneDNN's nChw8c with dims 2 x 24 x 5 x 4:

    axis   digits               coordinate 19 of c
    n      (2, 480)
    c      (3, 160) (8, 1)      19 = 2 * 8 + 3   ->   2 * 160 + 3 * 1
    h      (5, 32)
    w      (4, 8)

A layout keeps the digits that it was created with. The extent of the leading digit is not stored: it follows from the
dim, `ceil(dim / product of the inner extents)`, so zero dims and partial blocks are no special cases. Two layouts of
one map (`aB4b4b` and `aB16b`) differ under `==` but have the same `normal_form`, which decides equivalence.

Strides may be any integers: negative (NumPy's `a[::-1]`), zero (broadcast) and overlapping ones are layouts too.
This package knows no format tags and no data types.

The modules, each built on those before it:

    axis           `Axis`: the digits of one axis, their normal form, and ranges of coordinates
    address        `AddressMap`, base class of `Layout`: offsets, spans, density, overlap
    permutation    permutations of axes
    regroup        the rules of reshape; `ViewFault` and `Refusal` describe a view that does not exist
    refinement     the common digits of two layouts of one axis, for reorders
    map            `Layout`: constructors, comparison, and the views of NumPy's arrays
    views          the views of oneDNN's descriptors, which know padding and blocks
    swizzle        `Swizzle`: a permutation of offsets by XOR of bits, beside a layout

Glossary:

    digit              one place of a mixed-radix number, with an extent (its radix) and a stride
    weight             place value of a digit: coordinates from one of its values to the next
    block              the inner digits of an axis, or the product of their extents (oneDNN: `inner_blks`)
    span               half-open range of offsets that the elements of a layout occupy
    view               another layout of the same elements; no data moves (NumPy, MegEngine `TensorLayout`)
    axis match         a run of old axes and the run of new axes of equal volume that replaces it in a reshape
    refusal            the value that describes why a view does not exist, and its repairs
    swizzle            a permutation of offsets by XOR of their bits (CuTe `Swizzle`)
    RUNTIME            a dim or stride that is known only at execution (oneDNN: `DNNL_RUNTIME_DIM_VAL`)
    contiguous, dense  offsets in row-major order are 0, 1, 2, ...; offsets fill their span without gap or overlap
"""

from inlay.layout.axis import RUNTIME, Axis, Digit, Dims
from inlay.layout.map import Layout
from inlay.layout.refinement import CommonDigit, DigitMap, refine
from inlay.layout.regroup import Refusal
from inlay.layout.swizzle import Swizzle

__all__ = ["RUNTIME", "Axis", "CommonDigit", "Digit", "DigitMap", "Dims", "Layout", "Refusal", "Swizzle", "refine"]
