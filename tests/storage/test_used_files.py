"""Files that a conversion reads or writes are not written for another purpose."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay.errors import FileError
from inlay.storage import WriteOptions, convert, plan
from inlay.storage.used_files import require_free
from tests.support.refusals import raises_exactly
from tests.support.storage_peers import zarr_or_skip
from tests.support.tensor_files import numbered, run


@pytest.fixture(autouse=True)
def weights(directory: Path) -> Path:
    save_file({"v": numbered((32, 48)), "w": numbered((32, 48))}, "w.safetensors")
    return directory


def test_a_report_is_no_shard_of_source_or_target() -> None:
    options = WriteOptions(shard_nbytes=5000)
    convert(plan("w.safetensors", "a/", target_options=options))
    planned = plan("a/", "b/", ["*=ba"], target_options=options)
    for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json"):
        with raises_exactly(
            FileError, f"cannot write a/{name}: it is the file that is being read; choose another name"
        ):
            require_free(Path("a", name), planned.source, planned.target)
    convert(planned)
    for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json"):
        text = f"cannot write b/{name}: it is the output of the conversion; choose another name"
        with raises_exactly(FileError, text):
            require_free(Path("b", name), planned.source, planned.target)
    require_free(Path("b/report.json"), planned.source, planned.target)


def test_nothing_is_written_into_arrays_that_are_read_or_replaced() -> None:
    zarr_or_skip()
    run("w.safetensors", "a.zarr")
    text = "cannot write a.zarr/b.npz: it is in a.zarr, which is being read; choose another place"
    with raises_exactly(FileError, text):
        plan("a.zarr", "a.zarr/b.npz", ["*=plain"])
    planned = plan("a.zarr", "b.zarr", ["*=ba"])
    text = "cannot write a.zarr/report.json: it is in a.zarr, which is being read; choose another place"
    with raises_exactly(FileError, text):
        require_free(Path("a.zarr/report.json"), planned.source, planned.target)
    convert(planned)
    text = "cannot write b.zarr/report.json: it is the output of the conversion; choose another name"
    with raises_exactly(FileError, text):
        require_free(Path("b.zarr/report.json"), planned.source, planned.target)
    text = "cannot write a.zarr/b.zarr: it is in a.zarr, which is being read; choose another place"
    with raises_exactly(FileError, text):
        plan("a.zarr", "a.zarr/b.zarr")
    text = "cannot write a.zarr: it contains a.zarr/w, which is being read; choose another name"
    with raises_exactly(FileError, text):
        plan("a.zarr/w", "a.zarr", ["ba"])
    Path("c.zarr").mkdir()
    np.save("c.zarr/x.npy", numbered((3, 4)))
    text = "cannot write c.zarr: it contains c.zarr/x.npy, which is being read; choose another name"
    with raises_exactly(FileError, text):
        plan("c.zarr/x.npy", "c.zarr", ["ba"])


def test_nothing_is_written_into_arrays_at_a_url_that_are_read_or_replaced() -> None:
    zarr_or_skip()
    fsspec = pytest.importorskip("fsspec")
    url = "memory://used"
    run("w.safetensors", f"{url}/a.zarr")
    run("w.safetensors", f"{url}/x.zarr/w.safetensors")
    run("w.safetensors", f"{url}/y.zarr/w.zarr")
    place, name = "which is being read; choose another place", "which is being read; choose another name"
    for source, target, text in (
        ("a.zarr", "a.zarr/", "it is the URL that is being read; choose another name"),
        ("a.zarr", "a.zarr/b.zarr", f"it is in {url}/a.zarr, {place}"),
        ("a.zarr", "a.zarr/b.npz", f"it is in {url}/a.zarr, {place}"),
        ("y.zarr/w.zarr", "y.zarr", f"it contains {url}/y.zarr/w.zarr, {name}"),
        ("x.zarr/w.safetensors", "x.zarr", f"it contains {url}/x.zarr/w.safetensors, {name}"),
    ):
        with raises_exactly(FileError, f"cannot write {url}/{target}: {text}"):
            plan(f"{url}/{source}", f"{url}/{target}", ["*=plain"])
    text = "cannot write memory:///used/x.zarr/w.safetensors: it is the URL that is being read; choose another name"
    with raises_exactly(FileError, text):
        plan(f"{url}/x.zarr/w.safetensors", "memory:///used/x.zarr/w.safetensors")
    plan(f"{url}/a.zarr", f"{url}/a.zarr.npz", ["*=plain"])
    fsspec.filesystem("memory").rm("/used", recursive=True)
