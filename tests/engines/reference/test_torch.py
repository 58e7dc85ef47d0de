"""The reference engine beside PyTorch: results of primitives, and gradients of autograd, on random shapes in f64.

PyTorch has another reading of some parameters, which each entry of `PEERS` translates; where it has no such primitive
(LRN over even windows, tensors without elements) the problem is left out.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.primitives.engine import Operation
from tests.support.primitive_cases import draw
from tests.support.reference_cases import operation_of, run_operation

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.heavy, pytest.mark.parity]

F = torch.nn.functional
SEEDS = range(20)


class Other(Exception):
    """PyTorch has no such problem."""


def convolution(p: Operation, t: Mapping[str, Any]) -> Any:
    """Pad by hand: padding may differ on both sides, and be negative."""
    w = t["weights"]
    groups = w.shape[0] if w.ndim > t["src"].ndim else 1
    w = w.flatten(0, 1) if w.ndim > t["src"].ndim else w
    pads = [n for pair in zip(p.parameters["padding_l"], p.parameters["padding_r"], strict=True) for n in pair]
    src = F.pad(t["src"], [n for i in reversed(range(0, len(pads), 2)) for n in pads[i : i + 2]])
    if not src.numel():
        raise Other
    apply = (F.conv1d, F.conv2d, F.conv3d)[t["src"].ndim - 3]
    dilation = tuple(d + 1 for d in p.parameters["dilations"])
    return apply(src, w, t.get("bias"), p.parameters["strides"], 0, dilation, groups)


def deconvolution(p: Operation, t: Mapping[str, Any]) -> Any:
    """Crop the transposed convolution to the destination."""
    w = t["weights"] if t["weights"].ndim > t["src"].ndim else t["weights"][None]
    if not t["src"].numel():
        raise Other
    apply = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[t["src"].ndim - 3]
    dilation = tuple(d + 1 for d in p.parameters["dilations"])
    whole = apply(t["src"], w.transpose(1, 2).flatten(0, 1), None, p.parameters["strides"], 0, 0, len(w), dilation)
    out = p.descs["dst"].dims[2:]
    for axis, (n, left) in enumerate(zip(out, p.parameters["padding_l"], strict=True), start=2):
        missing = max(left + n - whole.shape[axis], 0)
        whole = torch.cat([whole, whole.new_zeros(*whole.shape[:axis], missing, *whole.shape[axis + 1 :])], axis)
        whole = whole.narrow(axis, left, n)
    return whole + t["bias"].reshape(-1, *[1] * len(out)) if "bias" in t else whole


def padded(x: Any, axis: int, left: int, right: int, fill: float = 0.0) -> Any:
    return F.pad(x, [0, 0] * (x.ndim - 1 - axis) + [left, right], value=fill)


def pooling(p: Operation, t: Mapping[str, Any]) -> Any:
    """The maximum of every window, or the mean, unfolded axis by axis."""
    names = ("kernel", "strides", "dilations", "padding_l", "padding_r")
    is_max = p.parameters["algorithm"] == "max"
    x, inside = t["src"], torch.ones(1, 1, *t["src"].shape[2:], dtype=torch.float64)
    if not x.numel():
        raise Other
    for axis, (k, s, d, left, right) in enumerate(zip(*(p.parameters[n] for n in names), strict=True), start=2):
        x, inside = padded(x, axis, left, right, float("-inf") if is_max else 0.0), padded(inside, axis, left, right)
        x, inside = (a.unfold(axis, (k - 1) * (d + 1) + 1, s)[..., :: d + 1] for a in (x, inside))
    last = tuple(range(-len(p.parameters["kernel"]), 0))
    if is_max:
        return x.flatten(-len(last)).max(-1).values
    include = p.parameters["algorithm"] == "avg_include_padding"
    return x.mean(last) if include else x.sum(last) / inside.sum(last)


def normalization(p: Operation, t: Mapping[str, Any]) -> Any:
    """PyTorch's own, with statistics of the batch."""
    if "use_global_stats" in p.parameters["flags"] or not t["src"].numel():
        raise Other
    ones = torch.ones(t["src"].shape[-1 if p.kind == "layer_normalization" else 1], dtype=torch.float64)
    scale, shift, epsilon = t.get("scale", ones), t.get("shift", 0 * ones), p.parameters["epsilon"]
    if p.kind == "layer_normalization":
        return F.layer_norm(t["src"], t["src"].shape[-1:], scale, shift, epsilon)
    if p.kind == "group_normalization":
        return F.group_norm(t["src"], p.parameters["groups"], scale, shift, epsilon)
    if t["src"].numel() == t["src"].shape[1]:
        raise Other
    return F.batch_norm(t["src"], None, None, scale, shift, training=True, eps=epsilon)


