"""Recurrent networks of the live oneDNN beside the reference engine, and what is known to be wrong in the library.

Each flaw has a test that shows it in the library that is loaded, so the day it is gone the test says so, and what is
done about it can go too.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import inlay
import inlay.engines.onednn.engine as onednn_engine
from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import load_library
from inlay.errors import Unimplemented
from inlay.memory import Memory, pack, reorder
from inlay.primitives import Primitive, Reorder, get_engine
from inlay.primitives.attributes import PrimitiveAttributes, RecurrentScales
from tests.oracles import onednn as oracle
from tests.support.onednn_cases import computes
from tests.support.primitive_runs import results_by_name
from tests.support.processes import run_python
from tests.support.recurrent_cases import (
    DIRECTIONS,
    FORWARD,
    GATES,
    Arrays,
    Case,
    make_case,
    pack_arguments,
    quantize,
    reorder_to,
    run_backward,
    run_forward,
    small_cases,
)
from tests.support.refusals import raises_exactly

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

ATTENTIVE = ("augru", "lbr_augru")
SMALL = list(small_cases())


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that start for networks so small cost more than all else; the random ones run on two."""
    inlay.set_num_threads(1)
    yield
    inlay.set_num_threads(None)


def shared(cases: list[Case]) -> list[Any]:
    """Every third by default, all among the heavy tests."""
    marks = [[] if i % 3 == 0 else [pytest.mark.heavy] for i in range(len(cases))]
    return [pytest.param(case, id=str(case), marks=mark) for case, mark in zip(cases, marks, strict=True)]


def random_case(seed: int) -> Case:
    """A network of random kind, direction and sizes."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(list(GATES))
    direction = "left2right" if kind in ATTENTIVE else rng.choice(DIRECTIONS)
    is_lstm = kind == "lstm"
    channels = int(rng.integers(1, 50))
    return make_case(
        str(kind),
        str(direction),
        times=int(rng.integers(1, 6)),
        batch=int(rng.integers(1, 7)),
        inputs=int(rng.integers(1, 40)),
        channels=channels,
        layers=1 if kind in ATTENTIVE else int(rng.integers(1, 4)),
        projection=int(rng.integers(1, 4 * channels + 1)) if is_lstm and rng.random() < 0.3 else None,
        peephole=is_lstm and rng.random() < 0.5,
        bias=rng.random() < 0.8,
        states=rng.random() < 0.6,
        seed=seed,
    )


def require_outputs(case: Case, prop_kind: str) -> None:
    live, reference = case.forward(prop_kind, engine="onednn"), case.forward(prop_kind)
    found, wanted = run_forward(live, case.arrays), run_forward(reference, case.arrays)
    for name in set(wanted) - {"workspace"}:
        assert found[name].unpack() == pytest.approx(wanted[name].unpack(), rel=1e-5, abs=2e-6)


def compute_gradients(case: Case) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Return the gradients of a case by oneDNN and by the reference engine."""
    reference = case.forward()
    gradients = case.gradients(reference)
    forwards = (case.forward(engine="onednn"), reference)
    return [run_backward(forward, case.backward(forward), case.arrays, gradients) for forward in forwards]


def require_gradients(case: Case) -> None:
    found, wanted = compute_gradients(case)
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert difference(found[name], array) <= 1e-5


def difference(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """The largest difference, as a part of the largest number."""
    largest = np.abs(wanted).max(initial=1e-30)
    return float(np.abs(found.astype(np.float64) - wanted).max(initial=0.0) / largest)


@pytest.mark.parametrize("case", shared(SMALL))
def test_outputs_are_those_of_the_reference(case: Case) -> None:
    require_outputs(case, "forward_inference")


@pytest.mark.parametrize("case", shared([case for case in SMALL if case.kind not in ATTENTIVE]))
def test_outputs_and_gradients_in_training_are_those_of_the_reference(case: Case) -> None:
    require_outputs(case, "forward_training")
    require_gradients(case)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(300))
def test_random_networks_are_those_of_the_reference(seed: int) -> None:
    inlay.set_num_threads(2 if seed % 4 == 0 else 1)
    case = random_case(seed)
    require_outputs(case, "forward_inference")
    if case.kind not in ATTENTIVE and not is_wide_gru(case):
        require_gradients(case)


def is_wide_gru(case: Case) -> bool:
    """Whether 3.13 writes past its rows in the gradients of a case."""
    _, _, inputs, gates, channels = case.arrays["weights_layer"].shape
    return case.kind == "gru" and inputs > gates * channels and oracle.version() >= (3, 13)


