"""The reference engine: formats do not change results; padding is zero, and gaps are not written."""

from itertools import count
from typing import Any

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.engines.reference import make_engine
from inlay.memory import Memory, check_padding, pack
from inlay.primitives.engine import Implementation
from tests.support.reference_cases import KINDS, Problem, Random, backward, directions, problem_of, run

SEEDS = range(4)


def plain(name: str, dims: Any, data_type: str) -> MemoryDesc:
    return MemoryDesc(dims, data_type)


class Mixed:
    """A random choice of formats: blocked with padding, permuted, with gaps, or a part of a larger tensor."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def __call__(self, name: str, dims: Any, data_type: str) -> MemoryDesc:
        letters = "abcdefghijkl"[: len(dims)]
        order = "".join(self.random.permutation(list(letters)))
        match self.random.integers(0, 4):
            case 0:
                return MemoryDesc(dims, data_type, order)
            case 1:
                axis = str(self.random.choice(list(letters)))
                return MemoryDesc(dims, data_type, order.replace(axis, axis.upper()) + "4" + axis)
            case 2:
                whole = MemoryDesc(tuple(n + 3 for n in dims), data_type, order)
                return whole.submemory(dims, tuple(int(self.random.integers(0, 4)) for _ in dims))
        steps, strides = count(1), {}
        step = 1
        for letter in reversed(order):
            i = letters.index(letter)
            strides[i] = step
            step *= max(dims[i], 1) * (1 + next(steps) % 2)
        return MemoryDesc(dims, data_type, strides=[strides[i] for i in range(len(dims))])


def run_all(problem: Problem, chooser: Any, data: dict[str, Any]) -> tuple[dict[str, Any], list[Memory]]:
    """Run a problem forward and backward; return all results, and their memories."""
    engine = make_engine()
    forward = engine.create(problem.forward(chooser))
    memories = run(forward, data, {})
    written = {name: memories[name] for name in results_of(forward)}
    for direction in directions(problem.kind):
        implementation = engine.create(backward(forward, direction))
        kept = {name: memory for name, memory in memories.items() if name in implementation.descs}
        found = run(implementation, data, kept)
        written |= {name: found[name] for name in results_of(implementation)}
    return {name: memory.unpack() for name, memory in written.items()}, list(written.values())


def results_of(implementation: Implementation) -> list[str]:
    """Return the names of the arguments that an implementation writes."""
    operation = implementation.operation
    given = {"mean", "variance"} if "use_global_stats" in str(operation.parameters.get("flags")) else set()
    return [name for name in operation.signature.writes if name in implementation.descs and name not in given]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_format_changes_no_result(kind: str, seed: int) -> None:
    random = np.random.default_rng([seed, KINDS.index(kind)])
    problem = problem_of(kind, random)
    names = {*problem.dims, *(f"diff_{name}" for name in problem.dims)}
    data = {name: problem.array(name, random) for name in sorted(names) if name not in ("dst", "diff_src")}
    if "use_global_stats" not in str(problem.parameters.get("flags")):
        data = {name: array for name, array in data.items() if name not in ("mean", "variance")}
    wanted, _ = run_all(problem, plain, data)
    found, memories = run_all(problem, Mixed(random), data)
    assert set(found) == set(wanted)
    assert len(wanted) > 0
    for name, array in wanted.items():
        assert np.array_equal(array, found[name], equal_nan=True), name
        assert np.isfinite(array).all(), name
    assert all(check_padding(memory).is_clean for memory in memories)


def test_elements_around_a_submemory_do_not_change() -> None:
    whole = pack(np.full((2, 6, 6), 7.0, np.float32), "abc")
    part = whole.desc.submemory((2, 3, 4), (0, 2, 1))
    problem = Problem("eltwise", {"src": (2, 3, 4), "dst": (2, 3, 4)}, {"algorithm": "square", "alpha": 0, "beta": 0})
    implementation = make_engine().create(problem.forward(lambda n, d, t: part if n == "dst" else plain(n, d, t)))
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    implementation.bind({"src": pack(x, "abc"), "dst": Memory(part, whole.buffer)})()
    wanted = np.full((2, 6, 6), 7.0, np.float32)
    wanted[:, 2:5, 1:5] = x**2
    assert np.array_equal(whole.unpack(), wanted)


def test_padding_is_zero_even_if_the_function_of_zero_is_not() -> None:
    problem = Problem("eltwise", {"src": (1, 17, 2), "dst": (1, 17, 2)}, {"algorithm": "exp", "alpha": 0, "beta": 0})
    implementation = make_engine().create(problem.forward(lambda n, d, t: MemoryDesc(d, t, "aBc8b")))
    dirty = Memory(implementation.descs["dst"])
    dirty.buffer[:] = 0xFF
    implementation.bind({"src": pack(np.zeros((1, 17, 2), np.float32), "aBc8b"), "dst": dirty})()
    assert check_padding(dirty).is_clean
    assert np.array_equal(dirty.unpack(), np.ones((1, 17, 2), np.float32))


def test_it_works_in_place() -> None:
    problem = Problem("eltwise", {"src": (2, 3), "dst": (2, 3)}, {"algorithm": "square", "alpha": 0, "beta": 0})
    memory = pack(np.arange(6, dtype=np.float32).reshape(2, 3), "ab")
    make_engine().create(problem.forward(plain)).bind({"src": memory, "dst": memory})()
    assert memory.unpack().ravel().tolist() == [0, 1, 4, 9, 16, 25]


def any_but(name: str, desc: MemoryDesc) -> Any:
    return lambda n, dims, data_type: desc if n == name else MemoryDesc(dims, data_type, "any")


def test_any_is_row_major_where_a_primitive_multiplies_by_weights() -> None:
    problem = problem_of("convolution", np.random.default_rng(3))
    src = MemoryDesc(problem.dims["src"], "f32", "aBcdefghijkl"[: len(problem.dims["src"])] + "8b")
    descs = make_engine().create(problem.forward(any_but("src", src))).descs
    assert descs == {n: src if n == "src" else MemoryDesc(d, "f32") for n, d in problem.dims.items()}


def test_any_is_the_format_of_the_source_elsewhere() -> None:
    window = {"strides": (2,), "kernel": (2,), "dilations": (0,), "padding_l": (0,), "padding_r": (0,)}
    problem = Problem("pooling", {"src": (1, 17, 4), "dst": (1, 17, 2)}, {"algorithm": "max", **window})
    src = MemoryDesc((1, 17, 4), "f32", "aBc8b")
    forward = make_engine().create(problem.forward(any_but("src", src)))
    assert forward.descs["dst"] == MemoryDesc((1, 17, 2), "f32", "aBc8b")
    assert forward.descs["workspace"] == MemoryDesc((1, 17, 2), "s32")
    back = make_engine().create(backward(forward, "backward"))
    assert back.descs["diff_src"] == src
    assert back.descs["diff_dst"] == forward.descs["dst"]
    assert back.descs["workspace"] == forward.descs["workspace"]
