"""Cases: the reorders that are measured, each in three sizes.

A `Pair` is two formats, two types and a kind of tensor; `cases.toml` lists all pairs, table by table. With a `Size` it
becomes a `Case`: axes of the tensor grow until source and destination together fill half of one processor's L2, half
of the L3, or four times the L3 (`beyond`). Cases of the first two sizes run with warm caches.

    >>> pair = Pair("nhwc", "nchw", "u8", "f32", note="RGB", aim=85, fit=fit_of("1x3x224x224 0:1"))
    >>> (case,) = cases_of([pair], [Size("L3", 1 << 24)])
    >>> case.label, case.dims
    ('nhwc -> nchw u8 -> f32 RGB L3', (22, 3, 224, 224))
    >>> case.nbytes == case.src.size + case.dst.size == 22 * 3 * 224 * 224 * 5
    True
"""

import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from inlay.data_type import as_data_type
from inlay.descriptor import Extras, MemoryDesc
from inlay.reordering.attributes import PLAIN, Attributes, Operands, Scales, ZeroPoints

Dims = tuple[int, ...]
BytesOf = Callable[[Dims], int]  # the bytes of source plus destination, padding included, of a tensor
Fit = Callable[[BytesOf, int, bool], Dims]

PROMISED, DRAWN = "promised", "drawn"
"""Names of two tables: the pairs whose speed is promised, and the pairs whose sizes are drawn at random."""
_NO_EXTRAS = Extras()


# Dims that fill a level of memory: a `Fit` returns dims with about a number of bytes, at least or at most as many


def grow(
    dims: Dims, grown: Sequence[tuple[int, int]], smaller: Fit | None, nbytes: BytesOf, footprint: int, at_least: bool
) -> Dims:
    """Grow axes of `dims` by their steps, keeping the ratio of their extents; the last axis takes up what is missing.

    Other axes keep their extent, as the 3 x 3 of a kernel. Where not even one step of the last axis fits, `smaller`
    returns the dims if there is one, and one step is taken otherwise.

    >>> fit_of("64x128x3x3 0:16 1:16")(lambda dims: 8 * prod(dims), 1 << 24, True)
    (336, 704, 3, 3)
    """
    scale, extents = (footprint / nbytes(dims)) ** (1 / len(grown)), list(dims)
    for axis, step in grown[:-1]:
        extents[axis] = step * max(1, round(dims[axis] * scale / step))
    last, step = grown[-1]

    def with_steps(steps: int) -> Dims:
        return (*extents[:last], steps * step, *extents[last + 1 :])

    steps = _steps(lambda n: nbytes(with_steps(n)), footprint, at_least)
    if steps == 0 and smaller is not None:
        return smaller(nbytes, footprint, at_least)
    return with_steps(max(1, steps))


def powers_of_two(nbytes: BytesOf, footprint: int, at_least: bool) -> Dims:
    """Return a matrix that is square or has twice as many rows: strides that conflict most in caches and page tables.

    >>> powers_of_two(lambda dims: 8 * prod(dims), 3 << 22, at_least=False)
    (1024, 1024)
    """

    def with_exponent(exponent: int) -> Dims:
        return 1 << (exponent + 1) // 2, 1 << exponent // 2

    return with_exponent(_steps(lambda n: nbytes(with_exponent(n)), footprint, at_least))


def _steps(nbytes: Callable[[int], int], footprint: int, at_least: bool) -> int:
    """Return the most steps whose bytes are at most the footprint, or the fewest whose bytes are at least that."""
    steps = range(1, next(1 << i for i in count(1) if nbytes(1 << i) > footprint) + 1)
    if at_least:
        return 1 + bisect_left(steps, footprint, key=nbytes)
    return bisect_right(steps, footprint, key=nbytes)


def fit_of(text: str) -> Fit:
    """Return the fit that a text of `cases.toml` describes, such as `1x3x224x224 0:1 or 1x3x64x64 3:1`."""
    fit: Fit | None = powers_of_two if text == "powers of two" else None
    for part in reversed(text.split(" or ") if fit is None else []):
        dims, *grown = part.split()
        axes = [(int(axis), int(step)) for axis, step in (word.split(":") for word in grown)]
        fit = partial(grow, tuple(map(int, dims.split("x"))), axes, fit)
    assert fit is not None, "a text has a part"
    return fit


# Pairs and cases


@dataclass(frozen=True, slots=True)
class Size:
    """A level of memory that source and destination of a case fill."""

    name: str  # L2, L3 or beyond
    footprint: int  # bytes of source plus destination: an upper bound, or with `beyond` a lower bound
    warm: bool = True  # the footprint fits the cache, so that untimed calls come before the timed ones


@dataclass(frozen=True, slots=True)
class Pair:
    """A reorder before it has a size."""

    src_tag: str
    dst_tag: str
    src_type: str
    dst_type: str
    note: str = ""  # a property of the tensor that formats and types do not show: `RGB`
    table: str = ""
    aim: float | None = None  # percent of the best copy to reach beyond the L3
    attributes: Attributes = PLAIN
    extras: Extras = _NO_EXTRAS
    fit: Fit | None = field(default=None, compare=False, repr=False)  # None: the pair was read from a record

    @property
    def types(self) -> str:
        """The type of both sides, or two types with an arrow between them."""
        return self.src_type if self.src_type == self.dst_type else f"{self.src_type} -> {self.dst_type}"

    @property
    def formats(self) -> str:
        """Both format tags with an arrow between them."""
        return f"{self.src_tag} -> {self.dst_tag}"

    @property
    def label(self) -> str:
        """Formats, types and note."""
        return " ".join(filter(None, (self.formats, self.types, self.note)))


