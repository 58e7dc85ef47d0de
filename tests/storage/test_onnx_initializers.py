"""Initializers of ONNX models, made by the package onnx: in the model, beside it, and where they must not be."""

import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from inlay.errors import FileError
from inlay.storage import convert, open_memories, open_store, plan
from tests.support.refusals import raises_exactly
from tests.support.stored_arrays import Arrays, arrays, assert_holds
from tests.support.tensor_files import numbered, run


def write_model(tensors: list[Any], path: str = "m.onnx") -> None:
    graph = helper.make_graph([], "g", [], [], tensors)
    Path(path).write_bytes(helper.make_model(graph).SerializeToString())


def protos(given: Arrays) -> list[Any]:
    return [numpy_helper.from_array(array, name) for name, array in given.items()]


def test_tensors_in_the_model_are_read() -> None:
    write_model(protos(arrays()))
    run("m.onnx", "out.safetensors")
    assert_holds("out.safetensors", arrays())


def test_equal_tensors_and_tensors_within_one_another_are_told_apart() -> None:
    zeros: Arrays = {"a": np.zeros(100), "b": np.zeros(40), "c": np.zeros(100, np.uint8), "d": np.arange(3.0)}
    write_model(protos(zeros))
    run("m.onnx", "out.safetensors")
    assert_holds("out.safetensors", zeros)


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    [
        (TensorProto.FLOAT, [1.5, -2.0], np.array([1.5, -2.0], np.float32)),
        (TensorProto.DOUBLE, [1.5, -2.0], np.array([1.5, -2.0])),
        (TensorProto.INT64, [1, -(2**40)], np.array([1, -(2**40)])),
        (TensorProto.INT32, [1, -2], np.array([1, -2], np.int32)),
        (TensorProto.UINT8, [1, 255], np.array([1, 255], np.uint8)),
        (TensorProto.INT16, [1, -300], np.array([1, -300], np.int16)),
        (TensorProto.UINT64, [1, 2**63], np.array([1, 2**63], np.uint64)),
        (TensorProto.BOOL, [True, False], np.array([True, False])),
        (TensorProto.FLOAT16, [1.5, -2.0], np.array([1.5, -2.0], np.float16)),
        (TensorProto.COMPLEX64, [1 + 2j, -2.0], np.array([1 + 2j, -2.0], np.complex64)),
    ],
)
def test_elements_of_variable_length_are_read(code: int, values: list[Any], expected: Any) -> None:
    write_model([helper.make_tensor("t", code, [2], values), numpy_helper.from_array(np.arange(3.0), "u")])
    made = pickle.loads(pickle.dumps(plan("m.onnx", "out.safetensors")))
    convert(made)
    assert_holds("out.safetensors", {"t": expected, "u": np.arange(3.0)})


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_small_floats_are_read(dtype: Any) -> None:
    array = numbered((3, 5), dtype)
    write_model([numpy_helper.from_array(array, "t")])
    run("m.onnx", "out.safetensors", "ba")
    assert open_memories("out.safetensors")["t"].unpack().tobytes() == array.tobytes()


@pytest.mark.parametrize("is_raw", [True, False])
def test_elements_of_four_bits_are_packed_as_onnx_packs_them(is_raw: bool) -> None:
    values = np.array([[1, -2, 7, -1], [-8, 0, 3, 5]], np.int8)
    if is_raw:
        proto = numpy_helper.from_array(values.astype(ml_dtypes.int4), "t")
    else:
        proto = helper.make_tensor("t", TensorProto.INT4, [2, 4], values.reshape(-1).tolist())
    write_model([proto])
    assert np.array_equal(open_memories("m.onnx")["t"].unpack().astype(np.int8), values)


def write_external(location: str = "weights.data", **entries: str) -> dict[str, Any]:
    """A model whose first tensor is in a file beside it; returns its tensors."""
    given = {"w": numbered((33, 17)), "b": numbered((33,))}
    first, second = protos(given)
    Path("weights.data").write_bytes(b"x" * 64 + first.raw_data)
    external_data_helper.set_external_data(first, location, 64, len(first.raw_data))
    first.ClearField("raw_data")
    for entry in first.external_data:
        entry.value = entries.get(entry.key, entry.value)
    write_model([first, second])
    return given


