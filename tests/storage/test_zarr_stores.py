"""Conversions from and to Zarr stores: zarr-python reads what was written, and its arrays are converted bit for bit."""

import json
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from inlay.errors import FileError, InvalidArguments
from inlay.memory import pack
from inlay.storage import convert, open_store, plan
from inlay.storage.box import Box, iterate_boxes
from inlay.storage.chunk_files import chunk_part, covered_chunks, read_part
from inlay.storage.store import row_major
from inlay.storage.target import NewTensor
from inlay.storage.zarr_target import ChunkWriter, ZarrTarget, zarr_target
from tests.support.refusals import raises_exactly
from tests.support.storage_peers import zarr_or_skip
from tests.support.tensor_files import Array, numbered, run


@pytest.fixture(autouse=True)
def zarr() -> Any:
    return zarr_or_skip()


def array(path: str, values: Array, chunks: tuple[int, ...], **options: Any) -> Any:
    made = zarr_or_skip().create_array(path, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)
    made[...] = values
    return made


def elements(path: str, name: str = "") -> Array:
    return np.asarray(zarr_or_skip().open_array(path, path=name, mode="r")[...])


def same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("compressors", [None, "auto"], ids=["plain", "zstd"])
@pytest.mark.parametrize("to", ["plain", "ba", "aB16b", "BA4b4a", "(a a4) b -> b a a4"])
@pytest.mark.parametrize("chunks", [(7, 40), (33, 5), (16, 16), (100, 100)])
def test_arrays_are_converted_to_any_format_and_back(
    chunks: tuple[int, int], to: str, compressors: str | None, zarr: Any
) -> None:
    values = numbered((33, 40))
    array("a.zarr", values, (10, 9), compressors=compressors, attributes={"k": [1]}, dimension_names=["x", "y"])
    run("a.zarr", "b.zarr", to, chunks=chunks)
    made = zarr.open_array("b.zarr", mode="r")
    assert made.chunks == chunks
    assert (dict(made.attrs), made.metadata.dimension_names) == ({"k": [1]}, ("x", "y"))
    assert len(made.compressors) == (compressors is not None)
    assert same(elements("b.zarr"), values)
    run("b.zarr", "c.npy", "plain")
    assert same(np.load("c.npy"), values)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.float64, np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
)
def test_types_are_kept(dtype: Any) -> None:
    values = (np.arange(66).reshape(6, 11) % 2).astype(dtype)
    array("a.zarr", values, (4, 4))
    run("a.zarr", "b.zarr", "ba", chunks=(3, 11))
    assert same(elements("b.zarr"), values)


def test_big_endian_sharded_and_old_arrays_are_read(zarr: Any) -> None:
    values = numbered((20, 30))
    array("a.zarr", values, (5, 5), shards=(10, 10))
    array("b.zarr", values, (5, 5), serializer=zarr.codecs.BytesCodec(endian="big"), compressors=None)
    array("c.zarr", values, (5, 5), zarr_format=2)
    array("d.zarr", values, (5, 5), filters=[zarr.codecs.TransposeCodec(order=(1, 0))], compressors=None)
    for source in ("a.zarr", "b.zarr", "c.zarr", "d.zarr"):
        run(source, "o.npy", "plain")
        assert same(np.load("o.npy"), values)


