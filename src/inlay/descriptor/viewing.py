"""The views of a descriptor, as what they are made of: dims, place and offset, or the `Fault` that says why not.

`MemoryDesc` makes descriptors of the results. What is asked here is oneDNN's order of questions: first whether the
descriptor can be viewed at all, then whether dims, permutation or box are possible for it, at last what `inlay.views`
makes of its layout.
"""

from inlay import views
from inlay.descriptor import kinds
from inlay.descriptor.described import Described
from inlay.descriptor.queries import spelled
from inlay.descriptor.validation import LARGEST, require_dims
from inlay.errors import InvalidArguments, Unimplemented
from inlay.format_tag import LETTERS, FormatTag
from inlay.layout import RUNTIME, Dims, Layout
from inlay.layout.regroup import Fault


def axis_letters(desc: Described) -> str:
    """One letter per axis: those of the format tag that the descriptor was made of, else those of abstract tags.

    >>> from inlay.descriptor import MemoryDesc
    >>> axis_letters(MemoryDesc((2, 3, 4, 5), "f32", "nhwc")), axis_letters(MemoryDesc((2, 3), "f32"))
    ('nchw', 'ab')
    """
    return LETTERS[: desc.ndims] if desc._spelling is None else FormatTag.parse(desc._spelling).letters


def reshaped(desc: Described, dims: Dims, digits: bool) -> Layout | kinds.Any | Fault:
    """The place of the elements of `desc` under `dims`.

    Raises:
        InvalidArguments: `dims` are no shape of a tensor.
    """
    require_dims(dims)
    layout = desc.layout
    if not isinstance(layout, (Layout, kinds.Any)) or desc.extras or desc.has_runtime:
        return view_fault(desc, "reshape")
    if RUNTIME in dims:
        problem = f"reshape to {spelled(dims)} needs numbers: RUNTIME dims have no volume to keep"
        return Fault((0, desc.ndims, 0, len(dims)), "runtime", problem)
    mine, wanted = views.volume(desc.dims), views.volume(dims)
    if mine != wanted:
        problem = (
            f"dims {spelled(desc.dims)} hold {mine} elements, {spelled(dims)} {wanted}: a reshape keeps their "
            "number, where a dim of 0 counts as 1"
        )
        return Fault((0, desc.ndims, 0, len(dims)), "volume", problem)
    if not isinstance(layout, Layout):
        return layout
    return views.try_reshape(desc.dims, layout, dims, digits=digits, name=lambda i: _name(desc, i))


def _name(desc: Described, i: int) -> str:
    return views.axis_name(i, axis_letters(desc))


def permuted(desc: Described, what: str, axes: Dims) -> tuple[Dims, Layout | kinds.Any]:
    """The dims and the place of `desc` with its axes relabeled; `what` says how to read `axes`: permutation or order.

    Raises:
        InvalidArguments: `axes` is not each axis once, or `desc` has no axes that can be relabeled.
    """
    layout = desc.layout
    by_permutation = what == "permutation"
    if not isinstance(layout, (Layout, kinds.Any)) or desc.has_runtime or not desc.extras.may_be_permuted:
        raise InvalidArguments(view_fault(desc, "permute_axes" if by_permutation else "rename_axes").problem)
    views.require_permutation(what, axes, desc.ndims)
    permutation = axes if by_permutation else views.inverse(axes)
    dims = views.permuted(desc.dims, permutation)
    return dims, views.permute_axes(layout, permutation) if isinstance(layout, Layout) else layout


def view_fault(desc: Described, what: str) -> Fault:
    """Why `desc` can be neither reshaped nor permuted."""
    everything = (0, desc.ndims, 0, 0)
    if desc.extras and (what == "reshape" or not desc.extras.may_be_permuted):
        problem = (
            f"{what} needs elements alone: {desc!r} has buffers or factors that belong to its axes; "
            "describe the weights without extras, and fill them last"
        )
        return Fault(everything, "kind", problem)
    if isinstance(desc.layout, Layout) and desc.has_runtime:
        problem = f"{what} needs known dims and strides: {desc!r} has RUNTIME ones, bind them first"
        return Fault(everything, "runtime", problem)
    problem = f"{what} needs a layout or the format any: {desc!r} is of kind {desc.kind}{desc._remedy}"
    return Fault(everything, "kind", problem)


def boxed(desc: Described, dims: Dims, offsets: Dims) -> tuple[Layout, int] | Fault:
    """The place of the box of `dims` elements at `offsets`, and the offset of its first element.

    Raises:
        InvalidArguments: `dims` or `offsets` differ in number from the axes, or the offset does not fit 64 bits.
    """
    for what, values in (("dims", dims), ("offsets", offsets)):
        if len(values) != desc.ndims:
            raise InvalidArguments(
                f"{what} {values} of the submemory has {len(values)} entries: its parent has {desc.ndims} dims"
            )
    if desc.has_runtime:
        raise Unimplemented(f"submemory needs known dims and strides: {desc!r} has RUNTIME ones, bind them first")
    layout = desc.layout
    if not isinstance(layout, Layout):
        fault = views.region_fault(desc.dims, dims, offsets)
        problem = f"submemory needs a layout: {desc!r} is of kind {desc.kind}{desc._remedy}"
        return fault or Fault((0, desc.ndims, 0, 0), "kind", problem)
    box = views.try_submemory(desc.dims, layout, dims, offsets, lambda i: _name(desc, i))
    if not isinstance(box, Fault) and desc.offset0 + box[1] > LARGEST:
        raise InvalidArguments(f"the submemory starts {desc.offset0 + box[1]} elements in, more than 2**63 - 1")
    return box
