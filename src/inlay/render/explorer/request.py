"""A request of the page: texts as they were typed, and the descriptor that they describe.

    {"layout": "nChw8c", "dims": "2x17x5x4", "data_type": "f32", "names": null, "views": [], "offset0": "0"}

`layout` is any text of `parse_notation`, or strides. Strides may be negative or let elements overlap, as those of NumPy
may; the origin is then moved so that the lowest element has offset 0.

>>> parse_request({"layout": "320,20,4,1", "dims": "2x16x5x4"}).desc
MemoryDesc((2, 16, 5, 4), 'f32', 'abcd')
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.compound_format import CompoundFormat
from inlay.descriptor.compound_table import find_compound
from inlay.errors import InlayError, InvalidArguments, NotationError, shown
from inlay.layout import Dims, Layout
from inlay.notation.dictionary import list_rows
from inlay.notation.format_tag import FormatTag
from inlay.render import show
from inlay.render.explorer.suggestions import suggest_formats, suggest_layouts
from inlay.render.explorer.typed_text import (
    DIMS,
    STRIDES,
    FieldFault,
    FieldText,
    InvalidField,
    locate,
    parse_data_type,
    parse_numbers,
    require_text,
)
from inlay.render.legend import checked_names, names_of

DEFAULT_TYPE = "f32"
"""Data type of a request without one."""
_KEYS = ("layout", "dims", "data_type", "names", "views", "offset0")
_STRIDES = re.compile(r"[(\[]?\s*[-−]?[0-9][^:>]*")
"""The form of strides without white space around: a number first, and no colon or arrow after it."""
_OFFSET0 = FieldText("offset0", "offset0 is one whole number of elements, such as 64", most=1)


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request whose texts describe a layout."""

    desc: MemoryDesc
    """The descriptor, before the views."""
    names: tuple[str, ...]
    """One name per axis of `desc`."""
    views: tuple[Mapping[str, Any], ...]
    """The views, as they are in the request."""
    source: Mapping[str, Any]
    """The request itself."""


