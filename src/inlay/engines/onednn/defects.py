"""Operations that are not passed to a loaded oneDNN, because it lacks them, computes them wrongly, or crashes.

`find_unsupported` checks an operation before the library is called. The reference engine computes what the library
does not support:

    3.2 lacks group normalization
    3.2 lacks binary select (three sources)
    3.2 lacks scales and zero points in groups, scales other than f32, zero points other than s32
    3.2 lacks scales and shifts of layer normalization other than f32
    3.2 lacks root mean square normalization (flag rms_norm)
    3.2 lacks f8, f4, e8m0, s4, u4, s64
    sparse operands other than those below               `find_unsupported_sparse`
    operations that a release computes wrongly           `find_defect`
    operations that are too large for a release          `limits.find_exceeded_limit`
    recurrent networks that a release computes wrongly   `arguments.find_recurrent_defect`

The reference engine also computes operations to which the library returns `unimplemented`: other algorithms and
combinations of types, digit orders. `Capabilities` is not a table of versions: functions and types are looked up in the
library, so a build without some of them is treated correctly.

**Sparse products.** These are computed correctly; for other kernels a sparse operand is read as a dense matrix:

    3.2      matmul   CSR                f32
    3.13     matmul   CSR, COO           f32; f16 if src is sparse
                      packed weights     s8, with AMX

Positions are s32, the rows of the dense operand and of the result are contiguous, and there is neither a bias nor an
attribute. 3.2 also accepts inner products and integer matmul with sparse operands, 3.13 inner products, and both read
the values as a dense matrix, past their end. With sparse f16 weights each partial sum is rounded to f16, which the
reference engine does not do.

**Defects.** The library accepts these operations and computes them wrongly or ends the process. All were found by
comparing random problems with the reference engine (tests/support/primitive_cases.py). An operation is refused for all
releases unless its row names some: a crash of the process costs more than a slow rare case.

    LRN in training, local_size 1 or 2           reads past the end of channels-last memory and ends the process
    LRN across channels in training, channels    gradients are wrong for many numbers of channels
      last, f16 or bf16 or local_size above 6
    batch normalization in training, of a view   the workspace of a fused relu has one byte for each element, but is
      with gaps                                  written at the offsets of the elements, past its end
    pooling and PReLU in training, of a view     the kernel for arbitrary formats writes past its scratchpad, or writes
      with gaps                                  nothing
    PReLU of tensors without elements            divides by the number of elements and ends the process
    PReLU of padded blocks, weights for each     before 3.13: some elements are zero
      element
    PReLU in training, weights that differ       after 3.2: gradients are zero
      along other axes than channels
    resampling of an axis of one element         after 3.2: reads and writes past the ends of source and destination
    inner product with one output                after 3.2: wrong sums
    matmul whose first batch axis has one        after 3.2: reads matrices from wrong addresses if another batch axis
      element, and another has several             is between rows and columns of src or weights in memory
    layer normalization of a view with gaps      assumes that the distance of rows is constant

    layer normalization between formats, and     assumes that all tensors have the layout of one of them: wrong
      softmax backward                             numbers, writes past the end
    binary of halves in blocks of less than 8    writes past the end of the destination
    f64 outside reorders                         reads another type, or creates no primitive: only engines of graphics
                                                   processors support it
    scales of src of softmax and layer           multiplies the result by them
      normalization
    scales of dst of concat                      ignores them
    deconvolution of s8 or u8, with a stride     elements without a tap are wrong
      above the kernel
    convolution of bf16 in training, with a      does not write the gradients of some of these taps
      tap that meets padding only
    PReLU as post-operation of kinds without     creates the primitive, and fails when it is executed
      weights
    more than five axes: batch normalization,    uses only five of them: wrong numbers
      LRN, eltwise with post-operations
    sum as post-operation of eltwise, pooling    is ignored (seen in 3.2, refused for all releases)
    binary as post-operation of pooling, with    reads the operand in another format, past its end
      an operand for each element
    binary as post-operation of resampling,      before 3.13: reads the operand as if it had one element per channel
      along other axes than channels
    binary as post-operation of binary and       reads other elements of the operand
      softmax in columns or channels last,
      along the last axis

    inner product of u8 or s8 images with        3.13, with AVX2 and neither VNNI nor AVX-512: multiplies channels-last
      spatial axes                                 sources, which it chooses for `any`, by other weights
    convolution of one channel of u8 or s8,      after 3.2: writes elements in the order of channels last
      result with several channels that are
      not innermost
    deconvolution of s8, or with zero points     after 3.2, with AVX-512 or VNNI: reads sums of weights that it did not
      of src, with a stride above 1                compute in some rows, so results change from call to call

    reorder with zero points, where elements     ignores them for many dims, with scales too (seen in 3.2, refused for
      that are neighbors in src are not in dst,    all releases)
      unless these come in runs of 8
    reorder of bf16, f16, s32, s8, u8 to s4,     3.13: does not convert the elements, or does not write them
      u4, f4_e2m1, e8m0, s64, same layout
    reorder of f8_e5m2 to itself, with AMX       3.13: nChw8c fails in code generation, and so does every later creation
                                                   on that thread (see `library`)

Source: oneDNN, `ref_sparse_matmul_t`, `jit_uni_sparse_matmul_t`, `brgemm_matmul_t` for sparse products.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, prod

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc, kinds
from inlay.engines.onednn.library import Library
from inlay.engines.onednn.limits import find_exceeded_limit
from inlay.layout import Layout
from inlay.onednn_abi import CREATORS, creator_name
from inlay.primitives.attributes import PLAIN, BinaryPostOp, PReLUPostOp, PrimitiveAttributes, SumPostOp
from inlay.primitives.engine import Operation
from inlay.primitives.rules import WEIGHTED

_RMS_SINCE = (3, 9)
"""The release that has root mean square normalization."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Functions, types and settings of one loaded library."""

    version: tuple[int, int, int]
    """Version of the library: major, minor, patch."""
    runtime: str
    """Threading runtime: sequential, omp, tbb, threadpool or sycl."""
    isa: int
    """Instruction sets that the library uses on this processor, as a `dnnl_cpu_isa_t`."""
    data_types: frozenset[str]
    """Names of the data types that its descriptors can have."""
    creators: frozenset[tuple[str, str, str]]
    """Rows of `CREATORS` whose create functions it has."""
    grouped_values: bool
    """True if scales and zero points can be in groups and have several data types."""

    @property
    def is_asynchronous(self) -> bool:
        """True if a call only starts an execution, so that the engine must wait for it."""
        return self.runtime in ("sycl", "threadpool")


