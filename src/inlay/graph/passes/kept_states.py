"""`keep_states`: a decoder whose states are written in place, for one number of positions.

    present = Concat(past, new)       keys = CacheWrite(new, position, state);  present = Transpose(keys)

A state has its positions in the outermost axis, so that the first ones are contiguous. The network for a longer
sequence reads more of the same memory, and a step writes one row:

    past (batch, heads, past, features)   ->   state (positions, batch, heads, features)

With no past, nothing is read: the rows of all positions are outputs of the network, which a session stores.
"""

from dataclasses import replace

import numpy as np

from inlay.errors import InvalidArguments
from inlay.graph.network import Network, Node, Subgraph, Tensor
from inlay.graph.passes.rewriting import NetworkRewriter
from inlay.graph.states import TensorState

POSITION = "inlay:position"
"""Input with the position of the first new row, int64 of dims (1,)."""
CACHE_WRITE = "CacheWrite"
"""Operator of the domain `inlay` that writes rows into a state: inputs are rows, position and state."""


def rows_of(state: TensorState) -> str:
    """Return the name of the output with the new rows of a state, in a network without past."""
    return f"{state.input}:rows"


def keep_states(network: Network, states: tuple[TensorState, ...]) -> Network:
    """Return the network that keeps these states; its past may be empty.

    The inputs of the states have the positions of past and new rows in axis 0. Without past they are left out, and the
    new rows are outputs.

    Raises:
        InvalidArguments: a state is read or written in another way than by one concatenation.
    """
    pasts, presents = {state.input for state in states}, {state.output for state in states}
    outputs = tuple(name for name in network.outputs if name not in presents)
    if all(network.tensors[state.input].dims[state.axis] == 0 for state in states):
        inputs = tuple(name for name in network.inputs if name not in pasts)
        rewriter = NetworkRewriter(replace(network, inputs=inputs, outputs=(*outputs, *map(rows_of, states))))
        for state in states:
            _return_rows(rewriter, state, *_find_concatenation(network, state))
        return replace(rewriter.build(), again=None)
    rewriter = NetworkRewriter(replace(network, inputs=(*network.inputs, POSITION), outputs=outputs))
    rewriter.tensors[POSITION] = Tensor(POSITION, (1,), np.dtype(np.int64))
    kept = tuple(_write_in_place(rewriter, state, *_find_concatenation(network, state)) for state in states)
    return replace(rewriter.build(), states=kept, again=None)


def _outermost(state: TensorState, ndims: int) -> tuple[int, ...]:
    """Return the permutation that puts the axis of positions first."""
    return (state.axis, *(axis for axis in range(ndims) if axis != state.axis))


def _return_rows(rewriter: NetworkRewriter, state: TensorState, node: Node, new: str) -> None:
    """Replace the concatenation with nothing by its new rows, and return them with positions first."""
    tensor, rows = rewriter.tensors[node.outputs[0]], rows_of(state)
    perm = _outermost(state, len(tensor.dims))
    rewriter.tensors[rows] = Tensor(rows, tuple(tensor.dims[axis] for axis in perm), tensor.dtype)
    rewriter.nodes[rows] = Node(rows, "Transpose", (tensor.name,), (rows,), {"perm": perm})
    rewriter.replace_node(node, replace(node, operator="Identity", inputs=(new,), attributes={}))


def _write_in_place(rewriter: NetworkRewriter, state: TensorState, node: Node, new: str) -> TensorState:
    """Replace a concatenation by a write of its new rows, and return the state as it is then."""
    whole = rewriter.tensors[node.outputs[0]]
    perm = _outermost(state, len(whole.dims))
    dims = tuple(whole.dims[axis] for axis in perm)
    rewriter.tensors[state.input] = replace(rewriter.tensors[state.input], dims=dims)
    rows = rewriter.insert_transpose(node, new, perm)
    written = rewriter.insert_node(node, CACHE_WRITE, (rows, POSITION, state.input), dims)
    rewriter.nodes[written] = replace(rewriter.nodes[written], domain="inlay")
    back = tuple(perm.index(axis) for axis in range(len(perm)))
    rewriter.replace_node(node, Node(node.name, "Transpose", (written,), node.outputs, {"perm": back}))
    return replace(state, output=written, axis=0)


def _operators(node: Node) -> str:
    """Return the operator of a node, or those of a subgraph."""
    return " and ".join(inner.operator for inner in node.nodes) if isinstance(node, Subgraph) else node.operator


def _find_concatenation(network: Network, state: TensorState) -> tuple[Node, str]:
    """Return the node that appends new rows to a state, and the name of the new rows.

    Raises:
        InvalidArguments: there is none, or something else reads the state.
    """
    readers = [node for node in network.nodes if state.input in node.inputs]
    for node in readers if len(readers) == 1 else ():
        axis = int(node.attributes.get("axis", 0)) % len(network.tensors[state.input].dims)
        is_state = node.operator == "Concat" and axis == state.axis and node.outputs[0] == state.output
        if is_state and len(node.inputs) == 2 and node.inputs[0] == state.input != node.inputs[1]:
            return node, node.inputs[1]
    found = ", ".join(f"{_operators(node)} {node.name!r}" for node in readers) or "no node"
    raise InvalidArguments(
        f"{state.input} is read by {found}: a state is read by one Concat along axis {state.axis} that writes "
        f"{state.output}: export the model with such a cache, or name its states by names="
    )
