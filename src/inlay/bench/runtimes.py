"""Who else runs networks: ONNX Runtime, OpenVINO and PyTorch, each in the best configuration that is known of it.

    ONNX Runtime    all optimizations of the graph; operators of the file or of opset 13, whichever is faster; bound
                    inputs
    OpenVINO        for latency, one stream, arithmetic of f32, inputs that are shared
    torch           eager in either memory format (see `torch_graphs`), or compiled where that is asked

All have the same number of threads, and are given the same arrays. A peer answers its variants one by one, so that one
whose numbers are wrong or which is slower can be dropped before the next is made.

The model is prepared as runtimes like it best: dims fixed, weights constant. Old files list initializers as inputs too,
and before version 4 of the format they had to: a runtime then cannot take them for constants, and folds nothing.
Operators of opset 13 let ONNX Runtime see patterns that it misses in older ones. A softmax hides differences, since of
saturated inputs it makes 0 and 1: for comparing, its input becomes an output.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from inlay.bench.report import require_installed
from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.network import Network, Tensor
from inlay.graph.onnx_package import helper, onnx
from inlay.graph.op_graph import Array, OpGraph
from inlay.measure.interleaved import Call

Model: TypeAlias = Any  # onnx.ModelProto, whose package ships no types

IR_VERSION = 8
"""Of the format: initializers are constants from 4 on, and every runtime of these years reads it."""
NEWER_OPSET = 13
"""The operators that ONNX Runtime optimizes best."""
_MOST_BYTES = (1 << 31) - 1


def prepared(model: Model, network: Network) -> Model:
    """`model`, changed in place: of the dims of `network`, each initializer a constant.

    Raises:
        Unimplemented: it has more bytes than a message of protobuf can hold.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    _replace(graph.input, [value for value in graph.input if value.name not in constants])
    for value in (*graph.input, *graph.output):
        _fix(value, network.tensors[value.name])
    _replace(graph.value_info, [])
    model.ir_version = max(model.ir_version, IR_VERSION)
    if model.ByteSize() > _MOST_BYTES:
        raise Unimplemented(
            f"the model has {model.ByteSize() / 1e9:.1f} GB: a runtime takes at most 2 GB in one message"
        )
    return model


def _fix(value: Any, tensor: Tensor) -> None:
    kind = helper.np_dtype_to_tensor_dtype(tensor.dtype)
    value.CopyFrom(helper.make_tensor_value_info(value.name, kind, tensor.dims))


def _replace(field: Any, values: list[Any]) -> None:
    """Let a repeated field have these values."""
    kept = [type(value).FromString(value.SerializeToString()) for value in values]
    del field[:]
    field.extend(kept)


def newer(model: Model) -> Model | None:
    """The same with operators of opset 13; None where it has them, or cannot be converted."""
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset >= NEWER_OPSET:
        return None
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, NEWER_OPSET)
    except (RuntimeError, ValueError):
        return None


def hidden(model: Model) -> dict[str, str]:
    """By output that a softmax writes, the tensor that it reads."""
    writers = {name: node for node in model.graph.node for name in node.output}
    found = {value.name: writers.get(value.name) for value in model.graph.output}
    return {
        name: node.input[0]
        for name, node in found.items()
        if node is not None and node.op_type in ("Softmax", "LogSoftmax")
    }


def answering(model: Model, tensors: list[str]) -> Model:
    """A copy of which these f32 tensors are outputs too."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for name in tensors:
        copy.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return copy


@dataclass(frozen=True, slots=True)
class Given:
    """What every peer is given."""

    model: Model
    """The model as `prepared` makes it."""
    graph: OpGraph
    """The same, in operations."""
    inputs: Mapping[str, Array]
    """An array for each input."""
    shown: tuple[str, ...]
    """Tensors that are compared besides the outputs."""
    threads: int
    """How many threads each may use."""
    compiles: bool = False
    """Whether PyTorch compiles the network too, which takes up to a minute."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A network in one configuration of a peer, ready to run."""

    how: str
    """The configuration, in words."""
    call: Call
    """A run."""
    results: Callable[[], Mapping[str, Array]]
    """The outputs of a run, and the tensors that are shown: for comparing, not for timing."""