def detect_capabilities(library: Library, data_types: frozenset[str]) -> Capabilities:
    """Look up the capabilities of `library`; `data_types` are those of its descriptors."""
    functions = library.functions
    rows = {row for row in CREATORS if creator_name(*row).removeprefix("dnnl_") in functions}
    return Capabilities(
        library.version,
        library.runtime,
        functions["get_effective_cpu_isa"]() if "get_effective_cpu_isa" in functions else 0,
        data_types,
        frozenset(rows),
        "primitive_attr_set_scales" in functions and "primitive_attr_set_zero_points" in functions,
    )


def creator_row(operation: Operation) -> tuple[str, str, str]:
    """Return the row of `CREATORS` that creates an operation."""
    kind, direction = operation.kind, operation.direction
    if kind == "binary":
        return kind, "", "v2" if "src_2" in operation.descs else ""
    if kind == "layer_normalization":
        return kind, direction, "v2" if _has_other_scales(operation) else ""
    return kind, "" if kind in _FORWARD_ONLY else direction, ""


_FORWARD_ONLY = frozenset(kind for kind, direction, _ in CREATORS if not direction)


def _has_other_scales(operation: Operation) -> bool:
    """Return whether a scale or shift is not f32."""
    descs = [operation.descs.get(name) for name in ("scale", "shift", "diff_scale", "diff_shift")]
    return any(desc is not None and desc.data_type != DATA_TYPES["f32"] for desc in descs)


