"""`session(x)`: arrays by position or name, and results of their kind."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.rearranging.array_kinds import numpy_of_torch, torch_of_numpy
from tests.support.refusals import raises_exactly


def session_of(outputs: int, kind: int = TensorProto.FLOAT) -> inlay.Session:
    """Return the session of a network with `a + b`, and `a - b` if it has two outputs."""
    names = ("sum", "difference")[:outputs]
    inputs = [helper.make_tensor_value_info(name, kind, ["n", 3]) for name in "ab"]
    results = [helper.make_tensor_value_info(name, kind, ["n", 3]) for name in names]
    nodes = [helper.make_node(op, ["a", "b"], [name]) for op, name in zip(("Add", "Sub"), names, strict=False)]
    model = helper.make_model(
        helper.make_graph(nodes, "calls", inputs, results), opset_imports=[helper.make_opsetid("", 17)]
    )
    return inlay.compile(inlay.load(model.SerializeToString()), engine="reference", costs="analytic")


A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)


def test_arrays_by_position_and_by_name() -> None:
    session = session_of(1)
    for result in (session(A, B), session({"b": B, "a": A})):
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, A + B)


def test_several_outputs_are_a_tuple_in_their_order() -> None:
    results = session_of(2)(A, B)
    assert type(results) is tuple
    for result, expected in zip(results, (A + B, A - B), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_memory_is_answered_by_an_array() -> None:
    result = session_of(1)(inlay.pack(A, "ba"), inlay.pack(B, "ab"))
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, A + B)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_number_of_arrays_is_checked(count: int) -> None:
    text = (
        f"{count} arrays are given, and the inputs are a (n, 3), b (n, 3): give an array for each of them, in this "
        "order, or one mapping of names to arrays"
    )
    with raises_exactly(inlay.InvalidArguments, text):
        session_of(1)(*[A] * count)


def test_an_unknown_name_is_refused_as_by_run() -> None:
    text = "the network has no input 'c': it takes a (n, 3) float32, b (n, 3) float32"
    with raises_exactly(inlay.InvalidArguments, text):
        session_of(1)({"a": A, "c": B})


@pytest.mark.heavy
def test_torch_tensors_are_answered_by_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    session = session_of(2)
    for arguments in ((torch.from_numpy(A), torch.from_numpy(B)), (A, torch.from_numpy(B))):
        results = session(*arguments)
        assert all(isinstance(result, torch.Tensor) for result in results)
        assert results[1].tolist() == (A - B).tolist()


@pytest.mark.heavy
def test_a_torch_tensor_elsewhere_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    text = "tensor is on meta: copy it to the CPU with tensor.cpu()"
    with raises_exactly(inlay.InvalidArguments, text):
        session_of(1)(torch.from_numpy(A).to("meta"), torch.from_numpy(B))


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_narrow_torch_tensors_keep_their_type(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    kind = TensorProto.BFLOAT16 if name == "bfloat16" else TensorProto.FLOAT16
    a, b = (torch.from_numpy(array).to(getattr(torch, name)) for array in (A, B))
    result = session_of(1, kind)(a, b)
    assert result.dtype == a.dtype
    assert torch.equal(result, a + b)


@pytest.mark.heavy
def test_jax_arrays_are_answered_by_jax_arrays() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    result = session_of(1)(jax.numpy.asarray(A), jax.numpy.asarray(B))
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(np.asarray(result), A + B)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["float32", "int64", "bool", "uint16", "bfloat16", "float8_e4m3fn", "complex64"])
def test_tensors_and_arrays_share_memory_in_both_directions(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.ones(4, 2).to(getattr(torch, name))[::2]
    array = numpy_of_torch(torch, tensor)
    assert array.dtype == np.dtype(getattr(ml_dtypes, name, name))
    assert array.__array_interface__["data"][0] == tensor.data_ptr()
    back = torch_of_numpy(torch, array)
    assert (back.dtype, back.stride(), back.data_ptr()) == (tensor.dtype, tensor.stride(), tensor.data_ptr())


@pytest.mark.heavy
def test_negated_and_tracked_tensors_are_read() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tracked = torch.ones(3, requires_grad=True)
    assert numpy_of_torch(torch, tracked).tolist() == [1, 1, 1]
    imaginary = torch.tensor([1 + 2j]).conj().imag
    assert imaginary.is_neg()
    assert numpy_of_torch(torch, imaginary).tolist() == [-2]
    with pytest.raises(TypeError):
        numpy_of_torch(torch, torch.ones(2, device="meta"))
