"""Metadata of GGUF files: typed values as texts, and texts as typed values.

A GGUF file has a type for each value, one of 13 with arrays. Other files have texts. A text is stored as it is; any
other value is JSON, and one more text, under the key `inlay_gguf_types`, has the types of those:

    general.name           text "tiny"      general.name           "tiny"
    llama.block_count      u32  4           llama.block_count      "4"
    tokenizer.scores       f32  [0.5, 2.0]  tokenizer.scores       "[0.5, 2.0]"
                                            inlay_gguf_types       {"llama.block_count":"u32", ...}

So the values have their types again when the texts come back into a GGUF file.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
from collections.abc import Mapping, Sequence
from struct import error as struct_error
from struct import pack
from types import MappingProxyType
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from inlay.errors import InvalidArguments, shown

TYPES_KEY = "inlay_gguf_types"
"""Key of the text with the types of values that are no texts."""

TEXT, ARRAY = 8, 9
"""Codes of the types of texts and arrays."""

_NAMES = ("u8", "s8", "u16", "s16", "u32", "s32", "f32", "bool", "text", "array", "u64", "s64", "f64")
"""Names of the types, by code."""

_FORMATS: Mapping[int, str] = MappingProxyType(
    {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
)
"""Types of numbers by code, in the notation of `struct`."""

_DTYPES: Mapping[int, str] = MappingProxyType(
    {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "u1", 10: "<u8", 11: "<i8", 12: "<f8"}
)
"""Types of numbers by code, in NumPy's notation; bool as bytes."""

MAX_NBYTES = 1 << 28
"""Maximum size of the metadata that is read, in bytes; a tokenizer of 256,000 words takes about 10 MB."""

Value: TypeAlias = Any
"""A text, a number, a truth value, or a list of those of one type."""


class GgufCursor:
    """A position in the header of a GGUF file, which reads values after checking that the file has them."""

    def __init__(self, file: BinaryIO, nbytes: int) -> None:
        """Start at the position of the file, which has `nbytes` bytes from there on."""
        self._file, self._left, self.begin = file, nbytes, nbytes

    @property
    def position(self) -> int:
        """Number of bytes that were read."""
        return self.begin - self._left

    def read(self, nbytes: int) -> bytes:
        """Return the next bytes.

        Raises:
            ValueError: the file ends before, or the header is larger than any that is read.
        """
        if nbytes > self._left:
            raise ValueError(f"it ends {nbytes - self._left} bytes early")
        if self.position + nbytes > MAX_NBYTES:
            raise ValueError(f"its header has over {MAX_NBYTES} bytes")
        self._left -= nbytes
        data = self._file.read(nbytes)
        if len(data) != nbytes:
            raise ValueError("it became shorter")
        return data

    def number(self, nbytes: int) -> int:
        """Return the next number of 4 or 8 bytes without sign."""
        return int.from_bytes(self.read(nbytes), "little")

    def text(self) -> str:
        """Return the next text; bytes that are no UTF-8 become surrogates, as in file names."""
        return self.read(self.number(8)).decode("utf-8", "surrogateescape")

    def count(self, least: int) -> int:
        """Return the next number of 8 bytes, which counts things of at least `least` bytes each.

        Raises:
            ValueError: the file is too small for so many.
        """
        count = self.number(8)
        if count * least > self._left:
            raise ValueError(f"it lists {count} things and has {self._left} bytes for them")
        return count

    def value(self, code: int) -> Value:
        """Return the next value of a type.

        Raises:
            ValueError: there is no such type, or an array of arrays.
        """
        if code == TEXT:
            return self.text()
        if code == ARRAY:
            return self._array()[1]
        return self._numbers(code, 1)[0]

    def typed_value(self) -> tuple[str, Value]:
        """Return the next type, as `[f32]` for an array, and its value."""
        code = self.number(4)
        if code == ARRAY:
            inner, values = self._array()
            return f"[{_NAMES[inner]}]", values
        value = self.value(code)
        return _NAMES[code], value

    def _array(self) -> tuple[int, list[Value]]:
        """Return the type of the entries of the next array, and the entries."""
        code = self.number(4)
        if code == TEXT:
            return code, [self.text() for _ in range(self.count(8))]
        if code == ARRAY:
            raise ValueError("it has arrays of arrays")
        return code, self._numbers(code, self.count(1))

    def _numbers(self, code: int, count: int) -> list[Value]:
        """Return the next numbers of a type."""
        if code not in _DTYPES:
            raise ValueError(f"it has values of the type {code}")
        dtype = np.dtype(_DTYPES[code])
        values = np.frombuffer(self.read(count * dtype.itemsize), dtype).tolist()
        return [bool(value) for value in values] if _NAMES[code] == "bool" else values


