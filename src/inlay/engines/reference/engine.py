"""`ReferenceEngine`: chooses formats for an operation, and runs its formula on the memories that it is bound to.

Formats for `any`: row-major in primitives that multiply by weights; a packed descriptor without a tag gets blocks along
the last axis. In other forward primitives the destination gets the format of the source, and in backward primitives
each gradient gets the format of its forward argument.

`FORMULAS` has the formula of each primitive in each direction. Post-operations are applied to its result in order.

>>> FORMULAS["softmax", "forward"].__module__
'inlay.engines.reference.bandwidth_limited'

Source: oneAPI specification, "Memory format propagation" and "Post-ops".
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.sparsity import PACKED_BLOCK
from inlay.engines.reference import bandwidth_limited, normalization, products, recurrent, spatial
from inlay.engines.reference.products import SparseArray, dequantize_sparse
from inlay.engines.reference.values import (
    Array,
    Formula,
    Memories,
    Shape,
    dequantize,
    quantize,
    read,
    round_to_type,
    values_desc,
    write,
)
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
from inlay.layout.axis import LETTERS
from inlay.memory import Memory, reorder
from inlay.primitives.attributes import (
    BinaryPostOp,
    DepthwiseConvolution,
    EltwisePostOp,
    PostOp,
    PReLUPostOp,
    SumPostOp,
    reorder_attributes,
)
from inlay.primitives.engine import Engine, Operation, PlainImplementation
from inlay.primitives.rules import RECURRENT, WEIGHTED, Direction


def choose_formats(operation: Operation) -> dict[str, MemoryDesc]:
    """Choose the formats of an operation, and return the descriptor of each argument that is read or written.

    Raises:
        InvalidArguments: a workspace is needed, and the hint has none.
        Unimplemented: an argument has RUNTIME dims, or no layout.
    """
    descs = {name: _resolve_any(desc, _format_source(operation, name)) for name, desc in operation.descs.items()}
    for name, desc in descs.items():
        is_known = isinstance(desc.layout, (Layout, *get_args(kinds.Sparse)))
        if desc.has_runtime or not is_known:
            raise Unimplemented(
                f"the reference engine computes on tensors with known dims and a layout: {name} is {desc!r}"
            )
    descs |= dict(_workspace(operation, descs))
    descs |= dict(_post_op_descs(operation, descs))
    return descs | dict(_attribute_value_descs(operation, descs))


def _format_source(operation: Operation, name: str) -> MemoryDesc | None:
    """Return the descriptor whose format the argument `name` gets if it is `any`; None for row-major."""
    if operation.hint is not None:
        return operation.hint.descs.get(name.removeprefix("diff_"))
    if operation.kind in WEIGHTED:
        return None
    return operation.descs.get("src") or operation.descs.get("src_0")


def _resolve_any(desc: MemoryDesc, model: MemoryDesc | None) -> MemoryDesc:
    """Return `desc` with a concrete format: that of `model` if both have as many axes, else row-major."""
    assert desc.data_type is not None
    if isinstance(desc.layout, kinds.Packed) and not desc.layout.tag:
        return MemoryDesc.packed(desc.dims, desc.data_type, desc.nnz, _packed_tag(desc.ndims))
    if desc.kind != "any":
        return desc
    tag = None if model is None or model.ndims != desc.ndims else model.tag
    if desc.data_type.is_sub_byte and tag is None and desc.dims[-1] % 2:  # two elements share a byte
        return MemoryDesc(desc.dims, desc.data_type, padded_dims=(*desc.dims[:-1], desc.dims[-1] + 1))
    return MemoryDesc(desc.dims, desc.data_type, tag)


def _packed_tag(ndims: int) -> str:
    """Return the tag of packed memory: row-major, in blocks of 64 along the last axis."""
    letters = LETTERS[:ndims]
    return f"{letters[:-1]}{letters[-1].upper()}{PACKED_BLOCK}{letters[-1]}"


def _workspace(operation: Operation, descs: dict[str, MemoryDesc]) -> Iterator[tuple[str, MemoryDesc]]:
    """Yield the workspace, with its descriptor, if the operation has one."""
    if operation.direction == "forward":
        if operation.prop_kind == "forward_training" and (data_type := _workspace_type(operation)):
            dims = recurrent.workspace_dims(operation) if "src_layer" in descs else descs["dst"].dims
            yield "workspace", MemoryDesc(dims, DATA_TYPES[data_type])
        return
    if not _workspace_type(operation) or "workspace" in descs:
        return
    if operation.hint is None or "workspace" not in operation.hint.descs:
        raise InvalidArguments(
            f"{operation.kind} {operation.prop_kind} reads the workspace of its forward primitive, and the hint has "
            "none: create that with forward_training and give it as hint"
        )
    yield "workspace", operation.hint.descs["workspace"]


def _workspace_type(operation: Operation) -> str | None:
    """Return the data type of the workspace of the forward primitive; None if it has no workspace."""
    flags = operation.parameters.get("flags", frozenset())
    match operation.kind:
        case "pooling" if operation.parameters["algorithm"] == "max":
            return "s32"
        case "batch_normalization" if isinstance(flags, frozenset) and flags & {"fuse_norm_relu", "fuse_norm_add_relu"}:
            return "u8"
        case "lrn" | "vanilla_rnn" | "lstm" | "gru" | "lbr_gru" | "augru" | "lbr_augru":
            return "f64"
    return None


def _post_op_descs(operation: Operation, descs: dict[str, MemoryDesc]) -> Iterator[tuple[str, MemoryDesc]]:
    """Yield the operands of post-operations, and the final `dst` if there is a depthwise convolution."""
    for i, post_op in enumerate(operation.attributes.post_ops):
        dst = descs["dst"]
        match post_op:
            case BinaryPostOp(src_1=src_1):
                yield f"post_op_{i}_src_1", _resolve_any(src_1, dst if src_1.dims == dst.dims else None)
            case PReLUPostOp(mask=mask):
                shape = tuple(n if mask >> axis & 1 else 1 for axis, n in enumerate(dst.dims))
                yield f"post_op_{i}_weights", MemoryDesc(shape, "f32")
            case DepthwiseConvolution():
                yield from _depthwise_descs(f"post_op_{i}", post_op, dst.dims)


def _depthwise_descs(name: str, post_op: DepthwiseConvolution, dims: Shape) -> Iterator[tuple[str, MemoryDesc]]:
    """Yield the weights, bias and destination of a depthwise convolution; `dims` are those of its source."""
    channels, spatial = dims[1], dims[2:]
    yield f"{name}_weights", MemoryDesc((channels, 1, 1, *[post_op.kernel] * len(spatial)), post_op.weights_type)
    if post_op.bias_type is not None:
        yield f"{name}_bias", MemoryDesc((channels,), post_op.bias_type)
    out = tuple(-(-n // post_op.stride) for n in spatial)
    yield "dst", MemoryDesc((*dims[:2], *out), post_op.dst_type)


def _attribute_value_descs(operation: Operation, descs: dict[str, MemoryDesc]) -> Iterator[tuple[str, MemoryDesc]]:
    """Yield the arguments with the values of scales and zero points."""
    for kind, entries in (("scales", operation.attributes.scales), ("zero_points", operation.attributes.zero_points)):
        for name, entry in entries.items():
            # With a depthwise convolution, `dst` in attributes is the result of the primitive before it.
            desc = operation.descs.get(name) or descs.get(name)
            if desc is not None:
                yield f"{name}_{kind}", values_desc(entry, desc.dims)


def apply_post_ops(operation: Operation, array: Array, memories: Memories) -> Array:
    """Apply the post-operations to the result of a formula, and quantize it; the result is not yet rounded."""
    name = "dst"
    for i, post_op in enumerate(operation.attributes.post_ops):
        if isinstance(post_op, DepthwiseConvolution):
            array = _depthwise_convolution(operation, post_op, f"post_op_{i}", array, memories)
            name = f"post_op_{i}_dst"
        else:
            array = _apply_post_op(post_op, f"post_op_{i}", array, memories)
    return quantize(name, array, operation.attributes, memories)


def _apply_post_op(post_op: PostOp, name: str, x: Array, memories: Memories) -> Array:
    """Apply one post-operation other than a depthwise convolution; `name` begins the names of its operands."""
    match post_op:
        case SumPostOp(scale=scale, zero_point=zero_point, data_type=data_type):
            return x + scale * (read(_reinterpret(memories["dst"], data_type)) - zero_point)
        case EltwisePostOp(algorithm=algorithm, alpha=alpha, beta=beta):
            return bandwidth_limited.apply(algorithm, x, alpha, beta)
        case BinaryPostOp(algorithm=algorithm):
            return bandwidth_limited.combine(algorithm, x, read(memories[f"{name}_src_1"]))
        case PReLUPostOp():
            return np.where(x >= 0, x, x * read(memories[f"{name}_weights"]))
    raise AssertionError(post_op)


def _reinterpret(memory: Memory, data_type: str | None) -> Memory:
    """Return the same bytes as memory of another type of the same width; None for no change."""
    desc = memory.desc
    assert isinstance(desc.layout, Layout)
    if data_type is None:
        return memory
    viewed = MemoryDesc.from_layout(desc.layout, data_type, dims=desc.dims, offset0=desc.offset0)
    return Memory(viewed, memory.buffer)


def _depthwise_convolution(
    operation: Operation, post_op: DepthwiseConvolution, name: str, x: Array, memories: Memories
) -> Array:
    """Apply a depthwise convolution to the result of a 1x1 convolution, rounded to the type of its destination."""
    attributes, between = operation.attributes, operation.descs["dst"].data_type
    assert between is not None
    src = dequantize("dst", round_to_type(quantize("dst", x, attributes, memories), between), attributes, memories)
    weights = dequantize(f"{name}_weights", read(memories[f"{name}_weights"]), attributes, memories)
    bias = read(memories[f"{name}_bias"]) if post_op.bias_type is not None else None
    axes = x.ndim - 2
    return spatial.convolution(
        src=src,
        weights=weights,
        bias=bias,
        strides=(post_op.stride,) * axes,
        dilations=(0,) * axes,
        padding_l=(post_op.padding,) * axes,
        shapes={"dst": (*x.shape[:2], *[-(-n // post_op.stride) for n in x.shape[2:]])},
    )["dst"]


FORMULAS: Mapping[tuple[str, Direction], Formula] = MappingProxyType(
    {
        ("convolution", "forward"): spatial.convolution,
        ("convolution", "backward_data"): spatial.convolution_backward_data,
        ("convolution", "backward_weights"): spatial.convolution_backward_weights,
        ("deconvolution", "forward"): spatial.deconvolution,
        ("deconvolution", "backward_data"): spatial.deconvolution_backward_data,
        ("deconvolution", "backward_weights"): spatial.deconvolution_backward_weights,
        ("inner_product", "forward"): products.inner_product,
        ("inner_product", "backward_data"): products.inner_product_backward_data,
        ("inner_product", "backward_weights"): products.inner_product_backward_weights,
        ("matmul", "forward"): products.matmul,
        ("pooling", "forward"): spatial.pooling,
        ("pooling", "backward"): spatial.pooling_backward,
        ("resampling", "forward"): spatial.resampling,
        ("resampling", "backward"): spatial.resampling_backward,
        ("batch_normalization", "forward"): normalization.batch_forward,
        ("batch_normalization", "backward"): normalization.batch_backward,
        ("layer_normalization", "forward"): normalization.layer_forward,
        ("layer_normalization", "backward"): normalization.layer_backward,
        ("group_normalization", "forward"): normalization.group_forward,
        ("group_normalization", "backward"): normalization.group_backward,
        ("lrn", "forward"): normalization.lrn_forward,
        ("lrn", "backward"): normalization.lrn_backward,
        ("eltwise", "forward"): bandwidth_limited.eltwise,
        ("eltwise", "backward"): bandwidth_limited.eltwise_backward,
        ("prelu", "forward"): bandwidth_limited.prelu,
        ("prelu", "backward"): bandwidth_limited.prelu_backward,
        ("softmax", "forward"): bandwidth_limited.softmax,
        ("softmax", "backward"): bandwidth_limited.softmax_backward,
        ("shuffle", "forward"): bandwidth_limited.shuffle,
        ("shuffle", "backward"): bandwidth_limited.shuffle_backward,
        ("reduction", "forward"): bandwidth_limited.reduction,
        ("binary", "forward"): bandwidth_limited.binary,
        ("concat", "forward"): bandwidth_limited.concat,
        ("sum", "forward"): bandwidth_limited.weighted_sum,
        ("dynamic_quantization", "forward"): bandwidth_limited.dynamic_quantization,
        ("table_lookup", "forward"): bandwidth_limited.table_lookup,
        ("cache_write", "forward"): bandwidth_limited.cache_write,
        **{(kind, "forward"): recurrent.forward_formula for kind in RECURRENT},
        **{(kind, "backward"): recurrent.backward_formula for kind in RECURRENT},
    }
)
"""The formula of each (kind, direction); reorders have none, because `inlay.reorder` computes them."""

SPARSE_FORMULAS: Mapping[tuple[str, Direction], Formula] = MappingProxyType(
    {
        ("matmul", "forward"): products.sparse_matmul,
        ("inner_product", "forward"): products.sparse_inner_product,
    }
)
"""The formulas of matrix products with one sparse factor."""


_NUMBERED = re.compile(r"src_(\d+)")


def _bind_reorder(operation: Operation, memories: Memories) -> Callable[[], None]:
    """Return a function that calls `inlay.reorder`; each call reads the values of attributes anew."""
    attributes = reorder_attributes(operation.attributes)
    src, dst = memories["src"], memories["dst"]

    def run() -> None:
        values = {name: memories[name].unpack() for name in attributes.names}
        reorder(src, dst.desc, attributes=attributes, out=dst, **values)

    return run


@dataclass(frozen=True, slots=True)
class _FormulaRunner:
    """An operation with chosen formats, which runs its formula on memories."""

    operation: Operation
    """Operation that it computes."""
    descs: Mapping[str, MemoryDesc]
    """Descriptor of each argument that is read or written, by its name."""

    def bind(self, memories: Memories) -> Callable[[], None]:
        """Return a function that computes with these memories; results without a memory are dropped."""
        return partial(self._run, dict(memories))

    def _run(self, memories: Memories) -> None:
        """Read the arguments, compute the formula and the post-operations, and write the results."""
        key = self.operation.kind, self.operation.direction
        formula = SPARSE_FORMULAS[key] if self._is_sparse else FORMULAS[key]
        known = self._formula_arguments(memories)
        # Overflow and division by zero follow IEEE 754, without warnings.
        with np.errstate(all="ignore"):
            results = dict(formula(**{name: known[name] for name in signature(formula).parameters & known.keys()}))
            if self.operation.direction == "forward" and "dst" in results:
                results["dst"] = apply_post_ops(self.operation, results["dst"], memories)
        for name, array in results.items():
            if name in memories:
                write(array, memories[name])

    def _formula_arguments(self, memories: Memories) -> dict[str, Any]:
        """Return all values that a formula may have as parameters, by name.

        These are the arguments and the parameters of the primitive; `sources`, the numbered sources in order; `shapes`,
        the dims of all arguments; `operation`; `arguments`, all that are read; `read_destination`, a function that
        reads the previous content of a result; and `lowest`, the lowest number of the type of src.
        """
        arrays = {name: self._read(name, memories) for name in memories if self._is_read(name)}
        numbered = sorted((int(match[1]), name) for name in arrays if (match := _NUMBERED.fullmatch(name)))
        src = self.descs.get("src")
        return {
            **self.operation.parameters,
            **arrays,
            "sources": tuple(arrays[name] for _, name in numbered),
            # With a depthwise convolution, the formula computes the destination of the primitive before it.
            "shapes": {name: desc.dims for name, desc in {**self.descs, **self.operation.descs}.items()},
            "operation": self.operation,
            "arguments": arrays,
            "read_destination": lambda name: read(memories[name]),
            "lowest": src.data_type.lowest if src is not None and src.data_type is not None else None,
        }

    @property
    def _is_sparse(self) -> bool:
        """True if an argument is sparse."""
        return any(desc.kind == "sparse" for desc in self.descs.values())

    def _is_read(self, name: str) -> bool:
        """Return whether the formula reads the argument."""
        return name in self.operation.signature.reads or _NUMBERED.fullmatch(name) is not None

    def _read(self, name: str, memories: Memories) -> Array | SparseArray:
        """Read an argument, and dequantize it."""
        if memories[name].desc.kind == "sparse":
            return dequantize_sparse(name, memories[name], self.operation.attributes, memories)
        return dequantize(name, read(memories[name]), self.operation.attributes, memories)


class ReferenceEngine(Engine):
    """An engine that computes every primitive in f64, in all formats.

    >>> ReferenceEngine().name
    'reference'
    """

    name = "reference"

    def supports(self, operation: Operation) -> bool:
        """Return whether there is a formula for the operation."""
        return operation.kind == "reorder" or (operation.kind, operation.direction) in FORMULAS

    def create(self, operation: Operation) -> PlainImplementation:
        """Choose the formats that are `any`, by the rules of this module.

        Raises:
            InvalidArguments: a workspace is needed, and the hint has none.
            Unimplemented: there is no formula, an argument has RUNTIME dims or no layout, or `inlay.reorder` does not
                support the attributes of a reorder.
        """
        if not self.supports(operation):
            raise Unimplemented(f"the reference engine does not compute {operation.kind} {operation.direction}")
        if operation.kind == "reorder":
            reorder_attributes(operation.attributes)
            bind = partial(_bind_reorder, operation)
            return PlainImplementation(operation, choose_formats(operation), "numpy:f64", bind, "numpy")
        formula = _FormulaRunner(operation, choose_formats(operation))
        return PlainImplementation(operation, formula.descs, "numpy:f64", formula.bind, "numpy")
