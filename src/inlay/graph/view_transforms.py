"""Views as descriptors: the descriptor of a tensor after a transform of an operation `view`."""

from collections.abc import Sequence

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.graph.op_graph import BroadcastView, PermuteView, ReshapeView, SubmemoryView, ViewTransform
from inlay.layout import Axis, Dims, Layout


def apply_transform(desc: MemoryDesc, transform: ViewTransform, *, allow_empty: bool = False) -> MemoryDesc:
    """Return the descriptor of a view after one transform.

    Where elements would have to be copied, the zero descriptor is returned if `allow_empty`.

    Raises:
        InvalidArguments, Unimplemented: as the method of `MemoryDesc`, unless `allow_empty`.
    """
    match transform:
        case ReshapeView(dims):
            return desc.reshape(dims, allow_empty=allow_empty)
        case PermuteView(perm):
            return desc.rename_axes(perm, allow_empty=allow_empty)
        case SubmemoryView(offsets, dims, steps):
            span = tuple((n - 1) * step + 1 for n, step in zip(dims, steps, strict=True)) if steps else dims
            box = desc.submemory(span, offsets, allow_empty=allow_empty)
            return box if span == dims or box.is_zero else _restride(box, dims, steps, allow_empty=allow_empty)
        case BroadcastView(dims):
            factors = tuple(int(n == before) for n, before in zip(dims, desc.dims, strict=True))
            return _restride(desc, dims, factors, allow_empty=allow_empty)


def _restride(desc: MemoryDesc, dims: Dims, factors: Sequence[int], *, allow_empty: bool) -> MemoryDesc:
    """Return the descriptor of other extents, with each stride multiplied by a factor; axes of factor 1 keep both.

    Axes in blocks or with padding have no such view: then the zero descriptor is returned if `allow_empty`.

    Raises:
        Unimplemented: there is no such view, unless `allow_empty`.
    """
    layout, changed = desc.layout, [i for i, factor in enumerate(factors) if factor != 1]
    assert desc.data_type is not None
    is_plain = isinstance(layout, Layout) and not any(layout.axes[i].inner for i in changed)
    if not isinstance(layout, Layout) or not is_plain or any(layout.dims[i] != desc.dims[i] for i in changed):
        if allow_empty:
            return MemoryDesc()
        raise Unimplemented(f"{desc!r} has no view of dims {dims}: reorder it to a format without blocks and padding")
    padded = tuple(dims[i] if i in changed else n for i, n in enumerate(layout.dims))
    axes = tuple(Axis(axis.stride * factors[i]) if i in changed else axis for i, axis in enumerate(layout.axes))
    return MemoryDesc.from_layout(Layout(padded, axes), desc.data_type, dims=dims, offset0=desc.offset0)
