"""Regions of a model that only the fallback engine computes: control flow, sequences, dims that depend on data.

    types = infer_types(node, opset, ...)         results of one node, by ONNX Runtime; dims may be unknown
    nodes = merge_regions(nodes, known, outputs)

The importer makes a `Subgraph` of each node that nothing else can compute, or that reads a value without known dims, an
open value. `merge_regions` then joins the nodes that share an open value, and all nodes between them, into one
`Subgraph`. So every value at the border of a region has known dims, or is an output of the network.

Nodes that share an open value are one vertex of a graph, whose edges are the other values. The strongly connected
components of this graph are the smallest regions that depend on each other without a cycle (Sharir, "A
Strong-Connectivity Algorithm and Its Applications in Data Flow Analysis", 1981).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from inlay.errors import Unimplemented
from inlay.graph.fallback.models import build_model
from inlay.graph.fallback.sessions import create_session
from inlay.graph.fallback.support import find_difference
from inlay.graph.network import Node, Subgraph, Tensor
from inlay.graph.numpy_operators.evaluation import ONNX_DOMAINS
from inlay.graph.onnx.initializers import Proto, element_type, nodes_of, subgraphs
from inlay.graph.onnx_package import helper, onnx
from inlay.graph.op_graph import Array

SEQUENCES = ("Sequence", "Optional", "SplitToSequence", "ConcatFromSequence")
"""Beginnings of the names of operators on sequences and optional values."""
LOOPS = frozenset({"Loop", "Scan", "SequenceMap"})
"""Operators that compute their graph several times."""


def find_reason(node: Proto) -> str:
    """Return why only the fallback engine can compute a node, as a clause; an empty text if others may."""
    if node.domain not in ONNX_DOMAINS:
        return f"there is no primitive for {node.op_type} of {node.domain}"
    if node.op_type in LOOPS or node.op_type == "If":
        return f"{node.op_type} runs other nodes in each run"
    return f"{node.op_type} is for sequences or optional values" if node.op_type.startswith(SEQUENCES) else ""


# Names of enclosing graphs


def captured_names(node: Proto) -> list[str]:
    """Return the names that the graphs of a node read from the enclosing graphs, each once."""
    return list(dict.fromkeys(name for graph in subgraphs(node) for name in _captured_by(graph)))


def _captured_by(graph: Proto) -> Iterator[str]:
    """Yield the names that a graph reads and does not define."""
    own = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    for node in graph.node:
        yield from (name for name in (*node.input, *captured_names(node)) if name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def rename_captured(node: Proto, names: Mapping[str, str]) -> None:
    """Rename what the graphs of a node read from the enclosing graphs."""
    for graph in subgraphs(node):
        own = {value.name for value in (*graph.input, *graph.initializer)}
        own.update(name for inner in graph.node for name in inner.output)
        free = {old: new for old, new in names.items() if old not in own}
        for inner in graph.node:
            renamed = [free.get(name, name) for name in inner.input]
            del inner.input[:]
            inner.input.extend(renamed)
            rename_captured(inner, free)


# Types of results


def infer_types(
    node: Node, opset: int, inputs: Mapping[str, Proto], constants: Mapping[str, Array]
) -> dict[str, Proto]:
    """Return the type of each result of a node, ONNX's TypeProto; dims that depend on data are left out.

    `inputs` has the type of each tensor that the node and its graphs read; `constants` the elements of some.

    Raises:
        OutOfMemory: there is not enough memory.
        Unimplemented: ONNX Runtime does not support the node for these types, or computes it otherwise than ONNX
            specifies.
    """
    require_no_difference(node)
    reads = {name: kind for name, kind in inputs.items() if name not in constants}
    names = [name for name in node.outputs if name]
    found = _infer([node], opset, reads, names, constants)
    unclear = [name for name in names if found[name].HasField("tensor_type") and not found[name].tensor_type.shape.dim]
    if unclear:  # ONNX Runtime describes a scalar like a tensor with an unknown number of axes
        shapes = [Node(f"{name}:shape", "Shape", (name,), (f"{name}:shape",)) for name in unclear]
        ranks = _infer([node, *shapes], opset, reads, [*names, *(shape.name for shape in shapes)], constants)
        for name, shape in zip(unclear, shapes, strict=True):
            if not ranks[shape.name].tensor_type.shape.dim[0].HasField("dim_value"):
                found[name].tensor_type.ClearField("shape")
    return found


def require_no_difference(node: Node) -> None:
    """Require that ONNX Runtime computes a node, and the nodes in its graphs, as ONNX specifies.

    Raises:
        Unimplemented: it does not.
    """
    for inner in (node, *_inner_nodes(node)):
        if difference := find_difference(inner):
            raise Unimplemented(
                f"node {inner.name!r}: only ONNX Runtime computes a {inner.operator} whose dims depend on data or that "
                f"is in a loop or branch, and {difference}: export the model with constants in its place"
            )


def _inner_nodes(node: Node) -> Iterator[Node]:
    """Yield ONNX's own nodes in the graphs of a node, with their attributes that are texts."""
    for stored in node.attributes.values():
        graph = onnx.AttributeProto.FromString(stored).g if isinstance(stored, bytes) else onnx.GraphProto()
        for proto in nodes_of(graph):
            if proto.domain in ONNX_DOMAINS:
                texts = {a.name: a.s.decode(errors="replace") for a in proto.attribute if a.HasField("s")}
                yield Node(proto.name, proto.op_type, tuple(proto.input), tuple(proto.output), texts)