Peer: TypeAlias = Callable[[Given], Iterator[Variant]]
Run: TypeAlias = Callable[[], Mapping[str, Array]]


def onnxruntime(given: Given) -> Iterator[Variant]:
    """ONNX Runtime.

    Raises:
        Unimplemented: it is not installed, or cannot run the model; the text is its own.
    """
    library = require_installed("onnxruntime")
    models = {"the file's opset": given.model, "opset 13": newer(given.model)}
    for how, model in models.items():
        if model is not None:
            yield _variant(how, partial(_onnxruntime_run, library), model, given)


def _onnxruntime_run(library: Any, model: Model, given: Given) -> tuple[Call, Run]:
    options = library.SessionOptions()
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = given.threads, 1
    options.log_severity_level = 4
    try:
        session = library.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except RuntimeError as error:
        raise Unimplemented(_first_line(error)) from None
    names = [value.name for value in session.get_outputs()]
    bound = session.io_binding()
    for name, array in given.inputs.items():
        bound.bind_ortvalue_input(name, library.OrtValue.ortvalue_from_numpy(array))
    for name in names:
        bound.bind_output(name, "cpu")

    def call() -> object:
        session.run_with_iobinding(bound)
        return bound.get_outputs()

    return call, lambda: dict(zip(names, session.run(None, dict(given.inputs)), strict=True))


def openvino(given: Given) -> Iterator[Variant]:
    """OpenVINO.

    Raises:
        Unimplemented: it is not installed, or cannot run the model; the text is its own.
    """
    library = require_installed("openvino")
    yield _variant("for latency, 1 stream, f32", partial(_openvino_run, library), given.model, given)


def _openvino_run(library: Any, model: Model, given: Given) -> tuple[Call, Run]:
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": given.threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = library.Core()
    try:
        compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", options)
    except RuntimeError as error:
        raise Unimplemented(_first_line(error)) from None
    request = compiled.create_infer_request()
    names = [value.name for value in model.graph.output]
    for name, array in given.inputs.items():
        request.set_tensor(name, library.Tensor(array, shared_memory=True))

    def results() -> Mapping[str, Array]:
        request.infer()
        return {name: np.array(request.get_tensor(name).data) for name in names}

    return lambda: request.infer(share_outputs=True), results


def _variant(how: str, prepare: Callable[[Model, Given], tuple[Call, Run]], model: Model, given: Given) -> Variant:
    """Return a configuration whose results hold the tensors that are shown, which only they compute as outputs."""
    call, results = prepare(model, given)
    if not given.shown:
        return Variant(how, call, results)
    _, shown = prepare(answering(model, list(given.shown)), given)
    return Variant(how, call, lambda: {**results(), **shown()})


def _first_line(error: BaseException) -> str:
    return f"cannot run it: {next(iter(str(error).strip().splitlines()), type(error).__name__)}"


def torch(given: Given) -> Iterator[Variant]:
    """PyTorch.

    Raises:
        Unimplemented: it is not installed, or has no function for an operation.
    """
    library = require_installed("torch")
    from inlay.bench.torch_graphs import runs

    library.set_num_threads(given.threads)
    for how, run in runs(library, given.graph, given.inputs, compiles=given.compiles):
        yield Variant(how, run, run)


PEERS: dict[str, Peer] = {"ONNX Runtime": onnxruntime, "OpenVINO": openvino, "torch": torch}
"""Everybody, by name."""


def chosen_peers(names: str | None) -> dict[str, Peer]:
    """Some of them, of a list of names separated by commas: onnxruntime, openvino, torch; all for None.

    Raises:
        InvalidArguments: a name is none of theirs.
    """
    if names is None:
        return dict(PEERS)
    known = {name.lower().replace(" ", ""): name for name in PEERS}
    wanted = [name.strip().lower() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in known:
            raise InvalidArguments(f"no peer is called {name!r}: give some of {', '.join(known)}, joined by commas")
    return {known[name]: PEERS[known[name]] for name in known if name in wanted}
