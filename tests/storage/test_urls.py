"""URLs: read by ranges, written by staging and upload; in memory, as local files, and in an object store."""

import pickle
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import external_data_helper, helper, numpy_helper
from safetensors.numpy import load_file, save_file

from inlay.errors import FileError, MissingExtra
from inlay.storage import convert, open_memories, open_store, plan
from inlay.storage.formats import open_written
from inlay.storage.locations import UrlPath
from inlay.storage.options import OpenOptions, WriteOptions
from inlay.storage.upload import UploadTarget
from tests.support.refusals import raises_exactly
from tests.support.stored_arrays import Arrays, arrays, assert_holds, run_with, save_npz, write_checkpoint
from tests.support.tensor_files import numbered, run

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")

OPTIONS = {"endpoint_url": "", "key": "key", "secret": "secret"}
"""Options of the file system of the object store; the fixture sets the address of the server."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An object store in this process; returns its address."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    threaded = pytest.importorskip("moto.server", reason="moto is not installed")
    running = threaded.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.heavy)])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty folder."""
    if request.param == "memory":
        fsspec.filesystem("memory").rm("/", recursive=True)
        return "memory://folder"
    monkeypatch.setitem(OPTIONS, "endpoint_url", request.getfixturevalue("server"))
    file_system = fsspec.filesystem("s3", **OPTIONS)
    if file_system.exists("bucket"):
        file_system.rm("bucket", recursive=True)
    file_system.mkdir("bucket")
    file_system.invalidate_cache()
    return "s3://bucket/folder"


def storage_options(url: str) -> dict[str, Any]:
    return OPTIONS if url.startswith("s3") else {}


def put(path: str, url: str) -> None:
    """Upload a file by fsspec."""
    file_system, remote = fsspec.core.url_to_fs(url, **storage_options(url))
    file_system.put_file(path, remote)


def get(url: str, path: str) -> None:
    """Download a file by fsspec."""
    file_system, remote = fsspec.core.url_to_fs(url, **storage_options(url))
    file_system.get_file(remote, path)


def names_at(url: str) -> list[str]:
    file_system, remote = fsspec.core.url_to_fs(url, **storage_options(url))
    file_system.invalidate_cache()
    return sorted(name.rpartition("/")[2] for name in file_system.ls(remote, detail=False))


def shard_names(count: int) -> list[str]:
    """The names of shards, and that of their index."""
    shards = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    return [*shards, "model.safetensors.index.json"]


def go(source: str, target: str, *to: str, read: OpenOptions | None = None, **write: Any) -> None:
    """Convert with the options of the file systems."""
    described = read or OpenOptions()
    reading = OpenOptions(described.dims, described.data_type, described.offset, storage_options(source))
    run_with(source, target, *to, read=reading, write=WriteOptions(storage_options=storage_options(target), **write))


def write_onnx(given: Arrays) -> None:
    protos = [numpy_helper.from_array(array, name) for name, array in given.items()]
    Path("weights.data").write_bytes(protos[0].raw_data)
    external_data_helper.set_external_data(protos[0], "weights.data", 0, len(protos[0].raw_data))
    protos[0].ClearField("raw_data")
    Path("in.onnx").write_bytes(helper.make_model(helper.make_graph([], "g", [], [], protos)).SerializeToString())


def test_every_format_is_read(url: str) -> None:
    save_file(arrays(), "in.safetensors")
    save_npz("in.npz", arrays())
    save_npz("small.npz", arrays(), is_compressed=True)
    write_onnx(arrays())
    for name in ("in.safetensors", "in.npz", "small.npz", "in.onnx", "weights.data"):
        put(name, f"{url}/{name}")
    for name in ("in.safetensors", "in.npz", "small.npz", "in.onnx"):
        go(f"{url}/{name}", "out.safetensors")
        assert_holds("out.safetensors", arrays())
    np.save("in.npy", numbered((33, 17)))
    put("in.npy", f"{url}/in.npy")
    go(f"{url}/in.npy", "out.npy", "plain")
    assert Path("out.npy").read_bytes() == Path("in.npy").read_bytes()
    numbered((33, 17)).tofile("in.raw")
    put("in.raw", f"{url}/in.raw")
    go(f"{url}/in.raw", "out.npy", read=OpenOptions((33, 17), "f32"))
    assert Path("out.npy").read_bytes() == Path("in.npy").read_bytes()


def test_checkpoints_are_read_by_index_and_by_folder(url: str) -> None:
    items = list(arrays().items())
    write_checkpoint("in", [dict(items[:2]), dict(items[2:])])
    for path in Path("in").iterdir():
        put(str(path), f"{url}/in/{path.name}")
    for source in ("in/", "in", "in/model.safetensors.index.json"):
        go(f"{url}/{source}", "out.safetensors")
        assert_holds("out.safetensors", arrays())


