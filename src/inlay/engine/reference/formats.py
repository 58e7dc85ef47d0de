"""The descriptor of every argument: what `any` becomes, and what no one gives: workspace, statistics, attributes.

`any` becomes row-major where a primitive multiplies by weights, and so does a packed descriptor without a tag, in
blocks along the last axis. Elsewhere the destination takes the format in which the source arrives, and in a backward
primitive a gradient the format of what it is the gradient of.

Source: oneAPI specification, "Memory format propagation".
"""

from collections.abc import Iterator
from typing import get_args

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.sparsity import PACKED_BLOCK
from inlay.engine.reference.arrays import Shape
from inlay.engine.reference.recurrent_formulas import kept_dims
from inlay.engine.reference.values import values_desc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.format_tag import LETTERS
from inlay.layout import Layout
from inlay.primitives.attributes import Binary, DepthwiseConvolution, PReLU
from inlay.primitives.operation import Operation
from inlay.primitives.signatures import WEIGHTED


def settled(operation: Operation) -> dict[str, MemoryDesc]:
    """The descriptor of each argument that is read or written.

    Raises:
        InvalidArguments: a workspace is needed and the hint has none.
        Unimplemented: an argument has dims that are RUNTIME, or no layout.
    """
    descs = {name: _chosen(desc, _model(operation, name)) for name, desc in operation.descs.items()}
    for name, desc in descs.items():
        is_known = isinstance(desc.layout, (Layout, *get_args(kinds.Sparse)))
        if desc.has_runtime or not is_known:
            raise Unimplemented(
                f"the reference engine computes on tensors with known dims and a layout: {name} is {desc!r}"
            )
    descs |= dict(_workspace(operation, descs))
    descs |= dict(_post_ops(operation, descs))
    return descs | dict(_values(operation, descs))


def _model(operation: Operation, name: str) -> MemoryDesc | None:
    """The argument that `name` takes the format of."""
    if operation.hint is not None:
        return operation.hint.descs.get(name.removeprefix("diff_"))
    if operation.kind in WEIGHTED:
        return None
    return operation.descs.get("src") or operation.descs.get("src_0")


def _chosen(desc: MemoryDesc, model: MemoryDesc | None) -> MemoryDesc:
    """`desc`, or if it is `any`: the format of `model`, or row-major where there is none that fits these dims."""
    assert desc.data_type is not None
    if isinstance(desc.layout, kinds.Packed) and not desc.layout.tag:
        return MemoryDesc.packed(desc.dims, desc.data_type, desc.nnz, _packed_tag(desc.ndims))
    if desc.kind != "any":
        return desc
    tag = None if model is None or model.ndims != desc.ndims else model.tag
    return MemoryDesc(desc.dims, desc.data_type, tag)


def _packed_tag(ndims: int) -> str:
    """Row-major order in blocks of 64 along the last axis."""
    letters = LETTERS[:ndims]
    return f"{letters[:-1]}{letters[-1].upper()}{PACKED_BLOCK}{letters[-1]}"


def _workspace(operation: Operation, descs: dict[str, MemoryDesc]) -> Iterator[tuple[str, MemoryDesc]]:
    """What training keeps for the way back."""
    if operation.direction == "forward":
        if operation.prop_kind == "forward_training" and (kept := _kept(operation)):
            dims = kept_dims(operation) if "src_layer" in descs else descs["dst"].dims
            yield "workspace", MemoryDesc(dims, DATA_TYPES[kept])
        return
    if not _kept(operation) or "workspace" in descs:
        return
    if operation.hint is None or "workspace" not in operation.hint.descs:
        raise InvalidArguments(
            f"{operation.kind} {operation.prop_kind} reads the workspace of its forward primitive, and the hint has "
            "none: create that with forward_training and give it as hint"
        )
    yield "workspace", operation.hint.descs["workspace"]


def _kept(operation: Operation) -> str | None:
    """The type of what the forward primitive keeps, if it keeps something."""
    flags = operation.parameters.get("flags", frozenset())
    match operation.kind:
        case "pooling" if operation.parameters["algorithm"] == "max":
            return "s32"
        case "batch_normalization" if isinstance(flags, frozenset) and flags & {"fuse_norm_relu", "fuse_norm_add_relu"}:
            return "u8"
        case "lrn" | "vanilla_rnn" | "lstm" | "gru" | "lbr_gru" | "augru" | "lbr_augru":
            return "f64"
    return None


def _post_ops(operation: Operation, descs: dict[str, MemoryDesc]) -> Iterator[tuple[str, MemoryDesc]]:
    """What post-operations read, and the destination that a depthwise convolution leaves."""
    for i, post_op in enumerate(operation.attributes.post_ops):
        dst = descs["dst"]
        match post_op:
            case Binary(src_1=src_1):
                yield f"post_op_{i}_src_1", _chosen(src_1, dst if src_1.dims == dst.dims else None)
            case PReLU(mask=mask):
                shape = tuple(n if mask >> axis & 1 else 1 for axis, n in enumerate(dst.dims))
                yield f"post_op_{i}_weights", MemoryDesc(shape, "f32")
            case DepthwiseConvolution():
                yield from _depthwise(f"post_op_{i}", post_op, dst.dims)


def _depthwise(name: str, post_op: DepthwiseConvolution, dims: Shape) -> Iterator[tuple[str, MemoryDesc]]:
    channels, spatial = dims[1], dims[2:]
    yield f"{name}_weights", MemoryDesc((channels, 1, 1, *[post_op.kernel] * len(spatial)), post_op.weights_type)
    if post_op.bias_type is not None:
        yield f"{name}_bias", MemoryDesc((channels,), post_op.bias_type)
    out = tuple(-(-n // post_op.stride) for n in spatial)
    yield "dst", MemoryDesc((*dims[:2], *out), post_op.dst_type)


def _values(operation: Operation, descs: dict[str, MemoryDesc]) -> Iterator[tuple[str, MemoryDesc]]:
    """The values of scales and zero points."""
    for kind, entries in (("scales", operation.attributes.scales), ("zero_points", operation.attributes.zero_points)):
        for name, entry in entries.items():
            # With a depthwise convolution the scales of dst are those of what comes before it.
            desc = operation.descs.get(name) or descs.get(name)
            if desc is not None:
                yield f"{name}_{kind}", values_desc(entry, desc.dims)
