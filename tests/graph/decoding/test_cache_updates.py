"""Decoders that update a cache of the maximum length by TensorScatter: in one run, and step by step."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import inlay
from inlay.errors import InvalidArguments
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenNetwork
from inlay.graph.session import Session
from inlay.graph.states import StateOptions
from tests.support.refusals import raises_exactly

HEADS, GROUPS, SIZE, WIDTH, MOST = 4, 2, 16, 8, 200
PARTS = {"key": ("k", SIZE), "value": ("v", WIDTH)}
NUMBERS = ("write_indices", "nonpad_kv_seqlen")
CLOSE = 1e-5


def write_model(
    maximum: int | str = MOST,
    rows: int | str = "new",
    batch: int | str = "batch",
    *,
    mode: str = "linear",
    is_causal: bool = True,
    scores: bool = False,
    index: str = "write_indices",
    count: str = "nonpad_kv_seqlen",
    more: tuple[Any, ...] = (),
    constants: Mapping[str, Array] | None = None,
) -> Any:
    """One Attention over caches that TensorScatter updates; `index` and `count` name what the nodes read."""

    def value(name: str, *dims: int | str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *dims])

    inputs = [value("q", HEADS, rows, SIZE), value("k", GROUPS, rows, SIZE), value("v", GROUPS, rows, WIDTH)]
    inputs += [value(f"past.{part}", GROUPS, maximum, size) for part, (_, size) in PARTS.items()]
    read = {index, count, *(name for one in more for name in one.input)}
    inputs += [helper.make_tensor_value_info(name, TensorProto.INT64, [batch]) for name in NUMBERS if name in read]
    outputs = [value("y", HEADS, rows, WIDTH)]
    outputs += [value(f"updated.{part}", GROUPS, maximum, size) for part, (_, size) in PARTS.items()]
    nodes = list(more)
    for part, (new, _) in PARTS.items():
        names = [f"past.{part}", new, index] if index else [f"past.{part}", new]
        result = [f"updated.{part}"]
        nodes.append(helper.make_node("TensorScatter", names, result, name=f"scatter_{part}", mode=mode))
    has_mask = "mask" in {*(constants or {}), *(name for one in more for name in one.output)}
    names = ["q", "updated.key", "updated.value", "mask" if has_mask else "", "", "", count]
    results = ["y", "", "", "scores"] if scores else ["y"]
    outputs += [value("scores", HEADS, rows, maximum)] if scores else []
    nodes.append(helper.make_node("Attention", names, results, name="attention", is_causal=int(is_causal)))
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "updates", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def node(operator: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    """A node of another part of the model."""
    return helper.make_node(operator, inputs, [output], name=operator.lower(), **attributes)


def draw_rows(batch: int, rows: int) -> dict[str, Array]:
    """Queries, keys and values of new positions."""
    rng = np.random.default_rng(rows)
    sizes = {"q": (HEADS, SIZE), "k": (GROUPS, SIZE), "v": (GROUPS, WIDTH)}
    return {name: rng.standard_normal((batch, n, rows, m), np.float32) for name, (n, m) in sizes.items()}


def expected_rows(rows: Mapping[str, Array]) -> Array:
    """The attention of whole sequences in float64, each position to itself and earlier ones."""
    q, k, v = (rows[name].astype(np.float64) for name in "qkv")
    k, v = (np.repeat(one, HEADS // GROUPS, 1) for one in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(SIZE)
    powers = np.exp(scores + np.triu(np.full(scores.shape[2:], -np.inf), 1))
    return np.asarray(powers / powers.sum(-1, keepdims=True) @ v)


def decoding_session(model: Any, maximum: int = 180, engine: str | None = None, page: int | None = None) -> Session:
    """A session of a model that keeps states."""
    state = StateOptions(maximum=maximum, page=page)
    network = inlay.load(model.SerializeToString())
    return inlay.compile(network, engine=engine, costs="probed" if engine is None else "analytic", state=state)


def take(rows: Mapping[str, Array], first: int, last: int) -> dict[str, Array]:
    """Some positions of rows."""
    return {name: array[:, :, first:last] for name, array in rows.items()}


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize(("rows", "starts"), [(1, (3, 9)), (4, (0, 2)), (3, (7, 6))])
def test_a_run_without_states_equals_onnx(mode: str, rows: int, starts: tuple[int, int]) -> None:
    model = write_model("maximum", mode=mode)
    loaded = inlay.load(model.SerializeToString())
    assert isinstance(loaded, OpenNetwork)
    rng = np.random.default_rng(rows)
    inputs = draw_rows(2, rows) | {"write_indices": np.array(starts), "nonpad_kv_seqlen": np.array(starts) + rows}
    if mode == "circular":  # the second sequence begins again
        inputs |= {"write_indices": np.array([starts[0], 9]), "nonpad_kv_seqlen": np.array([starts[0] + rows, 10])}
    for part, (_, size) in PARTS.items():
        inputs[f"past.{part}"] = rng.standard_normal((2, GROUPS, 10, size), np.float32)
    session = inlay.plan(loaded.bind({"batch": 2, "maximum": 10, "new": rows}), costs="probed").compile()
    found, names = session.run(inputs), ["y", "updated.key", "updated.value"]
    for name, expected in zip(names, ReferenceEvaluator(model).run(names, inputs), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=CLOSE, err_msg=name)


@pytest.mark.parametrize(
    "options",
    [{}, {"maximum": "maximum"}, {"mode": "circular"}, {"is_causal": False}],
    ids=["fixed", "open", "circular", "not causal"],
)
def test_steps_equal_the_whole_sequence(options: dict[str, Any]) -> None:
    rows, session = draw_rows(2, 150), decoding_session(write_model(**options))
    expected, state = expected_rows(rows), session.new_state(batch=2)
    for first, last in ((0, 20), *((at, at + 1) for at in range(20, 148)), (148, 150)):
        found = session.step(take(rows, first, last), state=state)
        assert found.keys() == {"y"}
        np.testing.assert_allclose(found["y"], expected[:, :, first:last], rtol=0, atol=CLOSE)
    assert (state.length, state.maximum) == (150, 180)
    lengths = {tensor.dims[0] for plan in session.plans for tensor in plan.inputs if "past" in tensor.name}
    assert lengths == {64, 128, 180}  # not the 200 positions of the model
    steps = [[op.kind for op in plan.graph.ops] for plan in session.plans if "inlay:position" in plan.graph.inputs]
    assert [kinds.count("cache_write") for kinds in steps] == [2] * len(lengths)
    assert not [kinds for kinds in steps if "reference" in kinds]  # the number of valid positions is not compared


@pytest.mark.heavy
def test_steps_equal_onnxruntime_with_its_outputs_fed_back() -> None:
    runtime = pytest.importorskip("onnxruntime")
    model, options = write_model(), runtime.SessionOptions()
    options.log_severity_level = 3  # it warns of each copy of a cache
    try:
        peer = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except runtime.capi.onnxruntime_pybind11_state.Fail:
        pytest.skip("this ONNX Runtime has no operators of opset 24")
    rows, session = draw_rows(1, 70), decoding_session(model)
    state = session.new_state()
    caches = [np.zeros((1, GROUPS, MOST, size), np.float32) for _, size in PARTS.values()]
    for first, last in ((0, 5), *((at, at + 1) for at in range(5, 70))):
        new = take(rows, first, last)
        fed = dict(zip((f"past.{part}" for part in PARTS), caches, strict=True))
        fed |= {"write_indices": np.array([first]), "nonpad_kv_seqlen": np.array([last])}
        expected, *caches = peer.run(None, {**new, **fed})
        np.testing.assert_allclose(session.step(new, state=state)["y"], expected, rtol=0, atol=CLOSE)


def test_a_model_without_open_dims_is_decoded_one_position_at_a_time() -> None:
    rows, session = draw_rows(1, 70), decoding_session(write_model(100, 1, 1), 2048, page=500)
    expected = expected_rows(rows)
    with session.new_state() as state:
        assert state.maximum == 100
        for at in range(70):
            found = session.step(take(rows, at, at + 1), state=state)["y"]
            np.testing.assert_allclose(found, expected[:, :, at : at + 1], rtol=0, atol=CLOSE)
        assert {tensor.dims[0] for plan in session.plans for tensor in plan.inputs if "past" in tensor.name} == {
            64,
            100,
        }


@pytest.mark.parametrize("maximum", [MOST, "maximum"])
def test_a_mask_of_the_maximum_length_is_one_of_all_positions_so_far(maximum: int | str) -> None:
    """The first position of the second sequence is padding."""
    more = node("Cast", ["attention_mask"], "seen", to=TensorProto.BOOL), node("Unsqueeze", ["seen", "axes"], "mask")
    model = write_model(maximum, 1, is_causal=False, count="", more=more, constants={"axes": np.array([1, 2])})
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", maximum])
    model.graph.input.append(mask)
    rows, session = draw_rows(2, 70), decoding_session(model)
    alone = {name: array[1:, :, 1:] for name, array in rows.items()}
    expected, second, state = expected_rows(rows), expected_rows(alone), session.new_state(batch=2)
    for at in range(70):
        seen = np.ones((2, at + 1), np.int64)
        seen[1, 0] = at == 0
        found = session.step(take(rows, at, at + 1) | {"attention_mask": seen}, state=state)["y"]
        np.testing.assert_allclose(found[:1], expected[:1, :, at : at + 1], rtol=0, atol=CLOSE)
        if at:
            np.testing.assert_allclose(found[1:], second[:, :, at - 1 : at], rtol=0, atol=CLOSE)


def test_truncated_states_go_on_from_there() -> None:
    rows, other, session = draw_rows(1, 40), draw_rows(1, 30), decoding_session(write_model(), engine="reference")
    expected, state = expected_rows(rows), session.new_state()
    session.step(take(rows, 0, 20), state=state)
    session.step(take(other, 0, 5), state=state)
    state.truncate(20)
    found = session.step(take(rows, 20, 22), state=state)["y"]
    np.testing.assert_allclose(found, expected[:, :, 20:22], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("formula", [["write_indices", "one"], ["one", "write_indices"]])
def test_a_number_of_valid_positions_may_be_computed(formula: list[str]) -> None:
    count = helper.make_node("Add", formula, ["count"])
    model = write_model(rows=1, more=(count,), count="count", constants={"one": np.array([1])})
    rows, session = draw_rows(1, 70), decoding_session(model, engine="reference")
    expected, state = expected_rows(rows), session.new_state()
    for at in range(70):
        found = session.step(take(rows, at, at + 1), state=state)["y"]
        np.testing.assert_allclose(found, expected[:, :, at : at + 1], rtol=0, atol=CLOSE)


def test_other_nodes_read_the_number_of_valid_positions_of_a_prompt() -> None:
    last = node("Sub", ["nonpad_kv_seqlen", "one"], "last")
    model = write_model(more=(last,), constants={"one": np.array([1])})
    model.graph.output.append(helper.make_tensor_value_info("last", TensorProto.INT64, ["batch"]))
    rows, session = draw_rows(2, 30), decoding_session(model, engine="reference")
    expected, state = expected_rows(rows), session.new_state(batch=2)
    for first, end in ((0, 20), (20, 21), (21, 22)):
        found = session.step(take(rows, first, end), state=state)
        assert found["last"].tolist() == [end - 1] * 2
        np.testing.assert_allclose(found["y"], expected[:, :, first:end], rtol=0, atol=CLOSE)


def test_a_comparison_of_the_number_of_valid_positions_that_is_no_mask_stays() -> None:
    more = node("Less", ["ten", "nonpad_kv_seqlen"], "is_over"), node("Cast", ["is_over"], "over", to=TensorProto.INT64)
    model = write_model(more=more, constants={"ten": np.array([10])})
    model.graph.output.append(helper.make_tensor_value_info("over", TensorProto.INT64, ["batch"]))
    rows, session = draw_rows(2, 13), decoding_session(model, engine="reference")
    state = session.new_state(batch=2)
    ends = ((0, 5), (5, 6), (6, 12), (12, 13))
    found = [session.step(take(rows, *end), state=state)["over"].tolist() for end in ends]
    assert found == [[0, 0], [0, 0], [1, 1], [1, 1]]


def test_a_mask_and_a_number_of_valid_positions_are_both_heeded() -> None:
    more = node("Cast", ["attention_mask"], "seen", to=TensorProto.BOOL), node("Unsqueeze", ["seen", "axes"], "mask")
    model = write_model(more=more, constants={"axes": np.array([1, 2])})
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", MOST])
    model.graph.input.append(mask)
    rows, session = draw_rows(1, 30), decoding_session(model)
    expected, state = expected_rows({name: array[:, :, 2:] for name, array in rows.items()}), session.new_state()
    for first, end in ((0, 20), *((at, at + 1) for at in range(20, 30))):
        seen = (np.arange(end)[None] >= 2).astype(np.int64)
        found = session.step(take(rows, first, end) | {"attention_mask": seen}, state=state)["y"]
        start = max(first, 2)
        np.testing.assert_allclose(
            found[:, :, start - first :], expected[:, :, start - 2 : end - 2], rtol=0, atol=CLOSE
        )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no index": (
        {"index": ""},
        "TensorScatter 'scatter_key' has no write_indices, and a state supplies the position of new rows: export the "
        "model with write_indices as an input",
    ),
    "a computed index": (
        {
            "index": "less",
            "more": (node("Sub", ["nonpad_kv_seqlen", "one"], "less"),),
            "constants": {"one": np.array([1])},
        },
        "TensorScatter 'scatter_key' computes write_indices, and a state supplies the position of new rows: export the "
        "model with write_indices as an input",
    ),
    "several positions in each step": (
        {"rows": 4},
        "TensorScatter 'scatter_key' writes 4 positions, and a step has one: export the model with an open dim for new "
        "positions",
    ),
    "scores as a result": (
        {"scores": True},
        "Attention 'attention' has a window, its scores as a result, or another type than float32, beside "
        "nonpad_kv_seqlen: export the model without these",
    ),
    "a constant mask": (
        {"constants": {"mask": np.zeros((1, 1, 1, MOST), np.float32)}},
        "Attention 'attention' has a mask of 200 positions where a plan has 8: export the model with a mask of an open "
        "dim, such as one that is computed from attention_mask",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_steps_cannot_use_is_refused(name: str) -> None:
    options, text = REFUSED[name]
    with raises_exactly(InvalidArguments, text):
        decoding_session(write_model(**options), engine="reference")


def test_a_second_reader_of_the_past_is_refused() -> None:
    model = write_model("maximum", more=(node("ReduceMax", ["past.key"], "most", keepdims=0),))
    model.graph.output.append(helper.make_tensor_value_info("most", TensorProto.FLOAT, []))
    with raises_exactly(
        InvalidArguments,
        "ReduceMax 'reducemax' reads past.key before TensorScatter 'scatter_key' writes new positions: a state is read "
        "after that: export the model so",
    ):
        decoding_session(model, engine="reference")


def test_wrong_steps_are_refused() -> None:
    session, rows = decoding_session(write_model(70), engine="reference"), draw_rows(1, 71)
    state = session.new_state()
    with raises_exactly(
        InvalidArguments, "write_indices follows from the length of the state: leave it out of the inputs of a step"
    ):
        session.step(take(rows, 0, 1) | {"write_indices": np.array([0])}, state=state)
    session.step(take(rows, 0, 69), state=state)
    with raises_exactly(
        InvalidArguments,
        "the state keeps 69 positions of at most 70, and 2 are new: truncate or reset it, or export the model with "
        "longer caches",
    ):
        session.step(take(rows, 69, 71), state=state)
    assert state.length == 69
