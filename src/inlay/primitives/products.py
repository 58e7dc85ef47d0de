"""Inner product and matrix multiplication, and the common base of all primitives that multiply by weights.

Convolution and deconvolution have the same rules for types, and the same two gradients: `WeightedBackwardData` and
`WeightedBackwardWeights`. All are compute-intensive, so every format may be any: the engine chooses the fastest for
the machine.

Source: oneAPI specification, "Convolution and deconvolution", "Inner product", "Matmul".
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import Memory
from inlay.primitives.attributes import WEIGHTS_SCALES, PrimitiveAttributes
from inlay.primitives.engine import Avoid, EngineLike
from inlay.primitives.primitive import Primitive, descs_like_forward, require_forward, require_forward_kind
from inlay.primitives.rules import (
    broadcast_dims,
    format_axis_count,
    require_bias,
    require_desc,
    require_dims,
    require_ndims,
    require_one_sparse,
    resolve_desc,
    type_of,
)

if TYPE_CHECKING:
    from inlay.descriptor.compound_desc import CompoundDesc
    from inlay.primitives.block_weights import BlockWeights

_FLOATS = ("f32", "bf16", "f16", "f64", "f8_e5m2", "f8_e4m3", "f4_e2m1")
_QUANTIZED = ("s8", "u8")
_PACKED = ("s8", "u8", "s4", "u4")
_UNPACKED = ("f32", "bf16", "f16")
"""Types of sources that are multiplied by weights in compound formats, and of such weights if no kernel reads these."""


def require_factors(primitive_name: str, src: MemoryDesc, weights: MemoryDesc, compressed: bool = False) -> None:
    """Check that the types of source and weights can be multiplied.

    Floating-point sources need weights of the same type; 8-bit floats may be mixed. Sources of s8 and u8 need weights
    of s8. With `compressed`, weights may also be integers of 8 or 4 bits.

    Raises:
        InvalidArguments: the types cannot be multiplied.
    """
    first, second = type_of(src).name, type_of(weights).name
    allowed: tuple[str, ...] = ()
    if first in _FLOATS:
        allowed = tuple(name for name in _FLOATS if name == first or name[:2] == first[:2] == "f8")
        allowed += _PACKED if compressed else ()
    elif first in _QUANTIZED:
        allowed = _PACKED if compressed else ("s8",)
    else:
        known = ", ".join((*_FLOATS, *_QUANTIZED))
        raise InvalidArguments(
            f"{primitive_name}: src is {first}: products support {known}, reorder it to one of these"
        )
    if second not in allowed:
        raise InvalidArguments(
            f"{primitive_name}: weights are {second} and src is {first}, which is multiplied by "
            f"{' or '.join(allowed)}: reorder one of them"
        )


def default_dst_type(src: MemoryDesc) -> DataType:
    """Return the type of a destination that is left out: the source's if it is floating-point, else f32."""
    data_type = type_of(src)
    return data_type if data_type.kind == "float" else DATA_TYPES["f32"]


