"""Small graphs and programs by hand, with NumPy's answer for each: what sessions are tested with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.graph.network import Node, Tensor
from inlay.graph.op_graph import Array, Op, OpGraph, PermuteView, ReshapeView, SubmemoryView, operation_of
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.program import Buffer, Program, Step
from inlay.graph.runtime.plain import plain_program
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PostOp, SumPostOp
from inlay.primitives.engine import Operation, Parameter
from tests.support.interpreter import viewed

F32 = np.dtype(np.float32)
RELU: Mapping[str, Parameter] = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
POINTWISE: Mapping[str, Parameter] = {
    "algorithm": "direct",
    "strides": (1, 1),
    **dict.fromkeys(("dilations", "padding_l", "padding_r"), (0, 0)),
}


def drawn(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *dims)).normal(size=dims).astype(F32)


def graph_of(ops: list[Op], dims: Mapping[str, tuple[int, ...]], inputs: str, outputs: str, **dtypes: Any) -> OpGraph:
    """A graph; `dims` of every tensor, types f32 unless said."""
    tensors = {name: Tensor(name, its, np.dtype(dtypes.get(name, F32))) for name, its in dims.items()}
    return OpGraph("by hand", 17, tuple(inputs.split()), tuple(outputs.split()), tuple(ops), tensors)


def plain_plan(graph: OpGraph) -> PlannedProgram:
    """A plan that chose nothing: every step in plain formats."""
    return PlannedProgram(graph, plain_program(graph), 0.0, 0.0, "none", 0, "none", "none", 1, "", {}, ())


def require_equal(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for name, array in found.items():
        assert array.shape == expected[name].shape, name
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5, err_msg=name)


def conv(name: str, src: str, dst: str, weights: Array) -> Op:
    return Op(name, "convolution", {"src": src}, {"dst": dst}, {"weights": weights}, POINTWISE)


def relu(name: str, src: str, dst: str) -> Op:
    return Op(name, "eltwise", {"src": src}, {"dst": dst}, parameters=RELU)


def add(one: str, other: str, dst: str) -> Op:
    return Op("add", "binary", {"src_0": one, "src_1": other}, {"dst": dst}, parameters={"algorithm": "add"})


def join(one: str, other: str, dst: str, axis: int = 1) -> Op:
    return Op("join", "concat", {"src_0": one, "src_1": other}, {"dst": dst}, parameters={"axis": axis})


def pointwise(x: Array, weights: Array) -> Array:
    """A convolution of windows of one element, in f64."""
    summed: Array = np.einsum("nchw,oc->nohw", x.astype(float), weights[:, :, 0, 0].astype(float))
    return summed


@dataclass
class Writing:
    """A program as it is written down."""

    graph: OpGraph
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def buffer(
        self, names: str, tag: str | MemoryDesc | None = None, *, tensor: str = "", base: str = "", offset: int = 0
    ) -> "Writing":
        """Add buffers of these names."""
        for name in names.split():
            dims = self.graph.tensors[tensor or name].dims
            desc = tag if isinstance(tag, MemoryDesc) else MemoryDesc(dims, "f32", tag)
            self.buffers[name] = Buffer(name, tensor or name, desc, base or name, offset)
        return self

    def step(self, names: str, post_ops: tuple[PostOp, ...] = (), **arguments: str) -> "Writing":
        """The operations of these names; `arguments` say a buffer where it is not called as the tensor."""
        for name in names.split():
            op = next(op for op in self.graph.ops if op.name == name)
            reads, writes = ({a: arguments.get(a, t) for a, t in which.items()} for which in (op.reads, op.writes))
            extra = {a: b for a, b in arguments.items() if a not in {*reads, *writes}}
            operation = None
            if op.kind != "reference":
                operation = operation_of(op, {a: self.desc(b) for a, b in {**reads, **writes}.items()}, post_ops)
            self.steps.append(
                Step(name, op.kind, {**reads, **extra}, writes, operation, op.constants, op.node, (name,))
            )
        return self

    def reorder(self, src: str, dst: str) -> "Writing":
        operation = Operation("reorder", "forward_inference", {"src": self.desc(src), "dst": self.desc(dst)})
        self.steps.append(Step(f"{src} to {dst}", "reorder", {"src": src}, {"dst": dst}, operation))
        return self

    def desc(self, name: str) -> MemoryDesc:
        desc = self.buffers[name].desc
        assert desc is not None
        return desc

    def program(self) -> Program:
        inputs, outputs = ({name: name for name in names} for names in (self.graph.inputs, self.graph.outputs))
        return Program(tuple(self.steps), self.buffers, inputs, outputs)

    def case(self) -> "Case":
        return Case(self.graph, self.program())


@dataclass
class Case:
    """A program, and what it computes, tensor by tensor."""

    graph: OpGraph
    program: Program

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        return {name: drawn(*self.graph.tensors[name].dims, seed=seed) for name in self.graph.inputs}

    def expected(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Every tensor of the graph, by NumPy."""
        found = dict(inputs)
        for op in self.graph.ops:
            compute = NUMPY[op.node.operator if op.node else op.kind]
            (name,) = op.writes.values()
            read = {argument: found[tensor] for argument, tensor in op.reads.items()}
            found[name] = compute(op, *{**read, **op.constants}.values())
        return found


