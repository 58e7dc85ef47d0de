"""`replace_weights`: constants of a network in compound formats, such as ggml's Q4_0, in place of those of the model.

A format whose value is scale * (quant - zero), with one scale for each block along the last axis, keeps its integers:
the constant becomes the result of a DequantizeLinear, which `passes.block_products` joins with the product that reads
it. Others are unpacked to f32.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from inlay.errors import InvalidArguments, printable, shown
from inlay.graph.network import Network, Node, Tensor, read_only, unused_name
from inlay.graph.op_graph import Array
from inlay.layout import Dims
from inlay.memory.compound.integer_blocks import describe_integers, read_integers
from inlay.memory.compound.memory import CompoundMemory


def replace_weights(network: Network, weights: Mapping[str, CompoundMemory]) -> Network:
    """Return the network with these tensors as its constants, by name.

    A matrix may be the transpose of the constant, unless it is square: ggml has a row for each output of a layer, and
    ONNX's MatMul a column.

    Raises:
        InvalidArguments: `weights` is no mapping from names to CompoundMemory, or the network has no such constant of
            f32, or one of other dims.
    """
    _require_weights(network, weights)
    constants, tensors, nodes = dict(network.constants), dict(network.tensors), list[Node]()

    def add(name: str, array: Array) -> str:
        name = unused_name(name, tensors)
        constants[name], tensors[name] = read_only(array), Tensor(name, array.shape, array.dtype)
        return name

    for name, memory in weights.items():
        del constants[name]
        is_transposed = memory.desc.dims != tensors[name].dims
        blocks = _read_blocks(memory)
        if blocks is None:
            real = memory.unpack()
            constants[name] = read_only(np.ascontiguousarray(real.T) if is_transposed else real)
            continue
        axis, arrays = len(memory.desc.dims) - 1, list(blocks)
        if is_transposed:
            axis, arrays = 0, [np.ascontiguousarray(array.T) for array in arrays]
        attributes = {"axis": axis, "block_size": memory.desc.dims[-1] // blocks[1].shape[-1]}
        inputs = tuple(add(f"{name}:{what}", array) for what, array in zip(("quants", "scale"), arrays, strict=True))
        label = unused_name(f"{name}:dequantize", {node.name for node in network.nodes})
        nodes.append(Node(label, "DequantizeLinear", inputs, (name,), attributes))
    return replace(network, constants=constants, tensors=tensors, nodes=(*nodes, *network.nodes))


def _require_weights(network: Network, weights: Mapping[str, CompoundMemory]) -> None:
    """Check the names, types and dims of weights."""
    if not isinstance(weights, Mapping):
        raise InvalidArguments(f"weights are a {type(weights).__name__}: give a mapping of names to CompoundMemory")
    for name, memory in weights.items():
        if not isinstance(memory, CompoundMemory):
            raise InvalidArguments(
                f"weights[{shown(name)}] is {shown(memory)}: give a CompoundMemory, as inlay.pack_compound returns"
            )
        constant = network.constants.get(name)
        if constant is None or constant.dtype != np.float32:
            known = [one for one, array in network.constants.items() if array.dtype == np.float32 and array.ndim == 2]
            listed = ", ".join(map(printable, known[:8])) + (", ..." if len(known) > 8 else "")
            raise InvalidArguments(
                f"weights name {shown(name)}, and the network has no such constant of f32: its matrices are {listed}"
            )
        dims: Dims = memory.desc.dims
        if constant.shape not in (dims, dims[::-1] if len(dims) == 2 else dims):
            raise InvalidArguments(
                f"weights[{shown(name)}] has dims {dims}, and the constant has {constant.shape}: pack those dims"
            )


def _read_blocks(memory: CompoundMemory) -> tuple[Array, Array] | None:
    """Return signed integers and the scales of their blocks along the last axis; None for any other format."""
    if describe_integers(memory.desc) is None:
        return None
    integers, scales = read_integers(memory)
    return (integers, scales) if np.isfinite(scales).all() else None