def lrn(p: Operation, t: Mapping[str, Any]) -> Any:
    """Over channels by PyTorch's own, over space by an average of squares."""
    size, alpha, beta, k = (p.parameters[name] for name in ("local_size", "alpha", "beta", "k"))
    x = t["src"]
    if size % 2 == 0 or not x.numel():
        raise Other
    if p.parameters["algorithm"] == "across_channels":
        return F.local_response_norm(x, size, alpha, beta, k)
    pool: Any = {2: F.avg_pool2d, 3: F.avg_pool3d}.get(x.ndim - 2)
    if pool is None:
        raise Other
    around = x**2
    for axis in range(2, x.ndim):
        around = padded(around, axis, size // 2, size // 2)
    return x / (k + alpha * pool(around, size, 1)) ** beta


def eltwise(p: Operation, t: Mapping[str, Any]) -> Any:
    """By name, for what PyTorch has."""
    a, b = p.parameters["alpha"], p.parameters["beta"]
    functions: dict[str, Callable[[Any], Any]] = {
        "relu": lambda x: F.leaky_relu(x, a),
        "tanh": torch.tanh,
        "elu": lambda x: F.elu(x, a),
        "square": torch.square,
        "abs": torch.abs,
        "sqrt": torch.sqrt,
        "linear": lambda x: a * x + b,
        "soft_relu": lambda x: F.softplus(x, a, threshold=1e9),
        "hardsigmoid": lambda x: (a * x + b).clamp(0, 1),
        "logistic": torch.sigmoid,
        "mish": F.mish,
        "exp": torch.exp,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "swish": lambda x: x * torch.sigmoid(a * x),
        "log": torch.log,
        "clip": lambda x: x.clamp(a, b),
        "clip_v2": lambda x: x.clamp(a, b),
        "pow": lambda x: a * x**b,
        "gelu_erf": F.gelu,
        "round": torch.round,
        "hardswish": lambda x: x * (a * x + b).clamp(0, 1),
    }
    return functions[p.parameters["algorithm"].removesuffix("_use_dst_for_bwd")](t["src"])


def resampling(p: Operation, t: Mapping[str, Any]) -> Any:
    """`nearest-exact` and the linear modes without aligned corners are oneDNN's."""
    if not t["src"].numel():
        raise Other
    out = p.descs["dst"].dims[2:]
    if p.parameters["algorithm"] == "nearest":
        return F.interpolate(t["src"], out, mode="nearest-exact")
    return F.interpolate(t["src"], out, mode=("linear", "bilinear", "trilinear")[len(out) - 1], align_corners=False)


def softmax(p: Operation, t: Mapping[str, Any]) -> Any:
    apply = torch.log_softmax if p.parameters["algorithm"] == "log" else torch.softmax
    return apply(t["src"], p.parameters["axis"])


def reduction(p: Operation, t: Mapping[str, Any]) -> Any:
    """Reduced axis by axis where PyTorch takes one only."""
    axes = [i for i, (n, m) in enumerate(zip(p.descs["src"].dims, p.descs["dst"].dims, strict=True)) if n != m]
    x, name, eps = t["src"], p.parameters["algorithm"], p.parameters["eps"]
    if name in ("max", "min"):
        return getattr(x, f"a{name}")(axes, keepdim=True)
    if name in ("sum", "mean"):
        return getattr(x, name)(axes, keepdim=True)
    if name == "mul":
        for axis in axes:
            x = x.prod(axis, keepdim=True)
        return x
    powers = (x.abs() ** p.parameters["p"]).sum(axes, keepdim=True)
    bounded = powers.clamp(min=eps) if name.endswith("max") else powers + eps
    return bounded if "power" in name else bounded ** (1 / p.parameters["p"])


def binary(p: Operation, t: Mapping[str, Any]) -> Any:
    name, x, y = p.parameters["algorithm"], t["src_0"], t["src_1"]
    if name == "select":
        return torch.where(t["src_2"] != 0, x, y)
    names = {"max": "maximum", "min": "minimum"}
    return getattr(torch, names.get(name, name))(x, y).double()


PEERS: dict[str, Callable[[Operation, Mapping[str, Any]], Any]] = {
    "convolution": convolution,
    "deconvolution": deconvolution,
    "inner_product": lambda p, t: F.linear(t["src"].flatten(1), t["weights"].flatten(1), t.get("bias")),
    "matmul": lambda p, t: t["src"] @ t["weights"] + t.get("bias", 0),
    "pooling": pooling,
    "batch_normalization": normalization,
    "layer_normalization": normalization,
    "group_normalization": normalization,
    "lrn": lrn,
    "eltwise": eltwise,
    "softmax": softmax,
    "prelu": lambda p, t: torch.where(t["src"] > 0, t["src"], t["src"] * t["weights"]),
    "resampling": resampling,
    "reduction": reduction,
    "shuffle": lambda p, t: (
        t["src"]
        .unflatten(p.parameters["axis"], (-1, p.parameters["group_size"]))
        .transpose(p.parameters["axis"], p.parameters["axis"] + 1)
        .reshape(t["src"].shape)
    ),
    "concat": lambda p, t: torch.cat([t[f"src_{i}"] for i in range(len(t))], p.parameters["axis"]),
    "binary": binary,
}


@pytest.mark.parametrize("kind", sorted(PEERS))
def test_results_and_gradients_are_those_of_torch(kind: str) -> None:
    compared = 0
    for seed in SEEDS:
        case = draw(kind, seed, "f32")
        operation = operation_of(case)
        read = {name: desc for name, desc in operation.descs.items() if name not in ("dst", "mean", "variance")}
        data = {name: case.data(name, desc).astype(np.float64) for name, desc in read.items()}
        tensors = {name: torch.tensor(array, requires_grad=True) for name, array in data.items()}
        try:
            dst = PEERS[kind](operation, tensors)
        except Other:
            continue
        data["diff_dst"] = case.data("diff_dst", operation.descs["dst"]).astype(np.float64)
        found = run_operation(operation, lambda desc: MemoryDesc(desc.dims, "f64"), data)
        wanted = {"dst": dst.detach().numpy()}
        if any(name.startswith("diff_") for name in found):
            dst.backward(torch.tensor(data["diff_dst"]))
            wanted |= {f"diff_{name}": tensor.grad.numpy() for name, tensor in tensors.items()}
        for name, array in wanted.items():
            ours = found[name].unpack()
            np.testing.assert_allclose(ours, array, rtol=1e-9, atol=1e-11, err_msg=f"seed {seed}: {name}")
        compared += 1
    assert compared >= len(SEEDS) // 3
