"""What a loaded oneDNN can do, and the operations that it is never asked for, since it lacks them or fails at them.

`lacking` says so of an operation before the library is called:

    lacking in 3.2                                          and what computes it instead
    group normalization                                     the reference engine
    binary select (three sources)                           the reference engine
    scales and zero points in groups, scales not f32,       the reference engine
    zero points not s32
    scales and shifts of layer normalization not f32        the reference engine
    root mean square normalization (flag rms_norm)          the reference engine
    f8, f4, e8m0, s4, u4, s64                               the reference engine
    sparse factors but those below (`lacking_sparse`)       the reference engine
    what it computes wrongly (`defect_of`)                  the reference engine
    what is too large for it (`excess_of`)                  the reference engine
    what `arguments.flaw` lists: gradients of AUGRU ...     the reference engine

Whatever else a library answers `unimplemented` to goes there too: free digits, combinations of types, algorithms.
`Capabilities` is no table of versions: functions and types are looked for in the library itself, so a build that leaves
something out is treated as what it is.

Sparse products that it computes; its other kernels take sparse memory for dense:

    3.2      matmul   CSR                f32
    3.13     matmul   CSR, COO           f32; f16 where src is sparse
                      packed weights     s8, by AMX

Positions are s32, the dense factor and the result have rows one after the other, and nothing follows: no bias, no
attributes. Release 3.2 takes inner products and matmul of integers with sparse factors too, 3.13 inner products, and
both read the values as a dense matrix, past their end.

In f16 with sparse weights each partial sum is rounded to f16, which the reference engine does not do.

Sizes that a release accepts and does not survive: the process ends, or memory is used up, at creation. Kernels keep
dims and products of dims in `int`. One that exceeds 2^31 - 1 wraps, at a power of two to 0, and the library divides by
it. Found by creating 3,264 primitives with dims up to 2^40 (tests/support/large_dims.py).

    before 3.13
    every kind but the elementwise ones     a dim above 2^31 - 1
    convolution, deconvolution              more than 2^31 - 1 elements in an image, or in the weights of a group,
                                              channels counted in blocks of 16; 2^26 columns of dst and more: 64 bytes
                                              of tables for each
    recurrent networks                      more than 2^31 - 1 channels of all gates together

    in every release
    inner product                           a dim, or the elements of one image, above 2^31 - 1
    linear resampling                       more than 2^27 pixels of dst: some 32 bytes of tables for each
    layer normalization                     more than 2^28 elements on the last axis: its code is unrolled

Defects: what a release accepts and computes wrongly, or ends the process with. Each was found by random problems held
against the reference engine (tests/support/primitive_cases.py) and is declined in both releases, 3.2 and 3.13, unless
it says otherwise: a crash of the process is worth more than the speed of a rare case.

    LRN in training, local_size 1 or 2           reads past the end of channels-last memory: the process ends
    batch normalization in training, of a view   the workspace of a fused relu has as many bytes as elements, and is
      with gaps                                  written at their offsets: past its end
    pooling and PReLU in training, of a view     the kernel for any format writes past its scratchpad, or nothing at all
      with gaps
    PReLU of tensors without elements            divides by their number: the process ends
    PReLU in training, weights that differ       after 3.2: gradients are zero
      along other axes than channels
    resampling of an axis of one element         after 3.2: reads and writes past the ends of source and destination
    inner product with one output                after 3.2: wrong sums
    matmul whose first batch axis has one        after 3.2: matrices are read from wrong places where another batch axis
      element, and another has several             lies between rows and columns of src or weights in memory
    layer normalization of a view with gaps      rows are taken to be equally far apart

    layer normalization between formats, and     all are taken to lie as one of them does: wrong numbers, written past
      softmax backward                             the end too
    binary of halves in blocks of less than 8    writes past the end of the destination
    f64 outside reorders                         read as something else, or no primitive is made: only its engines of
                                                   graphics processors have it
    scales of src of softmax and layer           multiply the result
      normalization
    scales of dst of concat                      do nothing
    PReLU as post-operation of what has no       is accepted, and refused when it is executed
      weights
    more than five axes: batch normalization,    only five of them are counted: wrong numbers
      LRN, eltwise with post-operations
    sum as post-operation of eltwise, pooling    3.2: does nothing
    binary as post-operation of pooling, with    reads the operand as it lies in another format, past its end too
      an operand for each element
    binary as post-operation of resampling,      before 3.13: reads the operand as if each channel had one
      along other axes than channels
    binary as post-operation of binary and       reads other elements of the operand
      softmax in columns or channels last,
      along the last axis

    inner product of u8 or s8 images with        3.13, with AVX2 and neither VNNI nor AVX-512: channels-last sources,
      spatial axes                                 which it chooses for any, are multiplied by other weights

    reorder of bf16, f16, s32, s8, u8 to s4,     3.13: elements are not converted, or not written
      u4, f4_e2m1, e8m0, s64, same layout
    reorder of f8_e5m2 to itself, with AMX       3.13: nChw8c fails in code generation, and every creation after it
                                                   on that thread too (see `library`)

Source: oneDNN, `ref_sparse_matmul_t`, `jit_uni_sparse_matmul_t`, `brgemm_matmul_t` for sparse products.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc, kinds
from inlay.engines.onednn.library import Library
from inlay.layout import Layout
from inlay.onednn_abi import CREATORS, creator_name
from inlay.primitives.attributes import PLAIN, BinaryPostOp, PReLUPostOp, PrimitiveAttributes, SumPostOp
from inlay.primitives.engine import Operation
from inlay.primitives.rules import RECURRENT, WEIGHTED

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


_POSITIONS = (None, DATA_TYPES["s32"])


def lacking_sparse(operation: Operation) -> str | None:
    """What the library lacks of an operation with a sparse argument, as the end of a sentence; None for nothing."""
    descs = operation.descs
    sparse = next((name for name, desc in descs.items() if desc.kind == "sparse"), None)
    if sparse is None:
        return None
    if operation.kind != "matmul":
        return f"{operation.kind} with sparse {sparse}"
    if any(0 in desc.dims for desc in descs.values()):
        return "sparse matmul of tensors without elements"
    if isinstance(descs[sparse].layout, kinds.Packed):
        is_computed = sparse == "weights" and descs["weights"].data_type == DATA_TYPES["s8"]
        return None if is_computed else "matmul with packed tensors other than weights of s8"
    return _lacking_positions(sparse, operation)


def _lacking_positions(sparse: str, operation: Operation) -> str | None:
    descs, desc = operation.descs, operation.descs[sparse]
    if desc.ndims != 2:
        return f"sparse matmul of {desc.ndims} axes"
    if "bias" in descs or replace(operation.attributes, scratchpad_mode="library", fpmath_mode="strict") != PLAIN:
        return "sparse matmul with a bias or attributes"
    types = {str(descs[name].data_type) for name in ("src", "weights", "dst")}
    if types != {"f32"} and (types, sparse) != ({"f16"}, "src"):
        return f"sparse matmul of {', '.join(sorted(types))} with sparse {sparse}"
    if any(data_type not in _POSITIONS for data_type in desc.data_types[1:]):
        return "sparse matmul with positions of other types than s32"
    return None


_INT: Final = 2**31 - 1
_LIMITS_MENDED: Final = (3, 13)
"""The release that refuses dims above 2^31 - 1 itself, or computes with them, unless said otherwise."""
_BLOCK: Final = 16
_MOST_COLUMNS: Final = 2**26 - 1
_MOST_PIXELS: Final = 2**27
_MOST_NORMALIZED: Final = 2**28
_BY_ELEMENTS: Final = frozenset(("eltwise", "binary", "sum", "concat", "reorder"))
"""Kinds whose kernels count elements in 64 bits."""


def excess_of(version: tuple[int, int, int], operation: Operation) -> str | None:
    """Return what of the operation is too large for this release, as the end of `oneDNN has no ...`, or None."""
    kind, descs = operation.kind, operation.descs
    if kind in _LIMITS and (excess := next(_LIMITS[kind](operation), None)):
        return excess
    if version >= _LIMITS_MENDED or kind in _BY_ELEMENTS:
        return None
    for name, desc in descs.items():
        if desc.dims and max(desc.dims) > _INT:
            return f"{kind} with a dim of {max(desc.dims)} in {name}: its kernels count to {_INT}"
    if kind in _OLD_LIMITS:
        return next(_OLD_LIMITS[kind](operation), None)
    return None


def _of_convolution(operation: Operation) -> Iterator[str]:
    kind = operation.kind
    for name, desc in operation.descs.items():
        if "weights" in name:
            channels = 2 if desc.ndims == 2 + _spatial_axes(operation) else 3
            count = prod(_in_blocks(n) for n in desc.dims[channels - 2 : channels]) * prod(desc.dims[channels:])
            if count > _INT:
                yield f"{kind} by {count} {name} of a group: its kernels count to {_INT}"
        elif desc.ndims > 2:
            count = _in_blocks(desc.dims[1]) * prod(desc.dims[2:])
            if count > _INT:
                yield f"{kind} with {count} elements in an image of {name}: its kernels count to {_INT}"
    dst = operation.descs.get("dst") or operation.descs.get("diff_dst") or MemoryDesc()
    if dst.ndims > 2 and dst.dims[-1] > _MOST_COLUMNS:
        yield f"{kind} with {dst.dims[-1]} columns of dst, for which it would fill {dst.dims[-1] >> 24} GiB with tables"


def _in_blocks(channels: int) -> int:
    return -(-channels // _BLOCK) * _BLOCK


def _spatial_axes(operation: Operation) -> int:
    return max(desc.ndims for name, desc in operation.descs.items() if "weights" not in name) - 2


def _of_recurrent(operation: Operation) -> Iterator[str]:
    for name, desc in operation.descs.items():
        if name.endswith(("weights_layer", "weights_iter")) and prod(desc.dims[-2:]) > _INT:
            yield f"{operation.kind} with {prod(desc.dims[-2:])} channels of gates: its kernels count to {_INT}"


def _of_inner_product(operation: Operation) -> Iterator[str]:
    for name, desc in operation.descs.items():
        if desc.dims and (desc.dims[0] > _INT or prod(desc.dims[1:]) > _INT):
            yield f"inner_product with dims {desc.dims} in {name}: its kernels count to {_INT}"


def _of_resampling(operation: Operation) -> Iterator[str]:
    dst = operation.descs.get("dst") or operation.descs.get("diff_dst") or MemoryDesc()
    pixels = prod(dst.dims[2:])
    if operation.parameters.get("algorithm") == "linear" and pixels > _MOST_PIXELS:
        yield f"linear resampling to {pixels} pixels, for which it would fill {pixels >> 25} GiB with tables"


def _of_layer_normalization(operation: Operation) -> Iterator[str]:
    src = operation.descs.get("src") or MemoryDesc()
    if src.dims and src.dims[-1] > _MOST_NORMALIZED:
        yield f"layer_normalization over {src.dims[-1]} elements, for which it would unroll its code"


_LIMITS: Final[Mapping[str, Callable[[Operation], Iterator[str]]]] = {
    "inner_product": _of_inner_product,
    "resampling": _of_resampling,
    "layer_normalization": _of_layer_normalization,
}
"""Limits of every release."""
_OLD_LIMITS: Final[Mapping[str, Callable[[Operation], Iterator[str]]]] = {
    "convolution": _of_convolution,
    "deconvolution": _of_convolution,
    **dict.fromkeys(RECURRENT, _of_recurrent),
}
"""Limits of releases before 3.13."""


_AMX = 0xE00
"""Bits of the word of instruction sets: tiles, and their products of s8 and bf16."""
_AVX2, _VNNI_OR_AVX512 = 0x4, 0x28
"""Bits of that word: AVX2; AVX2 with VNNI, and AVX-512."""
_SOUND = (3, 3)
"""Releases before this one have none of the defects that came after 3.2."""
_MENDED = (3, 13)
"""The release that is known not to have the defects of 3.2 that are named so."""

_NARROW = (3, 8)
"""The release that has types of 8 and 4 bits that are floats."""


def defect_of(version: tuple[int, int, int], operation: Operation, isa: int = 0) -> str | None:
    """What of the operation this release gets wrong, as the end of `oneDNN has no ...`; None for nothing known.

    `isa` is the word of the instruction sets that it uses, of the type `dnnl_cpu_isa_t`.
    """
    if operation.kind == "reorder" and version >= _NARROW and (defect := _defect_of_reorder(operation, isa)):
        return defect
    is_avx2 = isa & _AVX2 and not isa & _VNNI_OR_AVX512
    if is_avx2 and operation.kind == "inner_product" and version >= _SOUND and _multiplies_integer_pixels(operation):
        return "right inner product of integers in channels last on AVX2"
    for desc in operation.descs.values():
        if desc.data_type is _F64 and operation.kind != "reorder":
            return "computation in f64 on a processor"
    if operation.kind not in _DEFECTIVE and operation.attributes is PLAIN:
        return None
    return next(_defects(version, operation), None)


def _defects(version: tuple[int, int, int], operation: Operation) -> Iterator[str]:
    trains = operation.prop_kind != "forward_inference"
    if operation.kind == "lrn" and trains and operation.parameters.get("local_size") in (1, 2):
        yield f"safe gradient of LRN with a local_size of {operation.parameters['local_size']}"
    if operation.kind == "prelu" and any(0 in desc.dims for desc in operation.descs.values()):
        yield "safe PReLU of tensors without elements"
    if operation.kind in _WITH_GAPS and trains and any(map(has_gaps, operation.descs.values())):
        yield f"safe gradient of {operation.kind} of a view with gaps"
    if operation.kind == "layer_normalization" and any(map(has_gaps, operation.descs.values())):
        yield "right layer_normalization of a view with gaps"
    if operation.kind in _ONE_FORMAT and _formats(operation) > 1:
        yield f"right {operation.kind} between different formats"
    if operation.kind == "binary" and any(map(_in_small_blocks, operation.descs.values())):
        yield "safe binary of halves in blocks of less than 8"
    is_alone = operation.kind == "eltwise" and not operation.attributes.post_ops
    if operation.kind in _FIVE_AXES and not is_alone and _most_axes(operation) > 5:
        yield f"right {operation.kind} of more than five axes"
    if operation.attributes is not PLAIN:
        yield from _of_attributes(operation)
        yield from _of_post_ops(version, operation)
    if version >= _SOUND:
        yield from _later(operation)


def _of_attributes(operation: Operation) -> Iterator[str]:
    """Attributes that are accepted, and are not what they say."""
    attributes = operation.attributes
    if operation.kind in _SCALES_AFTER and "src" in attributes.scales:
        yield f"scales of src that {operation.kind} takes before it computes"
    if operation.kind == "concat" and "dst" in attributes.scales:
        yield "concat with scales of dst"
    if operation.kind not in WEIGHTED and any(isinstance(post_op, PReLUPostOp) for post_op in attributes.post_ops):
        yield f"{operation.kind} with a post-operation PReLU"


def _of_post_ops(version: tuple[int, int, int], operation: Operation) -> Iterator[str]:
    """Post-operations that are done to other elements, or not at all."""
    kind, dst = operation.kind, operation.descs.get("dst", MemoryDesc())
    for post_op in operation.attributes.post_ops:
        if isinstance(post_op, SumPostOp) and kind in ("eltwise", "pooling"):
            yield f"{kind} with a post-operation sum"
        if not isinstance(post_op, BinaryPostOp):
            continue
        dims = post_op.src_1.dims
        if kind == "pooling" and dims == dst.dims:
            yield "right pooling with a binary post-operation for each element"
        if kind == "resampling" and version < _MENDED and any(n > 1 for n in (*dims[:1], *dims[2:])):
            yield "right resampling with a binary post-operation along other axes than channels"
        if kind in ("binary", "softmax") and dims != dst.dims and dims[-1] > 1 and not _is_row_major(dst):
            yield f"right {kind} in this format with a binary post-operation along the last axis"


def _defect_of_reorder(operation: Operation, isa: int) -> str | None:
    src, dst = (operation.descs.get(name, MemoryDesc()) for name in ("src", "dst"))
    if isa & _AMX and src.data_type == dst.data_type == _F8:
        return "reorder of f8_e5m2 with AMX"
    if src.data_type in _TAKEN_AS_THEY_ARE and dst.data_type in _NAMELESS and dst.layout in (src.layout, kinds.Any()):
        return f"right reorder from {src.data_type} to {dst.data_type} of the same layout"
    return None


def _multiplies_integer_pixels(operation: Operation) -> bool:
    """Whether the source is of integers, has several channels and pixels, and is not row-major."""
    src = operation.descs.get("src", MemoryDesc())
    if src.data_type not in _INTEGERS or src.ndims < 3 or src.dims[1] == 1 or set(src.dims[2:]) == {1}:
        return False
    return not _is_row_major(src)


def _is_row_major(desc: MemoryDesc) -> bool:
    return isinstance(desc.layout, Layout) and desc.layout.is_contiguous


def _in_small_blocks(desc: MemoryDesc) -> bool:
    """Whether elements of two bytes lie in innermost blocks of less than 16 bytes."""
    if desc.kind != "blocked" or desc.data_type not in _HALVES:
        return False
    return any(size < 8 for _, size in desc.inner_blocks[-1:])


def _most_axes(operation: Operation) -> int:
    return max((desc.ndims for desc in operation.descs.values()), default=0)


def _formats(operation: Operation) -> int:
    """How many different layouts the tensors of src's dims were given, statistics and scales apart."""
    found = [operation.descs[name] for name in ("src", "dst", "diff_src", "diff_dst") if name in operation.descs]
    if len({desc.dims for desc in found}) > 1:
        return 0  # refused by the check of dims
    return len({desc.layout for desc in found if isinstance(desc.layout, Layout)})


