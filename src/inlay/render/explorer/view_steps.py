"""Views of the page: reshape, permute and submemory, applied one after another, with refusals and their repairs.

    {"op": "reshape", "dims": "2x17x20", "digits": false}       the same elements under other dims
    {"op": "permute", "axes": "n,h,w,c"}                        the axes in another order, as NumPy's transpose
    {"op": "submemory", "dims": "1x8x5x4", "offsets": "0,8,0,0"}    a box of the tensor

Axes keep their names. A reshape that joins axes joins their names, h and w to hw; one that splits an axis numbers the
parts, c to c0 and c1.

A view that does not exist is an `InvalidField`. Its repairs are whole requests that work: the nearest dims or box, the
view with free digits, or the layout to reorder to first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from keyword import iskeyword
from math import prod
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.descriptor.viewing import nearest_box
from inlay.errors import InlayError, shown
from inlay.layout import Dims, Layout, Refusal
from inlay.layout.permutation import nearest_permutation
from inlay.layout.regroup import match_axes
from inlay.notation.format_tag import FormatTag
from inlay.render.explorer.request import ParsedRequest, split_names
from inlay.render.explorer.typed_text import FieldFault, FieldText, InvalidField, parse_numbers, require_text
from inlay.render.legend import alias_of

Repairs = tuple[Mapping[str, Any], ...]
"""Whole requests that work, as `request`, each with its `text` in words."""


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One view, applied."""

    op: str
    """Name of the view: reshape, permute or submemory."""
    call: str
    """The call of Python that makes the view."""
    desc: MemoryDesc
    """The result."""
    names: tuple[str, ...]
    """One name per axis of the result."""


@dataclass(frozen=True, slots=True)
class ViewContext:
    """A view that is to be applied: where it is in the request, and to what."""

    request: ParsedRequest
    """The request."""
    index: int
    """Index of the view in the request."""
    desc: MemoryDesc
    """The descriptor to view: that of the request, or the result of the view before."""
    names: tuple[str, ...]
    """One name per axis of `desc`."""

    @property
    def view(self) -> Mapping[str, Any]:
        """The view, as it is in the request."""
        return self.request.views[self.index]

    def text(self, part: str) -> str:
        """Return one of the texts of the view.

        Raises:
            InvalidField: the view has no such text.
        """
        if part not in self.view:
            raise InvalidField(FieldFault("request", f"view {self.index} has no key {part!r}: it needs one"))
        return require_text("views", self.view[part])

    def numbers(self, part: str, *, rule: str, has_negative: bool = False) -> Dims:
        """Parse the numbers in one of the texts of the view; errors begin with `rule`.

        Raises:
            InvalidField: the text is wrong.
        """
        return parse_numbers(self.text(part), FieldText("views", rule, self.index, part, has_negative))

    def refuse(
        self, error: InlayError | Refusal[MemoryDesc], part: str, repairs: Repairs = (), suggestions: Sequence[str] = ()
    ) -> InvalidField:
        """Return the error of a view that does not exist: problem and remedy of `error`."""
        problem, _, repair = str(error).partition("\n")
        fault = FieldFault("views", problem, self.text(part), view=self.index, part=part)
        return InvalidField(
            replace(fault, repair=repair.strip() or None, repairs=repairs, suggestions=tuple(suggestions))
        )

    def repaired(self, text: str, **changes: Any) -> Mapping[str, Any]:
        """Return a repair: the request with `changes` of this view, `text` in words."""
        views = list(self.request.views)
        views[self.index] = {**self.view, **changes}
        return {"text": text, "request": {**self.request.source, "views": views}}


