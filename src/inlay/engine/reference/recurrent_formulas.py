"""Recurrent networks as formulas of the table: types and 8-bit scales on the way in and out, sums that go on.

A state is rounded to its type after each step, because that is what the next step reads: bf16 and f16 directly, 8 bits
by their scale and shift. So what the reference computes in 8 bits differs from the numbers by quantization alone.

Source: oneAPI specification, "RNN"; oneDNN, "int8 inference example" of RNN, for where states are quantized.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from inlay.data_type import DataType
from inlay.engine.reference.arrays import Array, Results, Shape
from inlay.engine.reference.recurrent import Network, backward, exact, forward, workspace_dims
from inlay.engine.reference.recurrent_cells import Keep
from inlay.engine.reference.values import rounded
from inlay.primitives.attributes import RecurrentScales
from inlay.primitives.operation import Operation

_STATES = ("src_layer", "src_iter", "dst_layer", "dst_iter")


def computed(*, operation: Operation, arguments: Mapping[str, Array]) -> Results:
    """What forward writes, the workspace too."""
    network, scales = _network(operation), _scales(operation)
    numbers = {name: _number(operation, scales, name, array) for name, array in arguments.items()}
    if _type(operation, "src_layer").kind != "float" and "src_iter" in numbers:
        numbers["src_iter"] = network.keep(numbers["src_iter"])
    results = forward(network, numbers)
    return {name: _code(operation, scales, name, array) for name, array in results.items()}


def gradients(*, operation: Operation, arguments: Mapping[str, Array], held: Callable[[str], Array]) -> Results:
    """What backward writes: gradients of weights are added to those that are held, or stand alone with the flag."""
    results = backward(_network(operation), arguments)
    flags = operation.parameters["flags"]
    if not (isinstance(flags, frozenset) and "diff_weights_overwrite" in flags):
        for name in results:
            if name in operation.descs and name.startswith(("diff_weights", "diff_bias")):
                results[name] = results[name] + held(name)
    return results


def kept_dims(operation: Operation) -> Shape:
    """The dims of the workspace."""
    descs = operation.descs
    weights = descs["weights_layer"].dims
    outputs = descs["weights_projection"].dims[3] if "weights_projection" in descs else weights[4]
    return workspace_dims(descs["src_layer"].dims, weights, outputs)


def _network(operation: Operation) -> Network:
    """What the formulas are told."""
    told = operation.parameters
    cells = [operation.descs[name].data_type for name in ("src_iter_c", "dst_iter_c") if name in operation.descs]
    alpha = told.get("alpha", 0.0)
    assert isinstance(alpha, int | float)
    return Network(
        operation.kind,
        str(told["direction"]),
        str(told.get("activation", "tanh")),
        float(alpha),
        _keep(_type(operation, "src_layer"), _scales(operation)),
        _keep(cells[0], RecurrentScales()) if cells and cells[0] is not None else exact,
    )


def _keep(data_type: DataType, scales: RecurrentScales) -> Keep:
    """What rounds a state to a type."""
    if data_type.name == "f32":
        return exact
    if data_type.kind == "float":
        return partial(rounded, data_type=data_type)

    def quantized(state: Array) -> Array:
        code = rounded(state * scales.scale + scales.shift, data_type)
        return (code - scales.shift) / scales.scale

    return quantized


def _type(operation: Operation, name: str) -> DataType:
    data_type = operation.descs[name].data_type
    assert data_type is not None
    return data_type


def _scales(operation: Operation) -> RecurrentScales:
    return operation.attributes.recurrent or RecurrentScales()


def _number(operation: Operation, scales: RecurrentScales, name: str, array: Array) -> Array:
    """The numbers that the elements of an argument mean."""
    if _type(operation, name).kind == "float":
        return array
    if name in _STATES:
        return (array - scales.shift) / scales.scale
    if name == "weights_projection":
        return array / scales.projection
    factors = np.array(scales.weights)
    numbers: Array = array / (factors if factors.size == 1 else factors.reshape(array.shape[3:]))
    return numbers


def _code(operation: Operation, scales: RecurrentScales, name: str, array: Array) -> Array:
    """The elements that mean the numbers of an argument, not yet rounded."""
    if name in _STATES and name in operation.descs and _type(operation, name).kind != "float":
        return array * scales.scale + scales.shift
    return array
