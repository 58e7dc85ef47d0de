"""What a loaded oneDNN can do, found by asking it, and what it lacks of an operation, said before it is called.

    lacking in 3.2                                          and there instead
    group normalization                                     the reference engine
    binary select (three sources)                           the reference engine
    scales and zero points in groups, scales not f32,       the reference engine
    zero points not s32
    scales and shifts of layer normalization not f32        the reference engine
    root mean square normalization (flag rms_norm)          the reference engine
    f8, f4, e8m0, s4, u4, s64                               the reference engine
    LRN of one element in training (crashes, 3.13 too)      the reference engine

Whatever else a library answers `unimplemented` to goes there too: free digits, combinations of types, algorithms.
Nothing here is a table of versions: functions and types are looked for in the library itself, so a build that leaves
something out is treated as what it is.
"""

from collections.abc import Iterator
from ctypes import byref, c_void_p
from dataclasses import dataclass

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.engine.onednn.declarations import CREATORS, MAX_NDIMS, creator_name
from inlay.engine.onednn.descs import DIMS
from inlay.engine.onednn.library import Library
from inlay.primitives.attributes import Binary, PrimitiveAttributes
from inlay.primitives.operation import Operation

_RMS_SINCE = (3, 9)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one library has."""

    version: tuple[int, int, int]
    """Of the library."""
    runtime: str
    """What it starts threads with."""
    data_types: frozenset[str]
    """Types that its descriptors can have."""
    creators: frozenset[tuple[str, str, str]]
    """The rows of `CREATORS` that it has."""
    grouped_values: bool
    """Whether scales and zero points may be in groups and of several types."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether an execution is only begun by its call, so that it must be waited for."""
        return self.runtime in ("sycl", "threadpool")


def capabilities(library: Library) -> Capabilities:
    """What `library` has."""
    functions = library.functions
    present = {row for row in CREATORS if creator_name(*row).removeprefix("dnnl_") in functions}
    return Capabilities(
        library.version,
        library.runtime,
        frozenset(name for name, data_type in DATA_TYPES.items() if _stores(library, data_type.code)),
        frozenset(present),
        "primitive_attr_set_scales" in functions and "primitive_attr_set_zero_points" in functions,
    )


def _stores(library: Library, code: int) -> bool:
    out = c_void_p()
    create = library.functions["memory_desc_create_with_strides"]
    stored = not create(byref(out), 1, DIMS(2), code, DIMS(1))
    if out.value:
        library.functions["memory_desc_destroy"](out.value)
    return stored


def row_of(operation: Operation) -> tuple[str, str, str]:
    """The row of `CREATORS` that makes an operation."""
    kind, direction = operation.kind, operation.direction
    if (kind, direction, "") not in CREATORS:
        direction = ""  # type: ignore[assignment]
    return kind, direction, "v2" if _needs_second(operation) else ""


def _needs_second(operation: Operation) -> bool:
    if operation.kind == "binary":
        return "src_2" in operation.descs
    return operation.kind == "layer_normalization" and any(
        desc.data_type is not None and desc.data_type.name != "f32"
        for name, desc in operation.descs.items()
        if name in ("scale", "shift", "diff_scale", "diff_shift")
    )


def lacking(known: Capabilities, operation: Operation) -> str | None:
    """What the library lacks of an operation, as the end of a sentence; None where only the library itself can tell."""
    return next(_lacks(known, operation), None)


def _lacks(known: Capabilities, operation: Operation) -> Iterator[str]:
    if operation.kind not in ("reorder", "concat", "sum") and row_of(operation) not in known.creators:
        yield _NEWER.get(operation.kind, operation.kind)
    for name, desc in _all_descs(operation):
        if desc.data_type is not None and desc.data_type.name not in known.data_types:
            yield f"the data type {desc.data_type} of {name}"
        if desc.has_runtime:
            yield f"execution with RUNTIME dims or strides, as {name} has: bind them first"
        if desc.ndims > MAX_NDIMS:
            yield f"{desc.ndims} dims"
    if operation.kind == "lrn" and operation.parameters["local_size"] == 1 and "inference" not in operation.prop_kind:
        # 3.2 and 3.13 read past the end of channels-last memory there, and the process ends.
        yield "a safe gradient of LRN with a local_size of 1"
    flags = operation.parameters.get("flags")
    if isinstance(flags, frozenset) and "rms_norm" in flags and known.version < _RMS_SINCE:
        yield "root mean square normalization"
    yield from _lacks_values(known, operation.attributes)


_NEWER = {
    "group_normalization": "group normalization",
    "binary": "the binary algorithm select",
    "layer_normalization": "scales and shifts of layer normalization that are not f32",
}


def _all_descs(operation: Operation) -> Iterator[tuple[str, MemoryDesc]]:
    yield from operation.descs.items()
    for i, post_op in enumerate(operation.attributes.post_ops):
        if isinstance(post_op, Binary):
            yield f"post_op_{i}_src_1", post_op.src_1


def _lacks_values(known: Capabilities, attributes: PrimitiveAttributes) -> Iterator[str]:
    if known.grouped_values:
        return
    for what, entries, plain in (
        ("scales", attributes.scales, "f32"),
        ("zero points", attributes.zero_points, "s32"),
    ):
        for name, entry in entries.items():
            if entry.groups:
                yield f"{what} of {name} in groups"
            if entry.data_type != plain:
                yield f"{what} of {name} of type {entry.data_type}"
