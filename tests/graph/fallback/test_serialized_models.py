"""Serialized models of ONNX that are read without the package onnx, compared with that package."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inlay.errors import FileError
from inlay.graph.fallback.serialized_models import MESSAGES, require_own_tensors, scan_operators
from inlay.graph.numpy_operators.call import onnx_code, onnx_dtype
from tests.support.network_runs import model_of, node
from tests.support.networks import bert


def test_the_fields_are_those_of_the_schema() -> None:
    """Every field with a message that contains nodes or tensors is followed, under its number."""
    for name, followed in MESSAGES.items():
        found = {
            one.number: one.message_type and one.message_type.name for one in getattr(onnx, name).DESCRIPTOR.fields
        }
        assert {number for number, message in found.items() if message in MESSAGES} == {
            number for number, message in followed.items() if message
        }
        assert all(found[number] == message for number, message in followed.items() if message)
    fields = onnx.TensorProto.DESCRIPTOR.fields_by_name
    assert set(MESSAGES["TensorProto"]) == {fields["external_data"].number, fields["data_location"].number}


def test_operators_are_those_of_all_nodes() -> None:
    model = bert(1, sequence=2, layers=1, hidden=4, heads=2)
    assert scan_operators(model.SerializeToString()) == {one.op_type for one in model.graph.node}
    body = model_of([node("Erf", "a", "b")], {"a": (2,)}, ["b"]).graph
    condition = numpy_helper.from_array(np.array(True), "c")
    branches = model_of([node("If", "c", "y", then_branch=body, else_branch=body)], {"a": (2,)}, ["y"])
    branches.graph.initializer.append(condition)
    assert scan_operators(branches.SerializeToString()) == {"If", "Erf"}


def test_a_tensor_in_another_file_is_found() -> None:
    model = model_of([node("Add", "x w", "y")], {"x": (2,)}, ["y"], {"w": np.ones(2, np.float32)})
    require_own_tensors(model.SerializeToString())
    model.graph.initializer[0].external_data.add(key="location", value="/etc/passwd")
    with pytest.raises(FileError, match="is in another file"):
        require_own_tensors(model.SerializeToString())
    del model.graph.initializer[0].external_data[:]
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    constant = helper.make_node("Constant", [], ["k"], value=model.graph.initializer[0])
    del model.graph.initializer[:]
    model.graph.node.append(constant)
    with pytest.raises(FileError, match="is in another file"):
        require_own_tensors(model.SerializeToString())


@pytest.mark.parametrize("content", [b"\x3a", b"\x3a\x05ab", b"\xff" * 20, b"\x0b", bytes([0x3A, 2] * 300)])
def test_bytes_that_are_no_model_are_refused(content: bytes) -> None:
    with pytest.raises(FileError):
        scan_operators(content)


def test_element_types_are_those_of_onnx() -> None:
    for name, code in TensorProto.DataType.items():
        if name != "UNDEFINED":
            assert onnx_dtype(code) == np.dtype(helper.tensor_dtype_to_np_dtype(code)), name
            assert onnx_code(onnx_dtype(code)) == code
