"""oneDNN, loaded from its wheel, as the oracle of descriptors.

A `Desc` holds a `dnnl_memory_desc_t`; calls that fail raise `Refused` with the status. `mirror` creates the
oneDNN descriptor of the same dims, type and layout as one of Inlay's by writing into the structure, so it can have
partial blocks and offsets that no constructor of oneDNN creates.

    ours = MemoryDesc((2, 17), "f32", "aB8b")
    mirror(ours).size == ours.size
    reorder(mirror(src), src_address, mirror(dst), dst_address)

After `runtime_error` a thread of the library cannot generate code any more, so the oracle starts new threads.

The wheel `onednn-cpu-gomp` is oneDNN 3.2 and knows no type newer than f64; `onednn` is 3.13 and knows all. Both
install `lib/libdnnl.so.3` in the prefix of Python; `INLAY_ONEDNN` in the environment names another file.

Source: oneDNN's public header `dnnl.h`; codes as in `dnnl_types.h`.
"""

import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path

from inlay.descriptor import MemoryDesc

STATUS = ("success", "out_of_memory", "invalid_arguments", "unimplemented")
KINDS = ("undef", "any", "blocked", "opaque", "sparse", "host_scalar")
TAG_UNDEF, TAG_ANY = 0, 1
MAX_NDIMS = 12

_Dims = c_int64 * MAX_NDIMS
_STRIDES, _NDIMS, _DIMS, _DATA_TYPE, _OFFSET0, _PADDED_DIMS, _PADDED_OFFSETS, _KIND, _NBLKS, _BLKS, _IDXS = (
    14,
    *range(256, 266),
)
_ENCODING, _NNZ, _HANDLES = range(266, 269)
_ENCODINGS = {1: "csr", 2: "packed", 3: "coo"}
_CPU, _ARG_SRC, _ARG_DST = 1, 1, 17
_RUNTIME_ERROR = 5
_NEEDED_BY_SYCL = ("libtbb.so.12", "libimf.so", "libsvml.so", "libintlc.so.5", "libsycl.so.9")


class Refused(Exception):
    """oneDNN's answer was not success."""

    def __init__(self, status: int) -> None:
        self.status = STATUS[status] if status < len(STATUS) else f"status {status}"
        super().__init__(self.status)


class _Version(ctypes.Structure):
    _fields_ = (("major", c_int), ("minor", c_int), ("patch", c_int))


class Unavailable(Exception):
    """No oneDNN can be loaded on this machine."""


def why_unavailable() -> str | None:
    """The reason why no oneDNN can be loaded here, or None where it can: what a test is skipped for."""
    try:
        library()
    except Unavailable as reason:
        return str(reason)
    return None


@cache
def library() -> ctypes.CDLL:
    """The loaded library.

    Raises:
        Unavailable: no wheel is installed, or it is for another machine.
    """
    path = Path(os.environ.get("INLAY_ONEDNN") or Path(sys.prefix) / "lib" / "libdnnl.so.3")
    if not path.exists():
        raise Unavailable("no oneDNN here: pip install onednn-cpu-gomp")
    driver = path.parent / "libintelocl.so"
    if driver.exists():
        os.environ.setdefault("OCL_ICD_FILENAMES", str(driver))
    for name in _NEEDED_BY_SYCL:
        if (path.parent / name).exists():
            ctypes.CDLL(str(path.parent / name), ctypes.RTLD_GLOBAL)
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"oneDNN's wheel cannot be loaded here: {error}") from error
    lib.dnnl_memory_desc_get_size.restype = lib.dnnl_data_type_size.restype = c_size_t
    lib.dnnl_memory_desc_get_size.argtypes = (c_void_p,)
    lib.dnnl_memory_desc_equal.argtypes = (c_void_p, c_void_p)
    lib.dnnl_memory_desc_get_size_v2.restype = c_size_t
    lib.dnnl_memory_desc_get_size_v2.argtypes = (c_void_p, c_int)
    lib.dnnl_memory_desc_query.argtypes = (c_void_p, c_int, c_void_p)
    lib.dnnl_memory_desc_query_v2.argtypes = (c_void_p, c_int, c_int, c_void_p)
    lib.dnnl_memory_desc_destroy.argtypes = (c_void_p,)
    lib.dnnl_memory_desc_create_submemory.argtypes = (c_void_p, c_void_p, c_void_p, c_void_p)
    lib.dnnl_memory_desc_reshape.argtypes = (c_void_p, c_void_p, c_int, c_void_p)
    lib.dnnl_memory_desc_permute_axes.argtypes = (c_void_p, c_void_p, c_void_p)
    lib.dnnl_memory_create.argtypes = (c_void_p, c_void_p, c_void_p, c_void_p)
    lib.dnnl_version.restype = POINTER(_Version)
    return lib


