"""Executors of conversions: the same bytes from all, and workers that end early are replaced."""

import os
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay.errors import FileError, InlayError, InvalidArguments, MissingExtra, OutOfMemory, Unimplemented
from inlay.storage import ConversionPlan, conversion_run, convert, executors, plan, task_runner
from inlay.storage.executors import choose_executor
from inlay.storage.fingerprint import describe, fingerprint
from inlay.storage.finished_tasks import FinishedTasks
from inlay.storage.journal import journal_path
from inlay.storage.operation import BoxCounts
from tests.support.conversion_operations import (
    EndingOperation,
    FailingOperation,
    ScaledOperation,
    WrappedOperation,
    with_operation,
)
from tests.support.refusals import raises_exactly
from tests.support.tensor_files import numbered


@pytest.fixture(autouse=True)
def weights(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tensors of several types, one without elements, and a scalar; every conversion is worth to be kept."""
    monkeypatch.setattr(conversion_run, "KEPT_NBYTES", 0)
    rng = np.random.default_rng(0)
    tensors: dict[str, Any] = {
        "conv": numbered((40, 17, 3, 3)),
        "half": rng.standard_normal((64, 96)).astype(ml_dtypes.bfloat16),
        "single": rng.standard_normal((64, 96)).astype(np.float32),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(3, np.int32),
        "mask": np.array([True, False]),
    }
    save_file(tensors, "w.safetensors", {"note": "kept"})
    return directory


PLANS: dict[str, dict[str, Any]] = {
    "blocks": {"to": ["conv=OIhw16i16o", "half=BA16a16b2a"]},
    "types": {"to": ["single=plain"], "data_type": "f16"},
    "copies": {"to": []},
}


def make_plan(name: str, target: str) -> ConversionPlan:
    return plan("w.safetensors", target, memory=12000, **PLANS[name])


def names() -> list[str]:
    """The names of all files, hidden ones too."""
    return sorted(path.name for path in Path().iterdir())


def content_of(path: str) -> bytes:
    return Path(path).read_bytes()


@pytest.mark.parametrize("name", PLANS)
def test_processes_write_the_bytes_of_one_process(name: str) -> None:
    planned = make_plan(name, "here.safetensors")
    assert planned.count > 6
    losses = convert(planned)
    assert convert(make_plan(name, "there.safetensors"), workers=2) == losses
    assert content_of("there.safetensors") == content_of("here.safetensors")
    assert names() == ["here.safetensors", "there.safetensors", "w.safetensors"]


def test_sums_do_not_depend_on_the_order_of_tasks() -> None:
    planned = make_plan("blocks", "a.safetensors")
    counts = [BoxCounts(nonzero=i, squared_error=1 / (i + 1), greatest_error=i / 7) for i in range(planned.count)]
    totals = set()
    finished = FinishedTasks(planned)
    for seed in range(5):
        finished, completed = FinishedTasks(planned), list[int]()
        for number in np.random.default_rng(seed).permutation(planned.count).tolist():
            assert number not in finished
            completed += finished.add(number, counts[number])
            assert number in finished
            assert not finished.add(number, counts[number])
        totals.add(tuple(finished.counts))
        assert completed == sorted(completed)
        assert {i for i, each in enumerate(planned.tensors) if each.count} <= set(completed)
        assert finished.count == finished.total == planned.count
    assert len(totals) == 1
    for i in range(len(planned.tensors)):
        assert all(finished.tensor_of(number) == i for number in finished.numbers(i))


def test_a_plan_and_its_operations_are_values() -> None:
    planned = with_operation(make_plan("blocks", "a.safetensors"), ScaledOperation, 2.0)
    assert pickle.loads(pickle.dumps(planned)) == planned


def test_fingerprints_are_equal_for_plans_with_equal_bytes_only(directory: Path, monkeypatch: Any) -> None:
    first = fingerprint(make_plan("blocks", "a.safetensors"))
    assert first == fingerprint(pickle.loads(pickle.dumps(make_plan("blocks", "a.safetensors"))))
    (directory / "sub").mkdir()
    monkeypatch.chdir("sub")
    moved = plan("../w.safetensors", "../a.safetensors", memory=12000, **PLANS["blocks"])
    monkeypatch.chdir(directory)
    assert fingerprint(moved) == first
    others = [
        plan("w.safetensors", "a.safetensors", memory=24000, **PLANS["blocks"]),
        plan("w.safetensors", "a.safetensors", ["conv=OIhw16o16i"], memory=12000),
        make_plan("types", "a.safetensors"),
        with_operation(make_plan("blocks", "a.safetensors"), ScaledOperation),
        with_operation(make_plan("blocks", "a.safetensors"), ScaledOperation, 2.0),
    ]
    assert len({first, *map(fingerprint, others)}) == 6


def test_a_description_says_what_a_value_is() -> None:
    class Plain:
        def __init__(self, number: int) -> None:
            self.number = number

    class Named(Plain):
        def __repr__(self) -> str:
            return f"number {self.number}"

    values = [1, 1.0, "1", b"1", (1,), ((1,),), {"1": 1}, None, True, Plain(1), Plain(2), Named(1), Named(2)]
    values += [np.array([1, 2]), np.array([1, 3]), np.array([[1, 2]]), np.array([1, 2], np.float32)]
    assert len({describe(value) for value in values}) == len(values)
    assert describe(Plain(1)) == describe(Plain(1))
    assert describe([1]) == describe((1,))


# Wrong options


@pytest.mark.parametrize(
    ("workers", "shown"), [(0, "0"), (-1, "-1"), (1.5, "1.5"), (True, "True"), ("2", "'2'")], ids=str
)
def test_a_number_of_workers_that_is_none_is_refused(workers: Any, shown: str) -> None:
    with raises_exactly(InvalidArguments, f"the number of workers is {shown}: give a whole number from 1 on"):
        convert(make_plan("blocks", "a.safetensors"), workers=workers)


def test_a_cluster_has_its_own_workers() -> None:
    text = "the cluster at tcp://10.0.0.1:8786 has workers of its own: leave out their number"
    with raises_exactly(InvalidArguments, text):
        choose_executor(2, "tcp://10.0.0.1:8786")


def test_without_dask_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setitem(sys.modules, "dask", None)
    with raises_exactly(MissingExtra, "Dask's scheduler is not installed: pip install 'inlay[storage]'"):
        choose_executor(None, "local")
    with raises_exactly(MissingExtra, "Dask is not installed: pip install 'inlay[storage]'"):
        make_plan("blocks", "a.safetensors").to_dask()


# Lost workers


def ending(times: int) -> ConversionPlan:
    """A plan at which a worker process is killed this many times."""
    return with_operation(make_plan("blocks", "a.safetensors"), EndingOperation, (32, 0, 0, 0), times, Path("ends"))


def test_a_lost_worker_is_replaced() -> None:
    convert(make_plan("blocks", "expected.safetensors"))
    convert(ending(2), workers=2)
    assert len(content_of("ends")) == 3
    assert content_of("a.safetensors") == content_of("expected.safetensors")
    assert not journal_path("a.safetensors").exists()


def test_a_box_that_ends_each_worker_is_named_and_the_same_command_goes_on() -> None:
    convert(make_plan("blocks", "expected.safetensors"))
    planned = ending(5)
    text = (
        f"cannot write a.safetensors: 1 of {planned.count} boxes failed: conv [32:40, 0:2, 0:3, 0:3]: 4 worker "
        "processes ended at it, as for too little memory; use less (--memory); remove the cause, and "
        "run the same command again"
    )
    with raises_exactly(FileError, text):
        convert(planned, workers=2)
    resumed: list[tuple[int, ...]] = []
    convert(planned, workers=2, on_resume=lambda *numbers: resumed.append(numbers))
    assert resumed == [(planned.count - 1, planned.count)]
    assert content_of("a.safetensors") == content_of("expected.safetensors")


def test_workers_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_start_process", os._exit)
    monkeypatch.setattr(executors, "_MOST_LOSSES_IN_A_ROW", 1)
    text = (
        "cannot write a.safetensors: worker processes ended 2 times in a row, as for too little memory; use fewer of "
        "them (--workers) or less memory for each (--memory)"
    )
    with raises_exactly(FileError, text):
        convert(make_plan("blocks", "a.safetensors"), workers=2)
    assert names() == ["w.safetensors"]


def test_an_error_of_a_request_keeps_its_class_in_another_process() -> None:
    planned = make_plan("blocks", "a.safetensors")
    error = InvalidArguments("the box cannot be converted")
    failing = with_operation(planned, FailingOperation, (32, 0, 0, 0), 9, Path("failures"), error)
    for workers in (1, 2):
        with raises_exactly(InvalidArguments, str(error)):
            convert(failing, workers=workers)
    assert content_of("failures") == b"xx"  # not tried again
    assert names() == ["failures", "w.safetensors"]


# Dask


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The scheduler of a cluster of two processes."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


dask_warnings = pytest.mark.filterwarnings("ignore")


@dask_warnings
@pytest.mark.heavy
@pytest.mark.parametrize("name", PLANS)
def test_dask_writes_the_bytes_of_one_process(address: str, name: str, directory: Path) -> None:
    convert(make_plan(name, "here.safetensors"))
    target = str(directory / "there.safetensors")
    planned = plan(directory / "w.safetensors", target, memory=12000, **PLANS[name])
    heard: list[int] = []
    convert(planned, heard.append, dask=address)
    assert content_of(target) == content_of("here.safetensors")
    assert sum(heard) == planned.nbytes
    assert names() == ["here.safetensors", "there.safetensors", "w.safetensors"]


@dask_warnings
@pytest.mark.heavy
def test_a_new_cluster_of_dask_loses_a_worker_and_ends_with_the_same_bytes(directory: Path) -> None:
    pytest.importorskip("distributed")
    convert(make_plan("blocks", "expected.safetensors"))
    convert(ending(2), workers=2, dask="local")
    assert content_of("a.safetensors") == content_of("expected.safetensors")


@pytest.mark.parametrize("kind", [OutOfMemory, FileError, InvalidArguments, MissingExtra, Unimplemented])
def test_errors_reach_the_scheduler_of_dask(kind: type[InlayError]) -> None:
    """Once Dask is imported, exceptions are pickled by tblib."""
    pickle = pytest.importorskip("distributed.protocol.pickle")
    error = pickle.loads(pickle.dumps(kind("a reason")))
    assert (type(error), str(error)) == (kind, "a reason")


@dask_warnings
@pytest.mark.heavy
def test_a_task_that_ends_each_worker_of_dask_is_named(directory: Path) -> None:
    pytest.importorskip("distributed")
    convert(make_plan("blocks", "expected.safetensors"))
    with pytest.raises(FileError, match=r"1 of \d+ boxes failed: conv \[32:40, 0:2, 0:3, 0:3\]: "):
        convert(ending(10_000), workers=2, dask="local")
    convert(make_and_forget())
    assert content_of("a.safetensors") == content_of("expected.safetensors")


def make_and_forget() -> ConversionPlan:
    Path("ends").write_bytes(b"x" * 10_000)
    return ending(10_000)


@dask_warnings
@pytest.mark.heavy
def test_processes_finish_what_dask_began(address: str, directory: Path) -> None:
    convert(make_plan("blocks", "expected.safetensors"))
    planned = plan(directory / "w.safetensors", directory / "a.safetensors", memory=12000, **PLANS["blocks"])
    heard: list[int] = []

    def interrupt(nbytes: int) -> None:
        heard.append(nbytes)
        if len(heard) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(planned, interrupt, dask=address)
    resumed: list[tuple[int, ...]] = []
    convert(planned, workers=2, on_resume=lambda *numbers: resumed.append(numbers))
    assert resumed == [(5, planned.count)]
    assert content_of("a.safetensors") == content_of("expected.safetensors")


def test_an_address_without_a_scheduler_is_an_error() -> None:
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    assert distributed
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        with pytest.raises(FileError, match=r"cannot reach Dask's scheduler at tcp://127\.0\.0\.1:9: "):
            convert(make_plan("blocks", "a.safetensors"), dask="tcp://127.0.0.1:9")
        with pytest.raises(FileError, match="cannot reach Dask's scheduler at nonsense://x: "):
            convert(make_plan("blocks", "a.safetensors"), dask="nonsense://x")
    assert names() == ["w.safetensors"]


@pytest.mark.parametrize("scheduler", ["sync", "threads", pytest.param("processes", marks=pytest.mark.heavy)])
@pytest.mark.parametrize("kind", [WrappedOperation, ScaledOperation])
def test_a_graph_of_dask_does_the_conversion(scheduler: str, kind: type[WrappedOperation]) -> None:
    pytest.importorskip("dask")
    losses = convert(with_operation(make_plan("types", "expected.safetensors"), kind))
    result = with_operation(make_plan("types", "a.safetensors"), kind).to_dask().compute(scheduler=scheduler)
    assert result == losses
    assert content_of("a.safetensors") == content_of("expected.safetensors")
    assert names() == ["a.safetensors", "expected.safetensors", "w.safetensors"]


def test_a_graph_of_dask_that_fails_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask")
    monkeypatch.setattr(task_runner, "PAUSES", ())
    convert(make_plan("blocks", "expected.safetensors"))
    error = FileError("cannot read w.safetensors: Input/output error")
    planned = with_operation(
        make_plan("blocks", "a.safetensors"), FailingOperation, (32, 0, 0, 0), 1, Path("failures"), error
    )
    with pytest.raises(InlayError, match=r"1 of \d+ boxes failed: conv \[32:40, 0:2, 0:3, 0:3\]: cannot read w"):
        planned.to_dask().compute(scheduler="sync")
    assert planned.to_dask().compute(scheduler="sync") == ()
    assert content_of("a.safetensors") == content_of("expected.safetensors")


def test_a_job_that_ends_is_closed_after_the_box_that_a_worker_of_dask_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor that is closed before could be that of another file when the box is written."""
    begun, may_end, closed = threading.Event(), threading.Event(), list[bool]()

    class Runner:
        def __init__(self, _: object) -> None:
            pass

        def run(self, item: object) -> object:
            begun.set()
            may_end.wait(60)
            return item

        def close(self) -> None:
            closed.append(may_end.is_set())

    monkeypatch.setattr(executors, "TaskRunner", Runner)
    job: Any = SimpleNamespace(token="busy")
    thread = threading.Thread(target=executors._run_on_dask, args=(job, None))
    thread.start()
    begun.wait(60)
    executors._close_runners("busy")
    assert closed == []
    may_end.set()
    thread.join(60)
    assert closed == [True]
    executors._run_on_dask(job, None)  # type: ignore[arg-type]
    executors._close_runners("busy")
    assert closed == [True, True]
    assert not any(key[0] == "busy" for key in executors._runners)
