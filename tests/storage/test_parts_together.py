"""Parts of conversions together: every kind of target is checked, reported, replaced, pickled, killed and resumed."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from inlay.errors import FileError
from inlay.storage import (
    ConversionPlan,
    ConversionReport,
    WriteOptions,
    conversion_run,
    convert,
    list_contents,
    open_memories,
    open_store,
    plan,
    verify,
)
from inlay.storage.file_target import PARTIAL_SUFFIX
from inlay.storage.journal import Journal, journal_path, read_entries
from inlay.storage.quantize_operation import QuantizeOperation
from tests.support.storage_peers import zarr_or_skip
from tests.support.tensor_files import numbered


@dataclass(frozen=True)
class TargetKind:
    """A kind of target: its name, and the options of its plan."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tensors: tuple[str, ...] = ("conv", "fc", "bias", "scalar")
    """The tensors of the source that it can hold."""


SHARDS: dict[str, Any] = {"target_options": WriteOptions(shard_nbytes=20_000)}
BLOCKED = ["conv=aBcd16b", "fc=BA16a16b"]
PLAIN = ["fc=plain"]

KINDS = {
    "safetensors": TargetKind("out.safetensors", {"to": BLOCKED}),
    "folder": TargetKind("out/", {"to": BLOCKED, **SHARDS}),
    "index": TargetKind("model.safetensors.index.json", {"to": BLOCKED, **SHARDS}),
    "gguf": TargetKind("out.gguf", {"to": PLAIN}, ("conv", "fc", "bias", "half")),
    "npz": TargetKind("out.npz", {"to": PLAIN}),
    "npy": TargetKind("out.npy", {"to": PLAIN}, ("fc",)),
    "raw": TargetKind("out.raw", {"to": ["fc=BA16a16b"]}, ("fc",)),
    "zarr": TargetKind("out.zarr", {"to": BLOCKED, "chunks": ["fc=32,48", "conv=8,-1,3,3"]}),
    "url": TargetKind("memory://parts/out.safetensors", {"to": BLOCKED}),
    "url of a folder": TargetKind("memory://parts/folder/", {"to": BLOCKED, **SHARDS}),
    "url of raw bytes": TargetKind("memory://parts/out.raw", {"to": ["fc=BA16a16b"]}, ("fc",)),
    "url of zarr": TargetKind("memory://parts/out.zarr", {"to": BLOCKED, "chunks": ["fc=32,48", "conv=8,-1,3,3"]}),
}

ARRAYS: dict[str, Any] = {
    "conv": numbered((40, 17, 3, 3)),
    "fc": numbered((64, 96)),
    "bias": np.arange(64, dtype=np.float32),
    "scalar": np.array(3, np.int32),
    "half": numbered((33, 17), ml_dtypes.bfloat16),
}


@pytest.fixture(autouse=True)
def _empty_memory_file_system() -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").store.clear()
    fsspec.filesystem("memory").pseudo_dirs[:] = [""]


def require_peers(name: str) -> None:
    if "zarr" in name:
        zarr_or_skip()


def make_plan(kind: str, **options: Any) -> ConversionPlan:
    require_peers(kind)
    target = KINDS[kind]
    save_file({name: ARRAYS[name] for name in target.tensors}, "w.safetensors")
    return plan("w.safetensors", target.name, **{"memory": "40 kB", **target.options, **options})


def visible() -> set[str]:
    """The names of all files, hidden ones too."""
    return {str(path) for path in Path().rglob("*") if path.is_file()}


