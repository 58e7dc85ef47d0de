"""What tests of the planner plan: prices from a hash of formats, random graphs and plans, plans priced anew."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.graph.costs.estimates import Costs, KernelEstimate
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array, Op, OpGraph, PermuteView, ReshapeView, SubmemoryView, ViewTransform
from inlay.graph.plan import Plan
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.planner.emission import emit_program
from inlay.graph.planner.plan_search import assign_formats
from inlay.graph.planner.problem import make_problem
from inlay.graph.program import Program, Step
from inlay.primitives.attributes import BinaryPostOp
from inlay.primitives.engine import Operation, Parameter
from tests.support.graph_programs import F32 as F32
from tests.support.graph_programs import POINTWISE
from tests.support.graph_programs import RELU as RELU

CONV_1: Mapping[str, Parameter] = POINTWISE
CONV_3: Mapping[str, Parameter] = {**CONV_1, "padding_l": (1, 1), "padding_r": (1, 1)}
POOL: Mapping[str, Parameter] = {**CONV_3, "algorithm": "max", "kernel": (3, 3)}


@dataclass(frozen=True)
class HashedCosts:
    """Any price for anything, the same each time; plain formats are always computed, others mostly."""

    seed: int = 0
    name: str = "hashed"
    isa: str = "avx512_core"
    threads: int = 1
    engine: str = "none"

    def drawn(self, *what: object) -> float:
        return crc32(repr((self.seed, *what)).encode()) / 2**32

    def prepare(self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()) -> None:
        """Nothing to do."""

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        free = [name for name, desc in operation.descs.items() if desc.kind == "any" and "weights" not in name]
        if free:
            settled = {name: self._answer(desc) for name, desc in operation.descs.items() if name in free}
            operation = replace(operation, descs={**operation.descs, **settled})
        what: list[object] = [
            operation.kind,
            sorted((name, str(desc), desc.dims) for name, desc in operation.descs.items()),
        ]
        for post_op in operation.attributes.post_ops:
            src_1 = post_op.src_1 if isinstance(post_op, BinaryPostOp) else None
            what.append(repr(post_op) if src_1 is None else (str(src_1), src_1.dims))
        is_plain = all(desc.kind == "any" or _is_plain(desc) for desc in operation.descs.values())
        if self.drawn("none", what) < 0.15 and not is_plain:
            return None
        return KernelEstimate(operation, "hashed", 1 + self.drawn(what), 1.0, 0, 0)

    def _answer(self, desc: MemoryDesc) -> MemoryDesc:
        tags = (None,) if desc.ndims != 4 else ("acdb", "aBcd16b", None)
        return MemoryDesc(desc.dims, desc.data_type, tags[int(self.drawn("any", desc.dims) * len(tags))])

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        return 0.1 + 0.5 * self.drawn("reorder", str(src), str(dst), src.strides, dst.strides, src.dims)

    def reference(self, op: Op, graph: OpGraph) -> float:
        return 1 + self.drawn("reference", op.kind)


def _is_plain(desc: MemoryDesc) -> bool:
    return desc == MemoryDesc(desc.dims, desc.data_type)


def he(rng: np.random.Generator, *dims: int) -> Array:
    """Random weights that keep the size of what they multiply."""
    found: Array = (rng.standard_normal(dims) * np.sqrt(2 / np.prod(dims[1:]))).astype(np.float32)
    return found


class Drawing:
    """A graph while it is drawn: operations read tensors or their names, and return the name of what they write."""

    def __init__(self, rng: random.Random, batch: int = 1, given: int = 16, size: int = 4) -> None:
        self.rng = rng
        self.numbers = np.random.default_rng(rng.randrange(2**32))
        self.ops: list[Op] = []
        self.tensors = {"x": Tensor("x", (batch, given, size, size), F32)}

    def read(self, one: Tensor | str) -> Tensor:
        return self.tensors[one] if isinstance(one, str) else one

    def op(self, kind: str, sources: Iterable[Tensor | str], dims: tuple[int, ...] | None = None, **more: Any) -> str:
        """Add an operation that reads these and writes a tensor, of the dims of the first source if none are given."""
        names = [self.read(source).name for source in sources]
        arguments = [f"src_{i}" for i in range(len(names))] if kind in ("binary", "concat") else ["src"]
        name, dst = f"{kind}_{len(self.ops)}", f"t{len(self.ops)}"
        self.tensors[dst] = Tensor(dst, dims or self.tensors[names[0]].dims, F32)
        reads = dict(zip(arguments, names, strict=True))
        self.ops.append(Op(name, kind, reads, {"dst": dst}, nodes=(name,), **more))
        return dst

    def conv(self, src: Tensor | str, out: int, size: int = 1) -> str:
        n, c, h, w = self.read(src).dims
        weights = he(self.numbers, out, c, size, size)
        parameters = CONV_1 if size == 1 else CONV_3
        return self.op("convolution", [src], (n, out, h, w), constants={"weights": weights}, parameters=parameters)

    def relu(self, src: Tensor | str) -> str:
        return self.op("eltwise", [src], parameters=RELU)

    def pool(self, src: Tensor | str) -> str:
        return self.op("pooling", [src], parameters=POOL)

    def add(self, one: Tensor | str, other: Tensor | str) -> str:
        return self.op("binary", [one, other], parameters={"algorithm": "add"})

    def scale(self, one: Tensor | str, algorithm: str) -> str:
        factors = self.numbers.standard_normal((1, self.read(one).dims[1], 1, 1)).astype(np.float32)
        return self.op("binary", [one], constants={"src_1": factors}, parameters={"algorithm": algorithm})

    def concat(self, sources: Sequence[Tensor | str]) -> str:
        n, _, h, w = self.read(sources[0]).dims
        channels = sum(self.read(source).dims[1] for source in sources)
        return self.op("concat", sources, (n, channels, h, w), parameters={"axis": 1})

    def view(self, src: Tensor | str, dims: tuple[int, ...], transform: ViewTransform) -> str:
        return self.op("view", [src], dims, transforms=(transform,))

    def turned(self, src: Tensor) -> str:
        """Transposed to channels last, computed on, and back."""
        n, c, h, w = src.dims
        middle = self.view(src, (n, h, w, c), PermuteView((0, 2, 3, 1)))
        if self.rng.random() < 0.5:
            middle = self.op("softmax", [middle], parameters={"algorithm": "accurate", "axis": 3})
        return self.view(middle, src.dims, PermuteView((0, 3, 1, 2)))

    def flattened(self, src: Tensor) -> str:
        n, c, h, w = src.dims
        flat = self.view(src, (n, c, h * w), ReshapeView((n, c, h * w)))
        flat = self.op("eltwise", [flat], parameters={**RELU, "algorithm": "tanh"})
        return self.view(flat, src.dims, ReshapeView(src.dims))

    def halved(self, src: Tensor) -> str:
        n, c, h, w = src.dims
        half = (n, c // 2, h, w)
        return self.view(src, half, SubmemoryView((0, c // 2 * self.rng.randrange(2), 0, 0), half))

    def step(self) -> None:
        """Add a random operation, or none where the random choice does not fit the random tensor."""
        images = [tensor for tensor in self.tensors.values() if len(tensor.dims) == 4]
        src = self.rng.choice(images[-4:])
        alike = [t for t in self.tensors.values() if t.dims == src.dims and t is not src]
        near = [t for t in self.tensors.values() if t.dims[2:] == src.dims[2:] and t.dims[1] <= 64]
        choices = ["conv", "conv", "relu", "pool", "scale", "turned", "flattened", "halved", "concat", "add", "add"]
        match self.rng.choice(choices):
            case "conv":
                self.conv(src, self.rng.choice([16, 32]), self.rng.choice([1, 3]))
            case "scale":
                self.scale(src, self.rng.choice(["add", "mul"]))
            case "concat":
                self.concat(self.rng.choices(near, k=self.rng.randint(2, 3)))
            case "add" if alike:
                self.add(src, self.rng.choice(alike))
            case "halved" if src.dims[1] >= 16:
                self.halved(src)
            case "relu" | "pool" | "turned" | "flattened" as method:
                getattr(self, method)(src)

    def graph(self) -> OpGraph:
        read = {name for op in self.ops for name in op.reads.values()}
        outputs = tuple(name for name in self.tensors if name not in read and name != "x") or (self.ops[-1].name,)
        return OpGraph("drawn", 17, ("x",), outputs, tuple(self.ops), self.tensors)


def drawn_graph(seed: int, steps: int, batch: int = 1, size: int = 4) -> OpGraph:
    """A random graph of some operations on small images of `size` rows and columns."""
    rng = random.Random(seed)
    drawing = Drawing(rng, batch, size=size)
    rng.choice("x")
    drawing.conv("x", 16)
    for _ in range(steps):
        drawing.step()
    return drawing.graph()


def require_useful_reorders(plan: PlannedProgram) -> None:
    """Check that each reorder moves bytes, and changes the format, or else the place, as a copy into a concatenation.

    Formats that place every element alike must share their bytes.
    """
    for step in plan.reorders:
        source, result = (plan.program.buffers[name] for name in (step.reads["src"], step.writes["dst"]))
        assert source.desc is not None
        assert result.desc is not None
        is_alike = source.desc.size == result.desc.size and source.desc.equivalent(result.desc)
        assert step.alternative is None or not is_alike, step.name
        assert (source.base, source.offset) != (result.base, result.offset), step.name
        assert step.ms > 0, step.name
        assert step.nbytes > 0, step.name


def recost(plan: Plan | PlannedProgram, costs: Costs) -> float:
    """The milliseconds of the steps of a plan, each priced anew: `plan.ms` where `costs` are those of the plan."""
    return math.fsum(_price(plan, step, costs) for step in plan.program.steps)


def _price(plan: Plan | PlannedProgram, step: Step, costs: Costs) -> float:
    if step.operation is None or step.impl == "reference":
        return costs.reference(next(op for op in plan.graph.ops if op.name == step.ops[0]), plan.graph)
    if step.kind == "reorder":
        return costs.reorder(step.operation.descs["src"], step.operation.descs["dst"])
    kernel = costs.kernel(step.operation)
    assert kernel is not None, f"{step.name}: {costs.engine} has no {step.kind} in the formats of the plan"
    return kernel.ms


def random_plan(graph: OpGraph, costs: Costs, rng: random.Random) -> Program:
    """A legal program that chooses at random: it computes the same as any other."""
    problem = make_problem(graph, costs)
    choices = [rng.randrange(len(group.candidates)) for group in problem.groups]
    return emit_program(problem, assign_formats(problem, choices))