NUMPY: Mapping[str, Callable[..., Array]] = {
    "convolution": lambda op, x, weights: pointwise(x, weights),
    "eltwise": lambda op, x: np.maximum(x, 0),
    "binary": lambda op, x, y: x + y,
    "matmul": lambda op, x, y: x.astype(float) @ y,
    "concat": lambda op, *arrays: np.concatenate(arrays, 1),
    "view": viewed,
    "Greater": lambda op, x, y: x > y,
    "Where": lambda op, *arrays: np.asarray(np.where(*arrays)),
}
"""What NumPy computes for the operations of the cases."""


def fused_sum() -> Case:
    """relu(conv(x) + shortcut), the sum in place of the shortcut, which a convolution wrote."""
    convolutions = [conv("short", "x", "s", drawn(8, 4, 1, 1)), conv("main", "x", "m", drawn(8, 4, 1, 1, seed=1))]
    dims = {"x": (1, 4, 5, 5), **dict.fromkeys("smay", (1, 8, 5, 5))}
    writing = Writing(graph_of([*convolutions, add("m", "s", "a"), relu("relu", "a", "y")], dims, "x", "y"))
    writing.buffer("x s").buffer("y", base="s").step("short")
    return writing.step("main", (SumPostOp(), EltwisePostOp("relu")), dst="y", sum="s").case()


def zero_copy_concat(tag: str = "nchw") -> Case:
    """Two convolutions write into the slices of what a third reads; one slice is read alone too."""
    first, second = conv("one", "x", "a", drawn(16, 4, 1, 1)), conv("two", "x", "b", drawn(32, 4, 1, 1))
    ops = [first, second, join("a", "b", "c"), relu("alone", "b", "z"), conv("three", "c", "y", drawn(3, 48, 1, 1))]
    channels = {"x": 4, "a": 16, "b": 32, "c": 48, "z": 32, "y": 3}
    writing = Writing(graph_of(ops, {name: (1, count, 3, 3) for name, count in channels.items()}, "x", "y z"))
    writing.buffer("x").buffer("c", tag).buffer("y z").buffer("z16", tag, tensor="z")
    writing.buffer("a", tag, base="c").buffer("b", tag, base="c", offset=16 * 9 * 4)
    return writing.step("one two").step("alone", dst="z16").reorder("z16", "z").step("three").case()


def slices_of_nhwc() -> Case:
    """Reorders into slices of channels in nhwc, which lie between one another."""
    ops = [relu("one", "x", "a"), relu("two", "w", "b"), join("a", "b", "c"), relu("three", "c", "y")]
    few, more, whole = (2, 3, 4, 5), (2, 5, 4, 5), MemoryDesc((2, 8, 4, 5), "f32", "nhwc")
    dims = {"x": few, "w": more, "a": few, "b": more, "c": whole.dims, "y": whole.dims}
    writing = Writing(graph_of(ops, dims, "x w", "y"))
    writing.buffer("x w a b").buffer("c", whole).buffer("y:nhwc", "nhwc", tensor="y").buffer("y")
    writing.buffer("a:slice", whole.submemory(few, (0, 0, 0, 0)), tensor="a", base="c")
    writing.buffer("b:slice", whole.submemory(more, (0, 3, 0, 0)), tensor="b", base="c")
    writing.step("one two").reorder("a", "a:slice").reorder("b", "b:slice")
    return writing.step("three", dst="y:nhwc").reorder("y:nhwc", "y").case()