def flip_a_byte(kind: str) -> None:
    """Change one element of `fc`, in any kind of target."""
    name = KINDS[kind].name
    if "://" in name:
        files = pytest.importorskip("fsspec").filesystem("memory").store
        key = next(key for key in files if "fc/c/0/0" in key or (key.endswith((".safetensors", ".raw"))))
        content = bytearray(files[key].getvalue())
        content[-1] ^= 1
        files[key].seek(0)
        files[key].write(content)
        return
    path = Path(name)
    if path.suffix == ".zarr":
        path = path / "fc" / "c" / "0" / "0"
    elif kind in ("folder", "index"):
        path = min(Path("out" if kind == "folder" else ".").glob("model-*.safetensors"))
    content = bytearray(path.read_bytes())
    content[content.index(ARRAYS["fc"].tobytes()[-16:]) if kind == "npz" else -1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gguf"])
def test_a_target_is_reported_verified_and_found_damaged(kind: str) -> None:
    planned, reports = make_plan(kind), list[ConversionReport]()
    assert convert(planned, report=reports.append) == ()
    verify(planned)
    described = json.loads(json.dumps(reports[0].to_json()))
    assert described["target"] == planned.target.location
    assert {each["name"] for each in described["tensors"]} == set(planned.target.tensors)
    assert described["bytes_written"] == planned.traffic.written
    flip_a_byte(kind)
    with pytest.raises(FileError):
        verify(planned)


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_is_replaced_on_request_only(kind: str) -> None:
    planned = make_plan(kind)
    convert(planned)
    before = visible()
    with pytest.raises(FileError, match=r"^cannot write .*: it exists; choose another name, or allow that it is"):
        convert(planned)
    assert visible() == before
    verify(planned)
    convert(planned, overwrite=True)
    assert visible() == before
    verify(planned)


@pytest.mark.parametrize("kind", KINDS)
def test_plans_are_values_that_any_process_executes(kind: str) -> None:
    planned = make_plan(kind)
    again = pickle.loads(pickle.dumps(planned))
    assert (again, str(again)) == (planned, str(planned))
    assert json.loads(json.dumps(again.to_json())) == planned.to_json()
    convert(again, workers=2 if kind in ("folder", "gguf", "zarr") else 1)
    verify(planned)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "url" not in kind and kind != "raw"])
def test_the_contents_of_a_target_are_listed(kind: str) -> None:
    convert(make_plan(kind))
    contents = list_contents(open_store(KINDS[kind].name))
    found = {tensor.name: tensor.dims for tensor in contents.tensors}
    if kind == "npy":
        found = {"fc": found["out"]}
    assert found == {name: ARRAYS[name].shape for name in KINDS[kind].tensors}


def test_a_checkpoint_goes_through_every_format_and_comes_back() -> None:
    zarr_or_skip()
    arrays = {name: ARRAYS[name] for name in ("conv", "fc", "bias", "half")}
    save_file(arrays, "w.safetensors")
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("w.safetensors", "shards/", {"to": BLOCKED, **SHARDS}),
        ("shards/", "a.gguf", {"to": ["conv=plain", "fc=plain"]}),
        ("a.gguf", "b.zarr", {"to": ["fc=ba"], "chunks": ["fc=-1,16", "conv=8,-1,3,3"]}),
        ("b.zarr", "c/", SHARDS),
        ("c/", "back.safetensors", {"to": ["*=plain"]}),
    ]
    for source, target, options in ways:
        made = plan(source, target, memory="50 kB", **options)
        convert(made)
        verify(made)
    back = load_file("back.safetensors")
    assert {name: back[name].tobytes() for name in arrays} == {name: arrays[name].tobytes() for name in arrays}


QUANTIZED: dict[str, dict[str, Any]] = {
    "absmax:0": {"to": ["plain"], "quantize": "absmax:0", "data_type": "s8"},
    "absmax": {"to": ["plain"], "quantize": "absmax", "data_type": "f8_e4m3"},
    "group": {"to": ["fc=BA16a16b"], "quantize": "absmax:group=32", "data_type": "s8"},
    "mxfp4": {"to": ["plain"], "quantize": "absmax", "data_type": "mxfp4"},
    "nvfp4": {"to": ["plain"], "quantize": "absmax", "data_type": "nvfp4"},
    "blocks": {"to": ["ggml:Q8_0"], "quantize": "absmax"},
}


