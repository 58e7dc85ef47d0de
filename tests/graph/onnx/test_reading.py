"""`load`: binding of open dims, constant folding, branches of If, and the errors for models that are not supported."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.errors import FileError, InvalidArguments, Unimplemented
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load
from tests.support.network_runs import model_of, node, relative_error, run_model, run_network
from tests.support.networks import Model
from tests.support.refusals import raises_exactly


def read(model: Model, **options: Any) -> Network:
    return load(model.SerializeToString(), **options)


RELU = model_of([node("Relu", "x", "y")], {"x": ("n", 3, "height", None)}, ["y"])

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


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        (
            {"x": (2, 4, 5, 7)},
            "input 'x' cannot have dims (2, 4, 5, 7), in the model they are (open, 3, open, open): "
            "export the model with the axes left open that vary",
        ),
        (
            {"x": (2, 3, 5)},
            "input 'x' cannot have dims (2, 3, 5), in the model they are (open, 3, open, open): "
            "export the model with the axes left open that vary",
        ),
        ({"z": (1,)}, "dims are given for z, and the inputs are x: give each its dims"),
        ({}, "dims are given for no input, and the inputs are x: give each its dims"),
        ({"x": (0, 3, 5, 7)}, "dims['x[0]'] is 0: the extent of a dim is a whole number from 1 on"),
    ],
)
def test_other_dims_have_to_be_those_of_the_model(dims: dict[str, tuple[int, ...]], text: str) -> None:
    network = read(RELU, batch=2, dims={"height": 5, "x[3]": 7})
    assert network.again is not None
    with raises_exactly(InvalidArguments, text):
        network.again(dims)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "input 'x' leaves axis 0, 'n', open: say how large it is, as dims={'n': 1} or batch=1"),
        ({"batch": 1}, "input 'x' leaves axis 2, 'height', open: say how large it is, as dims={'height': 1}"),
        ({"batch": 1, "dims": {"height": 1}}, "input 'x' leaves axis 3 open: say how large it is, as dims={'x[3]': 1}"),
        (
            {"batch": 1, "dims": {"height": 1, "x[3]": 1, "width": 2}},
            "dims names 'width', and the model leaves open 'n', 'height', 'x[3]': name one of them",
        ),
        ({"batch": 0}, "batch is 0: the extent of a dim is a whole number from 1 on"),
        ({"batch": True}, "batch is True: the extent of a dim is a whole number from 1 on"),
        ({"dims": {"n": 1.5}}, "dims['n'] is 1.5: the extent of a dim is a whole number from 1 on"),
    ],
)
def test_what_is_left_open_is_named_with_the_remedy(options: dict[str, Any], text: str) -> None:
    with raises_exactly(InvalidArguments, text):
        read(RELU, **options)


def test_a_batch_that_the_model_fixes_is_refused() -> None:
    fixed = model_of([node("Relu", "x", "y")], {"x": (1, 3)}, ["y"])
    assert read(fixed, batch=1).tensors["y"].dims == (1, 3)
    with pytest.raises(InvalidArguments) as refused:
        read(fixed, batch=8)
    text = "batch=8: input 'x' has the fixed extent 1 on axis 0; export the model with that axis left open"
    assert str(refused.value) == text


# Constants


def test_shapes_that_nodes_compute_are_folded() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "batch", axis=0),
        node("Mul", "batch two", "rows"),
        node("Concat", "rows minus", "dims", axis=0),
        node("Reshape", "x dims", "y"),
    ]
    constants = {"zero": np.array([0]), "two": np.array([2]), "minus": np.array([-1])}
    network = read(model_of(nodes, {"x": ("n", 6)}, ["y"], constants), batch=5)
    assert [n.operator for n in network.nodes] == ["Reshape"]
    assert network.tensors["y"].dims == (10, 3)
    assert {name: array.tolist() for name, array in network.constants.items()} == {"dims": [10, -1]}


def test_a_fill_takes_no_memory() -> None:
    nodes = [node("ConstantOfShape", "s", "w", value=numpy_helper.from_array(np.array([0.5], np.float32)))]
    nodes.append(node("MatMul", "x w", "y"))
    network = read(model_of(nodes, {"x": (1, 8192)}, ["y"], {"s": np.array([8192, 8192])}))
    weights = network.constants["w"]
    assert (weights.shape, weights.strides) == ((8192, 8192), (0, 0))
    assert (str(weights.dtype), float(weights[7, 9])) == ("float32", 0.5)


TOO_LARGE = {
    (2**15, 2**14): (
        "node 'w': with the result of Expand, the constants computed at import would need 2147483648 bytes, and "
        "1073741824 are allowed: store its result in the model"
    ),
    (2**40, 2**40): (
        "node 'w': Expand: the result 'w' has dims (1099511627776, 1099511627776) of float32, "
        "4835703278458516698824704 bytes: no machine holds more than 140737488355328; correct the model, or give its "
        "inputs other dims"
    ),
}


@pytest.mark.parametrize("dims", TOO_LARGE)
def test_a_constant_that_is_too_large_is_never_made(dims: tuple[int, int]) -> None:
    nodes = [node("Expand", "one s", "w"), node("Add", "x w", "y")]
    with raises_exactly((InvalidArguments, Unimplemented), TOO_LARGE[dims]):
        read(model_of(nodes, {"x": (1, 1)}, ["y"], {"one": np.ones(1, np.float32), "s": np.array(dims)}))


def test_what_is_random_is_left_to_the_run() -> None:
    nodes = [node("RandomNormal", "", "r", shape=[2, 3]), node("Add", "x r", "y")]
    assert [n.operator for n in read(model_of(nodes, {"x": (2, 3)}, ["y"])).nodes] == ["RandomNormal", "Add"]


def test_initializers_that_are_inputs_too_are_constants() -> None:
    model = model_of([node("Add", "x w", "y")], {"x": (2,), "w": (2,)}, ["y"], {"w": np.ones(2, np.float32)})
    model.ir_version = 3
    network = read(model)
    assert (network.inputs, set(network.constants)) == (("x",), {"w"})


def test_an_output_that_is_constant_is_written_by_a_node() -> None:
    nodes = [node("Shape", "x", "s"), node("Relu", "x", "y")]
    network = read(model_of(nodes, {"x": (2, 3)}, ["s", "y"]))
    assert [(n.operator, n.outputs) for n in network.nodes] == [("Relu", ("y",)), ("Identity", ("s",))]
    assert run_network(network, {"x": np.zeros((2, 3), np.float32)})["s"].tolist() == [2, 3]


def test_names_of_nodes_are_unique() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["t"], "same"), helper.make_node("Relu", ["t"], ["u"], "same")]
    nodes.append(helper.make_node("Relu", ["u"], ["y"]))
    assert [n.name for n in read(model_of(nodes, {"x": (2,)}, ["y"])).nodes] == ["same", "same'", "y"]


# Branches


def conditional(condition: str, rank: int = 1) -> Model:
    """Return a model of y = If(condition): relu(x) + w, else -x; both branches have a tensor of the same name."""
    then = [node("Relu", "x", "m"), node("Add", "m w", "r")]
    weights = [numpy_helper.from_array(np.full(3, 2, np.float32), "w")]
    value = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    branches = {
        "then_branch": helper.make_graph(then, "then", [], [value], weights),
        "else_branch": helper.make_graph([node("Neg", "x", "m"), node("Identity", "m", "r")], "else", [], [value]),
    }
    nodes = [
        node("Shape", "x", "s"),
        node("Size", "s", "rank"),
        node("Equal", "rank wanted", "known"),
        node("ReduceMax", "x", "top", keepdims=0),
        node("Greater", "top half", "open"),
        helper.make_node("If", [condition], ["y"], "choice", **branches),
    ]
    constants = {"wanted": np.array(rank), "half": np.array(0.5, np.float32)}
    return model_of(nodes, {"x": (2, 3)}, ["y"], constants)


@pytest.mark.parametrize(("rank", "operators"), [(2, ["Relu", "Add", "Identity"]), (3, ["Neg", "Identity"])])
def test_the_branch_that_is_taken_stands_in_the_place_of_an_if(rank: int, operators: list[str]) -> None:
    model = conditional("known", rank)
    network = read(model)
    assert {n.operator for n in network.nodes} | {"Identity"} == {*operators}
    inputs = {"x": np.arange(-3, 3, dtype=np.float32).reshape(2, 3)}
    assert relative_error(run_network(network, inputs)["y"], run_model(model, inputs)["y"]) == 0


# Refusals


def with_domain() -> Model:
    model = model_of([node("FusedConv", "x", "y", domain="com.microsoft")], {"x": (1,)}, ["y"])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def with_function() -> Model:
    model = model_of([node("Twice", "x", "y", domain="local")], {"x": (1,)}, ["y"])
    body = [node("Add", "a a", "b")]
    function = helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    return model


def with_loop() -> Model:
    body = helper.make_graph(
        [node("Identity", "c", "d"), node("Identity", "v", "w")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("c", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, (1,)),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, (1,)),
        ],
    )
    loop = helper.make_node("Loop", ["", "go", "x"], ["y"], "again", body=body)
    return model_of([loop], {"x": (1,)}, ["y"], {"go": np.array(True)})


def simple(
    operator: str, inputs: str = "x", opset: int = 17, dims: Any = (2, 3), **constants: Any
) -> Callable[[], Model]:
    return lambda: model_of([node(operator, inputs, "y")], {"x": dims}, ["y"], constants, opset)


def normalized(opset: int, groups: int, count: int) -> Callable[[], Model]:
    """Return a model of a group normalization of 3 channels with `count` scales."""
    one = node("GroupNormalization", "x s s", "y", num_groups=groups)
    return lambda: model_of([one], {"x": (1, 3, 4, 4)}, ["y"], {"s": np.ones(count, np.float32)}, opset)


def of_type(kind: int) -> Callable[[], Model]:
    return lambda: model_of([node("Identity", "x", "y")], {"x": (2, 3)}, ["y"], kind=kind)


def without_rank() -> Model:
    model = model_of([node("Relu", "x", "y")], {"x": (1,)}, ["y"])
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model


def with_sequence_input() -> Model:
    model = model_of([node("Relu", "x", "y")], {"x": (1,)}, ["y"])
    model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, (1,)))
    return model


REFUSED: dict[str, tuple[Callable[[], Model], type[Exception], str]] = {
    "an old opset": (
        simple("Tile", "x s", opset=5, s=np.array([1, 1])),
        Unimplemented,
        "the model uses opset 5, whose Tile means something else since, and onnx cannot convert it to opset 9: export "
        "it with one of opsets 9 to 28",
    ),
    "a new opset": (
        simple("Relu", opset=29),
        Unimplemented,
        "the model uses opset 29: opsets 9 to 28 are supported; export it with one of them",
    ),
    "a domain of a runtime": (
        with_domain,
        Unimplemented,
        "node 'y': FusedConv of domain 'com.microsoft' is not supported, ONNX's own operators are: "
        "export the model without operators of one runtime",
    ),
    "a function": (
        with_function,
        Unimplemented,
        "node 'y': Twice of domain 'local' is not supported, ONNX's own operators are: "
        "inline the model's functions: onnx.inliner.inline_local_functions(model)",
    ),
    "a loop": (
        with_loop,
        Unimplemented,
        "node 'again': Loop is not supported, a network runs the same nodes each time: "
        "export the model with its loops unrolled",
    ),
    "an open condition": (
        lambda: conditional("open"),
        Unimplemented,
        "node 'choice': If, whose condition is known only when it runs: only an If of a constant is supported; "
        "export the model with the branch that is taken",
    ),
    "a sequence": (
        simple("SequenceConstruct"),
        Unimplemented,
        "node 'y': SequenceConstruct is not supported, only tensors of numbers and booleans are: export it without",
    ),
    "an unknown operator": (
        simple("Whirl"),
        Unimplemented,
        "node 'y': Whirl is no operator of opset 17: export the model again, or correct the name",
    ),
    "dims that depend on elements": (
        simple("NonZero"),
        Unimplemented,
        "node 'y': the dims of NonZero's results depend on the data of a run: only fixed dims are supported; "
        "export the model without it, or with constants in its place",
    ),
    "texts": (
        of_type(TensorProto.STRING),
        Unimplemented,
        "input 'x' has elements of type STRING: only numbers and booleans are supported",
    ),
    "no rank": (
        without_rank,
        Unimplemented,
        "input 'x' has no dims, not even their number: export the model with an example input",
    ),
    "a sequence as input": (
        with_sequence_input,
        Unimplemented,
        "input 'x' is no tensor: only tensors of numbers and booleans are supported; export the model with a tensor in "
        "its place",
    ),
    "an input as output": (
        lambda: model_of([node("Relu", "x", "y")], {"x": (1,)}, ["y", "x"]),
        Unimplemented,
        "output 'x' is an input of the network, which no node computes: remove it from the outputs",
    ),
    "dims that do not fit": (
        simple("Add", "x w", w=np.ones((4, 5), np.float32)),
        InvalidArguments,
        "node 'y': Add does not accept float32 (2, 3) and float32 (4, 5): Incompatible dimensions; correct the "
        "model, or give its inputs other dims",
    ),
    "a reshape of too few elements": (
        simple("Reshape", "x s", s=np.array([7])),
        InvalidArguments,
        "node 'y': Reshape does not accept float32 (2, 3) and int64 (1,): 6 elements do not fit dims (7,); correct "
        "the model, or give its inputs other dims",
    ),
    "weights for other channels": (
        simple("Conv", "x w", dims=(1, 3, 4, 4), w=np.ones((2, 5, 1, 1), np.float32)),
        InvalidArguments,
        "node 'y': Conv does not accept float32 (1, 3, 4, 4) and float32 (2, 5, 1, 1): the weights are for 5 "
        "channels in 1 groups; correct the model, or give its inputs other dims",
    ),
    "groups that do not divide the channels": (
        normalized(18, 2, 2),
        InvalidArguments,
        "node 'y': GroupNormalization does not accept float32 (1, 3, 4, 4) and float32 (2,) and float32 (2,): 2 "
        "groups do not divide 3 channels; correct the model, or give its inputs other dims",
    ),
    "scales by channel before opset 21": (
        normalized(18, 1, 3),
        InvalidArguments,
        "node 'y': GroupNormalization does not accept float32 (1, 3, 4, 4) and float32 (3,) and float32 (3,): "
        "opset 18 has a scale and a shift for each group, 1 here; correct the model, or give its inputs other dims",
    ),
    "scales by group since opset 21": (
        normalized(21, 1, 1),
        InvalidArguments,
        "node 'y': GroupNormalization does not accept float32 (1, 3, 4, 4) and float32 (1,) and float32 (1,): "
        "opset 21 has a scale and a shift for each channel, 3 here; correct the model, or give its inputs other "
        "dims",
    ),
    "scales of an instance normalization for other channels": (
        simple("InstanceNormalization", "x s s", dims=(1, 3, 4, 4), s=np.ones(2, np.float32)),
        InvalidArguments,
        "node 'y': InstanceNormalization does not accept float32 (1, 3, 4, 4) and float32 (2,) and float32 (2,): "
        "opset 17 has a scale and a shift for each channel, 3 here; correct the model, or give its inputs other "
        "dims",
    ),
    "a window larger than the image": (
        simple("Conv", "x w", dims=(1, 3, 2, 2), w=np.ones((2, 3, 9, 9), np.float32)),
        InvalidArguments,
        "node 'y': Conv does not accept float32 (1, 3, 2, 2) and float32 (2, 3, 9, 9): its result has a negative "
        "extent; correct the model, or give its inputs other dims",
    ),
    "constants that cannot be computed": (
        lambda: model_of(
            [node("Gather", "w i", "t"), node("Add", "x t", "y")],
            {"x": (1,)},
            ["y"],
            {"w": np.ones(3, np.float32), "i": np.array([5])},
        ),
        InvalidArguments,
        "node 't': Gather does not accept float32 (3,) and int64 (1,): index 5 is outside axis 0, which has 3 "
        "elements; correct the model, or give its inputs other dims",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_named_with_the_remedy(name: str) -> None:
    build, error, text = REFUSED[name]
    with raises_exactly(error, text):
        read(build())


def test_a_rule_that_a_model_breaks_is_said_in_the_words_of_the_checker() -> None:
    model = model_of([node("Relu", "missing", "y")], {"x": (1,)}, ["y"])
    with pytest.raises(onnx.checker.ValidationError) as checked:
        onnx.checker.check_model(with_output_dims(model))
    with raises_exactly(
        FileError, f"cannot read the model: {str(checked.value).splitlines()[0].strip()}; export it again"
    ):
        read(model)


def with_output_dims(model: Model) -> Model:
    """Return the model with dims for its output, which the checker requires."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output[0].type.tensor_type.shape.SetInParent()
    return shown


def test_without_onnx_the_error_names_the_command_that_installs_it() -> None:
    code = "import sys; sys.modules['onnx'] = None; import inlay; inlay.load('tiny.onnx')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    text = "inlay.errors.MissingExtra: onnx is not installed: pip install 'inlay[onnx]'"
    assert done.stderr.splitlines()[-1] == text


def test_load_is_a_public_name_that_takes_a_path(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(model_of([node("Relu", "x", "y")], {"x": (2, 3)}, ["y"]).SerializeToString())
    assert inlay.load(path) == inlay.load(str(path)) == load(path.read_bytes())
    with raises_exactly(FileError, f"cannot read {tmp_path / 'other.onnx'}: there is no such file; check the name"):
        inlay.load(tmp_path / "other.onnx")
