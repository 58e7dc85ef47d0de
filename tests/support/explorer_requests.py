"""Random requests of the explorer: layouts in every notation, with views, in small and in large dims."""

from collections.abc import Iterator
from math import prod
from random import Random
from typing import Any

from inlay.data_type import DATA_TYPES
from inlay.errors import InlayError
from inlay.notation import parse_notation
from inlay.notation.dictionary import list_rows
from inlay.notation.format_tag import ALIASES, ENUMERATED
from inlay.notation.pattern import read_axes
from inlay.render.explorer.request import parse_request
from inlay.render.explorer.typed_text import InvalidField
from inlay.render.explorer.view_steps import apply_views

_TAGS = tuple(ENUMERATED)
_ALIASES = tuple(ALIASES)
_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33)


def random_requests(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield `count` requests that `explore_layout` accepts, in every notation and one in three with views."""
    random = Random(seed)
    names = [row.name for row in list_rows()]
    while count:
        layout, dims = random.choice(_KINDS)(random, names)
        request: dict[str, Any] = {
            "layout": layout,
            "dims": "x".join(map(str, dims)),
            "data_type": random.choice(tuple(DATA_TYPES)),
            "names": None,
            "views": [],
            "offset0": str(2 * random.randrange(50)) if random.random() < 0.2 else "0",
        }
        try:
            parse_request(request)
        except InvalidField:  # such as odd strides of types of 4 bits
            continue
        if random.random() < 0.33:
            request["views"] = list(_random_views(random, request))
        count -= 1
        yield request


def _random_dims(random: Random, ndims: int) -> list[int]:
    """Small dims; one in eight times, one of them is large."""
    dims = [random.choice(_EXTENTS) for _ in range(ndims)]
    while prod(dims) > 50_000:
        dims[dims.index(max(dims))] = random.choice((1, 2, 3))
    if random.random() < 0.125:
        dims[random.randrange(ndims)] = random.choice((1_000_003, 10**9 + 7, 2**40 + 1))
    return dims


def _tag(random: Random, _: list[str]) -> tuple[str, list[int]]:
    text = random.choice(random.choice((_TAGS, _ALIASES)))
    return text, _random_dims(random, parse_notation(text).ndims)


def _vendor_name(random: Random, names: list[str]) -> tuple[str, list[int]]:
    text = random.choice(names)
    notation = parse_notation(text)
    dims = _random_dims(random, notation.ndims)
    for i, axis in enumerate(read_axes(notation.spelling)):
        dims[i] = axis.block if axis.is_fixed else dims[i]
    return text, dims


def _pattern(random: Random, _: list[str]) -> tuple[str, list[int]]:
    """Axes of up to three digits, in any order in memory."""
    names = "xyzw"[: random.randint(1, 4)]
    axes, digits = [], []
    for name in names:
        inner = [f"{name}{letter}{random.choice((2, 3, 4, 8))}" for letter in "pq"[: random.randint(0, 2)]]
        axes.append(f"({' '.join([name, *inner])})" if inner else name)
        digits += [name, *inner]
    random.shuffle(digits)
    return f"{' '.join(axes)} -> {' '.join(digits)}", _random_dims(random, len(names))


def _strides(random: Random, _: list[str]) -> tuple[str, list[int]]:
    """Strides with gaps, of any sign, one in ten times of overlapping elements."""
    dims = _random_dims(random, random.randint(1, 4))
    order = random.sample(range(len(dims)), len(dims))
    strides, step = [0] * len(dims), 1
    for i in order:
        strides[i] = step * random.choice((1, 1, -1))
        step = abs(step) * dims[i] + random.choice((0, 0, 0, 2, 6))
    if random.random() < 0.1:
        strides[random.randrange(len(dims))] = random.choice((0, 1))
    return ",".join(map(str, strides)), dims


def _shape_stride(random: Random, _: list[str]) -> tuple[str, list[int]]:
    """CuTe's text, half of the time with a swizzle."""
    rows, columns = random.choice((4, 8, 16)), random.choice((32, 64, 128))
    text = f"(({rows},2),{columns}):(({columns},{rows * columns}),1)"
    if random.random() < 0.5:
        text = f"Swizzle<{random.choice(('3,4,3', '2,3,3', '1,0,2', '2,2,-3'))}> o {text}"
    return text, [2 * rows - random.choice((0, 1)), columns]


_KINDS = (_tag, _tag, _vendor_name, _pattern, _pattern, _strides, _shape_stride)


def _random_views(random: Random, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Up to three views that exist, each of the result of the one before."""
    views: list[dict[str, Any]] = []
    for _ in range(random.randint(1, 3)):
        *_, desc = [
            parse_request(request).desc,
            *(step.desc for step in apply_views(parse_request({**request, "views": views}))),
        ]
        view = random.choice((_permute, _submemory, _reshape))(random, desc.dims)
        try:
            list(apply_views(parse_request({**request, "views": [*views, view]})))
        except InlayError:
            continue
        views.append(view)
    yield from views


def _permute(random: Random, dims: tuple[int, ...]) -> dict[str, Any]:
    return {"op": "permute", "axes": ",".join(map(str, random.sample(range(len(dims)), len(dims))))}


def _submemory(random: Random, dims: tuple[int, ...]) -> dict[str, Any]:
    starts = [random.choice((0, 0, 8, 16, dim // 2)) if dim > 1 else 0 for dim in dims]
    sizes = [max(1, dim - start) for dim, start in zip(dims, starts, strict=True)]
    return {"op": "submemory", "dims": "x".join(map(str, sizes)), "offsets": ",".join(map(str, starts))}


def _reshape(random: Random, dims: tuple[int, ...]) -> dict[str, Any]:
    """Two neighboring axes joined, or one split."""
    at, entries = random.randrange(len(dims)), list(dims)
    if random.random() < 0.5 and at + 1 < len(dims):
        entries[at : at + 2] = [entries[at] * entries[at + 1]]
    else:
        part = random.choice([part for part in (2, 3, 4, 1) if entries[at] % part == 0])
        entries[at : at + 1] = [entries[at] // part, part]
    return {"op": "reshape", "dims": "x".join(map(str, entries)), "digits": random.random() < 0.5}
