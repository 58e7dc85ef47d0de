"""GroupQueryAttention of ONNX Runtime, in decoders that keep states, as nodes that other passes and primitives know.

    GroupQueryAttention     RotaryEmbedding, Concat(past, new), MatMul, Mul, Add, Softmax, MatMul

The operator has the number of valid keys of each sequence, and writes new ones after these. A state has the new keys of
all sequences at one position, so the input `attention_mask` decides instead: which keys are seen, and, as its running
sum, the positions of queries and keys for the rotation. Both are the same where the number is the sum of the mask less
1, as in the models that onnxruntime-genai builds.

Other networks leave the operator to ONNX Runtime.

Source: ONNX Runtime, "Contrib Operators": com.microsoft.GroupQueryAttention.
"""

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from inlay.graph.network import Network, Node, Subgraph
from inlay.graph.passes.attention_operators import cap_scores, multiply_heads, scale_tensor
from inlay.graph.passes.rewriting import NetworkRewriter, rewrite_nodes
from inlay.graph.passes.simplification import simplify_network
from inlay.graph.states import TensorState

MASK = "attention_mask"
"""Input that is 1 for each position that others may read, 0 elsewhere."""
_PAST_KEYS, _PAST_VALUES, _COUNTS, _COSINES, _SINES, _POSITIONS = 3, 4, 5, 7, 8, 9
_PASSING = frozenset(("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Operators that keep the numbers of a mask or of a sum."""
_HEADS_FIRST = (0, 2, 1, 3)
_DEFAULTS = {
    "causal": (1,),
    "local_window_size": (-1,),
    "smooth_softmax": (0, -1),
    "qk_output": (0,),
    "kv_cache_bit_width": (0,),
    "sliding_window_cache": (0,),
}
"""Values of attributes that are supported; the first is the default."""
_INT64, _F32, _BOOL = np.dtype(np.int64), np.dtype(np.float32), np.dtype(bool)


def expand_group_query(network: Network, states: tuple[TensorState, ...]) -> Network:
    """Return the network with each GroupQueryAttention that reads a state as several nodes, where it is supported.

    The network has one new position after some, or any number of them after none.
    """
    pasts = {state.input for state in states}
    if MASK not in network.inputs:
        return network

    def expand(rewriter: NetworkRewriter, node: Node) -> Node | None:
        attention = _find_attention(node)
        if attention is None or not pasts.intersection(attention.inputs):
            return None
        expanded = _GroupQueryAttention(rewriter, node, attention)
        return expanded.last_node() if expanded.is_supported() else None

    expanded = rewrite_nodes(network, expand)
    return network if expanded.nodes == network.nodes else simplify_network(expanded)


def _find_attention(node: Node) -> Node | None:
    """Return the attention that a subgraph consists of, with the names of the network; None if it has other nodes."""
    if not isinstance(node, Subgraph) or len(node.nodes) != 1 or node.nodes[0].operator != "GroupQueryAttention":
        return None
    (inner,) = node.nodes
    names = dict(zip(node.inner_names, node.inputs, strict=True)) | {"": ""}
    if any(name not in names for name in inner.inputs):
        return None  # a constant of the subgraph
    outputs = (*inner.outputs, "", "")[:3]
    return Node(node.name, inner.operator, tuple(names[name] for name in inner.inputs), outputs, inner.attributes)


@dataclass(slots=True)
class _GroupQueryAttention:
    """A GroupQueryAttention that is expanded."""

    rewriter: NetworkRewriter
    """The network."""
    place: Node
    """The node of the network that it replaces."""
    node: Node
    """The attention, with names of the network."""

    def name(self, index: int) -> str:
        """Return the name of an input; empty if the node does not have it."""
        return self.node.inputs[index] if len(self.node.inputs) > index else ""

    def is_supported(self) -> bool:
        """Return whether it has float32 numbers, a past, no window, and none of the inputs after the positions."""
        attributes = self.node.attributes
        is_usual = all(attributes.get(name, values[0]) in values for name, values in _DEFAULTS.items())
        quantized = [attributes.get(f"{part}_quant_type", b"NONE") for part in "kv"]
        if not is_usual or any(one not in (b"NONE", "NONE") for one in quantized):
            return False
        if any(self.node.inputs[_POSITIONS + 1 :]) or not (self.name(_PAST_KEYS) and self.name(_PAST_VALUES)):
            return False
        if attributes.get("do_rotary", 0) and not (self.name(_COSINES) and self.name(_SINES)):
            return False
        tensors = [self.rewriter.tensors[name] for name in (*self.node.inputs[:3], self.node.outputs[0]) if name]
        is_step = self.past == 0 or self.rows == 1
        return is_step and all(tensor.dtype == _F32 for tensor in tensors) and self.counts_mask()

    def counts_mask(self) -> bool:
        """Return whether the number of valid keys is computed as the sum of `attention_mask` less 1."""
        rewriter = self.rewriter
        less = rewriter.producer(self.source(self.name(_COUNTS)))
        one = {"Sub": 1, "Add": -1}.get(less.operator) if less is not None else None
        if less is None or one is None or rewriter.scalar(less.inputs[1]) != one:
            return False
        total = rewriter.producer(self.source(less.inputs[0]))
        if total is None or total.operator != "ReduceSum" or prod(rewriter.dims(total.outputs[0])) != self.batch:
            return False
        return self.source(total.inputs[0]) == MASK

    def source(self, name: str) -> str:
        """Return the tensor whose numbers a tensor has, before conversions and reshapes."""
        node = self.rewriter.producer(name)
        while node is not None and node.operator in _PASSING:
            name = node.inputs[0]
            node = self.rewriter.producer(name)
        return name

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return self.rewriter.dims(self.name(0))[0]

    @property
    def past(self) -> int:
        """Number of positions of the past."""
        return self.rewriter.dims(self.name(_PAST_KEYS))[2]

    @property
    def rows(self) -> int:
        """Number of new positions."""
        return self.rewriter.dims(self.name(0))[1]

    def last_node(self) -> Node:
        """Return the last node of the attention; the others are inserted."""
        rewriter, place, attributes = self.rewriter, self.place, self.node.attributes
        queries, keys, values = self.operands()
        if attributes.get("do_rotary", 0):
            queries, keys = self.rotate(queries), self.rotate(keys)
        keys, values = self.extend(keys, _PAST_KEYS), self.extend(values, _PAST_VALUES)
        scale = attributes.get("scale") or 1 / sqrt(rewriter.dims(queries)[3])
        scores = multiply_heads(rewriter, place, queries, rewriter.insert_transpose(place, keys, (0, 1, 3, 2)))
        scores = cap_scores(rewriter, place, scale_tensor(rewriter, place, scores, scale), attributes.get("softcap", 0))
        dims = rewriter.dims(scores)
        scores = rewriter.insert_node(place, "Add", (scores, self.mask()), dims)
        shares = rewriter.insert_node(place, "Softmax", (scores,), dims, {"axis": -1})
        merged = rewriter.insert_transpose(place, multiply_heads(rewriter, place, shares, values), _HEADS_FIRST)
        shape = rewriter.add_constant(f"{place.outputs[0]}:shape", np.array(rewriter.dims(self.node.outputs[0])))
        return Node(place.name, "Reshape", (merged, shape), self.node.outputs[:1], {})

    def operands(self) -> tuple[str, str, str]:
        """Return new queries, keys and values with the axes batch, heads, sequence, features."""
        heads = [int(self.node.attributes[name]) for name in ("num_heads", "kv_num_heads", "kv_num_heads")]
        names = list(self.node.inputs[:3])
        if not names[1]:
            size = self.rewriter.dims(names[0])[2] // sum(heads)
            ends = np.cumsum(heads) * size
            names = [self.slice(names[0], int(end) - n * size, int(end)) for end, n in zip(ends, heads, strict=True)]
        queries, keys, values = (self.split_heads(name, count) for name, count in zip(names, heads, strict=True))
        return queries, keys, values

    def slice(self, name: str, start: int, stop: int) -> str:
        """Return features from `start` to `stop`."""
        dims = self.rewriter.dims(name)
        bounds = [self.rewriter.add_constant(f"{name}:bound", np.array([n], np.int64)) for n in (start, stop, 2)]
        return self.rewriter.insert_node(self.place, "Slice", (name, *bounds), (*dims[:2], stop - start))

    def split_heads(self, name: str, heads: int) -> str:
        """Return a tensor with an axis of heads before that of the sequence."""
        batch, rows, width = self.rewriter.dims(name)
        split = self.rewriter.insert_reshape(self.place, name, (batch, rows, heads, width // heads))
        return self.rewriter.insert_transpose(self.place, split, _HEADS_FIRST)

    def rotate(self, name: str) -> str:
        """Return queries or keys with a rotary embedding of their positions."""
        rewriter, tables = self.rewriter, (self.name(_COSINES), self.name(_SINES))
        dims, size = rewriter.dims(name), 2 * rewriter.dims(tables[0])[1]
        attributes = {
            "interleaved": self.node.attributes.get("rotary_interleaved", 0),
            "rotary_embedding_dim": size if size < dims[3] else 0,
        }
        inputs = (name, *tables, self.name(_POSITIONS) or self.positions())
        return rewriter.insert_node(self.place, "RotaryEmbedding", inputs, dims, attributes)

    def positions(self) -> str:
        """Return the position of each new row, int64 (batch, rows): the sum of the mask so far, less 1."""
        rewriter, place = self.rewriter, self.place
        batch, total = rewriter.dims(MASK)
        mask = self.cast_mask(_INT64)
        axis, one = (rewriter.add_constant("one", np.array(n, np.int64)) for n in (1, 1))
        if self.rows == 1:
            axes = rewriter.add_constant("axes", np.array([1], np.int64))
            sums = rewriter.insert_node(place, "ReduceSum", (mask, axes), (batch, 1), {"keepdims": 1})
        else:
            sums = rewriter.insert_node(place, "CumSum", (mask, axis), (batch, total))
        least = rewriter.insert_node(place, "Sub", (sums, one), (batch, self.rows))
        zero = rewriter.add_constant("zero", np.array(0, np.int64))
        return rewriter.insert_node(place, "Max", (least, zero), (batch, self.rows))  # padding before a sequence has 0

    def cast_mask(self, dtype: np.dtype[np.int64] | np.dtype[np.bool_]) -> str:
        """Return the input `attention_mask` in another type."""
        rewriter = self.rewriter
        if rewriter.tensors[MASK].dtype == dtype:
            return MASK
        number = 7 if dtype == _INT64 else 9  # of ONNX's TensorProto
        return rewriter.insert_node(self.place, "Cast", (MASK,), rewriter.dims(MASK), {"to": number}, dtype)

    def mask(self) -> str:
        """Return numbers that are added to scores: 0 for keys that are seen, -1e9 for others."""
        rewriter, place = self.rewriter, self.place
        batch, total = rewriter.dims(MASK)
        numbers = [rewriter.add_constant("number", np.array(number, np.float32)) for number in (0, -1e9)]
        flat = (self.cast_mask(_BOOL), *numbers)
        seen = rewriter.insert_node(place, "Where", flat, (batch, total), dtype=_F32)
        added = rewriter.insert_reshape(place, seen, (batch, 1, 1, total))
        if self.rows == 1:
            return added
        later = np.triu(np.full((self.rows, self.rows), -1e9, np.float32), 1)
        causal = rewriter.add_constant("causal", later)
        return rewriter.insert_node(place, "Add", (added, causal), (batch, 1, self.rows, self.rows))

    def extend(self, new: str, index: int) -> str:
        """Return keys or values after those of the past, which are a result too."""
        batch, heads, rows, size = self.rewriter.dims(new)
        present = self.node.outputs[index - _PAST_KEYS + 1]
        dims = (batch, heads, self.past + rows, size)
        return self.rewriter.insert_node(
            self.place, "Concat", (self.name(index), new), dims, {"axis": 2}, result=present
        )
