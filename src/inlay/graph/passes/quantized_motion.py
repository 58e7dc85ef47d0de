"""Motion of quantization: a DequantizeLinear behind operators that move elements, a QuantizeLinear before them.

    q -> DequantizeLinear -> Transpose -> y        q -> Transpose -> DequantizeLinear -> y
    x -> Concat -> QuantizeLinear -> q             x -> QuantizeLinear -> Concat -> q

So elements of one byte are moved, and operators that compute meet their DequantizeLinear and QuantizeLinear.
"""

from dataclasses import replace

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.passes.quantized_tensors import changes_bytes, dequantized_bytes, zero_point
from inlay.graph.passes.rewriting import NetworkRewriter

_MOVES = frozenset(
    {
        *("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "DepthToSpace", "SpaceToDepth", "Gather"),
        *("Identity", "Expand", "Tile", "MaxPool", "Resize", "Upsample"),
    }
)
"""Operators whose result has elements of the first input, or the greatest of some, for integers and numbers alike."""


def _is_move(rewriter: NetworkRewriter, node: Node | None) -> bool:
    """Return whether a node moves elements, and only its first result is used."""
    return (
        node is not None
        and node.operator in _MOVES
        and not node.domain
        and (node.operator not in ("Resize", "Upsample") or _takes_nearest(node))
        and not any(rewriter.is_read(name) for name in node.outputs[1:])
        and all(name in rewriter.constants for name in node.inputs[1:] if name)
    )


def _takes_nearest(node: Node) -> bool:
    """Return whether each element of a resized image is one of the source."""
    crops = node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return node.attributes.get("mode", "nearest") == "nearest" and not crops


def move_dequantize(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a DequantizeLinear of moved integers for a node that moves dequantized elements."""
    if node.operator == "Concat":
        return _move_dequantize_behind_concat(rewriter, node)
    if node.operator == "Pad":
        return _move_dequantize_behind_pad(rewriter, node)
    if not _is_move(rewriter, node) or dequantized_bytes(rewriter, node.inputs[0]) is None:
        return None
    dequantize = rewriter.producer(node.inputs[0])
    assert dequantize is not None
    return _dequantize_after(rewriter, node, (dequantize.inputs[0], *node.inputs[1:]), dequantize)


def divide_splits(network: Network) -> Network:
    """Return the network with a Slice for each result of a Split of a dequantized tensor."""
    rewriter = NetworkRewriter(network)
    nodes = list[Node]()
    for node in network.nodes:
        is_split = node.operator == "Split" and not node.domain and all(node.outputs) and network.opset >= 10
        if not is_split or dequantized_bytes(rewriter, node.inputs[0]) is None:
            nodes.append(node)
            continue
        axis, start = node.attributes.get("axis", 0), 0
        for i, name in enumerate(node.outputs):
            stop = start + rewriter.dims(name)[axis]
            bounds = [rewriter.add_constant(f"{name}:bound", np.array([n], np.int64)) for n in (start, stop, axis)]
            nodes.append(Node(f"{node.name}:{i}", "Slice", (node.inputs[0], *bounds), (name,)))
            start = stop
    return replace(network, nodes=tuple(nodes), tensors=rewriter.tensors, constants=rewriter.constants)


def _move_dequantize_behind_concat(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a DequantizeLinear of joined integers for a Concat of tensors with one scale and zero point."""
    parts = [dequantized_bytes(rewriter, name) for name in node.inputs]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or any(part.quantization != found[0].quantization for part in found):
        return None
    dequantize = rewriter.producer(node.inputs[0])
    assert dequantize is not None
    return _dequantize_after(rewriter, node, tuple(part.integers for part in found), dequantize)


def _move_dequantize_behind_pad(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a DequantizeLinear of padded integers for a Pad with 0, which is the zero point among integers."""
    found = dequantized_bytes(rewriter, node.inputs[0])
    if found is None or node.domain or rewriter.network.opset < 11:
        return None
    value = node.inputs[2] if len(node.inputs) > 2 else ""
    if node.attributes.get("mode", "constant") != "constant" or (value and rewriter.scalar(value) != 0):
        return None
    if any(name not in rewriter.constants for name in (node.inputs[1], *node.inputs[3:]) if name):
        return None
    dequantize = rewriter.producer(node.inputs[0])
    assert dequantize is not None
    zero = np.array(zero_point(found.quantization), rewriter.tensors[found.integers].dtype)
    padding = rewriter.add_constant(f"{node.outputs[0]}:padding", zero)
    return _dequantize_after(rewriter, node, (found.integers, node.inputs[1], padding, *node.inputs[3:]), dequantize)


def _dequantize_after(rewriter: NetworkRewriter, node: Node, inputs: tuple[str, ...], dequantize: Node) -> Node:
    """Insert `node` with inputs of integers, and return the DequantizeLinear that computes its result."""
    dims, attributes = rewriter.dims(node.outputs[0]), dict(node.attributes)
    moved = rewriter.insert_node(node, node.operator, inputs, dims, attributes)
    return Node(node.name, "DequantizeLinear", (moved, *dequantize.inputs[1:]), node.outputs[:1])


def move_quantize(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the last of the operators that move elements before a QuantizeLinear, on integers."""
    if node.operator != "QuantizeLinear" or not changes_bytes(rewriter, node):
        return None
    moves: list[Node] = []
    name = node.inputs[0]
    while rewriter.is_read_once(name) and _is_move(rewriter, move := rewriter.producer(name)):
        assert move is not None
        moves.insert(0, move)
        name = move.inputs[0]
    joined = rewriter.producer_of_kind(name, "Concat") if rewriter.is_read_once(name) else None
    if joined is not None:
        parts = tuple(_insert_quantize(rewriter, node, part) for part in joined.inputs)
        moves.insert(0, replace(joined, inputs=parts))
    elif not moves:
        return None
    else:
        moves[0] = replace(moves[0], inputs=(_insert_quantize(rewriter, node, name), *moves[0].inputs[1:]))
    dtype, last = rewriter.tensors[node.outputs[0]].dtype, moves[0]
    for move in moves[1:]:
        dims = rewriter.dims(last.outputs[0])
        moved = rewriter.insert_node(node, last.operator, last.inputs, dims, dict(last.attributes), dtype)
        last = replace(move, inputs=(moved, *move.inputs[1:]))
    return replace(last, name=node.name, outputs=node.outputs)


def _insert_quantize(rewriter: NetworkRewriter, node: Node, name: str) -> str:
    """Insert a QuantizeLinear of a tensor with the scale and zero point of another, and return the integers."""
    inputs, dtype = (name, *node.inputs[1:]), rewriter.tensors[node.outputs[0]].dtype
    return rewriter.insert_node(node, "QuantizeLinear", inputs, rewriter.dims(name), dict(node.attributes), dtype)
