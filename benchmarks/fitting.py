"""Dims that make a reorder as large as a level of memory asks: a tensor of its kind, with one or two axes grown.

A kernel keeps its 3 x 3 and an image its channels: the axes that may grow are named with the step they grow by, and
take as many steps as the footprint allows. Where not even one fits, a smaller tensor of the kind stands in.

    >>> from math import prod
    >>> images = Tensor((1, 64, 14, 14), ((0, 1),))
    >>> images.fitted(lambda dims: 8 * prod(dims), 1 << 19, at_least=False)
    (5, 64, 14, 14)
    >>> weights = Tensor((64, 128, 3, 3), ((0, 16), (1, 16)))
    >>> weights.fitted(lambda dims: 8 * prod(dims), 1 << 24, at_least=True)
    (336, 704, 3, 3)
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

Dims = tuple[int, ...]
BytesOf = Callable[[Dims], int]
"""Bytes of source plus destination, padding included, where the tensor has these dims."""


class Fitting(Protocol):
    """A kind of tensor."""

    def fitted(self, nbytes: BytesOf, footprint: int, at_least: bool) -> Dims:
        """Dims with about `footprint` bytes: at least as many if the flag is set, else at most."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Dims of which some axes may grow."""

    dims: Dims
    """What the tensor is like."""
    grown: tuple[tuple[int, int], ...]
    """The axes that grow and the step of each; the last one takes what is missing to the footprint."""
    smaller: "Tensor | None" = None
    """What stands in where not even one step of the last axis fits."""

    def fitted(self, nbytes: BytesOf, footprint: int, at_least: bool) -> Dims:
        """The extents of the grown axes keep their ratio, up to their steps; at least one step is taken."""
        scale = (footprint / nbytes(self.dims)) ** (1 / len(self.grown))
        dims = list(self.dims)
        for axis, step in self.grown[:-1]:
            dims[axis] = step * max(1, round(dims[axis] * scale / step))
        last, step = self.grown[-1]

        def with_steps(steps: int) -> Dims:
            return (*dims[:last], steps * step, *dims[last + 1 :])

        steps = _steps(lambda n: nbytes(with_steps(n)), footprint, at_least)
        if steps == 0 and self.smaller is not None:
            return self.smaller.fitted(nbytes, footprint, at_least)
        return with_steps(max(1, steps))


@dataclass(frozen=True, slots=True)
class PowersOfTwo:
    """A matrix whose dims are powers of two: the strides that caches and page tables like least."""

    def fitted(self, nbytes: BytesOf, footprint: int, at_least: bool) -> Dims:
        """Square, or twice as many rows as columns.

        >>> from math import prod
        >>> PowersOfTwo().fitted(lambda dims: 8 * prod(dims), 1 << 27, at_least=True)
        (4096, 4096)
        >>> PowersOfTwo().fitted(lambda dims: 8 * prod(dims), 3 << 22, at_least=False)
        (1024, 1024)
        """

        def with_exponent(exponent: int) -> Dims:
            return 1 << (exponent + 1) // 2, 1 << exponent // 2

        return with_exponent(_steps(lambda n: nbytes(with_exponent(n)), footprint, at_least))


def _steps(nbytes: Callable[[int], int], footprint: int, at_least: bool) -> int:
    """The most steps whose bytes are at most the footprint, or the fewest whose bytes are at least that."""
    end = next(1 << i for i in count(1) if nbytes(1 << i) > footprint)
    steps = range(1, end + 1)
    if at_least:
        return 1 + bisect_left(steps, footprint, key=nbytes)
    return bisect_right(steps, footprint, key=nbytes)
