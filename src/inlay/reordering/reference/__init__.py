"""A reorder, coordinate by coordinate: what the compiled one must equal, bit for bit.

The arithmetic is this folder's own and shares no code with the compiler, so a mistake in either shows as a difference.
An element is a code, the unsigned integer of its bits. A move to the same type copies codes, so every NaN keeps its
payload and -0.0 its sign. Every other pair of types, and every attribute, goes through numbers of the working type:

    code of src -> f32 or f64 -> formula -> clamp, round -> code of dst

In the order of the data flow: `elements`, codes in memory; `numbers`, what codes mean, and rounding; `formula`, the
attributes; `compensation`, what lies behind int8 weights; `reordered`, all of it.
"""

from inlay.reordering.reference.elements import read_codes, write_codes
from inlay.reordering.reference.formula import computed, convert
from inlay.reordering.reference.reordered import reference_reorder

__all__ = ["computed", "convert", "read_codes", "reference_reorder", "write_codes"]
