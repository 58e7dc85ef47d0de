"""Lowering rules of Where as exporters write it in attention: guards against NaN, and constant masks.

    Where(IsNaN(p), 0, p)     PyTorch's guard of p = Softmax(...) against rows whose keys are all masked
    Where(mask, x, c)         a constant mask of scores x, with a number c such as -inf

For finite x and p, the first is p itself, and the second is sums and products. So these operations have an exact form
(`Op.exact`), and value ranges or guards prove that runs do not need it. If a constant mask has one value only, Where is
a view of one branch.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite, isnan

import numpy as np

from inlay.graph.lowering.broadcasting import emit_binary, with_leading_axes
from inlay.graph.lowering.context import F32, LoweringContext, Operand, UnsupportedNode, require
from inlay.graph.network import Node, Tensor
from inlay.graph.op_graph import Array, Op, OpGraph


def where(context: LoweringContext) -> Operand:
    """Lower Where if its condition is the same for all elements, guards a softmax against NaN, or masks a number."""
    condition, first, second = context.node.inputs
    mask = context.network.constants.get(condition)
    if mask is not None and (mask.all() or not mask.any()):
        return _branch(context, 1 if mask.all() else 2)
    for src, other, is_kept in ((first, second, True), (second, first, False)):
        number = context.network.constants.get(other)
        if number is None or number.size != 1 or src in context.network.constants:
            continue
        if mask is not None:
            return _mask_elements(context, src, mask if is_kept else ~mask, float(number.reshape(-1)[0]))
        if not is_kept and _is_nan_of_softmax(context, condition, src):
            return _guard_of_nan(context, src)
    raise UnsupportedNode("its condition is computed" if mask is None else "it selects elements of both inputs")


def _branch(context: LoweringContext, index: int) -> Operand:
    """Return input `index`, broadcast to the dims of the result."""
    dims = context.output().dims
    src = with_leading_axes(context, context.view_source(index), len(dims))
    return context.broadcast(str(src), dims)


def _is_nan_of_softmax(context: LoweringContext, condition: str, src: str) -> bool:
    """Return whether a condition is IsNaN of `src`, and `src` is the result of a softmax."""
    test, softmax = context.writer(condition), context.writer(src)
    is_test = test is not None and test.node is not None and test.node.operator == "IsNaN"
    is_test = is_test and test is not None and tuple(test.reads.values()) == (src,)
    return is_test and softmax is not None and softmax.kind == "softmax" and context.dtype(src) == F32


def _guard_of_nan(context: LoweringContext, src: str) -> str:
    """Emit a view of `src`, and IsNaN and Where as its exact form."""
    require(context.output().dims == context.dims(src), "its branches are broadcast")
    result, node = context.alias(src), context.node
    flags = f"{node.outputs[0]}:nan"
    test = Op(
        f"{node.name}:nan",
        "reference",
        {"src_0": src},
        {"dst_0": flags},
        node=Node(f"{node.name}:nan", "IsNaN", (src,), (flags,)),
    )
    choice = replace(node, inputs=(flags, *node.inputs[1:]))
    _set_exact(context, {flags: Tensor(flags, context.dims(src), np.dtype(bool))}, (test,), choice)
    return result


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
    constants = {name: context.network.constants[name] for name in node.inputs if name in context.network.constants}
    reads = [name for name in node.inputs if name not in constants]
    last = Op(
        context.ops[-1].name,
        "reference",
        {f"src_{index}": name for index, name in enumerate(reads)},
        {"dst_0": node.outputs[0]},
        constants,
        node=node,
        nodes=(node.name,),
        why="elements may be NaN or infinite",
    )
    sources = tuple(name for name in reads if name not in tensors)
    form = OpGraph(node.name, context.opset, sources, node.outputs, (*before, last), tensors)
    context.ops[-1] = replace(context.ops[-1], exact=form)


SELECTION: Mapping[str, Callable[[LoweringContext], Operand]] = {"Where": where}
"""Rule of each operator."""