@pytest.mark.parametrize("target", ["q.safetensors", "q/", "q.gguf", "q.zarr", "memory://parts/q.safetensors"])
@pytest.mark.parametrize("scheme", QUANTIZED)
def test_quantized_targets_are_verified_and_become_floats_again(scheme: str, target: str) -> None:
    require_peers(target)
    if scheme in ("mxfp4", "nvfp4") and target in ("q.gguf", "q.zarr"):
        pytest.skip("the format has no type for the quants")
    if target == "q.gguf" and scheme in ("group", "absmax"):
        pytest.skip("the format has no such layout or type")
    rng = np.random.default_rng(0)
    values = {"fc": rng.standard_normal((64, 96), np.float32), "bias": np.ones(64, np.float32)}
    save_file(values, "w.safetensors")
    options = SHARDS if target == "q/" else {"chunks": ["fc=32,32"]} if target == "q.zarr" else {}
    memory = "200 kB" if target == "q.zarr" else "60 kB"  # chunks of scales and of blocks are not stated
    made = plan("w.safetensors", target, memory=memory, **QUANTIZED[scheme], **options)
    reports = list[ConversionReport]()
    losses = convert(
        made, report=reports.append, workers=2 if target in ("q/", "q.zarr") and scheme in ("absmax:0", "blocks") else 1
    )
    assert [loss.name for loss in losses] == ["fc"]
    described = reports[0].to_json()["tensors"]
    assert 0 < next(each for each in described if each["name"] == "fc")["relative_error"] < 0.2
    verify(made)
    back = plan(target, "back.safetensors", dequantize=True, memory=memory)
    convert(back)
    verify(back)
    floats = {name: memory.unpack() for name, memory in open_memories("back.safetensors").items()}
    assert set(floats) == set(values)
    assert np.abs(floats["fc"] - values["fc"]).max() < 1
    other = {**values, "fc": values["fc"] * np.float32(0.5)}
    save_file(other, "w.safetensors")
    changed = plan("w.safetensors", target, memory=memory, **QUANTIZED[scheme], **options)
    with pytest.raises(FileError, match="differs from its source"):
        verify(changed)