def views() -> Case:
    """Scores of an attention: a head is a part of a row, permuted, and nothing is copied."""
    split = (2, 6, 3, 4)
    ops = [
        Op("heads", "view", {"src": "x"}, {"dst": "h"}, transforms=(ReshapeView(split),)),
        Op("turn", "view", {"src": "h"}, {"dst": "q"}, transforms=(PermuteView((0, 2, 1, 3)),)),
        Op("turn k", "view", {"src": "h"}, {"dst": "k"}, transforms=(PermuteView((0, 2, 3, 1)),)),
        Op("scores", "matmul", {"src": "q", "weights": "k"}, {"dst": "s"}),
        Op("part", "view", {"src": "s"}, {"dst": "y"}, transforms=(SubmemoryView((0, 1, 0, 0), (2, 1, 6, 6)),)),
    ]
    dims = {"x": (2, 6, 12), "h": split, "q": (2, 3, 6, 4), "k": (2, 3, 4, 6), "s": (2, 3, 6, 6), "y": (2, 1, 6, 6)}
    writing, plain = Writing(graph_of(ops, dims, "x", "y")), MemoryDesc(split, "f32")
    writing.buffer("x").buffer("h", plain, base="x").buffer("s")
    for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1))):
        writing.buffer(name, plain.rename_axes(perm), base="h")
    part = writing.desc("s").submemory((2, 1, 6, 6), (0, 1, 0, 0))
    return writing.buffer("y:part", part, tensor="y", base="s").buffer("y").step("scores").reorder("y:part", "y").case()


def blocked() -> Case:
    """17 channels in blocks of 16, so that memory has padding; a post-operation adds another tensor."""
    dims = {**dict.fromkeys("xmy", (2, 17, 3, 3)), "r": (1, 17, 1, 1)}
    writing = Writing(graph_of([conv("conv", "x", "m", drawn(17, 17, 1, 1)), add("m", "r", "y")], dims, "x r", "y"))
    writing.buffer("x r").buffer("x16", "nChw16c", tensor="x").buffer("y").buffer("y16", "nChw16c", tensor="y")
    added = (BinaryPostOp("add", writing.desc("r")),)
    writing.reorder("x", "x16").step("conv", added, src="x16", dst="y16", post_op_0_src_1="r")
    return writing.reorder("y16", "y").case()


def with_reference() -> Case:
    """A node that only NumPy computes, between two primitives, with a tensor of truth values and a constant."""
    greater, where = Node("truth", "Greater", ("a", "half"), ("t",)), Node("where", "Where", ("t", "a", "zero"), ("b",))
    half, zero = {"half": np.array(0.5, F32)}, {"zero": np.zeros(1, F32)}
    ops = [
        relu("relu", "x", "a"),
        Op("truth", "reference", {"src_0": "a"}, {"dst_0": "t"}, half, node=greater),
        Op("where", "reference", {"src_0": "t", "src_1": "a"}, {"dst_0": "b"}, zero, node=where),
        relu("last", "b", "y"),
    ]
    writing = Writing(graph_of(ops, dict.fromkeys("xatby", (2, 3)), "x", "y", t=np.bool_)).buffer("x a b y")
    writing.buffers["t"] = Buffer("t", "t", None, "t")
    return writing.step("relu truth where last").case()


CASES: dict[str, Callable[[], Case]] = {
    "a sum in place": fused_sum,
    "a concatenation without a copy": zero_copy_concat,
    "a concatenation without a copy, in blocks": lambda: zero_copy_concat("nChw16c"),
    "reorders into slices of nhwc": slices_of_nhwc,
    "views with strides": views,
    "blocks with padding": blocked,
    "nodes that NumPy computes": with_reference,
}
