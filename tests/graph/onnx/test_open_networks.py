"""Models with open dims: the dims of their tensors by name, and binding of some of them."""

import numpy as np
import pytest
from onnx import numpy_helper, parser

import inlay
from examples.random_networks import open_bert, open_light
from inlay.errors import InvalidArguments
from inlay.graph.network import Network
from inlay.graph.open_network import OpenNetwork, OpenTensor
from tests.support.refusals import raises_exactly

F32 = np.dtype(np.float32)


def open_network(text: str, **weights: np.ndarray) -> OpenNetwork:
    """A network of opset 17 in ONNX's text syntax."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    network = inlay.load(model.SerializeToString())
    assert isinstance(network, OpenNetwork)
    return network


def test_the_dims_of_results_have_the_names_of_those_of_inputs() -> None:
    network = inlay.load(open_light("resnet50").SerializeToString())
    assert isinstance(network, OpenNetwork)
    (output,) = network.outputs
    assert network.tensors[output] == OpenTensor(output, ("batch", 1000), F32)
    assert len(network.tensors) > 100
    assert {tensor.dims[0] for tensor in network.tensors.values()} == {"batch"}


def test_shapes_that_nodes_compute_are_propagated() -> None:
    network = open_network(
        "g (float[n, 4, w] x) => (float y) { s = Shape(x) one = Constant <value_ints = [1]> () "
        "first = Slice(s, zero, one) last = Slice(s, two, three) rest = Constant <value_ints = [2, 2]> () "
        "t = Concat <axis = 0> (first, rest, last) y = Reshape(x, t) }",
        **{name: np.array([n], np.int64) for name, n in {"zero": 0, "two": 2, "three": 3}.items()},
    )
    assert network.tensors["y"].dims == ("n", 2, 2, "w")
    assert repr(network) == "<OpenNetwork g: x (n, 4, w) -> y (n, 2, 2, w); opset 17>"


def test_large_weights_count_by_their_dims() -> None:
    network = open_network("g (float[n, 64] x) => (float y) { y = MatMul(x, w) }", w=np.zeros((64, 50), np.float32))
    assert network.tensors["y"].dims == ("n", 50)


def test_extents_that_have_no_name_are_shown_by_a_question_mark() -> None:
    network = open_network("g (float[n, 3] x, float[m, 3] z) => (float y) { y = Concat <axis = 0> (x, z) }")
    assert network.tensors["y"].dims == ("?", 3)
    assert repr(network) == "<OpenNetwork g: x (n, 3), z (m, 3) -> y (?, 3); opset 17>"


def test_unnamed_dims_are_input_and_axis() -> None:
    network = open_network("g (float[?, 3] x) => (float y) { y = Relu(x) }")
    assert network.tensors["y"].dims == ("x[0]", 3) == network.inputs[0].dims


def test_dims_of_outputs_in_the_file_are_ignored() -> None:
    network = open_network("g (float[n, 3] x) => (float[1, 7] y) { y = Relu(x) }")
    assert network.tensors["y"].dims == ("n", 3)


def test_contradictory_dims_are_refused_when_they_are_bound() -> None:
    network = open_network("g (float[n, 3] x, float[n, 4] z) => (float y) { y = Add(x, z) }")
    assert network.inputs == tuple(network.tensors[name] for name in "xz")
    with pytest.raises(InvalidArguments, match="Add does not accept"):
        network.bind(batch=2)


def test_some_dims_are_bound_and_the_others_stay_open() -> None:
    network = inlay.load(open_bert(1, 8, 2).SerializeToString())
    assert isinstance(network, OpenNetwork)
    some = network.bind_some({"sequence": 6})
    assert some.open_dims == ("batch",)
    assert some.tensors[some.outputs[0]].dims == ("batch", 6, 8)
    bound = some.bind(batch=3)
    assert isinstance(bound, Network)
    assert bound == network.bind({"batch": 3, "sequence": 6})
    assert some.bind_some(batch=3).open_dims == ()
    assert network.open_dims == ("batch", "sequence")


def test_a_session_of_a_partly_bound_network_refuses_other_numbers() -> None:
    network = inlay.load(open_bert(1, 8, 2).SerializeToString())
    assert isinstance(network, OpenNetwork)
    session = inlay.compile(network.bind_some({"sequence": 6}), engine="reference", costs="analytic")
    x = np.random.default_rng(0).standard_normal((2, 6, 8), np.float32)
    assert session.run({"embeddings": x})[network.outputs[0]].shape == (2, 6, 8)
    text = (
        "input 'embeddings' cannot have dims (2, 5, 8), in the model they are (open, 6, 8): export the model with the "
        "axes left open that vary"
    )
    with raises_exactly(InvalidArguments, text):
        session.run({"embeddings": x[:, :5]})


def test_a_network_whose_dims_are_all_bound_by_parts_is_planned_for_them() -> None:
    network = open_network("g (float[n, 3] x) => (float y) { y = Relu(x) }").bind_some(batch=2)
    assert inlay.plan(network, costs="analytic", engine="reference").inputs[0].dims == (2, 3)
    session = inlay.compile(network, costs="analytic", engine="reference")
    assert session.prepare().input_dims == {"x": (2, 3)}


OPEN = "the model leaves dims open: 'n', axis 0 of x and axis 0 of z; 'w', axis 1 of x: say how large they are, as "
DIMS = "dims={'n': 1, 'w': 1}"


def test_every_open_dim_is_named_in_one_message() -> None:
    network = open_network("g (float[n, w] x, float[n, 1] z) => (float y) { y = Add(x, z) }")
    with raises_exactly(InvalidArguments, OPEN + DIMS):
        network.bind()
    with raises_exactly(InvalidArguments, OPEN + DIMS + "; or let inlay.compile plan each shape at its first call"):
        inlay.plan(network, costs="analytic")
    remedy = "give the dims of each input, as {'x': (1, 1), 'z': (1, 1)}"
    with raises_exactly(InvalidArguments, OPEN.replace("say how large they are, as ", remedy)):
        inlay.compile(network, costs="analytic").prepare()
    rest = "the model leaves dims open: 'w', axis 1 of x: say how large they are, as dims={'w': 1}"
    with raises_exactly(InvalidArguments, rest):
        network.bind(batch=2)


def test_types_are_those_of_the_model() -> None:
    network = open_network("g (int64[n] x) => (float y) { y = Cast <to = 1> (x) }")
    assert network.tensors["x"].dtype == np.int64
    assert network.tensors["y"].dtype == np.float32
