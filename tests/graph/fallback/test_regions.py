"""Regions that only ONNX Runtime computes: control flow, sequences, dims that depend on data, its own operators."""

import pickle
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

import inlay
from inlay.cli import main
from inlay.errors import InlayError, InvalidArguments
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from inlay.graph.plan import Plan
from inlay.graph.report import explain_plan
from inlay.render.network.flow import flow_of
from tests.support.network_runs import run_by_onnxruntime
from tests.support.networks import Model
from tests.support.refusals import raises_exactly

pytest.importorskip("onnxruntime")

HEADER = '<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]>\n'
LOOP = "Loop <body = b (int64 i, bool c, float[4, 5] v) => (bool d, float[4, 5] w, float[4, 5] u)"
MODELS: Mapping[str, str] = MappingProxyType(
    {
        "dims": "g (float[4, 5] x) => (int64[2, n] y) { r = Relu(x) y = NonZero(r) }",
        "known dims after a region": (
            "g (float[4, 5] x) => (float[n] y, int64[2] s, float[4, 5] z) { i = NonZero(x) t = Transpose(i) "
            "y = GatherND(x, t) a = Shape(i) s = Neg(a) z = Exp(x) }"
        ),
        "a path that leaves the region and returns": (
            "g (float[4, 5] x) => (float[n] y) { i = NonZero(x) s = Shape(i) c = Cast <to = 1> (s) d = Sigmoid(c) "
            "e = Cast <to = 7> (d) t = Transpose(i) q = Add(t, e) k = Cast <to = 1> (q) "
            "f = Constant <value = int64[1] {-1}> () y = Reshape(k, f) }"
        ),
        "an output under two names": "g (float[6] x) => (float[n] y, float[n] z) { y = Unique(x) z = Identity(y) }",
        "a result that a no-op renames": (
            "g (float[4, 5] x) => (float[4, 5] y, float[3, 4, 5] z) { n = Constant <value = int64 {3}> () "
            f"a, b = {LOOP} {{ d = Identity(c) w = Sin(v) u = Cos(w) }}> (n, , x) y = Identity(a) "
            "z = Cast <to = 1> (b) }"
        ),
        "branches": (
            "g (float[4, 5] x) => (float[4, 5] y) { m = ReduceMax <keepdims = 0> (x) "
            "h = Constant <value = float {1.5}> () c = Greater(m, h) r = Relu(x) y = If(c) "
            "<then_branch = a () => (float[4, 5] s) { s = Add(r, x) }, "
            "else_branch = b () => (float[4, 5] p) { p = Mul(r, r) }> }"
        ),
        "an inlined branch with a loop": (
            "g (float[4, 5] x) => (float[4, 5] y) { c = Constant <value = int64 {1}> () k = Cast <to = 9> (c) "
            "y = If(k) <then_branch = a () => (float[4, 5] s) { n = Constant <value = int64 {2}> () "
            f"q = Relu(x) s, e = {LOOP} {{ d = Identity(c) w = Add(v, q) u = Sin(w) }}> (n, k, x) }}, "
            "else_branch = f () => (float[4, 5] p) { p = Neg(x) }> }"
        ),
        "a loop": (
            "g (float[4, 5] x) => (float[4, 5] y, float[3, 4, 5] z) { n = Constant <value = int64 {3}> () r = Relu(x) "
            f"a, z = {LOOP} {{ d = Identity(c) w = Add(v, r) u = Sin(w) }}> (n, , x) y = Exp(a) }}"
        ),
        "sequences": (
            "g (float[4, 6] x) => (float[4, 3] y) { n = Constant <value = int64 {3}> () "
            "s = SplitToSequence <axis = 1> (x, n) k = Constant <value = int64 {1}> () a = SequenceAt(s, k) "
            "y = Sigmoid(a) }"
        ),
        "an optional value": "g (float[6] x) => (float[6] y) { o = Optional(x) y = OptionalGetElement(o) }",
        "operators of ONNX Runtime": (
            "g (float[4, 5] x) => (float[4, 4] y) { r = Relu(x) "
            "a = com.microsoft.FusedMatMul <transB = 1, alpha = 0.5> (r, x) "
            "b = com.microsoft.QuickGelu <alpha = 1.5> (a) y = Sigmoid(b) }"
        ),
        "an operator of ONNX Runtime with a name of ONNX's": (
            "g (float[4, 5] x) => (float[4, 5] y) { a = com.microsoft.Gelu(x) y = Relu(a) }"
        ),
        "narrow floats": (
            "g (float16[4, 5] x) => (float16[4, 4] y) { r = Relu(x) a = com.microsoft.FusedMatMul <transB = 1> (r, x) "
            "y = Sigmoid(a) }"
        ),
    }
)
DIMS = "the dims of NonZero's results depend on the data of a run"


