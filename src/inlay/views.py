"""Views: the same elements under other coordinates, as functions of dims and layouts.

A view moves nothing. It answers with a new `Layout` whose offsets are those of the old one, read in other coordinates:
`permute_axes` renames the axes, `submemory` keeps a box of them, `reshape` splits and joins neighbours. For 12 rows of
`nhwc` pixels,

    dims (2, 12, 4, 3)  strides (144, 1, 36, 12)   as logical n, c, h, w
    permute_axes (0, 3, 1, 2)   ->   dims (2, 4, 3, 12)  strides (144, 36, 12, 1)   n, h, w, c
    reshape (2, 12, 12)         ->   dims (2, 12, 12)    strides (144, 1, 12)       h and w joined

Here `dims` are the logical ones and `layout.dims` the padded ones, because the rules need both: padding is part of an
axis, so a padded or blocked axis may be kept or moved but neither split nor joined. The rules, and the strides that
inserted unit axes get, are oneDNN's `memory_desc_reshape`, `memory_desc_permute_axes` and `memory_desc_init_submemory`.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import NoReturn, TypeAlias, TypeVar

from inlay.errors import InvalidArguments, Unimplemented
from inlay.format_tag import LETTERS
from inlay.layout import RUNTIME, Axis, Dims, Layout

T = TypeVar("T")
Group: TypeAlias = tuple[range, range]
"""Old axes and the new axes that take their place."""


def axis_name(i: int) -> str:
    """How messages name axis `i`: its number and its letter in format tags.

    >>> axis_name(1)
    'axis 1 (b)'
    """
    return f"axis {i} ({LETTERS[i]})" if i < len(LETTERS) else f"axis {i}"


def volume(dims: Sequence[int]) -> int:
    """The number of elements where a dim of 0 counts as 1, oneDNN's measure of what a reshape must keep.

    >>> volume((2, 0, 3))
    6
    """
    return prod([dim or 1 for dim in dims])


def permuted(values: Sequence[T], permutation: Sequence[int]) -> tuple[T, ...]:
    """`values` with entry i moved to place `permutation[i]`.

    >>> permuted("nchw", (0, 3, 1, 2))
    ('n', 'h', 'w', 'c')
    """
    return tuple(values[i] for i in inverse(permutation))


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `permutation`.

    >>> inverse((0, 3, 1, 2))
    (0, 2, 3, 1)
    """
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def require_permutation(what: str, permutation: Sequence[int], ndims: int) -> None:
    """Refuse what is not each of 0..ndims-1 once; `what` names the argument.

    Raises:
        InvalidArguments: an axis is missing, repeated or out of range.
    """
    if sorted(permutation) == list(range(ndims)):
        return
    missing = [str(i) for i in range(ndims) if i not in permutation]
    faults = [f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing"] if missing else []
    for i in sorted(set(permutation)):
        if not 0 <= i < ndims:
            faults.append(f"{i} is no axis")
        elif (count := list(permutation).count(i)) > 1:
            faults.append(f"{i} appears {'twice' if count == 2 else f'{count} times'}")
    raise InvalidArguments(f"{what} {tuple(permutation)} must use each of 0..{ndims - 1} once: {', '.join(faults)}")


def _listed(words: Sequence[str]) -> str:
    return words[-1] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def permute_axes(layout: Layout, permutation: Sequence[int]) -> Layout:
    """Axis i of `layout` as axis `permutation[i]` of the result; `permutation` is a valid one.

    Post-condition: result.offset(y) == layout.offset(x) for every coordinate x, where y[permutation[i]] == x[i].

    >>> permute_axes(Layout.from_strides((3, 4), (4, 1)), (1, 0))
    Layout(dims=(4, 3), axes=(Axis(stride=1, inner=()), Axis(stride=4, inner=())))
    """
    return Layout(permuted(layout.dims, permutation), permuted(layout.axes, permutation))


def require_region(dims: Dims, region: Dims, offsets: Dims) -> None:
    """Refuse a box that does not lie in `dims`.

    Raises:
        InvalidArguments: a dim or offset is negative, or the box ends beyond a logical dim.
        Unimplemented: a dim or offset is RUNTIME.
    """
    for i, (dim, size, start) in enumerate(zip(dims, region, offsets, strict=True)):
        if RUNTIME in (size, start):
            raise Unimplemented(f"{axis_name(i)} of the submemory is RUNTIME: give its dim and offset as numbers")
        if size < 0 or start < 0 or start + size > dim:
            raise InvalidArguments(
                f"{axis_name(i)} of the submemory takes {size} from {start}, outside its {dim} elements: "
                f"dims and offsets are 0 or more and their sum at most {dim}"
            )


def submemory(dims: Dims, layout: Layout, region: Dims, offsets: Dims) -> tuple[Layout, int]:
    """The layout of the box of `region` elements that starts at `offsets`, and the offset of its origin in elements.

    An axis that reaches the border of the data keeps its padding; another one has none. A box inside one block is
    allowed: the rest of the block is no part of the result.

    Post-condition: for every coordinate x of the box, origin + result.offset(x) == layout.offset(x + offsets), where
    (result, origin) is what this returns.

    Raises:
        InvalidArguments, Unimplemented: as `require_region`.
        Unimplemented: a blocked axis is cut inside a block.

    >>> submemory((4, 6), Layout.from_strides((4, 6), (6, 1)), (2, 3), (1, 2))[1]
    8
    """
    require_region(dims, region, offsets)
    padded, origin = [], 0
    for i, (dim, axis) in enumerate(zip(dims, layout.axes, strict=True)):
        size, start, block = region[i], offsets[i], axis.block
        at_border = start + size == dim
        if start % block or not (at_border or size % block == 0 or size < block):
            raise Unimplemented(
                f"{axis_name(i)} of the submemory takes {size} from {start}, which cuts a block of {block}: start at a "
                f"multiple of {block} and take a multiple of it, less than one block, or all that follows"
            )
        padded.append(layout.dims[i] - start if at_border else size)
        origin += start // block * axis.stride
    return Layout(tuple(padded), layout.axes), origin


def reshape(dims: Dims, layout: Layout, new_dims: Dims) -> Layout:
    """The layout of the same elements under `new_dims`, of equal volume.

    Both lists are paired from the right: a unit axis without padding is dropped, a new unit axis is inserted, an axis
    of equal size is kept with its blocks and padding, and otherwise the shortest runs of equal volume change places.

    Post-condition: result.offset(y) == layout.offset(x) wherever x and y have the same row-major index in `dims` and
    `new_dims`.

    Raises:
        InvalidArguments: a blocked or padded axis would be split or joined, or joined axes do not follow one another
            in memory, or a dim of 0 stands where its neighbours would have to be joined with it.

    >>> reshape((2, 12), Layout.from_strides((2, 12), (24, 2)), (4, 1, 6)).axes
    (Axis(stride=12, inner=()), Axis(stride=12, inner=()), Axis(stride=2, inner=()))
    """
    padded, axes = list(new_dims), [Axis(0)] * len(new_dims)
    for old, new in _groups(dims, layout.dims, new_dims):
        if not new:
            _require_droppable(layout, old[0])
        elif not old:
            axes[new[0]] = Axis(_inserted_stride(dims, layout, old.stop))
        elif len(old) == len(new) == 1:
            padded[new[0]], axes[new[0]] = layout.dims[old[0]], layout.axes[old[0]]
        else:
            _require_joinable(dims, layout, old, [new_dims[i] for i in new])
            stride = layout.axes[old[-1]].stride
            for i in reversed(new):
                axes[i] = Axis(stride)
                stride *= new_dims[i]
    return Layout(tuple(padded), tuple(axes))


def _groups(dims: Dims, padded: Dims, new_dims: Dims) -> Iterator[Group]:
    """The pairs of runs of axes that `reshape` exchanges, from the right."""
    old_end, new_end = len(dims), len(new_dims)
    while old_end or new_end:
        if old_end and dims[old_end - 1] == 1:
            old, new = old_end - 1, new_end
            if padded[old] != 1:
                new = _unit_for(old, padded[old], new_dims, new_end)
        elif new_end and new_dims[new_end - 1] == 1:
            old, new = old_end, new_end - 1
        else:
            old, new = _equal_runs(dims, old_end, new_dims, new_end)
        yield range(old, old_end), range(new, new_end)
        old_end, new_end = old, new


def _unit_for(i: int, padded: int, new_dims: Dims, new_end: int) -> int:
    """The new unit axis that keeps the padding of unit axis `i`."""
    if new_end and new_dims[new_end - 1] == 1:
        return new_end - 1
    raise InvalidArguments(
        f"{axis_name(i)} cannot be dropped: its 1 element is padded to {padded}; keep a dim of 1 in its place"
    )


def _equal_runs(dims: Dims, old_end: int, new_dims: Dims, new_end: int) -> tuple[int, int]:
    """Where the shortest runs of equal volume start that end before `old_end` and `new_end`."""
    fault = InvalidArguments(
        f"dims {dims} cannot be reshaped to {new_dims}: a dim of 0 is kept, neither joined with its neighbors nor split"
    )
    if not (old_end and new_end):
        raise fault
    old, new = old_end - 1, new_end - 1
    have, want = dims[old], new_dims[new]
    while have != want:
        if have < want:
            old -= 1
            have *= dims[old] if old >= 0 else 0
        else:
            new -= 1
            want *= new_dims[new] if new >= 0 else 0
        if not (have and want):
            raise fault
    return old, new


def _inserted_stride(dims: Dims, layout: Layout, right: int) -> int:
    """The stride of a new unit axis left of old axis `right`: what one more step of that axis would need.

    oneDNN multiplies by the logical dim, so a padded neighbor gives less than its extent in memory. No element is
    addressed through it; only texts show it.
    """
    if right == layout.ndims:
        return prod(axis.block for axis in layout.axes)
    axis = layout.axes[right]
    step = axis.stride * dims[right]
    for digit in reversed(axis.inner):
        step //= digit.extent
    return step


def _require_droppable(layout: Layout, i: int) -> None:
    if layout.axes[i].inner:
        raise InvalidArguments(
            f"{axis_name(i)} cannot be dropped: it lies in blocks of {layout.axes[i].block}; reorder to a plain format "
            "first"
        )


def _require_joinable(dims: Dims, layout: Layout, old: range, new_dims: Sequence[int]) -> None:
    """Refuse a run of axes that cannot be read as one number."""
    for i in old:
        if layout.axes[i].inner:
            _refuse_run(dims, layout, old, new_dims, i)
    for left, right in pairwise(old):
        step, need = layout.axes[left].stride, dims[right] * layout.axes[right].stride
        if step != need:
            raise InvalidArguments(
                f"{_attempt(old, new_dims)}: {axis_name(left)} has stride {step}, but {need} would follow "
                f"{axis_name(right)} of {dims[right]} elements with stride {layout.axes[right].stride}; reorder to a "
                "dense format first"
            )
    if layout.dims[old[0]] != dims[old[0]]:
        _refuse_run(dims, layout, old, new_dims, old[0])


def _refuse_run(dims: Dims, layout: Layout, old: range, new_dims: Sequence[int], i: int) -> NoReturn:
    """Say that the padding or blocks of axis `i` stand in the way."""
    count = "1 element" if dims[i] == 1 else f"{dims[i]} elements"
    whose = f"its {count}" if len(old) == 1 else f"the {count} of {axis_name(i)}"
    verbs = ("is padded", "lies") if dims[i] == 1 else ("are padded", "lie")
    padded = f"{verbs[0]} to {layout.dims[i]}" if layout.dims[i] != dims[i] else verbs[1]
    blocks = f" in blocks of {layout.axes[i].block}" if layout.axes[i].inner else ""
    raise InvalidArguments(
        f"{_attempt(old, new_dims)}: {whose} {padded}{blocks}; keep that axis whole, or reorder to a plain format first"
    )


def _attempt(old: range, new_dims: Sequence[int]) -> str:
    into = " x ".join(map(str, new_dims))
    if len(old) == 1:
        return f"{axis_name(old[0])} cannot be split into {into}"
    return f"{axis_name(old[0])} to {axis_name(old[-1])} cannot become {into}"
