"""Pairs that once were slow, at sizes drawn at random: sizes that nobody chose cannot flatter.

Dims are drawn again until one tensor fits the footprint, then the axes that grow fill it. One seed gives the same dims
on all machines with the same sizes of caches.

    >>> from benchmarks.cases import Size, cases_of
    >>> cases = cases_of(drawn_pairs(seed=7), [Size("L2", 1 << 20)])
    >>> all(case.nbytes <= 1 << 20 for case in cases), len(cases) == 2 * len(_PAIRS)
    (True, True)
    >>> cases == cases_of(drawn_pairs(seed=7), [Size("L2", 1 << 20)])
    True
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import isqrt
from random import Random

from benchmarks.cases import DRAWN, BytesOf, Dims, Pair, grow

AIM = 60  # percent of the best copy that each of these pairs is to reach beyond the L3
_DRAWS = 2  # of each pair
_ATTEMPTS = 1000
_Grown = tuple[tuple[int, int], ...]  # axes that grow, each with its step
_Draw = Callable[
    [Random, int], Dims
]  # dims of one tensor, from random numbers and about how many elements there may be


def drawn_pairs(seed: int) -> Sequence[Pair]:
    """Return each pair as often as its dims are drawn."""
    pairs = []
    for i, (src, dst, src_type, dst_type, draw, grown, note) in enumerate(_PAIRS):
        for n in range(_DRAWS):
            fit = partial(_fit, draw, grown, f"{seed} {i} {n}")
            pairs.append(Pair(src, dst, src_type, dst_type, f"{note}, draw {n + 1}", DRAWN, AIM, fit=fit))
    return pairs


def _fit(draw: _Draw, grown: _Grown, seed: str, nbytes: BytesOf, footprint: int, at_least: bool) -> Dims:
    random, steps = Random(f"{seed} {footprint}"), dict(grown)
    for _ in range(_ATTEMPTS):
        dims = draw(random, footprint // 4)
        if nbytes(tuple(steps.get(axis, extent) for axis, extent in enumerate(dims))) <= footprint:
            return grow(dims, grown, None, nbytes, footprint, at_least)
    raise ValueError(f"no tensor of this kind has {footprint} bytes or fewer")


def _matrix(random: Random, elements: int) -> Dims:
    side = isqrt(max(1, elements))
    ratio = random.uniform(0.5, 2)
    return max(1, round(side * ratio)), max(1, round(side / ratio))


def _images(random: Random, _: int) -> Dims:
    side = random.choice([14, 28, 56, 112, random.randint(10, 120)])
    return 1, random.choice([64, 128, 256, random.randint(3, 300)]), side, side


def _five_axes(random: Random, _: int) -> Dims:
    return 1, *(random.choice([16, 32, random.randint(5, 70)]) for _ in range(4))


def _kernels(random: Random, _: int) -> Dims:
    window = random.choice([1, 3, 5])
    return 64, 64 * random.randint(1, 16), window, window


_ROWS_64, _ANY_ROWS = (((0, step), (1, step)) for step in (64, 1))
_MORE = ((0, 1),)
_PAIRS: Sequence[tuple[str, str, str, str, _Draw, _Grown, str]] = (
    ("abcde", "cdeba", "f32", "f32", _five_axes, _MORE, "any dims"),
    ("ab", "ba", "f32", "f32", _matrix, ((1, 1024), (0, 16)), "rows of 4 KiB"),
    ("ab", "ba", "f32", "f32", _matrix, ((0, 8), (1, 8)), "multiples of 8"),
    ("ab", "ba", "f32", "f32", _matrix, _ANY_ROWS, "any rows"),
    ("oihw", "OIhw4i16o4i", "s8", "s8", _kernels, ((0, 64),), "any kernel"),
    ("ab", "BA16a64b2a", "bf16", "bf16", _matrix, _ROWS_64, "multiples of 64"),
    ("ba", "BA16a64b2a", "bf16", "bf16", _matrix, _ROWS_64, "multiples of 64"),
    ("nchw", "nhwc", "f32", "s8", _images, _MORE, "any image"),
    ("ab", "ba", "u8", "u8", _matrix, _ROWS_64, "multiples of 64"),
    ("ab", "ba", "u8", "u8", _matrix, _ANY_ROWS, "any rows"),
    ("ab", "ba", "bf16", "bf16", _matrix, _ROWS_64, "multiples of 64"),
    ("ab", "ba", "bf16", "bf16", _matrix, _ANY_ROWS, "any rows"),
    ("nchw", "nhwc", "u8", "u8", _images, _MORE, "any image"),
    ("nhwc", "nchw", "u8", "u8", _images, _MORE, "any image"),
    ("nchw", "nhwc", "bf16", "bf16", _images, _MORE, "any image"),
    ("nhwc", "nchw", "bf16", "bf16", _images, _MORE, "any image"),
    ("abcd", "abcd", "f32", "bf16", _images, _MORE, "any image"),
    ("abcd", "acdb", "f32", "bf16", _images, _MORE, "any image"),
)
