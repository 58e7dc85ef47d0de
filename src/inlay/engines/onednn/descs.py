"""Conversion of descriptors, without loss: `MemoryDesc` to `dnnl_memory_desc_t` and back.

**To the library.** `DescriptorBuilder` calls the create function of each kind:

    strides without padding         memory_desc_create_with_strides
    inner blocks                    memory_desc_create_with_string_tag, such as aBcd8b
    any, sparse, host scalar        functions of their own; packed ones without the tag, which the library chooses
    opaque                          a stored copy of the library's own descriptor, found by its name

No create function accepts padding that is not whole blocks, strides of blocked axes, `offset0`, or extras. They are
written to the addresses that the library's queries return, and read back before the descriptor is used. If a release
has another structure, the comparison fails and the descriptor is refused (decision 0013).

**From the library.** Fields are read by queries (`descriptor.onednn_import`). `DescriptorTable` stores the formats that
the library chose for each request. It recognizes them by `memory_desc_equal` and by their strides, so for the second
primitive of a kind each argument takes 1 us. Strides of unit axes, which equality ignores, are preserved both ways (see
`creation`).

**Packed sparse descriptors.** No query returns the order that the library chose for a packed tensor. The descriptor
contains the strides and inner blocks of the blocked format whose zeros are omitted, three fields after the place where
a blocked descriptor has them:

    blocked    strides, number of blocks, sizes, axes
    packed     encoding, nnz, two types, then the same

The descriptor is refused if the fields before do not have the expected values, or if the buffer sizes that follow from
the order differ from those that the library returns.

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
from inlay.engines.onednn.library import Library, LibraryHandle, create_handle, query
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.forks import ForkResetLock
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.layout.axis import LETTERS
from inlay.notation.format_tag import tag_of

_MAX_CACHED: Final = 4096  # entries of each table
_MAX_RECENT: Final = 256  # descriptors kept alive for each thread: more than any primitive has arguments
_MAX_CHOICES: Final = 16  # formats that are stored for one request
_MAX_EXTRAS_DISTANCE: Final = 48  # bytes from the end of the inner blocks to the extras


@dataclass(frozen=True, slots=True)
class NativeDescriptor:
    """A `dnnl_memory_desc_t` for an argument of a primitive."""

    handle: LibraryHandle
    """Owner of the native descriptor."""
    pointer: int
    """Address of the native descriptor."""
    shift: int
    """Bytes from the address of the memory to the address that is passed to the library."""


class _RecentDescriptors(threading.local):
    """The native descriptors that were returned to a thread last; the list keeps them alive during a call."""

    def __init__(self) -> None:
        """Start with an empty list; Python calls this once in each thread."""
        self.last: deque[NativeDescriptor] = deque(maxlen=_MAX_RECENT)


class DescriptorTable:
    """Cached conversions of descriptors, to and from one library."""

    def __init__(self, library: Library) -> None:
        """Start with empty tables."""
        self._library = library
        self._builder = DescriptorBuilder(library)
        self._converted: dict[Hashable, NativeDescriptor] = {}
        self._chosen: dict[MemoryDesc, list[tuple[int, MemoryDesc, LibraryHandle]]] = {}
        self._equal = library.functions["memory_desc_equal"]
        self._opaque: dict[MemoryDesc, LibraryHandle] = {}
        self._lock = ForkResetLock()
        self._recent = _RecentDescriptors()

    def handle(self, desc: MemoryDesc) -> LibraryHandle:
        """Create the native descriptor that is equal to `desc`.

        Raises:
            InvalidArguments: the library refuses the descriptor.
            Unimplemented: this release, or any release, cannot represent it: digits in no order of oneDNN, a type or
                kind of a later release, an opaque format of another engine.
        """
        return self._opaque.get(desc) or self._builder.build(desc)

    def convert(self, desc: MemoryDesc) -> NativeDescriptor:
        """Return the cached or new native descriptor of an argument; `offset0` becomes a shift of the address.

        The library has fast code only for tensors with `offset0` 0. Descriptors with extras keep their `offset0`,
        because the data behind the elements counts from the start of the buffer. So do types of less than a byte,
        because half a byte has no address.

        Raises:
            InvalidArguments, Unimplemented: as `handle`; Unimplemented also for RUNTIME dims, strides or offsets.
        """
        key = desc.exact_key
        native = self._converted.get(key)
        if native is None:
            if desc.has_runtime:
                raise Unimplemented(
                    f"primitives are made for known dims and strides: bind the RUNTIME ones of {desc!r}"
                )
            shifted = _without_offset(desc)
            handle = self.handle(shifted)
            shift = desc.offset0 * desc.data_type.itemsize if desc.data_type and shifted is not desc else 0
            native = NativeDescriptor(handle, handle.value, shift)
            # Another thread may store another object for the same key at the same time; both are equal.
            if len(self._converted) >= _MAX_CACHED:
                self._converted.clear()
            self._converted[key] = native
        # Callers use only the pointer during a call, and another thread may clear the table meanwhile.
        self._recent.last.append(native)
        return native

    @property
    def data_types(self) -> frozenset[str]:
        """Names of the data types that native descriptors can have."""
        return self._builder.data_types

    def read(self, pointer: int, request: MemoryDesc | None = None) -> MemoryDesc:
        """Return the `MemoryDesc` of a native descriptor.

        Args:
            pointer: the address of the native descriptor.
            request: the descriptor for which the library chose this one, the key of the table; None skips the table.

        Post-condition: `handle(result)` is equal to the native descriptor.

        Raises:
            Unimplemented: `MemoryDesc` cannot represent it.
        """
        if request is None or isinstance(request.layout, kinds.Packed):
            # memory_desc_equal does not compare the orders of packed descriptors, so the table cannot be used.
            return self._parse(pointer, request)
        for known, desc, _ in self._chosen.get(request, ()):
            if self._equal(known, pointer) and (1 not in desc.dims or self._builder.has_strides(pointer, desc)):
                return desc
        desc = self._parse(pointer)
        copy = self._clone(pointer)
        with self._lock:
            if len(self._chosen) >= _MAX_CACHED:
                self._chosen.clear()
            # Another thread may iterate over the old list, so it is replaced and not changed.
            self._chosen[request] = [(copy.value, desc, copy), *self._chosen.get(request, [])[: _MAX_CHOICES - 1]]
        return desc

    def _clone(self, pointer: int) -> LibraryHandle:
        """Return an owned copy of a native descriptor."""
        return create_handle(self._library, "memory_desc_clone", "memory_desc", pointer)

    def _parse(self, pointer: int, request: MemoryDesc | None = None) -> MemoryDesc:
        """Read a native descriptor that is not among the known ones; see `read`.

        `request` is the descriptor with packed weights whose order the library chose: it has their dims and type.
        """
        kind = query(self._library, pointer, abi.QUERY_KIND)
        if kind == abi.SPARSE and request is not None and is_packed_order_chosen(self._library, pointer):
            assert request.data_type is not None
            return read_packed_desc(self._library, pointer, request.dims, request.data_type)
        if kind != abi.OPAQUE:
            extras = self._builder.extras(pointer) if kind == abi.BLOCKED else NO_EXTRAS
            try:
                return MemoryDesc.from_onednn(pointer, self._library.cdll, extras=extras)
            except InvalidArguments as error:
                # Without AVX-512, 3.2 chooses strides for some inner-product weights that its create function refuses.
                raise Unimplemented(f"{self._library.name} chose an invalid descriptor: {error}") from error
        with self._lock:
            for known, handle in self._opaque.items():
                if self._equal(handle.value, pointer):
                    return known
            name = f"onednn-{'.'.join(map(str, self._library.version))}-{len(self._opaque) + 1}"
            desc = MemoryDesc.from_onednn(pointer, self._library.cdll, name=name)
            self._opaque[desc] = self._clone(pointer)
        return desc


class DescriptorBuilder:
    """Creates native descriptors, and reads and writes the fields of them that no function of the library accesses."""

    def __init__(self, library: Library) -> None:
        """Find out which data types the library has."""
        self._library = library
        self._call = library.functions
        self._extras_distance: int | None = None  # -1 if the extras were not found
        self._strides_offset: int | None = None
        self.data_types = frozenset(name for name, data_type in DATA_TYPES.items() if self._has_type(data_type.code))
        """Names of the data types that native descriptors can have."""

    def _has_type(self, code: int) -> bool:
        """Return whether the library can create a descriptor of this data type."""
        out = c_void_p()
        is_created = not self._call["memory_desc_create_with_strides"](byref(out), 1, abi.DIMS(2), code, abi.DIMS(1))
        if out.value:
            self._call["memory_desc_destroy"](out.value)
        return is_created

    def has_strides(self, pointer: int, desc: MemoryDesc) -> bool:
        """Return whether a native descriptor that is equal to `desc` has the same strides of unit axes, too."""
        if desc.kind != "blocked":
            return True
        if self._strides_offset is None:
            self._strides_offset = query(self._library, pointer, abi.QUERY_STRIDES) - pointer
        return tuple(abi.DIMS.from_address(pointer + self._strides_offset)[: desc.ndims]) == desc.strides

    def build(self, desc: MemoryDesc) -> LibraryHandle:
        """Create a native descriptor of any kind except opaque.

        Raises:
            InvalidArguments: the library refuses the descriptor.
            Unimplemented: the library cannot represent it.
        """
        if desc.data_type is not None and desc.data_type.name not in self.data_types:
            raise Unimplemented(f"{self._library.name} has no data type {desc.data_type}: {desc!r}")
        match desc.layout:
            case Layout():
                return self._build_blocked(desc)
            case kinds.Opaque(name=name):
                raise Unimplemented(
                    f"the opaque format {name} of dims {desc.dims} was not created by this {self._library.name}: only "
                    "the engine that created it can read it, in the same process"
                )
            case kinds.SwizzledLayout():
                raise Unimplemented(f"{self._library.name} has no swizzled layouts: reorder {desc!r} to one without")
            case kinds.Any():
                return self._new(desc, "with_tag", abi.FORMAT_ANY)
            case kinds.Undefined():
                return create_handle(self._library, "memory_desc_create_with_tag", "memory_desc", 0, abi.DIMS(), 0, 0)
            case kinds.HostScalar():
                self._require("host_scalar", desc)
                return create_handle(
                    self._library,
                    "memory_desc_create_host_scalar",
                    "memory_desc",
                    _code(desc),
                    describe=lambda: repr(desc),
                )
            case kinds.CSR(nnz=nnz, index_type=index, pointer_type=pointers):
                return self._new(desc, "with_csr_encoding", nnz, index.code, pointers.code)
            case kinds.COO(nnz=nnz, index_type=index):
                return self._new(desc, "with_coo_encoding", nnz, index.code)
            case kinds.Packed(nnz=nnz):
                return self._new(desc, "with_packed_encoding", nnz)

    def _new(self, desc: MemoryDesc, suffix: str, *rest: object) -> LibraryHandle:
        """Call `memory_desc_create_{suffix}` with number of axes, dims, data type, and `rest`."""
        self._require(suffix, desc)
        return create_handle(
            self._library,
            f"memory_desc_create_{suffix}",
            "memory_desc",
            desc.ndims,
            abi.DIMS(*desc.dims),
            _code(desc),
            *rest,
            describe=lambda: repr(desc),
        )

    def _require(self, suffix: str, desc: MemoryDesc) -> None:
        """Raise `Unimplemented` if the library lacks the function `memory_desc_create_{suffix}`."""
        if f"memory_desc_create_{suffix}" not in self._call:
            raise Unimplemented(f"{self._library.name} has no descriptors such as {desc!r}: a later release has")

    def _build_blocked(self, desc: MemoryDesc) -> LibraryHandle:
        """Create a native descriptor of a layout.

        Raises:
            InvalidArguments, Unimplemented: as `build`.
        """
        if desc.kind == "digits":
            raise Unimplemented(
                f"oneDNN cannot represent the digit order of {desc!r}: reorder to a format with a tag first"
            )
        if not desc.inner_blocks:
            try:
                handle = self._new(desc, "with_strides", abi.DIMS(*desc.strides))
            except InvalidArguments:
                # The function refuses the strides of some views; they are written below.
                handle = self._new(desc, "with_strides", None)
        else:
            handle = self._new(desc, "with_string_tag", c_char_p(_tag(desc).encode()))
        self._write_fields(handle.value, desc)
        return handle

    def _write_fields(self, pointer: int, desc: MemoryDesc) -> None:
        """Write the fields that the create function did not accept, and check `offset0` with a query.

        Raises:
            Unimplemented: `offset0` or the extras are stored elsewhere in this release.
        """
        self._dims_field(pointer, abi.QUERY_STRIDES)[: desc.ndims] = list(desc.strides)
        if desc.padded_dims != desc.dims or desc.inner_blocks:
            self._dims_field(pointer, abi.QUERY_PADDED)[: desc.ndims] = list(desc.padded_dims)
        if desc.offset0:
            # The field follows the padded offsets.
            field = query(self._library, pointer, abi.QUERY_PADDED_OFFSETS) + 8 * abi.MAX_NDIMS
            c_int64.from_address(field).value = desc.offset0
            if query(self._library, pointer, abi.QUERY_OFFSET0) != desc.offset0:
                raise Unimplemented(
                    f"{self._library.name} stores offset0 of a descriptor in an unknown place: {desc!r}"
                )
        if desc.extras:
            self._write_extras(pointer, desc.extras)

    def _dims_field(self, pointer: int, code: int) -> Array[c_int64]:
        """Return the array, of the type `dnnl_dims_t`, to which a query points."""
        return abi.DIMS.from_address(query(self._library, pointer, code))

    # Extras

    def extras(self, pointer: int) -> Extras:
        """Return the extras of a blocked descriptor; no extras if their place in this release is unknown."""
        address = self._extras_address(pointer)
        flags = c_uint64.from_address(address).value if address else 0
        if not flags:
            return NO_EXTRAS
        mask, factor, asymmetric = (
            c_int.from_address(address + 8),
            c_float.from_address(address + 12),
            c_int.from_address(address + 16),
        )
        return Extras(
            flags,
            compensation_mask=mask.value if flags & (S8S8 | RNN_U8S8) else 0,
            scale_adjust=factor.value if flags & SCALE_ADJUST else 1.0,
            asymmetric_mask=asymmetric.value if flags & ASYMMETRIC_SRC else 0,
        )

    def _write_extras(self, pointer: int, extras: Extras) -> None:
        """Write the extras of a blocked descriptor.

        Raises:
            Unimplemented: their place in this release is unknown, or they are flags of GPUs.
        """
        address = self._extras_address(pointer)
        if not address or extras.flags & GPU:
            raise Unimplemented(f"{self._library.name} has no descriptors with {extras!r} that other code can create")
        c_uint64.from_address(address).value = extras.flags
        c_int.from_address(address + 8).value = extras.compensation_mask
        c_float.from_address(address + 12).value = extras.scale_adjust
        c_int.from_address(address + 16).value = extras.asymmetric_mask

    def _extras_address(self, pointer: int) -> int:
        """Return the address of the flags of the extras; 0 if it is unknown."""
        if self._extras_distance is None:
            self._extras_distance = self._find_extras_distance()
        return self._blocks_end(pointer) + self._extras_distance if self._extras_distance >= 0 else 0

    def _blocks_end(self, pointer: int) -> int:
        """Return the address behind the axes of the inner blocks, the last field to which a query points."""
        return query(self._library, pointer, abi.QUERY_IDXS) + 8 * abi.MAX_NDIMS

    def _find_extras_distance(self) -> int:
        """Return the bytes from the end of the inner blocks to the flags of the extras; -1 if they are not found.

        The rest of a union lies between them, and its size differs between releases. The flags are at the place where
        writing a flag makes the library refuse to reshape the descriptor.
        """
        dims = abi.DIMS(4, 6)
        for distance in range(0, _MAX_EXTRAS_DISTANCE, 8):
            handle = create_handle(
                self._library, "memory_desc_create_with_strides", "memory_desc", 2, dims, abi.S8, abi.DIMS(6, 1)
            )
            c_uint64.from_address(self._blocks_end(handle.value) + distance).value = S8S8
            out = c_void_p()
            status = self._call["memory_desc_reshape"](byref(out), handle.value, 2, dims)
            if status == abi.INVALID_ARGUMENTS:
                return distance
            if out.value:
                self._call["memory_desc_destroy"](out.value)
        return -1


def _without_offset(desc: MemoryDesc) -> MemoryDesc:
    """Return the descriptor with `offset0` 0 if a shift of the address can replace the offset, else the same."""
    if not desc.offset0 or desc.extras or desc.data_type is None or desc.data_type.is_sub_byte:
        return desc
    layout, data_type = desc.require_layout("offset0")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims)


def _code(desc: MemoryDesc) -> int:
    """Return the code of the data type."""
    assert desc.data_type is not None
    return desc.data_type.code


def _tag(desc: MemoryDesc) -> str:
    """Return a tag with the inner blocks of `desc`; the order of axes is arbitrary, as strides are written later."""
    letters = LETTERS[: desc.ndims]
    blocked = {axis for axis, _ in desc.inner_blocks}
    outer = "".join(letter.upper() if i in blocked else letter for i, letter in enumerate(letters))
    return outer + "".join(f"{size}{letters[axis]}" for axis, size in desc.inner_blocks)


_NNZ_OFFSET, _BLOCKED_OFFSET, _COUNT_OFFSET = 8, 24, 8 * abi.MAX_NDIMS
"""Offsets in bytes: nnz and the blocked fields in a packed descriptor; the number of blocks behind the strides."""


@dataclass(frozen=True, slots=True)
class _FieldOffsets:
    """Offsets of the fields of a native blocked descriptor, in bytes from its start."""

    strides: int
    """Offset of the strides; the fields of other kinds begin here, too."""
    blocks: int
    """Offset of the sizes of the inner blocks."""
    axes: int
    """Offset of the axes of the inner blocks."""


def is_packed_order_chosen(library: Library, pointer: int) -> bool:
    """Return whether a native sparse descriptor is packed and the library has chosen its order."""
    if "memory_desc_create_with_packed_encoding" not in library.functions:
        return False
    encoding = c_int()
    if library.functions["memory_desc_query_v2"](pointer, abi.QUERY_ENCODING, 0, byref(encoding)):
        return False
    return encoding.value == abi.PACKED and bool(library.functions["memory_desc_get_size_v2"](pointer, 1))


def read_packed_desc(library: Library, pointer: int, dims: Dims, data_type: DataType) -> MemoryDesc:
    """Return the `MemoryDesc` of a native packed descriptor whose order is chosen.

    Raises:
        Unimplemented: this release has another structure, or the order has no format tag.
    """
    nnz = c_int64()
    library.require(
        library.functions["memory_desc_query_v2"](pointer, abi.QUERY_NNZ, 0, byref(nnz)), lambda: "query nnz"
    )
    offsets = _field_offsets(library)
    start = pointer + offsets.strides
    blocked = start + _BLOCKED_OFFSET
    count = c_int.from_address(blocked + _COUNT_OFFSET).value
    is_known = (
        c_int.from_address(start).value == abi.PACKED and c_int64.from_address(start + _NNZ_OFFSET).value == nnz.value
    )
    if is_known and 0 < count <= abi.MAX_NDIMS:
        sizes, axes = (
            tuple(abi.DIMS.from_address(blocked + offset - offsets.strides))[:count]
            for offset in (offsets.blocks, offsets.axes)
        )
        padded = tuple(abi.DIMS.from_address(query(library, pointer, abi.QUERY_PADDED)))[: len(dims)]
        layout = _make_layout(padded, tuple(abi.DIMS.from_address(blocked))[: len(dims)], sizes, axes)
        tag = None if layout is None else tag_of(layout)
        if tag is not None:
            desc = _make_packed(dims, data_type, nnz.value, str(tag))
            size_of = library.functions["memory_desc_get_size_v2"]
            if desc is not None and desc.sizes == tuple(int(size_of(pointer, i)) for i in range(3)):
                return desc
    raise Unimplemented(f"{library.name} chose a packed order of dims {dims} that has no format tag")


def _make_packed(dims: Dims, data_type: DataType, nnz: int, tag: str) -> MemoryDesc | None:
    """Return the packed descriptor; None if it is invalid."""
    try:
        return MemoryDesc.packed(dims, data_type, nnz, tag)
    except InlayError:
        return None


def _field_offsets(library: Library) -> _FieldOffsets:
    """Return the offsets of the fields, from the pointers that queries of a blocked descriptor return."""
    some = create_handle(
        library, "memory_desc_create_with_strides", "memory_desc", 1, abi.DIMS(2), abi.F32, abi.DIMS(1)
    )
    return _FieldOffsets(
        *(query(library, some.value, code) - some.value for code in (abi.QUERY_STRIDES, abi.QUERY_BLKS, abi.QUERY_IDXS))
    )


def _make_layout(padded: Dims, strides: Dims, sizes: Dims, axes: Dims) -> Layout | None:
    """Return the layout with these outer strides and inner blocks; None if it is invalid."""
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
    """The attributes of `OnednnEngine` that the creation of primitive descriptors uses."""

    library: Library
    """The loaded library."""
    descriptors: DescriptorTable
    """Conversions of descriptors for this library."""
    engine: LibraryHandle
    """The `dnnl_engine_t` of the processor."""
