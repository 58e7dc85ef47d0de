"""Sharded checkpoints: read by index and by folder, written for transformers; indexes that state what is not so."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from inlay.errors import FileError, InvalidArguments
from inlay.storage import convert, open_store, plan
from inlay.storage.conversion_run import open_journal
from inlay.storage.file_target import FileTarget
from inlay.storage.options import WriteOptions
from tests.support.refusals import raises_exactly
from tests.support.stored_arrays import Arrays, arrays, assert_equal, assert_holds, run_with, write_checkpoint
from tests.support.tensor_files import numbered, run

INDEX = "model.safetensors.index.json"


def load_checkpoint(folder: str) -> Arrays:
    """Read a checkpoint as its format defines it: the shard of each tensor by the index."""
    places = json.loads((Path(folder) / INDEX).read_text())["weight_map"]
    shards = {name: load_file(Path(folder) / name) for name in set(places.values())}
    return {name: shards[shard][name] for name, shard in places.items()}


def halves() -> list[Arrays]:
    items = list(arrays().items())
    return [dict(items[:2]), dict(items[2:])]


@pytest.mark.parametrize("source", ["in", "in/", f"in/{INDEX}", "file://{}/in"])
def test_a_checkpoint_is_read_by_its_index_and_by_its_folder(source: str) -> None:
    write_checkpoint("in", halves())
    run(source.format(Path.cwd()), "out.safetensors")
    assert_holds("out.safetensors", arrays())


def test_a_folder_without_an_index_is_all_its_files() -> None:
    write_checkpoint("in", halves()).unlink()
    run("in", "out.safetensors")
    assert_holds("out.safetensors", arrays())


def test_shards_are_cut_as_huggingface_hub_cuts_them() -> None:
    save_file(arrays(), "in.safetensors")
    names = [tensor.name for tensor in open_store("in.safetensors").tensors]
    run_with("in.safetensors", "out/", write=WriteOptions(shard_nbytes=2300))
    index = json.loads(Path("out", INDEX).read_text())
    assert index["metadata"] == {"total_size": sum(array.nbytes for array in arrays().values())}
    assert list(index["weight_map"]) == sorted(arrays())
    shards = sorted(set(index["weight_map"].values()))
    assert shards == [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    assert sorted(path.name for path in Path("out").iterdir()) == [*shards, INDEX]
    assert_equal(load_checkpoint("out"), arrays())
    found, size = [[names[0]]], arrays()[names[0]].nbytes
    for name in names[1:]:
        if size + arrays()[name].nbytes > 2300:
            found.append([])
            size = 0
        found[-1].append(name)
        size += arrays()[name].nbytes
    assert [sorted(shard) for shard in found] == [sorted(load_file(Path("out", shard))) for shard in shards]
    assert len(shards) == 2


@pytest.mark.parametrize(("first", "second"), [("out/", f"out/{INDEX}"), (f"out/{INDEX}", "out")])
def test_a_folder_and_its_index_are_one_target(first: str, second: str) -> None:
    save_file(arrays(), "in.safetensors")
    Path("out").mkdir()
    write = WriteOptions(shard_nbytes=2300)
    with (
        open_journal(plan("in.safetensors", first, target_options=write).target),
        raises_exactly(
            FileError, f"cannot write {second}: another process is writing it; wait for its end, or choose another name"
        ),
    ):
        convert(plan("in.safetensors", second, target_options=write))
    assert not list(Path("out").iterdir())


def test_no_shard_is_replaced_if_another_one_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint("out", halves())
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    save_file({name: np.zeros_like(array) for name, array in arrays().items()}, "in.safetensors")
    planned, commit = plan("in.safetensors", "out/", target_options=WriteOptions(shard_nbytes=2300)), FileTarget.commit

    def commit_beside_a_folder(target: FileTarget, token: str, *, again: bool = False) -> None:
        Path("out", INDEX).unlink()
        Path("out", INDEX).mkdir()
        commit(target, token, again=again)

    monkeypatch.setattr(FileTarget, "commit", commit_beside_a_folder)
    with pytest.raises(FileError, match="it is a directory"):
        convert(planned, overwrite=True)
    del before[INDEX]
    assert {path.name: path.read_bytes() for path in Path("out").iterdir() if path.is_file()} == before


def test_one_shard_in_a_folder_has_no_index_and_keeps_its_texts() -> None:
    save_file(arrays(), "in.safetensors", {"note": "x"})
    run("in.safetensors", "out/")
    assert [path.name for path in Path("out").iterdir()] == ["model.safetensors"]
    assert_holds("out/model.safetensors", arrays())
    with safe_open("out/model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt", "note": "x"}


def test_an_index_is_written_where_it_is_named_even_for_one_shard() -> None:
    save_file({"w": numbered((3, 5))}, "in.safetensors")
    Path("out").mkdir()
    run("in.safetensors", "out/weights.safetensors.index.json")
    names = sorted(path.name for path in Path("out").iterdir())
    assert names == ["weights-00001-of-00001.safetensors", "weights.safetensors.index.json"]


def test_blocks_in_shards_return_bit_for_bit() -> None:
    write_checkpoint("in", halves())
    run_with("in", "packed/", "*weight=BA16a2b", write=WriteOptions(shard_nbytes=2000))
    run("packed", "out.safetensors", "plain")
    assert_holds("out.safetensors", arrays())


def test_a_plan_of_shards_can_be_pickled() -> None:
    write_checkpoint("in", halves())
    made = pickle.loads(pickle.dumps(plan("in", "out/", target_options=WriteOptions(shard_nbytes=100))))
    convert(made)
    assert_equal(load_checkpoint("out"), arrays())
    assert made == plan("in", "out/", target_options=WriteOptions(shard_nbytes=100))


def test_the_index_gets_its_name_last(monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint("in", halves())
    made = plan("in", "out/", target_options=WriteOptions(shard_nbytes=100))
    renamed = list[str]()
    replace = Path.replace

    def record(self: Path, target: Path) -> Path:
        renamed.append(Path(target).name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", record)
    convert(made)
    assert renamed[-1] == INDEX
    assert renamed[:-1] == sorted(renamed[:-1])


def test_a_failed_conversion_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint("in", halves())
    made = plan("in", "out/", target_options=WriteOptions(shard_nbytes=100))

    def fail(*_: object) -> None:
        raise FileError("the disk is full")

    monkeypatch.setattr(FileTarget, "open", fail)
    with raises_exactly(FileError, "the disk is full"):
        convert(made)
    assert not Path("out").exists()
    Path("out").mkdir()
    with raises_exactly(FileError, "the disk is full"):
        convert(made)
    assert list(Path("out").iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="limits of open files are Unix's")
def test_more_shards_than_a_process_may_open_are_read_and_written() -> None:
    import resource

    write_checkpoint("in", [{f"w{i}": np.full(3, i, np.float32)} for i in range(150)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = Path("/proc/self/fd")
    used = len(list(descriptors.iterdir())) if descriptors.exists() else 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(used + 90, soft), hard))
    try:
        run("in", "out.safetensors")
        run_with("in", "out/", write=WriteOptions(shard_nbytes=1))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    expected = {f"w{i}": np.full(3, i, np.float32) for i in range(150)}
    assert_holds("out.safetensors", expected)
    assert_equal(load_checkpoint("out"), expected)


COPY = "copy the checkpoint again from its source"
SHARD = "model-00001-of-00002.safetensors"


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ("[", "the index is damaged, it is not JSON"),
        ("[" * 100_000, "the index is damaged, it is not JSON"),
        ("[1]", "the index is damaged, it has no weight_map"),
        ('{"weight_map": []}', "the index is damaged, it has no weight_map"),
        ('{"weight_map": {"w": "a.safetensors", "w": "b.safetensors"}}', "the index is damaged, it lists w twice"),
        ('{"weight_map": {}, "weight_map": {}}', "the index is damaged, it lists weight_map twice"),
        *(
            (
                json.dumps({"weight_map": {"w": name}}),
                f"the index is damaged, {name!r} is no name of a .safetensors file in its folder",
            )
            for name in [
                "../up.safetensors",
                "/etc/a.safetensors",
                "sub/a.safetensors",
                "..\\a.safetensors",
                "C:a.safetensors",
                "a\0.safetensors",
                "a.bin",
                "",
                7,
                None,
            ]
        ),
        (
            json.dumps({"weight_map": {"encoder.weight": "model-00002-of-00002.safetensors", "ids": SHARD}}),
            f"it states that tensor encoder.weight is in model-00002-of-00002.safetensors, and it is in {SHARD}",
        ),
        (
            json.dumps({"weight_map": {"encoder.weight": SHARD, "lost": SHARD}}),
            f"it states that tensor lost is in {SHARD}, which does not have it",
        ),
    ],
)
def test_an_index_is_not_believed(index: str, reason: str) -> None:
    path = write_checkpoint("in", halves())
    path.write_text(index)
    with raises_exactly(FileError, f"cannot read in/{INDEX}: {reason}; {COPY}"):
        open_store("in")


def test_a_missing_shard_is_named() -> None:
    path = write_checkpoint("in", halves())
    Path("in", SHARD).unlink()
    with raises_exactly(FileError, f"cannot read in/{SHARD}: there is no such file; check the name"):
        open_store(path)


def test_a_name_in_two_shards_is_refused() -> None:
    write_checkpoint("in", [{"w": numbered((3,))}, {"w": numbered((4,)), "b": numbered((4,))}])
    second = "model-00002-of-00002.safetensors"
    text = f"cannot read in/{INDEX}: tensor w is in {SHARD} and in {second}; name the file to read"
    places = {"w": SHARD, "b": second}
    Path("in", INDEX).write_text(json.dumps({"weight_map": places}))
    with raises_exactly(FileError, text):
        open_store("in")


def test_a_tensor_that_the_index_does_not_list_is_read() -> None:
    write_checkpoint("in", halves())
    Path("in", INDEX).write_text(
        json.dumps({"weight_map": {"encoder.weight": SHARD, "ids": "model-00002-of-00002.safetensors"}})
    )
    run("in", "out.safetensors")
    assert_holds("out.safetensors", arrays())


def test_folders_that_are_no_checkpoint_are_refused() -> None:
    Path("in").mkdir()
    end = "the folder holds no .safetensors file and no index of shards; name a file"
    with raises_exactly(FileError, f"cannot read in: {end}"):
        open_store("in")
    for name in "ab":
        Path("in", f"{name}.safetensors.index.json").write_text("{}")
    some = "a.safetensors.index.json, b.safetensors.index.json"
    with raises_exactly(FileError, f"cannot read in: the folder holds several indexes, {some}; name one of them"):
        open_store("in")


def test_shards_beside_a_file_that_readers_prefer_are_refused() -> None:
    write_checkpoint("in", halves())
    Path("out").mkdir()
    save_file({"w": numbered((3,))}, "out/model.safetensors")
    text = (
        f"cannot write out/{INDEX}: its folder holds model.safetensors, which readers of checkpoints prefer to an "
        "index; remove it, or choose another folder"
    )
    with raises_exactly(FileError, text):
        plan("in", "out", target_options=WriteOptions(shard_nbytes=100))


def test_shards_with_long_names_have_hidden_names_that_differ() -> None:
    write_checkpoint("in", halves())
    index = f"{'long-name-' * 7}.safetensors.index.json"
    run_with("in", f"{index}", write=WriteOptions(shard_nbytes=2300))
    assert len(list(Path().glob("long-name-*"))) == 3
    run(index, "back.safetensors")
    assert_holds("back.safetensors", arrays())


def test_sizes_of_shards_are_checked() -> None:
    write_checkpoint("in", halves())
    with raises_exactly(InvalidArguments, "shards of 0 bytes hold nothing: give a size such as 5GB (--shard-size)"):
        plan("in", "out/", target_options=WriteOptions(shard_nbytes=0))


def tiny_llama(transformers: Any) -> Any:
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
def test_transformers_loads_what_is_written_and_inlay_reads_what_transformers_writes() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    model = tiny_llama(transformers)
    model.save_pretrained("in", max_shard_size="20KB")
    run("in", "whole.safetensors")
    run_with("whole.safetensors", "out/", write=WriteOptions(shard_nbytes=20_000))
    theirs, ours = (json.loads(Path(folder, INDEX).read_text()) for folder in ("in", "out"))
    assert ours["metadata"]["total_size"] == theirs["metadata"]["total_size"]
    assert sorted(ours["weight_map"]) == sorted(theirs["weight_map"])
    Path("out", "config.json").write_bytes(Path("in", "config.json").read_bytes())
    loaded, report = transformers.LlamaForCausalLM.from_pretrained("out", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    state = model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())
    packed = ("*proj.weight=BA16a4b", "*=plain")
    run_with("in", "packed/", *packed, write=WriteOptions(shard_nbytes=20_000))
    run_with("packed", "back/", "plain", write=WriteOptions(shard_nbytes=20_000))
    assert_equal(load_checkpoint("back"), {name: value.numpy() for name, value in state.items()})
