"""Untrusted model files: `load` returns a network or raises an `InlayError`, and reads no other folder."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from inlay.errors import FileError, InlayError, InvalidArguments, Unimplemented
from inlay.graph.onnx import parsing
from inlay.graph.onnx.reading import load
from tests.support.network_runs import model_of, node
from tests.support.networks import Model, bert
from tests.support.refusals import raises_exactly

NO_MODEL = "cannot read the model: it is no ONNX model, or was cut short; export or copy it again"


def small() -> Model:
    """Return a model with one of each: convolution, normalization, folded shapes, If, Constant, Clip."""
    value = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    branches = {
        f"{name}_branch": helper.make_graph([node(operator, "p", "r")], name, [], [value])
        for name, operator in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        node("Conv", "x w", "t", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("BatchNormalization", "t s s s s", "u"),
        node("Constant", "", "k", value=numpy_helper.from_array(np.array([2.0], np.float32))),
        node("Mul", "u k", "v"),
        node("Shape", "x", "d"),
        node("Slice", "d a b", "e"),
        node("Concat", "e minus", "f", axis=0),
        node("ConstantOfShape", "e", "g"),
        node("Reshape", "v f", "p"),
        helper.make_node("If", ["yes"], ["y"], "if", **branches),
    ]
    constants = {
        "w": np.ones((3, 2, 3, 3), np.float32),
        "s": np.ones(3, np.float32),
        "a": np.array([0]),
        "b": np.array([1]),
        "minus": np.array([-1]),
        "yes": np.array(True),
    }
    return model_of(nodes, {"x": (2, 2, 4, 4)}, ["y", "g"], constants)


SMALL = small().SerializeToString()
ENCODER = bert(1, sequence=2, layers=1, hidden=4, heads=2).SerializeToString()


def assert_read_or_refused(content: bytes) -> None:
    try:
        network = load(content)
    except InlayError:
        return
    assert set(network.outputs) <= set(network.tensors)


@settings(max_examples=300)
@given(st.sampled_from([SMALL, ENCODER]), st.data())
def test_no_byte_that_is_wrong_leads_to_another_error(content: bytes, data: st.DataObject) -> None:
    changed = bytearray(content)
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), min_size=1, max_size=4)
    ):
        changed[place] = value
    assert_read_or_refused(bytes(changed))


@pytest.mark.heavy
@pytest.mark.parametrize("content", [SMALL, ENCODER], ids=["small", "encoder"])
def test_no_bit_that_is_flipped_leads_to_another_error(content: bytes) -> None:
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        assert_read_or_refused(bytes(changed))


def test_a_file_that_is_cut_short_is_refused_or_read_at_every_length() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(InlayError):
            load(SMALL[:length])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", SMALL[:100], os.urandom(64) + b"\xff"])
def test_what_is_no_model_is_refused(content: bytes) -> None:
    with pytest.raises(FileError) as refused:
        load(content)
    no_graph = "cannot read the model: it is no ONNX model, it has no graph or no opset; export it again"
    assert str(refused.value) in (NO_MODEL, no_graph)


@pytest.mark.parametrize("inputs", [["x"], ["x", ""], ["", "x"], []])
def test_an_input_that_a_node_needs_is_not_left_out(inputs: list[str]) -> None:
    model = model_of([helper.make_node("Conv", inputs, ["y"], "c")], {"x": (1, 2, 3, 3)}, ["y"])
    with pytest.raises(FileError) as refused:
        load(model.SerializeToString())
    text = "node 'c': Conv needs its first 2 inputs, and one is left out: export the model again"
    assert str(refused.value) == text


def test_a_name_that_is_no_text_is_refused() -> None:
    content = model_of([node("Relu", "x", "name")], {"x": (1,)}, ["name"]).SerializeToString()
    with raises_exactly(FileError, "cannot read the model: a name in it is no text in UTF-8; export or copy it again"):
        load(content.replace(b"name", b"n\xffme"))


def test_what_protobuf_cannot_hold_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)  # sparse: it takes no space on the disk
    with raises_exactly(
        FileError,
        f"cannot read {path}: it has 2147483648 bytes, and a model holds 2147483647 at most; "
        "store its weights in files beside it",
    ):
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


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (node("LayerNormalization", "x s", "y", axis=1 << 31), "axis 2147483648 is not one of 2"),
        (node("GatherND", "x k", "y", batch_dims=-2), "batch_dims -2 is not one of 2"),
    ],
    ids=["axis", "batch_dims"],
)
def test_an_axis_that_onnx_looks_up_without_a_check_is_refused_before(made: Any, text: str) -> None:
    constants: dict[str, np.ndarray[Any, Any]] = {"s": np.ones(3, np.float32), "k": np.zeros((2, 1), np.int64)}
    model = model_of([made], {"x": (2, 3)}, ["y"], {name: constants[name] for name in made.input[1:]})
    with pytest.raises(InvalidArguments) as refused:
        load(model.SerializeToString())
    assert f": {text}; correct the model, or give its inputs other dims" in str(refused.value)


# Stored tensors


BROKEN_TENSORS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "too few bytes": (
        lambda graph: setattr(graph.initializer[0], "raw_data", b"\0" * 7),
        "tensor 'w': 7 bytes are stored, and dims (3, 2, 3, 3) of float32 require 216: export the model again",
    ),
    "too few numbers": (
        lambda graph: (graph.initializer[0].ClearField("raw_data"), graph.initializer[0].float_data.extend([1.0, 2.0])),
        "tensor 'w': its stored elements do not fill dims (3, 2, 3, 3) of float32: export the model again",
    ),
    "a negative extent": (
        lambda graph: graph.initializer[0].dims.__setitem__(0, -3),
        "tensor 'w' has a negative extent, (-3, 2, 3, 3): export the model again",
    ),
    "stored twice": (
        lambda graph: graph.initializer.append(graph.initializer[0]),
        "tensor 'w' is stored twice: export the model again",
    ),
}


@pytest.mark.parametrize("name", BROKEN_TENSORS)
def test_a_broken_tensor_is_rejected(name: str) -> None:
    change, text = BROKEN_TENSORS[name]
    model = small()
    change(model.graph)
    with raises_exactly(FileError, text):
        load(model.SerializeToString())


def test_a_sparse_tensor_is_refused() -> None:
    model = small()
    values, indices = (numpy_helper.from_array(np.array([1], dtype), "v") for dtype in (np.float32, np.int64))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    with raises_exactly(Unimplemented, "tensor 'v' is sparse: only dense weights are supported; store it dense"):
        load(model.SerializeToString())


# Files beside the model


def beside(folder: Path, **entries: str) -> Path:
    """Write a model whose weights, four f32, are in a file that the entries describe."""
    model = model_of([node("Add", "x w", "y")], {"x": (4,)}, ["y"], {"w": np.zeros(4, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("entries", [{}, {"offset": "0", "length": "16"}])
def test_weights_beside_the_model_are_read(tmp_path: Path, entries: dict[str, str]) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    network = load(beside(tmp_path, location="parts/w.bin", **entries))
    assert network.constants["w"].tolist() == [0, 1, 2, 3]
    assert not network.constants["w"].flags.writeable


def test_a_constant_of_a_node_beside_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "4")):
        tensor.external_data.add(key=key, value=value)
    model = model_of([node("Constant", "", "w", value=tensor), node("Add", "x w", "y")], {"x": (4,)}, ["y"])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert load(tmp_path / "model.onnx").constants["w"].tolist() == [1, 2, 3, 4]


OUTSIDE = (
    "a file beside the model is named by a relative path without '..'; put it into the model's folder and name it so"
)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"location": "/etc/hostname"}, f"tensor 'w' is stored in '/etc/hostname': {OUTSIDE}"),
        ({"location": "../w.bin"}, f"tensor 'w' is stored in '../w.bin': {OUTSIDE}"),
        ({"location": "a/../../w.bin"}, f"tensor 'w' is stored in 'a/../../w.bin': {OUTSIDE}"),
        ({"location": "..\\w.bin"}, f"tensor 'w' is stored in '..\\\\w.bin': {OUTSIDE}"),
        ({"location": "C:\\w.bin"}, f"tensor 'w' is stored in 'C:\\\\w.bin': {OUTSIDE}"),
        ({"location": "w.bin\0"}, f"tensor 'w' is stored in 'w.bin\\x00': {OUTSIDE}"),
        ({}, f"tensor 'w' is stored in '': {OUTSIDE}"),
        (
            {"location": "link.bin"},
            "tensor 'w' is stored in 'link.bin', a link that leads out of the model's folder: put the file itself "
            "into the folder",
        ),
        (
            {"location": "out/w.bin"},
            "tensor 'w' is stored in 'out/w.bin', a link that leads out of the model's folder: put the file itself "
            "into the folder",
        ),
        ({"location": "none.bin"}, "cannot read {folder}/none.bin: there is no such file; check the name"),
        ({"location": "."}, "cannot read {folder}: it is a directory; name a file"),
        ({"location": "pipe"}, "cannot read {folder}/pipe: it is a device or pipe; copy its content into a file"),
        (
            {"location": "w.bin", "offset": "4"},
            "tensor 'w': bytes 4 to 20 of w.bin are named, which has 16: it was cut short, or belongs to another model",
        ),
        (
            {"location": "w.bin", "length": "12"},
            "tensor 'w': 12 bytes of w.bin are named, and dims (4,) of float32 require 16: export the model again",
        ),
        (
            {"location": "w.bin", "offset": "-4"},
            "tensor 'w': the offset of its bytes is '-4', which is not a number of bytes: export the model again",
        ),
        (
            {"location": "w.bin", "length": "9" * 30},
            (
                f"tensor 'w': the length of its bytes is '{'9' * 30}', which is not a number of bytes: export the "
                "model again"
            ),
        ),
    ],
)
def test_no_other_file_is_read(tmp_path: Path, entries: dict[str, str], text: str) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    for place in (tmp_path, folder, outside):
        (place / "w.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(outside / "w.bin")
    (folder / "out").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    with raises_exactly(FileError, text.replace("{folder}", str(folder))):
        load(beside(folder, **entries))


def test_a_model_from_memory_has_no_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    content = beside(tmp_path, location="w.bin").read_bytes()
    with raises_exactly(
        FileError,
        "tensor 'w' is stored in a file beside the model, but the model was passed as bytes: pass its path to load",
    ):
        load(content)


def test_onnx_itself_reads_what_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    path = beside(tmp_path, location="w.bin")
    theirs = numpy_helper.to_array(onnx.load(path).graph.initializer[0])
    assert np.array_equal(load(path).constants["w"], theirs)


def cached(folder: Path, weights: str) -> Path:
    """Write a model as Hugging Face's cache does: names are links to files in one folder."""
    snapshot, blobs = folder / "snapshots" / "abc", folder / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    made = beside(blobs, location="model.onnx_data")
    made.rename(blobs / "1f")
    (snapshot / "model.onnx").symlink_to("../../blobs/1f")
    (snapshot / "model.onnx_data").symlink_to(weights)
    return snapshot / "model.onnx"


def test_weights_that_are_links_beside_the_target_of_the_model_are_read(tmp_path: Path) -> None:
    path = cached(tmp_path, "../../blobs/2e")
    (tmp_path / "blobs" / "2e").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    assert load(path).constants["w"].tolist() == [0, 1, 2, 3]


def test_weights_that_are_links_to_elsewhere_are_refused(tmp_path: Path) -> None:
    path = cached(tmp_path, "../../secret")
    (tmp_path / "secret").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    with raises_exactly(
        FileError,
        "tensor 'w' is stored in 'model.onnx_data', a link that leads out of the model's folder: put the file "
        "itself into the folder",
    ):
        load(path)


def test_a_model_that_is_no_link_reads_no_link_out_of_its_folder(tmp_path: Path) -> None:
    path = cached(tmp_path, "../../blobs/2e")
    (tmp_path / "blobs" / "2e").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    with pytest.raises(FileError, match="a link that leads out of the model's folder"):
        load(path)