def _infer(
    nodes: Sequence[Node], opset: int, reads: Mapping[str, Proto], names: Sequence[str], constants: Mapping[str, Array]
) -> dict[str, Proto]:
    """Return the types that ONNX Runtime infers for the results `names` of nodes."""
    model = build_model(nodes, opset, reads, dict.fromkeys(names), constants)
    try:
        results = create_session(model, 1, "ORT_DISABLE_ALL").get_outputs()
    except Unimplemented as error:
        raise Unimplemented(
            f"node {nodes[0].name!r}: {nodes[0].operator}"
            f"{f' of {nodes[0].domain}' if nodes[0].domain else ''} is not supported: {error}"
        ) from error
    return {result.name: _parse_type(nodes[0], result.type, result.shape) for result in results}


_ELEMENTS = {"float": "float32", "double": "float64"}
"""Types whose names in ONNX Runtime are not those of NumPy."""


def _parse_type(node: Node, text: str, shape: Sequence[Any]) -> Proto:
    """Return the type that ONNX Runtime describes as `text`, such as `seq(tensor(float))`, as a TypeProto."""
    kind, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    if kind == "tensor":
        code = onnx.TensorProto.STRING if inner == "string" else _element_code(node, inner)
        dims = [n if isinstance(n, int) and n >= 0 else None for n in shape]
        return helper.make_tensor_type_proto(code, dims)
    if kind in ("seq", "optional"):
        element = _parse_type(node, inner, ())
        holder = element.sequence_type.elem_type if element.HasField("sequence_type") else element
        if holder.HasField("tensor_type"):
            holder.tensor_type.ClearField("shape")
        make = helper.make_sequence_type_proto if kind == "seq" else helper.make_optional_type_proto
        return make(element)
    raise Unimplemented(f"node {node.name!r}: {node.operator} has a result of type {text}, which is not supported")


def _element_code(node: Node, name: str) -> int:
    """Return ONNX's code of an element type of ONNX Runtime."""
    try:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(_ELEMENTS.get(name, name))))
    except (KeyError, TypeError, ValueError) as error:
        raise Unimplemented(
            f"node {node.name!r}: {node.operator} has a result of type {name}, which is not supported"
        ) from error


def known_tensor(name: str, kind: Proto) -> Tensor | None:
    """Return a result with known dims and a type of NumPy as a tensor; None for an open value."""
    tensor = dynamic_tensor(name, kind)
    return None if tensor is None or tensor.is_dynamic else tensor


