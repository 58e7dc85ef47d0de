"""Operations as PyTorch computes them: a graph of torch.fx with a function of torch for each.

    for how, run in runs(torch, graph, {"x": array}):
        run()["y"]

Weights are converted once. In `channels last` images and weights of convolutions lie with their channels innermost, and
what torch computes of them does too; the input is converted in each run, since a caller has it as ONNX says.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from math import prod
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import Unimplemented
from inlay.graph.op_graph import Array, Op, OpGraph, PermuteView, ReshapeView
from inlay.layout import Dims

Torch: TypeAlias = Any  # the module, or something of it: a peer that may be absent
Run: TypeAlias = Callable[[], Mapping[str, Array]]
_AXES = {1: "1d", 2: "2d", 3: "3d"}


class _Draft:
    """A graph of torch.fx while it is written."""

    def __init__(self, torch: Torch, graph: OpGraph, is_channels_last: bool) -> None:
        self.torch, self.functions, self.graph = torch, torch.nn.functional, graph
        self.format = torch.channels_last if is_channels_last else torch.contiguous_format
        self.fx = import_module("torch.fx").Graph()
        self.constants: dict[str, Torch] = {}
        self.nodes: dict[str, Torch] = {}

    def call(self, function: Any, *operands: Any, **named: Any) -> Torch:
        return self.fx.call_function(function, operands, named)

    def constant(self, array: Array) -> Torch:
        tensor = self.torch.tensor(np.ascontiguousarray(array))
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=self.format)
        name = f"constant{len(self.constants)}"
        self.constants[name] = tensor
        return self.fx.get_attr(name)

    def operand(self, op: Op, name: str) -> Torch:
        if name in op.reads:
            return self.nodes[op.reads[name]]
        return self.constant(op.constants[name]) if name in op.constants else None

    def dims(self, op: Op, name: str = "dst") -> Dims:
        if name in op.constants:
            return tuple(op.constants[name].shape)
        return self.graph.tensors[op.writes.get(name) or op.reads[name]].dims

    def sources(self, op: Op) -> list[Torch]:
        names = {name for name in (*op.reads, *op.constants) if name.startswith("src_")}
        return [self.operand(op, name) for name in sorted(names, key=lambda name: int(name[4:]))]

    def module(self) -> Torch:
        """The graph as a module that takes the inputs and answers the outputs."""
        for name in self.graph.inputs:
            given = self.fx.placeholder(f"input{len(self.nodes)}")
            is_image = len(self.graph.tensors[name].dims) == 4
            named = {"memory_format": self.format}
            self.nodes[name] = self.fx.call_method("contiguous", (given,), named) if is_image else given
        # Placeholders come first in a graph of torch.fx.
        for op in self.graph.ops:
            if op.kind not in KINDS:
                raise Unimplemented(f"no function of torch is known for {op.name}, a {op.kind}")
            (dst,) = op.writes.values()
            self.nodes[dst] = KINDS[op.kind](self, op)
        self.fx.output(tuple(self.nodes[name] for name in self.graph.outputs))
        holder = self.torch.nn.Module()
        for name, tensor in self.constants.items():
            holder.register_buffer(name, tensor)
        return self.torch.fx.GraphModule(holder, self.fx)


def runs(
    torch: Torch, graph: OpGraph, inputs: Mapping[str, Array], *, compiles: bool = False
) -> Iterator[tuple[str, Run]]:
    """The network in each way that PyTorch runs it: eager in either memory format, and compiled if that is asked.

    Raises:
        Unimplemented: no function of torch is known for an operation.
    """
    tensors = [torch.tensor(inputs[name]) for name in graph.inputs]
    for how, is_channels_last in (("eager, channels last", True), ("eager, contiguous", False)):
        yield how, _run(torch, _Draft(torch, graph, is_channels_last).module().eval(), tensors, graph.outputs)
    if compiles:
        options = import_module("torch._inductor.config")
        module = _Draft(torch, graph, False).module().eval()
        with options.patch(freezing=True), torch.no_grad():
            compiled = torch.compile(module)
            compiled(*tensors)
        yield "compiled, frozen", _run(torch, compiled, tensors, graph.outputs)


def _run(torch: Torch, module: Torch, tensors: list[Torch], outputs: tuple[str, ...]) -> Run:
    def run() -> Mapping[str, Array]:
        with torch.no_grad():
            results = module(*tensors)
        return {name: result.numpy() for name, result in zip(outputs, results, strict=True)}

    return run


def _convolution(draft: _Draft, op: Op) -> Torch:
    src, weights = draft.operand(op, "src"), op.constants["weights"]
    axes = len(draft.dims(op)) - 2
    groups = weights.shape[0] if weights.ndim == axes + 3 else 1
    weights = weights.reshape(-1, *weights.shape[-axes - 1 :])
    kernel, image = weights.shape[2:], draft.dims(op, "src")[2:]
    numbers = _numbers(op)
    if not _fits(image, draft.dims(op)[2:], kernel, numbers):
        src, numbers["padding"] = _padded(draft, op, src, 0.0), (0,) * axes
    function = getattr(draft.functions, f"conv{_AXES[axes]}")
    return draft.call(function, src, draft.constant(weights), draft.operand(op, "bias"), groups=groups, **numbers)


def _numbers(op: Op) -> dict[str, Any]:
    """Strides, dilations and the padding before, as torch counts."""
    windows: dict[str, Any] = dict(op.parameters)
    dilations = tuple(d + 1 for d in windows["dilations"])
    return {"stride": windows["strides"], "padding": windows["padding_l"], "dilation": dilations}


def _fits(image: Dims, result: Dims, kernel: Dims, numbers: Mapping[str, Any], is_up: bool = False) -> bool:
    """Whether the same padding on both sides gives these dims; `is_up` lets a window end behind it."""
    sides = zip(image, kernel, numbers["stride"], numbers["padding"], numbers["dilation"], strict=True)
    found = tuple((n + 2 * p - d * (k - 1) - 1 + (s - 1 if is_up else 0)) // s + 1 for n, k, s, p, d in sides)
    return found == result


def _padded(draft: _Draft, op: Op, src: Torch, value: float) -> Torch:
    return draft.call(draft.functions.pad, src, _sides(op), value=value)


def _sides(op: Op) -> list[int]:
    """The padding of a window as torch counts: before and after, from the last axis on."""
    windows: dict[str, Any] = dict(op.parameters)
    sides = list(zip(windows["padding_l"], windows["padding_r"], strict=True))
    return [n for side in reversed(sides) for n in side]


def _deconvolution(draft: _Draft, op: Op) -> Torch:
    weights, axes = op.constants["weights"], len(draft.dims(op)) - 2
    weights = weights if weights.ndim == axes + 3 else weights[None]
    groups, kernel, numbers = weights.shape[0], weights.shape[3:], _numbers(op)
    weights = np.swapaxes(weights, 1, 2).reshape(-1, weights.shape[1], *kernel)
    sides = zip(draft.dims(op, "src")[2:], kernel, *numbers.values(), draft.dims(op)[2:], strict=True)
    beyond = [out - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for n, k, s, p, d, out in sides]
    most = zip(beyond, numbers["stride"], numbers["dilation"], strict=True)
    if not all(0 <= more < max(s, d) for more, s, d in most):
        raise Unimplemented(f"no function of torch has the padding of {op.name}, a deconvolution")
    function = getattr(draft.functions, f"conv_transpose{_AXES[axes]}")
    named = {"output_padding": tuple(beyond), "groups": groups, **numbers}
    return draft.call(function, draft.operand(op, "src"), draft.constant(weights), draft.operand(op, "bias"), **named)


def _pooling(draft: _Draft, op: Op) -> Torch:
    src, algorithm = draft.operand(op, "src"), str(op.parameters["algorithm"])
    image, result = draft.dims(op, "src")[2:], draft.dims(op)[2:]
    kernel: Any = op.parameters["kernel"]
    numbers = _numbers(op)
    axes, is_max = _AXES[len(image)], algorithm == "max"
    if not is_max and kernel == image and not any(numbers["padding"]) and prod(result) == 1:
        return draft.call(draft.torch.mean, src, list(range(2, 2 + len(image))), keepdim=True)
    if not is_max and any(d != 1 for d in numbers["dilation"]):
        raise Unimplemented(f"no function of torch has the dilation of {op.name}, a pooling")
    is_up = not _fits(image, result, kernel, numbers)
    if is_up and (algorithm == "avg_include_padding" or not _fits(image, result, kernel, numbers, True)):
        if algorithm == "avg_exclude_padding":
            return _weighted_average(draft, op, src, kernel, numbers)
        src, numbers["padding"] = _padded(draft, op, src, -np.inf if is_max else 0.0), (0,) * len(image)
        is_up = False
    dilation = numbers.pop("dilation")
    if is_max:
        function = getattr(draft.functions, f"max_pool{axes}")
        return draft.call(function, src, kernel, dilation=dilation, ceil_mode=is_up, **numbers)
    counts = algorithm == "avg_include_padding"
    function = getattr(draft.functions, f"avg_pool{axes}")
    return draft.call(function, src, kernel, ceil_mode=is_up, count_include_pad=counts, **numbers)


def _weighted_average(draft: _Draft, op: Op, src: Torch, kernel: Any, numbers: dict[str, Any]) -> Torch:
    """The mean of padding and elements, times what makes it that of the elements."""
    function = getattr(draft.functions, f"avg_pool{_AXES[len(kernel)]}")
    ones = draft.torch.ones((1, 1, *draft.dims(op, "src")[2:]))
    padded = draft.functions.pad(ones, _sides(op))
    share = function(padded, kernel, stride=numbers["stride"])
    mean = draft.call(function, _padded(draft, op, src, 0.0), kernel, stride=numbers["stride"])
    return draft.call(draft.torch.mul, mean, draft.constant((1 / share).numpy()))


def _resampling(draft: _Draft, op: Op) -> Torch:
    size = draft.dims(op)[2:]
    if op.parameters["algorithm"] == "nearest":
        return draft.call(draft.functions.interpolate, draft.operand(op, "src"), size=size, mode="nearest-exact")
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(size)]
    return draft.call(draft.functions.interpolate, draft.operand(op, "src"), size=size, mode=mode, align_corners=False)


def _inner_product(draft: _Draft, op: Op) -> Torch:
    weights = op.constants["weights"]
    flat = draft.call(draft.torch.flatten, draft.operand(op, "src"), 1)
    matrix = draft.constant(weights.reshape(weights.shape[0], -1))
    return draft.call(draft.functions.linear, flat, matrix, draft.operand(op, "bias"))


def _matmul(draft: _Draft, op: Op) -> Torch:
    src, bias = draft.operand(op, "src"), draft.operand(op, "bias")
    weights = op.constants.get("weights")
    if weights is not None and weights.ndim == 2:
        flat = None if "bias" not in op.constants else draft.constant(op.constants["bias"].reshape(-1))
        return draft.call(draft.functions.linear, src, draft.constant(weights.T), flat)
    product = draft.call(draft.torch.matmul, src, draft.operand(op, "weights"))
    return product if bias is None else draft.call(draft.torch.add, product, bias)


def _eltwise(draft: _Draft, op: Op) -> Torch:
    torch, functions, src = draft.torch, draft.functions, draft.operand(op, "src")
    algorithm = str(op.parameters["algorithm"])
    alpha, beta = (float(op.parameters[name]) for name in ("alpha", "beta"))  # type: ignore[arg-type]
    if algorithm == "relu" and alpha:
        return draft.call(functions.leaky_relu, src, alpha)
    if algorithm == "linear":
        scaled = src if alpha == 1 else draft.call(torch.mul, src, alpha)
        return scaled if beta == 0 else draft.call(torch.add, scaled, beta)
    if algorithm in ("clip", "clip_v2"):
        return draft.call(torch.clamp, src, alpha, beta)
    if algorithm in ("gelu_erf", "gelu_tanh"):
        return draft.call(functions.gelu, src, approximate="none" if algorithm == "gelu_erf" else "tanh")
    if algorithm == "pow":
        power = draft.call(torch.pow, src, beta)
        return power if alpha == 1 else draft.call(torch.mul, power, alpha)
    names = {"logistic": "sigmoid", "relu": "relu"} | {
        n: n for n in ("abs", "exp", "log", "round", "sqrt", "square", "tanh")
    }
    if algorithm in names:
        return draft.call(getattr(torch, names[algorithm]), src)
    if algorithm == "elu":
        return draft.call(functions.elu, src, alpha)
    if algorithm == "mish" or (algorithm == "swish" and alpha == 1):
        return draft.call(functions.mish if algorithm == "mish" else functions.silu, src)
    if algorithm in ("hardsigmoid", "hardswish"):
        scaled = draft.call(torch.add, draft.call(torch.mul, src, alpha), beta)
        gate = draft.call(torch.clamp, scaled, 0.0, 1.0)
        return gate if algorithm == "hardsigmoid" else draft.call(torch.mul, src, gate)
    raise Unimplemented(f"no function of torch is known for {op.name}, {algorithm}")


_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "maximum", "min": "minimum"}


def _binary(draft: _Draft, op: Op) -> Torch:
    algorithm = str(op.parameters["algorithm"])
    if algorithm not in _BINARY:
        raise Unimplemented(f"no function of torch is known for {op.name}, {algorithm}")
    return draft.call(getattr(draft.torch, _BINARY[algorithm]), *draft.sources(op))


def _sum(draft: _Draft, op: Op) -> Torch:
    scales: Any = op.parameters["scales"]
    scaled = [
        src if scale == 1 else draft.call(draft.torch.mul, src, float(scale))
        for src, scale in zip(draft.sources(op), scales, strict=True)
    ]
    total = scaled[0]
    for src in scaled[1:]:
        total = draft.call(draft.torch.add, total, src)
    return total


def _prelu(draft: _Draft, op: Op) -> Torch:
    weights = op.constants["weights"]
    if weights.size not in (1, draft.dims(op)[1]):
        raise Unimplemented(f"no function of torch is known for {op.name}, a prelu with weights of {weights.shape}")
    return draft.call(draft.functions.prelu, draft.operand(op, "src"), draft.constant(weights.reshape(-1)))


def _batch_normalization(draft: _Draft, op: Op) -> Torch:
    operands = (draft.operand(op, name) for name in ("src", "mean", "variance", "scale", "shift"))
    return draft.call(draft.functions.batch_norm, *operands, False, 0.0, op.parameters["epsilon"])


def _layer_normalization(draft: _Draft, op: Op) -> Torch:
    flags: Any = op.parameters["flags"]
    if not flags <= {"use_scale", "use_shift"}:
        raise Unimplemented(f"no function of torch is known for {op.name}, a layer_normalization with {sorted(flags)}")
    operands = (draft.operand(op, name) for name in ("scale", "shift"))
    columns = (draft.dims(op)[-1],)
    src = draft.operand(op, "src")
    return draft.call(draft.functions.layer_norm, src, columns, *operands, op.parameters["epsilon"])


def _group_normalization(draft: _Draft, op: Op) -> Torch:
    operands = (draft.operand(op, name) for name in ("scale", "shift"))
    src = draft.operand(op, "src")
    return draft.call(draft.functions.group_norm, src, op.parameters["groups"], *operands, op.parameters["epsilon"])


def _lrn(draft: _Draft, op: Op) -> Torch:
    if op.parameters["algorithm"] != "across_channels":
        raise Unimplemented(f"no function of torch is known for {op.name}, an lrn within a channel")
    numbers = (op.parameters[name] for name in ("local_size", "alpha", "beta", "k"))
    return draft.call(draft.functions.local_response_norm, draft.operand(op, "src"), *numbers)


def _softmax(draft: _Draft, op: Op) -> Torch:
    function = draft.torch.log_softmax if op.parameters["algorithm"] == "log" else draft.torch.softmax
    return draft.call(function, draft.operand(op, "src"), op.parameters["axis"])


_REDUCTIONS = {"mean": "mean", "sum": "sum", "max": "amax", "min": "amin"}


def _reduction(draft: _Draft, op: Op) -> Torch:
    algorithm = str(op.parameters["algorithm"])
    if algorithm not in _REDUCTIONS:
        raise Unimplemented(f"no function of torch is known for {op.name}, {algorithm}")
    sides = enumerate(zip(draft.dims(op, "src"), draft.dims(op), strict=True))
    axes = [axis for axis, (n, out) in sides if n != out]
    return draft.call(getattr(draft.torch, _REDUCTIONS[algorithm]), draft.operand(op, "src"), axes, keepdim=True)


def _view(draft: _Draft, op: Op) -> Torch:
    found = draft.operand(op, "src")
    for move in op.transforms:
        if isinstance(move, ReshapeView):
            found = draft.call(draft.torch.reshape, found, move.dims)
        elif isinstance(move, PermuteView):
            found = draft.call(draft.torch.permute, found, move.perm)
        else:
            for axis, (offset, n) in enumerate(zip(move.offsets, move.dims, strict=True)):
                found = draft.call(draft.torch.narrow, found, axis, offset, n)
    return found


def _shuffle(draft: _Draft, op: Op) -> Torch:
    dims, size = draft.dims(op), int(str(op.parameters["group_size"]))
    if op.parameters["axis"] != 1 or len(dims) < 3:
        raise Unimplemented(f"no function of torch is known for {op.name}, a shuffle of other axes than channels")
    return draft.call(draft.torch.channel_shuffle, draft.operand(op, "src"), dims[1] // size)


def _concat(draft: _Draft, op: Op) -> Torch:
    return draft.call(draft.torch.cat, draft.sources(op), op.parameters["axis"])


KINDS: Mapping[str, Callable[[_Draft, Op], Torch]] = {
    "batch_normalization": _batch_normalization,
    "binary": _binary,
    "concat": _concat,
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "eltwise": _eltwise,
    "group_normalization": _group_normalization,
    "inner_product": _inner_product,
    "layer_normalization": _layer_normalization,
    "lrn": _lrn,
    "matmul": _matmul,
    "pooling": _pooling,
    "prelu": _prelu,
    "reduction": _reduction,
    "resampling": _resampling,
    "shuffle": _shuffle,
    "softmax": _softmax,
    "sum": _sum,
    "view": _view,
}
"""By kind of operation, what writes it."""
