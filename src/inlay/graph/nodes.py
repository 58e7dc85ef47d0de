"""Nodes computed by NumPy: any operator of ONNX in any version, by the operators of `onnx.reference`.

What no primitive computes, and what a network is compared with:

>>> node = Node("twice", "Add", inputs=("x", "x"), outputs=("y",))
>>> computed(node, 17, {"x": np.array([1.5, 2.0], np.float32)})["y"].tolist()
[3.0, 4.0]

Source: ONNX, "Operators"; the package onnx, `onnx.reference`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import MissingExtra, Unimplemented
from inlay.graph.network import Node

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Computation: TypeAlias = Callable[[Mapping[str, Array]], dict[str, Array]]


def computed(node: Node, opset: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The results of a node by name, those that it leaves out missing; `arrays` has its inputs by name.

    Raises:
        MissingExtra: the package onnx is not installed.
        Unimplemented: `onnx.reference` does not compute the operator.
    """
    return computation(node, opset, {name: array.dtype for name, array in arrays.items()})(arrays)


def computation(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> Computation:
    """What computes a node again and again, given its inputs by name, of the types `dtypes`.

    It may be called from several threads at once; what it answers is new, or a view of what it was given.

    Raises:
        MissingExtra: the package onnx is not installed.
        Unimplemented: `onnx.reference` does not compute the operator.
    """
    reads = tuple(name for name in dict.fromkeys(node.inputs) if name)
    writes = tuple(name for name in node.outputs if name)
    evaluator = _evaluator(node, opset, {name: dtypes[name] for name in reads})

    def run(arrays: Mapping[str, Array]) -> dict[str, Array]:
        # What overflows, or divides by zero, does so by the rules of IEEE 754, without a word.
        with np.errstate(all="ignore"):
            results = evaluator.run(list(writes), {name: arrays[name] for name in reads})
        return {name: np.asarray(result) for name, result in zip(writes, results, strict=True)}

    return run


def _evaluator(node: Node, opset: int, dtypes: Mapping[str, np.dtype[Any]]) -> Any:
    """The node as a model of its own."""
    try:
        from onnx import defs, helper
        from onnx.reference import ReferenceEvaluator
        from onnx.reference.op_run import RuntimeContextError, RuntimeImplementationError
    except ImportError:
        raise MissingExtra("onnx is not installed: pip install 'inlay[onnx]'") from None
    if node.operator == "BatchNormalization":
        opset = max(opset, 15)  # before 14 onnx.reference takes the statistics of the batch
    newest = defs.onnx_opset_version()
    if not defs.has(node.operator, opset, node.domain) and defs.has(node.operator, newest, node.domain):
        opset = newest  # patterns put newer operators together than the model has
    proto = helper.make_node(node.operator, list(node.inputs), list(node.outputs), node.name, domain=node.domain)
    proto.attribute.extend(_attribute(node, opset, name) for name in node.attributes)
    reads = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), None)
        for name, dtype in dtypes.items()
    ]
    writes = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(node.domain, 1)] if node.domain else [])
    model = helper.make_model(helper.make_graph([proto], "node", reads, writes), opset_imports=opsets)
    try:
        return ReferenceEvaluator(model)
    except (NotImplementedError, RuntimeContextError, RuntimeImplementationError) as error:
        domain = f" of {node.domain}" if node.domain else ""
        raise Unimplemented(
            f"node {node.name!r}: {node.operator}{domain}, opset {opset}, is computed by no primitive and not by "
            "onnx.reference: replace it by operators of ONNX, or leave it out of the file"
        ) from error


def _attribute(node: Node, opset: int, name: str) -> Any:
    """An attribute as ONNX stores it; of the type that the operator's schema says, since () has none."""
    from onnx import defs, helper, numpy_helper

    value = node.attributes[name]
    kind = None
    if defs.has(node.operator, opset, node.domain):
        declared = defs.get_schema(node.operator, opset, node.domain).attributes.get(name)
        kind = None if declared is None else int(declared.type)  # type: ignore[call-overload]
    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    return helper.make_attribute(name, list(value) if isinstance(value, tuple) else value, attr_type=kind)
