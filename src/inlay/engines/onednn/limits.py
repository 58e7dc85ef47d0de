"""Sizes from which a loaded oneDNN ends the process or exhausts the memory.

Kernels store dims and products of dims in `int`. A product above 2^31 - 1 wraps, at a power of two to 0, and the
library divides by it. The creation of such a primitive ends the process or exhausts the memory. The limits were found
by creating 3,264 primitives with dims up to 2^40 (tests/support/large_dims.py).

    before 3.13
    all but elementwise kinds               a dim above 2^31 - 1
    convolution, deconvolution              more than 2^31 - 1 elements in an image or in the weights of a group, with
                                              channels rounded up to 16; 2^26 or more columns of dst, for each of which
                                              the library allocates 64 bytes of tables
    recurrent networks                      more than 2^31 - 1 channels of all gates together

    all releases
    inner product                           a dim, or the elements of one image, above 2^31 - 1
    linear resampling                       more than 2^27 pixels of dst: about 32 bytes of tables for each
    layer normalization                     more than 2^28 elements on the last axis: its code is unrolled
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Final

from inlay.descriptor import MemoryDesc
from inlay.primitives.engine import Operation
from inlay.primitives.rules import RECURRENT

_INT: Final = 2**31 - 1
_LIMITS_FIXED: Final = (3, 13)
"""The release that refuses dims above 2^31 - 1 or computes with them, except for the kinds of `_LIMITS`."""
_BLOCK: Final = 16
_MOST_COLUMNS: Final = 2**26 - 1
_MOST_PIXELS: Final = 2**27
_MOST_NORMALIZED: Final = 2**28
_COUNTING_64_BITS: Final = frozenset(("eltwise", "binary", "sum", "concat", "reorder"))
"""Kinds whose kernels count elements with 64 bits."""


def find_exceeded_limit(version: tuple[int, int, int], operation: Operation) -> str | None:
    """Return the size that is too large for this release, as the end of `oneDNN has no ...`; None if there is none."""
    kind, descs = operation.kind, operation.descs
    if kind in _LIMITS and (excess := next(_LIMITS[kind](operation), None)):
        return excess
    if version >= _LIMITS_FIXED or kind in _COUNTING_64_BITS:
        return None
    for name, desc in descs.items():
        if desc.dims and max(desc.dims) > _INT:
            return f"{kind} with a dim of {max(desc.dims)} in {name}: its kernels count to {_INT}"
    if kind in _OLD_LIMITS:
        return next(_OLD_LIMITS[kind](operation), None)
    return None


def _check_convolution(operation: Operation) -> Iterator[str]:
    """Iterate over the limits that a convolution or deconvolution exceeds before 3.13."""
    kind = operation.kind
    for name, desc in operation.descs.items():
        if "weights" in name:
            end = 2 if desc.ndims == 2 + _spatial_axes(operation) else 3  # with groups, channels are axes 1 and 2
            count = prod(_in_blocks(n) for n in desc.dims[end - 2 : end]) * prod(desc.dims[end:])
            if count > _INT:
                yield f"{kind} by {count} {name} of a group: its kernels count to {_INT}"
        elif desc.ndims > 2:
            count = _in_blocks(desc.dims[1]) * prod(desc.dims[2:])
            if count > _INT:
                yield f"{kind} with {count} elements in an image of {name}: its kernels count to {_INT}"
    dst = operation.descs.get("dst") or operation.descs.get("diff_dst") or MemoryDesc()
    if dst.ndims > 2 and dst.dims[-1] > _MOST_COLUMNS:
        yield f"{kind} with {dst.dims[-1]} columns of dst, for which it would fill {dst.dims[-1] >> 24} GiB with tables"


def _in_blocks(channels: int) -> int:
    """Return the number of channels, rounded up to whole blocks."""
    return -(-channels // _BLOCK) * _BLOCK


def _spatial_axes(operation: Operation) -> int:
    """Return the number of spatial axes of a convolution."""
    return max((desc.ndims for name, desc in operation.descs.items() if "weights" not in name), default=2) - 2


def _check_recurrent(operation: Operation) -> Iterator[str]:
    """Iterate over the limits that a recurrent network exceeds before 3.13."""
    for name, desc in operation.descs.items():
        if name.endswith(("weights_layer", "weights_iter")) and prod(desc.dims[-2:]) > _INT:
            yield f"{operation.kind} with {prod(desc.dims[-2:])} channels of gates: its kernels count to {_INT}"


def _check_inner_product(operation: Operation) -> Iterator[str]:
    """Iterate over the limits that an inner product exceeds in all releases."""
    for name, desc in operation.descs.items():
        if desc.dims and (desc.dims[0] > _INT or prod(desc.dims[1:]) > _INT):
            yield f"inner_product with dims {desc.dims} in {name}: its kernels count to {_INT}"


def _check_resampling(operation: Operation) -> Iterator[str]:
    """Iterate over the limits that a resampling exceeds in all releases."""
    dst = operation.descs.get("dst") or operation.descs.get("diff_dst") or MemoryDesc()
    pixels = prod(dst.dims[2:])
    if operation.parameters.get("algorithm") == "linear" and pixels > _MOST_PIXELS:
        yield f"linear resampling to {pixels} pixels, for which it would fill {pixels >> 25} GiB with tables"


def _check_layer_normalization(operation: Operation) -> Iterator[str]:
    """Iterate over the limits that a layer normalization exceeds in all releases."""
    src = operation.descs.get("src") or MemoryDesc()
    if src.dims and src.dims[-1] > _MOST_NORMALIZED:
        yield f"layer_normalization over {src.dims[-1]} elements, for which it would unroll its code"


_LIMITS: Final[Mapping[str, Callable[[Operation], Iterator[str]]]] = {
    "inner_product": _check_inner_product,
    "resampling": _check_resampling,
    "layer_normalization": _check_layer_normalization,
}
"""Checks for all releases, by kind."""
_OLD_LIMITS: Final[Mapping[str, Callable[[Operation], Iterator[str]]]] = {
    "convolution": _check_convolution,
    "deconvolution": _check_convolution,
    **dict.fromkeys(RECURRENT, _check_recurrent),
}
"""Checks for releases before 3.13, by kind."""
