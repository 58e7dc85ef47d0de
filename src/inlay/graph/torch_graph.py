"""A network in functions of PyTorch: a graph of torch.fx with a function of torch for each operation.

    for how, run in torch_runs(torch, graph, {"x": array}):
        run()["y"]

Each method named after a kind of operation computes it with proxies of torch.fx, which record the functions that are
called. Weights are converted once. In `channels last` images and weights of convolutions are stored with their
channels innermost, as are the results that torch computes from them; the input is converted in each run, since a caller
has it in the order of ONNX.

In bf16 or f16 the module has weights and activations of this type, and f32 inputs and outputs; with autocast torch
chooses the functions that compute in it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from math import prod
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import Unimplemented
from inlay.graph.op_graph import Array, BroadcastView, Op, OpGraph, PermuteView, ReshapeView, exact_graph
from inlay.graph.passes.value_ranges import widened
from inlay.layout import Dims
from inlay.primitives.attributes import PLAIN

Torch: TypeAlias = Any  # the module, or something of it: a peer that may be absent
Run: TypeAlias = Callable[[], Mapping[str, Array]]
_TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_REDUCTIONS = {"mean": "mean", "sum": "sum", "max": "amax", "min": "amin"}
_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "maximum", "min": "minimum"}
_UNARY = {"logistic": "sigmoid"} | {
    name: name for name in ("abs", "exp", "log", "relu", "round", "sqrt", "square", "tanh")
}
_REFERENCES = {"IsNaN": "isnan", "Where": "where"}


def torch_runs(
    torch: Torch, graph: OpGraph, inputs: Mapping[str, Array], *, types: str = "f32", compiles: bool = False
) -> Iterator[tuple[str, Run]]:
    """Yield a run of the network for each configuration: eager in either memory format, and compiled on request.

    Args:
        torch: the module.
        graph: the graph of operations, all of f32.
        inputs: an array for each input.
        types: `f32`; `bf16` or `f16` for a module of this type; `autocast bf16` for torch's choice.
        compiles: let torch compile the module too; never with autocast.

    Raises:
        Unimplemented: no function of torch is known for an operation, or torch has none for the type.
    """
    tensors = [torch.tensor(inputs[name]) for name in graph.inputs]
    has_autocast, name = types.startswith("autocast"), types.rpartition(" ")[2]
    dtype, suffix = getattr(torch, _TYPES[name]), "" if types == "f32" else f", {types}"
    context = partial(torch.autocast, "cpu", dtype) if has_autocast else nullcontext
    stored = torch.float32 if has_autocast else dtype
    for how, is_channels_last in (("eager, channels last", True), ("eager, contiguous", False)):
        module = _TorchGraph(torch, graph, is_channels_last, stored).module().eval()
        yield how + suffix, _run(torch, module, tensors, graph.outputs, context)
    if compiles and not has_autocast:
        options = import_module("torch._inductor.config")
        module = _TorchGraph(torch, graph, False, stored).module().eval()
        with options.patch(freezing=True), torch.no_grad():
            compiled = torch.compile(module)
            compiled(*tensors)
        yield f"compiled, frozen{suffix}", _run(torch, compiled, tensors, graph.outputs, nullcontext)


def _run(
    torch: Torch, module: Torch, tensors: list[Torch], outputs: tuple[str, ...], context: Callable[[], Any]
) -> Run:
    def run() -> Mapping[str, Array]:
        try:
            with torch.no_grad(), context():
                results = module(*tensors)
        except RuntimeError as error:
            raise Unimplemented(f"cannot run it: {next(iter(str(error).splitlines()), 'no text')}") from None
        wide = (result.float() if result.dtype in (torch.bfloat16, torch.float16) else result for result in results)
        return {name: result.numpy() for name, result in zip(outputs, wide, strict=True)}

    return run


def _unknown(op: Op, detail: object) -> Unimplemented:
    return Unimplemented(f"no function of torch is known for {op.name}, {detail}")


class _TorchGraph:
    """A graph of torch.fx while its operations are added."""

    def __init__(self, torch: Torch, graph: OpGraph, is_channels_last: bool, dtype: Torch) -> None:
        self._dtype = dtype  # of all tensors that are f32 in the graph
        self._torch, self._functions, self._graph = torch, torch.nn.functional, exact_graph(graph)
        self._format = torch.channels_last if is_channels_last else torch.contiguous_format
        self._fx = import_module("torch.fx")
        self._nodes = self._fx.Graph()
        self._tracer = self._fx.proxy.GraphAppendingTracer(self._nodes)
        self._constants: dict[str, Torch] = {}
        self._tensors: dict[str, Torch] = {}

    def module(self) -> Torch:
        """Return a module that takes the inputs and returns the outputs."""
        for name in self._graph.inputs:
            tensor = self._fx.Proxy(self._nodes.placeholder(f"input{len(self._tensors)}"), self._tracer)
            if self._graph.tensors[name].dtype == np.float32 and self._dtype != self._torch.float32:
                tensor = tensor.to(self._dtype)
            is_image = len(self._graph.tensors[name].dims) == 4
            self._tensors[name] = tensor.contiguous(memory_format=self._format) if is_image else tensor
        for op in self._graph.ops:
            add = getattr(self, f"_{op.kind}", None)
            if add is None:
                raise _unknown(op, f"a {op.kind}")
            if op.attributes != PLAIN:
                raise _unknown(op, f"a {op.kind} of quantized tensors")
            if len(op.writes) > 1:
                raise _unknown(op, f"a {op.kind} with {len(op.writes)} results")
            (dst,) = op.writes.values()
            self._tensors[dst] = add(op)
        self._nodes.output(tuple(self._tensors[name].node for name in self._graph.outputs))
        self._nodes.eliminate_dead_code()
        holder = self._torch.nn.Module()
        for name, tensor in self._constants.items():
            holder.register_buffer(name, tensor)
        return self._fx.GraphModule(holder, self._nodes)

    # Operands

    def _constant(self, array: Array) -> Torch:
        tensor = self._torch.tensor(np.ascontiguousarray(widened(array)))
        if tensor.dtype == self._torch.float32:
            tensor = tensor.to(self._dtype)
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=self._format)
        name = f"constant{len(self._constants)}"
        self._constants[name] = tensor
        return self._fx.Proxy(self._nodes.get_attr(name), self._tracer)

    def _operand(self, op: Op, name: str = "src") -> Torch:
        if name in op.reads:
            return self._tensors[op.reads[name]]
        return self._constant(op.constants[name]) if name in op.constants else None

    def _sources(self, op: Op) -> list[Torch]:
        names = {name for name in (*op.reads, *op.constants) if name.startswith("src_")}
        return [self._operand(op, name) for name in sorted(names, key=lambda name: int(name[4:]))]

    def _dims(self, op: Op, name: str = "dst") -> Dims:
        if name in op.constants:
            return tuple(op.constants[name].shape)
        return self._graph.tensors[op.writes.get(name) or op.reads[name]].dims

    def _of_axes(self, name: str, axes: int) -> Torch:
        return getattr(self._functions, f"{name}{axes}d")

    # Windows

    def _padded(self, op: Op, src: Torch, value: float) -> Torch:
        return self._functions.pad(src, _padding(op), value=value)

    def _convolution(self, op: Op) -> Torch:
        src, weights, bias = self._operand(op), op.constants["weights"], self._operand(op, "bias")
        axes = len(self._dims(op)) - 2
        groups = weights.shape[0] if weights.ndim == axes + 3 else 1
        weights = weights.reshape(-1, *weights.shape[-axes - 1 :])
        window = _window(op)
        if not _fits(self._dims(op, "src")[2:], self._dims(op)[2:], weights.shape[2:], window):
            src, window["padding"] = self._padded(op, src, 0.0), (0,) * axes
        return self._of_axes("conv", axes)(src, self._constant(weights), bias, groups=groups, **window)

    def _deconvolution(self, op: Op) -> Torch:
        weights, axes = op.constants["weights"], len(self._dims(op)) - 2
        weights = weights if weights.ndim == axes + 3 else weights[None]
        groups, kernel, window = weights.shape[0], weights.shape[3:], _window(op)
        weights = np.swapaxes(weights, 1, 2).reshape(-1, weights.shape[1], *kernel)
        sides = zip(self._dims(op, "src")[2:], kernel, *window.values(), self._dims(op)[2:], strict=True)
        beyond = tuple(out - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for n, k, s, p, d, out in sides)
        most = zip(beyond, window["stride"], window["dilation"], strict=True)
        if not all(0 <= more < max(s, d) for more, s, d in most):
            raise Unimplemented(f"no function of torch has the padding of {op.name}, a deconvolution")
        function = self._of_axes("conv_transpose", axes)
        operands = self._operand(op), self._constant(weights), self._operand(op, "bias")
        return function(*operands, output_padding=beyond, groups=groups, **window)

    def _pooling(self, op: Op) -> Torch:
        src, algorithm, window = self._operand(op), str(op.parameters["algorithm"]), _window(op)
        image, result = self._dims(op, "src")[2:], self._dims(op)[2:]
        kernel: Any = op.parameters["kernel"]
        axes, is_max = len(image), algorithm == "max"
        if not is_max and kernel == image and not any(window["padding"]) and prod(result) == 1:
            return self._torch.mean(src, list(range(2, 2 + axes)), keepdim=True)
        if not is_max and any(d != 1 for d in window["dilation"]):
            raise Unimplemented(f"no function of torch has the dilation of {op.name}, a pooling")
        is_up = not _fits(image, result, kernel, window)
        if is_up and (algorithm == "avg_include_padding" or not _fits(image, result, kernel, window, True)):
            if algorithm == "avg_exclude_padding":
                return self._weighted_average(op, src, kernel, window)
            src, window["padding"] = self._padded(op, src, -np.inf if is_max else 0.0), (0,) * axes
            is_up = False
        dilation = window.pop("dilation")
        if is_max:
            return self._of_axes("max_pool", axes)(src, kernel, dilation=dilation, ceil_mode=is_up, **window)
        counts = algorithm == "avg_include_padding"
        return self._of_axes("avg_pool", axes)(src, kernel, ceil_mode=is_up, count_include_pad=counts, **window)

    def _weighted_average(self, op: Op, src: Torch, kernel: Any, window: dict[str, Any]) -> Torch:
        """The mean of padding and elements, times the factor that makes it the mean of the elements."""
        function = self._of_axes("avg_pool", len(kernel))
        ones = self._torch.ones((1, 1, *self._dims(op, "src")[2:]))
        share = function(self._functions.pad(ones, _padding(op)), kernel, stride=window["stride"])
        mean = function(self._padded(op, src, 0.0), kernel, stride=window["stride"])
        return self._torch.mul(mean, self._constant((1 / share).numpy()))

    def _resampling(self, op: Op) -> Torch:
        size, resize = self._dims(op)[2:], self._functions.interpolate
        if op.parameters["algorithm"] == "nearest":
            return resize(self._operand(op), size=size, mode="nearest-exact")
        mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(size)]
        return resize(self._operand(op), size=size, mode=mode, align_corners=False)

    # Products

    def _inner_product(self, op: Op) -> Torch:
        weights = op.constants["weights"]
        flat, matrix = self._torch.flatten(self._operand(op), 1), self._constant(weights.reshape(weights.shape[0], -1))
        return self._functions.linear(flat, matrix, self._operand(op, "bias"))

    def _matmul(self, op: Op) -> Torch:
        src, bias, weights = self._operand(op), self._operand(op, "bias"), op.constants.get("weights")
        if weights is not None and weights.ndim == 2:
            flat = None if "bias" not in op.constants else self._constant(op.constants["bias"].reshape(-1))
            return self._functions.linear(src, self._constant(weights.T), flat)
        product = self._torch.matmul(src, self._operand(op, "weights"))
        return product if bias is None else self._torch.add(product, bias)

    # Element by element

    def _eltwise(self, op: Op) -> Torch:
        torch, functions, src = self._torch, self._functions, self._operand(op)
        algorithm = str(op.parameters["algorithm"])
        alpha, beta = (float(op.parameters[name]) for name in ("alpha", "beta"))  # type: ignore[arg-type]
        formulas: Mapping[str, Callable[[], Torch]] = {
            "linear": lambda: _plus(torch, _times(torch, src, alpha), beta),
            "clip": lambda: torch.clamp(src, alpha, beta),
            "clip_v2": lambda: torch.clamp(src, alpha, beta),
            "gelu_erf": lambda: functions.gelu(src, approximate="none"),
            "gelu_tanh": lambda: functions.gelu(src, approximate="tanh"),
            "pow": lambda: _times(torch, torch.pow(src, beta), alpha),
            "elu": lambda: functions.elu(src, alpha),
            "mish": lambda: functions.mish(src),
            "hardsigmoid": lambda: torch.clamp(torch.add(torch.mul(src, alpha), beta), 0.0, 1.0),
            "hardswish": lambda: torch.mul(src, torch.clamp(torch.add(torch.mul(src, alpha), beta), 0.0, 1.0)),
        }
        if algorithm == "relu" and alpha:
            return functions.leaky_relu(src, alpha)
        if algorithm == "swish" and alpha == 1:
            return functions.silu(src)
        if algorithm in formulas:
            return formulas[algorithm]()
        if algorithm in _UNARY:
            return getattr(torch, _UNARY[algorithm])(src)
        raise _unknown(op, algorithm)

    def _binary(self, op: Op) -> Torch:
        algorithm = str(op.parameters["algorithm"])
        if algorithm not in _BINARY:
            raise _unknown(op, algorithm)
        return getattr(self._torch, _BINARY[algorithm])(*self._sources(op))

    def _sum(self, op: Op) -> Torch:
        scales: Any = op.parameters["scales"]
        first, *others = (_times(self._torch, src, float(n)) for src, n in zip(self._sources(op), scales, strict=True))
        for other in others:
            first = self._torch.add(first, other)
        return first

    def _prelu(self, op: Op) -> Torch:
        weights = op.constants["weights"]
        if weights.size not in (1, self._dims(op)[1]):
            raise _unknown(op, f"a prelu with weights of {weights.shape}")
        return self._functions.prelu(self._operand(op), self._constant(weights.reshape(-1)))

    # Normalization

    def _batch_normalization(self, op: Op) -> Torch:
        operands = (self._operand(op, name) for name in ("src", "mean", "variance", "scale", "shift"))
        return self._functions.batch_norm(*operands, False, 0.0, op.parameters["epsilon"])

    def _layer_normalization(self, op: Op) -> Torch:
        flags: Any = op.parameters["flags"]
        if not flags <= {"use_scale", "use_shift"}:
            raise _unknown(op, f"a layer_normalization with {sorted(flags)}")
        operands = (self._operand(op, name) for name in ("scale", "shift"))
        columns = (self._dims(op)[-1],)
        return self._functions.layer_norm(self._operand(op), columns, *operands, op.parameters["epsilon"])

    def _group_normalization(self, op: Op) -> Torch:
        operands = (self._operand(op, name) for name in ("scale", "shift"))
        groups, epsilon = op.parameters["groups"], op.parameters["epsilon"]
        return self._functions.group_norm(self._operand(op), groups, *operands, epsilon)

    def _lrn(self, op: Op) -> Torch:
        if op.parameters["algorithm"] != "across_channels":
            raise _unknown(op, "an lrn within a channel")
        numbers = (op.parameters[name] for name in ("local_size", "alpha", "beta", "k"))
        return self._functions.local_response_norm(self._operand(op), *numbers)

    def _softmax(self, op: Op) -> Torch:
        function = self._torch.log_softmax if op.parameters["algorithm"] == "log" else self._torch.softmax
        return function(self._operand(op), op.parameters["axis"])

    def _reduction(self, op: Op) -> Torch:
        algorithm = str(op.parameters["algorithm"])
        if algorithm not in _REDUCTIONS:
            raise _unknown(op, algorithm)
        sides = enumerate(zip(self._dims(op, "src"), self._dims(op), strict=True))
        axes = [axis for axis, (n, out) in sides if n != out]
        return getattr(self._torch, _REDUCTIONS[algorithm])(self._operand(op), axes, keepdim=True)

    def _reference(self, op: Op) -> Torch:
        assert op.node is not None
        if op.node.operator not in _REFERENCES:
            raise _unknown(op, f"a {op.node.operator}")
        operands = [
            self._constant(op.constants[name]) if name in op.constants else self._tensors[name]
            for name in op.node.inputs
        ]
        return getattr(self._torch, _REFERENCES[op.node.operator])(*operands)

    # Moves

    def _reorder(self, op: Op) -> Torch:
        dtype = self._graph.tensors[op.writes["dst"]].dtype
        return self._operand(op).to(self._dtype if dtype == np.float32 else getattr(self._torch, dtype.name))

    def _view(self, op: Op) -> Torch:
        tensor = self._operand(op)
        for move in op.transforms:
            if isinstance(move, ReshapeView):
                tensor = self._torch.reshape(tensor, move.dims)
            elif isinstance(move, PermuteView):
                tensor = self._torch.permute(tensor, move.perm)
            elif isinstance(move, BroadcastView):
                tensor = tensor.expand(move.dims)
            else:
                steps = move.steps or (1,) * len(move.dims)
                ends = (at + (n - 1) * step + 1 for at, n, step in zip(move.offsets, move.dims, steps, strict=True))
                tensor = tensor[tuple(map(slice, move.offsets, ends, steps))]
        return tensor

    def _shuffle(self, op: Op) -> Torch:
        dims, size = self._dims(op), int(str(op.parameters["group_size"]))
        if op.parameters["axis"] != 1 or len(dims) < 3:
            raise _unknown(op, "a shuffle of other axes than channels")
        return self._torch.channel_shuffle(self._operand(op), dims[1] // size)

    def _concat(self, op: Op) -> Torch:
        return self._torch.cat(self._sources(op), op.parameters["axis"])


def _times(torch: Torch, tensor: Torch, factor: float) -> Torch:
    return tensor if factor == 1 else torch.mul(tensor, factor)


def _plus(torch: Torch, tensor: Torch, number: float) -> Torch:
    return tensor if number == 0 else torch.add(tensor, number)


def _window(op: Op) -> dict[str, Any]:
    """Return strides, the padding before, and dilations as torch counts them."""
    numbers: dict[str, Any] = dict(op.parameters)
    dilations = tuple(d + 1 for d in numbers["dilations"])
    return {"stride": numbers["strides"], "padding": numbers["padding_l"], "dilation": dilations}


def _fits(image: Dims, result: Dims, kernel: Dims, window: Mapping[str, Any], is_up: bool = False) -> bool:
    """Return whether the same padding on both sides gives these dims; with `is_up` a window may end behind it."""
    sides = zip(image, kernel, window["stride"], window["padding"], window["dilation"], strict=True)
    return result == tuple((n + 2 * p - d * (k - 1) - 1 + (s - 1 if is_up else 0)) // s + 1 for n, k, s, p, d in sides)


def _padding(op: Op) -> list[int]:
    """Return the padding of a window as torch counts it: before and after, from the last axis on."""
    numbers: dict[str, Any] = dict(op.parameters)
    sides = list(zip(numbers["padding_l"], numbers["padding_r"], strict=True))
    return [n for side in reversed(sides) for n in side]
