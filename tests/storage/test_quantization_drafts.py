"""Sizes of the boxes of quantizations: whole groups, blocks and chunks of the target."""

from math import prod

import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay.layout import Dims
from inlay.storage import convert, open_store, parse_rule, plan
from inlay.storage.quantization import Quantization, parse_quantization
from inlay.storage.quantization_plan import QuantizationPlanner
from inlay.storage.target import TargetTensor
from inlay.storage.tensor_draft import ReorderDraft


def extents_in_chunks_of_12(path: str, quantization: Quantization | None, rule: str | None) -> Dims:
    """The extents of the boxes of w, if every target has chunks of 12 along each axis."""
    store = open_store(path)
    planner = QuantizationPlanner(store, quantization, quantization is None, "{name}_scale", None)
    tensor = next(tensor for tensor in store.tensors if tensor.name == "w")
    draft = planner.draft(tensor, tensor.desc, None if rule is None else parse_rule(rule))
    assert draft is not None
    assert not isinstance(draft, ReorderDraft)
    targets = {}
    for new in draft.news:
        chunks = tuple(min(n, 12) for n in new.bytes_desc.dims)
        targets[new.name] = TargetTensor(new.name, new.bytes_desc, new.nbytes, chunks=chunks)
    operation, extents = draft.place(targets, 170_000)
    assert {tensor.name for tensor in operation.targets} == targets.keys()
    assert prod(extents) < 60 * 640
    return extents


@pytest.fixture(autouse=True)
def weights(directory: object) -> None:
    save_file({"w": np.ones((60, 640), np.float32)}, "w.safetensors")


@pytest.mark.parametrize(("scheme", "last"), [("absmax", 12), ("absmax:group=8", 96), ("absmax:1", 12)])
def test_quants_and_scales_are_written_in_whole_chunks(scheme: str, last: int) -> None:
    extents = extents_in_chunks_of_12("w.safetensors", parse_quantization(scheme, "s8"), "*=plain")
    assert extents[0] % 12 == 0
    assert extents[1] % last == 0 or extents[1] == 640


def test_blocks_are_written_in_whole_chunks() -> None:
    extents = extents_in_chunks_of_12("w.safetensors", parse_quantization("absmax", None), "*=ggml:Q8_0")
    assert extents[0] % 12 == 0
    assert extents[1] % 192 == 0 or extents[1] == 640  # 6 blocks of 34 bytes are 17 chunks


def test_floats_are_written_in_whole_chunks() -> None:
    convert(plan("w.safetensors", "q.safetensors", ["plain"], quantize="absmax:group=8", data_type="s8"))
    extents = extents_in_chunks_of_12("q.safetensors", None, None)
    assert extents[0] % 12 == 0
    assert extents[1] % 24 == 0 or extents[1] == 640
    convert(plan("w.safetensors", "b.safetensors", ["ggml:Q8_0"], quantize="absmax"))
    extents = extents_in_chunks_of_12("b.safetensors", None, None)
    assert extents[0] % 12 == 0
    assert extents[1] % 102 == 0 or extents[1] == 680  # 3 blocks of 34 bytes are 8 chunks of floats
