"""The views of a descriptor, as the fields of the result, or the `Fault` that says why there is none.

What is asked here is oneDNN's order of questions: first whether the descriptor can be viewed at all, then whether dims,
permutation or box are possible for it, at last what `inlay.views` makes of its layout.
"""

from collections.abc import Iterable

from inlay import views
from inlay.arguments import as_flag
from inlay.descriptor import kinds
from inlay.descriptor.creation import view_of
from inlay.descriptor.described import Described, Fields, has_runtime, kind_text
from inlay.descriptor.ordering import axis_letters
from inlay.descriptor.textual import spelled
from inlay.descriptor.validation import LARGEST, as_integers, require_dims
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Dims, Layout
from inlay.layout.regroup import Fault


def reshape(desc: Described, dims: Iterable[int], digits: bool, explain: bool) -> Fields:
    """The fields of `MemoryDesc.reshape`; a refusal names the repairs if it is to `explain`.

    Raises:
        InvalidArguments: as there.
    """
    wanted = as_integers("dims", dims)
    fields = try_reshape(desc, wanted, digits)
    if not isinstance(fields, Fault):
        return fields
    if not explain:
        raise InvalidArguments(fields.problem)
    from inlay.descriptor.repairs import reshape_refusal  # only refusals need it

    raise InvalidArguments(str(reshape_refusal(desc, wanted, fields, digits, lambda result: result)))


def try_reshape(desc: Described, dims: Dims, digits: bool) -> Fields | Fault:
    """The fields of `desc` under `dims`, or why there are none.

    Raises:
        InvalidArguments: `dims` are no shape of a tensor, or `digits` is no truth value.
    """
    is_free = as_flag("digits", digits)
    require_dims(dims)
    layout = desc.layout
    if not isinstance(layout, (Layout, kinds.Any)) or desc.extras or has_runtime(desc):
        return view_fault(desc, "reshape")
    if RUNTIME in dims:
        problem = f"reshape to {spelled(dims)} needs numbers: RUNTIME dims have no volume to keep"
        return Fault((0, len(desc.dims), 0, len(dims)), "runtime", problem)
    mine, wanted = views.volume(desc.dims), views.volume(dims)
    if mine != wanted:
        problem = (
            f"dims {spelled(desc.dims)} hold {mine} elements, {spelled(dims)} {wanted}: a reshape keeps their "
            "number, where a dim of 0 counts as 1"
        )
        return Fault((0, len(desc.dims), 0, len(dims)), "volume", problem)
    if isinstance(layout, Layout):
        place = views.try_reshape(desc.dims, layout, dims, digits=is_free, name=lambda i: _name(desc, i))
        return place if isinstance(place, Fault) else view_of(desc, dims, place)
    return view_of(desc, dims, layout)


def _name(desc: Described, i: int) -> str:
    return views.axis_name(i, axis_letters(desc))


def permute_axes(desc: Described, permutation: Iterable[int]) -> Fields:
    """The fields of `MemoryDesc.permute_axes`.

    Raises:
        InvalidArguments: as there.
    """
    places = as_integers("permutation", permutation)
    _require_axes(desc, "permute_axes", "permutation", places)
    return _permuted(desc, places)


def rename_axes(desc: Described, order: Iterable[int]) -> Fields:
    """The fields of `MemoryDesc.rename_axes`.

    Raises:
        InvalidArguments: as there.
    """
    places = as_integers("order", order)
    _require_axes(desc, "rename_axes", "order", places)
    return _permuted(desc, views.inverse(places))


def _require_axes(desc: Described, view: str, what: str, axes: Dims) -> None:
    """Refuse `axes` that are not each axis once, or a descriptor whose axes cannot be relabeled."""
    if not isinstance(desc.layout, (Layout, kinds.Any)) or has_runtime(desc) or not desc.extras.may_be_permuted:
        raise InvalidArguments(view_fault(desc, view).problem)
    views.require_permutation(what, axes, len(desc.dims))


def _permuted(desc: Described, permutation: Dims) -> Fields:
    layout = desc.layout
    place = views.permute_axes(layout, permutation) if isinstance(layout, Layout) else layout
    return view_of(desc, views.permuted(desc.dims, permutation), place)


def view_fault(desc: Described, what: str) -> Fault:
    """Why `desc` can be neither reshaped nor permuted."""
    everything = (0, len(desc.dims), 0, 0)
    if desc.extras and (what == "reshape" or not desc.extras.may_be_permuted):
        problem = (
            f"{what} needs elements alone: {desc!r} has buffers or factors that belong to its axes; "
            "describe the weights without extras, and fill them last"
        )
        return Fault(everything, "kind", problem)
    if isinstance(desc.layout, Layout) and desc.layout.has_runtime:
        problem = f"{what} needs known dims and strides: {desc!r} has RUNTIME ones, bind them first"
        return Fault(everything, "runtime", problem)
    return Fault(everything, "kind", f"{what} needs a layout or the format any: {kind_text(desc)}")


def submemory(desc: Described, dims: Iterable[int], offsets: Iterable[int]) -> Fields:
    """The fields of `MemoryDesc.submemory`.

    Raises:
        InvalidArguments, Unimplemented: as there.
    """
    size, starts = as_integers("dims", dims), as_integers("offsets", offsets)
    box = _boxed(desc, size, starts)
    if not isinstance(box, Fault):
        return view_of(desc, size, *box)
    from inlay.descriptor.repairs import box_text  # only refusals need it

    raise (InvalidArguments if box.rule == "region" else Unimplemented)(box_text(desc, size, starts, box))


def _boxed(desc: Described, dims: Dims, offsets: Dims) -> tuple[Layout, int] | Fault:
    """The place of the box of `dims` elements at `offsets`, and the offset of its first element."""
    for what, values in (("dims", dims), ("offsets", offsets)):
        if len(values) != len(desc.dims):
            raise InvalidArguments(
                f"{what} {values} of the submemory has {len(values)} entries: its parent has {len(desc.dims)} dims"
            )
    if has_runtime(desc):
        raise Unimplemented(f"submemory needs known dims and strides: {desc!r} has RUNTIME ones, bind them first")
    layout = desc.layout
    if not isinstance(layout, Layout):
        fault = views.region_fault(desc.dims, dims, offsets)
        return fault or Fault((0, len(desc.dims), 0, 0), "kind", f"submemory needs a layout: {kind_text(desc)}")
    box = views.try_submemory(desc.dims, layout, dims, offsets, lambda i: _name(desc, i))
    if not isinstance(box, Fault) and desc.offset0 + box[1] > LARGEST:
        raise InvalidArguments(f"the submemory starts {desc.offset0 + box[1]} elements in, more than 2**63 - 1")
    return box
