"""Batches of products of few rows with matrices as they are in memory, such as keys and values in decoding.

    scores = queries @ keys^T       the weights are contiguous along the features, which are summed
    result = shares @ values        the weights are contiguous along the features, which are the columns

Such weights change in each run and are read once, so it takes longer to pack them than to read them.
Inlay's own machine code reads keys and values where they are, if the features of each are contiguous.

>>> from inlay.primitives.engine import Operation
>>> queries, scores = MemoryDesc((1, 12, 1, 64), "f32", "abcd"), MemoryDesc((1, 12, 1, 512), "f32", "abcd")
>>> keys = MemoryDesc((1, 12, 64, 512), "f32", "dabc")
>>> find_features(Operation("matmul", "forward_inference", {"src": queries, "weights": keys, "dst": scores}))
'summed'
"""

from typing import Literal

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.primitives.engine import Operation
from inlay.primitives.panel_weights import MOST_ROWS
from inlay.reordering.target import host_target

Features = Literal["summed", "columns"]
"""The axis of the weights along which elements are contiguous."""
MOST_REGISTERS = 16
"""Most vector registers that the features of a row fill."""


def find_features(operation: Operation, lanes: int = 0) -> Features | None:
    """Return the axis of the features if an operation is a batch of products that the machine code is meant for.

    It has 3 or 4 axes, at most `MOST_ROWS` rows, elements of f32, and weights without blocks or padding. The features
    fill whole registers of `lanes` floats; 0 stands for those of this machine.
    """
    descs = operation.descs
    if operation.kind != "matmul" or operation.prop_kind != "forward_inference" or "bias" in descs:
        return None
    src, weights, dst = (descs[name] for name in ("src", "weights", "dst"))
    if not 3 <= dst.ndims <= 4 or not dst.ndims == src.ndims == weights.ndims:
        return None
    if not _is_plain(weights) or not has_contiguous_rows(src) or not (dst.kind == "any" or has_contiguous_rows(dst)):
        return None
    if any(str(desc.data_type) != "f32" for desc in (src, weights, dst)) or dst.dims[-2] > MOST_ROWS:
        return None
    lanes = lanes or _host_lanes()
    axes: tuple[tuple[int, Features], ...] = ((-2, "summed"), (-1, "columns"))
    for axis, features in axes:
        if weights.strides[axis] == 1 and lanes and _fills_registers(weights.dims[axis], lanes):
            return features
    return None


def has_contiguous_rows(desc: MemoryDesc) -> bool:
    """Return whether the elements of each row are contiguous."""
    return _is_plain(desc) and (desc.strides[-1] == 1 or desc.dims[-1] == 1)


def _is_plain(desc: MemoryDesc) -> bool:
    """Return whether each axis of a descriptor has a stride, and there are elements and no padding."""
    is_known = desc.kind == "blocked" and not desc.has_runtime and 0 not in desc.dims
    return is_known and isinstance(desc.layout, Layout) and not desc.inner_blocks and desc.padded_dims == desc.dims


def _fills_registers(count: int, lanes: int) -> bool:
    """Return whether so many features fill at most `MOST_REGISTERS` whole registers."""
    return count % lanes == 0 and count <= MOST_REGISTERS * lanes


def _host_lanes() -> int:
    """Return the floats of a vector register of this machine; 0 if there is no code for it."""
    try:
        return host_target().vector_bytes // 4
    except Unimplemented:
        return 0
