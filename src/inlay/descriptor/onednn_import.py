"""Import of descriptors of a loaded oneDNN through the queries of its C API.

The structure behind a `dnnl_memory_desc_t` is private and differs between versions, so it is not accessed here. All
data comes from queries of a handle. A blob is passed to the library that wrote it, which creates a handle from it.

    dnnl_memory_desc_query(_v2)     kind, dims, padding, strides, inner blocks, offset, type, sparse metadata
    dnnl_memory_desc_get_size       must be the size of the imported descriptor
    dnnl_memory_desc_reshape        to the same dims: fails if there are extra flags, for which there is no query

Source: oneDNN, `dnnl.h` and the codes of `dnnl_types.h`.
"""

import ctypes
from collections.abc import Callable, Mapping
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p
from types import MappingProxyType
from typing import Any, NoReturn

from inlay import onednn_abi as abi
from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import kinds
from inlay.descriptor.extras import Extras
from inlay.descriptor.serialization import DescriptorParts
from inlay.descriptor.validation import require_nested
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout

_TYPES = {data_type.code: data_type for data_type in DATA_TYPES.values()}
_RELIABLE_SIZES = (3, 13)
"""First version of oneDNN whose sizes are right with an offset of the origin and with extras."""


class DescriptorHandle:
    """A `dnnl_memory_desc_t` and the library that created it. This object does not own the handle."""

    def __init__(self, library: ctypes.CDLL, address: int) -> None:
        """Wrap the handle `address`, which must belong to `library`; this cannot be checked.

        Raises:
            InvalidArguments: `library` is not a loaded oneDNN, or `address` is 0.
        """
        self._library = library
        self.pointer = c_void_p(address)
        self._query = self._function("memory_desc_query")
        if not address:
            raise InvalidArguments("the handle of oneDNN is NULL: give one that a create function of oneDNN wrote")

    def _function(self, name: str) -> Any:
        """Return a function of the library; raise an error if the library lacks it."""
        function = _find_function(self._library, name)
        if function is None:
            raise InvalidArguments(
                f"library is {self._library!r}, which has no dnnl_{name}: give a loaded oneDNN 3, as "
                "ctypes.CDLL('libdnnl.so.3')"
            )
        return function

    def query_int(self, what: int, make: type[c_int] | type[c_int64] = c_int) -> int:
        """Return the result of a query for one number."""
        result = make(0)
        self._require(self._query(self.pointer, what, byref(result)), what)
        return result.value

    def query_dims(self, what: int, count: int) -> Dims:
        """Return the first `count` entries of the result of a query for an array."""
        if not count:
            return ()
        address = c_void_p()
        self._require(self._query(self.pointer, what, byref(address)), what)
        return tuple((c_int64 * count).from_address(address.value or 0)) if address.value else ()

    def query_sparse(self, what: int, index: int = 0, make: type[c_int] | type[c_int64] = c_int) -> int:
        """Return the result of a query of sparse metadata (`dnnl_memory_desc_query_v2`)."""
        result = make(0)
        self._require(self._function("memory_desc_query_v2")(self.pointer, what, index, byref(result)), what)
        return result.value

    @property
    def size(self) -> int:
        """The size of buffer 0 in bytes, as the library computes it."""
        return int(self._function("memory_desc_get_size")(self.pointer))

    def has_size(self, size: int, offset0: int, extras: Extras) -> bool:
        """Return True if `size` is the library's size of the descriptor, or that size is unreliable.

        oneDNN 3.2 has no size of descriptors with `offset0`, and counts the buffers of extras several times.
        """
        version = abi.Version.from_address(self._function("version")())
        if (version.major, version.minor) < _RELIABLE_SIZES and (offset0 or extras):
            return True
        return self.size == size % 2**64

    def has_extras(self, dims: Dims) -> bool:
        """Return True if there are extra flags: the library then rejects every reshape, even to the same dims."""
        result = c_void_p()
        status = self._function("memory_desc_reshape")(
            byref(result), self.pointer, len(dims), (c_int64 * len(dims))(*dims)
        )
        if result.value and not status:
            destroy(self._library, result)
        return bool(status == abi.INVALID_ARGUMENTS)

    def _require(self, status: int, what: int) -> None:
        """Raise an error if the status of query `what` is not success."""
        if status:
            raise InvalidArguments(f"oneDNN fails at query {what} of this descriptor: its status is {status}")


def _find_function(library: object, name: str) -> Any:
    """Return a function of the library, or None if it lacks the function or is not a `ctypes.CDLL`."""
    return abi.function(library, name) if isinstance(library, ctypes.CDLL) else None


