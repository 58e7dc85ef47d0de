"""Lowering rules of operators that move elements but do not change them: views, concatenation, split, shuffle and Cast.

Each view has one transform. So if a format does not allow one of them, the views before it can still share memory with
their source. The sequence `Reshape`, `Transpose`, `Reshape` that swaps two factors of an axis becomes the primitive
shuffle. The two views before it are dropped if they have no other consumers.
"""

from collections.abc import Callable, Mapping
from math import prod

from inlay.data_type import as_data_type
from inlay.graph.lowering.context import DESCRIBABLE, F32, LoweringContext, Operand, require
from inlay.graph.op_graph import Op, PermuteView, ReshapeView
from inlay.layout import Dims


def reshape(context: LoweringContext) -> Operand:
    """Lower an operator that changes dims only; shape inference has computed them."""
    src, dims = context.view_source(0), context.output().dims
    return _match_shuffle(context, src, dims) or context.reshape(src, dims)


def _match_shuffle(context: LoweringContext, src: str, dims: Dims) -> str | None:
    """Emit a shuffle if this reshape and the two views before it are one; return None otherwise."""
    second = _single_view(context, src)
    first = None if second is None else _single_view(context, second.reads["src"])
    if second is None or first is None:
        return None
    permute, split, image = second.transforms[0], first.transforms[0], first.reads["src"]
    if not isinstance(permute, PermuteView) or not isinstance(split, ReshapeView):
        return None
    axis = next((i for i, axis in enumerate(permute.perm) if i != axis), 0)
    swap = (*range(axis), axis + 1, axis, *range(axis + 2, len(split.dims)))
    rows = (*split.dims[:axis], prod(split.dims[axis : axis + 2]), *split.dims[axis + 2 :])
    if permute.perm != swap or not dims == context.dims(image) == rows or not _is_shuffle_fast(dims, axis):
        return None
    return context.emit("shuffle", {"src": image}, dims, axis=axis, group_size=split.dims[axis + 1])


_MOST_BLOCKED = 16
"""Channels in the widest block of images."""


def _is_shuffle_fast(dims: Dims, axis: int) -> bool:
    """Return whether oneDNN has generated code for a shuffle: along channels in full blocks, of images.

    Otherwise one reorder between two views is faster than oneDNN's reference code.
    """
    return axis == 1 and 3 <= len(dims) <= 5 and dims[1] % _MOST_BLOCKED == 0


def _single_view(context: LoweringContext, name: str) -> Op | None:
    """Return the operation that writes a float32 tensor, if it is a view with one transform."""
    writer = context.writer(name)
    return writer if writer and len(writer.transforms) == 1 and context.dtype(name) == F32 else None


def transpose(context: LoweringContext) -> Operand:
    """Lower `Transpose`; the order of axes is reversed if the node states none.

    If only axes of length 1 change places, elements keep their order, and it is a reshape.
    """
    src = context.view_source(0)
    dims = context.dims(src)
    perm = tuple(context.attribute("perm") or reversed(range(len(dims))))
    longer = [axis for axis in perm if dims[axis] > 1]
    if longer == sorted(longer):
        return context.reshape(src, tuple(dims[axis] for axis in perm))
    return context.permute(src, perm)


def identity(context: LoweringContext) -> Operand:
    """Lower Identity."""
    return context.view_source(0)


def cast(context: LoweringContext) -> Operand:
    """Lower Cast to a reorder, between types that it converts as ONNX specifies."""
    src, dtype = context.view_source(0), context.output().dtype
    if dtype == context.dtype(src):
        return src
    to, number = as_data_type(dtype).name if dtype in DESCRIBABLE else "", as_data_type(context.dtype(src)).name
    is_rounded = to in _SMALL and number in _REAL and not context.attribute("saturate", 1)
    require(
        is_rounded or to in _CONVERTED.get(number, ()),
        f"no reorder converts {context.dtype(src)} to {dtype} as ONNX does",
    )
    return context.convert(src, dtype)


_REAL = ("f16", "bf16", "f32", "f64")
_SMALL = ("f8_e4m3", "f8_e5m2")
_CONVERTED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((*_REAL, *_SMALL), _REAL),
    **dict.fromkeys(("s8", "u8"), (*_REAL, "s32", "s64")),
    "s32": ("f32", "f64", "s64"),
    "s64": ("f64",),
}
"""Types to which a reorder converts all numbers of a type, rounding once to the nearest. Where numbers may be too large
for the new type, reorders saturate and ONNX does not, except from reals to other reals; floats of 8 bits are converted
by the attribute `saturate`. Large integers would be rounded twice."""


def expand(context: LoweringContext) -> Operand:
    """Lower Expand to a view that repeats elements; one reorder writes them where a kernel reads them."""
    src, dims = context.view_source(0), context.output().dims
    require(prod(dims) > 0, "its result has no elements")
    own = context.dims(src)
    return context.broadcast(_reshaped(context, src, (1,) * (len(dims) - len(own)) + own), dims)