def find_unsupported(known: Capabilities, operation: Operation) -> str | None:
    """Return why the library does not support an operation, as the end of `oneDNN has no ...`.

    The result is None if no reason is known; the library may still refuse the operation.
    """
    kind = operation.kind
    if kind not in _WITHOUT_ROW and creator_row(operation) not in known.creators:
        return _LATER_FEATURES.get(kind, kind)
    if sparse := find_unsupported_sparse(operation):
        return sparse
    if defect := find_defect(known.version, operation, known.isa) or find_exceeded_limit(known.version, operation):
        return defect
    if kind in _WITH_RMS and known.version < _RMS_SINCE:
        flags = operation.parameters.get("flags")
        if isinstance(flags, frozenset) and "rms_norm" in flags:
            return "root mean square normalization"
    attributes = operation.attributes
    if attributes.fpmath_integers:
        return f"{kind} of integer weights in floating-point arithmetic"
    if attributes is PLAIN or known.grouped_values:
        return None
    return next(_find_unsupported_values(attributes), None)


_WITHOUT_ROW = frozenset(("reorder", "concat", "sum"))
"""Kinds whose create functions have no row in `CREATORS`; every release has them."""
_WITH_RMS = frozenset(("layer_normalization", "batch_normalization"))
_LATER_FEATURES = {
    "group_normalization": "group normalization",
    "binary": "binary algorithm select",
    "layer_normalization": "scales and shifts of layer normalization that are not f32",
}


def _find_unsupported_values(attributes: PrimitiveAttributes) -> Iterator[str]:
    """Iterate over scales and zero points that 3.2 does not support."""
    for noun, entries, plain in (
        ("scales", attributes.scales, "f32"),
        ("zero points", attributes.zero_points, "s32"),
    ):
        for name, entry in entries.items():
            if entry.groups:
                yield f"{noun} of {name} in groups"
            if entry.data_type != plain:
                yield f"{noun} of {name} of type {entry.data_type}"


_POSITIONS = (None, DATA_TYPES["s32"])


def find_unsupported_sparse(operation: Operation) -> str | None:
    """Return why the library does not support a sparse argument, as the end of `oneDNN has no ...`; None if it does."""
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
    return _find_unsupported_positions(sparse, operation)


def _find_unsupported_positions(sparse: str, operation: Operation) -> str | None:
    """Return why matmul does not support the CSR or COO argument `sparse`; None if it does."""
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


_MOST_TAPS = 2**12
"""Number of taps on an axis that are checked."""
_AMX = 0xE00
"""Bits of `dnnl_cpu_isa_t`: tiles, and their products of s8 and bf16."""
_AVX2, _VNNI_OR_AVX512 = 0x4, 0x28
"""Bits of `dnnl_cpu_isa_t`: AVX2; AVX2 with VNNI, and AVX-512."""
_AFTER_3_2 = (3, 3)
"""The first release that is assumed to have the defects marked `after 3.2`."""
_FIXED = (3, 13)
"""The first release that is known not to have the defects marked `before 3.13`."""

_SMALL_FLOATS_SINCE = (3, 8)
"""The release that has floating-point types of 8 and 4 bits."""


