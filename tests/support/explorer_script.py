"""Random layouts for the script of the explorer's page, what it must compute, and runs of it in Node and in a browser.

A case is a layout, in the JSON that the page gets, with coordinates and offsets. The script answers with offsets,
digits, formulas and coordinates as texts, since JSON has no integers beyond 2**53.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.errors import InlayError
from inlay.layout import Axis, Digit, Dims, Layout, Swizzle
from inlay.render.legend import offset_formula
from inlay.testing import Seeded, draw_descriptor, draw_layout, draw_swizzle, draw_tag
from tests.support.paths import ROOT

PAGE = ROOT / "src" / "inlay" / "render" / "explorer" / "page"
"""The files of the page."""
NAMES = "abcdefghijkl"
"""Names of the axes of cases."""
_POINTS = 5
"""Coordinates and offsets of each case."""

PROBE = """(cases, layouts, formulas) => cases.map(({ layout, coordinates, offsets }) => ({
  offsets: coordinates.map((c) => String(layouts.offsetOf(layout, c))),
  digits: coordinates.map((c) => layouts.digitsOf(layout, c).map((digits) => digits.map(String))),
  formulas: coordinates.map((c) => formulas.formulaAt(layout, c)),
  symbols: formulas.symbolicFormula(layout),
  found: offsets.map((offset) => {
    const found = layouts.coordinateAt(layout, offset);
    return found === null ? null : [found.coordinate.map(String), found.isPadding, found.isShared];
  }),
}))"""
"""A function of JavaScript that answers cases; its arguments are the cases and two modules of the page."""

_NODE_PROGRAM = f"""
import {{ readFileSync }} from "node:fs";
import * as layouts from "./layout.js";
import * as formulas from "./formula.js";
const answer = {PROBE};
console.log(JSON.stringify(answer(JSON.parse(readFileSync("values.json", "utf8")), layouts, formulas)));
"""


@dataclass(frozen=True)
class LayoutCase:
    """One random layout with coordinates and offsets."""

    desc: MemoryDesc
    """The descriptor."""
    coordinates: tuple[Dims, ...]
    """Coordinates below the padded dims."""
    offsets: tuple[int, ...]
    """Offsets of elements, of gaps, and outside."""

    @property
    def json(self) -> dict[str, Any]:
        """The case as the script gets it; numbers beyond 2**53 are texts."""
        desc = self.desc
        layout = {
            "names": list(NAMES[: desc.ndims]),
            "dims": desc.dims,
            "padded_dims": desc.padded_dims,
            "padded_offsets": desc.padded_offsets,
            "digits": [[{"extent": d.extent, "stride": d.stride} for d in digits] for digits in _layout(desc).digits],
            "offset0": desc.offset0,
            "swizzle": swizzle_json(desc.swizzle),
        }
        return dict(_exact({"layout": layout, "coordinates": self.coordinates, "offsets": self.offsets}))


def _layout(desc: MemoryDesc) -> Layout:
    """The digits of a descriptor, before its swizzle."""
    return addressed_layout(desc, "a case")[0]


def swizzle_json(swizzle: Swizzle | None) -> dict[str, int] | None:
    """The numbers of a swizzle."""
    return None if swizzle is None else {"bits": swizzle.bits, "base": swizzle.base, "shift": swizzle.shift}


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _exact(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(entry) for entry in value]
    return str(value) if type(value) is int and abs(value) > 2**53 - 1 else value


def random_cases(seed: int, count: int) -> list[LayoutCase]:
    """`count` cases: all forms of descriptors, any strides, swizzles, and dims and strides up to 2**61."""
    choose = Seeded(seed)
    kinds = (_small, _small, _small, _overlapping, _swizzled, _huge)
    return [_case(choose, choose.pick(kinds)(choose)) for _ in range(count)]


def _small(choose: Seeded) -> MemoryDesc:
    return draw_descriptor(choose, broadcast=True)


def _overlapping(choose: Seeded) -> MemoryDesc:
    """A layout of any strides, which may overlap; its lowest element has a small offset."""
    while True:
        layout = draw_layout(choose, max_size=300)
        if layout.ndims and prod(layout.dims):
            return MemoryDesc.from_layout(layout, "u8", offset0=choose.integer(0, 9) - layout.span[0])


def _swizzled(choose: Seeded) -> MemoryDesc:
    while True:
        tag = draw_tag(choose, choose.integer(1, 3), max_blocks=2)
        dims = tuple(choose.integer(1, 20) for _ in range(tag.ndims))
        try:
            return MemoryDesc(dims, "u8", f"{draw_swizzle(choose)} o {tag}", offset0=choose.pick((0, 0, 24)))
        except InlayError:
            continue


def _huge(choose: Seeded) -> MemoryDesc:
    """A layout whose digits nest at random, with strides up to 2**61."""
    inner = [[choose.integer(2, 9) for _ in range(choose.integer(0, 2))] for _ in range(choose.integer(1, 3))]
    leading = [choose.integer(1, 2 ** choose.integer(1, 16)) for _ in inner]
    places = [(i, j) for i, extents in enumerate(inner) for j in range(len(extents) + 1)]
    strides, step = {}, choose.integer(1, 2)
    for i, j in choose.shuffled(places):
        strides[i, j] = step
        extent = inner[i][j - 1] if j else leading[i]
        step *= extent * choose.pick((1, 1, 3))
        step = step if step < 2**60 else 1
    axes = [
        Axis(strides[i, 0], tuple(Digit(e, strides[i, j + 1]) for j, e in enumerate(extents)))
        for i, extents in enumerate(inner)
    ]
    dims = tuple(n * prod(extents) for n, extents in zip(leading, inner, strict=True))
    return MemoryDesc.from_layout(Layout(dims, tuple(axes)), "u8", offset0=choose.pick((0, 3, 2**40)))


def _case(choose: Seeded, desc: MemoryDesc) -> LayoutCase:
    if 0 in desc.padded_dims:
        return LayoutCase(desc, (), (desc.offset0, 0, 5))
    padded = desc.padded_dims
    points = [tuple(choose.integer(0, n - 1) for n in padded) for _ in range(_POINTS - 1)]
    points.append(tuple(n - 1 for n in padded))
    own = [int(desc.offset(point)) for point in points]
    low, high = min(own), max(own)
    others = [choose.integer(max(0, low - 2), high + 2) for _ in range(_POINTS)]
    return LayoutCase(desc, tuple(points), (*own, *others))


def expected_answer(case: LayoutCase) -> dict[str, Any]:
    """What the script must answer, from `MemoryDesc` and from a search of all coordinates."""
    desc = case.desc
    return {
        "offsets": [str(int(desc.offset(point))) for point in case.coordinates],
        "digits": [
            [_digits(x, digits) for x, digits in zip(c, _layout(desc).digits, strict=True)] for c in case.coordinates
        ],
        "symbols": offset_formula(_without_swizzle(desc), NAMES[: desc.ndims]),
        "found": list(_found(case)),
    }


def _digits(x: int, digits: Sequence[Digit]) -> list[str]:
    values: list[str] = []
    for digit in digits[:0:-1]:
        x, value = divmod(x, digit.extent)
        values.insert(0, str(value))
    return [str(x), *values]


def _without_swizzle(desc: MemoryDesc) -> MemoryDesc:
    if desc.swizzle is None:
        return desc
    return MemoryDesc.from_layout(_layout(desc), "u8")


def _found(case: LayoutCase) -> Iterator[list[Any] | None]:
    desc = case.desc
    volume = prod(desc.padded_dims)
    offsets = _all_offsets(desc) if volume <= 30_000 else None
    for offset in case.offsets:
        if offsets is None:
            point = desc.coordinate(offset)
            yield None if point is None else [list(map(str, point)), bool(desc.is_padding(point)), False]
            continue
        hits = np.flatnonzero(offsets == offset)
        if not len(hits):
            yield None
            continue
        point = tuple(int(x) for x in np.unravel_index(int(hits[0]), desc.padded_dims))
        is_padding = any(x >= n for x, n in zip(point, desc.dims, strict=True))
        yield [list(map(str, point)), is_padding, len(hits) > 1]


def _all_offsets(desc: MemoryDesc) -> np.ndarray[Any, Any]:
    """The offset of every padded coordinate, in row-major order."""
    if 0 in desc.padded_dims:
        return np.empty(0, np.int64)
    points = np.indices(desc.padded_dims).reshape(desc.ndims, -1).T
    return np.asarray(desc.offset(points))


def formula_value(formula: str) -> tuple[int, int]:
    """The value of the computation in a formula as Python evaluates it, and the offset that the formula states."""
    if ";" not in formula:
        left, _, right = formula.partition(" = ")
        return _evaluate(left), int(right or left)
    first, second = formula.split("; ")
    left, _, right = first.removeprefix("s = ").partition(" = ")
    s = _evaluate(left)
    assert s == int(right or left)
    expression, _, stated = second.partition(" = ")
    return _evaluate(expression, s), int(stated)


def _evaluate(expression: str, s: int = 0) -> int:
    assert set(expression) <= set("0123456789 +-*/%()^&<>s"), expression
    return int(eval(expression, {"__builtins__": {}}, {"s": s}))  # only digits and operators, see above


def check_answers(cases: Sequence[LayoutCase], answers: Sequence[dict[str, Any]]) -> None:
    """Fail if the script answers otherwise than Python."""
    assert len(cases) == len(answers)
    for case, answer in zip(cases, answers, strict=True):
        formulas = answer.pop("formulas")
        assert answer == expected_answer(case), case
        for point, formula in zip(case.coordinates, formulas, strict=True):
            offset = int(case.desc.offset(point))
            assert formula_value(formula) == (offset, offset), (case, point, formula)


def answer_in_node(folder: Path, cases: Sequence[LayoutCase]) -> list[dict[str, Any]]:
    """The answers of the script, run by Node in `folder`."""
    return list(run_in_node(folder, _NODE_PROGRAM, [case.json for case in cases]))


def run_in_node(folder: Path, program: str, values: object) -> Any:
    """What a program of JavaScript prints as JSON; it finds the modules of the page, and `values` in values.json."""
    node = shutil.which("node")
    assert node is not None
    for path in PAGE.glob("*.js"):
        shutil.copy(path, folder / path.name)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "values.json").write_text(json.dumps(values))
    (folder / "probe.js").write_text(program)
    done = subprocess.run([node, "probe.js"], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