@pytest.mark.parametrize(("quantize", "data_type"), [("absmax", "s8"), ("absmax:1", "s8"), ("absmax", "nvfp4")])
def test_a_quantization_goes_on_in_the_middle_of_a_scan(
    quantize: str, data_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion_run, "KEPT_NBYTES", 0)
    rng = np.random.default_rng(0)
    save_file({name: rng.standard_normal((256, 1024), np.float32) for name in "vw"}, "w.safetensors")

    def make(target: str) -> ConversionPlan:
        return plan("w.safetensors", target, ["*=ba"], quantize=quantize, data_type=data_type, memory="300 kB")

    made = make("q.safetensors")
    assert all(each.operation.needs_scan and each.count > 4 for each in made.tensors)
    convert(make("expected.safetensors"))
    scan, count = QuantizeOperation.scan, 0

    def interrupted(self: QuantizeOperation, memory: Any) -> Any:
        nonlocal count
        count += 1
        if count > 3:
            raise KeyboardInterrupt
        return scan(self, memory)

    with monkeypatch.context() as patch:
        patch.setattr(QuantizeOperation, "scan", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert(made)
    entries = read_entries(journal_path("q.safetensors"))
    assert entries is not None
    assert (len(entries.scans), len(entries.tasks)) == (3, 0)
    resumed: list[tuple[int, ...]] = []
    convert(make("q.safetensors"), workers=2, on_resume=lambda *numbers: resumed.append(numbers))
    assert resumed == [(0, made.count)]
    assert Path("q.safetensors").read_bytes() == Path("expected.safetensors").read_bytes()
    verify(made)
    assert list(Path().glob(".*")) == []


def start(target: str, workers: int) -> "subprocess.Popen[bytes]":
    """Start a conversion to `target` in a process of its own."""
    program = [sys.executable, "-m", "tests.support.killed_conversion", "w.safetensors", target, "log"]
    with Path("output").open("ab") as output:
        return subprocess.Popen([*program, str(workers), "0.01"], stdout=output, stderr=output)


def executed() -> int:
    """The number of boxes that were begun by any process."""
    log = Path("log")
    return log.read_bytes().count(b"\n") if log.exists() else 0


def content_of(target: str) -> dict[str, bytes]:
    root = Path(target)
    files = [root] if root.is_file() else [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("target", ["p/", "p.zarr"])
def test_targets_of_many_files_go_on_after_a_kill(target: str, workers: int) -> None:
    require_peers(target)
    from tests.support.killed_conversion import make_plan

    rng = np.random.default_rng(0)
    tensors = {name: rng.standard_normal((256, 192)).astype(np.float32) for name in "uvw"}
    save_file(tensors | {"bias": np.arange(7, dtype=np.float32)}, "w.safetensors")
    expected = f"expected{target[1:]}"
    convert(make_plan("w.safetensors", expected))
    process, end = start(target, workers), time.monotonic() + 60
    while executed() < 10 and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.002)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL, Path("output").read_text()
    time.sleep(0.3)  # workers of a killed process end when they notice
    assert not any(path for path in content_of(target) if not Path(path).name.startswith("."))
    assert start(target, workers).wait(120) == 0, Path("output").read_text()
    planned = make_plan("w.safetensors", target)
    assert executed() <= planned.count + 2 * workers
    assert content_of(target) == content_of(expected)
    verify(planned)
    assert list(Path().glob(".*")) == []


@pytest.mark.parametrize("moment", ["before", "between", "after"])
@pytest.mark.parametrize("kind", ["safetensors", "folder", "npz", "zarr", "url of a folder", "url of zarr"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_conversion_that_ended_while_files_got_their_names_finishes_that(
    kind: str, moment: str, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = make_plan(kind)
    if is_replaced:  # by a target of other elements, whose files have the same sizes
        save_file({name: np.zeros_like(ARRAYS[name]) for name in KINDS[kind].tensors}, "zeros.safetensors")
        options = {"memory": "40 kB", **KINDS[kind].options}
        convert(plan("zeros.safetensors", KINDS[kind].name, **options))
    commit, replace, count = type(planned.target).commit, Path.replace, 0

    def ending(self: Any, token: str, *, again: bool = False) -> None:
        if moment == "after":
            commit(self, token, again=again)
        raise KeyboardInterrupt

    def replacing(self: Path, to: Path) -> Path:
        nonlocal count
        count += PARTIAL_SUFFIX in f"{self.name} {to.name}"
        if count == 2:
            raise KeyboardInterrupt
        return replace(self, to)

    with monkeypatch.context() as patch:
        if moment == "between":
            patch.setattr(Path, "replace", replacing)
        else:
            patch.setattr(type(planned.target), "commit", ending)
        try:
            convert(planned, overwrite=is_replaced)
        except KeyboardInterrupt:
            pass
        else:
            assert moment == "between"  # there is one file to rename
            return
    assert journal_path(planned.target.last_name).exists()
    monkeypatch.setattr("inlay.storage.task_runner.run_task", lambda *_: pytest.fail("a box is written again"))
    resumed: list[tuple[int, ...]] = []
    convert(planned, overwrite=is_replaced, on_resume=lambda *numbers: resumed.append(numbers))
    assert resumed == [(planned.count, planned.count)]
    verify(planned)
    assert list(Path().glob(".*")) == []


@pytest.mark.parametrize("kind", ["safetensors", "folder", "npz", "zarr", "url"])
@pytest.mark.parametrize("is_graph", [False, True])
def test_boxes_are_on_disk_before_the_journal_says_that_files_get_their_names(
    kind: str, is_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that line, boxes count though the machine was started again."""
    if is_graph:
        pytest.importorskip("dask")
    options = KINDS[kind].options.get("target_options", WriteOptions())
    planned = make_plan(kind, target_options=replace(options, staging=Path() if kind == "url" else None))
    on_disk, checked = set[int](), list[bool]()
    note_commit = Journal.note_commit

    def note(self: Journal, token: str, *, is_going_on: bool) -> None:
        hidden = Path().rglob(f".*.{token}{PARTIAL_SUFFIX}")
        files = [file for each in hidden for file in (each, *each.rglob("*")) if "new-folder" not in file.name]
        checked.append(bool(files) and all(file.stat().st_ino in on_disk for file in files))
        note_commit(self, token, is_going_on=is_going_on)

    for name in ("fsync", "fdatasync"):
        if hasattr(os, name):
            monkeypatch.setattr(os, name, partial(_record_sync, getattr(os, name), on_disk))
    monkeypatch.setattr(Journal, "note_commit", note)
    if is_graph:
        planned.to_dask().compute(scheduler="sync")
    else:
        convert(planned)
    assert checked == [True]
    verify(planned)


def _record_sync(sync: Callable[[int], None], on_disk: set[int], descriptor: int) -> None:
    """Do `sync`, and add the number of the file to `on_disk`."""
    sync(descriptor)
    on_disk.add(os.fstat(descriptor).st_ino)


def test_boxes_of_arrays_that_do_not_reach_the_disk_spoil_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux reports the error once: a later `fsync` succeeds, and the chunk is lost."""
    monkeypatch.setattr(conversion_run, "KEPT_NBYTES", 0)
    planned, resumed = make_plan("zarr"), list[tuple[int, ...]]()

    def refuse(*_: object) -> None:
        raise FileError("cannot write out.zarr: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("inlay.storage.zarr_target._sync_files", refuse)
        with pytest.raises(FileError, match="Input/output error"):
            convert(planned)
    assert list(Path().glob(".*")) == []
    convert(planned, on_resume=lambda *numbers: resumed.append(numbers))
    assert resumed == []
    verify(planned)


def test_two_passes_go_on_in_the_pass_that_they_had_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    zarr = zarr_or_skip()
    monkeypatch.setattr(conversion_run, "KEPT_NBYTES", 0)
    values = numbered((96, 64))
    zarr.create_array("a.zarr", shape=(96, 64), chunks=(2, 64), dtype="f4")[:] = values

    def make() -> ConversionPlan:
        return plan("a.zarr", "b.zarr", ["ba"], chunks=(-1, 2), memory=7000)

    planned = make()
    assert planned.first_pass is not None
    first, second = planned.first_pass.count, planned.count
    with pytest.raises(KeyboardInterrupt):
        convert(make(), interrupt_at(3))
    resumed: list[tuple[int, ...]] = []
    with pytest.raises(KeyboardInterrupt):
        # Boxes that are taken over are heard too: those of the rest of the first pass, and 5 of the second.
        convert(make(), interrupt_at(first + 5), on_resume=lambda *numbers: resumed.append(numbers))
    convert(make(), on_resume=lambda *numbers: resumed.append(numbers))
    assert resumed == [(3, first), (5, second)]
    assert np.array_equal(zarr.open_array("b.zarr")[:], values, equal_nan=True)
    verify(planned)
    assert {path.name for path in Path().iterdir()} == {"a.zarr", "b.zarr"}


def test_graphs_of_dask_do_both_passes_and_scans() -> None:
    zarr = zarr_or_skip()
    pytest.importorskip("dask")
    values = numbered((96, 64))
    zarr.create_array("a.zarr", shape=(96, 64), chunks=(2, 64), dtype="f4")[:] = values
    planned = plan("a.zarr", "b.zarr", ["ba"], chunks=(-1, 2), memory=7000)
    assert planned.first_pass is not None
    assert planned.to_dask().compute(scheduler="sync") == ()
    verify(planned)
    with pytest.raises(FileError, match=r"^cannot write b.zarr: it exists"):
        planned.to_dask().compute(scheduler="sync")
    assert {path.name for path in Path().iterdir()} == {"a.zarr", "b.zarr"}
    assert planned.to_dask(overwrite=True).compute(scheduler="threads") == ()
    verify(planned)
    save_file({"w": np.random.default_rng(0).standard_normal((64, 512), np.float32)}, "w.safetensors")
    scaled = [
        plan("w.safetensors", name, ["ba"], quantize="absmax:1", data_type="s8", memory="50 kB")
        for name in ("expected.safetensors", "q.safetensors")
    ]
    losses = convert(scaled[0])
    assert scaled[1].to_dask().compute(scheduler="threads") == losses
    assert Path("q.safetensors").read_bytes() == Path("expected.safetensors").read_bytes()
    assert {path.name for path in Path().iterdir()} == {
        *("a.zarr", "b.zarr", "w.safetensors", "q.safetensors", "expected.safetensors")
    }


def interrupt_at(count: int) -> Callable[[int], None]:
    """Return a progress function that interrupts after this many boxes."""
    heard = 0

    def progress(_: int) -> None:
        nonlocal heard
        heard += 1
        if heard >= count:
            raise KeyboardInterrupt

    return progress
