"""A network in functions of PyTorch computes the same: conversions, and choices that are right for any element."""

from typing import Any

import numpy as np
import pytest

from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.torch_graph import torch_runs
from tests.support.written_models import written_model

MASK = np.array([[True, False, True, True]])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a = Cast <to = 10> (x) y = Cast <to = 1> (a)", lambda x: x.astype(np.float16).astype(np.float32)),
        ("y = Where(m, x, low)", lambda x: np.where(MASK, x, np.float32(-1e9))),
        ("n = IsNaN(x) y = Where(n, zero, x)", np.nan_to_num),
    ],
)
def test_torch_computes_what_numpy_computes(text: str, wanted: Any) -> None:
    torch = pytest.importorskip("torch")
    constants: dict[str, Any] = {"m": MASK, "low": np.array(-1e9, np.float32), "zero": np.array(0, np.float32)}
    used = {name: array for name, array in constants.items() if f"{name}," in text or f"{name})" in text}
    graph = lower_network(load_bound(written_model(text, (3, 4), **used).SerializeToString()))
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    x[1, 2] = np.nan if "IsNaN" in text else 3
    for _, run in torch_runs(torch, graph, {"x": x}):
        np.testing.assert_array_equal(run()["y"], wanted(x))