@pytest.fixture
def bf16() -> None:
    if not computes(get_engine("onednn"), "bf16"):
        pytest.skip("this oneDNN computes nothing in bf16 on this processor")


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("kind", sorted(GATES))
def test_16_bits_differ_from_the_reference_by_a_rounding(kind: str) -> None:
    case = make_case(kind, data_type="bf16", channels=17, times=4, batch=3, seed=2)
    forwards = [case.forward("forward_inference", engine=engine) for engine in ("onednn", "reference")]
    found, wanted = ({name: memory.unpack() for name, memory in ran(case, one).items()} for one in forwards)
    for name, array in wanted.items():
        assert difference(found[name], array.astype(np.float64)) <= (1e-6 if name == "dst_iter_c" else 2.0**-7)


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("kind", sorted(set(GATES) - set(ATTENTIVE)))
def test_gradients_of_16_bits_are_near_those_of_the_reference(kind: str) -> None:
    """oneDNN rounds gates to bf16 before it goes back; the reference keeps them."""
    case = make_case(kind, data_type="bf16", channels=17, times=4, batch=3, seed=2)
    both = []
    for engine in ("onednn", "reference"):
        forward = case.forward(engine=engine)
        backward = case.backward(forward)
        memories = {**stored(case), **ran(case, forward)}
        read = {name: reorder_to(memories[name], backward, name) for name in backward.arguments if name in memories}
        found = backward(**read, **pack_arguments(backward, case.gradients(forward)))
        both.append({name: memory.unpack() for name, memory in found.items()})
    for name, array in both[1].items():
        assert array.dtype == np.float32
        assert difference(both[0][name], array) <= 2e-2


def stored(case: Case) -> dict[str, Memory]:
    """The arguments of a case in their types."""
    plain = {name: pack(array, MemoryDesc(array.shape, "f32")) for name, array in case.arrays.items()}
    return {name: reorder(memory, MemoryDesc(memory.desc.dims, case.type_of(name))) for name, memory in plain.items()}


def ran(case: Case, forward: Primitive) -> dict[str, Memory]:
    memories = {name: reorder_to(memory, forward, name) for name, memory in stored(case).items()}
    return results_by_name(forward, forward(**memories))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("states", "dst"), [("u8", "u8"), ("f32", "u8"), ("f32", "f32"), (None, "f32")])
@pytest.mark.parametrize(("kind", "projection"), [("lstm", None), ("lstm", 6), ("gru", None)])
def test_8_bits_are_those_of_the_reference_to_one_step(
    kind: str, projection: int | None, states: str | None, dst: str, per_channel: bool
) -> None:
    """Weights are packed by the engine's reorder, from numbers and with the same scales."""
    numbers = make_case(kind, "concat", channels=17, batch=3, projection=projection, states=states is not None)
    rng = np.random.default_rng(5)
    scales = RecurrentScales(63.0, 100.0, (70.0,), (60.0,))
    if per_channel:
        factors = tuple(rng.uniform(50, 90, 17 * GATES[kind]))
        scales = replace(scales, weights=factors, projection=tuple(rng.uniform(50, 90, projection or 1)))
    codes, meant = quantize(numbers.arrays, scales, states or "u8")
    found, wanted = compute_in_8_bits(kind, codes, meant, scales, states, dst)
    for name, array in wanted.items():
        step = 1.0 if array.dtype == np.uint8 else 1.0 / 63.0
        assert np.abs(found[name].astype(np.float64) - array).max() <= step * 1.001


def compute_in_8_bits(kind: str, codes: Arrays, meant: Arrays, *options: Any) -> list[Arrays]:
    """Return the results of oneDNN, whose own reorder packs the weights from numbers, and of the reference."""
    live, reference = (eight_bits(kind, codes, *options, engine=engine) for engine in ("onednn", "reference"))
    assert live.impl != reference.impl
    memories = {}
    for name, array in codes.items():
        if name.startswith("weights"):
            plain = pack(meant[name].astype(np.float32), MemoryDesc(array.shape, "f32"))
            into = Reorder(plain.desc, live.desc(name), attributes=live.attributes, engine="onednn")
            memories[name] = into(src=plain)
        else:
            memories[name] = pack(array, live.desc(name))
    results = (results_by_name(live, live(**memories)), run_forward(reference, codes))
    return [{name: memory.unpack() for name, memory in found.items()} for found in results]


