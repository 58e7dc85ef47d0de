"""Descriptors across the border, both ways and without loss: `MemoryDesc` to `dnnl_memory_desc_t` and back.

To the library, each by the create function of its kind:

    strides without padding         memory_desc_create_with_strides
    inner blocks                    memory_desc_create_with_string_tag: aBcd8b
    any, sparse, host scalar        their own; a packed one without its tag, which the library chooses
    opaque                          the library's own descriptor, kept here under the name that it was given

No create function takes padding that is not whole blocks, strides of blocked axes, `offset0`, or extras. These are
written where the library's queries say that they stand, and read back before the descriptor is used: a library whose
structure is another one is found out, not misled.

Back, the library is asked (`descriptor.onednn_import`). What it chose for the same question before is recognized by
its own `memory_desc_equal` and by its strides, so the second primitive of a kind takes a microsecond for each argument.

The strides of unit axes, which equality ignores, are kept both ways: `creation.spellings` says which ones the library
is given.

No function tells the order that the library chose for a packed sparse tensor. Its descriptor holds, behind the fields
that queries answer, the strides and inner blocks of the blocked format whose zeros are left out. They stand where a
blocked descriptor has its own, three fields later:

    blocked    strides, number of blocks, sizes, axes
    packed     encoding, nnz, two types, then the same

Where the fields before are not found there, or the sizes of the buffers do not follow from what was read, the
structure is another one, and the descriptor is refused.

Source: oneDNN, `memory_desc_t`, `sparse_desc_t` and `memory_desc_wrapper::size`.
"""

import threading
from collections import deque
from collections.abc import Hashable
from ctypes import Array, byref, c_char_p, c_float, c_int, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from math import prod
from typing import Final, Protocol

from inlay import onednn_abi as abi
from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.extras import ASYMMETRIC_SRC, GPU, NO_EXTRAS, RNN_U8S8, S8S8, SCALE_ADJUST, Extras
from inlay.engines.onednn.library import Handle, Library, created, query
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.forks import RenewedLock
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.layout.axis import LETTERS
from inlay.notation.format_tag import tag_of

_REMEMBERED: Final = 4096
_LAST: Final = 256
_CHOICES: Final = 16
_FURTHEST: Final = 48  # bytes that extras may stand behind the inner blocks


@dataclass(frozen=True, slots=True)
class LibraryDescriptor:
    """A descriptor as an argument of a primitive."""

    handle: Handle
    """The library's descriptor."""
    pointer: int
    """The same, for calls."""
    shift: int
    """Bytes from the address of the memory to the one that the library is given."""


class _RecentDescriptors(threading.local):
    """What each thread was given last: more than any primitive has arguments."""

    def __init__(self) -> None:
        """Called once in each thread."""
        self.last: deque[LibraryDescriptor] = deque(maxlen=_LAST)


