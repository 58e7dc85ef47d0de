"""The views of oneDNN's descriptors, as functions of dims and layouts: permute axes, submemory and reshape.

A view is a new `Layout` of the same elements; no data moves. `permute_axes` relabels the axes, `try_submemory` selects
a box of elements, `try_reshape` splits and joins neighboring axes. For 12 channels of `nhwc` pixels,

    dims (2, 12, 4, 3)  strides (144, 1, 36, 12)   as logical n, c, h, w
    permute_axes (0, 3, 1, 2)   ->   dims (2, 4, 3, 12)  strides (144, 36, 12, 1)   n, h, w, c
    reshape (2, 12, 12)         ->   dims (2, 12, 12)    strides (144, 1, 12)       h and w joined

Here `dims` are the logical dims and `layout.dims` the padded ones, because the rules need both: padding is part of an
axis, so a padded or blocked axis may be kept or moved but neither split nor joined. The rules, and the strides of
inserted unit axes, are those of oneDNN's `memory_desc_reshape`, `memory_desc_permute_axes` and
`memory_desc_init_submemory`. With `digits=True`, `try_reshape` also returns layouts that these rules do not allow.

A function whose view does not exist returns a `ViewFault`, which names the axes and the rule. The caller writes the
error and finds the repairs.
"""

from collections.abc import Sequence
from math import prod

from inlay.layout import RUNTIME, Axis, Dims, Layout
from inlay.layout.axis import LETTERS
from inlay.layout.permutation import inverse, permute, require_permutation
from inlay.layout.regroup import (
    AxisMatch,
    AxisNaming,
    ViewFault,
    failure_text,
    has_equal_volume,
    match_axes,
    regroup_digits,
    stride_problem,
)

__all__ = [
    "axis_name",
    "inverse",
    "permute",
    "permute_axes",
    "require_permutation",
    "try_reshape",
    "try_submemory",
    "volume",
]


def axis_name(i: int, letters: str = LETTERS) -> str:
    """Return the name of axis `i` in messages: its number and its letter, if it has one.

    >>> axis_name(1), axis_name(1, "nchw")
    ('axis 1 (b)', 'axis 1 (c)')
    """
    return f"axis {i} ({letters[i]})" if i < len(letters) else f"axis {i}"


def volume(dims: Sequence[int]) -> int:
    """Return the product of the dims, a dim of 0 counted as 1. oneDNN requires that a reshape keeps this number.

    >>> volume((2, 0, 3))
    6
    """
    return prod([dim or 1 for dim in dims]) if 0 in dims else prod(dims)


def permute_axes(layout: Layout, permutation: Sequence[int]) -> Layout:
    """Relabel axis i of `layout` as axis `permutation[i]`; `permutation` must be valid.

    Post-condition: result.offset(y) == layout.offset(x) for every coordinate x, where y[permutation[i]] == x[i].

    >>> permute_axes(Layout.from_strides((3, 4), (4, 1)), (1, 0))
    Layout(dims=(4, 3), axes=(Axis(stride=1, inner=()), Axis(stride=4, inner=())))
    """
    return Layout(permute(layout.dims, permutation), permute(layout.axes, permutation))


def try_submemory(
    dims: Dims, layout: Layout, region: Dims, offsets: Dims, name: AxisNaming = axis_name
) -> tuple[Layout, int] | ViewFault:
    """Return the layout of the box of `region` elements that starts at `offsets`, and its origin's offset in elements.

    Along an axis where the box reaches the last element, the result keeps the padding; other axes of the result have no
    padding. A box inside one block is allowed: the rest of the block is not a part of the result.

    Post-condition: for every coordinate x of the box, origin + result.offset(x) == layout.offset(x + offsets), where
    (result, origin) is what this returns.

    >>> try_submemory((4, 6), Layout.from_strides((4, 6), (6, 1)), (2, 3), (1, 2))[1]
    8
    """
    fault = region_fault(dims, region, offsets, name)
    if fault is not None:
        return fault
    padded, origin = [], 0
    for i, (dim, axis) in enumerate(zip(dims, layout.axes, strict=True)):
        size, start, at_border = region[i], offsets[i], offsets[i] + region[i] == dim
        if axis.inner:
            block = axis.block
            if start % block or not (at_border or size % block == 0 or size < block):
                problem = (
                    f"{name(i)} of the submemory takes {size} from {start}, which cuts a block of {block}: start at a "
                    f"multiple of {block} and take a multiple of it, less than one block, or all that follows"
                )
                return ViewFault((i, i + 1, i, i + 1), "blocks", problem)
            start //= block
        padded.append(layout.dims[i] - offsets[i] if at_border else size)
        origin += start * axis.stride
    return Layout(tuple(padded), layout.axes), origin


