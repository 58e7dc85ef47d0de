"""`load`: binding of open dims, constant folding, and branches of If. Errors: test_mistakes.py."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import inlay
from inlay.errors import FileError
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load, load_bound
from tests.support.network_runs import relative_error, run_model, run_network
from tests.support.networks import Model
from tests.support.refusals import raises_exactly
from tests.support.written_models import written_model


def read(model: Model, **options: Any) -> Network:
    return load_bound(model.SerializeToString(), **options)


def operators(network: Network) -> list[str]:
    return [node.operator for node in network.nodes]


RELU = written_model("y = Relu(x)", ("n", 3, "height", None))

# Dims


def test_open_dims_are_bound_by_name_by_axis_and_by_batch() -> None:
    assert read(RELU, batch=2, dims={"height": 5, "x[3]": 7}).tensors["y"].dims == (2, 3, 5, 7)
    assert read(RELU, dims={"n": 2, "x[2]": 5, "x[3]": 7}).tensors["y"].dims == (2, 3, 5, 7)


def test_a_network_is_read_again_for_other_dims() -> None:
    network = read(RELU, batch=2, dims={"height": 5, "x[3]": 7})
    assert network.again is not None
    other = network.again({"x": (4, 3, 6, 8)})
    assert other == read(RELU, batch=4, dims={"height": 6, "x[3]": 8})
    assert other.again is not None
    assert other.again({"x": (2, 3, 5, 7)}) == network


# Constants


def test_shapes_that_nodes_compute_are_folded() -> None:
    text = """
        s = Shape(x)
        batch = Gather <axis = 0> (s, zero)
        rows = Mul(batch, two)
        dims = Concat <axis = 0> (rows, minus)
        y = Reshape(x, dims)
    """
    constants: dict[str, Any] = {"zero": np.array([0]), "two": np.array([2]), "minus": np.array([-1])}
    network = read(written_model(text, ("n", 6), **constants), batch=5)
    assert operators(network) == ["Reshape"]
    assert network.tensors["y"].dims == (10, 3)
    assert {name: array.tolist() for name, array in network.constants.items()} == {"dims": [10, -1]}


def test_a_fill_takes_no_memory() -> None:
    text = "w = ConstantOfShape <value = float[1] {0.5}> (s) y = MatMul(x, w)"
    weights = read(written_model(text, (1, 8192), s=np.array([8192, 8192]))).constants["w"]
    assert (weights.shape, weights.strides) == ((8192, 8192), (0, 0))
    assert (str(weights.dtype), float(weights[7, 9])) == ("float32", 0.5)


def test_random_tensors_are_not_folded() -> None:
    network = read(written_model("r = RandomNormal <shape = [2, 3]> () y = Add(x, r)"))
    assert operators(network) == ["RandomNormal", "Add"]


def test_initializers_that_are_inputs_too_are_constants() -> None:
    model = written_model("y = Add(x, w)", (2,), w=np.ones(2, np.float32))
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, (2,)))
    model.ir_version = 3
    network = read(model)
    assert (network.inputs, set(network.constants)) == (("x",), {"w"})


def test_an_output_that_is_constant_is_written_by_a_node() -> None:
    network = read(written_model("s = Shape(x) y = Relu(x)", (2, 3), "s y"))
    assert [(n.operator, n.outputs) for n in network.nodes] == [("Relu", ("y",)), ("Identity", ("s",))]
    assert run_network(network, {"x": np.zeros((2, 3), np.float32)})["s"].tolist() == [2, 3]


def test_names_of_nodes_are_unique() -> None:
    model = written_model("[same] t = Relu(x) [same] u = Relu(t) y = Relu(u)")
    model.graph.node[2].name = ""
    assert [node.name for node in read(model).nodes] == ["same", "same'", "y"]


@pytest.mark.parametrize(("rank", "operator"), [(2, "Add"), (3, "Neg")])
def test_an_if_of_a_constant_is_replaced_by_the_branch_that_is_taken(rank: int, operator: str) -> None:
    text = """
        s = Shape(x)
        rank = Size(s)
        known = Equal(rank, wanted)
        y = If <
            then_branch = then () => (float r) <float[3] w = {2, 2, 2}> { m = Relu(x) r = Add(m, w) },
            else_branch = other () => (float r) { m = Neg(x) r = Identity(m) }
        > (known)
    """
    model = written_model(text, wanted=np.array(rank))
    network = read(model)
    assert set(operators(network)) - {"Identity"} == ({"Relu", "Add"} if operator == "Add" else {"Neg"})
    inputs = {"x": np.arange(-3, 3, dtype=np.float32).reshape(2, 3)}
    assert relative_error(run_network(network, inputs)["y"], run_model(model, inputs)["y"]) == 0


# Files and the package onnx


def test_a_rule_that_a_model_breaks_is_named_in_the_words_of_the_checker() -> None:
    model = written_model("y = Relu(missing)", (1,))
    complete = onnx.ModelProto.FromString(model.SerializeToString())
    complete.graph.output[0].type.tensor_type.shape.SetInParent()  # the checker requires dims of outputs
    with pytest.raises(onnx.checker.ValidationError) as checked:
        onnx.checker.check_model(complete)
    rule = str(checked.value).splitlines()[0].strip()
    with raises_exactly(FileError, f"cannot read the model: {rule}; export it again"):
        read(model)


def test_without_onnx_the_error_names_the_command_that_installs_it() -> None:
    code = "import sys; sys.modules['onnx'] = None; import inlay; inlay.load('tiny.onnx')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    text = "inlay.errors.MissingExtra: onnx is not installed: pip install 'inlay[onnx]'"
    assert done.stderr.splitlines()[-1] == text


def test_load_is_a_public_name_that_takes_a_path(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(written_model("y = Relu(x)").SerializeToString())
    assert inlay.load(path) == inlay.load(str(path)) == load(path.read_bytes())
