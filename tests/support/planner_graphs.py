"""What tests of the planner plan: prices from a hash of formats, random graphs and plans, plans priced anew."""

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.costs.estimates import Costs, KernelEstimate
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array, Op, OpGraph, PermuteView, ReshapeView, SubmemoryView
from inlay.graph.plan import Plan
from inlay.graph.planner.emission import emit_program
from inlay.graph.planner.plan_search import assign_formats
from inlay.graph.planner.problem import make_problem
from inlay.graph.program import Program, Step
from inlay.primitives.attributes import BinaryPostOp
from inlay.primitives.engine import Operation, Parameter
from inlay.primitives.rules import SIGNATURES

F32 = np.dtype(np.float32)
WINDOW = {"algorithm": "direct", "strides": (1, 1), "dilations": (0, 0)}
CONV_1 = {**WINDOW, "padding_l": (0, 0), "padding_r": (0, 0)}
CONV_3 = {**WINDOW, "padding_l": (1, 1), "padding_r": (1, 1)}
POOL = {
    "algorithm": "max",
    "strides": (1, 1),
    "kernel": (3, 3),
    "dilations": (0, 0),
    "padding_l": (1, 1),
    "padding_r": (1, 1),
}
RELU: Mapping[str, Parameter] = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}


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
            what.append(
                (str(post_op.src_1), post_op.src_1.dims) if isinstance(post_op, BinaryPostOp) else repr(post_op)
            )
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
    """A graph while it is drawn; `tensors` are those of 4 axes that operations may read."""

    def __init__(self, rng: random.Random, batch: int = 1, given: int = 16, size: int = 4) -> None:
        self.rng = rng
        self.numbers = np.random.default_rng(rng.randrange(2**32))
        self.ops: list[Op] = []
        self.tensors: dict[str, Tensor] = {}
        self.add_tensor("x", (batch, given, size, size))

    def add_tensor(self, name: str, dims: tuple[int, ...]) -> str:
        self.tensors[name] = Tensor(name, dims, F32)
        return name

    def pick(self) -> Tensor:
        images = [tensor for tensor in self.tensors.values() if len(tensor.dims) == 4]
        return self.rng.choice(images[-4:])

    def op(self, kind: str, reads: Mapping[str, str], dims: tuple[int, ...], **more: object) -> str:
        name = f"{kind}_{len(self.ops)}"
        dst = self.add_tensor(f"t{len(self.ops)}", dims)
        self.ops.append(Op(name, kind, dict(reads), {"dst": dst}, nodes=(name,), **more))  # type: ignore[arg-type]
        return dst

    def conv(self, src: Tensor, out: int, size: int = 1) -> str:
        weights = he(self.numbers, out, src.dims[1], size, size)
        told = CONV_1 if size == 1 else CONV_3
        dims = (src.dims[0], out, *src.dims[2:])
        return self.op("convolution", {"src": src.name}, dims, constants={"weights": weights}, parameters=told)

    def relu(self, src: Tensor) -> str:
        return self.op("eltwise", {"src": src.name}, src.dims, parameters=RELU)

    def pool(self, src: Tensor) -> str:
        return self.op("pooling", {"src": src.name}, src.dims, parameters=POOL)

    def add(self, one: Tensor, other: Tensor) -> str:
        told = {"algorithm": "add"}
        return self.op("binary", {"src_0": one.name, "src_1": other.name}, one.dims, parameters=told)

    def scale(self, one: Tensor, algorithm: str) -> str:
        factors = self.numbers.standard_normal((1, one.dims[1], 1, 1)).astype(np.float32)
        told = {"algorithm": algorithm}
        return self.op("binary", {"src_0": one.name}, one.dims, constants={"src_1": factors}, parameters=told)

    def concat(self, sources: list[Tensor]) -> str:
        first = sources[0].dims
        dims = (first[0], sum(source.dims[1] for source in sources), *first[2:])
        reads = {f"src_{i}": source.name for i, source in enumerate(sources)}
        return self.op("concat", reads, dims, parameters={"axis": 1})

    def turned(self, src: Tensor) -> str:
        """Transposed to channels last, computed on, and back."""
        n, c, h, w = src.dims
        dims = (n, h, w, c)
        middle = self.op("view", {"src": src.name}, dims, transforms=(PermuteView((0, 2, 3, 1)),))
        if self.rng.random() < 0.5:
            middle = self.op("softmax", {"src": middle}, dims, parameters={"algorithm": "accurate", "axis": 3})
        return self.op("view", {"src": middle}, src.dims, transforms=(PermuteView((0, 3, 1, 2)),))

    def flattened(self, src: Tensor) -> str:
        n, c, h, w = src.dims
        flat = self.op("view", {"src": src.name}, (n, c, h * w), transforms=(ReshapeView((n, c, h * w)),))
        flat = self.op("eltwise", {"src": flat}, (n, c, h * w), parameters={**RELU, "algorithm": "tanh"})
        return self.op("view", {"src": flat}, src.dims, transforms=(ReshapeView(src.dims),))

    def halved(self, src: Tensor) -> str:
        n, c, h, w = src.dims
        half = (n, c // 2, h, w)
        return self.op(
            "view",
            {"src": src.name},
            half,
            transforms=(SubmemoryView((0, c // 2 * self.rng.randrange(2), 0, 0), half),),
        )

    def step(self) -> None:
        src = self.pick()
        alike = [t for t in self.tensors.values() if t.dims == src.dims and t is not src]
        near = [t for t in self.tensors.values() if t.dims[2:] == src.dims[2:] and t.dims[1] <= 64]
        choices = ["conv", "conv", "relu", "pool", "scale", "turned", "flattened", "halved", "concat", "add", "add"]
        match self.rng.choice(choices):
            case "conv":
                self.conv(src, self.rng.choice([16, 32]), self.rng.choice([1, 3]))
            case "relu":
                self.relu(src)
            case "pool":
                self.pool(src)
            case "scale":
                self.scale(src, self.rng.choice(["add", "mul"]))
            case "turned":
                self.turned(src)
            case "flattened":
                self.flattened(src)
            case "halved" if src.dims[1] >= 16:
                self.halved(src)
            case "concat":
                self.concat(self.rng.choices(near, k=self.rng.randint(2, 3)))
            case "add" if alike:
                self.add(src, self.rng.choice(alike))

    def graph(self) -> OpGraph:
        read = {name for op in self.ops for name in op.reads.values()}
        outputs = tuple(name for name in self.tensors if name not in read and name != "x") or (self.ops[-1].name,)
        return OpGraph("drawn", 17, ("x",), outputs, tuple(self.ops), self.tensors)


def drawn_graph(seed: int, steps: int, batch: int = 1) -> OpGraph:
    """A random graph of some operations on small images."""
    rng = random.Random(seed)
    drawing = Drawing(rng, batch)
    drawing.conv(drawing.pick(), 16)
    for _ in range(steps):
        drawing.step()
    return drawing.graph()


def is_known(graph: OpGraph) -> bool:
    """Whether every operation is one of the table, or a view."""
    return all(op.kind == "view" or (op.kind, "forward") in SIGNATURES for op in graph.ops)


def recost(plan: Plan, costs: Costs) -> float:
    """What the steps of a plan take together, each priced anew.

    Post-condition: `plan.ms`, up to rounding, where `costs` are those that it was planned with.

    Raises:
        InvalidArguments: the engine has no kernel for a step any more.
    """
    return math.fsum(_price(plan, step, costs) for step in plan.program.steps)


def _price(plan: Plan, step: Step, costs: Costs) -> float:
    ops = {op.name: op for op in plan.graph.ops}
    if step.operation is None or step.impl == "reference":
        return costs.reference(ops[step.ops[0]], plan.graph)
    if step.kind == "reorder":
        return costs.reorder(step.operation.descs["src"], step.operation.descs["dst"])
    kernel = costs.kernel(step.operation)
    if kernel is None:
        raise InvalidArguments(
            f"{step.name}: {costs.engine} has no {step.kind} in the formats of the plan, which was made for "
            f"{plan.engine}: plan again with these costs"
        )
    return kernel.ms


def random_plan(graph: OpGraph, costs: Costs, rng: random.Random) -> Program:
    """A legal program that chooses at random: what it computes is the same as any other's.

    Raises:
        Unimplemented: as `planned`.
    """
    problem = make_problem(graph, costs)
    return emit_program(
        problem, assign_formats(problem, [rng.randrange(len(group.candidates)) for group in problem.groups])
    )
