"""A small decoder with GroupQueryAttention of ONNX Runtime, in the form that onnxruntime-genai builds."""

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, GROUPS, FEATURES, VOCABULARY, POSITIONS = 2, 4, 2, 16, 96, 256


def group_query_decoder(*, is_packed: bool = False, less: int = 1, **attributes: Any) -> bytes:
    """Return the model as a file: inputs `input_ids`, `attention_mask` and two states for each layer.

    The number of valid keys is the sum of the mask less `less`, which is 1 in valid models. If `is_packed`, queries,
    keys and values are one input of the operator. `attributes` are more attributes of it.
    """
    made = _GroupQueryGraph(is_packed, less, {"do_rotary": 1, **attributes})
    graph = helper.make_graph(made.nodes, "group_query", made.inputs, made.outputs, made.constants)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    data: bytes = model.SerializeToString()
    return data


class _GroupQueryGraph:
    """The graph of the decoder."""

    def __init__(self, is_packed: bool, less: int, attributes: dict[str, Any]) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.rng, self.is_packed, self.attributes = np.random.default_rng(0), is_packed, attributes
        kinds = (("input_ids", "sequence"), ("attention_mask", "total"))
        self.inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", dim]) for name, dim in kinds]
        self.outputs = [helper.make_tensor_value_info("logits", 1, ["batch", "sequence", VOCABULARY])]
        sums = self.add("ReduceSum", "attention_mask", self.constant([1], np.int64), keepdims=0)
        lengths = self.add("Cast", self.add("Sub", sums, self.constant(less, np.int64)), to=TensorProto.INT32)
        total = self.add("Gather", self.add("Shape", "attention_mask"), self.constant(1, np.int64))
        angles = np.arange(POSITIONS)[:, None] / 1e4 ** (np.arange(FEATURES // 2) * 2 / FEATURES)
        tables = [self.constant(table) for table in (np.cos(angles), np.sin(angles))]
        self.shared = [lengths, self.add("Cast", total, to=TensorProto.INT32), *tables]
        hidden = self.add("Gather", self.weights(VOCABULARY, HEADS * FEATURES), "input_ids")
        for layer in range(LAYERS):
            hidden = self.add_layer(layer, hidden)
        self.nodes.append(helper.make_node("MatMul", [hidden, self.weights(HEADS * FEATURES, VOCABULARY)], ["logits"]))

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

    def weights(self, rows: int, columns: int) -> str:
        """Add a random matrix."""
        return self.constant(self.rng.standard_normal((rows, columns)) / np.sqrt(rows))

    def add_layer(self, layer: int, hidden: str) -> str:
        """Add attention and two products; return the result."""
        width = HEADS * FEATURES
        names = [f"attended_{layer}", f"present.{layer}.key", f"present.{layer}.value"]
        pasts = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        dims: list[str | int | None] = ["batch", GROUPS, "past", FEATURES]
        self.inputs += [helper.make_tensor_value_info(name, 1, dims) for name in pasts]
        self.outputs += [helper.make_tensor_value_info(name, 1, [*dims[:2], "total", FEATURES]) for name in names[1:]]
        ones, zeros = self.constant(np.ones(width)), self.constant(np.zeros(width))
        normal = self.add("LayerNormalization", hidden, ones, zeros, axis=-1)
        parts = [self.add("MatMul", normal, self.weights(width, n * FEATURES)) for n in (HEADS, GROUPS, GROUPS)]
        if self.is_packed:
            parts = [self.add("Concat", *parts, axis=2), "", ""]
        tables = [] if not self.attributes["do_rotary"] else self.shared[2:]
        heads: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": GROUPS}
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [*parts, *pasts, *self.shared[:2], *tables],
                names,
                name=f"attention_{layer}",
                domain="com.microsoft",
                **heads,
                **self.attributes,
            )
        )
        joined = self.add("Add", hidden, self.add("MatMul", names[0], self.weights(width, width)))
        inner = self.add("Relu", self.add("MatMul", joined, self.weights(width, 2 * width)))
        return self.add("Add", joined, self.add("MatMul", inner, self.weights(2 * width, width)))
