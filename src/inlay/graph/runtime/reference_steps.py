"""Compilation of references: steps that ONNX Runtime or NumPy computes."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from inlay.errors import InvalidArguments
from inlay.graph.fallback.sessions import FallbackSession, describe_interface, take_session
from inlay.graph.network import Subgraph
from inlay.graph.numpy_operators.evaluation import Computation, build_computation
from inlay.graph.op_graph import OpGraph
from inlay.graph.program import Buffer, Program, Step
from inlay.graph.runtime.prepared_steps import Call, PreparedStep, Workspace, require_arguments
from inlay.layout import Layout
from inlay.reordering.threads import get_num_threads


def prepare_reference(step: Step, program: Program, graph: OpGraph) -> PreparedStep:
    """Compile a step that ONNX Runtime or NumPy computes.

    Raises:
        InvalidArguments: the step lacks an argument or has one too many, or a buffer has blocks.
        Unimplemented: neither ONNX Runtime nor NumPy supports the node.
        MissingExtra: onnx or onnxruntime is not installed.
    """
    assert step.node is not None  # `require_names` checks this
    node = step.node
    reads, writes = (
        {program.buffers[name].tensor: name for name in names.values()} for names in (step.reads, step.writes)
    )
    require_arguments(step, {name for name in node.inputs if name}, {*reads, *step.constants})
    require_arguments(step, {name for name in node.outputs if name} & {*writes}, {*writes})
    for name in (*reads.values(), *writes.values()):
        _require_plain(step, program.buffers[name])
    if isinstance(node, Subgraph):
        interface = describe_interface(node, graph.opset, graph.tensors, writes, step.constants)
        session = take_session(graph.sessions, interface, get_num_threads())
        inner = zip(node.inner_names, node.inputs, strict=True)
        sources = {own: reads[name] for own, name in inner if name in reads}
        results = {name: buffer for name, buffer in writes.items() if not graph.tensors[name].is_dynamic}
        return PreparedStep(step, partial(_bind_subgraph, session, {**sources, **results}))
    return PreparedStep(step, partial(_bind_node, step, build_computation(node, graph.opset), reads, writes))


def _bind_subgraph(session: FallbackSession, buffers: Mapping[str, str], workspace: Workspace) -> Call:
    """Bind a session of ONNX Runtime to buffers, by the names of its tensors, and return its call."""
    arrays = {name: workspace.array(buffer) for name, buffer in buffers.items()}
    return session.bind(arrays, workspace.dynamic)


def _bind_node(
    step: Step, compute: Computation, reads: Mapping[str, str], writes: Mapping[str, str], workspace: Workspace
) -> Call:
    """Bind a node to arrays and return the call that computes it by NumPy.

    `reads` and `writes` map the node's names of tensors to buffers.
    """
    sources = {name: workspace.array(buffer) for name, buffer in reads.items()} | dict(step.constants)
    results = {name: workspace.array(buffer) for name, buffer in writes.items()}

    def run() -> None:
        found = compute(sources, results)
        for name, result in results.items():
            if found[name].shape != result.shape:
                raise InvalidArguments(
                    f"step {step.name}: {name} has dims {found[name].shape} now, the network says "
                    f"{result.shape}: dims that depend on values cannot be compiled"
                )
            if found[name].dtype != result.dtype:
                raise InvalidArguments(
                    f"step {step.name}: {name} is {found[name].dtype}, the network says {result.dtype}: correct the "
                    "model"
                )
            if found[name] is not result:
                np.copyto(result, found[name], casting="no")

    return run


def _require_plain(step: Step, buffer: Buffer) -> None:
    """Check that the buffer of a reference has a format without blocks."""
    layout = None if buffer.desc is None else buffer.desc.layout
    if layout is not None and not (isinstance(layout, Layout) and not any(axis.inner for axis in layout.axes)):
        raise InvalidArguments(
            f"step {step.name} is computed by NumPy, and buffer {buffer.name} is {buffer.desc!r}: give it a format "
            "without blocks"
        )
