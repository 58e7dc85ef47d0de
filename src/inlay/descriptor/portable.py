"""Conversions of descriptors to and from JSON, blobs, and the objects of oneDNN, as `MemoryDesc` offers them.

>>> from inlay.descriptor import MemoryDesc
>>> desc = MemoryDesc((2, 17), "f32", "aB8b")
>>> MemoryDesc.from_json(desc.to_json()) == desc == MemoryDesc.from_blob(desc.to_blob())
True

JSON, pickle and copy preserve the spelling of a tag; blobs are canonical, so they can be used as keys. The modules
`serialization`, `blob` and `onednn_import` are loaded at first use, because few programs need them and they are a fifth
of the load time of this package.
"""

import ctypes
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from inlay.arguments import as_flag
from inlay.descriptor.extras import Extras
from inlay.descriptor.fields import DescriptorFields, FieldValues
from inlay.descriptor.queries import size
from inlay.errors import InvalidArguments

if TYPE_CHECKING:
    from inlay.descriptor.onednn_import import DescriptorHandle

D = TypeVar("D", bound=DescriptorFields)

_EXPORTER = ("inlay.engines.onednn", "export_descriptor")
"""Module and name of the function that creates handles. It is imported when called, as engines depend on this package.
"""


class OwnedHandle(Protocol):
    """A handle of a library, which is destroyed together with this object."""

    value: int
    """Address of the handle, for calls of the library."""


def to_json(desc: DescriptorFields, *, spelling: bool = True) -> str:
    """Return the descriptor as one JSON object, in a stable form with a version: see `descriptor.serialization`.

    Without `spelling`, the text does not depend on the letters of the tag that the descriptor was created from.

    Post-condition: `from_json` of the text returns an equal descriptor with the same layout, and with the same spelling
    unless `spelling` is false.

    Raises:
        InvalidArguments: the text would exceed 2**20 characters, because a layout has very many digits; or `spelling`
            is not a bool.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((4, 6), "bf16", "any").to_json()
    '{"inlay":"memory_desc","version":1,"kind":"any","dims":[4,6],"data_type":"bf16"}'
    """
    from inlay.descriptor.serialization import encode_json

    return encode_json(desc, spelling=as_flag("spelling", spelling))


def from_json(text: str) -> FieldValues:
    """Create the fields of `MemoryDesc.from_json`.

    Raises:
        InvalidArguments, Unimplemented: see `MemoryDesc.from_json`.
    """
    from inlay.descriptor.serialization import parse_json, validate_fields

    return validate_fields(parse_json(text))


def to_blob(desc: DescriptorFields) -> bytes:
    """Return the descriptor as bytes in Inlay's own form (`descriptor.blob`), which differs from oneDNN's blobs.

    Post-condition: two descriptors are equal exactly when their blobs are.

    Raises:
        InvalidArguments: as `to_json`.
        Unimplemented: the layout is swizzled.
    """
    from inlay.descriptor.blob import encode_blob

    return encode_blob(desc)


def from_blob(blob: object) -> FieldValues:
    """Create the fields of `MemoryDesc.from_blob`.

    Raises:
        InvalidArguments, Unimplemented: see `MemoryDesc.from_blob`.
    """
    from inlay.descriptor.blob import as_blob_bytes, parse_blob, require_canonical
    from inlay.descriptor.serialization import validate_fields

    data = as_blob_bytes(blob)
    parts = parse_blob(data)
    fields = validate_fields(parts)
    require_canonical(parts, data)
    return fields


def to_onednn(desc: DescriptorFields) -> OwnedHandle:
    """Create a `dnnl_memory_desc_t` of the oneDNN that Inlay computes with; `value` of the result is the pointer.

    The handle is destroyed together with the result, so keep the result while the library uses the pointer.
    `MemoryDesc.from_onednn(handle.value, library)` is the inverse.

    Raises:
        MissingExtra: oneDNN is not installed.
        InvalidArguments: the library rejects the descriptor.
        Unimplemented: the library cannot represent the descriptor: it is of kind `digits`, of a data type or kind that
            the library lacks, or an opaque format of another engine.
    """
    module, name = _EXPORTER
    return cast(OwnedHandle, getattr(importlib.import_module(module), name)(desc))


def from_onednn(
    source: ctypes.c_void_p | int | bytes,
    library: ctypes.CDLL,
    extras: Extras,
    name: str,
    make: Callable[[FieldValues], D],
) -> D:
    """Import a descriptor of oneDNN as in `MemoryDesc.from_onednn`; `make` creates the result from its fields.

    Raises:
        InvalidArguments, Unimplemented: see `MemoryDesc.from_onednn`.
    """
    from inlay.descriptor.onednn_import import DescriptorHandle, as_address, create_handle_from_blob, destroy

    if not isinstance(source, (bytes, bytearray)):
        return _import_handle(DescriptorHandle(library, as_address(source)), extras, name, make)
    pointer = create_handle_from_blob(library, bytes(source))
    try:
        return _import_handle(DescriptorHandle(library, as_address(pointer)), extras, name, make)
    finally:
        destroy(library, pointer)


def _import_handle(handle: "DescriptorHandle", extras: Extras, name: str, make: Callable[[FieldValues], D]) -> D:
    """Import the descriptor of a handle: read it, validate it, and compare its size with that of the library."""
    from inlay.descriptor.onednn_import import read_handle, require_format, require_known_extras
    from inlay.descriptor.serialization import validate_fields

    plain = read_handle(handle, name)
    # The checks below pass the descriptor to functions of the library, so it must be valid before.
    validate_fields(plain)
    require_format(plain)
    require_known_extras(handle, plain, extras)
    desc = make(validate_fields(replace(plain, extras=extras)))
    if not handle.has_size(size(desc), desc.offset0, desc.extras):
        raise InvalidArguments(f"{desc!r} has {size(desc)} bytes, but oneDNN says {handle.size}: it is not the same")
    return desc
