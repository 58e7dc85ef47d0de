"""Names in emitted code: the C types of elements, names of axes and loop variables, and the check of callers' names.

f32    float          s8, u8, s32, s64    int8_t, uint8_t, int32_t, int64_t    bool        uint8_t
f64    double         f16, bf16           uint16_t, the bits of the number     complex64   float _Complex
4-bit  uint8_t, two elements in each      f8, e8m0      uint8_t, the bits      complex128  double _Complex
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.descriptor.queries import axis_letters
from inlay.errors import InvalidArguments, shown

_SPECIAL: Mapping[str, str] = MappingProxyType(
    {"f32": "float", "f64": "double", "bool": "uint8_t", "complex64": "float _Complex", "complex128": "double _Complex"}
)
_MOST_CHARACTERS = 63  # C99, 5.2.4.1: significant initial characters of an internal identifier
_C_KEYWORDS = (
    "auto break case char class const continue default delete do double else enum extern float for goto if inline int "
    "long namespace new operator private protected public register restrict return short signed sizeof static struct "
    "switch template this throw try typedef typename union unsigned using virtual void volatile while _Bool _Complex "
    "_Imaginary main"
)
_KEYWORDS = frozenset(_C_KEYWORDS.split())
"""Keywords of C99, and those of C++ that would break a header or a call."""


def element_type(data_type: DataType) -> str:
    """Return the C type of a pointer to elements of a data type; elements of 4 bits are two to a `uint8_t`.

    >>> from inlay import DataType
    >>> [element_type(DataType(name)) for name in ("f32", "s8", "bf16", "u4", "u64")]
    ['float', 'int8_t', 'uint16_t', 'uint8_t', 'uint64_t']
    """
    if data_type.name in _SPECIAL:
        return _SPECIAL[data_type.name]
    is_signed = data_type.kind == "signed" and not data_type.is_sub_byte
    signed = is_signed or data_type.name == "s16"
    return f"{'int' if signed else 'uint'}{max(data_type.bits, 8)}_t"


def checked_name(name: object) -> str:
    """Return `name` if C, C++, Python and linkers accept it as the beginning of a function's name.

    Raises:
        InvalidArguments: `name` is no such text.

    >>> checked_name("weights_to_blocks")
    'weights_to_blocks'
    """
    is_name = isinstance(name, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is not None
    if not isinstance(name, str) or not is_name or name in _KEYWORDS:
        raise InvalidArguments(
            f"name is {shown(name)}: give ASCII letters, digits and _ that begin with a letter and are no keyword of C "
            "or C++, such as pack_weights"
        )
    if len(name) > _MOST_CHARACTERS - len("_load4"):
        raise InvalidArguments(f"name has {len(name)} characters: give at most {_MOST_CHARACTERS - len('_load4')}")
    return name


def axis_variables(*descs: MemoryDesc) -> tuple[str, ...]:
    """Return a name for each axis: the role letters of the first descriptor that has some, else a, b, c, ...

    >>> axis_variables(MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((4, 6), "f32", "oi"))
    ('o', 'i')
    """
    letters = [axis_letters(desc) for desc in descs]
    plain = "abcdefghijkl"[: descs[0].ndims]
    return tuple(next((names for names in letters if names != plain), plain))


def joined_dims(dims: Sequence[int]) -> str:
    """Return dims in words, such as `2 x 17`; `no axes` for a scalar."""
    return " x ".join(map(str, dims)) or "no axes"
