"""The JSON of a reorder between two layouts: both layouts, and the compiled reorder in words.

>>> answer = explore_reorder({"src": {"layout": "ab", "dims": "64x64"}, "dst": {"layout": "ba", "dims": "64x64"}})
>>> answer["runs"].partition("; ")[0], answer["bytes"]
('up to 64 neighbors in the source go 64 elements apart', '32.8 kB are read and written')
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.descriptor.queries import bytes_text
from inlay.errors import InlayError, shown
from inlay.layout import DigitMap
from inlay.render.explorer.model import read_layout
from inlay.render.explorer.typed_text import FieldFault, InvalidField
from inlay.render.explorer.view_steps import dims_text


def explore_reorder(request: object) -> dict[str, Any]:
    """Return the JSON of both layouts of a request, and of the reorder between them.

    Raises:
        InvalidField: the request is malformed, a text of one side is wrong, the dims differ, or there is no such
            reorder; `side` says of which layout.
    """
    if not isinstance(request, Mapping) or set(request) != {"src", "dst"}:
        raise InvalidField(FieldFault("request", f"a reorder is an object with src and dst, not {shown(request)}"))
    sides = {}
    for side in ("src", "dst"):
        try:
            sides[side] = read_layout(request[side])
        except InvalidField as error:
            raise InvalidField(replace(error.fault, side=side)) from None
    src, dst = sides["src"], sides["dst"]
    _require_equal_dims(src.desc, dst.desc)
    return {"src": src.to_json(), "dst": dst.to_json(), **_describe_reorder(src.desc, dst.desc)}


def _require_equal_dims(src: MemoryDesc, dst: MemoryDesc) -> None:
    """Check that a reorder between two descriptors keeps the dims."""
    if src.dims != dst.dims:
        wanted = dims_text(src.dims)
        problem = f"a reorder keeps the dims, but the source has {wanted} and the destination {dims_text(dst.dims)}"
        raise InvalidField(FieldFault("dims", problem, side="dst", suggestions=(wanted,)))


def _describe_reorder(src: MemoryDesc, dst: MemoryDesc) -> dict[str, Any]:
    """Return the compiled reorder in words: kernel, contiguous runs, bytes, and every stage."""
    # Imported here because it loads the compiler, which most pages do not need.
    from inlay.memory.pack_reorder import Reorder
    from inlay.reordering.nest import build_loop_nest
    from inlay.reordering.problem import build_reorder_problem

    try:
        lines = Reorder(src, dst).explain().splitlines()
        problem = build_reorder_problem(src, dst)
        nest = build_loop_nest(problem)
    except InlayError as error:
        types = (src.data_type, dst.data_type)
        is_conversion = types[0] != types[1] and not all(element is not None and element.is_number for element in types)
        raise InvalidField(FieldFault("data_type" if is_conversion else "layout", str(error), side="dst")) from None
    swizzled = "" if src.swizzle is None and dst.swizzle is None else ", before the swizzle"
    return {
        "kernel": _kernel(lines),
        "runs": _runs([(loop.extent, *loop.maps) for loop in nest.loops]) + swizzled,
        "bytes": f"{bytes_text(problem.moved_bytes)} are read and written",
        "lines": lines,
    }


def _kernel(lines: Iterable[str]) -> str:
    """Return tile, instructions, stores and expected time from the report of a reorder."""
    texts = [line.strip().partition(" (bits")[0] for line in lines]
    tiles = [text for text in texts if text.startswith("tile of ")]
    each = [text.removeprefix("each ").rpartition(", ")[0] for text in texts if text.startswith("each ")]
    rest = [text for text in texts if text.startswith(("stores ", "expected "))]
    return "; ".join([*tiles, *(f"{text} a tile" for text in each), *rest]) or "nothing to move"


def _runs(loops: Sequence[tuple[int, DigitMap, DigitMap]]) -> str:
    """Return what becomes of neighbors; each loop has its extent, and its strides or tables in source and destination.

    >>> _runs([(20, 1, 1), (3, 20, 40)])
    'up to 20 neighbors in the source stay neighbors'
    """
    from_src = next(((extent, dst) for extent, src, dst in loops if src == 1), None)
    from_dst = next(((extent, src) for extent, src, dst in loops if dst == 1), None)
    if from_src is not None and from_src[1] == 1:
        return f"up to {from_src[0]} neighbors in the source stay neighbors"
    parts = []
    if from_src is not None:
        parts.append(f"up to {from_src[0]} neighbors in the source go {_distance(from_src[1])}")
    if from_dst is not None:
        parts.append(f"up to {from_dst[0]} neighbors in the destination come from {_distance(from_dst[1])}")
    return "; ".join(parts) or "no two elements are neighbors in memory"


def _distance(places: DigitMap) -> str:
    """Return in words how far apart the elements of a loop are."""
    return f"{places} elements apart" if isinstance(places, int) else "places of no single stride"