def test_targets_are_uploaded_and_nothing_remains_here(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    staging = tmp_path / "temporary"
    staging.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(staging))
    save_file(arrays(), "in.safetensors")
    go("in.safetensors", f"{url}/out.npz")
    get(f"{url}/out.npz", "out.npz")
    run("out.npz", "out.safetensors")
    assert_holds("out.safetensors", arrays())
    go("in.safetensors", f"{url}/sharded/", "*weight=aB16b", shard_nbytes=2000)
    assert names_at(f"{url}/sharded") == shard_names(3)
    put("in.safetensors", f"{url}/sharded/model.safetensors")
    end = "which readers of checkpoints prefer to an index; remove it, or choose another folder"
    index = f"{url}/sharded/model.safetensors.index.json"
    with raises_exactly(FileError, f"cannot write {index}: its folder holds model.safetensors, {end}"):
        go("in.safetensors", f"{url}/sharded/", shard_nbytes=2000)
    go(index, f"{url}/back.safetensors", "plain")
    get(f"{url}/back.safetensors", "back.safetensors")
    assert_holds("back.safetensors", arrays())
    assert list(staging.iterdir()) == []


def test_a_transposed_array_is_read_in_few_requests(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("in.npy", numbered((200, 300)))
    put("in.npy", f"{url}/in.npy")
    ranges = list[tuple[int, int]]()
    read_range = UrlPath.read_range

    def record(self: UrlPath, begin: int, end: int) -> bytes:
        ranges.append((begin, end))
        return read_range(self, begin, end)

    monkeypatch.setattr(UrlPath, "read_range", record)
    options = OpenOptions(storage_options=storage_options(url))
    made = plan(f"{url}/in.npy", "out.safetensors", ["ba"], memory=100_000, source_options=options)
    assert made.count > 2
    ranges.clear()
    convert(pickle.loads(pickle.dumps(made)))
    assert len(ranges) <= 4 * made.count
    assert open_memories("out.safetensors")["in"].unpack().tobytes() == numbered((200, 300)).tobytes()


def test_whole_files_are_read_in_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).integers(0, 255, 3_000_000, np.uint8)
    save_npz("in.npz", {"w": array}, is_compressed=True)
    write_onnx({"a": np.zeros(3), "w": array})
    count, read_range = [0], UrlPath.read_range

    def record(self: UrlPath, begin: int, end: int) -> bytes:
        count[0] += 1
        return read_range(self, begin, end)

    for name in ("in.npz", "in.onnx", "weights.data"):
        put(name, f"memory://folder/{name}")
    monkeypatch.setattr(UrlPath, "read_range", record)
    for name in ("in.npz", "in.onnx"):
        count[0] = 0
        go(f"memory://folder/{name}", "out.safetensors", "w=plain")
        assert load_file("out.safetensors")["w"].tobytes() == array.tobytes()
        assert count[0] < 12


def test_a_source_that_changes_is_refused(url: str) -> None:
    np.save("in.npy", numbered((20, 30)))
    put("in.npy", f"{url}/in.npy")
    made = plan(f"{url}/in.npy", "out.npy", source_options=OpenOptions(storage_options=storage_options(url)))
    np.save("in.npy", numbered((20, 30))[::-1])
    put("in.npy", f"{url}/in.npy")
    with raises_exactly(FileError, f"cannot read {url}/in.npy: it changed while it was being read; try again"):
        convert(made)
    assert not Path("out.npy").exists()


def test_files_that_are_missing_or_damaged_are_named(url: str) -> None:
    options = OpenOptions(storage_options=storage_options(url))
    for name in ("a.npy", "a.npz", "a.safetensors", "a.onnx", "model.safetensors.index.json", "a.bin"):
        with raises_exactly(FileError, f"cannot read {url}/{name}: there is no such file; check the name"):
            open_store(f"{url}/{name}", options)
    save_file(arrays(), "in.safetensors")
    content = Path("in.safetensors").read_bytes()
    for size in (0, 5, 100, len(content) - 1):
        Path("cut").write_bytes(content[:size])
        put("cut", f"{url}/cut.safetensors")
        text = "it is truncated or not a safetensors file; copy it again from its source"
        with raises_exactly(FileError, f"cannot read {url}/cut.safetensors: {text}"):
            open_store(f"{url}/cut.safetensors", options)