def apply_views(request: ParsedRequest) -> Iterator[ViewStep]:
    """Yield the views of a request, each applied to the result of the one before.

    Raises:
        InvalidField: a view is malformed, a text of it is wrong, or it does not exist.

    >>> from inlay.render.explorer.request import parse_request
    >>> views = [{"op": "permute", "axes": "nhwc"}, {"op": "reshape", "dims": "2x20x17"}]
    >>> for step in apply_views(parse_request({"layout": "nchw", "dims": "2x17x5x4", "views": views})):
    ...     print(step.call, step.names, step.desc)
    rename_axes((0, 2, 3, 1)) ('n', 'h', 'w', 'c') f32::blocked:adbc::f0
    reshape((2, 20, 17)) ('n', 'hw', 'c') f32::blocked:acb::f0
    """
    desc, names = request.desc, request.names
    for index, view in enumerate(request.views):
        op = str(view.get("op"))
        if op not in _OPS:
            problem = f"the op of view {index} is {shown(op)}: give one of {', '.join(_OPS)}"
            raise InvalidField(FieldFault("request", problem))
        step = _OPS[op](ViewContext(request, index, desc, names))
        desc, names = step.desc, step.names
        yield step


# Reshape


def _reshape(context: ViewContext) -> ViewStep:
    """Apply a reshape."""
    rule = "dims are whole numbers joined by x, such as 2x17x20, one of which may be -1"
    dims, digits = context.numbers("dims", rule=rule, has_negative=True), context.view.get("digits", False)
    if not isinstance(digits, bool):
        raise InvalidField(
            FieldFault("request", f"digits of view {context.index} is {shown(digits)}: give true or false")
        )
    try:
        result = context.desc.try_reshape(dims, digits=digits)
    except InlayError as error:
        raise context.refuse(error, "dims") from None
    if isinstance(result, Refusal):
        nearest = [dims_text(result.nearest)] if result.nearest else []
        raise context.refuse(result, "dims", tuple(_reshape_repairs(context, result)), nearest)
    arguments = f"{result.dims}, digits=True" if digits else f"{result.dims}"
    return ViewStep(
        "reshape", f"reshape({arguments})", result, reshaped_names(context.desc, context.names, result.dims)
    )


def _reshape_repairs(context: ViewContext, refusal: Refusal[MemoryDesc]) -> Iterator[Mapping[str, Any]]:
    """Yield the repairs of a refusal, the cheapest first."""
    if refusal.nearest:
        text = dims_text(refusal.nearest)
        yield context.repaired(f"reshape to {text}", dims=text)
    if refusal.free is not None:
        yield context.repaired("reshape to free digits, which oneDNN cannot say", digits=True)
    target = refusal.target
    if target is not None and target.tag is not None and context.index == 0:
        layout = _format_text(target.tag, context.names)
        yield {
            "text": f"reorder to {layout} first",
            "request": {**context.request.source, "layout": layout, "views": list(context.request.views)},
        }


def _format_text(tag: str, names: Sequence[str]) -> str:
    """Return the first alias of a tag, if its letters are these names, else the tag.

    >>> _format_text("acdb", "nchw"), _format_text("acdb", "xyzw")
    ('nhwc', 'acdb')
    """
    alias = alias_of(FormatTag.parse(tag))
    return alias if alias is not None and FormatTag.parse(alias).names == tuple(names) else tag


def dims_text(dims: Sequence[int]) -> str:
    """Return dims as they are typed.

    >>> dims_text((2, 17, 5, 4))
    '2x17x5x4'
    """
    return "x".join(map(str, dims))


