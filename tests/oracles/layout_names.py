"""Offsets of elements in the layouts of the dictionary, computed from the vendors' own words and not from our patterns.

Most rows have a formula in `tests/data/layout_formulas.txt`. The names of four vendors follow a grammar that says all:
here it is read from the name. The packers of Marlin, AWQ and ExLlama are loops over tables of permutations in their
sources; here they are such tables too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from tests.support.paths import DATA

Integers = npt.NDArray[np.int64]
Dims = Mapping[str, int]


def expected_offsets(name: str, axes: Sequence[str], dims: Sequence[int]) -> Integers:
    """The element offset of every coordinate of a tensor of `dims`, as the vendor of a row defines it."""
    grids = dict(zip(axes, np.indices(tuple(dims), dtype=np.int64), strict=True))
    sizes = dict(zip(axes, dims, strict=True))
    vendor, _, local = name.partition(":")
    if vendor in GRAMMARS:
        return GRAMMARS[vendor](local, grids, sizes)
    if name in PERMUTATIONS:
        return PERMUTATIONS[name](grids, sizes)
    return _from_formula(formulas()[name], grids, sizes)


@cache
def formulas() -> dict[str, str]:
    lines = (DATA / "layout_formulas.txt").read_text().splitlines()
    return {line.split()[0]: line.partition(" ")[2] for line in lines if line and line[0] != "#"}


# Formulas


def _up(a: int, b: int) -> int:
    return (a + b - 1) // b


def _evaluate(expression: str, grids: Mapping[str, Integers], sizes: Dims) -> Integers:
    """The value of an expression in C for every coordinate; a dim is the upper-case name of its axis."""
    names = {**grids, **{axis.upper(): dim for axis, dim in sizes.items()}, "up": _up}
    python = expression.replace("/", "//").replace("c&7>=4", "(c&7)>=4")
    return np.asarray(eval(python, {"__builtins__": {}}, names))


def _from_formula(formula: str, grids: Mapping[str, Integers], sizes: Dims) -> Integers:
    if formula.startswith("="):
        return _evaluate(formula[1:], grids, sizes)
    subscripts = [_evaluate(text.partition(":")[0], grids, sizes) for text in re.findall(r"\[(.*?)\]", formula)]
    multiples = [int(text.partition(":")[2] or 1) for text in re.findall(r"\[(.*?)\]", formula)]
    return _in_array(subscripts, multiples)


def _in_array(subscripts: Sequence[Integers], multiples: Sequence[int] | None = None) -> Integers:
    """The offset in an array of C whose extents are just large enough, rounded up to these multiples."""
    extents = [int(subscript.max()) + 1 for subscript in subscripts]
    rounded = [_up(extent, m) * m for extent, m in zip(extents, multiples or [1] * len(extents), strict=True)]
    offset = np.zeros_like(subscripts[0])
    for subscript, extent in zip(subscripts, rounded, strict=True):
        offset = offset * extent + subscript
    return offset


# Names with a grammar


def _nested(outer: str, blocks: Sequence[tuple[str, int]], grids: Mapping[str, Integers]) -> Integers:
    """The offset for outer axes and inner blocks, both outermost first: a block takes the rest of those inside it."""
    inside: dict[str, int] = dict.fromkeys(grids, 1)
    digits: list[Integers] = []
    for axis, size in reversed(blocks):
        digits.insert(0, grids[axis] // inside[axis] % size)
        inside[axis] *= size
    return _in_array([grids[axis] // inside[axis] for axis in outer] + digits)


def _openvino(name: str, grids: Mapping[str, Integers], _: Dims) -> Integers:
    """`b_fs_yx_fsv16`: letters of axes, `fs` for slices of f, and blocks `fsv16` or `isa8`, outermost first."""
    ours = dict(zip("bfzyxoig", "ncdhwoig", strict=True))
    outer, blocks = "", []
    for part in name.split("_"):
        if block := re.fullmatch(r"([a-z])s[av]([0-9]+)", part):
            blocks.append((ours[block[1]], int(block[2])))
        else:
            outer += "".join(ours[letter] for letter in part if letter != "s")
    return _nested(outer, blocks, grids)


def _tvm(name: str, grids: Mapping[str, Integers], _: Dims) -> Integers:
    """`NCHW16c`: axes in upper case, then factors of axes in lower case."""
    blocks = [(axis, int(size)) for size, axis in re.findall("([0-9]+)([a-z])", name)]
    return _nested("".join(re.findall("[A-Z]", name)).lower(), blocks, grids)


def _acl(name: str, grids: Mapping[str, Integers], _: Dims) -> Integers:
    """`OHWIo<interleave_by>i<block_by>`: o in groups of interleave_by, in each of them i in groups of block_by."""
    fields = re.fullmatch(r"OHWIo([0-9]+)(?:i([0-9]+))?(?:_bf16)?", name)
    assert fields is not None
    interleave_by, block_by = int(fields[1]), int(fields[2] or 1)
    o, i, h, w = (grids[axis] for axis in "oihw")
    return _in_array([o // interleave_by, h, w, i // block_by, o % interleave_by, i % block_by])


def _xla(name: str, grids: Mapping[str, Integers], sizes: Dims) -> Integers:
    """`{1,0:T(8,128)(2,1)}`: axes from minor to major, then tiles, each applied to the last axes so far."""
    order, _, tiles = name.strip("{}").partition(":T")
    axes = [list(grids)[int(number)] for number in reversed(order.split(","))]
    e, d = [grids[axis] for axis in axes], [sizes[axis] for axis in axes]
    for tile in re.findall(r"\(([0-9,]+)\)", tiles):
        t = [int(number) for number in tile.split(",")]
        kept = len(d) - len(t)
        e = (
            e[:kept]
            + [x // n for x, n in zip(e[kept:], t, strict=True)]
            + [x % n for x, n in zip(e[kept:], t, strict=True)]
        )
        d = d[:kept] + [_up(x, n) for x, n in zip(d[kept:], t, strict=True)] + t
    offset = np.zeros_like(e[0])
    for index, bound in zip(e, d, strict=True):
        offset = offset * bound + index
    return offset


GRAMMARS: Mapping[str, Callable[[str, Mapping[str, Integers], Dims], Integers]] = {
    "openvino": _openvino,
    "tvm": _tvm,
    "acl": _acl,
    "xla": _xla,
}

# Permutations


def _marlin_table(interleave: Sequence[int]) -> list[int]:
    """The permutation of 1024 elements, four tiles of 16x16 side by side, that Marlin's packer applies."""
    table: list[int] = []
    for i in range(32):
        column = i // 4
        four = [
            16 * row + column + 8 * block
            for block in (0, 1)
            for row in (2 * (i % 4), 2 * (i % 4) + 1, 2 * (i % 4 + 4), 2 * (i % 4 + 4) + 1)
        ]
        for j in range(4):
            table.extend(p + 256 * j for p in four)
    groups = np.array(table).reshape(-1, len(interleave))
    return [int(p) for p in groups[:, list(interleave)].ravel()]


