"""What an operation cannot do without: its arithmetic, and the bytes it reads and writes.

>>> image, weights = MemoryDesc((1, 64, 56, 56), "f32", "nhwc"), MemoryDesc((256, 64, 1, 1), "f32", "any")
>>> descs = {"src": image, "weights": weights, "dst": MemoryDesc((1, 256, 56, 56), "f32", "nhwc")}
>>> work(Operation("convolution", "forward_inference", descs))
Work(flops=102760448, warm=4014080, cold=65536)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import algorithm_of
from inlay.primitives.attributes import Binary, PReLU
from inlay.primitives.operation import Operation
from inlay.primitives.signatures import WEIGHTED


@dataclass(frozen=True, slots=True)
class Work:
    """The least that an operation has to do."""

    flops: int
    """Additions, multiplications and what takes as long; transcendental functions count as the 10 to 30 they take."""
    warm: int
    """Bytes of activations, read and written: what the operation before has left in the caches."""
    cold: int
    """Bytes of weights, which come from memory in a network whose weights do not fit in the caches."""

    @property
    def nbytes(self) -> int:
        """All bytes."""
        return self.warm + self.cold


def work(operation: Operation) -> Work:
    """What `operation` has to do, in the formats that it has; `any` counts as dense."""
    sizes = {name: nbytes(desc) for name, desc in operation.descs.items()}
    cold = sum(size for name, size in sizes.items() if is_weights(name, operation))
    warm = sum(sizes.values()) - cold
    dst = operation.descs.get("dst") or operation.descs.get("dst_layer")
    for post_op in operation.attributes.post_ops:
        match post_op:
            case Binary(src_1=src_1):
                warm += nbytes(src_1)
            case PReLU():
                warm += 4
            case _ if type(post_op).__name__ == "Sum" and dst is not None:
                warm += nbytes(dst)
    return Work(_flops(operation), warm, cold)


def is_weights(name: str, operation: Operation) -> bool:
    """Whether an argument is constant from run to run: weights, unless they are a batch of matrices, and statistics."""
    if name in ("mean", "variance", "scale", "shift", "bias"):
        return True
    if not name.startswith("weights"):
        return False
    return not (operation.kind == "matmul" and prod(operation.descs[name].dims[:-2]) > 1)


@lru_cache(maxsize=8192)
def nbytes(desc: MemoryDesc) -> int:
    """Bytes of a tensor: with padding where it has a format, dense where it is `any`."""
    if desc.kind == "any":
        assert desc.data_type is not None
        return -(-prod(desc.dims) * desc.data_type.bits // 8)
    return desc.size


def elements(operation: Operation) -> int:
    """Elements of the largest tensor."""
    return max((prod(desc.dims) for desc in operation.descs.values()), default=0)


_EXPENSIVE = frozenset(
    ("tanh", "elu", "soft_relu", "logistic", "mish", "exp", "gelu_tanh", "swish", "log", "pow", "gelu_erf")
)
_EACH = {
    "softmax": 30,
    "lrn": 30,
    "layer_normalization": 8,
    "batch_normalization": 2,
    "group_normalization": 8,
    "resampling": 4,
    "reduction": 1,
    "prelu": 2,
    "binary": 1,
}
_FUNCTION = {True: 20, False: 1}
_GATES = {"lstm": 4, "gru": 3, "lbr_gru": 3, "augru": 3, "lbr_augru": 3, "vanilla_rnn": 1}


def _flops(operation: Operation) -> int:
    kind, descs = operation.kind, operation.descs
    extra = sum(_post(post_op) for post_op in operation.attributes.post_ops)
    if kind in WEIGHTED:
        return multiplications(operation) * 2 + extra * prod(descs["dst"].dims)
    if kind in _GATES:
        return 2 * multiplications(operation)
    if kind == "pooling":
        return _taps(operation.parameters) * prod(descs["dst"].dims)
    if kind == "eltwise":
        return _FUNCTION[operation.parameters["algorithm"] in _EXPENSIVE] * elements(operation)
    if kind == "sum":
        return (len(descs) - 1) * elements(operation)
    return (_EACH.get(kind, 0) + extra) * elements(operation)


def _post(post_op: object) -> int:
    algorithm = getattr(post_op, "algorithm", "")
    return _FUNCTION[algorithm in _EXPENSIVE]


def multiplications(operation: Operation) -> int:
    """Products that are added up."""
    kind, descs = operation.kind, operation.descs
    if kind in _GATES:
        steps, batch = descs["src_layer"].dims[:2]
        return steps * batch * sum(prod(desc.dims) for name, desc in descs.items() if name.startswith("weights"))
    if kind == "matmul":
        return prod(descs["dst"].dims) * descs["src"].dims[-1]
    if kind == "deconvolution":  # every source element meets every weight of its group
        weights, src = descs["weights"].dims, descs["src"].dims
        is_grouped = len(weights) > len(src)
        return prod(src) * prod(weights) // (weights[0] * weights[2] if is_grouped else weights[1])
    weights, dst = descs["weights"].dims, descs["dst"].dims
    if (algorithm := algorithm_of(operation)) is not None:
        return algorithm.multiplications(operation)
    outputs = dst[1]
    return prod(dst) * prod(weights) // max(1, outputs)


def _taps(parameters: Mapping[str, object]) -> int:
    kernel = parameters["kernel"]
    assert isinstance(kernel, tuple)
    return prod(kernel)
