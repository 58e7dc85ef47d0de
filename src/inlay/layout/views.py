"""Views: the same elements under other coordinates, as functions of dims and layouts.

A view moves nothing. It answers with a new `Layout` whose offsets are those of the old one, read in other coordinates:
`permute_axes` renames the axes, `try_submemory` keeps a box of them, `try_reshape` splits and joins neighbours. For 12
rows of `nhwc` pixels,

    dims (2, 12, 4, 3)  strides (144, 1, 36, 12)   as logical n, c, h, w
    permute_axes (0, 3, 1, 2)   ->   dims (2, 4, 3, 12)  strides (144, 36, 12, 1)   n, h, w, c
    reshape (2, 12, 12)         ->   dims (2, 12, 12)    strides (144, 1, 12)       h and w joined

Here `dims` are the logical ones and `layout.dims` the padded ones, because the rules need both: padding is part of an
axis, so a padded or blocked axis may be kept or moved but neither split nor joined. The rules, and the strides that
inserted unit axes get, are oneDNN's `memory_desc_reshape`, `memory_desc_permute_axes` and `memory_desc_init_submemory`.
Where free digits can say more than these rules allow, `try_reshape` does so if asked.

What has no view is a `Fault`, a value that names the axes and the rule; who asked words the error and finds the repair.
"""

from collections.abc import Sequence
from math import prod

from inlay.layout import RUNTIME, Axis, Dims, Layout
from inlay.layout.axis import LETTERS
from inlay.layout.regroup import (
    Fault,
    Name,
    Run,
    attempt_text,
    inverse,
    pairs_up,
    permuted,
    regroup,
    require_permutation,
    runs,
    stride_problem,
)

__all__ = [
    "axis_name",
    "inverse",
    "permute_axes",
    "permuted",
    "require_permutation",
    "try_reshape",
    "try_submemory",
    "volume",
]


def axis_name(i: int, letters: str = LETTERS) -> str:
    """How messages name axis `i`: its number and its letter, that of format tags unless others are given.

    >>> axis_name(1), axis_name(1, "nchw")
    ('axis 1 (b)', 'axis 1 (c)')
    """
    return f"axis {i} ({letters[i]})" if i < len(letters) else f"axis {i}"


def volume(dims: Sequence[int]) -> int:
    """The number of elements where a dim of 0 counts as 1, oneDNN's measure of what a reshape must keep.

    >>> volume((2, 0, 3))
    6
    """
    return prod([dim or 1 for dim in dims]) if 0 in dims else prod(dims)


def permute_axes(layout: Layout, permutation: Sequence[int]) -> Layout:
    """Axis i of `layout` as axis `permutation[i]` of the result; `permutation` is a valid one.

    Post-condition: result.offset(y) == layout.offset(x) for every coordinate x, where y[permutation[i]] == x[i].

    >>> permute_axes(Layout.from_strides((3, 4), (4, 1)), (1, 0))
    Layout(dims=(4, 3), axes=(Axis(stride=1, inner=()), Axis(stride=4, inner=())))
    """
    return Layout(permuted(layout.dims, permutation), permuted(layout.axes, permutation))