def eight_bits(
    kind: str,
    codes: Arrays,
    scales: RecurrentScales,
    states: str | None,
    dst: str,
    direction: str = "concat",
    *,
    engine: str = "onednn",
) -> Primitive:
    descs = {name: MemoryDesc(array.shape, as_data_type(array.dtype), "any") for name, array in codes.items()}
    options: dict[str, Any] = {} if states is None else {"dst_iter": MemoryDesc(codes["src_iter"].shape, states, "any")}
    options |= {"dst_iter_c": "any"} if states is not None and kind == "lstm" else {}
    (times, batch, _), outputs = codes["src_layer"].shape, codes["weights_iter"].shape[2]
    joined = outputs * (2 if direction == "concat" else 1)
    attributes = PrimitiveAttributes(recurrent=scales)
    options["dst_layer"] = MemoryDesc((times, batch, joined), dst, "any")
    primitive: Primitive = FORWARD[kind](**descs, **options, direction=direction, attributes=attributes, engine=engine)
    return primitive


OPAQUE = """
from inlay.engines.onednn import make_engine
from inlay.errors import InlayError
from inlay.primitives.attributes import RecurrentScales
from tests.engines.onednn import test_recurrent as tests

scales = RecurrentScales(63.0, 100.0, (70.0,))
codes, _ = tests.quantize(tests.make_case("lstm").arrays, scales, "u8")
lstms = [tests.eight_bits("lstm", codes, scales, "u8", "u8", "left2right") for _ in range(2)]
desc, same = (lstm.desc("weights_layer") for lstm in lstms)
print(desc.kind, desc is same)
try:
    make_engine().descriptors.handle(desc)
except InlayError as refusal:
    print(refusal)
tests.test_8_bits_are_those_of_the_reference_to_one_step("lstm", None, "u8", "u8", False)
"""


def test_opaque_weights_are_packed_by_the_engine_and_known_by_name() -> None:
    """Before AVX2 an LSTM in 8 bits packs its weights in a format that no query tells."""
    kind, refusal = run_python("-c", OPAQUE, ONEDNN_MAX_CPU_ISA="AVX").stdout.splitlines()
    version = ".".join(map(str, load_library().version))
    assert kind == "opaque True"
    assert refusal.startswith(f"the opaque format onednn-{version}-1 of dims (1, 1, 7, 4, 5) was not created by this")