def destroy(library: ctypes.CDLL, pointer: c_void_p) -> None:
    """Destroy a descriptor of the library."""
    _find_function(library, "memory_desc_destroy")(pointer)


def read_handle(handle: DescriptorHandle, name: str = "opaque") -> DescriptorParts:
    """Read the parts of a descriptor by queries, without extras; they are not yet validated together.

    `name` becomes the name of an opaque format.

    Raises:
        InvalidArguments: a query fails, or its result is impossible for a descriptor.
        Unimplemented: Inlay does not support the type, kind, encoding or padding of the descriptor.
    """
    ndims = handle.query_int(abi.QUERY_NDIMS)
    if not 0 <= ndims <= abi.MAX_NDIMS:
        raise InvalidArguments(f"oneDNN returns {ndims} dims: the handle is not a descriptor of this library")
    kind = handle.query_int(abi.QUERY_KIND)
    if ndims == 0 or kind == abi.UNDEF:
        return DescriptorParts((), None, kinds.Undefined())
    if kind not in (*_READERS, abi.OPAQUE):
        raise Unimplemented(f"descriptors of oneDNN's format kind {kind} have no counterpart: give one of another kind")
    dims, data_type = handle.query_dims(abi.QUERY_DIMS, ndims), _data_type(handle.query_int(abi.QUERY_TYPE))
    if kind == abi.OPAQUE:
        return DescriptorParts(dims, data_type, kinds.Opaque(name, handle.size))
    return _READERS[kind](handle, dims, data_type)


def _data_type(code: int) -> DataType:
    """Return the data type of oneDNN's code."""
    if code not in _TYPES:
        raise Unimplemented(f"oneDNN's data type of code {code} cannot be stored: {', '.join(DATA_TYPES)} can")
    return _TYPES[code]


def require_known_extras(handle: DescriptorHandle, parts: DescriptorParts, extras: Extras) -> None:
    """Check that `extras` are passed exactly if the library's descriptor has some; `parts` must be validated.

    Raises:
        InvalidArguments: `extras` are passed, but the descriptor has none.
        Unimplemented: the descriptor has extras, but none are passed.
    """
    # With RUNTIME dims or strides every reshape fails; oneDNN creates no such descriptor with extras.
    is_known = isinstance(parts.layout, Layout) and not parts.layout.has_runtime
    has_flags = is_known and handle.has_extras(parts.dims)
    if has_flags and not extras:
        raise Unimplemented(
            "this descriptor of oneDNN has extra flags, such as compensation, for which it has no query: "
            "give them as extras=inlay.Extras(...)"
        )
    if extras and not has_flags:
        raise InvalidArguments(f"{extras!r} was passed, but this descriptor of oneDNN has no extra flags")


def require_format(parts: DescriptorParts) -> None:
    """Check that the strides of a layout nest, as those of all formats of oneDNN do.

    Raises:
        InvalidArguments: they do not.
    """
    if isinstance(parts.layout, Layout) and parts.data_type is not None:
        require_nested(parts.layout, parts.data_type, whole_bytes=False)


def _read_layout(handle: DescriptorHandle, dims: Dims, data_type: DataType) -> DescriptorParts:
    """Read a descriptor of kind `blocked`."""
    ndims = len(dims)
    if any(handle.query_dims(abi.QUERY_PADDED_OFFSETS, ndims)):
        raise Unimplemented("this descriptor of oneDNN has padding before its data: padding follows the data here")
    count = handle.query_int(abi.QUERY_NBLKS)
    if not 0 <= count <= abi.MAX_NDIMS:
        raise InvalidArguments(f"oneDNN returns {count} inner blocks: the handle is not a descriptor of this library")
    inner: list[tuple[Digit, ...]] = [()] * ndims
    stride = 1
    sizes, axes = handle.query_dims(abi.QUERY_BLKS, count), handle.query_dims(abi.QUERY_IDXS, count)
    for axis, size in reversed(tuple(zip(axes, sizes, strict=True))):
        if not 0 <= axis < ndims or size < 1:
            raise Unimplemented(f"this descriptor of oneDNN has a block of {size} along axis {axis} of {ndims} dims")
        inner[axis] = (Digit(size, stride), *inner[axis])
        stride *= size
    layout = Layout(
        handle.query_dims(abi.QUERY_PADDED, ndims), tuple(map(Axis, handle.query_dims(abi.QUERY_STRIDES, ndims), inner))
    )
    return DescriptorParts(dims, data_type, layout, handle.query_int(abi.QUERY_OFFSET0, c_int64))