def region_fault(dims: Dims, region: Dims, offsets: Dims, name: AxisNaming = axis_name) -> ViewFault | None:
    """Return the fault of a box that is not within `dims`, or None if it is.

    >>> region_fault((4, 6), (2, 3), (3, 0)).rule
    'region'
    """
    for i, (dim, size, start) in enumerate(zip(dims, region, offsets, strict=True)):
        if size >= 0 and start >= 0 and start + size <= dim:
            continue
        match = (i, i + 1, i, i + 1)
        if RUNTIME in (size, start):
            return ViewFault(
                match, "runtime", f"{name(i)} of the submemory is RUNTIME: give its dim and offset as numbers"
            )
        problem = (
            f"{name(i)} of the submemory takes {size} from {start}, outside its {dim} elements: "
            f"dims and offsets are 0 or more and their sum at most {dim}"
        )
        return ViewFault(match, "region", problem)
    return None


def try_reshape(
    dims: Dims, layout: Layout, new_dims: Dims, *, digits: bool = False, name: AxisNaming = axis_name
) -> Layout | ViewFault:
    """Return the layout of the same elements under `new_dims`, of equal volume, or the fault if it does not exist.

    `match_axes` matches old and new axes from the right. A unit axis without padding is dropped, a new unit axis is
    inserted, and an axis of equal size is kept with its blocks and padding. In every other match, a run of old axes is
    replaced by new axes of the same volume.

    The old axes of such a match must be contiguous, without padding and blocks. With `digits` they may have any digits
    if each new axis ends where a digit ends. Their first axis may then have padding, if the padded volume is a multiple
    of the volume of the new axes behind the first one.

    Post-condition: result.offset(y) == layout.offset(x) wherever x and y have the same row-major index in `dims` and
    `new_dims`.
    Post-condition: with `digits`, the padding of the result is the padding of `layout`.

    >>> try_reshape((2, 12), Layout.from_strides((2, 12), (24, 2)), (4, 1, 6)).axes
    (Axis(stride=12, inner=()), Axis(stride=12, inner=()), Axis(stride=2, inner=()))
    """
    padded, axes = list(new_dims), [Axis(0)] * len(new_dims)
    placed, old_axes = layout.dims, layout.axes
    for match in match_axes(dims, placed, new_dims):
        old, old_end, new, new_end = match
        if new_end - new == 1 == old_end - old and dims[old] == new_dims[new]:
            padded[new], axes[new] = placed[old], old_axes[old]
        elif old == old_end and new_dims[new:new_end] == (1,):
            axes[new] = Axis(_inserted_stride(dims, layout, old))
        elif new == new_end and dims[old:old_end] == (1,):
            fault = _drop_fault(layout, match, digits, name)
            if fault is not None:
                return fault
        elif 0 in dims and not has_equal_volume(dims, new_dims, match):
            problem = "a dim of 0 is kept, neither joined with its neighbors nor split"
            return ViewFault(match, "zero", f"dims {dims} cannot be reshaped to {new_dims}: {problem}")
        else:
            part = (_free_axes if digits else _plain_axes)(dims, layout, new_dims, match, name)
            if isinstance(part, ViewFault):
                return part
            padded[new], axes[new:new_end] = part
    return Layout(tuple(padded), tuple(axes))


