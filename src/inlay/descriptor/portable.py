"""Descriptors to and from what outlives a process or belongs to another library: JSON, bytes, oneDNN's own objects.

>>> from inlay.descriptor import MemoryDesc
>>> desc = MemoryDesc((2, 17), "f32", "aB8b")
>>> MemoryDesc.from_json(desc.to_json()) == desc == MemoryDesc.from_blob(desc.to_blob())
True

JSON, pickle and copy keep the spelling; blobs are canonical, so they serve as keys. The forms are written down in
`json_form` and `blob_form`, and what is read passes the same check whatever its source (`parts`). They are loaded when
first used: few programs need them, and with digests and declarations they are a fifth of what describes layouts.
"""

import ctypes
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self, cast

from inlay.arguments import as_flag
from inlay.descriptor.encoded import Encoded
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.errors import InvalidArguments

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from inlay.descriptor.imported import Handle
    from inlay.descriptor.parts import Parts


_EXPORTER = ("inlay.engine.onednn", "export_descriptor")
"""What makes handles of a library: engines stand in a room below this one, so it is loaded by name when asked for."""


class OwnedHandle(Protocol):
    """A handle of a library, which is destroyed when nothing refers to this object any more."""

    value: int
    """The pointer, for calls of the library."""


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Portable(Encoded):
    """What writes descriptors and reads them back."""

    @property
    def _parts(self) -> "Parts":
        from inlay.descriptor.parts import Parts

        return Parts(self.dims, self.data_type, self.layout, self.offset0, self.extras, self.spelling)

    @classmethod
    def _of(cls, parts: "Parts") -> Self:
        from inlay.descriptor.parts import checked

        blocks = checked(parts)
        desc = cls.__new__(cls)
        desc._fill(parts.dims, parts.data_type, parts.layout, parts.offset0, blocks, parts.extras, parts.spelling)
        return desc

    def to_json(self, *, spelling: bool = True) -> str:
        """The descriptor as one JSON object, in a form that has a version and is stable: see `descriptor.json_form`.

        Post-condition: from_json of the text equals this descriptor and has its layout, and its spelling unless that is
        left out: without it the text does not depend on the letters in which a tag was typed.

        Raises:
            InvalidArguments: a layout has so many digits that the text would exceed 2**20 characters, or `spelling` is
                no truth value.

        >>> from inlay.descriptor import MemoryDesc
        >>> MemoryDesc((4, 6), "bf16", "any").to_json()
        '{"inlay":"memory_desc","version":1,"kind":"any","dims":[4,6],"data_type":"bf16"}'
        """
        from inlay.descriptor.json_form import json_of

        return json_of(self._parts if as_flag("spelling", spelling) else replace(self._parts, spelling=None))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The descriptor that `to_json` wrote.

        Raises:
            InvalidArguments: `text` has another form or version, a key is missing, unknown or there twice, a value has
                the wrong type or range, or what it says is no descriptor.
            Unimplemented: it says compressed sparse rows of more than 2 dims.
        """
        from inlay.descriptor.json_form import parts_of_json

        return cls._of(parts_of_json(text))

    def to_blob(self) -> bytes:
        """The descriptor as bytes of Inlay's own form: see `descriptor.blob_form`. oneDNN's blobs are others.

        Post-condition: two descriptors are equal exactly when their blobs are.

        Raises:
            InvalidArguments: as `to_json`.
        """
        from inlay.descriptor.blob_form import blob_of

        return blob_of(self._parts)

    @classmethod
    def from_blob(cls, blob: "bytes | bytearray | memoryview | Sequence[int] | npt.NDArray[np.uint8]") -> Self:
        """The descriptor that `to_blob` wrote; strides of unit axes are 1.

        `blob` is bytes, anything with the buffer protocol whose elements are bytes, such as an array of uint8, or a
        sequence of integers from 0 to 255.

        Post-condition: from_blob(blob).to_blob() == blob.

        Raises:
            InvalidArguments: `blob` is truncated, changed, of another library or version, or says no descriptor.
            Unimplemented: as `from_json`.
        """
        from inlay.descriptor.blob_form import bytes_of_blob, parts_of_blob, require_canonical

        data = bytes_of_blob(blob)
        desc = cls._of(parts_of_blob(data))
        require_canonical(desc._parts, data)
        return desc

    def to_onednn(self) -> OwnedHandle:
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
        return cast(OwnedHandle, getattr(importlib.import_module(module), name)(self))

    @classmethod
    def from_onednn(
        cls,
        source: ctypes.c_void_p | int | bytes,
        library: ctypes.CDLL,
        *,
        extras: Extras = NO_EXTRAS,
        name: str = "opaque",
    ) -> Self:
        """The descriptor of a loaded oneDNN 3: `source` is a `dnnl_memory_desc_t` (handle or address), or a blob of it.

        The handle stays the caller's. It must be one of `library`, which nothing can check; NULL is refused. A blob is
        read by the library that wrote it. Its queries do not tell extra flags, only that there are some: whoever asked
        for them gives them as `extras`. An opaque format, which they only call so, gets `name`.

        Post-condition: the result has the dims, type, padding, strides, blocks, offset and size that the library tells.

        Raises:
            InvalidArguments: `source` is NULL or neither a handle nor a blob of this library, `library` is no oneDNN 3,
                or `extras` are not those of the descriptor.
            Unimplemented: oneDNN says what no descriptor here can: another data type, padding before the data, extras
                that were not given, a packed encoding that is filled; or the library is too old for blobs.
        """
        from inlay.descriptor.imported import Handle, address_of, destroy, handle_of_blob

        if not isinstance(source, (bytes, bytearray)):
            return cls._of_handle(Handle(library, address_of(source)), extras, name)
        pointer = handle_of_blob(library, bytes(source))
        try:
            return cls._of_handle(Handle(library, address_of(pointer)), extras, name)
        finally:
            destroy(library, pointer)

    @classmethod
    def _of_handle(cls, handle: "Handle", extras: Extras, name: str) -> Self:
        from inlay.descriptor.imported import parts_of_handle, require_format, require_known_extras
        from inlay.descriptor.parts import Parts, checked

        plain = parts_of_handle(handle, name)
        # Only what is a descriptor is given back to the library's own arithmetic.
        checked(plain)
        require_format(plain)
        require_known_extras(handle, plain, extras)
        desc = cls._of(Parts(plain.dims, plain.data_type, plain.layout, plain.offset0, extras))
        if not handle.says(desc.size, desc.offset0, desc.extras):
            raise InvalidArguments(f"{desc!r} has {desc.size} bytes, but oneDNN says {handle.size}: it is not the same")
        return desc