@pytest.mark.parametrize("kind", sorted(GATES))
def test_without_bias_the_library_computes_with_zeros_whatever_new_memory_holds(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INLAY_POISON", "1")
    require_outputs(make_case(kind, bias=False), "forward_inference")
    if kind not in ATTENTIVE:
        require_gradients(make_case(kind, bias=False, states=False))


@pytest.mark.parametrize("kind", sorted(set(GATES) - set(ATTENTIVE)))
def test_gradients_of_weights_are_added_to_what_is_there_unless_the_flag_says_otherwise(kind: str) -> None:
    case = make_case(kind)
    forward = case.forward(engine="onednn")
    gradients = case.gradients(forward)
    once = run_backward(forward, case.backward(forward), case.arrays, gradients)
    for flags, factor in (((), 2.0), (("diff_weights_overwrite",), 1.0)):
        backward = case.backward(forward, flags=flags)
        read = pack_arguments(backward, {**case.arrays, **gradients}) | run_forward(forward, case.arrays)
        sums = {name: pack(once[name], backward.desc(name)) for name in once if name.startswith("diff_weights")}
        backward(**{name: reorder_to(memory, backward, name) for name, memory in read.items()}, **sums)
        for name, memory in sums.items():
            assert difference(memory.unpack(), factor * once[name]) <= 1e-5


def test_states_and_sequences_may_be_views_with_gaps() -> None:
    case = make_case("lstm", channels=17)
    descs = {name: MemoryDesc(array.shape, "f32", "any") for name, array in case.arrays.items()}
    descs["src_layer"] = MemoryDesc((3, 2, 19), "f32", strides=(24, 80, 1))
    descs["src_iter"] = MemoryDesc((1, 1, 2, 17), "f32", strides=(99, 99, 33, 1))
    live = FORWARD["lstm"](**descs, engine="onednn")
    assert live.engine is get_engine("onednn")
    wanted = run_forward(replace(case, states=False).forward("forward_inference"), case.arrays)["dst_layer"].unpack()
    assert run_forward(live, case.arrays)["dst_layer"].unpack() == pytest.approx(wanted, abs=2e-6)


# What is wrong in the library, and what is done about it


def declined(text: str) -> AbstractContextManager[None]:
    return raises_exactly(Unimplemented, f"{load_library().name} has no {text}")


@pytest.mark.parametrize("kind", ATTENTIVE)
def test_gradients_of_attention_are_wrong_in_the_library(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(kind)
    with declined(f"correct gradients of {kind}"):
        case.forward(engine="onednn")
    monkeypatch.setattr(onednn_engine, "find_recurrent_defect", lambda version, operation: None)
    found, wanted = compute_gradients(case)
    assert difference(found["diff_attention"], wanted["diff_attention"]) > 0.1
    case.arrays["attention"][:] = 0.0
    found, wanted = compute_gradients(case)
    assert difference(found["diff_src_layer"], wanted["diff_src_layer"]) <= 1e-5
    assert difference(found["diff_attention"], wanted["diff_attention"]) > 0.1


@pytest.mark.parametrize("kind", ATTENTIVE)
def test_training_with_attention_falls_to_the_reference(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_ENGINE", "onednn")
    case = make_case(kind)
    forward = case.forward(engine=None)
    assert forward.engine is get_engine("reference")
    assert case.backward(forward).engine is get_engine("reference")


@pytest.mark.parametrize("kind", ["vanilla_rnn", "lstm"])
def test_without_an_initial_state_the_library_takes_the_wrong_step(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It pairs the gradient of each step with the state that comes out; so the engine brings a state of zeros."""
    case = make_case(kind, times=1, batch=1, states=False)
    forward = case.forward(engine="onednn")
    gradients = case.gradients(forward)
    found = run_backward(forward, case.backward(forward), case.arrays, gradients)
    assert not found["diff_weights_iter"].any()
    monkeypatch.setattr(onednn_engine, "implicit_descs", lambda operation: {})
    forward = case.forward(engine="onednn")
    found = run_backward(forward, case.backward(forward), case.arrays, gradients)
    h = run_forward(forward, case.arrays)["dst_layer"].unpack()[0, 0]
    assert found["diff_weights_iter"][0, 0] == pytest.approx(h[:, None, None] * found["diff_bias"][0, 0], rel=1e-5)


@pytest.mark.usefixtures("bf16")
def test_projections_in_16_bits_are_wrong_in_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are right in its kernels without instructions for bf16; both releases document that neither is supported."""
    if not oracle.isa() & oracle.AVX512:
        pytest.skip("seen with AVX-512 only")
    case = make_case("lstm", data_type="bf16", channels=16, times=4, projection=6)
    with declined("correct lstm with a projection in bf16"):
        case.forward("forward_inference", engine="onednn")
    monkeypatch.setattr(onednn_engine, "find_recurrent_defect", lambda version, operation: None)
    both = [ran(case, case.forward("forward_inference", engine=engine)) for engine in ("onednn", "reference")]
    found, wanted = (one["dst_layer"].unpack().astype(np.float64) for one in both)
    assert (difference(found, wanted) > 0.1) is bool(oracle.isa() & oracle.BF16)


def test_gradients_of_very_wide_projections_are_wrong_before_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older libraries keep a projected row where there is room for the row of the gates."""
    require_gradients(make_case("lstm", channels=4, projection=16, batch=6))
    case = make_case("lstm", channels=4, projection=33, batch=6, layers=3)
    require_outputs(case, "forward_inference")
    if oracle.version() >= (3, 13):
        require_gradients(case)
        return
    with declined("correct gradients of lstm with a projection to more channels than its four gates have"):
        case.forward(engine="onednn")
    monkeypatch.setattr(onednn_engine, "find_recurrent_defect", lambda version, operation: None)
    found, wanted = compute_gradients(case)
    assert difference(found["diff_src_layer"], wanted["diff_src_layer"]) > 0.1


def test_gradients_of_gru_with_many_inputs_are_not_asked_of_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end the process on a busy machine, so no test shows here that they are wrong."""
    monkeypatch.setenv("INLAY_ENGINE", "onednn")
    require_gradients(make_case("gru", inputs=12, channels=4))
    wide = make_case("gru", inputs=13, channels=4)
    require_outputs(wide, "forward_inference")
    if not is_wide_gru(wide):
        require_gradients(wide)
        return
    with declined("safe gradients of gru with more inputs than its three gates have channels"):
        wide.forward(engine="onednn")
    forward = wide.forward(engine=None)
    assert forward.engine is wide.backward(forward).engine is get_engine("reference")


def test_sums_in_8_bits_are_wrong_in_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = make_case("gru", "sum", states=False)
    scales = RecurrentScales(30.0, 60.0, (70.0,))
    codes, meant = quantize(numbers.arrays, scales, "u8")
    options = (scales, None, "u8", "sum")
    with declined("correct sum of two directions in 8 bits"):
        eight_bits("gru", codes, *options)
    monkeypatch.setattr(onednn_engine, "find_recurrent_defect", lambda version, operation: None)
    found, wanted = compute_in_8_bits("gru", codes, meant, *options)
    assert np.array_equal(found["dst_layer"], wanted["dst_layer"] + 60)