_WITH_GAPS = ("batch_normalization", "pooling", "prelu")
_ONE_FORMAT = ("layer_normalization", "softmax")
_SCALES_AFTER = _ONE_FORMAT
_FIVE_AXES = ("batch_normalization", "eltwise", "lrn")
_DEFECTIVE = (*_WITH_GAPS, *_ONE_FORMAT, "lrn", "resampling", "inner_product", "matmul", "binary")
_INTEGERS = (DATA_TYPES["u8"], DATA_TYPES["s8"])
_F8 = DATA_TYPES["f8_e5m2"]
_TAKEN_AS_THEY_ARE = tuple(DATA_TYPES[name] for name in ("bf16", "f16", "s32", "s8", "u8"))
_NAMELESS = tuple(DATA_TYPES[name] for name in ("s4", "u4", "f4_e2m1", "e8m0", "s64"))
_HALVES = (DATA_TYPES["bf16"], DATA_TYPES["f16"])
_F64 = DATA_TYPES["f64"]


def has_gaps(desc: MemoryDesc) -> bool:
    """Whether there is memory between elements that belongs to none, padding apart.

    >>> has_gaps(MemoryDesc((4, 6), "f32", strides=(8, 1))), has_gaps(MemoryDesc((4, 6), "f32", "aB4b"))
    (True, False)
    """
    if not isinstance(desc.layout, Layout) or 0 in desc.dims:
        return False
    low, high = desc.layout.span
    return high - low > desc.layout.size


