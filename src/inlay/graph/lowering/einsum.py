"""Lowering rule of Einsum: a permutation of axes, or a matrix product between permutations.

The labels of two terms are sorted by where they occur:

    batch        in both terms and in the result
    contracted   in both terms only: the sum is over them
    rows         in the first term and in the result
    columns      in the second term and in the result

    bthd, bshd -> bhts      batch b, h      contracted d      rows t      columns s

Then the result is a product of stacks of matrices, (batch, rows, contracted) by (batch, contracted, columns). If there
is only a batch, it is a product of elements.

Source: ONNX, "Operators": Einsum.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod

from inlay.graph.lowering.broadcasting import emit_binary
from inlay.graph.lowering.context import LoweringContext, Operand, require
from inlay.layout import Dims

_ELLIPSIS = "..."
_FIRST_HIDDEN = 0x100
"""Code point of the label of the last axis that an ellipsis stands for; letters have smaller ones."""
_MOST_BATCH_AXES = 2
"""Number of axes up to which a batch keeps its axes; more are merged."""


def einsum(context: LoweringContext) -> Operand:
    """Lower Einsum of one or two operands without diagonals, and without sums over axes of one operand."""
    operands = [context.operand(index) for index in range(len(context.node.inputs))]
    require(len(operands) <= 2, f"it has {len(operands)} operands")
    terms, result = parse_equation(str(context.attribute("equation")), [len(context.dims(one)) for one in operands])
    require(all(len(set(term)) == len(term) for term in (*terms, result)), "a label occurs twice in a term")
    extents = _extents(context, operands, terms)
    if len(operands) == 1:
        require(sorted(terms[0]) == sorted(result), "it sums over axes of one operand")
        return context.permute(operands[0], [terms[0].index(label) for label in result])
    if not isinstance(operands[0], str):  # the constant matrix is the second one, the weights
        operands, terms = operands[::-1], terms[::-1]
    return _product(context, operands, terms, result, extents)


def parse_equation(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the labels of each term and of the result; an ellipsis becomes hidden labels, one for each axis.

    `ranks` has the number of axes of each operand.

    >>> parse_equation("ij, jk", [2, 2])
    (['ij', 'jk'], 'ik')
    """
    sources, arrow, target = equation.replace(" ", "").partition("->")
    written = sources.split(",")
    hidden = [rank - len(term.replace(_ELLIPSIS, "")) for term, rank in zip(written, ranks, strict=True)]
    terms = [term.replace(_ELLIPSIS, _hidden_labels(count)) for term, count in zip(written, hidden, strict=True)]
    if arrow:
        return terms, target.replace(_ELLIPSIS, _hidden_labels(max(hidden)))
    counts = Counter(sources.replace(_ELLIPSIS, "").replace(",", ""))
    once = "".join(sorted(label for label, count in counts.items() if count == 1))
    return terms, _hidden_labels(max(hidden)) + once


def _hidden_labels(count: int) -> str:
    """Return the labels of the last `count` axes that an ellipsis stands for."""
    return "".join(chr(_FIRST_HIDDEN + index) for index in reversed(range(count)))


def _extents(context: LoweringContext, operands: Sequence[Operand], terms: Sequence[str]) -> dict[str, int]:
    """Return the extent of each label; raise UnsupportedNode if an axis is broadcast."""
    extents: dict[str, int] = {}
    for operand, term in zip(operands, terms, strict=True):
        for label, extent in zip(term, context.dims(operand), strict=True):
            require(extents.setdefault(label, extent) == extent, "an axis is broadcast")
    return extents


def _product(
    context: LoweringContext, operands: Sequence[Operand], terms: Sequence[str], result: str, extents: Mapping[str, int]
) -> Operand:
    """Emit the product of two operands with these labels."""
    first, second = terms
    require(set(first + second) - set(result) <= set(first) & set(second), "it sums over axes of one operand")
    dims = _dims(result, extents)
    batch = [label for label in result if label in first and label in second]
    rows = [label for label in result if label in first and label not in second]
    columns = [label for label in result if label in second and label not in first]
    contracted = [label for label in first if label in second and label not in result]
    if not (rows or columns or contracted):
        one, other = (_matrices(context, *pair, batch, dims) for pair in zip(operands, terms, strict=True))
        return emit_binary(context, "mul", one, other, dims)
    stack = _dims(batch, extents)
    stack = stack if len(stack) <= _MOST_BATCH_AXES else (prod(stack),)
    m, n, k = (prod(_dims(labels, extents)) for labels in (rows, columns, contracted))
    src = _matrices(context, operands[0], first, [*batch, *rows, *contracted], (*stack, m, k))
    weights = _matrices(context, operands[1], second, [*batch, *contracted, *columns], (*stack, k, n))
    product = context.emit("matmul", {"src": src, "weights": weights}, (*stack, m, n))
    order = [*batch, *rows, *columns]
    return context.permute(context.reshape(product, _dims(order, extents)), [order.index(label) for label in result])


def _dims(labels: Sequence[str], extents: Mapping[str, int]) -> Dims:
    """Return the extents of labels."""
    return tuple(extents[label] for label in labels)


def _matrices(context: LoweringContext, operand: Operand, term: str, order: Sequence[str], dims: Dims) -> Operand:
    """Return an operand with its labels in another order, in the dims of a stack of matrices."""
    return context.reshape(context.permute(operand, [term.index(label) for label in order]), dims)


EINSUM: Mapping[str, Callable[[LoweringContext], Operand]] = {"Einsum": einsum}
"""Rule of Einsum."""
