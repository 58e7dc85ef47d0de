"""`append_updates`: a decoder that updates caches of the maximum length, as one that appends to what is kept.

    present = TensorScatter(past, new, write_indices)       present = Concat(past, new)

The cache of the model has as many positions as the plan. A session writes new ones after those that it keeps, so the
positions before a step have a length, as those of a model without TensorScatter.
"""

from dataclasses import replace

from inlay.errors import InvalidArguments
from inlay.graph.network import Network
from inlay.graph.passes.rewriting import NetworkRewriter
from inlay.graph.states import TensorState


def append_updates(network: Network, states: tuple[TensorState, ...]) -> Network:
    """Return the network with each TensorScatter of a state as a concatenation of the past and new positions.

    The input of such a state has the dims of the past then; it is read by the concatenation alone.

    Raises:
        InvalidArguments: something else reads the state before it is written, or an attention has a mask of another
            length.
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
        dims[state.axis] -= rewriter.dims(new)[state.axis]
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
