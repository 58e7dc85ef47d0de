"""Runtimes that a network is compared with: ONNX Runtime, OpenVINO and PyTorch, each in its best known configurations.

    ONNX Runtime    all optimizations of the graph; operators of the file or of opset 13; bound inputs
    OpenVINO        for latency, one stream, arithmetic of f32 or of the precision that is asked for, shared inputs
    torch           eager in either memory format (see `inlay.graph.torch_graph`), or compiled on request; in another
                    precision as a module of it, or with autocast

All have the same number of threads and get the same arrays. A runtime yields its configurations one by one, so that
one whose numbers are wrong or which is slower can be dropped before the next is made.

The model is prepared so that runtimes can fold constants: dims are fixed and weights are constants. Old files list
initializers as inputs too, and before version 4 of the format they had to. Operators of opset 13 let ONNX Runtime see
patterns that it misses in older ones. A softmax hides differences, since of saturated inputs it makes 0 and 1: to
compare numbers, its input becomes an output.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from inlay.bench.contenders import require_installed
from inlay.bench.precision import REQUESTS, BenchPrecision
from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.network import Network
from inlay.graph.onnx_package import helper, onnx
from inlay.graph.op_graph import Array, OpGraph
from inlay.measure.interleaved import Call

Model: TypeAlias = Any  # onnx.ModelProto, whose package ships no types

IR_VERSION = 8
"""The version of the file format: initializers are constants from 4 on, and every current runtime reads it."""
NEWER_OPSET = 13
"""The operators that ONNX Runtime optimizes best."""
_PLACES = ("Exception from", "Check ", "[")  # beginnings of lines that say where an error was raised
_MOST_BYTES = (1 << 31) - 1


def prepare_model(model: Model, network: Network) -> Model:
    """Change `model` in place: fix its dims to those of `network`, and make each initializer a constant.

    Raises:
        Unimplemented: it has more bytes than a message of protobuf can hold.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [type(value).FromString(value.SerializeToString()) for value in graph.input if value.name not in constants]
    del graph.input[:], graph.value_info[:]
    graph.input.extend(inputs)
    for value in (*graph.input, *graph.output):
        tensor = network.tensors[value.name]
        kind = helper.np_dtype_to_tensor_dtype(tensor.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, None if tensor.is_dynamic else tensor.dims))
    model.ir_version = max(model.ir_version, IR_VERSION)
    if model.ByteSize() > _MOST_BYTES:
        raise Unimplemented(
            f"the model has {model.ByteSize() / 1e9:.1f} GB: a runtime takes at most 2 GB in one message"
        )
    return model


def convert_to_newer_opset(model: Model) -> Model | None:
    """Return the model with operators of opset 13; None if it has them already, or cannot be converted."""
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset >= NEWER_OPSET:
        return None
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, NEWER_OPSET)
    except (RuntimeError, ValueError):
        return None


def softmax_inputs(model: Model) -> dict[str, str]:
    """Return for each output that a softmax writes the name of the tensor that the softmax reads."""
    writers = {name: node for node in model.graph.node for name in node.output}
    nodes = {value.name: writers[value.name] for value in model.graph.output if value.name in writers}
    return {name: node.input[0] for name, node in nodes.items() if node.op_type in ("Softmax", "LogSoftmax")}