def test_a_group_is_a_store_of_named_tensors(zarr: Any) -> None:
    group = zarr.create_group("a.zarr", attributes={"author": "x", "year": 7, "axes": ["a", None]})
    values = {"w": numbered((20, 30)), "deep/b": numbered((7,), np.int16), "deep/scalar": numbered((), np.float64)}
    for name, each in values.items():
        group.create_array(name, shape=each.shape, chunks=tuple(max(n // 2, 1) for n in each.shape), dtype=each.dtype)[
            ...
        ] = each
    store = open_store("a.zarr")
    assert [tensor.name for tensor in store.tensors] == ["deep/b", "deep/scalar", "w"]
    assert dict(store.metadata) == {"author": "x", "year": "7", "axes": '["a", null]'}
    run("a.zarr", "b.zarr", "w=aB16b")
    run("b.zarr", "c.zarr", "w=plain")
    assert {name: same(elements("c.zarr", name), each) for name, each in values.items()} == dict.fromkeys(values, True)
    assert dict(zarr.open_group("c.zarr").attrs) == {"author": "x", "year": 7, "axes": ["a", None]}


def test_a_scalar_of_a_checkpoint_is_stored(zarr: Any) -> None:
    save_file({"w": numbered((4, 4)), "n": np.array(7, np.int64)}, "a.safetensors")
    run("a.safetensors", "b.zarr", "w=ba")
    assert same(elements("b.zarr", "n"), np.array(7, np.int64))


def test_formats_of_packed_tensors_are_kept_by_the_codec(zarr: Any) -> None:
    values = numbered((32, 48))
    save_file({"w": values}, "a.safetensors")
    run("a.safetensors", "p.safetensors", "BA16b4a")
    run("p.safetensors", "p.zarr")
    assert zarr.open_array("p.zarr", path="w").metadata.to_dict()["codecs"][0]["configuration"] == {"tag": "BA16b4a"}
    run("p.zarr", "q.safetensors")
    assert Path("q.safetensors").read_bytes() == Path("p.safetensors").read_bytes()
    run("p.zarr", "b.safetensors", "plain")
    assert same(load_file("b.safetensors")["w"], values)


def test_chunks_have_the_bytes_of_the_format() -> None:
    values = numbered((20, 32))
    array("a.zarr", values, (20, 32), compressors=None)
    run("a.zarr", "b.zarr", "aB16b", chunks=(8, 16))
    edge = np.zeros((8, 16), np.float32)
    edge[:4] = values[16:, 16:]
    assert Path("b.zarr/c/2/1").read_bytes() == pack(edge, "aB16b").buffer.tobytes()
    assert Path("b.zarr/c/0/1").read_bytes() == pack(values[:8, 16:], "aB16b").buffer.tobytes()


def test_blocks_that_do_not_divide_a_chunk_pad_each_chunk() -> None:
    values = numbered((20, 32))
    array("a.zarr", values, (20, 32), compressors=None)
    run("a.zarr", "b.zarr", "aB16b", chunks=(8, 20))
    assert Path("b.zarr/c/0/0").read_bytes() == pack(values[:8, :20], "aB16b").buffer.tobytes()
    assert same(elements("b.zarr"), values)


def test_missing_chunks_are_the_fill_value(zarr: Any) -> None:
    made = zarr.create_array("a.zarr", shape=(9, 9), chunks=(4, 4), dtype="int32", fill_value=7, compressors=None)
    made[:4, :4] = 1
    expected = np.full((9, 9), 7, np.int32)
    expected[:4, :4] = 1
    run("a.zarr", "b.zarr", "ba", chunks=(3, 3))
    assert same(elements("b.zarr"), expected)
    assert zarr.open_array("b.zarr").fill_value == 7


def test_memory_in_a_format_is_read_by_its_tag(zarr: Any) -> None:
    values = numbered((48, 20))
    array("a.zarr", values.T.copy(), (6, 16))
    run("a.zarr", "b.npy", "plain", from_=["ba"])
    assert same(np.load("b.npy"), values)
    packed = pack(values, "aB8b").physical()
    array("p.zarr", packed.copy(), (7, 2, 8))
    run("p.zarr", "c.npy", "plain", from_=["aB8b"], dims=(48, 20))
    assert same(np.load("c.npy"), values)
    run("p.zarr", "d.zarr", "plain", from_=["aB8b"], dims=(48, 20), chunks=(10, 10))
    assert same(elements("d.zarr"), values)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_arrays_without_elements(shape: tuple[int, int]) -> None:
    array("a.zarr", np.empty(shape, np.float32), (2, 2))
    run("a.zarr", "b.zarr", "ba")
    assert same(elements("b.zarr"), np.empty(shape, np.float32))


def test_a_new_array_has_long_chunks_of_whole_blocks(zarr: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from inlay.storage import zarr_target as module

    monkeypatch.setattr(module, "CHUNK_NBYTES", 256)
    np.save("a.npy", numbered((100, 100)))
    run("a.npy", "b.zarr", "plain")
    run("a.npy", "c.zarr", "bA16a")
    assert zarr.open_array("b.zarr").chunks == (1, 64)
    assert zarr.open_array("c.zarr").chunks == (64, 1)


def test_the_target_is_replaced_at_the_end_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = numbered((8, 8)), numbered((4, 4))
    array("a.zarr", new, (2, 2))
    array("b.zarr", old, (3, 3))
    planned = plan("a.zarr", "b.zarr", ["ba"])
    with monkeypatch.context() as patch:
        patch.setattr("inlay.storage.zarr_target.write_chunk", _full_disk)
        patch.setattr("inlay.storage.zarr_target.ChunkWriter._write_by_zarr", _full_disk)
        with pytest.raises(FileError):
            convert(planned, overwrite=True)
    assert same(elements("b.zarr"), old)
    assert sorted(path.name for path in Path().iterdir()) == ["a.zarr", "b.zarr"]
    convert(planned, overwrite=True)
    assert same(elements("b.zarr"), new)
    assert sorted(path.name for path in Path().iterdir()) == ["a.zarr", "b.zarr"]


@pytest.mark.parametrize("is_committed_again", [True, False])
def test_a_replacement_that_was_interrupted_between_its_renames_is_completed_or_undone(
    is_committed_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr_or_skip()
    old, new = numbered((8, 8)), numbered((4, 4))
    array("a.zarr", new, (2, 2))
    array("b.zarr", old, (3, 3))
    target = plan("a.zarr", "b.zarr", ["ba"]).target
    target.create("0123")
    replace = Path.replace

    def interrupted(self: Path, to: Path) -> Path:
        if self.name.endswith(".inlay.partial"):
            raise KeyboardInterrupt
        return replace(self, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            target.commit("0123")
    assert not Path("b.zarr").exists()
    if is_committed_again:
        assert target.is_whole("0123")
        target.commit("0123")
        assert elements("b.zarr").shape == (4, 4)
    else:
        target.discard("0123")
        assert same(elements("b.zarr"), old)
    assert sorted(path.name for path in Path().iterdir()) == ["a.zarr", "b.zarr"]


@pytest.mark.parametrize("is_dangling", [False, True])
def test_of_a_link_to_a_store_the_link_is_replaced(is_dangling: bool) -> None:
    old, new = numbered((8, 8)), numbered((4, 4))
    array("a.zarr", new, (2, 2))
    if not is_dangling:
        array("old", old, (3, 3))
    Path("b.zarr").symlink_to("old")
    with pytest.raises(FileError, match=r"^cannot write b.zarr: it exists"):
        convert(plan("a.zarr", "b.zarr", ["ba"]))
    convert(plan("a.zarr", "b.zarr", ["ba"]), overwrite=True)
    assert same(elements("b.zarr"), new)
    assert is_dangling or same(elements("old"), old)
    assert sorted(path.name for path in Path().iterdir()) == ["a.zarr", "b.zarr", "old"][: 3 - is_dangling]


def test_a_store_under_a_url_that_is_replaced_is_no_array_with_missing_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name, count in (("a.zarr", 4), ("b.zarr", 8)):
        array(name, numbered((count, count)), (2, 2))
    location = "memory://replaced/b.zarr"
    run("b.zarr", location)

    def interrupted(path: str, **_: object) -> None:
        memory.rm_file(next(name for name in memory.find(path) if "/c/" in name))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(memory, "rm", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert(plan("a.zarr", location), overwrite=True)
    with pytest.raises(FileError):
        open_store(location)
    convert(plan("a.zarr", location), overwrite=True)
    assert same(elements(location), numbered((4, 4)))
    memory.rm("/replaced", recursive=True)


def test_a_chunk_that_changes_during_a_conversion_is_noticed() -> None:
    array("a.zarr", numbered((8, 8)), (2, 2), compressors=None)

    def change(_: int) -> None:
        Path("a.zarr/c/0/0").write_bytes(b"\1" * 16)

    with raises_exactly(FileError, "cannot read a.zarr: it changed while it was being read; try again"):
        convert(plan("a.zarr", "b.zarr", ["ba"]), change)
    assert [path.name for path in Path().iterdir()] == ["a.zarr"]


def test_a_file_is_written_to_disk_though_another_thread_adds_it_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    array("a.zarr", numbered((4, 4)), (2, 2))
    target = plan("a.zarr", "b.zarr", ["ba"]).target
    assert isinstance(target, ZarrTarget)
    target.create("t")
    writer = ChunkWriter(target.partial("t"), None, target.arrays[0])
    written, synced = writer._written, list[Path]()
    monkeypatch.setattr("inlay.storage.zarr_target._sync_files", synced.extend)
    written.append(Path("x/0"))
    writer.sync()
    written.append(Path("x/1"))  # a thread looked the list up before, and appends now
    writer.sync()
    assert {Path("x/0"), Path("x/1")} <= set(synced)
    target.discard("t")


def _full_disk(*_: object) -> None:
    raise FileError("the disk is full")


def test_a_source_that_changes_is_noticed() -> None:
    array("a.zarr", numbered((8, 8)), (4, 4))
    store = open_store("a.zarr")
    version = store.version
    with store.open() as reader:
        tensor = store.tensors[0]
        assert tensor.desc is not None
        reader.read_box(tensor, tensor.desc, Box((0, 0), (2, 2)))
        reader.require_unchanged()
        reader.read_box(tensor, tensor.desc, Box((0, 0), (2, 2)))
        text = Path("a.zarr/zarr.json").read_text()
        Path("a.zarr/zarr.json").write_text(text + " ")
        with raises_exactly(FileError, "cannot read a.zarr/zarr.json: it changed while it was being read; try again"):
            reader.require_unchanged()
    assert store.version != version
    Path("a.zarr/zarr.json").write_text(text)
    array("b.zarr", numbered((8, 8)), (4, 4), compressors=None)
    store = open_store("b.zarr")
    version = store.version
    Path("b.zarr/c/1/1").write_bytes(bytes(80))
    assert store.version != version


def test_stores_and_targets_are_values() -> None:
    array("a.zarr", numbered((8, 8)), (4, 4))
    planned = plan("a.zarr", "b.zarr", ["ba"], chunks=(8, 2), memory="2kB")
    assert pickle.loads(pickle.dumps(planned)) == planned
    planned.target.create("t")
    assert planned.target.is_whole("t")
    assert not planned.target.is_whole("other")
    copy = pickle.loads(pickle.dumps(planned))
    tasks = list(copy.tasks())
    for task in tasks:  # each as in a process of its own
        with copy.source.open() as reader, copy.target.open("t") as writer:
            each = copy.tensors[task.tensor]
            each.operation.apply(reader.read_box(each.tensor, each.src, task.box), task.box, writer)
            writer.sync()
    copy.target.commit("t")
    assert same(elements("b.zarr"), elements("a.zarr"))


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_stores_under_urls(scheme: str, tmp_path: Path, zarr: Any) -> None:
    pytest.importorskip("fsspec")
    values = numbered((20, 30))
    np.save("a.npy", values)
    root = f"memory://{tmp_path.name}" if scheme == "memory" else f"file://{tmp_path}"
    run("a.npy", f"{root}/b.zarr", "aB16b", chunks=(7, 16))
    run(f"{root}/b.zarr", f"{root}/c.zarr", "ba", chunks=(20, 3), memory="3kB")
    assert same(np.asarray(zarr.open_array(f"{root}/c.zarr")[:]), values)
    run(f"{root}/c.zarr", f"{root}/b.zarr", "plain")
    run(f"{root}/b.zarr", "d.npy", "plain")
    assert same(np.load("d.npy"), values)


@pytest.mark.parametrize(("layout", "chunks"), [("ab", (5, 7)), ("ba", (5, 7)), ("aB4b", (5, 8))])
def test_parts_of_a_chunk_file_are_read(layout: str, chunks: tuple[int, int]) -> None:
    values = numbered((20, 16))
    part_of = pack(values[: chunks[0], : chunks[1]], layout)
    Path("chunk").write_bytes(part_of.buffer.tobytes())
    for box in [*iterate_boxes(chunks, (2, 3)), Box((0, 0), chunks), Box((1, 1), (4, 7))]:
        for out in (np.empty(box.dims, np.float32), np.empty((9, 9), np.float32)[: box.dims[0], : box.dims[1]]):
            assert read_part(Path("chunk"), part_of.desc, box, out)
            assert out.tobytes() == values[box.slices].tobytes()
    assert not read_part(Path("none"), part_of.desc, Box((0, 0), chunks), np.empty(chunks, np.float32))


def test_chunks_of_a_box_cover_it() -> None:
    box, seen = Box((3, 2), (11, 9)), np.zeros((8, 7), int)
    for i in covered_chunks((4, 5), box)[0]:
        for j in covered_chunks((4, 5), box)[1]:
            part, place = chunk_part((4, 5), (i, j), box)
            assert seen[place].shape == part.dims
            seen[place] += 1
    assert (seen == 1).all()


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"target": "b.npy", "chunks": (2, 2)},
        InvalidArguments,
        "chunks are for Zarr stores: name a target that ends in .zarr, or leave them out (--chunks)",
    ),
    (
        {"chunks": (2,)},
        InvalidArguments,
        "chunks (2,) do not fit tensor a of dims (8, 8): give one number for each of its dims, and name the "
        "tensors they are for, as in 'conv*=1,256,256'",
    ),
    (
        {"chunks": ["x=2,2"]},
        InvalidArguments,
        "no tensor of a.zarr matches 'x' of the chunks",
    ),
    (
        {"chunks": ["2,0"]},
        InvalidArguments,
        "'2,0' does not state chunks: write an extent for each dim, -1 for a whole one, as in 1,256,256, for some "
        "tensors after their name, as in 'conv*=1,256,256'",
    ),
    (
        {"memory": 100},
        InvalidArguments,
        "a box (4, 4) of a tensor (8, 8) takes 192 bytes with the chunks that it touches, and 100 are allowed: "
        "allow more (--memory), or choose smaller chunks (--chunks)",
    ),
    ({"source": "no.zarr"}, FileError, "cannot read no.zarr: there is no such file; check the name"),
    (
        {"source": "empty.zarr"},
        FileError,
        "cannot read empty.zarr: it has no zarr.json, so it is no Zarr store; name a directory that has one",
    ),
    (
        {"data_type": "s4", "target": "c.zarr"},
        FileError,
        "cannot write c.zarr: Zarr has no data type s4; convert it (--dtype)",
    ),
]


@pytest.mark.parametrize(("arguments", "error", "text"), MISTAKES, ids=lambda value: str(value)[:40])
def test_mistakes(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    array("a.zarr", numbered((8, 8), np.float32), (4, 4), compressors=None)
    Path("empty.zarr").mkdir()
    call = {"source": "a.zarr", "target": "b.zarr", "to": ["ba"], **arguments}
    with raises_exactly(error, text):
        plan(**call)


@pytest.mark.parametrize("name", ["", "a//b", "a/../b", "__a", "a/zarr.json"])
def test_names_that_no_zarr_array_has(name: str) -> None:
    desc = row_major((2,), "f32")
    with pytest.raises(InvalidArguments, match=r"^b\.zarr cannot hold tensor"):
        zarr_target("b.zarr", [NewTensor(name, (2,), desc, desc)], {})


def test_an_array_in_another_is_refused() -> None:
    desc = row_major((2,), "f32")
    with raises_exactly(
        InvalidArguments,
        "b.zarr cannot hold tensors 'a' and 'a/b': an array contains no other arrays; rename one",
    ):
        zarr_target("b.zarr", [NewTensor(name, (2,), desc, desc) for name in ("a", "a/b")], {})


def test_damaged_stores_are_refused() -> None:
    array("a.zarr", numbered((8, 8)), (4, 4))
    text = Path("a.zarr/zarr.json").read_text()
    metadata = json.loads(text)
    hostile = [
        {"shape": [-8, 8]},
        {"data_type": "float3"},
        {"codecs": []},
        {"chunk_grid": {"name": "x"}},
        {"shape": [8]},
    ]
    for bad in ("{", "[]", *(json.dumps(metadata | change) for change in hostile)):
        Path("a.zarr/zarr.json").write_text(bad)
        with pytest.raises(FileError, match=r"^cannot read a\.zarr: "):
            open_store("a.zarr")
    Path("a.zarr/zarr.json").write_text(text)
    Path("a.zarr/c/0/0").write_bytes(b"no zstd")
    with pytest.raises(FileError, match=r"^cannot read a\.zarr: "):
        run("a.zarr", "b.npy", "plain")
    array("c.zarr", numbered((8, 8)), (4, 4), compressors=None)
    Path("c.zarr/c/0/0").write_bytes(b"short")
    with raises_exactly(FileError, "cannot read c.zarr/c/0/0: the chunk ends after 5 bytes; it is damaged"):
        run("c.zarr", "b.npy", "plain")


def test_what_a_target_would_replace(tmp_path: Path) -> None:
    desc = row_major((2,), "f32")
    for location in ("b.zarr", f"memory://{tmp_path.name}/e.zarr"):
        target = zarr_target(location, [NewTensor("w", (2,), desc, desc)], {})
        assert target.find_existing() is None
        target.create("t")
        target.commit("t")
        assert target.find_existing() == location
        target.create("t")
        target.discard("t")
        assert not target.is_whole("t")
