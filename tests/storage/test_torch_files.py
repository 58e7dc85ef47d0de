"""Files of PyTorch: equal to what torch.load returns; nothing in them is executed, and damaged ones are refused."""

import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from inlay.errors import FileError, MissingExtra
from inlay.storage import convert, open_store, plan
from inlay.storage import torch_file as module
from tests.support.networks import torch_or_skip
from tests.support.refusals import raises_exactly
from tests.support.stored_arrays import Bomb, assert_not_executed, bomb
from tests.support.tensor_files import run

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def torch() -> Any:
    return torch_or_skip()


def assert_equal_tensors(path: str, expected: dict[str, Any], torch: Any) -> None:
    from safetensors.torch import load_file

    found = load_file(path)
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert found[name].untyped_storage().tolist() == tensor.contiguous().clone().untyped_storage().tolist(), name


@pytest.mark.parametrize("name", ["in.pt", "in.pth", "in.bin", "in.ckpt"])
def test_a_state_dict_is_read_under_every_suffix(torch: Any, name: str) -> None:
    state = torch.nn.Sequential(torch.nn.Conv2d(3, 17, 3), torch.nn.BatchNorm2d(17)).state_dict()
    torch.save(state, name)
    run(name, "out.safetensors")
    assert_equal_tensors("out.safetensors", state, torch)


def test_every_type_is_read(torch: Any) -> None:
    names = [*module._DATA_TYPES]
    tensors = {
        name: torch.arange(1, 49, dtype=torch.uint8).view(-1, 16)[:, :8].contiguous().view(getattr(torch, name))
        for name in names
        if name not in ("bool", "complex128")
    }
    tensors["bool"] = torch.tensor([True, False])
    torch.save(tensors, "in.pt")
    run("in.pt", "out.safetensors")
    assert_equal_tensors("out.safetensors", tensors, torch)


def test_nested_collections_become_names_with_dots_and_other_values_are_left_out(torch: Any) -> None:
    a, b = torch.arange(6.0).reshape(2, 3), torch.arange(3)
    torch.save({"model": {"a": a, "layers": [b, {"c": a}]}, "epoch": 3, "note": "x", 7: b, "none": None}, "in.pt")
    run("in.pt", "out.safetensors")
    expected = {"model.a": a, "model.layers.0": b, "model.layers.1.c": a, "7": b}
    assert_equal_tensors("out.safetensors", expected, torch)
    torch.save(a, "alone.pt")
    assert [tensor.name for tensor in open_store("alone.pt").tensors] == ["alone"]


def views(torch: Any) -> dict[str, Any]:
    """Tensors that share storages: transposed, sliced, with steps, expanded, without elements, of one element."""
    base = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
    return {
        "base": base,
        "transposed": base.transpose(1, 3),
        "slice": base[1:],
        "columns": base[..., 1:3],
        "steps": base[:, ::2, 1::2],
        "channels_last": base.to(memory_format=torch.channels_last),
        "expanded": base[0, 0, 0].expand(4, 5),
        "diagonal": base[0, 0].as_strided((4,), (6,)),
        "overlapping": base[0, 0, 0].as_strided((3, 3), (1, 1)),
        "scalar": base[1, 2, 3, 4],
        "one": base[1:, 2:, 3:, 4:],
        "empty": base[:0],
        "parameter": torch.nn.Parameter(base[0]),
        "half": base.half().permute(3, 1, 0, 2),
    }


def test_views_are_written_row_major_with_their_own_elements(torch: Any) -> None:
    torch.save(views(torch), "in.pt")
    run("in.pt", "out.safetensors")
    assert_equal_tensors("out.safetensors", {name: t.detach() for name, t in views(torch).items()}, torch)


def test_views_are_reordered_in_boxes(torch: Any) -> None:
    tensors = {"a": torch.randn(300, 200).t(), "b": torch.randn(8, 3, 20, 41).to(memory_format=torch.channels_last)}
    torch.save(tensors, "in.pt")
    run("in.pt", "packed.safetensors", "a=Ab16a", "b=nChw8c", memory="64 kB")
    run("packed.safetensors", "out.safetensors", "plain", memory="64 kB")
    assert_equal_tensors("out.safetensors", tensors, torch)