def make_request(
    layout: str,
    dims: str,
    data_type: str = DEFAULT_TYPE,
    names: str | Sequence[str] | None = None,
    views: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the request for a layout, after a check of its texts other than views.

    Raises:
        InvalidField: a text is wrong.

    >>> make_request("nchw", "2x3x4x5", names="bchw")["names"]
    ['b', 'c', 'h', 'w']
    """
    axes = split_names(names) if isinstance(names, str) else list(names or ())
    request = {"layout": layout, "dims": dims, "data_type": data_type, "names": axes or None, "views": list(views)}
    parse_request(request)
    return request


def parse_view(text: str) -> dict[str, Any]:
    """Parse a view as the address of the page has it.

    Raises:
        InvalidField: `text` is no view; its own texts are not checked.

    >>> parse_view("reshape:2x17x20"), parse_view("submemory:1x8x5x4@0,8,0,0")
    ({'op': 'reshape', 'dims': '2x17x20'}, {'op': 'submemory', 'dims': '1x8x5x4', 'offsets': '0,8,0,0'})
    """
    op, _, value = text.partition(":")
    dims, at, offsets = value.partition("@")
    forms: dict[str, dict[str, Any]] = {
        "reshape": {"op": "reshape", "dims": value},
        "digits": {"op": "reshape", "dims": value, "digits": True},
        "permute": {"op": "permute", "axes": value},
        "submemory": {"op": "submemory", "dims": dims, "offsets": offsets},
    }
    if op not in forms or not value or (op == "submemory") != bool(at):
        problem = (
            "a view is reshape:2x17x20, permute:n,h,w,c, submemory:1x8x5x4@0,8,0,0, or digits:32x20 for a reshape to "
            f"free digits, not {shown(text)}"
        )
        raise InvalidField(FieldFault("views", problem, text))
    return forms[op]


def _view_text(view: Mapping[str, Any]) -> str:
    """Return a view as the address of the page has it.

    >>> _view_text(parse_view("digits:32x20")), _view_text(parse_view("submemory:1x8@0,8"))
    ('digits:32x20', 'submemory:1x8@0,8')
    """
    if view["op"] == "permute":
        return f"permute:{view['axes']}"
    if view["op"] == "submemory":
        return f"submemory:{view['dims']}@{view['offsets']}"
    return f"{'digits' if view.get('digits') else 'reshape'}:{view['dims']}"


def example_dims(layout: str) -> str:
    """Return small dims for a layout, as `inlay.show` draws it; blocked axes are padded where they may be.

    Raises:
        InvalidField: `layout` is no layout, or is strides, which do not say the dims.

    >>> example_dims("nChw8c")
    '2x9x2x2'
    """
    if _STRIDES.fullmatch(layout.strip()):
        raise InvalidField(FieldFault("dims", f"the strides {layout} do not say the dims: give them too", layout))
    fmt = find_compound(layout.strip())
    if fmt is not None:
        raise InvalidField(_compound_fault(fmt, layout))
    try:
        return "x".join(map(str, show(layout).desc.dims))
    except NotationError as error:
        raise InvalidField(_notation_fault(error, layout, None)) from None


def fragment_of(requests: Sequence[Mapping[str, Any]]) -> str:
    """Return the fragment of a URL with which the page shows up to two layouts; empty if there are none.

    >>> fragment_of([make_request("n (c c8) -> n c c8", "2x17"), make_request("ab", "2x17")])
    '#l=n%20(c%20c8)%20-%3E%20n%20c%20c8&d=2x17&t=f32&l2=ab&t2=f32'
    """
    parts: list[tuple[str, str]] = []
    for number, request in zip(("", "2"), requests, strict=False):
        parts += [(f"l{number}", request["layout"]), (f"t{number}", request["data_type"])]
        if not number:
            parts.insert(1, ("d", request["dims"]))
            parts += [("n", ",".join(request["names"]))] if request["names"] else []
            parts += [("v", _view_text(view)) for view in request["views"]]
    return "#" + "&".join(f"{key}={quote(value, safe='(),:@')}" for key, value in parts) if parts else ""


def parse_request(request: object) -> ParsedRequest:
    """Parse a request: its dims first, then data type, layout, offset0 and names.

    Raises:
        InvalidField: the request is malformed, or a text of it is wrong.
    """
    values = _require_keys(request)
    dims = _parse_dims(require_text("dims", values["dims"]))
    data_type = parse_data_type(require_text("data_type", values.get("data_type") or DEFAULT_TYPE))
    offset0 = _parse_offset0(values.get("offset0"))
    desc = _create_desc(require_text("layout", values["layout"]), dims, data_type, offset0)
    names = _parse_names(values.get("names"), desc)
    return ParsedRequest(desc, names, _require_views(values.get("views")), values)


def _require_keys(request: object) -> Mapping[str, Any]:
    """Return the request, if it is an object with the keys of requests."""
    if not isinstance(request, Mapping):
        raise InvalidField(FieldFault("request", f"a request is an object of JSON, not {shown(request)}"))
    unknown = [key for key in request if key not in _KEYS]
    if unknown:
        problem = f"a request has no key {shown(unknown[0])}: its keys are {', '.join(_KEYS)}"
        raise InvalidField(FieldFault("request", problem))
    missing = [key for key in ("layout", "dims") if key not in request]
    if missing:
        raise InvalidField(FieldFault("request", f"the request has no key {missing[0]!r}: it needs layout and dims"))
    return request


def _parse_dims(text: str) -> Dims:
    """Parse dims, and check that a dense tensor of bytes can have them."""
    dims = parse_numbers(text, DIMS)
    try:
        MemoryDesc(dims, "u8")
    except InlayError as error:
        raise InvalidField(FieldFault("dims", str(error), text)) from None
    return dims


def _parse_offset0(value: object) -> int:
    """Parse the offset of the origin; None and an empty text are 0."""
    if value is None or value == "":
        return 0
    text = str(value) if type(value) is int else require_text("offset0", value)
    return parse_numbers(text, _OFFSET0)[0]


def _create_desc(text: str, dims: Dims, data_type: DataType, offset0: int) -> MemoryDesc:
    """Create the descriptor of a layout that was typed."""
    try:
        if _STRIDES.fullmatch(text.strip()):
            desc = _create_strided(parse_numbers(text, STRIDES), dims, data_type, offset0)
        else:
            desc = MemoryDesc(dims, data_type, text.strip(), offset0=offset0)
    except InvalidField:
        raise
    except NotationError as error:
        raise InvalidField(_notation_fault(error, text, len(dims))) from None
    except InlayError as error:
        raise InvalidField(_layout_fault(error, text, dims, data_type)) from None
    if not isinstance(desc.layout, (Layout, kinds.SwizzledLayout)):
        problem = f"{text.strip()} is no layout: give a tag such as nchw, a pattern, a vendor's name, or strides"
        raise InvalidField(FieldFault("layout", problem, text))
    return desc


def _create_strided(strides: Dims, dims: Dims, data_type: DataType, offset0: int) -> MemoryDesc:
    """Create the descriptor of any strides; negative ones count down from the last element."""
    layout = Layout.from_strides(dims, strides)
    lowest = 0 if 0 in dims else layout.span[0]
    return MemoryDesc.from_layout(layout, data_type, offset0=offset0 - min(0, lowest))


def _notation_fault(error: NotationError, text: str, ndims: int | None) -> FieldFault:
    """Return the fault of a text that no notation can read, with the column and what may be meant."""
    column, length = locate(error, text)
    suggestions = tuple(suggest_layouts(text, ndims))
    return FieldFault("layout", error.problem, text, column, length, suggestions=suggestions)


def _layout_fault(error: InlayError, text: str, dims: Dims, data_type: DataType) -> FieldFault:
    """Return the fault of a layout that these dims, this data type or this offset0 cannot have."""
    fmt = find_compound(text.strip())
    if fmt is not None:
        return _compound_fault(fmt, text)
    problem, _, repair = str(error).partition("\n")
    field = "offset0" if problem.startswith("offset0") else "layout"
    suggestions = _plain_strides(text, dims, data_type) or suggest_formats(text, len(dims))
    fault = FieldFault(field, problem, text if field == "layout" else "", repair=repair.strip() or None)
    return replace(fault, suggestions=tuple(suggestions) if field == "layout" else ())


def _compound_fault(fmt: CompoundFormat, text: str) -> FieldFault:
    """Return the fault of a compound format, which is no layout; its streams are."""
    streams = tuple(row.name for row in list_rows() if row.name.startswith(f"{fmt.name}."))
    problem = f"{fmt.name} is a compound format, which is drawn bit by bit: `inlay show {fmt.name} DIMS`"
    return FieldFault("layout", problem, text, suggestions=streams)


def _plain_strides(text: str, dims: Dims, data_type: DataType) -> list[str]:
    """Return the strides of a plain tag that exceeds oneDNN's bound on tags, if the tensor can have them."""
    try:
        layout = FormatTag.parse(text.strip()).layout(dims)
        strides = tuple(axis.stride for axis in layout.axes if not axis.inner)
        _create_strided(strides, dims, data_type, 0)
    except InlayError:
        return []
    return [",".join(map(str, strides))]


def _parse_names(value: object, desc: MemoryDesc) -> tuple[str, ...]:
    """Return one name per axis: those that were typed, or those of the layout if nothing was."""
    if value is None or value in ("", []):
        return names_of(desc)
    if isinstance(value, str):
        value = split_names(require_text("names", value))
    if not isinstance(value, Sequence):
        raise InvalidField(FieldFault("request", f"names is {shown(value)}: give a list of texts, or null"))
    try:
        return checked_names(value, desc.ndims)
    except InvalidArguments as error:
        raise InvalidField(FieldFault("names", str(error), ",".join(map(str, value)))) from None


def split_names(text: str) -> list[str]:
    """Return the names in a text: those between commas or spaces, or the letters of one word.

    >>> split_names("n, row, col"), split_names("nhwc")
    (['n', 'row', 'col'], ['n', 'h', 'w', 'c'])
    """
    parts = re.findall(r"[^\s,()\[\]]+", text)
    return list(parts[0]) if len(parts) == 1 and "," not in text else parts


def _require_views(value: object) -> tuple[Mapping[str, Any], ...]:
    """Return the views of a request, if it is a list of objects."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(view, Mapping) for view in value):
        raise InvalidField(FieldFault("request", f"views is {shown(value)}: give a list of objects, each with its op"))
    if len(value) > _MOST_VIEWS:
        raise InvalidField(FieldFault("request", f"there are {len(value)} views: give at most {_MOST_VIEWS}"))
    return tuple(value)


_MOST_VIEWS = 32
"""Number of views of a request."""