def tile(context: LoweringContext) -> Operand:
    """Lower Tile: a new axis of length 1 before each axis that is repeated gets the number of repeats."""
    src, dims = context.view_source(0), context.output().dims
    require(prod(dims) > 0, "its result has no elements")
    pairs = [(total // n, n) for total, n in zip(dims, context.dims(src), strict=True)]
    split = tuple(n for repeats, length in pairs for n in ((1, length) if repeats > 1 else (length,)))
    repeated = tuple(n for repeats, length in pairs for n in ((repeats, length) if repeats > 1 else (length,)))
    return context.reshape(context.broadcast(_reshaped(context, src, split), repeated), dims)


def _reshaped(context: LoweringContext, src: str, dims: Dims) -> str:
    """Return a tensor in other dims."""
    result = context.reshape(src, dims)
    assert isinstance(result, str)
    return result


def dropout(context: LoweringContext) -> Operand:
    """Lower Dropout outside of training, where it returns its input."""
    require(not context.is_output_used(1), "its mask is used")
    if context.opset >= 12 and context.has_input(2):
        require(not context.constant(2, "training mode").any(), "it leaves elements out, as in training")
    return context.view_source(0)


def pad(context: LoweringContext) -> Operand:
    """Lower Pad with zero padding only, where it returns its input."""
    require(not any(context.integers("pads", 1, 11, "padding")), "no primitive adds padding")
    return context.view_source(0)


def concat(context: LoweringContext) -> Operand:
    """Lower Concat; inputs without elements are left out.

    Types other than float32 have no kernel: reorders write all sources into the result, so none may be constant.
    """
    names, dims = context.node.inputs, context.output().dims
    filled = [index for index, name in enumerate(names) if prod(context.network.tensors[name].dims)]
    if len(filled) == 1:
        return context.view_source(filled[0])
    operand = context.operand if context.output().dtype == F32 else context.view_source
    sources = {f"src_{place}": operand(index) for place, index in enumerate(filled)}
    return context.emit("concat", sources, dims, axis=context.attribute("axis") % len(dims))


def split(context: LoweringContext) -> tuple[Operand | None, ...]:
    """Lower Split to a view for each used output; shape inference has computed their extents."""
    src = context.view_source(0)
    dims = context.dims(src)
    axis, at = context.attribute("axis", 0) % len(dims), 0
    parts: list[Operand | None] = []
    for name in context.node.outputs:
        require(bool(name), "a part is left out")
        part = context.network.tensors[name].dims
        offsets = tuple(at if i == axis else 0 for i in range(len(dims)))
        parts.append(context.submemory(src, offsets, part) if name in context.used_tensors else None)
        at += part[axis]
    return tuple(parts)


def slice_(context: LoweringContext) -> Operand:
    """Lower Slice with positive steps to a view."""
    src = context.view_source(0)
    dims = context.dims(src)
    starts, steps = context.integers("starts", 1, 10), context.integers("steps", 4, 10)
    axes = context.integers("axes", 3, 10) or tuple(range(len(starts)))
    require(all(step > 0 for step in steps), f"its steps are {steps}")
    offsets, distances = [0] * len(dims), [1] * len(dims)
    for axis, start, step in zip(axes, starts, steps or (1,) * len(axes), strict=True):
        n = dims[axis % len(dims)]
        offsets[axis % len(dims)] = min(max(start + n if start < 0 else start, 0), n)
        distances[axis % len(dims)] = step
    return context.submemory(src, tuple(offsets), context.output().dims, tuple(distances))


def gather(context: LoweringContext) -> Operand:
    """Lower Gather to a view, if its indices are constant and consecutive."""
    src = context.view_source(0)
    dims = context.dims(src)
    axis = context.attribute("axis", 0) % len(dims)
    indices = [int(index) % dims[axis] for index in context.constant(1, "list of indices").reshape(-1)]
    count = len(indices)
    require(count > 0 and indices == list(range(indices[0], indices[0] + count)), "its indices are not consecutive")
    offsets = tuple(indices[0] if i == axis else 0 for i in range(len(dims)))
    part = context.submemory(src, offsets, tuple(count if i == axis else n for i, n in enumerate(dims)))
    return context.reshape(part, context.output().dims)


def depth_to_space(context: LoweringContext) -> Operand:
    """Lower DepthToSpace: channels become blocks of space."""
    src, size = context.view_source(0), context.attribute("blocksize")
    batch, channels, height, width = context.dims(src)
    rest = channels // size**2
    if context.attribute("mode", "DCR") == "DCR":
        blocks, perm = (size, size, rest), (0, 3, 4, 1, 5, 2)
    else:
        blocks, perm = (rest, size, size), (0, 1, 4, 2, 5, 3)
    split = context.reshape(src, (batch, *blocks, height, width))
    return context.reshape(context.permute(split, perm), context.output().dims)


def space_to_depth(context: LoweringContext) -> Operand:
    """Lower SpaceToDepth: blocks of space become channels."""
    src, size = context.view_source(0), context.attribute("blocksize")
    batch, channels, height, width = context.dims(src)
    split = context.reshape(src, (batch, channels, height // size, size, width // size, size))
    perm = (0, 3, 5, 1, 2, 4) if context.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return context.reshape(context.permute(split, perm), context.output().dims)


DATA_MOVEMENT: Mapping[str, Callable[[LoweringContext], Operand | tuple[Operand | None, ...]]] = {
    "Cast": cast,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Dropout": dropout,
    "Expand": expand,
    "Flatten": reshape,
    "Gather": gather,
    "Identity": identity,
    "Pad": pad,
    "Reshape": reshape,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": reshape,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": reshape,
}
"""Rule of each operator that moves elements."""