def _marlin(interleave: Sequence[int]) -> Callable[[Mapping[str, Integers], Dims], Integers]:
    def offsets(_: Mapping[str, Integers], sizes: Dims) -> Integers:
        rows, columns = _up(sizes["k"], 16) * 16, _up(sizes["n"], 64) * 64
        numbers = np.arange(rows * columns).reshape(rows // 16, 16, columns // 16, 16)
        tiled = numbers.transpose(0, 2, 1, 3).reshape(-1, 1024)
        packed = tiled[:, _marlin_table(interleave)].ravel()
        return _places(packed, (rows, columns), sizes)

    return offsets


def _by_columns(table: Sequence[int], axis: str = "n") -> Callable[[Mapping[str, Integers], Dims], Integers]:
    """Groups of columns, stored in the order of a table: place i of a group has column table[i]."""

    def offsets(_: Mapping[str, Integers], sizes: Dims) -> Integers:
        rows, columns = sizes["k"], _up(sizes[axis], len(table)) * len(table)
        numbers = np.arange(rows * columns).reshape(-1, len(table))
        return _places(numbers[:, list(table)].ravel(), (rows, columns), sizes)

    return offsets


def _exllama(_: Mapping[str, Integers], sizes: Dims) -> Integers:
    """Words of eight rows of a column, whose nibbles from the lowest are rows 0 2 4 6 1 3 5 7."""
    words, columns = _up(sizes["k"], 8), sizes["n"]
    numbers = np.arange(words * 8 * columns).reshape(words, 8, columns)
    packed = numbers[:, [0, 2, 4, 6, 1, 3, 5, 7], :].transpose(0, 2, 1).ravel()
    return _places(packed, (words * 8, columns), sizes)


def _places(packed: npt.NDArray[np.integer], padded: tuple[int, int], sizes: Dims) -> Integers:
    """Where each row-major number of a padded matrix is in `packed`, for the coordinates below the dims."""
    places = np.empty(packed.size, np.int64)
    places[packed] = np.arange(packed.size)
    return places.reshape(padded)[: sizes["k"], : sizes["n"]]


AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)

PERMUTATIONS: Mapping[str, Callable[[Mapping[str, Integers], Dims], Integers]] = {
    "marlin:int4": _marlin(AWQ_ORDER),
    "marlin:int8": _marlin((0, 2, 1, 3)),
    "marlin:scales_group": _by_columns([i + 8 * j for i in range(8) for j in range(8)]),
    "marlin:scales_channel": _by_columns([2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]),
    "awq:qweight": _by_columns(AWQ_ORDER),
    "awq:qzeros": _by_columns(AWQ_ORDER),
    "exllama:q4_shuffled": _exllama,
}
