"""Records as JSON: dataclasses of the graph to values of JSON and back, by the types of their fields.

    {"name": "relu", "kind": "eltwise", "reads": {"src": "x"}, "writes": {"dst": "y"}, "parameters": {...}}

A record is an object with a key for each field whose value is not the default. A field whose type is a union of records
holds an object with one more key, `record`, the name of the class. Values that JSON lacks:

    descriptor               its number in the list of descriptors of the file
    array, bytes             {"array": number}, {"bytes": number}, in the list of constants; bytes are of type `uint8`
    constants of a step      {argument: number}
    not a finite number      {"float": "inf"}, "-inf" or "nan"
    set of texts             {"set": [...]}
    element type             its name, as NumPy and ml_dtypes have it

Decoding trusts nothing: each value must have the type of its field, no key is missing or unknown, and numbers fit in
64 bits. Whether the values fit together is checked afterwards (`validation`).
"""

import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, Protocol, TypeAlias, get_args, get_origin

import ml_dtypes
import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments, shown
from inlay.graph.network import Node, Subgraph
from inlay.graph.op_graph import Array, ProcessObjects
from inlay.graph.program import Alternative
from inlay.primitives.engine import Parameter
from inlay.reordering.attributes import Groups

Json: TypeAlias = Any
"""A value of JSON."""

LARGEST = 2**63
"""Limit of whole numbers, exclusive."""
_MOST_NESTED = 24  # records in each other

_TYPES_BY_NAME: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {
        name: np.dtype(getattr(ml_dtypes, name, None) or name)
        for name in (
            *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
            *("float16", "float32", "float64", "complex64", "complex128"),
            *(name for name in dir(ml_dtypes) if name.startswith(("bfloat", "float", "int", "uint"))),
        )
    }
)
"""Element types by name."""


class ValueNumbers(Protocol):
    """The lists of a file that is written: numbers of descriptors and constants."""

    def desc_number(self, desc: MemoryDesc) -> int:
        """Return the number of a descriptor."""

    def array_number(self, array: Array) -> int:
        """Return the number of a constant."""


class NumberedValues(Protocol):
    """The lists of a file that is read: descriptors and constants by number."""

    def desc(self, number: int) -> MemoryDesc:
        """Return descriptor `number`."""

    def array(self, number: int) -> Array:
        """Return constant `number`."""

    def constants(self, numbers: Mapping[str, int]) -> Mapping[str, Array]:
        """Return constants by name."""


def encode_dtype(dtype: np.dtype[Any]) -> str:
    """Return the name of an element type.

    Raises:
        InvalidArguments: it has none in a saved plan.
    """
    if _TYPES_BY_NAME.get(dtype.name) != dtype:
        raise InvalidArguments(f"elements of type {dtype} cannot be saved: saved plans have numbers and booleans")
    return dtype.name


def decode_dtype(value: Json, path: str) -> np.dtype[Any]:
    """Return the element type of this name.

    Raises:
        FileError: there is none.
    """
    if not isinstance(value, str) or value not in _TYPES_BY_NAME:
        raise refuse(path, value, "the name of an element type")
    return _TYPES_BY_NAME[value]


def refuse(path: str, value: Json, wanted: str) -> FileError:
    """Return the error for a wrong value; `path` says where it is in the file."""
    kind = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else ""
    text = f"{kind} of {len(value)}" if kind else shown(value, most=60)
    return FileError(f"{path} is {text} and not {wanted}")


# Encoding


def encode_record(record: Any, table: ValueNumbers, cls: Any = None) -> dict[str, Json]:
    """Return a record as an object of JSON, with the fields of `cls`, its class or a base of it.

    Raises:
        InvalidArguments: a value cannot be saved.
    """
    fields_of: Any = type(record) if cls is None else cls
    found = {}
    for one in _stored_fields(fields_of):
        value = getattr(record, one.name)
        if not _is_default(one, value):
            found[one.name] = _encode(value, _types_of(fields_of)[one.name], table)
    return found


def _is_default(one: Field[Any], value: Any) -> bool:
    """Return whether a field has its default value, which is then left out."""
    if one.default is not MISSING:
        return value is one.default or (type(value) is type(one.default) and bool(value == one.default))
    return one.default_factory is not MISSING and isinstance(value, Mapping) and not value


def _encode(value: Any, kind: Any, table: ValueNumbers) -> Json:
    """Return a value of a field as a value of JSON."""
    if isinstance(value, MemoryDesc):
        return table.desc_number(value)
    if isinstance(value, np.dtype):
        return encode_dtype(value)
    if isinstance(value, Alternative):
        return {"ms": _encode_value(value.ms, table)}
    if is_dataclass(value):
        head = {"record": type(value).__name__} if len(_record_classes(kind)) > 1 else {}
        return {**head, **encode_record(value, table)}
    kind = _without_none(kind)
    if isinstance(value, Mapping):
        inner = get_args(kind)[1] if get_args(kind) else Any
        if inner == Array:
            return {name: table.array_number(array) for name, array in value.items()}
        return {name: _encode(item, inner, table) for name, item in value.items()}
    if isinstance(value, tuple) and get_origin(kind) is tuple:
        return [_encode(item, get_args(kind)[0], table) for item in value]
    if isinstance(value, frozenset) and get_origin(kind) is frozenset:
        return sorted(value)
    return _encode_value(value, table)


