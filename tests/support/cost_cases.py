"""Operations of networks in given formats, for the tests of costs."""

from collections.abc import Sequence

from inlay import MemoryDesc
from inlay.primitives.attributes import PostOp, PrimitiveAttributes
from inlay.primitives.engine import Operation, Parameter

IMAGE = (2, 64, 28, 28)


def _asked(
    kind: str, descs: dict[str, MemoryDesc], post_ops: Sequence[PostOp] = (), **parameters: Parameter
) -> Operation:
    attributes = PrimitiveAttributes(post_ops=tuple(post_ops))
    return Operation(kind, "forward_inference", descs, parameters, attributes)


def image(format: str, dims: Sequence[int] = IMAGE) -> MemoryDesc:
    return MemoryDesc(tuple(dims), "f32", format)


def convolution(
    src: str = "any",
    dst: str | None = None,
    *,
    channels: tuple[int, int] = (64, 64),
    groups: int = 1,
    size: int = 28,
    kernel: int = 3,
    batch: int = 1,
    post_ops: Sequence[PostOp] = (),
) -> Operation:
    """A convolution of stride 1 that keeps the size."""
    ic, oc = channels
    weights = (oc, ic, kernel, kernel) if groups == 1 else (groups, oc // groups, ic // groups, kernel, kernel)
    pad = (kernel // 2,) * 2
    descs = {
        "src": image(src, (batch, ic, size, size)),
        "weights": MemoryDesc(weights, "f32", "any"),
        "bias": MemoryDesc((oc,), "f32", "a"),
        "dst": image(src if dst is None else dst, (batch, oc, size, size)),
    }
    windows: dict[str, Parameter] = {"strides": (1, 1), "dilations": (0, 0), "padding_l": pad, "padding_r": pad}
    return _asked("convolution", descs, post_ops, algorithm="direct", **windows)


def eltwise(format: str, algorithm: str = "relu", dims: Sequence[int] = IMAGE) -> Operation:
    descs = {"src": image(format, dims), "dst": image(format, dims)}
    return _asked("eltwise", descs, algorithm=algorithm, alpha=0.0, beta=0.0)


def excite(format: str, scale: str = "nchw", dims: Sequence[int] = IMAGE) -> Operation:
    """An image times a number for each channel, as squeeze-and-excitation has it."""
    descs = {"src_0": image(format, dims), "src_1": image(scale, (*dims[:2], 1, 1)), "dst": image(format, dims)}
    return _asked("binary", descs, algorithm="mul")


def add(format: str, dims: Sequence[int] = IMAGE) -> Operation:
    return _asked("binary", {name: image(format, dims) for name in ("src_0", "src_1", "dst")}, algorithm="add")


def mean(format: str, dims: Sequence[int] = IMAGE) -> Operation:
    """The mean over space, by a reduction."""
    descs = {"src": image(format, dims), "dst": image(format, (*dims[:2], 1, 1))}
    return _asked("reduction", descs, algorithm="mean", p=0.0, eps=0.0)


def softmax(format: str, axis: int, dims: Sequence[int] = IMAGE) -> Operation:
    return _asked("softmax", {"src": image(format, dims), "dst": image(format, dims)}, algorithm="accurate", axis=axis)


def layer_normalization(format: str, dims: Sequence[int] = IMAGE) -> Operation:
    values = MemoryDesc((dims[-1],), "f32", "a")
    descs = {"src": image(format, dims), "scale": values, "shift": values, "dst": image(format, dims)}
    return _asked("layer_normalization", descs, epsilon=1e-5, flags=frozenset({"use_scale", "use_shift"}))


def batch_normalization(format: str, dims: Sequence[int] = IMAGE) -> Operation:
    values = dict.fromkeys(("mean", "variance", "scale", "shift"), MemoryDesc((dims[1],), "f32", "a"))
    flags = frozenset({"use_global_stats", "use_scale", "use_shift"})
    descs = {"src": image(format, dims), **values, "dst": image(format, dims)}
    return _asked("batch_normalization", descs, epsilon=1e-5, flags=flags)


def max_pooling(format: str, dims: Sequence[int] = IMAGE) -> Operation:
    halved = (*dims[:2], dims[2] // 2, dims[3] // 2)
    windows: dict[str, Parameter] = dict.fromkeys(("strides", "kernel"), (2, 2))
    windows |= dict.fromkeys(("dilations", "padding_l", "padding_r"), (0, 0))
    return _asked("pooling", {"src": image(format, dims), "dst": image(format, halved)}, (), algorithm="max", **windows)


def matmul(rows: int, inner: int, columns: int, weights: str = "any") -> Operation:
    descs = {
        "src": MemoryDesc((rows, inner), "f32", "ab"),
        "weights": MemoryDesc((inner, columns), "f32", weights),
        "dst": MemoryDesc((rows, columns), "f32", "ab"),
    }
    return _asked("matmul", descs)
