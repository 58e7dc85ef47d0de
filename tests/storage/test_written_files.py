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
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from inlay.errors import InlayError, InvalidArguments
from inlay.files import require_file
from inlay.memory import Memory, pack
from inlay.storage import open_memories, plan, safetensors_file, save_memories
from tests.support.command_line import Capture, complaint, succeed, write_activations
from tests.support.refusals import raises_exactly
from tests.support.tensor_files import numbered

IMAGE = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
HOSTILE = "n\x1b]0;title\x07\n\x00\ufffe\u202e<b>&\"'"


def memory() -> Memory:
    return pack(numbered((3, 5)), "ab")


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
def test_every_written_file_opens_in_its_own_reader(directory: Path, capsys: Capture, command: str, name: str) -> None:
    """Whatever the names in the files that are read."""
    np.save("image.npy", IMAGE)
    save_memories("packed.safetensors", {name: pack(IMAGE, "nChw16c")}, {name: name})
    write_activations(IMAGE.shape, name, name)
    succeed(capsys, *command.replace("OUT", "written").split())
    (written,) = directory.glob("written.*")
    READERS[written.suffix](written)
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        ["image.npy", "net.onnx", "packed.safetensors", written.name]
    )


def test_json_is_json(capsys: Capture) -> None:
    for name in ("plain", HOSTILE):
        write_activations(IMAGE.shape, name)
        found = json.loads(succeed(capsys, "plan", "net.onnx", "--costs", "analytic", "--json"))
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
    with raises_exactly(InvalidArguments, message):
        save_memories("m.safetensors", memories, metadata)
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
    text = (
        "names and texts of m.safetensors take 1152 bytes, and the safetensors library reads 1000: write several "
        "files, or leave out metadata"
    )
    with raises_exactly(InvalidArguments, text):
        save_memories("m.safetensors", {"m": memory()}, {"k": "x" * 1000})
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
    directory: Path, capsys: Capture, file: str, message: str
) -> None:
    try:
        np.save(file, IMAGE)
    except OSError:
        pytest.skip("this file system keeps Unicode names only")
    with raises_exactly(InvalidArguments, message):
        plan(file, "m.safetensors", ["plain"])
    for extra in ([], ["--dry-run"]):
        assert complaint(capsys, "convert", file, "-o", "m.safetensors", "--to", "plain", *extra) == message
    assert [path.name for path in directory.iterdir()] == [file]
    succeed(capsys, "convert", file, "-o", "same.npy", "--to", "plain")
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


def test_an_output_whose_name_a_npz_file_would_cut_is_refused_before_it_runs(directory: Path, capsys: Capture) -> None:
    np.save("image.npy", IMAGE)
    write_activations(IMAGE.shape, out="y\0b")
    command = ("run", "net.onnx", "--input", "image.npy", "--engine", "reference", "-o", "out.npz")
    assert complaint(capsys, *command) == (
        "a .npz file cannot store the output 'y\\x00b': names end at the character NUL there; rename the output in the "
        "model"
    )
    assert not (directory / "out.npz").exists()