def _without_none(kind: Any) -> Any:
    """Return the other type of a union of None and one type; any other type as it is."""
    members = [one for one in get_args(kind) if one is not NoneType]
    is_optional = get_origin(kind) in (UnionType, typing.Union) and len(members) == 1
    return members[0] if is_optional else kind


def _encode_value(value: Any, table: ValueNumbers) -> Json:
    """Return a value of any type as a value of JSON."""
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, np.ndarray):
        return {"array": table.array_number(value)}
    if isinstance(value, bytes):
        return {"bytes": table.array_number(np.frombuffer(value, np.uint8))}
    if isinstance(value, (tuple, list)):
        return [_encode_value(item, table) for item in value]
    if isinstance(value, frozenset):
        return {"set": sorted(value)}
    raise InvalidArguments(f"{shown(value)} cannot be saved: a saved plan has numbers, texts, arrays and lists of them")


# Decoding


def decode_record(cls: Any, value: Json, table: NumberedValues, path: str, depth: int = 0) -> Any:
    """Return the record of class `cls` for an object of JSON.

    Raises:
        FileError: a key is missing or unknown, or a value has another type than its field.
    """
    if not isinstance(value, dict):
        raise refuse(path, value, "an object")
    if depth > _MOST_NESTED:
        raise FileError(f"{path} is nested over {_MOST_NESTED} deep")
    stored = {one.name: one for one in _stored_fields(cls)}
    if unknown := [key for key in value if key not in stored]:
        raise FileError(f"{path} has the unknown key {shown(unknown[0], most=60)}")
    missing = (one.name for one in stored.values() if one.name not in value and not _has_default(one))
    if (name := next(missing, None)) is not None:
        raise FileError(f"{path} lacks the key {name!r}")
    types = _types_of(cls)
    decoded = {key: _decode(item, types[key], table, f"{path}.{key}", depth) for key, item in value.items()}
    return cls(**decoded)


def _has_default(one: Field[Any]) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


def _decode(value: Json, kind: Any, table: NumberedValues, path: str, depth: int) -> Any:
    """Return the value of a field of type `kind` for a value of JSON."""
    read = _READERS.get(kind)
    if read is not None:
        return read(value, table, path)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in arguments or not isinstance(value, str):
            raise refuse(path, value, f"one of {', '.join(map(str, arguments))}")
        return value
    if origin in (UnionType, typing.Union):
        return _decode_union(value, arguments, table, path, depth)
    if origin is tuple:
        return tuple([_decode(item, arguments[0], table, path, depth) for item in _read_list(value, path)])
    if origin is frozenset:
        return frozenset(_decode(item, arguments[0], table, path, depth) for item in _read_list(value, path))
    if origin is not None and issubclass(origin, Mapping):
        return _decode_mapping(value, arguments[1], table, path, depth)
    if classes := _record_classes(kind):
        return _decode_one_of(value, classes, table, path, depth)
    raise AssertionError(kind)  # a field of a record has a type that is not saved


def _decode_union(value: Json, arguments: tuple[Any, ...], table: NumberedValues, path: str, depth: int) -> Any:
    """Return the value of a field whose type is a union of None, records, or one other type."""
    if value is None and NoneType in arguments:
        return None
    others = [one for one in arguments if one is not NoneType]
    if len(others) == 1:
        return _decode(value, others[0], table, path, depth)
    classes = [cls for one in others for cls in _record_classes(one)]
    return _decode_one_of(value, classes, table, path, depth)


def _decode_one_of(value: Json, classes: list[Any], table: NumberedValues, path: str, depth: int) -> Any:
    """Return a record of one of these classes; the key `record` names it if there are several."""
    if len(classes) == 1:
        return decode_record(classes[0], value, table, path, depth + 1)
    if not isinstance(value, dict):
        raise refuse(path, value, "an object")
    named = {cls.__name__: cls for cls in classes}
    name = value.get("record")
    if not isinstance(name, str) or name not in named:
        raise refuse(f"{path}.record", name, f"one of {', '.join(named)}")
    rest = {key: item for key, item in value.items() if key != "record"}
    return decode_record(named[name], rest, table, path, depth + 1)


def _decode_mapping(value: Json, kind: Any, table: NumberedValues, path: str, depth: int) -> Mapping[str, Any]:
    """Return a mapping from texts to values of type `kind`; constants by their numbers."""
    if not isinstance(value, dict):
        raise refuse(path, value, "an object")
    if kind == Array:
        return table.constants({name: _read_integer(number, table, path) for name, number in value.items()})
    return {name: _decode(item, kind, table, f"{path}.{shown(name, most=40)}", depth) for name, item in value.items()}


def _read_list(value: Json, path: str) -> list[Json]:
    if not isinstance(value, list):
        raise refuse(path, value, "a list")
    return value