def find_defect(version: tuple[int, int, int], operation: Operation, isa: int = 0) -> str | None:
    """Return a defect of this release for an operation, as the end of `oneDNN has no ...`; None if none is known.

    `isa` are the instruction sets that the library uses, as a `dnnl_cpu_isa_t`.
    """
    if (
        operation.kind == "reorder"
        and version >= _SMALL_FLOATS_SINCE
        and (defect := _find_reorder_defect(operation, isa))
    ):
        return defect
    if operation.kind == "reorder" and operation.attributes.zero_points and _separates_elements(operation):
        return "correct reorder with zero points that separates elements"
    is_avx2 = isa & _AVX2 and not isa & _VNNI_OR_AVX512
    if (
        is_avx2
        and operation.kind == "inner_product"
        and version >= _AFTER_3_2
        and _multiplies_integer_pixels(operation)
    ):
        return "correct inner product of integers in channels last on AVX2"
    if (
        isa & _VNNI_OR_AVX512
        and operation.kind == "deconvolution"
        and version >= _AFTER_3_2
        and _strides_with_compensation(operation)
    ):
        return "correct deconvolution of s8 or with zero points of src, with a stride above 1"
    for desc in operation.descs.values():
        if desc.data_type is _F64 and operation.kind != "reorder":
            return "computation in f64 on a processor"
    if operation.kind not in _DEFECTIVE and operation.attributes is PLAIN:
        return None
    return next(_find_defects(version, operation), None)


def _find_defects(version: tuple[int, int, int], operation: Operation) -> Iterator[str]:
    """Yield what this release lacks for an operation other than a reorder, as the ends of `oneDNN has no ...`."""
    trains = operation.prop_kind != "forward_inference"
    if operation.kind == "lrn" and trains and operation.parameters.get("local_size") in (1, 2):
        yield f"safe gradient of LRN with a local_size of {operation.parameters['local_size']}"
    if operation.kind == "lrn" and trains and _is_inexact_lrn(operation):
        yield "correct gradient of LRN across channels for this type or local_size in channels last"
    if operation.kind == "prelu" and any(0 in desc.dims for desc in operation.descs.values()):
        yield "safe PReLU of tensors without elements"
    if operation.kind == "prelu" and version < _FIXED and _multiplies_padded_elements(operation):
        yield "correct PReLU of padded blocks with weights for each element"
    if operation.kind == "deconvolution" and _skips_integer_elements(operation):
        yield "correct deconvolution of integers with a stride above the kernel"
    if operation.kind == "convolution" and trains and _has_unused_bf16_tap(operation):
        yield "correct gradient of convolution of bf16 with a tap that meets padding only"
    if operation.kind in _WITH_GAPS and trains and any(map(has_gaps, operation.descs.values())):
        yield f"safe gradient of {operation.kind} of a view with gaps"
    if operation.kind == "layer_normalization" and any(map(has_gaps, operation.descs.values())):
        yield "correct layer_normalization of a view with gaps"
    if operation.kind in _SAME_LAYOUT and _count_layouts(operation) > 1:
        yield f"correct {operation.kind} between different formats"
    if operation.kind == "binary" and any(map(_in_small_blocks, operation.descs.values())):
        yield "safe binary of halves in blocks of less than 8"
    is_alone = operation.kind == "eltwise" and not operation.attributes.post_ops
    if operation.kind in _FIVE_AXES and not is_alone and _max_ndims(operation) > 5:
        yield f"correct {operation.kind} of more than five axes"
    if operation.attributes is not PLAIN:
        yield from _find_attribute_defects(operation)
        yield from _find_post_op_defects(version, operation)
    if version >= _AFTER_3_2:
        yield from _find_defects_after_3_2(operation)


def _is_inexact_lrn(operation: Operation) -> bool:
    """Return whether LRN sums over channels that are innermost in memory, of f16 or bf16 or of more than 6 channels."""
    parameters, src = operation.parameters, operation.descs.get("src", MemoryDesc())
    if parameters.get("algorithm") != "across_channels" or src.ndims < 3 or _is_row_major(src):
        return False
    size = parameters.get("local_size")
    return src.kind == "blocked" and not src.inner_blocks and (src.data_type in _HALVES or size not in range(3, 7))


def _multiplies_padded_elements(operation: Operation) -> bool:
    """Return whether PReLU has padded blocks, and weights that differ for each element."""
    src, weights = operation.descs.get("src", MemoryDesc()), operation.descs.get("weights", MemoryDesc())
    return src.dims == weights.dims and src.padded_dims != src.dims


