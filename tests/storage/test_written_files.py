"""Every written file can be read by its usual reader; content that could not be read again is refused first."""

import json
import os
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from onnx import TensorProto, helper
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from inlay import cli
from inlay.errors import InlayError, InvalidArguments
from inlay.files import require_file
from inlay.memory import Memory, pack
from inlay.storage import open_memories, plan_conversion, safetensors_file, save_memories
from tests.support.tensor_files import numbered

IMAGE = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
HOSTILE = "n\x1b]0;title\x07\n\x00\ufffe\u202e<b>&\"'"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INLAY_DEBUG", raising=False)
    return tmp_path


def memory() -> Memory:
    return pack(numbered((3, 5)), "ab")


def write_model(path: str = "net.onnx", name: str = "small", out: str = "y") -> None:
    shape = [2, 3, 4, 4]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", out)]
    nodes = [helper.make_node("Relu", ["x"], ["h"], name), helper.make_node("Sigmoid", ["h"], [out], f"{name} 2")]
    graph = helper.make_graph(nodes, name, ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path(path).write_bytes(model.SerializeToString())


# Each in its own reader


def open_safetensors(path: Path) -> None:
    with safe_open(path, framework="numpy") as file:
        assert [file.get_tensor(name).size for name in file.keys()]  # noqa: SIM118


def open_numpy(path: Path) -> None:
    found = np.load(path)
    arrays = found.values() if isinstance(found, np.lib.npyio.NpzFile) else [found]
    assert all(array.shape == (2, 3, 4, 4) for array in arrays)


def open_xml(path: Path) -> None:
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


class Page(HTMLParser):
    """Refuses what a browser would mend."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.drawings = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "html", "body"):
            self.open.append(tag)
        self.drawings += tag == "svg"

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("meta", "html", "body"):
            assert self.open.pop() == tag


def open_html(path: Path) -> None:
    text = path.read_bytes().decode()
    page = Page()
    page.feed(text)
    page.close()
    assert (page.open, page.drawings) == ([], 1)
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])


READERS: dict[str, Callable[[Path], None]] = {
    ".safetensors": open_safetensors,
    ".npy": open_numpy,
    ".npz": open_numpy,
    ".svg": open_xml,
    ".html": open_html,
}

COMMANDS = [
    "convert image.npy -o OUT.safetensors --to nChw16c",
    "convert image.npy -o OUT.safetensors --to plain --dtype bf16",
    "convert image.npy -o OUT.npy --to plain",
    "convert packed.safetensors -o OUT.safetensors --to plain",
    "convert packed.safetensors -o OUT.npy --to plain",
    "show nChw8c 2x17x5x4 --svg OUT.svg",
    "plan net.onnx --costs analytic --picture OUT.svg",
    "plan net.onnx --costs analytic --picture OUT.html",
    "run net.onnx --input image.npy --engine reference -o OUT.npy",
    "run net.onnx --input image.npy --engine reference -o OUT.npz",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["plain", HOSTILE.replace("\0", "")])
def test_every_written_file_opens_in_its_own_reader(
    directory: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    """Whatever the names in the files that are read."""
    np.save("image.npy", IMAGE)
    save_memories("packed.safetensors", {name: pack(IMAGE, "nChw16c")}, {name: name})
    write_model(name=name, out=name)
    assert cli.main(command.replace("OUT", "written").split()) == 0
    capsys.readouterr()
    (written,) = directory.glob("written.*")
    READERS[written.suffix](written)
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        ["image.npy", "net.onnx", "packed.safetensors", written.name]
    )


def test_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("plain", HOSTILE):
        write_model(name=name)
        assert cli.main(["plan", "net.onnx", "--costs", "analytic", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["network"], found["steps"][0]["ops"]) == (name, [name])


# Refused before a byte is written


@pytest.mark.parametrize(
    ("memories", "metadata", "message"),
    [
        (
            {"__metadata__": memory()},
            None,
            "a tensor cannot be named __metadata__: the format stores metadata there; rename it",
        ),
        ({1: memory()}, None, "the name of a tensor is 1: a safetensors file stores texts, give a str"),
        ({None: memory()}, None, "the name of a tensor is None: a safetensors file stores texts, give a str"),
        (
            {"\udcff": memory()},
            None,
            "the name of a tensor is '\\udcff', which is no Unicode text: rename it",
        ),
        ({"w": 3}, None, "memories['w'] is 3: give a Memory, as from inlay.pack(array, tag)"),
        (3, None, "memories is 3: give a mapping of names to Memory"),
        (
            {"a": memory()},
            {"inlay": "hello"},
            "the key 'inlay' of the metadata is reserved for descriptors: use another key",
        ),
        ({"a": memory()}, {"k": 1}, "metadata['k'] is 1: a safetensors file stores texts, give a str"),
        ({"a": memory()}, {"k": None}, "metadata['k'] is None: a safetensors file stores texts, give a str"),
        ({"a": memory()}, {7: "v"}, "a key of the metadata is 7: a safetensors file stores texts, give a str"),
        ({"a": memory()}, {"k": "\ud800"}, "metadata['k'] is '\\ud800', which is no Unicode text: rename it"),
        ({"a": memory()}, "text", "metadata is 'text': give a mapping of texts to texts"),
    ],
    ids=str,
)
def test_what_no_reader_would_open_is_refused(directory: Path, memories: Any, metadata: Any, message: str) -> None:
    (directory / "m.safetensors").write_text("the old content")
    with pytest.raises(InvalidArguments) as caught:
        save_memories("m.safetensors", memories, metadata)
    assert str(caught.value) == message
    assert [(path.name, path.read_text()) for path in directory.iterdir()] == [("m.safetensors", "the old content")]


@pytest.mark.parametrize("name", ["", "a\0b", "\ufffe", "\x1b[31m", "x" * 100_000, "metadata", 'ü\n"\\'])
def test_every_other_name_is_kept(name: str) -> None:
    save_memories("m.safetensors", {name: memory()}, {name: name})
    opened = open_memories("m.safetensors")
    assert list(opened) == [name]
    with safe_open("m.safetensors", framework="numpy") as file:
        assert (list(file.keys()), file.metadata()) == ([name], {name: name})


def test_a_header_longer_than_the_library_reads_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors_file, "_MAX_HEADER_BYTES", 1000)
    with pytest.raises(InvalidArguments) as caught:
        save_memories("m.safetensors", {"m": memory()}, {"k": "x" * 1000})
    assert str(caught.value) == (
        "names and texts of m.safetensors take 1152 bytes, and the safetensors library reads 1000: write several "
        "files, or leave out metadata"
    )
    assert list(directory.iterdir()) == []


@pytest.mark.heavy
def test_the_longest_header_is_the_librarys() -> None:
    spare = safetensors_file._MAX_HEADER_BYTES - 200
    save_memories("m.safetensors", {"m": memory()}, {"k": "x" * spare})
    assert list(open_memories("m.safetensors")) == ["m"]
    with pytest.raises(SafetensorError, match="header too large"):
        save_file({"m": np.zeros(3)}, "n.safetensors", {"k": "x" * (spare + 200)})


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("__metadata__.npy", "a tensor cannot be named __metadata__: the format stores metadata there; rename it"),
        (os.fsdecode(b"\xff\xfe.npy"), "the name of a tensor is '\\udcff\\udcfe', which is no Unicode text: rename it"),
    ],
)
def test_a_file_whose_name_cannot_name_a_tensor_is_refused(
    directory: Path, capsys: pytest.CaptureFixture[str], file: str, message: str
) -> None:
    try:
        np.save(file, IMAGE)
    except OSError:
        pytest.skip("this file system keeps Unicode names only")
    with pytest.raises(InvalidArguments) as caught:
        plan_conversion(file, "m.safetensors", ["plain"])
    assert str(caught.value) == message
    for extra in ([], ["--dry-run"]):
        assert cli.main(["convert", file, "-o", "m.safetensors", "--to", "plain", *extra]) == 2
        assert capsys.readouterr() == ("", f"error: {message}\n")
    assert [path.name for path in directory.iterdir()] == [file]
    assert cli.main(["convert", file, "-o", "same.npy", "--to", "plain"]) == 0
    open_numpy(Path("same.npy"))


@pytest.mark.parametrize("act", [open_memories, lambda path: save_memories(path, {"m": memory()}), require_file])
@pytest.mark.parametrize("suffix", ["npy", "safetensors"])
def test_a_path_with_a_nul_is_refused(act: Callable[[Any], object], suffix: str) -> None:
    with pytest.raises(InlayError) as caught:
        act(Path(f"a\0.{suffix}"))
    if "store descriptors" in str(caught.value):
        return
    action = "read" if act in (open_memories, require_file) else "write"
    assert str(caught.value) == (
        f"cannot {action} 'a\\x00.{suffix}': no file name contains the character NUL; check the name"
    )


# Other files are not replaced


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("show ab 2x3 --svg image.npy", "--svg writes a file that ends in .svg, not '.npy'"),
        ("show ab 2x3 --svg net.onnx", "--svg writes a file that ends in .svg, not '.onnx'"),
        ("show ab 2x3 --svg image", "--svg writes a file that ends in .svg, not 'without an ending'"),
        (
            "plan net.onnx --costs analytic --picture net.onnx",
            "the picture of a plan is saved as .svg or .html, not '.onnx'",
        ),
        (
            "plan net.svg --costs analytic --picture link.svg",
            "cannot write link.svg: it is the file that is being read; choose another name",
        ),
        (
            "run net.onnx --input image.npy -o image.npy",
            "cannot write image.npy: it is the file that is being read; choose another name",
        ),
        (
            "run net.onnx --input x=image.npy -o hard.npy",
            "cannot write hard.npy: it is the file that is being read; choose another name",
        ),
        (
            "run net.onnx --input image.npy -o model.npy",
            "cannot write model.npy: it is the file that is being read; choose another name",
        ),
        (
            "run net.onnx --input image.npy -o net.onnx",
            "cannot write net.onnx: it is the file that is being read; choose another name",
        ),
        (
            "convert image.npy -o hard.npy --to plain",
            "cannot write hard.npy: it is the file that is being read; choose another name",
        ),
    ],
)
def test_no_command_replaces_its_input_or_a_file_of_another_kind(
    directory: Path, capsys: pytest.CaptureFixture[str], command: str, message: str
) -> None:
    np.save("image.npy", IMAGE)
    write_model()
    write_model("net.svg")
    (directory / "link.svg").symlink_to("net.svg")
    (directory / "model.npy").symlink_to("net.onnx")
    (directory / "hard.npy").hardlink_to("image.npy")
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert cli.main(command.split()) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_an_output_whose_name_a_npz_file_would_cut_is_refused_before_it_runs(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("image.npy", IMAGE)
    write_model(out="y\0b")
    assert cli.main(["run", "net.onnx", "--input", "image.npy", "--engine", "reference", "-o", "out.npz"]) == 2
    assert capsys.readouterr().err == (
        "error: a .npz file cannot store the output 'y\\x00b': names end at the character NUL there; rename the "
        "output in the model\n"
    )
    assert not (directory / "out.npz").exists()
