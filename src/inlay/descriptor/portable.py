"""Descriptors to and from what outlives a process or belongs to another library: JSON, bytes, oneDNN's own objects.

>>> from inlay.descriptor import MemoryDesc
>>> desc = MemoryDesc((2, 17), "f32", "aB8b")
>>> MemoryDesc.from_json(desc.to_json()) == desc == MemoryDesc.from_blob(desc.to_blob())
True

JSON, pickle and copy keep the spelling; blobs are canonical, so they serve as keys. `serialization` writes down both
forms, and what is read passes the same check there, whatever its source. It is loaded when first used, and so is
`imported`: few programs need them, and with digests and declarations they are a fifth of what describes layouts.
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
"""What makes handles of a library. Engines are in a package below this one, so it is loaded by name when called."""


class OwnedHandle(Protocol):
    """A handle of a library, which is destroyed when nothing refers to this object any more."""

    value: int
    """The pointer, for calls of the library."""


def to_json(desc: DescriptorFields, *, spelling: bool = True) -> str:
    """The descriptor as one JSON object, in a form that has a version and is stable: see `descriptor.serialization`.

    Post-condition: from_json of the text equals this descriptor and has its layout, and its spelling unless that is
    left out: without it the text does not depend on the letters in which a tag was typed.

    Raises:
        InvalidArguments: a layout has so many digits that the text would exceed 2**20 characters, or `spelling` is
            no truth value.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((4, 6), "bf16", "any").to_json()
    '{"inlay":"memory_desc","version":1,"kind":"any","dims":[4,6],"data_type":"bf16"}'
    """
    from inlay.descriptor.serialization import encode_json

    return encode_json(desc, spelling=as_flag("spelling", spelling))


def from_json(text: str) -> FieldValues:
    """The fields of `MemoryDesc.from_json`.

    Raises:
        InvalidArguments, Unimplemented: as there.
    """
    from inlay.descriptor.serialization import parse_json, validate_fields

    return validate_fields(parse_json(text))


def to_blob(desc: DescriptorFields) -> bytes:
    """The descriptor as bytes of Inlay's own form: see `descriptor.serialization`. oneDNN's blobs are others.

    Post-condition: two descriptors are equal exactly when their blobs are.

    Raises:
        InvalidArguments: as `to_json`.
    """
    from inlay.descriptor.blob import encode_blob

    return encode_blob(desc)


def from_blob(blob: object) -> FieldValues:
    """The fields of `MemoryDesc.from_blob`.

    Raises:
        InvalidArguments, Unimplemented: as there.
    """
    from inlay.descriptor.blob import as_blob_bytes, parse_blob, require_canonical
    from inlay.descriptor.serialization import validate_fields

    data = as_blob_bytes(blob)
    parts = parse_blob(data)
    fields = validate_fields(parts)
    require_canonical(parts, data)
    return fields


def to_onednn(desc: DescriptorFields) -> OwnedHandle:
    """A live `dnnl_memory_desc_t` of the oneDNN that Inlay computes with: `handle.value` is the pointer.

    It is destroyed when nothing refers to the result any more, so keep the result while the library uses the
    pointer. `MemoryDesc.from_onednn(handle.value, library)` is the way back.

    Raises:
        MissingExtra: no oneDNN is installed.
        InvalidArguments: the library refuses the descriptor.
        Unimplemented: the library, or oneDNN at all, cannot say it: free digits, a type or kind that it lacks, or
            an opaque format of another engine.
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
    """What `make` makes of the fields of `MemoryDesc.from_onednn`, if the library gives it the same size.

    Raises:
        InvalidArguments, Unimplemented: as there.
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
    from inlay.descriptor.onednn_import import read_handle, require_format, require_known_extras
    from inlay.descriptor.serialization import validate_fields

    plain = read_handle(handle, name)
    # Only what is a descriptor is given back to the library's own arithmetic.
    validate_fields(plain)
    require_format(plain)
    require_known_extras(handle, plain, extras)
    desc = make(validate_fields(replace(plain, extras=extras)))
    if not handle.has_size(size(desc), desc.offset0, desc.extras):
        raise InvalidArguments(f"{desc!r} has {size(desc)} bytes, but oneDNN says {handle.size}: it is not the same")
    return desc
