"""The reference engine: formats do not change results; padding is zero, and gaps are not written."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.engines.reference import make_engine
from inlay.memory import Memory, check_padding, pack
from inlay.primitives.attributes import PLAIN
from inlay.primitives.engine import Implementation, Operation
from inlay.primitives.rules import SIGNATURES, Direction
from tests.support.onednn_cases import directions
from tests.support.primitive_cases import DRAWERS, draw
from tests.support.primitive_runs import Case

Chooser: TypeAlias = Callable[[MemoryDesc], MemoryDesc]


def operation_of(case: Case) -> Operation:
    """Return the forward operation of a case, without its attributes."""
    return replace(case.create("reference").operation, attributes=PLAIN)


def backward(hint: Implementation, direction: Direction) -> Operation:
    """Return the operation back through a forward implementation: data in its formats, gradients `any`."""
    kind, parameters = hint.operation.kind, hint.operation.parameters
    row = SIGNATURES[kind, direction]
    descs = {}
    for name in (*row.reads, *row.writes):
        desc = hint.descs.get(name.removeprefix("diff_"))
        if desc is not None and name != "workspace":
            descs[name] = MemoryDesc(desc.dims, desc.data_type, "any") if name in row.free else desc
    if kind == "eltwise":
        del descs["src" if str(parameters["algorithm"]).endswith("for_bwd") else "dst"]
    return Operation(kind, direction, descs, parameters, hint=hint)  # type: ignore[arg-type]


def run_operation(operation: Operation, choose: Chooser, arrays: Mapping[str, Any]) -> dict[str, Memory]:
    """Return all results of an operation and its gradients by the reference engine, in the formats that are chosen."""
    engine = make_engine()
    descs = {name: choose(desc) for name, desc in operation.descs.items()}
    forward = engine.create(replace(operation, descs=descs))
    memories = _run(forward, arrays, {})
    results = {name: memories[name] for name in _results(forward)}
    has_gradient = operation.parameters.get("algorithm") != "round"
    for direction in directions(operation.kind) if has_gradient else ():
        implementation = engine.create(backward(forward, direction))
        written = _run(implementation, arrays, memories)
        results |= {name: written[name] for name in _results(implementation)}
    return results


def _run(implementation: Implementation, arrays: Mapping[str, Any], kept: Mapping[str, Memory]) -> dict[str, Memory]:
    memories = {}
    for name, desc in implementation.descs.items():
        is_kept = name in kept and kept[name].desc == desc
        memories[name] = kept[name] if is_kept else Memory(desc)
        if name in arrays and not is_kept:
            assert desc.data_type is not None
            memories[name] = pack(arrays[name].astype(desc.data_type.dtype), desc)
    implementation.bind(memories)()
    return memories


def _results(implementation: Implementation) -> list[str]:
    operation = implementation.operation
    given = {"mean", "variance"} if "use_global_stats" in operation.parameters.get("flags", ()) else set()  # type: ignore[operator]
    return [name for name in operation.signature.writes if name in implementation.descs and name not in given]


def draw_format(rng: np.random.Generator, desc: MemoryDesc) -> MemoryDesc:
    """Return the tensor in a random format: permuted, blocked with padding, part of a larger tensor, or with gaps."""
    dims, letters = desc.dims, "abcdefghijkl"[: desc.ndims]
    order = "".join(rng.permutation(list(letters)))
    match rng.integers(0, 4):
        case 0:
            return MemoryDesc(dims, desc.data_type, order)
        case 1:
            axis = str(rng.choice(list(letters)))
            return MemoryDesc(dims, desc.data_type, order.replace(axis, axis.upper()) + "4" + axis)
        case 2:
            whole = MemoryDesc(tuple(n + 3 for n in dims), desc.data_type, order)
            return whole.submemory(dims, tuple(rng.integers(0, 4, desc.ndims).tolist()))
    strides, step = {}, 1
    for i, letter in enumerate(reversed(order)):
        strides[letter] = step
        step *= max(dims[letters.index(letter)], 1) * (2 - i % 2)
    return MemoryDesc(dims, desc.data_type, strides=[strides[letter] for letter in letters])


@pytest.mark.parametrize("kind", DRAWERS)
@pytest.mark.parametrize("seed", range(4))
def test_the_format_changes_no_result(kind: str, seed: int) -> None:
    rng, case = np.random.default_rng(seed), draw(kind, seed, "f32")
    operation = operation_of(case)
    read = {name: desc for name, desc in operation.descs.items() if name != "dst"}
    if "use_global_stats" not in case.options.get("flags", ()):
        read = {name: desc for name, desc in read.items() if name not in ("mean", "variance")}
    data = {name: case.data(name, desc) for name, desc in {**read, "diff_dst": operation.descs["dst"]}.items()}
    wanted = run_operation(operation, lambda desc: MemoryDesc(desc.dims, desc.data_type), data)
    found = run_operation(operation, lambda desc: draw_format(rng, desc), data)
    assert found.keys() == wanted.keys() > set()
    for name, memory in wanted.items():
        assert np.array_equal(found[name].unpack(), memory.unpack()), name
        assert np.isfinite(memory.unpack()).all(), name
        assert check_padding(found[name]).is_clean


def eltwise(algorithm: str, src: MemoryDesc, dst: MemoryDesc) -> Any:
    """Return an implementation of the function of each element."""
    parameters: Any = {"algorithm": algorithm, "alpha": 0, "beta": 0}
    return make_engine().create(Operation("eltwise", "forward_inference", {"src": src, "dst": dst}, parameters))


def test_elements_around_a_submemory_do_not_change() -> None:
    whole = pack(np.full((2, 6, 6), 7.0, np.float32), "abc")
    part = whole.desc.submemory((2, 3, 4), (0, 2, 1))
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    square = eltwise("square", MemoryDesc(x.shape, "f32"), part)
    square.bind({"src": pack(x, "abc"), "dst": Memory(part, whole.buffer)})()
    wanted = np.full((2, 6, 6), 7.0, np.float32)
    wanted[:, 2:5, 1:5] = x**2
    assert np.array_equal(whole.unpack(), wanted)


def test_padding_is_zero_even_if_the_function_of_zero_is_not() -> None:
    desc = MemoryDesc((1, 17, 2), "f32", "aBc8b")
    dirty = Memory(desc)
    dirty.buffer[:] = 0xFF
    eltwise("exp", desc, desc).bind({"src": pack(np.zeros(desc.dims, np.float32), desc), "dst": dirty})()
    assert check_padding(dirty).is_clean
    assert np.array_equal(dirty.unpack(), np.ones(desc.dims, np.float32))


def test_source_and_destination_may_be_the_same_memory() -> None:
    memory = pack(np.arange(6, dtype=np.float32).reshape(2, 3), "ab")
    eltwise("square", memory.desc, memory.desc).bind({"src": memory, "dst": memory})()
    assert memory.unpack().ravel().tolist() == [0, 1, 4, 9, 16, 25]


def test_any_is_row_major_where_a_primitive_multiplies_by_weights() -> None:
    descs = {name: MemoryDesc(dims, "f32", "any") for name, dims in (("weights", (5, 17, 1)), ("dst", (2, 5, 4)))}
    descs["src"] = MemoryDesc((2, 17, 4), "f32", "aBc8b")
    zeros = dict.fromkeys(("dilations", "padding_l", "padding_r"), (0,))
    operation = Operation("convolution", "forward_training", descs, {"algorithm": "direct", "strides": (1,), **zeros})
    row_major = {name: MemoryDesc(desc.dims, "f32") for name, desc in descs.items() if name != "src"}
    assert make_engine().create(operation).descs == {**row_major, "src": descs["src"]}


def test_any_is_the_format_of_the_source_elsewhere() -> None:
    src, dst = MemoryDesc((1, 17, 4), "f32", "aBc8b"), MemoryDesc((1, 17, 2), "f32", "any")
    window = {"kernel": (2,), "strides": (2,), "dilations": (0,), "padding_l": (0,), "padding_r": (0,)}
    operation = Operation("pooling", "forward_training", {"src": src, "dst": dst}, {"algorithm": "max", **window})
    forward = make_engine().create(operation)
    assert forward.descs["dst"] == MemoryDesc((1, 17, 2), "f32", "aBc8b")
    assert forward.descs["workspace"] == MemoryDesc((1, 17, 2), "s32")
    back = make_engine().create(backward(forward, "backward"))
    assert back.descs["diff_src"] == src
    assert back.descs["diff_dst"] == forward.descs["dst"]
    assert back.descs["workspace"] == forward.descs["workspace"]