def _read_integer(value: Json, _: NumberedValues, path: str) -> int:
    if type(value) is not int or not -LARGEST <= value < LARGEST:
        raise refuse(path, value, "a whole number of 64 bits")
    return value


def _read_float(value: Json, table: NumberedValues, path: str) -> float:
    found = _read_value(value, table, path)
    if type(found) not in (int, float):
        raise refuse(path, value, "a number")
    return float(found)


def _read_text(value: Json, _: NumberedValues, path: str) -> str:
    if not isinstance(value, str):
        raise refuse(path, value, "a text")
    return value


def _read_bool(value: Json, _: NumberedValues, path: str) -> bool:
    if not isinstance(value, bool):
        raise refuse(path, value, "true or false")
    return value


def _read_bytes(value: Json, table: NumberedValues, path: str) -> bytes:
    found = _read_value(value, table, path)
    if not isinstance(found, bytes):
        raise refuse(path, value, "bytes")
    return found


def _read_desc(value: Json, table: NumberedValues, path: str) -> MemoryDesc:
    return table.desc(_read_integer(value, table, path))


def _read_alternative(value: Json, table: NumberedValues, path: str) -> Alternative:
    if not isinstance(value, dict) or list(value) != ["ms"]:
        raise refuse(path, value, "an object with the key ms")
    return Alternative.known(None if value["ms"] is None else _read_float(value["ms"], table, f"{path}.ms"))


def _read_parameter(value: Json, table: NumberedValues, path: str) -> Any:
    found = _read_value(value, table, path)
    members = found if isinstance(found, tuple) else ()
    is_plain = type(found) in (int, float, str, frozenset) or all(type(one) in (int, float) for one in members)
    if not is_plain or found is None or isinstance(found, (bool, bytes, np.ndarray)):
        raise refuse(path, value, "a number, a text, a list of numbers or a set of texts")
    return found


def _read_groups(value: Json, table: NumberedValues, path: str) -> tuple[int, ...]:
    return tuple([_read_integer(item, table, path) for item in _read_list(value, path)])


def _read_value(value: Json, table: NumberedValues, path: str, depth: int = 0) -> Any:
    """Return a value of any type that `_encode_value` writes."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return _read_integer(value, table, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise refuse(path, value, "a finite number")
        return value
    if depth > _MOST_NESTED:
        raise FileError(f"{path} is nested over {_MOST_NESTED} deep")
    if isinstance(value, list):
        return tuple([_read_value(item, table, path, depth + 1) for item in value])
    if isinstance(value, dict) and len(value) == 1:
        ((key, item),) = value.items()
        if key in _TAGGED:
            return _TAGGED[key](item, table, path)
    raise refuse(path, value, "a value of a saved plan")


def _read_special_float(item: Json, _: NumberedValues, path: str) -> float:
    if item not in ("inf", "-inf", "nan") or not isinstance(item, str):
        raise refuse(path, item, "inf, -inf or nan")
    return float(item)


def _read_set(item: Json, table: NumberedValues, path: str) -> frozenset[str]:
    return frozenset(_read_text(one, table, path) for one in _read_list(item, path))


_Reader: TypeAlias = Callable[[Json, NumberedValues, str], Any]
_TAGGED: Mapping[str, _Reader] = MappingProxyType(
    {
        "float": _read_special_float,
        "set": _read_set,
        "array": lambda item, table, path: table.array(_read_integer(item, table, path)),
        "bytes": lambda item, table, path: table.array(_read_integer(item, table, path)).tobytes(),
    }
)
_READERS: Mapping[Any, _Reader] = MappingProxyType(
    {
        int: _read_integer,
        float: _read_float,
        str: _read_text,
        bool: _read_bool,
        bytes: _read_bytes,
        np.dtype[np.generic]: lambda value, _, path: decode_dtype(value, path),
        MemoryDesc: _read_desc,
        Alternative: _read_alternative,
        Parameter: _read_parameter,
        Groups: _read_groups,
        Any: _read_value,
    }
)
"""Function that reads the value of a field, by its type."""


# Fields of records

_LEFT_OUT = frozenset({"hint", "sessions", "guards"})
"""Fields that are not saved with their record."""
_SUBCLASSES: Mapping[type[Any], tuple[type[Any], ...]] = MappingProxyType({Node: (Node, Subgraph)})
"""Classes of records in a field of a type that has subclasses."""


@cache
def _stored_fields(cls: Any) -> tuple[Field[Any], ...]:
    """Return the fields of a class that are saved."""
    return tuple(one for one in fields(cls) if one.name not in _LEFT_OUT and one.type is not ProcessObjects)


@cache
def _types_of(cls: Any) -> dict[str, Any]:
    """Return the types of the fields of a class."""
    return typing.get_type_hints(cls)


@cache
def _record_classes(kind: Any) -> list[Any]:
    """Return the classes that a record in a field of this type may have."""
    members = get_args(kind) if get_origin(kind) in (UnionType, typing.Union) else (kind,)
    records = [one for one in members if isinstance(one, type) and is_dataclass(one)]
    return [cls for one in records for cls in _SUBCLASSES.get(one, (one,))]
