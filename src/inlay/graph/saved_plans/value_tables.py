"""The lists of a saved plan that its records refer to by number: descriptors, and constants with their copies.

`TableWriter` numbers what is saved, each descriptor and each constant of equal elements once. `TableReader` has the
descriptors and constants of a file, each checked: a copy has the dims of its constant and all bytes of its format.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments, shown
from inlay.graph.network import has_equal_bits
from inlay.graph.op_graph import Array
from inlay.graph.saved_plans.record_codec import LARGEST, Json, decode_dtype, encode_dtype, refuse
from inlay.graph.stored_constants import StoredConstant, StoredConstants, StoredCopy
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.memory.buffers import Bytes
from inlay.memory.reorder_cache import byte_extent

MOST_VALUES = 1 << 17
"""Limit of the number of descriptors, and of that of constants."""
_MOST_AXES = 64


# Writing


@dataclass(slots=True)
class _SavedConstant:
    """A constant that is saved, with the memory of its copies."""

    array: Array
    copies: list[Memory] = field(default_factory=list)

    def has_copy(self, desc: MemoryDesc) -> bool:
        return any(copy.desc == desc for copy in self.copies)

    @property
    def is_restorable(self) -> bool:
        """True if the elements can be had from one of the copies."""
        return any(_restores(copy, self.array) for copy in self.copies)


def _restores(copy: Memory, array: Array) -> bool:
    """Return whether the elements of an array can be unpacked from a copy, bit by bit."""
    data_type = copy.desc.data_type
    if data_type is None or data_type.is_sub_byte or copy.desc.dims != array.shape:
        return False
    if not StoredCopy(copy.desc, copy.buffer).is_readable(array.dtype):
        return False
    return has_equal_bits(copy.unpack().astype(array.dtype, copy=False), array)


class TableWriter:
    """Numbers the descriptors and constants of a plan that is saved."""

    def __init__(self) -> None:
        """Begin with empty lists."""
        self._descs: dict[str, int] = {}
        self._constants: list[_SavedConstant] = []
        self._numbers: dict[int, tuple[int, Array]] = {}  # by `id`, with the array, so that no other gets this `id`
        self._equal: dict[tuple[Any, ...], list[int]] = {}

    def desc_number(self, desc: MemoryDesc) -> int:
        """Return the number of a descriptor, which is added at its first occurrence."""
        return self._descs.setdefault(desc.to_json(), len(self._descs))

    def array_number(self, array: Array) -> int:
        """Return the number of a constant; one with equal elements has the same.

        Raises:
            InvalidArguments: its elements cannot be saved.
        """
        known = self._numbers.get(id(array))
        if known is not None:
            return known[0]
        encode_dtype(array.dtype)
        samples = array[tuple(slice(None, None, max(1, n // 3)) for n in array.shape)]
        key = array.shape, array.dtype.name, samples.tobytes()[:1024]
        alike = self._equal.setdefault(key, [])
        for number in alike:
            if has_equal_bits(self._constants[number].array, array):
                break
        else:
            number = len(self._constants)
            alike.append(number)
        if number == len(self._constants):
            self._constants.append(_SavedConstant(array))
        self._numbers[id(array)] = number, array
        return number

    def add_copy(self, array: Array, memory: Memory) -> None:
        """Add the memory of a constant in the format of a kernel."""
        constant = self._constants[self.array_number(array)]
        if not constant.has_copy(memory.desc):
            constant.copies.append(memory)

    def build(self) -> tuple[list[Json], list[Json], dict[str, Bytes]]:
        """Return the list of constants, the list of descriptors, and the sections with the bytes of the copies.

        A constant whose elements no copy has in plain order or in a format that can be unpacked gets one more copy.
        """
        sections: dict[str, Bytes] = {}
        constants = []
        for constant in self._constants:
            copies: list[Json] = []
            for memory in constant.copies:
                copies.append([self.desc_number(memory.desc), _add_section(sections, memory.buffer)])
            if not constant.is_restorable:
                plain = np.ascontiguousarray(constant.array).reshape(-1).view(np.uint8)
                copies.append([None, _add_section(sections, plain)])
            array = constant.array
            constants.append({"dims": list(array.shape), "dtype": encode_dtype(array.dtype), "copies": copies})
        return constants, list(self._descs), sections


def _add_section(sections: dict[str, Bytes], data: Bytes) -> str:
    """Add a section for these bytes, and return its name."""
    name = f"constant.{len(sections):05d}"
    sections[name] = data
    return name


# Reading


class TableReader:
    """The checked descriptors and constants of a file."""

    def __init__(self, constants: Json, descs: Json, sections: Mapping[str, Bytes]) -> None:
        """Check the lists of a file, whose sections have the bytes of copies.

        Raises:
            FileError: an entry is not valid.
        """
        self._sections = sections
        self._descs = [_read_desc(text, f"descriptors[{i}]") for i, text in enumerate(_read_list(descs, "descriptors"))]
        listed = _read_list(constants, "constants")
        self._constants = [self._read_constant(one, f"constants[{i}]") for i, one in enumerate(listed)]

    def desc(self, number: int) -> MemoryDesc:
        """Return descriptor `number`.

        Raises:
            FileError: there is none.
        """
        if not 0 <= number < len(self._descs):
            raise FileError(f"descriptor {number} is not one of the {len(self._descs)} in the file")
        return self._descs[number]

    def constant(self, number: int) -> StoredConstant:
        """Return constant `number`.

        Raises:
            FileError: there is none.
        """
        if not 0 <= number < len(self._constants):
            raise FileError(f"constant {number} is not one of the {len(self._constants)} in the file")
        return self._constants[number]

    def array(self, number: int) -> Array:
        """Return the elements of constant `number`.

        Raises:
            FileError: there is none.
        """
        return self.constant(number).array

    def constants(self, numbers: Mapping[str, int]) -> Mapping[str, Array]:
        """Return constants by name, which become arrays when they are read.

        Raises:
            FileError: there is no constant of a number.
        """
        return StoredConstants({name: self.constant(number) for name, number in numbers.items()})

    def _read_constant(self, value: Json, path: str) -> StoredConstant:
        """Return the constant of an entry."""
        if not isinstance(value, dict) or set(value) != {"dims", "dtype", "copies"}:
            raise refuse(path, value, "an object with dims, dtype and copies")
        dtype = decode_dtype(value["dtype"], f"{path}.dtype")
        dims = _read_dims(value["dims"], f"{path}.dims", dtype.itemsize)
        listed = _read_list(value["copies"], f"{path}.copies")
        copies = tuple([self._read_copy(one, dims, dtype, f"{path}.copies") for one in listed])
        if not any(copy.is_readable(dtype) for copy in copies):
            raise FileError(f"{path} has no copy whose elements can be read")
        return StoredConstant(dims, dtype, copies)

    def _read_copy(self, value: Json, dims: Dims, dtype: np.dtype[Any], path: str) -> StoredCopy:
        """Return a copy of a constant."""
        if not isinstance(value, list) or len(value) != 2:
            raise refuse(path, value, "a list of a descriptor and a section")
        number, name = value
        if not isinstance(name, str) or name not in self._sections:
            raise refuse(path, name, "the name of a section")
        data = self._sections[name]
        if number is None:
            if data.size < prod(dims) * dtype.itemsize:
                raise FileError(f"{path}: section {name} has {data.size} bytes for {dtype} of dims {dims}")
            return StoredCopy(None, data)
        if type(number) is not int:
            raise refuse(path, number, "the number of a descriptor")
        desc = self.desc(number)
        _require_fit(desc, dims, data, f"{path}: section {name}")
        return StoredCopy(desc, data)


def _require_fit(desc: MemoryDesc, dims: Dims, data: Bytes, what: str) -> None:
    """Check that a format has the dims of a constant, and that its bytes are all in a section."""
    if desc.kind not in ("blocked", "digits", "opaque") or desc.dims != dims or desc.has_runtime:
        raise FileError(f"{what} has the format {desc!r}, which a constant of dims {dims} cannot have")
    try:
        low, high, _ = byte_extent(desc)
    except InvalidArguments as error:
        raise FileError(f"{what}: {error}") from error
    if low < 0 or max(high, desc.size) > data.size:
        raise FileError(f"{what} has {data.size} bytes, and {desc!r} needs {max(high, desc.size)}")


def _read_desc(text: Json, path: str) -> MemoryDesc:
    """Return the descriptor of a text in JSON."""
    try:
        return MemoryDesc.from_json(text)
    except (InvalidArguments, NotImplementedError) as error:
        raise FileError(f"{path}: {error}") from error


def _read_list(value: Json, path: str) -> Sequence[Json]:
    """Return a list of bounded length."""
    if not isinstance(value, list) or len(value) > MOST_VALUES:
        raise refuse(path, value, f"a list of at most {MOST_VALUES}")
    return value


def _read_dims(value: Json, path: str, itemsize: int) -> Dims:
    """Return dims, whose elements have fewer than 2**63 bytes in all."""
    is_valid = isinstance(value, list) and len(value) <= _MOST_AXES
    if not is_valid or not all(type(n) is int and 0 <= n < LARGEST for n in value):
        raise refuse(path, value, "dims of a tensor")
    if prod(max(n, 1) for n in value) * itemsize >= LARGEST:
        raise FileError(f"{path}: {shown(tuple(value), most=60)} has too many elements")
    return tuple(value)


def parse_json(text: bytes) -> Json:
    """Return the value of a JSON text without duplicate keys.

    Raises:
        FileError: it is none.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except FileError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileError(f"its records are no JSON: {shown(str(error), most=80)}") from error


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return an object of JSON as a dict."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FileError("a key occurs twice in an object of its records")
    return found
