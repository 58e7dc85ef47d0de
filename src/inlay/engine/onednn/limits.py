"""Sizes that a release of oneDNN accepts and does not survive: the process ends, or memory is used up, at creation.

Kernels keep dims and products of dims in `int`. One that exceeds 2^31 - 1 wraps, at a power of two to 0, and the
library divides by it. Found by creating 3,264 primitives with dims up to 2^40 (tests/large_dims.py).

    before 3.13
    every kind but the elementwise ones     a dim above 2^31 - 1
    convolution, deconvolution              more than 2^31 - 1 elements in an image, or in the weights of a group,
                                              channels counted in blocks of 16; 2^26 columns of dst and more: 64 bytes
                                              of tables for each
    recurrent networks                      more than 2^31 - 1 channels of all gates together

    in every release
    inner product                           a dim, or the elements of one image, above 2^31 - 1
    linear resampling                       more than 2^27 pixels of dst: some 32 bytes of tables for each
    layer normalization                     more than 2^28 elements on the last axis: its code is unrolled

What is declined is computed by the reference engine, if there is memory for it.
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Final

from inlay.descriptor import MemoryDesc
from inlay.primitives.operation import Operation
from inlay.primitives.signatures import RECURRENT

_INT: Final = 2**31 - 1
_MENDED: Final = (3, 13)
"""The release that refuses dims above 2^31 - 1 itself, or computes with them, unless said otherwise."""
_BLOCK: Final = 16
_MOST_COLUMNS: Final = 2**26 - 1
_MOST_PIXELS: Final = 2**27
_MOST_NORMALIZED: Final = 2**28
_BY_ELEMENTS: Final = frozenset(("eltwise", "binary", "sum", "concat", "reorder"))
"""Kinds whose kernels count elements in 64 bits."""


def excess_of(version: tuple[int, int, int], operation: Operation) -> str | None:
    """Return what of the operation is too large for this release, as the end of `oneDNN has no ...`, or None."""
    kind, descs = operation.kind, operation.descs
    if kind in _LIMITS and (excess := next(_LIMITS[kind](operation), None)):
        return excess
    if version >= _MENDED or kind in _BY_ELEMENTS:
        return None
    for name, desc in descs.items():
        if desc.dims and max(desc.dims) > _INT:
            return f"{kind} with a dim of {max(desc.dims)} in {name}: its kernels count to {_INT}"
    if kind in _OLD_LIMITS:
        return next(_OLD_LIMITS[kind](operation), None)
    return None


def _of_convolution(operation: Operation) -> Iterator[str]:
    kind = operation.kind
    for name, desc in operation.descs.items():
        if "weights" in name:
            channels = 2 if desc.ndims == 2 + _spatial_axes(operation) else 3
            count = prod(_in_blocks(n) for n in desc.dims[channels - 2 : channels]) * prod(desc.dims[channels:])
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
    return -(-channels // _BLOCK) * _BLOCK


def _spatial_axes(operation: Operation) -> int:
    return max(desc.ndims for name, desc in operation.descs.items() if "weights" not in name) - 2


def _of_recurrent(operation: Operation) -> Iterator[str]:
    for name, desc in operation.descs.items():
        if name.endswith(("weights_layer", "weights_iter")) and prod(desc.dims[-2:]) > _INT:
            yield f"{operation.kind} with {prod(desc.dims[-2:])} channels of gates: its kernels count to {_INT}"


def _of_inner_product(operation: Operation) -> Iterator[str]:
    for name, desc in operation.descs.items():
        if desc.dims and (desc.dims[0] > _INT or prod(desc.dims[1:]) > _INT):
            yield f"inner_product with dims {desc.dims} in {name}: its kernels count to {_INT}"


def _of_resampling(operation: Operation) -> Iterator[str]:
    dst = operation.descs.get("dst") or operation.descs.get("diff_dst") or MemoryDesc()
    pixels = prod(dst.dims[2:])
    if operation.parameters.get("algorithm") == "linear" and pixels > _MOST_PIXELS:
        yield f"linear resampling to {pixels} pixels, for which it would fill {pixels >> 25} GiB with tables"


def _of_layer_normalization(operation: Operation) -> Iterator[str]:
    src = operation.descs.get("src") or MemoryDesc()
    if src.dims and src.dims[-1] > _MOST_NORMALIZED:
        yield f"layer_normalization over {src.dims[-1]} elements, for which it would unroll its code"


_LIMITS: Final[Mapping[str, Callable[[Operation], Iterator[str]]]] = {
    "inner_product": _of_inner_product,
    "resampling": _of_resampling,
    "layer_normalization": _of_layer_normalization,
}
"""Limits of every release."""
_OLD_LIMITS: Final[Mapping[str, Callable[[Operation], Iterator[str]]]] = {
    "convolution": _of_convolution,
    "deconvolution": _of_convolution,
    **dict.fromkeys(RECURRENT, _of_recurrent),
}
"""Limits of releases before 3.13."""
