"""Models that are not read: golden/mistakes/onnx-models.txt has calls and the whole text of their errors."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, parser

from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network, Node, Tensor
from inlay.graph.numpy_operators.evaluation import compute_node  # noqa: F401  calls of the file name it
from inlay.graph.onnx.reading import load, load_bound
from inlay.graph.op_graph import Array
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.networks import Model
from tests.support.written_models import written_model

OPEN = written_model("y = Relu(x)", ("n", 3, "height", None)).SerializeToString()
AGAIN: Any = load(OPEN, batch=2, dims={"height": 5, "x[3]": 7}).again


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def ones(*dims: int) -> Array:
    return np.ones(dims, np.float32)


def read(*written: Any, batch: int | None = None, **rest: Any) -> Network:
    return load_bound(written_model(*written, **rest).SerializeToString(), batch=batch)


def read_graph(text: str) -> Network:
    return load_bound(
        parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "local": 1]> {text}').SerializeToString()
    )


def model_with_weights(count: int = 1, **fields: Any) -> Model:
    """Return a model of x + w, whose stored w, four f32, is described by these fields of a TensorProto."""
    model = written_model("y = Add(x, w)", (4,))
    tensor = TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT, "dims": [4], **fields})
    model.graph.initializer.extend([tensor] * count)
    return model


def stored(count: int = 1, **fields: Any) -> Network:
    return load_bound(model_with_weights(count, **fields).SerializeToString())


def external(**entries: str) -> Model:
    """Return a model of x + w, with w in a file that the entries describe."""
    model = model_with_weights(data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        model.graph.initializer[0].external_data.add(key=key, value=value)
    return model


def beside(**entries: str) -> Network:
    Path("model.onnx").write_bytes(external(**entries).SerializeToString())
    return load_bound("model.onnx")


def relu(opset: int = 13, **dims: tuple[int, ...]) -> Network:
    tensors = {name: Tensor(name, its, np.dtype(np.float32)) for name, its in dims.items()}
    return Network("tiny", opset, ("x",), ("y",), (Node("n", "Relu", ("x",), ("y",)),), tensors, {})


@pytest.fixture(autouse=True)
def without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlay.graph.onnx.importer.find_onnxruntime", lambda: None)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a file of weights, a pipe, and links to a file and a folder outside."""
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    for place in (tmp_path, folder, outside):
        place.mkdir(exist_ok=True)
        (place / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (folder / "link.bin").symlink_to(outside / "w.bin")
    (folder / "out").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)


@pytest.mark.parametrize(("call", "error"), read_mistakes("onnx-models"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error.replace("{folder}", str(Path.cwd())), globals())


def test_valid_calls_raise_no_error() -> None:
    assert beside(location="w.bin", offset="0", length="16").constants["w"].tolist() == [0, 1, 2, 3]
    assert stored(raw_data=bytes(16)).inputs == ("x",)
    assert read("y = Relu(x)", (1, 3), batch=1).tensors["y"].dims == (1, 3)
    assert lower_network(relu(x=(2, 3), y=(2, 3))).outputs == ("y",)