class Descriptors:
    """The descriptors that one library was handed, and those that it chose."""

    def __init__(self, library: Library) -> None:
        """Begin with none."""
        self._library = library
        self._structure = Structure(library)
        self._given: dict[Hashable, LibraryDescriptor] = {}
        self._chosen: dict[MemoryDesc, list[tuple[int, MemoryDesc, Handle]]] = {}
        self._equal = library.functions["memory_desc_equal"]
        self._opaque: dict[MemoryDesc, Handle] = {}
        self._lock = RenewedLock()
        self._asked = _RecentDescriptors()

    def handle(self, desc: MemoryDesc) -> Handle:
        """The library's descriptor that says the same as `desc`.

        Raises:
            InvalidArguments: the library refuses it.
            Unimplemented: the library, or oneDNN at all, cannot say it: free digits, a type or kind that came later, an
                opaque format of another engine.
        """
        return self._opaque.get(desc) or self._structure.made(desc)

    def given(self, desc: MemoryDesc) -> LibraryDescriptor:
        """The library's descriptor of an argument, remembered; `offset0` is left to the address.

        The library has fast code for tensors that start where their memory does. What lies behind elements counts from
        the start of the buffer, and half a byte has no address: these keep their `offset0`.

        Raises:
            InvalidArguments, Unimplemented: as `handle`, and where something is RUNTIME.
        """
        key = desc.exact_key
        found = self._given.get(key)
        if found is None:
            if desc.has_runtime:
                raise Unimplemented(
                    f"primitives are made for known dims and strides: bind the RUNTIME ones of {desc!r}"
                )
            within = _within(desc)
            handle = self.handle(within)
            shift = desc.offset0 * desc.data_type.itemsize if desc.data_type and within is not desc else 0
            found = LibraryDescriptor(handle, handle.value, shift)
            # Another thread may do the same: either result is as good.
            if len(self._given) >= _REMEMBERED:
                self._given.clear()
            self._given[key] = found
        # Callers hold pointers alone, until the library returns; what they point to may be forgotten meanwhile.
        self._asked.last.append(found)
        return found

    @property
    def data_types(self) -> frozenset[str]:
        """The types that the library's descriptors can have."""
        return self._structure.data_types

    def read(self, pointer: int, asked: MemoryDesc | None = None) -> MemoryDesc:
        """The descriptor that the library's says; `asked` is what it was chosen for, so that it is looked for there.

        Post-condition: handle(result) is equal to it.

        Raises:
            Unimplemented: it says what no descriptor here can.
        """
        if asked is None or isinstance(asked.layout, kinds.Packed):
            # The library calls packed descriptors equal that differ in their order.
            return self._parsed(pointer, asked)
        for known, desc, _ in self._chosen.get(asked, ()):
            if self._equal(known, pointer) and (1 not in desc.dims or self._structure.spells(pointer, desc)):
                return desc
        desc = self._parsed(pointer)
        copy = self._copied(pointer)
        with self._lock:
            if len(self._chosen) >= _REMEMBERED:
                self._chosen.clear()
            # A list that another thread walks through is never changed.
            self._chosen[asked] = [(copy.value, desc, copy), *self._chosen.get(asked, [])[: _CHOICES - 1]]
        return desc

    def _copied(self, pointer: int) -> Handle:
        return created(self._library, "memory_desc_clone", "memory_desc", pointer)

    def _parsed(self, pointer: int, asked: MemoryDesc | None = None) -> MemoryDesc:
        kind = query(self._library, pointer, abi.QUERY_KIND)
        if kind == abi.SPARSE and asked is not None and is_filled(self._library, pointer):
            assert asked.data_type is not None
            return read_packed_desc(self._library, pointer, asked.dims, asked.data_type)
        if kind != abi.OPAQUE:
            extras = self._structure.extras(pointer) if kind == abi.BLOCKED else NO_EXTRAS
            try:
                return MemoryDesc.from_onednn(pointer, self._library.cdll, extras=extras)
            except InvalidArguments as error:
                # 3.2 chooses, for some weights of inner products before AVX-512, strides that it refuses itself.
                raise Unimplemented(f"{self._library.name} chose a format that is no descriptor: {error}") from error
        with self._lock:
            for known, handle in self._opaque.items():
                if self._equal(handle.value, pointer):
                    return known
            name = f"onednn-{'.'.join(map(str, self._library.version))}-{len(self._opaque) + 1}"
            desc = MemoryDesc.from_onednn(pointer, self._library.cdll, name=name)
            self._opaque[desc] = self._copied(pointer)
        return desc