@dataclass(frozen=True, slots=True)
class Case:
    """One reorder of one tensor."""

    pair: Pair
    size: Size
    dims: Dims

    @property
    def label(self) -> str:
        """The label of the pair and the name of the size, with which `--only` is matched."""
        return f"{self.pair.label} {self.size.name}"

    @property
    def aim(self) -> float | None:
        """Percent of the best copy to reach; None in caches and without an aim."""
        return None if self.size.warm else self.pair.aim

    @property
    def src(self) -> MemoryDesc:
        """The descriptor of the source."""
        return MemoryDesc(self.dims, self.pair.src_type, self.pair.src_tag)

    @property
    def dst(self) -> MemoryDesc:
        """The descriptor of the destination."""
        return MemoryDesc(self.dims, self.pair.dst_type, self.pair.dst_tag, extras=self.pair.extras)

    @property
    def values(self) -> Operands:
        """Values of the attributes by name."""
        return values_of(self.pair.attributes, self.dims)

    @property
    def nbytes(self) -> int:
        """The compulsory bytes: source elements read, destination elements, padding and extras written.

        With a sum the elements of the destination are read as well.
        """
        dst, pair = self.dst, self.pair
        src_bits, dst_bits = as_data_type(pair.src_type).bits, as_data_type(pair.dst_type).bits
        old = prod(self.dims) * dst_bits if pair.attributes.sum is not None else 0
        bits = prod(self.dims) * src_bits + old + prod(dst.padded_dims) * dst_bits
        return -(-bits // 8) + sum(pair.extras.buffer_sizes(dst.padded_dims).values())


def pair_of(entry: Mapping[str, Any]) -> Pair:
    """Return the pair of an entry of a TOML or JSON file, in which attributes and extras are tables."""
    kinds = {"scales": Scales, "zero_points": ZeroPoints}
    attributes = {name: value for name, value in entry.get("attributes", {}).items() if value is not None}
    for name, value in attributes.items():
        if isinstance(value, dict):
            attributes[name] = kinds[name[4:]](**value | {"groups": tuple(value.get("groups", ()))})
    extras: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.get("extras", {}).items()}
    return Pair(**{**entry, "attributes": Attributes(**attributes), "extras": Extras(**extras)})


def _listed_pair(table: str, entry: Mapping[str, Any]) -> Pair:
    """Return a pair as `cases.toml` writes it."""
    more = {name: value for name, value in entry.items() if name not in ("formats", "types", "tensor")}
    formats, types = entry["formats"].split(" -> "), entry["types"].split(" -> ")
    tags = {"src_tag": formats[0], "dst_tag": formats[1], "src_type": types[0], "dst_type": types[-1]}
    return pair_of({**more, **tags, "table": table, "fit": fit_of(_tensors.get(entry["tensor"], entry["tensor"]))})


_listed = tomllib.loads(Path(__file__).with_name("cases.toml").read_text())
_tensors = _listed.pop("tensors")
TABLES: Mapping[str, Sequence[Pair]] = {
    table: [_listed_pair(table, entry) for entry in its["pairs"]] for table, its in _listed.items()
}
"""Pairs of each table: the promised ones first, then the families of oneDNN's own test."""


def cases_of(pairs: Iterable[Pair], sizes: Sequence[Size]) -> list[Case]:
    """Return a case for every pair in every size, size by size."""
    return [_case(pair, size) for size in sizes for pair in pairs]


def _case(pair: Pair, size: Size) -> Case:
    def nbytes(dims: Dims) -> int:
        case = Case(pair, size, dims)
        return case.src.size + case.dst.size

    assert pair.fit is not None, f"{pair.label} was read from a record"
    return Case(pair, size, pair.fit(nbytes, size.footprint, not size.warm))


def all_cases(sizes: Sequence[Size], tables: Sequence[str] = tuple(TABLES)) -> list[Case]:
    """Return a case for every pair of the tables in every size, table by table.

    >>> sorted({case.pair.types for case in all_cases([Size("L2", 1 << 19)], ["recurrent"])})
    ['bf16', 'f32', 'f32 -> bf16', 'f32 -> s8', 's8']
    """
    return [case for table in tables for case in cases_of(TABLES[table], sizes)]


def matching(cases: Iterable[Case], pattern: str) -> list[Case]:
    """Return the cases whose label contains `pattern`, in which `*` and `?` stand for anything.

    >>> pairs = [Pair("ab", "ba", t, t, fit=fit_of("64x64 0:8")) for t in ("f32", "u8")]
    >>> [case.label for case in matching(cases_of(pairs, [Size("L2", 1 << 19)]), "AB -> b*u8")]
    ['ab -> ba u8 L2']
    """
    return [case for case in cases if fnmatch(case.label.lower(), f"*{pattern.lower()}*")]


def values_of(attributes: Attributes, dims: Dims) -> Operands:
    """Return the values of each attribute of a reorder of these dims, by name.

    Scales are powers of two from 1/4 to 4: multiplying and dividing by them is exact, so that all contenders owe the
    same bytes in whichever order they round. Zero points are integers from 1 to 7.

    >>> values = values_of(Attributes(src_scales=Scales(mask=0b10), src_zero_points=ZeroPoints()), (8, 3))
    >>> values["src_scales"].tolist(), values["src_zero_points"].tolist()
    ([[0.25, 0.5, 1.0]], [[1]])
    """
    values: Operands = {}
    for name in attributes.names:
        entry = attributes.entry(name)
        shape = entry.shape(dims)
        indices = np.arange(prod(shape)).reshape(shape)
        numbers = np.ldexp(1.0, indices % 5 - 2) if isinstance(entry, Scales) else indices % 7 + 1
        values[name] = numbers.astype(entry.type.dtype)
    return values
