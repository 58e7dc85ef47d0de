"""A reorder as strided copies: what somebody writes who has NumPy or PyTorch.

    nchw -> nChw16c     dst.reshape(n, c/16, h, w, 16)[...] = src.reshape(n, c/16, 16, h, w).transpose(0, 1, 3, 4, 2)

Both sides are seen as one array each, of the same shape; its axes are ordered by the destination's strides, so that
the destination is walked in memory order. One pass does it when no axis is padded and every axis is split alike on
both sides or on one side only. Otherwise a dense intermediate array of the padded dims takes what is there, and a
second pass moves it on:

    >>> from inlay.descriptor import MemoryDesc
    >>> plain, blocked = (MemoryDesc((1, 32, 2, 2), "f32", tag) for tag in ("nchw", "nChw16c"))
    >>> [p.shape for p in strided_passes(plain, blocked).passes]
    [(1, 2, 2, 2, 16)]
    >>> plain, padded = (MemoryDesc((1, 17, 2, 2), "f32", tag) for tag in ("nchw", "nChw16c"))
    >>> [p.shape for p in strided_passes(plain, padded).passes]
    [(1, 17, 2, 2), (1, 2, 2, 2, 16)]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul

from inlay.descriptor import MemoryDesc
from inlay.layout import Digit

Digits = Sequence[Digit]
"""The digits of one axis, most significant first."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One strided copy."""

    shape: tuple[int, ...]
    """The shape of both sides."""
    src_strides: tuple[int, ...]
    """Elements from one item to the next, along each axis."""
    dst_strides: tuple[int, ...]
    """The same of the destination, largest first."""


@dataclass(frozen=True, slots=True)
class Passes:
    """The copies that together are one reorder."""

    passes: tuple[Pass, ...]
    """One from source to destination, or one from the source to the intermediate array and one from there."""
    intermediate: int
    """Elements of the intermediate array, which holds zeros at first; 0 where there is none."""


def strided_passes(src: MemoryDesc, dst: MemoryDesc) -> Passes:
    """The reorder from `src` to `dst`, two layouts that a tag can say, as strided copies."""
    direct = None if _is_padded(src) or _is_padded(dst) else _one_pass(src.digits, dst.digits)
    if direct is not None:
        return Passes((direct,), 0)
    padded = tuple(map(max, src.padded_dims, dst.padded_dims))
    dense = [*accumulate(reversed(padded[1:]), mul, initial=1)][::-1]
    gather = _one_pass(src.digits, [[Digit(n, step)] for n, step in zip(src.padded_dims, dense, strict=True)])
    scatter = _one_pass([[Digit(n, step)] for n, step in zip(dst.padded_dims, dense, strict=True)], dst.digits)
    assert gather is not None, "one digit can always be split"
    assert scatter is not None, "one digit can always be split"
    return Passes((gather, scatter), prod(padded))


def _is_padded(desc: MemoryDesc) -> bool:
    return desc.padded_dims != desc.dims


def _one_pass(src: Sequence[Digits], dst: Sequence[Digits]) -> Pass | None:
    """One copy between axes of these digits; None where an axis is split differently on both sides."""
    rows: list[tuple[int, int, int]] = []
    for from_digits, to_digits in zip(src, dst, strict=True):
        extents = [digit.extent for digit in max(from_digits, to_digits, key=len)]
        from_steps, to_steps = _split(from_digits, extents), _split(to_digits, extents)
        if from_steps is None or to_steps is None:
            return None
        rows += zip(extents, from_steps, to_steps, strict=True)
    rows.sort(key=lambda row: row[2], reverse=True)
    return Pass(*map(tuple, zip(*rows, strict=True)))


def _split(digits: Digits, extents: Sequence[int]) -> list[int] | None:
    """The strides of an axis whose coordinate is written with these extents."""
    if [digit.extent for digit in digits] == list(extents):
        return [digit.stride for digit in digits]
    if len(digits) != 1:
        return None
    steps = accumulate(reversed(extents[1:]), mul, initial=digits[0].stride)
    return [*steps][::-1]