@cache
def version() -> tuple[int, int]:
    """Major and minor version of the library."""
    found = library().dnnl_version().contents
    return found.major, found.minor


AVX512, BF16, FP16 = 0x20, 0x80, 0x100
"""Bits of `isa`: AVX-512 at all, its instructions for bf16, and those for f16."""


@cache
def isa() -> int:
    """The instruction sets that the library uses here, as its `dnnl_cpu_isa_t`."""
    return int(library().dnnl_get_effective_cpu_isa())


def knows(code: int) -> bool:
    """Return True if the library supports the data type of this code."""
    return code <= 7 or version() >= (3, 8)


def data_type_size(code: int) -> int:
    """Bytes of one element, as the library answers."""
    return int(library().dnnl_data_type_size(code))


def check(status: int) -> None:
    """Raise `Refused` unless `status` is success."""
    if status:
        raise Refused(status)


def _array(values: Sequence[int]) -> "ctypes.Array[c_int64]":
    return _Dims(*values[:MAX_NDIMS])


class Desc:
    """One `dnnl_memory_desc_t` and its queries; owned, destroyed with this value."""

    def __init__(self, create: Callable[["ctypes._CArgObject"], int]) -> None:
        """Take the descriptor that `create` writes to the pointer it is given."""
        self.handle = c_void_p()
        check(create(byref(self.handle)))

    def __del__(self) -> None:
        if self.handle.value:
            library().dnnl_memory_desc_destroy(self.handle)

    def _number(self, what: int) -> int:
        result = c_int64(0)
        check(library().dnnl_memory_desc_query(self.handle, what, byref(result)))
        return result.value

    def _entries(self, what: int) -> "ctypes.Array[c_int64]":
        """The array inside the structure that answers the query; what is written to it is written to the descriptor."""
        address = c_void_p()
        check(library().dnnl_memory_desc_query(self.handle, what, byref(address)))
        return _Dims.from_address(address.value or 0)

    def _tuple(self, what: int, count: int) -> tuple[int, ...]:
        return tuple(self._entries(what)[:count])

    @property
    def ndims(self) -> int:
        return self._number(_NDIMS)

    @property
    def dims(self) -> tuple[int, ...]:
        return self._tuple(_DIMS, self.ndims)

    @property
    def padded_dims(self) -> tuple[int, ...]:
        return self._tuple(_PADDED_DIMS, self.ndims)

    @property
    def padded_offsets(self) -> tuple[int, ...]:
        return self._tuple(_PADDED_OFFSETS, self.ndims)

    @property
    def offset0(self) -> int:
        return self._number(_OFFSET0)

    @property
    def data_type(self) -> int:
        return self._number(_DATA_TYPE)

    @property
    def kind(self) -> str:
        return KINDS[self._number(_KIND)]

    @property
    def strides(self) -> tuple[int, ...]:
        return self._tuple(_STRIDES, self.ndims)

    @property
    def inner_blocks(self) -> tuple[tuple[int, int], ...]:
        """Axis and size of each inner block, outermost first."""
        count = self._number(_NBLKS)
        return tuple(zip(self._tuple(_IDXS, count), self._tuple(_BLKS, count), strict=True))

    @property
    def size(self) -> int:
        return int(library().dnnl_memory_desc_get_size(self.handle))

    def size_of(self, index: int) -> int:
        """Bytes of one of several buffers."""
        return int(library().dnnl_memory_desc_get_size_v2(self.handle, index))

    def _number_of(self, what: int, index: int = 0) -> int:
        result = c_int64(0)
        check(library().dnnl_memory_desc_query_v2(self.handle, what, index, byref(result)))
        return result.value

    @property
    def sparse_encoding(self) -> str:
        return _ENCODINGS[self._number_of(_ENCODING)]

    @property
    def nnz(self) -> int:
        return self._number_of(_NNZ)

    @property
    def num_handles(self) -> int:
        return self._number_of(_HANDLES)

    def data_type_of(self, index: int) -> int:
        """The type of what one of several buffers holds; 0 for none."""
        return self._number_of(_DATA_TYPE, index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Desc) and bool(library().dnnl_memory_desc_equal(self.handle, other.handle))

    __hash__ = None  # type: ignore[assignment]

    def submemory(self, dims: Sequence[int], offsets: Sequence[int]) -> "Desc":
        make = library().dnnl_memory_desc_create_submemory
        return Desc(lambda out: make(out, self.handle, _array(dims), _array(offsets)))

    def reshape(self, dims: Sequence[int]) -> "Desc":
        make = library().dnnl_memory_desc_reshape
        return Desc(lambda out: make(out, self.handle, len(dims), _array(dims)))

    def permute_axes(self, permutation: Sequence[int]) -> "Desc":
        make = library().dnnl_memory_desc_permute_axes
        return Desc(lambda out: make(out, self.handle, (c_int * MAX_NDIMS)(*permutation)))

    def poke(
        self,
        *,
        padded_dims: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        offset0: int | None = None,
    ) -> "Desc":
        """Write into the structure what no constructor of oneDNN takes; returns this descriptor."""
        for what, values in ((_PADDED_DIMS, padded_dims), (_STRIDES, strides)):
            if values is not None:
                self._entries(what)[: len(values)] = list(values)
        if offset0 is not None:
            # The field that follows the padded offsets.
            end = ctypes.addressof(self._entries(_PADDED_OFFSETS)) + ctypes.sizeof(_Dims)
            c_int64.from_address(end).value = offset0
        return self


