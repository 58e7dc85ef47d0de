"""What is moved: a pair of formats, a data type, and dims that make the footprint fit one level of memory.

The footprint is source plus destination. `L2`: half of one processor's L2. `L3`: half of the L3. `beyond`: at least
four times the L3. The first two run warm, and the copy they are compared with runs warm as well.

    >>> from benchmarks.cases import Size, all_cases
    >>> case = next(c for c in all_cases([Size("L2", 1 << 19)]) if c.data_type == "bf16")
    >>> case.label, case.dims
    ('nchw -> nChw16c bf16 L2', (1, 160, 28, 28))
    >>> case.nbytes == case.src.size + case.dst.size == 501760
    True
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from math import ceil, floor, isqrt, log2, prod

from benchmarks.machine import Machine
from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc

TYPES = ("f32", "bf16", "u8")


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
class Case:
    """One reorder of one tensor."""

    src_tag: str
    """The format of the source."""
    dst_tag: str
    """The format of the destination."""
    data_type: str
    """The type of both."""
    size: Size
    """The level of memory it lives in."""
    dims: tuple[int, ...]
    """The logical dims."""

    @property
    def name(self) -> str:
        """The pair of formats."""
        return f"{self.src_tag} -> {self.dst_tag}"

    @property
    def label(self) -> str:
        """The pair, the type and the size: what `--only` is matched with."""
        return f"{self.name} {self.data_type} {self.size.name}"

    @property
    def src(self) -> MemoryDesc:
        """The descriptor of the source."""
        return MemoryDesc(self.dims, self.data_type, self.src_tag)

    @property
    def dst(self) -> MemoryDesc:
        """The descriptor of the destination."""
        return MemoryDesc(self.dims, self.data_type, self.dst_tag)

    @property
    def nbytes(self) -> int:
        """The compulsory bytes: source elements read, destination elements and padding written."""
        return (prod(self.dims) + prod(self.dst.padded_dims)) * as_data_type(self.data_type).itemsize


DimsFor = Callable[[int, bool], tuple[int, ...]]
"""Dims with about so many elements: at least as many if the flag is set, else at most."""


def activation_dims(elements: int, at_least: bool) -> tuple[int, ...]:
    """Images of 256 channels, 56 x 56; where not one fits, one image of 28 x 28 with fewer channels.

    >>> activation_dims(1 << 24, at_least=True), activation_dims(1 << 16, at_least=False)
    ((21, 256, 56, 56), (1, 80, 28, 28))
    """
    rounded = ceil if at_least else floor
    images = rounded(elements / (256 * 56 * 56))
    if images >= 1:
        return images, 256, 56, 56
    return 1, 16 * max(1, rounded(elements / (16 * 28 * 28))), 28, 28


def weight_dims(elements: int, at_least: bool) -> tuple[int, ...]:
    """Kernels of 3 x 3 with as many input as output channels, a multiple of 16.

    >>> weight_dims(512 * 512 * 9, at_least=False)
    (512, 512, 3, 3)
    """
    blocks = isqrt(elements // 9) // 16
    channels = 16 * max(1, blocks + (at_least and (16 * blocks) ** 2 * 9 < elements))
    return channels, channels, 3, 3


def matrix_dims(elements: int, at_least: bool) -> tuple[int, ...]:
    """A matrix whose dims are powers of two: the strides that caches and page tables like least.

    >>> matrix_dims(1 << 24, at_least=True), matrix_dims(3 << 19, at_least=False)
    ((4096, 4096), (1024, 1024))
    """
    exponent = (ceil if at_least else floor)(log2(elements))
    return 1 << (exponent + 1) // 2, 1 << exponent // 2


REORDERS: Sequence[tuple[str, str, DimsFor]] = (
    ("nchw", "nChw16c", activation_dims),
    ("nChw16c", "nchw", activation_dims),
    ("nchw", "nhwc", activation_dims),
    ("nhwc", "nchw", activation_dims),
    ("oihw", "OIhw16i16o", weight_dims),
    ("ab", "ba", matrix_dims),
)
"""The pairs of formats and the tensors they are measured on."""


def sizes_of(machine: Machine) -> tuple[Size, ...]:
    """The three sizes on this machine."""
    l2, l3 = machine.cache_bytes(2), machine.cache_bytes(3)
    return Size("L2", l2 // 2), Size("L3", l3 // 2), Size("beyond", 4 * l3, warm=False)


def all_cases(sizes: Iterable[Size]) -> list[Case]:
    """Every pair of formats in every type and size."""
    return [
        Case(src, dst, data_type, size, dims_for(_elements(size, data_type), not size.warm))
        for size in sizes
        for src, dst, dims_for in REORDERS
        for data_type in TYPES
    ]


def _elements(size: Size, data_type: str) -> int:
    return size.footprint // 2 // as_data_type(data_type).itemsize


def matching(cases: Iterable[Case], pattern: str) -> list[Case]:
    """The cases whose label contains `pattern`, in which `*` and `?` stand for anything.

    >>> [c.label for c in matching(all_cases([Size("L2", 1 << 19)]), "nchw -> n*u8")]
    ['nchw -> nChw16c u8 L2', 'nchw -> nhwc u8 L2']
    """
    return [case for case in cases if fnmatch(case.label.lower(), f"*{pattern.lower()}*")]
