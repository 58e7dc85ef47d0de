"""Random problems for every primitive: dims, parameters and data, in whatever formats a test asks for.

    problem = problem_of("pooling", np.random.default_rng(0))
    operation = problem.forward(lambda name, dims, data_type: MemoryDesc(dims, data_type))

Shapes have 0, 1 and odd numbers of channels, groups, dilation, and padding that may be negative on the right.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.memory import Memory, pack
from inlay.primitives.algorithms import ALL_ELTWISE, BINARY, LRN, POOLING, REDUCTION, RESAMPLING, SOFTMAX
from inlay.primitives.engine import Implementation, Operation
from inlay.primitives.rules import SIGNATURES, Direction, PropKind

Dims: TypeAlias = tuple[int, ...]
Chooser: TypeAlias = Callable[[str, Dims, str], MemoryDesc]
Random: TypeAlias = np.random.Generator

F32 = frozenset({"mean", "variance", "scale", "shift", "diff_scale", "diff_shift"})
"""Arguments that are f32 whatever type the data has."""


@dataclass(frozen=True)
class Problem:
    """A primitive without formats."""

    kind: str
    dims: Mapping[str, Dims]
    parameters: Mapping[str, Any]
    prop_kind: PropKind = "forward_training"
    positive: frozenset[str] = field(default_factory=frozenset)
    """Arguments whose elements are positive."""

    def forward(self, chooser: Chooser, data_type: str = "f32") -> Operation:
        """The forward operation."""
        types = {name: "f32" if name in F32 else data_type for name in self.dims}
        descs = {name: chooser(name, dims, types[name]) for name, dims in self.dims.items()}
        return Operation(self.kind, self.prop_kind, descs, self.parameters)

    def array(self, name: str, random: Random) -> Any:
        """Numbers for an argument: distinct, around 1."""
        values = random.normal(size=self.dims.get(name.removeprefix("diff_"), ()))
        return np.abs(values) + 0.25 if name in self.positive else values


def backward(hint: Implementation, direction: Direction, data_type: str = "f32") -> Operation:
    """The way back through a forward implementation: data as it lies, gradients `any`."""
    kind, parameters = hint.operation.kind, hint.operation.parameters
    row = SIGNATURES[kind, direction]
    descs = {}
    for name in (*row.reads, *row.writes):
        desc = hint.descs.get(name.removeprefix("diff_"))
        if desc is not None and name != "workspace":
            descs[name] = MemoryDesc(desc.dims, desc.data_type, "any") if name in row.free else desc
    if kind == "eltwise":
        del descs["src" if str(parameters["algorithm"]).endswith("for_bwd") else "dst"]
    prop_kind: PropKind = direction  # type: ignore[assignment]
    return Operation(kind, prop_kind, descs, parameters, hint=hint)


def directions(kind: str) -> list[Direction]:
    """The ways back that a kind has."""
    return [direction for name, direction in SIGNATURES if name == kind and direction != "forward"]


def run(implementation: Implementation, arrays: Mapping[str, Any], kept: Mapping[str, Memory]) -> dict[str, Memory]:
    """Compute on arrays, packed into the formats that were chosen; `kept` is memory as it is, such as a workspace."""
    memories = {}
    for name, desc in implementation.descs.items():
        memories[name] = kept[name] if name in kept else Memory(desc)
        if name in arrays and name not in kept:
            memories[name] = pack(arrays[name].astype(desc.data_type.dtype), desc)  # type: ignore[union-attr]
    implementation.bind(memories)()
    return memories


def problem_of(kind: str, random: Random) -> Problem:
    """A random problem."""
    made = _MAKERS[kind](random)
    return Problem(kind, **made)


def _size(random: Random, *often: int) -> int:
    return int(random.choice([1, 2, 3, 5, *often]))


def _batch(random: Random) -> int:
    return int(random.choice([0, 1, 1, 2, 2, 3]))


def _channels(random: Random) -> int:
    return int(random.choice([1, 3, 8, 16, 17, 19]))


def _image(random: Random, least: int = 1) -> Dims:
    spatial = [_size(random, 4, 7) for _ in range(random.integers(least, 4))]
    return (_batch(random), _channels(random), *spatial)


def _window(random: Random, spatial: int, pools: bool = False) -> dict[str, Any]:
    """Parameters of windows, and the space before and after."""
    kernel = [int(random.integers(1, 4)) for _ in range(spatial)]
    strides = [int(random.integers(1, 4)) for _ in range(spatial)]
    dilations = [int(random.integers(0, 2)) for _ in range(spatial)]
    spans = [(k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    left = [int(random.integers(0, k)) for k in kernel]
    # Fewer elements than a step may be left over.
    right = [int(random.integers(0 if pools else 1 - s, k)) for k, s in zip(kernel, strides, strict=True)]
    out = [int(random.integers(1, 5)) for _ in range(spatial)]
    fits = [(o - 1) * s + span - a - b for o, s, span, a, b in zip(out, strides, spans, left, right, strict=True)]
    size = [max(n, 1) for n in fits]
    right = [b + n - m for b, n, m in zip(right, fits, size, strict=True)]
    window = {"strides": strides, "dilations": dilations, "padding_l": left, "padding_r": right}
    return {"kernel": tuple(kernel), "size": tuple(size), "out": tuple(out)} | {k: tuple(v) for k, v in window.items()}


def _weighted(random: Random, transposed: bool) -> dict[str, Any]:
    window = _window(random, int(random.integers(1, 4)))
    kernel, size, out = (window.pop(name) for name in ("kernel", "size", "out"))
    groups = int(random.choice([1, 1, 2, 17]))
    ic, oc = (1, 1) if groups == 17 else (_channels(random), _channels(random))
    n = _batch(random)
    src, dst = ((n, groups * ic, *size), (n, groups * oc, *out))
    if transposed:
        src, dst = (n, groups * ic, *out), (n, groups * oc, *size)
    weights = (*([groups] if groups > 1 else []), oc, ic, *kernel)
    dims = {"src": src, "weights": weights, "bias": (groups * oc,), "dst": dst}
    return {"dims": dims, "parameters": {"algorithm": "direct", **window}}


def _inner_product(random: Random) -> dict[str, Any]:
    n, c, *space = _image(random, 0)
    o = _channels(random)
    return {"dims": {"src": (n, c, *space), "weights": (o, c, *space), "bias": (o,), "dst": (n, o)}, "parameters": {}}


def _matmul(random: Random) -> dict[str, Any]:
    m, n, k = (_channels(random) for _ in range(3))
    b = tuple(_size(random) for _ in range(random.integers(0, 3)))
    one = tuple(1 if random.random() < 0.3 else s for s in b)
    dims = {"src": (*b, m, k), "weights": (*one, k, n), "bias": (*[1] * len(b), 1, n), "dst": (*b, m, n)}
    return {"dims": dims, "parameters": {}, "prop_kind": "forward_inference"}


def _pooling(random: Random) -> dict[str, Any]:
    window = _window(random, int(random.integers(1, 4)), pools=True)
    size, out = window.pop("size"), window.pop("out")
    n, c = _batch(random), _channels(random)
    parameters = {"algorithm": str(random.choice(POOLING)), **window}
    return {"dims": {"src": (n, c, *size), "dst": (n, c, *out)}, "parameters": parameters}


def _normalization(random: Random, kind: str) -> dict[str, Any]:
    image = _image(random) if kind != "layer" else (*_image(random)[:-1], _channels(random))
    groups = int(random.choice([g for g in (1, 2, 3, 4) if image[1] % g == 0]))
    statistics = {"batch": image[1:2], "layer": image[:-1], "group": (image[0], groups)}[kind]
    channels = (image[-1] if kind == "layer" else image[1],)
    flags = {"use_scale", "use_shift"} if random.random() < 0.7 else set()
    dims = {"src": image, "dst": image, "mean": statistics, "variance": statistics}
    dims |= {"scale": channels, "shift": channels} if flags else {}
    flags |= {"use_global_stats"} if random.random() < 0.3 else set()
    parameters: dict[str, Any] = {"groups": groups} if kind == "group" else {}
    parameters |= {"epsilon": 1e-3, "flags": frozenset(flags)}
    return {"dims": dims, "parameters": parameters, "positive": frozenset({"variance"})}


def _mapped(random: Random, least: int = 1, **parameters: Any) -> dict[str, Any]:
    image = _image(random, least)
    return {"dims": {"src": image, "dst": image}, "parameters": parameters}


def _lrn(random: Random) -> dict[str, Any]:
    size = int(random.choice([1, 2, 3, 3, 4, 5, 5, 7]))
    algorithm = str(random.choice(LRN))
    return _mapped(random, 2, algorithm=algorithm, local_size=size, alpha=0.3, beta=0.75, k=1.5)


def _eltwise(random: Random) -> dict[str, Any]:
    algorithm = str(random.choice([name for name in ALL_ELTWISE if name != "round"]))
    made = _mapped(random, 0, algorithm=algorithm, alpha=0.5, beta=1.5)
    is_positive = algorithm.removesuffix("_use_dst_for_bwd") in ("sqrt", "log", "pow")
    return made | {"positive": frozenset({"src"} if is_positive else ())}


def _shuffle(random: Random) -> dict[str, Any]:
    image = _image(random)
    axis = int(random.integers(0, len(image)))
    n = max(image[axis], 1)
    group = int(random.choice([g for g in range(1, n + 1) if n % g == 0]))
    return {"dims": {"src": image, "dst": image}, "parameters": {"axis": axis, "group_size": group}}


def _softmax(random: Random) -> dict[str, Any]:
    made = _mapped(random, 0, algorithm=str(random.choice(SOFTMAX)))
    return made | {"parameters": made["parameters"] | {"axis": int(random.integers(0, len(made["dims"]["src"])))}}


def _prelu(random: Random) -> dict[str, Any]:
    image = _image(random)
    weights = [(1, image[1], *[1] * (len(image) - 2)), image, (1,) * len(image)][random.integers(0, 3)]
    return {"dims": {"src": image, "weights": weights, "dst": image}, "parameters": {}}


def _resampling(random: Random) -> dict[str, Any]:
    image = _image(random)
    out = tuple(_size(random, 4, 9) for _ in image[2:])
    factors = tuple(float(o) / n for o, n in zip(out, image[2:], strict=True))
    parameters = {"algorithm": str(random.choice(RESAMPLING)), "factors": factors}
    return {"dims": {"src": image, "dst": (*image[:2], *out)}, "parameters": parameters}


def _reduction(random: Random) -> dict[str, Any]:
    image = tuple(max(n, 1) for n in _image(random))
    out = tuple(1 if random.random() < 0.5 else n for n in image)
    image = (max(image[0], 2), *image[1:])
    out = (1, *out[1:]) if out[1:] == image[1:] else (min(out[0], image[0]), *out[1:])
    parameters = {"algorithm": str(random.choice(REDUCTION)), "p": 2.0, "eps": 0.25}
    return {"dims": {"src": image, "dst": out}, "parameters": parameters, "prop_kind": "forward_inference"}


def _reorder(random: Random) -> dict[str, Any]:
    return _mapped(random) | {"prop_kind": "forward_inference"}


def _concat(random: Random) -> dict[str, Any]:
    image = _image(random)
    axis = int(random.integers(0, len(image)))
    lengths = [_size(random, 16) for _ in range(random.integers(1, 4))]
    dims = {f"src_{i}": (*image[:axis], n, *image[axis + 1 :]) for i, n in enumerate(lengths)}
    dims["dst"] = (*image[:axis], sum(lengths), *image[axis + 1 :])
    return {"dims": dims, "parameters": {"axis": axis}, "prop_kind": "forward_inference"}


def _sum(random: Random) -> dict[str, Any]:
    image = _image(random)
    count = int(random.integers(1, 12))
    dims = {f"src_{i}": image for i in range(count)} | {"dst": image}
    scales = tuple(float(s) for s in random.normal(size=count).astype(np.float32))
    return {"dims": dims, "parameters": {"scales": scales}, "prop_kind": "forward_inference"}


def _binary(random: Random) -> dict[str, Any]:
    image = _image(random, 0)
    other = tuple(1 if random.random() < 0.3 else n for n in image)
    algorithm = str(random.choice([name for name in BINARY if name != "select"]))
    dims = {"src_0": image, "src_1": other, "dst": image}
    made = {"dims": dims, "parameters": {"algorithm": algorithm}, "prop_kind": "forward_inference"}
    return made | {"positive": frozenset({"src_1"})}


_MAKERS: Mapping[str, Callable[[Random], dict[str, Any]]] = {
    "convolution": lambda random: _weighted(random, False),
    "deconvolution": lambda random: _weighted(random, True),
    "inner_product": _inner_product,
    "matmul": _matmul,
    "pooling": _pooling,
    "batch_normalization": lambda random: _normalization(random, "batch"),
    "layer_normalization": lambda random: _normalization(random, "layer"),
    "group_normalization": lambda random: _normalization(random, "group"),
    "lrn": _lrn,
    "eltwise": _eltwise,
    "shuffle": _shuffle,
    "softmax": _softmax,
    "prelu": _prelu,
    "resampling": _resampling,
    "reduction": _reduction,
    "reorder": _reorder,
    "concat": _concat,
    "sum": _sum,
    "binary": _binary,
}

KINDS = tuple(_MAKERS)
"""Every primitive but the recurrent ones."""
