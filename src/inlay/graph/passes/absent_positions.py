"""`hide_absent`: positions of a state that are not written yet have no share in attention.

    shares = Softmax(scores)       shares = Softmax(scores + absent)

The new input `absent` has a number for each position of a state: 0 where it is written, and `HIDDEN` elsewhere. It is
for models without an input `attention_mask`.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from inlay.errors import InvalidArguments
from inlay.graph.network import Network, Node, Tensor
from inlay.graph.passes.rewriting import NetworkRewriter
from inlay.graph.states import TensorState

ABSENT = "inlay:absent"
"""Input with a number for each position, float32 of dims (positions,)."""
HIDDEN = -1e9
"""Number that makes the share of a position 0; runs accept it as finite."""
_MOVES = frozenset(("Cast", "Expand", "Identity", "Mul", "Reshape", "Transpose", "Unsqueeze"))
"""Operators between a state and the product that reads it: they keep, repeat, move or scale its elements."""
_SCORING = frozenset(("Add", "Div", "Identity", "Max", "Min", "Mul", "Reshape", "Sub", "Tanh", "Where"))
"""Operators between the product of queries and keys and the softmax."""


def hide_absent(network: Network, states: tuple[TensorState, ...]) -> Network:
    """Return the network with the input `ABSENT`, which is added to scores before each softmax over keys of a state.

    Raises:
        InvalidArguments: no softmax is found, or a state is read by something other than products.
    """
    (length,) = {network.tensors[state.output or state.input].dims[state.axis] for state in states}
    readers: dict[str, list[Node]] = {}
    for node in network.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    found = {node.name: node for state in states for node in _find_softmaxes(network, readers, state, length)}
    if not found:
        raise InvalidArguments(
            "no softmax over the positions of a state is found, and the model has no input attention_mask, which "
            "excludes positions that are not written yet: export it with one"
        )
    rewriter = NetworkRewriter(replace(network, inputs=(*network.inputs, ABSENT)))
    rewriter.tensors[ABSENT] = Tensor(ABSENT, (length,), np.dtype(np.float32))
    for node in found.values():
        (scores,) = node.inputs
        hidden = rewriter.insert_node(node, "Add", (scores, ABSENT), rewriter.dims(scores))
        rewriter.replace_node(node, replace(node, inputs=(hidden,)))
    return rewriter.build()


def _find_softmaxes(
    network: Network, readers: dict[str, list[Node]], state: TensorState, length: int
) -> Iterator[Node]:
    """Yield the softmaxes of scores that products of a state's keys give.

    Raises:
        InvalidArguments: an operator that is none of attention reads the state or scores.
    """
    waiting: list[tuple[str, int, bool]] = [(state.output or "", state.axis, False)]
    while waiting:
        name, axis, is_scores = waiting.pop()
        for node in readers.get(name, ()):
            dims = network.tensors[node.outputs[0]].dims
            last = len(dims) - 1
            if node.operator == "Softmax" and is_scores and node.attributes.get("axis", -1) in (-1, last):
                yield node
            elif is_scores and node.operator in _SCORING and dims[-1] == length:
                waiting.append((node.outputs[0], last, True))
            elif not is_scores and node.operator in _MOVES and (moved := _moved_axis(network, node, axis)) is not None:
                waiting.append((node.outputs[0], moved, False))
            elif not is_scores and node.operator == "MatMul" and node.inputs[1] == name and axis == last:
                waiting.append((node.outputs[0], last, True))
            elif not (node.operator == "MatMul" and node.inputs[1] == name and axis == last - 1):  # values
                raise InvalidArguments(
                    f"{node.operator} {node.name!r} reads {state.input}, and the model has no input attention_mask, "
                    "which excludes positions that are not written yet: export it with one"
                )


def _moved_axis(network: Network, node: Node, axis: int) -> int | None:
    """Return the axis of the result that has the positions of axis `axis` of the first input; None if none has."""
    before, after = (network.tensors[name].dims for name in (node.inputs[0], node.outputs[0]))
    if node.operator == "Transpose":
        perm = tuple(node.attributes.get("perm", reversed(range(len(before)))))
        return perm.index(axis)
    if node.operator in ("Reshape", "Unsqueeze"):
        outer = prod(before[:axis])
        return next((i for i, n in enumerate(after) if n == before[axis] and prod(after[:i]) == outer), None)
    return axis if len(before) == len(after) else None
