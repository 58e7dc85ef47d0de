"""Permutations of axes: applied, undone, and refused with the nearest one that is right.

A permutation says where each axis goes: entry i of what is permuted becomes entry `permutation[i]`. Its inverse says
where each axis comes from, which is how NumPy's `transpose` and MegEngine's `dimshuffle` read their argument.

>>> permuted("nchw", (0, 3, 1, 2)), inverse((0, 3, 1, 2))
(('n', 'h', 'w', 'c'), (0, 2, 3, 1))
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from inlay.errors import InvalidArguments

T = TypeVar("T")


def permuted(values: Sequence[T], permutation: Sequence[int]) -> tuple[T, ...]:
    """`values` with entry i moved to place `permutation[i]`.

    >>> permuted("nchw", (0, 3, 1, 2))
    ('n', 'h', 'w', 'c')
    """
    result = list(values)
    for value, place in zip(values, permutation, strict=True):
        result[place] = value
    return tuple(result)


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `permutation`.

    >>> inverse((0, 3, 1, 2))
    (0, 2, 3, 1)
    """
    return permuted(range(len(permutation)), permutation)


def require_permutation(what: str, permutation: Sequence[int], ndims: int) -> None:
    """Refuse what is not each of 0..ndims-1 once, and say the nearest permutation; `what` names the argument.

    Raises:
        InvalidArguments: an axis is missing, repeated or out of range.
    """
    if sorted(permutation) == list(range(ndims)):
        return
    remedy = f"\n    {nearest_permutation(permutation, ndims)} works" if ndims else ""
    faults = ", ".join(_faults(permutation, ndims))
    raise InvalidArguments(f"{what} {tuple(permutation)} must use each of 0..{ndims - 1} once: {faults}{remedy}")


def nearest_permutation(wanted: Sequence[int], ndims: int) -> tuple[int, ...]:
    """`wanted` with what is missing, in order, in place of what is repeated or no axis, and as long as needed.

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


def _faults(permutation: Sequence[int], ndims: int) -> Iterator[str]:
    missing = [str(i) for i in range(ndims) if i not in permutation]
    if missing:
        yield f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    for i in sorted(set(permutation)):
        if not 0 <= i < ndims:
            yield f"{i} is no axis"
        elif (count := list(permutation).count(i)) > 1:
            yield f"{i} appears {'twice' if count == 2 else f'{count} times'}"


def _listed(words: Sequence[str]) -> str:
    return words[-1] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
