"""Patterns of repeated axes for which oneDNN's primitive binary has machine code, in row-major formats.

The primitive repeats only its second source. `S` is an axis of full extent and `B` an axis of extent 1 of the second
source:

    the same dims    B..B    B..BS..S    SB..BS..S    SSB..B and BSB..B    SB with two axes

It computes all other patterns element by element, in its reference code.

Source: oneDNN 3.2, `jit_uni_binary`; measured with `Implementation.impl` for all patterns of up to six axes.
"""

import re

from inlay.layout import Dims

_MACHINE_CODE = re.compile("B*|B+S+|SB+S+|[SB]SB+|SB")
"""Patterns of the second source's axes for which oneDNN has machine code."""


def has_machine_code(one: Dims, other: Dims) -> bool:
    """Return whether oneDNN has machine code for sources of these dims, in row-major formats.

    >>> has_machine_code((1, 64, 4, 32), (1, 64, 4, 1)), has_machine_code((256, 32), (256, 1))
    (False, True)
    """
    is_first_whole = all(m in (1, n) for n, m in zip(one, other, strict=True))
    pattern = "".join("B" if n == 1 else "S" for n in other)
    return one == other or (is_first_whole and _MACHINE_CODE.fullmatch(pattern) is not None)


def can_broadcast(one: Dims, other: Dims) -> bool:
    """Return whether oneDNN has machine code for sources of these dims, perhaps after neighboring axes are merged.

    >>> can_broadcast((1, 64, 4, 32), (1, 64, 4, 1)), can_broadcast((4, 3, 4, 3), (1, 3, 1, 3))
    (True, False)
    """
    return has_machine_code(one, other) or has_machine_code(*merge_axes(one, other))


def merge_axes(one: Dims, other: Dims) -> tuple[Dims, Dims]:
    """Return the dims of two operands with the fewest axes that broadcast alike.

    >>> merge_axes((1, 64, 4, 32), (1, 64, 4, 1))
    ((256, 32), (256, 1))
    """
    runs: list[tuple[int, int]] = []
    for n, m in zip(one, other, strict=True):
        if n == m == 1:
            continue
        if runs and _kind(*runs[-1]) == _kind(n, m):
            n, m = runs[-1][0] * n, runs.pop()[1] * m
        runs.append((n, m))
    merged = runs or [(1, 1)]
    return tuple(n for n, _ in merged), tuple(m for _, m in merged)


def _kind(n: int, m: int) -> tuple[bool, bool]:
    """Return which of two operands repeats its elements along an axis where they have the extents n and m."""
    return n == 1, m == 1