class Structure:
    """How the library's own descriptors are made, and what stands in them that no function of it sets or tells."""

    def __init__(self, library: Library) -> None:
        """Find out which types there are."""
        self._library = library
        self._call = library.functions
        self._distance: int | None = None
        self._strides_at: int | None = None
        self.data_types = frozenset(name for name, data_type in DATA_TYPES.items() if self._stores(data_type.code))
        """The types that descriptors can have."""

    def _stores(self, code: int) -> bool:
        out = c_void_p()
        stored = not self._call["memory_desc_create_with_strides"](byref(out), 1, abi.DIMS(2), code, abi.DIMS(1))
        if out.value:
            self._call["memory_desc_destroy"](out.value)
        return stored

    def spells(self, pointer: int, desc: MemoryDesc) -> bool:
        """Whether a descriptor of the library that is equal to `desc` has its strides of unit axes too."""
        if desc.kind != "blocked":
            return True
        if self._strides_at is None:
            self._strides_at = query(self._library, pointer, abi.QUERY_STRIDES) - pointer
        return tuple(abi.DIMS.from_address(pointer + self._strides_at)[: desc.ndims]) == desc.strides

    def made(self, desc: MemoryDesc) -> Handle:
        """A new descriptor of the library for any kind but opaque ones.

        Raises:
            InvalidArguments: the library refuses it.
            Unimplemented: it cannot say it.
        """
        if desc.data_type is not None and desc.data_type.name not in self.data_types:
            raise Unimplemented(f"{self._library.name} has no data type {desc.data_type}: {desc!r}")
        match desc.layout:
            case Layout():
                return self._of_layout(desc)
            case kinds.Opaque(name=name):
                raise Unimplemented(
                    f"the opaque format {name} of dims {desc.dims} is none that this {self._library.name} chose: only "
                    "the engine that made it can read it, in the process in which it did"
                )
            case kinds.Any():
                return self._new(desc, "with_tag", abi.FORMAT_ANY)
            case kinds.Undefined():
                return created(self._library, "memory_desc_create_with_tag", "memory_desc", 0, abi.DIMS(), 0, 0)
            case kinds.HostScalar():
                self._require("host_scalar", desc)
                return created(
                    self._library, "memory_desc_create_host_scalar", "memory_desc", _code(desc), what=lambda: repr(desc)
                )
            case kinds.CSR(nnz=nnz, index_type=index, pointer_type=pointers):
                return self._new(desc, "with_csr_encoding", nnz, index.code, pointers.code)
            case kinds.COO(nnz=nnz, index_type=index):
                return self._new(desc, "with_coo_encoding", nnz, index.code)
            case kinds.Packed(nnz=nnz):
                return self._new(desc, "with_packed_encoding", nnz)

    def _new(self, desc: MemoryDesc, how: str, *rest: object) -> Handle:
        self._require(how, desc)
        return created(
            self._library,
            f"memory_desc_create_{how}",
            "memory_desc",
            desc.ndims,
            abi.DIMS(*desc.dims),
            _code(desc),
            *rest,
            what=lambda: repr(desc),
        )

    def _require(self, how: str, desc: MemoryDesc) -> None:
        if f"memory_desc_create_{how}" not in self._call:
            raise Unimplemented(f"{self._library.name} has no descriptors such as {desc!r}: a later one has")

    def _of_layout(self, desc: MemoryDesc) -> Handle:
        if desc.kind == "digits":
            raise Unimplemented(
                f"oneDNN cannot say the digit order of {desc!r}: reorder to a format that it can, such as a tag"
            )
        if not desc.inner_blocks:
            try:
                made = self._new(desc, "with_strides", abi.DIMS(*desc.strides))
            except InvalidArguments:
                # Some views have strides that the function refuses.
                made = self._new(desc, "with_strides", None)
        else:
            made = self._new(desc, "with_string_tag", c_char_p(_tag(desc).encode()))
        self._complete(made.value, desc)
        return made

    def _complete(self, pointer: int, desc: MemoryDesc) -> None:
        """Write what the create function did not take, and see that the library understands it so."""
        self._entries(pointer, abi.QUERY_STRIDES)[: desc.ndims] = list(desc.strides)
        if desc.padded_dims != desc.dims or desc.inner_blocks:
            self._entries(pointer, abi.QUERY_PADDED)[: desc.ndims] = list(desc.padded_dims)
        if desc.offset0:
            # The field that follows the padded offsets.
            c_int64.from_address(
                query(self._library, pointer, abi.QUERY_PADDED_OFFSETS) + 8 * abi.MAX_NDIMS
            ).value = desc.offset0
            if query(self._library, pointer, abi.QUERY_OFFSET0) != desc.offset0:
                raise Unimplemented(f"{self._library.name} does not say where offset0 of a descriptor stands: {desc!r}")
        if desc.extras:
            self._write_extras(pointer, desc.extras)

    def _entries(self, pointer: int, what: int) -> Array[c_int64]:
        return abi.DIMS.from_address(query(self._library, pointer, what))

    # Extras

    def extras(self, pointer: int) -> Extras:
        """The extras of a blocked descriptor; none where this library's place of them is not known."""
        at = self._extras_at(pointer)
        flags = c_uint64.from_address(at).value if at else 0
        if not flags:
            return NO_EXTRAS
        mask, factor, asymmetric = (
            c_int.from_address(at + 8),
            c_float.from_address(at + 12),
            c_int.from_address(at + 16),
        )
        return Extras(
            flags,
            compensation_mask=mask.value if flags & (S8S8 | RNN_U8S8) else 0,
            scale_adjust=factor.value if flags & SCALE_ADJUST else 1.0,
            asymmetric_mask=asymmetric.value if flags & ASYMMETRIC_SRC else 0,
        )

    def _write_extras(self, pointer: int, extras: Extras) -> None:
        at = self._extras_at(pointer)
        if not at or extras.flags & GPU:
            raise Unimplemented(f"{self._library.name} cannot be told {extras!r}: it keeps such weights for itself")
        c_uint64.from_address(at).value = extras.flags
        c_int.from_address(at + 8).value = extras.compensation_mask
        c_float.from_address(at + 12).value = extras.scale_adjust
        c_int.from_address(at + 16).value = extras.asymmetric_mask

    def _extras_at(self, pointer: int) -> int:
        """The address of the flags, or 0 where they were not found."""
        if self._distance is None:
            self._distance = self._found_distance()
        return self._end(pointer) + self._distance if self._distance >= 0 else 0

    def _end(self, pointer: int) -> int:
        """The address behind the axes of the inner blocks, the last field that a query shows."""
        return query(self._library, pointer, abi.QUERY_IDXS) + 8 * abi.MAX_NDIMS

    def _found_distance(self) -> int:
        """Bytes from the end of the inner blocks to the flags: where one makes the library refuse to reshape; or -1.

        Between them stands the rest of a union, whose size differs from version to version.
        """
        dims = abi.DIMS(4, 6)
        for distance in range(0, _FURTHEST, 8):
            made = created(
                self._library, "memory_desc_create_with_strides", "memory_desc", 2, dims, abi.S8, abi.DIMS(6, 1)
            )
            c_uint64.from_address(self._end(made.value) + distance).value = S8S8
            out = c_void_p()
            status = self._call["memory_desc_reshape"](byref(out), made.value, 2, dims)
            if status == abi.INVALID_ARGUMENTS:
                return distance
            if out.value:
                self._call["memory_desc_destroy"](out.value)
        return -1


