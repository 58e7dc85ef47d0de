"""Attention and RotaryEmbedding, the operators of opset 23, as the nodes that other passes and primitives know.

    Attention            MatMul, Mul, Add, Softmax, MatMul, between Reshape and Transpose of heads
    RotaryEmbedding      x * cosines + Concat(x2, x1) * signed sines

An Attention stays if its cache or its scores are results, if it reads a cache, or if its numbers are not float32.

ONNX defines the result of a row whose keys are all masked as 0. The rows of a constant mask are known here. For a mask
that the network computes, Where selects 0 in these rows, by the greatest number of the mask in each row.

Source: ONNX, "Operators": Attention, RotaryEmbedding.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.op_graph import Array
from inlay.graph.passes.rewriting import NetworkRewriter, rewrite_nodes

_F32 = np.dtype(np.float32)
_PAST = 4
"""Input of Attention with the keys before the others; the values before the others follow."""
_HEADS_FIRST = (0, 2, 1, 3)
"""Permutation between the axes batch, sequence, heads, features and batch, heads, sequence, features."""


def decompose_attention(network: Network) -> Network:
    """Return the network with Attention and RotaryEmbedding as several nodes; outputs are the same within rounding."""
    tables: dict[tuple[str, bool, bool], str] = {}

    def decompose(rewriter: NetworkRewriter, node: Node) -> Node | None:
        """Return the last of the nodes that compute `node`; None if it stays."""
        if node.domain not in ("", "ai.onnx") or node.operator not in ("Attention", "RotaryEmbedding"):
            return None
        if any(rewriter.tensors[name].dtype != _F32 for name in (*node.inputs[:3], node.outputs[0]) if name):
            return None
        is_attention = node.operator == "Attention"
        if any(0 in rewriter.dims(name) for name in (node.inputs[:_PAST] if is_attention else node.inputs) if name):
            return None
        if is_attention:
            return _decompose_attention(rewriter, node)
        return _Rotation(rewriter, node, tables).last_node()

    return rewrite_nodes(network, decompose)


def _split_heads(rewriter: NetworkRewriter, node: Node, name: str, heads: int) -> str:
    """Return a tensor with the axes batch, heads, sequence, features."""
    dims = rewriter.dims(name)
    if len(dims) == 4:
        return name
    split = rewriter.insert_reshape(node, name, (*dims[:2], heads, dims[2] // heads))
    return rewriter.insert_transpose(node, split, _HEADS_FIRST)


def _merge_heads(rewriter: NetworkRewriter, node: Node, name: str) -> Node:
    """Return the node that writes the result of `node`, of a tensor with the axes batch, heads, sequence, features."""
    dims = rewriter.dims(node.outputs[0])
    name = name if len(dims) == 4 else rewriter.insert_transpose(node, name, _HEADS_FIRST)
    shape = rewriter.add_constant(f"{node.outputs[0]}:shape", np.array(dims, np.int64))
    return Node(node.name, "Reshape", (name, shape), node.outputs[:1], {})


# Attention


def _decompose_attention(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the last node of an attention; None if it has lengths of a cache, or scores as a result."""
    attributes = node.attributes
    windows = [attributes.get(f"{side}_window_size", -1) for side in ("left", "right")]
    is_plain = windows == [-1, -1] and attributes.get("softmax_precision", 1) in (0, 1)
    pasts = node.inputs[_PAST : _PAST + 2]
    if not is_plain or any(node.inputs[_PAST + 2 :]) or any(rewriter.is_read(name) for name in node.outputs[3:]):
        return None
    if any(pasts) and not _is_cache(rewriter, pasts):
        return None
    if any(name in rewriter.constants for name in node.inputs[:3]):
        return None
    heads = [int(attributes.get(name, 0)) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    queries, keys, values = (
        _split_heads(rewriter, node, name, count) for name, count in zip(node.inputs[:3], heads, strict=True)
    )
    past = rewriter.dims(pasts[0])[2] if any(pasts) else 0
    if any(pasts) or any(rewriter.is_read(name) for name in node.outputs[1:3]):
        keys, values = (_extend(rewriter, node, one, index) for index, one in enumerate((keys, values)))
    count, length = rewriter.dims(queries)[1], rewriter.dims(keys)[2]
    keys, values = (_repeat_heads(rewriter, node, name, count) for name in (keys, values))
    dims = (*rewriter.dims(queries)[:3], length)
    mask = _Mask(rewriter, node, dims, past)
    if not mask.is_supported():
        return None
    transposed = rewriter.insert_transpose(node, keys, (0, 1, 3, 2))
    scores = rewriter.insert_node(node, "MatMul", (queries, transposed), dims)
    scale = attributes.get("scale") or 1 / sqrt(rewriter.dims(queries)[3])
    scores = _cap(rewriter, node, _scaled(rewriter, node, scores, scale), attributes.get("softcap", 0.0))
    shares = mask.softmax(scores)
    result = rewriter.insert_node(node, "MatMul", (shares, values), (*dims[:3], rewriter.dims(values)[3]))
    return _merge_heads(rewriter, node, result)


def _is_cache(rewriter: NetworkRewriter, pasts: tuple[str, ...]) -> bool:
    """Return whether there are keys and values before the others, both of float32 and computed or given at a run."""
    return (
        len(pasts) == 2
        and all(pasts)
        and all(name not in rewriter.constants and rewriter.tensors[name].dtype == _F32 for name in pasts)
    )


def _extend(rewriter: NetworkRewriter, node: Node, new: str, index: int) -> str:
    """Return keys or values with those before them, which are output 1 + `index` if the node has it."""
    past = node.inputs[_PAST + index] if len(node.inputs) > _PAST + index else ""
    output = node.outputs[1 + index] if len(node.outputs) > 1 + index else ""
    if not past:
        if output:
            rewriter.insert_writer(node, "Identity", (new,), output, {})
        return new
    if not output:
        before, after = rewriter.dims(past), rewriter.dims(new)
        dims = (*after[:2], before[2] + after[2], after[3])
        return rewriter.insert_node(node, "Concat", (past, new), dims, {"axis": 2})
    rewriter.insert_writer(node, "Concat", (past, new), output, {"axis": 2})
    return output


def _repeat_heads(rewriter: NetworkRewriter, node: Node, name: str, count: int) -> str:
    """Return keys or values with each head repeated, so that there are `count` heads."""
    batch, heads, *matrix = rewriter.dims(name)
    if heads == count:
        return name
    wide = (batch, heads, count // heads, *matrix)
    single = rewriter.insert_reshape(node, name, (batch, heads, 1, *matrix))
    shape = rewriter.add_constant(f"{name}:shape", np.array(wide, np.int64))
    repeated = rewriter.insert_node(node, "Expand", (single, shape), wide)
    return rewriter.insert_reshape(node, repeated, (batch, count, *matrix))


def _scaled(rewriter: NetworkRewriter, node: Node, name: str, factor: float) -> str:
    """Return a tensor times a number."""
    number = rewriter.add_constant(f"{name}:factor", np.array(factor, np.float32))
    return rewriter.insert_node(node, "Mul", (name, number), rewriter.dims(name))


def _cap(rewriter: NetworkRewriter, node: Node, scores: str, cap: float) -> str:
    """Return scores within a cap, by a hyperbolic tangent; unchanged if the cap is 0."""
    if not cap:
        return scores
    small = _scaled(rewriter, node, scores, 1 / cap)
    return _scaled(rewriter, node, rewriter.insert_node(node, "Tanh", (small,), rewriter.dims(small)), cap)


@dataclass(slots=True)
class _Mask:
    """The mask of an attention: what is constant of it, and what the network computes."""

    rewriter: NetworkRewriter
    """The network."""
    node: Node
    """The attention."""
    dims: tuple[int, ...]
    """Dims of the scores: batch, heads, queries, keys."""
    past: int = 0
    """Number of keys before that of the first query."""

    def is_supported(self) -> bool:
        """Return whether the mask is of float32 or bool, and has a number for each key."""
        name = self.name()
        if not name:
            return True
        tensor = self.rewriter.tensors[name]
        return tensor.dims[-1:] == self.dims[-1:] and tensor.dtype in (_F32, np.dtype(bool))

    def name(self) -> str:
        """Return the name of the mask; empty if there is none."""
        return self.node.inputs[3] if len(self.node.inputs) > 3 else ""

    def softmax(self, scores: str) -> str:
        """Return the softmax of masked scores, 0 in rows that are masked completely."""
        constant, name = self.constant(), self.computed()
        if not name:
            is_masked = np.isneginf(constant.max(-1, keepdims=True))
            shares = self.normalize(scores, self.add_constant(np.where(is_masked, np.float32(0), constant)))
            return self.select(shares, np.broadcast_to(is_masked, constant.shape)) if is_masked.any() else shares
        if constant.any():
            dims = np.broadcast_shapes(self.rewriter.dims(name), constant.shape)
            name = self.rewriter.insert_node(self.node, "Add", (name, self.add_constant(constant)), dims)
        return self.guard(self.normalize(scores, name), name)

    def constant(self) -> Array:
        """Return the numbers that are known before a run, of four axes."""
        queries, keys = self.dims[2:]
        is_after = np.arange(keys) > np.arange(queries)[:, None] + self.past
        is_causal = bool(self.node.attributes.get("is_causal", 0))
        numbers = np.where(is_causal & is_after, np.float32(-np.inf), np.float32(0))
        array = self.rewriter.constants.get(self.name())
        if array is not None:
            given = np.where(array, np.float32(0), np.float32(-np.inf)) if array.dtype == bool else array
            numbers = np.where(np.isneginf(numbers), numbers, given)
        return np.asarray(numbers, np.float32).reshape((1,) * (4 - numbers.ndim) + numbers.shape)

    def computed(self) -> str:
        """Return the tensor of numbers that the network computes; empty if there is none."""
        name = self.name()
        if not name or name in self.rewriter.constants:
            return ""
        if self.rewriter.tensors[name].dtype == _F32:
            return name
        numbers = [self.add_constant(np.array(number, np.float32)) for number in (0, -np.inf)]
        dims = self.rewriter.dims(name)
        return self.rewriter.insert_node(self.node, "Where", (name, *numbers), dims, dtype=_F32)

    def add_constant(self, array: Array) -> str:
        """Add a constant, and return its name."""
        return self.rewriter.add_constant(f"{self.node.outputs[0]}:mask", array)

    def normalize(self, scores: str, mask: str) -> str:
        """Return the softmax of the sum of scores and a mask."""
        array = self.rewriter.constants.get(mask)
        if array is None or array.any():
            scores = self.rewriter.insert_node(self.node, "Add", (scores, mask), self.dims)
        return self.rewriter.insert_node(self.node, "Softmax", (scores,), self.dims, {"axis": -1})

    def select(self, shares: str, is_masked: Array) -> str:
        """Return shares with 0 in the rows that a constant states."""
        inputs = (self.add_constant(is_masked), self.add_constant(np.zeros(1, np.float32)), shares)
        return self.rewriter.insert_node(self.node, "Where", inputs, self.dims, dtype=_F32)

    def guard(self, shares: str, mask: str) -> str:
        """Return shares with 0 in the rows where all numbers of a mask are minus infinity."""
        rewriter, node = self.rewriter, self.node
        dims = (*rewriter.dims(mask)[:-1], 1)
        axes = (rewriter.add_constant("axes", np.array([-1], np.int64)),)
        greatest = rewriter.insert_node(node, "ReduceMax", (mask, *axes), dims, {"keepdims": 1})
        least = self.add_constant(np.array(-np.inf, np.float32))
        is_masked = rewriter.insert_node(node, "Equal", (greatest, least), dims, dtype=np.dtype(bool))
        zero = self.add_constant(np.zeros(1, np.float32))
        return rewriter.insert_node(node, "Where", (is_masked, zero, shares), self.dims, dtype=_F32)


# Rotary embedding


@dataclass(slots=True)
class _Rotation:
    """A RotaryEmbedding that is decomposed."""

    rewriter: NetworkRewriter
    """The network."""
    node: Node
    """The RotaryEmbedding."""
    tables: dict[tuple[str, bool, bool], str]
    """Tables of this and earlier nodes, by their source, whether features are interleaved, and whether signs differ."""

    def last_node(self) -> Node | None:
        """Return the last node of the rotation; None if its inputs are constant, or its dims do not fit."""
        rewriter, node = self.rewriter, self.node
        if node.inputs[0] in rewriter.constants:
            return None
        x = _split_heads(rewriter, node, node.inputs[0], int(node.attributes.get("num_heads", 0)))
        dims = rewriter.dims(x)
        size = int(node.attributes.get("rotary_embedding_dim", 0)) or dims[3]
        turned = self.part(x, 0, size)
        cosines, sines = self.angles(1, size, False), self.angles(2, size, True)
        products = [
            rewriter.insert_node(node, "Mul", pair, (*dims[:3], size))
            for pair in ((turned, cosines), (self.swap(turned), sines))
        ]
        result = rewriter.insert_node(node, "Add", (products[0], products[1]), (*dims[:3], size))
        if size < dims[3]:
            parts = (result, self.part(x, size, dims[3]))
            result = rewriter.insert_node(node, "Concat", parts, dims, {"axis": 3})
        return _merge_heads(rewriter, node, result)

    @property
    def is_interleaved(self) -> bool:
        """Return whether pairs are neighbors, and not elements of both halves."""
        return bool(self.node.attributes.get("interleaved", 0))

    def part(self, name: str, start: int, stop: int, axis: int = 3) -> str:
        """Return elements from `start` to `stop` of an axis."""
        dims = self.rewriter.dims(name)
        if (start, stop) == (0, dims[axis]):
            return name
        bounds = [self.rewriter.add_constant(f"{name}:bound", np.array([n], np.int64)) for n in (start, stop, axis)]
        result = (*dims[:axis], stop - start, *dims[axis + 1 :])
        return self.rewriter.insert_node(self.node, "Slice", (name, *bounds), result)

    def swap(self, name: str) -> str:
        """Return features with both elements of each pair swapped."""
        dims = self.rewriter.dims(name)
        half = dims[3] // 2
        pairs, axis = ((*dims[:3], half, 2), 4) if self.is_interleaved else ((*dims[:3], 2, half), 3)
        paired = self.rewriter.insert_reshape(self.node, name, pairs)
        parts = self.part(paired, 1, 2, axis), self.part(paired, 0, 1, axis)
        swapped = self.rewriter.insert_node(self.node, "Concat", parts, pairs, {"axis": axis})
        return self.rewriter.insert_reshape(self.node, swapped, dims)

    def angles(self, index: int, size: int, is_signed: bool) -> str:
        """Return the cosines or signed sines of input `index` for each feature: batch, 1, sequence, features."""
        rewriter, node = self.rewriter, self.node
        table = self.wide_table(node.inputs[index], is_signed)
        dims = rewriter.dims(table)
        if len(node.inputs) > 3 and node.inputs[3]:
            positions = node.inputs[3]
            table = rewriter.insert_node(
                node, "Gather", (table, positions), (*rewriter.dims(positions), size), {"axis": 0}
            )
            dims = rewriter.dims(table)
        array = rewriter.constants.get(table)
        if array is not None:
            return rewriter.add_constant(f"{table}:heads", array.reshape(dims[0], 1, *dims[1:]))
        return rewriter.insert_reshape(node, table, (dims[0], 1, *dims[1:]))

    def wide_table(self, name: str, is_signed: bool) -> str:
        """Return a table with both elements of each pair, the first of them negated if `is_signed`."""
        key = name, self.is_interleaved, is_signed
        if key not in self.tables:
            array = self.rewriter.constants.get(name)
            if array is None:
                return self.computed_table(name, is_signed)
            pairs = np.stack([-array if is_signed else array, array], -1 if self.is_interleaved else -2)
            wide = pairs.reshape(*array.shape[:-1], 2 * array.shape[-1])
            self.tables[key] = self.rewriter.add_constant(f"{name}:wide", wide)
        return self.tables[key]

    def computed_table(self, name: str, is_signed: bool) -> str:
        """Return what `wide_table` does, for a table that the network computes."""
        rewriter, node, dims = self.rewriter, self.node, self.rewriter.dims(name)
        first = rewriter.insert_node(node, "Neg", (name,), dims) if is_signed else name
        if not self.is_interleaved:
            return rewriter.insert_node(
                node, "Concat", (first, name), (*dims[:-1], 2 * dims[-1]), {"axis": len(dims) - 1}
            )
        columns = tuple(rewriter.insert_reshape(node, one, (*dims, 1)) for one in (first, name))
        pairs = rewriter.insert_node(node, "Concat", columns, (*dims, 2), {"axis": len(dims)})
        return rewriter.insert_reshape(node, pairs, (*dims[:-1], 2 * dims[-1]))