def _later(operation: Operation) -> Iterator[str]:
    """Defects that came after 3.2."""
    if operation.kind == "prelu" and operation.prop_kind != "forward_inference":
        weights = operation.descs.get("weights", MemoryDesc()).dims
        if any(n > 1 for n in (*weights[:1], *weights[2:])):
            yield "right gradient of PReLU whose weights differ along other axes than channels"
    if operation.kind == "resampling":
        small = operation.descs.get("src", operation.descs.get("diff_src"))
        if small is not None and 1 in small.dims[2:]:
            yield "safe resampling of an axis of one element"
    outputs = operation.descs.get("dst", MemoryDesc()).dims[1:]
    if operation.kind == "inner_product" and operation.direction == "forward" and outputs == (1,):
        yield "right inner product of one output"
    if operation.kind == "matmul":
        left, right = (operation.descs.get(name, MemoryDesc()) for name in ("src", "weights"))
        if _interleaves(left, -1, -2) or _interleaves(right, -1, -2) or _interleaves(right, -2, -1):
            yield "right matmul of matrices between whose rows and columns another axis lies"


def _interleaves(desc: MemoryDesc, outer: int, inner: int) -> bool:
    """Whether, behind a batch axis of one element, another batch axis lies in memory between these two axes."""
    if desc.ndims < 4 or desc.dims[0] != 1 or not isinstance(desc.layout, Layout) or desc.inner_blocks:
        return False
    strides = desc.strides
    batch = zip(desc.dims[1:-2], strides[1:-2], strict=True)
    return any(n > 1 and strides[inner] < stride < strides[outer] for n, stride in batch)