def _within(desc: MemoryDesc) -> MemoryDesc:
    """The descriptor without `offset0`, where an address can have it."""
    if not desc.offset0 or desc.extras or desc.data_type is None or desc.data_type.is_sub_byte:
        return desc
    layout, data_type = desc.require_layout("offset0")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims)


def _code(desc: MemoryDesc) -> int:
    assert desc.data_type is not None
    return desc.data_type.code


def _tag(desc: MemoryDesc) -> str:
    """A tag with the inner blocks of `desc`; its order of axes is of no matter, since strides are written after."""
    letters = LETTERS[: desc.ndims]
    blocked = {axis for axis, _ in desc.inner_blocks}
    outer = "".join(letter.upper() if i in blocked else letter for i, letter in enumerate(letters))
    return outer + "".join(f"{size}{letters[axis]}" for axis, size in desc.inner_blocks)


_NNZ_AT, _BLOCKED_AT, _COUNT_AT = 8, 24, 8 * abi.MAX_NDIMS


@dataclass(frozen=True, slots=True)
class _FieldOffsets:
    """Bytes from the start of a blocked descriptor to its fields."""

    strides: int
    """To the strides, where those of other kinds begin."""
    blocks: int
    """To the sizes of the inner blocks."""
    axes: int
    """To their axes."""