def test_tensors_beside_the_model_are_ranges_of_bytes() -> None:
    given = write_external()
    store = open_store("m.onnx")
    assert [(t.name, t.file, t.begin) for t in store.tensors if t.file] == [("w", 1, 64)]
    run("m.onnx", "out.safetensors", "w=aB16b")
    run("out.safetensors", "back.safetensors", "plain")
    assert_holds("back.safetensors", given)


def test_a_model_in_a_folder_of_links_is_read() -> None:
    """As in the cache of Hugging Face: links of the model and of its data lead to one other folder."""
    given = write_external()
    for folder in ("blobs", "snapshot"):
        Path(folder).mkdir()
    for name in ("m.onnx", "weights.data"):
        Path(name).rename(f"blobs/{name}")
        Path("snapshot", name).symlink_to(f"../blobs/{name}")
    run("snapshot/m.onnx", "out.safetensors")
    assert_holds("out.safetensors", given)


BESIDE = (
    "files beside a model are named by relative paths without '..'; put the file into the folder of the model and name "
    "it so"
)


@pytest.mark.parametrize("location", ["../weights.data", "/etc/passwd", "a/../../b", "..\\b", "C:\\b", "", "s3://b/c"])
def test_files_outside_the_folder_of_the_model_are_refused(location: str) -> None:
    write_external(location)
    text = f"cannot read m.onnx: initializer w is stored in {location!r}, and {BESIDE}"
    with raises_exactly(FileError, text):
        open_store("m.onnx")


def test_links_out_of_the_folder_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    write_external()
    other = tmp_path_factory.mktemp("other") / "secret"
    Path("weights.data").rename(other)
    Path("weights.data").symlink_to(other)
    text = (
        "cannot read m.onnx: initializer w is stored in 'weights.data', a link that leads out of the folder of the "
        "model; put the file itself into the folder"
    )
    with raises_exactly(FileError, text):
        open_store("m.onnx")


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (
            {"offset": "65"},
            "initializer w is in bytes 65 to 2309 of weights.data, which has 2308; copy that file again from its "
            "source",
        ),
        ({"offset": "-1"}, "the offset of initializer w is '-1', and no number of bytes; export the model again"),
        (
            {"offset": "9" * 30},
            f"the offset of initializer w is '{'9' * 30}', and no number of bytes; export the model again",
        ),
        ({"length": "5"}, "initializer w has 5 bytes, and its dims (33, 17) need 2244; export the model again"),
    ],
)
def test_ranges_outside_the_file_are_refused(entries: dict[str, str], reason: str) -> None:
    write_external(**entries)
    with raises_exactly(FileError, f"cannot read m.onnx: {reason}"):
        open_store("m.onnx")


def test_a_missing_file_beside_the_model_is_named() -> None:
    write_external()
    Path("weights.data").unlink()
    with raises_exactly(FileError, "cannot read weights.data: there is no such file; check the name"):
        open_store("m.onnx")


NUMBERS = "only numbers and booleans are read"


def too_short() -> Any:
    proto = numpy_helper.from_array(numbered((3,)), "t")
    proto.raw_data = proto.raw_data[:-1]
    return proto


def texts() -> Any:
    proto = TensorProto(name="t", data_type=TensorProto.STRING, dims=[1])
    proto.string_data.append(b"x")
    return proto


def negative() -> Any:
    proto = numpy_helper.from_array(numbered((3,)), "t")
    proto.dims[:] = [-3]
    return proto


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (
            [texts()],
            f"initializer t has elements of type STRING; {NUMBERS}",
        ),
        ([too_short()], "initializer t has 11 bytes, and its dims (3,) need 12; export the model again"),
        ([negative()], f"initializer t has dims (-3,); {NUMBERS}"),
        (protos({"t": numbered((3,))}) * 2, "two initializers are named t; export the model again"),
    ],
)
def test_tensors_without_right_bytes_are_refused(tensors: list[Any], reason: str) -> None:
    write_model(tensors)
    with raises_exactly(FileError, f"cannot read m.onnx: {reason}"):
        open_store("m.onnx")


@pytest.mark.parametrize("content", [b"", b"no model", onnx.ModelProto(ir_version=8).SerializeToString()])
def test_other_files_are_refused(content: bytes) -> None:
    Path("m.onnx").write_bytes(content)
    with raises_exactly(FileError, "cannot read m.onnx: it is truncated or no ONNX model; export it again"):
        open_store("m.onnx")