def _inserted_stride(dims: Dims, layout: Layout, right: int) -> int:
    """Return the stride of a new unit axis left of old axis `right`: the extent of that axis in memory.

    As oneDNN does, this multiplies by the logical dim, so the result for a padded neighbor is too small. No element
    address depends on it; only texts show it.
    """
    if right == layout.ndims:
        return prod([axis.block for axis in layout.axes if axis.inner])
    axis = layout.axes[right]
    step = axis.stride * dims[right]
    for digit in reversed(axis.inner):
        step //= digit.extent
    return step


def _drop_fault(layout: Layout, match: AxisMatch, digits: bool, name: AxisNaming) -> ViewFault | None:
    """Return the fault of a unit axis that cannot be dropped because of its padding or blocks; None if it can."""
    i = match[0]
    if layout.dims[i] != 1:
        problem = f"its 1 element is padded to {layout.dims[i]}; keep a dim of 1 in its place"
        return ViewFault(match, "padding", f"{name(i)} cannot be dropped: {problem}")
    if layout.axes[i].inner and not digits:
        return ViewFault(match, "blocks", f"{name(i)} cannot be dropped: it is in blocks of {layout.axes[i].block}")
    return None


def _plain_axes(
    dims: Dims, layout: Layout, new_dims: Dims, match: AxisMatch, name: AxisNaming
) -> tuple[int, list[Axis]] | ViewFault:
    """Return the padded dim of the first new axis, and all new axes, of a match by oneDNN's rules."""
    old, old_end, new, new_end = match
    old_axes = layout.axes
    for i in range(old, old_end):
        if old_axes[i].inner:
            return _match_fault(dims, layout, new_dims, match, i, name)
    for left in range(old, old_end - 1):
        need = dims[left + 1] * old_axes[left + 1].stride
        if old_axes[left].stride != need:
            problem = stride_problem(left, left + 1, need, dims, old_axes, name)
            return ViewFault(match, "stride", f"{failure_text(match, new_dims, name)}: {problem}")
    if layout.dims[old] != dims[old]:
        return _match_fault(dims, layout, new_dims, match, old, name)
    axes, stride = [], old_axes[old_end - 1].stride
    for dim in reversed(new_dims[new:new_end]):
        axes.append(Axis(stride))
        stride *= dim
    return new_dims[new], axes[::-1]


def _free_axes(
    dims: Dims, layout: Layout, new_dims: Dims, match: AxisMatch, name: AxisNaming
) -> tuple[int, list[Axis]] | ViewFault:
    """Return the padded dim of the first new axis, and all new axes, of a match, without oneDNN's rules."""
    old, old_end, new, new_end = match
    for i in range(old + 1, old_end):
        if layout.dims[i] != dims[i]:
            return _match_fault(dims, layout, new_dims, match, i, name)
    placed, step = layout.dims[old:old_end], prod(new_dims[new + 1 : new_end])
    if prod(placed) % step:
        return _match_fault(dims, layout, new_dims, match, old, name)
    lead = prod(placed) // step
    axes = regroup_digits(layout.axes[old:old_end], placed, (lead, *new_dims[new + 1 : new_end]))
    if isinstance(axes, str):
        return ViewFault(match, "blocks", f"{failure_text(match, new_dims, name)}: {axes}")
    return lead, axes


def _match_fault(dims: Dims, layout: Layout, new_dims: Dims, match: AxisMatch, i: int, name: AxisNaming) -> ViewFault:
    """Return the fault of a match that is impossible because of the padding or the blocks of axis `i`."""
    count = "1 element" if dims[i] == 1 else f"{dims[i]} elements"
    whose = f"its {count}" if match[1] - match[0] == 1 else f"the {count} of {name(i)}"
    verbs = ("is padded", "is") if dims[i] == 1 else ("are padded", "are")
    is_padded = layout.dims[i] != dims[i]
    padded = f"{verbs[0]} to {layout.dims[i]}" if is_padded else verbs[1]
    blocks = f" in blocks of {layout.axes[i].block}" if layout.axes[i].inner else ""
    problem = f"{failure_text(match, new_dims, name)}: {whose} {padded}{blocks}"
    return ViewFault(match, "padding" if is_padded else "blocks", problem)