def model_of(name: str) -> Model:
    return parser.parse_model(HEADER + MODELS[name])


def network_of(name: str) -> Network:
    return load_bound(model_of(name).SerializeToString())


def plan_of(name: str) -> Plan:
    return inlay.plan(network_of(name), costs="analytic")


def input_of(model: Model, seed: int = 0) -> Array:
    kind = model.graph.input[0].type.tensor_type
    dims = [dim.dim_value for dim in kind.shape.dim]
    dtype: Any = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    return np.random.default_rng(seed).standard_normal(dims).astype(dtype)


@pytest.mark.parametrize("name", MODELS)
def test_regions_compute_what_onnx_runtime_computes(name: str) -> None:
    model, session = model_of(name), plan_of(name).compile(engine="reference")
    for seed in range(3):  # the dims of results differ
        x = input_of(model, seed)
        got, wanted = session.run({"x": x}), run_by_onnxruntime(model, {"x": x})
        assert got.keys() == wanted.keys()
        for key, result in wanted.items():
            assert (got[key].dtype, got[key].shape) == (result.dtype, result.shape)
            np.testing.assert_allclose(got[key], result, rtol=2e-3 if x.itemsize == 2 else 1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("known dims after a region", ["Subgraph", "Neg", "Exp"]),
        ("a path that leaves the region and returns", ["Subgraph"]),
        ("an operator of ONNX Runtime with a name of ONNX's", ["Subgraph", "Relu"]),
    ],
)
def test_a_region_ends_where_dims_are_known(name: str, operators: list[str]) -> None:
    assert [node.operator for node in network_of(name).nodes] == operators


def test_dims_that_depend_on_data_are_described() -> None:
    network = network_of("dims")
    assert (network.tensors["y"].dims, network.tensors["y"].is_dynamic) == ((2, 0), True)
    assert repr(network) == "<Network g: x (4, 5) -> y (2, ?); 2 nodes, opset 17>"
    found = inlay.plan(network, costs="analytic")
    assert f"y is computed by ONNX Runtime: {DIMS}" in " ".join(explain_plan(found).split())
    titles = [(mark.title, mark.note) for mark in flow_of(found).marks]
    assert titles[2:] == [("NonZero", "y \N{MIDDLE DOT} ONNX Runtime"), ("y 2x?", "")]


def test_adjacent_operators_of_onnx_runtime_are_one_step() -> None:
    found = plan_of("operators of ONNX Runtime")
    assert [step.ops for step in found.program.steps if step.impl == "onnxruntime"] == [("a",)]


def test_results_of_several_runs_are_arrays_of_their_own() -> None:
    model, session = model_of("dims"), plan_of("dims").compile(engine="reference")
    inputs = [input_of(model, seed) for seed in range(3)]
    results = [session.run({"x": x})["y"] for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        assert np.array_equal(result, np.array(np.nonzero(x > 0)))


def test_traces_profiles_and_pickled_plans() -> None:
    found, x = plan_of("dims"), input_of(model_of("dims"))
    session = pickle.loads(pickle.dumps(found)).compile(engine="reference")
    assert np.array_equal(session.trace({"x": x})["y"], np.array(np.nonzero(x > 0)))
    assert [timing.impl for timing in session.profile({"x": x}, runs=1)][-1] == "onnxruntime"
    assert network_of("dims") == pickle.loads(pickle.dumps(network_of("dims")))


@pytest.mark.parametrize("name", MODELS)
def test_plans_with_regions_can_be_saved(tmp_path: Path, name: str) -> None:
    plan, model = plan_of(name), model_of(name)
    plan.save(tmp_path / "net.inlay")
    inputs = {"x": input_of(model)}
    with inlay.Session.load(tmp_path / "net.inlay") as session, plan.compile() as original:
        found, wanted = session.run(inputs), original.run(inputs)
    assert {name: array.tobytes() for name, array in found.items()} == {n: a.tobytes() for n, a in wanted.items()}


def test_an_array_for_a_result_without_fixed_dims_is_refused() -> None:
    session = plan_of("dims").compile(engine="reference")
    with raises_exactly(
        InvalidArguments,
        "out of y is given, and its dims depend on the data of a run: leave it out, each run returns a new array",
    ):
        session.run({"x": input_of(model_of("dims"))}, out={"y": np.empty((2, 5), np.int64)})


def refusal(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(InlayError) as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_regions_are_refused_where_onnx_runtime_is_forbidden() -> None:
    network = network_of("dims")
    only = f"node 'y': {DIMS}: only ONNX Runtime computes it, and fallback=False (--fallback numpy) forbids it"
    assert refusal(inlay.plan, network, costs="analytic", fallback=False) == only
    assert refusal(inlay.plan, network, costs="analytic", fallback=None) == (
        f"fallback=None (--fallback none) allows primitives alone, and 1 of 2 operations have none: 'y' ({DIMS}): "
        "give fallback=False (--fallback numpy) for NumPy, or 'auto' for ONNX Runtime too"
    )


def test_the_command_line_refuses_them_in_words_of_its_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(model_of("dims").SerializeToString())
    assert main(["plan", str(file), "--costs", "analytic", "--fallback", "numpy"]) != 0
    assert "only ONNX Runtime computes it, and fallback=False (--fallback numpy) forbids it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "g (float[4] x) => (seq(float[n]) y) { y = SequenceConstruct(x) }",
            "output 'y' is a sequence, an optional value or a text: only tensors of numbers and booleans are "
            "supported; export the model with tensors in its place",
        ),
        (
            "g (float[4] x) => (float[4] y) { y = com.microsoft.Whirl(x) }",
            "node 'y': Whirl of com.microsoft is not supported: ONNX Runtime: Fatal error: com.microsoft:Whirl(-1) is "
            "not a registered function/op",
        ),
        (
            "g (float[4] x) => (float[4] y) { i = NonZero(x) y = Concat <axis = 7> (i, i) }",
            "node 'y': Concat is not supported: ONNX Runtime: Node (y) Op (Concat) [ShapeInferenceError] axis must be "
            "in [-rank, rank-1]",
        ),
        (
            "g (float[1, 4, 1] x, int64 a) => (float[l, m, n] y) { y = DFT <onesided = 1> (x, , a) }",
            "node 'y': only ONNX Runtime computes a DFT whose dims depend on data or that is in a loop or branch, and "
            "its rounding errors are those of sums, not of a fast transform: export the model with constants in its "
            "place",
        ),
    ],
)
def test_wrong_regions_are_refused(text: str, error: str) -> None:
    assert refusal(inlay.load, parser.parse_model(HEADER.replace("17", "20") + text).SerializeToString()) == error


