"""Names in emitted code: the C types of elements, names of axes and loop variables, and the check of callers' names.

f32    float          s8, u8, s32, s64    int8_t, uint8_t, int32_t, int64_t    bool        uint8_t
f64    double         f16, bf16           uint16_t, the bits of the number     complex64   float _Complex
4-bit  uint8_t, two elements in each      f8, e8m0      uint8_t, the bits      complex128  double _Complex
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from types import MappingProxyType

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.notation import parse_notation
from inlay.reordering.attributes import QUANTIZATION_TYPES

_SPECIAL: Mapping[str, str] = MappingProxyType(
    {"f32": "float", "f64": "double", "bool": "uint8_t", "complex64": "float _Complex", "complex128": "double _Complex"}
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MOST_CHARACTERS = 63  # C99, 5.2.4.1: significant initial characters of an internal identifier
_C_WORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const const_cast "
    "consteval constexpr constinit continue co_await co_return co_yield decltype default delete do double dynamic_cast "
    "else enum explicit export extern false float for friend goto if inline int linux long main memcpy memset mutable "
    "namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast "
    "requires restrict return short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw true try typedef typeid typename typeof typeof_unqual union unix unsigned using virtual void "
    "volatile while xor xor_eq NULL"
)
_RESERVED = frozenset(_C_WORDS.split())
"""Words that name neither functions nor axes: keywords up to C23 and C++23, macros, functions of the C library that
emitted code calls."""
_LOCALS = frozenset(("src", "dst", "src_linear", "dst_linear", "linear", *QUANTIZATION_TYPES))
"""Names of parameters and local variables in emitted functions."""
_STDINT = re.compile(
    r"u?int\w*_t|(size|ptrdiff|wchar|char\d+)_t|(U?INT\w*|SIZE|PTRDIFF|WCHAR|WINT|SIG_ATOMIC)_(C|MIN|MAX|WIDTH)"
)
"""Names that <stdint.h> and <string.h> define, or may define, and types of characters."""


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
    if not isinstance(name, str) or not is_name or is_reserved(name) or iskeyword(name):
        raise InvalidArguments(
            f"name is {shown(name)}: give ASCII letters, digits and _ that begin with a letter and are no word of C, "
            "C++ or Python, such as pack_weights"
        )
    if len(name) > _MOST_CHARACTERS - len("_load4"):
        raise InvalidArguments(f"name has {len(name)} characters: give at most {_MOST_CHARACTERS - len('_load4')}")
    return name


def is_reserved(name: str) -> bool:
    """Return whether C or C++ uses an identifier: a keyword, a macro, or a name of <stdint.h> or <string.h>.

    >>> [is_reserved(name) for name in ("xor", "uint8_t", "SIZE_MAX", "row")]
    [True, True, True, False]
    """
    return name in _RESERVED or _STDINT.fullmatch(name) is not None


def axis_variables(*descs: MemoryDesc) -> tuple[str, ...]:
    """Return a name for each axis: those of the first descriptor whose format has other names than a, b, c, ...

    A name that C or emitted code uses otherwise ends in `_`, and so does one that may be the index of a loop.

    >>> axis_variables(MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((4, 6), "f32", "oi"))
    ('o', 'i')
    >>> axis_variables(MemoryDesc((4, 6), "f32", "(row r2) for -> row for r2"))
    ('row', 'for_')
    """
    plain = letters(descs[0].ndims)
    spelled = (parse_notation(desc.spelling).names for desc in descs if desc.spelling is not None)
    named = next((names for names in spelled if len(names) == len(plain) and tuple(names) != plain), plain)
    return identifiers(named)


def letters(count: int) -> tuple[str, ...]:
    """Return names for axes without names: a, b, c, ...; axis26 and so on after z.

    >>> letters(3)
    ('a', 'b', 'c')
    """
    return tuple(_LETTERS[i] if i < len(_LETTERS) else f"axis{i}_" for i in range(count))


def identifiers(names: Sequence[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """Return an identifier of C for each name: the name itself, or with `_` at its end if it is one of `taken`.

    Post-condition: results are distinct, not in `taken`, no word of C or C++ (`is_reserved`), and end in no digit; if
    the names cannot be spelled in C or are too long, they are a, b, c, ...

    >>> identifiers(("row", "for", "c2", "src")), identifiers(("\u00e4", "b"))
    (('row', 'for_', 'c2_', 'src_'), ('a', 'b'))
    """
    used = frozenset((*_LOCALS, *taken))
    spelled = tuple(
        f"{name}_" if name in used or is_reserved(name) or re.search(r"\d$|_convert$", name) else name for name in names
    )
    is_valid = all(re.fullmatch(r"[A-Za-z]\w{0,30}", name, re.ASCII) and name not in used for name in spelled)
    if is_valid and len(set(spelled)) == len(spelled):
        return spelled
    return tuple(f"{name}_" if name in used else name for name in letters(len(names)))


def joined_dims(dims: Sequence[int]) -> str:
    """Return dims in words, such as `2 x 17`; `no axes` for a scalar."""
    return " x ".join(map(str, dims)) or "no axes"