def _skips_integer_elements(operation: Operation) -> bool:
    """Return whether a deconvolution of integers has a stride above the extent of its kernel on an axis."""
    src, weights = operation.descs.get("src", MemoryDesc()), operation.descs.get("weights", MemoryDesc())
    (strides,) = _window(operation, "strides")
    kernel = weights.dims[-len(strides) :] if strides else ()
    return src.data_type in _INTEGERS and any(step > k for step, k in zip(strides, kernel, strict=False))


def _strides_with_compensation(operation: Operation) -> bool:
    """Return whether a deconvolution has a stride above 1 and a source that requires sums of the weights."""
    (strides,) = _window(operation, "strides")
    src = operation.descs.get("src", MemoryDesc())
    is_compensated = src.data_type == DATA_TYPES["s8"] or "src" in operation.attributes.zero_points
    return is_compensated and src.data_type in _INTEGERS and any(step > 1 for step in strides)


def _has_unused_bf16_tap(operation: Operation) -> bool:
    """Return whether a tap of a convolution of bf16 is in the padding of every window."""
    descs = {name.removeprefix("diff_"): desc for name, desc in operation.descs.items()}
    src, dst, weights = (descs.get(name, MemoryDesc()) for name in ("src", "dst", "weights"))
    if src.data_type != _HALVES[0]:
        return False
    window = _window(operation, "strides", "dilations", "padding_l")
    axes = zip(src.dims[2:], dst.dims[2:], weights.dims[2 - src.ndims :], *window, strict=False)
    return any(
        max(0, -((tap * (gap + 1) - left) // step)) > min(outputs - 1, (n - 1 + left - tap * (gap + 1)) // step)
        for n, outputs, taps, step, gap, left in axes
        for tap in range(min(taps, _MOST_TAPS))
        if step > 0
    )


def _window(operation: Operation, *names: str) -> list[tuple[int, ...]]:
    """Return parameters of a window; an empty tuple for one that is no tuple of integers, which is refused later."""
    values = [operation.parameters.get(name) for name in names]
    return [v if isinstance(v, tuple) and all(type(n) is int for n in v) else () for v in values]  # type: ignore[misc]


def _find_attribute_defects(operation: Operation) -> Iterator[str]:
    """Iterate over scales and PReLU post-operations that the library accepts and computes wrongly."""
    attributes = operation.attributes
    if operation.kind in _SCALES_AFTER and "src" in attributes.scales:
        yield f"scales of src that {operation.kind} takes before it computes"
    if operation.kind == "concat" and "dst" in attributes.scales:
        yield "concat with scales of dst"
    if operation.kind not in WEIGHTED and any(isinstance(post_op, PReLUPostOp) for post_op in attributes.post_ops):
        yield f"{operation.kind} with a post-operation PReLU"


def _find_post_op_defects(version: tuple[int, int, int], operation: Operation) -> Iterator[str]:
    """Iterate over sum and binary post-operations that the library ignores, or applies with wrong operands."""
    kind, dst = operation.kind, operation.descs.get("dst", MemoryDesc())
    for post_op in operation.attributes.post_ops:
        if isinstance(post_op, SumPostOp) and kind in ("eltwise", "pooling"):
            yield f"{kind} with a post-operation sum"
        if not isinstance(post_op, BinaryPostOp):
            continue
        dims = post_op.src_1.dims
        if kind == "pooling" and dims == dst.dims:
            yield "correct pooling with a binary post-operation for each element"
        if kind == "resampling" and version < _FIXED and any(n > 1 for n in (*dims[:1], *dims[2:])):
            yield "correct resampling with a binary post-operation along other axes than channels"
        if kind in ("binary", "softmax") and dims != dst.dims and dims[-1] > 1 and not _is_row_major(dst):
            yield f"correct {kind} in this format with a binary post-operation along the last axis"


def _find_reorder_defect(operation: Operation, isa: int) -> str | None:
    """Return a defect of 3.13 for a reorder; None if there is none."""
    src, dst = (operation.descs.get(name, MemoryDesc()) for name in ("src", "dst"))
    if isa & _AMX and src.data_type == dst.data_type == _F8:
        return "reorder of f8_e5m2 with AMX"
    if (
        src.data_type in _COPIED_TYPES
        and dst.data_type in _UNCONVERTED_TYPES
        and dst.layout in (src.layout, kinds.Any())
    ):
        return f"correct reorder from {src.data_type} to {dst.data_type} of the same layout"
    return None


def _separates_elements(operation: Operation) -> bool:
    """Return whether a reorder moves elements in runs whose length is no multiple of 8.

    The elements of a run are neighbors in source and destination. One run of all elements may have any length.
    """
    src, dst = (operation.descs.get(name, MemoryDesc()) for name in ("src", "dst"))
    if src.layout == dst.layout and not has_gaps(src):
        return False
    run = _common_run(src, dst)
    return run % _RUN != 0 and run != prod(n for n in src.dims if n > 1)


_RUN = 8
"""Elements that the generated code of a reorder converts at a time."""


def _common_run(src: MemoryDesc, dst: MemoryDesc) -> int:
    """Return the length of the runs of elements that are neighbors in both descriptors; 1 if one is not known."""
    inner = _innermost_axis(src)
    if inner is None or inner != _innermost_axis(dst):
        return 1
    if src.inner_blocks or dst.inner_blocks:
        return gcd(*(desc.inner_blocks[-1][1] if desc.inner_blocks else desc.dims[inner] for desc in (src, dst)))
    run = 1
    for axis in sorted((axis for axis, n in enumerate(src.dims) if n > 1), key=lambda axis: src.strides[axis]):
        if not src.strides[axis] == dst.strides[axis] == run:
            break
        run *= src.dims[axis]
    return run


def _innermost_axis(desc: MemoryDesc) -> int | None:
    """Return the axis of elements that are neighbors in memory; None if the descriptor does not say."""
    if desc.kind != "blocked":
        return None
    if desc.inner_blocks:
        return desc.inner_blocks[-1][0]
    longer = [axis for axis, n in enumerate(desc.dims) if n > 1]
    return min(longer, key=lambda axis: (desc.strides[axis], -axis), default=desc.ndims - 1)


def _multiplies_integer_pixels(operation: Operation) -> bool:
    """Return whether the source has integers, several channels and pixels, and is not row-major."""
    src = operation.descs.get("src", MemoryDesc())
    if src.data_type not in _INTEGERS or src.ndims < 3 or src.dims[1] == 1 or set(src.dims[2:]) == {1}:
        return False
    return not _is_row_major(src)


def _is_row_major(desc: MemoryDesc) -> bool:
    """Return whether the elements are contiguous in row-major order."""
    return isinstance(desc.layout, Layout) and desc.layout.is_contiguous


def _in_small_blocks(desc: MemoryDesc) -> bool:
    """Return whether elements of two bytes have innermost blocks of less than 16 bytes."""
    if desc.kind != "blocked" or desc.data_type not in _HALVES:
        return False
    return any(size < 8 for _, size in desc.inner_blocks[-1:])


def _max_ndims(operation: Operation) -> int:
    """Return the largest number of axes of the arguments."""
    return max((desc.ndims for desc in operation.descs.values()), default=0)


def _count_layouts(operation: Operation) -> int:
    """Return the number of different layouts of src, dst and their gradients; 0 if their dims differ."""
    descs = [operation.descs[name] for name in ("src", "dst", "diff_src", "diff_dst") if name in operation.descs]
    if len({desc.dims for desc in descs}) > 1:
        return 0  # the check of dims refuses the operation
    return len({desc.layout for desc in descs if isinstance(desc.layout, Layout)})


_WITH_GAPS = ("batch_normalization", "pooling", "prelu")
_SAME_LAYOUT = ("layer_normalization", "softmax")
_SCALES_AFTER = _SAME_LAYOUT
_FIVE_AXES = ("batch_normalization", "eltwise", "lrn")
_DEFECTIVE = (
    *(*_WITH_GAPS, *_SAME_LAYOUT, "lrn", "resampling", "inner_product", "matmul", "binary"),
    *("convolution", "deconvolution"),
)
_INTEGERS = (DATA_TYPES["u8"], DATA_TYPES["s8"])
_F8 = DATA_TYPES["f8_e5m2"]
_COPIED_TYPES = tuple(DATA_TYPES[name] for name in ("bf16", "f16", "s32", "s8", "u8"))
_UNCONVERTED_TYPES = tuple(DATA_TYPES[name] for name in ("s4", "u4", "f4_e2m1", "e8m0", "s64"))
_HALVES = (DATA_TYPES["bf16"], DATA_TYPES["f16"])
_F64 = DATA_TYPES["f64"]


def has_gaps(desc: MemoryDesc) -> bool:
    """Return whether there is unused memory between the elements, except padding.

    >>> has_gaps(MemoryDesc((4, 6), "f32", strides=(8, 1))), has_gaps(MemoryDesc((4, 6), "f32", "aB4b"))
    (True, False)
    """
    if not isinstance(desc.layout, Layout) or 0 in desc.dims:
        return False
    low, high = desc.layout.span
    return high - low > desc.layout.size


def _find_defects_after_3_2(operation: Operation) -> Iterator[str]:
    """Iterate over the defects that releases after 3.2 have."""
    if operation.kind == "prelu" and operation.prop_kind != "forward_inference":
        weights = operation.descs.get("weights", MemoryDesc()).dims
        if any(n > 1 for n in (*weights[:1], *weights[2:])):
            yield "correct gradient of PReLU whose weights differ along other axes than channels"
    if operation.kind == "resampling":
        small = operation.descs.get("src", operation.descs.get("diff_src"))
        if small is not None and 1 in small.dims[2:]:
            yield "safe resampling of an axis of one element"
    outputs = operation.descs.get("dst", MemoryDesc()).dims[1:]
    if operation.kind == "inner_product" and operation.direction == "forward" and outputs == (1,):
        yield "correct inner product of one output"
    if operation.kind == "convolution" and _writes_integer_planes(operation):
        yield "correct convolution of one channel of integers whose result has channels that are not innermost"
    if operation.kind == "matmul":
        left, right = (operation.descs.get(name, MemoryDesc()) for name in ("src", "weights"))
        if _interleaves(left, -1, -2) or _interleaves(right, -1, -2) or _interleaves(right, -2, -1):
            yield "correct matmul of matrices with another axis between their rows and columns in memory"


def _writes_integer_planes(operation: Operation) -> bool:
    """Return whether a convolution of one channel of integers writes several channels that are not innermost."""
    src, dst = (operation.descs.get(name, MemoryDesc()) for name in ("src", "dst"))
    if src.data_type not in _INTEGERS or src.dims[1:2] != (1,) or dst.kind != "blocked" or dst.inner_blocks:
        return False
    return dst.ndims > 1 and dst.dims[1] > 1 and _innermost_axis(dst) != 1


def _interleaves(desc: MemoryDesc, outer: int, inner: int) -> bool:
    """Return whether the first batch axis has one element and another one is between two axes in memory.

    `outer` and `inner` are the two axes. Only blocked formats without inner blocks are checked.
    """
    if desc.ndims < 4 or desc.dims[0] != 1 or not isinstance(desc.layout, Layout) or desc.inner_blocks:
        return False
    strides = desc.strides
    batch = zip(desc.dims[1:-2], strides[1:-2], strict=True)
    return any(n > 1 and strides[inner] < stride < strides[outer] for n, stride in batch)
