"""`ReferenceEngine`: chooses formats for an operation, and runs its formula on the memories that it is bound to.

Formats: `any` becomes row-major where a primitive multiplies by weights, and so does a packed descriptor without a tag,
in blocks along the last axis. Elsewhere the destination takes the format in which the source arrives, and in a backward
primitive a gradient the format of what it is the gradient of.

`TABLE` has the formula of each primitive in each direction, whose result the post-operations are applied to in order:

>>> TABLE["softmax", "forward"].__module__
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
from inlay.engines.reference.products import SparseArray, real_sparse
from inlay.engines.reference.values import (
    Array,
    Formula,
    Memories,
    Shape,
    read,
    real,
    rounded,
    stored,
    values_desc,
    write,
)
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
from inlay.layout.axis import LETTERS
from inlay.memory import Memory, reorder
from inlay.primitives.attributes import Binary, DepthwiseConvolution, Eltwise, PostOp, PReLU, Sum, reorder_attributes
from inlay.primitives.engine import Engine, Operation, PlainImplementation
from inlay.primitives.rules import RECURRENT, WEIGHTED, Direction


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
            dims = recurrent.kept_dims(operation) if "src_layer" in descs else descs["dst"].dims
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


def applied(operation: Operation, array: Array, memories: Memories) -> Array:
    """The result of the primitive after all post-operations, as the elements of dst, not yet rounded."""
    name = "dst"
    for i, post_op in enumerate(operation.attributes.post_ops):
        if isinstance(post_op, DepthwiseConvolution):
            array = _depthwise_convolution(operation, post_op, f"post_op_{i}", array, memories)
            name = f"post_op_{i}_dst"
        else:
            array = _applied(post_op, f"post_op_{i}", array, memories)
    return stored(name, array, operation.attributes, memories)


def _applied(post_op: PostOp, name: str, x: Array, memories: Memories) -> Array:
    match post_op:
        case Sum(scale=scale, zero_point=zero_point, data_type=data_type):
            return x + scale * (read(_viewed(memories["dst"], data_type)) - zero_point)
        case Eltwise(algorithm=algorithm, alpha=alpha, beta=beta):
            return bandwidth_limited.apply(algorithm, x, alpha, beta)
        case Binary(algorithm=algorithm):
            return bandwidth_limited.combined(algorithm, x, read(memories[f"{name}_src_1"]))
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


def _depthwise_convolution(
    operation: Operation, post_op: DepthwiseConvolution, name: str, x: Array, memories: Memories
) -> Array:
    """The depthwise convolution of what the 1x1 convolution would have written."""
    attributes, between = operation.attributes, operation.descs["dst"].data_type
    assert between is not None
    src = real("dst", rounded(stored("dst", x, attributes, memories), between), attributes, memories)
    weights = real(f"{name}_weights", read(memories[f"{name}_weights"]), attributes, memories)
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


TABLE: Mapping[tuple[str, Direction], Formula] = MappingProxyType(
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
        ("lrn", "forward"): normalization.forward,
        ("lrn", "backward"): normalization.backward,
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
        **{(kind, "forward"): recurrent.computed for kind in RECURRENT},
        **{(kind, "backward"): recurrent.gradients for kind in RECURRENT},
    }
)
"""Kind and direction to formula; reorder has none, since it is Inlay's own."""

SPARSE: Mapping[tuple[str, Direction], Formula] = MappingProxyType(
    {
        ("matmul", "forward"): products.sparse_matmul,
        ("inner_product", "forward"): products.sparse_inner_product,
    }
)
"""The formulas of products with one sparse factor."""


_NUMBERED = re.compile(r"src_(\d+)")


def _bind_reorder(operation: Operation, memories: Memories) -> Callable[[], None]:
    """What moves these memories by Inlay's own reorder; values of attributes are read each time."""
    attributes = reorder_attributes(operation.attributes)
    src, dst = memories["src"], memories["dst"]

    def run() -> None:
        values = {name: memories[name].unpack() for name in attributes.names}
        reorder(src, dst.desc, attributes=attributes, out=dst, **values)

    return run


@dataclass(frozen=True, slots=True)
class _Formula:
    """A formula and the format of each argument."""

    operation: Operation
    """What was asked."""
    descs: Mapping[str, MemoryDesc]
    """The descriptor of each argument that is read or written."""

    def bind(self, memories: Memories) -> Callable[[], None]:
        """What reads these memories, computes once, and writes what the formula gives and a memory is given for."""
        return partial(self._run, dict(memories))

    def _run(self, memories: Memories) -> None:
        key = self.operation.kind, self.operation.direction
        formula = SPARSE[key] if self._is_sparse else TABLE[key]
        offered = self._offered(memories)
        # What overflows, or divides by zero, does so by the rules of IEEE 754, without a word.
        with np.errstate(all="ignore"):
            results = dict(formula(**{name: offered[name] for name in signature(formula).parameters & offered.keys()}))
            if self.operation.direction == "forward" and "dst" in results:
                results["dst"] = applied(self.operation, results["dst"], memories)
        for name, array in results.items():
            if name in memories:
                write(array, memories[name])

    def _offered(self, memories: Memories) -> dict[str, Any]:
        """What a formula may name: arguments, parameters, and what is known of all arguments."""
        arrays = {name: self._read(name, memories) for name in memories if self._is_read(name)}
        numbered = sorted((int(found[1]), name) for name in arrays if (found := _NUMBERED.fullmatch(name)))
        src = self.descs.get("src")
        return {
            **self.operation.parameters,
            **arrays,
            "sources": tuple(arrays[name] for _, name in numbered),
            # Before a depthwise convolution, the destination is that of the primitive itself.
            "shapes": {name: desc.dims for name, desc in {**self.descs, **self.operation.descs}.items()},
            "operation": self.operation,
            "arguments": arrays,
            "held": lambda name: read(memories[name]),
            "lowest": src.data_type.lowest if src is not None and src.data_type is not None else None,
        }

    @property
    def _is_sparse(self) -> bool:
        return any(desc.kind == "sparse" for desc in self.descs.values())

    def _is_read(self, name: str) -> bool:
        return name in self.operation.signature.reads or _NUMBERED.fullmatch(name) is not None

    def _read(self, name: str, memories: Memories) -> Array | SparseArray:
        if memories[name].desc.kind == "sparse":
            return real_sparse(name, memories[name], self.operation.attributes, memories)
        return real(name, read(memories[name]), self.operation.attributes, memories)


class ReferenceEngine(Engine):
    """Computes every primitive in f64, in any format.

    >>> ReferenceEngine().name
    'reference'
    """

    name = "reference"

    def supports(self, operation: Operation) -> bool:
        """Whether there is a formula."""
        return operation.kind == "reorder" or (operation.kind, operation.direction) in TABLE

    def create(self, operation: Operation) -> PlainImplementation:
        """Choose the formats that are `any`, as this module says.

        Raises:
            InvalidArguments: a workspace is needed and the hint has none.
            Unimplemented: there is no formula, an argument has RUNTIME dims or no layout, or a reorder has attributes
                that Inlay's has not.
        """
        if not self.supports(operation):
            raise Unimplemented(f"the reference engine does not compute {operation.kind} {operation.direction}")
        if operation.kind == "reorder":
            reorder_attributes(operation.attributes)
            bind = partial(_bind_reorder, operation)
            return PlainImplementation(operation, settled(operation), "numpy:f64", bind, "numpy")
        formula = _Formula(operation, settled(operation))
        return PlainImplementation(operation, formula.descs, "numpy:f64", formula.bind, "numpy")
