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
from inlay.descriptor.described import Described, Fields
from inlay.descriptor.extras import Extras
from inlay.descriptor.queries import size
from inlay.errors import InvalidArguments

if TYPE_CHECKING:
    from inlay.descriptor.imported import Handle

D = TypeVar("D", bound=Described)

_EXPORTER = ("inlay.engines.onednn", "export_descriptor")
"""What makes handles of a library. Engines are in a package below this one, so it is loaded by name when called."""


class OwnedHandle(Protocol):
    """A handle of a library, which is destroyed when nothing refers to this object any more."""

    value: int
    """The pointer, for calls of the library."""


def to_json(desc: Described, *, spelling: bool = True) -> str:
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
    from inlay.descriptor.serialization import json_of

    return json_of(desc, spelling=as_flag("spelling", spelling))


def from_json(text: str) -> Fields:
    """The fields of `MemoryDesc.from_json`.

    Raises:
        InvalidArguments, Unimplemented: as there.
    """
    from inlay.descriptor.serialization import checked_fields, parts_of_json

    return checked_fields(parts_of_json(text))


def to_blob(desc: Described) -> bytes:
    """The descriptor as bytes of Inlay's own form: see `descriptor.serialization`. oneDNN's blobs are others.

    Post-condition: two descriptors are equal exactly when their blobs are.

    Raises:
        InvalidArguments: as `to_json`.
    """
    from inlay.descriptor.serialization import blob_of

    return blob_of(desc)


def from_blob(blob: object) -> Fields:
    """The fields of `MemoryDesc.from_blob`.

    Raises:
        InvalidArguments, Unimplemented: as there.
    """
    from inlay.descriptor.serialization import bytes_of_blob, checked_fields, parts_of_blob, require_canonical

    data = bytes_of_blob(blob)
    parts = parts_of_blob(data)
    fields = checked_fields(parts)
    require_canonical(parts, data)
    return fields


def to_onednn(desc: Described) -> OwnedHandle:
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
    source: ctypes.c_void_p | int | bytes, library: ctypes.CDLL, extras: Extras, name: str, make: Callable[[Fields], D]
) -> D:
    """What `make` makes of the fields of `MemoryDesc.from_onednn`, if the library gives it the same size.

    Raises:
        InvalidArguments, Unimplemented: as there.
    """
    from inlay.descriptor.imported import Handle, address_of, destroy, handle_of_blob

    if not isinstance(source, (bytes, bytearray)):
        return _of_handle(Handle(library, address_of(source)), extras, name, make)
    pointer = handle_of_blob(library, bytes(source))
    try:
        return _of_handle(Handle(library, address_of(pointer)), extras, name, make)
    finally:
        destroy(library, pointer)


def _of_handle(handle: "Handle", extras: Extras, name: str, make: Callable[[Fields], D]) -> D:
    from inlay.descriptor.imported import parts_of_handle, require_format, require_known_extras
    from inlay.descriptor.serialization import checked_fields

    plain = parts_of_handle(handle, name)
    # Only what is a descriptor is given back to the library's own arithmetic.
    checked_fields(plain)
    require_format(plain)
    require_known_extras(handle, plain, extras)
    desc = make(checked_fields(replace(plain, extras=extras)))
    if not handle.says(size(desc), desc.offset0, desc.extras):
        raise InvalidArguments(f"{desc!r} has {size(desc)} bytes, but oneDNN says {handle.size}: it is not the same")
    return desc
