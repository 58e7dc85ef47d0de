"""Permutations of axes: application, inverse, and validation.

A permutation holds the new position of each axis: `permute` moves entry i to position `permutation[i]`. The inverse
holds the old position of each axis, as the arguments of NumPy's `transpose` and MegEngine's `dimshuffle` do.

>>> permute("nchw", (0, 3, 1, 2)), inverse((0, 3, 1, 2))
(('n', 'h', 'w', 'c'), (0, 2, 3, 1))
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from inlay.errors import InvalidArguments

T = TypeVar("T")


def permute(values: Sequence[T], permutation: Sequence[int]) -> tuple[T, ...]:
    """Move entry i of `values` to position `permutation[i]`.

    >>> permute("nchw", (0, 3, 1, 2))
    ('n', 'h', 'w', 'c')
    """
    result = list(values)
    for value, position in zip(values, permutation, strict=True):
        result[position] = value
    return tuple(result)


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that reverses `permutation`.

    >>> inverse((0, 3, 1, 2))
    (0, 2, 3, 1)
    """
    return permute(range(len(permutation)), permutation)


def require_permutation(what: str, permutation: Sequence[int], ndims: int) -> None:
    """Check that `permutation` contains each of 0..ndims-1 once; `what` names the argument in the error.

    Raises:
        InvalidArguments: an axis is missing, repeated or out of range; the error proposes the nearest permutation.
    """
    if sorted(permutation) == list(range(ndims)):
        return
    remedy = f"\n    {nearest_permutation(permutation, ndims)} works" if ndims else ""
    faults = ", ".join(_describe_faults(permutation, ndims))
    raise InvalidArguments(f"{what} {tuple(permutation)} must use each of 0..{ndims - 1} once: {faults}{remedy}")


def nearest_permutation(wanted: Sequence[int], ndims: int) -> tuple[int, ...]:
    """Return the permutation of `ndims` axes that keeps the most of `wanted`.

    Entries that repeat an earlier one or are out of range are replaced by the missing axes, in ascending order.

    >>> nearest_permutation((0, 3, 3, 2), 4)
    (0, 3, 1, 2)
    """
    missing = iter([i for i in range(ndims) if i not in wanted])
    result: list[int] = []
    for i in range(ndims):
        entry = wanted[i] if i < len(wanted) else -1
        if 0 <= entry < ndims and entry not in result:
            result.append(entry)
        else:
            result.append(next(missing, -1))
    rest = iter([i for i in range(ndims) if i not in result])
    return tuple(next(rest) if i < 0 else i for i in result)


def _describe_faults(permutation: Sequence[int], ndims: int) -> Iterator[str]:
    """Return phrases that describe missing, invalid and repeated axes."""
    missing = [str(i) for i in range(ndims) if i not in permutation]
    if missing:
        yield f"{_join_words(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    for i in sorted(set(permutation)):
        if not 0 <= i < ndims:
            yield f"{i} is no axis"
        elif (count := list(permutation).count(i)) > 1:
            yield f"{i} appears {'twice' if count == 2 else f'{count} times'}"


def _join_words(words: Sequence[str]) -> str:
    """Join words as in a sentence: "1, 2 and 3"."""
    return words[-1] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
