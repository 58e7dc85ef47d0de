"""What takes elements as they are: views, concatenation, parts, and shuffles.

Each view makes one move, so that a chain breaks where a format does not allow one. Reshape, Transpose and Reshape back
that exchange two factors of an axis are a shuffle; the views before it vanish where nobody else reads them.
"""

from collections.abc import Callable, Mapping
from math import prod

from inlay.graph.lowering.draft import F32, Draft, Operand, require
from inlay.graph.op_graph import Op, PermuteView, ReshapeView
from inlay.layout import Dims


def reshape(draft: Draft) -> Operand:
    """Other dims, which shape inference knows."""
    src, dims = draft.viewed(0), draft.result().dims
    return _shuffled(draft, src, dims) or draft.reshaped(src, dims)


def _shuffled(draft: Draft, src: str, dims: Dims) -> str | None:
    """A shuffle, if the two views before this reshape say one."""
    exchanged = _view(draft, src)
    taken = None if exchanged is None else _view(draft, exchanged.reads["src"])
    if exchanged is None or taken is None:
        return None
    permute, split, image = exchanged.transforms[0], taken.transforms[0], taken.reads["src"]
    if not isinstance(permute, PermuteView) or not isinstance(split, ReshapeView):
        return None
    axis = next((i for i, axis in enumerate(permute.perm) if i != axis), 0)
    swap = (*range(axis), axis + 1, axis, *range(axis + 2, len(split.dims)))
    rows = (*split.dims[:axis], prod(split.dims[axis : axis + 2]), *split.dims[axis + 2 :])
    if permute.perm != swap or not dims == draft.dims(image) == rows:
        return None
    return draft.put("shuffle", {"src": image}, dims, axis=axis, group_size=split.dims[axis + 1])


def _view(draft: Draft, name: str) -> Op | None:
    """The view, of one move, that makes a tensor of f32."""
    writer = draft.writer(name)
    return writer if writer and len(writer.transforms) == 1 and draft.dtype(name) == F32 else None


def transpose(draft: Draft) -> Operand:
    """Axes in another order, reversed if none is said."""
    src = draft.viewed(0)
    return draft.permuted(src, draft.attribute("perm") or tuple(reversed(range(len(draft.dims(src))))))


def unchanged(draft: Draft) -> Operand:
    """The same elements: Identity, and what is one for these dims and types."""
    src = draft.viewed(0)
    require(draft.result().dims == draft.dims(src), "it repeats elements")
    require(draft.result().dtype == draft.dtype(src), "it converts to another type")
    return src


def dropout(draft: Draft) -> Operand:
    """The same elements, unless in training."""
    require(not draft.wants(1), "its mask is asked for")
    if draft.opset >= 12 and draft.given(2):
        require(not draft.constant(2, "training mode").any(), "it leaves elements out, as in training")
    return draft.viewed(0)


def padded(draft: Draft) -> Operand:
    """The same elements, where nothing is added."""
    require(not any(draft.numbers("pads", 1, 11, "padding")), "there is no primitive that pads")
    return draft.viewed(0)


def concat(draft: Draft) -> Operand:
    """One tensor after the other; those without elements are left out."""
    names, dims = draft.node.inputs, draft.result().dims
    filled = [index for index, name in enumerate(names) if prod(draft.network.tensors[name].dims)]
    if len(filled) == 1:
        return draft.viewed(filled[0])
    sources = {f"src_{place}": draft.operand(index) for place, index in enumerate(filled)}
    return draft.put("concat", sources, dims, axis=draft.attribute("axis") % len(dims))


def split(draft: Draft) -> tuple[Operand | None, ...]:
    """Parts along an axis, as long as shape inference knows."""
    src = draft.viewed(0)
    dims = draft.dims(src)
    axis, at = draft.attribute("axis", 0) % len(dims), 0
    parts: list[Operand | None] = []
    for name in draft.node.outputs:
        require(bool(name), "a part is left out")
        part = draft.network.tensors[name].dims
        offsets = tuple(at if i == axis else 0 for i in range(len(dims)))
        parts.append(draft.part(src, offsets, part) if name in draft.wanted else None)
        at += part[axis]
    return tuple(parts)


def sliced(draft: Draft) -> Operand:
    """A part of the elements, each next to the one before."""
    src = draft.viewed(0)
    dims = draft.dims(src)
    starts, steps = draft.numbers("starts", 1, 10), draft.numbers("steps", 4, 10)
    axes = draft.numbers("axes", 3, 10) or tuple(range(len(starts)))
    require(all(step == 1 for step in steps), f"its steps are {steps}")
    offsets = [0] * len(dims)
    for axis, start in zip(axes, starts, strict=True):
        n = dims[axis % len(dims)]
        offsets[axis % len(dims)] = min(max(start + n if start < 0 else start, 0), n)
    return draft.part(src, tuple(offsets), draft.result().dims)


def gathered(draft: Draft) -> Operand:
    """A part of the elements, where indices are known and each is the next one."""
    src = draft.viewed(0)
    dims = draft.dims(src)
    axis = draft.attribute("axis", 0) % len(dims)
    indices = [int(index) % dims[axis] for index in draft.constant(1, "list of indices").reshape(-1)]
    count = len(indices)
    require(count > 0 and indices == list(range(indices[0], indices[0] + count)), "its indices are in no row")
    offsets = tuple(indices[0] if i == axis else 0 for i in range(len(dims)))
    part = draft.part(src, offsets, tuple(count if i == axis else n for i, n in enumerate(dims)))
    return draft.reshaped(part, draft.result().dims)


def depth_to_space(draft: Draft) -> Operand:
    """Channels become blocks of space."""
    src, size = draft.viewed(0), draft.attribute("blocksize")
    batch, channels, height, width = draft.dims(src)
    rest = channels // size**2
    if draft.attribute("mode", "DCR") == "DCR":
        blocks, perm = (size, size, rest), (0, 3, 4, 1, 5, 2)
    else:
        blocks, perm = (rest, size, size), (0, 1, 4, 2, 5, 3)
    split = draft.reshaped(src, (batch, *blocks, height, width))
    return draft.reshaped(draft.permuted(split, perm), draft.result().dims)


def space_to_depth(draft: Draft) -> Operand:
    """Blocks of space become channels."""
    src, size = draft.viewed(0), draft.attribute("blocksize")
    batch, channels, height, width = draft.dims(src)
    split = draft.reshaped(src, (batch, channels, height // size, size, width // size, size))
    perm = (0, 3, 5, 1, 2, 4) if draft.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return draft.reshaped(draft.permuted(split, perm), draft.result().dims)


MOVING: Mapping[str, Callable[[Draft], Operand | tuple[Operand | None, ...]]] = {
    "Cast": unchanged,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Dropout": dropout,
    "Expand": unchanged,
    "Flatten": reshape,
    "Gather": gathered,
    "Identity": unchanged,
    "Pad": padded,
    "Reshape": reshape,
    "Slice": sliced,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": reshape,
    "Tile": unchanged,
    "Transpose": transpose,
    "Unsqueeze": reshape,
}
"""The rule of each operator."""
