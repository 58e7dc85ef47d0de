"""Small graphs and programs by hand, with NumPy's answer for each: what sessions are tested with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.graph.network import Node, Tensor
from inlay.graph.op_graph import Array, Op, OpGraph, PermuteView, ReshapeView, SubmemoryView, operation_of
from inlay.graph.program import Buffer, Program, Step
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PostOp, SumPostOp
from inlay.primitives.engine import Operation, Parameter

F32 = np.dtype(np.float32)
RELU: dict[str, Parameter] = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
POINTWISE: dict[str, Parameter] = {
    "algorithm": "direct",
    "strides": (1, 1),
    "dilations": (0, 0),
    "padding_l": (0, 0),
    "padding_r": (0, 0),
}


def drawn(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *dims)).normal(size=dims).astype(F32)


def graph_of(ops: list[Op], dims: Mapping[str, tuple[int, ...]], inputs: str, outputs: str, **dtypes: Any) -> OpGraph:
    """A graph; `dims` of every tensor, types f32 unless said."""
    tensors = {name: Tensor(name, its, np.dtype(dtypes.get(name, F32))) for name, its in dims.items()}
    return OpGraph("by hand", 17, tuple(inputs.split()), tuple(outputs.split()), tuple(ops), tensors)


def conv(name: str, src: str, dst: str, weights: Array, bias: Array | None = None) -> Op:
    constants = {"weights": weights} if bias is None else {"weights": weights, "bias": bias}
    return Op(name, "convolution", {"src": src}, {"dst": dst}, constants, POINTWISE)


def relu(name: str, src: str, dst: str) -> Op:
    return Op(name, "eltwise", {"src": src}, {"dst": dst}, parameters=RELU)


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
        self, name: str, tag: str | MemoryDesc | None = None, *, tensor: str = "", base: str = "", offset: int = 0
    ) -> "Writing":
        tensor = tensor or name
        desc = tag if isinstance(tag, MemoryDesc) else MemoryDesc(self.graph.tensors[tensor].dims, "f32", tag)
        self.buffers[name] = Buffer(name, tensor, desc, base or name, offset)
        return self

    def step(self, name: str, post_ops: tuple[PostOp, ...] = (), **arguments: str) -> "Writing":
        """The operation `name` of the graph; `arguments` say a buffer where it is not called as the tensor."""
        op = next(op for op in self.graph.ops if op.name == name)
        reads, writes = ({a: arguments.get(a, t) for a, t in names.items()} for names in (op.reads, op.writes))
        extra = {a: b for a, b in arguments.items() if a not in {*reads, *writes}}
        descs = {a: self.desc(b) for a, b in {**reads, **writes}.items()}
        operation = None if op.kind == "reference" else operation_of(op, descs, post_ops)
        step = Step(name, op.kind, {**reads, **extra}, writes, operation, op.constants, op.node, (name,))
        self.steps.append(step)
        return self

    def reorder(self, src: str, dst: str) -> "Writing":
        operation = Operation("reorder", "forward_inference", {"src": self.desc(src), "dst": self.desc(dst)})
        self.steps.append(Step(f"{src} to {dst}", "reorder", {"src": src}, {"dst": dst}, operation))
        return self

    def desc(self, name: str) -> MemoryDesc:
        desc = self.buffers[name].desc
        assert desc is not None
        return desc

    def program(self, **ends: str) -> Program:
        """`ends` say a buffer for an input or output that is not called as its tensor."""
        inputs, outputs = (
            {name: ends.get(name, name) for name in names} for names in (self.graph.inputs, self.graph.outputs)
        )
        return Program(tuple(self.steps), self.buffers, inputs, outputs)


@dataclass
class Case:
    """A program, and what it computes, tensor by tensor."""

    graph: OpGraph
    program: Program
    expected: Callable[[Mapping[str, Array]], dict[str, Array]]

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        return {name: drawn(*self.graph.tensors[name].dims, seed=seed) for name in self.graph.inputs}


def fused_sum() -> Case:
    """relu(conv(x) + shortcut), the sum in place of the shortcut, which a convolution wrote."""
    w1, w2 = drawn(8, 4, 1, 1), drawn(8, 4, 1, 1, seed=1)
    ops = [
        conv("short", "x", "s", w1),
        conv("main", "x", "m", w2),
        Op("add", "binary", {"src_0": "m", "src_1": "s"}, {"dst": "a"}, parameters={"algorithm": "add"}),
        relu("relu", "a", "y"),
    ]
    dims = {"x": (1, 4, 5, 5), **dict.fromkeys("smay", (1, 8, 5, 5))}
    graph = graph_of(ops, dims, "x", "y")
    writing = Writing(graph).buffer("x").buffer("s").buffer("y", base="s").step("short")
    writing.step("main", (SumPostOp(), EltwisePostOp("relu")), dst="y", sum="s")

    def expected(given: Mapping[str, Array]) -> dict[str, Array]:
        s = pointwise(given["x"], w1)
        return {"x": given["x"], "s": s, "y": np.maximum(s + pointwise(given["x"], w2), 0)}

    return Case(graph, writing.program(), expected)


def zero_copy_concat(tag: str = "nchw") -> Case:
    """Two convolutions write into the slices of what a third reads; one slice is read alone too."""
    w1, w2, w3 = drawn(16, 4, 1, 1), drawn(32, 4, 1, 1), drawn(3, 48, 1, 1)
    ops = [
        conv("one", "x", "a", w1),
        conv("two", "x", "b", w2),
        Op("join", "concat", {"src_0": "a", "src_1": "b"}, {"dst": "c"}, parameters={"axis": 1}),
        relu("alone", "b", "z"),
        conv("three", "c", "y", w3),
    ]
    wide = {"a": (1, 16, 3, 3), "b": (1, 32, 3, 3), "c": (1, 48, 3, 3), "z": (1, 32, 3, 3)}
    graph = graph_of(ops, {"x": (1, 4, 3, 3), **wide, "y": (1, 3, 3, 3)}, "x", "y z")
    writing = Writing(graph).buffer("x").buffer("c", tag).buffer("y").buffer("z").buffer("z16", tag, tensor="z")
    writing.buffer("a", tag, base="c").buffer("b", tag, base="c", offset=16 * 9 * 4)
    writing.step("one").step("two").step("alone", dst="z16").reorder("z16", "z").step("three")

    def expected(given: Mapping[str, Array]) -> dict[str, Array]:
        a, b = pointwise(given["x"], w1), pointwise(given["x"], w2)
        c = np.concatenate((a, b), 1)
        found = {"x": given["x"], "a": a, "b": b, "c": c, "z": np.maximum(b, 0)}
        return {**found, "y": pointwise(c.astype(F32), w3)}

    return Case(graph, writing.program(), expected)


def slices_of_nhwc() -> Case:
    """Reorders into slices of channels in nhwc, which lie between one another."""
    ops = [
        relu("one", "x", "a"),
        relu("two", "w", "b"),
        Op("join", "concat", {"src_0": "a", "src_1": "b"}, {"dst": "c"}, parameters={"axis": 1}),
        relu("three", "c", "y"),
    ]
    dims = {"x": (2, 3, 4, 5), "w": (2, 5, 4, 5), "a": (2, 3, 4, 5), "b": (2, 5, 4, 5)}
    graph = graph_of(ops, {**dims, "c": (2, 8, 4, 5), "y": (2, 8, 4, 5)}, "x w", "y")
    whole = MemoryDesc((2, 8, 4, 5), "f32", "nhwc")
    writing = (
        Writing(graph)
        .buffer("x")
        .buffer("w")
        .buffer("a")
        .buffer("b")
        .buffer("c", whole)
        .buffer("y:nhwc", "nhwc", tensor="y")
    )
    writing.buffer("a:slice", whole.submemory((2, 3, 4, 5), (0, 0, 0, 0)), tensor="a", base="c")
    writing.buffer("b:slice", whole.submemory((2, 5, 4, 5), (0, 3, 0, 0)), tensor="b", base="c").buffer("y")
    writing.step("one").step("two").reorder("a", "a:slice").reorder("b", "b:slice")
    writing.step("three", dst="y:nhwc").reorder("y:nhwc", "y")

    def expected(given: Mapping[str, Array]) -> dict[str, Array]:
        a, b = np.maximum(given["x"], 0), np.maximum(given["w"], 0)
        c = np.concatenate((a, b), 1)
        return {**given, "a": a, "b": b, "c": c, "y": c}

    return Case(graph, writing.program(), expected)


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
    graph = graph_of(ops, dims, "x", "y")
    plain = MemoryDesc(split, "f32")
    writing = Writing(graph).buffer("x").buffer("h", plain, base="x").buffer("s")
    writing.buffer("q", plain.rename_axes((0, 2, 1, 3)), base="h").buffer(
        "k", plain.rename_axes((0, 2, 3, 1)), base="h"
    )
    writing.buffer("y:part", writing.desc("s").submemory((2, 1, 6, 6), (0, 1, 0, 0)), tensor="y", base="s").buffer("y")
    writing.step("scores").reorder("y:part", "y")

    def expected(given: Mapping[str, Array]) -> dict[str, Array]:
        h = given["x"].reshape(split)
        q, k = h.transpose(0, 2, 1, 3), h.transpose(0, 2, 3, 1)
        s = q.astype(float) @ k
        return {"x": given["x"], "h": h, "q": q, "k": k, "s": s, "y": s[:, 1:2]}

    return Case(graph, writing.program(), expected)


def blocked() -> Case:
    """17 channels in blocks of 16, so that memory has padding; a post-operation adds another tensor."""
    w = drawn(17, 17, 1, 1)
    ops = [
        conv("conv", "x", "m", w),
        Op("add", "binary", {"src_0": "m", "src_1": "r"}, {"dst": "y"}, parameters={"algorithm": "add"}),
    ]
    dims = {**dict.fromkeys("xmy", (2, 17, 3, 3)), "r": (1, 17, 1, 1)}
    graph = graph_of(ops, dims, "x r", "y")
    writing = Writing(graph).buffer("x").buffer("r").buffer("x16", "nChw16c", tensor="x").buffer("y")
    writing.buffer("y16", "nChw16c", tensor="y")
    writing.reorder("x", "x16").step(
        "conv", (BinaryPostOp("add", writing.desc("r")),), src="x16", dst="y16", post_op_0_src_1="r"
    )
    writing.reorder("y16", "y")

    def expected(given: Mapping[str, Array]) -> dict[str, Array]:
        return {**given, "y": pointwise(given["x"], w) + given["r"]}

    return Case(graph, writing.program(), expected)


def with_reference() -> Case:
    """A node that only NumPy computes, between two primitives, with a tensor of truth values and a constant."""
    where = Node("where", "Where", ("t", "a", "zero"), ("b",))
    ops = [
        relu("relu", "x", "a"),
        Op(
            "truth",
            "reference",
            {"src_0": "a"},
            {"dst_0": "t"},
            {"half": np.array(0.5, F32)},
            node=Node("truth", "Greater", ("a", "half"), ("t",)),
        ),
        Op("where", "reference", {"src_0": "t", "src_1": "a"}, {"dst_0": "b"}, {"zero": np.zeros(1, F32)}, node=where),
        relu("last", "b", "y"),
    ]
    graph = graph_of(ops, dict.fromkeys("xatby", (2, 3)), "x", "y", t=np.bool_)
    writing = Writing(graph).buffer("x").buffer("a").buffer("b").buffer("y")
    writing.buffers["t"] = Buffer("t", "t", None, "t")
    writing.step("relu")
    for op in ops[1:3]:
        writing.steps.append(Step(op.name, op.kind, op.reads, op.writes, None, op.constants, op.node, (op.name,)))
    writing.step("last")

    def expected(given: Mapping[str, Array]) -> dict[str, Array]:
        a = np.maximum(given["x"], 0)
        b = np.where(a > 0.5, a, 0)
        return {**given, "a": a, "t": a > 0.5, "b": b, "y": b}

    return Case(graph, writing.program(), expected)


CASES: dict[str, Callable[[], Case]] = {
    "a sum in place": fused_sum,
    "a concatenation without a copy": zero_copy_concat,
    "a concatenation without a copy, in blocks": lambda: zero_copy_concat("nChw16c"),
    "reorders into slices of nhwc": slices_of_nhwc,
    "views with strides": views,
    "blocks with padding": blocked,
    "nodes that NumPy computes": with_reference,
}