def test_results_of_narrow_floats_without_fixed_dims() -> None:
    text = "c = Greater(x, k) f = Constant <value = int64[1] {-1}> () r = Reshape(c, f) y = Compress(x, r)"
    header = HEADER.replace("17", "28")
    model = parser.parse_model(header + f"g (bfloat16[4] x, bfloat16[1] k) => (bfloat16[n] y) {{ {text} }}")
    session = inlay.plan(inlay.load(model.SerializeToString()), costs="analytic").compile(engine="reference")
    x, k = (np.array(numbers, ml_dtypes.bfloat16) for numbers in ([1, -2, 3, 0.5], [0]))
    assert session.run({"x": x, "k": k})["y"].astype(float).tolist() == [1, 3, 0.5]
    assert session.run({"x": -x, "k": k})["y"].astype(float).tolist() == [2]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the process was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_loop_without_end() -> None:
    text = (
        "g (float[4] x) => (float[4] y) { n = Constant <value = int64 {9223372036854775807}> () y = Loop <body = "
        "b (int64 i, bool c, float[4] v) => (bool d, float[4] w) { d = Identity(c) w = Sin(v) }> (n, , x) }"
    )
    model = parser.parse_model(HEADER + text)
    session = inlay.plan(inlay.load(model.SerializeToString()), costs="analytic").compile(engine="reference")
    for _ in range(2):
        timer = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            session.run({"x": np.ones(4, np.float32)})


def test_an_error_of_a_run_names_the_nodes_of_a_region() -> None:
    text = (
        "m = ReduceMax <keepdims = 0> (x) k = Cast <to = 7> (m) s = SplitToSequence <axis = 0> (x) y = SequenceAt(s, k)"
    )
    model = parser.parse_model(HEADER + f"g (float[4] x) => (float[n] y) {{ {text} }}")
    session = inlay.plan(inlay.load(model.SerializeToString()), costs="analytic").compile(engine="reference")
    assert refusal(session.run, {"x": np.full(4, 9, np.float32)}) == (
        "step k, of Cast 'k', SplitToSequence 's', SequenceAt 'y': ONNX Runtime does not compute these inputs: Error "
        "in execution: Non-zero status code returned while running SequenceAt node. Name:'y' Status Message: Invalid "
        "sequence index (9) specified for sequence of size (4)"
    )


def test_an_error_of_a_run_names_the_node() -> None:
    text = "i = NonZero(x) d = Constant <value = int64[2] {1, 3}> () s = Reshape(i, d) y = Cast <to = 1> (s)"
    model = parser.parse_model(HEADER + f"g (float[4] x) => (float[n, m] y) {{ {text} }}")
    session = inlay.plan(inlay.load(model.SerializeToString()), costs="analytic").compile(engine="reference")
    assert session.run({"x": np.array([1, 2, 0, 3], np.float32)})["y"].tolist() == [[0, 1, 3]]
    error = "node 's': Reshape: 4 elements do not fit dims (1, 3)"
    assert refusal(session.run, {"x": np.ones(4, np.float32)}) == error