def by_tag(dims: Sequence[int], data_type: int, tag: int) -> Desc:
    """`dnnl_memory_desc_create_with_tag`, by oneDNN's codes."""
    make = library().dnnl_memory_desc_create_with_tag
    return Desc(lambda out: make(out, len(dims), _array(dims), data_type, tag))


def by_string_tag(dims: Sequence[int], data_type: int, tag: str) -> Desc:
    """`dnnl_memory_desc_create_with_string_tag`: any blocked tag, checked for its number of letters only."""
    make = library().dnnl_memory_desc_create_with_string_tag
    make.argtypes = (c_void_p, c_int, c_void_p, c_int, c_char_p)
    return Desc(lambda out: make(out, len(dims), _array(dims), data_type, tag.encode()))


def by_strides(dims: Sequence[int], data_type: int, strides: Sequence[int] | None) -> Desc:
    """`dnnl_memory_desc_create_with_strides`; without strides, dense row-major."""
    make = library().dnnl_memory_desc_create_with_strides
    steps = None if strides is None else _array(strides)
    return Desc(lambda out: make(out, len(dims), _array(dims), data_type, steps))


def zero() -> Desc:
    """The zero descriptor."""
    return by_tag((), 0, TAG_UNDEF)


def host_scalar(data_type: int) -> Desc:
    """`dnnl_memory_desc_create_host_scalar`, where the library has it."""
    make = library().dnnl_memory_desc_create_host_scalar
    return Desc(lambda out: make(out, data_type))


def sparse(desc: MemoryDesc) -> Desc:
    """The sparse descriptor of the same arguments, where the library has the encoding."""
    element = desc.data_type
    assert element is not None
    make = getattr(library(), f"dnnl_memory_desc_create_with_{desc.sparse_encoding}_encoding")
    types = desc.data_types[1 : {"csr": 3, "coo": 2, "packed": 1}[desc.sparse_encoding]]
    if desc.sparse_encoding == "csr" and desc.ndims == 1:
        # Ours has no pointers there; the library's has a type for them all the same.
        types = (types[0], types[0])
    codes = [0 if t is None else t.code for t in types]
    return Desc(lambda out: make(out, desc.ndims, _array(desc.dims), element.code, c_int64(desc.nnz), *codes))


def mirror(desc: MemoryDesc) -> Desc:
    """The oneDNN descriptor with the dims, type and place of `desc`."""
    if desc.data_type is None:
        return zero()
    match desc.kind:
        case "any":
            return by_tag(desc.dims, desc.data_type.code, TAG_ANY)
        case "host_scalar":
            return host_scalar(desc.data_type.code)
        case "sparse":
            return sparse(desc)
    letters = "abcdefghijkl"[: desc.ndims]
    blocked = {letters[axis] for axis, _ in desc.inner_blocks}
    tag = "".join(c.upper() if c in blocked else c for c in letters)
    tag += "".join(f"{size}{letters[axis]}" for axis, size in desc.inner_blocks)
    made = by_string_tag(desc.dims, desc.data_type.code, tag)
    return made.poke(padded_dims=desc.padded_dims, strides=desc.strides, offset0=desc.offset0)


class _ExecArg(ctypes.Structure):
    _fields_ = (("arg", c_int), ("memory", c_void_p))


@cache
def _engine() -> c_void_p:
    engine = c_void_p()
    check(library().dnnl_engine_create(byref(engine), _CPU, c_size_t(0)))
    return engine


