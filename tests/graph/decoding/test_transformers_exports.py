"""Decoders that the package transformers exports with a cache, by both exporters of PyTorch, beside the modules."""

import warnings
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.graph.op_graph import Array
from inlay.graph.session import Session
from inlay.graph.states import StateOptions

pytestmark = pytest.mark.heavy
VOCABULARY, POSITIONS = 100, 140
LAYERS = {True: 1, False: 2}
"""Layers by whether dynamo exports them: it takes ten times as long as TorchScript, and layers are alike."""
SIZES = {"gpt2": (4, 16), "llama": (2, 16)}
"""Heads of the cache and features of a head; llama has two heads of queries for each."""
CLOSE = 1e-5


@cache
def module(name: str, attention: str, layers: int) -> Any:
    """A small decoder with seeded weights."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    sizes = {"vocab_size": VOCABULARY, "attn_implementation": attention}
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=layers, n_embd=64, n_head=4, n_positions=256, **sizes)
    else:
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        widths = {"hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 256}
        config = transformers.LlamaConfig(num_hidden_layers=layers, **heads, **widths, **sizes)
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def with_cache(decoder: Any) -> Any:
    """The decoder with keys and values as tensors."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

    class WithCache(torch.nn.Module):  # type: ignore[misc, name-defined]
        """A decoder whose inputs and outputs are tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.decoder = decoder

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, past: Any) -> Any:
            """Return logits and the cache after the new positions."""
            cache = transformers.DynamicCache()
            for layer, (keys, values) in enumerate(past):
                cache.update(keys, values, layer)
            found = self.decoder(
                input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache
            )
            kept = [part for layer in found.past_key_values.layers for part in (layer.keys, layer.values)]
            return found.logits, *kept

    return WithCache().eval()


@cache
def exported(name: str, attention: str, is_dynamo: bool) -> bytes:
    """The ONNX file of a decoder with inputs for the past, as exporters for generation write it."""
    torch = pytest.importorskip("torch")
    if is_dynamo:
        pytest.importorskip("onnxscript")
    layers = LAYERS[is_dynamo]
    decoder = with_cache(module(name, attention, layers))
    heads, features = SIZES[name]
    batch, new, past = 2, 3, 5
    keys = [tuple(torch.zeros(batch, heads, past, features) for _ in range(2)) for _ in range(layers)]
    places = torch.arange(past, past + new).repeat(batch, 1)
    arguments = places.clone(), torch.ones(batch, past + new, dtype=torch.int64), places, keys
    names = ["input_ids", "attention_mask", "position_ids"]
    states = [f"past_key_values.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    outputs = ["logits", *(state.replace("past_key_values", "present") for state in states)]
    stream, options = BytesIO(), {"input_names": [*names, *states], "output_names": outputs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_dynamo:
            dynamic = torch.export.Dim.DYNAMIC
            shapes: dict[str, Any] = {one: {0: dynamic, 1: dynamic} for one in names}
            shapes["past"] = [({0: dynamic, 2: dynamic},) * 2 for _ in range(layers)]
            torch.onnx.export(decoder, arguments, dynamo=True, dynamic_shapes=shapes, **options).save(stream)
        else:
            axes = {one: {0: "batch", 1: "total" if one == names[1] else "sequence"} for one in (*names, "logits")}
            axes |= {state: {0: "batch", 2: "past"} for state in states}
            axes |= {present: {0: "batch", 2: "total"} for present in outputs[1:]}
            torch.onnx.export(decoder, arguments, stream, dynamo=False, dynamic_axes=axes, opset_version=17, **options)
    return stream.getvalue()


def whole_logits(decoder: Any, ids: Array, mask: Array, places: Array) -> Array:
    """The logits of all positions by PyTorch."""
    import torch

    with torch.no_grad():
        arrays = [torch.from_numpy(array) for array in (ids, mask, places)]
        found = decoder(arrays[0], attention_mask=arrays[1], position_ids=arrays[2])
    logits: Array = found.logits.numpy()
    return logits


@pytest.mark.parametrize("name", sorted(SIZES))
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("is_dynamo", [True, False], ids=["dynamo", "script"])
def test_steps_of_an_export_equal_the_module(name: str, attention: str, is_dynamo: bool) -> None:
    """A prompt and single positions of a batch whose second sequence has padding before it."""
    network = inlay.load(exported(name, attention, is_dynamo))
    session = inlay.compile(network, costs="analytic", state=StateOptions(maximum=256))
    ids = np.random.default_rng(2).integers(0, VOCABULARY, (2, POSITIONS))
    mask = np.ones((2, POSITIONS), np.int64)
    mask[1, :4] = 0
    places = np.maximum(mask.cumsum(1) - 1, 0)
    state, rows = session.new_state(batch=2), []
    for first, last in ((0, 7), *((at, at + 1) for at in range(7, POSITIONS))):
        part = slice(first, last)
        inputs = {"input_ids": ids[:, part], "attention_mask": mask[:, :last], "position_ids": places[:, part]}
        rows.append(session.step(inputs, state=state)["logits"])
    decoder = module(name, attention, LAYERS[is_dynamo])
    found, expected = np.concatenate(rows, 1), whole_logits(decoder, ids, mask, places)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=CLOSE)
    np.testing.assert_allclose(found[1, 4:], expected[1, 4:], rtol=0, atol=CLOSE)
    require_fast_masks(session)


def require_fast_masks(session: Session) -> None:
    """Check that the masks of an export leave every plan with guards, and that none of these failed in a single step.

    The prompt has rows for padding before a sequence, whose scores are all minus infinity in some exports.
    """
    for kept in session._shapes.values():
        assert kept.program.compiled.guards.after is not None
        is_single = kept.program.input_dims["input_ids"][1] == 1
        assert not is_single or kept.program._history._failures == 0
