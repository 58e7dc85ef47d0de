"""Panels: they cover every element of the destination, and data arrives through the buffer."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inlay.machine import MemoryModel
from inlay.reordering import compile_reorder, compiled, panels, planning
from inlay.reordering.choice import Choice, Decision
from inlay.reordering.nest import Guard, Loop, LoopNest
from inlay.reordering.panels import BUFFER_BYTES, ENTRY, FLAGS, POOL, Panels, buffer_pool, cut_into_panels, panels_ir
from inlay.reordering.planning import plan_reorder
from inlay.reordering.target import TARGETS, compile_ir, host_target
from tests.reordering.test_reorder import Flush, check
from tests.reordering.test_targets import TYPES
from tests.support.processes import run_python
from tests.support.reorders import Pair, pair, problem_of, transposes

FIXED = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def small_panels(monkeypatch: pytest.MonkeyPatch, always_streaming: None) -> None:
    """Provide panels of at most a kilobyte, caches smaller than any tensor, and five threads."""
    for name, value in (("PANEL_BYTES", 1024), ("_ROW_BYTES", 256), ("_SHORTEST_ROW", 128), ("_SHORTEST_RUN", 4)):
        monkeypatch.setattr(panels, name, value)


# What panels cover


@st.composite
def nests(draw: st.DrawFn) -> LoopNest:
    """Return loops that are dense on both sides in two orders; order and gaps of the source are random."""
    extents = draw(st.lists(st.integers(2, 40), min_size=1, max_size=4))
    strides = []
    for side in range(2):
        order, step = draw(st.permutations(range(len(extents)))), 1
        found = [0] * len(extents)
        for i in order:
            found[i] = step
            step *= extents[i] + (draw(st.integers(0, 2)) if side == 0 else 0)
        strides.append(found)
    return LoopNest(tuple(Loop(n, a, b) for n, a, b in zip(extents, *strides, strict=True)), ())


def places(loops: tuple[Loop, ...]) -> Any:
    """Return the offsets of each index of the loops on both sides, a row for each index."""
    indices = np.indices([loop.extent for loop in loops]).reshape(len(loops), -1)
    return indices.T @ np.array([(loop.src, loop.dst) for loop in loops])


def places_of_panels(cut: Panels) -> Any:
    """Return the same offsets for all panels, element by element through the buffer."""
    src, buffer = places(cut.nest.loops).T
    row, element = np.divmod(buffer, cut.pitch)
    assert (element < cut.row_elements).all()
    moved = np.stack([src, np.asarray(cut.rows)[row] + element], axis=1)
    return (np.asarray(cut.offsets)[:, None] + moved).reshape(-1, 2)


@pytest.mark.usefixtures("small_panels")
@FIXED
@given(nests(), st.sampled_from([(1, 1), (4, 4), (4, 1), (1, 4), (8, 8)]))
def test_panels_move_every_element_to_its_place(nest: LoopNest, sizes: tuple[int, int]) -> None:
    cut = cut_into_panels(nest, *sizes)
    if cut is not None:
        moved, wanted = (np.unique(each @ [1, 1 << 32]) for each in (places_of_panels(cut), places(nest.loops)))
        assert np.array_equal(moved, wanted)
        assert len(cut.rows) * cut.pitch * sizes[1] <= BUFFER_BYTES
        assert cut.row_elements * sizes[1] >= 128


def test_a_large_transpose_has_panels_of_about_the_wanted_size() -> None:
    cut = cut_into_panels(LoopNest((Loop(5000, 3001, 1), Loop(3001, 1, 5000)), ()), 4, 4)
    assert cut is not None
    assert (cut.row_elements, len(cut.rows), len(cut.offsets)) == (256, 126, 20 * 24)
    assert str(cut) == "480 panels of 126 rows of 256 elements"
    assert cut.src_step == 126


@pytest.mark.parametrize(
    "nest",
    [
        LoopNest((Loop(5000, 3001, 1, ((0, 1),)), Loop(3001, 1, 5000)), (Guard(4990, 5000),)),  # bounds
        LoopNest((Loop(5000, 3001, 1), Loop(3001, 5, 5000)), ()),  # nothing in a row in the source
        LoopNest((Loop(100, 3001, 1), Loop(3001, 1, 101)), ()),  # rows of 400 bytes
        LoopNest((Loop(3, (0, 7, 9), 1), Loop(3001, 1, 3)), ()),  # a table
    ],
)
def test_other_nests_have_none(nest: LoopNest) -> None:
    assert cut_into_panels(nest, 4, 4) is None


# What arrives

TAGS = [("ab", "ba"), ("abc", "cba"), ("abc", "bca"), ("abcd", "acdb"), ("abcd", "dbca"), ("abcd", "acbd")]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    tags, types = draw(st.sampled_from(TAGS)), draw(st.sampled_from(TYPES))
    rank = len(tags[0])
    dims = draw(st.lists(st.integers(2, {2: 150, 3: 40, 4: 16}[rank]), min_size=rank, max_size=rank))
    return pair(tuple(dims), *tags, *types)


def flags_of(r: compiled.CompiledReorder) -> npt.NDArray[np.int64]:
    """Return the flags of the buffer pool, read from the table of a reorder."""
    assert r.task is not None
    words = r.task.keeps_alive[-1].words  # type: ignore[index]
    flags = buffer_pool().flags
    assert words[FLAGS] == flags.ctypes.data
    assert flags.size == words[POOL]
    return flags


@pytest.mark.usefixtures("small_panels")
class TestArrival:
    @FIXED
    @given(pairs(), st.sampled_from(["upper", "lower"]))
    def test_on_threads(self, pair: Pair, flush: Flush) -> None:
        check(*pair, flush)

    @pytest.mark.parametrize("types", TYPES, ids="-".join)
    @pytest.mark.parametrize("dims", [(130, 71), (97, 259), (64, 64), (16, 500)])
    def test_transposes_have_panels(self, dims: tuple[int, int], types: tuple[str, str]) -> None:
        problem = problem_of(dims, "ab", "ba", *types)
        assert plan_reorder(problem, host_target(), Choice(panels=True)).panels is not None
        check(*pair(dims, "ab", "ba", *types))

    @pytest.mark.usefixtures("narrow")
    @pytest.mark.parametrize("types", TYPES, ids="-".join)
    def test_narrow_registers(self, types: tuple[str, str]) -> None:
        check(*pair((130, 97), "ab", "ba", *types))

    def test_many_threads_at_once(self) -> None:
        r = compile_reorder(*pair((301, 203)))
        assert r.plan is not None
        assert r.plan.panels is not None
        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(lambda _: transposes(r, (301, 203), 20), range(16)))
        assert flags_of(r).max() == 0

    def test_who_finds_no_buffer_waits_for_one(self) -> None:
        r = compile_reorder(*pair((301, 203)))
        flags = flags_of(r)
        flags[:] = 1
        with ThreadPoolExecutor(1) as pool:
            caller = pool.submit(transposes, r, (301, 203))
            with pytest.raises(TimeoutError):
                caller.result(0.05)
            flags[0] = 0
            assert caller.result(30)
        flags[:] = 0


FORK = """
import os
from inlay.reordering.panels import buffer_pool
flags = buffer_pool().flags
flags[:] = 1
child = os.fork()
if child == 0:
    os._exit(int(flags.max()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(flags.min()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_all_buffers_though_threads_of_the_parent_held_them() -> None:
    done = run_python("-c", FORK)
    assert (done.stdout, done.stderr) == ("0 1\n", "")


@pytest.mark.parametrize("name", TARGETS)
def test_the_code_compiles_for_every_target(name: str) -> None:
    target = TARGETS[name]
    data = compile_ir(panels_ir(target.fence, target.pause, target.attributes), target)
    assert ENTRY.encode() in data


@pytest.mark.parametrize(
    ("has_panels", "text"),
    [
        (True, "  stores into a buffer, then streamed: 20 panels of 103 rows of 256 elements\n"),
        (False, "  stores cached\n"),
    ],
)
def test_a_reorder_says_whether_it_has_panels(has_panels: bool, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "memory_model", lambda: MemoryModel(0, 0, 0))
    assert text in compiled.compile_problem(problem_of((1001, 515)), Decision(Choice(panels=has_panels))).explain()
