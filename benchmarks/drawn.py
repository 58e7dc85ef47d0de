"""The pairs that once were weak, at sizes drawn at random: what was chosen cannot flatter.

Dims are drawn again until one tensor fits the footprint, then the axis that grows takes what is missing. A seed gives
the same dims on machines with the same sizes of caches.

    >>> from benchmarks.cases import Size, cases_of
    >>> cases = cases_of(drawn_pairs(seed=7), [Size("L2", 1 << 20)], TABLE)
    >>> all(case.nbytes <= 1 << 20 for case in cases), len(cases) == 2 * len(_WEAK)
    (True, True)
    >>> cases == cases_of(drawn_pairs(seed=7), [Size("L2", 1 << 20)], TABLE)
    True
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt
from random import Random

from benchmarks.cases import Pair
from benchmarks.fitting import BytesOf, Dims, Tensor

TABLE = "drawn"
"""The name of the table."""
LEAST, MEAN = 60, 70
"""Percent of the copy beyond the L3 that each of these pairs is to reach, and that they are to reach in the mean."""
SHARE = 0.95
"""Of the cases in caches, in which Inlay is not to be slower than the fastest peer."""
_DRAWS = 2  # of each pair
_ATTEMPTS = 1000

Draw = Callable[[Random, int], Dims]
"""Dims of one tensor, from a source of chance and about how many elements there may be."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A kind of tensor whose dims are drawn for each footprint."""

    draw: Draw
    """What is drawn."""
    grown: tuple[tuple[int, int], ...]
    """The axes that grow to the footprint, and the step of each."""
    seed: str
    """What the draw depends on, beside the footprint."""

    def fitted(self, nbytes: BytesOf, footprint: int, at_least: bool) -> Dims:
        """Dims that were drawn, of which the grown axes take what is missing to the footprint."""
        random = Random(f"{self.seed} {footprint}")
        for _ in range(_ATTEMPTS):
            dims = self.draw(random, footprint // 4)
            if nbytes(self._least(dims)) <= footprint:
                return Tensor(dims, self.grown).fitted(nbytes, footprint, at_least)
        raise ValueError(f"no tensor of this kind has {footprint} bytes or fewer")

    def _least(self, dims: Dims) -> Dims:
        steps = dict(self.grown)
        return tuple(steps.get(axis, extent) for axis, extent in enumerate(dims))


def drawn_pairs(seed: int) -> Sequence[Pair]:
    """Every pair as often as `_DRAWS` says."""
    return [
        Pair(*tags, types, Drawn(draw, grown, f"{seed} {i} {number}"), f"{what}, draw {number + 1}", aim=LEAST)
        for i, (tags, types, draw, grown, what) in enumerate(_WEAK)
        for number in range(_DRAWS)
    ]


def _matrix(random: Random, elements: int) -> Dims:
    side = isqrt(max(1, elements))
    ratio = random.uniform(0.5, 2)
    return max(1, round(side * ratio)), max(1, round(side / ratio))


def _images(random: Random, elements: int) -> Dims:
    side = random.choice([14, 28, 56, 112, random.randint(10, 120)])
    return 1, random.choice([64, 128, 256, random.randint(3, 300)]), side, side


def _five(random: Random, elements: int) -> Dims:
    return 1, *(random.choice([16, 32, random.randint(5, 70)]) for _ in range(4))


def _kernels(random: Random, elements: int) -> Dims:
    window = random.choice([1, 3, 5])
    return 64, 64 * random.randint(1, 16), window, window


_ROWS_64, _ANY_ROWS = (((0, step), (1, step)) for step in (64, 1))
_MORE = ((0, 1),)
_WEAK: Sequence[tuple[tuple[str, str], str | tuple[str, str], Draw, tuple[tuple[int, int], ...], str]] = (
    (("abcde", "cdeba"), "f32", _five, _MORE, "any dims"),
    (("ab", "ba"), "f32", _matrix, ((1, 1024), (0, 16)), "rows of 4 KiB"),
    (("ab", "ba"), "f32", _matrix, ((0, 8), (1, 8)), "multiples of 8"),
    (("ab", "ba"), "f32", _matrix, _ANY_ROWS, "any rows"),
    (("oihw", "OIhw4i16o4i"), "s8", _kernels, ((0, 64),), "any kernel"),
    (("ab", "BA16a64b2a"), "bf16", _matrix, _ROWS_64, "multiples of 64"),
    (("ba", "BA16a64b2a"), "bf16", _matrix, _ROWS_64, "multiples of 64"),
    (("nchw", "nhwc"), ("f32", "s8"), _images, _MORE, "any image"),
    *(
        (("ab", "ba"), data_type, _matrix, grown, what)
        for data_type in ("u8", "bf16")
        for grown, what in ((_ROWS_64, "multiples of 64"), (_ANY_ROWS, "any rows"))
    ),
    *(
        (tags, data_type, _images, _MORE, "any image")
        for data_type in ("u8", "bf16")
        for tags in (("nchw", "nhwc"), ("nhwc", "nchw"))
    ),
    (("abcd", "abcd"), ("f32", "bf16"), _images, _MORE, "any image"),
    (("abcd", "acdb"), ("f32", "bf16"), _images, _MORE, "any image"),
)
