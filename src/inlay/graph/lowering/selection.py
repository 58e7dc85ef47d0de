"""Lowering rules of Where as exporters write it in attention: guards against NaN, and constant masks.

    Where(IsNaN(p), 0, p)     PyTorch's guard of p = Softmax(...) against rows whose keys are all masked
    Where(Equal(ReduceMax(mask), -inf), 0, p)   the same rows, as ONNX defines the result of its operator Attention
    Where(mask, x, c)         a constant mask of scores x, with a number c such as -inf

For finite x and p, the first is p itself, and the second is sums and products. So these operations have an exact form
(`Op.exact`), and value ranges or guards prove that runs do not need it. If a constant mask has one value only, Where is
a view of one branch.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite, isnan

import numpy as np

from inlay.graph.lowering.broadcasting import emit_binary
from inlay.graph.lowering.context import F32, LoweringContext, Operand, UnsupportedNode, require
from inlay.graph.network import Node, Tensor
from inlay.graph.op_graph import Array, Op, OpGraph


def where(context: LoweringContext) -> Operand:
    """Lower Where if its condition is the same for all elements, guards a softmax against NaN, or masks a number."""
    condition, first, second = context.node.inputs
    mask = context.network.constants.get(condition)
    if mask is not None and (mask.all() or not mask.any()):
        return context.broadcast(context.view_source(1 if mask.all() else 2), context.output().dims)
    for src, other, is_kept in ((first, second, True), (second, first, False)):
        number = context.network.constants.get(other)
        if number is None or number.size != 1 or src in context.network.constants:
            continue
        if mask is not None:
            return _mask_elements(context, src, mask if is_kept else ~mask, float(number.reshape(-1)[0]))
        if not is_kept and _is_nan_of_softmax(context, condition, src):
            return _guard(context, src, (Node("nan", "IsNaN", (src,), (condition,)),))
        if not is_kept and (tests := _masked_rows(context, condition, src)):
            return _guard(context, src, tests)
    raise UnsupportedNode("its condition is computed" if mask is None else "it selects elements of both inputs")


def _is_nan_of_softmax(context: LoweringContext, condition: str, src: str) -> bool:
    """Return whether a condition is IsNaN of `src`, and `src` is the result of a softmax."""
    test = context.writer(condition)
    is_test = test is not None and test.node is not None and test.node.operator == "IsNaN"
    is_test = is_test and test is not None and tuple(test.reads.values()) == (src,)
    return is_test and _is_softmax(context, src)


def _is_softmax(context: LoweringContext, src: str) -> bool:
    """Return whether a tensor is the result of a softmax in float32, or a view of it."""
    softmax = context.writer(src)
    while softmax is not None and softmax.kind == "view":
        softmax = context.writer(softmax.reads["src"])
    return softmax is not None and softmax.kind == "softmax" and context.dtype(src) == F32


def _masked_rows(context: LoweringContext, condition: str, src: str) -> tuple[Node, ...]:
    """Return the nodes of a condition that is true in rows of a mask that are minus infinity, if `src` is NaN there.

    `src` is the softmax of a sum with that mask. The result is empty for any other condition or `src`.
    """
    constants, producers = context.network.constants, {name: n for n in context.network.nodes for name in n.outputs}
    test, softmax = producers.get(condition), producers.get(src)
    greatest = None if test is None or test.operator != "Equal" else producers.get(test.inputs[0])
    if test is None or softmax is None or greatest is None or not _is_softmax(context, src):
        return ()
    axes = constants.get(greatest.inputs[1]) if greatest.operator == "ReduceMax" and len(greatest.inputs) > 1 else None
    least = constants.get(test.inputs[1])
    is_test = axes is not None and axes.tolist() == [-1] and greatest.attributes.get("keepdims", 1)
    if not is_test or least is None or not np.isneginf(least).all() or softmax.attributes.get("axis", -1) != -1:
        return ()
    total = producers.get(_row_source(context, producers, softmax.inputs[0]))
    is_sum = total is not None and total.operator == "Add"
    masks = [_row_source(context, producers, name) for name in total.inputs] if is_sum and total is not None else []
    return (greatest, test) if greatest.inputs[0] in masks else ()


def _row_source(context: LoweringContext, producers: Mapping[str, Node], name: str) -> str:
    """Return the tensor whose rows along the last axis a tensor has, perhaps repeated, and no others."""
    tensors = context.network.tensors
    while (node := producers.get(name)) is not None and node.operator in ("Reshape", "Expand"):
        if tensors[node.inputs[0]].dims[-1:] != tensors[name].dims[-1:]:
            break
        name = node.inputs[0]
    return name


def _guard(context: LoweringContext, src: str, tests: tuple[Node, ...]) -> str:
    """Emit a view of `src`, whose exact form is copies of the nodes `tests`, which compute a condition, and Where."""
    require(context.output().dims == context.dims(src), "its branches are broadcast")
    result, node = context.alias(src), context.node
    names = {test.outputs[0]: f"{node.outputs[0]}:test{index}" for index, test in enumerate(tests)}
    tensors = {names[name]: replace(context.network.tensors[name], name=names[name]) for name in names}
    copies = [_renamed(node.name, test, names) for test in tests]
    ops = tuple(_reference(context, copy) for copy in copies)
    _set_exact(context, tensors, ops, _renamed(node.name, node, names))
    return result


def _renamed(owner: str, node: Node, names: Mapping[str, str]) -> Node:
    """Return a copy of a node for an exact form of the node `owner`, with some tensors renamed."""
    inputs, outputs = (tuple(names.get(name, name) for name in side) for side in (node.inputs, node.outputs))
    name = node.name if node.name == owner else f"{owner}:{node.name}"
    return replace(node, name=name, inputs=inputs, outputs=outputs)


def _mask_elements(context: LoweringContext, src: str, mask: Array, number: float) -> Operand:
    """Emit sums and products that equal `src` where `mask` is true, and a number elsewhere; for finite elements.

    Negative zero is the number whose sum with any other changes no bit of it.
    """
    dims = context.output().dims
    require(context.dtype(src) == F32 and context.dims(src) == dims, "its branches are broadcast, or not float32")
    require(not isnan(number), "it writes NaN")
    operand: Operand = context.operand(context.node.inputs.index(src))
    if isfinite(number):
        operand = emit_binary(context, "mul", operand, mask.astype(np.float32), dims)
    added = np.where(mask, np.float32(-0.0), np.float32(number))
    result = emit_binary(context, "add", operand, added, dims)
    require(context.ops[-1].kind == "binary", "its mask is broadcast along axes between others")
    _set_exact(context, {}, (), context.node)
    return result


def _set_exact(context: LoweringContext, tensors: Mapping[str, Tensor], before: tuple[Op, ...], node: Node) -> None:
    """Give the last emitted operation an exact form: the references `before`, and then one that computes `node`."""
    last = replace(_reference(context, node), name=context.ops[-1].name, nodes=(node.name,))
    ops = (*before, last)
    sources = {name: None for op in ops for name in op.reads.values() if name not in tensors}
    form = OpGraph(node.name, context.opset, tuple(sources), node.outputs, ops, tensors)
    context.ops[-1] = replace(context.ops[-1], exact=form)


def _reference(context: LoweringContext, node: Node) -> Op:
    """Return the reference operation that computes a node of one result."""
    constants = {name: context.network.constants[name] for name in node.inputs if name in context.network.constants}
    reads = [name for name in node.inputs if name not in constants]
    return Op(
        node.name,
        "reference",
        {f"src_{index}": name for index, name in enumerate(reads)},
        {"dst_0": node.outputs[0]},
        constants,
        node=node,
        why="elements may be NaN or infinite",
    )


SELECTION: Mapping[str, Callable[[LoweringContext], Operand]] = {"Where": where}
"""Rule of each operator."""