def dynamic_tensor(name: str, kind: Proto) -> Tensor | None:
    """Return a tensor of numbers whose dims may be unknown; None for a sequence, an optional value or texts."""
    if not kind.HasField("tensor_type"):
        return None
    try:
        dtype = element_type(kind.tensor_type.elem_type, f"output {name!r}")
    except Unimplemented:
        return None
    if not kind.tensor_type.HasField("shape"):
        return Tensor(name, (0,), dtype, is_dynamic=True)
    dims = kind.tensor_type.shape.dim
    is_dynamic = any(not dim.HasField("dim_value") for dim in dims)
    return Tensor(name, tuple(int(dim.dim_value) for dim in dims), dtype, is_dynamic)


# Regions


def merge_regions(nodes: Sequence[Node], known: Collection[str], outputs: Collection[str]) -> tuple[Node, ...]:
    """Return the nodes with each region as one `Subgraph`.

    `known` has the names of all tensors with known dims; `outputs` are the names of the network's outputs.
    """
    regions = _find_regions(nodes, known)
    if not regions:
        return tuple(nodes)
    readers: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        for name in node.inputs:
            readers.setdefault(name, []).append(i)
    members = [frozenset(region) for region in regions]
    merged = {min(m): _merge([nodes[i] for i in sorted(m)], _external(m, nodes, readers, outputs)) for m in members}
    inside = frozenset().union(*members)
    kept = [merged.get(i, node) for i, node in enumerate(nodes) if i in merged or i not in inside]
    sources = _sources(kept)
    return tuple(kept[i] for tree in _search(sources, range(len(kept))) for i in tree)


def _external(
    members: Collection[int], nodes: Sequence[Node], readers: Mapping[str, list[int]], outputs: Collection[str]
) -> set[str]:
    """Return the results of a region that are outputs, or that a node outside reads."""
    results = (name for i in members for name in nodes[i].outputs if name)
    return {n for n in results if n in outputs or any(reader not in members for reader in readers.get(n, ()))}


def _merge(members: Sequence[Node], external: Collection[str]) -> Subgraph:
    """Return the subgraph of several nodes; `external` are the results that something outside reads."""
    own = {name for node in members for name in node.outputs}
    reads = tuple(dict.fromkeys(n for node in members for n in node.inputs if n and n not in own))
    writes = tuple(n for node in members for n in node.outputs if n in external)
    nodes = tuple(n for node in members for n in (node.nodes if isinstance(node, Subgraph) else (node,)))
    reasons = dict.fromkeys(node.why for node in members if isinstance(node, Subgraph) and node.why)
    name = next(node.name for node in members if isinstance(node, Subgraph))
    return Subgraph(name, "Subgraph", reads, writes, nodes=nodes, parameters=reads, why="; ".join(reasons))


def _find_regions(nodes: Sequence[Node], known: Collection[str]) -> list[list[int]]:
    """Return the regions of several nodes, as indices."""
    writers = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    edges = _sources(nodes)
    for i, node in enumerate(nodes):
        for name in node.inputs:
            if name in writers and name not in known:
                edges[writers[name]].append(i)  # an edge in both directions: one component
    return [component for component in _find_components(edges) if len(component) > 1]


def _find_components(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph, given the targets of each vertex (Sharir, 1981)."""
    reverse: list[list[int]] = [[] for _ in edges]
    for source, targets in enumerate(edges):
        for target in targets:
            reverse[target].append(source)
    order = [vertex for tree in _search(edges, range(len(edges))) for vertex in tree]
    return list(_search(reverse, reversed(order)))


def _search(edges: Sequence[Sequence[int]], roots: Iterable[int]) -> Iterator[list[int]]:
    """Yield the vertices that a depth-first search finds from each root, each after those that it leads to."""
    seen: set[int] = set()
    for root in roots:
        stack, found = [root], list[int]()
        while stack:
            vertex = stack.pop()
            if vertex < 0:
                found.append(~vertex)
            elif vertex not in seen:
                seen.add(vertex)
                stack += [~vertex, *reversed(edges[vertex])]
        if found:
            yield found


def _sources(nodes: Sequence[Node]) -> list[list[int]]:
    """Return the indices of the nodes whose results each node reads."""
    writers = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    return [[writers[name] for name in node.inputs if name in writers] for node in nodes]
