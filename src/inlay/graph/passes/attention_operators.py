"""Attention and RotaryEmbedding, the operators of opset 23, as the nodes that other passes and primitives know.

    Attention            MatMul, Mul, Add, Softmax, MatMul, between Reshape and Transpose of heads
    RotaryEmbedding      x * cosines + Concat(x2, x1) * signed sines

A cache is what exporters write without Attention: Concat(past, new), whose result is the present cache. So a session
can keep it as a state. An Attention stays if its scores are a result, if it has windows and counts of valid keys, or if
its numbers are not float32.

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
_HEADS_FIRST = (0, 2, 1, 3)
"""Permutation between the axes batch, sequence, heads, features and batch, heads, sequence, features."""
_PAST_KEYS = 4
"""Input of Attention with the keys of the cache; that of the values is the next one."""
_LENGTHS = 6
"""Input of Attention with the number of valid keys of each batch element: `nonpad_kv_seqlen` of opset 24."""


def decompose_attention(network: Network) -> Network:
    """Return the network with Attention and RotaryEmbedding as several nodes; outputs are the same within rounding."""
    tables: dict[tuple[str, bool, bool], str] = {}

    def decompose(rewriter: NetworkRewriter, node: Node) -> Node | None:
        """Return the last of the nodes that compute `node`; None if it stays."""
        if node.domain not in ("", "ai.onnx") or node.operator not in ("Attention", "RotaryEmbedding"):
            return None
        if any(rewriter.tensors[name].dtype != _F32 for name in (*node.inputs[:3], node.outputs[0]) if name):
            return None
        if any(0 in rewriter.dims(name) for name in (*node.inputs[:4], *node.inputs[6:]) if name):
            return None
        if node.operator == "Attention":
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
    """Return the last node of an attention; None if it has scores as a result, or a mask that is too short."""
    if not _is_plain(rewriter, node) or not _has_fitting_dims(rewriter, node):
        return None
    attributes = node.attributes
    heads = [int(attributes.get(name, 0)) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    queries, keys, values = (
        _split_heads(rewriter, node, name, count) for name, count in zip(node.inputs[:3], heads, strict=True)
    )
    past = rewriter.dims(_input(node, _PAST_KEYS))[2] if _input(node, _PAST_KEYS) else 0
    dims = (*rewriter.dims(queries)[:3], past + rewriter.dims(keys)[2])
    mask = _Mask(rewriter, node, dims, past)
    if not mask.is_supported():
        return None
    keys = _extend(rewriter, node, keys, _PAST_KEYS)
    values = _extend(rewriter, node, values, _PAST_KEYS + 1)
    scores = multiply_heads(rewriter, node, queries, rewriter.insert_transpose(node, keys, (0, 1, 3, 2)))
    scale = attributes.get("scale", 1 / sqrt(rewriter.dims(queries)[3]))
    scores = cap_scores(rewriter, node, scale_tensor(rewriter, node, scores, scale), attributes.get("softcap", 0.0))
    return _merge_heads(rewriter, node, multiply_heads(rewriter, node, mask.softmax(scores), values))


def _is_plain(rewriter: NetworkRewriter, node: Node) -> bool:
    """Return whether an attention has no scores as a result or constant operands, and both caches or none."""
    windows, lengths = [_window(node, side) for side in ("left", "right")], _input(node, _LENGTHS)
    if (
        min(windows) < -1
        or (lengths and windows != [-1, -1])
        or node.attributes.get("softmax_precision", 1) not in (0, 1)
    ):
        return False
    if any(name in rewriter.constants for name in (*node.inputs[:3], lengths)):
        return False
    caches = [_input(node, index) for index in (_PAST_KEYS, _PAST_KEYS + 1)]
    if any(rewriter.is_read(name) for name in node.outputs[3:]):
        return False
    return not any(caches) or all(name and rewriter.dims(name)[1] for name in caches)


def _has_fitting_dims(rewriter: NetworkRewriter, node: Node) -> bool:
    """Return whether heads, cache, mask and counts of an attention fit its queries, keys and values."""
    attributes = node.attributes
    counts = [int(attributes.get(name, 0)) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    forms = [_head_dims(rewriter.dims(name), heads) for name, heads in zip(node.inputs[:3], counts, strict=True)]
    queries, keys, values = forms
    pasts = [_input(node, _PAST_KEYS + i) for i in (0, 1)]
    caches = [
        rewriter.dims(past) if past else (*new[:2], 0, *new[3:]) for past, new in zip(pasts, forms[1:], strict=True)
    ]
    fits = all(cache[:2] + cache[3:] == new[:2] + new[3:] for cache, new in zip(caches, forms[1:], strict=True))
    if not all(forms) or not fits or keys[:3] != values[:3] or caches[0][2] != caches[1][2]:
        return False
    if queries[0] != keys[0] or queries[1] % keys[1] or queries[3] != keys[3]:
        return False
    mask, lengths = _input(node, 3), _input(node, _LENGTHS)
    extents, scores = rewriter.dims(mask) if mask else (), (*queries[:3], caches[0][2] + keys[2])
    is_mask = len(extents) <= 4 and all(n in (1, m) for n, m in zip(extents[::-1], scores[::-1], strict=False))
    return is_mask and (not lengths or rewriter.dims(lengths) == queries[:1])


def _head_dims(dims: tuple[int, ...], heads: int) -> tuple[int, ...]:
    """Return the axes batch, heads, sequence, features of a tensor; none if the heads do not divide its features."""
    if len(dims) == 4:
        return dims
    return (dims[0], heads, dims[1], dims[2] // heads) if heads > 0 and not dims[2] % heads else ()


def _window(node: Node, side: str) -> int:
    """Return how many keys a query sees on a side of its own position; -1 for all."""
    return int(node.attributes.get(f"{side}_window_size", -1))


def _input(node: Node, index: int) -> str:
    """Return the name of an input; empty if the node does not have it."""
    return node.inputs[index] if len(node.inputs) > index else ""


def _extend(rewriter: NetworkRewriter, node: Node, new: str, index: int) -> str:
    """Return keys or values after those of the cache that is input `index`; they are a result too, if it is read."""
    past, present = _input(node, index), node.outputs[index - _PAST_KEYS + 1 :][:1]
    result = present[0] if present and rewriter.is_read(present[0]) else ""
    if past:
        batch, heads, length, size = rewriter.dims(new)
        dims = (batch, heads, rewriter.dims(past)[2] + length, size)
        return rewriter.insert_node(node, "Concat", (past, new), dims, {"axis": 2}, result=result)
    return rewriter.insert_node(node, "Identity", (new,), rewriter.dims(new), result=result) if result else new


def multiply_heads(rewriter: NetworkRewriter, node: Node, one: str, other: str) -> str:
    """Return the product of matrices of each head, where neighboring heads of `one` may share a head of `other`.

    The rows of heads that share a head are rows of one matrix, so no head is repeated.
    """
    batch, heads, rows, size = rewriter.dims(one)
    groups, columns = rewriter.dims(other)[1], rewriter.dims(other)[3]
    if groups == heads:
        return rewriter.insert_node(node, "MatMul", (one, other), (batch, heads, rows, columns))
    joined = (batch, groups, heads // groups * rows)
    flat = rewriter.insert_reshape(node, one, (*joined, size))
    product = rewriter.insert_node(node, "MatMul", (flat, other), (*joined, columns))
    return rewriter.insert_reshape(node, product, (batch, heads, rows, columns))


def scale_tensor(rewriter: NetworkRewriter, node: Node, name: str, factor: float) -> str:
    """Return a tensor times a number."""
    number = rewriter.add_constant(f"{name}:factor", np.array(factor, np.float32))
    return rewriter.insert_node(node, "Mul", (name, number), rewriter.dims(name))


def cap_scores(rewriter: NetworkRewriter, node: Node, scores: str, cap: float) -> str:
    """Return scores within a cap, by a hyperbolic tangent; unchanged if the cap is 0."""
    if not cap:
        return scores
    small = scale_tensor(rewriter, node, scores, 1 / cap)
    return scale_tensor(rewriter, node, rewriter.insert_node(node, "Tanh", (small,), rewriter.dims(small)), cap)


@dataclass(slots=True)
class _Mask:
    """The mask of an attention: what is constant of it, and what the network computes."""

    rewriter: NetworkRewriter
    """The network."""
    node: Node
    """The attention."""
    dims: tuple[int, ...]
    """Dims of the scores: batch, heads, queries, keys."""
    past: int
    """Number of keys in the cache."""

    def is_supported(self) -> bool:
        """Return whether the mask is of float32 or bool, and has a number for each key."""
        name = self.name()
        if not name:
            return True
        tensor = self.rewriter.tensors[name]
        return tensor.dims[-1:] == self.dims[-1:] and tensor.dtype in (_F32, np.dtype(bool))

    def name(self) -> str:
        """Return the name of the mask; empty if there is none."""
        return _input(self.node, 3)

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
        distance = np.arange(keys) - np.arange(queries)[:, None] - self.past
        before, after = (_window(self.node, side) for side in ("left", "right"))
        is_masked = np.full(distance.shape, self.is_causal() and not _input(self.node, _LENGTHS)) & (distance > 0)
        for window, over in ((before, -distance), (after, distance)):
            is_masked |= (window >= 0) & (over > window)
        numbers = np.where(is_masked, np.float32(-np.inf), np.float32(0))
        array = self.rewriter.constants.get(self.name())
        if array is not None:
            given = np.where(array, np.float32(0), np.float32(-np.inf)) if array.dtype == bool else array
            numbers = np.where(np.isneginf(numbers), numbers, given)
        return np.asarray(numbers, np.float32).reshape((1,) * (4 - numbers.ndim) + numbers.shape)

    def is_causal(self) -> bool:
        """Return whether a query sees no key after its own position."""
        return bool(self.node.attributes.get("is_causal", 0))

    def computed(self) -> str:
        """Return the tensor of numbers that the network computes; empty if there is none."""
        name, lengths = self.name(), _input(self.node, _LENGTHS)
        given = self.as_numbers(name) if name and name not in self.rewriter.constants else ""
        counted = self.as_numbers(self.compare(lengths)) if lengths else ""
        if not given or not counted:
            return given or counted
        dims = np.broadcast_shapes(self.rewriter.dims(given), self.rewriter.dims(counted))
        return self.rewriter.insert_node(self.node, "Add", (given, counted), dims)

    def as_numbers(self, name: str) -> str:
        """Return a mask as float32: 0 where one of bool is true, minus infinity elsewhere."""
        if self.rewriter.tensors[name].dtype == _F32:
            return name
        numbers = [self.add_constant(np.array(number, np.float32)) for number in (0, -np.inf)]
        dims = self.rewriter.dims(name)
        return self.rewriter.insert_node(self.node, "Where", (name, *numbers), dims, dtype=_F32)

    def compare(self, lengths: str) -> str:
        """Return which keys are seen, by the number of valid keys of each batch element; queries are the last ones."""
        rewriter, (batch, _, queries, keys) = self.rewriter, self.dims
        rows = np.arange(queries - 1, -1, -1) if self.is_causal() else np.zeros(1, np.int64)
        table = self.add_constant((np.arange(keys) + rows[:, None])[None, None])
        counts = rewriter.insert_reshape(self.node, lengths, (batch, 1, 1, 1))
        dims = (batch, 1, len(rows), keys)
        return rewriter.insert_node(self.node, "Less", (table, counts), dims, dtype=np.dtype(bool))

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
