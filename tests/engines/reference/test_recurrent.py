"""Recurrent networks of the reference engine: outputs are those of the formulas, gradients those of the outputs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.engines.reference.recurrent import RecurrentNetwork, backward, forward
from inlay.memory import Memory, pack, reorder
from inlay.primitives.attributes import PrimitiveAttributes, RecurrentScales
from tests.oracles import recurrent as brute
from tests.support.recurrent_cases import (
    BACKWARD,
    DIRECTIONS,
    FORWARD,
    GATES,
    Case,
    make_case,
    pack_arguments,
    quantize,
    run_backward,
    run_forward,
    small_cases,
)

CASES = list(small_cases())
NAMES = [str(case) for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_output_is_what_the_formulas_give_number_by_number(case: Case) -> None:
    for prop_kind in ("forward_training", "forward_inference"):
        found = run_forward(case.forward(prop_kind), case.arrays)
        wanted = brute.network(case.kind, case.direction, case.arrays, case.parameters)
        names = {"dst_layer", *(wanted if case.states else ())} | ({"workspace"} if "train" in prop_kind else set())
        assert set(found) == names
        for name in names - {"workspace"}:
            assert found[name].unpack() == pytest.approx(wanted[name], rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_gradient_is_the_change_of_the_outputs(case: Case) -> None:
    arrays = {name: array.astype(np.float64) for name, array in case.arrays.items()}
    network = RecurrentNetwork(case.kind, case.direction, **case.parameters)
    rng = np.random.default_rng(7)
    outputs = forward(network, arrays)
    arriving = {name: rng.standard_normal(outputs[name].shape) for name in outputs if name != "workspace"}
    gradients = {f"diff_{name}": array for name, array in arriving.items()}
    found = backward(network, {**arrays, "workspace": outputs["workspace"], **gradients})

    def weighed(changed: brute.Arrays) -> float:
        outputs = forward(network, dict(changed))
        return float(sum((outputs[name] * array).sum() for name, array in arriving.items()))

    for name, array in arrays.items():
        way = rng.standard_normal(array.shape)
        slope = brute.slope(weighed, arrays, name, way)
        assert (found[f"diff_{name}"] * way).sum() == pytest.approx(slope, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("case", CASES[::5], ids=NAMES[::5])
def test_backward_primitives_write_a_gradient_of_everything_that_forward_reads(case: Case) -> None:
    forward_primitive = case.forward()
    gradients = case.gradients(forward_primitive)
    found = run_backward(forward_primitive, case.backward(forward_primitive), case.arrays, gradients)
    assert set(found) == {f"diff_{name}" for name in case.arrays}
    network = RecurrentNetwork(case.kind, case.direction, **case.parameters)
    arrays = {name: array.astype(np.float64) for name, array in {**case.arrays, **gradients}.items()}
    wanted = backward(network, {**arrays, "workspace": forward(network, arrays)["workspace"]})
    for name, array in found.items():
        assert array.dtype == np.float32
        assert array == pytest.approx(wanted[name], rel=1e-6, abs=1e-6)


def test_one_step_may_read_a_state_of_other_size_than_it_writes() -> None:
    """No later step reads the state that the only step writes."""
    case = make_case("lstm", times=1, states=False)
    rng = np.random.default_rng(3)
    for name, shape in {"weights_iter": (1, 1, 9, 4, 5), "src_iter": (1, 1, 2, 9), "src_iter_c": (1, 1, 2, 5)}.items():
        case.arrays[name] = rng.standard_normal(shape).astype(np.float32)
    found = run_forward(case.forward(), case.arrays)["dst_layer"].unpack()
    assert np.abs(found - brute.network("lstm", "left2right", case.arrays, {})["dst_layer"]).max() <= 2e-7


@pytest.mark.parametrize("kind", GATES)
def test_formats_change_where_numbers_lie_and_not_what_they_are(kind: str) -> None:
    case = make_case(kind, channels=17)
    plain = case.forward()
    tags = {
        "src_layer": "ntc",
        "weights_layer": "ldgoi",
        "weights_iter": "abdEc16e",
        "src_iter": "abdc",
        "bias": "bacd",
    }
    descs = {name: MemoryDesc(array.shape, "f32", tags.get(name, "any")) for name, array in case.arrays.items()}
    descs["dst_layer"] = MemoryDesc(plain.dst_desc.dims, "f32", "ntc")
    other = FORWARD[kind](**descs, **case.parameters, prop_kind="forward_training", engine="reference")
    assert other.dst_desc.tag == "bac"
    wanted = run_forward(plain, case.arrays)["dst_layer"].unpack()
    assert np.array_equal(run_forward(other, case.arrays)["dst_layer"].unpack(), wanted)


@pytest.mark.parametrize("kind", GATES)
def test_gradients_of_weights_are_added_to_what_is_there_unless_the_flag_says_otherwise(kind: str) -> None:
    case = make_case(kind)
    primitive = case.forward()
    gradients = case.gradients(primitive)
    once = run_backward(primitive, case.backward(primitive), case.arrays, gradients)
    kept = run_forward(primitive, case.arrays)
    for flags, factor in (((), 2), (("diff_weights_overwrite",), 1)):
        backward_primitive = case.backward(primitive, flags=flags)
        read = {**pack_arguments(backward_primitive, {**case.arrays, **gradients}), **kept}
        names = [name for name in once if name.startswith("diff_weights")]
        sums = {name: pack(once[name], backward_primitive.desc(name)) for name in names}
        assert sums
        backward_primitive(**read, **sums)
        for name, memory in sums.items():
            assert memory.unpack() == pytest.approx(factor * once[name], rel=1e-6, abs=1e-6)


def test_new_memory_for_sums_starts_at_zero_whatever_new_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case("gru")
    primitive = case.forward()
    wanted = run_backward(primitive, case.backward(primitive), case.arrays, case.gradients(primitive))
    monkeypatch.setenv("INLAY_POISON", "1")
    primitive = case.forward()
    found = run_backward(primitive, case.backward(primitive), case.arrays, case.gradients(primitive))
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("kind", BACKWARD)
def test_backward_may_say_a_format_for_any_argument(kind: str) -> None:
    case = make_case(kind)
    primitive = case.forward()
    plain = case.backward(primitive)
    dims = plain.desc("weights_layer").dims
    said = {
        "weights_layer": MemoryDesc(dims, "f32", "ldgoi"),
        "diff_weights_layer": MemoryDesc(dims, "f32", "abdEc8e"),
        "diff_dst_layer": MemoryDesc(primitive.dst_desc.dims, "f32", "ntc"),
    }
    other = case.backward(primitive, descs=said)
    assert {name: other.desc(name) for name in said} == said
    gradients = case.gradients(primitive)
    found = run_backward(primitive, other, case.arrays, gradients)
    wanted = run_backward(primitive, plain, case.arrays, gradients)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("data_type", ["bf16", "f16"])
@pytest.mark.parametrize("case", CASES[::3], ids=NAMES[::3])
def test_states_of_16_bits_are_rounded_when_they_are_stored(case: Case, data_type: str) -> None:
    case = replace(case, data_type=data_type)
    stored = {
        name: reorder(pack(array, MemoryDesc(array.shape, "f32")), MemoryDesc(array.shape, case.type_of(name)))
        for name, array in case.arrays.items()
    }
    arrays = {name: memory.unpack().astype(np.float32) for name, memory in stored.items()}
    primitive = case.forward("forward_inference")
    written = primitive(**{name: reorder(memory, primitive.desc(name)) for name, memory in stored.items()})
    found = (written if isinstance(written, Memory) else written["dst_layer"]).unpack()
    kept = as_data_type(data_type).dtype.type
    wanted = brute.network(case.kind, case.direction, arrays, case.parameters, lambda state: float(kept(state)))
    assert np.array_equal(found, wanted["dst_layer"].astype(found.dtype))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("states", ["u8", "f32", None])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("kind", "projection"), [("lstm", None), ("lstm", 6), ("gru", None)])
def test_8_bits_mean_numbers_by_their_scales(
    kind: str, projection: int | None, direction: str, states: str | None, per_channel: bool
) -> None:
    """Results in integers are those of the dequantized arguments, with quantized states."""
    numbers = make_case(kind, direction, channels=4, projection=projection, layers=2, states=states is not None)
    rng = np.random.default_rng(5)
    gates = 4 if kind == "lstm" else 3
    weights = tuple(rng.uniform(50, 90, 4 * gates)) if per_channel else (70.0,)
    outputs = tuple(rng.uniform(50, 90, 6)) if per_channel and projection else (60.0,)
    scales = RecurrentScales(63.0, 100.0, weights, outputs)
    codes, meant = quantize(numbers.arrays, scales, states or "u8")
    descs = {name: MemoryDesc(array.shape, as_data_type(array.dtype), "any") for name, array in codes.items()}
    options: dict[str, Any] = {} if states is None else {"dst_iter": MemoryDesc(codes["src_iter"].shape, states)}
    options |= {"dst_iter_c": "any"} if states is not None and kind == "lstm" else {}
    attributes = PrimitiveAttributes(recurrent=scales)
    primitive = FORWARD[kind](**descs, **options, direction=direction, attributes=attributes, engine="reference")
    found = run_forward(primitive, codes)

    def keep(state: float) -> float:
        return (float(np.clip(np.rint(state * scales.scale + scales.shift), 0, 255)) - scales.shift) / scales.scale

    wanted = brute.network(kind, direction, meant, {}, keep)
    for name, memory in found.items():
        in_codes = name == "dst_layer" or (name == "dst_iter" and states == "u8")
        expected = np.clip(wanted[name] * scales.scale + scales.shift, 0, 255) if in_codes else wanted[name]
        assert memory.unpack().astype(np.float64) == pytest.approx(expected, abs=1e-6)