def try_submemory(
    dims: Dims, layout: Layout, region: Dims, offsets: Dims, name: Name = axis_name
) -> tuple[Layout, int] | Fault:
    """The layout of the box of `region` elements that starts at `offsets`, and the offset of its origin in elements.

    An axis that reaches the border of the data keeps its padding; another one has none. A box inside one block is
    allowed: the rest of the block is no part of the result.

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
                return Fault((i, i + 1, i, i + 1), "blocks", problem)
            start //= block
        padded.append(layout.dims[i] - offsets[i] if at_border else size)
        origin += start * axis.stride
    return Layout(tuple(padded), layout.axes), origin


def region_fault(dims: Dims, region: Dims, offsets: Dims, name: Name = axis_name) -> Fault | None:
    """Why a box does not lie in `dims`, or None where it does.

    >>> region_fault((4, 6), (2, 3), (3, 0)).rule
    'region'
    """
    for i, (dim, size, start) in enumerate(zip(dims, region, offsets, strict=True)):
        if size >= 0 and start >= 0 and start + size <= dim:
            continue
        run = (i, i + 1, i, i + 1)
        if RUNTIME in (size, start):
            return Fault(run, "runtime", f"{name(i)} of the submemory is RUNTIME: give its dim and offset as numbers")
        problem = (
            f"{name(i)} of the submemory takes {size} from {start}, outside its {dim} elements: "
            f"dims and offsets are 0 or more and their sum at most {dim}"
        )
        return Fault(run, "region", problem)
    return None


def try_reshape(
    dims: Dims, layout: Layout, new_dims: Dims, *, digits: bool = False, name: Name = axis_name
) -> Layout | Fault:
    """The layout of the same elements under `new_dims`, of equal volume.

    Both lists are paired from the right: a unit axis without padding is dropped, a new unit axis is inserted, an axis
    of equal size is kept with its blocks and padding, and otherwise the shortest runs of equal volume change places.

    Such a run must be unpadded, without blocks, and dense in row-major order. With `digits` it may have any digits, as
    long as each new axis ends where a digit does, and padding on its first axis, as long as that stays whole steps of
    the first new one.

    Post-condition: result.offset(y) == layout.offset(x) wherever x and y have the same row-major index in `dims` and
    `new_dims`.
    Post-condition: with `digits`, what was padding is padding.

    >>> try_reshape((2, 12), Layout.from_strides((2, 12), (24, 2)), (4, 1, 6)).axes
    (Axis(stride=12, inner=()), Axis(stride=12, inner=()), Axis(stride=2, inner=()))
    """
    padded, axes = list(new_dims), [Axis(0)] * len(new_dims)
    placed, old_axes = layout.dims, layout.axes
    for run in runs(dims, placed, new_dims):
        old, old_end, new, new_end = run
        if new_end - new == 1 == old_end - old and dims[old] == new_dims[new]:
            padded[new], axes[new] = placed[old], old_axes[old]
        elif old == old_end and new_dims[new:new_end] == (1,):
            axes[new] = Axis(_inserted_stride(dims, layout, old))
        elif new == new_end and dims[old:old_end] == (1,):
            fault = _drop_fault(layout, run, digits, name)
            if fault is not None:
                return fault
        elif 0 in dims and not pairs_up(dims, new_dims, run):
            problem = "a dim of 0 is kept, neither joined with its neighbors nor split"
            return Fault(run, "zero", f"dims {dims} cannot be reshaped to {new_dims}: {problem}")
        else:
            part = (_free_axes if digits else _plain_axes)(dims, layout, new_dims, run, name)
            if isinstance(part, Fault):
                return part
            padded[new], axes[new:new_end] = part
    return Layout(tuple(padded), tuple(axes))


def _inserted_stride(dims: Dims, layout: Layout, right: int) -> int:
    """The stride of a new unit axis left of old axis `right`: what one more step of that axis would need.

    oneDNN multiplies by the logical dim, so a padded neighbor gives less than its extent in memory. No element is
    addressed through it; only texts show it.
    """
    if right == layout.ndims:
        return prod([axis.block for axis in layout.axes if axis.inner])
    axis = layout.axes[right]
    step = axis.stride * dims[right]
    for digit in reversed(axis.inner):
        step //= digit.extent
    return step


def _drop_fault(layout: Layout, run: Run, digits: bool, name: Name) -> Fault | None:
    """Why a unit axis cannot go: its padding would be lost, or its blocks would belong to no axis."""
    i = run[0]
    if layout.dims[i] != 1:
        problem = f"its 1 element is padded to {layout.dims[i]}; keep a dim of 1 in its place"
        return Fault(run, "padding", f"{name(i)} cannot be dropped: {problem}")
    if layout.axes[i].inner and not digits:
        return Fault(run, "blocks", f"{name(i)} cannot be dropped: it lies in blocks of {layout.axes[i].block}")
    return None


def _plain_axes(dims: Dims, layout: Layout, new_dims: Dims, run: Run, name: Name) -> tuple[int, list[Axis]] | Fault:
    """The padded dim of the first new axis and all new axes of a run that oneDNN reads as one number."""
    old, old_end, new, new_end = run
    old_axes = layout.axes
    for i in range(old, old_end):
        if old_axes[i].inner:
            return _run_fault(dims, layout, new_dims, run, i, name)
    for left in range(old, old_end - 1):
        need = dims[left + 1] * old_axes[left + 1].stride
        if old_axes[left].stride != need:
            problem = stride_problem(left, left + 1, need, dims, old_axes, name)
            return Fault(run, "stride", f"{attempt_text(run, new_dims, name)}: {problem}")
    if layout.dims[old] != dims[old]:
        return _run_fault(dims, layout, new_dims, run, old, name)
    axes, stride = [], old_axes[old_end - 1].stride
    for dim in reversed(new_dims[new:new_end]):
        axes.append(Axis(stride))
        stride *= dim
    return new_dims[new], axes[::-1]


def _free_axes(dims: Dims, layout: Layout, new_dims: Dims, run: Run, name: Name) -> tuple[int, list[Axis]] | Fault:
    """The padded dim of the first new axis and all new axes of a run, in free digits."""
    old, old_end, new, new_end = run
    for i in range(old + 1, old_end):
        if layout.dims[i] != dims[i]:
            return _run_fault(dims, layout, new_dims, run, i, name)
    placed, step = layout.dims[old:old_end], prod(new_dims[new + 1 : new_end])
    if prod(placed) % step:
        return _run_fault(dims, layout, new_dims, run, old, name)
    lead = prod(placed) // step
    axes = regroup(layout.axes[old:old_end], placed, (lead, *new_dims[new + 1 : new_end]))
    if isinstance(axes, str):
        return Fault(run, "blocks", f"{attempt_text(run, new_dims, name)}: {axes}")
    return lead, axes


def _run_fault(dims: Dims, layout: Layout, new_dims: Dims, run: Run, i: int, name: Name) -> Fault:
    """That the padding or blocks of axis `i` stand in the way."""
    count = "1 element" if dims[i] == 1 else f"{dims[i]} elements"
    whose = f"its {count}" if run[1] - run[0] == 1 else f"the {count} of {name(i)}"
    verbs = ("is padded", "lies") if dims[i] == 1 else ("are padded", "lie")
    is_padded = layout.dims[i] != dims[i]
    padded = f"{verbs[0]} to {layout.dims[i]}" if is_padded else verbs[1]
    blocks = f" in blocks of {layout.axes[i].block}" if layout.axes[i].inner else ""
    problem = f"{attempt_text(run, new_dims, name)}: {whose} {padded}{blocks}"
    return Fault(run, "padding" if is_padded else "blocks", problem)