@cache
def _stream() -> c_void_p:
    stream = c_void_p()
    check(library().dnnl_stream_create(byref(stream), _engine(), 1))
    return stream


class _Spoiled(threading.local):
    """State of the error variable of each thread."""

    is_spoiled = False


_SPOILED = _Spoiled()


def has_met_an_error() -> bool:
    """Return True if the calling thread has had the status `runtime_error` (5)."""
    return _SPOILED.is_spoiled


def _created_safely(create: Callable[[], int]) -> int:
    """The status of `create`, of a new thread where this one has seen status 5: the error is thread-local and stays."""
    status = _RUNTIME_ERROR if _SPOILED.is_spoiled else create()
    if status != _RUNTIME_ERROR:
        return status
    _SPOILED.is_spoiled = True
    statuses: list[int] = []
    other = threading.Thread(target=lambda: statuses.append(create()))
    other.start()
    other.join()
    return statuses[0]


class Reorder:
    """A compiled oneDNN reorder: `run(src_address, dst_address)` any number of times."""

    def __init__(self, src: Desc, dst: Desc, attributes: c_void_p | None = None) -> None:
        """Raise `Refused` where oneDNN has no implementation."""
        self._primitive = c_void_p()
        self._src, self._dst = src, dst
        lib, pd = library(), c_void_p()
        create = lib.dnnl_reorder_primitive_desc_create
        check(create(byref(pd), src.handle, _engine(), dst.handle, _engine(), attributes))
        status = _created_safely(lambda: int(lib.dnnl_primitive_create(byref(self._primitive), pd)))
        if not status:
            lib.dnnl_primitive_desc_destroy(pd)
        # After a failure the library's cache keeps pointers into the primitive descriptor: it must stay.
        check(status)

    def __del__(self) -> None:
        if self._primitive.value:
            library().dnnl_primitive_destroy(self._primitive)

    def run(self, src_address: int, dst_address: int, others: Sequence[tuple[int, Desc, int]] = ()) -> None:
        """Move the elements; the addresses are of the buffers' first bytes, `offset0` not added.

        `others` are further arguments of the call: code, descriptor and address of each.
        """
        lib = library()
        given = [(_ARG_SRC, self._src, src_address), (_ARG_DST, self._dst, dst_address), *others]
        memories = [c_void_p() for _ in given]
        for memory, (_, desc, address) in zip(memories, given, strict=True):
            check(lib.dnnl_memory_create(byref(memory), desc.handle, _engine(), c_void_p(address)))
        try:
            pairs = [_ExecArg(code, memory) for (code, _, _), memory in zip(given, memories, strict=True)]
            check(lib.dnnl_primitive_execute(self._primitive, _stream(), len(pairs), (_ExecArg * len(pairs))(*pairs)))
            check(lib.dnnl_stream_wait(_stream()))
        finally:
            for memory in memories:
                lib.dnnl_memory_destroy(memory)


def reorder(src: Desc, src_address: int, dst: Desc, dst_address: int) -> None:
    """Move the elements of `src` at `src_address` into `dst` at `dst_address`, by oneDNN."""
    Reorder(src, dst).run(src_address, dst_address)


def text(desc: Desc) -> str:
    """oneDNN's textual form of one descriptor that it can reorder to itself."""
    (found,) = texts([desc])
    if found is None:
        raise Refused(STATUS.index("unimplemented"))
    return found


def texts(descs: Sequence[Desc]) -> list[str | None]:
    """oneDNN's textual forms, read from one log of reorders of each `desc` to itself; None where it has none."""
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    kept = os.dup(1)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 1)
        # A primitive from the cache would log the text of an equal descriptor.
        library().dnnl_set_primitive_cache_capacity(0)
        library().dnnl_set_verbose(2)
        try:
            logged = [_is_reordered(desc) for desc in descs]
        finally:
            library().dnnl_set_verbose(0)
            libc.fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
        log.seek(0)
        lines = log.read().decode().splitlines()
    # One line per reorder, in their order; 3.2 writes src_f32:..., its successors src:f32:...
    created = [line for line in lines if "create" in line and ",reorder," in line]
    found = iter([next(part for part in line.split(",") if part.startswith("src")) for line in created])
    answers = [next(found)[len("src_") :].split(" ")[0] if was else None for was in logged]
    assert next(found, None) is None
    return answers


def _is_reordered(desc: Desc) -> bool:
    try:
        Reorder(desc, desc)
    except Refused:
        return False
    return True
