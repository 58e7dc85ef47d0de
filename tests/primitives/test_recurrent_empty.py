"""Recurrent networks without time steps or sequences: states are copied, and gradients of weights do not change."""

from dataclasses import replace

import numpy as np
import pytest

from inlay.engines.reference.recurrent import RecurrentNetwork, backward, forward
from inlay.memory import pack
from tests.oracles import onednn as oracle
from tests.support.recurrent_cases import (
    DIRECTIONS,
    GATES,
    Case,
    make_case,
    pack_arguments,
    reorder_to,
    run_backward,
    run_forward,
)

LIVE = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))
ENGINES = pytest.mark.parametrize("engine", ["reference", pytest.param("onednn", marks=LIVE)])
TRAINED = pytest.mark.parametrize("kind", sorted(set(GATES) - {"augru", "lbr_augru"}))


def assert_state_is_copied(case: Case, engine: str) -> None:
    for prop_kind in ("forward_inference", "forward_training"):
        found = run_forward(case.forward(prop_kind, engine=engine), case.arrays)
        assert found["dst_layer"].desc.dims[0] == 0
        for name in ("iter", "iter_c") if case.kind == "lstm" else ("iter",):
            wanted = case.arrays.get(f"src_{name}", np.zeros(found[f"dst_{name}"].desc.dims))
            assert np.array_equal(found[f"dst_{name}"].unpack(), wanted)


@ENGINES
@TRAINED
def test_without_time_steps_the_state_is_copied(kind: str, engine: str) -> None:
    case = make_case(kind, times=0)
    assert_state_is_copied(case, engine)
    without = {name: array for name, array in case.arrays.items() if not name.startswith("src_iter")}
    assert_state_is_copied(replace(case, arrays=without), engine)


@ENGINES
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_without_sequences_results_are_empty(direction: str, engine: str) -> None:
    case = make_case("lstm", direction, batch=0)
    found = run_forward(case.forward(engine=engine), case.arrays)
    assert found["dst_layer"].desc.dims == (3, 0, 10 if direction == "concat" else 5)


@ENGINES
@pytest.mark.parametrize(("times", "batch"), [(0, 2), (3, 0), (0, 0)])
@TRAINED
def test_gradients_of_weights_are_left_alone_or_zero_with_the_flag(
    kind: str, times: int, batch: int, engine: str
) -> None:
    case = make_case(kind, times=times, batch=batch)
    forward_primitive = case.forward(engine=engine)
    gradients = case.gradients(forward_primitive)
    for flags, factor in (((), 1.0), (("diff_weights_overwrite",), 0.0)):
        backward_primitive = case.backward(forward_primitive, flags=flags)
        read = pack_arguments(backward_primitive, {**case.arrays, **gradients})
        read |= run_forward(forward_primitive, case.arrays)
        desc = backward_primitive.desc("diff_weights_layer")
        before = np.random.default_rng(0).standard_normal(desc.dims).astype(np.float32)
        sums = pack(before, desc)
        read = {name: reorder_to(memory, backward_primitive, name) for name, memory in read.items()}
        found = backward_primitive(**read, diff_weights_layer=sums)
        assert np.array_equal(sums.unpack(), factor * before)
        assert not found["diff_weights_iter"].unpack().any()
        assert np.array_equal(found["diff_src_iter"].unpack(), gradients["diff_dst_iter"])


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(("times", "batch"), [(0, 2), (3, 0)])
def test_the_formulas_agree(kind: str, times: int, batch: int) -> None:
    case = make_case(kind, times=times, batch=batch)
    network = RecurrentNetwork(kind, "left2right", **case.parameters)
    outputs = forward(network, case.arrays)
    if not times:
        assert np.array_equal(outputs["dst_iter"], case.arrays["src_iter"])
    gradients = {f"diff_{name}": np.ones(array.shape) for name, array in outputs.items() if name != "workspace"}
    found = backward(network, {**case.arrays, **gradients, "workspace": outputs["workspace"]})
    assert not found["diff_weights_layer"].any()
    assert np.array_equal(found["diff_src_iter"], gradients["diff_dst_iter"])


def test_without_input_channels_only_the_state_contributes() -> None:
    """oneDNN computes it wrongly, so the reference engine does."""
    case, one = make_case("lstm", inputs=1), make_case("lstm", inputs=1)
    case.arrays["src_layer"] = case.arrays["src_layer"][:, :, :0]
    case.arrays["weights_layer"] = case.arrays["weights_layer"][:, :, :0]
    one.arrays["weights_layer"][:] = 0
    primitive, wide = case.forward(engine=None), one.forward()
    found, wanted = run_forward(primitive, case.arrays), run_forward(wide, one.arrays)
    assert np.array_equal(found["dst_layer"].unpack(), wanted["dst_layer"].unpack())
    gradients = case.gradients(primitive)
    back = run_backward(primitive, case.backward(primitive), case.arrays, gradients)
    wanted_back = run_backward(wide, one.backward(wide), one.arrays, gradients)
    assert np.array_equal(back["diff_weights_iter"], wanted_back["diff_weights_iter"])
