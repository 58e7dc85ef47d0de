"""Descriptors as JSON: one object, whose form has a version and is read strictly.

    {"inlay": "memory_desc", "version": 2, "kind": "blocked", "dims": [2, 17], "data_type": "f32",
     "padded_dims": [2, 24], "strides": [24, 8], "inner_digits": [[], [[8, 1]]], "offset0": 0, "format": "nC8c"}

Every object has `inlay`, `version` and `kind`; the other keys depend on the kind, and no others are read:

    kind             keys
    undef            -
    any              dims, data_type
    blocked, digits  dims, data_type, padded_dims, strides, inner_digits, offset0; extras where there are any;
                     format, in version 2, where the descriptor was made of a tag in other letters than its own
    opaque           dims, data_type, name, nbytes
    sparse           dims, data_type, encoding, nnz; index_type for csr and coo, pointer_type for csr, tag for packed
                     where one is chosen
    host_scalar      data_type

    dims, padded_dims, strides   integers of 64 bits, or "RUNTIME"; strides are those of each axis' leading digit
    inner_digits                 per axis, extent and stride of every other digit, most significant first
    extras                       flags, compensation_mask, scale_adjust, asymmetric_mask, gpu_geometry, gpu_nbytes;
                                 a key that is left out has the default of `Extras`
    format                       the text of the tag, which must give these padded dims, strides and digits

Version 1 is version 2 without `format`: both are read, and 1 is written where there is no `format`, so that older
readers go on reading what they know.

The form keeps the spelling: strides of unit axes and blocks of one element are written and read as they are. A text may
come from anywhere, so it is bounded in length, no key may be missing, unknown or there twice, every value must have
its type, and what it says must be a descriptor (`parts`).
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn, assert_never

from inlay.data_type import ALL_TYPES, DataType
from inlay.descriptor import kinds
from inlay.descriptor.creation import blocks_of, inner_blocks_of
from inlay.descriptor.described import Described, kind
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.descriptor.parts import Parts
from inlay.descriptor.validation import LARGEST, MAX_NDIMS, require_nested
from inlay.errors import InvalidArguments
from inlay.format_tag import FormatTag
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout

VERSIONS = (1, 2)
"""The versions of the form: both are read, and the first that can say a descriptor is written."""

MAX_CHARACTERS = 2**20
"""The longest text that is written or read; descriptors of tags take a few hundred characters."""

_NAME = "memory_desc"
_HEAD = ("inlay", "version", "kind")
_EXTRAS = ("flags", "compensation_mask", "scale_adjust", "asymmetric_mask", "gpu_geometry", "gpu_nbytes")


def json_of(desc: Described, *, spelling: bool = True) -> str:
    """The text of a descriptor, without spaces or line breaks; `spelling` says whether it keeps that of its tag.

    Raises:
        InvalidArguments: the text would be longer than any that is read.
    """
    values = _values_of(desc, spelling)
    text = json.dumps({"inlay": _NAME, "version": 2 if "format" in values else 1, **values}, separators=(",", ":"))
    if len(text) > MAX_CHARACTERS:
        raise InvalidArguments(
            f"the descriptor takes {len(text)} characters of JSON: at most {MAX_CHARACTERS} are read"
        )
    return text


def _values_of(desc: Described, spelling: bool) -> dict[str, Any]:
    """The keys of the kind and their values."""
    placement, data_type = desc.layout, str(desc.data_type)
    typed = {"kind": kind(desc), "dims": _written(desc.dims), "data_type": data_type}
    match placement:
        case Layout():
            also: dict[str, Any] = {"extras": _extras_of(desc.extras)} if desc.extras else {}
            if spelling and desc.spelling is not None and desc.spelling != str(FormatTag.parse(desc.spelling)):
                also["format"] = desc.spelling
            return {**typed, **_layout_of(placement), "offset0": desc.offset0, **also}
        case kinds.Any():
            return typed
        case kinds.Opaque(name=name, nbytes=nbytes):
            return {**typed, "name": name, "nbytes": nbytes}
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            found = {name: str(getattr(placement, name, "")) for name in ("index_type", "pointer_type", "tag")}
            chosen = {name: value for name, value in found.items() if value}
            return {**typed, "encoding": placement.encoding, "nnz": placement.nnz, **chosen}
        case kinds.HostScalar():
            return {"kind": "host_scalar", "data_type": data_type}
        case kinds.Undefined():
            return {"kind": "undef"}
    assert_never(placement)


def _layout_of(layout: Layout) -> dict[str, Any]:
    return {
        "padded_dims": _written(layout.dims),
        "strides": _written(tuple(axis.stride for axis in layout.axes)),
        "inner_digits": [[_written((d.extent, d.stride)) for d in axis.inner] for axis in layout.axes],
    }


def _written(values: Dims) -> list[int | str]:
    return ["RUNTIME" if value == RUNTIME else value for value in values]


def _extras_of(extras: Extras) -> dict[str, Any]:
    values = {name: getattr(extras, name) for name in _EXTRAS if getattr(extras, name) != getattr(NO_EXTRAS, name)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def parts_of_json(text: object) -> Parts:
    """The parts that a text says, of the right types, not yet checked against one another.

    Raises:
        InvalidArguments: `text` is no text of this form; the message says where.
    """
    value = _object(_parsed(text), "")
    for key in _HEAD:
        if key not in value:
            _refuse(f"key {key!r} is missing")
    if value["inlay"] != _NAME:
        _refuse(f"inlay is {_shown(value['inlay'])}: give {_NAME!r}")
    if type(value["version"]) is not int or value["version"] not in VERSIONS:
        _refuse(f"version is {_shown(value['version'])}: this Inlay reads 1 and 2; use the Inlay that wrote it")
    kind = _text(value["kind"], "kind")
    if kind not in _READERS:
        _refuse(f"kind is {_shown(kind)}: give one of {', '.join(_READERS)}")
    return _READERS[kind](value)


def _parsed(text: object) -> object:
    if not isinstance(text, str):
        _refuse(f"it is a {type(text).__name__}: give the text that to_json wrote")
    if len(text) > MAX_CHARACTERS:
        _refuse(f"it has {len(text)} characters: at most {MAX_CHARACTERS} are read")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=lambda name: _refuse(f"{name} is no number"))
    except InvalidArguments:
        raise
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidArguments(f"this is no JSON of a descriptor: {reason}") from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        _refuse(f"key {_shown(next(key for key in keys if keys.count(key) > 1))} is there twice")
    return value


def _read_undef(value: dict[str, object]) -> Parts:
    _require_keys(value, ())
    return Parts((), None, kinds.Undefined())


def _read_any(value: dict[str, object]) -> Parts:
    _require_keys(value, ("dims", "data_type"))
    return Parts(*_typed(value), kinds.Any())


def _read_layout(value: dict[str, object]) -> Parts:
    wanted = ("dims", "data_type", "padded_dims", "strides", "inner_digits", "offset0")
    _require_keys(value, wanted, optional=("extras",) if value["version"] == 1 else ("extras", "format"))
    padded, strides = _dims(value["padded_dims"], "padded_dims"), _dims(value["strides"], "strides")
    inner = [
        _digits(digits, f"inner_digits[{i}]") for i, digits in enumerate(_list(value["inner_digits"], "inner_digits"))
    ]
    for what, entries in (("strides", strides), ("inner_digits", inner)):
        if len(entries) != len(padded):
            _refuse(f"{what} has {len(entries)} entries: padded_dims has {len(padded)}")
    layout = Layout(padded, tuple(Axis(stride, digits) for stride, digits in zip(strides, inner, strict=True)))
    kind = "digits" if blocks_of(layout) is None else "blocked"
    if value["kind"] == "blocked" and inner_blocks_of(layout) is not None:
        require_nested(layout, _data_type(value["data_type"], "data_type"), whole_bytes=False)
    if value["kind"] != kind:
        _refuse(f"kind is {_shown(value['kind'])}: its digits are those of kind {kind!r}")
    extras = _extras(value["extras"]) if "extras" in value else NO_EXTRAS
    spelling = _text(value["format"], "format") if "format" in value else None
    return Parts(*_typed(value), layout, _integer(value["offset0"], "offset0"), extras, spelling)


def _read_opaque(value: dict[str, object]) -> Parts:
    _require_keys(value, ("dims", "data_type", "name", "nbytes"))
    opaque = kinds.Opaque(_text(value["name"], "name"), _integer(value["nbytes"], "nbytes"))
    return Parts(*_typed(value), opaque)


def _read_sparse(value: dict[str, object]) -> Parts:
    encoding = _text(value.get("encoding", ""), "encoding")
    if encoding not in _METADATA:
        _refuse(f"encoding is {_shown(encoding)}: give one of {', '.join(_METADATA)}")
    make, names = _METADATA[encoding]
    optional = ("tag",) if encoding == "packed" else ()
    _require_keys(value, ("dims", "data_type", "encoding", "nnz", *names), optional)
    types = [_data_type(value[name], name) for name in names]
    chosen = [_text(value["tag"], "tag")] if "tag" in value else []
    if "" in chosen:
        _refuse("tag is empty: leave it out")
    return Parts(*_typed(value), make(_integer(value["nnz"], "nnz"), *types, *chosen))


def _read_host_scalar(value: dict[str, object]) -> Parts:
    _require_keys(value, ("data_type",))
    return Parts((1,), _data_type(value["data_type"], "data_type"), kinds.HostScalar())


_READERS: Mapping[str, Callable[[dict[str, object]], Parts]] = MappingProxyType(
    {
        "undef": _read_undef,
        "any": _read_any,
        "blocked": _read_layout,
        "digits": _read_layout,
        "opaque": _read_opaque,
        "sparse": _read_sparse,
        "host_scalar": _read_host_scalar,
    }
)
"""What reads each kind."""

_METADATA: Mapping[str, tuple[Callable[..., kinds.Sparse], tuple[str, ...]]] = MappingProxyType(
    {
        "csr": (kinds.CSR, ("index_type", "pointer_type")),
        "coo": (kinds.COO, ("index_type",)),
        "packed": (kinds.Packed, ()),
    }
)
"""What makes each sparse encoding, and the keys of its types."""


# Values, each with the place that messages name.


def _typed(value: dict[str, object]) -> tuple[Dims, DataType]:
    dims = _dims(value["dims"], "dims")
    if not dims:
        _refuse("dims has no entries: only kind 'undef' has no dims")
    return dims, _data_type(value["data_type"], "data_type")


def _extras(value: object) -> Extras:
    fields = _object(value, "extras")
    if unknown := sorted(fields.keys() - set(_EXTRAS)):
        _refuse(f"key {_shown(unknown[0])} of extras is unknown: it has {', '.join(_EXTRAS)}")
    said: dict[str, Any] = dict(fields)
    if "gpu_geometry" in said:
        said["gpu_geometry"] = tuple(_list(said["gpu_geometry"], "extras.gpu_geometry"))
    extras = Extras(**said)
    if not extras:
        _refuse("extras has no flags: leave it out")
    return extras


def _digits(value: object, place: str) -> tuple[Digit, ...]:
    digits = []
    for i, pair in enumerate(_list(value, place)):
        numbers = _list(pair, f"{place}[{i}]")
        if len(numbers) != 2:
            _refuse(f"{place}[{i}] has {len(numbers)} entries: a digit has an extent and a stride")
        digits.append(Digit(_integer(numbers[0], f"{place}[{i}][0]"), _integer(numbers[1], f"{place}[{i}][1]")))
    return tuple(digits)


def _dims(value: object, place: str) -> Dims:
    values = _list(value, place)
    if len(values) > MAX_NDIMS:
        _refuse(f"{place} has {len(values)} entries: a descriptor has at most {MAX_NDIMS} dims")
    return tuple(RUNTIME if v == "RUNTIME" else _integer(v, f"{place}[{i}]") for i, v in enumerate(values))


def _integer(value: object, place: str) -> int:
    if type(value) is not int or not RUNTIME < value <= LARGEST:
        _refuse(f"{place} is {_shown(value)}: give an integer of 64 bits")
    return value


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        _refuse(f"{place} is {_shown(value)}: give a text")
    return value


def _data_type(value: object, place: str) -> DataType:
    if not isinstance(value, str) or value not in ALL_TYPES:
        _refuse(f"{place} is {_shown(value)}: give one of {', '.join(ALL_TYPES)}")
    return ALL_TYPES[value]


def _list(value: object, place: str) -> list[object]:
    if not isinstance(value, list):
        _refuse(f"{place} is {_shown(value)}: give a list")
    return value


def _object(value: object, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        _refuse(f"{place or 'it'} is {_shown(value)}: give an object")
    return value


def _require_keys(value: dict[str, object], wanted: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    missing = [key for key in wanted if key not in value]
    if missing:
        _refuse(f"key {missing[0]!r} is missing: kind {value['kind']!r} has {', '.join(wanted)}")
    unknown = sorted(value.keys() - {*_HEAD, *wanted, *optional})
    if unknown:
        _refuse(f"key {_shown(unknown[0])} is unknown: kind {value['kind']!r} has {', '.join(wanted) or 'no others'}")


def _shown(value: object) -> str:
    if isinstance(value, (list, dict)):
        # What comes from outside may be nested too deeply to print.
        return f"a {'list' if isinstance(value, list) else 'JSON object'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(problem: str) -> NoReturn:
    raise InvalidArguments(f"this is no JSON of a descriptor: {problem}")
