"""`find_cache_updates`: the nodes TensorScatter of a model that update a cache, and the inputs with their positions.

    present = TensorScatter(past, new, write_indices)       y = Attention(q, present, ..., nonpad_kv_seqlen)

Source: ONNX, "Operators": TensorScatter, Attention.
"""

from collections.abc import Mapping

from inlay.graph.onnx.initializers import Proto
from inlay.graph.onnx.parsing import ParsedModel
from inlay.graph.states import CacheUpdate, CacheUpdates

_PASSING = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Operators that keep the numbers of indices or counts."""
_INDICES = 2
"""Input of TensorScatter with the position of the first new element of each batch element."""
_COUNTS = 6
"""Input of Attention with the number of valid keys of each batch element."""


def find_cache_updates(model: ParsedModel) -> CacheUpdates:
    """Return the updates of inputs whose results are outputs, and the inputs that count valid keys."""
    graph = model.model.graph
    inputs, outputs = {value.name for value in graph.input}, {value.name for value in graph.output}
    producers = {name: node for node in graph.node for name in node.output}
    updates: dict[str, CacheUpdate] = {}
    counts: dict[str, None] = {}
    has_prompts = True
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        attributes = {one.name: one.i for one in node.attribute}
        if node.op_type == "TensorScatter" and node.input[0] in inputs and node.output[0] in outputs:
            source, name = _source(node, _INDICES, producers), node.name or node.output[0]
            index = source if source in inputs or not source else None
            updates[node.input[0]] = CacheUpdate(name, node.output[0], attributes.get("axis", -2), index)
        elif node.op_type == "Attention" and (count := _source(node, _COUNTS, producers)):
            counts |= {count: None} if count in inputs else {}
            has_prompts = has_prompts and count in inputs and bool(attributes.get("is_causal", 0))
    return CacheUpdates(updates, tuple(counts), has_prompts)


def _source(node: Proto, index: int, producers: Mapping[str, Proto]) -> str:
    """Return the tensor whose numbers an input has, before conversions and reshapes; empty if it is left out."""
    name = str(node.input[index]) if len(node.input) > index else ""
    while name in producers and producers[name].op_type in _PASSING:
        name = str(producers[name].input[0])
    return name