def _read_any(handle: DescriptorHandle, dims: Dims, data_type: DataType) -> DescriptorParts:
    """Read a descriptor of kind `any`."""
    return DescriptorParts(dims, data_type, kinds.Any())


def _read_sparse(handle: DescriptorHandle, dims: Dims, data_type: DataType) -> DescriptorParts:
    """Read a descriptor of kind `sparse`."""
    encoding, nnz = handle.query_sparse(abi.QUERY_ENCODING), handle.query_sparse(abi.QUERY_NNZ, make=c_int64)
    if encoding == abi.CSR:
        types = [_data_type(handle.query_sparse(abi.QUERY_TYPE, i)) for i in (1, 2)[: len(dims)]]
        # A descriptor of one dim has no row starts, and no query for their type.
        return DescriptorParts(dims, data_type, kinds.CSR(nnz, types[0], types[-1]))
    if encoding == abi.COO:
        return DescriptorParts(dims, data_type, kinds.COO(nnz, _data_type(handle.query_sparse(abi.QUERY_TYPE, 1))))
    if encoding == abi.PACKED and (handle.size == 0 or RUNTIME in dims):
        return DescriptorParts(dims, data_type, kinds.Packed(nnz))
    raise Unimplemented(f"this sparse descriptor of oneDNN, encoding {encoding}, can be read by its engine only")


def _read_host_scalar(handle: DescriptorHandle, dims: Dims, data_type: DataType) -> DescriptorParts:
    """Read a descriptor of kind `host_scalar`."""
    return DescriptorParts(dims, data_type, kinds.HostScalar())


_READERS: Mapping[int, Callable[[DescriptorHandle, Dims, DataType], DescriptorParts]] = MappingProxyType(
    {
        abi.ANY: _read_any,
        abi.BLOCKED: _read_layout,
        abi.SPARSE: _read_sparse,
        abi.HOST_SCALAR: _read_host_scalar,
    }
)
"""Function that reads each of oneDNN's format kinds but the opaque one."""


def as_address(source: object) -> int:
    """Return the address in a `ctypes.c_void_p` or an integer; 0 for NULL.

    Raises:
        InvalidArguments: `source` is neither.
    """
    value = source.value if isinstance(source, c_void_p) else source
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value < 2**64:
        _refuse_source(source)
    return value


def _refuse_source(source: object) -> NoReturn:
    """Raise the error for a source that is neither a handle nor a blob."""
    raise InvalidArguments(
        f"source is a {type(source).__name__}: give a dnnl_memory_desc_t as ctypes.c_void_p or as its address, or a "
        "blob as bytes"
    )


def create_handle_from_blob(library: ctypes.CDLL, blob: bytes) -> c_void_p:
    """Create a descriptor of the library from a blob; the caller destroys it.

    The library reads as many bytes as its structure has and does not know the length of the blob. So this function
    compares the length with that of a blob that the library writes.

    Raises:
        Unimplemented: the library is older than 3.3 and has no blobs.
        InvalidArguments: `library` is not a oneDNN, or the length of the blob is not that of its blobs.
    """
    length = _blob_length(library)
    if len(blob) != length:
        raise InvalidArguments(f"the blob has {len(blob)} bytes, this oneDNN writes {length}: another one wrote it")
    result = c_void_p()
    create = _find_function(library, "memory_desc_create_with_blob")
    status = create(byref(result), ctypes.create_string_buffer(blob, length))
    if status or not result.value:
        raise InvalidArguments(f"oneDNN rejects the blob: its status is {status}")
    return result


def _blob_length(library: ctypes.CDLL) -> int:
    """Return the length in bytes of the library's blobs."""
    names = ("create_with_strides", "create_with_blob", "get_blob")
    create, read, measure = (_find_function(library, f"memory_desc_{name}") for name in names)
    if create is None:
        raise InvalidArguments(f"library is {library!r}: give a loaded oneDNN 3, as ctypes.CDLL('libdnnl.so.3')")
    if read is None or measure is None:
        raise Unimplemented("this oneDNN has no blobs of descriptors: they came with 3.3; give the handle itself")
    some, length = c_void_p(), c_size_t(0)
    status = create(byref(some), 1, abi.DIMS(1), abi.F32, None) or measure(None, byref(length), some)
    destroy(library, some)
    if status:
        raise InvalidArguments(f"the length of blobs cannot be queried from oneDNN: its status is {status}")
    return length.value