def with_outputs(model: Model, tensors: list[str]) -> Model:
    """Return a copy of the model of which these f32 tensors are outputs too."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for name in tensors:
        copy.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return copy


@dataclass(frozen=True, slots=True)
class NetworkInputs:
    """A network and its inputs, as every runtime gets them."""

    model: Model  # the model as `prepare_model` returns it
    graph: OpGraph  # the same network as operations
    inputs: Mapping[str, Array]  # an array for each input
    compared: tuple[str, ...]  # tensors that are compared besides the outputs
    threads: int  # the number of threads of each runtime
    compiles: bool = False  # true if PyTorch compiles the network too, which takes up to a minute
    precision: BenchPrecision = "f32"  # the precision that a runtime is asked for


@dataclass(frozen=True, slots=True)
class Configuration:
    """A network in one configuration of a runtime, ready to run."""

    how: str  # the configuration in words
    call: Call  # a run
    results: Callable[[], Mapping[str, Array]]  # outputs and compared tensors of a run: for comparing, not for timing


Runtime: TypeAlias = Callable[[NetworkInputs], Iterator[Configuration]]
_Prepared: TypeAlias = tuple[Call, Callable[[], Mapping[str, Array]], str]  # with the types that it computes in


def onnxruntime(case: NetworkInputs) -> Iterator[Configuration]:
    """Yield configurations of ONNX Runtime.

    Raises:
        Unimplemented: it is not installed, or cannot run the model; the text is its own.
    """
    library = require_installed("onnxruntime")
    models = {"the file's opset": case.model, "opset 13": convert_to_newer_opset(case.model)}
    for how, model in models.items():
        if model is not None:
            yield _configuration(how, _prepare_onnxruntime, library, model, case)


def _prepare_onnxruntime(library: Any, model: Model, case: NetworkInputs) -> _Prepared:
    """Prepare ONNX Runtime with bound inputs and outputs."""
    options = library.SessionOptions()
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = case.threads, 1
    options.log_severity_level = 4
    session = library.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    bound = session.io_binding()
    for name, array in case.inputs.items():
        bound.bind_ortvalue_input(name, library.OrtValue.ortvalue_from_numpy(array))
    for name in names:
        bound.bind_output(name, "cpu")

    def call() -> object:
        session.run_with_iobinding(bound)
        return bound.get_outputs()

    return call, lambda: dict(zip(names, session.run(None, dict(case.inputs)), strict=True)), ""


def openvino(case: NetworkInputs) -> Iterator[Configuration]:
    """Yield the configuration of OpenVINO.

    Raises:
        Unimplemented: it is not installed, or cannot run the model; the text is its own.
    """
    library = require_installed("openvino")
    for hint in REQUESTS[case.precision].openvino:
        yield _configuration("for latency, 1 stream", partial(_prepare_openvino, hint), library, case.model, case)


def _prepare_openvino(hint: str, library: Any, model: Model, case: NetworkInputs) -> _Prepared:
    """Prepare OpenVINO with shared inputs; `hint` is on the precision, empty for the default."""
    options: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    options |= {"INFERENCE_PRECISION_HINT": hint} if hint else {}
    core, options["INFERENCE_NUM_THREADS"] = library.Core(), case.threads
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", options)
    request, chosen = compiled.create_infer_request(), compiled.get_property("INFERENCE_PRECISION_HINT")
    names = [value.name for value in model.graph.output]
    for name, array in case.inputs.items():
        request.set_tensor(name, library.Tensor(array, shared_memory=True))

    def results() -> Mapping[str, Array]:
        request.infer()
        return {name: np.array(request.get_tensor(name).data) for name in names}

    return lambda: request.infer(share_outputs=True), results, chosen.get_type_name()


def _configuration(
    how: str, prepare: Callable[[Any, Model, NetworkInputs], _Prepared], library: Any, model: Model, case: NetworkInputs
) -> Configuration:
    """Prepare a model, and a second one that computes the compared tensors as outputs."""
    try:
        call, results, types = prepare(library, model, case)
        how = ", ".join(filter(None, (how, types)))
        if not case.compared:
            return Configuration(how, call, results)
        _, compared, _ = prepare(library, with_outputs(model, list(case.compared)), case)
    except RuntimeError as error:
        lines = (line for line in str(error).strip().splitlines() if not line.startswith(_PLACES))
        line = next(lines, type(error).__name__)
        raise Unimplemented(f"cannot run it: {line}") from None
    return Configuration(how, call, lambda: {**results(), **compared()})


def torch(case: NetworkInputs) -> Iterator[Configuration]:
    """Yield configurations of PyTorch.

    Raises:
        Unimplemented: it is not installed, or has no function for an operation.
    """
    library = require_installed("torch")
    from inlay.graph.torch_graph import torch_runs

    library.set_num_threads(case.threads)
    for types in REQUESTS[case.precision].torch:
        for how, run in torch_runs(library, case.graph, case.inputs, types=types, compiles=case.compiles):
            yield Configuration(how, run, run)


RUNTIMES: dict[str, Runtime] = {"ONNX Runtime": onnxruntime, "OpenVINO": openvino, "torch": torch}
"""All runtimes but Inlay, by name."""


def chosen_runtimes(names: str | None) -> dict[str, Runtime]:
    """Return the runtimes of a list of names (onnxruntime, openvino, torch) joined by commas; all for None.

    Raises:
        InvalidArguments: a name is none of theirs.
    """
    if names is None:
        return dict(RUNTIMES)
    known = {name.lower().replace(" ", ""): name for name in RUNTIMES}
    wanted = [name.strip().lower() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in known:
            raise InvalidArguments(f"no peer is called {name!r}: give some of {', '.join(known)}, joined by commas")
    return {known[name]: RUNTIMES[known[name]] for name in known if name in wanted}
