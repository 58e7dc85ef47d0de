"""`append_updates`: a decoder that updates caches of the maximum length, as one that appends to what is kept.

    present = TensorScatter(past, new, write_indices)       present = Concat(past, new)

The cache of the model has as many positions as the plan. A session writes new ones after those that it keeps, so the
positions before a step have a length, as those of a model without TensorScatter.

`fold_counts` makes constants of masks by a number of valid keys: `Less(table, count)`, as `attention_operators` writes
them. All positions of the plan count as valid: `absent_positions` hides those that are not, and in a prompt they follow
all others.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from inlay.errors import InvalidArguments
from inlay.graph.network import Network, Node, Subgraph
from inlay.graph.op_graph import Array
from inlay.graph.passes.group_query_attention import MASK
from inlay.graph.passes.rewriting import NetworkRewriter
from inlay.graph.passes.simplification import simplify_network
from inlay.graph.states import TensorState


def append_updates(network: Network, states: tuple[TensorState, ...]) -> Network:
    """Return the network with each TensorScatter of a state as a concatenation of the past and new positions.

    The input of such a state has the dims of the past then; it is read by the concatenation alone.

    Raises:
        InvalidArguments: something else reads the state before it is written, an attention has a mask of another
            length, or a step has several new positions.
    """
    rewriter = NetworkRewriter(network)
    for state in states:
        readers = [node for node in network.nodes if state.input in node.inputs]
        scatter = next((node for node in readers if node.operator == "TensorScatter"), None)
        if scatter is None or scatter.inputs[0] != state.input or scatter.outputs[0] != state.output:
            continue
        if len(readers) > 1:
            other = next(node for node in readers if node is not scatter)
            raise InvalidArguments(
                f"{other.operator} {other.name!r} reads {state.input} before TensorScatter {scatter.name!r} writes new "
                "positions: a state is read after that: export the model so"
            )
        _require_masks(network, state)
        new, dims = scatter.inputs[1], list(rewriter.dims(state.input))
        rows = rewriter.dims(new)[state.axis]
        if rows not in (1, dims[state.axis]):
            raise InvalidArguments(
                f"TensorScatter {scatter.name!r} writes {rows} positions, and a step has one: export the model with an "
                "open dim for new positions"
            )
        dims[state.axis] -= rows
        rewriter.tensors[state.input] = replace(rewriter.tensors[state.input], dims=tuple(dims))
        joined = replace(scatter, operator="Concat", inputs=(state.input, new), attributes={"axis": state.axis})
        rewriter.replace_node(scatter, joined)
    return rewriter.build()


def _require_masks(network: Network, state: TensorState) -> None:
    """Check that no attention that reads a state has a mask for more positions than the state has."""
    for node in network.nodes:
        if node.operator != "Attention" or state.output not in node.inputs[1:3] or not "".join(node.inputs[3:4]):
            continue
        extent, length = network.tensors[node.inputs[3]].dims[-1], network.tensors[state.output].dims[state.axis]
        if extent > length:
            raise InvalidArguments(
                f"Attention {node.name!r} has a mask of {extent} positions where a plan has {length}: export the model "
                "with a mask of an open dim, such as one that is computed from attention_mask"
            )


def fold_counts(network: Network, states: tuple[TensorState, ...], counts: Collection[str]) -> Network:
    """Return the network with masks by these inputs, numbers of valid keys, for as many keys as states have positions.

    They stay in steps of a model with `attention_mask`, which has no other input that hides positions.

    The network has one new position, or as many as positions; attention is causal then. So no row is masked completely.

    Raises:
        InvalidArguments: an attention reads a number of valid keys, and is none that other passes know.
    """
    if not counts:
        return network
    _require_known_attention(network, counts)
    past, length = (network.tensors[name or ""].dims[states[0].axis] for name in (states[0].input, states[0].output))
    if past and MASK in network.inputs:
        return network
    rewriter = NetworkRewriter(network)
    known: dict[str, Array] = {}
    for node in network.nodes:
        array = _fold(rewriter, node, known, counts, length)
        if array is not None:
            known[node.outputs[0]] = array
        elif known.keys() & set(node.inputs):
            rewriter.replace_node(node, _with_constants(rewriter, node, known))
    return simplify_network(rewriter.build()) if known else network


def _require_known_attention(network: Network, counts: Collection[str]) -> None:
    """Check that no Attention reads numbers of valid keys, so that all were replaced by other nodes."""
    for node in network.nodes:
        inner = node.nodes if isinstance(node, Subgraph) else (node,)
        if any(one.operator == "Attention" for one in inner) and set(counts) & set(node.inputs):
            raise InvalidArguments(
                f"Attention {node.name!r} has a window, its scores as a result, or another type than float32, beside "
                "nonpad_kv_seqlen: export the model without these"
            )


def _fold(
    rewriter: NetworkRewriter, node: Node, known: dict[str, Array], counts: Collection[str], length: int
) -> Array | None:
    """Return the result of a node of a mask, of dims that broadcast to it; None for other nodes."""
    table, *others = (rewriter.constants.get(name, known.get(name)) for name in node.inputs or ("",))
    if node.operator == "Less" and table is not None and _source(rewriter, node.inputs[1]) in counts:
        return np.asarray(table < length) if _lists_positions(table, length) else None
    if table is None or node.inputs[0] not in known:
        return None
    is_last = others and others[0] is not None and np.array_equal(others[0], [-1])
    if node.operator == "ReduceMax" and node.attributes.get("keepdims", 1) and is_last:
        return np.asarray(table.max(-1, keepdims=True))
    if node.operator == "Equal" and others[0] is not None:
        return np.asarray(table == others[0])
    if node.operator == "Reshape":
        return np.broadcast_to(table, rewriter.dims(node.inputs[0])).reshape(rewriter.dims(node.outputs[0]))
    if node.operator == "Where" and others[0] is not None and others[1] is not None:
        return np.asarray(np.where(table, others[0], others[1]))
    return None


def _lists_positions(table: Array, length: int) -> bool:
    """Return whether a table has the number of each key for the last query, so that a comparison with it is a mask."""
    return table.ndim == 4 and np.array_equal(table[0, 0, -1], np.arange(length))


def _with_constants(rewriter: NetworkRewriter, node: Node, known: dict[str, Array]) -> Node:
    """Return a node that reads constants in place of masks; an Identity where a mask has no effect."""
    if node.operator == "Where" and node.inputs[0] in known and not known[node.inputs[0]].any():
        return Node(node.name, "Identity", node.inputs[2:], node.outputs, {})
    if node.operator == "Add" and node.inputs[1] in known and not known[node.inputs[1]].any():
        return Node(node.name, "Identity", node.inputs[:1], node.outputs, {})
    arrays = {name: known[name] for name in node.inputs if name in known}
    if node.operator not in ("Add", "Where"):  # others may not broadcast
        arrays = {name: np.broadcast_to(array, rewriter.dims(name)) for name, array in arrays.items()}
    names = {name: rewriter.add_constant(f"{name}:constant", array) for name, array in arrays.items()}
    return replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))


def _source(rewriter: NetworkRewriter, name: str) -> str:
    """Return the tensor whose numbers a tensor has, before conversions and reshapes."""
    while (node := rewriter.producer(name)) is not None and node.operator in ("Cast", "Identity", "Reshape"):
        name = node.inputs[0]
    return name