def test_an_upload_that_fails_is_repeated_and_the_index_comes_last(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save_file(arrays(), "in.safetensors")
    write = WriteOptions(2000, tmp_path, storage_options(url))
    made = plan("in.safetensors", f"{url}/out/", target_options=write)
    target = made.target
    assert isinstance(target, UploadTarget)
    target.create("t")
    with made.source.open() as reader, target.open("t") as writer:
        for task in made.tasks():
            each = made.tensors[task.tensor]
            each.operation.apply(reader.read_box(each.tensor, each.src, task.box), task.box, writer)
    assert target.find_existing() is None
    file_system, _ = fsspec.core.url_to_fs(url, **storage_options(url))
    put_file, sent = file_system.put_file, list[str]()

    def fail_once(path: str, remote: str) -> None:
        sent.append(Path(remote).name)
        if len(sent) == 2:
            raise ConnectionResetError("the connection broke")
        put_file(path, remote)

    monkeypatch.setattr(file_system, "put_file", fail_once)
    first, second, third, index = shard_names(3)
    reason = "the connection broke; check the name, the connection and the credentials"
    with raises_exactly(FileError, f"cannot write {url}/out/{second}: {reason}"):
        target.commit("t")
    assert target.is_whole("t")
    target.commit("t")
    assert sent == [first, second, second, third, index]
    assert target.find_existing() is not None
    assert sorted(
        tensor.name for tensor in open_written(target, [each.new for each in made.tensors]).tensors
    ) == sorted(arrays())
    go(f"{url}/out", "out.safetensors")
    assert_holds("out.safetensors", arrays())
    assert [path.name for path in tmp_path.iterdir() if "staging" in path.name] == []


def test_staging_is_private_and_is_removed_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(arrays(), "in.safetensors")
    made = plan("in.safetensors", "memory://x/out.safetensors", target_options=WriteOptions(staging=tmp_path))
    assert isinstance(made.target, UploadTarget)
    made.target.create("t")
    folders = [path for path in tmp_path.rglob("*") if path.is_dir() and path.name != "temporary"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in folders)
    assert len(folders) == 2
    made.target.discard("t")
    assert not any(path.exists() for path in folders)
    monkeypatch.setattr("os.getuid", lambda: -7)
    text = f"{made.target.path.parent.parent}: it belongs to another user; name another one (--staging)"
    with raises_exactly(FileError, f"cannot write to the staging folder {text}"):
        made.target.create("t")


def test_file_urls_are_paths() -> None:
    np.save("in.npy", numbered((3, 5)))
    folder = f"file://{Path.cwd()}"
    run(f"{folder}/in.npy", f"{folder}/out.npy")
    assert Path("out.npy").read_bytes() == Path("in.npy").read_bytes()
    assert open_store(f"{folder}/in.npy").location == f"{Path.cwd()}/in.npy"


def test_mistakes_with_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("in.npy", numbered((3, 5)))
    run("in.npy", "memory://x/in.npy")
    text = "it is the URL that is being read; choose another name"
    with raises_exactly(FileError, f"cannot write memory://x/in.npy: {text}"):
        plan("memory://x/in.npy", "memory://x/in.npy")
    text = "only files of this machine are mapped; download it first"
    with raises_exactly(FileError, f"cannot map memory://x/in.npy: {text}"):
        open_memories("memory://x/in.npy")
    text = "fsspec knows no such protocol; use a path, file://, s3://, gs://, https:// or another of fsspec's"
    with raises_exactly(FileError, f"cannot open nowhere://x/in.npy: {text}"):
        open_store("nowhere://x/in.npy")
    said = "Install nowherefs to access nowhere"
    fsspec.register_implementation("absent", "nowherefs.FileSystem", clobber=True, errtxt=said)
    text = f"absent://x/in.npy needs a package that is not installed ({said}): pip install nowherefs"
    with raises_exactly(MissingExtra, text):
        open_store("absent://x/in.npy")
    missing = tmp_path / "missing"
    text = f"the staging folder {missing} does not exist; create it first"
    with raises_exactly(FileError, f"cannot write memory://x/out.npy: {text}"):
        plan("in.npy", "memory://x/out.npy", target_options=WriteOptions(staging=missing))
    monkeypatch.setitem(sys.modules, "fsspec", None)
    text = "memory://x/in.npy needs fsspec, which is not installed: pip install 'inlay[storage]'"
    with raises_exactly(MissingExtra, text):
        open_store("memory://x/in.npy")


def test_passwords_and_signatures_are_not_printed() -> None:
    assert str(UrlPath("sftp://user:secret@host/a.npy")) == "sftp://user:***@host/a.npy"
    assert str(UrlPath("https://host/a.npy?signature=secret")) == "https://host/a.npy"
    assert UrlPath("https://host/a.npy?x=y/z").name == "a.npy"
    assert UrlPath("memory://a.npy").parent / "b.npy" == UrlPath("memory://b.npy")
    assert UrlPath("s3://bucket/x/a.npy").parent / "b.npy" == UrlPath("s3://bucket/x/b.npy")