def as_texts(values: Mapping[str, tuple[str, Value]]) -> dict[str, str]:
    """Return typed values as texts, with the text of their types.

    >>> as_texts({"a": ("text", "x"), "b": ("u32", 4)})
    {'a': 'x', 'b': '4', 'inlay_gguf_types': '{"b":"u32"}'}
    """
    texts = {key: value if kind == "text" else json.dumps(value) for key, (kind, value) in values.items()}
    kinds = {key: kind for key, (kind, _) in values.items() if kind != "text"}
    return {**texts, TYPES_KEY: json.dumps(kinds, separators=(",", ":"))} if kinds else texts


def from_texts(texts: Mapping[str, str]) -> dict[str, tuple[str, Value]]:
    """Return the typed values of `as_texts`.

    Raises:
        InvalidArguments: the text of the types is damaged, or a text is no value of its type.
    """
    try:
        kinds = json.loads(texts.get(TYPES_KEY, "{}"))
        values = {key: kinds.get(key, "text") for key in texts if key != TYPES_KEY}
    except (ValueError, AttributeError, RecursionError) as error:
        raise InvalidArguments(
            f"metadata[{TYPES_KEY!r}] is no JSON object of types: leave it out, or convert the GGUF file again"
        ) from error
    return {key: (kind, texts[key] if kind == "text" else _parse(key, texts[key])) for key, kind in values.items()}


def _parse(key: str, text: str) -> Value:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"metadata[{key!r}] is {shown(text)}, which is no JSON: convert it again") from error


def encode_text(text: str) -> bytes:
    """Return a text with its length."""
    data = text.encode("utf-8", "surrogateescape")
    return pack("<Q", len(data)) + data


def encode_entry(key: str, kind: str, value: Value) -> bytes:
    """Return a key with its type and value.

    Raises:
        InvalidArguments: the type is unknown, or the value is none of it.
    """
    inner = str(kind).removeprefix("[").removesuffix("]")
    if inner not in _NAMES or inner == "array" or kind not in (inner, f"[{inner}]"):
        raise InvalidArguments(f"metadata[{key!r}] is of the type {shown(kind)}: GGUF has {', '.join(_NAMES)}")
    code, is_array = _NAMES.index(inner), kind != inner
    try:
        data = b"".join(_encode(code, each) for each in _require_list(value)) if is_array else _encode(code, value)
    except (struct_error, TypeError, ValueError, OverflowError) as error:
        raise InvalidArguments(
            f"metadata[{key!r}] holds {shown(value)}, which is no {kind}: convert it again"
        ) from error
    if is_array:
        return encode_text(key) + pack("<IIQ", ARRAY, code, len(value)) + data
    return encode_text(key) + pack("<I", code) + data


def _require_list(value: Value) -> Sequence[Value]:
    """Return a value that is a list."""
    if not isinstance(value, list):
        raise TypeError("no list")
    return value


def _encode(code: int, value: Value) -> bytes:
    """Return the bytes of a value that is no array."""
    if code == TEXT:
        if not isinstance(value, str):
            raise TypeError("no text")
        return encode_text(value)
    if isinstance(value, str):
        raise TypeError("no number")
    return pack(f"<{_FORMATS[code]}", value)
