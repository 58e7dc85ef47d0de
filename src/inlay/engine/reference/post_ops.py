"""What follows a primitive: sum, eltwise, binary, prelu and depthwise convolution, in the order they are given.

Source: oneAPI specification, "Post-ops".
"""

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.engine.reference import binary, convolution, eltwise
from inlay.engine.reference.arrays import Array
from inlay.engine.reference.values import Memories, read, real, rounded, stored
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.primitives.attributes import Binary, DepthwiseConvolution, Eltwise, PostOp, PReLU, Sum
from inlay.primitives.operation import Operation


def applied(operation: Operation, array: Array, memories: Memories) -> Array:
    """The result of the primitive after all post-operations, as the elements of dst, not yet rounded."""
    name = "dst"
    for i, post_op in enumerate(operation.attributes.post_ops):
        if isinstance(post_op, DepthwiseConvolution):
            array = _depthwise(operation, post_op, f"post_op_{i}", array, memories)
            name = f"post_op_{i}_dst"
        else:
            array = _applied(post_op, f"post_op_{i}", array, memories)
    return stored(name, array, operation.attributes, memories)


def _applied(post_op: PostOp, name: str, x: Array, memories: Memories) -> Array:
    match post_op:
        case Sum(scale=scale, zero_point=zero_point, data_type=data_type):
            return x + scale * (read(_viewed(memories["dst"], data_type)) - zero_point)
        case Eltwise(algorithm=algorithm, alpha=alpha, beta=beta):
            return eltwise.apply(algorithm, x, alpha, beta)
        case Binary(algorithm=algorithm):
            return binary.apply(algorithm, x, read(memories[f"{name}_src_1"]))
        case PReLU():
            return np.where(x >= 0, x, x * read(memories[f"{name}_weights"]))
    raise AssertionError(post_op)


def _viewed(memory: Memory, data_type: str | None) -> Memory:
    """The same bytes read as another type of the same width."""
    desc = memory.desc
    assert isinstance(desc.layout, Layout)
    if data_type is None:
        return memory
    viewed = MemoryDesc.from_layout(desc.layout, data_type, dims=desc.dims, offset0=desc.offset0)
    return Memory(viewed, memory.buffer)


def _depthwise(operation: Operation, post_op: DepthwiseConvolution, name: str, x: Array, memories: Memories) -> Array:
    """The depthwise convolution of what the 1x1 convolution would have written."""
    attributes, between = operation.attributes, operation.descs["dst"].data_type
    assert between is not None
    src = real("dst", rounded(stored("dst", x, attributes, memories), between), attributes, memories)
    weights = real(f"{name}_weights", read(memories[f"{name}_weights"]), attributes, memories)
    bias = read(memories[f"{name}_bias"]) if post_op.bias_type is not None else None
    spatial = x.ndim - 2
    return convolution.forward(
        src=src,
        weights=weights,
        bias=bias,
        strides=(post_op.stride,) * spatial,
        dilations=(0,) * spatial,
        padding_l=(post_op.padding,) * spatial,
        shapes={"dst": (*x.shape[:2], *[-(-n // post_op.stride) for n in x.shape[2:]])},
    )["dst"]
