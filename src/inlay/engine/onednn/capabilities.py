"""What a loaded oneDNN can do, found by asking it, and what it lacks of an operation, said before it is called.

    lacking in 3.2                                          and what computes it instead
    group normalization                                     the reference engine
    binary select (three sources)                           the reference engine
    scales and zero points in groups, scales not f32,       the reference engine
    zero points not s32
    scales and shifts of layer normalization not f32        the reference engine
    root mean square normalization (flag rms_norm)          the reference engine
    f8, f4, e8m0, s4, u4, s64                               the reference engine
    what `recurrent` lists: gradients of AUGRU and others   the reference engine
    sparse factors but those that `sparse_products` lists   the reference engine
    what it computes wrongly (`defects`)                    the reference engine
    what is too large for it (`limits`)                     the reference engine

Whatever else a library answers `unimplemented` to goes there too: free digits, combinations of types, algorithms.
Nothing here is a table of versions: functions and types are looked for in the library itself, so a build that leaves
something out is treated as what it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from inlay.data_type import DATA_TYPES
from inlay.engine.onednn.defects import defect_of
from inlay.engine.onednn.library import Library
from inlay.engine.onednn.limits import excess_of
from inlay.engine.onednn.sparse_products import lacking_sparse
from inlay.onednn_abi import CREATORS, creator_name
from inlay.primitives.attributes import PLAIN, PrimitiveAttributes
from inlay.primitives.operation import Operation

_RMS_SINCE = (3, 9)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one library has."""

    version: tuple[int, int, int]
    """Of the library."""
    runtime: str
    """What it starts threads with."""
    isa: int
    """The instruction sets that it uses here, as its `dnnl_cpu_isa_t`."""
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


def capabilities(library: Library, data_types: frozenset[str]) -> Capabilities:
    """What `library` has, of which these are the types."""
    functions = library.functions
    present = {row for row in CREATORS if creator_name(*row).removeprefix("dnnl_") in functions}
    return Capabilities(
        library.version,
        library.runtime,
        functions["get_effective_cpu_isa"]() if "get_effective_cpu_isa" in functions else 0,
        data_types,
        frozenset(present),
        "primitive_attr_set_scales" in functions and "primitive_attr_set_zero_points" in functions,
    )


def row_of(operation: Operation) -> tuple[str, str, str]:
    """The row of `CREATORS` that makes an operation."""
    kind, direction = operation.kind, operation.direction
    if kind == "binary":
        return kind, "", "v2" if "src_2" in operation.descs else ""
    if kind == "layer_normalization":
        return kind, direction, "v2" if _has_other_scales(operation) else ""
    return kind, "" if kind in _FORWARD_ONLY else direction, ""


_FORWARD_ONLY = frozenset(kind for kind, direction, _ in CREATORS if not direction)


def _has_other_scales(operation: Operation) -> bool:
    """Whether a scale or shift is not f32."""
    descs = [operation.descs.get(name) for name in ("scale", "shift", "diff_scale", "diff_shift")]
    return any(desc is not None and desc.data_type != DATA_TYPES["f32"] for desc in descs)


def lacking(known: Capabilities, operation: Operation) -> str | None:
    """What the library lacks of an operation, as the end of a sentence; None where only the library itself can tell."""
    kind = operation.kind
    if kind not in _JOINED and row_of(operation) not in known.creators:
        return _NEWER.get(kind, kind)
    if sparse := lacking_sparse(operation):
        return sparse
    if defect := defect_of(known.version, operation, known.isa) or excess_of(known.version, operation):
        return defect
    if kind in _WITH_RMS and known.version < _RMS_SINCE:
        flags = operation.parameters.get("flags")
        if isinstance(flags, frozenset) and "rms_norm" in flags:
            return "root mean square normalization"
    attributes = operation.attributes
    if attributes is PLAIN or known.grouped_values:
        return None
    return next(_lacks_values(attributes), None)


_JOINED = frozenset(("reorder", "concat", "sum"))
_WITH_RMS = frozenset(("layer_normalization", "batch_normalization"))
_NEWER = {
    "group_normalization": "group normalization",
    "binary": "binary algorithm select",
    "layer_normalization": "scales and shifts of layer normalization that are not f32",
}


def _lacks_values(attributes: PrimitiveAttributes) -> Iterator[str]:
    for what, entries, plain in (
        ("scales", attributes.scales, "f32"),
        ("zero points", attributes.zero_points, "s32"),
    ):
        for name, entry in entries.items():
            if entry.groups:
                yield f"{what} of {name} in groups"
            if entry.data_type != plain:
                yield f"{what} of {name} of type {entry.data_type}"
