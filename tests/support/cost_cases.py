"""Operations of networks in given formats, for the tests of costs."""

from collections.abc import Sequence

from inlay import MemoryDesc
from inlay.primitives.attributes import PostOp, PrimitiveAttributes
from inlay.primitives.engine import Operation, Parameter

IMAGE = (2, 64, 28, 28)


def _operation(kind: str, descs: dict[str, MemoryDesc], **parameters: Parameter) -> Operation:
    return Operation(kind, "forward_inference", descs, parameters)


def image(format: str, dims: Sequence[int] = IMAGE) -> MemoryDesc:
    return MemoryDesc(tuple(dims), "f32", format)


def _images(format: str, dims: Sequence[int], *names: str) -> dict[str, MemoryDesc]:
    """Images in one format, of these names and dst."""
    return dict.fromkeys((*names, "dst"), image(format, dims))


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
    descs = {
        "src": image(src, (batch, ic, size, size)),
        "weights": MemoryDesc(weights, "f32", "any"),
        "bias": MemoryDesc((oc,), "f32", "a"),
        "dst": image(src if dst is None else dst, (batch, oc, size, size)),
    }
    windows: dict[str, Parameter] = dict.fromkeys(("padding_l", "padding_r"), (kernel // 2,) * 2)
    windows |= {"algorithm": "direct", "strides": (1, 1), "dilations": (0, 0)}
    attributes = PrimitiveAttributes(post_ops=tuple(post_ops))
    return Operation("convolution", "forward_inference", descs, windows, attributes)


def eltwise(format: str, algorithm: str = "relu") -> Operation:
    return _operation("eltwise", _images(format, IMAGE, "src"), algorithm=algorithm, alpha=0.0, beta=0.0)


def excite(format: str, scale: str = "nchw") -> Operation:
    """An image times a number for each channel, as squeeze-and-excitation has it."""
    descs = {"src_0": image(format), "src_1": image(scale, (*IMAGE[:2], 1, 1)), "dst": image(format)}
    return _operation("binary", descs, algorithm="mul")


def add(format: str) -> Operation:
    return _operation("binary", _images(format, IMAGE, "src_0", "src_1"), algorithm="add")


def mean(format: str) -> Operation:
    """The mean over space, by a reduction."""
    descs = {"src": image(format), "dst": image(format, (*IMAGE[:2], 1, 1))}
    return _operation("reduction", descs, algorithm="mean", p=0.0, eps=0.0)


def softmax(format: str, axis: int) -> Operation:
    return _operation("softmax", _images(format, IMAGE, "src"), algorithm="accurate", axis=axis)


def layer_normalization(format: str) -> Operation:
    descs = _images(format, IMAGE, "src") | dict.fromkeys(("scale", "shift"), MemoryDesc(IMAGE[3:], "f32", "a"))
    return _operation("layer_normalization", descs, epsilon=1e-5, flags=frozenset({"use_scale", "use_shift"}))


def batch_normalization(format: str) -> Operation:
    values = dict.fromkeys(("mean", "variance", "scale", "shift"), MemoryDesc(IMAGE[1:2], "f32", "a"))
    flags = frozenset({"use_global_stats", "use_scale", "use_shift"})
    return _operation("batch_normalization", _images(format, IMAGE, "src") | values, epsilon=1e-5, flags=flags)


def max_pooling(format: str) -> Operation:
    windows: dict[str, Parameter] = dict.fromkeys(("strides", "kernel"), (2, 2))
    windows |= dict.fromkeys(("dilations", "padding_l", "padding_r"), (0, 0))
    descs = {"src": image(format), "dst": image(format, (*IMAGE[:2], IMAGE[2] // 2, IMAGE[3] // 2))}
    return _operation("pooling", descs, algorithm="max", **windows)


def matmul(rows: int, inner: int, columns: int) -> Operation:
    dims = {"src": (rows, inner), "weights": (inner, columns), "dst": (rows, columns)}
    formats = {"src": "ab", "weights": "any", "dst": "ab"}
    return _operation("matmul", {name: MemoryDesc(dims[name], "f32", formats[name]) for name in dims})
