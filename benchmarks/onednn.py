"""oneDNN as a peer: its reorder primitive, called through ctypes.

Primitive and memories are made before the timing; a timed call is `execute` and `wait`, as in a network that runs again
and again. oneDNN's own default decides its threads.

Source: oneDNN's public header `dnnl.h`; codes as in `dnnl_types.h`.
"""

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from ctypes import byref, c_void_p
from pathlib import Path

from benchmarks.buffers import Bytes
from benchmarks.onednn_attributes import STATUS, Functions, Refused, made_attributes, values_for, write_extras
from inlay import onednn_abi as abi
from inlay.descriptor import MemoryDesc
from inlay.notation.format_tag import ENUMERATED
from inlay.reordering.attributes import PLAIN, Attributes

__all__ = ["OneDNN", "Refused"]

_OF_THE_WHEEL = ("libtbb.so.12", "libimf.so", "libsvml.so", "libintlc.so.5", "libsycl.so.9")
"""What the library of the wheel `onednn` needs and does not find by itself, in the order of their own needs."""


class OneDNN:
    """One oneDNN library."""

    def __init__(self, path: Path, name: str) -> None:
        """Load the library at `path`.

        Raises:
            OSError: it cannot be loaded here.
        """
        _load_what_it_needs(path.parent)
        self._lib = abi.functions(ctypes.CDLL(str(path)))
        found = abi.Version.from_address(self._lib["version"]())
        self.name = name
        self.version = f"{found.major}.{found.minor}.{found.patch}"
        self._engine = self._made("engine_create", abi.CPU, 0)
        self._stream = self._made("stream_create", self._engine, abi.IN_ORDER)

    def _made(self, function: str, *arguments: object) -> c_void_p:
        """The object that a creating function of oneDNN writes to its first argument."""
        handle = c_void_p()
        status = self._lib[function](byref(handle), *arguments)
        if status:
            raise Refused(f"{function}: {STATUS[status] if status < len(STATUS) else status}")
        return handle

    def _descriptor(self, desc: MemoryDesc) -> c_void_p:
        """The format by its code, or spelled where oneDNN has no code for it: `BA16a32b4a`."""
        tag, data_type = _tag_of(desc), desc.data_type
        if tag is None or data_type is None:
            raise Refused(f"oneDNN has no tag for the format of {desc}")
        dims = abi.DIMS(*desc.dims)
        code = ENUMERATED.get(tag)
        if code is not None:
            made = self._made("memory_desc_create_with_tag", desc.ndims, dims, data_type.code, code)
        else:
            spelled = "memory_desc_create_with_string_tag"
            made = self._made(spelled, desc.ndims, dims, data_type.code, tag.encode())
        if desc.extras:
            write_extras(self._lib, made, desc.extras)
        return made

    def prepare(
        self, src: MemoryDesc, src_buffer: Bytes, dst: MemoryDesc, dst_buffer: Bytes, attributes: Attributes = PLAIN
    ) -> Callable[[], object]:
        """The reorder as a call; the buffers must outlive it.

        Raises:
            Refused: oneDNN has no implementation of it, or a wrong one.
        """
        if attributes.src_zero_points is not None and self.version.startswith("3.2."):
            raise Refused("3.2 leaves the zero points of a source out, in some sizes")
        lib, stream = self._lib, self._stream
        descs = (self._descriptor(src), self._descriptor(dst))
        primitive = self._primitive(*descs, attributes)
        values = values_for(attributes, src.dims)
        given = [(abi.ARGUMENTS["src"], descs[0], src_buffer), (abi.ARGUMENTS["dst"], descs[1], dst_buffer)]
        given += [(code, self._flat(count, of_type), numbers) for code, of_type, count, numbers in values]
        memories = [self._made("memory_create", d, self._engine, b.ctypes.data) for _, d, b in given]
        pairs = [abi.ExecutionArgument(code, memory) for (code, _, _), memory in zip(given, memories, strict=True)]
        arguments, count = (abi.ExecutionArgument * len(pairs))(*pairs), len(pairs)
        for _, desc, _ in given:
            lib["memory_desc_destroy"](desc)

        execute, wait = lib["primitive_execute"], lib["stream_wait"]

        def run() -> None:
            status = execute(primitive, stream, count, arguments) or wait(stream)
            if status:
                raise Refused(f"dnnl_primitive_execute: {STATUS[status] if status < len(STATUS) else status}")

        weakref.finalize(run, _destroy, lib, primitive, memories, values)
        return run

    def _primitive(self, src: c_void_p, dst: c_void_p, attributes: Attributes) -> c_void_p:
        """The reorder between two descriptors."""
        lib = self._lib
        attr = None if attributes == PLAIN else made_attributes(lib, attributes)
        try:
            plan = self._made("reorder_primitive_desc_create", src, self._engine, dst, self._engine, attr)
        finally:
            if attr is not None:
                lib["primitive_attr_destroy"](attr)
        primitive = self._made("primitive_create", plan)
        lib["primitive_desc_destroy"](plan)
        return primitive

    def _flat(self, count: int, type_code: int) -> c_void_p:
        """The descriptor of so many values in a row."""
        dims = abi.DIMS(count)
        return self._made("memory_desc_create_with_strides", 1, dims, type_code, None)


def _tag_of(desc: MemoryDesc) -> str | None:
    """The tag of a format, whatever stands behind the elements."""
    if desc.extras:
        layout, data_type = desc.require_layout("benchmark")
        desc = MemoryDesc.from_layout(layout, data_type, dims=desc.dims)
    return None if desc.tag is None else str(desc.tag)


def _destroy(lib: Functions, primitive: c_void_p, memories: list[c_void_p], values: Sequence[object]) -> None:
    """Free what a call needed; `values` were kept until now because a memory holds their address."""
    lib["primitive_destroy"](primitive)
    for memory in memories:
        lib["memory_destroy"](memory)


def _load_what_it_needs(folder: Path) -> None:
    """Load what the library of the wheel `onednn` (SYCL) needs on a machine without its installer."""
    driver = folder / "libintelocl.so"
    if not driver.exists():
        return
    os.environ.setdefault("OCL_ICD_FILENAMES", str(driver))
    for name in _OF_THE_WHEEL:
        if (folder / name).exists():
            ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