def reshaped_names(desc: MemoryDesc, names: Sequence[str], dims: Dims) -> tuple[str, ...]:
    """Return one name for each of `dims`, to which `desc`, with axes of these `names`, is reshaped.

    >>> desc = MemoryDesc((2, 16, 5, 4), "f32", "nchw")
    >>> reshaped_names(desc, "nchw", (2, 4, 4, 20)), reshaped_names(desc, "nchw", (1, 640))
    (('n', 'c0', 'c1', 'hw'), ('u', 'nchw'))
    """
    new: list[str] = [""] * len(dims)
    for old, old_end, start, end in match_axes(desc.dims, desc.padded_dims, dims):
        joined, parts = "".join(names[old:old_end]), end - start
        if iskeyword(joined):  # such as i and n: formulas would be no expressions of Python
            joined += "_"
        for i in range(parts):
            new[start + i] = f"{joined}{i}" if joined and parts > 1 else joined or "u"
    return _distinct(new)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return names in which repeated ones are numbered."""
    result: list[str] = []
    for name in names:
        numbered = (f"{name}{i}" for i in count(1))
        unused = (other for other in numbered if other not in (*result, *names))
        result.append(next(unused) if name in result else name)
    return tuple(result)


# Permutation of axes


def _permute(context: ViewContext) -> ViewStep:
    """Apply a permutation of axes, in the order of NumPy's transpose."""
    order, has_names = _parse_order(context)
    ndims = len(context.names)
    axes = tuple(i + ndims if -ndims <= i < 0 else i for i in order)
    try:
        result = context.desc.rename_axes(axes)
    except InlayError as error:
        nearest = nearest_permutation(axes, ndims)
        if nearest == axes:  # the descriptor has no such view, whatever the order
            raise context.refuse(error, "axes") from None
        text = ",".join(context.names[i] if has_names else str(i) for i in nearest)
        repairs = (context.repaired(f"permute to {text}", axes=text),)
        raise context.refuse(error, "axes", repairs, [text]) from None
    return ViewStep("permute", f"rename_axes({axes})", result, tuple(context.names[i] for i in axes))


def _parse_order(context: ViewContext) -> tuple[Dims, bool]:
    """Parse an order of axes: their numbers, or their names, in which case the second value is True."""
    rule = f"axes are names or numbers joined by commas, such as {','.join(reversed(context.names))}"
    text = context.text("axes")
    if any(c.isdigit() for c in text) and not any(c.isalpha() for c in text):
        return context.numbers("axes", rule=rule, has_negative=True), False
    wanted = [text.strip()] if text.strip() in context.names else split_names(text)
    field = FieldText("views", rule, context.index, "axes")
    position = 0
    for name in wanted:
        position = text.index(name, position)
        if name not in context.names:
            field.fail(f"{rule}: {shown(name)} is none of {', '.join(context.names)}", text, position, len(name))
        position += len(name)
    if not wanted:
        field.fail(f"{rule}: a name is missing", text, 0, 1)
    return tuple(context.names.index(name) for name in wanted), True


# Submemory


def _submemory(context: ViewContext) -> ViewStep:
    """Apply the view of a box."""
    dims = context.numbers("dims", rule="dims of the box are whole numbers joined by x, such as 1x8x5x4")
    offsets = context.numbers("offsets", rule="offsets are whole numbers joined by commas, such as 0,8,0,0")
    try:
        result = context.desc.submemory(dims, offsets)
    except InlayError as error:
        part = "offsets" if "offsets" in str(error).partition(" of the submemory")[0] else "dims"
        raise context.refuse(error, part, tuple(_box_repairs(context, dims, offsets))) from None
    return ViewStep("submemory", f"submemory({dims}, {offsets})", result, context.names)


def _box_repairs(context: ViewContext, dims: Dims, offsets: Dims) -> Iterator[Mapping[str, Any]]:
    """Yield the nearest box that has a view, if the box has an entry for each axis."""
    desc = context.desc
    if not isinstance(desc.layout, Layout) or not len(dims) == len(offsets) == desc.ndims:
        return
    box = [nearest_box(*each) for each in zip(desc.dims, desc.layout.axes, dims, offsets, strict=True)]
    if prod(size for size, _ in box):
        size, start = dims_text([size for size, _ in box]), ",".join(str(start) for _, start in box)
        yield context.repaired(f"{size} elements at {start}", dims=size, offsets=start)


_OPS: Mapping[str, Callable[[ViewContext], ViewStep]] = {
    "reshape": _reshape,
    "permute": _permute,
    "submemory": _submemory,
}
"""The function of each view."""