def is_filled(library: Library, pointer: int) -> bool:
    """Whether a sparse descriptor is packed and the library has chosen an order for it."""
    if "memory_desc_create_with_packed_encoding" not in library.functions:
        return False
    encoding = c_int()
    if library.functions["memory_desc_query_v2"](pointer, abi.QUERY_ENCODING, 0, byref(encoding)):
        return False
    return encoding.value == abi.PACKED and bool(library.functions["memory_desc_get_size_v2"](pointer, 1))


def read_packed_desc(library: Library, pointer: int, dims: Dims, data_type: DataType) -> MemoryDesc:
    """The descriptor of these dims and type that a filled packed one says.

    Raises:
        Unimplemented: it is not found in the library's structure, or its order has no tag.
    """
    nnz = c_int64()
    library.require(
        library.functions["memory_desc_query_v2"](pointer, abi.QUERY_NNZ, 0, byref(nnz)), lambda: "query nnz"
    )
    places = _field_offsets(library)
    start = pointer + places.strides
    at = start + _BLOCKED_AT
    count = c_int.from_address(at + _COUNT_AT).value
    is_known = (
        c_int.from_address(start).value == abi.PACKED and c_int64.from_address(start + _NNZ_AT).value == nnz.value
    )
    if is_known and 0 < count <= abi.MAX_NDIMS:
        sizes, axes = (
            tuple(abi.DIMS.from_address(at + place - places.strides))[:count] for place in (places.blocks, places.axes)
        )
        padded = tuple(abi.DIMS.from_address(query(library, pointer, abi.QUERY_PADDED)))[: len(dims)]
        layout = _layout(padded, tuple(abi.DIMS.from_address(at))[: len(dims)], sizes, axes)
        tag = None if layout is None else tag_of(layout)
        if tag is not None:
            desc = _described(dims, data_type, nnz.value, str(tag))
            size_of = library.functions["memory_desc_get_size_v2"]
            if desc is not None and desc.sizes == tuple(int(size_of(pointer, i)) for i in range(3)):
                return desc
    raise Unimplemented(f"{library.name} chose a packed order of dims {dims} that is no format tag")


def _described(dims: Dims, data_type: DataType, nnz: int, tag: str) -> MemoryDesc | None:
    try:
        return MemoryDesc.packed(dims, data_type, nnz, tag)
    except InlayError:
        return None


def _field_offsets(library: Library) -> _FieldOffsets:
    """The places of the fields, from the pointers that queries of a blocked descriptor answer."""
    some = created(library, "memory_desc_create_with_strides", "memory_desc", 1, abi.DIMS(2), abi.F32, abi.DIMS(1))
    return _FieldOffsets(
        *(query(library, some.value, what) - some.value for what in (abi.QUERY_STRIDES, abi.QUERY_BLKS, abi.QUERY_IDXS))
    )


def _layout(padded: Dims, strides: Dims, sizes: Dims, axes: Dims) -> Layout | None:
    """The layout of these outer strides and inner blocks; None where there is none."""
    if min(*padded, *sizes) < 1 or not set(axes) <= set(range(len(padded))):
        return None
    inner: list[tuple[Digit, ...]] = [()] * len(padded)
    for i, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        inner[axis] = (*inner[axis], Digit(size, prod(sizes[i + 1 :])))
    try:
        return Layout(padded, tuple(map(Axis, strides, inner)))
    except InlayError:
        return None


class LibraryEngine(Protocol):
    """An engine of a library, as far as primitive descriptors need it."""

    library: Library
    """Which creates and answers."""
    descriptors: Descriptors
    """Of that library."""
    engine: Handle
    """The library's own."""