class WeightedBackwardData(Primitive):
    """Base class of gradients with respect to the source; subclasses document the formula."""

    __slots__ = ()
    forward: ClassVar[type[Primitive]]
    """Class of the forward primitive."""

    def __init__(
        self,
        diff_dst: MemoryDesc | None = None,
        weights: MemoryDesc | None = None,
        diff_src: MemoryDesc | None = None,
        *,
        hint_forward: Primitive | None = None,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the gradient of `hint_forward`, with the same window.

        A descriptor that is left out has the dims and type of the forward argument, and any format.

        Raises:
            InvalidArguments: the hint is missing or was created for inference, a descriptor has other dims, or an
                argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = type(self).__name__
        hint = require_forward(primitive_name, hint_forward, self.forward)
        descs = descs_like_forward(primitive_name, hint, diff_dst=diff_dst, weights=weights, diff_src=diff_src)
        self._create("backward_data", descs, hint.operation.parameters, attributes, engine, avoid, hint)


class WeightedBackwardWeights(Primitive):
    """Base class of gradients with respect to weights and bias; subclasses document the formula."""

    __slots__ = ()
    forward: ClassVar[type[Primitive]]
    """Class of the forward primitive."""

    def __init__(
        self,
        src: MemoryDesc | None = None,
        diff_dst: MemoryDesc | None = None,
        diff_weights: MemoryDesc | None = None,
        diff_bias: MemoryDesc | None = None,
        *,
        hint_forward: Primitive | None = None,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the gradient of `hint_forward`, with the same window.

        A descriptor that is left out has the dims and type of the forward argument, and any format.

        The gradient of the bias is computed if the forward primitive has a bias.

        Raises:
            InvalidArguments: the hint is missing or was created for inference, a descriptor has other dims, `diff_bias`
                is given without a bias, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = type(self).__name__
        hint = require_forward(primitive_name, hint_forward, self.forward)
        if diff_bias is not None and hint.bias_desc.is_zero:
            raise InvalidArguments(f"{primitive_name}: diff_bias is given, and hint_forward has no bias: leave it out")
        descs = descs_like_forward(primitive_name, hint, src=src, diff_dst=diff_dst, diff_weights=diff_weights)
        if not hint.bias_desc.is_zero:
            descs |= descs_like_forward(primitive_name, hint, diff_bias=diff_bias)
        self._create("backward_weights", descs, hint.operation.parameters, attributes, engine, avoid, hint)


class InnerProduct(Primitive):
    """A fully connected layer: each output is a weighted sum over all channels and spatial positions of an image.

        dst[n, o] = bias[o] + sum over c, x of src[n, c, x] * weights[o, c, x]

    | argument | dims | format |
    |---|---|---|
    | src | (N, IC), or with one to three spatial axes (N, IC, H, W) | any, sparse |
    | weights | (OC, IC), or (OC, IC, H, W): those of src but the first | any, sparse |
    | bias | (OC,), may be left out | any |
    | dst | (N, OC) | any |

    An image need not be flattened: the engine chooses a format of the weights that matches that of the image. One of
    src and weights may be sparse, as in `MatMul`.

    Source: oneAPI specification, "Inner product".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((2, 3), "f32", "any"), MemoryDesc((1, 3), "f32", "any")
    >>> dense = InnerProduct(src, weights, engine="reference")
    >>> rows = pack(np.arange(6, dtype=np.float32).reshape(2, 3), dense.src_desc)
    >>> dense(src=rows, weights=pack(np.array([[1, 10, 100]], np.float32), dense.weights_desc)).unpack().tolist()
    [[210.0], [543.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "inner_product"

    def __init__(
        self,
        src: MemoryDesc,
        weights: MemoryDesc,
        bias: MemoryDesc | None = None,
        dst: MemoryDesc | None = None,
        *,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive; `dst`, if left out, has the implied dims and any format.

        Raises:
            InvalidArguments: axes, dims or types are inconsistent, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "InnerProduct"
        image = require_desc(primitive_name, "src", src, sparse=True)
        matrix = require_desc(primitive_name, "weights", weights, sparse=True)
        require_one_sparse(primitive_name, image, matrix)
        require_ndims(primitive_name, "src", image, 2, 5, "batch, channels and up to three spatial axes")
        require_ndims(
            primitive_name, "weights", matrix, image.ndims, image.ndims, "output channels, then the axes of src"
        )
        require_factors(primitive_name, image, matrix)
        outputs = matrix.dims[0]
        require_dims(
            primitive_name, "weights", matrix, (outputs, *image.dims[1:]), f"{outputs} outputs of src {image.dims}"
        )
        require_bias(primitive_name, bias, outputs)
        dims = (image.dims[0], outputs)
        descs = {"src": image, "weights": matrix, "bias": bias}
        descs["dst"] = resolve_desc(primitive_name, "dst", dst, dims, default_dst_type(image), "src and weights")
        self._create(require_forward_kind(primitive_name, prop_kind), descs, {}, attributes, engine, avoid)


class InnerProductBackwardData(WeightedBackwardData):
    """The gradient of an inner product with respect to its source.

        diff_src[n, c, x] = sum over o of diff_dst[n, o] * weights[o, c, x]

    | argument | dims | format |
    |---|---|---|
    | diff_dst | those of dst | any |
    | weights | those of weights | any |
    | diff_src | those of src | any |

    Source: oneAPI specification, "Inner product".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((1, 3), "f32", "any"), MemoryDesc((1, 3), "f32", "any")
    >>> dense = InnerProduct(src, weights, prop_kind="forward_training", engine="reference")
    >>> gradient = InnerProductBackwardData(hint_forward=dense)
    >>> two = pack(np.array([[2]], np.float32), gradient.diff_dst_desc)
    >>> matrix = pack(np.array([[1, 10, 100]], np.float32), gradient.weights_desc)
    >>> gradient(diff_dst=two, weights=matrix).unpack().tolist()
    [[2.0, 20.0, 200.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "inner_product"
    forward = InnerProduct


class InnerProductBackwardWeights(WeightedBackwardWeights):
    """The gradient of an inner product with respect to its weights, and to its bias if it has one.

        diff_weights[o, c, x] = sum over n of diff_dst[n, o] * src[n, c, x]
        diff_bias[o]          = sum over n of diff_dst[n, o]

    | argument | dims | format |
    |---|---|---|
    | src | those of src | any |
    | diff_dst | those of dst | any |
    | diff_weights | those of weights | any |
    | diff_bias | those of bias | any |

    Source: oneAPI specification, "Inner product".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((1, 3), "f32", "any"), MemoryDesc((1, 3), "f32", "any")
    >>> bias = MemoryDesc((1,), "f32", "a")
    >>> dense = InnerProduct(src, weights, bias, prop_kind="forward_training", engine="reference")
    >>> gradient = InnerProductBackwardWeights(hint_forward=dense)
    >>> row = pack(np.array([[1, 2, 3]], np.float32), gradient.src_desc)
    >>> written = gradient(src=row, diff_dst=pack(np.array([[2]], np.float32), gradient.diff_dst_desc))
    >>> written["diff_weights"].unpack().tolist(), written["diff_bias"].unpack().tolist()
    ([[2.0, 4.0, 6.0]], [2.0])
    """

    __slots__ = ()
    kind: ClassVar[str] = "inner_product"
    forward = InnerProduct


def _describe_blocks(primitive_name: str, weights: object) -> "BlockWeights | None":
    """Return weights that are described by a CompoundDesc; None for any other object.

    Raises:
        InvalidArguments, Unimplemented: as `describe_block_weights`.
    """
    from inlay.descriptor.compound_desc import CompoundDesc

    if not isinstance(weights, CompoundDesc):
        return None
    from inlay.primitives.block_weights import describe_block_weights  # loads the compiler of reorders

    return describe_block_weights(primitive_name, weights)


def _require_addend(primitive_name: str, bias: MemoryDesc, dims: tuple[int, ...]) -> None:
    """Check that a bias has the dims of dst, or 1 in their place."""
    if broadcast_dims(primitive_name, ("dst", "bias"), dims, bias.dims) != dims:
        raise InvalidArguments(
            f"{primitive_name}: bias {bias.dims} is larger than dst {dims}: give each axis that dim or 1"
        )


class MatMul(Primitive):
    """Matrix multiplication, batched: `dst[b, m, n] = bias + sum over k of src[b, m, k] * weights[b, k, n]`.

    | argument | dims | format |
    |---|---|---|
    | src | (M, K), or with up to ten batch axes before them (B, M, K) | any, sparse |
    | weights | (K, N), with as many batch axes; a CompoundDesc has (N, K) | any, sparse, compound |
    | bias | the axes of dst, each of its dims or 1; may be left out | any |
    | dst | (M, N), with the batch axes | any |

    A batch axis of 1 in src or weights is repeated. Weights of 8 or 4 bits may be multiplied by floats. Transposed
    matrices are other formats of the same dims: `ba`, or strides.

    One of src and weights may be sparse: CSR with two axes, COO or packed. Elements that are not stored contribute
    nothing, even where the other factor is infinite or NaN. Indices and pointers are checked before each run; entries
    must be in row-major order (`inlay.reorder(memory, memory.desc)` sorts them). A packed descriptor without a tag
    leaves the tag to the engine: reorder dense weights to `weights_desc`.

    Weights in a compound format with one scale for each block, such as ggml's Q4_0 and Q8_0, are described by a
    `CompoundDesc` with the dims (N, K), in elements, and blocks along K. A call takes a `CompoundMemory` of it, which
    is packed in the format of the kernel at its first call: later changes of its bytes have no effect. The scales of
    the blocks are no argument. A kernel for f32 reads the integers at few rows; where no engine has one, weights are
    packed as numbers of the type of src.

    Source: oneAPI specification, "Matmul"; oneDNN, "Matrix Multiplication", "Sparsity".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((2, 2, 3), "f32", "any"), MemoryDesc((1, 3, 1), "f32", "any")
    >>> product = MatMul(src, weights, engine="reference")
    >>> left = pack(np.arange(12, dtype=np.float32).reshape(2, 2, 3), product.src_desc)
    >>> right = pack(np.array([[[1], [10], [100]]], np.float32), product.weights_desc)
    >>> product(src=left, weights=right).unpack().ravel()
    array([ 210.,  543.,  876., 1209.], dtype=float32)

    >>> kept = MatMul(MemoryDesc((2, 3), "f32", "ab"), MemoryDesc.packed((3, 2), "f32", nnz=2), engine="reference")
    >>> few = pack(np.array([[0, 5], [0, 0], [7, 0]], np.float32), kept.weights_desc)
    >>> kept(src=pack(np.array([[1, 2, 3], [4, 5, 6]], np.float32), "ab"), weights=few).unpack().tolist()
    [[21.0, 5.0], [42.0, 20.0]]

    >>> from inlay.memory.compound import pack_compound
    >>> blocks = pack_compound(np.repeat([[1.0], [-3.0]], 32, axis=1), "ggml:Q4_0")
    >>> narrow = MatMul(MemoryDesc((1, 32), "f32", "ab"), blocks.desc, engine="reference")
    >>> narrow(src=pack(np.full((1, 32), 0.5, np.float32), "ab"), weights=blocks).unpack().tolist()
    [[16.0, -48.0]]
    """

    __slots__ = ("_blocks", "_packed")
    kind: ClassVar[str] = "matmul"

    _blocks: "BlockWeights | None"
    _packed: tuple[object, dict[str, Memory]] | None

    def __init__(
        self,
        src: MemoryDesc,
        weights: "MemoryDesc | CompoundDesc",
        bias: MemoryDesc | None = None,
        dst: MemoryDesc | None = None,
        *,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive; `dst`, if left out, has the implied dims and any format.

        Raises:
            InvalidArguments: axes, dims or types are inconsistent, weights of blocks have other than two axes or scales
                in `attributes`, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation, or blocks of weights have more than integers and a scale.
        """
        primitive_name = "MatMul"
        self._packed = None
        self._blocks = None if isinstance(weights, MemoryDesc) else _describe_blocks(primitive_name, weights)
        matrix = weights if self._blocks is None else self._blocks.describe_integers()
        left = require_desc(primitive_name, "src", src, sparse=True)
        right = require_desc(primitive_name, "weights", matrix, sparse=True)
        require_one_sparse(primitive_name, left, right)
        require_ndims(primitive_name, "src", left, 2, 12, "batch axes, rows and columns")
        require_ndims(
            primitive_name, "weights", right, left.ndims, left.ndims, f"src has {format_axis_count(left.ndims)}"
        )
        require_factors(primitive_name, left, right, compressed=True)
        if left.dims[-1] != right.dims[-2]:
            raise InvalidArguments(
                f"{primitive_name}: src {left.dims} has {left.dims[-1]} columns, weights {right.dims} have "
                f"{right.dims[-2]} rows: make them equal"
            )
        batch = broadcast_dims(
            primitive_name, ("the batch of src", "the batch of weights"), left.dims[:-2], right.dims[:-2]
        )
        dims = (*batch, left.dims[-2], right.dims[-1])
        if bias is not None:
            _require_addend(primitive_name, require_desc(primitive_name, "bias", bias), dims)
        descs = {"src": left, "weights": right, "bias": bias}
        descs["dst"] = resolve_desc(primitive_name, "dst", dst, dims, default_dst_type(left), "src and weights")
        if self._blocks is None:
            self._create("forward_inference", descs, {}, attributes, engine, avoid)
        else:
            self._create_with_blocks(self._blocks, descs, attributes, engine, avoid)

    def _create_with_blocks(
        self,
        blocks: "BlockWeights",
        descs: Mapping[str, MemoryDesc | None],
        attributes: PrimitiveAttributes | None,
        engine: EngineLike,
        avoid: Avoid,
    ) -> None:
        """Create the implementation with integer weights, or with weights of the type of src if no kernel reads these.

        Raises:
            InvalidArguments, Unimplemented: as `__init__`.
        """
        data_type = type_of(require_desc("MatMul", "src", descs["src"]))
        if data_type.name not in _UNPACKED:
            raise InvalidArguments(
                f"MatMul: src is {data_type.name}, and {blocks.desc.format.name} is multiplied by "
                f"{', '.join(_UNPACKED)}: reorder it to one of these"
            )
        scaled, is_default = blocks.add_scales("MatMul", attributes), engine is None
        try:
            self._create("forward_inference", descs, {}, scaled, engine, "reference" if is_default else avoid)
        except Unimplemented:
            real = MemoryDesc(blocks.desc.dims[::-1], data_type, "any")
            self._create("forward_inference", {**descs, "weights": real}, {}, attributes, engine, avoid)
        self._may_substitute = is_default and avoid is None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments of a call: those that it reads, then those that it writes."""
        return tuple(name for name in super().arguments if self._blocks is None or name != WEIGHTS_SCALES)

    def __call__(self, **memories: object) -> Any:
        """Compute, and return the result; weights in a compound format are a `CompoundMemory`.

        Raises:
            InvalidArguments: weights are of another format or dims than described, or have a scale that is not finite;
                or as `Primitive`.
            OutOfMemory: as `Primitive`.
        """
        return super().__call__(**self._pack_blocks(memories))

    def bind(self, **memories: object) -> Callable[[], None]:
        """Return a function that computes with these memories; see `Primitive.bind`.

        Raises:
            InvalidArguments: as for a call, or a result is left out.
        """
        return super().bind(**self._pack_blocks(memories))

    def _pack_blocks(self, memories: dict[str, object]) -> dict[str, object]:
        """Return the arguments with packed weights and their scales in place of weights in a compound format."""
        if self._blocks is None:
            return memories
        if WEIGHTS_SCALES in memories or "weights" not in memories:
            raise InvalidArguments(
                f"MatMul: give weights as a CompoundMemory of {self._blocks.desc}, and no {WEIGHTS_SCALES}, "
                "which it has"
            )
        weights, packed = memories["weights"], self._packed
        if packed is None or packed[0] is not weights:
            descs = self._signature.descs
            needed = {name: descs[name] for name in ("weights", WEIGHTS_SCALES) if name in descs}
            packed = self._packed = weights, self._blocks.pack("MatMul", weights, needed)
        return {**memories, **packed[1]}
