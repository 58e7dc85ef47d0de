"""Untrusted model files: `load` returns a network or raises an `InlayError`, and reads no other folder.

The errors of weights in other files are in test_mistakes.py.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from inlay.errors import FileError, InlayError, Unimplemented
from inlay.graph.onnx import parsing
from inlay.graph.onnx.reading import load, load_bound
from tests.graph.onnx.test_functions import TWICE
from tests.graph.onnx.test_functions import model as calling_model
from tests.graph.onnx.test_mistakes import external
from tests.support.networks import bert
from tests.support.refusals import raises_exactly
from tests.support.written_models import written_model

NO_MODEL = "cannot read the model: it is no ONNX model, or was cut short; export or copy it again"
NO_GRAPH = "cannot read the model: it is no ONNX model, it has no graph or no opset; export it again"

SMALL = written_model(
    """
    t = Conv <pads = [1, 1, 1, 1], kernel_shape = [3, 3]> (x, w)
    u = BatchNormalization(t, s, s, s, s)
    k = Constant <value = float[1] {2}> ()
    v = Mul(u, k)
    d = Shape(x)
    e = Slice(d, a, b)
    f = Concat <axis = 0> (e, minus)
    g = ConstantOfShape(e)
    p = Reshape(v, f)
    y = If <
        then_branch = then () => (float r) { r = Relu(p) },
        else_branch = other () => (float r) { r = Neg(p) }
    > (yes)
    """,
    (2, 2, 4, 4),
    "y g",
    w=np.ones((3, 2, 3, 3), np.float32),
    s=np.ones(3, np.float32),
    a=np.array([0]),
    b=np.array([1]),
    minus=np.array([-1]),
    yes=np.array(True),
).SerializeToString()
ENCODER = bert(1, sequence=2, layers=1, hidden=4, heads=2).SerializeToString()
CALLS = calling_model("{ a = local.Twice(x) y = local.Twice(a) }" + TWICE).SerializeToString()


def assert_read_or_refused(content: bytes) -> None:
    try:
        network = load_bound(content)
    except InlayError:
        return
    assert set(network.outputs) <= set(network.tensors)


@settings(max_examples=300)
@given(st.sampled_from([SMALL, ENCODER, CALLS]), st.data())
def test_no_byte_that_is_wrong_leads_to_another_error(content: bytes, data: st.DataObject) -> None:
    changed = bytearray(content)
    changes = st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255))
    for place, value in data.draw(st.lists(changes, min_size=1, max_size=4)):
        changed[place] = value
    assert_read_or_refused(bytes(changed))


@pytest.mark.heavy
@pytest.mark.parametrize("content", [SMALL, ENCODER, CALLS], ids=["small", "encoder", "calls"])
def test_no_bit_that_is_flipped_leads_to_another_error(content: bytes) -> None:
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        assert_read_or_refused(bytes(changed))


def test_a_file_that_is_cut_short_is_refused_at_every_length() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(InlayError):
            load(SMALL[:length])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", SMALL[:100], os.urandom(64) + b"\xff"])
def test_bytes_that_are_no_model_are_refused(content: bytes) -> None:
    with pytest.raises(FileError) as refused:
        load(content)
    assert str(refused.value) in (NO_MODEL, NO_GRAPH)


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    content = written_model("name = Relu(x)", (1,), "name").SerializeToString()
    with raises_exactly(FileError, "cannot read the model: a name in it is no text in UTF-8; export or copy it again"):
        load(content.replace(b"name", b"n\xffme"))


def test_a_file_larger_than_protobuf_supports_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)  # sparse: it takes no space on the disk
    text = "it has 2147483648 bytes, and a model holds 2147483647 at most; store its weights in files beside it"
    with raises_exactly(FileError, f"cannot read {path}: {text}"):
        load(path)


def test_more_nodes_than_a_network_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MOST_NODES", 9)
    with raises_exactly(Unimplemented, "the model has 10 nodes: 9 at most are read; cut it in parts"):
        load(SMALL)


def test_graphs_within_graphs_without_end_are_refused() -> None:
    def field(number: int, content: bytes) -> bytes:
        length, size = b"", len(content)
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    graph = b""
    for _ in range(5000):  # a node of the graph has an attribute that holds a graph
        graph = field(1, field(5, field(6, graph)))
    with raises_exactly(FileError, NO_MODEL):
        load(field(7, graph) + field(8, b"\x10\x11"))


def test_a_sparse_tensor_is_refused() -> None:
    model = onnx.ModelProto.FromString(SMALL)
    values, indices = (numpy_helper.from_array(np.array([1], dtype), "v") for dtype in (np.float32, np.int64))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    with raises_exactly(Unimplemented, "tensor 'v' is sparse: only dense weights are supported; store it dense"):
        load(model.SerializeToString())


# Files beside the model


def write_weights(path: Path, values: Sequence[int] = range(4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.array(values, np.float32).tobytes())


@pytest.mark.parametrize("entries", [{}, {"offset": "0", "length": "16"}])
def test_weights_beside_the_model_are_what_onnx_itself_reads(tmp_path: Path, entries: dict[str, str]) -> None:
    write_weights(tmp_path / "parts" / "w.bin")
    path = tmp_path / "model.onnx"
    path.write_bytes(external(location="parts/w.bin", **entries).SerializeToString())
    weights = load_bound(path).constants["w"]
    assert weights.tolist() == numpy_helper.to_array(onnx.load(path).graph.initializer[0]).tolist() == [0, 1, 2, 3]
    assert not weights.flags.writeable


def test_a_constant_of_a_node_beside_the_model_is_read(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.bin", range(5))
    model = written_model("w = Constant <value = float[4] {0, 0, 0, 0}> () y = Add(x, w)", (4,))
    tensor = model.graph.node[0].attribute[0].t
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "4")):
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert load_bound(tmp_path / "model.onnx").constants["w"].tolist() == [1, 2, 3, 4]


def cached(folder: Path, weights: str) -> Path:
    """Write a model as Hugging Face's cache does: names are links to files in one folder; return its path."""
    snapshot, blobs = folder / "snapshots" / "abc", folder / "blobs"
    snapshot.mkdir(parents=True)
    write_weights(blobs / "2e")
    write_weights(folder / "secret")
    (blobs / "1f").write_bytes(external(location="model.onnx_data").SerializeToString())
    (snapshot / "model.onnx").symlink_to("../../blobs/1f")
    (snapshot / "model.onnx_data").symlink_to(weights)
    return snapshot / "model.onnx"


def test_weights_that_are_links_beside_the_target_of_the_model_are_read(tmp_path: Path) -> None:
    assert load_bound(cached(tmp_path, "../../blobs/2e")).constants["w"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("weights", "is_link"), [("../../secret", True), ("../../blobs/2e", False)])
def test_weights_that_are_links_out_of_the_models_folder_are_refused(
    tmp_path: Path, weights: str, is_link: bool
) -> None:
    path = cached(tmp_path, weights)
    if not is_link:
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    text = "a link that leads out of the model's folder: put the file itself into the folder"
    with raises_exactly(FileError, f"tensor 'w' is stored in 'model.onnx_data', {text}"):
        load(path)
