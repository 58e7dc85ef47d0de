"""The limit on loaded machine code: unused code is unloaded, used code stays, and the process never aborts."""

import gc
import json
import random
import sys
import weakref
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pytest

import inlay
from inlay.errors import OutOfMemory
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compensation, compiled, machine_code, target
from inlay.reordering.choice import Choice, Decision
from inlay.reordering.compensation import build_channel_sums
from inlay.reordering.target import host_target
from tests.support.many_kernels import Drawn
from tests.support.processes import run_python
from tests.support.refusals import raises_exactly
from tests.support.reorders import pair, problem_of

TAGS = ("cab", "aBc8b", "bca")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux limits and tells the mappings of a process")


@pytest.fixture(autouse=True)
def few_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Provide empty caches with room for 4 kernels."""
    monkeypatch.setattr(machine_code, "_codes", WeakValueDictionary())
    cached = lru_cache(maxsize=4)(machine_code.machine_code.__wrapped__)
    for module in (compiled, compensation):
        monkeypatch.setattr(module, "machine_code", cached)
    monkeypatch.setattr(target, "_unchecked_loads", 0)
    target.unload_unused()
    yield
    target._mapping_limit.cache_clear()


def collect(*, kernels: bool = False) -> None:
    """Empty the cache of reorders, and that of kernels if so asked, and collect garbage."""
    find_reorder.cache_clear()
    if kernels:
        compiled.machine_code.cache_clear()  # type: ignore[attr-defined]
    gc.collect()


def mappings() -> int:
    return Path("/proc/self/maps").read_bytes().count(b"\n")


def test_only_the_kernels_that_were_asked_for_last_stay_loaded() -> None:
    rng, unloaded = random.Random(1), 0
    for _ in range(25):
        Drawn(rng)
        collect()
        assert len(machine_code._codes) <= 4
        unloaded += len(target._unused)
        assert len(target._unused) <= 1  # each load unloads what the one before has replaced
    assert unloaded > 15
    target.unload_unused()
    assert not target._unused


@on_linux
def test_what_is_unloaded_gives_its_mappings_back() -> None:
    rng = random.Random(2)
    held = [Drawn(rng) for _ in range(25)]
    count, most = len(machine_code._codes), mappings()
    held.clear()
    collect()
    target.unload_unused()
    assert count > 15
    assert mappings() < most - count


def test_a_reorder_in_use_stays_right_whatever_is_loaded_after_it() -> None:
    array = np.arange(17 * 24 * 8, dtype=np.float32).reshape(17, 24, 8)
    src, rng = inlay.pack(array, "abc"), random.Random(3)
    used = [compiled.compile_reorder(src.desc, inlay.MemoryDesc((17, 24, 8), "f32", tag)) for tag in TAGS]
    for _ in range(20):
        assert Drawn(rng).is_right()
    collect()
    target.unload_unused()
    for tag, reorder in zip(TAGS, used, strict=True):
        dst = inlay.pack(np.zeros_like(array), tag)
        reorder.run(src.address, dst.address)
        assert np.array_equal(dst.unpack(), array)


@pytest.mark.parametrize("panels", [False, True])
def test_a_task_keeps_its_code(panels: bool) -> None:
    reorder = compiled.compile_problem(problem_of((301, 203)), Decision(Choice(streams=True, panels=panels)))
    assert reorder.plan is not None
    assert (reorder.plan.panels is not None) == panels
    code = weakref.ref(machine_code._codes[reorder.plan.kernel, host_target()])
    task = reorder.task
    del reorder
    collect(kernels=True)
    assert task is not None
    assert code() is not None
    del task
    collect()
    assert code() is None


def test_a_variant_for_unaligned_destinations_keeps_its_code() -> None:
    reorder = compiled.compile_problem(problem_of((512, 256)), Decision(Choice(streams=True)))
    known = set(machine_code._codes)
    assert reorder.unaligned is not None
    variant = reorder.unaligned(18)
    assert isinstance(variant, compiled.CompiledReorder)
    task = variant.task
    added = set(machine_code._codes) - known
    del reorder
    collect(kernels=True)
    assert task is not None
    assert added
    assert added <= set(machine_code._codes)
    assert task.code in {machine_code._codes[kernel].address for kernel in added}


def test_sums_keep_their_code() -> None:
    layout, _ = inlay.MemoryDesc((16, 8, 3, 3), "s8", "abcd").require_layout("test")
    found = build_channel_sums(layout, 0, 1, host_target())
    assert all(isinstance(part.task.keeps_alive, machine_code.MachineCode) for part in found.parts)


def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Simulate a system that allows so many mappings."""
    monkeypatch.setattr(target, "_LIMIT", tmp_path / "limit")
    (tmp_path / "limit").write_text(f"{limit}\n")
    target._mapping_limit.cache_clear()


def test_a_load_is_refused_before_the_system_refuses_mappings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full(tmp_path, monkeypatch, 4)
    monkeypatch.setattr(target, "_MAPPINGS", tmp_path / "maps")
    (tmp_path / "maps").write_text("one\ntwo\nthree\n")
    text = (
        "this process has 3 memory mappings, and the system allows 4: no more machine code is loaded; delete reorders "
        "and other objects that are not needed, or continue in a new process"
    )
    sides = pair((7, 5, 3), "abc", "cba", "f32", "s8")
    with raises_exactly(OutOfMemory, text):
        inlay.Reorder(*sides)
    (tmp_path / "maps").write_text("one\ntwo\n")
    inlay.Reorder(*sides)


@on_linux
def test_after_a_refusal_there_is_room_once_reorders_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(tmp_path, monkeypatch, (mappings() + 160) * 4 // 3)
    rng, held = random.Random(4), list[Drawn]()
    with pytest.raises(OutOfMemory):
        held += (Drawn(rng) for _ in range(400))
    count = len(machine_code._codes)
    # The others may load a second kernel, with other stores.
    ready = [drawn for drawn in held if drawn.reorder.unaligned is None and drawn.reorder.trial is None]
    assert ready
    assert all(drawn.is_right() for drawn in ready)
    held.clear()
    ready.clear()
    gc.collect()
    held += [Drawn(rng) for _ in range(8)]
    assert all(drawn.is_right() for drawn in held)
    assert count > 30


def test_where_the_system_tells_no_limit_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full(tmp_path, monkeypatch, 4)
    (tmp_path / "limit").unlink()
    assert Drawn(random.Random(5)).is_right()


GAPS = """
import random
from tests.support.many_kernels import Drawn, gaps
rng = random.Random(0)
gap = gaps(rng)
for _ in range(20):
    next(gap)
    assert Drawn(rng).is_right()
print("right")
"""


@on_linux
def test_code_is_loaded_into_gaps_that_are_far_apart() -> None:
    """Load code into gaps of memory: two blocks more than 2 GiB apart would make LLVM abort."""
    done = run_python("-c", GAPS)
    assert (done.stdout, done.stderr) == ("right\n", "")


@on_linux
@pytest.mark.heavy
@pytest.mark.long
def test_thousands_of_kernels_take_no_more_than_hundreds(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    arguments = ("-m", "tests.support.many_kernels", "4000", "1800", "100", "0")
    done = run_python(*arguments, timeout=7200, INLAY_CACHE_DIR=str(tmp_path))
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["loaded"] >= 4000
    assert found["forks"] >= 20
    assert found["mappings"][1] < found["mappings"][0] + 200  # 3,000 kernels would take 6,000
    assert found["resident"][1] < found["resident"][0] + 100  # and 130 MB
