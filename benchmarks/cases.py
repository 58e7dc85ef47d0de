"""What is moved: two formats, two types, and dims that make the footprint fit one level of memory.

The footprint is source plus destination. `L2`: half of one processor's L2. `L3`: half of the L3. `beyond`: at least
four times the L3. The first two run warm, and the copy they are compared with runs warm as well. A `Pair` is what the
tables of `pairs` and `families` list; with a size it becomes a `Case`.

    >>> from benchmarks.fitting import Tensor
    >>> pair = Pair("nhwc", "nchw", ("u8", "f32"), Tensor((1, 3, 224, 224), ((0, 1),)), note="RGB", aim=85)
    >>> (case,) = cases_of([pair], [Size("L3", 1 << 24)], table="issue")
    >>> case.label, case.dims
    ('nhwc -> nchw u8 -> f32 RGB L3', (22, 3, 224, 224))
    >>> case.nbytes == case.src.size + case.dst.size == 22 * 3 * 224 * 224 * 5
    True
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from math import prod

from benchmarks.fitting import Fitting
from benchmarks.machine import Machine
from inlay.data_type import as_data_type
from inlay.descriptor import Extras, MemoryDesc
from inlay.reordering.attributes import PLAIN, Attributes

NO_EXTRAS = Extras()
"""Nothing behind the elements."""


@dataclass(frozen=True, slots=True)
class Size:
    """One of the levels of memory that a case may live in."""

    name: str
    """`L2`, `L3` or `beyond`."""
    footprint: int
    """Bytes of source plus destination to come close to: at most these, or with `beyond` at least these."""
    warm: bool = True
    """Whether the footprint fits the cache, so that an untimed call comes before the timed ones."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A reorder before it has a size."""

    src_tag: str
    """The format of the source."""
    dst_tag: str
    """The format of the destination."""
    types: str | tuple[str, str]
    """The type of both, or that of the source and that of the destination."""
    tensor: Fitting
    """What kind of tensor it is."""
    note: str = ""
    """What the tensor is like, where the formats and the types do not say enough: `RGB`."""
    aim: float | None = None
    """The percent of the copy it is to reach beyond the L3; None where none is set."""
    attributes: Attributes = PLAIN
    """What is computed on the way."""
    extras: Extras = NO_EXTRAS
    """What the destination keeps behind its elements."""


@dataclass(frozen=True, slots=True)
class Case:
    """One reorder of one tensor."""

    src_tag: str
    """The format of the source."""
    dst_tag: str
    """The format of the destination."""
    src_type: str
    """The type of the source."""
    dst_type: str
    """The type of the destination."""
    size: Size
    """The level of memory it lives in."""
    dims: tuple[int, ...]
    """The logical dims."""
    note: str = ""
    """What the tensor is like, where the formats and the types do not say enough: `RGB`."""
    table: str = ""
    """The table it belongs to: `issue`, or one of the families."""
    aim: float | None = None
    """The percent of the copy it is to reach; None where none is set."""
    attributes: Attributes = PLAIN
    """What is computed on the way."""
    extras: Extras = NO_EXTRAS
    """What the destination keeps behind its elements."""

    @property
    def converts(self) -> bool:
        """Whether the types differ."""
        return self.src_type != self.dst_type

    @property
    def name(self) -> str:
        """The pair of formats."""
        return f"{self.src_tag} -> {self.dst_tag}"

    @property
    def types(self) -> str:
        """The type, or both with an arrow between them."""
        return f"{self.src_type} -> {self.dst_type}" if self.converts else self.src_type

    @property
    def pair(self) -> str:
        """Everything but the size: what the cases of one pair share."""
        return " ".join(filter(None, (self.name, self.types, self.note)))

    @property
    def label(self) -> str:
        """The pair and the size: what `--only` is matched with."""
        return f"{self.pair} {self.size.name}"

    @property
    def src(self) -> MemoryDesc:
        """The descriptor of the source."""
        return MemoryDesc(self.dims, self.src_type, self.src_tag)

    @property
    def dst(self) -> MemoryDesc:
        """The descriptor of the destination."""
        return MemoryDesc(self.dims, self.dst_type, self.dst_tag, extras=self.extras)

    @property
    def nbytes(self) -> int:
        """The compulsory bytes: source elements read, destination elements and padding written, and what else it keeps.

        With a sum the elements of the destination are read as well.
        """
        dst = self.dst
        read = prod(self.dims) * as_data_type(self.src_type).bits
        written = prod(dst.padded_dims) * as_data_type(self.dst_type).bits
        old = prod(self.dims) * as_data_type(self.dst_type).bits if self.attributes.sum is not None else 0
        return -(-(read + old + written) // 8) + sum(self.extras.buffer_sizes(dst.padded_dims).values())


def sizes_of(machine: Machine) -> tuple[Size, ...]:
    """The three sizes on this machine."""
    l2, l3 = machine.cache_bytes(2), machine.cache_bytes(3)
    return Size("L2", l2 // 2), Size("L3", l3 // 2), Size("beyond", 4 * l3, warm=False)


def cases_of(pairs: Iterable[Pair], sizes: Sequence[Size], table: str) -> list[Case]:
    """Every pair in every size, size by size. The aim counts beyond the caches."""
    return [_case(pair, size, table) for size in sizes for pair in pairs]


def _case(pair: Pair, size: Size, table: str) -> Case:
    src_type, dst_type = (pair.types, pair.types) if isinstance(pair.types, str) else pair.types

    def nbytes(dims: tuple[int, ...]) -> int:
        src = MemoryDesc(dims, src_type, pair.src_tag)
        return src.size + MemoryDesc(dims, dst_type, pair.dst_tag, extras=pair.extras).size

    dims = pair.tensor.fitted(nbytes, size.footprint, not size.warm)
    aim = None if size.warm else pair.aim
    return Case(
        pair.src_tag, pair.dst_tag, src_type, dst_type, size, dims, pair.note, table, aim, pair.attributes, pair.extras
    )


def matching(cases: Iterable[Case], pattern: str) -> list[Case]:
    """The cases whose label contains `pattern`, in which `*` and `?` stand for anything.

    >>> from benchmarks.fitting import Tensor
    >>> pairs = [Pair("ab", "ba", t, Tensor((64, 64), ((0, 8),))) for t in ("f32", "u8")]
    >>> [c.label for c in matching(cases_of(pairs, [Size("L2", 1 << 19)], ""), "AB -> b*u8")]
    ['ab -> ba u8 L2']
    """
    return [case for case in cases if fnmatch(case.label.lower(), f"*{pattern.lower()}*")]
