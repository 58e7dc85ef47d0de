"""Lowering rules of operators that move elements but do not change them: views, concatenation, split, shuffle and Cast.

Each view has one transform. So if a format does not allow one of them, the views before it can still share memory with
their source. The sequence `Reshape`, `Transpose`, `Reshape` that swaps two factors of an axis becomes the primitive
shuffle. The two views before it are dropped if they have no other consumers.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

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
    return context.broadcast(src, dims)


def tile(context: LoweringContext) -> Operand:
    """Lower Tile: a new axis of length 1 before each axis that is repeated gets the number of repeats."""
    src, dims = context.view_source(0), context.output().dims
    require(prod(dims) > 0, "its result has no elements")
    pairs = [(total // n, n) for total, n in zip(dims, context.dims(src), strict=True)]
    split = tuple(n for repeats, length in pairs for n in ((1, length) if repeats > 1 else (length,)))
    repeated = tuple(n for repeats, length in pairs for n in ((repeats, length) if repeats > 1 else (length,)))
    return context.reshape(context.broadcast(str(context.reshape(src, split)), repeated), dims)


def dropout(context: LoweringContext) -> Operand:
    """Lower Dropout outside of training, where it returns its input."""
    require(not context.is_output_used(1), "its mask is used")
    if context.opset >= 12 and context.has_input(2):
        require(not context.constant(2, "training mode").any(), "it leaves elements out, as in training")
    return context.view_source(0)


def pad(context: LoweringContext) -> Operand:
    """Lower Pad: views for negative padding, and for the modes that repeat elements joins of few parts of each axis."""
    src = context.view_source(0)
    dims, pads = context.dims(src), context.integers("pads", 1, 11, "padding")
    axes = context.constant(3, "axes").reshape(-1).tolist() if context.has_input(3) else range(len(dims))
    pairs = {axis % len(dims): (pads[k], pads[k + len(axes)]) for k, axis in enumerate(axes)}
    sides = [pairs.get(axis, (0, 0)) for axis in range(len(dims))]
    is_cut = all(n <= 0 for pair in sides for n in pair)
    index = _PADDED_INDEX.get(context.attribute("mode", "constant"))
    part = tuple(n + min(a, 0) + min(b, 0) for n, (a, b) in zip(dims, sides, strict=True))
    require(is_cut or index is not None, "no primitive adds padding")
    require(min(part) > 0, "it removes all elements of an axis")
    result = context.submemory(src, tuple(max(-a, 0) for a, _ in sides), part)
    if index is not None:
        for axis, (before, behind) in enumerate(sides):
            result = _repeat_border(context, result, axis, (max(before, 0), max(behind, 0)), index)
    return result


def _repeat_border(
    context: LoweringContext, src: str, axis: int, widths: tuple[int, int], index: Callable[[int, int], int]
) -> str:
    """Return a tensor with elements added before and after an axis; `index` is a function of `_PADDED_INDEX`."""
    before, behind = widths
    n = context.dims(src)[axis]
    require(before + behind <= _MOST_PARTS, f"it adds {before + behind} elements to axis {axis}")
    places = range(-before, 0), range(n, n + behind)
    first, last = (_split_runs([index(k, n) for k in side]) for side in places)
    return _join_runs(context, src, axis, [*first, IndexRun(0, 1, n), *last])


def _reflect(k: int, n: int) -> int:
    """Return the index of the element at place `k` of an axis of `n` elements that is reflected at both ends."""
    place = k % max(2 * n - 2, 1)
    return min(place, 2 * n - 2 - place)


_PADDED_INDEX: Mapping[str, Callable[[int, int], int]] = {
    "edge": lambda k, n: min(max(k, 0), n - 1),
    "reflect": _reflect,
    "wrap": lambda k, n: k % n,
}
"""For each mode of Pad that repeats elements: the index of the element at a place outside of an axis of n elements."""


class IndexRun(NamedTuple):
    """Indices at equal distances."""

    start: int
    """The first index."""
    step: int
    """Distance between the indices: positive, or 0 for one index that is repeated."""
    length: int
    """Number of indices, at least 1."""


_MOST_PARTS = 16
"""Limit on the parts that indices are divided into; NumPy or ONNX Runtime gathers more in one step."""


def _split_runs(indices: Sequence[int]) -> list[IndexRun]:
    """Return the indices as runs, greedily; too many are cut off after one more than `_MOST_PARTS`.

    >>> _split_runs([4, 4, 0, 2, 4, 3])
    [IndexRun(start=4, step=0, length=2), IndexRun(start=0, step=2, length=3), IndexRun(start=3, step=1, length=1)]
    """
    runs: list[IndexRun] = []
    at = 0
    while at < len(indices) and len(runs) <= _MOST_PARTS:
        step = indices[at + 1] - indices[at] if at + 1 < len(indices) else 1
        end = at + 1
        while step >= 0 and end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        runs.append(IndexRun(indices[at], step if end > at + 1 else 1, end - at))
        at = end
    return runs


def _join_runs(context: LoweringContext, src: str, axis: int, runs: Sequence[IndexRun]) -> str:
    """Return the elements at these indices of an axis: a view of one run, or the concatenation of several."""
    require(0 < len(runs) <= _MOST_PARTS, f"its indices are of more than {_MOST_PARTS} parts at equal distances")
    parts = [_select_run(context, src, axis, run) for run in runs]
    if len(parts) == 1:
        return parts[0]
    dims = tuple(sum(run.length for run in runs) if i == axis else n for i, n in enumerate(context.dims(src)))
    return context.emit("concat", {f"src_{k}": part for k, part in enumerate(parts)}, dims, axis=axis)


def _select_run(context: LoweringContext, src: str, axis: int, run: IndexRun) -> str:
    """Return a view of the elements of one run."""
    dims = context.dims(src)
    offsets = tuple(run.start if i == axis else 0 for i in range(len(dims)))
    count = run.length if run.step else 1
    taken, whole = (tuple(m if i == axis else n for i, n in enumerate(dims)) for m in (count, run.length))
    steps = tuple(max(run.step, 1) if i == axis else 1 for i in range(len(dims)))
    return context.broadcast(context.submemory(src, offsets, taken, steps), whole)


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
    """Lower Slice: a view for positive steps; an axis with a negative step becomes a join of few elements."""
    src = context.view_source(0)
    dims = context.dims(src)
    starts, steps = context.integers("starts", 1, 10), context.integers("steps", 4, 10)
    axes = context.integers("axes", 3, 10) or tuple(range(len(starts)))
    result = context.output().dims
    offsets, distances, reversed_axes = [0] * len(dims), [1] * len(dims), dict[int, list[IndexRun]]()
    for axis, start, step in zip((axis % len(dims) for axis in axes), starts, steps or (1,) * len(axes), strict=True):
        n = dims[axis]
        start = start + n if start < 0 else start
        if step > 0:
            offsets[axis], distances[axis] = min(max(start, 0), n), step
        else:
            require(0 < result[axis] <= _MOST_PARTS and prod(result) > 0, f"its steps are {steps}")
            start = min(max(start, 0), n - 1)
            reversed_axes[axis] = [IndexRun(start + k * step, 1, 1) for k in range(result[axis])]
    part = tuple(dims[i] if i in reversed_axes else n for i, n in enumerate(result))
    taken = context.submemory(src, tuple(offsets), part, tuple(distances))
    for axis, runs in reversed_axes.items():
        taken = _join_runs(context, taken, axis, runs)
    return taken


_MOST_INDICES = 1 << 20
"""Limit on the constant indices that are searched for runs."""


def gather(context: LoweringContext) -> Operand:
    """Lower Gather with constant indices at equal distances to a view, and with few such parts to a concatenation."""
    src = context.view_source(0)
    dims = context.dims(src)
    axis = context.attribute("axis", 0) % len(dims)
    indices = context.constant(1, "list of indices")
    require(0 < indices.size <= _MOST_INDICES, f"it has {indices.size} indices")
    runs = _split_runs([int(index) % dims[axis] for index in indices.reshape(-1)])
    return context.reshape(_join_runs(context, src, axis, runs), context.output().dims)


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
