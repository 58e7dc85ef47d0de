"""Models of ONNX with a few bytes or one part changed, for fuzzing what reads, plans and runs them.

A mutant follows from its seed alone: `mutant(seed)` makes it again.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, defs, numpy_helper

from tests.support.fuzz_files import mutant as damaged
from tests.support.networks import bert
from tests.support.operator_cases import model_of
from tests.support.operator_generators import GENERATORS, case_of

Mutation = Callable[[random.Random, onnx.ModelProto], None]

EXTENTS = (0, 1, 2, 3, 5, 7, 64, 1000, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -1, -2, -(1 << 63))
NUMBERS = (0.0, -0.0, 0.5, -1.0, 1e-40, 1e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "NOTSET", "SAME_UPPER", "linear", "nearest", "reverse", "mirror", "\u00e9", "ij,jk->ik", "add")


@cache
def seeds() -> tuple[bytes, ...]:
    """The models that are changed: one of each operator with random attributes, its other inputs stored; an encoder."""
    models = [_stored(operator, seed) for seed in range(2) for operator in GENERATORS]
    return (*models, bert(1, sequence=2, layers=1, hidden=4, heads=2).SerializeToString())


def _stored(operator: str, seed: int) -> bytes:
    """A node of a random case, all of whose inputs but the first are constants."""
    case = case_of(operator, seed)
    model = model_of(case)
    first = model.graph.input[0].name
    others = {name: array for name, array in case.arrays.items() if name != first}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in others.items())
    del model.graph.input[1:]
    for value in model.graph.output:
        value.type.tensor_type.elem_type = TensorProto.FLOAT  # load infers types, and wants one
    return bytes(model.SerializeToString())


def mutant(seed: int) -> bytes:
    """Return a model with damaged bytes, or with one to three changes through onnx's interface."""
    rng = random.Random(seed)
    content = rng.choice(seeds())
    if rng.random() < 0.3:
        return damaged(content, rng)
    model = onnx.ModelProto.FromString(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(MUTATIONS)(rng, model)
    return bytes(model.SerializeToString())


def _node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    node: onnx.NodeProto = rng.choice(model.graph.node) if model.graph.node else model.graph.node.add(op_type="Relu")
    return node


def change_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another number or text in an attribute."""
    node = _node(rng, model)
    if not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(EXTENTS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(NUMBERS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice(TEXTS).encode()
    elif attribute.ints and rng.random() < 0.8:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(EXTENTS)
    elif attribute.ints:
        del attribute.ints[rng.randrange(len(attribute.ints)) :]


def add_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    """An attribute that the operator has and the node leaves out."""
    node = _node(rng, model)
    if not defs.has(node.op_type):
        return
    declared = defs.get_schema(node.op_type).attributes
    missing = sorted(set(declared) - {attribute.name for attribute in node.attribute})
    if not missing:
        return
    name = rng.choice(missing)
    kind = int(declared[name].type)  # type: ignore[call-overload]
    values = {
        AttributeProto.INT: rng.choice(EXTENTS),
        AttributeProto.FLOAT: rng.choice(NUMBERS),
        AttributeProto.STRING: rng.choice(TEXTS),
        AttributeProto.INTS: [rng.choice(EXTENTS) for _ in range(rng.randrange(5))],
        AttributeProto.FLOATS: [rng.choice(NUMBERS) for _ in range(rng.randrange(4))],
    }
    if kind in values:
        node.attribute.append(onnx.helper.make_attribute(name, values[kind], attr_type=kind))


def remove_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    """An attribute less."""
    node = _node(rng, model)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def change_input(rng: random.Random, model: onnx.ModelProto) -> None:
    """An input that is left out, another tensor, or read twice."""
    node = _node(rng, model)
    names = [tensor.name for tensor in model.graph.initializer] + [value.name for value in model.graph.input] + [""]
    if node.input and rng.random() < 0.7:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif node.input and rng.random() < 0.5:
        del node.input[rng.randrange(len(node.input))]
    else:
        node.input.append(rng.choice(names))


def change_output(rng: random.Random, model: onnx.ModelProto) -> None:
    """A result more or less, or a stored tensor as an output of the network."""
    node = _node(rng, model)
    if rng.random() < 0.3 and model.graph.initializer:
        added = model.graph.output.add(name=rng.choice(model.graph.initializer).name)
        added.type.tensor_type.elem_type = TensorProto.FLOAT
    elif rng.random() < 0.5 and len(node.output) > 1:
        del node.output[rng.randrange(len(node.output)) :]
    else:
        node.output.append(rng.choice(("more", "", "y0")))


def change_operator(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another operator with the same inputs."""
    _node(rng, model).op_type = rng.choice(_operators())


@cache
def _operators() -> Sequence[str]:
    return sorted({schema.name for schema in defs.get_all_schemas()})


def change_dims(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another extent or axis of an input of the network."""
    shape = rng.choice(model.graph.input).type.tensor_type.shape if model.graph.input else None
    if shape is None:
        return
    if shape.dim and rng.random() < 0.7:
        rng.choice(shape.dim).dim_value = rng.choice(EXTENTS)
    elif shape.dim and rng.random() < 0.5:
        del shape.dim[rng.randrange(len(shape.dim))]
    else:
        shape.dim.add(dim_value=rng.choice(EXTENTS))


def change_type(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another element type of an input of the network."""
    if model.graph.input:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.randrange(28)


def change_constant(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another element, another shape or another type of a constant."""
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    kind = rng.randrange(4)
    if kind == 0:
        tensor.data_type = rng.randrange(28)
    elif kind == 1 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(EXTENTS)
    else:
        _change_elements(rng, tensor)


def _change_elements(rng: random.Random, tensor: TensorProto) -> None:
    try:
        array = np.array(numpy_helper.to_array(tensor))
    except (TypeError, ValueError, KeyError):
        return
    if array.dtype.kind not in "iuf" or not array.size:
        return
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        choices = NUMBERS if array.dtype.kind == "f" else EXTENTS
        flat[rng.randrange(flat.size)] = np.array(rng.choice(choices)).astype(array.dtype)
    dims = (flat.size,) if rng.random() < 0.2 else array.shape
    tensor.CopyFrom(numpy_helper.from_array(flat.reshape(dims), tensor.name))


def change_opset(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another version of the operators."""
    for opset in model.opset_import:
        opset.version = rng.choice((1, 7, 9, 10, 11, 12, 13, 16, 18, 19, 21, 22, 23, 24, 28, 99))


def change_nodes(rng: random.Random, model: onnx.ModelProto) -> None:
    """A node less, a node twice, or one that reads the result of another."""
    graph, kind = model.graph, rng.randrange(3)
    node = _node(rng, model)
    if kind == 0:
        graph.node.remove(node)
    elif kind == 1:
        graph.node.append(node)
    elif node.output:
        after = graph.node.add(op_type=rng.choice(_operators()))
        after.input.extend([node.output[0]] * rng.choice((1, 1, 2)))
        after.output.append("after")
        graph.output.add(name="after").type.tensor_type.elem_type = TensorProto.FLOAT


MUTATIONS: Sequence[Mutation] = (
    *(change_attribute, change_constant) * 3,
    *(add_attribute, change_dims) * 2,
    *(remove_attribute, change_input, change_output, change_operator, change_type, change_opset, change_nodes),
)
"""The changes through onnx's interface; the more often one is listed, the more often it is made."""
