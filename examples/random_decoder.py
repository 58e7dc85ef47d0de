"""A decoder with random weights as transformers exports one: with keys and values of earlier positions as inputs.

    random_decoder(layers=12, width=768)      a model of the size of GPT-2

    input_ids, position_ids (batch, sequence), attention_mask (batch, total)
    past_key_values.0.key (batch, heads, past, features)  ...
        -> logits (batch, sequence, vocabulary), present.0.key (batch, heads, total, features) ...

Here `total` is `past` plus `sequence`. All weights are seeded. `examples/generate.py` generates tokens with it.

>>> model = random_decoder(layers=2, width=32, heads=4, vocabulary=64)
>>> [value.name for value in model.graph.output]
['logits', 'present.0.key', 'present.0.value', 'present.1.key', 'present.1.value']

Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 8
LOWEST = float(np.finfo(np.float32).min)

Floats = npt.NDArray[np.float32]
Model = Any  # onnx.ModelProto, whose package ships no types


def random_decoder(
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    positions: int = 1024,
    *,
    has_mask: bool = True,
    has_position_ids: bool = True,
    is_additive: bool = False,
    seed: int = 0,
) -> Model:
    """Return the model.

    Without `has_mask` it has no input `attention_mask`. Without `has_position_ids` it computes positions from the
    length of the past. If `is_additive`, the mask of absent positions is a product that is added, as in older exports;
    otherwise both masks are combined as truth values.
    """
    graph = _DecoderGraph(np.random.default_rng(seed), width, heads)
    graph.begin(vocabulary, positions, has_mask, has_position_ids, is_additive)
    for layer in range(layers):
        graph.add_layer(layer)
    graph.finish(vocabulary)
    made = helper.make_graph(graph.nodes, "decoder", graph.inputs, graph.outputs, graph.constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=IR_VERSION)


@dataclass
class _DecoderGraph:
    """The graph of a decoder while it is written."""

    rng: np.random.Generator
    width: int
    heads: int
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    hidden: str = ""
    """Tensor that the next layer reads."""
    mask: str = ""
    """Tensor of 0 and of the lowest number, which is added to scores."""

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its result."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, array: npt.ArrayLike, dtype: Any = np.float32) -> str:
        """Add a constant, and return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def indices(self, *numbers: int) -> str:
        """Add a constant of whole numbers with one axis."""
        return self.constant(numbers, np.int64)

    def weights(self, rows: int, columns: int) -> str:
        """Add a random matrix whose products have the variance of their source."""
        drawn = self.rng.standard_normal((rows, columns), np.float32)
        return self.constant(drawn / np.float32(math.sqrt(rows)))

    def input(self, name: str, dims: tuple[int | str, ...], kind: int = TensorProto.INT64) -> str:
        """Add an input."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, dims))
        return name

    def output(self, name: str, source: str, dims: tuple[int | str, ...]) -> None:
        """Add an output that has the elements of `source`."""
        self.nodes.append(helper.make_node("Identity", [source], [name], name=f"{name}:output"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))

    def length(self, name: str, axis: int) -> str:
        """Add the extent of an axis, as one element of one axis."""
        return self.add("Gather", self.add("Shape", name), self.indices(axis), axis=0)

    def begin(self, vocabulary: int, positions: int, has_mask: bool, has_position_ids: bool, is_additive: bool) -> None:
        """Add the embeddings of tokens and positions, and the mask."""
        ids = self.input("input_ids", ("batch", "sequence"))
        mask = self.input("attention_mask", ("batch", "total")) if has_mask else ""
        given = self.input("position_ids", ("batch", "sequence")) if has_position_ids else ""
        features = self.width // self.heads
        past = self.length(
            self.input("past_key_values.0.key", ("batch", self.heads, "past", features), TensorProto.FLOAT), 2
        )
        total = self.add("Add", past, self.length(ids, 1))
        scalar = self.indices(0)
        first, last = (self.add("Squeeze", name, scalar) for name in (past, total))
        one = self.constant(1, np.int64)
        queries = self.add("Range", first, last, one)
        keys = self.add("Range", self.constant(0, np.int64), last, one)
        allowed = self.add("LessOrEqual", keys, self.add("Unsqueeze", queries, self.indices(1)))
        lowest, zero = self.constant(LOWEST), self.constant(0)
        tokens = self.add("Gather", self.weights(vocabulary, self.width), ids)
        places = self.add("Gather", self.weights(positions, self.width), given or queries)
        self.hidden = self.add("Add", tokens, places)
        wide = self.add("Unsqueeze", mask, self.indices(1, 2)) if mask else ""
        if mask and not is_additive:
            allowed = self.add("And", allowed, self.add("Cast", wide, to=TensorProto.BOOL))
        self.mask = self.add("Where", allowed, zero, lowest)
        if mask and is_additive:
            present = self.add("Cast", wide, to=TensorProto.FLOAT)
            absent = self.add("Mul", self.add("Sub", self.constant(1), present), lowest)
            self.mask = self.add("Add", self.mask, absent)

    def normalize(self, name: str) -> str:
        """Add a normalization over features."""
        scale, shift = self.constant(np.ones(self.width)), self.constant(np.zeros(self.width))
        return self.add("LayerNormalization", name, scale, shift, axis=-1, epsilon=1e-5)

    def project(self, name: str, rows: int, columns: int) -> str:
        """Add a product with a matrix, and a bias."""
        product = self.add("MatMul", name, self.weights(rows, columns))
        return self.add("Add", product, self.constant(self.rng.standard_normal(columns) * 0.1))

    def split_heads(self, name: str) -> str:
        """Add the axes batch, heads, sequence, features."""
        dims = self.indices(0, 0, self.heads, self.width // self.heads)
        return self.add("Transpose", self.add("Reshape", name, dims), perm=(0, 2, 1, 3))

    def add_layer(self, layer: int) -> None:
        """Add attention and a network of two products, each with a normalization before it."""
        width, features = self.width, self.width // self.heads
        for part in ("key", "value") if layer else ("value",):
            self.input(f"past_key_values.{layer}.{part}", ("batch", self.heads, "past", features), TensorProto.FLOAT)
        joined = self.project(self.normalize(self.hidden), width, 3 * width)
        parts = [f"layer_{layer}_{part}" for part in ("query", "new_key", "new_value")]
        sizes = self.indices(width, width, width)
        self.nodes.append(helper.make_node("Split", [joined, sizes], parts, name=f"split_{layer}", axis=2))
        query, new_key, new_value = map(self.split_heads, parts)
        key, value = (
            self.add("Concat", f"past_key_values.{layer}.{part}", new, axis=2)
            for part, new in (("key", new_key), ("value", new_value))
        )
        for part, present in (("key", key), ("value", value)):
            self.output(f"present.{layer}.{part}", present, ("batch", self.heads, "total", features))
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=(0, 1, 3, 2)))
        scaled = self.add("Div", scores, self.constant(math.sqrt(features)))
        shares = self.add("Softmax", self.add("Add", scaled, self.mask), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", shares, value), perm=(0, 2, 1, 3))
        attended = self.project(self.add("Reshape", mixed, self.indices(0, 0, width)), width, width)
        self.hidden = self.add("Add", self.hidden, attended)
        inner = self.project(self.normalize(self.hidden), width, 4 * width)
        root = self.add("Erf", self.add("Div", inner, self.constant(math.sqrt(2))))
        active = self.add("Mul", self.add("Mul", inner, self.add("Add", root, self.constant(1))), self.constant(0.5))
        self.hidden = self.add("Add", self.hidden, self.project(active, 4 * width, width))

    def finish(self, vocabulary: int) -> None:
        """Add the product with the matrix of tokens."""
        logits = self.add("MatMul", self.normalize(self.hidden), self.weights(self.width, vocabulary))
        self.output("logits", logits, ("batch", "sequence", vocabulary))
        self.outputs.insert(0, self.outputs.pop())
