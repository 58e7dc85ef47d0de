"""Descriptors as JSON, and the validation of untrusted descriptors.

JSON, a blob and an object of another library are untrusted. Their content is parsed into `DescriptorParts`.
`validate_parts` accepts only what a constructor or a view could have created:

    dims (2, 17)   padded_dims (2, 24)   strides (24, 8)   one block of 8          valid
    dims (2, 17)   padded_dims (2, 16)   ...                                       invalid: 16 < 17
    dims (4, 4)    strides (3, 1), of kind blocked                                 invalid: elements share offsets

The JSON of a descriptor is one object, whose form has a version and is parsed strictly:

    {"inlay": "memory_desc", "version": 2, "kind": "blocked", "dims": [2, 17], "data_type": "f32",
     "padded_dims": [2, 24], "strides": [24, 8], "inner_digits": [[], [[8, 1]]], "offset0": 0, "format": "nC8c"}

Every object has `inlay`, `version` and `kind`. The other keys depend on the kind, and unknown keys are an error:

    kind             keys
    undef            -
    any              dims, data_type
    swizzled         as digits, without extras, and swizzle: bits, base and shift; version 2
    blocked, digits  dims, data_type, padded_dims, strides, inner_digits, offset0; extras if there are any;
                     format, in version 2, if the descriptor was created from a text that is no tag in abstract letters
    opaque           dims, data_type, name, nbytes
    sparse           dims, data_type, encoding, nnz; index_type for csr and coo, pointer_type for csr, tag for packed
                     if one is chosen
    host_scalar      data_type

    dims, padded_dims, strides   integers of 64 bits, or "RUNTIME"; strides are those of each axis' leading digit
    inner_digits                 per axis, extent and stride of every other digit, most significant first
    extras                       flags, compensation_mask, scale_adjust, asymmetric_mask, gpu_geometry, gpu_nbytes;
                                 a missing key has the default of `Extras`
    format                       the text of the format, which must give these padded dims and digits; strides of
                                 leading digits may be larger, in the same order

Version 1 is version 2 without `format`. Both are parsed. Version 1 is written if there is no `format`, so that older
versions of Inlay can parse it.

JSON preserves the fields exactly, including strides of unit axes and blocks of one element. The length of a text is
bounded, no key may be missing, unknown or duplicate, every value must have its type, and the content must be a valid
descriptor.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn, assert_never

from inlay.data_type import ALL_TYPES, DataType
from inlay.descriptor import kinds
from inlay.descriptor.creation import add_swizzle, dense_inner_blocks, onednn_blocks
from inlay.descriptor.extras import NO_EXTRAS, Extras, require_extras
from inlay.descriptor.fields import DescriptorFields, FieldValues, InnerBlocks, kind
from inlay.descriptor.outer_strides import is_spelled
from inlay.descriptor.sparsity import make_coo, make_csr, make_opaque, make_packed
from inlay.descriptor.validation import LARGEST, MAX_NDIMS, require_dims, require_nested, require_placed
from inlay.errors import InvalidArguments, shown
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout, Swizzle
from inlay.notation import parse_notation
from inlay.notation.format_tag import FormatTag
from inlay.notation.recognition import SwizzledNotation


@dataclass(frozen=True, slots=True)
class DescriptorParts:
    """The fields of a descriptor before validation."""

    dims: Dims
    """Logical dims; empty for the zero descriptor."""
    data_type: DataType | None
    """Data type of the elements; None for the zero descriptor only."""
    layout: kinds.Placement
    """Layout of the padded dims, or the kind of a descriptor without a layout."""
    offset0: int = 0
    """Offset of the origin in the buffer, in elements."""
    extras: Extras = NO_EXTRAS
    """Flags and masks of the buffers behind the elements."""
    spelling: str | None = None
    """Text of the format that the descriptor was created from; None if there was none."""

    @property
    def _blocks(self) -> InnerBlocks | None:
        """The inner blocks; None if oneDNN cannot represent the layout."""
        return onednn_blocks(self.layout) if isinstance(self.layout, Layout) else None


def validate_fields(parts: DescriptorParts) -> FieldValues:
    """Validate the parts of a descriptor and return its fields.

    Raises:
        InvalidArguments, Unimplemented: as `validate_parts`.
    """
    blocks = validate_parts(parts)
    spelling = None if parts.spelling is None else parse_notation(parts.spelling).spelling
    return parts.dims, parts.data_type, parts.layout, parts.offset0, blocks, parts.extras, spelling


def validate_parts(parts: DescriptorParts) -> InnerBlocks | None:
    """Check that parts form a descriptor, and return the inner blocks of a layout that oneDNN can represent, or None.

    Strides of 4-bit elements may be odd, as they are in some views.

    Raises:
        InvalidArguments: the parts do not form a descriptor.
        Unimplemented: compressed sparse rows of more than 2 dims.
    """
    placement = parts.layout
    if (parts.data_type is None) != isinstance(placement, kinds.Undefined) or (parts.data_type is None) == bool(
        parts.dims
    ):
        raise InvalidArguments("only the zero descriptor has no dims and no data type, and it has neither")
    if not isinstance(placement, (Layout, kinds.SwizzledLayout)) and (parts.offset0 or parts.extras):
        raise InvalidArguments("offset0 and extras belong to a layout: this descriptor has none")
    match placement:
        case kinds.Undefined():
            return None
        case Layout():
            return _checked_layout(parts, placement)
        case kinds.SwizzledLayout(layout=layout, swizzle=swizzle):
            _require_swizzled(parts, layout, swizzle)
        case kinds.Any():
            _require_any(parts.dims)
        case kinds.Opaque(name=name, nbytes=nbytes):
            make_opaque(parts.dims, name, nbytes)
        case kinds.CSR(nnz=nnz, index_type=index_type, pointer_type=pointer_type):
            _require_number(parts)
            make_csr(parts.dims, nnz, index_type, pointer_type)
        case kinds.COO(nnz=nnz, index_type=index_type):
            _require_number(parts)
            make_coo(parts.dims, nnz, index_type)
        case kinds.Packed(nnz=nnz, tag=tag):
            _require_number(parts)
            abstract_tag = make_packed(parts.dims, nnz, tag).tag
            if abstract_tag != tag:
                raise InvalidArguments(f"tag of the packed encoding is {tag!r}: write it as {abstract_tag!r}")
        case kinds.HostScalar():
            _require_number(parts)
            if parts.dims != (1,):
                raise InvalidArguments(f"a host scalar has dims (1,), not {parts.dims}")
        case _:
            assert_never(placement)
    return None


def _require_any(dims: Dims) -> None:
    """Check the dims of a descriptor of kind `any`."""
    require_dims(dims)
    if RUNTIME in dims:
        raise InvalidArguments("format any needs known dims: a primitive cannot choose a layout for RUNTIME ones")


def _checked_layout(parts: DescriptorParts, layout: Layout) -> InnerBlocks | None:
    """Check the parts of a descriptor with a layout, and return its inner blocks or None."""
    assert parts.data_type is not None
    require_placed(parts.dims, layout, parts.offset0)
    parts.extras.require_axes(len(parts.dims))
    blocks = onednn_blocks(layout)
    if blocks is not None:
        require_nested(layout, parts.data_type, whole_bytes=False)
    _require_spelled(parts, layout)
    return blocks


def _require_spelled(parts: DescriptorParts, layout: Layout, swizzle: Swizzle | None = None) -> None:
    """Check that the text of the format gives `layout` and `swizzle`, if there is one."""
    if parts.spelling is None:
        return
    notation = parse_notation(parts.spelling)
    spelled = notation.swizzle if isinstance(notation, SwizzledNotation) and notation.swizzle.bits else swizzle
    if spelled != swizzle or not is_spelled(layout, notation):
        raise InvalidArguments(f"format {shown(parts.spelling)} gives dims {layout.dims} another layout")


def _require_swizzled(parts: DescriptorParts, layout: Layout, swizzle: Swizzle) -> None:
    """Check the parts of a descriptor with a swizzled layout."""
    assert parts.data_type is not None
    require_placed(parts.dims, layout, parts.offset0)
    require_extras(parts.extras, False, len(parts.dims))
    if not swizzle.bits:
        raise InvalidArguments(f"{swizzle} is the identity: a descriptor of kind swizzled has another swizzle")
    add_swizzle(layout, swizzle, parts.data_type, parts.offset0, None)
    _require_spelled(parts, layout, swizzle)


def _require_number(parts: DescriptorParts) -> None:
    """Check that the data type is a type of numbers."""
    if parts.data_type is not None and not parts.data_type.is_number:
        raise InvalidArguments(f"sparse tensors and host scalars hold numbers: {parts.data_type} can only be copied")


# JSON


VERSIONS = (1, 2)
"""Versions of the JSON form. Both are parsed; the first that suffices for a descriptor is written."""

MAX_CHARACTERS = 2**20
"""Length limit of JSON texts, in characters; descriptors of tags have a few hundred."""

_NAME = "memory_desc"

_HEAD = ("inlay", "version", "kind")

_LAYOUT_KEYS = ("dims", "data_type", "padded_dims", "strides", "inner_digits", "offset0")

_EXTRAS = ("flags", "compensation_mask", "scale_adjust", "asymmetric_mask", "gpu_geometry", "gpu_nbytes")


def encode_json(desc: DescriptorFields, *, spelling: bool = True) -> str:
    """Return the JSON of a descriptor, without spaces and line breaks; without `spelling`, the key `format` is omitted.

    Raises:
        InvalidArguments: the text would exceed `MAX_CHARACTERS`.
    """
    values = _json_values(desc, spelling)
    text = json.dumps(
        {"inlay": _NAME, "version": 2 if "format" in values or "swizzle" in values else 1, **values},
        separators=(",", ":"),
    )
    if len(text) > MAX_CHARACTERS:
        raise InvalidArguments(
            f"the descriptor takes {len(text)} characters of JSON: at most {MAX_CHARACTERS} are read"
        )
    return text


def _json_values(desc: DescriptorFields, spelling: bool) -> dict[str, Any]:
    """Return the keys of the kind of a descriptor, and their values."""
    placement, data_type = desc.layout, str(desc.data_type)
    typed = {"kind": kind(desc), "dims": _dims_values(desc.dims), "data_type": data_type}
    match placement:
        case Layout():
            optional: dict[str, Any] = {"extras": _extras_values(desc.extras)} if desc.extras else {}
            if spelling and desc.spelling is not None and not is_canonical_tag(desc.spelling):
                optional["format"] = desc.spelling
            return {**typed, **_layout_values(placement), "offset0": desc.offset0, **optional}
        case kinds.SwizzledLayout(layout=layout, swizzle=swizzle):
            named = {"format": desc.spelling} if spelling and desc.spelling is not None else {}
            numbers = [swizzle.bits, swizzle.base, swizzle.shift]
            return {**typed, **_layout_values(layout), "offset0": desc.offset0, "swizzle": numbers, **named}
        case kinds.Any():
            return typed
        case kinds.Opaque(name=name, nbytes=nbytes):
            return {**typed, "name": name, "nbytes": nbytes}
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            values = {name: str(getattr(placement, name, "")) for name in ("index_type", "pointer_type", "tag")}
            present = {name: value for name, value in values.items() if value}
            return {**typed, "encoding": placement.encoding, "nnz": placement.nnz, **present}
        case kinds.HostScalar():
            return {"kind": "host_scalar", "data_type": data_type}
        case kinds.Undefined():
            return {"kind": "undef"}
    assert_never(placement)


def is_canonical_tag(spelling: str) -> bool:
    """Return True if `spelling` is a format tag in abstract letters, which `MemoryDesc.tag` restores.

    >>> is_canonical_tag("aBcd8b"), is_canonical_tag("nChw8c"), is_canonical_tag("a b -> b a")
    (True, False, False)
    """
    notation = parse_notation(spelling)
    return isinstance(notation, FormatTag) and spelling == str(notation)


def _layout_values(layout: Layout) -> dict[str, Any]:
    """Return the keys of a layout and their values."""
    return {
        "padded_dims": _dims_values(layout.dims),
        "strides": _dims_values(tuple(axis.stride for axis in layout.axes)),
        "inner_digits": [[_dims_values((d.extent, d.stride)) for d in axis.inner] for axis in layout.axes],
    }


def _dims_values(values: Dims) -> list[int | str]:
    """Return a list for JSON, with RUNTIME as a string."""
    return ["RUNTIME" if value == RUNTIME else value for value in values]


def _extras_values(extras: Extras) -> dict[str, Any]:
    """Return the fields of extras that do not have their default, for JSON."""
    values = {name: getattr(extras, name) for name in _EXTRAS if getattr(extras, name) != getattr(NO_EXTRAS, name)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def parse_json(text: object) -> DescriptorParts:
    """Parse a JSON text into parts of the right types, which are not yet validated together.

    Raises:
        InvalidArguments: `text` does not have the form of a descriptor; the error names the key.
    """
    value = _read_object(_parse_text(text), "")
    for key in _HEAD:
        if key not in value:
            _refuse(f"key {key!r} is missing")
    if value["inlay"] != _NAME:
        _refuse(f"inlay is {_value_text(value['inlay'])}: give {_NAME!r}")
    if type(value["version"]) is not int or value["version"] not in VERSIONS:
        _refuse(f"version is {_value_text(value['version'])}: this Inlay reads 1 and 2; use the Inlay that wrote it")
    kind = _read_text(value["kind"], "kind")
    if kind not in _READERS:
        _refuse(f"kind is {_value_text(kind)}: give one of {', '.join(_READERS)}")
    return _READERS[kind](value)


def _parse_text(text: object) -> object:
    """Parse a text of bounded length as JSON without duplicate keys."""
    if not isinstance(text, str):
        _refuse(f"it is a {type(text).__name__}: give the text that to_json wrote")
    if len(text) > MAX_CHARACTERS:
        _refuse(f"it has {len(text)} characters: at most {MAX_CHARACTERS} are read")
    try:
        return json.loads(
            text, object_pairs_hook=_reject_duplicate_keys, parse_constant=lambda name: _refuse(f"{name} is no number")
        )
    except InvalidArguments:
        raise
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidArguments(f"this is no JSON of a descriptor: {reason}") from None


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs of a JSON object as a dict; a key that occurs twice is an error."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        _refuse(f"key {_value_text(next(key for key in keys if keys.count(key) > 1))} is there twice")
    return value


def _read_undef(value: dict[str, object]) -> DescriptorParts:
    """Read the JSON object of the zero descriptor."""
    _require_keys(value, ())
    return DescriptorParts((), None, kinds.Undefined())


def _read_any(value: dict[str, object]) -> DescriptorParts:
    """Read the JSON object of kind `any`."""
    _require_keys(value, ("dims", "data_type"))
    return DescriptorParts(*_read_dims_and_type(value), kinds.Any())


def _read_layout(value: dict[str, object]) -> DescriptorParts:
    """Read the JSON object of kind `blocked` or `digits`."""
    _require_keys(value, _LAYOUT_KEYS, optional=("extras",) if value["version"] == 1 else ("extras", "format"))
    layout = _read_digits_and_strides(value)
    kind = "digits" if onednn_blocks(layout) is None else "blocked"
    if value["kind"] == "blocked" and dense_inner_blocks(layout) is not None:
        require_nested(layout, _read_data_type(value["data_type"], "data_type"), whole_bytes=False)
    if value["kind"] != kind:
        _refuse(f"kind is {_value_text(value['kind'])}: its digits are those of kind {kind!r}")
    extras = _read_extras(value["extras"]) if "extras" in value else NO_EXTRAS
    offset0 = _read_integer(value["offset0"], "offset0")
    return DescriptorParts(*_read_dims_and_type(value), layout, offset0, extras, _read_spelling(value))


def _read_swizzled(value: dict[str, object]) -> DescriptorParts:
    """Read the JSON object of kind `swizzled`."""
    _require_keys(value, (*_LAYOUT_KEYS, "swizzle"), optional=("format",))
    layout = _read_digits_and_strides(value)
    numbers = [_read_integer(entry, "swizzle") for entry in _read_list(value["swizzle"], "swizzle")]
    if len(numbers) != 3:
        _refuse(f"swizzle has {len(numbers)} entries: it has bits, base and shift")
    placement = kinds.SwizzledLayout(layout, Swizzle(*numbers))
    offset0 = _read_integer(value["offset0"], "offset0")
    return DescriptorParts(*_read_dims_and_type(value), placement, offset0, NO_EXTRAS, _read_spelling(value))


def _read_spelling(value: dict[str, object]) -> str | None:
    """Return the text of the format, None if there is none."""
    return _read_text(value["format"], "format") if "format" in value else None


def _read_digits_and_strides(value: dict[str, object]) -> Layout:
    """Read the layout of a JSON object."""
    padded, strides = _read_dims(value["padded_dims"], "padded_dims"), _read_dims(value["strides"], "strides")
    inner = [
        _read_digits(digits, f"inner_digits[{i}]")
        for i, digits in enumerate(_read_list(value["inner_digits"], "inner_digits"))
    ]
    for what, entries in (("strides", strides), ("inner_digits", inner)):
        if len(entries) != len(padded):
            _refuse(f"{what} has {len(entries)} entries: padded_dims has {len(padded)}")
    return Layout(padded, tuple(Axis(stride, digits) for stride, digits in zip(strides, inner, strict=True)))


def _read_opaque(value: dict[str, object]) -> DescriptorParts:
    """Read the JSON object of kind `opaque`."""
    _require_keys(value, ("dims", "data_type", "name", "nbytes"))
    opaque = kinds.Opaque(_read_text(value["name"], "name"), _read_integer(value["nbytes"], "nbytes"))
    return DescriptorParts(*_read_dims_and_type(value), opaque)


def _read_sparse(value: dict[str, object]) -> DescriptorParts:
    """Read the JSON object of kind `sparse`."""
    encoding = _read_text(value.get("encoding", ""), "encoding")
    if encoding not in _METADATA:
        _refuse(f"encoding is {_value_text(encoding)}: give one of {', '.join(_METADATA)}")
    make, names = _METADATA[encoding]
    optional = ("tag",) if encoding == "packed" else ()
    _require_keys(value, ("dims", "data_type", "encoding", "nnz", *names), optional)
    types = [_read_data_type(value[name], name) for name in names]
    chosen = [_read_text(value["tag"], "tag")] if "tag" in value else []
    if "" in chosen:
        _refuse("tag is empty: leave it out")
    return DescriptorParts(*_read_dims_and_type(value), make(_read_integer(value["nnz"], "nnz"), *types, *chosen))


def _read_host_scalar(value: dict[str, object]) -> DescriptorParts:
    """Read the JSON object of kind `host_scalar`."""
    _require_keys(value, ("data_type",))
    return DescriptorParts((1,), _read_data_type(value["data_type"], "data_type"), kinds.HostScalar())


_READERS: Mapping[str, Callable[[dict[str, object]], DescriptorParts]] = MappingProxyType(
    {
        "undef": _read_undef,
        "any": _read_any,
        "blocked": _read_layout,
        "digits": _read_layout,
        "swizzled": _read_swizzled,
        "opaque": _read_opaque,
        "sparse": _read_sparse,
        "host_scalar": _read_host_scalar,
    }
)
"""Function that reads the JSON object of each kind."""

_METADATA: Mapping[str, tuple[Callable[..., kinds.Sparse], tuple[str, ...]]] = MappingProxyType(
    {
        "csr": (kinds.CSR, ("index_type", "pointer_type")),
        "coo": (kinds.COO, ("index_type",)),
        "packed": (kinds.Packed, ()),
    }
)
"""Class of each sparse encoding, and the keys of its data types."""


# Values of JSON; `path` is the key that errors name.


def _read_dims_and_type(value: dict[str, object]) -> tuple[Dims, DataType]:
    """Read the keys `dims`, which are not empty, and `data_type`."""
    dims = _read_dims(value["dims"], "dims")
    if not dims:
        _refuse("dims has no entries: only kind 'undef' has no dims")
    return dims, _read_data_type(value["data_type"], "data_type")


def _read_extras(value: object) -> Extras:
    """Read an object with the fields of `Extras`."""
    fields = _read_object(value, "extras")
    if unknown := sorted(fields.keys() - set(_EXTRAS)):
        _refuse(f"key {_value_text(unknown[0])} of extras is unknown: it has {', '.join(_EXTRAS)}")
    arguments: dict[str, Any] = dict(fields)
    if "gpu_geometry" in arguments:
        arguments["gpu_geometry"] = tuple(_read_list(arguments["gpu_geometry"], "extras.gpu_geometry"))
    extras = Extras(**arguments)
    if not extras:
        _refuse("extras has no flags: leave it out")
    return extras


def _read_digits(value: object, path: str) -> tuple[Digit, ...]:
    """Read a list of digits, each a list of extent and stride."""
    digits = []
    for i, pair in enumerate(_read_list(value, path)):
        numbers = _read_list(pair, f"{path}[{i}]")
        if len(numbers) != 2:
            _refuse(f"{path}[{i}] has {len(numbers)} entries: a digit has an extent and a stride")
        digits.append(Digit(_read_integer(numbers[0], f"{path}[{i}][0]"), _read_integer(numbers[1], f"{path}[{i}][1]")))
    return tuple(digits)


def _read_dims(value: object, path: str) -> Dims:
    """Read a list of at most 12 integers or "RUNTIME"."""
    values = _read_list(value, path)
    if len(values) > MAX_NDIMS:
        _refuse(f"{path} has {len(values)} entries: a descriptor has at most {MAX_NDIMS} dims")
    return tuple(RUNTIME if v == "RUNTIME" else _read_integer(v, f"{path}[{i}]") for i, v in enumerate(values))


def _read_integer(value: object, path: str) -> int:
    """Read an integer of 64 bits."""
    if type(value) is not int or not RUNTIME < value <= LARGEST:
        _refuse(f"{path} is {_value_text(value)}: give an integer of 64 bits")
    return value


def _read_text(value: object, path: str) -> str:
    """Read a string."""
    if not isinstance(value, str):
        _refuse(f"{path} is {_value_text(value)}: give a text")
    return value


def _read_data_type(value: object, path: str) -> DataType:
    """Read the name of a data type."""
    if not isinstance(value, str) or value not in ALL_TYPES:
        _refuse(f"{path} is {_value_text(value)}: give one of {', '.join(ALL_TYPES)}")
    return ALL_TYPES[value]


def _read_list(value: object, path: str) -> list[object]:
    """Read a list."""
    if not isinstance(value, list):
        _refuse(f"{path} is {_value_text(value)}: give a list")
    return value


def _read_object(value: object, path: str) -> dict[str, object]:
    """Read a JSON object."""
    if not isinstance(value, dict):
        _refuse(f"{path or 'it'} is {_value_text(value)}: give an object")
    return value


def _require_keys(value: dict[str, object], wanted: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    """Check that an object has the keys `wanted`, and no others but `optional` ones."""
    missing = [key for key in wanted if key not in value]
    if missing:
        _refuse(f"key {missing[0]!r} is missing: kind {value['kind']!r} has {', '.join(wanted)}")
    unknown = sorted(value.keys() - {*_HEAD, *wanted, *optional})
    if unknown:
        _refuse(
            f"key {_value_text(unknown[0])} is unknown: kind {value['kind']!r} has {', '.join(wanted) or 'no others'}"
        )


def _value_text(value: object) -> str:
    """Return the text of a JSON value in an error, in at most 60 characters."""
    if isinstance(value, (list, dict)):
        # A value of an untrusted text may be nested too deeply to print.
        return f"a {'list' if isinstance(value, list) else 'JSON object'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(problem: str) -> NoReturn:
    """Raise the error for a text that is not the JSON of a descriptor."""
    raise InvalidArguments(f"this is no JSON of a descriptor: {problem}")