def test_a_plan_needs_no_pytorch_to_be_executed(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(views(torch), "in.pt")
    made = pickle.dumps(plan("in.pt", "out.safetensors"))
    monkeypatch.setitem(sys.modules, "torch", None)
    convert(pickle.loads(made))


def test_without_pytorch_the_command_that_installs_it_is_named(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"w": torch.zeros(3)}, "in.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    with raises_exactly(MissingExtra, "in.pt needs torch, which is not installed: pip install 'inlay[torch]'"):
        open_store("in.pt")


OLD = (
    "cannot read in.pt: it is truncated, or from a release of PyTorch before 1.6; load it with PyTorch and save it "
    "again"
)


def test_files_before_zip_archives_and_bare_pickles_are_refused(torch: Any) -> None:
    torch.save({"w": torch.zeros(3)}, "in.pt", _use_new_zipfile_serialization=False)
    with raises_exactly(FileError, OLD):
        open_store("in.pt")
    for content in (bomb(), b"", b"x" * 100):
        Path("in.pt").write_bytes(content)
        with raises_exactly(FileError, OLD):
            open_store("in.pt")
    assert_not_executed()


def test_nothing_is_executed(torch: Any) -> None:
    torch.save({"w": Bomb(), "x": torch.zeros(3)}, "in.pt")
    with pytest.raises(
        FileError, match=r"^cannot read in.pt: PyTorch does not load it as tensors alone \(.*\); save a"
    ):
        open_store("in.pt")
    assert_not_executed()
    torch.save(torch.nn.Linear(3, 4), "in.pt")
    with pytest.raises(
        FileError, match=r"^cannot read in.pt: PyTorch does not load it as tensors alone \(.*\); save a"
    ):
        open_store("in.pt")


def test_tensors_that_are_no_strided_bytes_are_refused(torch: Any) -> None:
    text = (
        "cannot read in.pt: tensor w is sparse, quantized or a conjugate, and no strided bytes; convert it with "
        "PyTorch first"
    )
    torch.save({"w": torch.tensor([1 + 2j]).conj()}, "in.pt")
    with raises_exactly(FileError, text):
        open_store("in.pt")
    torch.save({"w": torch.eye(3).to_sparse()}, "in.pt")
    # Some releases check sparse tensors while they load them, which needs their elements.
    with pytest.raises(
        FileError, match=r"^cannot read in\.pt: (tensor w is sparse, |PyTorch does not load it as tensors)"
    ):
        open_store("in.pt")


def rewrite(damage: Any) -> None:
    """Write the archive again with the members that `damage` returns for the old ones."""
    with zipfile.ZipFile("in.pt") as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile("in.pt", "w") as archive:
        for name, content, *kind in map(damage, members):
            archive.writestr(name, content, *kind)


def test_storages_that_are_not_as_the_pickle_states_are_refused(torch: Any) -> None:
    missing = "cannot read in.pt: the archive does not hold the bytes of tensor w; save it again with PyTorch"
    for damage in (
        lambda member: (member[0], member[1][:100] if "/data/" in member[0] else member[1]),
        lambda member: (*member, zipfile.ZIP_DEFLATED if "/data/" in member[0] else zipfile.ZIP_STORED),
    ):
        torch.save({"w": torch.zeros(300)}, "in.pt")
        rewrite(damage)
        with raises_exactly(FileError, missing):
            open_store("in.pt")
    torch.save({"w": torch.zeros(300)}, "in.pt")
    rewrite(lambda member: (member[0], b"big" if member[0].endswith("byteorder") else member[1]))
    text = "cannot read in.pt: it has the byte order of another processor; load and save it with PyTorch"
    with raises_exactly(FileError, text):
        open_store("in.pt")


def test_truncated_files_are_refused(torch: Any) -> None:
    torch.save({"w": torch.arange(300.0)}, "in.pt")
    content = Path("in.pt").read_bytes()
    for size in range(0, len(content), 97):
        Path("in.pt").write_bytes(content[:size])
        with raises_exactly(FileError, OLD):
            open_store("in.pt")


def test_two_tensors_of_one_name_are_refused(torch: Any) -> None:
    torch.save({"a": {"b": torch.zeros(3)}, "a.b": torch.zeros(4)}, "in.pt")
    with raises_exactly(FileError, "cannot read in.pt: two tensors are named a.b; rename one in PyTorch"):
        open_store("in.pt")


def test_a_sharded_checkpoint_of_pytorch_is_read(torch: Any) -> None:
    Path("in").mkdir()
    shards = [{"a": torch.arange(6.0)}, {"b": torch.arange(6).reshape(2, 3).t()}]
    places = {}
    for i, shard in enumerate(shards):
        name = f"pytorch_model-{i + 1:05d}-of-00002.bin"
        torch.save(shard, Path("in") / name)
        places.update(dict.fromkeys(shard, name))
    Path("in", "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    run("in", "out.safetensors")
    assert_equal_tensors("out.safetensors", shards[0] | shards[1], torch)


@pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")
def test_memory_is_that_of_a_box(torch: Any) -> None:
    """A file of 200 MB is converted in a process that needs at most 100 MB more than for the plan."""
    torch.save({"w": torch.zeros(50, 1000, 1000)}, "in.pt")
    made = pickle.dumps(plan("in.pt", "out.safetensors", ["Abc16a"], memory="32 MB"))
    Path("plan").write_bytes(made)
    program = (
        "import pickle, sys; from pathlib import Path; from inlay.storage import convert\n"
        "from tests.support.processes import peak_memory\n"
        "plan = pickle.loads(Path('plan').read_bytes()); before = peak_memory()\n"
        "convert(plan); print(peak_memory() - before, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    grown, has_torch = done.stdout.split()
    assert int(grown) < 100_000_000
    assert has_torch == "False"
